#ifndef QWEN35_RUNTIME_CHECKPOINT_HF_CHECKPOINT_H
#define QWEN35_RUNTIME_CHECKPOINT_HF_CHECKPOINT_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/checkpoint/hf_folder.h"
#include "runtime/checkpoint/param_store.h"
#include "runtime/checkpoint/param_table.h"

namespace qwen35 {

/// Where an exported model comes from; written into it as qwen35-export.json,
/// by which a later export knows that it may replace the folder.
struct ExportOrigin {
  int64_t step = 0;
  std::string bundleSha256;
  std::string weights; // the folder that training started from, or "seed 7"
};

struct ExportReport {
  std::vector<std::string> files; // safetensors files written
  int64_t tensors = 0;            // in them
  int64_t bytes = 0;              // of them
  std::vector<std::string> copied;  // other files taken over
  std::vector<std::string> skipped; // other files left behind, with the reason
};

/// A Hugging Face checkpoint matched with a model's parameters.
///
/// Names   Both prefixes are read: `model.language_model.X` is the parameter
///         `model.X`. Experts may be fused, [E, 2I, D] and [E, D, I], or one
///         file tensor per expert, `experts.{e}.{gate,up,down}_proj.weight`
///         ([I, D], [I, D], [D, I]); a section (decoder, MTP) uses one form.
///         Fused rows are gate over up; nothing is transposed either way.
/// Aside   `mtp.*` and `model.visual.*` that are no parameters are not read;
///         an export writes their bytes back. A head in the file of a tied
///         model must equal the embedding; an export leaves it out.
/// Errors  InvalidArgument naming the tensor, what was found and what was
///         expected: missing, unexpected, wrong shape, transposed, integer
///         dtype, forms mixed in one section, a tied head that differs.
/// Source  MODEL.md sections 5.3 and 9.
class HfCheckpoint {
public:
  static absl::StatusOr<HfCheckpoint>
  open(const std::string &folder, absl::Span<const ParamSpec> params);

  /// Fills the float32 master weights.
  ///
  /// Shapes  weights[i]: the elements of params[i], row-major.
  /// Errors  InvalidArgument if an array has another length.
  absl::Status load(const ParamStore &store) const;
  absl::Status load(absl::Span<const absl::Span<float>> weights) const {
    return load(SpanStore({weights.begin(), weights.end()}));
  }

  /// Writes the weights as a folder like the one opened: file names, order,
  /// names, layouts and the dtype of every tensor are its own, values rounded
  /// to nearest even. Elements that still equal the file's get the file's
  /// bits, so a tensor that no step touched is byte-identical. config.json,
  /// tokenizer and other small files are copied.
  ///
  /// The folder appears complete, under its name, or not at all.
  /// Errors  AlreadyExists if `target` exists and is neither empty nor an
  ///         earlier export; ResourceExhausted on a full disk.
  absl::StatusOr<ExportReport>
  exportTo(const std::string &target, const ParamStore &store,
           const ExportOrigin &origin) const;
  absl::StatusOr<ExportReport>
  exportTo(const std::string &target,
           absl::Span<const absl::Span<const float>> weights,
           const ExportOrigin &origin) const {
    return exportTo(target, SpanStore::ofWeights(weights), origin);
  }

  const HfFolder &folder() const { return files; }
  /// Names of tensors that are not parameters, in order.
  const std::vector<std::string> &keptAside() const { return aside; }
  bool composite() const { return hasCompositeNames; }
  bool perExpert() const { return hasPerExpertNames; }
  /// "320 parameters from 488 tensors in 1 file; kept aside: 15 mtp, 153
  /// vision; layout composite, fused experts".
  std::string summary() const;

private:
  /// A file tensor is a run of elements of one parameter: one expert's matrix
  /// is a run of rows of the fused one.
  struct Piece {
    size_t param = 0;
    int64_t first = 0, count = 0;
  };

  explicit HfCheckpoint(HfFolder folder) : files(std::move(folder)) {}
  absl::Status match();
  absl::Status checkExpertForms() const;
  absl::Status matchTensor(const std::string &name);
  absl::Status matchExpert(const std::string &name, const std::string &flat,
                           bool *matched);
  absl::Status checkTiedHead(const std::string &name);
  absl::Status checkTensor(const std::string &name,
                           absl::Span<const int64_t> expected) const;
  absl::Status checkMissing() const;
  absl::Status fail(const std::string &tensor, absl::string_view message) const;
  TensorSource sourceOf(const std::string &name,
                        const ParamStore &store) const;
  absl::Status copyOthers(const std::string &into, ExportReport *report) const;
  absl::Status writeIndex(const std::string &into, int64_t totalBytes) const;

  HfFolder files;
  std::vector<ParamSpec> params;
  std::map<std::string, size_t> paramByName;
  std::map<std::string, Piece> pieces;   // by the name in the file
  std::map<std::string, std::string> byFlat; // flat name to name in the file
  std::vector<std::string> aside;
  std::string duplicateHead; // in the file of a tied model, else empty
  bool hasCompositeNames = false, hasPerExpertNames = false;
};

struct NewExport {
  std::string configJson;                  // text of config.json
  int64_t maxShardBytes = 5'000'000'000;   // of tensors in one file
};

/// Writes a model that follows no original: names as in `params` (flat), the
/// dtype of each from ParamSpec::fileType, one model.safetensors or shards
/// with an index. Guarantees and errors as HfCheckpoint::exportTo.
absl::StatusOr<ExportReport>
exportNewHf(const std::string &target, absl::Span<const ParamSpec> params,
            const ParamStore &store, const NewExport &options,
            const ExportOrigin &origin);
inline absl::StatusOr<ExportReport>
exportNewHf(const std::string &target, absl::Span<const ParamSpec> params,
            absl::Span<const absl::Span<const float>> weights,
            const NewExport &options, const ExportOrigin &origin) {
  return exportNewHf(target, params, SpanStore::ofWeights(weights), options,
                     origin);
}

/// Whether an export may write there, so that a run can refuse before it
/// trains. Errors as HfCheckpoint::exportTo.
absl::Status checkExportTarget(const std::string &target);

constexpr char kExportMarker[] = "qwen35-export.json";

} // namespace qwen35

#endif // QWEN35_RUNTIME_CHECKPOINT_HF_CHECKPOINT_H
