#include "runtime/records/event_file.h"

#include "runtime/crc/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace qwen35;

namespace {

std::string hex(const std::string &bytes) {
  std::string text;
  char two[3];
  for (unsigned char byte : bytes) {
    std::snprintf(two, sizeof(two), "%02x", byte);
    text += two;
  }
  return text;
}

/// The records of a TFRecord file; checks length, both CRCs and the end.
std::vector<std::string> readFrames(const std::string &bytes) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t length;
    uint32_t lengthCrc, dataCrc;
    EXPECT_LE(at + 12, bytes.size());
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&lengthCrc, bytes.data() + at + 8, 4);
    EXPECT_EQ(lengthCrc, maskedCrc32c(bytes.data() + at, 8));
    EXPECT_LE(at + 16 + length, bytes.size());
    std::memcpy(&dataCrc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(dataCrc, maskedCrc32c(bytes.data() + at + 12, length));
    records.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  EXPECT_EQ(at, bytes.size());
  return records;
}

std::string read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class EventFileTest : public testing::Test {
protected:
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string folder =
      testing::TempDir() + "/events_" + std::to_string(getpid());
};

} // namespace

TEST_F(EventFileTest, MaskedCrcFollowsTheFormat) {
  // Mask of crc32c("123456789") = 0xe3069283 by the definition, by hand:
  // rotate right 15 gives 0x2507c60d, plus 0xa282ead8.
  EXPECT_EQ(maskedCrc32c("123456789", 9), 0xc78ab0e5u);
}

TEST_F(EventFileTest, FrameMatchesTensorFlowsBytes) {
  // tf.io.TFRecordWriter writes this for the record b"".
  EXPECT_EQ(hex(impl::tfRecordFrame("")), "0000000000000000"
                                          "29039807"
                                          "d8ea82a2");
}

TEST_F(EventFileTest, EventEncodesAsProtocDoes) {
  // wall_time 1.5, step 300, summary {loss/total: 0.5}, {optim/lr: 2}.
  EXPECT_EQ(hex(impl::encodeScalarEvent(
                1.5, 300, {{"loss/total", 0.5}, {"optim/lr", 2}})),
            "09000000000000f83f"
            "10ac02"
            "2a24"
            "0a11"
            "0a0a6c6f73732f746f74616c"
            "150000003f"
            "0a0f"
            "0a086f7074696d2f6c72"
            "1500000040");
}

TEST_F(EventFileTest, FileStartsWithItsVersionAndHoldsTheStep) {
  auto events = EventFile::create(folder + "/deep/er", 0);
  ASSERT_TRUE(events.ok()) << events.status();
  StepRecord record;
  record.step = 3;
  record.loss = 1.5;
  record.lossTerms = {{"lm", 1.0}, {"aux", 0.5}};
  ASSERT_TRUE((*events)->append(record).ok());
  std::string name = std::filesystem::path((*events)->path()).filename();
  EXPECT_EQ(name.substr(0, 20), "events.out.tfevents.");
  std::vector<std::string> records = readFrames(read((*events)->path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(9), "\x1a\x0d"
                                  "brain.Event:2");
  for (const char *tag :
       {"loss/total", "loss/lm", "loss/aux", "optim/lr", "optim/grad_norm",
        "optim/skipped", "perf/tokens_per_second", "perf/slots_per_second",
        "time/step", "time/data", "data/epoch"})
    EXPECT_NE(records[1].find(tag), std::string::npos) << tag;
  EXPECT_EQ(records[1].find("perf/mfu"), std::string::npos);
}

TEST_F(EventFileTest, ResumeTellsTensorBoardToForgetLaterSteps) {
  auto events = EventFile::create(folder, 299);
  ASSERT_TRUE(events.ok());
  std::vector<std::string> records = readFrames(read((*events)->path()));
  ASSERT_EQ(records.size(), 2u);
  // step 300, session_log {status: START}
  EXPECT_EQ(hex(records[1].substr(9)), "10ac02"
                                       "3a02"
                                       "0801");
}

TEST_F(EventFileTest, AttemptsNeverShareAFile) {
  auto first = EventFile::create(folder, 0);
  auto second = EventFile::create(folder, 0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE((*first)->path(), (*second)->path());
}

TEST_F(EventFileTest, FolderThatCannotBeMadeIsNamed) {
  auto events = EventFile::create("/dev/null/x", 0);
  ASSERT_FALSE(events.ok());
  EXPECT_NE(std::string(events.status().message()).find("/dev/null/x"),
            std::string::npos);
}
