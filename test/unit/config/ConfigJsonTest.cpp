#include "ConfigTestUtils.h"

#include "frontend/config/Presets.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace qwen35::test {
namespace {

// A flat file with only what has no default.
constexpr char kMinimal[] = R"({
  "model_type": "qwen3_5_text",
  "rope_parameters": {"rope_theta": 10000000}
})";

// The shape of a published composite file (0.8B), vision included.
constexpr char kComposite[] = R"({
  "architectures": ["Qwen3_5ForConditionalGeneration"],
  "image_token_id": 248056,
  "language_model_only": false,
  "model_type": "qwen3_5",
  "text_config": {
    "attention_bias": false,
    "attention_dropout": 0.0,
    "attn_output_gate": true,
    "dtype": "bfloat16",
    "eos_token_id": 248044,
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3584,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": false,
    "num_attention_heads": 8,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "output_gate_type": "swish",
    "mamba_ssm_dtype": "float32",
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": true,
    "use_cache": true,
    "vocab_size": 248320,
    "rope_parameters": {
      "mrope_interleaved": true,
      "mrope_section": [11, 11, 10],
      "rope_type": "default",
      "rope_theta": 10000000,
      "partial_rotary_factor": 0.25
    }
  },
  "tie_word_embeddings": true,
  "transformers_version": "4.57.0.dev0",
  "video_token_id": 248057,
  "vision_config": {"depth": 12, "model_type": "qwen3_5"},
  "vision_end_token_id": 248054,
  "vision_start_token_id": 248053
})";

/// `kMinimal` or `kComposite` after one edit at the given path of keys;
/// `value` is JSON text, "" removes the key.
std::string edited(const char *base, std::vector<std::string> path,
                   const std::string &value) {
  llvm::json::Value root = llvm::cantFail(llvm::json::parse(base));
  llvm::json::Object *object = root.getAsObject();
  for (size_t i = 0; i + 1 < path.size(); ++i)
    object = object->getObject(path[i]);
  if (value.empty())
    object->erase(path.back());
  else
    (*object)[path.back()] = llvm::cantFail(llvm::json::parse(value));
  std::string text;
  llvm::raw_string_ostream(text) << root;
  return text;
}

std::string minimalWith(const std::string &key, const std::string &value) {
  return edited(kMinimal, {key}, value);
}

std::string refusal(const std::string &text) {
  return errorOf(parseConfigJson(text));
}

TEST(ConfigJsonTest, CompositeFileEqualsThePreset) {
  ParsedConfig parsed = valueOf(parseConfigJson(kComposite));
  EXPECT_EQ(parsed.config, valueOf(presetConfig("0.8b")));
  EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings.front();
}

TEST(ConfigJsonTest, CompositeMoeFileEqualsThePreset) {
  // Written for this test from the table of published sizes.
  constexpr char text[] = R"({
    "model_type": "qwen3_5_moe", "tie_word_embeddings": false,
    "dtype": "bfloat16", "vision_config": {},
    "text_config": {
      "model_type": "qwen3_5_moe_text", "vocab_size": 248320,
      "hidden_size": 4096, "num_hidden_layers": 60,
      "num_attention_heads": 32, "num_key_value_heads": 2,
      "linear_num_value_heads": 64, "num_experts": 512,
      "num_experts_per_tok": 10, "moe_intermediate_size": 1024,
      "shared_expert_intermediate_size": 1024, "eos_token_id": 248044,
      "max_position_embeddings": 262144, "output_router_logits": false,
      "router_aux_loss_coef": 0.001, "intermediate_size": 5632,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000}
    }})";
  ParsedConfig parsed = valueOf(parseConfigJson(text));
  EXPECT_EQ(parsed.config, valueOf(presetConfig("397b-a17b")));
  EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings.front();
}

TEST(ConfigJsonTest, MissingFieldsTakeTheDefaultsOfTheKind) {
  ModelConfig dense = valueOf(parseConfigJson(kMinimal)).config;
  ModelConfig expected;
  expected.layerTypes = layerPattern(32, 4);
  EXPECT_EQ(dense, expected);
  EXPECT_EQ(dense.hiddenSize, 4096);
  EXPECT_EQ(dense.rotaryDims(), 64);

  ModelConfig moe =
      valueOf(
          parseConfigJson(minimalWith("model_type", "\"qwen3_5_moe_text\"")))
          .config;
  EXPECT_TRUE(moe.moe);
  EXPECT_EQ(moe.hiddenSize, 2048);
  EXPECT_EQ(moe.numLayers(), 40);
  EXPECT_EQ(moe.numKeyValueHeads, 2);
  EXPECT_EQ(moe.intermediateSize, 0);
  EXPECT_EQ(moe.numExperts, 256);
  EXPECT_EQ(moe.numExpertsPerTok, 8);
  EXPECT_EQ(moe.moeIntermediateSize, 512);
  EXPECT_EQ(moe.sharedExpertIntermediateSize, 512);
}

TEST(ConfigJsonTest, NullCountsAsMissing) {
  EXPECT_EQ(
      valueOf(parseConfigJson(minimalWith("head_dim", "null"))).config.headDim,
      256);
}

TEST(ConfigJsonTest, LayerTypesComeFromTheListOrTheInterval) {
  std::string text = edited(minimalWith("num_hidden_layers", "3").c_str(),
                            {"full_attention_interval"}, "2");
  using enum LayerType;
  EXPECT_EQ(valueOf(parseConfigJson(text)).config.layerTypes,
            (std::vector{LinearAttention, FullAttention, LinearAttention}));

  text = edited(text.c_str(), {"layer_types"},
                R"(["full_attention", "full_attention", "linear_attention"])");
  EXPECT_EQ(valueOf(parseConfigJson(text)).config.layerTypes,
            (std::vector{FullAttention, FullAttention, LinearAttention}));
}

TEST(ConfigJsonTest, LegacyRopeKeysAreRead) {
  constexpr char text[] = R"({
    "model_type": "qwen3_5_text", "rope_theta": 5000000,
    "partial_rotary_factor": 0.5,
    "rope_scaling": {"type": "default", "mrope_section": [22, 21, 21]}
  })";
  ModelConfig config = valueOf(parseConfigJson(text)).config;
  EXPECT_EQ(config.ropeTheta, 5e6);
  EXPECT_EQ(config.rotaryDims(), 128);
  EXPECT_EQ(config.mropeSection, (std::array<int64_t, 3>{22, 21, 21}));
}

TEST(ConfigJsonTest, SharedKeysFallBackToTheTopLevel) {
  std::string text =
      edited(kComposite, {"text_config", "tie_word_embeddings"}, "");
  text = edited(text.c_str(), {"text_config", "dtype"}, "");
  text = edited(text.c_str(), {"torch_dtype"}, "\"float32\"");
  ParsedConfig parsed = valueOf(parseConfigJson(text));
  EXPECT_TRUE(parsed.config.tieWordEmbeddings);
  EXPECT_EQ(parsed.config.dtype, FileType::Float32);
  EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings.front();
}

TEST(ConfigJsonTest, OtherKeysDoNotFallBackToTheTopLevel) {
  std::string text = edited(kComposite, {"text_config", "hidden_size"}, "");
  text = edited(text.c_str(), {"hidden_size"}, "1024");
  ParsedConfig parsed = valueOf(parseConfigJson(text));
  EXPECT_EQ(parsed.config.hiddenSize, 4096); // The default.
  EXPECT_EQ(parsed.warnings,
            std::vector<std::string>{
                "hidden_size: not a key of this model, ignored"});
}

TEST(ConfigJsonTest, DisagreeingTiesAreAWarningAndTheTextWins) {
  ParsedConfig parsed = valueOf(
      parseConfigJson(edited(kComposite, {"tie_word_embeddings"}, "false")));
  EXPECT_TRUE(parsed.config.tieWordEmbeddings);
  EXPECT_EQ(parsed.warnings,
            std::vector<std::string>{
                "tie_word_embeddings: found false at the top level, overruled "
                "by true in text_config"});
}

TEST(ConfigJsonTest, UnknownKeysAreListedWithTheNearestOne) {
  std::string text = edited(kMinimal, {"hiden_size"}, "64");
  text = edited(text.c_str(), {"sliding_window"}, "1024");
  text = edited(text.c_str(), {"rope_parameters", "factor"}, "4.0");
  EXPECT_EQ(valueOf(parseConfigJson(text)).warnings,
            (std::vector<std::string>{
                "hiden_size: not a key of this model, ignored; did you mean "
                "hidden_size?",
                "sliding_window: not a key of this model, ignored",
                "rope_parameters.factor: not a key of this model, ignored",
            }));
}

TEST(ConfigJsonTest, OtherWarnings) {
  auto only = [](const std::string &text) {
    std::vector<std::string> warnings = valueOf(parseConfigJson(text)).warnings;
    EXPECT_EQ(warnings.size(), 1u);
    return warnings.empty() ? "" : warnings.front();
  };
  EXPECT_EQ(only(minimalWith("pad_token_id", "7")),
            "pad_token_id: found 7; its embedding row is trained like any "
            "other, transformers would keep it out of the lookup's gradient");
  EXPECT_EQ(only(minimalWith("dtype", "\"float16\"")),
            "dtype: float16 is not written; a checkpoint without an original "
            "to follow is written as float32");
  EXPECT_EQ(only(minimalWith("mlp_only_layers", "[0]")),
            "mlp_only_layers: found [0], ignored: every layer of this family "
            "has the same kind of feed-forward block");
}

TEST(ConfigJsonTest, EndTokensMayBeAList) {
  EXPECT_EQ(valueOf(parseConfigJson(minimalWith("eos_token_id", "[3, 5]")))
                .config.eosTokenIds,
            (std::vector<int64_t>{3, 5}));
}

struct Refusal {
  const char *name;
  const char *base;
  std::vector<std::string> path;
  const char *value;
  const char *message;

  friend std::ostream &operator<<(std::ostream &out, const Refusal &refused) {
    return out << refused.name;
  }
};

class ConfigRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusalTest, NamesKeyFoundAndExpected) {
  const Refusal &refused = GetParam();
  EXPECT_EQ(refusal(edited(refused.base, refused.path, refused.value)),
            refused.message);
}

const Refusal kRefusals[] = {
    {"ModelType",
     kMinimal,
     {"model_type"},
     "\"llama\"",
     "model_type: found \"llama\", expected qwen3_5, qwen3_5_text, qwen3_5_moe "
     "or qwen3_5_moe_text"},
    {"NoModelType",
     kMinimal,
     {"model_type"},
     "",
     "model_type: not found, expected qwen3_5, qwen3_5_text, qwen3_5_moe or "
     "qwen3_5_moe_text"},
    {"InnerModelType",
     kComposite,
     {"text_config", "model_type"},
     "\"qwen3_next\"",
     "text_config.model_type: found \"qwen3_next\", expected qwen3_5, "
     "qwen3_5_text, qwen3_5_moe or qwen3_5_moe_text"},
    {"KindsDisagree",
     kComposite,
     {"model_type"},
     "\"qwen3_5_moe\"",
     "model_type: found \"qwen3_5_moe\" outside and \"qwen3_5_text\" in "
     "text_config, expected both to be dense or both to be MoE"},
    {"TextConfigKind",
     kComposite,
     {"text_config"},
     "3",
     "text_config: found 3, expected an object"},
    {"AttnOutputGate",
     kComposite,
     {"text_config", "attn_output_gate"},
     "false",
     "text_config.attn_output_gate: found false, expected true: attention of "
     "this family is always gated"},
    {"OutputGateType",
     kMinimal,
     {"output_gate_type"},
     "\"sigmoid\"",
     "output_gate_type: found \"sigmoid\", expected \"swish\" or \"silu\", the "
     "gate of the GatedDeltaNet norm"},
    {"HiddenAct",
     kMinimal,
     {"hidden_act"},
     "\"gelu\"",
     "hidden_act: found \"gelu\", expected \"silu\", the activation of this "
     "family"},
    {"AttentionBias",
     kMinimal,
     {"attention_bias"},
     "true",
     "attention_bias: found true, expected false: biases of q, k, v and o are "
     "not implemented"},
    {"AttentionDropout",
     kMinimal,
     {"attention_dropout"},
     "0.5",
     "attention_dropout: found 0.5, expected 0: dropout is not implemented"},
    {"Quantized",
     kMinimal,
     {"quantization_config"},
     "{}",
     "quantization_config: found {}, expected none: train from the bf16 "
     "release, quantized weights are not a training format"},
    {"ValueHeads",
     kMinimal,
     {"linear_num_value_heads"},
     "24",
     "linear_num_value_heads: found 24, expected a multiple of "
     "linear_num_key_heads, which is 16"},
    {"QueryHeads",
     kMinimal,
     {"num_key_value_heads"},
     "3",
     "num_attention_heads: found 16, expected a multiple of "
     "num_key_value_heads, which is 3"},
    {"OddRotaryDims",
     kMinimal,
     {"head_dim"},
     "20",
     "partial_rotary_factor: head_dim 20 times 0.25 gives 5 rotary dims, "
     "expected an even number of at least 2"},
    {"NoRotaryDims",
     kMinimal,
     {"head_dim"},
     "4",
     "partial_rotary_factor: head_dim 4 times 0.25 gives 1 rotary dims, "
     "expected an even number of at least 2"},
    {"RotaryFactor",
     kMinimal,
     {"partial_rotary_factor"},
     "1.5",
     "partial_rotary_factor: found 1.5, expected a number above 0 and up to "
     "1"},
    {"LayerTypesLength",
     kMinimal,
     {"layer_types"},
     "[\"full_attention\"]",
     "layer_types: found 1 entries, expected num_hidden_layers, which is 32"},
    {"LayerTypesKind",
     kMinimal,
     {"layer_types"},
     "\"full_attention\"",
     "layer_types: found \"full_attention\", expected a list with one entry "
     "per layer"},
    {"Interval",
     kMinimal,
     {"full_attention_interval"},
     "0",
     "full_attention_interval: found 0, expected an integer of at least 1"},
    {"Layers",
     kMinimal,
     {"num_hidden_layers"},
     "1000000000",
     "num_hidden_layers: found 1000000000, expected an integer from 1 to "
     "4096"},
    {"Yarn",
     kMinimal,
     {"rope_parameters", "rope_type"},
     "\"yarn\"",
     "rope_parameters.rope_type: found \"yarn\", expected \"default\", the "
     "only rotary type that is implemented (yarn and the others are not)"},
    {"NoTheta",
     kMinimal,
     {"rope_parameters", "rope_theta"},
     "",
     "rope_parameters.rope_theta: not found, expected the base of the rotary "
     "frequencies (published models have 10000000); it has no default"},
    {"NoRope",
     kComposite,
     {"text_config", "rope_parameters"},
     "",
     "text_config.rope_parameters.rope_theta: not found, expected the base of "
     "the rotary frequencies (published models have 10000000); it has no "
     "default"},
    {"TwoThetas",
     kMinimal,
     {"rope_theta"},
     "10000",
     "rope_theta: found 10000, but rope_parameters.rope_theta is 10000000, "
     "expected the two to agree"},
    {"TwoFactors",
     kComposite,
     {"text_config", "partial_rotary_factor"},
     "1",
     "text_config.partial_rotary_factor: found 1, but "
     "text_config.rope_parameters.partial_rotary_factor is 0.25, expected the "
     "two to agree"},
    {"TwoRopeObjects",
     kMinimal,
     {"rope_scaling"},
     "{}",
     "rope_scaling: found together with rope_parameters, expected only one of "
     "the two"},
    {"MropeSum",
     kMinimal,
     {"rope_parameters", "mrope_section"},
     "[8, 8, 8]",
     "mrope_section: [8, 8, 8] has the sum 24, expected 32, half of the 64 "
     "rotary dims"},
    {"MropeLength",
     kMinimal,
     {"rope_parameters", "mrope_section"},
     "[16, 16]",
     "rope_parameters.mrope_section: found [16,16], expected a list of three "
     "integers"},
    {"MropeLayout",
     kMinimal,
     {"rope_parameters", "mrope_interleaved"},
     "false",
     "rope_parameters.mrope_interleaved: found false, expected true, the only "
     "layout of this family"},
    {"NegativeSize",
     kMinimal,
     {"hidden_size"},
     "-3",
     "hidden_size: found -3, expected an integer from 1 to 1048576"},
    {"ZeroSize",
     kMinimal,
     {"vocab_size"},
     "0",
     "vocab_size: found 0, expected an integer from 1 to 2147483648"},
    {"FractionalSize",
     kMinimal,
     {"head_dim"},
     "2.5",
     "head_dim: found 2.5, expected an integer"},
    {"SizeKind",
     kMinimal,
     {"head_dim"},
     "\"256\"",
     "head_dim: found \"256\", expected an integer"},
    {"BoolKind",
     kMinimal,
     {"tie_word_embeddings"},
     "1",
     "tie_word_embeddings: found 1, expected true or false"},
    {"Eps",
     kMinimal,
     {"rms_norm_eps"},
     "0",
     "rms_norm_eps: found 0, expected a number greater than zero"},
    {"InitializerRange",
     kMinimal,
     {"initializer_range"},
     "-0.5",
     "initializer_range: found -0.5, expected a number greater than zero"},
    {"Dtype",
     kMinimal,
     {"dtype"},
     "\"int8\"",
     "dtype: found \"int8\", expected \"bfloat16\", \"float32\" or "
     "\"float16\""},
    {"PadToken",
     kMinimal,
     {"pad_token_id"},
     "248320",
     "pad_token_id: found 248320, expected an id from 0 to 248319"},
    {"EosToken",
     kMinimal,
     {"eos_token_id"},
     "[-1]",
     "eos_token_id: found -1, expected an id from 0 to 248319"},
};

INSTANTIATE_TEST_SUITE_P(All, ConfigRefusalTest, ::testing::ValuesIn(kRefusals),
                         [](const auto &info) { return info.param.name; });

TEST(ConfigJsonTest, RefusesMoreExpertsPerTokenThanExperts) {
  std::string text = minimalWith("model_type", "\"qwen3_5_moe_text\"");
  text = edited(text.c_str(), {"num_experts"}, "4");
  EXPECT_EQ(refusal(text), "num_experts_per_tok: found 8, expected at most "
                           "num_experts, which is 4");
}

TEST(ConfigJsonTest, RefusesSizesWhoseProductOverflows) {
  std::string text = minimalWith("model_type", "\"qwen3_5_moe_text\"");
  for (const char *key :
       {"num_experts", "moe_intermediate_size", "hidden_size"})
    text = edited(text.c_str(), {key}, "1048576");
  EXPECT_NE(refusal(text).find("more than 64 bits can count"),
            std::string::npos);
}

TEST(ConfigJsonTest, RefusesWhatIsNotAJsonObject) {
  EXPECT_EQ(refusal("[1, 2]"),
            "found [1,2], expected a JSON object at the top of the file");
  EXPECT_NE(refusal("{\"a\": ").find("not valid JSON: "), std::string::npos);
  EXPECT_NE(refusal("").find("not valid JSON: "), std::string::npos);
  EXPECT_EQ(refusal(std::string(1000000, '[')),
            "brackets nest deeper than 64, which no config.json does");
}

// Damage is an error or another valid config, never a crash; and whatever is
// accepted has passed the check.
TEST(ConfigJsonTest, SurvivesEveryDamagedByteAndEveryTruncation) {
  auto tryText = [](const std::string &text) {
    llvm::Expected<ParsedConfig> parsed = parseConfigJson(text);
    if (!parsed)
      return llvm::consumeError(parsed.takeError());
    EXPECT_EQ(llvm::toString(checkConfig(parsed->config)), "");
  };
  std::string text = kComposite;
  for (size_t i = 0; i < text.size(); ++i) {
    tryText(text.substr(0, i));
    for (char c : {'"', '9', '-', '[', '}', 'e', '\0', '\xff'}) {
      std::string damaged = text;
      damaged[i] = c;
      tryText(damaged);
    }
  }
}

TEST(ConfigJsonTest, WrittenTextReadsBackEqual) {
  for (llvm::StringRef name : presetNames()) {
    ModelConfig config = valueOf(presetConfig(name));
    ParsedConfig parsed = valueOf(parseConfigJson(toConfigJson(config)));
    EXPECT_EQ(parsed.config, config) << name.str();
    EXPECT_TRUE(parsed.warnings.empty()) << parsed.warnings.front();
  }
  ModelConfig odd = valueOf(presetConfig("debug"));
  odd.layerTypes = {LayerType::FullAttention, LayerType::LinearAttention};
  odd.padTokenId = 1;
  odd.bosTokenId = 2;
  odd.eosTokenIds = {3, 4};
  odd.ropeTheta = 12345.5;
  odd.rmsNormEps = 1e-5;
  EXPECT_EQ(valueOf(parseConfigJson(toConfigJson(odd))).config, odd);
}

TEST(ConfigJsonTest, GoldenFilesHaveTheSizesOfTheirCase) {
  auto golden = [](const std::string &name) {
    ParsedConfig parsed =
        valueOf(parseConfigJson(fileText(goldenPath(name) + "/config.json")));
    EXPECT_TRUE(parsed.warnings.empty())
        << name << ": " << parsed.warnings.front();
    return parsed.config;
  };
  ModelConfig dense;
  dense.vocabSize = 256;
  dense.hiddenSize = 64;
  dense.layerTypes = layerPattern(4, 4);
  dense.numAttentionHeads = 4;
  dense.numKeyValueHeads = 2;
  dense.headDim = 32;
  dense.linearKeyHeadDim = 16;
  dense.linearValueHeadDim = 16;
  dense.linearNumKeyHeads = 2;
  dense.linearNumValueHeads = 4;
  dense.intermediateSize = 96;
  EXPECT_EQ(golden("dense"), dense);

  ModelConfig tied = dense;
  tied.vocabSize = 200;
  tied.linearNumKeyHeads = 4;
  tied.tieWordEmbeddings = true;
  EXPECT_EQ(golden("dense_tied"), tied);

  ModelConfig moe = dense;
  moe.moe = true;
  moe.intermediateSize = 0;
  moe.numExperts = 8;
  moe.numExpertsPerTok = 2;
  moe.moeIntermediateSize = 48;
  moe.sharedExpertIntermediateSize = 48;
  moe.routerAuxLossCoef = 0.01;
  EXPECT_EQ(golden("moe"), moe);

  ModelConfig heads = dense;
  heads.vocabSize = 192;
  heads.numAttentionHeads = 2;
  heads.numKeyValueHeads = 1;
  heads.headDim = 256;
  heads.linearKeyHeadDim = 128;
  heads.linearValueHeadDim = 128;
  heads.linearNumKeyHeads = 1;
  heads.linearNumValueHeads = 2;
  heads.intermediateSize = 128;
  heads.tieWordEmbeddings = true;
  EXPECT_EQ(golden("real_heads"), heads);
}

} // namespace
} // namespace qwen35::test
