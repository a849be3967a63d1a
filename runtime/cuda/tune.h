#ifndef QWEN35_RUNTIME_CUDA_TUNE_H
#define QWEN35_RUNTIME_CUDA_TUNE_H

#include "absl/status/status.h"

#include <cstdio>
#include <string>

namespace qwen35::cuda {

/// Times cuBLASLt's algorithms for every product of the bundle's GPU plan on
/// random data that the cache does not hold, and merges the fastest of each
/// into the table file (runtime/schema/gemm_table.h), made if it is missing.
/// An algorithm whose two runs differ in a bit, or that is further from the
/// library's first answer than rounding explains, is not taken; nor is one that
/// gains less than 1 %. Within `seconds`, shared by products evenly.
///
/// Errors  FailedPrecondition for a bundle without a GPU plan or products;
///         those of GpuDevice::open, BlasLt::load and of the file.
absl::Status tuneProducts(const std::string &bundlePath,
                          const std::string &tablePath, double seconds,
                          std::FILE *log);

} // namespace qwen35::cuda

#endif // QWEN35_RUNTIME_CUDA_TUNE_H
