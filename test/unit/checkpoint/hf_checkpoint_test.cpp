#include "runtime/checkpoint/hf_checkpoint.h"

#include <cmath>

#include "absl/strings/str_replace.h"
#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

constexpr auto F32 = ElementType::F32;
constexpr auto BF16 = ElementType::BF16;

/// The parameters of a cut-down dense model; `tied` leaves out the head.
std::vector<ParamSpec> denseParams(bool tied = false) {
  std::vector<ParamSpec> params = {
      {"model.embed_tokens.weight", {16, 8}, "normal(0.02)", BF16},
      {"model.layers.0.linear_attn.A_log", {4}, "log_uniform(0.01,16)", F32},
      {"model.layers.0.linear_attn.norm.weight", {2}, "ones", F32},
      {"model.layers.0.linear_attn.conv1d.weight", {6, 1, 4}, "ones", BF16},
      {"model.layers.0.mlp.gate_proj.weight", {12, 8}, "normal(0.02)", BF16},
      {"model.layers.1.input_layernorm.weight", {8}, "zeros", BF16},
      {"model.norm.weight", {8}, "zeros", BF16}};
  if (!tied)
    params.push_back({"lm_head.weight", {16, 8}, "normal(0.02)", BF16});
  return params;
}

/// Tensors for them, each in its own file dtype.
std::vector<MadeTensor> tensorsFor(const std::vector<ParamSpec> &params,
                                   bool composite) {
  std::vector<MadeTensor> tensors;
  for (const ParamSpec &param : params) {
    std::string name = param.name;
    if (composite && name.rfind("model.", 0) == 0)
      name = "model.language_model." + name.substr(6);
    tensors.push_back(makeTensor(name, param.fileType, param.shape));
  }
  return tensors;
}

void expectLoaded(const std::string &folder,
                  const std::vector<ParamSpec> &params,
                  const std::vector<MadeTensor> &tensors) {
  auto checkpoint = HfCheckpoint::open(folder, params);
  ASSERT_OK(checkpoint);
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  for (size_t i = 0; i < params.size(); ++i)
    EXPECT_EQ(weights.arrays[i], floatsOf(tensors[i])) << params[i].name;
}

TEST(HfCheckpointTest, ReadsFlatAndCompositeNames) {
  std::vector<ParamSpec> params = denseParams();
  for (bool composite : {false, true}) {
    TempFolder folder;
    std::vector<MadeTensor> tensors = tensorsFor(params, composite);
    ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
    expectLoaded(folder.path, params, tensors);
    EXPECT_EQ(HfCheckpoint::open(folder.path, params)->composite(), composite);
  }
}

TEST(HfCheckpointTest, ReadsBothShardNamePatternsFromTheIndex) {
  std::vector<ParamSpec> params = denseParams();
  std::vector<MadeTensor> tensors = tensorsFor(params, true);
  for (std::string pattern : {"model-0000$-of-00002.safetensors",
                              "model.safetensors-0000$-of-00002.safetensors"}) {
    TempFolder folder;
    auto shard = [&](const char *number) {
      return absl::StrReplaceAll(pattern, {{"$", number}});
    };
    ASSERT_OK(writeShards(
        folder, {{shard("1"), {tensors.begin(), tensors.begin() + 3}},
                 {shard("2"), {tensors.begin() + 3, tensors.end()}}}));
    expectLoaded(folder.path, params, tensors);
  }
  // One shard with an index is as good as one file without.
  TempFolder folder;
  ASSERT_OK(writeShards(folder, {{"model-00001-of-00001.safetensors", tensors}}));
  expectLoaded(folder.path, params, tensors);
}

// A14: dtypes differ per tensor, and what no step touched comes back the same.
TEST(HfCheckpointTest, A14LoadAndExportReproducesDtypesAndBytes) {
  std::vector<ParamSpec> params = denseParams();
  std::vector<MadeTensor> tensors = tensorsFor(params, true);
  // Values that need all bits of their dtype, and a float64 tensor, which
  // the float32 master weights cannot hold.
  std::vector<double> wide = {0.1, -1e-300, 1e300, std::nan("7"),
                              1.0 / 3, 2, 3, -0.0};
  tensors[5].type = ElementType::F64;
  tensors[5].bytes.assign(reinterpret_cast<char *>(wide.data()), 64);
  std::vector<float> logs = {std::log(0.1f), std::log(0.3f), -4.6051702f, 2.7f};
  tensors[1].bytes.assign(reinterpret_cast<char *>(logs.data()), 16);
  tensors.push_back(makeTensor("mtp.fc.weight", BF16, {8, 16}));
  tensors.push_back(makeTensor("mtp.norm.weight", F32, {8}));
  tensors.push_back(makeTensor("model.visual.pos_embed.weight", BF16, {3, 5}));
  tensors.push_back({"model.visual.ids", ElementType::I64, {1},
                     std::string("\1\0\0\0\0\0\0\7", 8)});

  TempFolder folder;
  ASSERT_OK(writeShards(
      folder, {{"model.safetensors-00001-of-00002.safetensors",
                {tensors.begin(), tensors.begin() + 6}},
               {"model.safetensors-00002-of-00002.safetensors",
                {tensors.begin() + 6, tensors.end()}}}));
  ASSERT_OK(writeFile(folder.in("config.json"), "{\"model_type\": \"x\"}"));
  ASSERT_OK(writeFile(folder.in("tokenizer.json"), "{}"));
  ASSERT_OK(writeFile(folder.in("pytorch_model.bin"), "other weights"));

  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  EXPECT_EQ(checkpoint->keptAside().size(), 4u);
  EXPECT_EQ(checkpoint->summary(),
            "8 parameters from 12 tensors in 2 files; kept aside: 2 mtp, 2 "
            "vision; names composite");
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  TempFolder target;
  auto report = checkpoint->exportTo(target.in("out"), weights.view(),
                                     {10, "abc", folder.path});
  ASSERT_OK(report);
  EXPECT_EQ(report->tensors, 12);
  EXPECT_EQ(report->copied,
            (std::vector<std::string>{"config.json", "tokenizer.json"}));
  EXPECT_EQ(report->skipped,
            std::vector<std::string>{"pytorch_model.bin: other weights"});

  EXPECT_EQ(tensorsOf(target.in("out")), tensorsOf(folder.path));
  for (const char *name : {"model.safetensors-00001-of-00002.safetensors",
                           "model.safetensors-00002-of-00002.safetensors",
                           kIndexName, "config.json", "tokenizer.json"})
    EXPECT_EQ(readAll(target.in(absl::StrCat("out/", name))),
              readAll(folder.in(name)))
        << name;
  EXPECT_EQ(*listFolder(target.path), std::vector<std::string>{"out"});
}

// A14 on checkpoints that transformers wrote.
TEST(HfCheckpointTest, A14GoldenModelsComeBackByteForByte) {
  for (const char *name : {"dense", "dense_tied", "moe", "real_heads"}) {
    std::string folder =
        absl::StrCat(QWEN35_SOURCE_DIR, "/test/golden/", name);
    auto files = HfFolder::open(folder);
    ASSERT_OK(files);
    std::vector<ParamSpec> params;
    for (const auto &[tensor, place] : files->tensors())
      params.push_back({tensor, place.info->shape, "", place.info->type});
    auto checkpoint = HfCheckpoint::open(folder, params);
    ASSERT_OK(checkpoint);
    Weights weights(params);
    ASSERT_OK(checkpoint->load(weights.mut()));
    TempFolder target;
    ASSERT_OK(checkpoint->exportTo(target.in("out"), weights.view(), {}));
    for (const char *file : {"model.safetensors", "config.json"})
      EXPECT_EQ(readAll(joinPath(folder, file)),
                readAll(joinPath(target.in("out"), file)))
          << name;
  }
}

// A15: A_log and dt_bias in float32 reach the master weights with every bit.
TEST(HfCheckpointTest, A15DecayParametersKeepFloat32) {
  std::vector<ParamSpec> params = {
      {"model.layers.0.linear_attn.A_log", {64}, "", F32}};
  std::vector<float> logs(64);
  for (int i = 0; i < 64; ++i)
    logs[i] = std::log(0.03f + static_cast<float>(i) * 1e-4f);
  MadeTensor tensor{params[0].name, F32, {64},
                    std::string(reinterpret_cast<char *>(logs.data()), 256)};
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in(kSingleName), {tensor}));
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  EXPECT_EQ(weights.arrays[0], logs);
}

TEST(HfCheckpointTest, TrainedWeightsAreRoundedToTheDtypeOfTheFile) {
  std::vector<ParamSpec> params = denseParams();
  TempFolder folder;
  std::vector<MadeTensor> tensors = tensorsFor(params, false);
  tensors.push_back(makeTensor("mtp.fc.weight", BF16, {8, 16}));
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  Weights weights(params);
  for (auto &array : weights.arrays)
    for (size_t i = 0; i < array.size(); ++i)
      array[i] = 1.0f + static_cast<float>(i) * 1e-3f;
  ASSERT_OK(checkpoint->exportTo(folder.in("out"), weights.view(), {}));

  auto again = HfCheckpoint::open(folder.in("out"), params);
  ASSERT_OK(again);
  Weights loaded(params);
  ASSERT_OK(again->load(loaded.mut()));
  for (size_t p = 0; p < params.size(); ++p)
    for (size_t i = 0; i < loaded.arrays[p].size(); ++i) {
      float expected = weights.arrays[p][i], error = params[p].fileType == F32
                                                         ? 0.0f
                                                         : 0x1p-8f * expected;
      EXPECT_NEAR(loaded.arrays[p][i], expected, error) << params[p].name;
    }
  EXPECT_EQ(tensorsOf(folder.in("out")).at("mtp.fc.weight"),
            tensorsOf(folder.path).at("mtp.fc.weight"));
}

// A23: neither an empty shard nor a head in the index of a tied model.
TEST(HfCheckpointTest, A23ATiedModelExportsNoHead) {
  std::vector<ParamSpec> params = denseParams(/*tied=*/true);
  std::vector<MadeTensor> tensors = tensorsFor(params, true);
  MadeTensor head = tensors[0];
  head.name = "lm_head.weight";
  // The tool that made this file wrote the head into a shard of its own.
  TempFolder folder;
  ASSERT_OK(writeShards(folder, {{"model-00001-of-00003.safetensors",
                                  {tensors.begin(), tensors.begin() + 3}},
                                 {"model-00002-of-00003.safetensors",
                                  {tensors.begin() + 3, tensors.end()}},
                                 {"model-00003-of-00003.safetensors", {head}}}));
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  auto report = checkpoint->exportTo(folder.in("out"), weights.view(), {});
  ASSERT_OK(report);
  EXPECT_EQ(report->files.size(), 2u);

  auto written = tensorsOf(folder.in("out")); // opens every shard
  EXPECT_EQ(written.count("lm_head.weight"), 0u);
  EXPECT_EQ(written.size(), params.size());
  std::string index = readAll(folder.in(absl::StrCat("out/", kIndexName)));
  EXPECT_EQ(index.find("lm_head"), std::string::npos);
  // A float total stays a float: bytes of the bf16 and f32 tensors.
  EXPECT_NE(index.find("\"total_size\": 552.0"), std::string::npos) << index;
  expectLoaded(folder.in("out"), params, tensors);
}

// A23, without an original: two shards of a tied model.
TEST(HfCheckpointTest, A23ANewTiedModelInTwoShards) {
  std::vector<ParamSpec> params = denseParams(/*tied=*/true);
  std::vector<MadeTensor> tensors = tensorsFor(params, false);
  Weights weights(params);
  for (size_t i = 0; i < params.size(); ++i)
    weights.arrays[i] = floatsOf(tensors[i]);
  TempFolder folder;
  auto report = exportNewHf(folder.in("out"), params, weights.view(),
                            {"{\"tie_word_embeddings\": true}", 400}, {});
  ASSERT_OK(report);
  EXPECT_EQ(report->files,
            (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors"}));
  EXPECT_EQ(readAll(folder.in("out/config.json")),
            "{\"tie_word_embeddings\": true}");
  expectLoaded(folder.in("out"), params, tensors);
  std::vector<MadeTensor> sorted = tensors;
  for (const MadeTensor &tensor : tensors)
    EXPECT_EQ(tensorsOf(folder.in("out")).at(tensor.name),
              absl::StrCat(nameOf(tensor.type), " ", shapeText(tensor.shape),
                           " ", tensor.bytes));
}

TEST(HfCheckpointTest, ANewModelIsOneFileWhenItFits) {
  std::vector<ParamSpec> params = denseParams();
  Weights weights(params);
  TempFolder folder;
  ASSERT_OK(exportNewHf(folder.in("a"), params, weights.view(), {"{}"}, {}));
  ASSERT_OK(exportNewHf(folder.in("b"), params, weights.view(), {"{}"}, {}));
  EXPECT_EQ(*listFolder(folder.in("a")),
            (std::vector<std::string>{"config.json", "model.safetensors",
                                      kExportMarker}));
  EXPECT_EQ(readAll(folder.in("a/model.safetensors")),
            readAll(folder.in("b/model.safetensors")));
}

TEST(HfCheckpointTest, AnExportReplacesOnlyAnExport) {
  std::vector<ParamSpec> params = denseParams();
  Weights weights(params);
  TempFolder folder;
  ASSERT_OK(makeFolders(folder.in("out")));
  ASSERT_OK(exportNewHf(folder.in("out"), params, weights.view(), {"1"}, {}));
  ASSERT_OK(exportNewHf(folder.in("out/"), params, weights.view(), {"2"}, {}));
  EXPECT_EQ(readAll(folder.in("out/config.json")), "2");
  ASSERT_OK(removeAll(folder.in(absl::StrCat("out/", kExportMarker))));
  auto refused =
      exportNewHf(folder.in("out"), params, weights.view(), {"3"}, {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAlreadyExists);
  expectError(refused.status(), {"is no earlier export"});
  EXPECT_EQ(readAll(folder.in("out/config.json")), "2");
}

TEST(HfCheckpointTest, BadTensorsAreOneClearErrorEach) {
  struct Bad {
    const char *what;
    std::function<void(std::vector<MadeTensor> *)> change;
    std::vector<std::string> message;
  } table[] = {
      {"missing", [](auto *t) { t->erase(t->begin() + 1); },
       {"1 tensor is missing, expected model.layers.0.linear_attn.A_log [4]"}},
      {"unexpected",
       [](auto *t) { t->push_back(makeTensor("model.extra", F32, {1})); },
       {"1 tensor is unexpected, found model.extra, which the model does not "
        "have"}},
      {"renamed", [](auto *t) { (*t)[6].name = "model.final_norm.weight"; },
       {"unexpected, found model.final_norm.weight",
        "missing, expected model.norm.weight [8]"}},
      {"shape", [](auto *t) { (*t)[6] = makeTensor((*t)[6].name, BF16, {9}); },
       {"tensor model.norm.weight has shape [9], expected [8]"}},
      {"transposed",
       [](auto *t) { (*t)[4] = makeTensor((*t)[4].name, BF16, {8, 12}); },
       {"tensor model.layers.0.mlp.gate_proj.weight is transposed: found "
        "[8, 12], expected [12, 8]"}},
      {"integers",
       [](auto *t) {
         (*t)[6] = {(*t)[6].name, ElementType::U8, {8}, std::string(8, 'x')};
       },
       {"tensor model.norm.weight has dtype U8, expected BF16, F16, F32 or "
        "F64"}},
      {"both prefixes",
       [](auto *t) {
         t->push_back(makeTensor("model.language_model.norm.weight", BF16,
                                 {8}));
       },
       {"is also there as model.language_model.norm.weight"}},
  };
  std::vector<ParamSpec> params = denseParams();
  for (const Bad &bad : table) {
    SCOPED_TRACE(bad.what);
    std::vector<MadeTensor> tensors = tensorsFor(params, false);
    bad.change(&tensors);
    TempFolder folder;
    ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
    absl::Status status = HfCheckpoint::open(folder.path, params).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    expectError(status, {folder.path});
    expectError(status, bad.message);
  }
}

TEST(HfCheckpointTest, ATiedHeadMustRepeatTheEmbedding) {
  std::vector<ParamSpec> params = denseParams(/*tied=*/true);
  std::vector<MadeTensor> tensors = tensorsFor(params, false);
  MadeTensor head = tensors[0];
  head.name = "lm_head.weight";
  head.bytes[5] ^= 1;
  tensors.push_back(head);
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  expectError(HfCheckpoint::open(folder.path, params).status(),
              {"tensor lm_head.weight (BF16 [16, 8]) differs from "
               "model.embed_tokens.weight",
               "tied to the embedding"});
}

TEST(HfCheckpointTest, BadIndexesAreOneClearErrorEach) {
  std::vector<ParamSpec> params = denseParams();
  std::vector<MadeTensor> tensors = tensorsFor(params, false);
  struct Bad {
    std::string index;
    std::vector<std::string> message;
  } table[] = {
      {"{", {"not valid JSON"}},
      {"[]", {"has no weight_map"}},
      {"{\"weight_map\": {}}", {"has no weight_map"}},
      {"{\"weight_map\": {\"a\": 1}}", {"tensor a is placed in 1, which"}},
      {"{\"weight_map\": {\"a\": \"../secret\"}}",
       {"\"../secret\", which is no name of a file in this folder"}},
      {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", {"appears twice"}},
      {"{\"weight_map\": {\"a\": \"absent.safetensors\"}}",
       {"absent.safetensors: No such file or directory"}},
      {"{\"weight_map\": {\"a\": \"model.safetensors\"}}",
       {"model.safetensors holds tensor ", "which the index does not list"}},
  };
  for (const Bad &bad : table) {
    TempFolder folder;
    ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
    ASSERT_OK(writeFile(folder.in(kIndexName), bad.index));
    SCOPED_TRACE(bad.index);
    expectError(HfCheckpoint::open(folder.path, params).status(), bad.message);
  }
  // The index promises a tensor that its file lacks, as in case A23.
  TempFolder folder;
  ASSERT_OK(writeShards(folder, {{"a.safetensors", tensors}}));
  std::string index = readAll(folder.in(kIndexName));
  ASSERT_OK(writeFile(
      folder.in(kIndexName),
      absl::StrReplaceAll(index, {{"\"weight_map\": {",
                                   "\"weight_map\": {\"ghost\": "
                                   "\"a.safetensors\","}})));
  expectError(HfCheckpoint::open(folder.path, params).status(),
              {"tensor ghost is listed in a.safetensors, which does not hold "
               "it"});
}

TEST(HfCheckpointTest, AFolderWithoutWeightsSaysWhatItHas) {
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in("adapter.safetensors"),
                         {makeTensor("a", F32, {1})}));
  absl::Status status = HfCheckpoint::open(folder.path, denseParams()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  expectError(status, {"neither model.safetensors.index.json nor "
                       "model.safetensors; it has adapter.safetensors"});
  EXPECT_EQ(HfCheckpoint::open(folder.in("none"), denseParams()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(HfCheckpointTest, ParameterTableComesFromTheBundle) {
  bundle::Bundle bundle;
  bundle::Param *param = bundle.add_params();
  param->set_name("model.norm.weight");
  param->add_shape(8);
  param->set_init("zeros");
  param->set_file_dtype(bundle::BF16);
  auto table = paramTable(bundle);
  ASSERT_OK(table);
  EXPECT_EQ((*table)[0].elements(), 8);
  EXPECT_EQ((*table)[0].fileType, BF16);
  *bundle.add_params() = *param;
  expectError(paramTable(bundle).status(), {"model.norm.weight twice"});
  bundle.mutable_params()->RemoveLast();
  param->set_file_dtype(bundle::I32);
  expectError(paramTable(bundle).status(), {"parameter model.norm.weight"});
  param->set_file_dtype(bundle::F32);
  param->set_shape(0, 0);
  expectError(paramTable(bundle).status(), {"has shape [0]"});
}

} // namespace
} // namespace qwen35
