// Runs on the GPU plan of the tiny bundle, on the driver of
// test/support/fake_cuda: the same bits as on the CPU, whoever wrote the
// checkpoint.
#include "runtime/checkpoint/json.h"
#include "test/unit/train/train_test_util.h"

#include <cstdlib>
#include <cstring>
#include <limits>

namespace qwen35::test {
namespace {

class CudaRunTest : public ::testing::Test {
protected:
  void SetUp() override {
    ::setenv("QWEN35_FAKE_CUDA", "name=emulated H200", 1);
    ::setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ::setenv("QWEN35_LIBCUBLASLT", QWEN35_FAKE_CUDA_LIBRARY, 1);
    ASSERT_TRUE(writeFile(tiny.folder.in("tiny.q35"),
                          tinyGpuBundle(TinyPlans::CpuAndGpu))
                    .ok());
  }

  RunOptions options(const std::string &target, int64_t steps,
                     const std::string &out) {
    RunOptions result = tiny.options(steps, out);
    result.target = target;
    return result;
  }

  TinyRun tiny;
};

TEST_F(CudaRunTest, TrainsToTheSameBitsAsTheCpu) {
  ASSERT_OK(tiny.run(options("cpu", 6, "cpu")));
  expectContains(tiny.output, "target  cpu x86-64, 1 thread");
  ASSERT_OK(tiny.run(options("cuda", 6, "cuda")));
  expectContains(tiny.output, "target  cuda emulated on emulated H200\n");
  EXPECT_EQ(tiny.state("cpu", 6), tiny.state("cuda", 6));
  RunOptions eager = options("cuda", 6, "eager");
  eager.eager = true;
  ASSERT_OK(tiny.run(eager));
  expectContains(tiny.output, "target  cuda emulated on emulated H200, eager\n");
  EXPECT_EQ(tiny.state("cpu", 6), tiny.state("eager", 6));
}

TEST_F(CudaRunTest, ResumesWhatTheOtherTargetSaved) {
  ASSERT_OK(tiny.run(options("cpu", 6, "whole")));
  RunOptions run = options("cpu", 2, "mixed");
  ASSERT_OK(tiny.run(run));
  for (auto [target, steps] : {std::pair("cuda", 4), std::pair("cpu", 6)}) {
    run = options(target, steps, "mixed");
    run.initSeed.reset();
    run.resume = true;
    ASSERT_OK(tiny.run(run));
  }
  EXPECT_EQ(tiny.state("whole", 6), tiny.state("mixed", 6));
}

TEST_F(CudaRunTest, ExportsWhatTheCpuExports) {
  for (const char *target : {"cpu", "cuda"}) {
    RunOptions run = options(target, 3, absl::StrCat("run-", target));
    run.exportHf = tiny.folder.in(absl::StrCat("hf-", target));
    run.evalLoss = true;
    ASSERT_OK(tiny.run(run));
    expectContains(tiny.output, "(reloaded from ");
  }
  EXPECT_EQ(readAll(tiny.folder.in("hf-cpu/model.safetensors")),
            readAll(tiny.folder.in("hf-cuda/model.safetensors")));
}

/// Data of a step are staged before it is known whether the one before is
/// committed; here none ever is.
TEST_F(CudaRunTest, StagesAgainWhatASkippedStepChanges) {
  MadeTensor w = makeTensor("model.w", ElementType::F32, {256});
  float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&w.bytes[4 * 'e'], &infinity, 4);
  ASSERT_OK(makeFolders(tiny.folder.in("hf")));
  ASSERT_OK(writeTensors(tiny.folder.in("hf/model.safetensors"), {w}));
  for (const char *target : {"cpu", "cuda"}) {
    RunOptions run = options(target, 30, target);
    run.initSeed.reset();
    run.weights = tiny.folder.in("hf");
    run.maxSkipped = 3;
    absl::Status status = tiny.run(run);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    expectContains(std::string(status.message()),
                   "3 steps in a row, up to step 3, had a gradient norm that "
                   "is not finite");
    EXPECT_EQ(countLines(tiny.output, "changed nothing"), 3);
  }
  EXPECT_EQ(tiny.state("cpu", 3), tiny.state("cuda", 3));
}

/// What a run says about the device, in its lines and in its records.
TEST_F(CudaRunTest, TellsSpeedMemoryAndLaunches) {
  ASSERT_OK(tiny.run(options("cuda", 3, "gpu")));
  expectContains(tiny.output,
                 "mfu     tokens/s x 4e-9 GFLOP of a token / 989.4 TFLOP/s, "
                 "the dense bf16 peak of emulated H200; ");
  EXPECT_EQ(countLines(tiny.output, " | mfu "), 3);
  EXPECT_EQ(countLines(tiny.output, "/8.0 GiB (0%, planned 0.00) | "), 3);
  EXPECT_EQ(countLines(tiny.output, " nodes for 14 launches of the plan "), 1);
  EXPECT_EQ(
      countLines(tiny.output, "memory  planned 0.00 GiB, actual 0.00 GiB ("),
      1);
  std::string metrics = readAll(tiny.folder.in("gpu/metrics.jsonl"));
  EXPECT_EQ(countLines(metrics, "\"mfu\":"), 3);
  EXPECT_EQ(countLines(metrics, "\"mfu\":null"), 0);
  EXPECT_EQ(countLines(metrics, "\"device_mem_planned_bytes\":"), 3);
  EXPECT_EQ(countLines(metrics, "\"launches\":14,"), 3);
  EXPECT_EQ(countLines(metrics, "\"graph_launches\":3"), 1);
  auto summary =
      parseJson(readAll(tiny.folder.in("gpu/summary.json")), "summary.json");
  ASSERT_OK(summary);
  EXPECT_EQ((*summary)["last_step"], 3);
  EXPECT_EQ((*summary)["device"]["peak_flops"], 989.4e12);
  EXPECT_EQ((*summary)["launches"], 14);
  EXPECT_EQ((*summary)["graph"]["captures"], 1);
  EXPECT_GE((*summary)["device_mem_actual_bytes"],
            (*summary)["device_mem_planned_bytes"]);
  // On the CPU nothing of that.
  ASSERT_OK(tiny.run(options("cpu", 3, "cpu")));
  EXPECT_EQ(countLines(tiny.output, "mfu"), 0);
  metrics = readAll(tiny.folder.in("cpu/metrics.jsonl"));
  EXPECT_EQ(countLines(metrics, "mfu"), 0);
  EXPECT_EQ(countLines(metrics, "device_mem"), 0);
}

/// A profile counts launch by launch, then captures; no bit depends on it.
TEST_F(CudaRunTest, ProfilesAgainstTheRoofline) {
  ASSERT_OK(tiny.run(options("cuda", 8, "plain")));
  RunOptions run = options("cuda", 8, "gpu");
  run.profile = true;
  ASSERT_OK(tiny.run(run));
  EXPECT_EQ(tiny.state("plain", 8), tiny.state("gpu", 8));
  // A warm-up, three measured, four captured.
  expectContains(tiny.output,
                 "profile of 3 steps launch by launch, figures per step; MB: "
                 "operands read and written once; bound: 989.4 TFLOP/s bf16 "
                 "and 4800 GB/s, theoretical, of emulated H200\n");
  expectContains(tiny.output, "sum of launches ");
  expectContains(tiny.output, "; captured step ");
  expectContains(tiny.output, "launch  14 per step, one by one");
  expectContains(tiny.output, " nodes for 14 launches of the plan ");
  std::string table = readAll(tiny.folder.in("gpu/profile.txt"));
  EXPECT_EQ(countLines(table, "memset "), 2); // as a class and as a kernel
  auto trace = parseJson(readAll(tiny.folder.in("gpu/trace.json")), "trace");
  ASSERT_OK(trace);
  const nlohmann::json &events = (*trace)["traceEvents"];
  ASSERT_EQ(events.size(), 2u + 14); // names of process and stream
  double end = 0;
  for (size_t i = 2; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["ph"], "X");
    EXPECT_GE(events[i]["ts"].get<double>() + 1e-3, end);
    end = events[i]["ts"].get<double>() + events[i]["dur"].get<double>();
    EXPECT_GT(events[i]["args"]["bytes"].get<double>(), 0);
  }
  EXPECT_EQ(events.back()["cat"], events.back()["args"]["op"]);
}

} // namespace
} // namespace qwen35::test
