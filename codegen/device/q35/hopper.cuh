#pragma once
#include "q35/mma.cuh"

// What only Hopper has: products of a warpgroup (wgmma), copies of boxes of tensors (TMA), barriers in shared memory that
// count bytes, and registers that move between warpgroups.
//
// Tiles in shared memory have 128-byte rows of 64 elements, and their 16-byte chunks are swizzled: chunk i of the row at
// address a (1024-byte aligned tiles) lies at place i ^ (a / 128 % 8). A tile of more columns is one such block of 64
// after another.
//
// Fragments are those of mma m16n8k16 (q35/mma.cuh), warp w of the warpgroup having rows 16w to 16w + 15: accumulators
// c[column / 8], and a, where it is in registers.

namespace q35 {

using uint64 = unsigned long long;
using Barrier = unsigned long long;

// An array of bf16 as the copy engine sees it, in global memory.
struct __align__(128) TensorMap {
  unsigned char bytes[128];
};

// Where 16-byte chunk `chunk` (of 8) of row `row` of a block lies, in bytes.
Q35_DEVICE int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ row) & 7) * 16; }

#ifndef Q35_EMULATE

// --- Barriers

Q35_DEVICE void barrier_init(Barrier *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// After the last barrier_init and before the __syncthreads() that publishes them.
Q35_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

Q35_DEVICE void barrier_arrive(Barrier *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and the phase shall not end before `bytes` more have been copied.
Q35_DEVICE void barrier_arrive_expect(Barrier *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Arrives once all that this thread has started by cp.async has landed. It was written through another proxy than products
// read through: fence_async_proxy after the wait.
Q35_DEVICE void barrier_arrive_copied(Barrier *barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits for the end of the phase of this parity: that of phase n is n % 2.
Q35_DEVICE void barrier_wait(Barrier *barrier, int parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "WAIT:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra DONE;\n"
               "bra WAIT;\n"
               "DONE:\n"
               "}" ::"r"(shared_address(barrier)),
               "r"(parity)
               : "memory");
}

// Barriers 1 to 15 of the block for `threads` of its threads: wait for all of them, or only say that one is here.
Q35_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
Q35_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- Registers of a warpgroup

template <int N>
Q35_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
Q35_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// --- Copies

// What this thread has written to shared memory may be read by copies and products after a barrier.
Q35_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

namespace hopper {

template <int I>
Q35_DEVICE void replace_box(uint map, uint value) {
  asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], %1, %2;" ::"l"(uint64(map)), "n"(I),
               "r"(value)
               : "memory");
}
template <int I>
Q35_DEVICE void replace_dim(uint map, uint value) {
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], %1, %2;" ::"l"(uint64(map)), "n"(I),
               "r"(value)
               : "memory");
}
template <int I>
Q35_DEVICE void replace_stride(uint map, int64 bytes) {
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], %1, %2;" ::"l"(uint64(map)), "n"(I),
               "l"(bytes)
               : "memory");
}
template <int I>
Q35_DEVICE void replace_element_stride(uint map) {
  asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], %1, %2;" ::"l"(uint64(map)), "n"(I),
               "r"(1)
               : "memory");
}

} // namespace hopper

// Describes a tensor of four dimensions, the fastest first and contiguous; strides in bytes, those of dimensions 1 to 3.
// Boxes of it have 64 elements in dimension 0 and are swizzled. By one full warp; `scratch` is in shared memory. Kernels
// after this one may use it, after tensor_map_acquire.
Q35_DEVICE void make_tensor_map(TensorMap *map, TensorMap *scratch, const bf16 *base, const int (&dims)[4],
                                const int64 (&strides)[3], const int (&box)[4]) {
  reinterpret_cast<uint *>(scratch->bytes)[threadIdx.x % 32] = 0;
  __syncwarp();
  uint to = shared_address(scratch);
  if (threadIdx.x % 32 == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"l"(uint64(to)), "l"(base)
                 : "memory");
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 3;" ::"l"(uint64(to)) : "memory");
    hopper::replace_box<0>(to, box[0]);
    hopper::replace_box<1>(to, box[1]);
    hopper::replace_box<2>(to, box[2]);
    hopper::replace_box<3>(to, box[3]);
    hopper::replace_dim<0>(to, dims[0]);
    hopper::replace_dim<1>(to, dims[1]);
    hopper::replace_dim<2>(to, dims[2]);
    hopper::replace_dim<3>(to, dims[3]);
    hopper::replace_stride<0>(to, strides[0]);
    hopper::replace_stride<1>(to, strides[1]);
    hopper::replace_stride<2>(to, strides[2]);
    hopper::replace_element_stride<0>(to);
    hopper::replace_element_stride<1>(to);
    hopper::replace_element_stride<2>(to);
    hopper::replace_element_stride<3>(to);
    // bf16, not interleaved, 128-byte swizzle, zeros outside.
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 10;" ::"l"(uint64(to)) : "memory");
    asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"l"(uint64(to)) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"l"(uint64(to)) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"l"(uint64(to)) : "memory");
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
               "128;" ::"l"(map),
               "l"(uint64(to))
               : "memory");
  __syncwarp();
}

// Before the first copy with a map that an earlier kernel made, by the thread that copies.
Q35_DEVICE void tensor_map_acquire(const TensorMap *map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Copies the box at these coordinates to shared memory, dimension 0 fastest, zeros where it leaves the tensor. Counts its
// bytes at `barrier`. One thread.
Q35_DEVICE void tensor_load(void *shared, const TensorMap *map, Barrier *barrier, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
               "%6}], [%2];" ::"r"(shared_address(shared)),
               "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// Starts to copy bytes of shared memory to global memory: multiples of 16 at 16-byte boundaries. What ordinary stores left
// there needs fence_async_proxy. One thread, as are the two below for its own copies.
Q35_DEVICE void bulk_store(void *global, const void *shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}
Q35_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all committed copies have read shared memory: before it is written again, and before the block ends.
Q35_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// --- Products of a warpgroup

// Before the first product of a group, and whenever registers that it reads were written.
Q35_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
Q35_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all groups but the last N.
template <int N>
Q35_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from moving accesses of c over this point.
template <int N>
Q35_DEVICE void pin(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n][i])::"memory");
}

// The compiler shall not know where this value comes from, and so not keep what follows from it in registers.
Q35_DEVICE void hide(uint64 &value) { asm volatile("" : "+l"(value)); }

// An operand in shared memory, swizzled: 8 rows of 128 bytes are `stride` bytes from the next 8. An operand stored
// [k][n] goes on `leading` bytes after 64 columns; one stored [n][k] (or a, [m][k]) is at most 64 wide. Adding n to it
// moves it by 16 n bytes.
Q35_DEVICE uint64 wgmma_operand(const void *shared, int leading, int stride) {
  return uint64(shared_address(shared) >> 4) | uint64(leading >> 4) << 16 | uint64(stride >> 4) << 32 | uint64(1) << 62;
}

#define Q35_REGISTERS_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define Q35_REGISTERS_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define Q35_REGISTERS_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define Q35_REGISTERS_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define Q35_REGISTERS_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define Q35_REGISTERS_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define Q35_REGISTERS_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define Q35_REGISTERS_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define Q35_REGISTERS_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define Q35_REGISTERS_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define Q35_REGISTERS_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define Q35_REGISTERS_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define Q35_REGISTERS_12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define Q35_REGISTERS_13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define Q35_REGISTERS_14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define Q35_REGISTERS_15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define Q35_ROW(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define Q35_ROW2(n) Q35_ROW(n), Q35_ROW(n + 1)

// c [64][64] = a b (+ c if accumulate), b stored [n][k].
Q35_DEVICE void wgmma(float (&c)[8][4], uint64 a, uint64 b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" Q35_REGISTERS_0 ", " Q35_REGISTERS_1 ", " Q35_REGISTERS_2 ", " Q35_REGISTERS_3 "}, %32, %33, p, 1, 1, 0, 0; }"
               : Q35_ROW2(0), Q35_ROW2(2), Q35_ROW2(4), Q35_ROW2(6)
               : "l"(a), "l"(b), "r"(int(accumulate)));
}

// c [64][80] = a b (+ c if accumulate), b stored [n][k].
Q35_DEVICE void wgmma(float (&c)[10][4], uint64 a, uint64 b, bool accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %42, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" Q35_REGISTERS_0 ", " Q35_REGISTERS_1 ", " Q35_REGISTERS_2 ", " Q35_REGISTERS_3 ", " Q35_REGISTERS_4 "}, %40, %41, p, 1, 1, 0, 0; }"
               : Q35_ROW2(0), Q35_ROW2(2), Q35_ROW2(4), Q35_ROW2(6), Q35_ROW2(8)
               : "l"(a), "l"(b), "r"(int(accumulate)));
}

// c [64][256] += a b, a in registers, b stored [k][n].
Q35_DEVICE void wgmma_registers(float (&c)[32][4], const uint (&a)[4], uint64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" Q35_REGISTERS_0 ", " Q35_REGISTERS_1 ", " Q35_REGISTERS_2 ", " Q35_REGISTERS_3 ", " Q35_REGISTERS_4 ", " Q35_REGISTERS_5 ", " Q35_REGISTERS_6 ", " Q35_REGISTERS_7 ", " Q35_REGISTERS_8 ", " Q35_REGISTERS_9 ", " Q35_REGISTERS_10 ", " Q35_REGISTERS_11 ", " Q35_REGISTERS_12 ", " Q35_REGISTERS_13 ", " Q35_REGISTERS_14 ", " Q35_REGISTERS_15 "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : Q35_ROW2(0), Q35_ROW2(2), Q35_ROW2(4), Q35_ROW2(6), Q35_ROW2(8), Q35_ROW2(10), Q35_ROW2(12), Q35_ROW2(14), Q35_ROW2(16), Q35_ROW2(18), Q35_ROW2(20), Q35_ROW2(22), Q35_ROW2(24), Q35_ROW2(26), Q35_ROW2(28), Q35_ROW2(30)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// c [64][256] += a b. AcrossA: a is stored [k][m], else [m][k]; AcrossB: b is stored [k][n], else [n][k].
template <bool AcrossA, bool AcrossB>
Q35_DEVICE void wgmma_add(float (&c)[32][4], uint64 a, uint64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" Q35_REGISTERS_0 ", " Q35_REGISTERS_1 ", " Q35_REGISTERS_2 ", " Q35_REGISTERS_3 ", " Q35_REGISTERS_4 ", " Q35_REGISTERS_5 ", " Q35_REGISTERS_6 ", " Q35_REGISTERS_7 ", " Q35_REGISTERS_8 ", " Q35_REGISTERS_9 ", " Q35_REGISTERS_10 ", " Q35_REGISTERS_11 ", " Q35_REGISTERS_12 ", " Q35_REGISTERS_13 ", " Q35_REGISTERS_14 ", " Q35_REGISTERS_15 "}, %128, %129, 1, 1, 1, %130, %131;"
               : Q35_ROW2(0), Q35_ROW2(2), Q35_ROW2(4), Q35_ROW2(6), Q35_ROW2(8), Q35_ROW2(10), Q35_ROW2(12), Q35_ROW2(14), Q35_ROW2(16), Q35_ROW2(18), Q35_ROW2(20), Q35_ROW2(22), Q35_ROW2(24), Q35_ROW2(26), Q35_ROW2(28), Q35_ROW2(30)
               : "l"(a), "l"(b), "n"(int(AcrossA)), "n"(int(AcrossB)));
}

#undef Q35_ROW2
#undef Q35_ROW
#undef Q35_REGISTERS_0
#undef Q35_REGISTERS_1
#undef Q35_REGISTERS_2
#undef Q35_REGISTERS_3
#undef Q35_REGISTERS_4
#undef Q35_REGISTERS_5
#undef Q35_REGISTERS_6
#undef Q35_REGISTERS_7
#undef Q35_REGISTERS_8
#undef Q35_REGISTERS_9
#undef Q35_REGISTERS_10
#undef Q35_REGISTERS_11
#undef Q35_REGISTERS_12
#undef Q35_REGISTERS_13
#undef Q35_REGISTERS_14
#undef Q35_REGISTERS_15

#else

namespace emulated {

// --- Barriers. Bits of one: parity of the phase, arrivals per phase (15), arrivals missing (16), bytes missing (32).

struct BarrierState {
  uint phase : 1, arrivals : 15, missing : 16;
  int bytes;
};

inline BarrierState &state_of(Barrier *barrier, const char *what, Site site) {
  if (!is_shared(barrier)) fail("%s of a barrier not in shared memory (%s:%d)", what, base_name(site.file), site.line);
  return *reinterpret_cast<BarrierState *>(barrier);
}

inline void end_phase(BarrierState &state) {
  if (state.missing != 0 || state.bytes != 0) return;
  state.phase ^= 1;
  state.missing = state.arrivals;
}

// A copy of a box that has not landed yet.
struct BoxCopy {
  unsigned char *to;
  const struct MapFields *map;
  Barrier *barrier;
  int at[4];
};
struct MapFields {
  const unsigned char *base;
  long long strides[3];
  int dims[4], box[4];
  unsigned magic;
};
constexpr unsigned kMapMagic = 0x35AD31A9;
static_assert(sizeof(MapFields) <= sizeof(TensorMap));
constexpr int kMaxBoxes = 64;
inline BoxCopy boxes[kMaxBoxes];
inline int boxCount;

inline void land(const BoxCopy &copy) {
  const MapFields &map = *copy.map;
  int at[4];
  unsigned offset = unsigned(copy.to - machine.dynamic);
  int bytes = 0;
  for (at[3] = 0; at[3] < map.box[3]; ++at[3])
    for (at[2] = 0; at[2] < map.box[2]; ++at[2])
      for (at[1] = 0; at[1] < map.box[1]; ++at[1])
        for (at[0] = 0; at[0] < map.box[0]; at[0] += 8, offset += 16, bytes += 16) {
          bool inside = true;
          const unsigned char *from = map.base + (copy.at[0] + at[0]) * 2LL;
          for (int d = 0; d < 4; ++d) {
            int c = copy.at[d] + at[d];
            inside &= c >= 0 && c < map.dims[d];
            if (d > 0) from += c * map.strides[d - 1];
          }
          unsigned char *to = machine.dynamic + (offset ^ (offset >> 7 & 7) << 4);
          if (inside)
            memcpy(to, from, 16);
          else
            memset(to, 0, 16);
        }
  auto &state = *reinterpret_cast<BarrierState *>(copy.barrier);
  state.bytes -= bytes;
  end_phase(state);
}

// A thread that arrives when its cp.async up to `group` have landed.
struct CopyArrival {
  Thread *thread;
  Barrier *barrier;
  int group;
};
inline CopyArrival *copyArrivals;
inline int copyArrivalCount, copyArrivalRoom;

inline void arrive(Barrier *barrier, const char *what, Site site) {
  auto &state = state_of(barrier, what, site);
  if (state.missing == 0) fail("arrives too often (%s:%d)", base_name(site.file), site.line);
  --state.missing;
  end_phase(state);
}

inline void land_all(Barrier *barrier, Site site) {
  int kept = 0;
  for (int i = 0; i < copyArrivalCount; ++i) {
    CopyArrival arrival = copyArrivals[i];
    if (arrival.barrier != barrier) {
      copyArrivals[kept++] = arrival;
      continue;
    }
    finish_copies(*arrival.thread, arrival.group);
    arrive(barrier, "barrier_arrive_copied", site);
  }
  copyArrivalCount = kept;
  kept = 0;
  for (int i = 0; i < boxCount; ++i)
    if (boxes[i].barrier == barrier)
      land(boxes[i]);
    else
      boxes[kept++] = boxes[i];
  boxCount = kept;
}

struct NamedBarrier {
  int arrived;
  unsigned rounds;
};
inline NamedBarrier namedBarriers[16];

inline void arrive_named(int id, int threads) {
  if (id < 1 || id > 15 || threads % 32 != 0) fail("has no barrier %d for %d threads", id, threads);
  NamedBarrier &barrier = namedBarriers[id];
  if (++barrier.arrived < threads) return;
  barrier.arrived = 0;
  ++barrier.rounds;
}

// --- Products, which happen when they are waited for; with threads reversed at once.

struct Product {
  float (*c)[4];
  uint a[4];
  uint64 aOperand, b;
  int columns, group;
  bool aInRegisters, bTransposed, accumulate, aTransposed = false;
};
struct Products {
  Product *list;
  int count, room, group;
};
inline Products products[kMaxThreads];

inline float element(uint64 operand, int row, int k, bool transposed) {
  unsigned start = unsigned(operand & 0x3FFF) << 4, leading = unsigned(operand >> 16 & 0x3FFF) << 4;
  unsigned stride = unsigned(operand >> 32 & 0x3FFF) << 4;
  unsigned at = transposed ? start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128
                           : start + row / 8 * stride + row % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  if (at + 2 > machine.sharedBytes) fail("wgmma reads byte %u of %lld bytes of dynamic shared memory", at, machine.sharedBytes);
  ushort bits;
  memcpy(&bits, machine.dynamic + at, 2);
  return bits_to_float(uint(bits) << 16);
}

// Product number `index` of every lane of a warp.
inline void multiply(Products *warp, int index, int firstRow) {
  const Product &product = warp[0].list[index];
  float a[16][16];
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) {
      if (product.aInRegisters) {
        uint word = warp[row % 8 * 4 + k % 8 / 2].list[index].a[row / 8 + k / 8 * 2];
        a[row][k] = bits_to_float(k % 2 ? word & 0xFFFF0000u : word << 16);
      } else {
        a[row][k] = element(product.aOperand, firstRow + row, k, product.aTransposed);
      }
    }
  float b[16][256];
  for (int n = 0; n < product.columns; ++n)
    for (int k = 0; k < 16; ++k) b[k][n] = element(product.b, n, k, product.bTransposed);
  for (int row = 0; row < 16; ++row) {
    float sum[256] = {};
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < product.columns; ++n) sum[n] += a[row][k] * b[k][n];
    for (int n = 0; n < product.columns; ++n) {
      float &c = warp[row % 8 * 4 + n % 8 / 2].list[index].c[n / 8][row / 8 * 2 + n % 2];
      c = product.accumulate ? c + sum[n] : sum[n];
    }
  }
}

inline void finish_products(const char *what, Site site, int kept) {
  warp_collective(what, site, ~0u, [&](Thread *warp, unsigned lanes) {
    int first = int(warp - machine.thread);
    Products *list = products + first;
    if (lanes != ~0u) fail("%s needs a full warp", what);
    int done = 0;
    while (done < list->count && list->list[done].group < list->group - kept) ++done;
    for (int i = 0; i < done; ++i) multiply(list, i, first % 128 / 32 * 16);
    for (int lane = 0; lane < 32; ++lane) {
      Products &own = list[lane];
      for (int i = done; i < own.count; ++i) own.list[i - done] = own.list[i];
      own.count -= done;
    }
  });
}

inline void add_product(const Product &product, Site site) {
  Products &own = products[machine.current];
  if (own.count == own.room) {
    own.room = own.room * 2 + 32;
    own.list = static_cast<Product *>(realloc(own.list, own.room * sizeof product));
  }
  own.list[own.count] = product;
  own.list[own.count++].group = own.group;
  if (machine.order == 1) finish_products("wgmma", site, -1);
}

} // namespace emulated

inline void barrier_init(Barrier *barrier, int arrivals, emulated::Site site = emulated::Site::here()) {
  auto &state = emulated::state_of(barrier, "barrier_init", site);
  state.phase = 0;
  state.arrivals = state.missing = arrivals;
  state.bytes = 0;
}
inline void barrier_init_fence() { emulated::boxCount = emulated::copyArrivalCount = 0; }
inline void barrier_arrive(Barrier *barrier, emulated::Site site = emulated::Site::here()) {
  emulated::arrive(barrier, "barrier_arrive", site);
}
inline void barrier_arrive_copied(Barrier *barrier, emulated::Site site = emulated::Site::here()) {
  if (emulated::machine.order == 1) return emulated::arrive(barrier, "barrier_arrive_copied", site);
  emulated::Thread &thread = emulated::self();
  if (emulated::copyArrivalCount == emulated::copyArrivalRoom) {
    emulated::copyArrivalRoom = emulated::copyArrivalRoom * 2 + 512;
    emulated::copyArrivals = static_cast<emulated::CopyArrival *>(
        realloc(emulated::copyArrivals, emulated::copyArrivalRoom * sizeof(emulated::CopyArrival)));
  }
  emulated::copyArrivals[emulated::copyArrivalCount++] = {&thread, barrier, ++thread.group};
}
inline void barrier_arrive_expect(Barrier *barrier, int bytes, emulated::Site site = emulated::Site::here()) {
  emulated::state_of(barrier, "barrier_arrive_expect", site).bytes += bytes;
  barrier_arrive(barrier, site);
}
inline void barrier_wait(Barrier *barrier, int parity, emulated::Site site = emulated::Site::here()) {
  auto &state = emulated::state_of(barrier, "barrier_wait", site);
  emulated::land_all(barrier, site);
  emulated::wait_until("barrier_wait", site, [&] {
    emulated::land_all(barrier, site);
    return int(state.phase) != parity;
  });
}
inline void named_barrier_arrive(int id, int threads) { emulated::arrive_named(id, threads); }
inline void named_barrier_sync(int id, int threads, emulated::Site site = emulated::Site::here()) {
  emulated::NamedBarrier &barrier = emulated::namedBarriers[id];
  unsigned round = barrier.rounds;
  emulated::arrive_named(id, threads);
  emulated::wait_until("named_barrier_sync", site, [&] { return barrier.rounds != round; });
}
template <int N>
inline void take_registers() {}
template <int N>
inline void give_registers() {}
inline void fence_async_proxy() {}

inline void make_tensor_map(TensorMap *map, TensorMap *scratch, const bf16 *base, const int (&dims)[4],
                            const int64 (&strides)[3], const int (&box)[4],
                            emulated::Site site = emulated::Site::here()) {
  if (!emulated::is_shared(scratch)) emulated::fail("make_tensor_map needs shared memory");
  if (reinterpret_cast<unsigned long>(map) % 128 != 0 || reinterpret_cast<unsigned long>(base) % 16 != 0)
    emulated::fail("make_tensor_map of misaligned addresses (%s:%d)", emulated::base_name(site.file), site.line);
  emulated::MapFields fields = {reinterpret_cast<const unsigned char *>(base), {}, {}, {}, emulated::kMapMagic};
  for (int d = 0; d < 4; ++d) {
    fields.dims[d] = dims[d];
    fields.box[d] = box[d];
    if (box[d] < 1 || box[d] > 256) emulated::fail("make_tensor_map with a box of %d", box[d]);
    if (d < 3) fields.strides[d] = strides[d];
    if (d < 3 && strides[d] % 16 != 0) emulated::fail("make_tensor_map with a stride of %lld bytes", strides[d]);
  }
  if (box[0] != 64) emulated::fail("make_tensor_map with rows of %d", box[0]);
  memcpy(map->bytes, &fields, sizeof fields);
}
inline void tensor_map_acquire(const TensorMap *) {}

inline void tensor_load(void *shared, const TensorMap *map, Barrier *barrier, int c0, int c1, int c2, int c3,
                        emulated::Site site = emulated::Site::here()) {
  emulated::check_shared("tensor_load", site, shared);
  auto *fields = reinterpret_cast<const emulated::MapFields *>(map->bytes);
  if ((static_cast<unsigned char *>(shared) - emulated::machine.dynamic) % 1024 != 0 ||
      fields->magic != emulated::kMapMagic)
    emulated::fail("tensor_load to a misaligned tile, or without a map (%s:%d)", emulated::base_name(site.file),
                   site.line);
  emulated::BoxCopy copy = {static_cast<unsigned char *>(shared), fields, barrier, {c0, c1, c2, c3}};
  if (emulated::machine.order == 1) return emulated::land(copy);
  if (emulated::boxCount == emulated::kMaxBoxes) emulated::fail("has too many copies that nobody waits for");
  emulated::boxes[emulated::boxCount++] = copy;
}

namespace emulated {

// Copies to global memory, which land when they are waited for; with threads reversed at once.
struct BulkStore {
  void *to;
  const void *from;
  int bytes;
};
struct BulkStores {
  BulkStore *list;
  int count, room;
};
inline BulkStores bulkStores[kMaxThreads];

} // namespace emulated

inline void bulk_store(void *global, const void *shared, int bytes,
                       emulated::Site site = emulated::Site::here()) {
  emulated::check_shared("bulk_store", site, shared, bytes);
  if (reinterpret_cast<unsigned long>(global) % 16 != 0 || bytes % 16 != 0 || bytes <= 0)
    emulated::fail("bulk_store of %d bytes to %p (%s:%d)", bytes, global, emulated::base_name(site.file), site.line);
  if (emulated::machine.order == 1) {
    memcpy(global, shared, bytes);
    return;
  }
  emulated::BulkStores &own = emulated::bulkStores[emulated::machine.current];
  if (own.count == own.room) {
    own.room = own.room * 2 + 16;
    own.list = static_cast<emulated::BulkStore *>(realloc(own.list, own.room * sizeof *own.list));
  }
  own.list[own.count++] = {global, shared, bytes};
}
inline void bulk_commit() {}
inline void bulk_wait_read() {
  emulated::BulkStores &own = emulated::bulkStores[emulated::machine.current];
  for (int i = 0; i < own.count; ++i) memcpy(own.list[i].to, own.list[i].from, own.list[i].bytes);
  own.count = 0;
}

inline void wgmma_fence() {}
inline void wgmma_commit() { ++emulated::products[emulated::machine.current].group; }
template <int N>
inline void wgmma_wait(emulated::Site site = emulated::Site::here()) {
  emulated::finish_products("wgmma_wait", site, N);
}
template <int N>
inline void pin(float (&)[N][4]) {}
inline void hide(uint64 &) {}

inline uint64 wgmma_operand(const void *shared, int leading, int stride,
                            emulated::Site site = emulated::Site::here()) {
  emulated::check_shared("wgmma_operand", site, shared);
  auto offset = uint64(static_cast<const unsigned char *>(shared) - emulated::machine.dynamic);
  return offset >> 4 | uint64(leading >> 4) << 16 | uint64(stride >> 4) << 32 | uint64(1) << 62;
}

template <int N>
inline void wgmma(float (&c)[N][4], uint64 a, uint64 b, bool accumulate,
                  emulated::Site site = emulated::Site::here()) {
  emulated::add_product({c, {}, a, b, N * 8, 0, false, false, accumulate}, site);
}
template <int N>
inline void wgmma_registers(float (&c)[N][4], const uint (&a)[4], uint64 b,
                            emulated::Site site = emulated::Site::here()) {
  emulated::add_product({c, {a[0], a[1], a[2], a[3]}, 0, b, N * 8, 0, true, true, true}, site);
}
template <bool AcrossA, bool AcrossB, int N>
inline void wgmma_add(float (&c)[N][4], uint64 a, uint64 b, emulated::Site site = emulated::Site::here()) {
  emulated::add_product({c, {}, a, b, N * 8, 0, false, AcrossB, true, AcrossA}, site);
}

#endif

} // namespace q35
