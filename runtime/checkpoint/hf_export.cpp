// Writing Hugging Face folders: the second half of HfCheckpoint, and models
// that follow no original.
#include "runtime/checkpoint/hf_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/checkpoint/json.h"

namespace qwen35 {
namespace {

constexpr int64_t kPieceElements = 1 << 18; // converted at a time
constexpr int64_t kSmallFile = 64 << 20;

/// Other forms of weights: copying them beside the new ones would mislead.
constexpr absl::string_view kWeightSuffixes[] = {
    ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json",
    ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"};

bool isWeightFile(const std::string &name) {
  return std::any_of(std::begin(kWeightSuffixes), std::end(kWeightSuffixes),
                     [&](absl::string_view suffix) {
                       return absl::EndsWith(name, suffix);
                     });
}

/// Builds a folder under a temporary name beside `target` and moves it there
/// when it is complete; without commit nothing stays.
class FolderWriter {
public:
  static absl::StatusOr<FolderWriter> create(std::string target) {
    while (target.size() > 1 && target.back() == '/')
      target.pop_back();
    if (absl::Status status = checkExportTarget(target); !status.ok())
      return status;
    FolderWriter writer(target);
    // What a killed export left behind.
    if (absl::Status status = removeAll(writer.partial); !status.ok())
      return status;
    if (absl::Status status = makeFolders(writer.partial); !status.ok())
      return status;
    return writer;
  }

  FolderWriter(FolderWriter &&other) noexcept
      : target(std::move(other.target)),
        partial(std::exchange(other.partial, {})) {}
  FolderWriter &operator=(FolderWriter &&) = delete;

  ~FolderWriter() {
    if (!partial.empty())
      removeAll(partial).IgnoreError();
  }

  std::string in(absl::string_view name) const {
    return joinPath(partial, name);
  }
  const std::string &folder() const { return partial; }

  absl::Status commit() {
    if (absl::Status status = syncFolder(partial); !status.ok())
      return status;
    // checkExportTarget saw an earlier export, an empty folder or nothing.
    if (absl::Status status = replaceFolder(partial, target); !status.ok())
      return status;
    partial.clear();
    return absl::OkStatus();
  }

private:
  explicit FolderWriter(const std::string &target)
      : target(target), partial(absl::StrCat(target, ".partial")) {}

  std::string target, partial;
};

/// Rounds master weights to the type of the file, a piece at a time. `original`
/// holds the file's bytes, or nothing: an element that widens to the master's
/// bits keeps the file's own, which matters where widening loses bits (F64).
TensorSource roundedSource(std::string name, ElementType type,
                           std::vector<int64_t> shape, const ParamStore &store,
                           size_t param, int64_t first, int64_t count,
                           absl::string_view original) {
  auto write = [&store, type, param, first, count,
                original](const TensorSink &sink) {
    int64_t bytesPer = bytesOf(type);
    std::vector<char> buffer(kPieceElements * bytesPer);
    int64_t done = 0; // elements
    auto round = [&](const float *from, int64_t piece) {
      fromFloat(type, from, piece, buffer.data());
      if (type == ElementType::F64 && !original.empty()) {
        for (int64_t i = 0; i < piece; ++i) {
          const char *bytes = original.data() + (done + i) * bytesPer;
          float widened;
          toFloat(type, bytes, 1, &widened);
          if (std::memcmp(&widened, from + i, sizeof widened) == 0)
            std::memcpy(buffer.data() + i * bytesPer, bytes, bytesPer);
        }
      }
      done += piece;
      return sink(buffer.data(), piece * bytesPer);
    };
    return store.read(
        ParamRole::Weight, param, first, count,
        [&](absl::Span<const float> values) {
          int64_t size = static_cast<int64_t>(values.size());
          for (int64_t at = 0; at < size; at += kPieceElements)
            if (absl::Status status = round(
                    values.data() + at, std::min(kPieceElements, size - at));
                !status.ok())
              return status;
          return absl::OkStatus();
        });
  };
  return TensorSource{std::move(name), type, std::move(shape),
                      std::move(write)};
}

absl::Status writeMarker(const std::string &path, const ExportOrigin &origin) {
  nlohmann::json marker = {{"format", "qwen35-export"},
                           {"step", origin.step},
                           {"bundle_sha256", origin.bundleSha256},
                           {"weights", origin.weights}};
  return writeFile(path, jsonText(marker) + "\n");
}

absl::Status checkWeights(absl::Span<const ParamSpec> params,
                          const ParamStore &store) {
  if (store.params() != params.size())
    return absl::InvalidArgumentError(
        absl::StrCat("exporting: ", store.params(), " arrays given for ",
                     params.size(), " parameters"));
  for (size_t i = 0; i < params.size(); ++i)
    if (int64_t found = store.elements(ParamRole::Weight, i);
        found != params[i].elements())
      return absl::InvalidArgumentError(
          absl::StrCat("exporting ", params[i].name, ": the array has ", found,
                       " elements, expected ", params[i].elements()));
  return absl::OkStatus();
}

} // namespace

absl::Status checkExportTarget(const std::string &target) {
  if (!exists(target))
    return absl::OkStatus();
  if (!isFolder(target))
    return absl::AlreadyExistsError(
        absl::StrCat("export folder ", target, " is a file"));
  absl::StatusOr<std::vector<std::string>> names = listFolder(target);
  if (!names.ok())
    return names.status();
  if (names->empty() || exists(joinPath(target, kExportMarker)))
    return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "export folder ", target, " exists with ", names->size(),
      " files and is no earlier export (it has no ", kExportMarker,
      "); choose another folder or remove it"));
}

TensorSource HfCheckpoint::sourceOf(const std::string &name,
                                    const ParamStore &store) const {
  const HfFolder::Tensor &tensor = files.tensors().at(name);
  absl::string_view bytes = files.bytes(tensor);
  auto piece = pieces.find(name);
  if (piece == pieces.end())
    return tensorFromBytes(name, tensor.info->type, tensor.info->shape,
                           bytes.data());
  return roundedSource(name, tensor.info->type, tensor.info->shape, store,
                       piece->second.param, piece->second.first,
                       piece->second.count, bytes);
}

absl::StatusOr<ExportReport>
HfCheckpoint::exportTo(const std::string &target, const ParamStore &store,
                       const ExportOrigin &origin) const {
  if (absl::Status status = checkWeights(params, store); !status.ok())
    return status;
  absl::StatusOr<FolderWriter> out = FolderWriter::create(target);
  if (!out.ok())
    return out.status();
  ExportReport report;
  int64_t tensorBytes = 0;
  for (size_t i = 0; i < files.files().size(); ++i) {
    const SafetensorsFile &file = files.files()[i];
    std::vector<TensorSource> tensors;
    for (const TensorInfo &info : file.tensors()) {
      if (info.name == duplicateHead)
        continue;
      tensors.push_back(sourceOf(info.name, store));
      tensorBytes += info.bytes;
    }
    if (tensors.empty()) // it held nothing but the repeated head
      continue;
    bool same = tensors.size() == file.tensors().size();
    absl::StatusOr<FileDigest> written =
        writeSafetensors(out->in(files.fileName(i)), tensors, file.metadata(),
                         same ? file.header() : absl::string_view());
    if (!written.ok())
      return written.status();
    report.files.push_back(files.fileName(i));
    report.tensors += static_cast<int64_t>(tensors.size());
    report.bytes += written->bytes;
  }
  if (absl::Status status = writeIndex(out->folder(), tensorBytes);
      !status.ok())
    return status;
  if (absl::Status status = copyOthers(out->folder(), &report); !status.ok())
    return status;
  if (absl::Status status = writeMarker(out->in(kExportMarker), origin);
      !status.ok())
    return status;
  if (absl::Status status = out->commit(); !status.ok())
    return status;
  return report;
}

absl::Status HfCheckpoint::writeIndex(const std::string &into,
                                      int64_t totalBytes) const {
  if (files.indexText().empty())
    return absl::OkStatus();
  std::string path = joinPath(into, kIndexName);
  if (duplicateHead.empty())
    return writeFile(path, files.indexText());
  absl::StatusOr<nlohmann::json> index =
      parseJson(files.indexText(), kIndexName);
  if (!index.ok())
    return index.status();
  index->at("weight_map").erase(duplicateHead);
  nlohmann::json &metadata = (*index)["metadata"];
  if (!metadata.is_object())
    metadata = nlohmann::json::object();
  nlohmann::json &total = metadata["total_size"];
  if (total.is_number_float()) // as some published files write it
    total = static_cast<double>(totalBytes);
  else
    total = totalBytes;
  return writeFile(path, jsonText(*index) + "\n");
}

absl::Status HfCheckpoint::copyOthers(const std::string &into,
                                      ExportReport *report) const {
  absl::StatusOr<std::vector<std::string>> names = listFolder(files.path());
  if (!names.ok())
    return names.status();
  for (const std::string &name : *names) {
    std::string from = joinPath(files.path(), name);
    if (name == kExportMarker)
      continue;
    if (isWeightFile(name)) {
      bool ours = name == kIndexName;
      for (size_t i = 0; i < files.files().size(); ++i)
        ours |= files.fileName(i) == name;
      if (!ours)
        report->skipped.push_back(absl::StrCat(name, ": other weights"));
      continue;
    }
    struct stat info;
    if (::stat(from.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      report->skipped.push_back(absl::StrCat(name, ": not a regular file"));
      continue;
    }
    if (info.st_size > kSmallFile) {
      report->skipped.push_back(
          absl::StrCat(name, ": ", info.st_size, " bytes, over ", kSmallFile));
      continue;
    }
    if (absl::Status status = copyFile(from, joinPath(into, name));
        !status.ok())
      return status;
    report->copied.push_back(name);
  }
  return absl::OkStatus();
}

absl::StatusOr<ExportReport>
exportNewHf(const std::string &target, absl::Span<const ParamSpec> params,
            const ParamStore &store, const NewExport &options,
            const ExportOrigin &origin) {
  if (absl::Status status = checkWeights(params, store); !status.ok())
    return status;
  std::vector<size_t> order(params.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return params[a].name < params[b].name;
  });
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t shardBytes = 0, totalBytes = 0;
  for (size_t i : order) {
    const ParamSpec &param = params[i];
    int64_t bytes = param.elements() * bytesOf(param.fileType);
    if (!shards.back().empty() && shardBytes + bytes > options.maxShardBytes) {
      shards.emplace_back();
      shardBytes = 0;
    }
    shards.back().push_back(
        roundedSource(param.name, param.fileType, param.shape, store, i, 0,
                      param.elements(), {}));
    shardBytes += bytes;
    totalBytes += bytes;
  }

  absl::StatusOr<FolderWriter> out = FolderWriter::create(target);
  if (!out.ok())
    return out.status();
  ExportReport report;
  nlohmann::json map = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name =
        shards.size() == 1
            ? std::string(kSingleName)
            : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1,
                              shards.size());
    sortForWriting(&shards[i]);
    // transformers refuses a file that does not say which framework wrote it.
    absl::StatusOr<FileDigest> written =
        writeSafetensors(out->in(name), shards[i], {{"format", "pt"}});
    if (!written.ok())
      return written.status();
    for (const TensorSource &tensor : shards[i])
      map[tensor.name] = name;
    report.files.push_back(name);
    report.tensors += static_cast<int64_t>(shards[i].size());
    report.bytes += written->bytes;
  }
  if (shards.size() > 1) {
    nlohmann::json index = {{"metadata", {{"total_size", totalBytes}}},
                            {"weight_map", std::move(map)}};
    if (absl::Status status =
            writeFile(out->in(kIndexName), jsonText(index) + "\n");
        !status.ok())
      return status;
  }
  if (absl::Status status =
          writeFile(out->in("config.json"), options.configJson);
      !status.ok())
    return status;
  if (absl::Status status = writeMarker(out->in(kExportMarker), origin);
      !status.ok())
    return status;
  if (absl::Status status = out->commit(); !status.ok())
    return status;
  return report;
}

} // namespace qwen35
