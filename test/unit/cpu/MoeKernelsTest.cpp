#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/cpu/SequenceCase.h"

#include <cmath>
#include <numeric>

namespace qwen35::codegen::cpu {
namespace {

using reference::MoeDims;

/// `choose(token, slot)` names the expert of a slot.
template <typename Choose>
Array routing(int64_t tokens, int64_t topK, Choose choose) {
  Array idx = i32({tokens, topK});
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < topK; ++j)
      idx.set(t * topK + j, choose(t, j));
  return idx;
}

class MoeKernelTest : public KernelTest {
protected:
  template <typename Choose>
  void check(MoeDims d, Choose choose, bool shard = false) {
    SCOPED_TRACE(testing::Message()
                 << d.tokens << " tokens, " << d.experts << " experts");
    Array x = random({d.tokens, d.hidden}, 1);
    Array weights = random({d.tokens, d.topK}, 2);
    Array idx = routing(d.tokens, d.topK, choose);
    Array gateUp = random({d.experts, 2 * d.intermediate, d.hidden}, 3, 0.4);
    Array down = random({d.experts, d.hidden, d.intermediate}, 4, 0.4);
    run("moe_experts", shard ? "{shard}" : "{}", {x, weights, idx, gateUp, down},
        {f32({d.tokens, d.hidden})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> y(x.size());
          expectOk(reference::moeExperts<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf<int32_t>(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), d, absl::MakeSpan(y), shard));
          expectNear(out[0], y, 1e-5, "y");
        });
    for (bool accumulate : {false, true}) {
      Arrays inputs = {random({d.tokens, d.hidden}, 5), x,      weights, idx,
                       gateUp,                          down};
      if (accumulate)
        for (const Array &weight : {gateUp, down})
          inputs.push_back(random(weight.shape(), 6));
      run("moe_experts_bwd",
          shard ? accumulate ? "{accumulate = true, shard}" : "{shard}"
          : accumulate ? "{accumulate = true}"
                       : "{}",
          inputs,
          {f32({d.tokens, d.hidden}), f32({d.tokens, d.topK}),
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
            expectNear(out[0], dx, 1e-5, "dx");
            expectNear(out[1], dweights, 1e-5, "dweights");
            expectNear(out[2], dGateUp, 1e-5, "dw_gate_up");
            expectNear(out[3], dDown, 1e-5, "dw_down");
            // A18: nothing is left over for experts without tokens.
            std::vector<bool> used(d.experts, false);
            for (int64_t i = 0; i < in[3].size(); ++i)
              if (in[3][i] >= 0)
                used[static_cast<int64_t>(in[3][i])] = true;
              else // Nothing is due to a slot of another rank.
                ASSERT_EQ(out[1][i], 0) << "slot " << i;
            int64_t size = 2 * d.intermediate * d.hidden;
            for (int64_t i = 0; i < out[2].size(); ++i)
              if (!used[i / size])
                ASSERT_EQ(out[2][i], accumulate ? in[6][i] : 0)
                    << "expert " << i / size;
          });
    }
  }
};

TEST_F(MoeKernelTest, MatchesTheReference) {
  check(MoeDims{77, 33, 8, 2, 24},
        [](int64_t t, int64_t j) { return (t * 5 + j * 3) % 8; });
}

// The experts of one rank of several: most slots are of others.
TEST_F(MoeKernelTest, SlotsOfOtherRanks) {
  auto local = [](int64_t expert) { return expert < 3 ? expert : -1; };
  check(
      MoeDims{77, 33, 3, 2, 24},
      [&](int64_t t, int64_t j) { return local((t * 5 + j * 3) % 8); }, true);
  // More choices than the rank has experts; none here.
  check(
      MoeDims{9, 8, 1, 4, 5},
      [&](int64_t t, int64_t j) { return j == t % 4 ? 0 : -1; }, true);
  check(MoeDims{9, 8, 2, 2, 8}, [](int64_t, int64_t) { return -1; }, true);
}

TEST_F(MoeKernelTest, WideExpertsAndSeveralTiles) {
  check(MoeDims{70, 300, 3, 1, 140},
        [](int64_t t, int64_t) { return t % 3; });
}

TEST_F(MoeKernelTest, AllTokensOnOneExpert) {
  check(MoeDims{130, 16, 4, 1, 12}, [](int64_t, int64_t) { return 2; });
}

TEST_F(MoeKernelTest, A18ExpertsWithoutTokensGetZeroGradients) {
  check(MoeDims{8, 16, 256, 2, 8},
        [](int64_t t, int64_t j) { return 31 * t + j; });
}

TEST_F(MoeKernelTest, OneToken) {
  check(MoeDims{1, 5, 2, 2, 3}, [](int64_t, int64_t j) { return j; });
}

TEST_F(KernelTest, RouterPicksTheLargestAndTheLowerIdAmongEqualOnes) {
  for (auto [tokens, experts, topK] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {50, 16, 4}, {3, 1, 1}, {9, 37, 37}}) {
    Array logits = random({tokens, experts}, 1, 4);
    for (int64_t e = 0; e < experts; ++e)
      logits.set(e, e % 3); // token 0: ties
    run("router", "{top_k = " + std::to_string(topK) + "}", {logits},
        {f32({tokens, topK}), i32({tokens, topK}), f32({tokens, experts})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> weights(tokens * topK), probs(tokens * experts);
          std::vector<int32_t> idx(tokens * topK);
          expectOk(reference::router<double>(
              valuesOf(in[0]), tokens, experts, topK, absl::MakeSpan(weights),
              absl::MakeSpan(idx), absl::MakeSpan(probs)));
          expectNear(out[0], weights, 2e-6, "weights");
          EXPECT_EQ(valuesOf<int32_t>(out[1]), idx);
          expectNear(out[2], probs, 2e-6, "probs");
        });
  }
}

TEST_F(KernelTest, RouterBwdMatchesTheReference) {
  int64_t tokens = 50, experts = 19, topK = 3;
  Array idx = routing(tokens, topK, [&](int64_t t, int64_t j) {
    return (t + 5 * j) % experts;
  });
  run("router_bwd", "{experts = 19}",
      {random({tokens, topK}, 1), random({tokens, topK}, 2), idx},
      {f32({tokens, experts})}, [&](const Arrays &in, const Arrays &out) {
        std::vector<double> dlogits(tokens * experts);
        expectOk(reference::routerBwd<double>(
            valuesOf(in[0]), valuesOf(in[1]), valuesOf<int32_t>(in[2]), tokens,
            experts, topK, absl::MakeSpan(dlogits)));
        expectNear(out[0], dlogits, 2e-6, "dlogits");
      });
}

// A17: the slots of padding do not count; A20 is the value of one softmax.
TEST_F(KernelTest, A17RouterAuxCountsRealTokensOnly) {
  int64_t experts = 9, topK = 2, layers = 3;
  for (const SequenceCase &c : sequenceCases())
    for (const char *scope : {"pooled", "per_layer"}) {
      Arrays probs, ids;
      for (int64_t l = 0; l < layers; ++l) {
        probs.push_back(random({c.tokens, experts}, 10 + l));
        ids.push_back(routing(c.tokens, topK, [&](int64_t t, int64_t j) {
          return (t * (l + 1) + 4 * j) % experts;
        }));
      }
      auto scopeOf = std::string(scope) == "pooled"
                         ? reference::RouterAuxScope::kPooled
                         : reference::RouterAuxScope::kPerLayer;
      std::string attrs =
          "{scope = \"" + std::string(scope) + "\", " + c.attrs() + "}";
      Arrays operands = probs;
      operands.insert(operands.end(), ids.begin(), ids.end());
      operands.push_back(c.table());

      std::vector<std::vector<double>> p;
      std::vector<std::vector<int32_t>> i;
      for (int64_t l = 0; l < layers; ++l) {
        p.push_back(valuesOf(probs[l]));
        i.push_back(valuesOf<int32_t>(ids[l]));
      }
      std::vector<absl::Span<const double>> pSpans(p.begin(), p.end());
      std::vector<absl::Span<const int32_t>> iSpans(i.begin(), i.end());
      auto table = valuesOf<int32_t>(c.table());
      std::vector<double> aux(1);
      expectOk(reference::routerAux<double>(pSpans, iSpans, c.shape(), table,
                                            experts, topK, scopeOf,
                                            absl::MakeSpan(aux)));
      run("router_aux", attrs, operands, {f32({})},
          [&](const Arrays &, const Arrays &out) {
            expectNear(out[0], aux, 2e-6, "aux");
          });

      std::vector<double> daux = {0.7};
      std::vector<std::vector<double>> d(
          layers, std::vector<double>(c.tokens * experts));
      std::vector<absl::Span<double>> dSpans;
      for (auto &values : d)
        dSpans.push_back(absl::MakeSpan(values));
      expectOk(reference::routerAuxBwd<double>(daux, iSpans, c.shape(), table,
                                               experts, topK, scopeOf,
                                               dSpans));
      operands.insert(operands.begin(), scalar(0.7));
      run("router_aux_bwd", attrs, operands,
          Arrays(layers, f32({c.tokens, experts})),
          [&](const Arrays &, const Arrays &out) {
            for (int64_t l = 0; l < layers; ++l)
              expectNear(out[l], d[l], 2e-6, "dprobs");
          });
    }
}

} // namespace
} // namespace qwen35::codegen::cpu
