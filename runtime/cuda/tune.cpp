#include "runtime/cuda/tune.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "runtime/schema/gemm_table.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace qwen35::cuda {
namespace {

constexpr int kCandidates = 64, kFinalists = 8;
constexpr uint64_t kRotation = uint64_t(256) << 20; // beyond any cache
constexpr uint64_t kRandom = uint64_t(16) << 20;    // bytes made by the host
constexpr uint64_t kCompared = uint64_t(4) << 20;   // bytes of a result
constexpr double kNever = std::numeric_limits<double>::infinity();

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t extent(int64_t rows, int64_t columns, int64_t ld,
                bundle::DType type) {
  uint64_t elements = static_cast<uint64_t>((rows - 1) * ld + columns);
  uint64_t bytes = elements * (type == bundle::F32 ? 4 : 2);
  return (bytes + 255) / 256 * 256;
}

/// Bytes of the operands of one product.
struct Extents {
  explicit Extents(const bundle::Gemm &gemm)
      : a(extent(gemm.trans_a() ? gemm.k() : gemm.m(),
                 gemm.trans_a() ? gemm.m() : gemm.k(), gemm.lda(),
                 gemm.a_type())),
        b(extent(gemm.trans_b() ? gemm.n() : gemm.k(),
                 gemm.trans_b() ? gemm.k() : gemm.n(), gemm.ldb(),
                 gemm.b_type())),
        d(extent(gemm.m(), gemm.n(), gemm.ldd(), gemm.d_type())) {}
  uint64_t set() const { return a + b + d; }
  uint64_t sets() const {
    return std::clamp<uint64_t>(kRotation / set(), 1, 16);
  }
  uint64_t a, b, d;
};

struct Candidate {
  BlasAlgo algo;
  double time = kNever; // microseconds
};

class Tuner {
public:
  Tuner(const GpuDevice &gpu, const BlasLt &blas) : api(gpu.driver()), blas(blas) {}
  Tuner(const Tuner &) = delete;
  ~Tuner() {
    for (Event event : {start, end})
      if (event)
        api.eventDestroy(event);
    if (handle)
      blas.destroy(handle);
    if (stream)
      api.streamDestroy(stream);
  }

  absl::Status init(const std::vector<bundle::Gemm> &products) {
    QWEN35_RETURN_IF_ERROR(blas.check(blas.create(&handle), "cublasLtCreate"));
    QWEN35_RETURN_IF_ERROR(api.check(
        api.streamCreate(&stream, kStreamNonBlocking), "cuStreamCreate"));
    for (Event *event : {&start, &end})
      QWEN35_RETURN_IF_ERROR(
          api.check(api.eventCreate(event, kEventDefault), "cuEventCreate"));
    uint64_t bytes = 0, scratch = 0;
    for (const bundle::Gemm &gemm : products) {
      Extents extents(gemm);
      bytes = std::max(bytes, extents.set() * extents.sets());
      scratch = std::max<uint64_t>(scratch, gemm.workspace_bytes());
    }
    QWEN35_RETURN_IF_ERROR(pool.allocateDevice(api, bytes, "operands"));
    QWEN35_RETURN_IF_ERROR(
        workspace.allocateDevice(api, scratch, "the workspace"));
    QWEN35_RETURN_IF_ERROR(
        host.allocateHost(api, 2 * kCompared, "results of products"));
    QWEN35_RETURN_IF_ERROR(
        random.allocateHost(api, kRandom, "random numbers"));
    // Random bf16 in (-2,-0.5] and [0.5,2); two of them are an f32 like that.
    uint32_t state = 1;
    for (uint64_t i = 0; i < kRandom / 2; ++i) {
      state = state * 1664525 + 1013904223;
      uint16_t bits = static_cast<uint16_t>(state >> 16);
      bits = static_cast<uint16_t>((bits & 0x80FF) | 0x3F00);
      std::memcpy(random.host() + 2 * i, &bits, 2);
    }
    return refill();
  }

  /// Random numbers in all operands, results of products among them.
  absl::Status refill() {
    for (uint64_t at = 0; at < pool.bytes(); at += kRandom) {
      uint64_t bytes = std::min(kRandom, pool.bytes() - at);
      QWEN35_RETURN_IF_ERROR(
          at == 0 ? api.check(api.memcpyHtoDAsync(pool.device(), random.host(),
                                                  bytes, stream),
                              "cuMemcpyHtoDAsync")
                  : api.check(api.memcpyDtoDAsync(pool.device() + at,
                                                  pool.device(), bytes, stream),
                              "cuMemcpyDtoDAsync"));
    }
    return wait();
  }

  absl::Status wait() {
    return api.check(api.streamSynchronize(stream), "cuStreamSynchronize");
  }

  /// Times `runs` calls; an algorithm that does not start stays at never.
  absl::Status measure(const GemmPlan &plan, Candidate &candidate, int runs) {
    Extents extents(plan.gemm());
    auto enqueue = [&] {
      turn = (turn + 1) % extents.sets();
      DevicePtr at = pool.device() + turn * extents.set();
      return plan.runWith(candidate.algo, at + extents.d,
                          at + extents.d + extents.a, at, workspace.device(),
                          stream);
    };
    if (candidate.time == kNever && enqueue() != kBlasSuccess)
      return absl::OkStatus(); // the first call loads code
    QWEN35_RETURN_IF_ERROR(
        api.check(api.eventRecord(start, stream), "cuEventRecord"));
    for (int i = 0; i < runs; ++i)
      if (enqueue() != kBlasSuccess)
        return absl::OkStatus();
    QWEN35_RETURN_IF_ERROR(
        api.check(api.eventRecord(end, stream), "cuEventRecord"));
    QWEN35_RETURN_IF_ERROR(wait());
    float milliseconds = 0;
    QWEN35_RETURN_IF_ERROR(
        api.check(api.eventElapsedTime(&milliseconds, start, end),
                  "cuEventElapsedTime"));
    candidate.time = std::min(candidate.time, milliseconds * 1e3 / runs);
    return absl::OkStatus();
  }

  /// The first and the last bytes of D after one product on the last set of
  /// operands, D zero before.
  absl::StatusOr<std::vector<uint8_t>> result(const GemmPlan &plan,
                                              const BlasAlgo &algo) {
    Extents extents(plan.gemm());
    DevicePtr d = pool.device();
    QWEN35_RETURN_IF_ERROR(api.check(
        api.memsetD8Async(d, 0, extents.d, stream), "cuMemsetD8Async"));
    QWEN35_RETURN_IF_ERROR(
        blas.check(plan.runWith(algo, d + extents.d, d + extents.d + extents.a,
                                d, workspace.device(), stream),
                   "cublasLtMatmul"));
    uint64_t bytes = std::min(extents.d, kCompared);
    QWEN35_RETURN_IF_ERROR(api.check(
        api.memcpyDtoHAsync(host.host(), d, bytes, stream),
        "cuMemcpyDtoHAsync"));
    QWEN35_RETURN_IF_ERROR(api.check(
        api.memcpyDtoHAsync(host.host() + bytes, d + extents.d - bytes, bytes,
                            stream),
        "cuMemcpyDtoHAsync"));
    QWEN35_RETURN_IF_ERROR(wait());
    return std::vector<uint8_t>(host.host(), host.host() + 2 * bytes);
  }

  /// Whether the two results are as close as two orders of summing are.
  static bool near(const std::vector<uint8_t> &x, const std::vector<uint8_t> &y,
                   bundle::DType type) {
    double most = 0, off = 0;
    size_t step = type == bundle::F32 ? 4 : 2;
    for (size_t i = 0; i + step <= x.size(); i += step) {
      float values[2];
      for (auto [value, bytes] :
           {std::pair(&values[0], &x), std::pair(&values[1], &y)}) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char *>(&bits) + 4 - step,
                    bytes->data() + i, step);
        std::memcpy(value, &bits, 4);
      }
      double difference = std::fabs(double(values[0]) - double(values[1]));
      if (!(difference < kNever)) // NaN too
        return false;
      most = std::max(most, std::fabs(double(values[0])));
      off = std::max(off, difference);
    }
    return off <= most * (type == bundle::F32 ? 1e-4 : 1.0 / 128);
  }

  struct Best {
    Candidate first, best;
    size_t tried = 0;
    std::string algorithm; // for people
  };

  absl::StatusOr<Best> tune(const bundle::Gemm &gemm, double deadline) {
    bundle::Gemm bare = gemm;
    bare.clear_algo();
    absl::StatusOr<std::unique_ptr<GemmPlan>> made =
        GemmPlan::create(blas, handle, bare, {16, 16, 16});
    QWEN35_RETURN_IF_ERROR(made.status());
    const GemmPlan &plan = **made;
    absl::StatusOr<std::vector<BlasAlgo>> algos = plan.candidates(kCandidates);
    QWEN35_RETURN_IF_ERROR(algos.status());
    double begun = now();
    std::vector<Candidate> list;
    auto add = [&](const BlasAlgo &algo) {
      for (const Candidate &known : list)
        if (std::memcmp(&known.algo, &algo, sizeof algo) == 0)
          return;
      list.push_back({algo});
    };
    // Every candidate for a short time, then the finalists in turns.
    size_t measured = 0;
    auto measureAll = [&](double until) -> absl::Status {
      for (; measured < list.size() && (measured == 0 || now() < until);
           ++measured)
        QWEN35_RETURN_IF_ERROR(measure(plan, list[measured], 3));
      return absl::OkStatus();
    };
    for (const BlasAlgo &algo : *algos)
      add(algo);
    double budget = deadline - begun;
    QWEN35_RETURN_IF_ERROR(measureAll(begun + 0.4 * budget));
    list.resize(measured);
    auto order = [&] {
      std::vector<size_t> indices(list.size());
      for (size_t i = 0; i < indices.size(); ++i)
        indices[i] = i;
      std::sort(indices.begin(), indices.end(), [&](size_t x, size_t y) {
        return std::pair(list[x].time, x) < std::pair(list[y].time, y);
      });
      return indices;
    };
    std::vector<size_t> ranks = order();
    for (size_t i = 0; i < std::min<size_t>(ranks.size(), 4); ++i)
      for (const BlasAlgo &algo :
           plan.variants(BlasAlgo(list[ranks[i]].algo)))
        add(algo);
    QWEN35_RETURN_IF_ERROR(measureAll(begun + 0.7 * budget));
    list.resize(measured);
    ranks = order();
    ranks.resize(std::min<size_t>(ranks.size(), kFinalists));
    if (std::find(ranks.begin(), ranks.end(), 0) == ranks.end())
      ranks.push_back(0); // the library's first answer
    // Short products again and again, so that a run is well above the
    // events' resolution.
    int runs = static_cast<int>(
        std::clamp(1000.0 / std::max(list[ranks[0]].time, 1.0), 3.0, 20.0));
    for (int round = 0; round < 6 && (round < 2 || now() < deadline); ++round)
      for (size_t index : ranks)
        QWEN35_RETURN_IF_ERROR(measure(plan, list[index], runs));
    std::sort(ranks.begin(), ranks.end(), [&](size_t x, size_t y) {
      return std::pair(list[x].time, x) < std::pair(list[y].time, y);
    });

    Best best{list[0], list[0], list.size(), ""};
    QWEN35_RETURN_IF_ERROR(refill());
    absl::StatusOr<std::vector<uint8_t>> expected =
        result(plan, list[0].algo);
    QWEN35_RETURN_IF_ERROR(expected.status());
    for (size_t index : ranks) {
      const Candidate &candidate = list[index];
      if (candidate.time > best.first.time * 0.99)
        break;
      absl::StatusOr<std::vector<uint8_t>> once = result(plan, candidate.algo);
      absl::StatusOr<std::vector<uint8_t>> twice = result(plan, candidate.algo);
      QWEN35_RETURN_IF_ERROR(once.status());
      QWEN35_RETURN_IF_ERROR(twice.status());
      if (*once == *twice && near(*expected, *once, gemm.d_type())) {
        best.best = candidate;
        break;
      }
    }
    QWEN35_RETURN_IF_ERROR(refill());
    absl::StatusOr<bundle::GemmAlgo> is = plan.describe(best.best.algo);
    if (is.ok())
      best.algorithm = absl::StrCat(
          "algorithm ", is->id(), ", tile ", is->tile(), ", stages ",
          is->stages(), ", split-K ", is->split_k(), ", swizzle ",
          is->swizzle(), ", custom ", is->custom(), ", cluster ",
          is->cluster_shape());
    return best;
  }

private:
  const Driver &api;
  const BlasLt &blas;
  BlasHandle handle = nullptr;
  Stream stream = nullptr;
  Event start = nullptr, end = nullptr;
  Memory pool, workspace, host, random;
  uint64_t turn = 0;
};

absl::StatusOr<GemmTable> readTable(const std::string &path) {
  GemmTable table;
  std::ifstream file(path);
  if (!file)
    return table;
  std::string text((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  std::string wrong = table.parse(text);
  if (!wrong.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", wrong));
  return table;
}

} // namespace

absl::Status tuneProducts(const std::string &bundlePath,
                          const std::string &tablePath, double seconds,
                          std::FILE *log) {
  absl::StatusOr<GemmTable> table = readTable(tablePath);
  QWEN35_RETURN_IF_ERROR(table.status());
  absl::StatusOr<std::shared_ptr<const BundleFile>> file =
      BundleFile::open(bundlePath);
  QWEN35_RETURN_IF_ERROR(file.status());
  std::string arch;
  std::map<std::string, bundle::Gemm> products;
  std::map<std::string, int> calls;
  for (int i = 0; i < (*file)->plans() && arch.empty(); ++i) {
    if ((*file)->target(i).kind() != "cuda")
      continue;
    arch = (*file)->target(i).arch();
    std::shared_ptr<const BundleFile> plan = (*file)->plan(i);
    for (const bundle::Kernel &kernel : plan->message().kernels())
      if (kernel.has_gemm())
        products.emplace(GemmTable::product(kernel.gemm()), kernel.gemm());
    for (const bundle::Program &program : plan->message().programs())
      for (const bundle::PlanEntry &entry : program.entries())
        if (entry.has_launch()) {
          const bundle::Kernel &kernel = plan->message().kernels(
              static_cast<int>(entry.launch().kernel()));
          if (kernel.has_gemm())
            ++calls[GemmTable::product(kernel.gemm())];
        }
  }
  if (products.empty())
    return absl::FailedPreconditionError(absl::StrCat(
        bundlePath, arch.empty() ? " has no plan for a GPU, expected one"
                                 : " has no product by cuBLASLt, expected one",
        " to tune"));
  absl::StatusOr<std::shared_ptr<GpuDevice>> gpu = GpuDevice::open(arch);
  QWEN35_RETURN_IF_ERROR(gpu.status());
  absl::StatusOr<const BlasLt *> blas = BlasLt::load();
  QWEN35_RETURN_IF_ERROR(blas.status());

  std::vector<bundle::Gemm> list;
  for (const auto &[key, gemm] : products)
    list.push_back(gemm);
  Tuner tuner(**gpu, **blas);
  QWEN35_RETURN_IF_ERROR(tuner.init(list));
  std::string device = (*gpu)->name();
  std::replace(device.begin(), device.end(), ' ', '_');
  std::fprintf(log, "tuning  %zu products on %s, cuBLASLt %zu\n",
               products.size(), (*gpu)->name().c_str(), (*blas)->getVersion());
  double begun = now(), before = 0, after = 0;
  size_t done = 0;
  for (const auto &[key, gemm] : products) {
    double deadline = now() + (begun + seconds - now()) /
                                  static_cast<double>(products.size() - done++);
    absl::StatusOr<Tuner::Best> best = tuner.tune(gemm, deadline);
    if (!best.ok())
      return absl::Status(
          best.status().code(),
          absl::StrCat("product ", key, ": ", best.status().message()));
    GemmTable::Entry entry;
    entry.device = device;
    entry.version = (*blas)->getVersion();
    std::copy(std::begin(best->best.algo.data), std::end(best->best.algo.data),
              entry.words.begin());
    entry.time = best->best.time;
    entry.firstTime = best->first.time;
    table->entries[arch + " " + key] = entry;
    double flops = 2e-6 * static_cast<double>(gemm.m()) *
                   static_cast<double>(gemm.n()) * static_cast<double>(gemm.k());
    int count = calls[key];
    before += count * entry.firstTime;
    after += count * entry.time;
    std::fprintf(log,
                 "%3dx %-72s %6.1f -> %6.1f TFLOP/s  %8.1f -> %8.1f us  of "
                 "%zu: %s\n",
                 count, key.c_str(), flops / entry.firstTime,
                 flops / entry.time, entry.firstTime, entry.time, best->tried,
                 best->algorithm.c_str());
    std::fflush(log);
  }
  std::ofstream out(tablePath, std::ios::trunc);
  out << table->print();
  out.close();
  if (!out)
    return absl::UnavailableError(
        absl::StrCat("table ", tablePath, " cannot be written"));
  std::fprintf(log,
               "tuned   %.2f -> %.2f ms over every launch of the plan, in %.1f "
               "s; table %s\n",
               before / 1e3, after / 1e3, now() - begun, tablePath.c_str());
  return absl::OkStatus();
}

} // namespace qwen35::cuda
