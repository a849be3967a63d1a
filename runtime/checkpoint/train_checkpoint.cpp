#include "runtime/checkpoint/train_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/checkpoint/json.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35 {
namespace {

using nlohmann::json;

constexpr char kManifest[] = "manifest.json";
constexpr char kLatest[] = "latest";
constexpr char kFormat[] = "qwen35-checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxManifest = 256 << 20;
constexpr absl::string_view kStepPrefix = "step-";
/// Names of what is not (or no longer) a checkpoint start so.
constexpr absl::string_view kTemporary = ".tmp-";

constexpr const char *kRoles[] = {"weights", "m", "v"};

std::string stepName(int64_t step) {
  return absl::StrFormat("%s%08d", kStepPrefix, step);
}

/// The step of a folder name, or -1; only the form that stepName writes.
int64_t stepOf(const std::string &name) {
  absl::string_view digits = name;
  int64_t step = -1;
  if (!absl::ConsumePrefix(&digits, kStepPrefix) ||
      !absl::SimpleAtoi(digits, &step) || step < 0 || stepName(step) != name)
    return -1;
  return step;
}

absl::Status checkArrays(absl::string_view doing,
                         absl::Span<const ParamSpec> params,
                         const ParamStore &store) {
  if (store.params() != params.size())
    return absl::InvalidArgumentError(
        absl::StrCat(doing, ": ", store.params(), " parameters' arrays given, ",
                     "expected ", params.size()));
  for (size_t i = 0; i < params.size(); ++i)
    for (int role = 0; role < 3; ++role)
      if (int64_t found = store.elements(ParamRole(role), i);
          found != params[i].elements())
        return absl::InvalidArgumentError(absl::StrCat(
            doing, ": ", kRoles[role], " of ", params[i].name, " has ", found,
            " elements, expected ", params[i].elements()));
  return absl::OkStatus();
}

/// JSON that the caller hands over as text; empty becomes null.
absl::StatusOr<json> embed(const std::string &text, absl::string_view what) {
  if (text.empty())
    return json(nullptr);
  return parseJson(text, what);
}

/// The digest of a manifest covers everything but itself.
std::string digestOf(json manifest) {
  manifest.erase("sha256");
  return sha256Hex(jsonText(manifest, -1));
}

/// Writes weights, m or v in shards and lists them in `files`.
absl::Status writeRole(const std::string &into, int role, int64_t step,
                       absl::Span<const ParamSpec> params,
                       const ParamStore &store,
                       int64_t maxShardBytes, json *files, int64_t *bytes) {
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t shardBytes = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    int64_t size = params[i].elements() * int64_t(sizeof(float));
    if (!shards.back().empty() && shardBytes + size > maxShardBytes) {
      shards.emplace_back();
      shardBytes = 0;
    }
    shards.back().push_back(tensorFromStore(
        params[i].name, params[i].shape, store, ParamRole(role), i));
    shardBytes += size;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                       kRoles[role], i + 1, shards.size());
    absl::StatusOr<FileDigest> written =
        writeSafetensors(joinPath(into, name), shards[i],
                         {{"role", kRoles[role]},
                          {"step", absl::StrCat(step)}});
    if (!written.ok())
      return written.status();
    files->push_back({{"name", name},
                      {"role", kRoles[role]},
                      {"bytes", written->bytes},
                      {"sha256", written->sha256}});
    *bytes += written->bytes;
  }
  return absl::OkStatus();
}

/// Removes a folder under construction unless it is released.
class Scrap {
public:
  explicit Scrap(std::string path) : path(std::move(path)) {}
  ~Scrap() {
    if (!path.empty())
      removeAll(path).IgnoreError();
  }
  void release() { path.clear(); }

private:
  std::string path;
};

absl::Status damaged(const std::string &path, absl::string_view message) {
  return absl::DataLossError(absl::StrCat(path, ": ", message));
}

absl::StatusOr<int64_t> countIn(const json &object, const char *key,
                                const std::string &path) {
  auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > (uint64_t{1} << 62))
    return damaged(path, absl::StrCat("has no count \"", key, "\""));
  return found->get<int64_t>();
}

absl::StatusOr<std::string> textIn(const json &object, const char *key,
                                   const std::string &path) {
  auto found = object.find(key);
  if (found == object.end() || !found->is_string())
    return damaged(path, absl::StrCat("has no text \"", key, "\""));
  return found->get<std::string>();
}

/// The manifest of a checkpoint, parsed and found intact.
absl::StatusOr<json> readManifest(const std::string &path) {
  absl::StatusOr<std::string> text = readFile(path, kMaxManifest);
  if (!text.ok())
    return damaged(path, text.status().message());
  absl::StatusOr<json> manifest = parseJson(*text, path);
  if (!manifest.ok())
    return absl::DataLossError(manifest.status().message());
  if (!manifest->is_object())
    return damaged(path, "is not an object");
  absl::StatusOr<std::string> format = textIn(*manifest, "format", path);
  QWEN35_RETURN_IF_ERROR(format.status());
  absl::StatusOr<int64_t> version = countIn(*manifest, "version", path);
  QWEN35_RETURN_IF_ERROR(version.status());
  if (*format != kFormat || *version != kVersion)
    return damaged(path, absl::StrCat("is format ", *format, " version ",
                                      *version, ", expected ", kFormat,
                                      " version ", kVersion));
  absl::StatusOr<std::string> digest = textIn(*manifest, "sha256", path);
  QWEN35_RETURN_IF_ERROR(digest.status());
  if (std::string found = digestOf(*manifest); found != *digest)
    return damaged(path, absl::StrCat("has SHA-256 ", found, ", expected ",
                                      *digest));
  return manifest;
}

/// Name, size and digest of every file that the manifest lists.
struct ListedFile {
  std::string name, role, sha256;
  int64_t bytes = 0;
};

absl::StatusOr<std::vector<ListedFile>>
listedFiles(const json &manifest, const std::string &path) {
  auto files = manifest.find("files");
  if (files == manifest.end() || !files->is_array())
    return damaged(path, "lists no files");
  std::vector<ListedFile> result;
  for (const json &entry : *files) {
    if (!entry.is_object())
      return damaged(path, "lists a file that is no object");
    ListedFile file;
    for (auto [key, text] : {std::pair{"name", &file.name},
                             std::pair{"role", &file.role},
                             std::pair{"sha256", &file.sha256}}) {
      absl::StatusOr<std::string> value = textIn(entry, key, path);
      QWEN35_RETURN_IF_ERROR(value.status());
      *text = *value;
    }
    absl::StatusOr<int64_t> bytes = countIn(entry, "bytes", path);
    QWEN35_RETURN_IF_ERROR(bytes.status());
    file.bytes = *bytes;
    if (file.name.empty() || file.name[0] == '.' ||
        file.name.find('/') != std::string::npos)
      return damaged(path, absl::StrCat("lists a file named ", file.name));
    result.push_back(std::move(file));
  }
  return result;
}

absl::Status checkFile(const std::string &path, const ListedFile &file) {
  absl::StatusOr<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok())
    return absl::DataLossError(mapped.status().message());
  if (mapped->size() != file.bytes)
    return damaged(path, absl::StrCat("has ", mapped->size(),
                                      " bytes, expected ", file.bytes));
  if (std::string found = sha256Hex(mapped->text()); found != file.sha256)
    return damaged(path, absl::StrCat("has SHA-256 ", found, ", expected ",
                                      file.sha256));
  return absl::OkStatus();
}

/// Everything but the digests of the tensor files: enough to count a
/// checkpoint as one when deciding which to keep.
bool looksComplete(const std::string &path) {
  std::string manifestPath = joinPath(path, kManifest);
  absl::StatusOr<json> manifest = readManifest(manifestPath);
  if (!manifest.ok())
    return false;
  absl::StatusOr<std::vector<ListedFile>> files =
      listedFiles(*manifest, manifestPath);
  return files.ok() &&
         std::all_of(files->begin(), files->end(), [&](const auto &file) {
           struct stat info;
           return ::stat(joinPath(path, file.name).c_str(), &info) == 0 &&
                  S_ISREG(info.st_mode) && info.st_size == file.bytes;
         });
}

} // namespace

absl::StatusOr<CheckpointStore>
CheckpointStore::open(const std::string &runFolder) {
  CheckpointStore store(joinPath(runFolder, "checkpoints"));
  QWEN35_RETURN_IF_ERROR(makeFolders(store.folder));
  absl::StatusOr<std::vector<std::string>> names = listFolder(store.folder);
  if (!names.ok())
    return names.status();
  for (const std::string &name : *names)
    if (absl::StartsWith(name, kTemporary))
      QWEN35_RETURN_IF_ERROR(removeAll(joinPath(store.folder, name)));
  return store;
}

std::string CheckpointStore::pathOf(int64_t step) const {
  return joinPath(folder, stepName(step));
}

absl::StatusOr<SaveReport>
CheckpointStore::save(const TrainState &state,
                      absl::Span<const ParamSpec> params,
                      const ParamStore &store,
                      const SaveOptions &options) const {
  std::string what = absl::StrCat("saving step ", state.step);
  QWEN35_RETURN_IF_ERROR(checkArrays(what, params, store));
  absl::StatusOr<json> loader = embed(state.loader, what + ": loader state");
  QWEN35_RETURN_IF_ERROR(loader.status());
  absl::StatusOr<json> rng = embed(state.rng, what + ": rng state");
  QWEN35_RETURN_IF_ERROR(rng.status());

  std::string temporary =
      joinPath(folder, absl::StrCat(kTemporary, stepName(state.step)));
  QWEN35_RETURN_IF_ERROR(removeAll(temporary));
  Scrap scrap(temporary);
  QWEN35_RETURN_IF_ERROR(makeFolders(temporary));

  SaveReport report;
  json files = json::array();
  for (int role = 0; role < 3; ++role)
    QWEN35_RETURN_IF_ERROR(writeRole(temporary, role, state.step, params,
                                     store, options.maxShardBytes, &files,
                                     &report.bytes));
  json manifest = {{"format", kFormat},
                   {"version", kVersion},
                   {"step", state.step},
                   {"skipped", state.skipped},
                   {"real_tokens", state.realTokens},
                   {"loader", std::move(*loader)},
                   {"rng", std::move(*rng)},
                   {"recipe", state.recipe},
                   {"bundle_sha256", state.bundleSha256},
                   {"files", std::move(files)}};
  manifest["sha256"] = digestOf(manifest);
  QWEN35_RETURN_IF_ERROR(writeFile(joinPath(temporary, kManifest),
                                   jsonText(manifest) + "\n"));
  QWEN35_RETURN_IF_ERROR(syncFolder(temporary));

  report.path = pathOf(state.step);
  QWEN35_RETURN_IF_ERROR(replaceFolder(temporary, report.path));
  scrap.release();
  QWEN35_RETURN_IF_ERROR(moveLatest(state.step));
  if (options.keepLast > 0)
    prune(state.step, options.keepLast, &report);
  return report;
}

absl::Status CheckpointStore::moveLatest(int64_t step) const {
  std::string fresh = joinPath(folder, absl::StrCat(kTemporary, kLatest));
  std::string latest = joinPath(folder, kLatest);
  QWEN35_RETURN_IF_ERROR(removeAll(fresh));
  if (::symlink(stepName(step).c_str(), fresh.c_str()) != 0 ||
      ::rename(fresh.c_str(), latest.c_str()) != 0)
    return errnoStatus(errno, "moving", latest);
  return syncFolder(folder);
}

void CheckpointStore::prune(int64_t newest, int64_t keepLast,
                            SaveReport *report) const {
  absl::StatusOr<std::vector<int64_t>> all = steps();
  if (!all.ok()) {
    report->warning = std::string(all.status().message());
    return;
  }
  // Newest first. The one just written counts whatever its number; a damaged
  // one neither counts nor is removed: someone may want to look at it.
  int64_t kept = 1;
  for (auto step = all->rbegin(); step != all->rend(); ++step) {
    if (*step == newest || !looksComplete(pathOf(*step)))
      continue;
    if (kept < keepLast) {
      ++kept;
      continue;
    }
    // Under another name first, so that no half-removed checkpoint is found.
    std::string doomed = joinPath(
        folder, absl::StrCat(kTemporary, "removing-", stepName(*step)));
    absl::Status status = removeAll(doomed);
    if (status.ok() &&
        ::rename(pathOf(*step).c_str(), doomed.c_str()) != 0)
      status = errnoStatus(errno, "removing", pathOf(*step));
    if (status.ok())
      status = removeAll(doomed);
    if (status.ok())
      report->removed.push_back(pathOf(*step));
    else
      report->warning = std::string(status.message());
  }
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::steps() const {
  absl::StatusOr<std::vector<std::string>> names = listFolder(folder);
  if (!names.ok())
    return names.status();
  std::vector<int64_t> result;
  for (const std::string &name : *names)
    if (int64_t step = stepOf(name); step >= 0)
      result.push_back(step);
  std::sort(result.begin(), result.end());
  return result;
}

absl::StatusOr<std::optional<Checkpoint>>
CheckpointStore::findNewest(std::vector<std::string> *refused) const {
  absl::StatusOr<std::vector<int64_t>> all = steps();
  if (!all.ok())
    return all.status();
  for (auto step = all->rbegin(); step != all->rend(); ++step) {
    absl::StatusOr<Checkpoint> checkpoint = check(pathOf(*step));
    if (checkpoint.ok() && checkpoint->step() != *step)
      checkpoint = damaged(pathOf(*step), absl::StrCat("holds step ",
                                                       checkpoint->step()));
    if (checkpoint.ok())
      return std::optional<Checkpoint>(std::move(*checkpoint));
    if (refused)
      refused->push_back(std::string(checkpoint.status().message()));
  }
  return std::optional<Checkpoint>();
}

absl::StatusOr<Checkpoint> CheckpointStore::read(const std::string &path) {
  std::string manifestPath = joinPath(path, kManifest);
  absl::StatusOr<json> manifest = readManifest(manifestPath);
  QWEN35_RETURN_IF_ERROR(manifest.status());
  Checkpoint checkpoint;
  checkpoint.path = path;
  TrainState &state = checkpoint.state;
  for (auto [key, value] : {std::pair{"step", &state.step},
                            std::pair{"skipped", &state.skipped},
                            std::pair{"real_tokens", &state.realTokens}}) {
    absl::StatusOr<int64_t> count = countIn(*manifest, key, manifestPath);
    QWEN35_RETURN_IF_ERROR(count.status());
    *value = *count;
  }
  for (auto [key, value] : {std::pair{"recipe", &state.recipe},
                            std::pair{"bundle_sha256", &state.bundleSha256}}) {
    absl::StatusOr<std::string> text = textIn(*manifest, key, manifestPath);
    QWEN35_RETURN_IF_ERROR(text.status());
    *value = *text;
  }
  for (auto [key, value] : {std::pair{"loader", &state.loader},
                            std::pair{"rng", &state.rng}}) {
    auto found = manifest->find(key);
    if (found == manifest->end())
      return damaged(manifestPath, absl::StrCat("has no \"", key, "\""));
    *value = found->is_null() ? std::string() : jsonText(*found, -1);
  }
  return checkpoint;
}

absl::StatusOr<Checkpoint> CheckpointStore::check(const std::string &path) {
  absl::StatusOr<Checkpoint> checkpoint = read(path);
  QWEN35_RETURN_IF_ERROR(checkpoint.status());
  std::string manifestPath = joinPath(path, kManifest);
  absl::StatusOr<json> manifest = readManifest(manifestPath);
  QWEN35_RETURN_IF_ERROR(manifest.status());
  absl::StatusOr<std::vector<ListedFile>> files =
      listedFiles(*manifest, manifestPath);
  QWEN35_RETURN_IF_ERROR(files.status());
  for (const ListedFile &file : *files)
    QWEN35_RETURN_IF_ERROR(checkFile(joinPath(path, file.name), file));
  return checkpoint;
}

absl::Status
CheckpointStore::load(const Checkpoint &checkpoint,
                      absl::Span<const ParamSpec> params,
                      const ParamStore &store) {
  QWEN35_RETURN_IF_ERROR(
      checkArrays(absl::StrCat("loading ", checkpoint.path), params, store));
  std::string manifestPath = joinPath(checkpoint.path, kManifest);
  absl::StatusOr<json> manifest = readManifest(manifestPath);
  QWEN35_RETURN_IF_ERROR(manifest.status());
  absl::StatusOr<std::vector<ListedFile>> files =
      listedFiles(*manifest, manifestPath);
  QWEN35_RETURN_IF_ERROR(files.status());

  auto other = [&](absl::string_view message) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.path, " belongs to another model: ", message));
  };
  std::vector<SafetensorsFile> shards;
  std::map<std::string, std::pair<const SafetensorsFile *, const TensorInfo *>>
      tensors[3];
  for (const ListedFile &file : *files) {
    absl::StatusOr<SafetensorsFile> shard =
        SafetensorsFile::open(joinPath(checkpoint.path, file.name));
    if (!shard.ok())
      return shard.status();
    shards.push_back(std::move(*shard));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    int role = 0;
    while (role < 3 && (*files)[i].role != kRoles[role])
      ++role;
    if (role == 3)
      return damaged(manifestPath, absl::StrCat("lists a file of role ",
                                                (*files)[i].role));
    for (const TensorInfo &info : shards[i].tensors())
      tensors[role][info.name] = {&shards[i], &info};
  }
  // Look at everything before the first byte moves.
  for (int role = 0; role < 3; ++role) {
    std::set<std::string> known;
    for (const ParamSpec &param : params) {
      known.insert(param.name);
      auto found = tensors[role].find(param.name);
      if (found == tensors[role].end())
        return other(absl::StrCat(kRoles[role], " of ", param.name, " ",
                                  shapeText(param.shape), " is missing"));
      const TensorInfo &info = *found->second.second;
      if (info.shape != param.shape || info.type != ElementType::F32)
        return other(absl::StrCat(kRoles[role], " of ", param.name, " is ",
                                  nameOf(info.type), " ",
                                  shapeText(info.shape), ", expected F32 ",
                                  shapeText(param.shape)));
    }
    for (const auto &[name, tensor] : tensors[role])
      if (!known.count(name))
        return other(absl::StrCat(kRoles[role], " of ", name,
                                  " is no parameter of the bundle"));
  }
  for (int role = 0; role < 3; ++role)
    for (size_t i = 0; i < params.size(); ++i) {
      auto [file, info] = tensors[role].at(params[i].name);
      const char *bytes = file->bytes(*info).data();
      QWEN35_RETURN_IF_ERROR(store.write(
          ParamRole(role), i, 0, params[i].elements(),
          [&](int64_t at, absl::Span<float> out) {
            toFloat(ElementType::F32, bytes + at * int64_t(sizeof(float)),
                    static_cast<int64_t>(out.size()), out.data());
          }));
    }
  return absl::OkStatus();
}

} // namespace qwen35
