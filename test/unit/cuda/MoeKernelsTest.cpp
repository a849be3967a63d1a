#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include <cmath>

namespace qwen35::codegen::cuda {
namespace {

using reference::MoeDims;

/// Expects ||got - want|| <= tolerance * ||want||.
void expectNearL2(const Array &got, const std::vector<double> &want,
                  double tolerance, const std::string &what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  double error = 0, norm = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << what;
}

/// `choose(token, slot)` names the expert of a slot.
template <typename Choose>
Array routing(int64_t tokens, int64_t topK, Choose choose) {
  Array idx = i32({tokens, topK});
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < topK; ++j)
      idx.set(t * topK + j, choose(t, j));
  return idx;
}

class CudaMoeTest : public CudaKernelTest {
protected:
  template <typename Choose>
  void check(MoeDims d, Choose choose, bool shard = false) {
    for (Kind kind : kFloatKinds)
      check(kind, d, routing(d.tokens, d.topK, choose), shard);
  }
  template <typename Choose>
  void checkHopper(MoeDims d, Choose choose, bool shard = false) {
    target = "emulated_sm_90a";
    check(Kind::BF16, d, routing(d.tokens, d.topK, choose), shard);
  }

  void check(Kind kind, MoeDims d, Array idx, bool shard) {
    auto attrs = [&](std::string text) {
      return "{" + text + (!shard ? "" : text.empty() ? "shard" : ", shard") +
             "}";
    };
    SCOPED_TRACE(testing::Message()
                 << d.tokens << " tokens, " << d.experts << " experts, "
                 << (kind == Kind::BF16 ? "bf16" : "f32"));
    // bf16: h, rows of y and dx, and gate and up in the backward pass, are
    // rounded on the way.
    double near = kind == Kind::BF16 ? 4.5e-3 : 2e-6;
    int64_t slots = 0;
    for (int64_t i = 0; i < idx.size(); ++i)
      slots += idx[i] >= 0;
    if (slots < 16)
      near *= 2; // Few elements: their errors do not average out.
    Array x = random(kind, {d.tokens, d.hidden}, 1);
    Array weights = random({d.tokens, d.topK}, 2);
    Array gateUp =
        random(kind, {d.experts, 2 * d.intermediate, d.hidden}, 3, 0.4);
    Array down = random(kind, {d.experts, d.hidden, d.intermediate}, 4, 0.4);
    run("moe_experts", attrs(""), {x, weights, idx, gateUp, down},
        {zeros(kind, {d.tokens, d.hidden})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> y(x.size());
          expectOk(reference::moeExperts<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf<int32_t>(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), d, absl::MakeSpan(y), shard));
          expectNearL2(out[0], y, near, "y");
        });
    for (bool accumulate : {false, true}) {
      if (shard && !accumulate)
        continue;
      Arrays made, inputs = {random(kind, {d.tokens, d.hidden}, 5), x, weights, idx,
                       gateUp, down};
      if (accumulate)
        for (const Array &weight : {gateUp, down})
          inputs.push_back(random(weight.shape(), 6));
      run("moe_experts_bwd", attrs(accumulate ? "accumulate = true" : ""),
          inputs,
          {zeros(kind, {d.tokens, d.hidden}), f32({d.tokens, d.topK}),
           f32({d.experts, 2 * d.intermediate, d.hidden}),
           f32({d.experts, d.hidden, d.intermediate})},
          [&](const Arrays &in, const Arrays &out) {
            std::vector<double> dx(x.size()), dweights(weights.size()),
                dGateUp(gateUp.size()), dDown(down.size());
            expectOk(reference::moeExpertsBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                valuesOf<int32_t>(in[3]), valuesOf(in[4]), valuesOf(in[5]), d,
                absl::MakeSpan(dx), absl::MakeSpan(dweights),
                absl::MakeSpan(dGateUp), absl::MakeSpan(dDown), shard));
            for (size_t i = 0; accumulate && i < dGateUp.size(); ++i)
              dGateUp[i] += in[6][i];
            for (size_t i = 0; accumulate && i < dDown.size(); ++i)
              dDown[i] += in[7][i];
            expectNearL2(out[0], dx, near, "dx");
            expectNearL2(out[1], dweights, near, "dweights");
            expectNearL2(out[2], dGateUp, near, "dw_gate_up");
            expectNearL2(out[3], dDown, near, "dw_down");
            // A18: nothing is left over for experts without tokens.
            std::vector<bool> used(d.experts, false);
            for (int64_t i = 0; i < in[3].size(); ++i)
              if (in[3][i] >= 0)
                used[static_cast<int64_t>(in[3][i])] = true;
              else // Nothing is due to a slot of another rank.
                ASSERT_EQ(out[1][i], 0) << "slot " << i;
            for (int result : {2, 3})
              for (int64_t i = 0; i < out[result].size(); ++i)
                if (!used[i / (out[result].size() / d.experts)])
                  ASSERT_EQ(out[result][i], accumulate ? in[result + 4][i] : 0)
                      << "result " << result;
            made = out;
          });
      checkSquares(attrs(accumulate ? "accumulate = true, squares = true"
                                    : "squares = true"),
                   inputs, made);
    }
  }

  /// With {squares = true}: the same bits, and the sum of the squares of the
  /// gradients of the parameters.
  void checkSquares(const std::string &attrs, const Arrays &inputs,
                    const Arrays &made) {
    Arrays outputs = made;
    outputs.push_back(f64({}));
    boundSquares();
    run("moe_experts_bwd", attrs, inputs, outputs,
        [&](const Arrays &, const Arrays &out) {
          double sum = 0;
          for (size_t i = 0; i < made.size(); ++i) {
            EXPECT_TRUE(out[i].sameBits(made[i])) << "result " << i;
            for (int64_t j = 0; i >= 2 && j < out[i].size(); ++j)
              sum += out[i][j] * out[i][j];
          }
          EXPECT_GT(sum, 0);
          EXPECT_NEAR(out[4][0], sum, 1e-6 * sum) << "squares";
        });
    deviceBounds.clear();
  }

  /// A sum in f64, but of gradients that a GPU sums in another order and whose
  /// operands it rounds to bf16 on the way.
  void boundSquares() { deviceBounds = {{}, {}, {}, {}, {1e-4, 0}}; }
};

TEST_F(CudaMoeTest, DebugSize) {
  check(MoeDims{128, 64, 8, 2, 64},
        [](int64_t t, int64_t j) { return (t * 5 + j * 3) % 8; });
}

/// Experts of one rank of several, the first three of eight: most slots are of
/// others.
double firstThree(int64_t expert) { return expert < 3 ? expert : -1; }

TEST_F(CudaMoeTest, SlotsOfOtherRanks) {
  MoeDims d{300, 33, 3, 2, 24};
  check(Kind::F32, d, routing(d.tokens, d.topK, [](int64_t t, int64_t j) {
          return firstThree((t * 5 + j * 3) % 8);
        }),
        /*shard=*/true);
  // More choices than the rank has experts.
  d = MoeDims{9, 8, 1, 4, 8};
  check(Kind::BF16, d, routing(d.tokens, d.topK, [](int64_t t, int64_t j) {
          return j == t % 4 ? 0 : -1;
        }),
        /*shard=*/true);
}

TEST_F(CudaMoeTest, AllSlotsOfOtherRanks) {
  MoeDims d{9, 8, 2, 2, 8};
  check(Kind::F32, d,
        routing(d.tokens, d.topK, [](int64_t, int64_t) { return -1; }),
        /*shard=*/true);
}

TEST_F(CudaMoeTest, HopperSlotsOfOtherRanks) {
  checkHopper(
      MoeDims{150, 128, 3, 4, 64},
      [](int64_t t, int64_t j) { return firstThree((t * 5 + j * 3) % 8); },
      /*shard=*/true);
}

TEST_F(CudaMoeTest, HopperAllSlotsOfOtherRanks) {
  checkHopper(MoeDims{70, 64, 2, 2, 64}, [](int64_t, int64_t) { return -1; },
              /*shard=*/true);
}

TEST_F(CudaMoeTest, SizesThatFillNoVector) {
  check(MoeDims{77, 33, 8, 2, 23},
        [](int64_t t, int64_t j) { return (t * 5 + j * 3) % 8; });
}

TEST_F(CudaMoeTest, WideExpertsAndSeveralTiles) {
  check(MoeDims{150, 320, 3, 1, 192},
        [](int64_t t, int64_t) { return t % 7 / 3; });
}

TEST_F(CudaMoeTest, AllTokensOnOneExpert) {
  check(MoeDims{300, 16, 4, 1, 24}, [](int64_t, int64_t) { return 2; });
}

TEST_F(CudaMoeTest, A18ExpertsWithoutTokensGetZeroGradients) {
  check(MoeDims{8, 16, 256, 2, 8},
        [](int64_t t, int64_t j) { return 31 * t + j; });
}

TEST_F(CudaMoeTest, ManyBlocksOfThePlan) {
  check(MoeDims{700, 16, 37, 5, 8},
        [](int64_t t, int64_t j) { return (t * t + 7 * j) % 37; });
}

TEST_F(CudaMoeTest, OneToken) {
  check(MoeDims{1, 5, 2, 2, 3}, [](int64_t, int64_t j) { return j; });
}

// Gradients of 1e25 and of 1e-25, whose squares f32 does not hold, and none.
TEST_F(CudaMoeTest, SquaresLeaveTheRangeOfF32) {
  MoeDims d{20, 64, 3, 1, 64};
  Array x = random(Kind::BF16, {d.tokens, d.hidden}, 1);
  Array weights = random({d.tokens, 1}, 2);
  Array idx = routing(d.tokens, 1, [](int64_t t, int64_t) { return t % 2; });
  Array gateUp = random(Kind::BF16, {3, 128, 64}, 3, 0.4);
  Array down = random(Kind::BF16, {3, 64, 64}, 4, 0.4);
  for (double scale : {1e25, 1e-25, 0.0})
    for (std::string of : {"emulated", "emulated_sm_90a"}) {
      target = of;
      boundSquares();
      run("moe_experts_bwd", "{squares = true}",
          {random(Kind::BF16, {d.tokens, d.hidden}, 5, scale), x, weights, idx,
           gateUp, down},
          {bf16({d.tokens, d.hidden}), f32({d.tokens, 1}), f32({3, 128, 64}),
           f32({3, 64, 64}), f64({})},
          [&](const Arrays &, const Arrays &out) {
            double sum = 0;
            for (int result : {2, 3})
              for (int64_t i = 0; i < out[result].size(); ++i)
                sum += out[result][i] * out[result][i];
            EXPECT_EQ(sum > 0, scale > 0);
            EXPECT_NEAR(out[4][0], sum, 1e-6 * sum) << scale;
          });
    }
}

TEST_F(CudaMoeTest, RefusesSquaresInF32) {
  expectRefused("moe_experts_bwd", "{squares = true}",
                {f32({2, 4}), f32({2, 4}), f32({2, 1}), i32({2, 1}),
                 f32({3, 4, 4}), f32({3, 4, 2})},
                {f32({2, 4}), f32({2, 1}), f32({3, 4, 4}), f32({3, 4, 2}),
                 f32({})},
                "moe_experts_bwd: squares is [] of f32, expected [] of f64");
}

// Sizes are multiples of 64: more columns than a tile, fewer than one, experts
// with rows for both warpgroups of a tile and for one.
TEST_F(CudaMoeTest, HopperDebugSize) {
  checkHopper(MoeDims{128, 64, 8, 2, 64},
              [](int64_t t, int64_t j) { return (t * 5 + j * 3) % 8; });
}

TEST_F(CudaMoeTest, HopperSeveralTiles) {
  checkHopper(MoeDims{150, 320, 3, 2, 192},
              [](int64_t t, int64_t j) { return (t % 7 / 3 + j) % 3; });
}

TEST_F(CudaMoeTest, HopperWideExpertsWithoutTokens) {
  checkHopper(MoeDims{5, 128, 40, 2, 320},
              [](int64_t t, int64_t j) { return 4 * t + j; });
}

TEST_F(CudaMoeTest, HopperAllTokensOnOneExpert) {
  checkHopper(MoeDims{300, 64, 4, 1, 64}, [](int64_t, int64_t) { return 2; });
}

// A token that chose an expert twice, as routers of NaN do, is not special.
TEST_F(CudaMoeTest, AnExpertTwice) {
  check(MoeDims{20, 64, 2, 2, 64}, [](int64_t t, int64_t) { return t % 2; });
}

} // namespace
} // namespace qwen35::codegen::cuda
