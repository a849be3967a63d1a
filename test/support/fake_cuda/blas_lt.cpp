// cuBLASLt without a GPU, for tests of the runtime's calls: QWEN35_LIBCUBLASLT
// names libfake_cuda.so as well. Products are exact in order of k, accumulated
// in f32 and rounded once. Stricter than the library:
// - an algorithm runs only on pointers aligned as it was asked for;
// - what the workspace held is lost;
// - during a capture only products run that have run before.
// Algorithms have ids 0 to 63.

#include "test/support/fake_cuda/driver.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

using namespace qwen35::cuda;
using namespace qwen35::fake;

namespace qwen35::cuda {

struct BlasHandleOpaque {};

struct BlasDescOpaque {
  int32_t transA = kOpN, transB = kOpN;
  bool hasRun = false;
};

struct BlasLayoutOpaque {
  int type;
  uint64_t rows, columns;
  int64_t ld;

  size_t elementBytes() const { return type == kTypeF32 ? 4 : 2; }
  size_t bytes() const {
    return ((columns - 1) * static_cast<uint64_t>(ld) + rows) * elementBytes();
  }
};

struct BlasPreferenceOpaque {
  uint64_t maxWorkspace = 0;
  uint32_t align[4] = {256, 256, 256, 256}; // A, B, C, D
};

} // namespace qwen35::cuda

namespace {

using Guard = std::lock_guard<std::recursive_mutex>;

constexpr uint32_t kMagic = 0xFA4E;
constexpr uint64_t kWorkspace = 4096; // that every algorithm uses, if it may

/// BlasAlgo as this library reads it.
struct Algo {
  uint32_t magic;
  uint32_t config[7]; // by attribute: id to stages
  uint16_t inner, cluster;
  uint16_t align[4];
  uint32_t workspace;
};
static_assert(sizeof(Algo) <= sizeof(BlasAlgo));

Algo read(const BlasAlgo &from) {
  Algo algo;
  std::memcpy(&algo, &from, sizeof algo);
  return algo;
}

void write(const Algo &from, BlasAlgo &algo) {
  algo = {};
  std::memcpy(&algo, &from, sizeof from);
}

float load(const void *from, int type, size_t at) {
  if (type == kTypeF32)
    return static_cast<const float *>(from)[at];
  uint32_t bits = uint32_t(static_cast<const uint16_t *>(from)[at]) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void store(void *to, int type, size_t at, float value) {
  if (type == kTypeF32) {
    static_cast<float *>(to)[at] = value;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = std::isnan(value) ? 0x7FFF0000 : bits + 0x7FFF + (bits >> 16 & 1);
  static_cast<uint16_t *>(to)[at] = static_cast<uint16_t>(bits >> 16);
}

/// A column-major matrix, transposed if asked for, in f32 without gaps.
std::vector<float> dense(const void *from, const BlasLayoutOpaque &layout,
                         bool transposed) {
  std::vector<float> result(layout.rows * layout.columns);
  for (uint64_t c = 0; c < layout.columns; ++c)
    for (uint64_t r = 0; r < layout.rows; ++r)
      result[transposed ? r * layout.columns + c : c * layout.rows + r] =
          load(from, layout.type, c * static_cast<uint64_t>(layout.ld) + r);
  return result;
}

bool supported(int type) { return type == kTypeF32 || type == kTypeBf16; }

bool fits(const BlasDescOpaque &desc, const BlasLayoutOpaque &a,
          const BlasLayoutOpaque &b, const BlasLayoutOpaque &c,
          const BlasLayoutOpaque &d) {
  bool ta = desc.transA == kOpT, tb = desc.transB == kOpT;
  uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  uint64_t n = tb ? b.rows : b.columns, kb = tb ? b.columns : b.rows;
  return k == kb && d.rows == m && d.columns == n && c.rows == m &&
         c.columns == n && supported(a.type) && a.type == b.type &&
         supported(d.type) && c.type == d.type;
}

#define FAKE(function)                                                         \
  Guard guard(lock());                                                         \
  if (BlasStatus wanted = injected(#function); wanted != kBlasSuccess)         \
    return wanted;

} // namespace

QWEN35_FAKE_EXPORT size_t cublasLtGetVersion() { return 130000; }

QWEN35_FAKE_EXPORT const char *cublasLtGetStatusString(BlasStatus status) {
  switch (status) {
  case kBlasSuccess:
    return "CUBLAS_STATUS_SUCCESS";
  case kBlasInvalidValue:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case kBlasNotSupported:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_INTERNAL_ERROR";
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtCreate(BlasHandle *handle) {
  FAKE(cublasLtCreate)
  *handle = new BlasHandleOpaque;
  own("handles of cuBLASLt", 1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtDestroy(BlasHandle handle) {
  FAKE(cublasLtDestroy)
  delete handle;
  own("handles of cuBLASLt", -1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulDescCreate(BlasDesc *desc,
                                                       int computeType,
                                                       int scaleType) {
  FAKE(cublasLtMatmulDescCreate)
  if (computeType != kCompute32F || scaleType != kTypeF32)
    return kBlasNotSupported;
  *desc = new BlasDescOpaque;
  own("descriptors", 1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulDescDestroy(BlasDesc desc) {
  FAKE(cublasLtMatmulDescDestroy)
  delete desc;
  own("descriptors", -1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulDescSetAttribute(BlasDesc desc,
                                                             int attribute,
                                                             const void *value,
                                                             size_t bytes) {
  FAKE(cublasLtMatmulDescSetAttribute)
  int32_t number = 0;
  if (bytes != sizeof number)
    return kBlasInvalidValue;
  std::memcpy(&number, value, bytes);
  if (number != kOpN && number != kOpT)
    return kBlasInvalidValue;
  if (attribute == kDescTransA)
    desc->transA = number;
  else if (attribute == kDescTransB)
    desc->transB = number;
  else
    return kBlasInvalidValue;
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatrixLayoutCreate(BlasLayout *layout,
                                                         int type,
                                                         uint64_t rows,
                                                         uint64_t columns,
                                                         int64_t ld) {
  FAKE(cublasLtMatrixLayoutCreate)
  if (rows == 0 || columns == 0 || ld < static_cast<int64_t>(rows))
    return kBlasInvalidValue;
  *layout = new BlasLayoutOpaque{type, rows, columns, ld};
  own("layouts", 1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatrixLayoutDestroy(BlasLayout layout) {
  FAKE(cublasLtMatrixLayoutDestroy)
  delete layout;
  own("layouts", -1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus
cublasLtMatmulPreferenceCreate(BlasPreference *preference) {
  FAKE(cublasLtMatmulPreferenceCreate)
  *preference = new BlasPreferenceOpaque;
  own("preferences", 1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus
cublasLtMatmulPreferenceDestroy(BlasPreference preference) {
  FAKE(cublasLtMatmulPreferenceDestroy)
  delete preference;
  own("preferences", -1);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulPreferenceSetAttribute(
    BlasPreference preference, int attribute, const void *value, size_t bytes) {
  FAKE(cublasLtMatmulPreferenceSetAttribute)
  if (attribute == kPrefMaxWorkspace && bytes == 8)
    std::memcpy(&preference->maxWorkspace, value, 8);
  else if (attribute >= kPrefAlignA && attribute <= kPrefAlignD && bytes == 4)
    std::memcpy(&preference->align[attribute - kPrefAlignA], value, 4);
  else if (attribute != kPrefReductionMask || bytes != 4)
    return kBlasInvalidValue;
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulAlgoGetHeuristic(
    BlasHandle, BlasDesc desc, BlasLayout a, BlasLayout b, BlasLayout c,
    BlasLayout d, BlasPreference preference, int wanted, BlasHeuristic *results,
    int *count) {
  FAKE(cublasLtMatmulAlgoGetHeuristic)
  *count = 0;
  if (!fits(*desc, *a, *b, *c, *d))
    return kBlasNotSupported;
  for (; *count < wanted && *count < 4; ++*count) {
    Algo algo = {};
    algo.magic = kMagic;
    algo.config[kAlgoId] = static_cast<uint32_t>(*count);
    algo.config[kAlgoTile] = 20;
    for (int i = 0; i < 4; ++i)
      algo.align[i] = static_cast<uint16_t>(preference->align[i]);
    algo.workspace = static_cast<uint32_t>(
        preference->maxWorkspace < kWorkspace ? 0 : kWorkspace);
    BlasHeuristic &result = results[*count];
    result = {};
    write(algo, result.algo);
    result.workspaceSize = algo.workspace;
  }
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulAlgoInit(BlasHandle, int, int,
                                                     int aType, int bType,
                                                     int cType, int dType,
                                                     int id, BlasAlgo *algo) {
  FAKE(cublasLtMatmulAlgoInit)
  if (id < 0 || id > 63 || aType != bType || cType != dType)
    return kBlasNotSupported;
  Algo made = {};
  made.magic = kMagic;
  made.config[kAlgoId] = static_cast<uint32_t>(id);
  for (uint16_t &align : made.align)
    align = 16;
  write(made, *algo);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulAlgoCheck(
    BlasHandle, BlasDesc desc, BlasLayout a, BlasLayout b, BlasLayout c,
    BlasLayout d, const BlasAlgo *algo, BlasHeuristic *result) {
  FAKE(cublasLtMatmulAlgoCheck)
  if (read(*algo).magic != kMagic)
    return kBlasInvalidValue;
  if (!fits(*desc, *a, *b, *c, *d))
    return kBlasNotSupported;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = read(*algo).workspace;
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmulAlgoConfigSetAttribute(
    BlasAlgo *algo, int attribute, const void *value, size_t bytes) {
  FAKE(cublasLtMatmulAlgoConfigSetAttribute)
  Algo made = read(*algo);
  if (made.magic != kMagic)
    return kBlasInvalidValue;
  if (attribute > kAlgoId && attribute <= kAlgoStages && bytes == 4)
    std::memcpy(&made.config[attribute], value, 4);
  else if (attribute == kAlgoInnerShape && bytes == 2)
    std::memcpy(&made.inner, value, 2);
  else if (attribute == kAlgoClusterShape && bytes == 2)
    std::memcpy(&made.cluster, value, 2);
  else
    return kBlasInvalidValue;
  write(made, *algo);
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus
cublasLtMatmulAlgoConfigGetAttribute(const BlasAlgo *algo, int attribute,
                                     void *value, size_t bytes, size_t *written) {
  FAKE(cublasLtMatmulAlgoConfigGetAttribute)
  Algo made = read(*algo);
  if (made.magic != kMagic)
    return kBlasInvalidValue;
  if (attribute >= kAlgoId && attribute <= kAlgoStages && bytes == 4)
    std::memcpy(value, &made.config[attribute], 4);
  else if (attribute == kAlgoInnerShape && bytes == 2)
    std::memcpy(value, &made.inner, 2);
  else if (attribute == kAlgoClusterShape && bytes == 2)
    std::memcpy(value, &made.cluster, 2);
  else
    return kBlasInvalidValue;
  *written = bytes;
  return kBlasSuccess;
}

QWEN35_FAKE_EXPORT BlasStatus cublasLtMatmul(
    BlasHandle, BlasDesc desc, const void *alpha, const void *a, BlasLayout aIs,
    const void *b, BlasLayout bIs, const void *beta, const void *c,
    BlasLayout cIs, void *d, BlasLayout dIs, const BlasAlgo *given,
    void *workspace, size_t workspaceBytes, Stream stream) {
  FAKE(cublasLtMatmul)
  if (!given || !fits(*desc, *aIs, *bIs, *cIs, *dIs))
    return kBlasInvalidValue;
  Algo algo = read(*given);
  if (algo.magic != kMagic || algo.workspace > workspaceBytes)
    return kBlasInvalidValue;
  const void *pointers[] = {a, b, c, d};
  const BlasLayoutOpaque *layouts[] = {aIs, bIs, cIs, dIs};
  for (int i = 0; i < 4; ++i) {
    auto address = reinterpret_cast<DevicePtr>(pointers[i]);
    if (address % algo.align[i] != 0 || !onDevice(address, layouts[i]->bytes()))
      return kBlasInvalidValue;
  }
  if (algo.workspace && !onDevice(reinterpret_cast<DevicePtr>(workspace),
                                  algo.workspace))
    return kBlasInvalidValue;
  if (capturing(stream) && !desc->hasRun)
    return 14; // internal error: the library loads code at the first call
  desc->hasRun = true;
  float by = *static_cast<const float *>(alpha);
  float keep = *static_cast<const float *>(beta);
  enqueue(stream, kNodeKernel,
          [=, desc = *desc, aIs = *aIs, bIs = *bIs, cIs = *cIs, dIs = *dIs] {
            int slower = 3 - static_cast<int>(algo.config[kAlgoId]);
            std::this_thread::sleep_for(std::chrono::milliseconds(
                std::max(slower, 0) * setting("slow", 0)));
            if (algo.workspace)
              std::memset(workspace, 0xFF, algo.workspace);
            std::vector<float> left = dense(a, aIs, desc.transA == kOpT);
            std::vector<float> right = dense(b, bIs, desc.transB == kOpT);
            uint64_t m = dIs.rows, n = dIs.columns, k = left.size() / m;
            std::vector<float> sum(m);
            for (uint64_t j = 0; j < n; ++j) {
              sum.assign(m, 0);
              for (uint64_t l = 0; l < k; ++l)
                for (uint64_t i = 0; i < m; ++i)
                  sum[i] += left[l * m + i] * right[j * k + l];
              for (uint64_t i = 0; i < m; ++i) {
                float value = by * sum[i];
                if (keep != 0) // C is not read otherwise
                  value += keep * load(c, cIs.type,
                                       j * static_cast<uint64_t>(cIs.ld) + i);
                store(d, dIs.type, j * static_cast<uint64_t>(dIs.ld) + i, value);
              }
            }
          });
  return kBlasSuccess;
}
