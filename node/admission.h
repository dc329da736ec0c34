/* admission.h - private to node: what it shows to be let in, and what it makes of the answer.
 *
 *   Enrol --> wait 0: it is in;  challenge: it may work for it;  refused: it is not let in, and why;  wait: not now
 *
 * Whoever is in already may ask as well and is told so.  Unlike a poll it makes no node ready, so it can be asked before
 * there is a model: a round does not wait for whoever has asked.
 *
 * Depends on: proto, node.h.  Threads: no shared state.
 */
#ifndef OMM_NODE_ADMISSION_H
#define OMM_NODE_ADMISSION_H

#include "omm/messages.h"
#include "omm/node.h"

/* Work that was done for a challenge. */
typedef struct admission_proof {
    omm_digest challenge;
    uint64_t work;
} admission_proof;

/* The envelope of an Enrol: with the node's invitation, else with the proof; NULL: with nothing.  Errors: NOMEM. */
OMM_CHECKED omm_err admission_seal(omm_buf *envelope, const omm_node_options *node,
                                   const admission_proof *proof);
/* What a challenge asks for.  Errors: REFUSED_* (not this coordinator's, or over the owner's limit), NOMEM. */
OMM_CHECKED omm_err admission_open(omm_digest *challenge, uint32_t *bits,
                                   const omm_node_options *node, omm_bytes envelope);
typedef enum admission_answer {
    ADMISSION_IN, /* it is in, or may work for it; or the coordinator does not know the question */
    ADMISSION_REFUSED, /* the error says why */
    ADMISSION_LATER,   /* it does not answer anybody now: ask again after reply->retry_ms */
} admission_answer;

/* Errors: those of refusals and of admission_open. */
OMM_CHECKED omm_err admission_read(admission_answer *out, const omm_node_options *node,
                                   const omm_reply *reply);

#endif
