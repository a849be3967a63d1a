#ifndef QWEN35_TEST_UNIT_PARTITION_STEP_H
#define QWEN35_TEST_UNIT_PARTITION_STEP_H

// A training step of stage S1 with its inputs, and the same on the ranks of a
// mesh.

#include "dialect/Interpreter/Ranks.h"
#include "frontend/config/ModelConfig.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"

#include <memory>
#include <string>
#include <vector>

namespace qwen35::test {

/// A model of both kinds of layers whose sizes leave room for tp = 4, with
/// fewer key/value heads than that.
ModelConfig smallConfig(bool moe, bool tied);
MeshLimits limitsOf(const ModelConfig &config, int64_t rowTokens);

/// "weight model.norm.weight": role and name of an argument.
std::string keyOf(mlir::func::FuncOp function, unsigned argument);

/// Lengths of the documents of every row; what they leave of it is padding.
using Documents = std::vector<std::vector<int64_t>>;

/// What a row may hold.
struct RowShape {
  int64_t tokens = 32, docs = 4;
};

/// The step of some rows at stage S1, its inputs, and what @only returns.
struct Whole {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  RowShape row;
  Documents documents;
  llvm::SmallVector<interpreter::Tensor> arguments, results;

  mlir::func::FuncOp only() const {
    return module.get().lookupSymbol<mlir::func::FuncOp>("only");
  }
  /// An argument by its key; a failed test if there is none.
  interpreter::Tensor &argument(const std::string &key);
  /// Interprets @only on the arguments as they are.
  void run();
};

struct WholeOptions {
  AuxScope aux = AuxScope::None;
  std::string compute = "fp32";
  uint64_t seed = 1;
};

/// With random weights, ids and labels; not yet run.
std::unique_ptr<Whole> makeWhole(const ModelConfig &config,
                                 const Documents &documents, RowShape row,
                                 const WholeOptions &options = {});

/// The step on the ranks of a mesh.
struct Split {
  mlir::OwningOpRef<mlir::ModuleOp> module; // null: refused
  Mesh mesh;

  mlir::func::FuncOp function(llvm::StringRef name) const {
    return module.get().lookupSymbol<mlir::func::FuncOp>(name);
  }
  /// Whether ranks of cp hold stripes of rows.
  bool striped() const;
};

struct SplitOptions {
  int64_t zero = 0;
  bool regather = false;
  std::string remat = "none"; // else S4, with that policy
  int64_t bucketBytes = PartitionPipelineOptions().bucketBytes;
  bool overlap = false; // to S4, collectives in two halves
  int64_t inFlight = SchedulePipelineOptions().inFlight;
};
Split split(const Whole &whole, const std::string &mesh,
            const SplitOptions &options = {});

/// What every rank gets for argument `i` of a function of the split step.
llvm::SmallVector<interpreter::Tensor>
rankArguments(const Whole &whole, const Split &split,
              mlir::func::FuncOp function, unsigned i);

/// The same for all arguments: a list per rank.
llvm::SmallVector<llvm::SmallVector<interpreter::Tensor>>
rankArguments(const Whole &whole, const Split &split,
              mlir::func::FuncOp function);

/// What @only of the split step returns, put together: the order of
/// whole.results. Copies on several ranks that differ are a failed test.
llvm::SmallVector<interpreter::Tensor> runRanks(const Whole &whole,
                                                const Split &split);

/// The largest difference on the scale of the largest element.
double worstOf(const interpreter::Tensor &got, const interpreter::Tensor &want);

/// Every result of the split step is that of the whole one, to 1e-9.
void expectSame(Whole &whole, const Split &split);

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_PARTITION_STEP_H
