#include "runtime/step/cuda_step.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/format_bytes.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/ranks.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "runtime/step/device_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace qwen35 {
namespace {

using namespace cuda;

constexpr uint64_t kTransfer = uint64_t(16) << 20; // bytes copied at a time
constexpr uint64_t kSlotAlign = 256;

/// One plan entry with its addresses resolved.
struct Operation {
  enum class Kind { Kernel, Gemm, Memset, Collective, Wait };

  Kind kind = Kind::Kernel;
  /// Index in the plan, or of the collective, also of the one waited for.
  uint32_t kernel = 0;
  const bundle::Launch *launch = nullptr;
  const bundle::Collective *collective = nullptr;
  unsigned grid = 0;
  std::vector<DevicePtr> args;
  /// Addresses of args. A kernel that takes them as one struct reads all from
  /// the first: they follow each other.
  std::vector<void *> parameters;
  uint8_t value = 0;  // memset
  uint64_t bytes = 0; // memset, or extents of the arguments
  uint32_t opClass = 0;
};

struct Program {
  std::string name;
  std::vector<Operation> operations;
};

/// What the plan says about a kernel, made ready.
struct Kernel {
  Function function = nullptr;
  unsigned threads = 0, sharedBytes = 0, cluster = 1;
  std::unique_ptr<GemmPlan> gemm;
};

/// Neighbouring io buffers of one kind, which travel together.
struct IoRange {
  uint32_t arena;
  uint64_t begin, end; // bytes of the arena
  uint64_t slot;       // where they lie in the host's and the stage's slots
};

/// A set of io buffers with a host image.
struct IoSet {
  std::vector<IoRange> ranges;
  uint64_t bytes = 0;
  Memory host;
};

/// Everything that depends on the number of microbatches of a step.
struct Rows {
  Memory pinned[2], staged[2]; // by parity of the step
  Event uploaded[2] = {};
  Memory slots; // what the graph reads
  GraphExec exec = nullptr;
};

class CudaStep final : public Step {
public:
  CudaStep(std::shared_ptr<const BundleFile> bundle, const StepOptions &options)
      : Step(std::move(bundle)), options(options) {}

  ~CudaStep() override {
    if (!gpu)
      return;
    gpu->use().IgnoreError();
    for (Stream each : {stream, upload})
      if (each)
        api->streamSynchronize(each);
    for (auto &[count, rows] : rowSets) {
      if (rows.exec)
        api->graphExecDestroy(rows.exec);
      for (Event event : rows.uploaded)
        if (event)
          api->eventDestroy(event);
    }
    events.push_back(origin);
    for (Event event : events)
      if (event)
        api->eventDestroy(event);
    kernels.clear();
    if (handle)
      blas->destroy(handle);
    for (auto &[blob, module] : modules)
      api->moduleUnload(module);
    exchanges.close();
    if (upload)
      api->streamDestroy(upload);
    if (stream)
      api->streamDestroy(stream);
  }

  absl::Status init() {
    absl::StatusOr<std::shared_ptr<GpuDevice>> opened =
        GpuDevice::open(message().targets(0).arch(), options.device);
    QWEN35_RETURN_IF_ERROR(opened.status());
    gpu = *std::move(opened);
    api = &gpu->driver();
    uint64_t total = 0;
    QWEN35_RETURN_IF_ERROR(gpu->memory(freeAtStart, total));
    QWEN35_RETURN_IF_ERROR(api->check(
        api->streamCreate(&stream, kStreamNonBlocking), "cuStreamCreate"));
    QWEN35_RETURN_IF_ERROR(api->check(
        api->streamCreate(&upload, kStreamNonBlocking), "cuStreamCreate"));
    QWEN35_RETURN_IF_ERROR(allocate());
    QWEN35_RETURN_IF_ERROR(loadKernels());
    QWEN35_RETURN_IF_ERROR(
        exchanges.init(*api, message(), options.world, stream,
                       options.overHost ? nullptr : gpu));
    if (exchanges.overHost())
      loadNotes.push_back("ranks   collectives go through memory of the host, "
                          "launch by launch");
    if (exchanges.overNccl())
      loadNotes.push_back(absl::StrCat("ranks   collectives go over NCCL",
                                       exchanges.beside() ? ", beside kernels"
                                                          : ""));
    resolve();
    QWEN35_RETURN_IF_ERROR(tellRank());
    profiling = options.profile;
    kernelTimes.resize(kernels.size() + 2);
    peaks = GpuDevice::peaksOf(gpu->name());
    QWEN35_RETURN_IF_ERROR(loadGemms());
    QWEN35_RETURN_IF_ERROR(prepareIo());
    if (options.poison) {
      for (size_t i = 0; i < arenas.size(); ++i)
        QWEN35_RETURN_IF_ERROR(setArena(i, 0xff));
      QWEN35_RETURN_IF_ERROR(tellRank());
    }
    return synchronize("the end of loading");
  }

  std::string targetText() const override {
    return absl::StrCat("cuda ", message().targets(0).arch(), " on ",
                        gpu->name(), eager() ? ", eager" : "");
  }
  bool hostMemory() const override { return false; }

  absl::Status run(absl::string_view name) override {
    QWEN35_RETURN_IF_ERROR(gpu->use());
    const Program *program = find(name);
    if (!program)
      return absl::NotFoundError(absl::StrCat(
          "the bundle has no program named ", quoted(std::string(name)),
          ", it has ",
          absl::StrJoin(programs, ", ",
                        [](std::string *out, const Program &entry) {
                          out->append(entry.name);
                        })));
    for (const IoRange &range : in.ranges)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyHtoDAsync(address(range), in.host.host() + range.slot,
                               range.end - range.begin, stream),
          "cuMemcpyHtoDAsync_v2 of the inputs"));
    QWEN35_RETURN_IF_ERROR(enqueue(*program));
    QWEN35_RETURN_IF_ERROR(fetchOutputs());
    QWEN35_RETURN_IF_ERROR(synchronize(absl::StrCat("program ", name)));
    return profiling ? collectTimes(*program) : absl::OkStatus();
  }

  absl::Status runStep(int64_t count, FillRow fill) override {
    if (eager()) {
      beginsTrace = true;
      absl::Status status = Step::runStep(count, fill);
      inStep = false;
      return status;
    }
    QWEN35_RETURN_IF_ERROR(stageStep(count, fill));
    QWEN35_RETURN_IF_ERROR(launchStep());
    return finishStep();
  }

  bool overlaps() const override { return !eager(); }

  absl::Status stageStep(int64_t count, FillRow fill) override {
    QWEN35_RETURN_IF_ERROR(gpu->use());
    absl::StatusOr<Rows *> made = rowSet(count);
    QWEN35_RETURN_IF_ERROR(made.status());
    Rows &rows = **made;
    // The slots of the other parity are those of the step under way. These here
    // are free, but for an upload that is made again.
    int parity = static_cast<int>(steps % 2);
    if (staged != 0)
      QWEN35_RETURN_IF_ERROR(api->check(api->streamSynchronize(upload),
                                        "waiting for an earlier batch"));
    for (int64_t i = 0; i < count; ++i) {
      QWEN35_RETURN_IF_ERROR(fill(i));
      std::memcpy(rows.pinned[parity].host() + i * in.bytes, in.host.host(),
                  in.bytes);
    }
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memcpyHtoDAsync(rows.staged[parity].device(),
                             rows.pinned[parity].host(),
                             static_cast<uint64_t>(count) * in.bytes, upload),
        "cuMemcpyHtoDAsync_v2 of a batch"));
    QWEN35_RETURN_IF_ERROR(api->check(
        api->eventRecord(rows.uploaded[parity], upload), "cuEventRecord"));
    staged = count;
    return absl::OkStatus();
  }

  absl::Status launchStep() override {
    if (staged == 0)
      return absl::FailedPreconditionError("no step is staged");
    QWEN35_RETURN_IF_ERROR(gpu->use());
    int64_t count = std::exchange(staged, 0);
    Rows &rows = rowSets[count];
    int parity = static_cast<int>(steps++ % 2);
    QWEN35_RETURN_IF_ERROR(
        api->check(api->streamWaitEvent(stream, rows.uploaded[parity], 0),
                   "cuStreamWaitEvent"));
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memcpyDtoDAsync(rows.slots.device(), rows.staged[parity].device(),
                             static_cast<uint64_t>(count) * in.bytes, stream),
        "cuMemcpyDtoDAsync_v2 of a batch"));
    if (!rows.exec) {
      QWEN35_RETURN_IF_ERROR(capture(rows, count));
      QWEN35_RETURN_IF_ERROR(exchanges.compare());
    }
    QWEN35_RETURN_IF_ERROR(
        api->check(api->graphLaunch(rows.exec, stream), "cuGraphLaunch"));
    ++graphs.launches;
    return fetchOutputs();
  }

  absl::Status finishStep() override {
    QWEN35_RETURN_IF_ERROR(gpu->use());
    return synchronize("the captured step");
  }

  absl::Status fillBuffer(uint32_t index, uint8_t value) override {
    QWEN35_RETURN_IF_ERROR(gpu->use());
    QWEN35_RETURN_IF_ERROR(api->check(
        api->memsetD8Async(address(index), value, bufferOf(index).bytes(),
                           stream),
        absl::StrCat("cuMemsetD8Async of buffer ", bufferOf(index).name())));
    return synchronize(absl::StrCat("filling ", bufferOf(index).name()));
  }

  StepMemory memory() const override {
    StepMemory result = Step::memory();
    for (const Memory &arena : arenas)
      result.mapped += arena.bytes();
    uint64_t free = 0, total = 0;
    if (gpu->use().ok() && gpu->memory(free, total).ok()) {
      result.device = free < freeAtStart ? freeAtStart - free : 0;
      result.deviceTotal = total;
    }
    return result;
  }

  std::vector<OpTime> profile() const override { return longestFirst(times); }
  std::vector<OpTime> kernelProfile() const override {
    return longestFirst(kernelTimes);
  }
  std::vector<TraceEvent> trace() const override { return launches; }

  void resetProfile() override {
    for (std::vector<OpTime> *list : {&times, &kernelTimes})
      for (OpTime &time : *list) {
        OpTime cleared{time.op};
        cleared.symbol = time.symbol;
        time = cleared;
      }
    launches.clear();
  }

  void setProfiling(bool on) override { profiling = on; }

  StepGraph graph() const override { return graphs; }
  std::optional<StepDevice> device() const override {
    return StepDevice{gpu->name(), gpu->peakFlops(), gpu->peakBandwidth()};
  }
  std::vector<std::string> notes() const override { return loadNotes; }

protected:
  absl::Span<uint8_t> hostBytes(uint32_t) const override { return {}; }

  absl::Status copyOut(uint32_t index, uint64_t offset,
                       absl::Span<uint8_t> bytes) override {
    QWEN35_RETURN_IF_ERROR(transferReady());
    for (uint64_t at = 0; at < bytes.size(); at += kTransfer) {
      uint64_t piece = std::min<uint64_t>(kTransfer, bytes.size() - at);
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyDtoHAsync(transfer.host(), address(index) + offset + at,
                               piece, stream),
          absl::StrCat("cuMemcpyDtoHAsync_v2 of buffer ",
                       bufferOf(index).name())));
      QWEN35_RETURN_IF_ERROR(
          synchronize(absl::StrCat("reading ", bufferOf(index).name())));
      std::memcpy(bytes.data() + at, transfer.host(), piece);
    }
    return absl::OkStatus();
  }

  absl::Status copyIn(uint32_t index, uint64_t offset,
                      absl::Span<const uint8_t> bytes) override {
    QWEN35_RETURN_IF_ERROR(transferReady());
    for (uint64_t at = 0; at < bytes.size(); at += kTransfer) {
      uint64_t piece = std::min<uint64_t>(kTransfer, bytes.size() - at);
      std::memcpy(transfer.host(), bytes.data() + at, piece);
      QWEN35_RETURN_IF_ERROR(
          api->check(api->memcpyHtoDAsync(address(index) + offset + at,
                                          transfer.host(), piece, stream),
                     absl::StrCat("cuMemcpyHtoDAsync_v2 of buffer ",
                                  bufferOf(index).name())));
      QWEN35_RETURN_IF_ERROR(
          synchronize(absl::StrCat("writing ", bufferOf(index).name())));
    }
    return absl::OkStatus();
  }

  uint8_t *ioAddress(uint32_t index) const override {
    const bundle::Buffer &buffer = bufferOf(index);
    for (const IoSet *set : {&in, &out})
      for (const IoRange &range : set->ranges)
        if (range.arena == buffer.arena() && range.begin <= buffer.offset() &&
            buffer.offset() < range.end)
          return set->host.host() + range.slot + buffer.offset() - range.begin;
    return nullptr; // only asked for buffers of the signature
  }

private:
  bool eager() const {
    return options.eager || options.sync || profiling || exchanges.overHost();
  }

  static std::vector<OpTime> longestFirst(const std::vector<OpTime> &list) {
    std::vector<OpTime> result;
    for (const OpTime &time : list)
      if (time.calls != 0)
        result.push_back(time);
    std::sort(result.begin(), result.end(),
              [](const OpTime &a, const OpTime &b) {
                return std::tie(b.seconds, a.op, a.symbol) <
                       std::tie(a.seconds, b.op, b.symbol);
              });
    return result;
  }

  DevicePtr address(uint32_t index) const {
    const bundle::Buffer &entry = bufferOf(index);
    return arenas[entry.arena()].device() + entry.offset();
  }
  DevicePtr address(const IoRange &range) const {
    return arenas[range.arena].device() + range.begin;
  }

  const Program *find(absl::string_view name) const {
    for (const Program &program : programs)
      if (program.name == name)
        return &program;
    return nullptr;
  }

  absl::Status synchronize(absl::string_view what) {
    return api->check(api->streamSynchronize(stream),
                      absl::StrCat("waiting for ", what));
  }

  absl::Status allocate() {
    uint64_t total = 0, free = 0, all = 0;
    for (const bundle::Arena &arena : message().arenas())
      total += arena.bytes();
    QWEN35_RETURN_IF_ERROR(gpu->memory(free, all));
    uint64_t limit = options.maxBytes ? options.maxBytes : free;
    if (total > limit)
      return absl::ResourceExhaustedError(absl::StrCat(
          "the bundle's arenas need ", formatBytes(total), " (",
          absl::StrJoin(message().arenas(), ", ",
                        [](std::string *out, const bundle::Arena &arena) {
                          absl::StrAppend(out, arena.name(), " ",
                                          formatBytes(arena.bytes()));
                        }),
          "), but ",
          options.maxBytes ? "the limit is "
                           : absl::StrCat(gpu->name(), " has "),
          formatBytes(limit), options.maxBytes ? "" : " free"));
    for (const bundle::Arena &arena : message().arenas()) {
      Memory memory;
      QWEN35_RETURN_IF_ERROR(memory.allocateDevice(
          *api, arena.bytes(), absl::StrCat("arena ", arena.name())));
      arenas.push_back(std::move(memory));
      QWEN35_RETURN_IF_ERROR(setArena(arenas.size() - 1, 0));
    }
    return absl::OkStatus();
  }

  absl::Status setArena(size_t index, uint8_t value) {
    const Memory &arena = arenas[index];
    if (arena.bytes() == 0)
      return absl::OkStatus();
    return api->check(
        api->memsetD8Async(arena.device(), value, arena.bytes(), stream),
        absl::StrCat("cuMemsetD8Async of arena ",
                     message().arenas(static_cast<int>(index)).name()));
  }

  absl::Status loadKernels() {
    for (const bundle::Kernel &source : message().kernels()) {
      Kernel kernel;
      if (!source.has_gemm())
        QWEN35_RETURN_IF_ERROR(loadKernel(source, kernel));
      kernels.push_back(std::move(kernel));
    }
    return absl::OkStatus();
  }

  absl::Status loadKernel(const bundle::Kernel &source, Kernel &kernel) {
    auto it = modules.find(source.blob());
    if (it == modules.end()) {
      Module module = nullptr;
      QWEN35_RETURN_IF_ERROR(api->check(
          api->moduleLoadData(&module, file->blob(source.blob()).data()),
          absl::StrCat("cuModuleLoadData of the cubin of kernel ",
                       source.symbol())));
      it = modules.emplace(source.blob(), module).first;
    }
    QWEN35_RETURN_IF_ERROR(api->check(
        api->moduleGetFunction(&kernel.function, it->second,
                               source.symbol().c_str()),
        absl::StrCat("cuModuleGetFunction of kernel ", source.symbol())));
    // Loaded now: a capture is no time for it.
    QWEN35_RETURN_IF_ERROR(
        api->check(api->funcLoad(kernel.function),
                   absl::StrCat("cuFuncLoad of kernel ", source.symbol())));
    kernel.threads = source.threads();
    kernel.sharedBytes = static_cast<unsigned>(source.shared_bytes());
    kernel.cluster = std::max(1u, source.cluster());
    if (source.shared_bytes() > gpu->sharedOptin())
      return absl::FailedPreconditionError(
          absl::StrCat("kernel ", source.symbol(), " needs ",
                       source.shared_bytes(), " bytes of shared memory, ",
                       gpu->name(), " gives a block ", gpu->sharedOptin()));
    if (kernel.sharedBytes > 0)
      QWEN35_RETURN_IF_ERROR(
          setAttribute(source, kernel, kFunctionMaxDynamicShared,
                       static_cast<int>(kernel.sharedBytes)));
    if (kernel.cluster > 8)
      QWEN35_RETURN_IF_ERROR(
          setAttribute(source, kernel, kFunctionNonPortableCluster, 1));
    return absl::OkStatus();
  }

  absl::Status setAttribute(const bundle::Kernel &source, const Kernel &kernel,
                            int attribute, int value) {
    return api->check(
        api->funcSetAttribute(kernel.function, attribute, value),
        absl::StrCat("cuFuncSetAttribute of kernel ", source.symbol()));
  }

  uint32_t opClass(const std::string &name) {
    auto [it, fresh] = ops.emplace(name, static_cast<uint32_t>(times.size()));
    if (fresh)
      times.push_back({name});
    return it->second;
  }

  /// Turns indices into addresses, once.
  void resolve() {
    std::map<uint64_t, uint32_t> numbers; // of collectives, by sequence
    for (const bundle::Program &source : message().programs()) {
      Program program;
      program.name = source.name();
      for (const bundle::PlanEntry &entry : source.entries()) {
        Operation operation;
        if (entry.has_wait()) {
          operation.kind = Operation::Kind::Wait;
          operation.kernel = numbers.at(entry.wait().sequence());
        } else if (entry.has_memset()) {
          uint32_t buffer = entry.memset().buffer();
          operation.kind = Operation::Kind::Memset;
          operation.args = {address(buffer)};
          operation.value = static_cast<uint8_t>(entry.memset().value());
          operation.bytes = bufferOf(buffer).bytes();
          operation.opClass = opClass("memset");
        } else if (entry.has_collective()) {
          operation.kind = Operation::Kind::Collective;
          operation.collective = &entry.collective();
          operation.kernel =
              exchanges.add(entry.collective(), [&](const bundle::Arg &arg) {
                return address(arg.buffer()) + arg.offset();
              });
          numbers[entry.collective().sequence()] = operation.kernel;
          for (const bundle::Collective::Part &part :
               entry.collective().parts())
            operation.bytes += part.send().bytes() + part.receive().bytes();
          operation.opClass = opClass(kindName(entry.collective().kind()));
        } else {
          const bundle::Launch &launch = entry.launch();
          const bundle::Kernel &kernel =
              message().kernels(static_cast<int>(launch.kernel()));
          operation.kind = kernel.has_gemm() ? Operation::Kind::Gemm
                                             : Operation::Kind::Kernel;
          operation.kernel = launch.kernel();
          operation.launch = &launch;
          operation.grid = static_cast<unsigned>(launch.grid());
          for (const bundle::Arg &arg : launch.args()) {
            operation.args.push_back(address(arg.buffer()) + arg.offset());
            operation.bytes += arg.bytes();
          }
          operation.opClass = opClass(kernel.op());
        }
        program.operations.push_back(std::move(operation));
        Operation &placed = program.operations.back();
        for (DevicePtr &arg : placed.args)
          placed.parameters.push_back(&arg);
      }
      programs.push_back(std::move(program));
    }
  }

  /// The places of this rank in its groups, for kernels that ask.
  absl::Status tellRank() {
    for (const bundle::RankVar &entry : message().rank_vars()) {
      int32_t coordinate = exchanges.coordinate(entry.communicator());
      QWEN35_RETURN_IF_ERROR(
          copyIn(entry.buffer(), 0,
                 absl::MakeSpan(reinterpret_cast<const uint8_t *>(&coordinate),
                                sizeof(coordinate))));
    }
    return absl::OkStatus();
  }

  static DevicePtr operand(const Operation &operation,
                           const bundle::GemmOperand &operand) {
    return operation.args[operand.arg()] + operand.offset();
  }

  /// Descriptors and algorithms of the library's products, and one run of each
  /// on the zeroed arenas: what the library loads or sets up at a first call
  /// is done before a capture.
  absl::Status loadGemms() {
    std::map<uint32_t, GemmAlignment> alignments;
    std::map<uint32_t, const Operation *> examples;
    for (const Program &program : programs)
      for (const Operation &operation : program.operations) {
        if (operation.kind != Operation::Kind::Gemm)
          continue;
        const bundle::Gemm &gemm =
            message().kernels(static_cast<int>(operation.kernel)).gemm();
        GemmAlignment &alignment = alignments[operation.kernel];
        for (auto [field, bytes] : {std::pair(&gemm.a(), &alignment.a),
                                    std::pair(&gemm.b(), &alignment.b),
                                    std::pair(&gemm.d(), &alignment.d)}) {
          DevicePtr place = operand(operation, *field);
          while (place % *bytes != 0)
            *bytes /= 2;
        }
        examples[operation.kernel] = &operation;
      }
    if (alignments.empty())
      return absl::OkStatus();
    absl::StatusOr<const BlasLt *> loaded = BlasLt::load();
    QWEN35_RETURN_IF_ERROR(loaded.status());
    blas = *loaded;
    QWEN35_RETURN_IF_ERROR(
        blas->check(blas->create(&handle), "cublasLtCreate"));
    int64_t untuned = 0, refused = 0;
    for (const auto &[index, alignment] : alignments) {
      const bundle::Kernel &source = message().kernels(static_cast<int>(index));
      absl::StatusOr<std::unique_ptr<GemmPlan>> plan =
          GemmPlan::create(*blas, handle, source.gemm(), alignment);
      if (!plan.ok())
        return absl::Status(plan.status().code(),
                            absl::StrCat("kernel ", source.symbol(), ": ",
                                         plan.status().message()));
      if ((*plan)->source() == GemmPlan::Source::Heuristic) {
        ++untuned;
        refused += source.gemm().has_algo();
      }
      kernels[index].gemm = *std::move(plan);
      QWEN35_RETURN_IF_ERROR(enqueue(*examples[index]));
    }
    loadNotes.push_back(absl::StrCat(
        "gemm    ", alignments.size(), " products by cuBLASLt ",
        blas->getVersion(), "; ", untuned,
        " have no tuned algorithm and take the library's first answer",
        refused ? absl::StrCat(" (of them ", refused,
                               " whose algorithm this library refuses)")
                : ""));
    return synchronize("the first run of every product");
  }

  /// Groups buffers of one kind into ranges: whatever lies between two of them
  /// is nobody's.
  void group(const std::vector<uint32_t> &members, IoSet &set) {
    std::vector<uint32_t> order = members;
    std::set<uint32_t> mine(members.begin(), members.end());
    std::vector<uint32_t> all;
    for (int i = 0; i < message().buffers_size(); ++i)
      all.push_back(static_cast<uint32_t>(i));
    std::sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(bufferOf(a).arena(), bufferOf(a).offset()) <
             std::pair(bufferOf(b).arena(), bufferOf(b).offset());
    });
    bool extend = false;
    for (uint32_t index : all) {
      const bundle::Buffer &buffer = bufferOf(index);
      if (!mine.count(index)) {
        extend = false;
        continue;
      }
      uint64_t end = buffer.offset() + buffer.bytes();
      if (extend && set.ranges.back().arena == buffer.arena())
        set.ranges.back().end = end;
      else
        set.ranges.push_back({buffer.arena(), buffer.offset(), end, 0});
      extend = true;
    }
    for (IoRange &range : set.ranges) {
      range.slot = set.bytes;
      set.bytes +=
          (range.end - range.begin + kSlotAlign - 1) / kSlotAlign * kSlotAlign;
    }
  }

  absl::Status prepareIo() {
    std::vector<uint32_t> members;
    for (const auto *list : {&inputs, &scalars})
      for (const auto &[name, index] : *list)
        members.push_back(index);
    group(members, in);
    members.clear();
    for (const auto &[name, index] : outputs)
      members.push_back(index);
    group(members, out);
    for (IoSet *set : {&in, &out}) {
      QWEN35_RETURN_IF_ERROR(
          set->host.allocateHost(*api, set->bytes, "inputs and outputs"));
      std::memset(set->host.host(), options.poison ? 0xff : 0, set->bytes);
    }
    return absl::OkStatus();
  }

  absl::Status transferReady() {
    QWEN35_RETURN_IF_ERROR(gpu->use());
    return transfer.bytes() != 0
               ? absl::OkStatus()
               : transfer.allocateHost(*api, kTransfer, "copies");
  }

  absl::StatusOr<Rows *> rowSet(int64_t count) {
    Rows &rows = rowSets[count];
    if (rows.slots.bytes() != 0)
      return &rows;
    uint64_t bytes = static_cast<uint64_t>(count) * in.bytes;
    for (int parity = 0; parity < 2; ++parity) {
      QWEN35_RETURN_IF_ERROR(
          rows.pinned[parity].allocateHost(*api, bytes, "batches"));
      QWEN35_RETURN_IF_ERROR(
          rows.staged[parity].allocateDevice(*api, bytes, "batches"));
      if (!rows.uploaded[parity])
        QWEN35_RETURN_IF_ERROR(api->check(
            api->eventCreate(&rows.uploaded[parity], kEventDisableTiming),
            "cuEventCreate"));
    }
    QWEN35_RETURN_IF_ERROR(rows.slots.allocateDevice(*api, bytes, "batches"));
    return &rows;
  }

  /// Records the whole step of `count` microbatches as one graph.
  absl::Status capture(Rows &rows, int64_t count) {
    std::chrono::steady_clock::time_point start =
        std::chrono::steady_clock::now();
    products = 0;
    QWEN35_RETURN_IF_ERROR(
        api->check(api->streamBeginCapture(stream, kCaptureThreadLocal),
                   "cuStreamBeginCapture_v2"));
    absl::Status recorded = record(rows, count);
    Graph graph = nullptr;
    Result ended = api->streamEndCapture(stream, &graph);
    if (recorded.ok())
      recorded = api->check(ended, "cuStreamEndCapture");
    StepGraph made;
    if (recorded.ok())
      recorded = countNodes(graph, made);
    if (recorded.ok())
      recorded = api->check(api->graphInstantiate(&rows.exec, graph, 0),
                            absl::StrCat("cuGraphInstantiateWithFlags of ",
                                         made.nodes, " nodes"));
    if (graph)
      api->graphDestroy(graph);
    QWEN35_RETURN_IF_ERROR(recorded);
    QWEN35_RETURN_IF_ERROR(
        api->check(api->graphUpload(rows.exec, stream), "cuGraphUpload"));
    made.captures = graphs.captures + 1;
    made.launches = graphs.launches;
    made.products = products;
    made.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    graphs = made;
    return absl::OkStatus();
  }

  absl::Status countNodes(Graph graph, StepGraph &made) {
    size_t count = 0;
    QWEN35_RETURN_IF_ERROR(api->check(
        api->graphGetNodes(graph, nullptr, &count), "cuGraphGetNodes"));
    std::vector<GraphNode> nodes(count);
    if (count != 0)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->graphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes"));
    made.nodes = static_cast<int64_t>(count);
    for (GraphNode node : nodes) {
      int type = -1;
      QWEN35_RETURN_IF_ERROR(
          api->check(api->graphNodeGetType(node, &type), "cuGraphNodeGetType"));
      made.kernels += type == kNodeKernel;
      made.memsets += type == kNodeMemset;
      made.copies += type == kNodeMemcpy;
    }
    return absl::OkStatus();
  }

  absl::Status record(const Rows &rows, int64_t count) {
    if (clearsSums(count))
      QWEN35_RETURN_IF_ERROR(enqueue(*find("begin")));
    for (int64_t i = 0; i < count; ++i) {
      for (const IoRange &range : in.ranges)
        QWEN35_RETURN_IF_ERROR(api->check(
            api->memcpyDtoDAsync(
                address(range), rows.slots.device() + i * in.bytes + range.slot,
                range.end - range.begin, stream),
            "cuMemcpyDtoDAsync_v2 of a microbatch"));
      QWEN35_RETURN_IF_ERROR(enqueue(*find(programOf(i, count))));
    }
    return absl::OkStatus();
  }

  absl::Status fetchOutputs() {
    for (const IoRange &range : out.ranges)
      QWEN35_RETURN_IF_ERROR(api->check(
          api->memcpyDtoHAsync(out.host.host() + range.slot, address(range),
                               range.end - range.begin, stream),
          "cuMemcpyDtoHAsync_v2 of the outputs"));
    return absl::OkStatus();
  }

  absl::Status enqueue(const Program &program) {
    if (options.poison)
      for (int i = 0; i < message().arenas_size(); ++i)
        if (message().arenas(i).name() == "act")
          QWEN35_RETURN_IF_ERROR(setArena(static_cast<size_t>(i), 0xff));
    if (profiling) {
      if (std::exchange(beginsTrace, false)) {
        inStep = true;
        launches.clear();
        QWEN35_RETURN_IF_ERROR(mark(origin));
      }
      QWEN35_RETURN_IF_ERROR(mark(0));
    }
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation &operation = program.operations[i];
      QWEN35_RETURN_IF_ERROR(enqueue(operation));
      if (profiling)
        QWEN35_RETURN_IF_ERROR(mark(i + 1));
      if (options.sync)
        if (absl::Status status = synchronize("the launch"); !status.ok())
          return absl::Status(status.code(),
                              absl::StrCat(describe(operation), " of program ",
                                           program.name, ": ",
                                           status.message()));
    }
    return absl::OkStatus();
  }

  /// "layers.3.mlp/matmul (kernel matmul_12)"
  std::string describe(const Operation &operation) const {
    if (operation.collective)
      return absl::StrCat(kindName(operation.collective->kind()), " ",
                          operation.collective->tag());
    if (operation.kind == Operation::Kind::Wait)
      return "the wait for a collective";
    if (!operation.launch)
      return "a memset";
    return absl::StrCat(
        operation.launch->tag(), " (kernel ",
        message().kernels(static_cast<int>(operation.kernel)).symbol(), ")");
  }

  /// The one place where work is given to the device.
  absl::Status enqueue(const Operation &operation) {
    const Kernel *kernel =
        operation.launch ? &kernels[operation.kernel] : nullptr;
    switch (operation.kind) {
    case Operation::Kind::Memset:
      return api->check(api->memsetD8Async(operation.args[0], operation.value,
                                           operation.bytes, stream),
                        "cuMemsetD8Async of the plan");
    case Operation::Kind::Collective:
      QWEN35_RETURN_IF_ERROR(exchanges.start(operation.kernel));
      // Each operation alone is what is timed and synchronized.
      return operation.collective->async() && !profiling && !options.sync
                 ? absl::OkStatus()
                 : exchanges.wait(operation.kernel);
    case Operation::Kind::Wait:
      return exchanges.wait(operation.kernel);
    case Operation::Kind::Gemm: {
      ++products;
      const bundle::Gemm &gemm = kernel->gemm->gemm();
      BlasStatus status = kernel->gemm->run(
          operand(operation, gemm.a()), operand(operation, gemm.b()),
          operand(operation, gemm.d()),
          gemm.workspace_bytes() ? operand(operation, gemm.workspace()) : 0,
          stream);
      return status == kBlasSuccess
                 ? absl::OkStatus()
                 : blas->error(status, absl::StrCat("cublasLtMatmul of ",
                                                    describe(operation)));
    }
    case Operation::Kind::Kernel:
      break;
    }
    LaunchAttribute attributes[1] = {};
    LaunchConfig config = {};
    config.gridX = operation.grid;
    config.blockX = kernel->threads;
    config.gridY = config.gridZ = config.blockY = config.blockZ = 1;
    config.sharedBytes = kernel->sharedBytes;
    config.stream = stream;
    config.attributes = attributes;
    if (kernel->cluster > 1) {
      LaunchAttribute &attribute = attributes[config.attributeCount++];
      attribute.id = kLaunchCluster;
      attribute.value.cluster = {kernel->cluster, 1, 1};
    }
    Result result = api->launchKernelEx(
        &config, kernel->function,
        const_cast<void **>(operation.parameters.data()), nullptr);
    return result == kSuccess
               ? absl::OkStatus()
               : api->error(result, absl::StrCat("cuLaunchKernelEx of ",
                                                 describe(operation)));
  }

  absl::Status mark(size_t index) {
    while (events.size() <= index)
      events.push_back(nullptr);
    return mark(events[index]);
  }

  absl::Status mark(Event &event) {
    if (!event)
      QWEN35_RETURN_IF_ERROR(
          api->check(api->eventCreate(&event, kEventDefault), "cuEventCreate"));
    return api->check(api->eventRecord(event, stream), "cuEventRecord");
  }

  absl::StatusOr<double> secondsBetween(Event from, Event to) {
    float milliseconds = 0;
    QWEN35_RETURN_IF_ERROR(api->check(
        api->eventElapsedTime(&milliseconds, from, to), "cuEventElapsedTime"));
    return milliseconds * 1e-3;
  }

  absl::Status collectTimes(const Program &program) {
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation &operation = program.operations[i];
      if (operation.kind == Operation::Kind::Wait)
        continue;
      absl::StatusOr<double> seconds = secondsBetween(events[i], events[i + 1]);
      QWEN35_RETURN_IF_ERROR(seconds.status());
      const bundle::Kernel *kernel =
          operation.launch
              ? &message().kernels(static_cast<int>(operation.kernel))
              : nullptr;
      double flops = kernel ? kernel->flops() : 0;
      double bytes = kernel && kernel->bytes() > 0
                         ? kernel->bytes()
                         : static_cast<double>(operation.bytes);
      double bound = std::max(flops / peaks.flops, bytes / peaks.bandwidth);
      OpTime &whole = times[operation.opClass];
      const char *other = operation.collective ? "collective" : "memset";
      OpTime &single =
          kernelTimes[kernel ? operation.kernel
                             : kernels.size() + (operation.collective ? 1 : 0)];
      if (single.op.empty()) {
        single.op = kernel ? whole.op : other;
        single.symbol = kernel ? kernel->symbol() : other;
      }
      for (OpTime *time : {&whole, &single}) {
        ++time->calls;
        time->seconds += *seconds;
        time->flops += flops;
        time->bytes += bytes;
        // Of a device without known peaks nothing is said.
        if (peaks.flops > 0 && peaks.bandwidth > 0)
          time->bound += bound;
      }
      if (!inStep)
        continue;
      absl::StatusOr<double> start = secondsBetween(origin, events[i]);
      QWEN35_RETURN_IF_ERROR(start.status());
      launches.push_back({operation.launch       ? operation.launch->tag()
                          : operation.collective ? operation.collective->tag()
                                                 : "memset",
                          whole.op, single.symbol, *start, *seconds, flops,
                          bytes, operation.grid});
    }
    return absl::OkStatus();
  }

  StepOptions options;
  std::shared_ptr<GpuDevice> gpu; // outlives everything below
  const Driver *api = nullptr;
  const BlasLt *blas = nullptr;
  BlasHandle handle = nullptr;
  uint64_t freeAtStart = 0;
  Stream stream = nullptr, upload = nullptr;
  std::vector<Memory> arenas;
  std::map<uint32_t, Module> modules; // by blob
  std::vector<Kernel> kernels;
  DeviceExchanges exchanges;
  std::vector<Program> programs;
  IoSet in, out;
  Memory transfer;
  std::map<int64_t, Rows> rowSets;
  std::map<std::string, uint32_t> ops; // index into times
  std::vector<OpTime> times;
  std::vector<OpTime> kernelTimes; // by kernel, then memsets
  bool profiling = false;
  std::vector<Event> events;
  Event origin = nullptr; // where the trace begins
  bool beginsTrace = false, inStep = false;
  std::vector<TraceEvent> launches;
  DevicePeaks peaks;
  std::vector<std::string> loadNotes;
  StepGraph graphs;
  int64_t products = 0; // given to the library since the last capture began
  uint64_t steps = 0;   // launched
  int64_t staged = 0;   // rows of the step that is staged, or 0
};

} // namespace

absl::StatusOr<std::unique_ptr<Step>>
createCudaStep(std::shared_ptr<const BundleFile> plan,
               const StepOptions &options) {
  auto step = std::make_unique<CudaStep>(std::move(plan), options);
  QWEN35_RETURN_IF_ERROR(step->init());
  return std::unique_ptr<Step>(std::move(step));
}

} // namespace qwen35
