/* vocab_put.c - a trained vocabulary as the keys of a GGUF file. */
#include "omm/mem.h"
#include "vocab_train_internal.h"

#include <string.h>

/* Texts behind one another, and where each ends. */
typedef struct texts {
    omm_buf bytes;
    size_t *ends;
    uint32_t count;
} texts;

static omm_bytes text_at(const texts *t, uint32_t i) {
    const size_t begin = i ? t->ends[i - 1] : 0;
    return omm_bytes_of(t->bytes.data + begin, t->ends[i] - begin);
}

static omm_err append(omm_buf *to, omm_bytes text) {
    return omm_buf_append(to, text.data, text.size);
}

/* Reserved first: the views of texts before it must not move while they are copied. */
static omm_err push_two(texts *to, omm_bytes a, const char *between, omm_bytes b) {
    OMM_TRY(append(&to->bytes, a));
    OMM_TRY(append(&to->bytes, omm_bytes_str(between)));
    OMM_TRY(append(&to->bytes, b));
    to->ends[to->count++] = to->bytes.size;
    return OMM_OK;
}

/* Text of a merge out of those of two tokens of `from`, which may be `to`. */
static omm_err push_merge(texts *to, const texts *from, vocab_merge m, const char *between) {
    const size_t more = text_at(from, m.left).size + text_at(from, m.right).size + strlen(between);
    OMM_TRY(omm_buf_reserve(&to->bytes, more));
    return push_two(to, text_at(from, m.left), between, text_at(from, m.right));
}

static omm_err make_tokens(texts *tokens, const omm_vocab_trainer *t) {
    for (unsigned b = 0; b < 256; b++) {
        uint8_t letter[2];
        const unsigned size = bpe_letter(letter, (uint8_t)b);
        OMM_TRY(push_two(tokens, omm_bytes_of(letter, size), "", (omm_bytes){0}));
    }
    for (uint32_t i = 0; i < t->merge_count; i++)
        OMM_TRY(push_merge(tokens, tokens, t->merges[i], ""));
    for (size_t i = 0; i < vocab_special_count(&t->options); i++)
        OMM_TRY(push_two(tokens, omm_bytes_str(vocab_special(&t->options, i)), "", (omm_bytes){0}));
    return OMM_OK;
}

static omm_err put_texts(omm_gguf_writer *w, const char *key, const texts *t) {
    omm_bytes *views = omm_alloc(t->count ? t->count : 1, sizeof *views);
    if (!views) return omm_raise(OMM_ERR_NOMEM, "no memory for %u texts", t->count);
    for (uint32_t i = 0; i < t->count; i++) views[i] = text_at(t, i);
    omm_gguf_put_strings(w, key, views, t->count);
    omm_free(views);
    return OMM_OK;
}

static omm_err put_types(omm_gguf_writer *w, const omm_vocab_trainer *t) {
    const omm_vocab_options *o = &t->options;
    const uint32_t first = 256 + t->merge_count;
    uint8_t *types = omm_alloc(o->size, 4);
    if (!types) return omm_raise(OMM_ERR_NOMEM, "no memory for %u types", o->size);
    for (uint32_t i = 0; i < o->size; i++) {
        const bool is_control = i >= first && i - first < o->control_count;
        types[4 * (size_t)i] = i < first ? TOKEN_NORMAL : is_control ? TOKEN_CONTROL : TOKEN_USER;
    }
    omm_gguf_put_array(w, "tokenizer.ggml.token_type", OMM_GGUF_I32, types, o->size);
    omm_free(types);
    return OMM_OK;
}

static void put_id(omm_gguf_writer *w, const char *key, const omm_vocab_trainer *t,
                   const char *text) {
    uint32_t i = 0;
    if (!text) return;
    while (strcmp(vocab_special(&t->options, i), text) != 0) i++;
    omm_gguf_put_u32(w, key, 256 + t->merge_count + i);
}

static omm_err put_all(omm_gguf_writer *w, const omm_vocab_trainer *t, texts *tokens,
                       texts *lines) {
    OMM_TRY(make_tokens(tokens, t));
    for (uint32_t i = 0; i < t->merge_count; i++)
        OMM_TRY(push_merge(lines, tokens, t->merges[i], " "));
    omm_gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    omm_gguf_put_text(w, "tokenizer.ggml.pre", t->options.words);
    OMM_TRY(put_texts(w, "tokenizer.ggml.tokens", tokens));
    OMM_TRY(put_types(w, t));
    OMM_TRY(put_texts(w, "tokenizer.ggml.merges", lines));
    put_id(w, "tokenizer.ggml.bos_token_id", t, t->options.bos);
    put_id(w, "tokenizer.ggml.eos_token_id", t, t->options.eos);
    put_id(w, "tokenizer.ggml.padding_token_id", t, t->options.padding);
    omm_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    omm_gguf_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    return OMM_OK;
}

static omm_err texts_init(texts *t, uint32_t count) {
    *t = (texts){0};
    omm_buf_init(&t->bytes, OMM_VOCAB_WORD_BYTES_MAX);
    t->ends = omm_alloc(count, sizeof *t->ends);
    return t->ends ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for %u texts", count);
}

static void texts_fini(texts *t) {
    omm_buf_fini(&t->bytes);
    omm_free(t->ends);
}

omm_err omm_vocab_put(omm_gguf_writer *w, const omm_vocab_trainer *t) {
    texts tokens, lines = {0};
    OMM_ASSERT(t->merges && t->merge_count == vocab_merge_count(&t->options));
    omm_err err = texts_init(&tokens, t->options.size);
    if (err == OMM_OK) err = texts_init(&lines, t->options.size);
    if (err == OMM_OK) err = put_all(w, t, &tokens, &lines);
    texts_fini(&tokens);
    texts_fini(&lines);
    return err;
}
