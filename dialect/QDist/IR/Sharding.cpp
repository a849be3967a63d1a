#include "dialect/QDist/IR/QDistDialect.h"
#include "runtime/schema/stripe_table.h"

using namespace mlir;

namespace qwen35::qdist {

Sharding Sharding::of(ShardingAttr attr, const Mesh &mesh) {
  Sharding sharding;
  for (auto [dim, pair] :
       llvm::enumerate(llvm::zip_equal(attr.getDims(), attr.getSections()))) {
    auto [axes, sizes] = pair;
    sharding.dims.push_back(axesOf(mesh, cast<ArrayAttr>(axes)));
    sharding.setSections(dim, cast<DenseI64ArrayAttr>(sizes).asArrayRef());
  }
  sharding.partial = axesOf(mesh, attr.getPartial());
  sharding.isMax = attr.getIsMax();
  return sharding;
}

ShardingAttr Sharding::attr(MLIRContext *context, const Mesh &mesh) const {
  Builder b(context);
  auto names = [&](MeshAxes axes) {
    SmallVector<Attribute> list;
    for (const std::string &name : mesh.names(axes))
      list.push_back(b.getStringAttr(name));
    return b.getArrayAttr(list);
  };
  SmallVector<Attribute> axes, sizes;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    axes.push_back(names(dims[dim]));
    // Sections of a dimension that is whole say nothing.
    sizes.push_back(b.getDenseI64ArrayAttr(
        dims[dim] ? sectionsOf(dim) : ArrayRef<int64_t>()));
  }
  return ShardingAttr::get(context, b.getArrayAttr(axes), b.getArrayAttr(sizes),
                           names(partial), partial != 0 && isMax);
}

void Sharding::setSections(size_t dim, ArrayRef<int64_t> sizes) {
  if (sizes.size() < 2 && sections.empty())
    return;
  sections.resize(std::max(dims.size(), dim + 1));
  sections[dim].assign(sizes.begin(), sizes.end());
  if (sizes.size() < 2)
    sections[dim].clear();
}

bool Sharding::sameLayout(const Sharding &other) const {
  if (dims != other.dims)
    return false;
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (dims[dim] && sectionsOf(dim) != other.sectionsOf(dim))
      return false;
  return true;
}

/// Of the axes that split a document table, those that hold other rows.
static MeshAxes rowsOf(MeshAxes axes, const Mesh &mesh) {
  return axes & ~*mesh.axes("cp");
}

Type Sharding::localType(Type global, const Mesh &mesh) const {
  if (auto seq = dyn_cast<SeqType>(global)) {
    MeshAxes rows = rowsOf(dims[0], mesh);
    int64_t docs = seq.getMaxDocs() / mesh.size(rows);
    return SeqType::get(global.getContext(),
                        seq.getTokens() / mesh.size(dims[0]),
                        rows == dims[0] ? docs : StripeTable::localDocs(docs));
  }
  auto tensor = cast<RankedTensorType>(global);
  SmallVector<int64_t> shape(tensor.getShape());
  for (auto [size, axes] : llvm::zip_equal(shape, dims))
    size /= mesh.size(axes);
  return tensor.clone(shape);
}

std::optional<std::string> Sharding::misfit(Type global,
                                            const Mesh &mesh) const {
  std::string text;
  llvm::raw_string_ostream out(text);
  auto divides = [&](int64_t size, MeshAxes axes, const Twine &what) {
    if (size % mesh.size(axes) == 0)
      return true;
    out << what << " of size " << size << " does not split over the "
        << mesh.size(axes) << " ranks of " << mesh.describe(axes);
    return false;
  };
  if (auto seq = dyn_cast<SeqType>(global)) {
    if (dims.size() != 1) {
      out << "has " << dims.size()
          << " dimensions for a document table, expected 1: its tokens";
      return text;
    }
    if (!divides(seq.getTokens(), dims[0], "a row") ||
        !divides(seq.getMaxDocs(), rowsOf(dims[0], mesh),
                 "a table of documents"))
      return text;
    return std::nullopt;
  }
  auto tensor = dyn_cast<RankedTensorType>(global);
  if (!tensor || size_t(tensor.getRank()) != dims.size()) {
    out << "has " << dims.size() << " dimensions for a value of type " << global;
    return text;
  }
  MeshAxes used = partial;
  for (auto [dim, axes] : llvm::enumerate(dims)) {
    if (used & axes) {
      out << "uses " << mesh.describe(used & axes) << " twice";
      return text;
    }
    used |= axes;
    int64_t size = tensor.getDimSize(dim), total = 0;
    if (!divides(size, axes, "dimension " + Twine(dim)))
      return text;
    for (int64_t section : sectionsOf(dim)) {
      total += section;
      if (!divides(section, axes, "a section of dimension " + Twine(dim)))
        return text;
    }
    if (!sectionsOf(dim).empty() && total != size) {
      out << "has sections of " << total << " in all for dimension " << dim
          << " of size " << size;
      return text;
    }
  }
  return std::nullopt;
}

} // namespace qwen35::qdist
