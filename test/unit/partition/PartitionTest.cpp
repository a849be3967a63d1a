// The partitioned step on n ranks against the whole one, in fp64: DESIGN.md 1.

#include "dialect/Interpreter/Ranks.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "frontend/config/Presets.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"
#include "test/support/Numeric.h"

#include "mlir/Pass/PassManager.h"

#include <cstdlib>
#include <map>

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

constexpr int64_t kRowTokens = 32, kRowDocs = 4;

/// A model of both kinds of layers whose sizes leave room for tp = 4, with
/// fewer key/value heads than that.
ModelConfig smallConfig(bool moe, bool tied) {
  ModelConfig config = llvm::cantFail(presetConfig(moe ? "debug-moe" : "debug"));
  config.layerTypes = {LayerType::LinearAttention, LayerType::FullAttention};
  config.vocabSize = 64;
  config.hiddenSize = 32;
  config.tieWordEmbeddings = tied;
  config.numAttentionHeads = 8;
  config.numKeyValueHeads = 2;
  config.linearNumKeyHeads = 4;
  config.linearNumValueHeads = 8;
  config.linearKeyHeadDim = config.linearValueHeadDim = 8;
  if (moe)
    config.moeIntermediateSize = config.sharedExpertIntermediateSize = 16;
  else
    config.intermediateSize = 64;
  return config;
}

MeshLimits limitsOf(const ModelConfig &c) {
  return {c.numAttentionHeads,
          c.numKeyValueHeads,
          c.linearNumKeyHeads,
          c.linearNumValueHeads,
          c.moe ? c.sharedExpertIntermediateSize : c.intermediateSize,
          c.numExperts,
          c.vocabSize,
          kRowTokens};
}

StringRef textAttr(func::FuncOp function, unsigned i, StringRef name) {
  return function.getArgAttrOfType<StringAttr>(i, name).getValue();
}

/// The step of `rows` rows at stage S1, its inputs, and what @only returns.
struct Whole {
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  std::vector<std::vector<int64_t>> documents; // lengths, per row
  SmallVector<Tensor> arguments, results;

  func::FuncOp only() { return module->lookupSymbol<func::FuncOp>("only"); }
};

/// Documents of one row: from none (only in a batch that has other rows) to as
/// many as it may hold.
std::vector<int64_t> someDocuments(Random &random, bool empty) {
  std::vector<int64_t> lengths;
  int64_t left = kRowTokens;
  int64_t count = empty ? 0 : 1 + random.below(kRowDocs - 1);
  for (int64_t d = 0; d < count && left > 0; ++d) {
    lengths.push_back(1 + random.below(left));
    left -= lengths.back();
  }
  return lengths;
}

std::unique_ptr<Whole> makeWhole(const ModelConfig &config, int64_t rows,
                                 AuxScope aux,
                                 const std::string &compute = "fp32") {
  auto whole = std::make_unique<Whole>();
  whole->context = std::make_unique<MLIRContext>();
  whole->context->disableMultithreading();
  MLIRContext &context = *whole->context;
  TrainModelOptions options;
  options.tokens = rows * kRowTokens;
  options.maxDocs = rows * kRowDocs;
  options.aux = aux;
  whole->module = buildTrainModel(context, config, options);
  PassManager passes(&context);
  ModelPipelineOptions model;
  model.compute = compute;
  buildModelPipeline(passes, model);
  buildAutodiffPipeline(passes, {});
  EXPECT_TRUE(succeeded(passes.run(*whole->module)));

  Random random(rows + 17 * config.moe);
  std::vector<int64_t> all;
  std::vector<int32_t> ids, labels;
  int64_t targets = 0;
  for (int64_t row = 0; row < rows; ++row) {
    whole->documents.push_back(someDocuments(random, /*empty=*/row == 2));
    int64_t real = 0;
    for (int64_t length : whole->documents.back()) {
      all.push_back(length);
      real += length;
    }
    // In the batch of all rows padding inside of it is a document like others.
    if (real < kRowTokens)
      all.push_back(kRowTokens - real);
    for (int64_t t = 0; t < kRowTokens; ++t) {
      ids.push_back(
          t < real ? static_cast<int32_t>(random.below(config.vocabSize)) : 0);
      bool target = t < real && random.below(8) != 0;
      labels.push_back(
          target ? static_cast<int32_t>(random.below(config.vocabSize)) : -100);
      targets += target;
    }
  }
  // With one row the padding is what the table makes of it (router_aux counts
  // tokens that are not padding).
  func::FuncOp only = whole->only();
  for (unsigned i = 0; i < only.getNumArguments(); ++i) {
    Type type = only.getArgumentTypes()[i];
    StringRef role = textAttr(only, i, kRoleAttr);
    StringRef name = textAttr(only, i, kNameAttr);
    if (auto seq = dyn_cast<SeqType>(type)) {
      auto table = interpreter::documentTable(
          seq, rows == 1 ? whole->documents[0] : all);
      EXPECT_TRUE(table);
      whole->arguments.push_back(*table);
      continue;
    }
    auto shape = cast<RankedTensorType>(type).getShape();
    Tensor tensor;
    tensor.shape.assign(shape.begin(), shape.end());
    int64_t count = cast<RankedTensorType>(type).getNumElements();
    if (name == "ids")
      tensor.elements = ids;
    else if (name == "labels")
      tensor.elements = labels;
    else if (role == "scalar")
      tensor.elements = std::vector<double>{
          name == "inv_count" ? 1.0 / std::max<int64_t>(targets, 1)
          : name == "lr"      ? 0.01
                              : 0.7};
    else if (role == "v")
      tensor.elements = [&] {
        std::vector<double> v = random.normals(count, 0.1);
        for (double &x : v)
          x = x * x + 0.01;
        return v;
      }();
    else
      tensor.elements = random.normals(count, 0.3);
    whole->arguments.push_back(std::move(tensor));
  }
  auto results = interpreter::interpret(only, whole->arguments, {});
  EXPECT_TRUE(succeeded(results));
  EXPECT_GT(targets, 0);
  if (succeeded(results))
    whole->results = *results;
  return whole;
}

double worstOf(const Tensor &got, const Tensor &want) {
  const auto &a = std::get<std::vector<double>>(got.elements);
  const auto &b = std::get<std::vector<double>>(want.elements);
  EXPECT_EQ(got.shape, want.shape);
  double worst = 0, scale = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : 1e300);
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / std::max(scale, 1e-12);
}

struct Case {
  std::string model; // dense, tied, moe, moe-aux, moe-bf16
  MeshShape mesh;
  int64_t zero;
  bool regather = false;
  std::string remat = "none";
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.model << " " << printMeshShape(c.mesh) << " zero=" << c.zero;
}

Whole &wholeOf(const Case &c) {
  static std::map<std::pair<std::string, int64_t>, std::unique_ptr<Whole>> known;
  int64_t rows = c.mesh.dpr * c.mesh.dps;
  auto &whole = known[{c.model, rows}];
  if (!whole)
    whole = makeWhole(smallConfig(c.model.starts_with("moe"), c.model == "tied"),
                      rows,
                      c.model == "moe-aux" ? AuxScope::Pooled : AuxScope::None,
                      c.model == "moe-bf16" ? "bf16" : "fp32");
  return *whole;
}

/// Every rank's part of the arguments of the whole step.
SmallVector<SmallVector<Tensor>> argumentsOf(Whole &whole,
                                             func::FuncOp function) {
  Mesh mesh = *qdist::meshOf(function);
  SmallVector<SmallVector<Tensor>> arguments(mesh.ranks());
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto sharding = qdist::Sharding::of(
        function.getArgAttrOfType<qdist::ShardingAttr>(i, qdist::kShardingAttr),
        mesh);
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (auto seq = dyn_cast<SeqType>(function.getArgumentTypes()[i])) {
        int64_t row = mesh.coordinate(rank, *mesh.axes("data"));
        arguments[rank].push_back(
            *interpreter::documentTable(seq, whole.documents[row]));
      } else {
        arguments[rank].push_back(
            interpreter::localPart(whole.arguments[i], sharding, mesh, rank));
      }
    }
  }
  return arguments;
}

class PartitionTest : public testing::TestWithParam<Case> {};

TEST_P(PartitionTest, MeansTheSameOnAllRanks) {
  Whole &whole = wholeOf(GetParam());
  func::FuncOp only = whole.only();
  OwningOpRef<ModuleOp> module = whole.module->clone();
  PassManager passes(whole.context.get());
  PartitionPipelineOptions options;
  options.mesh = printMeshShape(GetParam().mesh);
  options.zero = GetParam().zero;
  options.regather = GetParam().regather;
  buildPartitionPipeline(passes, options);
  SchedulePipelineOptions schedule;
  schedule.remat = GetParam().remat;
  if (schedule.remat != "none")
    buildSchedulePipeline(passes, schedule);
  ASSERT_TRUE(succeeded(passes.run(*module)));

  Mesh mesh = *qdist::meshOf(*module);
  auto function = module->lookupSymbol<func::FuncOp>("only");
  auto shardingOf = [&](Attribute attr) {
    return qdist::Sharding::of(cast<qdist::ShardingAttr>(attr), mesh);
  };
  auto ranks =
      interpreter::interpretRanks(function, argumentsOf(whole, function));
  ASSERT_TRUE(succeeded(ranks));
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    SmallVector<Tensor> locals;
    for (auto &results : *ranks)
      locals.push_back(results[i]);
    auto sharding = shardingOf(function.getResultAttr(i, qdist::kShardingAttr));
    auto got = interpreter::assemble(locals, sharding, mesh);
    auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
    std::string what = "result " + std::to_string(i);
    if (alias)
      what = (textAttr(only, alias.getInt(), kRoleAttr) + " " +
              textAttr(only, alias.getInt(), kNameAttr))
                 .str();
    EXPECT_LE(worstOf(got.value, whole.results[i]), 1e-9) << what;
    EXPECT_EQ(got.spread, 0) << what << ": copies differ between ranks";
  }
}

/// Values by role and name, then by rank.
using State = std::map<std::string, SmallVector<Tensor>>;

std::string keyOf(func::FuncOp function, unsigned argument) {
  return (textAttr(function, argument, kRoleAttr) + " " +
          textAttr(function, argument, kNameAttr))
      .str();
}

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
  OwningOpRef<ModuleOp> module = whole.module->clone();
  PassManager passes(whole.context.get());
  PartitionPipelineOptions options;
  options.mesh = printMeshShape(GetParam().mesh);
  options.zero = GetParam().zero;
  buildPartitionPipeline(passes, options);
  ASSERT_TRUE(succeeded(passes.run(*module)));
  Mesh mesh = *qdist::meshOf(*module);
  auto lookup = [](ModuleOp in, StringRef name) {
    return in.lookupSymbol<func::FuncOp>(name);
  };

  State one, split;
  auto finish = lookup(*module, "finish");
  for (unsigned i = 0; i < finish.getNumArguments(); ++i) {
    std::string key = keyOf(finish, i);
    const Tensor &value = whole.arguments[i]; // @only has the same arguments
    one[key] = {value};
    auto sharding = qdist::Sharding::of(
        finish.getArgAttrOfType<qdist::ShardingAttr>(i, qdist::kShardingAttr),
        mesh);
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (auto seq = dyn_cast<SeqType>(finish.getArgumentTypes()[i]))
        split[key].push_back(*interpreter::documentTable(
            seq,
            whole.documents[mesh.coordinate(rank, *mesh.axes("data"))]));
      else
        split[key].push_back(
            interpreter::localPart(value, sharding, mesh, rank));
    }
  }
  for (StringRef name : {"first", "accumulate", "finish", "eval"}) {
    advance(lookup(*whole.module, name), 1, one);
    advance(lookup(*module, name), mesh.ranks(), split);
    if (HasFatalFailure())
      return;
    auto function = lookup(*module, name);
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
                    Case{"tied", {.tp = 2}, 0},
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
           legalMeshes(ranks, limitsOf(smallConfig(moe, false)))) {
        if (model == "moe-aux" && mesh.dpr * mesh.dps > 1)
          continue; // refused: see RefusalTest
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
  // Working copies: values of bf16, of which nothing is rounded in fp64.
  all.push_back({"moe-bf16", {.dps = 2, .tp = 2, .ep = 4}, 0});
  for (int64_t zero : {1, 2, 3})
    all.push_back({"moe-bf16", {.dps = 2, .tp = 2, .ep = 2}, zero});
  for (const char *remat : {"selective", "full"}) {
    all.push_back({"dense", {.dps = 2}, 3, false, remat});
    all.push_back({"moe", {.dps = 2, .tp = 2, .ep = 2}, 3, true, remat});
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
                 Case{"moe", {.dps = 2, .tp = 2, .ep = 2}, 3}}) {
    SCOPED_TRACE(c.model + " zero " + std::to_string(c.zero));
    Whole &whole = wholeOf(c);
    std::vector<SmallVector<SmallVector<Tensor>>> all;
    std::vector<int64_t> collectives;
    for (int64_t bytes : {0, 1000, 32 << 20}) {
      OwningOpRef<ModuleOp> module = whole.module->clone();
      PassManager passes(whole.context.get());
      PartitionPipelineOptions options;
      options.mesh = printMeshShape(c.mesh);
      options.zero = c.zero;
      options.bucketBytes = bytes;
      buildPartitionPipeline(passes, options);
      ASSERT_TRUE(succeeded(passes.run(*module)));
      auto function = module->lookupSymbol<func::FuncOp>("only");
      auto results =
          interpreter::interpretRanks(function, argumentsOf(whole, function));
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
          StringRef weight = textAttr(
              function, cast<BlockArgument>(input).getArgNumber(), kNameAttr);
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

/// The balance loss counts the whole batch, of which a data rank has a part.
TEST(PartitionRefusalTest, BalanceLossOfSeveralDataRanks) {
  auto whole = makeWhole(smallConfig(true, false), 2, AuxScope::PerLayer);
  std::string message;
  ScopedDiagnosticHandler handler(whole->context.get(), [&](Diagnostic &d) {
    message = d.str();
    return success();
  });
  PassManager passes(whole->context.get());
  PartitionPipelineOptions options;
  options.mesh = "dps=2";
  buildPartitionPipeline(passes, options);
  EXPECT_TRUE(failed(passes.run(*whole->module)));
  EXPECT_EQ(message.rfind("'qwen35.router_aux' counts how often experts were "
                          "chosen in the whole batch",
                          0),
            0u)
      << message;
}

} // namespace
} // namespace qwen35::test
