#pragma once
#include "q35/base.cuh"

// Ops that treat every element alike, and ops on short rows.
//
// A tensor is [outer, rows, columns]: column c of row r of o lies at o * outerStride + r * rowStride + c. P holds
//   outer, rows        sizes; the strides are read where they are greater than 1
//   vector             elements that one access takes: columns and strides are multiples of it where rows * outer > 1
//   rowVectors         of a row
//   vectors            of the tensor
//   tail               elements behind the last vector, fewer than one; only where outer * rows == 1
//   unroll             vectors per thread, blockDim.x apart, all of which are loaded before the first is stored
//   rowStride0 ..      of the operands: inputs, then outputs
// Inputs may be outputs, element for element.

namespace q35 {

struct Position {
  uint outer, row, column;
};

template <class P>
Q35_DEVICE Position position(uint vector) {
  uint line = vector / uint(P::rowVectors);
  return {line / uint(P::rows), line % uint(P::rows), (vector - line * uint(P::rowVectors)) * uint(P::vector)};
}

template <class P>
Q35_DEVICE int64 row_stride(int operand) {
  return operand == 0   ? P::rowStride0
         : operand == 1 ? P::rowStride1
         : operand == 2 ? P::rowStride2
         : operand == 3 ? P::rowStride3
                        : P::rowStride4;
}

template <class P>
Q35_DEVICE int64 outer_stride(int operand) {
  return operand == 0   ? P::outerStride0
         : operand == 1 ? P::outerStride1
         : operand == 2 ? P::outerStride2
         : operand == 3 ? P::outerStride3
                        : P::outerStride4;
}

// Where vector `vector`, at `at`, of an operand begins.
template <class P>
Q35_DEVICE int64 offset_of(uint vector, Position at, int operand) {
  if constexpr (P::outer * P::rows == 1) {
    return int64(vector) * P::vector;
  } else {
    int64 offset = at.row * row_stride<P>(operand) + at.column;
    if constexpr (P::outer > 1) offset += at.outer * outer_stride<P>(operand);
    return offset;
  }
}

// f(x, y) turns one element of every input to one of every output. Operand numbers start at `First`.
template <class P, int Inputs, int Outputs, class F, class X, class Y>
Q35_DEVICE void map_elements(F f, const X *const *in, Y *const *out) {
  constexpr int n = P::vector, unroll = P::unroll;
  uint first = blockIdx.x * (blockDim.x * unroll) + threadIdx.x;
  float x[unroll][Inputs][n];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = first + u * blockDim.x;
    if (vector >= uint(P::vectors)) continue;
    Position at = position<P>(vector);
#pragma unroll
    for (int i = 0; i < Inputs; ++i) load(x[u][i], in[i] + offset_of<P>(vector, at, i));
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = first + u * blockDim.x;
    if (vector >= uint(P::vectors)) continue;
    float y[Outputs][n];
#pragma unroll
    for (int e = 0; e < n; ++e) {
      float from[Inputs], to[Outputs];
#pragma unroll
      for (int i = 0; i < Inputs; ++i) from[i] = x[u][i][e];
      f(from, to);
#pragma unroll
      for (int o = 0; o < Outputs; ++o) y[o][e] = to[o];
    }
    Position at = position<P>(vector);
#pragma unroll
    for (int o = 0; o < Outputs; ++o) store(out[o] + offset_of<P>(vector, at, Inputs + o), y[o]);
  }
  if constexpr (P::tail > 0) {
    if (blockIdx.x + 1 < gridDim.x || threadIdx.x >= uint(P::tail)) return;
    int64 element = P::vectors * P::vector + threadIdx.x;
    float from[Inputs], to[Outputs];
#pragma unroll
    for (int i = 0; i < Inputs; ++i) from[i] = to_float(in[i][element]);
    f(from, to);
#pragma unroll
    for (int o = 0; o < Outputs; ++o) out[o][element] = from_float<Y>(to[o]);
  }
}

template <class P, class F, class X, class Y>
Q35_DEVICE void map_one(F f, const X *x, Y *y) {
  const X *in[] = {x};
  Y *out[] = {y};
  map_elements<P, 1, 1>(f, in, out);
}

template <class P, class F, class T>
Q35_DEVICE void map_two(F f, const T *a, const T *b, T *y) {
  const T *in[] = {a, b};
  T *out[] = {y};
  map_elements<P, 2, 1>(f, in, out);
}

// y = x, rounded to the type of y.
template <class P, class X, class Y>
Q35_DEVICE void cast(const X *x, Y *y) {
  map_one<P>([](const float (&in)[1], float (&out)[1]) { out[0] = in[0]; }, x, y);
}

// y = x bit for bit.
template <class P, class T>
Q35_DEVICE void copy(const T *x, T *y) {
  using Vector = Vec<T, P::vector>;
  constexpr int unroll = P::unroll;
  uint first = blockIdx.x * (blockDim.x * unroll) + threadIdx.x;
  Vector value[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = first + u * blockDim.x;
    if (vector < uint(P::vectors))
      value[u] = *reinterpret_cast<const Vector *>(x + offset_of<P>(vector, position<P>(vector), 0));
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = first + u * blockDim.x;
    if (vector < uint(P::vectors))
      *reinterpret_cast<Vector *>(y + offset_of<P>(vector, position<P>(vector), 1)) = value[u];
  }
  if constexpr (P::tail > 0) {
    int64 element = P::vectors * P::vector + threadIdx.x;
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x < uint(P::tail)) y[element] = x[element];
  }
}

template <class P, class T>
Q35_DEVICE void fill(T value, T *y) {
  using Vector = Vec<T, P::vector>;
  constexpr int unroll = P::unroll;
  Vector all;
#pragma unroll
  for (int i = 0; i < P::vector; ++i) all.v[i] = value;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = blockIdx.x * (blockDim.x * unroll) + threadIdx.x + u * blockDim.x;
    if (vector < uint(P::vectors))
      *reinterpret_cast<Vector *>(y + offset_of<P>(vector, position<P>(vector), 0)) = all;
  }
  if constexpr (P::tail > 0) {
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x < uint(P::tail)) y[P::vectors * P::vector + threadIdx.x] = value;
  }
}

template <class P, class T>
Q35_DEVICE void zeros(T *y) { fill<P>(from_float<T>(0.0f), y); }

template <class P, class T>
Q35_DEVICE void ones(T *y) { fill<P>(from_float<T>(1.0f), y); }

template <class P, class T>
Q35_DEVICE void add(const T *a, const T *b, T *sum) {
  map_two<P>([](const float (&in)[2], float (&out)[1]) { out[0] = in[0] + in[1]; }, a, b, sum);
}

// Doubles lose nothing on the way.
template <class P>
Q35_DEVICE void add(const double *a, const double *b, double *sum) {
  constexpr int n = P::vector, unroll = P::unroll;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = blockIdx.x * (blockDim.x * unroll) + threadIdx.x + u * blockDim.x;
    if (vector >= uint(P::vectors)) continue;
    Position at = position<P>(vector);
    int64 to = offset_of<P>(vector, at, 2), left = offset_of<P>(vector, at, 0), right = offset_of<P>(vector, at, 1);
#pragma unroll
    for (int e = 0; e < n; ++e) sum[to + e] = a[left + e] + b[right + e];
  }
  if constexpr (P::tail > 0) {
    int64 element = P::vectors * P::vector + threadIdx.x;
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x < uint(P::tail)) sum[element] = a[element] + b[element];
  }
}

// A sum of exponentials of x - from, as one of exponentials of x - to.
template <class P, class T>
Q35_DEVICE void rescale_sum(const T *sum, const T *from, const T *to, T *result) {
  const T *in[] = {sum, from, to};
  T *out[] = {result};
  map_elements<P, 3, 1>([](const float (&in)[3], float (&out)[1]) { out[0] = in[0] * expf(in[1] - in[2]); }, in, out);
}

template <class P, class T>
Q35_DEVICE void scale(const T *x, T *y) {
  map_one<P>([](const float (&in)[1], float (&out)[1]) { out[0] = in[0] * P::factor; }, x, y);
}

template <class P, class T>
Q35_DEVICE void mul_scalar(const T *x, const float *scalar, T *y) {
  float factor = *scalar;
  map_one<P>([=](const float (&in)[1], float (&out)[1]) { out[0] = in[0] * factor; }, x, y);
}

template <class P, class T>
Q35_DEVICE void swiglu(const T *gate, const T *up, T *y) {
  map_two<P>([](const float (&in)[2], float (&out)[1]) { out[0] = silu(in[0]) * in[1]; }, gate, up, y);
}

template <class P, class T>
Q35_DEVICE void swiglu_bwd(const T *dy, const T *gate, const T *up, T *dgate, T *dup) {
  const T *in[] = {dy, gate, up};
  T *out[] = {dgate, dup};
  map_elements<P, 3, 2>(
      [](const float (&in)[3], float (&out)[2]) {
        float s = sigmoid(in[1]);
        out[0] = in[0] * in[2] * (s * (1.0f + in[1] * (1.0f - s)));
        out[1] = in[0] * in[1] * s;
      },
      in, out);
}

// y = x * sigmoid(gate), all of one shape.
template <class P, class T>
Q35_DEVICE void mul_sigmoid(const T *x, const T *gate, T *y) {
  map_two<P>([](const float (&in)[2], float (&out)[1]) { out[0] = in[0] * sigmoid(in[1]); }, x, gate, y);
}

template <class P, class T>
Q35_DEVICE void mul_sigmoid_bwd(const T *dy, const T *x, const T *gate, T *dx, T *dgate) {
  const T *in[] = {dy, x, gate};
  T *out[] = {dx, dgate};
  map_elements<P, 3, 2>(
      [](const float (&in)[3], float (&out)[2]) {
        float s = sigmoid(in[2]);
        out[0] = in[0] * s;
        out[1] = in[0] * in[1] * s * (1.0f - s);
      },
      in, out);
}

// Below, P holds rows, columns, vector (see above) and strides by name; a warp takes a row, blockDim.x / 32 of them a
// block.

// body(column) for the vectors of a row that fall to this lane.
template <class P, class Body>
Q35_DEVICE void for_lane_vectors(Body body) {
  for (int column = threadIdx.x % 32 * P::vector; column < int(P::columns); column += 32 * P::vector) body(column);
}

// y = x * sigmoid(gate of the row).
template <class P, class T, class G>
Q35_DEVICE void mul_sigmoid_rows(const T *x, const G *gate, T *y) {
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::rows) return;
  float s = sigmoid(to_float(gate[row * P::gateStride]));
  constexpr int batch = 4, step = 32 * P::vector; // Loads in flight.
  float value[batch][P::vector];
  for (int first = threadIdx.x % 32 * P::vector; first < int(P::columns); first += batch * step) {
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (first + i * step < int(P::columns)) load(value[i], x + row * P::xStride + first + i * step);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
#pragma unroll
      for (int e = 0; e < P::vector; ++e) value[i][e] *= s;
      if (first + i * step < int(P::columns)) store(y + row * P::yStride + first + i * step, value[i]);
    }
  }
}

template <class P, class T, class G>
Q35_DEVICE void mul_sigmoid_rows_bwd(const T *dy, const T *x, const G *gate, T *dx, G *dgate) {
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::rows) return;
  float s = sigmoid(to_float(gate[row * P::gateStride])), dot = 0;
  for_lane_vectors<P>([&](int column) {
    float d[P::vector], value[P::vector];
    load(d, dy + row * P::dyStride + column);
    load(value, x + row * P::xStride + column);
#pragma unroll
    for (int e = 0; e < P::vector; ++e) {
      dot += d[e] * value[e];
      d[e] *= s;
    }
    store(dx + row * P::dxStride + column, d);
  });
  dot = warp_sum(dot);
  if (threadIdx.x % 32 == 0) dgate[row * P::dgateStride] = from_float<G>(dot * s * (1.0f - s));
}

// dlogits = probs * (dprobs - sum of probs * dprobs).
template <class P, class T>
Q35_DEVICE void softmax_bwd(const T *dprobs, const T *probs, T *dlogits) {
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::rows) return;
  float dot = 0, d[P::vector], p[P::vector];
  for_lane_vectors<P>([&](int column) {
    load(d, dprobs + row * P::dprobsStride + column);
    load(p, probs + row * P::probsStride + column);
#pragma unroll
    for (int e = 0; e < P::vector; ++e) dot += d[e] * p[e];
  });
  dot = warp_sum(dot);
  for_lane_vectors<P>([&](int column) {
    load(d, dprobs + row * P::dprobsStride + column);
    load(p, probs + row * P::probsStride + column);
#pragma unroll
    for (int e = 0; e < P::vector; ++e) d[e] = p[e] * (d[e] - dot);
    store(dlogits + row * P::dlogitsStride + column, d);
  });
}

// What input `Number` of concat is, as the plan prints it: [outer, rows, columns] with outerStride and rowStride, rowVectors
// of a row, vectors in all, which go to y from element `start` on.
template <int Number>
struct ConcatPart;

// From where to where vector `vector` goes; the vectors of all inputs are numbered one after another.
template <int Number, class P, class T>
Q35_DEVICE bool concat_place(uint, const T *&, T *&, T *, T *) {
  return false;
}

template <int Number, class P, class T, class... Others>
Q35_DEVICE bool concat_place(uint vector, const T *&from, T *&to, T *y, const T *x, Others... others) {
  using Part = ConcatPart<Number>;
  if (vector >= uint(Part::vectors))
    return concat_place<Number + 1, P>(vector - uint(Part::vectors), from, to, y, others...);
  uint line = vector / uint(Part::rowVectors), column = vector % uint(Part::rowVectors) * uint(P::vector);
  int64 outer = line / uint(Part::rows), row = line % uint(Part::rows);
  from = x + outer * Part::outerStride + row * Part::rowStride + column;
  to = y + Part::start + outer * P::outerStride + row * P::rowStride + column;
  return true;
}

template <class T>
Q35_DEVICE T *last_of(T *y) {
  return y;
}

template <class T, class... Others>
Q35_DEVICE auto last_of(const T *, Others... others) {
  return last_of(others...);
}

// Inputs, then y = the inputs one after another along an axis. P holds vector and the strides of y.
template <class P, class T, class... Others>
Q35_DEVICE void concat(const T *x, Others... others) {
  using Vector = Vec<T, P::vector>;
  constexpr int unroll = 2;
  T *y = last_of(others...), *to[unroll];
  const T *from[unroll];
  bool valid[unroll];
  Vector value[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    uint vector = blockIdx.x * (blockDim.x * unroll) + threadIdx.x + u * blockDim.x;
    valid[u] = concat_place<0, P>(vector, from[u], to[u], y, x, others...);
    if (valid[u]) value[u] = *reinterpret_cast<const Vector *>(from[u]);
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u)
    if (valid[u]) *reinterpret_cast<Vector *>(to[u]) = value[u];
}

} // namespace q35
