#ifndef QWEN35_RUNTIME_CUDA_GEMM_H
#define QWEN35_RUNTIME_CUDA_GEMM_H

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cuda/library.h"
#include "runtime/schema/bundle.pb.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace qwen35::cuda {

/// Alignments in bytes that every call of a product can promise.
struct GemmAlignment {
  uint32_t a = 256, b = 256, d = 256;
};

/// A dense product by cuBLASLt, with its descriptors and one algorithm.
class GemmPlan {
public:
  /// How the algorithm came about.
  enum class Source { Bundle, Heuristic };

  /// Takes `gemm.algo` if it is there and the library accepts it (words: of
  /// its own version alone, operands at multiples of 16 bytes), else the first
  /// answer of the library's heuristic. Allocates nothing on the device.
  ///
  /// Errors  Internal when the library has no algorithm for the product.
  static absl::StatusOr<std::unique_ptr<GemmPlan>>
  create(const BlasLt &blas, BlasHandle handle, const bundle::Gemm &gemm,
         const GemmAlignment &alignment);

  GemmPlan(const GemmPlan &) = delete;
  GemmPlan &operator=(const GemmPlan &) = delete;
  ~GemmPlan();

  /// Enqueues the product; may be captured.
  BlasStatus run(DevicePtr a, DevicePtr b, DevicePtr d, DevicePtr workspace,
                 Stream stream) const;
  BlasStatus runWith(const BlasAlgo &algo, DevicePtr a, DevicePtr b,
                     DevicePtr d, DevicePtr workspace, Stream stream) const;

  Source source() const { return from; }
  const bundle::Gemm &gemm() const { return spec; }
  /// The heuristic's answers, best first, whose workspace fits.
  absl::StatusOr<std::vector<BlasAlgo>> candidates(int most) const;
  /// Other configurations of an algorithm that the library accepts: split-K
  /// with partial sums in f32, order of the tiles, tiles.
  std::vector<BlasAlgo> variants(const BlasAlgo &algo) const;
  /// What describes an algorithm in a bundle.
  absl::StatusOr<bundle::GemmAlgo> describe(const BlasAlgo &algo) const;
  const BlasAlgo &algorithm() const { return algo; }

private:
  GemmPlan(const BlasLt &blas, BlasHandle handle, const bundle::Gemm &gemm,
           const GemmAlignment &alignment)
      : blas(blas), handle(handle), spec(gemm), alignment(alignment) {}
  absl::Status init();
  bool takeFromBundle();
  bool accepts(const BlasAlgo &algo) const;

  const BlasLt &blas;
  BlasHandle handle;
  bundle::Gemm spec;
  GemmAlignment alignment;
  BlasDesc desc = nullptr;
  // The library's matrices are column-major: its A is our B and its B our A.
  BlasLayout left = nullptr, right = nullptr, out = nullptr;
  BlasAlgo algo{};
  Source from = Source::Heuristic;
};

} // namespace qwen35::cuda

#endif // QWEN35_RUNTIME_CUDA_GEMM_H
