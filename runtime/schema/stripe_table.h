#ifndef QWEN35_RUNTIME_SCHEMA_STRIPE_TABLE_H
#define QWEN35_RUNTIME_SCHEMA_STRIPE_TABLE_H

#include "runtime/schema/seq_table.h"

#include <cstdint>
#include <vector>

namespace qwen35 {

/// Which tokens of a row one rank of a context-parallel group holds.
///
/// The row is cut into 2 * ranks equal stripes, numbered in sequence order;
/// rank r holds stripe r and stripe 2 * ranks - 1 - r, in this order (zig-zag:
/// every rank has as many causal scores to form). What a gather over the ranks
/// puts together lies in rank order, so a stripe has a slot there besides its
/// number.
///
/// Beside this table a rank has a SeqTable of its own, whose documents are the
/// document parts inside its stripes; no such segment crosses a stripe's end.
///
/// Shape   `words()` int32 words for `tokens` slots per rank.
/// Units   Tokens, segments and stripes, never bytes.
/// Layout  [0] rank; [1] tokens of a stripe; for its two stripes [2..3] their
///         numbers, [4..5] their first segment, [6..7] one past their last;
///         then the arrays named below, by number of stripe.
struct StripeTable {
  static constexpr int64_t kRank = 0, kRows = 1, kIndex = 2, kFirstSegment = 4,
                           kEndSegment = 6;
  static constexpr int64_t kLocal = 2; ///< Stripes of a rank.

  int64_t tokens; // of one rank
  int64_t ranks;

  constexpr int64_t stripes() const { return kLocal * ranks; }
  /// Tokens of a stripe.
  constexpr int64_t rows() const { return tokens / kLocal; }
  constexpr int64_t rowTokens() const { return tokens * ranks; }
  /// The number of local stripe j of a rank, and where a gather puts a stripe.
  constexpr int64_t index(int64_t rank, int64_t j) const {
    return j == 0 ? rank : stripes() - 1 - rank;
  }
  constexpr int64_t slotOf(int64_t stripe) const {
    return stripe < ranks ? kLocal * stripe
                          : kLocal * (stripes() - 1 - stripe) + 1;
  }

  /// slotOf each stripe, [stripes].
  constexpr int64_t slot() const { return 8; }
  /// Tokens that the document of the stripe's first token has before it, 0
  /// where it begins there, [stripes].
  constexpr int64_t offset() const { return slot() + stripes(); }
  /// Documents that begin inside the stripe, its first token included,
  /// [stripes].
  constexpr int64_t starts() const { return offset() + stripes(); }
  constexpr int64_t words() const { return starts() + stripes(); }
  /// The ranks of a table of so many words; 0 if there is none.
  static constexpr int64_t ranksOf(int64_t words) {
    constexpr int64_t head = 8, perRank = 3 * kLocal;
    return words > head && (words - head) % perRank == 0
               ? (words - head) / perRank
               : 0;
  }

  /// Documents that the SeqTable of a rank must hold for rows of `maxDocs`: one
  /// document at most reaches into both of its stripes.
  static constexpr int64_t localDocs(int64_t maxDocs) { return maxDocs + 1; }
};

/// Fills the tables of `rank` from the lengths of the documents of the whole
/// row, in order; what they leave of it becomes one padding document. `seq` is
/// of shape `local`, `table` of `shape`.
/// Returns false, writing nothing, when a rank's tokens are odd or not those of
/// `local`, the rank does not exist, a length is not positive, the lengths
/// exceed the row, or the segments `local.maxDocs`.
inline bool fillStripeTables(const StripeTable &shape, int64_t rank,
                             const int64_t *lengths, int64_t count,
                             const SeqTable &local, int32_t *seq,
                             int32_t *table) {
  if (shape.tokens <= 0 || shape.tokens % StripeTable::kLocal != 0 ||
      shape.tokens != local.tokens || shape.ranks < 1 ||
      shape.ranks > INT32_MAX / shape.tokens || rank < 0 || rank >= shape.ranks)
    return false;
  int64_t row = shape.rowTokens(), rows = shape.rows(), real = 0;
  std::vector<int64_t> bounds = {0};
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[i] <= 0 || lengths[i] > row - real)
      return false;
    real += lengths[i];
    bounds.push_back(real);
  }
  if (real < row)
    bounds.push_back(row);

  std::vector<int32_t> words(static_cast<size_t>(shape.words()), 0);
  words[StripeTable::kRank] = static_cast<int32_t>(rank);
  words[StripeTable::kRows] = static_cast<int32_t>(rows);
  std::vector<int64_t> segments;
  int64_t localReal = 0;
  for (int64_t stripe = 0, doc = 0; stripe < shape.stripes(); ++stripe) {
    int64_t first = stripe * rows, end = first + rows;
    while (bounds[doc + 1] <= first)
      ++doc;
    int64_t starts = 0;
    for (int64_t d = doc;
         d + 1 < static_cast<int64_t>(bounds.size()) && bounds[d] < end; ++d)
      starts += bounds[d] >= first;
    words[shape.slot() + stripe] = static_cast<int32_t>(shape.slotOf(stripe));
    words[shape.offset() + stripe] = static_cast<int32_t>(first - bounds[doc]);
    words[shape.starts() + stripe] = static_cast<int32_t>(starts);
    for (int64_t j = 0; j < StripeTable::kLocal; ++j) {
      if (shape.index(rank, j) != stripe)
        continue;
      words[StripeTable::kIndex + j] = static_cast<int32_t>(stripe);
      words[StripeTable::kFirstSegment + j] =
          static_cast<int32_t>(segments.size());
      for (int64_t d = doc, at = first; at < end; ++d) {
        int64_t next = bounds[d + 1] < end ? bounds[d + 1] : end;
        segments.push_back(next - at);
        at = next;
      }
      words[StripeTable::kEndSegment + j] =
          static_cast<int32_t>(segments.size());
      if (real > first)
        localReal += (real < end ? real : end) - first;
    }
  }
  if (!fillSeqTable(local, segments.data(),
                    static_cast<int64_t>(segments.size()), seq))
    return false;
  // Padding is the end of the first stripe and all of the second, or the end of
  // the second: what is real comes first.
  seq[SeqTable::kRealTokens] = static_cast<int32_t>(localReal);
  for (int64_t i = 0; i < shape.words(); ++i)
    table[i] = words[i];
  return true;
}

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEMA_STRIPE_TABLE_H
