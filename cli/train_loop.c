/* train_loop.c - a training run step by step: evaluations, checkpoints, signals, events. */
#include "train_run.h"

#include "omm/clock.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

/* Values, two moments and the best of the most weights that are trained. */
#define CHECKPOINT_BYTES_MAX (OMM_FULL_VALUES_MAX * 16 + ((size_t)1 << 30))

static uint64_t now_ms(void) {
    return omm_measure_ns() / 1000000;
}

/* --- judging --------------------------------------------------------------------------------- */

static void on_judged(void *ud, size_t done, size_t total) {
    train_run *r = ud;
    energy_sample(&r->energy);
    cli_progress_show(&r->bar, now_ms(), (double)done / (double)total, "evaluating");
}

omm_err train_judge(train_run *r, omm_eval_summary *out, omm_eval_item *items,
                    const omm_lora *adapter) {
    if (!r->eval) return OMM_OK;
    omm_eval_options options = {.new_tokens_max = r->args.new_tokens,
                                .rope_positions = r->recipe.seq_max,
                                .tokenizer = r->tokenizer,
                                .cancelled = kept_run_is_stopped,
                                .progress = on_judged,
                                .ud = r};
    const uint64_t begin = omm_measure_ns();
    cli_progress_init(&r->bar);
    omm_err err = omm_evaluate(items, &r->model, adapter, r->eval, &r->compute, &options);
    cli_progress_end(&r->bar);
    train_clock_add(&r->clock, TRAIN_WORK_JUDGING, omm_measure_ns() - begin);
    if (err == OMM_OK) *out = omm_eval_summarise(items, omm_dataset_count(r->eval));
    return err;
}

static void on_evaluated(void *ud, size_t done, size_t total) {
    (void)done;
    (void)total;
    energy_sample(&((train_run *)ud)->energy);
}

/* Losses only: replies are judged before and after. */
static omm_err evaluate(void *ud, double *loss, const omm_lora *adapter) {
    train_run *r = ud;
    const omm_eval_options options = {.rope_positions = r->recipe.seq_max,
                                      .tokenizer = r->tokenizer,
                                      .cancelled = kept_run_is_stopped,
                                      .progress = on_evaluated,
                                      .ud = r};
    OMM_TRY(omm_evaluate(r->items, &r->model, adapter, r->eval, &r->compute, &options));
    *loss = omm_eval_summarise(r->items, omm_dataset_count(r->eval)).loss;
    return OMM_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

omm_err train_check_options(const train_run *r) {
    const omm_data_format formats[] = {
        omm_dataset_totals(r->data)->format,
        omm_dataset_totals(r->eval ? r->eval : r->data)->format,
    };
    return data_options_check(&r->args.data_options, formats, 2);
}

/* A line that cannot be written stops no run. */
static void event_print(json_t *taken) {
    const omm_err ignored = kept_run_print_event(taken);
    (void)ignored;
}

static void tell_resumed(train_run *r) {
    const omm_train_result done = omm_course_result(r->course);
    r->resumed_from = done.steps;
    r->train_tokens = done.tokens;
    if (r->args.json)
        event_print(json_pack("{s:s,s:I}", "event", "resumed", "step", (json_int_t)done.steps));
    else
        fprintf(stderr, "%s: goes on after step %u of %u\n", r->args.checkpoint, done.steps,
                r->recipe.steps);
}

static omm_err save(const void *ud, omm_buf *out) {
    return omm_course_save(((const train_run *)ud)->course, out);
}

static omm_err load(void *ud, omm_bytes in) {
    return omm_course_resume(((train_run *)ud)->course, in);
}

omm_err train_course_open(train_run *r) {
    const train_args *a = &r->args;
    omm_course_options options = {.trainer = r->trainer,
                                  .full = r->full,
                                  .eval_every = a->eval_every,
                                  .patience = a->patience,
                                  .keep_best = strcmp(a->keep, "best") == 0,
                                  .evaluate = evaluate,
                                  .ud = r};
    if (r->eval) options.eval_data = omm_dataset_digest(r->eval);
    OMM_TRY(omm_course_open(&r->course, &options));
    r->kept = (kept_run){.path = a->checkpoint,
                         .bytes_max = CHECKPOINT_BYTES_MAX,
                         .save = save,
                         .load = load,
                         .ud = r,
                         .json = a->json};
    if (!a->checkpoint) return OMM_OK;
    bool there = false;
    OMM_TRY(kept_run_open(&there, &r->kept, a->resume));
    if (there) tell_resumed(r);
    if (!there && a->resume)
        fprintf(stderr, "%s is not there yet: begins with step 1\n", a->checkpoint);
    return OMM_OK;
}

/* --- events ---------------------------------------------------------------------------------- */

/* To the end of the run, as far as what it does has been done before; patience may end it sooner. */
static double left_s(const train_run *r, uint32_t step) {
    const uint32_t steps = r->recipe.steps, every = r->args.eval_every;
    const uint64_t last = every && steps % every != 0; /* judged behind the last step in any case */
    const uint64_t left[TRAIN_WORK_COUNT] = {
        [TRAIN_WORK_STEP] = steps - step,
        [TRAIN_WORK_EVALUATION] = train_clock_times(step, steps, every) + last,
        [TRAIN_WORK_CHECKPOINT] =
            r->kept.path ? train_clock_times(step, steps, r->args.checkpoint_every) + 1 : 0,
        [TRAIN_WORK_JUDGING] = r->eval ? 1 : 0};
    return train_clock_left_s(&r->clock, left);
}

static void print_step(const train_run *r, const omm_step_report *s) {
    event_print(json_pack("{s:s,s:I,s:f,s:f,s:f,s:I,s:f,s:f,s:I}", "event", "step", "step",
                          (json_int_t)s->step, "loss", (double)s->loss, "grad_norm",
                          (double)s->grad_norm, "learning_rate", (double)s->learning_rate, "tokens",
                          (json_int_t)s->tokens, "tokens_per_s", train_tokens_per_s(r), "eta_s",
                          left_s(r, s->step), "memory_bytes", (json_int_t)train_memory_bytes()));
}

static void show_event(train_run *r, const omm_course_event *e) {
    if (r->args.json && !e->is_eval) print_step(r, &e->step);
    if (r->args.json && e->is_eval)
        event_print(json_pack("{s:s,s:I,s:f,s:b}", "event", "evaluation", "step",
                              (json_int_t)e->eval.step, "loss", e->eval.loss, "best",
                              (int)e->is_best));
    if (e->is_eval) return;
    cli_progress_step(&r->bar, now_ms(),
                      &(cli_step){.step = e->step.step,
                                  .steps = r->recipe.steps,
                                  .loss = (double)e->step.loss,
                                  .tokens_per_s = train_tokens_per_s(r),
                                  .memory_bytes = train_memory_bytes(),
                                  .left_s = left_s(r, e->step.step)});
}

/* --- the run --------------------------------------------------------------------------------- */

static omm_err save_by_the_clock(train_run *r) {
    const uint64_t begin = omm_measure_ns();
    OMM_TRY(kept_run_save(&r->kept, omm_course_result(r->course).steps));
    train_clock_add(&r->clock, TRAIN_WORK_CHECKPOINT, omm_measure_ns() - begin);
    return OMM_OK;
}

static omm_err run_course(train_run *r) {
    while (!omm_course_is_done(r->course)) {
        omm_course_event event;
        const uint64_t begin = omm_measure_ns();
        omm_err err = omm_course_next(r->course, &event);
        if (err == OMM_ERR_CANCELLED)
            return kept_run_stopped(&r->kept, omm_course_result(r->course).steps, r->recipe.steps);
        OMM_TRY(err);
        energy_sample(&r->energy);
        train_clock_add(&r->clock, event.is_eval ? TRAIN_WORK_EVALUATION : TRAIN_WORK_STEP,
                        omm_measure_ns() - begin);
        show_event(r, &event);
        if (omm_course_result(r->course).steps % r->args.checkpoint_every == 0)
            OMM_TRY(save_by_the_clock(r));
    }
    kept_run_save_last(&r->kept, omm_course_result(r->course).steps, r->args.out);
    return OMM_OK;
}

omm_err train_all(train_run *r) {
    cli_progress_init(&r->bar);
    cli_progress_log(&r->bar, CLI_PROGRESS_LOG_MS);
    omm_err err = run_course(r);
    cli_progress_end(&r->bar);
    return err;
}
