#ifndef QWEN35_DIALECT_QWEN35_REFERENCE_CHECKS_H
#define QWEN35_DIALECT_QWEN35_REFERENCE_CHECKS_H

#include "runtime/schema/seq_table.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include <cstdint>
#include <initializer_list>
#include <string>

namespace qwen35::reference {

/// The label of a token that has no target (torch's ignore_index).
inline constexpr int32_t kIgnoredLabel = -100;

/// The id of a row that another rank holds.
inline constexpr int32_t kElsewhere = -1;

/// Checks the arguments of one op and keeps the first error, so that an op
/// lists its shapes in one place:
///
///     Checks checks("rms_norm");
///     checks.shape("x", x.size(), {rows, columns})
///         .shape("weight", weight.size(), {columns});
///     if (!checks.ok())
///       return checks.status();
///
/// Errors  InvalidArgument, named after the op: "rms_norm: weight has 64
///         elements, expected 128 = [128]".
class Checks {
public:
  explicit Checks(absl::string_view op) : op(op) {}

  bool ok() const { return first.ok(); }
  const absl::Status &status() const { return first; }

  /// `elements` is the product of `dims`, none of which is negative.
  Checks &shape(absl::string_view name, size_t elements,
                std::initializer_list<int64_t> dims);
  Checks &shape(absl::string_view name, size_t elements,
                absl::Span<const int64_t> dims);

  /// As shape, or the span is empty: an operand that may be left out.
  Checks &optionalShape(absl::string_view name, size_t elements,
                        std::initializer_list<int64_t> dims);

  /// `value` is greater than zero (NaN is not).
  Checks &positive(absl::string_view name, double value);

  /// `value` is zero or more (NaN is not).
  Checks &notNegative(absl::string_view name, double value);

  /// 0 <= value < 1.
  Checks &fraction(absl::string_view name, double value);

  /// `factor` > 0 divides `value`; names both.
  Checks &multiple(absl::string_view name, int64_t value,
                   absl::string_view factorName, int64_t factor);

  /// lowest <= value <= highest.
  Checks &range(absl::string_view name, int64_t value, int64_t lowest,
                int64_t highest);

  /// `condition` holds, or `message` is the error.
  Checks &require(bool condition, absl::string_view message);

  /// 0 <= every id < limit.
  Checks &ids(absl::string_view name, absl::Span<const int32_t> values,
              int64_t limit);

  /// As ids, or kElsewhere where `shard`.
  Checks &shardIds(absl::string_view name, absl::Span<const int32_t> values,
                   int64_t limit, bool shard);

  /// As ids, or kIgnoredLabel, or kElsewhere.
  Checks &shardLabels(absl::string_view name, absl::Span<const int32_t> values,
                      int64_t limit);

  /// As ids, or kIgnoredLabel.
  Checks &labels(absl::string_view name, absl::Span<const int32_t> values,
                 int64_t limit);

  /// No log decay is above zero: its exponential would grow without bound. A
  /// NaN passes, as it does through every other operand.
  template <typename Real>
  Checks &notPositive(absl::string_view name, absl::Span<const Real> values) {
    for (size_t i = 0; ok() && i < values.size(); ++i)
      if (values[i] > 0)
        failNotPositive(name, i, static_cast<double>(values[i]));
    return *this;
  }

  /// `table` is what fillSeqTable writes for some lengths of documents.
  Checks &documents(const SeqTable &shape, absl::Span<const int32_t> table);

private:
  Checks &fail(absl::string_view message);
  void failNotPositive(absl::string_view name, size_t index, double value);

  absl::string_view op;
  absl::Status first;
};

/// Reads a document table that passed Checks::documents.
///
/// Units  Tokens, documents and chunks, counted from 0.
class Documents {
public:
  Documents(const SeqTable &shape, absl::Span<const int32_t> table)
      : shape(shape), table(table) {}

  int64_t count() const { return table[SeqTable::kNumDocs]; }
  /// Chunks in use; those past it have no rows.
  int64_t chunks() const { return table[SeqTable::kNumChunks]; }
  int64_t realTokens() const { return table[SeqTable::kRealTokens]; }

  int64_t begin(int64_t doc) const { return table[shape.cuSeqlens() + doc]; }
  int64_t end(int64_t doc) const { return begin(doc + 1); }
  int64_t firstChunk(int64_t doc) const {
    return table[shape.docFirstChunk() + doc];
  }
  int64_t endChunk(int64_t doc) const { return firstChunk(doc + 1); }

  int64_t chunkFirst(int64_t chunk) const {
    return table[shape.chunkFirst() + chunk];
  }
  int64_t chunkRows(int64_t chunk) const {
    return table[shape.chunkRows() + chunk];
  }

private:
  SeqTable shape;
  absl::Span<const int32_t> table;
};

} // namespace qwen35::reference

#endif // QWEN35_DIALECT_QWEN35_REFERENCE_CHECKS_H
