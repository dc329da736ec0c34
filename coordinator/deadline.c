/* deadline.c - owns when an open round runs out: deadline_ms after it opened, and so much later as what nodes gave could not be kept.
 *
 *   opened ------------x----x----x------------------> runs out
 *                      |<------->|                    between failures less than COORD_FAILING_MS apart: does not count
 *                                |<--------------->|  COORD_FAILING_MS: never before, so that who was put off can come again
 *
 * That a store works again is seen by nothing but that no call fails any more: where a payload has no room, a
 * smaller row may have it.  The end of the round, which has to be written too, is such a call.
 */
#include "internal.h"

static uint64_t after(uint64_t since_ms, uint64_t duration_ms) {
    return duration_ms > OMM_COORD_NEVER - since_ms ? OMM_COORD_NEVER : since_ms + duration_ms;
}

uint64_t coord_deadline_ms(const omm_coord *c) {
    const uint64_t due_ms = after(c->since_ms, c->o.policy.deadline_ms);
    const uint64_t again_ms = c->has_failed ? after(c->failed_ms, COORD_FAILING_MS) : 0;
    return due_ms > again_ms ? due_ms : again_ms;
}

void coord_deadline_begin(omm_coord *c, uint64_t now_ms) {
    c->since_ms = now_ms;
    c->has_failed = c->failing_told = false;
    c->waited_ms = 0;
}

void coord_deadline_spare(omm_coord *c, uint64_t now_ms) {
    c->has_failed = true;
    c->failed_ms = now_ms;
}

void coord_deadline_failed(omm_coord *c, uint64_t now_ms, omm_err err) {
    if (c->state != OMM_COORD_OPEN) return;
    if (err == OMM_OK || err == OMM_ERR_NOMEM || err == OMM_ERR_STATE) return; /* of no disk */
    const bool goes_on = c->has_failed && now_ms - c->failed_ms < COORD_FAILING_MS;
    if (!goes_on) c->failing_told = false;
    const uint64_t passed_ms = goes_on ? now_ms - c->failed_ms : 0;
    const uint64_t offered_ms = after(c->since_ms - c->waited_ms, c->o.policy.deadline_ms);
    /* What can never be kept, as where one file is damaged, keeps no round open for ever. */
    if (now_ms >= after(offered_ms, COORD_FAILING_MS_MAX)) return;
    coord_deadline_spare(c, now_ms);
    c->since_ms += passed_ms;
    c->waited_ms += passed_ms;
    /* Not by goes_on: a start spares a round before anything has failed. */
    if (c->failing_told) return;
    c->failing_told = true;
    omm_log_event(c->o.log, OMM_LOG_WARN, "deadline_waits", OMM_LOG_INT("round", c->round),
                  OMM_LOG_STR("detail", omm_err_sentence()),
                  OMM_LOG_STR("then", "time in which nothing can be kept does not count for the "
                                      "round; nodes are asked to come again"));
}
