#include "codegen/cpu/Kernel.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

llvm::StringMap<std::unique_ptr<KernelFamily>> &registry() {
  static llvm::StringMap<std::unique_ptr<KernelFamily>> families;
  return families;
}

} // namespace

KernelFamily::~KernelFamily() = default;

const KernelFamily *lookupKernel(llvm::StringRef op) {
  auto found = registry().find(op);
  return found == registry().end() ? nullptr : found->second.get();
}

void registerKernel(std::unique_ptr<KernelFamily> family) {
  llvm::StringRef op = family->op();
  [[maybe_unused]] bool added =
      registry().try_emplace(op, std::move(family)).second;
  assert(added && "two kernel families for one op");
}

int64_t chooseTasks(int64_t items, int64_t elementsPerItem) {
  constexpr int64_t kTaskElements = 16384; // 5 to 20 us on one core
  constexpr int64_t kMostTasks = 256;
  int64_t work = items * std::max<int64_t>(elementsPerItem, 1);
  int64_t tasks =
      std::clamp<int64_t>(work / kTaskElements, 1, std::min(items, kMostTasks));
  return llvm::divideCeil(items, llvm::divideCeil(items, tasks));
}

} // namespace qwen35::codegen::cpu
