#pragma once
#include "q35/base.cuh"

// Kernels on lists of tensors: their pointers are one parameter, so that a block can pick those of a tensor by its number.

namespace q35 {

template <int N>
struct Arguments {
  unsigned char *at[N];
  template <class T>
  Q35_DEVICE T *get(int i) const { return reinterpret_cast<T *>(at[i]); }
};

// Blocks work on pieces of P::piece elements. The tensor of piece `number`: P::ends(i) counts pieces up to the end of
// tensor i, P::lists in all.
template <class P>
Q35_DEVICE int list_of(int number) {
  int low = 0, high = int(P::lists) - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (number < P::ends(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

} // namespace q35

#ifdef Q35_EMULATE
#define Q35_ARGUMENTS(n) const q35::Arguments<n> &
#else
#define Q35_ARGUMENTS(n) const __grid_constant__ q35::Arguments<n>
#endif
