// Kernels of one rank's stripes of a row against the reference ops.

#include "test/unit/cuda/CudaKernelTest.h"
#include "test/unit/support/StripedCase.h"

#include <cmath>

namespace qwen35::codegen::cuda {
namespace {

using absl::MakeSpan;

class CudaStripeTest : public CudaKernelTest {};

//===----------------------------------------------------------------------===//
// Convolution, rotary positions
//===----------------------------------------------------------------------===//

TEST_F(CudaStripeTest, TailsMatchTheReference) {
  size_t number = 0;
  for (const Rank &rank : ranks())
    for (Kind kind : kFloatKinds) {
      SCOPED_TRACE(rank.name());
      int64_t channels = number % 2 ? 37 : 64, taps = number % 3 ? 4 : 3;
      ++number;
      int64_t tokens = rank.tokens();
      Array x = random(kind, {tokens, channels}, 1, 1, {channels + 8, 1});
      Array halo = random(kind, {2 * rank.row.ranks, taps - 1, channels}, 2);
      run("stripe_tails", "{taps = " + std::to_string(taps) + "}", {x},
          {zeros(kind, {2, taps - 1, channels})},
          [&](const Arrays &in, const Arrays &out) {
            Vector tails(out[0].size());
            expectOk(reference::stripeTails<double>(
                valuesOf(in[0]), tokens, channels, taps, MakeSpan(tails)));
            expectNear(out[0], tails, 0, "tails");
          });
      run("add_to_tails", "{}",
          {random(kind, {tokens, channels}, 3), halo, words(rank.stripes)},
          {zeros(kind, {tokens, channels})},
          [&](const Arrays &in, const Arrays &out) {
            Vector y(out[0].size());
            expectOk(reference::addToTails<double>(
                valuesOf(in[0]), valuesOf(in[1]), rank.view(), channels, taps,
                MakeSpan(y)));
            expectNear(out[0], y, tolerance(kind, 1e-7), "y");
          });
    }
}

/// Runs of tokens that end in stripes, one lane and several blocks of
/// channels, more taps than usual, in stripes hardly longer.
TEST_F(CudaStripeTest, CausalConvMatchesTheReference) {
  struct Case {
    size_t rank;
    int64_t channels, taps;
  };
  for (auto [number, channels, taps] :
       {Case{0, 40, 4}, Case{1, 37, 4}, Case{2, 264, 4}, Case{2, 8, 2},
        Case{4, 37, 3}, Case{4, 64, 4}, Case{5, 16, 9}})
    for (Kind kind : kFloatKinds) {
      Rank rank = ranks()[number];
      SCOPED_TRACE(rank.name());
      int64_t tokens = rank.tokens(), halo = taps - 1, columns = channels;
      Array x = random(kind, {tokens, channels}, 1, 2, {channels + 8, 1});
      Array dy = random(kind, {tokens, channels}, 4, 1, {channels + 16, 1});
      Array tails = random(kind, {2 * rank.row.ranks, halo, channels}, 2, 2);
      Array w = random({channels, 1, taps}, 3);
      run("cp_causal_conv", rank.attrs(),
          {x, tails, w, words(rank.seq), words(rank.stripes)},
          {zeros(kind, {tokens, channels})},
          [&, taps = taps](const Arrays &in, const Arrays &out) {
            Vector y(out[0].size());
            expectOk(reference::cpCausalConv<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), rank.shape(),
                rank.seq, rank.view(), columns, taps, MakeSpan(y)));
            expectNear(out[0], y, tolerance(kind, 2e-6), "y");
          });
      run("cp_causal_conv_bwd", rank.attrs(),
          {dy, x, tails, w, words(rank.seq), words(rank.stripes)},
          {zeros(kind, {tokens, channels}), zeros(kind, {2, halo, channels}),
           f32({channels, 1, taps})},
          [&, taps = taps](const Arrays &in, const Arrays &out) {
            Vector dx(out[0].size()), dhalo(out[1].size()), dw(out[2].size());
            expectOk(reference::cpCausalConvBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                valuesOf(in[3]), rank.shape(), rank.seq, rank.view(), columns,
                taps, MakeSpan(dx), MakeSpan(dhalo), MakeSpan(dw)));
            expectNear(out[0], dx, tolerance(kind, 3e-6), "dx");
            expectNear(out[1], dhalo, tolerance(kind, 3e-6), "dhalo");
            expectNear(out[2], dw, 5e-6, "dw");
          });
    }
}

// Tails hold NaN but for what the rank may read: rows of its stripes'
// documents before them.
TEST_F(CudaStripeTest, CausalConvReadsNoOtherDocument) {
  for (size_t number : {size_t(1), size_t(3)}) {
    Rank rank = ranks()[number];
    SCOPED_TRACE(rank.name());
    int64_t tokens = rank.tokens(), channels = 24, halo = 3;
    Array tails = random({2 * rank.row.ranks, halo, channels}, 2);
    reference::Stripes stripes(rank.view());
    for (int64_t slot = 0; slot < 2 * rank.row.ranks; ++slot)
      for (int64_t row = 0; row < halo; ++row) {
        bool read = false;
        for (int64_t j : {0, 1}) {
          int64_t stripe = stripes.index(j);
          read |=
              stripe > 0 && rank.row.shape().slotOf(stripe - 1) == slot &&
              halo - row <= rank.stripes[rank.row.shape().offset() + stripe];
        }
        for (int64_t c = 0; c < channels && !read; ++c)
          tails.set((slot * halo + row) * channels + c, NAN);
      }
    Array x = random({tokens, channels}, 1), w = random({channels, 1, 4}, 3);
    auto expectFinite = [&](const Arrays &, const Arrays &out) {
      for (const Array &array : out)
        for (int64_t i = 0; i < array.size(); ++i)
          ASSERT_TRUE(std::isfinite(array[i])) << i;
    };
    run("cp_causal_conv", rank.attrs(),
        {x, tails, w, words(rank.seq), words(rank.stripes)},
        {f32({tokens, channels})}, expectFinite);
    run("cp_causal_conv_bwd", rank.attrs(),
        {random({tokens, channels}, 4), x, tails, w, words(rank.seq),
         words(rank.stripes)},
        {f32({tokens, channels}), f32({2, halo, channels}),
         f32({channels, 1, 4})},
        expectFinite);
  }
}

TEST_F(CudaStripeTest, RopeTableMatchesTheReference) {
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

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

TEST_F(CudaStripeTest, AffineScansMatchTheReference) {
  struct Case {
    size_t rank;
    int64_t heads, keyDim, valueDim;
  };
  for (auto [number, heads, keyDim, valueDim] :
       {Case{0, 1, 16, 16}, Case{1, 2, 32, 48}, Case{2, 3, 12, 20},
        Case{4, 1, 128, 128}, Case{5, 2, 64, 32}}) {
    Rank rank = ranks()[number];
    SCOPED_TRACE(rank.name());
    int64_t count = 2 * rank.row.ranks;
    // Maps that keep about half.
    Array m = random({count, heads, keyDim, keyDim}, 1,
                     0.9 / std::sqrt(double(keyDim)));
    Array b = random({count, heads, keyDim, valueDim}, 2);
    for (bool backward : {false, true})
      run(backward ? "affine_scan_bwd" : "affine_scan", "{}",
          {m, b, words(rank.stripes)}, {f32({2, heads, keyDim, valueDim})},
          [&, heads = heads, keyDim = keyDim,
           valueDim = valueDim](const Arrays &in, const Arrays &out) {
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
TEST_F(CudaStripeTest, AffineScansReadNothingOfOtherDocuments) {
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
// Delta rule
//===----------------------------------------------------------------------===//

/// Heads of several sizes; slow decay, so that what comes from far matters, and
/// strong. Unused chunks hold NaN.
class CudaStripedDeltaTest : public CudaStripeTest {
protected:
  template <typename Body> void forCases(Body body) {
    struct Case {
      size_t rank;
      reference::DeltaDims dims;
      double decay;
      Kind kind;
    };
    // A kernel takes a second and more to compile, most of all for f32.
    for (const Case &c : {Case{0, {1, 1, 16, 16}, 0.02, Kind::BF16},
                          Case{1, {1, 2, 16, 32}, 0.02, Kind::F32},
                          Case{2, {2, 2, 16, 48}, 50, Kind::BF16},
                          Case{3, {1, 1, 48, 16}, 0.1, Kind::BF16},
                          Case{4, {1, 3, 32, 16}, 0.02, Kind::F32},
                          Case{4, {1, 1, 128, 128}, 0.02, Kind::BF16},
                          Case{5, {1, 1, 16, 32}, 0.02, Kind::BF16}}) {
      ChunkCase chunks(ranks()[c.rank], c.dims, c.decay, c.kind);
      SCOPED_TRACE(chunks.rank.name());
      body(chunks, c.kind);
    }
    unspecified = nullptr;
    deviceBounds.clear();
  }

  struct Expected {
    std::string name;
    double single;      ///< Per element, for f32.
    double half = 8e-3; ///< ||got - want|| / ||want||, for bf16.
  };
  /// Compares what of the results is specified: chunks that are used, or states
  /// of stripes.
  void compare(const std::string &op, const std::string &attrs,
               const ChunkCase &c, Kind kind, Arrays operands, Arrays outputs,
               const std::vector<Vector> &want,
               const std::vector<Expected> &expected) {
    std::vector<int64_t> used;
    for (const Array &output : outputs)
      used.push_back(op.find("scan") != std::string::npos
                         ? c.usedOf(output.size())
                         : output.size());
    unspecified = [used](size_t output, int64_t element) {
      return element >= used[output];
    };
    deviceBounds.clear();
    for (const Expected &e : expected)
      deviceBounds.push_back(
          {kind == Kind::F32 ? std::max(2e-5, e.single) : e.half, 0});
    run(op, attrs, std::move(operands), std::move(outputs),
        [&](const Arrays &, const Arrays &out) {
          for (size_t i = 0; i < out.size(); ++i) {
            Vector got = valuesOf(out[i]);
            got.resize(used[i]);
            Vector reference(want[i].begin(), want[i].begin() + used[i]);
            if (kind == Kind::F32) {
              expectNear(withValues({used[i]}, got), reference,
                         expected[i].single, expected[i].name);
              continue;
            }
            double error = 0, norm = 0;
            for (int64_t j = 0; j < used[i]; ++j) {
              error += (got[j] - reference[j]) * (got[j] - reference[j]);
              norm += reference[j] * reference[j];
            }
            EXPECT_LE(std::sqrt(error),
                      expected[i].half * std::sqrt(norm) + 1e-7)
                << expected[i].name << " of norm " << std::sqrt(norm);
          }
        });
  }
};

TEST_F(CudaStripedDeltaTest, AffineMatchesTheReference) {
  forCases([&](const ChunkCase &c, Kind kind) {
    const auto &d = c.dims;
    Array m = f32({2, d.valueHeads, d.keyDim, d.keyDim});
    Array b = f32({2, d.valueHeads, d.keyDim, d.valueDim});
    std::vector<Vector> want = {Vector(m.size()), Vector(b.size())};
    expectOk(reference::cpGdnAffine<double>(
        valuesOf(c.kn), valuesOf(c.v), valuesOf(c.beta), valuesOf(c.gamma),
        valuesOf(c.tinv), c.rank.shape(), c.rank.seq, c.rank.view(), d,
        MakeSpan(want[0]), MakeSpan(want[1])));
    compare("cp_gdn_affine", c.rank.attrs(), c, kind,
            {c.kn, c.v, c.beta, c.gamma, c.tinv, words(c.rank.seq),
             words(c.rank.stripes)},
            {m, b}, want, {{"m", 2e-5}, {"b", 2e-5}});
  });
}

TEST_F(CudaStripedDeltaTest, ScanMatchesTheReference) {
  forCases([&](const ChunkCase &c, Kind kind) {
    Array states = zeros(kind, c.stateShape()),
          vnew = zeros(kind, c.tileShape());
    std::vector<Vector> want = {Vector(states.size()), Vector(vnew.size())};
    expectOk(reference::cpGdnScan<double>(
        valuesOf(c.kn), valuesOf(c.v), valuesOf(c.beta), valuesOf(c.gamma),
        valuesOf(c.tinv), valuesOf(c.states), c.rank.shape(), c.rank.seq,
        c.rank.view(), c.dims, MakeSpan(want[0]), MakeSpan(want[1])));
    compare("cp_gdn_scan", c.rank.attrs(), c, kind,
            {c.kn, c.v, c.beta, c.gamma, c.tinv, c.states, words(c.rank.seq),
             words(c.rank.stripes)},
            {states, vnew}, want, {{"states", 2e-5}, {"vnew", 2e-5}});
  });
}

TEST_F(CudaStripedDeltaTest, ScanBwdMatchesTheReference) {
  forCases([&](const ChunkCase &c, Kind kind) {
    Array dstates = zeros(kind, c.stateShape()), z = zeros(kind, c.tileShape());
    std::vector<Vector> want = {Vector(dstates.size()), Vector(z.size())};
    expectOk(reference::cpGdnScanBwd<double>(
        valuesOf(c.qn), valuesOf(c.kn), valuesOf(c.dO), valuesOf(c.beta),
        valuesOf(c.gamma), valuesOf(c.tinv), valuesOf(c.states), c.rank.shape(),
        c.rank.seq, c.rank.view(), c.dims, c.scale, MakeSpan(want[0]),
        MakeSpan(want[1])));
    compare("cp_gdn_scan_bwd", c.withScale(), c, kind,
            {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, c.states,
             words(c.rank.seq), words(c.rank.stripes)},
            {dstates, z}, want, {{"dstates", 2e-5}, {"z", 2e-5}});
  });
}

TEST_F(CudaStripedDeltaTest, StateGradMatchesTheReference) {
  forCases([&](const ChunkCase &c, Kind kind) {
    Array grads = f32(c.states.shape());
    std::vector<Vector> want = {Vector(grads.size())};
    expectOk(reference::cpGdnStateGrad<double>(
        valuesOf(c.qn), valuesOf(c.kn), valuesOf(c.dO), valuesOf(c.beta),
        valuesOf(c.gamma), valuesOf(c.tinv), c.rank.shape(), c.rank.seq,
        c.rank.view(), c.dims, c.scale, MakeSpan(want[0])));
    compare("cp_gdn_state_grad", c.withScale(), c, kind,
            {c.qn, c.kn, c.dO, c.beta, c.gamma, c.tinv, words(c.rank.seq),
             words(c.rank.stripes)},
            {grads}, want, {{"c", 2e-5}});
  });
}

// A state that a document does not take in may be anything.
TEST_F(CudaStripedDeltaTest, StatesDoNotEnterDocumentsThatBegin) {
  ChunkCase c(ranks()[3], {1, 1, 16, 16}, 0.1); // on every end
  for (int64_t i = 0; i < c.states.size(); ++i)
    c.states.set(i, NAN);
  int64_t used = c.usedOf(c.chunks() * 16 * 16);
  unspecified = [&](size_t output, int64_t element) {
    return element >= (output == 0 ? used : used * 4);
  };
  run("cp_gdn_scan", c.rank.attrs(),
      {c.kn, c.v, c.beta, c.gamma, c.tinv, c.states, words(c.rank.seq),
       words(c.rank.stripes)},
      {f32(c.stateShape()), f32(c.tileShape())},
      [&](const Arrays &, const Arrays &out) {
        for (int64_t i = 0; i < used; ++i)
          ASSERT_TRUE(std::isfinite(out[0][i])) << i;
        for (int64_t i = 0; i < 4 * used; ++i)
          ASSERT_TRUE(std::isfinite(out[1][i])) << i;
      });
  unspecified = nullptr;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Expects ||got - want|| <= tolerance * ||want||, and nothing below 1e-6 of
/// `scale` to matter: single tokens have dq = dk = 0 up to rounding.
void expectNearL2(const Array &got, const Vector &want, double tolerance,
                  double scale, const std::string &what) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << "[" << i << "]";
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(error),
            tolerance * std::sqrt(norm) +
                tolerance * scale * std::sqrt(double(got.size())))
      << what;
}

TEST_F(CudaStripeTest, AttentionMatchesTheReference) {
  struct Case {
    size_t rank;
    reference::AttentionDims dims;
    Kind kind;
  };
  // Stripes shorter than a tile and longer, on one rank to eight.
  std::vector<Rank> all = ranks();
  all.push_back({{{300, 30, 70}, 400, 2}, 0}); // not neighbours
  all.push_back({{{300, 30, 70}, 400, 2}, 1});
  for (const auto &[number, dims, kind] :
       {Case{0, {2, 1, 16}, Kind::F32}, Case{1, {4, 2, 16}, Kind::BF16},
        Case{2, {2, 2, 32}, Kind::F32}, Case{3, {2, 1, 48}, Kind::BF16},
        Case{4, {2, 1, 64}, Kind::BF16}, Case{4, {3, 1, 16}, Kind::F32},
        Case{5, {2, 1, 16}, Kind::BF16}, Case{6, {2, 1, 32}, Kind::BF16},
        Case{7, {1, 1, 256}, Kind::BF16}}) {
    const Rank &rank = all[number];
    bool half = kind == Kind::BF16;
    SCOPED_TRACE(rank.name());
    int64_t tokens = rank.tokens(), keys = tokens * rank.row.ranks;
    std::string attrs = rank.attrs(", scale = 0.25 : f64");
    Array q = random(kind, {tokens, dims.queryHeads, dims.headDim}, 1, 1,
                     {dims.queryHeads * 2 * dims.headDim, 2 * dims.headDim, 1});
    Array k = random(kind, {keys, dims.kvHeads, dims.headDim}, 2);
    Array v = random(kind, k.shape(), 3);
    Array oArray = zeros(kind, q.shape());
    Array lseArray = f32({tokens, dims.queryHeads});
    Vector o(q.size()), lse(lseArray.size());
    double device = half ? 8e-3 : 2e-5;
    deviceBounds = {{device, 0}, {2e-5, 0}};
    auto view = rank.view();
    expectOk(reference::cpAttention<double>(
        valuesOf(q), valuesOf(k), valuesOf(v), rank.shape(), rank.seq, view,
        dims, 0.25, MakeSpan(o), MakeSpan(lse)));
    run("cp_attention", attrs, {q, k, v, words(rank.seq), words(rank.stripes)},
        {oArray, lseArray}, [&](const Arrays &, const Arrays &out) {
          expectNearL2(out[0], o, half ? 5e-3 : 1e-6, 0, "o");
          expectNear(out[1], lse, 2e-6, "lse");
        });
    setValues(oArray, o);
    setValues(lseArray, lse);
    double zero = 0.25 * std::sqrt(double(dims.queryHeads / dims.kvHeads));
    Array dO = random(kind, q.shape(), 4);
    Vector dq(q.size()), dk(k.size()), dv(k.size());
    expectOk(reference::cpAttentionBwd<double>(
        valuesOf(dO), valuesOf(q), valuesOf(k), valuesOf(v), valuesOf(oArray),
        valuesOf(lseArray), rank.shape(), rank.seq, view, dims, 0.25,
        MakeSpan(dq), MakeSpan(dk), MakeSpan(dv)));
    deviceBounds = {{device, zero}, {device, zero}, {device, 0}};
    run("cp_attention_bwd", attrs,
        {dO, q, k, v, oArray, lseArray, words(rank.seq), words(rank.stripes)},
        {zeros(kind, q.shape()), f32(k.shape()), f32(k.shape())},
        [&](const Arrays &, const Arrays &out) {
          double near = half ? 8e-3 : 3e-6;
          expectNearL2(out[0], dq, near, zero, "dq");
          expectNearL2(out[1], dk, near, zero, "dk");
          expectNearL2(out[2], dv, near, 0, "dv");
          // Keys that the rank does not see have no gradient at all.
          for (size_t i = 0; i < dv.size(); ++i)
            if (dv[i] == 0)
              ASSERT_EQ(out[1][i] == 0 && out[2][i] == 0, true) << i;
        });
  }
  deviceBounds.clear();
}

TEST_F(CudaStripeTest, A02OtherDocumentsOnOtherRanksAreNeverRead) {
  // The document that is NaN ends in stripe 2, which rank 1 has beside
  // stripe 1.
  StripedRow row{{23, 1, 1, 45, 3, 23}, 96, 2};
  size_t bad = 3;
  int64_t first = 0;
  for (size_t d = 0; d < bad; ++d)
    first += row.lengths[d];
  auto isBad = [&](int64_t token) {
    return token >= first && token < first + row.lengths[bad];
  };
  int64_t heads = 2, size = 16;
  auto poisoned = [&](int64_t columns, uint64_t seed) {
    Vector x = valuesOf(random({row.tokens, columns}, seed));
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
      if (isBad(i / columns))
        x[i] = NAN;
    return x;
  };
  Vector q = poisoned(heads * size, 1), k = poisoned(heads * size, 2);
  Vector o = poisoned(heads * size, 3), lse = poisoned(heads, 4);
  std::vector<Vector> keys;
  for (int64_t r = 0; r < row.ranks; ++r)
    keys.push_back(row.scatter(k, r));
  for (int64_t number : {0, 1})
    for (Kind kind : kFloatKinds) {
      Rank rank(row, number);
      reference::Stripes stripes(rank.view());
      int64_t tokens = rank.tokens();
      auto expectLocal = [&](const Array &array) {
        for (int64_t i = 0; i < array.size(); ++i) {
          int64_t token = stripes.global(i * tokens / array.size());
          ASSERT_EQ(std::isfinite(array[i]), !isBad(token)) << token;
        }
      };
      auto of = [&](std::vector<int64_t> shape, const Vector &values) {
        Array array = zeros(shape.size() == 2 ? Kind::F32 : kind, shape);
        setValues(array, values);
        return array;
      };
      std::vector<int64_t> shape = {tokens, heads, size};
      Array mine = of(shape, rank.row.scatter(q, number));
      Array all = of({row.tokens, heads, size}, row.gather(keys));
      std::string attrs = rank.attrs(", scale = 0.25 : f64");
      run("cp_attention", attrs,
          {mine, all, all, words(rank.seq), words(rank.stripes)},
          {zeros(kind, shape), f32({tokens, heads})},
          [&](const Arrays &, const Arrays &out) { expectLocal(out[0]); });
      run("cp_attention_bwd", attrs,
          {mine, mine, all, all, of(shape, rank.row.scatter(o, number)),
           of({tokens, heads}, rank.row.scatter(lse, number)), words(rank.seq),
           words(rank.stripes)},
          {zeros(kind, shape), f32(all.shape()), f32(all.shape())},
          [&](const Arrays &, const Arrays &out) {
            expectLocal(out[0]);
            for (int64_t g = 0; g < row.tokens; ++g)
              for (int64_t i = 0; i < heads * size && !isBad(g); ++i) {
                int64_t at = stripes.gatheredRow(g) * heads * size + i;
                ASSERT_TRUE(std::isfinite(out[1][at])) << g;
                ASSERT_TRUE(std::isfinite(out[2][at])) << g;
              }
          });
    }
}

TEST_F(CudaStripeTest, RefusesOtherTables) {
  Rank rank({{20, 12}, 32, 1}, 0);
  expectRefused("cp_attention", rank.attrs(", scale = 0.25 : f64"),
                {f32({32, 2, 16}), f32({64, 2, 16}), f32({64, 2, 16}),
                 words(rank.seq), words(rank.stripes)},
                {f32({32, 2, 16}), f32({32, 2})},
                "cp_attention: k is [64, 2, 16] of f32, expected [32, ?, 16] "
                "of f32");
  expectRefused("affine_scan", "{}",
                {f32({2, 1, 4, 4}), f32({2, 1, 4, 4}), i32({13})},
                {f32({2, 1, 4, 4})},
                "affine_scan: stripes has 13 words, expected 8 and 6 for each "
                "of the ranks");
  expectRefused("stripe_tails", "{taps = 9 : i64}", {f32({8, 4})},
                {f32({2, 8, 4})},
                "stripe_tails: 9 taps on 8 tokens, expected two stripes of "
                "taps - 1 tokens or more");
  expectRefused("cp_causal_conv", rank.attrs(),
                {f32({32, 4}), f32({4, 3, 4}), f32({4, 1, 4}), words(rank.seq),
                 words(rank.stripes)},
                {f32({32, 4})},
                "cp_causal_conv: tails is [4, 3, 4] of f32, expected [2, 3, 4] "
                "of f32");
}

} // namespace
} // namespace qwen35::codegen::cuda
