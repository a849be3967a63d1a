#include "dialect/Qwen35/Reference/Delta.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

/// [channels, taps] as [taps, channels], so that loops run along channels.
template <typename Real>
static std::vector<Real> tapsFirst(absl::Span<const Real> w, int64_t channels,
                                   int64_t taps) {
  std::vector<Real> result(w.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < taps; ++i)
      result[i * channels + c] = w[c * taps + i];
  return result;
}

/// The sum under the SiLU at token t of a document that starts at `begin`.
template <typename Real>
static void convolve(absl::Span<const Real> x, const std::vector<Real> &taps,
                     int64_t begin, int64_t t, int64_t channels, Real *p) {
  std::fill_n(p, channels, Real(0));
  int64_t count = taps.size() / channels;
  for (int64_t i = 0; i < count; ++i) {
    int64_t source = t - (count - 1) + i;
    if (source < begin)
      continue;
    const Real *in = x.data() + source * channels;
    const Real *w = taps.data() + i * channels;
    for (int64_t c = 0; c < channels; ++c)
      p[c] += w[c] * in[c];
  }
}

template <typename Real>
static void checkConv(Checks &checks, absl::Span<const Real> x,
                      absl::Span<const Real> w, const SeqTable &shape,
                      absl::Span<const int32_t> seq, int64_t channels,
                      int64_t taps) {
  checks.documents(shape, seq)
      .positive("channels", channels)
      .positive("taps", taps)
      .shape("x", x.size(), {shape.tokens, channels})
      .shape("w", w.size(), {channels, 1, taps});
}

template <typename Real>
absl::Status causalConv(absl::Span<const Real> x, absl::Span<const Real> w,
                        const SeqTable &shape, absl::Span<const int32_t> seq,
                        int64_t channels, int64_t taps, absl::Span<Real> y) {
  Checks checks("causal_conv");
  checkConv(checks, x, w, shape, seq, channels, taps);
  checks.shape("y", y.size(), {shape.tokens, channels});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  std::vector<Real> weights = tapsFirst(w, channels, taps);
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t t = documents.begin(doc); t < documents.end(doc); ++t) {
      Real *out = y.data() + t * channels;
      convolve(x, weights, documents.begin(doc), t, channels, out);
      for (int64_t c = 0; c < channels; ++c)
        out[c] = silu(out[c]);
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status causalConvBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> w, const SeqTable &shape,
                           absl::Span<const int32_t> seq, int64_t channels,
                           int64_t taps, absl::Span<Real> dx,
                           absl::Span<Real> dw) {
  Checks checks("causal_conv_bwd");
  checkConv(checks, x, w, shape, seq, channels, taps);
  checks.shape("dy", dy.size(), {shape.tokens, channels})
      .shape("dx", dx.size(), {shape.tokens, channels})
      .shape("dw", dw.size(), {channels, 1, taps});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  std::vector<Real> weights = tapsFirst(w, channels, taps);
  std::vector<Real> dWeights(weights.size(), 0), dp(channels);
  std::fill(dx.begin(), dx.end(), Real(0));
  for (int64_t doc = 0; doc < documents.count(); ++doc) {
    int64_t begin = documents.begin(doc);
    for (int64_t t = begin; t < documents.end(doc); ++t) {
      convolve(x, weights, begin, t, channels, dp.data());
      for (int64_t c = 0; c < channels; ++c)
        dp[c] = dy[t * channels + c] * siluDerivative(dp[c]);
      for (int64_t i = 0; i < taps; ++i) {
        int64_t source = t - (taps - 1) + i;
        if (source < begin)
          continue;
        const Real *in = x.data() + source * channels;
        const Real *weight = weights.data() + i * channels;
        Real *dIn = dx.data() + source * channels;
        Real *dWeight = dWeights.data() + i * channels;
        for (int64_t c = 0; c < channels; ++c) {
          dIn[c] += weight[c] * dp[c];
          dWeight[c] += dp[c] * in[c];
        }
      }
    }
  }
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < taps; ++i)
      dw[c * taps + i] = dWeights[i * channels + c];
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Gates
//===----------------------------------------------------------------------===//

template <typename Real>
absl::Status gdnGates(absl::Span<const Real> a, absl::Span<const Real> b,
                      absl::Span<const Real> aLog,
                      absl::Span<const Real> dtBias, int64_t tokens,
                      int64_t heads, absl::Span<Real> g,
                      absl::Span<Real> beta) {
  Checks checks("gdn_gates");
  checks.shape("a", a.size(), {tokens, heads})
      .shape("b", b.size(), {tokens, heads})
      .shape("a_log", aLog.size(), {heads})
      .shape("dt_bias", dtBias.size(), {heads})
      .shape("g", g.size(), {tokens, heads})
      .shape("beta", beta.size(), {tokens, heads});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < tokens * heads; ++i) {
    int64_t h = i % heads;
    g[i] = -std::exp(aLog[h]) * softplus(a[i] + dtBias[h]);
    beta[i] = sigmoid(b[i]);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gdnGatesBwd(absl::Span<const Real> dg,
                         absl::Span<const Real> dbeta, absl::Span<const Real> a,
                         absl::Span<const Real> b, absl::Span<const Real> aLog,
                         absl::Span<const Real> dtBias, int64_t tokens,
                         int64_t heads, absl::Span<Real> da,
                         absl::Span<Real> db, absl::Span<Real> daLog,
                         absl::Span<Real> ddtBias) {
  Checks checks("gdn_gates_bwd");
  checks.shape("dg", dg.size(), {tokens, heads})
      .shape("dbeta", dbeta.size(), {tokens, heads})
      .shape("a", a.size(), {tokens, heads})
      .shape("b", b.size(), {tokens, heads})
      .shape("a_log", aLog.size(), {heads})
      .shape("dt_bias", dtBias.size(), {heads})
      .shape("da", da.size(), {tokens, heads})
      .shape("db", db.size(), {tokens, heads})
      .shape("da_log", daLog.size(), {heads})
      .shape("ddt_bias", ddtBias.size(), {heads});
  if (!checks.ok())
    return checks.status();
  std::fill(daLog.begin(), daLog.end(), Real(0));
  std::fill(ddtBias.begin(), ddtBias.end(), Real(0));
  for (int64_t i = 0; i < tokens * heads; ++i) {
    int64_t h = i % heads;
    Real rate = std::exp(aLog[h]), input = a[i] + dtBias[h];
    da[i] = -dg[i] * rate * sigmoid(input);
    db[i] = dbeta[i] * sigmoid(b[i]) * sigmoid(-b[i]);
    daLog[h] += dg[i] * (-rate * softplus(input));
    ddtBias[h] += da[i];
  }
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Delta rule
//===----------------------------------------------------------------------===//

namespace {
/// Tokens whose states the backward pass holds at once.
constexpr int64_t kBlock = 32;

/// The rows of one value head of the operands, after the L2 norm.
template <typename Real> struct Head {
  const Real *q, *k, *v, *g, *beta; // at token 0
  int64_t keyStride, valueStride, gateStride;

  const Real *query(int64_t t) const { return q + t * keyStride; }
  const Real *key(int64_t t) const { return k + t * keyStride; }
  const Real *value(int64_t t) const { return v + t * valueStride; }
  Real decay(int64_t t) const { return std::exp(g[t * gateStride]); }
  Real strength(int64_t t) const { return beta[t * gateStride]; }
};

/// Unit queries and keys with the factors that made them.
template <typename Real> struct Normalized {
  std::vector<Real> q, k, qr, kr;

  Normalized(absl::Span<const Real> queries, absl::Span<const Real> keys,
             int64_t rows, int64_t columns, double eps)
      : q(queries.size()), k(keys.size()), qr(rows), kr(rows) {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t at = i * columns;
      qr[i] = l2Normalize(&queries[at], columns, eps, &q[at]);
      kr[i] = l2Normalize(&keys[at], columns, eps, &k[at]);
    }
  }

  Head<Real> head(absl::Span<const Real> v, absl::Span<const Real> g,
                  absl::Span<const Real> beta, const DeltaDims &dims,
                  int64_t h) const {
    int64_t key = h / (dims.valueHeads / dims.keyHeads) * dims.keyDim;
    return {q.data() + key,
            k.data() + key,
            v.data() + h * dims.valueDim,
            g.data() + h,
            beta.data() + h,
            dims.keyHeads * dims.keyDim,
            dims.valueHeads * dims.valueDim,
            dims.valueHeads};
  }
};

/// S <- e^g S, then residual = v - S^T k: the state before the write.
template <typename Real>
void decayAndRead(const Head<Real> &head, int64_t t, const DeltaDims &dims,
                  Real *state, Real *residual) {
  const Real *k = head.key(t);
  Real decay = head.decay(t);
  std::copy_n(head.value(t), dims.valueDim, residual);
  for (int64_t i = 0; i < dims.keyDim; ++i) {
    Real *row = state + i * dims.valueDim;
    for (int64_t j = 0; j < dims.valueDim; ++j) {
      row[j] *= decay;
      residual[j] -= k[i] * row[j];
    }
  }
}

/// matrix <- matrix + a b^T.
template <typename Real>
void addOuter(Real *matrix, const Real *a, const Real *b,
              const DeltaDims &dims) {
  for (int64_t i = 0; i < dims.keyDim; ++i)
    for (int64_t j = 0; j < dims.valueDim; ++j)
      matrix[i * dims.valueDim + j] += a[i] * b[j];
}

/// One token: the state after it, and what it wrote.
template <typename Real>
void step(const Head<Real> &head, int64_t t, const DeltaDims &dims, Real *state,
          Real *delta) {
  decayAndRead(head, t, dims, state, delta);
  for (int64_t j = 0; j < dims.valueDim; ++j)
    delta[j] *= head.strength(t);
  addOuter(state, head.key(t), delta, dims);
}
} // namespace

template <typename Real>
static void checkDelta(Checks &checks, absl::Span<const Real> q,
                       absl::Span<const Real> k, absl::Span<const Real> v,
                       absl::Span<const Real> g, absl::Span<const Real> beta,
                       const SeqTable &shape, absl::Span<const int32_t> seq,
                       const DeltaDims &dims, double eps) {
  int64_t tokens = shape.tokens;
  checks.documents(shape, seq)
      .multiple("value heads", dims.valueHeads, "key heads", dims.keyHeads)
      .positive("eps", eps)
      .shape("q", q.size(), {tokens, dims.keyHeads, dims.keyDim})
      .shape("k", k.size(), {tokens, dims.keyHeads, dims.keyDim})
      .shape("v", v.size(), {tokens, dims.valueHeads, dims.valueDim})
      .shape("g", g.size(), {tokens, dims.valueHeads})
      .shape("beta", beta.size(), {tokens, dims.valueHeads})
      .notPositive("g", g);
}

template <typename Real>
absl::Status gatedDeltaRule(absl::Span<const Real> q, absl::Span<const Real> k,
                            absl::Span<const Real> v, absl::Span<const Real> g,
                            absl::Span<const Real> beta, const SeqTable &shape,
                            absl::Span<const int32_t> seq,
                            const DeltaDims &dims, double scale, double eps,
                            absl::Span<Real> o,
                            absl::Span<const Real> initialStates,
                            absl::Span<Real> finalStates) {
  int64_t dk = dims.keyDim, dv = dims.valueDim, heads = dims.valueHeads;
  Checks checks("gated_delta_rule");
  checkDelta(checks, q, k, v, g, beta, shape, seq, dims, eps);
  checks.shape("o", o.size(), {shape.tokens, heads, dv})
      .optionalShape("initial states", initialStates.size(),
                     {shape.maxDocs, heads, dk, dv})
      .optionalShape("final states", finalStates.size(),
                     {shape.maxDocs, heads, dk, dv});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  Normalized<Real> unit(q, k, shape.tokens * dims.keyHeads, dk, eps);
  std::vector<Real> state(dk * dv), delta(dv);
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t h = 0; h < heads; ++h) {
      Head<Real> head = unit.head(v, g, beta, dims, h);
      int64_t slot = (doc * heads + h) * dk * dv;
      if (initialStates.empty())
        std::fill(state.begin(), state.end(), Real(0));
      else
        std::copy_n(initialStates.data() + slot, dk * dv, state.begin());
      for (int64_t t = documents.begin(doc); t < documents.end(doc); ++t) {
        step(head, t, dims, state.data(), delta.data());
        Real *out = o.data() + (t * heads + h) * dv;
        std::fill_n(out, dv, Real(0));
        for (int64_t i = 0; i < dk; ++i) {
          Real weight = head.query(t)[i] * Real(scale);
          for (int64_t j = 0; j < dv; ++j)
            out[j] += weight * state[i * dv + j];
        }
      }
      if (!finalStates.empty())
        std::copy_n(state.begin(), dk * dv, finalStates.data() + slot);
    }
  return absl::OkStatus();
}

namespace {
/// The backward pass of one value head through one document.
template <typename Real> class HeadBackward {
public:
  HeadBackward(const Head<Real> &head, const DeltaDims &dims, double scale,
               int64_t begin, int64_t end)
      : head(head), dims(dims), scale(scale), begin(begin), end(end),
        stateSize(dims.keyDim * dims.valueDim),
        starts(((end - begin + kBlock - 1) / kBlock) * stateSize),
        decayed(kBlock * stateSize), residuals(kBlock * dims.valueDim),
        delta(dims.valueDim), d(dims.valueDim), dState(stateSize) {}

  /// The gradient of the state after the last token; in the end, of the state
  /// before the first.
  Real *stateGradient() { return dState.data(); }

  /// Keeps the state before every block.
  void forward(const Real *initial) {
    std::vector<Real> state(stateSize, 0);
    if (initial)
      state.assign(initial, initial + stateSize);
    for (int64_t t = begin; t < end; ++t) {
      if ((t - begin) % kBlock == 0)
        std::copy(state.begin(), state.end(),
                  starts.begin() + (t - begin) / kBlock * stateSize);
      step(head, t, dims, state.data(), delta.data());
    }
  }

  /// dO, dv: of this head at token 0, in steps of valueStride; dg, dbeta in
  /// steps of gateStride; dq, dk: of its key head, added to.
  void backward(const Real *dO, Real *dq, Real *dk, Real *dv, Real *dg,
                Real *dbeta) {
    int64_t blocks = starts.size() / stateSize;
    for (int64_t block = blocks - 1; block >= 0; --block) {
      int64_t first = begin + block * kBlock;
      int64_t last = std::min(first + kBlock, end);
      replay(block, first, last);
      for (int64_t t = last - 1; t >= first; --t)
        token(t, &decayed[(t - first) * stateSize],
              &residuals[(t - first) * dims.valueDim],
              dO + t * head.valueStride, dq + t * head.keyStride,
              dk + t * head.keyStride, dv + t * head.valueStride,
              dg + t * head.gateStride, dbeta + t * head.gateStride);
    }
  }

private:
  /// Decayed states and residuals of the tokens of a block.
  void replay(int64_t block, int64_t first, int64_t last) {
    const Real *state = &starts[block * stateSize];
    for (int64_t t = first; t < last; ++t) {
      Real *now = &decayed[(t - first) * stateSize];
      Real *residual = &residuals[(t - first) * dims.valueDim];
      std::copy_n(state, stateSize, now);
      if (t > first) // `state` is the one before token t-1 wrote.
        addOuter(now, head.key(t - 1), delta.data(), dims);
      decayAndRead(head, t, dims, now, residual);
      for (int64_t j = 0; j < dims.valueDim; ++j)
        delta[j] = head.strength(t) * residual[j];
      state = now;
    }
  }

  /// MODEL.md 13.7 at token t, with S~ = `state`.
  void token(int64_t t, const Real *state, const Real *residual, const Real *dO,
             Real *dq, Real *dk, Real *dv, Real *dg, Real *dbeta) {
    const Real *q = head.query(t), *k = head.key(t);
    Real strength = head.strength(t), decay = head.decay(t);
    int64_t width = dims.valueDim;
    for (int64_t j = 0; j < width; ++j)
      delta[j] = strength * residual[j];
    Real read = dot(delta.data(), dO, width);
    std::fill(d.begin(), d.end(), Real(0));
    for (int64_t i = 0; i < dims.keyDim; ++i) {
      Real *row = &dState[i * width];
      dq[i] += scale * (dot(state + i * width, dO, width) + k[i] * read);
      for (int64_t j = 0; j < width; ++j) {
        row[j] += scale * q[i] * dO[j];
        d[j] += k[i] * row[j];
      }
    }
    *dbeta = dot(d.data(), residual, width);
    for (int64_t j = 0; j < width; ++j)
      dv[j] = strength * d[j];
    Real sum = 0;
    for (int64_t i = 0; i < dims.keyDim; ++i) {
      Real *row = &dState[i * width];
      dk[i] +=
          dot(row, delta.data(), width) - dot(state + i * width, dv, width);
      for (int64_t j = 0; j < width; ++j)
        row[j] -= k[i] * dv[j];
      sum += dot(row, state + i * width, width);
      for (int64_t j = 0; j < width; ++j)
        row[j] *= decay;
    }
    *dg = sum;
  }

  Head<Real> head;
  DeltaDims dims;
  Real scale;
  int64_t begin, end, stateSize;
  std::vector<Real> starts, decayed, residuals, delta, d, dState;
};
} // namespace

template <typename Real>
absl::Status gatedDeltaRuleBwd(
    absl::Span<const Real> dO, absl::Span<const Real> q,
    absl::Span<const Real> k, absl::Span<const Real> v,
    absl::Span<const Real> g, absl::Span<const Real> beta,
    const SeqTable &shape, absl::Span<const int32_t> seq, const DeltaDims &dims,
    double scale, double eps, absl::Span<Real> dq, absl::Span<Real> dk,
    absl::Span<Real> dv, absl::Span<Real> dg, absl::Span<Real> dbeta,
    absl::Span<const Real> initialStates, absl::Span<const Real> dFinalStates,
    absl::Span<Real> dInitialStates) {
  int64_t tokens = shape.tokens, heads = dims.valueHeads;
  int64_t keyDim = dims.keyDim, valueDim = dims.valueDim;
  Checks checks("gated_delta_rule_bwd");
  checkDelta(checks, q, k, v, g, beta, shape, seq, dims, eps);
  checks.shape("do", dO.size(), {tokens, heads, valueDim})
      .shape("dq", dq.size(), {tokens, dims.keyHeads, keyDim})
      .shape("dk", dk.size(), {tokens, dims.keyHeads, keyDim})
      .shape("dv", dv.size(), {tokens, heads, valueDim})
      .shape("dg", dg.size(), {tokens, heads})
      .shape("dbeta", dbeta.size(), {tokens, heads})
      .optionalShape("initial states", initialStates.size(),
                     {shape.maxDocs, heads, keyDim, valueDim})
      .optionalShape("final state gradients", dFinalStates.size(),
                     {shape.maxDocs, heads, keyDim, valueDim})
      .optionalShape("initial state gradients", dInitialStates.size(),
                     {shape.maxDocs, heads, keyDim, valueDim});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  int64_t rows = tokens * dims.keyHeads;
  Normalized<Real> unit(q, k, rows, keyDim, eps);
  // Gradients of the unit vectors, summed over the value heads of a key head.
  std::vector<Real> dUnitQ(q.size(), 0), dUnitK(k.size(), 0);
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t slot = (doc * heads + h) * keyDim * valueDim;
      int64_t key = h / (heads / dims.keyHeads) * keyDim;
      HeadBackward<Real> pass(unit.head(v, g, beta, dims, h), dims, scale,
                              documents.begin(doc), documents.end(doc));
      pass.forward(initialStates.empty() ? nullptr
                                         : initialStates.data() + slot);
      if (!dFinalStates.empty())
        std::copy_n(dFinalStates.data() + slot, keyDim * valueDim,
                    pass.stateGradient());
      pass.backward(dO.data() + h * valueDim, dUnitQ.data() + key,
                    dUnitK.data() + key, dv.data() + h * valueDim,
                    dg.data() + h, dbeta.data() + h);
      if (!dInitialStates.empty())
        std::copy_n(pass.stateGradient(), keyDim * valueDim,
                    dInitialStates.data() + slot);
    }
  for (int64_t i = 0; i < rows; ++i) {
    int64_t at = i * keyDim;
    l2NormalizeBwd(&dUnitQ[at], &unit.q[at], unit.qr[i], keyDim, &dq[at]);
    l2NormalizeBwd(&dUnitK[at], &unit.k[at], unit.kr[i], keyDim, &dk[at]);
  }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status causalConv<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, int64_t, int64_t, absl::Span<Real>);          \
  template absl::Status causalConvBwd<Real>(                                   \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, int64_t, int64_t,           \
      absl::Span<Real>, absl::Span<Real>);                                     \
  template absl::Status gdnGates<Real>(                                        \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, int64_t, int64_t, absl::Span<Real>,              \
      absl::Span<Real>);                                                       \
  template absl::Status gdnGatesBwd<Real>(                                     \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      int64_t, int64_t, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>,  \
      absl::Span<Real>);                                                       \
  template absl::Status gatedDeltaRule<Real>(                                  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const DeltaDims &, double, double,            \
      absl::Span<Real>, absl::Span<const Real>, absl::Span<Real>);             \
  template absl::Status gatedDeltaRuleBwd<Real>(                               \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const DeltaDims &, double,  \
      double, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>,            \
      absl::Span<Real>, absl::Span<Real>, absl::Span<const Real>,              \
      absl::Span<const Real>, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
