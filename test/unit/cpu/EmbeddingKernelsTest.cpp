#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Delta.h"
#include "dialect/Qwen35/Reference/Embedding.h"
#include "test/unit/cpu/SequenceCase.h"

namespace qwen35::codegen::cpu {
namespace {

using Doubles = std::vector<double>;

Array someIds(int64_t tokens, int64_t vocab) {
  Array ids = i32({tokens});
  for (int64_t t = 0; t < tokens; ++t)
    ids.set(t, static_cast<double>(t * t * 7 % vocab));
  return ids;
}

TEST_F(KernelTest, LocalIdsAreRowsOfTheRanksPart) {
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

TEST_F(KernelTest, EmbedAndItsGradientMatchTheReference) {
  struct Case {
    int64_t tokens, vocab, columns;
  };
  for (const Case &c : {Case{1, 1, 1}, Case{50, 13, 37}, Case{300, 700, 64}}) {
    Array ids = someIds(c.tokens, c.vocab);
    run("embed", "{}", {ids, random({c.vocab, c.columns}, 1)},
        {f32({c.tokens, c.columns})}, [&](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::embed<double>(valuesOf<int32_t>(in[0]),
                                            valuesOf(in[1]), c.tokens, c.vocab,
                                            c.columns, absl::MakeSpan(y)));
          EXPECT_EQ(valuesOf(out[0]), y);
        });
    for (bool accumulate : {false, true}) {
      Arrays inputs = {random({c.tokens, c.columns}, 2), ids};
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
}

// Rows of other ranks are 0, and their gradients nobody's here.
TEST_F(KernelTest, EmbedOfAPartOfTheTable) {
  int64_t tokens = 70, vocab = 13, columns = 37;
  for (int64_t kind : {0, 1, 2}) { // some, no and only rows of this rank
    Array ids = i32({tokens});
    for (int64_t t = 0; t < tokens; ++t)
      ids.set(t, kind == 1 || (kind == 0 && t % 3 == 0)
                     ? -1
                     : static_cast<double>(t * t * 7 % vocab));
    run("embed", "{shard}", {ids, random({vocab, columns}, 1)},
        {f32({tokens, columns})}, [&](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::embed<double>(
              valuesOf<int32_t>(in[0]), valuesOf(in[1]), tokens, vocab, columns,
              absl::MakeSpan(y), /*shard=*/true));
          EXPECT_EQ(valuesOf(out[0]), y);
        });
    for (bool accumulate : {false, true}) {
      Arrays inputs = {random({tokens, columns}, 2), ids};
      if (accumulate)
        inputs.push_back(random({vocab, columns}, 3));
      run("embed_bwd",
          std::string("{vocab = 13 : i64, shard, accumulate = ") +
              (accumulate ? "true" : "false") + "}",
          inputs, {f32({vocab, columns})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles dtable(out[0].size());
            expectOk(reference::embedBwd<double>(
                valuesOf(in[0]), valuesOf<int32_t>(in[1]), tokens, vocab,
                columns, absl::MakeSpan(dtable), /*shard=*/true));
            for (int64_t i = 0; accumulate && i < out[0].size(); ++i)
              dtable[i] += in[2][i];
            expectNear(out[0], dtable, 1e-5, "dtable");
          });
    }
  }
}

TEST_F(KernelTest, RopeTableRestartsAtEveryDocument) {
  for (const SequenceCase &c : sequenceCases())
    for (int64_t rotary : {2, 6, 64})
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

TEST_F(KernelTest, RopeMatchesTheReference) {
  struct Case {
    int64_t tokens, heads, dim, rotary;
    std::vector<int64_t> strides;
  };
  for (const Case &c :
       {Case{3, 2, 8, 8, {}}, Case{40, 3, 70, 34, {}}, Case{5, 1, 2, 2, {}},
        Case{200, 4, 96, 32, {1000, 200, 1}}})
    for (bool inverse : {false, true})
      run("rope", inverse ? "{inverse = true}" : "{inverse = false}",
          {random({c.tokens, c.heads, c.dim}, 1, 1, c.strides),
           random({c.tokens, c.rotary / 2, 2}, 2)},
          {f32({c.tokens, c.heads, c.dim})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::rope<double>(valuesOf(in[0]), valuesOf(in[1]),
                                             c.tokens, c.heads, c.dim, c.rotary,
                                             inverse, absl::MakeSpan(y)));
            expectNear(out[0], y, 1e-6, "y");
          });
}

TEST_F(KernelTest, GdnGatesMatchTheReference) {
  struct Case {
    int64_t tokens, heads;
    std::vector<int64_t> strides;
  };
  for (const Case &c :
       {Case{1, 1, {}}, Case{70, 5, {}}, Case{333, 48, {100, 1}}}) {
    std::vector<int64_t> shape = {c.tokens, c.heads};
    Arrays gates = {random(shape, 1, 25, c.strides),
                    random(shape, 2, 6, c.strides), random({c.heads}, 3, 2),
                    random({c.heads}, 4, 2)};
    run("gdn_gates", "{}", gates, {f32(shape), f32(shape)},
        [&](const Arrays &in, const Arrays &out) {
          Doubles g(out[0].size()), beta(out[1].size());
          expectOk(reference::gdnGates<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), c.tokens, c.heads, absl::MakeSpan(g),
              absl::MakeSpan(beta)));
          expectNear(out[0], g, 2e-6, "g");
          expectNear(out[1], beta, 1e-6, "beta");
        });
    Arrays inputs = {random(shape, 5), random(shape, 6)};
    inputs.insert(inputs.end(), gates.begin(), gates.end());
    run("gdn_gates_bwd", "{}", inputs,
        {f32(shape), f32(shape), f32({c.heads}), f32({c.heads})},
        [&](const Arrays &in, const Arrays &out) {
          Doubles da(out[0].size()), db = da, dLog(c.heads), dBias(c.heads);
          expectOk(reference::gdnGatesBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.tokens,
              c.heads, absl::MakeSpan(da), absl::MakeSpan(db),
              absl::MakeSpan(dLog), absl::MakeSpan(dBias)));
          expectNear(out[0], da, 2e-6, "da");
          expectNear(out[1], db, 2e-6, "db");
          expectNear(out[2], dLog, 1e-5, "da_log");
          expectNear(out[3], dBias, 1e-5, "ddt_bias");
        });
  }
}

} // namespace
} // namespace qwen35::codegen::cpu
