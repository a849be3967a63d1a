#include "tools/qwen35-data/convert.h"

#include "runtime/data/corpus.h"

#include "absl/strings/str_cat.h"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

namespace qwen35 {

using nlohmann::json;
using Stream = std::unique_ptr<FILE, int (*)(FILE *)>;

static absl::Status cannotRead(const std::string &path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

absl::Status addText(const std::string &path, TokenFileWriter &writer) {
  Stream stream(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!stream)
    return cannotRead(path);
  // By lines, so that memory holds one paragraph, not the file.
  std::vector<uint8_t> paragraph;
  int64_t before = writer.header().documents;
  absl::Status status;
  auto close = [&] {
    auto found = findParagraphs(paragraph.data(),
                                static_cast<int64_t>(paragraph.size()));
    for (auto [begin, end] : found)
      if (status.ok())
        status = writer.addBytes(absl::MakeConstSpan(
            paragraph.data() + begin, static_cast<size_t>(end - begin)));
    paragraph.clear();
  };
  char *line = nullptr;
  size_t capacity = 0;
  ssize_t length;
  errno = 0;
  while (status.ok() &&
         (length = getline(&line, &capacity, stream.get())) > 0) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(line);
    if (findParagraphs(bytes, length).empty()) // a blank line
      close();
    else
      paragraph.insert(paragraph.end(), bytes, bytes + length);
  }
  bool failed = std::ferror(stream.get());
  std::free(line);
  if (failed)
    return cannotRead(path);
  if (status.ok())
    close();
  if (status.ok() && writer.header().documents == before)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no text, only white space"));
  if (status.code() == absl::StatusCode::kInvalidArgument)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": paragraph ", writer.header().documents - before,
                     ": ", status.message()));
  return status;
}

/// `object[name]` or the list itself as ids.
static absl::Status readIds(const json &list, std::vector<int64_t> &ids) {
  if (!list.is_array())
    return absl::InvalidArgumentError(
        absl::StrCat("the ids are no list but ", list.dump().substr(0, 64)));
  ids.clear();
  for (size_t i = 0; i < list.size(); ++i) {
    const json &id = list[i];
    bool fits = id.is_number_integer() &&
                (!id.is_number_unsigned() ||
                 id.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (!fits)
      return absl::InvalidArgumentError(
          absl::StrCat("position ", i, ": token id ", id.dump().substr(0, 64),
                       " is not an integer"));
    ids.push_back(id.get<int64_t>());
  }
  return absl::OkStatus();
}

static absl::Status readMask(const json &list, std::vector<uint8_t> &mask) {
  if (!list.is_array())
    return absl::InvalidArgumentError(
        absl::StrCat("loss_mask is no list but ", list.dump().substr(0, 64)));
  for (size_t i = 0; i < list.size(); ++i) {
    const json &value = list[i];
    bool one = value == json(true) || value == json(1);
    if (!one && value != json(false) && value != json(0))
      return absl::InvalidArgumentError(
          absl::StrCat("position ", i, ": loss_mask is ",
                       value.dump().substr(0, 64), ", expected 0 or 1"));
    mask.push_back(one);
  }
  return absl::OkStatus();
}

static absl::Status addLine(const std::string &text, TokenFileWriter &writer) {
  json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (line.is_discarded())
    return absl::InvalidArgumentError("is not valid JSON");
  std::vector<int64_t> ids;
  std::vector<uint8_t> mask;
  absl::Status status;
  if (line.is_object()) {
    const json *found = nullptr;
    for (const char *name : {"input_ids", "ids", "tokens"}) {
      auto member = line.find(name);
      if (member == line.end())
        continue;
      if (found)
        return absl::InvalidArgumentError(
            "has more than one of input_ids, ids and tokens");
      found = &*member;
    }
    if (!found)
      return absl::InvalidArgumentError(
          "has no list of ids named input_ids, ids or tokens");
    status = readIds(*found, ids);
    auto maskList = line.find("loss_mask");
    if (status.ok() && maskList != line.end()) {
      status = readMask(*maskList, mask);
      if (status.ok() && mask.size() != ids.size())
        status = absl::InvalidArgumentError(
            absl::StrCat("loss_mask has ", mask.size(), " entries for ",
                         ids.size(), " ids"));
    }
  } else {
    status = readIds(line, ids);
  }
  return status.ok() ? writer.add(ids, mask) : status;
}

absl::Status addJsonl(const std::string &path, TokenFileWriter &writer) {
  Stream stream(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!stream)
    return cannotRead(path);
  char *text = nullptr;
  size_t capacity = 0;
  ssize_t length;
  int64_t number = 0;
  absl::Status status;
  errno = 0;
  while (status.ok() &&
         (length = getline(&text, &capacity, stream.get())) > 0) {
    ++number;
    std::string line(text, static_cast<size_t>(length));
    if (line.find_first_not_of(" \t\r\n") != std::string::npos)
      status = addLine(line, writer);
  }
  bool failed = std::ferror(stream.get());
  std::free(text);
  if (failed)
    return cannotRead(path);
  if (status.code() == absl::StatusCode::kInvalidArgument)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", number, ": ", status.message()));
  return status;
}

} // namespace qwen35
