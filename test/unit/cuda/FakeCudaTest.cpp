// The driver without a GPU (test/support/fake_cuda) does what the runtime may
// rely on, and no more.

#include "codegen/cuda/Kernel.h"
#include "codegen/emulated/HostCompiler.h"
#include "runtime/cuda/driver_api.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <numeric>
#include <vector>

namespace qwen35::cuda {
namespace {

/// Every function of the runtime's tables.
struct Library {
#define X(member, symbol, parameters) Result(*member) parameters = nullptr;
  QWEN35_CUDA_DRIVER_FUNCTIONS(X)
#undef X
#define X(member, symbol, parameters) BlasStatus(*member##Blas) parameters = nullptr;
  QWEN35_CUBLASLT_FUNCTIONS(X)
#undef X

  Library() {
    void *library = dlopen(QWEN35_FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
#define X(member, symbol, parameters)                                          \
  member = reinterpret_cast<decltype(member)>(dlsym(library, symbol));         \
  EXPECT_NE(member, nullptr) << symbol;
    QWEN35_CUDA_DRIVER_FUNCTIONS(X)
#undef X
#define X(member, symbol, parameters)                                          \
  member##Blas =                                                               \
      reinterpret_cast<decltype(member##Blas)>(dlsym(library, symbol));        \
  EXPECT_NE(member##Blas, nullptr) << symbol;
    QWEN35_CUBLASLT_FUNCTIONS(X)
#undef X
    EXPECT_NE(dlsym(library, "cublasLtGetVersion"), nullptr);
    EXPECT_NE(dlsym(library, "cublasLtGetStatusString"), nullptr);
  }
};

const Library &api() {
  static Library library;
  return library;
}

#define OK(call) ASSERT_EQ(api().call, kSuccess)

class FakeCudaTest : public ::testing::Test {
protected:
  void SetUp() override {
    OK(init(0));
    OK(primaryCtxRetain(&context, 0));
    OK(ctxSetCurrent(context));
    OK(streamCreate(&stream, kStreamNonBlocking));
  }
  void TearDown() override {
    for (DevicePtr buffer : buffers)
      OK(memFree(buffer));
    for (void *buffer : pinned)
      OK(memFreeHost(buffer));
    OK(streamDestroy(stream));
    OK(primaryCtxRelease(0));
  }

  DevicePtr device(size_t floats) {
    DevicePtr result = 0;
    EXPECT_EQ(api().memAlloc(&result, floats * 4), kSuccess);
    buffers.push_back(result);
    return result;
  }
  float *host(size_t floats) {
    void *result = nullptr;
    EXPECT_EQ(api().memHostAlloc(&result, floats * 4, 0), kSuccess);
    pinned.push_back(result);
    return static_cast<float *>(result);
  }
  std::vector<float> read(DevicePtr from, size_t floats) {
    std::vector<float> result(floats);
    EXPECT_EQ(api().memcpyDtoHAsync(result.data(), from, floats * 4, stream),
              kSuccess);
    return result;
  }
  void write(DevicePtr to, const std::vector<float> &values) {
    OK(memcpyHtoDAsync(to, values.data(), values.size() * 4, stream));
  }

  /// out[i] = 2 in[i] + 1 of 64 elements; symbol "twice".
  void load() {
    auto image = codegen::compileForHost(
        "#include \"q35/base.cuh\"\nusing namespace q35;\nextern \"C\" "
        "__global__ void twice(const float *in, float *out) {\n"
        "  shared_memory()[0] = 1;\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  out[i] = 2 * in[i] + 1;\n}\n" +
            codegen::cuda::printLauncher("twice", {"const float *", "float *"}),
        "twice");
    ASSERT_TRUE(static_cast<bool>(image)) << llvm::toString(image.takeError());
    OK(moduleLoadData(&module, image->data()));
    OK(moduleGetFunction(&function, module, "twice"));
    EXPECT_EQ(api().moduleGetFunction(&function, module, "thrice"),
              kErrorNotFound);
  }
  Result launch(DevicePtr in, DevicePtr out, unsigned shared = 16) {
    void *arguments[] = {&in, &out};
    LaunchConfig config = {2, 1, 1, 32, 1, 1, shared, stream, nullptr, 0};
    return api().launchKernelEx(&config, function, arguments, nullptr);
  }

  Context context = nullptr;
  Stream stream = nullptr;
  Module module = nullptr;
  Function function = nullptr;
  std::vector<DevicePtr> buffers;
  std::vector<void *> pinned;
};

std::vector<float> iota(float first) {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_F(FakeCudaTest, KernelsRunWhenTheyAreWaitedFor) {
  load();
  DevicePtr in = device(64), out = device(64);
  float *result = host(64);
  write(in, iota(0));
  OK(memsetD8Async(out, 0, 256, stream));
  ASSERT_EQ(launch(in, out), kSuccess);
  OK(memcpyDtoHAsync(result, out, 256, stream));
  EXPECT_TRUE(std::isnan(result[5])) << "read before it was waited for";
  OK(streamSynchronize(stream));
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(result[i], static_cast<float>(2 * i + 1));
  OK(moduleUnload(module));
}

TEST_F(FakeCudaTest, PinnedMemoryIsReadLateAndPageableMemoryAtOnce) {
  DevicePtr to = device(64), other = device(64);
  float *from = host(64);
  std::vector<float> pageable = iota(100);
  std::fill(from, from + 64, 1.0f);
  OK(memcpyHtoDAsync(to, from, 256, stream));
  write(other, pageable);
  std::fill(from, from + 64, 2.0f);
  pageable.assign(64, 0);
  EXPECT_EQ(read(to, 64)[0], 2.0f) << "reused too early, as the test did";
  EXPECT_EQ(read(other, 64), iota(100));
}

TEST_F(FakeCudaTest, EventsOrderStreams) {
  Stream second = nullptr;
  Event event = nullptr, end = nullptr;
  OK(streamCreate(&second, 0));
  OK(eventCreate(&event, kEventDefault));
  OK(eventCreate(&end, kEventDefault));
  DevicePtr buffer = device(64);
  OK(streamWaitEvent(stream, event, 0)); // never recorded: no wait
  OK(memsetD8Async(buffer, 1, 256, second));
  OK(eventRecord(event, second));
  OK(streamWaitEvent(stream, event, 0));
  OK(memsetD8Async(buffer, 2, 256, stream));
  OK(eventRecord(end, stream));
  float milliseconds = -1;
  EXPECT_EQ(api().eventElapsedTime(&milliseconds, event, end), kErrorNotReady);
  OK(eventSynchronize(end));
  OK(eventElapsedTime(&milliseconds, event, end));
  EXPECT_GE(milliseconds, 0);
  unsigned char bytes[4];
  OK(memcpyDtoHAsync(bytes, buffer, 4, second));
  EXPECT_EQ(bytes[3], 2);
  OK(eventDestroy(event));
  OK(eventDestroy(end));
  OK(streamDestroy(second));
}

TEST_F(FakeCudaTest, CapturedWorkRunsAtEveryLaunch) {
  load();
  DevicePtr in = device(64), out = device(64);
  write(in, iota(0));
  OK(streamSynchronize(stream));
  OK(streamBeginCapture(stream, kCaptureThreadLocal));
  EXPECT_EQ(launch(in, out), kErrorStreamCaptureUnsupported)
      << "a function that was never loaded";
  EXPECT_EQ(api().funcLoad(function), kErrorStreamCaptureUnsupported);
  DevicePtr never = 0;
  EXPECT_EQ(api().memAlloc(&never, 4), kErrorStreamCaptureUnsupported);
  Graph graph = nullptr;
  OK(streamEndCapture(stream, &graph));
  OK(graphDestroy(graph));

  OK(funcLoad(function));
  OK(streamBeginCapture(stream, kCaptureThreadLocal));
  ASSERT_EQ(launch(in, out), kSuccess);
  OK(memcpyDtoDAsync(in, out, 256, stream));
  OK(streamEndCapture(stream, &graph));
  size_t count = 0;
  OK(graphGetNodes(graph, nullptr, &count));
  ASSERT_EQ(count, 2u);
  GraphNode nodes[2];
  OK(graphGetNodes(graph, nodes, &count));
  int types[2];
  OK(graphNodeGetType(nodes[0], &types[0]));
  OK(graphNodeGetType(nodes[1], &types[1]));
  EXPECT_EQ(types[0], kNodeKernel);
  EXPECT_EQ(types[1], kNodeMemcpy);
  GraphExec exec = nullptr;
  OK(graphInstantiate(&exec, graph, 0));
  OK(graphDestroy(graph));
  EXPECT_EQ(read(in, 64), iota(0)) << "captured, not run";
  OK(graphUpload(exec, stream));
  OK(graphLaunch(exec, stream));
  OK(graphLaunch(exec, stream));
  EXPECT_EQ(read(in, 64)[10], 2 * (2 * 10 + 1) + 1);
  OK(graphExecDestroy(exec));

  OK(streamBeginCapture(stream, kCaptureThreadLocal));
  EXPECT_EQ(api().streamSynchronize(stream), kErrorStreamCaptureUnsupported);
  EXPECT_EQ(api().streamEndCapture(stream, &graph), 901) << "invalidated";
  OK(moduleUnload(module));
}

TEST_F(FakeCudaTest, BadCallsAreRefused) {
  load();
  DevicePtr in = device(64), out = device(64);
  EXPECT_EQ(launch(in, out, 60000), kErrorInvalidValue)
      << "over 48 KiB need an attribute";
  OK(funcSetAttribute(function, kFunctionMaxDynamicShared, 60000));
  EXPECT_EQ(launch(in, out, 60000), kSuccess);
  EXPECT_EQ(api().funcSetAttribute(function, kFunctionMaxDynamicShared, 300000),
            kErrorInvalidValue);
  EXPECT_EQ(api().memsetD8Async(in, 0, 257, stream), kErrorInvalidValue);
  EXPECT_EQ(api().memFree(in + 256), kErrorInvalidValue);
  DevicePtr huge = 0;
  EXPECT_EQ(api().memAlloc(&huge, size_t(9) << 30), kErrorOutOfMemory);
  Module other = nullptr;
  std::vector<char> noise(100, 'x');
  EXPECT_EQ(api().moduleLoadData(&other, noise.data()), kErrorInvalidImage);
  const char *text = nullptr;
  OK(getErrorString(kErrorOutOfMemory, &text));
  EXPECT_STREQ(text, "out of memory");
  OK(moduleUnload(module));
}

TEST_F(FakeCudaTest, DeviceMemoryIsOutOfReachOfTheHost) {
  DevicePtr buffer = device(64);
  EXPECT_DEATH(*reinterpret_cast<volatile float *>(buffer) = 1, "");
}

TEST(FakeCudaSettingsDeathTest, SettingsChangeTheDevice) {
  // In a child, which loads the library anew.
  auto child = [](const char *settings, auto test) {
    setenv("QWEN35_FAKE_CUDA", settings, 1);
    std::exit(test() ? 0 : 1);
  };
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(child("devices=0", [] { return api().init(0) == kErrorNoDevice; }),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(child("fail=cuDeviceGet:2:101,name=x y,leaks=1",
                    [] {
                      Device device;
                      char name[8];
                      Context context;
                      return api().deviceGet(&device, 0) == 0 &&
                             api().deviceGet(&device, 0) == 101 &&
                             api().deviceGet(&device, 0) == 0 &&
                             api().deviceGetName(name, 8, 0) == 0 &&
                             std::strcmp(name, "x y") == 0 &&
                             api().primaryCtxRetain(&context, 0) == 0;
                    }),
              ::testing::ExitedWithCode(0), "not given back: 1 contexts");
}

TEST_F(FakeCudaTest, ProductsAreColumnMajor) {
  // D [3][2] = A' B + D, A [4][3] with a leading dimension of 5, B [4][2].
  BlasHandle handle = nullptr;
  BlasDesc desc = nullptr;
  BlasLayout a = nullptr, b = nullptr, d = nullptr;
  OK(createBlas(&handle));
  OK(descCreateBlas(&desc, kCompute32F, kTypeF32));
  int32_t transposed = kOpT;
  OK(descSetAttributeBlas(desc, kDescTransA, &transposed, 4));
  OK(layoutCreateBlas(&a, kTypeF32, 4, 3, 5));
  OK(layoutCreateBlas(&b, kTypeF32, 4, 2, 4));
  OK(layoutCreateBlas(&d, kTypeF32, 3, 2, 3));
  BlasPreference preference = nullptr;
  OK(preferenceCreateBlas(&preference));
  uint64_t workspaceBytes = 8192;
  uint32_t align = 256;
  OK(preferenceSetAttributeBlas(preference, kPrefMaxWorkspace, &workspaceBytes, 8));
  OK(preferenceSetAttributeBlas(preference, kPrefAlignA, &align, 4));
  BlasHeuristic found[2];
  int count = 0;
  OK(algoGetHeuristicBlas(handle, desc, a, b, d, d, preference, 2, found, &count));
  ASSERT_EQ(count, 2);

  std::vector<float> av = iota(0), bv = iota(3), want(6);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) {
      for (int l = 0; l < 4; ++l)
        want[j * 3 + i] += av[i * 5 + l] * bv[j * 4 + l];
      want[j * 3 + i] += 1;
    }
  DevicePtr aAt = device(64), bAt = device(64), dAt = device(64),
            space = device(2048);
  write(aAt, av);
  write(bAt, bv);
  write(dAt, std::vector<float>(64, 1.0f));
  auto product = [&](DevicePtr from) {
    float one = 1;
    auto at = [](DevicePtr address) { return reinterpret_cast<void *>(address); };
    return api().matmulBlas(handle, desc, &one, at(from), a, at(bAt), b, &one,
                            at(dAt), d, at(dAt), d, &found[1].algo, at(space),
                            8192, stream);
  };
  OK(streamSynchronize(stream));
  OK(streamBeginCapture(stream, kCaptureThreadLocal));
  EXPECT_NE(product(aAt), kBlasSuccess) << "its first run, in a capture";
  Graph graph = nullptr;
  OK(streamEndCapture(stream, &graph));
  OK(graphDestroy(graph));
  EXPECT_EQ(product(aAt + 128), kBlasInvalidValue) << "not aligned as promised";
  EXPECT_EQ(product(aAt), kBlasSuccess);
  EXPECT_EQ(read(dAt, 6), want);
  EXPECT_TRUE(std::isnan(read(space, 1)[0]));

  BlasAlgo algo;
  uint32_t tile = 7, back = 0;
  size_t written = 0;
  EXPECT_NE(api().algoInitBlas(handle, kCompute32F, kTypeF32, kTypeF32, kTypeF32,
                               kTypeF32, kTypeF32, 1000, &algo),
            kBlasSuccess);
  OK(algoInitBlas(handle, kCompute32F, kTypeF32, kTypeF32, kTypeF32, kTypeF32,
                  kTypeF32, 5, &algo));
  OK(algoConfigSetAttributeBlas(&algo, kAlgoTile, &tile, 4));
  OK(algoConfigGetAttributeBlas(&algo, kAlgoTile, &back, 4, &written));
  EXPECT_EQ(back, 7u);
  BlasHeuristic checked;
  OK(algoCheckBlas(handle, desc, a, b, d, d, &algo, &checked));
  EXPECT_NE(api().algoCheckBlas(handle, desc, b, a, d, d, &algo, &checked),
            kBlasSuccess);
  OK(preferenceDestroyBlas(preference));
  for (BlasLayout layout : {a, b, d})
    OK(layoutDestroyBlas(layout));
  OK(descDestroyBlas(desc));
  OK(destroyBlas(handle));
}

} // namespace
} // namespace qwen35::cuda
