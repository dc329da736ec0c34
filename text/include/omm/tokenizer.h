/* tokenizer.h - text to token ids and back, from the vocabulary inside a GGUF file.
 *
 * Three families, all as the reference implementation (llama.cpp) does them:
 *   gpt2        byte-level BPE: a pre-tokenizer regular expression, then merges by rank
 *   llama       SentencePiece BPE: merges by score, byte tokens (or unknown) for what is left
 *   characters  merges by rank as gpt2, over characters as llama: tokenizer.ggml.model gemma4 and whitespace,
 *               and gpt2 where its pre-tokenizer says so (sarvam-moe, granite-embed-multi-311m and those two)
 *
 * Control tokens ("<|im_end|>") come out of text only when OMM_TOKENIZE_SPECIAL is given; text from
 * a user is encoded without it, so it can never open or close a turn.
 *
 * Encoding is O(n log n) in the length of the text.  Malformed UTF-8: gpt2 and characters encode U+FFFD for
 * each bad byte (as the reference does, which also lets overlong forms and surrogates through; here they
 * are bad bytes); llama encodes the bytes themselves.
 *
 * Depends on: err, mem, bytes, hash, gguf; PCRE2.  Threads: a tokenizer is read-only after open and may be
 * shared; an omm_detok belongs to one stream.
 */
#ifndef OMM_TOKENIZER_H
#define OMM_TOKENIZER_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/gguf.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_TOKENIZER_VOCAB_MAX (1u << 21)
#define OMM_TOKENIZER_TEXT_MAX (1u << 28) /* bytes in one call */
#define OMM_TOKEN_NONE UINT32_MAX

/* A growing list of token ids. */
typedef struct omm_tokens {
    uint32_t *ids;
    size_t count;
    size_t capacity;
    size_t count_max;
} omm_tokens;

void omm_tokens_init(omm_tokens *tokens, size_t count_max);
void omm_tokens_fini(omm_tokens *tokens);
/* Errors: NOMEM, TOO_BIG (over count_max); then nothing has changed. */
OMM_CHECKED omm_err omm_tokens_push(omm_tokens *tokens, uint32_t id);

typedef struct omm_tokenizer omm_tokenizer;

/* Copies what it needs: `gguf` may be closed afterwards.
 * Errors: NOT_FOUND (no vocabulary), FORMAT, TOO_BIG, NOMEM, UNSUPPORTED (tokenizer model or
 * pre-tokenizer, by name, with the list of those we have). */
OMM_CHECKED omm_err omm_tokenizer_open(omm_tokenizer **out, const omm_gguf *gguf);
void omm_tokenizer_close(omm_tokenizer *tokenizer);

/* The version of Unicode ("14.0.0") by which letters, digits and so on are told apart where words are cut: the regular
 * expressions' library brings it.  Characters that another version does not know may be cut in another way. */
#define OMM_UNICODE_SIZE 24u
void omm_unicode_version(char out[OMM_UNICODE_SIZE]);

/* True when the file does not say how its texts are cut into words (gpt2 without tokenizer.ggml.pre) and the family
 * "default" stands in; `out` then says so in a sentence. */
enum { OMM_TOKENIZER_DOUBT_MAX = 256 };
bool omm_tokenizer_doubt(char out[OMM_TOKENIZER_DOUBT_MAX], const omm_tokenizer *tokenizer);
/* The same where the architecture's vocab_size is another number than that of the tokens in the list, which counts. */
bool omm_tokenizer_count_doubt(char out[OMM_TOKENIZER_DOUBT_MAX], const omm_tokenizer *tokenizer);

uint32_t omm_tokenizer_vocab(const omm_tokenizer *tokenizer); /* number of ids */
/* OMM_TOKEN_NONE where the file names none. */
uint32_t omm_tokenizer_bos(const omm_tokenizer *tokenizer);
uint32_t omm_tokenizer_eos(const omm_tokenizer *tokenizer);
/* The file's add_bos_token; gemma4 and granite-embed-multi-311m always. */
bool omm_tokenizer_adds_bos(const omm_tokenizer *tokenizer);
/* True where a text's first token has a space in front that decoding leaves out (llama, add_space_prefix). */
bool omm_tokenizer_leads(const omm_tokenizer *tokenizer);
/* True for ids that end a generation: eos, eot, "<|im_end|>", "<|endoftext|>" and the like. */
bool omm_tokenizer_is_end(const omm_tokenizer *tokenizer, uint32_t id);
/* True for control tokens, which stand for no text. */
bool omm_tokenizer_is_control(const omm_tokenizer *tokenizer, uint32_t id);
/* Id of a control or user-defined token by its text ("<|im_end|>"), or OMM_TOKEN_NONE. */
uint32_t omm_tokenizer_special(const omm_tokenizer *tokenizer, const char *text);
/* BLAKE2b-256 over everything that decides the ids. */
omm_digest omm_tokenizer_digest(const omm_tokenizer *tokenizer);

enum {
    OMM_TOKENIZE_SPECIAL = 1,  /* control tokens in the text become their ids */
    OMM_TOKENIZE_BOS = 2,      /* put bos in front when the file says add_bos_token */
    OMM_TOKENIZE_CONTINUE = 8, /* llama: goes on after earlier text, so no space is put in front */
    OMM_TOKENIZE_PLAIN = 4,    /* not even user-defined tokens are recognised: for untrusted text */
};

/* Append the ids of `text`.  Errors: NOMEM, TOO_BIG (text or tokens->count_max); then `tokens` is
 * unchanged. */
OMM_CHECKED omm_err omm_tokenizer_encode(omm_tokens *tokens, const omm_tokenizer *tokenizer,
                                         omm_bytes text, unsigned flags);

/* Bytes that an id stands for, borrowed; control tokens give their name.  id < vocab. */
omm_bytes omm_tokenizer_piece(const omm_tokenizer *tokenizer, uint32_t id);

enum {
    OMM_DETOKENIZE_SPECIAL = 1,  /* write control tokens by name; otherwise they vanish */
    OMM_DETOKENIZE_CONTINUE = 2, /* llama: goes on after earlier text, so a leading space stays */
};

/* Append the text of `count` ids (llama: without the space that encoding put in front).
 * Errors: FORMAT (an id is not in the vocabulary), NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_tokenizer_decode(omm_buf *out, const omm_tokenizer *tokenizer,
                                         const uint32_t *ids, size_t count, unsigned flags);

/* Text as it is generated: a UTF-8 character comes out whole or not yet, so at most 3 bytes are held
 * back.  Each byte that is not part of a well-formed character comes out as U+FFFD: all output
 * together is what omm_tokenizer_decode gives with such bytes replaced.  A zeroed omm_detok is a
 * stream that has just begun in the middle of a text; set `first` to drop a leading space (llama). */
typedef struct omm_detok {
    uint8_t pending[4];
    uint8_t pending_count;
    bool first;
} omm_detok;

/* Errors: FORMAT (id not in the vocabulary), NOMEM, TOO_BIG; then nothing has changed. */
OMM_CHECKED omm_err omm_detok_push(omm_buf *out, omm_detok *detok, const omm_tokenizer *tokenizer,
                                   uint32_t id, unsigned flags);
/* End of the stream: the bytes of an unfinished character become U+FFFD each. */
OMM_CHECKED omm_err omm_detok_flush(omm_buf *out, omm_detok *detok);
/* How many of the bytes that are held back come out as U+FFFD in front of this id's text, which does not go on with them; 0: it
 * does, or has none.  id: of the vocabulary. */
size_t omm_detok_breaks(const omm_detok *detok, const omm_tokenizer *tokenizer, uint32_t id);

#endif
