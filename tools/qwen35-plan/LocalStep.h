#ifndef QWEN35_TOOLS_QWEN35_PLAN_LOCALSTEP_H
#define QWEN35_TOOLS_QWEN35_PLAN_LOCALSTEP_H

#include "runtime/recipe/recipe.h"
#include "runtime/schema/mesh.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qwen35 {
struct ModelConfig;
}

namespace qwen35::plan {

/// One entry of a planned program.
struct PlannedOp {
  enum class Kind { Kernel, Collective, Fill, Wait };
  Kind kind = Kind::Kernel;
  std::string op;       ///< "linear"; of a collective "all_gather"
  std::string function; ///< the stage of the kernel; empty for a product
  std::string tag;      ///< "layers.3.mlp/swiglu"
  int layer = -1;       ///< of the tag; -1: none

  // What it does. Bytes of a kernel are of device memory.
  double flops = 0, bytes = 0;
  bool fp32 = false; ///< its products take f32 operands

  // Of a collective.
  std::vector<std::string> axes;
  int64_t ranks = 1;
  double fullBytes = 0; ///< of the whole tensors, over all ranks of a group
  int64_t sequence = 0;

  /// Entries before it in the program whose results it needs, or whose operands
  /// it overwrites.
  std::vector<int> after;
  double liveBytes = 0; ///< of arena act while it runs
};

/// What a rank has in memory, bytes: (what, bytes), fixed things first.
using MemoryTable = std::vector<std::pair<std::string, double>>;

/// What one rank does in a step, read off its plan (stage S6).
struct LocalStep {
  MeshShape mesh;
  int64_t zero = 0;
  int64_t rowTokens = 0, maxDocs = 0;
  std::map<std::string, std::vector<PlannedOp>> programs;
  MemoryTable memory; ///< adds up to totalBytes
  double totalBytes = 0;
  double stateBytes = 0;
  /// Kernels that the target does not have: counted by what they touch.
  std::vector<std::string> missingKernels;
  double compileSeconds = 0;

  /// Chunks of 64 tokens that follow each other in a row of one document.
  double chunks() const {
    return double(rowTokens) / 64 / (mesh.cp > 1 ? 2 * mesh.cp : 1);
  }
};

struct CompileOptions {
  Recipe recipe; ///< parallel is not read: see mesh
  MeshShape mesh;
  int64_t zero = 0;
  bool regather = false;
  bool overlap = true; ///< collectives are started early and awaited late
  std::string target = "sm_90a";
};

/// Compiles a step to stage S6, without code, for one rank of the mesh. `error`
/// is set, and nothing returned, where the compiler refuses.
std::unique_ptr<LocalStep> compileStep(const ModelConfig &config,
                                       const CompileOptions &options,
                                       std::string &error);

} // namespace qwen35::plan

#endif // QWEN35_TOOLS_QWEN35_PLAN_LOCALSTEP_H
