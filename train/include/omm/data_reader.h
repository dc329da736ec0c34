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

/* Borrows `data`.  Errors: NOMEM, NOT_FOUND, IO, MISMATCH (the file is not the one indexed). */
OMM_CHECKED omm_err omm_data_reader_open(omm_data_reader **out, const omm_dataset *data);
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
