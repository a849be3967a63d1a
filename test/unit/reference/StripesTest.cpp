// A row cut into stripes over the ranks of a context-parallel group equals the
// row as a whole, in double: delta rule by states that are passed on exactly,
// convolution by halos, attention on gathered keys. Documents do not see each
// other, also where they meet at a border between ranks.

#include "dialect/Qwen35/Reference/Stripes.h"
#include "test/support/Striped.h"
#include "test/unit/reference/DeltaCase.h"

#include "gtest/gtest.h"

#include <functional>

namespace qwen35::test {
namespace {

using namespace qwen35::reference;
using absl::MakeSpan;
using Vector = std::vector<double>;

void check(const absl::Status &status) {
  EXPECT_TRUE(status.ok()) << status.ToString();
}

DeltaCase deltaCase(const StripedRow &row, const DeltaDims &dims) {
  return DeltaCase(DocumentTable(row.lengths, row.tokens, row.whole().maxDocs),
                   dims);
}

/// The delta rule on all ranks, with gathers in between.
DeltaResults<double> onRanks(const DeltaCase &c, const StripedRow &row) {
  const DeltaDims &dims = c.dims;
  SeqTable shape = row.local();
  int64_t ranks = row.ranks, heads = dims.valueHeads;
  int64_t keySize = 2 * heads * dims.keyDim * dims.keyDim;
  int64_t stateSize = 2 * heads * dims.keyDim * dims.valueDim;
  std::vector<Vector> m(ranks, poison<double>(keySize));
  std::vector<Vector> b(ranks, poison<double>(stateSize)), grads = b;
  auto part = [&](const Vector &x, int64_t rank) {
    return row.scatter(x, rank);
  };
  for (int64_t r = 0; r < ranks; ++r) {
    auto seq = row.seq(r), stripes = row.stripes(r);
    check(gdnAffine<double>(part(c.k, r), part(c.v, r), part(c.g, r),
                            part(c.beta, r), shape, seq, {ranks, stripes}, dims,
                            c.eps, MakeSpan(m[r]), MakeSpan(b[r])));
    check(gdnStateGrad<double>(part(c.dO, r), part(c.q, r), part(c.k, r),
                               part(c.g, r), part(c.beta, r), shape, seq,
                               {ranks, stripes}, dims, c.scale, c.eps,
                               MakeSpan(grads[r])));
  }
  Vector allM = row.gather(m), allB = row.gather(b), allC = row.gather(grads);
  DeltaResults<double> whole(dims, c.tokens());
  std::vector<Vector> o, dq, dk, dv, dg, dbeta;
  for (int64_t r = 0; r < ranks; ++r) {
    auto seq = row.seq(r), stripes = row.stripes(r);
    StripeView view{ranks, stripes};
    Vector states = poison<double>(stateSize), after = states;
    check(affineScan<double>(allM, allB, view, heads, dims.keyDim,
                             dims.valueDim, MakeSpan(states)));
    check(affineScanBwd<double>(allM, allC, view, heads, dims.keyDim,
                                dims.valueDim, MakeSpan(after)));
    DeltaResults<double> mine(dims, shape.tokens);
    check(cpGatedDeltaRule<double>(
        part(c.q, r), part(c.k, r), part(c.v, r), part(c.g, r), part(c.beta, r),
        states, shape, seq, view, dims, c.scale, c.eps, MakeSpan(mine.o)));
    check(cpGatedDeltaRuleBwd<double>(
        part(c.dO, r), part(c.q, r), part(c.k, r), part(c.v, r), part(c.g, r),
        part(c.beta, r), states, after, shape, seq, view, dims, c.scale, c.eps,
        MakeSpan(mine.dq), MakeSpan(mine.dk), MakeSpan(mine.dv),
        MakeSpan(mine.dg), MakeSpan(mine.dbeta)));
    o.push_back(mine.o);
    dq.push_back(mine.dq);
    dk.push_back(mine.dk);
    dv.push_back(mine.dv);
    dg.push_back(mine.dg);
    dbeta.push_back(mine.dbeta);
  }
  whole.o = row.inOrder(o);
  whole.dq = row.inOrder(dq);
  whole.dk = row.inOrder(dk);
  whole.dv = row.inOrder(dv);
  whole.dg = row.inOrder(dg);
  whole.dbeta = row.inOrder(dbeta);
  return whole;
}

/// The same through the chunk ops. What they need not write holds NaN before.
DeltaResults<double> onRanksByChunk(const DeltaCase &c, const StripedRow &row) {
  const DeltaDims &dims = c.dims;
  SeqTable shape = row.local();
  int64_t ranks = row.ranks, heads = dims.valueHeads, tokens = shape.tokens;
  int64_t size = heads * dims.keyDim * dims.valueDim, slots = shape.chunks();
  struct Prepared {
    std::vector<int32_t> seq, stripes;
    Vector qn, kn, qr, kr, gamma, tinv, v, beta, dO, m, b, c;
  };
  std::vector<Prepared> all(ranks);
  std::vector<Vector> m, b, grads;
  for (int64_t r = 0; r < ranks; ++r) {
    Prepared &p = all[r];
    p.seq = row.seq(r);
    p.stripes = row.stripes(r);
    p.v = row.scatter(c.v, r);
    p.beta = row.scatter(c.beta, r);
    p.dO = row.scatter(c.dO, r);
    p.qn = p.kn = poison<double>(tokens * dims.keyHeads * dims.keyDim);
    p.qr = p.kr = poison<double>(tokens * dims.keyHeads);
    p.gamma = poison<double>(slots * heads * 64);
    p.tinv = poison<double>(slots * heads * 64 * 64);
    p.m = poison<double>(2 * heads * dims.keyDim * dims.keyDim);
    p.b = p.c = poison<double>(2 * size);
    StripeView view{ranks, p.stripes};
    check(gdnPrep<double>(row.scatter(c.q, r), row.scatter(c.k, r),
                          row.scatter(c.g, r), p.beta, shape, p.seq, dims,
                          c.eps, MakeSpan(p.qn), MakeSpan(p.kn), MakeSpan(p.qr),
                          MakeSpan(p.kr), MakeSpan(p.gamma), MakeSpan(p.tinv)));
    check(cpGdnAffine<double>(p.kn, p.v, p.beta, p.gamma, p.tinv, shape, p.seq,
                              view, dims, MakeSpan(p.m), MakeSpan(p.b)));
    check(cpGdnStateGrad<double>(p.qn, p.kn, p.dO, p.beta, p.gamma, p.tinv,
                                 shape, p.seq, view, dims, c.scale,
                                 MakeSpan(p.c)));
    m.push_back(p.m);
    b.push_back(p.b);
    grads.push_back(p.c);
  }
  Vector allM = row.gather(m), allB = row.gather(b), allC = row.gather(grads);
  std::vector<Vector> o, dq, dk, dv, dg, dbeta;
  for (int64_t r = 0; r < ranks; ++r) {
    Prepared &p = all[r];
    StripeView view{ranks, p.stripes};
    Vector before(2 * size), after(2 * size);
    check(affineScan<double>(allM, allB, view, heads, dims.keyDim,
                             dims.valueDim, MakeSpan(before)));
    check(affineScanBwd<double>(allM, allC, view, heads, dims.keyDim,
                                dims.valueDim, MakeSpan(after)));
    Vector states = poison<double>(slots * size), dstates = states;
    Vector vnew = poison<double>(slots * heads * 64 * dims.valueDim), z = vnew;
    DeltaResults<double> mine(dims, tokens);
    check(cpGdnScan<double>(p.kn, p.v, p.beta, p.gamma, p.tinv, before, shape,
                            p.seq, view, dims, MakeSpan(states),
                            MakeSpan(vnew)));
    check(cpGdnScanBwd<double>(p.qn, p.kn, p.dO, p.beta, p.gamma, p.tinv, after,
                               shape, p.seq, view, dims, c.scale,
                               MakeSpan(dstates), MakeSpan(z)));
    check(gdnOut<double>(p.qn, p.kn, p.gamma, states, vnew, shape, p.seq, dims,
                         c.scale, MakeSpan(mine.o)));
    check(gdnLocalBwd<double>(p.qn, p.kn, p.qr, p.kr, p.v, p.dO, p.beta,
                              p.gamma, states, dstates, vnew, z, shape, p.seq,
                              dims, c.scale, MakeSpan(mine.dq),
                              MakeSpan(mine.dk), MakeSpan(mine.dv),
                              MakeSpan(mine.dg), MakeSpan(mine.dbeta)));
    o.push_back(mine.o);
    dq.push_back(mine.dq);
    dk.push_back(mine.dk);
    dv.push_back(mine.dv);
    dg.push_back(mine.dg);
    dbeta.push_back(mine.dbeta);
  }
  DeltaResults<double> whole(dims, c.tokens());
  whole.o = row.inOrder(o);
  whole.dq = row.inOrder(dq);
  whole.dk = row.inOrder(dk);
  whole.dv = row.inOrder(dv);
  whole.dg = row.inOrder(dg);
  whole.dbeta = row.inOrder(dbeta);
  return whole;
}

/// `typical` as in DeltaChunkTest: the size of an element of dg below which an
/// error counts as absolute.
void expectEqual(const DeltaResults<double> &actual,
                 const DeltaResults<double> &expected, double typical = 0) {
  for (size_t i = 0; i < expected.named().size(); ++i) {
    auto [name, truth] = expected.named()[i];
    const Vector &value = *actual.named()[i].second;
    EXPECT_TRUE(allFinite(value)) << name;
    double floor = name == "dg" ? typical : 0;
    EXPECT_LT(relativeError(value, *truth, floor * std::sqrt(truth->size())),
              1e-12)
        << name;
  }
}

/// Whether row `t` of [tokens, ..] x and y have the same bits.
bool sameRow(const Vector &x, const Vector &y, int64_t tokens, int64_t t) {
  int64_t size = x.size() / tokens;
  return std::equal(x.begin() + t * size, x.begin() + (t + 1) * size,
                    y.begin() + t * size);
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

TEST(StripeTableTest, SaysWhereEveryTokenIs) {
  for (const StripedRow &row : stripedRows()) {
    SCOPED_TRACE(row.name());
    SeqTable whole = row.whole();
    std::vector<int32_t> seq = row.wholeSeq();
    std::vector<int> seen(row.tokens, 0);
    int64_t real = 0;
    for (int64_t r = 0; r < row.ranks; ++r) {
      auto localSeq = row.seq(r), table = row.stripes(r);
      Checks checks("row");
      checkStripes(checks, {row.ranks, table}, row.local(), localSeq);
      check(checks.status());
      Stripes stripes({row.ranks, table});
      EXPECT_EQ(stripes.index(0), r);
      EXPECT_EQ(stripes.index(1), 2 * row.ranks - 1 - r);
      for (int64_t t = 0; t < row.local().tokens; ++t) {
        int64_t g = stripes.global(t), j = t / row.rows();
        ++seen[g];
        EXPECT_EQ(stripes.gatheredRow(g), r * row.local().tokens + t);
        int64_t begin = seq[whole.docStart() + g];
        int64_t segment = localSeq[row.local().docStart() + t];
        EXPECT_EQ(stripes.position(t, segment), g - begin);
        // A segment is what the stripe has of the document.
        EXPECT_EQ(segment, std::max(begin - g + t, j * row.rows()));
        EXPECT_EQ(localSeq[row.local().docEnd() + t],
                  std::min<int64_t>(seq[whole.docEnd() + g] - g + t,
                                    (j + 1) * row.rows()));
        bool isReal = t < localSeq[SeqTable::kRealTokens];
        EXPECT_EQ(isReal, g < seq[SeqTable::kRealTokens]);
        real += isReal;
      }
      for (int64_t i = 0; i < stripes.count(); ++i) {
        int64_t starts = 0;
        for (int64_t g = i * row.rows(); g < (i + 1) * row.rows(); ++g)
          starts += seq[whole.docStart() + g] == g;
        EXPECT_EQ(table[row.shape().starts() + i], starts);
        EXPECT_EQ(stripes.passes(i), starts == 0);
      }
    }
    EXPECT_EQ(real, seq[SeqTable::kRealTokens]);
    EXPECT_EQ(seen, std::vector<int>(row.tokens, 1));
  }
}

TEST(StripeTableTest, RefusesWhatIsNoRow) {
  StripeTable shape{8, 2};
  SeqTable local{8, 3};
  std::vector<int32_t> seq(local.words()), table(shape.words());
  auto fill = [&](const StripeTable &shape, int64_t rank,
                  std::vector<int64_t> lengths, const SeqTable &local) {
    return fillStripeTables(shape, rank, lengths.data(), lengths.size(), local,
                            seq.data(), table.data());
  };
  EXPECT_TRUE(fill(shape, 1, {16}, local));
  EXPECT_FALSE(fill(shape, 2, {16}, local)) << "rank";
  EXPECT_FALSE(fill(shape, -1, {16}, local)) << "rank";
  EXPECT_FALSE(fill(shape, 0, {17}, local)) << "longer than the row";
  EXPECT_FALSE(fill(shape, 0, {3, 0, 4}, local)) << "empty document";
  EXPECT_FALSE(fill(shape, 0, {1, 1, 1, 13}, local)) << "segments";
  EXPECT_FALSE(fill({7, 2}, 0, {14}, {7, 3})) << "odd";
  EXPECT_FALSE(fill({8, 2}, 0, {16}, {4, 3})) << "another rank's tokens";
}

TEST(StripeTableTest, ChecksRefuseOtherTables) {
  StripedRow row{{10, 60, 20}, 96, 2};
  auto seq = row.seq(0), table = row.stripes(0);
  auto message = [&](const SeqTable &shape) {
    Checks checks("op");
    checkStripes(checks, {row.ranks, table}, shape, seq);
    return std::string(checks.status().message());
  };
  EXPECT_EQ(message(row.local()), "");
  auto change = [&](int64_t word, int32_t value, const std::string &expected) {
    int32_t kept = table[word];
    table[word] = value;
    EXPECT_EQ(message(row.local()), expected);
    table[word] = kept;
  };
  change(StripeTable::kRank, 2, "op: stripes word 0 = 2 is outside 0 to 1");
  change(StripeTable::kIndex + 1, 2,
         "op: stripes word 3 = 2 is outside 3 to 3");
  change(StripeTable::kRows, 12,
         "op: stripes word " + std::to_string(row.shape().offset() + 1) +
             " = 14 is outside 1 to 12");
  change(row.shape().slot() + 1, 1, "op: stripes word 9 = 1 is outside 2 to 2");
  change(row.shape().offset() + 1, 25,
         "op: stripes word 13 = 25 is outside 1 to 24");
  change(row.shape().starts() + 1, 1,
         "op: stripes word 14 = 38 is outside 1 to 23");
  change(row.shape().starts(), 3,
         "op: last segment of local stripe 0 = 1 is outside 2 to 2");
  seq = row.seq(1);
  EXPECT_EQ(message(row.local()),
            "op: seq does not cut its documents at the ends of local stripe 0");
}

//===----------------------------------------------------------------------===//
// Delta rule
//===----------------------------------------------------------------------===//

struct Decay {
  const char *name;
  std::function<double(Random &)> g;
  double typical;
};

void PrintTo(const Decay &decay, std::ostream *out) { *out << decay.name; }

class StripedDelta : public testing::TestWithParam<Decay> {};

TEST_P(StripedDelta, EqualsTheRowAsAWhole) {
  for (const StripedRow &row : stripedRows()) {
    SCOPED_TRACE(row.name());
    DeltaCase c = deltaCase(row, {2, 4, 8, 6});
    Random random(3);
    for (double &g : c.g)
      g = GetParam().g(random);
    auto expected = c.byToken<double>();
    expectEqual(onRanks(c, row), expected, GetParam().typical);
    expectEqual(onRanksByChunk(c, row), expected, GetParam().typical);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Decay, StripedDelta,
    testing::Values(
        Decay{"none", [](Random &) { return 0.0; }, 0},
        Decay{"slow", [](Random &r) { return -0.002 * r.uniform(); }, 0},
        Decay{"usual", [](Random &r) { return -0.3 * r.uniform(); }, 0},
        Decay{"strong", [](Random &r) { return -50 * r.uniform(); }, 1e-3},
        Decay{"rare", [](Random &r) { return r.uniform() < 0.1 ? -50.0 : 0.0; },
              0}),
    [](const auto &info) { return std::string(info.param.name); });

TEST(StripedDeltaTest, EveryGroupingOfHeads) {
  StripedRow row{{10, 60, 20}, 96, 2};
  for (int64_t group : {1, 3}) {
    DeltaCase c = deltaCase(row, {2, 2 * group, 6, 10});
    expectEqual(onRanks(c, row), c.byToken<double>());
  }
}

/// Changes the tokens of document `doc` in every operand of a case.
void change(DeltaCase &c, const StripedRow &row, size_t doc,
            const std::function<double(double)> &to) {
  int64_t first = 0;
  for (size_t d = 0; d < doc; ++d)
    first += row.lengths[d];
  for (Vector *x : {&c.q, &c.k, &c.v, &c.g, &c.beta, &c.dO}) {
    int64_t size = x->size() / row.tokens;
    for (int64_t i = first * size; i < (first + row.lengths[doc]) * size; ++i)
      (*x)[i] = to((*x)[i]);
  }
}

// Decay is slow, so that a state that crosses would show.
TEST(StripedDeltaTest, OneDocumentMovesNoOther) {
  for (const StripedRow &row : stripedRows())
    for (size_t doc = 0; doc < row.lengths.size(); ++doc) {
      SCOPED_TRACE(row.name() + ", document " + std::to_string(doc));
      DeltaCase c = deltaCase(row, {1, 2, 6, 4});
      for (double &g : c.g)
        g *= 0.01;
      int64_t first = 0;
      for (size_t d = 0; d < doc; ++d)
        first += row.lengths[d];
      using Run =
          DeltaResults<double> (*)(const DeltaCase &, const StripedRow &);
      for (auto [nan, run] : std::vector<std::pair<bool, Run>>{
               {false, onRanks}, {true, onRanks}, {true, onRanksByChunk}}) {
        auto before = run(c, row);
        DeltaCase changed = c;
        change(changed, row, doc,
               [&](double x) { return nan ? quietNan<double>() : 0.5 * x; });
        auto after = run(changed, row);
        for (size_t i = 0; i < before.named().size(); ++i) {
          const Vector &x = *before.named()[i].second;
          const Vector &y = *after.named()[i].second;
          int64_t moved = 0;
          for (int64_t t = 0; t < row.tokens; ++t) {
            bool inside = t >= first && t < first + row.lengths[doc];
            bool same = sameRow(x, y, row.tokens, t);
            EXPECT_TRUE(inside || same) << before.named()[i].first << " " << t;
            moved += inside && !same;
          }
          // The decay of a single token acts on nothing.
          EXPECT_EQ(moved > 0, nan || before.named()[i].first != "dg" ||
                                   row.lengths[doc] > 1)
              << before.named()[i].first;
        }
      }
    }
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

struct ConvResults {
  Vector y, dx, dw;
};

ConvResults convOnRanks(const StripedRow &row, const Vector &x, const Vector &w,
                        const Vector &dy, int64_t channels, int64_t taps) {
  SeqTable shape = row.local();
  int64_t halo = 2 * (taps - 1) * channels, size = shape.tokens * channels;
  std::vector<Vector> tails(row.ranks, poison<double>(halo)), halos = tails;
  std::vector<Vector> y(row.ranks, poison<double>(size)), dx = y, all = y;
  ConvResults result{{}, {}, Vector(w.size(), 0)};
  for (int64_t r = 0; r < row.ranks; ++r)
    check(stripeTails<double>(row.scatter(x, r), shape.tokens, channels, taps,
                              MakeSpan(tails[r])));
  Vector allTails = row.gather(tails);
  for (int64_t r = 0; r < row.ranks; ++r) {
    auto seq = row.seq(r), stripes = row.stripes(r);
    Vector dw = poison<double>(w.size());
    check(cpCausalConv<double>(row.scatter(x, r), allTails, w, shape, seq,
                               {row.ranks, stripes}, channels, taps,
                               MakeSpan(y[r])));
    check(cpCausalConvBwd<double>(row.scatter(dy, r), row.scatter(x, r),
                                  allTails, w, shape, seq, {row.ranks, stripes},
                                  channels, taps, MakeSpan(dx[r]),
                                  MakeSpan(halos[r]), MakeSpan(dw)));
    for (size_t i = 0; i < dw.size(); ++i)
      result.dw[i] += dw[i];
  }
  Vector allHalos = row.gather(halos);
  for (int64_t r = 0; r < row.ranks; ++r)
    check(addToTails<double>(dx[r], allHalos, {row.ranks, row.stripes(r)},
                             channels, taps, MakeSpan(all[r])));
  result.y = row.inOrder(y);
  result.dx = row.inOrder(all);
  return result;
}

TEST(StripedConvTest, EqualsTheRowAsAWhole) {
  int64_t channels = 3;
  for (const StripedRow &row : stripedRows())
    for (int64_t taps : {1, 2, 4, 10}) {
      SCOPED_TRACE(row.name() + ", taps " + std::to_string(taps));
      Random random(taps);
      Vector x = random.normals(row.tokens * channels);
      Vector dy = random.normals(x.size()), w = random.normals(channels * taps);
      Vector y(x.size()), dx(x.size()), dw(w.size());
      auto seq = row.wholeSeq();
      check(causalConv<double>(x, w, row.whole(), seq, channels, taps,
                               MakeSpan(y)));
      check(causalConvBwd<double>(dy, x, w, row.whole(), seq, channels, taps,
                                  MakeSpan(dx), MakeSpan(dw)));
      ConvResults r = convOnRanks(row, x, w, dy, channels, taps);
      EXPECT_EQ(r.y, y);
      EXPECT_LT(relativeError(r.dx, dx), 1e-14);
      EXPECT_LT(relativeError(r.dw, dw), 1e-14);
    }
}

TEST(StripedConvTest, OneDocumentMovesNoOther) {
  int64_t channels = 2, taps = 4;
  for (const StripedRow &row : stripedRows()) {
    Random random(1);
    Vector x = random.normals(row.tokens * channels);
    Vector dy = random.normals(x.size()), w = random.normals(channels * taps);
    ConvResults before = convOnRanks(row, x, w, dy, channels, taps);
    int64_t first = 0;
    for (int64_t length : row.lengths) {
      Vector changed = x, dChanged = dy;
      for (int64_t i = first * channels; i < (first + length) * channels; ++i)
        changed[i] = dChanged[i] = quietNan<double>();
      ConvResults after =
          convOnRanks(row, changed, w, dChanged, channels, taps);
      for (int64_t t = 0; t < row.tokens; ++t) {
        bool inside = t >= first && t < first + length;
        EXPECT_EQ(sameRow(before.y, after.y, row.tokens, t), !inside) << t;
        EXPECT_EQ(sameRow(before.dx, after.dx, row.tokens, t), !inside) << t;
      }
      first += length;
    }
  }
}

TEST(StripedConvTest, RefusesStripesShorterThanTheHalo) {
  Vector x(8), tails(16);
  absl::Status status = stripeTails<double>(x, 4, 2, 5, MakeSpan(tails));
  EXPECT_EQ(std::string(status.message()),
            "stripe_tails: taps = 5 is outside 1 to 3");
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

struct AttentionResults {
  Vector o, lse, dq, dk, dv;
};

AttentionResults attentionOnRanks(const StripedRow &row, const Vector &q,
                                  const Vector &k, const Vector &v,
                                  const Vector &dO, const AttentionDims &dims,
                                  double scale) {
  SeqTable shape = row.local();
  std::vector<Vector> ks, vs, o, lse, dq;
  AttentionResults result;
  Vector dk(k.size(), 0), dv(v.size(), 0);
  for (int64_t r = 0; r < row.ranks; ++r) {
    ks.push_back(row.scatter(k, r));
    vs.push_back(row.scatter(v, r));
  }
  Vector allK = row.gather(ks), allV = row.gather(vs);
  for (int64_t r = 0; r < row.ranks; ++r) {
    auto seq = row.seq(r), stripes = row.stripes(r);
    Vector mine = row.scatter(q, r);
    o.push_back(poison<double>(mine.size()));
    lse.push_back(poison<double>(shape.tokens * dims.queryHeads));
    dq.push_back(o.back());
    Vector dkPart = poison<double>(k.size()), dvPart = dkPart;
    check(cpAttention<double>(mine, allK, allV, shape, seq,
                              {row.ranks, stripes}, dims, scale, MakeSpan(o[r]),
                              MakeSpan(lse[r])));
    check(cpAttentionBwd<double>(row.scatter(dO, r), mine, allK, allV, o[r],
                                 lse[r], shape, seq, {row.ranks, stripes}, dims,
                                 scale, MakeSpan(dq[r]), MakeSpan(dkPart),
                                 MakeSpan(dvPart)));
    for (size_t i = 0; i < dk.size(); ++i) {
      dk[i] += dkPart[i];
      dv[i] += dvPart[i];
    }
  }
  result.o = row.inOrder(o);
  result.lse = row.inOrder(lse);
  result.dq = row.inOrder(dq);
  result.dk = row.inOrder<double>({dk});
  result.dv = row.inOrder<double>({dv});
  return result;
}

TEST(StripedAttentionTest, EqualsTheRowAsAWhole) {
  AttentionDims dims{4, 2, 6};
  for (const StripedRow &row : stripedRows()) {
    SCOPED_TRACE(row.name());
    Random random(5);
    Vector q = random.normals(row.tokens * 4 * 6),
           dO = random.normals(q.size());
    Vector k = random.normals(row.tokens * 2 * 6), v = random.normals(k.size());
    Vector o(q.size()), lse(row.tokens * 4), dq(q.size()), dk(k.size()),
        dv(v.size());
    auto seq = row.wholeSeq();
    check(attention<double>(q, k, v, row.whole(), seq, dims, 0.4, MakeSpan(o),
                            MakeSpan(lse)));
    check(attentionBwd<double>(dO, q, k, v, o, lse, row.whole(), seq, dims, 0.4,
                               MakeSpan(dq), MakeSpan(dk), MakeSpan(dv)));
    AttentionResults r = attentionOnRanks(row, q, k, v, dO, dims, 0.4);
    EXPECT_LT(relativeError(r.o, o), 1e-14);
    EXPECT_LT(relativeError(r.lse, lse, 1), 1e-14);
    EXPECT_LT(relativeError(r.dq, dq), 1e-13);
    EXPECT_LT(relativeError(r.dk, dk), 1e-13);
    EXPECT_LT(relativeError(r.dv, dv), 1e-13);
  }
}

TEST(StripedAttentionTest, OneDocumentMovesNoOther) {
  AttentionDims dims{2, 1, 4};
  for (const StripedRow &row : stripedRows()) {
    SCOPED_TRACE(row.name());
    Random random(6);
    Vector q = random.normals(row.tokens * 8), dO = random.normals(q.size());
    Vector k = random.normals(row.tokens * 4), v = random.normals(k.size());
    AttentionResults before = attentionOnRanks(row, q, k, v, dO, dims, 0.5);
    int64_t first = 0;
    for (int64_t length : row.lengths) {
      Vector q2 = q, k2 = k, v2 = v, dO2 = dO;
      for (Vector *x : {&q2, &k2, &v2, &dO2}) {
        int64_t size = x->size() / row.tokens;
        std::fill(x->begin() + first * size,
                  x->begin() + (first + length) * size, quietNan<double>());
      }
      AttentionResults after =
          attentionOnRanks(row, q2, k2, v2, dO2, dims, 0.5);
      for (int64_t t = 0; t < row.tokens; ++t) {
        bool outside = t < first || t >= first + length;
        EXPECT_EQ(sameRow(before.o, after.o, row.tokens, t), outside) << t;
        EXPECT_EQ(sameRow(before.dq, after.dq, row.tokens, t), outside) << t;
        EXPECT_EQ(sameRow(before.dk, after.dk, row.tokens, t), outside) << t;
        EXPECT_EQ(sameRow(before.dv, after.dv, row.tokens, t), outside) << t;
      }
      first += length;
    }
  }
}

TEST(StripedRopeTest, PositionsGoOnAcrossRanks) {
  for (const StripedRow &row : stripedRows()) {
    SCOPED_TRACE(row.name());
    Vector whole(row.tokens * 4);
    check(ropeTable<double>(row.whole(), row.wholeSeq(), 1e4, 4,
                            MakeSpan(whole)));
    std::vector<Vector> parts;
    for (int64_t r = 0; r < row.ranks; ++r) {
      auto stripes = row.stripes(r);
      parts.push_back(poison<double>(row.local().tokens * 4));
      check(cpRopeTable<double>(row.local(), row.seq(r), {row.ranks, stripes},
                                1e4, 4, MakeSpan(parts[r])));
    }
    EXPECT_EQ(row.inOrder(parts), whole);
  }
}

} // namespace
} // namespace qwen35::test
