// Ranks under mpirun, more of them than processors.

#include "runtime/comm/start.h"

#include "absl/strings/str_cat.h"
#include "test/support/Command.h"

#include "gmock/gmock.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <vector>

using namespace qwen35;
using namespace qwen35::comm;
using testing::AllOf;
using testing::HasSubstr;

namespace {

struct Job {
  int status = -1; // of mpirun: that of the first rank that failed
  std::string output;
  std::vector<std::vector<std::string>> lines; // by rank
  double seconds = 0;
};

Job mpirun(int ranks, const std::string &words,
           const std::string &variables = "") {
  Job job;
  auto start = std::chrono::steady_clock::now();
  test::CommandResult result = test::run(
      absl::StrCat("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ",
                   variables, " timeout -s KILL 60 ", QWEN35_MPIRUN, " -np ",
                   ranks, " --oversubscribe --tag-output ", words));
  job.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  job.status = result.status;
  job.output = result.output;
  job.lines.resize(static_cast<size_t>(ranks));
  std::stringstream text(result.output);
  for (std::string line; std::getline(text, line);) {
    int rank = -1, used = 0;
    if (std::sscanf(line.c_str(), "[1,%d]<%*[a-z]>:%n", &rank, &used) == 1 &&
        used > 0 && rank >= 0 && rank < ranks)
      job.lines[static_cast<size_t>(rank)].push_back(
          line.substr(static_cast<size_t>(used)));
  }
  return job;
}

std::string rankTool() { return test::tool("comm_rank"); }

class MpiRanks : public testing::TestWithParam<int> {};

TEST_P(MpiRanks, EveryCollectiveGivesTheBitsOfItsDefinition) {
  Job job = mpirun(GetParam(), rankTool() + " check");
  EXPECT_EQ(job.status, 0) << job.output;
  for (int r = 0; r < GetParam(); ++r)
    EXPECT_EQ(job.lines[static_cast<size_t>(r)],
              std::vector<std::string>{
                  absl::StrCat("rank ", r, " of ", GetParam(), " ok")})
        << job.output;
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiRanks, testing::Values(1, 2, 4));

struct Fault {
  const char *kind;
  int ranks, victim;
  int status; // of mpirun; 0: not of interest
  std::vector<std::string> parts;
};

/// As TcpFaults of StartTest.cpp.
class MpiFaults : public testing::TestWithParam<Fault> {};

TEST_P(MpiFaults, EndEveryOtherRankWithOneErrorThatNamesTheRank) {
  const Fault &fault = GetParam();
  Job job =
      mpirun(fault.ranks, absl::StrCat(rankTool(), " fault ", fault.kind, " ",
                                       fault.victim, " --silence 2 --limit 3"));
  EXPECT_LT(job.seconds, 30);
  if (fault.status != 0)
    EXPECT_EQ(job.status, fault.status) << job.output;
  for (int r = 0; r < fault.ranks; ++r) {
    if (r == fault.victim)
      continue;
    std::vector<std::string> errors;
    for (const std::string &line : job.lines[static_cast<size_t>(r)])
      if (line.find("error: ") == 0)
        errors.push_back(line);
    ASSERT_EQ(errors.size(), 1u) << "rank " << r << "\n" << job.output;
    for (const std::string &part : fault.parts)
      EXPECT_THAT(errors[0], HasSubstr(part));
    EXPECT_THAT(errors[0],
                AllOf(HasSubstr(absl::StrCat("; this is rank ", r, ", ")),
                      HasSubstr("number ")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, MpiFaults,
    testing::Values(
        Fault{"kill", 4, 2, 0, {"rank 2 (pid ", "died: its process ended"}},
        Fault{"kill", 2, 0, 0, {"rank 0 (pid ", "died: its process ended"}},
        Fault{"kill-inside",
              2,
              1,
              0,
              {"rank 1 (pid ", "died: its process ended"}},
        Fault{"stop",
              4,
              1,
              kFailureExit,
              {"rank 1 (pid ", "is stopped or cut off: no sign of life for 2.",
               "all_reduce 'grads'"}},
        Fault{"stop",
              2,
              0,
              kFailureExit,
              {"rank 0 (pid ", "is stopped or cut off: no sign of life for 2.",
               "all_reduce 'grads'"}},
        Fault{"stop-inside",
              2,
              1,
              kFailureExit,
              {"rank 1 (pid ", "is stopped or cut off"}},
        Fault{"stuck",
              4,
              3,
              kFailureExit,
              {"rank 3 (pid ", "did not come within 3.0 s to number 10, "
                               "all_reduce 'grads' of 1048576 f32"}},
        Fault{"error", 4, 0, 0, {"rank 0 failed: the corpus is gone"}},
        Fault{"other",
              2,
              1,
              kFailureExit,
              {"ranks ", "do not call the same collective",
               "all_gather 'weights' of 10 f32"}}),
    [](const testing::TestParamInfo<Fault> &info) {
      std::string name = absl::StrCat(info.param.kind, info.param.victim, "of",
                                      info.param.ranks);
      name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
      return name;
    });

TEST(MpiStartTest, DifferentBundlesAreAnErrorOnAllRanks) {
  Job job =
      mpirun(1, absl::StrCat(rankTool(), " check --agree bundle=1 : -np 2 ",
                             rankTool(), " check --agree bundle=2"));
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.seconds, 30);
  size_t errors = 0;
  std::stringstream text(job.output);
  for (std::string line; std::getline(text, line);) {
    if (line.find("error: ") == std::string::npos)
      continue;
    ++errors;
    EXPECT_THAT(line,
                AllOf(HasSubstr("rank 1 (pid "), HasSubstr("rank 2 (pid "),
                      HasSubstr("has bundle '2' and rank 0 (pid "),
                      HasSubstr("has bundle '1'")));
  }
  EXPECT_EQ(errors, 3u) << job.output;
}

TEST(MpiStartTest, ABundleForAnotherNumberOfRanksIsAnErrorOnAllRanks) {
  Job job = mpirun(2, rankTool() + " check --ranks 4");
  EXPECT_NE(job.status, 0);
  for (const std::vector<std::string> &lines : job.lines) {
    ASSERT_EQ(lines.size(), 1u) << job.output;
    EXPECT_THAT(lines[0], HasSubstr("error: the bundle is for 4 ranks and "
                                    "rank 0"));
  }
}

TEST(MpiStartTest, AMissingPluginIsNamedWithWhatToDo) {
  Job job = mpirun(2, rankTool() + " check", "QWEN35_LIBMPI=/no/such.so");
  EXPECT_NE(job.status, 0);
  EXPECT_THAT(
      job.output,
      AllOf(HasSubstr("error: cannot load libqwen35-mpi.so (/no/such.so"),
            HasSubstr("install Open MPI")));
}

TEST(MpiStartTest, AnotherMpisVariablesAreNoticed) {
  test::CommandResult result =
      test::run("PMI_RANK=1 PMI_SIZE=2 OMPI_ALLOW_RUN_AS_ROOT=1 "
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 30 " +
                rankTool() + " check");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("PMI_RANK and PMI_SIZE say rank 1 of 2"),
                    HasSubstr("says rank 0 of 1")));
}

} // namespace
