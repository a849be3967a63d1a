#include "dialect/Qwen35/Reference/Loss.h"
#include "test/unit/cpu/KernelTest.h"

#include "mlir/IR/BuiltinTypes.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

std::vector<double> values(const Array &array) {
  std::vector<double> result(array.size());
  for (int64_t i = 0; i < array.size(); ++i)
    result[i] = array[i];
  return result;
}

/// Labels over the vocabulary; every `ignored`-th and the last are -100.
Array makeLabels(int64_t tokens, int64_t vocab, int64_t ignored) {
  Array labels = i32({tokens});
  for (int64_t t = 0; t < tokens; ++t)
    labels.set(t, t % ignored == 0 || t + 1 == tokens ? -100
                                                      : (t * 7919) % vocab);
  return labels;
}

struct Expected {
  std::vector<double> loss, dh, dw;
};

Expected reference(const Arrays &in, int64_t tokens, int64_t vocab,
                   int64_t columns) {
  Expected e{std::vector<double>(1), std::vector<double>(tokens * columns),
             std::vector<double>(vocab * columns)};
  std::vector<double> h = values(in[0]), w = values(in[1]),
                      invCount = values(in[3]);
  std::vector<int32_t> labels(tokens);
  for (int64_t t = 0; t < tokens; ++t)
    labels[t] = static_cast<int32_t>(in[2][t]);
  EXPECT_TRUE(reference::lmLossGrad<double>(
                  h, w, labels, invCount, tokens, vocab, columns,
                  absl::MakeSpan(e.loss), absl::MakeSpan(e.dh),
                  absl::MakeSpan(e.dw))
                  .ok());
  return e;
}

class LossKernelTest : public KernelTest {
protected:
  void check(int64_t tokens, int64_t vocab, int64_t columns, double scale,
             int64_t ignored) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << vocab
                                    << " ids, " << columns << " columns");
    Arrays in = {random({tokens, columns}, 1, scale),
                 random({vocab, columns}, 2),
                 makeLabels(tokens, vocab, ignored),
                 scalar(1.0 / double(tokens))};
    run("lm_loss", "{}", in, {f32({})}, [&](const Arrays &, const Arrays &out) {
      expectNear(out[0], reference(in, tokens, vocab, columns).loss, 2e-6,
                 "loss");
    });
    for (bool accumulate : {false, true}) {
      if (accumulate)
        in.push_back(random({vocab, columns}, 5, 1e-2));
      run("lm_loss_grad", accumulate ? "{accumulate = true}" : "{}", in,
          {f32({}), f32({tokens, columns}), f32({vocab, columns})},
          [&](const Arrays &, const Arrays &out) {
            Expected e = reference(in, tokens, vocab, columns);
            for (size_t i = 0; accumulate && i < e.dw.size(); ++i)
              e.dw[i] += in[4][i];
            expectNear(out[0], e.loss, 2e-6, "loss");
            expectNear(out[1], e.dh, 1e-5, "dh");
            expectNear(out[2], e.dw, 1e-5, "dweight");
          });
    }
  }
};

TEST_F(LossKernelTest, MatchesTheReferenceForAnySizes) {
  check(1, 3, 5, 1, 100);
  check(2, 257, 16, 1, 100);
  check(63, 256, 64, 1, 5);
  check(64, 100, 33, 1, 5);
  check(129, 300, 48, 1, 3);
}

TEST_F(LossKernelTest, SeveralChunksAndTilesOfEveryKind) {
  check(700, 530, 290, 0.5, 7); // tails of tokens, ids and columns
}

// Softmax of logits around 80 must not overflow, nor that of -80 vanish.
TEST_F(LossKernelTest, LargeLogitsStayFinite) { check(65, 70, 8, 40, 9); }

TEST_F(LossKernelTest, AllLabelsIgnoredGiveZeroGradients) {
  Arrays in = {random({66, 8}, 1), random({20, 8}, 2), makeLabels(66, 20, 1),
               scalar(1)};
  run("lm_loss_grad", "{}", in, {f32({}), f32({66, 8}), f32({20, 8})},
      [&](const Arrays &, const Arrays &out) {
        for (const Array &array : out)
          for (int64_t i = 0; i < array.size(); ++i)
            ASSERT_EQ(array[i], 0);
      });
}

// A27: the workspace holds the logits of a chunk, never those of all tokens.
TEST_F(LossKernelTest, A27WorkspaceIsSmallerThanAllLogits) {
  for (int64_t tokens : {128, 512, 8192, 262144}) {
    int64_t vocab = 248320, columns = 1024;
    MLIRContext context;
    Type f = Float32Type::get(&context), i = IntegerType::get(&context, 32);
    KernelSpec spec{"lm_loss_grad",
                    DictionaryAttr::get(&context),
                    {MemRefType::get({tokens, columns}, f),
                     MemRefType::get({vocab, columns}, f),
                     MemRefType::get({tokens}, i), MemRefType::get({}, f)},
                    {MemRefType::get({}, f),
                     MemRefType::get({tokens, columns}, f),
                     MemRefType::get({vocab, columns}, f)}};
    registerAllKernels();
    auto plan = lookupKernel("lm_loss_grad")->plan(spec, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    ASSERT_TRUE(succeeded(plan));
    EXPECT_LT(plan->workspaceBytes, tokens * vocab * 4 * 3 / 4) << tokens;
    EXPECT_LT(plan->grids.size(), 100u) << tokens;
  }
}

TEST_F(LossKernelTest, RefusesLabelsOfAnotherLength) {
  expectRefused("lm_loss", "{}",
                {f32({4, 8}), f32({20, 8}), i32({5}), scalar(1)}, {f32({})},
                "lm_loss: labels is [5] of i32, expected [4] of i32");
}

} // namespace
} // namespace qwen35::codegen::cpu
