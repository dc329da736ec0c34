/* canary_submit.c - owns the way of a canary's answer into the queue: manifest, chunks, one place.
 *
 * Cheap checks first, as in submit.c; a refusal here is not remembered and settles nothing, because the
 * canary stays offered until it is answered.  What it costs to train again is asked for last, and ends at
 * the first step that differs (canary_replay.c).
 */
#include "canary.h"
#include "submit.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

omm_blob_plan canary_plan(const canary_peer *p) {
    return coord_upload_plan(&p->upload, &p->id);
}

/* ---- the manifest ---- */

static omm_err check_work(const omm_coord *c, const omm_offer *offer, const omm_submission *s) {
    const coord_canary *w = c->canary;
    if (!omm_digest_equal(&s->nonce, &offer->nonce))
        return omm_raise(OMM_ERR_REFUSED_ROUND, "nonce: not that of the canary");
    if (!omm_digest_equal(&s->base_digest, &c->o.run->base.digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "base_digest: not the base model of this run");
    if (!omm_digest_equal(&s->global_digest, &w->global.digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "global_digest: not the adapter of the canary");
    if (!omm_digest_equal(&s->data_commitment, &offer->canary.digest))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "data_commitment: not the data of the canary");
    if (!omm_digest_equal(&s->residual_before, &c->residual_zero) ||
        !omm_digest_equal(&s->residual_after, &c->residual_zero))
        return omm_raise(OMM_ERR_REFUSED_RESIDUAL, "residuals: a canary has none");
    if (s->steps < 1 || s->step_digests.size != (size_t)s->steps * 8)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "step_digests: %zu bytes for %u steps of 8",
                         s->step_digests.size, s->steps);
    return OMM_OK;
}

static omm_err check_payload(const omm_coord *c, const omm_submission *s) {
    if (!omm_bytes_equal(s->codec, omm_bytes_of(c->codec_up, sizeof c->codec_up)))
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "codec: not the codec of the offer");
    if (s->payload.size > c->payload_bytes_max)
        return omm_raise(OMM_ERR_REFUSED_BUDGET, "payload.size: %" PRIu64 " is over %" PRIu64,
                         s->payload.size, c->payload_bytes_max);
    return OMM_OK;
}

static omm_err check_manifest(omm_coord *c, const canary_peer *p, const omm_submission *s,
                              omm_arena *arena) {
    omm_buf bytes;
    omm_envelope envelope;
    omm_offer offer;
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_read(&bytes, c->canary->db, &p->id, CANARY_OFFER);
    if (err == OMM_OK) err = omm_envelope_open(&envelope, omm_buf_view(&bytes));
    if (err == OMM_OK) err = omm_offer_decode(&offer, envelope.payload, arena);
    omm_buf_fini(&bytes);
    OMM_TRY(err);
    OMM_TRY(check_work(c, &offer, s));
    return check_payload(c, s);
}

/* ---- a place in the queue ---- */

/* Back to what was offered: its chunks go. */
static omm_err drop_upload(omm_coord *c, canary_peer *p) {
    canary_peer next = *p;
    const omm_blob_plan plan = canary_plan(p);
    next.state = CANARY_OFFERED;
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    OMM_TRY(omm_blobs_drop_partial(c->canary->uploads, &plan));
    p->state = CANARY_OFFERED;
    coord_upload_end(&p->upload);
    return OMM_OK;
}

/* Candidates and nodes have places of their own: a flood of the former keeps none of the latter out.  An
 * upload that stands still gives its place away. */
static omm_err find_place(bool *found, omm_coord *c, const canary_peer *who) {
    coord_canary *w = c->canary;
    canary_peer *still = NULL;
    uint32_t taken = 0;
    for (size_t i = 0; i < w->peer_count; i++) {
        canary_peer *p = w->peers[i];
        if (p == who || (p->node < 0) != (who->node < 0)) continue;
        if (p->state != CANARY_UPLOADING && p->state != CANARY_WAITING) continue;
        taken++;
        if (p->chunk_ms == COORD_BEFORE) p->chunk_ms = w->now_ms;
        if (p->state == CANARY_UPLOADING && w->now_ms >= p->chunk_ms + CANARY_UPLOAD_MS) still = p;
    }
    *found = taken < OMM_COORD_CANARY_QUEUE_MAX || still;
    if (taken < OMM_COORD_CANARY_QUEUE_MAX || !still) return OMM_OK;
    return drop_upload(c, still);
}

/* ---- chunks ---- */

/* All is there: it waits for its replay. */
static omm_err complete(omm_buf *reply, omm_coord *c, canary_peer *p) {
    canary_peer next = *p;
    next.state = CANARY_WAITING;
    next.place = c->canary->places + 1;
    next.moved_ms = coord_wall_ms(c);
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    c->canary->places++;
    *p = next;
    omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_waiting");
    return coord_reply_wait(reply, c);
}

static omm_err go_on(omm_buf *reply, omm_coord *c, canary_peer *p) {
    const omm_blob_plan plan = canary_plan(p);
    size_t count = 0;
    uint32_t *missing = omm_alloc(plan.chunk_count, sizeof *missing);
    if (!missing) return omm_raise(OMM_ERR_NOMEM, "%zu chunk indices", plan.chunk_count);
    omm_err err = omm_blobs_missing(missing, &count, c->canary->uploads, &plan);
    if (err == OMM_OK && count > 0) {
        const omm_reply r = {.kind = OMM_REPLY_NEED, .missing = missing, .missing_count = count};
        err = omm_reply_encode(reply, &r);
    }
    omm_free(missing);
    if (err != OMM_OK || count > 0) return err;
    return complete(reply, c, p);
}

static omm_err put_chunk(omm_buf *reply, omm_coord *c, canary_peer *p, uint32_t index,
                         omm_bytes data) {
    const omm_blob_plan plan = canary_plan(p);
    bool whole = false;
    const omm_err err = omm_blobs_put_chunk(&whole, c->canary->uploads, &plan, index, data);
    if (err != OMM_OK && !coord_is_refusal(err)) return err;
    if (err == OMM_OK) {
        p->chunk_ms = c->canary->now_ms;
        omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_upload");
        return go_on(reply, c, p);
    }
    /* Every chunk is as announced, so the manifest contradicts itself: another one may come. */
    OMM_TRY(drop_upload(c, p));
    const omm_reply r = {.kind = OMM_REPLY_REFUSED,
                         .reason = err,
                         .sentence = "payload: not the blob that its chunks were announced as"};
    return omm_reply_encode(reply, &r);
}

/* whole: the payload, where it came with the manifest and was checked to be its one chunk. */
static omm_err go_on_with(omm_buf *reply, omm_coord *c, canary_peer *p, omm_bytes whole) {
    return whole.size > 0 ? put_chunk(reply, c, p, 0, whole) : go_on(reply, c, p);
}

omm_err coord_canary_put(omm_buf *reply, bool *answered, omm_coord *c, const omm_request *request,
                         const omm_digest *digest) {
    if (!c->canary) return OMM_OK;
    omm_buf other;
    omm_err err = OMM_OK;
    omm_buf_init(&other, OMM_MESSAGE_BYTES_MAX);
    for (size_t i = 0; i < c->canary->peer_count && err == OMM_OK; i++) {
        canary_peer *p = c->canary->peers[i];
        const omm_blob *payload = &p->upload.submission.payload;
        if (p->state != CANARY_UPLOADING || request->index >= payload->chunk_count ||
            !omm_digest_equal(&payload->digest, &request->digest) ||
            !omm_digest_equal(&payload->chunk_digests[request->index], digest))
            continue;
        omm_buf *into = *answered ? &other : reply;
        omm_buf_clear(into);
        err = put_chunk(into, c, p, request->index, request->data);
        if (!*answered) c->last_node = p->node;
        c->peer_tries = *answered = true;
    }
    omm_buf_fini(&other);
    return err;
}

/* ---- submissions ---- */

static omm_err reply_receipt(omm_buf *reply, omm_bytes receipt) {
    const omm_reply r = {.kind = OMM_REPLY_RECEIPT, .envelope = receipt};
    return omm_reply_encode(reply, &r);
}

/* The verdict of this very submission, if the candidate failed by it. */
static omm_err answer_failed(bool *handled, omm_buf *reply, const omm_coord *c,
                             const omm_digest *id, const omm_digest *digest) {
    omm_buf receipt;
    omm_digest submission;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_find_failed(handled, NULL, &submission, &receipt, c->canary->db, id);
    *handled = err == OMM_OK && *handled && omm_digest_equal(&submission, digest);
    if (*handled) err = reply_receipt(reply, omm_buf_view(&receipt));
    omm_buf_fini(&receipt);
    return err;
}

static omm_err answer_settled(omm_buf *reply, const omm_coord *c, const canary_peer *p) {
    omm_buf receipt;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_read(&receipt, c->canary->db, &p->id, CANARY_RECEIPT);
    if (err == OMM_OK) err = reply_receipt(reply, omm_buf_view(&receipt));
    omm_buf_fini(&receipt);
    return err;
}

/* Signed, so that the node does not ask on: it is to hear of the end of the run. */
static omm_err answer_late(omm_buf *reply, const omm_coord *c, const canary_peer *p,
                           const omm_submission *s, const omm_digest *digest) {
    omm_buf receipt;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = coord_receipt(&receipt, c, s->round, &p->id, digest, OMM_ERR_REFUSED_LATE,
                                "canary: the run was over before it was judged");
    if (err == OMM_OK) err = reply_receipt(reply, omm_buf_view(&receipt));
    omm_buf_fini(&receipt);
    return err;
}

static omm_err replace(omm_coord *c, canary_peer *p) {
    if (p->replaced_count >= COORD_REPLACED_MAX)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                         "canary: node has started over %u times, the limit", p->replaced_count);
    OMM_TRY(drop_upload(c, p));
    p->replaced_count++;
    return OMM_OK;
}

static omm_err announce(omm_buf *reply, omm_coord *c, canary_peer *p, const omm_request *request,
                        const omm_digest *digest) {
    const omm_bytes bytes = request->envelope;
    canary_peer next = *p;
    bool found = false;
    OMM_TRY(find_place(&found, c, p));
    if (!found) return coord_reply_wait(reply, c);
    next.state = CANARY_UPLOADING;
    next.submission = *digest;
    next.chunk_ms = c->canary->now_ms;
    OMM_TRY(coord_upload_open(&p->upload, digest, bytes));
    next.upload = p->upload;
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_SUBMISSION, bytes));
    *p = next;
    return go_on_with(reply, c, p, request->data);
}

static omm_err take(omm_buf *reply, omm_coord *c, canary_peer *p, const omm_submission *s,
                    const omm_request *request, const omm_digest *digest, omm_arena *arena) {
    const bool same = omm_digest_equal(&p->submission, digest);
    if (c->state >= OMM_COORD_CLOSING) return answer_late(reply, c, p, s, digest);
    if (p->node >= 0 && c->nodes[p->node].quarantined)
        return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, "canary: node is in quarantine");
    if (p->state == CANARY_WAITING && same) return coord_reply_wait(reply, c);
    if (p->state == CANARY_WAITING)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE, "canary: it was answered already");
    OMM_TRY(coord_upload_check_whole(&s->payload, request->data));
    if (p->state == CANARY_UPLOADING && same) return go_on_with(reply, c, p, request->data);
    OMM_TRY(check_manifest(c, p, s, arena));
    if (p->state == CANARY_UPLOADING) OMM_TRY(replace(c, p));
    return announce(reply, c, p, request, digest);
}

/* A submission of a node of the run that is not for its open canary goes the usual way. */
omm_err coord_canary_submit(bool *handled, omm_buf *reply, omm_coord *c, const omm_request *request,
                            const omm_digest *digest, omm_arena *arena) {
    omm_envelope envelope;
    omm_submission s;
    *handled = false;
    if (!c->canary || omm_envelope_open(&envelope, request->envelope) != OMM_OK) return OMM_OK;
    const omm_digest id = omm_key_id(&envelope.key);
    canary_peer *p = canary_find(c->canary, &id);
    if (!p && coord_node_find(c, &id) >= 0) return OMM_OK;
    if (!p) return answer_failed(handled, reply, c, &id, digest);
    const bool is_open = p->state >= CANARY_OFFERED && p->state <= CANARY_WAITING;
    const bool is_settled = p->state == CANARY_PASSED || p->state == CANARY_FAILED;
    if (is_settled && omm_digest_equal(&p->submission, digest)) {
        *handled = true;
        if (p->node >= 0) c->payload.up = request->data.size; /* it has signed this before */
        return answer_settled(reply, c, p);
    }
    if (p->node >= 0 && !is_open) return OMM_OK;
    omm_err err = omm_envelope_verify(&envelope, OMM_CONTEXT_SUBMISSION);
    if (err == OMM_OK) err = omm_submission_decode(&s, envelope.payload, arena);
    if (err == OMM_OK && (!is_open || !omm_digest_equal(&s.offer_digest, &p->offer_digest)))
        err = omm_raise(OMM_ERR_REFUSED_ROUND, "offer_digest: not the canary that is open");
    if (err != OMM_OK && p->node >= 0 && err != OMM_ERR_NOMEM) return OMM_OK;
    *handled = true;
    OMM_TRY(err);
    c->last_node = p->node;
    c->peer_tries = true;
    return take(reply, c, p, &s, request, digest, arena);
}
