#include "dialect/Qwen35/Reference/Attention.h"

#include "dialect/Qwen35/Reference/Checks.h"
#include "dialect/Qwen35/Reference/Gemm.h"
#include "dialect/Qwen35/Reference/Scalar.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen35::reference {

template <typename Real>
void ropeRows(absl::Span<const int64_t> positions, double theta,
              int64_t rotaryDim, absl::Span<Real> table) {
  int64_t pairs = rotaryDim / 2;
  std::vector<double> frequency(pairs);
  for (int64_t j = 0; j < pairs; ++j)
    frequency[j] = std::pow(theta, -2.0 * j / rotaryDim);
  Real *out = table.data();
  for (int64_t position : positions)
    for (int64_t j = 0; j < pairs; ++j) {
      double angle = position * frequency[j];
      *out++ = static_cast<Real>(std::cos(angle));
      *out++ = static_cast<Real>(std::sin(angle));
    }
}

template <typename Real>
absl::Status ropeTable(const SeqTable &shape, absl::Span<const int32_t> seq,
                       double theta, int64_t rotaryDim,
                       absl::Span<Real> table) {
  Checks checks("rope_table");
  checks.documents(shape, seq)
      .positive("theta", theta)
      .multiple("rotary_dim", rotaryDim, "a pair", 2)
      .shape("table", table.size(), {shape.tokens, rotaryDim / 2, 2});
  if (!checks.ok())
    return checks.status();
  Documents documents(shape, seq);
  std::vector<int64_t> positions;
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    for (int64_t t = documents.begin(doc); t < documents.end(doc); ++t)
      positions.push_back(t - documents.begin(doc));
  ropeRows(positions, theta, rotaryDim, table);
  return absl::OkStatus();
}

template <typename Real>
absl::Status rope(absl::Span<const Real> x, absl::Span<const Real> table,
                  int64_t tokens, int64_t heads, int64_t headDim,
                  int64_t rotaryDim, bool inverse, absl::Span<Real> y) {
  Checks checks("rope");
  checks.multiple("rotary_dim", rotaryDim, "a pair", 2)
      .range("rotary_dim", rotaryDim, 0, headDim)
      .shape("x", x.size(), {tokens, heads, headDim})
      .shape("table", table.size(), {tokens, rotaryDim / 2, 2})
      .shape("y", y.size(), {tokens, heads, headDim});
  if (!checks.ok())
    return checks.status();
  int64_t pairs = rotaryDim / 2;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const Real *in = x.data() + (t * heads + h) * headDim;
      Real *out = y.data() + (t * heads + h) * headDim;
      for (int64_t j = 0; j < pairs; ++j) {
        Real c = table[(t * pairs + j) * 2], s = table[(t * pairs + j) * 2 + 1];
        s = inverse ? -s : s;
        out[j] = in[j] * c - in[j + pairs] * s;
        out[j + pairs] = in[j + pairs] * c + in[j] * s;
      }
      std::copy(in + rotaryDim, in + headDim, out + rotaryDim);
    }
  return absl::OkStatus();
}

namespace {
/// Queries whose scores are held at once.
constexpr int64_t kQueries = 64;

/// Rows `first` to `last` of head `head` of a [tokens, heads, dim] tensor.
template <typename T>
Matrix<T> headRows(absl::Span<T> x, int64_t first, int64_t last, int64_t heads,
                   int64_t head, int64_t dim) {
  return {x.data() + (first * heads + head) * dim, last - first, dim,
          heads * dim, 1};
}
} // namespace

template <typename Real>
static void checkAttention(Checks &checks, absl::Span<const Real> q,
                           absl::Span<const Real> k, absl::Span<const Real> v,
                           const SeqTable &shape, absl::Span<const int32_t> seq,
                           const AttentionDims &dims, double scale,
                           absl::Span<const Real> o,
                           absl::Span<const Real> lse) {
  auto [queryHeads, kvHeads, headDim] = dims;
  checks.documents(shape, seq)
      .positive("scale", scale)
      .multiple("query heads", queryHeads, "kv heads", kvHeads)
      .shape("q", q.size(), {shape.tokens, queryHeads, headDim})
      .shape("k", k.size(), {shape.tokens, kvHeads, headDim})
      .shape("v", v.size(), {shape.tokens, kvHeads, headDim})
      .shape("o", o.size(), {shape.tokens, queryHeads, headDim})
      .shape("lse", lse.size(), {shape.tokens, queryHeads});
}

/// Whole documents: queries and keys have the same rows.
static std::vector<AttentionSegment> segmentsOf(const Documents &documents) {
  std::vector<AttentionSegment> segments;
  for (int64_t doc = 0; doc < documents.count(); ++doc)
    segments.push_back({documents.begin(doc), documents.end(doc),
                        documents.begin(doc), documents.begin(doc)});
  return segments;
}

template <typename Real>
void attendSegments(absl::Span<const AttentionSegment> segments,
                    absl::Span<const Real> q, absl::Span<const Real> k,
                    absl::Span<const Real> v, const AttentionDims &dims,
                    double scale, absl::Span<Real> o, absl::Span<Real> lse) {
  auto [queryHeads, kvHeads, headDim] = dims;
  std::vector<Real> scores;
  for (const AttentionSegment &segment : segments) {
    int64_t end = segment.end, begin = segment.firstKey;
    int64_t shift = segment.firstQueryKey - segment.begin;
    scores.resize(kQueries * (end + shift - begin));
    for (int64_t h = 0; h < queryHeads; ++h) {
      int64_t kv = h / (queryHeads / kvHeads);
      for (int64_t first = segment.begin; first < end; first += kQueries) {
        int64_t last = std::min(first + kQueries, end);
        // Keys up to the last query of the block; a row uses its own part.
        auto keys = headRows(k, begin, last + shift, kvHeads, kv, headDim);
        auto values = headRows(v, begin, last + shift, kvHeads, kv, headDim);
        auto s = matrix(scores.data(), last - first, keys.rows);
        multiply<Real>(s, headRows(q, first, last, queryHeads, h, headDim),
                       keys.transposed());
        for (int64_t i = 0; i < s.rows; ++i) {
          Real *row = s.row(i);
          int64_t visible = first + shift - begin + i + 1;
          Real highest = *std::max_element(row, row + visible), sum = 0;
          for (int64_t u = 0; u < visible; ++u)
            sum += row[u] = std::exp(Real(scale) * (row[u] - highest));
          for (int64_t u = 0; u < visible; ++u)
            row[u] /= sum;
          lse[(first + i) * queryHeads + h] =
              Real(scale) * highest + std::log(sum);
          // One row at a time: nothing of a later token is read.
          multiply<Real>({o.data() + ((first + i) * queryHeads + h) * headDim,
                          1, headDim, headDim},
                         {row, 1, visible, visible},
                         {values.data, visible, headDim, values.rowStride});
        }
      }
    }
  }
}

template <typename Real>
absl::Status attention(absl::Span<const Real> q, absl::Span<const Real> k,
                       absl::Span<const Real> v, const SeqTable &shape,
                       absl::Span<const int32_t> seq, const AttentionDims &dims,
                       double scale, absl::Span<Real> o, absl::Span<Real> lse) {
  Checks checks("attention");
  checkAttention<Real>(checks, q, k, v, shape, seq, dims, scale, o, lse);
  if (!checks.ok())
    return checks.status();
  attendSegments(segmentsOf(Documents(shape, seq)), q, k, v, dims, scale, o,
                 lse);
  return absl::OkStatus();
}

template <typename Real>
void attendSegmentsBwd(absl::Span<const AttentionSegment> segments,
                       absl::Span<const Real> dO, absl::Span<const Real> q,
                       absl::Span<const Real> k, absl::Span<const Real> v,
                       absl::Span<const Real> o, absl::Span<const Real> lse,
                       const AttentionDims &dims, double scale,
                       absl::Span<Real> dq, absl::Span<Real> dk,
                       absl::Span<Real> dv) {
  auto [queryHeads, kvHeads, headDim] = dims;
  std::vector<Real> probabilities, gradients;
  for (const AttentionSegment &segment : segments) {
    int64_t end = segment.end, begin = segment.firstKey;
    int64_t shift = segment.firstQueryKey - segment.begin;
    probabilities.resize(kQueries * (end + shift - begin));
    gradients.resize(kQueries * (end + shift - begin));
    for (int64_t h = 0; h < queryHeads; ++h) {
      int64_t kv = h / (queryHeads / kvHeads);
      for (int64_t first = segment.begin; first < end; first += kQueries) {
        int64_t last = std::min(first + kQueries, end), lastKey = last + shift;
        auto keys = headRows(k, begin, lastKey, kvHeads, kv, headDim);
        auto values = headRows(v, begin, lastKey, kvHeads, kv, headDim);
        auto queries = headRows(q, first, last, queryHeads, h, headDim);
        auto outs = headRows(o, first, last, queryHeads, h, headDim);
        auto dOuts = headRows(dO, first, last, queryHeads, h, headDim);
        auto p = matrix(probabilities.data(), last - first, keys.rows);
        auto ds = matrix(gradients.data(), last - first, keys.rows);
        multiply<Real>(p, queries, keys.transposed());
        multiply<Real>(ds, dOuts, values.transposed());
        // p = exp(s - lse), ds = scale * p * (do v^T - <do, o>), and both are 0
        // where a key comes after the query: chosen, not multiplied.
        for (int64_t i = 0; i < p.rows; ++i) {
          Real logSum = lse[(first + i) * queryHeads + h];
          Real mean = dot(dOuts.row(i), outs.row(i), headDim);
          for (int64_t u = 0; u < p.columns; ++u) {
            bool visible = u <= first + shift - begin + i;
            Real score = Real(scale) * p.at(i, u) - logSum;
            Real weight = visible ? std::exp(score) : Real(0);
            p.at(i, u) = weight;
            ds.at(i, u) =
                visible ? Real(scale) * weight * (ds.at(i, u) - mean) : Real(0);
          }
        }
        multiply<Real>(headRows(dq, first, last, queryHeads, h, headDim), ds,
                       keys);
        multiply<Real>(headRows(dk, begin, lastKey, kvHeads, kv, headDim),
                       ds.transposed(), queries, /*accumulate=*/true);
        multiply<Real>(headRows(dv, begin, lastKey, kvHeads, kv, headDim),
                       p.transposed(), dOuts, /*accumulate=*/true);
      }
    }
  }
}

template <typename Real>
absl::Status attentionBwd(absl::Span<const Real> dO, absl::Span<const Real> q,
                          absl::Span<const Real> k, absl::Span<const Real> v,
                          absl::Span<const Real> o, absl::Span<const Real> lse,
                          const SeqTable &shape, absl::Span<const int32_t> seq,
                          const AttentionDims &dims, double scale,
                          absl::Span<Real> dq, absl::Span<Real> dk,
                          absl::Span<Real> dv) {
  auto [queryHeads, kvHeads, headDim] = dims;
  Checks checks("attention_bwd");
  checkAttention<Real>(checks, q, k, v, shape, seq, dims, scale, o, lse);
  checks.shape("do", dO.size(), {shape.tokens, queryHeads, headDim})
      .shape("dq", dq.size(), {shape.tokens, queryHeads, headDim})
      .shape("dk", dk.size(), {shape.tokens, kvHeads, headDim})
      .shape("dv", dv.size(), {shape.tokens, kvHeads, headDim});
  if (!checks.ok())
    return checks.status();
  std::fill(dk.begin(), dk.end(), Real(0));
  std::fill(dv.begin(), dv.end(), Real(0));
  attendSegmentsBwd(segmentsOf(Documents(shape, seq)), dO, q, k, v, o, lse,
                    dims, scale, dq, dk, dv);
  return absl::OkStatus();
}

template <typename Real>
static void checkGate(Checks &checks, absl::Span<const Real> x,
                      absl::Span<const Real> gate, int64_t rows,
                      int64_t columns, int64_t gateColumns) {
  checks
      .require(gateColumns == 1 || gateColumns == columns,
               absl::StrCat("gate has ", gateColumns,
                            " columns, expected 1 or ", columns))
      .shape("x", x.size(), {rows, columns})
      .shape("gate", gate.size(), {rows, gateColumns});
}

template <typename Real>
absl::Status mulSigmoid(absl::Span<const Real> x, absl::Span<const Real> gate,
                        int64_t rows, int64_t columns, int64_t gateColumns,
                        absl::Span<Real> y) {
  Checks checks("mul_sigmoid");
  checkGate(checks, x, gate, rows, columns, gateColumns);
  checks.shape("y", y.size(), {rows, columns});
  if (!checks.ok())
    return checks.status();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      int64_t g = gateColumns == 1 ? i : i * columns + j;
      y[i * columns + j] = x[i * columns + j] * sigmoid(gate[g]);
    }
  return absl::OkStatus();
}

template <typename Real>
absl::Status mulSigmoidBwd(absl::Span<const Real> dy, absl::Span<const Real> x,
                           absl::Span<const Real> gate, int64_t rows,
                           int64_t columns, int64_t gateColumns,
                           absl::Span<Real> dx, absl::Span<Real> dgate) {
  Checks checks("mul_sigmoid_bwd");
  checkGate(checks, x, gate, rows, columns, gateColumns);
  checks.shape("dy", dy.size(), {rows, columns})
      .shape("dx", dx.size(), {rows, columns})
      .shape("dgate", dgate.size(), {rows, gateColumns});
  if (!checks.ok())
    return checks.status();
  std::fill(dgate.begin(), dgate.end(), Real(0));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      int64_t g = gateColumns == 1 ? i : i * columns + j;
      int64_t at = i * columns + j;
      Real open = sigmoid(gate[g]), shut = sigmoid(-gate[g]);
      dx[at] = dy[at] * open;
      dgate[g] += dy[at] * x[at] * open * shut;
    }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status ropeTable<Real>(const SeqTable &,                      \
                                        absl::Span<const int32_t>, double,     \
                                        int64_t, absl::Span<Real>);            \
  template absl::Status rope<Real>(absl::Span<const Real>,                     \
                                   absl::Span<const Real>, int64_t, int64_t,   \
                                   int64_t, int64_t, bool, absl::Span<Real>);  \
  template void ropeRows<Real>(absl::Span<const int64_t>, double, int64_t,     \
                               absl::Span<Real>);                              \
  template void attendSegments<Real>(                                          \
      absl::Span<const AttentionSegment>, absl::Span<const Real>,              \
      absl::Span<const Real>, absl::Span<const Real>, const AttentionDims &,   \
      double, absl::Span<Real>, absl::Span<Real>);                             \
  template void attendSegmentsBwd<Real>(                                       \
      absl::Span<const AttentionSegment>, absl::Span<const Real>,              \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, const AttentionDims &,   \
      double, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);           \
  template absl::Status attention<Real>(                                       \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const AttentionDims &,      \
      double, absl::Span<Real>, absl::Span<Real>);                             \
  template absl::Status attentionBwd<Real>(                                    \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      const SeqTable &, absl::Span<const int32_t>, const AttentionDims &,      \
      double, absl::Span<Real>, absl::Span<Real>, absl::Span<Real>);           \
  template absl::Status mulSigmoid<Real>(absl::Span<const Real>,               \
                                         absl::Span<const Real>, int64_t,      \
                                         int64_t, int64_t, absl::Span<Real>);  \
  template absl::Status mulSigmoidBwd<Real>(                                   \
      absl::Span<const Real>, absl::Span<const Real>, absl::Span<const Real>,  \
      int64_t, int64_t, int64_t, absl::Span<Real>, absl::Span<Real>);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
