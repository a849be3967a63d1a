// The gradient that autodiff builds for each op, against central differences of
// the interpreted model in fp64. Each case is a model of a few parameters that
// runs one op and feeds its results to a loss; the last test makes sure that
// every op with a VJP has a case.

#include "dialect/Interpreter/Interpreter.h"
#include "dialect/Qwen35/IR/StepAttrs.h"
#include "passes/Autodiff/Passes.h"
#include "test/support/Numeric.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "gtest/gtest.h"

#include <set>

using namespace mlir;
using qwen35::interpreter::ParamMap;
using qwen35::interpreter::Tensor;

namespace qwen35 {
namespace {

/// A model of 7 tokens in documents of 4 and 2 and one of padding.
struct Case {
  const char *name;
  /// Name, type and scale of each parameter.
  struct Param {
    const char *name, *type;
    double scale;
  };
  std::vector<Param> params;
  /// Computes %h, tensor<7x6xf32>, from %<param> and the batch; may define
  /// %extra, tensor<f32>, which is added to the loss.
  const char *body;
  bool extra = false;
};

const std::vector<Case> &cases() {
  static const std::vector<Case> all = {
      {"rms_norm",
       {{"x", "7x6", 1}, {"w", "6", 0.5}},
       R"(%h, %r = qwen35.rms_norm %x, %w <{eps = 1.0e-3, offset = 1.0}> : tensor<7x6xf32>, tensor<6xf32>)"},
      {"gated_rms_norm",
       {{"o", "7x2x3", 1}, {"z", "7x2x3", 1}, {"w", "3", 1}},
       R"(%y, %r = qwen35.gated_rms_norm %o, %z, %w <{eps = 1.0e-3}> : tensor<7x2x3xf32>, tensor<7x2x3xf32>, tensor<3xf32>
          %h = qwen35.reshape %y : tensor<7x2x3xf32> to tensor<7x6xf32>)"},
      {"rope",
       {{"x", "7x1x6", 1}},
       R"(%t = qwen35.rope_table %seq <{theta = 10.0, rotary_dim = 4}> : !qwen35.seq<7, 3>
          %y = qwen35.rope %x, %t : tensor<7x1x6xf32>, tensor<7x2x2xf32>
          %h = qwen35.reshape %y : tensor<7x1x6xf32> to tensor<7x6xf32>)"},
      {"attention",
       {{"q", "7x2x3", 1}, {"k", "7x1x3", 1}, {"v", "7x1x3", 1}},
       R"(%o, %lse = qwen35.attention %q, %k, %v, %seq <{scale = 0.7}> : tensor<7x2x3xf32>, tensor<7x1x3xf32>, tensor<7x1x3xf32>, !qwen35.seq<7, 3>
          %h = qwen35.reshape %o : tensor<7x2x3xf32> to tensor<7x6xf32>)"},
      {"mul_sigmoid",
       {{"x", "7x6", 1}, {"g", "7x6", 1}, {"row", "7x1", 1}},
       R"(%a = qwen35.mul_sigmoid %x, %g : tensor<7x6xf32>, tensor<7x6xf32>
          %h = qwen35.mul_sigmoid %a, %row : tensor<7x6xf32>, tensor<7x1xf32>)"},
      {"cast",
       {{"x", "7x6", 1}, {"g", "7x6", 1}},
       R"(%wide = qwen35.cast %x : tensor<7x6xf32> to tensor<7x6xf64>
          %back = qwen35.cast %wide : tensor<7x6xf64> to tensor<7x6xf32>
          %h = qwen35.mul_sigmoid %back, %g : tensor<7x6xf32>, tensor<7x6xf32>)"},
      {"causal_conv",
       {{"x", "7x6", 1}, {"w", "6x1x4", 1}},
       R"(%h = qwen35.causal_conv %x, %w, %seq : tensor<7x6xf32>, tensor<6x1x4xf32>, !qwen35.seq<7, 3>)"},
      {"gated_delta_rule",
       {{"q", "7x1x2", 1},
        {"k", "7x1x2", 1},
        {"v", "7x2x3", 1},
        {"a", "7x2", 1},
        {"b", "7x2", 1},
        {"a_log", "2", 1},
        {"dt", "2", 1}},
       R"(%g, %beta = qwen35.gdn_gates %a, %b, %a_log, %dt : tensor<7x2xf32>, tensor<7x2xf32>, tensor<2xf32>, tensor<2xf32>
          %o = qwen35.gated_delta_rule %q, %k, %v, %g, %beta, %seq <{scale = 0.7, eps = 1.0e-6}> : tensor<7x1x2xf32>, tensor<7x1x2xf32>, tensor<7x2x3xf32>, tensor<7x2xf32>, tensor<7x2xf32>, !qwen35.seq<7, 3>
          %h = qwen35.reshape %o : tensor<7x2x3xf32> to tensor<7x6xf32>)"},
      {"moe_experts",
       {{"x", "7x6", 1},
        {"wr", "4x6", 1},
        {"gu", "4x10x6", 0.5},
        {"dn", "4x6x5", 0.5}},
       R"(%logits = qwen35.linear %x, %wr : tensor<7x6xf32>, tensor<4x6xf32>
          %wts, %idx, %probs = qwen35.router %logits <{top_k = 2}> : tensor<7x4xf32>
          %h = qwen35.moe_experts %x, %wts, %idx, %gu, %dn : tensor<7x6xf32>, tensor<7x2xf32>, tensor<7x2xi32>, tensor<4x10x6xf32>, tensor<4x6x5xf32>)"},
      {"router_aux_pooled",
       {{"h0", "7x6", 1}, {"w0", "4x6", 1}, {"w1", "4x6", 1}},
       R"(%l0 = qwen35.linear %h0, %w0 : tensor<7x6xf32>, tensor<4x6xf32>
          %l1 = qwen35.linear %h0, %w1 : tensor<7x6xf32>, tensor<4x6xf32>
          %a, %i0, %p0 = qwen35.router %l0 <{top_k = 2}> : tensor<7x4xf32>
          %b, %i1, %p1 = qwen35.router %l1 <{top_k = 2}> : tensor<7x4xf32>
          %aux = qwen35.router_aux (%p0, %p1) (%i0, %i1) %seq <{scope = "pooled"}> : (tensor<7x4xf32>, tensor<7x4xf32>) (tensor<7x2xi32>, tensor<7x2xi32>) !qwen35.seq<7, 3>
          %s = qwen35.mul_scalar %aux, %aux_scale : tensor<f32>, tensor<f32>
          %extra = qwen35.scale %s <{factor = 0.3}> : tensor<f32>
          %h = qwen35.add %h0, %h0 : tensor<7x6xf32>, tensor<7x6xf32>)",
       true},
      {"router_aux_per_layer",
       {{"h", "7x6", 1}, {"w0", "4x6", 1}},
       R"(%l0 = qwen35.linear %h, %w0 : tensor<7x6xf32>, tensor<4x6xf32>
          %a, %i0, %p0 = qwen35.router %l0 <{top_k = 3}> : tensor<7x4xf32>
          %extra = qwen35.router_aux (%p0) (%i0) %seq <{scope = "per_layer"}> : (tensor<7x4xf32>) (tensor<7x3xi32>) !qwen35.seq<7, 3>)",
       true},
      {"embed",
       {{"table", "5x6", 1}},
       R"(%h = qwen35.embed %ids, %table : tensor<7xi32>, tensor<5x6xf32>)"},
      {"swiglu_and_slices",
       {{"x", "7x4", 1}, {"w", "14x4", 1}},
       R"(%y = qwen35.linear %x, %w : tensor<7x4xf32>, tensor<14x4xf32>
          %a = qwen35.slice %y <{axis = 1, start = 0, size = 6}> : tensor<7x14xf32>
          %b = qwen35.slice %y <{axis = 1, start = 8, size = 6}> : tensor<7x14xf32>
          %c = qwen35.slice %y <{axis = 1, start = 3, size = 6}> : tensor<7x14xf32>
          %s = qwen35.swiglu %a, %b : tensor<7x6xf32>, tensor<7x6xf32>
          %h = qwen35.add %s, %c : tensor<7x6xf32>, tensor<7x6xf32>)"},
  };
  return all;
}

std::string textOf(const Case &c) {
  std::string text = R"(
func.func @model(%ids: tensor<7xi32>, %labels: tensor<7xi32>, %seq: !qwen35.seq<7, 3>, %inv_count: tensor<f32>,
                 %aux_scale: tensor<f32>) -> (tensor<f32> {qwen35.name = "loss"}) {
)";
  for (const Case::Param &p : c.params)
    text += std::string("%") + p.name + " = qwen35.param \"" + p.name +
            "\" <{init = \"zeros\", decay = false, file_dtype = \"f32\"}> : "
            "tensor<" +
            p.type + "xf32>\n";
  text += R"(%head = qwen35.param "head" <{init = "zeros", decay = false, file_dtype = "f32"}> : tensor<5x6xf32>
)";
  text += c.body;
  text += R"(
%lm = qwen35.lm_loss %h, %head, %labels, %inv_count : tensor<7x6xf32>, tensor<5x6xf32>, tensor<7xi32>, tensor<f32>
)";
  text += c.extra ? "%loss = qwen35.add %lm, %extra : tensor<f32>, tensor<f32>\n"
                    "return %loss : tensor<f32>\n}\n"
                  : "return %lm : tensor<f32>\n}\n";
  return text;
}

class Vjp : public testing::TestWithParam<Case> {
protected:
  Vjp() {
    context.loadDialect<func::FuncDialect, Qwen35Dialect>();
    module = parseSourceString<ModuleOp>(textOf(GetParam()), &context);
  }

  std::vector<Tensor> arguments() {
    auto seq = SeqType::get(&context, 7, 3);
    return {{{7}, std::vector<int32_t>{3, 0, 3, 1, 2, 4, 0}},
            {{7}, std::vector<int32_t>{0, 3, 1, -100, 4, -100, -100}},
            *interpreter::documentTable(seq, {4, 2}),
            {{}, std::vector<double>{0.25}},
            {{}, std::vector<double>{0.5}}};
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_P(Vjp, EqualsCentralDifferences) {
  ASSERT_TRUE(module);
  PassManager pm(&context);
  pm.addPass(createAutodiff());
  ASSERT_TRUE(succeeded(pm.run(*module)));
  auto model = module->lookupSymbol<func::FuncOp>("model");
  auto gradients = module->lookupSymbol<func::FuncOp>("gradients");

  test::Random random(7);
  ParamMap params;
  for (auto param : model.getOps<ParamOp>()) {
    auto type = cast<RankedTensorType>(param.getResult().getType());
    double scale = 1;
    for (const Case::Param &p : GetParam().params)
      if (param.getName() == p.name)
        scale = p.scale;
    params[param.getName()] = {
        std::vector<int64_t>(type.getShape()),
        random.normals<double>(type.getNumElements(), scale)};
  }
  auto results = interpreter::interpret(gradients, arguments(), params);
  ASSERT_TRUE(succeeded(results));

  for (unsigned i = 1; i < gradients.getNumResults(); ++i) {
    std::string name =
        gradients.getResultAttrOfType<StringAttr>(i, kGradientAttr).str();
    auto analytic = std::get<std::vector<double>>((*results)[i].elements);
    auto &values = std::get<std::vector<double>>(params[name].elements);
    auto numeric = test::centralDifferences(
        values,
        [&] {
          auto loss = interpreter::interpret(model, arguments(), params);
          return std::get<std::vector<double>>((*loss)[0].elements)[0];
        },
        1e-5);
    EXPECT_LT(test::relativeError(analytic, numeric, 1e-3), 1e-7) << name;
    EXPECT_GT(test::norm(analytic), 1e-9) << name << " has no gradient at all";
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Vjp, testing::ValuesIn(cases()),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

TEST(VjpCoverage, EveryOpWithAGradientHasACase) {
  MLIRContext context;
  context.loadDialect<func::FuncDialect, Qwen35Dialect>();
  std::set<std::string> used;
  for (const Case &c : cases()) {
    auto module = parseSourceString<ModuleOp>(textOf(c), &context);
    ASSERT_TRUE(module) << c.name;
    module->walk(
        [&](Operation *op) { used.insert(op->getName().getStringRef().str()); });
  }
  for (RegisteredOperationName name :
       context.getRegisteredOperationsByDialect("qwen35"))
    if (name.hasInterface<DifferentiableOp>())
      EXPECT_TRUE(used.count(name.getStringRef().str()))
          << name.getStringRef().str();
}

} // namespace
} // namespace qwen35
