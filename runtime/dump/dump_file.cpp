#include "runtime/dump/dump_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35 {

absl::Status writeDump(const std::string &path,
                       absl::Span<const ParamSpec> params, const Dump &dump,
                       bool perStep) {
  int64_t steps = static_cast<int64_t>(dump.loss.size());
  if (steps == 0 || dump.auxLoss.size() != dump.loss.size() ||
      dump.gradNorm.size() != dump.loss.size() || (!perStep && steps != 1))
    return absl::InvalidArgumentError(absl::StrCat(
        "dump ", path, ": ", steps, " losses, ", dump.auxLoss.size(),
        " auxiliary losses and ", dump.gradNorm.size(), " gradient norms"));
  std::vector<int64_t> shape;
  if (perStep)
    shape.push_back(steps);
  std::vector<TensorSource> tensors;
  for (auto [name, values] : {std::pair{"loss", &dump.loss},
                              std::pair{"aux_loss", &dump.auxLoss},
                              std::pair{"grad_norm", &dump.gradNorm}})
    tensors.push_back(
        tensorFromBytes(name, ElementType::F32, shape, values->data()));

  std::vector<size_t> order(params.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return params[a].name < params[b].name;
  });
  for (auto [prefix, arrays] : {std::pair{"grad.", &dump.grads},
                                std::pair{"param.", &dump.params}}) {
    if (arrays->size() != params.size())
      return absl::InvalidArgumentError(
          absl::StrCat("dump ", path, ": ", arrays->size(), " arrays for ",
                       prefix, "NAME, expected ", params.size()));
    for (size_t i : order) {
      if (static_cast<int64_t>((*arrays)[i].size()) != params[i].elements())
        return absl::InvalidArgumentError(absl::StrCat(
            "dump ", path, ": ", prefix, params[i].name, " has ",
            (*arrays)[i].size(), " elements, expected ",
            params[i].elements()));
      tensors.push_back(
          tensorFromBytes(absl::StrCat(prefix, params[i].name),
                          ElementType::F32, params[i].shape,
                          (*arrays)[i].data()));
    }
  }
  return writeSafetensors(path, tensors, {}).status();
}

} // namespace qwen35
