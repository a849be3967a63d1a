#include "Diagnostics.h"

#include "frontend/dsl/Modules.h"

#include <gtest/gtest.h>

namespace qwen35::test {
namespace {

using dsl::Builder;
using dsl::Init;
using dsl::Tensor;
using Shape = std::vector<int64_t>;
using Messages = std::vector<std::string>;

class BuilderTest : public ::testing::Test {
protected:
  Shape shapeOf(Tensor x) { return {x.shape().begin(), x.shape().end()}; }

  mlir::MLIRContext context;
  Diagnostics diagnostics{context};
  Builder b{context, {.tokens = 8, .maxDocs = 3}};
};

// One call of every function, each result with its documented shape.
TEST_F(BuilderTest, EveryOpHasItsShape) {
  Tensor x = b.embed(b.ids(), b.parameter("embed", {16, 6}));
  EXPECT_EQ(shapeOf(x), (Shape{8, 6}));
  Tensor y = b.linear(x, b.parameter("w", {10, 6}));
  EXPECT_EQ(shapeOf(y), (Shape{8, 10}));
  EXPECT_EQ(shapeOf(b.matmul(x, y, /*transposeA=*/true)), (Shape{6, 10}));
  EXPECT_EQ(shapeOf(b.swiglu(y, y)), (Shape{8, 10}));
  EXPECT_EQ(shapeOf(b.add(y, b.zeros({8, 10}))), (Shape{8, 10}));
  EXPECT_EQ(shapeOf(b.mulScalar(b.scale(y, 0.5), b.auxScale())),
            (Shape{8, 10}));
  EXPECT_EQ(shapeOf(b.concat({x, y}, 1)), (Shape{8, 16}));
  EXPECT_EQ(shapeOf(b.slice(y, 1, 2, 3)), (Shape{8, 3}));
  EXPECT_EQ(shapeOf(b.rmsNorm(x, b.zeros({6}), 1e-6, 1)), (Shape{8, 6}));

  Tensor q = b.zeros({8, 4, 4}), kv = b.zeros({8, 2, 4});
  Tensor table = b.ropeTable(1e4, 2);
  EXPECT_EQ(shapeOf(table), (Shape{8, 1, 2}));
  EXPECT_EQ(shapeOf(b.rope(q, table)), (Shape{8, 4, 4}));
  EXPECT_EQ(shapeOf(b.attention(q, kv, kv, 0.5)), (Shape{8, 4, 4}));
  EXPECT_EQ(shapeOf(b.mulSigmoid(x, b.zeros({8, 1}))), (Shape{8, 6}));

  EXPECT_EQ(shapeOf(b.causalConv(x, b.zeros({6, 1, 4}))), (Shape{8, 6}));
  Builder::Gates gates =
      b.gdnGates(b.zeros({8, 4}), b.zeros({8, 4}), b.zeros({4}), b.zeros({4}));
  Tensor o = b.gatedDeltaRule(kv, kv, q, gates, 0.5, 1e-6);
  EXPECT_EQ(shapeOf(o), (Shape{8, 4, 4}));
  EXPECT_EQ(shapeOf(b.gatedRmsNorm(o, q, b.zeros({4}), 1e-6)),
            (Shape{8, 4, 4}));

  Builder::Routing routing = b.router(b.zeros({8, 5}), 2);
  EXPECT_EQ(shapeOf(routing.weights), (Shape{8, 2}));
  EXPECT_EQ(shapeOf(routing.probs), (Shape{8, 5}));
  EXPECT_EQ(shapeOf(b.moeExperts(x, routing, b.zeros({5, 14, 6}),
                                 b.zeros({5, 6, 7}))),
            (Shape{8, 6}));
  EXPECT_EQ(shapeOf(b.routerAux({routing, routing}, "pooled")), Shape{});
  Tensor loss = b.lmLoss(x, b.zeros({16, 6}), b.labels(), b.invCount());
  EXPECT_TRUE(b.finish(loss));
  EXPECT_EQ(diagnostics.messages, Messages{});
}

TEST_F(BuilderTest, ParametersOpenTheFunctionInTheOrderOfTheCalls) {
  Tensor first = b.parameter("first", {16, 6});
  Tensor x = b.embed(b.ids(), first);
  b.parameter("second", {2}, Init::logUniform(0.01, 16), FileType::BFloat16);
  auto module = b.finish(b.lmLoss(x, first, b.labels(), b.invCount()));
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  Messages names;
  for (mlir::Operation &op : function.getBody().front()) {
    auto param = mlir::dyn_cast<ParamOp>(op);
    names.push_back(param
                        ? param.getName().str() + " " + param.getInit().str() +
                              " " + param.getFileDtype().str() +
                              (param.getDecay() ? " decay" : "")
                        : op.getName().getStringRef().str());
  }
  EXPECT_EQ(names, (Messages{"first normal(0.02) f32 decay",
                             "second log_uniform(0.01,16) bf16", "qwen35.embed",
                             "qwen35.lm_loss", "func.return"}));
}

TEST_F(BuilderTest, AWrongShapeIsReportedOnceWithItsPath) {
  Tensor x = b.embed(b.ids(), b.parameter("embed", {16, 6}));
  Tensor y;
  {
    Builder::Scope scope(b, "model.layers.3.mlp");
    y = b.linear(x, b.parameter("w", {10, 7}));
  }
  EXPECT_FALSE(y);
  EXPECT_FALSE(b.add(y, y)); // What follows is silent.
  EXPECT_FALSE(b.finish(y));
  EXPECT_EQ(diagnostics.messages,
            Messages{"layers.3.mlp: 'qwen35.linear' op x has 6 columns but "
                     "weight has 7"});
}

TEST_F(BuilderTest, AWrongRankIsReported) {
  EXPECT_FALSE(b.linear(b.zeros({8}), b.zeros({4, 8})));
  EXPECT_EQ(diagnostics.messages,
            Messages{"model: qwen35.linear: x is tensor<8xf32>, expected rank "
                     "2"});
}

TEST_F(BuilderTest, OtherMistakesAreReported) {
  auto last = [&] {
    return diagnostics.messages.empty() ? "" : diagnostics.messages.back();
  };
  EXPECT_FALSE(b.reshape(b.zeros({8, 2}), {4, 3}));
  EXPECT_EQ(last(), "model: qwen35.reshape: x has 16 elements but the result "
                    "has 12");
  EXPECT_TRUE(b.parameter("model.w", {3}));
  EXPECT_FALSE(b.parameter("model.w", {4}));
  EXPECT_EQ(last(),
            "model: parameter \"model.w\" was declared before, expected "
            "a new name");
  EXPECT_FALSE(b.parameter("model.v", {3, 0}));
  EXPECT_EQ(last(), "model: parameter \"model.v\" has a dimension of 0, "
                    "expected at least 1");
  EXPECT_FALSE(b.router(b.zeros({8, 4}), 5).probs);
  EXPECT_EQ(last().find("model: 'qwen35.router' op "), 0u) << last();
  EXPECT_FALSE(b.routerAux({}, "pooled"));
  EXPECT_EQ(last().find("model: 'qwen35.router_aux' op "), 0u) << last();
  EXPECT_EQ(diagnostics.messages.size(), 5u);
}

TEST_F(BuilderTest, AnEmptyTensorOfTheUserIsReported) {
  EXPECT_FALSE(b.add(b.zeros({2}), Tensor()));
  EXPECT_EQ(diagnostics.messages,
            Messages{"model: qwen35.add: b is an empty tensor"});
}

TEST_F(BuilderTest, TheLossMustBeAScalar) {
  EXPECT_FALSE(b.finish(b.zeros({2})));
  EXPECT_EQ(diagnostics.messages,
            Messages{"model: finish: loss is tensor<2xf32>, expected rank 0"});
}

TEST_F(BuilderTest, ElementTypesAreVerifiedAtTheEnd) {
  Tensor x = b.embed(b.labels(), b.parameter("embed", {16, 6}));
  Tensor y = b.embed(b.zeros({8}), b.parameter("other", {16, 6})); // not ids
  EXPECT_FALSE(b.finish(
      b.lmLoss(b.add(x, y), b.zeros({4, 6}), b.labels(), b.invCount())));
  ASSERT_EQ(diagnostics.messages.size(), 1u);
  EXPECT_NE(diagnostics.messages[0].find("'qwen35.embed' op operand #0"),
            std::string::npos)
      << diagnostics.messages[0];
}

} // namespace
} // namespace qwen35::test
