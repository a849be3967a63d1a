#include "runtime/records/metrics_file.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

using namespace qwen35;

namespace {

class MetricsFileTest : public testing::Test {
protected:
  void TearDown() override { unlink(path.c_str()); }

  std::string text() {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void set(const std::string &bytes) { std::ofstream(path) << bytes; }
  /// Steps of the records in the file, in order.
  std::string steps() {
    std::string all, content = text();
    for (size_t at = 0;
         (at = content.find("{\"step\":", at)) != std::string::npos; ++at)
      all += std::to_string(std::atoi(content.c_str() + at + 8)) + " ";
    return all;
  }
  void append(int64_t resumed, int64_t first, int64_t last) {
    auto metrics = MetricsFile::open(path, resumed);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    for (int64_t step = first; step <= last; ++step) {
      StepRecord record;
      record.step = step;
      ASSERT_TRUE((*metrics)->append(record).ok());
    }
    ASSERT_TRUE((*metrics)->sync().ok());
  }

  std::string path =
      testing::TempDir() + "/metrics_" + std::to_string(getpid()) + ".jsonl";
};

} // namespace

TEST_F(MetricsFileTest, AppendsOneLinePerStep) {
  append(0, 1, 3);
  EXPECT_EQ(steps(), "1 2 3 ");
  std::string all = text();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 3);
  EXPECT_EQ(all.back(), '\n');
}

TEST_F(MetricsFileTest, ResumeDropsTheStepsThatWillRunAgain) {
  append(0, 1, 10);
  append(6, 7, 8);
  EXPECT_EQ(steps(), "1 2 3 4 5 6 7 8 ");
  append(8, 9, 9);
  EXPECT_EQ(steps(), "1 2 3 4 5 6 7 8 9 ");
}

TEST_F(MetricsFileTest, FreshRunStartsEmpty) {
  append(0, 1, 5);
  append(0, 1, 1);
  EXPECT_EQ(steps(), "1 ");
}

TEST_F(MetricsFileTest, ResumeWithoutAFileStartsOne) {
  append(4, 5, 5);
  EXPECT_EQ(steps(), "5 ");
}

TEST_F(MetricsFileTest, TornLastLineIsCutOff) {
  append(0, 1, 3);
  std::string whole = text();
  for (size_t length = whole.size() - 1; length > whole.size() - 40; --length) {
    set(whole.substr(0, length));
    append(3, 4, 4);
    EXPECT_EQ(steps(), "1 2 4 ");
  }
}

TEST_F(MetricsFileTest, ALineInsideThatIsNoRecordIsAnErrorAndStays) {
  append(0, 1, 2);
  std::string bytes = "not a record\n" + text();
  set(bytes);
  auto metrics = MetricsFile::open(path, 1);
  ASSERT_FALSE(metrics.ok());
  EXPECT_EQ(std::string(metrics.status().message()),
            path + ":1: is no metrics record");
  EXPECT_EQ(text(), bytes);
}

TEST_F(MetricsFileTest, FullDiskNamesTheFileAndLeavesWholeLines) {
  append(0, 1, 3);
  std::string before = text();
  auto metrics = MetricsFile::open(path, 3);
  ASSERT_TRUE(metrics.ok());
  // A limit inside the next line fails its write halfway, as a full disk does.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = before.size() + 20;
  setrlimit(RLIMIT_FSIZE, &small);
  StepRecord record;
  record.step = 4;
  absl::Status status = (*metrics)->append(record);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(std::string(status.message()),
            "cannot write " + path + ": File too large");
  EXPECT_EQ(text(), before);
  EXPECT_TRUE((*metrics)->append(record).ok());
  EXPECT_EQ(steps(), "1 2 3 4 ");
}

TEST_F(MetricsFileTest, UnwritablePathIsNamed) {
  auto metrics = MetricsFile::open("/no/such/metrics.jsonl", 0);
  EXPECT_EQ(std::string(metrics.status().message()),
            "cannot open /no/such/metrics.jsonl: No such file or directory");
}
