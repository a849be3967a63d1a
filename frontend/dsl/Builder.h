#ifndef QWEN35_FRONTEND_DSL_BUILDER_H
#define QWEN35_FRONTEND_DSL_BUILDER_H

#include "frontend/config/ModelConfig.h"
#include "frontend/dsl/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"

#include "llvm/ADT/StringSet.h"

#include <optional>
#include <string>

namespace qwen35::dsl {

/// How a fresh parameter is drawn; the text that `qwen35.param` carries.
struct Init {
  std::string text;

  static Init zeros() { return {"zeros"}; }
  static Init ones() { return {"ones"}; }
  static Init normal(double deviation);
  /// The log of a number drawn uniformly from [low, high].
  static Init logUniform(double low, double high);
};

/// What `finish` returns beside the loss that is differentiated.
struct AuxiliaryLoss {
  Tensor languageModel; ///< its part of the loss
  Tensor auxiliary;     ///< the other part, before its coefficient
};

/// Appends ops of stage S0 (docs/stages.md) to `func @model`, one function per
/// op. The functions are named like the ops, whose descriptions define the
/// math; parameters here are in the order of the ops' operands, attributes
/// last.
///
/// Shapes  T is `documents().tokens()`. Every tensor is static and row-major.
/// Types   f32, except ids, labels and expert ids, which are i32.
/// Errors  An expression that the op's rules refuse is reported once, as an
///         MLIR error diagnostic at the module's path, and gives an empty
///         tensor; `finish` then returns null. Nothing aborts.
class Builder {
public:
  struct Options {
    int64_t tokens = 0; ///< T, token slots of a packed row
    /// Documents a row may hold, padding included: the user's limit plus one.
    int64_t maxDocs = 0;
    /// The standard deviation of `parameter`s that name no Init.
    double initializerRange = 0.02;
    /// Their type in a checkpoint that has no original to follow.
    FileType fileType = FileType::Float32;
  };

  /// Loads the dialects it needs into `context`.
  Builder(mlir::MLIRContext &context, const Options &options);

  // The inputs of a step. `labels` are shifted already, -100 is ignored;
  // `invCount` is one over the number of labels of the whole step, `auxScale`
  // one over its number of microbatches.
  Tensor ids() const { return idsInput; }
  Tensor labels() const { return labelsInput; }
  Documents documents() const { return seqInput; }
  Tensor invCount() const { return invCountInput; }
  Tensor auxScale() const { return auxScaleInput; }

  /// A trained tensor. `name` is its Hugging Face name in flat form and must be
  /// new; weight decay applies to tensors of two or more dims. Parameters open
  /// the function, in the order of these calls.
  Tensor parameter(const llvm::Twine &name, llvm::ArrayRef<int64_t> shape,
                   const Init &init, FileType fileType);
  Tensor parameter(const llvm::Twine &name, llvm::ArrayRef<int64_t> shape);
  FileType fileType() const { return options.fileType; }

  // Glue. linear: y = x weight^T.
  Tensor linear(Tensor x, Tensor weight);
  Tensor matmul(Tensor a, Tensor b, bool transposeA = false,
                bool transposeB = false);
  Tensor swiglu(Tensor gate, Tensor up);
  Tensor add(Tensor a, Tensor b);
  Tensor scale(Tensor x, double factor);
  Tensor mulScalar(Tensor x, Tensor scalar);
  Tensor reshape(Tensor x, llvm::ArrayRef<int64_t> shape);
  Tensor slice(Tensor x, int64_t axis, int64_t start, int64_t size);
  Tensor concat(llvm::ArrayRef<Tensor> parts, int64_t axis);
  Tensor zeros(llvm::ArrayRef<int64_t> shape);

  // Norms. `offset` is 1 for weights that are stored around zero.
  Tensor rmsNorm(Tensor x, Tensor weight, double eps, double offset);
  Tensor gatedRmsNorm(Tensor o, Tensor z, Tensor weight, double eps);

  // Full attention.
  Tensor ropeTable(double theta, int64_t rotaryDim);
  Tensor rope(Tensor x, Tensor table);
  Tensor attention(Tensor q, Tensor k, Tensor v, double scale);
  Tensor mulSigmoid(Tensor x, Tensor gate);

  // Gated DeltaNet.
  struct Gates {
    Tensor decay; ///< g, the log of the decay
    Tensor beta;  ///< write strength
  };
  Tensor causalConv(Tensor x, Tensor weight);
  Gates gdnGates(Tensor a, Tensor b, Tensor aLog, Tensor dtBias);
  Tensor gatedDeltaRule(Tensor q, Tensor k, Tensor v, Gates gates, double scale,
                        double eps);

  // Mixture of experts.
  struct Routing {
    Tensor weights; ///< [T, topK]
    Tensor experts; ///< [T, topK] i32
    Tensor probs;   ///< [T, E]
  };
  Routing router(Tensor logits, int64_t topK);
  Tensor moeExperts(Tensor x, const Routing &routing, Tensor gateUp,
                    Tensor down);
  /// `scope` is "pooled" or "per_layer"; one Routing per layer.
  Tensor routerAux(llvm::ArrayRef<Routing> layers, llvm::StringRef scope);

  // Embedding and head.
  Tensor embed(Tensor ids, Tensor table);
  Tensor lmLoss(Tensor h, Tensor weight, Tensor labels, Tensor invCount);

  /// Ends the function: `loss` is differentiated, `parts` (with an auxiliary
  /// loss) are metrics. Verifies the module; null after any error. The builder
  /// must not be used afterwards.
  mlir::OwningOpRef<mlir::ModuleOp>
  finish(Tensor loss, std::optional<AuxiliaryLoss> parts = std::nullopt);

  /// Reports a mistake at the current path. Always returns an empty tensor.
  Tensor fail(const llvm::Twine &message);
  bool failed() const { return hasFailed; }

  /// Ops built while it lives are located at this module path, without the
  /// leading "model.": layers.3.linear_attn. Profiles and plans show it.
  class Scope {
  public:
    Scope(Builder &builder, llvm::StringRef path);
    ~Scope() { builder.location = outer; }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    Builder &builder;
    mlir::Location outer;
  };

private:
  struct Operand {
    llvm::StringRef name;
    Tensor tensor;
    int64_t rank; ///< that the op demands; kAnyRank
  };
  static constexpr int64_t kAnyRank = -1;

  template <typename Op>
  llvm::SmallVector<Tensor, 3>
  append(llvm::ArrayRef<Operand> operands,
         llvm::ArrayRef<mlir::NamedAttribute> attrs,
         bool withDocuments = false);
  template <typename Op>
  llvm::SmallVector<Tensor, 3>
  infer(mlir::ValueRange operands, llvm::ArrayRef<mlir::NamedAttribute> attrs);
  /// Whether all are there and of the right rank; reports it if not.
  bool check(llvm::StringRef op, llvm::ArrayRef<Operand> operands);
  mlir::NamedAttribute real(llvm::StringRef name, double value);
  mlir::NamedAttribute integer(llvm::StringRef name, int64_t value);
  mlir::NamedAttribute flag(llvm::StringRef name, bool value);

  Options options;
  mlir::OpBuilder builder;
  mlir::Location location;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
  llvm::StringSet<> names;
  mlir::Operation *lastParameter = nullptr;
  bool hasFailed = false;
  Tensor idsInput, labelsInput, invCountInput, auxScaleInput;
  Documents seqInput;
};

} // namespace qwen35::dsl

#endif // QWEN35_FRONTEND_DSL_BUILDER_H
