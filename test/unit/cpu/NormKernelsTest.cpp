#include "test/unit/cpu/KernelTest.h"

#include <cmath>

namespace qwen35::codegen::cpu {
namespace {

TEST_F(KernelTest, RmsNormMatchesItsDefinition) {
  struct Case {
    std::vector<int64_t> shape, strides;
  };
  for (const Case &c : {Case{{3, 64}, {}}, Case{{5, 7}, {}}, Case{{2, 3, 33}, {}},
                        Case{{4, 2, 16}, {100, 20, 1}}, Case{{1, 1}, {}},
                        Case{{37, 130}, {200, 1}}}) {
    int64_t columns = c.shape.back();
    std::vector<int64_t> stats(c.shape.begin(), c.shape.end() - 1);
    run("rms_norm", "{eps = 1.0e-6, offset = 1.0}",
        {random(c.shape, 1, 3.0, c.strides), random({columns}, 2)},
        {f32(c.shape), f32(stats)}, [&](const Arrays &in, const Arrays &out) {
          std::vector<double> y, rstd;
          for (int64_t row = 0; row < in[0].size() / columns; ++row) {
            double sum = 0;
            for (int64_t d = 0; d < columns; ++d)
              sum += std::pow(in[0][row * columns + d], 2);
            rstd.push_back(1 / std::sqrt(sum / columns + 1e-6));
            for (int64_t d = 0; d < columns; ++d)
              y.push_back(in[0][row * columns + d] * rstd.back() *
                          (1 + in[1][d]));
          }
          expectNear(out[0], y, 2e-6, "y");
          expectNear(out[1], rstd, 2e-6, "rstd");
        });
  }
}

TEST_F(KernelTest, RmsNormRefusesAWeightOfAnotherLength) {
  expectRefused("rms_norm", "{eps = 1.0e-6, offset = 1.0}",
                {f32({2, 8}), f32({4})}, {f32({2, 8}), f32({2})},
                "rms_norm: w is [4] of f32, expected [8] of f32");
}

} // namespace
} // namespace qwen35::codegen::cpu
