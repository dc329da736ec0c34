/* vocab.c - texts by number and numbers by text. */
#include "tokenizer_internal.h"

#include "omm/mem.h"

#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 28 };

/* FNV-1a with other numbers, 64 bits folded to 32. */
static uint32_t hash(const vocab *v, omm_bytes text) {
    uint64_t h = v->salt;
    for (size_t i = 0; i < text.size; i++) h = (h ^ text.data[i]) * v->factor;
    return (uint32_t)(h ^ h >> 32);
}

omm_err vocab_init(vocab *v, uint32_t capacity, const omm_digest *key) {
    memset(v, 0, sizeof *v);
    v->salt = omm_get_u64(key->b);
    v->factor = omm_get_u64(key->b + 8) | 1;
    omm_buf_init(&v->text, TEXT_BYTES_MAX);
    uint32_t slots = 16;
    while (slots / 2 <= capacity) slots *= 2;
    v->at = omm_alloc((size_t)capacity + 1, sizeof *v->at);
    v->slots = omm_alloc(slots, sizeof *v->slots);
    v->capacity = capacity;
    v->slot_count = slots;
    if (v->at && v->slots) return OMM_OK;
    vocab_fini(v);
    return omm_raise(OMM_ERR_NOMEM, "tokenizer: table of %u texts", capacity);
}

void vocab_fini(vocab *v) {
    omm_buf_fini(&v->text);
    omm_free(v->at);
    omm_free(v->slots);
    memset(v, 0, sizeof *v);
}

omm_bytes vocab_text(const vocab *v, uint32_t number) {
    OMM_ASSERT(number < v->count);
    return omm_bytes_of(v->text.data + v->at[number], v->at[number + 1] - v->at[number]);
}

/* Slot that holds this text, or the empty one where it belongs. */
static uint32_t *slot_of(const vocab *v, omm_bytes text) {
    for (uint32_t s = hash(v, text);; s++) {
        uint32_t *slot = &v->slots[s & (v->slot_count - 1)];
        if (*slot == 0 || omm_bytes_equal(vocab_text(v, *slot - 1), text)) return slot;
    }
}

uint32_t vocab_find(const vocab *v, omm_bytes text) {
    if (text.size == 0) return OMM_TOKEN_NONE;
    return *slot_of(v, text) - 1; /* 0 - 1 is OMM_TOKEN_NONE */
}

omm_err vocab_push(vocab *v, omm_bytes text) {
    OMM_ASSERT(v->count < v->capacity);
    OMM_TRY(omm_buf_append(&v->text, text.data, text.size));
    v->at[++v->count] = (uint32_t)v->text.size;
    if (text.size > 0) *slot_of(v, text) = v->count;
    return OMM_OK;
}
