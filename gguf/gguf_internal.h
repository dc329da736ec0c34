/* gguf_internal.h - what the GGUF reader, getters and writer share. */
#ifndef GGUF_GGUF_INTERNAL_H
#define GGUF_GGUF_INTERNAL_H

#include "omm/gguf.h"

#define GGUF_MAGIC 0x46554747u /* "GGUF", little-endian */
#define GGUF_VERSION 3u        /* what is written */
#define GGUF_VERSION_MIN 2u    /* the same layout; version 3 came with big-endian files */
#define GGUF_ALIGNMENT 32u     /* when general.alignment is absent */

/* Refuse an element type that omm_ggml_find does not have: by its name, with the list of those that it has.
 * Errors: UNSUPPORTED, always. */
OMM_CHECKED omm_err ggml_refuse(uint32_t type);

/* omm_gguf_tensor_bytes, with the tensor's name in the refusal. */
OMM_CHECKED omm_err gguf_named_bytes(uint64_t *out, const char *name, uint32_t type,
                                     uint32_t n_dims, const uint64_t *dims);

/* Bytes of one value of a fixed-size kind; 0 for STRING and ARRAY. */
uint32_t gguf_kind_bytes(omm_gguf_kind kind);

/* memcmp order, shorter first on a tie. */
int gguf_compare(omm_bytes a, omm_bytes b);

/* A key of the file, or NULL. */
const omm_gguf_kv *gguf_find_kv(const omm_gguf *gguf, omm_bytes wanted);

/* Sort tensor_order by name.  Errors: FORMAT (a name twice). */
OMM_CHECKED omm_err gguf_index_tensors(omm_gguf *gguf);

/* Are the quantised tensors, if there are any, of blocks that we know?  Errors: VERSION, FORMAT (the key is no number). */
OMM_CHECKED omm_err gguf_check_blocks(const omm_gguf *gguf);

/* One file by path, whatever its split keys say.  Errors: as omm_gguf_open. */
OMM_CHECKED omm_err gguf_open_file(omm_gguf *gguf, const char *path);

/* All parts of the model of which `opened` is the file at `path`; that stays open.
 * Errors: as omm_gguf_open. */
OMM_CHECKED omm_err gguf_open_split(omm_gguf *out, const char *path, const omm_gguf *opened);

/* For printf's "%.*s": a key may be 64 KiB long. */
static inline int gguf_shown(omm_bytes text) {
    return text.size < 100 ? (int)text.size : 100;
}

/* Round up to a multiple of a power of two.  v < 2^63. */
static inline uint64_t gguf_pad(uint64_t v, uint64_t alignment) {
    return (v + alignment - 1) & ~(alignment - 1);
}

#endif
