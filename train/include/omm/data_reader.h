/* data_reader.h - the examples of a data set one after the other, wherever they are.
 *
 * From memory a reader hands out what is there.  From a stream it reads the line again, checks it
 * against the index, tokenises it, and keeps what fits into its cache.
 *
 *   take, take, ... (a batch) -> use -> release
 *
 * Depends on: base; dataset.h.  Threads: a reader belongs to one thread at a time; any number of
 * readers may share one data set.
 */
#ifndef OMM_DATA_READER_H
#define OMM_DATA_READER_H

#include "omm/dataset.h"

typedef struct omm_data_reader omm_data_reader;

/* Zeroed: as the data set was opened, with replies. */
typedef struct omm_data_reader_options {
    size_t
        cache_bytes_max; /* of a stream, instead of the data set's; 1: none.  Never what is read */
    bool no_replies;     /* of a stream: `reply` is NULL, what training needs is the rest */
} omm_data_reader_options;

/* What reading takes beside what was taken and not yet released; from memory: nothing.  The cache counts what
 * no_replies leaves. */
typedef struct omm_data_reader_room {
    uint64_t reading; /* a window over the file, one line of it as JSON and as tokens */
    uint64_t cache;   /* at most, and all that the examples could fill */
} omm_data_reader_room;
void omm_data_reader_room_of(omm_data_reader_room *out, const omm_dataset *data);

/* Borrows `data`; `options` may be NULL.  Errors: NOMEM, NOT_FOUND, IO, MISMATCH (the file is not the one
 * indexed). */
OMM_CHECKED omm_err omm_data_reader_open(omm_data_reader **out, const omm_dataset *data,
                                         const omm_data_reader_options *options);
void omm_data_reader_close(omm_data_reader *reader);

/* Example `index`; its pointers are valid until the next release.  Errors: NOMEM, TOO_BIG (over
 * 1 GiB taken), IO, MISMATCH (the line is not what was indexed: the file has changed); then what was
 * taken before stays valid. */
OMM_CHECKED omm_err omm_data_reader_take(omm_data_reader *reader, omm_example *out, size_t index);
void omm_data_reader_release(omm_data_reader *reader);

/* Tokens of an example, and how many of them are learned, when it is cut to seq_max; nothing is
 * read.  A stream knows no cut below its own: seq_max >= omm_dataset_seq_max(data), asserted. */
void omm_dataset_size(uint32_t *tokens, uint32_t *learned, const omm_dataset *data, size_t index,
                      uint32_t seq_max);
/* What no example is longer than. */
uint32_t omm_dataset_seq_max(const omm_dataset *data);

#endif
