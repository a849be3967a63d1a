#include "test/unit/cuda/CudaKernelTest.h"

namespace qwen35::codegen::cuda {
namespace {

TEST_F(CudaKernelTest, CastsRoundOnce) {
  for (const std::vector<int64_t> &shape :
       {std::vector<int64_t>{}, {1}, {7, 3}, {5000}, {64, 128}})
    for (Kind from : kFloatKinds)
      for (Kind to : kFloatKinds)
        run("cast", "{}", {random(from, shape, 1)}, {zeros(to, shape)},
            [&](const Arrays &in, const Arrays &out) {
              Array want = zeros(to, shape);
              setValues(want, valuesOf(in[0]));
              EXPECT_TRUE(out[0].sameBits(want));
            });
}

} // namespace
} // namespace qwen35::codegen::cuda
