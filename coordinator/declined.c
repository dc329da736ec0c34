/* declined.c - owns what nodes say of why they give nothing to the round: noted from their polls, told to the operator.
 *
 * In memory alone.  Evidence does not depend on it, and who declines says so again within seconds of a restart.  Of all
 * reasons a dry run alone changes what the coordinator does: a round that has enough does not wait for such a node.
 */
#include "declined.h"

#include "internal.h"

#include <stdio.h>

#define LOGGED_MAX 64u     /* per round, of all nodes; what is more goes on at DEBUG */
#define LOGGED_NODE_MAX 2u /* of each, whatever it makes up */

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
    }
}

void coord_declined_list(char out[DECLINED_LIST_SIZE], const omm_coord *c) {
    declined_counts counts = {0};
    for (size_t i = 0; i < c->o.run->node_count; i++) declined_add(&counts, c->nodes[i].declined);
    declined_list(out, &counts);
}

uint32_t coord_declined_dry(const omm_coord *c) {
    uint32_t count = 0;
    for (size_t i = 0; c->has_dry && i < c->o.run->node_count; i++)
        count += c->nodes[i].selected && !c->nodes[i].settled && !c->nodes[i].upload.active &&
                 c->nodes[i].declined == OMM_DECLINED_DRY;
    return count;
}

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
                                      "nodes; `ctl pause` keeps the rounds after it, `ctl nodes` "
                                      "says which node has which reason"));
}

void coord_declined_note(omm_coord *c, uint32_t node, uint32_t declined) {
    coord_node *n = &c->nodes[node];
    if (c->state != OMM_COORD_OPEN || !n->offered || n->settled || n->quarantined) return;
    if (n->declined == declined) return;
    char text[OMM_DECLINED_TEXT_SIZE];
    omm_declined_text(text, declined);
    n->declined = declined;
    if (declined == OMM_DECLINED_DRY) c->has_dry = true;
    omm_log_event(c->o.log, level_of(c, n), "node_declines", OMM_LOG_INT("round", c->round),
                  OMM_LOG_STR("node", c->o.run->nodes[node].name),
                  OMM_LOG_STR("reason", text[0] ? text : "none any more"));
    if (declined_lasts(declined)) tell_hopeless(c);
}
