// Every backward op against central differences of its forward op, in double,
// on small packed rows. loss() = sum of a fixed cotangent times the result.

#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Delta.h"
#include "dialect/Qwen35/Reference/Embedding.h"
#include "dialect/Qwen35/Reference/Glue.h"
#include "dialect/Qwen35/Reference/Linear.h"
#include "dialect/Qwen35/Reference/Loss.h"
#include "dialect/Qwen35/Reference/Moe.h"
#include "dialect/Qwen35/Reference/Norm.h"
#include "test/support/Numeric.h"

#include "gtest/gtest.h"

namespace qwen35::test {
namespace {

using namespace qwen35::reference;
using absl::MakeSpan;
using Vector = std::vector<double>;

void check(const absl::Status &status) {
  EXPECT_TRUE(status.ok()) << status.ToString();
}

/// `gradient` is d loss() / dx.
template <typename Loss>
void expectGradient(const char *name, const Vector &gradient, Vector &x,
                    Loss loss) {
  EXPECT_LT(relativeError(gradient, centralDifferences(x, loss)), 1e-8) << name;
}

/// Documents of 1, 2, 3, 7 and 10 tokens.
DocumentTable smallRow() { return DocumentTable({1, 2, 3, 7, 10}); }

TEST(GradientTest, RmsNorm) {
  Random random(1);
  int64_t rows = 5, columns = 11;
  for (double offset : {0.0, 1.0}) {
    Vector x = random.normals(rows * columns), w = random.normals(columns, 0.3);
    Vector dy = random.normals(x.size()), y = x, rstd(rows), dx = y, dw = w;
    auto loss = [&] {
      check(rmsNorm<double>(x, w, rows, columns, 1e-3, offset, MakeSpan(y),
                            MakeSpan(rstd)));
      return inner(y, dy);
    };
    loss();
    check(rmsNormBwd<double>(dy, x, w, rstd, rows, columns, offset,
                             MakeSpan(dx), MakeSpan(dw)));
    expectGradient("x", dx, x, loss);
    expectGradient("weight", dw, w, loss);
  }
}

TEST(GradientTest, GatedRmsNorm) {
  Random random(2);
  int64_t rows = 6, columns = 9;
  Vector o = random.normals(rows * columns), z = random.normals(o.size(), 3);
  Vector w = random.normals(columns), dy = random.normals(o.size()), y = o;
  Vector rstd(rows), dO = y, dz = y, dw = w;
  auto loss = [&] {
    check(gatedRmsNorm<double>(o, z, w, rows, columns, 1e-3, MakeSpan(y),
                               MakeSpan(rstd)));
    return inner(y, dy);
  };
  loss();
  check(gatedRmsNormBwd<double>(dy, o, z, w, rstd, rows, columns, MakeSpan(dO),
                                MakeSpan(dz), MakeSpan(dw)));
  expectGradient("o", dO, o, loss);
  expectGradient("z", dz, z, loss);
  expectGradient("weight", dw, w, loss);
}

TEST(GradientTest, LinearByMatmul) {
  Random random(3);
  int64_t rows = 7, inputs = 5, outputs = 6;
  Vector x = random.normals(rows * inputs);
  Vector w = random.normals(outputs * inputs);
  Vector dy = random.normals(rows * outputs), y = dy, dx = x, dw = w;
  auto loss = [&] {
    check(linear<double>(x, w, rows, inputs, outputs, MakeSpan(y)));
    return inner(y, dy);
  };
  check(
      matmul<double>(dy, w, rows, inputs, outputs, false, false, MakeSpan(dx)));
  check(
      matmul<double>(dy, x, outputs, inputs, rows, true, false, MakeSpan(dw)));
  expectGradient("x", dx, x, loss);
  expectGradient("weight", dw, w, loss);
}

TEST(GradientTest, Embed) {
  Random random(4);
  int64_t tokens = 9, vocab = 6, columns = 4;
  std::vector<int32_t> ids{3, 0, 3, 5, 1, 1, 3, 0, 5}; // 2 and 4 are absent
  Vector table = random.normals(vocab * columns), dtable = table;
  Vector dy = random.normals(tokens * columns), y = dy;
  auto loss = [&] {
    check(embed<double>(ids, table, tokens, vocab, columns, MakeSpan(y)));
    return inner(y, dy);
  };
  check(embedBwd<double>(dy, ids, tokens, vocab, columns, MakeSpan(dtable)));
  expectGradient("table", dtable, table, loss);
  for (int64_t absent : {2, 4})
    for (int64_t d = 0; d < columns; ++d)
      EXPECT_EQ(dtable[absent * columns + d], 0);
}

TEST(GradientTest, Rope) {
  Random random(5);
  DocumentTable table = smallRow();
  int64_t tokens = table.shape.tokens, heads = 2, headDim = 8, rotary = 4;
  Vector angles(tokens * rotary);
  check(ropeTable<double>(table.shape, table.words, 100, rotary,
                          MakeSpan(angles)));
  Vector x = random.normals(tokens * heads * headDim), y = x, dx = x;
  Vector dy = random.normals(x.size());
  auto loss = [&] {
    check(rope<double>(x, angles, tokens, heads, headDim, rotary, false,
                       MakeSpan(y)));
    return inner(y, dy);
  };
  check(rope<double>(dy, angles, tokens, heads, headDim, rotary, true,
                     MakeSpan(dx)));
  expectGradient("x", dx, x, loss);
}

TEST(GradientTest, Attention) {
  Random random(6);
  DocumentTable table = smallRow();
  int64_t tokens = table.shape.tokens;
  for (AttentionDims dims : {AttentionDims{4, 2, 6}, AttentionDims{3, 1, 5}}) {
    Vector q = random.normals(tokens * dims.queryHeads * dims.headDim);
    Vector k = random.normals(tokens * dims.kvHeads * dims.headDim);
    Vector v = random.normals(k.size()), dO = random.normals(q.size()), o = q;
    Vector lse(tokens * dims.queryHeads), dq = q, dk = k, dv = k;
    auto loss = [&] {
      check(attention<double>(q, k, v, table.shape, table.words, dims, 0.7,
                              MakeSpan(o), MakeSpan(lse)));
      return inner(o, dO);
    };
    loss();
    check(attentionBwd<double>(dO, q, k, v, o, lse, table.shape, table.words,
                               dims, 0.7, MakeSpan(dq), MakeSpan(dk),
                               MakeSpan(dv)));
    expectGradient("q", dq, q, loss);
    expectGradient("k", dk, k, loss);
    expectGradient("v", dv, v, loss);
  }
}

TEST(GradientTest, MulSigmoid) {
  Random random(7);
  int64_t rows = 5, columns = 6;
  for (int64_t gateColumns : {columns, int64_t(1)}) {
    Vector x = random.normals(rows * columns), dy = random.normals(x.size());
    Vector gate = random.normals(rows * gateColumns, 3), y = x, dx = x;
    Vector dgate = gate;
    auto loss = [&] {
      check(
          mulSigmoid<double>(x, gate, rows, columns, gateColumns, MakeSpan(y)));
      return inner(y, dy);
    };
    check(mulSigmoidBwd<double>(dy, x, gate, rows, columns, gateColumns,
                                MakeSpan(dx), MakeSpan(dgate)));
    expectGradient("x", dx, x, loss);
    expectGradient("gate", dgate, gate, loss);
  }
}

TEST(GradientTest, CausalConv) {
  Random random(8);
  DocumentTable table = smallRow();
  int64_t channels = 5, taps = 4;
  Vector x = random.normals(table.shape.tokens * channels), y = x, dx = x;
  Vector w = random.normals(channels * taps), dw = w;
  Vector dy = random.normals(x.size());
  auto loss = [&] {
    check(causalConv<double>(x, w, table.shape, table.words, channels, taps,
                             MakeSpan(y)));
    return inner(y, dy);
  };
  check(causalConvBwd<double>(dy, x, w, table.shape, table.words, channels,
                              taps, MakeSpan(dx), MakeSpan(dw)));
  expectGradient("x", dx, x, loss);
  expectGradient("w", dw, w, loss);
}

TEST(GradientTest, GdnGates) {
  Random random(9);
  int64_t tokens = 8, heads = 3;
  Vector a = random.normals(tokens * heads, 3), b = random.normals(a.size(), 3);
  a[4] = 24; // the linear branch of softplus
  Vector aLog = random.normals(heads), dtBias = random.normals(heads);
  Vector dg = random.normals(a.size()), dbeta = random.normals(a.size());
  Vector g = a, beta = a, da = a, db = a, daLog = aLog, ddtBias = aLog;
  auto loss = [&] {
    check(gdnGates<double>(a, b, aLog, dtBias, tokens, heads, MakeSpan(g),
                           MakeSpan(beta)));
    return inner(g, dg) + inner(beta, dbeta);
  };
  check(gdnGatesBwd<double>(dg, dbeta, a, b, aLog, dtBias, tokens, heads,
                            MakeSpan(da), MakeSpan(db), MakeSpan(daLog),
                            MakeSpan(ddtBias)));
  expectGradient("a", da, a, loss);
  expectGradient("b", db, b, loss);
  expectGradient("a_log", daLog, aLog, loss);
  expectGradient("dt_bias", ddtBias, dtBias, loss);
}

// With states given and taken, and one document longer than a block of the
// backward pass, so that states are recomputed.
TEST(GradientTest, GatedDeltaRule) {
  Random random(10);
  for (std::vector<int64_t> lengths :
       {std::vector<int64_t>{1, 2, 3, 7, 10}, {37}}) {
    DocumentTable table(lengths);
    DeltaDims dims{2, 4, 3, 5};
    int64_t tokens = table.shape.tokens, heads = dims.valueHeads;
    Vector q = random.normals(tokens * dims.keyHeads * dims.keyDim);
    Vector k = random.normals(q.size());
    Vector v = random.normals(tokens * heads * dims.valueDim);
    Vector dO = random.normals(v.size()), g(tokens * heads), beta = g;
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = -0.1 - random.uniform();
      beta[i] = random.uniform();
    }
    Vector initial =
        random.normals(lengths.size() * heads * dims.keyDim * dims.valueDim);
    Vector dFinal = random.normals(initial.size()), final = initial;
    Vector o = v, dq = q, dk = k, dv = v, dg = g, dbeta = g;
    Vector dInitial = initial;
    auto loss = [&] {
      check(gatedDeltaRule<double>(q, k, v, g, beta, table.shape, table.words,
                                   dims, 0.6, 1e-2, MakeSpan(o), initial,
                                   MakeSpan(final)));
      return inner(o, dO) + inner(final, dFinal);
    };
    check(gatedDeltaRuleBwd<double>(
        dO, q, k, v, g, beta, table.shape, table.words, dims, 0.6, 1e-2,
        MakeSpan(dq), MakeSpan(dk), MakeSpan(dv), MakeSpan(dg), MakeSpan(dbeta),
        initial, dFinal, MakeSpan(dInitial)));
    expectGradient("q", dq, q, loss);
    expectGradient("k", dk, k, loss);
    expectGradient("v", dv, v, loss);
    expectGradient("g", dg, g, loss);
    expectGradient("beta", dbeta, beta, loss);
    expectGradient("initial states", dInitial, initial, loss);
  }
}

TEST(GradientTest, Swiglu) {
  Random random(11);
  Vector gate = random.normals(20, 4), up = random.normals(20), y = up;
  Vector dy = random.normals(20), dgate = gate, dup = up;
  auto loss = [&] {
    check(swiglu<double>(gate, up, MakeSpan(y)));
    return inner(y, dy);
  };
  check(swigluBwd<double>(dy, gate, up, MakeSpan(dgate), MakeSpan(dup)));
  expectGradient("gate", dgate, gate, loss);
  expectGradient("up", dup, up, loss);
}

TEST(GradientTest, LmLoss) {
  Random random(12);
  int64_t tokens = 9, vocab = 13, columns = 6;
  Vector h = random.normals(tokens * columns);
  Vector w = random.normals(vocab * columns);
  std::vector<int32_t> labels{0, 12, -100, 5, 5, -100, 3, 7, 12};
  Vector invCount{1.0 / 7}, result(1), dh = h, dw = w;
  auto loss = [&] {
    check(lmLoss<double>(h, w, labels, invCount, tokens, vocab, columns,
                         MakeSpan(result)));
    return result[0];
  };
  check(lmLossGrad<double>(h, w, labels, invCount, tokens, vocab, columns,
                           MakeSpan(result), MakeSpan(dh), MakeSpan(dw)));
  expectGradient("h", dh, h, loss);
  expectGradient("w", dw, w, loss);
}

TEST(GradientTest, RouterWeights) {
  Random random(13);
  int64_t tokens = 7, experts = 6, topK = 3;
  Vector logits = random.normals(tokens * experts, 2), probs = logits;
  Vector dweights = random.normals(tokens * topK), weights = dweights;
  std::vector<int32_t> idx(tokens * topK);
  Vector dlogits = logits;
  auto loss = [&] {
    check(router<double>(logits, tokens, experts, topK, MakeSpan(weights),
                         MakeSpan(idx), MakeSpan(probs)));
    return inner(weights, dweights);
  };
  loss();
  check(routerBwd<double>(dweights, weights, idx, tokens, experts, topK,
                          MakeSpan(dlogits)));
  expectGradient("logits", dlogits, logits, loss);
}

// Both scopes, through the softmax, with padding at the end of the row.
TEST(GradientTest, RouterAux) {
  Random random(14);
  DocumentTable table({2, 3}, 8);
  int64_t tokens = 8, experts = 5, topK = 2, layers = 3;
  for (RouterAuxScope scope :
       {RouterAuxScope::kPooled, RouterAuxScope::kPerLayer}) {
    std::vector<Vector> logits(layers), probs(layers), weights(layers);
    std::vector<std::vector<int32_t>> idx(layers);
    for (int64_t l = 0; l < layers; ++l) {
      logits[l] = random.normals(tokens * experts, 2);
      probs[l] = logits[l];
      weights[l] = Vector(tokens * topK);
      idx[l].resize(tokens * topK);
    }
    Vector aux(1), daux{1.7};
    std::vector<absl::Span<const int32_t>> chosen(idx.begin(), idx.end());
    auto loss = [&] {
      for (int64_t l = 0; l < layers; ++l)
        check(router<double>(logits[l], tokens, experts, topK,
                             MakeSpan(weights[l]), MakeSpan(idx[l]),
                             MakeSpan(probs[l])));
      std::vector<absl::Span<const double>> p(probs.begin(), probs.end());
      check(routerAux<double>(p, chosen, table.shape, table.words, experts,
                              topK, scope, MakeSpan(aux)));
      return aux[0] * daux[0];
    };
    loss();
    std::vector<Vector> dprobs(layers, poison<double>(tokens * experts));
    std::vector<absl::Span<double>> results;
    for (Vector &d : dprobs)
      results.push_back(MakeSpan(d));
    check(routerAuxBwd<double>(daux, chosen, table.shape, table.words, experts,
                               topK, scope, results));
    for (int64_t l = 0; l < layers; ++l) {
      Vector dlogits = logits[l];
      check(softmaxBwd<double>(dprobs[l], probs[l], tokens, experts,
                               MakeSpan(dlogits)));
      expectGradient("logits", dlogits, logits[l], loss);
      for (int64_t i = 5 * experts; i < tokens * experts; ++i)
        EXPECT_EQ(dprobs[l][i], 0);
    }
  }
}

TEST(GradientTest, MoeExperts) {
  Random random(15);
  MoeDims dims{6, 5, 4, 2, 3};
  Vector x = random.normals(dims.tokens * dims.hidden), y = x, dx = x;
  Vector weights = random.normals(dims.tokens * dims.topK), dweights = weights;
  // Expert 2 gets no token, expert 3 gets one.
  std::vector<int32_t> idx{0, 1, 1, 0, 1, 3, 0, 1, 1, 0, 0, 1};
  Vector wGateUp =
      random.normals(dims.experts * 2 * dims.intermediate * dims.hidden);
  Vector wDown = random.normals(dims.experts * dims.hidden * dims.intermediate);
  Vector dy = random.normals(x.size()),
         dwGateUp = poison<double>(wGateUp.size());
  Vector dwDown = poison<double>(wDown.size());
  auto loss = [&] {
    check(
        moeExperts<double>(x, weights, idx, wGateUp, wDown, dims, MakeSpan(y)));
    return inner(y, dy);
  };
  check(moeExpertsBwd<double>(dy, x, weights, idx, wGateUp, wDown, dims,
                              MakeSpan(dx), MakeSpan(dweights),
                              MakeSpan(dwGateUp), MakeSpan(dwDown)));
  expectGradient("x", dx, x, loss);
  expectGradient("weights", dweights, weights, loss);
  expectGradient("w_gate_up", dwGateUp, wGateUp, loss);
  expectGradient("w_down", dwDown, wDown, loss);
  int64_t gateUpSize = 2 * dims.intermediate * dims.hidden;
  for (int64_t i = 2 * gateUpSize; i < 3 * gateUpSize; ++i)
    EXPECT_EQ(dwGateUp[i], 0);
}

} // namespace
} // namespace qwen35::test
