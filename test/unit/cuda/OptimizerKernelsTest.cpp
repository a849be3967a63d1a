#include "dialect/Qwen35/Reference/Optimizer.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include <cmath>
#include <limits>

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

TEST_F(CudaKernelTest, NormSqSumsInDouble) {
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{}, {5}, {300, 701}, {64, 128}, {6144, 1, 4}})
    run("norm_sq", "{}", {random(shape, 1, 100), scalar64(12345.678)},
        {f64({})}, [](const Arrays &in, const Arrays &out) {
          double sum = 0;
          expectOk(reference::normSq<double>(valuesOf(in[0]), valuesOf(in[1]),
                                             absl::MakeSpan(&sum, 1)));
          EXPECT_NEAR(out[0][0], sum, 1e-12 * sum);
        });
}

TEST_F(CudaKernelTest, ClipFactorGuardsAgainstNonFiniteNorms) {
  double infinity = std::numeric_limits<double>::infinity();
  double nan = std::numeric_limits<double>::quiet_NaN();
  for (double maxNorm : {0.0, 1.0})
    for (double normSq : {0.0, 0.25, 9.0, 1e30, 1e80, infinity, nan})
      run("clip_factor", "{max_norm = " + std::to_string(maxNorm) + "}",
          {scalar64(normSq)}, {f32({}), f32({}), f32({})},
          [&](const Arrays &in, const Arrays &out) {
            float norm, factor, commit;
            double value = in[0][0];
            expectOk(reference::clipFactor<float>(
                absl::MakeConstSpan(&value, 1), maxNorm,
                absl::MakeSpan(&norm, 1), absl::MakeSpan(&factor, 1),
                absl::MakeSpan(&commit, 1)));
            if (std::isnan(norm))
              EXPECT_TRUE(std::isnan(out[0][0]));
            else
              EXPECT_EQ(out[0][0], norm) << normSq;
            EXPECT_EQ(out[1][0], factor) << normSq;
            EXPECT_EQ(out[2][0], commit) << normSq;
          });
}

Arrays adamwInputs(const std::vector<int64_t> &shape, double commit) {
  Array v = random(shape, 3, 1e-3);
  for (int64_t i = 0; i < v.size(); ++i)
    v.set(i, std::fabs(v[i]));
  return {random(shape, 1), random(shape, 2, 0.1), v,
          random(shape, 4), scalar(1e-3),          scalar(0.7),
          scalar(0.1),      scalar(0.05),          scalar(commit)};
}

constexpr const char *kAdamw =
    "{beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1}";

TEST_F(CudaKernelTest, AdamwMatchesTheReference) {
  for (bool copies : {false, true})
    for (const std::vector<int64_t> &shape :
         std::vector<std::vector<int64_t>>{{1}, {33}, {130, 170}}) {
      Arrays outputs = {f32(shape), f32(shape), f32(shape)};
      if (copies)
        outputs.push_back(bf16(shape));
      run("adamw", kAdamw, adamwInputs(shape, 1), outputs,
          [&](const Arrays &in, const Arrays &out) {
            Doubles p(out[0].size()), m = p, v = p;
            expectOk(reference::adamw<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]),
                valuesOf(in[6]), valuesOf(in[7]), valuesOf(in[8]),
                {0.9, 0.95, 1e-8, 0.1}, absl::MakeSpan(p), absl::MakeSpan(m),
                absl::MakeSpan(v)));
            expectNear(out[0], p, 1e-6, "p");
            expectNear(out[1], m, 1e-6, "m");
            expectNear(out[2], v, 1e-6, "v");
            if (copies) {
              Array rounded = bf16(shape);
              setValues(rounded, valuesOf(out[0]));
              EXPECT_TRUE(out[3].sameBits(rounded));
            }
          });
    }
}

TEST_F(CudaKernelTest, AdamwWithoutCommitChangesNoBit) {
  Arrays inputs = adamwInputs({70}, 0);
  double infinity = std::numeric_limits<double>::infinity();
  inputs[3].set(0, std::numeric_limits<double>::quiet_NaN());
  inputs[3].set(1, infinity);
  inputs[0].set(2, -0.0);
  inputs[1].set(3, 1e-44); // denormal
  inputs[2].set(4, std::numeric_limits<double>::quiet_NaN());
  inputs[5].set(0, 0); // factor, as clip_factor gives it
  run("adamw", kAdamw, inputs, {f32({70}), f32({70}), f32({70})},
      [](const Arrays &in, const Arrays &out) {
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(out[i].sameBits(in[i])) << i;
      });
}

} // namespace
} // namespace qwen35::codegen::cuda
