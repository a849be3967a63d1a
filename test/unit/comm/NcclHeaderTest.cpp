// What runtime/nccl/nccl_api.h declares, against nccl.h.

#include "runtime/nccl/nccl_api.h"

#include <nccl.h>

#include "gtest/gtest.h"

#include <type_traits>

namespace qwen35::nccl {
namespace {

/// Parameters and results are alike: the same number, each of the same size and
/// of the same kind.
template <typename A, typename B> constexpr bool kAlike = false;
template <typename... A, typename... B>
constexpr bool kAlike<int (*)(A...), ncclResult_t (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return ((sizeof(A) == sizeof(B) &&
             std::is_pointer_v<A> == std::is_pointer_v<B> &&
             std::is_class_v<A> == std::is_class_v<B>)&&...);
}();

#define X(member, symbol, parameters)                                          \
  using member##_ours = Result(*) parameters;
QWEN35_NCCL_FUNCTIONS(X)
#undef X

#define SAME(member, function)                                                 \
  static_assert(kAlike<member##_ours, decltype(&function)>, #function)
SAME(getVersion, ncclGetVersion);
SAME(getUniqueId, ncclGetUniqueId);
SAME(commInitRank, ncclCommInitRank);
SAME(commSplit, ncclCommSplit);
SAME(commDestroy, ncclCommDestroy);
SAME(commAbort, ncclCommAbort);
SAME(commGetAsyncError, ncclCommGetAsyncError);
SAME(allGather, ncclAllGather);
SAME(allReduce, ncclAllReduce);
SAME(reduceScatter, ncclReduceScatter);
SAME(broadcast, ncclBroadcast);
SAME(send, ncclSend);
SAME(receive, ncclRecv);
SAME(groupStart, ncclGroupStart);
SAME(groupEnd, ncclGroupEnd);
#undef SAME

static_assert(!kAlike<int (*)(int), decltype(&ncclGetVersion)>);
static_assert(!kAlike<int (*)(int *, int), decltype(&ncclGetVersion)>);

TEST(NcclHeaderTest, ValuesAreThoseOfTheHeader) {
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(kSuccess, ncclSuccess);
  EXPECT_EQ(kUnhandledCudaError, ncclUnhandledCudaError);
  EXPECT_EQ(kSystemError, ncclSystemError);
  EXPECT_EQ(kInternalError, ncclInternalError);
  EXPECT_EQ(kInvalidArgument, ncclInvalidArgument);
  EXPECT_EQ(kInvalidUsage, ncclInvalidUsage);
  EXPECT_EQ(kRemoteError, ncclRemoteError);
  EXPECT_EQ(kInProgress, ncclInProgress);
  EXPECT_EQ(kUint8, ncclUint8);
  EXPECT_EQ(kInt32, ncclInt32);
  EXPECT_EQ(kInt64, ncclInt64);
  EXPECT_EQ(kFloat32, ncclFloat32);
  EXPECT_EQ(kFloat64, ncclFloat64);
  EXPECT_EQ(kBfloat16, ncclBfloat16);
  EXPECT_EQ(nccl::kSum, ncclSum);
  EXPECT_EQ(nccl::kMax, ncclMax);
  EXPECT_EQ(nccl::kMin, ncclMin);
  EXPECT_EQ(kSplitNoColor, NCCL_SPLIT_NOCOLOR);
}

} // namespace
} // namespace qwen35::nccl
