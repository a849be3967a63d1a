#include "runtime/step/cpu_step.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/step/arena.h"
#include "runtime/step/cpu_features.h"
#include "runtime/step/exchange.h"
#include "runtime/step/kernel_library.h"
#include "runtime/step/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

namespace qwen35 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxThreads = 4096;
constexpr uint64_t kFillBytes = uint64_t(1) << 20; // one task of a memset

/// A Memset of the plan, or poison: a launch of one task per kFillBytes.
struct Fill {
  uint8_t *data;
  uint64_t bytes;
  int value;

  int64_t tasks() const {
    return static_cast<int64_t>((bytes + kFillBytes - 1) / kFillBytes);
  }
  static void run(void *const *args, int64_t task) {
    const auto &fill = *static_cast<const Fill *>(args[0]);
    uint64_t first = static_cast<uint64_t>(task) * kFillBytes;
    std::memset(fill.data + first, fill.value,
                std::min(kFillBytes, fill.bytes - first));
  }
};

/// One plan entry with its addresses resolved.
struct Launch {
  CpuKernel kernel; // null: the collective number `args`
  int64_t grid;
  size_t args; // first of its pointers in Program::args
  uint32_t op; // index into the op classes
};

struct Program {
  std::string name;
  std::vector<Launch> launches;
  std::vector<void *> args;
};

class CpuStep final : public Step {
public:
  CpuStep(std::shared_ptr<const BundleFile> bundle, const StepOptions &options)
      : Step(std::move(bundle)), options(options) {}

  absl::Status init() {
    QWEN35_RETURN_IF_ERROR(checkCpu(message().targets(0).cpu()));
    QWEN35_RETURN_IF_ERROR(loadKernels());
    QWEN35_RETURN_IF_ERROR(startThreads());
    QWEN35_RETURN_IF_ERROR(allocate());
    QWEN35_RETURN_IF_ERROR(exchanges.init(message(), options.world));
    resolve();
    return absl::OkStatus();
  }

  std::string targetText() const override {
    return absl::StrCat("cpu ", message().targets(0).cpu());
  }
  int threads() const override { return pool->threads(); }
  bool hostMemory() const override { return true; }

  absl::Status run(absl::string_view program) override {
    for (const Program &entry : programs)
      if (entry.name == program)
        return runProgram(entry);
    return absl::NotFoundError(
        absl::StrCat("the bundle has no program named ",
                     quoted(std::string(program)), ", it has ",
                     absl::StrJoin(programs, ", ",
                                   [](std::string *out, const Program &entry) {
                                     out->append(entry.name);
                                   })));
  }

  absl::Status fillBuffer(uint32_t index, uint8_t value) override {
    std::memset(address(index), value, bufferOf(index).bytes());
    return absl::OkStatus();
  }

  StepMemory memory() const override {
    StepMemory result = Step::memory();
    for (const Arena &arena : arenas)
      result.mapped += arena.mapped();
    return result;
  }

  std::vector<OpTime> profile() const override {
    std::vector<OpTime> result;
    if (!options.profile)
      return result;
    for (const OpTime &time : times)
      if (time.calls != 0)
        result.push_back(time);
    std::sort(result.begin(), result.end(),
              [](const OpTime &a, const OpTime &b) {
                return std::tie(b.seconds, a.op) < std::tie(a.seconds, b.op);
              });
    return result;
  }

  void resetProfile() override {
    for (OpTime &time : times) {
      time.calls = 0;
      time.seconds = 0;
    }
  }

protected:
  absl::Span<uint8_t> hostBytes(uint32_t index) const override {
    return absl::MakeSpan(address(index), bufferOf(index).bytes());
  }
  absl::Status copyOut(uint32_t index, uint64_t offset,
                       absl::Span<uint8_t> bytes) override {
    std::memcpy(bytes.data(), address(index) + offset, bytes.size());
    return absl::OkStatus();
  }
  absl::Status copyIn(uint32_t index, uint64_t offset,
                      absl::Span<const uint8_t> bytes) override {
    std::memcpy(address(index) + offset, bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  uint8_t *ioAddress(uint32_t index) const override { return address(index); }

private:
  absl::Status runProgram(const Program &program) {
    FloatModeScope mode;
    if (options.poison)
      for (int i = 0; i < message().arenas_size(); ++i)
        if (message().arenas(i).name() == "act")
          poison(arenas[i]);
    if (!options.profile) {
      for (const Launch &launch : program.launches)
        QWEN35_RETURN_IF_ERROR(runEntry(program, launch));
      return absl::OkStatus();
    }
    Clock::time_point before = Clock::now();
    for (const Launch &launch : program.launches) {
      QWEN35_RETURN_IF_ERROR(runEntry(program, launch));
      Clock::time_point after = Clock::now();
      OpTime &time = times[launch.op];
      time.seconds += std::chrono::duration<double>(after - before).count();
      ++time.calls;
      before = after;
    }
    return absl::OkStatus();
  }

  absl::Status runEntry(const Program &program, const Launch &launch) {
    if (!launch.kernel)
      return exchanges.run(static_cast<uint32_t>(launch.args));
    pool->run(launch.kernel, &program.args[launch.args], launch.grid);
    return absl::OkStatus();
  }

  uint8_t *address(uint32_t buffer) const {
    const bundle::Buffer &entry = message().buffers(static_cast<int>(buffer));
    return arenas[entry.arena()].data() + entry.offset();
  }

  absl::Status loadKernels() {
    std::vector<std::string> symbols;
    for (const bundle::Kernel &kernel : message().kernels())
      symbols.push_back(kernel.symbol());
    uint32_t blob = message().targets(0).blob();
    absl::StatusOr<std::unique_ptr<KernelLibrary>> loaded = KernelLibrary::load(
        file->blob(blob), message().blobs(static_cast<int>(blob)).sha256(),
        symbols);
    if (!loaded.ok())
      return loaded.status();
    library = *std::move(loaded);
    return absl::OkStatus();
  }

  absl::Status startThreads() {
    if (options.threads < 0 || options.threads > kMaxThreads)
      return absl::InvalidArgumentError(
          absl::StrCat(options.threads,
                       " threads were asked for, expected 1 "
                       "to ",
                       kMaxThreads, ", or 0 for one per CPU"));
    int threads =
        options.threads != 0 ? options.threads : ThreadPool::availableCpus();
    absl::StatusOr<std::unique_ptr<ThreadPool>> started = ThreadPool::create(
        threads, options.tasks == StepOptions::Tasks::Static);
    if (!started.ok())
      return started.status();
    pool = *std::move(started);
    return absl::OkStatus();
  }

  /// Without this check a plan that is too large would be given its address
  /// space and killed later, in the middle of a step, without a word.
  absl::Status allocate() {
    uint64_t total = 0;
    for (const bundle::Arena &arena : message().arenas())
      total += arena.bytes();
    uint64_t limit = options.maxBytes ? options.maxBytes : availableMemory();
    if (total > limit)
      return absl::ResourceExhaustedError(absl::StrCat(
          "the bundle's arenas need ", formatBytes(total), " (",
          absl::StrJoin(message().arenas(), ", ",
                        [](std::string *out, const bundle::Arena &arena) {
                          absl::StrAppend(out, arena.name(), " ",
                                          formatBytes(arena.bytes()));
                        }),
          "), but ", options.maxBytes ? "the limit is " : "this machine has ",
          formatBytes(limit), options.maxBytes ? "" : " free"));
    for (const bundle::Arena &arena : message().arenas()) {
      absl::StatusOr<Arena> memory =
          Arena::allocate(arena.name(), arena.bytes());
      if (!memory.ok())
        return memory.status();
      if (options.poison)
        poison(*memory);
      arenas.push_back(*std::move(memory));
    }
    return absl::OkStatus();
  }

  void poison(const Arena &arena) {
    if (arena.bytes() == 0)
      return;
    Fill fill{arena.data(), arena.bytes(), 0xff};
    void *args[] = {&fill};
    pool->run(Fill::run, args, fill.tasks());
  }

  uint32_t opClass(const std::string &name) {
    auto [it, fresh] = ops.emplace(name, static_cast<uint32_t>(times.size()));
    if (fresh)
      times.push_back({name});
    return it->second;
  }

  /// Turns indices into addresses, once, so that a launch costs a call.
  void resolve() {
    size_t count = 0;
    for (const bundle::Program &source : message().programs())
      for (const bundle::PlanEntry &entry : source.entries())
        count += entry.has_memset();
    fills.reserve(count); // Launches point into it.
    for (const bundle::Program &source : message().programs()) {
      Program program;
      program.name = source.name();
      for (const bundle::PlanEntry &entry : source.entries()) {
        size_t first = program.args.size();
        if (entry.has_memset()) {
          uint32_t buffer = entry.memset().buffer();
          fills.push_back({address(buffer), bufferOf(buffer).bytes(),
                           static_cast<int>(entry.memset().value())});
          program.args.push_back(&fills.back());
          program.launches.push_back(
              {Fill::run, fills.back().tasks(), first, opClass("memset")});
          continue;
        }
        if (entry.has_collective()) {
          uint32_t index = exchanges.add(
              entry.collective(), [&](const bundle::Arg &arg) {
                return address(arg.buffer()) + arg.offset();
              });
          program.launches.push_back(
              {nullptr, 1, index, opClass(kindName(entry.collective().kind()))});
          continue;
        }
        if (entry.has_wait()) // a collective ends where it starts
          continue;
        const bundle::Launch &launch = entry.launch();
        for (const bundle::Arg &arg : launch.args())
          program.args.push_back(address(arg.buffer()) + arg.offset());
        program.launches.push_back(
            {library->kernel(launch.kernel()), launch.grid(), first,
             opClass(
                 message().kernels(static_cast<int>(launch.kernel())).op())});
      }
      programs.push_back(std::move(program));
    }
    for (const bundle::RankVar &entry : message().rank_vars()) {
      int32_t coordinate = exchanges.coordinate(entry.communicator());
      std::memcpy(address(entry.buffer()), &coordinate, sizeof(coordinate));
    }
  }

  std::unique_ptr<KernelLibrary> library;
  std::map<std::string, uint32_t> ops; // index into times
  std::vector<Fill> fills;
  Exchanges exchanges;

  StepOptions options;
  std::vector<Arena> arenas;
  std::vector<OpTime> times; // by op class
  std::vector<Program> programs;
  std::unique_ptr<ThreadPool> pool;
};

} // namespace

absl::StatusOr<std::unique_ptr<Step>>
createCpuStep(std::shared_ptr<const BundleFile> plan,
              const StepOptions &options) {
  auto step = std::make_unique<CpuStep>(std::move(plan), options);
  QWEN35_RETURN_IF_ERROR(step->init());
  return std::unique_ptr<Step>(std::move(step));
}

} // namespace qwen35
