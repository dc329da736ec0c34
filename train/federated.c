/* federated.c - see omm/federated.h. */
#include "omm/federated.h"

#include "core.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/rng.h"

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

static bool has_cores(const omm_federated *f) {
    return f->recipe->parts == OMM_RECIPE_PARTS_CORE;
}

static omm_seed halves_seed(const omm_federated *f) {
    omm_seed base;
    memcpy(base.b, f->base.b, sizeof base.b);
    return omm_seed_derive(&base, OMM_PURPOSE_ADAPTER_INIT, omm_bytes_str("omm.core"));
}

omm_err omm_federated_begin(omm_lora *out, const omm_federated *f, const omm_rng *lane) {
    if (!has_cores(f)) return omm_recipe_adapter(out, f->recipe, f->shape, lane);
    omm_lora adapter;
    core cores;
    OMM_TRY(omm_recipe_adapter(&adapter, f->recipe, f->shape, NULL));
    omm_err err = core_layout(&cores, &adapter);
    omm_lora_fini(&adapter);
    OMM_TRY(err);
    cores.c.values = omm_alloc_aligned(cores.c.value_count, sizeof *cores.c.values);
    if (!cores.c.values) {
        core_fini(&cores);
        return omm_raise(OMM_ERR_NOMEM, "no memory for the cores of an adapter");
    }
    *out = cores.c;
    return OMM_OK;
}

/* A as random as at any start, B as core.h has it, times the cores. */
static omm_err expand(omm_lora *out, const omm_federated *f, const float *values,
                      const omm_compute *compute) {
    const omm_seed seed = halves_seed(f);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_ADAPTER_INIT, f->recipe->seed_lane, 0);
    core cores;
    OMM_TRY(omm_recipe_adapter(out, f->recipe, f->shape, &lane));
    const omm_err err = core_init(&cores, out, &lane, values, compute);
    core_fini(&cores);
    if (err != OMM_OK) omm_lora_fini(out);
    return err;
}

omm_err omm_federated_adapter(omm_lora *out, const omm_federated *f, const float *values,
                              const omm_compute *compute) {
    if (has_cores(f)) return expand(out, f, values, compute);
    OMM_TRY(omm_recipe_adapter(out, f->recipe, f->shape, NULL));
    memcpy(out->values, values, out->value_count * sizeof *values);
    return OMM_OK;
}

/* Few values make an adapter of many. */
static omm_err expand_read(omm_lora *out, const omm_federated *f, omm_federated_read fill, void *ud,
                           const omm_compute *compute) {
    omm_lora cores;
    OMM_TRY(omm_federated_begin(&cores, f, NULL));
    omm_err err = fill(ud, cores.values);
    if (err == OMM_OK) err = expand(out, f, cores.values, compute);
    omm_lora_fini(&cores);
    return err;
}

omm_err omm_federated_adapter_read(omm_lora *out, const omm_federated *f, omm_federated_read fill,
                                   void *ud, const omm_compute *compute) {
    if (has_cores(f)) return expand_read(out, f, fill, ud, compute);
    OMM_TRY(omm_recipe_adapter(out, f->recipe, f->shape, NULL));
    const omm_err err = fill(ud, out->values);
    if (err != OMM_OK) omm_lora_fini(out);
    return err;
}

static omm_err save(omm_buf *out, const omm_federated *f, omm_lora *lora) {
    bool rounded = false;
    if (!omm_recipe_is_uniform(f->recipe)) OMM_TRY(omm_lora_fold(&rounded, lora, true));
    /* Recorded runs end in a file that does not say them; the recipe beside it does. */
    for (size_t i = 0; i < lora->tensor_count; i++) lora->tensors[i].own_scale = 0.0f;
    return omm_lora_save(out, lora);
}

omm_err omm_federated_save(omm_buf *out, const omm_federated *f, const float *values,
                           const omm_compute *compute) {
    omm_lora lora;
    OMM_TRY(omm_federated_adapter(&lora, f, values, compute));
    const omm_err err = save(out, f, &lora);
    omm_lora_fini(&lora);
    return err;
}

omm_err omm_federated_save_read(omm_buf *out, const omm_federated *f, omm_federated_read fill,
                                void *ud, const omm_compute *compute) {
    omm_lora lora;
    OMM_TRY(omm_federated_adapter_read(&lora, f, fill, ud, compute));
    const omm_err err = save(out, f, &lora);
    omm_lora_fini(&lora);
    return err;
}

omm_err omm_federated_trainer(omm_trainer **out, const omm_federated *f,
                              const omm_trainer_options *options, const float *values) {
    omm_trainer_options with = *options;
    omm_lora start;
    with.recipe = f->recipe;
    if (has_cores(f)) {
        const omm_seed seed = halves_seed(f);
        with.start = NULL;
        with.halves = &seed;
        with.core = values;
        return omm_trainer_open(out, &with);
    }
    OMM_TRY(omm_federated_adapter(&start, f, values, options->compute));
    with.start = &start;
    const omm_err err = omm_trainer_open(out, &with);
    omm_lora_fini(&start);
    return err;
}
