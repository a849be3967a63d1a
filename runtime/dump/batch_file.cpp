#include "runtime/dump/batch_file.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/checkpoint/param_table.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35 {
namespace {

constexpr int64_t kIgnored = -100;

/// Reads the tensors of one file; every error starts with its path.
class BatchReader {
public:
  BatchReader(SafetensorsFile file, const BatchShape &shape)
      : file(std::move(file)), shape(shape) {}

  absl::StatusOr<Batch> read();

private:
  struct Ints {
    std::vector<int64_t> shape, values;
  };

  absl::Status fail(absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", message));
  }
  absl::StatusOr<Ints> integers(const char *name) const;
  absl::Status checkValues(const char *name, const Ints &tensor,
                           bool mayIgnore) const;
  absl::Status checkAttentionMask() const;
  absl::StatusOr<std::vector<int64_t>> documents() const;
  void addDocument(int64_t row, int64_t first, int64_t length);
  absl::Status finish();

  SafetensorsFile file;
  BatchShape shape;
  Ints ids, labels;
  Batch batch;
  std::vector<std::vector<int64_t>> lengths; // of the documents, per row
};

/// Where in the tensor, for a message: "[1, 7]".
std::string placeOf(int64_t index, absl::Span<const int64_t> shape) {
  std::vector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    place[d] = index % shape[d];
    index /= shape[d];
  }
  return shapeText(place);
}

absl::StatusOr<BatchReader::Ints>
BatchReader::integers(const char *name) const {
  const TensorInfo *info = file.find(name);
  if (!info)
    return fail(absl::StrCat("has no tensor ", name));
  const char *bytes = file.bytes(*info).data();
  int64_t count = elementsOf(info->shape);
  Ints result;
  result.shape = info->shape;
  result.values.resize(count);
  if (isFloating(info->type)) {
    // Name the value that cannot be a token, if there is one.
    std::vector<float> values(count);
    toFloat(info->type, bytes, count, values.data());
    for (int64_t i = 0; i < count; ++i)
      if (!std::isfinite(values[i]))
        return fail(absl::StrCat(name, " has ", values[i], " at ",
                                 placeOf(i, info->shape), " and dtype ",
                                 nameOf(info->type), ", expected I64 or I32"));
  }
  if (info->type == ElementType::I64) {
    if (count > 0) // memcpy of nothing still wants pointers
      std::memcpy(result.values.data(), bytes, count * sizeof(int64_t));
  } else if (info->type == ElementType::I32) {
    for (int64_t i = 0; i < count; ++i) {
      int32_t value;
      std::memcpy(&value, bytes + i * sizeof value, sizeof value);
      result.values[i] = value;
    }
  } else {
    return fail(absl::StrCat(name, " has dtype ", nameOf(info->type),
                             ", expected I64 or I32"));
  }
  return result;
}

absl::Status BatchReader::checkValues(const char *name, const Ints &tensor,
                                      bool mayIgnore) const {
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    int64_t value = tensor.values[i];
    if (value >= 0 && value < shape.vocabSize)
      continue;
    if (mayIgnore && value == kIgnored)
      continue;
    return fail(absl::StrCat(name, " has ", value, " at ",
                             placeOf(static_cast<int64_t>(i), tensor.shape),
                             ", expected 0 to ", shape.vocabSize - 1,
                             mayIgnore ? " or -100" : ""));
  }
  return absl::OkStatus();
}

absl::Status BatchReader::checkAttentionMask() const {
  const TensorInfo *info = file.find("attention_mask");
  if (!info)
    return absl::OkStatus();
  absl::string_view bytes = file.bytes(*info);
  int64_t size = bytesOf(info->type);
  for (int64_t i = 0; i < elementsOf(info->shape); ++i) {
    absl::string_view element = bytes.substr(i * size, size);
    if (element.find_first_not_of('\0') == absl::string_view::npos)
      return fail(absl::StrCat(
          "attention_mask is 0 at ", placeOf(i, info->shape),
          "; masked tokens are not supported: leave padding out, or keep it "
          "with labels of -100"));
  }
  return absl::OkStatus();
}

/// Boundaries of the documents of the one row.
absl::StatusOr<std::vector<int64_t>> BatchReader::documents() const {
  absl::StatusOr<Ints> cu = integers("cu_seqlens");
  QWEN35_RETURN_IF_ERROR(cu.status());
  int64_t rows = ids.shape[0], tokens = ids.shape[1];
  if (rows != 1)
    return fail(absl::StrCat("cu_seqlens needs input_ids of one row, found ",
                             rows));
  if (cu->shape.size() != 1 || cu->values.size() < 2)
    return fail(absl::StrCat("cu_seqlens has shape ", shapeText(cu->shape),
                             ", expected [documents + 1]"));
  if (cu->values.front() != 0 || cu->values.back() != tokens)
    return fail(absl::StrCat("cu_seqlens goes from ", cu->values.front(),
                             " to ", cu->values.back(), ", expected 0 to ",
                             tokens));
  for (size_t i = 1; i < cu->values.size(); ++i) {
    int64_t begin = cu->values[i - 1], end = cu->values[i];
    if (end == begin)
      return fail(absl::StrCat("document ", i - 1, " of cu_seqlens is empty, ",
                               "it begins and ends at ", begin));
    if (end < begin)
      return fail(absl::StrCat("document ", i - 1, " of cu_seqlens ends at ",
                               end, " before it begins at ", begin));
  }
  return std::move(cu->values);
}

/// Appends tokens [first, first + length) of a row of the file to the compiled
/// row under way.
void BatchReader::addDocument(int64_t row, int64_t first, int64_t length) {
  PackedRow &out = batch.rows.back();
  int64_t at = out.realTokens;
  const int64_t *id = ids.values.data() + row * ids.shape[1] + first;
  const int64_t *label = labels.values.data() + row * ids.shape[1] + first;
  for (int64_t t = 0; t < length; ++t) {
    out.ids[at + t] = static_cast<int32_t>(id[t]);
    int64_t target = t + 1 < length ? label[t + 1] : kIgnored;
    out.labels[at + t] = static_cast<int32_t>(target);
    out.validLabels += target != kIgnored;
  }
  out.realTokens += length;
  lengths.back().push_back(length);
}

absl::Status BatchReader::finish() {
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    PackedRow &row = batch.rows[r];
    row.seq.resize(shape.row.words());
    if (!fillSeqTable(shape.row, lengths[r].data(),
                      static_cast<int64_t>(lengths[r].size()), row.seq.data()))
      return fail(absl::StrCat("row ", r, " does not fit ", shape.row.tokens,
                               " tokens and ", shape.row.maxDocs,
                               " documents, padding included"));
    batch.realTokens += row.realTokens;
    batch.validLabels += row.validLabels;
    batch.slots += shape.row.tokens;
    batch.documents += static_cast<int64_t>(lengths[r].size());
  }
  if (batch.validLabels == 0)
    return fail("labels leave no token to train on: after the shift every one "
                "is -100");
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchReader::read() {
  for (auto [name, tensor] :
       {std::pair{"input_ids", &ids}, std::pair{"labels", &labels}}) {
    absl::StatusOr<Ints> read = integers(name);
    QWEN35_RETURN_IF_ERROR(read.status());
    *tensor = std::move(*read);
    if (tensor->shape.size() != 2)
      return fail(absl::StrCat(name, " has shape ", shapeText(tensor->shape),
                               ", expected [rows, tokens]"));
  }
  if (ids.shape != labels.shape)
    return fail(absl::StrCat("labels has shape ", shapeText(labels.shape),
                             ", expected that of input_ids, ",
                             shapeText(ids.shape)));
  int64_t rows = ids.shape[0], tokens = ids.shape[1];
  if (rows == 0 || tokens == 0)
    return fail(absl::StrCat("input_ids has shape ", shapeText(ids.shape),
                             ": empty documents cannot be trained on"));
  QWEN35_RETURN_IF_ERROR(checkAttentionMask());
  QWEN35_RETURN_IF_ERROR(checkValues("input_ids", ids, false));
  QWEN35_RETURN_IF_ERROR(checkValues("labels", labels, true));
  if (tokens > shape.row.tokens)
    return fail(absl::StrCat("input_ids has rows of ", tokens,
                             " tokens, the bundle was compiled for ",
                             shape.row.tokens));

  // The last document of the table is for padding.
  int64_t maxDocs = shape.row.maxDocs - 1;
  auto startRow = [&] {
    batch.rows.emplace_back();
    batch.rows.back().ids.assign(shape.row.tokens, 0);
    batch.rows.back().labels.assign(shape.row.tokens, kIgnored);
    lengths.emplace_back();
  };
  startRow();
  if (file.find("cu_seqlens")) {
    absl::StatusOr<std::vector<int64_t>> cu = documents();
    QWEN35_RETURN_IF_ERROR(cu.status());
    int64_t count = static_cast<int64_t>(cu->size()) - 1;
    if (count > maxDocs)
      return fail(absl::StrCat("cu_seqlens has ", count,
                               " documents, the bundle was compiled for ",
                               maxDocs));
    for (int64_t d = 0; d < count; ++d)
      addDocument(0, (*cu)[d], (*cu)[d + 1] - (*cu)[d]);
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      if (batch.rows.back().realTokens + tokens > shape.row.tokens ||
          static_cast<int64_t>(lengths.back().size()) == maxDocs)
        startRow();
      addDocument(row, 0, tokens);
    }
  }
  QWEN35_RETURN_IF_ERROR(finish());
  return std::move(batch);
}

} // namespace

absl::StatusOr<Batch> readBatch(const std::string &path,
                                const BatchShape &shape) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::open(path);
  QWEN35_RETURN_IF_ERROR(file.status());
  return BatchReader(std::move(*file), shape).read();
}

} // namespace qwen35
