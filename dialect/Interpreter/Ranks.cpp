#include "dialect/Interpreter/Ranks.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace qwen35::interpreter {
namespace {

/// For every element of the rank's part, in order, its place in the value.
std::vector<int64_t> places(ArrayRef<int64_t> global,
                            const qdist::Sharding &sharding, const Mesh &mesh,
                            int64_t rank) {
  std::vector<int64_t> all = {0};
  for (auto [dim, size] : llvm::enumerate(global)) {
    MeshAxes axes = sharding.dims[dim];
    int64_t ranks = mesh.size(axes), self = mesh.coordinate(rank, axes);
    std::vector<int64_t> rows;
    int64_t first = 0;
    auto add = [&](int64_t section) {
      int64_t piece = section / ranks;
      for (int64_t i = 0; i < piece; ++i)
        rows.push_back(first + self * piece + i);
      first += section;
    };
    if (sharding.sectionsOf(dim).empty())
      add(size);
    for (int64_t section : sharding.sectionsOf(dim))
      add(section);
    std::vector<int64_t> wider;
    wider.reserve(all.size() * rows.size());
    for (int64_t place : all)
      for (int64_t row : rows)
        wider.push_back(place * size + row);
    all = std::move(wider);
  }
  return all;
}

} // namespace

Tensor localPart(const Tensor &global, const qdist::Sharding &sharding,
                 const Mesh &mesh, int64_t rank) {
  Tensor local;
  for (auto [size, axes] : llvm::zip_equal(global.shape, sharding.dims))
    local.shape.push_back(size / mesh.size(axes));
  std::vector<int64_t> from = places(global.shape, sharding, mesh, rank);
  std::visit(
      [&](const auto &elements) {
        std::decay_t<decltype(elements)> part;
        part.reserve(from.size());
        for (int64_t place : from)
          part.push_back(elements[place]);
        local.elements = std::move(part);
      },
      global.elements);
  return local;
}

Assembled assemble(ArrayRef<Tensor> locals, const qdist::Sharding &sharding,
                   const Mesh &mesh) {
  Assembled result;
  int64_t count = 1;
  for (auto [size, axes] : llvm::zip_equal(locals[0].shape, sharding.dims)) {
    result.value.shape.push_back(size * mesh.size(axes));
    count *= result.value.shape.back();
  }
  std::visit(
      [&](const auto &first) {
        using List = std::decay_t<decltype(first)>;
        List value(count);
        // Of ranks that hold copies, the first is believed. Partial values are
        // copies where they agree on all axes but those they are partial over.
        auto copies = [&](int64_t rank) {
          return mesh.coordinate(rank, ~(sharding.split() | sharding.partial));
        };
        auto partOf = [&](int64_t rank) {
          return mesh.coordinate(rank, sharding.partial);
        };
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
          if (copies(rank) != 0)
            continue;
          const List &part = std::get<List>(locals[rank].elements);
          std::vector<int64_t> to =
              places(result.value.shape, sharding, mesh, rank);
          for (size_t i = 0; i < to.size(); ++i) {
            auto &place = value[to[i]];
            if (partOf(rank) == 0)
              place = part[i];
            else
              place = sharding.isMax ? std::max(place, part[i])
                                     : place + part[i];
          }
        }
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
          if (copies(rank) == 0)
            continue;
          int64_t original = rank;
          for (int64_t other :
               mesh.group(rank, ~(sharding.split() | sharding.partial)))
            original = std::min(original, other);
          const List &part = std::get<List>(locals[rank].elements);
          const List &same = std::get<List>(locals[original].elements);
          for (size_t i = 0; i < part.size(); ++i) {
            double apart = std::abs(double(part[i]) - double(same[i]));
            // A NaN on one rank only is as far apart as can be.
            if (std::isnan(double(part[i])) != std::isnan(double(same[i])))
              apart = HUGE_VAL;
            if (apart > result.spread)
              result.spread = apart;
          }
        }
        result.value.elements = std::move(value);
      },
      locals[0].elements);
  return result;
}

} // namespace qwen35::interpreter
