#include "dialect/Qwen35/Reference/Attention.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include <cmath>

namespace qwen35::codegen::cuda {
namespace {

struct HeadCounts {
  int64_t query, key, size;
};

/// Expects ||got - want|| <= tolerance * ||want||, and nothing below 1e-6 of
/// the tensor's scale to matter: single tokens have dq = dk = 0 up to rounding.
void expectNearL2(const Array &got, const std::vector<double> &want,
                  double tolerance, double scale, const std::string &what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  double error = 0, norm = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << "[" << i << "]";
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) +
                                  tolerance * scale *
                                      std::sqrt(double(got.size())))
      << what;
}

class CudaAttentionTest : public CudaKernelTest {
protected:
  void check(const SequenceCase &c, HeadCounts h, double spread = 1) {
    for (Kind kind : kFloatKinds)
      check(kind, c, h, spread);
  }
  void checkHopper(const SequenceCase &c, HeadCounts h, double spread = 1) {
    target = "emulated_sm_90a";
    check(Kind::BF16, c, h, spread);
  }

  void check(Kind kind, const SequenceCase &c, HeadCounts h, double spread) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << " tokens, heads " << h.query << "/" << h.key
                 << " of " << h.size
                 << (kind == Kind::BF16 ? ", bf16" : ", f32"));
    bool half = kind == Kind::BF16;
    double scale = 1 / std::sqrt(double(h.size));
    std::string attrs =
        "{scale = " + std::to_string(scale) + ", " + c.attrs() + "}";
    scale = std::stod(std::to_string(scale));
    // q and v as slices of wider tensors, as projections hand them over.
    Array q = random(kind, {c.tokens, h.query, h.size}, 1, spread,
                     {h.query * 2 * h.size, 2 * h.size, 1});
    Array k = random(kind, {c.tokens, h.key, h.size}, 2, spread);
    Array v = random(kind, {c.tokens, h.key, h.size}, 3, 1,
                     {h.key * h.size + vGap, h.size, 1});
    reference::AttentionDims dims{h.query, h.key, h.size};
    std::vector<double> o(c.tokens * h.query * h.size),
        lse(c.tokens * h.query);
    Array oArray = zeros(kind, {c.tokens, h.query, h.size});
    Array lseArray = f32({c.tokens, h.query});
    // Exponents of large scores are off by what scores are, in float.
    double slack = spread * spread * 1e-7;
    double device = (half ? 8e-3 : 2e-5) + 10 * slack;
    deviceBounds = {{device, 0}, {2e-5, 0}};
    run("attention", attrs, {q, k, v, c.table()}, {oArray, lseArray},
        [&](const Arrays &in, const Arrays &out) {
          expectOk(reference::attention<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), c.shape(),
              valuesOf<int32_t>(in[3]), dims, scale, absl::MakeSpan(o),
              absl::MakeSpan(lse)));
          expectNearL2(out[0], o, (half ? 5e-3 : 1e-6) + slack, 0, "o");
          expectNear(out[1], lse, 2e-6, "lse");
        });
    setValues(oArray, o);
    setValues(lseArray, lse);
    // In bf16 the o that delta comes from is rounded.
    double zero = spread * scale * std::sqrt(double(h.query / h.key));
    deviceBounds = {{device, zero}, {device, zero}, {device, 0}};
    run("attention_bwd", attrs,
        {random(kind, {c.tokens, h.query, h.size}, 4), q, k, v, oArray,
         lseArray, c.table()},
        {zeros(kind, {c.tokens, h.query, h.size}),
         zeros(kind, {c.tokens, h.key, h.size}),
         zeros(kind, {c.tokens, h.key, h.size})},
        [&](const Arrays &in, const Arrays &out) {
          std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
          expectOk(reference::attentionBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), valuesOf(in[5]), c.shape(),
              valuesOf<int32_t>(in[6]), dims, scale, absl::MakeSpan(dq),
              absl::MakeSpan(dk), absl::MakeSpan(dv)));
          double near = (half ? 8e-3 : 3e-6) + 10 * slack;
          expectNearL2(out[0], dq, near, zero, "dq");
          expectNearL2(out[1], dk, near, zero, "dk");
          expectNearL2(out[2], dv, near, 0, "dv");
        });
  }

  /// A02: the middle one of three documents holds NaN.
  void checkLeaks(Kind kind, HeadCounts h) {
    SequenceCase c{{5, 64, 3}, 80, 4};
    Array q = random(kind, {c.tokens, h.query, h.size}, 1);
    Array k = random(kind, {c.tokens, h.key, h.size}, 2);
    Array v = random(kind, {c.tokens, h.key, h.size}, 3);
    for (Array *array : {&q, &k, &v})
      for (int64_t row = array->size() / c.tokens, i = 5 * row; i < 69 * row;
           ++i)
        array->set(i, NAN);
    std::string attrs = "{scale = 0.25, " + c.attrs() + "}";
    auto expectFinite = [&](const Array &array) {
      for (int64_t i = 0; i < array.size(); ++i) {
        int64_t token = i * c.tokens / array.size();
        ASSERT_EQ(std::isfinite(array[i]), token < 5 || token >= 69) << token;
      }
    };
    run("attention", attrs, {q, k, v, c.table()},
        {zeros(kind, q.shape()), f32({c.tokens, h.query})},
        [&](const Arrays &, const Arrays &out) { expectFinite(out[0]); });
    Array dO = random(kind, q.shape(), 4);
    for (int64_t row = dO.size() / c.tokens, i = 5 * row; i < 69 * row; ++i)
      dO.set(i, NAN);
    run("attention_bwd", attrs,
        {dO, q, k, v, random(kind, q.shape(), 5),
         random({c.tokens, h.query}, 6), c.table()},
        {zeros(kind, q.shape()), zeros(kind, k.shape()),
         zeros(kind, k.shape())},
        [&](const Arrays &, const Arrays &out) {
          for (const Array &array : out)
            expectFinite(array);
        });
  }

  int64_t vGap = 8;
};

TEST_F(CudaAttentionTest, MatchesTheReferenceForPackedDocuments) {
  for (const SequenceCase &c : sequenceCases())
    check(c, {4, 2, 32});
}

TEST_F(CudaAttentionTest, AnyGroupingAndHeadSize) {
  SequenceCase c{{70, 3}, 80, 3};
  check(c, {2, 2, 48});
  check(c, {6, 1, 64});
  check(c, {8, 1, 256});
}

TEST_F(CudaAttentionTest, StridesThatFillNoVector) {
  vGap = 7;
  check({{63, 9}, 80, 3}, {2, 1, 16});
}

TEST_F(CudaAttentionTest, MoreDocumentsThanLanes) {
  SequenceCase c{std::vector<int64_t>(40, 2), 100, 70};
  check(c, {2, 1, 16});
}

// Scores of several hundred: softmax must pick, not overflow.
TEST_F(CudaAttentionTest, LargeScoresStayFinite) {
  check(Kind::F32, {{66}, 70, 2}, {2, 1, 32}, 15);
}

TEST_F(CudaAttentionTest, A02OtherDocumentsAreNeverRead) {
  for (Kind kind : kFloatKinds)
    checkLeaks(kind, {2, 2, 16});
}

TEST_F(CudaAttentionTest, HopperMatchesTheReferenceForPackedDocuments) {
  for (const SequenceCase &c : sequenceCases())
    checkHopper(c, {2, 1, 256});
}

// Several tiles of keys and queries, and stages used more than twice.
TEST_F(CudaAttentionTest, HopperGroups) {
  checkHopper({{70, 330}, 410, 3}, {1, 1, 256});
  checkHopper({{3, 161}, 164, 3}, {8, 2, 256});
}

TEST_F(CudaAttentionTest, HopperA02OtherDocumentsAreNeverRead) {
  target = "emulated_sm_90a";
  checkLeaks(Kind::BF16, {2, 1, 256});
}

TEST_F(CudaAttentionTest, RefusesWhatItHasNoKernelFor) {
  SequenceCase c{{4}, 4, 1};
  std::string attrs = "{scale = 1.0, " + c.attrs() + "}";
  expectRefused("attention", attrs,
                {f32({4, 3, 16}), f32({4, 2, 16}), f32({4, 2, 16}), c.table()},
                {f32({4, 3, 16}), f32({4, 3})},
                "attention: 2 key heads do not divide 3 query heads");
  expectRefused("attention", attrs,
                {f32({4, 2, 24}), f32({4, 2, 24}), f32({4, 2, 24}), c.table()},
                {f32({4, 2, 24}), f32({4, 2})},
                "attention: heads of 24 elements, expected a multiple of 16");
}

} // namespace
} // namespace qwen35::codegen::cuda
