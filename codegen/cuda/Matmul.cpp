#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

void registerMatmulKernels() {}

} // namespace qwen35::codegen::cuda
