#pragma once
#include "q35/gdn.cuh"

// gdn_prep: a block of 128 threads takes one chunk of one key head and all its value heads, two of them at a time.
//
// The inverse of I + A (KERNELS.md 1.3): four diagonal blocks of 16 by substitution, a thread per column; then blocks
// are merged, [X 0; C Y]^-1 = [X^-1 0; -Y^-1 C X^-1, Y^-1]. A is never formed: A_ij = beta_i G_ij, and the Gram matrix
// G is that of all value heads, and symmetric, so that a column of it is read as a row.

namespace q35 {

// y = x / |x| of the rows of a chunk, to global memory and, if `tile` is given, there.
template <class P, class T, class Tile>
Q35_DEVICE void normalize_rows(const T *x, int64 xToken, T *y, int64 yToken, float *factors, int rows, Tile tile,
                               bool toTile) {
  constexpr int units = P::keyDim / kVec<T>, lanes = kRowLanes<units>, atOnce = 128 / lanes, passes = kChunk / atOnce;
  constexpr int inFlight = passes < 4 ? passes : 4;
  static_assert(lanes <= 32);
  int unit = int(threadIdx.x % lanes), row = int(threadIdx.x / lanes);
  x += unit * kVec<T>;
  y += unit * kVec<T>;
#pragma unroll 1
  for (int p = 0; p < passes; p += inFlight, row += inFlight * atOnce) {
    Vec<T, kVec<T>> raw[inFlight];
#pragma unroll
    for (int i = 0; i < inFlight; ++i)
      if (row + i * atOnce < rows && unit < units)
        raw[i] = *reinterpret_cast<const Vec<T, kVec<T>> *>(x + (row + i * atOnce) * xToken);
#pragma unroll
    for (int i = 0; i < inFlight; ++i) {
      int r = row + i * atOnce;
      bool real = r < rows && unit < units;
      float value[kVec<T>], squares = 0;
#pragma unroll
      for (int e = 0; e < kVec<T>; ++e) {
        value[e] = real ? to_float(raw[i].v[e]) : 0.0f;
        squares = fmaf(value[e], value[e], squares);
      }
      float factor = rsqrtf(warp_sum<lanes>(squares) + P::eps);
#pragma unroll
      for (int e = 0; e < kVec<T>; ++e) value[e] *= factor;
      if (real) store(y + r * yToken, value);
      if (r < rows && unit == 0) factors[r * P::keyHeads] = factor;
      if (toTile && unit < units) store(tile.at(r, unit * kVec<T>), value);
    }
  }
}

// to[row, column] block of 16 = -Y C X, with C_ij = beta_i G_ij: `y` and `x` say where Y and X lie in `inverse` (and
// to, whose rows are those of Y and whose columns are those of X), `blocks` of 16 is their size, `part` the block of
// rows of Y that this warp takes.
template <class T, class M, int Blocks>
Q35_DEVICE void merge(float *inverse, const float *gram, const float *beta, int y, int x, int part) {
  constexpr int pitch = kChunk + 4;
  auto solved = [&](int r, int c) { return inverse[r * pitch + c]; };
  auto coupling = [&](int r, int c) { return beta[r] * gram[r * pitch + c]; };
  Acc left[Blocks]; // Y C
  clear(left);
#pragma unroll kUnrollBlocks<T>
  for (int k = 0; k < Blocks; ++k) {
    if (k > part) continue; // Y is lower triangular
    Left<M> a;
    load_left(a, y + part * 16, y + k * 16, solved);
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < Blocks; ++n) {
      Right<M> b;
      load_right(b, y + k * 16, x + n * 16, coupling);
      multiply(left[n], a, b);
    }
  }
#pragma unroll kUnrollBlocks<T>
  for (int n = 0; n < Blocks; ++n) {
    Acc product;
    clear(product);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < Blocks; ++k) {
      if (k < n) continue; // and so is X
      Right<M> b;
      load_right(b, x + k * 16, x + n * 16, solved);
      multiply(product, to_left<M>(left[k]), b);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        float pair[2] = {-product.c[j][i], -product.c[j][i + 1]};
        store(inverse + (y + part * 16 + block_row(i)) * pitch + x + n * 16 + block_column(j), pair);
      }
  }
}

template <class P, class T>
Q35_DEVICE void gdn_prep(const T *q, const T *k, const float *g, const float *beta, const int *seq, T *qn, T *kn,
                         float *qr, float *kr, float *gamma, T *tinv) {
  // Merges: 10 bits of mantissa are enough where the result is rounded to 8.
  using M = typename PickType<sizeof(T) == 4, float, tf32>::type;
  constexpr int dk = P::keyDim, group = P::valueHeads / P::keyHeads, pitch = kChunk + 4;
  using KeyTile = Tile<T, kChunk, dk>;
  constexpr int matrix = kChunk * pitch * 4, first = KeyTile::kBytes > matrix ? KeyTile::kBytes : matrix;
  static_assert(first + 2 * matrix + 2 * group * kChunk * 4 == P::sharedBytes);
  int index = int(blockIdx.x) / int(P::keyHeads), keyHead = int(blockIdx.x) % int(P::keyHeads);
  if (index >= seq[1]) return;
  Chunk chunk = chunk_of<P>(seq, index);
  int64 token = chunk.first;
  int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32, head = keyHead * group;

  // The first value head's inverse lies where K was.
  unsigned char *at = shared_memory();
  KeyTile keys = {reinterpret_cast<T *>(at)};
  float *gram = reinterpret_cast<float *>(at + first + matrix);
  float *gammas = gram + matrix / 4, *betas = gammas + group * kChunk;

  // (E1)
  normalize_rows<P>(k + token * P::keyToken + keyHead * P::keyHead, P::keyToken,
                    kn + token * P::keyOutToken + keyHead * P::keyOutHead, P::keyOutToken,
                    kr + token * P::keyHeads + keyHead, chunk.rows, keys, true);
  normalize_rows<P>(q + token * P::queryToken + keyHead * P::queryHead, P::queryToken,
                    qn + token * P::queryOutToken + keyHead * P::queryOutHead, P::queryOutToken,
                    qr + token * P::keyHeads + keyHead, chunk.rows, keys, false);

  // (E2): two rows a lane; rows past the last add 0. In double, rounded once: what counts are differences of sums of
  // thousands, and partial sums that a scan rounds each in its own way would leave less of them than one running sum
  // does. That a sum never exceeds those before it survives the rounding.
  for (int member = warp; member < group; member += 4) {
    float strength[2];
    double own[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int64 row = token + lane * 2 + i;
      bool real = lane * 2 + i < chunk.rows;
      float decays = real ? g[row * P::decayToken + head + member] : 0.0f;
      own[i] = decays < kNothing ? kNothing : decays; // NaN stays
      strength[i] = real ? beta[row * P::gateToken + head + member] : 0.0f;
    }
    double total = own[0] + own[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      double before = __shfl_up_sync(0xffffffffu, total, step);
      if (lane >= step) total += before;
    }
    // Not total - own[1], which loses the sum above where it is small beside own[1].
    double above = __shfl_up_sync(0xffffffffu, total, 1);
    float sums[2] = {float((lane > 0 ? above : 0.0) + own[0]), float(total)};
    store(gamma + (int64(index) * P::valueHeads + head + member) * kChunk + lane * 2, sums);
    store(gammas + member * kChunk + lane * 2, sums);
    store(betas + member * kChunk + lane * 2, strength);
  }
  __syncthreads();

  // G, lower blocks; those on the diagonal whole.
  {
    Acc products[4];
    clear(products);
#pragma unroll kUnrollBlocks<T>
    for (int b = 0; b < dk / 16; ++b) {
      Left<T> a;
      load_left(a, keys, warp * 16, b * 16);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        if (n > warp) continue;
        Right<T> right;
        load_right_transposed(right, keys, n * 16, b * 16);
        multiply(products[n], a, right);
      }
    }
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) {
      if (n > warp) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          float pair[2] = {products[n].c[j][i], products[n].c[j][i + 1]};
          store(gram + (warp * 16 + block_row(i)) * pitch + n * 16 + block_column(j), pair);
        }
    }
  }
  __syncthreads();

  int half = thread / 64, column = thread % 64;
  for (int pair = 0; pair < group; pair += 2) {
    int member = pair + half;
    bool active = member < group;
    float *inverse = reinterpret_cast<float *>(at + half * first);
    const float *strength = betas + member * kChunk, *sums = gammas + member * kChunk;
    if (active) {
      // Column `column` of its diagonal block: x_m = [m = own] - beta_m sum_l G_ml x_l.
      int corner = column / 16 * 16, own = column % 16;
      float x[16], sum[16];
#pragma unroll
      for (int m = 0; m < 16; ++m) sum[m] = 0;
#pragma unroll
      for (int m = 0; m < 16; ++m) {
        x[m] = m == own ? 1.0f : -strength[corner + m] * sum[m];
        inverse[(corner + m) * pitch + column] = x[m];
        float row[16];
#pragma unroll
        for (int r = (m + 1) / 4 * 4; r < 16; r += 4) {
          float four[4];
          load(four, gram + (corner + m) * pitch + corner + r);
#pragma unroll
          for (int i = 0; i < 4; ++i) row[r + i] = four[i];
        }
#pragma unroll
        for (int r = m + 1; r < 16; ++r) sum[r] = fmaf(row[r], x[m], sum[r]);
      }
    }
    __syncthreads();
    if (active) merge<T, M, 1>(inverse, gram, strength, warp % 2 * 32 + 16, warp % 2 * 32, 0);
    __syncthreads();
    if (active) merge<T, M, 2>(inverse, gram, strength, 32, 0, warp % 2);
    __syncthreads();

    // (E4)
    if (active) {
      T *to = tinv + (int64(index) * P::valueHeads + head + member) * (kChunk * kChunk);
      constexpr int units = kChunk / kVec<T>;
#pragma unroll 4
      for (int i = 0; i < units; ++i) {
        int unit = i * 64 + column, r = unit / units, c = unit % units * kVec<T>;
        float value[kVec<T>];
#pragma unroll
        for (int e = 0; e < kVec<T>; ++e) value[e] = 0;
        if (c <= r && r < chunk.rows) {
          float own = sums[r];
#pragma unroll
          for (int e = 0; e < kVec<T>; e += 4) {
            float x[4], other[4];
            load(x, inverse + r * pitch + c + e);
            load(other, sums + c + e);
#pragma unroll
            for (int f = 0; f < 4; ++f) {
              bool below = c + e + f <= r;
              float factor = decay<T>(below ? own - other[f] : 0.0f);
              value[e + f] = below ? x[f] * factor : 0.0f;
            }
          }
        }
        store(to + r * kChunk + c, value);
      }
    }
    __syncthreads();
  }
}

} // namespace q35
