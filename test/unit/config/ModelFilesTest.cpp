#include "ConfigTestUtils.h"

#include "frontend/config/ModelFiles.h"
#include "frontend/config/Presets.h"

#include <filesystem>

namespace qwen35::test {
namespace {

namespace fs = std::filesystem;

class ModelFilesTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto *info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::path(::testing::TempDir()) /
             (std::string("model_files_") + info->name());
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string write(const std::string &name, const std::string &text) {
    fs::path path = folder / name;
    std::ofstream(path) << text;
    return path.string();
  }

  fs::path folder;
};

TEST_F(ModelFilesTest, EveryPresetIsAModel) {
  ASSERT_EQ(presetNames().size(), 10u);
  for (llvm::StringRef name : presetNames()) {
    ModelSource source = valueOf(parseModel(name));
    EXPECT_EQ(source.name, name.str());
    EXPECT_EQ(source.directory, "");
    EXPECT_EQ(llvm::toString(checkConfig(source.config)), "") << name.str();
    EXPECT_EQ(valueOf(parseConfigJson(source.configJson)).config,
              source.config);
  }
}

TEST_F(ModelFilesTest, DebugPresetsExerciseEveryGrouping) {
  for (const char *name : {"debug", "debug-moe"}) {
    ModelConfig config = valueOf(presetConfig(name));
    EXPECT_EQ(config.vocabSize, 256); // bytes
    EXPECT_EQ(config.layerTypes, layerPattern(4, 4));
    EXPECT_EQ(config.linearNumValueHeads, 2 * config.linearNumKeyHeads);
    EXPECT_EQ(config.numAttentionHeads, 2 * config.numKeyValueHeads);
    EXPECT_LT(config.rotaryDims(), config.headDim);
    EXPECT_FALSE(config.tieWordEmbeddings);
  }
}

TEST_F(ModelFilesTest, ReadsAFileAndAFolder) {
  std::string text = toConfigJson(valueOf(presetConfig("debug")));
  std::string file = write("config.json", text);
  for (const std::string &argument : {file, folder.string()}) {
    ModelSource source = valueOf(parseModel(argument));
    EXPECT_EQ(source.config, valueOf(presetConfig("debug")));
    EXPECT_EQ(source.name, folder.filename().string());
    EXPECT_EQ(source.configJson, text);
    EXPECT_EQ(fs::path(source.directory), folder);
  }
}

TEST_F(ModelFilesTest, WarningsAndErrorsNameTheFile) {
  std::string file =
      write("config.json", R"({"model_type": "qwen3_5_text", "rope_theta": 1e7,
                         "hiden_size": 3})");
  EXPECT_EQ(valueOf(parseModel(file)).warnings.front(),
            file + ": hiden_size: not a key of this model, ignored; did you "
                   "mean hidden_size?");
  write("config.json", R"({"model_type": "bert"})");
  EXPECT_EQ(errorOf(parseModel(file)),
            file + ": model_type: found \"bert\", expected qwen3_5, "
                   "qwen3_5_text, qwen3_5_moe or qwen3_5_moe_text");
}

TEST_F(ModelFilesTest, UnknownNamesShowTheNearestPresetAndAll) {
  EXPECT_EQ(errorOf(parseModel("35b-a3")),
            "no preset has the name \"35b-a3\"; did you mean 35b-a3b? Presets: "
            "debug debug-moe 0.8b 2b 4b 9b 27b 35b-a3b 122b-a10b 397b-a17b. Or "
            "give the path of a config.json or of a folder that holds one");
  EXPECT_EQ(errorOf(parseModel("gpt-oss-120b-instruct")),
            "no preset has the name \"gpt-oss-120b-instruct\". Presets: debug "
            "debug-moe 0.8b 2b 4b 9b 27b 35b-a3b 122b-a10b 397b-a17b. Or give "
            "the path of a config.json or of a folder that holds one");
}

TEST_F(ModelFilesTest, RefusesPathsThatCannotBeRead) {
  std::string missing = (folder / "config.json").string();
  EXPECT_EQ(errorOf(parseModel(missing)),
            missing + ": No such file or directory");
  EXPECT_EQ(errorOf(parseModel(folder.string())),
            folder.string() + ": the folder has no config.json, expected a "
                              "Hugging Face checkpoint");
  std::string large = write("large.json", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(errorOf(parseModel(large)),
            large + ": found 1048577 bytes, expected a config.json of at most "
                    "1048576");
}

} // namespace
} // namespace qwen35::test
