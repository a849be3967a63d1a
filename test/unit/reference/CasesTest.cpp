// Reports from the field (CASES.md) at the level of the reference ops: what
// the oracle itself must get right before a kernel is compared with it.

#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/reference/DeltaCase.h"

#include "gtest/gtest.h"

namespace qwen35::test {
namespace {

using namespace qwen35::reference;
using absl::MakeSpan;
using Vector = std::vector<double>;

void expectClose(const DeltaResults<double> &actual,
                 const DeltaResults<double> &expected, double tolerance,
                 double floor = 0) {
  for (size_t i = 0; i < expected.named().size(); ++i) {
    auto [name, truth] = expected.named()[i];
    const auto &value = *actual.named()[i].second;
    EXPECT_TRUE(allFinite(value)) << name;
    EXPECT_LT(relativeError(value, *truth, floor * std::sqrt(truth->size())),
              tolerance)
        << name;
  }
}

// A07: gradients of decay and strength for every head size, long documents.
class A07 : public testing::TestWithParam<int64_t> {};

TEST_P(A07, DecayAndStrengthGradientsForEveryHeadSize) {
  int64_t d = GetParam();
  DeltaCase c(DocumentTable({1024}), {4, 4, d, d}, d);
  expectClose(c.byChunk<double>(), c.byToken<double>(), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(HeadSize, A07, testing::Values(64, 100, 128),
                         testing::PrintToStringParamName());

// A08: lengths that are no multiple of the chunk, NaN in the rows that pad
// them.
class A08 : public testing::TestWithParam<int64_t> {};

TEST_P(A08, TailNeverReadsThePadding) {
  int64_t length = GetParam();
  DeltaDims dims{2, 4, 16, 16};
  DeltaCase alone(DocumentTable({length}), dims);
  DeltaCase padded(DocumentTable({length}, length + 70), dims);
  auto place = [&](const Vector &from, Vector &to) {
    std::fill(to.begin(), to.end(), quietNan<double>());
    std::copy(from.begin(), from.end(), to.begin());
  };
  place(alone.q, padded.q);
  place(alone.k, padded.k);
  place(alone.v, padded.v);
  place(alone.g, padded.g);
  place(alone.beta, padded.beta);
  place(alone.dO, padded.dO);
  auto expected = alone.byChunk<double>(), actual = padded.byChunk<double>();
  expectClose(expected, alone.byToken<double>(), 1e-12);
  for (size_t i = 0; i < expected.named().size(); ++i) {
    auto [name, truth] = expected.named()[i];
    const Vector &row = *actual.named()[i].second;
    EXPECT_EQ(Vector(row.begin(), row.begin() + truth->size()), *truth) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Length, A08,
                         testing::Values(1, 2, 15, 16, 17, 63, 64, 65, 127, 129,
                                         191),
                         testing::PrintToStringParamName());

// A09: no decay. Our ops always take g, so "gating off" is g = 0.
TEST(A09, GradientsWithoutDecay) {
  DeltaCase c(DocumentTable({100, 29}), {2, 4, 16, 16});
  std::fill(c.g.begin(), c.g.end(), 0);
  expectClose(c.byChunk<double>(), c.byToken<double>(), 1e-12);
}

// A11: decay to 1e-12 in a token, everywhere, once, and alternating with none.
TEST(A11, ExtremeDecayStaysFiniteAndExact) {
  for (int pattern = 0; pattern < 3; ++pattern) {
    DeltaCase c(DocumentTable({128}), {2, 4, 16, 16});
    int64_t heads = c.dims.valueHeads;
    for (size_t i = 0; i < c.g.size(); ++i) {
      int64_t t = i / heads;
      c.g[i] = pattern == 0   ? std::log(1e-12)
               : pattern == 1 ? (t == 40 ? std::log(1e-12) : 0)
                              : (t % 2 ? -50 : 0);
    }
    // Where everything decays to nothing, so does dg.
    expectClose(c.byChunk<double>(), c.byToken<double>(), 1e-12, 1e-3);
  }
}

// A16, first half: zero rows in front of a document change nothing after them.
TEST(A16, LeadingZeroRowsLeaveNoTrace) {
  int64_t pad = 5, length = 30, taps = 4;
  DeltaDims dims{1, 2, 8, 8};
  int64_t channels = 2 * dims.keyDim + 2 * dims.valueDim;
  Random random(16);
  Vector x = random.normals(length * channels),
         w = random.normals(channels * taps);
  Vector padded(pad * channels, 0);
  padded.insert(padded.end(), x.begin(), x.end());

  // conv, split and delta rule of one document.
  auto run = [&](const Vector &input) {
    int64_t tokens = input.size() / channels;
    DeltaCase c(DocumentTable({tokens}), dims);
    Vector m = poison<double>(input.size());
    EXPECT_TRUE(causalConv<double>(input, w, c.table.shape, c.table.words,
                                   channels, taps, MakeSpan(m))
                    .ok());
    for (int64_t t = 0; t < tokens; ++t) {
      const double *row = &m[t * channels];
      std::copy_n(row, 8, &c.q[t * 8]);
      std::copy_n(row + 8, 8, &c.k[t * 8]);
      std::copy_n(row + 16, 16, &c.v[t * 16]);
    }
    std::fill(c.g.begin(), c.g.end(), -0.01);
    std::fill(c.beta.begin(), c.beta.end(), 0.5);
    return std::make_pair(c.byToken<double>().o, c.byChunk<double>().o);
  };
  auto [token, chunk] = run(x);
  auto [paddedToken, paddedChunk] = run(padded);
  int64_t skip = pad * dims.valueHeads * dims.valueDim;
  EXPECT_EQ(Vector(paddedToken.begin() + skip, paddedToken.end()), token);
  Vector rest(paddedChunk.begin() + skip, paddedChunk.end());
  EXPECT_LT(relativeError(rest, chunk), 1e-14);
}

// A16, second half: a query or key that is exactly zero has the gradient that
// the norm's epsilon gives it, which central differences confirm.
TEST(A16, ZeroQueryAndKeyHaveFiniteGradients) {
  DeltaCase c(DocumentTable({12}), {1, 2, 4, 4});
  std::fill_n(&c.q[3 * 4], 4, 0);
  std::fill_n(&c.k[5 * 4], 4, 0);
  auto exact = c.byToken<double>();
  expectClose(c.byChunk<double>(), exact, 1e-12);
  auto loss = [&] {
    Vector o = poison<double>(c.v.size());
    EXPECT_TRUE(gatedDeltaRule<double>(c.q, c.k, c.v, c.g, c.beta,
                                       c.table.shape, c.table.words, c.dims,
                                       c.scale, c.eps, MakeSpan(o))
                    .ok());
    return inner(o, c.dO);
  };
  // The norm is linear over a thousandth of sqrt(eps) only.
  EXPECT_LT(relativeError(centralDifferences(c.q, loss, 1e-7), exact.dq), 1e-6);
  EXPECT_LT(relativeError(centralDifferences(c.k, loss, 1e-7), exact.dk), 1e-6);
  EXPECT_GT(std::abs(exact.dk[5 * 4]), 0);
}

// A20: the balance loss comes from one softmax, not from a softmax of
// probabilities, which is nearly constant.
TEST(A20, BalanceLossUsesOneSoftmax) {
  int64_t tokens = 64, experts = 8, topK = 2;
  Random random(20);
  Vector logits = random.normals(tokens * experts, 3);
  for (int64_t t = 0; t < tokens; ++t)
    logits[t * experts] += 4; // far from uniform: one expert is a favourite
  DocumentTable table({tokens});
  auto aux = [&](const Vector &inputs) {
    Vector weights(tokens * topK), probs(inputs.size()), result(1);
    std::vector<int32_t> idx(tokens * topK);
    EXPECT_TRUE(router<double>(inputs, tokens, experts, topK, MakeSpan(weights),
                               MakeSpan(idx), MakeSpan(probs))
                    .ok());
    std::vector<absl::Span<const double>> p{probs};
    std::vector<absl::Span<const int32_t>> i{idx};
    EXPECT_TRUE(routerAux<double>(p, i, table.shape, table.words, experts, topK,
                                  RouterAuxScope::kPooled, MakeSpan(result))
                    .ok());
    return std::make_pair(result[0], probs);
  };
  auto [once, probs] = aux(logits);
  double expected = 0;
  for (int64_t e = 0; e < experts; ++e) {
    double chosen = 0, mean = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      int64_t better = 0;
      for (int64_t other = 0; other < experts; ++other)
        better += logits[t * experts + other] > logits[t * experts + e];
      chosen += better < topK;
      mean += probs[t * experts + e] / tokens;
    }
    expected += experts * chosen / tokens * mean;
  }
  EXPECT_NEAR(once, expected, 1e-12);
  auto [twice, ignored] = aux(probs);
  EXPECT_GT(once, topK * 1.5);
  EXPECT_LT(twice, once - 0.5);
}

} // namespace
} // namespace qwen35::test
