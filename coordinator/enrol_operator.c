/* enrol_operator.c - what the operator does about who is in: invitations, revocation, the lists. */
#include "enrol.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HOUR_MS ((uint64_t)3600 * 1000)
#define ID_DIGITS 16                  /* of an id in lists */
#define LINE_BYTES_MAX ((size_t)2048) /* of one node, with all that there is to say of it */

static void short_id(char out[OMM_DIGEST_HEX_SIZE], const omm_digest *id) {
    omm_digest_hex(out, id);
    out[ID_DIGITS] = '\0';
}

/* ---- invitations ---- */

static bool is_plain(const char *text, size_t max) {
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return n <= max;
}

static omm_err check_invites(const omm_coord *c) {
    if (!c->enrol || c->node_max == c->enrol->listed)
        return omm_raise(OMM_ERR_STATE,
                         "this run has its list of nodes and takes nobody else; accepted with "
                         "enrolment: invitation in the service file");
    return OMM_OK;
}

static omm_err check_inviting(const omm_coord *c) {
    OMM_TRY(check_invites(c));
    if (c->state < OMM_COORD_CLOSING) return OMM_OK;
    return omm_raise(OMM_ERR_STATE, "the last round is over, nobody can join any more");
}

static omm_err check_invite(const omm_coord *c, uint32_t count, uint32_t hours, const char *label) {
    uint64_t have = 0;
    OMM_TRY(check_inviting(c));
    if (count < 1 || count > OMM_COORD_INVITE_MAX)
        return omm_raise(OMM_ERR_CONFIG, "count: %u; accepted: 1 to %u", count,
                         OMM_COORD_INVITE_MAX);
    if (hours > OMM_COORD_HOURS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "expires: %u hours; accepted: 0 (never) to %u", hours,
                         OMM_COORD_HOURS_MAX);
    if (!is_plain(label, OMM_COORD_LABEL_MAX))
        return omm_raise(OMM_ERR_CONFIG, "label: accepted are up to %u printable ASCII characters",
                         OMM_COORD_LABEL_MAX);
    OMM_TRY(enrol_store_count(&have, c->enrol->db));
    if (have + count <= OMM_COORD_INVITES_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "%" PRIu64 " invitations were made, %u is the most of a run",
                     have, OMM_COORD_INVITES_MAX);
}

omm_err omm_coord_invite(omm_buf *out, omm_coord *c, uint32_t count, uint32_t hours,
                         const char *label) {
    OMM_TRY(check_invite(c, count, hours, label));
    enrol_invitation *all = omm_alloc(count, sizeof *all);
    size_t before = out->size;
    omm_err err = all ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "%u invitations", count);
    for (uint32_t i = 0; i < count && err == OMM_OK; i++) {
        char text[OMM_INVITATION_TEXT_SIZE];
        omm_seed token = omm_seed_random();
        all[i].id = omm_invitation_id(&token);
        all[i].expires_ms = hours ? coord_wall_ms(c) + hours * HOUR_MS : 0;
        (void)snprintf(all[i].label, sizeof all[i].label, "%s", label);
        omm_invitation_text(text, &token);
        err = omm_buf_printf(out, "%s\n", text);
        explicit_bzero(text, sizeof text);
        explicit_bzero(&token, sizeof token);
    }
    if (err == OMM_OK) err = enrol_store_invite(c->enrol->db, all, count);
    if (err != OMM_OK) out->size = before;
    omm_free(all);
    return err;
}

/* Of a node by id, for lists. */
static const char *name_of(const omm_coord *c, const omm_digest *id) {
    int32_t node = coord_node_find(c, id);
    return node < 0 ? "a node that is gone" : c->o.run->nodes[node].name;
}

omm_err omm_coord_uninvite(omm_coord *c, const char *hex) {
    unsigned count = 0;
    enrol_invitation one = {0};
    OMM_TRY(check_inviting(c));
    size_t digits = strspn(hex, "0123456789abcdef");
    if (digits >= 8 && digits <= 64 && !hex[digits])
        OMM_TRY(enrol_store_find_hex(&count, &one, c->enrol->db, hex));
    if (count != 1)
        return omm_raise(OMM_ERR_NOT_FOUND,
                         "%.64s: %s; accepted: an id of `ctl invitations`, or its first digits, "
                         "eight at least",
                         hex, count ? "several invitations begin so" : "no such invitation");
    if (one.used)
        return omm_raise(OMM_ERR_STATE, "it was used by %s; `ctl revoke` is for nodes",
                         name_of(c, &one.used_by));
    if (one.withdrawn) return omm_raise(OMM_ERR_STATE, "it is withdrawn already");
    return enrol_store_withdraw(c->enrol->db, &one.id);
}

/* A name or a label in a column: in quotes where it is more than letters, digits, - _ and ., so that no label looks like
 * columns of its own. */
static omm_err put_word(omm_buf *out, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (text[0] && !text[strspn(text, plain)]) return omm_buf_append(out, text, strlen(text));
    OMM_TRY(omm_buf_append(out, "\"", 1));
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') OMM_TRY(omm_buf_append(out, "\\", 1));
        OMM_TRY(omm_buf_append(out, text, 1));
    }
    return omm_buf_append(out, "\"", 1);
}

typedef struct listing {
    const omm_coord *c;
    omm_buf *out;
    uint64_t now_ms;
} listing;

static omm_err list_invitation(void *ud, const enrol_invitation *one) {
    const listing *l = ud;
    char hex[OMM_DIGEST_HEX_SIZE];
    char at[25] = "-";
    short_id(hex, &one->id);
    if (one->expires_ms) omm_time_iso(at, one->expires_ms);
    bool over = one->expires_ms && l->now_ms >= one->expires_ms;
    const char *is = one->withdrawn ? "withdrawn" : over ? "expired" : "open";
    OMM_TRY(omm_buf_printf(l->out, "%s  until %-24s  %s", hex, at, one->used ? "used by " : is));
    if (one->used && coord_node_find(l->c, &one->used_by) < 0)
        OMM_TRY(omm_buf_printf(l->out, "%s", name_of(l->c, &one->used_by)));
    else if (one->used)
        OMM_TRY(put_word(l->out, name_of(l->c, &one->used_by)));
    if (one->label[0]) {
        OMM_TRY(omm_buf_printf(l->out, "  "));
        OMM_TRY(put_word(l->out, one->label));
    }
    return omm_buf_printf(l->out, "\n");
}

omm_err omm_coord_invitations(omm_buf *out, omm_coord *c) {
    uint64_t count = 0;
    OMM_TRY(check_invites(c)); /* who used which is asked afterwards, too */
    listing l = {c, out, coord_wall_ms(c)};
    OMM_TRY(enrol_store_count(&count, c->enrol->db));
    if (count == 0) return omm_buf_printf(out, "no invitation was made\n");
    OMM_TRY(enrol_store_each(c->enrol->db, OMM_COORD_LIST_MAX, list_invitation, &l));
    if (count <= OMM_COORD_LIST_MAX) return OMM_OK;
    return omm_buf_printf(out, "and %" PRIu64 " older ones\n", count - OMM_COORD_LIST_MAX);
}

/* ---- nodes ---- */

omm_err omm_coord_revoke(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, size_t node,
                         const char *reason) {
    OMM_ASSERT(node < c->o.run->node_count);
    if (!c->enrol) return omm_raise(OMM_ERR_STATE, "this run keeps no enrolment");
    if (c->nodes[node].revoked)
        return omm_raise(OMM_ERR_STATE, "%s is revoked already", c->o.run->nodes[node].name);
    if (!reason[0] || !is_plain(reason, OMM_COORD_REASON_MAX))
        return omm_raise(
            OMM_ERR_CONFIG,
            "reason: accepted are 1 to %u printable ASCII characters; the node reads it",
            OMM_COORD_REASON_MAX);
    if (c->state >= OMM_COORD_CLOSING)
        return omm_raise(OMM_ERR_STATE, "the last round is over, nothing is left to change");
    OMM_TRY(enrol_store_revoke(c->enrol->db, (uint32_t)node, reason, coord_wall_ms(c)));
    (void)snprintf(c->enrol->nodes[node].revoked, sizeof c->enrol->nodes[node].revoked, "%s",
                   reason);
    c->nodes[node].revoked = true;
    /* From here on as in quarantine; that one is not left any more, and every start takes it from the revocation. */
    if (!c->nodes[node].quarantined) coord_set_quarantine(next_deadline_ms, c, now_ms, node, true);
    return OMM_OK;
}

const char *omm_coord_joined_by(const omm_coord *c, size_t node) {
    OMM_ASSERT(node < c->o.run->node_count);
    return c->enrol && node >= c->listed ? c->enrol->nodes[node].by : NULL;
}

static const char *standing(const coord_node *n) {
    if (n->revoked) return "revoked";
    if (n->quarantined) return "quarantine";
    return n->counts ? "enrolled" : "extra";
}

bool coord_list_has_room(const omm_buf *out, size_t kept) {
    return out->bytes_max - out->size >= LINE_BYTES_MAX + kept;
}

omm_err omm_coord_nodes(omm_buf *out, const omm_coord *c) {
    const size_t n = c->o.run->node_count;
    /* Whoever is on probation may be anybody: their number keeps no operator from the list. */
    const size_t kept = LINE_BYTES_MAX + (c->canary ? out->bytes_max / 3 : 0);
    size_t i = 0;
    for (; i < n && i < OMM_COORD_LIST_MAX && coord_list_has_room(out, kept); i++) {
        const coord_node *node = &c->nodes[c->by_id[i]];
        const omm_run_node *is = &c->o.run->nodes[c->by_id[i]];
        const enrol_node *e = c->enrol ? &c->enrol->nodes[c->by_id[i]] : NULL;
        char hex[OMM_DIGEST_HEX_SIZE];
        short_id(hex, &is->id);
        const char *canary = coord_canary_reason(c, c->by_id[i]);
        char declined[OMM_DECLINED_TEXT_SIZE];
        omm_declined_text(declined, node->declined);
        OMM_TRY(omm_buf_printf(out, "%s  %-10s  %u accepted, %u refused  ", hex, standing(node),
                               node->accepted_total, node->refused_total));
        OMM_TRY(put_word(out, is->name));
        OMM_TRY(omm_buf_printf(out, "  by %s%s%s%s%s%s%s\n", e ? e->by : "list",
                               e && e->revoked[0] ? "; revoked: " : "", e ? e->revoked : "",
                               canary[0] ? "; " : "", canary,
                               declined[0] ? "; gave nothing to the last offer: " : "", declined));
    }
    if (i < n) OMM_TRY(omm_buf_printf(out, "and %zu more; status.json has all\n", n - i));
    return coord_canary_list(out, c);
}
