#include "runtime/api/step.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/communicator.h"
#include "runtime/step/cpu_step.h"
#include "runtime/step/cuda_step.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace qwen35 {
namespace {

/// Index by name over one list of the IoSignature.
std::map<std::string, uint32_t>
byName(const google::protobuf::RepeatedPtrField<bundle::IoBuffer> &list) {
  std::map<std::string, uint32_t> result;
  for (const bundle::IoBuffer &entry : list)
    result.emplace(entry.name(), entry.buffer());
  return result;
}

std::string keys(const std::map<std::string, uint32_t> &map) {
  return absl::StrJoin(map, ", ", [](std::string *out, const auto &entry) {
    out->append(entry.first);
  });
}

template <typename T> bool holds(bundle::DType dtype) {
  if constexpr (std::is_same_v<T, float>)
    return dtype == bundle::F32;
  else if constexpr (std::is_same_v<T, double>)
    return dtype == bundle::F64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return dtype == bundle::I32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return dtype == bundle::I64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return dtype == bundle::U8;
  else
    return dtype == bundle::BF16 || dtype == bundle::F16;
}

template <typename T> const char *typeName() {
  return std::is_same_v<T, float>     ? "f32"
         : std::is_same_v<T, double>  ? "f64"
         : std::is_same_v<T, int32_t> ? "i32"
         : std::is_same_v<T, int64_t> ? "i64"
         : std::is_same_v<T, uint8_t> ? "u8"
                                      : "bf16 or f16";
}

} // namespace

Step::Step(std::shared_ptr<const BundleFile> bundle) : file(std::move(bundle)) {
  for (int i = 0; i < message().buffers_size(); ++i)
    buffers.emplace(message().buffers(i).name(), i);
  inputs = byName(message().io().inputs());
  scalars = byName(message().io().scalars());
  outputs = byName(message().io().outputs());
}

absl::StatusOr<std::unique_ptr<Step>>
Step::create(std::shared_ptr<const BundleFile> bundle,
             const StepOptions &options) {
  absl::StatusOr<std::shared_ptr<const BundleFile>> plan =
      selectPlan(std::move(bundle), options.target);
  QWEN35_RETURN_IF_ERROR(plan.status());
  bool cuda = (*plan)->message().targets(0).kind() == "cuda";
  return cuda ? createCudaStep(*std::move(plan), options)
              : createCpuStep(*std::move(plan), options);
}

bool Step::hasProgram(absl::string_view program) const {
  for (const bundle::Program &entry : message().programs())
    if (entry.name() == program)
      return true;
  return false;
}

absl::Status Step::runStep(int64_t rows, FillRow fill) {
  if (clearsSums(rows))
    QWEN35_RETURN_IF_ERROR(run("begin"));
  for (int64_t row = 0; row < rows; ++row) {
    QWEN35_RETURN_IF_ERROR(fill(row));
    QWEN35_RETURN_IF_ERROR(run(programOf(row, rows)));
  }
  return absl::OkStatus();
}

static absl::Status noParts() {
  return absl::FailedPreconditionError("a step of this target has no parts");
}

absl::Status Step::stageStep(int64_t, FillRow) { return noParts(); }
absl::Status Step::launchStep() { return noParts(); }
absl::Status Step::finishStep() { return noParts(); }

const char *Step::programOf(int64_t row, int64_t rows) const {
  if (rows == 1 && hasProgram("only"))
    return "only";
  if (row + 1 == rows)
    return "finish";
  return row == 0 && hasProgram("first") ? "first" : "accumulate";
}

bool Step::clearsSums(int64_t rows) const {
  return !hasProgram(rows == 1 ? "only" : "first");
}

int64_t Step::launchesPerStep(int64_t rows) const {
  auto launches = [&](absl::string_view name) -> int64_t {
    for (const bundle::Program &program : message().programs())
      if (program.name() == name)
        return program.entries_size();
    return 0;
  };
  int64_t count = clearsSums(rows) ? launches("begin") : 0;
  for (int64_t row = 0; row < rows; ++row)
    count += launches(programOf(row, rows));
  return count;
}

absl::StatusOr<uint32_t> Step::findBuffer(absl::string_view name) const {
  auto it = buffers.find(std::string(name));
  if (it == buffers.end())
    return absl::NotFoundError(absl::StrCat("the bundle has no buffer named ",
                                            quoted(std::string(name))));
  return it->second;
}

absl::Status Step::checkRange(uint32_t index, uint64_t offset,
                              uint64_t bytes) const {
  const bundle::Buffer &entry = bufferOf(index);
  if (offset <= entry.bytes() && bytes <= entry.bytes() - offset)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes at offset ", offset, " of buffer ",
                   quoted(entry.name()), ", which has ", entry.bytes()));
}

absl::Status Step::read(uint32_t index, uint64_t offset,
                        absl::Span<uint8_t> bytes) {
  QWEN35_RETURN_IF_ERROR(checkRange(index, offset, bytes.size()));
  return copyOut(index, offset, bytes);
}

absl::Status Step::write(uint32_t index, uint64_t offset,
                         absl::Span<const uint8_t> bytes) {
  QWEN35_RETURN_IF_ERROR(checkRange(index, offset, bytes.size()));
  return copyIn(index, offset, bytes);
}

absl::Status Step::weightsChanged() {
  return hasProgram("refresh") ? run("refresh") : absl::OkStatus();
}

template <typename T> absl::Status Step::checkType(uint32_t index) const {
  const bundle::Buffer &entry = bufferOf(index);
  if (!hostMemory())
    return absl::FailedPreconditionError(
        absl::StrCat("buffer ", quoted(entry.name()),
                     " is memory of the device: it is read and written, not "
                     "looked at"));
  if (holds<T>(entry.dtype()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "buffer ", quoted(entry.name()), " holds ", dtypeName(entry.dtype()),
      ", but ", typeName<T>(), " was asked for"));
}

template <typename T>
absl::StatusOr<absl::Span<T>> Step::buffer(uint32_t index) {
  QWEN35_RETURN_IF_ERROR(checkType<T>(index));
  absl::Span<uint8_t> raw = bytes(index);
  return absl::MakeSpan(reinterpret_cast<T *>(raw.data()),
                        raw.size() / sizeof(T));
}

template <typename T>
absl::StatusOr<absl::Span<T>> Step::buffer(absl::string_view name) {
  absl::StatusOr<uint32_t> index = findBuffer(name);
  if (!index.ok())
    return index.status();
  return buffer<T>(*index);
}

#define QWEN35_STEP_TYPE(T)                                                    \
  template absl::StatusOr<absl::Span<T>> Step::buffer<T>(uint32_t);            \
  template absl::StatusOr<absl::Span<T>> Step::buffer<T>(absl::string_view);
QWEN35_STEP_TYPE(float)
QWEN35_STEP_TYPE(double)
QWEN35_STEP_TYPE(int32_t)
QWEN35_STEP_TYPE(int64_t)
QWEN35_STEP_TYPE(uint8_t)
QWEN35_STEP_TYPE(uint16_t)
#undef QWEN35_STEP_TYPE

absl::StatusOr<absl::Span<int32_t>> Step::input(absl::string_view name) {
  auto it = inputs.find(std::string(name));
  if (it == inputs.end())
    return absl::NotFoundError(absl::StrCat("the step has no input named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(inputs)));
  return absl::MakeSpan(reinterpret_cast<int32_t *>(ioAddress(it->second)),
                        bufferOf(it->second).bytes() / sizeof(int32_t));
}

bool Step::hasScalar(absl::string_view name) const {
  return scalars.count(std::string(name)) != 0;
}

absl::Status Step::setScalar(absl::string_view name, float value) {
  auto it = scalars.find(std::string(name));
  if (it == scalars.end())
    return absl::NotFoundError(absl::StrCat("the step has no scalar named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(scalars)));
  std::memcpy(ioAddress(it->second), &value, sizeof(value));
  return absl::OkStatus();
}

bool Step::hasOutput(absl::string_view name) const {
  return outputs.count(std::string(name)) != 0;
}

absl::StatusOr<float> Step::output(absl::string_view name) const {
  auto it = outputs.find(std::string(name));
  if (it == outputs.end())
    return absl::NotFoundError(absl::StrCat("the step has no output named ",
                                            quoted(std::string(name)),
                                            ", it has ", keys(outputs)));
  float value = 0;
  std::memcpy(&value, ioAddress(it->second), sizeof(value));
  return value;
}

StepMemory Step::memory() const {
  StepMemory result;
  for (const bundle::Arena &arena : message().arenas()) {
    result.arenas.push_back({arena.name(), arena.bytes()});
    result.planned += arena.bytes();
  }
  std::map<std::string, uint64_t> categories;
  for (const bundle::Buffer &buffer : message().buffers())
    categories[buffer.category()] += buffer.bytes();
  for (const auto &[name, bytes] : categories)
    result.categories.push_back({name, bytes});
  return result;
}

} // namespace qwen35
