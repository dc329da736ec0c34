/* coordinator.c - open and close, and which work is due in which state. */
#include "internal.h"

#include "omm/mem.h"

#include <string.h>

static const char *const s_state_names[] = {"joining",   "open",    "aggregating", "evaluating",
                                            "published", "closing", "closed"};

const char *omm_coord_state_name(omm_coord_state state) {
    return s_state_names[state];
}

/* ---- open ---- */

static omm_err check_options(const omm_coord_options *o) {
    const omm_run_record *run = o->run;
    OMM_ASSERT(o->initial.read);
    OMM_ASSERT(o->evaluator.sample);
    OMM_ASSERT(o->evaluator.full);
    OMM_ASSERT(o->evaluator.render);
    const omm_coord_enrolment *enrolment = o->enrolment;
    size_t listed = enrolment ? enrolment->listed : run->node_count;
    size_t most = enrolment ? enrolment->node_max : run->node_count;
    if (most < 1) return omm_raise(OMM_ERR_CONFIG, "no node is enrolled");
    if (most > OMM_SELECTED_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%zu nodes are enrolled, at most %u fit an offer", most,
                         OMM_SELECTED_MAX);
    OMM_ASSERT(listed <= run->node_count && run->node_count <= most);
    if (run->rounds < 1) return omm_raise(OMM_ERR_CONFIG, "rounds: 0, at least 1");
    OMM_TRY(coord_room_check(o, most));
    if (o->policy.accept_min < 1) return omm_raise(OMM_ERR_CONFIG, "accept_min: 0, at least 1");
    if (!omm_public_key_equal(&o->key->public_key, &run->coordinator_key))
        return omm_raise(OMM_ERR_CONFIG, "the coordinator's key is not the one of the run record");
    for (size_t i = 0; i < run->node_count; i++) {
        omm_digest id = omm_key_id(&run->nodes[i].public_key);
        if (!omm_digest_equal(&id, &run->nodes[i].id))
            return omm_raise(OMM_ERR_CONFIG, "node %s: id is not that of its key",
                             run->nodes[i].name);
        if (i > 0 && i < listed && omm_digest_compare(&run->nodes[i - 1].id, &id) >= 0)
            return omm_raise(OMM_ERR_CONFIG, "nodes are not in ascending order of their ids: %s",
                             run->nodes[i].name);
    }
    OMM_TRY(omm_layout_check(&run->layout));
    OMM_TRY(omm_codec_check(&run->codec_up, &run->layout));
    return omm_codec_check(&run->codec_down, &run->layout);
}

static omm_err take_limits(omm_coord *c) {
    OMM_TRY(coord_range(&c->range, c->o.run));
    const size_t most = omm_codec_sent_bytes_max(&c->o.run->codec_up, c->layout);
    c->payload_bytes_max = most;
    if (omm_chunk_count(c->payload_bytes_max) > OMM_BLOB_CHUNKS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "a payload of up to %zu bytes does not fit %u chunks",
                         most, OMM_BLOB_CHUNKS_MAX);
    return OMM_OK;
}

static omm_err take_memory(omm_coord *c) {
    size_t sent_max = omm_codec_sent_bytes_max(&c->o.run->codec_down, c->layout);
    omm_buf_init(&c->sent, sent_max);
    omm_buf_init(&c->candidate_sent, sent_max);
    omm_buf_init(&c->offer, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&c->close, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&c->sent_arena, OMM_MESSAGE_ARENA_BYTES);
    c->nodes = omm_alloc(c->node_max, sizeof *c->nodes);
    c->by_id = omm_alloc(c->node_max, sizeof *c->by_id);
    c->history = omm_alloc(c->o.run->rounds, sizeof *c->history);
    if (!c->nodes || !c->by_id || !c->history)
        return omm_raise(OMM_ERR_NOMEM, "coordinator of %zu values and %u nodes", c->value_count,
                         c->node_max);
    c->residual_zero = omm_residual_zero(c->value_count);
    for (size_t i = 0; i < c->listed; i++) {
        c->nodes[i].counts = !c->o.extra || !c->o.extra[i];
        c->nodes[i].residual = c->residual_zero;
    }
    return OMM_OK;
}

/* The state that the round starts from, or that the last one ended with. */
static omm_err load_global(omm_coord *c) {
    const uint32_t number = c->round + (c->state >= OMM_COORD_PUBLISHED ? 1 : 0);
    if (c->state < OMM_COORD_PUBLISHED && coord_rollback_is_now(c)) return coord_rollback_apply(c);
    return number == 0 ? coord_state_begin_first(c) : coord_state_begin(c, number);
}

omm_err omm_coord_open(omm_coord **out, const omm_coord_options *options) {
    OMM_TRY(check_options(options));
    omm_coord *c = omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "coordinator");
    c->o = *options;
    c->listed = options->enrolment ? options->enrolment->listed : options->run->node_count;
    c->node_max =
        options->enrolment ? options->enrolment->node_max : (uint32_t)options->run->node_count;
    coord_room_share(c);
    c->layout = &options->run->layout;
    c->value_count = c->layout->value_count;
    omm_arena_init(&c->batch.arena, COORD_BATCH_ARENA_BYTES);
    c->layout_digest = omm_layout_digest(c->layout);
    omm_codec_put(c->codec_up, &options->run->codec_up);
    omm_codec_put(c->codec_down, &options->run->codec_down);
    omm_err err = take_memory(c);
    if (err == OMM_OK) err = take_limits(c);
    if (err == OMM_OK) err = coord_store_open(c);
    if (err == OMM_OK) err = coord_enrol_open(c);
    if (err == OMM_OK) err = coord_store_load(c);
    if (err == OMM_OK) err = coord_evidence_start(c);
    if (err == OMM_OK) err = coord_rollback_load(c);
    if (err == OMM_OK) err = load_global(c);
    if (err == OMM_OK) err = coord_canary_open(c);
    if (err != OMM_OK) {
        omm_coord_close(c);
        return err;
    }
    omm_log_event(c->o.log, OMM_LOG_INFO, "coordinator_ready",
                  OMM_LOG_STR("run_id", c->o.run->run_id), OMM_LOG_INT("round", c->round),
                  OMM_LOG_STR("state", omm_coord_state_name(c->state)));
    *out = c;
    return OMM_OK;
}

void omm_coord_close(omm_coord *c) {
    if (!c) return;
    if (c->nodes)
        for (size_t i = 0; i < c->o.run->node_count; i++) coord_upload_end(&c->nodes[i].upload);
    coord_canary_close(c);
    coord_enrol_close(c);
    omm_free(c->nodes);
    omm_free(c->by_id);
    omm_free(c->history);
    coord_candidate_forget(c);
    omm_arena_fini(&c->batch.arena);
    coord_state_drop(c);
    omm_buf_fini(&c->offer);
    omm_buf_fini(&c->close);
    omm_arena_fini(&c->sent_arena);
    if (c->uploads) omm_blobs_close(c->uploads);
    if (c->db) omm_db_close(c->db);
    omm_free(c);
}

/* ---- time ---- */

static void start_clock(omm_coord *c, uint64_t now_ms) {
    if (c->has_since) return;
    c->has_since = true;
    c->since_ms = now_ms;
}

/* Everybody else has spoken.  Where that is not enough for a round it waits, unless it stands in others' way (declined.c). */
static bool is_all_but_dry(const omm_coord *c) {
    return c->accepted_count >= c->o.policy.accept_min &&
           coord_round_done(c) + coord_declined_dry(c) >= c->selected_count;
}

static bool is_collected(const omm_coord *c, uint64_t now_ms) {
    return coord_round_done(c) >= c->selected_count || is_all_but_dry(c) ||
           coord_round_has_enough(c) || now_ms >= coord_deadline_ms(c) ||
           coord_declined_makes_way(c, now_ms);
}

static omm_err collect(omm_coord *c, uint64_t now_ms) {
    const uint64_t deadline_ms = coord_deadline_ms(c);
    c->ended_dry = now_ms < deadline_ms && coord_declined_makes_way(c, now_ms);
    OMM_TRY(coord_round_collected(c));
    if (c->ended_dry) coord_declined_made_way(c, deadline_ms);
    return OMM_OK;
}

uint64_t coord_next_deadline(const omm_coord *c, uint64_t now_ms) {
    switch (c->state) {
    case OMM_COORD_JOINING:
        return c->has_loss && !c->must_roll_back ? coord_round_opens_ms(c) : now_ms;
    case OMM_COORD_OPEN: return is_collected(c, now_ms) ? now_ms : coord_deadline_ms(c);
    case OMM_COORD_CLOSED: return OMM_COORD_NEVER;
    default: return now_ms;
    }
}

static omm_err tick_once(omm_coord *c, uint64_t now_ms) {
    switch (c->state) {
    case OMM_COORD_JOINING:
        if (!c->has_loss) return coord_evaluate_initial(c);
        if (c->must_roll_back) return coord_rollback_apply(c);
        return coord_round_opens_ms(c) <= now_ms ? coord_round_open(c, now_ms) : OMM_OK;
    case OMM_COORD_OPEN: return is_collected(c, now_ms) ? collect(c, now_ms) : OMM_OK;
    case OMM_COORD_AGGREGATING:
        /* The candidate is in memory only, so summing and publishing are one transition. */
        OMM_TRY(coord_round_aggregate(c));
        return coord_round_publish(c);
    case OMM_COORD_EVALUATING: return coord_round_publish(c);
    case OMM_COORD_PUBLISHED:
        OMM_TRY(coord_round_next(c));
        start_clock(c, now_ms);
        return OMM_OK;
    case OMM_COORD_CLOSING: return coord_run_close(c);
    case OMM_COORD_CLOSED: break;
    }
    return OMM_OK;
}

omm_err omm_coord_tick(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms) {
    OMM_TRY(coord_check_sound(c));
    OMM_ASSERT(!c->batch.open);
    start_clock(c, now_ms);
    coord_round_note_quorum(c, now_ms);
    omm_err err = tick_once(c, now_ms);
    coord_deadline_failed(c, now_ms, err);
    coord_round_note_quorum(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
    return err;
}

omm_err omm_coord_step(omm_buf *reply, uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms,
                       omm_bytes request, const char *peer) {
    omm_buf_clear(reply);
    OMM_TRY(coord_check_sound(c));
    if (c->batch.open && !omm_db_in_transaction(c->db))
        return omm_raise(OMM_ERR_IO, "a statement before failed, and SQLite gave the batch up");
    start_clock(c, now_ms);
    coord_canary_now(c, now_ms);
    c->last_node = OMM_COORD_NOBODY;
    c->payload = (omm_coord_payload){0};
    c->who[0] = '\0';
    c->peer_fresh = c->peer_tries = false;
    /* A deadline that has passed counts, whether or not somebody ticked in time. */
    omm_err err = OMM_OK;
    if (c->state == OMM_COORD_OPEN && now_ms >= coord_deadline_ms(c)) err = collect(c, now_ms);
    if (err == OMM_OK) err = coord_answer(reply, c, now_ms, request, peer);
    coord_deadline_failed(c, now_ms, err);
    coord_round_note_quorum(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
    return err;
}

/* ---- an operator's word ---- */

static omm_err check_running(const omm_coord *c) {
    OMM_ASSERT(!c->batch.open);
    OMM_TRY(coord_check_sound(c));
    if (c->state < OMM_COORD_CLOSING) return OMM_OK;
    return omm_raise(OMM_ERR_STATE, "the last round is over, nothing is left to change");
}

/* Who was ready before a long rest may be gone. */
static void gather_anew(omm_coord *c) {
    if (c->state != OMM_COORD_JOINING) return;
    for (size_t i = 0; i < c->o.run->node_count; i++) c->nodes[i].ready = false;
    c->has_quorum = c->has_since = false;
}

void omm_coord_hold(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, bool held) {
    if (c->held && !held) {
        gather_anew(c);
        (void)!coord_store_gather_anew(c); /* else it is so until the next start alone */
    }
    c->held = held;
    start_clock(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
}

uint64_t omm_coord_stage_ms(const omm_coord *c, uint64_t now_ms) {
    return c->has_since ? now_ms - c->since_ms : 0;
}

void omm_coord_resume_stage(omm_coord *c, uint64_t now_ms, uint64_t passed_ms) {
    c->has_since = true;
    c->since_ms = now_ms - (passed_ms < now_ms ? passed_ms : now_ms);
    if (c->state == OMM_COORD_OPEN) coord_deadline_spare(c, now_ms);
}

omm_err omm_coord_pause(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, bool paused) {
    OMM_TRY(check_running(c));
    if (c->paused == paused)
        return omm_raise(OMM_ERR_STATE, paused ? "it is paused already" : "it is not paused");
    OMM_TRY(coord_store_paused(c, paused));
    c->paused = paused;
    if (!paused) gather_anew(c);
    omm_log_event(c->o.log, OMM_LOG_INFO, paused ? "paused" : "resumed",
                  OMM_LOG_INT("round", c->round));
    start_clock(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
    return OMM_OK;
}

omm_err omm_coord_quarantine(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, size_t node,
                             bool quarantined) {
    OMM_ASSERT(node < c->o.run->node_count);
    OMM_TRY(check_running(c));
    if (c->nodes[node].revoked && !quarantined)
        return omm_raise(OMM_ERR_STATE, "%s is revoked, and that is for good",
                         c->o.run->nodes[node].name);
    if (c->nodes[node].quarantined == quarantined)
        return omm_raise(OMM_ERR_STATE, "%s is %s quarantine", c->o.run->nodes[node].name,
                         quarantined ? "already in" : "not in");
    if (!quarantined) OMM_TRY(coord_canary_release(c, node));
    OMM_TRY(coord_store_quarantine(c, node, quarantined));
    coord_set_quarantine(next_deadline_ms, c, now_ms, node, quarantined);
    return OMM_OK;
}

void coord_set_quarantine(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms, size_t node,
                          bool quarantined) {
    c->nodes[node].quarantined = quarantined;
    c->nodes[node].ready = false;
    c->has_quorum = false;
    coord_round_count_shut_out(c);
    omm_log_event(c->o.log, OMM_LOG_WARN, quarantined ? "node_quarantined" : "node_released",
                  OMM_LOG_INT("round", c->round), OMM_LOG_STR("node", c->o.run->nodes[node].name));
    /* What it owes the round is refused.  That cannot be written, or a kill comes first: then with its next word. */
    if (quarantined && c->state == OMM_COORD_OPEN) (void)!coord_refuse_upload(c, node);
    start_clock(c, now_ms);
    coord_round_note_quorum(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
}

void omm_coord_drain(omm_coord *c) {
    c->draining = true;
}

/* ---- queries ---- */

bool omm_coord_is_done(const omm_coord *c) {
    return c->state == OMM_COORD_CLOSED;
}

bool omm_coord_peer_is_fresh(const omm_coord *c) {
    return c->peer_fresh;
}

bool omm_coord_peer_stays(const omm_coord *c) {
    return c->peer_tries || c->last_node != OMM_COORD_NOBODY;
}

int32_t omm_coord_last_node(const omm_coord *c) {
    return c->last_node;
}

omm_coord_payload omm_coord_last_payload(const omm_coord *c) {
    return c->payload;
}

const omm_coord_round *omm_coord_history(uint32_t *count, const omm_coord *c) {
    *count = c->history_count;
    return c->history;
}

omm_coord_node_status omm_coord_get_node(const omm_coord *c, size_t index) {
    OMM_ASSERT(index < c->o.run->node_count);
    const coord_node *node = &c->nodes[index];
    return (omm_coord_node_status){.ready = node->ready,
                                   .selected = node->selected,
                                   .offered = node->offered,
                                   .uploading = node->upload.active,
                                   .settled = node->settled,
                                   .quarantined = node->quarantined,
                                   .revoked = node->revoked,
                                   .accepted = node->accepted_total,
                                   .refused = node->refused_total,
                                   .declined = node->declined};
}

omm_coord_status omm_coord_get_status(const omm_coord *c) {
    omm_coord_status status = {.state = c->state,
                               .round = c->round,
                               .rounds = c->o.run->rounds,
                               .selected = c->selected_count,
                               .accepted = c->accepted_count,
                               .refused = c->refused_count,
                               .has_loss = c->has_loss,
                               .loss = c->loss,
                               .paused = c->paused,
                               .draining = c->draining,
                               .held = c->held,
                               .is_spared = c->state == OMM_COORD_OPEN && c->has_failed,
                               .waited_ms = c->state == OMM_COORD_OPEN ? c->waited_ms : 0,
                               .quorum = coord_round_quorum(c),
                               .accept_min = c->o.policy.accept_min,
                               .refusals_total = c->refusals_total};
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        if (c->nodes[i].ready) status.ready++;
        if (c->nodes[i].quarantined) status.quarantined++;
    }
    coord_canary_count(&status, c);
    return status;
}
