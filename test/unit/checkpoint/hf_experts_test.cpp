// Expert layouts: MODEL.md 5.3 and 9.4, cases A21 and A22.
#include "runtime/checkpoint/hf_checkpoint.h"

#include <cmath>

#include "test/unit/checkpoint/checkpoint_test_util.h"

namespace qwen35 {
namespace {

using namespace test;

constexpr auto F32 = ElementType::F32;
constexpr auto BF16 = ElementType::BF16;
constexpr int64_t E = 3, I = 5, D = 7; // 2I = 10: no two dimensions are equal

const std::string kLayer = "model.layers.0.mlp.experts.";

std::vector<ParamSpec> expertParams() {
  return {{kLayer + "gate_up_proj", {E, 2 * I, D}, "", BF16},
          {kLayer + "down_proj", {E, D, I}, "", BF16}};
}

std::vector<MadeTensor> fusedExperts(const std::string &prefix) {
  return {makeTensor(prefix + "gate_up_proj", BF16, {E, 2 * I, D}),
          makeTensor(prefix + "down_proj", BF16, {E, D, I})};
}

std::vector<MadeTensor> singleExperts(const std::string &prefix) {
  std::vector<MadeTensor> tensors;
  for (int64_t e = 0; e < E; ++e) {
    std::string base = absl::StrCat(prefix, e);
    tensors.push_back(makeTensor(base + ".gate_proj.weight", BF16, {I, D}));
    tensors.push_back(makeTensor(base + ".up_proj.weight", BF16, {I, D}));
    tensors.push_back(makeTensor(base + ".down_proj.weight", BF16, {D, I}));
  }
  return tensors;
}

float silu(float x) { return x / (1 + std::exp(-x)); }

/// down(silu(gate x) * up x) with plain [out, in] matrices.
std::vector<float> expertForward(const float *gate, const float *up,
                                 const float *down,
                                 const std::vector<float> &x) {
  std::vector<float> hidden(I), y(D);
  for (int64_t i = 0; i < I; ++i) {
    float g = 0, u = 0;
    for (int64_t d = 0; d < D; ++d) {
      g += gate[i * D + d] * x[d];
      u += up[i * D + d] * x[d];
    }
    hidden[i] = silu(g) * u;
  }
  for (int64_t d = 0; d < D; ++d)
    for (int64_t i = 0; i < I; ++i)
      y[d] += down[d * I + i] * hidden[i];
  return y;
}

// A21: the per-expert file against the fused master weights, in the forward
// pass and on the way back.
TEST(HfExpertsTest, A21PerExpertFilesMergeWithoutTransposing) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = singleExperts(kLayer);
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  std::vector<ParamSpec> params = expertParams();
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  EXPECT_TRUE(checkpoint->perExpert());
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));

  std::vector<float> x = {1, -2, 0.5, 3, -1, 0.25, 2};
  for (int64_t e = 0; e < E; ++e) {
    std::vector<float> gate = floatsOf(tensors[3 * e]),
                       up = floatsOf(tensors[3 * e + 1]),
                       down = floatsOf(tensors[3 * e + 2]);
    const float *slice = weights.arrays[0].data() + e * 2 * I * D;
    EXPECT_EQ(expertForward(slice, slice + I * D,
                            weights.arrays[1].data() + e * D * I, x),
              expertForward(gate.data(), up.data(), down.data(), x));
  }
  ASSERT_OK(checkpoint->exportTo(folder.in("out"), weights.view(), {}));
  EXPECT_EQ(readAll(folder.in("out/model.safetensors")),
            readAll(folder.in("model.safetensors")));
}

// A21: the fused file, split along the 2I axis.
TEST(HfExpertsTest, A21FusedFilesSplitAlongTheRows) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = fusedExperts(kLayer);
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  std::vector<ParamSpec> params = expertParams();
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  EXPECT_FALSE(checkpoint->perExpert());
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  EXPECT_EQ(weights.arrays[0], floatsOf(tensors[0]));
  EXPECT_EQ(weights.arrays[1], floatsOf(tensors[1]));
  ASSERT_OK(checkpoint->exportTo(folder.in("out"), weights.view(), {}));
  EXPECT_EQ(readAll(folder.in("out/model.safetensors")),
            readAll(folder.in("model.safetensors")));
}

// A21: the layout that misled others is refused by its shape.
TEST(HfExpertsTest, A21TransposedExpertsAreRefused) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = fusedExperts(kLayer);
  tensors[0] = makeTensor(kLayer + "gate_up_proj", BF16, {E, D, 2 * I});
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  expectError(
      HfCheckpoint::open(folder.path, expertParams()).status(),
      {"tensor model.layers.0.mlp.experts.gate_up_proj is transposed: found "
       "[3, 7, 10], expected [3, 10, 7]"});
  tensors = singleExperts(kLayer);
  tensors[5] = makeTensor(kLayer + "1.down_proj.weight", BF16, {I, D});
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  expectError(HfCheckpoint::open(folder.path, expertParams()).status(),
              {"tensor model.layers.0.mlp.experts.1.down_proj.weight is "
               "transposed: found [5, 7], expected [7, 5]"});
}

// A22: fused decoder experts beside per-expert MTP experts, as Qwen3.5 ships.
TEST(HfExpertsTest, A22SectionsMayDifferInLayout) {
  std::vector<ParamSpec> params = {
      {"model.layers.0.mlp.experts.gate_up_proj", {E, 2 * I, D}, "", BF16},
      {"model.layers.0.mlp.experts.down_proj", {E, D, I}, "", BF16}};
  std::vector<MadeTensor> tensors =
      fusedExperts("model.language_model.layers.0.mlp.experts.");
  for (MadeTensor &tensor : singleExperts("mtp.layers.0.mlp.experts."))
    tensors.push_back(std::move(tensor));
  tensors.push_back(makeTensor("mtp.norm.weight", F32, {D}));
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  EXPECT_EQ(checkpoint->keptAside().size(), 3u * E + 1);
  EXPECT_FALSE(checkpoint->perExpert());
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  weights.arrays[0][0] += 1; // a step touched the decoder
  ASSERT_OK(checkpoint->exportTo(folder.in("out"), weights.view(), {}));
  auto before = tensorsOf(folder.path), after = tensorsOf(folder.in("out"));
  ASSERT_EQ(after.size(), tensors.size());
  for (const auto &[name, bytes] : before)
    if (name == "model.language_model.layers.0.mlp.experts.gate_up_proj")
      EXPECT_NE(after.at(name), bytes);
    else
      EXPECT_EQ(after.at(name), bytes) << name;
}

// A22 the other way round: per-expert decoder, fused MTP.
TEST(HfExpertsTest, A22PerExpertDecoderBesideFusedMtp) {
  std::vector<MadeTensor> tensors = singleExperts(kLayer);
  for (MadeTensor &tensor : fusedExperts("mtp.layers.0.mlp.experts."))
    tensors.push_back(std::move(tensor));
  TempFolder folder;
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  std::vector<ParamSpec> params = expertParams();
  auto checkpoint = HfCheckpoint::open(folder.path, params);
  ASSERT_OK(checkpoint);
  EXPECT_TRUE(checkpoint->perExpert());
  Weights weights(params);
  ASSERT_OK(checkpoint->load(weights.mut()));
  ASSERT_OK(checkpoint->exportTo(folder.in("out"), weights.view(), {}));
  EXPECT_EQ(tensorsOf(folder.in("out")), tensorsOf(folder.path));
}

TEST(HfExpertsTest, ASectionThatMixesFormsIsRefused) {
  for (std::string prefix : {std::string("model.layers.1.mlp.experts."),
                             std::string("mtp.layers.0.mlp.experts.")}) {
    std::vector<MadeTensor> tensors = fusedExperts(kLayer);
    if (prefix[1] == 't')
      for (MadeTensor &tensor : fusedExperts(prefix))
        tensors.push_back(std::move(tensor));
    for (MadeTensor &tensor : singleExperts(prefix))
      tensors.push_back(std::move(tensor));
    TempFolder folder;
    ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
    expectError(HfCheckpoint::open(folder.path, expertParams()).status(),
                {"has fused experts but", "is a single expert",
                 prefix[1] == 't' ? "MTP layers" : "decoder layers"});
  }
}

TEST(HfExpertsTest, MissingAndSurplusExpertsAreNamed) {
  TempFolder folder;
  std::vector<MadeTensor> tensors = singleExperts(kLayer);
  tensors.erase(tensors.begin() + 4); // 1.up_proj
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  expectError(HfCheckpoint::open(folder.path, expertParams()).status(),
              {"1 tensor is missing, expected "
               "model.layers.0.mlp.experts.1.up_proj.weight"});
  tensors = singleExperts(kLayer);
  tensors.push_back(makeTensor(kLayer + "3.up_proj.weight", BF16, {I, D}));
  ASSERT_OK(writeTensors(folder.in(kSingleName), tensors));
  expectError(HfCheckpoint::open(folder.path, expertParams()).status(),
              {"3.up_proj.weight is expert 3; expected experts 0 to 2"});
}

} // namespace
} // namespace qwen35
