// Kernels that treat every element alike: sums, products, gates, fills, copies.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"
#include "codegen/cuda/Layout.h"

#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr llvm::StringLiteral kHeader = "q35/elementwise.cuh";
constexpr int64_t kThreads = 256;

/// A stage that maps the elements of `tensors`, which all have one shape:
/// inputs, then outputs.
FailureOr<DeviceStage> mapStage(const KernelSpec &spec, StringRef function,
                                ArrayRef<MemRefType> tensors,
                                EmitError emitError) {
  constexpr int64_t kUnroll = 2, kOperands = 5;
  std::optional<Lines> lines = linesOf(tensors);
  if (!lines) {
    emitError() << spec.op << ": layouts of " << tensors.front()
                << " and the others do not merge to three dimensions";
    return failure();
  }
  bool dense = lines->outer * lines->rows == 1;
  int64_t vector = vectorOf(tensors);
  int64_t rowVectors = lines->columns / vector;
  int64_t vectors = lines->outer * lines->rows * rowVectors;
  DeviceStage stage;
  stage.header = kHeader;
  stage.function = function.str();
  stage.threads = kThreads;
  stage.blocks = std::max<int64_t>(
      1, llvm::divideCeil(vectors, kThreads * kUnroll));
  stage.constant("outer", lines->outer)
      .constant("rows", lines->rows)
      .constant("vector", vector)
      .constant("rowVectors", rowVectors)
      .constant("vectors", vectors)
      .constant("tail", dense ? lines->columns % vector : 0)
      .constant("unroll", kUnroll);
  if (!dense)
    for (int64_t i = 0; i < kOperands; ++i) {
      bool exists = i < static_cast<int64_t>(tensors.size());
      std::string number = std::to_string(i);
      stage.constant("rowStride" + number,
                     exists ? lines->strides[i].row : int64_t(0));
      stage.constant("outerStride" + number,
                     exists ? lines->strides[i].outer : int64_t(0));
    }
  return stage;
}

/// One op whose tensors all have one shape and type, after which f32 scalars
/// may follow.
struct ElementwiseOp {
  StringRef name;
  SmallVector<StringRef> inputs, scalars, outputs, attrs;
};

class Elementwise : public KernelFamily {
public:
  explicit Elementwise(ElementwiseOp op) : description(std::move(op)) {}
  StringRef op() const override { return description.name; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    const ElementwiseOp &op = description;
    size_t tensors = op.inputs.size();
    if (failed(requireCounts(spec, tensors + op.scalars.size(),
                             op.outputs.size(), emitError)) ||
        failed(requireAttrs(spec, op.attrs, emitError)))
      return failure();
    MemRefType shape = tensors ? spec.inputs[0] : spec.outputs[0];
    StringRef shapeName = tensors ? op.inputs[0] : op.outputs[0];
    SmallVector<Type> elements(floatTypes(spec));
    // The squares of a norm: what they start from, and sums of them.
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
      if (failed(requireType(spec, type, name, {},
                             Float32Type::get(type.getContext()), emitError)))
        return failure();
    for (auto [type, name] : llvm::zip(spec.outputs, op.outputs))
      if (failed(
              requireSameShape(spec, shape, shapeName, type, name, emitError)))
        return failure();
    SmallVector<MemRefType> types(ArrayRef(spec.inputs).take_front(tensors));
    types.append(spec.outputs);
    FailureOr<DeviceStage> stage = mapStage(spec, op.name, types, emitError);
    if (failed(stage))
      return failure();
    for (StringRef attr : op.attrs)
      stage->constant(attr, spec.number(attr));
    KernelPlan plan;
    plan.stages = {*stage};
    // All inputs of an element are read before its outputs are written.
    for (unsigned output = 0; output < op.outputs.size(); ++output)
      for (unsigned input = 0; input < tensors; ++input)
        plan.mayAlias.push_back({output, input});
    return plan;
  }

private:
  ElementwiseOp description;
};

/// y = x, rounded to the type of y.
struct Cast : KernelFamily {
  StringRef op() const override { return "cast"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 1, 1, emitError)) ||
        failed(requireType(spec, spec.inputs[0], "x", spec.outputs[0].getShape(),
                           floatTypes(spec), emitError)) ||
        failed(requireType(spec, spec.outputs[0], "y", spec.inputs[0].getShape(),
                           floatTypes(spec), emitError)))
      return failure();
    FailureOr<DeviceStage> stage = mapStage(
        spec, "cast", {spec.inputs[0], spec.outputs[0]}, emitError);
    if (failed(stage))
      return failure();
    KernelPlan plan;
    plan.stages = {*stage};
    return plan;
  }
};

/// A stage with a warp per row of tensors [.., columns], their strides by name.
FailureOr<DeviceStage>
rowStage(const KernelSpec &spec, StringRef function,
         ArrayRef<std::pair<StringRef, MemRefType>> tensors,
         ArrayRef<std::pair<StringRef, MemRefType>> scalars,
         EmitError emitError) {
  DeviceStage stage;
  stage.header = kHeader;
  stage.function = function.str();
  stage.threads = kThreads;
  SmallVector<MemRefType> types;
  auto addStride = [&](StringRef name, MemRefType type) -> LogicalResult {
    std::optional<int64_t> stride = rowStride(type);
    if (!stride)
      return emitError() << spec.op << ": the rows of " << name << " " << type
                         << " do not lie at one stride";
    stage.constant((name + "Stride").str(), *stride);
    return success();
  };
  for (auto [name, type] : tensors) {
    types.push_back(type);
    if (failed(addStride(name, type)))
      return failure();
  }
  for (auto [name, type] : scalars)
    if (failed(addStride(name, type)))
      return failure();
  MemRefType shape = types.front();
  stage.blocks = llvm::divideCeil(rowCount(shape), kThreads / 32);
  stage.constant("rows", rowCount(shape))
      .constant("columns", shape.getShape().back())
      .constant("vector", vectorOf(types));
  return stage;
}

/// x * sigmoid(gate), the gate shaped like x or one per row ([T,1]).
struct MulSigmoid : KernelFamily {
  StringRef op() const override { return "mul_sigmoid"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType x = spec.inputs[0], gate = spec.inputs[1], y = spec.outputs[0];
    if (failed(requireRows(spec, x, "x", floatTypes(spec), emitError)) ||
        failed(requireGate(spec, x, gate, emitError)) ||
        failed(requireSameShape(spec, x, "x", y, "y", emitError)))
      return failure();
    KernelPlan plan;
    plan.mayAlias = {{0, 0}};
    if (!isPerRow(x, gate))
      plan.mayAlias.push_back({0, 1});
    FailureOr<DeviceStage> stage =
        isPerRow(x, gate)
            ? rowStage(spec, "mul_sigmoid_rows", {{"x", x}, {"y", y}},
                       {{"gate", gate}}, emitError)
            : mapStage(spec, "mul_sigmoid", {x, gate, y}, emitError);
    if (failed(stage))
      return failure();
    plan.stages = {*stage};
    return plan;
  }

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

struct MulSigmoidBwd : KernelFamily {
  StringRef op() const override { return "mul_sigmoid_bwd"; }
  bool writesViews(unsigned) const override { return true; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 2, emitError)))
      return failure();
    MemRefType dy = spec.inputs[0], x = spec.inputs[1], gate = spec.inputs[2];
    MemRefType dx = spec.outputs[0], dgate = spec.outputs[1];
    if (failed(requireRows(spec, x, "x", floatTypes(spec), emitError)) ||
        failed(requireSameShape(spec, x, "x", dy, "dy", emitError)) ||
        failed(MulSigmoid::requireGate(spec, x, gate, emitError)) ||
        failed(requireSameShape(spec, x, "x", dx, "dx", emitError)) ||
        failed(requireSameShape(spec, gate, "gate", dgate, "dgate", emitError)))
      return failure();
    KernelPlan plan;
    plan.mayAlias = {{0, 0}, {0, 1}};
    bool perRow = MulSigmoid::isPerRow(x, gate);
    if (perRow)
      plan.mayAlias.push_back({1, 2});
    else
      plan.mayAlias.append({{0, 2}, {1, 0}, {1, 1}, {1, 2}});
    FailureOr<DeviceStage> stage =
        perRow ? rowStage(spec, "mul_sigmoid_rows_bwd",
                          {{"dy", dy}, {"x", x}, {"dx", dx}},
                          {{"gate", gate}, {"dgate", dgate}}, emitError)
               : mapStage(spec, "mul_sigmoid_bwd", {dy, x, gate, dx, dgate},
                          emitError);
    if (failed(stage))
      return failure();
    plan.stages = {*stage};
    return plan;
  }
};

/// dlogits = probs * (dprobs - sum of probs * dprobs) per row.
struct SoftmaxBwd : KernelFamily {
  StringRef op() const override { return "softmax_bwd"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 2, 1, emitError)))
      return failure();
    MemRefType dprobs = spec.inputs[0], probs = spec.inputs[1];
    MemRefType dlogits = spec.outputs[0];
    if (failed(requireRows(spec, probs, "probs", floatTypes(spec),
                           emitError)) ||
        failed(requireSameShape(spec, probs, "probs", dprobs, "dprobs",
                                emitError)) ||
        failed(requireSameShape(spec, probs, "probs", dlogits, "dlogits",
                                emitError)))
      return failure();
    FailureOr<DeviceStage> stage = rowStage(
        spec, "softmax_bwd",
        {{"dprobs", dprobs}, {"probs", probs}, {"dlogits", dlogits}}, {},
        emitError);
    if (failed(stage))
      return failure();
    KernelPlan plan;
    plan.stages = {*stage};
    plan.mayAlias = {{0, 0}, {0, 1}};
    return plan;
  }
};

/// Tensors one after another along {axis}.
struct Concat : KernelFamily {
  StringRef op() const override { return "concat"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
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
    if (failed(requireRows(spec, y, "y", floatTypes(spec), emitError)))
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
    return planParts(spec, axis, emitError);
  }

private:
  /// [outer, rows, columns]: the dimensions before the axis, those from it on
  /// but for the last, and the last.
  struct Part {
    int64_t outer, rows, columns, outerStride, rowStride;
  };

  static std::optional<Part> partOf(MemRefType type, int64_t axis) {
    int64_t last = type.getRank() - 1;
    std::optional<int64_t> outer = mergedStride(type, 0, axis);
    std::optional<int64_t> rows = mergedStride(type, axis, last);
    if (!outer || !rows)
      return std::nullopt;
    auto sizes = [&](int64_t from, int64_t to) {
      int64_t product = 1;
      for (int64_t d = from; d < to; ++d)
        product *= type.getDimSize(d);
      return product;
    };
    return Part{sizes(0, axis), sizes(axis, last), type.getDimSize(last),
                *outer, *rows};
  }

  static FailureOr<KernelPlan> planParts(const KernelSpec &spec, int64_t axis,
                                         EmitError emitError) {
    MemRefType y = spec.outputs[0];
    SmallVector<Part> parts;
    SmallVector<MemRefType> types(spec.inputs);
    types.push_back(y);
    for (MemRefType type : types) {
      std::optional<Part> part = partOf(type, axis);
      if (!part) {
        emitError() << "concat: dimensions of " << type
                    << " on one side of axis " << axis
                    << " do not lie at one stride";
        return failure();
      }
      parts.push_back(*part);
    }
    Part whole = parts.pop_back_val();
    int64_t vector = 16 / bytesOf(y.getElementType());
    auto limit = [&](int64_t multiple) {
      while (multiple % vector)
        vector /= 2;
    };
    limit(whole.outerStride);
    limit(whole.rowStride);
    for (const Part &part : parts)
      for (int64_t multiple : {part.columns, part.outerStride, part.rowStride})
        limit(multiple);

    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "concat";
    stage.threads = kThreads;
    stage.constant("vector", vector)
        .constant("outerStride", whole.outerStride)
        .constant("rowStride", whole.rowStride);
    llvm::raw_string_ostream out(stage.prologue);
    int64_t start = 0, vectors = 0;
    for (auto [number, part] : llvm::enumerate(parts)) {
      int64_t count = part.outer * part.rows * (part.columns / vector);
      out << "template <> struct q35::ConcatPart<" << number << "> {\n";
      auto member = [&](StringRef name, int64_t value) {
        out << "  static constexpr int64 " << name << " = " << value << ";\n";
      };
      member("start", start);
      member("rows", part.rows);
      member("rowVectors", part.columns / vector);
      member("vectors", count);
      member("outerStride", part.outerStride);
      member("rowStride", part.rowStride);
      out << "};\n";
      bool alongRow = axis == y.getRank() - 1;
      start += alongRow ? part.columns : part.rows * whole.rowStride;
      vectors += count;
    }
    stage.blocks = llvm::divideCeil(vectors, 2 * kThreads);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

std::vector<ElementwiseOp> elementwiseOps() {
  return {
      {"add", {"a", "b"}, {}, {"the sum"}, {}},
      {"scale", {"x"}, {}, {"y"}, {"factor"}},
      {"mul_scalar", {"x"}, {"s"}, {"y"}, {}},
      {"rescale_sum", {"sum", "from", "to"}, {}, {"the result"}, {}},
      {"copy", {"x"}, {}, {"y"}, {}},
      {"zeros", {}, {}, {"the result"}, {}},
      {"ones", {}, {}, {"the result"}, {}},
      {"swiglu", {"gate", "up"}, {}, {"y"}, {}},
      {"swiglu_bwd", {"dy", "gate", "up"}, {}, {"dgate", "dup"}, {}},
  };
}

} // namespace

void registerElementwiseKernels() {
  for (ElementwiseOp &op : elementwiseOps())
    registerKernel(std::make_unique<Elementwise>(std::move(op)));
  registerKernel(std::make_unique<Cast>());
  registerKernel(std::make_unique<MulSigmoid>());
  registerKernel(std::make_unique<MulSigmoidBwd>());
  registerKernel(std::make_unique<SoftmaxBwd>());
  registerKernel(std::make_unique<Concat>());
}

} // namespace qwen35::codegen::cuda
