#ifndef QWEN35_RUNTIME_DUMP_DUMP_FILE_H
#define QWEN35_RUNTIME_DUMP_DUMP_FILE_H

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/param_store.h"
#include "runtime/checkpoint/param_table.h"

namespace qwen35 {

/// What a run on a given batch hands out.
///
/// Shapes  loss, auxLoss, gradNorm: one value per step; grads and params: one
///         array per parameter, after the last step, grads before clipping.
struct Dump {
  std::vector<float> loss, auxLoss, gradNorm;
  std::vector<absl::Span<const float>> grads, params;
};

/// Writes a dump as safetensors, all float32: `loss`, `aux_loss`, `grad_norm`,
/// then `grad.NAME` and `param.NAME` for every parameter. The scalars have
/// shape [] or, with `perStep`, [steps]. `aux_loss` is 0 where the model has no
/// such term. Equal numbers, equal bytes.
///
/// Errors  InvalidArgument for arrays that do not fit their parameters; those
///         of FileWriter.
absl::Status writeDump(const std::string &path,
                       absl::Span<const ParamSpec> params, const Dump &dump,
                       bool perStep);
/// The same with the arrays of a store; those of `dump` are not looked at.
absl::Status writeDump(const std::string &path,
                       absl::Span<const ParamSpec> params, const Dump &dump,
                       const ParamStore &store, bool perStep);

} // namespace qwen35

#endif // QWEN35_RUNTIME_DUMP_DUMP_FILE_H
