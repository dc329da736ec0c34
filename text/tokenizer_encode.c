/* tokenizer_encode.c - special tokens are cut out of the text, longest first; the rest is encoded
 * by the family's merges.  Text between two special tokens is encoded as a text of its own. */
#include "tokenizer_internal.h"

#include "omm/mem.h"

#include <string.h>

/* A stretch of the text: raw, or one special token. */
typedef struct fragment {
    uint32_t begin, end;
    uint32_t id; /* OMM_TOKEN_NONE: raw text */
} fragment;

typedef struct fragments {
    fragment *items;
    size_t count, capacity;
} fragments;

static omm_err add(fragments *f, uint32_t begin, uint32_t end, uint32_t id) {
    if (begin == end && id == OMM_TOKEN_NONE) return OMM_OK;
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        fragment *grown = omm_grow(f->items, f->capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %zu fragments", capacity);
        f->items = grown;
        f->capacity = capacity;
    }
    f->items[f->count++] = (fragment){begin, end, id};
    return OMM_OK;
}

static bool is_space(uint8_t c) {
    return c == ' ' || (c >= 9 && c <= 13);
}

static uint32_t find(omm_bytes text, uint32_t from, uint32_t end, omm_bytes wanted) {
    const uint8_t *hit = memmem(text.data + from, end - from, wanted.data, wanted.size);
    return hit ? (uint32_t)(hit - text.data) : UINT32_MAX;
}

/* Cut every occurrence of one special token out of one raw fragment. */
static omm_err cut(fragments *out, const omm_tokenizer *t, uint32_t id, omm_bytes text,
                   fragment raw) {
    omm_bytes wanted = vocab_text(&t->texts, id);
    uint32_t at = raw.begin;
    for (uint32_t hit = find(text, at, raw.end, wanted); hit != UINT32_MAX;
         hit = find(text, at, raw.end, wanted)) {
        OMM_TRY(add(out, at, hit, OMM_TOKEN_NONE));
        at = hit + (uint32_t)wanted.size;
        OMM_TRY(add(out, hit, at, id));
        if (t->flags[id] & TOKEN_STRIPS_RIGHT)
            while (at < raw.end && is_space(text.data[at])) at++;
    }
    return add(out, at, raw.end, OMM_TOKEN_NONE);
}

/* Which four bytes in a row a text has, but for some that share their place: of tens of thousands of special tokens, most
 * have four that it has not. */
#define GRAM_BITS 18u
typedef struct grams {
    uint64_t bits[(1u << GRAM_BITS) / 64];
} grams;

static uint32_t place_of(const uint8_t *p) {
    return omm_get_u32(p) * 2654435761u >> (32 - GRAM_BITS);
}

static void mark_grams(grams *g, omm_bytes text) {
    memset(g, 0, sizeof *g);
    for (size_t i = 0; i + 4 <= text.size; i++) {
        const uint32_t at = place_of(text.data + i);
        g->bits[at / 64] |= 1ull << at % 64;
    }
}

static bool may_occur(const grams *g, omm_bytes wanted) {
    for (size_t i = 0; i + 4 <= wanted.size; i++) {
        const uint32_t at = place_of(wanted.data + i);
        if (!(g->bits[at / 64] >> at % 64 & 1)) return false;
    }
    return true;
}

static bool occurs(const fragments *f, omm_bytes text, omm_bytes wanted) {
    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].id == OMM_TOKEN_NONE &&
            find(text, f->items[i].begin, f->items[i].end, wanted) != UINT32_MAX)
            return true;
    return false;
}

/* `spare` is where the next list is built; the two change places. */
static omm_err cut_all(fragments *f, fragments *spare, const omm_tokenizer *t, uint32_t id,
                       omm_bytes text) {
    spare->count = 0;
    for (size_t i = 0; i < f->count; i++) {
        fragment part = f->items[i];
        if (part.id == OMM_TOKEN_NONE)
            OMM_TRY(cut(spare, t, id, text, part));
        else
            OMM_TRY(add(spare, part.begin, part.end, part.id));
    }
    fragments done = *f;
    *f = *spare;
    *spare = done;
    return OMM_OK;
}

static omm_err partition(fragments *f, fragments *spare, const omm_tokenizer *t, omm_bytes text,
                         unsigned flags) {
    OMM_TRY(add(f, 0, (uint32_t)text.size, OMM_TOKEN_NONE));
    if (flags & OMM_TOKENIZE_PLAIN) return OMM_OK;
    grams has;
    mark_grams(&has, text);
    for (uint32_t i = 0; i < t->special_count; i++) {
        uint32_t id = t->specials[i];
        const omm_bytes wanted = vocab_text(&t->texts, id);
        if (t->types[id] != TOKEN_USER && !(flags & OMM_TOKENIZE_SPECIAL)) continue;
        if (!may_occur(&has, wanted) || !occurs(f, text, wanted)) continue;
        OMM_TRY(cut_all(f, spare, t, id, text));
    }
    return OMM_OK;
}

static omm_err encode_fragments(omm_tokens *out, const omm_tokenizer *t, const fragments *f,
                                omm_bytes text, unsigned flags) {
    merge_work work = {0};
    omm_err err = OMM_OK;
    bool prefix = t->space_prefix && !(flags & OMM_TOKENIZE_CONTINUE);
    for (size_t i = 0; i < f->count && err == OMM_OK; i++) {
        fragment part = f->items[i];
        omm_bytes raw = omm_bytes_of(text.data + part.begin, part.end - part.begin);
        if (part.id != OMM_TOKEN_NONE)
            err = omm_tokens_push(out, part.id);
        else if (t->spm)
            err = spm_encode(out, t, &work, raw, prefix);
        else
            err = bpe_encode(out, t, &work, raw);
        prefix = t->space_prefix && part.id != OMM_TOKEN_NONE;
    }
    merge_work_fini(&work);
    return err;
}

omm_err omm_tokenizer_encode(omm_tokens *tokens, const omm_tokenizer *tokenizer, omm_bytes text,
                             unsigned flags) {
    if (text.size > OMM_TOKENIZER_TEXT_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "tokenizer: text of %zu bytes, at most %u", text.size,
                         OMM_TOKENIZER_TEXT_MAX);
    size_t before = tokens->count;
    fragments f = {0};
    fragments spare = {0};
    omm_err err = OMM_OK;
    if ((flags & OMM_TOKENIZE_BOS) && tokenizer->adds_bos && tokenizer->bos != OMM_TOKEN_NONE)
        err = omm_tokens_push(tokens, tokenizer->bos);
    if (err == OMM_OK) err = partition(&f, &spare, tokenizer, text, flags);
    if (err == OMM_OK) err = encode_fragments(tokens, tokenizer, &f, text, flags);
    omm_free(f.items);
    omm_free(spare.items);
    if (err != OMM_OK) tokens->count = before;
    return err;
}
