#pragma once
#include "q35/gdn.cuh"
#include "q35/stripes.cuh"

// gdn_scan and gdn_scan_bwd: the two recurrences over the chunks of a document. With cp_ documents are the segments of a
// rank's stripes: a state comes into the first of a stripe and goes out of its last.
//
// A block takes P::columns value columns of one head through its documents. Every one of its P::columns / 16 computing
// warps carries 16 columns on its own: the state is kept transposed, S^T [16, dk], as float accumulators, and every
// product has the state or a result of the chain as its left operand, in registers. So the chain of a chunk has no
// barrier and no shared memory in it but for K, tinv, ... on the right hand side.
//
// As many more warps move data: they copy the operands of chunk i + stages - 1 into shared memory, turn gamma and beta
// into row factors, and write what the computing warps have staged of chunk i - 1. One barrier a chunk.
//
// tinv and P are lower triangular: 16 x 16 blocks above their diagonals are skipped.

namespace q35 {

// What both scans do alike. Scan has fetch (row factors of a chunk to registers), load (tiles of a chunk,
// asynchronously), publish (the factors), flush (write what is staged) and compute. Two loops with the same barriers,
// so that neither kind of warp holds registers for the other.
template <int Stages, class Scan>
Q35_DEVICE void scan_chunks(Scan &scan, int count, bool mover) {
  if (!mover) {
    for (int i = 0, stage = 0; i < count; ++i) {
      if constexpr (Stages == 1) __syncthreads();
      __syncthreads();
      scan.compute(i, stage);
      stage = stage + 1 == Stages ? 0 : stage + 1;
    }
    __syncthreads();
    return;
  }
  // Chunk i + Stages - 1 goes where chunk i - 1 was.
  int ahead = Stages - 1;
  for (int i = 1 - Stages; i < count; ++i) {
    if (i >= 0) {
      if constexpr (Stages > 1) cp_async_wait<Stages - 2>();
      __syncthreads();
    }
    int next = i + Stages - 1;
    bool more = next < count;
    if (more) {
      scan.fetch(next);
      scan.load(next, i < 0 ? next : ahead);
    }
    cp_async_commit();
    if (i > 0) scan.flush(i - 1);
    if (more) scan.publish(i < 0 ? next : ahead);
    if constexpr (Stages == 1) {
      cp_async_wait<0>();
      __syncthreads();
    }
    if (i >= 0) ahead = ahead + 1 == Stages ? 0 : ahead + 1;
  }
  __syncthreads();
  scan.flush(count - 1);
}

// The part of a scan that does not depend on its direction. Writes: states and rows of every chunk are kept.
template <class P, class T, bool Writes>
struct ScanBlock {
  static constexpr int dk = P::keyDim, kWarps = P::columns / 16, kMovers = 32 * kWarps;
  static constexpr int kRowsPerMover = kChunk > kMovers ? kChunk / kMovers : 1;
  using KeyTile = Tile<T, kChunk, dk>;
  using SquareTile = Tile<T, kChunk, kChunk>;
  using ValueTile = Tile<T, kChunk, P::columns>;
  using StateTile = Tile<T, dk, P::columns>;
  static constexpr int kStagedBytes = Writes ? StateTile::kBytes + ValueTile::kBytes : 0; // of a chunk, to be written
  static constexpr int kFactorBytes = 4 * kChunk * 4;

  int warp, mover, head, keyHead, column;
  int firstChunk, firstToken, endToken, count;

  // This block's place among `slices` of every head; its first document.
  Q35_DEVICE int begin(int slices) {
    warp = int(threadIdx.x) / 32;
    mover = int(threadIdx.x) - kMovers;
    int block = int(blockIdx.x);
    column = block % slices * int(P::columns);
    block /= slices;
    head = block % int(P::valueHeads);
    keyHead = head / int(P::valueHeads / P::keyHeads);
    return block / int(P::valueHeads);
  }
  Q35_DEVICE void enter(const int *seq, int document) {
    firstChunk = seq[P::docFirstChunk + document];
    count = seq[P::docFirstChunk + document + 1] - firstChunk;
    firstToken = seq[P::cuSeqlens + document];
    endToken = seq[P::cuSeqlens + document + 1];
  }
  Q35_DEVICE int64 tile_of(int chunk) const { return int64(firstChunk + chunk) * P::valueHeads + head; }
  Q35_DEVICE int first_of(int chunk) const { return firstToken + chunk * kChunk; }
  Q35_DEVICE int rows_of(int chunk) const { return min(kChunk, endToken - first_of(chunk)); }

  // body(value, key, column) for what a computing thread holds of the state, which counts its columns in the head.
  template <int N, class Body>
  Q35_DEVICE void for_state(Acc (&state)[N], const Body &body) const {
    if (mover >= 0) return;
#pragma unroll
    for (int k = 0; k < N; ++k)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          body(state[k].c[j][i], k * 16 + block_column(j, i), column + warp * 16 + block_row(i));
  }
  // To and from [dk, Columns] of head `head` of stripe j.
  template <int Columns, int N>
  Q35_DEVICE void load_state(Acc (&state)[N], const float *from, int j) const {
    from += (int64(j) * P::valueHeads + head) * (dk * Columns);
    for_state(state, [&](float &value, int key, int column) { value = from[key * Columns + column]; });
  }
  template <int Columns, int N>
  Q35_DEVICE void store_state(float *to, int j, Acc (&state)[N]) const {
    to += (int64(j) * P::valueHeads + head) * (dk * Columns);
    for_state(state, [&](float &value, int key, int column) { to[key * Columns + column] = value; });
  }

  // gamma and beta of the rows that this thread prepares factors of.
  float gammas[kRowsPerMover], betas[kRowsPerMover], last;
  int rows;
  Q35_DEVICE void fetch_rows(const float *gamma, const float *beta, int chunk) {
    const float *from = gamma + tile_of(chunk) * kChunk;
    rows = rows_of(chunk);
    last = from[kChunk - 1];
#pragma unroll
    for (int i = 0; i < kRowsPerMover; ++i) {
      int row = mover + i * kMovers;
      if (row >= kChunk) break;
      gammas[i] = from[row];
      betas[i] = row < rows ? beta[int64(first_of(chunk) + row) * P::gateToken + head] : 0.0f;
    }
  }
};

// (E1) R = V - eta (K S), (E2) V' = tinv (beta R), (E3) S <- e S + K^T (rho V')
template <class P, class T, bool Writes = true>
struct StateScan : ScanBlock<P, T, Writes> {
  using Base = ScanBlock<P, T, Writes>;
  using typename Base::KeyTile;
  using typename Base::SquareTile;
  using typename Base::StateTile;
  using typename Base::ValueTile;
  static constexpr int dk = Base::dk, kBlocks = dk / 16;
  static constexpr int kStageBytes = KeyTile::kBytes + SquareTile::kBytes + ValueTile::kBytes + Base::kFactorBytes;
  static constexpr int kBytes = int(P::stages) * kStageBytes + 2 * Base::kStagedBytes;

  const T *kn, *v, *tinv;
  const float *gamma, *beta;
  T *states, *vnew;
  bool hasValues = true; // or V is 0
  Acc state[kBlocks];

  struct Stage {
    KeyTile keys;
    SquareTile inverse;
    ValueTile values;
    float *beta, *betaEta, *rho, *whole; // [64], [64], [64], [1]
  };
  Q35_DEVICE static Stage stage_at(int stage) {
    unsigned char *at = shared_memory() + stage * kStageBytes;
    Stage s;
    s.keys.base = reinterpret_cast<T *>(at);
    s.inverse.base = reinterpret_cast<T *>(at += KeyTile::kBytes);
    s.values.base = reinterpret_cast<T *>(at += SquareTile::kBytes);
    s.beta = reinterpret_cast<float *>(at += ValueTile::kBytes);
    s.betaEta = s.beta + kChunk;
    s.rho = s.betaEta + kChunk;
    s.whole = s.rho + kChunk;
    return s;
  }
  Q35_DEVICE static StateTile staged_state(int chunk) {
    return {reinterpret_cast<T *>(shared_memory() + int(P::stages) * kStageBytes + chunk % 2 * Base::kStagedBytes)};
  }
  Q35_DEVICE static ValueTile staged_values(int chunk) {
    return {staged_state(chunk).base + StateTile::kBytes / int(sizeof(T))};
  }

  Q35_DEVICE void fetch(int chunk) { this->fetch_rows(gamma, beta, chunk); }

  Q35_DEVICE void load(int chunk, int stage) {
    Stage s = stage_at(stage);
    int64 first = this->first_of(chunk);
    int rows = this->rows_of(chunk), thread = this->mover;
    copy_async<Base::kMovers>(s.keys, kn + first * P::keyToken + this->keyHead * P::keyHead, P::keyToken, rows, thread);
    copy_async<Base::kMovers>(s.inverse, tinv + this->tile_of(chunk) * (kChunk * kChunk), kChunk, thread);
    copy_async<Base::kMovers>(s.values, v + first * P::valueToken + this->head * P::valueHead + this->column,
                              P::valueToken, hasValues ? rows : 0, thread);
  }

  Q35_DEVICE void publish(int stage) {
    Stage s = stage_at(stage);
#pragma unroll
    for (int i = 0; i < Base::kRowsPerMover; ++i) {
      int row = this->mover + i * Base::kMovers;
      if (row >= kChunk) break;
      bool real = row < this->rows;
      s.beta[row] = this->betas[i];
      s.betaEta[row] = real ? this->betas[i] * decay<T>(this->gammas[i]) : 0.0f;
      s.rho[row] = real ? decay<T>(this->last - this->gammas[i]) : 0.0f;
    }
    if (this->mover == 0) *s.whole = decay<T>(this->last);
  }

  Q35_DEVICE void flush(int chunk) {
    if constexpr (!Writes) return;
    int64 tile = this->tile_of(chunk);
    copy_out<Base::kMovers>(states + tile * (dk * P::valueDim) + this->column, P::valueDim, staged_state(chunk),
                            this->mover);
    copy_out<Base::kMovers>(vnew + tile * (kChunk * P::valueDim) + this->column, P::valueDim, staged_values(chunk),
                            this->mover);
  }

  Q35_DEVICE void compute(int chunk, int stage) {
    Stage s = stage_at(stage);
    StateTile toState = staged_state(chunk);
    ValueTile toValues = staged_values(chunk);
    int column = this->warp * 16;

    // Rows of all accumulators are value columns. (K S)^T = S^T K^T
    Acc rows[4];
    clear(rows);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < kBlocks; ++k) {
      Left<T> a = to_left<T>(state[k]);
      if constexpr (Writes) store_transposed(toState, a, k * 16, column);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        Right<T> b;
        load_right_transposed(b, s.keys, n * 16, k * 16);
        multiply(rows[n], a, b);
      }
    }
    float whole = *s.whole;
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < kBlocks; ++k)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) state[k].c[j][i] *= whole;

    // (beta R)^T
    Left<T> factors[4];
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) {
      Left<T> raw;
      load_left_transposed(raw, s.values, n * 16, column);
      Acc values;
      unpack(values, raw);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float strength[2], fading[2];
        q35::load(strength, s.beta + n * 16 + block_column(j));
        q35::load(fading, s.betaEta + n * 16 + block_column(j));
#pragma unroll
        for (int i = 0; i < 4; ++i)
          rows[n].c[j][i] = values.c[j][i] * strength[i % 2] - rows[n].c[j][i] * fading[i % 2];
      }
      factors[n] = to_left<T>(rows[n]);
    }

    // V'^T = (beta R)^T tinv^T
    clear(rows);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k)
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        if (n < k) continue;
        Right<T> b;
        load_right_transposed(b, s.inverse, n * 16, k * 16);
        multiply(rows[n], factors[k], b);
      }
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) {
      if constexpr (Writes) store_transposed(toValues, to_left<T>(rows[n]), n * 16, column);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float remaining[2];
        q35::load(remaining, s.rho + n * 16 + block_column(j));
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[n].c[j][i] *= remaining[i % 2];
      }
      factors[n] = to_left<T>(rows[n]);
    }

    // S^T <- e S^T + (rho V')^T K
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k)
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < kBlocks; ++n) {
        Right<T> b;
        load_right(b, s.keys, k * 16, n * 16);
        multiply(state[n], factors[k], b);
      }
  }
};

template <class P, class T, bool Writes>
Q35_DEVICE void set_operands(StateScan<P, T, Writes> &scan, const T *kn, const T *v, const float *beta,
                             const float *gamma, const T *tinv) {
  static_assert(StateScan<P, T, Writes>::kBytes == P::sharedBytes);
  scan.kn = kn;
  scan.v = v;
  scan.tinv = tinv;
  scan.gamma = gamma;
  scan.beta = beta;
}

template <class P, class T>
Q35_DEVICE void gdn_scan(const T *kn, const T *v, const float *beta, const float *gamma, const T *tinv, const int *seq,
                         T *states, T *vnew) {
  StateScan<P, T> scan;
  set_operands(scan, kn, v, beta, gamma, tinv);
  scan.states = states;
  scan.vnew = vnew;
  for (int document = scan.begin(P::slices); document < seq[0]; document += int(P::slots)) {
    scan.enter(seq, document);
    clear(scan.state);
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
}

template <class P, class T>
Q35_DEVICE void cp_gdn_scan(const T *kn, const T *v, const float *beta, const float *gamma, const T *tinv,
                            const float *before, const int *seq, const int *table, T *states, T *vnew) {
  StateScan<P, T> scan;
  set_operands(scan, kn, v, beta, gamma, tinv);
  scan.states = states;
  scan.vnew = vnew;
  const Stripes<P> stripes{table};
  for (int document = scan.begin(P::slices); document < seq[0]; document += int(P::slots)) {
    scan.enter(seq, document);
    clear(scan.state);
    for (int j = 0; j < stripes.kLocal; ++j)
      if (document == stripes.first_segment(j) && stripes.continues(stripes.index(j)))
        scan.template load_state<P::valueDim>(scan.state, before, j);
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
}

// S after the last segment of a stripe from 0, and from the identity with V = 0. A block takes columns of b, or of m.
// Constants: also mapSlices.
template <class P, class T>
Q35_DEVICE void cp_gdn_affine(const T *kn, const T *v, const float *beta, const float *gamma, const T *tinv,
                              const int *seq, const int *table, float *m, float *b) {
  StateScan<P, T, false> scan;
  set_operands(scan, kn, v, beta, gamma, tinv);
  const Stripes<P> stripes{table};
  int j = scan.begin(int(P::mapSlices + P::slices));
  scan.hasValues = scan.column >= P::keyDim;
  if (scan.hasValues) scan.column -= int(P::keyDim);
  clear(scan.state);
  bool map = !scan.hasValues;
  if (!map || stripes.passes(stripes.index(j))) {
    if (map)
      scan.for_state(scan.state, [](float &value, int key, int column) { value = key == column ? 1.0f : 0.0f; });
    scan.enter(seq, stripes.last_segment(j));
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
  if (map)
    scan.template store_state<P::keyDim>(m, j, scan.state);
  else
    scan.template store_state<P::valueDim>(b, j, scan.state);
}

// (E1) E = rho (K D+) + P^T dO, (E2) Z = tinv^T E, (E3) D+ <- e D+ - K^T (eta beta Z) + scale Q^T (eta dO), last to
// first.
template <class P, class T, bool Writes = true>
struct GradientScan : ScanBlock<P, T, Writes> {
  using Base = ScanBlock<P, T, Writes>;
  using typename Base::KeyTile;
  using typename Base::SquareTile;
  using typename Base::StateTile;
  using typename Base::ValueTile;
  static constexpr int dk = Base::dk, kBlocks = dk / 16;
  static constexpr int kStageBytes =
      2 * KeyTile::kBytes + 2 * SquareTile::kBytes + ValueTile::kBytes + Base::kFactorBytes;
  static constexpr int kBytes = int(P::stages) * kStageBytes + 2 * Base::kStagedBytes;

  const T *qn, *kn, *dO, *tinv, *scores;
  const float *gamma, *beta;
  T *dstates, *z;
  Acc state[kBlocks];

  struct Stage {
    KeyTile keys, queries;
    SquareTile inverse, scores;
    ValueTile values;
    float *rho, *minusEtaBeta, *etaScale, *whole; // [64], [64], [64], [1]
  };
  Q35_DEVICE static Stage stage_at(int stage) {
    unsigned char *at = shared_memory() + stage * kStageBytes;
    Stage s;
    s.keys.base = reinterpret_cast<T *>(at);
    s.queries.base = reinterpret_cast<T *>(at += KeyTile::kBytes);
    s.inverse.base = reinterpret_cast<T *>(at += KeyTile::kBytes);
    s.scores.base = reinterpret_cast<T *>(at += SquareTile::kBytes);
    s.values.base = reinterpret_cast<T *>(at += SquareTile::kBytes);
    s.rho = reinterpret_cast<float *>(at += ValueTile::kBytes);
    s.minusEtaBeta = s.rho + kChunk;
    s.etaScale = s.minusEtaBeta + kChunk;
    s.whole = s.etaScale + kChunk;
    return s;
  }
  Q35_DEVICE static StateTile staged_state(int step) {
    return {reinterpret_cast<T *>(shared_memory() + int(P::stages) * kStageBytes + step % 2 * Base::kStagedBytes)};
  }
  Q35_DEVICE static ValueTile staged_values(int step) {
    return {staged_state(step).base + StateTile::kBytes / int(sizeof(T))};
  }

  Q35_DEVICE int chunk_of_step(int step) const { return this->count - 1 - step; }

  Q35_DEVICE void fetch(int step) { this->fetch_rows(gamma, beta, chunk_of_step(step)); }

  Q35_DEVICE void load(int step, int stage) {
    Stage s = stage_at(stage);
    int chunk = chunk_of_step(step), rows = this->rows_of(chunk), thread = this->mover;
    int64 first = this->first_of(chunk), square = this->tile_of(chunk) * (kChunk * kChunk);
    copy_async<Base::kMovers>(s.keys, kn + first * P::keyToken + this->keyHead * P::keyHead, P::keyToken, rows, thread);
    copy_async<Base::kMovers>(s.queries, qn + first * P::queryToken + this->keyHead * P::queryHead, P::queryToken, rows,
                              thread);
    copy_async<Base::kMovers>(s.inverse, tinv + square, kChunk, thread);
    copy_async<Base::kMovers>(s.scores, scores + square, kChunk, thread);
    copy_async<Base::kMovers>(s.values, dO + first * P::valueToken + this->head * P::valueHead + this->column,
                              P::valueToken, rows, thread);
  }

  Q35_DEVICE void publish(int stage) {
    Stage s = stage_at(stage);
#pragma unroll
    for (int i = 0; i < Base::kRowsPerMover; ++i) {
      int row = this->mover + i * Base::kMovers;
      if (row >= kChunk) break;
      bool real = row < this->rows;
      float eta = real ? decay<T>(this->gammas[i]) : 0.0f;
      s.rho[row] = real ? decay<T>(this->last - this->gammas[i]) : 0.0f;
      s.minusEtaBeta[row] = -eta * this->betas[i];
      s.etaScale[row] = eta * P::scale;
    }
    if (this->mover == 0) *s.whole = decay<T>(this->last);
  }

  Q35_DEVICE void flush(int step) {
    if constexpr (!Writes) return;
    int64 tile = this->tile_of(chunk_of_step(step));
    copy_out<Base::kMovers>(dstates + tile * (dk * P::valueDim) + this->column, P::valueDim, staged_state(step),
                            this->mover);
    copy_out<Base::kMovers>(z + tile * (kChunk * P::valueDim) + this->column, P::valueDim, staged_values(step),
                            this->mover);
  }

  Q35_DEVICE void compute(int step, int stage) {
    Stage s = stage_at(stage);
    StateTile toState = staged_state(step);
    ValueTile toValues = staged_values(step);
    int column = this->warp * 16;

    // Rows of all accumulators are value columns. E^T = rho (D^T K^T) + dO^T P
    Acc rows[4];
    clear(rows);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < kBlocks; ++k) {
      Left<T> a = to_left<T>(state[k]);
      if constexpr (Writes) store_transposed(toState, a, k * 16, column);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        Right<T> b;
        load_right_transposed(b, s.keys, n * 16, k * 16);
        multiply(rows[n], a, b);
      }
    }
    float whole = *s.whole;
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < kBlocks; ++k)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) state[k].c[j][i] *= whole;
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float remaining[2];
        q35::load(remaining, s.rho + n * 16 + block_column(j));
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[n].c[j][i] *= remaining[i % 2];
      }
    Left<T> outputs[4];
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k) {
      load_left_transposed(outputs[k], s.values, k * 16, column);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        if (n > k) continue;
        Right<T> b;
        load_right(b, s.scores, k * 16, n * 16);
        multiply(rows[n], outputs[k], b);
      }
    }

    // Z^T = E^T tinv
    Left<T> factors[4];
#pragma unroll kUnrollBlocks<T>
    for (int n = 0; n < 4; ++n) factors[n] = to_left<T>(rows[n]);
    clear(rows);
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k)
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < 4; ++n) {
        if (n > k) continue;
        Right<T> b;
        load_right(b, s.inverse, k * 16, n * 16);
        multiply(rows[n], factors[k], b);
      }

    // D^T <- e D^T + (scale eta dO)^T Q - (eta beta Z)^T K; the first product does not wait for Z.
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k) {
      Acc scaled;
      unpack(scaled, outputs[k]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float factor[2];
        q35::load(factor, s.etaScale + k * 16 + block_column(j));
#pragma unroll
        for (int i = 0; i < 4; ++i) scaled.c[j][i] *= factor[i % 2];
      }
      Left<T> a = to_left<T>(scaled);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < kBlocks; ++n) {
        Right<T> b;
        load_right(b, s.queries, k * 16, n * 16);
        multiply(state[n], a, b);
      }
    }
#pragma unroll kUnrollBlocks<T>
    for (int k = 0; k < 4; ++k) {
      if constexpr (Writes) store_transposed(toValues, to_left<T>(rows[k]), k * 16, column);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float factor[2];
        q35::load(factor, s.minusEtaBeta + k * 16 + block_column(j));
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[k].c[j][i] *= factor[i % 2];
      }
      Left<T> a = to_left<T>(rows[k]);
#pragma unroll kUnrollBlocks<T>
      for (int n = 0; n < kBlocks; ++n) {
        Right<T> b;
        load_right(b, s.keys, k * 16, n * 16);
        multiply(state[n], a, b);
      }
    }
  }
};

template <class P, class T, bool Writes>
Q35_DEVICE void set_operands(GradientScan<P, T, Writes> &scan, const T *qn, const T *kn, const T *dO, const float *beta,
                             const float *gamma, const T *tinv, const unsigned char *workspace) {
  static_assert(GradientScan<P, T, Writes>::kBytes == P::sharedBytes);
  scan.qn = qn;
  scan.kn = kn;
  scan.dO = dO;
  scan.tinv = tinv;
  scan.scores = reinterpret_cast<const T *>(workspace);
  scan.gamma = gamma;
  scan.beta = beta;
}

template <class P, class T>
Q35_DEVICE void gdn_scan_bwd(const T *qn, const T *kn, const T *dO, const float *beta, const float *gamma,
                             const T *tinv, const int *seq, T *dstates, T *z, const unsigned char *workspace) {
  GradientScan<P, T> scan;
  set_operands(scan, qn, kn, dO, beta, gamma, tinv, workspace);
  scan.dstates = dstates;
  scan.z = z;
  for (int document = scan.begin(P::slices); document < seq[0]; document += int(P::slots)) {
    scan.enter(seq, document);
    clear(scan.state);
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
}

template <class P, class T>
Q35_DEVICE void cp_gdn_scan_bwd(const T *qn, const T *kn, const T *dO, const float *beta, const float *gamma,
                                const T *tinv, const float *after, const int *seq, const int *table, T *dstates, T *z,
                                const unsigned char *workspace) {
  GradientScan<P, T> scan;
  set_operands(scan, qn, kn, dO, beta, gamma, tinv, workspace);
  scan.dstates = dstates;
  scan.z = z;
  const Stripes<P> stripes{table};
  for (int document = scan.begin(P::slices); document < seq[0]; document += int(P::slots)) {
    scan.enter(seq, document);
    clear(scan.state);
    for (int j = 0; j < stripes.kLocal; ++j)
      if (document == stripes.last_segment(j)) scan.template load_state<P::valueDim>(scan.state, after, j);
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
}

// D before the first segment of a stripe, from 0 behind it.
template <class P, class T>
Q35_DEVICE void cp_gdn_state_grad(const T *qn, const T *kn, const T *dO, const float *beta, const float *gamma,
                                  const T *tinv, const int *seq, const int *table, float *c,
                                  const unsigned char *workspace) {
  GradientScan<P, T, false> scan;
  set_operands(scan, qn, kn, dO, beta, gamma, tinv, workspace);
  const Stripes<P> stripes{table};
  int j = scan.begin(P::slices);
  clear(scan.state);
  if (stripes.continues(stripes.index(j))) {
    scan.enter(seq, stripes.first_segment(j));
    scan_chunks<P::stages>(scan, scan.count, scan.mover >= 0);
  }
  scan.template store_state<P::valueDim>(c, j, scan.state);
}

} // namespace q35
