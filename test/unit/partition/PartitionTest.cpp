// The partitioned step on n ranks against the whole one, in fp64: DESIGN.md 1.

#include "dialect/Qwen35/IR/StepAttrs.h"
#include "frontend/config/Presets.h"
#include "test/support/Numeric.h"
#include "test/unit/partition/Step.h"

#include "mlir/Pass/PassManager.h"

#include <cstdlib>
#include <map>

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

constexpr RowShape kRow;

/// Documents of one row: from none (only in a batch that has other rows) to as
/// many as it may hold; `full`: without padding.
std::vector<int64_t> someDocuments(Random &random, bool empty, bool full) {
  std::vector<int64_t> lengths;
  int64_t left = kRow.tokens;
  int64_t count = empty ? 0 : 1 + random.below(kRow.docs - 1);
  for (int64_t d = 0; d < count && left > 0; ++d) {
    lengths.push_back(1 + random.below(left));
    left -= lengths.back();
  }
  if (full)
    lengths.back() += left;
  return lengths;
}

struct Case {
  std::string model; // dense, tied, moe, moe-aux, moe-layers, moe-bf16
  MeshShape mesh;
  int64_t zero;
  bool regather = false;
  std::string remat = "none";
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.model << " " << printMeshShape(c.mesh) << " zero=" << c.zero;
}

/// Whether ranks hold stripes of rows: not where a stripe is shorter than what
/// a convolution reads back, nor for a loss of the whole row.
bool isStriped(const Case &c) {
  constexpr int64_t kTaps = 4;
  return c.mesh.cp > 1 && kRow.tokens / (2 * c.mesh.cp) >= kTaps - 1;
}

Whole &wholeOf(const Case &c) {
  static std::map<std::pair<std::string, int64_t>, std::unique_ptr<Whole>> known;
  int64_t rows = c.mesh.dpr * c.mesh.dps;
  auto &whole = known[{c.model, rows}];
  if (!whole) {
    bool moe = c.model.starts_with("moe");
    Random random(rows + 17 * moe);
    Documents documents;
    WholeOptions options;
    options.aux = c.model == "moe-aux"      ? AuxScope::Pooled
                  : c.model == "moe-layers" ? AuxScope::PerLayer
                                            : AuxScope::None;
    for (int64_t row = 0; row < rows; ++row) {
      // The balance loss counts tokens that are not padding, which in the batch
      // of all rows is at its end only.
      bool full = options.aux != AuxScope::None && row + 1 < rows;
      documents.push_back(
          someDocuments(random, /*empty=*/row == 2 && !full, full));
    }
    options.compute = c.model == "moe-bf16" ? "bf16" : "fp32";
    options.seed = 100 + rows + 17 * moe;
    whole = makeWhole(smallConfig(moe, c.model == "tied"), documents, kRow,
                      options);
    whole->run();
  }
  return *whole;
}

Split splitOf(const Case &c) {
  return split(wholeOf(c), printMeshShape(c.mesh),
               {c.zero, c.regather, c.remat});
}

/// Between the ranks of a row nothing moves that is as wide as the hidden state
/// of its tokens, but what experts of several of them are sent.
void expectStriped(const Split &split) {
  const Mesh &mesh = split.mesh;
  MeshAxes cp = *mesh.axes("cp");
  int64_t gathers = 0;
  split.function("only").walk([&](Operation *op) {
    if (isa<AttentionOp, AttentionBwdOp, CausalConvOp, CausalConvBwdOp,
            GatedDeltaRuleOp, GatedDeltaRuleBwdOp, RopeTableOp>(op))
      ADD_FAILURE() << op->getName().getStringRef().str()
                    << " on the whole row";
    auto all = dyn_cast<qdist::AllGatherOp>(op);
    if (!all || !(qdist::axesOf(mesh, all.getAxes()) & cp) ||
        llvm::all_of(all.getInputs(), llvm::IsaPred<BlockArgument>)) // weights
      return;
    for (Operation *user : op->getUsers()) {
      EXPECT_TRUE((isa<CpAttentionOp, CpAttentionBwdOp, CpCausalConvOp,
                       CpCausalConvBwdOp, AddToTailsOp, AffineScanOp,
                       AffineScanBwdOp, MoeExpertsOp, MoeExpertsBwdOp,
                       qdist::LocalIdsOp, func::ReturnOp, CastOp>(user)))
          << "a gather over cp is read by "
          << user->getName().getStringRef().str();
      gathers += isa<CpAttentionOp, CpCausalConvOp, AffineScanOp>(user);
    }
  });
  EXPECT_EQ(gathers, 2 + 1 + 2); // k and v, tails, m and b
}

class PartitionTest : public testing::TestWithParam<Case> {};

TEST_P(PartitionTest, MeansTheSameOnAllRanks) {
  Split split = splitOf(GetParam());
  ASSERT_TRUE(split.module);
  EXPECT_EQ(split.striped(), isStriped(GetParam()));
  if (isStriped(GetParam()) && GetParam().remat == "none")
    expectStriped(split);
  expectSame(wholeOf(GetParam()), split);
}

/// Values by role and name, then by rank.
using State = std::map<std::string, SmallVector<Tensor>>;

/// Runs a function on the state and overwrites what it overwrites.
void advance(func::FuncOp function, int64_t ranks, State &state) {
  SmallVector<SmallVector<Tensor>> arguments(ranks), results;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      arguments[rank].push_back(state.at(keyOf(function, i))[rank]);
  if (ranks == 1) {
    auto one = interpreter::interpret(function, arguments[0], {});
    ASSERT_TRUE(succeeded(one));
    results.push_back(*one);
  } else {
    auto all = interpreter::interpretRanks(function, arguments);
    ASSERT_TRUE(succeeded(all));
    results = *all;
  }
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr))
      for (int64_t rank = 0; rank < ranks; ++rank)
        state.at(keyOf(function, alias.getInt()))[rank] = results[rank][i];
}

/// A step of three microbatches: sums start partial, stay so, and end reduced.
class MicrobatchTest : public testing::TestWithParam<Case> {};

TEST_P(MicrobatchTest, SumsArePartialUntilTheLast) {
  Whole &whole = wholeOf(GetParam());
  Split ranks = splitOf(GetParam());
  ASSERT_TRUE(ranks.module);
  const Mesh &mesh = ranks.mesh;

  State one, split;
  auto finish = ranks.function("finish");
  for (unsigned i = 0; i < finish.getNumArguments(); ++i)
    split[keyOf(finish, i)] = rankArguments(whole, ranks, finish, i);
  for (unsigned i = 0; i < whole.only().getNumArguments(); ++i)
    one[keyOf(whole.only(), i)] = {whole.arguments[i]};
  for (StringRef name : {"first", "accumulate", "finish", "eval"}) {
    advance(whole.module->lookupSymbol<func::FuncOp>(name), 1, one);
    advance(ranks.function(name), mesh.ranks(), split);
    if (HasFatalFailure())
      return;
    auto function = ranks.function(name);
    int64_t partial = 0;
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
      if (!alias)
        continue;
      std::string key = keyOf(function, alias.getInt());
      auto sharding = qdist::Sharding::of(
          function.getResultAttrOfType<qdist::ShardingAttr>(
              i, qdist::kShardingAttr),
          mesh);
      partial += sharding.partial != 0;
      auto got = interpreter::assemble(split.at(key), sharding, mesh);
      EXPECT_LE(worstOf(got.value, one.at(key)[0]), 1e-9)
          << name.str() << ": " << key;
      EXPECT_EQ(got.spread, 0) << name.str() << ": " << key;
    }
    // Sums that are scattered where they are made are whole in that, but those
    // of dpr, and of tp that copies what it does not split.
    bool rest = GetParam().zero < 2 ||
                GetParam().mesh.dpr * GetParam().mesh.tp > 1;
    if (name == "first" || name == "accumulate")
      EXPECT_EQ(partial > 0, rest) << name.str();
    else if (GetParam().zero == 0)
      EXPECT_EQ(partial, 0) << name.str();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, MicrobatchTest,
    testing::Values(Case{"dense", {.dps = 2}, 0}, Case{"dense", {.dps = 2}, 1},
                    Case{"tied", {.tp = 2}, 0}, Case{"dense", {.cp = 2}, 1},
                    Case{"tied", {.cp = 2, .tp = 2}, 0},
                    Case{"moe", {.cp = 2, .tp = 2, .ep = 4}, 0},
                    Case{"moe", {.dps = 2, .tp = 2, .ep = 4}, 0},
                    Case{"moe", {.dps = 2, .tp = 2, .ep = 2}, 1},
                    Case{"dense", {.dpr = 2, .dps = 2}, 2},
                    Case{"tied", {.dps = 2, .tp = 2}, 3},
                    Case{"moe", {.dps = 2, .tp = 2, .ep = 2}, 2},
                    Case{"moe-bf16", {.dps = 2, .cp = 2}, 3}));

/// Every legal mesh of so many ranks, for every model.
std::vector<Case> cases() {
  int64_t largest = 4;
  if (const char *text = std::getenv("QWEN35_TEST_RANKS"))
    largest = std::atoll(text);
  std::vector<Case> all;
  for (int64_t ranks = 1; ranks <= largest; ++ranks)
    for (const char *name : {"dense", "tied", "moe", "moe-aux"}) {
      std::string model = name;
      bool moe = model.starts_with("moe");
      for (const MeshShape &mesh :
           legalMeshes(ranks, limitsOf(smallConfig(moe, false), kRow.tokens))) {
        if (model == "tied" && mesh.dpr > 1)
          continue;
        all.push_back({model, mesh, 0});
        if (mesh.dps * mesh.cp == 1)
          continue;
        if (model == "dense" || model == "moe")
          for (int64_t zero : {1, 2, 3})
            all.push_back({model, mesh, zero});
        else // the balance loss and a tied table: what adds most to the others
          all.push_back({model, mesh, model == "tied" ? 3 : 1});
      }
    }
  for (const char *mesh : {"dpr=2", "dps=4,ep=2", "dps=2,tp=2,ep=4",
                           "dps=2,cp=2"}) {
    std::string error;
    all.push_back({"moe-layers", *parseMeshShape(mesh, error), 0});
  }
  // Working copies: values of bf16, of which nothing is rounded in fp64.
  all.push_back({"moe-bf16", {.dps = 2, .tp = 2, .ep = 4}, 0});
  for (int64_t zero : {1, 2, 3})
    all.push_back({"moe-bf16", {.dps = 2, .tp = 2, .ep = 2}, zero});
  for (const char *remat : {"selective", "full"}) {
    all.push_back({"dense", {.dps = 2}, 3, false, remat});
    all.push_back({"moe", {.dps = 2, .tp = 2, .ep = 2}, 3, true, remat});
    all.push_back({"moe", {.cp = 2, .tp = 2, .ep = 4}, 0, false, remat});
  }
  all.push_back({"dense", {.dps = 2, .tp = 2}, 0, true});
  all.push_back({"moe", {.cp = 2, .tp = 2, .ep = 4}, 1, true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Meshes, PartitionTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case> &info) {
                           std::string name = info.param.model + "_" +
                                              printMeshShape(info.param.mesh) +
                                              "_zero" +
                                              std::to_string(info.param.zero) +
                                              (info.param.regather ? "_regather"
                                                                   : "") +
                              (info.param.remat == "none"
                                   ? ""
                                   : "_" + info.param.remat);
                           for (char &c : name)
                             if (!std::isalnum(c) && c != '_')
                               c = '_';
                           return name;
                         });

/// What ranks compute is the same to the bit however collectives are packed.
TEST(BucketTest, ChangesNoBit) {
  for (Case c : {Case{"dense", {.dps = 2, .tp = 2}, 1},
                 Case{"moe", {.dpr = 2, .dps = 2, .ep = 2}, 2},
                 Case{"dense", {.cp = 2, .tp = 2}, 1},
                 Case{"moe", {.dps = 2, .tp = 2, .ep = 2}, 3}}) {
    SCOPED_TRACE(c.model + " zero " + std::to_string(c.zero));
    Whole &whole = wholeOf(c);
    std::vector<SmallVector<SmallVector<Tensor>>> all;
    std::vector<int64_t> collectives;
    for (int64_t bytes : {0, 1000, 32 << 20}) {
      SplitOptions options;
      options.zero = c.zero;
      options.bucketBytes = bytes;
      Split ranks = split(whole, printMeshShape(c.mesh), options);
      ASSERT_TRUE(ranks.module);
      auto function = ranks.function("only");
      auto results = interpreter::interpretRanks(
          function, rankArguments(whole, ranks, function));
      ASSERT_TRUE(succeeded(results));
      all.push_back(*results);
      int64_t count = 0;
      for (Operation &op : function.getBody().front())
        if (isa<qdist::AllReduceOp, qdist::ReduceScatterOp,
                qdist::AllGatherOp>(op))
          ++count;
      collectives.push_back(count);
    }
    EXPECT_GT(collectives[0], collectives[1]);
    EXPECT_GT(collectives[1], collectives[2]);
    for (size_t packed : {1, 2})
      for (size_t rank = 0; rank < all[0].size(); ++rank)
        for (size_t i = 0; i < all[0][rank].size(); ++i)
          EXPECT_EQ(all[packed][rank][i].elements, all[0][rank][i].elements)
              << "result " << i << " on rank " << rank << " in buckets of "
              << (packed == 1 ? "1000 bytes" : "any size");
  }
}

/// Nor does when collectives start and what flies at once, which on every rank is
/// the same program: @only, @accumulate of weights, gradients, tokens in flight.
TEST(ScheduleTest, ChangesNoBit) {
  for (Case c : {Case{"dense", {.dps = 2, .tp = 2}, 1},
                 Case{"moe", {.dpr = 2, .dps = 2, .ep = 2}, 2},
                 Case{"dense", {.cp = 2, .tp = 2}, 1},
                 Case{"moe", {.dps = 2, .tp = 2, .ep = 2}, 3}})
    for (const char *remat : {"none", "selective", "full"})
      for (StringRef name : {"only", "accumulate"}) {
        SCOPED_TRACE(c.model + " zero " + std::to_string(c.zero) + " remat " +
                     remat + " @" + name.str());
        Whole &whole = wholeOf(c);
        std::vector<SmallVector<SmallVector<Tensor>>> all;
        std::vector<int64_t> waits;
        for (int64_t bytes : {int64_t(-1), int64_t(20000), int64_t(1) << 30}) {
          SplitOptions options;
          options.zero = c.zero;
          options.remat = remat;
          options.bucketBytes = 4000;
          options.overlap = bytes >= 0;
          options.inFlight = bytes;
          if (bytes < 0 && options.remat == "none")
            options.remat = "selective"; // S4 all the same: bits as well
          Split ranks = split(whole, printMeshShape(c.mesh), options);
          ASSERT_TRUE(ranks.module);
          auto function = ranks.function(name);
          auto results = interpreter::interpretRanks(
              function, rankArguments(whole, ranks, function));
          ASSERT_TRUE(succeeded(results));
          all.push_back(*results);
          auto ends = function.getOps<qdist::WaitOp>();
          waits.push_back(std::distance(ends.begin(), ends.end()));
        }
        EXPECT_EQ(waits[0], 0);
        EXPECT_GT(waits[1], 0);
        EXPECT_GE(waits[2], waits[1]);
        for (size_t scheduled : {1, 2})
          for (size_t rank = 0; rank < all[0].size(); ++rank)
            for (size_t i = 0; i < all[0][rank].size(); ++i)
              EXPECT_EQ(all[scheduled][rank][i].elements,
                        all[0][rank][i].elements)
                  << "result " << i << " on rank " << rank;
      }
}

int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() * type.getElementTypeBitWidth() / 8;
}

/// With zero=3 the weights that are whole at one time are those of one layer,
/// whatever is recomputed.
TEST(WholeWeightsTest, AreThoseOfOneLayer) {
  MLIRContext context;
  context.disableMultithreading();
  TrainModelOptions options;
  options.tokens = 2 * 128;
  options.maxDocs = 8;
  auto original = buildTrainModel(
      context, llvm::cantFail(presetConfig("debug-moe")), options);
  for (std::string remat : {"none", "selective", "full"}) {
    OwningOpRef<ModuleOp> module = original->clone();
    PassManager passes(&context);
    ModelPipelineOptions model;
    model.compute = "bf16";
    buildModelPipeline(passes, model);
    buildAutodiffPipeline(passes, {});
    PartitionPipelineOptions partition;
    partition.mesh = "dps=2";
    partition.zero = 3;
    buildPartitionPipeline(passes, partition);
    SchedulePipelineOptions schedule;
    schedule.remat = remat;
    buildSchedulePipeline(passes, schedule);
    ASSERT_TRUE(succeeded(passes.run(*module)));
    for (StringRef name : {"eval", "first", "accumulate", "finish", "only"}) {
      SCOPED_TRACE(remat + " @" + name.str());
      auto function = module->lookupSymbol<func::FuncOp>(name);
      // Gathered weights: bytes from where they are made to their last reader.
      std::map<Operation *, int64_t> change;
      std::map<std::string, int64_t> layers;
      int64_t gathers = 0;
      for (auto gather : function.getOps<qdist::AllGatherOp>()) {
        if (!llvm::all_of(gather.getInputs(), llvm::IsaPred<BlockArgument>))
          continue;
        ++gathers;
        for (auto [input, output] :
             llvm::zip_equal(gather.getInputs(), gather.getOutputs())) {
          StringRef weight =
              function
                  .getArgAttrOfType<StringAttr>(
                      cast<BlockArgument>(input).getArgNumber(), kNameAttr)
                  .getValue();
          size_t layer = weight.find("layers.");
          std::string of = layer == StringRef::npos
                               ? weight.str()
                               : weight.substr(layer, 8).str();
          bool again = gather->hasAttr(kRecomputeAttr);
          layers[of + (again ? " again" : "")] += bytesOf(output);
          change[gather] += bytesOf(output);
          Operation *last = gather;
          for (Operation *user : output.getUsers()) {
            user = function.getBody().front().findAncestorOpInBlock(*user);
            if (last->isBeforeInBlock(user))
              last = user;
          }
          change[last->getNextNode()] -= bytesOf(output);
        }
      }
      int64_t live = 0, peak = 0, layer = 0, all = 0;
      for (Operation &op : function.getBody().front()) {
        live += change[&op];
        peak = std::max(peak, live);
      }
      for (auto &[of, bytes] : layers) {
        layer = std::max(layer, bytes);
        all += bytes;
      }
      EXPECT_LE(peak, layer);
      EXPECT_LT(3 * layer, all);
      EXPECT_GE(gathers, name == "eval" ? 8 : 16);
    }
  }
}

} // namespace
} // namespace qwen35::test
