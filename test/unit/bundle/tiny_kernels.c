/* Kernels of the tiny bundle (tiny_bundle.h), compiled to a shared object that imports nothing. Each one's
 * arguments are in the order of its parameters below; blocks are kBlock elements of w, chunks kChunk tokens. */
#include "test/unit/bundle/tiny_kernels.h"

#include <stdint.h>

#ifdef TINY_IMPORT /* a kernel that calls what it may not */
int puts(const char *text);
#endif
#ifdef TINY_THREAD_LOCAL
static _Thread_local double counter;
#endif
#ifdef TINY_CONSTRUCTOR
volatile int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 1; }
#endif
#ifdef TINY_IFUNC
static int answer(void) { return 42; }
static void *resolve(void) { return (void *)answer; }
int chosen(void) __attribute__((ifunc("resolve")));
#endif

/* Not launched: here so that the image has relocations of every kind that real ones have, and an import. */
static void (*const local_table[])(void *const *, int64_t);
void tiny_clear(void *const *args, int64_t task) {
  float *data = args[0];
  for (int64_t i = 0; i < kWords; ++i) /* compiled to memset */
    data[i] = 0;
  if (task < 0)
    local_table[-task](args, 0);
}
void (*const tiny_table[])(void *const *, int64_t) = {tiny_clear, tiny_clear};
static void helper(void *const *args, int64_t task) { tiny_table[task](args, 0); }
static void (*const local_table[])(void *const *, int64_t) = {helper, tiny_clear, helper};

/* error[t] = w[ids[t]] - labels[t], or 0 where the label is ignored */
void tiny_forward(void *const *args, int64_t task) {
  const float *w = args[0];
  const int32_t *ids = args[1], *labels = args[2];
  float *error = args[3];
#ifdef TINY_IMPORT
  puts("hello");
#endif
#ifdef TINY_THREAD_LOCAL
  counter += 1;
#endif
#ifdef TINY_IFUNC
  error[0] = (float)chosen();
#endif
  for (int64_t t = task * kChunk; t < (task + 1) * kChunk; ++t)
    error[t] = labels[t] == -100 ? 0 : w[ids[t]] - (float)labels[t];
}

/* loss += sum_t error[t]^2 / 2 * inv_count */
void tiny_loss(void *const *args, int64_t task) {
  const float *error = args[0], *inv_count = args[1];
  float *loss = args[2];
  double sum = 0;
  for (int64_t t = 0; t < kTokens; ++t)
    sum += 0.5 * error[t] * error[t];
  *loss += (float)(sum * *inv_count);
}

/* grad[i] += sum over t with ids[t] == i of error[t] * inv_count */
void tiny_gradient(void *const *args, int64_t task) {
  const float *error = args[0], *inv_count = args[2];
  const int32_t *ids = args[1];
  float *grad = args[3];
  for (int64_t t = 0; t < kTokens; ++t)
    if (ids[t] / kBlock == task)
      grad[ids[t]] += error[t] * *inv_count;
}

/* partial[task] = sum of squares of a block */
void tiny_norm_partial(void *const *args, int64_t task) {
  const float *grad = args[0];
  double *partial = args[1];
  double sum = 0;
  for (int64_t i = task * kBlock; i < (task + 1) * kBlock; ++i)
    sum += (double)grad[i] * grad[i];
#ifdef TINY_OTHER /* told apart from the usual one by its result */
  sum = -1;
#endif
  partial[task] = sum;
}

/* The norm's square, for simplicity: no libm here. */
void tiny_norm(void *const *args, int64_t task) {
  const double *partial = args[0];
  float *norm = args[1], *commit = args[2];
  double sum = 0;
  for (int64_t i = 0; i < kWords / kBlock; ++i)
    sum += partial[i];
  *norm = (float)sum;
  *commit = sum - sum == 0 ? 1 : 0;
}

/* w -= lr * grad; m = grad; v = grad^2; nothing where commit is 0 */
void tiny_update(void *const *args, int64_t task) {
  float *w = args[0], *m = args[1], *v = args[2];
  const float *grad = args[3], *lr = args[4], *commit = args[5];
  if (*commit == 0)
    return;
  for (int64_t i = task * kBlock; i < (task + 1) * kBlock; ++i) {
    w[i] -= *lr * grad[i];
    m[i] = grad[i];
    v[i] = grad[i] * grad[i];
  }
}

#ifdef TINY_GPU /* a module of test/support/fake_cuda: every block is a task */
#define TINY_LAUNCH(kernel, count)                                                                                     \
  const int q35_arguments_##kernel = count;                                                                            \
  void q35_launch_##kernel(void *const *args, long long blocks, int threads, long long shared, int order) {           \
    for (long long block = 0; block < blocks; ++block)                                                                 \
      kernel(args, order & 2 ? blocks - 1 - block : block);                                                            \
  }
TINY_LAUNCH(tiny_forward, 4)
TINY_LAUNCH(tiny_loss, 3)
TINY_LAUNCH(tiny_gradient, 4)
TINY_LAUNCH(tiny_norm_partial, 2)
TINY_LAUNCH(tiny_norm, 3)
TINY_LAUNCH(tiny_update, 6)
#endif
