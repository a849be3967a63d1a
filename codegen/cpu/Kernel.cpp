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

std::string shapeText(llvm::ArrayRef<int64_t> shape, Type element) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << '[';
  llvm::interleaveComma(shape, out, [&](int64_t size) {
    if (size == kAny)
      out << '?';
    else
      out << size;
  });
  out << "] of " << element;
  return text;
}

LogicalResult requireDenseRows(const KernelSpec &spec, MemRefType type,
                               llvm::StringRef what, EmitError emitError) {
  if (!type.hasStaticShape())
    return emitError() << spec.op << ": " << what
                       << " needs a static shape, got " << type;
  llvm::SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)) ||
      llvm::is_contained(strides, ShapedType::kDynamic))
    return emitError() << spec.op << ": " << what
                       << " needs static strides, got " << type;
  if (!strides.empty() && strides.back() != 1)
    return emitError() << spec.op << ": the last stride of " << what
                       << " must be 1, got " << strides.back();
  if (type.getRank() > 0 && llvm::is_contained(type.getShape(), 0))
    return emitError() << spec.op << ": " << what << " is empty: " << type;
  return success();
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

double KernelSpec::number(llvm::StringRef name) const {
  Attribute attr = attrs.get(name);
  if (auto number = dyn_cast_or_null<FloatAttr>(attr))
    return number.getValueAsDouble();
  return static_cast<double>(cast<IntegerAttr>(attr).getInt());
}

int64_t KernelSpec::integer(llvm::StringRef name) const {
  return cast<IntegerAttr>(attrs.get(name)).getInt();
}

bool KernelSpec::flag(llvm::StringRef name) const {
  Attribute attr = attrs ? attrs.get(name) : Attribute();
  if (auto value = dyn_cast_or_null<BoolAttr>(attr))
    return value.getValue();
  return attr && isa<UnitAttr>(attr);
}

llvm::StringRef KernelSpec::text(llvm::StringRef name) const {
  return cast<StringAttr>(attrs.get(name)).getValue();
}

LogicalResult requireCounts(const KernelSpec &spec, unsigned inputs,
                            unsigned outputs, EmitError emitError) {
  if (spec.inputs.size() != inputs || spec.outputs.size() != outputs)
    return emitError() << spec.op << " takes " << inputs << " inputs and "
                       << outputs << " outputs, got " << spec.inputs.size()
                       << " and " << spec.outputs.size();
  return success();
}

LogicalResult requireAttrs(const KernelSpec &spec,
                           llvm::ArrayRef<llvm::StringRef> names,
                           EmitError emitError) {
  for (llvm::StringRef name : names)
    if (!spec.attrs || !spec.attrs.get(name))
      return emitError() << spec.op << " needs the attribute " << name;
  return success();
}

LogicalResult requireType(const KernelSpec &spec, MemRefType type,
                          llvm::StringRef what, llvm::ArrayRef<int64_t> shape,
                          Type element, EmitError emitError) {
  bool matches = type.getRank() == static_cast<int64_t>(shape.size()) &&
                 type.getElementType() == element;
  for (size_t d = 0; matches && d < shape.size(); ++d)
    matches = shape[d] == kAny || shape[d] == type.getDimSize(d);
  if (!matches)
    return emitError() << spec.op << ": " << what << " is "
                       << shapeText(type.getShape(), type.getElementType())
                       << ", expected " << shapeText(shape, element);
  return requireDenseRows(spec, type, what, emitError);
}

LogicalResult requireRows(const KernelSpec &spec, MemRefType type,
                          llvm::StringRef what, EmitError emitError) {
  if (type.getRank() < 1 || !type.getElementType().isF32())
    return emitError() << spec.op << ": " << what << " is " << type
                       << ", expected f32 of rank 1 or more";
  return requireDenseRows(spec, type, what, emitError);
}

LogicalResult requireSameShape(const KernelSpec &spec, MemRefType a,
                               llvm::StringRef nameA, MemRefType b,
                               llvm::StringRef nameB, EmitError emitError) {
  if (a.getShape() != b.getShape() || a.getElementType() != b.getElementType())
    return emitError() << spec.op << ": " << nameA << " is "
                       << shapeText(a.getShape(), a.getElementType()) << " but "
                       << nameB << " is "
                       << shapeText(b.getShape(), b.getElementType());
  if (failed(requireDenseRows(spec, a, nameA, emitError)))
    return failure();
  return requireDenseRows(spec, b, nameB, emitError);
}

int64_t rowCount(MemRefType type) {
  return type.getRank() ? elementCount(type) / type.getShape().back() : 1;
}

int64_t elementCount(MemRefType type) { return type.getNumElements(); }

int64_t chooseTasks(int64_t items, int64_t elementsPerItem) {
  constexpr int64_t kTaskElements = 16384; // 5 to 20 us on one core
  constexpr int64_t kMostTasks = 256;
  int64_t work = items * std::max<int64_t>(elementsPerItem, 1);
  int64_t tasks =
      std::clamp<int64_t>(work / kTaskElements, 1, std::min(items, kMostTasks));
  return llvm::divideCeil(items, llvm::divideCeil(items, tasks));
}

} // namespace qwen35::codegen::cpu
