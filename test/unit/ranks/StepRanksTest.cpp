// Whole steps that --qwen35-pipeline-partition makes, as plans for the CPU and
// for an emulated GPU that ranks of threads run, against the interpreter of
// stage S3 on as many ranks.

#include "dialect/Interpreter/Ranks.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "frontend/config/Presets.h"
#include "frontend/model/TrainModel.h"
#include "passes/Pipelines/Pipelines.h"
#include "runtime/api/step.h"
#include "runtime/comm/virtual.h"
#include "test/support/Numeric.h"
#include "test/support/Striped.h"
#include "test/unit/ranks/RankBundle.h"

#include "mlir/Pass/PassManager.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

constexpr int64_t kRowTokens = 32, kRowDocs = 4;

struct Case {
  const char *name;
  MeshShape mesh;
  int64_t zero = 0;
  bool moe = false, tied = false;
  /// Every token chooses the experts of rank 0: all are as likely, and lower
  /// ids come first.
  bool oneRank = false;
  AuxScope aux = AuxScope::None;
  const char *remat = "none";
  bool gpu = false; ///< Ranks share a GPU whose kernels run in the emulator.
};

void PrintTo(const Case &c, std::ostream *out) { *out << c.name; }

/// A model of both kinds of layers whose sizes leave room for tp = 4, with
/// fewer key/value heads than that.
ModelConfig smallConfig(const Case &c) {
  ModelConfig config =
      llvm::cantFail(presetConfig(c.moe ? "debug-moe" : "debug"));
  config.layerTypes = {LayerType::LinearAttention, LayerType::FullAttention};
  config.vocabSize = 72; // rows of a rank are no multiple of a vector
  config.hiddenSize = 32;
  config.tieWordEmbeddings = c.tied;
  config.numAttentionHeads = 8;
  config.numKeyValueHeads = 2;
  config.linearNumKeyHeads = 4;
  config.linearNumValueHeads = 8;
  config.linearKeyHeadDim = config.linearValueHeadDim = c.gpu ? 16 : 8;
  if (c.moe)
    config.moeIntermediateSize = config.sharedExpertIntermediateSize = 16;
  else
    config.intermediateSize = 64;
  return config;
}

StringRef textAttr(func::FuncOp function, unsigned i, StringRef name) {
  return function.getArgAttrOfType<StringAttr>(i, name).getValue();
}

/// The name of an argument's buffer.
std::string keyOf(func::FuncOp function, unsigned i) {
  return (textAttr(function, i, kRoleAttr) + ":" +
          textAttr(function, i, kNameAttr))
      .str();
}

std::vector<double> doublesOf(const Tensor &tensor) {
  std::vector<double> result;
  std::visit([&](const auto &e) { result.assign(e.begin(), e.end()); },
             tensor.elements);
  return result;
}

/// Values of all ranks by the names of their buffers.
using State = std::map<std::string, SmallVector<Tensor>>;

class StepRanksTest : public testing::TestWithParam<Case> {
protected:
  StepRanksTest() {
    if (!GetParam().gpu)
      return;
    compiler.target = "emulated";
    ::setenv("QWEN35_LIBCUDA", QWEN35_FAKE_CUDA_LIBRARY, 1);
  }

  /// S3 of the case.
  OwningOpRef<ModuleOp> partitioned() {
    const MeshShape &mesh = GetParam().mesh;
    rows = mesh.dpr * mesh.dps;
    TrainModelOptions options;
    options.tokens = rows * kRowTokens;
    options.maxDocs = rows * kRowDocs;
    options.aux = GetParam().aux;
    auto module =
        buildTrainModel(compiler.context, smallConfig(GetParam()), options);
    PassManager passes(&compiler.context);
    buildModelPipeline(passes);
    buildAutodiffPipeline(passes, {});
    PartitionPipelineOptions partition;
    partition.mesh = printMeshShape(mesh);
    partition.zero = GetParam().zero;
    buildPartitionPipeline(passes, partition);
    EXPECT_TRUE(succeeded(passes.run(*module)));
    return module;
  }

  /// Tokens of all rows as the ranks of cp hold them, one after the other.
  static std::vector<int32_t> inRankOrder(const StripedRow &row,
                                          const std::vector<int32_t> &tokens) {
    std::vector<int32_t> all;
    for (auto at = tokens.begin(); at != tokens.end(); at += kRowTokens)
      for (int64_t rank = 0; rank < row.ranks; ++rank) {
        auto part =
            row.scatter(std::vector<int32_t>(at, at + kRowTokens), rank);
        all.insert(all.end(), part.begin(), part.end());
      }
    return all;
  }

  /// New inputs of a microbatch: documents, padding, labels without a target.
  void fillInputs(func::FuncOp function, const Mesh &mesh, State &state) {
    std::vector<std::vector<int64_t>> documents(rows);
    std::vector<int32_t> ids, labels;
    int64_t vocab = smallConfig(GetParam()).vocabSize;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t left = kRowTokens - 3;
      for (int64_t d = 0; d < kRowDocs - 1 && left > 0; ++d) {
        documents[row].push_back(1 + random.below(left));
        left -= documents[row].back();
      }
      for (int64_t t = 0; t < kRowTokens; ++t) {
        bool real = t < kRowTokens - 3 - std::max<int64_t>(left, 0);
        ids.push_back(real ? static_cast<int32_t>(random.below(vocab)) : 0);
        labels.push_back(real && random.below(8) != 0
                             ? static_cast<int32_t>(random.below(vocab))
                             : -100);
      }
    }
    cutInputs(function, mesh, documents, ids, labels, state);
  }

  /// What the ranks get of rows of these documents, ids and labels.
  void cutInputs(func::FuncOp function, const Mesh &mesh,
                 const std::vector<std::vector<int64_t>> &documents,
                 const std::vector<int32_t> &ids,
                 const std::vector<int32_t> &labels, State &state) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      std::string key = keyOf(function, i);
      Type type = function.getArgumentTypes()[i];
      auto sharding =
          shardingOf(function.getArgAttr(i, qdist::kShardingAttr), mesh);
      auto isInput = [&](const char *name) {
        return key == std::string("input:") + name;
      };
      if (textAttr(function, i, kRoleAttr) != "input")
        continue;
      state[key].clear();
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        const std::vector<int64_t> &lengths =
            documents[mesh.coordinate(rank, *mesh.axes("data"))];
        StripedRow row{lengths, kRowTokens, mesh.shape().cp, kRowDocs};
        int64_t part = mesh.coordinate(rank, *mesh.axes("cp"));
        auto seq = dyn_cast<SeqType>(type);
        if (isInput("stripes"))
          state[key].push_back({{row.shape().words()}, row.stripes(part)});
        else if (seq && row.ranks > 1)
          state[key].push_back({{row.local().words()}, row.seq(part)});
        else if (seq)
          state[key].push_back(*interpreter::documentTable(seq, lengths));
        else
          state[key].push_back(interpreter::localPart(
              {{rows * kRowTokens},
               inRankOrder(row, isInput("ids") ? ids : labels)},
              sharding, mesh, rank));
      }
    }
  }

  static qdist::Sharding shardingOf(Attribute attr, const Mesh &mesh) {
    return qdist::Sharding::of(cast<qdist::ShardingAttr>(attr), mesh);
  }

  /// Weights, moments and scalars; sums of nothing.
  void fillState(func::FuncOp function, const Mesh &mesh, State &state) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      StringRef role = textAttr(function, i, kRoleAttr);
      StringRef name = textAttr(function, i, kNameAttr);
      if (role == "input")
        continue;
      auto sharding =
          shardingOf(function.getArgAttr(i, qdist::kShardingAttr), mesh);
      auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
      Tensor global;
      for (int64_t d = 0; d < type.getRank(); ++d)
        global.shape.push_back(type.getDimSize(d) *
                               mesh.size(sharding.dims[d]));
      int64_t count = 1;
      for (int64_t size : global.shape)
        count *= size;
      std::vector<float> values;
      if (role == "scalar") {
        values = {name == "inv_count" ? 1.0f / (2 * rows * kRowTokens)
                  : name == "lr"      ? 0.01f
                                      : 0.7f};
      } else if (role == "grad" || role == "sum") {
        values.assign(count, 0);
      } else {
        values = random.normals<float>(count, role == "weight" ? 0.3 : 0.1);
        if (role == "v")
          for (float &v : values)
            v = v * v + 0.01f;
      }
      if (GetParam().oneRank && name.ends_with("mlp.gate.weight"))
        values.assign(count, 0);
      global.elements = values;
      for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        state[keyOf(function, i)].push_back(
            interpreter::localPart(global, sharding, mesh, rank));
    }
  }

  /// Runs a function on all ranks and overwrites what it overwrites; other
  /// results by "output:" and name.
  static void interpret(func::FuncOp function, int64_t ranks, State &state) {
    SmallVector<SmallVector<Tensor>> arguments(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        arguments[rank].push_back(state.at(keyOf(function, i))[rank]);
    auto results = interpreter::interpretRanks(function, arguments);
    ASSERT_TRUE(succeeded(results));
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      std::string key;
      if (auto alias = function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr))
        key = keyOf(function, alias.getInt());
      else
        key = "output:" + function.getResultAttrOfType<StringAttr>(i, kNameAttr)
                              .getValue()
                              .str();
      state[key].clear();
      for (int64_t rank = 0; rank < ranks; ++rank)
        state[key].push_back((*results)[rank][i]);
    }
  }

  RankBundle compiler;
  Random random{5};
  int64_t rows = 1;
};

absl::Status writeAll(Step &step, const State &state, int64_t rank,
                      llvm::function_ref<bool(const std::string &)> chosen) {
  for (const auto &[key, values] : state) {
    if (!chosen(key))
      continue;
    // What a step takes from the host before every program.
    const Tensor &value = values[rank];
    if (key.rfind("scalar:", 0) == 0) {
      absl::Status set = step.setScalar(key.substr(7), doublesOf(value)[0]);
      if (!set.ok())
        return set;
      continue;
    }
    if (key.rfind("input:", 0) == 0) {
      auto input = step.input(key.substr(6));
      if (!input.ok())
        return input.status();
      const auto &elements = std::get<std::vector<int32_t>>(value.elements);
      std::copy(elements.begin(), elements.end(), input->begin());
      continue;
    }
    auto index = step.findBuffer(key);
    if (!index.ok())
      return index.status();
    absl::Status written = std::visit(
        [&](const auto &elements) {
          std::vector<uint8_t> bytes(elements.size() * 4);
          for (size_t i = 0; i < elements.size(); ++i) {
            using Real = std::decay_t<decltype(elements[0])>;
            std::conditional_t<std::is_same_v<Real, int32_t>, int32_t, float>
                narrow(elements[i]);
            std::memcpy(&bytes[4 * i], &narrow, 4);
          }
          return step.write(*index, 0, bytes);
        },
        values[rank].elements);
    if (!written.ok())
      return written;
  }
  return absl::OkStatus();
}

TEST_P(StepRanksTest, ThreadsEqualTheInterpreter) {
  OwningOpRef<ModuleOp> module = partitioned();
  ASSERT_FALSE(HasFailure());
  Mesh mesh = *qdist::meshOf(*module);
  auto lookup = [&](StringRef name) {
    return module->lookupSymbol<func::FuncOp>(name);
  };

  // Two microbatches of an update.
  State first, second;
  func::FuncOp finish = lookup("finish");
  fillState(finish, mesh, first);
  fillInputs(finish, mesh, first);
  State expected = first;
  interpret(lookup("accumulate"), mesh.ranks(), expected);
  ASSERT_FALSE(HasFatalFailure());
  State sums = expected;
  fillInputs(finish, mesh, second);
  for (const auto &[key, values] : second)
    expected[key] = values;
  interpret(finish, mesh.ranks(), expected);
  ASSERT_FALSE(HasFatalFailure());

  // Which results are copies of each other: their shardings.
  std::map<std::string, qdist::Sharding> shardings;
  for (unsigned i = 0; i < finish.getNumResults(); ++i)
    if (auto alias = finish.getResultAttrOfType<IntegerAttr>(i, kAliasAttr))
      shardings.emplace(
          keyOf(finish, alias.getInt()),
          shardingOf(finish.getResultAttr(i, qdist::kShardingAttr), mesh));

  PassManager passes(&compiler.context);
  SchedulePipelineOptions schedule;
  schedule.remat = GetParam().remat;
  schedule.overlap = GetParam().zero == 3; // starts and waits in the bundle
  buildSchedulePipeline(passes, schedule);
  ASSERT_TRUE(succeeded(passes.run(*module)));
  SeqType table; // of a rank
  for (Type type : finish.getArgumentTypes())
    if (auto seq = dyn_cast<SeqType>(type))
      table = seq;
  for (StringRef unused : {"first", "only"})
    lookup(unused).erase();
  std::string bytes = compiler.compile(std::move(module), table.getTokens(),
                                       table.getMaxDocs());
  auto file = open(bytes);
  ASSERT_TRUE(file);
  std::mutex mutex;
  std::map<std::string, SmallVector<Tensor>> got;
  for (auto &[key, values] : expected)
    got[key].resize(mesh.ranks());
  std::map<std::string, double> worst; // relative to the largest of a tensor
  auto compare = [&](Step &step, const State &want, int64_t rank,
                     const char *when) -> absl::Status {
    std::lock_guard lock(mutex);
    for (const auto &[key, values] : want) {
      std::string role = key.substr(0, key.find(':'));
      if (role == "input" || role == "scalar")
        continue;
      auto index = step.findBuffer(key);
      if (!index.ok())
        return index.status();
      std::vector<double> exact = doublesOf(values[rank]);
      std::vector<float> found(exact.size());
      absl::Status read =
          step.read(*index, 0,
                    absl::MakeSpan(reinterpret_cast<uint8_t *>(found.data()),
                                   found.size() * sizeof(float)));
      if (!read.ok())
        return read;
      got[key][rank] = {values[rank].shape, found};
      double difference = 0, scale = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        double error = std::abs(double(found[i]) - exact[i]);
        difference = std::max(difference, std::isfinite(error) ? error : 1e300);
        scale = std::max(scale, std::abs(exact[i]));
      }
      // A gradient of nothing (experts without tokens) is nothing.
      EXPECT_LE(difference, 1e-4 * scale)
          << when << ": " << key << " on rank " << rank;
      double &known = worst[role];
      known = std::max(known, scale > 0 ? difference / scale : 0);
    }
    return absl::OkStatus();
  };
  absl::Status status = comm::runVirtualRanks(
      static_cast<int>(mesh.ranks()), [&](comm::World &world) -> absl::Status {
        int rank = world.rank();
        StepOptions options;
        options.threads = 1 + rank % 2;
        options.poison = true;
        options.target = GetParam().gpu ? "cuda" : "cpu";
        options.overHost = true;
        options.world = &world;
        auto step = Step::create(file, options);
        if (!step.ok())
          return step.status();
        auto run = [&](const char *program) { return (*step)->run(program); };
        auto isState = [](const std::string &key) {
          return key.rfind("grad:", 0) != 0 && key.rfind("sum:", 0) != 0;
        };
        auto all = [](const std::string &) { return true; };
        absl::Status failed;
        auto then = [&](absl::Status status) {
          if (failed.ok())
            failed = std::move(status);
          return failed.ok();
        };
        if (then(writeAll(**step, first, rank, isState)) &&
            then((*step)->weightsChanged()) && then(run("begin")) &&
            then(run("accumulate")) &&
            then(compare(**step, sums, rank, "accumulate")) &&
            then(writeAll(**step, second, rank, all)))
          then(run("finish")) &&
              then(compare(**step, expected, rank, "finish"));
        return failed;
      });
  EXPECT_TRUE(status.ok()) << status;
  if (HasFailure())
    return;
  for (const auto &[key, sharding] : shardings)
    EXPECT_EQ(interpreter::assemble(got[key], sharding, mesh).spread, 0)
        << key << ": copies differ between ranks";
  for (const auto &[role, value] : worst)
    RecordProperty(role, std::to_string(value));
}

/// A04 on kernels: documents that begin on, before and after the borders of
/// ranks, with slow decay. Targets are those of all but one, of which ids
/// change: no gradient of any rank may move by a bit.
class StripeBordersTest : public StepRanksTest {};

TEST_P(StripeBordersTest, A04ChangingADocumentLeavesTheOthersAsTheyAre) {
  OwningOpRef<ModuleOp> module = partitioned();
  ASSERT_FALSE(HasFailure());
  Mesh mesh = *qdist::meshOf(*module);
  auto finish = module->lookupSymbol<func::FuncOp>("finish");
  State state;
  fillState(finish, mesh, state);
  int64_t decays = 0;
  for (auto &[key, values] : state)
    if (key.rfind("weight:", 0) == 0 && key.ends_with(".A_log"))
      for (Tensor &tensor : values) {
        auto &x = std::get<std::vector<float>>(tensor.elements);
        x.assign(x.size(), std::log(0.05f));
        ++decays;
      }
  ASSERT_GT(decays, 0);
  int32_t vocab = static_cast<int32_t>(smallConfig(GetParam()).vocabSize);
  struct Run {
    std::string what;
    State inputs[3]; // as it is, ids of a document changed, and with its target
  };
  std::vector<Run> runs;
  for (const std::vector<int64_t> &lengths : {std::vector<int64_t>{8, 8, 8, 8},
                                              {7, 8, 8, 9},
                                              {9, 8, 8, 7},
                                              {5, 20, 4}}) {
    int64_t first = 0;
    for (size_t d = 0; d < lengths.size(); first += lengths[d++]) {
      std::vector<int32_t> ids, labels;
      for (int64_t t = 0; t < kRowTokens; ++t) {
        ids.push_back(static_cast<int32_t>(random.below(vocab)));
        labels.push_back(t >= first && t < first + lengths[d]
                             ? -100
                             : static_cast<int32_t>(random.below(vocab)));
      }
      Run run;
      run.what = "document " + std::to_string(d) + " of " +
                 std::to_string(lengths[d]) + " tokens at " +
                 std::to_string(first);
      for (State &inputs : run.inputs) {
        cutInputs(finish, mesh, {lengths}, ids, labels, inputs);
        if (&inputs == &run.inputs[0])
          for (int64_t t = first; t < first + lengths[d]; ++t)
            ids[t] = (ids[t] + 1 + static_cast<int32_t>(t) % 7) % vocab;
        labels[first] = &inputs == &run.inputs[1] ? 1 : -100;
      }
      runs.push_back(std::move(run));
    }
  }

  PassManager passes(&compiler.context);
  buildSchedulePipeline(passes, {});
  ASSERT_TRUE(succeeded(passes.run(*module)));
  SeqType table; // of a rank
  for (Type type : finish.getArgumentTypes())
    if (auto seq = dyn_cast<SeqType>(type))
      table = seq;
  for (StringRef unused : {"first", "only", "eval"})
    module->lookupSymbol<func::FuncOp>(unused).erase();
  std::string bytes = compiler.compile(std::move(module), table.getTokens(),
                                       table.getMaxDocs());
  auto file = open(bytes);
  ASSERT_TRUE(file);
  std::mutex mutex;
  std::vector<int64_t> moved(runs.size(), 0);
  absl::Status status = comm::runVirtualRanks(
      static_cast<int>(mesh.ranks()), [&](comm::World &world) -> absl::Status {
        int rank = world.rank();
        StepOptions options;
        options.threads = 1;
        options.poison = true;
        options.world = &world;
        auto step = Step::create(file, options);
        absl::Status failed = step.status();
        auto then = [&](absl::Status status) {
          if (failed.ok())
            failed = std::move(status);
          return failed.ok();
        };
        auto isState = [](const std::string &key) {
          return key.rfind("grad:", 0) != 0 && key.rfind("sum:", 0) != 0;
        };
        if (failed.ok() && then(writeAll(**step, state, rank, isState)))
          then((*step)->weightsChanged());
        for (size_t r = 0; r < runs.size() && failed.ok(); ++r) {
          std::map<std::string, std::vector<float>> kept;
          for (const State &inputs : runs[r].inputs) {
            if (!then(writeAll(**step, inputs, rank, isState)) ||
                !then((*step)->run("begin")) ||
                !then((*step)->run("accumulate")))
              break;
            for (const auto &[key, values] : state) {
              if (key.rfind("grad:", 0) != 0)
                continue;
              auto buffer = (*step)->buffer<float>(key);
              if (!then(buffer.status()))
                break;
              std::vector<float> now(buffer->begin(), buffer->end());
              std::lock_guard lock(mutex);
              if (&inputs == &runs[r].inputs[0])
                kept[key] = now;
              else if (&inputs == &runs[r].inputs[1])
                EXPECT_TRUE(now == kept[key])
                    << runs[r].what << " moves " << key << " on rank " << rank;
              else
                moved[r] += now != kept[key];
            }
          }
        }
        return failed;
      });
  EXPECT_TRUE(status.ok()) << status;
  for (size_t r = 0; r < runs.size(); ++r)
    EXPECT_GT(moved[r], 0) << runs[r].what << " with a target of its own";
}

INSTANTIATE_TEST_SUITE_P(Meshes, StripeBordersTest,
                         testing::Values(Case{.name = "cp2", .mesh = {.cp = 2}},
                                         Case{.name = "cp2_tp2",
                                              .mesh = {.cp = 2, .tp = 2}}),
                         [](const testing::TestParamInfo<Case> &info) {
                           return std::string(info.param.name);
                         });

const Case kCases[] = {
    {"tp2", {.tp = 2}},
    {"tp4", {.tp = 4}},
    {"tied_tp2", {.tp = 2}, 0, false, true},
    {"dps2_tp2", {.dps = 2, .tp = 2}},
    {"moe_ep2", {.dps = 2, .ep = 2}, 0, true},
    {"moe_ep4_on_one", {.dps = 4, .ep = 4}, 0, true, false, true},
    {"moe_tp2_ep4", {.dps = 2, .tp = 2, .ep = 4}, 0, true},
    {.name = "cp4_full", .mesh = {.cp = 4}, .remat = "full"},
    {.name = "cp2_tp2", .mesh = {.cp = 2, .tp = 2}, .remat = "selective"},
    {.name = "tied_dps2_cp2",
     .mesh = {.dps = 2, .cp = 2},
     .zero = 3,
     .tied = true},
    {.name = "moe_cp2_tp2_ep4_full",
     .mesh = {.cp = 2, .tp = 2, .ep = 4},
     .moe = true,
     .aux = AuxScope::Pooled,
     .remat = "full"},
    {"tied_dps2_fsdp", {.dps = 2}, 3, false, true},
    {"moe_aux_dps2", {.dps = 2}, 0, true, false, false, AuxScope::Pooled},
    {"moe_aux_layers_ep2",
     {.dps = 2, .ep = 2},
     0,
     true,
     false,
     false,
     AuxScope::PerLayer},
    {"moe_ep2_fsdp", {.dps = 2, .tp = 2, .ep = 2}, 3, true},
};

// Over 100 kernels, which take minutes to compile for the host: not with the
// others, but with --gtest_also_run_disabled_tests --gtest_filter=*gpu*.
const Case kGpuCases[] = {
    {.name = "gpu_moe_dps2_cp2_tp2_ep8",
     .mesh = {.dps = 2, .cp = 2, .tp = 2, .ep = 8},
     .moe = true,
     .aux = AuxScope::Pooled,
     .gpu = true},
};

INSTANTIATE_TEST_SUITE_P(DISABLED_MeshesOnAGpu, StepRanksTest,
                         testing::ValuesIn(kGpuCases),
                         [](const testing::TestParamInfo<Case> &info) {
                           return std::string(info.param.name);
                         });

INSTANTIATE_TEST_SUITE_P(Meshes, StepRanksTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &info) {
                           return std::string(info.param.name);
                         });

} // namespace
} // namespace qwen35::test
