#include "runtime/schedule/schedule.h"

#include <algorithm>
#include <cmath>

namespace qwen35 {

double learningRate(const Recipe &recipe, int64_t step) {
  const ScheduleRecipe &schedule = recipe.schedule;
  double lr = recipe.optim.lr;
  int64_t done = std::max<int64_t>(step, 1) - 1;
  int64_t warmup = schedule.warmupSteps, steps = recipe.train.steps;
  if (done < warmup)
    return lr * (static_cast<double>(done + 1) / static_cast<double>(warmup));
  if (schedule.kind == "constant")
    return lr;
  if (done >= steps)
    return schedule.minLr;

  // warmup <= done < steps, so neither length below is zero.
  double factor = 1;
  int64_t length = steps - warmup;
  if (schedule.kind == "wsd") {
    int64_t decay =
        schedule.decaySteps ? schedule.decaySteps : (steps + 9) / 10;
    decay = std::min(decay, length);
    if (done >= steps - decay)
      factor = static_cast<double>(steps - done) / static_cast<double>(decay);
  } else {
    double progress =
        static_cast<double>(done - warmup) / static_cast<double>(length);
    factor = schedule.kind == "linear"
                 ? 1 - progress
                 : 0.5 * (1 + std::cos(3.14159265358979323846 * progress));
  }
  return schedule.minLr + (lr - schedule.minLr) * factor;
}

double biasCorrection(double beta, int64_t step) {
  // -expm1 keeps the digits that 1 - beta^step loses for beta near 1.
  return beta == 0 ? 1.0
                   : -std::expm1(static_cast<double>(step) * std::log(beta));
}

} // namespace qwen35
