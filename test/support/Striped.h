#ifndef QWEN35_TEST_SUPPORT_STRIPED_H
#define QWEN35_TEST_SUPPORT_STRIPED_H

#include "runtime/schema/stripe_table.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace qwen35::test {

/// A row of packed documents and how the ranks of a context-parallel group hold
/// it.
struct StripedRow {
  std::vector<int64_t> lengths;
  int64_t tokens; // of the whole row
  int64_t ranks;
  int64_t docs = 0; // that its table may hold; 0: its own and padding

  SeqTable whole() const {
    return {tokens, docs ? docs : static_cast<int64_t>(lengths.size()) + 1};
  }
  SeqTable local() const {
    return {tokens / ranks, StripeTable::localDocs(whole().maxDocs)};
  }
  StripeTable shape() const { return {tokens / ranks, ranks}; }
  int64_t rows() const { return shape().rows(); }

  std::vector<int32_t> wholeSeq() const {
    std::vector<int32_t> seq(whole().words());
    EXPECT_TRUE(
        fillSeqTable(whole(), lengths.data(), lengths.size(), seq.data()));
    return seq;
  }
  std::vector<int32_t> seq(int64_t rank) const { return tables(rank).first; }
  std::vector<int32_t> stripes(int64_t rank) const {
    return tables(rank).second;
  }

  /// A rank's part of a tensor whose first dimension is the row, and its part
  /// of one whose first dimension is what a gather puts together.
  template <typename T>
  std::vector<T> scatter(const std::vector<T> &x, int64_t rank) const {
    int64_t size = x.size() / shape().stripes();
    std::vector<T> part;
    for (int64_t j = 0; j < StripeTable::kLocal; ++j) {
      auto from = x.begin() + shape().index(rank, j) * size;
      part.insert(part.end(), from, from + size);
    }
    return part;
  }
  /// What the ranks hold, in rank order.
  template <typename T>
  static std::vector<T> gather(const std::vector<std::vector<T>> &parts) {
    std::vector<T> all;
    for (const std::vector<T> &part : parts)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  /// The same in the order of the row.
  template <typename T>
  std::vector<T> inOrder(const std::vector<std::vector<T>> &parts) const {
    std::vector<T> all = gather(parts), row(all.size());
    int64_t size = all.size() / shape().stripes();
    for (int64_t i = 0; i < shape().stripes(); ++i)
      std::copy_n(all.begin() + shape().slotOf(i) * size, size,
                  row.begin() + i * size);
    return row;
  }

  std::string name() const {
    std::string text = std::to_string(ranks) + " ranks, documents of";
    for (int64_t length : lengths)
      text += " " + std::to_string(length);
    return text + " in " + std::to_string(tokens);
  }

private:
  std::pair<std::vector<int32_t>, std::vector<int32_t>>
  tables(int64_t rank) const {
    std::vector<int32_t> seq(local().words()), table(shape().words());
    EXPECT_TRUE(fillStripeTables(shape(), rank, lengths.data(), lengths.size(),
                                 local(), seq.data(), table.data()));
    return {seq, table};
  }
};

/// Documents that begin inside stripes, on their ends and one token beside
/// them, cross one or several, fill one exactly, or are the whole row; with
/// padding that begins anywhere; 2 to 16 stripes.
inline std::vector<StripedRow> stripedRows() {
  return {
      {{32}, 32, 1},
      {{20, 12}, 32, 1},
      {{16, 16}, 32, 1},
      {{96}, 96, 2},
      {{24, 24, 24, 24}, 96, 2},      // on every end
      {{25, 24, 24, 23}, 96, 2},      // one after
      {{23, 24, 24, 25}, 96, 2},      // one before
      {{23, 1, 1, 47, 1, 23}, 96, 2}, // single tokens around ends
      {{10, 60, 20}, 96, 2},          // over two ends, padding
      {{30}, 96, 2},                  // padding over several stripes
      {{48}, 96, 2},                  // padding from an end on
      {{7, 70, 3, 11}, 96, 4},        // stripes of 12
      {{1, 1, 1, 1, 1, 1, 1, 1, 1, 87}, 96, 4},
      {{80, 9, 60}, 160, 8}, // 16 stripes of 10
      {{3, 5, 160 - 8}, 160, 5},
      {{150, 130}, 280, 2}, // stripes of more than one chunk
      {{63, 1, 64, 65, 200, 3}, 420, 3},
      {{512}, 512, 4},
  };
}

} // namespace qwen35::test

#endif // QWEN35_TEST_SUPPORT_STRIPED_H
