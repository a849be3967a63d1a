#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include <limits>
#include <tuple>

namespace qwen35::codegen::cuda {
namespace {

TEST_F(CudaKernelTest, RouterPicksTheLargestAndTheLowerIdAmongEqualOnes) {
  for (auto [tokens, experts, topK] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {50, 16, 4}, {3, 1, 1}, {9, 37, 37}, {20, 256, 8}, {5, 8, 2}}) {
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

// Whatever comes in, idx has to be an expert: other kernels index with it.
TEST_F(CudaKernelTest, RouterOfNaNChoosesExperts) {
  Array logits = random({4, 40}, 1);
  for (int64_t e = 0; e < 40; ++e)
    logits.set(40 + e, std::numeric_limits<double>::quiet_NaN());
  run("router", "{top_k = 3}", {logits},
      {f32({4, 3}), i32({4, 3}), f32({4, 40})},
      [&](const Arrays &, const Arrays &out) {
        for (int64_t i = 0; i < 12; ++i) {
          EXPECT_GE(out[1][i], 0);
          EXPECT_LT(out[1][i], 40);
        }
      });
}

TEST_F(CudaKernelTest, RouterBwdMatchesTheReference) {
  for (auto [tokens, experts, topK] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{50, 19, 3},
                                                          {9, 256, 8}}) {
    Array idx = i32({tokens, topK});
    for (int64_t i = 0; i < tokens * topK; ++i)
      idx.set(i, (i / topK + 5 * (i % topK)) % experts);
    run("router_bwd", "{experts = " + std::to_string(experts) + "}",
        {random({tokens, topK}, 1), random({tokens, topK}, 2), idx},
        {f32({tokens, experts})}, [&](const Arrays &in, const Arrays &out) {
          std::vector<double> dlogits(tokens * experts);
          expectOk(reference::routerBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf<int32_t>(in[2]),
              tokens, experts, topK, absl::MakeSpan(dlogits)));
          expectNear(out[0], dlogits, 2e-6, "dlogits");
        });
  }
}

// A17: the slots of padding do not count; A20 is the value of one softmax.
TEST_F(CudaKernelTest, A17RouterAuxCountsRealTokensOnly) {
  int64_t experts = 9, topK = 2, layers = 3;
  for (const SequenceCase &c : sequenceCases())
    for (const char *scope : {"pooled", "per_layer"}) {
      Arrays probs, ids;
      for (int64_t l = 0; l < layers; ++l) {
        probs.push_back(random({c.tokens, experts}, 10 + l));
        Array idx = i32({c.tokens, topK});
        for (int64_t i = 0; i < c.tokens * topK; ++i)
          idx.set(i, (i / topK * (l + 1) + 4 * (i % topK)) % experts);
        ids.push_back(idx);
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

      if (c.documents.size() >= 3) {
        // The same from what ranks add up, of which this is the only one.
        int64_t rows = std::string(scope) == "pooled" ? 1 : layers;
        std::vector<double> counts(rows * experts), sums(counts), real(1);
        expectOk(reference::routerStats<double>(
            pSpans, iSpans, c.shape(), table, experts, topK, scopeOf,
            absl::MakeSpan(counts), absl::MakeSpan(sums),
            absl::MakeSpan(real)));
        run("router_stats", attrs, operands,
            {f32({rows, experts}), f32({rows, experts}), f32({})},
            [&](const Arrays &, const Arrays &out) {
              expectNear(out[0], counts, 0, "counts");
              expectNear(out[1], sums, 2e-6, "sums");
              expectNear(out[2], real, 0, "tokens");
            });
        // Of more tokens than these, as after a sum over ranks.
        Array allCounts = f32({rows, experts}), allSums = f32({rows, experts});
        for (int64_t i = 0; i < rows * experts; ++i) {
          allCounts.set(i, counts[i] * 3 + i % 4);
          allSums.set(i, sums[i] * 3 + 0.5);
        }
        double tokens = 3 * real[0] + 1;
        std::string statsAttrs =
            "scope = \"" + std::string(scope) + "\", layers = 3, slots = 2";
        run("router_stats_aux", "{" + statsAttrs + "}",
            {allCounts, allSums, scalar(tokens)}, {f32({})},
            [&](const Arrays &in, const Arrays &out) {
              std::vector<double> want(1);
              expectOk(reference::routerStatsAux<double>(
                  valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), layers,
                  experts, topK, scopeOf, absl::MakeSpan(want)));
              expectNear(out[0], want, 2e-6, "aux");
            });
        run("router_stats_grad", "{" + statsAttrs + ", " + c.attrs() + "}",
            {scalar(0.7), allCounts, scalar(tokens), c.table()},
            Arrays(layers, f32({c.tokens, experts})),
            [&](const Arrays &in, const Arrays &out) {
              std::vector<std::vector<double>> want(
                  layers, std::vector<double>(c.tokens * experts));
              std::vector<absl::Span<double>> spans;
              for (auto &values : want)
                spans.push_back(absl::MakeSpan(values));
              expectOk(reference::routerStatsGrad<double>(
                  valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), c.shape(),
                  table, experts, topK, scopeOf, spans));
              for (int64_t l = 0; l < layers; ++l)
                expectNear(out[l], want[l], 2e-6, "dprobs");
            });
      }

      std::vector<double> daux = {0.7};
      std::vector<std::vector<double>> d(
          layers, std::vector<double>(c.tokens * experts));
      std::vector<absl::Span<double>> dSpans;
      for (auto &values : d)
        dSpans.push_back(absl::MakeSpan(values));
      expectOk(reference::routerAuxBwd<double>(daux, iSpans, c.shape(), table,
                                               experts, topK, scopeOf, dSpans));
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
} // namespace qwen35::codegen::cuda
