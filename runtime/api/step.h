#ifndef QWEN35_RUNTIME_API_STEP_H
#define QWEN35_RUNTIME_API_STEP_H

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qwen35 {

namespace comm {
class World;
}

struct StepOptions {
  /// How the tasks of a launch reach the threads. Results never depend on it.
  enum class Tasks {
    Dynamic, // taken from a common counter: even load on a busy machine
    Static,  // the same range for the same thread every time: warm caches
  };

  /// "auto", "cpu" or "cuda"; see selectPlan.
  std::string target = "auto";
  int threads = 0; // with the caller; 0: as many as CPUs this process may use
  Tasks tasks = Tasks::Dynamic;
  /// Fill arenas with 0xFF bytes (NaN in every float type, -1 in integers): all
  /// of them at creation, and act again before every program. For tests.
  bool poison = false;
  /// Measure the time of every launch, see profile(). On a GPU: eager.
  bool profile = false;
  uint64_t maxBytes = 0; // refuse larger plans; 0: what the machine has free
  /// All ranks of a bundle of several, of which this is one; creating a Step
  /// and every run() are collective over it. Must outlive the Step. Null: one.
  comm::World *world = nullptr;
  // GPU:
  int device = 0;     // of the machine's GPUs that can run the plan
  /// Collectives through memory of the host and the world as it is, instead of
  /// over NCCL: for ranks that share a GPU.
  bool overHost = false;
  bool eager = false; // launch by launch instead of one graph per step
  bool sync = false;  // eager, and wait after every launch: faults have names
};

/// Time of one kind of kernel, summed over the runs since creation or reset.
struct OpTime {
  std::string op; // Kernel.op, or "memset"
  uint64_t calls = 0;
  double seconds = 0;
  // GPU:
  double flops = 0; // Kernel.flops, summed
  double bytes = 0; // Kernel.bytes, summed; extents of arguments without them
  double bound = 0; // seconds that peak FLOP/s or bandwidth allow, summed
  std::string symbol; // of one kernel; empty in sums over a class
};

/// One launch on a GPU, in seconds from the start of its step.
struct TraceEvent {
  std::string name; // Launch.tag
  std::string op, symbol;
  double start = 0, seconds = 0, flops = 0, bytes = 0;
  int64_t grid = 0;
};

/// Bytes of memory that a Step holds.
struct StepMemory {
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
  };
  std::vector<Entry> arenas;     // as planned, in the bundle's order
  std::vector<Entry> categories; // sum over buffers; in act they share bytes
  uint64_t planned = 0;          // sum over arenas
  uint64_t mapped = 0;           // address space taken for them, page-rounded
  // GPU:
  uint64_t device = 0; // taken from the device since its context was made
  uint64_t deviceTotal = 0;
};

/// A GPU and what its data sheet promises: dense bf16 FLOP/s and bytes/s of
/// memory, 0 where the device is not known.
struct StepDevice {
  std::string name;
  double peakFlops = 0, peakBandwidth = 0;
};

/// What the graphs of a step are made of, and what became of them.
struct StepGraph {
  int64_t captures = 0; // one per number of rows
  int64_t launches = 0; // of graphs
  // The newest one:
  int64_t nodes = 0, kernels = 0, memsets = 0, copies = 0;
  int64_t products = 0;  // of the library: some of `kernels`
  double seconds = 0;    // capture, instantiation and upload
};

/// The plan of `bundle` that runs here, as a bundle of that plan alone.
///
/// `target` "cpu" and "cuda" ask for a plan of that kind. "auto" takes the
/// first CUDA plan for which the driver and a device of its architecture are
/// there, else the CPU plan. `why`, if given, gets one sentence when auto
/// passed over a CUDA plan.
///
/// Errors  NotFound for a kind that the bundle has not; FailedPrecondition or
///         Unavailable for a CUDA plan without driver or device.
absl::StatusOr<std::shared_ptr<const BundleFile>>
selectPlan(std::shared_ptr<const BundleFile> bundle, const std::string &target,
           std::string *why = nullptr);

/// The programs of a bundle, ready to run: kernels loaded, arenas allocated,
/// threads started or a device opened. One thread at a time may call into a
/// Step.
///
/// One optimizer step over n microbatches is
///
///     run("begin");
///     for each microbatch i: fill the inputs and scalars,
///         run(i + 1 < n ? "accumulate" : "finish");
///
/// after which the outputs hold; runStep does that, on a GPU as one graph.
/// Arenas start as zeros (unless poisoned): the caller fills the weights and
/// clears the optimizer's moments before the first step, and calls
/// weightsChanged(); run() never touches a buffer that the plan does not.
///
/// Errors  Every function returns one sentence naming what was found and
///         expected. NotFound for an unknown name; InvalidArgument for a type
///         other than the buffer's and for what checkElfImage refuses;
///         FailedPrecondition for a CPU without a feature that the kernels
///         need, a host view of memory that is the device's, or a world of
///         another size than the bundle's mesh; those of Communicator, of run;
///         ResourceExhausted when the arenas do not fit; Internal for a failed
///         call of the GPU driver, naming call, kernel and tag.
class Step {
public:
  /// Fills the inputs and scalars of one microbatch.
  using FillRow = absl::FunctionRef<absl::Status(int64_t row)>;

  static absl::StatusOr<std::unique_ptr<Step>>
  create(std::shared_ptr<const BundleFile> bundle, const StepOptions &options);

  Step(const Step &) = delete;
  Step &operator=(const Step &) = delete;
  virtual ~Step() = default;

  /// The bundle of the selected plan alone.
  const bundle::Bundle &message() const { return file->message(); }
  /// "cpu x86-64-v3", "cuda sm_90a on NVIDIA H200".
  virtual std::string targetText() const = 0;
  virtual int threads() const { return 1; }
  /// Whether buffers are host memory: bytes() and buffer() work.
  virtual bool hostMemory() const = 0;

  bool hasProgram(absl::string_view program) const;
  /// Runs every entry of the program in order and returns when all is done.
  virtual absl::Status run(absl::string_view program) = 0;
  /// One optimizer step. `fill(i)` is called for every row in order, and sees
  /// to it that input() and setScalar() got what row i needs; what it does not
  /// set is what the row before had.
  virtual absl::Status runStep(int64_t rows, FillRow fill);

  /// Whether runStep comes in three parts too, so that data of a step travel
  /// while the one before runs: stageStep, launchStep, finishStep. A step may
  /// be staged at any time, and again before its launch (the last time counts);
  /// launched when the one before is finished. Outputs hold after finishStep.
  virtual bool overlaps() const { return false; }
  virtual absl::Status stageStep(int64_t rows, FillRow fill);
  virtual absl::Status launchStep();
  virtual absl::Status finishStep();

  /// Index of the buffer of that name.
  absl::StatusOr<uint32_t> findBuffer(absl::string_view name) const;
  /// Copies `bytes` of a buffer out or in, from byte `offset` on.
  /// Errors  InvalidArgument past the end of the buffer.
  absl::Status read(uint32_t index, uint64_t offset, absl::Span<uint8_t> bytes);
  absl::Status write(uint32_t index, uint64_t offset,
                     absl::Span<const uint8_t> bytes);
  /// Sets every byte of a buffer.
  virtual absl::Status fillBuffer(uint32_t index, uint8_t value) = 0;
  /// To be called after weights were written: runs the program "refresh", which
  /// brings copies of them up to date, where the plan has one.
  absl::Status weightsChanged();

  /// All bytes of a buffer, host memory only: empty otherwise. `index` must be
  /// below `message().buffers_size()`.
  absl::Span<uint8_t> bytes(uint32_t index) { return hostBytes(index); }
  absl::Span<const uint8_t> bytes(uint32_t index) const {
    return hostBytes(index);
  }
  /// A buffer's elements, row-major, host memory only. T is float (F32), double
  /// (F64), int32_t, int64_t, uint8_t (U8) or uint16_t (the bits of BF16 or
  /// F16).
  template <typename T> absl::StatusOr<absl::Span<T>> buffer(uint32_t index);
  template <typename T>
  absl::StatusOr<absl::Span<T>> buffer(absl::string_view name);

  /// An input of the IoSignature: ids and labels [tokens], seq [words]. The
  /// span holds until the next run.
  absl::StatusOr<absl::Span<int32_t>> input(absl::string_view name);
  bool hasScalar(absl::string_view name) const;
  absl::Status setScalar(absl::string_view name, float value);
  bool hasOutput(absl::string_view name) const;
  absl::StatusOr<float> output(absl::string_view name) const;

  virtual StepMemory memory() const;
  /// Sorted by time, longest first; empty unless StepOptions::profile.
  virtual std::vector<OpTime> profile() const { return {}; }
  /// The same for every kernel; GPU only.
  virtual std::vector<OpTime> kernelProfile() const { return {}; }
  /// The launches of the newest step that was measured; GPU only.
  virtual std::vector<TraceEvent> trace() const { return {}; }
  virtual void resetProfile() {}
  /// GPU: steps from now on are measured, launch by launch, or captured.
  virtual void setProfiling(bool on) {}
  /// Zeros on a CPU and when eager.
  virtual StepGraph graph() const { return {}; }
  int64_t captures() const { return graph().captures; }
  /// Kernels, products and memsets that the programs of a step over `rows` rows
  /// launch, as the plan lists them.
  int64_t launchesPerStep(int64_t rows) const;
  /// The GPU that it runs on.
  virtual std::optional<StepDevice> device() const { return std::nullopt; }
  /// Lines about what was decided at load, for the head of a run's report.
  virtual std::vector<std::string> notes() const { return {}; }

protected:
  /// The program of row `row` of a step of `rows` rows, and whether `begin` must
  /// clear the sums before the first.
  const char *programOf(int64_t row, int64_t rows) const;
  bool clearsSums(int64_t rows) const;

  explicit Step(std::shared_ptr<const BundleFile> bundle);

  const bundle::Buffer &bufferOf(uint32_t index) const {
    return message().buffers(static_cast<int>(index));
  }
  virtual absl::Span<uint8_t> hostBytes(uint32_t index) const = 0;
  virtual absl::Status copyOut(uint32_t index, uint64_t offset,
                               absl::Span<uint8_t> bytes) = 0;
  virtual absl::Status copyIn(uint32_t index, uint64_t offset,
                              absl::Span<const uint8_t> bytes) = 0;
  /// Host memory that stands for an input, scalar or output buffer.
  virtual uint8_t *ioAddress(uint32_t index) const = 0;

  std::shared_ptr<const BundleFile> file;
  std::map<std::string, uint32_t> buffers, inputs, scalars, outputs;

private:
  template <typename T> absl::Status checkType(uint32_t index) const;
  absl::Status checkRange(uint32_t index, uint64_t offset,
                          uint64_t bytes) const;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_API_STEP_H
