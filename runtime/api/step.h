#ifndef QWEN35_RUNTIME_API_STEP_H
#define QWEN35_RUNTIME_API_STEP_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

struct StepOptions {
  /// How the tasks of a launch reach the threads. Results never depend on it.
  enum class Tasks {
    Dynamic, // taken from a common counter: even load on a busy machine
    Static,  // the same range for the same thread every time: warm caches
  };

  int threads = 0; // with the caller; 0: as many as CPUs this process may use
  Tasks tasks = Tasks::Dynamic;
  /// Fill arenas with 0xFF bytes (NaN in every float type, -1 in integers): all
  /// of them at creation, and act again before every program. For tests.
  bool poison = false;
  bool profile = false;  // measure the time of every launch, see profile()
  uint64_t maxBytes = 0; // refuse larger plans; 0: what the machine has free
};

/// Time of one kind of kernel, summed over the runs since creation or reset.
struct OpTime {
  std::string op; // Kernel.op, or "memset"
  uint64_t calls = 0;
  double seconds = 0;
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
};

/// The programs of a bundle, ready to run: kernels loaded, arenas allocated,
/// threads started. One thread at a time may call into a Step.
///
/// One optimizer step over n microbatches is
///
///     run("begin");
///     for each microbatch i: fill the inputs and scalars,
///         run(i + 1 < n ? "accumulate" : "finish");
///
/// after which the outputs hold. Arenas start as zeros (unless poisoned): the
/// caller fills the weights and clears the optimizer's moments before the first
/// step; run() never touches a buffer that the plan does not.
///
/// Errors  Every function returns one sentence naming what was found and
///         expected. NotFound for an unknown name; InvalidArgument for a type
///         other than the buffer's and for what checkElfImage refuses;
///         FailedPrecondition for a CPU without a feature that the kernels
///         need; ResourceExhausted when the arenas do not fit.
class Step {
public:
  static absl::StatusOr<std::unique_ptr<Step>>
  create(std::shared_ptr<const BundleFile> bundle, const StepOptions &options);

  Step(const Step &) = delete;
  Step &operator=(const Step &) = delete;
  ~Step();

  const bundle::Bundle &message() const;
  int threads() const;

  bool hasProgram(absl::string_view program) const;
  /// Runs every entry of the program in order and returns when all is done.
  absl::Status run(absl::string_view program);

  /// Index of the buffer of that name.
  absl::StatusOr<uint32_t> findBuffer(absl::string_view name) const;
  /// All bytes of a buffer. `index` must be below `message().buffers_size()`.
  absl::Span<uint8_t> bytes(uint32_t index);
  absl::Span<const uint8_t> bytes(uint32_t index) const;
  /// A buffer's elements, row-major. T is float (F32), double (F64), int32_t,
  /// int64_t, uint8_t (U8) or uint16_t (the bits of BF16 or F16).
  template <typename T> absl::StatusOr<absl::Span<T>> buffer(uint32_t index);
  template <typename T>
  absl::StatusOr<absl::Span<T>> buffer(absl::string_view name);

  /// An input of the IoSignature: ids and labels [tokens], seq [words].
  absl::StatusOr<absl::Span<int32_t>> input(absl::string_view name);
  bool hasScalar(absl::string_view name) const;
  absl::Status setScalar(absl::string_view name, float value);
  bool hasOutput(absl::string_view name) const;
  absl::StatusOr<float> output(absl::string_view name) const;

  StepMemory memory() const;
  /// Sorted by time, longest first; empty unless StepOptions::profile.
  std::vector<OpTime> profile() const;
  void resetProfile();

private:
  class Impl;
  explicit Step(std::unique_ptr<Impl> impl);

  template <typename T> absl::Status checkType(uint32_t index) const;

  std::unique_ptr<Impl> impl;
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_API_STEP_H
