/* test_vocab.h - small vocabularies with the marks of chat templates, for tests and fuzz targets. */
#ifndef TEXT_TEST_VOCAB_H
#define TEXT_TEST_VOCAB_H

#include "tokenizer_internal.h"

#include "omm_test.h"

#include <string.h>

enum { VOCAB_FILE_MAX = 1 << 24, VOCAB_TEXTS_MAX = 700 };
#define SPACE_MARK "\xe2\x96\x81"

typedef struct vocab_recipe {
    bool spm;
    bool characters;    /* texts as spm, merges by rank; pre is one that merges characters */
    bool no_bytes;      /* spm: single characters instead of byte tokens */
    bool adds_bos;      /* the file's add_bos_token */
    bool no_prefix;     /* spm: add_space_prefix is false, as Gemma's files say */
    unsigned mark_type; /* 0: control */
    const char *name;   /* general.name */
    const char *pre;    /* gpt2: default "gpt-2" */
    const char *marks[6];
    const char *more[10]; /* and more of them */
    const char *words[2]; /* user-defined tokens */
    const char *jinja;
    unsigned context;     /* positions of the model; 0: the file does not say */
    bool context_is_text; /* it says them in a type that they do not have */
} vocab_recipe;

typedef struct vocab_lists {
    omm_bytes texts[VOCAB_TEXTS_MAX];
    char names[VOCAB_TEXTS_MAX][8];
    uint8_t types[4 * VOCAB_TEXTS_MAX];
    uint8_t scores[4 * VOCAB_TEXTS_MAX];
    uint32_t count;
} vocab_lists;

static inline void vocab_add(vocab_lists *l, const char *text, unsigned type) {
    CHECK(l->count < VOCAB_TEXTS_MAX);
    if (text != l->names[l->count]) l->texts[l->count] = omm_bytes_str(text);
    omm_put_u32(l->types + (size_t)l->count * 4, type);
    omm_put_f32(l->scores + (size_t)l->count * 4, -(float)l->count);
    l->count++;
}

static inline void vocab_add_spm(vocab_lists *l, const vocab_recipe *r) {
    vocab_add(l, "<unk>", TOKEN_UNKNOWN);
    vocab_add(l, "<s>", TOKEN_CONTROL);
    vocab_add(l, "</s>", TOKEN_CONTROL);
    for (unsigned b = 0; b < 256 && !r->no_bytes; b++) {
        snprintf(l->names[l->count], sizeof l->names[0], "<0x%02X>", b);
        l->texts[l->count] = omm_bytes_str(l->names[l->count]);
        vocab_add(l, l->names[l->count], TOKEN_BYTE);
    }
    for (unsigned c = 33; c < 127; c++) {
        snprintf(l->names[l->count], sizeof l->names[0], "%c", (int)c);
        l->texts[l->count] = omm_bytes_str(l->names[l->count]);
        vocab_add(l, l->names[l->count], TOKEN_NORMAL);
    }
    vocab_add(l, SPACE_MARK, TOKEN_NORMAL);
    for (int i = 0; i < 6 && !r->no_bytes; i++) {
        static const char *const more[6] = {"\n", "IN", "ST", "INST", "us", (SPACE_MARK "[")};
        vocab_add(l, more[i], TOKEN_NORMAL);
    }
}

static inline void vocab_add_gpt2(vocab_lists *l) {
    for (unsigned b = 0; b < 256; b++) {
        char *name = l->names[l->count];
        l->texts[l->count] = omm_bytes_of(name, bpe_letter((uint8_t *)name, (uint8_t)b));
        vocab_add(l, name, TOKEN_NORMAL);
    }
    vocab_add(l, "in", TOKEN_NORMAL);
    vocab_add(l, "er", TOKEN_NORMAL);
    vocab_add(l, "<s>", TOKEN_CONTROL);
    vocab_add(l, "</s>", TOKEN_CONTROL);
}

static inline omm_err try_open_vocab(omm_tokenizer **out, const vocab_recipe *r) {
    static vocab_lists l;
    static const char *const merges[2][5] = {{"i n", "e r"},
                                             {"I N", "S T", "IN ST", "u s", (SPACE_MARK " [")}};
    const bool listed = r->spm || r->characters;
    memset(&l, 0, sizeof l);
    listed ? vocab_add_spm(&l, r) : vocab_add_gpt2(&l);
    uint32_t bos = listed ? 1 : 258;
    for (int i = 0; i < 6 && r->marks[i]; i++)
        vocab_add(&l, r->marks[i], r->mark_type ? r->mark_type : TOKEN_CONTROL);
    for (int i = 0; i < 10 && r->more[i]; i++)
        vocab_add(&l, r->more[i], r->mark_type ? r->mark_type : TOKEN_CONTROL);
    for (int i = 0; i < 2 && r->words[i]; i++) vocab_add(&l, r->words[i], TOKEN_USER);
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "tokenizer.ggml.model", r->spm ? "llama" : "gpt2");
    omm_gguf_put_text(&w, "general.name", r->name ? r->name : "test");
    omm_gguf_put_strings(&w, "tokenizer.ggml.tokens", l.texts, l.count);
    omm_gguf_put_array(&w, "tokenizer.ggml.token_type", OMM_GGUF_I32, l.types, l.count);
    omm_bytes merge_texts[5];
    uint32_t merge_count = 0;
    for (; merge_count < 5 && merges[listed][merge_count]; merge_count++)
        merge_texts[merge_count] = omm_bytes_str(merges[listed][merge_count]);
    if (r->spm) omm_gguf_put_array(&w, "tokenizer.ggml.scores", OMM_GGUF_F32, l.scores, l.count);
    if (!r->spm) omm_gguf_put_text(&w, "tokenizer.ggml.pre", r->pre ? r->pre : "gpt-2");
    if (!r->spm) omm_gguf_put_strings(&w, "tokenizer.ggml.merges", merge_texts, merge_count);
    omm_gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", bos);
    omm_gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", bos + 1);
    if (listed) omm_gguf_put_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    omm_gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", r->adds_bos);
    if (r->no_prefix) omm_gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    if (r->context > 0) {
        omm_gguf_put_text(&w, "general.architecture", "llama");
        if (r->context_is_text)
            omm_gguf_put_text(&w, "llama.context_length", "many");
        else
            omm_gguf_put_u32(&w, "llama.context_length", r->context);
    }
    if (r->jinja) omm_gguf_put_text(&w, "tokenizer.chat_template", r->jinja);
    omm_buf file;
    omm_gguf g;
    omm_buf_init(&file, VOCAB_FILE_MAX);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    const omm_err err = omm_tokenizer_open(out, &g);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
    return err;
}

static inline omm_tokenizer *open_vocab(const vocab_recipe *r) {
    omm_tokenizer *t = NULL;
    CHECK_OK(try_open_vocab(&t, r));
    return t;
}

#endif
