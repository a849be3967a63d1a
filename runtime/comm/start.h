#ifndef QWEN35_RUNTIME_COMM_START_H
#define QWEN35_RUNTIME_COMM_START_H

#include "runtime/comm/communicator.h"
#include "runtime/comm/environment.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qwen35::comm {

/// With which a process ends when the world has failed: another rank died,
/// stopped, failed or called something else. A launcher may start again from
/// the last checkpoint.
constexpr int kFailureExit = 75;

struct StartOptions {
  /// Names and values that all ranks have to agree on: the digest of the
  /// bundle, of the recipe.
  std::vector<std::pair<std::string, std::string>> agree;
  /// That the bundle is for; 0: any number.
  int ranks = 0;
  /// For all ranks to come together.
  double joinSeconds = 25;
  /// Without a sign of life before a rank counts as stopped. Signs come from a
  /// thread of their own: a rank that computes or saves gives them.
  double silenceSeconds = 10;
  /// That a rank may keep the others waiting in a collective.
  double callSeconds = 300;
  /// When the world fails, print one line to stderr, wait until the other ranks
  /// have done so (at most 5 s), and end the process with kFailureExit,
  /// whatever its threads do; calls that fail do not return. False: calls
  /// return the error.
  bool exitOnFailure = true;
  /// Instead of printing; on a thread of the world. With GPUs: aborts NCCL.
  std::function<void(const absl::Status &)> onFailure;
};

/// The world of a process that was started as `launch` says: alone, over MPI
/// (the plugin libqwen35-mpi.so beside the program or its folder's ../lib, or
/// what QWEN35_LIBMPI names), or over TCP.
///
/// Errors  those that all ranks get alike, within joinSeconds: ranks that did
///         not come, other world sizes, two processes with one rank, values
///         that differ. Unavailable if the plugin is missing.
absl::StatusOr<std::unique_ptr<World>> start(const StartOptions &options,
                                             const Launch &launch);

} // namespace qwen35::comm

#endif // QWEN35_RUNTIME_COMM_START_H
