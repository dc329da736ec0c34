/* cmd_pretrain.c - `meshmind pretrain`: a small model from nothing, as a file says: vocabulary, random
 * weights, training over all of them. */
#include "commands.h"
#include "options.h"
#include "progress.h"
#include "threads.h"

#include "omm/clock.h"
#include "omm/compute.h"
#include "omm/documents.h"
#include "omm/evaluate.h"
#include "omm/file.h"
#include "omm/full.h"
#include "omm/json.h"
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/pretrain.h"
#include "omm/quantise.h"
#include "omm/tokenizer.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a model and of its checkpoint: 2^31 weights and their moments. */
#define MODEL_BYTES_MAX ((size_t)1 << 35)
enum { ARENA_BYTES_MAX = 1 << 22 };

typedef struct pretrain_args {
    const char *config, *out, *data, *checkpoint, *threads;
    uint32_t checkpoint_every;
    bool resume, start, json;
} pretrain_args;

typedef struct pretrain_run {
    pretrain_args args;
    omm_arena arena;
    omm_pretrain_config config;
    char folder[OMM_PATH_MAX]; /* of the config */
    omm_pool *pool;
    omm_compute compute;
    omm_buf start; /* the model's file before the first step */
    omm_gguf gguf; /* over `start` */
    bool is_open;  /* gguf and model */
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data, *valid;
    omm_eval_item *items; /* one per example of `valid` */
    omm_full *full;
    double valid_loss; /* of the last judgement */
    bool has_loss;
    float step_loss;
    uint64_t train_ns, tokens_before; /* tokens: what a checkpoint brought */
    cli_progress bar;
} pretrain_run;

static atomic_bool s_stop;

static void on_signal(int number) {
    (void)number;
    atomic_store(&s_stop, true);
}

static bool is_stopped(void *ud) {
    (void)ud;
    return atomic_load(&s_stop);
}

static omm_err print_event(json_t *taken) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    omm_err err = taken ? omm_json_write(&text, taken) : omm_raise(OMM_ERR_NOMEM, "out of memory");
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    fflush(stdout);
    omm_buf_fini(&text);
    json_decref(taken);
    return err;
}

/* --- opening --------------------------------------------------------------------------------- */

static omm_err open_model(pretrain_run *r) {
    const omm_pretrain_folders folders = {r->folder, r->args.data ? r->args.data : r->folder};
    OMM_TRY(omm_pretrain_start(&r->start, &r->config, &folders));
    OMM_TRY(omm_gguf_open_bytes(&r->gguf, omm_buf_view(&r->start)));
    r->is_open = true;
    OMM_TRY(omm_model_load_with(&r->model, r->pool, &r->gguf));
    return omm_tokenizer_open(&r->tokenizer, &r->gguf);
}

static omm_err open_texts(pretrain_run *r) {
    const omm_pretrain_training *t = &r->config.training;
    const char *const *names = t->texts.items, *paths[OMM_PRETRAIN_TEXTS_MAX];
    char(*joined)[OMM_PATH_MAX] = omm_alloc(OMM_PRETRAIN_TEXTS_MAX, sizeof *joined);
    omm_err err = joined ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < t->texts.count && err == OMM_OK; i++) {
        err = omm_path_join(joined[i], r->args.data ? r->args.data : r->folder, names[i]);
        paths[i] = joined[i];
    }
    if (err == OMM_OK)
        err = omm_dataset_documents(&r->data, paths, t->texts.count, r->tokenizer, t->separator,
                                    r->config.model.context);
    omm_free(joined);
    return err;
}

static omm_err open_valid(pretrain_run *r) {
    char path[OMM_PATH_MAX];
    const char *paths[1] = {path};
    if (!r->config.valid_text) return OMM_OK;
    OMM_TRY(omm_path_join(path, r->folder, r->config.valid_text));
    OMM_TRY(omm_dataset_documents(&r->valid, paths, 1, r->tokenizer, r->config.training.separator,
                                  r->config.model.context));
    r->items = omm_alloc(omm_dataset_count(r->valid), sizeof *r->items);
    return r->items ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "out of memory");
}

static omm_err resume(pretrain_run *r) {
    const char *path = r->args.checkpoint;
    if (!path) return OMM_OK;
    const bool there = omm_file_exists(path);
    if (there && !r->args.resume)
        return omm_raise(OMM_ERR_USAGE,
                         "%s is there already: --resume goes on with it; remove it to begin again",
                         path);
    if (!there) return OMM_OK;
    omm_buf file;
    omm_buf_init(&file, MODEL_BYTES_MAX);
    omm_err err = omm_file_read(&file, path);
    if (err == OMM_OK) err = omm_full_resume(r->full, omm_buf_view(&file));
    omm_buf_fini(&file);
    OMM_TRY(err);
    r->tokens_before = omm_full_tokens(r->full);
    fprintf(stderr, "%s: goes on after step %u of %u\n", path, omm_full_steps(r->full),
            r->config.training.steps);
    return OMM_OK;
}

static omm_err open_trainer(pretrain_run *r) {
    const omm_recipe recipe = omm_pretrain_recipe(&r->config);
    OMM_TRY(open_texts(r));
    OMM_TRY(open_valid(r));
    const omm_full_options options = {.model = &r->model,
                                      .data = r->data,
                                      .recipe = &recipe,
                                      .compute = &r->compute,
                                      .seed = omm_seed_from_u64(r->config.seed),
                                      .cancelled = is_stopped};
    OMM_TRY(omm_full_open(&r->full, &options));
    OMM_TRY(resume(r));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    if (r->args.checkpoint &&
        (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0))
        return omm_raise(OMM_ERR_IO, "cannot take signals");
    return OMM_OK;
}

static omm_err open_run(pretrain_run *r) {
    omm_isa isa = OMM_ISA_SCALAR;
    unsigned threads = 0;
    if (r->args.resume && !r->args.checkpoint)
        return omm_raise(OMM_ERR_USAGE, "--resume needs --checkpoint FILE");
    if (!r->args.checkpoint_every)
        return omm_raise(OMM_ERR_USAGE, "--checkpoint-every 0; accepted: 1 and more");
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(cli_threads_parse(&threads, r->args.threads));
    if (threads == 0) return omm_raise(OMM_ERR_USAGE, "--threads auto: pretrain wants a number");
    OMM_TRY(omm_pretrain_load(&r->config, r->args.config, &r->arena));
    OMM_TRY(omm_path_dir(r->folder, r->args.config));
    OMM_TRY(omm_pool_open(&r->pool, threads));
    OMM_TRY(omm_compute_init(&r->compute, r->pool, isa));
    return open_model(r);
}

static void close_run(pretrain_run *r) {
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
    omm_buf_fini(&r->start);
    omm_arena_fini(&r->arena);
}

/* --- the run --------------------------------------------------------------------------------- */

static omm_err save_checkpoint(const pretrain_run *r) {
    omm_buf file;
    if (!r->args.checkpoint) return OMM_OK;
    omm_buf_init(&file, MODEL_BYTES_MAX);
    omm_err err = omm_full_checkpoint(r->full, &file);
    if (err == OMM_OK) err = omm_file_write(r->args.checkpoint, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    return err;
}

static omm_err judge(pretrain_run *r) {
    const omm_eval_options options = {.tokenizer = r->tokenizer, .cancelled = is_stopped};
    if (!r->valid) return OMM_OK;
    OMM_TRY(omm_evaluate(r->items, &r->model, NULL, r->valid, &r->compute, &options));
    r->valid_loss = omm_eval_summarise(r->items, omm_dataset_count(r->valid)).loss;
    r->has_loss = true;
    const uint32_t step = omm_full_steps(r->full);
    if (r->args.json)
        return print_event(json_pack("{s:s,s:I,s:f}", "event", "evaluation", "step",
                                     (json_int_t)step, "loss", r->valid_loss));
    cli_progress_end(&r->bar);
    fprintf(stderr, "step %u: held-out loss %.4f\n", step, r->valid_loss);
    return OMM_OK;
}

static omm_err show_step(pretrain_run *r, const omm_full_report *s) {
    const double seconds = (double)(r->train_ns + 1) / 1e9;
    const double speed = (double)(omm_full_tokens(r->full) - r->tokens_before) / seconds;
    if (r->args.json)
        return print_event(json_pack(
            "{s:s,s:I,s:f,s:f,s:f,s:I,s:f}", "event", "step", "step", (json_int_t)s->step, "loss",
            (double)s->loss, "grad_norm", (double)s->grad_norm, "learning_rate",
            (double)s->learning_rate, "tokens", (json_int_t)s->tokens, "tokens_per_s", speed));
    char text[96] = "training";
    if (r->bar.is_terminal)
        snprintf(text, sizeof text, "step %u/%u  loss %.4f  %.0f tokens/s", s->step,
                 r->config.training.steps, (double)s->loss, speed);
    cli_progress_show(&r->bar, omm_measure_ns() / 1000000,
                      (double)s->step / r->config.training.steps, text);
    return OMM_OK;
}

static omm_err one_step(pretrain_run *r) {
    omm_full_report report;
    const uint64_t begin = omm_measure_ns();
    OMM_TRY(omm_full_step(r->full, &report));
    r->train_ns += omm_measure_ns() - begin;
    r->step_loss = report.loss;
    OMM_TRY(show_step(r, &report));
    if (report.step % r->config.valid_every == 0 || omm_full_is_done(r->full)) OMM_TRY(judge(r));
    return report.step % r->args.checkpoint_every == 0 ? save_checkpoint(r) : OMM_OK;
}

static omm_err run_steps(pretrain_run *r) {
    omm_err err = OMM_OK;
    cli_progress_init(&r->bar);
    if (omm_full_is_done(r->full)) err = judge(r);
    while (err == OMM_OK && !omm_full_is_done(r->full)) err = one_step(r);
    cli_progress_end(&r->bar);
    if (err != OMM_ERR_CANCELLED) return err;
    OMM_TRY(save_checkpoint(r));
    return omm_raise(OMM_ERR_CANCELLED, "stopped after step %u of %u; with --resume %s goes on",
                     omm_full_steps(r->full), r->config.training.steps, r->args.checkpoint);
}

/* --- what came of it ------------------------------------------------------------------------- */

static omm_err write_type(const pretrain_run *r, omm_bytes file) {
    omm_gguf gguf;
    omm_quantise_report report = {0};
    const omm_quantise_options options = {.type = r->config.type, .pure = true};
    if (strcmp(r->config.type, "F32") == 0) return omm_file_write(r->args.out, file, 0644);
    OMM_TRY(omm_gguf_open_bytes(&gguf, file));
    omm_err err = omm_quantise_file(r->args.out, &gguf, &options, r->pool, &report, NULL, NULL);
    omm_quantise_report_fini(&report);
    omm_gguf_close(&gguf);
    return err;
}

static omm_err write_model(pretrain_run *r) {
    omm_buf file;
    if (r->args.start) return write_type(r, omm_buf_view(&r->start));
    omm_buf_init(&file, MODEL_BYTES_MAX);
    omm_err err = omm_full_save(&file, &r->model, &r->gguf);
    if (err == OMM_OK) err = write_type(r, omm_buf_view(&file));
    omm_buf_fini(&file);
    return err;
}

static omm_err report(const pretrain_run *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest file;
    OMM_TRY(omm_hash_file(&file, r->args.out));
    omm_digest_hex(hex, &file);
    const uint32_t steps = r->full ? omm_full_steps(r->full) : 0;
    const uint64_t tokens = r->full ? omm_full_tokens(r->full) : 0;
    const double seconds = (double)r->train_ns / 1e9;
    const uint32_t vocab = omm_tokenizer_vocab(r->tokenizer);
    if (r->args.json) {
        json_t *result =
            json_pack("{s:s,s:i,s:s,s:s,s:I,s:I,s:I,s:f}", "event", "result", "schema_version", 1,
                      "file", r->args.out, "digest", hex, "steps", (json_int_t)steps, "tokens",
                      (json_int_t)tokens, "vocabulary", (json_int_t)vocab, "seconds", seconds);
        if (result && r->has_loss)
            json_object_set_new(result, "held_out_loss", json_real(r->valid_loss));
        return print_event(result);
    }
    printf("%s: %u steps, %llu tokens, %.0f s of steps, vocabulary of %u", r->args.out, steps,
           (unsigned long long)tokens, seconds, vocab);
    if (r->has_loss)
        printf(", held-out loss %.4f, perplexity %.4f", r->valid_loss, omm_exp_d(r->valid_loss));
    printf("\nBLAKE2b-256 %s\n", hex);
    return OMM_OK;
}

static omm_err run_all(pretrain_run *r) {
    OMM_TRY(open_run(r));
    if (!r->args.start) {
        OMM_TRY(open_trainer(r));
        OMM_TRY(run_steps(r));
        OMM_TRY(save_checkpoint(r));
    }
    OMM_TRY(write_model(r));
    return report(r);
}

int cmd_pretrain(int argc, char **argv) {
    pretrain_run r = {.args = {.checkpoint_every = 500}};
    pretrain_args *a = &r.args;
    const cli_option options[] = {
        {"out", 'o', CLI_STR, &a->out, "FILE", "the model (GGUF)"},
        {"data", 0, CLI_STR, &a->data, "DIR", "where the texts are, if not beside CONFIG"},
        {"start", 0, CLI_FLAG, &a->start, NULL,
         "write the model that training would begin with: vocabulary and random weights"},
        {"checkpoint", 0, CLI_STR, &a->checkpoint, "FILE",
         "where the run is kept, so that it can go on; also at SIGINT and SIGTERM"},
        {"checkpoint-every", 0, CLI_U32, &a->checkpoint_every, "N", "steps (500)"},
        {"resume", 0, CLI_FLAG, &a->resume, NULL,
         "go on from --checkpoint if it is there: ends with the same bytes"},
        {"threads", 't', CLI_STR, &a->threads, "N", "threads; one per core by default"},
        {"json", 0, CLI_FLAG, &a->json, NULL,
         "JSON on stdout, one object a line: events, then the result"},
        {0}};
    int count = 0;
    char **args = NULL;
    const char *usage = "pretrain CONFIG --out MODEL [options]";
    int code =
        cli_parse(&count, &args, argc, argv, options, usage,
                  "Make a small model from nothing, as a YAML file says: a vocabulary from "
                  "text, random weights,\ntraining over all of them.  The same file and texts "
                  "give the same bytes on any machine.",
                  1, 1);
    if (code >= 0) return code;
    a->config = args[0];
    if (!a->out) {
        fprintf(stderr, "meshmind pretrain: --out is needed\nusage: meshmind %s\n", usage);
        return CLI_EXIT_USAGE;
    }
    omm_arena_init(&r.arena, ARENA_BYTES_MAX);
    omm_buf_init(&r.start, MODEL_BYTES_MAX);
    omm_err err = run_all(&r);
    close_run(&r);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("pretrain", err);
}
