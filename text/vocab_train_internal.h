/* vocab_train_internal.h - what counting (vocab_train.c) and writing (vocab_put.c) share. */
#ifndef TEXT_VOCAB_TRAIN_INTERNAL_H
#define TEXT_VOCAB_TRAIN_INTERNAL_H

#include "omm/vocab_train.h"
#include "tokenizer_internal.h"

typedef struct vocab_word {
    size_t at; /* its bytes in `texts`, its symbols in `symbols` */
    uint32_t bytes, symbols;
    uint64_t count;
} vocab_word;

typedef struct vocab_pair {
    uint32_t left, right;
    uint64_t count;
    bool used;
    bool barred; /* its text is a token */
} vocab_pair;

typedef struct vocab_merge {
    uint32_t left, right;
} vocab_merge;

struct omm_vocab_trainer {
    omm_vocab_options options;
    omm_vocab_report report;
    pretoken pre;
    omm_buf texts;     /* of all distinct words */
    vocab_word *words; /* in the order of their first place */
    size_t word_count, word_capacity;
    uint32_t *slots; /* open addressing, number of the word + 1, 0 when empty */
    size_t slot_count;
    uint32_t *symbols; /* (texts.size) */
    vocab_pair *pairs; /* open addressing */
    size_t pair_count, pair_slots;
    vocab_merge *merges; /* id 256 + i; NULL before make */
    uint32_t merge_count;
};

static inline size_t vocab_special_count(const omm_vocab_options *o) {
    return o->control_count + o->user_count;
}

static inline const char *vocab_special(const omm_vocab_options *o, size_t i) {
    return i < o->control_count ? o->control[i] : o->user[i - o->control_count];
}

static inline bool vocab_is_special(const omm_vocab_options *o, omm_bytes text) {
    for (size_t i = 0; i < vocab_special_count(o); i++)
        if (omm_bytes_equal(omm_bytes_str(vocab_special(o, i)), text)) return true;
    return false;
}

static inline uint32_t vocab_merge_count(const omm_vocab_options *o) {
    return o->size - 256 - (uint32_t)vocab_special_count(o);
}

#endif
