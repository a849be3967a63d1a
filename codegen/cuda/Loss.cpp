// lm_loss and lm_loss_grad: linear head and cross entropy without logits of all
// tokens. A chunk of tokens at a time: logits by a product, their statistics
// and gradient in place by a block per row, then two products into dh and
// dweight. Products are the library's where the target has one; dweight of
// later chunks, and with {accumulate = true} of all, is added in place. One more
// operand `acc` then lies where dweight does.
//
// lm_stats, lm_stats_loss and lm_stats_grad are the same for a head whose rows
// are split over ranks. Labels count from the rank's first row: -1 is a row of
// another rank, which has the target logit, -100 no target.

#include "codegen/cuda/Families.h"
#include "codegen/cuda/Gemm.h"
#include "codegen/cuda/Layout.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

constexpr llvm::StringLiteral kHeader = "q35/loss.cuh";
constexpr int64_t kChunk = 4096; ///< Tokens: products want many, memory few.

LogicalResult checkHead(const KernelSpec &spec, EmitError emitError) {
  MemRefType h = spec.inputs[0];
  if (failed(requireType(spec, h, "h", {kAny, kAny}, floatTypes(spec),
                         emitError)))
    return failure();
  int64_t tokens = h.getDimSize(0), columns = h.getDimSize(1);
  return success(
      succeeded(requireType(spec, spec.inputs[1], "weight", {kAny, columns},
                            h.getElementType(), emitError)) &&
      succeeded(requireType(spec, spec.inputs[2], "labels", {tokens},
                            IntegerType::get(h.getContext(), 32), emitError)));
}

/// Statistics are f32: one per token, or a scalar.
LogicalResult checkStats(const KernelSpec &spec, MemRefType type,
                         StringRef what, ArrayRef<int64_t> shape,
                         EmitError emitError) {
  return requireType(spec, type, what, shape,
                     Float32Type::get(type.getContext()), emitError);
}

LogicalResult checkLoss(const KernelSpec &spec, EmitError emitError) {
  return success(
      succeeded(checkHead(spec, emitError)) &&
      succeeded(
          checkStats(spec, spec.inputs[3], "inv_count", {}, emitError)) &&
      succeeded(checkStats(spec, spec.outputs[0], "loss", {}, emitError)));
}

/// dh and dweight from output `first` on, and what dweight is added to.
LogicalResult checkGradients(const KernelSpec &spec, unsigned first,
                             EmitError emitError) {
  MemRefType dweight = spec.outputs[first + 1];
  return success(
      succeeded(requireSameShape(spec, spec.outputs[first], "dh",
                                 spec.inputs[0], "h", emitError)) &&
      succeeded(requireType(spec, dweight, "dweight",
                            spec.inputs[1].getShape(),
                            Float32Type::get(dweight.getContext()),
                            emitError)) &&
      (!spec.flag("accumulate") ||
       succeeded(requireSameShape(spec, dweight, "dweight", spec.inputs.back(),
                                  "acc", emitError))));
}

/// Shared memory that a block may have, less some for what kernels declare.
int64_t sharedLimit(const GpuTarget &target) {
  if (target.sm >= 120)
    return 96 << 10;
  return target.sm >= 90 ? 224 << 10 : 160 << 10;
}

/// The stages of one spec. Functions have the name of the op and of what they
/// do.
class Stages {
public:
  Stages(const KernelSpec &spec, const GpuTarget &target, bool gradient,
         bool stats = false)
      : spec(spec), target(target), element(spec.inputs[0].getElementType()),
        gradient(gradient), stats(stats),
        accumulates(gradient && spec.flag("accumulate")),
        prefix(!stats     ? "lm_loss_"
               : gradient ? "lm_stats_grad_"
                          : "lm_stats_"),
        T(spec.inputs[0].getDimSize(0)), D(spec.inputs[0].getDimSize(1)),
        V(spec.inputs[1].getDimSize(0)), ldl(llvm::alignTo(V, 8)) {
    // At least two chunks, so that logits of all tokens never exist.
    int64_t chunks =
        std::max<int64_t>(T > 64 ? 2 : 1, llvm::divideCeil(T, kChunk));
    chunk = llvm::alignTo(llvm::divideCeil(T, chunks), 64);
    workspace.take(std::min(chunk, T) * ldl * bytesOf(element));
    if (!stats)
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
    if (!stats) {
      DeviceStage total = kernel("total", 1, 256);
      total.constant("allTokens", T);
      plan.stages.push_back(total);
    }
    plan.workspaceBytes = workspace.bytes();
    if (accumulates)
      plan.mayAlias = {{dweightOutput(), unsigned(spec.inputs.size()) - 1}};
    return plan;
  }

private:
  // Arguments by number: inputs (h, weight, labels, inv_count or statistics and
  // acc), outputs (loss or statistics; dh, dweight), workspace.
  unsigned dweightOutput() const { return spec.outputs.size() - 1; }
  unsigned dweight() const { return spec.inputs.size() + dweightOutput(); }
  unsigned dh() const { return dweight() - 1; }
  unsigned scratch() const { return spec.inputs.size() + spec.outputs.size(); }

  DeviceStage kernel(StringRef function, int64_t blocks, int threads) const {
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = prefix + function.str();
    stage.blocks = blocks;
    stage.threads = threads;
    stage.constant("threads", threads).constant("nll", nll);
    return stage;
  }

  void addRows(KernelPlan &plan) const {
    int64_t vectors = V / (16 / bytesOf(element));
    // Of the gradient, a block that fills a multiprocessor: the rows of all of
    // them and the shared memory together are about what L2 holds. With
    // statistics at hand a row is read once.
    bool twice = gradient && !stats;
    int threads = twice && vectors >= 8192 ? 1024 : 256;
    DeviceStage stage =
        kernel(gradient ? "gradient" : "row", tokens, threads);
    stage.constant("vocab", V).constant("ldl", ldl).constant("first", first);
    if (twice) {
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
    stage.function = prefix + function.str();
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
    add(plan, logits, "logits");
  }

  /// dh = dlogits weight, dweight (+)= dlogits^T h
  void addGradients(KernelPlan &plan) const {
    GemmStage rows = product(tokens, D, V);
    rows.a = {scratch()};
    rows.b = {1};
    MemRefType dhType = spec.outputs[dweightOutput() - 1];
    rows.d = {dh(), rowOffset(dhType)};
    rows.lda = ldl;
    rows.ldb = stride(1);
    rows.ldd = leadingDimension(dhType);
    add(plan, rows, "dh");

    GemmStage weight = product(V, D, tokens);
    weight.transA = true;
    weight.typeD = spec.outputs[dweightOutput()].getElementType();
    weight.a = {scratch()};
    weight.b = {0, rowOffset(spec.inputs[0])};
    weight.d = {dweight()};
    weight.lda = ldl;
    weight.ldb = stride(0);
    weight.ldd = leadingDimension(spec.outputs[dweightOutput()]);
    weight.accumulate = accumulates || first > 0;
    add(plan, weight, "dw",
        accumulates && first == 0 ? stride(spec.inputs.size() - 1)
                                  : weight.ldd);
  }

  const KernelSpec &spec;
  const GpuTarget &target;
  Type element;
  bool gradient, stats, accumulates;
  std::string prefix;
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
        failed(checkGradients(spec, 1, emitError)))
      return failure();
    return Stages(spec, target, /*gradient=*/true).plan();
  }
};

struct LmStats : KernelFamily {
  StringRef op() const override { return "lm_stats"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 3, 3, emitError)) ||
        failed(checkHead(spec, emitError)))
      return failure();
    StringRef names[] = {"highest", "sum", "target"};
    for (auto [type, name] : llvm::zip_equal(spec.outputs, names))
      if (failed(checkStats(spec, type, name, {spec.inputs[0].getDimSize(0)},
                            emitError)))
        return failure();
    return Stages(spec, target, /*gradient=*/false, /*stats=*/true).plan();
  }
};

struct LmStatsLoss : KernelFamily {
  StringRef op() const override { return "lm_stats_loss"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &,
                             EmitError emitError) const override {
    if (failed(requireCounts(spec, 5, 1, emitError)))
      return failure();
    MemRefType labels = spec.inputs[0];
    if (failed(requireType(spec, labels, "labels", {kAny},
                           IntegerType::get(labels.getContext(), 32),
                           emitError)) ||
        failed(checkStats(spec, spec.inputs[1], "inv_count", {}, emitError)))
      return failure();
    int64_t tokens = labels.getDimSize(0);
    StringRef names[] = {"highest", "sum", "target"};
    for (auto [type, name] :
         llvm::zip_equal(ArrayRef(spec.inputs).drop_front(2), names))
      if (failed(checkStats(spec, type, name, {tokens}, emitError)))
        return failure();
    if (failed(checkStats(spec, spec.outputs[0], "loss", {}, emitError)))
      return failure();
    DeviceStage stage;
    stage.header = kHeader;
    stage.function = "lm_stats_loss";
    stage.threads = 256;
    stage.constant("threads", stage.threads).constant("allTokens", tokens);
    KernelPlan plan;
    plan.stages = {stage};
    return plan;
  }
};

struct LmStatsGrad : KernelFamily {
  StringRef op() const override { return "lm_stats_grad"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 7 : 6, 2, emitError)) ||
        failed(checkHead(spec, emitError)) ||
        failed(checkStats(spec, spec.inputs[3], "inv_count", {}, emitError)))
      return failure();
    int64_t tokens = spec.inputs[0].getDimSize(0);
    if (failed(checkStats(spec, spec.inputs[4], "highest", {tokens},
                          emitError)) ||
        failed(checkStats(spec, spec.inputs[5], "sum", {tokens}, emitError)) ||
        failed(checkGradients(spec, 0, emitError)))
      return failure();
    return Stages(spec, target, /*gradient=*/true, /*stats=*/true).plan();
  }
};

} // namespace

void registerLossKernels() {
  registerKernel(std::make_unique<LmLoss>());
  registerKernel(std::make_unique<LmLossGrad>());
  registerKernel(std::make_unique<LmStats>());
  registerKernel(std::make_unique<LmStatsLoss>());
  registerKernel(std::make_unique<LmStatsGrad>());
}

} // namespace qwen35::codegen::cuda
