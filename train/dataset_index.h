/* dataset_index.h - the index of a stream: written by dataset_stream.c, read by data_reader.c.
 *
 *   entry, 24 bytes:  place   offset of the line 40 | its bytes 24
 *                     shape   tokens 21 | learned 21 | window 20 | begins 1 | ends 1
 *                     client  number of its name
 *                     mark    first four bytes of the example's digest
 *
 * Whoever reads a line compares it with its entry, so a file that changes is noticed.
 */
#ifndef TRAIN_DATASET_INDEX_H
#define TRAIN_DATASET_INDEX_H

#include "dataset_internal.h"

typedef struct entry {
    uint64_t place, shape;
    uint32_t client, mark;
} entry;

struct stream {
    char *path;
    const omm_tokenizer *tokenizer;
    omm_dataset_options options; /* as decided by the first pass */
    file_identity identity;
    entry *entries;
    const char **names; /* by number */
    omm_digest digest;
};

static inline uint64_t entry_offset(const entry *e) {
    return e->place >> 24;
}

static inline size_t entry_bytes(const entry *e) {
    return (size_t)(e->place & 0xffffff);
}

static inline uint32_t entry_tokens(const entry *e) {
    return (uint32_t)(e->shape >> 43);
}

static inline uint32_t entry_learned(const entry *e) {
    return (uint32_t)(e->shape >> 22) & 0x1fffff;
}

static inline uint32_t entry_window(const entry *e) {
    return (uint32_t)(e->shape >> 2) & 0xfffff;
}

#endif
