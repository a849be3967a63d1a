#include "dialect/Qwen35/Reference/Attention.h"
#include "test/unit/cpu/SequenceCase.h"

#include <cmath>

namespace qwen35::codegen::cpu {
namespace {

struct HeadCounts {
  int64_t query, key, size;
};

/// Documents of one token have dq = dk = 0 only up to the rounding of
/// <do, v> - <do, o>, so the bound has an absolute part.
void expectGradient(const Array &got, const std::vector<double> &want,
                    double tolerance, const std::string &what) {
  double largest = 0;
  for (double value : want)
    largest = std::max(largest, std::fabs(value));
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i],
                tolerance * (std::fabs(want[i]) + 0.1 * largest) + 1e-6)
        << what << "[" << i << "]";
}

class AttentionKernelTest : public KernelTest {
protected:
  void check(const SequenceCase &c, HeadCounts h, double spread,
             double tolerance = 1e-5) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << " tokens, heads " << h.query << "/" << h.key
                 << " of " << h.size);
    double scale = 1 / std::sqrt(double(h.size));
    std::string attrs =
        "{scale = " + std::to_string(scale) + ", " + c.attrs() + "}";
    scale = std::stod(std::to_string(scale));
    // q and v as slices of wider tensors, as projections hand them over.
    Array q = random({c.tokens, h.query, h.size}, 1, spread,
                     {h.query * 2 * h.size, 2 * h.size, 1});
    Array k = random({c.tokens, h.key, h.size}, 2, spread);
    Array v = random({c.tokens, h.key, h.size}, 3, 1,
                     {h.key * h.size + 7, h.size, 1});
    reference::AttentionDims dims{h.query, h.key, h.size};
    std::vector<double> o(c.tokens * h.query * h.size),
        lse(c.tokens * h.query);
    Array oArray = f32({c.tokens, h.query, h.size});
    Array lseArray = f32({c.tokens, h.query});
    run("attention", attrs, {q, k, v, c.table()}, {oArray, lseArray},
        [&](const Arrays &in, const Arrays &out) {
          expectOk(reference::attention<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), c.shape(),
              valuesOf<int32_t>(in[3]), dims, scale, absl::MakeSpan(o),
              absl::MakeSpan(lse)));
          expectNear(out[0], o, tolerance / 2, "o");
          expectNear(out[1], lse, 2e-6, "lse");
        });
    setValues(oArray, o);
    setValues(lseArray, lse);
    run("attention_bwd", attrs,
        {random({c.tokens, h.query, h.size}, 4), q, k, v, oArray, lseArray,
         c.table()},
        {f32({c.tokens, h.query, h.size}), f32({c.tokens, h.key, h.size}),
         f32({c.tokens, h.key, h.size})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
          expectOk(reference::attentionBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.shape(),
              valuesOf<int32_t>(in[6]), dims, scale, absl::MakeSpan(dq),
              absl::MakeSpan(dk), absl::MakeSpan(dv)));
          expectGradient(out[0], dq, tolerance, "dq");
          expectGradient(out[1], dk, tolerance, "dk");
          expectNear(out[2], dv, tolerance, "dv");
        });
  }
};

TEST_F(AttentionKernelTest, MatchesTheReferenceForPackedDocuments) {
  for (const SequenceCase &c : sequenceCases())
    check(c, {4, 2, 32}, 1);
}

TEST_F(AttentionKernelTest, AnyGroupingAndHeadSize) {
  SequenceCase c{{70, 3}, 80, 3};
  check(c, {2, 2, 20}, 1);
  check(c, {6, 1, 256}, 1);
}

// Scores of several hundred: softmax must pick, not overflow. A float of that
// size is off by 3e-5, and so is its exponential, relatively.
TEST_F(AttentionKernelTest, LargeScoresStayFinite) {
  check({{66}, 70, 2}, {2, 1, 32}, 15, 2e-4);
}

TEST_F(AttentionKernelTest, A02OtherDocumentsAreNeverRead) {
  SequenceCase c{{5, 64, 3}, 80, 4};
  int64_t heads = 2, size = 16;
  Array q = random({c.tokens, heads, size}, 1);
  Array k = random({c.tokens, heads, size}, 2);
  Array v = random({c.tokens, heads, size}, 3);
  for (Array *array : {&q, &k, &v})
    for (int64_t i = 5 * heads * size; i < 69 * heads * size; ++i)
      array->set(i, NAN);
  std::string attrs = "{scale = 0.25, " + c.attrs() + "}";
  auto expectFinite = [&](const Array &array) {
    for (int64_t i = 0; i < array.size(); ++i) {
      int64_t token = i * c.tokens / array.size();
      ASSERT_EQ(std::isfinite(array[i]), token < 5 || token >= 69) << token;
    }
  };
  run("attention", attrs, {q, k, v, c.table()},
      {f32({c.tokens, heads, size}), f32({c.tokens, heads})},
      [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
  run("attention_bwd", attrs,
      {random({c.tokens, heads, size}, 4), q, k, v,
       random({c.tokens, heads, size}, 5), random({c.tokens, heads}, 6),
       c.table()},
      {f32({c.tokens, heads, size}), f32({c.tokens, heads, size}),
       f32({c.tokens, heads, size})},
      [&](const Arrays &, const Arrays &out) {
        for (const Array &array : out)
          expectFinite(array);
      });
}

TEST_F(AttentionKernelTest, RefusesKeyHeadsThatDoNotDivide) {
  SequenceCase c{{4}, 4, 1};
  expectRefused("attention", "{scale = 1.0, " + c.attrs() + "}",
                {f32({4, 3, 8}), f32({4, 2, 8}), f32({4, 2, 8}), c.table()},
                {f32({4, 3, 8}), f32({4, 3})},
                "attention: 2 key heads do not divide 3 query heads");
}

} // namespace
} // namespace qwen35::codegen::cpu
