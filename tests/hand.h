/* hand.h - a candidate, or a node of a federation (federation.h), played by the test: what it asks for and answers
 * where canaries are offered, step by step.  Any number of them at a time.
 */
#ifndef TESTS_HAND_H
#define TESTS_HAND_H

#include "federation.h"

#include "omm/envelope.h"
#include "omm/messages.h"

typedef struct hand {
    fed *f;
    omm_key key;
    uint64_t counter; /* of its last poll */
    omm_arena arena;
    omm_buf reply;
    omm_reply said; /* the last answer */
    omm_offer offer;
    omm_digest offer_digest;
    omm_submission s;          /* what is sent; the test may change it */
    omm_buf payload, envelope; /* of it */
    bool whole;                /* it takes small adapters with the offer */
} hand;

/* A stranger with a key of its own, one for each number. */
void hand_open(hand *h, fed *f, uint64_t number);
/* With the key of node `node` of the federation. */
void hand_open_node(hand *h, fed *f, uint32_t node);
void hand_close(hand *h);
/* It asks to be let in, and works if it is told to. */
omm_reply_kind hand_enrol(hand *h);
omm_reply_kind hand_enrol_by(hand *h, const omm_seed *token); /* with an invitation */
/* Takes the offer if there is one; where its counter is too low it goes on above, as a node does. */
omm_reply_kind hand_poll(hand *h);
/* What an honest node answers to a canary: s and payload. */
void hand_train(hand *h);
omm_reply_kind hand_submit(hand *h);
omm_reply_kind hand_submit_whole(hand *h,
                                 omm_bytes whole); /* with the payload, or what is said to be it */
omm_reply_kind hand_submit_forged(hand *h);        /* one bit of the signature is another */
omm_reply_kind hand_put(hand *h);                  /* the payload's only chunk */
omm_reply_kind hand_put_chunk(hand *h, uint32_t index);
/* The reason of the refusal that it was answered. */
omm_err hand_refused(hand *h, omm_reply_kind kind);
/* The verdict in the receipt; STATE: there is none yet. */
omm_err hand_verdict(hand *h);
/* Enrolled, with an offer, and its honest answer ready. */
void hand_begin(hand *h, fed *f, uint64_t number);
/* The whole answer, into the queue. */
void hand_give(hand *h);

#endif
