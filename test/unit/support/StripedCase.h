#ifndef QWEN35_TEST_UNIT_SUPPORT_STRIPEDCASE_H
#define QWEN35_TEST_UNIT_SUPPORT_STRIPEDCASE_H

// Cases for kernels that work on one rank's stripes of a row.

#include "dialect/Qwen35/Reference/DeltaChunk.h"
#include "dialect/Qwen35/Reference/Stripes.h"
#include "test/support/Striped.h"
#include "test/unit/support/SequenceCase.h"

#include <limits>

namespace qwen35::codegen {

using test::StripedRow;
using Vector = std::vector<double>;

inline Array withValues(const std::vector<int64_t> &shape,
                        const Vector &values) {
  Array array = f32(shape);
  setValues(array, values);
  return array;
}

inline Array words(const std::vector<int32_t> &values) {
  Array array = i32({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    array.set(i, values[i]);
  return array;
}

/// One rank of a row: its tables and attributes.
struct Rank {
  StripedRow row;
  int64_t rank;
  std::vector<int32_t> seq, stripes;

  Rank(const StripedRow &row, int64_t rank)
      : row(row), rank(rank), seq(row.seq(rank)), stripes(row.stripes(rank)) {}

  int64_t tokens() const { return row.local().tokens; }
  SeqTable shape() const { return row.local(); }
  reference::StripeView view() const { return {row.ranks, stripes}; }
  std::string attrs(const std::string &more = "") const {
    return "{tokens = " + std::to_string(tokens()) +
           ", max_docs = " + std::to_string(row.local().maxDocs) + more + "}";
  }
  std::string name() const {
    return row.name() + ", rank " + std::to_string(rank);
  }
};

/// Rows that between them take every branch, seen by a rank whose stripes are
/// neighbours or by one whose stripes are not.
inline std::vector<Rank> ranks() {
  return {
      {{{20, 12}, 32, 1}, 0},              // one document over the border
      {{{23, 1, 1, 47, 1, 23}, 96, 2}, 1}, // single tokens around the ends
      {{{10, 60, 20}, 96, 2}, 0},          // over two ends, padding
      {{{24, 24, 24, 24}, 96, 2}, 1},      // on every end
      {{{150, 130}, 280, 2}, 1},           // stripes of more than one chunk
      {{{80, 9, 60}, 160, 8}, 3},          // 16 stripes
  };
}

/// Those that a kernel which takes long to compile is tried with.
inline std::vector<Rank> fewRanks() {
  std::vector<Rank> all = ranks();
  return {all[1], all[2], all[4]};
}

/// Operands of the chunk ops on one rank; unused chunks hold NaN.
struct ChunkCase {
  Rank rank;
  reference::DeltaDims dims;
  double scale = 0.25;
  Array kn, qn, v, dO, beta, gamma, tinv, states;

  /// `kind` is the type of activations and of what stands for them.
  ChunkCase(const Rank &rank, const reference::DeltaDims &d, double decay,
            Kind kind = Kind::F32)
      : rank(rank), dims(d),
        kn(zeros(kind, {rank.tokens(), d.keyHeads, d.keyDim})), qn(kn),
        v(random(kind, {rank.tokens(), d.valueHeads, d.valueDim}, 3)),
        dO(random(kind, {rank.tokens(), d.valueHeads, d.valueDim}, 4)),
        beta(random({rank.tokens(), d.valueHeads}, 5)),
        gamma(f32({chunks(), d.valueHeads, 64})),
        tinv(zeros(kind, {chunks(), d.valueHeads, 64, 64})),
        states(random({2, d.valueHeads, d.keyDim, d.valueDim}, 6)) {
    for (int64_t i = 0; i < beta.size(); ++i)
      beta.set(i, (beta[i] + 1) / 2);
    Array g = random({rank.tokens(), d.valueHeads}, 7);
    for (int64_t i = 0; i < g.size(); ++i)
      g.set(i, -decay * (g[i] + 1) / 2);
    double nan = std::numeric_limits<double>::quiet_NaN();
    Vector qs(kn.size()), ks(kn.size());
    Vector qr(rank.tokens() * d.keyHeads), kr(qr);
    Vector gammas(gamma.size(), nan), tinvs(tinv.size(), nan);
    expectOk(reference::gdnPrep<double>(
        valuesOf(random(kn.shape(), 1)), valuesOf(random(kn.shape(), 2)),
        valuesOf(g), valuesOf(beta), rank.shape(), rank.seq, dims, 1e-6,
        absl::MakeSpan(qs), absl::MakeSpan(ks), absl::MakeSpan(qr),
        absl::MakeSpan(kr), absl::MakeSpan(gammas), absl::MakeSpan(tinvs)));
    setValues(qn, qs);
    setValues(kn, ks);
    setValues(gamma, gammas);
    setValues(tinv, tinvs);
  }

  int64_t chunks() const { return rank.shape().chunks(); }
  std::string withScale() const { return rank.attrs(", scale = 0.25 : f64"); }
  std::vector<int64_t> stateShape() const {
    return {chunks(), dims.valueHeads, dims.keyDim, dims.valueDim};
  }
  std::vector<int64_t> tileShape() const {
    return {chunks(), dims.valueHeads, 64, dims.valueDim};
  }
  /// Elements of a chunk-major result of so many that belong to used chunks.
  int64_t usedOf(int64_t size) const {
    return rank.seq[SeqTable::kNumChunks] * size / chunks();
  }
  /// A chunk-major result, as far as its chunks are used.
  void expectUsed(const Array &got, const Vector &want,
                  const std::string &what) const {
    int64_t used = usedOf(got.size());
    Vector values = valuesOf(got);
    values.resize(used);
    expectNear(withValues({used}, values),
               Vector(want.begin(), want.begin() + used), 2e-5, what);
  }
};

} // namespace qwen35::codegen

#endif // QWEN35_TEST_UNIT_SUPPORT_STRIPEDCASE_H
