/* enrol_ctl.c - see enrol_ctl.h. */
#include "enrol_ctl.h"

#include "omm/coordinator_enrol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool enrol_ctl_has(omm_coord_ctl_action action) {
    return action == OMM_COORD_CTL_nodes || action == OMM_COORD_CTL_invite ||
           action == OMM_COORD_CTL_invitations || action == OMM_COORD_CTL_uninvite ||
           action == OMM_COORD_CTL_revoke;
}

omm_err enrol_ctl_find(size_t *out, const omm_run_record *run, const char *which) {
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

static omm_err invite(const enrol_ctl *e, omm_buf *answer, const ctl_request *r) {
    uint32_t count = 0;
    uint32_t hours = 0;
    const char *label = r->argument;
    OMM_TRY(take_number(&count, &label, "COUNT"));
    OMM_TRY(take_number(&hours, &label, "HOURS"));
    OMM_TRY(diary_ctl(e->diary, "invite", r->argument, r->uid));
    return omm_coord_invite(answer, e->coord, count, hours, label);
}

static omm_err uninvite(const enrol_ctl *e, omm_buf *answer, const ctl_request *r) {
    OMM_TRY(diary_ctl(e->diary, "uninvite", r->argument, r->uid));
    OMM_TRY(omm_coord_uninvite(e->coord, r->argument));
    return omm_buf_printf(answer, "%s lets nobody in any more\n", r->argument);
}

/* "NODE\tREASON": names have blanks. */
static omm_err revoke(enrol_ctl *e, omm_buf *answer, const ctl_request *r) {
    char which[OMM_COORD_CTL_LINE_MAX];
    size_t node = 0;
    size_t size = strcspn(r->argument, "\t");
    if (!r->argument[size] || size >= sizeof which)
        return omm_raise(OMM_ERR_USAGE, "revoke: --reason is missing; the node is told it");
    (void)snprintf(which, sizeof which, "%.*s", (int)size, r->argument);
    OMM_TRY(enrol_ctl_find(&node, e->run, which));
    OMM_TRY(diary_ctl(e->diary, "revoke", r->argument, r->uid));
    OMM_TRY(omm_coord_revoke(e->deadline_ms, e->coord, e->now_ms, node, r->argument + size + 1));
    e->revoked = (int32_t)node;
    return omm_buf_printf(answer, "%s is revoked; what was accepted of it stays\n",
                          e->run->nodes[node].name);
}

omm_err enrol_ctl_act(enrol_ctl *e, omm_buf *answer, const ctl_request *r) {
    e->revoked = OMM_COORD_NOBODY;
    switch (r->action) {
    case OMM_COORD_CTL_nodes: return omm_coord_nodes(answer, e->coord);
    case OMM_COORD_CTL_invitations: return omm_coord_invitations(answer, e->coord);
    case OMM_COORD_CTL_invite: return invite(e, answer, r);
    case OMM_COORD_CTL_uninvite: return uninvite(e, answer, r);
    case OMM_COORD_CTL_revoke: return revoke(e, answer, r);
    default: return omm_raise(OMM_ERR_USAGE, "no word about who takes part");
    }
}
