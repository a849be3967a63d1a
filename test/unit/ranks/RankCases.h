#ifndef QWEN35_TEST_UNIT_RANKS_RANKCASES_H
#define QWEN35_TEST_UNIT_RANKS_RANKCASES_H

#include "runtime/schema/seq_table.h"
#include "test/unit/ranks/RankBundle.h"

namespace qwen35::test {

/// A step of stage S3 whose microbatches set gradient i, f32[4, 8], to what
/// body i makes of weight i and gradient i.
struct RankCases {
  static constexpr int64_t kTokens = 4, kMaxDocs = 2;
  static constexpr int64_t kWords = SeqTable{kTokens, kMaxDocs}.words();

  std::string mesh;                // "dps = 2, tp = 2"
  std::vector<std::string> bodies; // from %w to %y

  /// Every kind, along outer and inner dimensions, of one part and of several,
  /// into new memory and in place, of numbers and of ids.
  static RankCases ofFour();
  /// A world of one, which exchanges with itself.
  static RankCases ofOne();
  /// Sums of f32 sent as f32.
  void withoutWire();

  std::string moduleText() const;
  std::string
  compile(RankBundle &compiler,
          const std::function<void(bundle::Bundle &)> &change = {}) const;
};

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_RANKS_RANKCASES_H
