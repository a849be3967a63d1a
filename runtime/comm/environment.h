#ifndef QWEN35_RUNTIME_COMM_ENVIRONMENT_H
#define QWEN35_RUNTIME_COMM_ENVIRONMENT_H

#include "absl/status/statusor.h"

#include <functional>
#include <string>

namespace qwen35::comm {

/// How this process was started among others.
struct Launch {
  enum Kind {
    kSingle, // alone
    kMpi,    // mpirun, or srun with PMI
    kEnv,    // torchrun, or by hand with its variables
  };
  Kind kind = kSingle;
  int rank = 0, size = 1;
  int localRank = 0; // among the processes of this machine; picks the GPU
  std::string from;  // the variables that said so
  std::string masterAddress; // of kEnv: where rank 0 listens
  int masterPort = 0;
};

/// Reads the environment through `get`, which returns null for a variable that
/// is not set. In this order: OMPI_COMM_WORLD_RANK and _SIZE (mpirun);
/// PMI_RANK and PMI_SIZE; PMIX_RANK with SLURM_NTASKS; RANK and WORLD_SIZE with
/// MASTER_ADDR, MASTER_PORT (torchrun; one port higher where its agent keeps
/// MASTER_PORT for itself, TORCHELASTIC_USE_AGENT_STORE=True). With none of
/// them, or a size of 1: alone.
///
/// Errors  InvalidArgument naming the variable, its value and what was
///         expected.
absl::StatusOr<Launch>
readEnvironment(const std::function<const char *(const char *)> &get);

/// Of this process.
absl::StatusOr<Launch> readEnvironment();

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_ENVIRONMENT_H
