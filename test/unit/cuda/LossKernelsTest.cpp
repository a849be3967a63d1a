#include "dialect/Qwen35/Reference/Loss.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include <cmath>

using namespace mlir;

namespace qwen35::codegen::cuda {
namespace {

/// Labels over the vocabulary; every `ignored`-th and the last are -100.
Array makeLabels(int64_t tokens, int64_t vocab, int64_t ignored) {
  Array labels = i32({tokens});
  for (int64_t t = 0; t < tokens; ++t)
    labels.set(t, t % ignored == 0 || t + 1 == tokens ? -100
                  : t % 3 == 1                        ? vocab - 1
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
  expectOk(reference::lmLossGrad<double>(
      valuesOf(in[0]), valuesOf(in[1]), valuesOf<int32_t>(in[2]),
      valuesOf(in[3]), tokens, vocab, columns, absl::MakeSpan(e.loss),
      absl::MakeSpan(e.dh), absl::MakeSpan(e.dw)));
  return e;
}

/// Expects an L2 norm of the error below `tolerance` of that of `want`.
void expectNearL2(const Array &got, const std::vector<double> &want,
                  double tolerance, const std::string &what) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << what;
}

class CudaLossTest : public CudaKernelTest {
protected:
  void check(Kind t, int64_t tokens, int64_t vocab, int64_t columns,
             double scale, int64_t ignored, bool accumulate = false) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << vocab
                                    << " ids, " << columns << " columns");
    Arrays in = {random(t, {tokens, columns}, 1, scale),
                 random(t, {vocab, columns}, 2),
                 makeLabels(tokens, vocab, ignored),
                 scalar(1.0 / double(tokens))};
    Expected e = reference(in, tokens, vocab, columns);
    // Logits are rounded to bf16, each on its own.
    double single = t == Kind::F32 ? 2e-6 : 4e-3;
    double vectors = t == Kind::F32 ? 1e-5 : 6e-3;
    if (!accumulate)
      run("lm_loss", "{}", in, {f32({})},
          [&](const Arrays &, const Arrays &out) {
            expectNear(out[0], e.loss, single, "loss");
          });
    if (accumulate) {
      in.push_back(random({vocab, columns}, 5, 1e-2));
      for (size_t i = 0; i < e.dw.size(); ++i)
        e.dw[i] += in[4][i];
    }
    run("lm_loss_grad", accumulate ? "{accumulate = true}" : "{}", in,
        {f32({}), zeros(t, {tokens, columns}), f32({vocab, columns})},
        [&](const Arrays &, const Arrays &out) {
          expectNear(out[0], e.loss, single, "loss");
          expectNearL2(out[1], e.dh, vectors, "dh");
          expectNearL2(out[2], e.dw, vectors, "dweight");
        });
  }
};

TEST_F(CudaLossTest, MatchesTheReferenceForAnySizes) {
  for (Kind t : kFloatKinds) {
    check(t, 1, 3, 5, 1, 100);
    check(t, 3, 257, 16, 1, 100);
    check(t, 63, 256, 64, 1, 5);
    check(t, 64, 100, 33, 1, 5);
  }
}

TEST_F(CudaLossTest, SeveralChunksAndTilesOfEveryKind) {
  for (Kind t : kFloatKinds)
    for (bool accumulate : {false, true})
      check(t, 150, 330, 72, 0.5, 7, accumulate);
}

// Rows of several rounds, some of which do not fit into shared memory.
TEST_F(CudaLossTest, LongRows) {
  check(Kind::BF16, 3, 70000, 8, 1, 100);
  check(Kind::BF16, 2, 131085, 8, 1, 100);
  check(Kind::F32, 3, 70001, 8, 1, 100);
}

// Softmax of logits around 80 must not overflow, nor that of -80 vanish.
TEST_F(CudaLossTest, LargeLogitsStayFinite) {
  check(Kind::F32, 65, 70, 8, 40, 9);
}

TEST_F(CudaLossTest, AllLabelsIgnoredGiveZeroGradients) {
  for (Kind t : kFloatKinds) {
    Arrays in = {random(t, {66, 8}, 1), random(t, {20, 8}, 2),
                 makeLabels(66, 20, 1), scalar(1)};
    run("lm_loss_grad", "{}", in, {f32({}), zeros(t, {66, 8}), f32({20, 8})},
        [&](const Arrays &, const Arrays &out) {
          for (const Array &array : out)
            for (int64_t i = 0; i < array.size(); ++i)
              ASSERT_EQ(array[i], 0);
        });
  }
}

// A27: the workspace holds the logits of a chunk, never those of all tokens.
TEST_F(CudaLossTest, A27WorkspaceIsSmallerThanAllLogits) {
  int64_t vocab = 248320, columns = 1024;
  Type bf16 = BFloat16Type::get(&context), f32 = Float32Type::get(&context);
  Type i32 = IntegerType::get(&context, 32);
  for (int64_t tokens : {128, 512, 8192, 262144}) {
    KernelSpec spec{"lm_loss_grad",
                    DictionaryAttr::get(&context),
                    {MemRefType::get({tokens, columns}, bf16),
                     MemRefType::get({vocab, columns}, bf16),
                     MemRefType::get({tokens}, i32), MemRefType::get({}, f32)},
                    {MemRefType::get({}, f32),
                     MemRefType::get({tokens, columns}, bf16),
                     MemRefType::get({vocab, columns}, f32)}};
    auto p = plan(spec, "sm_90a");
    ASSERT_TRUE(p);
    EXPECT_LT(p->workspaceBytes,
              tokens * vocab * 2 * 3 / 4 + (int64_t(32) << 20))
        << tokens;
    // Four launches a chunk of at most 4096 tokens, then the sum.
    EXPECT_EQ(p->stages.size(), 4 * std::max<size_t>(2, tokens / 4096) + 1);
    for (const Stage &stage : p->stages)
      if (const auto *gemm = std::get_if<GemmStage>(&stage))
        EXPECT_EQ(gemm->workspace.arg, 7u);
  }
}

/// The head split over ranks, a part at a time: statistics of each, then what
/// the ranks make of them, against the whole head.
class CudaLossPartsTest : public CudaLossTest {
protected:
  void checkParts(Kind t, int64_t tokens, std::vector<int64_t> parts,
                  int64_t columns, double scale, int64_t ignored) {
    int64_t vocab = 0;
    for (int64_t part : parts)
      vocab += part;
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << vocab
                                    << " ids, " << columns << " columns");
    Array h = random(t, {tokens, columns}, 1, scale);
    Array weight = random(t, {vocab, columns}, 2);
    Array labels = makeLabels(tokens, vocab, ignored);
    Array invCount = scalar(1.0 / double(tokens));
    Expected e =
        reference({h, weight, labels, invCount}, tokens, vocab, columns);
    double single = t == Kind::F32 ? 4e-6 : 6e-3;
    double vectors = t == Kind::F32 ? 1e-5 : 6e-3;

    Arrays weights, local, stats; // of the parts
    int64_t first = 0;
    for (int64_t part : parts) {
      Array rows = zeros(t, {part, columns}), mine = i32({tokens});
      for (int64_t i = 0; i < rows.size(); ++i)
        rows.set(i, weight[first * columns + i]);
      for (int64_t i = 0; i < tokens; ++i) {
        double label = labels[i], own = label - double(first);
        bool inside = own >= 0 && own < double(part);
        mine.set(i, label < 0 ? label : inside ? own : -1);
      }
      weights.push_back(rows);
      local.push_back(mine);
      first += part;
      std::vector<double> highest(tokens), sum(tokens), target(tokens);
      expectOk(reference::lmStats<double>(
          valuesOf(h), valuesOf(rows), valuesOf<int32_t>(mine), tokens, part,
          columns, absl::MakeSpan(highest), absl::MakeSpan(sum),
          absl::MakeSpan(target)));
      run("lm_stats", "{}", {h, rows, mine},
          {f32({tokens}), f32({tokens}), f32({tokens})},
          [&](const Arrays &, const Arrays &out) {
            expectNearL2(out[0], highest, single, "highest");
            if (t == Kind::F32 && scale < 10)
              expectNearL2(out[1], sum, 1e-5, "sum");
            expectNearL2(out[2], target, single, "target");
            for (int64_t i = 0; i < tokens; ++i)
              if (mine[i] < 0)
                ASSERT_EQ(out[2][i], 0) << i;
            made = out;
          });
      stats.insert(stats.end(), made.begin(), made.end());
    }
    // What the reductions make of them.
    Array highest = f32({tokens}), sum = f32({tokens}), target = f32({tokens});
    for (int64_t i = 0; i < tokens; ++i) {
      double largest = stats[0][i], total = 0, logit = 0;
      for (size_t p = 0; p < parts.size(); ++p)
        largest = std::max(largest, stats[3 * p][i]);
      for (size_t p = 0; p < parts.size(); ++p) {
        total += stats[3 * p + 1][i] * std::exp(stats[3 * p][i] - largest);
        logit += stats[3 * p + 2][i];
      }
      highest.set(i, largest);
      sum.set(i, total);
      target.set(i, logit);
    }
    run("rescale_sum", "{}", {stats[1], stats[0], highest}, {f32({tokens})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> want(tokens);
          for (int64_t i = 0; i < tokens; ++i)
            want[i] = in[0][i] * std::exp(in[1][i] - in[2][i]);
          expectNearL2(out[0], want, 2e-6, "rescaled");
        });
    run("lm_stats_loss", "{}", {local[0], invCount, highest, sum, target},
        {f32({})}, [&](const Arrays &, const Arrays &out) {
          expectNear(out[0], e.loss, single, "loss");
        });
    std::vector<double> dh(tokens * columns);
    first = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      bool accumulate = p == 0; // One of either kind.
      Arrays in = {h, weights[p], local[p], invCount, highest, sum};
      if (accumulate)
        in.push_back(random({parts[p], columns}, 5, 1e-2));
      run("lm_stats_grad", accumulate ? "{accumulate = true}" : "{}", in,
          {zeros(t, {tokens, columns}), f32({parts[p], columns})},
          [&](const Arrays &, const Arrays &out) {
            std::vector<double> dw(
                e.dw.begin() + first * columns,
                e.dw.begin() + (first + parts[p]) * columns);
            for (size_t i = 0; accumulate && i < dw.size(); ++i)
              dw[i] += in[6][i];
            expectNearL2(out[1], dw, 2 * vectors, "dweight");
            made = out;
          });
      for (size_t i = 0; i < dh.size(); ++i)
        dh[i] += made[0][i];
      first += parts[p];
    }
    Array all = f32({tokens, columns});
    for (size_t i = 0; i < dh.size(); ++i)
      all.set(i, dh[i]);
    expectNearL2(all, e.dh, 2 * vectors, "dh");
  }
  Arrays made;
};

TEST_F(CudaLossPartsTest, EqualTheWholeHead) {
  for (Kind t : kFloatKinds)
    checkParts(t, 150, {165, 81}, 72, 0.5, 7); // two chunks
}

TEST_F(CudaLossPartsTest, LongRows) {
  checkParts(Kind::BF16, 3, {35000, 1}, 8, 1, 100);
}

// The largest logit of a rank is far below that of all.
TEST_F(CudaLossPartsTest, LargeLogitsStayFinite) {
  checkParts(Kind::F32, 65, {40, 30}, 8, 40, 9);
}

TEST_F(CudaLossPartsTest, LabelsOfNoneGiveZeroGradients) {
  for (Kind t : kFloatKinds) {
    Arrays in = {random(t, {66, 8}, 1), random(t, {20, 8}, 2),
                 makeLabels(66, 20, 1), scalar(1), f32({66}), f32({66})};
    run("lm_stats_grad", "{}", in, {zeros(t, {66, 8}), f32({20, 8})},
        [&](const Arrays &, const Arrays &out) {
          for (const Array &array : out)
            for (int64_t i = 0; i < array.size(); ++i)
              ASSERT_EQ(array[i], 0);
        });
  }
}

TEST_F(CudaLossPartsTest, A27WorkspaceIsSmallerThanAllLogits) {
  int64_t vocab = 62080, columns = 1024, tokens = 8192;
  Type bf16 = BFloat16Type::get(&context), f32 = Float32Type::get(&context);
  MemRefType stat = MemRefType::get({tokens}, f32);
  KernelSpec spec{
      "lm_stats_grad",
      DictionaryAttr::get(&context),
      {MemRefType::get({tokens, columns}, bf16),
       MemRefType::get({vocab, columns}, bf16),
       MemRefType::get({tokens}, IntegerType::get(&context, 32)),
       MemRefType::get({}, f32), stat, stat},
      {MemRefType::get({tokens, columns}, bf16),
       MemRefType::get({vocab, columns}, f32)}};
  auto p = plan(spec, "sm_90a");
  ASSERT_TRUE(p);
  EXPECT_LT(p->workspaceBytes,
            tokens * vocab * 2 * 3 / 4 + (int64_t(32) << 20));
  EXPECT_EQ(p->stages.size(), 8u);
  for (const Stage &stage : p->stages)
    if (const auto *gemm = std::get_if<GemmStage>(&stage))
      EXPECT_EQ(gemm->workspace.arg, 8u);
}

TEST_F(CudaLossPartsTest, RefusesStatisticsOfAnotherLength) {
  expectRefused("lm_stats_grad", "{}",
                {f32({4, 8}), f32({20, 8}), i32({4}), scalar(1), f32({4}),
                 f32({5})},
                {f32({4, 8}), f32({20, 8})},
                "lm_stats_grad: sum is [5] of f32, expected [4] of f32");
}

TEST_F(CudaLossTest, RefusesLabelsOfAnotherLength) {
  expectRefused("lm_loss", "{}",
                {f32({4, 8}), f32({20, 8}), i32({5}), scalar(1)}, {f32({})},
                "lm_loss: labels is [5] of i32, expected [4] of i32");
}

} // namespace
} // namespace qwen35::codegen::cuda
