#include "runtime/checkpoint/param_table.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace qwen35 {

int64_t elementsOf(absl::Span<const int64_t> shape) {
  // Zero wins over any other dimension, so look for it first.
  int64_t total = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0)
      return -1;
    empty |= size == 0;
  }
  if (empty)
    return 0;
  for (int64_t size : shape) {
    if (size > (int64_t{1} << 62) / total)
      return -1;
    total *= size;
  }
  return total;
}

std::string shapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

int64_t ParamSpec::elements() const { return elementsOf(shape); }

absl::StatusOr<std::vector<ParamSpec>>
paramTable(const bundle::Bundle &bundle) {
  std::vector<ParamSpec> params;
  std::set<std::string> seen;
  for (const bundle::Param &param : bundle.params()) {
    ParamSpec spec;
    spec.name = param.name();
    if (spec.name.empty())
      return absl::InvalidArgumentError("the bundle has a parameter without "
                                        "a name");
    if (!seen.insert(spec.name).second)
      return absl::InvalidArgumentError(
          absl::StrCat("the bundle lists parameter ", spec.name, " twice"));
    const auto &shape =
        param.has_shard() ? param.shard().global_shape() : param.shape();
    spec.shape.assign(shape.begin(), shape.end());
    if (elementsOf(spec.shape) <= 0)
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", spec.name, " of the bundle has shape ",
                       shapeText(spec.shape)));
    spec.init = param.init();
    if (param.file_dtype() != bundle::DTYPE_NONE) {
      absl::StatusOr<ElementType> type = weightTypeOf(param.file_dtype());
      if (!type.ok())
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter ", spec.name, ": ", type.status().message()));
      spec.fileType = *type;
    }
    params.push_back(std::move(spec));
  }
  return params;
}

} // namespace qwen35
