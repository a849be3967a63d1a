#ifndef QWEN35_CODEGEN_CUDA_COST_H
#define QWEN35_CODEGEN_CUDA_COST_H

#include "codegen/cuda/Kernel.h"

namespace qwen35::codegen::cuda {

/// What a launch of a stage cannot do without, for profiles: a bound of its
/// time is the larger of flops over the peak and bytes over the bandwidth.
///
/// flops  Of the products that the stage makes, recomputed ones included. A
///        packed row counts as one document: attention of several does less.
/// bytes  Every operand that the stage touches, once for reading and once for
///        writing; what passes between stages through the workspace counts in
///        both. Of tables, only the rows that are looked up.
struct StageCost {
  double flops = 0, bytes = 0;
};

/// A rule by the stage's function where one is known. Otherwise the first stage
/// touches all operands and later ones the workspace, and flops are what the
/// stage says.
StageCost costOf(const KernelSpec &spec, const KernelPlan &plan,
                 unsigned stage);

StageCost costOf(const GemmStage &product);

} // namespace qwen35::codegen::cuda

#endif // QWEN35_CODEGEN_CUDA_COST_H
