#include "runtime/init/init.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/init/counter_random.h"

namespace qwen35 {
namespace {

/// Below this a thread costs more than it saves.
constexpr int64_t kMinSlice = 1 << 16;

double valueOf(const ParamInit &init, double uniform) {
  if (init.kind == ParamInit::Kind::Normal)
    return init.a * inverseNormal(uniform);
  return std::log(init.a + (init.b - init.a) * uniform);
}

} // namespace

void initSlice(uint64_t seed, absl::string_view name, const ParamInit &init,
               int64_t first, absl::Span<float> out) {
  if (init.kind == ParamInit::Kind::Zeros ||
      init.kind == ParamInit::Kind::Ones) {
    std::fill(out.begin(), out.end(),
              init.kind == ParamInit::Kind::Ones ? 1.0f : 0.0f);
    return;
  }
  CounterRandom random(seed, name);
  int64_t count = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < count;) {
    uint64_t element = static_cast<uint64_t>(first + i);
    std::array<double, 2> pair = random.uniformPair(element / 2);
    for (uint64_t half = element % 2; half < 2 && i < count; ++half, ++i)
      out[i] = static_cast<float>(valueOf(init, pair[half]));
  }
}

absl::Status initParam(uint64_t seed, const std::string &name,
                       const std::string &init, absl::Span<float> out,
                       int threads) {
  return initParamSlice(seed, name, init, 0, out, threads);
}

absl::Status initParamSlice(uint64_t seed, const std::string &name,
                            const std::string &init, int64_t first,
                            absl::Span<float> out, int threads) {
  absl::StatusOr<ParamInit> parsed = parseParamInit(init);
  if (!parsed.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, ": ", parsed.status().message()));
  int64_t count = static_cast<int64_t>(out.size());
  int64_t workers =
      std::clamp<int64_t>(count / kMinSlice, 1, std::max(threads, 1));
  std::vector<std::thread> pool;
  for (int64_t w = 0; w < workers; ++w) {
    int64_t begin = count * w / workers, end = count * (w + 1) / workers;
    auto fill = [&, begin, end] {
      initSlice(seed, name, *parsed, first + begin, out.subspan(begin, end - begin));
    };
    if (w + 1 < workers)
      pool.emplace_back(fill);
    else
      fill();
  }
  for (std::thread &thread : pool)
    thread.join();
  return absl::OkStatus();
}

} // namespace qwen35
