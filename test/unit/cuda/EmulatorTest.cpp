// What the emulator of the device (codegen/device/q35/emulate.h) promises: it
// computes what a GPU does, and says so where a kernel is wrong.

#include "test/unit/cuda/HandWritten.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace qwen35::codegen::cuda {
namespace {

constexpr int kOrders[] = {0, 1, 2, 3, 4, 5};

TEST(EmulatorTest, EveryThreadOfEveryBlockRunsOnce) {
  HandWritten<int> kernel("int", R"(
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = at + int(gridDim.x) * 1000 + int(threadIdx.y + blockIdx.z) + int(blockDim.y);)");
  kernel.blocks(3).threads(40).compileForGpus();
  std::vector<int> want(120);
  std::iota(want.begin(), want.end(), 3001);
  for (int order : kOrders)
    EXPECT_EQ(kernel.run(120, order), want);
}

TEST(EmulatorTest, ShufflesMoveLanes) {
  for (int width : {32, 16, 4})
    for (int by : {0, 1, 3, 17}) {
      std::string arguments =
          std::to_string(by) + ", " + std::to_string(width) + ");\n";
      HandWritten<int> kernel("int", "int lane = threadIdx.x;\n"
          "out[lane] = __shfl_sync(~0u, lane, " + arguments +
          "out[lane + 32] = __shfl_up_sync(~0u, lane, " + arguments +
          "out[lane + 64] = __shfl_down_sync(~0u, lane, " + arguments +
          "out[lane + 96] = __shfl_xor_sync(~0u, lane, " + arguments);
      std::vector<int> want(128);
      for (int lane = 0; lane < 32; ++lane) {
        int first = lane / width * width, last = first + width - 1;
        want[lane] = first + by % width;
        want[lane + 32] = lane - by < first ? lane : lane - by;
        want[lane + 64] = lane + by > last ? lane : lane + by;
        want[lane + 96] = (lane ^ by) > last ? lane : lane ^ by;
      }
      for (int order : kOrders)
        EXPECT_EQ(kernel.run(128, order), want) << width << " " << by;
    }
}

TEST(EmulatorTest, ShufflesTakeWideTypesAndPartsOfWarps) {
  HandWritten<double> kernel("double", R"(
    int lane = threadIdx.x;
    if (lane < 8) {
      double value = __shfl_xor_sync(0xffu, lane + 1e-12, 1);
      long long wide = __shfl_sync(0xffu, (1ll << 40) + lane, 7);
      out[lane] = value + double(wide);
    } else {
      out[lane] = __shfl_sync(0xffffff00u, float(lane), 3); // not of this part
    })");
  std::vector<double> out = kernel.run(32);
  for (int lane = 0; lane < 8; ++lane)
    EXPECT_EQ(out[lane], (lane ^ 1) + 1e-12 + ((1ll << 40) + 7));
  for (int lane = 8; lane < 32; ++lane)
    EXPECT_TRUE(std::isnan(out[lane])) << "read a lane that did not take part";
}

TEST(EmulatorTest, VotesAndSumsSeeAllLanes) {
  HandWritten<unsigned> kernel("unsigned", R"(
    unsigned lane = threadIdx.x % 32, at = threadIdx.x * 8;
    out[at] = __ballot_sync(~0u, lane % 3 == 0);
    out[at + 1] = __any_sync(~0u, lane == 31) + 2 * __any_sync(~0u, lane == 32);
    out[at + 2] = __all_sync(~0u, lane < 32) + 2 * __all_sync(~0u, lane < 31);
    out[at + 3] = __reduce_add_sync(~0u, lane);
    out[at + 4] = __reduce_max_sync(~0u, lane ^ 5u) + 100 * __reduce_min_sync(~0u, lane + 1);
    out[at + 5] = __syncthreads_count(threadIdx.x < 40);
    out[at + 6] = __syncthreads_or(threadIdx.x == 63) + 2 * __syncthreads_or(false);
    out[at + 7] = __syncthreads_and(threadIdx.x < 64) + 2 * __syncthreads_and(threadIdx.x);)");
  kernel.threads(64).compileForGpus();
  unsigned thirds = 0;
  for (int lane = 0; lane < 32; lane += 3)
    thirds |= 1u << lane;
  for (int order : kOrders) {
    std::vector<unsigned> out = kernel.run(64 * 8, order);
    for (int t = 0; t < 64; ++t)
      EXPECT_EQ(std::vector<unsigned>(out.begin() + t * 8, out.begin() + t * 8 + 8),
                (std::vector<unsigned>{thirds, 1, 1, 496, 131, 40, 1, 1}));
  }
}

TEST(EmulatorTest, IntegersAreAtomic) {
  HandWritten<int> kernel("int", R"(
    if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = out[1] = 0;
    __syncthreads();
    atomicAdd(&out[0], 2);
    atomicMax(&out[1], int(threadIdx.x));)");
  EXPECT_EQ(kernel.threads(256).run(2), (std::vector<int>{512, 255}));
}

TEST(EmulatorTest, BlocksSumInAFixedOrder) {
  HandWritten<float> kernel("float", R"(
    __shared__ float scratch[8];
    float once = block_sum<256>(in[threadIdx.x % 64], scratch);
    out[threadIdx.x] = once + block_sum<256>(float(threadIdx.x), scratch);)");
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i)
    values[i] = std::sin(static_cast<float>(i));
  kernel.threads(256).in(values);
  std::vector<float> first = kernel.run(256);
  EXPECT_NEAR(first[0], 4 * std::accumulate(values.begin(), values.end(), 0.0) + 255 * 128, 1e-2);
  for (int order : kOrders)
    EXPECT_EQ(kernel.run(256, order), first);
}

//===----------------------------------------------------------------------===//
// Mistakes that show as other bits
//===----------------------------------------------------------------------===//

/// Thread t reads what the thread after it wrote.
std::string neighbor(const std::string &before, const std::string &after) {
  return R"(
    __shared__ int values[128];
    for (int round = 0; round < 3; ++round) {
      values[threadIdx.x] = int(threadIdx.x) + round * 1000;
      )" + before + R"(
      out[threadIdx.x + round * 128] = values[(threadIdx.x + 1) % 128];
      )" + after + R"(
    })";
}

TEST(EmulatorTest, MissingBarriersShowInAnotherOrder) {
  auto differs = [](const std::string &before, const std::string &after) {
    HandWritten<int> kernel("int", neighbor(before, after));
    kernel.threads(128);
    return kernel.run(384, 0) != kernel.run(384, 1);
  };
  EXPECT_FALSE(differs("__syncthreads();", "__syncthreads();"));
  EXPECT_TRUE(differs("", "__syncthreads();")) << "read before it was written";
  EXPECT_TRUE(differs("__syncthreads();", "")) << "written before it was read";
  EXPECT_TRUE(differs("__syncwarp();", "__syncwarp();")) << "of a warp alone";
}

TEST(EmulatorTest, WarpsNeedBarriersAmongTheirLanes) {
  auto differs = [](const std::string &barrier) {
    HandWritten<int> kernel("int", "__shared__ int v[32]; v[threadIdx.x] = 7 * threadIdx.x;" +
                                       barrier + "out[threadIdx.x] = v[threadIdx.x ^ 1];");
    return kernel.run(32, 0) != kernel.run(32, 1);
  };
  EXPECT_FALSE(differs("__syncwarp();"));
  EXPECT_TRUE(differs(""));
}

TEST(EmulatorTest, SharedMemoryStartsAsNothing) {
  HandWritten<float> kernel("float", R"(
    __shared__ float values[4];
    auto *dynamic = reinterpret_cast<float *>(shared_memory());
    out[blockIdx.x * 2] = values[3];
    out[blockIdx.x * 2 + 1] = dynamic[7];
    values[3] = dynamic[7] = 1;)");
  kernel.threads(1).blocks(2).shared(32);
  for (float value : kernel.run(4))
    EXPECT_TRUE(std::isnan(value));
  for (float value : kernel.run(4, 1))
    EXPECT_LT(std::fabs(value), 0.1) << "fmaxf would drop a NaN";
}

TEST(EmulatorTest, SharedMemoryIsAligned) {
  HandWritten<int> kernel("int", R"(
    alignas(128) __shared__ char first[3];
    __shared__ __align__(16) char second[3];
    out[0] = int(reinterpret_cast<unsigned long long>(shared_memory()) % 1024);
    out[1] = int(reinterpret_cast<unsigned long long>(first) % 128);
    out[2] = int(reinterpret_cast<unsigned long long>(second) % 16);)");
  kernel.threads(1).compileForGpus();
  for (int64_t bytes : {0, 1, 1024, 1025, 200000})
    EXPECT_EQ(kernel.shared(bytes).run(3), (std::vector<int>{0, 0, 0}));
}

TEST(EmulatorTest, CopiesLandWhenTheyAreWaitedFor) {
  auto body = [](const std::string &wait) {
    return R"(
    auto *tile = reinterpret_cast<float *>(shared_memory());
    cp_async16(tile + threadIdx.x * 4, in + threadIdx.x * 4, threadIdx.x < 12);
    cp_async_commit();
    cp_async16(tile + 64 + threadIdx.x * 4, in + threadIdx.x * 4, true);
    cp_async_commit();
    )" + wait + R"(
    __syncthreads();
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = tile[threadIdx.x * 4 + i];
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) out[64 + threadIdx.x * 4 + i] = tile[64 + threadIdx.x * 4 + i];)";
  };
  std::vector<float> values(64), want(128);
  std::iota(values.begin(), values.end(), 1.0f);
  for (int i = 0; i < 64; ++i) {
    want[i] = i < 48 ? values[i] : 0;
    want[i + 64] = values[i];
  }
  HandWritten<float> right("float", body("cp_async_wait<1>();"));
  right.threads(16).shared(512).in(values).compileForGpus();
  for (int order : kOrders)
    EXPECT_EQ(right.run(128, order), want);
  HandWritten<float> wrong("float", body("cp_async_wait<2>();"));
  wrong.threads(16).shared(512).in(values);
  EXPECT_NE(wrong.run(128, 0), want);
}

TEST(EmulatorTest, PollersWaitForOthers) {
  HandWritten<int> kernel("int", R"(
    __shared__ int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x != 63)
      emulated::wait_until("flag", emulated::Site::here(), [&] { return ready == 1; });
    else
      ready = 1;
    out[threadIdx.x] = ready;)");
  for (int order : kOrders)
    EXPECT_EQ(kernel.threads(64).run(64, order), std::vector<int>(64, 1));
}

//===----------------------------------------------------------------------===//
// Mistakes that abort
//===----------------------------------------------------------------------===//

void expectDeath(const std::string &body, const std::string &message,
                 const std::string &before = "") {
  HandWritten<float> kernel("float", body, before);
  kernel.threads(64).blocks(2).shared(4000);
  EXPECT_DEATH(kernel.run(128), message) << body;
}

TEST(EmulatorDeathTest, ThreadsThatWaitForever) {
  expectDeath("if (threadIdx.x == 5) return; __syncthreads();",
              "kernel k, block 0: threads wait for each other forever: "
              "thread 0 \\(and 62 more\\) waits at __syncthreads "
              "\\(kernel.cpp:[0-9]+\\), thread 5 has exited");
  expectDeath("if (threadIdx.x < 32) __syncthreads(); else __syncthreads_or(1);",
              "threads wait for each other forever: thread 0 \\(and 31 more\\) "
              "waits at __syncthreads .*, thread 32 \\(and 31 more\\) waits at "
              "__syncthreads_or");
  expectDeath("if (threadIdx.x != 33) out[threadIdx.x] = warp_sum(1.0f);",
              "forever: thread 0 \\(and 32 more\\) has exited, thread 32 \\(and "
              "30 more\\) waits at __shfl_xor_sync \\(base.cuh:[0-9]+\\)");
  expectDeath("if (threadIdx.x % 2) __syncwarp(); else __syncthreads();",
              "waits at __syncthreads .* waits at __syncwarp");
  expectDeath("emulated::wait_until(\"flag\", emulated::Site::here(), [] { "
              "return false; });",
              "thread 0 \\(and 63 more\\) waits at flag");
}

TEST(EmulatorDeathTest, LanesOutsideTheirMask) {
  expectDeath("__shfl_sync(0xfffffffeu, 1, 1);",
              "kernel k, block 0, thread 0: is not in the mask 0xfffffffe of "
              "its __shfl_sync \\(kernel.cpp:[0-9]+\\)");
  expectDeath("uint a[4] = {}, b[2] = {}; float c[4] = {}; if (threadIdx.x < 50) "
              "mma_bf16(c, a, b);",
              "waits at mma_bf16");
}

TEST(EmulatorDeathTest, AccessesOutsideOfSharedMemory) {
  expectDeath("__shared__ float s[8]; s[threadIdx.x] = 0;",
              "kernel k, block 0, thread 8: index 8 is outside of its array "
              "\\(kernel.cpp:[0-9]+\\)");
  expectDeath("if (threadIdx.x == 3) shared_memory()[4000] = 0;",
              "kernel k, block 0: byte 4000 of 4000 bytes of dynamic shared "
              "memory was written");
  expectDeath("if (threadIdx.x == 3) shared_memory()[5000] = 0;",
              "kernel k, block 0, thread 3: accesses byte 5000 of 4000 bytes of "
              "dynamic shared memory");
  expectDeath("if (threadIdx.x == 3) shared_memory()[-1] = 0;",
              "byte -1 of 4000 bytes of dynamic shared memory was written");
  expectDeath("cp_async16(shared_memory() + 3992, in, true);",
              "cp_async16 of .*, which is not in shared memory \\(kernel.cpp");
  expectDeath("uint r[4]; ldmatrix_x4(r, in);",
              "ldmatrix_x4 of .*, which is not in shared memory \\(kernel.cpp");
}

TEST(EmulatorDeathTest, AccessesOutsideOfBuffers) {
  expectDeath("out[0] = in[100 + threadIdx.x];",
              "kernel k, block 0, thread 0: accesses 0x[0-9a-f]+, byte "
              "400 of in, which has 256 \\(signal 11\\)");
  expectDeath("*reinterpret_cast<float *>(8) = 1;",
              "accesses 0x8, which is in no buffer");
}

TEST(EmulatorDeathTest, MisalignedAccesses) {
  expectDeath("float v[4]; load(v, in + threadIdx.x); out[0] = v[0];",
              "thread 1: misaligned access at 0x[0-9a-f]+ \\(base.cuh:[0-9]+\\)");
  expectDeath("cp_async16(shared_memory(), in + 1, true);",
              "cp_async16 from .*, which is not aligned");
}

TEST(EmulatorDeathTest, OtherEnds) {
  expectDeath("__trap();", "kernel k, block 0, thread 0: traps");
  expectDeath("out[0] = float(f(int(in[0])));", "overflows its stack of",
              "__attribute__((noinline)) int f(int n) { volatile int big[1000]; "
              "big[n] = n; return n == 1000000 ? 0 : f(n + 1 - (n & 1)) + "
              "big[n]; }\n");
  HandWritten<float> kernel("float", "");
  EXPECT_DEATH(kernel.shared(233000).run(1), "cannot have 233000 bytes of shared");
  EXPECT_DEATH(kernel.shared(0).threads(1025).run(1), "cannot have 1025 threads");
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

TEST(EmulatorTest, RoundsToBf16AsTheInstruction) {
  HandWritten<unsigned> kernel("unsigned", R"(
    out[threadIdx.x] = from_float<bf16>(in[threadIdx.x]).bits;
    out[threadIdx.x + 32] = pack_bf16(in[threadIdx.x], in[threadIdx.x] * 2);)");
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, 1.0039064f,
                               -3.0f, 3.4e38f, nan, -infinity, 1e-40f, 0.0f};
  std::vector<unsigned> want = {0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xC040,
                                0x7F80, 0x7FFF, 0xFF80, 0x0001, 0};
  kernel.threads(10).in(values);
  std::vector<unsigned> out = kernel.run(42);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(out[i], want[i]) << values[i];
  EXPECT_EQ(out[32], 0x40003F80u) << "the low half is the first";
}

TEST(EmulatorTest, Exp2FlushesSubnormals) {
  HandWritten<float> kernel("float", "out[threadIdx.x] = fast_exp2(in[threadIdx.x]);");
  kernel.threads(6).in({3.0f, -126.0f, -126.5f, 1e-40f, -std::numeric_limits<float>::infinity(), 200.0f});
  EXPECT_EQ(kernel.run(6), (std::vector<float>{8.0f, 0x1p-126f, 0.0f, 1.0f, 0.0f,
                                               std::numeric_limits<float>::infinity()}));
}

} // namespace
} // namespace qwen35::codegen::cuda
