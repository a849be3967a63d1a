#include "runtime/records/step_record.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

using namespace qwen35;

namespace {

StepRecord sample() {
  StepRecord record;
  record.step = 120;
  record.totalSteps = 2000;
  record.loss = 0.82431;
  record.lossTerms = {{"lm", 0.82431}};
  record.lr = 1.2e-5;
  record.gradNorm = 0.7123;
  record.realTokens = record.slots = 524288;
  record.stepSeconds = 6.0254;
  record.dataSeconds = 0.0102;
  record.etaSeconds = 11340;
  record.documents = 300;
  record.epoch = 1;
  return record;
}

} // namespace

TEST(StepRecordTest, LineHasTheFamiliarFields) {
  EXPECT_EQ(formatStepLine(sample()),
            "step 120/2000 | loss 0.8243 | lr 1.2e-5 | grad_norm 0.712 | tok/s "
            "87,013 | step 6.03 s (data 0.0102) | eta 3h09m");
}

TEST(StepRecordTest, LineShowsWhatAppliesAndOnlyThat) {
  StepRecord record = sample();
  record.lossTerms = {{"lm", 0.81}, {"aux", 0.01431}};
  record.realTokens = 262144;
  record.ranks = 4;
  record.flops = 228e12;
  record.peakFlops = 3956e12;
  record.memoryBytes = 3 << 29;
  record.memoryTotalBytes = int64_t{24} << 30;
  record.committed = false;
  EXPECT_EQ(formatStepLine(record),
            "step 120/2000 | loss 0.8243 (lm 0.8100, aux 0.0143) | lr 1.2e-5 | "
            "grad_norm 0.712 | skipped: gradient norm is not finite | tok/s "
            "43,506 (10,877/rank) (slots/s 87,013) | TFLOP/s/rank 57.0 | mfu "
            "5.8% | mem 1.50/24.0 GiB (6%) | step 6.03 s (data 0.0102) | eta "
            "3h09m");
  record.ranks = 1;
  record.flops = 57e9;
  record.memoryTotalBytes = 0;
  std::string line = formatStepLine(record);
  EXPECT_NE(line.find("| GFLOP/s 57.0 |"), std::string::npos) << line;
  EXPECT_NE(line.find("| mem 1.50 GiB |"), std::string::npos) << line;
}

TEST(StepRecordTest, ShowsTheMemoryOfTheDeviceOnAGpu) {
  StepRecord record = sample();
  record.memoryBytes = 3 << 29;
  record.onDevice = true;
  record.devicePlannedBytes = int64_t{30} << 30;
  record.deviceActualBytes = int64_t{61} << 29;
  record.deviceTotalBytes = int64_t{140} << 30;
  record.launches = 800;
  record.graphNodes = 812;
  record.graphCaptures = 1;
  record.graphLaunches = 120;
  record.flops = 4e14;
  std::string line = formatStepLine(record);
  EXPECT_NE(line.find(" | mem 30.50/140.0 GiB (22%, planned 30.00) | "),
            std::string::npos)
      << line;
  EXPECT_EQ(line.find("mfu"), std::string::npos) << line;
  auto object = nlohmann::json::parse(formatStepJson(record, 0));
  EXPECT_TRUE(object.at("mfu").is_null()); // of a device with no known peak
  EXPECT_EQ(object["memory_bytes"], 3 << 29);
  EXPECT_EQ(object["device_mem_planned_bytes"], int64_t{30} << 30);
  EXPECT_EQ(object["device_mem_actual_bytes"], int64_t{61} << 29);
  EXPECT_EQ(object["device_mem_total_bytes"], int64_t{140} << 30);
  EXPECT_EQ(object["launches"], 800);
  EXPECT_EQ(object["graph_nodes"], 812);
  EXPECT_EQ(object["graph_captures"], 1);
  EXPECT_EQ(object["graph_launches"], 120);
}

TEST(StepRecordTest, LineSurvivesWhatIsNotANumber) {
  StepRecord record = sample();
  record.loss = std::nan("");
  record.gradNorm = std::numeric_limits<double>::infinity();
  record.stepSeconds = 0;
  std::string line = formatStepLine(record);
  EXPECT_NE(line.find("loss nan"), std::string::npos);
  EXPECT_NE(line.find("grad_norm inf"), std::string::npos);
  EXPECT_NE(line.find("tok/s 0 "), std::string::npos);
}

TEST(StepRecordTest, JsonHasExactNumbersInAFixedOrder) {
  StepRecord record = sample();
  record.lossTerms = {{"lm", 0.5}, {"aux", 0.25}};
  record.flops = 1e9;
  record.peakFlops = 4e9;
  record.memoryBytes = 7;
  record.stepSeconds = 2;
  EXPECT_EQ(
      formatStepJson(record, 12.5),
      R"({"step":120,"loss":0.82431,"loss_lm":0.5,"loss_aux":0.25,"lr":1.2e-05,)"
      R"("grad_norm":0.7123,"committed":true,"tokens":524288,"slots":524288,)"
      R"("documents":300,"epoch":1,"tokens_per_second":262144.0,)"
      R"("slots_per_second":262144.0,"step_seconds":2.0,"data_seconds":0.0102,)"
      R"("eta_seconds":11340.0,"flops":1000000000.0,"mfu":0.25,)"
      R"("memory_bytes":7,"time":12.5})");
}

TEST(StepRecordTest, JsonStaysJsonWhateverTheLoss) {
  StepRecord record = sample();
  record.loss = std::nan("");
  record.gradNorm = -std::numeric_limits<double>::infinity();
  auto object = nlohmann::json::parse(formatStepJson(record, 0));
  EXPECT_EQ(object["loss"], "nan");
  EXPECT_EQ(object["grad_norm"], "-inf");
}

TEST(StepRecordTest, NumbersAreWrittenForPeople) {
  EXPECT_EQ(groupDigits(0), "0");
  EXPECT_EQ(groupDigits(999), "999");
  EXPECT_EQ(groupDigits(1000), "1,000");
  EXPECT_EQ(groupDigits(-1234567), "-1,234,567");
  EXPECT_EQ(shortNumber(1.2e-5, 3), "1.2e-5");
  EXPECT_EQ(shortNumber(3e-4, 3), "0.0003");
  EXPECT_EQ(shortNumber(12345, 3), "1.23e4");
  EXPECT_EQ(shortNumber(1e100, 3), "1e100");
  EXPECT_EQ(shortNumber(0, 3), "0");
  EXPECT_EQ(formatDuration(0), "0s");
  EXPECT_EQ(formatDuration(59.4), "59s");
  EXPECT_EQ(formatDuration(185), "3m05s");
  EXPECT_EQ(formatDuration(11340), "3h09m");
  EXPECT_EQ(formatDuration(187200), "2d04h");
  EXPECT_EQ(formatDuration(std::nan("")), "?");
  EXPECT_EQ(formatDuration(-1), "?");
}

TEST(StepRecordTest, PrinterIsPlainAndFlushedWhenNotOnATerminal) {
  FILE *file = tmpfile();
  ASSERT_NE(file, nullptr);
  StepPrinter printer(file);
  printer.print(sample());
  printer.print(sample());
  // Read through another stream: only what was flushed is there.
  std::string path = "/proc/self/fd/" + std::to_string(fileno(file));
  FILE *reader = fopen(path.c_str(), "r");
  ASSERT_NE(reader, nullptr);
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), reader));
  fclose(reader);
  fclose(file);
  std::string line = formatStepLine(sample()) + "\n";
  EXPECT_EQ(text, "step 120 includes warm-up (first touch of memory, cold "
                  "caches); judge speed from the next one\n" +
                      line + line);
}

TEST(EtaClockTest, LeavesOutTheFirstStep) {
  EtaClock clock;
  EXPECT_EQ(clock.update(1, 5, 100.0), 400.0);
  EXPECT_EQ(clock.update(2, 5, 2.0), 6.0);
  EXPECT_EQ(clock.update(3, 5, 4.0), 6.0); // mean 3
  EXPECT_EQ(clock.update(5, 5, 4.0), 0.0);
  EXPECT_EQ(clock.update(9, 5, 4.0), 0.0);
}

TEST(MemoryTest, IsKnownOnLinux) {
  EXPECT_GT(residentBytes(), 1 << 20);
  EXPECT_GT(machineBytes(), residentBytes());
}
