#ifndef QWEN35_TEST_UNIT_SUPPORT_SEQUENCECASE_H
#define QWEN35_TEST_UNIT_SUPPORT_SEQUENCECASE_H

#include "runtime/schema/seq_table.h"
#include "test/unit/support/Array.h"

#include "absl/status/status.h"
#include "absl/types/span.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qwen35::codegen {

/// A row of packed documents for kernels that read the document table.
struct SequenceCase {
  std::vector<int64_t> documents;
  int64_t tokens;
  int64_t maxDocs;

  SeqTable shape() const { return {tokens, maxDocs}; }
  Array table() const { return seqTable(tokens, maxDocs, documents); }
  /// "tokens = 9, max_docs = 3"
  std::string attrs() const {
    return "tokens = " + std::to_string(tokens) +
           ", max_docs = " + std::to_string(maxDocs);
  }
};

/// Documents of one token, one more and one less than a chunk, several chunks,
/// padding, and rows with unused chunks.
inline std::vector<SequenceCase> sequenceCases() {
  return {{{1}, 1, 1},
          {{1, 1, 1}, 5, 6},
          {{63, 1, 64, 65}, 200, 7},
          {{129}, 150, 3},
          {{2, 15, 17}, 34, 3}};
}

/// Elements in row-major order.
template <typename T = double> std::vector<T> valuesOf(const Array &array) {
  std::vector<T> values(array.size());
  for (int64_t i = 0; i < array.size(); ++i)
    values[i] = static_cast<T>(array[i]);
  return values;
}

inline void setValues(Array &array, const std::vector<double> &values) {
  ASSERT_EQ(array.size(), static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, values[i]);
}

/// A reference op has accepted its arguments.
inline void expectOk(const absl::Status &status) {
  EXPECT_TRUE(status.ok()) << status.ToString();
}

} // namespace qwen35::codegen

#endif // QWEN35_TEST_UNIT_SUPPORT_SEQUENCECASE_H
