#include "dialect/Qwen35/Reference/Delta.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include "mlir/IR/Builders.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

struct ConvCase {
  SequenceCase sequence;
  int64_t channels, taps;
  int64_t stride; ///< Of the rows of x; those of dy are 16 more apart.
};

/// Every row of documents with channels one by one and in whole accesses, one
/// lane and several blocks of them; short documents, some cut by the end of a
/// run of tokens; one tap and more than four.
std::vector<ConvCase> convCases() {
  std::vector<ConvCase> cases;
  for (const SequenceCase &c : sequenceCases()) {
    cases.push_back({c, 37, 4, 42});
    cases.push_back({c, 264, 4, 280});
  }
  SequenceCase manyShort{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 100, 14};
  cases.push_back({manyShort, 64, 4, 64});
  cases.push_back({manyShort, 40, 3, 40});
  cases.push_back({manyShort, 3, 1, 3});
  cases.push_back({manyShort, 8, 6, 8});
  return cases;
}

TEST_F(CudaKernelTest, CausalConvMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const ConvCase &c : convCases()) {
      int64_t tokens = c.sequence.tokens;
      run("causal_conv", "{" + c.sequence.attrs() + "}",
          {random(t, {tokens, c.channels}, 1, 2, {c.stride, 1}),
           random({c.channels, 1, c.taps}, 2), c.sequence.table()},
          {zeros(t, {tokens, c.channels})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles y(tokens * c.channels);
            expectOk(reference::causalConv<double>(
                valuesOf(in[0]), valuesOf(in[1]), c.sequence.shape(),
                valuesOf<int32_t>(in[2]), c.channels, c.taps,
                absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 2e-6), "y");
          });
    }
}

// A10: the gradient that comes in is a slice of wider rows.
TEST_F(CudaKernelTest, CausalConvBwdMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const ConvCase &c : convCases()) {
      int64_t tokens = c.sequence.tokens;
      run("causal_conv_bwd", "{" + c.sequence.attrs() + "}",
          {random(t, {tokens, c.channels}, 3, 1, {c.stride + 16, 1}),
           random(t, {tokens, c.channels}, 1, 2, {c.stride, 1}),
           random({c.channels, 1, c.taps}, 2), c.sequence.table()},
          {zeros(t, {tokens, c.channels}), f32({c.channels, 1, c.taps})},
          [&](const Arrays &in, const Arrays &out) {
            Doubles dx(tokens * c.channels), dw(c.channels * c.taps);
            expectOk(reference::causalConvBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                c.sequence.shape(), valuesOf<int32_t>(in[3]), c.channels,
                c.taps, absl::MakeSpan(dx), absl::MakeSpan(dw)));
            expectNear(out[0], dx, tolerance(t, 3e-6), "dx");
            expectNear(out[1], dw, 5e-6, "dw");
          });
    }
}

TEST_F(CudaKernelTest, CausalConvSeesNoOtherDocument) {
  // The second of three documents is NaN; the others must not notice.
  SequenceCase c{{5, 6, 7}, 20, 4};
  for (Kind t : kFloatKinds)
    for (int64_t channels : {33, 64}) {
      Array x = random(t, {c.tokens, channels}, 1);
      for (int64_t i = 5 * channels; i < 11 * channels; ++i)
        x.set(i, NAN);
      auto expectFinite = [&](const Array &y) {
        for (int64_t i = 0; i < y.size(); ++i) {
          int64_t token = i / channels;
          EXPECT_EQ(std::isfinite(y[i]), token < 5 || token >= 11) << token;
        }
      };
      Array weight = random({channels, 1, 4}, 3);
      run("causal_conv", "{" + c.attrs() + "}", {x, weight, c.table()},
          {zeros(t, {c.tokens, channels})},
          [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
      run("causal_conv_bwd", "{" + c.attrs() + "}",
          {random(t, {c.tokens, channels}, 2), x, weight, c.table()},
          {zeros(t, {c.tokens, channels}), f32({channels, 1, 4})},
          [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
    }
}

TEST_F(CudaKernelTest, CausalConvKeepsEveryMultiprocessorToTheEnd) {
  // Runs of tokens are as long as makes all blocks run at once.
  SequenceCase c{{}, 8192, 17};
  mlir::Builder b(&context);
  auto bf16 = b.getBF16Type();
  for (int64_t channels : {6144, 8192, 10240, 12288}) {
    auto rows = mlir::MemRefType::get({c.tokens, channels}, bf16);
    auto weight = mlir::MemRefType::get({channels, 1, 4}, b.getF32Type());
    auto table =
        mlir::MemRefType::get({c.shape().words()}, b.getIntegerType(32));
    KernelSpec spec{
        "causal_conv_bwd",
        b.getDictionaryAttr(
            {b.getNamedAttr("tokens", b.getI64IntegerAttr(c.tokens)),
             b.getNamedAttr("max_docs", b.getI64IntegerAttr(c.maxDocs))}),
        {rows, rows, weight, table},
        {rows, weight}};
    std::optional<KernelPlan> found = plan(spec, "sm_90a");
    ASSERT_TRUE(found);
    const auto &stage = std::get<DeviceStage>(found->stages[0]);
    EXPECT_LE(stage.blocks, 132 * stage.minBlocks) << channels;
    EXPECT_GE(stage.blocks, 0.93 * 132 * stage.minBlocks) << channels;
  }
}

TEST_F(CudaKernelTest, CausalConvRefusesATableOfAnotherRow) {
  expectRefused("causal_conv", "{tokens = 8, max_docs = 2}",
                {f32({8, 4}), f32({4, 1, 4}), i32({3})}, {f32({8, 4})},
                "causal_conv: seq is [3] of i32, expected [36] of i32");
}

} // namespace
} // namespace qwen35::codegen::cuda
