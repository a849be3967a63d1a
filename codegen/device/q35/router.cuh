#pragma once
#include "q35/base.cuh"

// The router of a mixture of experts, and its load-balance loss.

namespace q35 {

// probs = softmax of each row of logits, idx = the topK largest (equal ones by lower id), weights = theirs, renormalized.
// A warp per token; lane l has experts l, l + 32, ...
template <class P>
Q35_DEVICE void router(const float *logits, float *weights, int *idx, float *probs) {
  constexpr int experts = P::experts, count = (experts + 31) / 32;
  int lane = threadIdx.x % 32;
  int64 token = (int64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (token >= P::tokens) return;
  const float *row = logits + token * P::logitsStride;
  float p[count], largest = -bits_to_float(0x7f800000u);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    int e = i * 32 + lane;
    p[i] = e < experts ? row[e] : -bits_to_float(0x7f800000u);
    largest = fmaxf(largest, p[i]);
  }
  largest = warp_max(largest);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    p[i] = i * 32 + lane < experts ? expf(p[i] - largest) : 0;
    sum += p[i];
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < count; ++i) {
    int e = i * 32 + lane;
    if (e < experts)
      probs[token * P::probsStride + e] = p[i] = p[i] / sum;
    else
      p[i] = -3; // Below the -2 that any search starts from.
  }

  // Chosen experts drop to -1, below every probability. NaN is never chosen: expert 0 stands in for it.
  constexpr int held = (P::topK + 31) / 32;
  float total = 0, chosen[held];
#pragma unroll
  for (int h = 0; h < held; ++h) {
    chosen[h] = 0;
#pragma unroll 1
    for (int l = 0; l < 32 && h * 32 + l < P::topK; ++l) {
      float best = -2;
      int id = 0;
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (p[i] > best) {
          best = p[i];
          id = i * 32 + lane;
        }
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, step);
        int otherId = __shfl_xor_sync(0xffffffffu, id, step);
        if (other > best || (other == best && otherId < id)) {
          best = other;
          id = otherId;
        }
      }
#pragma unroll
      for (int i = 0; i < count; ++i)
        if (i * 32 + lane == id) p[i] = -1;
      total += best;
      if (l == lane) {
        chosen[h] = best;
        idx[token * P::idxStride + h * 32 + l] = id;
      }
    }
  }
#pragma unroll
  for (int h = 0; h < held; ++h)
    if (int j = h * 32 + lane; j < P::topK) weights[token * P::weightsStride + j] = chosen[h] / total;
}

// dlogits[idx[j]] = weights[j] (dweights[j] - <weights, dweights>), zeros elsewhere. A warp per token.
template <class P>
Q35_DEVICE void router_bwd(const float *dweights, const float *weights, const int *idx, float *dlogits) {
  constexpr int experts = P::experts, topK = P::topK, count = (experts + 31) / 32;
  int lane = threadIdx.x % 32;
  int64 token = (int64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (token >= P::tokens) return;
  const float *dw = dweights + token * P::dweightsStride, *w = weights + token * P::weightsStride;
  const int *id = idx + token * P::idxStride;
  float dot = 0, d[count];
#pragma unroll
  for (int i = 0; i < count; ++i) d[i] = 0;
#pragma unroll 8
  for (int j = 0; j < topK; ++j) dot += w[j] * dw[j];
#pragma unroll 8
  for (int j = 0; j < topK; ++j) {
    float value = w[j] * (dw[j] - dot);
    int e = id[j];
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (e == i * 32 + lane) d[i] = value;
  }
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (int e = i * 32 + lane; e < experts) dlogits[token * P::dlogitsStride + e] = d[i];
}

// Argument number `index`, any of the pointers.
template <class T, class... Args>
Q35_DEVICE T *argument(int index, Args... args) {
  const void *found = nullptr;
  int i = 0;
  ((found = i++ == index ? args : found), ...);
  return static_cast<T *>(const_cast<void *>(found));
}

// router_aux, router_aux_bwd and router_stats. Arguments: daux (backward), probs of every layer, idx of every layer, the
// document table, then P::outputs results (aux, or dprobs of every layer, or counts, sums and tokens), then the workspace:
//   int count[layers][experts], float sum[layers][experts], then the same of chunks of tokens: [layers][chunks][experts].
template <class P>
struct RouterAuxArguments {
  static constexpr int kProbs = P::backward ? 1 : 0, kIdx = kProbs + P::layers, kSeq = kIdx + P::layers;
  static constexpr int kOut = kSeq + 1, kWorkspace = kOut + P::outputs;
  static constexpr int kChunk = 128; // tokens
  static constexpr int kChunks = (P::tokens + kChunk - 1) / kChunk, kAll = P::layers * P::experts;

  int *count, *chunkCount;
  float *sum, *chunkSum;
  int realTokens;

  template <class... Args>
  Q35_DEVICE explicit RouterAuxArguments(Args... args) {
    count = argument<int>(kWorkspace, args...);
    sum = reinterpret_cast<float *>(count + kAll);
    chunkCount = count + 2 * kAll;
    chunkSum = reinterpret_cast<float *>(chunkCount + kAll * kChunks);
    realTokens = argument<const int>(kSeq, args...)[2];
  }
};

// Stage 1, a block per layer and chunk: counts of assignments and, forward, sums of probabilities. Shared memory: an int per
// expert.
template <class P, class... Args>
Q35_DEVICE void router_aux_chunks(Args... args) {
  using A = RouterAuxArguments<P>;
  A a(args...);
  int layer = blockIdx.x / A::kChunks, chunk = blockIdx.x % A::kChunks, first = chunk * A::kChunk;
  int tokens = a.realTokens - first < A::kChunk ? a.realTokens - first : A::kChunk;
  const int *idx = argument<const int>(A::kIdx + layer, args...);
  int *count = reinterpret_cast<int *>(shared_memory());
  for (int e = threadIdx.x; e < P::experts; e += blockDim.x) count[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < tokens * int(P::topK); i += blockDim.x)
    atomicAdd(&count[idx[(first + i / int(P::topK)) * P::idxStride + i % int(P::topK)]], 1);
  __syncthreads();
  const float *probs = argument<const float>(A::kProbs + layer, args...) + first * P::probsStride;
  for (int e = threadIdx.x; e < P::experts; e += blockDim.x) {
    int64 at = int64(blockIdx.x) * P::experts + e;
    a.chunkCount[at] = count[e];
    if constexpr (!P::backward) {
      float sum = 0;
#pragma unroll 8
      for (int t = 0; t < tokens; ++t) sum += probs[t * P::probsStride + e];
      a.chunkSum[at] = sum;
    }
  }
}

// Stage 2, a thread per layer and expert: the chunks of it.
template <class P, class... Args>
Q35_DEVICE void router_aux_layers(Args... args) {
  using A = RouterAuxArguments<P>;
  A a(args...);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= A::kAll) return;
  int64 at = int64(i / P::experts) * A::kChunks * P::experts + i % P::experts;
  int count = 0;
  float sum = 0;
#pragma unroll 8
  for (int chunk = 0; chunk < A::kChunks; ++chunk) {
    count += a.chunkCount[at + chunk * P::experts];
    if constexpr (!P::backward) sum += a.chunkSum[at + chunk * P::experts];
  }
  a.count[i] = count;
  if constexpr (!P::backward) a.sum[i] = sum;
}

// Stage 3, one block of 256 threads.
template <class P, class... Args>
Q35_DEVICE void router_aux(Args... args) {
  using A = RouterAuxArguments<P>;
  A a(args...);
  __shared__ float scratch[8];
  float tokens = a.realTokens > 1 ? float(a.realTokens) : 1.0f, total = 0;
  for (int e = threadIdx.x; e < P::experts; e += 256) {
    if constexpr (P::pooled) {
      float count = 0, sum = 0, rows = tokens * float(P::layers);
      for (int layer = 0; layer < P::layers; ++layer) {
        count += float(a.count[layer * P::experts + e]);
        sum += a.sum[layer * P::experts + e];
      }
      total += (count / rows) * (sum / rows);
    } else {
      for (int layer = 0; layer < P::layers; ++layer)
        total += float(a.count[layer * P::experts + e]) * (a.sum[layer * P::experts + e] / tokens);
    }
  }
  total = block_sum<256>(total, scratch) * float(P::experts);
  if constexpr (!P::pooled) total = total / float(P::topK) / tokens;
  if (threadIdx.x == 0) *argument<float>(A::kOut, args...) = total;
}

// Stage 3 of router_stats, a thread per result: layers in order.
template <class P, class... Args>
Q35_DEVICE void router_stats(Args... args) {
  using A = RouterAuxArguments<P>;
  A a(args...);
  constexpr int kAdded = P::pooled ? P::layers : 1;
  int at = int(blockIdx.x) * int(blockDim.x) + int(threadIdx.x);
  if (at == 0) *argument<float>(A::kOut + 2, args...) = float(a.realTokens);
  if (at >= A::kAll / kAdded) return;
  float count = 0, sum = 0;
  for (int i = 0; i < kAdded; ++i) {
    count += float(a.count[at + i * P::experts]);
    sum += a.sum[at + i * P::experts];
  }
  argument<float>(A::kOut, args...)[at] = count;
  argument<float>(A::kOut + 1, args...)[at] = sum;
}

// What a probability adds to the loss per count of its expert, from the tokens of all ranks.
template <class P>
Q35_DEVICE float loss_per_count(float tokens) {
  float n = tokens > 1 ? tokens : 1.0f, rows = n * float(P::layers);
  if constexpr (P::pooled) return float(P::experts) / rows / rows;
  return float(P::experts) / float(P::topK) / n / n;
}

// One block of 256 threads. Constants: layers, experts, topK, pooled.
template <class P>
Q35_DEVICE void router_stats_aux(const float *counts, const float *sums, const float *tokens, float *aux) {
  __shared__ float scratch[8];
  constexpr int all = (P::pooled ? 1 : P::layers) * P::experts;
  float total = 0;
  for (int i = threadIdx.x; i < all; i += 256) total += counts[i] * sums[i];
  total = block_sum<256>(total, scratch);
  if (threadIdx.x == 0) *aux = total * loss_per_count<P>(*tokens);
}

// Arguments: daux, counts, tokens, the document table, dprobs of every layer. Constants also: tokens,
// dprobsStride. A block per layer and chunk of 128 tokens.
template <class P, class... Args>
Q35_DEVICE void router_stats_grad(const float *daux, const float *counts, const float *tokens, const int *seq,
                                  Args... dprobs) {
  constexpr int kChunk = 128, kChunks = (P::tokens + kChunk - 1) / kChunk;
  int layer = int(blockIdx.x) / kChunks, first = int(blockIdx.x) % kChunks * kChunk;
  int tokensHere = min(kChunk, int(P::tokens) - first), real = seq[2];
  float factor = *daux * loss_per_count<P>(*tokens);
  float *to = argument<float>(layer, dprobs...) + first * P::dprobsStride;
  if constexpr (!P::pooled) counts += layer * P::experts;
  for (int i = threadIdx.x; i < tokensHere * int(P::experts); i += blockDim.x) {
    int token = i / int(P::experts), e = i % int(P::experts);
    to[token * P::dprobsStride + e] = first + token < real ? counts[e] * factor : 0.0f;
  }
}

// Stage 3 backward, a block per layer and chunk: rows of padding get 0.
template <class P, class... Args>
Q35_DEVICE void router_aux_bwd(Args... args) {
  using A = RouterAuxArguments<P>;
  A a(args...);
  int layer = blockIdx.x / A::kChunks, first = blockIdx.x % A::kChunks * A::kChunk;
  int end = first + A::kChunk < P::tokens ? first + A::kChunk : int(P::tokens);
  float daux = *argument<const float>(0, args...), tokens = a.realTokens > 1 ? float(a.realTokens) : 1.0f;
  float *dprobs = argument<float>(A::kOut + layer, args...);
  // Threads that share a column where there are fewer experts than threads.
  int groups = P::experts < int(blockDim.x) ? int(blockDim.x) / int(P::experts) : 1;
  int group = P::experts < int(blockDim.x) ? int(threadIdx.x) / int(P::experts) : 0;
  if (group >= groups) return;
  for (int e = int(threadIdx.x) - group * int(P::experts); e < P::experts; e += blockDim.x) {
    float value;
    if constexpr (P::pooled) {
      float count = 0, rows = tokens * float(P::layers);
      for (int other = 0; other < P::layers; ++other) count += float(a.count[other * P::experts + e]);
      value = (count / rows) * (daux * float(P::experts) / rows);
    } else {
      value = float(a.count[layer * P::experts + e]) * (daux * (float(P::experts) / float(P::topK)) / tokens / tokens);
    }
    for (int t = first + group; t < end; t += groups)
      dprobs[t * P::dprobsStride + e] = t < a.realTokens ? value : 0.0f;
  }
}

} // namespace q35
