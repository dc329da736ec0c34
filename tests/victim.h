/* victim.h - a node of a federation (federation.h) whose coordinator is the test: it has the pinned key, gives the honest
 * offer of a real coordinator, and says the rest itself.
 */
#ifndef TESTS_VICTIM_H
#define TESTS_VICTIM_H

#include "peer.h"

typedef struct victim {
    peer p; /* its coordinator gives one honest offer; the test says the rest */
    omm_node *node;
    omm_node_action action;
    omm_buf offer; /* the honest envelope */
    char dir[OMM_PATH_MAX];
    uint64_t now_ms;
} victim;

/* Of one round, with an offer that waits for it. */
void victim_open(victim *v);
void victim_open_as(victim *v, bool whole);
void victim_open_with(victim *v, const fed_options *options);
/* What the others use, to be changed for it. */
fed_options victim_fed_options(void);
void victim_close(victim *v);
/* For victim_reopen_as; the state folder is its own. */
omm_node_options victim_options(victim *v, const omm_node_limits *limits);
/* The node again, from its folder. */
void victim_reopen_as(victim *v, const omm_node_options *options);
void victim_reopen(victim *v, const omm_node_limits *limits);

/* ---- it is told ---- */

void victim_step(victim *v, omm_node_event_kind kind, omm_bytes reply);
/* Let time pass until it wants to send or work. */
void victim_until_active(victim *v);
/* What it asks for then. */
omm_request_kind victim_asked(victim *v);
void victim_answer(victim *v, const omm_reply *reply);
/* The offer, changed and signed. */
void victim_offer_signed(victim *v, void (*change)(omm_offer *offer), omm_context context,
                         const omm_key *key);
void victim_offer(victim *v, void (*change)(omm_offer *offer), const omm_key *key);
void victim_offer_honest(victim *v);
/* The global adapter, from the real coordinator: what it asks for next; all. */
void victim_give_chunk(victim *v);
void victim_give_chunks(victim *v);
/* It trains, and has a submission to send. */
void victim_work(victim *v);
/* For what the node has just sent: the test may change it before it is signed. */
omm_receipt victim_receipt(victim *v, omm_err reason);
void victim_answer_receipt_as(victim *v, const omm_receipt *receipt, omm_context context,
                              const omm_key *key);
void victim_answer_receipt(victim *v, const omm_receipt *receipt, const omm_key *key);
void victim_refuse(victim *v);
/* Its poll: this run is over. */
void victim_answer_close(victim *v, const char *run_id, omm_context context, const omm_key *key);

/* ---- it says ---- */

/* What it has just sent. */
omm_submission victim_submission(victim *v);
omm_poll victim_poll(victim *v);
/* Of the declined offers that its owner reads, the newest first: how often, and NULL or why. */
int64_t victim_declined(victim *v, size_t index, const char *why);
/* Of each of a list of its history ("rounds", "canaries") its owner reads that it was sent, and this verdict (NULL: any). */
void victim_check_sent(victim *v, const char *list, size_t count, const char *verdict);

#endif
