#ifndef QWEN35_TEST_UNIT_INTERPRETER_MODULETEST_H
#define QWEN35_TEST_UNIT_INTERPRETER_MODULETEST_H

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "test/support/Numeric.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <string>
#include <vector>

namespace qwen35::test {

/// Parses modules, runs their functions and keeps the last error.
class ModuleTest : public testing::Test {
protected:
  ModuleTest() : handler(&context, [this](mlir::Diagnostic &diagnostic) {
                   error = diagnostic.str();
                   return mlir::success();
                 }) {
    context.loadDialect<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                        Qwen35Dialect, qkern::QKernDialect>();
  }

  void parse(const std::string &text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(module) << error;
  }

  mlir::func::FuncOp function(llvm::StringRef name = "f") {
    return module->lookupSymbol<mlir::func::FuncOp>(name);
  }

  mlir::FailureOr<llvm::SmallVector<interpreter::Tensor>>
  run(llvm::ArrayRef<interpreter::Tensor> arguments,
      const interpreter::Options &options = {}) {
    return interpreter::interpret(function(), arguments, params, options);
  }

  mlir::MLIRContext context;
  std::string error;
  mlir::ScopedDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  interpreter::ParamMap params;
};

inline const std::vector<double> &doubles(const interpreter::Tensor &tensor) {
  return std::get<std::vector<double>>(tensor.elements);
}
inline const std::vector<float> &floats(const interpreter::Tensor &tensor) {
  return std::get<std::vector<float>>(tensor.elements);
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_INTERPRETER_MODULETEST_H
