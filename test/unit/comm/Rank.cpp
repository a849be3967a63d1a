// One rank of a run, for tests of what happens to it and to the others:
//
//   comm_rank check                  every collective; prints "rank 0 of 2 ok"
//   comm_rank fault KIND RANK        steps without end; at its step 5, RANK
//                                    does what KIND says
//   --agree NAME=VALUE --ranks N --silence S --limit S --join S
//
// KIND: kill, stop: the process, by a signal, between collectives; kill-inside,
// stop-inside: while it moves messages; stuck: computes and does not come;
// error: fails by itself with exit code 3; exit: leaves without finish;
// other: calls another collective; none: 20 steps and an orderly end.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/bundle/status_macros.h"
#include "runtime/comm/start.h"
#include "test/unit/comm/CollectiveChecks.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace qwen35;
using namespace qwen35::comm;

namespace {

std::string kind;
int victim = -1;

void later(int signal) {
  std::thread([signal] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ::kill(::getpid(), signal);
  }).detach();
}

absl::Status steps(World &world) {
  std::vector<float> x(1 << 20), y(1 << 20);
  bool faulty = world.rank() == victim;
  for (int step = 0; step < 20 || kind != "none"; ++step) {
    if (faulty && step == 5 && kind != "none") {
      std::fprintf(stderr, "rank %d: %s\n", victim, kind.c_str());
      if (kind == "kill")
        ::kill(::getpid(), SIGKILL);
      if (kind == "stop")
        ::kill(::getpid(), SIGSTOP);
      if (kind == "kill-inside")
        later(SIGKILL);
      if (kind == "stop-inside")
        later(SIGSTOP);
      if (kind == "stuck")
        while (true)
          ::usleep(1000);
      if (kind == "error")
        return absl::DataLossError("the corpus is gone");
      if (kind == "exit")
        ::_exit(0);
      if (kind == "other")
        QWEN35_RETURN_IF_ERROR(world.all().allGather(x.data(), y.data(), 10,
                                                     Type::kF32, {"weights"}));
    }
    QWEN35_RETURN_IF_ERROR(world.all().allReduce(x.data(), y.data(),
                                                 static_cast<int64_t>(x.size()),
                                                 Type::kF32, {}, {"grads"}));
    QWEN35_RETURN_IF_ERROR(world.all().barrier({"step"}));
  }
  return absl::OkStatus();
}

absl::Status rank(const StartOptions &options, const std::string &what) {
  absl::StatusOr<Launch> launch = readEnvironment();
  QWEN35_RETURN_IF_ERROR(launch.status());
  absl::StatusOr<std::unique_ptr<World>> world = start(options, *launch);
  QWEN35_RETURN_IF_ERROR(world.status());
  absl::Status status =
      what == "check" ? checkCollectives(**world) : steps(**world);
  if (status.ok() && what == "check")
    status = checkOrder(**world);
  if (status.ok())
    status = (*world)->finish();
  if (!status.ok())
    (*world)->abort(status);
  else
    std::printf("rank %d of %d ok\n", (*world)->rank(), (*world)->size());
  return status;
}

} // namespace

int main(int argc, char **argv) {
  StartOptions options;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (!absl::StartsWith(word, "--")) {
      words.push_back(word);
      continue;
    }
    std::string value = ++i < argc ? argv[i] : "";
    size_t equals = value.find('=');
    if (word == "--agree")
      options.agree.emplace_back(value.substr(0, equals),
                                 value.substr(equals + 1));
    else if (word == "--ranks")
      options.ranks = std::atoi(value.c_str());
    else if (word == "--silence")
      options.silenceSeconds = std::atof(value.c_str());
    else if (word == "--limit")
      options.callSeconds = std::atof(value.c_str());
    else if (word == "--join")
      options.joinSeconds = std::atof(value.c_str());
    else
      return 64;
  }
  if (words.empty() || (words[0] == "fault" && words.size() != 3))
    return 64;
  if (words[0] == "fault") {
    kind = words[1];
    victim = std::atoi(words[2].c_str());
  }
  absl::Status status = rank(options, words[0]);
  if (status.ok())
    return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 3;
}
