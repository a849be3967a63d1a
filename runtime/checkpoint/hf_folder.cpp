#include "runtime/checkpoint/hf_folder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/checkpoint/json.h"

namespace qwen35 {
namespace {

constexpr int64_t kMaxIndex = 100'000'000;

/// A plain name of a file in this folder; an index must not lead elsewhere.
bool isPlainName(const std::string &name) {
  return !name.empty() && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c >= 0x20 && c != 0x7f && c != '/';
         });
}

/// Says what the folder holds instead, since a wrong folder is the usual cause.
absl::Status nothingToLoad(const std::string &folder) {
  absl::StatusOr<std::vector<std::string>> names = listFolder(folder);
  if (!names.ok())
    return names.status();
  std::vector<std::string> others;
  for (const std::string &name : *names)
    if (absl::EndsWith(name, ".safetensors") && others.size() < 4)
      others.push_back(name);
  return absl::NotFoundError(absl::StrCat(
      folder, " has neither ", kIndexName, " nor ", kSingleName,
      others.empty() ? std::string(" and no other .safetensors file")
                     : absl::StrCat("; it has ", absl::StrJoin(others, ", "),
                                    ", which only an index can name")));
}

} // namespace

absl::StatusOr<HfFolder> HfFolder::open(const std::string &folder) {
  HfFolder result;
  result.folder = folder;
  std::string indexPath = joinPath(folder, kIndexName);
  if (exists(indexPath)) {
    if (absl::Status status = result.readIndex(indexPath); !status.ok())
      return status;
    return result;
  }
  if (!exists(joinPath(folder, kSingleName)))
    return nothingToLoad(folder);
  absl::StatusOr<SafetensorsFile> file =
      SafetensorsFile::open(joinPath(folder, kSingleName));
  if (!file.ok())
    return file.status();
  result.names.push_back(kSingleName);
  result.shards.push_back(std::move(*file));
  for (const TensorInfo &info : result.shards[0].tensors())
    result.byName[info.name] = Tensor{0, &info};
  return result;
}

absl::Status HfFolder::readIndex(const std::string &path) {
  auto fail = [&](absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
  };
  absl::StatusOr<std::string> text = readFile(path, kMaxIndex);
  if (!text.ok())
    return text.status();
  index = std::move(*text);
  absl::StatusOr<nlohmann::json> parsed = parseJson(index, path);
  if (!parsed.ok())
    return parsed.status();
  auto map = parsed->is_object() ? parsed->find("weight_map") : parsed->end();
  if (!parsed->is_object() || map == parsed->end() || !map->is_object() ||
      map->empty())
    return fail("has no weight_map of tensor names to file names");

  std::map<std::string, size_t> fileOf; // shard name to its place in `shards`
  for (const auto &[tensor, file] : map->items()) {
    if (!file.is_string() || !isPlainName(file.get<std::string>()))
      return fail(absl::StrCat("tensor ", tensor, " is placed in ",
                               jsonText(file, -1).substr(0, 200),
                               ", which is no name of a file in this folder"));
    fileOf[file.get<std::string>()] = 0;
  }
  for (auto &[name, place] : fileOf) {
    absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::open(joinPath(folder, name));
    if (!file.ok())
      return absl::Status(file.status().code(),
                          absl::StrCat(file.status().message(), " (a file of ",
                                       kIndexName, ")"));
    place = shards.size();
    names.push_back(name);
    shards.push_back(std::move(*file));
  }
  for (size_t i = 0; i < shards.size(); ++i)
    for (const TensorInfo &info : shards[i].tensors()) {
      auto entry = map->find(info.name);
      if (entry == map->end() || entry->get<std::string>() != names[i])
        return fail(absl::StrCat(
            names[i], " holds tensor ", info.name, ", which the index ",
            entry == map->end() ? std::string("does not list")
                                : absl::StrCat("places in ",
                                               entry->get<std::string>())));
      byName[info.name] = Tensor{i, &info};
    }
  for (const auto &[tensor, file] : map->items())
    if (!byName.count(tensor))
      return fail(absl::StrCat("tensor ", tensor, " is listed in ",
                               file.get<std::string>(),
                               ", which does not hold it"));
  return absl::OkStatus();
}

} // namespace qwen35
