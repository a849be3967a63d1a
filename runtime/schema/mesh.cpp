#include "runtime/schema/mesh.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace qwen35 {
namespace {

constexpr std::string_view kAxes[] = {"pp", "dpr", "dps", "cp", "tp"};
constexpr int kDps = 2, kCp = 3, kTp = 4;

/// Largest mesh: what fits a rank number of 32 bits with room to multiply.
constexpr int64_t kMaxRanks = int64_t(1) << 24;

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

int64_t *sizeOf(MeshShape &shape, std::string_view name) {
  if (name == "pp")
    return &shape.pp;
  if (name == "dpr")
    return &shape.dpr;
  if (name == "dps")
    return &shape.dps;
  if (name == "cp")
    return &shape.cp;
  if (name == "tp")
    return &shape.tp;
  if (name == "ep")
    return &shape.ep;
  return nullptr;
}

/// The sizes by axis.
std::vector<int64_t> axisSizes(const MeshShape &s) {
  return {s.pp, s.dpr, s.dps, s.cp, s.tp};
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0)
      found.push_back(d);
  return found;
}

} // namespace

std::string printMeshShape(const MeshShape &s) {
  auto pair = [](const char *name, int64_t size) {
    return std::string(name) + "=" + std::to_string(size);
  };
  return pair("pp", s.pp) + "," + pair("dpr", s.dpr) + "," +
         pair("dps", s.dps) + "," + pair("cp", s.cp) + "," +
         pair("tp", s.tp) + "," + pair("ep", s.ep);
}

std::optional<MeshShape> parseMeshShape(std::string_view text,
                                        std::string &error) {
  MeshShape shape;
  std::vector<std::string> seen;
  while (!text.empty()) {
    std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    size_t equal = pair.find('=');
    std::string_view name = pair.substr(0, equal);
    int64_t *size = sizeOf(shape, name);
    if (equal == std::string_view::npos || !size) {
      error = "mesh has " + quoted(pair) +
              ", expected AXIS=SIZE with an axis of pp, dpr, dps, cp, tp, ep";
      return std::nullopt;
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      error = "mesh names " + quoted(name) + " twice";
      return std::nullopt;
    }
    seen.emplace_back(name);
    std::string_view digits = pair.substr(equal + 1);
    auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), *size);
    if (code != std::errc() || end != digits.data() + digits.size() ||
        *size < 1 || *size > kMaxRanks) {
      error = "mesh has " + std::string(name) + "=" + std::string(digits) +
              ", expected a number of ranks, 1 to " +
              std::to_string(kMaxRanks);
      return std::nullopt;
    }
  }
  int64_t ranks = 1;
  for (int64_t size : axisSizes(shape)) {
    ranks *= size; // at most 2^48
    if (ranks > kMaxRanks) {
      error = "mesh has more than " + std::to_string(kMaxRanks) + " ranks";
      return std::nullopt;
    }
  }
  return shape;
}

std::optional<Mesh> Mesh::make(const MeshShape &shape, std::string &error) {
  std::vector<int64_t> sizes = axisSizes(shape);
  for (int axis = 0; axis < 5; ++axis)
    if (sizes[axis] < 1) {
      error = "mesh has " + std::string(kAxes[axis]) + "=" +
              std::to_string(sizes[axis]) + ", expected at least 1";
      return std::nullopt;
    }
  // Cuts of an axis, as the sizes of what lies inside of them.
  std::vector<int64_t> cuts[5];
  int64_t left = shape.ep, inside[5] = {1, 1, 1, 1, 1};
  for (int axis = kTp; axis >= kDps && left > 1; --axis) {
    inside[axis] = std::min(left, sizes[axis]);
    if (left % inside[axis] != 0 || sizes[axis] % inside[axis] != 0)
      break;
    left /= inside[axis];
    if (inside[axis] < sizes[axis]) {
      cuts[axis].push_back(inside[axis]);
      break;
    }
  }
  if (shape.ep < 1 || left != 1) {
    error = "ep=" + std::to_string(shape.ep) +
            " is not an innermost run of dps=" + std::to_string(shape.dps) +
            ", cp=" + std::to_string(shape.cp) +
            ", tp=" + std::to_string(shape.tp) +
            ": expected a divisor of tp, or tp times a divisor of cp, or tp "
            "times cp times a divisor of dps";
    return std::nullopt;
  }
  int64_t kv = shape.kv == 0 ? shape.tp : shape.kv;
  if (kv < 1 || shape.tp % kv != 0) {
    error = "kv=" + std::to_string(shape.kv) +
            " does not divide tp=" + std::to_string(shape.tp);
    return std::nullopt;
  }
  int64_t copies = shape.tp / kv; // ranks that hold the same key/value heads
  if (copies > 1 && copies < shape.tp)
    cuts[kTp].push_back(copies);

  Mesh mesh;
  mesh.sizes = shape;
  int64_t stride = shape.ranks();
  for (int axis = 0; axis < 5; ++axis) {
    std::vector<int64_t> &list = cuts[axis];
    std::sort(list.rbegin(), list.rend());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    list.push_back(1);
    int64_t outer = sizes[axis];
    for (size_t i = 0; i < list.size(); ++i) {
      if (outer % list[i] != 0) {
        error = "tp=" + std::to_string(shape.tp) + " is cut by ep=" +
                std::to_string(shape.ep) + " and by " +
                std::to_string(copies) +
                " copies of key/value heads, of which neither divides the "
                "other";
        return std::nullopt;
      }
      int64_t size = outer / list[i];
      outer = list[i];
      stride /= size;
      if (size == 1)
        continue;
      Atom atom{std::string(kAxes[axis]), axis, size, stride};
      if (list.size() > 1)
        atom.name += "." + std::to_string(i);
      int64_t within = outer; // ranks of this axis inside of the atom
      MeshAxes bit = MeshAxes(1) << mesh.list.size();
      mesh.perAxis[axis] |= bit;
      if (within * size <= inside[axis])
        mesh.epAxes |= bit;
      if (axis == kTp && within >= copies)
        mesh.kvAxes |= bit;
      mesh.list.push_back(std::move(atom));
    }
  }
  return mesh;
}

std::optional<MeshAxes> Mesh::axes(std::string_view name) const {
  MeshAxes shards = perAxis[kDps] | perAxis[kCp] | perAxis[kTp];
  for (int axis = 0; axis < 5; ++axis)
    if (name == kAxes[axis])
      return perAxis[axis];
  if (name == "ep")
    return epAxes;
  if (name == "edp")
    return shards & ~epAxes;
  if (name == "data")
    return perAxis[1] | perAxis[kDps];
  if (name == "fsdp")
    return perAxis[kDps] | perAxis[kCp];
  if (name == "kv")
    return kvAxes;
  for (size_t i = 0; i < list.size(); ++i)
    if (name == list[i].name)
      return MeshAxes(1) << i;
  return std::nullopt;
}

std::vector<std::string> Mesh::names(MeshAxes axes) const {
  std::vector<std::string> found;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!(axes >> i & 1))
      continue;
    MeshAxes whole = perAxis[list[i].axis];
    bool first = (whole & ((MeshAxes(1) << i) - 1)) == 0;
    if ((axes & whole) != whole)
      found.push_back(list[i].name);
    else if (first)
      found.emplace_back(kAxes[list[i].axis]);
  }
  return found;
}

std::string Mesh::describe(MeshAxes axes) const {
  std::string text = "{";
  for (const std::string &name : names(axes))
    text += (text.size() > 1 ? ", " : "") + name;
  return text + "}";
}

int64_t Mesh::size(MeshAxes axes) const {
  int64_t size = 1;
  for (size_t i = 0; i < list.size(); ++i)
    if (axes >> i & 1)
      size *= list[i].size;
  return size;
}

int64_t Mesh::coordinate(int64_t rank, MeshAxes axes) const {
  int64_t number = 0;
  for (size_t i = 0; i < list.size(); ++i)
    if (axes >> i & 1)
      number = number * list[i].size + rank / list[i].stride % list[i].size;
  return number;
}

std::vector<int64_t> Mesh::group(int64_t rank, MeshAxes axes) const {
  std::vector<int64_t> members = {rank};
  for (size_t i = 0; i < list.size(); ++i) {
    if (!(axes >> i & 1))
      continue;
    const Atom &atom = list[i];
    std::vector<int64_t> wider;
    for (int64_t member : members) {
      int64_t first = member - member / atom.stride % atom.size * atom.stride;
      for (int64_t k = 0; k < atom.size; ++k)
        wider.push_back(first + k * atom.stride);
    }
    members = std::move(wider);
  }
  return members;
}

std::vector<std::vector<int64_t>> Mesh::groups(MeshAxes axes) const {
  std::vector<std::vector<int64_t>> all;
  for (int64_t rank = 0; rank < ranks(); ++rank)
    if (coordinate(rank, axes) == 0)
      all.push_back(group(rank, axes));
  return all;
}

MeshShape withKvCut(MeshShape shape, const MeshLimits &limits) {
  shape.kv = limits.kvHeads == 0 ? 0 : std::gcd(shape.tp, limits.kvHeads);
  if (shape.kv == shape.tp)
    shape.kv = 0;
  return shape;
}

std::string checkMesh(const MeshShape &shape, const MeshLimits &limits) {
  std::string error;
  if (!Mesh::make(withKvCut(shape, limits), error))
    return error;
  auto text = [](int64_t n) { return std::to_string(n); };
  struct Rule {
    const char *what;
    int64_t size;
  } divides[] = {
      {"query heads", limits.queryHeads},
      {"key heads of the delta rule", limits.keyHeads},
      {"value heads of the delta rule", limits.valueHeads},
      {"columns of the feed-forward block", limits.ffn},
      {"ids of the vocabulary", limits.vocab},
  };
  for (const Rule &rule : divides)
    if (rule.size % shape.tp != 0)
      return "tp=" + text(shape.tp) + " does not divide the " +
             text(rule.size) + " " + rule.what;
  if (limits.kvHeads % shape.tp != 0 && shape.tp % limits.kvHeads != 0)
    return "tp=" + text(shape.tp) + " neither divides the " +
           text(limits.kvHeads) + " key/value heads nor is a multiple of them";
  if (shape.ep > 1 && limits.experts == 0)
    return "ep=" + text(shape.ep) +
           " for a dense model, which has no experts; expected ep=1";
  if (limits.experts % shape.ep != 0)
    return "ep=" + text(shape.ep) + " does not divide the " +
           text(limits.experts) + " experts";
  int64_t pieces = shape.cp * shape.tp * (shape.cp > 1 ? 2 : 1);
  if (limits.rowTokens % pieces != 0)
    return "a row of " + text(limits.rowTokens) + " tokens does not split into " +
           text(pieces) + " pieces for cp=" + text(shape.cp) +
           " and tp=" + text(shape.tp) +
           (shape.cp > 1 ? " (two chunks per cp rank)" : "");
  return {};
}

std::vector<MeshShape> legalMeshes(int64_t ranks, const MeshLimits &limits) {
  std::vector<MeshShape> found;
  for (int64_t tp : divisors(ranks))
    for (int64_t cp : divisors(ranks / tp))
      for (int64_t dps : divisors(ranks / tp / cp))
        for (int64_t ep : divisors(dps * cp * tp)) {
          MeshShape shape;
          shape.tp = tp;
          shape.cp = cp;
          shape.dps = dps;
          shape.dpr = ranks / tp / cp / dps;
          shape.ep = ep;
          if (checkMesh(shape, limits).empty())
            found.push_back(shape);
        }
  return found;
}

std::string explainMesh(const MeshShape &shape, const MeshLimits &limits) {
  std::string why = checkMesh(shape, limits);
  if (why.empty())
    return why;
  auto distance = [&](const MeshShape &other) {
    auto one = [](int64_t a, int64_t b) {
      return std::abs(std::log2(double(a)) - std::log2(double(b)));
    };
    // A smaller group is a smaller change to the job than a larger one.
    return one(shape.tp, other.tp) + one(shape.cp, other.cp) +
           one(shape.ep, other.ep) + 0.5 * one(shape.dps, other.dps) +
           0.5 * one(shape.dpr, other.dpr);
  };
  std::vector<MeshShape> all = legalMeshes(shape.ranks() / shape.pp, limits);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < all.size(); ++i)
    order.emplace_back(distance(all[i]), i);
  std::sort(order.begin(), order.end());
  if (all.empty())
    return why + "; no mesh of " + std::to_string(shape.ranks()) +
           " ranks fits this model";
  why += "; nearest meshes of as many ranks:";
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i) {
    MeshShape near = all[order[i].second];
    near.pp = shape.pp;
    why += std::string(i ? "; " : " ") + printMeshShape(near);
  }
  return why;
}

} // namespace qwen35
