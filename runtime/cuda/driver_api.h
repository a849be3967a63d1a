#ifndef QWEN35_RUNTIME_CUDA_DRIVER_API_H
#define QWEN35_RUNTIME_CUDA_DRIVER_API_H

/// What this runtime uses of libcuda.so.1 and libcublasLt.so.13, declared here:
/// neither their headers nor the libraries are needed to build. Values and
/// layouts are those of cuda.h and cublasLt.h of CUDA 13.0.
///
/// The lists at the end name every function once, as
///
///     X(member, "exported symbol", (parameter types))
///
/// with the result cuda::Result or cuda::BlasStatus, both int. A replacement of
/// a library (test/support) defines these symbols with C linkage.

#include <cstddef>
#include <cstdint>

namespace qwen35::cuda {

using Result = int;     // CUresult
using BlasStatus = int; // cublasStatus_t
using Device = int;     // CUdevice
using DevicePtr = unsigned long long;
using Context = struct ContextOpaque *;
using Module = struct ModuleOpaque *;
using Function = struct FunctionOpaque *;
using Stream = struct StreamOpaque *;
using Event = struct EventOpaque *;
using Graph = struct GraphOpaque *;
using GraphExec = struct GraphExecOpaque *;
using GraphNode = struct GraphNodeOpaque *;

// CUresult
constexpr Result kSuccess = 0;
constexpr Result kErrorInvalidValue = 1;
constexpr Result kErrorOutOfMemory = 2;
constexpr Result kErrorNotInitialized = 3;
constexpr Result kErrorNoDevice = 100;
constexpr Result kErrorInvalidDevice = 101;
constexpr Result kErrorInvalidImage = 200;
constexpr Result kErrorNoBinaryForGpu = 209;
constexpr Result kErrorNotFound = 500;
constexpr Result kErrorNotReady = 600;
constexpr Result kErrorStreamCaptureUnsupported = 900;

// CUdevice_attribute
constexpr int kDeviceClockRate = 13; // kHz
constexpr int kDeviceMultiprocessors = 16;
constexpr int kDeviceCapabilityMajor = 75;
constexpr int kDeviceCapabilityMinor = 76;
constexpr int kDeviceSharedOptin = 97; // bytes a block may get

// CUfunction_attribute
constexpr int kFunctionMaxThreads = 0;
constexpr int kFunctionStaticShared = 1;
constexpr int kFunctionLocalBytes = 3;
constexpr int kFunctionRegisters = 4;
constexpr int kFunctionMaxDynamicShared = 8;
constexpr int kFunctionNonPortableCluster = 14;

// CUstream_flags, CUevent_flags, CUstreamCaptureMode
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDefault = 0;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;

// CUlaunchAttributeID
constexpr int kLaunchCluster = 4;            // value.cluster
constexpr int kLaunchProgrammaticStream = 6; // value.programmaticStream

// CUgraphNodeType
constexpr int kNodeKernel = 0;
constexpr int kNodeMemcpy = 1;
constexpr int kNodeMemset = 2;

/// CUlaunchAttribute
struct LaunchAttribute {
  int id;
  int pad;
  union {
    struct {
      unsigned x, y, z;
    } cluster;
    int programmaticStream; // 1: the kernel may start before its predecessor
    char bytes[64];         // has ended, and waits for it by itself
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

/// CUlaunchConfig
struct LaunchConfig {
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes; // dynamic
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56);

// cublasStatus_t, cudaDataType_t, cublasComputeType_t, cublasOperation_t
constexpr BlasStatus kBlasSuccess = 0;
constexpr BlasStatus kBlasInvalidValue = 7;
constexpr BlasStatus kBlasNotSupported = 15;
constexpr int kTypeF32 = 0;
constexpr int kTypeF16 = 2;
constexpr int kTypeBf16 = 14;
constexpr int kCompute32F = 68; // f32 products stay f32: no TF32
constexpr int kOpN = 0;
constexpr int kOpT = 1;

// cublasLtMatmulDescAttributes_t
constexpr int kDescTransA = 3; // int32
constexpr int kDescTransB = 4; // int32

// cublasLtMatmulPreferenceAttributes_t
constexpr int kPrefMaxWorkspace = 1;  // uint64
constexpr int kPrefReductionMask = 3; // uint32
constexpr int kPrefAlignA = 5;        // uint32, bytes; B, C, D follow
constexpr int kPrefAlignB = 6;
constexpr int kPrefAlignC = 7;
constexpr int kPrefAlignD = 8;

// cublasLtMatmulAlgoConfigAttributes_t
constexpr int kAlgoId = 0;           // int32, read only
constexpr int kAlgoTile = 1;         // uint32
constexpr int kAlgoSplitK = 2;       // int32
constexpr int kAlgoReduction = 3;    // uint32
constexpr int kAlgoSwizzle = 4;      // uint32
constexpr int kAlgoCustom = 5;       // uint32
constexpr int kAlgoStages = 6;       // uint32
constexpr int kAlgoInnerShape = 7;   // uint16
constexpr int kAlgoClusterShape = 8; // uint16

using BlasHandle = struct BlasHandleOpaque *;
using BlasDesc = struct BlasDescOpaque *;
using BlasLayout = struct BlasLayoutOpaque *;
using BlasPreference = struct BlasPreferenceOpaque *;

/// cublasLtMatmulAlgo_t
struct BlasAlgo {
  uint64_t data[8];
};

/// cublasLtMatmulHeuristicResult_t
struct BlasHeuristic {
  BlasAlgo algo;
  size_t workspaceSize;
  BlasStatus state;
  float wavesCount;
  int reserved[4];
};
static_assert(sizeof(BlasHeuristic) == 96);

/// CUDA_MEMCPY2D: `height` lines of `widthBytes`.
struct Copy2D {
  struct Side {
    size_t x = 0, y = 0; // bytes, lines
    int memoryType = 0;  // CUmemorytype
    const void *host = nullptr;
    DevicePtr device = 0;
    void *array = nullptr;
    size_t pitch = 0; // bytes from line to line
  } from, to;
  size_t widthBytes = 0, height = 0;
};
static_assert(sizeof(Copy2D) == 128);
constexpr int kMemoryDevice = 2; // CU_MEMORYTYPE_DEVICE

} // namespace qwen35::cuda

#define QWEN35_CUDA_DRIVER_FUNCTIONS(X)                                        \
  X(init, "cuInit", (unsigned flags))                                          \
  X(driverGetVersion, "cuDriverGetVersion", (int *version))                    \
  X(getErrorName, "cuGetErrorName",                                            \
    (::qwen35::cuda::Result error, const char **text))                         \
  X(getErrorString, "cuGetErrorString",                                        \
    (::qwen35::cuda::Result error, const char **text))                         \
  X(deviceGetCount, "cuDeviceGetCount", (int *count))                          \
  X(deviceGet, "cuDeviceGet", (::qwen35::cuda::Device * device, int ordinal))  \
  X(deviceGetName, "cuDeviceGetName",                                          \
    (char *name, int size, ::qwen35::cuda::Device device))                     \
  X(deviceGetAttribute, "cuDeviceGetAttribute",                                \
    (int *value, int attribute, ::qwen35::cuda::Device device))                \
  X(deviceTotalMem, "cuDeviceTotalMem_v2",                                     \
    (size_t * bytes, ::qwen35::cuda::Device device))                           \
  X(primaryCtxRetain, "cuDevicePrimaryCtxRetain",                              \
    (::qwen35::cuda::Context * context, ::qwen35::cuda::Device device))        \
  X(primaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",                         \
    (::qwen35::cuda::Device device))                                           \
  X(ctxSetCurrent, "cuCtxSetCurrent", (::qwen35::cuda::Context context))       \
  X(memGetInfo, "cuMemGetInfo_v2", (size_t * free, size_t * total))            \
  X(memAlloc, "cuMemAlloc_v2",                                                 \
    (::qwen35::cuda::DevicePtr * pointer, size_t bytes))                       \
  X(memFree, "cuMemFree_v2", (::qwen35::cuda::DevicePtr pointer))              \
  X(memHostAlloc, "cuMemHostAlloc",                                            \
    (void **pointer, size_t bytes, unsigned flags))                            \
  X(memFreeHost, "cuMemFreeHost", (void *pointer))                             \
  X(memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                   \
    (::qwen35::cuda::DevicePtr to, const void *from, size_t bytes,             \
     ::qwen35::cuda::Stream stream))                                           \
  X(memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                   \
    (void *to, ::qwen35::cuda::DevicePtr from, size_t bytes,                   \
     ::qwen35::cuda::Stream stream))                                           \
  X(memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                   \
    (::qwen35::cuda::DevicePtr to, ::qwen35::cuda::DevicePtr from,             \
     size_t bytes, ::qwen35::cuda::Stream stream))                             \
  X(memcpy2DAsync, "cuMemcpy2DAsync_v2",                                       \
    (const ::qwen35::cuda::Copy2D *copy, ::qwen35::cuda::Stream stream))       \
  X(memsetD8Async, "cuMemsetD8Async",                                          \
    (::qwen35::cuda::DevicePtr to, unsigned char value, size_t bytes,          \
     ::qwen35::cuda::Stream stream))                                           \
  X(moduleLoadData, "cuModuleLoadData",                                        \
    (::qwen35::cuda::Module * module, const void *image))                      \
  X(moduleUnload, "cuModuleUnload", (::qwen35::cuda::Module module))           \
  X(moduleGetFunction, "cuModuleGetFunction",                                  \
    (::qwen35::cuda::Function * function, ::qwen35::cuda::Module module,       \
     const char *name))                                                        \
  X(funcLoad, "cuFuncLoad", (::qwen35::cuda::Function function))               \
  X(funcGetAttribute, "cuFuncGetAttribute",                                    \
    (int *value, int attribute, ::qwen35::cuda::Function function))            \
  X(funcSetAttribute, "cuFuncSetAttribute",                                    \
    (::qwen35::cuda::Function function, int attribute, int value))             \
  X(launchKernelEx, "cuLaunchKernelEx",                                        \
    (const ::qwen35::cuda::LaunchConfig *config,                               \
     ::qwen35::cuda::Function function, void **arguments, void **extra))       \
  X(streamCreate, "cuStreamCreate",                                            \
    (::qwen35::cuda::Stream * stream, unsigned flags))                         \
  X(streamDestroy, "cuStreamDestroy_v2", (::qwen35::cuda::Stream stream))      \
  X(streamSynchronize, "cuStreamSynchronize", (::qwen35::cuda::Stream stream)) \
  X(streamWaitEvent, "cuStreamWaitEvent",                                      \
    (::qwen35::cuda::Stream stream, ::qwen35::cuda::Event event,               \
     unsigned flags))                                                          \
  X(streamBeginCapture, "cuStreamBeginCapture_v2",                             \
    (::qwen35::cuda::Stream stream, int mode))                                 \
  X(streamEndCapture, "cuStreamEndCapture",                                    \
    (::qwen35::cuda::Stream stream, ::qwen35::cuda::Graph * graph))            \
  X(eventCreate, "cuEventCreate",                                              \
    (::qwen35::cuda::Event * event, unsigned flags))                           \
  X(eventDestroy, "cuEventDestroy_v2", (::qwen35::cuda::Event event))          \
  X(eventRecord, "cuEventRecord",                                              \
    (::qwen35::cuda::Event event, ::qwen35::cuda::Stream stream))              \
  X(eventSynchronize, "cuEventSynchronize", (::qwen35::cuda::Event event))     \
  X(eventElapsedTime, "cuEventElapsedTime",                                    \
    (float *milliseconds, ::qwen35::cuda::Event start,                         \
     ::qwen35::cuda::Event end))                                               \
  X(graphGetNodes, "cuGraphGetNodes",                                          \
    (::qwen35::cuda::Graph graph, ::qwen35::cuda::GraphNode * nodes,           \
     size_t * count))                                                          \
  X(graphNodeGetType, "cuGraphNodeGetType",                                    \
    (::qwen35::cuda::GraphNode node, int *type))                               \
  X(graphInstantiate, "cuGraphInstantiateWithFlags",                           \
    (::qwen35::cuda::GraphExec * exec, ::qwen35::cuda::Graph graph,            \
     unsigned long long flags))                                                \
  X(graphUpload, "cuGraphUpload",                                              \
    (::qwen35::cuda::GraphExec exec, ::qwen35::cuda::Stream stream))           \
  X(graphLaunch, "cuGraphLaunch",                                              \
    (::qwen35::cuda::GraphExec exec, ::qwen35::cuda::Stream stream))           \
  X(graphExecDestroy, "cuGraphExecDestroy", (::qwen35::cuda::GraphExec exec))  \
  X(graphDestroy, "cuGraphDestroy", (::qwen35::cuda::Graph graph))

/// cublasLtGetVersion and cublasLtGetStatusString return other types than a
/// status and are in the table by hand.
#define QWEN35_CUBLASLT_FUNCTIONS(X)                                           \
  X(create, "cublasLtCreate", (::qwen35::cuda::BlasHandle * handle))           \
  X(destroy, "cublasLtDestroy", (::qwen35::cuda::BlasHandle handle))           \
  X(matmul, "cublasLtMatmul",                                                  \
    (::qwen35::cuda::BlasHandle handle, ::qwen35::cuda::BlasDesc desc,         \
     const void *alpha, const void *a, ::qwen35::cuda::BlasLayout aLayout,     \
     const void *b, ::qwen35::cuda::BlasLayout bLayout, const void *beta,      \
     const void *c, ::qwen35::cuda::BlasLayout cLayout, void *d,               \
     ::qwen35::cuda::BlasLayout dLayout, const ::qwen35::cuda::BlasAlgo *algo, \
     void *workspace, size_t workspaceBytes, ::qwen35::cuda::Stream stream))   \
  X(descCreate, "cublasLtMatmulDescCreate",                                    \
    (::qwen35::cuda::BlasDesc * desc, int computeType, int scaleType))         \
  X(descDestroy, "cublasLtMatmulDescDestroy", (::qwen35::cuda::BlasDesc desc)) \
  X(descSetAttribute, "cublasLtMatmulDescSetAttribute",                        \
    (::qwen35::cuda::BlasDesc desc, int attribute, const void *value,          \
     size_t bytes))                                                            \
  X(layoutCreate, "cublasLtMatrixLayoutCreate",                                \
    (::qwen35::cuda::BlasLayout * layout, int type, uint64_t rows,             \
     uint64_t columns, int64_t ld))                                            \
  X(layoutDestroy, "cublasLtMatrixLayoutDestroy",                              \
    (::qwen35::cuda::BlasLayout layout))                                       \
  X(preferenceCreate, "cublasLtMatmulPreferenceCreate",                        \
    (::qwen35::cuda::BlasPreference * preference))                             \
  X(preferenceDestroy, "cublasLtMatmulPreferenceDestroy",                      \
    (::qwen35::cuda::BlasPreference preference))                               \
  X(preferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute",            \
    (::qwen35::cuda::BlasPreference preference, int attribute,                 \
     const void *value, size_t bytes))                                         \
  X(algoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic",                        \
    (::qwen35::cuda::BlasHandle handle, ::qwen35::cuda::BlasDesc desc,         \
     ::qwen35::cuda::BlasLayout a, ::qwen35::cuda::BlasLayout b,               \
     ::qwen35::cuda::BlasLayout c, ::qwen35::cuda::BlasLayout d,               \
     ::qwen35::cuda::BlasPreference preference, int wanted,                    \
     ::qwen35::cuda::BlasHeuristic *results, int *count))                      \
  X(algoInit, "cublasLtMatmulAlgoInit",                                        \
    (::qwen35::cuda::BlasHandle handle, int computeType, int scaleType,        \
     int aType, int bType, int cType, int dType, int id,                       \
     ::qwen35::cuda::BlasAlgo *algo))                                          \
  X(algoCheck, "cublasLtMatmulAlgoCheck",                                      \
    (::qwen35::cuda::BlasHandle handle, ::qwen35::cuda::BlasDesc desc,         \
     ::qwen35::cuda::BlasLayout a, ::qwen35::cuda::BlasLayout b,               \
     ::qwen35::cuda::BlasLayout c, ::qwen35::cuda::BlasLayout d,               \
     const ::qwen35::cuda::BlasAlgo *algo,                                     \
     ::qwen35::cuda::BlasHeuristic *result))                                   \
  X(algoConfigSetAttribute, "cublasLtMatmulAlgoConfigSetAttribute",            \
    (::qwen35::cuda::BlasAlgo * algo, int attribute, const void *value,        \
     size_t bytes))                                                            \
  X(algoConfigGetAttribute, "cublasLtMatmulAlgoConfigGetAttribute",            \
    (const ::qwen35::cuda::BlasAlgo *algo, int attribute, void *value,         \
     size_t bytes, size_t *written))

#endif // QWEN35_RUNTIME_CUDA_DRIVER_API_H
