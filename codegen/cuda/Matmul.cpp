// linear: out = x w^T, the forward product of every projection.
// matmul: out = a b with either operand transposed, for their gradients.
// Both take a third operand `acc` with {accumulate = true}: out = acc +
// product.
//
// The library makes the products where the target has one. It adds to what the
// result holds, so `acc` must lie where the result does, as the lowering to
// kernels has it. Products with a vector (the gate of the shared expert) are
// passes over one matrix, for which it is no good: they are kernels of our own.

#include "codegen/cuda/Cost.h"
#include "codegen/cuda/Families.h"
#include "codegen/cuda/Gemm.h"
#include "codegen/cuda/Layout.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

int64_t leadingDimension(MemRefType matrix) {
  return std::max(stridesOf(matrix)[0], matrix.getDimSize(1));
}

DeviceStage ownProduct(const GemmStage &product) {
  constexpr int64_t kTile = 64;
  auto vector = [](Type type, int64_t stride, int64_t columns) {
    int64_t elements = 16 / bytesOf(type);
    return stride % elements == 0 && columns % elements == 0;
  };
  DeviceStage stage;
  stage.header = "q35/matmul.cuh";
  stage.threads = 128;
  stage.sharedBytes = 3 * 2 * kTile * 128;
  stage.blocks =
      llvm::divideCeil(product.m, kTile) * llvm::divideCeil(product.n, kTile);
  StageCost cost = costOf(product);
  stage.flops = cost.flops;
  stage.bytes = cost.bytes;
  stage.constant("m", product.m)
      .constant("n", product.n)
      .constant("k", product.k)
      .constant("transA", product.transA)
      .constant("transB", product.transB)
      .constant("lda", product.lda)
      .constant("ldb", product.ldb)
      .constant("ldd", product.ldd)
      .constant("vectorA", vector(product.typeA, product.lda,
                                  product.transA ? product.m : product.k))
      .constant("vectorB", vector(product.typeB, product.ldb,
                                  product.transB ? product.k : product.n));
  return stage;
}

namespace {

class Product : public KernelFamily {
public:
  explicit Product(bool isLinear) : isLinear(isLinear) {}

  StringRef op() const override { return isLinear ? "linear" : "matmul"; }

  FailureOr<KernelPlan> plan(const KernelSpec &spec, const GpuTarget &target,
                             EmitError emitError) const override {
    bool accumulates = spec.flag("accumulate");
    if (failed(requireCounts(spec, accumulates ? 3 : 2, 1, emitError)) ||
        failed(checkOperands(spec, accumulates, emitError)))
      return failure();
    GemmStage product = describe(spec, accumulates);
    KernelPlan plan;
    if (accumulates)
      plan.mayAlias = {{0, 2}};
    if (planVector(spec, product, target, plan))
      return plan;
    if (target.libraryGemm) {
      product.workspaceBytes = plan.workspaceBytes = kGemmWorkspace;
      plan.stages = {product};
      return plan;
    }
    DeviceStage stage = ownProduct(product);
    finish(spec, stage, "matmul", accumulates);
    plan.stages = {stage};
    return plan;
  }

private:
  bool transposesLeft(const KernelSpec &spec) const {
    return !isLinear && spec.flag("transpose_a");
  }
  bool transposesRight(const KernelSpec &spec) const {
    return isLinear || spec.flag("transpose_b");
  }

  LogicalResult checkOperands(const KernelSpec &spec, bool accumulates,
                              EmitError emitError) const {
    const char *left = isLinear ? "x" : "a", *right = isLinear ? "w" : "b";
    MemRefType a = spec.inputs[0], b = spec.inputs[1];
    Type element = a.getElementType();
    if (failed(requireType(spec, a, left, {kAny, kAny}, floatTypes(spec),
                           emitError)) ||
        failed(requireType(spec, b, right, {kAny, kAny}, element, emitError)))
      return failure();
    bool transA = transposesLeft(spec), transB = transposesRight(spec);
    int64_t m = a.getDimSize(transA ? 1 : 0), n = b.getDimSize(transB ? 0 : 1);
    int64_t k = a.getDimSize(transA ? 0 : 1);
    int64_t depth = b.getDimSize(transB ? 1 : 0);
    if (k != depth)
      return emitError() << op() << ": " << left << " has " << k
                         << " elements along the sum but " << right << " has "
                         << depth;
    MemRefType result = spec.outputs[0];
    Type results[] = {element, Float32Type::get(element.getContext())};
    ArrayRef<Type> allowed(results, element.isF32() ? 1 : 2);
    if (failed(requireType(spec, result, "the result", {m, n}, allowed,
                           emitError)) ||
        (accumulates && failed(requireType(spec, spec.inputs[2], "acc", {m, n},
                                           result.getElementType(),
                                           emitError))))
      return failure();
    return success();
  }

  GemmStage describe(const KernelSpec &spec, bool accumulates) const {
    MemRefType a = spec.inputs[0], b = spec.inputs[1], d = spec.outputs[0];
    unsigned result = accumulates ? 3 : 2;
    GemmStage product;
    product.transA = transposesLeft(spec);
    product.transB = transposesRight(spec);
    product.m = d.getDimSize(0);
    product.n = d.getDimSize(1);
    product.k = a.getDimSize(product.transA ? 0 : 1);
    product.lda = leadingDimension(a);
    product.ldb = leadingDimension(b);
    product.ldd = leadingDimension(d);
    product.typeA = a.getElementType();
    product.typeB = b.getElementType();
    product.typeD = d.getElementType();
    product.a = {0};
    product.b = {1};
    product.d = {result};
    product.accumulate = accumulates;
    product.workspace = {result + 1};
    return product;
  }

  /// Names the function and gives it the stride of acc.
  static void finish(const KernelSpec &spec, DeviceStage &stage,
                     StringRef function, bool accumulates) {
    stage.function = (function + (accumulates ? "_add" : "")).str();
    stage.constant("ldc",
                   accumulates ? leadingDimension(spec.inputs[2]) : int64_t(0));
  }

  /// A product with one row, one column or one term, as a pass over the matrix.
  static bool planVector(const KernelSpec &spec, const GemmStage &product,
                         const GpuTarget &target, KernelPlan &plan) {
    constexpr int64_t kThreads = 256;
    bool accumulates = product.accumulate;
    DeviceStage stage;
    stage.header = "q35/matmul.cuh";
    stage.threads = kThreads;
    stage.constant("m", product.m)
        .constant("n", product.n)
        .constant("k", product.k)
        .constant("lda", product.lda)
        .constant("ldb", product.ldb)
        .constant("ldd", product.ldd);
    MemRefType a = spec.inputs[0], b = spec.inputs[1], d = spec.outputs[0];
    if (product.n == 1 && !product.transA && product.transB) {
      stage.constant("vector", vectorOf({a, b}));
      stage.blocks = llvm::divideCeil(product.m, kThreads / 32);
      finish(spec, stage, "dot_rows", accumulates);
      plan.stages = {stage};
      return true;
    }
    if (product.k == 1 && !product.transA && !product.transB) {
      stage.constant("vector", vectorOf({b, d}));
      stage.blocks = llvm::divideCeil(product.m, kThreads / 32);
      finish(spec, stage, "outer", accumulates);
      plan.stages = {stage};
      return true;
    }
    if (product.m == 1 && product.transA && !product.transB) {
      int64_t vector = vectorOf({b});
      int64_t slices = llvm::divideCeil(product.n, 32 * vector);
      int64_t most = llvm::divideCeil(product.k, 64);
      int64_t parts =
          std::clamp<int64_t>(4 * target.multiprocessors / slices, 1, most);
      int64_t partRows = llvm::divideCeil(product.k, parts);
      parts = llvm::divideCeil(product.k, partRows);
      stage.constant("vector", vector)
          .constant("parts", parts)
          .constant("partRows", partRows);
      stage.function = "weighted_sum_0";
      stage.blocks = parts * slices;
      DeviceStage total = stage;
      total.function = "weighted_sum_1";
      total.blocks = llvm::divideCeil(product.n, kThreads);
      plan.stages = {stage, total};
      plan.workspaceBytes = parts * product.n * 4;
      return true;
    }
    return false;
  }

  bool isLinear;
};

} // namespace

void registerMatmulKernels() {
  registerKernel(std::make_unique<Product>(/*isLinear=*/true));
  registerKernel(std::make_unique<Product>(/*isLinear=*/false));
}

} // namespace qwen35::codegen::cuda
