#include "dialect/Qwen35/Reference/Attention.h"
#include "dialect/Qwen35/Reference/Glue.h"
#include "dialect/Qwen35/Reference/Moe.h"
#include "test/unit/cpu/SequenceCase.h"

namespace qwen35::codegen::cpu {
namespace {

using Doubles = std::vector<double>;

struct ShapeCase {
  std::vector<int64_t> shape, strides;
};

/// Scalars, odd sizes, several tasks (with and without a short last one), and
/// strided operands.
std::vector<ShapeCase> shapeCases() {
  return {{{}, {}},
          {{1}, {}},
          {{7, 3}, {}},
          {{70001}, {}},
          {{512, 128}, {}},
          {{300, 70}, {90, 1}},
          {{3, 2, 5}, {20, 6, 1}}};
}

// Sums of squares that do not nest, of several meshes of ranks, are added up.
TEST_F(KernelTest, AddTakesF64) {
  Array a = f64({}), b = f64({});
  a.set(0, 1.0);
  b.set(0, 0x1p-40);
  run("add", "{}", {a, b}, {f64({})}, [](const Arrays &, const Arrays &out) {
    EXPECT_EQ(out[0][0], 1.0 + 0x1p-40);
  });
  run("add", "{}", {f64({37}), f64({37})}, {f64({37})},
      [](const Arrays &, const Arrays &out) { EXPECT_EQ(out[0][36], 0); });
  expectRefused("add", "{}", {f64({3}), f32({3})}, {f64({3})},
                "add: a is [3] of f64 but b is [3] of f32");
}

TEST_F(KernelTest, SumsAndProductsMatchTheReference) {
  for (const ShapeCase &c : shapeCases()) {
    run("add", "{}", {random(c.shape, 1, 1, c.strides), random(c.shape, 2)},
        {f32(c.shape)}, [](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::add<double>(valuesOf(in[0]), valuesOf(in[1]),
                                          absl::MakeSpan(y)));
          expectNear(out[0], y, 1e-7, "add");
        });
    run("scale", "{factor = -0.75}", {random(c.shape, 1, 1, c.strides)},
        {f32(c.shape)}, [](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::scale<double>(valuesOf(in[0]), -0.75,
                                            absl::MakeSpan(y)));
          expectNear(out[0], y, 1e-7, "scale");
        });
    run("mul_scalar", "{}", {random(c.shape, 1), scalar(0.3)}, {f32(c.shape)},
        [](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::mulScalar<double>(
              valuesOf(in[0]), valuesOf(in[1]), absl::MakeSpan(y)));
          expectNear(out[0], y, 1e-7, "mul_scalar");
        });
  }
}

TEST_F(KernelTest, FillsAndCopiesAreExact) {
  for (const ShapeCase &c : shapeCases()) {
    run("copy", "{}", {random(c.shape, 1, 1, c.strides)}, {f32(c.shape)},
        [](const Arrays &in, const Arrays &out) {
          EXPECT_TRUE(out[0].sameBits(in[0]));
        });
    for (auto [op, value] : {std::pair("zeros", 0.0), {"ones", 1.0}})
      run(op, "{}", {}, {f32(c.shape, c.strides)},
          [value = value](const Arrays &, const Arrays &out) {
            for (int64_t i = 0; i < out[0].size(); ++i)
              ASSERT_EQ(out[0][i], value);
          });
  }
}

TEST_F(KernelTest, SwigluMatchesTheReference) {
  for (const ShapeCase &c : shapeCases()) {
    run("swiglu", "{}", {random(c.shape, 1, 9, c.strides), random(c.shape, 2)},
        {f32(c.shape)}, [](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          expectOk(reference::swiglu<double>(valuesOf(in[0]), valuesOf(in[1]),
                                             absl::MakeSpan(y)));
          expectNear(out[0], y, 1e-6, "y");
        });
    run("swiglu_bwd", "{}",
        {random(c.shape, 3), random(c.shape, 1, 9, c.strides),
         random(c.shape, 2)},
        {f32(c.shape), f32(c.shape)}, [](const Arrays &in, const Arrays &out) {
          Doubles dgate(out[0].size()), dup(out[0].size());
          expectOk(reference::swigluBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              absl::MakeSpan(dgate), absl::MakeSpan(dup)));
          expectNear(out[0], dgate, 1e-6, "dgate");
          expectNear(out[1], dup, 1e-6, "dup");
        });
  }
}

TEST_F(KernelTest, MulSigmoidTakesBothGateShapes) {
  struct Case {
    std::vector<int64_t> x, gate, strides;
  };
  for (const Case &c :
       {Case{{37, 50}, {37, 50}, {60, 1}}, Case{{5, 3, 8}, {5, 3, 8}, {}},
        Case{{300, 130}, {300, 1}, {140, 1}}, Case{{3, 5}, {3, 1}, {}}}) {
    run("mul_sigmoid", "{}",
        {random(c.x, 1, 1, c.strides), random(c.gate, 2, 6)}, {f32(c.x)},
        [&](const Arrays &in, const Arrays &out) {
          Doubles y(out[0].size());
          int64_t columns = c.x.back();
          expectOk(reference::mulSigmoid<double>(
              valuesOf(in[0]), valuesOf(in[1]), in[0].size() / columns, columns,
              c.gate.back(), absl::MakeSpan(y)));
          expectNear(out[0], y, 1e-6, "y");
        });
    run("mul_sigmoid_bwd", "{}",
        {random(c.x, 3), random(c.x, 1, 1, c.strides), random(c.gate, 2, 6)},
        {f32(c.x), f32(c.gate)}, [&](const Arrays &in, const Arrays &out) {
          Doubles dx(out[0].size()), dgate(out[1].size());
          int64_t columns = c.x.back();
          expectOk(reference::mulSigmoidBwd<double>(
              valuesOf(in[0]), valuesOf(in[1]), valuesOf(in[2]),
              in[0].size() / columns, columns, c.gate.back(),
              absl::MakeSpan(dx), absl::MakeSpan(dgate)));
          expectNear(out[0], dx, 1e-6, "dx");
          expectNear(out[1], dgate, 3e-6, "dgate");
        });
  }
  expectRefused("mul_sigmoid", "{}", {f32({4, 8}), f32({4, 2})}, {f32({4, 8})},
                "mul_sigmoid: gate is [4, 2] of f32, expected [4, 1] of f32");
}

TEST_F(KernelTest, SoftmaxBwdMatchesTheReference) {
  for (int64_t columns : {1, 8, 37, 256})
    run("softmax_bwd", "{}",
        {random({70, columns}, 1), random({70, columns}, 2)},
        {f32({70, columns})}, [&](const Arrays &in, const Arrays &out) {
          Doubles dlogits(out[0].size());
          expectOk(reference::softmaxBwd<double>(valuesOf(in[0]),
                                                 valuesOf(in[1]), 70, columns,
                                                 absl::MakeSpan(dlogits)));
          expectNear(out[0], dlogits, 3e-6, "dlogits");
        });
}

TEST_F(KernelTest, ConcatJoinsAlongAnyAxis) {
  for (int64_t axis : {0, 1, 2}) {
    std::vector<int64_t> sizes = {3, 1, 20}, dims = {4, 5, 6};
    dims[axis] = 24;
    Arrays inputs;
    for (int64_t size : sizes) {
      std::vector<int64_t> shape = dims;
      shape[axis] = size;
      inputs.push_back(random(shape, size));
    }
    run("concat", "{axis = " + std::to_string(axis) + " : i64}", inputs,
        {f32(dims)}, [&](const Arrays &in, const Arrays &out) {
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
  // Slices of a wider tensor along the last axis, as projections leave them.
  run("concat", "{axis = 1 : i64}",
      {random({200, 30}, 1, 1, {90, 1}), random({200, 60}, 2, 1, {70, 1})},
      {f32({200, 90})}, [](const Arrays &in, const Arrays &out) {
        for (int64_t t = 0; t < 200; ++t)
          for (int64_t i = 0; i < 90; ++i)
            ASSERT_EQ(out[0][t * 90 + i],
                      i < 30 ? in[0][t * 30 + i] : in[1][t * 60 + i - 30]);
      });
  expectRefused("concat", "{axis = 0 : i64}", {f32({2, 3}), f32({2, 3})},
                {f32({5, 3})},
                "concat: the inputs have 4 elements along axis 0, the result "
                "has 5");
}

} // namespace
} // namespace qwen35::codegen::cpu
