#ifndef QWEN35_RUNTIME_INIT_INIT_H
#define QWEN35_RUNTIME_INIT_INIT_H

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/bundle/param_init.h"

namespace qwen35 {

/// Initial values of elements [first, first + out.size()) of a parameter.
///
/// Element i depends on (seed, name, i) alone: any slicing over threads or
/// ranks gives the same bits. Computed in double, rounded once to float32.
/// log_uniform is the log of a number uniform between its bounds and finite,
/// also after rounding to bf16.
///
/// Units   first counts elements of the whole parameter, row-major.
/// Source  MODEL.md section 10; counter_random.h.
void initSlice(uint64_t seed, absl::string_view name, const ParamInit &init,
               int64_t first, absl::Span<float> out);

/// A whole parameter, on `threads` threads; the result does not depend on them.
/// Errors  InvalidArgument naming the parameter, when `init` is not one of the
///         forms of bundle.proto's Param.init.
absl::Status initParam(uint64_t seed, const std::string &name,
                       const std::string &init, absl::Span<float> out,
                       int threads = 1);
/// Elements [first, first + out.size()) of it.
absl::Status initParamSlice(uint64_t seed, const std::string &name,
                            const std::string &init, int64_t first,
                            absl::Span<float> out, int threads = 1);

} // namespace qwen35

#endif // QWEN35_RUNTIME_INIT_INIT_H
