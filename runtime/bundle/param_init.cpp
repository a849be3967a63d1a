#include "runtime/bundle/param_init.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/bundle/quoted.h"

#include <cmath>
#include <vector>

namespace qwen35 {
namespace {

/// The numbers of `name(a,b,...)`, or nothing if `text` has another form.
bool parseCall(absl::string_view text, absl::string_view name, size_t count,
               std::vector<double> &numbers) {
  if (!absl::ConsumePrefix(&text, name) || !absl::ConsumePrefix(&text, "(") ||
      !absl::ConsumeSuffix(&text, ")"))
    return false;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !std::isfinite(number))
      return false;
    numbers.push_back(number);
  }
  return numbers.size() == count;
}

} // namespace

absl::StatusOr<ParamInit> parseParamInit(const std::string &text) {
  std::vector<double> numbers;
  if (text == "zeros")
    return ParamInit{ParamInit::Kind::Zeros};
  if (text == "ones")
    return ParamInit{ParamInit::Kind::Ones};
  if (parseCall(text, "normal", 1, numbers) && numbers[0] >= 0)
    return ParamInit{ParamInit::Kind::Normal, numbers[0]};
  numbers.clear();
  if (parseCall(text, "log_uniform", 2, numbers) && numbers[0] > 0 &&
      numbers[0] < numbers[1])
    return ParamInit{ParamInit::Kind::LogUniform, numbers[0], numbers[1]};
  return absl::InvalidArgumentError(
      absl::StrCat("init ", quoted(text),
                   " is not zeros, ones, normal(STD) with STD >= 0, or "
                   "log_uniform(LO,HI) with 0 < LO < HI"));
}

} // namespace qwen35
