/* dataset.h - chat examples from JSONL, as token ids with a mask of what is to be learned.
 *
 * One line is one object: {"client", "messages": [{"role", "content"}, ...], "skill"?, "tools"?}.
 * A line becomes one example: ids, and learn[i] = 1 where token i is assistant text (its closing
 * token included).  A line that is not as described is refused with file, line and reason.
 *
 *   file --load--> dataset --select(clients)--> dataset of one node
 *
 * Depends on: base; engine's tokenizer.h and chat.h.  Threads: a dataset is read-only after load.
 */
#ifndef OMM_DATASET_H
#define OMM_DATASET_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct omm_tokenizer;

#define OMM_DATASET_FILE_BYTES_MAX (256u << 20)
#define OMM_DATASET_LINE_BYTES_MAX (1u << 20)
#define OMM_DATASET_EXAMPLES_MAX 1000000u
#define OMM_DATASET_NAME_BYTES_MAX 128u /* client and skill */

/* Everything is borrowed from the dataset. */
typedef struct omm_example {
    const uint32_t *ids;   /* (count) */
    const uint8_t *learn;  /* (count) 1: predicting this token counts; learn[0] is 0 */
    uint32_t count;        /* at most seq_max */
    uint32_t learn_count;  /* at least 1 */
    uint32_t prompt_count; /* ids before the first learned token: the prompt of the first reply */
    const char *client;
    const char *skill; /* "" when the line has none */
    const char *reply; /* text of the first assistant turn */
    bool has_call;     /* `reply` holds a tool call */
    uint32_t line;     /* 1-based, in the file it came from */
    omm_digest digest; /* BLAKE2b-256 of the raw line, without its newline */
} omm_example;

typedef struct omm_dataset omm_dataset;

typedef struct omm_dataset_options {
    const char *const *clients; /* keep lines of these clients only; NULL: all */
    size_t client_count;
    uint32_t seq_max; /* an example is cut to this many tokens; 0: 32,768 */
} omm_dataset_options;

/* Read and tokenise a file; `options` may be NULL.  Lines are kept in file order.  A line whose
 * learned tokens are all cut away by seq_max is dropped and counted (omm_dataset_dropped).
 * Errors: NOT_FOUND, IO, TOO_BIG, NOMEM, FORMAT ("FILE:LINE: reason"), NOT_FOUND (a named client
 * has no line; names it). */
OMM_CHECKED omm_err omm_dataset_load(omm_dataset **out, const char *path,
                                     const struct omm_tokenizer *tokenizer,
                                     const omm_dataset_options *options);
/* The same from memory; `name` stands in error messages. */
OMM_CHECKED omm_err omm_dataset_parse(omm_dataset **out, omm_bytes text, const char *name,
                                      const struct omm_tokenizer *tokenizer,
                                      const omm_dataset_options *options);
/* A new, independent dataset of the examples of some clients, in file order, without tokenising
 * again.  Errors: NOMEM, NOT_FOUND (a client has no example; names it). */
OMM_CHECKED omm_err omm_dataset_select(omm_dataset **out, const omm_dataset *from,
                                       const char *const *clients, size_t client_count);
/* A new dataset of examples first, first + stride, ... (a deterministic sample or hold-out).
 * `complement`: all the others instead.  Errors: NOMEM, NOT_FOUND (nothing left). */
OMM_CHECKED omm_err omm_dataset_sample(omm_dataset **out, const omm_dataset *from, size_t first,
                                       size_t stride, bool complement);
/* A new dataset of the examples with keep[index], keep of omm_dataset_count(from).
 * Errors: NOMEM, NOT_FOUND (nothing left). */
OMM_CHECKED omm_err omm_dataset_pick(omm_dataset **out, const omm_dataset *from, const bool *keep);
void omm_dataset_close(omm_dataset *data);

size_t omm_dataset_count(const omm_dataset *data);
const omm_example *omm_dataset_example(const omm_dataset *data, size_t index);
size_t omm_dataset_dropped(const omm_dataset *data);
uint64_t omm_dataset_tokens(const omm_dataset *data);
uint64_t omm_dataset_learned(const omm_dataset *data);

/* Distinct clients in ascending byte order of the name, borrowed. */
size_t omm_dataset_client_count(const omm_dataset *data);
const char *omm_dataset_client(const omm_dataset *data, size_t index);

/* BLAKE2b-256 over the raw lines of the examples in order, each followed by one newline. */
omm_digest omm_dataset_digest(const omm_dataset *data);
/* What a manifest carries: keyed BLAKE2b-256 of the digest; the key stays on the node. */
omm_digest omm_dataset_commit(const omm_digest *data_digest, const uint8_t key[32]);

#endif
