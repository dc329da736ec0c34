/* canary_verdict.c - owns the end of the queue: jobs, what a verdict changes, the evidence of a failure.
 *
 *   passed   the verdict is kept, then a candidate with enough passes becomes a node (enrolment.sqlite); after a kill
 *            between the two it does at its next poll.  The other way round it would be a node that a canary holds, for
 *            whom no quorum waits.
 *   failed   evidence on disk, the node in quarantine (coordinator.sqlite), then the verdict is kept: both may be had
 *            twice, so a kill between them and the commit only repeats the replay
 */
#include "canary.h"

#include "omm/json.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define VERDICT_JSON_BYTES 4096u

/* ---- jobs ---- */

void omm_canary_job_fini(omm_canary_job *job) {
    omm_buf_fini(&job->payload);
    omm_arena_fini(&job->arena);
    *job = (omm_canary_job){0};
}

static omm_err read_bytes(omm_bytes *out, omm_arena *arena, omm_db *db, const omm_digest *id,
                          canary_column column) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_read(&bytes, db, id, column);
    uint8_t *copy = err == OMM_OK ? omm_arena_alloc(arena, bytes.size + 1, 1) : NULL;
    if (err == OMM_OK && !copy) err = omm_raise(OMM_ERR_NOMEM, "a canary's job");
    if (err == OMM_OK && bytes.size > 0) memcpy(copy, bytes.data, bytes.size);
    if (err == OMM_OK) *out = omm_bytes_of(copy, bytes.size);
    omm_buf_fini(&bytes);
    return err;
}

static omm_err fill_job(omm_canary_job *job, omm_coord *c, const canary_peer *p) {
    const coord_canary *w = c->canary;
    omm_envelope envelope;
    omm_offer offer;
    omm_seed nonce;
    OMM_TRY(read_bytes(&job->offer, &job->arena, w->db, &p->id, CANARY_OFFER));
    OMM_TRY(read_bytes(&job->envelope, &job->arena, w->db, &p->id, CANARY_SUBMISSION));
    OMM_TRY(omm_envelope_open(&envelope, job->offer));
    OMM_TRY(omm_offer_decode(&offer, envelope.payload, &job->arena));
    OMM_TRY(omm_envelope_open(&envelope, job->envelope));
    OMM_TRY(omm_submission_decode(&job->submission, envelope.payload, &job->arena));
    job->digest = p->submission;
    job->node = p->id;
    canary_name(job->name, c, p);
    job->recipe = offer.recipe;
    job->shard = (uint32_t)canary_shard_index(w, &offer.canary.digest);
    job->shards = w->o->shards;
    job->layout = c->layout;
    job->codec = &c->o.run->codec_up;
    job->start = w->start;
    memcpy(nonce.b, offer.nonce.b, sizeof nonce.b);
    job->seed = omm_seed_derive(&nonce, OMM_PURPOSE_TRAIN, omm_bytes_of(p->id.b, sizeof p->id.b));
    return omm_blobs_get(&job->payload, w->uploads, &job->submission.payload.digest);
}

/* The payload is not on the disk as it was: its node is asked for it once more. */
static omm_err ask_again(omm_coord *c, canary_peer *p) {
    canary_peer next = *p;
    next.state = CANARY_OFFERED;
    OMM_TRY(omm_blobs_remove(c->canary->uploads, &p->upload.submission.payload.digest));
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    coord_upload_end(&p->upload);
    p->state = CANARY_OFFERED;
    return OMM_OK;
}

omm_err omm_coord_canary_next(bool *found, omm_canary_job *job, omm_coord *c) {
    canary_peer *first = NULL;
    *found = false;
    *job = (omm_canary_job){0};
    if (!c->canary || c->state >= OMM_COORD_CLOSING) return OMM_OK;
    for (size_t i = 0; i < c->canary->peer_count; i++) {
        canary_peer *p = c->canary->peers[i];
        if (p->state == CANARY_WAITING && (!first || p->place < first->place)) first = p;
    }
    if (!first) return OMM_OK;
    omm_arena_init(&job->arena, (size_t)4 * OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&job->payload, (size_t)c->payload_bytes_max);
    const omm_err err = fill_job(job, c, first);
    if (err != OMM_OK) omm_canary_job_fini(job);
    *found = err == OMM_OK;
    return err == OMM_ERR_DIGEST || err == OMM_ERR_NOT_FOUND ? ask_again(c, first) : err;
}

/* ---- evidence ---- */

static omm_err fill_verdict(json_t *root, const omm_canary_job *job, const omm_canary_result *r) {
    const omm_digest shard = omm_hash(job->shards[job->shard].text);
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(omm_json_set_str(root, "node", job->name));
    OMM_TRY(omm_json_set_digest(root, "id", job->node.b));
    OMM_TRY(omm_json_set_digest(root, "submission", job->digest.b));
    OMM_TRY(omm_json_set_str(root, "shard", job->shards[job->shard].name));
    OMM_TRY(omm_json_set_digest(root, "shard_digest", shard.b));
    OMM_TRY(omm_json_set_int(root, "step", r->step));
    OMM_TRY(omm_json_set_digest(root, "claimed", r->claimed.b));
    OMM_TRY(omm_json_set_digest(root, "repeated", r->repeated.b));
    return omm_json_set_str(root, "why", r->why);
}

static omm_err write_one(const char *dir, const char *name, omm_bytes bytes) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, dir, name));
    return omm_file_write(path, bytes, 0644);
}

static omm_err write_evidence(const char *dir, const omm_canary_job *job,
                              const omm_canary_result *r) {
    omm_buf text;
    omm_buf_init(&text, VERDICT_JSON_BYTES);
    json_t *root = json_object();
    omm_err err = root ? fill_verdict(root, job, r) : omm_raise(OMM_ERR_NOMEM, "JSON");
    if (err == OMM_OK) err = omm_json_write(&text, root);
    if (err == OMM_OK) err = omm_dir_make(dir);
    if (err == OMM_OK) err = write_one(dir, "offer.env", job->offer);
    if (err == OMM_OK) err = write_one(dir, "submission.env", job->envelope);
    if (err == OMM_OK) err = write_one(dir, "payload.bin", omm_buf_view(&job->payload));
    if (err == OMM_OK) err = write_one(dir, "shard.jsonl", job->shards[job->shard].text);
    if (err == OMM_OK) err = write_one(dir, "verdict.json", omm_buf_view(&text));
    json_decref(root);
    omm_buf_fini(&text);
    return err;
}

/* state_dir/canaries/failed/<16 digits of the submission>; of candidates, who cost nothing but work, some. */
static omm_err keep_evidence(const omm_coord *c, const canary_peer *p, const omm_canary_job *job,
                             const omm_canary_result *r) {
    char all[OMM_PATH_MAX], dir[OMM_PATH_MAX], hex[OMM_DIGEST_HEX_SIZE];
    uint64_t failed = 0;
    if (!c->o.state_dir) return OMM_OK;
    if (p->node < 0) OMM_TRY(canary_store_failed_count(&failed, c->canary->db));
    if (failed >= CANARY_EVIDENCE_MAX) return OMM_OK;
    omm_digest_hex(hex, &job->digest);
    hex[16] = '\0';
    OMM_TRY(omm_path_join(all, c->o.state_dir, "canaries/failed"));
    OMM_TRY(omm_path_join(dir, all, hex));
    return write_evidence(dir, job, r);
}

/* ---- what it changes ---- */

/* A candidate that is a node of the run by now. */
static void is_node(omm_coord *c, canary_peer *p) {
    p->node = coord_node_find(c, &p->id);
    OMM_ASSERT(p->node >= 0);
    c->canary->of_node[p->node] = p;
}

omm_err coord_canary_let_in(omm_coord *c, canary_peer *p) {
    OMM_TRY(coord_enrol_let_in(c, &p->key, p->by));
    is_node(c, p);
    return OMM_OK;
}

omm_err coord_canary_invited(omm_coord *c, const omm_digest *id) {
    canary_peer *p = canary_find(c->canary, id);
    OMM_ASSERT(p);
    is_node(c, p);
    if (p->state != CANARY_DUE) return OMM_OK;
    canary_peer next = *p;
    next.state = CANARY_PASSED;
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    *p = next;
    return OMM_OK;
}

static omm_err have_failed(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms,
                           const canary_peer *p, const omm_canary_job *job,
                           const omm_canary_result *r) {
    OMM_TRY(keep_evidence(c, p, job, r));
    if (p->node < 0 || c->nodes[p->node].quarantined) return OMM_OK;
    return omm_coord_quarantine(next_deadline_ms, c, now_ms, (size_t)p->node, true);
}

static omm_err let_in_when_tried(omm_coord *c, canary_peer *p) {
    if (p->node >= 0 || p->passes < c->canary->o->passes) return OMM_OK;
    const omm_err err = coord_canary_let_in(c, p);
    const bool is_refused = err == OMM_ERR_REFUSED_FULL || err == OMM_ERR_REFUSED_KEY;
    return is_refused ? OMM_OK : err; /* asked again at its next poll */
}

/* Payloads are shared by content: it stays while another's canary waits with the same one. */
static omm_err remove_payload(coord_canary *w, const canary_peer *of, const omm_digest *payload) {
    for (size_t i = 0; i < w->peer_count; i++) {
        const canary_peer *p = w->peers[i];
        if (p != of && (p->state == CANARY_UPLOADING || p->state == CANARY_WAITING) &&
            omm_digest_equal(&p->upload.submission.payload.digest, payload))
            return OMM_OK;
    }
    return omm_blobs_remove(w->uploads, payload);
}

static void tell(omm_coord *c, const canary_peer *p, const omm_canary_result *r) {
    char name[80];
    canary_name(name, c, p);
    omm_log_event(c->o.log, r->passed ? OMM_LOG_INFO : OMM_LOG_WARN,
                  r->passed ? "canary_passed" : "canary_failed", OMM_LOG_STR("node", name),
                  OMM_LOG_INT("number", p->number), OMM_LOG_STR("why", r->why));
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_CANARY,
                                     .round = c->round,
                                     .node = p->node,
                                     .reason = r->passed ? OMM_OK : OMM_ERR_REFUSED_DIGEST,
                                     .sentence = r->why,
                                     .peer = name,
                                     .digest = &p->submission});
}

static omm_err keep_verdict(omm_coord *c, canary_peer *p, const omm_canary_result *r,
                            omm_bytes receipt) {
    coord_canary *w = c->canary;
    canary_peer next = *p;
    next.state = r->passed ? CANARY_PASSED : CANARY_FAILED;
    next.passes += r->passed;
    next.moved_ms = coord_wall_ms(c);
    (void)snprintf(next.reason, sizeof next.reason, "%s", r->why);
    if (p->node < 0 && !r->passed)
        OMM_TRY(canary_store_failed(w->db, &next, receipt));
    else
        OMM_TRY(canary_store_save(w->db, &next, CANARY_RECEIPT, receipt));
    *p = next;
    return OMM_OK;
}

static canary_peer *find_waiting(const coord_canary *w, const omm_canary_job *job) {
    canary_peer *p = canary_find(w, &job->node);
    const bool is_it =
        p && p->state == CANARY_WAITING && omm_digest_equal(&p->submission, &job->digest);
    return is_it ? p : NULL;
}

omm_err omm_coord_canary_verdict(uint64_t *next_deadline_ms, omm_coord *c, uint64_t now_ms,
                                 const omm_canary_job *job, const omm_canary_result *r) {
    OMM_ASSERT(c->canary && !c->batch.open);
    if (c->state >= OMM_COORD_CLOSING)
        return omm_raise(OMM_ERR_STATE, "the last round is over, no canary is judged any more");
    canary_peer *p = find_waiting(c->canary, job);
    if (!p) return OMM_OK;
    omm_buf receipt;
    omm_err err = OMM_OK;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    OMM_TRY_OUT(coord_receipt(&receipt, c, job->submission.round, &p->id, &p->submission,
                              r->passed ? OMM_OK : OMM_ERR_REFUSED_DIGEST, r->why));
    if (!r->passed) OMM_TRY_OUT(have_failed(next_deadline_ms, c, now_ms, p, job, r));
    omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_verdict");
    tell(c, p, r); /* before it is kept: a kill between the two says it twice, never not at all */
    OMM_TRY_OUT(keep_verdict(c, p, r, omm_buf_view(&receipt)));
    omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_kept");
    OMM_TRY_OUT(remove_payload(c->canary, p, &job->submission.payload.digest));
    coord_upload_end(&p->upload);
    OMM_TRY_OUT(let_in_when_tried(c, p));
    if (p->node < 0 && p->state == CANARY_FAILED) canary_forget_peer(c->canary, p);
    coord_round_note_quorum(c, now_ms);
    *next_deadline_ms = coord_next_deadline(c, now_ms);
out:
    omm_buf_fini(&receipt);
    return err;
}

/* ---- the operator ---- */

const char *coord_canary_reason(const omm_coord *c, size_t node) {
    const canary_peer *p = c->canary ? c->canary->of_node[node] : NULL;
    return p && p->state == CANARY_FAILED ? p->reason : "";
}

omm_err coord_canary_release(omm_coord *c, size_t node) {
    canary_peer *p = c->canary ? c->canary->of_node[node] : NULL;
    if (!p || p->state != CANARY_FAILED) return OMM_OK;
    canary_peer next = *p;
    next.state = CANARY_PASSED; /* by the operator's word */
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    *p = next;
    return OMM_OK;
}

omm_err coord_canary_list(omm_buf *out, const omm_coord *c) {
    static const char *const states[] = {"waits for its canary",  "trains", "uploads",
                                         "waits for its verdict", "passed", "failed"};
    const coord_canary *w = c->canary;
    uint32_t left = 0;
    for (size_t i = 0; w && i < w->peer_count; i++) {
        const canary_peer *p = w->peers[i];
        char hex[OMM_DIGEST_HEX_SIZE], name[80];
        if (p->node >= 0) continue;
        if (!coord_list_has_room(out, 0)) {
            left++;
            continue;
        }
        omm_digest_hex(hex, &p->id);
        hex[16] = '\0';
        canary_name(name, c, p);
        OMM_TRY(omm_buf_printf(out, "%s  %-10s  %u of %u canaries, %s  %s  by %s\n", hex,
                               "candidate", p->passes, w->o->passes, states[p->state], name,
                               p->by));
    }
    return left > 0 ? omm_buf_printf(out, "and %u more candidates\n", left) : OMM_OK;
}

void coord_canary_count(omm_coord_status *out, const omm_coord *c) {
    const coord_canary *w = c->canary;
    out->has_canaries = w != NULL;
    for (size_t i = 0; w && i < w->peer_count; i++) {
        const canary_peer *p = w->peers[i];
        out->candidates += p->node < 0;
        out->canaries_waiting += p->state == CANARY_WAITING;
        out->canaries_open += p->state <= CANARY_UPLOADING;
    }
}
