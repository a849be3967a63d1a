#pragma once
#include "q35/gdn.cuh"

// gdn_local_bwd: everything that is chunk by chunk once states, their gradients, V' and Z are known. Bound by memory.
//
// A block of eight warps walks over (chunk, key head) and, inside, over the value heads of the key head, whose dqn and
// dkn it sums in registers. Warp w has rows 16 (w % 4) to + 15 and half w / 4 of the columns of every result. The tiles
// of the next value head are copied as soon as those of this one have been read (kStaged), since one block fills a
// multiprocessor. Three barriers a value head: tiles there; states read; Hq and J there.
//
// Hq and J are lower triangular: blocks above their diagonals are neither formed nor read.

namespace q35 {

template <class P, class T>
struct LocalBlock {
  static constexpr int dk = P::keyDim, dv = P::valueDim, kThreads = 256;
  static constexpr int group = P::valueHeads / P::keyHeads;
  static constexpr int kHalf = (dk / 16 + 1) / 2; // 16-column blocks of half 0
  using KeyTile = Tile<T, kChunk, dk>;
  using ValueTile = Tile<T, kChunk, dv>;
  using StateTile = Tile<T, dk, dv>;
  using SquareTile = Tile<T, kChunk, kChunk>;
  // All tiles of a value head are copied to shared memory, ahead of their use; else operands are read where they are.
  static constexpr bool kStaged = P::staged;
  static constexpr int kTiles = kStaged ? 1 : 0;
  static constexpr int kSteps = sizeof(T) == 2 ? 2 : 1; // of a product to unroll: more hoists too many addresses
  static constexpr int kKeySets = kStaged ? 2 : 1;
  static constexpr int kFactors = 4 * kChunk;                // gamma, eta, rho, beta
  static constexpr int kSums = (6 * 2 + 4 + 1) * kChunk + 8; // see Sums
  static constexpr int kBytes = kKeySets * 2 * KeyTile::kBytes + kTiles * 2 * StateTile::kBytes +
                                kTiles * 4 * ValueTile::kBytes + 2 * SquareTile::kBytes + 4 * (2 * kFactors + kSums);

  // Which value head comes when.
  struct Work {
    int item, member; // item: (chunk, key head)
  };
  Q35_DEVICE static Work after(Work w) {
    if (w.member + 1 < group) return {w.item, w.member + 1};
    return {w.item + int(gridDim.x), 0};
  }

  const T *qn, *kn, *v, *dO, *states, *dstates, *vnew, *z;
  const float *qr, *kr, *beta, *gamma;
  const int *seq;
  T *dq, *dk_, *dv_;
  float *dg, *dbeta;
  int items;

  Q35_DEVICE bool exists(Work w) const { return w.item < items; }
  Q35_DEVICE Chunk chunk(Work w) const { return chunk_of<P>(seq, w.item / int(P::keyHeads)); }
  Q35_DEVICE static int key_head(Work w) { return w.item % int(P::keyHeads); }
  Q35_DEVICE static int head(Work w) { return key_head(w) * group + w.member; }
  Q35_DEVICE static int64 tile(Work w) { return int64(w.item / int(P::keyHeads)) * P::valueHeads + head(w); }

  // Shared memory.
  Q35_DEVICE static KeyTile queries(int set) {
    return {reinterpret_cast<T *>(shared_memory() + set * 2 * KeyTile::kBytes)};
  }
  Q35_DEVICE static KeyTile keys(int set) {
    return {reinterpret_cast<T *>(shared_memory() + (set * 2 + 1) * KeyTile::kBytes)};
  }
  static constexpr int kStates = kKeySets * 2 * KeyTile::kBytes;
  static constexpr int kValues = kStates + kTiles * 2 * StateTile::kBytes;
  static constexpr int kSquares = kValues + kTiles * 4 * ValueTile::kBytes;
  static constexpr int kVectors = kSquares + 2 * SquareTile::kBytes;
  Q35_DEVICE static StateTile state_tile(int i) {
    return {reinterpret_cast<T *>(shared_memory() + kStates + i * StateTile::kBytes)};
  }
  Q35_DEVICE static ValueTile value_tile(int i) { // dO, Z, V', V
    return {reinterpret_cast<T *>(shared_memory() + kValues + i * ValueTile::kBytes)};
  }
  Q35_DEVICE static SquareTile square(int i) { // Hq, J
    return {reinterpret_cast<T *>(shared_memory() + kSquares + i * SquareTile::kBytes)};
  }
  Q35_DEVICE static float *factors(int set) {
    return reinterpret_cast<float *>(shared_memory() + kVectors) + set * kFactors;
  }
  // Sums over rows, by the half that has them: <X,Q>, <Y,K>, <Z S^T,K>, row sums of N and of H . K K^T, <dqn,qn> (and
  // <dkn,kn> in the place of <X,Q>); then sums over columns of N by the rows that have them, <Z,V>, and S . D+ by warp.
  enum Sums { kXQ = 0, kYK = 2, kKappa = 4, kRowsN = 6, kRowsH = 8, kAlong = 10, kColumnsN = 12, kZV = 16, kSD = 17 };
  Q35_DEVICE static float *sums(int which) {
    return reinterpret_cast<float *>(shared_memory() + kVectors) + 2 * kFactors + which * kChunk;
  }

  Q35_DEVICE void load_keys(Work w, int set) const {
    Chunk c = chunk(w);
    int64 first = c.first;
    int thread = int(threadIdx.x);
    copy_async<kThreads>(queries(set), qn + first * P::queryToken + key_head(w) * P::queryHead, P::queryToken, c.rows,
                         thread);
    copy_async<kThreads>(keys(set), kn + first * P::keyToken + key_head(w) * P::keyHead, P::keyToken, c.rows, thread);
  }
  Q35_DEVICE void load_states(Work w) const {
    copy_async<kThreads>(state_tile(0), states + tile(w) * (dk * dv), dv, int(threadIdx.x));
    copy_async<kThreads>(state_tile(1), dstates + tile(w) * (dk * dv), dv, int(threadIdx.x));
  }
  Q35_DEVICE void load_values(Work w) const {
    Chunk c = chunk(w);
    int thread = int(threadIdx.x);
    copy_async<kThreads>(value_tile(0), dO + int64(c.first) * P::outToken + head(w) * P::outHead, P::outToken, c.rows,
                         thread);
    copy_async<kThreads>(value_tile(1), z + tile(w) * (kChunk * dv), dv, thread);
    copy_async<kThreads>(value_tile(2), vnew + tile(w) * (kChunk * dv), dv, thread);
    copy_async<kThreads>(value_tile(3), v + int64(c.first) * P::valueToken + head(w) * P::valueHead, P::valueToken,
                         c.rows, thread);
  }

  // The same tiles where they are.
  Q35_DEVICE GlobalMatrix<T> state_in_place(Work w, int i) const {
    return {(i == 0 ? states : dstates) + tile(w) * (dk * dv), dv, dk};
  }
  Q35_DEVICE GlobalMatrix<T> value_in_place(Work w, int i) const {
    Chunk c = chunk(w);
    if (i == 0) return {dO + int64(c.first) * P::outToken + head(w) * P::outHead, P::outToken, c.rows};
    if (i == 3) return {v + int64(c.first) * P::valueToken + head(w) * P::valueHead, P::valueToken, c.rows};
    return {(i == 1 ? z : vnew) + tile(w) * (kChunk * dv), dv, kChunk};
  }
  Q35_DEVICE auto state_matrix(Work w, int i) const {
    if constexpr (kStaged)
      return state_tile(i);
    else
      return state_in_place(w, i);
  }
  Q35_DEVICE auto value_matrix(Work w, int i) const {
    if constexpr (kStaged)
      return value_tile(i);
    else
      return value_in_place(w, i);
  }
  // 16 bytes of a row.
  template <class Matrix>
  Q35_DEVICE static void load_unit(float (&to)[kVec<T>], const Matrix &from, int r, int c) {
    if constexpr (kStaged) {
      q35::load(to, from.at(r, c));
    } else {
#pragma unroll
      for (int i = 0; i < kVec<T>; ++i) to[i] = 0;
      if (r < from.rows) q35::load(to, from.base + r * from.stride + c);
    }
  }

  // gamma and beta of a row, by threads 0 to 63.
  float gammaHere, gammaLast, betaHere;
  Q35_DEVICE void fetch_factors(Work w) {
    int row = int(threadIdx.x);
    if (row >= kChunk) return;
    Chunk c = chunk(w);
    gammaHere = gamma[tile(w) * kChunk + row];
    gammaLast = gamma[tile(w) * kChunk + kChunk - 1];
    betaHere = row < c.rows ? beta[int64(c.first + row) * P::gateToken + head(w)] : 0.0f;
  }
  Q35_DEVICE void publish_factors(int set, int rows) const {
    int row = int(threadIdx.x);
    if (row >= kChunk) return;
    float *to = factors(set);
    to[row] = gammaHere;
    to[kChunk + row] = row < rows ? decay<T>(gammaHere) : 0.0f;
    to[2 * kChunk + row] = row < rows ? decay<T>(gammaLast - gammaHere) : 0.0f;
    to[3 * kChunk + row] = betaHere;
  }

  // This thread's place.
  int row, half, firstBlock; // of 16 columns of dk
  Q35_DEVICE bool has(int b) const { return kHalf * 2 * 16 == dk || firstBlock + b < dk / 16; }

  Acc dQueries[kHalf], dKeys[kHalf];
  Acc queryGram[2], keyGram[2]; // blocks (row, 32 half) and (row, 32 half + 16)

  Q35_DEVICE void begin_item(int set) {
    clear(dQueries);
    clear(dKeys);
    clear(queryGram);
    clear(keyGram);
#pragma unroll kSteps
    for (int k = 0; k < dk / 16; ++k) {
      Left<T> q, key;
      load_left(q, queries(set), row, k * 16);
      load_left(key, keys(set), row, k * 16);
#pragma unroll kUnrollBlocks<T>
      for (int b = 0; b < 2; ++b) {
        if (half * 32 + b * 16 > row) continue;
        Right<T> right;
        load_right_transposed(right, keys(set), half * 32 + b * 16, k * 16);
        multiply(queryGram[b], q, right);
        multiply(keyGram[b], key, right);
      }
    }
  }

  // Sums over the four lanes that have a row.
  Q35_DEVICE static void put_row_sums(float *to, const float (&sum)[2], int row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float total = warp_sum<4>(sum[i]);
      if (lane_id() % 4 == 0) to[row + block_row(2 * i)] = total;
    }
  }

  // <Z, V> and dv = beta Z, 16 bytes a thread.
  Q35_DEVICE void values_backward(Work w, Chunk c, const float *betas) const {
    constexpr int units = dv / kVec<T>, lanes = kRowLanes<units>, atOnce = kThreads / lanes;
    int unit = int(threadIdx.x % lanes), first = int(threadIdx.x / lanes);
    T *to = dv_ + int64(c.first) * P::dvToken + head(w) * P::dvHead + unit * kVec<T>;
    auto solved = value_matrix(w, 1), given = value_matrix(w, 3);
#pragma unroll
    for (int p = 0; p < (kChunk + atOnce - 1) / atOnce; ++p) {
      int r = first + p * atOnce;
      if (r >= kChunk) break; // whole warps
      float zs[kVec<T>], values[kVec<T>], along = 0;
      if (unit < units) {
        load_unit(zs, solved, r, unit * kVec<T>);
        load_unit(values, given, r, unit * kVec<T>);
#pragma unroll
        for (int i = 0; i < kVec<T>; ++i) {
          along = fmaf(zs[i], values[i], along);
          zs[i] *= betas[r];
        }
        if (r < c.rows) store(to + r * P::dvToken, zs);
      }
      along = warp_sum<lanes>(along);
      if (unit == 0) sums(kZV)[r] = along;
    }
  }

  // sum(S . D+), each warp its part.
  Q35_DEVICE void states_dot(Work w) {
    float sum = 0;
    auto state = state_matrix(w, 0), gradient = state_matrix(w, 1);
    for_units<kThreads>(state_tile(0), int(threadIdx.x), [&](int r, int c) {
      float a[kVec<T>], b[kVec<T>];
      load_unit(a, state, r, c);
      load_unit(b, gradient, r, c);
#pragma unroll
      for (int e = 0; e < kVec<T>; ++e) sum = fmaf(a[e], b[e], sum);
    });
    sum = warp_sum(sum);
    if (lane_id() == 0) sums(kSD)[int(threadIdx.x) / 32] = sum;
  }

  // (E2) X = scale eta (dO S^T) into dqn, (E3) Y = rho (V' D+^T) and -eta beta (Z S^T) into dkn, and their row sums.
  Q35_DEVICE void through_states(Work w, int set, const float *f) {
    float etas[2], rhos[2], betas[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int r = row + block_row(2 * i);
      etas[i] = f[kChunk + r];
      rhos[i] = f[2 * kChunk + r];
      betas[i] = f[3 * kChunk + r];
    }
    float withKeys[2] = {0, 0};
    {
      Acc y[kHalf];
      clear(y);
      auto gradient = state_matrix(w, 1);
      auto written = value_matrix(w, 2);
#pragma unroll kSteps
      for (int k = 0; k < dv / 16; ++k) {
        Left<T> left;
        load_left(left, written, row, k * 16);
#pragma unroll kUnrollBlocks<T>
        for (int b = 0; b < kHalf; ++b) {
          if (!has(b)) continue;
          Right<T> right;
          load_right_transposed(right, gradient, (firstBlock + b) * 16, k * 16);
          multiply(y[b], left, right);
        }
      }
#pragma unroll kUnrollBlocks<T>
      for (int b = 0; b < kHalf; ++b) {
        if (!has(b)) continue;
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; i += 2) {
            float key[2];
            q35::load(key, keys(set).at(row + block_row(i), (firstBlock + b) * 16 + block_column(j)));
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float value = y[b].c[j][i + e] * rhos[i / 2];
              dKeys[b].c[j][i + e] += value;
              withKeys[i / 2] = fmaf(value, key[e], withKeys[i / 2]);
            }
          }
      }
    }
    put_row_sums(sums(kYK + half), withKeys, row);

    Acc x[kHalf], zs[kHalf];
    clear(x);
    clear(zs);
    auto state = state_matrix(w, 0);
    auto outputs = value_matrix(w, 0), solved = value_matrix(w, 1);
#pragma unroll kSteps
    for (int k = 0; k < dv / 16; ++k) {
      Left<T> ofOutputs, ofSolved;
      load_left(ofOutputs, outputs, row, k * 16);
      load_left(ofSolved, solved, row, k * 16);
#pragma unroll kUnrollBlocks<T>
      for (int b = 0; b < kHalf; ++b) {
        if (!has(b)) continue;
        Right<T> right;
        load_right_transposed(right, state, (firstBlock + b) * 16, k * 16);
        multiply(x[b], ofOutputs, right);
        multiply(zs[b], ofSolved, right);
      }
    }
    float withQueries[2] = {0, 0}, kappa[2] = {0, 0};
#pragma unroll kUnrollBlocks<T>
    for (int b = 0; b < kHalf; ++b) {
      if (!has(b)) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          int r = row + block_row(i), c = (firstBlock + b) * 16 + block_column(j);
          float key[2], query[2];
          q35::load(key, keys(set).at(r, c));
          q35::load(query, queries(set).at(r, c));
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float value = x[b].c[j][i + e] * (etas[i / 2] * P::scale), fromZ = zs[b].c[j][i + e];
            dQueries[b].c[j][i + e] += value;
            withQueries[i / 2] = fmaf(value, query[e], withQueries[i / 2]);
            dKeys[b].c[j][i + e] -= fromZ * (etas[i / 2] * betas[i / 2]);
            kappa[i / 2] = fmaf(fromZ, key[e], kappa[i / 2]);
          }
        }
    }
    put_row_sums(sums(kXQ + half), withQueries, row);
    put_row_sums(sums(kKappa + half), kappa, row);
  }

  // (E1), and what (E5) and (E6) need of it: both sums of N are of the same, unrounded values.
  Q35_DEVICE void through_scores(Work w, const float *f) {
    auto outputs = value_matrix(w, 0), solved = value_matrix(w, 1), written = value_matrix(w, 2);
    Acc hq[2], h[2];
    clear(hq);
    clear(h);
#pragma unroll kSteps
    for (int k = 0; k < dv / 16; ++k) {
      Left<T> ofOutputs, ofSolved;
      load_left(ofOutputs, outputs, row, k * 16);
      load_left(ofSolved, solved, row, k * 16);
#pragma unroll kUnrollBlocks<T>
      for (int b = 0; b < 2; ++b) {
        if (half * 32 + b * 16 > row) continue;
        Right<T> right;
        load_right_transposed(right, written, half * 32 + b * 16, k * 16);
        multiply(hq[b], ofOutputs, right);
        multiply(h[b], ofSolved, right);
      }
    }
    float rowsN[2] = {0, 0}, rowsH[2] = {0, 0};
#pragma unroll kUnrollBlocks<T>
    for (int b = 0; b < 2; ++b) {
      int corner = half * 32 + b * 16;
      float columns[2][2] = {{0, 0}, {0, 0}};
      if (corner <= row) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            int r = row + block_row(i), c = corner + block_column(j, i);
            // Selected before the exponential: above the diagonal it would grow.
            float factor = decay<T>(c <= r ? f[r] - f[c] : 0.0f);
            float q = c <= r ? hq[b].c[j][i] * (factor * P::scale) : 0.0f;
            float a = c < r ? -h[b].c[j][i] * factor : 0.0f;
            float ab = c < r ? a * f[3 * kChunk + r] : 0.0f;
            float n = q * queryGram[b].c[j][i] + ab * keyGram[b].c[j][i];
            rowsN[i / 2] += n;
            columns[j][i % 2] += n;
            rowsH[i / 2] = fmaf(a, keyGram[b].c[j][i], rowsH[i / 2]);
            hq[b].c[j][i] = q;
            h[b].c[j][i] = ab;
          }
        store_block(square(0), hq[b], row, corner);
        store_block(square(1), h[b], row, corner);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float total = columns[j][e];
#pragma unroll
          for (int step = 4; step < 32; step *= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
          if (lane_id() < 4) sums(kColumnsN + row / 16)[corner + block_column(j, e)] = total;
        }
    }
    put_row_sums(sums(kRowsN + half), rowsN, row);
    put_row_sums(sums(kRowsH + half), rowsH, row);
  }

  // dqn += Hq K, dkn += Hq^T Q + (J + J^T) K
  Q35_DEVICE void through_grams(int set) {
#pragma unroll kSteps
    for (int k = 0; k < 4; ++k) {
      Left<T> ofQueries, ofKeys, transposed;
      if (k * 16 <= row) {
        load_left(ofQueries, square(0), row, k * 16);
        load_left(ofKeys, square(1), row, k * 16);
      }
      if (k * 16 >= row) {
        Left<T> above;
        load_left_transposed(above, square(1), k * 16, row);
        ofKeys = k * 16 == row ? join(ofKeys, above) : above;
        load_left_transposed(transposed, square(0), k * 16, row);
      }
#pragma unroll kUnrollBlocks<T>
      for (int b = 0; b < kHalf; ++b) {
        if (!has(b)) continue;
        Right<T> right;
        load_right(right, keys(set), k * 16, (firstBlock + b) * 16);
        if (k * 16 <= row) multiply(dQueries[b], ofQueries, right);
        multiply(dKeys[b], ofKeys, right);
      }
      if (k * 16 >= row) {
#pragma unroll kUnrollBlocks<T>
        for (int b = 0; b < kHalf; ++b) {
          if (!has(b)) continue;
          Right<T> right;
          load_right(right, queries(set), k * 16, (firstBlock + b) * 16);
          multiply(dKeys[b], transposed, right);
        }
      }
    }
  }

  // (E5), (E6), (E7) by one warp, two rows a lane.
  Q35_DEVICE void gates_backward(Work w, Chunk c, const float *f) const {
    int lane = lane_id();
    float own[2], keysTotal = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int r = lane * 2 + i;
      auto both = [&](int which) { return sums(which)[r] + sums(which + 1)[r]; };
      float fading = f[kChunk + r], strength = f[3 * kChunk + r], kappa = both(kKappa), ofKeys = both(kYK);
      float columns = 0;
#pragma unroll
      for (int part = 0; part < 4; ++part) columns += sums(kColumnsN + part)[r];
      own[i] = both(kXQ) - ofKeys - fading * strength * kappa + (both(kRowsN) - columns);
      keysTotal += ofKeys;
      if (r < c.rows)
        dbeta[int64(c.first + r) * P::dbetaToken + head(w)] = sums(kZV)[r] - fading * kappa + both(kRowsH);
    }
    keysTotal = warp_sum(keysTotal);
    float statesTotal = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) statesTotal += sums(kSD)[i];
    float last = keysTotal + decay<T>(f[kChunk - 1]) * statesTotal; // what only the last row gets is in every suffix
    // Rows past the last are zero: all that they are sums of is.
    float total = own[0] + own[1];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      float below = __shfl_down_sync(0xffffffffu, total, step);
      if (lane + step < 32) total += below;
    }
    float below = __shfl_down_sync(0xffffffffu, total, 1);
    float suffix[2] = {total, (lane < 31 ? below : 0.0f) + own[1]};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (lane * 2 + i < c.rows)
        dg[int64(c.first + lane * 2 + i) * P::dgToken + head(w)] = suffix[i] + last;
  }

  // (E8) in the places of Q and K, then as rows of 16 bytes to global memory.
  Q35_DEVICE void end_item(Work w, Chunk c, int set) {
    float alongQueries[2] = {0, 0}, alongKeys[2] = {0, 0};
#pragma unroll kUnrollBlocks<T>
    for (int b = 0; b < kHalf; ++b) {
      if (!has(b)) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          int r = row + block_row(i), column = (firstBlock + b) * 16 + block_column(j);
          float key[2], query[2];
          q35::load(key, keys(set).at(r, column));
          q35::load(query, queries(set).at(r, column));
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            alongQueries[i / 2] = fmaf(dQueries[b].c[j][i + e], query[e], alongQueries[i / 2]);
            alongKeys[i / 2] = fmaf(dKeys[b].c[j][i + e], key[e], alongKeys[i / 2]);
          }
        }
    }
    put_row_sums(sums(kAlong + half), alongQueries, row);
    put_row_sums(sums(kRowsH + half), alongKeys, row);
    __syncthreads();
    float queryAlong[2], keyAlong[2], queryFactor[2], keyFactor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int r = row + block_row(2 * i);
      bool real = r < c.rows;
      queryAlong[i] = sums(kAlong)[r] + sums(kAlong + 1)[r];
      keyAlong[i] = sums(kRowsH)[r] + sums(kRowsH + 1)[r];
      int64 at = int64(c.first + r) * P::keyHeads + key_head(w);
      queryFactor[i] = real ? qr[at] : 0.0f;
      keyFactor[i] = real ? kr[at] : 0.0f;
    }
#pragma unroll kUnrollBlocks<T>
    for (int b = 0; b < kHalf; ++b) {
      if (!has(b)) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          int r = row + block_row(i), column = (firstBlock + b) * 16 + block_column(j);
          T *toKey = keys(set).at(r, column), *toQuery = queries(set).at(r, column);
          float key[2], query[2];
          q35::load(key, toKey);
          q35::load(query, toQuery);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            query[e] = (dQueries[b].c[j][i + e] - query[e] * queryAlong[i / 2]) * queryFactor[i / 2];
            key[e] = (dKeys[b].c[j][i + e] - key[e] * keyAlong[i / 2]) * keyFactor[i / 2];
          }
          store(toKey, key);
          store(toQuery, query);
        }
    }
    __syncthreads();
    int64 first = c.first;
    copy_out<kThreads>(dq + first * P::dqToken + key_head(w) * P::dqHead, P::dqToken, queries(set), c.rows,
                       int(threadIdx.x));
    copy_out<kThreads>(dk_ + first * P::dkToken + key_head(w) * P::dkHead, P::dkToken, keys(set), c.rows,
                       int(threadIdx.x));
  }

  Q35_DEVICE void run() {
    items = seq[1] * int(P::keyHeads);
    int warp = int(threadIdx.x) / 32;
    row = warp % 4 * 16;
    half = warp / 4;
    firstBlock = half * kHalf;
    Work w = {int(blockIdx.x), 0};
    if (!exists(w)) return;
    if constexpr (kStaged) {
      load_keys(w, 0);
      load_states(w);
      load_values(w);
      cp_async_commit();
      fetch_factors(w);
    }
    int set = 0, parity = 0;
    while (exists(w)) {
      Work next = after(w);
      Chunk c = chunk(w);
      if constexpr (!kStaged) {
        __syncthreads(); // tiles are free
        if (w.member == 0) load_keys(w, 0);
        cp_async_commit();
        fetch_factors(w);
      }
      publish_factors(parity, c.rows);
      cp_async_wait<0>();
      __syncthreads();
      const float *f = factors(parity);
      if (w.member == 0) begin_item(set);
      states_dot(w);
      through_states(w, set, f);
      values_backward(w, c, f + 3 * kChunk);
      if constexpr (kStaged) {
        __syncthreads(); // states are free
        if (exists(next)) load_states(next);
        cp_async_commit();
      }
      through_scores(w, f);
      __syncthreads(); // Hq and J are there, the other tiles of this head free
      if constexpr (kStaged) {
        if (exists(next)) {
          if (next.member == 0) load_keys(next, set ^ 1);
          load_values(next);
          fetch_factors(next);
        }
        cp_async_commit();
      }
      if (warp == 4) gates_backward(w, c, f);
      through_grams(set);
      if (w.member + 1 == group) {
        __syncthreads(); // Q and K have been read, and the sums
        end_item(w, c, set);
        if constexpr (kStaged) set ^= 1;
      }
      w = next;
      parity ^= 1;
    }
  }
};

template <class P, class T>
Q35_DEVICE void gdn_local_bwd(const T *qn, const T *kn, const float *qr, const float *kr, const T *v, const T *dO,
                              const float *beta, const float *gamma, const T *states, const T *dstates, const T *vnew,
                              const T *z, const int *seq, T *dq, T *dk, T *dv, float *dg, float *dbeta) {
  LocalBlock<P, T> block;
  static_assert(block.kBytes == P::sharedBytes);
  block.qn = qn;
  block.kn = kn;
  block.qr = qr;
  block.kr = kr;
  block.v = v;
  block.dO = dO;
  block.beta = beta;
  block.gamma = gamma;
  block.states = states;
  block.dstates = dstates;
  block.vnew = vnew;
  block.z = z;
  block.seq = seq;
  block.dq = dq;
  block.dk_ = dk;
  block.dv_ = dv;
  block.dg = dg;
  block.dbeta = dbeta;
  block.run();
}

} // namespace q35
