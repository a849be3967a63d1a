// lm_loss and lm_loss_grad: linear head and cross entropy without logits of all
// tokens. A chunk of tokens at a time: logits by a product, their statistics
// and gradient in place by a block per row, then two products into dh and
// dweight. Products are the library's where the target has one; dweight of
// later chunks, and with {accumulate = true} of all, is added in place. A fifth
// operand `acc` then lies where dweight does.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Gemm.h"
#include "codegen/cuda/Layout.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr llvm::StringLiteral kHeader = "q35/loss.cuh";
constexpr int64_t kChunk = 4096; ///< Tokens: products want many, memory few.

LogicalResult checkLoss(const KernelSpec &spec, EmitError emitError) {
  MemRefType h = spec.inputs[0];
  Type f32 = Float32Type::get(h.getContext());
  Type i32 = IntegerType::get(h.getContext(), 32);
  if (failed(requireType(spec, h, "h", {kAny, kAny}, floatTypes(spec),
                         emitError)))
    return failure();
  int64_t tokens = h.getDimSize(0), columns = h.getDimSize(1);
  return success(
      succeeded(requireType(spec, spec.inputs[1], "weight", {kAny, columns},
                            h.getElementType(), emitError)) &&
      succeeded(requireType(spec, spec.inputs[2], "labels", {tokens}, i32,
                            emitError)) &&
      succeeded(requireType(spec, spec.inputs[3], "inv_count", {}, f32,
                            emitError)) &&
      succeeded(
          requireType(spec, spec.outputs[0], "loss", {}, f32, emitError)));
}

/// Shared memory that a block may have, less some for what kernels declare.
int64_t sharedLimit(const GpuTarget &target) {
  if (target.sm >= 120)
    return 96 << 10;
  return target.sm >= 90 ? 224 << 10 : 160 << 10;
}

/// The stages of one spec.
class Stages {
public:
  Stages(const KernelSpec &spec, const GpuTarget &target, bool gradient)
      : spec(spec), target(target), element(spec.inputs[0].getElementType()),
        gradient(gradient), accumulates(gradient && spec.flag("accumulate")),
        T(spec.inputs[0].getDimSize(0)), D(spec.inputs[0].getDimSize(1)),
        V(spec.inputs[1].getDimSize(0)), ldl(llvm::alignTo(V, 8)) {
    // At least two chunks, so that logits of all tokens never exist.
    int64_t chunks =
        std::max<int64_t>(T > 64 ? 2 : 1, llvm::divideCeil(T, kChunk));
    chunk = llvm::alignTo(llvm::divideCeil(T, chunks), 64);
    workspace.take(std::min(chunk, T) * ldl * bytesOf(element));
    nll = workspace.take(T * 4);
    if (target.libraryGemm)
      gemmWorkspace = workspace.take(kGemmWorkspace);
  }

  KernelPlan plan() {
    KernelPlan plan;
    for (first = 0; first < T; first += chunk) {
      tokens = std::min(chunk, T - first);
      addLogits(plan);
      addRows(plan);
      if (gradient)
        addGradients(plan);
    }
    DeviceStage total = kernel("lm_loss_total", 1, 256);
    total.constant("allTokens", T);
    plan.stages.push_back(total);
    plan.workspaceBytes = workspace.bytes();
    if (accumulates)
      plan.mayAlias = {{2, 4}};
    return plan;
  }

private:
  // Arguments by number: h, weight, labels, inv_count, (acc,) loss, dh,
  // dweight, workspace.
  unsigned loss() const { return accumulates ? 5 : 4; }
  unsigned dh() const { return loss() + 1; }
  unsigned dweight() const { return loss() + 2; }
  unsigned scratch() const { return loss() + (gradient ? 3 : 1); }

  DeviceStage kernel(StringRef function, int64_t blocks, int threads) const {
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = function.str();
    stage.blocks = blocks;
    stage.threads = threads;
    stage.constant("threads", threads).constant("nll", nll);
    return stage;
  }

  void addRows(KernelPlan &plan) const {
    int64_t vectors = V / (16 / bytesOf(element));
    // Of the gradient, a block that fills a multiprocessor: the rows of all of
    // them and the shared memory together are about what L2 holds.
    int threads = gradient && vectors >= 8192 ? 1024 : 256;
    DeviceStage stage = kernel(gradient ? "lm_loss_gradient" : "lm_loss_row",
                               tokens, threads);
    stage.constant("vocab", V).constant("ldl", ldl).constant("first", first);
    if (gradient) {
      int64_t step = int64_t(threads) * 16;
      int64_t cached = std::min<int64_t>(llvm::divideCeil(vectors, threads),
                                         sharedLimit(target) / step);
      stage.constant("cached", cached);
      stage.sharedBytes = cached * step;
    }
    plan.stages.push_back(stage);
  }

  /// What the products of a chunk have in common.
  GemmStage product(int64_t m, int64_t n, int64_t k) const {
    GemmStage product;
    product.m = m;
    product.n = n;
    product.k = k;
    product.typeA = product.typeB = product.typeD = element;
    product.workspace = {scratch(), gemmWorkspace};
    product.workspaceBytes = kGemmWorkspace;
    return product;
  }

  void add(KernelPlan &plan, const GemmStage &product, StringRef function,
           int64_t ldc = 0) const {
    if (target.libraryGemm) {
      plan.stages.push_back(product);
      return;
    }
    DeviceStage stage = ownProduct(product);
    stage.header = kHeader;
    stage.function = function.str();
    stage.constant("first", first).constant("ldc", ldc);
    plan.stages.push_back(stage);
  }

  int64_t stride(unsigned input) const {
    return leadingDimension(spec.inputs[input]);
  }
  int64_t rowOffset(MemRefType matrix) const {
    return first * leadingDimension(matrix) * bytesOf(matrix.getElementType());
  }

  /// logits = h weight^T
  void addLogits(KernelPlan &plan) const {
    GemmStage logits = product(tokens, V, D);
    logits.transB = true;
    logits.a = {0, rowOffset(spec.inputs[0])};
    logits.b = {1};
    logits.d = {scratch()};
    logits.lda = stride(0);
    logits.ldb = stride(1);
    logits.ldd = ldl;
    add(plan, logits, "lm_loss_logits");
  }

  /// dh = dlogits weight, dweight (+)= dlogits^T h
  void addGradients(KernelPlan &plan) const {
    GemmStage rows = product(tokens, D, V);
    rows.a = {scratch()};
    rows.b = {1};
    rows.d = {dh(), rowOffset(spec.outputs[1])};
    rows.lda = ldl;
    rows.ldb = stride(1);
    rows.ldd = leadingDimension(spec.outputs[1]);
    add(plan, rows, "lm_loss_dh");

    GemmStage weight = product(V, D, tokens);
    weight.transA = true;
    weight.typeD = spec.outputs[2].getElementType();
    weight.a = {scratch()};
    weight.b = {0, rowOffset(spec.inputs[0])};
    weight.d = {dweight()};
    weight.lda = ldl;
    weight.ldb = stride(0);
    weight.ldd = leadingDimension(spec.outputs[2]);
    weight.accumulate = accumulates || first > 0;
    add(plan, weight, "lm_loss_dw",
        accumulates && first == 0 ? stride(4) : weight.ldd);
  }

  const KernelSpec &spec;
  const GpuTarget &target;
  Type element;
  bool gradient, accumulates;
  int64_t T, D, V, ldl;
  int64_t chunk = 0; ///< Tokens whose logits exist at a time.
  Workspace workspace;
  int64_t nll = 0, gemmWorkspace = 0;
  int64_t first = 0, tokens = 0; ///< Of the chunk at hand.
};

struct LmLoss : KernelFamily {
  StringRef op() const override { return "lm_loss"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 4, 1, emitError)) ||
        failed(checkLoss(spec, emitError)))
      return failure();
    return Stages(spec, target, /*gradient=*/false).plan();
  }
};

struct LmLossGrad : KernelFamily {
  StringRef op() const override { return "lm_loss_grad"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 5 : 4, 3, emitError)) ||
        failed(checkLoss(spec, emitError)) ||
        failed(requireSameShape(spec, spec.outputs[1], "dh", spec.inputs[0],
                                "h", emitError)) ||
        failed(requireType(spec, spec.outputs[2], "dweight",
                           spec.inputs[1].getShape(),
                           Float32Type::get(spec.inputs[0].getContext()),
                           emitError)) ||
        (accumulates && failed(requireSameShape(spec, spec.outputs[2],
                                                "dweight", spec.inputs[4],
                                                "acc", emitError))))
      return failure();
    return Stages(spec, target, /*gradient=*/true).plan();
  }
};

} // namespace

void registerLossKernels() {
  registerKernel(std::make_unique<LmLoss>());
  registerKernel(std::make_unique<LmLossGrad>());
}

} // namespace qwen35::codegen::cuda
