// The CUDA side of Step on the driver of test/support/fake_cuda.
#include "runtime/api/step.h"

#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/tune.h"
#include "runtime/schema/gemm_table.h"
#include "runtime/schema/seq_table.h"
#include "test/unit/bundle/tiny_bundle.h"
#include "test/unit/bundle/tiny_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace qwen35 {
namespace {

/// Every test starts with the fake driver in place.
class CudaStepTest : public ::testing::Test {
protected:
  void SetUp() override {
    ::setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ::setenv("QWEN35_LIBCUBLASLT", QWEN35_FAKE_CUDA_LIBRARY, 1);
  }
};

struct Tiny {
  std::string file;
  std::unique_ptr<Step> step;
};

Tiny makeTiny(const StepOptions &options,
              TinyPlans plans = TinyPlans::CpuAndGpu,
              const std::function<void(bundle::Bundle &)> &change = nullptr) {
  Tiny tiny{tinyGpuBundle(plans, change), nullptr};
  auto bundle = BundleFile::parse(asBytes(tiny.file));
  EXPECT_TRUE(bundle.ok()) << bundle.status();
  auto step = Step::create(*bundle, options);
  EXPECT_TRUE(step.ok()) << step.status();
  tiny.step = *std::move(step);
  return tiny;
}

std::vector<float> get(Step &step, const std::string &name) {
  std::vector<float> values(kWords);
  EXPECT_TRUE(
      step.read(step.findBuffer(name).value(), 0,
                absl::MakeSpan(reinterpret_cast<uint8_t *>(values.data()),
                               values.size() * 4))
          .ok());
  return values;
}

void fillState(Step &step) {
  std::vector<float> w(kWords);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = 0.125f * float(i % 16);
  ASSERT_TRUE(
      step.write(step.findBuffer("w").value(), 0,
                 absl::MakeSpan(reinterpret_cast<const uint8_t *>(w.data()),
                                w.size() * 4))
          .ok());
  for (const char *name : {"w.m", "w.v"})
    ASSERT_TRUE(step.fillBuffer(step.findBuffer(name).value(), 0).ok());
}

/// Gives `how` the rows of a step.
template <typename How>
absl::Status withRows(Step &step, int rows, int seed, How how) {
  return how([&](int64_t row) {
    absl::Span<int32_t> ids = step.input("ids").value();
    absl::Span<int32_t> labels = step.input("labels").value();
    for (int t = 0; t < kTokens; ++t) {
      ids[t] = int32_t((t * 37 + row * 11 + seed * 5) % kWords);
      labels[t] = t % 7 == 3 ? -100 : int32_t((t * 5 + row + seed) % 9);
    }
    int64_t length = kTokens;
    EXPECT_TRUE(fillSeqTable(SeqTable{kTokens, 4}, &length, 1,
                             step.input("seq").value().data()));
    for (auto [name, value] :
         {std::pair("lr", 0.5f + float(seed)),
          std::pair("inv_count", 1.0f / float(rows * kTokens)),
          std::pair("bias_correction1", 1.0f),
          std::pair("bias_correction2", 1.0f)})
      EXPECT_TRUE(step.setScalar(name, value).ok());
    return absl::OkStatus();
  });
}

absl::Status train(Step &step, int rows, int seed) {
  return withRows(step, rows, seed,
                  [&](auto fill) { return step.runStep(rows, fill); });
}

absl::Status stage(Step &step, int rows, int seed) {
  return withRows(step, rows, seed,
                  [&](auto fill) { return step.stageStep(rows, fill); });
}

/// Everything that a few steps of changing sizes leave behind.
std::vector<float> trail(Step &step) {
  fillState(step);
  std::vector<float> all;
  for (int i = 0; i < 6; ++i) {
    absl::Status status = train(step, i % 2 ? 3 : 1, i);
    EXPECT_TRUE(status.ok()) << status;
    for (const char *name : {"loss", "grad_norm", "commit"})
      all.push_back(step.output(name).value());
  }
  for (const char *name : {"w", "w.m", "w.v", "w.grad"})
    for (float value : get(step, name))
      all.push_back(value);
  EXPECT_TRUE(step.run("eval").ok());
  all.push_back(step.output("loss").value());
  return all;
}

TEST_F(CudaStepTest, CapturedEagerAndCpuAgreeToTheBit) {
  Tiny cpu = makeTiny({.target = "cpu", .threads = 1});
  Tiny captured = makeTiny({.target = "cuda"});
  Tiny eager = makeTiny({.target = "auto", .eager = true});
  Tiny synced = makeTiny({.sync = true});
  Tiny poisoned = makeTiny({.poison = true});
  EXPECT_TRUE(cpu.step->hostMemory());
  EXPECT_FALSE(captured.step->hostMemory());
  EXPECT_EQ(captured.step->targetText(), "cuda emulated on emulated");
  std::vector<float> expected = trail(*cpu.step);
  EXPECT_EQ(trail(*captured.step), expected);
  EXPECT_EQ(trail(*eager.step), expected);
  EXPECT_EQ(trail(*synced.step), expected);
  EXPECT_EQ(trail(*poisoned.step), expected);
  EXPECT_EQ(captured.step->captures(), 2); // of one row and of three
  EXPECT_EQ(eager.step->captures(), 0);
}

TEST_F(CudaStepTest, TakesDataWhileAStepRuns) {
  Tiny whole = makeTiny({.target = "cuda"}),
       parts = makeTiny({.target = "cuda"});
  EXPECT_TRUE(parts.step->overlaps());
  EXPECT_FALSE(makeTiny({.target = "cuda", .eager = true}).step->overlaps());
  EXPECT_EQ(std::string(parts.step->launchStep().message()),
            "no step is staged");
  fillState(*whole.step);
  fillState(*parts.step);
  ASSERT_TRUE(stage(*parts.step, 1, 0).ok());
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(train(*whole.step, i % 2 ? 3 : 1, i).ok());
    ASSERT_TRUE(parts.step->launchStep().ok());
    // Data of the next step, at first wrong ones, in other numbers of rows.
    ASSERT_TRUE(stage(*parts.step, 3, 40 + i).ok());
    ASSERT_TRUE(stage(*parts.step, 1, 50 + i).ok());
    ASSERT_TRUE(stage(*parts.step, i % 2 ? 1 : 3, i + 1).ok());
    ASSERT_TRUE(parts.step->finishStep().ok());
    for (const char *name : {"loss", "grad_norm", "commit"})
      EXPECT_EQ(parts.step->output(name).value(),
                whole.step->output(name).value());
  }
  EXPECT_EQ(get(*parts.step, "w"), get(*whole.step, "w"));
}

TEST_F(CudaStepTest, CapturesOncePerNumberOfRows) {
  Tiny tiny = makeTiny({.target = "cuda"});
  fillState(*tiny.step);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(train(*tiny.step, 2, i).ok());
    EXPECT_EQ(tiny.step->captures(), 1);
  }
}

TEST_F(CudaStepTest, CountsLaunchesNodesAndBytes) {
  Tiny tiny = makeTiny({.target = "cuda"});
  fillState(*tiny.step);
  EXPECT_EQ(tiny.step->graph().nodes, 0);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(train(*tiny.step, 2, i).ok());
  StepGraph graph = tiny.step->graph();
  EXPECT_EQ(graph.captures, 1);
  EXPECT_EQ(graph.launches, 3);
  EXPECT_EQ(tiny.step->launchesPerStep(2), 2 + 3 + 6);
  EXPECT_EQ(graph.nodes, graph.kernels + graph.memsets + graph.copies);
  EXPECT_EQ(graph.kernels + graph.memsets, 2 + 3 + 6);
  EXPECT_GE(graph.copies, 2); // inputs of two microbatches
  EXPECT_GT(graph.seconds, 0);
  StepMemory memory = tiny.step->memory();
  EXPECT_GE(memory.device, memory.planned);
  EXPECT_LT(memory.device, memory.planned + (1 << 20));
  EXPECT_EQ(memory.deviceTotal, uint64_t{8} << 30);
}

TEST(DevicePeaksTest, AreThoseOfTheDataSheets) {
  using cuda::GpuDevice;
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA H200").flops, 989.4e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA H200").bandwidth, 4.8e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA H100 80GB HBM3").flops, 989.4e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA H100 PCIe").flops, 756e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA A100-SXM4-80GB").flops, 312e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA B200").flops, 2250e12);
  EXPECT_EQ(GpuDevice::peaksOf("NVIDIA H200 MIG 1g.18gb").flops, 0);
  EXPECT_EQ(GpuDevice::peaksOf("emulated").flops, 0);
}

TEST_F(CudaStepTest, ReadsAndWritesWithinBuffers) {
  Tiny tiny = makeTiny({.target = "cuda"});
  Step &step = *tiny.step;
  uint32_t w = step.findBuffer("w").value();
  std::vector<uint8_t> bytes = {1, 2, 3, 4}, found(4);
  ASSERT_TRUE(step.write(w, 8, bytes).ok());
  ASSERT_TRUE(step.read(w, 8, absl::MakeSpan(found)).ok());
  EXPECT_EQ(found, bytes);
  EXPECT_EQ(std::string(step.write(w, kWords * 4 - 3, bytes).message()),
            "4 bytes at offset 1021 of buffer 'w', which has 1024");
  EXPECT_TRUE(step.bytes(w).empty());
  EXPECT_EQ(std::string(step.buffer<float>("w").status().message()),
            "buffer 'w' is memory of the device: it is read and written, not "
            "looked at");
}

TEST_F(CudaStepTest, ProfilesEveryClass) {
  Tiny tiny = makeTiny({.target = "cuda", .profile = true});
  fillState(*tiny.step);
  ASSERT_TRUE(train(*tiny.step, 2, 0).ok());
  uint64_t calls = 0;
  for (const OpTime &time : tiny.step->profile()) {
    calls += time.calls;
    if (time.op == "update") {
      EXPECT_EQ(time.calls, 1u);
      EXPECT_EQ(time.flops, 100);
      EXPECT_EQ(time.bytes, 4 * kWords * 4 + 8);
    }
  }
  EXPECT_EQ(calls, 2u + 3 + 6); // begin, accumulate, finish
  uint64_t ofKernels = 0;
  for (const OpTime &time : tiny.step->kernelProfile()) {
    EXPECT_FALSE(time.symbol.empty());
    ofKernels += time.calls;
  }
  EXPECT_EQ(ofKernels, calls);
  EXPECT_EQ(tiny.step->trace().size(), calls);
  tiny.step->resetProfile();
  EXPECT_TRUE(tiny.step->profile().empty());
  EXPECT_TRUE(tiny.step->kernelProfile().empty());
  // Captured from here on.
  tiny.step->setProfiling(false);
  ASSERT_TRUE(train(*tiny.step, 2, 1).ok());
  EXPECT_EQ(tiny.step->captures(), 1);
  EXPECT_TRUE(tiny.step->profile().empty());
}

TEST_F(CudaStepTest, RefusesWhatDoesNotFit) {
  std::string file = tinyGpuBundle(TinyPlans::Gpu);
  auto bundle = BundleFile::parse(asBytes(file)).value();
  absl::Status status = Step::create(bundle, {.maxBytes = 100}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("but the limit is 100 B"), std::string::npos)
      << status;
}

TEST_F(CudaStepTest, SelectsAPlan) {
  std::string both = tinyGpuBundle(TinyPlans::CpuAndGpu),
              gpu = tinyGpuBundle(TinyPlans::Gpu), cpu = tinyBundle();
  auto kindOf = [](const std::string &file, const std::string &target) {
    auto plan = selectPlan(BundleFile::parse(asBytes(file)).value(), target);
    if (!plan.ok())
      return std::string(plan.status().message());
    EXPECT_EQ((*plan)->plans(), 1);
    return (*plan)->message().targets(0).kind();
  };
  EXPECT_EQ(kindOf(both, "auto"), "cuda");
  EXPECT_EQ(kindOf(both, "cuda"), "cuda");
  EXPECT_EQ(kindOf(both, "cpu"), "cpu");
  EXPECT_EQ(kindOf(gpu, "auto"), "cuda");
  EXPECT_EQ(kindOf(cpu, "auto"), "cpu");
  EXPECT_EQ(kindOf(cpu, "cuda"),
            "the bundle has no plan for cuda, it has cpu x86-64");
  EXPECT_EQ(kindOf(gpu, "cpu"),
            "the bundle has no plan for cpu, it has cuda emulated");
  EXPECT_EQ(kindOf(gpu, "gpu"), "the target 'gpu', expected auto, cpu or cuda");
  std::string other = tinyGpuBundle(TinyPlans::Gpu, [](bundle::Bundle &m) {
    m.mutable_targets(0)->set_arch("sm_100a");
  });
  EXPECT_EQ(kindOf(other, "auto"), "the bundle's kernels are for sm_100a, this "
                                   "machine has emulated (sm_90)");
}

TEST_F(CudaStepTest, SaysWhatIsMissingWithoutADriver) {
  ::setenv("QWEN35_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  std::string both = tinyGpuBundle(TinyPlans::CpuAndGpu),
              gpu = tinyGpuBundle(TinyPlans::Gpu);
  const std::string needs = "a GPU bundle needs the NVIDIA driver 580 or newer "
                            "(CUDA 13.0)";
  std::string why;
  auto plan =
      selectPlan(BundleFile::parse(asBytes(both)).value(), "auto", &why);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->message().targets(0).kind(), "cpu");
  EXPECT_NE(why.find("cannot load /nowhere/libcuda.so.1"), std::string::npos);
  EXPECT_NE(why.find(needs), std::string::npos) << why;
  absl::Status status =
      selectPlan(BundleFile::parse(asBytes(gpu)).value(), "auto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()), why);
  // A library that is there but no driver.
  ::setenv("QWEN35_LIBCUDA", "libm.so.6", 1);
  status = selectPlan(BundleFile::parse(asBytes(gpu)).value(), "cuda").status();
  EXPECT_NE(status.message().find("libm.so.6 has no cuInit, "),
            std::string::npos)
      << status;
}

TEST_F(CudaStepTest, SaysThatProductsNeedCublasLt) {
  for (auto [library, found] :
       {std::pair("/nowhere/libcublasLt.so.13", "cannot load /nowhere/"),
        std::pair("libm.so.6", "libm.so.6 has no cublasLtCreate, ")}) {
    ::setenv("QWEN35_LIBCUBLASLT", library, 1);
    absl::Status status = cuda::BlasLt::load().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    for (const char *part : {found, "cuBLASLt of CUDA 13", "libcublasLt.so.13",
                             "LD_LIBRARY_PATH", "QWEN35_LIBCUBLASLT"})
      EXPECT_NE(status.message().find(part), std::string::npos)
          << part << " in " << status;
  }
}

/// What a step on a device of these settings says, in a child: a process loads
/// the driver once.
void expectSays(const char *settings, const std::string &pattern) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::setenv("QWEN35_FAKE_CUDA", settings, 1);
        std::string file = tinyGpuBundle(TinyPlans::Gpu);
        absl::Status status =
            Step::create(BundleFile::parse(asBytes(file)).value(), {}).status();
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), pattern);
}

using CudaDeviceDeathTest = CudaStepTest;

TEST_F(CudaDeviceDeathTest, OldDriverIsNamedWithTheVersionItNeeds) {
  expectSays("version=12080", "UNAVAILABLE: .* is a driver for CUDA 12.8; a "
                              "GPU bundle needs the NVIDIA driver 580 or newer "
                              ".CUDA 13.0.");
}

TEST_F(CudaDeviceDeathTest, NoDevice) {
  expectSays("devices=0", "UNAVAILABLE: cuInit: .*is there a GPU, and may this "
                          "process use it");
}

TEST_F(CudaDeviceDeathTest, OtherArchitecture) {
  expectSays("name=NVIDIA A100,capability=80",
             "FAILED_PRECONDITION: the bundle's kernels are for emulated, this "
             "machine has NVIDIA A100 .sm_80.");
}

TEST_F(CudaDeviceDeathTest, OutOfMemoryNamesThePlan) {
  expectSays("memory=0", "RESOURCE_EXHAUSTED: the bundle's arenas need .* .*act "
                         ".*, but emulated has 0 B free");
  // Another process may take what was free a moment ago.
  expectSays("fail=cuMemAlloc_v2:1:2", "RESOURCE_EXHAUSTED: .*arena ");
}

// What was made before a call fails is given back, and nothing else.
TEST_F(CudaDeviceDeathTest, AnyCallOfTheStartMayFail) {
  for (const char *call :
       {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemAlloc_v2",
        "cuMemHostAlloc", "cuModuleLoadData", "cuModuleGetFunction",
        "cuFuncLoad"})
    expectSays(("fail=" + std::string(call) + ":1:999").c_str(), call);
}

/// Row-major products in all four orders against plain loops.
class GemmPlanTest : public CudaStepTest {
protected:
  void SetUp() override {
    CudaStepTest::SetUp();
    device = *cuda::GpuDevice::open("emulated");
    blas = *cuda::BlasLt::load();
    ASSERT_EQ(blas->create(&handle), cuda::kBlasSuccess);
    ASSERT_EQ(device->driver().streamCreate(&stream, 1), cuda::kSuccess);
  }
  void TearDown() override {
    blas->destroy(handle);
    device->driver().streamDestroy(stream);
  }

  cuda::Memory upload(const std::vector<float> &values) {
    cuda::Memory memory;
    const cuda::Driver &api = device->driver();
    EXPECT_TRUE(memory.allocateDevice(api, values.size() * 4, "x").ok());
    EXPECT_EQ(api.memcpyHtoDAsync(memory.device(), values.data(),
                                  values.size() * 4, stream),
              cuda::kSuccess);
    return memory;
  }

  std::shared_ptr<cuda::GpuDevice> device;
  const cuda::BlasLt *blas = nullptr;
  cuda::BlasHandle handle = nullptr;
  cuda::Stream stream = nullptr;
};

TEST_F(GemmPlanTest, RowMajorInEveryOrder) {
  const int64_t m = 5, n = 7, k = 3, pad = 2;
  for (bool transA : {false, true})
    for (bool transB : {false, true})
      for (bool accumulate : {false, true}) {
        bundle::Gemm gemm;
        gemm.set_m(m);
        gemm.set_n(n);
        gemm.set_k(k);
        gemm.set_trans_a(transA);
        gemm.set_trans_b(transB);
        gemm.set_lda((transA ? m : k) + pad);
        gemm.set_ldb((transB ? k : n) + pad);
        gemm.set_ldd(n + pad);
        gemm.set_a_type(bundle::F32);
        gemm.set_b_type(bundle::F32);
        gemm.set_d_type(bundle::F32);
        gemm.set_accumulate(accumulate);
        std::vector<float> a((transA ? k : m) * gemm.lda()),
            b((transB ? n : k) * gemm.ldb()), d(m * gemm.ldd());
        int seed = 0;
        for (auto *array : {&a, &b, &d})
          for (float &value : *array)
            value = float(++seed * 7 % 11) - 5;
        std::vector<float> expected = d, found(d.size());
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            float sum = accumulate ? d[i * gemm.ldd() + j] : 0;
            for (int64_t x = 0; x < k; ++x)
              sum += a[transA ? x * gemm.lda() + i : i * gemm.lda() + x] *
                     b[transB ? j * gemm.ldb() + x : x * gemm.ldb() + j];
            expected[i * gemm.ldd() + j] = sum;
          }
        cuda::Memory da = upload(a), db = upload(b), dd = upload(d);
        auto plan = cuda::GemmPlan::create(*blas, handle, gemm, {});
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_EQ((*plan)->source(), cuda::GemmPlan::Source::Heuristic);
        ASSERT_EQ(
            (*plan)->run(da.device(), db.device(), dd.device(), 0, stream),
            cuda::kBlasSuccess);
        const cuda::Driver &api = device->driver();
        ASSERT_EQ(api.memcpyDtoHAsync(found.data(), dd.device(),
                                      found.size() * 4, stream),
                  cuda::kSuccess);
        ASSERT_EQ(api.streamSynchronize(stream), cuda::kSuccess);
        EXPECT_EQ(found, expected) << transA << transB << accumulate;

        // The algorithm goes into a bundle and comes back.
        auto algo = (*plan)->describe((*plan)->algorithm());
        ASSERT_TRUE(algo.ok()) << algo.status();
        *gemm.mutable_algo() = *algo;
        auto tuned = cuda::GemmPlan::create(*blas, handle, gemm, {});
        ASSERT_TRUE(tuned.ok()) << tuned.status();
        EXPECT_EQ((*tuned)->source(), cuda::GemmPlan::Source::Bundle);
      }
}

// The operands of a product are not what the one before it left behind: its
// sums, taken for numbers of another type, hold NaN, and whatever is compared
// with NaN is refused.
TEST_F(CudaDeviceDeathTest, TuningTakesTheFastestForEveryProduct) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::setenv("QWEN35_FAKE_CUDA", "slow=2", 1);
        std::string folder = ::testing::TempDir() + "qwen35-tunes";
        std::ofstream(folder + ".q35") << tinyGpuBundle(
            TinyPlans::Gpu, [](bundle::Bundle &message) {
              for (int i = 0; i < 3; ++i) {
                bundle::Kernel *kernel = message.add_kernels();
                kernel->set_symbol("product" + std::to_string(i));
                kernel->set_op("matmul");
                kernel->set_args(3);
                bundle::Gemm &gemm = *kernel->mutable_gemm();
                gemm.set_m(64);
                gemm.set_n(48 + 16 * i);
                gemm.set_k(32);
                gemm.set_lda(32);
                gemm.set_ldb(gemm.n());
                gemm.set_ldd(gemm.n());
                gemm.set_a_type(bundle::BF16);
                gemm.set_b_type(bundle::BF16);
                gemm.set_d_type(bundle::F32);
                gemm.mutable_b()->set_arg(1);
                gemm.mutable_d()->set_arg(2);
              }
            });
        std::filesystem::remove(folder + ".txt");
        absl::Status status = cuda::tuneProducts(
            folder + ".q35", folder + ".txt", 1.5, stderr);
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        std::exit(3);
      },
      ::testing::ExitedWithCode(3),
      "n48,k32.*algorithm 3,.*\n.*n64,k32.*algorithm 3,.*\n"
      ".*n80,k32.*algorithm 3,.*\n.*OK");
}

// What --tune writes is read again, goes into a product, and is taken by the
// version of the library that chose it alone, on operands aligned as promised.
TEST_F(GemmPlanTest, TableOfTunedProducts) {
  bundle::Gemm gemm;
  gemm.set_m(4);
  gemm.set_n(8);
  gemm.set_k(16);
  gemm.set_trans_b(true);
  gemm.set_lda(16);
  gemm.set_ldb(16);
  gemm.set_ldd(8);
  gemm.set_a_type(bundle::BF16);
  gemm.set_b_type(bundle::BF16);
  gemm.set_d_type(bundle::F32);
  gemm.set_accumulate(true);
  EXPECT_EQ(GemmTable::product(gemm),
            "m4,n8,k16,nt,ld16/16/8,bf16*bf16>f32,add,ws0");
  auto plan = cuda::GemmPlan::create(*blas, handle, gemm, {16, 16, 16});
  ASSERT_TRUE(plan.ok()) << plan.status();
  auto algos = (*plan)->candidates(3);
  ASSERT_TRUE(algos.ok()) << algos.status();
  ASSERT_EQ(algos->size(), 3u);
  EXPECT_FALSE((*plan)->variants(algos->back()).empty());

  GemmTable table;
  GemmTable::Entry &entry = table.entries["sm_90a " + GemmTable::product(gemm)];
  entry.device = "emulated";
  entry.version = blas->getVersion();
  std::copy(std::begin(algos->back().data), std::end(algos->back().data),
            entry.words.begin());
  GemmTable again;
  ASSERT_EQ(again.parse(table.print()), "");
  EXPECT_EQ(again.print(), table.print());
  bundle::Gemm tuned = gemm;
  EXPECT_FALSE(again.apply("sm_80", tuned));
  ASSERT_TRUE(again.apply("sm_90a", tuned));
  auto source = [&](const bundle::Gemm &gemm, cuda::GemmAlignment alignment) {
    auto plan = cuda::GemmPlan::create(*blas, handle, gemm, alignment);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return (*plan)->source();
  };
  using Source = cuda::GemmPlan::Source;
  EXPECT_EQ(source(tuned, {}), Source::Bundle);
  EXPECT_EQ(source(tuned, {256, 8, 256}), Source::Heuristic);
  bundle::Gemm other = tuned;
  other.mutable_algo()->set_version(blas->getVersion() + 1);
  EXPECT_EQ(source(other, {}), Source::Heuristic);
  other = tuned;
  other.mutable_algo()->mutable_words()->RemoveLast();
  EXPECT_EQ(source(other, {}), Source::Heuristic);
  other = tuned;
  other.mutable_algo()->set_words(0, 1);
  EXPECT_EQ(source(other, {}), Source::Heuristic);

  EXPECT_EQ(again.parse("# only this\nsm_90a emulated 1 m4\n"),
            "line 2: expected architecture, device, version, product, "
            "algorithm and two times");
  EXPECT_EQ(again.parse("sm_90a emulated 1 m4 xy 1 2"),
            "line 1: expected an algorithm of 128 hex digits, found xy");
}

} // namespace
} // namespace qwen35
