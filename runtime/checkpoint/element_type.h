#ifndef QWEN35_RUNTIME_CHECKPOINT_ELEMENT_TYPE_H
#define QWEN35_RUNTIME_CHECKPOINT_ELEMENT_TYPE_H

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/schema/bundle.pb.h"

namespace qwen35 {

/// Element types that a tensor file may hold. The names are those of the
/// safetensors format.
enum class ElementType { F64, F32, F16, BF16, I64, I32, U8, BOOL };

/// Bytes of one element.
int64_t bytesOf(ElementType type);

/// The name in a safetensors header: "F32", "BF16", ...
const char *nameOf(ElementType type);

/// Errors  InvalidArgument for any other name, listing those known.
absl::StatusOr<ElementType> parseElementType(absl::string_view name);

/// The type of a checkpoint tensor that the bundle asks for.
/// Errors  InvalidArgument for DTYPE_NONE and for integer types.
absl::StatusOr<ElementType> weightTypeOf(bundle::DType type);

bool isFloating(ElementType type);

/// Widens (or, for F64, rounds to nearest even) `count` elements to float32.
///
/// Shapes  bytes: count elements of `type`, little endian, any alignment;
///         out: [count].
/// Types   F64, F32, F16, BF16. Widening is exact; NaN payloads survive.
void toFloat(ElementType type, const char *bytes, int64_t count, float *out);

/// Rounds `count` float32 values to `type`, to nearest even, overflow to
/// infinity; a NaN stays a NaN and keeps the upper bits of its payload, so
/// that a value that came from toFloat returns to the same bits.
///
/// Shapes  values: [count]; bytes: room for count elements, any alignment.
/// Types   F64, F32, F16, BF16.
void fromFloat(ElementType type, const float *values, int64_t count,
               char *bytes);

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_ELEMENT_TYPE_H
