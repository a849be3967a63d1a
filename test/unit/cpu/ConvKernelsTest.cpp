#include "dialect/Qwen35/Reference/Delta.h"
#include "test/unit/cpu/SequenceCase.h"

namespace qwen35::codegen::cpu {
namespace {

struct Size {
  int64_t channels, taps;
};

/// Two sizes for every row of documents, which between them take every branch.
std::vector<Size> sizesFor(size_t number) {
  if (number % 2)
    return {{37, 4}, {256, 3}};
  return {{1, 4}, {300, 4}};
}

TEST_F(KernelTest, CausalConvMatchesTheReference) {
  size_t number = 0;
  for (const SequenceCase &c : sequenceCases())
    for (auto [channels, taps] : sizesFor(number++)) {
      Array x = random({c.tokens, channels}, 1, 2, {channels + 5, 1});
      Array w = random({channels, 1, taps}, 2);
      run("causal_conv", "{" + c.attrs() + "}", {x, w, c.table()},
          {f32({c.tokens, channels})},
          [&](const Arrays &in, const Arrays &out) {
            std::vector<double> y(c.tokens * channels);
            expectOk(reference::causalConv<double>(
                valuesOf(in[0]), valuesOf(in[1]), c.shape(),
                valuesOf<int32_t>(in[2]), channels, taps,
                absl::MakeSpan(y)));
            expectNear(out[0], y, 2e-6, "y");
          });
    }
}

TEST_F(KernelTest, CausalConvBwdMatchesTheReference) {
  size_t number = 0;
  for (const SequenceCase &c : sequenceCases())
    for (auto [channels, taps] : sizesFor(number++)) {
      Array dy = random({c.tokens, channels}, 3, 1, {channels + 3, 1});
      Array x = random({c.tokens, channels}, 1, 2, {channels + 5, 1});
      Array w = random({channels, 1, taps}, 2);
      run("causal_conv_bwd", "{" + c.attrs() + "}", {dy, x, w, c.table()},
          {f32({c.tokens, channels}), f32({channels, 1, taps})},
          [&](const Arrays &in, const Arrays &out) {
            std::vector<double> dx(c.tokens * channels), dw(channels * taps);
            expectOk(reference::causalConvBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), c.shape(),
                valuesOf<int32_t>(in[3]), channels, taps, absl::MakeSpan(dx),
                absl::MakeSpan(dw)));
            expectNear(out[0], dx, 2e-6, "dx");
            expectNear(out[1], dw, 4e-6, "dw");
          });
    }
}

TEST_F(KernelTest, CausalConvSeesNoOtherDocument) {
  // The second of three documents is NaN; the others must not notice.
  SequenceCase c{{5, 6, 7}, 20, 4};
  int64_t channels = 33;
  Array x = random({c.tokens, channels}, 1);
  Array dy = random({c.tokens, channels}, 2);
  for (int64_t i = 5 * channels; i < 11 * channels; ++i)
    x.set(i, NAN);
  auto expectFinite = [&](const Array &y) {
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t token = i / channels;
      EXPECT_EQ(std::isfinite(y[i]), token < 5 || token >= 11) << token;
    }
  };
  run("causal_conv", "{" + c.attrs() + "}",
      {x, random({channels, 1, 4}, 3), c.table()}, {f32({c.tokens, channels})},
      [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
  run("causal_conv_bwd", "{" + c.attrs() + "}",
      {dy, x, random({channels, 1, 4}, 3), c.table()},
      {f32({c.tokens, channels}), f32({channels, 1, 4})},
      [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
}

TEST_F(KernelTest, CausalConvRefusesATableOfAnotherRow) {
  expectRefused("causal_conv", "{tokens = 8, max_docs = 2}",
                {f32({8, 4}), f32({4, 1, 4}), i32({3})}, {f32({8, 4})},
                "causal_conv: seq is [3] of i32, expected [36] of i32");
}

} // namespace
} // namespace qwen35::codegen::cpu
