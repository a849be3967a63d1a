#include "runtime/data/loader.h"

#include "absl/strings/str_cat.h"

#include <algorithm>

namespace qwen35 {

absl::Status checkStripes(int64_t tokens, int64_t ranks, int64_t multiple) {
  if (ranks < 1 || multiple < 1)
    return absl::InvalidArgumentError(absl::StrCat(
        "a row cannot be shared by ", ranks,
        " ranks in stripes of a multiple of ", multiple, " tokens"));
  int64_t unit = 0;
  if (__builtin_mul_overflow(StripeTable::kLocal * multiple, ranks, &unit) ||
      unit > INT32_MAX)
    return absl::InvalidArgumentError(
        absl::StrCat("a row shared by ", ranks,
                     " ranks would need more tokens than can be counted"));
  if (tokens > 0 && tokens % unit == 0)
    return absl::OkStatus();
  int64_t below = tokens / unit * unit;
  return absl::InvalidArgumentError(
      absl::StrCat("a row of ", tokens, " tokens cannot be cut into ",
                   StripeTable::kLocal * ranks, " stripes for ", ranks,
                   " context-parallel ranks, each a multiple of ", multiple,
                   " tokens; data.tokens can be ",
                   below > 0 ? absl::StrCat(below, " or ") : "", below + unit));
}

absl::Status cutRow(const SeqTable &shape, int64_t rank, int64_t ranks,
                    PackedRow &row) {
  if (absl::Status status = checkStripes(shape.tokens, ranks, 1); !status.ok())
    return status;
  StripeTable layout{shape.tokens / ranks, ranks};
  SeqTable local{layout.tokens, StripeTable::localDocs(shape.maxDocs)};
  if (static_cast<int64_t>(row.seq.size()) != shape.words() ||
      static_cast<int64_t>(row.ids.size()) != shape.tokens ||
      static_cast<int64_t>(row.labels.size()) != shape.tokens)
    return absl::InvalidArgumentError(
        absl::StrCat("a row to cut has ", row.ids.size(), " ids, ",
                     row.labels.size(), " labels and ", row.seq.size(),
                     " words of its document table, "
                     "expected ",
                     shape.tokens, ", ", shape.tokens, " and ", shape.words()));
  // Documents but the padding, which begins where the real tokens end.
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < row.seq[SeqTable::kNumDocs]; ++d) {
    int64_t first = row.seq[shape.cuSeqlens() + d];
    if (first < row.seq[SeqTable::kRealTokens])
      lengths.push_back(row.seq[shape.cuSeqlens() + d + 1] - first);
  }
  std::vector<int32_t> seq(static_cast<size_t>(local.words()));
  row.stripes.resize(static_cast<size_t>(layout.words()));
  if (!fillStripeTables(layout, rank, lengths.data(),
                        static_cast<int64_t>(lengths.size()), local, seq.data(),
                        row.stripes.data()))
    return absl::InvalidArgumentError(
        absl::StrCat("a row of ", shape.tokens, " tokens and ", lengths.size(),
                     " documents has no part for context-parallel rank ", rank,
                     " of ", ranks));
  row.seq = std::move(seq);
  for (std::vector<int32_t> *slots : {&row.ids, &row.labels}) {
    std::vector<int32_t> mine;
    for (int64_t j = 0; j < StripeTable::kLocal; ++j) {
      auto first = slots->begin() + layout.index(rank, j) * layout.rows();
      mine.insert(mine.end(), first, first + layout.rows());
    }
    *slots = std::move(mine);
  }
  row.realTokens = row.seq[SeqTable::kRealTokens];
  row.validLabels = static_cast<int64_t>(row.labels.size()) -
                    std::count(row.labels.begin(), row.labels.end(), -100);
  return absl::OkStatus();
}

} // namespace qwen35
