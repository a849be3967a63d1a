#include "Diagnostics.h"

#include "frontend/config/ModelFiles.h"
#include "frontend/config/Parameters.h"
#include "frontend/config/Presets.h"
#include "frontend/model/TrainModel.h"

#include "dialect/Qwen35/IR/Qwen35Dialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <gtest/gtest.h>

namespace qwen35::test {
namespace {

class TrainModelTest : public ::testing::TestWithParam<std::string> {
protected:
  mlir::MLIRContext context;
  Diagnostics diagnostics{context};
};

/// What a row of the parameter table and a `qwen35.param` have in common.
std::string describe(llvm::StringRef name, llvm::ArrayRef<int64_t> shape,
                     llvm::StringRef init, bool decay, llvm::StringRef type) {
  std::string text = name.str() + " [";
  for (int64_t size : shape)
    text += std::to_string(size) + " ";
  return text + "] " + init.str() + (decay ? " decay " : " ") + type.str();
}

// The model declares its parameters itself; the table is a second statement of
// the same facts, from the shapes alone. They must not drift apart.
TEST_P(TrainModelTest, ParametersAreThoseOfTheTable) {
  std::string name = GetParam();
  if (llvm::StringRef(name).contains("golden"))
    name = std::string(QWEN35_SOURCE_DIR) + "/test/" + name;
  ModelConfig config = llvm::cantFail(parseModel(name)).config;
  auto module = buildTrainModel(context, config, {.tokens = 64, .maxDocs = 3});
  ASSERT_TRUE(module);

  std::vector<std::string> built, expected;
  module->walk([&](ParamOp param) {
    auto type = mlir::cast<mlir::RankedTensorType>(param.getResult().getType());
    built.push_back(describe(param.getName(), type.getShape(), param.getInit(),
                             param.getDecay(), param.getFileDtype()));
  });
  for (const ParameterSpec &row : parameterTable(config))
    expected.push_back(
        describe(row.name, row.shape, row.init, row.decay,
                 row.fileType == FileType::Float32 ? "f32" : "bf16"));
  EXPECT_EQ(built, expected);
  EXPECT_TRUE(diagnostics.messages.empty());

  int64_t linear = 0, full = 0;
  module->walk([&](GatedDeltaRuleOp) { ++linear; });
  module->walk([&](AttentionOp) { ++full; });
  EXPECT_EQ(linear, config.numLayers(LayerType::LinearAttention));
  EXPECT_EQ(full, config.numLayers(LayerType::FullAttention));
}

std::vector<std::string> allModels() {
  std::vector<std::string> names = {"golden/dense", "golden/dense_tied",
                                    "golden/moe", "golden/real_heads"};
  for (llvm::StringRef preset : presetNames())
    names.push_back(preset.str());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, TrainModelTest, ::testing::ValuesIn(allModels()),
                         [](const auto &info) {
                           std::string name = info.param;
                           for (char &c : name)
                             if (!llvm::isAlnum(c))
                               c = '_';
                           return name;
                         });

TEST_F(TrainModelTest, RefusesWhatTheConfigCheckRefuses) {
  ModelConfig config = llvm::cantFail(presetConfig("debug"));
  config.numKeyValueHeads = 3;
  EXPECT_FALSE(buildTrainModel(context, config, {.tokens = 64, .maxDocs = 3}));
  EXPECT_EQ(diagnostics.messages,
            std::vector<std::string>{
                "num_attention_heads: found 4, expected a multiple of "
                "num_key_value_heads, which is 3"});
}

TEST_F(TrainModelTest, OnlyLinearLayersNeedNoRotaryTable) {
  ModelConfig config = llvm::cantFail(presetConfig("debug"));
  config.layerTypes = {LayerType::LinearAttention};
  auto module = buildTrainModel(context, config, {.tokens = 64, .maxDocs = 3});
  ASSERT_TRUE(module);
  module->walk([](RopeTableOp) { ADD_FAILURE(); });
}

} // namespace
} // namespace qwen35::test
