/* actions.c - see actions.h. */
#include "actions.h"

#include "omm/coordinator_enrol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By name; or by id or the beginning of one, eight digits at least. */
static omm_err find_node(size_t *out, const omm_run_record *run, const char *which) {
    size_t found = 0;
    for (size_t i = 0; i < run->node_count; i++) {
        char id[OMM_DIGEST_HEX_SIZE];
        omm_digest_hex(id, &run->nodes[i].id);
        bool is_id = strlen(which) >= 8 && strncmp(id, which, strlen(which)) == 0;
        if (!is_id && strcmp(run->nodes[i].name, which) != 0) continue;
        *out = i;
        found++;
    }
    if (found == 1) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND,
                     "%s: %s; accepted: a node's name, or its id from status.json", which,
                     found ? "several nodes are called so" : "no enrolled node is called so");
}

/* The number that `*text` begins with, and the blank behind it. */
static omm_err take_number(uint32_t *out, const char **text, const char *what) {
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(*text, &end, 10);
    if ((*text)[0] < '0' || (*text)[0] > '9' || errno || value > UINT32_MAX ||
        (*end != ' ' && *end != '\0'))
        return omm_raise(OMM_ERR_USAGE, "invite: %s is missing; accepted: COUNT HOURS [LABEL]",
                         what);
    *out = (uint32_t)value;
    *text = *end ? end + 1 : end;
    return OMM_OK;
}

static omm_err invite(const actions *a, omm_buf *answer, const ctl_request *r) {
    uint32_t count = 0;
    uint32_t hours = 0;
    const char *label = r->argument;
    OMM_TRY(take_number(&count, &label, "COUNT"));
    OMM_TRY(take_number(&hours, &label, "HOURS"));
    OMM_TRY(diary_ctl(a->diary, "invite", r->argument, r->uid));
    return omm_coord_invite(answer, a->coord, count, hours, label);
}

static omm_err uninvite(const actions *a, omm_buf *answer, const ctl_request *r) {
    OMM_TRY(diary_ctl(a->diary, "uninvite", r->argument, r->uid));
    OMM_TRY(omm_coord_uninvite(a->coord, r->argument));
    return omm_buf_printf(answer, "%s lets nobody in any more\n", r->argument);
}

/* "NODE\tREASON": names have blanks. */
static omm_err revoke(actions *a, omm_buf *answer, const ctl_request *r) {
    char which[OMM_COORD_CTL_LINE_MAX];
    size_t node = 0;
    size_t size = strcspn(r->argument, "\t");
    if (!r->argument[size] || size >= sizeof which)
        return omm_raise(OMM_ERR_USAGE, "revoke: --reason is missing; the node is told it");
    (void)snprintf(which, sizeof which, "%.*s", (int)size, r->argument);
    OMM_TRY(find_node(&node, a->run, which));
    OMM_TRY(diary_ctl(a->diary, "revoke", r->argument, r->uid));
    OMM_TRY(omm_coord_revoke(a->deadline_ms, a->coord, a->now_ms, node, r->argument + size + 1));
    a->revoked = (int32_t)node;
    return omm_buf_printf(answer, "%s is revoked; what was accepted of it stays\n",
                          a->run->nodes[node].name);
}

static omm_err quarantine(const actions *a, omm_buf *answer, const ctl_request *r) {
    size_t node = 0;
    bool in = r->action == OMM_COORD_CTL_quarantine;
    OMM_TRY(find_node(&node, a->run, r->argument));
    const char *name = a->run->nodes[node].name;
    OMM_TRY(diary_ctl(a->diary, omm_coord_ctl_name(r->action), name, r->uid));
    OMM_TRY(omm_coord_quarantine(a->deadline_ms, a->coord, a->now_ms, node, in));
    return omm_buf_printf(answer, in ? "%s is in quarantine\n" : "%s may take part again\n", name);
}

static omm_err drain(const actions *a, omm_buf *answer, const ctl_request *r) {
    OMM_TRY(diary_ctl(a->diary, "drain", r->argument, r->uid));
    omm_coord_drain(a->coord);
    return omm_buf_printf(answer, "the open round is ended, then this coordinator exits\n");
}

static omm_err pause_or_resume(const actions *a, omm_buf *answer, const ctl_request *r) {
    bool pause = r->action == OMM_COORD_CTL_pause;
    OMM_TRY(diary_ctl(a->diary, omm_coord_ctl_name(r->action), r->argument, r->uid));
    OMM_TRY(omm_coord_pause(a->deadline_ms, a->coord, a->now_ms, pause));
    return omm_buf_printf(answer, pause ? "no new round is opened\n" : "rounds are opened again\n");
}

/* "3\twhy": the round, or "start", and the reason. */
static omm_err read_rollback(int64_t *round, const char *argument) {
    const size_t size = strcspn(argument, "\t");
    const bool is_start = size == 5 && strncmp(argument, "start", 5) == 0;
    const bool is_number = size > 0 && size < 9 && strspn(argument, "0123456789") == size;
    *round = is_number ? strtoll(argument, NULL, 10) : -1;
    if ((is_start || is_number) && argument[size] == '\t' && argument[size + 1]) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE,
                     "rollback: %.80s; accepted: a round's number or start, and a reason",
                     argument);
}

static omm_err rollback(const actions *a, omm_buf *answer, const ctl_request *r) {
    int64_t round = -1;
    uint32_t next = 0;
    char begin[64] = "the run's first adapter";
    OMM_TRY(read_rollback(&round, r->argument));
    OMM_TRY(diary_ctl(a->diary, "rollback", r->argument, r->uid));
    OMM_TRY(omm_coord_rollback(&next, a->deadline_ms, a->coord, a->now_ms, round));
    if (round >= 0)
        (void)snprintf(begin, sizeof begin, "the adapter of round %d (rounds count from 0)",
                       (int)round);
    return omm_buf_printf(answer, "round %u begins from %s\n", next, begin);
}

omm_err actions_do(actions *a, omm_buf *answer, const ctl_request *r) {
    a->revoked = OMM_COORD_NOBODY;
    switch (r->action) {
    case OMM_COORD_CTL_nodes: return omm_coord_nodes(answer, a->coord);
    case OMM_COORD_CTL_invitations: return omm_coord_invitations(answer, a->coord);
    case OMM_COORD_CTL_invite: return invite(a, answer, r);
    case OMM_COORD_CTL_uninvite: return uninvite(a, answer, r);
    case OMM_COORD_CTL_revoke: return revoke(a, answer, r);
    case OMM_COORD_CTL_quarantine:
    case OMM_COORD_CTL_release: return quarantine(a, answer, r);
    case OMM_COORD_CTL_pause:
    case OMM_COORD_CTL_resume: return pause_or_resume(a, answer, r);
    case OMM_COORD_CTL_rollback: return rollback(a, answer, r);
    case OMM_COORD_CTL_drain: return drain(a, answer, r);
    case OMM_COORD_CTL_status:
    case OMM_COORD_CTL_COUNT: break;
    }
    return omm_raise(OMM_ERR_USAGE, "%s changes nothing", omm_coord_ctl_name(r->action));
}
