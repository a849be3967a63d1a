#ifndef QWEN35_TOOLS_QWEN35_INTERPRET_TENSORFILES_H
#define QWEN35_TOOLS_QWEN35_INTERPRET_TENSORFILES_H

#include "dialect/Interpreter/Interpreter.h"
#include "runtime/checkpoint/hf_checkpoint.h"

#include <map>
#include <string>
#include <vector>

namespace qwen35::interpret {

/// All tensors of a safetensors file: F64 as double; F32, F16 and BF16 as
/// float; I32 and I64 as int32.
///
/// Errors  InvalidArgument "FILE: tensor NAME ..." for other types and for an
///         I64 that int32 cannot hold; those of SafetensorsFile.
absl::StatusOr<std::map<std::string, interpreter::Tensor>>
readTensors(const std::string &path);

/// Parameters from a safetensors file, where `model.language_model.X` is X's
/// name too, or from a Hugging Face folder (float, HfCheckpoint).
///
/// `params` are those wanted; a file may hold more.
/// Errors  InvalidArgument naming the parameter that is missing or the tensor
///         of the wrong shape.
absl::StatusOr<interpreter::ParamMap>
readWeights(const std::string &path, const std::vector<ParamSpec> &params);

/// Writes F64, F32 and I32 tensors under their names.
absl::Status
writeTensors(const std::string &path,
             const std::map<std::string, interpreter::Tensor> &tensors);

} // namespace qwen35::interpret

#endif // QWEN35_TOOLS_QWEN35_INTERPRET_TENSORFILES_H
