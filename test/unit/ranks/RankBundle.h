#ifndef QWEN35_TEST_UNIT_RANKS_RANKBUNDLE_H
#define QWEN35_TEST_UNIT_RANKS_RANKBUNDLE_H

// A bundle from a module of stage S3 or S4, as qwen35c would make it.

#include "runtime/bundle/bundle_reader.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qwen35::test {

class RankBundle {
public:
  RankBundle();

  /// Parses the module; null, with a failed test, if it is none.
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);

  /// The bytes of a bundle of a model of `tokens` tokens; consumes the module.
  /// `change` sees the message before it is written. Empty, with a failed test,
  /// on an error.
  std::string
  compile(mlir::OwningOpRef<mlir::ModuleOp> module, int64_t tokens,
          int64_t maxDocs,
          const std::function<void(bundle::Bundle &)> &change = nullptr);

  mlir::MLIRContext context;
  /// "cpu", or "emulated": a GPU's kernels compiled for the host, for the
  /// driver of test/support/fake_cuda.
  std::string target = "cpu";

private:
  /// Adds the target and the kernels; returns the blobs by name.
  std::vector<std::pair<std::string, std::string>>
  emitCpu(mlir::ModuleOp module, int64_t tokens, int64_t maxDocs,
          bundle::Bundle &message);
  std::vector<std::pair<std::string, std::string>>
  emitGpu(mlir::ModuleOp module, int64_t tokens, int64_t maxDocs,
          bundle::Bundle &message);
};

/// Opens it; null, with a failed test, on an error.
std::shared_ptr<const BundleFile> open(const std::string &bytes);

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_RANKS_RANKBUNDLE_H
