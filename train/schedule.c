#include "schedule.h"

#include "omm/mathd.h"

float schedule_rate(const omm_recipe *recipe, uint32_t step) {
    double peak = (double)recipe->learning_rate, floor_ratio = (double)recipe->lr_min_ratio;
    uint32_t warmup = recipe->warmup_steps;
    if (step <= warmup) return (float)(peak * (double)step / (double)warmup);
    const double pi = 0x1.921fb54442d18p+1;
    double span = (double)recipe->steps - (double)warmup;
    double t = (double)(step - warmup) / span;
    if (recipe->schedule == OMM_RECIPE_CONSTANT) return recipe->learning_rate;
    if (recipe->schedule == OMM_RECIPE_LINEAR)
        return (float)(peak * (floor_ratio + (1 - floor_ratio) * (1 - t)));
    return (float)(peak * (floor_ratio + (1 - floor_ratio) * (1 + omm_cos_d(pi * t)) / 2));
}
