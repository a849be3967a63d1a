// What the other tests do not pin: errors, layouts, guards and conventions.

#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Delta.h"
#include "dialect/Qwen35/Reference/Embedding.h"
#include "dialect/Qwen35/Reference/Glue.h"
#include "dialect/Qwen35/Reference/Linear.h"
#include "dialect/Qwen35/Reference/Loss.h"
#include "dialect/Qwen35/Reference/Moe.h"
#include "dialect/Qwen35/Reference/Norm.h"
#include "dialect/Qwen35/Reference/Optimizer.h"
#include "test/support/Numeric.h"

#include "gtest/gtest.h"

#include <cstring>

namespace qwen35::test {
namespace {

using namespace qwen35::reference;
using absl::MakeSpan;
using Vector = std::vector<double>;

void check(const absl::Status &status) {
  EXPECT_TRUE(status.ok()) << status.ToString();
}

void expectError(const absl::Status &status, const std::string &message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message().data(), status.message().size()),
            message);
}

TEST(ChecksTest, ErrorsNameWhatWasFoundAndExpected) {
  Vector x(12), w(5), y(12), rstd(3);
  expectError(rmsNorm<double>(x, w, 3, 4, 1e-6, 1, MakeSpan(y), MakeSpan(rstd)),
              "rms_norm: weight has 5 elements, expected 4 = [4]");
  w.resize(4);
  expectError(rmsNorm<double>(x, w, 3, 4, 0, 1, MakeSpan(y), MakeSpan(rstd)),
              "rms_norm: eps must be greater than zero, got 0");
  expectError(linear<double>(x, w, -3, 4, 1, MakeSpan(rstd)),
              "linear: x has a negative dimension: [-3, 4]");
  expectError(swiglu<double>(x, w, MakeSpan(y)),
              "swiglu: up has 4 elements, expected 12 = [12]");
  expectError(mulSigmoid<double>(x, w, 3, 4, 2, MakeSpan(y)),
              "mul_sigmoid: gate has 2 columns, expected 1 or 4");
}

TEST(ChecksTest, IdsOutsideTheVocabularyAreErrors) {
  Vector table(8), y(6), loss(1), one{1};
  std::vector<int32_t> ids{0, 4, 1};
  expectError(embed<double>(ids, table, 3, 4, 2, MakeSpan(y)),
              "embed: ids[1] is 4, expected 0 to 3");
  ids[1] = -100; // a label may be ignored, an id may not
  expectError(embedBwd<double>(y, ids, 3, 4, 2, MakeSpan(table)),
              "embed_bwd: ids[1] is -100, expected 0 to 3");
  check(lmLoss<double>(y, table, ids, one, 3, 4, 2, MakeSpan(loss)));
  ids[2] = 7;
  expectError(lmLoss<double>(y, table, ids, one, 3, 4, 2, MakeSpan(loss)),
              "lm_loss: labels[2] is 7, expected 0 to 3 or -100");
  Vector weights(2), x(2), wGateUp(2 * 2 * 2), wDown(2 * 2);
  std::vector<int32_t> idx{0, 2};
  expectError(moeExperts<double>(x, weights, idx, wGateUp, wDown,
                                 {1, 2, 2, 2, 1}, MakeSpan(x)),
              "moe_experts: idx[1] is 2, expected 0 to 1");
}

TEST(ChecksTest, MalformedDocumentTablesAreErrors) {
  DocumentTable table({3, 2}, 8);
  Vector x(16), w(4), y(16);
  auto conv = [&] {
    return causalConv<double>(x, w, table.shape, table.words, 2, 2,
                              MakeSpan(y));
  };
  check(conv());
  table.words[table.shape.docStart() + 4] = 2;
  expectError(conv(), "causal_conv: seq word " +
                          std::to_string(table.shape.docStart() + 4) +
                          " is 2, expected 3 for documents of [3, 2] tokens");
  table.words[SeqTable::kNumDocs] = 4;
  expectError(conv(), "causal_conv: seq has 4 documents, expected 0 to 3");
  table.words.pop_back();
  EXPECT_FALSE(conv().ok());
}

TEST(ChecksTest, DecayAboveZeroIsAnError) {
  DocumentTable table({2});
  Vector q(2), v(2), g{-1, 0.5}, beta(2), o(2);
  expectError(gatedDeltaRule<double>(q, q, v, g, beta, table.shape, table.words,
                                     {1, 1, 1, 1}, 1, 1e-6, MakeSpan(o)),
              "gated_delta_rule: g[1] is 0.5, expected a log decay of at most "
              "0");
}

TEST(LinearTest, TransposesAreReads) {
  Random random(1);
  // Past the block sizes of the loops, and not multiples of four.
  int64_t rows = 5, columns = 301, depth = 131;
  Vector a = random.normals(rows * depth), b = random.normals(depth * columns);
  Vector aT(a.size()), bT(b.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      aT[k * rows + i] = a[i * depth + k];
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j)
      bT[j * depth + k] = b[k * columns + j];
  Vector expected(rows * columns, 0), c = poison<double>(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < depth; ++k)
        expected[i * columns + j] += a[i * depth + k] * b[k * columns + j];
  check(matmul<double>(a, b, rows, columns, depth, false, false, MakeSpan(c)));
  EXPECT_LT(relativeError(c, expected), 1e-14);
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true}) {
      Vector again = poison<double>(c.size());
      check(matmul<double>(transposeA ? aT : a, transposeB ? bT : b, rows,
                           columns, depth, transposeA, transposeB,
                           MakeSpan(again)));
      EXPECT_EQ(again, c);
    }
}

TEST(GlueTest, SliceAndConcatAreInverse) {
  Vector x(2 * 5 * 3);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = i;
  std::vector<int64_t> dims{2, 5, 3};
  for (int64_t axis = 0; axis < 3; ++axis) {
    int64_t size = dims[axis], rest = 30 / size;
    Vector head((size - 1) * rest), tail(rest), y(30);
    check(slice<double>(x, dims, axis, 0, size - 1, MakeSpan(head)));
    check(slice<double>(x, dims, axis, size - 1, 1, MakeSpan(tail)));
    check(concat<double>({head, tail}, {size - 1, 1}, dims, axis, MakeSpan(y)));
    EXPECT_EQ(y, x);
  }
  Vector middle(2 * 2 * 3);
  check(slice<double>(x, dims, 1, 3, 2, MakeSpan(middle)));
  EXPECT_EQ(middle, Vector({9, 10, 11, 12, 13, 14, 24, 25, 26, 27, 28, 29}));
  expectError(slice<double>(x, dims, 1, 4, 2, MakeSpan(middle)),
              "slice: size = 2 is outside 0 to 1");
  expectError(concat<double>({x}, {4}, dims, 1, MakeSpan(x)),
              "concat: operand 0 has 30 elements, expected 24 = [2, 4, 3]");
}

TEST(RopeTest, PositionsRestartAndOtherDimsPass) {
  DocumentTable table({2, 3});
  int64_t rotary = 4, headDim = 7;
  Vector angles(5 * rotary), x(5 * headDim), y = x;
  check(ropeTable<double>(table.shape, table.words, 1e4, rotary,
                          MakeSpan(angles)));
  for (int64_t pair = 0; pair < 2; ++pair) // tokens 1 and 3 have position 1
    EXPECT_EQ(angles[1 * rotary + pair], angles[3 * rotary + pair]);
  EXPECT_DOUBLE_EQ(angles[4 * rotary + 2], std::cos(2 * std::pow(1e4, -0.5)));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = i + 1;
  check(rope<double>(x, angles, 5, 1, headDim, rotary, false, MakeSpan(y)));
  double c = std::cos(1.0), s = std::sin(1.0);
  const double *in = &x[headDim], *out = &y[headDim];
  EXPECT_DOUBLE_EQ(out[0], in[0] * c - in[2] * s); // dim 0 pairs with dim 2
  EXPECT_DOUBLE_EQ(out[2], in[2] * c + in[0] * s);
  for (int64_t d = rotary; d < headDim; ++d)
    EXPECT_EQ(out[d], in[d]);
}

// Scores depend on distances only, so a common shift of positions is nothing:
// a document gives the same wherever it lies in the row.
TEST(AttentionTest, PackedDocumentsEqualDocumentsAloneBitwise) {
  Random random(2);
  AttentionDims dims{4, 2, 8};
  std::vector<int64_t> lengths{1, 70, 2, 65};
  DocumentTable table(lengths);
  int64_t tokens = table.shape.tokens, qRow = 32, kRow = 16;
  Vector q = random.normals(tokens * qRow), k = random.normals(tokens * kRow);
  Vector v = random.normals(k.size()), dO = random.normals(q.size());
  auto run = [&](const Vector &q, const Vector &k, const Vector &v,
                 const Vector &dO, const DocumentTable &table) {
    Vector o = poison<double>(q.size()), dq = o, dk = poison<double>(k.size());
    Vector dv = dk, lse = poison<double>(table.shape.tokens * 4);
    check(attention<double>(q, k, v, table.shape, table.words, dims, 0.3,
                            MakeSpan(o), MakeSpan(lse)));
    check(attentionBwd<double>(dO, q, k, v, o, lse, table.shape, table.words,
                               dims, 0.3, MakeSpan(dq), MakeSpan(dk),
                               MakeSpan(dv)));
    return std::vector<Vector>{o, dq, dk, dv};
  };
  auto all = run(q, k, v, dO, table);
  int64_t first = 0;
  for (int64_t length : lengths) {
    auto rows = [&](const Vector &x, int64_t row) {
      return Vector(x.begin() + first * row,
                    x.begin() + (first + length) * row);
    };
    auto alone = run(rows(q, qRow), rows(k, kRow), rows(v, kRow),
                     rows(dO, qRow), DocumentTable({length}));
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(rows(all[i], i < 2 ? qRow : kRow), alone[i]);
    first += length;
  }
  EXPECT_EQ(Vector(all[0].begin(), all[0].begin() + 8),
            Vector(v.begin(), v.begin() + 8)); // one token attends to itself
}

TEST(AttentionTest, LargeScoresStayFinite) {
  DocumentTable table({3});
  Vector q{1e4, 1e4, 1e4}, v{1, 2, 3}, o(3), lse(3), dq(3), dk(3), dv(3);
  check(attention<double>(q, q, v, table.shape, table.words, {1, 1, 1}, 1,
                          MakeSpan(o), MakeSpan(lse)));
  EXPECT_DOUBLE_EQ(o[2], 2);
  EXPECT_DOUBLE_EQ(lse[2], 1e8 + std::log(3.0));
  check(attentionBwd<double>(v, q, q, v, o, lse, table.shape, table.words,
                             {1, 1, 1}, 1, MakeSpan(dq), MakeSpan(dk),
                             MakeSpan(dv)));
  EXPECT_TRUE(allFinite(dq) && allFinite(dk) && allFinite(dv));
}

TEST(GatesTest, ExtremeInputsStayFinite) {
  Vector a{-1e4, -40, 0, 20.5, 1e4}, b = a, aLog{0}, dtBias{0};
  Vector g(5), beta(5), da(5), db(5), daLog(1), ddtBias(1);
  check(
      gdnGates<double>(a, b, aLog, dtBias, 5, 1, MakeSpan(g), MakeSpan(beta)));
  EXPECT_EQ(g[0], 0);
  EXPECT_DOUBLE_EQ(g[1], -std::exp(-40.0));
  EXPECT_DOUBLE_EQ(g[2], -std::log(2.0));
  EXPECT_EQ(g[3], -20.5); // the identity above 20
  EXPECT_EQ(g[4], -1e4);
  EXPECT_DOUBLE_EQ(beta[1], std::exp(-40.0));
  EXPECT_EQ(beta[4], 1);
  check(gdnGatesBwd<double>(a, a, a, b, aLog, dtBias, 5, 1, MakeSpan(da),
                            MakeSpan(db), MakeSpan(daLog), MakeSpan(ddtBias)));
  EXPECT_TRUE(allFinite(da) && allFinite(db));
}

TEST(RouterTest, TiesGoToTheLowerIdAndWeightsSumToOne) {
  Vector logits{1, 2, 2, 2, 0, 0, 0, 0, 0, 0}, weights(6), probs(10);
  std::vector<int32_t> idx(6);
  check(router<double>(logits, 2, 5, 3, MakeSpan(weights), MakeSpan(idx),
                       MakeSpan(probs)));
  EXPECT_EQ(idx, std::vector<int32_t>({1, 2, 3, 0, 1, 2}));
  EXPECT_DOUBLE_EQ(weights[3], 1.0 / 3);
  // Even a row of NaN names experts, each once.
  std::fill(logits.begin(), logits.end(), quietNan<double>());
  check(router<double>(logits, 2, 5, 3, MakeSpan(weights), MakeSpan(idx),
                       MakeSpan(probs)));
  EXPECT_EQ(idx, std::vector<int32_t>({0, 1, 2, 0, 1, 2}));
}

TEST(RouterTest, AuxiliaryLossIgnoresPaddingAndBalancesAtItsConstant) {
  int64_t experts = 4, topK = 2;
  DocumentTable table({3, 1}, 9), alone({3, 1});
  Vector uniform(4 * experts, 0.25);
  std::vector<int32_t> idx{0, 1, 2, 3, 0, 1, 2, 3}; // each expert twice
  Vector padded = uniform, aux(1);
  std::vector<int32_t> paddedIdx = idx;
  padded.resize(9 * experts, quietNan<double>());
  paddedIdx.resize(9 * topK, 0);
  for (RouterAuxScope scope :
       {RouterAuxScope::kPooled, RouterAuxScope::kPerLayer}) {
    std::vector<absl::Span<const double>> p(3, uniform);
    std::vector<absl::Span<const int32_t>> i(3, idx);
    check(routerAux<double>(p, i, alone.shape, alone.words, experts, topK,
                            scope, MakeSpan(aux)));
    EXPECT_DOUBLE_EQ(aux[0], scope == RouterAuxScope::kPooled ? topK : 3);
    double expected = aux[0];
    std::fill(p.begin(), p.end(), padded);
    std::fill(i.begin(), i.end(), paddedIdx);
    check(routerAux<double>(p, i, table.shape, table.words, experts, topK,
                            scope, MakeSpan(aux)));
    EXPECT_EQ(aux[0], expected);
  }
}

TEST(RouterTest, RowOfPaddingOnlyHasNoAuxiliaryLoss) {
  DocumentTable table({}, 2);
  Vector probs(4, 0.5), aux(1), daux{1}, dprobs = poison<double>(4);
  std::vector<int32_t> idx{0, 1};
  check(routerAux<double>({probs}, {idx}, table.shape, table.words, 2, 1,
                          RouterAuxScope::kPooled, MakeSpan(aux)));
  EXPECT_EQ(aux[0], 0);
  check(routerAuxBwd<double>(daux, {idx}, table.shape, table.words, 2, 1,
                             RouterAuxScope::kPerLayer, {MakeSpan(dprobs)}));
  EXPECT_EQ(dprobs, Vector(4, 0));
}

TEST(LossTest, IgnoredRowsAndLargeLogits) {
  Vector h{80, -80}, w{1, -1, 0}, inv{1}, loss(1), dh(2), dw(3);
  std::vector<int32_t> labels{1, 0};
  check(lmLossGrad<double>(h, w, labels, inv, 2, 3, 1, MakeSpan(loss),
                           MakeSpan(dh), MakeSpan(dw)));
  EXPECT_DOUBLE_EQ(loss[0], 320);
  EXPECT_DOUBLE_EQ(dh[0], 2);
  labels = {-100, -100};
  dh = poison<double>(2);
  check(lmLossGrad<double>(h, w, labels, inv, 2, 3, 1, MakeSpan(loss),
                           MakeSpan(dh), MakeSpan(dw)));
  EXPECT_EQ(loss[0], 0);
  EXPECT_EQ(dh, Vector(2, 0));
  EXPECT_EQ(dw, Vector(3, 0));
}

TEST(OptimizerTest, NormClipsAsTorchDoes) {
  std::vector<double> sum{7}, total(1);
  check(normSq<double>(Vector{3, 4}, sum, MakeSpan(total)));
  EXPECT_EQ(total[0], 32);
  Vector norm(1), factor(1), commit(1);
  auto clip = [&](double squares, double most) {
    check(clipFactor<double>(Vector{squares}, most, MakeSpan(norm),
                             MakeSpan(factor), MakeSpan(commit)));
  };
  clip(16, 1);
  EXPECT_EQ(norm[0], 4);
  EXPECT_DOUBLE_EQ(factor[0], 1 / (4 + 1e-6));
  EXPECT_EQ(commit[0], 1);
  clip(0.25, 1);
  EXPECT_EQ(factor[0], 1);
  clip(16, 0); // no clipping
  EXPECT_EQ(factor[0], 1);
  for (double bad : {quietNan<double>(), HUGE_VAL}) {
    clip(bad, 1);
    EXPECT_EQ(commit[0], 0);
    EXPECT_EQ(factor[0], 0);
  }
}

TEST(OptimizerTest, AdamwFollowsTheFormula) {
  AdamwOptions options{0.9, 0.95, 1e-8, 0.1};
  Vector p{2}, m{0.5}, v{0.25}, g{3}, lr{0.01}, factor{0.5};
  Vector bc1{1 - std::pow(0.9, 3)}, bc2{1 - std::pow(0.95, 3)}, commit{1};
  Vector newP(1), newM(1), newV(1);
  check(adamw<double>(p, m, v, g, lr, factor, bc1, bc2, commit, options,
                      MakeSpan(newP), MakeSpan(newM), MakeSpan(newV)));
  double first = 0.9 * 0.5 + 0.1 * 1.5, second = 0.95 * 0.25 + 0.05 * 2.25;
  EXPECT_DOUBLE_EQ(newM[0], first);
  EXPECT_DOUBLE_EQ(newV[0], second);
  EXPECT_DOUBLE_EQ(newP[0], 2 - 0.01 * 0.1 * 2 -
                                0.01 * (first / bc1[0]) /
                                    (std::sqrt(second / bc2[0]) + 1e-8));
  // In place gives the same.
  check(adamw<double>(p, m, v, g, lr, factor, bc1, bc2, commit, options,
                      MakeSpan(p), MakeSpan(m), MakeSpan(v)));
  EXPECT_EQ(p, newP);
  EXPECT_EQ(m, newM);
  EXPECT_EQ(v, newV);
}

TEST(OptimizerTest, DroppedStepChangesNoBit) {
  AdamwOptions options{0.9, 0.95, 1e-8, 0.1};
  float nan = quietNan<float>();
  std::vector<float> p{1.1f, -0.0f, nan}, m{0.3f, 1e-40f, 0}, v{0.2f, 0, 7};
  std::vector<float> g{nan, HUGE_VALF, 1}, one{1}, zero{0}, bad{nan};
  std::vector<float> newP(3), newM(3), newV(3);
  check(adamw<float>(p, m, v, g, bad, bad, one, one, zero, options,
                     MakeSpan(newP), MakeSpan(newM), MakeSpan(newV)));
  EXPECT_EQ(std::memcmp(newP.data(), p.data(), 12), 0);
  EXPECT_EQ(std::memcmp(newM.data(), m.data(), 12), 0);
  EXPECT_EQ(std::memcmp(newV.data(), v.data(), 12), 0);
}

} // namespace
} // namespace qwen35::test
