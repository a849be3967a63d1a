// Hugging Face checkpoints through the programs: what a run loads, trains and
// exports, for the layouts that CASES.md reports trouble with.

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <algorithm>

namespace qwen35 {
namespace {

using namespace test;

constexpr int64_t kExperts = 8, kHidden = 64, kWidth = 48; // golden moe

/// float32 bytes without their lower halves: bf16, rounded towards zero.
std::string toBf16(const std::string &bytes) {
  std::string result;
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4)
    result.append(bytes, i + 2, 2);
  return result;
}

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

RawTensor filler(const std::string &name, const std::vector<int64_t> &shape) {
  size_t elements = 1;
  for (int64_t size : shape)
    elements *= static_cast<size_t>(size);
  RawTensor tensor{name, "BF16", shape, std::string(2 * elements, '\0')};
  for (size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] = static_cast<char>((i * 7 + name.size()) % 60);
  return tensor;
}

/// Rows [first, first + count) of matrix `index` of a stack of [rows, columns].
std::string rowsOf(const RawTensor &stack, int64_t index, int64_t first,
                   int64_t count) {
  int64_t rows = stack.shape[1], bytes = stack.shape[2] * 4;
  return stack.bytes.substr((index * rows + first) * bytes, count * bytes);
}

/// The fused experts of a file, each expert a tensor of its own, in place.
std::vector<RawTensor> perExpert(const std::vector<RawTensor> &tensors) {
  std::vector<RawTensor> result;
  for (const RawTensor &tensor : tensors) {
    size_t at = tensor.name.find("experts.gate_up_proj");
    bool gateUp = at != std::string::npos;
    if (!gateUp)
      at = tensor.name.find("experts.down_proj");
    if (at == std::string::npos) {
      result.push_back(tensor);
      continue;
    }
    for (int64_t e = 0; e < kExperts; ++e) {
      std::string prefix =
          tensor.name.substr(0, at) + "experts." + std::to_string(e) + ".";
      if (!gateUp) {
        result.push_back({prefix + "down_proj.weight", "F32",
                          {kHidden, kWidth},
                          rowsOf(tensor, e, 0, kHidden)});
        continue;
      }
      result.push_back({prefix + "gate_proj.weight", "F32", {kWidth, kHidden},
                        rowsOf(tensor, e, 0, kWidth)});
      result.push_back({prefix + "up_proj.weight", "F32", {kWidth, kHidden},
                        rowsOf(tensor, e, kWidth, kWidth)});
    }
  }
  return result;
}

class CheckpointTest : public testing::Test {
protected:
  CheckpointTest() { writeFile(folder / "text", sampleText()); }

  /// A model folder of these tensors with the config of a golden one.
  std::string model(const std::string &name, const std::string &config,
                    const std::vector<RawTensor> &tensors) {
    std::filesystem::create_directory(folder / name);
    std::filesystem::copy(golden(config) + "/config.json",
                          folder / (name + "/config.json"));
    writeTensors(folder / (name + "/model.safetensors"), tensors);
    return folder / name;
  }

  /// Loads a folder, trains `steps` steps and exports to `out`.
  std::string passThrough(const std::string &config, const std::string &weights,
                          int steps, const std::string &out,
                          const std::string &more = "") {
    return quiet(tool("qwen35-run") + " " +
                 bundleOf(golden(config) + " --tokens 72 --max-docs 3") +
                 " --weights " + weights + " --data " + data + " --steps " + std::to_string(steps) + " --set train.rows=1 " +
                 "--set optim.lr=1e-2 --out " + (folder / (out + "-run")) +
                 " --export-hf " + (folder / out) + " " + more);
  }

  /// Every file of the model, byte for byte.
  void expectSameModel(const std::string &before, const std::string &after) {
    int files = 0;
    for (auto &entry : std::filesystem::directory_iterator(before)) {
      std::string name = entry.path().filename().string();
      EXPECT_TRUE(readFile(before + "/" + name) ==
                  readFile(after + "/" + name))
          << name;
      ++files;
    }
    EXPECT_GE(files, 2);
  }

  TempFolder folder;
  std::string data = folder / "text";
};

// bf16 with float32 A_log and norm weights, composite names, MTP and vision
// tensors, two shards.
TEST_F(CheckpointTest, A14DtypesAndBytesComeBack) {
  std::vector<RawTensor> tensors;
  for (RawTensor tensor : readTensors(golden("dense") + "/model.safetensors")) {
    if (tensor.name.rfind("model.", 0) == 0)
      tensor.name.insert(6, "language_model.");
    if (!endsWith(tensor.name, "A_log") &&
        !endsWith(tensor.name, "linear_attn.norm.weight")) {
      tensor.dtype = "BF16";
      tensor.bytes = toBf16(tensor.bytes);
    }
    tensors.push_back(std::move(tensor));
  }
  tensors.push_back(filler("mtp.fc.weight", {64, 128}));
  tensors.push_back(filler("model.visual.patch_embed.proj.weight", {3, 5, 2}));
  std::string before = folder / "before";
  std::filesystem::create_directory(before);
  std::filesystem::copy(golden("dense") + "/config.json",
                        before + "/config.json");
  const char *shards[] = {"model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors"};
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}};
  size_t half = tensors.size() / 2;
  for (size_t i = 0; i < tensors.size(); ++i)
    index["weight_map"][tensors[i].name] = shards[i < half ? 0 : 1];
  writeTensors(before + "/" + shards[0],
               {tensors.begin(), tensors.begin() + half});
  writeTensors(before + "/" + shards[1],
               {tensors.begin() + half, tensors.end()});
  writeFile(before + "/model.safetensors.index.json", index.dump(2));

  passThrough("dense", before, 0, "same");
  expectSameModel(before, folder / "same");

  // Steps change values only.
  passThrough("dense", before, 2, "trained");
  std::map<std::string, RawTensor> after;
  for (const char *shard : shards)
    for (RawTensor &tensor : readTensors(folder / ("trained/" + std::string(shard))))
      after[tensor.name] = std::move(tensor);
  ASSERT_EQ(after.size(), tensors.size());
  for (const RawTensor &tensor : tensors) {
    const RawTensor &now = after[tensor.name];
    EXPECT_EQ(now.dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(now.shape, tensor.shape) << tensor.name;
    bool aside = tensor.name.rfind("mtp.", 0) == 0 ||
                 tensor.name.rfind("model.visual.", 0) == 0;
    EXPECT_EQ(now.bytes == tensor.bytes, aside) << tensor.name;
  }
}

// One tensor per expert is the same model as fused ones, bit for bit, and comes
// back as it was; so do fused experts.
TEST_F(CheckpointTest, A21ExpertLayoutsGiveTheSameStepAndComeBack) {
  std::vector<RawTensor> fused =
      readTensors(golden("moe") + "/model.safetensors");
  std::string single = model("single", "moe", perExpert(fused));
  ASSERT_GT(readTensors(single + "/model.safetensors").size(),
            fused.size() + 60);
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < 72; ++t)
    ids.push_back((t * 37 + t * t) % 251);
  writeRow(folder / "batch", ids, ids, {0, 40, 72});
  for (auto [weights, dump] : {std::pair{golden("moe"), folder / "df"},
                               std::pair{single, folder / "ds"}})
    quiet(tool("qwen35-run") + " " +
          bundleOf(golden("moe") + " --tokens 72 --max-docs 3") +
          " --weights " + weights + " --batch " + (folder / "batch") +
          " --dump " + dump);
  expectSameDump(folder / "df", folder / "ds");
  passThrough("moe", single, 0, "single-same");
  expectSameModel(single, folder / "single-same");
  passThrough("moe", golden("moe"), 0, "fused-same");
  EXPECT_TRUE(readFile(golden("moe") + "/model.safetensors") ==
              readFile(folder / "fused-same/model.safetensors"));
}

// Fused decoder experts beside MTP experts of one tensor each.
TEST_F(CheckpointTest, A22MixedLayoutsComeBack) {
  std::vector<RawTensor> tensors =
      readTensors(golden("moe") + "/model.safetensors");
  for (int e = 0; e < kExperts; ++e)
    for (const char *part : {"gate_proj", "up_proj", "down_proj"})
      tensors.push_back(filler("mtp.layers.0.mlp.experts." + std::to_string(e) +
                                   "." + part + ".weight",
                               {6, 4}));
  std::string mixed = model("mixed", "moe", tensors);
  passThrough("moe", mixed, 0, "same");
  expectSameModel(mixed, folder / "same");
  passThrough("moe", mixed, 1, "trained");
  auto after = readTensors(folder / "trained/model.safetensors");
  ASSERT_EQ(after.size(), tensors.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].name, tensors[i].name);
    if (after[i].name.rfind("mtp.", 0) == 0)
      EXPECT_TRUE(after[i].bytes == tensors[i].bytes) << after[i].name;
  }
}

// A tied model in two shards, whatever the first run drew: no head anywhere,
// every shard opens, and the loss of the reloaded model is that of the run.
TEST_F(CheckpointTest, A23TiedModelsExportNoHead) {
  auto loss = [](const std::string &output, const std::string &when) {
    size_t end = output.find(" on the first batch (" + when);
    EXPECT_NE(end, std::string::npos) << output;
    size_t begin = output.rfind("eval loss ", end);
    return output.substr(begin, end - begin);
  };
  // Its vocabulary has 200 ids, so text is no data for it.
  std::string lines;
  for (int document = 0; document < 9; ++document) {
    nlohmann::json ids;
    for (int t = 0; t < 30 + document; ++t)
      ids.push_back((t * t + 11 * document) % 200);
    lines += nlohmann::json{{"input_ids", ids}}.dump() + "\n";
  }
  writeFile(folder / "ids.jsonl", lines);
  data = folder / "ids.q35tok";
  quiet(tool("qwen35-data") + " --vocab 200 -o " + data + " " +
        (folder / "ids.jsonl"));
  std::string first =
      passThrough("dense_tied", golden("dense_tied"), 2, "one", "--eval-loss");
  EXPECT_EQ(loss(first, "step 2"), loss(first, "reloaded"));

  std::vector<RawTensor> tensors = readTensors(folder / "one/model.safetensors");
  std::string two = folder / "two";
  std::filesystem::create_directory(two);
  std::filesystem::copy(golden("dense_tied") + "/config.json",
                        two + "/config.json");
  nlohmann::json index;
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].name.find("lm_head"), std::string::npos);
    index["weight_map"][tensors[i].name] =
        i < 9 ? "model-00001-of-00002.safetensors"
              : "model-00002-of-00002.safetensors";
  }
  writeTensors(two + "/model-00001-of-00002.safetensors",
               {tensors.begin(), tensors.begin() + 9});
  writeTensors(two + "/model-00002-of-00002.safetensors",
               {tensors.begin() + 9, tensors.end()});
  writeFile(two + "/model.safetensors.index.json", index.dump());
  std::string second =
      passThrough("dense_tied", two, 0, "again", "--eval-loss");
  EXPECT_EQ(loss(first, "step 2"), loss(second, "start"));
  std::string written = readFile(folder / "again/model.safetensors.index.json");
  EXPECT_FALSE(written.empty());
  EXPECT_EQ(written.find("lm_head"), std::string::npos);
  size_t total = 0;
  for (const char *shard : {"model-00001-of-00002.safetensors",
                            "model-00002-of-00002.safetensors"}) {
    size_t count = readTensors(folder / ("again/" + std::string(shard))).size();
    EXPECT_GT(count, 0u) << shard;
    total += count;
  }
  EXPECT_EQ(total, tensors.size());
}

} // namespace
} // namespace qwen35
