#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_MOE_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_MOE_H

#include "runtime/schema/seq_table.h"

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// Routing of tokens to experts: the meaning of `qwen35.router`.
///
///     probs   = softmax of each row of logits
///     idx     = the topK experts of largest probability, descending; equal
///               ones by ascending id
///     weights = probs[idx] / sum of probs[idx]
///
/// Shapes  logits, probs: [tokens, experts]; weights, idx: [tokens, topK].
/// Units   idx counts experts from 0.
/// Errors  InvalidArgument if a span's length is not its shape's, or topK is
///         outside 1 to experts.
/// Source  MODEL.md 5.2.
template <typename Real>
absl::Status router(absl::Span<const Real> logits, int64_t tokens,
                    int64_t experts, int64_t topK, absl::Span<Real> weights,
                    absl::Span<int32_t> idx, absl::Span<Real> probs);

/// Gradient of the weights of router: the meaning of `qwen35.router_bwd`.
///
///     dlogits[idx[j]] = weights[j] * (dweights[j] - <weights, dweights>)
///
/// and 0 for the experts that were not chosen.
///
/// Shapes  dweights, weights, idx: [tokens, topK]; dlogits: [tokens, experts].
/// Units   idx counts experts from 0.
/// Errors  InvalidArgument if a span's length is not its shape's, or an element
///         of idx is not an expert.
/// Source  MODEL.md 13.6.
template <typename Real>
absl::Status routerBwd(absl::Span<const Real> dweights,
                       absl::Span<const Real> weights,
                       absl::Span<const int32_t> idx, int64_t tokens,
                       int64_t experts, int64_t topK, absl::Span<Real> dlogits);

/// dlogits = probs * (dprobs - <probs, dprobs>) in each row: the meaning of
/// `qwen35.softmax_bwd`.
///
/// Shapes  dprobs, probs, dlogits: [rows, columns].
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  The gradient of a softmax.
template <typename Real>
absl::Status softmaxBwd(absl::Span<const Real> dprobs,
                        absl::Span<const Real> probs, int64_t rows,
                        int64_t columns, absl::Span<Real> dlogits);

/// What a load-balance loss averages over.
enum class RouterAuxScope {
  kPooled,   // all layers together, as transformers: topK when balanced
  kPerLayer, // each layer, then summed, as xtuner: 1 per layer when balanced
};

/// Load-balance loss of L layers: the meaning of `qwen35.router_aux`. With N
/// tokens that are not padding, c[l,e] of them times slot sent to expert e, and
/// P[l,e] the sum of their probabilities:
///
///     pooled:    aux = E * sum_e (sum_l c[l,e] / LN) * (sum_l P[l,e] / LN)
///     per layer: aux = sum_l E / (N topK) * sum_e c[l,e] * P[l,e] / N
///
/// Shapes  probs[l]: [shape.tokens, experts]; idx[l]: [shape.tokens, topK];
///         seq: [shape.words()]; aux: [1]. A row of padding only has aux 0.
/// Units   None; not yet multiplied by its coefficient.
/// Errors  InvalidArgument if a span's length is not its shape's, there is no
///         layer, as many probs as idx, or an element of idx is not an expert.
/// Source  MODEL.md 5.5; arXiv:2101.03961.
template <typename Real>
absl::Status routerAux(absl::Span<const absl::Span<const Real>> probs,
                       absl::Span<const absl::Span<const int32_t>> idx,
                       const SeqTable &shape, absl::Span<const int32_t> seq,
                       int64_t experts, int64_t topK, RouterAuxScope scope,
                       absl::Span<Real> aux);

/// Gradient of routerAux, counts held fixed: the meaning of
/// `qwen35.router_aux_bwd`. Rows of padding get 0.
///
/// Shapes  daux: [1]; idx[l]: [shape.tokens, topK]; dprobs[l]: [shape.tokens,
///         experts]. The probabilities themselves are not needed.
/// Units   As routerAux.
/// Errors  As routerAux.
/// Source  MODEL.md 13.6.
template <typename Real>
absl::Status routerAuxBwd(absl::Span<const Real> daux,
                          absl::Span<const absl::Span<const int32_t>> idx,
                          const SeqTable &shape, absl::Span<const int32_t> seq,
                          int64_t experts, int64_t topK, RouterAuxScope scope,
                          absl::Span<const absl::Span<Real>> dprobs);

/// What routerAux adds up over the tokens of one rank: the meaning of
/// `qwen35.router_stats`. Rows are 1 if pooled, else one per layer.
///
/// Shapes  probs, idx, seq as routerAux; counts, sums: [rows, experts]; tokens:
///         [1].
/// Units   Counts of tokens times slot, sums of probabilities.
/// Errors  As routerAux.
/// Source  MODEL.md 5.5, split by tokens.
template <typename Real>
absl::Status routerStats(absl::Span<const absl::Span<const Real>> probs,
                         absl::Span<const absl::Span<const int32_t>> idx,
                         const SeqTable &shape, absl::Span<const int32_t> seq,
                         int64_t experts, int64_t topK, RouterAuxScope scope,
                         absl::Span<Real> counts, absl::Span<Real> sums,
                         absl::Span<Real> tokens);

/// routerAux from the sums over all ranks: `qwen35.router_stats_aux`.
///
/// Shapes  counts, sums: [1 or layers, experts]; tokens, aux: [1].
/// Units   As routerAux.
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  As routerStats.
template <typename Real>
absl::Status routerStatsAux(absl::Span<const Real> counts,
                            absl::Span<const Real> sums,
                            absl::Span<const Real> tokens, int64_t layers,
                            int64_t experts, int64_t topK, RouterAuxScope scope,
                            absl::Span<Real> aux);

/// Its gradient for the tokens of one rank: `qwen35.router_stats_grad`.
///
/// Shapes  daux, tokens: [1]; counts: [1 or layers, experts]; dprobs[l]:
///         [shape.tokens, experts].
/// Units   As routerAux.
/// Errors  As routerAux.
/// Source  As routerStats.
template <typename Real>
absl::Status routerStatsGrad(absl::Span<const Real> daux,
                             absl::Span<const Real> counts,
                             absl::Span<const Real> tokens,
                             const SeqTable &shape,
                             absl::Span<const int32_t> seq, int64_t experts,
                             int64_t topK, RouterAuxScope scope,
                             absl::Span<const absl::Span<Real>> dprobs);

/// Sizes of a block of experts.
struct MoeDims {
  int64_t tokens;
  int64_t hidden;       // D
  int64_t experts;      // E
  int64_t topK;         // K
  int64_t intermediate; // I
};

/// Routed experts without capacity limit: the meaning of `qwen35.moe_experts`.
/// With e = idx[t,j], gate_e rows [0, I) and up_e rows [I, 2I) of wGateUp[e]:
///
///     h[t,j] = weights[t,j] * silu(gate_e x[t]) * (up_e x[t])
///     y[t]   = sum_j wDown[e] h[t,j]                      in slot order
///
/// Shapes  x, y: [T, D]; weights, idx: [T, K]; wGateUp: [E, 2I, D]; wDown:
///         [E, D, I].
/// Units   idx counts experts from 0.
/// Errors  InvalidArgument if a span's length is not its shape's, or an element
///         of idx is not an expert; with `shard` -1 is one of another rank,
///         whose slot adds nothing.
/// Source  MODEL.md 5.3.
template <typename Real>
absl::Status
moeExperts(absl::Span<const Real> x, absl::Span<const Real> weights,
           absl::Span<const int32_t> idx, absl::Span<const Real> wGateUp,
           absl::Span<const Real> wDown, const MoeDims &dims,
           absl::Span<Real> y, bool shard = false);

/// Gradient of moeExperts: the meaning of `qwen35.moe_experts_bwd`. Experts
/// without a token get a weight gradient of exactly 0.
///
/// Shapes  dy, x, dx: [T, D]; weights, idx, dweights: [T, K]; wGateUp,
///         dwGateUp: [E, 2I, D]; wDown, dwDown: [E, D, I].
/// Units   As moeExperts.
/// Errors  As moeExperts.
/// Source  MODEL.md 13.5, 13.6.
template <typename Real>
absl::Status moeExpertsBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> weights,
                           absl::Span<const int32_t> idx,
                           absl::Span<const Real> wGateUp,
                           absl::Span<const Real> wDown, const MoeDims &dims,
                           absl::Span<Real> dx, absl::Span<Real> dweights,
                           absl::Span<Real> dwGateUp, absl::Span<Real> dwDown,
                           bool shard = false);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_MOE_H
