/* enrol.c - who is let in while the run goes on, by which invitation, and who is not let in again. */
#include "enrol.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE (OMM_COORD_LABEL_MAX + 16)

uint64_t coord_wall_ms(const omm_coord *c) {
    const omm_coord_enrolment *e = c->o.enrolment;
    return e ? e->clock.wall_ms(e->clock.ud) : 0;
}

/* ---- open ---- */

static void begin_node(omm_coord *c, uint32_t index, const char *by) {
    c->nodes[index].counts = true;
    c->nodes[index].residual = c->residual_zero;
    (void)snprintf(c->enrol->nodes[index].by, sizeof c->enrol->nodes[index].by, "%s", by);
    enrol_take_place(c, index);
}

static omm_err load_member(void *ud, uint32_t node, const char *name, const char *by,
                           const omm_public_key *key) {
    omm_coord *c = ud;
    if (node > c->o.run->node_count && node < c->node_max)
        return omm_raise(OMM_ERR_FORMAT,
                         "enrolment.sqlite: %s is node %u, and node %zu is not there; put the file "
                         "back from a copy",
                         name, node, c->o.run->node_count);
    if (node >= c->node_max)
        return omm_raise(
            OMM_ERR_MISMATCH,
            "enrolment.sqlite: %s is node %u, and there is room for %u; raise node_max", name, node,
            c->node_max);
    /* The same omm_run was open before, in this process. */
    if (node == c->o.run->node_count) OMM_TRY(c->o.enrolment->admit(c->o.enrolment->ud, name, key));
    if (!omm_public_key_equal(&c->o.run->nodes[node].public_key, key))
        return omm_raise(OMM_ERR_MISMATCH, "enrolment.sqlite: node %u is another one", node);
    begin_node(c, node, by);
    return OMM_OK;
}

static omm_err load_revoked(void *ud, uint32_t node, const char *reason) {
    omm_coord *c = ud;
    if (node >= c->o.run->node_count)
        return omm_raise(OMM_ERR_FORMAT, "enrolment.sqlite: node %u is revoked and unknown", node);
    enrol_node *n = &c->enrol->nodes[node];
    (void)snprintf(n->revoked, sizeof n->revoked, "%s", reason);
    c->nodes[node].revoked = c->nodes[node].quarantined = true;
    return OMM_OK;
}

/* Who had joined would be strangers, and who was revoked would be let in again. */
static omm_err check_kept(omm_coord *c) {
    char path[OMM_PATH_MAX];
    uint64_t size = 0;
    bool has_run = false;
    if (!c->o.state_dir) return OMM_OK;
    OMM_TRY(omm_path_join(path, c->o.state_dir, ENROL_DATABASE));
    OMM_TRY(coord_store_has_run(&has_run, c));
    if (!has_run || (omm_file_exists(path) && omm_file_size(&size, path) == OMM_OK && size > 0))
        return OMM_OK;
    return omm_raise(
        OMM_ERR_STATE,
        "%s is gone or empty, and the run goes on since before: who has joined and who "
        "is revoked is in it; put it back from a copy, or begin a new run in another "
        "state_dir",
        path);
}

omm_err coord_enrol_open(omm_coord *c) {
    for (uint32_t i = 0; i < c->listed; i++) c->by_id[i] = i;
    if (!c->o.enrolment) return OMM_OK;
    coord_enrol *e = omm_alloc(1, sizeof *e);
    if (!e) return omm_raise(OMM_ERR_NOMEM, "enrolment");
    c->enrol = e;
    e->listed = c->listed;
    e->nodes = omm_alloc(c->node_max, sizeof *e->nodes);
    if (!e->nodes) return omm_raise(OMM_ERR_NOMEM, "enrolment of %u nodes", c->node_max);
    for (size_t i = 0; i < e->listed; i++)
        (void)snprintf(e->nodes[i].by, sizeof e->nodes[i].by, "list");
    OMM_TRY(check_kept(c));
    OMM_TRY(enrol_store_open(&e->db, c->o.state_dir));
    OMM_TRY(enrol_store_members(e->db, load_member, c));
    return enrol_store_revoked(e->db, load_revoked, c);
}

void coord_enrol_close(omm_coord *c) {
    if (!c->enrol) return;
    if (c->enrol->db) omm_db_close(c->enrol->db);
    omm_buf_fini(&c->enrol->now.envelope);
    omm_buf_fini(&c->enrol->before.envelope);
    omm_free(c->enrol->nodes);
    omm_free(c->enrol);
    c->enrol = NULL;
}

/* ---- a node asks ---- */

omm_err coord_refuse_stranger(const omm_coord *c) {
    bool invites = c->enrol && c->node_max > c->enrol->listed;
    bool works = invites && c->o.enrolment->work_bits > 0;
    return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not enrolled in this run%s%s",
                     invites ? "; accepted: an invitation" : "", works ? ", or work" : "");
}

omm_err coord_refuse_revoked(const omm_coord *c, size_t node) {
    return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: revoked: %s", c->enrol->nodes[node].revoked);
}

static omm_err check_invitation(enrol_invitation *out, const omm_coord *c, const omm_enrol *enrol,
                                const omm_public_key *node) {
    bool found = false;
    const omm_digest id = omm_key_id(&enrol->invitation);
    OMM_TRY(enrol_store_find(&found, out, c->enrol->db, &id));
    if (!found) return omm_raise(OMM_ERR_REFUSED_INVITATION, "invitation: unknown in this run");
    OMM_TRY(omm_invitation_check(enrol, node));
    if (out->used)
        return omm_raise(OMM_ERR_REFUSED_INVITATION, "invitation: another node has used it");
    if (out->withdrawn) return omm_raise(OMM_ERR_REFUSED_INVITATION, "invitation: withdrawn");
    if (out->expires_ms && coord_wall_ms(c) >= out->expires_ms) {
        char at[25];
        omm_time_iso(at, out->expires_ms);
        return omm_raise(OMM_ERR_REFUSED_INVITATION, "invitation: ended at %s", at);
    }
    return OMM_OK;
}

static omm_err commit_member(omm_coord *c, const char *name, const char *by,
                             const omm_public_key *key, const omm_digest *invitation) {
    const omm_coord_enrolment *o = c->o.enrolment;
    uint32_t index = (uint32_t)c->o.run->node_count;
    OMM_TRY(omm_db_begin(c->enrol->db));
    omm_err err = enrol_store_join(c->enrol->db, index, name, by, key, invitation);
    if (err == OMM_OK) err = o->admit(o->ud, name, key);
    if (err != OMM_OK) {
        omm_db_rollback(c->enrol->db);
        return err;
    }
    err = omm_db_commit(c->enrol->db);
    if (err != OMM_OK) o->retract(o->ud);
    return err;
}

/* invitation NULL: by work. */
static omm_err let_in(omm_coord *c, const omm_public_key *key, const char *by,
                      const enrol_invitation *invitation) {
    char name[NAME_SIZE];
    char hex[OMM_DIGEST_HEX_SIZE];
    const omm_digest id = omm_key_id(key);
    uint32_t index = (uint32_t)c->o.run->node_count;
    omm_digest_hex(hex, &id);
    (void)snprintf(name, sizeof name, "%s-%.8s",
                   invitation && invitation->label[0] ? invitation->label : "guest", hex);
    OMM_TRY(commit_member(c, name, by, key, invitation ? &invitation->id : NULL));
    begin_node(c, index, by);
    c->last_node = (int32_t)index;
    c->peer_fresh = true;
    omm_log_event(c->o.log, OMM_LOG_INFO, "node_joined", OMM_LOG_STR("node", name),
                  OMM_LOG_STR("by", by), OMM_LOG_INT("nodes", c->o.run->node_count));
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_JOINED,
                                     .round = c->round,
                                     .node = (int32_t)index,
                                     .sentence = by});
    omm_crash_point(c->o.state_dir, c->o.crash_at, "after_join");
    return OMM_OK;
}

static omm_err check_room(const omm_coord *c) {
    if (c->state >= OMM_COORD_CLOSING)
        return omm_raise(OMM_ERR_REFUSED_LATE, "enrol: the last round of this run is over");
    if (c->o.run->node_count < c->node_max) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FULL, "enrol: %zu nodes are in, the most this run takes",
                     c->o.run->node_count);
}

/* Two keys whose files in the bundle have one name would stop the first round in which both are accepted. */
static omm_err check_name(const omm_coord *c, const omm_public_key *key) {
    const omm_digest id = omm_key_id(key);
    for (size_t i = 0; i < c->o.run->node_count; i++)
        if (omm_bundle_is_same_node(&c->o.run->nodes[i].id, &id))
            return omm_raise(OMM_ERR_REFUSED_KEY,
                             "public_key: its id begins as that of another node; make another key");
    return OMM_OK;
}

/* ---- work ---- */

static omm_err make_challenge(enrol_challenge *out, const omm_coord *c, uint64_t now_ms) {
    const omm_seed seed = omm_seed_random();
    omm_challenge challenge = {.bits = c->o.enrolment->work_bits};
    memcpy(challenge.run_id, c->o.run->run_id, sizeof challenge.run_id);
    memcpy(challenge.seed.b, seed.b, sizeof challenge.seed.b);
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_challenge_encode(&payload, &challenge);
    if (err == OMM_OK)
        err = omm_envelope_seal(&out->envelope, OMM_CONTEXT_CHALLENGE, omm_buf_view(&payload),
                                c->o.key);
    out->is_there = err == OMM_OK;
    out->since_ms = now_ms;
    out->digest = omm_hash(omm_buf_view(&payload));
    omm_buf_fini(&payload);
    return err;
}

static bool is_over(const enrol_challenge *challenge, uint64_t now_ms, uint64_t life_ms) {
    return !challenge->is_there || now_ms - challenge->since_ms >= life_ms;
}

static omm_err reply_challenge(omm_buf *reply, const omm_coord *c, uint64_t now_ms) {
    coord_enrol *e = c->enrol;
    if (is_over(&e->now, now_ms, ENROL_CHALLENGE_MS)) {
        enrol_challenge fresh = {0};
        omm_buf_init(&fresh.envelope, OMM_ENVELOPE_BYTES_MAX);
        omm_err err = make_challenge(&fresh, c, now_ms);
        if (err != OMM_OK) {
            omm_buf_fini(&fresh.envelope);
            return err;
        }
        omm_buf_fini(&e->before.envelope);
        e->before = e->now;
        e->now = fresh;
    }
    omm_reply r = {.kind = OMM_REPLY_CHALLENGE, .envelope = omm_buf_view(&e->now.envelope)};
    return omm_reply_encode(reply, &r);
}

/* One hash, before any signature is looked at: a flood of claims is as cheap as it can be. */
static omm_err check_work(const omm_coord *c, const omm_enrol *enrol, const omm_public_key *node,
                          uint64_t now_ms) {
    const enrol_challenge *all[] = {&c->enrol->now, &c->enrol->before};
    bool known = false;
    for (unsigned i = 0; i < 2; i++)
        known |= !is_over(all[i], now_ms, 2 * (uint64_t)ENROL_CHALLENGE_MS) &&
                 omm_digest_equal(&all[i]->digest, &enrol->challenge);
    if (!known) return omm_raise(OMM_ERR_REFUSED_WORK, "challenge: unknown or over; ask for one");
    uint32_t bits = omm_work_bits(&enrol->challenge, node, enrol->work);
    if (bits >= c->o.enrolment->work_bits) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_WORK, "work: %u zero bits, %u are asked for", bits,
                     c->o.enrolment->work_bits);
}

/* ---- one request ---- */

omm_err coord_enrol_let_in(omm_coord *c, const omm_public_key *key, const char *by) {
    OMM_TRY(check_room(c));
    OMM_TRY(check_name(c, key));
    return let_in(c, key, by, NULL);
}

/* By work, and there are canaries: a candidate. */
static omm_err take_in(omm_coord *c, const omm_public_key *key,
                       const enrol_invitation *invitation) {
    char by[sizeof c->enrol->nodes->by], hex[OMM_DIGEST_HEX_SIZE];
    if (invitation) {
        omm_digest_hex(hex, &invitation->id);
        (void)snprintf(by, sizeof by, "invitation %.16s", hex);
        return let_in(c, key, by, invitation);
    }
    (void)snprintf(by, sizeof by, "work of %u bits", c->o.enrolment->work_bits);
    return coord_canary_tries(c) ? coord_canary_admit(c, key, by) : let_in(c, key, by, NULL);
}

static bool takes_work(const omm_coord *c) {
    return c->enrol && c->o.enrolment->work_bits > 0;
}

/* A candidate that shows an invitation waits for no canaries any more. */
static omm_err invite_candidate(omm_coord *c, const omm_enrol *enrol, const omm_public_key *key) {
    enrol_invitation invitation;
    const omm_digest id = omm_key_id(key);
    OMM_TRY(check_invitation(&invitation, c, enrol, key));
    OMM_TRY(check_room(c));
    OMM_TRY(check_name(c, key));
    OMM_TRY(take_in(c, key, &invitation));
    return coord_canary_invited(c, &id);
}

/* A stranger whose signature is good.  *challenged: nothing was proved, so work is asked for. */
static omm_err let_stranger_in(bool *challenged, omm_coord *c, const omm_enrol *enrol,
                               const omm_public_key *key) {
    enrol_invitation invitation;
    *challenged = false;
    if (!c->enrol || c->node_max == c->enrol->listed) return coord_refuse_stranger(c);
    if (!enrol->has_invitation && !takes_work(c)) return coord_refuse_stranger(c);
    if (enrol->has_invitation) OMM_TRY(check_invitation(&invitation, c, enrol, key));
    OMM_TRY(check_room(c));
    OMM_TRY(check_name(c, key));
    *challenged = !enrol->has_invitation && !enrol->has_work;
    return *challenged ? OMM_OK : take_in(c, key, enrol->has_invitation ? &invitation : NULL);
}

omm_err coord_enrol_answer(omm_buf *reply, omm_coord *c, uint64_t now_ms, omm_bytes bytes,
                           omm_arena *arena) {
    omm_envelope envelope;
    omm_enrol enrol;
    bool challenged = false, is_candidate = false;
    OMM_TRY(omm_envelope_open(&envelope, bytes));
    OMM_TRY(omm_enrol_decode(&enrol, envelope.payload, arena));
    if (!omm_public_key_equal(&enrol.coordinator, &c->o.key->public_key))
        return omm_raise(OMM_ERR_REFUSED_KEY, "coordinator_key: meant for another coordinator");
    const omm_digest id = omm_key_id(&envelope.key);
    int32_t node = coord_node_find(c, &id);
    bool claims = node < 0 && enrol.has_work && !enrol.has_invitation && takes_work(c);
    if (claims) OMM_TRY(check_work(c, &enrol, &envelope.key, now_ms));
    OMM_TRY(omm_envelope_verify(&envelope, OMM_CONTEXT_ENROL));
    coord_note_who(c, &envelope.key, node);
    c->last_node = node;
    if (node >= 0 && c->nodes[node].revoked) return coord_refuse_revoked(c, (size_t)node);
    if (node < 0) OMM_TRY(coord_canary_knows(&is_candidate, c, &id));
    if (node < 0 && !is_candidate) OMM_TRY(let_stranger_in(&challenged, c, &enrol, &envelope.key));
    if (challenged) return reply_challenge(reply, c, now_ms);
    if (is_candidate && enrol.has_invitation) OMM_TRY(invite_candidate(c, &enrol, &envelope.key));
    return omm_reply_encode(reply, &(omm_reply){.kind = OMM_REPLY_WAIT}); /* 0: it is in */
}
