#include "dialect/QKern/IR/QKernDialect.h"

using namespace mlir;

#include "dialect/QKern/IR/QKernDialect.cpp.inc"

void qwen35::qkern::QKernDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialect/QKern/IR/KernelOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/QKern/IR/GdnOps.cpp.inc"
      >();
}
