#ifndef QWEN35_TEST_UNIT_MODEL_DIAGNOSTICS_H
#define QWEN35_TEST_UNIT_MODEL_DIAGNOSTICS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <string>
#include <vector>

namespace qwen35::test {

/// Collects the diagnostics of a context: "path: message", path of a NameLoc.
class Diagnostics {
public:
  explicit Diagnostics(mlir::MLIRContext &context)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          std::string text;
          if (auto name =
                  mlir::dyn_cast<mlir::NameLoc>(diagnostic.getLocation()))
            text = name.getName().str() + ": ";
          messages.push_back(text + diagnostic.str());
        }) {}

  std::vector<std::string> messages;

private:
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_MODEL_DIAGNOSTICS_H
