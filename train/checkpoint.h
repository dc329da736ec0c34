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

/* Of what an identity is made, each with a mark by which it is said what differs. */
typedef enum checkpoint_part {
    CHECKPOINT_ARCHITECTURE,
    CHECKPOINT_SIZES,
    CHECKPOINT_WEIGHTS,
    CHECKPOINT_SEED,
    CHECKPOINT_DATA,
    CHECKPOINT_LEARNED,
    CHECKPOINT_START,
    CHECKPOINT_MORE,
    CHECKPOINT_PARTS
} checkpoint_part;

/* A kind: "magic | version u32 | ... | BLAKE2b-256 of all before". */
typedef struct checkpoint_kind {
    uint8_t magic[4];
    uint32_t version_min, version; /* that are read, and that is written */
    size_t bytes_min;              /* with the digest */
    const char *name;              /* "a checkpoint of ..." */
    const char *start, *more;      /* what these of its identity are: "another ...", "other ..." */
    uint32_t
        behind[CHECKPOINT_PARTS]; /* 1 << a part, of those that this one is drawn or counted from */
} checkpoint_kind;

/* What a checkpoint must have in common with the run that goes on with it. */
typedef struct checkpoint_identity {
    omm_digest model; /* architecture, sizes and the weights as far as the caller says */
    omm_digest run;   /* seed, data, start and what else decides; tells nothing about the seed */
    uint64_t marks[CHECKPOINT_PARTS]; /* of its parts: for messages alone, the two digests decide */
} checkpoint_identity;
#define CHECKPOINT_IDENTITY_BYTES 64u /* the digests */
#define CHECKPOINT_MARKS_BYTES 64u    /* the marks, from version 4 on */
_Static_assert(CHECKPOINT_MARKS_BYTES == 8u * CHECKPOINT_PARTS, "a u64 a part");

/* model = BLAKE2b(architecture, 32 bytes padded with zeros || dims as u32 || weights)
 * run = BLAKE2b(seed || data digest || learned tokens of the data u64 || start || more)
 * a mark = the first 8 bytes of BLAKE2b("omm.checkpoint" || number of the part u32 || the part's bytes in these)
 * Of the same lines, one choice of what is learned is within another: equal counts are equal choices. */
checkpoint_identity checkpoint_identity_of(const omm_model *model, const omm_digest *weights,
                                           const omm_seed *seed, const omm_dataset *data,
                                           const omm_digest *start, omm_bytes more);

/* Magic, version, least size and digest; content is all but the digest.  Errors: SIZE, FORMAT,
 * VERSION, DIGEST. */
OMM_CHECKED omm_err checkpoint_envelope(omm_bytes *content, omm_bytes in,
                                        const checkpoint_kind *kind);
bool checkpoint_all_finite(omm_bytes floats);

/* ---- the head of a trainer's checkpoint -------------------------------------------------------
 *
 *   magic 4 | version u32 | recipe (omm_recipe_bytes) | identity 64 | marks u64[8], not in version 3 | step u32 |
 *   position u64 | tokens u64 | learned u64 | value_count u64 | losses f32[step] */

/* Without recipe, marks and losses. */
#define CHECKPOINT_FIXED_BYTES (4u + 4u + CHECKPOINT_IDENTITY_BYTES + 4u + 4u * 8u)

/* The run that a checkpoint is of. */
typedef struct checkpoint_run {
    const checkpoint_kind *kind;
    const omm_recipe *recipe;
    const checkpoint_identity *identity;
    const checkpoint_identity *before; /* what one of a version before the kind's has */
    uint64_t value_count;
} checkpoint_run;

typedef struct checkpoint_head {
    uint32_t step;
    uint64_t position, tokens, learned;
    omm_bytes losses; /* f32[step], borrowed */
    bool has_marks;   /* as what is written has: what is read may be of a version before them */
} checkpoint_head;

/* Of one that is written. */
size_t checkpoint_head_bytes(const omm_recipe *recipe, uint32_t step);
OMM_CHECKED omm_err checkpoint_put_head(omm_buf *out, const checkpoint_run *run,
                                        const checkpoint_head *head);
/* `rest` is behind the losses, or has failed where `in` is too short for them: check the size next.
 * Errors: those of checkpoint_envelope; MISMATCH, naming what differs, of a version without marks not which of seed, data, start
 * and so on; FORMAT (contradicts itself). */
OMM_CHECKED omm_err checkpoint_take_head(checkpoint_head *head, omm_reader *rest, omm_bytes in,
                                         const checkpoint_run *run);
/* bytes: of one that is written.  Errors: SIZE. */
OMM_CHECKED omm_err checkpoint_check_size(omm_bytes in, const checkpoint_head *head, size_t bytes);

#endif
