/* wrap_evaluate.h - counts evaluations, and holds each against the recipe: it is judged as it was trained,
 * with longrope's factors for the same seq_max.  Link with -Wl,--wrap=omm_evaluate. */
#ifndef WRAP_EVALUATE_H
#define WRAP_EVALUATE_H

#include "omm/evaluate.h"
#include "omm_test.h"

static uint32_t wrap_seq_max = 512; /* of the recipe of the next run; its default */
static unsigned wrap_evaluations;
static void (*wrap_during)(const omm_eval_options *options); /* called in each; NULL: nothing is */

omm_err __real_omm_evaluate(omm_eval_item *items, const struct omm_model *model,
                            const struct omm_lora *adapter, const omm_dataset *data,
                            const struct omm_compute *compute, const omm_eval_options *options);
omm_err __wrap_omm_evaluate(omm_eval_item *items, const struct omm_model *model,
                            const struct omm_lora *adapter, const omm_dataset *data,
                            const struct omm_compute *compute, const omm_eval_options *options);

omm_err __wrap_omm_evaluate(omm_eval_item *items, const struct omm_model *model,
                            const struct omm_lora *adapter, const omm_dataset *data,
                            const struct omm_compute *compute, const omm_eval_options *options) {
    CHECK_EQ(options->rope_positions, wrap_seq_max);
    wrap_evaluations++;
    if (wrap_during) wrap_during(options);
    return __real_omm_evaluate(items, model, adapter, data, compute, options);
}

#endif
