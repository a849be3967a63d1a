// Steps whose rows lie in stripes over the ranks of cp: documents at every
// border, cases of CASES.md, and what the ranks send each other.

#include "test/support/Numeric.h"
#include "test/unit/partition/Step.h"

#include <cstring>

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

std::vector<double> &numbers(Tensor &tensor) {
  return std::get<std::vector<double>>(tensor.elements);
}
std::vector<int32_t> &ints(Tensor &tensor) {
  return std::get<std::vector<int32_t>>(tensor.elements);
}

/// A about 0.05: what an early token leaves is still there at the end.
void decaySlowly(Whole &whole) {
  func::FuncOp only = whole.only();
  int64_t layers = 0;
  for (unsigned i = 0; i < only.getNumArguments(); ++i) {
    std::string key = keyOf(only, i);
    if (!key.starts_with("weight ") || !key.ends_with(".A_log"))
      continue;
    ++layers;
    for (double &x : numbers(whole.arguments[i]))
      x = std::log(0.05);
  }
  EXPECT_GT(layers, 0);
}

bool sameBits(ArrayRef<Tensor> a, ArrayRef<Tensor> b) {
  EXPECT_EQ(a.size(), b.size());
  for (auto [x, y] : llvm::zip_equal(a, b)) {
    const auto &left = std::get<std::vector<double>>(x.elements);
    const auto &right = std::get<std::vector<double>>(y.elements);
    for (auto [l, r] : llvm::zip_equal(left, right))
      if (!(l == r)) // -0 and 0 are no difference, NaN is one
        return false;
  }
  return true;
}

/// Changes the ids of one document. Targets are those of the others, so that
/// the loss and all gradients are theirs: nothing of it may move.
void expectDocumentIsAlone(Whole &whole, const Split &split, size_t document) {
  const std::vector<int64_t> &lengths = whole.documents[0];
  int64_t first = 0;
  for (size_t d = 0; d < document; ++d)
    first += lengths[d];
  Tensor ids = whole.argument("input ids"),
         labels = whole.argument("input labels");
  auto restore = [&] {
    whole.argument("input ids") = ids;
    whole.argument("input labels") = labels;
  };
  auto change = [&] {
    for (int64_t t = first; t < first + lengths[document]; ++t)
      ints(whole.argument("input ids"))[t] = (ints(ids)[t] + 1 + t % 7) % 64;
  };
  for (int64_t t = first; t < first + lengths[document]; ++t)
    ints(whole.argument("input labels"))[t] = -100;
  SmallVector<Tensor> before = runRanks(whole, split);
  change();
  EXPECT_TRUE(sameBits(runRanks(whole, split), before))
      << "document " << document << " of " << lengths[document] << " tokens at "
      << first << " moves others";
  // With targets of its own it does move the loss.
  ints(whole.argument("input labels"))[first] = 1;
  SmallVector<Tensor> own = runRanks(whole, split);
  restore();
  ints(whole.argument("input labels")) =
      std::vector<int32_t>(whole.row.tokens, -100);
  ints(whole.argument("input labels"))[first] = 1;
  SmallVector<Tensor> alone = runRanks(whole, split);
  change();
  EXPECT_FALSE(sameBits(runRanks(whole, split), alone));
  restore();
}

/// Documents that begin at the borders of stripes, moved by each of `shifts`.
std::vector<int64_t> atBorders(int64_t tokens, int64_t stripes,
                               std::initializer_list<int64_t> shifts) {
  std::vector<int64_t> lengths;
  int64_t last = 0;
  for (int64_t border = tokens / stripes; border < tokens;
       border += tokens / stripes)
    for (int64_t shift : shifts) {
      lengths.push_back(border + shift - last);
      last = border + shift;
    }
  lengths.push_back(tokens - last);
  return lengths;
}

struct Border {
  const char *mesh;
  int64_t stripes;
};
void PrintTo(const Border &border, std::ostream *out) { *out << border.mesh; }

class StripeBorders : public testing::TestWithParam<Border> {};

TEST_P(StripeBorders, DocumentsStayApart) {
  constexpr RowShape row{48, 24};
  for (const std::vector<int64_t> &lengths : {
           atBorders(row.tokens, GetParam().stripes, {0}),
           atBorders(row.tokens, GetParam().stripes, {-1}),
           atBorders(row.tokens, GetParam().stripes, {1}),
           atBorders(row.tokens, GetParam().stripes, {-1, 0, 1}),
           std::vector<int64_t>{5, 33, 4}, // over several, then padding
       }) {
    auto whole = makeWhole(smallConfig(false, false), {lengths}, row);
    decaySlowly(*whole);
    Split ranks = split(*whole, GetParam().mesh);
    ASSERT_TRUE(ranks.module && ranks.striped());
    expectSame(*whole, ranks);
    // The first, one in the middle, and the last.
    for (size_t document : {size_t(0), lengths.size() / 2, lengths.size() - 1})
      expectDocumentIsAlone(*whole, ranks, document);
    if (HasFailure())
      return;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StripeBorders,
                         testing::Values(Border{"cp=2", 4}, Border{"cp=4", 8},
                                         Border{"cp=2,tp=2", 4}));

TEST(CasesTest, A04DocumentsOverTwoRanksWithSlowDecay) {
  auto whole =
      makeWhole(smallConfig(false, false), {{37, 51, 40}}, RowShape{128, 4});
  decaySlowly(*whole);
  Split ranks = split(*whole, "cp=2");
  ASSERT_TRUE(ranks.module && ranks.striped());
  expectSame(*whole, ranks); // gradients of conv weights among them
  expectDocumentIsAlone(*whole, ranks, 1);
}

/// The message that refuses a mesh.
std::string refusal(const Whole &whole, const std::string &mesh) {
  std::string message;
  ScopedDiagnosticHandler handler(whole.context.get(), [&](Diagnostic &d) {
    message = d.str();
    return success();
  });
  EXPECT_FALSE(split(whole, mesh).module);
  return message;
}

TEST(CasesTest, A05MoreContextRanksThanKeyHeads) {
  ModelConfig config = smallConfig(false, false);
  config.linearNumKeyHeads = 2;
  auto whole = makeWhole(config, {{21, 9, 14}}, RowShape{48, 4});
  Split ranks = split(*whole, "cp=4");
  ASSERT_TRUE(ranks.module && ranks.striped());
  expectSame(*whole, ranks);
  // Heads are what tp splits: said before anything is built.
  EXPECT_EQ(
      refusal(*whole, "tp=4")
          .rfind("the model cannot be split so: tp=4 does not divide the 2 key "
                 "heads of the delta rule; nearest meshes of as many ranks: ",
                 0),
      0u);
}

TEST(CasesTest, A06PartsOfJoinedProjectionsAreSplitEachOnItsOwn) {
  auto whole =
      makeWhole(smallConfig(false, false), {{13, 20}}, RowShape{48, 4});
  for (const char *mesh : {"tp=2", "tp=4", "cp=2,tp=2"}) {
    Split ranks = split(*whole, mesh);
    ASSERT_TRUE(ranks.module);
    expectSame(*whole, ranks);
    // Put together again, weights are what they were, bit for bit.
    func::FuncOp only = ranks.function("only");
    int64_t sections = 0;
    for (unsigned i = 0; i < only.getNumArguments(); ++i) {
      std::string key = keyOf(only, i);
      if (!key.starts_with("weight "))
        continue;
      auto sharding = qdist::Sharding::of(
          only.getArgAttrOfType<qdist::ShardingAttr>(i, qdist::kShardingAttr),
          ranks.mesh);
      sections += !sharding.sectionsOf(0).empty();
      auto together = interpreter::assemble(
          rankArguments(*whole, ranks, only, i), sharding, ranks.mesh);
      EXPECT_EQ(numbers(together.value), numbers(whole->argument(key))) << key;
    }
    EXPECT_EQ(sections, 2); // q, k, v of the projection and of the convolution
  }
}

TEST(CasesTest, A19AllTokensGoToTheExpertsOfOneRank) {
  ModelConfig config = smallConfig(true, false);
  auto whole = makeWhole(config, {{13, 20}}, RowShape{48, 4});
  int64_t half = config.numExperts / 2;
  ASSERT_LE(config.numExpertsPerTok, half);
  // Channel 0 is large and positive everywhere, and decides.
  std::vector<double> &table =
      numbers(whole->argument("weight model.embed_tokens.weight"));
  for (size_t i = 0; i < table.size(); i += config.hiddenSize)
    table[i] = 20;
  for (const char *layer : {"0", "1"}) {
    std::string name = std::string("weight model.layers.") + layer + ".";
    numbers(whole->argument(name + "post_attention_layernorm.weight"))[0] = 0;
    std::vector<double> &gate =
        numbers(whole->argument(name + "mlp.gate.weight"));
    for (int64_t e = 0; e < config.numExperts; ++e)
      gate[e * config.hiddenSize] = e < half ? 10 : -10;
  }
  whole->run();
  for (const char *mesh : {"cp=2,ep=2", "tp=2,ep=2", "dps=1,cp=2,tp=2,ep=4"}) {
    Split ranks = split(*whole, mesh);
    ASSERT_TRUE(ranks.module);
    expectSame(*whole, ranks);
    // Moments of experts without tokens are those of a gradient of exactly 0.
    SmallVector<Tensor> got = runRanks(*whole, ranks);
    func::FuncOp only = whole->only();
    int64_t found = 0;
    for (unsigned r = 0; r < only.getNumResults(); ++r) {
      auto alias = only.getResultAttrOfType<IntegerAttr>(r, "qwen35.alias");
      if (!alias)
        continue;
      std::string key = keyOf(only, alias.getInt());
      if (!key.starts_with("m ") || !key.ends_with("experts.down_proj"))
        continue;
      ++found;
      const std::vector<double> &now = numbers(got[r]);
      const std::vector<double> &before = numbers(whole->argument(key));
      size_t unused = now.size() / 2; // experts of the second half
      double ratio = now[unused] / before[unused];
      int64_t moved = 0;
      for (size_t i = 0; i < now.size(); ++i) {
        bool decays =
            std::abs(now[i] - ratio * before[i]) <= 1e-14 * std::abs(before[i]);
        if (i >= unused)
          EXPECT_TRUE(decays) << key << " element " << i;
        else
          moved += !decays;
      }
      EXPECT_GT(moved, 0) << key;
    }
    EXPECT_EQ(found, 2);
  }
}

TEST(CasesTest, A30ThreeRanksDoNotDivideTheVocabulary) {
  ModelConfig config = smallConfig(false, false);
  ASSERT_NE(config.vocabSize % 3, 0);
  config.numAttentionHeads = 6;
  config.numKeyValueHeads = config.linearNumKeyHeads = 3;
  config.linearNumValueHeads = 6;
  config.intermediateSize = 48;
  auto whole = makeWhole(config, {{13, 20}}, RowShape{48, 4});
  Split ranks = split(*whole, "cp=3", {.zero = 1});
  ASSERT_TRUE(ranks.module && ranks.striped());
  expectSame(*whole, ranks);
  EXPECT_EQ(refusal(*whole, "tp=3")
                .rfind("the model cannot be split so: tp=3 "
                       "does not divide the 64 ids of the "
                       "vocabulary",
                       0),
            0u);
}

/// Bytes that a rank receives in the collectives of a layer, in @only.
struct Traffic {
  int64_t calls = 0, bytes = 0;
};
Traffic received(const Split &split, StringRef layer) {
  Traffic sum;
  split.function("only").walk([&](Operation *op) {
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    auto name = dyn_cast<NameLoc>(op->getLoc());
    if (!isa<qdist::AllGatherOp, qdist::ReduceScatterOp, qdist::AllToAllOp>(
            op) ||
        !(qdist::axesOf(split.mesh, axes) & *split.mesh.axes("cp")) || !name ||
        !name.getName().strref().starts_with(layer))
      return;
    ++sum.calls;
    for (auto [in, out] :
         llvm::zip_equal(op->getOperandTypes(), op->getResultTypes())) {
      auto small =
          cast<RankedTensorType>(isa<qdist::AllGatherOp>(op) ? in : out);
      sum.bytes += small.getNumElements() * small.getElementTypeBitWidth() / 8 *
                   (split.mesh.shape().cp - 1);
    }
  });
  return sum;
}

/// DESIGN.md 4.3 and 4.4: keys and values twice and their gradients once; maps
/// with states and with their gradients, and the tails of stripes both ways.
TEST(StripeTraffic, IsWhatTheClosedFormsSay) {
  ModelConfig c = smallConfig(false, false);
  constexpr RowShape row{96, 4};
  auto whole = makeWhole(c, {{50, 20}}, row);
  for (const char *mesh : {"cp=2", "cp=4", "cp=2,tp=2", "dps=1,cp=4,tp=4"}) {
    Split ranks = split(*whole, mesh);
    ASSERT_TRUE(ranks.module && ranks.striped());
    MeshShape shape = ranks.mesh.shape();
    int64_t others = shape.cp - 1, taps = c.linearConvKernelDim;
    int64_t channels = 2 * c.linearNumKeyHeads * c.linearKeyHeadDim +
                       c.linearNumValueHeads * c.linearValueHeadDim;
    int64_t map = 2 * c.linearNumValueHeads / shape.tp * c.linearKeyHeadDim *
                  (c.linearKeyHeadDim + c.linearValueHeadDim) * 4;
    int64_t tails = 2 * (taps - 1) * channels / shape.tp * 4;
    int64_t kvHeads = std::max<int64_t>(c.numKeyValueHeads / shape.tp, 1);
    int64_t kv = 2 * row.tokens / shape.cp * kvHeads * c.headDim * 4;
    Traffic delta = received(ranks, "layers.0"),
            attention = received(ranks, "layers.1");
    EXPECT_EQ(delta.calls, 4) << mesh;
    EXPECT_EQ(attention.calls, 3) << mesh;
    EXPECT_EQ(delta.bytes, (2 * map + 2 * tails) * others) << mesh;
    EXPECT_EQ(attention.bytes, 3 * kv * others) << mesh;
    std::printf("%-16s delta rule %lld calls, %lld bytes (maps %lld, tails "
                "%lld); attention %lld calls, %lld bytes\n",
                mesh, (long long)delta.calls, (long long)delta.bytes,
                (long long)(2 * map * others), (long long)(2 * tails * others),
                (long long)attention.calls, (long long)attention.bytes);
  }
}

} // namespace
} // namespace qwen35::test
