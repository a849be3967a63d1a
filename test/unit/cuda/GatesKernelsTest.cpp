#include "dialect/Qwen35/Reference/Delta.h"
#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

struct GatesCase {
  int64_t tokens, heads;
  std::vector<int64_t> strides;
  std::vector<int64_t> shape() const { return {tokens, heads}; }
  Arrays inputs(Kind t, double spread) const {
    return {random(t, shape(), 1, spread, strides),
            random(t, shape(), 2, 6, strides), random({heads}, 3, 2),
            random({heads}, 4, 2)};
  }
};

std::vector<GatesCase> gatesCases() {
  return {{1, 1, {}}, {70, 5, {}}, {333, 48, {100, 1}}, {9, 300, {}}};
}

TEST_F(CudaKernelTest, GdnGatesMatchTheReference) {
  for (Kind t : kFloatKinds)
    for (const GatesCase &c : gatesCases())
      run("gdn_gates", "{}", c.inputs(t, 25), {f32(c.shape()), f32(c.shape())},
          [&](const Arrays &in, const Arrays &out) {
            Doubles g(out[0].size()), beta(out[1].size());
            expectOk(reference::gdnGates<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                valuesOf(in[3]), c.tokens, c.heads, absl::MakeSpan(g),
                absl::MakeSpan(beta)));
            expectNear(out[0], g, 2e-6, "g");
            expectNear(out[1], beta, 1e-6, "beta");
          });
}

TEST_F(CudaKernelTest, GdnGatesBwdMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const GatesCase &c : gatesCases()) {
      Arrays inputs = {random(c.shape(), 5), random(c.shape(), 6)};
      for (const Array &array : c.inputs(t, 25))
        inputs.push_back(array);
      run("gdn_gates_bwd", "{}", inputs,
          {zeros(t, c.shape()), zeros(t, c.shape()), f32({c.heads}),
           f32({c.heads})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles da(out[0].size()), db = da, dLog(c.heads), dBias(c.heads);
            expectOk(reference::gdnGatesBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.tokens,
                c.heads, absl::MakeSpan(da), absl::MakeSpan(db),
                absl::MakeSpan(dLog), absl::MakeSpan(dBias)));
            expectNear(out[0], da, tolerance(t, 2e-6), "da");
            expectNear(out[1], db, tolerance(t, 2e-6), "db");
            expectNear(out[2], dLog, 1e-5, "da_log");
            expectNear(out[3], dBias, 1e-5, "ddt_bias");
          });
    }
}

TEST_F(CudaKernelTest, SmallDecaysKeepTheirDigits) {
  // The decay compounds over thousands of tokens: relative, not absolute.
  GatesCase c{64, 4, {}};
  for (Kind t : kFloatKinds)
    run("gdn_gates", "{}", c.inputs(t, 60), {f32(c.shape()), f32(c.shape())},
        [&](const Arrays &in, const Arrays &out) {
          Doubles g(out[0].size()), beta(out[1].size());
          expectOk(reference::gdnGates<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), c.tokens, c.heads, absl::MakeSpan(g),
              absl::MakeSpan(beta)));
          for (int64_t i = 0; i < out[0].size(); ++i)
            EXPECT_NEAR(out[0][i] / g[i], 1, 5e-6) << g[i];
        });
}

TEST_F(CudaKernelTest, GdnGatesRefuseOtherHeads) {
  expectRefused("gdn_gates", "{}",
                {f32({4, 2}), f32({4, 2}), f32({3}), f32({2})},
                {f32({4, 2}), f32({4, 2})},
                "gdn_gates: a_log is [3] of f32, expected [2] of f32");
}

} // namespace
} // namespace qwen35::codegen::cuda
