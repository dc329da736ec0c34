/* tokenizer_spm.c - SentencePiece BPE: characters of the whole text, merged by score. */
#include "tokenizer_internal.h"

#include <string.h>

static const uint8_t s_space[3] = {0xe2, 0x96, 0x81}; /* U+2581 stands for a space */

typedef struct encoder {
    omm_tokens *out;
    const omm_tokenizer *t;
    merge_work *work;
    omm_bytes text;
} encoder;

/* A number that falls as the score rises, so the best merge has the smallest key. */
static uint32_t priority(float score) {
    float v = score == 0.0f ? 0.0f : score; /* -0 and 0 are the same score */
    uint32_t bits = omm_f32_to_bits(v);
    uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~rising;
}

static omm_err propose(const encoder *e, uint32_t left, uint32_t right) {
    if (left == MERGE_END || right == MERGE_END) return OMM_OK;
    const merge_node *l = &e->work->nodes[left];
    const merge_node *r = &e->work->nodes[right];
    uint32_t id = vocab_find(&e->t->texts, omm_bytes_of(e->text.data + l->at, l->size + r->size));
    if (!token_is_text(e->t, id)) return OMM_OK;
    merge_item item = {.key = (uint64_t)priority(e->t->scores[id]) << 32 | left,
                       .right = right,
                       .left_symbol = l->size,
                       .right_symbol = r->size,
                       .result = id};
    return merge_push(e->work, &item);
}

omm_err spm_put_bytes(omm_tokens *out, const omm_tokenizer *t, omm_bytes text) {
    for (size_t i = 0; i < text.size; i++)
        if (t->byte_symbols[text.data[i]] == OMM_TOKEN_NONE)
            return omm_tokens_push(out, t->unknown); /* once for the character */
    for (size_t i = 0; i < text.size; i++)
        OMM_TRY(omm_tokens_push(out, t->byte_symbols[text.data[i]]));
    return OMM_OK;
}

static omm_err emit(const encoder *e) {
    const merge_node *nodes = e->work->nodes;
    for (uint32_t i = 0; i != MERGE_END; i = nodes[i].next) {
        omm_bytes text = omm_bytes_of(e->text.data + nodes[i].at, nodes[i].size);
        uint32_t id = vocab_find(&e->t->texts, text);
        if (token_is_text(e->t, id))
            OMM_TRY(omm_tokens_push(e->out, id));
        else
            OMM_TRY(spm_put_bytes(e->out, e->t, text));
    }
    return OMM_OK;
}

/* Bytes of a character by its first byte alone, as the reference counts them. */
static uint32_t step(uint8_t first) {
    static const uint8_t steps[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    return steps[first >> 4];
}

static uint32_t cut_characters(const encoder *e) {
    merge_node *nodes = e->work->nodes;
    uint32_t count = 0;
    for (uint32_t at = 0; at < e->text.size; count++) {
        uint32_t left = (uint32_t)e->text.size - at;
        uint32_t size = step(e->text.data[at]);
        if (size > left) size = left;
        nodes[count] = (merge_node){.prev = count > 0 ? count - 1 : MERGE_END,
                                    .next = size < left ? count + 1 : MERGE_END,
                                    .at = at,
                                    .size = size};
        at += size;
    }
    return count;
}

static omm_err merge_all(const encoder *e) {
    OMM_TRY(merge_reserve(e->work, e->text.size));
    uint32_t count = cut_characters(e);
    merge_node *nodes = e->work->nodes;
    for (uint32_t i = 1; i < count; i++) OMM_TRY(propose(e, i - 1, i));
    merge_item item;
    while (merge_pop(&item, e->work)) {
        uint32_t left = (uint32_t)item.key;
        if (nodes[left].size != item.left_symbol || nodes[item.right].size != item.right_symbol)
            continue; /* one side has been merged since */
        nodes[left].size += nodes[item.right].size;
        merge_unlink(e->work, left, item.right);
        OMM_TRY(propose(e, nodes[left].prev, left));
        OMM_TRY(propose(e, left, nodes[left].next));
    }
    return emit(e);
}

omm_err spm_escape(omm_buf *out, omm_bytes text, bool space_prefix) {
    size_t spaces = space_prefix ? 1 : 0;
    for (size_t i = 0; i < text.size; i++) spaces += text.data[i] == ' ';
    uint8_t *p = NULL;
    OMM_TRY(omm_buf_extend(out, &p, text.size + 2 * spaces + (space_prefix ? 1 : 0)));
    if (space_prefix) {
        memcpy(p, s_space, sizeof s_space);
        p += sizeof s_space;
    }
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == ' ') {
            memcpy(p, s_space, sizeof s_space);
            p += sizeof s_space;
        } else {
            *p++ = text.data[i];
        }
    }
    return OMM_OK;
}

omm_err spm_encode(omm_tokens *out, const omm_tokenizer *t, merge_work *work, omm_bytes text,
                   bool space_prefix) {
    omm_buf escaped;
    omm_buf_init(&escaped, 3 * (size_t)OMM_TOKENIZER_TEXT_MAX + 3);
    omm_err err = spm_escape(&escaped, text, space_prefix);
    encoder e = {out, t, work, omm_buf_view(&escaped)};
    if (err == OMM_OK && escaped.size > 0) err = merge_all(&e);
    omm_buf_fini(&escaped);
    return err;
}
