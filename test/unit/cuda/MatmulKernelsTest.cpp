#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

/// Plain product in double of row-major matrices.
std::vector<double> product(const Array &a, bool transposeA, const Array &b,
                            bool transposeB, int64_t M, int64_t N, int64_t K,
                            const Array *start) {
  std::vector<double> c(M * N);
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = start ? (*start)[i * N + j] : 0;
      for (int64_t k = 0; k < K; ++k)
        sum += a[transposeA ? k * M + i : i * K + k] *
               b[transposeB ? j * K + k : k * N + j];
      c[i * N + j] = sum;
    }
  return c;
}

class CudaMatmulTest : public CudaKernelTest {
protected:
  /// `result`: bf16 operands may have a result in f32.
  void checkMatmul(Kind t, Kind result, int64_t M, int64_t N, int64_t K,
                   bool transposeA, bool transposeB, bool accumulate,
                   int64_t gap = 0) {
    SCOPED_TRACE(std::to_string(M) + " x " + std::to_string(N) + " x " +
                 std::to_string(K));
    std::vector<int64_t> shapeA = {M, K}, shapeB = {K, N};
    if (transposeA)
      shapeA = {K, M};
    if (transposeB)
      shapeB = {N, K};
    auto strides = [&](int64_t columns) {
      return gap ? std::vector<int64_t>{columns + gap, 1}
                 : std::vector<int64_t>();
    };
    Arrays inputs = {random(t, shapeA, 1, 1, strides(shapeA[1])),
                     random(t, shapeB, 2, 1, strides(shapeB[1]))};
    if (accumulate)
      inputs.push_back(random(result, {M, N}, 3));
    auto flag = [](bool value) { return value ? "true" : "false"; };
    std::string attrs = std::string("{transpose_a = ") + flag(transposeA) +
                        ", transpose_b = " + flag(transposeB) +
                        ", accumulate = " + flag(accumulate) + "}";
    run("matmul", attrs, inputs, {zeros(result, {M, N})},
        [&](const Arrays &in, const Arrays &out) {
          expectNear(out[0],
                     product(in[0], transposeA, in[1], transposeB, M, N, K,
                             accumulate ? &in[2] : nullptr),
                     tolerance(result, 1e-5), "product");
        });
  }
};

TEST_F(CudaMatmulTest, AllTranspositionsAndRemainders) {
  struct Case {
    int64_t M, N, K, gap;
  };
  for (const Case &c : {Case{1, 1, 1, 0}, Case{64, 72, 64, 0},
                        Case{13, 33, 17, 3}, Case{66, 131, 40, 8}})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true}) {
        checkMatmul(Kind::F32, Kind::F32, c.M, c.N, c.K, transposeA, transposeB,
                    /*accumulate=*/transposeA, c.gap);
        checkMatmul(Kind::BF16, transposeA ? Kind::F32 : Kind::BF16, c.M, c.N,
                    c.K, transposeA, transposeB,
                    /*accumulate=*/transposeB, c.gap);
      }
}

TEST_F(CudaMatmulTest, SeveralTilesAndStages) {
  checkMatmul(Kind::F32, Kind::F32, 130, 70, 200, false, true, true);
  checkMatmul(Kind::BF16, Kind::F32, 130, 136, 264, true, false, true);
  checkMatmul(Kind::BF16, Kind::BF16, 70, 200, 520, false, false, false, 8);
}

TEST_F(CudaMatmulTest, ProductsWithVectors) {
  for (bool accumulate : {false, true})
    for (Kind t : kFloatKinds)
      for (int64_t columns : {96, 37, 600}) {
        checkMatmul(t, t, 45, 1, columns, false, true, accumulate);
        checkMatmul(t, t, 45, columns, 1, false, false, accumulate);
        checkMatmul(t, Kind::F32, 1, columns, 333, true, false, accumulate,
                    columns == 96 ? 8 : 0);
      }
}

TEST_F(CudaMatmulTest, LinearIsAProductWithTheTransposedWeight) {
  for (Kind result : kFloatKinds)
    run("linear", "{}",
        {randomBf16({45, 70}, 1, 1, {100, 1}), randomBf16({97, 70}, 2)},
        {zeros(result, {45, 97})}, [&](const Arrays &in, const Arrays &out) {
          expectNear(out[0],
                     product(in[0], false, in[1], true, 45, 97, 70, nullptr),
                     tolerance(result, 1e-5), "linear");
        });
}

TEST_F(CudaMatmulTest, TheLibraryTakesStridedRows) {
  auto p = plan(spec("matmul", "{transpose_a = true, accumulate = true}",
                     {randomBf16({512, 64}, 1, 1, {192, 1}),
                      randomBf16({512, 128}, 2), random({64, 128}, 3)},
                     {f32({64, 128})}),
                "sm_90a");
  ASSERT_TRUE(p);
  ASSERT_EQ(p->stages.size(), 1u);
  const auto &gemm = std::get<GemmStage>(p->stages[0]);
  EXPECT_EQ(gemm.m, 64);
  EXPECT_EQ(gemm.n, 128);
  EXPECT_EQ(gemm.k, 512);
  EXPECT_TRUE(gemm.transA && !gemm.transB && gemm.accumulate);
  EXPECT_EQ(gemm.lda, 192);
  EXPECT_EQ(gemm.ldb, 128);
  EXPECT_EQ(gemm.ldd, 128);
  EXPECT_TRUE(gemm.typeA.isBF16() && gemm.typeD.isF32());
  EXPECT_EQ(gemm.a.arg, 0u);
  EXPECT_EQ(gemm.b.arg, 1u);
  EXPECT_EQ(gemm.d.arg, 3u);
  EXPECT_EQ(gemm.workspace.arg, 4u);
  EXPECT_EQ(gemm.workspaceBytes, p->workspaceBytes);
}

TEST_F(CudaMatmulTest, RefusesOperandsThatDoNotMatch) {
  expectRefused("linear", "{}", {f32({4, 8}), f32({3, 9})}, {f32({4, 3})},
                "linear: x has 8 elements along the sum but w has 9");
  expectRefused("linear", "{}", {f32({4, 8}), f32({3, 8})}, {f32({3, 4})},
                "linear: the result is [3, 4] of f32, expected [4, 3] of f32");
  expectRefused("linear", "{}", {bf16({4, 8}), f32({3, 8})}, {f32({4, 3})},
                "linear: w is [3, 8] of f32, expected [?, ?] of bf16");
}

} // namespace
} // namespace qwen35::codegen::cuda
