#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_ATTENTION_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_ATTENTION_H

#include "runtime/schema/seq_table.h"

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// Cosines and sines of rotary positions: the meaning of `qwen35.rope_table`.
///
///     angle[t,j] = (t - first token of t's document) * theta^(-2j/rotaryDim)
///     table[t,j] = (cos(angle), sin(angle))
///
/// Shapes  seq: [shape.words()]; table: [shape.tokens, rotaryDim/2, 2].
/// Units   Positions count tokens, angles are in radians.
/// Types   Angles, cosines and sines in double, then rounded to Real.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table, rotaryDim is odd or theta <= 0.
/// Source  MODEL.md 3.3 for text, where the three axes agree.
template <typename Real>
absl::Status ropeTable(const SeqTable &shape, absl::Span<const int32_t> seq,
                       double theta, int64_t rotaryDim, absl::Span<Real> table);

/// Rotates the pairs (j, j + rotaryDim/2) of each head, j < rotaryDim/2, by the
/// angles of the token, backwards if `inverse`; copies the other dims: the
/// meaning of `qwen35.rope`. The inverse is also the gradient.
///
/// Shapes  x, y: [tokens, heads, headDim]; table: [tokens, rotaryDim/2, 2].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, rotaryDim is
///         odd or above headDim.
/// Source  MODEL.md 3.3, 13.4.
template <typename Real>
absl::Status rope(absl::Span<const Real> x, absl::Span<const Real> table,
                  int64_t tokens, int64_t heads, int64_t headDim,
                  int64_t rotaryDim, bool inverse, absl::Span<Real> y);

/// Sizes of an attention; tokens come from the document table.
struct AttentionDims {
  int64_t queryHeads; // a multiple of kvHeads
  int64_t kvHeads;    // query head h reads kv head h / (queryHeads / kvHeads)
  int64_t headDim;
};

/// Causal attention within each document: the meaning of `qwen35.attention`.
///
///     s[t,u] = scale * <q[t], k[u]>,  u from the document's first token to t
///     lse[t] = logsumexp_u(s[t,u]),  o[t] = sum_u exp(s[t,u] - lse[t]) v[u]
///
/// Shapes  q, o: [tokens, queryHeads, headDim]; k, v: [tokens, kvHeads,
///         headDim]; seq: [shape.words()]; lse: [tokens, queryHeads].
/// Units   lse is in nats.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table, scale <= 0 or kvHeads does not divide queryHeads.
/// Source  MODEL.md 3.2, 3.4.
template <typename Real>
absl::Status attention(absl::Span<const Real> q, absl::Span<const Real> k,
                       absl::Span<const Real> v, const SeqTable &shape,
                       absl::Span<const int32_t> seq, const AttentionDims &dims,
                       double scale, absl::Span<Real> o, absl::Span<Real> lse);

/// Gradient of attention: the meaning of `qwen35.attention_bwd`.
///
/// Shapes  dO, q, o, dq: [tokens, queryHeads, headDim]; k, v, dk, dv: [tokens,
///         kvHeads, headDim]; lse: [tokens, queryHeads]; o and lse are the
///         forward results.
/// Units   As attention.
/// Errors  As attention.
/// Source  arXiv:2205.14135, appendix B.
template <typename Real>
absl::Status attentionBwd(absl::Span<const Real> dO, absl::Span<const Real> q,
                          absl::Span<const Real> k, absl::Span<const Real> v,
                          absl::Span<const Real> o, absl::Span<const Real> lse,
                          const SeqTable &shape, absl::Span<const int32_t> seq,
                          const AttentionDims &dims, double scale,
                          absl::Span<Real> dq, absl::Span<Real> dk,
                          absl::Span<Real> dv);

//===----------------------------------------------------------------------===//
// What attention over whole documents and over their parts (Stripes.h) share.
// Shapes are checked by these callers.
//===----------------------------------------------------------------------===//

/// ropeTable of a token at each of `positions`.
template <typename Real>
void ropeRows(absl::Span<const int64_t> positions, double theta,
              int64_t rotaryDim, absl::Span<Real> table);

/// Queries of one document that follow each other: tokens [begin, end) of q see
/// the rows of k from firstKey up to their own, which is firstQueryKey for the
/// first of them.
struct AttentionSegment {
  int64_t begin, end;
  int64_t firstKey, firstQueryKey;
};

template <typename Real>
void attendSegments(absl::Span<const AttentionSegment> segments,
                    absl::Span<const Real> q, absl::Span<const Real> k,
                    absl::Span<const Real> v, const AttentionDims &dims,
                    double scale, absl::Span<Real> o, absl::Span<Real> lse);
/// dk and dv are added to.
template <typename Real>
void attendSegmentsBwd(absl::Span<const AttentionSegment> segments,
                       absl::Span<const Real> dO, absl::Span<const Real> q,
                       absl::Span<const Real> k, absl::Span<const Real> v,
                       absl::Span<const Real> o, absl::Span<const Real> lse,
                       const AttentionDims &dims, double scale,
                       absl::Span<Real> dq, absl::Span<Real> dk,
                       absl::Span<Real> dv);

/// y = x * sigmoid(gate): the meaning of `qwen35.mul_sigmoid`.
///
/// Shapes  x, y: [rows, columns]; gate: [rows, gateColumns], where gateColumns
///         is columns, or 1 for one gate per row.
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, or
///         gateColumns is neither columns nor 1.
/// Source  MODEL.md 3.2 (attention output), 5.4 (shared expert).
template <typename Real>
absl::Status mulSigmoid(absl::Span<const Real> x, absl::Span<const Real> gate,
                        int64_t rows, int64_t columns, int64_t gateColumns,
                        absl::Span<Real> y);

/// Gradient of mulSigmoid: the meaning of `qwen35.mul_sigmoid_bwd`.
///
/// Shapes  dy, x, dx: [rows, columns]; gate, dgate: [rows, gateColumns].
/// Units   All sizes count elements.
/// Errors  As mulSigmoid.
/// Source  MODEL.md 13.5.
template <typename Real>
absl::Status mulSigmoidBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> gate, int64_t rows,
                           int64_t columns, int64_t gateColumns,
                           absl::Span<Real> dx, absl::Span<Real> dgate);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_ATTENTION_H
