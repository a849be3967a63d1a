#include "codegen/kernel/KernelSpec.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace qwen35::codegen {
namespace {

std::string shapeText(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<Type> elements) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << '[';
  llvm::interleaveComma(shape, out, [&](int64_t size) {
    if (size == kAny)
      out << '?';
    else
      out << size;
  });
  out << "] of ";
  llvm::interleave(elements, out, " or ");
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
  return requireType(spec, type, what, shape, llvm::ArrayRef<Type>(element),
                     emitError);
}

LogicalResult requireType(const KernelSpec &spec, MemRefType type,
                          llvm::StringRef what, llvm::ArrayRef<int64_t> shape,
                          llvm::ArrayRef<Type> elements, EmitError emitError) {
  bool matches = type.getRank() == static_cast<int64_t>(shape.size()) &&
                 llvm::is_contained(elements, type.getElementType());
  for (size_t d = 0; matches && d < shape.size(); ++d)
    matches = shape[d] == kAny || shape[d] == type.getDimSize(d);
  if (!matches)
    return emitError() << spec.op << ": " << what << " is "
                       << shapeText(type.getShape(), type.getElementType())
                       << ", expected " << shapeText(shape, elements);
  return requireDenseRows(spec, type, what, emitError);
}

LogicalResult requireRows(const KernelSpec &spec, MemRefType type,
                          llvm::StringRef what, EmitError emitError) {
  if (type.getRank() < 1 || !type.getElementType().isF32())
    return emitError() << spec.op << ": " << what << " is " << type
                       << ", expected f32 of rank 1 or more";
  return requireDenseRows(spec, type, what, emitError);
}

LogicalResult requireRows(const KernelSpec &spec, MemRefType type,
                          llvm::StringRef what, llvm::ArrayRef<Type> elements,
                          EmitError emitError) {
  if (type.getRank() < 1)
    return emitError() << spec.op << ": " << what << " is " << type
                       << ", expected rank 1 or more";
  return requireType(spec, type, what, type.getShape(), elements, emitError);
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

} // namespace qwen35::codegen
