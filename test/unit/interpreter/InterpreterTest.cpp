#include "test/unit/interpreter/ModuleTest.h"

using namespace mlir;
using qwen35::interpreter::Options;
using qwen35::interpreter::Stats;
using qwen35::interpreter::Tensor;

namespace qwen35::test {
namespace {

using InterpreterTest = ModuleTest;

Tensor vector(std::vector<double> elements) {
  return {{static_cast<int64_t>(elements.size())}, std::move(elements)};
}

TEST_F(InterpreterTest, RunsInTheAskedPrecision) {
  parse(R"(func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = qwen35.add %x, %x : tensor<2xf32>, tensor<2xf32>
    return %y : tensor<2xf32>
  })");
  auto wide = run({vector({1, 0.1})});
  ASSERT_TRUE(succeeded(wide)) << error;
  EXPECT_EQ(doubles((*wide)[0]), (std::vector<double>{2, 0.2}));
  EXPECT_EQ((*wide)[0].shape, (std::vector<int64_t>{2}));
  auto narrow = run({vector({1, 0.1})}, {.fp64 = false});
  ASSERT_TRUE(succeeded(narrow)) << error;
  EXPECT_EQ(floats((*narrow)[0]), (std::vector<float>{2, 0.2f}));
}

// 1 + 2^-8 is a tie in bf16 and goes to the even 1; 1 + 3 * 2^-8 to 1 + 2^-6.
TEST_F(InterpreterTest, FloatRunRoundsBf16OnceToNearestEven) {
  parse(R"(func.func @f(%x: tensor<3xbf16>) -> tensor<3xbf16> {
    %y = qwen35.scale %x <{factor = 1.00390625}> : tensor<3xbf16>
    return %y : tensor<3xbf16>
  })");
  Tensor x = vector({1, 3, 1 + 0x1p-9}); // the last is rounded on its way in
  auto narrow = run({x}, {.fp64 = false});
  ASSERT_TRUE(succeeded(narrow)) << error;
  EXPECT_EQ(floats((*narrow)[0]), (std::vector<float>{1, 3.015625f, 1}));
  auto wide = run({x});
  ASSERT_TRUE(succeeded(wide)) << error;
  EXPECT_EQ(doubles((*wide)[0])[0], 1.00390625);
}

TEST_F(InterpreterTest, CastRoundsInAFloatRunOnly) {
  parse(R"(func.func @f(%x: tensor<2xf32>) -> (tensor<2xbf16>, tensor<2xf32>) {
    %y = qwen35.cast %x : tensor<2xf32> to tensor<2xbf16>
    %z = qwen35.cast %y : tensor<2xbf16> to tensor<2xf32>
    return %y, %z : tensor<2xbf16>, tensor<2xf32>
  })");
  Tensor x = vector({1 + 0x1p-8, 1 + 3 * 0x1p-8});
  auto narrow = run({x}, {.fp64 = false});
  ASSERT_TRUE(succeeded(narrow)) << error;
  EXPECT_EQ(floats((*narrow)[0]), (std::vector<float>{1, 1 + 0x1p-6f}));
  EXPECT_EQ(floats((*narrow)[1]), (std::vector<float>{1, 1 + 0x1p-6f}));
  auto wide = run({x});
  ASSERT_TRUE(succeeded(wide)) << error;
  for (const Tensor &result : *wide)
    EXPECT_EQ(doubles(result),
              (std::vector<double>{1 + 0x1p-8, 1 + 3 * 0x1p-8}));
}

// A product of bf16 operands that leaves its f32 sum is not rounded: 1 + 2^-9
// has no place in bf16.
TEST_F(InterpreterTest, FloatRunLeavesWideProductsAlone) {
  parse(R"(func.func @f(%x: tensor<1x2xbf16>, %w: tensor<1x2xbf16>) -> (tensor<1x1xbf16>, tensor<1x1xf32>) {
    %y = qwen35.linear %x, %w : tensor<1x2xbf16>, tensor<1x2xbf16>
    %z = qwen35.linear %x, %w <{out_type = f32}> : tensor<1x2xbf16>, tensor<1x2xbf16>
    return %y, %z : tensor<1x1xbf16>, tensor<1x1xf32>
  })");
  Tensor x{{1, 2}, std::vector<double>{1, 0x1p-9}};
  Tensor w{{1, 2}, std::vector<double>{1, 1}};
  auto narrow = run({x, w}, {.fp64 = false});
  ASSERT_TRUE(succeeded(narrow)) << error;
  EXPECT_EQ(floats((*narrow)[0])[0], 1);
  EXPECT_EQ(floats((*narrow)[1])[0], 1 + 0x1p-9f);
}

// The copy is the rounded new weight, and with commit 0 the rounded old one.
TEST_F(InterpreterTest, AdamwRoundsTheWorkingCopyFromTheMaster) {
  parse(R"(func.func @f(%p: tensor<1xf32>, %g: tensor<1xf32>, %one: tensor<f32>, %commit: tensor<f32>)
      -> (tensor<1xf32>, tensor<1xbf16>) {
    %z = qwen35.zeros : tensor<1xf32>
    %0:4 = qwen35.adamw %p, %z, %z, %g, %one, %one, %one, %one, %commit
        <{beta1 = 0.0, beta2 = 0.0, eps = 1.0, weight_decay = 0.0, work_type = bf16}>
        : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<f32>, tensor<f32>, tensor<f32>,
          tensor<f32>, tensor<f32>
    return %0#0, %0#3 : tensor<1xf32>, tensor<1xbf16>
  })");
  auto scalar = [](double value) {
    return Tensor{{}, std::vector<double>{value}};
  };
  Tensor p = vector({1.5 + 0x1p-9}), g = vector({1});
  auto moved = run({p, g, scalar(1), scalar(1)}, {.fp64 = false});
  ASSERT_TRUE(succeeded(moved)) << error;
  EXPECT_EQ(floats((*moved)[0])[0], 1 + 0x1p-9f); // p - 1 / (1 + 1)
  EXPECT_EQ(floats((*moved)[1])[0], 1);
  auto kept = run({p, g, scalar(1), scalar(0)}, {.fp64 = false});
  ASSERT_TRUE(succeeded(kept)) << error;
  EXPECT_EQ(floats((*kept)[0])[0], 1.5f + 0x1p-9f);
  EXPECT_EQ(floats((*kept)[1])[0], 1.5f);
}

TEST_F(InterpreterTest, FloatRunSumsTheGlobalNormInDouble) {
  parse(R"(func.func @f(%x: tensor<2xf32>) -> tensor<f64> {
    %zero = qwen35.zeros : tensor<f64>
    %n = qwen35.norm_sq %x, %zero : tensor<2xf32>, tensor<f64>
    return %n : tensor<f64>
  })");
  auto norm = run({vector({1, 0x1p-20})}, {.fp64 = false});
  ASSERT_TRUE(succeeded(norm)) << error;
  EXPECT_EQ(doubles((*norm)[0])[0], 1 + 0x1p-40);
}

TEST_F(InterpreterTest, RunsGroupsInPlaceAndCallsInTheModule) {
  parse(R"(
    func.func @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = qwen35.add %x, %x : tensor<2xf32>, tensor<2xf32>
      return %y : tensor<2xf32>
    }
    func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
      %a, %b = qkern.group {
        %0 = qwen35.add %x, %x : tensor<2xf32>, tensor<2xf32>
        %1 = qwen35.add %0, %x : tensor<2xf32>, tensor<2xf32>
        qkern.yield %1, %0 : tensor<2xf32>, tensor<2xf32>
      } : tensor<2xf32>, tensor<2xf32>
      %c = call @twice(%a) : (tensor<2xf32>) -> tensor<2xf32>
      return %b, %c : tensor<2xf32>, tensor<2xf32>
    })");
  auto results = run({vector({1, 2})});
  ASSERT_TRUE(succeeded(results)) << error;
  EXPECT_EQ(doubles((*results)[0]), (std::vector<double>{2, 4}));
  EXPECT_EQ(doubles((*results)[1]), (std::vector<double>{6, 12}));
}

TEST_F(InterpreterTest, ReadsParametersByName) {
  parse(R"(func.func @f() -> tensor<2xf32> {
    %w = qwen35.param "model.norm.weight"
        <{init = "zeros", decay = false, file_dtype = "bf16"}> : tensor<2xf32>
    return %w : tensor<2xf32>
  })");
  EXPECT_TRUE(failed(run({})));
  EXPECT_EQ(error, "interpreting 'qwen35.param': no parameter is named "
                   "\"model.norm.weight\" among the 0 given");
  params["model.norm.weight"] = vector({1, 2, 3});
  EXPECT_TRUE(failed(run({})));
  EXPECT_EQ(error, "interpreting 'qwen35.param': parameter "
                   "\"model.norm.weight\": got [3] of double, expected "
                   "'tensor<2xf32>'");
  params["model.norm.weight"] = vector({1, 2});
  auto results = run({});
  ASSERT_TRUE(succeeded(results)) << error;
  EXPECT_EQ(doubles((*results)[0]), (std::vector<double>{1, 2}));
}

// Sixteen sums in a row: two of them are alive at once, whatever the length.
TEST_F(InterpreterTest, FreesAValueAfterItsLastUse) {
  std::string body;
  for (int i = 0; i < 16; ++i)
    body += "%" + std::to_string(i + 1) + " = qwen35.add %" +
            std::to_string(i) + ", %" + std::to_string(i) +
            " : tensor<8xf32>, tensor<8xf32>\n";
  parse("func.func @f(%0: tensor<8xf32>) -> tensor<8xf32> {\n" + body +
        "return %16 : tensor<8xf32>\n}");
  Stats stats;
  auto results =
      run({vector(std::vector<double>(8, 1))}, {.stats = &stats});
  ASSERT_TRUE(succeeded(results)) << error;
  EXPECT_EQ(doubles((*results)[0])[0], 65536);
  EXPECT_EQ(stats.operations, 16);
  EXPECT_EQ(stats.peakBytes, 2 * 8 * 8);
}

// A reshape is the same storage: it must outlive the name it came from.
TEST_F(InterpreterTest, ReshapeSharesStorage) {
  parse(R"(func.func @f(%x: tensor<4xf32>) -> tensor<2x2xf32> {
    %s = qwen35.add %x, %x : tensor<4xf32>, tensor<4xf32>
    %y = qwen35.reshape %s : tensor<4xf32> to tensor<2x2xf32>
    %z = qwen35.add %y, %y : tensor<2x2xf32>, tensor<2x2xf32>
    return %z : tensor<2x2xf32>
  })");
  Stats stats;
  auto results = run({vector({1, 2, 3, 4})}, {.stats = &stats});
  ASSERT_TRUE(succeeded(results)) << error;
  EXPECT_EQ(doubles((*results)[0]), (std::vector<double>{4, 8, 12, 16}));
  EXPECT_EQ(stats.peakBytes, 2 * 4 * 8);
}

TEST_F(InterpreterTest, RefusesWhatDoesNotFitTheFunction) {
  parse(R"(func.func @f(%x: tensor<2xf32>, %seq: !qwen35.seq<4, 2>) {
    return
  })");
  SeqType type = SeqType::get(&context, 4, 2);
  std::optional<Tensor> table = interpreter::documentTable(type, {1, 3});
  ASSERT_TRUE(table);
  EXPECT_TRUE(succeeded(run({vector({1, 2}), *table}))) << error;
  EXPECT_TRUE(failed(run({vector({1, 2})})));
  EXPECT_EQ(error, "interpreting @f: got 1 arguments, expected 2");
  EXPECT_TRUE(failed(run({*table, *table})));
  EXPECT_EQ(error, "interpreting @f: argument 0: got [28] of int32, expected "
                   "'tensor<2xf32>'");
  EXPECT_FALSE(interpreter::documentTable(type, {1, 2})); // and padding: three
}

TEST_F(InterpreterTest, NamesTheOpThatItsReferenceRefuses) {
  parse(R"(func.func @f(%ids: tensor<1xi32>, %table: tensor<2x1xf32>)
      -> tensor<1x1xf32> {
    %y = qwen35.embed %ids, %table : tensor<1xi32>, tensor<2x1xf32>
    return %y : tensor<1x1xf32>
  })");
  EXPECT_TRUE(failed(run({Tensor{{1}, std::vector<int32_t>{2}},
                          Tensor{{2, 1}, std::vector<double>{1, 2}}})));
  EXPECT_EQ(error.rfind("interpreting 'qwen35.embed': embed: ids", 0), 0u)
      << error;
}

TEST_F(InterpreterTest, RefusesWhatIsNotMath) {
  parse(R"(func.func @f(%x: tensor<2xf32>) -> tensor<1xf32> {
    %y = qkern.view %x <{offset = 0, strides = array<i64: 1>}>
        : tensor<2xf32> to tensor<1xf32>
    return %y : tensor<1xf32>
  })");
  EXPECT_TRUE(failed(run({vector({1, 2})})));
  EXPECT_EQ(error, "interpreting 'qkern.view': no evaluator; kernels are run "
                   "by the runtime, interpret what --qwen35-to-kernels starts "
                   "from");
  parse(R"(func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = arith.addf %x, %x : tensor<2xf32>
    return %y : tensor<2xf32>
  })");
  EXPECT_TRUE(failed(run({vector({1, 2})})));
  EXPECT_EQ(error, "interpreting 'arith.addf': no evaluator");
  parse(R"(func.func @f(%x: tensor<2xf16>) { return })");
  EXPECT_TRUE(failed(run({vector({1, 2})})));
  EXPECT_EQ(error,
            "interpreting @f: argument 0: values of type 'tensor<2xf16>' are "
            "not interpreted, expected a document table or a static tensor of "
            "f32, f64, bf16 or i32");
}

TEST_F(InterpreterTest, RefusesF64ValuesInAFloatRun) {
  parse(R"(func.func @f(%x: tensor<2xf64>) -> tensor<2xf64> {
    %y = qwen35.scale %x <{factor = 2.0}> : tensor<2xf64>
    return %y : tensor<2xf64>
  })");
  EXPECT_TRUE(succeeded(run({vector({1, 2})}))) << error;
  EXPECT_TRUE(failed(run({vector({1, 2})}, {.fp64 = false})));
  EXPECT_EQ(error,
            "interpreting 'qwen35.scale': a value of type 'tensor<2xf64>' does "
            "not meet an op that computes in float; interpret in double");
}

TEST_F(InterpreterTest, RefusesRecursionAndMissingBodies) {
  parse(R"(func.func @f() {
    call @f() : () -> ()
    return
  })");
  EXPECT_TRUE(failed(run({})));
  EXPECT_EQ(error, "interpreting @f: it calls itself");
  parse("func.func private @f()");
  EXPECT_TRUE(failed(run({})));
  EXPECT_EQ(error, "interpreting @f: it has no body");
}

} // namespace
} // namespace qwen35::test
