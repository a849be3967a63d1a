// The chunk ops equal the token recurrence in double, forward and all
// gradients, on the inputs of KERNELS.md 9.2; and what holds without a
// reference: the Euler identity, packing, order of documents, causality.

#include "test/unit/reference/DeltaCase.h"

#include "gtest/gtest.h"

#include <functional>

namespace qwen35::test {
namespace {

using reference::DeltaDims;

constexpr DeltaDims kDims{2, 4, 16, 12};

/// The chunk ops and the recurrence agree. `typical` is the size of an element
/// of dg below which an error counts as absolute: where decay is extreme or the
/// state never forgets, terms of size 1 cancel and the truth is about zero.
void expectChunksMatch(const DeltaCase &c, double typical = 0) {
  auto token = c.byToken<double>(), chunk = c.byChunk<double>();
  auto expected = token.named(), actual = chunk.named();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto &truth = *expected[i].second, &value = *actual[i].second;
    EXPECT_TRUE(allFinite(truth)) << expected[i].first;
    EXPECT_TRUE(allFinite(value)) << expected[i].first;
    double floor = expected[i].first == "dg" ? typical : 0;
    EXPECT_LT(relativeError(value, truth, floor * std::sqrt(truth.size())),
              1e-12)
        << expected[i].first;
  }
}

/// One row of documents, with two entries more than it needs.
DeltaCase packed(const std::vector<int64_t> &lengths,
                 const DeltaDims &dims = kDims) {
  return DeltaCase(DocumentTable(lengths, 0, lengths.size() + 2), dims);
}

//===----------------------------------------------------------------------===//
// Lengths and heads
//===----------------------------------------------------------------------===//

class DeltaChunkLength : public testing::TestWithParam<int64_t> {};

TEST_P(DeltaChunkLength, MatchesTokenRecurrence) {
  expectChunksMatch(packed({GetParam()}));
}

INSTANTIATE_TEST_SUITE_P(Tokens, DeltaChunkLength,
                         testing::Values(1, 2, 3, 15, 16, 17, 63, 64, 65, 127,
                                         128, 129, 191, 448),
                         testing::PrintToStringParamName());

TEST(DeltaChunkTest, MatchesInPackedRows) {
  expectChunksMatch(packed({1}));
  expectChunksMatch(packed({1, 1, 1, 1, 1, 1, 1}));
  expectChunksMatch(packed({63, 1, 64, 65}));
  expectChunksMatch(packed({37, 51, 40}));
  // Tail padding is a document like any other.
  expectChunksMatch(DeltaCase(DocumentTable({37, 51, 40}, 150), kDims));
}

TEST(DeltaChunkTest, MatchesForEveryNumberOfValueHeadsPerKeyHead) {
  for (int64_t group : {1, 2, 3, 4, 8})
    expectChunksMatch(packed({70, 9}, {2, 2 * group, 8, 8}));
}

TEST(DeltaChunkTest, MatchesWithPublishedHeadSizes) {
  expectChunksMatch(packed({64, 1, 65}, {1, 2, 128, 128}));
}

TEST(DeltaChunkTest, Float32StaysNearDouble) {
  DeltaCase c = packed({63, 1, 64, 65});
  auto truth = c.byToken<double>();
  auto token = c.byToken<float>(), chunk = c.byChunk<float>();
  for (size_t i = 0; i < truth.named().size(); ++i) {
    auto [name, expected] = truth.named()[i];
    EXPECT_LT(relativeError(*token.named()[i].second, *expected), 3e-6) << name;
    EXPECT_LT(relativeError(*chunk.named()[i].second, *expected), 3e-6) << name;
  }
}

//===----------------------------------------------------------------------===//
// Adversarial values
//===----------------------------------------------------------------------===//

struct Values {
  const char *name;
  std::function<void(DeltaCase &, Random &)> set;
  double typical = 0; // as in expectChunksMatch
};

void PrintTo(const Values &values, std::ostream *out) { *out << values.name; }

void fill(std::vector<double> &x, double value) {
  std::fill(x.begin(), x.end(), value);
}

/// Row `token` of [tokens, heads, dim] becomes a copy of row 0, each head.
void repeatKey(DeltaCase &c, int64_t token, int64_t from) {
  int64_t row = c.dims.keyHeads * c.dims.keyDim;
  std::copy_n(c.k.begin() + from * row, row, c.k.begin() + token * row);
}

class DeltaChunkValues : public testing::TestWithParam<Values> {};

TEST_P(DeltaChunkValues, MatchesTokenRecurrence) {
  for (std::vector<int64_t> lengths :
       {std::vector<int64_t>{129}, {63, 1, 64, 65}, {37, 51, 40}}) {
    DeltaCase c = packed(lengths);
    Random random(7);
    GetParam().set(c, random);
    expectChunksMatch(c, GetParam().typical);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, DeltaChunkValues,
    testing::Values(
        Values{"no_decay", [](DeltaCase &c, Random &) { fill(c.g, 0); }},
        Values{"slow_decay",
               [](DeltaCase &c, Random &random) {
                 for (double &g : c.g)
                   g = -0.002 * random.uniform();
               }},
        Values{"strong_decay",
               [](DeltaCase &c, Random &random) {
                 for (double &g : c.g)
                   g = -50 * random.uniform();
               }},
        Values{"rare_strong_decay",
               [](DeltaCase &c, Random &random) {
                 for (double &g : c.g)
                   g = random.uniform() < 0.1 ? -50 : 0;
               }},
        Values{"alternating_decay",
               [](DeltaCase &c, Random &) {
                 for (size_t i = 0; i < c.g.size(); ++i)
                   c.g[i] = i / c.dims.valueHeads % 2 ? -50 : 0;
               }},
        Values{"decay_1e_12",
               [](DeltaCase &c, Random &) { fill(c.g, std::log(1e-12)); },
               1e-3},
        Values{"decay_1e_12_once",
               [](DeltaCase &c, Random &) {
                 fill(c.g, 0);
                 for (int64_t h = 0; h < c.dims.valueHeads; ++h)
                   c.g[40 * c.dims.valueHeads + h] = std::log(1e-12);
               }},
        Values{"beta_zero", [](DeltaCase &c, Random &) { fill(c.beta, 0); }},
        Values{"beta_one", [](DeltaCase &c, Random &) { fill(c.beta, 1); }},
        Values{"beta_1e_30",
               [](DeltaCase &c, Random &) { fill(c.beta, 1e-30); }},
        Values{"equal_keys_beta_one",
               [](DeltaCase &c, Random &) {
                 for (int64_t t = 1; t < c.tokens(); ++t)
                   repeatKey(c, t, 0);
                 fill(c.beta, 1);
               },
               1e-3},
        Values{"equal_keys_beta_0_999",
               [](DeltaCase &c, Random &) {
                 for (int64_t t = 1; t < c.tokens(); ++t)
                   repeatKey(c, t, 0);
                 fill(c.beta, 0.999);
               },
               1e-3},
        Values{"eight_keys",
               [](DeltaCase &c, Random &random) {
                 for (int64_t t = 8; t < c.tokens(); ++t)
                   repeatKey(c, t, random.below(8));
               }},
        Values{"correlated_keys",
               [](DeltaCase &c, Random &random) {
                 for (int64_t t = 1; t < c.tokens(); ++t)
                   repeatKey(c, t, 0);
                 for (double &k : c.k)
                   k += 0.1 * random.normal();
               }},
        Values{"zero_keys", [](DeltaCase &c, Random &) { fill(c.k, 0); }},
        Values{"one_zero_query_and_key",
               [](DeltaCase &c, Random &) {
                 int64_t row = c.dims.keyHeads * c.dims.keyDim;
                 std::fill_n(c.q.begin() + 5 * row, row, 0);
                 std::fill_n(c.k.begin() + 9 * row, row, 0);
               }},
        Values{"large_values",
               [](DeltaCase &c, Random &) {
                 for (double &v : c.v)
                   v *= 1e4;
               }},
        Values{"small_values",
               [](DeltaCase &c, Random &) {
                 for (double &v : c.v)
                   v *= 1e-6;
               }}),
    [](const auto &info) { return std::string(info.param.name); });

//===----------------------------------------------------------------------===//
// Properties that need no reference
//===----------------------------------------------------------------------===//

// From token t on, outputs are linear in the decayed state and later values:
// dg[t] = sum of <do, o> - <dv, v> over the tokens from t to the document's
// end.
TEST(DeltaChunkTest, SatisfiesEulerIdentity) {
  DeltaCase c = packed({63, 1, 64, 65});
  Random random(3);
  for (double &g : c.g)
    g = random.uniform() < 0.1 ? -20 : -0.01 * random.uniform();
  for (const auto &r : {c.byToken<double>(), c.byChunk<double>()}) {
    std::vector<double> expected(c.g.size());
    int64_t heads = c.dims.valueHeads, dim = c.dims.valueDim;
    for (int64_t h = 0; h < heads; ++h) {
      double sum = 0;
      for (int64_t t = c.tokens() - 1; t >= 0; --t) {
        if (t + 1 == c.table.words[c.table.shape.docEnd() + t])
          sum = 0;
        for (int64_t i = 0; i < dim; ++i) {
          int64_t at = (t * heads + h) * dim + i;
          sum += c.dO[at] * r.o[at] - r.dv[at] * c.v[at];
        }
        expected[t * heads + h] = sum;
      }
    }
    EXPECT_LT(relativeError(r.dg, expected), 1e-12);
  }
}

/// Tokens [first, last) of a case as a case of its own.
DeltaCase cut(const DeltaCase &c, int64_t first, int64_t last) {
  DeltaCase result = packed({last - first}, c.dims);
  auto copy = [&](const std::vector<double> &from, std::vector<double> &to) {
    int64_t row = from.size() / c.tokens();
    to.assign(from.begin() + first * row, from.begin() + last * row);
  };
  copy(c.q, result.q);
  copy(c.k, result.k);
  copy(c.v, result.v);
  copy(c.g, result.g);
  copy(c.beta, result.beta);
  copy(c.dO, result.dO);
  return result;
}

/// Bitwise equality of rows [first, last) of `all` with the whole of `part`.
void expectSameRows(const DeltaResults<double> &all, int64_t tokens,
                    int64_t first, int64_t last,
                    const DeltaResults<double> &part) {
  auto whole = all.named(), alone = part.named();
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto &x = *whole[i].second;
    int64_t row = x.size() / tokens;
    EXPECT_EQ(
        std::vector<double>(x.begin() + first * row, x.begin() + last * row),
        *alone[i].second)
        << whole[i].first << " of tokens " << first << " to " << last;
  }
}

TEST(DeltaChunkTest, PackedDocumentsEqualDocumentsAloneBitwise) {
  DeltaCase c = packed({37, 51, 40, 1, 130});
  for (double &g : c.g) // Slow, so that a leak would show.
    g *= 0.01;
  auto token = c.byToken<double>(), chunk = c.byChunk<double>();
  int64_t first = 0;
  for (int64_t length : {37, 51, 40, 1, 130}) {
    DeltaCase alone = cut(c, first, first + length);
    expectSameRows(token, c.tokens(), first, first + length,
                   alone.byToken<double>());
    expectSameRows(chunk, c.tokens(), first, first + length,
                   alone.byChunk<double>());
    first += length;
  }
}

TEST(DeltaChunkTest, NanInOneDocumentStaysThere) {
  DeltaCase c = packed({37, 51, 40});
  for (std::vector<double> *x : {&c.q, &c.k, &c.v, &c.g, &c.beta, &c.dO}) {
    int64_t row = x->size() / c.tokens();
    std::fill(x->begin() + 37 * row, x->begin() + 88 * row, quietNan<double>());
  }
  auto token = c.byToken<double>(), chunk = c.byChunk<double>();
  expectSameRows(token, 128, 0, 37, cut(c, 0, 37).byToken<double>());
  expectSameRows(chunk, 128, 0, 37, cut(c, 0, 37).byChunk<double>());
  expectSameRows(token, 128, 88, 128, cut(c, 88, 128).byToken<double>());
  expectSameRows(chunk, 128, 88, 128, cut(c, 88, 128).byChunk<double>());
  EXPECT_TRUE(allFinite(cut(c, 88, 128).byChunk<double>().dg));
}

// What comes later does not change an output, and what is asked of an earlier
// output does not change a later gradient.
TEST(DeltaChunkTest, IsCausalBitwise) {
  DeltaCase before = packed({150});
  auto original = before.byChunk<double>();
  DeltaCase later = before;
  int64_t t = 70, heads = before.dims.valueHeads;
  int64_t keyRow = before.dims.keyHeads * before.dims.keyDim;
  int64_t valueRow = heads * before.dims.valueDim;
  later.q[t * keyRow] += 1;
  later.k[t * keyRow] += 1;
  later.v[t * valueRow] += 1;
  later.g[t * heads] -= 1;
  later.beta[t * heads] *= 0.5;
  auto changed = later.byChunk<double>();
  EXPECT_TRUE(std::equal(original.o.begin(), original.o.begin() + t * valueRow,
                         changed.o.begin()));
  EXPECT_NE(original.o[t * valueRow], changed.o[t * valueRow]);

  DeltaCase asked = before;
  asked.dO[t * valueRow] += 1;
  auto other = asked.byChunk<double>();
  int64_t next = t + 1;
  EXPECT_TRUE(std::equal(original.dv.begin() + next * valueRow,
                         original.dv.end(),
                         other.dv.begin() + next * valueRow));
  EXPECT_TRUE(std::equal(original.dk.begin() + next * keyRow, original.dk.end(),
                         other.dk.begin() + next * keyRow));
  EXPECT_TRUE(std::equal(original.dbeta.begin() + next * heads,
                         original.dbeta.end(),
                         other.dbeta.begin() + next * heads));
}

TEST(DeltaChunkTest, OneKeyHeadPerValueHeadEqualsSharedHeads) {
  DeltaCase shared = packed({80, 30});
  DeltaCase own = packed({80, 30}, {4, 4, 16, 12});
  own.v = shared.v;
  own.g = shared.g;
  own.beta = shared.beta;
  own.dO = shared.dO;
  for (int64_t t = 0; t < shared.tokens(); ++t)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 16; ++i) {
        own.q[(t * 4 + h) * 16 + i] = shared.q[(t * 2 + h / 2) * 16 + i];
        own.k[(t * 4 + h) * 16 + i] = shared.k[(t * 2 + h / 2) * 16 + i];
      }
  auto a = shared.byChunk<double>(), b = own.byChunk<double>();
  EXPECT_EQ(a.o, b.o);
  EXPECT_EQ(a.dv, b.dv);
  EXPECT_EQ(a.dg, b.dg);
  for (int64_t t = 0; t < shared.tokens(); ++t)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 16; ++i)
        EXPECT_NEAR(a.dk[(t * 2 + h) * 16 + i],
                    b.dk[(t * 4 + 2 * h) * 16 + i] +
                        b.dk[(t * 4 + 2 * h + 1) * 16 + i],
                    1e-13);
}

TEST(DeltaChunkTest, TwoRunsAreBitwiseEqual) {
  DeltaCase c = packed({63, 1, 64, 65});
  auto a = c.byChunk<double>(), b = c.byChunk<double>();
  for (size_t i = 0; i < a.named().size(); ++i)
    EXPECT_EQ(*a.named()[i].second, *b.named()[i].second);
}

} // namespace
} // namespace qwen35::test
