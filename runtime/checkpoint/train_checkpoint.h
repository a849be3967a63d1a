#ifndef QWEN35_RUNTIME_CHECKPOINT_TRAIN_CHECKPOINT_H
#define QWEN35_RUNTIME_CHECKPOINT_TRAIN_CHECKPOINT_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/file_io.h"
#include "runtime/checkpoint/param_store.h"
#include "runtime/checkpoint/param_table.h"

namespace qwen35 {

/// What a training checkpoint says beside its tensors.
struct TrainState {
  int64_t step = 0;          // optimizer steps done
  int64_t skipped = 0;       // of them, not committed (non-finite norm)
  int64_t realTokens = 0;    // trained on so far
  std::string loader;        // JSON: where the data loader stands, or empty
  std::string rng;           // JSON: seeds of what is random in a run, or empty
  std::string recipe;        // TOML: the run's, resolved
  std::string bundleSha256;  // of the bundle that made it
};

/// Master weight and AdamW moments of one parameter, float32, row-major.
template <typename Float> struct ParamArrays {
  absl::Span<Float> weight, m, v;
};

template <typename Float>
SpanStore storeOf(absl::Span<const ParamArrays<Float>> arrays) {
  auto mut = [](absl::Span<Float> span) {
    return absl::MakeSpan(const_cast<float *>(span.data()), span.size());
  };
  SpanStore::Arrays weights, m, v;
  for (const ParamArrays<Float> &array : arrays) {
    weights.push_back(mut(array.weight));
    m.push_back(mut(array.m));
    v.push_back(mut(array.v));
  }
  return SpanStore(std::move(weights), std::move(m), std::move(v));
}

struct SaveOptions {
  int64_t keepLast = 0; // checkpoints to keep, with this one; 0: all
  int64_t maxShardBytes = 5'000'000'000; // of tensors in one file
};

struct SaveReport {
  std::string path;
  int64_t bytes = 0;                // of its tensors
  std::vector<std::string> removed; // older checkpoints
  std::string warning; // an older one could not be removed; the save is good
};

/// A checkpoint that has been checked: every file is there with the size and
/// SHA-256 that the manifest says.
struct Checkpoint {
  std::string path;
  TrainState state;
  int64_t step() const { return state.step; }
};

/// The checkpoints of a run, RUN/checkpoints:
///
///   step-00000010/manifest.json   state, and name, size and SHA-256 of
///   step-00000010/{weights,m,v}-00001-of-00001.safetensors    float32 bits
///   latest -> step-00000010
///
/// A checkpoint is built in a folder of another name, every file and the
/// folder are synced, then it is renamed and `latest` is moved. Whatever
/// happens at any moment (a kill, a full disk, a power cut), the folders named
/// step-* are whole, and the newest valid one is never removed.
///
/// The caller holds the run folder's RunLock.
class CheckpointStore {
public:
  /// Makes the folder and removes what a killed run left half done.
  static absl::StatusOr<CheckpointStore> open(const std::string &runFolder);

  /// Errors  ResourceExhausted on a full disk, and whatever else the file
  ///         system says: nothing of the new checkpoint stays, the older ones
  ///         are as they were, the arrays were only read. InvalidArgument for
  ///         arrays of another length than their parameters, or JSON that is
  ///         none.
  absl::StatusOr<SaveReport> save(const TrainState &state,
                                  absl::Span<const ParamSpec> params,
                                  const ParamStore &store,
                                  const SaveOptions &options) const;
  absl::StatusOr<SaveReport>
  save(const TrainState &state, absl::Span<const ParamSpec> params,
       absl::Span<const ParamArrays<const float>> arrays,
       const SaveOptions &options) const {
    return save(state, params, storeOf(arrays), options);
  }

  /// The newest valid checkpoint, or nothing when there is none. `refused`,
  /// when given, gets one sentence for each newer one that is damaged.
  absl::StatusOr<std::optional<Checkpoint>>
  findNewest(std::vector<std::string> *refused = nullptr) const;

  /// Steps of the folders named like checkpoints, ascending, valid or not.
  absl::StatusOr<std::vector<int64_t>> steps() const;

  /// Reads a manifest and checks the files against it.
  /// Errors  DataLoss naming the file, what was found and what was expected.
  static absl::StatusOr<Checkpoint> check(const std::string &path);

  /// Reads a manifest alone, of a checkpoint that somebody has checked.
  static absl::StatusOr<Checkpoint> read(const std::string &path);

  /// Fills the arrays from a checked checkpoint.
  /// Errors  InvalidArgument naming the parameter if the checkpoint has other
  ///         parameters or other shapes; nothing is written then.
  static absl::Status load(const Checkpoint &checkpoint,
                           absl::Span<const ParamSpec> params,
                           const ParamStore &store);
  static absl::Status load(const Checkpoint &checkpoint,
                           absl::Span<const ParamSpec> params,
                           absl::Span<const ParamArrays<float>> arrays) {
    return load(checkpoint, params, storeOf(arrays));
  }

  const std::string &path() const { return folder; }
  std::string pathOf(int64_t step) const;

private:
  explicit CheckpointStore(std::string folder) : folder(std::move(folder)) {}
  absl::Status moveLatest(int64_t step) const;
  void prune(int64_t newest, int64_t keepLast, SaveReport *report) const;

  std::string folder; // RUN/checkpoints
};

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_TRAIN_CHECKPOINT_H
