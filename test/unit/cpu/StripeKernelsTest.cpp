// Kernels of one rank's stripes of a row against the reference ops.

#include "test/unit/cpu/SequenceCase.h"
#include "test/unit/support/StripedCase.h"

#include <cmath>

namespace qwen35::codegen::cpu {
namespace {

using absl::MakeSpan;
using StripeKernelTest = KernelTest;

//===----------------------------------------------------------------------===//
// Delta rule
//===----------------------------------------------------------------------===//

std::vector<ChunkCase> chunkCases() {
  std::vector<ChunkCase> cases;
  reference::DeltaDims dims[] = {{1, 2, 16, 16}, {2, 2, 20, 24}, {1, 3, 8, 64}};
  size_t number = 0;
  for (const Rank &rank : fewRanks()) {
    // Slow, so that what comes from far matters, and strong.
    cases.emplace_back(rank, dims[number], number == 1 ? 50 : 0.02);
    ++number;
  }
  return cases;
}

TEST_F(StripeKernelTest, GdnAffineMatchesTheReference) {
  for (const ChunkCase &c : chunkCases()) {
    SCOPED_TRACE(c.rank.name());
    const auto &d = c.dims;
    run("cp_gdn_affine", c.rank.attrs(),
        {c.kn, c.v, c.beta, c.gamma, c.tinv, words(c.rank.seq),
         words(c.rank.stripes)},
        {f32({2, d.valueHeads, d.keyDim, d.keyDim}),
         f32({2, d.valueHeads, d.keyDim, d.valueDim})},
        [&](const Arrays &in, const Arrays &out) {
          Vector m(out[0].size()), b(out[1].size());
          expectOk(reference::cpGdnAffine<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), c.rank.shape(), c.rank.seq,
              c.rank.view(), d, MakeSpan(m), MakeSpan(b)));
          // Of the size of 1 where nothing decays, and tiny elsewhere.
          for (int64_t i = 0; i < out[0].size(); ++i)
            ASSERT_NEAR(out[0][i], m[i], 2e-6) << "m[" << i << "]";
          expectNear(out[1], b, 2e-5, "b");
        });
  }
}

TEST_F(StripeKernelTest, GdnScanMatchesTheReference) {
  for (const ChunkCase &c : chunkCases()) {
    SCOPED_TRACE(c.rank.name());
    run("cp_gdn_scan", c.rank.attrs(),
        {c.kn, c.v, c.beta, c.gamma, c.tinv, c.states, words(c.rank.seq),
         words(c.rank.stripes)},
        {f32(c.stateShape()), f32(c.tileShape())},
        [&](const Arrays &in, const Arrays &out) {
          Vector states(out[0].size()), vnew(out[1].size());
          expectOk(reference::cpGdnScan<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.rank.shape(),
              c.rank.seq, c.rank.view(), c.dims, MakeSpan(states),
              MakeSpan(vnew)));
          c.expectUsed(out[0], states, "states");
          c.expectUsed(out[1], vnew, "vnew");
        });
  }
}

TEST_F(StripeKernelTest, GdnScanBwdMatchesTheReference) {
  for (const ChunkCase &c : chunkCases()) {
    SCOPED_TRACE(c.rank.name());
    run("cp_gdn_scan_bwd", c.withScale(),
        {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, c.states, words(c.rank.seq),
         words(c.rank.stripes)},
        {f32(c.stateShape()), f32(c.tileShape())},
        [&](const Arrays &in, const Arrays &out) {
          Vector dstates(out[0].size()), z(out[1].size());
          expectOk(reference::cpGdnScanBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]),
              valuesOf(in[6]), c.rank.shape(), c.rank.seq, c.rank.view(),
              c.dims, c.scale, MakeSpan(dstates), MakeSpan(z)));
          c.expectUsed(out[0], dstates, "dstates");
          c.expectUsed(out[1], z, "z");
        });
  }
}

TEST_F(StripeKernelTest, GdnStateGradMatchesTheReference) {
  for (const ChunkCase &c : chunkCases()) {
    SCOPED_TRACE(c.rank.name());
    run("cp_gdn_state_grad", c.withScale(),
        {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, words(c.rank.seq),
         words(c.rank.stripes)},
        {f32(c.states.shape())}, [&](const Arrays &in, const Arrays &out) {
          Vector grads(out[0].size());
          expectOk(reference::cpGdnStateGrad<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.rank.shape(),
              c.rank.seq, c.rank.view(), c.dims, c.scale, MakeSpan(grads)));
          expectNear(out[0], grads, 2e-5, "c");
        });
  }
}

TEST_F(StripeKernelTest, AffineScansMatchTheReference) {
  size_t number = 0;
  for (const Rank &rank : fewRanks()) {
    SCOPED_TRACE(rank.name());
    int64_t heads = 2, keyDim = 12, valueDim = number++ % 2 ? 20 : 64;
    int64_t count = 2 * rank.row.ranks;
    // Maps that keep about half.
    Array m = random({count, heads, keyDim, keyDim}, 1, 0.25);
    Array b = random({count, heads, keyDim, valueDim}, 2);
    for (bool backward : {false, true})
      run(backward ? "affine_scan_bwd" : "affine_scan", "{}",
          {m, b, words(rank.stripes)}, {f32({2, heads, keyDim, valueDim})},
          [&](const Arrays &in, const Arrays &out) {
            Vector want(out[0].size());
            auto scan = backward ? reference::affineScanBwd<double>
                                 : reference::affineScan<double>;
            expectOk(scan(valuesOf(in[0]), valuesOf(in[1]), rank.view(), heads,
                          keyDim, valueDim, MakeSpan(want)));
            expectNear(out[0], want, 5e-6, "states");
          });
  }
}

// Maps and states of stripes that a document begins in may be anything.
TEST_F(StripeKernelTest, AffineScansReadNothingOfOtherDocuments) {
  Rank rank({{10, 60, 20}, 96, 2}, 0); // begins in stripes 0 twice, 2 and 3
  Array m = random({4, 1, 4, 4}, 1), b = random({4, 1, 4, 4}, 2);
  auto poison = [&](Array &array, int64_t stripe) {
    int64_t slot = rank.row.shape().slotOf(stripe);
    for (int64_t i = 0; i < 16; ++i)
      array.set(slot * 16 + i, NAN);
  };
  poison(m, 0);
  poison(m, 2);
  auto expectFinite = [](const Arrays &, const Arrays &out) {
    for (int64_t i = 0; i < out[0].size(); ++i)
      EXPECT_TRUE(std::isfinite(out[0][i])) << i;
  };
  run("affine_scan", "{}", {m, b, words(rank.stripes)}, {f32({2, 1, 4, 4})},
      expectFinite);
  poison(b, 0); // stripe 0 begins a document: its c is not read
  run("affine_scan_bwd", "{}", {m, b, words(rank.stripes)}, {f32({2, 1, 4, 4})},
      expectFinite);
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

TEST_F(StripeKernelTest, CausalConvMatchesTheReference) {
  size_t number = 0;
  for (const Rank &rank : {ranks()[2], ranks()[4]}) {
    SCOPED_TRACE(rank.name());
    int64_t channels = number % 2 ? 37 : 300, taps = number % 3 ? 4 : 2;
    ++number;
    int64_t tokens = rank.tokens(), halo = taps - 1;
    Array x = random({tokens, channels}, 1, 2, {channels + 5, 1});
    Array dy = random({tokens, channels}, 4);
    Array tails = random({2 * rank.row.ranks, halo, channels}, 2, 2);
    Array w = random({channels, 1, taps}, 3);
    run("cp_causal_conv", rank.attrs(),
        {x, tails, w, words(rank.seq), words(rank.stripes)},
        {f32({tokens, channels})}, [&](const Arrays &in, const Arrays &out) {
          Vector y(out[0].size());
          expectOk(reference::cpCausalConv<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), rank.shape(),
              rank.seq, rank.view(), channels, taps, MakeSpan(y)));
          expectNear(out[0], y, 2e-6, "y");
        });
    run("cp_causal_conv_bwd", rank.attrs(),
        {dy, x, tails, w, words(rank.seq), words(rank.stripes)},
        {f32({tokens, channels}), f32({2, halo, channels}),
         f32({channels, 1, taps})},
        [&](const Arrays &in, const Arrays &out) {
          Vector dx(out[0].size()), dhalo(out[1].size()), dw(out[2].size());
          expectOk(reference::cpCausalConvBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), rank.shape(), rank.seq, rank.view(), channels,
              taps, MakeSpan(dx), MakeSpan(dhalo), MakeSpan(dw)));
          expectNear(out[0], dx, 2e-6, "dx");
          expectNear(out[1], dhalo, 2e-6, "dhalo");
          expectNear(out[2], dw, 4e-6, "dw");
        });
  }
}

TEST_F(StripeKernelTest, TailsMatchTheReference) {
  size_t number = 0;
  for (const Rank &rank : ranks()) {
    SCOPED_TRACE(rank.name());
    int64_t channels = number % 2 ? 37 : 64, taps = number % 3 ? 4 : 3;
    ++number;
    Array x = random({rank.tokens(), channels}, 1, 1, {channels + 3, 1});
    Array halo = random({2 * rank.row.ranks, taps - 1, channels}, 2);
    run("stripe_tails", "{taps = " + std::to_string(taps) + "}", {x},
        {f32({2, taps - 1, channels})},
        [&](const Arrays &in, const Arrays &out) {
          Vector tails(out[0].size());
          expectOk(reference::stripeTails<double>(
              valuesOf(in[0]), rank.tokens(), channels, taps, MakeSpan(tails)));
          expectNear(out[0], tails, 0, "tails");
        });
    Array dx = random({rank.tokens(), channels}, 3);
    run("add_to_tails", "{}", {dx, halo, words(rank.stripes)},
        {f32({rank.tokens(), channels})},
        [&](const Arrays &in, const Arrays &out) {
          Vector y(out[0].size());
          expectOk(reference::addToTails<double>(valuesOf(in[0]),
                                                 valuesOf(in[1]), rank.view(),
                                                 channels, taps, MakeSpan(y)));
          expectNear(out[0], y, 1e-7, "y");
        });
  }
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// As in AttentionKernelsTest: gradients that cancel have an absolute bound.
void expectGradient(const Array &got, const Vector &want,
                    const std::string &what) {
  double largest = 0;
  for (double value : want)
    largest = std::max(largest, std::fabs(value));
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i],
                1e-5 * (std::fabs(want[i]) + 0.1 * largest) + 1e-6)
        << what << "[" << i << "]";
}

TEST_F(StripeKernelTest, AttentionMatchesTheReference) {
  size_t number = 0;
  for (const Rank &rank : {ranks()[2], ranks()[4]}) {
    SCOPED_TRACE(rank.name());
    reference::AttentionDims dims = number++ % 2
                                        ? reference::AttentionDims{4, 2, 32}
                                        : reference::AttentionDims{3, 1, 20};
    int64_t tokens = rank.tokens(), all = tokens * rank.row.ranks;
    std::string attrs = rank.attrs(", scale = 0.25 : f64");
    Array q = random({tokens, dims.queryHeads, dims.headDim}, 1, 1,
                     {dims.queryHeads * 2 * dims.headDim, 2 * dims.headDim, 1});
    Array k = random({all, dims.kvHeads, dims.headDim}, 2);
    Array v = random(k.shape(), 3);
    Array oArray = f32(q.shape()), lseArray = f32({tokens, dims.queryHeads});
    Vector o(q.size()), lse(lseArray.size());
    run("cp_attention", attrs, {q, k, v, words(rank.seq), words(rank.stripes)},
        {oArray, lseArray}, [&](const Arrays &in, const Arrays &out) {
          expectOk(reference::cpAttention<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), rank.shape(),
              rank.seq, rank.view(), dims, 0.25, MakeSpan(o), MakeSpan(lse)));
          expectNear(out[0], o, 5e-6, "o");
          expectNear(out[1], lse, 2e-6, "lse");
        });
    setValues(oArray, o);
    setValues(lseArray, lse);
    run("cp_attention_bwd", attrs,
        {random(q.shape(), 4), q, k, v, oArray, lseArray, words(rank.seq),
         words(rank.stripes)},
        {f32(q.shape()), f32(k.shape()), f32(k.shape())},
        [&](const Arrays &in, const Arrays &out) {
          Vector dq(q.size()), dk(k.size()), dv(k.size());
          expectOk(reference::cpAttentionBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), rank.shape(),
              rank.seq, rank.view(), dims, 0.25, MakeSpan(dq), MakeSpan(dk),
              MakeSpan(dv)));
          expectGradient(out[0], dq, "dq");
          expectGradient(out[1], dk, "dk");
          expectGradient(out[2], dv, "dv");
        });
  }
}

TEST_F(StripeKernelTest, A02OtherDocumentsOnOtherRanksAreNeverRead) {
  // The document that is NaN ends in stripe 2, which rank 1 has beside
  // stripe 1.
  StripedRow row{{23, 1, 1, 45, 3, 23}, 96, 2};
  Rank rank(row, 1);
  size_t bad = 3;
  int64_t first = 0;
  for (size_t d = 0; d < bad; ++d)
    first += row.lengths[d];
  auto isBad = [&](int64_t token) {
    return token >= first && token < first + row.lengths[bad];
  };
  int64_t heads = 2, size = 8, channels = 12;
  auto poisoned = [&](int64_t columns, uint64_t seed) {
    Vector x = valuesOf(random({row.tokens, columns}, seed));
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
      if (isBad(i / columns))
        x[i] = NAN;
    return x;
  };
  Vector q = poisoned(heads * size, 1), k = poisoned(heads * size, 2);
  Vector o = poisoned(heads * size, 3), lse = poisoned(heads, 4);
  Vector x = poisoned(channels, 5);
  std::vector<Vector> keys, tails;
  for (int64_t r = 0; r < row.ranks; ++r) {
    keys.push_back(row.scatter(k, r));
    Vector mine = row.scatter(x, r), tail(2 * 3 * channels);
    expectOk(reference::stripeTails<double>(mine, row.local().tokens, channels,
                                            4, MakeSpan(tail)));
    tails.push_back(tail);
  }
  reference::Stripes stripes(rank.view());
  int64_t tokens = rank.tokens();
  auto expectLocal = [&](const Array &array) {
    for (int64_t i = 0; i < array.size(); ++i) {
      int64_t token = stripes.global(i * tokens / array.size());
      ASSERT_EQ(std::isfinite(array[i]), !isBad(token)) << token;
    }
  };
  auto local = [&](const Vector &values, std::vector<int64_t> shape) {
    return withValues(shape, row.scatter(values, rank.rank));
  };
  std::vector<int64_t> shape = {tokens, heads, size};
  Array mine = local(q, shape);
  Array all = withValues({row.tokens, heads, size}, row.gather(keys));
  std::string attrs = rank.attrs(", scale = 0.25 : f64");
  run("cp_attention", attrs,
      {mine, all, all, words(rank.seq), words(rank.stripes)},
      {f32(shape), f32({tokens, heads})},
      [&](const Arrays &, const Arrays &out) { expectLocal(out[0]); });
  run("cp_attention_bwd", attrs,
      {mine, mine, all, all, local(o, shape), local(lse, {tokens, heads}),
       words(rank.seq), words(rank.stripes)},
      {f32(shape), f32(all.shape()), f32(all.shape())},
      [&](const Arrays &, const Arrays &out) {
        expectLocal(out[0]);
        for (int64_t g = 0; g < row.tokens; ++g)
          for (int64_t i = 0; i < heads * size && !isBad(g); ++i) {
            int64_t at = stripes.gatheredRow(g) * heads * size + i;
            ASSERT_TRUE(std::isfinite(out[1][at])) << g;
            ASSERT_TRUE(std::isfinite(out[2][at])) << g;
          }
      });
  Array rows = local(x, {tokens, channels});
  Array tail = withValues({2 * row.ranks, 3, channels}, row.gather(tails));
  Array w = random({channels, 1, 4}, 6);
  run("cp_causal_conv", rank.attrs(),
      {rows, tail, w, words(rank.seq), words(rank.stripes)},
      {f32({tokens, channels})},
      [&](const Arrays &, const Arrays &out) { expectLocal(out[0]); });
  run("cp_causal_conv_bwd", rank.attrs(),
      {rows, rows, tail, w, words(rank.seq), words(rank.stripes)},
      {f32({tokens, channels}), f32({2, 3, channels}), f32({channels, 1, 4})},
      [&](const Arrays &, const Arrays &out) {
        expectLocal(out[0]);
        for (int64_t i = 0; i < out[1].size(); ++i) {
          int64_t j = i / (3 * channels), back = 3 - i / channels % 3;
          int64_t token = stripes.index(j) * row.rows() - back;
          ASSERT_TRUE(std::isfinite(out[1][i]) || isBad(token)) << token;
        }
      });
}

TEST_F(StripeKernelTest, RopeTableMatchesTheReference) {
  for (const Rank &rank : ranks()) {
    SCOPED_TRACE(rank.name());
    run("cp_rope_table",
        rank.attrs(", theta = 1.0e7 : f64, rotary_dim = 10 : i64"),
        {words(rank.seq), words(rank.stripes)}, {f32({rank.tokens(), 5, 2})},
        [&](const Arrays &, const Arrays &out) {
          Vector table(out[0].size());
          expectOk(reference::cpRopeTable<double>(
              rank.shape(), rank.seq, rank.view(), 1e7, 10, MakeSpan(table)));
          expectNear(out[0], table, 1e-7, "table");
        });
  }
}

TEST_F(StripeKernelTest, RefusesOtherTables) {
  Rank rank({{20, 12}, 32, 1}, 0);
  expectRefused("cp_attention", rank.attrs(", scale = 0.25 : f64"),
                {f32({32, 2, 8}), f32({64, 2, 8}), f32({64, 2, 8}),
                 words(rank.seq), words(rank.stripes)},
                {f32({32, 2, 8}), f32({32, 2})},
                "cp_attention: k is [64, 2, 8] of f32, expected [32, ?, 8] of "
                "f32");
  expectRefused("affine_scan", "{}",
                {f32({2, 1, 4, 4}), f32({2, 1, 4, 4}), i32({13})},
                {f32({2, 1, 4, 4})},
                "affine_scan: stripes has 13 words, expected 8 and 6 for each "
                "of the ranks");
  expectRefused("stripe_tails", "{taps = 9 : i64}", {f32({8, 4})},
                {f32({2, 8, 4})},
                "stripe_tails: 9 taps on 8 tokens, expected two stripes of "
                "taps - 1 tokens or more");
}

} // namespace
} // namespace qwen35::codegen::cpu
