#include "dialect/Qwen35/Reference/Moe.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Gemm.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

//===----------------------------------------------------------------------===//
// Router
//===----------------------------------------------------------------------===//

template <typename Real>
absl::Status router(absl::Span<const Real> logits, int64_t tokens,
                    int64_t experts, int64_t topK, absl::Span<Real> weights,
                    absl::Span<int32_t> idx, absl::Span<Real> probs) {
  Checks checks("router");
  checks.range("top_k", topK, 1, experts)
      .shape("logits", logits.size(), {tokens, experts})
      .shape("weights", weights.size(), {tokens, topK})
      .shape("idx", idx.size(), {tokens, topK})
      .shape("probs", probs.size(), {tokens, experts});
  if (!checks.ok())
    return checks.status();
  std::vector<bool> taken(experts);
  for (int64_t t = 0; t < tokens; ++t) {
    const Real *in = logits.data() + t * experts;
    Real *p = probs.data() + t * experts;
    Real highest = *std::max_element(in, in + experts), sum = 0;
    for (int64_t e = 0; e < experts; ++e)
      sum += p[e] = std::exp(in[e] - highest);
    for (int64_t e = 0; e < experts; ++e)
      p[e] /= sum;
    std::fill(taken.begin(), taken.end(), false);
    Real chosen = 0;
    for (int64_t j = 0; j < topK; ++j) {
      // The first of the largest; still an expert of its own if all are NaN.
      int64_t best = -1;
      for (int64_t e = 0; e < experts; ++e)
        if (!taken[e] && (best < 0 || p[e] > p[best]))
          best = e;
      taken[best] = true;
      idx[t * topK + j] = static_cast<int32_t>(best);
      chosen += p[best];
    }
    for (int64_t j = 0; j < topK; ++j)
      weights[t * topK + j] = p[idx[t * topK + j]] / chosen;
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status
routerBwd(absl::Span<const Real> dweights, absl::Span<const Real> weights,
          absl::Span<const int32_t> idx, int64_t tokens, int64_t experts,
          int64_t topK, absl::Span<Real> dlogits) {
  Checks checks("router_bwd");
  checks.shape("dweights", dweights.size(), {tokens, topK})
      .shape("weights", weights.size(), {tokens, topK})
      .shape("idx", idx.size(), {tokens, topK})
      .shape("dlogits", dlogits.size(), {tokens, experts})
      .ids("idx", idx, experts);
  if (!checks.ok())
    return checks.status();
  std::fill(dlogits.begin(), dlogits.end(), Real(0));
  for (int64_t t = 0; t < tokens; ++t) {
    const Real *w = weights.data() + t * topK;
    const Real *dw = dweights.data() + t * topK;
    Real mean = dot(w, dw, topK);
    for (int64_t j = 0; j < topK; ++j)
      dlogits[t * experts + idx[t * topK + j]] = w[j] * (dw[j] - mean);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status softmaxBwd(absl::Span<const Real> dprobs,
                        absl::Span<const Real> probs, int64_t rows,
                        int64_t columns, absl::Span<Real> dlogits) {
  Checks checks("softmax_bwd");
  checks.shape("dprobs", dprobs.size(), {rows, columns})
      .shape("probs", probs.size(), {rows, columns})
      .shape("dlogits", dlogits.size(), {rows, columns});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < rows; ++i) {
    const Real *p = probs.data() + i * columns;
    const Real *dp = dprobs.data() + i * columns;
    Real mean = dot(p, dp, columns);
    for (int64_t j = 0; j < columns; ++j)
      dlogits[i * columns + j] = p[j] * (dp[j] - mean);
  }
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Auxiliary loss
//===----------------------------------------------------------------------===//

static void checkAux(Checks &checks,
                     absl::Span<const absl::Span<const int32_t>> idx,
                     const SeqTable &shape, absl::Span<const int32_t> seq,
                     int64_t experts, int64_t topK, int64_t layers) {
  int64_t routed = idx.size();
  checks.documents(shape, seq)
      .range("top_k", topK, 1, experts)
      .require(layers > 0, "has no layer")
      .require(layers == routed, absl::StrCat("has ", layers, " layers of ",
                                              "probs but ", routed, " of idx"));
  for (int64_t l = 0; l < routed; ++l)
    checks
        .shape(absl::StrCat("idx of layer ", l), idx[l].size(),
               {shape.tokens, topK})
        .ids(absl::StrCat("idx of layer ", l), idx[l], experts);
}

/// How often each expert was chosen in the first `tokens` rows.
static std::vector<int64_t> countChoices(absl::Span<const int32_t> idx,
                                         int64_t tokens, int64_t topK,
                                         int64_t experts) {
  std::vector<int64_t> counts(experts, 0);
  for (int64_t i = 0; i < tokens * topK; ++i)
    ++counts[idx[i]];
  return counts;
}

/// What one unit of probability adds to the loss, [layers][experts]: the
/// gradient, and since the loss is linear in the probabilities, the loss too.
static std::vector<std::vector<double>>
auxFactors(absl::Span<const absl::Span<const int32_t>> idx, int64_t tokens,
           int64_t topK, int64_t experts, RouterAuxScope scope) {
  int64_t layers = idx.size();
  std::vector<std::vector<double>> factors(layers);
  std::vector<double> pooled(experts, 0);
  double rows = static_cast<double>(layers) * tokens;
  double perLayer = static_cast<double>(tokens) * topK * tokens;
  for (int64_t l = 0; l < layers; ++l) {
    factors[l].assign(experts, 0);
    if (tokens == 0)
      continue;
    auto counts = countChoices(idx[l], tokens, topK, experts);
    for (int64_t e = 0; e < experts; ++e) {
      pooled[e] += experts * (counts[e] / rows) / rows;
      factors[l][e] = experts * (counts[e] / perLayer);
    }
  }
  if (scope == RouterAuxScope::kPooled)
    std::fill(factors.begin(), factors.end(), pooled);
  return factors;
}

template <typename Real>
absl::Status routerAux(absl::Span<const absl::Span<const Real>> probs,
                       absl::Span<const absl::Span<const int32_t>> idx,
                       const SeqTable &shape, absl::Span<const int32_t> seq,
                       int64_t experts, int64_t topK, RouterAuxScope scope,
                       absl::Span<Real> aux) {
  int64_t layers = probs.size();
  Checks checks("router_aux");
  checkAux(checks, idx, shape, seq, experts, topK, layers);
  for (int64_t l = 0; l < layers; ++l)
    checks.shape(absl::StrCat("probs of layer ", l), probs[l].size(),
                 {shape.tokens, experts});
  checks.shape("aux", aux.size(), {1});
  if (!checks.ok())
    return checks.status();
  int64_t tokens = Documents(shape, seq).realTokens();
  auto factors = auxFactors(idx, tokens, topK, experts, scope);
  double sum = 0;
  for (int64_t l = 0; l < layers; ++l)
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < experts; ++e)
        sum += factors[l][e] * probs[l][t * experts + e];
  aux[0] = static_cast<Real>(sum);
  return absl::OkStatus();
}

template <typename Real>
absl::Status routerAuxBwd(absl::Span<const Real> daux,
                          absl::Span<const absl::Span<const int32_t>> idx,
                          const SeqTable &shape, absl::Span<const int32_t> seq,
                          int64_t experts, int64_t topK, RouterAuxScope scope,
                          absl::Span<const absl::Span<Real>> dprobs) {
  int64_t layers = dprobs.size();
  Checks checks("router_aux_bwd");
  checkAux(checks, idx, shape, seq, experts, topK, layers);
  for (int64_t l = 0; l < layers; ++l)
    checks.shape(absl::StrCat("dprobs of layer ", l), dprobs[l].size(),
                 {shape.tokens, experts});
  checks.shape("daux", daux.size(), {1});
  if (!checks.ok())
    return checks.status();
  int64_t tokens = Documents(shape, seq).realTokens();
  auto factors = auxFactors(idx, tokens, topK, experts, scope);
  for (int64_t l = 0; l < layers; ++l) {
    std::fill(dprobs[l].begin(), dprobs[l].end(), Real(0));
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < experts; ++e)
        dprobs[l][t * experts + e] = static_cast<Real>(daux[0] * factors[l][e]);
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status routerStats(absl::Span<const absl::Span<const Real>> probs,
                         absl::Span<const absl::Span<const int32_t>> idx,
                         const SeqTable &shape, absl::Span<const int32_t> seq,
                         int64_t experts, int64_t topK, RouterAuxScope scope,
                         absl::Span<Real> counts, absl::Span<Real> sums,
                         absl::Span<Real> tokens) {
  int64_t layers = probs.size();
  bool pooled = scope == RouterAuxScope::kPooled;
  Checks checks("router_stats");
  checkAux(checks, idx, shape, seq, experts, topK, layers);
  for (int64_t l = 0; l < layers; ++l)
    checks.shape(absl::StrCat("probs of layer ", l), probs[l].size(),
                 {shape.tokens, experts});
  checks.shape("counts", counts.size(), {pooled ? 1 : layers, experts});
  checks.shape("sums", sums.size(), {pooled ? 1 : layers, experts});
  checks.shape("tokens", tokens.size(), {1});
  if (!checks.ok())
    return checks.status();
  int64_t real = Documents(shape, seq).realTokens();
  std::vector<double> count(counts.size(), 0), sum(sums.size(), 0);
  for (int64_t l = 0; l < layers; ++l) {
    int64_t row = pooled ? 0 : l * experts;
    auto chosen = countChoices(idx[l], real, topK, experts);
    for (int64_t e = 0; e < experts; ++e) {
      count[row + e] += chosen[e];
      for (int64_t t = 0; t < real; ++t)
        sum[row + e] += probs[l][t * experts + e];
    }
  }
  std::copy(count.begin(), count.end(), counts.begin());
  std::copy(sum.begin(), sum.end(), sums.begin());
  tokens[0] = static_cast<Real>(real);
  return absl::OkStatus();
}

/// What one unit of probability adds to the loss, per count of its expert.
template <typename Real>
static double auxPerCount(Real tokens, int64_t layers, int64_t experts,
                          int64_t topK, RouterAuxScope scope) {
  double n = std::max<double>(tokens, 1);
  return scope == RouterAuxScope::kPooled ? experts / (layers * n) / (layers * n)
                                          : experts / (topK * n) / n;
}

template <typename Real>
absl::Status routerStatsAux(absl::Span<const Real> counts,
                            absl::Span<const Real> sums,
                            absl::Span<const Real> tokens, int64_t layers,
                            int64_t experts, int64_t topK, RouterAuxScope scope,
                            absl::Span<Real> aux) {
  int64_t rows = scope == RouterAuxScope::kPooled ? 1 : layers;
  Checks checks("router_stats_aux");
  checks.shape("counts", counts.size(), {rows, experts});
  checks.shape("sums", sums.size(), {rows, experts});
  checks.shape("tokens", tokens.size(), {1});
  checks.shape("aux", aux.size(), {1});
  if (!checks.ok())
    return checks.status();
  double factor = auxPerCount(tokens[0], layers, experts, topK, scope), sum = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    sum += factor * counts[i] * sums[i];
  aux[0] = static_cast<Real>(sum);
  return absl::OkStatus();
}

template <typename Real>
absl::Status routerStatsGrad(absl::Span<const Real> daux,
                             absl::Span<const Real> counts,
                             absl::Span<const Real> tokens,
                             const SeqTable &shape,
                             absl::Span<const int32_t> seq, int64_t experts,
                             int64_t topK, RouterAuxScope scope,
                             absl::Span<const absl::Span<Real>> dprobs) {
  int64_t layers = dprobs.size();
  bool pooled = scope == RouterAuxScope::kPooled;
  Checks checks("router_stats_grad");
  checks.documents(shape, seq);
  checks.shape("daux", daux.size(), {1});
  checks.shape("counts", counts.size(), {pooled ? 1 : layers, experts});
  checks.shape("tokens", tokens.size(), {1});
  for (int64_t l = 0; l < layers; ++l)
    checks.shape(absl::StrCat("dprobs of layer ", l), dprobs[l].size(),
                 {shape.tokens, experts});
  if (!checks.ok())
    return checks.status();
  int64_t real = Documents(shape, seq).realTokens();
  double factor = auxPerCount(tokens[0], layers, experts, topK, scope);
  for (int64_t l = 0; l < layers; ++l) {
    std::fill(dprobs[l].begin(), dprobs[l].end(), Real(0));
    for (int64_t t = 0; t < real; ++t)
      for (int64_t e = 0; e < experts; ++e)
        dprobs[l][t * experts + e] = static_cast<Real>(
            daux[0] * factor * counts[(pooled ? 0 : l * experts) + e]);
  }
  return absl::OkStatus();
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

namespace {
/// Everything one expert does in the forward pass, for the slots it got.
template <typename Real> struct ExpertRows {
  std::vector<int64_t> slots; // t * K + j, ascending
  std::vector<Real> x;        // [slots, D]
  std::vector<Real> gateUp;   // [slots, 2I]
  std::vector<Real> act;      // [slots, I]: silu(gate) * up

  int64_t count() const { return slots.size(); }
};

template <typename Real>
void gatherRows(absl::Span<const Real> from, const std::vector<int64_t> &slots,
                int64_t topK, int64_t columns, std::vector<Real> &rows) {
  rows.resize(slots.size() * columns);
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(from.data() + slots[i] / topK * columns, columns,
                rows.data() + i * columns);
}

/// Fills the rows of expert `e`; false if no token chose it.
template <typename Real>
bool runExpert(absl::Span<const Real> x, absl::Span<const int32_t> idx,
               absl::Span<const Real> wGateUp, const MoeDims &dims, int64_t e,
               ExpertRows<Real> &rows) {
  auto [tokens, hidden, experts, topK, width] = dims;
  rows.slots.clear();
  for (int64_t slot = 0; slot < tokens * topK; ++slot)
    if (idx[slot] == e)
      rows.slots.push_back(slot);
  if (rows.slots.empty())
    return false;
  int64_t count = rows.count();
  gatherRows(x, rows.slots, topK, hidden, rows.x);
  rows.gateUp.resize(count * 2 * width);
  rows.act.resize(count * width);
  multiply<Real>(
      matrix(rows.gateUp.data(), count, 2 * width),
      matrix<const Real>(rows.x.data(), count, hidden),
      matrix(wGateUp.data() + e * 2 * width * hidden, 2 * width, hidden)
          .transposed());
  for (int64_t i = 0; i < count; ++i) {
    const Real *gate = &rows.gateUp[i * 2 * width], *up = gate + width;
    for (int64_t j = 0; j < width; ++j)
      rows.act[i * width + j] = silu(gate[j]) * up[j];
  }
  return true;
}

/// y[t] = sum over the slots of t, in slot order.
template <typename Real>
void sumSlots(const std::vector<Real> &slots, const MoeDims &dims,
              absl::Span<Real> y) {
  std::fill(y.begin(), y.end(), Real(0));
  for (int64_t slot = 0; slot < dims.tokens * dims.topK; ++slot) {
    const Real *in = slots.data() + slot * dims.hidden;
    Real *out = y.data() + slot / dims.topK * dims.hidden;
    for (int64_t d = 0; d < dims.hidden; ++d)
      out[d] += in[d];
  }
}

template <typename Real>
void scatterRows(const std::vector<Real> &rows,
                 const std::vector<int64_t> &slots, int64_t columns,
                 std::vector<Real> &to) {
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(rows.data() + i * columns, columns,
                to.data() + slots[i] * columns);
}
} // namespace

template <typename Real>
static void checkExperts(Checks &checks, absl::Span<const Real> x,
                         absl::Span<const Real> weights,
                         absl::Span<const int32_t> idx,
                         absl::Span<const Real> wGateUp,
                         absl::Span<const Real> wDown, const MoeDims &dims,
                         bool shard) {
  auto [tokens, hidden, experts, topK, width] = dims;
  checks.range("top_k", topK, 1, shard ? topK : experts)
      .shape("x", x.size(), {tokens, hidden})
      .shape("weights", weights.size(), {tokens, topK})
      .shape("idx", idx.size(), {tokens, topK})
      .shape("w_gate_up", wGateUp.size(), {experts, 2, width, hidden})
      .shape("w_down", wDown.size(), {experts, hidden, width})
      .shardIds("idx", idx, experts, shard);
}

template <typename Real>
absl::Status
moeExperts(absl::Span<const Real> x, absl::Span<const Real> weights,
           absl::Span<const int32_t> idx, absl::Span<const Real> wGateUp,
           absl::Span<const Real> wDown, const MoeDims &dims,
           absl::Span<Real> y, bool shard) {
  auto [tokens, hidden, experts, topK, width] = dims;
  Checks checks("moe_experts");
  checkExperts(checks, x, weights, idx, wGateUp, wDown, dims, shard);
  checks.shape("y", y.size(), {tokens, hidden});
  if (!checks.ok())
    return checks.status();
  ExpertRows<Real> rows;
  std::vector<Real> out, slots(tokens * topK * hidden);
  for (int64_t e = 0; e < experts; ++e) {
    if (!runExpert(x, idx, wGateUp, dims, e, rows))
      continue;
    int64_t count = rows.count();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < width; ++j)
        rows.act[i * width + j] *= weights[rows.slots[i]];
    out.resize(count * hidden);
    multiply<Real>(
        matrix(out.data(), count, hidden),
        matrix<const Real>(rows.act.data(), count, width),
        matrix(wDown.data() + e * hidden * width, hidden, width).transposed());
    scatterRows(out, rows.slots, hidden, slots);
  }
  sumSlots(slots, dims, y);
  return absl::OkStatus();
}

template <typename Real>
absl::Status moeExpertsBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> weights,
                           absl::Span<const int32_t> idx,
                           absl::Span<const Real> wGateUp,
                           absl::Span<const Real> wDown, const MoeDims &dims,
                           absl::Span<Real> dx, absl::Span<Real> dweights,
                           absl::Span<Real> dwGateUp, absl::Span<Real> dwDown,
                           bool shard) {
  auto [tokens, hidden, experts, topK, width] = dims;
  Checks checks("moe_experts_bwd");
  checkExperts(checks, x, weights, idx, wGateUp, wDown, dims, shard);
  checks.shape("dy", dy.size(), {tokens, hidden})
      .shape("dx", dx.size(), {tokens, hidden})
      .shape("dweights", dweights.size(), {tokens, topK})
      .shape("dw_gate_up", dwGateUp.size(), {experts, 2, width, hidden})
      .shape("dw_down", dwDown.size(), {experts, hidden, width});
  if (!checks.ok())
    return checks.status();
  std::fill(dweights.begin(), dweights.end(), Real(0));
  std::fill(dwGateUp.begin(), dwGateUp.end(), Real(0));
  std::fill(dwDown.begin(), dwDown.end(), Real(0));
  ExpertRows<Real> rows;
  std::vector<Real> dOut, dAct, dGateUp, dIn, slots(tokens * topK * hidden);
  for (int64_t e = 0; e < experts; ++e) {
    if (!runExpert(x, idx, wGateUp, dims, e, rows))
      continue;
    int64_t count = rows.count();
    auto gateUpWeight =
        matrix(wGateUp.data() + e * 2 * width * hidden, 2 * width, hidden);
    auto downWeight = matrix(wDown.data() + e * hidden * width, hidden, width);
    gatherRows(dy, rows.slots, topK, hidden, dOut);
    dAct.resize(count * width);
    multiply<Real>(matrix(dAct.data(), count, width),
                   matrix<const Real>(dOut.data(), count, hidden), downWeight);
    dGateUp.resize(count * 2 * width);
    for (int64_t i = 0; i < count; ++i) {
      int64_t slot = rows.slots[i];
      Real weight = weights[slot];
      Real *act = &rows.act[i * width], *dact = &dAct[i * width];
      const Real *gate = &rows.gateUp[i * 2 * width], *up = gate + width;
      Real *dgate = &dGateUp[i * 2 * width], *dup = dgate + width;
      dweights[slot] = dot(act, dact, width);
      for (int64_t j = 0; j < width; ++j) {
        dgate[j] = weight * dact[j] * up[j] * siluDerivative(gate[j]);
        dup[j] = weight * dact[j] * silu(gate[j]);
        act[j] *= weight; // From here on what the down projection reads.
      }
    }
    multiply<Real>(matrix(dwDown.data() + e * hidden * width, hidden, width),
                   matrix<const Real>(dOut.data(), count, hidden).transposed(),
                   matrix<const Real>(rows.act.data(), count, width));
    multiply<Real>(
        matrix(dwGateUp.data() + e * 2 * width * hidden, 2 * width, hidden),
        matrix<const Real>(dGateUp.data(), count, 2 * width).transposed(),
        matrix<const Real>(rows.x.data(), count, hidden));
    dIn.resize(count * hidden);
    multiply<Real>(matrix(dIn.data(), count, hidden),
                   matrix<const Real>(dGateUp.data(), count, 2 * width),
                   gateUpWeight);
    scatterRows(dIn, rows.slots, hidden, slots);
  }
  sumSlots(slots, dims, dx);
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status router<Real>(absl::Span<const Real>, int64_t, int64_t, \
                                     int64_t, absl::Span<Real>,                \
                                     absl::Span<int32_t>, absl::Span<Real>);   \
  template absl::Status routerBwd<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, int64_t, int64_t, int64_t, absl::Span<Real>); \
  template absl::Status softmaxBwd<Real>(absl::Span<const Real>,               \
                                         absl::Span<const Real>, int64_t,      \
                                         int64_t, absl::Span<Real>);           \
  template absl::Status routerAux<Real>(                                       \
      absl::Span<const absl::Span<const Real>>,                                \
      absl::Span<const absl::Span<const int32_t>>, const SeqTable &,           \
      absl::Span<const int32_t>, int64_t, int64_t, RouterAuxScope,             \
      absl::Span<Real>);                                                       \
  template absl::Status routerAuxBwd<Real>(                                    \
      absl::Span<const Real>, absl::Span<const absl::Span<const int32_t>>,     \
      const SeqTable &, absl::Span<const int32_t>, int64_t, int64_t,           \
      RouterAuxScope, absl::Span<const absl::Span<Real>>);                     \
  template absl::Status routerStats<Real>(                                     \
      absl::Span<const absl::Span<const Real>>,                                \
      absl::Span<const absl::Span<const int32_t>>, const SeqTable &,           \
      absl::Span<const int32_t>, int64_t, int64_t, RouterAuxScope,             \
      absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);                   \
  template absl::Status routerStatsAux<Real>(                                  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      int64_t, int64_t, int64_t, RouterAuxScope, absl::Span<Real>);            \
  template absl::Status routerStatsGrad<Real>(                                 \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, int64_t, int64_t,           \
      RouterAuxScope, absl::Span<const absl::Span<Real>>);                     \
  template absl::Status moeExperts<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>,                          \
      absl::Span<const int32_t>, absl::Span<const Real>,                       \
      absl::Span<const Real>, const MoeDims &, absl::Span<Real>, bool);        \
  template absl::Status moeExpertsBwd<Real>(                                   \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const int32_t>, absl::Span<const Real>,                       \
      absl::Span<const Real>, const MoeDims &, absl::Span<Real>,               \
      absl::Span<Real>, absl::Span<Real>, absl::Span<Real>, bool);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
