#include "dialect/QDist/IR/QDistDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialect/QDist/IR/QDistDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialect/QDist/IR/QDistAttrs.cpp.inc"

namespace qwen35::qdist {

void QDistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/QDist/IR/QDistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/QDist/IR/CollectiveOps.cpp.inc"
      >();
}

LogicalResult QDistDialect::verifyOperationAttribute(Operation *op,
                                                     NamedAttribute attr) {
  if (attr.getName() != kMeshAttr)
    return success();
  if (!isa<ModuleOp>(op))
    return op->emitOpError("has '") << kMeshAttr << "', expected only modules";
  if (!isa<MeshAttr>(attr.getValue()))
    return op->emitOpError("has '")
           << kMeshAttr << "' = " << attr.getValue()
           << ", expected #qdist.mesh<...>";
  return success();
}

MeshAttr MeshAttr::get(MLIRContext *context, const MeshShape &s) {
  return get(context, s.pp, s.dpr, s.dps, s.cp, s.tp, s.ep, s.kv);
}

LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t pp, int64_t dpr, int64_t dps, int64_t cp,
                               int64_t tp, int64_t ep, int64_t kv) {
  std::string error;
  MeshShape shape{pp, dpr, dps, cp, tp, ep, kv};
  if (!Mesh::make(shape, error))
    return emitError() << error;
  return success();
}

MeshShape MeshAttr::getShape() const {
  return {getPp(), getDpr(), getDps(), getCp(), getTp(), getEp(), getKv()};
}

Mesh MeshAttr::getMesh() const {
  std::string error;
  return *Mesh::make(getShape(), error);
}

/// `{tp, cp.1}`, with the sizes of sections after a colon.
static ParseResult parseAxes(AsmParser &parser, Attribute &axes,
                             Attribute *sections) {
  SmallVector<Attribute> names;
  SmallVector<int64_t> sizes;
  Builder &b = parser.getBuilder();
  if (parser.parseLBrace())
    return failure();
  if (failed(parser.parseOptionalRBrace())) {
    StringRef name;
    do {
      if (parser.parseKeyword(&name))
        return failure();
      names.push_back(b.getStringAttr(name));
    } while (succeeded(parser.parseOptionalComma()));
    if (sections && succeeded(parser.parseOptionalColon()))
      if (parser.parseCommaSeparatedList(
              [&] { return parser.parseInteger(sizes.emplace_back()); }))
        return failure();
    if (parser.parseRBrace())
      return failure();
  }
  axes = b.getArrayAttr(names);
  if (sections)
    *sections = b.getDenseI64ArrayAttr(sizes);
  return success();
}

static void printAxes(AsmPrinter &printer, ArrayAttr axes,
                      ArrayRef<int64_t> sections = {}) {
  printer << '{';
  llvm::interleaveComma(axes.getAsValueRange<StringAttr>(), printer);
  if (!sections.empty()) {
    printer << " : ";
    llvm::interleaveComma(sections, printer);
  }
  printer << '}';
}

Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  SmallVector<Attribute> dims, sections;
  Attribute partial = parser.getBuilder().getArrayAttr({});
  bool isMax = false;
  auto parseDim = [&] {
    return parseAxes(parser, dims.emplace_back(), &sections.emplace_back());
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    StringRef kind;
    if (parser.parseKeyword(&kind) || parser.parseEqual())
      return {};
    if (kind != "partial" && kind != "max") {
      parser.emitError(loc, "got '")
          << kind << "', expected 'partial' or 'max'";
      return {};
    }
    isMax = kind == "max";
    if (parseAxes(parser, partial, nullptr))
      return {};
  }
  if (parser.parseGreater())
    return {};
  Builder &b = parser.getBuilder();
  return parser.getChecked<ShardingAttr>(
      loc, parser.getContext(), b.getArrayAttr(dims), b.getArrayAttr(sections),
      cast<ArrayAttr>(partial), isMax);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(
      llvm::zip_equal(getDims(), getSections()), printer, [&](auto pair) {
        auto [axes, sections] = pair;
        printAxes(printer, cast<ArrayAttr>(axes),
                  cast<DenseI64ArrayAttr>(sections));
      });
  printer << ']';
  if (!getPartial().empty()) {
    printer << (getIsMax() ? ", max = " : ", partial = ");
    printAxes(printer, getPartial());
  }
  printer << '>';
}

LogicalResult ShardingAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   ArrayAttr dims, ArrayAttr sections,
                                   ArrayAttr partial, bool) {
  if (dims.size() != sections.size())
    return emitError() << "has " << dims.size() << " dimensions but sections of "
                       << sections.size();
  llvm::StringSet<> seen;
  auto check = [&](ArrayAttr axes) -> LogicalResult {
    for (StringRef name : axes.getAsValueRange<StringAttr>())
      if (!seen.insert(name).second)
        return emitError() << "axis '" << name << "' is used twice";
    return success();
  };
  for (auto [axes, sizes] : llvm::zip_equal(dims, sections)) {
    if (failed(check(cast<ArrayAttr>(axes))))
      return failure();
    for (int64_t size : cast<DenseI64ArrayAttr>(sizes).asArrayRef())
      if (size <= 0)
        return emitError() << "a section has size " << size
                           << ", expected more than 0";
  }
  return check(partial);
}

LogicalResult WireAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               Type type, Type acc) {
  if (!type.isBF16() && !type.isF32() && !type.isF64()) // C1
    return emitError() << "type is " << type << ", expected bf16, f32 or f64";
  if ((!acc.isF32() && !acc.isF64()) ||
      acc.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth()) // C2
    return emitError() << "acc is " << acc << " where type is " << type
                       << ", expected f32 or f64 and not narrower";
  return success();
}

std::optional<Mesh> meshOf(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  auto attr = module ? module->getAttrOfType<MeshAttr>(kMeshAttr) : MeshAttr();
  if (!attr)
    return std::nullopt;
  return attr.getMesh();
}

MeshAxes axesOf(const Mesh &mesh, ArrayAttr names) {
  MeshAxes axes = 0;
  for (StringRef name : names.getAsValueRange<StringAttr>())
    axes |= mesh.axes({name.data(), name.size()}).value_or(0);
  return axes;
}

} // namespace qwen35::qdist
