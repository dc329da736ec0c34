/* tokenizer_open.c - a tokenizer from the tokenizer.ggml.* keys of a GGUF file. */
#include "omm/gguf.h"
#include "tokenizer_internal.h"

#include "omm/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that end an answer, whatever the file says about eos: llama.cpp's list. */
static const char *const s_ends[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",    "<|end_of_text|>",
    "<EOT>",      "<|eom_id|>", "_<EOT>",  "<|return|>",    "<|tool_response>",
};
/* The same where the file has them as control tokens: elsewhere they may be text (Qwen has HTML's </s>). */
static const char *const s_control_ends[] = {
    "<eos>",
    "</s>",
    "[EOS]",
    "[EOT]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_utterance>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<turn|>",
    "[e~[",
};
/* Values of tokenizer.ggml.model. */
typedef struct vocab_model {
    const char *name;
    const char *pre; /* how texts are cut, whatever tokenizer.ggml.pre says */
    bool spm;
    bool drops_space; /* white space is no token's; tokenizer.ggml.normalizer.lowercase counts */
} vocab_model;

static const vocab_model s_models[] = {
    {.name = "gpt2"},
    {.name = "llama", .spm = true},
    {.name = "gemma4", .pre = "gemma4"},
    {.name = "whitespace", .pre = "whitespace", .drops_space = true},
};

/* Of a SentencePiece file that does not say. */
enum { SPM_UNKNOWN = 0, SPM_BOS = 1, SPM_EOS = 2 };

static omm_err optional_array(const omm_gguf_kv **out, const omm_gguf *g, const char *key,
                              omm_gguf_kind element, uint32_t count) {
    *out = NULL;
    if (!omm_gguf_find(g, key)) return OMM_OK;
    OMM_TRY(omm_gguf_get_array(out, g, key, element));
    if ((*out)->count == count) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "%s has %llu elements for %u tokens", key,
                     (unsigned long long)(*out)->count, count);
}

static omm_err read_types(omm_tokenizer *t, const omm_gguf *g) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(optional_array(&kv, g, "tokenizer.ggml.token_type", OMM_GGUF_I32, t->count));
    t->types = omm_alloc(t->count, 1);
    t->flags = omm_alloc(t->count, 1);
    if (!t->types || !t->flags) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %u tokens", t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t type = kv ? omm_get_u32(kv->data.data + 4 * (size_t)i) : TOKEN_NORMAL;
        if (type > TOKEN_BYTE)
            return omm_raise(OMM_ERR_FORMAT, "tokenizer: token %u has type %u", i, type);
        t->types[i] = (uint8_t)type;
    }
    return OMM_OK;
}

static omm_err read_scores(omm_tokenizer *t, const omm_gguf *g) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(optional_array(&kv, g, "tokenizer.ggml.scores", OMM_GGUF_F32, t->count));
    if (!kv) return omm_raise(OMM_ERR_NOT_FOUND, "tokenizer.ggml.scores is missing");
    t->scores = omm_alloc(t->count, sizeof *t->scores);
    if (!t->scores) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %u scores", t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        t->scores[i] = omm_get_f32(kv->data.data + 4 * (size_t)i);
        if (isnan(t->scores[i]))
            return omm_raise(OMM_ERR_FORMAT, "tokenizer: token %u has no number for a score", i);
    }
    return OMM_OK;
}

static omm_err read_id(uint32_t *out, const omm_tokenizer *t, const omm_gguf *g, const char *key,
                       uint32_t missing) {
    uint32_t id = OMM_TOKEN_NONE;
    OMM_TRY(omm_gguf_get_u32_or(&id, g, key, missing < t->count ? missing : OMM_TOKEN_NONE));
    if (id != OMM_TOKEN_NONE && id >= t->count)
        return omm_raise(OMM_ERR_FORMAT, "%s is %u, the vocabulary has %u", key, id, t->count);
    *out = id;
    return OMM_OK;
}

static void mark_end(omm_tokenizer *t, uint32_t id) {
    if (id == OMM_TOKEN_NONE) return;
    t->flags[id] |= TOKEN_IS_END;
}

static omm_err read_ids(omm_tokenizer *t, const omm_gguf *g) {
    uint32_t eot = OMM_TOKEN_NONE;
    uint32_t eom = OMM_TOKEN_NONE;
    const uint32_t none = OMM_TOKEN_NONE;
    OMM_TRY(read_id(&t->bos, t, g, "tokenizer.ggml.bos_token_id", t->spm ? SPM_BOS : none));
    OMM_TRY(read_id(&t->eos, t, g, "tokenizer.ggml.eos_token_id", t->spm ? SPM_EOS : none));
    OMM_TRY(
        read_id(&t->unknown, t, g, "tokenizer.ggml.unknown_token_id", t->spm ? SPM_UNKNOWN : none));
    OMM_TRY(read_id(&eot, t, g, "tokenizer.ggml.eot_token_id", none));
    OMM_TRY(read_id(&eom, t, g, "tokenizer.ggml.eom_token_id", none));
    mark_end(t, t->eos);
    mark_end(t, eot);
    mark_end(t, eom);
    for (size_t i = 0; i < sizeof s_ends / sizeof s_ends[0]; i++) {
        uint32_t id = vocab_find(&t->texts, omm_bytes_str(s_ends[i]));
        if (id >= t->count || t->types[id] == TOKEN_BYTE) continue;
        t->types[id] = TOKEN_CONTROL; /* some files list them as plain text */
        mark_end(t, id);
    }
    for (size_t i = 0; i < sizeof s_control_ends / sizeof s_control_ends[0]; i++) {
        uint32_t id = vocab_find(&t->texts, omm_bytes_str(s_control_ends[i]));
        if (id < t->count && t->types[id] == TOKEN_CONTROL) mark_end(t, id);
    }
    return OMM_OK;
}

static int longest_first(const void *a, const void *b, void *ud) {
    const omm_tokenizer *t = ud;
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    size_t size_x = vocab_text(&t->texts, x).size;
    size_t size_y = vocab_text(&t->texts, y).size;
    if (size_x != size_y) return size_x > size_y ? -1 : 1;
    return x < y ? -1 : x > y;
}

static omm_err list_specials(omm_tokenizer *t) {
    uint32_t n = 0;
    t->specials = omm_alloc(t->count, sizeof *t->specials);
    if (!t->specials) return omm_raise(OMM_ERR_NOMEM, "tokenizer: special tokens");
    for (uint32_t i = 0; i < t->count; i++) {
        bool special = t->types[i] == TOKEN_CONTROL || t->types[i] == TOKEN_USER ||
                       t->types[i] == TOKEN_UNKNOWN;
        if (special && vocab_text(&t->texts, i).size > 0) t->specials[n++] = i;
    }
    qsort_r(t->specials, n, sizeof *t->specials, longest_first, t);
    t->special_count = n;
    return OMM_OK;
}

/* Phi-3's special tokens swallow the white space behind them; its files do not say so, so the
 * reference goes by the model's name. */
static void mark_stripping(omm_tokenizer *t, const omm_gguf *g) {
    char name[256] = "";
    if (omm_gguf_get_text(name, sizeof name, g, "general.name") != OMM_OK) return;
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    if (!strstr(name, "phi-3") && !strstr(name, "phi3")) return;
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (uint32_t i = 0; i < t->special_count; i++) t->flags[t->specials[i]] |= TOKEN_STRIPS_RIGHT;
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) {
        uint32_t id = vocab_find(&t->texts, omm_bytes_str(keep[i]));
        if (id < t->count) t->flags[id] &= (uint8_t)~TOKEN_STRIPS_RIGHT;
    }
}

/* ---- What ids stand for -------------------------------------------------------------------- */

/* "<0x0A>" is the byte 10. */
static int byte_of(omm_bytes text) {
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        int c = text.data[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit && (c < 'A' || c > 'F')) return -1;
        value = 16 * value + (digit ? c - '0' : c - 'A' + 10);
    }
    return value;
}

static omm_err unescape(omm_buf *out, omm_bytes text) {
    for (size_t i = 0; i < text.size;) {
        bool space = i + 3 <= text.size && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;
        OMM_TRY(omm_buf_append(out, space ? (const void *)" " : text.data + i, 1));
        i += space ? 3 : 1;
    }
    return OMM_OK;
}

static omm_err add_piece(omm_tokenizer *t, uint32_t id) {
    omm_bytes text = vocab_text(&t->texts, id);
    unsigned type = t->types[id];
    int byte = t->characters && type == TOKEN_BYTE ? byte_of(text) : -1;
    if (byte >= 0) {
        uint8_t b = (uint8_t)byte;
        return omm_buf_append(&t->pieces, &b, 1);
    }
    bool raw = type == TOKEN_CONTROL || type == TOKEN_USER || type == TOKEN_UNKNOWN;
    if (!raw && t->marks) return unescape(&t->pieces, text);
    bool spelled = false;
    if (!raw && !t->characters) OMM_TRY(bpe_spell(&spelled, &t->pieces, text));
    return spelled ? OMM_OK : omm_buf_append(&t->pieces, text.data, text.size);
}

static omm_err make_pieces(omm_tokenizer *t) {
    t->piece_at = omm_alloc((size_t)t->count + 1, sizeof *t->piece_at);
    if (!t->piece_at) return omm_raise(OMM_ERR_NOMEM, "tokenizer: pieces of %u tokens", t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        OMM_TRY(add_piece(t, i));
        t->piece_at[i + 1] = (uint32_t)t->pieces.size; /* never more than the texts */
    }
    return OMM_OK;
}

/* ---- The families -------------------------------------------------------------------------- */

static omm_err find_bytes(omm_tokenizer *t) {
    bool all_bytes = true;
    for (unsigned b = 0; b < 256; b++) {
        char name[8];
        uint8_t byte = (uint8_t)b;
        snprintf(name, sizeof name, "<0x%02X>", b);
        uint32_t id = vocab_find(&t->texts, omm_bytes_str(name));
        if (id == OMM_TOKEN_NONE) id = vocab_find(&t->texts, omm_bytes_of(&byte, 1));
        t->byte_symbols[b] = id;
        all_bytes = all_bytes && id != OMM_TOKEN_NONE;
    }
    if (!all_bytes && t->unknown == OMM_TOKEN_NONE)
        return omm_raise(OMM_ERR_FORMAT, "tokenizer: neither byte tokens nor an unknown token");
    return OMM_OK;
}

static omm_err open_spm(omm_tokenizer *t, const omm_gguf *g) {
    t->characters = t->marks = true;
    OMM_TRY(read_scores(t, g));
    OMM_TRY(omm_gguf_get_bool_or(&t->adds_bos, g, "tokenizer.ggml.add_bos_token", true));
    OMM_TRY(omm_gguf_get_bool_or(&t->space_prefix, g, "tokenizer.ggml.add_space_prefix", true));
    return find_bytes(t);
}

/* Converters of some models write byte tokens as ordinary ones. */
static void mark_bytes(omm_tokenizer *t) {
    for (uint32_t i = 0; i < t->count; i++)
        if (t->types[i] == TOKEN_NORMAL && byte_of(vocab_text(&t->texts, i)) >= 0)
            t->types[i] = TOKEN_BYTE;
}

static omm_err open_characters(omm_tokenizer *t) {
    t->characters = true;
    t->marks = t->pre.marks;
    if (t->pre.always_bos && t->bos == OMM_TOKEN_NONE)
        return omm_raise(OMM_ERR_NOT_FOUND,
                         "tokenizer.ggml.bos_token_id is missing: '%s' begins every text with it",
                         t->pre.name);
    t->adds_bos = t->adds_bos || t->pre.always_bos;
    mark_bytes(t);
    return find_bytes(t);
}

static omm_err open_bpe(omm_tokenizer *t, const omm_gguf *g, const vocab_model *model,
                        const omm_bytes *merges, uint32_t merge_count) {
    omm_bytes pre = omm_bytes_str(model->pre ? model->pre : "default");
    t->pre_assumed = !model->pre && !omm_gguf_find(g, "tokenizer.ggml.pre");
    if (!model->pre && !t->pre_assumed) OMM_TRY(omm_gguf_get_str(&pre, g, "tokenizer.ggml.pre"));
    OMM_TRY(pretoken_open(&t->pre, pre));
    OMM_TRY(omm_gguf_get_bool_or(&t->adds_bos, g, "tokenizer.ggml.add_bos_token", t->pre.adds_bos));
    if (model->drops_space)
        OMM_TRY(
            omm_gguf_get_bool_or(&t->pre.lowers, g, "tokenizer.ggml.normalizer.lowercase", false));
    t->pre.drops_gaps = model->drops_space;
    if (t->pre.characters) OMM_TRY(open_characters(t));
    return bpe_open(t, merges, merge_count);
}

/* Both string arrays, as views into the file. */
typedef struct lists {
    omm_bytes *tokens;
    omm_bytes *merges;
    uint32_t token_count, merge_count;
} lists;

static omm_digest key_of(const lists *l) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (uint32_t i = 0; i < l->token_count; i++) omm_hasher_update(&h, l->tokens[i]);
    for (uint32_t i = 0; i < l->merge_count; i++) omm_hasher_update(&h, l->merges[i]);
    return omm_hasher_final(&h);
}

static omm_err read_vocab(omm_tokenizer *t, const lists *l) {
    const omm_digest key = key_of(l);
    /* Beyond the ids: at most three texts per merge and the letters of 256 bytes. */
    OMM_TRY(vocab_init(&t->texts, t->count + 3 * l->merge_count + 256, &key));
    for (uint32_t i = 0; i < t->count; i++) OMM_TRY(vocab_push(&t->texts, l->tokens[i]));
    return OMM_OK;
}

static omm_err read_list(omm_bytes **out, uint32_t *count, const omm_gguf *g, const char *key) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(omm_gguf_get_array(&kv, g, key, OMM_GGUF_STRING));
    if (kv->count < 1 || kv->count > OMM_TOKENIZER_VOCAB_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s has %llu elements, accepted are 1 to %u", key,
                         (unsigned long long)kv->count, OMM_TOKENIZER_VOCAB_MAX);
    *out = omm_alloc((size_t)kv->count, sizeof **out);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %s", key);
    omm_gguf_strings(*out, kv);
    *count = (uint32_t)kv->count;
    return OMM_OK;
}

/* Models that are read by this key alone have no list. */
static uint32_t count_said(const omm_gguf *g, uint32_t count) {
    char name[64], key[96];
    uint32_t said = count;
    if (omm_gguf_get_text(name, sizeof name, g, "general.architecture") != OMM_OK) return count;
    snprintf(key, sizeof key, "%s.vocab_size", name);
    return omm_gguf_get_u32(&said, g, key) == OMM_OK ? said : count;
}

static omm_err build(omm_tokenizer *t, const omm_gguf *g, const vocab_model *model,
                     const lists *l) {
    t->count = l->token_count;
    t->count_said = count_said(g, t->count);
    omm_buf_init(&t->pieces, SIZE_MAX / 2);
    OMM_TRY(read_vocab(t, l));
    OMM_TRY(read_types(t, g));
    OMM_TRY(read_ids(t, g));
    OMM_TRY(t->spm ? open_spm(t, g) : open_bpe(t, g, model, l->merges, l->merge_count));
    OMM_TRY(list_specials(t));
    mark_stripping(t, g);
    OMM_TRY(chat_recognise(t, g));
    return make_pieces(t);
}

static omm_err read_model(const vocab_model **out, const omm_gguf *g) {
    omm_bytes model = {0};
    OMM_TRY(omm_gguf_get_str(&model, g, "tokenizer.ggml.model"));
    for (size_t i = 0; i < sizeof s_models / sizeof s_models[0]; i++)
        if (omm_bytes_equal(model, omm_bytes_str(s_models[i].name))) {
            *out = &s_models[i];
            return OMM_OK;
        }
    return omm_raise(
        OMM_ERR_UNSUPPORTED,
        "tokenizer.ggml.model '%.*s' is not known; known are: gpt2, llama, gemma4, whitespace",
        model.size < 60 ? (int)model.size : 60, (const char *)model.data);
}

omm_err omm_tokenizer_open(omm_tokenizer **out, const omm_gguf *gguf) {
    const vocab_model *model = NULL;
    OMM_TRY(omm_gguf_refuse_adapter(gguf));
    OMM_TRY(read_model(&model, gguf));
    lists l = {0};
    omm_tokenizer *t = omm_alloc(1, sizeof *t);
    if (!t) return omm_raise(OMM_ERR_NOMEM, "tokenizer");
    t->spm = model->spm;
    omm_err err = read_list(&l.tokens, &l.token_count, gguf, "tokenizer.ggml.tokens");
    if (err == OMM_OK && !t->spm)
        err = read_list(&l.merges, &l.merge_count, gguf, "tokenizer.ggml.merges");
    if (err == OMM_OK) err = build(t, gguf, model, &l);
    omm_free(l.tokens);
    omm_free(l.merges);
    if (err != OMM_OK) {
        omm_tokenizer_close(t);
        return err;
    }
    *out = t;
    return OMM_OK;
}

void omm_tokenizer_close(omm_tokenizer *t) {
    if (!t) return;
    vocab_fini(&t->texts);
    omm_free(t->types);
    omm_free(t->flags);
    omm_buf_fini(&t->pieces);
    omm_free(t->piece_at);
    omm_free(t->specials);
    omm_free(t->scores);
    omm_free(t->merges);
    pretoken_close(&t->pre);
    omm_buf_fini(&t->tools.head);
    omm_buf_fini(&t->tools.tail);
    omm_buf_fini(&t->tools.system);
    omm_buf_fini(&t->tools.instead);
    omm_buf_fini(&t->reasoning.front);
    omm_buf_fini(&t->reasoning.thinking);
    omm_buf_fini(&t->reasoning.answering);
    omm_free(t);
}
