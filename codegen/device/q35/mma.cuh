#pragma once
#include "q35/base.cuh"

// Products of small matrices by a warp, and the loads that feed them (sm_80 and later).
//
// Fragments, with g = lane / 4 and t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "m16n8k8"):
//   c, both      c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8
//   bf16, k 16   a[0]: row g, k 2t and 2t + 1 (the low half is the even one); a[1]: row g + 8; a[2], a[3]: those at k + 8
//                b[0]: k 2t and 2t + 1, column g; b[1]: those at k + 8
//   tf32, k 8    a[0]: row g, k t; a[1]: row g + 8; a[2], a[3]: those at k + 4; b[0]: k t, column g; b[1]: at k + 4
//
// ldmatrix reads 8x8 matrices of 16-bit elements: matrix m has its rows where lanes 8m to 8m + 7 point, 16 aligned bytes
// of shared memory each, and lands in r[m]: row g, columns 2t and 2t + 1, or transposed. So with A [16][k] in shared memory
//   ldmatrix_x4(a, &A[lane % 16][k0 + lane / 16 * 8])           is a of an mma_bf16 at k0,
// with B stored [n][k]
//   ldmatrix_x2(b, &B[n0 + lane % 8][k0 + lane / 8 % 2 * 8])    is its b,
// with B stored [k][n]
//   ldmatrix_x2_trans(b, &B[k0 + lane % 16][n0])                is its b,
// and with A stored [k][16]
//   ldmatrix_x4_trans(a, &A[k0 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]).

namespace q35 {

#ifndef Q35_EMULATE

// c += a b.
Q35_DEVICE void mma_bf16(float (&c)[4], const uint (&a)[4], const uint (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c += a b, elements by to_tf32.
Q35_DEVICE void mma_tf32(float (&c)[4], const uint (&a)[4], const uint (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// To the nearest of 10 bits of mantissa, ties away from zero.
Q35_DEVICE uint to_tf32(float value) {
  uint bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

Q35_DEVICE uint shared_address(const void *shared) { return static_cast<uint>(__cvta_generic_to_shared(shared)); }

Q35_DEVICE void ldmatrix_x4(uint (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

Q35_DEVICE void ldmatrix_x2(uint (&r)[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

Q35_DEVICE void ldmatrix_x4_trans(uint (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

Q35_DEVICE void ldmatrix_x2_trans(uint (&r)[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// The inverse of ldmatrix_x4_trans; sm_90 and later.
Q35_DEVICE void stmatrix_x4_trans(void *row, const uint (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Starts to copy 16 bytes, both sides aligned to 16; zeros if !valid, and then `global` is not read and may be anything.
Q35_DEVICE void cp_async16(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// Makes a group of what this thread has started since the last commit.
Q35_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread but the last N. Others see the bytes after a barrier.
template <int N>
Q35_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

namespace emulated {

using Floats8 = float __attribute__((vector_size(32)));

// c [16][8] += a [16][k] b [k][8] by the warp whose fragments lie in `in`: c, then a, then b. `element(word, i)` is element
// i of the Pack elements in a word.
template <int K, int Pack, class Element>
inline void multiply(Thread *warp, Element element) {
  float a[16][K];
  Floats8 b[K], c[16];
  for (int lane = 0; lane < 32; ++lane) {
    const unsigned *in = warp[lane].in;
    int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < Pack; ++i) {
        int k = half * K / 2 + t * Pack + i;
        a[g][k] = element(in[4 + half * 2], i);
        a[g + 8][k] = element(in[5 + half * 2], i);
        b[k][g] = element(in[8 + half], i);
      }
    for (int i = 0; i < 4; ++i) c[g + i / 2 * 8][t * 2 + i % 2] = bits_to_float(in[i]);
  }
  for (int row = 0; row < 16; ++row) {
    Floats8 sum = {};
    for (int k = 0; k < K; ++k) sum += a[row][k] * b[k];
    c[row] += sum;
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      warp[lane].out[i] = float_to_bits(c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

template <class Multiply>
inline void mma(const char *what, Site site, float (&c)[4], const uint (&a)[4], const uint (&b)[2],
                Multiply multiply) {
  unsigned *in = self().in;
  for (int i = 0; i < 4; ++i) in[i] = float_to_bits(c[i]);
  for (int i = 0; i < 4; ++i) in[4 + i] = a[i];
  for (int i = 0; i < 2; ++i) in[8 + i] = b[i];
  warp_collective(what, site, ~0u, [&](Thread *warp, unsigned lanes) {
    if (lanes != ~0u) fail("%s needs a full warp", what);
    multiply(warp);
  });
  for (int i = 0; i < 4; ++i) c[i] = bits_to_float(self().out[i]);
}

inline void check_shared(const char *what, Site site, const void *row, int bytes = 16) {
  if (!is_shared(row) || !is_shared(static_cast<const char *>(row) + bytes - 1))
    fail("%s of %p, which is not in shared memory (%s:%d)", what, row, base_name(site.file), site.line);
  if (reinterpret_cast<unsigned long>(row) % 16 != 0)
    fail("%s of %p, which is not aligned (%s:%d)", what, row, base_name(site.file), site.line);
}

template <int Matrices, bool Transposed>
inline void ldmatrix(const char *what, Site site, uint (&r)[Matrices], const void *row) {
  if (lane() < Matrices * 8) check_shared(what, site, row);
  memcpy(self().in, &row, sizeof row);
  warp_collective(what, site, ~0u, [&](Thread *warp, unsigned lanes) {
    if (lanes != ~0u) fail("%s needs a full warp", what);
    for (int m = 0; m < Matrices; ++m) {
      ushort matrix[8][8];
      for (int i = 0; i < 8; ++i) {
        const void *from;
        memcpy(&from, warp[m * 8 + i].in, sizeof from);
        memcpy(matrix[i], from, 16);
      }
      for (int lane = 0; lane < 32; ++lane) {
        int g = lane / 4, t = lane % 4;
        ushort low = Transposed ? matrix[t * 2][g] : matrix[g][t * 2];
        ushort high = Transposed ? matrix[t * 2 + 1][g] : matrix[g][t * 2 + 1];
        warp[lane].out[m] = uint(high) << 16 | low;
      }
    }
  });
  for (int m = 0; m < Matrices; ++m) r[m] = self().out[m];
}

inline void stmatrix_trans(const char *what, Site site, void *row, const uint (&r)[4]) {
  check_shared(what, site, row);
  memcpy(self().in, &row, sizeof row);
  for (int m = 0; m < 4; ++m) self().in[2 + m] = r[m];
  warp_collective(what, site, ~0u, [&](Thread *warp, unsigned lanes) {
    if (lanes != ~0u) fail("%s needs a full warp", what);
    for (int m = 0; m < 4; ++m) {
      ushort matrix[8][8];
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 2; ++i) matrix[lane % 4 * 2 + i][lane / 4] = ushort(warp[lane].in[2 + m] >> i * 16);
      for (int i = 0; i < 8; ++i) {
        void *to;
        memcpy(&to, warp[m * 8 + i].in, sizeof to);
        memcpy(to, matrix[i], 16);
      }
    }
  });
}

inline void do_copy(const Copy &copy) {
  if (copy.from)
    memcpy(copy.to, copy.from, 16);
  else
    memset(copy.to, 0, 16);
}

} // namespace emulated

inline void mma_bf16(float (&c)[4], const uint (&a)[4], const uint (&b)[2],
                     emulated::Site site = emulated::Site::here()) {
  emulated::mma("mma_bf16", site, c, a, b, [](emulated::Thread *warp) {
    emulated::multiply<16, 2>(warp, [](uint word, int i) { return bits_to_float(i ? word & 0xFFFF0000u : word << 16); });
  });
}

inline void mma_tf32(float (&c)[4], const uint (&a)[4], const uint (&b)[2],
                     emulated::Site site = emulated::Site::here()) {
  emulated::mma("mma_tf32", site, c, a, b, [](emulated::Thread *warp) {
    emulated::multiply<8, 1>(warp, [](uint word, int) { return bits_to_float(word & 0xFFFFE000u); });
  });
}

inline uint to_tf32(float value) {
  if (value != value) return 0x7FFFFFFF;
  uint bits = float_to_bits(value);
  return (bits & 0x7F800000u) == 0x7F800000u ? bits : (bits + 0x1000u) & 0xFFFFE000u;
}

inline void ldmatrix_x4(uint (&r)[4], const void *row, emulated::Site site = emulated::Site::here()) {
  emulated::ldmatrix<4, false>("ldmatrix_x4", site, r, row);
}
inline void ldmatrix_x2(uint (&r)[2], const void *row, emulated::Site site = emulated::Site::here()) {
  emulated::ldmatrix<2, false>("ldmatrix_x2", site, r, row);
}
inline void ldmatrix_x4_trans(uint (&r)[4], const void *row, emulated::Site site = emulated::Site::here()) {
  emulated::ldmatrix<4, true>("ldmatrix_x4_trans", site, r, row);
}
inline void ldmatrix_x2_trans(uint (&r)[2], const void *row, emulated::Site site = emulated::Site::here()) {
  emulated::ldmatrix<2, true>("ldmatrix_x2_trans", site, r, row);
}

inline void stmatrix_x4_trans(void *row, const uint (&r)[4], emulated::Site site = emulated::Site::here()) {
  emulated::stmatrix_trans("stmatrix_x4_trans", site, row, r);
}

// Copies when they are waited for; with threads reversed at once, as the GPU may do either.
inline void cp_async16(void *shared, const void *global, bool valid, emulated::Site site = emulated::Site::here()) {
  emulated::check_shared("cp_async16", site, shared);
  if (valid && reinterpret_cast<unsigned long>(global) % 16 != 0)
    emulated::fail("cp_async16 from %p, which is not aligned (%s:%d)", global, emulated::base_name(site.file), site.line);
  emulated::Thread &thread = emulated::self();
  emulated::Copy copy = {static_cast<unsigned char *>(shared),
                         valid ? static_cast<const unsigned char *>(global) : nullptr, thread.group};
  if (emulated::machine.order == 1) return emulated::do_copy(copy);
  if (thread.copyCount == thread.copyRoom) {
    thread.copyRoom = thread.copyRoom * 2 + 16;
    thread.copies = static_cast<emulated::Copy *>(realloc(thread.copies, thread.copyRoom * sizeof copy));
  }
  thread.copies[thread.copyCount++] = copy;
}

inline void cp_async_commit() { ++emulated::self().group; }

namespace emulated {

// Copies of the groups before `group`.
inline void finish_copies(Thread &thread, int group) {
  int kept = 0;
  for (int i = 0; i < thread.copyCount; ++i)
    if (Copy copy = thread.copies[i]; copy.group < group)
      do_copy(copy);
    else
      thread.copies[kept++] = copy;
  thread.copyCount = kept;
}

} // namespace emulated

template <int N>
inline void cp_async_wait() {
  emulated::finish_copies(emulated::self(), emulated::self().group - N);
}

#endif

} // namespace q35
