/* vocab_synth.c - a byte-level tokenizer of any size that owes nothing to anybody's.
 *
 * Ids 0 .. 255 are the bytes, 256 .. 258 the control tokens of ChatML, then come pairs of letters in
 * order of their merges: space and a letter, then two letters; then fillers "[id]" that no text
 * becomes.  A smaller vocabulary is a prefix of a larger one, fillers apart.
 */
#include "omm/vocab_synth.h"
#include "tokenizer_internal.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 256, CONTROLS = 3, LETTERS = 26, PAIRS = LETTERS + LETTERS * LETTERS };

static const char *const s_controls[CONTROLS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

/* Texts behind one another; ends[i] is where text i ends. */
typedef struct texts {
    omm_buf bytes;
    size_t *ends;
    uint32_t count;
} texts;

static omm_err push(texts *t, const void *text, size_t size) {
    OMM_TRY(omm_buf_append(&t->bytes, text, size));
    t->ends[t->count++] = t->bytes.size;
    return OMM_OK;
}

static omm_err push_letter(texts *t, uint8_t byte) {
    uint8_t letter[2];
    return push(t, letter, bpe_letter(letter, byte));
}

/* Pair `i` as a token, or as a line of the merge list with a space between. */
static omm_err push_pair(texts *t, uint32_t i, bool as_line) {
    uint8_t text[8];
    const bool space = i < LETTERS;
    const uint32_t letters = space ? i : i - LETTERS;
    size_t size = bpe_letter(text, space ? ' ' : (uint8_t)('a' + letters / LETTERS));
    if (as_line) text[size++] = ' ';
    text[size++] = (uint8_t)('a' + letters % LETTERS);
    return push(t, text, size);
}

static omm_err make_tokens(texts *t, uint32_t tokens, uint32_t pairs) {
    char filler[16];
    for (unsigned b = 0; b < BYTES; b++) OMM_TRY(push_letter(t, (uint8_t)b));
    for (unsigned i = 0; i < CONTROLS; i++) OMM_TRY(push(t, s_controls[i], strlen(s_controls[i])));
    for (uint32_t i = 0; i < pairs; i++) OMM_TRY(push_pair(t, i, false));
    while (t->count < tokens) {
        int size = snprintf(filler, sizeof filler, "[%u]", t->count);
        OMM_TRY(push(t, filler, (size_t)size));
    }
    return OMM_OK;
}

static omm_err put_texts(omm_gguf_writer *w, const char *key, const texts *t) {
    omm_bytes *views = (omm_bytes *)omm_alloc(t->count, sizeof *views);
    if (!views) return omm_raise(OMM_ERR_NOMEM, "no memory for %u tokens", t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        size_t begin = i ? t->ends[i - 1] : 0;
        views[i] = omm_bytes_of(t->bytes.data + begin, t->ends[i] - begin);
    }
    omm_gguf_put_strings(w, key, views, t->count);
    omm_free(views);
    return OMM_OK;
}

static omm_err put_types(omm_gguf_writer *w, uint32_t tokens) {
    uint8_t *types = (uint8_t *)omm_alloc(tokens, 4);
    if (!types) return omm_raise(OMM_ERR_NOMEM, "no memory for %u tokens", tokens);
    for (uint32_t i = 0; i < tokens; i++)
        types[4 * (size_t)i] = i >= BYTES && i < BYTES + CONTROLS ? TOKEN_CONTROL : TOKEN_NORMAL;
    omm_gguf_put_array(w, "tokenizer.ggml.token_type", OMM_GGUF_I32, types, tokens);
    omm_free(types);
    return OMM_OK;
}

static omm_err put_all(omm_gguf_writer *w, texts *t, uint32_t tokens) {
    const uint32_t room = tokens - BYTES - CONTROLS;
    const uint32_t pairs = room < PAIRS ? room : PAIRS;
    omm_gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
    omm_gguf_put_text(w, "tokenizer.ggml.pre", "gpt-2");
    OMM_TRY(make_tokens(t, tokens, pairs));
    OMM_TRY(put_texts(w, "tokenizer.ggml.tokens", t));
    OMM_TRY(put_types(w, tokens));
    omm_buf_clear(&t->bytes);
    t->count = 0;
    for (uint32_t i = 0; i < pairs; i++) OMM_TRY(push_pair(t, i, true));
    OMM_TRY(put_texts(w, "tokenizer.ggml.merges", t));
    omm_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", BYTES);
    omm_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", BYTES + CONTROLS - 1);
    omm_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    return OMM_OK;
}

omm_err omm_vocab_put_synthetic(omm_gguf_writer *w, uint32_t tokens) {
    texts t = {.ends = (size_t *)omm_alloc(tokens, sizeof *t.ends)};
    OMM_ASSERT(tokens > BYTES + CONTROLS);
    omm_buf_init(&t.bytes, (size_t)tokens * 16);
    omm_err err = t.ends ? put_all(w, &t, tokens)
                         : omm_raise(OMM_ERR_NOMEM, "no memory for %u tokens", tokens);
    omm_buf_fini(&t.bytes);
    omm_free(t.ends);
    return err;
}
