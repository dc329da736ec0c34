/* declined.c - owns what nodes say of why they give nothing to the round: noted from their polls, told to the operator.
 *
 * In memory alone: evidence does not depend on it, and who declines says so again within seconds of a restart.  But for a
 * dry run, which says it once, before it trains for as long as that takes, and alone of all reasons changes what the
 * coordinator does: that is in the database too.  A round does not wait for such a node where it
 *   has enough: it ends;
 *   has not, and waits for nobody else, while others that are enough for a round wait: it makes way for the next one.
 * With nobody to make way for it stays open up to its deadline, so that what the dry run has made may still come: rounds
 * do not open and end for as long as a dry run is alone.  A node's word makes one round at most give way in deadline_ms,
 * as its silence would: who lies uses up no more rounds.
 */
#include "declined.h"

#include "internal.h"

#include <stdio.h>

#define LOGGED_MAX 64u     /* per round, of all nodes; what is more goes on at DEBUG */
#define LOGGED_NODE_MAX 2u /* of each, whatever it makes up */
#define ASKED_POLLS 10u    /* who has not asked for so many polls' time does not wait any more */

bool declined_lasts(uint32_t declined) {
    return declined != OMM_DECLINED_NOTHING && declined != OMM_DECLINED_PAUSED;
}

void declined_add(declined_counts *counts, uint32_t declined) {
    if (declined != OMM_DECLINED_NOTHING) counts->of[omm_declined_kind(declined)]++;
}

void declined_list(char out[DECLINED_LIST_SIZE], const declined_counts *counts) {
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 1; i <= OMM_DECLINED_OTHER; i++) {
        if (counts->of[i] == 0) continue;
        const int n = snprintf(out + used, DECLINED_LIST_SIZE - used, "%s%s %u", used ? ", " : "",
                               omm_declined_word((omm_declined)i), counts->of[i]);
        if (n > 0 && (size_t)n < DECLINED_LIST_SIZE - used) used += (size_t)n;
    }
}

/* ---- the round's ---- */

void coord_declined_begin(omm_coord *c) {
    c->declined_logged = 0;
    c->declined_told = c->has_dry = false;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        c->nodes[i].declined = OMM_DECLINED_NOTHING;
        c->nodes[i].declined_logged = 0;
        c->nodes[i].asked_ms = 0;
    }
}

void coord_declined_list(char out[DECLINED_LIST_SIZE], const omm_coord *c) {
    declined_counts counts = {0};
    for (size_t i = 0; i < c->o.run->node_count; i++) declined_add(&counts, c->nodes[i].declined);
    declined_list(out, &counts);
}

/* ---- dry runs ---- */

static bool is_dry(const coord_node *n) {
    return n->selected && !n->settled && !n->quarantined && !n->upload.active &&
           n->declined == OMM_DECLINED_DRY;
}

uint32_t coord_declined_dry(const omm_coord *c) {
    uint32_t count = 0;
    for (size_t i = 0; c->has_dry && i < c->o.run->node_count; i++) count += is_dry(&c->nodes[i]);
    return count;
}

void coord_declined_asks(omm_coord *c, uint32_t node, uint64_t now_ms) {
    if (c->state == OMM_COORD_OPEN) c->nodes[node].asked_ms = now_ms;
}

/* The next round would be theirs. */
static uint32_t count_waiting(const omm_coord *c, uint64_t now_ms) {
    const uint64_t patience_ms = ASKED_POLLS * (uint64_t)c->o.policy.poll_ms;
    uint32_t count = 0;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        const coord_node *n = &c->nodes[i];
        count +=
            n->counts && !n->quarantined && n->asked_ms > 0 && now_ms - n->asked_ms <= patience_ms;
    }
    return count;
}

static bool may_open_next(const omm_coord *c) {
    return c->round + 1 < c->o.run->rounds && !c->paused && !c->draining && !c->o.policy.is_timed;
}

bool coord_declined_makes_way(const omm_coord *c, uint64_t now_ms) {
    const uint32_t needed = c->o.policy.accept_min;
    uint32_t dry = 0;
    if (!c->has_dry || c->accepted_count >= needed || !may_open_next(c)) return false;
    for (size_t i = 0; i < c->o.run->node_count; i++)
        dry += is_dry(&c->nodes[i]) && now_ms >= c->nodes[i].dry_until_ms;
    return dry > 0 && coord_round_done(c) + dry >= c->selected_count &&
           count_waiting(c, now_ms) >= needed;
}

void coord_declined_made_way(omm_coord *c, uint64_t until_ms) {
    for (size_t i = 0; i < c->o.run->node_count; i++)
        if (is_dry(&c->nodes[i])) c->nodes[i].dry_until_ms = until_ms;
}

/* ---- what is said ---- */

static omm_log_level level_of(omm_coord *c, coord_node *n) {
    if (n->declined_logged >= LOGGED_NODE_MAX || c->declined_logged >= LOGGED_MAX)
        return OMM_LOG_DEBUG;
    n->declined_logged++;
    c->declined_logged++;
    return OMM_LOG_INFO;
}

/* Nodes of which something has come, or may come yet. */
static uint32_t still_possible(const omm_coord *c) {
    uint32_t count = c->accepted_count;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        const coord_node *n = &c->nodes[i];
        count += n->selected && !n->settled && !n->quarantined && !declined_lasts(n->declined);
    }
    return count;
}

static void tell_hopeless(omm_coord *c) {
    char reasons[DECLINED_LIST_SIZE];
    if (c->declined_told || still_possible(c) >= c->o.policy.accept_min) return;
    c->declined_told = true;
    coord_declined_list(reasons, c);
    omm_log_event(c->o.log, OMM_LOG_WARN, "round_declined", OMM_LOG_INT("round", c->round),
                  OMM_LOG_INT("selected", c->selected_count),
                  OMM_LOG_INT("accept_min", c->o.policy.accept_min),
                  OMM_LOG_STR("reasons", reasons),
                  OMM_LOG_STR("then", "it is void at its deadline, unless that is mended at the "
                                      "nodes, or sooner where it waits for dry runs alone and "
                                      "others wait; `ctl pause` keeps the rounds after it, `ctl "
                                      "nodes` says which node has which reason"));
}

omm_err coord_declined_note(omm_coord *c, uint32_t node, uint32_t declined) {
    coord_node *n = &c->nodes[node];
    if (c->state != OMM_COORD_OPEN || !n->offered || n->settled || n->quarantined) return OMM_OK;
    if (n->declined == declined) return OMM_OK;
    if (declined == OMM_DECLINED_DRY || n->declined == OMM_DECLINED_DRY)
        OMM_TRY(coord_store_presence(c, node,
                                     declined == OMM_DECLINED_DRY ? COORD_DRY : COORD_OFFERED));
    char text[OMM_DECLINED_TEXT_SIZE];
    omm_declined_text(text, declined);
    n->declined = declined;
    if (declined == OMM_DECLINED_DRY) c->has_dry = true;
    omm_log_event(c->o.log, level_of(c, n), "node_declines", OMM_LOG_INT("round", c->round),
                  OMM_LOG_STR("node", c->o.run->nodes[node].name),
                  OMM_LOG_STR("reason", text[0] ? text : "none any more"));
    if (declined_lasts(declined)) tell_hopeless(c);
    return OMM_OK;
}

void coord_declined_restore(omm_coord *c, uint32_t node) {
    c->nodes[node].declined = OMM_DECLINED_DRY;
    c->has_dry = true;
}
