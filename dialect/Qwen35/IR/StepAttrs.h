#ifndef QWEN35_DIALECT_QWEN35_IR_STEPATTRS_H
#define QWEN35_DIALECT_QWEN35_IR_STEPATTRS_H

#include "llvm/ADT/StringRef.h"

namespace qwen35 {

// Discardable attributes of the arguments and results of step functions; docs/stages.md lists their values.
inline constexpr llvm::StringLiteral kNameAttr = "qwen35.name";
inline constexpr llvm::StringLiteral kRoleAttr = "qwen35.role";
inline constexpr llvm::StringLiteral kAliasAttr = "qwen35.alias";
inline constexpr llvm::StringLiteral kGradientAttr = "qwen35.gradient";
// Of weight arguments: what the qwen35.param said.
inline constexpr llvm::StringLiteral kInitAttr = "qwen35.init";
inline constexpr llvm::StringLiteral kDecayAttr = "qwen35.decay";
inline constexpr llvm::StringLiteral kFileDtypeAttr = "qwen35.file_dtype";

// The name of the input that says how a row lies on context-parallel ranks
// (runtime/schema/stripe_table.h).
inline constexpr llvm::StringLiteral kStripesName = "stripes";

// Of ops that recompute a forward value in backward: equal ops without it are not equal.
inline constexpr llvm::StringLiteral kRecomputeAttr = "qwen35.recompute";

} // namespace qwen35

#endif // QWEN35_DIALECT_QWEN35_IR_STEPATTRS_H
