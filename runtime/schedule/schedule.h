#ifndef QWEN35_RUNTIME_SCHEDULE_SCHEDULE_H
#define QWEN35_RUNTIME_SCHEDULE_SCHEDULE_H

#include "runtime/recipe/recipe.h"

#include <cstdint>

namespace qwen35 {

/// The learning rate of optimizer step `step`, which counts from 1 as the step
/// line does. With t = step - 1 steps done, W warmup steps, N train steps:
///
///   (E1)  t < W:   lr * (t + 1) / W
///   (E2)  else:    min + (lr - min) * f(p), p = (t - W) / (N - W) up to 1
///           constant  f = 1 (min_lr plays no part)
///           linear    f = 1 - p
///           cosine    f = (1 + cos(pi * p)) / 2
///           wsd       f = 1 before step N - D, then 1 - (t - (N - D)) / D,
///                     D = decay_steps, or ceil(N / 10) when that is 0, at
///                     most N - W
///
/// So no step of the run has lr 0 by construction: the first has lr / W, the
/// last is one short of min. Steps beyond N, of a run that was prolonged, keep
/// min_lr (constant: lr).
///
/// Units   As optim.lr. `recipe` has passed validateRecipe.
/// Source  Warmup and decay as in torchtitan's and Hugging Face's schedules.
double learningRate(const Recipe &recipe, int64_t step);

/// AdamW's bias correction 1 - beta^step; `step` counts from 1.
double biasCorrection(double beta, int64_t step);

} // namespace qwen35

#endif // QWEN35_RUNTIME_SCHEDULE_SCHEDULE_H
