#include "runtime/cuda/gemm.h"

#include "absl/strings/str_cat.h"
#include "runtime/bundle/bundle_reader.h"
#include "runtime/bundle/status_macros.h"

#include <algorithm>
#include <utility>

namespace qwen35::cuda {
namespace {

int typeOf(bundle::DType dtype) {
  return dtype == bundle::BF16  ? kTypeBf16
         : dtype == bundle::F16 ? kTypeF16
                                : kTypeF32;
}

void *pointer(DevicePtr address) { return reinterpret_cast<void *>(address); }

/// Split-K partial sums stay f32: not rounded to the type of D between, and
/// added in a fixed order.
constexpr uint32_t kReductionComputeType = 2;

template <typename T>
bool set(const BlasLt &blas, BlasAlgo &algo, int attribute, T value) {
  return blas.algoConfigSetAttribute(&algo, attribute, &value, sizeof value) ==
         kBlasSuccess;
}

} // namespace

absl::StatusOr<std::unique_ptr<GemmPlan>>
GemmPlan::create(const BlasLt &blas, BlasHandle handle,
                 const bundle::Gemm &gemm, const GemmAlignment &alignment) {
  std::unique_ptr<GemmPlan> plan(new GemmPlan(blas, handle, gemm, alignment));
  QWEN35_RETURN_IF_ERROR(plan->init());
  return plan;
}

GemmPlan::~GemmPlan() {
  for (BlasLayout layout : {left, right, out})
    if (layout)
      blas.layoutDestroy(layout);
  if (desc)
    blas.descDestroy(desc);
}

absl::Status GemmPlan::init() {
  QWEN35_RETURN_IF_ERROR(
      blas.check(blas.descCreate(&desc, kCompute32F, kTypeF32),
                 "cublasLtMatmulDescCreate"));
  // Row-major D = op(A) op(B) is column-major D' = op(B)' op(A)'; a row-major
  // matrix is its transpose, column-major, with the same leading dimension.
  int32_t transLeft = spec.trans_b() ? kOpT : kOpN;
  int32_t transRight = spec.trans_a() ? kOpT : kOpN;
  for (auto [attribute, value] : {std::pair(kDescTransA, &transLeft),
                                  std::pair(kDescTransB, &transRight)})
    QWEN35_RETURN_IF_ERROR(
        blas.check(blas.descSetAttribute(desc, attribute, value, sizeof *value),
                   "cublasLtMatmulDescSetAttribute"));
  auto layout = [&](BlasLayout &result, bundle::DType type, int64_t rows,
                    int64_t columns, int64_t ld) {
    return blas.check(blas.layoutCreate(&result, typeOf(type),
                                        static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
                      "cublasLtMatrixLayoutCreate");
  };
  int64_t m = spec.m(), n = spec.n(), k = spec.k();
  QWEN35_RETURN_IF_ERROR(layout(left, spec.b_type(), spec.trans_b() ? k : n,
                                spec.trans_b() ? n : k, spec.ldb()));
  QWEN35_RETURN_IF_ERROR(layout(right, spec.a_type(), spec.trans_a() ? m : k,
                                spec.trans_a() ? k : m, spec.lda()));
  QWEN35_RETURN_IF_ERROR(layout(out, spec.d_type(), n, m, spec.ldd()));
  if (spec.has_algo() && takeFromBundle()) {
    from = Source::Bundle;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<BlasAlgo>> found = candidates(1);
  QWEN35_RETURN_IF_ERROR(found.status());
  algo = found->front();
  return absl::OkStatus();
}

bool GemmPlan::takeFromBundle() {
  const bundle::GemmAlgo &wanted = spec.algo();
  if (wanted.words_size() != 0) {
    if (wanted.words_size() != 8 || wanted.version() != blas.getVersion() ||
        std::min({alignment.a, alignment.b, alignment.d}) < 16)
      return false;
    std::copy(wanted.words().begin(), wanted.words().end(), algo.data);
    return accepts(algo);
  }
  int a = typeOf(spec.b_type()), b = typeOf(spec.a_type()),
      d = typeOf(spec.d_type());
  if (blas.algoInit(handle, kCompute32F, kTypeF32, a, b, d, d, wanted.id(),
                    &algo) != kBlasSuccess)
    return false;
  return set<uint32_t>(blas, algo, kAlgoTile, wanted.tile()) &&
         set<uint32_t>(blas, algo, kAlgoStages, wanted.stages()) &&
         set<int32_t>(blas, algo, kAlgoSplitK, wanted.split_k()) &&
         set<uint32_t>(blas, algo, kAlgoReduction, wanted.reduction()) &&
         set<uint32_t>(blas, algo, kAlgoSwizzle, wanted.swizzle()) &&
         set<uint32_t>(blas, algo, kAlgoCustom, wanted.custom()) &&
         set<uint16_t>(blas, algo, kAlgoInnerShape, wanted.inner_shape()) &&
         set<uint16_t>(blas, algo, kAlgoClusterShape, wanted.cluster_shape()) &&
         accepts(algo);
}

bool GemmPlan::accepts(const BlasAlgo &candidate) const {
  BlasHeuristic result{};
  return blas.algoCheck(handle, desc, left, right, out, out, &candidate,
                        &result) == kBlasSuccess &&
         result.workspaceSize <= spec.workspace_bytes();
}

std::vector<BlasAlgo> GemmPlan::variants(const BlasAlgo &base) const {
  std::vector<BlasAlgo> result;
  absl::StatusOr<bundle::GemmAlgo> is = describe(base);
  if (!is.ok())
    return result;
  auto add = [&](const BlasAlgo &algo, bool made) {
    if (made && accepts(algo))
      result.push_back(algo);
  };
  for (int32_t splitK : {1, 2, 3, 4, 6, 8, 16})
    for (uint32_t swizzle : {0, 1}) {
      BlasAlgo algo = base;
      bool made =
          set<int32_t>(blas, algo, kAlgoSplitK, splitK) &&
          set<uint32_t>(blas, algo, kAlgoReduction,
                        splitK > 1 ? kReductionComputeType : 0) &&
          set<uint32_t>(blas, algo, kAlgoSwizzle, swizzle);
      add(algo, made);
    }
  // Ids of tiles are not all in order of size: neighbours are worth a look.
  for (int32_t step : {-3, -2, -1, 1, 2, 3}) {
    BlasAlgo algo = base;
    int64_t tile = int64_t(is->tile()) + step;
    add(algo, tile > 0 && set<uint32_t>(blas, algo, kAlgoTile,
                                        static_cast<uint32_t>(tile)));
  }
  for (uint16_t cluster = 0; cluster < 16; ++cluster) {
    BlasAlgo algo = base;
    add(algo, cluster != is->cluster_shape() &&
                  set<uint16_t>(blas, algo, kAlgoClusterShape, cluster));
  }
  return result;
}

absl::StatusOr<std::vector<BlasAlgo>> GemmPlan::candidates(int most) const {
  BlasPreference preference = nullptr;
  QWEN35_RETURN_IF_ERROR(blas.check(blas.preferenceCreate(&preference),
                                    "cublasLtMatmulPreferenceCreate"));
  uint64_t workspace = spec.workspace_bytes();
  BlasStatus status = blas.preferenceSetAttribute(preference, kPrefMaxWorkspace,
                                                  &workspace, sizeof workspace);
  uint32_t reduction = kReductionComputeType;
  for (auto [attribute, value] : {std::pair(kPrefReductionMask, reduction),
                                  std::pair(kPrefAlignA, alignment.b),
                                  std::pair(kPrefAlignB, alignment.a),
                                  std::pair(kPrefAlignC, alignment.d),
                                  std::pair(kPrefAlignD, alignment.d)})
    if (status == kBlasSuccess)
      status = blas.preferenceSetAttribute(preference, attribute, &value,
                                           sizeof value);
  std::vector<BlasHeuristic> results(static_cast<size_t>(most));
  int count = 0;
  if (status == kBlasSuccess)
    status = blas.algoGetHeuristic(handle, desc, left, right, out, out,
                                   preference, most, results.data(), &count);
  blas.preferenceDestroy(preference);
  std::vector<BlasAlgo> algos;
  if (status == kBlasSuccess)
    for (int i = 0; i < count; ++i)
      if (results[i].state == kBlasSuccess &&
          results[i].workspaceSize <= spec.workspace_bytes())
        algos.push_back(results[i].algo);
  if (!algos.empty())
    return algos;
  std::string call = absl::StrCat(
      "cublasLtMatmulAlgoGetHeuristic of a product [", spec.m(), ",", spec.k(),
      "] x [", spec.k(), ",", spec.n(), "], ", dtypeName(spec.a_type()), " ",
      dtypeName(spec.b_type()), " to ", dtypeName(spec.d_type()));
  return status == kBlasSuccess
             ? absl::InternalError(absl::StrCat(call, ": no algorithm fits"))
             : blas.error(status, call);
}

absl::StatusOr<bundle::GemmAlgo>
GemmPlan::describe(const BlasAlgo &chosen) const {
  bundle::GemmAlgo result;
  absl::Status status;
  auto get = [&](int attribute, auto value) {
    size_t written = 0;
    if (status.ok())
      status =
          blas.check(blas.algoConfigGetAttribute(&chosen, attribute, &value,
                                                 sizeof value, &written),
                     "cublasLtMatmulAlgoConfigGetAttribute");
    return value;
  };
  result.set_id(get(kAlgoId, int32_t(0)));
  result.set_tile(get(kAlgoTile, uint32_t(0)));
  result.set_stages(get(kAlgoStages, uint32_t(0)));
  result.set_split_k(static_cast<uint32_t>(get(kAlgoSplitK, int32_t(0))));
  result.set_reduction(get(kAlgoReduction, uint32_t(0)));
  result.set_swizzle(get(kAlgoSwizzle, uint32_t(0)));
  result.set_custom(get(kAlgoCustom, uint32_t(0)));
  result.set_inner_shape(get(kAlgoInnerShape, uint16_t(0)));
  result.set_cluster_shape(get(kAlgoClusterShape, uint16_t(0)));
  QWEN35_RETURN_IF_ERROR(status);
  return result;
}

BlasStatus GemmPlan::run(DevicePtr a, DevicePtr b, DevicePtr d,
                         DevicePtr workspace, Stream stream) const {
  return runWith(algo, a, b, d, workspace, stream);
}

BlasStatus GemmPlan::runWith(const BlasAlgo &chosen, DevicePtr a, DevicePtr b,
                             DevicePtr d, DevicePtr workspace,
                             Stream stream) const {
  const float alpha = 1, beta = spec.accumulate() ? 1 : 0;
  return blas.matmul(handle, desc, &alpha, pointer(b), left, pointer(a), right,
                     &beta, pointer(d), out, pointer(d), out, &chosen,
                     pointer(workspace), spec.workspace_bytes(), stream);
}

} // namespace qwen35::cuda
