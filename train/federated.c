/* federated.c - see omm/federated.h. */
#include "omm/federated.h"

#include "omm/lora.h"

#include <math.h>
#include <string.h>

omm_err omm_federated_spec(omm_lora_spec *out, const omm_federated *f) {
    omm_lora_plan plan;
    omm_lora_spec spec;
    omm_recipe_lora_spec(&spec, f->recipe);
    if (!omm_recipe_is_uniform(f->recipe)) {
        OMM_TRY(omm_recipe_plan(&plan, f->recipe, f->shape));
        spec.rank = spec.targets = 0;
        for (size_t i = 0; i < (size_t)f->shape->layer_count * OMM_LORA_TARGET_COUNT; i++) {
            if (plan.pairs[i].rank == 0) continue;
            if (plan.pairs[i].rank > spec.rank) spec.rank = plan.pairs[i].rank;
            spec.targets |= 1u << i % OMM_LORA_TARGET_COUNT;
        }
        omm_lora_plan_fini(&plan);
    }
    *out = spec;
    return OMM_OK;
}

omm_err omm_federated_begin(omm_lora *out, const omm_federated *f, const omm_rng *lane) {
    return omm_recipe_adapter(out, f->recipe, f->shape, lane);
}

omm_err omm_federated_adapter(omm_lora *out, const omm_federated *f, const float *values) {
    OMM_TRY(omm_recipe_adapter(out, f->recipe, f->shape, NULL));
    memcpy(out->values, values, out->value_count * sizeof *values);
    return OMM_OK;
}

omm_err omm_federated_save(omm_buf *out, const omm_federated *f, const float *values) {
    omm_lora lora;
    bool rounded = false;
    OMM_TRY(omm_federated_adapter(&lora, f, values));
    omm_err err = omm_recipe_is_uniform(f->recipe) ? OMM_OK : omm_lora_fold(&rounded, &lora, true);
    if (err == OMM_OK) err = omm_lora_save(out, &lora);
    omm_lora_fini(&lora);
    return err;
}

omm_err omm_federated_trainer(omm_trainer **out, const omm_federated *f,
                              const omm_trainer_options *options, const float *values) {
    omm_trainer_options with = *options;
    omm_lora start;
    OMM_TRY(omm_federated_adapter(&start, f, values));
    with.recipe = f->recipe;
    with.start = &start;
    const omm_err err = omm_trainer_open(out, &with);
    omm_lora_fini(&start);
    return err;
}
