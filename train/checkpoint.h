/* checkpoint.h - what checkpoints of every kind of training run have in common.  Inside train only. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "omm/bytes.h"
#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/model.h"
#include "omm/recipe.h"
#include "omm/rng.h"

#include <stdbool.h>

/* A kind: "magic | version u32 | ... | BLAKE2b-256 of all before". */
typedef struct checkpoint_kind {
    uint8_t magic[4];
    uint32_t version;
    size_t bytes_min; /* with the digest */
    const char *name; /* "a checkpoint of ..." */
} checkpoint_kind;

/* What a checkpoint must have in common with the run that goes on with it. */
typedef struct checkpoint_identity {
    omm_digest model; /* architecture, sizes and the weights as far as the caller says */
    omm_digest run;   /* seed, data, start and what else decides; tells nothing about the seed */
} checkpoint_identity;
#define CHECKPOINT_IDENTITY_BYTES 64u

/* model = BLAKE2b(architecture, 32 bytes padded with zeros || dims as u32 || weights)
 * run = BLAKE2b(seed || data digest || learned tokens of the data u64 || start || more)
 * Of the same lines, one choice of what is learned is within another: equal counts are equal choices. */
checkpoint_identity checkpoint_identity_of(const omm_model *model, const omm_digest *weights,
                                           const omm_seed *seed, const omm_dataset *data,
                                           const omm_digest *start, omm_bytes more);
OMM_CHECKED omm_err checkpoint_put_identity(omm_buf *out, const checkpoint_identity *identity);
/* Errors: MISMATCH, naming what differs: the recipe, the model, or one of the rest. */
OMM_CHECKED omm_err checkpoint_check(omm_bytes recipe, omm_bytes identity, const omm_recipe *ours,
                                     const checkpoint_identity *our_identity);

/* Magic, version, least size and digest; content is all but the digest.  Errors: SIZE, FORMAT,
 * VERSION, DIGEST. */
OMM_CHECKED omm_err checkpoint_envelope(omm_bytes *content, omm_bytes in,
                                        const checkpoint_kind *kind);
bool checkpoint_all_finite(omm_bytes floats);

#endif
