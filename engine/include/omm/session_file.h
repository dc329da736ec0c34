/* session_file.h - a session's tokens and cache in a file, to go on from later.
 *
 *   "OMMSESS1" | u32 version = 2 | u32 cache type | u32 activations (0 f32, 2 q8; + 256: keys are
 *   turned by longrope's long factors) | u32 layers | u32 kv_heads | u32 head_dim | u32 position
 *   | u32 note bytes | model digest [32] | adapters' digest [32]
 *   | u32 ids[position] | blocks: for each layer, for each 64 positions: u32 present (0 or 1), block bytes
 *   | note | BLAKE2b-256 of all before
 *   Little-endian; blocks as in kv.h, positions beyond `position` zero.  Only blocks that a window has
 *   passed may be absent.  The note is whoever's who writes the file: what belongs to the sequence and
 *   is not in its tokens.
 *
 * Loading checks the size that the header implies, then the digest over all, and only then takes
 * memory; a file of another model, other adapters, cache type or activations (1: q8 before decision 205)
 * is refused, and with
 * longrope one of a session on the other side of the original context.  What was computed on one
 * instruction set continues on any other to the same bytes.
 *
 * Depends on: session, hash, file.  Threads: those of the session.
 */
#ifndef OMM_SESSION_FILE_H
#define OMM_SESSION_FILE_H

#include "omm/hash.h"
#include "omm/session.h"

#define OMM_SESSION_NOTE_MAX (16u << 20)

/* Atomically.  `model` names the model's contents; the caller knows its file.  note: may be empty.
 * Errors: IO, NOMEM, TOO_BIG (path, note). */
OMM_CHECKED omm_err omm_session_save(const omm_session *session, const char *path,
                                     const omm_digest *model, omm_bytes note);
/* Replace what the session holds.  On error nothing has changed, except that after NOMEM or TOO_BIG
 * (the group's cache is full) the session is empty.
 * note: the file's is appended to it; NULL: the file must have none.
 * Errors: NOT_FOUND, IO, FORMAT, VERSION, SIZE, DIGEST (damaged), MISMATCH (another model, adapters,
 * cache type, activations, factors of longrope; a note, or none, where the other was expected),
 * TOO_BIG (more positions than the session can hold), NOMEM. */
OMM_CHECKED omm_err omm_session_load(omm_session *session, const char *path,
                                     const omm_digest *model, omm_buf *note);
/* The cache type of such a file, from its first bytes alone.  Errors: NOT_FOUND, IO, FORMAT (no session
 * file, or an unknown type), SIZE (it ends within them), VERSION. */
OMM_CHECKED omm_err omm_session_file_kv(omm_kv_type *out, const char *path);
/* The same as load from memory; `name` is for messages. */
OMM_CHECKED omm_err omm_session_load_bytes(omm_session *session, omm_bytes file, const char *name,
                                           const omm_digest *model, omm_buf *note);

#endif
