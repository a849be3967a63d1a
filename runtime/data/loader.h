#ifndef QWEN35_RUNTIME_DATA_LOADER_H
#define QWEN35_RUNTIME_DATA_LOADER_H

#include "runtime/data/corpus.h"
#include "runtime/data/permutation.h"
#include "runtime/schema/stripe_table.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qwen35 {

struct LoaderOptions {
  /// As in the bundle's IoSignature: T slots, and one document more than the
  /// user's limit, for padding.
  SeqTable shape{0, 0};
  int64_t rows = 0;      // per optimizer step, over all data ranks
  int64_t dataRank = 0;  // this rank takes rows dataRank, dataRank +
  int64_t dataRanks = 1; // dataRanks, ... of every step's
  uint64_t seed = 0;
  /// Ranks of a context-parallel group share every row of their data rank: all
  /// pack the same rows, and each takes its two stripes (stripe_table.h).
  int64_t stripeRank = 0;
  int64_t stripeRanks = 1;
  int64_t stripeMultiple = 128; // a stripe is so many tokens, or a multiple
};

/// A document, or a part of T tokens of one that is longer than a row.
struct Piece {
  int64_t epoch, document, first, length;
  bool operator==(const Piece &) const = default;
};

/// Where the loader is between two steps. Small, and independent of the ranks:
/// another number of them, and another train.rows, continue the same rows.
struct LoaderState {
  int64_t epoch = 0;         // of the next piece to enter the window
  int64_t cursor = 0;        // its place in that epoch's order
  int64_t offset = 0;        // its first token
  int64_t rows = 0;          // rows packed so far
  std::vector<Piece> window; // pieces waiting for a row, oldest first
  // What the position is a position in; a resume with other values is refused.
  uint64_t seed = 0;
  int64_t tokens = 0, maxDocs = 0, documents = 0;
  uint32_t fingerprint = 0;

  std::string toJson() const;
  /// Errors  InvalidArgument naming the missing or wrong member.
  static absl::StatusOr<LoaderState> fromJson(const std::string &text);
  bool operator==(const LoaderState &) const = default;
};

/// One microbatch: the arrays that the step's io buffers take as they are.
struct PackedRow {
  std::vector<int32_t> ids;    // [T]; 0 in padding
  std::vector<int32_t> labels; // [T]; target of slot t, -100: none
  std::vector<int32_t> seq;    // SeqTable words
  std::vector<Piece> pieces;   // of the whole row, in order
  int64_t realTokens = 0, validLabels = 0;
  /// StripeTable words where the row is shared: then the arrays above are those
  /// of this rank, T / stripeRanks slots and StripeTable::localDocs of the
  /// documents, and the counts its own. Else empty.
  std::vector<int32_t> stripes;
};

/// Rows of `tokens` can be cut into the stripes of so many ranks.
/// Errors  InvalidArgument with the nearest lengths that can.
absl::Status checkStripes(int64_t tokens, int64_t ranks, int64_t multiple);

/// Leaves of a whole row of `shape` what `rank` of `ranks` holds; documents are
/// those of its table.
/// Errors  those of checkStripes with any multiple; InvalidArgument for a row of
///         another shape, or a rank that is none.
absl::Status cutRow(const SeqTable &shape, int64_t rank, int64_t ranks,
                    PackedRow &row);

/// What one optimizer step needs.
struct Batch {
  std::vector<PackedRow> rows; // this rank's, in microbatch order
  // Over all ranks' rows:
  int64_t realTokens = 0, slots = 0, documents = 0, validLabels = 0;
  int64_t epoch = 0; // of the newest piece in it
  LoaderState after; // for a checkpoint taken after this step

  /// 1 / validLabels; 0 when no label counts, so that the loss is 0 too.
  float invCount() const {
    return validLabels
               ? static_cast<float>(1.0 / static_cast<double>(validLabels))
               : 0.0f;
  }
};

/// Packs documents into rows, deterministically.
///
/// Order   Documents are taken in the order of Permutation(documents, seed,
///         epoch), epoch after epoch; empty ones are passed over. One longer
///         than T enters as pieces of T and a rest.
/// Packing First fit over a window of kWindow pieces in order of arrival: a row
///         takes the oldest, then every later one that still fits, until the
///         document limit. What does not fit waits, so nothing is dropped, and
///         the oldest always goes first, so nothing starves.
/// Labels  labels[t] = ids[t + 1] inside a piece. A piece that ends where its
///         document goes on has that next token as its last label; the last
///         token of a document has none. Where the mask says no, -100.
/// Rows    are numbered through the run; step s takes rows s * rows .. and
///         their content depends on seed, T and the document limit alone.
class Packer {
public:
  static constexpr int64_t kWindow = 64;

  /// Errors  InvalidArgument for options that make no sense, or a `resume`
  ///         whose data, seed or shape are others.
  static absl::StatusOr<Packer> create(std::shared_ptr<const Corpus> corpus,
                                       const LoaderOptions &options,
                                       const LoaderState *resume = nullptr);

  /// Packs the next step. Buffers of `batch` are reused.
  /// Errors  those of Corpus::read; the packer is of no use then.
  absl::Status next(Batch &batch);

  const LoaderState &state() const { return now; }

private:
  Packer() = default;
  void refill();
  std::vector<Piece> nextRow();
  absl::Status fill(const std::vector<Piece> &pieces, PackedRow &row) const;
  int64_t countLabels(const Piece &piece) const;

  std::shared_ptr<const Corpus> corpus;
  LoaderOptions options;
  LoaderState now;
  Permutation order{1, 0, 0}; // of epoch now.epoch
};

/// A Packer that works one step ahead in a thread of its own.
class Loader {
public:
  static absl::StatusOr<std::unique_ptr<Loader>>
  create(std::shared_ptr<const Corpus> corpus, const LoaderOptions &options,
         const LoaderState *resume = nullptr);
  ~Loader();

  /// Swaps in the batch of the next step and starts on the one after.
  /// Errors  those of Packer::next, again at every later call.
  absl::Status next(Batch &batch);
  /// Seconds that the last next() waited for data.
  double waitedSeconds() const;

private:
  struct Impl;
  Loader();
  std::unique_ptr<Impl> impl;
};

/// What a run says about its data before the first step.
struct CorpusReport {
  int64_t files = 0, documents = 0, emptyDocuments = 0, tokens = 0;
  int64_t splitDocuments = 0; // longer than T
  int64_t pieces = 0;         // after splitting, per epoch
};
CorpusReport reportCorpus(const Corpus &corpus, int64_t tokens);
/// "1,204 documents, 310,233 tokens in 1 file (3 empty skipped; 12 longer than
/// 256 split, 1,240 pieces)"
std::string formatReport(const CorpusReport &report, int64_t tokens);

} // namespace qwen35

#endif // QWEN35_RUNTIME_DATA_LOADER_H
