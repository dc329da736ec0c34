/* course_run.c - see course_run.h. */
#include "course_run.h"

#include "full_internal.h"
#include "trainer_internal.h"

uint32_t course_run_step(const course_run *r) {
    return r->full ? r->full->step : r->trainer->step;
}

uint32_t course_run_steps(const course_run *r) {
    return r->full ? r->full->recipe.steps : r->trainer->recipe.steps;
}

const float *course_run_losses(const course_run *r) {
    return r->full ? r->full->losses : r->trainer->losses;
}

size_t course_run_value_count(const course_run *r) {
    return r->full ? r->full->tensors.value_count : r->trainer->lora.value_count;
}

const float *course_run_values(const course_run *r) {
    return r->full ? r->full->values : r->trainer->lora.values;
}

omm_train_result course_run_result(const course_run *r) {
    return r->full ? omm_full_result(r->full) : omm_trainer_result(r->trainer);
}

omm_err course_run_next(const course_run *r, omm_step_report *report) {
    omm_full_report f;
    if (!r->full) return omm_trainer_step(r->trainer, report);
    OMM_TRY(omm_full_step(r->full, &f));
    *report = (omm_step_report){.step = f.step,
                                .loss = f.loss,
                                .grad_norm = f.grad_norm,
                                .learning_rate = f.learning_rate,
                                .tokens = f.tokens,
                                .learned = f.learned};
    return OMM_OK;
}

omm_err course_run_save(const course_run *r, omm_buf *out) {
    return r->full ? omm_full_checkpoint(r->full, out) : omm_trainer_save(r->trainer, out);
}

omm_err course_run_check(uint32_t *step, const course_run *r, omm_bytes checkpoint) {
    return r->full ? full_checkpoint_step(step, r->full, checkpoint)
                   : checkpoint_step(step, r->trainer, checkpoint);
}

omm_err course_run_resume(const course_run *r, omm_bytes checkpoint) {
    return r->full ? omm_full_resume(r->full, checkpoint)
                   : omm_trainer_resume(r->trainer, checkpoint);
}
