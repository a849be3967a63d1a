#ifndef QWEN35_RUNTIME_NCCL_NCCL_API_H
#define QWEN35_RUNTIME_NCCL_NCCL_API_H

/// What this runtime uses of libnccl.so.2, declared here: neither its header
/// nor the library is needed to build. Values and layouts are those of nccl.h;
/// test/unit/comm compares them with it where it is installed.
///
/// The list at the end names every function that returns a result, as
///
///     X(member, "exported symbol", (parameter types))
///
/// A replacement of the library (test/support/fake_nccl) defines these symbols
/// with C linkage.

#include "runtime/cuda/driver_api.h"

#include <cstddef>

namespace qwen35::nccl {

using Result = int; // ncclResult_t
using Comm = struct CommOpaque *;

/// ncclUniqueId
struct UniqueId {
  char internal[128];
};

// ncclResult_t
constexpr Result kSuccess = 0;
constexpr Result kUnhandledCudaError = 1;
constexpr Result kSystemError = 2;
constexpr Result kInternalError = 3;
constexpr Result kInvalidArgument = 4;
constexpr Result kInvalidUsage = 5;
constexpr Result kRemoteError = 6;
constexpr Result kInProgress = 7;

// ncclDataType_t
constexpr int kUint8 = 1;
constexpr int kInt32 = 2;
constexpr int kInt64 = 4;
constexpr int kFloat32 = 7;
constexpr int kFloat64 = 8;
constexpr int kBfloat16 = 9;

// ncclRedOp_t
constexpr int kSum = 0;
constexpr int kMax = 2;
constexpr int kMin = 3;

constexpr int kSplitNoColor = -1;

} // namespace qwen35::nccl

#define QWEN35_NCCL_FUNCTIONS(X)                                               \
  X(getVersion, "ncclGetVersion", (int *version))                              \
  X(getUniqueId, "ncclGetUniqueId", (::qwen35::nccl::UniqueId * id))           \
  X(commInitRank, "ncclCommInitRank",                                          \
    (::qwen35::nccl::Comm * comm, int ranks, ::qwen35::nccl::UniqueId id,      \
     int rank))                                                                \
  X(commSplit, "ncclCommSplit",                                                \
    (::qwen35::nccl::Comm comm, int color, int key,                            \
     ::qwen35::nccl::Comm *result, void *config))                              \
  X(commDestroy, "ncclCommDestroy", (::qwen35::nccl::Comm comm))               \
  X(commAbort, "ncclCommAbort", (::qwen35::nccl::Comm comm))                   \
  X(commGetAsyncError, "ncclCommGetAsyncError",                                \
    (::qwen35::nccl::Comm comm, ::qwen35::nccl::Result * error))               \
  X(allGather, "ncclAllGather",                                                \
    (const void *send, void *receive, size_t count, int type,                  \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(allReduce, "ncclAllReduce",                                                \
    (const void *send, void *receive, size_t count, int type, int reduction,   \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(reduceScatter, "ncclReduceScatter",                                        \
    (const void *send, void *receive, size_t count, int type, int reduction,   \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(broadcast, "ncclBroadcast",                                                \
    (const void *send, void *receive, size_t count, int type, int root,        \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(send, "ncclSend",                                                          \
    (const void *send, size_t count, int type, int peer,                       \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(receive, "ncclRecv",                                                       \
    (void *receive, size_t count, int type, int peer,                          \
     ::qwen35::nccl::Comm comm, ::qwen35::cuda::Stream stream))                \
  X(groupStart, "ncclGroupStart", ())                                          \
  X(groupEnd, "ncclGroupEnd", ())

#endif // QWEN35_RUNTIME_NCCL_NCCL_API_H
