#ifndef QWEN35_RUNTIME_STEP_CUDA_STEP_H
#define QWEN35_RUNTIME_STEP_CUDA_STEP_H

#include "runtime/api/step.h"

namespace qwen35 {

/// The Step of a bundle whose one plan is for CUDA devices: cubins and library
/// products on one stream. runStep is one graph, captured once per number of
/// rows, unless StepOptions say eager, sync or profile.
absl::StatusOr<std::unique_ptr<Step>>
createCudaStep(std::shared_ptr<const BundleFile> plan,
               const StepOptions &options);

} // namespace qwen35

#endif // QWEN35_RUNTIME_STEP_CUDA_STEP_H
