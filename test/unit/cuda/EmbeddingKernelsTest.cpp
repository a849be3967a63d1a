#include "dialect/Qwen35/Reference/Embedding.h"
#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

/// Every `often`-th token has id 1, as padding or a full stop would.
Array someIds(int64_t tokens, int64_t vocab, int64_t often) {
  Array ids = i32({tokens});
  for (int64_t t = 0; t < tokens; ++t)
    ids.set(t, t % often == 0 && vocab > 1
                   ? 1
                   : static_cast<double>(t * t * 7 % vocab));
  return ids;
}

struct EmbedCase {
  int64_t tokens, vocab, columns, often;
};

std::vector<EmbedCase> embedCases() {
  return {{1, 1, 1, 1000},
          {50, 13, 37, 3},
          {300, 700, 64, 1000},
          {500, 97, 264, 2},
          {4500, 90, 8, 5}}; // more than a window of tokens
}

TEST_F(CudaKernelTest, LocalIdsAreRowsOfTheRanksPart) {
  for (int64_t tokens : {1, 7, 70, 1003})
    for (int64_t rank : {0, 1, 2}) {
      Array ids = i32({tokens}), coordinate = i32({});
      coordinate.set(0, static_cast<double>(rank));
      for (int64_t t = 0; t < tokens; ++t)
        ids.set(t, t % 5 == 4 ? -100.0 : static_cast<double>(t * 7 % 39));
      run("local_ids", "{size = 13 : i64}", {ids, coordinate}, {i32({tokens})},
          [&](const Arrays &in, const Arrays &out) {
            for (int64_t t = 0; t < tokens; ++t) {
              double id = in[0][t], local = id - 13.0 * double(rank);
              double want = id < 0 ? id : local >= 0 && local < 13 ? local : -1;
              EXPECT_EQ(out[0][t], want) << t;
            }
          });
    }
}

TEST_F(CudaKernelTest, EmbedIsExact) {
  for (Kind t : kFloatKinds)
    for (const EmbedCase &c : embedCases())
      run("embed", "{}",
          {someIds(c.tokens, c.vocab, c.often),
           random(t, {c.vocab, c.columns}, 1)},
          {zeros(t, {c.tokens, c.columns})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::embed<double>(
                valuesOf<int32_t>(in[0]), valuesOf(in[1]), c.tokens, c.vocab,
                c.columns, absl::MakeSpan(y)));
            EXPECT_EQ(valuesOf(out[0]), y);
          });
}

// Rows of other ranks are 0, and their gradients nobody's here.
TEST_F(CudaKernelTest, EmbedOfAPartOfTheTable) {
  for (Kind t : kFloatKinds)
    for (const EmbedCase &c : {EmbedCase{50, 13, 37, 3}, {300, 97, 64, 2}})
      for (bool none : {false, true}) {
        Array ids = someIds(c.tokens, c.vocab, c.often);
        for (int64_t i = 0; i < c.tokens; ++i)
          if (none || i % 3 != 0)
            ids.set(i, -1);
        run("embed", "{shard}", {ids, random(t, {c.vocab, c.columns}, 1)},
            {zeros(t, {c.tokens, c.columns})},
            [&](const Arrays &in, const Arrays &out) {
              Doubles y(out[0].size());
              expectOk(reference::embed<double>(
                  valuesOf<int32_t>(in[0]), valuesOf(in[1]), c.tokens, c.vocab,
                  c.columns, absl::MakeSpan(y), /*shard=*/true));
              EXPECT_EQ(valuesOf(out[0]), y);
            });
        for (bool accumulate : {false, true}) {
          Arrays inputs = {random(t, {c.tokens, c.columns}, 2), ids};
          if (accumulate)
            inputs.push_back(random({c.vocab, c.columns}, 3));
          run("embed_bwd",
              "{vocab = " + std::to_string(c.vocab) +
                  " : i64, shard, accumulate = " +
                  (accumulate ? "true" : "false") + "}",
              inputs, {f32({c.vocab, c.columns})},
              [&](const Arrays &in, const Arrays &out) {
                Doubles dtable(out[0].size());
                expectOk(reference::embedBwd<double>(
                    valuesOf(in[0]), valuesOf<int32_t>(in[1]), c.tokens,
                    c.vocab, c.columns, absl::MakeSpan(dtable),
                    /*shard=*/true));
                for (int64_t i = 0; accumulate && i < out[0].size(); ++i)
                  dtable[i] += in[2][i];
                expectNear(out[0], dtable, 1e-5, "dtable");
              });
        }
      }
}

TEST_F(CudaKernelTest, EmbedBwdAddsRowsOfOneId) {
  for (Kind t : kFloatKinds)
    for (bool accumulate : {false, true})
      for (const EmbedCase &c : embedCases()) {
        std::vector<int64_t> strides;
        if (c.columns == 64)
          strides = {80, 1};
        Arrays inputs = {random(t, {c.tokens, c.columns}, 2, 1, strides),
                         someIds(c.tokens, c.vocab, c.often)};
        if (accumulate)
          inputs.push_back(random({c.vocab, c.columns}, 3));
        run("embed_bwd",
            "{vocab = " + std::to_string(c.vocab) +
                " : i64, accumulate = " + (accumulate ? "true" : "false") + "}",
            inputs, {f32({c.vocab, c.columns})},
            [&](const Arrays &in, const Arrays &out) {
              Doubles dtable(out[0].size());
              expectOk(reference::embedBwd<double>(
                  valuesOf(in[0]), valuesOf<int32_t>(in[1]), c.tokens, c.vocab,
                  c.columns, absl::MakeSpan(dtable)));
              for (int64_t i = 0; accumulate && i < out[0].size(); ++i)
                dtable[i] += in[2][i];
              expectNear(out[0], dtable, 1e-5, "dtable");
            });
      }
}

} // namespace
} // namespace qwen35::codegen::cuda
