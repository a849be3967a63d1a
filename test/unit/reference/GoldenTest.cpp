// The reference ops against tensors computed by transformers in float64
// (test/golden/ops). Where a file stores float32, its rounding is the limit.

#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Delta.h"
#include "dialect/Qwen35/Reference/Loss.h"
#include "dialect/Qwen35/Reference/Moe.h"
#include "dialect/Qwen35/Reference/Norm.h"
#include "test/support/Numeric.h"
#include "test/support/Safetensors.h"

#include "gtest/gtest.h"

namespace qwen35::test {
namespace {

using namespace qwen35::reference;
using absl::MakeSpan;
using Vector = std::vector<double>;

Safetensors golden(const std::string &name) {
  return Safetensors(std::string(QWEN35_SOURCE_DIR) + "/test/golden/ops/" +
                     name + ".safetensors");
}

/// `actual` equals the tensor within what its type can hold.
void expectGolden(const Safetensors &file, const std::string &name,
                  const Vector &actual) {
  Vector expected = file.reals(name);
  double tolerance = file.dtype(name) == "F64" ? 1e-9 : 1e-5;
  ASSERT_EQ(actual.size(), expected.size()) << name;
  if (norm(expected) == 0)
    EXPECT_EQ(norm(actual), 0) << name;
  else
    EXPECT_LT(relativeError(actual, expected), tolerance) << name;
}

/// The table of documents that start at cu_seqlens.
DocumentTable documents(const Safetensors &file) {
  std::vector<int64_t> cu = file.integers<int64_t>("cu_seqlens"), lengths;
  for (size_t i = 0; i + 1 < cu.size(); ++i)
    lengths.push_back(cu[i + 1] - cu[i]);
  return DocumentTable(lengths);
}

class DeltaRuleGolden : public testing::TestWithParam<const char *> {};

TEST_P(DeltaRuleGolden, TokenRecurrenceMatches) {
  Safetensors file = golden(GetParam());
  Vector q = file.reals("q"), k = file.reals("k"), v = file.reals("v");
  Vector g = file.reals("g"), beta = file.reals("beta"), s0 = file.reals("s0");
  Vector dO = file.reals("do"), dFinal = file.reals("ds_final");
  auto shape = file.shape("q"), valueShape = file.shape("v");
  DeltaDims dims{shape[1], valueShape[1], shape[2], valueShape[2]};
  DocumentTable table({shape[0]});
  double scale = 1 / std::sqrt(double(dims.keyDim));

  Vector o = poison<double>(v.size()), final = poison<double>(s0.size());
  ASSERT_TRUE(gatedDeltaRule<double>(q, k, v, g, beta, table.shape, table.words,
                                     dims, scale, 1e-6, MakeSpan(o), s0,
                                     MakeSpan(final))
                  .ok());
  expectGolden(file, "o", o);
  expectGolden(file, "s_final", final);

  Vector dq = poison<double>(q.size()), dk = dq, dv = poison<double>(v.size());
  Vector dg = poison<double>(g.size()), dbeta = dg;
  Vector ds0 = poison<double>(s0.size());
  ASSERT_TRUE(gatedDeltaRuleBwd<double>(
                  dO, q, k, v, g, beta, table.shape, table.words, dims, scale,
                  1e-6, MakeSpan(dq), MakeSpan(dk), MakeSpan(dv), MakeSpan(dg),
                  MakeSpan(dbeta), s0, dFinal, MakeSpan(ds0))
                  .ok());
  expectGolden(file, "dq", dq);
  expectGolden(file, "dk", dk);
  expectGolden(file, "dv", dv);
  expectGolden(file, "dg", dg);
  expectGolden(file, "dbeta", dbeta);
  expectGolden(file, "ds0", ds0);
}

INSTANTIATE_TEST_SUITE_P(Files, DeltaRuleGolden,
                         testing::Values("delta_rule_mild_T1_k2v4_d32",
                                         "delta_rule_mild_T63_k2v4_d32",
                                         "delta_rule_slow_T64_k2v4_d32_state",
                                         "delta_rule_strong_T65_k2v4_d32_state",
                                         "delta_rule_write_T130_k2v4_d32",
                                         "delta_rule_zero_T70_k2v2_d32_state"));

TEST(GoldenTest, ConvMatches) {
  Safetensors file = golden("conv_silu");
  Vector x = file.reals("x"), w = file.reals("w"), dy = file.reals("dy");
  DocumentTable table = documents(file);
  int64_t channels = file.shape("w")[0], taps = file.shape("w")[1];
  Vector y = poison<double>(x.size()), dx = y, dw = poison<double>(w.size());
  ASSERT_TRUE(causalConv<double>(x, w, table.shape, table.words, channels, taps,
                                 MakeSpan(y))
                  .ok());
  ASSERT_TRUE(causalConvBwd<double>(dy, x, w, table.shape, table.words,
                                    channels, taps, MakeSpan(dx), MakeSpan(dw))
                  .ok());
  expectGolden(file, "y", y);
  expectGolden(file, "dx", dx);
  expectGolden(file, "dw", dw);
}

TEST(GoldenTest, OffsetRmsNormMatches) {
  Safetensors file = golden("offset_rms_norm");
  Vector x = file.reals("x"), w = file.reals("w"), dy = file.reals("dy");
  int64_t rows = file.shape("x")[0], columns = file.shape("x")[1];
  Vector y = poison<double>(x.size()), dx = y, dw = poison<double>(w.size());
  Vector rstd = poison<double>(rows);
  ASSERT_TRUE(
      rmsNorm<double>(x, w, rows, columns, 1e-6, 1, MakeSpan(y), MakeSpan(rstd))
          .ok());
  ASSERT_TRUE(rmsNormBwd<double>(dy, x, w, rstd, rows, columns, 1, MakeSpan(dx),
                                 MakeSpan(dw))
                  .ok());
  expectGolden(file, "y", y);
  expectGolden(file, "dx", dx);
  expectGolden(file, "dw", dw);
}

TEST(GoldenTest, GatedRmsNormMatches) {
  Safetensors file = golden("gated_rms_norm");
  Vector x = file.reals("x"), z = file.reals("z"), w = file.reals("w");
  Vector dy = file.reals("dy");
  int64_t columns = file.shape("x")[2], rows = x.size() / columns;
  Vector y = poison<double>(x.size()), dx = y, dz = y;
  Vector dw = poison<double>(w.size()), rstd = poison<double>(rows);
  ASSERT_TRUE(gatedRmsNorm<double>(x, z, w, rows, columns, 1e-6, MakeSpan(y),
                                   MakeSpan(rstd))
                  .ok());
  ASSERT_TRUE(gatedRmsNormBwd<double>(dy, x, z, w, rstd, rows, columns,
                                      MakeSpan(dx), MakeSpan(dz), MakeSpan(dw))
                  .ok());
  expectGolden(file, "y", y);
  expectGolden(file, "dx", dx);
  expectGolden(file, "dz", dz);
  expectGolden(file, "dw", dw);
}

// Norms of queries and keys, rope, attention and gate, and back.
TEST(GoldenTest, GatedAttentionMatches) {
  Safetensors file = golden("gated_attention");
  Vector q = file.reals("q"), k = file.reals("k"), v = file.reals("v");
  Vector gate = file.reals("gate"), wq = file.reals("wq");
  Vector wk = file.reals("wk"), dy = file.reals("dy");
  DocumentTable table = documents(file);
  int64_t tokens = table.shape.tokens, rotary = 8;
  AttentionDims dims{file.shape("q")[1], file.shape("k")[1],
                     file.shape("q")[2]};
  int64_t hd = dims.headDim, qRows = tokens * dims.queryHeads;
  int64_t kRows = tokens * dims.kvHeads;
  double scale = 1 / std::sqrt(double(hd));

  Vector angles = poison<double>(tokens * rotary);
  Vector qn = poison<double>(q.size()), kn = poison<double>(k.size());
  Vector qRstd = poison<double>(qRows), kRstd = poison<double>(kRows);
  Vector qt = qn, kt = kn, o = qn, y = qn, lse = qRstd;
  ASSERT_TRUE(
      ropeTable<double>(table.shape, table.words, 1e7, rotary, MakeSpan(angles))
          .ok());
  ASSERT_TRUE(
      rmsNorm<double>(q, wq, qRows, hd, 1e-6, 1, MakeSpan(qn), MakeSpan(qRstd))
          .ok());
  ASSERT_TRUE(
      rmsNorm<double>(k, wk, kRows, hd, 1e-6, 1, MakeSpan(kn), MakeSpan(kRstd))
          .ok());
  ASSERT_TRUE(rope<double>(qn, angles, tokens, dims.queryHeads, hd, rotary,
                           false, MakeSpan(qt))
                  .ok());
  ASSERT_TRUE(rope<double>(kn, angles, tokens, dims.kvHeads, hd, rotary, false,
                           MakeSpan(kt))
                  .ok());
  ASSERT_TRUE(attention<double>(qt, kt, v, table.shape, table.words, dims,
                                scale, MakeSpan(o), MakeSpan(lse))
                  .ok());
  ASSERT_TRUE(mulSigmoid<double>(o, gate, qRows, hd, hd, MakeSpan(y)).ok());
  expectGolden(file, "y", y);

  Vector dO = qn, dgate = qn, dqt = qn, dkt = kn, dv = kn, dqn = qn, dkn = kn;
  Vector dq = qn, dk = kn, dwq = poison<double>(hd), dwk = dwq;
  ASSERT_TRUE(mulSigmoidBwd<double>(dy, o, gate, qRows, hd, hd, MakeSpan(dO),
                                    MakeSpan(dgate))
                  .ok());
  ASSERT_TRUE(attentionBwd<double>(dO, qt, kt, v, o, lse, table.shape,
                                   table.words, dims, scale, MakeSpan(dqt),
                                   MakeSpan(dkt), MakeSpan(dv))
                  .ok());
  ASSERT_TRUE(rope<double>(dqt, angles, tokens, dims.queryHeads, hd, rotary,
                           true, MakeSpan(dqn))
                  .ok());
  ASSERT_TRUE(rope<double>(dkt, angles, tokens, dims.kvHeads, hd, rotary, true,
                           MakeSpan(dkn))
                  .ok());
  ASSERT_TRUE(rmsNormBwd<double>(dqn, q, wq, qRstd, qRows, hd, 1, MakeSpan(dq),
                                 MakeSpan(dwq))
                  .ok());
  ASSERT_TRUE(rmsNormBwd<double>(dkn, k, wk, kRstd, kRows, hd, 1, MakeSpan(dk),
                                 MakeSpan(dwk))
                  .ok());
  expectGolden(file, "dq", dq);
  expectGolden(file, "dk", dk);
  expectGolden(file, "dv", dv);
  expectGolden(file, "dgate", dgate);
  expectGolden(file, "dwq", dwq);
  expectGolden(file, "dwk", dwk);
}

TEST(GoldenTest, RouterMatches) {
  Safetensors file = golden("router");
  Vector logits = file.reals("logits"), dweights = file.reals("dweights");
  int64_t tokens = file.shape("logits")[0], experts = file.shape("logits")[1];
  int64_t topK = file.shape("idx")[1];
  Vector weights = poison<double>(tokens * topK), probs = logits, dlogits;
  std::vector<int32_t> idx(tokens * topK, -1);
  ASSERT_TRUE(router<double>(logits, tokens, experts, topK, MakeSpan(weights),
                             MakeSpan(idx), MakeSpan(probs))
                  .ok());
  EXPECT_EQ(idx, file.integers("idx"));
  expectGolden(file, "weights", weights);
  dlogits = poison<double>(logits.size());
  ASSERT_TRUE(routerBwd<double>(dweights, weights, idx, tokens, experts, topK,
                                MakeSpan(dlogits))
                  .ok());
  expectGolden(file, "dlogits", dlogits);
}

TEST(GoldenTest, LinearCrossEntropyMatches) {
  Safetensors file = golden("linear_cross_entropy");
  Vector h = file.reals("h"), w = file.reals("w");
  std::vector<int32_t> labels = file.integers("targets");
  int64_t tokens = file.shape("h")[0], columns = file.shape("h")[1];
  int64_t vocab = file.shape("w")[0];
  double valid = tokens - std::count(labels.begin(), labels.end(), -100);
  Vector invCount{1 / valid}, loss = poison<double>(1), again = loss;
  Vector dh = poison<double>(h.size()), dw = poison<double>(w.size());
  ASSERT_TRUE(lmLoss<double>(h, w, labels, invCount, tokens, vocab, columns,
                             MakeSpan(loss))
                  .ok());
  ASSERT_TRUE(lmLossGrad<double>(h, w, labels, invCount, tokens, vocab, columns,
                                 MakeSpan(again), MakeSpan(dh), MakeSpan(dw))
                  .ok());
  expectGolden(file, "loss", loss);
  EXPECT_EQ(loss, again);
  expectGolden(file, "dh", dh);
  expectGolden(file, "dw", dw);
}

} // namespace
} // namespace qwen35::test
