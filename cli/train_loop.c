/* train_loop.c - a training run step by step: evaluations, checkpoints, signals, events. */
#include "train_run.h"

#include "omm/clock.h"
#include "omm/file.h"
#include "omm/mem.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Values, two moments and the best of the most weights that are trained. */
#define CHECKPOINT_BYTES_MAX (OMM_FULL_VALUES_MAX * 16 + ((size_t)1 << 30))

static atomic_bool s_stop;

static void on_signal(int number) {
    (void)number;
    atomic_store(&s_stop, true);
}

bool train_is_stopped(void *ud) {
    (void)ud;
    return atomic_load(&s_stop);
}

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
                                .tokenizer = r->tokenizer,
                                .cancelled = train_is_stopped,
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
    const omm_eval_options options = {.tokenizer = r->tokenizer, .cancelled = train_is_stopped};
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
    if (a->resume && !a->checkpoint)
        return omm_raise(OMM_ERR_USAGE, "--resume needs --checkpoint FILE");
    if (!a->checkpoint_every)
        return omm_raise(OMM_ERR_USAGE, "--checkpoint-every 0; accepted: 1 and more");
    return data_options_check(
        &a->data_options, omm_dataset_totals(r->data)->format == OMM_DATA_TEXT ||
                              (r->eval && omm_dataset_totals(r->eval)->format == OMM_DATA_TEXT));
}

static void event_print(json_t *taken) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    if (omm_json_write(&text, taken) == OMM_OK) {
        fwrite(text.data, 1, text.size, stdout);
        fflush(stdout);
    }
    omm_buf_fini(&text);
    json_decref(taken);
}

static omm_err resume(train_run *r) {
    omm_buf file;
    omm_buf_init(&file, CHECKPOINT_BYTES_MAX);
    omm_err err = omm_file_read(&file, r->args.checkpoint);
    if (err == OMM_OK) {
        err = omm_course_resume(r->course, omm_buf_view(&file));
        if (err != OMM_OK)
            err = omm_raise(err, "--checkpoint %s: %s", r->args.checkpoint, omm_err_sentence());
    }
    omm_buf_fini(&file);
    OMM_TRY(err);
    const omm_train_result done = omm_course_result(r->course);
    r->resumed_from = done.steps;
    r->train_tokens = done.tokens;
    if (r->args.json)
        event_print(json_pack("{s:s,s:I}", "event", "resumed", "step", (json_int_t)done.steps));
    else
        fprintf(stderr, "%s: goes on after step %u of %u\n", r->args.checkpoint, done.steps,
                r->recipe.steps);
    return OMM_OK;
}

static omm_err take_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0)
        return omm_raise(OMM_ERR_IO, "cannot take signals");
    return OMM_OK;
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
    if (!a->checkpoint) return OMM_OK;
    const bool there = omm_file_exists(a->checkpoint);
    if (there && !a->resume)
        return omm_raise(OMM_ERR_USAGE,
                         "%s is there already: --resume goes on with it; remove it "
                         "to begin again",
                         a->checkpoint);
    if (there) OMM_TRY(resume(r));
    if (!there && a->resume)
        fprintf(stderr, "%s is not there yet: begins with step 1\n", a->checkpoint);
    return take_signals();
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

static omm_err save_checkpoint(const train_run *r) {
    if (!r->args.checkpoint) return OMM_OK;
    omm_buf file;
    omm_buf_init(&file, CHECKPOINT_BYTES_MAX);
    omm_err err = omm_course_save(r->course, &file);
    if (err == OMM_OK) err = omm_file_write(r->args.checkpoint, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    return err;
}

/* A checkpoint is larger than what comes of the run, which is written where this one has no room. */
static void keep_last(const train_run *r) {
    if (save_checkpoint(r) != OMM_OK)
        fprintf(stderr, "the last checkpoint: %s; %s is written all the same\n", omm_err_sentence(),
                r->args.out);
}

static omm_err stopped(const train_run *r) {
    OMM_TRY(save_checkpoint(r));
    return omm_raise(OMM_ERR_CANCELLED, "stopped after step %u of %u; with --resume %s goes on",
                     omm_course_result(r->course).steps, r->recipe.steps, r->args.checkpoint);
}

static omm_err run_course(train_run *r, uint64_t begin) {
    while (!omm_course_is_done(r->course)) {
        omm_course_event event;
        omm_err err = omm_course_next(r->course, &event);
        if (err == OMM_ERR_CANCELLED) return stopped(r);
        OMM_TRY(err);
        energy_sample(&r->energy);
        show_event(r, &event, begin);
        if (omm_course_result(r->course).steps % r->args.checkpoint_every == 0)
            OMM_TRY(save_checkpoint(r));
    }
    keep_last(r);
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
