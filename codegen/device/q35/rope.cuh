#pragma once
// Rotary positions: the table of angles, rope, and the group of a head norm and the rotation that reads it. MODEL.md 3.2, 3.3.
#include "q35/norm.cuh"
#include "q35/stripes.cuh"

namespace q35 {

// Sine and cosine of |x| up to 2^31, within 2 ulp of double.
Q35_DEVICE void sin_cos(double x, double &sine, double &cosine) {
  double n = rint(x * 0x1.45f306dc9c883p-1);
  int quadrant = int(n);
  // pi/2 in three parts; the first two have 20 and more zero bits at their end, so their products with n are exact.
  double r = fma(n, -0x1.921fb54400000p0, x);
  r = fma(n, -0x1.0b4611a600000p-34, r);
  r = fma(n, -0x1.3198a2e037073p-69, r);
  double z = r * r;
  double s = 1.58962301576546568060e-10;
  s = fma(s, z, -2.50507477628578072866e-8);
  s = fma(s, z, 2.75573136213857245213e-6);
  s = fma(s, z, -1.98412698295895385996e-4);
  s = fma(s, z, 8.33333333332211858878e-3);
  s = fma(s, z, -1.66666666666666307295e-1);
  s = fma(s * z, r, r);
  double c = -1.13585365213876817300e-11;
  c = fma(c, z, 2.08757008419747316778e-9);
  c = fma(c, z, -2.75573141792967388112e-7);
  c = fma(c, z, 2.48015872888517045348e-5);
  c = fma(c, z, -1.38888888888730564116e-3);
  c = fma(c, z, 4.16666666666665929218e-2);
  c = fma(c, z * z, fma(z, -0.5, 1.0));
  sine = quadrant & 1 ? c : s;
  cosine = quadrant & 1 ? s : c;
  if (quadrant & 2) sine = -sine;
  if (quadrant + 1 & 2) cosine = -cosine;
}

// (cos, sin) of (t - first token of the document) * theta^(-j / pairs). Constants: tokens, pairs, docStart (word of the
// document table), logTheta (double, base 2). before(begin) is what the document has before a segment.
template <class P, class Before>
Q35_DEVICE void angles_of_tokens(const int *seq, float *table, const Before &before) {
  int64 at = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= P::tokens * P::pairs) return;
  int token = int(at / P::pairs), pair = int(at % P::pairs);
  double frequency = exp2(P::logTheta * -double(pair) / double(P::pairs)), sine, cosine;
  int begin = seq[P::docStart + token];
  sin_cos(double(token - begin + before(begin)) * frequency, sine, cosine);
  float both[2] = {float(cosine), float(sine)};
  store(table + 2 * at, both);
}

template <class P>
Q35_DEVICE void rope_table(const int *seq, float *table) {
  angles_of_tokens<P>(seq, table, [](int) { return 0; });
}

// Constants: also those of Stripes.
template <class P>
Q35_DEVICE void cp_rope_table(const int *seq, const int *stripes, float *table) {
  angles_of_tokens<P>(seq, table, [&](int begin) { return Stripes<P>{stripes}.before(begin); });
}

// Pairs (j, j + half) of the first dims of each head turned by the angles of the table, or back; the other dims are
// copied. With Norm they are those of x * rstd * (offset + w). Constants: those of the norm of rows, which are the heads
// of tokens; heads, half, inverse.
//
// The dims of a head lie in the registers of its lanes, a partner half / width lanes away in the same warp.
template <class P, bool Norm, class T>
Q35_DEVICE void rotate_rows(const T *x, const float *w, const float *table, T *y, float *rstd) {
  constexpr int kWidth = P::width, kUnroll = P::unroll, kHalf = P::half, kApart = kHalf / kWidth;
  static_assert(P::vectors == 1 && kHalf % kWidth == 0 && 2 * kApart <= 32 && 2 * kApart <= P::lanes);
  using Part = RowPart<P, T>;
  const RowThread<P> me;
  RowSum<P> row_sum;
  float scale[kWidth];
  if constexpr (Norm) {
    load_columns<P>(scale, w, me, 0);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) scale[i] += P::offset;
  }
  bool isFirst = me.lane < kApart, turns = me.lane < 2 * kApart;
  int partner = int(threadIdx.x) % 32 + (!turns ? 0 : isFirst ? kApart : -kApart);
  int angle = 2 * kWidth * (isFirst ? me.lane : me.lane - kApart); // first of this lane in the row of a token
  float sign = isFirst != bool(P::inverse) ? -1.0f : 1.0f;

  struct Rows {
    Part x[kUnroll];
  };
  auto fetch = [&](Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      rows.x[u].load(x + row_start<P::inner, P::xOuter, P::xRow>(row), me, me.has_row(row));
    }
  };
  auto work = [&](const Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      float value[kWidth], angles[2 * kWidth];
      if (turns && exists) {
        const float *from = table + int64(uint(row) / uint(P::heads)) * (2 * kHalf) + angle;
        load(angles, from);
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          angles[2 * i] = 1;
          angles[2 * i + 1] = 0;
        }
      }
      rows.x[u].get(value, 0);
      if constexpr (Norm) {
        float squares = 0;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) squares = fmaf(value[i], value[i], squares);
        float r = rsqrtf(row_sum(squares) * (1.0f / P::columns) + P::eps);
        if (exists && me.lane == 0) rstd[row] = r;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) value[i] = value[i] * r * scale[i];
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        float other = __shfl_sync(0xffffffffu, value[i], partner);
        // Not a product with zero: the partner of a dim that is copied is none of its business.
        if (turns) value[i] = fmaf(sign * angles[2 * i + 1], other, value[i] * angles[2 * i]);
      }
      if (exists && me.has_column(0))
        store(y + row_start<P::inner, P::yOuter, P::yRow>(row) + me.column(0), value);
    }
  };
  for_tiles<P, Rows>(fetch, work);
}

template <class P, class T>
Q35_DEVICE void rope(const T *x, const float *table, T *y) {
  rotate_rows<P, false>(x, static_cast<const float *>(nullptr), table, y, static_cast<float *>(nullptr));
}

template <class P, class T>
Q35_DEVICE void rms_norm_rope(const T *x, const float *w, const float *table, T *y, float *rstd) {
  rotate_rows<P, true>(x, w, table, y, rstd);
}

// The same for any sizes, one warp per head. Constants: rows, columns, heads, half, inverse, those of row_start, eps,
// offset.
template <class P, bool Norm, class T>
Q35_DEVICE void rotate_any(const T *x, const float *w, const float *table, T *y, float *rstd) {
  constexpr int kHalf = P::half, kColumns = P::columns;
  int lane = int(threadIdx.x) % 32;
  int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= P::rows) return;
  const T *from = x + row_start<P::inner, P::xOuter, P::xRow>(int(row));
  T *to = y + row_start<P::inner, P::yOuter, P::yRow>(int(row));
  const float *angles = table + row / P::heads * (2 * kHalf);
  float r = 1;
  if constexpr (Norm) {
    float squares = 0;
    for (int i = lane; i < kColumns; i += 32) {
      float value = to_float(from[i]);
      squares = fmaf(value, value, squares);
    }
    r = rsqrtf(warp_sum(squares) * (1.0f / kColumns) + P::eps);
    if (lane == 0) rstd[row] = r;
  }
  auto value = [&](int i) {
    float result = to_float(from[i]);
    if constexpr (Norm) result = result * r * (P::offset + w[i]);
    return result;
  };
  for (int j = lane; j < kHalf; j += 32) {
    float a = value(j), b = value(j + kHalf);
    float cosine = angles[2 * j], sine = P::inverse ? -angles[2 * j + 1] : angles[2 * j + 1];
    to[j] = from_float<T>(a * cosine - b * sine);
    to[j + kHalf] = from_float<T>(b * cosine + a * sine);
  }
  for (int i = 2 * kHalf + lane; i < kColumns; i += 32) to[i] = from_float<T>(value(i));
}

template <class P, class T>
Q35_DEVICE void rope_any(const T *x, const float *table, T *y) {
  rotate_any<P, false>(x, static_cast<const float *>(nullptr), table, y, static_cast<float *>(nullptr));
}

template <class P, class T>
Q35_DEVICE void rms_norm_rope_any(const T *x, const float *w, const float *table, T *y, float *rstd) {
  rotate_any<P, true>(x, w, table, y, rstd);
}

} // namespace q35
