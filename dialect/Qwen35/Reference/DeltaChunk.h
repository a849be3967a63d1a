#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_DELTACHUNK_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_DELTACHUNK_H

#include "dialect/Qwen35/Reference/Delta.h"

// The gated delta rule in chunks of SeqTable::kChunk = 64 tokens that restart
// at every document: gatedDeltaRule is gdnPrep, gdnScan, gdnOut, and its
// gradient is gdnPrep, gdnScan, gdnScanBwd, gdnLocalBwd.
//
// Nc = shape.chunks(). Tensors [Nc, valueHeads, 64, ..] hold one row per token
// of a chunk; rows past the chunk's last token are written as said below, rows
// of token tensors that lie past it are not read, and entries of chunks that
// are not in use are neither read nor written. Row i of a chunk counts from 0,
// n is its number of rows, and within a chunk and value head
//
//     K, Q: rows of kn, qn of the shared key head      b: beta, scales rows
//     eta[i] = e^gamma[i]      rho[i] = e^(gamma[n-1] - gamma[i])
//     Gamma[i,j] = e^(gamma[i] - gamma[j]) for i >= j, else 0
//
// so that only numbers that are not positive are ever exponentiated.

namespace qwen35::reference {

/// What a chunk needs that no state enters: the meaning of `qkern.gdn_prep`.
///
///     qn = q * qr, qr = 1 / sqrt(sum of q^2 + eps); kn, kr likewise
///     gamma[i] = sum of g over rows 0 to i of the chunk
///     tinv = (I + strictly lower part of b K K^T)^-1 * Gamma, elementwise
///
/// Shapes  q, k, qn, kn: [tokens, keyHeads, keyDim]; qr, kr: [tokens,
///         keyHeads]; g, beta: [tokens, valueHeads]; gamma: [Nc, valueHeads,
///         64], rows past the last hold gamma[n-1]; tinv: [Nc, valueHeads, 64,
///         64], rows and columns past the last are 0.
/// Units   gamma is in nats. qn is not scaled.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table, keyHeads does not divide valueHeads, eps <= 0 or
///         an element of g is above 0.
/// Source  KERNELS.md 1.1, 1.2.
template <typename Real>
absl::Status gdnPrep(absl::Span<const Real> q, absl::Span<const Real> k,
                     absl::Span<const Real> g, absl::Span<const Real> beta,
                     const SeqTable &shape, absl::Span<const int32_t> seq,
                     const DeltaDims &dims, double eps, absl::Span<Real> qn,
                     absl::Span<Real> kn, absl::Span<Real> qr,
                     absl::Span<Real> kr, absl::Span<Real> gamma,
                     absl::Span<Real> tinv);

/// States through each document: the meaning of `qkern.gdn_scan`.
///
///     V' = tinv (b (V - eta (K S)))
///     S  <- e^gamma[n-1] S + K^T (rho V')      from S = 0 at a document's
///     start
///
/// Shapes  kn: [tokens, keyHeads, keyDim]; v: [tokens, valueHeads, valueDim];
///         beta: [tokens, valueHeads]; gamma, tinv: as gdnPrep; states: [Nc,
///         valueHeads, keyDim, valueDim], S before the chunk; vnew: [Nc,
///         valueHeads, 64, valueDim], V', rows past the last are 0.
///         initialStates, finalStates: [shape.maxDocs, valueHeads, keyDim,
///         valueDim], or empty for none; as in gatedDeltaRule.
/// Units   gamma is in nats.
/// Errors  InvalidArgument if a span's length is not its shape's, seq is not a
///         document table or keyHeads does not divide valueHeads.
/// Source  KERNELS.md 1.1.
template <typename Real>
absl::Status gdnScan(absl::Span<const Real> kn, absl::Span<const Real> v,
                     absl::Span<const Real> beta, absl::Span<const Real> gamma,
                     absl::Span<const Real> tinv, const SeqTable &shape,
                     absl::Span<const int32_t> seq, const DeltaDims &dims,
                     absl::Span<Real> states, absl::Span<Real> vnew,
                     absl::Span<const Real> initialStates = {},
                     absl::Span<Real> finalStates = {});

/// Outputs of each chunk by itself: the meaning of `qkern.gdn_out`.
///
///     o = scale * (eta (Q S) + (Q K^T * Gamma) V')
///
/// Shapes  qn, kn: [tokens, keyHeads, keyDim]; gamma, states, vnew: as gdnPrep
///         and gdnScan; o: [tokens, valueHeads, valueDim].
/// Units   gamma is in nats.
/// Errors  As gdnScan.
/// Source  KERNELS.md 1.1.
template <typename Real>
absl::Status gdnOut(absl::Span<const Real> qn, absl::Span<const Real> kn,
                    absl::Span<const Real> gamma, absl::Span<const Real> states,
                    absl::Span<const Real> vnew, const SeqTable &shape,
                    absl::Span<const int32_t> seq, const DeltaDims &dims,
                    double scale, absl::Span<Real> o);

/// State gradients back through each document: the meaning of
/// `qkern.gdn_scan_bwd`. With P = scale * Q K^T * Gamma:
///
///     Z  = tinv^T (rho (K D) + P^T dO)
///     D  <- e^gamma[n-1] D - K^T (eta b Z) + Q^T (scale eta dO)
///                                                from D = 0 at a document's
///                                                end
///
/// Shapes  qn, kn: [tokens, keyHeads, keyDim]; dO: [tokens, valueHeads,
///         valueDim]; beta: [tokens, valueHeads]; gamma, tinv: as gdnPrep;
///         dstates: [Nc, valueHeads, keyDim, valueDim], D after the chunk, the
///         gradient of the state that the chunk leaves; z: [Nc, valueHeads, 64,
///         valueDim], rows past the last are 0. dFinalStates, dInitialStates:
///         as the states of gdnScan, or empty.
/// Units   gamma is in nats.
/// Errors  As gdnScan.
/// Source  KERNELS.md 2.1, 2.2.
template <typename Real>
absl::Status
gdnScanBwd(absl::Span<const Real> qn, absl::Span<const Real> kn,
           absl::Span<const Real> dO, absl::Span<const Real> beta,
           absl::Span<const Real> gamma, absl::Span<const Real> tinv,
           const SeqTable &shape, absl::Span<const int32_t> seq,
           const DeltaDims &dims, double scale, absl::Span<Real> dstates,
           absl::Span<Real> z, absl::Span<const Real> dFinalStates = {},
           absl::Span<Real> dInitialStates = {});

/// Gradients of each chunk by itself: the meaning of `qkern.gdn_local_bwd`,
/// the table of KERNELS.md 2.2, then the L2 norms backward.
///
/// Shapes  qn, kn, dq, dk: [tokens, keyHeads, keyDim]; qr, kr: [tokens,
///         keyHeads]; v, dO, dv: [tokens, valueHeads, valueDim]; beta, dg,
///         dbeta: [tokens, valueHeads]; gamma, states, dstates, vnew, z: as
///         above. dq and dk are those of q and k before their norm, summed over
///         the value heads of a key head.
/// Units   gamma is in nats.
/// Errors  As gdnScan.
/// Source  KERNELS.md 2.2; MODEL.md 13.3.
template <typename Real>
absl::Status
gdnLocalBwd(absl::Span<const Real> qn, absl::Span<const Real> kn,
            absl::Span<const Real> qr, absl::Span<const Real> kr,
            absl::Span<const Real> v, absl::Span<const Real> dO,
            absl::Span<const Real> beta, absl::Span<const Real> gamma,
            absl::Span<const Real> states, absl::Span<const Real> dstates,
            absl::Span<const Real> vnew, absl::Span<const Real> z,
            const SeqTable &shape, absl::Span<const int32_t> seq,
            const DeltaDims &dims, double scale, absl::Span<Real> dq,
            absl::Span<Real> dk, absl::Span<Real> dv, absl::Span<Real> dg,
            absl::Span<Real> dbeta);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_DELTACHUNK_H
