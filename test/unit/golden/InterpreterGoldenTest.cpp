// Whole models on the interpreter in fp64 against the reference implementation
// in float64: config.json to S0, S0 to S1 by the pipelines, loss, every gradient
// and five optimizer steps. Also the passes after S1: remat and the chunked
// delta rule must not change a number by more than 1e-11. The same holds in
// bf16, where the interpreter in fp64 rounds nothing.

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "dialect/QKern/IR/QKernDialect.h"
#include "frontend/config/ConfigJson.h"
#include "frontend/model/TrainModel.h"
#include "passes/Kernels/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "test/support/Numeric.h"
#include "test/support/Safetensors.h"

#include "gtest/gtest.h"
#include "llvm/ADT/bit.h"

#include <fstream>
#include <sstream>

using namespace mlir;
using qwen35::interpreter::Tensor;

namespace qwen35 {
namespace {

using test::relativeError;
using test::Safetensors;

std::string path(const std::string &name, const std::string &file) {
  return std::string(QWEN35_SOURCE_DIR) + "/test/golden/" + name + "/" + file;
}

/// One row of documents with labels as the loader makes them.
struct Row {
  std::vector<int32_t> ids, labels;
  std::vector<int64_t> documents;
  int64_t targets = 0;
};

/// `labels` are unshifted; `lengths` documents follow one another.
Row makeRow(const std::vector<int32_t> &ids,
            const std::vector<int32_t> &labels,
            const std::vector<int64_t> &lengths) {
  Row row{ids, std::vector<int32_t>(ids.size(), -100), lengths};
  int64_t first = 0;
  for (int64_t length : lengths) {
    for (int64_t t = first; t + 1 < first + length; ++t)
      row.labels[t] = labels[t + 1];
    first += length;
  }
  for (int32_t label : row.labels)
    row.targets += label != -100;
  return row;
}

Row goldenRow(const Safetensors &file) {
  auto shape = file.shape("input_ids");
  return makeRow(file.integers("input_ids"), file.integers("labels"),
                 std::vector<int64_t>(shape[0], shape[1]));
}

Row packedRow(const Safetensors &file) {
  auto cu = file.integers("cu_seqlens");
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < cu.size(); ++i)
    lengths.push_back(cu[i] - cu[i - 1]);
  return makeRow(file.integers("input_ids"), file.integers("labels"), lengths);
}

class Model {
public:
  Model(const std::string &name, const Row &row, bool aux,
        const std::string &compute = "fp32")
      : context(makeRegistry()), row(row) {
    context.loadAllAvailableDialects();
    std::ifstream in(path(name, "config.json"));
    std::stringstream text;
    text << in.rdbuf();
    auto config = parseConfigJson(text.str());
    if (!config) {
      ADD_FAILURE() << llvm::toString(config.takeError());
      return;
    }
    TrainModelOptions options;
    options.tokens = static_cast<int64_t>(row.ids.size());
    options.maxDocs = static_cast<int64_t>(row.documents.size()) + 1;
    options.aux = aux ? AuxScope::Pooled : AuxScope::None;
    options.auxCoefficient = config->config.routerAuxLossCoef;
    module = buildTrainModel(context, config->config, options);
    PassManager pm(&context);
    ModelPipelineOptions types;
    types.compute = compute;
    buildModelPipeline(pm, types);
    buildAutodiffPipeline(pm, AutodiffPipelineOptions());
    EXPECT_TRUE(succeeded(pm.run(*module)));

    Safetensors weights(path(name, "model.safetensors"));
    for (const std::string &param : weights.names())
      state["weight:" + param] = weights.reals(param);
    if (compute != "fp32")
      run("refresh");
  }

  void runPass(std::function<void(OpPassManager &)> build) {
    PassManager pm(&context);
    build(pm);
    EXPECT_TRUE(succeeded(pm.run(*module)));
  }

  /// Runs a step function; state and named results land in `state`.
  void run(const std::string &name, int64_t step = 1, double lr = 1e-3,
           bool fp64 = true) {
    auto function = module->lookupSymbol<func::FuncOp>(name);
    ASSERT_TRUE(function);
    std::vector<Tensor> arguments;
    std::vector<std::string> keys;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      std::string role =
          function.getArgAttrOfType<StringAttr>(i, kRoleAttr).str();
      std::string argument =
          function.getArgAttrOfType<StringAttr>(i, kNameAttr).str();
      keys.push_back(role + ":" + argument);
      arguments.push_back(
          makeArgument(role, argument, function.getArgumentTypes()[i], step, lr));
    }
    interpreter::Options options;
    options.fp64 = fp64;
    auto results = interpreter::interpret(function, arguments, {}, options);
    ASSERT_TRUE(succeeded(results));
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      std::vector<double> values = std::visit(
          [](const auto &list) {
            return std::vector<double>(list.begin(), list.end());
          },
          (*results)[i].elements);
      if (auto alias =
              function.getResultAttrOfType<IntegerAttr>(i, kAliasAttr))
        state[keys[alias.getInt()]] = values;
      else
        state[function.getResultAttrOfType<StringAttr>(i, kNameAttr).str()] =
            values;
    }
  }

  void zeroSums() {
    for (auto &[key, values] : state)
      if (key.rfind("grad:", 0) == 0 || key.rfind("sum:", 0) == 0)
        std::fill(values.begin(), values.end(), 0);
  }

  std::vector<std::string> parameters() const {
    std::vector<std::string> names;
    for (auto &[key, values] : state)
      if (key.rfind("weight:", 0) == 0)
        names.push_back(key.substr(7));
    return names;
  }

  std::map<std::string, std::vector<double>> state;

private:
  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registry.insert<func::FuncDialect, Qwen35Dialect, qkern::QKernDialect>();
    return registry;
  }

  Tensor makeArgument(const std::string &role, const std::string &name,
                      Type type, int64_t step, double lr) {
    if (name == "seq")
      return *interpreter::documentTable(cast<SeqType>(type), row.documents);
    auto tensor = cast<RankedTensorType>(type);
    std::vector<int64_t> shape(tensor.getShape());
    if (name == "ids")
      return {shape, row.ids};
    if (name == "labels")
      return {shape, row.labels};
    std::vector<double> values(tensor.getNumElements(), 0);
    if (role == "scalar")
      values[0] = name == "lr"                 ? lr
                  : name == "inv_count"        ? 1.0 / row.targets
                  : name == "bias_correction1" ? 1 - std::pow(0.9, step)
                  : name == "bias_correction2" ? 1 - std::pow(0.95, step)
                                               : 1; // aux_scale
    else if (auto found = state.find(role + ":" + name); found != state.end())
      values = found->second;
    return {shape, values};
  }

  MLIRContext context;
  Row row;
  OwningOpRef<ModuleOp> module;
};

struct Case {
  const char *name;
  bool aux;
  const char *compute = "fp32";
};

class InterpreterGolden : public testing::TestWithParam<Case> {};
class Bf16Golden : public InterpreterGolden {};

/// Gradients of a file against those in the state. Files store float64 or, to
/// stay small, float32, whose own rounding is 6e-8.
void expectGradients(const Safetensors &file, const Model &model) {
  for (const std::string &name : model.parameters()) {
    if (!file.has("grad." + name))
      continue;
    double bound = file.dtype("grad." + name) == "F64" ? 1e-9 : 1e-6;
    auto found = model.state.find("grad:" + name);
    ASSERT_NE(found, model.state.end()) << name;
    EXPECT_LT(relativeError(found->second, file.reals("grad." + name), 1e-12),
              bound)
        << name;
  }
}

TEST_P(InterpreterGolden, LossAndEveryGradient) {
  auto [name, aux, compute] = GetParam();
  Safetensors file(path(name, "golden.safetensors"));
  Model model(name, goldenRow(file), aux, compute);
  model.run("accumulate");
  EXPECT_NEAR(model.state["sum:loss"][0], file.reals("loss")[0],
              1e-9 * file.reals("loss")[0]);
  if (aux)
    EXPECT_NEAR(model.state["sum:aux_loss"][0], file.reals("aux_loss")[0],
                1e-9 * file.reals("aux_loss")[0]);
  expectGradients(file, model);
}

TEST_P(InterpreterGolden, PackedDocumentsEqualThemAlone) {
  auto [name, aux, compute] = GetParam();
  Safetensors file(path(name, "packed.safetensors"));
  Model model(name, packedRow(file), false, compute);
  model.run("accumulate");
  EXPECT_NEAR(model.state["sum:loss"][0], file.reals("loss")[0],
              1e-9 * file.reals("loss")[0]);
  expectGradients(file, model);
}

TEST_P(InterpreterGolden, FiveOptimizerSteps) {
  auto [name, aux, compute] = GetParam();
  Safetensors file(path(name, "adamw.safetensors"));
  Model model(name, goldenRow(Safetensors(path(name, "golden.safetensors"))),
              aux, compute);
  auto losses = file.reals("loss"), norms = file.reals("grad_norm");
  for (int64_t step = 1; step <= 5; ++step) {
    model.zeroSums();
    model.run("finish", step);
    EXPECT_NEAR(model.state["sum:loss"][0], losses[step - 1],
                1e-9 * losses[step - 1]);
    EXPECT_NEAR(model.state["grad_norm"][0], norms[step - 1],
                1e-8 * norms[step - 1]);
    EXPECT_EQ(model.state["commit"][0], 1);
  }
  for (const std::string &param : model.parameters()) {
    if (file.has("param." + param))
      EXPECT_LT(relativeError(model.state["weight:" + param],
                              file.reals("param." + param), 1e-12),
                1e-6)
          << param;
    if (auto work = model.state.find("work:" + param);
        work != model.state.end())
      EXPECT_EQ(work->second, model.state["weight:" + param]) << param;
  }
}

TEST_P(InterpreterGolden, PassesAfterS1ChangeNothing) {
  auto [name, aux, compute] = GetParam();
  Row row = packedRow(Safetensors(path(name, "packed.safetensors")));
  Model plain(name, row, aux, compute);
  plain.run("accumulate");
  for (const char *policy : {"none", "selective", "full"}) {
    Model lowered(name, row, aux, compute);
    lowered.runPass([&](OpPassManager &pm) {
      SchedulePipelineOptions options;
      options.remat = policy;
      buildSchedulePipeline(pm, options);
      pm.nest<func::FuncOp>().addPass(createLowerGdn());
    });
    lowered.run("accumulate");
    for (auto &[key, values] : plain.state)
      EXPECT_LT(relativeError(lowered.state[key], values, 1e-12), 1e-11)
          << key << " with remat " << policy;
  }
}

/// How far the gradients of `got` are from those of `truth`, all together.
double gradientError(const Model &got, const Model &truth) {
  double difference = 0, norm = 0;
  for (const std::string &param : truth.parameters()) {
    auto &wanted = truth.state.at("grad:" + param);
    auto &values = got.state.at("grad:" + param);
    for (size_t i = 0; i < wanted.size(); ++i) {
      difference += std::pow(values[i] - wanted[i], 2);
      norm += std::pow(wanted[i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

// With rounding on, a step in bf16 is as far from the truth as its roundings
// make it: these cases amplify a rounding several hundred times, in fp32 as in
// bf16, whose roundings are 2^16 times larger. Every value of a working copy is
// a bf16 of its weight, and a step that does not commit leaves both as they
// were, bit for bit.
TEST_P(Bf16Golden, RoundedStep) {
  auto [name, aux, compute] = GetParam();
  Row row = goldenRow(Safetensors(path(name, "golden.safetensors")));
  Model truth(name, row, aux), fp32(name, row, aux);
  Model model(name, row, aux, compute);
  truth.run("accumulate");
  fp32.run("accumulate", 1, 1e-3, /*fp64=*/false);
  auto rounded = [&](const std::string &function) {
    model.run(function, 1, 1e-3, /*fp64=*/false);
  };
  rounded("refresh");
  rounded("accumulate");
  EXPECT_NEAR(model.state["sum:loss"][0], truth.state["sum:loss"][0],
              1e-2 * truth.state["sum:loss"][0]);
  double bound = 0x1p16 * gradientError(fp32, truth);
  EXPECT_LT(gradientError(model, truth), bound);

  model.zeroSums();
  rounded("finish");
  EXPECT_EQ(model.state["commit"][0], 1);
  int64_t works = 0;
  for (const std::string &param : model.parameters()) {
    auto work = model.state.find("work:" + param);
    if (work == model.state.end())
      continue;
    ++works;
    for (size_t i = 0; i < work->second.size(); ++i) {
      auto bits = llvm::bit_cast<uint32_t>(float(work->second[i]));
      double weight = model.state["weight:" + param][i];
      ASSERT_EQ(bits & 0xffff, 0u) << param;
      ASSERT_LE(std::abs(work->second[i] - weight), 0x1p-8 * std::abs(weight))
          << param;
    }
  }
  EXPECT_GT(works, 0);

  auto before = model.state;
  model.zeroSums();
  model.state["grad:" + model.parameters()[0]][0] = std::nan("");
  rounded("finish");
  EXPECT_EQ(model.state["commit"][0], 0);
  for (auto &[key, values] : before)
    if (key.rfind("weight:", 0) == 0 || key.rfind("work:", 0) == 0)
      EXPECT_EQ(model.state[key], values) << key;
}

std::string nameOf(const testing::TestParamInfo<Case> &info) {
  return std::string(info.param.name) + "_" + info.param.compute;
}

INSTANTIATE_TEST_SUITE_P(Cases, InterpreterGolden,
                         testing::Values(Case{"dense", false},
                                         Case{"dense_tied", false},
                                         Case{"moe", true},
                                         Case{"real_heads", false},
                                         Case{"dense", false, "bf16"},
                                         Case{"dense_tied", false, "bf16"},
                                         Case{"moe", true, "bf16"},
                                         Case{"real_heads", false, "bf16"}),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(Cases, Bf16Golden,
                         testing::Values(Case{"dense", false, "bf16"},
                                         Case{"dense_tied", false, "bf16"},
                                         Case{"moe", true, "bf16"},
                                         Case{"real_heads", false, "bf16"}),
                         nameOf);

} // namespace
} // namespace qwen35
