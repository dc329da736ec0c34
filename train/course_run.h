/* course_run.h - what a course goes on with: a trainer of an adapter, or of all weights.  Inside train only. */
#ifndef TRAIN_COURSE_RUN_H
#define TRAIN_COURSE_RUN_H

#include "omm/full.h"
#include "omm/trainer.h"

/* One of them, borrowed; the other is NULL. */
typedef struct course_run {
    omm_trainer *trainer;
    omm_full *full;
} course_run;

uint32_t course_run_step(const course_run *r);       /* done */
uint32_t course_run_steps(const course_run *r);      /* in all */
const float *course_run_losses(const course_run *r); /* (step) */
size_t course_run_value_count(const course_run *r);  /* of adapter or model */
const float *course_run_values(const course_run *r); /* (value_count) as they are now */
omm_train_result course_run_result(const course_run *r);

/* As omm_trainer_step, _save and _resume; check: what resume would, and the steps that it has done. */
OMM_CHECKED omm_err course_run_next(const course_run *r, omm_step_report *report);
OMM_CHECKED omm_err course_run_save(const course_run *r, omm_buf *out);
OMM_CHECKED omm_err course_run_check(uint32_t *step, const course_run *r, omm_bytes checkpoint);
OMM_CHECKED omm_err course_run_resume(const course_run *r, omm_bytes checkpoint);

#endif
