// Kernels that treat every element alike: sums, products, gates, fills, copies.

#include "codegen/cpu/Families.h"
#include "codegen/cpu/Loops.h"

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

using Values = SmallVector<Val>;

/// One op whose tensors all have one shape, after which scalars may follow.
struct ElementwiseOp {
  StringRef name;
  SmallVector<StringRef> inputs, scalars, outputs, attrs;
  int64_t cost; ///< Additions per element, about.
  /// Values of the outputs from vectors of the inputs and from the scalars.
  Values (*compute)(const KernelSpec &spec, KernelBuilder &k, Values inputs,
                    Values scalars, int64_t lanes);
};

class Elementwise : public KernelFamily {
public:
  explicit Elementwise(ElementwiseOp op) : description(std::move(op)) {}
  StringRef op() const override { return description.name; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    const ElementwiseOp &op = description;
    size_t tensors = op.inputs.size();
    if (failed(requireCounts(spec, tensors + op.scalars.size(),
                             op.outputs.size(), emitError)) ||
        failed(requireAttrs(spec, op.attrs, emitError)))
      return failure();
    MemRefType shape = tensors ? spec.inputs[0] : spec.outputs[0];
    StringRef shapeName = tensors ? op.inputs[0] : op.outputs[0];
    Type f32 = Float32Type::get(shape.getContext());
    // The squares of a norm are f64: what they start from, and sums of them.
    SmallVector<Type, 2> elements = {f32};
    if (tensors == 0 || op.name == "add")
      elements.push_back(Float64Type::get(shape.getContext()));
    if (failed(requireType(spec, shape, shapeName, shape.getShape(), elements,
                           emitError)))
      return failure();
    for (size_t i = 1; i < tensors; ++i)
      if (failed(requireSameShape(spec, shape, shapeName, spec.inputs[i],
                                  op.inputs[i], emitError)))
        return failure();
    for (auto [type, name] :
         llvm::zip(ArrayRef(spec.inputs).drop_front(tensors), op.scalars))
      if (failed(requireType(spec, type, name, {}, f32, emitError)))
        return failure();
    for (auto [type, name] : llvm::zip(spec.outputs, op.outputs))
      if (failed(
              requireSameShape(spec, shape, shapeName, type, name, emitError)))
        return failure();
    KernelPlan plan;
    SmallVector<MemRefType> types(ArrayRef(spec.inputs).take_front(tensors));
    types.append(spec.outputs);
    plan.grids = {elementTasks(types, op.cost)};
    // All inputs of an element are read before its outputs are written.
    for (unsigned output = 0; output < op.outputs.size(); ++output)
      for (unsigned input = 0; input < tensors; ++input)
        plan.mayAlias.push_back({output, input});
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    const ElementwiseOp &op = description;
    size_t inputs = op.inputs.size();
    SmallVector<View> views;
    for (unsigned i = 0; i < inputs; ++i)
      views.push_back(k.input(i));
    for (unsigned i = 0; i < op.outputs.size(); ++i)
      views.push_back(k.output(i));
    Values scalars;
    for (unsigned i = 0; i < op.scalars.size(); ++i)
      scalars.push_back(k.input(inputs + i).load({}));
    forElements(k, views, op.cost, [&](ArrayRef<View> parts, Lanes l) {
      Values loaded;
      for (const View &part : parts.take_front(inputs))
        loaded.push_back(part.load({l.i}, l));
      Values results = op.compute(spec, k, loaded, scalars, l.width);
      for (auto [result, part] : llvm::zip(results, parts.drop_front(inputs)))
        part.store(result, {l.i}, l);
    });
  }

private:
  ElementwiseOp description;
};

/// silu'(x) from s = sigmoid(x).
Val siluSlope(Val x, Val s) { return s * (1.0 + x * (1.0 - s)); }

std::vector<ElementwiseOp> elementwiseOps() {
  std::vector<ElementwiseOp> ops;
  ops.push_back({"add",
                 {"a", "b"},
                 {},
                 {"the sum"},
                 {},
                 1,
                 [](const KernelSpec &, KernelBuilder &, Values in, Values,
                    int64_t) { return Values{in[0] + in[1]}; }});
  ops.push_back(
      {"scale",
       {"x"},
       {},
       {"y"},
       {"factor"},
       1,
       [](const KernelSpec &spec, KernelBuilder &, Values in, Values, int64_t) {
         return Values{in[0] * spec.number("factor")};
       }});
  ops.push_back(
      {"mul_scalar",
       {"x"},
       {"s"},
       {"y"},
       {},
       1,
       [](const KernelSpec &, KernelBuilder &, Values in, Values scalars,
          int64_t) { return Values{in[0] * scalars[0]}; }});
  ops.push_back({"copy",
                 {"x"},
                 {},
                 {"y"},
                 {},
                 1,
                 [](const KernelSpec &, KernelBuilder &, Values in, Values,
                    int64_t) { return in; }});
  ops.push_back({"zeros",
                 {},
                 {},
                 {"the result"},
                 {},
                 1,
                 [](const KernelSpec &spec, KernelBuilder &k, Values, Values,
                    int64_t lanes) {
                   return Values{
                       k.zero(spec.outputs[0].getElementType(), lanes)};
                 }});
  ops.push_back({"ones",
                 {},
                 {},
                 {"the result"},
                 {},
                 1,
                 [](const KernelSpec &spec, KernelBuilder &k, Values, Values,
                    int64_t lanes) {
                   return Values{
                       k.zero(spec.outputs[0].getElementType(), lanes).like(1)};
                 }});
  ops.push_back({"rescale_sum",
                 {"sum", "from", "to"},
                 {},
                 {"the result"},
                 {},
                 8,
                 [](const KernelSpec &, KernelBuilder &, Values in, Values,
                    int64_t) { return Values{in[0] * exp(in[1] - in[2])}; }});
  ops.push_back({"swiglu",
                 {"gate", "up"},
                 {},
                 {"y"},
                 {},
                 8,
                 [](const KernelSpec &, KernelBuilder &, Values in, Values,
                    int64_t) { return Values{silu(in[0]) * in[1]}; }});
  ops.push_back(
      {"swiglu_bwd",
       {"dy", "gate", "up"},
       {},
       {"dgate", "dup"},
       {},
       12,
       [](const KernelSpec &, KernelBuilder &, Values in, Values, int64_t) {
         Val dy = in[0], gate = in[1], up = in[2];
         Val s = sigmoid(gate);
         return Values{dy * up * siluSlope(gate, s), dy * gate * s};
       }});
  return ops;
}

/// x * sigmoid(gate), the gate shaped like x or one per row ([T,1]).
class MulSigmoid : public KernelFamily {
public:
  StringRef op() const override { return "mul_sigmoid"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0];
    if (failed(requireRows(spec, x, "x", emitError)) ||
        failed(requireGate(spec, x, spec.inputs[1], emitError)) ||
        failed(requireSameShape(spec, x, "x", spec.outputs[0], "y", emitError)))
      return failure();
    KernelPlan plan;
    plan.mayAlias = {{0, 0}};
    if (isPerRow(x, spec.inputs[1])) {
      plan.grids = {rowTasks(x, kCost)};
    } else {
      plan.grids = {elementTasks({x, spec.inputs[1], spec.outputs[0]}, kCost)};
      plan.mayAlias.push_back({0, 1});
    }
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View x = k.input(0), gate = k.input(1), y = k.output(0);
    if (!isPerRow(x.type(), gate.type())) {
      forElements(k, {x, gate, y}, kCost, [](ArrayRef<View> part, Lanes l) {
        Val s = sigmoid(part[1].load({l.i}, l));
        part[2].store(part[0].load({l.i}, l) * s, {l.i}, l);
      });
      return;
    }
    auto [lo, hi] = k.taskRange(rowCount(x.type()), rowTasks(x.type(), kCost));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View from = x.row(row), to = y.row(row);
      Val s = sigmoid(gate.row(row).load({0}));
      k.forLanes(x.size(-1),
                 [&](Lanes l) { to.store(from.load({l.i}, l) * s, {l.i}, l); });
    });
  }

  static constexpr int64_t kCost = 8;

  static bool isPerRow(MemRefType x, MemRefType gate) {
    return x.getShape() != gate.getShape();
  }

  static LogicalResult requireGate(const KernelSpec &spec, MemRefType x,
                                   MemRefType gate, EmitError emitError) {
    if (gate.getShape() == x.getShape())
      return requireSameShape(spec, x, "x", gate, "gate", emitError);
    if (x.getRank() != 2)
      return emitError() << spec.op << ": gate " << gate
                         << " has neither the shape of x " << x
                         << " nor one element per row of a matrix";
    return requireType(spec, gate, "gate", {x.getDimSize(0), 1},
                       x.getElementType(), emitError);
  }
};

class MulSigmoidBwd : public KernelFamily {
public:
  StringRef op() const override { return "mul_sigmoid_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)))
      return failure();
    MemRefType x = spec.inputs[1], gate = spec.inputs[2];
    if (failed(requireRows(spec, x, "x", emitError)) ||
        failed(
            requireSameShape(spec, x, "x", spec.inputs[0], "dy", emitError)) ||
        failed(MulSigmoid::requireGate(spec, x, gate, emitError)) ||
        failed(
            requireSameShape(spec, x, "x", spec.outputs[0], "dx", emitError)) ||
        failed(requireSameShape(spec, gate, "gate", spec.outputs[1], "dgate",
                                emitError)))
      return failure();
    KernelPlan plan;
    plan.mayAlias = {{0, 0}, {0, 1}};
    if (MulSigmoid::isPerRow(x, gate)) {
      plan.grids = {rowTasks(x, MulSigmoid::kCost)};
      plan.mayAlias.push_back({1, 2});
    } else {
      plan.grids = {elementTasks(
          {x, spec.inputs[0], gate, spec.outputs[0], spec.outputs[1]},
          MulSigmoid::kCost)};
      plan.mayAlias.append({{0, 2}, {1, 0}, {1, 1}, {1, 2}});
    }
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View dy = k.input(0), x = k.input(1), gate = k.input(2);
    View dx = k.output(0), dgate = k.output(1);
    int64_t cost = MulSigmoid::kCost;
    if (!MulSigmoid::isPerRow(x.type(), gate.type())) {
      forElements(k, {x, dy, gate, dx, dgate}, cost,
                  [](ArrayRef<View> part, Lanes l) {
                    Val x = part[0].load({l.i}, l), dy = part[1].load({l.i}, l);
                    Val s = sigmoid(part[2].load({l.i}, l));
                    part[3].store(dy * s, {l.i}, l);
                    part[4].store(dy * x * s * (1.0 - s), {l.i}, l);
                  });
      return;
    }
    auto [lo, hi] = k.taskRange(rowCount(x.type()), rowTasks(x.type(), cost));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View dyRow = dy.row(row), xRow = x.row(row), dxRow = dx.row(row);
      Val s = sigmoid(gate.row(row).load({0}));
      Val dot = k.sum(x.size(-1), [&](Lanes l) {
        return dyRow.load({l.i}, l) * xRow.load({l.i}, l);
      });
      k.forLanes(x.size(-1), [&](Lanes l) {
        dxRow.store(dyRow.load({l.i}, l) * s, {l.i}, l);
      });
      dgate.row(row).store(dot * s * (1.0 - s), {0});
    });
  }
};

/// dlogits = probs * (dprobs - sum of probs * dprobs) per row.
class SoftmaxBwd : public KernelFamily {
public:
  StringRef op() const override { return "softmax_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType probs = spec.inputs[1];
    if (failed(requireRows(spec, probs, "probs", emitError)) ||
        failed(requireSameShape(spec, probs, "probs", spec.inputs[0], "dprobs",
                                emitError)) ||
        failed(requireSameShape(spec, probs, "probs", spec.outputs[0],
                                "dlogits", emitError)))
      return failure();
    KernelPlan plan;
    plan.grids = {rowTasks(probs, 2)};
    plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View dprobs = k.input(0), probs = k.input(1), dlogits = k.output(0);
    auto [lo, hi] =
        k.taskRange(rowCount(probs.type()), rowTasks(probs.type(), 2));
    k.forLoop(lo, hi, 1, [&](Val row) {
      View d = dprobs.row(row), p = probs.row(row), to = dlogits.row(row);
      Val dot = k.sum(probs.size(-1), [&](Lanes l) {
        return d.load({l.i}, l) * p.load({l.i}, l);
      });
      k.forLanes(probs.size(-1), [&](Lanes l) {
        to.store(p.load({l.i}, l) * (d.load({l.i}, l) - dot), {l.i}, l);
      });
    });
  }
};

/// Tensors one after another along {axis}.
class Concat : public KernelFamily {
public:
  StringRef op() const override { return "concat"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec,
                             EmitError emitError) const override {
    if (spec.inputs.empty() || spec.outputs.size() != 1) {
      emitError() << "concat takes inputs and one output, got "
                  << spec.inputs.size() << " and " << spec.outputs.size();
      return failure();
    }
    if (failed(requireAttrs(spec, {"axis"}, emitError)))
      return failure();
    MemRefType y = spec.outputs[0];
    int64_t axis = spec.integer("axis"), total = 0;
    if (failed(requireRows(spec, y, "y", emitError)))
      return failure();
    if (axis < 0 || axis >= y.getRank()) {
      emitError() << "concat: axis " << axis << " of a result of rank "
                  << y.getRank();
      return failure();
    }
    for (MemRefType input : spec.inputs) {
      SmallVector<int64_t> shape(y.getShape());
      shape[axis] = kAny;
      if (failed(requireType(spec, input, "an input", shape, y.getElementType(),
                             emitError)))
        return failure();
      total += input.getDimSize(axis);
    }
    if (total != y.getDimSize(axis)) {
      emitError() << "concat: the inputs have " << total
                  << " elements along axis " << axis << ", the result has "
                  << y.getDimSize(axis);
      return failure();
    }
    KernelPlan plan;
    plan.grids = {rowTasks(y, 1)};
    return plan;
  }

  void emit(const KernelSpec &spec, unsigned, KernelBuilder &k) const override {
    View y = k.output(0);
    int64_t axis = spec.integer("axis"), last = y.rank() - 1;
    int64_t tasks = rowTasks(y.type(), 1);
    int64_t inner = 1; // Rows per step along the axis.
    for (int64_t d = axis + 1; d < last; ++d)
      inner *= y.size(d);
    int64_t outputRows = axis == last ? 1 : y.size(axis) * inner;
    int64_t start = 0;
    for (unsigned i = 0; i < spec.inputs.size(); ++i) {
      View x = k.input(i);
      int64_t size = x.size(axis);
      auto [lo, hi] = k.taskRange(rowCount(x.type()), tasks);
      k.forLoop(lo, hi, 1, [&](Val row) {
        View from = x.row(row), to;
        if (axis == last) {
          to = y.row(row).tile({start}, {x.size(last)});
        } else {
          double block = double(size * inner);
          to = y.row(row / block * double(outputRows) + row % block +
                     double(start * inner));
        }
        k.forLanes(x.size(last),
                   [&](Lanes l) { to.store(from.load({l.i}, l), {l.i}, l); });
      });
      start += size;
    }
  }
};

} // namespace

void registerElementwiseKernels() {
  for (ElementwiseOp &op : elementwiseOps())
    registerKernel(std::make_unique<Elementwise>(std::move(op)));
  registerKernel(std::make_unique<MulSigmoid>());
  registerKernel(std::make_unique<MulSigmoidBwd>());
  registerKernel(std::make_unique<SoftmaxBwd>());
  registerKernel(std::make_unique<Concat>());
}

} // namespace qwen35::codegen::cpu
