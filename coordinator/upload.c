/* upload.c - a payload, from its first chunk to the verdict.
 *
 * Each chunk is checked against the manifest as it comes.  When all are there, in this order, and settled at the
 * first failure:
 *   payload digest, described by this manifest, decode, canonical digest, range, norm
 * A payload is decoded piece by piece, so a verdict takes the memory of what was sent.
 */
#include "submit.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void coord_upload_end(coord_upload *upload) {
    if (upload->active) omm_arena_fini(&upload->arena);
    *upload = (coord_upload){0};
}

omm_err coord_upload_open(coord_upload *upload, const omm_digest *digest, omm_bytes envelope) {
    coord_upload fresh = {.active = true, .digest = *digest};
    omm_arena_init(&fresh.arena, COORD_UPLOAD_ARENA_BYTES);
    omm_envelope opened;
    omm_err err = omm_envelope_open(&opened, envelope);
    if (err == OMM_OK) err = omm_submission_decode(&fresh.submission, opened.payload, &fresh.arena);
    if (err != OMM_OK) {
        omm_arena_fini(&fresh.arena);
        return err;
    }
    coord_upload_end(upload);
    *upload = fresh;
    return OMM_OK;
}

omm_blob_plan coord_upload_plan(const coord_upload *upload, const omm_digest *owner) {
    const omm_blob *payload = &upload->submission.payload;
    return (omm_blob_plan){.owner = *owner,
                           .digest = payload->digest,
                           .size = payload->size,
                           .chunk_bytes = OMM_CHUNK_BYTES,
                           .chunk_digests = payload->chunk_digests,
                           .chunk_count = payload->chunk_count};
}

/* ---- the verdict ---- */

static omm_blob_plan plan_of(const omm_coord *c, uint32_t node) {
    return coord_upload_plan(&c->nodes[node].upload, &c->o.run->nodes[node].id);
}

/* The blob may have come through the manifest of another node: this one must describe it too. */
static omm_err check_described(const omm_submission *s, omm_bytes sent) {
    if (sent.size != s->payload.size)
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "payload.size: %" PRIu64 ", the payload has %zu",
                         s->payload.size, sent.size);
    for (uint32_t i = 0; i < s->payload.chunk_count; i++) {
        omm_digest digest = omm_hash(omm_chunk_view(sent, i));
        if (!omm_digest_equal(&digest, &s->payload.chunk_digests[i]))
            return omm_raise(OMM_ERR_REFUSED_DIGEST,
                             "payload.chunk_digests: %u is not that of the payload", i);
    }
    return OMM_OK;
}

static omm_err check_values(double *norm, const omm_coord *c, const omm_submission *s,
                            omm_bytes sent) {
    omm_encoded info;
    omm_bounds bounds = {.value_max = c->o.run->value_max};
    OMM_TRY(omm_codec_walk_known(&info, &c->o.run->codec_up, c->layout, sent, omm_bounds_piece,
                                 &bounds));
    if (!omm_digest_equal(&info.payload_digest, &s->payload.canonical))
        return omm_raise(OMM_ERR_REFUSED_DIGEST,
                         "payload.canonical_digest: not that of the decoded payload");
    return omm_bounds_end(norm, &bounds, c->o.run->norm_max);
}

/* Decode the whole payload; a refusal is a verdict, other errors are our own. */
static omm_err judge_payload(coord_row *row, char sentence[SENTENCE_SIZE], omm_coord *c,
                             const omm_submission *s) {
    omm_buf sent;
    omm_buf_init(&sent, (size_t)c->payload_bytes_max);
    omm_err err = OMM_OK;
    OMM_TRY_OUT(omm_blobs_get(&sent, c->uploads, &s->payload.digest));
    err = check_described(s, omm_buf_view(&sent));
    if (err == OMM_OK) err = check_values(&row->norm, c, s, omm_buf_view(&sent));
    if (err != OMM_OK && !coord_is_refusal(err)) goto out;
    row->reason = err;
    row->status = err == OMM_OK ? COORD_ACCEPTED : COORD_REFUSED;
    row->residual = s->residual_after;
    if (err != OMM_OK) {
        (void)snprintf(sentence, SENTENCE_SIZE, "%s", omm_err_sentence());
        row->norm = 0;
    }
    err = OMM_OK;
out:
    omm_buf_fini(&sent);
    return err;
}

/* The node's open upload, if it has one, becomes a refusal; reply may be NULL. */
static omm_err refuse_upload(omm_buf *reply, omm_coord *c, size_t node, omm_err reason,
                             const char *sentence) {
    const coord_upload *upload = &c->nodes[node].upload;
    if (!upload->active) return OMM_OK;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    coord_row row;
    bool found = false;
    omm_err err = coord_store_find(&found, &row, c, &upload->digest, &arena);
    if (err == OMM_OK && found) {
        row.reason = reason;
        row.sentence = sentence;
        row.status = COORD_REFUSED;
        err = coord_settle(reply, c, &row);
    }
    omm_arena_fini(&arena);
    return err;
}

/* All chunks are there: accept or refuse. */
static omm_err finish_upload(omm_buf *reply, omm_coord *c, uint32_t node) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    char sentence[SENTENCE_SIZE] = "";
    coord_row row;
    bool found = false;
    omm_err err = OMM_OK;
    OMM_TRY_OUT(coord_store_find(&found, &row, c, &c->nodes[node].upload.digest, &arena));
    OMM_ASSERT(found);
    row.sentence = sentence;
    OMM_TRY_OUT(judge_payload(&row, sentence, c, &c->nodes[node].upload.submission));
    bool copy = false;
    if (row.status == COORD_ACCEPTED) OMM_TRY_OUT(coord_store_is_copy(&copy, c, &row));
    OMM_TRY_OUT(coord_settle(reply, c, &row));
    if (row.status == COORD_ACCEPTED) c->nodes[node].residual = row.residual;
    if (copy)
        coord_log_kept(c, OMM_LOG_WARN, "payload_copied", OMM_LOG_INT("round", c->round),
                       OMM_LOG_STR("node", c->o.run->nodes[node].name));
out:
    omm_arena_fini(&arena);
    return err;
}

static omm_err reply_need(omm_buf *reply, omm_coord *c, uint32_t node, size_t *missing_count) {
    omm_blob_plan plan = plan_of(c, node);
    uint32_t *missing = omm_alloc(plan.chunk_count, sizeof *missing);
    if (!missing) return omm_raise(OMM_ERR_NOMEM, "%zu chunk indices", plan.chunk_count);
    omm_err err = omm_blobs_missing(missing, missing_count, c->uploads, &plan);
    if (err == OMM_OK && *missing_count > 0) {
        omm_reply r = {.kind = OMM_REPLY_NEED, .missing = missing, .missing_count = *missing_count};
        err = omm_reply_encode(reply, &r);
    }
    omm_free(missing);
    return err;
}

/* What is missing, or the verdict when nothing is.  Who is in quarantine since it announced this, and could not be refused
 * then, is refused now. */
static omm_err go_on(omm_buf *reply, omm_coord *c, uint32_t node) {
    size_t missing = 0;
    if (c->nodes[node].quarantined)
        return refuse_upload(reply, c, node, OMM_ERR_REFUSED_NOT_SELECTED, IN_QUARANTINE);
    OMM_TRY(reply_need(reply, c, node, &missing));
    return missing > 0 ? OMM_OK : finish_upload(reply, c, node);
}

/* taken: false when the node was refused for it. */
static omm_err put_chunk(omm_buf *reply, bool *taken, omm_coord *c, uint32_t node, uint32_t index,
                         omm_bytes data) {
    omm_blob_plan plan = plan_of(c, node);
    bool complete = false;
    if (c->nodes[node].quarantined) {
        *taken = false;
        return go_on(reply, c, node);
    }
    omm_err err = omm_blobs_put_chunk(&complete, c->uploads, &plan, index, data);
    omm_crash_point(c->o.state_dir, c->o.crash_at, "mid_upload");
    *taken = err == OMM_OK;
    if (err == OMM_OK) return go_on(reply, c, node);
    if (!coord_is_refusal(err)) return err;
    /* Every chunk is as announced, so the manifest contradicts itself: that is the node's fault. */
    char sentence[SENTENCE_SIZE];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    return refuse_upload(reply, c, node, err, sentence);
}

omm_err coord_upload_check_whole(const omm_blob *payload, omm_bytes whole) {
    if (whole.size == 0) return OMM_OK;
    const omm_digest digest = omm_hash(whole);
    if (payload->size == whole.size && omm_digest_equal(&digest, &payload->chunk_digests[0]))
        return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_DIGEST, "payload: not the %" PRIu64 " bytes of the manifest",
                     payload->size);
}

omm_err coord_upload_go_on(omm_buf *reply, omm_coord *c, uint32_t node, omm_bytes whole) {
    bool taken = false;
    return whole.size > 0 ? put_chunk(reply, &taken, c, node, 0, whole) : go_on(reply, c, node);
}

omm_err coord_upload_replace(omm_coord *c, uint32_t index) {
    coord_node *node = &c->nodes[index];
    omm_blob_plan old = plan_of(c, index);
    /* Its row last: an upload without chunks asks for them again, one without a row has no end. */
    OMM_TRY(omm_blobs_drop_partial(c->uploads, &old));
    OMM_TRY(coord_store_drop(c, c->round, &node->upload.digest));
    node->replaced[node->replaced_count++] = node->upload.digest;
    coord_upload_end(&node->upload);
    return OMM_OK;
}

omm_err coord_upload_restore(omm_coord *c, const coord_row *row) {
    return coord_upload_open(&c->nodes[row->node].upload, &row->digest, row->bytes);
}

/* ---- chunks ---- */

/* Does this chunk belong to the node's upload: the same payload, and the same chunk in its manifest? */
static bool takes_chunk(const coord_upload *upload, const omm_request *request,
                        const omm_digest *digest, bool *announced) {
    if (!upload->active || !omm_digest_equal(&upload->submission.payload.digest, &request->digest))
        return false;
    *announced = true;
    const omm_blob *payload = &upload->submission.payload;
    return request->index < payload->chunk_count &&
           omm_digest_equal(&payload->chunk_digests[request->index], digest);
}

/* No open upload takes it: its submission is settled already, or never was. */
static omm_err answer_stray_chunk(omm_buf *reply, omm_coord *c, const omm_request *request,
                                  bool announced, omm_arena *arena) {
    if (announced)
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "data: not chunk %u of the manifest",
                         request->index);
    coord_row row;
    bool found = false;
    OMM_TRY(coord_store_find_payload(&found, &row, c, &request->digest, arena));
    if (found) return coord_reply_row(reply, &row);
    return omm_raise(OMM_ERR_REFUSED_DIGEST, "digest: no open submission announced this payload");
}

/* A chunk does not say whose it is, and two nodes may have announced one payload: it goes to all of
 * them, so that nobody's announcement takes the chunks of another.  The answer is that of the first
 * upload that took it; a node that gets another's receipt asks for its own. */
omm_err coord_upload_put(omm_buf *reply, omm_coord *c, const omm_request *request,
                         omm_arena *arena) {
    omm_digest digest = omm_hash(request->data);
    omm_buf other;
    omm_buf_init(&other, OMM_MESSAGE_BYTES_MAX);
    bool announced = false;
    bool answered = false;
    bool taken = false;
    omm_err err = OMM_OK;
    for (uint32_t i = 0; i < c->o.run->node_count && err == OMM_OK; i++) {
        coord_upload *upload = &c->nodes[i].upload;
        if (!takes_chunk(upload, request, &digest, &announced)) continue;
        bool had = taken;
        omm_buf *into = had ? &other : reply;
        omm_buf_clear(into);
        err = put_chunk(into, &taken, c, i, request->index, request->data);
        if (taken && !had) c->last_node = (int32_t)i;
        taken |= had;
        answered = true;
    }
    if (err == OMM_OK) err = coord_canary_put(reply, &answered, c, request, &digest);
    omm_buf_fini(&other);
    OMM_TRY(err);
    return answered ? OMM_OK : answer_stray_chunk(reply, c, request, announced, arena);
}

omm_err coord_refuse_upload(omm_coord *c, size_t node) {
    return refuse_upload(NULL, c, node, OMM_ERR_REFUSED_NOT_SELECTED, IN_QUARANTINE);
}

omm_err coord_refuse_unfinished(omm_coord *c) {
    const char *why = coord_round_has_enough(c)
                          ? "payload: not complete when enough had come for the round"
                          : "payload: not complete at the deadline of the round";
    for (size_t i = 0; i < c->o.run->node_count; i++)
        OMM_TRY(c->nodes[i].quarantined ? coord_refuse_upload(c, i)
                                        : refuse_upload(NULL, c, i, OMM_ERR_REFUSED_LATE, why));
    return OMM_OK;
}
