#include "runtime/api/step.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/bundle/quoted.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/cuda/device.h"

#include <utility>

namespace qwen35 {
namespace {

std::string describeTarget(const bundle::Target &target) {
  return absl::StrCat(target.kind(), " ",
                      target.kind() == "cuda" ? target.arch() : target.cpu());
}

std::string describeTargets(const BundleFile &bundle) {
  std::vector<std::string> texts;
  for (int i = 0; i < bundle.plans(); ++i)
    texts.push_back(describeTarget(bundle.target(i)));
  return absl::StrJoin(texts, ", ");
}

} // namespace

absl::StatusOr<std::shared_ptr<const BundleFile>>
selectPlan(std::shared_ptr<const BundleFile> bundle, const std::string &target,
           std::string *why) {
  if (target != "auto" && target != "cpu" && target != "cuda")
    return absl::InvalidArgumentError(absl::StrCat(
        "the target ", quoted(target), ", expected auto, cpu or cuda"));
  absl::Status refused;
  if (target != "cpu")
    for (int i = 0; i < bundle->plans(); ++i) {
      if (bundle->target(i).kind() != "cuda")
        continue;
      absl::Status found = cuda::GpuDevice::find(bundle->target(i).arch());
      if (found.ok())
        return bundle->plan(i);
      if (refused.ok())
        refused = found;
    }
  if (target != "cuda")
    for (int i = 0; i < bundle->plans(); ++i)
      if (bundle->target(i).kind() == "cpu") {
        if (why && !refused.ok())
          *why = std::string(refused.message());
        return bundle->plan(i);
      }
  QWEN35_RETURN_IF_ERROR(refused);
  return absl::NotFoundError(absl::StrCat("the bundle has no plan for ", target,
                                          ", it has ",
                                          describeTargets(*bundle)));
}

} // namespace qwen35
