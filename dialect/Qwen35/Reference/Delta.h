#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_DELTA_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_DELTA_H

#include "runtime/schema/seq_table.h"

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// Causal depthwise convolution and SiLU: the meaning of `qwen35.causal_conv`.
///
///     p[t,c] = sum_i w[c,i] * x[t - (taps-1) + i, c],  y = silu(p)
///
/// where terms before the first token of t's document are 0.
///
/// Shapes  x, y: [tokens, channels]; w: [channels, 1, taps]; seq:
///         [shape.words()].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table or taps <= 0.
/// Source  MODEL.md 4.3; w[c, taps-1] meets the current token, as in torch.
template <typename Real>
absl::Status causalConv(absl::Span<const Real> x, absl::Span<const Real> w,
                        const SeqTable &shape, absl::Span<const int32_t> seq,
                        int64_t channels, int64_t taps, absl::Span<Real> y);

/// Gradient of causalConv: the meaning of `qwen35.causal_conv_bwd`.
///
/// Shapes  dy, x, dx: [tokens, channels]; w, dw: [channels, 1, taps].
/// Units   All sizes count elements.
/// Errors  As causalConv.
/// Source  MODEL.md 13.10.
template <typename Real>
absl::Status causalConvBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> w, const SeqTable &shape,
                           absl::Span<const int32_t> seq, int64_t channels,
                           int64_t taps, absl::Span<Real> dx,
                           absl::Span<Real> dw);

/// Log decay and write strength: the meaning of `qwen35.gdn_gates`.
///
///     g = -exp(aLog) * softplus(a + dtBias),  beta = sigmoid(b)
///
/// Shapes  a, b, g, beta: [tokens, heads]; aLog, dtBias: [heads].
/// Units   g is in nats and at most 0; beta is in (0, 1).
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  MODEL.md 4.3; softplus is the identity above 20.
template <typename Real>
absl::Status gdnGates(absl::Span<const Real> a, absl::Span<const Real> b,
                      absl::Span<const Real> aLog,
                      absl::Span<const Real> dtBias, int64_t tokens,
                      int64_t heads, absl::Span<Real> g, absl::Span<Real> beta);

/// Gradient of gdnGates: the meaning of `qwen35.gdn_gates_bwd`.
///
/// Shapes  dg, dbeta, a, b, da, db: [tokens, heads]; aLog, dtBias, daLog,
///         ddtBias: [heads].
/// Units   As gdnGates.
/// Errors  InvalidArgument if a span's length is not its shape's.
/// Source  MODEL.md 13.9, with sigmoid as the derivative of softplus also above
///         20, where they differ by 2e-9.
template <typename Real>
absl::Status gdnGatesBwd(absl::Span<const Real> dg,
                         absl::Span<const Real> dbeta, absl::Span<const Real> a,
                         absl::Span<const Real> b, absl::Span<const Real> aLog,
                         absl::Span<const Real> dtBias, int64_t tokens,
                         int64_t heads, absl::Span<Real> da,
                         absl::Span<Real> db, absl::Span<Real> daLog,
                         absl::Span<Real> ddtBias);

/// Sizes of a delta rule; tokens come from the document table.
struct DeltaDims {
  int64_t keyHeads;
  int64_t valueHeads; // a multiple of keyHeads; value head j reads key head
                      // j / (valueHeads / keyHeads)
  int64_t keyDim;
  int64_t valueDim;
};

/// The gated delta rule, token by token: the meaning of
/// `qwen35.gated_delta_rule`. With k^ = k / sqrt(sum of k^2 + eps) and q^
/// likewise, for each document and value head from the state S = 0:
///
///     S <- e^g[t] S
///     S <- S + k^[t] (beta[t] (v[t] - S^T k^[t]))^T
///     o[t] = scale * S^T q^[t]
///
/// Shapes  q, k: [tokens, keyHeads, keyDim]; v, o: [tokens, valueHeads,
///         valueDim]; g, beta: [tokens, valueHeads]; seq: [shape.words()].
///         initialStates, finalStates: [shape.maxDocs, valueHeads, keyDim,
///         valueDim], or empty for none; entries past the last document are
///         neither read nor written.
/// Units   g is in nats.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table, keyHeads does not divide valueHeads, eps <= 0 or
///         an element of g is above 0.
/// Source  MODEL.md 4.5; arXiv:2412.06464.
template <typename Real>
absl::Status gatedDeltaRule(absl::Span<const Real> q, absl::Span<const Real> k,
                            absl::Span<const Real> v, absl::Span<const Real> g,
                            absl::Span<const Real> beta, const SeqTable &shape,
                            absl::Span<const int32_t> seq,
                            const DeltaDims &dims, double scale, double eps,
                            absl::Span<Real> o,
                            absl::Span<const Real> initialStates = {},
                            absl::Span<Real> finalStates = {});

/// Gradient of gatedDeltaRule, token by token: the meaning of
/// `qwen35.gated_delta_rule_bwd`.
///
/// Shapes  As gatedDeltaRule; dO as o; dq, dk, dv, dg, dbeta as q, k, v, g,
///         beta; dFinalStates, dInitialStates as the states, or empty.
/// Units   As gatedDeltaRule.
/// Errors  As gatedDeltaRule.
/// Source  MODEL.md 13.7, 13.3. States are recomputed in blocks of tokens from
///         those kept at block starts, never by dividing by a decay.
template <typename Real>
absl::Status
gatedDeltaRuleBwd(absl::Span<const Real> dO, absl::Span<const Real> q,
                  absl::Span<const Real> k, absl::Span<const Real> v,
                  absl::Span<const Real> g, absl::Span<const Real> beta,
                  const SeqTable &shape, absl::Span<const int32_t> seq,
                  const DeltaDims &dims, double scale, double eps,
                  absl::Span<Real> dq, absl::Span<Real> dk, absl::Span<Real> dv,
                  absl::Span<Real> dg, absl::Span<Real> dbeta,
                  absl::Span<const Real> initialStates = {},
                  absl::Span<const Real> dFinalStates = {},
                  absl::Span<Real> dInitialStates = {});

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_DELTA_H
