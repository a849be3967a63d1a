#include "dialect/QKern/IR/QKernDialect.h"
#include "passes/Kernels/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, mlir::arith::ArithDialect,
                  qwen35::Qwen35Dialect, qwen35::qkern::QKernDialect>();
  mlir::registerTransformsPasses();
  qwen35::registerKernelPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Qwen3.5 training-step compiler: passes on textual IR\n",
      registry));
}
