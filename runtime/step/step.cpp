#include "runtime/api/step.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/step/arena.h"
#include "runtime/step/cpu_features.h"
#include "runtime/step/kernel_library.h"
#include "runtime/step/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
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
  CpuKernel kernel;
  int64_t grid;
  size_t args; // first of its pointers in Program::args
  uint32_t op; // index into the op classes
};

struct Program {
  std::string name;
  std::vector<Launch> launches;
  std::vector<void *> args;
};

/// Index by name over one list of the IoSignature.
std::map<std::string, uint32_t>
byName(const google::protobuf::RepeatedPtrField<bundle::IoBuffer> &list) {
  std::map<std::string, uint32_t> result;
  for (const bundle::IoBuffer &entry : list)
    result.emplace(entry.name(), entry.buffer());
  return result;
}

std::string keys(const std::map<std::string, uint32_t> &map) {
  return absl::StrJoin(map, ", ", [](std::string *out, const auto &entry) {
    out->append(entry.first);
  });
}

template <typename T> bool holds(bundle::DType dtype) {
  if constexpr (std::is_same_v<T, float>)
    return dtype == bundle::F32;
  else if constexpr (std::is_same_v<T, double>)
    return dtype == bundle::F64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return dtype == bundle::I32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return dtype == bundle::I64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return dtype == bundle::U8;
  else
    return dtype == bundle::BF16 || dtype == bundle::F16;
}

template <typename T> const char *typeName() {
  return std::is_same_v<T, float>     ? "f32"
         : std::is_same_v<T, double>  ? "f64"
         : std::is_same_v<T, int32_t> ? "i32"
         : std::is_same_v<T, int64_t> ? "i64"
         : std::is_same_v<T, uint8_t> ? "u8"
                                      : "bf16 or f16";
}

} // namespace

class Step::Impl {
public:
  absl::Status init(std::shared_ptr<const BundleFile> file,
                    const StepOptions &wanted) {
    bundle = std::move(file);
    options = wanted;
    QWEN35_RETURN_IF_ERROR(checkCpu(plan().targets(0).cpu()));
    QWEN35_RETURN_IF_ERROR(loadKernels());
    QWEN35_RETURN_IF_ERROR(startThreads());
    QWEN35_RETURN_IF_ERROR(allocate());
    for (int i = 0; i < plan().buffers_size(); ++i)
      buffers.emplace(plan().buffers(i).name(), i);
    inputs = byName(plan().io().inputs());
    scalars = byName(plan().io().scalars());
    outputs = byName(plan().io().outputs());
    resolve();
    return absl::OkStatus();
  }

  const bundle::Bundle &plan() const { return bundle->message(); }

  absl::Status run(const Program &program) {
    FloatModeScope mode;
    if (options.poison)
      for (int i = 0; i < plan().arenas_size(); ++i)
        if (plan().arenas(i).name() == "act")
          poison(arenas[i]);
    if (!options.profile) {
      for (const Launch &launch : program.launches)
        pool->run(launch.kernel, &program.args[launch.args], launch.grid);
      return absl::OkStatus();
    }
    Clock::time_point before = Clock::now();
    for (const Launch &launch : program.launches) {
      pool->run(launch.kernel, &program.args[launch.args], launch.grid);
      Clock::time_point after = Clock::now();
      OpTime &time = times[launch.op];
      time.seconds += std::chrono::duration<double>(after - before).count();
      ++time.calls;
      before = after;
    }
    return absl::OkStatus();
  }

  uint8_t *address(uint32_t buffer) const {
    const bundle::Buffer &entry = plan().buffers(static_cast<int>(buffer));
    return arenas[entry.arena()].data() + entry.offset();
  }

  void resetTimes() {
    for (OpTime &time : times) {
      time.calls = 0;
      time.seconds = 0;
    }
  }

  std::shared_ptr<const BundleFile> bundle;
  StepOptions options;
  std::vector<Arena> arenas;
  std::map<std::string, uint32_t> buffers, inputs, scalars, outputs;
  std::vector<OpTime> times; // by op class
  std::vector<Program> programs;
  std::unique_ptr<ThreadPool> pool;

private:
  absl::Status loadKernels() {
    std::vector<std::string> symbols;
    for (const bundle::Kernel &kernel : plan().kernels())
      symbols.push_back(kernel.symbol());
    uint32_t blob = plan().targets(0).blob();
    absl::StatusOr<std::unique_ptr<KernelLibrary>> loaded = KernelLibrary::load(
        bundle->blob(blob), plan().blobs(static_cast<int>(blob)).sha256(),
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
    for (const bundle::Arena &arena : plan().arenas())
      total += arena.bytes();
    uint64_t limit = options.maxBytes ? options.maxBytes : availableMemory();
    if (total > limit)
      return absl::ResourceExhaustedError(absl::StrCat(
          "the bundle's arenas need ", formatBytes(total), " (",
          absl::StrJoin(plan().arenas(), ", ",
                        [](std::string *out, const bundle::Arena &arena) {
                          absl::StrAppend(out, arena.name(), " ",
                                          formatBytes(arena.bytes()));
                        }),
          "), but ", options.maxBytes ? "the limit is " : "this machine has ",
          formatBytes(limit), options.maxBytes ? "" : " free"));
    for (const bundle::Arena &arena : plan().arenas()) {
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
    for (const bundle::Program &source : plan().programs())
      for (const bundle::PlanEntry &entry : source.entries())
        count += entry.has_memset();
    fills.reserve(count); // Launches point into it.
    for (const bundle::Program &source : plan().programs()) {
      Program program;
      program.name = source.name();
      for (const bundle::PlanEntry &entry : source.entries()) {
        size_t first = program.args.size();
        if (entry.has_memset()) {
          uint32_t buffer = entry.memset().buffer();
          fills.push_back({address(buffer),
                           plan().buffers(static_cast<int>(buffer)).bytes(),
                           static_cast<int>(entry.memset().value())});
          program.args.push_back(&fills.back());
          program.launches.push_back(
              {Fill::run, fills.back().tasks(), first, opClass("memset")});
          continue;
        }
        const bundle::Launch &launch = entry.launch();
        for (const bundle::Arg &arg : launch.args())
          program.args.push_back(address(arg.buffer()) + arg.offset());
        program.launches.push_back(
            {library->kernel(launch.kernel()), launch.grid(), first,
             opClass(plan().kernels(static_cast<int>(launch.kernel())).op())});
      }
      programs.push_back(std::move(program));
    }
  }

  std::unique_ptr<KernelLibrary> library;
  std::map<std::string, uint32_t> ops; // index into times
  std::vector<Fill> fills;
};

Step::Step(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Step::~Step() = default;

absl::StatusOr<std::unique_ptr<Step>>
Step::create(std::shared_ptr<const BundleFile> bundle,
             const StepOptions &options) {
  auto impl = std::make_unique<Impl>();
  QWEN35_RETURN_IF_ERROR(impl->init(std::move(bundle), options));
  return std::unique_ptr<Step>(new Step(std::move(impl)));
}

const bundle::Bundle &Step::message() const { return impl->plan(); }
int Step::threads() const { return impl->pool->threads(); }

bool Step::hasProgram(absl::string_view program) const {
  for (const Program &entry : impl->programs)
    if (entry.name == program)
      return true;
  return false;
}

absl::Status Step::run(absl::string_view program) {
  for (const Program &entry : impl->programs)
    if (entry.name == program)
      return impl->run(entry);
  return absl::NotFoundError(
      absl::StrCat("the bundle has no program named ",
                   quoted(std::string(program)), ", it has ",
                   absl::StrJoin(impl->programs, ", ",
                                 [](std::string *out, const Program &entry) {
                                   out->append(entry.name);
                                 })));
}

absl::StatusOr<uint32_t> Step::findBuffer(absl::string_view name) const {
  auto it = impl->buffers.find(std::string(name));
  if (it == impl->buffers.end())
    return absl::NotFoundError(absl::StrCat("the bundle has no buffer named ",
                                            quoted(std::string(name))));
  return it->second;
}

absl::Span<uint8_t> Step::bytes(uint32_t index) {
  return absl::MakeSpan(impl->address(index),
                        impl->plan().buffers(static_cast<int>(index)).bytes());
}

absl::Span<const uint8_t> Step::bytes(uint32_t index) const {
  return absl::MakeConstSpan(
      impl->address(index),
      impl->plan().buffers(static_cast<int>(index)).bytes());
}

template <typename T> absl::Status Step::checkType(uint32_t index) const {
  const bundle::Buffer &entry = impl->plan().buffers(static_cast<int>(index));
  if (holds<T>(entry.dtype()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "buffer ", quoted(entry.name()), " holds ", dtypeName(entry.dtype()),
      ", but ", typeName<T>(), " was asked for"));
}

template <typename T>
absl::StatusOr<absl::Span<T>> Step::buffer(uint32_t index) {
  QWEN35_RETURN_IF_ERROR(checkType<T>(index));
  absl::Span<uint8_t> raw = bytes(index);
  return absl::MakeSpan(reinterpret_cast<T *>(raw.data()),
                        raw.size() / sizeof(T));
}

template <typename T>
absl::StatusOr<absl::Span<T>> Step::buffer(absl::string_view name) {
  absl::StatusOr<uint32_t> index = findBuffer(name);
  if (!index.ok())
    return index.status();
  return buffer<T>(*index);
}

#define QWEN35_STEP_TYPE(T)                                                    \
  template absl::StatusOr<absl::Span<T>> Step::buffer<T>(uint32_t);            \
  template absl::StatusOr<absl::Span<T>> Step::buffer<T>(absl::string_view);
QWEN35_STEP_TYPE(float)
QWEN35_STEP_TYPE(double)
QWEN35_STEP_TYPE(int32_t)
QWEN35_STEP_TYPE(int64_t)
QWEN35_STEP_TYPE(uint8_t)
QWEN35_STEP_TYPE(uint16_t)
#undef QWEN35_STEP_TYPE

absl::StatusOr<absl::Span<int32_t>> Step::input(absl::string_view name) {
  auto it = impl->inputs.find(std::string(name));
  if (it == impl->inputs.end())
    return absl::NotFoundError(absl::StrCat("the step has no input named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(impl->inputs)));
  return buffer<int32_t>(it->second);
}

bool Step::hasScalar(absl::string_view name) const {
  return impl->scalars.count(std::string(name)) != 0;
}

absl::Status Step::setScalar(absl::string_view name, float value) {
  auto it = impl->scalars.find(std::string(name));
  if (it == impl->scalars.end())
    return absl::NotFoundError(absl::StrCat("the step has no scalar named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(impl->scalars)));
  std::memcpy(impl->address(it->second), &value, sizeof(value));
  return absl::OkStatus();
}

bool Step::hasOutput(absl::string_view name) const {
  return impl->outputs.count(std::string(name)) != 0;
}

absl::StatusOr<float> Step::output(absl::string_view name) const {
  auto it = impl->outputs.find(std::string(name));
  if (it == impl->outputs.end())
    return absl::NotFoundError(absl::StrCat("the step has no output named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(impl->outputs)));
  float value = 0;
  std::memcpy(&value, impl->address(it->second), sizeof(value));
  return value;
}

StepMemory Step::memory() const {
  StepMemory result;
  for (size_t i = 0; i < impl->arenas.size(); ++i) {
    const bundle::Arena &arena = impl->plan().arenas(static_cast<int>(i));
    result.arenas.push_back({arena.name(), arena.bytes()});
    result.planned += arena.bytes();
    result.mapped += impl->arenas[i].mapped();
  }
  std::map<std::string, uint64_t> categories;
  for (const bundle::Buffer &buffer : impl->plan().buffers())
    categories[buffer.category()] += buffer.bytes();
  for (const auto &[name, bytes] : categories)
    result.categories.push_back({name, bytes});
  return result;
}

std::vector<OpTime> Step::profile() const {
  std::vector<OpTime> result;
  if (!impl->options.profile)
    return result;
  for (const OpTime &time : impl->times)
    if (time.calls != 0)
      result.push_back(time);
  std::sort(result.begin(), result.end(), [](const OpTime &a, const OpTime &b) {
    return std::tie(b.seconds, a.op) < std::tie(a.seconds, b.op);
  });
  return result;
}

void Step::resetProfile() { impl->resetTimes(); }

} // namespace qwen35
