// Training on several ranks, from outside: bundles for meshes, and runs of them
// against runs of one rank.

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace qwen35 {
namespace {

using namespace test;

const std::string kModel = "debug --tokens 64 --max-docs 4 "
                           "--set train.rows=4 --set optim.lr=1e-3";

TEST(RankBundlesTest, WhatAModelCannotBeSplitOverIsRefused) {
  struct Case {
    const char *arguments, *message;
  };
  for (const Case &bad : std::vector<Case>{
           {"debug --mesh tp=8",
            "the model cannot be split so: tp=8 does not divide the 4 query "
            "heads; nearest meshes of as many ranks: "
            "pp=1,dpr=4,dps=1,cp=1,tp=2,ep=1;"},
           {"debug --mesh dps=2,ep=2",
            "the model cannot be split so: ep=2 for a dense model, which has "
            "no experts; expected ep=1;"},
           {"debug --tokens 66 --mesh cp=4",
            "a row of 66 tokens does not split into 8 pieces for cp=4"},
           {"debug --mesh dps=3",
            "train.rows is 8, not a multiple of the 3 data ranks"},
           {"debug --mesh pp=2",
            "parallel.pp is 2, but pipeline stages are not built: expected 1"},
           {"debug --mesh dq=2", "--mesh: "},
           {"debug --mesh dps=2 --set parallel.zero=4",
            "parallel.zero must be an integer, from 0 to 3; found 4"}}) {
    CommandResult result =
        run(tool("qwen35c") + " " + bad.arguments + " --dry-run -q");
    EXPECT_EQ(result.status, 1) << bad.arguments << "\n" << result.output;
    EXPECT_NE(result.output.find(bad.message), std::string::npos)
        << bad.arguments << "\n"
        << result.output;
  }
}

TEST(RankBundlesTest, TheFlagBeatsTheFileAndStagesAreDumped) {
  TempFolder folder;
  writeFile(folder / "r.toml", "[parallel]\ndps = 4\ncp = 2\n");
  std::string output =
      quiet(tool("qwen35c") + " " + kModel + " --recipe " +
            (folder / "r.toml") + " --set parallel.dpr=4 --mesh dpr=2 " +
            "--dry-run --dump-ir " + (folder / "ir"));
  EXPECT_NE(output.find("[ranks   ] 2 (pp=1,dpr=2,dps=1,cp=1,tp=1,ep=1), "),
            std::string::npos)
      << output;
  EXPECT_NE(readFile(folder / "ir/S2-annotated.mlir").find("qdist.results"),
            std::string::npos);
  // One row of the two on each rank, and the table is that of a row.
  std::string s1 = readFile(folder / "ir/S1-differentiated.mlir");
  std::string s3 = readFile(folder / "ir/S3-partitioned.mlir");
  EXPECT_NE(s1.find("!qwen35.seq<128, 10>"), std::string::npos);
  EXPECT_NE(s3.find("!qwen35.seq<64, 5>"), std::string::npos);
  EXPECT_NE(s3.find("qdist.all_reduce"), std::string::npos);
  EXPECT_EQ(s3.find("!qwen35.seq<128, 10>"), std::string::npos);
}

TEST(RankBundlesTest, BundlesOfRanksAreSound) {
  for (const char *mesh : {"dpr=2", "dps=2"})
    quiet(tool("qwen35-verify") + " " + bundleOf(kModel + " --mesh " + mesh));
}

/// Training with ranks that are threads of one process or processes.
class TrainRanksTest : public testing::Test {
protected:
  TrainRanksTest() { writeFile(folder / "text", sampleText()); }

  static std::string bundle(const std::string &mesh) {
    return bundleOf(kModel + (mesh.empty() ? "" : " --mesh " + mesh));
  }

  /// A training command of one process; `name` is its run folder.
  std::string train(const std::string &bundle, const std::string &name,
                    int steps, const std::string &more = "") {
    return tool("qwen35-run") + " " + bundle + " --init 7 --data " +
           (folder / "text") + " --steps " + std::to_string(steps) +
           " --set train.steps=20 --threads 1 --out " + (folder / name) + " " +
           more;
  }

  std::vector<double> losses(const std::string &name) {
    std::istringstream lines(readFile(folder / (name + "/metrics.jsonl")));
    std::vector<double> result;
    for (std::string line; std::getline(lines, line);)
      if (auto record = nlohmann::json::parse(line, nullptr, false);
          record.contains("loss")) // a kill may cut the last one off
        result.push_back(record["loss"].get<double>());
    return result;
  }

  /// Losses of two runs, the same within a relative 1e-5.
  void expectSameLosses(const std::string &name, const std::string &other,
                        size_t steps) {
    std::vector<double> a = losses(name), b = losses(other);
    ASSERT_EQ(a.size(), steps) << name;
    ASSERT_EQ(b.size(), steps) << other;
    double worst = 0;
    for (size_t i = 0; i < steps; ++i)
      worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
    EXPECT_LE(worst, 1e-5) << name << " against " << other;
    RecordProperty("loss_" + name, std::to_string(worst));
  }

  /// The worst relative distance of the tensors of two files whose name begins
  /// with `prefix`, over the norm of each, or a thousandth of that of all where
  /// it is next to nothing: a sum of terms that cancel.
  static double worstTensor(const std::string &path, const std::string &other,
                            const std::string &prefix) {
    Safetensors a(path), b(other);
    EXPECT_EQ(a.names(), b.names());
    double all = 0;
    for (const std::string &tensor : b.names())
      if (tensor.rfind(prefix, 0) == 0)
        for (float y : b.reals<float>(tensor))
          all += double(y) * y;
    double worst = 0;
    std::string name;
    for (const std::string &tensor : b.names()) {
      if (tensor.rfind(prefix, 0) != 0)
        continue;
      auto x = a.reals<float>(tensor), y = b.reals<float>(tensor);
      EXPECT_EQ(x.size(), y.size()) << tensor;
      double distance = 0, norm = 0;
      for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        distance += (double(x[i]) - y[i]) * (double(x[i]) - y[i]);
        norm += double(y[i]) * y[i];
      }
      double off = std::sqrt(distance / std::max({norm, 1e-6 * all, 1e-30}));
      if (!(off <= worst)) {
        worst = off;
        name = tensor;
      }
    }
    return worst;
  }

  /// Four whole rows, of one and of several documents' worth of labels.
  std::string batch() {
    std::vector<int64_t> ids, labels;
    for (int64_t i = 0; i < 4 * 64; ++i) {
      ids.push_back(i * 37 % 251);
      labels.push_back(i % 7 == 3 ? -100 : ids.back());
    }
    std::string path = folder / "batch.safetensors";
    writeTensors(path, {{"input_ids", "I64", {4, 64}, bytesOf(ids)},
                        {"labels", "I64", {4, 64}, bytesOf(labels)}});
    return path;
  }

  /// Runs the batch once; the dump of gradients and new weights.
  std::string dump(const std::string &bundle, const std::string &name,
                   const std::string &more = "") {
    std::string path = folder / (name + ".safetensors");
    quiet(tool("qwen35-run") + " " + bundle + " --init 7 --threads 1 --batch " +
          batch() + " --dump " + path + " " + more);
    return path;
  }

  static int freePort() {
    int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr *>(&address), size), 0);
    ::getsockname(socket, reinterpret_cast<sockaddr *>(&address), &size);
    ::close(socket);
    return ntohs(address.sin_port);
  }

  /// Starts two ranks by torchrun's variables, in the background of a shell,
  /// each with a log: $p0 and $p1 are their processes.
  std::string started(const std::string &zero, const std::string &one) {
    std::string port = std::to_string(freePort()), text;
    for (int rank = 0; rank < 2; ++rank) {
      std::string r = std::to_string(rank);
      text += "export RANK=" + r + " LOCAL_RANK=" + r +
              " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + "; " +
              (rank ? one : zero) + " > " + (folder / ("log" + r)) +
              " 2>&1 & p" + r + "=$!; ";
    }
    return text;
  }

  std::string log(int rank) {
    return readFile(folder / ("log" + std::to_string(rank)));
  }

  /// Waits until the run has done so many steps.
  std::string until(const std::string &name, int steps) {
    return "for i in $(seq 2000); do [ \"$(cat " +
           (folder / (name + "/metrics.jsonl")) +
           " 2>/dev/null | wc -l)\" -ge " + std::to_string(steps) +
           " ] && break; sleep 0.05; done; ";
  }

  std::string exported(const std::string &name) {
    return readFile(folder / (name + "/model.safetensors"));
  }

  TempFolder folder;
};

TEST_F(TrainRanksTest, VirtualRanksEqualOneRank) {
  quiet(train(bundle(""), "one", 20));
  std::string one = dump(bundle(""), "one");
  struct Case {
    const char *mesh, *ranks;
  };
  for (auto [mesh, ranks] :
       {Case{"dpr=2", "2"}, Case{"dps=2", "2"}, Case{"dps=2,tp=2", "4"}}) {
    std::string more = std::string("--virtual-ranks ") + ranks;
    quiet(train(bundle(mesh), mesh, 20, more));
    expectSameLosses(mesh, "one", 20);
    std::string several = dump(bundle(mesh), mesh, more);
    EXPECT_LE(worstTensor(several, one, "grad."), 1e-5) << mesh;
    EXPECT_LE(worstTensor(several, one, "param."), 1e-5) << mesh;
    EXPECT_LE(worstTensor(several, one, "loss"), 1e-6) << mesh;
  }
}

TEST_F(TrainRanksTest, ProcessesHaveTheBitsOfVirtualRanks) {
  std::string program = bundle("dps=2");
  auto exporting = [&](const std::string &name) {
    return "--export-hf " + (folder / (name + "-hf"));
  };
  quiet(train(program, "threads", 8,
              "--virtual-ranks 2 " + exporting("threads")));
  std::string tcp = train(program, "tcp", 8, exporting("tcp"));
  quiet(started(tcp, tcp) + "wait $p0 && wait $p1");
  EXPECT_EQ(losses("tcp"), losses("threads")) << log(0);
  EXPECT_EQ(exported("tcp-hf"), exported("threads-hf"));
  EXPECT_EQ(log(1), "") << "rank 0 alone speaks";
#ifdef QWEN35_MPIRUN
  quiet("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "
        "100 " QWEN35_MPIRUN " -np 2 --oversubscribe " +
        train(program, "mpi", 8, exporting("mpi")));
  EXPECT_EQ(losses("mpi"), losses("threads"));
  EXPECT_EQ(exported("mpi-hf"), exported("threads-hf"));
#endif
}

TEST_F(TrainRanksTest, AnyMeshGoesOnFromAnyOther) {
  std::string constant = "--set schedule.kind=constant --resume auto ";
  quiet(train(bundle(""), "straight", 20, constant));
  quiet(train(bundle("dps=2"), "meshes", 5, constant + "--virtual-ranks 2"));
  quiet(train(bundle("dps=2,tp=2"), "meshes", 10,
              constant + "--virtual-ranks 4"));
  quiet(train(bundle(""), "meshes", 15, constant));
  std::string output = quiet(
      train(bundle("dpr=2"), "meshes", 20, constant + "--virtual-ranks 2"));
  EXPECT_NE(output.find("resume  step 15 of 20 from "), std::string::npos)
      << output;
  expectSameLosses("meshes", "straight", 20);
}

TEST_F(TrainRanksTest, ExportsOfUntouchedTensorsAreTheSameBytes) {
  quiet(train(bundle(""), "one", 3, "--export-hf " + (folder / "hf")));
  quiet(tool("qwen35-run") + " " + bundle("dps=2,tp=2") +
        " --virtual-ranks 4 --threads 1 --weights " + (folder / "hf") +
        " --steps 0 --out " + (folder / "load") + " --export-hf " +
        (folder / "again"));
  ASSERT_FALSE(exported("hf").empty());
  EXPECT_EQ(exported("hf"), exported("again"));
  // And drawn weights are those of one rank.
  for (const char *mesh : {"", "dps=2,tp=2"})
    quiet(train(bundle(mesh), std::string("init") + mesh, 0,
                std::string(*mesh ? "--virtual-ranks 4" : "") +
                    " --export-hf " + (folder / (std::string("w") + mesh))));
  EXPECT_EQ(exported("w"), exported("wdps=2,tp=2"));
}

TEST_F(TrainRanksTest, WhatDoesNotFitTogetherIsSaidAtOnce) {
  std::string two = train(bundle("dps=2"), "no", 5);
  struct Case {
    std::string command;
    std::vector<std::string> parts;
  };
  for (const Case &bad : std::vector<Case>{
           {two,
            {"the bundle is for 2 ranks (pp=1,dpr=1,dps=2,cp=1,tp=1,ep=1) and "
             "this process was started alone; start it with mpirun -np 2"}},
           {two + " --virtual-ranks 4",
            {"--virtual-ranks 4, but the bundle is for 2 ranks"}},
           {train(bundle(""), "no", 5) + " --virtual-ranks 2",
            {"--virtual-ranks 2, but the bundle is for 1 rank"}},
           {"export RANK=1 WORLD_SIZE=x MASTER_ADDR=h MASTER_PORT=1; " + two,
            {"WORLD_SIZE", "x"}}}) {
    CommandResult result = run(bad.command);
    EXPECT_EQ(result.status, 1) << result.output;
    for (const std::string &part : bad.parts)
      EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  }
  struct Pair {
    std::string zero, one;
    std::vector<std::string> parts;
  };
  for (const Pair &bad : std::vector<Pair>{
           {two,
            train(bundle("dpr=2"), "no", 5),
            {"rank 1 (pid ", " has bundle '", " and rank 0 (pid "}},
           {two, two + " --set optim.lr=2e-3", {"optim.lr '0.002'"}},
           {train(bundle(""), "no", 5),
            train(bundle(""), "no", 5),
            {"the bundle is for 1 rank", "was started in a world of 2"}},
           {two,
            two + " --weights /no/such/folder",
            {"has bundle 'give --weights or --init, not both'"}}}) {
    auto begin = std::chrono::steady_clock::now();
    run(started(bad.zero, bad.one) + "wait $p0; wait $p1");
    for (int rank = 0; rank < 2; ++rank)
      for (const std::string &part : bad.parts)
        EXPECT_NE(log(rank).find(part), std::string::npos) << part << "\n"
                                                           << log(rank);
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(20));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "no/metrics.jsonl"));
}

/// Faults of one of two ranks that are training. All the others end by
/// themselves, say which rank it was, and the run goes on from the newest
/// checkpoint with another mesh.
class RankFaultsTest : public TrainRanksTest {
protected:
  std::string forever(const std::string &name, const std::string &more = "") {
    return train(bundle("dps=2"), name, 1000000,
                 "--resume auto --set train.save_every=2 " + more);
  }

  std::string waitForBoth = "wait $p0; s0=$?; wait $p1; echo \"status $s0 $?\"";

  void expectGoesOn(const std::string &name) {
    std::string latest =
        std::filesystem::read_symlink(folder / (name + "/checkpoints/latest"))
            .filename();
    int step = std::atoi(latest.c_str() + 5);
    EXPECT_GT(step, 0) << latest;
    std::string output = quiet(train(bundle("dpr=2"), name, step + 2,
                                     "--virtual-ranks 2 --resume auto"));
    EXPECT_NE(output.find("resume  step " + std::to_string(step) + " of"),
              std::string::npos)
        << output;
    EXPECT_EQ(output.find("damaged"), std::string::npos) << output;
  }
};

TEST_F(RankFaultsTest, KilledBetweenSteps) {
  std::string command = forever("killed");
  CommandResult result = run(started(command, command) + until("killed", 4) +
                             "kill -KILL $p1; " + waitForBoth);
  EXPECT_NE(result.output.find("status 75 137"), std::string::npos)
      << result.output << log(0);
  EXPECT_NE(log(0).find("error: rank 1 (pid "), std::string::npos) << log(0);
  EXPECT_NE(log(0).find("died: its process ended"), std::string::npos)
      << log(0);
  expectGoesOn("killed");
}

TEST_F(RankFaultsTest, KilledInASave) {
  // Until a checkpoint is being built, then at once.
  std::string begun = "for i in $(seq 4000); do ls -d " +
                      (folder / "save/checkpoints/.tmp-step-*") +
                      " >/dev/null 2>&1 && break; sleep 0.002; done; ";
  auto kill = [&](int victim) {
    std::string command = forever("save");
    int before = static_cast<int>(losses("save").size());
    CommandResult result =
        run(started(command, command) + until("save", before + 4) + begun +
            "kill -KILL $p" + std::to_string(victim) + "; " + waitForBoth);
    EXPECT_NE(result.output.find(victim ? "status 75 137" : "status 137 75"),
              std::string::npos)
        << result.output << log(0) << log(1);
    EXPECT_NE(log(1 - victim)
                  .find("error: rank " + std::to_string(victim) + " (pid "),
              std::string::npos)
        << log(1 - victim);
  };
  kill(1);
  // Rank 0 writes. A save of so small a model may be done before the kill
  // reaches it: again, until one is cut off.
  bool inside = false;
  for (int attempt = 0; attempt < 20 && !inside && !HasFailure(); ++attempt) {
    kill(0);
    for (const auto &entry :
         std::filesystem::directory_iterator(folder / "save/checkpoints"))
      inside |= entry.path().filename().string().rfind(".tmp-step-", 0) == 0;
  }
  EXPECT_TRUE(inside) << "no save was under way";
  expectGoesOn("save");
}

TEST_F(RankFaultsTest, Stopped) {
  std::string command = forever("stopped", "--rank-silence 3");
  CommandResult result =
      run(started(command, command) + until("stopped", 4) +
          "kill -STOP $p1; wait $p0; echo \"status $?\"; kill -KILL $p1; wait");
  EXPECT_NE(result.output.find("status 75"), std::string::npos)
      << result.output << log(0);
  EXPECT_NE(log(0).find("error: rank 1 (pid "), std::string::npos) << log(0);
  EXPECT_NE(log(0).find("is stopped or cut off: no sign of life for "),
            std::string::npos)
      << log(0);
  expectGoesOn("stopped");
}

TEST_F(RankFaultsTest, ASignalToOneRankEndsAllInOrder) {
  std::string command = forever("signal");
  CommandResult result = run(started(command, command) + until("signal", 3) +
                             "kill -TERM $p1; " + waitForBoth);
  EXPECT_NE(result.output.find("status 0 0"), std::string::npos)
      << result.output << log(0) << log(1);
  EXPECT_NE(log(0).find("stopped by SIGTERM after step"), std::string::npos)
      << log(0);
  expectGoesOn("signal");
}

TEST_F(RankFaultsTest, DataThatOneRankCannotReadEndsAllInOrder) {
  std::string command = forever("data");
  std::string other = command;
  other.replace(other.find(folder / "text"), (folder / "text").size(),
                folder / "absent");
  CommandResult result = run(started(command, other) + waitForBoth);
  EXPECT_NE(result.output.find("status 75 1"), std::string::npos)
      << result.output;
  EXPECT_NE(log(0).find("rank 1 failed: "), std::string::npos) << log(0);
  EXPECT_NE(log(0).find("absent"), std::string::npos) << log(0);
  EXPECT_NE(log(1).find("absent"), std::string::npos) << log(1);
}

} // namespace
} // namespace qwen35
