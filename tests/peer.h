/* peer.h - one node of a federation (federation.h) played by the test itself, with the node's real key:
 * it says what it wants, when it wants.
 */
#ifndef TESTS_PEER_H
#define TESTS_PEER_H

#include "federation.h"

#include "omm/envelope.h"
#include "omm/messages.h"

#define PEER 2u /* the node whose key the test uses itself */

typedef struct peer {
    fed f;
    omm_arena arena;
    omm_buf reply;
    omm_reply last;
    omm_offer offer;
    omm_digest offer_digest;
    uint64_t counter;
    const char *sentence; /* of the last verdict that was asked for; until the next message */
    /* what is sent */
    omm_submission s;
    omm_buf payload;
    omm_buf envelope;
} peer;

/* One round, nothing lost, the peer silent unless the test speaks. */
fed_options peer_options(void);
void peer_open(peer *p, const fed_options *options);
void peer_close(peer *p);
/* The reply is in p->last. */
void peer_send(peer *p, const omm_request *request);
void peer_poll(peer *p); /* where its counter is too low once more, as a node does */
void peer_poll_as(peer *p, uint32_t node);                /* once, with the key of any node */
void peer_poll_with(peer *p, omm_poll *poll, bool whole); /* its counter is set */
void peer_pass_over(peer *p); /* a poll that comes while a tick is under way */
void peer_take_offer(peer *p);
/* Let the honest ones go on until the round is open, then take the offer. */
void peer_until_open(peer *p, uint32_t round);
/* Encode `values` (nearly zeros when NULL) and describe an honest submission of them in p->s. */
void peer_fill(peer *p, const float *values);
/* Replace the payload bytes and everything that names them. */
void peer_set_payload(peer *p, omm_bytes sent);
/* Sign p->s into p->envelope; announce it; send one chunk; send what is missing. */
void peer_seal(peer *p, omm_context context, const omm_key *key);
void peer_submit(peer *p);
void peer_put(peer *p, uint32_t index);
void peer_upload(peer *p);
/* The three of them, with the node's own key. */
void peer_give(peer *p);
/* What the reply says: the reason, from a receipt or a refusal. */
omm_err peer_reason_of(peer *p, bool *receipt);
omm_round_record peer_last_round(peer *p);

/* What the coordinator says in its log (fed_options.log) of one event. */
typedef struct listener {
    const char *event;
    omm_fake_clock clock;
    omm_log log;
    uint32_t lines, warnings; /* how often; and those at level WARN or above */
    char last[1024];
} listener;
void listener_open(listener *l, const char *event);

#endif
