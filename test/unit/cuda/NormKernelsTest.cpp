#include "dialect/Qwen35/Reference/Norm.h"
#include "test/unit/cuda/CudaKernelTest.h"

#include "mlir/IR/Builders.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

struct NormCase {
  std::vector<int64_t> shape, strides;
  int64_t columns() const { return shape.back(); }
  int64_t rows() const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < shape.size(); ++d)
      rows *= shape[d];
    return rows;
  }
  std::vector<int64_t> stats() const {
    return {shape.begin(), shape.end() - 1};
  }
};

/// One element and odd sizes; rows shared by 1 to 32 lanes, by several warps
/// and by several accesses of each thread, whole and ragged; strided rows that
/// merge to one stride and that do not; more rows than a grid takes at once.
std::vector<NormCase> normCases(Kind t) {
  std::vector<NormCase> cases = {{{5, 7}, {}},
                                 {{70, 4, 128}, {640, 128, 1}},
                                 {{41, 3, 256}, {1600, 512, 1}},
                                 {{40, 1024}, {}},
                                 {{6, 5120}, {}}};
  std::vector<NormCase> more = {{{1, 1}, {}},
                                {{9}, {}},
                                {{4, 2, 16}, {100, 20, 1}},
                                {{37, 130}, {200, 1}},
                                {{3, 2049}, {}}};
  if (t == Kind::BF16)
    more = {{{2, 3, 33}, {}}, {{300, 64}, {}}, {{30, 1000}, {1024, 1}}};
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// Rows too long for prefetching.
std::vector<NormCase> longCases() {
  return {{{3, 9000}, {}}, {{3, 12288}, {}}};
}

class NormKernelTest : public CudaKernelTest {
protected:
  void forward(const NormCase &c, Kind t) {
    int64_t columns = c.columns();
    run("rms_norm", "{eps = 1.0e-6, offset = 1.0}",
        {random(t, c.shape, 1, 3, c.strides), random({columns}, 2)},
        {zeros(t, c.shape), f32(c.stats())},
        [&](const Arrays &in, const Arrays &out) {
          Doubles y(in[0].size()), rstd(c.rows());
          expectOk(reference::rmsNorm<double>(
              valuesOf(in[0]), valuesOf(in[1]), c.rows(), columns, 1e-6, 1,
              absl::MakeSpan(y), absl::MakeSpan(rstd)));
          expectNear(out[0], y, tolerance(t, 2e-6), "y");
          expectNear(out[1], rstd, 2e-6, "rstd");
        });
  }

  void backward(const NormCase &c, Kind t, bool adds) {
    int64_t columns = c.columns();
    Arrays inputs = {random(t, c.shape, 1, 1, c.strides),
                     random(t, c.shape, 2, 2), random({columns}, 3),
                     random(c.stats(), 4)};
    if (adds)
      inputs.push_back(random(t, c.shape, 5, 3, c.strides));
    run(adds ? "rms_norm_bwd_add" : "rms_norm_bwd", "{offset = 1.0}", inputs,
        {zeros(t, c.shape, adds ? std::vector<int64_t>() : c.strides),
         f32({columns})},
        [&](const Arrays &in, const Arrays &out) {
          Doubles dx(in[0].size()), dw(columns);
          expectOk(reference::rmsNormBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), c.rows(), columns, 1, absl::MakeSpan(dx),
              absl::MakeSpan(dw)));
          for (size_t i = 0; adds && i < dx.size(); ++i)
            dx[i] += in[4][i];
          expectNear(out[0], dx, tolerance(t, 4e-6), "dx");
          expectNear(out[1], dw, 1e-5, "dw");
        });
  }

  void gatedForward(const NormCase &c, Kind t) {
    int64_t columns = c.columns();
    run("gated_rms_norm", "{eps = 1.0e-6}",
        {random(t, c.shape, 1, 3), random(t, c.shape, 2, 5, c.strides),
         random({columns}, 3)},
        {zeros(t, c.shape), f32(c.stats())},
        [&](const Arrays &in, const Arrays &out) {
          Doubles y(in[0].size()), rstd(c.rows());
          expectOk(reference::gatedRmsNorm<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]), c.rows(),
              columns, 1e-6, absl::MakeSpan(y), absl::MakeSpan(rstd)));
          expectNear(out[0], y, tolerance(t, 2e-6), "y");
          expectNear(out[1], rstd, 2e-6, "rstd");
        });
  }

  void gatedBackward(const NormCase &c, Kind t) {
    int64_t columns = c.columns();
    run("gated_rms_norm_bwd", "{}",
        {random(t, c.shape, 1), random(t, c.shape, 2, 2),
         random(t, c.shape, 3, 5, c.strides), random({columns}, 4),
         random(c.stats(), 5)},
        {zeros(t, c.shape), zeros(t, c.shape), f32({columns})},
        [&](const Arrays &in, const Arrays &out) {
          Doubles dO(in[0].size()), dz(in[0].size()), dw(columns);
          expectOk(reference::gatedRmsNormBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              valuesOf(in[3]), valuesOf(in[4]), c.rows(), columns,
              absl::MakeSpan(dO), absl::MakeSpan(dz), absl::MakeSpan(dw)));
          expectNear(out[0], dO, tolerance(t, 4e-6), "do");
          expectNear(out[1], dz, tolerance(t, 4e-6), "dz");
          expectNear(out[2], dw, 1e-5, "dw");
        });
  }
};

TEST_F(NormKernelTest, RmsNormMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t))
      forward(c, t);
}

TEST_F(NormKernelTest, RmsNormBwdMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t))
      backward(c, t, /*adds=*/false);
}

TEST_F(NormKernelTest, RmsNormBwdAddMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t))
      backward(c, t, /*adds=*/true);
}

TEST_F(NormKernelTest, GatedRmsNormMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t))
      gatedForward(c, t);
}

TEST_F(NormKernelTest, GatedRmsNormBwdMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t))
      gatedBackward(c, t);
}

TEST_F(NormKernelTest, LongRowsAreNotPrefetched) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : longCases()) {
      forward(c, t);
      backward(c, t, /*adds=*/true);
      gatedBackward(c, t);
    }
}

TEST_F(NormKernelTest, AddRmsNormNormalizesTheRoundedSum) {
  for (Kind t : kFloatKinds)
    for (const NormCase &c : normCases(t)) {
      int64_t columns = c.columns();
      run("add_rms_norm", "{eps = 1.0e-6, offset = 1.0}",
          {random(t, c.shape, 1, 3, c.strides), random(t, c.shape, 2),
           random({columns}, 3)},
          {zeros(t, c.shape), zeros(t, c.shape), f32(c.stats())},
          [&](const Arrays &in, const Arrays &out) {
            Array sum = zeros(t, c.shape);
            for (int64_t i = 0; i < sum.size(); ++i)
              sum.set(i, in[0][i] + in[1][i]);
            EXPECT_TRUE(out[0].sameBits(sum));
            Doubles y(sum.size()), rstd(c.rows());
            expectOk(reference::rmsNorm<double>(
                valuesOf(sum), valuesOf(in[2]), c.rows(), columns, 1e-6, 1,
                absl::MakeSpan(y), absl::MakeSpan(rstd)));
            expectNear(out[1], y, tolerance(t, 2e-6), "y");
            expectNear(out[2], rstd, 2e-6, "rstd");
          });
    }
}

TEST_F(NormKernelTest, ZeroAndLargeRowsHaveFiniteNorms) {
  for (Kind t : kFloatKinds) {
    Array x = random(t, {3, 256}, 1);
    for (int64_t i = 0; i < 256; ++i) {
      x.set(i, 0);
      x.set(256 + i, 1e4);
    }
    run("rms_norm", "{eps = 1.0e-6, offset = 0.0}", {x, random({256}, 2)},
        {zeros(t, {3, 256}), f32({3})},
        [&](const Arrays &in, const Arrays &out) {
          EXPECT_NEAR(out[1][0], 1e3, 1e-2);
          EXPECT_NEAR(out[1][1], 1 / in[0][256], 1e-9);
          for (int64_t i = 0; i < 256; ++i) {
            EXPECT_EQ(out[0][i], 0);
            EXPECT_NEAR(out[0][256 + i], in[1][i], tolerance(t, 1e-5));
          }
        });
  }
}

TEST_F(NormKernelTest, RowsSpreadOverAsManyThreadsAsTheyNeed) {
  mlir::Builder b(&context);
  mlir::Type f32 = b.getF32Type(), bf16 = b.getBF16Type();
  auto threadsFor = [&](mlir::Type type, llvm::ArrayRef<int64_t> shape) {
    auto rows = mlir::MemRefType::get(shape, type);
    auto weight = mlir::MemRefType::get(shape.back(), f32);
    auto stats = mlir::MemRefType::get(shape.drop_back(), f32);
    KernelSpec spec{"rms_norm",
                    b.getDictionaryAttr(
                        {b.getNamedAttr("eps", b.getF64FloatAttr(1e-6)),
                         b.getNamedAttr("offset", b.getF64FloatAttr(1))}),
                    {rows, weight},
                    {rows, stats}};
    std::optional<KernelPlan> found = plan(spec, "sm_90a");
    return found ? std::get<DeviceStage>(found->stages[0]).threads : 0;
  };
  EXPECT_EQ(threadsFor(bf16, {8192, 4096}), 512);
  EXPECT_EQ(threadsFor(bf16, {8192, 5120}), 320);
  EXPECT_EQ(threadsFor(bf16, {8192, 1024}), 256);
  EXPECT_EQ(threadsFor(bf16, {8192, 32, 128}), 256);
  EXPECT_EQ(threadsFor(f32, {8192, 4096}), 512);
}

TEST_F(NormKernelTest, RmsNormRefusesWhatItCannotRun) {
  const char *attrs = "{eps = 1.0e-6, offset = 1.0}";
  expectRefused("rms_norm", attrs, {f32({2, 8}), f32({4})},
                {f32({2, 8}), f32({2})},
                "rms_norm: w is [4] of f32, expected [8] of f32");
  expectRefused("rms_norm", attrs, {f32({2, 40000}), f32({40000})},
                {f32({2, 40000}), f32({2})},
                "rms_norm: rows of 40000 columns do not fit the registers of a "
                "block, which hold 16384");
  expectRefused("rms_norm", attrs, {f32({2, 8}), f32({8})},
                {zeros(Kind::BF16, {2, 8}), f32({2})},
                "rms_norm: x is [2, 8] of f32 but y is [2, 8] of bf16");
}

} // namespace
} // namespace qwen35::codegen::cuda
