#include "codegen/cuda/Kernel.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

llvm::StringMap<std::unique_ptr<KernelFamily>> &registry() {
  static llvm::StringMap<std::unique_ptr<KernelFamily>> families;
  return families;
}

llvm::StringRef deviceType(Type element) {
  if (element.isBF16())
    return "bf16";
  if (element.isF32())
    return "float";
  if (element.isF64())
    return "double";
  if (element.isInteger(64))
    return "long long";
  if (element.isInteger(32))
    return "int";
  return "unsigned char";
}

/// "const bf16 *" and so on, in the order of the arguments.
llvm::SmallVector<std::string> parameterTypes(const KernelSpec &spec,
                                              const KernelPlan &plan) {
  llvm::SmallVector<std::string> types;
  for (MemRefType type : spec.inputs)
    types.push_back(("const " + deviceType(type.getElementType()) + " *").str());
  for (MemRefType type : spec.outputs)
    types.push_back((deviceType(type.getElementType()) + " *").str());
  if (plan.workspaceBytes > 0)
    types.push_back("unsigned char *");
  return types;
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

DeviceStage &DeviceStage::constant(llvm::StringRef name, int64_t value) {
  constants.emplace_back(name.str(), "int64 " + std::to_string(value));
  return *this;
}

DeviceStage &DeviceStage::constant(llvm::StringRef name, bool value) {
  constants.emplace_back(name.str(), value ? "bool true" : "bool false");
  return *this;
}

DeviceStage &DeviceStage::constant(llvm::StringRef name, double value) {
  // Hexadecimal: exact, and the same text everywhere.
  std::string text = "float ";
  llvm::raw_string_ostream(text)
      << llvm::format("%af", static_cast<double>(static_cast<float>(value)));
  constants.emplace_back(name.str(), text);
  return *this;
}

std::string printSource(llvm::StringRef symbol, const KernelSpec &spec,
                        const KernelPlan &plan, unsigned index) {
  const auto &stage = std::get<DeviceStage>(plan.stages[index]);
  std::string text;
  llvm::raw_string_ostream out(text);
  out << "// " << spec.op << ", stage " << index << ": ";
  llvm::interleaveComma(spec.inputs, out);
  out << " to ";
  llvm::interleaveComma(spec.outputs, out);
  out << "\n#include \"" << stage.header << "\"\n\nusing namespace q35;\n\n";
  if (!stage.prologue.empty())
    out << stage.prologue << "\n";
  auto elementOf = [](llvm::ArrayRef<int64_t> table) {
    bool narrow = llvm::all_of(
        table, [](int64_t value) { return llvm::isInt<32>(value); });
    return narrow ? "int" : "int64";
  };
  for (const auto &[name, values] : stage.tables) {
    out << "__constant__ " << elementOf(values) << " table_" << name << "[] = {";
    for (auto [i, value] : llvm::enumerate(values))
      out << (i == 0 ? "" : i % 16 == 0 ? ",\n  " : ", ") << value;
    out << "};\n";
  }
  out << "struct P {\n";
  for (const auto &[name, value] : stage.constants) {
    auto [type, number] = llvm::StringRef(value).split(' ');
    out << "  static constexpr " << type << " " << name << " = " << number
        << ";\n";
  }
  for (const auto &[name, values] : stage.tables)
    out << "  static Q35_DEVICE " << elementOf(values) << " " << name
        << "(int i) { return table_" << name << "[i]; }\n";
  out << "};\n\nextern \"C\" __global__ void ";
  if (stage.clusterBlocks > 1)
    out << "__cluster_dims__(" << stage.clusterBlocks << ", 1, 1) ";
  out << "__launch_bounds__(" << stage.threads << ", " << stage.minBlocks
      << ")\n" << symbol << "(";
  llvm::SmallVector<std::string> types = parameterTypes(spec, plan);
  if (stage.packed) {
    out << "Q35_ARGUMENTS(" << types.size() << ") a) {\n  " << stage.function
        << "<P>(a);\n}\n";
    return text;
  }
  std::string arguments;
  for (auto [number, type] : llvm::enumerate(types)) {
    out << (number ? ", " : "") << type << "a" << number;
    arguments += (number ? ", a" : "a") + std::to_string(number);
  }
  out << ") {\n  " << stage.function << "<P>(" << arguments << ");\n}\n";
  return text;
}

std::string printEmulated(llvm::StringRef symbol, const KernelSpec &spec,
                          const KernelPlan &plan, unsigned stage) {
  return printSource(symbol, spec, plan, stage) + "\n" +
         printLauncher(symbol, parameterTypes(spec, plan),
                       std::get<DeviceStage>(plan.stages[stage]).packed);
}

std::string printLauncher(llvm::StringRef symbol,
                          llvm::ArrayRef<std::string> parameterTypes,
                          bool packed) {
  constexpr llvm::StringLiteral kExport =
      "extern \"C\" __attribute__((visibility(\"default\"))) ";
  std::string text;
  llvm::raw_string_ostream out(text);
  out << kExport << "const int q35_arguments_" << symbol << " = "
      << parameterTypes.size() << ";\n"
      << kExport << "void q35_launch_" << symbol
      << "(void *const *args, long long blocks, int threads, "
         "long long sharedBytes, int order) {\n"
      << "  q35::emulated::launch(\"" << symbol
      << "\", [](void *const *a) {\n    " << symbol << "(";
  if (packed) {
    out << "*reinterpret_cast<const q35::Arguments<" << parameterTypes.size()
        << "> *>(a)";
    parameterTypes = {};
  }
  for (auto [number, type] : llvm::enumerate(parameterTypes))
    out << (number ? ", " : "") << "static_cast<" << type << ">(a[" << number
        << "])";
  out << ");\n  }, args, blocks, threads, sharedBytes, order);\n}\n";
  return text;
}

llvm::SmallVector<Type, 2> floatTypes(const KernelSpec &spec) {
  MLIRContext *context =
      (spec.inputs.empty() ? spec.outputs : spec.inputs)[0].getContext();
  return {Float32Type::get(context), BFloat16Type::get(context)};
}

llvm::SmallVector<int64_t> stridesOf(MemRefType type) {
  llvm::SmallVector<int64_t> strides;
  int64_t offset;
  [[maybe_unused]] LogicalResult known =
      type.getStridesAndOffset(strides, offset);
  assert(succeeded(known) && "plan checks layouts before it reads them");
  return strides;
}

std::optional<int64_t> rowStride(MemRefType type) {
  llvm::SmallVector<int64_t> strides = stridesOf(type);
  int64_t rank = type.getRank();
  if (rank < 2)
    return type.getNumElements();
  int64_t stride = strides[rank - 2], extent = stride * type.getDimSize(rank - 2);
  for (int64_t d = rank - 3; d >= 0; --d) {
    if (type.getDimSize(d) != 1 && strides[d] != extent)
      return std::nullopt;
    extent *= type.getDimSize(d);
  }
  return stride;
}

int64_t bytesOf(Type element) {
  return (element.getIntOrFloatBitWidth() + 7) / 8;
}

} // namespace qwen35::codegen::cuda
