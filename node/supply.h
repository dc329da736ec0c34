/* supply.h - private to node: the model and the data of a training, borrowed, or read from files when
 * they are needed and let go when they are not.
 *
 *   open (digests, shapes) --data--> tokenizer and data --model--> weights
 *        ^                                                           |
 *        +------------------------ rest ----------------------------+
 *
 * A node waits for days and trains for minutes: between them it keeps digests and shapes alone.  Files
 * that are not the same any more are refused, because offers are compared with the digests of before.
 *
 * Depends on: engine, train.  Threads: one thread at a time.
 */
#ifndef OMM_NODE_SUPPLY_H
#define OMM_NODE_SUPPLY_H

#include "omm/dataset.h"
#include "omm/model.h"
#include "omm/tokenizer.h"
#include "omm/train_plan.h"
#include "omm/training.h"

/* What a file was when it was opened first. */
typedef struct supply_file {
    uint64_t device, inode, size, changed_ns;
} supply_file;

typedef struct supply {
    omm_training_files files; /* texts borrowed; model NULL: nothing is read from files */
    supply_file model_was;
    omm_lora_shape shape;
    omm_digest base_digest, tokenizer_digest, data_digest;
    uint64_t examples;
    const omm_model *model; /* NULL: not loaded */
    const omm_dataset *data;
    omm_model own_model; /* with files */
    bool has_model;
    omm_tokenizer *tokenizer;
    const omm_tokenizer *lent_tokenizer; /* without files; may be NULL */
    omm_dataset *own_data;
    uint64_t before; /* resident when supply_measure was called last; 0: never */
    bool had_model;  /* then */
    uint64_t shard;  /* bytes that a canary's data take, which came after that */
} supply;

/* Digests and shapes; with files, all of them are read once and let go.
 * Errors: NOT_FOUND, IO, FORMAT, UNSUPPORTED, NOMEM. */
OMM_CHECKED omm_err supply_open(supply *s, const omm_training_options *options);
void supply_close(supply *s);
/* Errors: MISMATCH (a file has changed), and those of supply_open. */
OMM_CHECKED omm_err supply_need_data(supply *s);
OMM_CHECKED omm_err supply_need_model(supply *s, omm_pool *pool);
void supply_rest(supply *s);

/* Nothing of a job is in memory: what is resident now, with the data, stands beside all that plans count. */
OMM_CHECKED omm_err supply_measure(supply *s);
/* What this recipe takes on `data` (NULL: the node's own), and the settings that fit within files.memory_max and what the machine has.
 * *bytes: all of the process, at the largest, beside what was measured last and the shard (never: what is resident now).  Without files: no limit, *bytes 0.
 * Errors: REFUSED_SIZE (does not fit: says what it takes), those of supply_need_data. */
OMM_CHECKED omm_err supply_plan(omm_train_plan *out, uint64_t *bytes, supply *s,
                                const omm_recipe *recipe, const omm_dataset *data);
/* How much a training may take, in bytes, and who says so: of the owner's `most` (0: no limit) and what the machine `has` for it
 * (0: unknown) the smaller one. */
uint64_t supply_limit(const char **who, uint64_t most, uint64_t has);
/* Of the model, while data are there; NULL: none was lent. */
const omm_tokenizer *supply_tokenizer(const supply *s);

#endif
