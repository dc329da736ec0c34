/* course.h - a training run judged on the way: held-out loss every k steps, the best adapter, early
 * stop, and one checkpoint of all of it.
 *
 *   open -> next, next, ... (done) -> adapter (best or last), log
 *            |  ^
 *          save  resume: an interrupted run ends with the same bytes, and the same log
 *
 * One call of next does one thing, a step or an evaluation, so that a run may be saved between any
 * two.  Evaluations are before the first step, after every k-th and after the last.
 *
 * Depends on: trainer.h, full.h; engine's lora.h.  Threads: as its trainer.
 */
#ifndef OMM_COURSE_H
#define OMM_COURSE_H

#include "omm/full.h"
#include "omm/trainer.h"

typedef struct omm_course omm_course;

typedef struct omm_course_options {
    omm_trainer *trainer; /* borrowed; it moves through the course alone */
    omm_full *full;       /* instead of it: all weights */
    uint32_t eval_every;  /* steps; 0: never */
    uint32_t patience;    /* stop after so many evaluations in a row without a new best; 0: never */
    bool keep_best;       /* the adapter is the one of the lowest held-out loss, not the last */
    omm_digest eval_data; /* of what is judged on: a checkpoint belongs to it */
    /* Held-out loss of an adapter (with `full` NULL: of its model as it is), finite; the same for the
     * same. */
    omm_err (*evaluate)(void *ud, double *loss, const struct omm_lora *adapter);
    void *ud;
} omm_course_options;

/* Errors: CONFIG (patience or keep_best without eval_every), NOMEM. */
OMM_CHECKED omm_err omm_course_open(omm_course **out, const omm_course_options *options);
void omm_course_close(omm_course *course);

typedef struct omm_course_eval {
    uint32_t step; /* done before it */
    double loss;
} omm_course_eval;

typedef struct omm_course_event {
    bool is_eval;
    omm_step_report step; /* of a step */
    omm_course_eval eval; /* of an evaluation */
    bool is_best;         /* lower than all before */
} omm_course_event;

bool omm_course_is_done(const omm_course *course);
/* Do the next step or evaluation; `event` may be NULL.  Errors: STATE (done), NUMERIC (a loss that
 * is not finite), those of omm_trainer_step and of `evaluate`.  On error nothing has changed. */
OMM_CHECKED omm_err omm_course_next(omm_course *course, omm_course_event *event);

/* What has come of it so far; borrowed, valid until the next call of next or resume. */
typedef struct omm_course_log {
    uint32_t steps;          /* done */
    const float *losses;     /* (steps) of the training batches */
    const float *grad_norms; /* (steps) before clipping */
    const float *rates;      /* (steps) */
    const omm_course_eval *evals;
    size_t eval_count;
    size_t best;        /* index of the lowest in evals; the first of equals */
    bool stopped_early; /* patience ran out */
} omm_course_log;
omm_course_log omm_course_log_of(const omm_course *course);

/* The adapter to keep: of the best evaluation or of the last step; NULL with `full`.  Borrowed, as the
 * log. */
const struct omm_lora *omm_course_adapter(const omm_course *course);
/* With `full`: the model becomes what is to be kept.  The course may not go on after it. */
void omm_course_settle(const omm_course *course);
omm_train_result omm_course_result(const omm_course *course);

/* Append a checkpoint.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_course_save(const omm_course *course, omm_buf *out);
/* Continue in a course and a trainer opened with the same options.  Errors: FORMAT, SIZE, VERSION,
 * DIGEST (bytes damaged), MISMATCH (another run).  On error nothing has changed. */
OMM_CHECKED omm_err omm_course_resume(omm_course *course, omm_bytes checkpoint);

#endif
