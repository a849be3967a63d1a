#ifndef QWEN35_TEST_SUPPORT_COMMAND_H
#define QWEN35_TEST_SUPPORT_COMMAND_H

#include "gtest/gtest.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace qwen35::test {

/// What a command printed (both streams together) and how it ended.
struct CommandResult {
  int status = -1; // exit status; 128 + signal if a signal ended it
  std::string output;

  bool ok() const { return status == 0; }
};

/// Runs a shell command and waits for it.
inline CommandResult run(const std::string &command) {
  CommandResult result;
  FILE *pipe = popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (!pipe) {
    ADD_FAILURE() << "cannot start: " << command;
    return result;
  }
  char buffer[4096];
  size_t count;
  while ((count = fread(buffer, 1, sizeof(buffer), pipe)) > 0)
    result.output.append(buffer, count);
  int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status)
                                    : 128 + WTERMSIG(status);
  return result;
}

/// A tool of this build.
inline std::string tool(const std::string &name) {
  return std::string(QWEN35_BINARY_DIR) + "/bin/" + name;
}

/// A folder of its own that goes away with the object.
class TempFolder {
public:
  TempFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "qwen35-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      ADD_FAILURE() << "cannot make a folder like " << pattern;
    root = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  TempFolder(const TempFolder &) = delete;
  TempFolder &operator=(const TempFolder &) = delete;

  std::string operator/(const std::string &name) const {
    return root + "/" + name;
  }

private:
  std::string root;
};

inline std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void writeFile(const std::string &path, const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

} // namespace qwen35::test

#endif // QWEN35_TEST_SUPPORT_COMMAND_H
