/* loaded.c - see loaded.h. */
#include "loaded.h"

#include "places.h"

#include "omm/chat.h"
#include "omm/file.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/peft.h"
#include "omm/session_file.h"
#include "omm/thinking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASHED_BYTES ((size_t)1 << 20) /* of a file at once */

/* As many as `most`, as far as the model was trained for them. */
static omm_err positions_within(uint32_t *out, const omm_gguf *gguf, uint32_t most) {
    omm_model model;
    OMM_TRY(omm_model_outline(&model, gguf));
    *out = most < model.dims.context ? most : model.dims.context;
    omm_model_fini(&model);
    return OMM_OK;
}

omm_err loaded_check_positions(const omm_gguf *gguf, uint32_t wanted, const char *option) {
    uint32_t has = 0;
    OMM_TRY(positions_within(&has, gguf, UINT32_MAX));
    if (wanted <= has) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "%s %u: the model was trained for %u positions", option, wanted,
                     has);
}

/* The smallest cache that a model may have. */
static omm_err take_least_cache(omm_session_options *o, const omm_gguf *gguf) {
    omm_model model;
    OMM_TRY(omm_model_outline(&model, gguf));
    const uint32_t context = model.dims.context;
    o->positions_max = context < OMM_PLAN_POSITIONS_MIN ? context : OMM_PLAN_POSITIONS_MIN;
    o->kv_type = model.dims.head_dim < OMM_KV_Q8_0_DIM_MIN ? OMM_KV_F16 : OMM_KV_Q8_0;
    omm_model_fini(&model);
    return OMM_OK;
}

/* What a draft will take at the least: its file's model with the smallest cache. */
static omm_err draft_least(uint64_t *out, const loaded *l, const char *draft) {
    omm_gguf gguf;
    omm_plan plan;
    omm_plan_options o = {
        .session = omm_session_options_default(), .tokenizer = true, .lodger = true};
    o.session.activations = l->activations;
    OMM_TRY(omm_gguf_open(&gguf, draft));
    omm_err err = take_least_cache(&o.session, &gguf);
    if (err == OMM_OK) err = omm_plan_make(&plan, &gguf, NULL, 0, &o);
    if (err == OMM_OK) *out = plan.total;
    omm_gguf_close(&gguf);
    return err;
}

/* A draft comes after its host, which leaves room for it; both share what there was before either. */
static cli_memory_limit limit_of(const loaded *l, const loaded_options *o, const loaded *host) {
    if (!host)
        return (cli_memory_limit){
            .megabytes = o->max_memory_mb, .taken = l->draft_bytes, .by = "a draft"};
    return (cli_memory_limit){.megabytes = o->max_memory_mb,
                              .taken = host->memory.plan.total,
                              .by = "a model",
                              .available = host->memory.available};
}

/* As asked, else as in the session file, else the default.  Such a file goes with no other type; a bad one is
 * refused when it is loaded. */
static omm_err choose_kv(loaded *l, const loaded_options *o) {
    l->keeps_kv = o->session && omm_file_exists(o->session) &&
                  omm_session_file_kv(&l->kv_type, o->session) == OMM_OK;
    if (l->keeps_kv && !o->kv) return OMM_OK;
    return omm_kv_type_parse(&l->kv_type, o->kv ? o->kv : o->kv_default);
}

/* The adapters' files while memory is planned. */
typedef struct lora_files {
    omm_gguf files[OMM_ADAPTERS_MAX];
    const omm_gguf *list[OMM_ADAPTERS_MAX];
    size_t count;
} lora_files;

static void close_lora_files(lora_files *lora) {
    while (lora->count > 0) omm_gguf_close(&lora->files[--lora->count]);
}

static omm_err add_lora_file(lora_files *lora, const char *text) {
    char path[OMM_PATH_MAX];
    float scale = 1.0f;
    omm_gguf *file = &lora->files[lora->count];
    OMM_TRY(loaded_split_scale(path, &scale, text, "--lora"));
    OMM_TRY(cli_of_file(omm_gguf_open(file, path), "--lora", path));
    lora->list[lora->count++] = file;
    return OMM_OK;
}

static omm_err open_lora_files(lora_files *lora, const loaded_options *o) {
    omm_err err = OMM_OK;
    lora->count = 0;
    for (size_t i = 0; i < o->lora.count && err == OMM_OK; i++)
        err = add_lora_file(lora, o->lora.items[i]);
    if (err != OMM_OK) close_lora_files(lora);
    return err;
}

/* What the model will take with all adapters, before any of it is loaded. */
static omm_err plan_memory(loaded *l, const omm_gguf *gguf, const loaded_options *o,
                           const lora_files *lora, bool with_tokenizer, const loaded *host) {
    omm_plan_options plan = {.session = omm_session_options_default(),
                             .threads = host ? 0 : omm_pool_threads(l->pool),
                             .sessions = o->sessions,
                             .logit_rows = o->logit_rows,
                             .positions_min = o->positions_min,
                             .stream = o->stream ? OMM_PLAN_STREAM_FIRST : OMM_PLAN_STREAM_LAST,
                             .tokenizer = with_tokenizer,
                             .lexicon = o->lexicon && !host,
                             .lodger = host != NULL};
    if (host) plan.stream = OMM_PLAN_STREAM_NEVER; /* a draft that reads a file is no help */
    plan.session.positions_max = o->positions;
    if (host)
        OMM_TRY(positions_within(&plan.session.positions_max, gguf,
                                 host->memory.plan.session.positions_max));
    plan.session.activations = l->activations;
    plan.session.kv_type = l->kv_type;
    plan.keeps_kv = l->keeps_kv;
    return cli_memory_plan(&l->memory, gguf, lora->list, lora->count, &plan, limit_of(l, o, host));
}

/* host: of a draft, the model that it proposes for; else NULL. */
static omm_err open_model(loaded *l, const loaded_options *o, bool with_tokenizer,
                          const loaded *host) {
    lora_files lora;
    OMM_TRY(omm_gguf_open(&l->gguf, o->model));
    omm_err err = loaded_check_positions(&l->gguf, o->positions, "-c");
    if (err == OMM_OK) {
        OMM_TRY(open_lora_files(&lora, o));
        err = plan_memory(l, &l->gguf, o, &lora, with_tokenizer, host);
        close_lora_files(&lora);
    }
    if (err == OMM_OK) {
        cli_packed_open(&l->packed, o->packed, &l->gguf, o->model, l->pool);
        err = cli_packed_load(&l->model, &l->packed, l->pool, &l->gguf, l->memory.plan.resident);
    }
    if (err == OMM_OK && with_tokenizer) err = omm_tokenizer_open(&l->tokenizer, &l->gguf);
    if (!l->model.gguf) omm_gguf_close(&l->gguf);
    if (err == OMM_OK && l->tokenizer && omm_tokenizer_vocab(l->tokenizer) != l->model.dims.vocab)
        err = omm_raise(OMM_ERR_MISMATCH, "the vocabulary has %u tokens, the embedding %u",
                        omm_tokenizer_vocab(l->tokenizer), l->model.dims.vocab);
    if (err == OMM_OK && l->tokenizer && !host) cli_warn_words(l->tokenizer);
    return cli_of_file(err, host ? "--draft" : "-m", o->model);
}

/* Threads come before the model, because they pack it; "auto" chooses among them when it is there. */
static omm_err open_threads(loaded *l, unsigned *threads, const loaded_options *o) {
    OMM_TRY(cli_threads_parse(threads, o->threads));
    unsigned loading = *threads;
    if (loading == 0) OMM_TRY(cli_threads_parse(&loading, NULL));
    return omm_pool_open(&l->pool, loading);
}

static omm_err open_compute(loaded *l, unsigned threads) {
    omm_isa isa;
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(cli_threads_measure(&threads, &l->model, isa, 1, l->activations));
    if (threads != omm_pool_threads(l->pool)) {
        omm_pool_close(l->pool);
        l->pool = NULL;
        OMM_TRY(omm_pool_open(&l->pool, threads));
    }
    return omm_compute_init(&l->compute, l->pool, isa);
}

/* What is trained elsewhere comes as a folder. */
static omm_err refuse_peft(const char *path) {
    char config[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(config, path, OMM_PEFT_CONFIG_FILE));
    if (!omm_file_exists(config)) return OMM_OK;
    return omm_raise(
        OMM_ERR_USAGE,
        "%s is a PEFT folder; accepted: the GGUF file that `adapter import` makes of it", path);
}

omm_err loaded_split_scale(char path[OMM_PATH_MAX], float *scale, const char *text,
                           const char *option) {
    const char *eq = strrchr(text, '=');
    size_t size = strlen(text);
    *scale = 1.0f;
    if (eq && eq[1]) {
        char *end = NULL;
        const float value = strtof(eq + 1, &end);
        if (*end == 0) {
            if (!isfinite(value))
                return omm_raise(OMM_ERR_USAGE, "%s %.80s: a scale must be a finite number", option,
                                 text);
            *scale = value;
            size = (size_t)(eq - text);
        }
    }
    if (size >= OMM_PATH_MAX) return omm_raise(OMM_ERR_TOO_BIG, "%s: the path is too long", option);
    memcpy(path, text, size);
    path[size] = 0;
    if (strcmp(path, "newest") != 0 || omm_file_exists(path)) return refuse_peft(path);
    return place_path(path, PLACE_STATE, "node/newest.gguf"); /* where `node setup` has the state */
}

omm_err loaded_check_out(const char *out, const cli_list *adapters, const char *option) {
    for (size_t i = 0; out && i < adapters->count; i++) {
        char path[OMM_PATH_MAX];
        float scale = 0;
        OMM_TRY(loaded_split_scale(path, &scale, adapters->items[i], option));
        OMM_TRY(cli_check_out(out, (const cli_input[]){{option, path}, {0}}));
    }
    return OMM_OK;
}

static omm_err add_adapter(loaded *l, const char *text, bool any_base) {
    char path[OMM_PATH_MAX];
    float scale = 1.0f;
    omm_lora lora;
    omm_lora_shape shape = l->model.lora_shape;
    shape.base.any = any_base;
    OMM_TRY(loaded_split_scale(path, &scale, text, "--lora"));
    OMM_TRY(omm_lora_load_file(&lora, path, &shape));
    omm_err err = omm_adapter_open(&l->adapters[l->adapter_count], &l->model, &lora, scale);
    if (err == OMM_OK) l->adapter_count++;
    omm_lora_fini(&lora);
    omm_mem_trim(); /* the next one's values come where these were, not beside what the heap keeps */
    return err;
}

static omm_err open_session(loaded *l, const omm_compute *compute) {
    OMM_TRY(omm_session_open(&l->session, compute, &l->model, NULL, &l->memory.plan.session));
    return omm_session_set_adapters(l->session, (const omm_adapter *const *)l->adapters,
                                    l->adapter_count);
}

/* A pipe keeps nothing, and would be waited for. */
static omm_err check_session(const char *path) {
    uint64_t bytes = 0;
    OMM_TRY(place_check_unsealed("--session", path));
    if (!path || !omm_file_exists(path) || omm_file_size(&bytes, path) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE,
                     "--session %s: not a regular file; accepted: the file of a session, or a name "
                     "that nothing has yet",
                     path);
}

static omm_err open_all(loaded *l, const loaded_options *o, bool with_tokenizer) {
    if (!o->model) return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE");
    if (o->lora.count > OMM_ADAPTERS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--lora: %u adapters; at most %u at once", o->lora.count,
                         OMM_ADAPTERS_MAX);
    OMM_TRY(check_session(o->session));
    OMM_TRY(choose_kv(l, o));
    OMM_TRY(omm_activations_parse(&l->activations, o->activations));
    if (o->draft)
        OMM_TRY(cli_of_file(draft_least(&l->draft_bytes, l, o->draft), "--draft", o->draft));
    unsigned threads = 0;
    OMM_TRY(open_threads(l, &threads, o));
    OMM_TRY(open_model(l, o, with_tokenizer, NULL));
    for (uint32_t i = 0; i < o->lora.count; i++)
        OMM_TRY(add_adapter(l, o->lora.items[i], o->any_base));
    OMM_TRY(open_compute(l, threads));
    return o->sessions ? OMM_OK : open_session(l, &l->compute);
}

omm_err loaded_open(loaded *l, const loaded_options *o, bool with_tokenizer) {
    *l = (loaded){0};
    if (o->any_base && o->lora.count == 0)
        return omm_raise(OMM_ERR_USAGE, "--any-base: together with --lora FILE");
    return open_all(l, o, with_tokenizer);
}

void loaded_close(loaded *l) {
    omm_session_close(l->session);
    session_lock_drop(&l->lock);
    if (l->compute.work) omm_compute_fini(&l->compute);
    omm_pool_close(l->pool);
    for (size_t i = 0; i < l->adapter_count; i++) omm_adapter_close(l->adapters[i]);
    omm_tokenizer_close(l->tokenizer);
    omm_model_fini(&l->model);
    omm_packed_close(&l->packed);
    omm_gguf_close(&l->gguf);
}

static omm_err open_draft(loaded *draft, const loaded *host, const loaded_options *o) {
    draft->activations = host->activations;
    OMM_TRY(choose_kv(draft, o));
    OMM_TRY(open_model(draft, o, true, host));
    omm_digest ours = omm_tokenizer_digest(host->tokenizer);
    omm_digest theirs = omm_tokenizer_digest(draft->tokenizer);
    if (!omm_digest_equal(&ours, &theirs))
        return omm_raise(OMM_ERR_MISMATCH,
                         "%s has another vocabulary than the model: a draft needs the same",
                         o->model);
    return open_session(draft, &host->compute);
}

omm_err loaded_open_draft(loaded *draft, const loaded *host, const loaded_options *o,
                          const char *model) {
    loaded_options own = {.model = model,
                          .kv = o->kv,
                          .kv_default = o->kv_default,
                          .max_memory_mb = o->max_memory_mb,
                          .packed = o->packed};
    *draft = (loaded){0};
    return open_draft(draft, host, &own);
}

/* In pieces that are let go: the model is in memory beside them. */
static void hash_data(omm_hasher *h, const omm_gguf *gguf, omm_bytes data) {
    for (size_t at = 0; at < data.size; at += HASHED_BYTES) {
        const size_t left = data.size - at;
        omm_hasher_update(h,
                          omm_bytes_of(data.data + at, left < HASHED_BYTES ? left : HASHED_BYTES));
        omm_gguf_release_all(gguf);
    }
}

static void hash_gguf(omm_hasher *h, const omm_gguf *gguf) {
    uint8_t bytes[8 * (3 + OMM_GGUF_DIMS_MAX)];
    for (size_t i = 0; i < gguf->kv_count; i++) {
        const omm_gguf_kv *kv = &gguf->kvs[i];
        omm_put_u64(bytes, kv->key.size);
        omm_put_u64(bytes + 8, kv->data.size);
        omm_hasher_update(h, omm_bytes_of(bytes, 16));
        omm_hasher_update(h, kv->key);
        omm_hasher_update(h, kv->data);
    }
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        const omm_gguf_tensor *t = &gguf->tensors[i];
        omm_put_u64(bytes, strlen(t->name));
        omm_put_u64(bytes + 8, t->type);
        omm_put_u64(bytes + 16, t->data.size);
        for (size_t d = 0; d < OMM_GGUF_DIMS_MAX; d++) omm_put_u64(bytes + 24 + 8 * d, t->dims[d]);
        omm_hasher_update(h, omm_bytes_of(bytes, sizeof bytes));
        omm_hasher_update(h, omm_bytes_str(t->name));
        hash_data(h, gguf, t->data);
    }
}

omm_err loaded_digest(omm_digest *out, const loaded_options *o) {
    omm_gguf gguf;
    omm_hasher h;
    OMM_TRY(omm_gguf_open(&gguf, o->model));
    omm_hasher_init(&h);
    hash_gguf(&h, &gguf);
    *out = omm_hasher_final(&h);
    omm_gguf_close(&gguf);
    return OMM_OK;
}

void cli_warn_template(const omm_tokenizer *tokenizer) {
    char doubt[OMM_CHAT_DOUBT_MAX];
    if (omm_chat_doubt(doubt, tokenizer)) fprintf(stderr, "meshmind: warning: %s\n", doubt);
}

void cli_warn_words(const omm_tokenizer *tokenizer) {
    char doubt[OMM_TOKENIZER_DOUBT_MAX];
    if (omm_tokenizer_doubt(doubt, tokenizer)) fprintf(stderr, "meshmind: warning: %s\n", doubt);
    if (omm_tokenizer_count_doubt(doubt, tokenizer))
        fprintf(stderr, "meshmind: warning: %s\n", doubt);
}

void cli_warn_thinking(const omm_tokenizer *tokenizer) {
    if (omm_thinking_of(tokenizer) == OMM_THINKING_NONE)
        fprintf(stderr, "meshmind: warning: --no-think changes nothing: the model's chat template "
                        "knows no thoughts\n");
}
