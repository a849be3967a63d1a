// A step whose gradient norm is not finite must leave the state alone.

#include "test/support/Command.h"
#include "test/support/Safetensors.h"

#include "gtest/gtest.h"

#include <cstring>
#include <filesystem>

namespace qwen35 {
namespace {

using test::run;
using test::Safetensors;
using test::TempFolder;
using test::tool;

TEST(NonFiniteGuard, StateStaysBitIdentical) {
  TempFolder folder;
  std::string golden = std::string(QWEN35_SOURCE_DIR) + "/test/golden/dense";
  std::filesystem::create_directory(folder / "model");
  std::filesystem::copy(golden + "/config.json", folder / "model/config.json");
  // One weight of the last tensor in the file becomes NaN.
  std::string bytes = test::readFile(golden + "/model.safetensors");
  uint32_t nan = 0x7fc00000;
  std::memcpy(bytes.data() + bytes.size() - 4, &nan, 4);
  test::writeFile(folder / "model/model.safetensors", bytes);

  auto compiled = run(tool("qwen35c") + " " + golden +
                      " --tokens 160 --max-docs 2 -o " + (folder / "step.q35"));
  ASSERT_TRUE(compiled.ok()) << compiled.output;
  auto ran = run(tool("qwen35-run") + " " + (folder / "step.q35") +
                 " --weights " + (folder / "model") + " --batch " + golden +
                 "/golden.safetensors --dump " + (folder / "dump.safetensors") +
                 " --steps 1");
  // The door says what happened, and still writes the dump.
  EXPECT_NE(ran.output.find("not finite"), std::string::npos) << ran.output;

  Safetensors before(folder / "model/model.safetensors");
  Safetensors after(folder / "dump.safetensors");
  int compared = 0;
  for (const std::string &name : before.names()) {
    auto kept = before.reals<float>(name);
    auto now = after.reals<float>("param." + name);
    ASSERT_EQ(kept.size(), now.size()) << name;
    EXPECT_EQ(std::memcmp(kept.data(), now.data(), kept.size() * 4), 0) << name;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

} // namespace
} // namespace qwen35
