#include "codegen/cpu/Target.h"
#include "codegen/cuda/Target.h"
#include "dialect/QDist/IR/QDistDialect.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "dialect/QPlan/IR/QPlanDialect.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::func::FuncDialect, mlir::arith::ArithDialect,
                  qwen35::Qwen35Dialect, qwen35::qkern::QKernDialect,
                  qwen35::qplan::QPlanDialect, qwen35::qdist::QDistDialect>();
  mlir::registerTransformsPasses();
  qwen35::registerAllPasses();
  qwen35::codegen::cpu::registerCpuKernelTarget();
  qwen35::codegen::cuda::registerGpuKernelTargets();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "Qwen3.5 training-step compiler: passes on textual IR\n",
      registry));
}
