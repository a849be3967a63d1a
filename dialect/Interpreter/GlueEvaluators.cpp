#include "dialect/Interpreter/Evaluators.h"
#include "dialect/Qwen35/Reference/Glue.h"
#include "dialect/Qwen35/Reference/Linear.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::interpreter {

template <typename Real>
static absl::Status evaluate(LinearOp op, Frame<Real> &f) {
  return reference::linear<Real>(
      f.read(op.getX()), f.read(op.getWeight()), dimOf(op.getX(), 0),
      dimOf(op.getX(), 1), dimOf(op.getWeight(), 0), f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(MatmulOp op, Frame<Real> &f) {
  return reference::matmul<Real>(
      f.read(op.getA()), f.read(op.getB()), dimOf(op.getResult(), 0),
      dimOf(op.getResult(), 1), dimOf(op.getA(), op.getTransposeA() ? 0 : 1),
      op.getTransposeA(), op.getTransposeB(), f.write(op.getResult()));
}

template <typename Real>
static absl::Status evaluate(SwigluOp op, Frame<Real> &f) {
  return reference::swiglu<Real>(f.read(op.getGate()), f.read(op.getUp()),
                                 f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(SwigluBwdOp op, Frame<Real> &f) {
  return reference::swigluBwd<Real>(f.read(op.getDy()), f.read(op.getGate()),
                                    f.read(op.getUp()), f.write(op.getDgate()),
                                    f.write(op.getDup()));
}

template <typename Real>
static absl::Status evaluate(AddOp op, Frame<Real> &f) {
  // Ranks' sums of a global norm stay f64, also in a float run.
  if (tensorOf(op.getSum()).getElementType().isF64())
    return reference::add<double>(f.readF64(op.getA()), f.readF64(op.getB()),
                                  f.writeF64(op.getSum()));
  return reference::add<Real>(f.read(op.getA()), f.read(op.getB()),
                              f.write(op.getSum()));
}

template <typename Real>
static absl::Status evaluate(ScaleOp op, Frame<Real> &f) {
  return reference::scale<Real>(f.read(op.getX()),
                                op.getFactor().convertToDouble(),
                                f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(MulScalarOp op, Frame<Real> &f) {
  return reference::mulScalar<Real>(f.read(op.getX()), f.read(op.getS()),
                                    f.write(op.getY()));
}

/// Copied, and rounded to the type of the result where the run rounds at all.
template <typename Real>
static absl::Status evaluate(CastOp op, Frame<Real> &f) {
  auto copy = [](auto from, auto to) {
    if (from.size() == to.size()) // A type that was refused reads as nothing.
      std::copy(from.begin(), from.end(), to.begin());
    return absl::OkStatus();
  };
  bool fromF64 = tensorOf(op.getX()).getElementType().isF64();
  bool toF64 = tensorOf(op.getY()).getElementType().isF64();
  if (fromF64 && toF64)
    return copy(f.readF64(op.getX()), f.writeF64(op.getY()));
  if (fromF64)
    return copy(f.readF64(op.getX()), f.write(op.getY()));
  if (toF64)
    return copy(f.read(op.getX()), f.writeF64(op.getY()));
  return copy(f.read(op.getX()), f.write(op.getY()));
}

/// The same elements; nothing is copied.
template <typename Real>
static absl::Status evaluate(ReshapeOp op, Frame<Real> &f) {
  f.set(op.getY(), f.handle(op.getX()));
  return absl::OkStatus();
}

template <typename Real>
static absl::Status evaluate(SliceOp op, Frame<Real> &f) {
  ArrayRef<int64_t> dims = tensorOf(op.getX()).getShape();
  return reference::slice<Real>(
      f.read(op.getX()), absl::MakeConstSpan(dims.data(), dims.size()),
      op.getAxis(), op.getStart(), op.getSize(), f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(ConcatOp op, Frame<Real> &f) {
  SmallVector<absl::Span<const Real>> inputs;
  SmallVector<int64_t> sizes;
  for (Value input : op.getInputs()) {
    inputs.push_back(f.read(input));
    sizes.push_back(dimOf(input, op.getAxis()));
  }
  ArrayRef<int64_t> dims = tensorOf(op.getY()).getShape();
  return reference::concat<Real>(
      absl::MakeConstSpan(inputs.data(), inputs.size()),
      absl::MakeConstSpan(sizes.data(), sizes.size()),
      absl::MakeConstSpan(dims.data(), dims.size()), op.getAxis(),
      f.write(op.getY()));
}

template <typename Real>
static absl::Status evaluate(ZerosOp op, Frame<Real> &f) {
  // The sum of a global norm starts from an f64 zero, also in a float run.
  if (tensorOf(op.getResult()).getElementType().isF64())
    return reference::zeros<double>(f.writeF64(op.getResult()));
  return reference::zeros<Real>(f.write(op.getResult()));
}

template <typename Real>
static absl::Status evaluate(OnesOp op, Frame<Real> &f) {
  auto fill = [](auto elements) {
    std::fill(elements.begin(), elements.end(), 1);
    return absl::OkStatus();
  };
  if (tensorOf(op.getResult()).getElementType().isF64())
    return fill(f.writeF64(op.getResult()));
  return fill(f.write(op.getResult()));
}

void addGlueOps(EvaluatorTable &table) {
  table.add<LinearOp, MatmulOp, SwigluOp, SwigluBwdOp, AddOp, ScaleOp,
            MulScalarOp, CastOp, ReshapeOp, SliceOp, ConcatOp, ZerosOp, OnesOp>();
}

} // namespace qwen35::interpreter
