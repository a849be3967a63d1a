// Kernels of groups give what their parts give one after the other, up to one
// rounding: the code generator may contract a product and a sum in one of them
// and not in the other.

#include "test/unit/cpu/KernelTest.h"

#include <gtest/gtest.h>

namespace qwen35::codegen::cpu {
namespace {

std::vector<double> valuesOf(const Array &array) {
  std::vector<double> values(array.size());
  for (int64_t i = 0; i < array.size(); ++i)
    values[i] = array[i];
  return values;
}

constexpr const char *kNorm = "{eps = 1.0e-6, offset = 1.0}";

class FusedKernelTest : public KernelTest {
protected:
  /// The outputs of an op for the given target of testedCpus(): sums depend on
  /// the width of its vectors.
  Arrays outputsOf(size_t cpu, const std::string &op, const std::string &attrs,
                   const Arrays &inputs, const Arrays &outputs) {
    std::vector<Arrays> all;
    run(op, attrs, inputs, outputs, [&](const Arrays &, const Arrays &out) {
      all.push_back(out);
    });
    size_t perCpu = all.size() / testedCpus().size();
    EXPECT_GT(perCpu, 0u);
    return all.at(cpu * perCpu);
  }
};

TEST_F(FusedKernelTest, AddRmsNormEqualsItsParts) {
  for (size_t cpu = 0; cpu < testedCpus().size(); ++cpu)
    for (auto [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{7, 64}, {33, 100}, {1, 3}}) {
      Array a = random({rows, columns}, 1, 3), b = random({rows, columns}, 2);
      Array w = random({columns}, 3), like = f32({rows, columns});
      Array stats = f32({rows});
      Array sum = outputsOf(cpu, "add", "{}", {a, b}, {like})[0];
      Arrays norm = outputsOf(cpu, "rms_norm", kNorm, {sum, w}, {like, stats});
      Arrays fused = outputsOf(cpu, "add_rms_norm", kNorm, {a, b, w},
                               {like, like, stats});
      EXPECT_TRUE(fused[0].sameBits(sum));
      expectNear(fused[1], valuesOf(norm[0]), 3e-7, "y");
      expectNear(fused[2], valuesOf(norm[1]), 3e-7, "rstd");
    }
}

TEST_F(FusedKernelTest, RmsNormRopeEqualsItsParts) {
  for (size_t cpu = 0; cpu < testedCpus().size(); ++cpu)
    for (auto [tokens, heads, size, rotary] :
         std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
             {9, 4, 32, 8}, {5, 1, 6, 6}, {3, 2, 256, 64}}) {
      // A slice of a wider tensor, as the query half of a projection is.
      Array x = random({tokens, heads, size}, 1, 2,
                       {heads * 2 * size, 2 * size, 1});
      Array w = random({size}, 2), table = random({tokens, rotary / 2, 2}, 3);
      Array like = f32({tokens, heads, size}), stats = f32({tokens, heads});
      Arrays norm = outputsOf(cpu, "rms_norm", kNorm, {x, w}, {like, stats});
      Array y = outputsOf(cpu, "rope", "{}", {norm[0], table}, {like})[0];
      Arrays fused = outputsOf(cpu, "rms_norm_rope", kNorm, {x, w, table},
                               {like, stats});
      expectNear(fused[0], valuesOf(y), 3e-7, "y");
      expectNear(fused[1], valuesOf(norm[1]), 3e-7, "rstd");
    }
}

TEST_F(FusedKernelTest, RmsNormBwdAddEqualsItsParts) {
  int64_t rows = 33, columns = 100;
  Arrays in = {random({rows, columns}, 1), random({rows, columns}, 2),
               random({columns}, 3), random({rows}, 4)};
  Array residual = random({rows, columns}, 5);
  Arrays shapes = {f32({rows, columns}), f32({columns})};
  for (size_t cpu = 0; cpu < testedCpus().size(); ++cpu) {
    Arrays parts =
        outputsOf(cpu, "rms_norm_bwd", "{offset = 1.0}", in, shapes);
    Arrays operands = in;
    operands.push_back(residual);
    Arrays fused =
        outputsOf(cpu, "rms_norm_bwd_add", "{offset = 1.0}", operands, shapes);
    std::vector<double> sum(residual.size());
    for (int64_t i = 0; i < residual.size(); ++i)
      sum[i] = parts[0][i] + residual[i];
    expectNear(fused[0], sum, 4e-7, "dx");
    EXPECT_TRUE(fused[1].sameBits(parts[1]));
  }
}

} // namespace
} // namespace qwen35::codegen::cpu
