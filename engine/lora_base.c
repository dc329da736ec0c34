/* lora_base.c - the fingerprint of a model, in an adapter's keys and against the model at hand. */
#include "omm/lora_base.h"

#include "lora_internal.h"

#include "omm/rows.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

#define NAME_KEY "general.base_model.0.name"

enum { CHUNK = 1024 }; /* values of a vector at once */

/* ---- of a model -------------------------------------------------------------------------------- */

static uint64_t number(const omm_gguf *g, omm_bytes architecture, const char *key,
                       uint64_t missing) {
    char name[128];
    uint64_t v = missing;
    snprintf(name, sizeof name, "%.*s.%s", (int)(architecture.size < 64 ? architecture.size : 64),
             (const char *)architecture.data, key);
    return omm_gguf_find(g, name) && omm_gguf_get_u64(&v, g, name) != OMM_OK ? missing : v;
}

static void hash_numbers(omm_hasher *h, const omm_gguf *g, omm_bytes architecture) {
    const uint64_t heads = number(g, architecture, "attention.head_count", 0);
    omm_hasher_u64(h, number(g, architecture, "block_count", 0));
    omm_hasher_u64(h, number(g, architecture, "embedding_length", 0));
    omm_hasher_u64(h, number(g, architecture, "feed_forward_length", 0));
    omm_hasher_u64(h, heads);
    omm_hasher_u64(h, number(g, architecture, "attention.head_count_kv", heads));
}

static void hash_tokens(omm_hasher *h, const omm_gguf *g) {
    const omm_gguf_kv *kv = omm_gguf_find(g, "tokenizer.ggml.tokens");
    const bool has = kv && kv->kind == OMM_GGUF_ARRAY && kv->element == OMM_GGUF_STRING;
    omm_hasher_u64(h, has ? kv->count : 0);
    omm_hasher_sized(h, has ? kv->data : (omm_bytes){0});
}

static bool is_learned_vector(const omm_gguf_tensor *t) {
    return t->n_dims == 1 && omm_ggml_find((uint32_t)t->type)->block == 1 &&
           strncmp(t->name, "rope_", 5) != 0;
}

static void hash_vector(omm_hasher *h, const omm_gguf_tensor *t) {
    const size_t bytes = omm_ggml_find((uint32_t)t->type)->bytes;
    omm_hasher_sized(h, omm_bytes_str(t->name));
    omm_hasher_u64(h, t->dims[0]);
    for (uint64_t at = 0; at < t->dims[0]; at += CHUNK) {
        float values[CHUNK];
        uint8_t out[CHUNK * sizeof *values];
        const size_t n = t->dims[0] - at < CHUNK ? (size_t)(t->dims[0] - at) : CHUNK;
        omm_rows_dequantise(values, t->type, t->data.data + at * bytes, n);
        for (size_t i = 0; i < n; i++) omm_put_f32(out + i * sizeof *values, values[i]);
        omm_hasher_update(h, omm_bytes_of(out, n * sizeof *values));
    }
}

void omm_lora_base_read(omm_lora_base *out, const omm_gguf *model) {
    omm_hasher h;
    const omm_gguf_kv *arch = omm_gguf_find(model, "general.architecture");
    const omm_gguf_kv *name = omm_gguf_find(model, "general.name");
    const omm_bytes architecture =
        arch && arch->kind == OMM_GGUF_STRING ? arch->data : (omm_bytes){0};
    omm_hasher_init(&h);
    omm_hasher_sized(&h, omm_bytes_str("openmeshmind base 1"));
    omm_hasher_sized(&h, architecture);
    hash_numbers(&h, model, architecture);
    hash_tokens(&h, model);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const omm_gguf_tensor *t = &model->tensors[model->tensor_order[i]];
        if (is_learned_vector(t)) hash_vector(&h, t);
    }
    *out = (omm_lora_base){.fingerprint = omm_hasher_final(&h)};
    if (name && name->kind == OMM_GGUF_STRING) omm_lora_base_set_name(out, name->data);
}

void omm_lora_base_set_name(omm_lora_base *base, omm_bytes text) {
    char mended[OMM_LORA_BASE_NAME_MAX];
    size_t at = 0;
    while (at < text.size) {
        const unsigned size = omm_utf8_size(text.data + at, text.size - at);
        const size_t n = size ? size : 1;
        if (at + n >= sizeof mended) break;
        memcpy(mended + at, text.data + at, n);
        if (size == 0 || mended[at] == 0) mended[at] = '?';
        at += n;
    }
    mended[at] = 0;
    omm_utf8_clean(base->name, sizeof base->name, mended);
}

bool omm_lora_base_is_known(const omm_lora_base *base) {
    return !omm_digest_is_zero(&base->fingerprint);
}

/* ---- of an adapter ------------------------------------------------------------------------------- */

void lora_base_put(omm_gguf_writer *w, const omm_lora_base *base) {
    char hex[OMM_DIGEST_HEX_SIZE];
    if (base->name[0]) {
        omm_gguf_put_u32(w, "general.base_model.count", 1);
        omm_gguf_put_text(w, NAME_KEY, base->name);
    }
    if (!omm_lora_base_is_known(base)) return;
    omm_digest_hex(hex, &base->fingerprint);
    omm_gguf_put_text(w, LORA_BASE_FINGERPRINT, hex);
}

omm_err lora_base_take(omm_lora_base *base, const char *hex, const char *where) {
    if (omm_digest_unhex(&base->fingerprint, hex) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT,
                     "%s: " LORA_BASE_FINGERPRINT " is '%.70s', wanted 64 hex digits", where, hex);
}

omm_err omm_lora_base_claim(omm_lora_base *out, const omm_gguf *adapter) {
    char hex[OMM_DIGEST_HEX_SIZE];
    const omm_gguf_kv *name = omm_gguf_find(adapter, NAME_KEY);
    omm_lora_base base = {0};
    if (name && name->kind == OMM_GGUF_STRING) omm_lora_base_set_name(&base, name->data);
    if (omm_gguf_find(adapter, LORA_BASE_FINGERPRINT)) {
        if (omm_gguf_get_text(hex, sizeof hex, adapter, LORA_BASE_FINGERPRINT) != OMM_OK)
            return omm_raise(OMM_ERR_FORMAT,
                             "adapter: " LORA_BASE_FINGERPRINT " is no text of 64 hex digits");
        OMM_TRY(lora_base_take(&base, hex, "adapter"));
    }
    *out = base;
    return OMM_OK;
}

/* ---- both --------------------------------------------------------------------------------------- */

static void describe(char *out, size_t size, const omm_lora_base *base) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &base->fingerprint);
    if (base->name[0])
        snprintf(out, size, "'%.80s' (fingerprint %.12s)", base->name, hex);
    else
        snprintf(out, size, "a model without a name (fingerprint %.12s)", hex);
}

omm_err lora_base_meet(omm_lora_base *base, const omm_lora_base *file) {
    char theirs[128], ours[128];
    if (base->any) return OMM_OK;
    if (!omm_lora_base_is_known(base)) {
        if (omm_lora_base_is_known(file) || !base->name[0]) *base = *file;
        return OMM_OK;
    }
    if (!omm_lora_base_is_known(file) || omm_digest_equal(&base->fingerprint, &file->fingerprint))
        return OMM_OK;
    describe(theirs, sizeof theirs, file);
    describe(ours, sizeof ours, base);
    return omm_raise(OMM_ERR_MISMATCH,
                     "adapter: trained on %s, not on %s; accepted: one of the same model in any "
                     "quantisation, or --any-base, as for a fine-tuned variant of its base",
                     theirs, ours);
}
