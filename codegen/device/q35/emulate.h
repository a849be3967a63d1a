#pragma once
// CUDA on the host, for tests: with -DQ35_EMULATE a kernel compiles as C++20 (clang, x86-64) and runs block by block,
// every thread a fiber with a stack of its own.
//
// It is made to find mistakes that a GPU forgives for a while:
// - Threads run as far ahead as barriers let them, in an order that the launch chooses. The same bits in several orders
//   say that no barrier is missing.
// - Shared memory is NaN when a block starts, or small numbers where threads run reversed (fmaxf drops a NaN), and it is
//   guarded where dynamic shared memory ends.
// - Copies of cp.async (mma.cuh) land as late as their wait allows, or as early as possible where threads run reversed.
// - Threads that wait for each other forever, lanes missing from a collective, misaligned accesses and indices outside of
//   arrays (the latter two by UBSan, whose handlers are below) abort with one line that names kernel, block and thread.
//
// Blocks run one after another, so nothing may wait for another block. Write `__shared__ __align__(16) float x[8]`: clang
// refuses alignas after __shared__.

#include <signal.h>
#include <sys/mman.h>

extern "C" {
int dprintf(int, const char *, ...);
int printf(const char *, ...);
[[noreturn]] void abort();
void *realloc(void *, size_t);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int sched_yield();

float expf(float), exp2f(float), exp10f(float), expm1f(float), logf(float), log2f(float), log10f(float), log1pf(float);
float sqrtf(float), cbrtf(float), powf(float, float), fmaf(float, float, float), fminf(float, float);
float fmaxf(float, float), fabsf(float), floorf(float), ceilf(float), truncf(float), roundf(float), rintf(float);
float sinf(float), cosf(float), tanf(float), tanhf(float), atan2f(float, float), erff(float), copysignf(float, float);
float fmodf(float, float), ldexpf(float, int);
void sincosf(float, float *, float *);
double exp(double), exp2(double), log(double), log2(double), log1p(double), sqrt(double), pow(double, double);
double fma(double, double, double), fmin(double, double), fmax(double, double), fabs(double), floor(double);
double ceil(double), trunc(double), rint(double), sin(double), cos(double), tanh(double);

// The bounds of everything declared __shared__, from the linker.
extern char __start_q35_shared[] __attribute__((visibility("hidden"), weak));
extern char __stop_q35_shared[] __attribute__((visibility("hidden"), weak));
}

#define Q35_DEVICE inline
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// `used`, because barriers are invisible to the optimizer of an unescaped static.
#define __shared__ static __attribute__((section("q35_shared"), used))

namespace q35::emulated {
// A member of types that are loaded and stored whole: UBSan checks the alignment of what constructors and assignments take
// by reference, but not of plain copies.
struct Checked {
  Checked() = default;
  Checked(const Checked &) {}
  Checked &operator=(const Checked &) { return *this; }
};
} // namespace q35::emulated
#define Q35_CHECKED [[no_unique_address]] ::q35::emulated::Checked checked;

struct uint3 {
  unsigned x, y, z;
};
struct alignas(8) int2 {
  int x, y;
  Q35_CHECKED
};
struct alignas(16) int4 {
  int x, y, z, w;
  Q35_CHECKED
};
struct alignas(8) uint2 {
  unsigned x, y;
  Q35_CHECKED
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
  Q35_CHECKED
};
struct alignas(8) float2 {
  float x, y;
  Q35_CHECKED
};
struct alignas(16) float4 {
  float x, y, z, w;
  Q35_CHECKED
};
inline int2 make_int2(int x, int y) { return {x, y, {}}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w, {}}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y, {}}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w, {}}; }
inline float2 make_float2(float x, float y) { return {x, y, {}}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w, {}}; }

// Not `static`: fibers change them behind the optimizer's back.
inline uint3 threadIdx, blockIdx, blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace q35::emulated {

constexpr int kMaxThreads = 1024;
constexpr long long kMaxSharedBytes = 227 << 10, kMaxStaticSharedBytes = 48 << 10;
constexpr long long kStackBytes = 256 << 10, kPage = 4096, kCanaryBytes = 1024;
constexpr unsigned char kCanary = 0xC5;

// Where a thread waits: a default argument of everything that waits.
struct Site {
  const char *file = "";
  int line = 0;
  static constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

struct Copy {
  unsigned char *to;
  const unsigned char *from; // null: zeros
  int group;
};

struct Thread {
  void *stack;      // saved stack pointer
  const char *what; // it waits at; a literal, compared by address
  Site site;
  unsigned mask;            // of lanes, for collectives of a warp
  unsigned in[16], out[16]; // of collectives
  bool (*ready)(const void *); // what a poller waits for
  const void *state;
  Copy *copies; // cp.async that have not been waited for
  int copyCount, copyRoom, group;
};

// One bit per lane.
struct Warp {
  unsigned exists, runnable, waiting, polling;
};

// What all emulated units of a process use in turn, mapped where the first of them puts it.
struct Arena {
  static constexpr unsigned long kAddress = 0x350000000000;
  int lock, ready;
  alignas(4096) unsigned char signalStack[64 << 10];
  unsigned char dynamic[(kMaxSharedBytes + kCanaryBytes + kPage - 1) / kPage * kPage], guard[kPage];
  unsigned char stacks[kMaxThreads * kStackBytes]; // a guard page at the low end of each

  unsigned char *sharedEnd() { return guard; }
  unsigned char *stack(unsigned thread) { return stacks + thread * kStackBytes; } // or the end, of the last
};

struct Machine {
  Arena *arena;
  const char *kernel;
  void (*body)(void *const *);
  void *const *args;
  unsigned threads, warps, current, finished, atBarrier;
  int barrierCount; // threads with a true predicate
  int barrierResult;
  unsigned long long order, seed;
  long long sharedBytes;
  unsigned char *dynamic; // shared memory
  void *scheduler; // its stack pointer
  Warp warp[kMaxThreads / 32];
  Thread thread[kMaxThreads];
};
inline Machine machine;

inline const char *base_name(const char *path) {
  const char *name = path;
  for (; *path; ++path)
    if (*path == '/') name = path + 1;
  return name;
}

template <class... Args>
[[noreturn]] inline void fail(const char *format, Args... args) {
  dprintf(2, "q35 emulation: kernel %s, block %u, thread %u: ", machine.kernel, blockIdx.x, threadIdx.x);
  dprintf(2, format, args...);
  dprintf(2, "\n");
  abort();
}

// Saves the callee's registers on this stack, its pointer in *from, and goes on with what was saved at `to`.
__attribute__((naked, noinline)) inline void switch_stacks(void **from, void *to) {
  asm volatile("pushq %%rbp\n pushq %%rbx\n pushq %%r12\n pushq %%r13\n pushq %%r14\n pushq %%r15\n"
               "movq %%rsp, (%%rdi)\n movq %%rsi, %%rsp\n"
               "popq %%r15\n popq %%r14\n popq %%r13\n popq %%r12\n popq %%rbx\n popq %%rbp\n ret\n" ::
                   : "memory");
}

inline Thread &self() { return machine.thread[machine.current]; }
inline Warp &my_warp() { return machine.warp[machine.current / 32]; }
inline unsigned lane_bit() { return 1u << (machine.current % 32); }
inline void pause() { switch_stacks(&self().stack, machine.scheduler); }

inline void run_thread() {
  machine.body(machine.args);
  self().what = nullptr;
  my_warp().runnable &= ~lane_bit();
  ++machine.finished;
  pause();
  __builtin_trap(); // the scheduler does not come back
}

inline void resume(unsigned thread) {
  machine.current = threadIdx.x = thread;
  switch_stacks(&machine.scheduler, self().stack);
}

inline unsigned random_below(unsigned count) {
  machine.seed = machine.seed * 6364136223846793005u + 1442695040888963407u;
  return unsigned((machine.seed >> 33) % count);
}

// Order 0: first lane first; 1: last; anything else: whichever.
inline unsigned pick(unsigned lanes) {
  if (machine.order == 0) return __builtin_ctz(lanes);
  if (machine.order == 1) return 31 - __builtin_clz(lanes);
  for (unsigned skip = random_below(__builtin_popcount(lanes)); skip > 0; --skip) lanes &= lanes - 1;
  return __builtin_ctz(lanes);
}

[[noreturn]] inline void report_deadlock() {
  // The first thread of every distinct state says enough.
  dprintf(2, "q35 emulation: kernel %s, block %u: threads wait for each other forever:", machine.kernel, blockIdx.x);
  const char *separator = " ";
  for (unsigned t = 0; t < machine.threads; ++t) {
    const Thread &thread = machine.thread[t];
    unsigned same = 0;
    bool first = true;
    for (unsigned u = 0; u < machine.threads; ++u) {
      const Thread &other = machine.thread[u];
      if (other.what != thread.what || (thread.what && other.site.line != thread.site.line)) continue;
      first &= u >= t;
      ++same;
    }
    if (!first) continue;
    dprintf(2, "%sthread %u", separator, t);
    if (same > 1) dprintf(2, " (and %u more)", same - 1);
    if (thread.what)
      dprintf(2, " waits at %s (%s:%d)", thread.what, base_name(thread.site.file), thread.site.line);
    else
      dprintf(2, " has exited");
    separator = ", ";
  }
  dprintf(2, "\n");
  abort();
}

// True if a thread that polls can go on.
inline bool wake_pollers() {
  bool woken = false;
  for (unsigned w = 0; w < machine.warps; ++w)
    for (unsigned lanes = machine.warp[w].polling; lanes; lanes &= lanes - 1) {
      Thread &thread = machine.thread[w * 32 + __builtin_ctz(lanes)];
      if (!thread.ready(thread.state)) continue;
      machine.warp[w].polling &= ~(lanes & -lanes);
      machine.warp[w].runnable |= lanes & -lanes;
      woken = true;
    }
  return woken;
}

inline void check_canary(const unsigned char *from, const unsigned char *end) {
  for (; from < end; ++from)
    if (*from != kCanary) {
      dprintf(2,
              "q35 emulation: kernel %s, block %u: byte %lld of %lld bytes of dynamic shared memory was written\n",
              machine.kernel, blockIdx.x, (long long)(from - machine.dynamic), machine.sharedBytes);
      abort();
    }
}

inline void run_block() {
  Machine &m = machine;
  unsigned char poison = m.order == 1 ? 0x3C : 0xFF;
  memset(__start_q35_shared, poison, __stop_q35_shared - __start_q35_shared);
  memset(m.dynamic - kCanaryBytes, kCanary, m.arena->sharedEnd() - m.dynamic + kCanaryBytes);
  memset(m.dynamic, poison, m.sharedBytes);
  m.finished = m.atBarrier = 0;
  m.barrierCount = 0;
  m.warps = (m.threads + 31) / 32;
  for (unsigned w = 0; w < m.warps; ++w) {
    unsigned lanes = m.threads - w * 32;
    m.warp[w] = {};
    m.warp[w].exists = m.warp[w].runnable = lanes >= 32 ? ~0u : (1u << lanes) - 1;
  }
  for (unsigned t = 0; t < m.threads; ++t) {
    // Tops of stacks differ in their low bits, so that hot frames do not fall on the same cache sets.
    unsigned char *top = m.arena->stack(t + 1) - 64 - t % 61 * 64;
    void **frame = reinterpret_cast<void **>(top) - 8;
    memset(frame, 0, 64);
    frame[6] = reinterpret_cast<void *>(&run_thread); // behind six registers; the stack is then 8 below alignment
    m.thread[t].stack = frame;
    m.thread[t].what = "its start";
    m.thread[t].copyCount = m.thread[t].group = 0;
  }
  while (m.finished < m.threads) {
    bool ran = false;
    for (unsigned i = 0; i < m.warps; ++i) {
      unsigned w = m.order == 0 ? i : m.order == 1 ? m.warps - 1 - i : random_below(m.warps);
      while (m.warp[w].runnable) {
        resume(w * 32 + pick(m.warp[w].runnable));
        ran = true;
      }
    }
    if (ran || m.order > 1) {
      for (unsigned w = 0; !ran && w < m.warps; ++w) ran = m.warp[w].runnable;
      if (ran) continue;
    }
    if (m.finished < m.threads && !wake_pollers()) report_deadlock();
  }
  check_canary(m.dynamic - kCanaryBytes, m.dynamic);
  check_canary(m.dynamic + m.sharedBytes, m.arena->sharedEnd());
}

} // namespace q35::emulated

// Where the launcher's caller may leave a function that says what lies near an address.
extern "C" __attribute__((visibility("default"), weak, used)) const char *(*q35_describe)(const void *) = nullptr;

namespace q35::emulated {

inline void on_signal(int number, siginfo_t *info, void *) {
  auto *at = static_cast<unsigned char *>(info->si_addr);
  Arena *arena = machine.arena;
  if (at >= arena->sharedEnd() && at < arena->sharedEnd() + kPage)
    fail("accesses byte %lld of %lld bytes of dynamic shared memory", (long long)(at - machine.dynamic),
         machine.sharedBytes);
  if (at >= arena->stack(0) && at < arena->stack(kMaxThreads)) fail("overflows its stack of %lld bytes", kStackBytes);
  if (number == SIGFPE) fail("divides by zero");
  const char *where = q35_describe ? q35_describe(at) : nullptr;
  fail("accesses %p, %s (signal %d)", at, where ? where : "which is in no buffer", number);
}

inline Arena *map_arena() {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void *wanted = reinterpret_cast<void *>(Arena::kAddress);
  // Failing says that it is there already.
  void *mapped = mmap(wanted, sizeof(Arena), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped != MAP_FAILED && mapped != wanted) fail("cannot map %zu bytes for fibers", sizeof(Arena));
  return static_cast<Arena *>(wanted);
}

// Order: bit 0 reverses threads, bit 1 blocks; from 4 on it is the seed of a random order of threads.
inline void launch(const char *kernel, void (*body)(void *const *), void *const *args, long long blocks, int threads,
                   long long sharedBytes, int order) {
  Machine &m = machine;
  Arena *arena = map_arena();
  while (__atomic_exchange_n(&arena->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
  if (!arena->ready) {
    mprotect(arena->guard, kPage, PROT_NONE);
    for (int t = 0; t < kMaxThreads; ++t) mprotect(arena->stack(t), kPage, PROT_NONE);
    arena->ready = 1;
  }
  m.arena = arena;
  m.kernel = kernel;
  m.body = body;
  m.args = args;
  long long staticBytes = __stop_q35_shared - __start_q35_shared;
  if (threads < 1 || threads > kMaxThreads) fail("cannot have %d threads in a block", threads);
  if (staticBytes > kMaxStaticSharedBytes) fail("has %lld bytes of static shared memory", staticBytes);
  if (sharedBytes < 0 || sharedBytes + staticBytes > kMaxSharedBytes)
    fail("cannot have %lld bytes of shared memory", sharedBytes + staticBytes);
  m.threads = unsigned(threads);
  m.sharedBytes = sharedBytes;
  m.dynamic = arena->sharedEnd() - (sharedBytes + 1023) / 1024 * 1024;
  m.order = order >= 4 ? order : order & 1;
  m.seed = order;

  stack_t stack = {}, oldStack;
  stack.ss_sp = arena->signalStack;
  stack.ss_size = sizeof arena->signalStack;
  sigaltstack(&stack, &oldStack);
  struct sigaction action = {}, old[4];
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  constexpr int signals[4] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  for (int i = 0; i < 4; ++i) sigaction(signals[i], &action, &old[i]);

  blockDim = {unsigned(threads), 1, 1};
  gridDim = {unsigned(blocks), 1, 1};
  for (long long block = 0; block < blocks; ++block) {
    blockIdx = {unsigned(order < 4 && (order & 2) ? blocks - 1 - block : block), 0, 0};
    run_block();
  }

  for (int i = 0; i < 4; ++i) sigaction(signals[i], &old[i], nullptr);
  sigaltstack(&oldStack, nullptr);
  __atomic_store_n(&arena->lock, 0, __ATOMIC_RELEASE);
}

inline void wait_as(const char *what, Site site, unsigned mask) {
  Thread &thread = self();
  thread.what = what;
  thread.site = site;
  thread.mask = mask;
  my_warp().runnable &= ~lane_bit();
  my_warp().waiting |= lane_bit();
}

// Waits for every thread of the block; the sum of the predicates.
inline int block_barrier(const char *what, Site site, bool predicate = false) {
  Machine &m = machine;
  wait_as(what, site, 0);
  m.barrierCount += predicate;
  if (++m.atBarrier < m.threads) {
    pause();
    return m.barrierResult;
  }
  for (unsigned t = 0; t < m.threads; ++t)
    if (m.thread[t].what != what) report_deadlock();
  for (unsigned w = 0; w < m.warps; ++w) {
    m.warp[w].waiting = 0;
    m.warp[w].runnable = m.warp[w].exists;
  }
  m.barrierResult = m.barrierCount;
  m.atBarrier = 0;
  m.barrierCount = 0;
  return m.barrierResult;
}

// Waits for the lanes of `mask`, all of which must come to this `what` with this mask. The last one runs `complete(warp,
// lanes)`, `warp` being the first thread of the warp: it turns what they left in `in` to what they find in `out`.
template <class Complete>
inline void warp_collective(const char *what, Site site, unsigned mask, Complete complete) {
  Warp &warp = my_warp();
  if (!(mask & lane_bit())) fail("is not in the mask %#x of its %s (%s:%d)", mask, what, base_name(site.file), site.line);
  wait_as(what, site, mask);
  Thread *first = &machine.thread[machine.current / 32 * 32];
  unsigned lanes = mask & warp.exists;
  bool all = (warp.waiting & lanes) == lanes;
  for (unsigned rest = lanes; all && rest; rest &= rest - 1) {
    const Thread &other = first[__builtin_ctz(rest)];
    all = other.what == what && other.mask == mask;
  }
  if (!all) {
    pause();
    return;
  }
  complete(first, lanes);
  warp.waiting &= ~lanes;
  warp.runnable |= lanes;
}

// Waits until ready(), which other threads of the block bring about.
template <class Ready>
inline void wait_until(const char *what, Site site, const Ready &ready) {
  if (ready()) return;
  wait_as(what, site, 0);
  my_warp().waiting &= ~lane_bit();
  my_warp().polling |= lane_bit();
  self().ready = [](const void *state) { return bool((*static_cast<const Ready *>(state))()); };
  self().state = &ready;
  pause();
}

inline bool is_shared(const void *pointer) {
  auto *at = static_cast<const char *>(pointer);
  auto *dynamic = reinterpret_cast<const char *>(machine.dynamic);
  return (at >= __start_q35_shared && at < __stop_q35_shared) || (at >= dynamic && at < dynamic + machine.sharedBytes);
}

template <class T>
inline T exchange(const char *what, Site site, unsigned mask, T value, int source) {
  static_assert((sizeof(T) == 4 || sizeof(T) == 8) && (__is_integral(T) || __is_floating_point(T)));
  self().in[2] = unsigned(source);
  memcpy(self().in, &value, sizeof(T));
  warp_collective(what, site, mask, [](Thread *warp, unsigned lanes) {
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
      Thread &thread = warp[__builtin_ctz(rest)];
      bool known = lanes >> thread.in[2] & 1;
      for (int i = 0; i < 2; ++i) thread.out[i] = known ? warp[thread.in[2]].in[i] : ~0u;
    }
  });
  T result;
  memcpy(&result, self().out, sizeof(T));
  return result;
}

inline unsigned ballot(const char *what, Site site, unsigned mask, bool predicate) {
  self().in[0] = predicate;
  warp_collective(what, site, mask, [](Thread *warp, unsigned lanes) {
    unsigned bits = 0;
    for (unsigned l = 0; l < 32; ++l)
      if (lanes >> l & 1) bits |= warp[l].in[0] << l;
    for (unsigned l = 0; l < 32; ++l) warp[l].out[0] = bits;
  });
  return self().out[0];
}

template <class T, class Reduce>
inline T reduce(const char *what, Site site, unsigned mask, T value, Reduce combine) {
  static_assert(sizeof(T) == 4 && __is_integral(T));
  self().in[0] = unsigned(value);
  warp_collective(what, site, mask, [&](Thread *warp, unsigned lanes) {
    T total = T(warp[__builtin_ctz(lanes)].in[0]);
    for (unsigned rest = lanes & (lanes - 1); rest; rest &= rest - 1)
      total = combine(total, T(warp[__builtin_ctz(rest)].in[0]));
    for (unsigned rest = lanes; rest; rest &= rest - 1) warp[__builtin_ctz(rest)].out[0] = unsigned(total);
  });
  return T(self().out[0]);
}

inline int lane() { return int(machine.current % 32); }

struct SourceLocation { // UBSan's
  const char *file;
  unsigned line, column;
};

} // namespace q35::emulated

// What code compiled with -fsanitize=alignment,bounds calls.
extern "C" {
[[noreturn]] __attribute__((visibility("hidden"))) inline void
q35_ubsan_type(const q35::emulated::SourceLocation *at, unsigned long pointer) {
  q35::emulated::fail("misaligned access at %p (%s:%u)", reinterpret_cast<void *>(pointer),
                      q35::emulated::base_name(at->file), at->line);
}
__attribute__((visibility("hidden"), used, weak)) void
__ubsan_handle_type_mismatch_v1_abort(const q35::emulated::SourceLocation *at, unsigned long pointer) {
  q35_ubsan_type(at, pointer);
}
__attribute__((visibility("hidden"), used, weak)) void
__ubsan_handle_out_of_bounds_abort(const q35::emulated::SourceLocation *at, unsigned long index) {
  q35::emulated::fail("index %ld is outside of its array (%s:%u)", long(index), q35::emulated::base_name(at->file),
                      at->line);
}
}

inline void __syncthreads(q35::emulated::Site site = q35::emulated::Site::here()) {
  q35::emulated::block_barrier("__syncthreads", site);
}
inline int __syncthreads_count(int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::block_barrier("__syncthreads_count", site, predicate);
}
inline int __syncthreads_or(int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::block_barrier("__syncthreads_or", site, predicate) > 0;
}
inline int __syncthreads_and(int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::block_barrier("__syncthreads_and", site, predicate) == int(q35::emulated::machine.threads);
}
inline void __syncwarp(unsigned mask = ~0u, q35::emulated::Site site = q35::emulated::Site::here()) {
  q35::emulated::warp_collective("__syncwarp", site, mask, [](q35::emulated::Thread *, unsigned) {});
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                     q35::emulated::Site site = q35::emulated::Site::here()) {
  int first = q35::emulated::lane() & -width;
  return q35::emulated::exchange("__shfl_sync", site, mask, value, first + (source & (width - 1)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        q35::emulated::Site site = q35::emulated::Site::here()) {
  int lane = q35::emulated::lane(), from = lane - int(delta);
  return q35::emulated::exchange("__shfl_up_sync", site, mask, value, from < (lane & -width) ? lane : from);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          q35::emulated::Site site = q35::emulated::Site::here()) {
  int lane = q35::emulated::lane(), from = lane + int(delta);
  return q35::emulated::exchange("__shfl_down_sync", site, mask, value, from >= (lane & -width) + width ? lane : from);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                         q35::emulated::Site site = q35::emulated::Site::here()) {
  int lane = q35::emulated::lane(), from = lane ^ bits;
  return q35::emulated::exchange("__shfl_xor_sync", site, mask, value, from >= (lane & -width) + width ? lane : from);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::ballot("__ballot_sync", site, mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::ballot("__any_sync", site, mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::ballot("__all_sync", site, mask, !predicate) == 0;
}
template <class T>
inline T __reduce_add_sync(unsigned mask, T value, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::reduce("__reduce_add_sync", site, mask, value, [](T a, T b) { return T(a + b); });
}
template <class T>
inline T __reduce_min_sync(unsigned mask, T value, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::reduce("__reduce_min_sync", site, mask, value, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
inline T __reduce_max_sync(unsigned mask, T value, q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::reduce("__reduce_max_sync", site, mask, value, [](T a, T b) { return a < b ? b : a; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 q35::emulated::Site site = q35::emulated::Site::here()) {
  return q35::emulated::reduce("__reduce_or_sync", site, mask, value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __match_any_sync(unsigned, ...) = delete;
inline unsigned __activemask() = delete; // says nothing that code may rely on

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { q35::emulated::fail("traps"); }

// Loads and stores with cache hints.
#define Q35_LOAD(name) \
  template <class T> \
  inline T name(const T *from) { return *from; }
Q35_LOAD(__ldg)
Q35_LOAD(__ldca)
Q35_LOAD(__ldcg)
Q35_LOAD(__ldcs)
Q35_LOAD(__ldlu)
Q35_LOAD(__ldcv)
#undef Q35_LOAD
#define Q35_STORE(name) \
  template <class T> \
  inline void name(T *to, T value) { *to = value; }
Q35_STORE(__stwb)
Q35_STORE(__stcg)
Q35_STORE(__stcs)
Q35_STORE(__stwt)
#undef Q35_STORE

// Integers only: float atomics depend on the order of threads.
#define Q35_ATOMIC(name, result) \
  inline int name(int *at, int value) { int old = *at; *at = result; return old; } \
  inline unsigned name(unsigned *at, unsigned value) { unsigned old = *at; *at = result; return old; } \
  inline unsigned long long name(unsigned long long *at, unsigned long long value) { \
    unsigned long long old = *at; \
    *at = result; \
    return old; \
  } \
  inline float name(float *, float) = delete; \
  inline double name(double *, double) = delete;
Q35_ATOMIC(atomicAdd, old + value)
Q35_ATOMIC(atomicSub, old - value)
Q35_ATOMIC(atomicMin, old < value ? old : value)
Q35_ATOMIC(atomicMax, old < value ? value : old)
Q35_ATOMIC(atomicAnd, old & value)
Q35_ATOMIC(atomicOr, old | value)
Q35_ATOMIC(atomicXor, old ^ value)
Q35_ATOMIC(atomicExch, value)
#undef Q35_ATOMIC
template <class T>
inline T atomicCAS(T *at, T expected, T value) {
  T old = *at;
  if (old == expected) *at = value;
  return old;
}
inline unsigned atomicInc(unsigned *at, unsigned limit) {
  unsigned old = *at;
  *at = old >= limit ? 0 : old + 1;
  return old;
}

inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
inline double __longlong_as_double(long long bits) { return __builtin_bit_cast(double, bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(unsigned(bits)) : 32; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __brev(unsigned bits) { return __builtin_bitreverse32(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }

// The fast variants are exact here.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline int __float2int_rn(float x) { return int(rintf(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline int __float2int_rd(float x) { return int(floorf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __double2float_rn(double x) { return float(x); }
inline float rsqrtf(float x) { return float(1.0 / sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }

#define Q35_MIN_MAX(T) \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
Q35_MIN_MAX(int)
Q35_MIN_MAX(unsigned)
Q35_MIN_MAX(long)
Q35_MIN_MAX(unsigned long)
Q35_MIN_MAX(long long)
Q35_MIN_MAX(unsigned long long)
#undef Q35_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

namespace q35 {

inline float bits_to_float(unsigned bits) { return __uint_as_float(bits); }
inline unsigned float_to_bits(float value) { return __float_as_uint(value); }

// To the nearest, ties to even; every NaN becomes 0x7FFF, as by cvt.rn.bf16.f32.
inline unsigned short round_to_bf16_bits(float value) {
  unsigned bits = float_to_bits(value);
  if (value != value) return 0x7FFF;
  return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline unsigned pack_bf16(float lo, float hi) {
  return unsigned(round_to_bf16_bits(hi)) << 16 | round_to_bf16_bits(lo);
}

// Subnormal arguments and results are zeros, as those of ex2.approx.ftz.
inline float fast_exp2(float x) {
  float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline unsigned char *shared_memory() { return emulated::machine.dynamic; }

} // namespace q35
