// Ranks that are started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
// and talk over TCP; as threads where everything goes well, as processes where
// something happens to one.

#include "runtime/comm/start.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/socket.h"
#include "test/unit/comm/CollectiveChecks.h"
#include "test/unit/comm/Processes.h"

#include "gmock/gmock.h"

#include <thread>

using namespace qwen35;
using namespace qwen35::comm;
using qwen35::test::Ended;
using qwen35::test::runTogether;
using qwen35::test::Started;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

namespace {

int freePort() {
  absl::StatusOr<Descriptor> socket = listenOn(0);
  return socket.ok() ? portOf(*socket) : 0;
}

absl::StatusOr<Launch> read(std::map<std::string, std::string> variables) {
  return readEnvironment([&](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(EnvironmentTest, LaunchersAreRecognized) {
  auto launch = read({{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"RANK", "0"},
                      {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->kind, Launch::kMpi);
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 4);
  EXPECT_EQ(launch->localRank, 1);
  launch = read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->kind, Launch::kMpi);
  launch = read({{"PMIX_RANK", "1"}, {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->kind, Launch::kMpi);
  std::map<std::string, std::string> torch = {{"RANK", "1"},
                                              {"WORLD_SIZE", "2"},
                                              {"LOCAL_RANK", "1"},
                                              {"MASTER_ADDR", "node0"},
                                              {"MASTER_PORT", "29500"}};
  launch = read(torch);
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->kind, Launch::kEnv);
  EXPECT_EQ(launch->masterAddress, "node0");
  EXPECT_EQ(launch->masterPort, 29500);
  torch["TORCHELASTIC_USE_AGENT_STORE"] = "True"; // its agent has that port
  EXPECT_EQ(read(torch)->masterPort, 29501);
  EXPECT_EQ(read({})->kind, Launch::kSingle);
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->kind, Launch::kSingle);
}

TEST(EnvironmentTest, ErrorsNameVariableAndValue) {
  auto message = [](std::map<std::string, std::string> variables) {
    return std::string(read(std::move(variables)).status().message());
  };
  EXPECT_EQ(message({{"RANK", "1"}}),
            "RANK is set ('1') and WORLD_SIZE is not");
  EXPECT_EQ(message({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
            "RANK is 'x'; expected 0 to 1");
  EXPECT_EQ(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "RANK is '2'; expected 0 to 1");
  EXPECT_EQ(message({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "WORLD_SIZE is '0'; expected 1 to 1048576");
  EXPECT_THAT(message({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not set"));
  EXPECT_THAT(message({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("MASTER_ADDR is not set"));
  EXPECT_EQ(message({{"RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "a"},
                     {"MASTER_PORT", "70000"}}),
            "MASTER_PORT is '70000'; expected 1 to 65534");
}

/// Each rank a thread with a world of its own over TCP.
std::vector<absl::Status>
runThreads(int ranks, const std::function<absl::Status(World &)> &body) {
  int port = freePort();
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Launch launch{Launch::kEnv, r, ranks, 0, "", "localhost", port};
      StartOptions options;
      options.exitOnFailure = false;
      options.agree = {{"bundle", "1234"}};
      absl::StatusOr<std::unique_ptr<World>> world = start(options, launch);
      absl::Status status = world.status();
      if (status.ok())
        status = body(**world);
      if (status.ok())
        status = (*world)->finish();
      statuses[static_cast<size_t>(r)] = status;
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

TEST(TcpTest, EveryCollectiveGivesTheBitsOfItsDefinition) {
  for (int ranks : {2, 3})
    for (const absl::Status &status :
         runThreads(ranks, [](World &world) -> absl::Status {
           QWEN35_RETURN_IF_ERROR(checkOrder(world));
           return checkCollectives(world);
         }))
      EXPECT_TRUE(status.ok()) << status;
}

TEST(TcpTest, LargeMessagesInBothDirectionsDoNotWaitForEachOther) {
  for (const absl::Status &status :
       runThreads(3, [](World &world) -> absl::Status {
         const int64_t count = 20 << 20; // more than sockets hold
         std::vector<char> send(static_cast<size_t>(count), char(world.rank()));
         std::vector<char> all(static_cast<size_t>(count) * 3);
         QWEN35_RETURN_IF_ERROR(world.all().allGather(send.data(), all.data(),
                                                      count, Type::kByte));
         for (int r = 0; r < 3; ++r)
           if (all[static_cast<size_t>((r + 1) * count - 1)] != char(r))
             return absl::InternalError("wrong bytes");
         return absl::OkStatus();
       }))
    EXPECT_TRUE(status.ok()) << status;
}

TEST(TcpTest, DifferentCollectivesAreAnErrorOnAllRanks) {
  std::vector<absl::Status> statuses =
      runThreads(3, [](World &world) -> absl::Status {
        float x[8] = {};
        if (world.rank() == 2)
          return world.all().broadcast(x, 4, Type::kF32, 2, {"weights"});
        return world.all().allReduce(x, x, 4, Type::kF32, {}, {"grads"});
      });
  for (const absl::Status &status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("do not call the same collective"),
                      HasSubstr("all_reduce 'grads' of 4 f32"),
                      HasSubstr("broadcast 'weights' of 4 f32 from 2")));
  }
}

TEST(TcpTest, ARankThatFinishedIsNotWaitedFor) {
  std::vector<absl::Status> statuses =
      runThreads(2, [](World &world) -> absl::Status {
        return world.rank() == 0 ? absl::OkStatus()
                                 : world.all().barrier({"last"});
      });
  for (const absl::Status &status : statuses)
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 0 has finished while rank 1 waits for it in "
                          "number 0, barrier 'last' over 'world'"));
}

TEST(TcpTest, StrangersAtThePortAreIgnored) {
  int port = freePort();
  std::thread stranger([port] {
    auto socket = connectTo({{"127.0.0.1", port}},
                            Clock::now() + std::chrono::seconds(10));
    if (socket.ok())
      (void)!::write(socket->get(), "GET / HTTP/1.1\r\n\r\n", 18);
    ::usleep(300000);
  });
  std::vector<std::thread> threads;
  absl::Status statuses[2];
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      if (r == 1)
        ::usleep(200000);
      Launch launch{Launch::kEnv, r, 2, 0, "", "127.0.0.1", port};
      StartOptions options;
      options.exitOnFailure = false;
      auto world = start(options, launch);
      statuses[r] = world.ok() ? (*world)->finish() : world.status();
    });
  for (std::thread &thread : threads)
    thread.join();
  stranger.join();
  for (const absl::Status &status : statuses)
    EXPECT_TRUE(status.ok()) << status;
}

/// Processes; rank r gets `words` and more[r].
std::vector<Ended> runRanks(
    int ranks, const std::string &words, size_t hung = 0,
    const std::vector<std::string> &more = {},
    const std::vector<std::map<std::string, std::string>> &variables = {}) {
  std::string port = std::to_string(freePort());
  std::vector<Started> all;
  for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
    Started one;
    one.command = {test::tool("comm_rank")};
    std::stringstream text(words + (r < more.size() ? " " + more[r] : ""));
    for (std::string word; text >> word;)
      one.command.push_back(word);
    one.variables = {{"RANK", std::to_string(r)},
                     {"WORLD_SIZE", std::to_string(ranks)},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port}};
    if (r < variables.size())
      for (const auto &[name, value] : variables[r])
        one.variables[name] = value;
    all.push_back(one);
  }
  return runTogether(all, hung);
}

size_t linesWith(const std::string &text, const std::string &part) {
  size_t count = 0;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    count += line.find(part) != std::string::npos;
  return count;
}

/// The victim apart, every rank has printed one error, with these parts, in
/// time, and ended with its own code.
void expectFailures(const std::vector<Ended> &ended, size_t victim,
                    const std::vector<std::string> &parts, double limit) {
  for (size_t r = 0; r < ended.size(); ++r) {
    if (r == victim)
      continue;
    EXPECT_EQ(ended[r].status, kFailureExit) << ended[r].output;
    EXPECT_EQ(linesWith(ended[r].output, "error: "), 1u) << ended[r].output;
    for (const std::string &part : parts)
      EXPECT_THAT(ended[r].output, HasSubstr(part));
    EXPECT_THAT(ended[r].output, HasSubstr(absl::StrCat("this is rank ", r)));
    EXPECT_LT(ended[r].seconds, limit) << ended[r].output;
  }
}

struct Fault {
  const char *kind;
  int ranks, victim;
  double limit; // seconds from the start to the last rank's end
  std::vector<std::string> parts;
};

/// The fault matrix of processes over TCP; MpiTest.cpp has that over MPI. The
/// limit of a silent rank is 2 s here, of a late one 3 s.
class TcpFaults : public testing::TestWithParam<Fault> {};

TEST_P(TcpFaults, EndEveryOtherRankWithOneErrorThatNamesTheRank) {
  const Fault &fault = GetParam();
  bool hangs = std::string(fault.kind).find("stop") == 0;
  std::vector<Ended> ended =
      runRanks(fault.ranks,
               absl::StrCat("fault ", fault.kind, " ", fault.victim,
                            " --silence 2 --limit 3"),
               hangs ? 1 : 0);
  std::vector<std::string> parts = fault.parts;
  parts.push_back(absl::StrCat("rank ", fault.victim, " (pid "));
  if (std::string(fault.kind) == "error")
    parts.back() = absl::StrCat("rank ", fault.victim, " failed: ");
  if (std::string(fault.kind) == "other")
    parts.pop_back();
  expectFailures(ended, static_cast<size_t>(fault.victim), parts, fault.limit);
  const Ended &victim = ended[static_cast<size_t>(fault.victim)];
  if (std::string(fault.kind) == "error") {
    EXPECT_EQ(victim.status, 3);
    EXPECT_THAT(victim.output, HasSubstr("error: the corpus is gone"));
    EXPECT_EQ(linesWith(victim.output, "error: "), 1u) << victim.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, TcpFaults,
    testing::Values(
        Fault{"kill", 3, 1, 15, {"died: its process ended", "'grads'"}},
        Fault{"kill", 2, 0, 15, {"died: its process ended", "'grads'"}},
        Fault{"kill-inside", 3, 2, 15, {"died: its process ended"}},
        Fault{"stop", 3, 2, 20, {"is stopped or cut off", "'grads'"}},
        Fault{"stop", 3, 0, 20, {"is stopped or cut off", "'grads'"}},
        Fault{"stop-inside", 2, 1, 20, {"is stopped or cut off"}},
        Fault{"exit", 3, 1, 15, {"died: its process ended"}},
        Fault{"stuck",
              3,
              1,
              20,
              {"did not come within 3.0 s to number 10, all_reduce 'grads' of "
               "1048576 f32 over 'world'",
               "its process lives, after number 9, barrier 'step'"}},
        Fault{"error", 3, 1, 15, {"the corpus is gone"}},
        Fault{"other",
              3,
              1,
              15,
              {"do not call the same collective",
               "all_gather 'weights' of 10 f32"}}),
    [](const testing::TestParamInfo<Fault> &info) {
      std::string name = absl::StrCat(info.param.kind, info.param.victim, "of",
                                      info.param.ranks);
      name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
      return name;
    });

TEST(TcpFaults, NoneLeavesNoTrace) {
  for (const Ended &ended : runRanks(3, "fault none 0")) {
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, MatchesRegex("rank [012] of 3 ok\n"));
  }
}

TEST(TcpStartTest, AWrongWorldSizeIsAnErrorOnAllRanks) {
  std::vector<Ended> ended =
      runRanks(2, "check", 0, {}, {{}, {{"WORLD_SIZE", "4"}}});
  for (const Ended &one : ended) {
    EXPECT_EQ(one.status, 3);
    EXPECT_LT(one.seconds, 20);
    EXPECT_THAT(one.output,
                AllOf(HasSubstr("error: rank 1 (pid "),
                      HasSubstr("was started in a world of 4 and rank 0 (pid "),
                      HasSubstr("in a world of 2")));
  }
}

TEST(TcpStartTest, ABundleForAnotherNumberOfRanksIsAnErrorOnAllRanks) {
  for (const Ended &one : runRanks(2, "check --ranks 4")) {
    EXPECT_EQ(one.status, 3);
    EXPECT_THAT(one.output, HasSubstr("error: the bundle is for 4 ranks and "
                                      "rank 0 (pid "));
    EXPECT_THAT(one.output, HasSubstr("was started in a world of 2"));
  }
  std::vector<Ended> alone =
      runTogether({{{test::tool("comm_rank"), "check", "--ranks", "4"}, {}}});
  EXPECT_EQ(alone[0].status, 3);
  EXPECT_THAT(alone[0].output,
              HasSubstr("the bundle is for 4 ranks and this process was "
                        "started alone; start it with mpirun -np 4"));
}

TEST(TcpStartTest, DifferentBundlesAreAnErrorOnAllRanks) {
  std::vector<Ended> ended = runRanks(
      3, "check", 0,
      {"--agree bundle=0fa1", "--agree bundle=0fa1", "--agree bundle=77c2"});
  for (const Ended &one : ended) {
    EXPECT_EQ(one.status, 3);
    EXPECT_LT(one.seconds, 20);
    EXPECT_THAT(one.output, AllOf(HasSubstr("error: rank 2 (pid "),
                                  HasSubstr("has bundle '77c2' and rank 0"),
                                  HasSubstr("has bundle '0fa1'")));
  }
}

TEST(TcpStartTest, TwoProcessesWithOneRankAreAnErrorOnAll) {
  std::vector<Ended> ended =
      runRanks(3, "check", 0, {}, {{}, {}, {{"RANK", "1"}}});
  for (const Ended &one : ended) {
    EXPECT_EQ(one.status, 3);
    EXPECT_THAT(one.output, HasSubstr("two processes are rank 1: pid "));
  }
}

TEST(TcpStartTest, RanksThatDoNotComeAreNamed) {
  std::vector<Ended> ended =
      runRanks(2, "check --join 1", 0, {},
               {{{"WORLD_SIZE", "4"}}, {{"WORLD_SIZE", "4"}, {"RANK", "2"}}});
  for (const Ended &one : ended) {
    EXPECT_EQ(one.status, 3);
    EXPECT_LT(one.seconds, 15);
    EXPECT_THAT(one.output,
                HasSubstr("error: 2 of 4 ranks came together within 1.0 s; "
                          "missing: ranks 1, 3"));
  }
}

TEST(TcpStartTest, WithoutRankZeroTheAddressIsNamed) {
  std::vector<Ended> ended = runRanks(1, "check --join 1", 0, {},
                                      {{{"WORLD_SIZE", "2"}, {"RANK", "1"}}});
  EXPECT_EQ(ended[0].status, 3);
  EXPECT_THAT(ended[0].output,
              AllOf(HasSubstr("rank 1 of 2 cannot reach rank 0: no answer from "
                              "127.0.0.1:"),
                    HasSubstr("Connection refused")));
}

TEST(TcpStartTest, APortThatIsTakenIsNamed) {
  absl::StatusOr<Descriptor> taken = listenOn(0);
  std::string port = std::to_string(portOf(*taken));
  std::vector<Ended> ended = runRanks(
      1, "check", 0, {}, {{{"WORLD_SIZE", "2"}, {"MASTER_PORT", port}}});
  EXPECT_EQ(ended[0].status, 3);
  EXPECT_THAT(ended[0].output, HasSubstr(absl::StrCat(
                                   "rank 0 cannot listen on port ", port,
                                   ": Address already in use (MASTER_PORT)")));
}

} // namespace
