#include "dialect/Qwen35/Reference/Norm.h"
#include "test/unit/cpu/SequenceCase.h"

namespace qwen35::codegen::cpu {
namespace {

using Doubles = std::vector<double>;

struct NormCase {
  std::vector<int64_t> shape, strides;
  int64_t columns() const { return shape.back(); }
  std::vector<int64_t> stats() const {
    return {shape.begin(), shape.end() - 1};
  }
};

/// Odd sizes, one element, strided rows that merge to one stride and that do
/// not, and enough rows for several tasks.
std::vector<NormCase> normCases() {
  return {{{3, 64}, {}},         {{5, 7}, {}},
          {{2, 3, 33}, {}},      {{4, 2, 16}, {100, 20, 1}},
          {{1, 1}, {}},          {{9}, {}},
          {{637, 130}, {200, 1}}};
}

TEST_F(KernelTest, RmsNormMatchesTheReference) {
  for (const NormCase &c : normCases()) {
    int64_t columns = c.columns();
    run("rms_norm", "{eps = 1.0e-6, offset = 1.0}",
        {random(c.shape, 1, 3, c.strides), random({columns}, 2)},
        {f32(c.shape), f32(c.stats())},
        [&](const Arrays &in, const Arrays &out) {
          int64_t rows = in[0].size() / columns;
          Doubles y(in[0].size()), rstd(rows);
          expectOk(reference::rmsNorm<double>(
              valuesOf(in[0]), valuesOf(in[1]), rows, columns, 1e-6, 1,
              absl::MakeSpan(y), absl::MakeSpan(rstd)));
          expectNear(out[0], y, 2e-6, "y");
          expectNear(out[1], rstd, 2e-6, "rstd");
        });
  }
}

TEST_F(KernelTest, RmsNormBwdMatchesTheReference) {
  for (const NormCase &c : normCases()) {
    int64_t columns = c.columns();
    run("rms_norm_bwd", "{offset = 1.0}",
        {random(c.shape, 1, 1, c.strides), random(c.shape, 2, 2),
         random({columns}, 3), random(c.stats(), 4)},
        {f32(c.shape), f32({columns})},
        [&](const Arrays &in, const Arrays &out) {
          Doubles dx(in[0].size()), dw(columns);
          expectOk(reference::rmsNormBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), in[0].size() / columns, columns, 1,
              absl::MakeSpan(dx), absl::MakeSpan(dw)));
          expectNear(out[0], dx, 4e-6, "dx");
          expectNear(out[1], dw, 1e-5, "dw");
        });
  }
}

TEST_F(KernelTest, GatedRmsNormMatchesTheReference) {
  for (const NormCase &c : normCases()) {
    int64_t columns = c.columns();
    run("gated_rms_norm", "{eps = 1.0e-6}",
        {random(c.shape, 1, 3), random(c.shape, 2, 5, c.strides),
         random({columns}, 3)},
        {f32(c.shape), f32(c.stats())},
        [&](const Arrays &in, const Arrays &out) {
          int64_t rows = in[0].size() / columns;
          Doubles y(in[0].size()), rstd(rows);
          expectOk(reference::gatedRmsNorm<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), rows, columns,
              1e-6, absl::MakeSpan(y), absl::MakeSpan(rstd)));
          expectNear(out[0], y, 2e-6, "y");
          expectNear(out[1], rstd, 2e-6, "rstd");
        });
  }
}

TEST_F(KernelTest, GatedRmsNormBwdMatchesTheReference) {
  for (const NormCase &c : normCases()) {
    int64_t columns = c.columns();
    run("gated_rms_norm_bwd", "{}",
        {random(c.shape, 1), random(c.shape, 2, 2),
         random(c.shape, 3, 5, c.strides), random({columns}, 4),
         random(c.stats(), 5)},
        {f32(c.shape), f32(c.shape), f32({columns})},
        [&](const Arrays &in, const Arrays &out) {
          Doubles dO(in[0].size()), dz(in[0].size()), dw(columns);
          expectOk(reference::gatedRmsNormBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), in[0].size() / columns, columns,
              absl::MakeSpan(dO), absl::MakeSpan(dz), absl::MakeSpan(dw)));
          expectNear(out[0], dO, 4e-6, "do");
          expectNear(out[1], dz, 4e-6, "dz");
          expectNear(out[2], dw, 1e-5, "dw");
        });
  }
}

TEST_F(KernelTest, RmsNormRefusesAWeightOfAnotherLength) {
  expectRefused("rms_norm", "{eps = 1.0e-6, offset = 1.0}",
                {f32({2, 8}), f32({4})}, {f32({2, 8}), f32({2})},
                "rms_norm: w is [4] of f32, expected [8] of f32");
}

} // namespace
} // namespace qwen35::codegen::cpu
