#ifndef QWEN35_TOOLS_QWEN35_PLAN_RANKING_H
#define QWEN35_TOOLS_QWEN35_PLAN_RANKING_H

#include "tools/qwen35-plan/Predict.h"

#include "llvm/Support/raw_ostream.h"

namespace qwen35::plan {

/// A mesh as a ranking sees it.
struct RankedMesh {
  MeshShape shape;
  int64_t zero = 0;
  std::string remat = "none";
  /// Of closed forms, before anything is compiled: lower bounds of what a rank
  /// has in memory and of seconds, and the seconds by which meshes are tried.
  double leastBytes = 0, leastSeconds = 0, roughSeconds = 0;
  double tokens = 0; ///< of a microbatch that a rank has outside of a mixer
  /// Of its plans; 0 where it was not compiled.
  double bytes = 0, seconds = 0, exposed = 0;
  double activations = 0; ///< bytes
  bool fits = false;
  std::string limit = ""; ///< what decides its time, or why it was refused

  bool operator==(const RankedMesh &) const = default;
};

struct Ranking {
  int64_t rows = 0;     ///< of a step over all ranks
  int64_t legal = 0;    ///< meshes and zeros that the model and rows allow
  int64_t tooLarge = 0; ///< whose state alone does not fit
  int64_t compiled = 0;
  std::vector<RankedMesh>
      meshes;         ///< those compiled: fitting first, fastest first
  double seconds = 0; ///< that all this took
};

/// Bytes and seconds of a mesh by closed forms: state and the least
/// activations; products at the rate of dense ones, and collectives.
/// Source: DESIGN.md 5, 6 and 11.
void estimateMesh(const ModelConfig &config, const PlanRequest &request,
                  const Hardware &hardware, int64_t rows, RankedMesh &mesh);

/// Meshes of `request.gpus` ranks by predicted time of a step of equal rows.
///
/// The most promising `request.candidates` are compiled twice, with one and two
/// periods of the model's layers, and extended to all of them: what a period
/// adds is exact, what overlaps across periods is not. What a token of a layer
/// keeps in them tells which of the others cannot fit; where none does, the
/// next are tried.
///
/// Errors  `error` is set where no mesh is legal.
std::optional<Ranking> rankMeshes(const ModelConfig &config,
                                  const PlanRequest &request,
                                  const Hardware &hardware, std::string &error);

void printRanking(const ModelConfig &config, const PlanRequest &request,
                  const Hardware &hardware, const Ranking &ranking,
                  llvm::raw_ostream &out);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_RANKING_H
