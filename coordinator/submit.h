/* submit.h - between answer.c, submit.c and upload.c: one submission, from its announcement to its verdict.
 *
 *   submit --manifest is fine--> announced --all chunks are there--> accepted | refused       (settled)
 *      \--refused: settled, or a record that settles nothing
 *
 * Depends on: internal.h.  Threads: of whoever has the state machine.
 */
#ifndef COORDINATOR_SUBMIT_H
#define COORDINATOR_SUBMIT_H

#include "internal.h"

#define SENTENCE_SIZE (OMM_SENTENCE_BYTES_MAX + 1)
#define IN_QUARANTINE "round: node is in quarantine"

/* ---- submit.c ---- */
/* request: SUBMIT, with its payload or without.
 * Errors: REFUSED_DIGEST (the payload that came with it is another; nothing was remembered), our own. */
OMM_CHECKED omm_err coord_submit_answer(omm_buf *reply, omm_coord *c, const omm_request *request,
                                        omm_arena *arena);

/* ---- upload.c ---- */
/* The node starts over: what was announced before it, and its chunks, are forgotten. */
OMM_CHECKED omm_err coord_upload_replace(omm_coord *c, uint32_t node);
/* Answer what is missing, or the verdict when nothing is.  whole: the payload, as the manifest has it; empty
 * where it did not come with it. */
OMM_CHECKED omm_err coord_upload_go_on(omm_buf *reply, omm_coord *c, uint32_t node,
                                       omm_bytes whole);
/* Is `whole`, where there is any, the one chunk of `payload`?  Errors: REFUSED_DIGEST. */
OMM_CHECKED omm_err coord_upload_check_whole(const omm_blob *payload, omm_bytes whole);
/* Errors: REFUSED_DIGEST (nobody announced it), our own. */
OMM_CHECKED omm_err coord_upload_put(omm_buf *reply, omm_coord *c, const omm_request *request,
                                     omm_arena *arena);

#endif
