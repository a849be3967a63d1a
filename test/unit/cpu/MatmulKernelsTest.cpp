#include "test/unit/cpu/KernelTest.h"

#include "codegen/cpu/Gemm.h"

namespace qwen35::codegen::cpu {
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

class MatmulTest : public KernelTest {
protected:
  void checkMatmul(int64_t M, int64_t N, int64_t K, bool transposeA,
                   bool transposeB, bool accumulate, int64_t gap = 0) {
    SCOPED_TRACE(std::to_string(M) + " x " + std::to_string(N) + " x " +
                 std::to_string(K));
    std::vector<int64_t> shapeA = {M, K}, shapeB = {K, N};
    if (transposeA)
      shapeA = {K, M};
    if (transposeB)
      shapeB = {N, K};
    Arrays inputs = {random(shapeA, 1, 1, {shapeA[1] + gap, 1}),
                     random(shapeB, 2, 1, {shapeB[1] + gap, 1})};
    if (accumulate)
      inputs.push_back(random({M, N}, 3));
    auto flag = [](bool value) { return value ? "true" : "false"; };
    std::string attrs = std::string("{transpose_a = ") + flag(transposeA) +
                        ", transpose_b = " + flag(transposeB) +
                        ", accumulate = " + flag(accumulate) + "}";
    run("matmul", attrs, inputs, {f32({M, N})},
        [&](const Arrays &in, const Arrays &out) {
          expectNear(out[0],
                     product(in[0], transposeA, in[1], transposeB, M, N, K,
                             accumulate ? &in[2] : nullptr),
                     1e-5, "product");
        });
  }
};

TEST_F(MatmulTest, AllTranspositionsAndRemainders) {
  struct Case {
    int64_t M, N, K;
  };
  for (const Case &c :
       {Case{1, 1, 1}, Case{12, 32, 16}, Case{13, 33, 17}, Case{7, 5, 300},
        Case{1, 70, 19}, Case{5, 131, 1}, Case{53, 1, 31}, Case{37, 3, 257}})
    for (bool transposeA : {false, true})
      for (bool transposeB : {false, true})
        checkMatmul(c.M, c.N, c.K, transposeA, transposeB,
                    /*accumulate=*/transposeA, /*gap=*/transposeB ? 3 : 0);
}

TEST_F(MatmulTest, SeveralTilesAndDepthBlocks) {
  checkMatmul(300, 290, 513, false, true, true);
  checkMatmul(253, 517, 67, true, false, false);
  checkMatmul(521, 64, 600, false, false, true, 5);
  checkMatmul(3, 1100, 2000, true, false, true);
}

TEST_F(MatmulTest, LinearIsAProductWithTheTransposedWeight) {
  run("linear", "{}", {random({45, 70}, 1, 1, {100, 1}), random({97, 70}, 2)},
      {f32({45, 97})}, [](const Arrays &in, const Arrays &out) {
        expectNear(out[0],
                   product(in[0], false, in[1], true, 45, 97, 70, nullptr),
                   1e-5, "linear");
      });
}

TEST_F(MatmulTest, RefusesOperandsThatDoNotMatch) {
  expectRefused("linear", "{}", {f32({4, 8}), f32({3, 9})}, {f32({4, 3})},
                "linear: x has 8 elements along the sum but w has 9");
  expectRefused("linear", "{}", {f32({4, 8}), f32({3, 8})}, {f32({3, 4})},
                "linear: the result is [3, 4] of f32, expected [4, 3] of f32");
}

} // namespace
} // namespace qwen35::codegen::cpu
