#include "runtime/dump/dump_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/checkpoint/safetensors.h"

namespace qwen35 {

absl::Status writeDump(const std::string &path,
                       absl::Span<const ParamSpec> params, const Dump &dump,
                       bool perStep) {
  for (auto [prefix, arrays] : {std::pair{"grad.", &dump.grads},
                                std::pair{"param.", &dump.params}})
    if (arrays->size() != params.size())
      return absl::InvalidArgumentError(
          absl::StrCat("dump ", path, ": ", arrays->size(), " arrays for ",
                       prefix, "NAME, expected ", params.size()));
  auto mut = [](const std::vector<absl::Span<const float>> &arrays) {
    SpanStore::Arrays result;
    for (absl::Span<const float> array : arrays)
      result.emplace_back(const_cast<float *>(array.data()), array.size());
    return result;
  };
  SpanStore store(mut(dump.params), {}, {}, mut(dump.grads));
  return writeDump(path, params, dump, store, perStep);
}

absl::Status writeDump(const std::string &path,
                       absl::Span<const ParamSpec> params, const Dump &dump,
                       const ParamStore &store, bool perStep) {
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
  for (auto [prefix, role] : {std::pair{"grad.", ParamRole::Gradient},
                              std::pair{"param.", ParamRole::Weight}})
    for (size_t i : order) {
      if (int64_t found = store.elements(role, i);
          found != params[i].elements())
        return absl::InvalidArgumentError(absl::StrCat(
            "dump ", path, ": ", prefix, params[i].name, " has ", found,
            " elements, expected ", params[i].elements()));
      tensors.push_back(tensorFromStore(absl::StrCat(prefix, params[i].name),
                                        params[i].shape, store, role, i));
    }
  return writeSafetensors(path, tensors, {}).status();
}

} // namespace qwen35
