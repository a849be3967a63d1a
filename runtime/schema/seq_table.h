#ifndef QWEN35_RUNTIME_SCHEMA_SEQ_TABLE_H
#define QWEN35_RUNTIME_SCHEMA_SEQ_TABLE_H

#include <cstdint>

namespace qwen35 {

/// The packed-document table of one row: the one description of its documents
/// that conv, delta rule, attention, positions and losses all read.
///
/// Shape   `words()` int32 words, laid out as below for `tokens` slots per row
///         and at most `maxDocs` documents. Padding at the end of the row is a
///         document of its own, so `maxDocs` is the user's limit plus one. On a
///         rank of a context-parallel group the documents are segments of
///         documents and padding may be two of them (stripe_table.h).
/// Units   Everything counts tokens, documents or chunks, never bytes.
/// Layout  [0] documents, padding included; [1] chunks in use; [2] tokens that
///         are not padding; [3..7] zero; then the arrays named below.
///
/// Chunks restart at every document, so a row has at most
/// tokens/64 + maxDocs of them; entries past [1] have zero rows.
struct SeqTable {
  static constexpr int64_t kChunk = 64;
  static constexpr int64_t kNumDocs = 0, kNumChunks = 1, kRealTokens = 2;

  int64_t tokens;
  int64_t maxDocs;

  constexpr int64_t chunks() const { return tokens / kChunk + maxDocs; }
  /// First token of document d, [maxDocs + 1]; entries past the last are `tokens`.
  constexpr int64_t cuSeqlens() const { return 8; }
  /// First chunk of document d, [maxDocs + 1]; entries past the last are [1].
  constexpr int64_t docFirstChunk() const { return cuSeqlens() + maxDocs + 1; }
  /// First token of chunk c, [chunks].
  constexpr int64_t chunkFirst() const { return docFirstChunk() + maxDocs + 1; }
  /// Tokens in chunk c, 0 to 64, [chunks].
  constexpr int64_t chunkRows() const { return chunkFirst() + chunks(); }
  /// Document of chunk c, [chunks].
  constexpr int64_t chunkDoc() const { return chunkRows() + chunks(); }
  /// First token of the document that holds token t, [tokens].
  constexpr int64_t docStart() const { return chunkDoc() + chunks(); }
  /// One past the last token of that document, [tokens].
  constexpr int64_t docEnd() const { return docStart() + tokens; }
  constexpr int64_t words() const { return docEnd() + tokens; }
};

/// Fills `table` (words() entries) from the lengths of the documents of a row,
/// in order. What they leave of the row becomes one padding document.
/// Returns false, writing nothing, when a length is not positive, their sum
/// exceeds `tokens`, or documents plus padding exceed `maxDocs`.
inline bool fillSeqTable(const SeqTable &shape, const int64_t *lengths,
                         int64_t count, int32_t *table) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[i] <= 0 || lengths[i] > shape.tokens - total)
      return false;
    total += lengths[i];
  }
  int64_t docs = count + (total < shape.tokens ? 1 : 0);
  if (docs > shape.maxDocs)
    return false;
  for (int64_t i = 0; i < shape.words(); ++i)
    table[i] = 0;
  int64_t token = 0, chunk = 0;
  for (int64_t d = 0; d < docs; ++d) {
    int64_t length = d < count ? lengths[d] : shape.tokens - total;
    table[shape.cuSeqlens() + d] = static_cast<int32_t>(token);
    table[shape.docFirstChunk() + d] = static_cast<int32_t>(chunk);
    for (int64_t first = 0; first < length; first += SeqTable::kChunk) {
      int64_t left = length - first;
      table[shape.chunkFirst() + chunk] = static_cast<int32_t>(token + first);
      table[shape.chunkRows() + chunk] =
          static_cast<int32_t>(left < SeqTable::kChunk ? left : SeqTable::kChunk);
      table[shape.chunkDoc() + chunk] = static_cast<int32_t>(d);
      ++chunk;
    }
    for (int64_t t = token; t < token + length; ++t) {
      table[shape.docStart() + t] = static_cast<int32_t>(token);
      table[shape.docEnd() + t] = static_cast<int32_t>(token + length);
    }
    token += length;
  }
  for (int64_t d = docs; d <= shape.maxDocs; ++d) {
    table[shape.cuSeqlens() + d] = static_cast<int32_t>(shape.tokens);
    table[shape.docFirstChunk() + d] = static_cast<int32_t>(chunk);
  }
  table[SeqTable::kNumDocs] = static_cast<int32_t>(docs);
  table[SeqTable::kNumChunks] = static_cast<int32_t>(chunk);
  table[SeqTable::kRealTokens] = static_cast<int32_t>(total);
  return true;
}

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEMA_SEQ_TABLE_H
