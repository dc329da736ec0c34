/* base_store.h - private to node: a base model that comes piece by piece, on the disk.
 *
 *   open (what is there is read and checked) --put ... put--> whole --finish--> DIGEST.gguf
 *
 *   FOLDER/DIGEST.part    0600, right up to `at` rounded down to pieces; locked while it is open
 *   FOLDER/DIGEST.gguf    whole and right
 *
 *   FOLDER/manifest.env   what the coordinator has signed of it, as it came
 *
 * Of a model in several files each has its own: DIGEST-00001-of-00003.part, and .gguf.  Bytes are counted over all
 * of them, one after the other; the first gets its name last.
 *
 * Depends on: base, proto.  Threads: one at a time.
 */
#ifndef OMM_NODE_BASE_STORE_H
#define OMM_NODE_BASE_STORE_H

#include "omm/base_model.h"
#include "omm/file.h"

typedef struct base_store {
    const omm_base_model *base;     /* borrowed */
    int fds[OMM_BASE_PARTS_MAX];    /* of each file; -1: not open */
    uint64_t at;                    /* bytes that are here, of them right: all whole pieces */
    size_t piece;                   /* that is being filled */
    omm_hasher hash;                /* of it */
    omm_hasher whole, whole_before; /* of all, and of all before this piece */
    char folder[OMM_PATH_MAX], part[OMM_PATH_MAX], path[OMM_PATH_MAX]; /* of the first file */
} base_store;

/* Files of the model. */
static inline size_t base_store_files(const omm_base_model *base) {
    return base->part_count ? base->part_count : 1;
}
static inline uint64_t base_store_file_bytes(const omm_base_model *base, size_t file) {
    return base->part_count ? base->parts[file] : base->size;
}
/* The name that file `file` (from 0) of the model will have.  Errors: TOO_BIG. */
OMM_CHECKED omm_err base_store_path(char out[OMM_PATH_MAX], const char *folder,
                                    const omm_base_model *base, size_t file);
/* The file that byte `at` (under the model's size) is in, and of which of its own bytes it is. */
size_t base_store_file_at(uint64_t *offset, const omm_base_model *base, uint64_t at);
/* Makes the folder, removes parts of other models, keeps the right pieces of this one.
 * Errors: REFUSED_SIZE (the disk has less room), STATE (open elsewhere), IO, TOO_BIG. */
OMM_CHECKED omm_err base_store_open(base_store *s, const char *folder, const omm_base_model *base);
void base_store_close(base_store *s);
/* More bytes, at s->at.  Errors: REFUSED_DIGEST (this piece is wrong, and gone again), REFUSED_SIZE (more than
 * there is of the model), IO (which file has no room; the bytes up to s->at are there, and the next put goes on). */
OMM_CHECKED omm_err base_store_put(base_store *s, omm_bytes bytes);
/* Leave the unfinished piece: the next bytes are its first. */
void base_store_rewind(base_store *s);
static inline bool base_store_is_whole(const base_store *s) {
    return s->at == s->base->size;
}
/* Everything to the disk and under its name; other models of the folder are removed.
 * Errors: REFUSED_DIGEST (the pieces are not the model that the manifest names: it is removed), IO (after an fsync
 * that failed omm_sync_check fails, and no file has got its name that may lack bytes). */
OMM_CHECKED omm_err base_store_finish(base_store *s);

/* What the coordinator has signed of its base model: kept durably, in place of the one before; read.
 * Errors: IO, TOO_BIG; of the latter NOT_FOUND, too. */
OMM_CHECKED omm_err base_store_put_manifest(const char *folder, omm_bytes envelope);
OMM_CHECKED omm_err base_store_get_manifest(omm_buf *out, const char *folder);

#endif
