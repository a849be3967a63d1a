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

TEST_F(CudaKernelTest, NormSqOfAListIsOneSum) {
  Arrays inputs;
  int64_t seed = 1;
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{5}, {}, {300, 701}, {4096}, {1, 1}, {70, 3}})
    inputs.push_back(random(shape, seed++, 100));
  inputs.push_back(scalar64(12345.678));
  run("norm_sq", "{}", inputs, {f64({})},
      [](const Arrays &in, const Arrays &out) {
        double sum = in.back()[0];
        for (size_t i = 0; i + 1 < in.size(); ++i)
          expectOk(reference::normSq<double>(valuesOf(in[i]), {sum},
                                             absl::MakeSpan(&sum, 1)));
        EXPECT_NEAR(out[0][0], sum, 1e-12 * sum);
      });
}

// Sums of squares that other kernels made, behind one tensor or several.
TEST_F(CudaKernelTest, NormSqAddsSumsOfOthers) {
  for (int tensors : {1, 3})
    for (int sums : {1, 2, 300}) {
      Arrays inputs;
      for (int i = 0; i < tensors; ++i)
        inputs.push_back(random({i == 1 ? 4097 : 7 + i}, i + 1, 100));
      for (int i = 0; i < sums; ++i)
        inputs.push_back(scalar64(i * 1.25));
      inputs.push_back(scalar64(12345.678));
      run("norm_sq", "{}", inputs, {f64({})},
          [&](const Arrays &in, const Arrays &out) {
            double sum = 0;
            for (int i = 0; i < static_cast<int>(in.size()); ++i)
              for (int64_t j = 0; j < in[i].size(); ++j)
                sum += i < tensors ? in[i][j] * in[i][j] : in[i][j];
            EXPECT_NEAR(out[0][0], sum, 1e-12 * sum);
          });
    }
  expectRefused("norm_sq", "{}", {scalar64(1), f32({3}), scalar64(2)}, {f64({})},
                "norm_sq: x is [] of f64, expected [] of f32");
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

// Every parameter of a list as alone, to the bit; sizes that fill no vector, no
// piece and several pieces.
TEST_F(CudaKernelTest, AdamwOfAListIsThatOfEach) {
  const std::vector<std::vector<int64_t>> shapes = {
      {33}, {1}, {130, 170}, {2048}, {4097}};
  for (bool copies : {false, true})
    for (double commit : {0.0, 1.0}) {
      Arrays list[4], scalars, outputs;
      std::vector<Arrays> alone;
      for (const std::vector<int64_t> &shape : shapes) {
        Arrays one = adamwInputs(shape, commit);
        for (int role = 0; role < 4; ++role)
          list[role].push_back(one[role]);
        scalars = Arrays(one.begin() + 4, one.end());
        Arrays made = {f32(shape), f32(shape), f32(shape)};
        if (copies)
          made.push_back(bf16(shape));
        run("adamw", kAdamw, one, made, [&](const Arrays &, const Arrays &out) {
          alone.push_back(out);
        });
      }
      Arrays inputs;
      for (const Arrays &role : list)
        inputs.insert(inputs.end(), role.begin(), role.end());
      inputs.insert(inputs.end(), scalars.begin(), scalars.end());
      for (int role = 0; role < (copies ? 4 : 3); ++role)
        for (const std::vector<int64_t> &shape : shapes)
          outputs.push_back(role < 3 ? f32(shape) : bf16(shape));
      run("adamw", kAdamw, inputs, outputs,
          [&](const Arrays &, const Arrays &out) {
            for (size_t i = 0; i < out.size(); ++i)
              EXPECT_TRUE(out[i].sameBits(
                  alone[i % shapes.size()][i / shapes.size()]))
                  << "output " << i;
          });
    }
}

TEST_F(CudaKernelTest, RefusesListsOfUnequalTensors) {
  Arrays inputs, scalars = adamwInputs({4}, 1);
  for (int role = 0; role < 4; ++role)
    for (int64_t size : {4, 5})
      inputs.push_back(f32({role == 2 ? 4 : size}));
  inputs.insert(inputs.end(), scalars.begin() + 4, scalars.end());
  Arrays outputs;
  for (int role = 0; role < 3; ++role)
    for (int64_t size : {4, 5})
      outputs.push_back(f32({size}));
  expectRefused("adamw", kAdamw, inputs, outputs,
                "adamw: p is [5] of f32 but v is [4] of f32");
  inputs.pop_back();
  expectRefused("adamw", kAdamw, inputs, outputs,
                "adamw takes 9 inputs and 3 outputs, got 12 and 6");
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
