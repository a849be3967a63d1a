#ifndef QWEN35_RUNTIME_STEP_CPU_STEP_H
#define QWEN35_RUNTIME_STEP_CPU_STEP_H

#include "runtime/api/step.h"

namespace qwen35 {

/// The Step of a bundle whose one plan is for CPUs: kernels of a shared object,
/// run by a pool of threads on memory of the host.
absl::StatusOr<std::unique_ptr<Step>>
createCpuStep(std::shared_ptr<const BundleFile> plan,
              const StepOptions &options);

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_CPU_STEP_H
