/* supply.c - see supply.h. */
#include "supply.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/plan.h"
#include "omm/recipe.h"
#include "omm/session.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Stacks of threads, the state's database, messages; measured with the tests' models: under 3 MB. */
#define PROGRAM_BYTES ((uint64_t)4 << 20)
/* Beside the trainer, in values of 4 bytes: start, its copy or the message that it came in, trained. */
#define BESIDE_COPIES 3u
#define MEGABYTE 1000000u

static omm_err file_now(supply_file *out, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return omm_raise(OMM_ERR_NOT_FOUND, "no file %s", path);
    *out = (supply_file){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                         (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec};
    return OMM_OK;
}

static omm_err check_model_file(const supply *s) {
    supply_file now = {0};
    OMM_TRY(file_now(&now, s->files.model));
    if (now.device == s->model_was.device && now.inode == s->model_was.inode &&
        now.size == s->model_was.size && now.changed_ns == s->model_was.changed_ns)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s has changed since the node began: start it again",
                     s->files.model);
}

static omm_err load_data(supply *s) {
    omm_gguf gguf;
    const char *client = s->files.client;
    const bool is_one = client && client[0];
    const omm_dataset_options options = {.clients = is_one ? &client : NULL,
                                         .client_count = is_one,
                                         .format = OMM_DATA_DETECT,
                                         .client_default = "own"};
    OMM_TRY(omm_gguf_open(&gguf, s->files.model));
    omm_err err = omm_tokenizer_open(&s->tokenizer, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    err = omm_dataset_load(&s->own_data, s->files.data, s->tokenizer, &options);
    if (err != OMM_OK) { /* it is tried again with the next offer, from the beginning */
        omm_tokenizer_close(s->tokenizer);
        s->tokenizer = NULL;
        return err;
    }
    s->data = s->own_data;
    return OMM_OK;
}

/* From the header; and the digest of all of the file. */
static omm_err read_shape(supply *s) {
    omm_gguf gguf;
    OMM_TRY(file_now(&s->model_was, s->files.model));
    OMM_TRY(omm_gguf_open(&gguf, s->files.model));
    omm_model outline;
    omm_err err = omm_model_outline(&outline, &gguf);
    if (err == OMM_OK) {
        s->shape = outline.lora_shape;
        omm_lora_base_read(&s->shape.base, &gguf);
        omm_model_fini(&outline);
        s->base_digest = omm_gguf_digest(&gguf);
        err = check_model_file(s); /* it was one file all the time */
    }
    omm_gguf_close(&gguf);
    return err;
}

omm_err supply_open(supply *s, const omm_training_options *options) {
    *s = (supply){
        .model = options->model, .data = options->data, .lent_tokenizer = options->tokenizer};
    s->base_digest = options->base_digest;
    s->tokenizer_digest = options->tokenizer_digest;
    if (options->files) {
        s->files = *options->files;
        OMM_TRY(read_shape(s));
        OMM_TRY(load_data(s));
        s->tokenizer_digest = omm_tokenizer_digest(s->tokenizer);
    } else {
        s->shape = s->model->lora_shape;
    }
    s->data_digest = omm_dataset_digest(s->data);
    s->examples = omm_dataset_count(s->data);
    supply_rest(s);
    return OMM_OK;
}

void supply_rest(supply *s) {
    if (!s->files.model || (!s->tokenizer && !s->has_model)) return;
    if (s->own_data) omm_dataset_close(s->own_data);
    if (s->tokenizer) omm_tokenizer_close(s->tokenizer);
    if (s->has_model) omm_model_fini(&s->own_model);
    s->own_data = NULL;
    s->tokenizer = NULL;
    s->has_model = false;
    s->model = NULL;
    s->data = NULL;
    omm_mem_trim();
}

void supply_close(supply *s) {
    supply_rest(s);
}

omm_err supply_need_data(supply *s) {
    if (s->data) return OMM_OK;
    OMM_TRY(check_model_file(s)); /* the tokenizer is in it */
    OMM_TRY(load_data(s));
    const omm_digest digest = omm_dataset_digest(s->data);
    if (omm_digest_equal(&digest, &s->data_digest)) return OMM_OK;
    supply_rest(s);
    return omm_raise(OMM_ERR_MISMATCH, "%s has changed since the node began: start it again",
                     s->files.data);
}

omm_err supply_need_model(supply *s, omm_pool *pool) {
    if (s->model) return OMM_OK;
    omm_gguf gguf;
    OMM_TRY(check_model_file(s));
    OMM_TRY(omm_gguf_open(&gguf, s->files.model));
    omm_err err = omm_model_load_with(&s->own_model, pool, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    s->has_model = true;
    s->model = &s->own_model;
    return OMM_OK;
}

/* ---- memory ---- */

uint64_t supply_limit(const char **who, uint64_t most, uint64_t has) {
    const bool is_owners = most > 0 && (has == 0 || most <= has);
    *who = is_owners ? "max_memory_mb" : "what the machine has left";
    if (is_owners) return most;
    return has > 0 ? has : UINT64_MAX;
}

static uint64_t memory_limit(const char **who, const supply *s) {
    omm_memory machine;
    omm_memory_read(&machine, NULL);
    const uint64_t has = machine.available > 0 ? machine.available + omm_memory_resident() : 0;
    return supply_limit(who, s->files.memory_max, has);
}

static omm_err refuse(const char *who, uint64_t limit, const char *why) {
    char sentence[400];
    (void)snprintf(sentence, sizeof sentence, "%s", why);
    return omm_raise(OMM_ERR_REFUSED_SIZE, "%s of %.1f MB: %s", who, (double)limit / MEGABYTE,
                     sentence);
}

static omm_err fit(omm_train_plan *out, uint64_t *bytes, supply *s, const omm_gguf *gguf,
                   const omm_train_plan_options *o) {
    omm_plan load;
    omm_plan_options lo = {.session = omm_session_options_default(), .lodger = true};
    lo.session.positions_max = OMM_KV_BLOCK;
    OMM_TRY(omm_plan_make(&load, gguf, NULL, 0, &lo));
    OMM_TRY(omm_train_plan_make(out, o));
    const char *who = NULL;
    const uint64_t limit = memory_limit(&who, s);
    /* A second checkpoint is the one that was gone on from.  Encoding, and the file of the newest
     * adapter, take no more than that when the trainer is not there. */
    const uint64_t beside = s->before + s->shard + PROGRAM_BYTES +
                            (s->had_model ? 0 : omm_huge_taken(load.weights)) +
                            BESIDE_COPIES * sizeof(float) * out->parameters + out->checkpoint;
    char why[160];
    (void)snprintf(why, sizeof why, "model, data and copies of the adapter alone take %.1f MB",
                   (double)(beside + (s->model ? 0 : load.loading)) / MEGABYTE);
    if (beside + (s->model ? 0 : load.loading) > limit) return refuse(who, limit, why);
    const omm_err err = omm_train_plan_fit(out, o, limit - beside);
    if (err == OMM_ERR_CONFIG) return refuse(who, limit, omm_err_sentence());
    OMM_TRY(err);
    *bytes = beside + out->total;
    return OMM_OK;
}

const omm_tokenizer *supply_tokenizer(const supply *s) {
    return s->tokenizer ? s->tokenizer : s->lent_tokenizer;
}

omm_err supply_measure(supply *s) {
    if (!s->files.model) return OMM_OK;
    OMM_TRY(supply_need_data(s));
    omm_mem_trim(); /* of the job before */
    s->before = omm_memory_resident();
    s->had_model = s->model != NULL;
    s->shard = 0;
    return OMM_OK;
}

omm_err supply_plan(omm_train_plan *out, uint64_t *bytes, supply *s, const omm_recipe *recipe,
                    const omm_dataset *data) {
    *out = (omm_train_plan){.micro_tokens = recipe->micro_tokens};
    *bytes = 0;
    if (!s->files.model) return OMM_OK;
    OMM_TRY(supply_need_data(s));
    if (s->before == 0) OMM_TRY(supply_measure(s));
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, s->files.model));
    omm_model outline;
    omm_err err = omm_model_outline(&outline, &gguf);
    if (err == OMM_OK) {
        const omm_train_plan_options o = {.model = &outline,
                                          .recipe = recipe,
                                          .data = data ? data : s->data,
                                          .has_checkpoint = true,
                                          .threads = s->files.threads};
        err = fit(out, bytes, s, &gguf, &o);
        omm_model_fini(&outline);
    }
    omm_gguf_close(&gguf);
    return err;
}
