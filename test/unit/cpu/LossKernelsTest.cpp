#include "dialect/Qwen35/Reference/Loss.h"
#include "test/unit/cpu/SequenceCase.h"

#include "mlir/IR/BuiltinTypes.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;

namespace qwen35::codegen::cpu {
namespace {

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
  std::vector<double> h = valuesOf(in[0]), w = valuesOf(in[1]),
                      invCount = valuesOf(in[3]);
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
    spec.op = "lm_stats_grad";
    for (int stat = 0; stat < 2; ++stat)
      spec.inputs.push_back(MemRefType::get({tokens}, f));
    spec.outputs.erase(spec.outputs.begin());
    auto parts = lookupKernel("lm_stats_grad")->plan(spec, [&] {
      return emitError(UnknownLoc::get(&context));
    });
    ASSERT_TRUE(succeeded(parts));
    EXPECT_LE(parts->workspaceBytes, plan->workspaceBytes) << tokens;
  }
}

/// The head split over ranks, a part at a time: statistics of each, then what
/// the ranks make of them, against the whole head.
class LossPartsTest : public LossKernelTest {
protected:
  void check(int64_t tokens, std::vector<int64_t> parts, int64_t columns,
             double scale, int64_t ignored) {
    int64_t vocab = 0;
    for (int64_t part : parts)
      vocab += part;
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << vocab
                                    << " ids, " << columns << " columns");
    Array h = random({tokens, columns}, 1, scale);
    Array weight = random({vocab, columns}, 2);
    Array labels = makeLabels(tokens, vocab, ignored);
    Array invCount = scalar(1.0 / double(tokens));
    Expected e =
        reference({h, weight, labels, invCount}, tokens, vocab, columns);

    Arrays weights, local, stats; // of the parts
    int64_t first = 0;
    for (int64_t part : parts) {
      Array rows = f32({part, columns}), mine = i32({tokens});
      for (int64_t i = 0; i < rows.size(); ++i)
        rows.set(i, weight[first * columns + i]);
      for (int64_t t = 0; t < tokens; ++t) {
        double label = labels[t], own = label - double(first);
        bool inside = own >= 0 && own < double(part);
        mine.set(t, label < 0 ? label : inside ? own : -1);
      }
      weights.push_back(rows);
      local.push_back(mine);
      first += part;
      std::vector<double> highest(tokens), sum(tokens), target(tokens);
      ASSERT_TRUE(reference::lmStats<double>(
                      valuesOf(h), valuesOf(rows), valuesOf<int32_t>(mine), tokens,
                      part, columns, absl::MakeSpan(highest),
                      absl::MakeSpan(sum), absl::MakeSpan(target))
                      .ok());
      run("lm_stats", "{}", {h, rows, mine},
          {f32({tokens}), f32({tokens}), f32({tokens})},
          [&](const Arrays &, const Arrays &out) {
            expectNear(out[0], highest, 1e-6, "highest");
            expectNear(out[1], sum, 1e-5, "sum");
            expectNear(out[2], target, 1e-6, "target");
            for (int64_t t = 0; t < tokens; ++t)
              if (mine[t] < 0)
                ASSERT_EQ(out[2][t], 0) << t;
            stats.assign(out.begin(), out.end());
          });
      all.insert(all.end(), stats.begin(), stats.end());
    }
    // What the reductions make of them.
    Array highest = f32({tokens}), sum = f32({tokens}), target = f32({tokens});
    for (int64_t t = 0; t < tokens; ++t) {
      double largest = all[0][t], total = 0, logit = 0;
      for (size_t p = 0; p < parts.size(); ++p)
        largest = std::max(largest, all[3 * p][t]);
      for (size_t p = 0; p < parts.size(); ++p) {
        total += all[3 * p + 1][t] * std::exp(all[3 * p][t] - largest);
        logit += all[3 * p + 2][t];
      }
      highest.set(t, largest);
      sum.set(t, total);
      target.set(t, logit);
    }
    run("rescale_sum", "{}", {all[1], all[0], highest}, {f32({tokens})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> want(tokens);
          for (int64_t t = 0; t < tokens; ++t)
            want[t] = in[0][t] * std::exp(in[1][t] - in[2][t]);
          expectNear(out[0], want, 2e-6, "rescaled");
        });
    for (const Array &mine : local)
      run("lm_stats_loss", "{}", {mine, invCount, highest, sum, target},
          {f32({})}, [&](const Arrays &, const Arrays &out) {
            expectNear(out[0], e.loss, 5e-6, "loss");
          });
    std::vector<double> dh(tokens * columns);
    first = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      for (bool accumulate : {false, true}) {
        if (accumulate && p > 0)
          continue;
        Arrays in = {h, weights[p], local[p], invCount, highest, sum};
        if (accumulate)
          in.push_back(random({parts[p], columns}, 5, 1e-2));
        run("lm_stats_grad", accumulate ? "{accumulate = true}" : "{}", in,
            {f32({tokens, columns}), f32({parts[p], columns})},
            [&](const Arrays &, const Arrays &out) {
              std::vector<double> dw(
                  e.dw.begin() + first * columns,
                  e.dw.begin() + (first + parts[p]) * columns);
              for (size_t i = 0; accumulate && i < dw.size(); ++i)
                dw[i] += in[6][i];
              expectNear(out[1], dw, 1e-5, "dweight");
              if (!accumulate)
                part = valuesOf(out[0]);
            });
      }
      for (size_t i = 0; i < dh.size(); ++i)
        dh[i] += part[i];
      first += parts[p];
    }
    for (size_t i = 0; i < dh.size(); ++i)
      ASSERT_NEAR(dh[i], e.dh[i], 1e-5 * scale) << "dh " << i;
    all.clear();
  }
  Arrays all;
  std::vector<double> part;
};

TEST_F(LossPartsTest, EqualTheWholeHead) {
  check(1, {2, 1}, 5, 1, 100);
  check(129, {70, 1}, 48, 1, 3); // a row alone
}

TEST_F(LossPartsTest, SeveralChunks) { check(520, {270, 60}, 33, 0.5, 7); }

// The largest logit of a rank is far below that of all.
TEST_F(LossPartsTest, LargeLogitsStayFinite) { check(65, {40, 30}, 8, 40, 9); }

TEST_F(LossPartsTest, LabelsOfOtherRanksOrOfNone) {
  Array other = i32({66}), none = i32({66});
  for (int64_t t = 0; t < 66; ++t) {
    other.set(t, -1);
    none.set(t, -100);
  }
  Arrays in = {random({66, 8}, 1), random({20, 8}, 2), other, scalar(1),
               f32({66}), f32({66})};
  for (int64_t t = 0; t < 66; ++t) {
    in[4].set(t, 3);
    in[5].set(t, 30);
  }
  run("lm_stats_grad", "{}", in, {f32({66, 8}), f32({20, 8})},
      [&](const Arrays &, const Arrays &out) {
        for (int64_t i = 0; i < out[1].size(); ++i)
          ASSERT_NE(out[1][i], 0); // its rows get their part of the softmax
      });
  in[2] = none;
  run("lm_stats_grad", "{}", in, {f32({66, 8}), f32({20, 8})},
      [&](const Arrays &, const Arrays &out) {
        for (const Array &array : out)
          for (int64_t i = 0; i < array.size(); ++i)
            ASSERT_EQ(array[i], 0);
      });
}

TEST_F(LossPartsTest, RefusesStatisticsOfAnotherLength) {
  expectRefused("lm_stats_grad", "{}",
                {f32({4, 8}), f32({20, 8}), i32({4}), scalar(1), f32({4}),
                 f32({5})},
                {f32({4, 8}), f32({20, 8})},
                "lm_stats_grad: sum is [5] of f32, expected [4] of f32");
  expectRefused("lm_stats_loss", "{}",
                {i32({4}), scalar(1), f32({3}), f32({4}), f32({4})}, {f32({})},
                "lm_stats_loss: highest is [3] of f32, expected [4] of f32");
  expectRefused("lm_stats", "{}", {f32({4, 8}), f32({20, 8}), i32({4})},
                {f32({4}), f32({20}), f32({4})},
                "lm_stats: sum is [20] of f32, expected [4] of f32");
}

TEST_F(LossKernelTest, RefusesLabelsOfAnotherLength) {
  expectRefused("lm_loss", "{}",
                {f32({4, 8}), f32({20, 8}), i32({5}), scalar(1)}, {f32({})},
                "lm_loss: labels is [5] of i32, expected [4] of i32");
}

} // namespace
} // namespace qwen35::codegen::cpu
