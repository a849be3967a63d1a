#pragma once
// rms_norm, gated_rms_norm and their gradients; MODEL.md 2.2, 2.3, 13.1, 13.2. Constants: those of q35/rows.cuh,
// inner, <operand>Outer and <operand>Row of row_start, prefetch (the next rows are loaded while these are worked on),
// keepWeight (in registers; otherwise every row finds it in the first-level cache), eps, offset.
#include "q35/rows.cuh"

namespace q35 {

template <class P>
Q35_DEVICE void sum_columns(const unsigned char *workspace, float *dw) {
  sum_partials<P>(reinterpret_cast<const float *>(workspace), [&](int column, float sum) { dw[column] = sum; });
}

// The weight as it scales: offset + w.
template <class P>
struct NormWeight {
  static constexpr int kVectors = P::vectors, kWidth = P::width;
  const float *w;
  float kept[P::keepWeight ? kVectors : 1][kWidth];

  Q35_DEVICE NormWeight(const float *w, const RowThread<P> &me) : w(w) {
    if constexpr (P::keepWeight) {
#pragma unroll
      for (int n = 0; n < kVectors; ++n) read(kept[n], me, n);
    }
  }
  Q35_DEVICE void get(float (&to)[kWidth], const RowThread<P> &me, int n) const {
    if constexpr (P::keepWeight) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) to[i] = kept[n][i];
    } else {
      read(to, me, n);
    }
  }

private:
  Q35_DEVICE void read(float (&to)[kWidth], const RowThread<P> &me, int n) const {
    load_columns<P>(to, w, me, n);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] += P::offset;
  }
};

// y = x * rstd * (offset + w), where with Adds x = a + b, rounded, is a result as well.
template <class P, bool Adds, class T>
Q35_DEVICE void norm_rows(const T *a, const T *b, const float *w, T *x, T *y, float *rstd) {
  constexpr int kVectors = P::vectors, kWidth = P::width, kUnroll = P::unroll;
  using Part = RowPart<P, T>;
  const RowThread<P> me;
  const NormWeight<P> weight(w, me);
  RowSum<P> row_sum;

  struct Rows {
    Part a[kUnroll], b[Adds ? kUnroll : 1];
  };
  auto fetch = [&](Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      if constexpr (Adds) {
        rows.a[u].load(a + row_start<P::inner, P::aOuter, P::aRow>(row), me, exists);
        rows.b[u].load(b + row_start<P::inner, P::bOuter, P::bRow>(row), me, exists);
      } else {
        rows.a[u].load(a + row_start<P::inner, P::xOuter, P::xRow>(row), me, exists);
      }
    }
  };
  auto work = [&](const Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      float value[kVectors][kWidth], squares = 0;
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        rows.a[u].get(value[n], n);
        if constexpr (Adds) {
          float other[kWidth];
          rows.b[u].get(other, n);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) value[n][i] = to_float(from_float<T>(value[n][i] + other[i]));
          if (exists && me.has_column(n))
            store(x + row_start<P::inner, P::xOuter, P::xRow>(row) + me.column(n), value[n]);
        }
#pragma unroll
        for (int i = 0; i < kWidth; ++i) squares = fmaf(value[n][i], value[n][i], squares);
      }
      float r = rsqrtf(row_sum(squares) * (1.0f / P::columns) + P::eps);
      if (!exists) continue;
      if (me.lane == 0) rstd[row] = r;
      T *to = y + row_start<P::inner, P::yOuter, P::yRow>(row);
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        if (!me.has_column(n)) continue;
        float scale[kWidth];
        weight.get(scale, me, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) value[n][i] = value[n][i] * r * scale[i];
        store(to + me.column(n), value[n]);
      }
    }
  };
  for_tiles<P, Rows>(fetch, work);
}

template <class P, class T>
Q35_DEVICE void rms_norm(const T *x, const float *w, T *y, float *rstd) {
  norm_rows<P, false>(x, x, w, y, y, rstd);
}

template <class P, class T>
Q35_DEVICE void add_rms_norm(const T *a, const T *b, const float *w, T *x, T *y, float *rstd) {
  norm_rows<P, true>(a, b, w, x, y, rstd);
}

// n = x * rstd, u = dy * (offset + w): dx = rstd * (u - n * mean(u * n)), plus an addend with Adds; partials of
// dw = sum of dy * n.
template <class P, bool Adds, class T>
Q35_DEVICE void norm_rows_bwd(const T *dy, const T *x, const float *w, const float *rstd, const T *addend, T *dx,
                              float *partials) {
  constexpr int kVectors = P::vectors, kWidth = P::width, kUnroll = P::unroll;
  using Part = RowPart<P, T>;
  const RowThread<P> me;
  const NormWeight<P> weight(w, me);
  RowSum<P> row_sum;
  float dw[kVectors][kWidth] = {};

  // With the rest of a row, if registers allow.
  constexpr bool kAddsEarly = Adds && kVectors == 1;
  struct Rows {
    Part dy[kUnroll], x[kUnroll], addend[kAddsEarly ? kUnroll : 1];
    float r[kUnroll];
  };
  auto fetch = [&](Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      rows.r[u] = exists ? rstd[row] : 0;
      rows.dy[u].load(dy + row_start<P::inner, P::dyOuter, P::dyRow>(row), me, exists);
      rows.x[u].load(x + row_start<P::inner, P::xOuter, P::xRow>(row), me, exists);
      if constexpr (kAddsEarly)
        rows.addend[u].load(addend + row_start<P::inner, P::addendOuter, P::addendRow>(row), me, exists);
    }
  };
  auto work = [&](const Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      float r = rows.r[u], dot = 0, scaled[kVectors][kWidth];
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        float slope[kWidth], normed[kWidth], scale[kWidth];
        rows.dy[u].get(slope, n);
        rows.x[u].get(normed, n);
        weight.get(scale, me, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          float product = slope[i] * (normed[i] * r);
          dw[n][i] += product;
          dot = fmaf(product, scale[i], dot);
          scaled[n][i] = slope[i] * scale[i];
        }
      }
      float along = r * (row_sum(dot) * (1.0f / P::columns));
      if (!me.has_row(row)) continue;
      T *to = dx + row_start<P::inner, P::dxOuter, P::dxRow>(row);
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        if (!me.has_column(n)) continue;
        float normed[kWidth];
        rows.x[u].get(normed, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) scaled[n][i] = r * (scaled[n][i] - normed[i] * along);
        if constexpr (Adds) {
          float other[kWidth];
          if constexpr (kAddsEarly)
            rows.addend[u].get(other, n);
          else
            load(other, addend + row_start<P::inner, P::addendOuter, P::addendRow>(row) + me.column(n));
#pragma unroll
          for (int i = 0; i < kWidth; ++i) scaled[n][i] += other[i];
        }
        store(to + me.column(n), scaled[n]);
      }
    }
  };
  for_tiles<P, Rows>(fetch, work);
  write_partials<P>(dw, me, partials);
}

template <class P, class T>
Q35_DEVICE void rms_norm_bwd(const T *dy, const T *x, const float *w, const float *rstd, T *dx, float *,
                             unsigned char *workspace) {
  norm_rows_bwd<P, false>(dy, x, w, rstd, x, dx, reinterpret_cast<float *>(workspace));
}

template <class P, class T>
Q35_DEVICE void rms_norm_bwd_sum(const T *, const T *, const float *, const float *, T *, float *dw,
                                 const unsigned char *workspace) {
  sum_columns<P>(workspace, dw);
}

template <class P, class T>
Q35_DEVICE void rms_norm_bwd_add(const T *dy, const T *x, const float *w, const float *rstd, const T *addend, T *dx,
                                 float *, unsigned char *workspace) {
  norm_rows_bwd<P, true>(dy, x, w, rstd, addend, dx, reinterpret_cast<float *>(workspace));
}

template <class P, class T>
Q35_DEVICE void rms_norm_bwd_add_sum(const T *, const T *, const float *, const float *, const T *, T *, float *dw,
                                     const unsigned char *workspace) {
  sum_columns<P>(workspace, dw);
}

// y = w * o * rstd * silu(z)
template <class P, class T>
Q35_DEVICE void gated_rms_norm(const T *o, const T *z, const float *w, T *y, float *rstd) {
  constexpr int kVectors = P::vectors, kWidth = P::width, kUnroll = P::unroll;
  using Part = RowPart<P, T>;
  const RowThread<P> me;
  const NormWeight<P> weight(w, me);
  RowSum<P> row_sum;

  struct Rows {
    Part o[kUnroll], z[kUnroll];
  };
  auto fetch = [&](Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      rows.o[u].load(o + row_start<P::inner, P::oOuter, P::oRow>(row), me, exists);
      rows.z[u].load(z + row_start<P::inner, P::zOuter, P::zRow>(row), me, exists);
    }
  };
  auto work = [&](const Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      float value[kVectors][kWidth], squares = 0;
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        rows.o[u].get(value[n], n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) squares = fmaf(value[n][i], value[n][i], squares);
      }
      float r = rsqrtf(row_sum(squares) * (1.0f / P::columns) + P::eps);
      if (!me.has_row(row)) continue;
      if (me.lane == 0) rstd[row] = r;
      T *to = y + row_start<P::inner, P::yOuter, P::yRow>(row);
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        if (!me.has_column(n)) continue;
        float gate[kWidth], scale[kWidth];
        rows.z[u].get(gate, n);
        weight.get(scale, me, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          value[n][i] = value[n][i] * r * scale[i] * (gate[i] * fast_sigmoid(gate[i]));
        store(to + me.column(n), value[n]);
      }
    }
  };
  for_tiles<P, Rows>(fetch, work);
}

// n = o * rstd, s = silu(z), u = dy * w * s: do = rstd * (u - n * mean(u * n)), dz = dy * n * w * silu'(z), partials of
// dw = sum of dy * n * s.
template <class P, class T>
Q35_DEVICE void gated_rms_norm_bwd(const T *dy, const T *o, const T *z, const float *w, const float *rstd, T *dO, T *dz,
                                   float *, unsigned char *workspace) {
  constexpr int kVectors = P::vectors, kWidth = P::width, kUnroll = P::unroll;
  using Part = RowPart<P, T>;
  const RowThread<P> me;
  const NormWeight<P> weight(w, me);
  RowSum<P> row_sum;
  float dw[kVectors][kWidth] = {};

  struct Rows {
    Part dy[kUnroll], o[kUnroll], z[kUnroll];
    float r[kUnroll];
  };
  auto fetch = [&](Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      rows.r[u] = exists ? rstd[row] : 0;
      rows.dy[u].load(dy + row_start<P::inner, P::dyOuter, P::dyRow>(row), me, exists);
      rows.o[u].load(o + row_start<P::inner, P::oOuter, P::oRow>(row), me, exists);
      rows.z[u].load(z + row_start<P::inner, P::zOuter, P::zRow>(row), me, exists);
    }
  };
  auto work = [&](const Rows &rows, int tile) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      int row = me.row(tile, u);
      bool exists = me.has_row(row);
      float r = rows.r[u], dot = 0, scaled[kVectors][kWidth];
      T *toGate = dz + row_start<P::inner, P::dzOuter, P::dzRow>(row);
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        float slope[kWidth], normed[kWidth], gate[kWidth], scale[kWidth], dGate[kWidth];
        rows.dy[u].get(slope, n);
        rows.o[u].get(normed, n);
        rows.z[u].get(gate, n);
        weight.get(scale, me, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          float s = fast_sigmoid(gate[i]), silu = gate[i] * s;
          float product = slope[i] * (normed[i] * r);
          dw[n][i] = fmaf(product, silu, dw[n][i]);
          product *= scale[i];
          dGate[i] = product * fmaf(silu, 1.0f - s, s);
          scaled[n][i] = slope[i] * scale[i] * silu;
          dot = fmaf(product, silu, dot);
        }
        if (exists && me.has_column(n)) store(toGate + me.column(n), dGate);
      }
      float along = r * (row_sum(dot) * (1.0f / P::columns));
      if (!exists) continue;
      T *to = dO + row_start<P::inner, P::doOuter, P::doRow>(row);
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        if (!me.has_column(n)) continue;
        float normed[kWidth];
        rows.o[u].get(normed, n);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) scaled[n][i] = r * (scaled[n][i] - normed[i] * along);
        store(to + me.column(n), scaled[n]);
      }
    }
  };
  for_tiles<P, Rows>(fetch, work);
  write_partials<P>(dw, me, reinterpret_cast<float *>(workspace));
}

template <class P, class T>
Q35_DEVICE void gated_rms_norm_bwd_sum(const T *, const T *, const T *, const float *, const float *, T *, T *,
                                       float *dw, const unsigned char *workspace) {
  sum_columns<P>(workspace, dw);
}

} // namespace q35
