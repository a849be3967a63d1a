#include "ConfigTestUtils.h"

#include "frontend/config/Parameters.h"
#include "frontend/config/Presets.h"

#include "llvm/Support/JSON.h"

#include <map>

namespace qwen35::test {
namespace {

/// The largest published model: flat, no mrope_section, and no preset.
ModelConfig qwen38Config() {
  return valueOf(parseConfigJson(R"({
    "model_type": "qwen3_5_moe_text", "hidden_size": 8192,
    "num_hidden_layers": 92, "num_attention_heads": 64,
    "num_key_value_heads": 4, "linear_num_value_heads": 128,
    "num_experts": 512, "num_experts_per_tok": 10,
    "moe_intermediate_size": 2048, "shared_expert_intermediate_size": 2048,
    "output_gate_type": "swish",
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}})"))
      .config;
}

ModelConfig sizeConfig(const std::string &name) {
  return name == "2.4t-a95b" ? qwen38Config() : valueOf(presetConfig(name));
}

/// One row of the tables of MODEL.md 1.7, 9.2 and 11.2. GFLOP per token.
struct PublishedSize {
  const char *name;
  int64_t attention, gatedDelta, feedForward, total, activeBody, activeWithHead;
  size_t tensors;
  int64_t matmulWeights;
  double weights, core, attention4k, attention32k, total4k, training4k,
      training32k;

  friend std::ostream &operator<<(std::ostream &out, const PublishedSize &s) {
    return out << s.name;
  }
};

const PublishedSize kSizes[] = {
    {"0.8b", 7340544, 10543264, 11010048, 752393024, 498113344, 752393024, 320,
     751894528, 1.504, 0.052, 0.101, 0.805, 1.658, 4.97, 7.09},
    {"2b", 14680576, 21061792, 37748736, 1881825088, 1373265728, 1881825088,
     320, 1881276416, 3.763, 0.052, 0.101, 0.805, 3.916, 11.75, 13.86},
    {"4b", 36700672, 42139840, 70778880, 4205751296, 3570052096, 4205751296,
     426, 4204789760, 8.410, 0.140, 0.269, 2.147, 8.819, 26.46, 32.09},
    {"9b", 58720768, 67403968, 150994944, 8953803264, 6919565824, 7936684544,
     427, 7935623168, 15.871, 0.140, 0.269, 2.147, 16.281, 48.84, 54.48},
    {"27b", 104858112, 115876064, 267386880, 26895998464, 24353201664,
     25624600064, 851, 25621954560, 51.244, 0.418, 0.805, 6.443, 52.472, 157.42,
     174.33},
    {"35b-a3b", 27263488, 33718464, 808978432, 34660610688, 2437870208,
     2946429568, 693, 2945269760, 5.891, 0.174, 0.336, 2.684, 6.402, 19.21,
     26.25},
    {"122b-a10b", 78643712, 88523008, 2426145792, 122111526912, 8245610496,
     9008449536, 831, 9006366720, 18.013, 0.418, 0.805, 6.443, 19.240, 57.72,
     74.63},
    {"397b-a17b", 104858112, 118014208, 6457135104, 396346350336, 15314803456,
     16331922176, 1038, 16329195520, 32.658, 0.523, 1.007, 8.053, 34.193,
     102.58, 123.72},
    {"2.4t-a95b", 419430912, 438387072, 25824337920, 2419804697984, 91219391872,
     93253629312, 1590, 93246423040, 186.493, 1.604, 3.088, 24.697, 191.196,
     573.59, 638.41},
};

class PublishedSizeTest : public ::testing::TestWithParam<PublishedSize> {};

TEST_P(PublishedSizeTest, CountsEqualThePublishedTable) {
  const PublishedSize &size = GetParam();
  ModelConfig config = sizeConfig(size.name);
  ParameterCount count = countParameters(config);
  EXPECT_EQ(count.attention, size.attention);
  EXPECT_EQ(count.gatedDelta, size.gatedDelta);
  EXPECT_EQ(count.feedForward, size.feedForward);
  EXPECT_EQ(count.total, size.total);
  EXPECT_EQ(count.activeBody, size.activeBody);
  EXPECT_EQ(count.activeWithHead, size.activeWithHead);
  EXPECT_EQ(parameterTable(config).size(), size.tensors);
}

TEST_P(PublishedSizeTest, FlopsEqualThePublishedTable) {
  const PublishedSize &size = GetParam();
  ModelConfig config = sizeConfig(size.name);
  constexpr double giga = 1e9;
  ForwardFlops at4k = forwardFlops(config, 4096, DeltaRuleCount::Chunked);
  ForwardFlops at32k = forwardFlops(config, 32768, DeltaRuleCount::Chunked);
  EXPECT_EQ(at4k.weights, 2.0 * double(size.matmulWeights));
  EXPECT_NEAR(at4k.weights / giga, size.weights, 0.00051);
  // The published terms are cut or rounded; one unit of their last digit.
  EXPECT_NEAR(at4k.deltaRule / giga, size.core, 0.001);
  EXPECT_NEAR(at4k.attention / giga, size.attention4k, 0.001);
  EXPECT_NEAR(at32k.attention / giga, size.attention32k, 0.001);
  EXPECT_NEAR(at4k.total() / giga, size.total4k, 0.00051);
  EXPECT_LT(at4k.conv / at4k.total(), 0.0006);
  EXPECT_NEAR(trainingFlops(config, 4096, DeltaRuleCount::Chunked) / giga,
              size.training4k, 0.0051);
  EXPECT_NEAR(trainingFlops(config, 32768, DeltaRuleCount::Chunked) / giga,
              size.training32k, 0.0051);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedSizeTest, ::testing::ValuesIn(kSizes),
                         [](const auto &info) {
                           std::string name = info.param.name;
                           for (char &c : name)
                             if (c == '-' || c == '.')
                               c = '_';
                           return name;
                         });

TEST(ParametersTest, DeltaRuleCountsOfOneHead) {
  ModelConfig config = sizeConfig("0.8b");
  double heads = 18.0 * 16;
  EXPECT_NEAR(forwardFlops(config, 1, DeltaRuleCount::Chunked).deltaRule /
                  heads,
              181589, 1);
  EXPECT_EQ(forwardFlops(config, 1, DeltaRuleCount::Useful).deltaRule / heads,
            8 * 128 * 128);
}

std::map<std::string, ParameterSpec> byName(const ModelConfig &config) {
  std::map<std::string, ParameterSpec> rows;
  for (const ParameterSpec &row : parameterTable(config))
    EXPECT_TRUE(rows.emplace(row.name, row).second) << row.name;
  return rows;
}

TEST(ParametersTest, WorkedShapesOf35B) {
  std::map<std::string, ParameterSpec> rows = byName(sizeConfig("35b-a3b"));
  auto shape = [&](const std::string &name) -> std::vector<int64_t> {
    auto row = rows.find("model.layers." + name);
    if (row == rows.end())
      return {};
    return {row->second.shape.begin(), row->second.shape.end()};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("0.linear_attn.in_proj_qkv.weight"), (Shape{8192, 2048}));
  EXPECT_EQ(shape("0.linear_attn.in_proj_z.weight"), (Shape{4096, 2048}));
  EXPECT_EQ(shape("0.linear_attn.in_proj_b.weight"), (Shape{32, 2048}));
  EXPECT_EQ(shape("0.linear_attn.in_proj_a.weight"), (Shape{32, 2048}));
  EXPECT_EQ(shape("0.linear_attn.conv1d.weight"), (Shape{8192, 1, 4}));
  EXPECT_EQ(shape("0.linear_attn.out_proj.weight"), (Shape{2048, 4096}));
  EXPECT_EQ(shape("0.linear_attn.norm.weight"), (Shape{128}));
  EXPECT_EQ(shape("0.linear_attn.A_log"), (Shape{32}));
  EXPECT_EQ(shape("3.self_attn.q_proj.weight"), (Shape{8192, 2048}));
  EXPECT_EQ(shape("3.self_attn.k_proj.weight"), (Shape{512, 2048}));
  EXPECT_EQ(shape("3.self_attn.v_proj.weight"), (Shape{512, 2048}));
  EXPECT_EQ(shape("3.self_attn.o_proj.weight"), (Shape{2048, 4096}));
  EXPECT_EQ(shape("39.mlp.experts.gate_up_proj"), (Shape{256, 1024, 2048}));
  EXPECT_EQ(shape("39.mlp.experts.down_proj"), (Shape{256, 2048, 512}));
  EXPECT_EQ(shape("39.mlp.shared_expert_gate.weight"), (Shape{1, 2048}));
  EXPECT_EQ(rows.count("lm_head.weight"), 1u);
  EXPECT_EQ(byName(sizeConfig("0.8b")).count("lm_head.weight"), 0u);
}

TEST(ParametersTest, LayersHaveThePublishedNumberOfTensors) {
  ModelConfig dense = sizeConfig("debug"), moe = sizeConfig("debug-moe");
  EXPECT_EQ(layerParameters(dense, 0).size(), 14u);
  EXPECT_EQ(layerParameters(dense, 3).size(), 11u);
  EXPECT_EQ(layerParameters(moe, 0).size(), 18u);
  EXPECT_EQ(layerParameters(moe, 3).size(), 15u);
}

TEST(ParametersTest, InitialValuesFollowTheReference) {
  std::map<std::string, ParameterSpec> rows = byName(sizeConfig("debug-moe"));
  auto init = [&](const std::string &name) {
    return rows.at("model.layers." + name).init;
  };
  EXPECT_EQ(init("0.linear_attn.A_log"), "log_uniform(0.01,16)");
  EXPECT_EQ(init("0.linear_attn.dt_bias"), "ones");
  EXPECT_EQ(init("0.linear_attn.norm.weight"), "ones");
  EXPECT_EQ(init("0.linear_attn.conv1d.weight"), "normal(0.02)");
  EXPECT_EQ(init("0.input_layernorm.weight"), "zeros");
  EXPECT_EQ(init("3.self_attn.q_norm.weight"), "zeros");
  EXPECT_EQ(init("0.mlp.experts.gate_up_proj"), "normal(0.02)");
  EXPECT_EQ(rows.at("model.norm.weight").init, "zeros");
  EXPECT_EQ(rows.at("model.embed_tokens.weight").init, "normal(0.02)");
  EXPECT_EQ(rows.at("lm_head.weight").init, "normal(0.02)");
}

TEST(ParametersTest, TwoTensorsOfALinearLayerStayFloat32) {
  size_t wide = 0;
  for (const ParameterSpec &row : parameterTable(sizeConfig("0.8b"))) {
    bool expected =
        llvm::StringRef(row.name).ends_with("A_log") ||
        llvm::StringRef(row.name).ends_with("linear_attn.norm.weight");
    EXPECT_EQ(row.fileType, expected ? FileType::Float32 : FileType::BFloat16)
        << row.name;
    wide += expected;
  }
  EXPECT_EQ(wide, 36u); // As counted in the published file.
  for (const ParameterSpec &row : parameterTable(sizeConfig("debug")))
    EXPECT_EQ(row.fileType, FileType::Float32) << row.name;
}

/// The reference wrote its own names, in its own order, into case.json.
TEST(ParametersTest, GoldenCasesListTheSameParametersInTheSameOrder) {
  for (const char *name : {"dense", "dense_tied", "moe", "real_heads"}) {
    std::string folder = goldenPath(name);
    ModelConfig config =
        valueOf(parseConfigJson(fileText(folder + "/config.json"))).config;
    std::vector<std::string> decayed, plain;
    for (const ParameterSpec &row : parameterTable(config))
      (row.decay ? decayed : plain).push_back(row.name);

    llvm::json::Value root =
        llvm::cantFail(llvm::json::parse(fileText(folder + "/case.json")));
    auto list = [&](const char *key) {
      std::vector<std::string> names;
      for (const llvm::json::Value &item : *root.getAsObject()->getArray(key))
        names.push_back(item.getAsString()->str());
      return names;
    };
    EXPECT_EQ(decayed, list("decayed")) << name;
    EXPECT_EQ(plain, list("not_decayed")) << name;
  }
}

} // namespace
} // namespace qwen35::test
