#include "tools/qwen35c/PlanReport.h"

#include "dialect/QPlan/IR/QPlanDialect.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace qwen35::qplan;

namespace qwen35 {

std::string formatBytes(int64_t bytes) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (bytes >= 1000000000)
    out << llvm::format("%.2f GB", bytes / 1e9);
  else if (bytes >= 1000000)
    out << llvm::format("%.1f MB", bytes / 1e6);
  else
    out << llvm::format("%.1f kB", bytes / 1e3);
  return text;
}

static int64_t integer(DictionaryAttr dict, StringRef name) {
  auto value = dict.getAs<IntegerAttr>(name);
  return value ? value.getInt() : 0;
}

void printPlanReport(ModuleOp module, llvm::raw_ostream &out) {
  int64_t total = 0;
  out << "memory plan\n";
  llvm::MapVector<StringRef, int64_t> fixed; // what lives for the whole run
  for (auto buffer : module.getOps<BufferOp>())
    if (buffer.getArena() != "act")
      fixed[buffer.getCategory()] += buffer.bytes();
  for (auto arena : module.getOps<ArenaOp>()) {
    total += arena.getBytes();
    out << llvm::format("  arena %-6s %12s\n",
                        arena.getSymName().str().c_str(),
                        formatBytes(arena.getBytes()).c_str());
  }
  out << llvm::format("  total        %12s\n", formatBytes(total).c_str());
  out << "  kept for the whole run:";
  for (auto [category, bytes] : fixed)
    out << " " << category << " " << formatBytes(bytes) << ";";
  out << "\n";

  auto report = module->getAttrOfType<DictionaryAttr>("qplan.report");
  if (!report)
    return;
  DictionaryAttr worst;
  for (NamedAttribute entry : report) {
    auto program = cast<DictionaryAttr>(entry.getValue());
    int64_t bytes = integer(program, "act_bytes");
    int64_t bound = integer(program, "lower_bound");
    out << llvm::format("  program %-11s act %12s, %5.2f %% above the bytes "
                        "live at its peak:",
                        entry.getName().str().c_str(),
                        formatBytes(bytes).c_str(),
                        bound ? 100.0 * (bytes - bound) / bound : 0.0);
    for (NamedAttribute category :
         program.getAs<DictionaryAttr>("peak_by_category"))
      out << " " << category.getName().strref() << " "
          << formatBytes(cast<IntegerAttr>(category.getValue()).getInt())
          << ";";
    out << "\n";
    if (!worst || bytes > integer(worst, "act_bytes"))
      worst = program;
  }
  if (!worst)
    return;
  out << "  largest buffers at the peak:\n";
  for (Attribute attr : worst.getAs<ArrayAttr>("largest").getValue().take_front(
           std::min<size_t>(10, worst.getAs<ArrayAttr>("largest").size()))) {
    auto buffer = cast<DictionaryAttr>(attr);
    out << llvm::format(
        "    %12s  %-12s %s\n",
        formatBytes(integer(buffer, "bytes")).c_str(),
        buffer.getAs<StringAttr>("category").getValue().str().c_str(),
        buffer.getAs<StringAttr>("of").getValue().str().c_str());
  }
}

} // namespace qwen35
