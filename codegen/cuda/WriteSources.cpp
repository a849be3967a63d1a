#include "codegen/cuda/WriteSources.h"

#include "codegen/device/DeviceSources.h"
#include "dialect/QPlan/IR/QPlanDialect.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace qwen35::codegen::cuda {

namespace {

std::string writeFile(StringRef folder, StringRef name, StringRef text) {
  SmallString<256> path(folder);
  llvm::sys::path::append(path, name);
  std::error_code error =
      llvm::sys::fs::create_directories(llvm::sys::path::parent_path(path));
  if (!error) {
    llvm::raw_fd_ostream file(path, error);
    if (!error) {
      file << text;
      file.close();
      error = file.error();
      file.clear_error();
    }
  }
  return error ? ("cannot write " + path + ": " + error.message()).str() : "";
}

std::string launches(ArrayRef<CompiledStage> stages, ModuleOp plan) {
  llvm::StringMap<const CompiledStage *> bySymbol;
  for (const CompiledStage &stage : stages)
    bySymbol[stage.symbol] = &stage;
  std::string text;
  llvm::raw_string_ostream out(text);
  for (auto program : plan.getOps<qplan::ProgramOp>()) {
    out << "program " << program.getSymName() << "\n";
    int64_t number = 0;
    for (Operation &entry : program.getBody().front()) {
      out << llvm::format("%6lld  ", static_cast<long long>(number++));
      if (auto memset = dyn_cast<qplan::MemsetOp>(entry)) {
        out << "memset " << memset.getBuffer() << " = " << memset.getValue()
            << "\n";
        continue;
      }
      auto launch = cast<qplan::LaunchOp>(entry);
      std::string symbol = launch.getKernel().str();
      if (launch.getStage() > 0)
        symbol += "_s" + std::to_string(launch.getStage());
      out << symbol;
      const Stage &stage = bySymbol.at(symbol)->stage;
      if (const auto *device = std::get_if<DeviceStage>(&stage))
        out << " <<<" << device->blocks << ", " << device->threads << ", "
            << device->sharedBytes << ">>>";
      else {
        const auto &product = std::get<GemmStage>(stage);
        out << " cublasLt " << product.m << "x" << product.n << "x" << product.k;
      }
      for (auto [i, buffer] : llvm::enumerate(
               launch.getBuffers().getAsRange<FlatSymbolRefAttr>()))
        out << (i ? ", " : " (") << (launch.getWrites()[i] ? "&" : "")
            << buffer.getValue() << "+" << launch.getOffsets()[i];
      out << ") " << launch.getTag() << "\n";
    }
  }
  return text;
}

} // namespace

std::string writeSources(StringRef folder, const GpuTarget &target,
                         ArrayRef<CompiledStage> stages, ModuleOp plan) {
  for (const CompiledStage &stage : stages)
    if (!stage.source.empty())
      if (std::string problem =
              writeFile(folder, stage.symbol + ".cu", stage.source);
          !problem.empty())
        return problem;
  for (const DeviceSource &header : deviceSources())
    if (std::string problem = writeFile(folder, header.name, header.text);
        !problem.empty())
      return problem;
  return writeFile(folder, "launches.txt",
                   "# " + target.name + ": nvcc -std=c++17 -gencode arch=compute_" +
                       target.name.substr(3) + ",code=" + target.name +
                       " -cubin -I. SYMBOL.cu\n" + launches(stages, plan));
}

} // namespace qwen35::codegen::cuda
