#ifndef QWEN35_RUNTIME_BUNDLE_PARAM_INIT_H
#define QWEN35_RUNTIME_BUNDLE_PARAM_INIT_H

#include "absl/status/statusor.h"

#include <string>

namespace qwen35 {

/// `Param.init` of the schema, parsed.
struct ParamInit {
  enum class Kind {
    Zeros,
    Ones,
    Normal,     // mean 0, standard deviation `a`
    LogUniform, // log of a value uniform between `a` and `b`
  };
  Kind kind = Kind::Zeros;
  double a = 0, b = 0;
};

/// Parses zeros | ones | normal(STD) | log_uniform(LO,HI).
///
/// Errors  InvalidArgument for any other text, a number that is not finite,
///         STD < 0, or not 0 < LO < HI.
absl::StatusOr<ParamInit> parseParamInit(const std::string &text);

} // namespace qwen35

#endif // QWEN35_RUNTIME_BUNDLE_PARAM_INIT_H
