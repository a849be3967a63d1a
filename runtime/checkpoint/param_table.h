#ifndef QWEN35_RUNTIME_CHECKPOINT_PARAM_TABLE_H
#define QWEN35_RUNTIME_CHECKPOINT_PARAM_TABLE_H

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/element_type.h"
#include "runtime/schema/bundle.pb.h"

namespace qwen35 {

/// One parameter of the model, as checkpoints see it.
struct ParamSpec {
  std::string name; // flat Hugging Face form: model.layers.0....
  std::vector<int64_t> shape;
  std::string init;                           // bundle.proto, Param.init
  ElementType fileType = ElementType::F32;    // without an original to follow
  int64_t elements() const;
};

/// The parameters of a bundle, whole, in the bundle's order.
///
/// Errors  InvalidArgument for an empty or repeated name, a dimension below
///         one, more than 2^62 elements, or a file dtype that is no float.
absl::StatusOr<std::vector<ParamSpec>> paramTable(const bundle::Bundle &bundle);

/// The product of a shape, or -1 if a dimension is negative or it exceeds 2^62.
int64_t elementsOf(absl::Span<const int64_t> shape);

/// "[3, 10, 7]"
std::string shapeText(absl::Span<const int64_t> shape);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_PARAM_TABLE_H
