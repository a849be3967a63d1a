#include "tools/qwen35-interpret/TensorFiles.h"

#include "absl/strings/str_cat.h"
#include "llvm/Support/FileSystem.h"

#include <cstring>
#include <limits>

using qwen35::interpreter::Elements;
using qwen35::interpreter::ParamMap;
using qwen35::interpreter::Tensor;

namespace qwen35::interpret {

namespace {

template <typename Stored>
std::vector<Stored> copyOf(absl::string_view bytes) {
  std::vector<Stored> elements(bytes.size() / sizeof(Stored));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

absl::StatusOr<Elements> narrow(const std::vector<int64_t> &wide) {
  std::vector<int32_t> elements;
  elements.reserve(wide.size());
  for (int64_t value : wide) {
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max())
      return absl::InvalidArgumentError(
          absl::StrCat("holds ", value, ", which is no int32"));
    elements.push_back(static_cast<int32_t>(value));
  }
  return Elements(std::move(elements));
}

absl::StatusOr<Elements> elementsOf(ElementType type, absl::string_view bytes) {
  if (type == ElementType::F64)
    return Elements(copyOf<double>(bytes));
  if (type == ElementType::I32)
    return Elements(copyOf<int32_t>(bytes));
  if (type == ElementType::I64)
    return narrow(copyOf<int64_t>(bytes));
  if (!isFloating(type))
    return absl::InvalidArgumentError(
        absl::StrCat("has type ", nameOf(type),
                     ", expected F64, F32, F16, BF16, I32 or I64"));
  int64_t count = static_cast<int64_t>(bytes.size()) / bytesOf(type);
  std::vector<float> elements(count);
  toFloat(type, bytes.data(), count, elements.data());
  return Elements(std::move(elements));
}

absl::StatusOr<ParamMap> fromFolder(const std::string &path,
                                    const std::vector<ParamSpec> &params) {
  auto checkpoint = HfCheckpoint::open(path, params);
  if (!checkpoint.ok())
    return checkpoint.status();
  std::vector<std::vector<float>> values;
  std::vector<absl::Span<float>> spans;
  for (const ParamSpec &param : params)
    values.emplace_back(param.elements());
  for (std::vector<float> &value : values)
    spans.push_back(absl::MakeSpan(value));
  absl::Status status = checkpoint->load(spans);
  if (!status.ok())
    return status;
  ParamMap map;
  for (size_t i = 0; i < params.size(); ++i)
    map[params[i].name] = Tensor{params[i].shape, std::move(values[i])};
  return map;
}

absl::StatusOr<ParamMap> fromFile(const std::string &path,
                                  const std::vector<ParamSpec> &params) {
  auto tensors = readTensors(path);
  if (!tensors.ok())
    return tensors.status();
  ParamMap map;
  for (const ParamSpec &param : params) {
    auto found = tensors->find(param.name);
    absl::string_view flat = param.name;
    constexpr absl::string_view kModel = "model.";
    if (found == tensors->end() && flat.substr(0, kModel.size()) == kModel)
      found = tensors->find(absl::StrCat("model.language_model.",
                                         flat.substr(kModel.size())));
    if (found == tensors->end())
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no tensor ", param.name));
    if (found->second.shape != param.shape)
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor ", found->first, " is ",
          shapeText(found->second.shape), ", expected ",
          shapeText(param.shape)));
    map[param.name] = std::move(found->second);
  }
  return map;
}

} // namespace

absl::StatusOr<std::map<std::string, Tensor>>
readTensors(const std::string &path) {
  auto file = SafetensorsFile::open(path);
  if (!file.ok())
    return file.status();
  std::map<std::string, Tensor> tensors;
  for (const TensorInfo &info : file->tensors()) {
    auto elements = elementsOf(info.type, file->bytes(info));
    if (!elements.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor ", info.name, " ",
                       elements.status().message()));
    tensors[info.name] = Tensor{info.shape, *std::move(elements)};
  }
  return tensors;
}

absl::StatusOr<ParamMap> readWeights(const std::string &path,
                                     const std::vector<ParamSpec> &params) {
  return llvm::sys::fs::is_directory(path) ? fromFolder(path, params)
                                           : fromFile(path, params);
}

absl::Status writeTensors(const std::string &path,
                          const std::map<std::string, Tensor> &tensors) {
  std::vector<TensorSource> sources;
  for (const auto &[name, tensor] : tensors) {
    ElementType type = ElementType::F64;
    if (std::holds_alternative<std::vector<float>>(tensor.elements))
      type = ElementType::F32;
    else if (std::holds_alternative<std::vector<int32_t>>(tensor.elements))
      type = ElementType::I32;
    const void *bytes = std::visit(
        [](const auto &list) -> const void * { return list.data(); },
        tensor.elements);
    sources.push_back(tensorFromBytes(name, type, tensor.shape, bytes));
  }
  sortForWriting(&sources);
  return writeSafetensors(path, sources, {}).status();
}

} // namespace qwen35::interpret
