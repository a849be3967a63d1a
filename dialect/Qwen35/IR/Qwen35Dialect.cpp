#include "dialect/Qwen35/IR/Qwen35Dialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialect/Qwen35/IR/Qwen35Dialect.cpp.inc"
#include "dialect/Qwen35/IR/Qwen35Interfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "dialect/Qwen35/IR/Qwen35Types.cpp.inc"

namespace qwen35 {

LogicalResult SeqType::verify(function_ref<InFlightDiagnostic()> emitError,
                              int64_t tokens, int64_t maxDocs) {
  if (tokens <= 0)
    return emitError() << "a document table needs at least one token, got "
                       << tokens;
  if (maxDocs <= 0)
    return emitError() << "a document table needs at least one document, got "
                       << maxDocs;
  return success();
}

void Qwen35Dialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/Qwen35/IR/Qwen35Types.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/NormOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/AttentionOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/DeltaOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/StripeOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/MoeOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/LossOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/OptimizerOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/Qwen35/IR/GlueOps.cpp.inc"
      >();
}

} // namespace qwen35
