// NCCL, in the place of which libfake_nccl.so records what it is asked for;
// GPUs are those of libfake_cuda.so. Ranks are threads, each with a host world
// over TCP, or one process each.

#include "runtime/nccl/nccl_world.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/socket.h"
#include "runtime/comm/start.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"

#include "gmock/gmock.h"

#include <thread>

#include <dlfcn.h>

using namespace qwen35;
using namespace qwen35::comm;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// What the stub offers beside NCCL.
struct Fake {
  void (*reset)(const char *);
  const char *(*record)(int);
  int (*left)();

  Fake() {
    setenv("QWEN35_LIBNCCL", QWEN35_FAKE_NCCL_LIBRARY, 1);
    setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
    void *library = dlopen(QWEN35_FAKE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    reset = reinterpret_cast<void (*)(const char *)>(
        dlsym(library, "qwen35FakeNcclReset"));
    record = reinterpret_cast<const char *(*)(int)>(
        dlsym(library, "qwen35FakeNcclRecord"));
    left = reinterpret_cast<int (*)()>(dlsym(library, "qwen35FakeNcclLeft"));
  }
};

Fake &fake() {
  static Fake fake;
  return fake;
}

/// A rank's GPU: streams and one buffer.
struct Gpu {
  std::shared_ptr<cuda::GpuDevice> device;
  const cuda::Driver *driver = nullptr;
  cuda::Stream stream = nullptr;
  cuda::Memory memory;

  absl::Status open() {
    auto opened = cuda::GpuDevice::open("emulated");
    QWEN35_RETURN_IF_ERROR(opened.status());
    device = *opened;
    driver = &device->driver();
    QWEN35_RETURN_IF_ERROR(driver->check(
        driver->streamCreate(&stream, cuda::kStreamNonBlocking), "stream"));
    return memory.allocateDevice(*driver, 1 << 20, "test");
  }
  ~Gpu() {
    if (stream) {
      driver->streamSynchronize(stream);
      driver->streamDestroy(stream);
    }
  }
  char *at(int64_t bytes) const {
    return reinterpret_cast<char *>(memory.device()) + bytes;
  }
};

using Body = std::function<absl::Status(nccl::NcclWorld &, Gpu &)>;

std::vector<absl::Status> runRanks(int ranks, const char *settings,
                                   const Body &body, double limit = 30,
                                   const char *device = "") {
  fake().reset(settings);
  absl::StatusOr<Descriptor> socket = listenOn(0);
  int port = portOf(*socket);
  socket = Descriptor();
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      absl::Status &status = statuses[static_cast<size_t>(r)];
      Launch launch{ranks == 1 ? Launch::kSingle : Launch::kEnv,
                    r,
                    ranks,
                    0,
                    "",
                    "127.0.0.1",
                    port};
      StartOptions options;
      options.exitOnFailure = false;
      options.callSeconds = limit;
      absl::StatusOr<std::unique_ptr<World>> host = start(options, launch);
      Gpu gpu;
      status = host.status();
      if (status.ok())
        status = gpu.open();
      if (!status.ok())
        return;
      nccl::NcclOptions gpuOptions;
      gpuOptions.stream = gpu.stream;
      gpuOptions.use = [device = gpu.device] { return device->use(); };
      gpuOptions.device = device;
      gpuOptions.callSeconds = limit;
      gpuOptions.pollSeconds = 0.02;
      auto world = nccl::NcclWorld::make(**host, *gpu.driver, gpuOptions);
      status = world.status();
      if (status.ok())
        status = body(**world, gpu);
      if (status.ok())
        status = (*world)->finish();
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

std::string text(const absl::Status &status) {
  return std::string(status.message());
}

/// A collective of every kind, on the world and on two splits of four ranks.
absl::Status everything(nccl::NcclWorld &world, Gpu &gpu) {
  auto tp = world.split("tp", {{0, 1}, {2, 3}});
  QWEN35_RETURN_IF_ERROR(tp.status());
  auto dp = world.split("dp", {{2, 0}, {3, 1}});
  QWEN35_RETURN_IF_ERROR(dp.status());
  auto one = world.split("one", {{3}});
  QWEN35_RETURN_IF_ERROR(one.status());
  char *a = gpu.at(0), *b = gpu.at(1 << 19);
  QWEN35_RETURN_IF_ERROR((*tp)->allGather(a, b, 100, Type::kBf16));
  QWEN35_RETURN_IF_ERROR((*tp)->reduceScatter(a, b, 50, Type::kF32));
  QWEN35_RETURN_IF_ERROR((*dp)->allReduce(a, b, 7, Type::kI64));
  QWEN35_RETURN_IF_ERROR(
      (*dp)->allReduce(a, a, 1, Type::kF32, {Reduction::kMax}));
  QWEN35_RETURN_IF_ERROR(world.all().allToAll(a, b, 3, Type::kF64));
  QWEN35_RETURN_IF_ERROR(world.all().shift(a, b, 9, Type::kF32, 1));
  QWEN35_RETURN_IF_ERROR((*tp)->broadcast(a, 5, Type::kByte, 1));
  QWEN35_RETURN_IF_ERROR(world.all().barrier());
  return world.compareCalls();
}

TEST(NcclTest, CallsAreRecordedInOrderWithCommunicatorSizeAndStream) {
  std::vector<absl::Status> statuses = runRanks(4, "", everything);
  for (const absl::Status &status : statuses)
    EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(fake().left(), 0);
  EXPECT_EQ(std::string(fake().record(0)),
            "0 c0 ncclCommInitRank ranks=4\n"
            "0 c0 ncclCommSplit color=0 key=0\n"
            "0 c0 ncclCommSplit color=0 key=1\n"
            "0 c0 ncclCommSplit color=-1 key=0\n"
            "0 c1 ncclAllGather count=100 type=bf16 stream=s1\n"
            "0 c1 ncclReduceScatter count=50 type=f32 op=sum stream=s1\n"
            "0 c2 ncclAllReduce count=7 type=i64 op=sum stream=s1\n"
            "0 c2 ncclAllReduce count=1 type=f32 op=max stream=s1\n"
            "0 c0 ncclSend count=3 type=f64 peer=0 stream=s1 group\n"
            "0 c0 ncclRecv count=3 type=f64 peer=0 stream=s1 group\n"
            "0 c0 ncclSend count=3 type=f64 peer=1 stream=s1 group\n"
            "0 c0 ncclRecv count=3 type=f64 peer=1 stream=s1 group\n"
            "0 c0 ncclSend count=3 type=f64 peer=2 stream=s1 group\n"
            "0 c0 ncclRecv count=3 type=f64 peer=2 stream=s1 group\n"
            "0 c0 ncclSend count=3 type=f64 peer=3 stream=s1 group\n"
            "0 c0 ncclRecv count=3 type=f64 peer=3 stream=s1 group\n"
            "0 c0 ncclSend count=9 type=f32 peer=1 stream=s1 group\n"
            "0 c1 ncclBroadcast count=5 type=u8 root=1 stream=s1\n"
            "0 c0 ncclAllReduce count=1 type=i32 op=sum stream=s1\n"
            "0 c2 ncclCommDestroy\n"
            "0 c1 ncclCommDestroy\n"
            "0 c0 ncclCommDestroy\n");
  EXPECT_THAT(fake().record(3),
              AllOf(HasSubstr("3 c0 ncclCommSplit color=1 key=1\n"
                              "3 c0 ncclCommSplit color=1 key=0\n"
                              "3 c0 ncclCommSplit color=0 key=0\n"),
                    HasSubstr("3 c0 ncclRecv count=9 type=f32 peer=2 stream=s1 "
                              "group\n3 c1 ncclBroadcast")));
}

TEST(NcclTest, AWorldOfOneMovesDataAlsoFromAGraph) {
  std::vector<absl::Status> statuses =
      runRanks(1, "", [](nccl::NcclWorld &world, Gpu &gpu) -> absl::Status {
        const cuda::Driver &driver = *gpu.driver;
        cuda::Memory host;
        QWEN35_RETURN_IF_ERROR(host.allocateHost(driver, 64, "test"));
        auto *values = reinterpret_cast<float *>(host.host());
        for (int i = 0; i < 16; ++i)
          values[i] = static_cast<float>(i);
        driver.memcpyHtoDAsync(gpu.memory.device(), values, 64, gpu.stream);
        driver.streamSynchronize(gpu.stream);
        QWEN35_RETURN_IF_ERROR(driver.check(
            driver.streamBeginCapture(gpu.stream, cuda::kCaptureThreadLocal),
            "begin"));
        QWEN35_RETURN_IF_ERROR(
            world.all().allReduce(gpu.at(0), gpu.at(64), 16, Type::kF32));
        QWEN35_RETURN_IF_ERROR(
            world.all().allToAll(gpu.at(64), gpu.at(128), 16, Type::kF32));
        QWEN35_RETURN_IF_ERROR(world.all().sendReceive(
            0, gpu.at(128), 16, 0, gpu.at(192), 16, Type::kF32));
        cuda::Graph graph = nullptr;
        cuda::GraphExec exec = nullptr;
        QWEN35_RETURN_IF_ERROR(
            driver.check(driver.streamEndCapture(gpu.stream, &graph), "end"));
        size_t nodes = 0;
        driver.graphGetNodes(graph, nullptr, &nodes);
        EXPECT_EQ(nodes, 9u); // a copy and two breadcrumbs, three times
        QWEN35_RETURN_IF_ERROR(
            driver.check(driver.graphInstantiate(&exec, graph, 0), "make"));
        QWEN35_RETURN_IF_ERROR(world.compareCalls());
        for (int i = 0; i < 2; ++i)
          QWEN35_RETURN_IF_ERROR(
              driver.check(driver.graphLaunch(exec, gpu.stream), "launch"));
        std::memset(values, 0, 64);
        driver.memcpyDtoHAsync(values, gpu.memory.device() + 192, 64,
                               gpu.stream);
        driver.streamSynchronize(gpu.stream);
        for (int i = 0; i < 16; ++i)
          EXPECT_EQ(values[i], static_cast<float>(i));
        driver.graphExecDestroy(exec);
        driver.graphDestroy(graph);
        return absl::OkStatus();
      });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
}

TEST(NcclTest, SumsThatNcclWouldRoundAreRefused) {
  runRanks(1, "", [](nccl::NcclWorld &world, Gpu &gpu) -> absl::Status {
    for (const absl::Status &status :
         {world.all().allReduce(gpu.at(0), gpu.at(64), 4, Type::kBf16),
          world.all().allReduce(gpu.at(0), gpu.at(64), 4, Type::kF32,
                                {Reduction::kSum, Type::kBf16, {}}),
          world.all().allReduce(gpu.at(0), gpu.at(64), 4, Type::kF32,
                                {Reduction::kSum, {}, Type::kF64})}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(text(status), HasSubstr("NCCL adds in the type that it "
                                          "sends and rounds"));
    }
    EXPECT_TRUE(world.lastError().ok());
    return world.all().allReduce(gpu.at(0), gpu.at(64), 4, Type::kBf16,
                                 {Reduction::kMax});
  });
}

TEST(NcclTest, TwoRanksOnOneGpuAreRefused) {
  std::vector<absl::Status> statuses = runRanks(
      2, "", [](nccl::NcclWorld &, Gpu &) { return absl::OkStatus(); }, 30,
      "node7 GPU 3");
  for (const absl::Status &status : statuses)
    EXPECT_EQ(text(status),
              "ranks 0 and 1 are both on node7 GPU 3; NCCL needs a GPU for "
              "each rank (virtual ranks share one)");
}

TEST(NcclTest, DifferentCallsAreFoundBeforeTheyAreLaunched) {
  std::vector<absl::Status> statuses =
      runRanks(2, "", [](nccl::NcclWorld &world, Gpu &gpu) -> absl::Status {
        QWEN35_RETURN_IF_ERROR(world.all().allReduce(
            gpu.at(0), gpu.at(0), 8 + world.rank(), Type::kF32, {}, {"norm"}));
        return world.compareCalls();
      });
  for (const absl::Status &status : statuses)
    EXPECT_EQ(text(status),
              "ranks 0 and 1 have enqueued different collectives on "
              "communicator 'world': 1 calls, the last all_reduce 'norm' of 8 "
              "f32, and 1 calls, the last all_reduce 'norm' of 9 f32");
}

/// Collectives without end, waiting for the stream after each.
absl::Status steps(nccl::NcclWorld &world, Gpu &gpu) {
  auto tp = world.split("tp", {{0, 1}});
  QWEN35_RETURN_IF_ERROR(tp.status());
  for (int i = 0; i < 1000; ++i) {
    QWEN35_RETURN_IF_ERROR((*tp)->allReduce(gpu.at(0), gpu.at(0), 8, Type::kF32,
                                            {}, {"grads", 40}));
    gpu.driver->streamSynchronize(gpu.stream);
    QWEN35_RETURN_IF_ERROR(world.lastError());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return absl::OkStatus();
}

struct Fault {
  const char *name, *settings;
  std::vector<std::string> parts; // of both ranks' errors
};

class NcclFaults : public testing::TestWithParam<Fault> {};

TEST_P(NcclFaults, EndBothRanksAndAbortAllCommunicators) {
  const Fault &fault = GetParam();
  int before = fake().left();
  auto start = std::chrono::steady_clock::now();
  std::vector<absl::Status> statuses =
      runRanks(2, fault.settings, steps, /*limit=*/0.5);
  double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  EXPECT_LT(seconds, 10);
  for (const absl::Status &status : statuses) {
    EXPECT_FALSE(status.ok());
    for (const std::string &part : fault.parts)
      EXPECT_THAT(text(status), HasSubstr(part));
  }
  for (int i = 0; i < 100 && fake().left() != before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(fake().left(), before) << fake().record(0) << fake().record(1);
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, NcclFaults,
    testing::Values(
        Fault{"CallFails",
              "rank=1,fail=ncclAllReduce:3:3,abort=together",
              {"rank 1: ncclAllReduce: internal error (3)"}},
        Fault{"AsyncError",
              "rank=1,async=2:6,abort=together",
              {"rank 1: NCCL reports of communicator 'tp': remote process "
               "exited or there was a network error (6)"}},
        Fault{"CallHangs",
              "rank=1,hang=ncclAllReduce:3,abort=together",
              {"all_reduce 'grads' of 8 f32 over 'tp'"}},
        Fault{"SplitHangs",
              "rank=1,hang=ncclCommSplit:1,abort=together",
              {"ncclCommSplit over 'tp'"}},
        Fault{"InitHangs",
              "rank=1,hang=ncclCommInitRank:1",
              {"ncclCommInitRank over 'world'"}},
        Fault{"InitFails",
              "rank=0,fail=ncclCommInitRank:1:2",
              {"rank 0: ncclCommInitRank: unhandled system error (2)"}},
        Fault{"InitFailsOnAnother",
              "rank=1,fail=ncclCommInitRank:1:3",
              {"rank 1: ncclCommInitRank: internal error (3)"}},
        Fault{"IdFails",
              "fail=ncclGetUniqueId:1:1",
              {"rank 0: ncclGetUniqueId: unhandled cuda error (1)"}}),
    [](const testing::TestParamInfo<Fault> &info) { return info.param.name; });

TEST(NcclTest, ARankThatFailsByItselfAbortsTheOthersCommunicators) {
  int before = fake().left();
  std::vector<absl::Status> statuses =
      runRanks(2, "abort=together",
               [](nccl::NcclWorld &world, Gpu &gpu) -> absl::Status {
                 auto tp = world.split("tp", {{0, 1}});
                 QWEN35_RETURN_IF_ERROR(tp.status());
                 if (world.rank() == 1) {
                   world.abort(absl::DataLossError("the corpus is gone"));
                   return absl::DataLossError("the corpus is gone");
                 }
                 return steps(world, gpu);
               });
  EXPECT_THAT(text(statuses[0]),
              HasSubstr("rank 1 failed: the corpus is gone"));
  EXPECT_EQ(fake().left(), before);
}

/// Rank 1's GPU is in a collective, and its host waits; rank 0 never calls.
std::vector<absl::Status> standStill(const char *settings) {
  return runRanks(
      2, settings,
      [](nccl::NcclWorld &world, Gpu &gpu) -> absl::Status {
        QWEN35_RETURN_IF_ERROR(world.split("tp", {{0, 1}}).status());
        QWEN35_RETURN_IF_ERROR(world.all().barrier({"start"}));
        gpu.driver->streamSynchronize(gpu.stream);
        if (world.rank() == 1)
          QWEN35_RETURN_IF_ERROR(world.all().allReduce(
              gpu.at(0), gpu.at(0), 8, Type::kF32, {}, {"grads", 40}));
        while (world.lastError().ok())
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return world.lastError();
      },
      0.5);
}

void expectStandstillNamed(const std::vector<absl::Status> &statuses) {
  for (const absl::Status &status : statuses)
    EXPECT_THAT(text(status),
                AllOf(HasSubstr("rank 0 (pid "),
                      HasSubstr(" did not come within 0.5 s to number 40, "
                                "all_reduce 'grads' of 8 f32 over 'world'"),
                      HasSubstr("its process lives, after number 0, barrier "
                                "'start' over 'world'")));
  // Both communicators of both ranks were asked to abort.
  for (int rank : {0, 1})
    for (const char *comm : {" c0 ncclCommAbort", " c1 ncclCommAbort"})
      EXPECT_THAT(fake().record(rank), HasSubstr(std::to_string(rank) + comm));
}

TEST(NcclTest, AGpuThatStandsStillInACollectiveIsNamed) {
  int before = fake().left();
  expectStandstillNamed(standStill("rank=1,reach=ncclAllReduce:2"));
  EXPECT_EQ(fake().left(), before);
}

// What is left of NCCL does not keep the ranks: ncclCommAbort is given up after
// 5 s. The last test, since its threads stay in the library.
TEST(NcclTest, RanksEndAlthoughNcclCommAbortHangs) {
  auto start = std::chrono::steady_clock::now();
  std::vector<absl::Status> statuses =
      standStill("rank=1,reach=ncclAllReduce:2,abort=never");
  double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  EXPECT_GT(seconds, 5); // else nothing hung
  EXPECT_LT(seconds, 14);
  expectStandstillNamed(statuses);
}

} // namespace
