#include "test/unit/partition/Step.h"

#include "dialect/Qwen35/IR/StepAttrs.h"
#include "frontend/config/Presets.h"
#include "runtime/schema/stripe_table.h"
#include "test/support/Numeric.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {

ModelConfig smallConfig(bool moe, bool tied) {
  ModelConfig config =
      llvm::cantFail(presetConfig(moe ? "debug-moe" : "debug"));
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

MeshLimits limitsOf(const ModelConfig &c, int64_t rowTokens) {
  return {c.numAttentionHeads,
          c.numKeyValueHeads,
          c.linearNumKeyHeads,
          c.linearNumValueHeads,
          c.moe ? c.sharedExpertIntermediateSize : c.intermediateSize,
          c.numExperts,
          c.vocabSize,
          rowTokens};
}

static StringRef textAttr(func::FuncOp function, unsigned i, StringRef name) {
  return function.getArgAttrOfType<StringAttr>(i, name).getValue();
}

std::string keyOf(func::FuncOp function, unsigned argument) {
  return (textAttr(function, argument, kRoleAttr) + " " +
          textAttr(function, argument, kNameAttr))
      .str();
}

Tensor &Whole::argument(const std::string &key) {
  for (unsigned i = 0; i < only().getNumArguments(); ++i)
    if (keyOf(only(), i) == key)
      return arguments[i];
  ADD_FAILURE() << "no argument \"" << key << "\"";
  return arguments[0];
}

void Whole::run() {
  auto made = interpreter::interpret(only(), arguments, {});
  EXPECT_TRUE(succeeded(made));
  if (succeeded(made))
    results = *made;
}

std::unique_ptr<Whole> makeWhole(const ModelConfig &config,
                                 const Documents &documents, RowShape row,
                                 const WholeOptions &options) {
  auto whole = std::make_unique<Whole>();
  whole->context = std::make_unique<MLIRContext>();
  whole->context->disableMultithreading();
  whole->row = row;
  whole->documents = documents;
  MLIRContext &context = *whole->context;
  int64_t rows = static_cast<int64_t>(documents.size());
  TrainModelOptions train;
  train.tokens = rows * row.tokens;
  train.maxDocs = rows * row.docs;
  train.aux = options.aux;
  whole->module = buildTrainModel(context, config, train);
  PassManager passes(&context);
  ModelPipelineOptions model;
  model.compute = options.compute;
  buildModelPipeline(passes, model);
  buildAutodiffPipeline(passes, {});
  EXPECT_TRUE(succeeded(passes.run(*whole->module)));

  Random random(options.seed);
  std::vector<int64_t> all;
  std::vector<int32_t> ids, labels;
  int64_t targets = 0;
  for (const auto &[at, lengths] : llvm::enumerate(documents)) {
    int64_t real = 0;
    for (int64_t length : lengths) {
      all.push_back(length);
      real += length;
    }
    // In the batch of all rows padding inside of it is a document like others.
    if (real < row.tokens && at + 1 < documents.size())
      all.push_back(row.tokens - real);
    for (int64_t t = 0; t < row.tokens; ++t) {
      ids.push_back(
          t < real ? static_cast<int32_t>(random.below(config.vocabSize)) : 0);
      bool target = t < real && random.below(8) != 0;
      labels.push_back(
          target ? static_cast<int32_t>(random.below(config.vocabSize)) : -100);
      targets += target;
    }
  }
  EXPECT_GT(targets, 0);
  func::FuncOp only = whole->only();
  for (unsigned i = 0; i < only.getNumArguments(); ++i) {
    Type type = only.getArgumentTypes()[i];
    StringRef role = textAttr(only, i, kRoleAttr);
    StringRef name = textAttr(only, i, kNameAttr);
    if (auto seq = dyn_cast<SeqType>(type)) {
      auto table = interpreter::documentTable(seq, all);
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
  return whole;
}

bool Split::striped() const {
  func::FuncOp only = function("only");
  for (unsigned i = 0; i < only.getNumArguments(); ++i)
    if (textAttr(only, i, kNameAttr) == kStripesName)
      return true;
  return false;
}

Split split(const Whole &whole, const std::string &mesh,
            const SplitOptions &options) {
  Split split;
  split.module = whole.module.get().clone();
  PassManager passes(whole.context.get());
  PartitionPipelineOptions pipeline;
  pipeline.mesh = mesh;
  pipeline.zero = options.zero;
  pipeline.regather = options.regather;
  pipeline.bucketBytes = options.bucketBytes;
  buildPartitionPipeline(passes, pipeline);
  SchedulePipelineOptions schedule;
  schedule.remat = options.remat;
  schedule.overlap = options.overlap;
  schedule.inFlight = options.inFlight;
  if (options.remat != "none" || options.overlap)
    buildSchedulePipeline(passes, schedule);
  if (failed(passes.run(*split.module)))
    split.module = nullptr;
  else
    split.mesh = *qdist::meshOf(*split.module);
  return split;
}

/// Tokens of rows in the order of the ranks that hold them: stripes 0 and
/// 2 cp - 1, then 1 and 2 cp - 2, and so on.
static Tensor inRankOrder(const Tensor &tokens, int64_t rowTokens, int64_t cp) {
  StripeTable layout{rowTokens / cp, cp};
  const auto &from = std::get<std::vector<int32_t>>(tokens.elements);
  std::vector<int32_t> to;
  for (size_t row = 0; row < from.size(); row += rowTokens)
    for (int64_t rank = 0; rank < cp; ++rank)
      for (int64_t j = 0; j < StripeTable::kLocal; ++j) {
        auto first = from.begin() + row + layout.index(rank, j) * layout.rows();
        to.insert(to.end(), first, first + layout.rows());
      }
  return {tokens.shape, to};
}

SmallVector<Tensor> rankArguments(const Whole &whole, const Split &split,
                                  func::FuncOp function, unsigned i) {
  const Mesh &mesh = split.mesh;
  auto sharding = qdist::Sharding::of(
      function.getArgAttrOfType<qdist::ShardingAttr>(i, qdist::kShardingAttr),
      mesh);
  int64_t cp = mesh.shape().cp;
  bool striped = split.striped();
  std::string key = keyOf(function, i);
  SmallVector<Tensor> all;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    auto seq = dyn_cast<SeqType>(function.getArgumentTypes()[i]);
    bool table = textAttr(function, i, kNameAttr) == kStripesName;
    const std::vector<int64_t> &lengths =
        whole.documents[mesh.coordinate(rank, *mesh.axes("data"))];
    if (seq && !striped) {
      all.push_back(*interpreter::documentTable(seq, lengths));
      continue;
    }
    if (seq || table) {
      StripeTable layout{whole.row.tokens / cp, cp};
      SeqTable local{layout.tokens, StripeTable::localDocs(whole.row.docs)};
      if (seq)
        EXPECT_TRUE(seq.getTokens() == local.tokens &&
                    seq.getMaxDocs() == local.maxDocs);
      std::vector<int32_t> words(local.words()), stripes(layout.words());
      EXPECT_TRUE(fillStripeTables(
          layout, mesh.coordinate(rank, *mesh.axes("cp")), lengths.data(),
          lengths.size(), local, words.data(), stripes.data()));
      if (seq)
        all.push_back({{local.words()}, words});
      else
        all.push_back({{layout.words()}, stripes});
      continue;
    }
    func::FuncOp only = whole.only();
    for (unsigned k = 0; k < only.getNumArguments(); ++k)
      if (keyOf(only, k) == key) {
        bool tokens = striped && textAttr(only, k, kRoleAttr) == "input";
        all.push_back(interpreter::localPart(
            tokens ? inRankOrder(whole.arguments[k], whole.row.tokens, cp)
                   : whole.arguments[k],
            sharding, mesh, rank));
      }
  }
  EXPECT_EQ(all.size(), size_t(mesh.ranks())) << key;
  return all;
}

SmallVector<SmallVector<Tensor>> rankArguments(const Whole &whole,
                                               const Split &split,
                                               func::FuncOp function) {
  SmallVector<SmallVector<Tensor>> arguments(split.mesh.ranks());
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    for (auto [rank, argument] :
         llvm::enumerate(rankArguments(whole, split, function, i)))
      arguments[rank].push_back(argument);
  return arguments;
}

/// "grad model.norm.weight", or the number of a result that has no name.
static std::string resultName(func::FuncOp function, unsigned i) {
  auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr);
  return alias ? keyOf(function, alias.getInt())
               : "result " + std::to_string(i);
}

SmallVector<Tensor> runRanks(const Whole &whole, const Split &split) {
  auto function = split.function("only");
  auto ranks = interpreter::interpretRanks(
      function, rankArguments(whole, split, function));
  SmallVector<Tensor> all;
  EXPECT_TRUE(succeeded(ranks));
  for (unsigned i = 0; succeeded(ranks) && i < function.getNumResults(); ++i) {
    SmallVector<Tensor> locals;
    for (auto &results : *ranks)
      locals.push_back(results[i]);
    auto sharding =
        qdist::Sharding::of(function.getResultAttrOfType<qdist::ShardingAttr>(
                                i, qdist::kShardingAttr),
                            split.mesh);
    auto got = interpreter::assemble(locals, sharding, split.mesh);
    EXPECT_EQ(got.spread, 0)
        << resultName(function, i) << ": copies differ between ranks";
    all.push_back(got.value);
  }
  return all;
}

double worstOf(const Tensor &got, const Tensor &want) {
  const auto &a = std::get<std::vector<double>>(got.elements);
  const auto &b = std::get<std::vector<double>>(want.elements);
  EXPECT_EQ(got.shape, want.shape);
  double worst = 0, scale = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst =
        std::max(worst, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : 1e300);
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / std::max(scale, 1e-12);
}

void expectSame(Whole &whole, const Split &split) {
  ASSERT_TRUE(split.module);
  if (whole.results.empty())
    whole.run();
  SmallVector<Tensor> got = runRanks(whole, split);
  ASSERT_EQ(got.size(), whole.results.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(worstOf(got[i], whole.results[i]), 1e-9)
        << resultName(whole.only(), static_cast<unsigned>(i));
}

} // namespace qwen35::test
