#include "absl/strings/str_cat.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/of_plan.h"
#include "runtime/bundle/plan_report.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

namespace qwen35 {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

/// Which buffer wrote the bytes of one arena last. Neighbouring ranges of one
/// buffer are merged, so what a correct program reads is always one range.
class Owners {
public:
  void write(uint64_t begin, uint64_t end, uint32_t buffer) {
    auto it = cut(begin);
    auto last = cut(end);
    it = ranges.erase(it, last);
    if (it != ranges.begin()) {
      auto before = std::prev(it);
      if (before->second.end == begin && before->second.buffer == buffer) {
        begin = before->first;
        ranges.erase(before);
      }
    }
    if (it != ranges.end() && it->first == end && it->second.buffer == buffer) {
      end = it->second.end;
      it = ranges.erase(it);
    }
    ranges.emplace_hint(it, begin, Range{end, buffer});
  }

  /// The first bytes of [begin, end) that are not `buffer`'s.
  struct Foreign {
    bool any = false;
    uint64_t at = 0;
    uint32_t owner = kNobody;
  };
  Foreign foreign(uint64_t begin, uint64_t end, uint32_t buffer) const {
    auto it = ranges.upper_bound(begin);
    if (it == ranges.begin() || std::prev(it)->second.end <= begin)
      return {true, begin, kNobody};
    const Range &range = std::prev(it)->second;
    if (range.buffer != buffer)
      return {true, begin, range.buffer};
    if (range.end >= end)
      return {};
    // The rest is another buffer's or nobody's: ranges of one are merged.
    bool adjacent = it != ranges.end() && it->first == range.end;
    return {true, range.end, adjacent ? it->second.buffer : kNobody};
  }

private:
  struct Range {
    uint64_t end;
    uint32_t buffer;
  };

  /// Splits the range that holds `at` in its inside; the first range at or
  /// after `at`.
  std::map<uint64_t, Range>::iterator cut(uint64_t at) {
    auto it = ranges.lower_bound(at);
    if (it == ranges.begin())
      return it;
    Range &before = std::prev(it)->second;
    if (before.end <= at)
      return it;
    Range rest = before;
    before.end = at;
    return ranges.emplace_hint(it, at, rest);
  }

  std::map<uint64_t, Range> ranges;
};

/// One argument of a launch, in bytes of its arena.
struct Access {
  uint32_t arena;
  uint64_t begin, end;
  uint32_t buffer;
  bool write;
};

/// The two furthest ends of ranges seen so far, of two different buffers:
/// enough to tell whether any buffer but a given one reaches past a byte.
class Furthest {
public:
  void add(uint64_t end, uint32_t buffer) {
    if (buffer == first.buffer) {
      first.end = std::max(first.end, end);
    } else if (end > first.end) {
      second = first;
      first = {end, buffer};
    } else if (buffer == second.buffer || end > second.end) {
      second = {std::max(end, second.buffer == buffer ? second.end : 0),
                buffer};
    }
  }
  /// A buffer other than `buffer` that reaches past `begin`, or nobody.
  uint32_t past(uint64_t begin, uint32_t buffer) const {
    const Reach &reach = first.buffer == buffer ? second : first;
    return reach.end > begin ? reach.buffer : kNobody;
  }

private:
  struct Reach {
    uint64_t end = 0;
    uint32_t buffer = kNobody;
  };
  Reach first, second;
};

class PlanChecker {
public:
  explicit PlanChecker(const bundle::Bundle &plan)
      : plan(plan), roles(plan.buffers_size(), Role::Plain) {
    for (const bundle::Param &param : plan.params()) {
      roles[param.weight()] = roles[param.m()] = roles[param.v()] = Role::State;
      roles[param.grad()] = Role::Gradient;
      if (param.has_work())
        roles[param.work()] = Role::Work;
    }
    for (const auto *list : {&plan.io().inputs(), &plan.io().scalars()})
      for (const bundle::IoBuffer &entry : *list)
        roles[entry.buffer()] = Role::Input;
    for (const bundle::RankVar &entry : plan.rank_vars())
      roles[entry.buffer()] = Role::Input;
    for (int i = 0; i < plan.arenas_size(); ++i)
      if (plan.arenas(i).name() == "act")
        act = i;
  }

  absl::Status run() {
    std::vector<Owners> filled(plan.arenas_size());
    for (int i = 0; i < plan.buffers_size(); ++i)
      if (roles[i] == Role::State || roles[i] == Role::Input)
        filled[plan.buffers(i).arena()].write(begin(i), end(i), i);

    owners = filled;
    if (find("refresh")) {
      QWEN35_RETURN_IF_ERROR(replay("refresh"));
      clearAct();
      filled = owners;
    }
    QWEN35_RETURN_IF_ERROR(replay("begin"));
    clearAct();
    for (const bundle::Param &param : plan.params())
      if (!owns(param.grad()))
        return failed("program begin does not set all of ",
                      quoted(plan.buffers(param.grad()).name()),
                      ", the gradient sum of param ", quoted(param.name()));
    std::vector<Owners> begun = owners;

    QWEN35_RETURN_IF_ERROR(replay("accumulate"));
    owners = begun;
    QWEN35_RETURN_IF_ERROR(replay("finish"));
    for (const bundle::IoBuffer &output : plan.io().outputs())
      if (!written.count(output.buffer()))
        return failed("program finish does not write the output ",
                      output.name());
    for (const bundle::Param &param : plan.params())
      if (param.has_work() && !written.count(param.work()))
        return failed("program finish changes param ", quoted(param.name()),
                      " but does not write its working copy ",
                      quoted(plan.buffers(param.work()).name()));
    // Programs that set the sums by themselves start from what is filled.
    for (const char *name : {"first", "only"}) {
      if (!find(name))
        continue;
      owners = filled;
      QWEN35_RETURN_IF_ERROR(replay(name));
      clearAct();
      for (const bundle::Param &param : plan.params())
        if (!owns(param.grad()))
          return failed("program ", name, " does not set all of ",
                        quoted(plan.buffers(param.grad()).name()),
                        ", the gradient sum of param ", quoted(param.name()));
      if (find("only") != current)
        continue;
      for (const bundle::IoBuffer &output : plan.io().outputs())
        if (!written.count(output.buffer()))
          return failed("program only does not write the output ",
                        output.name());
      for (const bundle::Param &param : plan.params())
        if (param.has_work() && !written.count(param.work()))
          return failed("program only changes param ", quoted(param.name()),
                        " but does not write its working copy ",
                        quoted(plan.buffers(param.work()).name()));
    }
    if (find("eval")) {
      owners = filled;
      QWEN35_RETURN_IF_ERROR(replay("eval"));
      for (const bundle::IoBuffer &output : plan.io().outputs())
        if (output.name() == "loss" && !written.count(output.buffer()))
          return failed("program eval does not write the output loss");
    }
    return absl::OkStatus();
  }

private:
  enum class Role : uint8_t { Plain, State, Work, Gradient, Input };

  template <typename... Parts>
  static absl::Status failed(const Parts &...parts) {
    return absl::FailedPreconditionError(absl::StrCat(parts...));
  }

  uint64_t begin(uint32_t buffer) const {
    return plan.buffers(static_cast<int>(buffer)).offset();
  }
  uint64_t end(uint32_t buffer) const {
    return begin(buffer) + plan.buffers(static_cast<int>(buffer)).bytes();
  }
  bool owns(uint32_t buffer) const {
    const bundle::Buffer &entry = plan.buffers(static_cast<int>(buffer));
    return !owners[entry.arena()]
                .foreign(begin(buffer), end(buffer), buffer)
                .any;
  }
  void clearAct() {
    if (act >= 0)
      owners[act] = Owners();
  }

  const bundle::Program *find(const std::string &name) const {
    for (const bundle::Program &program : plan.programs())
      if (program.name() == name)
        return &program;
    return nullptr;
  }

  absl::Status replay(const std::string &name) {
    current = find(name);
    flights.clear();
    written.clear();
    clearAct();
    for (int i = 0; i < current->entries_size(); ++i) {
      accesses.clear();
      collect(current->entries(i));
      QWEN35_RETURN_IF_ERROR(keepFromFlights(i));
      for (const Access &access : accesses)
        if (!access.write)
          QWEN35_RETURN_IF_ERROR(read(i, access));
      QWEN35_RETURN_IF_ERROR(noOverlap(i));
      for (const Access &access : accesses)
        if (access.write)
          QWEN35_RETURN_IF_ERROR(write(i, access));
    }
    return absl::OkStatus();
  }

  void collect(const bundle::PlanEntry &entry) {
    auto add = [&](uint32_t index, uint64_t offset, uint64_t bytes,
                   bool write) {
      uint64_t first = begin(index) + offset;
      accesses.push_back(
          {plan.buffers(index).arena(), first, first + bytes, index, write});
    };
    if (entry.has_memset()) {
      uint32_t index = entry.memset().buffer();
      add(index, 0, plan.buffers(index).bytes(), true);
      return;
    }
    for (const bundle::Arg &arg : entry.launch().args())
      add(arg.buffer(), arg.offset(), arg.bytes(), arg.write());
    if (!entry.has_collective())
      return;
    const bundle::Collective &collective = entry.collective();
    auto addArg = [&](const bundle::Arg &arg) {
      add(arg.buffer(), arg.offset(), arg.bytes(), arg.write());
    };
    for (const bundle::Collective::Part &part : collective.parts()) {
      addArg(part.send());
      addArg(part.receive());
    }
    if (collective.has_send_stage())
      addArg(collective.send_stage());
    if (collective.has_receive_stage())
      addArg(collective.receive_stage());
  }

  /// Nothing but its wait touches what a collective in flight writes, or writes
  /// what it reads.
  absl::Status keepFromFlights(int index) {
    const bundle::PlanEntry &entry = current->entries(index);
    if (entry.has_wait()) {
      flights.erase(entry.wait().sequence());
      return absl::OkStatus();
    }
    for (const auto &[sequence, flight] : flights)
      for (const Access &his : flight.accesses)
        for (const Access &mine : accesses)
          if (his.arena == mine.arena && his.begin < mine.end &&
              mine.begin < his.end && (his.write || mine.write))
            return failed(
                describe(index), mine.write ? " writes" : " reads", " buffer ",
                quoted(plan.buffers(static_cast<int>(mine.buffer)).name()),
                " while ", describe(flight.entry), " is in flight and ",
                his.write ? "writes" : "reads", " the same bytes as ",
                quoted(plan.buffers(static_cast<int>(his.buffer)).name()));
    if (entry.collective().async())
      flights[entry.collective().sequence()] = {index, accesses};
    return absl::OkStatus();
  }

  /// "entry 7 of program finish ('layers.3.mlp/matmul', kernel matmul_f32)"
  std::string describe(int index) const {
    return absl::StrCat("entry ", index, " of program ", current->name(), " (",
                        describeEntry(plan, current->entries(index)), ")");
  }

  /// The last entry before `index` that wrote byte `at` of an arena.
  std::string writer(int index, uint32_t arena, uint64_t at) {
    for (int i = index - 1; i >= 0; --i) {
      accesses.clear();
      collect(current->entries(i));
      for (const Access &access : accesses)
        if (access.write && access.arena == arena && access.begin <= at &&
            at < access.end)
          return describe(i);
    }
    return "an earlier program";
  }

  absl::Status read(int index, Access access) {
    Owners::Foreign foreign =
        owners[access.arena].foreign(access.begin, access.end, access.buffer);
    if (!foreign.any)
      return absl::OkStatus();
    const bundle::Buffer &buffer = plan.buffers(access.buffer);
    std::string what =
        absl::StrCat(describe(index), " reads buffer ", quoted(buffer.name()),
                     ", but its byte ", foreign.at - buffer.offset());
    if (foreign.owner != kNobody)
      return failed(what, " was overwritten through buffer ",
                    quoted(plan.buffers(foreign.owner).name()), " by ",
                    writer(index, access.arena, foreign.at));
    return failed(what,
                  static_cast<int>(access.arena) == act
                      ? " has not been written in this program"
                      : " has not been written in this program or in begin");
  }

  absl::Status write(int index, const Access &access) {
    const bundle::Buffer &buffer = plan.buffers(access.buffer);
    const std::string &program = current->name();
    const char *refusal = nullptr;
    switch (roles[access.buffer]) {
    case Role::State:
      if (program != "finish" && program != "only")
        refusal = "a weight or moment that only finish may change";
      break;
    case Role::Work:
      if (program != "finish" && program != "only" && program != "refresh")
        refusal = "a working copy that only finish and refresh may change";
      break;
    case Role::Gradient:
      if (program == "eval")
        refusal = "a gradient sum that eval may not change";
      break;
    case Role::Input:
      refusal = "an input that only the runtime fills";
      break;
    case Role::Plain:
      break;
    }
    if (refusal)
      return failed(describe(index), " writes buffer ", quoted(buffer.name()),
                    ", ", refusal);
    owners[access.arena].write(access.begin, access.end, access.buffer);
    written.insert(access.buffer);
    return absl::OkStatus();
  }

  /// No buffer that this launch writes may share bytes with another it touches:
  /// its tasks run in any order.
  absl::Status noOverlap(int index) {
    std::sort(accesses.begin(), accesses.end(),
              [](const Access &a, const Access &b) {
                return std::tie(a.arena, a.begin) < std::tie(b.arena, b.begin);
              });
    Furthest all, writes;
    for (size_t i = 0; i < accesses.size(); ++i) {
      const Access &access = accesses[i];
      if (i > 0 && accesses[i - 1].arena != access.arena)
        all = writes = Furthest();
      uint32_t other =
          (access.write ? all : writes).past(access.begin, access.buffer);
      if (other != kNobody)
        return failed(describe(index), " gets buffers ",
                      quoted(plan.buffers(other).name()), " and ",
                      quoted(plan.buffers(access.buffer).name()),
                      ", which share byte ", access.begin, " of arena ",
                      plan.arenas(access.arena).name(),
                      ", and writes one of them");
      all.add(access.end, access.buffer);
      if (access.write)
        writes.add(access.end, access.buffer);
    }
    return absl::OkStatus();
  }

  const bundle::Bundle &plan;
  std::vector<Role> roles; // by buffer
  int act = -1;            // index of the act arena

  const bundle::Program *current = nullptr;
  std::vector<Owners> owners;   // by arena
  std::vector<Access> accesses; // of the entry at hand
  struct Flight {
    int entry;
    std::vector<Access> accesses;
  };
  std::map<uint64_t, Flight> flights; // by number
  std::set<uint32_t> written;   // buffers written by the current program
};

} // namespace

absl::Status checkPlan(const bundle::Bundle &message) {
  for (int i = 0; i <= message.alternatives_size(); ++i) {
    absl::Status status;
    if (message.alternatives_size() == 0) {
      status = PlanChecker(message).run();
    } else {
      bundle::Bundle plan = planMessage(message, i);
      status = PlanChecker(plan).run();
    }
    if (!status.ok())
      return ofPlan(i, status);
  }
  return absl::OkStatus();
}

} // namespace qwen35
