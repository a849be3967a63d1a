#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Glue.h"
#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

using Doubles = std::vector<double>;

struct ShapeCase {
  std::vector<int64_t> shape, strides;
};

/// Scalars, odd sizes, several blocks (with and without a short last one), and
/// strided operands of two and three dimensions.
std::vector<ShapeCase> shapeCases() {
  return {{{}, {}},
          {{17, 8}, {}},
          {{3001}, {}},
          {{64, 128}, {}},
          {{30, 70}, {90, 1}},
          {{40, 4, 16}, {128, 32, 1}},
          {{3, 2, 5}, {20, 6, 1}}};
}

// Sums of squares that do not nest, of several meshes of ranks, are added up.
TEST_F(CudaKernelTest, AddTakesF64) {
  Array a = f64({}), b = f64({});
  a.set(0, 1.0);
  b.set(0, 0x1p-40);
  run("add", "{}", {a, b}, {f64({})}, [](const Arrays &, const Arrays &out) {
    EXPECT_EQ(out[0][0], 1.0 + 0x1p-40);
  });
  Array c = f64({1003}), d = f64({1003});
  for (int64_t i = 0; i < 1003; ++i)
    c.set(i, double(i)), d.set(i, 0x1p-40);
  run("add", "{}", {c, d}, {f64({1003})},
      [](const Arrays &, const Arrays &out) {
        for (int64_t i = 0; i < 1003; ++i)
          ASSERT_EQ(out[0][i], double(i) + 0x1p-40);
      });
}

TEST_F(CudaKernelTest, CastsRoundOnce) {
  for (const ShapeCase &c : shapeCases())
    for (Kind from : kFloatKinds)
      for (Kind to : kFloatKinds)
        run("cast", "{}", {random(from, c.shape, 1, 1, c.strides)},
            {zeros(to, c.shape)}, [&](const Arrays &in, const Arrays &out) {
              Array want = zeros(to, c.shape);
              setValues(want, valuesOf(in[0]));
              EXPECT_TRUE(out[0].sameBits(want));
            });
}

TEST_F(CudaKernelTest, SumsAndProductsMatchTheReference) {
  for (Kind t : kFloatKinds)
    for (const ShapeCase &c : shapeCases()) {
      run("add", "{}",
          {random(t, c.shape, 1, 1, c.strides), random(t, c.shape, 2)},
          {zeros(t, c.shape)}, [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::add<double>(valuesOf(in[0]), valuesOf(in[1]),
                                            absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 1e-7), "add");
          });
      run("scale", "{factor = -0.75}", {random(t, c.shape, 1, 1, c.strides)},
          {zeros(t, c.shape)}, [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::scale<double>(valuesOf(in[0]), -0.75,
                                              absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 1e-7), "scale");
          });
      run("mul_scalar", "{}", {random(t, c.shape, 1), scalar(0.3)},
          {zeros(t, c.shape)}, [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::mulScalar<double>(
                valuesOf(in[0]), valuesOf(in[1]), absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 1e-7), "mul_scalar");
          });
    }
}

TEST_F(CudaKernelTest, FillsAndCopiesAreExact) {
  for (Kind t : kFloatKinds)
    for (const ShapeCase &c : shapeCases()) {
      run("copy", "{}", {random(t, c.shape, 1, 1, c.strides)},
          {zeros(t, c.shape)}, [](const Arrays &in, const Arrays &out) {
            EXPECT_TRUE(out[0].sameBits(in[0]));
          });
      for (auto [op, value] : {std::pair("zeros", 0.0), {"ones", 1.0}})
        run(op, "{}", {}, {zeros(t, c.shape, c.strides)},
            [value = value](const Arrays &, const Arrays &out) {
              for (int64_t i = 0; i < out[0].size(); ++i)
                ASSERT_EQ(out[0][i], value);
            });
    }
  run("zeros", "{}", {}, {f64({})}, [](const Arrays &, const Arrays &out) {
    EXPECT_EQ(out[0][0], 0);
  });
}

TEST_F(CudaKernelTest, SwigluMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (const ShapeCase &c : shapeCases()) {
      run("swiglu", "{}",
          {random(t, c.shape, 1, 9, c.strides), random(t, c.shape, 2)},
          {zeros(t, c.shape)}, [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::swiglu<double>(
                valuesOf(in[0]), valuesOf(in[1]), absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 1e-6), "y");
          });
      run("swiglu_bwd", "{}",
          {random(t, c.shape, 3), random(t, c.shape, 1, 9, c.strides),
           random(t, c.shape, 2)},
          {zeros(t, c.shape), zeros(t, c.shape)},
          [&](const Arrays &in, const Arrays &out) {
            Doubles dgate(out[0].size()), dup(out[0].size());
            expectOk(reference::swigluBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                absl::MakeSpan(dgate), absl::MakeSpan(dup)));
            expectNear(out[0], dgate, tolerance(t, 1e-6), "dgate");
            expectNear(out[1], dup, tolerance(t, 1e-6), "dup");
          });
    }
}

TEST_F(CudaKernelTest, MulSigmoidTakesBothGateShapes) {
  struct Case {
    std::vector<int64_t> x, gate, strides;
  };
  for (Kind t : kFloatKinds)
    for (const Case &c :
         {Case{{37, 50}, {37, 50}, {60, 1}}, Case{{5, 3, 8}, {5, 3, 8}, {}},
          Case{{70, 136}, {70, 1}, {160, 1}}, Case{{33, 600}, {33, 1}, {}},
          Case{{3, 5}, {3, 1}, {}}}) {
      int64_t columns = c.x.back();
      run("mul_sigmoid", "{}",
          {random(t, c.x, 1, 1, c.strides), random(t, c.gate, 2, 6)},
          {zeros(t, c.x)}, [&](const Arrays &in, const Arrays &out) {
            Doubles y(out[0].size());
            expectOk(reference::mulSigmoid<double>(
                valuesOf(in[0]), valuesOf(in[1]), in[0].size() / columns,
                columns, c.gate.back(), absl::MakeSpan(y)));
            expectNear(out[0], y, tolerance(t, 1e-6), "y");
          });
      run("mul_sigmoid_bwd", "{}",
          {random(t, c.x, 3), random(t, c.x, 1, 1, c.strides),
           random(t, c.gate, 2, 6)},
          {zeros(t, c.x, c.strides),
           zeros(t, c.gate, c.strides)},
          [&](const Arrays &in, const Arrays &out) {
            Doubles dx(out[0].size()), dgate(out[1].size());
            expectOk(reference::mulSigmoidBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
                in[0].size() / columns, columns, c.gate.back(),
                absl::MakeSpan(dx), absl::MakeSpan(dgate)));
            expectNear(out[0], dx, tolerance(t, 1e-6), "dx");
            expectNear(out[1], dgate, tolerance(t, 3e-6), "dgate");
          });
    }
  expectRefused("mul_sigmoid", "{}", {f32({4, 8}), f32({4, 2})}, {f32({4, 8})},
                "mul_sigmoid: gate is [4, 2] of f32, expected [4, 1] of f32");
}

TEST_F(CudaKernelTest, SoftmaxBwdMatchesTheReference) {
  for (Kind t : kFloatKinds)
    for (int64_t columns : {1, 8, 37, 256})
      run("softmax_bwd", "{}",
          {random(t, {70, columns}, 1), random(t, {70, columns}, 2)},
          {zeros(t, {70, columns})}, [&](const Arrays &in, const Arrays &out) {
            Doubles dlogits(out[0].size());
            expectOk(reference::softmaxBwd<double>(
                valuesOf(in[0]), valuesOf(in[1]), 70, columns,
                absl::MakeSpan(dlogits)));
            expectNear(out[0], dlogits, tolerance(t, 3e-6), "dlogits");
          });
}

TEST_F(CudaKernelTest, ConcatJoinsAlongAnyAxis) {
  for (Kind t : kFloatKinds)
    for (int64_t axis : {0, 1, 2}) {
      std::vector<int64_t> sizes = {3, 1, 20}, dims = {4, 5, 6};
      dims[axis] = 24;
      Arrays inputs;
      for (int64_t size : sizes) {
        std::vector<int64_t> shape = dims;
        shape[axis] = size;
        inputs.push_back(random(t, shape, size));
      }
      run("concat", "{axis = " + std::to_string(axis) + " : i64}", inputs,
          {zeros(t, dims)}, [&](const Arrays &in, const Arrays &out) {
            std::vector<Doubles> values;
            for (const Array &array : in)
              values.push_back(valuesOf(array));
            std::vector<absl::Span<const double>> spans(values.begin(),
                                                        values.end());
            Doubles y(out[0].size());
            expectOk(reference::concat<double>(spans, sizes, dims, axis,
                                               absl::MakeSpan(y)));
            EXPECT_EQ(valuesOf(out[0]), y);
          });
    }
  // Slices of a wider tensor along the last axis, as projections leave them,
  // and heads of which each has two halves.
  for (int64_t unit : {3, 8})
    run("concat", "{axis = 1 : i64}",
        {random({200, 3 * unit}, 1, 1, {9 * unit, 1}),
         random({200, 6 * unit}, 2, 1, {7 * unit, 1})},
        {f32({200, 9 * unit})}, [&](const Arrays &in, const Arrays &out) {
          for (int64_t t = 0; t < 200; ++t)
            for (int64_t i = 0; i < 9 * unit; ++i)
              ASSERT_EQ(out[0][t * 9 * unit + i],
                        i < 3 * unit ? in[0][t * 3 * unit + i]
                                     : in[1][t * 6 * unit + i - 3 * unit]);
        });
  run("concat", "{axis = 2 : i64}",
      {randomBf16({20, 3, 16}, 1), randomBf16({20, 3, 16}, 2)},
      {bf16({20, 3, 32})}, [](const Arrays &in, const Arrays &out) {
        for (int64_t row = 0; row < 60; ++row)
          for (int64_t i = 0; i < 32; ++i)
            ASSERT_EQ(out[0][row * 32 + i], in[i / 16][row * 16 + i % 16]);
      });
  expectRefused("concat", "{axis = 0 : i64}", {f32({2, 3}), f32({2, 3})},
                {f32({5, 3})},
                "concat: the inputs have 4 elements along axis 0, the result "
                "has 5");
}

} // namespace
} // namespace qwen35::codegen::cuda
