#include "test/unit/comm/CollectiveChecks.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

namespace qwen35::comm {
namespace {

using Bytes = std::vector<unsigned char>;

uint64_t mix(uint64_t x) { // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Values of sizes from 2^-8 to 2^8, so that the order of a sum shows.
double valueOf(int rank, int64_t i, int salt) {
  uint64_t bits =
      mix(mix(static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(rank)) +
          static_cast<uint64_t>(salt));
  double unit = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  return std::ldexp(unit, static_cast<int>(bits % 17) - 8);
}

uint16_t toBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float fromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

template <typename T> void put(Bytes &to, int64_t i, T value) {
  std::memcpy(to.data() + static_cast<size_t>(i) * sizeof value, &value,
              sizeof value);
}
template <typename T> T get(const Bytes &from, int64_t i) {
  T value;
  std::memcpy(&value, from.data() + static_cast<size_t>(i) * sizeof value,
              sizeof value);
  return value;
}

/// Elements `first` to first + count of what a rank has.
Bytes dataOf(int rank, int64_t first, int64_t count, Type type, int salt) {
  Bytes bytes(static_cast<size_t>(count * bytesOf(type)));
  for (int64_t i = 0; i < count; ++i) {
    double value = valueOf(rank, first + i, salt);
    uint64_t bits = mix(static_cast<uint64_t>(first + i) + 77 +
                        static_cast<uint64_t>(rank * 1000 + salt));
    switch (type) {
    case Type::kF32:
      put(bytes, i, static_cast<float>(value));
      break;
    case Type::kBf16:
      put(bytes, i, toBf16(static_cast<float>(value)));
      break;
    case Type::kF64:
      put(bytes, i, value);
      break;
    case Type::kI32:
      put(bytes, i, static_cast<uint32_t>(bits)); // sums wrap
      break;
    case Type::kI64:
      put(bytes, i, bits);
      break;
    case Type::kByte:
      bytes[static_cast<size_t>(i)] = static_cast<unsigned char>(bits);
    }
  }
  return bytes;
}

template <typename T> T reduceTwo(T a, T b, Reduction reduction) {
  switch (reduction) {
  case Reduction::kSum:
    return static_cast<T>(a + b);
  case Reduction::kMax:
    return b > a ? b : a;
  case Reduction::kMin:
    return b < a ? b : a;
  }
  return a;
}

/// The definition: one element at a time, in the order of `members`.
Bytes reduced(const std::vector<int> &members, int64_t first, int64_t count,
              Type type, const Reduce &reduce, bool roundResult, int salt) {
  Type wire = reduce.wire.value_or(type);
  bool wide = reduce.accumulate == Type::kF64;
  Bytes result(static_cast<size_t>(count * bytesOf(type)));
  std::vector<Bytes> all;
  for (int member : members)
    all.push_back(dataOf(member, first, count, type, salt));
  for (int64_t i = 0; i < count; ++i) {
    double f64 = 0;
    float f32 = 0;
    int32_t i32 = 0;
    int64_t i64 = 0;
    for (size_t r = 0; r < all.size(); ++r) {
      auto fold = [&](auto &sum, auto value) {
        sum = r == 0 ? value : reduceTwo(sum, value, reduce.reduction);
      };
      if (type == Type::kI32) {
        int32_t value = get<int32_t>(all[r], i);
        i32 = r == 0 ? value
              : reduce.reduction == Reduction::kSum
                  ? static_cast<int32_t>(static_cast<uint32_t>(i32) +
                                         static_cast<uint32_t>(value))
                  : reduceTwo(i32, value, reduce.reduction);
      } else if (type == Type::kI64) {
        int64_t value = get<int64_t>(all[r], i);
        i64 = r == 0 ? value
              : reduce.reduction == Reduction::kSum
                  ? static_cast<int64_t>(static_cast<uint64_t>(i64) +
                                         static_cast<uint64_t>(value))
                  : reduceTwo(i64, value, reduce.reduction);
      } else if (type == Type::kF64) {
        fold(f64, get<double>(all[r], i));
      } else {
        float value = type == Type::kF32 ? get<float>(all[r], i)
                                         : fromBf16(get<uint16_t>(all[r], i));
        if (wire == Type::kBf16)
          value = fromBf16(toBf16(value));
        if (wide)
          fold(f64, static_cast<double>(value));
        else
          fold(f32, value);
      }
    }
    if (wide && type == Type::kF32)
      f32 = static_cast<float>(f64);
    if (roundResult && wire == Type::kBf16)
      f32 = fromBf16(toBf16(f32));
    switch (type) {
    case Type::kF32:
      put(result, i, f32);
      break;
    case Type::kBf16:
      put(result, i, toBf16(f32));
      break;
    case Type::kF64:
      put(result, i, f64);
      break;
    case Type::kI32:
      put(result, i, i32);
      break;
    default:
      put(result, i, i64);
    }
  }
  return result;
}

absl::Status same(const Bytes &got, const Bytes &expected,
                  const std::string &what) {
  if (got == expected)
    return absl::OkStatus();
  size_t i = 0;
  while (i < got.size() && i < expected.size() && got[i] == expected[i])
    ++i;
  return absl::InternalError(
      absl::StrCat(what, ": byte ", i, " of ", expected.size(), " differs"));
}

void append(Bytes &to, const Bytes &more) {
  to.insert(to.end(), more.begin(), more.end());
}

absl::Status checkOn(Communicator &comm, int64_t count, Type type, int salt) {
  const std::vector<int> &members = comm.members();
  const int64_t n = comm.size(), width = bytesOf(type), bytes = count * width;
  const int me = comm.rank(), self = members[static_cast<size_t>(me)];
  auto what = [&](const char *kind) {
    return absl::StrCat("rank ", self, ": ", kind, " of ", count, " ",
                        nameOf(type), " over ", n, " ranks");
  };
  Bytes mine = dataOf(self, 0, count, type, salt);
  Bytes wide = dataOf(self, 0, n * count, type, salt);
  const Bytes fresh(static_cast<size_t>(bytes), 0xEE);
  const Bytes freshWide(static_cast<size_t>(n * bytes), 0xEE);

  Bytes gathered = freshWide, expected;
  for (int member : members)
    append(expected, dataOf(member, 0, count, type, salt));
  QWEN35_RETURN_IF_ERROR(
      comm.allGather(mine.data(), gathered.data(), count, type));
  QWEN35_RETURN_IF_ERROR(same(gathered, expected, what("all_gather")));
  gathered = freshWide;
  std::memcpy(gathered.data() + me * bytes, mine.data(), mine.size());
  QWEN35_RETURN_IF_ERROR(comm.allGather(gathered.data() + me * bytes,
                                        gathered.data(), count, type));
  QWEN35_RETURN_IF_ERROR(same(gathered, expected, what("in-place all_gather")));

  Bytes exchanged = freshWide;
  expected.clear();
  for (int member : members)
    append(expected, dataOf(member, me * count, count, type, salt));
  QWEN35_RETURN_IF_ERROR(
      comm.allToAll(wide.data(), exchanged.data(), count, type));
  QWEN35_RETURN_IF_ERROR(same(exchanged, expected, what("all_to_all")));

  for (int offset : {1, -1, static_cast<int>(n) - 1})
    for (bool wrap : {false, true}) {
      if (offset == 0 || offset <= -n || offset >= n)
        continue;
      Bytes shifted = fresh;
      int64_t from = me - offset;
      if (wrap)
        from = (from + n) % n;
      expected = from < 0 || from >= n
                     ? Bytes(static_cast<size_t>(bytes), 0)
                     : dataOf(members[static_cast<size_t>(from)], 0, count,
                              type, salt);
      QWEN35_RETURN_IF_ERROR(
          comm.shift(mine.data(), shifted.data(), count, type, offset, wrap));
      QWEN35_RETURN_IF_ERROR(same(shifted, expected, what("shift")));
    }

  // The ranks in pairs, the last of an odd number with itself; different
  // counts in the two directions.
  int partner = me ^ 1;
  if (partner >= n)
    partner = me;
  int64_t there = partner == me ? count : count + (me & 1);
  int64_t back = partner == me ? count : count + (partner & 1);
  Bytes sent = dataOf(self, 0, there, type, salt);
  Bytes received(static_cast<size_t>(back * width), 0xEE);
  QWEN35_RETURN_IF_ERROR(comm.sendReceive(partner, sent.data(), there, partner,
                                          received.data(), back, type));
  QWEN35_RETURN_IF_ERROR(
      same(received,
           dataOf(members[static_cast<size_t>(partner)], 0, back, type, salt),
           what("send_receive")));

  for (int root : {0, static_cast<int>(n) - 1}) {
    Bytes data = me == root ? mine : fresh;
    QWEN35_RETURN_IF_ERROR(comm.broadcast(data.data(), count, type, root));
    QWEN35_RETURN_IF_ERROR(same(
        data, dataOf(members[static_cast<size_t>(root)], 0, count, type, salt),
        what("broadcast")));
  }
  QWEN35_RETURN_IF_ERROR(comm.barrier());
  if (type == Type::kByte)
    return absl::OkStatus();

  std::vector<Reduce> ways = {{}, {Reduction::kMax}, {Reduction::kMin}};
  if (type == Type::kF32) {
    ways.push_back({Reduction::kSum, Type::kBf16, Type::kF32});
    ways.push_back({Reduction::kSum, Type::kF32, Type::kF64});
  }
  for (const Reduce &reduce : ways) {
    std::string name =
        absl::StrCat("all_reduce ", nameOf(reduce.reduction), " wire ",
                     nameOf(reduce.wire.value_or(type)));
    expected = reduced(members, 0, count, type, reduce, true, salt);
    Bytes result = fresh;
    QWEN35_RETURN_IF_ERROR(
        comm.allReduce(mine.data(), result.data(), count, type, reduce));
    QWEN35_RETURN_IF_ERROR(same(result, expected, what(name.c_str())));
    result = mine;
    QWEN35_RETURN_IF_ERROR(
        comm.allReduce(result.data(), result.data(), count, type, reduce));
    QWEN35_RETURN_IF_ERROR(same(result, expected, what(name.c_str())));

    expected = reduced(members, me * count, count, type, reduce, false, salt);
    result = fresh;
    QWEN35_RETURN_IF_ERROR(
        comm.reduceScatter(wide.data(), result.data(), count, type, reduce));
    QWEN35_RETURN_IF_ERROR(same(result, expected, what("reduce_scatter")));
    Bytes inPlace = wide;
    QWEN35_RETURN_IF_ERROR(comm.reduceScatter(
        inPlace.data(), inPlace.data() + me * bytes, count, type, reduce));
    QWEN35_RETURN_IF_ERROR(same(
        Bytes(inPlace.begin() + me * bytes, inPlace.begin() + (me + 1) * bytes),
        expected, what("in-place reduce_scatter")));
  }
  return absl::OkStatus();
}

} // namespace

absl::Status checkCollectives(World &world) {
  std::vector<std::shared_ptr<Communicator>> splits;
  std::vector<std::vector<int>> pairs, stripes(2), backwards(1);
  for (int r = 0; r < world.size(); ++r) {
    if (r % 2 == 0)
      pairs.emplace_back();
    pairs.back().push_back(r);
    stripes[static_cast<size_t>(r % 2)].push_back(r);
    backwards[0].insert(backwards[0].begin(), r);
  }
  if (world.size() == 1)
    stripes.pop_back();
  for (const auto &[name, groups] :
       {std::pair("pairs", pairs), std::pair("stripes", stripes),
        std::pair("backwards", backwards)}) {
    absl::StatusOr<std::shared_ptr<Communicator>> comm =
        world.split(name, groups);
    QWEN35_RETURN_IF_ERROR(comm.status());
    splits.push_back(*comm);
  }
  // One rank alone, and the others in no group.
  absl::StatusOr<std::shared_ptr<Communicator>> alone =
      world.split("alone", {{world.size() - 1}});
  QWEN35_RETURN_IF_ERROR(alone.status());
  if ((*alone != nullptr) != (world.rank() == world.size() - 1))
    return absl::InternalError("a communicator of one rank is on another rank");
  if (*alone)
    QWEN35_RETURN_IF_ERROR(checkOn(**alone, 100, Type::kF32, 5));

  int salt = 0;
  for (Type type : {Type::kF32, Type::kBf16, Type::kF64, Type::kI32, Type::kI64,
                    Type::kByte})
    for (int64_t count : {0, 1, 7, 4099}) {
      QWEN35_RETURN_IF_ERROR(checkOn(world.all(), count, type, ++salt));
      for (const std::shared_ptr<Communicator> &comm : splits)
        QWEN35_RETURN_IF_ERROR(checkOn(*comm, count, type, ++salt));
    }
  // Several pieces per rank, the last one short.
  QWEN35_RETURN_IF_ERROR(checkOn(world.all(), 140001, Type::kF32, ++salt));
  QWEN35_RETURN_IF_ERROR(checkOn(*splits[1], 140001, Type::kBf16, ++salt));

  absl::StatusOr<std::vector<std::string>> names = world.exchange(
      "names", absl::StrCat("I am ", world.rank(), std::string(1, '\0'), "\n"));
  QWEN35_RETURN_IF_ERROR(names.status());
  for (int r = 0; r < world.size(); ++r)
    if ((*names)[static_cast<size_t>(r)] !=
        absl::StrCat("I am ", r, std::string(1, '\0'), "\n"))
      return absl::InternalError("exchange gave another rank's bytes");
  return absl::OkStatus();
}

absl::Status checkOrder(World &world) {
  // 1 + 2^-24 + 2^-24 is 1 from the left and more than 1 from the right.
  std::vector<float> mine(40000, world.rank() == 0 ? 1.0f : 0x1p-24f);
  std::vector<float> sum(mine.size());
  QWEN35_RETURN_IF_ERROR(world.all().allReduce(
      mine.data(), sum.data(), static_cast<int64_t>(sum.size()), Type::kF32));
  for (float value : sum)
    if (value != 1.0f)
      return absl::InternalError(absl::StrCat("rank ", world.rank(),
                                              ": the sum from rank 0 on is 1, "
                                              "not ",
                                              value));
  return absl::OkStatus();
}

} // namespace qwen35::comm
