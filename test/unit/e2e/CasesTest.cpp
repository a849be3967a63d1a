// Cases of the field (CASES.md) on the whole compiled step.

#include "test/support/Numeric.h"
#include "test/unit/e2e/E2e.h"

#include "gtest/gtest.h"

#include <regex>

namespace qwen35 {
namespace {

using namespace test;

/// Runs the door on a batch; returns the dump's path.
std::string door(const std::string &bundle, const std::string &model,
                 const std::string &batch, const std::string &dump) {
  quiet(tool("qwen35-run") + " " + bundle + " --weights " + model +
        " --batch " + batch + " --dump " + dump + " --steps 1");
  return dump;
}

std::vector<int64_t> randomIds(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> ids(count);
  for (int64_t &id : ids)
    id = random.below(200);
  return ids;
}

// The first document carries no labels, so nothing of the result depends on it:
// whatever its tokens are, loss, gradients and update have the same bits. The
// decay of golden models goes down to 0.02, slow enough to show a leak.
TEST(FieldCases, A02OtherDocumentsDoNotMoveByABit) {
  TempFolder folder;
  for (const char *model : {"dense", "moe"}) {
    std::string bundle =
        bundleOf(golden(model) + " --tokens 72 --max-docs 3");
    std::vector<int64_t> ids = randomIds(72, 3), labels = ids;
    for (int64_t t = 0; t < 5; ++t)
      labels[t] = -100;
    writeRow(folder / "a", ids, labels, {0, 5, 69, 72});
    for (int64_t t = 0; t < 5; ++t)
      ids[t] = (ids[t] + 1 + t) % 200;
    writeRow(folder / "b", ids, labels, {0, 5, 69, 72});
    expectSameDump(
        door(bundle, golden(model), folder / "a", folder / "da"),
        door(bundle, golden(model), folder / "b", folder / "db"));
  }
}

// The same for a document between two others: nothing leaks backwards either.
TEST(FieldCases, A02NeitherBeforeNorAfterTheDocument) {
  TempFolder folder;
  std::string bundle = bundleOf(golden("dense") + " --tokens 72 --max-docs 3");
  std::vector<int64_t> ids = randomIds(72, 8), labels = ids;
  std::fill(labels.begin() + 5, labels.begin() + 69, -100);
  writeRow(folder / "a", ids, labels, {0, 5, 69, 72});
  for (int64_t t = 5; t < 69; ++t)
    ids[t] = (ids[t] + 1) % 200;
  writeRow(folder / "b", ids, labels, {0, 5, 69, 72});
  expectSameDump(door(bundle, golden("dense"), folder / "a", folder / "da"),
                 door(bundle, golden("dense"), folder / "b", folder / "db"));
  // The test can fail: with labels of its own the document is felt.
  writeRow(folder / "c", ids, ids, {0, 5, 69, 72});
  Safetensors without(folder / "db"),
      with(door(bundle, golden("dense"), folder / "c", folder / "dc"));
  EXPECT_NE(without.reals("loss")[0], with.reals("loss")[0]);
}

// 256 experts and 8 tokens: at most 16 experts of a layer have a gradient, that
// of the others is exactly zero, and the norm is finite.
TEST(FieldCases, A18ExpertsWithoutTokensHaveZeroGradients) {
  TempFolder folder;
  writeFile(folder / "config.json",
            changedConfig("moe", {{"num_experts", 256}}));
  std::string bundle =
      bundleOf((folder / "config.json") + " --tokens 8 --max-docs 1");
  std::vector<int64_t> ids = randomIds(8, 10);
  writeRow(folder / "batch", ids, ids, {0, 8});
  quiet(tool("qwen35-run") + " " + bundle + " --init 3 --batch " +
        (folder / "batch") + " --dump " + (folder / "dump"));
  Safetensors dump(folder / "dump");
  EXPECT_TRUE(std::isfinite(dump.reals("grad_norm")[0]));
  int stacks = 0;
  for (const std::string &name : dump.names()) {
    if (name.rfind("grad.", 0) != 0 ||
        name.find(".experts.") == std::string::npos)
      continue;
    ++stacks;
    auto values = dump.reals(name);
    size_t size = values.size() / 256;
    int used = 0;
    for (int e = 0; e < 256; ++e) {
      bool zero = true;
      for (size_t i = 0; i < size; ++i) {
        ASSERT_TRUE(std::isfinite(values[e * size + i])) << name << " " << e;
        zero &= values[e * size + i] == 0;
      }
      used += !zero;
    }
    EXPECT_GE(used, 2) << name;
    EXPECT_LE(used, 16) << name;
  }
  EXPECT_EQ(stacks, 8);
}

// Documents of 37, 51 and 40 tokens in one row against one row each: the chunk
// grid restarts at documents, so only the order of sums over tokens differs.
TEST(FieldCases, A01PackedEqualsAlone) {
  TempFolder folder;
  std::vector<int64_t> ids = randomIds(128, 4);
  std::vector<int64_t> cu = {0, 37, 88, 128};
  writeRow(folder / "packed", ids, ids, cu);
  // Rows of another length cannot be one tensor: each is padded by the loader.
  std::string packed =
      door(bundleOf(golden("dense") + " --tokens 128 --max-docs 3"),
           golden("dense"), folder / "packed", folder / "dp");
  Safetensors whole(packed);
  std::map<std::string, std::vector<double>> sums;
  double loss = 0;
  std::string single = bundleOf(golden("dense") + " --tokens 64 --max-docs 1");
  for (size_t d = 0; d + 1 < cu.size(); ++d) {
    std::vector<int64_t> part(ids.begin() + cu[d], ids.begin() + cu[d + 1]);
    writeRow(folder / "one", part, part,
             {0, static_cast<int64_t>(part.size())});
    Safetensors alone(
        door(single, golden("dense"), folder / "one", folder / "d1"));
    double share = (part.size() - 1) / 125.0; // of the targets
    loss += alone.reals("loss")[0] * share;
    for (const std::string &name : alone.names())
      if (name.rfind("grad.", 0) == 0) {
        auto values = alone.reals(name);
        auto &sum = sums[name];
        sum.resize(values.size());
        for (size_t i = 0; i < values.size(); ++i)
          sum[i] += values[i] * share;
      }
  }
  EXPECT_NEAR(whole.reals("loss")[0], loss, 1e-6 * loss);
  ASSERT_GT(sums.size(), 40u);
  for (auto &[name, values] : sums)
    EXPECT_LT(relativeError(whole.reals(name), values, 1e-12), 1e-4) << name;
}

// Where the chunk grid and the place in the row are the same, packed and alone
// are the same bits: loss, every gradient, every updated parameter.
TEST(FieldCases, A01PackedEqualsAloneExactlyInTheSamePlace) {
  TempFolder folder;
  std::vector<int64_t> ids = randomIds(128, 9), labels(128, -100);
  std::copy(ids.begin(), ids.begin() + 51, labels.begin());
  writeRow(folder / "packed", ids, labels, {0, 51, 88, 128});
  ids.resize(51);
  writeRow(folder / "alone", ids, ids, {0, 51});
  for (const char *model : {"dense", "moe"}) {
    std::string bundle =
        bundleOf(golden(model) + " --tokens 128 --max-docs 3");
    expectSameDump(
        door(bundle, golden(model), folder / "packed", folder / "dp"),
        door(bundle, golden(model), folder / "alone", folder / "da"));
  }
}

// A16, A17: what a row does not fill must not be felt, by conv, norm, loss, nor
// the load-balance loss and its counts.
TEST(FieldCases, A17PaddingIsNotFelt) {
  TempFolder folder;
  std::vector<int64_t> ids = randomIds(32, 5);
  writeRow(folder / "batch", ids, ids, {0, 32});
  std::string aux =
      " --set loss.aux=pooled --set loss.aux_coef=0.01 --max-docs 1 --tokens ";
  Safetensors full(door(bundleOf(golden("moe") + aux + "32"), golden("moe"),
                        folder / "batch", folder / "d32"));
  Safetensors padded(door(bundleOf(golden("moe") + aux + "128"), golden("moe"),
                          folder / "batch", folder / "d128"));
  EXPECT_NEAR(full.reals("loss")[0], padded.reals("loss")[0], 1e-5);
  EXPECT_NEAR(full.reals("aux_loss")[0], padded.reals("aux_loss")[0], 1e-6);
  for (const std::string &name : full.names())
    if (name.rfind("grad.", 0) == 0)
      EXPECT_LT(relativeError(padded.reals(name), full.reals(name), 1e-9),
                1e-4)
          << name;
}

TEST(FieldCases, RowsNeedNotBeMultiplesOfAnything) {
  TempFolder folder;
  std::vector<int64_t> ids = randomIds(77, 6);
  writeRow(folder / "batch", ids, ids, {0, 70, 77});
  Safetensors odd(door(bundleOf(golden("dense") + " --tokens 77 --max-docs 2"),
                       golden("dense"), folder / "batch", folder / "d77"));
  Safetensors even(
      door(bundleOf(golden("dense") + " --tokens 128 --max-docs 3"),
           golden("dense"), folder / "batch", folder / "d128"));
  EXPECT_NEAR(odd.reals("loss")[0], even.reals("loss")[0], 1e-5);
}

// No buffer of tokens x vocabulary, at no stage after the head's lowering.
TEST(FieldCases, A27NoBufferOfTokensTimesVocabulary) {
  TempFolder folder;
  quiet(tool("qwen35c") + " 0.8b --tokens 8192 --max-docs 16 --dry-run -q " +
        "--dump-ir " + (folder / "ir"));
  std::string plan = readFile(folder / "ir/S6-buffers.mlir");
  std::regex buffer(R"(qplan\.buffer @(\S+) in @\S+ at \d+ : tensor<([0-9x]+)x([fi])(\d+)>)");
  int buffers = 0;
  for (std::sregex_iterator it(plan.begin(), plan.end(), buffer), end;
       it != end; ++it) {
    ++buffers;
    double bytes = std::stoi((*it)[4]) / 8.0;
    std::istringstream sizes((*it)[2]);
    for (std::string size; std::getline(sizes, size, 'x');)
      bytes *= std::stod(size);
    EXPECT_LT(bytes, 8192.0 * 248320 * 4 / 2) << (*it)[1];
  }
  EXPECT_GT(buffers, 1000);
}


// 397b-a17b to the memory plan: 60 s and 4 GB are the goal.
TEST(DryRun, LargeModelsPlanQuicklyAndInLittleMemory) {
  for (const char *model : {"35b-a3b", "397b-a17b"}) {
    auto result =
        run("ulimit -v 8000000; timeout 60 " + tool("qwen35c") + " " + model +
            " --tokens 8192 --max-docs 64 --dry-run");
    EXPECT_TRUE(result.ok()) << result.output.substr(0, 2000);
    for (const char *part : {"[optim]", "model.embed_tokens.weight",
                             "memory plan", "largest buffers at the peak"})
      EXPECT_NE(result.output.find(part), std::string::npos) << part;
  }
}

TEST(DryRun, OfARunPrintsRecipeParametersAndPlan) {
  TempFolder folder;
  writeFile(folder / "text", sampleText());
  std::string output =
      quiet(tool("qwen35-run") + " " +
            bundleOf("debug --tokens 64 --max-docs 4 --set train.rows=2 "
                     "--set optim.lr=1e-2") +
            " --init 1 --dry-run --data " + (folder / "text") + " --out " +
            (folder / "never"));
  for (const char *part :
       {"[schedule]", "model.layers.3.self_attn.q_proj.weight", "arena"})
    EXPECT_NE(output.find(part), std::string::npos) << part << "\n" << output;
  EXPECT_FALSE(std::filesystem::exists(folder / "never"));
}

} // namespace
} // namespace qwen35
