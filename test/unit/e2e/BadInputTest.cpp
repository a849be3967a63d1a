// Bad input: each case is one clear error that says what was found and expected,
// exit status 1 (2 for the command line), and nothing half-written.

#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <functional>

namespace qwen35 {
namespace {

using namespace test;

struct BadCase {
  const char *name;
  /// Makes files in the folder and returns the command.
  std::function<std::string(const TempFolder &)> command;
  std::vector<const char *> says;
};

std::string debugBundle() {
  return bundleOf("debug --tokens 64 --max-docs 4 --set train.rows=2 "
                  "--set optim.lr=1e-2");
}

std::string trainOn(const std::string &data, const TempFolder &f,
                    const std::string &more = "") {
  return tool("qwen35-run") + " " + debugBundle() + " --init 1 --data " +
         data + " --steps 2 --out " + (f / "out") + " " + more;
}

std::string text(const TempFolder &f) {
  writeFile(f / "text", sampleText());
  return f / "text";
}

std::string doorOn(const TempFolder &f) {
  return tool("qwen35-run") + " " + bundleOf(golden("dense") +
                                            " --tokens 72 --max-docs 3") +
         " --weights " + golden("dense") + " --batch " + (f / "batch") +
         " --dump " + (f / "out");
}

/// A copy of a golden model whose safetensors header has `from` as `to`, of the
/// same length.
std::string patched(const TempFolder &f, const std::string &model,
                    const std::string &from, const std::string &to) {
  std::filesystem::create_directory(f / "model");
  std::filesystem::copy(golden(model) + "/config.json",
                        f / "model/config.json");
  std::string bytes = readFile(golden(model) + "/model.safetensors");
  size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  bytes.replace(at, from.size(), to);
  writeFile(f / "model/model.safetensors", bytes);
  return f / "model";
}

const std::vector<BadCase> &badCases() {
  static const std::vector<BadCase> cases = {
      {"truncated_bundle",
       [](const TempFolder &f) {
         writeFile(f / "b.q35", readFile(debugBundle()).substr(0, 5000));
         return tool("qwen35-verify") + " " + (f / "b.q35");
       },
       {"b.q35", "bytes"}},
      {"flipped_bit_in_code",
       [](const TempFolder &f) {
         std::string bytes = readFile(debugBundle());
         bytes[bytes.size() - 2000] ^= 4;
         writeFile(f / "b.q35", bytes);
         return tool("qwen35-run") + " " + (f / "b.q35") +
                " --init 1 --data " + text(f) + " --steps 1 --out " +
                (f / "out");
       },
       {"b.q35", "SHA-256"}},
      {"not_a_bundle",
       [](const TempFolder &f) {
         return tool("qwen35-run") + " " + text(f) +
                " --init 1 --steps 1 --data " + (f / "text") + " --out " +
                (f / "out");
       },
       {"text", "a bundle begins with"}},
      {"wrong_weight_name",
       [](const TempFolder &f) {
         std::string model = patched(f, "dense", "model.norm.weight",
                                     "model.nork.weight");
         return tool("qwen35-run") + " " +
                bundleOf(golden("dense") + " --tokens 72 --max-docs 3") +
                " --weights " + model + " --data " + text(f) +
                " --steps 1 --out " + (f / "out");
       },
       {"model.nork.weight"}},
      {"wrong_weight_shape",
       [](const TempFolder &f) {
         // gate_proj [96, 64] declared as [64, 96].
         std::string bytes = readFile(golden("dense") + "/model.safetensors");
         size_t at = bytes.find("model.layers.0.mlp.gate_proj.weight");
         size_t shape = bytes.find("[96,64]", at);
         EXPECT_NE(shape, std::string::npos);
         std::string model = patched(f, "dense", bytes.substr(at, shape + 7 - at),
                                     bytes.substr(at, shape - at) + "[64,96]");
         return tool("qwen35-run") + " " +
                bundleOf(golden("dense") + " --tokens 72 --max-docs 3") +
                " --weights " + model + " --data " + text(f) +
                " --steps 1 --out " + (f / "out");
       },
       {"model.layers.0.mlp.gate_proj.weight", "[64, 96]", "[96, 64]"}},
      {"transposed_experts",
       [](const TempFolder &f) {
         // gate_up [8, 96, 64] declared as [8, 64, 96].
         std::string bytes = readFile(golden("moe") + "/model.safetensors");
         size_t at = bytes.find("model.layers.0.mlp.experts.gate_up_proj");
         size_t shape = bytes.find("[8,96,64]", at);
         EXPECT_NE(shape, std::string::npos);
         std::string model = patched(f, "moe", bytes.substr(at, shape + 9 - at),
                                     bytes.substr(at, shape - at) + "[8,64,96]");
         return tool("qwen35-run") + " " +
                bundleOf(golden("moe") + " --tokens 72 --max-docs 3") +
                " --weights " + model + " --data " + text(f) +
                " --steps 1 --out " + (f / "out");
       },
       {"model.layers.0.mlp.experts.gate_up_proj", "[8, 64, 96]",
        "[8, 96, 64]"}},
      {"float_labels",
       [](const TempFolder &f) {
         std::vector<int64_t> ids(8, 1);
         writeRow(f / "batch", ids, ids, {0, 8});
         std::string bytes = readFile(f / "batch");
         size_t at = bytes.find("I64", bytes.find("\"labels\"") - 120);
         at = bytes.find("\"labels\"");
         at = bytes.find("I64", at);
         bytes.replace(at, 3, "F64");
         writeFile(f / "batch", bytes);
         return doorOn(f);
       },
       {"labels", "F64"}},
      {"token_id_out_of_range",
       [](const TempFolder &f) {
         std::vector<int64_t> ids(8, 1);
         ids[5] = 256;
         writeRow(f / "batch", ids, std::vector<int64_t>(8, 1), {0, 8});
         return doorOn(f);
       },
       {"input_ids", "256"}},
      {"empty_document",
       [](const TempFolder &f) {
         std::vector<int64_t> ids(8, 1);
         writeRow(f / "batch", ids, ids, {0, 4, 4, 8});
         return doorOn(f);
       },
       {"cu_seqlens"}},
      {"row_too_long",
       [](const TempFolder &f) {
         std::vector<int64_t> ids(80, 1);
         writeRow(f / "batch", ids, ids, {0, 80});
         return doorOn(f);
       },
       {"80", "72"}},
      {"empty_data_file",
       [](const TempFolder &f) {
         writeFile(f / "none", "");
         return trainOn(f / "none", f);
       },
       {"none"}},
      {"missing_data_file",
       [](const TempFolder &f) { return trainOn(f / "absent", f); },
       {"absent", "No such file"}},
      {"disk_full_while_saving",
       [](const TempFolder &f) {
         // Kernels are loaded from a file in memory, which the limit counts too.
         return "ulimit -f 1000; " + trainOn(text(f), f);
       },
       {"File too large", "did not fit"}},
      {"unknown_recipe_key",
       [](const TempFolder &f) {
         return trainOn(text(f), f, "--set optim.lrr=1");
       },
       {"optim.lrr", "did you mean optim.lr?"}},
      {"baked_recipe_key",
       [](const TempFolder &f) {
         return trainOn(text(f), f, "--set optim.weight_decay=0.5");
       },
       {"optim.weight_decay", "0.1", "0.5"}},
      {"unknown_preset",
       [](const TempFolder &f) {
         return tool("qwen35c") + " 0.9b -o " + (f / "out");
       },
       {"0.9b", "0.8b"}},
      {"unknown_model_type",
       [](const TempFolder &f) {
         writeFile(f / "config.json", "{\"model_type\": \"llama\"}");
         return tool("qwen35c") + " " + (f / "config.json") + " -o " +
                (f / "out");
       },
       {"llama", "qwen3_5"}},
      {"budget_exceeded",
       [](const TempFolder &f) {
         return tool("qwen35c") +
                " debug --tokens 64 --set memory.budget_gb=0.001 -o " +
                (f / "out");
       },
       {"needs 14.6 MB", "1.0 MB"}},
      {"mesh_that_does_not_divide",
       [](const TempFolder &f) {
         return tool("qwen35c") + " debug --set parallel.tp=3 -o " +
                (f / "out");
       },
       {"tp=3", "4 query heads", "nearest meshes"}},
      {"unwritable_output",
       [](const TempFolder &f) {
         return tool("qwen35c") + " debug --tokens 64 -q -o " +
                (f / "no/such/folder.q35");
       },
       {"no/such/folder.q35", "No such file"}},
      {"aux_loss_of_a_dense_model",
       [](const TempFolder &f) {
         return tool("qwen35c") + " debug --set loss.aux=pooled -o " +
                (f / "out");
       },
       {"auxiliary loss", "dense"}},
  };
  return cases;
}

class BadInput : public testing::TestWithParam<BadCase> {};

TEST_P(BadInput, IsOneClearError) {
  TempFolder folder;
  std::string command = GetParam().command(folder);
  CommandResult result = run("timeout 60 bash -c '" + command + "'");
  EXPECT_EQ(result.status, 1) << result.output;
  int errors = 0;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);)
    errors += line.find("error") != std::string::npos ||
              line.rfind("qwen35c: ", 0) == 0 ||
              line.rfind("qwen35-verify: ", 0) == 0;
  EXPECT_EQ(errors, 1) << result.output;
  for (const char *part : GetParam().says)
    EXPECT_NE(result.output.find(part), std::string::npos)
        << part << " in\n"
        << result.output;
  // A bundle or dump is there whole or not at all; nothing temporary stays.
  EXPECT_FALSE(std::filesystem::is_regular_file(folder / "out"));
  for (auto &entry : std::filesystem::recursive_directory_iterator(folder / ""))
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos)
        << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Cases, BadInput, testing::ValuesIn(badCases()),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

} // namespace
} // namespace qwen35
