#include "dialect/Qwen35/Reference/Stripes.h"

#include "dialect/Qwen35/Reference/Gemm.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

static constexpr int64_t kLocal = StripeTable::kLocal;

void checkStripes(Checks &checks, const StripeView &view) {
  if (!checks.positive("ranks", view.ranks).ok())
    return;
  StripeTable shape{0, view.ranks};
  if (!checks.shape("stripes", view.words.size(), {shape.words()}).ok())
    return;
  auto expect = [&](int64_t word, int64_t lowest, int64_t highest) {
    checks.range(absl::StrCat("stripes word ", word), view.words[word], lowest,
                 highest);
  };
  expect(StripeTable::kRank, 0, view.ranks - 1);
  expect(StripeTable::kRows, 1, INT32_MAX / shape.stripes());
  if (!checks.ok())
    return;
  int64_t rank = view.words[StripeTable::kRank];
  int64_t rows = view.words[StripeTable::kRows];
  for (int64_t j = 0; j < kLocal; ++j)
    expect(StripeTable::kIndex + j, shape.index(rank, j), shape.index(rank, j));
  // Least and most tokens that the next stripe's document can have before it,
  // if it is the one that ends this stripe.
  int64_t least = 0, most = 0;
  for (int64_t i = 0; checks.ok() && i < shape.stripes(); ++i) {
    expect(shape.slot() + i, shape.slotOf(i), shape.slotOf(i));
    int64_t offset = view.words[shape.offset() + i];
    int64_t starts = view.words[shape.starts() + i];
    bool begins = offset == 0;
    if (!begins || i == 0)
      expect(shape.offset() + i, least, most);
    expect(shape.starts() + i, begins ? 1 : 0, begins ? rows : rows - 1);
    least = starts == 0 ? offset + rows : 1;
    most = starts == 0 ? offset + rows : begins ? rows : rows - 1;
  }
}

void checkStripes(Checks &checks, const StripeView &view, const SeqTable &shape,
                  absl::Span<const int32_t> seq) {
  checks.documents(shape, seq);
  checkStripes(checks, view);
  if (!checks.ok())
    return;
  Documents segments(shape, seq);
  Stripes stripes(view);
  StripeTable layout{shape.tokens, view.ranks};
  checks.require(shape.tokens == kLocal * stripes.rows(),
                 absl::StrCat("seq has ", shape.tokens,
                              " tokens, expected two stripes of ",
                              stripes.rows()));
  int64_t next = 0;
  for (int64_t j = 0; checks.ok() && j < kLocal; ++j) {
    int64_t stripe = stripes.index(j);
    int64_t count =
        view.words[layout.starts() + stripe] + stripes.continues(stripe);
    checks.range(absl::StrCat("first segment of local stripe ", j),
                 stripes.firstSegment(j), next, next);
    next += count;
    checks.range(absl::StrCat("last segment of local stripe ", j),
                 stripes.lastSegment(j), next - 1, next - 1);
    checks.require(next <= segments.count() &&
                       segments.begin(stripes.firstSegment(j)) ==
                           j * stripes.rows() &&
                       segments.end(next - 1) == (j + 1) * stripes.rows(),
                   absl::StrCat("seq does not cut its documents at the ends of "
                                "local stripe ",
                                j));
  }
}

//===----------------------------------------------------------------------===//
// Delta rule
//===----------------------------------------------------------------------===//

namespace {
/// What the delta rule reads of one value head, after the L2 norm.
template <typename Real> struct HeadRows {
  const Real *k, *g, *beta;
  int64_t keyDim, keyStride, gateStride;

  const Real *key(int64_t t) const { return k + t * keyStride; }

  /// S <- e^g (I - beta k k^T) S + beta k v^T; v may be null, for 0.
  void step(int64_t t, const Real *v, Matrix<Real> state,
            std::vector<Real> &row) const {
    Real decay = std::exp(g[t * gateStride]), strength = beta[t * gateStride];
    for (int64_t j = 0; j < state.columns; ++j)
      row[j] = v ? v[j] : Real(0);
    for (int64_t i = 0; i < keyDim; ++i)
      for (int64_t j = 0; j < state.columns; ++j) {
        state.at(i, j) *= decay;
        row[j] -= key(t)[i] * state.at(i, j);
      }
    for (int64_t i = 0; i < keyDim; ++i)
      for (int64_t j = 0; j < state.columns; ++j)
        state.at(i, j) += key(t)[i] * strength * row[j];
  }

  /// D <- (I - beta k k^T) e^g D: the transpose of step.
  void stepBack(int64_t t, Matrix<Real> d, std::vector<Real> &row) const {
    Real decay = std::exp(g[t * gateStride]), strength = beta[t * gateStride];
    std::fill(row.begin(), row.end(), Real(0));
    for (int64_t i = 0; i < keyDim; ++i)
      for (int64_t j = 0; j < d.columns; ++j)
        row[j] += key(t)[i] * d.at(i, j);
    for (int64_t i = 0; i < keyDim; ++i)
      for (int64_t j = 0; j < d.columns; ++j)
        d.at(i, j) = decay * (d.at(i, j) - key(t)[i] * strength * row[j]);
  }
};

/// Rows divided by their norms.
template <typename Real>
std::vector<Real> unitRows(absl::Span<const Real> x, int64_t columns,
                           double eps) {
  std::vector<Real> y(x.size());
  for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += columns)
    l2Normalize(&x[at], columns, eps, &y[at]);
  return y;
}

template <typename Real>
HeadRows<Real> headRows(const std::vector<Real> &unitKeys,
                        absl::Span<const Real> g, absl::Span<const Real> beta,
                        const DeltaDims &dims, int64_t h) {
  int64_t key = h / (dims.valueHeads / dims.keyHeads) * dims.keyDim;
  return {
      unitKeys.data() + key,       g.data() + h,   beta.data() + h, dims.keyDim,
      dims.keyHeads * dims.keyDim, dims.valueHeads};
}

/// Entries [2, size] of the stripes as [maxDocs, size] of segments.
template <typename Real>
std::vector<Real> bySegment(const SeqTable &shape, const Stripes &stripes,
                            absl::Span<const Real> entries, bool first) {
  int64_t size = entries.size() / kLocal;
  std::vector<Real> result(shape.maxDocs * size, Real(0));
  for (int64_t j = 0; j < kLocal; ++j) {
    // Nothing enters a segment that begins its document.
    if (first && !stripes.continues(stripes.index(j)))
      continue;
    int64_t segment = first ? stripes.firstSegment(j) : stripes.lastSegment(j);
    std::copy_n(entries.begin() + j * size, size,
                result.begin() + segment * size);
  }
  return result;
}
} // namespace

template <typename Real>
absl::Status gdnAffine(absl::Span<const Real> k, absl::Span<const Real> v,
                       absl::Span<const Real> g, absl::Span<const Real> beta,
                       const SeqTable &shape, absl::Span<const int32_t> seq,
                       const StripeView &view, const DeltaDims &dims,
                       double eps, absl::Span<Real> m, absl::Span<Real> b) {
  int64_t tokens = shape.tokens, heads = dims.valueHeads;
  int64_t keyDim = dims.keyDim, valueDim = dims.valueDim;
  Checks checks("gdn_affine");
  checkStripes(checks, view, shape, seq);
  checks.multiple("value heads", heads, "key heads", dims.keyHeads)
      .positive("eps", eps)
      .shape("k", k.size(), {tokens, dims.keyHeads, keyDim})
      .shape("v", v.size(), {tokens, heads, valueDim})
      .shape("g", g.size(), {tokens, heads})
      .shape("beta", beta.size(), {tokens, heads})
      .notPositive("g", g)
      .shape("m", m.size(), {kLocal, heads, keyDim, keyDim})
      .shape("b", b.size(), {kLocal, heads, keyDim, valueDim});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  std::vector<Real> keys = unitRows(k, keyDim, eps);
  std::vector<Real> row(std::max(keyDim, valueDim));
  std::fill(m.begin(), m.end(), Real(0));
  std::fill(b.begin(), b.end(), Real(0));
  for (int64_t j = 0; j < kLocal; ++j)
    for (int64_t h = 0; h < heads; ++h) {
      HeadRows<Real> head = headRows(keys, g, beta, dims, h);
      int64_t slot = j * heads + h;
      auto map = matrix(m.data() + slot * keyDim * keyDim, keyDim, keyDim);
      auto end = matrix(b.data() + slot * keyDim * valueDim, keyDim, valueDim);
      int64_t last = stripes.lastSegment(j);
      bool passes = stripes.passes(stripes.index(j));
      for (int64_t i = 0; passes && i < keyDim; ++i)
        map.at(i, i) = 1;
      for (int64_t t = segments.begin(last); t < segments.end(last); ++t) {
        head.step(t, v.data() + (t * heads + h) * valueDim, end, row);
        if (passes) // one segment is the whole stripe
          head.step(t, nullptr, map, row);
      }
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status affineScan(absl::Span<const Real> m, absl::Span<const Real> b,
                        const StripeView &view, int64_t heads, int64_t keyDim,
                        int64_t valueDim, absl::Span<Real> states) {
  int64_t count = kLocal * view.ranks;
  Checks checks("affine_scan");
  checkStripes(checks, view);
  checks.shape("m", m.size(), {count, heads, keyDim, keyDim})
      .shape("b", b.size(), {count, heads, keyDim, valueDim})
      .shape("states", states.size(), {kLocal, heads, keyDim, valueDim});
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  int64_t size = keyDim * valueDim;
  std::vector<Real> state(size), next(size);
  for (int64_t h = 0; h < heads; ++h) {
    std::fill(state.begin(), state.end(), Real(0));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < kLocal; ++j)
        if (stripes.index(j) == i) {
          Real *to = states.data() + (j * heads + h) * size;
          if (stripes.continues(i))
            std::copy(state.begin(), state.end(), to);
          else
            std::fill_n(to, size, Real(0));
        }
      int64_t slot = stripes.slot(i) * heads + h;
      std::copy_n(b.data() + slot * size, size, next.begin());
      if (stripes.passes(i))
        multiply<Real>(
            matrix(next.data(), keyDim, valueDim),
            matrix(m.data() + slot * keyDim * keyDim, keyDim, keyDim),
            matrix<const Real>(state.data(), keyDim, valueDim),
            /*accumulate=*/true);
      std::swap(state, next);
    }
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status affineScanBwd(absl::Span<const Real> m, absl::Span<const Real> c,
                           const StripeView &view, int64_t heads,
                           int64_t keyDim, int64_t valueDim,
                           absl::Span<Real> gradients) {
  int64_t count = kLocal * view.ranks;
  Checks checks("affine_scan_bwd");
  checkStripes(checks, view);
  checks.shape("m", m.size(), {count, heads, keyDim, keyDim})
      .shape("c", c.size(), {count, heads, keyDim, valueDim})
      .shape("gradients", gradients.size(), {kLocal, heads, keyDim, valueDim});
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  int64_t size = keyDim * valueDim;
  std::vector<Real> gradient(size), before(size);
  for (int64_t h = 0; h < heads; ++h) {
    std::fill(gradient.begin(), gradient.end(), Real(0));
    for (int64_t i = count - 1; i >= 0; --i) {
      for (int64_t j = 0; j < kLocal; ++j)
        if (stripes.index(j) == i)
          std::copy(gradient.begin(), gradient.end(),
                    gradients.data() + (j * heads + h) * size);
      int64_t slot = stripes.slot(i) * heads + h;
      if (stripes.continues(i))
        std::copy_n(c.data() + slot * size, size, before.begin());
      else
        std::fill(before.begin(), before.end(), Real(0));
      if (stripes.passes(i))
        multiply<Real>(matrix(before.data(), keyDim, valueDim),
                       matrix(m.data() + slot * keyDim * keyDim, keyDim, keyDim)
                           .transposed(),
                       matrix<const Real>(gradient.data(), keyDim, valueDim),
                       /*accumulate=*/true);
      std::swap(gradient, before);
    }
  }
  return absl::OkStatus();
}

/// The tables, and [2, heads, keyDim, valueDim] states; the rest is checked by
/// the op on whole documents.
template <typename Real>
static void checkStates(Checks &checks, const SeqTable &shape,
                        absl::Span<const int32_t> seq, const StripeView &view,
                        const DeltaDims &dims, absl::string_view name,
                        absl::Span<const Real> states) {
  checkStripes(checks, view, shape, seq);
  checks.shape(name, states.size(),
               {kLocal, dims.valueHeads, dims.keyDim, dims.valueDim});
}

template <typename Real>
absl::Status
cpGatedDeltaRule(absl::Span<const Real> q, absl::Span<const Real> k,
                 absl::Span<const Real> v, absl::Span<const Real> g,
                 absl::Span<const Real> beta, absl::Span<const Real> states,
                 const SeqTable &shape, absl::Span<const int32_t> seq,
                 const StripeView &view, const DeltaDims &dims, double scale,
                 double eps, absl::Span<Real> o) {
  Checks checks("cp_gated_delta_rule");
  checkStates(checks, shape, seq, view, dims, "states", states);
  if (!checks.ok())
    return checks.status();
  return gatedDeltaRule<Real>(
      q, k, v, g, beta, shape, seq, dims, scale, eps, o,
      bySegment(shape, Stripes(view), states, /*first=*/true));
}

template <typename Real>
absl::Status cpGatedDeltaRuleBwd(
    absl::Span<const Real> dO, absl::Span<const Real> q,
    absl::Span<const Real> k, absl::Span<const Real> v,
    absl::Span<const Real> g, absl::Span<const Real> beta,
    absl::Span<const Real> states, absl::Span<const Real> gradients,
    const SeqTable &shape, absl::Span<const int32_t> seq,
    const StripeView &view, const DeltaDims &dims, double scale, double eps,
    absl::Span<Real> dq, absl::Span<Real> dk, absl::Span<Real> dv,
    absl::Span<Real> dg, absl::Span<Real> dbeta) {
  Checks checks("cp_gated_delta_rule_bwd");
  checkStates(checks, shape, seq, view, dims, "states", states);
  checkStates(checks, shape, seq, view, dims, "gradients", gradients);
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  return gatedDeltaRuleBwd<Real>(
      dO, q, k, v, g, beta, shape, seq, dims, scale, eps, dq, dk, dv, dg, dbeta,
      bySegment(shape, stripes, states, /*first=*/true),
      bySegment(shape, stripes, gradients, /*first=*/false));
}

template <typename Real>
absl::Status gdnStateGrad(absl::Span<const Real> dO, absl::Span<const Real> q,
                          absl::Span<const Real> k, absl::Span<const Real> g,
                          absl::Span<const Real> beta, const SeqTable &shape,
                          absl::Span<const int32_t> seq, const StripeView &view,
                          const DeltaDims &dims, double scale, double eps,
                          absl::Span<Real> c) {
  int64_t tokens = shape.tokens, heads = dims.valueHeads;
  int64_t keyDim = dims.keyDim, valueDim = dims.valueDim;
  Checks checks("gdn_state_grad");
  checkStripes(checks, view, shape, seq);
  checks.multiple("value heads", heads, "key heads", dims.keyHeads)
      .positive("eps", eps)
      .shape("do", dO.size(), {tokens, heads, valueDim})
      .shape("q", q.size(), {tokens, dims.keyHeads, keyDim})
      .shape("k", k.size(), {tokens, dims.keyHeads, keyDim})
      .shape("g", g.size(), {tokens, heads})
      .shape("beta", beta.size(), {tokens, heads})
      .notPositive("g", g)
      .shape("c", c.size(), {kLocal, heads, keyDim, valueDim});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  std::vector<Real> keys = unitRows(k, keyDim, eps);
  std::vector<Real> queries = unitRows(q, keyDim, eps), row(valueDim);
  std::fill(c.begin(), c.end(), Real(0));
  for (int64_t j = 0; j < kLocal; ++j)
    for (int64_t h = 0; h < heads && stripes.continues(stripes.index(j)); ++h) {
      HeadRows<Real> head = headRows(keys, g, beta, dims, h);
      auto d = matrix(c.data() + (j * heads + h) * keyDim * valueDim, keyDim,
                      valueDim);
      int64_t keyHead = h / (heads / dims.keyHeads),
              first = stripes.firstSegment(j);
      for (int64_t t = segments.end(first) - 1; t >= segments.begin(first);
           --t) {
        const Real *query = &queries[(t * dims.keyHeads + keyHead) * keyDim];
        const Real *out = &dO[(t * heads + h) * valueDim];
        for (int64_t i = 0; i < keyDim; ++i)
          for (int64_t n = 0; n < valueDim; ++n)
            d.at(i, n) += Real(scale) * query[i] * out[n];
        head.stepBack(t, d, row);
      }
    }
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Delta rule in chunks
//===----------------------------------------------------------------------===//

template <typename Real>
absl::Status
cpGdnAffine(absl::Span<const Real> kn, absl::Span<const Real> v,
            absl::Span<const Real> beta, absl::Span<const Real> gamma,
            absl::Span<const Real> tinv, const SeqTable &shape,
            absl::Span<const int32_t> seq, const StripeView &view,
            const DeltaDims &dims, absl::Span<Real> m, absl::Span<Real> b) {
  int64_t heads = dims.valueHeads, keyDim = dims.keyDim;
  Checks checks("cp_gdn_affine");
  checkStripes(checks, view, shape, seq);
  checks.shape("m", m.size(), {kLocal, heads, keyDim, keyDim})
      .shape("b", b.size(), {kLocal, heads, keyDim, dims.valueDim});
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  // M are the states from the identity without values.
  DeltaDims square{dims.keyHeads, heads, keyDim, keyDim};
  std::vector<Real> none(shape.tokens * heads * keyDim, Real(0));
  for (bool map : {true, false}) {
    const DeltaDims &d = map ? square : dims;
    int64_t columns = d.valueDim, size = heads * keyDim * columns;
    std::vector<Real> begin(shape.maxDocs * size, Real(0)), end(begin.size());
    for (int64_t i = 0; map && i < static_cast<int64_t>(begin.size()); ++i)
      begin[i] = i / columns % keyDim == i % columns;
    std::vector<Real> states(shape.chunks() * size);
    std::vector<Real> vnew(shape.chunks() * heads * SeqTable::kChunk * columns);
    absl::Status status =
        gdnScan<Real>(kn, map ? absl::MakeConstSpan(none) : v, beta, gamma,
                      tinv, shape, seq, d, absl::MakeSpan(states),
                      absl::MakeSpan(vnew), begin, absl::MakeSpan(end));
    if (!status.ok())
      return status;
    for (int64_t j = 0; j < kLocal; ++j) {
      auto to = (map ? m : b).begin() + j * size;
      if (map && !stripes.passes(stripes.index(j)))
        std::fill_n(to, size, Real(0));
      else
        std::copy_n(end.begin() + stripes.lastSegment(j) * size, size, to);
    }
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status
cpGdnScan(absl::Span<const Real> kn, absl::Span<const Real> v,
          absl::Span<const Real> beta, absl::Span<const Real> gamma,
          absl::Span<const Real> tinv, absl::Span<const Real> before,
          const SeqTable &shape, absl::Span<const int32_t> seq,
          const StripeView &view, const DeltaDims &dims,
          absl::Span<Real> states, absl::Span<Real> vnew) {
  Checks checks("cp_gdn_scan");
  checkStates(checks, shape, seq, view, dims, "before", before);
  if (!checks.ok())
    return checks.status();
  return gdnScan<Real>(kn, v, beta, gamma, tinv, shape, seq, dims, states, vnew,
                       bySegment(shape, Stripes(view), before, /*first=*/true));
}

template <typename Real>
absl::Status
cpGdnScanBwd(absl::Span<const Real> qn, absl::Span<const Real> kn,
             absl::Span<const Real> dO, absl::Span<const Real> beta,
             absl::Span<const Real> gamma, absl::Span<const Real> tinv,
             absl::Span<const Real> after, const SeqTable &shape,
             absl::Span<const int32_t> seq, const StripeView &view,
             const DeltaDims &dims, double scale, absl::Span<Real> dstates,
             absl::Span<Real> z) {
  Checks checks("cp_gdn_scan_bwd");
  checkStates(checks, shape, seq, view, dims, "after", after);
  if (!checks.ok())
    return checks.status();
  return gdnScanBwd<Real>(
      qn, kn, dO, beta, gamma, tinv, shape, seq, dims, scale, dstates, z,
      bySegment(shape, Stripes(view), after, /*first=*/false));
}

template <typename Real>
absl::Status
cpGdnStateGrad(absl::Span<const Real> qn, absl::Span<const Real> kn,
               absl::Span<const Real> dO, absl::Span<const Real> beta,
               absl::Span<const Real> gamma, absl::Span<const Real> tinv,
               const SeqTable &shape, absl::Span<const int32_t> seq,
               const StripeView &view, const DeltaDims &dims, double scale,
               absl::Span<Real> c) {
  int64_t size = dims.valueHeads * dims.keyDim * dims.valueDim;
  Checks checks("cp_gdn_state_grad");
  checkStates<Real>(checks, shape, seq, view, dims, "c", c);
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  std::vector<Real> dstates(shape.chunks() * size);
  std::vector<Real> z(shape.chunks() * dims.valueHeads * SeqTable::kChunk *
                      dims.valueDim);
  std::vector<Real> begin(shape.maxDocs * size);
  absl::Status status = gdnScanBwd<Real>(
      qn, kn, dO, beta, gamma, tinv, shape, seq, dims, scale,
      absl::MakeSpan(dstates), absl::MakeSpan(z), {}, absl::MakeSpan(begin));
  if (!status.ok())
    return status;
  for (int64_t j = 0; j < kLocal; ++j)
    if (stripes.continues(stripes.index(j)))
      std::copy_n(begin.begin() + stripes.firstSegment(j) * size, size,
                  c.begin() + j * size);
    else
      std::fill_n(c.begin() + j * size, size, Real(0));
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

template <typename Real>
absl::Status stripeTails(absl::Span<const Real> x, int64_t tokens,
                         int64_t channels, int64_t taps,
                         absl::Span<Real> tails) {
  Checks checks("stripe_tails");
  checks.multiple("tokens", tokens, "stripes", kLocal)
      .range("taps", taps, 1, tokens / kLocal + 1)
      .shape("x", x.size(), {tokens, channels})
      .shape("tails", tails.size(), {kLocal, taps - 1, channels});
  if (!checks.ok())
    return checks.status();
  int64_t rows = tokens / kLocal, size = (taps - 1) * channels;
  for (int64_t j = 0; j < kLocal; ++j)
    std::copy_n(x.begin() + (j + 1) * rows * channels - size, size,
                tails.begin() + j * size);
  return absl::OkStatus();
}

namespace {
/// A stripe with its halo in front as a row of its own, so that the op on whole
/// documents can run on it: what the halo has of other documents is zero and in
/// a document by itself.
template <typename Real> struct HaloRow {
  SeqTable shape;
  std::vector<int32_t> seq;
  std::vector<Real> x;

  HaloRow(const Documents &segments, const Stripes &stripes, int64_t j,
          absl::Span<const Real> local, absl::Span<const Real> tails,
          int64_t channels, int64_t halo)
      : shape{stripes.rows() + halo, 0},
        x((stripes.rows() + halo) * channels, Real(0)) {
    int64_t stripe = stripes.index(j);
    int64_t known = std::min(halo, stripes.offset(stripe));
    std::vector<int64_t> lengths;
    if (known < halo)
      lengths.push_back(halo - known);
    for (int64_t s = stripes.firstSegment(j); s <= stripes.lastSegment(j); ++s)
      lengths.push_back(segments.end(s) - segments.begin(s));
    lengths[known < halo] += known;
    shape.maxDocs = lengths.size();
    seq.resize(shape.words());
    fillSeqTable(shape, lengths.data(), lengths.size(), seq.data());
    if (known > 0)
      std::copy_n(tails.begin() +
                      ((stripes.slot(stripe - 1) + 1) * halo - known) *
                          channels,
                  known * channels, x.begin() + (halo - known) * channels);
    std::copy_n(local.begin() + j * stripes.rows() * channels,
                stripes.rows() * channels, x.begin() + halo * channels);
  }
};
} // namespace

template <typename Real>
static void checkConv(Checks &checks, absl::Span<const Real> x,
                      absl::Span<const Real> tails, absl::Span<const Real> w,
                      const SeqTable &shape, absl::Span<const int32_t> seq,
                      const StripeView &view, int64_t channels, int64_t taps) {
  checkStripes(checks, view, shape, seq);
  checks.range("taps", taps, 1, shape.tokens / kLocal + 1)
      .shape("x", x.size(), {shape.tokens, channels})
      .shape("tails", tails.size(), {kLocal * view.ranks, taps - 1, channels})
      .shape("w", w.size(), {channels, 1, taps});
}

template <typename Real>
absl::Status cpCausalConv(absl::Span<const Real> x,
                          absl::Span<const Real> tails,
                          absl::Span<const Real> w, const SeqTable &shape,
                          absl::Span<const int32_t> seq, const StripeView &view,
                          int64_t channels, int64_t taps, absl::Span<Real> y) {
  Checks checks("cp_causal_conv");
  checkConv(checks, x, tails, w, shape, seq, view, channels, taps);
  checks.shape("y", y.size(), {shape.tokens, channels});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  int64_t halo = (taps - 1) * channels, size = stripes.rows() * channels;
  for (int64_t j = 0; j < kLocal; ++j) {
    HaloRow<Real> row(segments, stripes, j, x, tails, channels, taps - 1);
    std::vector<Real> out(row.x.size());
    absl::Status status = causalConv<Real>(row.x, w, row.shape, row.seq,
                                           channels, taps, absl::MakeSpan(out));
    if (!status.ok())
      return status;
    std::copy_n(out.begin() + halo, size, y.begin() + j * size);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status
cpCausalConvBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                absl::Span<const Real> tails, absl::Span<const Real> w,
                const SeqTable &shape, absl::Span<const int32_t> seq,
                const StripeView &view, int64_t channels, int64_t taps,
                absl::Span<Real> dx, absl::Span<Real> dhalo,
                absl::Span<Real> dw) {
  Checks checks("cp_causal_conv_bwd");
  checkConv(checks, x, tails, w, shape, seq, view, channels, taps);
  checks.shape("dy", dy.size(), {shape.tokens, channels})
      .shape("dx", dx.size(), {shape.tokens, channels})
      .shape("dhalo", dhalo.size(), {kLocal, taps - 1, channels})
      .shape("dw", dw.size(), {channels, 1, taps});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  int64_t halo = (taps - 1) * channels, size = stripes.rows() * channels;
  std::fill(dw.begin(), dw.end(), Real(0));
  for (int64_t j = 0; j < kLocal; ++j) {
    HaloRow<Real> row(segments, stripes, j, x, tails, channels, taps - 1);
    std::vector<Real> dOut(row.x.size(), Real(0)), dIn(row.x.size());
    std::vector<Real> dWeight(dw.size());
    std::copy_n(dy.begin() + j * size, size, dOut.begin() + halo);
    absl::Status status =
        causalConvBwd<Real>(dOut, row.x, w, row.shape, row.seq, channels, taps,
                            absl::MakeSpan(dIn), absl::MakeSpan(dWeight));
    if (!status.ok())
      return status;
    std::copy_n(dIn.begin(), halo, dhalo.begin() + j * halo);
    std::copy_n(dIn.begin() + halo, size, dx.begin() + j * size);
    for (size_t i = 0; i < dw.size(); ++i)
      dw[i] += dWeight[i];
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status addToTails(absl::Span<const Real> x, absl::Span<const Real> halo,
                        const StripeView &view, int64_t channels, int64_t taps,
                        absl::Span<Real> y) {
  Checks checks("add_to_tails");
  checkStripes(checks, view);
  if (!checks.ok())
    return checks.status();
  Stripes stripes(view);
  checks.range("taps", taps, 1, stripes.rows() + 1)
      .shape("x", x.size(), {kLocal * stripes.rows(), channels})
      .shape("halo", halo.size(), {stripes.count(), taps - 1, channels})
      .shape("y", y.size(), {kLocal * stripes.rows(), channels});
  if (!checks.ok())
    return checks.status();
  std::copy(x.begin(), x.end(), y.begin());
  int64_t size = (taps - 1) * channels;
  for (int64_t j = 0; j < kLocal; ++j) {
    int64_t next = stripes.index(j) + 1;
    if (next == stripes.count() || !stripes.continues(next))
      continue;
    Real *to = y.data() + (j + 1) * stripes.rows() * channels - size;
    const Real *from = halo.data() + stripes.slot(next) * size;
    // Rows of documents that end inside the last rows have no readers there.
    int64_t known = std::min(taps - 1, stripes.offset(next));
    for (int64_t i = (taps - 1 - known) * channels; i < size; ++i)
      to[i] += from[i];
  }
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// Rows [rank order] of [tokens, heads, dim] put in sequence order, and back.
template <typename To, typename From>
void reorder(const Stripes &stripes, absl::Span<From> from, absl::Span<To> to,
             bool toSequence) {
  int64_t size = from.size() / stripes.count();
  for (int64_t i = 0; i < stripes.count(); ++i) {
    int64_t a = stripes.slot(i) * size, b = i * size;
    std::copy_n(from.begin() + (toSequence ? a : b), size,
                to.begin() + (toSequence ? b : a));
  }
}

std::vector<AttentionSegment> segmentsOf(const Documents &segments,
                                         const Stripes &stripes) {
  std::vector<AttentionSegment> result;
  for (int64_t s = 0; s < segments.count(); ++s) {
    int64_t begin = segments.begin(s), global = stripes.global(begin);
    result.push_back({begin, segments.end(s),
                      global - stripes.position(begin, begin), global});
  }
  return result;
}
} // namespace

template <typename Real>
absl::Status cpRopeTable(const SeqTable &shape, absl::Span<const int32_t> seq,
                         const StripeView &view, double theta,
                         int64_t rotaryDim, absl::Span<Real> table) {
  Checks checks("cp_rope_table");
  checkStripes(checks, view, shape, seq);
  checks.positive("theta", theta)
      .multiple("rotary_dim", rotaryDim, "a pair", 2)
      .shape("table", table.size(), {shape.tokens, rotaryDim / 2, 2});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  std::vector<int64_t> positions;
  for (int64_t s = 0; s < segments.count(); ++s)
    for (int64_t t = segments.begin(s); t < segments.end(s); ++t)
      positions.push_back(stripes.position(t, segments.begin(s)));
  ropeRows<Real>(positions, theta, rotaryDim, table);
  return absl::OkStatus();
}

template <typename Real>
static void checkAttention(Checks &checks, absl::Span<const Real> q,
                           absl::Span<const Real> k, absl::Span<const Real> v,
                           const SeqTable &shape, absl::Span<const int32_t> seq,
                           const StripeView &view, const AttentionDims &dims,
                           double scale, absl::Span<const Real> o,
                           absl::Span<const Real> lse) {
  auto [queryHeads, kvHeads, headDim] = dims;
  checkStripes(checks, view, shape, seq);
  checks.positive("scale", scale)
      .multiple("query heads", queryHeads, "kv heads", kvHeads)
      .shape("q", q.size(), {shape.tokens, queryHeads, headDim})
      .shape("k", k.size(), {shape.tokens * view.ranks, kvHeads, headDim})
      .shape("v", v.size(), {shape.tokens * view.ranks, kvHeads, headDim})
      .shape("o", o.size(), {shape.tokens, queryHeads, headDim})
      .shape("lse", lse.size(), {shape.tokens, queryHeads});
}

template <typename Real>
absl::Status cpAttention(absl::Span<const Real> q, absl::Span<const Real> k,
                         absl::Span<const Real> v, const SeqTable &shape,
                         absl::Span<const int32_t> seq, const StripeView &view,
                         const AttentionDims &dims, double scale,
                         absl::Span<Real> o, absl::Span<Real> lse) {
  Checks checks("cp_attention");
  checkAttention<Real>(checks, q, k, v, shape, seq, view, dims, scale, o, lse);
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  std::vector<Real> keys(k.size()), values(v.size());
  reorder(stripes, k, absl::MakeSpan(keys), true);
  reorder(stripes, v, absl::MakeSpan(values), true);
  attendSegments<Real>(segmentsOf(segments, stripes), q, keys, values, dims,
                       scale, o, lse);
  return absl::OkStatus();
}

template <typename Real>
absl::Status
cpAttentionBwd(absl::Span<const Real> dO, absl::Span<const Real> q,
               absl::Span<const Real> k, absl::Span<const Real> v,
               absl::Span<const Real> o, absl::Span<const Real> lse,
               const SeqTable &shape, absl::Span<const int32_t> seq,
               const StripeView &view, const AttentionDims &dims, double scale,
               absl::Span<Real> dq, absl::Span<Real> dk, absl::Span<Real> dv) {
  Checks checks("cp_attention_bwd");
  checkAttention<Real>(checks, q, k, v, shape, seq, view, dims, scale, o, lse);
  auto [queryHeads, kvHeads, headDim] = dims;
  int64_t allTokens = shape.tokens * view.ranks;
  checks.shape("do", dO.size(), {shape.tokens, queryHeads, headDim})
      .shape("dq", dq.size(), {shape.tokens, queryHeads, headDim})
      .shape("dk", dk.size(), {allTokens, kvHeads, headDim})
      .shape("dv", dv.size(), {allTokens, kvHeads, headDim});
  if (!checks.ok())
    return checks.status();
  Documents segments(shape, seq);
  Stripes stripes(view);
  std::vector<Real> keys(k.size()), values(v.size());
  std::vector<Real> dKeys(k.size(), Real(0)), dValues(v.size(), Real(0));
  reorder(stripes, k, absl::MakeSpan(keys), true);
  reorder(stripes, v, absl::MakeSpan(values), true);
  attendSegmentsBwd<Real>(segmentsOf(segments, stripes), dO, q, keys, values, o,
                          lse, dims, scale, dq, absl::MakeSpan(dKeys),
                          absl::MakeSpan(dValues));
  reorder(stripes, absl::MakeConstSpan(dKeys), dk, false);
  reorder(stripes, absl::MakeConstSpan(dValues), dv, false);
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status gdnAffine<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, const SeqTable &, absl::Span<const int32_t>,     \
      const StripeView &, const DeltaDims &, double, absl::Span<Real>,         \
      absl::Span<Real>);                                                       \
  template absl::Status affineScan<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, const StripeView &,      \
      int64_t, int64_t, int64_t, absl::Span<Real>);                            \
  template absl::Status affineScanBwd<Real>(                                   \
      absl::Span<const Real>, absl::Span<const Real>, const StripeView &,      \
      int64_t, int64_t, int64_t, absl::Span<Real>);                            \
  template absl::Status cpGatedDeltaRule<Real>(                                \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      const DeltaDims &, double, double, absl::Span<Real>);                    \
  template absl::Status gdnStateGrad<Real>(                                    \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const StripeView &, const DeltaDims &,        \
      double, double, absl::Span<Real>);                                       \
  template absl::Status cpGatedDeltaRuleBwd<Real>(                             \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const StripeView &, const DeltaDims &,        \
      double, double, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>,    \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status cpGdnAffine<Real>(                                     \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const StripeView &, const DeltaDims &,        \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status cpGdnScan<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      const DeltaDims &, absl::Span<Real>, absl::Span<Real>);                  \
  template absl::Status cpGdnScanBwd<Real>(                                    \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, const SeqTable &, absl::Span<const int32_t>,     \
      const StripeView &, const DeltaDims &, double, absl::Span<Real>,         \
      absl::Span<Real>);                                                       \
  template absl::Status cpGdnStateGrad<Real>(                                  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      const DeltaDims &, double, absl::Span<Real>);                            \
  template absl::Status stripeTails<Real>(absl::Span<const Real>, int64_t,     \
                                          int64_t, int64_t, absl::Span<Real>); \
  template absl::Status cpCausalConv<Real>(                                    \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      int64_t, int64_t, absl::Span<Real>);                                     \
  template absl::Status cpCausalConvBwd<Real>(                                 \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, const SeqTable &, absl::Span<const int32_t>,     \
      const StripeView &, int64_t, int64_t, absl::Span<Real>,                  \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status addToTails<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, const StripeView &,      \
      int64_t, int64_t, absl::Span<Real>);                                     \
  template absl::Status cpRopeTable<Real>(                                     \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &, double, \
      int64_t, absl::Span<Real>);                                              \
  template absl::Status cpAttention<Real>(                                     \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      const AttentionDims &, double, absl::Span<Real>, absl::Span<Real>);      \
  template absl::Status cpAttentionBwd<Real>(                                  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const StripeView &,         \
      const AttentionDims &, double, absl::Span<Real>, absl::Span<Real>,       \
      absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
