// moe_experts and moe_experts_bwd; see q35/moe.cuh and q35/moe_hopper.cuh. With
// {accumulate = true} the gradients of the parameters are added to two more
// operands, which are laid out as they are. With {squares = true} there is one
// more result, the sum of the squares of both, as they are stored. With {shard}
// the slots of expert -1 are another rank's.
//
// Vectors of 16 bytes are used where columns and strides fill them; views are
// expected to start at multiples of 8 elements then.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Kernel.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

using llvm::divideCeil;

/// Hands out aligned pieces of the workspace.
class Layout {
public:
  int64_t take(int64_t size) {
    int64_t at = bytes;
    bytes += llvm::alignTo(size, 256);
    return at;
  }
  int64_t bytes = 0;
};

struct Shape {
  Type element;
  int64_t T, D, K, E, I;

  /// Operands x, weights, idx, w_gate_up, w_down from `first` on.
  Shape(const KernelSpec &spec, unsigned first)
      : element(spec.inputs[first].getElementType()),
        T(spec.inputs[first].getDimSize(0)),
        D(spec.inputs[first].getDimSize(1)),
        K(spec.inputs[first + 1].getDimSize(1)),
        E(spec.inputs[first + 3].getDimSize(0)),
        I(spec.inputs[first + 4].getDimSize(2)) {}

  int64_t slots() const { return T * K; }
  int64_t planBlocks() const { return divideCeil(slots(), 512); }
  int64_t maxRowTiles() const {
    return divideCeil(slots(), 128) + std::min(E, slots());
  }
  /// With the empty rows that fill experts up to a multiple of 64.
  int64_t rows() const { return slots() + std::min(E, slots()) * 63; }
  /// Ints of q35::RoutePlan.
  int64_t planInts() const {
    return E * planBlocks() + 2 * E + 1 + 2 * maxRowTiles() + rows() + slots();
  }
};

LogicalResult checkOperands(const KernelSpec &spec, unsigned first,
                            EmitError emitError) {
  MLIRContext *context = spec.inputs[0].getContext();
  Type f32 = Float32Type::get(context), i32 = IntegerType::get(context, 32);
  if (failed(requireType(spec, spec.inputs[first], "x", {kAny, kAny},
                         floatTypes(spec), emitError)))
    return failure();
  Type element = spec.inputs[first].getElementType();
  int64_t T = spec.inputs[first].getDimSize(0);
  int64_t D = spec.inputs[first].getDimSize(1);
  if (failed(requireType(spec, spec.inputs[first + 1], "weights", {T, kAny},
                         f32, emitError)) ||
      failed(requireType(spec, spec.inputs[first + 2], "idx",
                         {T, spec.inputs[first + 1].getDimSize(1)}, i32,
                         emitError)) ||
      failed(requireType(spec, spec.inputs[first + 3], "w_gate_up",
                         {kAny, kAny, D}, element, emitError)))
    return failure();
  MemRefType gateUp = spec.inputs[first + 3];
  if (failed(requireType(spec, spec.inputs[first + 4], "w_down",
                         {gateUp.getDimSize(0), D, gateUp.getDimSize(1) / 2},
                         element, emitError)))
    return failure();
  if (Shape(spec, first).slots() > INT32_MAX / 2)
    return emitError() << spec.op << ": " << T << " tokens times "
                       << spec.inputs[first + 1].getDimSize(1)
                       << " experts are more rows than 32 bits count";
  auto outOfReach = [](MemRefType type, int64_t lines) {
    return stridesOf(type)[type.getRank() - 2] * lines > INT32_MAX;
  };
  if (outOfReach(spec.inputs[first], T) ||
      outOfReach(gateUp, gateUp.getDimSize(1)))
    return emitError() << spec.op << ": x or one expert spans more than 2^31 "
                          "elements";
  return success();
}

/// The stages of one op, which share constants.
class Builder {
public:
  Builder(const KernelSpec &spec, const GpuTarget &target, unsigned first,
          bool backward)
      : target(target), s(spec, first) {
    int64_t size = bytesOf(s.element), rows = s.rows();
    hopper = target.hopper && fitsHopper(spec, first);
    int64_t partColumns = hopper ? 256 : 64;
    int64_t parts = hopper ? divideCeil(s.I, 256) : 2 * divideCeil(s.I, 128);
    Layout layout;
    layout.take(s.planInts() * 4);
    int64_t gateUpAt = backward ? layout.take(rows * 2 * s.I * size) : 0;
    int64_t hAt = layout.take(rows * s.I * size);
    int64_t outAt = layout.take(rows * s.D * size);
    int64_t partialAt = backward ? layout.take(rows * parts * 4) : 0;
    int64_t mapsAt = hopper ? layout.take(8 * 128) : 0;
    squares = backward && spec.flag("squares");
    int64_t gateUpSums = 0, sums = 0, squaresAt = 0;
    if (squares) { // One of each warp.
      gateUpSums = 8 * gradientBlocks(2 * s.I, s.D);
      sums = gateUpSums + 8 * gradientBlocks(s.D, s.I);
      squaresAt = layout.take(sums * 8);
    }
    plan.workspaceBytes = layout.bytes;

    auto inputStrides = [&](unsigned number) {
      return stridesOf(spec.inputs[number]);
    };
    auto x = inputStrides(first), weights = inputStrides(first + 1);
    auto idx = inputStrides(first + 2), gateUp = inputStrides(first + 3);
    auto down = inputStrides(first + 4), y = stridesOf(spec.outputs[0]);
    auto fills = [&](int64_t elements) { return elements * size % 16 == 0; };
    bool vectorHidden = fills(s.D) && fills(x[0]) && fills(y[0]) &&
                        fills(gateUp[0]) && fills(gateUp[1]);
    bool vectorWidth = fills(s.I) && fills(down[0]) && fills(down[1]);
    constant("tokens", s.T).constant("hidden", s.D).constant("topK", s.K);
    constant("experts", s.E).constant("width", s.I).constant("parts", parts);
    constant("partColumns", partColumns).constant("mapsAt", mapsAt);
    constant("gateUpAt", gateUpAt).constant("hAt", hAt);
    constant("outAt", outAt).constant("partialAt", partialAt);
    constant("xStride", x[0]).constant("weightsStride", weights[0]);
    constant("idxStride", idx[0]).constant("yStride", y[0]);
    constant("gateUpExpert", gateUp[0]).constant("gateUpStride", gateUp[1]);
    constant("downExpert", down[0]).constant("downStride", down[1]);
    if (backward) {
      auto dy = inputStrides(0), dweights = stridesOf(spec.outputs[1]);
      auto dGateUp = stridesOf(spec.outputs[2]);
      auto dDown = stridesOf(spec.outputs[3]);
      vectorHidden &= fills(dy[0]);
      auto pairs = [](int64_t columns, llvm::ArrayRef<int64_t> strides) {
        return columns % 2 == 0 && strides[0] % 2 == 0 && strides[1] % 2 == 0;
      };
      constant("dyStride", dy[0]).constant("dweightsStride", dweights[0]);
      constant("dGateUpExpert", dGateUp[0]);
      constant("dGateUpStride", dGateUp[1]);
      constant("dDownExpert", dDown[0]).constant("dDownStride", dDown[1]);
      constants.constant("accumulate", spec.flag("accumulate"));
      constants.constant("pairsGateUp", pairs(s.D, dGateUp));
      constants.constant("pairsDown", pairs(s.I, dDown));
      constant("squaresAt", squaresAt).constant("squareSums", sums);
      constant("downSquares", gateUpSums);
    }
    constants.constant("squares", squares);
    constants.constant("vectorHidden", vectorHidden);
    constants.constant("vectorWidth", vectorWidth);
    constants.constant("backward", backward);
    constants.constant("shard", spec.flag("shard"));
  }

  /// Which rows belong to which expert.
  void addPlan() {
    if (hopper)
      add("moe_plan_count_hopper", s.planBlocks() + 1, s.E * 4);
    else
      add("moe_plan_count", s.planBlocks(), s.E * 4);
    add("moe_plan_scan", divideCeil(s.E, 8), 0);
    add("moe_plan_rows", s.planBlocks(), (512 + 16 + 2 * s.E) * 4);
  }

  /// A product of all rows, with tiles of `tileColumns` of its `columns`, and
  /// twice as many on Hopper.
  void addRows(StringRef function, int64_t columns, int64_t tileColumns,
               int64_t flopsPerRow) {
    if (hopper)
      tileColumns *= 2;
    addProduct(function, s.maxRowTiles() * divideCeil(columns, tileColumns),
               flopsPerRow, /*gradient=*/false);
  }

  /// The gradient of an [E, M, N] parameter.
  void addGradient(StringRef function, int64_t M, int64_t N) {
    addProduct(function, gradientTiles(M, N), 2 * M * N, /*gradient=*/true);
  }

  void addCombine() {
    int64_t perThread = 16 / bytesOf(s.element);
    DeviceStage &stage = add("moe_combine", s.T + squares, 0);
    stage.threads = static_cast<int>(std::clamp<int64_t>(
        llvm::alignTo(divideCeil(s.D, perThread), 32), 32, 256));
    stage.constant("threads", stage.threads);
  }

  KernelPlan plan;
  const Shape &shape() const { return s; }

private:
  /// What q35/moe_hopper.cuh asks of operands. Boxes take any strides that are
  /// multiples of 16 bytes.
  static bool fitsHopper(const KernelSpec &spec, unsigned first) {
    Shape s(spec, first);
    if (!s.element.isBF16() || s.D % 64 != 0 || s.I % 64 != 0)
      return false;
    auto fills = [](MemRefType type) {
      return llvm::all_of(llvm::ArrayRef(stridesOf(type)).drop_back(),
                          [](int64_t stride) { return stride % 8 == 0; });
    };
    MemRefType gateUp = spec.inputs[first + 3];
    return fills(spec.inputs[0]) && fills(spec.inputs[first]) &&
           fills(gateUp) && fills(spec.inputs[first + 4]) &&
           fills(spec.outputs[0]) &&
           // Gradients of the parameters, where there are any.
           (first == 0 ||
            llvm::all_of(llvm::ArrayRef(spec.outputs).slice(2, 2), fills)) &&
           stridesOf(gateUp)[0] == 2 * s.I * stridesOf(gateUp)[1];
  }

  int64_t gradientTiles(int64_t M, int64_t N) const {
    return s.E * divideCeil(M, 128) * divideCeil(N, hopper ? 256 : 128);
  }

  int64_t blocksPerMultiprocessor() const {
    return !hopper && s.element.isBF16() ? 2 : 1;
  }

  int64_t productBlocks(int64_t tiles) const {
    return std::min<int64_t>(tiles,
                             blocksPerMultiprocessor() * target.multiprocessors);
  }

  int64_t gradientBlocks(int64_t M, int64_t N) const {
    return productBlocks(gradientTiles(M, N));
  }

  DeviceStage &constant(StringRef name, int64_t value) {
    return constants.constant(name, value);
  }

  DeviceStage &add(llvm::StringRef function, int64_t blocks, int64_t sharedBytes) {
    DeviceStage stage;
    stage.header = hopper ? "q35/moe_hopper.cuh" : "q35/moe.cuh";
    stage.function = function.str();
    stage.blocks = blocks;
    stage.threads = 256;
    stage.sharedBytes = sharedBytes;
    stage.constants = constants.constants;
    plan.stages.push_back(stage);
    return std::get<DeviceStage>(plan.stages.back());
  }

  void addProduct(StringRef function, int64_t maxTiles, int64_t flopsPerRow,
                  bool gradient) {
    // Of q35::TileProduct, or MoeRowsShared and MoeGradientShared.
    int64_t sharedBytes = 3 * (128 + 128) * 128;
    if (hopper)
      sharedBytes =
          128 + 4 * (128 + 256) * 128 + (gradient ? 0 : 8 * 16 * 272);
    DeviceStage &stage =
        add(hopper ? (function + "_hopper").str() : function.str(),
            productBlocks(maxTiles), sharedBytes);
    stage.threads = hopper ? 384 : 256;
    stage.minBlocks = static_cast<int>(blocksPerMultiprocessor());
    stage.flops = double(s.slots()) * double(flopsPerRow);
  }

  const GpuTarget &target;
  Shape s;
  bool hopper = false; ///< The products, with wgmma.
  bool squares = false;
  DeviceStage constants; // Only those.
};

class MoeExperts : public KernelFamily {
public:
  StringRef op() const override { return "moe_experts"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 1, emitError)) ||
        failed(checkOperands(spec, 0, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[0], "x", spec.outputs[0],
                                "y", emitError)))
      return failure();
    Builder b(spec, target, 0, false);
    const Shape &s = b.shape();
    b.addPlan();
    b.addRows("moe_up", s.I, 64, 4 * s.D * s.I);
    b.addRows("moe_down", s.D, 128, 2 * s.D * s.I);
    b.addCombine();
    return b.plan;
  }
};

class MoeExpertsBwd : public KernelFamily {
public:
  StringRef op() const override { return "moe_experts_bwd"; }
  llvm::ArrayRef<unsigned> squares() const override {
    static constexpr unsigned weights[] = {2, 3};
    return weights;
  }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate"), squares = spec.flag("squares");
    if (failed(requireCounts(spec, accumulates ? 8 : 6, squares ? 5 : 4,
                             emitError)) ||
        failed(checkOperands(spec, 1, emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "x", spec.inputs[0],
                                "dy", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[1], "x", spec.outputs[0],
                                "dx", emitError)) ||
        failed(requireSameShape(spec, spec.inputs[2], "weights",
                                spec.outputs[1], "dweights", emitError)))
      return failure();
    Type f32 = Float32Type::get(spec.inputs[0].getContext());
    if (failed(requireType(spec, spec.outputs[2], "dw_gate_up",
                           spec.inputs[4].getShape(), f32, emitError)) ||
        failed(requireType(spec, spec.outputs[3], "dw_down",
                           spec.inputs[5].getShape(), f32, emitError)))
      return failure();
    if (squares &&
        failed(requireType(spec, spec.outputs[4], "squares", {},
                           Float64Type::get(f32.getContext()), emitError)))
      return failure();
    for (unsigned i : {0, 1})
      if (accumulates && spec.inputs[6 + i] != spec.outputs[2 + i])
        return emitError() << "moe_experts_bwd: " << spec.inputs[6 + i]
                           << " is to become " << spec.outputs[2 + i];
    Builder b(spec, target, 1, true);
    const Shape &s = b.shape();
    b.addPlan();
    b.addRows("moe_up", s.I, 64, 4 * s.D * s.I);
    b.addRows("moe_down_bwd", s.I, 128, 2 * s.D * s.I);
    b.addRows("moe_up_bwd", s.D, 128, 4 * s.D * s.I);
    b.addGradient("moe_gate_up_gradient", 2 * s.I, s.D);
    b.addGradient("moe_down_gradient", s.D, s.I);
    b.addCombine();
    if (accumulates)
      b.plan.mayAlias = {{2, 6}, {3, 7}};
    return b.plan;
  }
};

} // namespace

void registerMoeKernels() {
  registerKernel(std::make_unique<MoeExperts>());
  registerKernel(std::make_unique<MoeExpertsBwd>());
}

} // namespace qwen35::codegen::cuda
