#ifndef QWEN35_TEST_UNIT_REFERENCE_DELTACASE_H
#define QWEN35_TEST_UNIT_REFERENCE_DELTACASE_H

#include "dialect/Qwen35/Reference/DeltaChunk.h"
#include "test/support/Numeric.h"

#include "absl/types/span.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace qwen35::test {

template <typename To, typename From>
std::vector<To> convert(const std::vector<From> &x) {
  return std::vector<To>(x.begin(), x.end());
}

/// What a delta rule computes, forward and backward.
template <typename Real> struct DeltaResults {
  std::vector<Real> o, dq, dk, dv, dg, dbeta;

  DeltaResults(const reference::DeltaDims &dims, int64_t tokens)
      : o(poison<Real>(tokens * dims.valueHeads * dims.valueDim)),
        dq(poison<Real>(tokens * dims.keyHeads * dims.keyDim)), dk(dq), dv(o),
        dg(poison<Real>(tokens * dims.valueHeads)), dbeta(dg) {}

  std::vector<std::pair<std::string, const std::vector<Real> *>> named() const {
    return {{"o", &o},   {"dq", &dq}, {"dk", &dk},
            {"dv", &dv}, {"dg", &dg}, {"dbeta", &dbeta}};
  }
};

/// Operands of a delta rule over packed documents and a cotangent.
struct DeltaCase {
  DocumentTable table;
  reference::DeltaDims dims;
  std::vector<double> q, k, v, g, beta, dO;
  double scale, eps = 1e-6;

  /// Ordinary values: moderate decay, every strength.
  DeltaCase(DocumentTable table, const reference::DeltaDims &dims,
            uint64_t seed = 1)
      : table(std::move(table)), dims(dims),
        scale(1 / std::sqrt(double(dims.keyDim))) {
    Random random(seed);
    int64_t tokens = this->table.shape.tokens;
    q = random.normals(tokens * dims.keyHeads * dims.keyDim);
    k = random.normals(q.size());
    v = random.normals(tokens * dims.valueHeads * dims.valueDim);
    dO = random.normals(v.size());
    for (int64_t i = 0; i < tokens * dims.valueHeads; ++i) {
      g.push_back(-0.3 * random.uniform());
      beta.push_back(random.uniform());
    }
  }

  int64_t tokens() const { return table.shape.tokens; }

  /// The recurrence, token by token.
  template <typename Real> DeltaResults<Real> byToken() const {
    auto q = convert<Real>(this->q), k = convert<Real>(this->k);
    auto v = convert<Real>(this->v), g = convert<Real>(this->g);
    auto beta = convert<Real>(this->beta), dO = convert<Real>(this->dO);
    DeltaResults<Real> r(dims, tokens());
    EXPECT_TRUE(reference::gatedDeltaRule<Real>(q, k, v, g, beta, table.shape,
                                                table.words, dims, scale, eps,
                                                absl::MakeSpan(r.o))
                    .ok());
    EXPECT_TRUE(reference::gatedDeltaRuleBwd<Real>(
                    dO, q, k, v, g, beta, table.shape, table.words, dims, scale,
                    eps, absl::MakeSpan(r.dq), absl::MakeSpan(r.dk),
                    absl::MakeSpan(r.dv), absl::MakeSpan(r.dg),
                    absl::MakeSpan(r.dbeta))
                    .ok());
    return r;
  }

  /// The five chunk ops. Whatever they need not write holds NaN before, and
  /// whatever they must not read holds NaN between them: unused chunks, and
  /// the rows of a chunk past its last token.
  template <typename Real> DeltaResults<Real> byChunk() const {
    auto q = convert<Real>(this->q), k = convert<Real>(this->k);
    auto v = convert<Real>(this->v), g = convert<Real>(this->g);
    auto beta = convert<Real>(this->beta), dO = convert<Real>(this->dO);
    const SeqTable &shape = table.shape;
    int64_t slots = shape.chunks() * dims.valueHeads;
    int64_t stateSize = dims.keyDim * dims.valueDim;
    DeltaResults<Real> r(dims, tokens());
    auto qn = poison<Real>(q.size()), kn = qn;
    auto qr = poison<Real>(tokens() * dims.keyHeads), kr = qr;
    auto gamma = poison<Real>(slots * 64), tinv = poison<Real>(slots * 64 * 64);
    auto states = poison<Real>(slots * stateSize), dstates = states;
    auto vnew = poison<Real>(slots * 64 * dims.valueDim), z = vnew;
    auto check = [](const absl::Status &status) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    };
    check(reference::gdnPrep<Real>(
        q, k, g, beta, shape, table.words, dims, eps, absl::MakeSpan(qn),
        absl::MakeSpan(kn), absl::MakeSpan(qr), absl::MakeSpan(kr),
        absl::MakeSpan(gamma), absl::MakeSpan(tinv)));
    expectTail(gamma, tinv);
    check(reference::gdnScan<Real>(kn, v, beta, gamma, tinv, shape, table.words,
                                   dims, absl::MakeSpan(states),
                                   absl::MakeSpan(vnew)));
    check(reference::gdnScanBwd<Real>(
        qn, kn, dO, beta, gamma, tinv, shape, table.words, dims, scale,
        absl::MakeSpan(dstates), absl::MakeSpan(z)));
    poisonTail(vnew);
    poisonTail(z);
    check(reference::gdnOut<Real>(qn, kn, gamma, states, vnew, shape,
                                  table.words, dims, scale,
                                  absl::MakeSpan(r.o)));
    check(reference::gdnLocalBwd<Real>(
        qn, kn, qr, kr, v, dO, beta, gamma, states, dstates, vnew, z, shape,
        table.words, dims, scale, absl::MakeSpan(r.dq), absl::MakeSpan(r.dk),
        absl::MakeSpan(r.dv), absl::MakeSpan(r.dg), absl::MakeSpan(r.dbeta)));
    return r;
  }

private:
  int64_t chunkRows(int64_t chunk) const {
    return table.words[table.shape.chunkRows() + chunk];
  }

  /// Rows past the last: zero on arrival, as gdnScan and gdnScanBwd promise,
  /// then NaN.
  template <typename Real> void poisonTail(std::vector<Real> &rows) const {
    for (int64_t chunk = 0; chunk < table.shape.chunks(); ++chunk)
      for (int64_t h = 0; chunkRows(chunk) > 0 && h < dims.valueHeads; ++h)
        for (int64_t i = chunkRows(chunk) * dims.valueDim;
             i < 64 * dims.valueDim; ++i) {
          Real &x =
              rows[(chunk * dims.valueHeads + h) * 64 * dims.valueDim + i];
          EXPECT_EQ(x, 0);
          x = quietNan<Real>();
        }
  }

  /// gdnPrep's promise for rows past the last, and nothing in unused chunks.
  template <typename Real>
  void expectTail(const std::vector<Real> &gamma,
                  const std::vector<Real> &tinv) const {
    for (int64_t chunk = 0; chunk < table.shape.chunks(); ++chunk)
      for (int64_t h = 0; h < dims.valueHeads; ++h) {
        const Real *sums = &gamma[(chunk * dims.valueHeads + h) * 64];
        const Real *inverse = &tinv[(chunk * dims.valueHeads + h) * 64 * 64];
        int64_t n = chunkRows(chunk);
        if (n == 0) {
          EXPECT_TRUE(std::isnan(sums[0]) && std::isnan(inverse[0]));
          continue;
        }
        for (int64_t i = 0; i < 64; ++i) {
          if (i >= n && !std::isnan(sums[n - 1])) {
            EXPECT_EQ(sums[i], sums[n - 1]);
          }
          for (int64_t j = 0; j < 64; ++j)
            if (j > i || i >= n) {
              EXPECT_EQ(inverse[i * 64 + j], 0);
            }
        }
      }
  }
};

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_REFERENCE_DELTACASE_H
