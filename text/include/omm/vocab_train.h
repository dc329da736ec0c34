/* vocab_train.h - a byte-level BPE vocabulary from text, the same for the same text everywhere.
 *
 *   open -> add text, add text, ... -> make -> put (into a GGUF)
 *
 * Text is cut at its special tokens, the rest into words by a pre-tokenizer (omm/tokenizer.h has them by
 * name); ids 0 .. 255 are the bytes.  Then, until the vocabulary is full, the pair of neighbours
 * that is most frequent within words becomes the next token: every place where the two stand side by
 * side counts, those that share a symbol too; of equally frequent pairs the one with the lower left
 * id is taken, then with the lower right.  Left out are pairs whose text is a token already, and
 * with digits_apart those with a digit, so that every number is read digit by digit.  Inside a
 * word the new token replaces its pairs from left to right.
 * The ids after the merges are the special tokens, control first, in the order given.
 *
 * Memory: the distinct words and their pairs.  Time: about (merges x distinct words).
 *
 * Source: Sennrich et al. 2016 (1508.07909), algorithm 1, over bytes.
 * Depends on: err, mem, bytes, gguf, tokenizer; PCRE2.  Threads: one at a time.
 */
#ifndef OMM_VOCAB_TRAIN_H
#define OMM_VOCAB_TRAIN_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_VOCAB_SIZE_MAX 65536u
#define OMM_VOCAB_SPECIALS_MAX 256u
#define OMM_VOCAB_SPECIAL_BYTES_MAX 256u    /* of one's text */
#define OMM_VOCAB_WORDS_MAX (1u << 24)      /* distinct */
#define OMM_VOCAB_WORD_BYTES_MAX (1u << 28) /* of the distinct words together */

typedef struct omm_vocab_trainer omm_vocab_trainer;

/* Borrowed for the life of the trainer. */
typedef struct omm_vocab_options {
    uint32_t size;     /* ids in all, 257 .. OMM_VOCAB_SIZE_MAX */
    const char *words; /* pre-tokenizer; it becomes tokenizer.ggml.pre */
    bool digits_apart;
    const char *const *control; /* "<|endoftext|>" ...: stand for no text */
    const char *const *user;    /* "<tool_call>" ...: always recognised in text */
    size_t control_count, user_count;
    const char *bos, *eos, *padding; /* one of these; NULL: the file names none */
} omm_vocab_options;

/* Errors: CONFIG (size, special tokens; says what is accepted), UNSUPPORTED (pre-tokenizer), NOMEM. */
OMM_CHECKED omm_err omm_vocab_trainer_open(omm_vocab_trainer **out,
                                           const omm_vocab_options *options);
void omm_vocab_trainer_close(omm_vocab_trainer *trainer);

/* Count the words of a text that nothing continues.  Before make.
 * Errors: FORMAT (not UTF-8; names the byte), TOO_BIG (distinct words), NOMEM; then it is not known
 * which words have been counted. */
OMM_CHECKED omm_err omm_vocab_add(omm_vocab_trainer *trainer, omm_bytes text);
/* Find the merges, once.  Errors: NOT_FOUND (too little text for so many tokens), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_vocab_make(omm_vocab_trainer *trainer);

typedef struct omm_vocab_report {
    uint64_t bytes, words, distinct; /* of the text: without its special tokens */
    uint64_t tokens;                 /* that the words become, after make */
} omm_vocab_report;
omm_vocab_report omm_vocab_reported(const omm_vocab_trainer *trainer);

/* The keys tokenizer.ggml.* of the vocabulary, after make.  Errors: NOMEM; those of the writer stick
 * to it. */
OMM_CHECKED omm_err omm_vocab_put(omm_gguf_writer *w, const omm_vocab_trainer *trainer);

#endif
