// Runs recorded kernels (kernel_cases.proto) on a GPU and compares what they
// give with what the emulator gave:
//
//   qwen35_gpu_kernels FILES.cases [--filter TEXT[,TEXT...]] [--one-process]
//
// or, with --bench, takes their time: bytes are those of inputs and outputs,
// once, and flops are those of the plan.
//
// Every variant of a case runs twice, and a third time with outputs on the
// inputs that they may alias. Outputs, workspace and the guard zones around
// every buffer hold NaN at first, and small numbers in the second run; all runs
// must agree bit for bit, and nothing but outputs and workspace may change.
//
// The cases run in a process of their own. One that faults or hangs is counted
// as failed, and another process takes over behind it.

#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "test/gpu/KernelCases.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace qwen35::test {
namespace {

using cuda::DevicePtr;
using cuda::GpuDevice;

constexpr uint64_t kAlignment = 256, kGuard = 4096;
constexpr int kSecondsPerCase = 30;

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// visit(element, byte from the start of the tensor), in row-major order.
template <typename Visit>
void forElements(const KernelTensor &tensor, Visit visit) {
  int64_t elements = elementsOf(tensor), rank = tensor.shape_size();
  int64_t bytes = bytesOf(tensor.dtype());
  std::vector<int64_t> index(rank, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < elements; ++i) {
    visit(i, static_cast<uint64_t>(at * bytes));
    for (int d = static_cast<int>(rank) - 1; d >= 0; --d) {
      at += tensor.strides(d);
      if (++index[d] < tensor.shape(d))
        break;
      at -= tensor.shape(d) * tensor.strides(d);
      index[d] = 0;
    }
  }
}

bool isSpecified(const KernelTensor &tensor, int64_t element) {
  return tensor.unspecified().empty() ||
         !(tensor.unspecified()[element / 8] >> element % 8 & 1);
}

std::string describe(const KernelTensor &tensor) {
  return absl::StrCat(dtypeName(tensor.dtype()), "[",
                      absl::StrJoin(tensor.shape(), ","), "]");
}

/// How far off an output may be. f32 holds what sums in another order and
/// functions of another library cost; a kernel with bf16 operands may round on
/// the way, and then an element is one of two neighbours in either type.
double boundOf(const KernelCase &c, const KernelTensor &output) {
  if (output.relative() > 0)
    return output.relative();
  bool half = false;
  for (const auto *tensors : {&c.inputs(), &c.outputs()})
    for (const KernelTensor &tensor : *tensors)
      half |= tensor.dtype() == bundle::BF16;
  switch (output.dtype()) {
  case bundle::BF16:
    return 8e-3;
  case bundle::F32:
    return half ? 4e-3 : 2e-5;
  case bundle::F64:
    return 1e-12;
  default:
    return 0;
  }
}

/// "" or what is wrong; `relative` is the norm of the error over that of what
/// is expected. What is not specified is zero in both.
std::string compare(const KernelCase &c, const KernelTensor &output,
                    const std::string &dense, double &relative) {
  std::vector<double> want, got;
  if (output.folded()) {
    got = foldedValues(dense, output.dtype());
    for (size_t i = 0; i < got.size(); ++i)
      want.push_back(valueOf(output.data(), bundle::F32, i));
  } else {
    for (int64_t i = 0; i < elementsOf(output); ++i) {
      got.push_back(valueOf(dense, output.dtype(), i));
      want.push_back(valueOf(output.data(), output.dtype(), i));
    }
  }
  auto differs = [&](size_t i) {
    return absl::StrCat(output.folded() ? "sum " : "element ", i, " is ",
                        got[i], ", expected ", want[i]);
  };
  double bound = boundOf(c, output), error = 0, norm = 0;
  int64_t count = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i]) != std::isfinite(got[i]))
      return differs(i);
    if (!std::isfinite(want[i]))
      continue;
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
    ++count;
  }
  if (count == 0)
    return "";
  error = std::sqrt(error);
  norm = std::sqrt(norm);
  relative = error == 0 ? 0 : error / norm;
  double unit = std::sqrt(static_cast<double>(count));
  // A single element may be off by more than all of them are on average.
  double scale = output.scale();
  if (output.folded()) // Of a sum of 16 errors with weights from 1 to 2.
    scale *= 6;
  double rms = norm / unit + scale, most = 1;
  size_t worst = want.size();
  for (size_t i = 0; i < want.size(); ++i) {
    double off = std::fabs(got[i] - want[i]);
    double allowed = 16 * bound * (std::fabs(want[i]) + rms);
    double share = off == 0 ? 0 : off / allowed;
    if (share > most) {
      most = share;
      worst = i;
    }
  }
  std::string text;
  if (error > bound * (norm + scale * unit))
    text = absl::StrCat("off by ", relative, " of its norm ", norm,
                        ", expected ", bound, " at most");
  if (worst < want.size())
    absl::StrAppend(&text, text.empty() ? "" : "; ", differs(worst));
  return text;
}

//===----------------------------------------------------------------------===//
// The device
//===----------------------------------------------------------------------===//

struct CaseFile {
  std::string path;
  KernelCases cases;
};

/// A stage that can be enqueued.
struct ReadyStage {
  const KernelStage *source = nullptr;
  cuda::Function function = nullptr;
  std::unique_ptr<cuda::GemmPlan> gemm;
};

class Gpu {
public:
  absl::Status open(const std::string &arch) {
    auto opened = GpuDevice::open(arch);
    QWEN35_RETURN_IF_ERROR(opened.status());
    device = *std::move(opened);
    api = &device->driver();
    return api->check(api->streamCreate(&stream, cuda::kStreamNonBlocking),
                      "cuStreamCreate");
  }

  /// Makes room for `bytes` of device memory and of pinned memory.
  absl::Status reserve(uint64_t bytes, uint64_t pinned) {
    if (memory.bytes() < bytes) {
      memory = {};
      QWEN35_RETURN_IF_ERROR(memory.allocateDevice(*api, bytes, "a case"));
    }
    if (host.bytes() < pinned) {
      host = {};
      QWEN35_RETURN_IF_ERROR(host.allocateHost(*api, pinned, "a case"));
    }
    return absl::OkStatus();
  }

  absl::Status prepare(const CaseFile &file, const KernelVariant &variant,
                       const std::vector<DevicePtr> &arguments,
                       std::vector<ReadyStage> &stages) {
    for (const KernelStage &stage : variant.stages()) {
      ReadyStage ready;
      ready.source = &stage;
      const bundle::Kernel &kernel = stage.kernel();
      if (kernel.has_gemm())
        QWEN35_RETURN_IF_ERROR(prepareGemm(kernel, arguments, ready));
      else
        QWEN35_RETURN_IF_ERROR(prepareKernel(file, kernel, ready));
      stages.push_back(std::move(ready));
    }
    return absl::OkStatus();
  }

  absl::Status enqueue(const ReadyStage &stage,
                       std::vector<DevicePtr> &arguments) {
    const bundle::Kernel &kernel = stage.source->kernel();
    if (stage.gemm) {
      const bundle::Gemm &gemm = kernel.gemm();
      auto place = [&](const bundle::GemmOperand &operand) {
        return arguments[operand.arg()] + operand.offset();
      };
      return blas->check(
          stage.gemm->run(place(gemm.a()), place(gemm.b()), place(gemm.d()),
                          gemm.workspace_bytes() ? place(gemm.workspace()) : 0,
                          stream),
          "cublasLtMatmul");
    }
    std::vector<void *> parameters;
    for (DevicePtr &argument : arguments)
      parameters.push_back(&argument);
    cuda::LaunchAttribute cluster = {};
    cluster.id = cuda::kLaunchCluster;
    cluster.value.cluster = {kernel.cluster(), 1, 1};
    cuda::LaunchConfig config = {};
    config.gridX = static_cast<unsigned>(stage.source->grid());
    config.blockX = kernel.threads();
    config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
    config.sharedBytes = static_cast<unsigned>(kernel.shared_bytes());
    config.stream = stream;
    config.attributes = &cluster;
    config.attributeCount = kernel.cluster() > 1;
    return api->check(api->launchKernelEx(&config, stage.function,
                                          parameters.data(), nullptr),
                      absl::StrCat("cuLaunchKernelEx of ", kernel.symbol()));
  }

  absl::Status wait(absl::string_view what) {
    return api->check(api->streamSynchronize(stream), what);
  }

  std::shared_ptr<GpuDevice> device;
  const cuda::Driver *api = nullptr;
  cuda::Stream stream = nullptr;
  cuda::Memory memory, host;

private:
  absl::Status prepareKernel(const CaseFile &file, const bundle::Kernel &kernel,
                             ReadyStage &ready) {
    cuda::Module &module = modules[{&file, kernel.blob()}];
    if (!module)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->moduleLoadData(
              &module,
              file.cases.images(static_cast<int>(kernel.blob())).data()),
          absl::StrCat("cuModuleLoadData of ", kernel.symbol())));
    QWEN35_RETURN_IF_ERROR(
        api->check(api->moduleGetFunction(&ready.function, module,
                                          kernel.symbol().c_str()),
                   absl::StrCat("cuModuleGetFunction of ", kernel.symbol())));
    QWEN35_RETURN_IF_ERROR(
        api->check(api->funcLoad(ready.function), "cuFuncLoad"));
    if (kernel.shared_bytes() > 0)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->funcSetAttribute(ready.function, cuda::kFunctionMaxDynamicShared,
                                static_cast<int>(kernel.shared_bytes())),
          absl::StrCat("cuFuncSetAttribute of ", kernel.symbol())));
    return absl::OkStatus();
  }

  absl::Status prepareGemm(const bundle::Kernel &kernel,
                           const std::vector<DevicePtr> &arguments,
                           ReadyStage &ready) {
    if (!blas) {
      auto loaded = cuda::BlasLt::load();
      QWEN35_RETURN_IF_ERROR(loaded.status());
      blas = *loaded;
      QWEN35_RETURN_IF_ERROR(
          blas->check(blas->create(&handle), "cublasLtCreate"));
    }
    const bundle::Gemm &gemm = kernel.gemm();
    cuda::GemmAlignment alignment;
    for (auto [field, bytes] : {std::pair(&gemm.a(), &alignment.a),
                                std::pair(&gemm.b(), &alignment.b),
                                std::pair(&gemm.d(), &alignment.d)})
      while ((arguments[field->arg()] + field->offset()) % *bytes != 0)
        *bytes /= 2;
    auto plan = cuda::GemmPlan::create(*blas, handle, gemm, alignment);
    QWEN35_RETURN_IF_ERROR(plan.status());
    ready.gemm = *std::move(plan);
    return absl::OkStatus();
  }

  const cuda::BlasLt *blas = nullptr;
  cuda::BlasHandle handle = nullptr;
  std::map<std::pair<const CaseFile *, uint32_t>, cuda::Module> modules;
};

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

/// The input that an output lies on, or -1; `before`: of the outputs before it.
int aliasOf(const KernelCase &c, const KernelVariant &variant, int output,
            const std::vector<int> &before) {
  auto layout = [](const KernelTensor &tensor) {
    return std::tuple(
        tensor.dtype(),
        std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end()),
        std::vector<int64_t>(tensor.strides().begin(), tensor.strides().end()));
  };
  for (const KernelAlias &alias : variant.may_alias()) {
    auto input = static_cast<int>(alias.input());
    if (static_cast<int>(alias.output()) != output ||
        layout(c.outputs(output)) != layout(c.inputs(input)))
      continue;
    if (std::find(before.begin(), before.end(), input) == before.end())
      return input;
  }
  return -1;
}

/// A variant of a case.
struct Item {
  const CaseFile *file;
  const KernelCase *source;
  const KernelVariant *variant;
  int op; ///< Index into Shared::ops.

  std::string name() const {
    return absl::StrCat(source->name(), " ", source->op(),
                        variant->name().empty() ? "" : " ", variant->name());
  }
};

/// What the processes share.
struct Shared {
  struct Op {
    int runs, failed;
    double single, half; ///< Worst errors of f32 and of bf16 outputs.
  };
  std::atomic<size_t> at; ///< Item that runs.
  std::atomic<double> since;
  std::atomic<bool> reported; ///< Its result has been printed.
  int passed, failed;
  Op ops[64];
};

/// Where the tensors of an item lie: all but the workspace have an image on the
/// host.
class Placement {
public:
  Placement(const Item &item, bool inPlace) : item(item) {
    const KernelCase &c = *item.source;
    for (const KernelTensor &input : c.inputs())
      places.push_back(take(input.start(), extentOf(input)));
    for (int i = 0; i < c.outputs_size(); ++i) {
      const KernelTensor &output = c.outputs(i);
      aliases.push_back(inPlace ? aliasOf(c, *item.variant, i, aliases) : -1);
      places.push_back(aliases[i] >= 0
                           ? places[aliases[i]]
                           : take(output.start(), extentOf(output)));
    }
    workspace = take(0, 0);
    size += (item.variant->workspace_bytes() + kAlignment - 1) / kAlignment *
            kAlignment;
    tail = size;
    size += kGuard;
  }

  bool hasAliases() const {
    for (int alias : aliases)
      if (alias >= 0)
        return true;
    return false;
  }

  std::vector<DevicePtr> arguments(DevicePtr base) const {
    std::vector<DevicePtr> result;
    for (uint64_t place : places)
      result.push_back(base + place);
    if (item.variant->workspace_bytes() > 0)
      result.push_back(base + workspace);
    return result;
  }

  uint64_t outputAt(int output) const {
    return places[item.source->inputs_size() + output];
  }

  const Item &item;
  std::vector<uint64_t> places;
  std::vector<int> aliases;
  uint64_t workspace = 0, tail = 0, size = 0;

private:
  uint64_t take(uint64_t start, uint64_t bytes) {
    size = (size + kGuard + kAlignment - 1) / kAlignment * kAlignment + start;
    uint64_t at = size;
    size += bytes;
    return at;
  }
};

class Runner {
public:
  Runner(Gpu &gpu, Shared &shared) : gpu(gpu), shared(shared) {}

  /// Problems of an item, none if it passes. An error is one of the device,
  /// which is of no more use then.
  absl::Status run(const Item &item, std::vector<std::string> &problems) {
    std::vector<std::string> first;
    bool inPlace = item.variant->in_place();
    struct Way {
      const char *what;
      uint8_t poison;
      bool inPlace;
    };
    for (const Way &way :
         {Way{"", 0xFF, inPlace}, Way{"with other poison: ", 0x3C, inPlace},
          Way{"outputs on inputs: ", 0xFF, true}}) {
      Placement placement(item, way.inPlace);
      if (way.inPlace && !inPlace && !placement.hasAliases())
        continue;
      std::vector<std::string> outputs;
      QWEN35_RETURN_IF_ERROR(
          runOnce(placement, way.poison, way.what, outputs, problems));
      if (first.empty()) {
        first = outputs;
        check(item, outputs, problems);
        continue;
      }
      for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i] != first[i])
          problems.push_back(absl::StrCat(way.what, "output ", i,
                                          " is not what it was at first"));
    }
    return absl::OkStatus();
  }

private:
  absl::Status runOnce(const Placement &placement, uint8_t poison,
                       const char *what, std::vector<std::string> &outputs,
                       std::vector<std::string> &problems) {
    const Item &item = placement.item;
    const KernelCase &c = *item.source;
    const cuda::Driver *api = gpu.api;
    uint64_t front = placement.workspace;
    QWEN35_RETURN_IF_ERROR(gpu.reserve(placement.size, front + kGuard));
    DevicePtr base = gpu.memory.device();
    std::vector<DevicePtr> arguments = placement.arguments(base);

    std::vector<uint8_t> before(front, poison);
    for (int i = 0; i < c.inputs_size(); ++i) {
      const KernelTensor &input = c.inputs(i);
      uint64_t bytes = bytesOf(input.dtype());
      uint64_t size = input.data().size();
      RandomElements random(input.random());
      forElements(input, [&](int64_t element, uint64_t at) {
        uint8_t *to = &before[placement.places[i] + at];
        if (size > 0) {
          std::memcpy(to, &input.data()[element * bytes % size], bytes);
          return;
        }
        auto single = static_cast<float>(random.next());
        uint16_t half = toBf16(single);
        std::memcpy(to, bytes == 2 ? static_cast<void *>(&half) : &single,
                    bytes);
      });
    }
    std::memcpy(gpu.host.host(), before.data(), front);
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memcpyHtoDAsync(base, gpu.host.host(), front, gpu.stream),
        "cuMemcpyHtoDAsync_v2"));
    QWEN35_RETURN_IF_ERROR(
        api->check(api->memsetD8Async(base + front, poison,
                                      placement.size - front, gpu.stream),
                   "cuMemsetD8Async"));
    std::vector<ReadyStage> stages;
    if (absl::Status ready =
            gpu.prepare(*item.file, *item.variant, arguments, stages);
        !ready.ok()) {
      problems.push_back(std::string(ready.message()));
      outputs.resize(c.outputs_size());
      return gpu.wait("waiting for a copy");
    }
    for (const ReadyStage &stage : stages) {
      QWEN35_RETURN_IF_ERROR(gpu.enqueue(stage, arguments));
    }
    QWEN35_RETURN_IF_ERROR(gpu.wait("waiting for the kernels"));
    uint8_t *host = gpu.host.host();
    for (auto [to, from, bytes] :
         {std::tuple(host, base, front),
          {host + front, base + placement.tail, kGuard}})
      QWEN35_RETURN_IF_ERROR(
          api->check(api->memcpyDtoHAsync(to, from, bytes, gpu.stream),
                     "cuMemcpyDtoHAsync_v2"));
    QWEN35_RETURN_IF_ERROR(gpu.wait("reading results"));

    // What is left once outputs are put back is what must not change.
    std::vector<uint8_t> after(host, host + front);
    for (int i = 0; i < c.outputs_size(); ++i) {
      const KernelTensor &output = c.outputs(i);
      uint64_t bytes = bytesOf(output.dtype()), at0 = placement.outputAt(i);
      std::string dense(elementsOf(output) * bytes, '\0');
      forElements(output, [&](int64_t element, uint64_t at) {
        if (isSpecified(output, element))
          std::memcpy(&dense[element * bytes], host + at0 + at, bytes);
        std::memcpy(&after[at0 + at], &before[at0 + at], bytes);
      });
      outputs.push_back(std::move(dense));
    }
    for (uint64_t i = 0; i < front; ++i)
      if (after[i] != before[i]) {
        problems.push_back(absl::StrCat(what, describePlace(placement, i)));
        break;
      }
    for (uint64_t i = 0; i < kGuard; ++i)
      if (host[front + i] != poison) {
        problems.push_back(absl::StrCat(what, "byte ", i,
                                        " behind the workspace was written"));
        break;
      }
    return absl::OkStatus();
  }

  static std::string describePlace(const Placement &placement, uint64_t byte) {
    size_t nearest = 0;
    for (size_t i = 0; i < placement.places.size(); ++i)
      if (placement.places[i] <= byte + kGuard / 2)
        nearest = i;
    int inputs = placement.item.source->inputs_size();
    auto number = static_cast<int>(nearest);
    return absl::StrCat("byte ",
                        static_cast<int64_t>(byte) -
                            static_cast<int64_t>(placement.places[nearest]),
                        " from the start of ",
                        number < inputs
                            ? absl::StrCat("input ", number)
                            : absl::StrCat("output ", number - inputs),
                        " was written");
  }

  void check(const Item &item, const std::vector<std::string> &outputs,
             std::vector<std::string> &problems) {
    Shared::Op &op = shared.ops[item.op];
    for (int i = 0; i < item.source->outputs_size(); ++i) {
      const KernelTensor &output = item.source->outputs(i);
      if (outputs[i].empty())
        continue;
      double relative = 0;
      std::string text = compare(*item.source, output, outputs[i], relative);
      if (!text.empty())
        problems.push_back(
            absl::StrCat("output ", i, " ", describe(output), ": ", text));
      // Errors of sums that cancel are no measure.
      else if (output.scale() > 0 || boundOf(*item.source, output) > 1e-2)
        continue;
      else if (output.dtype() == bundle::F32)
        op.single = std::max(op.single, relative);
      else if (output.dtype() == bundle::BF16)
        op.half = std::max(op.half, relative);
    }
  }

  Gpu &gpu;
  Shared &shared;
};

void report(Shared &shared, const Item &item,
            const std::vector<std::string> &problems) {
  Shared::Op &op = shared.ops[item.op];
  ++op.runs;
  if (problems.empty()) {
    ++shared.passed;
  } else {
    ++shared.failed;
    ++op.failed;
    std::printf("FAIL %s: %s\n", item.name().c_str(),
                absl::StrJoin(problems, "; ").substr(0, 400).c_str());
    std::fflush(stdout);
  }
  shared.reported = true;
}

/// Runs items from `first` on. True: all of them.
bool runFrom(size_t first, const std::vector<Item> &items, Shared &shared) {
  Gpu gpu;
  if (absl::Status opened = gpu.open(items[0].file->cases.arch());
      !opened.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(opened.message()).c_str());
    _exit(2);
  }
  Runner runner(gpu, shared);
  for (size_t i = first; i < items.size(); ++i) {
    shared.at = i;
    shared.reported = false;
    shared.since = now();
    std::vector<std::string> problems;
    absl::Status status = runner.run(items[i], problems);
    if (!status.ok())
      problems.push_back(std::string(status.message()));
    report(shared, items[i], problems);
    if (!status.ok())
      return false;
  }
  return true;
}

/// Runs all items, in as many processes as it takes. False: there is no GPU.
bool runAll(const std::vector<Item> &items, Shared &shared) {
  size_t first = 0;
  for (int processes = 0; first < items.size(); ++processes) {
    if (processes == 20) {
      std::printf("FAIL and so on: %zu variants are left\n",
                  items.size() - first);
      ++shared.failed;
      return true;
    }
    shared.at = first;
    shared.reported = false;
    shared.since = now() + 60; // Time to start.
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0)
      _exit(runFrom(first, items, shared) ? 0 : 1);
    int status = 0;
    bool hung = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
      usleep(10000);
      if (now() - shared.since > kSecondsPerCase) {
        hung = true;
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        break;
      }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
      return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
      return false;
    if (!shared.reported)
      report(shared, items[shared.at],
             {hung ? absl::StrCat("did not end in ", kSecondsPerCase, " s")
                   : absl::StrCat("the process died, status ", status)});
    first = shared.at + 1;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// Takes the time of a case, on sets of buffers that together do not fit into
/// the cache of the device.
class Bench {
public:
  Bench(Gpu &gpu, bool byStage) : gpu(gpu), api(gpu.api), byStage(byStage) {}

  /// What a copy on the device takes, as the bound of everything else.
  absl::Status copy() {
    constexpr uint64_t kBytes = uint64_t(1) << 30;
    // Rows of the memory that both sides use at a time should not be the same.
    constexpr uint64_t kApart = kBytes + (3 << 20) + (1 << 12);
    QWEN35_RETURN_IF_ERROR(gpu.reserve(kApart + kBytes, 0));
    DevicePtr base = gpu.memory.device();
    double seconds = 0;
    QWEN35_RETURN_IF_ERROR(time(
        1,
        [&](size_t) {
          return api->check(
              api->memcpyDtoDAsync(base + kApart, base, kBytes, gpu.stream),
              "cuMemcpyDtoDAsync_v2");
        },
        seconds));
    print("copy of 1 GiB", seconds, 2.0 * kBytes, 0);
    return absl::OkStatus();
  }

  absl::Status run(const Item &item) {
    const KernelCase &c = *item.source;
    std::vector<uint64_t> places;
    std::vector<int> aliases;
    uint64_t size = 0;
    double bytes = 0;
    auto take = [&](const KernelTensor &tensor) {
      bytes += static_cast<double>(elementsOf(tensor) *
                                   test::bytesOf(tensor.dtype()));
      places.push_back(size + tensor.start());
      size += (tensor.start() + extentOf(tensor) + kAlignment - 1) /
              kAlignment * kAlignment;
    };
    for (const KernelTensor &input : c.inputs())
      take(input);
    for (int i = 0; i < c.outputs_size(); ++i) {
      aliases.push_back(item.variant->in_place()
                            ? aliasOf(c, *item.variant, i, aliases)
                            : -1);
      if (aliases[i] < 0) {
        take(c.outputs(i));
        continue;
      }
      bytes += static_cast<double>(elementsOf(c.outputs(i)) *
                                   test::bytesOf(c.outputs(i).dtype()));
      places.push_back(places[aliases[i]]);
    }
    uint64_t sets = std::clamp<uint64_t>(kRotation / size + 1, 2, 16);
    QWEN35_RETURN_IF_ERROR(
        gpu.reserve(sets * size + item.variant->workspace_bytes(), kBlock));
    DevicePtr base = gpu.memory.device();
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memsetD8Async(base, 0, size, gpu.stream), "cuMemsetD8Async"));
    for (int i = 0; i < c.inputs_size(); ++i)
      QWEN35_RETURN_IF_ERROR(fill(c.inputs(i), base + places[i]));
    for (uint64_t set = 1; set < sets; ++set)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyDtoDAsync(base + set * size, base, size, gpu.stream),
          "cuMemcpyDtoDAsync_v2"));

    std::vector<std::vector<DevicePtr>> arguments(sets);
    for (uint64_t set = 0; set < sets; ++set) {
      for (uint64_t place : places)
        arguments[set].push_back(base + set * size + place);
      if (item.variant->workspace_bytes() > 0)
        arguments[set].push_back(base + sets * size);
    }
    std::vector<ReadyStage> stages;
    QWEN35_RETURN_IF_ERROR(
        gpu.prepare(*item.file, *item.variant, arguments[0], stages));
    double seconds = 0;
    QWEN35_RETURN_IF_ERROR(time(
        sets,
        [&](size_t set) {
          for (const ReadyStage &stage : stages)
            QWEN35_RETURN_IF_ERROR(gpu.enqueue(stage, arguments[set]));
          return absl::OkStatus();
        },
        seconds));
    print(c.name(), seconds, c.bytes() > 0 ? c.bytes() : bytes, c.flops());
    // Stages need what those before them left: what each adds to the time.
    for (size_t i = 0; byStage && i < stages.size(); ++i) {
      double last = i == 0 ? 0 : seconds;
      QWEN35_RETURN_IF_ERROR(time(
          sets,
          [&](size_t set) {
            for (size_t j = 0; j <= i; ++j)
              QWEN35_RETURN_IF_ERROR(gpu.enqueue(stages[j], arguments[set]));
            return absl::OkStatus();
          },
          seconds));
      std::printf("  + %-38s %9.4f ms\n",
                  stages[i].source->kernel().symbol().c_str(),
                  (seconds - last) * 1e3);
    }
    return absl::OkStatus();
  }

private:
  static constexpr uint64_t kRotation = uint64_t(256) << 20;
  static constexpr uint64_t kBlock = uint64_t(1) << 20;

  /// Elements of a dense tensor; random ones repeat every MiB.
  absl::Status fill(const KernelTensor &tensor, DevicePtr to) {
    uint64_t extent = extentOf(tensor);
    auto bytes = static_cast<uint64_t>(test::bytesOf(tensor.dtype()));
    std::string block = tensor.data();
    if (block.empty()) {
      RandomElements random(tensor.random());
      uint64_t elements = std::min(kBlock, extent) / bytes;
      for (uint64_t i = 0; i < elements; ++i) {
        auto single = static_cast<float>(random.next());
        uint16_t half = toBf16(single);
        double wide = single;
        const void *from = &single;
        if (bytes == 2)
          from = &half;
        else if (bytes == 8)
          from = &wide;
        block.append(static_cast<const char *>(from), bytes);
      }
    }
    uint64_t done = std::min<uint64_t>(block.size(), extent);
    for (uint64_t at = 0; at < done; at += kBlock) {
      uint64_t part = std::min(kBlock, done - at);
      std::memcpy(gpu.host.host(), &block[at], part);
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyHtoDAsync(to + at, gpu.host.host(), part, gpu.stream),
          "cuMemcpyHtoDAsync_v2"));
      QWEN35_RETURN_IF_ERROR(gpu.wait("filling an input"));
    }
    while (done < extent) {
      uint64_t part = std::min(done, extent - done);
      QWEN35_RETURN_IF_ERROR(
          api->check(api->memcpyDtoDAsync(to + done, to, part, gpu.stream),
                     "cuMemcpyDtoDAsync_v2"));
      done += part;
    }
    return absl::OkStatus();
  }

  /// Seconds of one call of `enqueue(set)`, in a graph of rounds over all sets.
  template <typename Enqueue>
  absl::Status time(size_t sets, Enqueue enqueue, double &seconds) {
    cuda::Event start = nullptr, end = nullptr;
    for (cuda::Event *event : {&start, &end})
      QWEN35_RETURN_IF_ERROR(api->check(
          api->eventCreate(event, cuda::kEventDefault), "cuEventCreate"));
    auto measure = [&](auto work, double &result) {
      QWEN35_RETURN_IF_ERROR(
          api->check(api->eventRecord(start, gpu.stream), "cuEventRecord"));
      QWEN35_RETURN_IF_ERROR(work());
      QWEN35_RETURN_IF_ERROR(
          api->check(api->eventRecord(end, gpu.stream), "cuEventRecord"));
      QWEN35_RETURN_IF_ERROR(gpu.wait("waiting for the kernels"));
      float milliseconds = 0;
      QWEN35_RETURN_IF_ERROR(
          api->check(api->eventElapsedTime(&milliseconds, start, end),
                     "cuEventElapsedTime"));
      result = milliseconds * 1e-3;
      return absl::OkStatus();
    };
    auto round = [&] {
      for (size_t set = 0; set < sets; ++set)
        QWEN35_RETURN_IF_ERROR(enqueue(set));
      return absl::OkStatus();
    };
    double once = 0;
    for (int warm = 0; warm < 2; ++warm)
      QWEN35_RETURN_IF_ERROR(measure(round, once));
    auto rounds =
        static_cast<size_t>(std::clamp(0.01 / std::max(once, 1e-6), 1.0, 50.0));
    QWEN35_RETURN_IF_ERROR(api->check(
        api->streamBeginCapture(gpu.stream, cuda::kCaptureThreadLocal),
        "cuStreamBeginCapture_v2"));
    for (size_t i = 0; i < rounds; ++i)
      QWEN35_RETURN_IF_ERROR(round());
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    QWEN35_RETURN_IF_ERROR(api->check(api->streamEndCapture(gpu.stream, &graph),
                                      "cuStreamEndCapture"));
    QWEN35_RETURN_IF_ERROR(api->check(api->graphInstantiate(&exec, graph, 0),
                                      "cuGraphInstantiateWithFlags"));
    std::vector<double> times(5);
    for (double &t : times)
      QWEN35_RETURN_IF_ERROR(measure(
          [&] {
            return api->check(api->graphLaunch(exec, gpu.stream),
                              "cuGraphLaunch");
          },
          t));
    api->graphExecDestroy(exec);
    api->graphDestroy(graph);
    api->eventDestroy(start);
    api->eventDestroy(end);
    // The first launch of a graph also uploads it.
    std::sort(times.begin(), times.end());
    seconds = times[times.size() / 2] / static_cast<double>(rounds * sets);
    return absl::OkStatus();
  }

  static void print(const std::string &name, double seconds, double bytes,
                    double flops) {
    std::printf("%-44s %9.4f ms %8.1f GB/s", name.c_str(), seconds * 1e3,
                bytes / seconds * 1e-9);
    if (flops > 0)
      std::printf(" %8.1f TFLOP/s", flops / seconds * 1e-12);
    std::printf("\n");
    std::fflush(stdout);
  }

  Gpu &gpu;
  const cuda::Driver *api;
  bool byStage;
};

int benchAll(const std::vector<Item> &items, bool byStage) {
  Gpu gpu;
  absl::Status status = gpu.open(items[0].file->cases.arch());
  if (status.ok())
    status = Bench(gpu, byStage).copy();
  std::string at = "the copy";
  for (size_t i = 0; i < items.size() && status.ok(); ++i) {
    at = items[i].name();
    status = Bench(gpu, byStage).run(items[i]);
  }
  if (status.ok())
    return 0;
  std::fprintf(stderr, "error: %s: %s\n", at.c_str(),
               std::string(status.message()).c_str());
  return 2;
}

int usage() {
  std::fprintf(stderr,
               "usage: qwen35_gpu_kernels [--bench [--stages]] FILES.cases "
               "[--filter TEXT[,TEXT...]] [--one-process]\n");
  return 2;
}

int main(int argc, char **argv) {
  double start = now();
  std::vector<std::unique_ptr<CaseFile>> files;
  std::vector<std::string> filters;
  bool oneProcess = false, bench = false, byStage = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--filter" && i + 1 < argc) {
      filters = absl::StrSplit(argv[++i], ',');
    } else if (argument == "--one-process") {
      oneProcess = true; // For tools that follow no other.
    } else if (argument == "--bench") {
      bench = true;
    } else if (argument == "--stages") {
      bench = byStage = true; // Of every stage alone as well.
    } else if (argument[0] == '-') {
      return usage();
    } else {
      auto file = std::make_unique<CaseFile>();
      file->path = argument;
      std::ifstream in(argument, std::ios::binary);
      if (!in || !file->cases.ParseFromIstream(&in)) {
        std::fprintf(stderr, "error: %s is no file of kernel cases\n", argv[i]);
        return 2;
      }
      files.push_back(std::move(file));
    }
  }
  if (files.empty())
    return usage();

  auto *shared = static_cast<Shared *>(mmap(nullptr, sizeof(Shared),
                                            PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared{};
  std::vector<Item> items;
  std::map<std::string, int> ops;
  for (const auto &file : files)
    for (const KernelCase &c : file->cases.cases())
      for (const KernelVariant &variant : c.variants()) {
        Item item{file.get(), &c, &variant, 0};
        bool taken = filters.empty();
        for (const std::string &filter : filters)
          taken |= absl::StrContains(item.name(), filter);
        if (!taken)
          continue;
        item.op = ops.emplace(c.op(), static_cast<int>(ops.size()) %
                                          std::ssize(shared->ops))
                      .first->second;
        items.push_back(item);
      }
  if (items.empty()) {
    std::fprintf(stderr, "error: the filter leaves no case\n");
    return 2;
  }
  if (bench)
    return benchAll(items, byStage);
  if (oneProcess)
    runFrom(0, items, *shared);
  else if (!runAll(items, *shared))
    return 2;

  std::printf("%-20s %6s %6s  worst error: f32, bf16\n", "op", "runs",
              "failed");
  for (const auto &[name, index] : ops) {
    const Shared::Op &op = shared->ops[index];
    std::printf("%-20s %6d %6d  %.1e %.1e\n", name.c_str(), op.runs, op.failed,
                op.single, op.half);
  }
  std::printf("%zu variants of kernels, %d passed, %d failed, %.1f s\n",
              items.size(), shared->passed, shared->failed, now() - start);
  return shared->failed > 0 ||
         static_cast<size_t>(shared->passed) < items.size();
}

} // namespace
} // namespace qwen35::test

int main(int argc, char **argv) { return qwen35::test::main(argc, argv); }
