#ifndef QWEN35_RUNTIME_SCHEMA_MESH_H
#define QWEN35_RUNTIME_SCHEMA_MESH_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen35 {

/// How many ranks each axis of a mesh has, outermost axis first.
///
/// `dpr` replicates everything, `dps` shards parameters and optimizer; `ep` is
/// not an axis of its own but a view: a contiguous innermost run of
/// (dps, cp, tp). `kv` says over how many of the tp ranks key/value heads are
/// spread; 0 means all of them.
struct MeshShape {
  int64_t pp = 1, dpr = 1, dps = 1, cp = 1, tp = 1, ep = 1, kv = 0;

  int64_t ranks() const { return pp * dpr * dps * cp * tp; }
  bool operator==(const MeshShape &) const = default;
};

/// "pp=1,dpr=1,dps=2,cp=2,tp=2,ep=4", as `parseMeshShape` reads it.
std::string printMeshShape(const MeshShape &shape);

/// Reads `axis=size` pairs in any order; absent axes are 1. Returns nothing and
/// sets `error`, which says what was found and what was expected.
std::optional<MeshShape> parseMeshShape(std::string_view text,
                                        std::string &error);

/// A set of atoms of a mesh, as bits; 0 is the set of no axis: one rank.
using MeshAxes = uint32_t;

/// The ranks of a job and how they are grouped.
///
/// Ranks are numbered with tp innermost. An axis that a view cuts (ep inside
/// cp, say) consists of two or three *atoms*, outermost first, named `cp.0`,
/// `cp.1`; any other axis is one atom of its own name, and an axis of size 1
/// has none, so sets of axes that select the same ranks are equal.
///
/// Units   Everything counts ranks.
/// Source  DESIGN.md 4.1.
class Mesh {
public:
  struct Atom {
    std::string name;
    int axis;
    int64_t size, stride; // stride: between neighbours, in ranks
  };

  Mesh() = default;
  /// Nothing, with `error` set, unless `ep` is an innermost run and the cuts
  /// nest.
  static std::optional<Mesh> make(const MeshShape &shape, std::string &error);

  const MeshShape &shape() const { return sizes; }
  int64_t ranks() const { return sizes.ranks(); }
  const std::vector<Atom> &atoms() const { return list; } // outermost first

  /// The atoms of an axis (`tp`), an atom (`tp.1`) or a view: `ep`, `edp` (what
  /// ep leaves of dps, cp, tp), `data` (dpr, dps), `fsdp` (dps, cp), `kv`.
  std::optional<MeshAxes> axes(std::string_view name) const;
  /// The shortest list of axes and atoms that make up the set, outermost first.
  std::vector<std::string> names(MeshAxes axes) const;
  /// The same between braces: "{cp, tp}".
  std::string describe(MeshAxes axes) const;

  /// Ranks of one group over these axes.
  int64_t size(MeshAxes axes) const;
  /// The number of a rank within its group: mixed radix, innermost last.
  int64_t coordinate(int64_t rank, MeshAxes axes) const;
  /// The group that holds the rank, in order of coordinates.
  std::vector<int64_t> group(int64_t rank, MeshAxes axes) const;
  /// Every group, by its first rank.
  std::vector<std::vector<int64_t>> groups(MeshAxes axes) const;

  /// Whether no atom of `rest` lies inside of (is more inner than) one of
  /// `inner`: gathering `inner` of a dimension that is split over both then
  /// gives contiguous pieces.
  static bool isInner(MeshAxes inner, MeshAxes rest) {
    return inner == 0 || rest < (inner & (~inner + 1));
  }

private:
  MeshShape sizes;
  std::vector<Atom> list;
  // Atom i is bit i: more inner atoms are higher bits.
  MeshAxes perAxis[5] = {}, epAxes = 0, kvAxes = 0;
};

/// The sizes of a model that a mesh has to divide; 0: the model has no such.
struct MeshLimits {
  int64_t queryHeads = 0, kvHeads = 0; // full attention
  int64_t keyHeads = 0, valueHeads = 0; // gated delta rule
  int64_t ffn = 0;                      // of the dense or shared block
  int64_t experts = 0;
  int64_t vocab = 0;
  int64_t rowTokens = 0; // token slots of one row
};

/// Why the model cannot be split so, as one sentence that names the rule, what
/// was found and what was expected; empty if it can.
std::string checkMesh(const MeshShape &shape, const MeshLimits &limits);

/// `checkMesh` and, after a refusal, the nearest meshes of as many ranks that
/// the model can be split over.
std::string explainMesh(const MeshShape &shape, const MeshLimits &limits);

/// Every mesh of so many ranks that `checkMesh` accepts, pp = 1, in a fixed
/// order: data parallel first.
std::vector<MeshShape> legalMeshes(int64_t ranks, const MeshLimits &limits);

/// The shape with `kv` set to what the model's key/value heads allow.
MeshShape withKvCut(MeshShape shape, const MeshLimits &limits);

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEMA_MESH_H
