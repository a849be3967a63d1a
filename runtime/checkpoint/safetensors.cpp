#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/json.h"
#include "runtime/checkpoint/param_table.h"

namespace qwen35 {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeader = 100'000'000; // the format's own limit
constexpr size_t kMaxRank = 16;

/// Names go into messages; a hostile one could be the whole header.
std::string shown(absl::string_view name) {
  if (name.size() <= 200)
    return std::string(name);
  return absl::StrCat(name.substr(0, 200), "...");
}

uint64_t readLength(const char *bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// True for an integer in [0, 2^62].
bool isCount(const json &value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= (uint64_t{1} << 62);
}

absl::StatusOr<TensorInfo> parseTensor(const std::string &name,
                                       const json &entry) {
  auto fail = [&](absl::string_view message) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", shown(name), " ", message));
  };
  if (!entry.is_object())
    return fail("is not described by an object");
  TensorInfo info;
  info.name = name;
  for (const auto &[key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return fail(absl::StrCat("has an unknown field \"", shown(key), "\""));

  auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string())
    return fail("has no dtype");
  absl::StatusOr<ElementType> type =
      parseElementType(dtype->get_ref<const std::string &>());
  if (!type.ok())
    return fail(absl::StrCat("is unreadable: ", type.status().message()));
  info.type = *type;

  auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxRank)
    return fail(absl::StrCat("has no shape of at most ", kMaxRank,
                             " dimensions"));
  for (const json &size : *shape) {
    if (!isCount(size))
      return fail("has a dimension that is no count");
    info.shape.push_back(size.get<int64_t>());
  }
  int64_t elements = elementsOf(info.shape);
  if (elements < 0 || elements > (int64_t{1} << 62) / bytesOf(info.type))
    return fail(absl::StrCat("has an impossible size, shape ",
                             shapeText(info.shape)));

  auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !isCount((*offsets)[0]) || !isCount((*offsets)[1]))
    return fail("has no pair of data_offsets");
  info.begin = (*offsets)[0].get<int64_t>();
  int64_t end = (*offsets)[1].get<int64_t>();
  if (end < info.begin)
    return fail(absl::StrCat("ends at byte ", end, " before it begins at ",
                             info.begin));
  info.bytes = end - info.begin;
  if (info.bytes != elements * bytesOf(info.type))
    return fail(absl::StrCat("has ", info.bytes, " bytes but shape ",
                             shapeText(info.shape), " of ", nameOf(info.type),
                             " needs ", elements * bytesOf(info.type)));
  return info;
}

} // namespace

absl::Status SafetensorsFile::fail(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", message));
}

absl::StatusOr<SafetensorsFile>
SafetensorsFile::open(const std::string &path) {
  absl::StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  SafetensorsFile result(std::move(*file));
  if (absl::Status status = result.parse(); !status.ok())
    return status;
  return result;
}

absl::Status SafetensorsFile::parse() {
  if (file.size() < kLengthBytes)
    return fail(absl::StrCat("too short for a safetensors file, ", file.size(),
                             " bytes"));
  uint64_t length = readLength(file.data());
  if (length > static_cast<uint64_t>(kMaxHeader))
    return fail(absl::StrCat("not a safetensors file, or damaged: it announces "
                             "a header of ",
                             length, " bytes; at most ", kMaxHeader,
                             " are allowed"));
  int64_t left = file.size() - kLengthBytes;
  if (static_cast<int64_t>(length) > left)
    return fail(absl::StrCat("truncated: the header has ", length,
                             " bytes but only ", left, " follow"));
  absl::string_view text = file.text().substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{')
    return fail("the header does not begin with '{'");
  dataBegin = kLengthBytes + static_cast<int64_t>(length);

  absl::StatusOr<json> header =
      parseJson(text, absl::StrCat(file.path(), ": header"),
                {.depth = 4, .elements = kMaxRank});
  if (!header.ok())
    return header.status();
  for (const auto &[name, entry] : header->items()) {
    if (name == "__metadata__") {
      if (!entry.is_object())
        return fail("__metadata__ is not an object");
      for (const auto &[key, value] : entry.items()) {
        if (!value.is_string())
          return fail(absl::StrCat("__metadata__ \"", shown(key),
                                   "\" is not a string"));
        pairs[key] = value.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<TensorInfo> info = parseTensor(name, entry);
    if (!info.ok())
      return fail(info.status().message());
    infos.push_back(std::move(*info));
  }

  // Empty tensors sort before the neighbour that begins where they do.
  std::sort(infos.begin(), infos.end(),
            [](const TensorInfo &a, const TensorInfo &b) {
              return std::tie(a.begin, a.bytes, a.name) <
                     std::tie(b.begin, b.bytes, b.name);
            });
  int64_t data = file.size() - dataBegin, next = 0;
  for (const TensorInfo &info : infos) {
    if (info.begin + info.bytes > data)
      return fail(absl::StrCat("truncated: tensor ", shown(info.name),
                               " ends at byte ", info.begin + info.bytes,
                               " of the data, which has ", data));
    if (info.begin != next)
      return fail(absl::StrCat("tensor ", shown(info.name), " begins at byte ",
                               info.begin, " of the data, ",
                               info.begin < next ? "inside another tensor"
                                                 : "leaving a hole",
                               "; expected ", next));
    next = info.begin + info.bytes;
  }
  if (next != data)
    return fail(absl::StrCat("the tensors take ", next,
                             " bytes but the data has ", data));
  for (size_t i = 0; i < infos.size(); ++i)
    byName[infos[i].name] = i;
  return absl::OkStatus();
}

const TensorInfo *SafetensorsFile::find(absl::string_view name) const {
  auto found = byName.find(std::string(name));
  return found == byName.end() ? nullptr : &infos[found->second];
}

TensorSource tensorFromStore(std::string name, std::vector<int64_t> shape,
                             const ParamStore &store, ParamRole role,
                             size_t param) {
  auto write = [&store, role, param](const TensorSink &sink) {
    return store.read(role, param, 0, store.elements(role, param),
                      [&](absl::Span<const float> values) {
                        return sink(
                            reinterpret_cast<const char *>(values.data()),
                            static_cast<int64_t>(values.size() *
                                                 sizeof(float)));
                      });
  };
  return TensorSource{std::move(name), ElementType::F32, std::move(shape),
                      std::move(write)};
}

TensorSource tensorFromBytes(std::string name, ElementType type,
                             std::vector<int64_t> shape, const void *bytes) {
  int64_t size = elementsOf(shape) * bytesOf(type);
  return TensorSource{std::move(name), type, std::move(shape),
                      [bytes, size](const TensorSink &sink) {
                        return sink(static_cast<const char *>(bytes), size);
                      }};
}

std::string safetensorsHeader(absl::Span<const TensorSource> tensors,
                              const TensorMetadata &metadata) {
  // Entries stand in the order of the data, as in files of the reference
  // implementation; a plain json object would sort them by name.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  std::string text = header.dump(-1, ' ', false,
                                 nlohmann::ordered_json::error_handler_t::replace);
  text.pop_back();
  int64_t begin = 0;
  for (const TensorSource &tensor : tensors) {
    int64_t end = begin + elementsOf(tensor.shape) * bytesOf(tensor.type);
    nlohmann::ordered_json entry = {{"dtype", nameOf(tensor.type)},
                                    {"shape", tensor.shape},
                                    {"data_offsets", {begin, end}}};
    absl::StrAppend(&text, text.size() > 1 ? "," : "",
                    jsonText(json(tensor.name), -1), ":", entry.dump());
    begin = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' '); // the data begins aligned
  std::string length(kLengthBytes, '\0');
  for (int i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

absl::StatusOr<FileDigest>
writeSafetensors(const std::string &path,
                 absl::Span<const TensorSource> tensors,
                 const TensorMetadata &metadata, absl::string_view header) {
  std::set<absl::string_view> names;
  for (const TensorSource &tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" ||
        !names.insert(tensor.name).second)
      return absl::InvalidArgumentError(
          absl::StrCat("writing ", path, ": tensor name \"", tensor.name,
                       "\" is empty, reserved or given twice"));
    if (elementsOf(tensor.shape) < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("writing ", path, ": tensor ", tensor.name,
                       " has shape ", shapeText(tensor.shape)));
  }
  absl::StatusOr<FileWriter> writer = FileWriter::create(path);
  if (!writer.ok())
    return writer.status();
  std::string made;
  if (header.empty()) {
    made = safetensorsHeader(tensors, metadata);
    header = made;
  }
  if (absl::Status status = writer->append(header); !status.ok())
    return status;
  for (const TensorSource &tensor : tensors) {
    int64_t expected = elementsOf(tensor.shape) * bytesOf(tensor.type);
    int64_t received = 0;
    absl::Status status = tensor.write([&](const char *bytes, int64_t size) {
      received += size;
      return writer->append(bytes, size);
    });
    if (!status.ok())
      return status;
    if (received != expected)
      return absl::InvalidArgumentError(
          absl::StrCat("writing ", path, ": tensor ", tensor.name, " gave ",
                       received, " bytes, expected ", expected));
  }
  return writer->commit();
}

void sortForWriting(std::vector<TensorSource> *tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const TensorSource &a, const TensorSource &b) {
              if (bytesOf(a.type) != bytesOf(b.type))
                return bytesOf(a.type) > bytesOf(b.type);
              return a.name < b.name;
            });
}

} // namespace qwen35
