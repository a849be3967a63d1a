#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_EMBEDDING_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_EMBEDDING_H

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>

namespace qwen35::reference {

/// y[t] = table[ids[t]]: the meaning of `qwen35.embed`.
///
/// Shapes  ids: [tokens]; table: [vocab, columns]; y: [tokens, columns].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, or an id is
///         outside the vocabulary; with `shard` -1 is a row of another rank, of
///         which y is 0.
/// Source  MODEL.md 6: a plain lookup, not scaled.
template <typename Real>
absl::Status embed(absl::Span<const int32_t> ids, absl::Span<const Real> table,
                   int64_t tokens, int64_t vocab, int64_t columns,
                   absl::Span<Real> y, bool shard = false);

/// dtable[id] = sum of dy[t] over ids[t] = id, by ascending t, and 0 for an
/// absent id: the meaning of `qwen35.embed_bwd`.
///
/// Shapes  dy: [tokens, columns]; ids: [tokens]; dtable: [vocab, columns].
/// Units   All sizes count elements.
/// Errors  InvalidArgument if a span's length is not its shape's, or an id is
///         outside the vocabulary; with `shard` -1 adds nothing.
/// Source  The gradient of embed.
template <typename Real>
absl::Status embedBwd(absl::Span<const Real> dy, absl::Span<const int32_t> ids,
                      int64_t tokens, int64_t vocab, int64_t columns,
                      absl::Span<Real> dtable, bool shard = false);

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_EMBEDDING_H
