// The wrappers of q35/mma.cuh against plain products, through the addresses
// that its comment gives. (That the twins agree with the instructions is for a
// test on a GPU: test/gpu.)

#include "test/unit/cuda/HandWritten.h"

#include <cmath>

namespace qwen35::codegen::cuda {
namespace {

/// in: A [16][K], then B [K][8], small integers; out: the product [16][8].
template <int K> void expectProduct(const std::string &body) {
  HandWritten<float> kernel("float", R"(
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    float c[4] = {};
    )" + body + R"(
    for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];)");
  std::vector<float> in(24 * K), want(128);
  for (int i = 0; i < 24 * K; ++i)
    in[i] = static_cast<float>((i * 37 + i / 11) % 23 - 11);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < K; ++k)
        want[row * 8 + column] += in[row * K + k] * in[16 * K + k * 8 + column];
  kernel.in(in).shared(8192).compileForGpus();
  for (int order : {0, 1, 4})
    EXPECT_EQ(kernel.run(128, order), want);
}

TEST(MmaTest, Bf16FragmentsAreThoseOfTheHeader) {
  expectProduct<16>(R"(
    const float *A = in, *B = in + 256;
    uint a[4], b[2];
    for (int i = 0; i < 4; ++i) {
      const float *at = A + (g + i % 2 * 8) * 16 + i / 2 * 8 + t * 2;
      a[i] = pack_bf16(at[0], at[1]);
    }
    for (int i = 0; i < 2; ++i) {
      const float *at = B + (i * 8 + t * 2) * 8 + g;
      b[i] = pack_bf16(at[0], at[8]);
    }
    mma_bf16(c, a, b);)");
}

TEST(MmaTest, Tf32FragmentsAreThoseOfTheHeader) {
  expectProduct<8>(R"(
    const float *A = in, *B = in + 128;
    uint a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = to_tf32(A[(g + i % 2 * 8) * 8 + i / 2 * 4 + t]);
    for (int i = 0; i < 2; ++i) b[i] = to_tf32(B[(i * 4 + t) * 8 + g]);
    mma_tf32(c, a, b);)");
}

TEST(MmaTest, LdmatrixFeedsRowMajorAAndColumnMajorB) {
  expectProduct<32>(R"(
    auto *A = reinterpret_cast<bf16 (*)[32]>(shared_memory());
    auto *B = reinterpret_cast<bf16 (*)[32]>(shared_memory() + 1024); // [n][k]
    for (int i = lane; i < 512; i += 32) A[i / 32][i % 32] = from_float<bf16>(in[i]);
    for (int i = lane; i < 256; i += 32) B[i % 8][i / 8] = from_float<bf16>(in[512 + i]);
    __syncwarp();
    for (int k0 = 0; k0 < 32; k0 += 16) {
      uint a[4], b[2];
      ldmatrix_x4(a, &A[lane % 16][k0 + lane / 16 * 8]);
      ldmatrix_x2(b, &B[lane % 8][k0 + lane / 8 % 2 * 8]);
      mma_bf16(c, a, b);
    })");
}

TEST(MmaTest, TransposingLdmatrixFeedsColumnMajorAAndRowMajorB) {
  expectProduct<32>(R"(
    auto *A = reinterpret_cast<bf16 (*)[16]>(shared_memory()); // [k][16]
    auto *B = reinterpret_cast<bf16 (*)[8]>(shared_memory() + 1024);
    for (int i = lane; i < 512; i += 32) A[i % 32][i / 32] = from_float<bf16>(in[i]);
    for (int i = lane; i < 256; i += 32) B[i / 8][i % 8] = from_float<bf16>(in[512 + i]);
    __syncwarp();
    for (int k0 = 0; k0 < 32; k0 += 16) {
      uint a[4], b[2];
      ldmatrix_x4_trans(a, &A[k0 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
      ldmatrix_x2_trans(b, &B[k0 + lane % 16][0]);
      mma_bf16(c, a, b);
    })");
}

TEST(MmaTest, Tf32RoundsTiesAwayAndProductsIgnoreTheRest) {
  HandWritten<unsigned> kernel("unsigned", "out[threadIdx.x] = to_tf32(in[threadIdx.x]);");
  kernel.threads(5).in({1.0f, 1.00048828125f, -1.00048828125f, INFINITY, NAN});
  EXPECT_EQ(kernel.run(5), (std::vector<unsigned>{0x3F800000, 0x3F802000, 0xBF802000,
                                                  0x7F800000, 0x7FFFFFFF}));
  HandWritten<float> product("float", R"(
    uint a[4] = {float_to_bits(1.0009f), 0, 0, 0}, b[2] = {float_to_bits(1.0f), 0};
    float c[4] = {2, 2, 2, 2};
    mma_tf32(c, a, b);
    out[threadIdx.x] = c[0];)");
  EXPECT_EQ(product.run(32)[0], 2 + 4 * 1.0f);
}

} // namespace
} // namespace qwen35::codegen::cuda
