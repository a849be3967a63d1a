#ifndef QWEN35_DIALECT_INTERPRETER_EVALUATORS_H
#define QWEN35_DIALECT_INTERPRETER_EVALUATORS_H

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/Qwen35/IR/Infer.h"
#include "runtime/schema/seq_table.h"

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "llvm/ADT/DenseMap.h"

#include <memory>
#include <type_traits>

// Private to this library: how an op meets its reference function. A chapter of
// evaluators is one static overload per op,
//
//     template <typename Real>
//     static absl::Status evaluate(AddOp op, Frame<Real> &f) {
//       return reference::add<Real>(f.read(op.getA()), f.read(op.getB()),
//                                   f.write(op.getSum()));
//     }
//
// and a registration of all of them.

namespace qwen35::interpreter {

/// Elements that several values may share.
using Handle = std::shared_ptr<const Elements>;

/// Counts the bytes of a run. Outlives every handle it made.
class Memory {
public:
  std::shared_ptr<Elements> own(Elements elements);
  int64_t peakBytes() const { return peak; }

private:
  int64_t live = 0, peak = 0;
};

/// To bf16 and back: to nearest even, a NaN stays one.
void roundToBf16(absl::Span<float> values);

/// How the elements of a type are kept when f32 is `Real`.
template <typename Real>
bool isKeptIn(mlir::Type element, const Elements &elements) {
  if (element.isInteger(32))
    return std::holds_alternative<std::vector<int32_t>>(elements);
  if (element.isF64())
    return std::holds_alternative<std::vector<double>>(elements);
  return std::holds_alternative<std::vector<Real>>(elements);
}

/// The values of one running function.
template <typename Real> class Frame {
public:
  explicit Frame(Memory &memory) : memory(memory) {}

  /// Elements of an operand of type f32 or bf16 (or, in a double run, f64).
  absl::Span<const Real> read(mlir::Value value) { return get<Real>(value); }
  /// Elements of an operand of type f64, which a float run keeps in double.
  absl::Span<const double> readF64(mlir::Value value) {
    return get<double>(value);
  }
  absl::Span<const int32_t> readInts(mlir::Value value) {
    return get<int32_t>(value);
  }

  /// Fresh zeros for a result of type f32 or bf16 (or, in a double run, f64).
  absl::Span<Real> write(mlir::Value value) {
    absl::Span<Real> elements = make<Real>(value);
    if (getElementTypeOrSelf(value.getType()).isBF16())
      toRound.push_back(elements);
    return elements;
  }
  absl::Span<double> writeF64(mlir::Value value) { return make<double>(value); }
  absl::Span<int32_t> writeInts(mlir::Value value) {
    return make<int32_t>(value);
  }

  Handle handle(mlir::Value value) const { return values.lookup(value); }
  void set(mlir::Value value, Handle handle) {
    values[value] = std::move(handle);
  }
  void erase(mlir::Value value) { values.erase(value); }

  /// Ends an op: rounds what it wrote to bf16 in a float run. Returns what went
  /// wrong in reading and writing, before whatever its reference made of it.
  absl::Status finish(absl::Status evaluated);

private:
  template <typename Kept> absl::Span<const Kept> get(mlir::Value value) {
    const Handle &handle = values.at(value);
    if (const auto *elements = std::get_if<std::vector<Kept>>(handle.get()))
      return *elements;
    refuse(value);
    return {};
  }

  template <typename Kept> absl::Span<Kept> make(mlir::Value value) {
    auto type = mlir::cast<mlir::RankedTensorType>(value.getType());
    std::shared_ptr<Elements> elements = memory.own(
        std::vector<Kept>(static_cast<size_t>(type.getNumElements())));
    if (!isKeptIn<Real>(type.getElementType(), *elements))
      refuse(value);
    values[value] = elements;
    return absl::MakeSpan(std::get<std::vector<Kept>>(*elements));
  }

  void refuse(mlir::Value value);

  Memory &memory;
  llvm::DenseMap<mlir::Value, Handle> values;
  llvm::SmallVector<absl::Span<Real>> toRound;
  absl::Status failure;
};

template <typename Real>
using Evaluator = absl::Status (*)(mlir::Operation *, Frame<Real> &);

/// From op name to its evaluators.
class EvaluatorTable {
public:
  /// Every op that has one.
  static const EvaluatorTable &get();

  template <typename... Ops> void add() { (addOne<Ops>(), ...); }

  bool contains(llvm::StringRef name) const { return table.contains(name); }
  /// Null if the op has none.
  template <typename Real> Evaluator<Real> find(llvm::StringRef name) const {
    auto found = table.find(name);
    if (found == table.end())
      return nullptr;
    return std::get<Evaluator<Real>>(found->second);
  }

private:
  template <typename Op, typename Real>
  static absl::Status call(mlir::Operation *op, Frame<Real> &frame) {
    return evaluate(mlir::cast<Op>(op), frame); // found where Op is a chapter's
  }
  template <typename Op> void addOne() {
    table[Op::getOperationName()] = {&call<Op, double>, &call<Op, float>};
  }

  llvm::StringMap<std::tuple<Evaluator<double>, Evaluator<float>>> table;
};

void addAttentionOps(EvaluatorTable &table);
void addDeltaOps(EvaluatorTable &table);
void addGdnOps(EvaluatorTable &table);
void addGlueOps(EvaluatorTable &table);
void addLossOps(EvaluatorTable &table);
void addMoeOps(EvaluatorTable &table);
void addNormOps(EvaluatorTable &table);
void addOptimizerOps(EvaluatorTable &table);
void addStripeOps(EvaluatorTable &table);

/// The shape of a document table.
inline SeqTable tableOf(mlir::Value seq) {
  auto type = mlir::cast<SeqType>(seq.getType());
  return {type.getTokens(), type.getMaxDocs()};
}

inline int64_t dimOf(mlir::Value value, unsigned dim) {
  return tensorOf(value).getDimSize(dim);
}
inline int64_t sizeOf(mlir::Value value) {
  return tensorOf(value).getNumElements();
}
/// The last dimension, and the product of the others.
inline int64_t columnsOf(mlir::Value value) {
  return tensorOf(value).getShape().back();
}
inline int64_t rowsOf(mlir::Value value) {
  int64_t rows = 1;
  for (int64_t size : tensorOf(value).getShape().drop_back())
    rows *= size;
  return rows;
}

} // namespace qwen35::interpreter

#endif // QWEN35_DIALECT_INTERPRETER_EVALUATORS_H
