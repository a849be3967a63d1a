#ifndef QWEN35_TEST_UNIT_CONFIG_CONFIGTESTUTILS_H
#define QWEN35_TEST_UNIT_CONFIG_CONFIGTESTUTILS_H

#include "frontend/config/ConfigJson.h"

#include "llvm/Support/Error.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace qwen35::test {

/// The value, or a failure that shows the error.
template <typename T> T valueOf(llvm::Expected<T> expected) {
  if (expected)
    return std::move(*expected);
  ADD_FAILURE() << llvm::toString(expected.takeError());
  return T();
}

/// The error's text, or a failure when there is none.
template <typename T> std::string errorOf(llvm::Expected<T> expected) {
  if (!expected)
    return llvm::toString(expected.takeError());
  ADD_FAILURE() << "expected an error";
  return "";
}

inline std::string fileText(const std::string &path) {
  std::ifstream stream(path);
  EXPECT_TRUE(stream.good()) << path;
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::string goldenPath(const std::string &name) {
  return std::string(QWEN35_SOURCE_DIR) + "/test/golden/" + name;
}

} // namespace qwen35::test

#endif // QWEN35_TEST_UNIT_CONFIG_CONFIGTESTUTILS_H
