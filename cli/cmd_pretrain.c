/* cmd_pretrain.c - `meshmind pretrain`: a small model from nothing, as a file says: vocabulary, random
 * weights, training over all of them. */
#include "commands.h"
#include "full_run.h"
#include "options.h"
#include "places.h"
#include "threads.h"
#include "train_options.h"

#include "omm/documents.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/pretrain.h"

#include <stdio.h>
#include <stdlib.h>

enum { ARENA_BYTES_MAX = 1 << 22, CHECKPOINT_EVERY = 500 };
enum { PLACE_OUT, PLACE_CHECKPOINT, PLACES };

typedef struct pretrain_run {
    full_run run;
    const char *config_path, *data, *threads;
    bool start; /* only the model that training begins with */
    omm_arena arena;
    omm_pretrain_config config;
    char folder[OMM_PATH_MAX]; /* of the config */
    place_made places[PLACES];
    omm_buf file; /* the model before the first step: run.gguf lies in it */
} pretrain_run;

static omm_err open_model(pretrain_run *r) {
    const omm_pretrain_folders folders = {r->folder, r->data ? r->data : r->folder};
    OMM_TRY(omm_pretrain_start(&r->file, &r->config, &folders));
    OMM_TRY(omm_gguf_open_bytes(&r->run.gguf, omm_buf_view(&r->file)));
    r->run.is_open = true;
    OMM_TRY(omm_model_load_with(&r->run.model, r->run.pool, &r->run.gguf));
    return omm_tokenizer_open(&r->run.tokenizer, &r->run.gguf);
}

static omm_err open_texts(pretrain_run *r) {
    const omm_pretrain_training *t = &r->config.training;
    const char *const *names = t->texts.items, *paths[OMM_PRETRAIN_TEXTS_MAX];
    char(*joined)[OMM_PATH_MAX] = omm_alloc(OMM_PRETRAIN_TEXTS_MAX, sizeof *joined);
    omm_err err = joined ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < t->texts.count && err == OMM_OK; i++) {
        err = omm_path_join(joined[i], r->data ? r->data : r->folder, names[i]);
        paths[i] = joined[i];
    }
    if (err == OMM_OK)
        err = omm_dataset_documents(&r->run.data, paths, t->texts.count, r->run.tokenizer,
                                    t->separator, r->config.model.context);
    omm_free(joined);
    return err;
}

static omm_err open_valid(pretrain_run *r) {
    char path[OMM_PATH_MAX];
    const char *paths[1] = {path};
    if (!r->config.valid_text) return OMM_OK;
    OMM_TRY(omm_path_join(path, r->folder, r->config.valid_text));
    const omm_err err =
        omm_dataset_documents(&r->run.valid, paths, 1, r->run.tokenizer,
                              r->config.training.separator, r->config.model.context);
    return err == OMM_ERR_NOT_FOUND ? omm_raise(err, "valid_text: %s", omm_err_sentence()) : err;
}

static omm_err check_one(const pretrain_run *r, const char *folder, const char *name) {
    char path[OMM_PATH_MAX];
    if (!name) return OMM_OK;
    OMM_TRY(omm_path_join(path, folder, name));
    OMM_TRY(cli_check_written("--checkpoint", r->run.options.checkpoint,
                              (const cli_input[]){{"a file that CONFIG names", path}, {0}}));
    return cli_check_out(r->run.options.out,
                         (const cli_input[]){{"a file that CONFIG names", path}, {0}});
}

static omm_err check_all(const pretrain_run *r, const char *folder, const omm_config_list *list) {
    const char *const *names = list->items;
    for (size_t i = 0; i < list->count; i++) OMM_TRY(check_one(r, folder, names[i]));
    return OMM_OK;
}

/* What is wrong with what a file says, where the sentence begins with the key. */
static omm_err of_config(omm_err err, const pretrain_run *r) {
    return omm_config_place(err, r->config_path);
}

/* The model does not take the place of what it is made from. */
static omm_err check_sources(const pretrain_run *r) {
    const omm_pretrain_config *c = &r->config;
    const char *names[] = {c->vocabulary.from, c->chat_template, c->valid_text};
    const char *data = r->data ? r->data : r->folder;
    OMM_TRY(check_all(r, data, &c->vocabulary.texts));
    OMM_TRY(check_all(r, data, &c->training.texts));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        OMM_TRY(check_one(r, r->folder, names[i]));
    return OMM_OK;
}

/* Those of `list`, which `key` names, are there. */
static omm_err find_all(const pretrain_run *r, const char *key, const omm_config_list *list) {
    const char *folder = r->data ? r->data : r->folder;
    const char *const *names = list->items;
    for (size_t i = 0; i < list->count; i++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(omm_path_join(path, folder, names[i]));
        if (omm_file_exists(path)) continue;
        return of_config(omm_raise(OMM_ERR_NOT_FOUND,
                                   "%s: %s is not there; texts are looked for in %s: give --data "
                                   "DIR; those of scenarios/base/pretrain.yaml are written by "
                                   "tools/make_base.sh",
                                   key, path, folder),
                         r);
    }
    return OMM_OK;
}

/* It lies beside CONFIG, wherever the texts are. */
static omm_err find_valid(const pretrain_run *r) {
    char path[OMM_PATH_MAX];
    if (!r->config.valid_text) return OMM_OK;
    OMM_TRY(omm_path_join(path, r->folder, r->config.valid_text));
    if (omm_file_exists(path)) return OMM_OK;
    return of_config(omm_raise(OMM_ERR_NOT_FOUND,
                               "valid_text: %s is not there; it is looked for beside CONFIG", path),
                     r);
}

/* Before the vocabulary is made, which may take a minute. */
static omm_err find_texts(const pretrain_run *r) {
    OMM_TRY(find_all(r, "vocabulary.texts", &r->config.vocabulary.texts));
    if (r->start) return OMM_OK;
    OMM_TRY(find_all(r, "training.texts", &r->config.training.texts));
    return find_valid(r);
}

/* What a table has no list of: the types that quantize has. */
static omm_err check_type(const pretrain_run *r) {
    const omm_err err = full_run_check_type(r->config.type);
    if (err == OMM_OK) return err;
    return of_config(omm_raise(OMM_ERR_CONFIG, "type: %s", omm_err_sentence()), r);
}

static omm_err open_run(pretrain_run *r) {
    omm_isa isa = OMM_ISA_SCALAR;
    unsigned threads = 0;
    OMM_TRY(cli_check_out(r->run.options.out,
                          (const cli_input[]){{"CONFIG", r->config_path},
                                              {"--checkpoint", r->run.options.checkpoint},
                                              {0}}));
    OMM_TRY(cli_check_written("--checkpoint", r->run.options.checkpoint,
                              (const cli_input[]){{"CONFIG", r->config_path}, {0}}));
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(cli_threads_parse(&threads, r->threads));
    if (threads == 0) return omm_raise(OMM_ERR_USAGE, "--threads auto: pretrain wants a number");
    OMM_TRY(omm_pretrain_load(&r->config, r->config_path, &r->arena));
    OMM_TRY(omm_path_dir(r->folder, r->config_path));
    OMM_TRY(check_sources(r));
    r->run.options.type = r->config.type;
    r->run.options.judge_every = r->config.valid_every;
    OMM_TRY(check_type(r));
    OMM_TRY(full_run_check(&r->run.options));
    OMM_TRY(kept_run_check_there(r->run.options.checkpoint, r->run.options.resume));
    OMM_TRY(find_texts(r));
    OMM_TRY(omm_pool_open(&r->run.pool, threads));
    OMM_TRY(omm_compute_init(&r->run.compute, r->run.pool, isa));
    return of_config(open_model(r), r);
}

static omm_err run_all(pretrain_run *r) {
    OMM_TRY(open_run(r));
    if (r->start) {
        OMM_TRY(full_run_write(r->run.options.out, r->run.options.type, r->run.pool,
                               omm_buf_view(&r->file)));
        return full_run_report(&r->run);
    }
    const omm_recipe recipe = omm_pretrain_recipe(&r->config);
    OMM_TRY(of_config(open_texts(r), r));
    OMM_TRY(of_config(open_valid(r), r));
    train_warn_of_rate(&recipe, "training.warmup_steps", "training.steps",
                       "training.learning_rate");
    const omm_full_muon muon = omm_pretrain_muon_of(&r->config);
    r->run.listed = r->config.training.order == OMM_PRETRAIN_LISTED;
    r->run.unseen_spread = (float)r->config.training.unseen_spread;
    OMM_TRY(full_run_open(&r->run, &recipe, &muon, r->config.seed));
    OMM_TRY(full_run_steps(&r->run));
    OMM_TRY(full_run_save(&r->run));
    return full_run_report(&r->run);
}

/* What the run will write can be written: known before hours of work. */
static omm_err make_places(pretrain_run *r) {
    const full_run_options *o = &r->run.options;
    OMM_TRY(place_make_output(&r->places[PLACE_OUT], o->out, "--out"));
    if (!o->checkpoint) return OMM_OK;
    return place_make_output(&r->places[PLACE_CHECKPOINT], o->checkpoint, "--checkpoint");
}

/* Of a run that ended before its end no folder stays that it made and put nothing into. */
static void unmake_places(const pretrain_run *r) {
    for (size_t i = PLACES; i > 0; i--) place_unmake(&r->places[i - 1]);
}

int cmd_pretrain(int argc, char **argv) {
    pretrain_run r = {.run = {.options = {.checkpoint_every = CHECKPOINT_EVERY}, .room.fd = -1}};
    full_run_options *o = &r.run.options;
    const omm_config_field *keys = omm_pretrain_fields;
    const cli_option options[] = {
        {"out", 'o', CLI_STR, &o->out, "FILE", "the model (GGUF)"},
        {"data", 0, CLI_STR, &r.data, "DIR", "where the texts are, if not beside CONFIG"},
        {"keys", 0, CLI_KEYS, &keys, NULL,
         "print what CONFIG may say: each key, range and meaning"},
        {"start", 0, CLI_FLAG, &r.start, NULL,
         "write the model that training would begin with: vocabulary and random weights"},
        {"checkpoint", 0, CLI_STR, &o->checkpoint, "FILE",
         "where the run is kept, so that it can go on; also at SIGINT, SIGTERM and SIGHUP"},
        {"checkpoint-every", 0, CLI_U32, &o->checkpoint_every, "N", "steps (500)"},
        {"resume", 0, CLI_FLAG, &o->resume, NULL,
         "go on from --checkpoint if it is there: ends with the same bytes"},
        {"threads", 't', CLI_STR, &r.threads, "N", "threads; one per core by default"},
        {"json", 0, CLI_FLAG, &o->json, NULL,
         "JSON on stdout, one object a line: events, then the result"},
        {0}};
    int count = 0;
    char **args = NULL;
    const char *usage = "pretrain CONFIG --out MODEL [options] | --keys";
    int code =
        cli_parse(&count, &args, argc, argv, options, usage,
                  "Make a small model from nothing, as a YAML file says: a vocabulary from "
                  "text, random weights,\ntraining over all of them.  The same file and texts "
                  "give the same bytes on any machine.",
                  0, 1);
    if (code >= 0) return code;
    r.config_path = args[0];
    if (count == 0 || !o->out) {
        fprintf(stderr, "meshmind pretrain: CONFIG and --out are needed\nusage: meshmind %s\n",
                usage);
        return CLI_EXIT_USAGE;
    }
    if (!o->checkpoint && o->checkpoint_every != CHECKPOINT_EVERY)
        return cli_fail("pretrain",
                        omm_raise(OMM_ERR_USAGE, "--checkpoint-every needs --checkpoint"));
    if (r.start && (o->checkpoint || o->resume))
        return cli_fail("pretrain",
                        omm_raise(OMM_ERR_USAGE, "--start makes no step: --checkpoint and --resume "
                                                 "do not go with it"));
    omm_arena_init(&r.arena, ARENA_BYTES_MAX);
    omm_buf_init(&r.file, FULL_RUN_BYTES_MAX);
    omm_err err = make_places(&r);
    if (err == OMM_OK) err = run_all(&r);
    if (err != OMM_OK) unmake_places(&r);
    full_run_close(&r.run);
    omm_buf_fini(&r.file);
    omm_arena_fini(&r.arena);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("pretrain", err);
}
