#include "runtime/data/loader.h"

#include "absl/strings/str_cat.h"

#include <algorithm>

namespace qwen35 {

/// The position in `state` belongs to the same data, order and row shape.
static absl::Status checkResume(const LoaderState &state,
                                const LoaderState &fresh,
                                const Corpus &corpus) {
  auto differs = [](const char *what, auto saved, auto now) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot continue the data order: ", what, " was ", saved,
                     " when the checkpoint was written and is ", now, " now"));
  };
  if (state.seed != fresh.seed)
    return differs("train.seed", state.seed, fresh.seed);
  if (state.tokens != fresh.tokens)
    return differs("data.tokens", state.tokens, fresh.tokens);
  if (state.maxDocs != fresh.maxDocs)
    return differs("data.max_docs", state.maxDocs - 1, fresh.maxDocs - 1);
  if (state.documents != fresh.documents)
    return differs("the number of documents", state.documents, fresh.documents);
  if (state.fingerprint != fresh.fingerprint)
    return differs("the data's fingerprint", state.fingerprint,
                   fresh.fingerprint);

  // The rest is only wrong in a damaged file, but must not lead outside.
  bool ok = state.epoch >= 0 && state.rows >= 0 && state.cursor >= 0 &&
            state.cursor < state.documents && state.offset >= 0 &&
            state.window.size() <= static_cast<size_t>(Packer::kWindow);
  if (ok) {
    Permutation order(state.documents, state.seed, state.epoch);
    ok = state.offset == 0 || state.offset < corpus.length(order(state.cursor));
  }
  for (const Piece &piece : state.window)
    ok = ok && piece.epoch >= 0 && piece.document >= 0 &&
         piece.document < state.documents && piece.first >= 0 &&
         piece.length > 0 && piece.length <= state.tokens &&
         piece.first < corpus.length(piece.document) &&
         piece.length <= corpus.length(piece.document) - piece.first;
  return ok ? absl::OkStatus()
            : absl::InvalidArgumentError(
                  "cannot continue the data order: the loader state of the "
                  "checkpoint names documents or tokens that do not exist");
}

absl::StatusOr<Packer> Packer::create(std::shared_ptr<const Corpus> corpus,
                                      const LoaderOptions &options,
                                      const LoaderState *resume) {
  if (options.shape.tokens < 1 || options.shape.maxDocs < 2)
    return absl::InvalidArgumentError(absl::StrCat(
        "a row of ", options.shape.tokens, " tokens and ",
        options.shape.maxDocs,
        " documents cannot be packed; it needs a token, and a document besides "
        "the padding"));
  if (options.rows < 1 || options.dataRanks < 1 || options.dataRank < 0 ||
      options.dataRank >= options.dataRanks ||
      options.rows % options.dataRanks != 0)
    return absl::InvalidArgumentError(absl::StrCat(
        options.rows, " rows per step cannot be dealt to data rank ",
        options.dataRank, " of ", options.dataRanks));
  if (corpus->tokens() == 0)
    return absl::InvalidArgumentError("the data holds no tokens");
  if (options.stripeRanks != 1) {
    if (absl::Status status = checkStripes(
            options.shape.tokens, options.stripeRanks, options.stripeMultiple);
        !status.ok())
      return status;
    if (options.stripeRank < 0 || options.stripeRank >= options.stripeRanks)
      return absl::InvalidArgumentError(
          absl::StrCat("there is no context-parallel rank ", options.stripeRank,
                       " of ", options.stripeRanks));
  }

  Packer packer;
  packer.options = options;
  packer.now.seed = options.seed;
  packer.now.tokens = options.shape.tokens;
  packer.now.maxDocs = options.shape.maxDocs;
  packer.now.documents = corpus->documents();
  packer.now.fingerprint = corpus->fingerprint();
  if (resume) {
    absl::Status status = checkResume(*resume, packer.now, *corpus);
    if (!status.ok())
      return status;
    packer.now = *resume;
  }
  packer.order =
      Permutation(corpus->documents(), options.seed, packer.now.epoch);
  packer.corpus = std::move(corpus);
  return packer;
}

/// Fills the window. Some document has tokens, so this ends.
void Packer::refill() {
  while (now.window.size() < static_cast<size_t>(kWindow)) {
    int64_t document = order(now.cursor);
    int64_t length = corpus->length(document);
    if (now.offset < length) {
      Piece piece{now.epoch, document, now.offset,
                  std::min(options.shape.tokens, length - now.offset)};
      now.window.push_back(piece);
      now.offset += piece.length;
    }
    if (now.offset < length)
      continue;
    now.offset = 0;
    if (++now.cursor == now.documents) {
      now.cursor = 0;
      order = Permutation(now.documents, now.seed, ++now.epoch);
    }
  }
}

std::vector<Piece> Packer::nextRow() {
  std::vector<Piece> row;
  int64_t room = options.shape.tokens;
  int64_t limit = options.shape.maxDocs - 1; // one is kept for the padding
  for (size_t i = 0; room > 0 && static_cast<int64_t>(row.size()) < limit;) {
    if (i == now.window.size()) {
      refill(); // what was taken made place for newer pieces
      if (i == now.window.size())
        break;
    }
    if (now.window[i].length > room) {
      ++i;
      continue;
    }
    row.push_back(now.window[i]);
    room -= now.window[i].length;
    now.window.erase(now.window.begin() + static_cast<std::ptrdiff_t>(i));
  }
  ++now.rows;
  return row;
}

int64_t Packer::countLabels(const Piece &piece) const {
  int64_t after = corpus->length(piece.document) - piece.first - 1;
  return corpus->countTargets(piece.document, piece.first + 1,
                              std::min(piece.length, after));
}

absl::Status Packer::fill(const std::vector<Piece> &pieces,
                          PackedRow &row) const {
  int64_t tokens = options.shape.tokens;
  row.ids.assign(tokens, 0);
  row.labels.assign(tokens, -100);
  row.seq.resize(options.shape.words());
  row.pieces = pieces;
  row.realTokens = row.validLabels = 0;
  row.stripes.clear();
  std::vector<int64_t> lengths;
  int64_t at = 0;
  for (const Piece &piece : pieces) {
    int32_t *ids = row.ids.data() + at, *labels = row.labels.data() + at;
    absl::Status status =
        corpus->read(piece.document, piece.first, piece.length, ids);
    if (!status.ok())
      return status;
    std::copy(ids + 1, ids + piece.length, labels);
    if (piece.first + piece.length < corpus->length(piece.document)) {
      status = corpus->read(piece.document, piece.first + piece.length, 1,
                            labels + piece.length - 1);
      if (!status.ok())
        return status;
    }
    if (corpus->hasMask(piece.document))
      for (int64_t t = 0; t < piece.length; ++t)
        if (labels[t] != -100 &&
            !corpus->counts(piece.document, piece.first + t + 1))
          labels[t] = -100;
    row.validLabels += countLabels(piece);
    lengths.push_back(piece.length);
    at += piece.length;
  }
  row.realTokens = at;
  if (!fillSeqTable(options.shape, lengths.data(),
                    static_cast<int64_t>(lengths.size()), row.seq.data()))
    return absl::InternalError("a packed row does not fit its own shape");
  return options.stripeRanks == 1
             ? absl::OkStatus()
             : cutRow(options.shape, options.stripeRank, options.stripeRanks,
                      row);
}

absl::Status Packer::next(Batch &batch) {
  batch.rows.resize(options.rows / options.dataRanks);
  batch.slots = options.rows * options.shape.tokens;
  batch.realTokens = batch.documents = batch.validLabels = batch.epoch = 0;
  for (int64_t r = 0; r < options.rows; ++r) {
    std::vector<Piece> pieces = nextRow();
    // Counts of every rank's rows need no token ids, so no rank has to ask.
    for (const Piece &piece : pieces) {
      batch.realTokens += piece.length;
      batch.validLabels += countLabels(piece);
      batch.epoch = std::max(batch.epoch, piece.epoch);
    }
    batch.documents += static_cast<int64_t>(pieces.size());
    if (r % options.dataRanks != options.dataRank)
      continue;
    absl::Status status = fill(pieces, batch.rows[r / options.dataRanks]);
    if (!status.ok())
      return status;
  }
  batch.after = now;
  return absl::OkStatus();
}

} // namespace qwen35
