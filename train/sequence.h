/* sequence.h - which examples a step trains on: an endless run of shuffled epochs, cut into batches.
 *
 * Epoch k is a seeded shuffle of the examples that have something to learn within seq_max tokens; a
 * batch takes the next of them while their tokens fit.  The order depends on the seed and the
 * number of examples alone, so a stream and a data set in memory train alike.
 * Inside train only.  Threads: one at a time.
 */
#ifndef TRAIN_SEQUENCE_H
#define TRAIN_SEQUENCE_H

#include "omm/data_reader.h"
#include "omm/dataset.h"
#include "omm/err.h"
#include "omm/rng.h"

typedef struct sequence_options {
    const omm_dataset *data; /* borrowed */
    omm_seed seed;
    uint32_t lane;    /* of the shuffle: the recipe's seed_lane */
    uint32_t seq_max; /* examples are cut to this */
    uint32_t batch_tokens;
    size_t cache_bytes_max; /* of a stream's reader: as omm_data_reader_options */
    bool listed; /* one text of omm/documents.h after the other, instead of all in one shuffle */
} sequence_options;

typedef struct sequence {
    sequence_options options;
    omm_data_reader *reader;
    uint32_t *kept;  /* (count) indices of the examples in the data set */
    uint32_t *order; /* (count) of the epoch `epoch`, places in `kept` */
    uint32_t *drawn; /* (count) listed: the shuffle that `order` is sorted from */
    uint64_t epoch;
    size_t count, batch_max;
    size_t longest;            /* tokens of the longest */
    omm_example *examples;     /* (batch_max) the batch at hand, cut */
    const omm_example **batch; /* (batch_max) pointers to them */
} sequence;

/* Errors: NOMEM, NOT_FOUND (nothing to learn within seq_max), CONFIG (a stream that was not cut to
 * seq_max), those of a reader.  Close it also after an error. */
OMM_CHECKED omm_err sequence_open(sequence *s, const sequence_options *options);
void sequence_close(sequence *s);
/* What an open one takes beside its reader, with the batch that was taken from a stream. */
uint64_t sequence_bytes(const sequence *s);

/* s->batch[*count]: examples from `position` on (epoch * count + place) while their tokens fit, at
 * least one, at most as many as there are; valid until the next call.  Errors: those of a reader. */
OMM_CHECKED omm_err sequence_take(sequence *s, size_t *count, uint64_t *tokens, uint64_t *learned,
                                  uint64_t position);

#endif
