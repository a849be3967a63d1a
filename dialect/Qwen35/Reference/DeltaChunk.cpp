#include "dialect/Qwen35/Reference/DeltaChunk.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Gemm.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

static constexpr int64_t kChunk = SeqTable::kChunk;

namespace {
/// Where one chunk of one value head lies in every tensor.
struct Tile {
  DeltaDims dims;
  int64_t first; // token
  int64_t rows;
  int64_t head, keyHead;
  int64_t slot; // of [Nc, valueHeads]

  Tile(const DeltaDims &dims, const Documents &documents, int64_t chunk,
       int64_t head)
      : dims(dims), first(documents.chunkFirst(chunk)),
        rows(documents.chunkRows(chunk)), head(head),
        keyHead(head / (dims.valueHeads / dims.keyHeads)),
        slot(chunk * dims.valueHeads + head) {}

  /// Rows of a [tokens, keyHeads, keyDim] tensor.
  template <typename T> Matrix<T> keys(absl::Span<T> x) const {
    int64_t stride = dims.keyHeads * dims.keyDim;
    return {x.data() + first * stride + keyHead * dims.keyDim, rows,
            dims.keyDim, stride};
  }
  /// Rows of a [tokens, valueHeads, valueDim] tensor.
  template <typename T> Matrix<T> values(absl::Span<T> x) const {
    int64_t stride = dims.valueHeads * dims.valueDim;
    return {x.data() + first * stride + head * dims.valueDim, rows,
            dims.valueDim, stride};
  }
  /// Row `i` of a [tokens, valueHeads] tensor.
  template <typename T> T &gate(absl::Span<T> x, int64_t i) const {
    return x[(first + i) * dims.valueHeads + head];
  }
  /// Of a [Nc, valueHeads, 64] tensor.
  template <typename T> T *vector(absl::Span<T> x) const {
    return x.data() + slot * kChunk;
  }
  /// The leading rows and columns of a [Nc, valueHeads, 64, 64] tensor.
  template <typename T> Matrix<T> square(absl::Span<T> x) const {
    return {x.data() + slot * kChunk * kChunk, rows, rows, kChunk};
  }
  /// The leading rows of a [Nc, valueHeads, 64, valueDim] tensor.
  template <typename T> Matrix<T> chunkValues(absl::Span<T> x) const {
    return {x.data() + slot * kChunk * dims.valueDim, rows, dims.valueDim,
            dims.valueDim};
  }
  /// Of a [Nc, valueHeads, keyDim, valueDim] tensor.
  template <typename T> Matrix<T> state(absl::Span<T> x) const {
    int64_t size = dims.keyDim * dims.valueDim;
    return matrix(x.data() + slot * size, dims.keyDim, dims.valueDim);
  }
};

/// A matrix with its own memory.
template <typename Real> struct Buffer {
  std::vector<Real> memory;

  Matrix<Real> shaped(int64_t rows, int64_t columns) {
    memory.resize(std::max<size_t>(memory.size(), rows * columns));
    return matrix(memory.data(), rows, columns);
  }
};

/// Zero in every element of the rows of chunkValues past the last.
template <typename Real> void clearTail(const Tile &tile, Matrix<Real> x) {
  std::fill(x.row(tile.rows), x.row(kChunk), Real(0));
}

/// x[i] *= factor(i), row by row.
template <typename Real, typename Factor>
void scaleRows(Matrix<Real> x, Factor factor) {
  for (int64_t i = 0; i < x.rows; ++i) {
    Real f = factor(i);
    for (int64_t j = 0; j < x.columns; ++j)
      x.at(i, j) *= f;
  }
}

/// x += y.
template <typename Real> void addTo(Matrix<Real> x, Matrix<const Real> y) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j)
      x.at(i, j) += y.at(i, j);
}

/// Row-wise inner products.
template <typename Real>
Real rowDot(Matrix<const Real> x, Matrix<const Real> y, int64_t i) {
  return dot(x.row(i), y.row(i), x.columns);
}

/// The exponentials of a chunk, none of a positive number.
template <typename Real> struct Decay {
  const Real *gamma;
  int64_t rows;

  Real eta(int64_t i) const { return std::exp(gamma[i]); }
  Real rho(int64_t i) const { return std::exp(gamma[rows - 1] - gamma[i]); }
  Real whole() const { return std::exp(gamma[rows - 1]); }
  /// Gamma[i,j]; chosen, so that nothing above the diagonal is exponentiated.
  Real between(int64_t i, int64_t j) const {
    return i >= j ? std::exp(gamma[i] - gamma[j]) : Real(0);
  }
};
} // namespace

/// Shapes of what all five ops share; Nc of it checked against the table.
template <typename Real>
static void checkChunks(Checks &checks, const SeqTable &shape,
                        absl::Span<const int32_t> seq, const DeltaDims &dims,
                        absl::Span<const Real> kn,
                        absl::Span<const Real> gamma) {
  checks.documents(shape, seq)
      .multiple("value heads", dims.valueHeads, "key heads", dims.keyHeads)
      .shape("kn", kn.size(), {shape.tokens, dims.keyHeads, dims.keyDim})
      .shape("gamma", gamma.size(), {shape.chunks(), dims.valueHeads, kChunk});
}

template <typename Real>
absl::Status gdnPrep(absl::Span<const Real> q, absl::Span<const Real> k,
                     absl::Span<const Real> g, absl::Span<const Real> beta,
                     const SeqTable &shape, absl::Span<const int32_t> seq,
                     const DeltaDims &dims, double eps, absl::Span<Real> qn,
                     absl::Span<Real> kn, absl::Span<Real> qr,
                     absl::Span<Real> kr, absl::Span<Real> gamma,
                     absl::Span<Real> tinv) {
  int64_t tokens = shape.tokens, heads = dims.valueHeads;
  Checks checks("gdn_prep");
  checkChunks<Real>(checks, shape, seq, dims, kn, gamma);
  checks.positive("eps", eps)
      .shape("q", q.size(), {tokens, dims.keyHeads, dims.keyDim})
      .shape("k", k.size(), {tokens, dims.keyHeads, dims.keyDim})
      .shape("g", g.size(), {tokens, heads})
      .shape("beta", beta.size(), {tokens, heads})
      .shape("qn", qn.size(), {tokens, dims.keyHeads, dims.keyDim})
      .shape("qr", qr.size(), {tokens, dims.keyHeads})
      .shape("kr", kr.size(), {tokens, dims.keyHeads})
      .shape("tinv", tinv.size(), {shape.chunks(), heads, kChunk, kChunk})
      .notPositive("g", g);
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  for (int64_t i = 0; i < tokens * dims.keyHeads; ++i) {
    int64_t at = i * dims.keyDim;
    qr[i] = l2Normalize(&q[at], dims.keyDim, eps, &qn[at]);
    kr[i] = l2Normalize(&k[at], dims.keyDim, eps, &kn[at]);
  }
  Buffer<Real> gramBuffer;
  for (int64_t chunk = 0; chunk < documents.chunks(); ++chunk)
    for (int64_t h = 0; h < heads; ++h) {
      Tile tile(dims, documents, chunk, h);
      int64_t rows = tile.rows;
      auto gram = gramBuffer.shaped(rows, rows);
      multiply<Real>(gram, tile.keys(kn), tile.keys(kn).transposed());

      Real *sums = tile.vector(gamma), sum = 0;
      for (int64_t i = 0; i < kChunk; ++i)
        sums[i] = i < rows ? sum += tile.gate(g, i) : sum;

      // Forward substitution, a row from the rows above it, without decay: the
      // decay is a similarity and multiplies the inverse afterwards.
      Real *whole = tinv.data() + tile.slot * kChunk * kChunk;
      std::fill_n(whole, kChunk * kChunk, Real(0));
      auto inverse = tile.square(tinv);
      for (int64_t i = 0; i < rows; ++i) {
        inverse.at(i, i) = 1;
        for (int64_t m = 0; m < i; ++m) {
          Real a = tile.gate(beta, i) * gram.at(i, m);
          for (int64_t j = 0; j <= m; ++j)
            inverse.at(i, j) -= a * inverse.at(m, j);
        }
      }
      Decay<Real> decay{sums, rows};
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < i; ++j)
          inverse.at(i, j) *= decay.between(i, j);
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gdnScan(absl::Span<const Real> kn, absl::Span<const Real> v,
                     absl::Span<const Real> beta, absl::Span<const Real> gamma,
                     absl::Span<const Real> tinv, const SeqTable &shape,
                     absl::Span<const int32_t> seq, const DeltaDims &dims,
                     absl::Span<Real> states, absl::Span<Real> vnew,
                     absl::Span<const Real> initialStates,
                     absl::Span<Real> finalStates) {
  int64_t heads = dims.valueHeads, chunks = shape.chunks();
  Checks checks("gdn_scan");
  checkChunks(checks, shape, seq, dims, kn, gamma);
  checks.shape("v", v.size(), {shape.tokens, heads, dims.valueDim})
      .shape("beta", beta.size(), {shape.tokens, heads})
      .shape("tinv", tinv.size(), {chunks, heads, kChunk, kChunk})
      .shape("states", states.size(),
             {chunks, heads, dims.keyDim, dims.valueDim})
      .shape("vnew", vnew.size(), {chunks, heads, kChunk, dims.valueDim})
      .optionalShape("initial states", initialStates.size(),
                     {shape.maxDocs, heads, dims.keyDim, dims.valueDim})
      .optionalShape("final states", finalStates.size(),
                     {shape.maxDocs, heads, dims.keyDim, dims.valueDim});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  Buffer<Real> stateBuffer, rowBuffer;
  auto state = stateBuffer.shaped(dims.keyDim, dims.valueDim);
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t slot = (doc * heads + h) * dims.keyDim * dims.valueDim;
      if (initialStates.empty())
        std::fill(state.row(0), state.row(dims.keyDim), Real(0));
      else
        std::copy_n(initialStates.data() + slot, dims.keyDim * dims.valueDim,
                    state.row(0));
      for (int64_t chunk = documents.firstChunk(doc);
           chunk < documents.endChunk(doc); ++chunk) {
        Tile tile(dims, documents, chunk, h);
        Decay<Real> decay{tile.vector(gamma), tile.rows};
        auto keys = tile.keys(kn);
        std::copy(state.row(0), state.row(dims.keyDim),
                  tile.state(states).row(0));

        // b (V - eta (K S))
        auto rows = rowBuffer.shaped(tile.rows, dims.valueDim);
        multiply<Real>(rows, keys, state);
        for (int64_t i = 0; i < tile.rows; ++i) {
          Real eta = decay.eta(i), strength = tile.gate(beta, i);
          for (int64_t j = 0; j < dims.valueDim; ++j)
            rows.at(i, j) =
                strength * (tile.values(v).at(i, j) - eta * rows.at(i, j));
        }
        auto written = tile.chunkValues(vnew);
        multiply<Real>(written, tile.square(tinv), rows);
        clearTail(tile, written);

        for (int64_t i = 0; i < tile.rows; ++i) {
          Real rho = decay.rho(i);
          for (int64_t j = 0; j < dims.valueDim; ++j)
            rows.at(i, j) = rho * written.at(i, j);
        }
        scaleRows(state, [&](int64_t) { return decay.whole(); });
        multiply<Real>(state, keys.transposed(), rows, /*accumulate=*/true);
      }
      if (!finalStates.empty())
        std::copy(state.row(0), state.row(dims.keyDim),
                  finalStates.data() + slot);
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gdnOut(absl::Span<const Real> qn, absl::Span<const Real> kn,
                    absl::Span<const Real> gamma, absl::Span<const Real> states,
                    absl::Span<const Real> vnew, const SeqTable &shape,
                    absl::Span<const int32_t> seq, const DeltaDims &dims,
                    double scale, absl::Span<Real> o) {
  int64_t heads = dims.valueHeads, chunks = shape.chunks();
  Checks checks("gdn_out");
  checkChunks(checks, shape, seq, dims, kn, gamma);
  checks.shape("qn", qn.size(), {shape.tokens, dims.keyHeads, dims.keyDim})
      .shape("states", states.size(),
             {chunks, heads, dims.keyDim, dims.valueDim})
      .shape("vnew", vnew.size(), {chunks, heads, kChunk, dims.valueDim})
      .shape("o", o.size(), {shape.tokens, heads, dims.valueDim});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  Buffer<Real> scoreBuffer;
  for (int64_t chunk = 0; chunk < documents.chunks(); ++chunk)
    for (int64_t h = 0; h < heads; ++h) {
      Tile tile(dims, documents, chunk, h);
      Decay<Real> decay{tile.vector(gamma), tile.rows};
      auto scores = scoreBuffer.shaped(tile.rows, tile.rows);
      multiply<Real>(scores, tile.keys(qn), tile.keys(kn).transposed());
      for (int64_t i = 0; i < tile.rows; ++i)
        for (int64_t j = 0; j < tile.rows; ++j)
          scores.at(i, j) =
              i >= j ? Real(scale) * scores.at(i, j) * decay.between(i, j)
                     : Real(0);
      auto out = tile.values(o);
      multiply<Real>(out, tile.keys(qn), tile.state(states));
      scaleRows(out, [&](int64_t i) { return Real(scale) * decay.eta(i); });
      multiply<Real>(out, scores, tile.chunkValues(vnew), /*accumulate=*/true);
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status gdnScanBwd(absl::Span<const Real> qn, absl::Span<const Real> kn,
                        absl::Span<const Real> dO, absl::Span<const Real> beta,
                        absl::Span<const Real> gamma,
                        absl::Span<const Real> tinv, const SeqTable &shape,
                        absl::Span<const int32_t> seq, const DeltaDims &dims,
                        double scale, absl::Span<Real> dstates,
                        absl::Span<Real> z, absl::Span<const Real> dFinalStates,
                        absl::Span<Real> dInitialStates) {
  int64_t heads = dims.valueHeads, chunks = shape.chunks();
  Checks checks("gdn_scan_bwd");
  checkChunks(checks, shape, seq, dims, kn, gamma);
  checks.shape("qn", qn.size(), {shape.tokens, dims.keyHeads, dims.keyDim})
      .shape("do", dO.size(), {shape.tokens, heads, dims.valueDim})
      .shape("beta", beta.size(), {shape.tokens, heads})
      .shape("tinv", tinv.size(), {chunks, heads, kChunk, kChunk})
      .shape("dstates", dstates.size(),
             {chunks, heads, dims.keyDim, dims.valueDim})
      .shape("z", z.size(), {chunks, heads, kChunk, dims.valueDim})
      .optionalShape("final state gradients", dFinalStates.size(),
                     {shape.maxDocs, heads, dims.keyDim, dims.valueDim})
      .optionalShape("initial state gradients", dInitialStates.size(),
                     {shape.maxDocs, heads, dims.keyDim, dims.valueDim});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  Buffer<Real> stateBuffer, scoreBuffer, rowBuffer;
  auto state = stateBuffer.shaped(dims.keyDim, dims.valueDim);
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t slot = (doc * heads + h) * dims.keyDim * dims.valueDim;
      if (dFinalStates.empty())
        std::fill(state.row(0), state.row(dims.keyDim), Real(0));
      else
        std::copy_n(dFinalStates.data() + slot, dims.keyDim * dims.valueDim,
                    state.row(0));
      for (int64_t chunk = documents.endChunk(doc) - 1;
           chunk >= documents.firstChunk(doc); --chunk) {
        Tile tile(dims, documents, chunk, h);
        Decay<Real> decay{tile.vector(gamma), tile.rows};
        auto keys = tile.keys(kn), queries = tile.keys(qn);
        auto dOut = tile.values(dO);
        std::copy(state.row(0), state.row(dims.keyDim),
                  tile.state(dstates).row(0));

        // E = rho (K D) + P^T dO
        auto scores = scoreBuffer.shaped(tile.rows, tile.rows);
        multiply<Real>(scores, queries, keys.transposed());
        for (int64_t i = 0; i < tile.rows; ++i)
          for (int64_t j = 0; j < tile.rows; ++j)
            scores.at(i, j) =
                i >= j ? Real(scale) * scores.at(i, j) * decay.between(i, j)
                       : Real(0);
        auto rows = rowBuffer.shaped(tile.rows, dims.valueDim);
        multiply<Real>(rows, keys, state);
        scaleRows(rows, [&](int64_t i) { return decay.rho(i); });
        multiply<Real>(rows, scores.transposed(), dOut, /*accumulate=*/true);
        auto solved = tile.chunkValues(z);
        multiply<Real>(solved, tile.square(tinv).transposed(), rows);
        clearTail(tile, solved);

        scaleRows(state, [&](int64_t) { return decay.whole(); });
        for (int64_t i = 0; i < tile.rows; ++i) {
          Real factor = -decay.eta(i) * tile.gate(beta, i);
          for (int64_t j = 0; j < dims.valueDim; ++j)
            rows.at(i, j) = factor * solved.at(i, j);
        }
        multiply<Real>(state, keys.transposed(), rows, /*accumulate=*/true);
        for (int64_t i = 0; i < tile.rows; ++i) {
          Real factor = Real(scale) * decay.eta(i);
          for (int64_t j = 0; j < dims.valueDim; ++j)
            rows.at(i, j) = factor * dOut.at(i, j);
        }
        multiply<Real>(state, queries.transposed(), rows, /*accumulate=*/true);
      }
      if (!dInitialStates.empty())
        std::copy(state.row(0), state.row(dims.keyDim),
                  dInitialStates.data() + slot);
    }
  return absl::OkStatus();
}

namespace {
/// KERNELS.md 2.2 for one chunk and value head, in its notation.
template <typename Real> class LocalBackward {
public:
  struct Operands {
    absl::Span<const Real> qn, kn, v, dO, beta, gamma, states, dstates, vnew, z;
  };
  struct Results {
    absl::Span<Real> dUnitQ, dUnitK, dv, dg, dbeta; // dUnit* are added to
  };

  void run(const Tile &tile, const Operands &in, Real scale, Results out) {
    int64_t n = tile.rows, keyDim = tile.dims.keyDim;
    Decay<Real> decay{tile.vector(in.gamma), n};
    auto queries = tile.keys(in.qn), keys = tile.keys(in.kn);
    auto dOut = tile.values(in.dO);
    auto state = tile.state(in.states), dState = tile.state(in.dstates);
    auto written = tile.chunkValues(in.vnew), solved = tile.chunkValues(in.z);
    auto strength = [&](int64_t i) { return tile.gate(in.beta, i); };

    auto qk = buffers[0].shaped(n, n), kk = buffers[1].shaped(n, n);
    multiply<Real>(qk, queries, keys.transposed());
    multiply<Real>(kk, keys, keys.transposed());

    // Hq = s dP * Gamma, H = dA * Gamma, J = b H; dA = -Z V'^T below the
    // diagonal.
    auto hq = buffers[2].shaped(n, n), h = buffers[3].shaped(n, n);
    auto j = buffers[4].shaped(n, n);
    multiply<Real>(hq, dOut, written.transposed());
    multiply<Real>(h, solved, written.transposed());
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < n; ++c) {
        Real between = decay.between(r, c);
        hq.at(r, c) = r >= c ? scale * hq.at(r, c) * between : Real(0);
        h.at(r, c) = r > c ? -h.at(r, c) * between : Real(0);
        j.at(r, c) = strength(r) * h.at(r, c);
      }

    auto x = buffers[5].shaped(n, keyDim), y = buffers[6].shaped(n, keyDim);
    auto zs = buffers[7].shaped(n, keyDim);
    multiply<Real>(x, dOut, state.transposed());
    scaleRows(x, [&](int64_t i) { return scale * decay.eta(i); });
    multiply<Real>(y, written, dState.transposed());
    scaleRows(y, [&](int64_t i) { return decay.rho(i); });
    multiply<Real>(zs, solved, state.transposed());

    // Gates, from X, Y and Z S^T before they become parts of dq and dk.
    std::vector<Real> dGamma(n);
    Real last = 0;
    for (int64_t i = 0; i < n; ++i) {
      Real eta = decay.eta(i), kappa = rowDot<Real>(zs, keys, i);
      Real leaves = rowDot<Real>(y, keys, i);
      Real dBeta =
          dot(solved.row(i), tile.values(in.v).row(i), tile.dims.valueDim) -
          eta * kappa;
      Real dGam =
          rowDot<Real>(x, queries, i) - leaves - eta * strength(i) * kappa;
      for (int64_t c = 0; c < n; ++c) {
        dBeta += h.at(i, c) * kk.at(i, c);
        // Row sum minus column sum of N = Hq * QK^T + J * KK^T.
        dGam += hq.at(i, c) * qk.at(i, c) + j.at(i, c) * kk.at(i, c);
        dGam -= hq.at(c, i) * qk.at(c, i) + j.at(c, i) * kk.at(c, i);
      }
      tile.gate(out.dbeta, i) = dBeta;
      dGamma[i] = dGam;
      last += leaves;
    }
    Real kept = 0;
    for (int64_t i = 0; i < keyDim; ++i)
      kept += rowDot<Real>(state, dState, i);
    dGamma[n - 1] += last + decay.whole() * kept;
    Real sum = 0;
    for (int64_t i = n - 1; i >= 0; --i)
      tile.gate(out.dg, i) = sum += dGamma[i];

    // dq^ = X + Hq K
    multiply<Real>(x, hq, keys, /*accumulate=*/true);
    addTo<Real>(tile.keys(out.dUnitQ), x);
    // dk^ = Y - eta b (Z S^T) + Hq^T Q + (J + J^T) K
    scaleRows(zs, [&](int64_t i) { return -decay.eta(i) * strength(i); });
    addTo<Real>(y, zs);
    multiply<Real>(y, hq.transposed(), queries, /*accumulate=*/true);
    multiply<Real>(y, j, keys, /*accumulate=*/true);
    multiply<Real>(y, j.transposed(), keys, /*accumulate=*/true);
    addTo<Real>(tile.keys(out.dUnitK), y);
    // dv = b Z
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < tile.dims.valueDim; ++c)
        tile.values(out.dv).at(i, c) = strength(i) * solved.at(i, c);
  }

private:
  Buffer<Real> buffers[8];
};
} // namespace

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
            absl::Span<Real> dbeta) {
  int64_t tokens = shape.tokens, heads = dims.valueHeads;
  int64_t chunks = shape.chunks(), keyDim = dims.keyDim;
  Checks checks("gdn_local_bwd");
  checkChunks(checks, shape, seq, dims, kn, gamma);
  checks.shape("qn", qn.size(), {tokens, dims.keyHeads, keyDim})
      .shape("qr", qr.size(), {tokens, dims.keyHeads})
      .shape("kr", kr.size(), {tokens, dims.keyHeads})
      .shape("v", v.size(), {tokens, heads, dims.valueDim})
      .shape("do", dO.size(), {tokens, heads, dims.valueDim})
      .shape("beta", beta.size(), {tokens, heads})
      .shape("states", states.size(), {chunks, heads, keyDim, dims.valueDim})
      .shape("dstates", dstates.size(), {chunks, heads, keyDim, dims.valueDim})
      .shape("vnew", vnew.size(), {chunks, heads, kChunk, dims.valueDim})
      .shape("z", z.size(), {chunks, heads, kChunk, dims.valueDim})
      .shape("dq", dq.size(), {tokens, dims.keyHeads, keyDim})
      .shape("dk", dk.size(), {tokens, dims.keyHeads, keyDim})
      .shape("dv", dv.size(), {tokens, heads, dims.valueDim})
      .shape("dg", dg.size(), {tokens, heads})
      .shape("dbeta", dbeta.size(), {tokens, heads});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  std::vector<Real> dUnitQ(qn.size(), 0), dUnitK(kn.size(), 0);
  LocalBackward<Real> local;
  for (int64_t chunk = 0; chunk < documents.chunks(); ++chunk)
    for (int64_t h = 0; h < heads; ++h)
      local.run(
          Tile(dims, documents, chunk, h),
          {qn, kn, v, dO, beta, gamma, states, dstates, vnew, z}, Real(scale),
          {absl::MakeSpan(dUnitQ), absl::MakeSpan(dUnitK), dv, dg, dbeta});
  for (int64_t i = 0; i < tokens * dims.keyHeads; ++i) {
    int64_t at = i * keyDim;
    l2NormalizeBwd(&dUnitQ[at], &qn[at], qr[i], keyDim, &dq[at]);
    l2NormalizeBwd(&dUnitK[at], &kn[at], kr[i], keyDim, &dk[at]);
  }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status gdnPrep<Real>(                                         \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, const SeqTable &, absl::Span<const int32_t>,     \
      const DeltaDims &, double, absl::Span<Real>, absl::Span<Real>,           \
      absl::Span<Real>, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>); \
  template absl::Status gdnScan<Real>(                                         \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const DeltaDims &, absl::Span<Real>,          \
      absl::Span<Real>, absl::Span<const Real>, absl::Span<Real>);             \
  template absl::Status gdnOut<Real>(                                          \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const SeqTable &,        \
      absl::Span<const int32_t>, const DeltaDims &, double, absl::Span<Real>); \
  template absl::Status gdnScanBwd<Real>(                                      \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const DeltaDims &, double,  \
      absl::Span<Real>, absl::Span<Real>, absl::Span<const Real>,              \
      absl::Span<Real>);                                                       \
  template absl::Status gdnLocalBwd<Real>(                                     \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const DeltaDims &, double,  \
      absl::Span<Real>, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>,  \
      absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
