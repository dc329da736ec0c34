/* tokenizer.c - look-ups, decoding, and the digest of a tokenizer. */
#include "tokenizer_internal.h"

#include "omm/chat.h"
#include "omm/mem.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

/* ---- Lists of ids -------------------------------------------------------------------------- */

enum { TOKENS_CAPACITY_MIN = 64 };

void omm_tokens_init(omm_tokens *tokens, size_t count_max) {
    memset(tokens, 0, sizeof *tokens);
    tokens->count_max = count_max;
}

void omm_tokens_fini(omm_tokens *tokens) {
    omm_free(tokens->ids);
    memset(tokens, 0, sizeof *tokens);
}

omm_err omm_tokens_push(omm_tokens *tokens, uint32_t id) {
    if (tokens->count >= tokens->count_max)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %zu tokens", tokens->count_max);
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : TOKENS_CAPACITY_MIN;
        uint32_t *grown = omm_grow(tokens->ids, tokens->capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "%zu tokens", capacity);
        tokens->ids = grown;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return OMM_OK;
}

/* ---- Look-ups ------------------------------------------------------------------------------ */

bool omm_tokenizer_doubt(char out[OMM_TOKENIZER_DOUBT_MAX], const omm_tokenizer *tokenizer) {
    if (!tokenizer->pre_assumed) return false;
    snprintf(out, OMM_TOKENIZER_DOUBT_MAX,
             "the model's file has no tokenizer.ggml.pre: its texts are cut into words as by "
             "'%s', which may not be how it was trained; its answers are worse then",
             tokenizer->pre.name);
    return true;
}

bool omm_tokenizer_count_doubt(char out[OMM_TOKENIZER_DOUBT_MAX], const omm_tokenizer *tokenizer) {
    if (tokenizer->count_said == tokenizer->count) return false;
    snprintf(out, OMM_TOKENIZER_DOUBT_MAX,
             "the model's file says a vocab_size of %u, and its list has %u tokens: the list is "
             "taken",
             tokenizer->count_said, tokenizer->count);
    return true;
}

uint32_t omm_tokenizer_vocab(const omm_tokenizer *tokenizer) {
    return tokenizer->count;
}

uint32_t omm_tokenizer_bos(const omm_tokenizer *tokenizer) {
    return tokenizer->bos;
}

uint32_t omm_tokenizer_eos(const omm_tokenizer *tokenizer) {
    return tokenizer->eos;
}

bool omm_tokenizer_adds_bos(const omm_tokenizer *tokenizer) {
    return tokenizer->adds_bos;
}

bool omm_tokenizer_leads(const omm_tokenizer *tokenizer) {
    return tokenizer->space_prefix;
}

bool omm_tokenizer_is_end(const omm_tokenizer *tokenizer, uint32_t id) {
    return id < tokenizer->count && (tokenizer->flags[id] & TOKEN_IS_END) != 0;
}

bool omm_tokenizer_is_control(const omm_tokenizer *tokenizer, uint32_t id) {
    return id < tokenizer->count &&
           (tokenizer->types[id] == TOKEN_CONTROL || tokenizer->types[id] == TOKEN_UNKNOWN);
}

uint32_t omm_tokenizer_special(const omm_tokenizer *tokenizer, const char *text) {
    uint32_t id = vocab_find(&tokenizer->texts, omm_bytes_str(text));
    if (id >= tokenizer->count) return OMM_TOKEN_NONE;
    unsigned type = tokenizer->types[id];
    return type == TOKEN_CONTROL || type == TOKEN_USER ? id : OMM_TOKEN_NONE;
}

omm_bytes omm_tokenizer_piece(const omm_tokenizer *tokenizer, uint32_t id) {
    OMM_ASSERT(id < tokenizer->count);
    uint32_t at = tokenizer->piece_at[id];
    return omm_bytes_of(tokenizer->pieces.data + at, tokenizer->piece_at[id + 1] - at);
}

static void hash_u32(omm_hasher *h, uint32_t v) {
    uint8_t bytes[4];
    omm_put_u32(bytes, v);
    omm_hasher_update(h, omm_bytes_of(bytes, sizeof bytes));
}

static void hash_text(omm_hasher *h, omm_bytes text) {
    hash_u32(h, (uint32_t)text.size);
    omm_hasher_update(h, text);
}

omm_digest omm_tokenizer_digest(const omm_tokenizer *tokenizer) {
    const omm_tokenizer *t = tokenizer;
    omm_hasher h;
    omm_hasher_init(&h);
    hash_text(&h, omm_bytes_str(t->spm ? "omm tokenizer 1 llama" : "omm tokenizer 1 gpt2"));
    hash_text(&h, omm_bytes_str(t->spm ? "" : t->pre.name));
    hash_u32(&h, (uint32_t)t->adds_bos | (uint32_t)t->space_prefix << 1 |
                     (uint32_t)t->pre.drops_gaps << 2 | (uint32_t)t->pre.lowers << 3);
    hash_u32(&h, t->bos);
    hash_u32(&h, t->eos);
    hash_u32(&h, t->unknown);
    hash_u32(&h, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t score = t->scores ? omm_f32_to_bits(t->scores[i]) : 0;
        hash_text(&h, vocab_text(&t->texts, i));
        hash_u32(&h, (uint32_t)t->types[i] | (uint32_t)t->flags[i] << 8);
        hash_u32(&h, score);
    }
    omm_hasher_update(&h, omm_bytes_of(t->merges_digest.b, sizeof t->merges_digest.b));
    /* absent from the digest before there were others; what the vocabulary lacks, it says already */
    if (t->chat != OMM_CHAT_CHATML && t->chat != OMM_CHAT_CHATML_TEXT)
        hash_text(&h, omm_bytes_str(omm_chat_format_name(omm_chat_format_of(t))));
    return omm_hasher_final(&h);
}

/* ---- Decoding ------------------------------------------------------------------------------ */

static omm_err check_id(const omm_tokenizer *t, uint32_t id) {
    if (id < t->count) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "token id %u, the vocabulary has %u", id, t->count);
}

/* Bytes to show for an id; `first` drops the space that encoding put in front. */
static omm_bytes shown(const omm_tokenizer *t, uint32_t id, unsigned flags, bool *first) {
    if (omm_tokenizer_is_control(t, id)) {
        return flags & OMM_DETOKENIZE_SPECIAL ? omm_tokenizer_piece(t, id) : (omm_bytes){0};
    }
    omm_bytes piece = omm_tokenizer_piece(t, id);
    if (*first && t->space_prefix && piece.size > 0 && piece.data[0] == ' ')
        piece = omm_bytes_of(piece.data + 1, piece.size - 1);
    *first = false;
    return piece;
}

omm_err omm_tokenizer_decode(omm_buf *out, const omm_tokenizer *tokenizer, const uint32_t *ids,
                             size_t count, unsigned flags) {
    for (size_t i = 0; i < count; i++) OMM_TRY(check_id(tokenizer, ids[i]));
    size_t before = out->size;
    bool first = !(flags & OMM_DETOKENIZE_CONTINUE);
    for (size_t i = 0; i < count; i++) {
        omm_bytes piece = shown(tokenizer, ids[i], flags, &first);
        omm_err err = omm_buf_append(out, piece.data, piece.size);
        if (err != OMM_OK) {
            out->size = before;
            return err;
        }
    }
    return OMM_OK;
}

/* True while these bytes may still grow into a well-formed character. */
static bool is_unfinished(const uint8_t *p, size_t count) {
    static const uint8_t tails[2] = {0x80, 0xa0}; /* of them one is in each range of second bytes */
    uint8_t whole[4] = {0};
    memcpy(whole, p, count);
    for (unsigned t = 0; t < 2; t++) {
        for (size_t i = count; i < 4; i++) whole[i] = i == 1 ? tails[t] : 0x80;
        if (omm_utf8_size(whole, 4) > count) return true;
    }
    return false;
}

/* Write what is complete in `pending`; what may still grow stays. */
static omm_err drain(omm_buf *out, omm_detok *d) {
    while (d->pending_count > 0) {
        unsigned size = omm_utf8_size(d->pending, d->pending_count);
        if (size > 0) {
            OMM_TRY(omm_buf_append(out, d->pending, size));
        } else if (is_unfinished(d->pending, d->pending_count)) {
            return OMM_OK;
        } else {
            OMM_TRY(omm_buf_append(out, "\xef\xbf\xbd", 3));
            size = 1;
        }
        d->pending_count = (uint8_t)(d->pending_count - size);
        memmove(d->pending, d->pending + size, d->pending_count);
    }
    return OMM_OK;
}

omm_err omm_detok_push(omm_buf *out, omm_detok *detok, const omm_tokenizer *tokenizer, uint32_t id,
                       unsigned flags) {
    OMM_TRY(check_id(tokenizer, id));
    size_t before = out->size;
    omm_detok d = *detok;
    omm_bytes piece = shown(tokenizer, id, flags, &d.first);
    for (size_t i = 0; i < piece.size; i++) {
        d.pending[d.pending_count++] = piece.data[i]; /* drain leaves at most 3 */
        omm_err err = drain(out, &d);
        if (err != OMM_OK) {
            out->size = before;
            return err;
        }
    }
    *detok = d;
    return OMM_OK;
}

/* They begin a character, so either it goes on or none of them is part of one. */
size_t omm_detok_breaks(const omm_detok *detok, const omm_tokenizer *tokenizer, uint32_t id) {
    omm_detok d = *detok;
    OMM_ASSERT(id < tokenizer->count);
    const omm_bytes piece = shown(tokenizer, id, 0, &d.first);
    if (piece.size == 0 || d.pending_count == 0) return 0;
    d.pending[d.pending_count] = piece.data[0];
    const size_t with = d.pending_count + (size_t)1;
    const bool goes_on = omm_utf8_size(d.pending, with) == with || is_unfinished(d.pending, with);
    return goes_on ? 0 : d.pending_count;
}

omm_err omm_detok_flush(omm_buf *out, omm_detok *detok) {
    static const char bad[] = "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
    OMM_TRY(omm_buf_append(out, bad, 3 * (size_t)detok->pending_count));
    detok->pending_count = 0;
    return OMM_OK;
}
