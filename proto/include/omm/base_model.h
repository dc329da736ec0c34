/* base_model.h - which base model a coordinator's rounds are about, so that any source of it will do.
 *
 *   Request{base}  ->  Reply{base: Envelope(Base), context "omm.base.v1"}
 *
 * The file is cut into pieces of piece_chunks x OMM_CHUNK_BYTES, the last one shorter.  A piece is checked
 * by its digest as it comes, so whoever sends a wrong byte is found out within one piece.  A coordinator that
 * serves the file answers Request{get: digest of the piece, index of the chunk in it}.
 *
 * A model in several files (model-00001-of-00003.gguf and so on) is these one after the other: digest, size and
 * pieces are of that, and `parts` says where each file ends.  A mirror is the url of its first file.
 *
 * Depends on: base, messages.h.  Threads: no shared state.
 */
#ifndef OMM_BASE_MODEL_H
#define OMM_BASE_MODEL_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_BASE_PIECES_MAX 4096u
#define OMM_BASE_PIECE_CHUNKS_MAX 256u /* 64 MiB: 256 GiB in all */
#define OMM_BASE_MIRRORS_MAX 8u
#define OMM_BASE_PARTS_MAX 128u /* all of them are open at once */
#define OMM_MIRROR_BYTES_MAX 255u

typedef struct omm_base_model {
    omm_digest digest; /* BLAKE2b-256 of the file, or files: base_digest of the offers */
    uint64_t size;
    uint32_t piece_chunks;    /* 1 .. OMM_BASE_PIECE_CHUNKS_MAX */
    const omm_digest *pieces; /* (piece_count) BLAKE2b-256 of each */
    size_t piece_count;
    const char *const *mirrors; /* (mirror_count) that omm_mirror_check accepts */
    size_t mirror_count;
    const uint64_t *parts; /* (part_count) bytes of each file, 1 at least, `size` in all */
    size_t part_count;     /* 0: it is one file; or 2 .. OMM_BASE_PARTS_MAX */
} omm_base_model;

/* Bytes of a whole piece; the smallest piece that covers `size` within OMM_BASE_PIECES_MAX, in chunks, or 0
 * where none does. */
uint64_t omm_base_piece_bytes(uint32_t piece_chunks);
uint32_t omm_base_piece_chunks_for(uint64_t size);
/* Bytes of piece `index`; 0 past the end. */
uint64_t omm_base_piece_size(const omm_base_model *base, size_t index);

/* http:// or https://, a host, printable ASCII without blanks, without a user and with nothing after '#'.
 * Errors: CONFIG, naming what is accepted. */
OMM_CHECKED omm_err omm_mirror_check(const char *url);

/* The url of file `part` (from 0) of `count`, where `url` is that of the first and, but for a query behind it, ends
 * in -00001-of-COUNT.gguf.  Errors: CONFIG (it does not). */
OMM_CHECKED omm_err omm_mirror_part(char out[OMM_MIRROR_BYTES_MAX + 1], const char *url,
                                    size_t part, size_t count);

/* As the other payloads of messages.h, with the same errors. */
OMM_CHECKED omm_err omm_base_model_encode(omm_buf *out, const omm_base_model *base);
OMM_CHECKED omm_err omm_base_model_decode(omm_base_model *out, omm_bytes in, omm_arena *arena);

#endif
