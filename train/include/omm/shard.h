/* shard.h - the public data of a canary: one way to read it, for who trains and for who trains again.
 *
 * A shard is chat JSONL as a node's own data is; a line need not name a client.  Who offers it may have it as one JSON
 * array: nodes get lines.  The payload of a canary
 * must depend on its seed, else one node's answer serves all: so a shard has some examples, in whose
 * order seeds differ.
 *
 * Depends on: dataset.h, recipe.h.  Threads: no shared state.
 */
#ifndef OMM_SHARD_H
#define OMM_SHARD_H

#include "omm/dataset.h"
#include "omm/recipe.h"

#define OMM_SHARD_EXAMPLES_MIN 16u /* 16! orders */

/* Append the file `text` as nodes get it: lines as they are, without blank ones and a byte order mark; each element of an
 * array as a line, with spaces for its line breaks.  Nothing grows.  Errors: FORMAT (something that is no example, with its
 * place in the file), NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_shard_lines(omm_buf *out, omm_bytes text, const char *name);
/* Examples cut to the recipe's seq_max; `name` stands in error messages.
 * Errors: those of omm_dataset_parse; CONFIG (fewer than OMM_SHARD_EXAMPLES_MIN). */
OMM_CHECKED omm_err omm_shard_parse(omm_dataset **out, omm_bytes text, const char *name,
                                    const struct omm_tokenizer *tokenizer,
                                    const omm_recipe *recipe);

#endif
