#include "tools/qwen35-plan/Hardware.h"

#include <gtest/gtest.h>

namespace qwen35::plan {
namespace {

std::string errorOf(const std::string &text) {
  absl::StatusOr<Hardware> read = parseHardware(text, "x.toml");
  EXPECT_FALSE(read.ok());
  return std::string(read.status().message());
}

std::string h200() { return builtInHardware().at("h200"); }

/// The built-in text with one piece replaced.
std::string with(const std::string &from, const std::string &to) {
  std::string text = h200();
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HardwareTest, BuiltInFilesAreRead) {
  for (const auto &[name, text] : builtInHardware()) {
    absl::StatusOr<Hardware> read = loadHardware(name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->gpusPerNode, 8);
    EXPECT_EQ(read->peakTflops, 989.5);
    EXPECT_EQ(read->classes.front().name, "rest");
  }
}

TEST(HardwareTest, TheLongestPatternNamesTheClass) {
  Hardware h = *loadHardware("h200");
  EXPECT_EQ(h.classOf("linear", "").name, "product");
  EXPECT_EQ(h.classOf("attention", "attention").name, "attention");
  EXPECT_EQ(h.classOf("attention_bwd", "attention_delta").name,
            "attention_bwd");
  EXPECT_EQ(h.classOf("gdn_local_bwd", "gdn_local_bwd").name, "gdn");
  EXPECT_EQ(h.classOf("gdn_scan_bwd", "gdn_scores").name, "gdn_scan");
  EXPECT_EQ(h.classOf("swiglu", "swiglu").name, "rest");
}

TEST(HardwareTest, ErrorsNameLineKeyAndExpectation) {
  EXPECT_EQ(errorOf(with("nvlink_gbs = 370", "nvlink_gbs = 0")),
            "x.toml:13: network.nvlink_gbs is 0, expected a number greater "
            "than 0");
  EXPECT_EQ(errorOf(with("nvlink_us", "nvlink_ms")).substr(0, 44),
            "x.toml:11: network.nvlink_us is missing, exp");
  EXPECT_EQ(errorOf(with("[gpu]", "[gpu]\ncolour = 1")).substr(0, 37),
            "x.toml:6: unknown key gpu.colour, exp");
  EXPECT_EQ(errorOf(with("planned_gb = 145", "planned_gb = 150")),
            "x.toml: gpu.planned_gb is 150, expected at most gpu.memory_gb, "
            "149");
  EXPECT_NE(errorOf(with("[class.rest]", "[class.others]"))
                .find("class.rest is missing"),
            std::string::npos);
  EXPECT_NE(errorOf("name = ").find("x.toml:1: not valid TOML"),
            std::string::npos);
  EXPECT_NE(errorOf(with("ops = [\"lm_*\"]", "ops = [1]"))
                .find("class.loss.ops is 1, expected a list of kernels"),
            std::string::npos);
}

TEST(HardwareTest, AFileThatIsNotThereNamesWhatIs) {
  EXPECT_EQ(std::string(loadHardware("b200").status().message()),
            "--hardware is \"b200\" (No such file or directory), expected "
            "h100, h200, or a TOML file");
}

} // namespace
} // namespace qwen35::plan
