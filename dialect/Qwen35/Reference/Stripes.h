#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_STRIPES_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_STRIPES_H

#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/DeltaChunk.h"
#include "runtime/schema/stripe_table.h"

// What a rank of a context-parallel group computes of a row that is cut into
// stripes (stripe_table.h): DESIGN.md 4.3 and 4.4. `shape`, `seq` are its own
// document table, whose documents are the segments of its stripes; `tokens` are
// its own, in two stripes; `gathered` tensors have the rows or entries of all
// ranks, in rank order.
//
// Errors of all functions: InvalidArgument if a span's length is not its
// shape's, or seq or stripes is not a table for this row; and those of the ops
// that they are parts of.

namespace qwen35::reference {

/// How a row is cut, and the table of one rank.
struct StripeView {
  int64_t ranks;
  absl::Span<const int32_t> words;
};

/// Reads a stripe table that passed checkStripes.
///
/// Units  Tokens of the rank where not said otherwise; stripes are numbered in
///        sequence order, local stripes 0 and 1.
class Stripes {
public:
  explicit Stripes(const StripeView &view)
      : shape{StripeTable::kLocal * view.words[StripeTable::kRows], view.ranks},
        table(view.words) {}

  int64_t count() const { return shape.stripes(); }
  int64_t rows() const { return shape.rows(); }
  int64_t index(int64_t j) const { return table[StripeTable::kIndex + j]; }
  int64_t firstSegment(int64_t j) const {
    return table[StripeTable::kFirstSegment + j];
  }
  int64_t lastSegment(int64_t j) const {
    return table[StripeTable::kEndSegment + j] - 1;
  }
  /// Where a gathered tensor has the entry of a stripe.
  int64_t slot(int64_t stripe) const { return table[shape.slot() + stripe]; }
  int64_t offset(int64_t stripe) const {
    return table[shape.offset() + stripe];
  }
  /// The first token continues a document.
  bool continues(int64_t stripe) const { return offset(stripe) > 0; }
  /// No document begins inside: a state passes through.
  bool passes(int64_t stripe) const {
    return table[shape.starts() + stripe] == 0;
  }
  /// Tokens before local token t in its document, which has its first local
  /// token at `segmentBegin`.
  int64_t position(int64_t t, int64_t segmentBegin) const {
    int64_t j = t / rows();
    bool first = segmentBegin == j * rows();
    return t - segmentBegin + (first ? offset(index(j)) : 0);
  }
  /// Where local token t is in the whole row, and where a gathered tensor has
  /// the row of token g of the whole row.
  int64_t global(int64_t t) const {
    return index(t / rows()) * rows() + t % rows();
  }
  int64_t gatheredRow(int64_t g) const {
    return slot(g / rows()) * rows() + g % rows();
  }

private:
  StripeTable shape;
  absl::Span<const int32_t> table;
};

/// Checks that `stripes` is what fillStripeTables writes for one rank of some
/// row; and `seq` too, as far as one rank's tables say.
void checkStripes(Checks &checks, const StripeView &stripes);
void checkStripes(Checks &checks, const StripeView &stripes,
                  const SeqTable &shape, absl::Span<const int32_t> seq);

//===----------------------------------------------------------------------===//
// Delta rule. Per value head a stripe is a map S -> M S + b of states.
//===----------------------------------------------------------------------===//

/// The maps of the rank's stripes: the meaning of `qwen35.gdn_affine`.
///
///     M = prod_t e^g[t] (I - beta[t] k^[t] k^[t]^T), later tokens on the left;
///         0 if a document begins inside the stripe, first token included
///     b = the state after the stripe from the state 0
///
/// Shapes  k: [tokens, keyHeads, keyDim]; v: [tokens, valueHeads, valueDim];
///         g, beta: [tokens, valueHeads]; m: [2, valueHeads, keyDim, keyDim];
///         b: [2, valueHeads, keyDim, valueDim].
/// Units   g is in nats.
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status gdnAffine(absl::Span<const Real> k, absl::Span<const Real> v,
                       absl::Span<const Real> g, absl::Span<const Real> beta,
                       const SeqTable &shape, absl::Span<const int32_t> seq,
                       const StripeView &stripes, const DeltaDims &dims,
                       double eps, absl::Span<Real> m, absl::Span<Real> b);

/// States before the rank's stripes: the meaning of `qwen35.affine_scan`. In
/// sequence order, from S(0) = 0:
///
///     S(i+1) = M(i) S(i) + b(i)
///
/// An M(i) that is 0 since a document begins inside is not multiplied, and S of
/// a stripe that begins a document is 0: no value crosses from one document to
/// another, not even a NaN.
///
/// Shapes  m: [2 ranks, heads, keyDim, keyDim]; b: [2 ranks, heads, keyDim,
///         valueDim], gathered; states: [2, heads, keyDim, valueDim].
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status affineScan(absl::Span<const Real> m, absl::Span<const Real> b,
                        const StripeView &stripes, int64_t heads,
                        int64_t keyDim, int64_t valueDim,
                        absl::Span<Real> states);

/// Gradients of the states that the rank's stripes leave: the meaning of
/// `qwen35.affine_scan_bwd`. In sequence order, back from G(last) = 0:
///
///     G(i-1) = c(i) + M(i)^T G(i)
///
/// with terms left out as in affineScan.
///
/// Shapes  m: as affineScan; c: [2 ranks, heads, keyDim, valueDim], gathered;
///         gradients: [2, heads, keyDim, valueDim].
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status affineScanBwd(absl::Span<const Real> m, absl::Span<const Real> c,
                           const StripeView &stripes, int64_t heads,
                           int64_t keyDim, int64_t valueDim,
                           absl::Span<Real> gradients);

/// gatedDeltaRule on the rank's tokens, where the first segment of stripe j
/// begins in states[j] unless it begins a document: the meaning of
/// `qwen35.cp_gated_delta_rule`.
///
/// Shapes  As gatedDeltaRule; states: [2, valueHeads, keyDim, valueDim].
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status
cpGatedDeltaRule(absl::Span<const Real> q, absl::Span<const Real> k,
                 absl::Span<const Real> v, absl::Span<const Real> g,
                 absl::Span<const Real> beta, absl::Span<const Real> states,
                 const SeqTable &shape, absl::Span<const int32_t> seq,
                 const StripeView &stripes, const DeltaDims &dims, double scale,
                 double eps, absl::Span<Real> o);

/// c(i) of the rank's stripes: the gradient of the state before the stripe by
/// its outputs alone; 0 where it begins a document. No value enters it. The
/// meaning of `qwen35.gdn_state_grad`.
///
/// Shapes  As gatedDeltaRuleBwd; c: [2, valueHeads, keyDim, valueDim].
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status gdnStateGrad(absl::Span<const Real> dO, absl::Span<const Real> q,
                          absl::Span<const Real> k, absl::Span<const Real> g,
                          absl::Span<const Real> beta, const SeqTable &shape,
                          absl::Span<const int32_t> seq,
                          const StripeView &stripes, const DeltaDims &dims,
                          double scale, double eps, absl::Span<Real> c);

/// Gradient of cpGatedDeltaRule, where gradients[j] is the gradient of the
/// state after stripe j: the meaning of `qwen35.cp_gated_delta_rule_bwd`.
///
/// Shapes  As gatedDeltaRuleBwd; states, gradients: [2, valueHeads, keyDim,
///         valueDim].
/// Source  DESIGN.md 4.4.
template <typename Real>
absl::Status cpGatedDeltaRuleBwd(
    absl::Span<const Real> dO, absl::Span<const Real> q,
    absl::Span<const Real> k, absl::Span<const Real> v,
    absl::Span<const Real> g, absl::Span<const Real> beta,
    absl::Span<const Real> states, absl::Span<const Real> gradients,
    const SeqTable &shape, absl::Span<const int32_t> seq,
    const StripeView &stripes, const DeltaDims &dims, double scale, double eps,
    absl::Span<Real> dq, absl::Span<Real> dk, absl::Span<Real> dv,
    absl::Span<Real> dg, absl::Span<Real> dbeta);

//===----------------------------------------------------------------------===//
// The same in chunks (DeltaChunk.h): gdnAffine is gdnPrep and cpGdnAffine,
// gdnStateGrad gdnPrep and cpGdnStateGrad; cpGdnScan and cpGdnScanBwd are in
// the places of gdnScan and gdnScanBwd.
//===----------------------------------------------------------------------===//

/// The meaning of `qkern.cp_gdn_affine`.
///
/// Shapes  kn, v, beta, gamma, tinv: as gdnScan; m, b: as gdnAffine.
template <typename Real>
absl::Status
cpGdnAffine(absl::Span<const Real> kn, absl::Span<const Real> v,
            absl::Span<const Real> beta, absl::Span<const Real> gamma,
            absl::Span<const Real> tinv, const SeqTable &shape,
            absl::Span<const int32_t> seq, const StripeView &stripes,
            const DeltaDims &dims, absl::Span<Real> m, absl::Span<Real> b);

/// The meaning of `qkern.cp_gdn_scan`.
///
/// Shapes  As gdnScan; before: [2, valueHeads, keyDim, valueDim].
template <typename Real>
absl::Status
cpGdnScan(absl::Span<const Real> kn, absl::Span<const Real> v,
          absl::Span<const Real> beta, absl::Span<const Real> gamma,
          absl::Span<const Real> tinv, absl::Span<const Real> before,
          const SeqTable &shape, absl::Span<const int32_t> seq,
          const StripeView &stripes, const DeltaDims &dims,
          absl::Span<Real> states, absl::Span<Real> vnew);

/// The meaning of `qkern.cp_gdn_scan_bwd`.
///
/// Shapes  As gdnScanBwd; after: [2, valueHeads, keyDim, valueDim].
template <typename Real>
absl::Status
cpGdnScanBwd(absl::Span<const Real> qn, absl::Span<const Real> kn,
             absl::Span<const Real> dO, absl::Span<const Real> beta,
             absl::Span<const Real> gamma, absl::Span<const Real> tinv,
             absl::Span<const Real> after, const SeqTable &shape,
             absl::Span<const int32_t> seq, const StripeView &stripes,
             const DeltaDims &dims, double scale, absl::Span<Real> dstates,
             absl::Span<Real> z);

/// The meaning of `qkern.cp_gdn_state_grad`.
///
/// Shapes  qn, kn, dO, beta, gamma, tinv: as gdnScanBwd; c: as gdnStateGrad.
template <typename Real>
absl::Status
cpGdnStateGrad(absl::Span<const Real> qn, absl::Span<const Real> kn,
               absl::Span<const Real> dO, absl::Span<const Real> beta,
               absl::Span<const Real> gamma, absl::Span<const Real> tinv,
               const SeqTable &shape, absl::Span<const int32_t> seq,
               const StripeView &stripes, const DeltaDims &dims, double scale,
               absl::Span<Real> c);

//===----------------------------------------------------------------------===//
// Convolution. A stripe reads taps - 1 rows of the one before it.
//===----------------------------------------------------------------------===//

/// The last taps - 1 rows of the rank's stripes: the meaning of
/// `qwen35.stripe_tails`.
///
/// Shapes  x: [tokens, channels]; tails: [2, taps - 1, channels].
/// Errors  Also if a stripe has fewer than taps - 1 tokens.
template <typename Real>
absl::Status stripeTails(absl::Span<const Real> x, int64_t tokens,
                         int64_t channels, int64_t taps,
                         absl::Span<Real> tails);

/// causalConv on the rank's tokens: the meaning of `qwen35.cp_causal_conv`.
///
/// Shapes  As causalConv; tails: [2 ranks, taps - 1, channels], gathered.
template <typename Real>
absl::Status
cpCausalConv(absl::Span<const Real> x, absl::Span<const Real> tails,
             absl::Span<const Real> w, const SeqTable &shape,
             absl::Span<const int32_t> seq, const StripeView &stripes,
             int64_t channels, int64_t taps, absl::Span<Real> y);

/// Gradient of cpCausalConv: the meaning of `qwen35.cp_causal_conv_bwd`.
/// dhalo[j] is the gradient of the rows before stripe j that it read, 0 for
/// rows of another document; they belong to the stripe before.
///
/// Shapes  As cpCausalConv and causalConvBwd; dhalo: [2, taps - 1, channels].
template <typename Real>
absl::Status
cpCausalConvBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                absl::Span<const Real> tails, absl::Span<const Real> w,
                const SeqTable &shape, absl::Span<const int32_t> seq,
                const StripeView &stripes, int64_t channels, int64_t taps,
                absl::Span<Real> dx, absl::Span<Real> dhalo,
                absl::Span<Real> dw);

/// y = x, with the halo gradients of the stripes after the rank's added to the
/// last rows of its own: the meaning of `qwen35.add_to_tails`.
///
/// Shapes  x, y: [tokens, channels]; halo: [2 ranks, taps - 1, channels],
///         gathered.
template <typename Real>
absl::Status addToTails(absl::Span<const Real> x, absl::Span<const Real> halo,
                        const StripeView &stripes, int64_t channels,
                        int64_t taps, absl::Span<Real> y);

//===----------------------------------------------------------------------===//
// Attention: local queries, gathered keys and values.
//===----------------------------------------------------------------------===//

/// ropeTable for the rank's tokens: the meaning of `qwen35.cp_rope_table`.
template <typename Real>
absl::Status cpRopeTable(const SeqTable &shape, absl::Span<const int32_t> seq,
                         const StripeView &stripes, double theta,
                         int64_t rotaryDim, absl::Span<Real> table);

/// attention of the rank's queries to the keys of their documents, on whatever
/// rank: the meaning of `qwen35.cp_attention`.
///
/// Shapes  As attention; k, v: [tokens * ranks, kvHeads, headDim], gathered.
/// Source  DESIGN.md 4.3.
template <typename Real>
absl::Status cpAttention(absl::Span<const Real> q, absl::Span<const Real> k,
                         absl::Span<const Real> v, const SeqTable &shape,
                         absl::Span<const int32_t> seq,
                         const StripeView &stripes, const AttentionDims &dims,
                         double scale, absl::Span<Real> o,
                         absl::Span<Real> lse);

/// Gradient of cpAttention: the meaning of `qwen35.cp_attention_bwd`. dk and dv
/// are what the rank's queries contribute, for all keys; the sum over the ranks
/// is the gradient.
///
/// Shapes  As attentionBwd; k, v, dk, dv: [tokens * ranks, kvHeads, headDim].
template <typename Real>
absl::Status
cpAttentionBwd(absl::Span<const Real> dO, absl::Span<const Real> q,
               absl::Span<const Real> k, absl::Span<const Real> v,
               absl::Span<const Real> o, absl::Span<const Real> lse,
               const SeqTable &shape, absl::Span<const int32_t> seq,
               const StripeView &stripes, const AttentionDims &dims,
               double scale, absl::Span<Real> dq, absl::Span<Real> dk,
               absl::Span<Real> dv);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_STRIPES_H
