#include "runtime/checkpoint/hf_checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace qwen35 {
namespace {

constexpr absl::string_view kComposite = "model.language_model.";
constexpr absl::string_view kExperts = ".mlp.experts.";
constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

bool isComposite(const std::string &name) {
  return absl::StartsWith(name, kComposite);
}

/// The name that the parameter table uses.
std::string flatName(const std::string &name) {
  if (!isComposite(name))
    return name;
  return absl::StrCat("model.", name.substr(kComposite.size()));
}

bool isAside(const std::string &name) {
  return absl::StartsWith(name, "mtp.") ||
         absl::StartsWith(name, "model.visual.");
}

enum class ExpertMatrix { Gate, Up, Down };

/// layers.3.mlp.experts.{expert}.{gate,up,down}_proj.weight
struct ExpertName {
  std::string base; // up to and with ".mlp.experts."
  int64_t expert;
  ExpertMatrix matrix;
};

bool parseExpertName(const std::string &flat, ExpertName *result) {
  size_t at = flat.find(kExperts.data(), 0, kExperts.size());
  if (at == std::string::npos)
    return false;
  size_t begin = at + kExperts.size(), end = begin;
  while (end < flat.size() && flat[end] >= '0' && flat[end] <= '9')
    ++end;
  if (end == begin || end - begin > 6 || (flat[begin] == '0' && end - begin > 1))
    return false;
  absl::string_view tail = absl::string_view(flat).substr(end);
  if (tail == ".gate_proj.weight")
    result->matrix = ExpertMatrix::Gate;
  else if (tail == ".up_proj.weight")
    result->matrix = ExpertMatrix::Up;
  else if (tail == ".down_proj.weight")
    result->matrix = ExpertMatrix::Down;
  else
    return false;
  result->base = flat.substr(0, begin);
  return absl::SimpleAtoi(absl::string_view(flat).substr(begin, end - begin),
                          &result->expert);
}

bool isFusedExpertName(const std::string &flat) {
  return absl::EndsWith(flat, ".mlp.experts.gate_up_proj") ||
         absl::EndsWith(flat, ".mlp.experts.down_proj");
}

bool isTransposed(absl::Span<const int64_t> found,
                  absl::Span<const int64_t> expected) {
  if (found.size() != expected.size() || found.size() < 2 || found == expected)
    return false;
  std::vector<int64_t> swapped(found.begin(), found.end());
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  return absl::Span<const int64_t>(swapped) == expected;
}

/// "a, b and 3 more"
std::string someOf(const std::vector<std::string> &names) {
  constexpr size_t kShown = 3;
  if (names.size() <= kShown)
    return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kShown, ", "), " and ",
      names.size() - kShown, " more");
}

} // namespace

absl::StatusOr<HfCheckpoint>
HfCheckpoint::open(const std::string &folder,
                   absl::Span<const ParamSpec> params) {
  absl::StatusOr<HfFolder> files = HfFolder::open(folder);
  if (!files.ok())
    return files.status();
  HfCheckpoint result(std::move(*files));
  result.params.assign(params.begin(), params.end());
  for (size_t i = 0; i < params.size(); ++i)
    result.paramByName[params[i].name] = i;
  if (absl::Status status = result.match(); !status.ok())
    return status;
  return result;
}

absl::Status HfCheckpoint::fail(const std::string &tensor,
                                absl::string_view message) const {
  auto found = files.tensors().find(tensor);
  std::string where =
      found == files.tensors().end()
          ? files.path()
          : joinPath(files.path(), files.fileName(found->second.file));
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": tensor ", tensor, " ", message));
}

absl::Status HfCheckpoint::match() {
  if (absl::Status status = checkExpertForms(); !status.ok())
    return status;
  for (const auto &[name, tensor] : files.tensors()) {
    hasCompositeNames |= isComposite(name);
    auto [other, fresh] = byFlat.emplace(flatName(name), name);
    if (!fresh)
      return fail(name, absl::StrCat("is also there as ", other->second));
  }
  std::vector<std::string> unexpected;
  for (const auto &[flat, name] : byFlat) {
    absl::Status status = matchTensor(name);
    if (absl::IsNotFound(status))
      unexpected.push_back(name);
    else if (!status.ok())
      return status;
  }
  absl::Status missing = checkMissing();
  if (unexpected.empty())
    return missing;
  // Both at once usually means a renamed tensor: show the pair.
  return absl::InvalidArgumentError(absl::StrCat(
      files.path(), ": ", unexpected.size(),
      unexpected.size() == 1 ? " tensor is" : " tensors are",
      " unexpected, found ", someOf(unexpected),
      missing.ok() ? std::string(", which the model does not have")
                   : absl::StrCat("; ", missing.message())));
}

absl::Status HfCheckpoint::checkExpertForms() const {
  std::string fused[2], single[2]; // an example of each form, per section
  for (const auto &[name, tensor] : files.tensors()) {
    int section = absl::StartsWith(name, "mtp.") ? 1 : 0;
    ExpertName parsed;
    if (isFusedExpertName(name))
      fused[section] = name;
    else if (parseExpertName(name, &parsed))
      single[section] = name;
  }
  for (int section = 0; section < 2; ++section)
    if (!fused[section].empty() && !single[section].empty())
      return fail(fused[section],
                  absl::StrCat("has fused experts but ", single[section],
                               " is a single expert; expected one form in the ",
                               section ? "MTP layers" : "decoder layers"));
  return absl::OkStatus();
}

absl::Status HfCheckpoint::matchTensor(const std::string &name) {
  std::string flat = flatName(name);
  auto param = paramByName.find(flat);
  if (param != paramByName.end()) {
    const ParamSpec &spec = params[param->second];
    if (absl::Status status = checkTensor(name, spec.shape); !status.ok())
      return status;
    pieces[name] = Piece{param->second, 0, spec.elements()};
    return absl::OkStatus();
  }
  bool matched = false;
  if (absl::Status status = matchExpert(name, flat, &matched);
      matched || !status.ok())
    return status;
  if (isAside(name)) {
    aside.push_back(name);
    return absl::OkStatus();
  }
  if (name == kHead && paramByName.count(kEmbedding))
    return checkTiedHead(name);
  return absl::NotFoundError(name);
}

absl::Status HfCheckpoint::matchExpert(const std::string &name,
                                       const std::string &flat,
                                       bool *matched) {
  ExpertName parsed;
  if (!parseExpertName(flat, &parsed))
    return absl::OkStatus();
  bool down = parsed.matrix == ExpertMatrix::Down;
  auto param =
      paramByName.find(parsed.base + (down ? "down_proj" : "gate_up_proj"));
  if (param == paramByName.end() || params[param->second].shape.size() != 3)
    return absl::OkStatus();
  *matched = true;
  hasPerExpertNames = true;

  const std::vector<int64_t> &fused = params[param->second].shape;
  if (parsed.expert >= fused[0])
    return fail(name, absl::StrCat("is expert ", parsed.expert,
                                   "; expected experts 0 to ", fused[0] - 1));
  // Gate rows stand over up rows, so each is half of an expert's slice.
  int64_t rows = down ? fused[1] : fused[1] / 2, columns = fused[2];
  if (absl::Status status = checkTensor(name, {rows, columns}); !status.ok())
    return status;
  int64_t first = parsed.expert * fused[1] * columns;
  if (parsed.matrix == ExpertMatrix::Up)
    first += rows * columns;
  pieces[name] = Piece{param->second, first, rows * columns};
  return absl::OkStatus();
}

absl::Status HfCheckpoint::checkTiedHead(const std::string &name) {
  auto embedding = byFlat.find(kEmbedding);
  if (embedding == byFlat.end())
    return absl::OkStatus(); // reported as missing
  const HfFolder::Tensor &head = files.tensors().at(name);
  const HfFolder::Tensor &table = files.tensors().at(embedding->second);
  if (head.info->type != table.info->type ||
      head.info->shape != table.info->shape ||
      files.bytes(head) != files.bytes(table))
    return fail(name, absl::StrCat(
                          "(", nameOf(head.info->type), " ",
                          shapeText(head.info->shape), ") differs from ",
                          embedding->second, " (", nameOf(table.info->type),
                          " ", shapeText(table.info->shape),
                          "); the model's head is tied to the embedding, so "
                          "expected no head or the same bytes"));
  duplicateHead = name;
  return absl::OkStatus();
}

absl::Status
HfCheckpoint::checkTensor(const std::string &name,
                          absl::Span<const int64_t> expected) const {
  const TensorInfo &info = *files.tensors().at(name).info;
  if (isTransposed(info.shape, expected))
    return fail(name, absl::StrCat("is transposed: found ",
                                   shapeText(info.shape), ", expected ",
                                   shapeText(expected),
                                   " with output rows before input columns"));
  if (absl::Span<const int64_t>(info.shape) != expected)
    return fail(name, absl::StrCat("has shape ", shapeText(info.shape),
                                   ", expected ", shapeText(expected)));
  if (!isFloating(info.type))
    return fail(name, absl::StrCat("has dtype ", nameOf(info.type),
                                   ", expected BF16, F16, F32 or F64"));
  return absl::OkStatus();
}

absl::Status HfCheckpoint::checkMissing() const {
  std::vector<int64_t> covered(params.size(), 0);
  for (const auto &[name, piece] : pieces)
    covered[piece.param] += piece.count;
  std::vector<std::string> missing;
  for (size_t i = 0; i < params.size(); ++i) {
    if (covered[i] == params[i].elements())
      continue;
    if (covered[i] == 0 && !hasPerExpertNames) {
      missing.push_back(
          absl::StrCat(params[i].name, " ", shapeText(params[i].shape)));
      continue;
    }
    // Name the experts that are not there.
    absl::string_view fused = params[i].name;
    bool down = absl::ConsumeSuffix(&fused, "down_proj");
    if (!down && !absl::ConsumeSuffix(&fused, "gate_up_proj")) {
      missing.push_back(
          absl::StrCat(params[i].name, " ", shapeText(params[i].shape)));
      continue;
    }
    for (int64_t expert = 0; expert < params[i].shape[0]; ++expert)
      for (const char *matrix : {"gate_proj", "up_proj", "down_proj"}) {
        std::string flat = absl::StrCat(fused, expert, ".", matrix, ".weight");
        if ((matrix[0] == 'd') == down && !byFlat.count(flat))
          missing.push_back(flat);
      }
  }
  if (missing.empty())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(files.path(), ": ", missing.size(),
                   missing.size() == 1 ? " tensor is" : " tensors are",
                   " missing, expected ", someOf(missing)));
}

absl::Status HfCheckpoint::load(const ParamStore &store) const {
  if (store.params() != params.size())
    return absl::InvalidArgumentError(
        absl::StrCat("loading ", files.path(), ": ", store.params(),
                     " arrays given for ", params.size(), " parameters"));
  for (size_t i = 0; i < params.size(); ++i)
    if (int64_t found = store.elements(ParamRole::Weight, i);
        found != params[i].elements())
      return absl::InvalidArgumentError(absl::StrCat(
          "loading ", params[i].name, ": the array has ", found,
          " elements, expected ", params[i].elements()));
  for (const auto &[name, piece] : pieces) {
    const HfFolder::Tensor &tensor = files.tensors().at(name);
    ElementType type = tensor.info->type;
    const char *bytes = files.bytes(tensor).data();
    absl::Status status = store.write(
        ParamRole::Weight, piece.param, piece.first, piece.count,
        [&](int64_t at, absl::Span<float> out) {
          toFloat(type, bytes + at * bytesOf(type),
                  static_cast<int64_t>(out.size()), out.data());
        });
    if (!status.ok())
      return status;
  }
  return absl::OkStatus();
}

std::string HfCheckpoint::summary() const {
  size_t mtp = std::count_if(aside.begin(), aside.end(), [](const auto &name) {
    return absl::StartsWith(name, "mtp.");
  });
  std::string text = absl::StrCat(
      params.size(), " parameters from ", files.tensors().size(),
      " tensors in ", files.files().size(),
      files.files().size() == 1 ? " file" : " files");
  if (!aside.empty())
    absl::StrAppend(&text, "; kept aside: ", mtp, " mtp, ", aside.size() - mtp,
                    " vision");
  absl::StrAppend(&text, "; names ", hasCompositeNames ? "composite" : "flat");
  bool moe = std::any_of(params.begin(), params.end(), [](const auto &param) {
    return isFusedExpertName(param.name);
  });
  if (moe)
    absl::StrAppend(&text, hasPerExpertNames ? ", one tensor per expert"
                                             : ", fused experts");
  if (!duplicateHead.empty())
    absl::StrAppend(&text, "; ", duplicateHead, " repeats the embedding");
  return text;
}

} // namespace qwen35
