#include "dialect/QKern/IR/KernelTarget.h"

#include <vector>

namespace qwen35::qkern {

KernelTarget::~KernelTarget() = default;

static std::vector<std::unique_ptr<KernelTarget>> &targets() {
  static std::vector<std::unique_ptr<KernelTarget>> registered;
  return registered;
}

void registerKernelTarget(std::unique_ptr<KernelTarget> target) {
  if (!lookupKernelTarget(target->name()))
    targets().push_back(std::move(target));
}

const KernelTarget *lookupKernelTarget(llvm::StringRef name) {
  for (const auto &target : targets())
    if (target->name() == name)
      return target.get();
  return nullptr;
}

} // namespace qwen35::qkern
