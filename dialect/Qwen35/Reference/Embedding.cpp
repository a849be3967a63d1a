#include "dialect/Qwen35/Reference/Embedding.h"

#include "dialect/Qwen35/Reference/Checks.h"

#include <algorithm>

namespace qwen35::reference {

template <typename Real>
absl::Status embed(absl::Span<const int32_t> ids, absl::Span<const Real> table,
                   int64_t tokens, int64_t vocab, int64_t columns,
                   absl::Span<Real> y, bool shard) {
  Checks checks("embed");
  checks.shape("ids", ids.size(), {tokens})
      .shape("table", table.size(), {vocab, columns})
      .shape("y", y.size(), {tokens, columns})
      .shardIds("ids", ids, vocab, shard);
  if (!checks.ok())
    return checks.status();
  for (int64_t t = 0; t < tokens; ++t)
    if (ids[t] == kElsewhere)
      std::fill_n(y.data() + t * columns, columns, Real(0));
    else
      std::copy_n(table.data() + ids[t] * columns, columns,
                  y.data() + t * columns);
  return absl::OkStatus();
}

template <typename Real>
absl::Status embedBwd(absl::Span<const Real> dy, absl::Span<const int32_t> ids,
                      int64_t tokens, int64_t vocab, int64_t columns,
                      absl::Span<Real> dtable, bool shard) {
  Checks checks("embed_bwd");
  checks.shape("dy", dy.size(), {tokens, columns})
      .shape("ids", ids.size(), {tokens})
      .shape("dtable", dtable.size(), {vocab, columns})
      .shardIds("ids", ids, vocab, shard);
  if (!checks.ok())
    return checks.status();
  std::fill(dtable.begin(), dtable.end(), Real(0));
  for (int64_t t = 0; t < tokens; ++t) {
    if (ids[t] == kElsewhere)
      continue;
    const Real *in = dy.data() + t * columns;
    Real *out = dtable.data() + ids[t] * columns;
    for (int64_t d = 0; d < columns; ++d)
      out[d] += in[d];
  }
  return absl::OkStatus();
}

#define QWEN35_INSTANTIATE(Real)                                               \
  template absl::Status embed<Real>(absl::Span<const int32_t>,                 \
                                    absl::Span<const Real>, int64_t, int64_t,  \
                                    int64_t, absl::Span<Real>, bool);          \
  template absl::Status embedBwd<Real>(absl::Span<const Real>,                 \
                                       absl::Span<const int32_t>, int64_t,     \
                                       int64_t, int64_t, absl::Span<Real>, bool);
QWEN35_INSTANTIATE(float)
QWEN35_INSTANTIATE(double)
#undef QWEN35_INSTANTIATE

} // namespace qwen35::reference
