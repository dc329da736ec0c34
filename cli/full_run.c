/* full_run.c - training over all weights, step by step. */
#include "full_run.h"

#include "places.h"

#include "omm/clock.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/quantise.h"

#include <stdio.h>
#include <string.h>

static omm_err save(const void *ud, omm_buf *out) {
    return omm_full_checkpoint(((const full_run *)ud)->full, out);
}

static omm_err load(void *ud, omm_bytes in) {
    return omm_full_resume(((full_run *)ud)->full, in);
}

/* --- open and close -------------------------------------------------------------------------- */

omm_err full_run_check_type(const char *type) {
    char types[512];
    bool is_mix = false;
    if (omm_quantise_knows(&is_mix, type)) return OMM_OK;
    omm_quantise_types(types, sizeof types);
    return omm_raise(OMM_ERR_CONFIG, "element type '%.32s'; accepted: %s", type, types);
}

omm_err full_run_check(const full_run_options *o) {
    OMM_TRY(full_run_check_type(o->type));
    return kept_run_check(o->checkpoint, o->checkpoint_every, o->resume);
}

static omm_err resume(full_run *r) {
    bool there = false;
    r->kept = (kept_run){.path = r->options.checkpoint,
                         .bytes_max = FULL_RUN_BYTES_MAX,
                         .save = save,
                         .load = load,
                         .ud = r,
                         .json = r->options.json};
    OMM_TRY(kept_run_open(&there, &r->kept, r->options.resume));
    if (!there) return OMM_OK;
    r->tokens_before = omm_full_tokens(r->full);
    r->steps_before = omm_full_steps(r->full);
    fprintf(stderr, "%s: goes on after step %u of %u\n", r->kept.path, omm_full_steps(r->full),
            r->steps);
    return OMM_OK;
}

/* For what is written at the end, and beside it what is written on the way, without which the run would end there. */
static omm_err hold_room(full_run *r) {
    const uint64_t values = omm_full_values(r->full), moments = omm_full_moments(r->full);
    OMM_TRY(place_hold_room(&r->room, r->options.out, "--out",
                            omm_quantise_bytes_least(r->options.type, values)));
    if (r->steps < r->options.checkpoint_every) return OMM_OK; /* the last one may fail */
    return place_check_room(r->options.checkpoint, "--checkpoint",
                            (values + moments) * sizeof(float));
}

omm_err full_run_open(full_run *r, const omm_recipe *recipe, const omm_full_muon *muon,
                      uint64_t seed) {
    const omm_full_options options = {.model = &r->model,
                                      .data = r->data,
                                      .recipe = recipe,
                                      .muon = *muon,
                                      .like = &r->gguf,
                                      .compute = &r->compute,
                                      .seed = omm_seed_from_u64(seed),
                                      .listed = r->listed,
                                      .cancelled = kept_run_is_stopped};
    r->steps = recipe->steps;
    if (r->valid) r->items = omm_alloc(omm_dataset_count(r->valid), sizeof *r->items);
    if (r->valid && !r->items) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    OMM_TRY(omm_full_open(&r->full, &options));
    OMM_TRY(resume(r));
    OMM_TRY(hold_room(r));
    return kept_run_take_signals();
}

void full_run_close(full_run *r) {
    omm_file_out_close(&r->room);
    omm_full_close(r->full);
    omm_dataset_close(r->data);
    omm_dataset_close(r->valid);
    omm_free(r->items);
    omm_tokenizer_close(r->tokenizer);
    if (r->is_open) {
        omm_model_fini(&r->model);
        omm_gguf_close(&r->gguf);
    }
    omm_compute_fini(&r->compute);
    omm_pool_close(r->pool);
}

/* --- the run --------------------------------------------------------------------------------- */

static omm_err judge_model(double *loss, full_run *r, const omm_model *model) {
    const omm_eval_options options = {.tokenizer = r->tokenizer, .cancelled = kept_run_is_stopped};
    OMM_TRY(omm_evaluate(r->items, model, NULL, r->valid, &r->compute, &options));
    *loss = omm_eval_summarise(r->items, omm_dataset_count(r->valid)).loss;
    return OMM_OK;
}

static omm_err judge(full_run *r) {
    if (!r->valid) return OMM_OK;
    OMM_TRY(judge_model(&r->loss, r, &r->model));
    r->judged++;
    const uint32_t step = omm_full_steps(r->full);
    if (r->options.json)
        return kept_run_print_event(json_pack("{s:s,s:I,s:f}", "event", "evaluation", "step",
                                              (json_int_t)step, "loss", r->loss));
    cli_progress_end(&r->bar);
    fprintf(stderr, "step %u: held-out loss %.4f\n", step, r->loss);
    return OMM_OK;
}

static omm_err show_step(full_run *r, const omm_full_report *s) {
    const double seconds = (double)(r->train_ns + 1) / 1e9;
    const double speed = (double)(omm_full_tokens(r->full) - r->tokens_before) / seconds;
    const double left = (double)(r->steps - s->step) / (s->step - r->steps_before);
    const uint64_t memory = omm_memory_peak();
    if (r->options.json)
        return kept_run_print_event(json_pack(
            "{s:s,s:I,s:f,s:f,s:f,s:I,s:f,s:f,s:I}", "event", "step", "step", (json_int_t)s->step,
            "loss", (double)s->loss, "grad_norm", (double)s->grad_norm, "learning_rate",
            (double)s->learning_rate, "tokens", (json_int_t)s->tokens, "tokens_per_s", speed,
            "eta_s", seconds * left, "memory_bytes", (json_int_t)memory));
    cli_progress_step(&r->bar, omm_measure_ns() / 1000000,
                      &(cli_step){s->step, r->steps, (double)s->loss, speed, memory, -1});
    return OMM_OK;
}

static omm_err one_step(full_run *r) {
    omm_full_report report;
    const uint64_t begin = omm_measure_ns();
    OMM_TRY(omm_full_step(r->full, &report));
    r->train_ns += omm_measure_ns() - begin;
    OMM_TRY(show_step(r, &report));
    const uint32_t every = r->options.judge_every;
    if ((every && report.step % every == 0) || omm_full_is_done(r->full)) OMM_TRY(judge(r));
    return report.step % r->options.checkpoint_every == 0 ? kept_run_save(&r->kept, report.step)
                                                          : OMM_OK;
}

static omm_err all_steps(full_run *r) {
    if (omm_full_is_done(r->full)) OMM_TRY(judge(r));
    while (!omm_full_is_done(r->full)) OMM_TRY(one_step(r));
    kept_run_save_last(&r->kept, r->steps, r->options.out);
    return OMM_OK;
}

omm_err full_run_steps(full_run *r) {
    cli_progress_init(&r->bar);
    cli_progress_log(&r->bar, CLI_PROGRESS_LOG_MS);
    omm_err err = all_steps(r);
    cli_progress_end(&r->bar);
    if (err != OMM_ERR_CANCELLED) return err;
    return kept_run_stopped(&r->kept, omm_full_steps(r->full), r->steps);
}

/* --- what came of it ------------------------------------------------------------------------- */

omm_err full_run_write(const char *path, const char *type, omm_pool *pool, omm_bytes file) {
    omm_gguf gguf;
    omm_quantise_report report = {0};
    bool is_mix = false; /* of several types on purpose */
    (void)omm_quantise_knows(&is_mix, type);
    const omm_quantise_options options = {.type = type, .pure = !is_mix};
    if (strcmp(type, "F32") == 0) return omm_file_write(path, file, 0644);
    OMM_TRY(omm_gguf_open_bytes(&gguf, file));
    omm_err err = omm_quantise_file(path, &gguf, &options, pool, &report, NULL, NULL);
    omm_quantise_report_fini(&report);
    omm_gguf_close(&gguf);
    return err;
}

/* The model as the file has it: its type rounds. */
static omm_err judge_file(full_run *r) {
    omm_gguf gguf;
    omm_model written;
    OMM_TRY(omm_gguf_open(&gguf, r->options.out));
    omm_err err = omm_model_load_with(&written, r->pool, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    err = judge_model(&r->loss_written, r, &written);
    omm_model_fini(&written);
    if (err != OMM_ERR_CANCELLED) return err;
    kept_run_tell_interrupted(&r->kept, r->steps, r->steps, r->options.out);
    return omm_raise(err, "stopped while judging what was trained: %s is written", r->options.out);
}

omm_err full_run_save(full_run *r) {
    omm_buf file;
    OMM_TRY(omm_full_set_apart(r->full, &r->unseen, r->unseen_spread));
    omm_buf_init(&file, FULL_RUN_BYTES_MAX);
    omm_err err = omm_full_save(&file, &r->model, &r->gguf);
    omm_file_out_close(&r->room);
    if (err == OMM_OK)
        err = full_run_write(r->options.out, r->options.type, r->pool, omm_buf_view(&file));
    omm_buf_fini(&file);
    return err == OMM_OK && r->judged ? judge_file(r) : err;
}

omm_err full_run_report(const full_run *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest file;
    OMM_TRY(omm_hash_file(&file, r->options.out));
    omm_digest_hex(hex, &file);
    const uint32_t steps = r->full ? omm_full_steps(r->full) : 0;
    const uint64_t tokens = r->full ? omm_full_tokens(r->full) : 0;
    const double seconds = (double)r->train_ns / 1e9;
    const uint32_t vocab = omm_tokenizer_vocab(r->tokenizer);
    if (r->options.json) {
        json_t *result = json_pack(
            "{s:s,s:i,s:o,s:s,s:I,s:I,s:I,s:f}", "event", "result", "schema_version", 1, "file",
            omm_json_text(r->options.out), "digest", hex, "steps", (json_int_t)steps, "tokens",
            (json_int_t)tokens, "vocabulary", (json_int_t)vocab, "seconds", seconds);
        if (result && r->full) {
            json_object_set_new(result, "weights",
                                json_integer((json_int_t)omm_full_values(r->full)));
            json_object_set_new(result, "moments",
                                json_integer((json_int_t)omm_full_moments(r->full)));
            json_object_set_new(result, "unseen_tokens", json_integer((json_int_t)r->unseen));
        }
        if (result && r->judged)
            json_object_set_new(result, "held_out_loss", json_real(r->loss_written));
        return kept_run_print_event(result);
    }
    printf("%s: %u steps, %llu tokens, %.0f s of steps, vocabulary of %u", r->options.out, steps,
           (unsigned long long)tokens, seconds, vocab);
    if (r->judged)
        printf(", held-out loss %.4f as the file has it (%s), perplexity %.4f", r->loss_written,
               r->options.type, omm_exp_d(r->loss_written));
    if (r->unseen > 0) printf("; %u of its tokens are in no text of the training", r->unseen);
    printf("\nBLAKE2b-256 %s\n", hex);
    return OMM_OK;
}
