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
    cli_progress_init(&r->bar);
    omm_err err = omm_evaluate(items, &r->model, adapter, r->eval, &r->compute, &options);
    cli_progress_end(&r->bar);
    if (err == OMM_OK) *out = omm_eval_summarise(items, omm_dataset_count(r->eval));
    return err;
}

/* Losses only: replies are judged before and after. */
static omm_err evaluate(void *ud, double *loss, const omm_lora *adapter) {
    train_run *r = ud;
    const omm_eval_options options = {.rope_positions = r->recipe.seq_max,
                                      .tokenizer = r->tokenizer,
                                      .cancelled = kept_run_is_stopped};
    OMM_TRY(omm_evaluate(r->items, &r->model, adapter, r->eval, &r->compute, &options));
    *loss = omm_eval_summarise(r->items, omm_dataset_count(r->eval)).loss;
    return OMM_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

omm_err train_check_options(const train_run *r) {
    const train_args *a = &r->args;
    if (strcmp(a->keep, "best") != 0 && strcmp(a->keep, "last") != 0)
        return omm_raise(OMM_ERR_USAGE, "--keep '%.40s'; accepted: best, last", a->keep);
    if ((a->patience || strcmp(a->keep, "best") == 0) && !a->eval_every)
        return omm_raise(OMM_ERR_USAGE, "--keep best and --patience need --eval-every N");
    if (a->eval_every && !r->eval)
        return omm_raise(OMM_ERR_USAGE, "--eval-every needs --eval FILE or --split X");
    OMM_TRY(kept_run_check(a->checkpoint, a->checkpoint_every, a->resume));
    return data_options_check(
        &a->data_options, omm_dataset_totals(r->data)->format == OMM_DATA_TEXT ||
                              (r->eval && omm_dataset_totals(r->eval)->format == OMM_DATA_TEXT));
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
    r->kept = (kept_run){a->checkpoint, CHECKPOINT_BYTES_MAX, save, load, r};
    if (!a->checkpoint) return OMM_OK;
    bool there = false;
    OMM_TRY(kept_run_open(&there, &r->kept, a->resume));
    if (there) tell_resumed(r);
    if (!there && a->resume)
        fprintf(stderr, "%s is not there yet: begins with step 1\n", a->checkpoint);
    return kept_run_take_signals();
}

/* --- events ---------------------------------------------------------------------------------- */

static void print_step(const train_run *r, const omm_step_report *s, uint64_t begin) {
    const double seconds = (double)(omm_measure_ns() - begin + 1) / 1e9;
    const uint64_t tokens = omm_course_result(r->course).tokens - r->train_tokens;
    const double left = (double)(r->recipe.steps - s->step) / (s->step - r->resumed_from);
    event_print(json_pack("{s:s,s:I,s:f,s:f,s:f,s:I,s:f,s:f,s:I}", "event", "step", "step",
                          (json_int_t)s->step, "loss", (double)s->loss, "grad_norm",
                          (double)s->grad_norm, "learning_rate", (double)s->learning_rate, "tokens",
                          (json_int_t)s->tokens, "tokens_per_s", (double)tokens / seconds, "eta_s",
                          seconds * left, "memory_bytes", (json_int_t)train_memory_bytes()));
}

static void show_event(train_run *r, const omm_course_event *e, uint64_t begin) {
    if (r->args.json && !e->is_eval) print_step(r, &e->step, begin);
    if (r->args.json && e->is_eval)
        event_print(json_pack("{s:s,s:I,s:f,s:b}", "event", "evaluation", "step",
                              (json_int_t)e->eval.step, "loss", e->eval.loss, "best",
                              (int)e->is_best));
    if (e->is_eval) return;
    const double seconds = (double)(omm_measure_ns() - begin + 1) / 1e9;
    const uint64_t tokens = omm_course_result(r->course).tokens - r->train_tokens;
    cli_progress_step(&r->bar, now_ms(),
                      &(cli_step){e->step.step, r->recipe.steps, (double)e->step.loss,
                                  (double)tokens / seconds, train_memory_bytes()});
}

/* --- the run --------------------------------------------------------------------------------- */

static omm_err run_course(train_run *r, uint64_t begin) {
    while (!omm_course_is_done(r->course)) {
        omm_course_event event;
        omm_err err = omm_course_next(r->course, &event);
        if (err == OMM_ERR_CANCELLED)
            return kept_run_stopped(&r->kept, omm_course_result(r->course).steps, r->recipe.steps);
        OMM_TRY(err);
        energy_sample(&r->energy);
        show_event(r, &event, begin);
        if (omm_course_result(r->course).steps % r->args.checkpoint_every == 0)
            OMM_TRY(kept_run_save(&r->kept));
    }
    kept_run_save_last(&r->kept, r->args.out);
    return OMM_OK;
}

omm_err train_all(train_run *r) {
    cli_progress_init(&r->bar);
    cli_progress_log(&r->bar, CLI_PROGRESS_LOG_MS);
    const uint64_t begin = omm_measure_ns();
    omm_err err = run_course(r, begin);
    r->train_ns = omm_measure_ns() - begin;
    cli_progress_end(&r->bar);
    return err;
}
