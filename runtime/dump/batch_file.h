#ifndef QWEN35_RUNTIME_DUMP_BATCH_FILE_H
#define QWEN35_RUNTIME_DUMP_BATCH_FILE_H

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/data/loader.h"
#include "runtime/schema/seq_table.h"

namespace qwen35 {

/// What the batch has to fit into.
struct BatchShape {
  SeqTable row{0, 0};    // as in the bundle's IoSignature
  int64_t vocabSize = 0; // ids and labels are below it
};

/// Reads a given batch, a safetensors file, into the rows of one step.
///
/// Shapes  `input_ids`, `labels` [B, T], int64 or int32; optional
///         `cu_seqlens` [documents + 1], 0 to T, only with B = 1. Other tensors
///         of the file are not looked at, but an `attention_mask` with a zero
///         is refused: padding is written as labels of -100.
/// Rows    Each row is a document, and rows that follow each other share a
///         compiled row while tokens and documents fit; or one row of several
///         documents, which stays one compiled row. What is left of a compiled
///         row is padding.
/// Labels  Given as Hugging Face has them, labels[t] belonging to token t and
///         -100 ignored; the result is shifted inside every document, whose
///         last token has none.
/// Errors  InvalidArgument naming the file, the tensor, the position and what
///         was expected: other dtypes or shapes, an id or label out of range, a
///         row longer than the compiled one, too many or empty documents, no
///         label to train on.
absl::StatusOr<Batch> readBatch(const std::string &path,
                                const BatchShape &shape);

} // namespace qwen35

#endif // QWEN35_RUNTIME_DUMP_BATCH_FILE_H
