/* checkpoint.h - what checkpoints of every kind of training run have in common.  Inside train only. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/recipe.h"

#include <stdbool.h>

/* A kind: "magic | version u32 | ... | BLAKE2b-256 of all before". */
typedef struct checkpoint_kind {
    uint8_t magic[4];
    uint32_t version;
    size_t bytes_min; /* with the digest */
    const char *name; /* "a checkpoint of ..." */
} checkpoint_kind;

/* Magic, version, least size and digest; content is all but the digest.  Errors: SIZE, FORMAT,
 * VERSION, DIGEST. */
OMM_CHECKED omm_err checkpoint_envelope(omm_bytes *content, omm_bytes in,
                                        const checkpoint_kind *kind);
/* Whether `bytes` are this recipe, encoded. */
bool checkpoint_same_recipe(omm_bytes bytes, const omm_recipe *recipe);
bool checkpoint_all_finite(omm_bytes floats);

#endif
