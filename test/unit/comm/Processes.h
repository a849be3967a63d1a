#ifndef QWEN35_TEST_UNIT_COMM_PROCESSES_H
#define QWEN35_TEST_UNIT_COMM_PROCESSES_H

#include "test/support/Command.h"
#include "gtest/gtest.h"

#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace qwen35::test {

/// A process that was started, and how it ended.
struct Ended {
  int status = -1; // exit status; 128 + signal; -1: it had to be killed
  std::string output;
  double seconds = 0; // from the start of all to its end
};

struct Started {
  std::vector<std::string> command;
  std::map<std::string, std::string> variables;
};

/// Runs processes side by side. Those that have not ended when all but `hung`
/// have, or after `limit` seconds, are killed.
inline std::vector<Ended> runTogether(const std::vector<Started> &all,
                                      size_t hung = 0, double limit = 60) {
  TempFolder folder;
  std::vector<Ended> ended(all.size());
  std::vector<pid_t> pids;
  auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  for (size_t i = 0; i < all.size(); ++i) {
    std::string file = folder / std::to_string(i);
    std::vector<char *> words;
    for (const std::string &word : all[i].command)
      words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
      for (const auto &[name, value] : all[i].variables)
        setenv(name.c_str(), value.c_str(), 1);
      int out = open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(out, 1);
      dup2(out, 2);
      execv(words[0], words.data());
      _exit(127);
    }
    pids.push_back(pid);
  }
  size_t left = all.size();
  bool killed = false;
  while (left > 0) {
    if (!killed && (left <= hung || seconds() > limit)) {
      killed = true;
      for (size_t i = 0; i < pids.size(); ++i)
        if (pids[i] > 0)
          kill(pids[i], SIGKILL);
    }
    for (size_t i = 0; i < pids.size(); ++i) {
      int status = 0;
      if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i])
        continue;
      ended[i].status = killed              ? -1
                        : WIFEXITED(status) ? WEXITSTATUS(status)
                                            : 128 + WTERMSIG(status);
      ended[i].seconds = seconds();
      pids[i] = 0;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (size_t i = 0; i < all.size(); ++i)
    ended[i].output = readFile(folder / std::to_string(i));
  return ended;
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_COMM_PROCESSES_H
