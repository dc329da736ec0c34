/* schedule.h - learning rate of a step: linear warmup, then what the recipe says.  Inside train only.
 *
 * In double and with our own cosine (omm/mathd.h), so every machine gets the same bits.
 */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "omm/recipe.h"

/* Learning rate of step 1 .. steps.  Warmup: peak * step / warmup_steps.  After it, with t from 0 at
 * the end of the warmup to 1 at the last step and m = lr_min_ratio:
 *   cosine    peak * (m + (1 - m) * (1 + cos(pi t)) / 2)
 *   linear    peak * (m + (1 - m) * (1 - t))
 *   constant  peak
 * Without a step after the warmup there is no decay. */
float schedule_rate(const omm_recipe *recipe, uint32_t step);

#endif
