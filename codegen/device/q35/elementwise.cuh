#pragma once
#include "q35/base.cuh"

namespace q35 {

// y = x over dense tensors of P::elements elements, P::perThread of them per thread.
template <class P, class X, class Y>
Q35_DEVICE void cast_rows(const X *x, Y *y) {
  constexpr int n = P::perThread;
  int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  if (first + n <= P::elements) {
    float value[n];
    load(value, x + first);
    store(y + first, value);
    return;
  }
  for (int64 i = first; i < P::elements; ++i) y[i] = from_float<Y>(to_float(x[i]));
}

} // namespace q35
