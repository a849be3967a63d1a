#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Norm.h"
#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

TEST_F(CudaKernelTest, RopeTableRestartsAtEveryDocument) {
  for (const SequenceCase &c : sequenceCases())
    for (int64_t rotary : {6, 64})
      run("rope_table",
          "{theta = 1.0e7, rotary_dim = " + std::to_string(rotary) +
              " : i64, " + c.attrs() + "}",
          {c.table()}, {f32({c.tokens, rotary / 2, 2})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles table(out[0].size());
            expectOk(reference::ropeTable<double>(
                c.shape(), valuesOf<int32_t>(in[0]), 1e7, rotary,
                absl::MakeSpan(table)));
            expectNear(out[0], table, 1e-7, "table");
          });
}

TEST_F(CudaKernelTest, RopeTableIsExactAtTheEndOfLongDocuments) {
  SequenceCase c{{262144}, 262144, 2};
  run("rope_table",
      "{theta = 1.0e7, rotary_dim = 4 : i64, " + c.attrs() + "}", {c.table()},
      {f32({c.tokens, 2, 2})}, [&](const Arrays &in, const Arrays &out) {
        Doubles table(out[0].size());
        expectOk(reference::ropeTable<double>(c.shape(),
                                              valuesOf<int32_t>(in[0]), 1e7, 4,
                                              absl::MakeSpan(table)));
        expectNear(out[0], table, 1e-7, "table");
      });
}

struct RopeCase {
  int64_t tokens, heads, dim, rotary;
  std::vector<int64_t> strides;
  std::vector<int64_t> shape() const { return {tokens, heads, dim}; }
};

/// Sizes that lanes share and that they do not, all dims turned and some,
/// strides that merge to one and that do not, as the query half of a projection.
std::vector<RopeCase> ropeCases() {
  return {{3, 2, 8, 8, {}},
          {40, 3, 70, 34, {}},
          {5, 1, 2, 2, {}},
          {50, 4, 96, 32, {1000, 200, 1}},
          {30, 3, 256, 64, {3 * 512, 512, 1}},
          {9, 2, 64, 64, {}},
          {9, 2, 520, 64, {}}};
}

TEST_F(CudaKernelTest, RopeMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const RopeCase &c : ropeCases())
      for (bool inverse : {false, true})
        run("rope", inverse ? "{inverse = true}" : "{inverse = false}",
            {random(t, c.shape(), 1, 1, c.strides),
             random({c.tokens, c.rotary / 2, 2}, 2)},
            {zeros(t, c.shape())}, [&](const Arrays &in, const Arrays &out) {
              Doubles y(out[0].size());
              expectOk(reference::rope<double>(
                  valuesOf(in[0]), valuesOf(in[1]), c.tokens, c.heads, c.dim,
                  c.rotary, inverse, absl::MakeSpan(y)));
              expectNear(out[0], y, tolerance(t, 1e-6), "y");
              // Dims that are not turned are copied.
              for (int64_t i = 0; i < out[0].size(); ++i)
                if (i % c.dim >= c.rotary)
                  ASSERT_EQ(out[0][i], in[0][i]);
            });
}

TEST_F(CudaKernelTest, RmsNormRopeMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const RopeCase &c : ropeCases())
      run("rms_norm_rope", "{eps = 1.0e-6, offset = 1.0}",
          {random(t, c.shape(), 1, 2, c.strides), random({c.dim}, 2),
           random({c.tokens, c.rotary / 2, 2}, 3)},
          {zeros(t, c.shape()), f32({c.tokens, c.heads})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles normed(out[0].size()), y(out[0].size());
            Doubles rstd(out[1].size());
            expectOk(reference::rmsNorm<double>(
                valuesOf(in[0]), valuesOf(in[1]), c.tokens * c.heads, c.dim,
                1e-6, 1, absl::MakeSpan(normed), absl::MakeSpan(rstd)));
            expectOk(reference::rope<double>(
                normed, valuesOf(in[2]), c.tokens, c.heads, c.dim, c.rotary,
                false, absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 2e-6), "y");
            expectNear(out[1], rstd, 2e-6, "rstd");
          });
}

TEST_F(CudaKernelTest, RopeRefusesAWiderTable) {
  expectRefused("rope", "{}", {f32({3, 2, 8}), f32({3, 5, 2})},
                {f32({3, 2, 8})},
                "rope: the table turns 10 dims but heads have 8");
}

} // namespace
} // namespace qwen35::codegen::cuda
