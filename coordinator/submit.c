/* submit.c - one request, one answer.
 *
 * A submission is checked in this order, cheapest first, and refused at the first failure:
 *   envelope form, signature, context, enrolment, message form          not settled by it
 *   run id, round, nonce and offer, selection                           not settled: maybe a replay
 *   base and global digest, duplicate, tokens, losses, steps, codec, payload size     settled
 * then, when all chunks are there (each checked against the manifest as it came):
 *   payload digest, decode, canonical digest, range, norm                             settled
 * Only a submission that names this round's nonce and offer proves that its node speaks now, so only
 * that settles the node; whatever is replayed by others costs it nothing.
 *
 * Whatever `verify` demands of an accepted submission is demanded here: otherwise one node could
 * spoil the bundle of all.
 */
#include "internal.h"

#include "omm/mem.h"
#include "omm/run_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_SIZE (OMM_SENTENCE_BYTES_MAX + 1)

void coord_upload_end(coord_upload *upload) {
    if (upload->active) omm_arena_fini(&upload->arena);
    *upload = (coord_upload){0};
}

static omm_err reply_refused(omm_buf *reply, omm_err reason, const char *sentence) {
    omm_reply r = {.kind = OMM_REPLY_REFUSED, .reason = reason, .sentence = sentence};
    return omm_reply_encode(reply, &r);
}

static omm_err reply_wait(omm_buf *reply, const omm_coord *c) {
    omm_reply r = {.kind = OMM_REPLY_WAIT, .retry_ms = c->o.policy.poll_ms};
    return omm_reply_encode(reply, &r);
}

/* ---- polls ---- */

/* Everybody on the way can send a captured poll again.  The same poll in the same round and state is
 * our own answer's second try; later it says nothing any more: it is answered, and changes nothing. */
static bool is_stale(coord_node *n, const omm_coord *c, uint64_t counter) {
    uint64_t moment = ((uint64_t)c->round << 8) | (uint64_t)c->state;
    if (n->has_counter && counter == n->counter) return n->counter_moment != moment;
    n->has_counter = true;
    n->counter = counter;
    n->counter_moment = moment;
    return false;
}

static omm_err check_poll(int32_t *node, bool *stale, omm_coord *c, omm_bytes bytes,
                          omm_arena *arena) {
    omm_envelope envelope;
    omm_poll poll;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, bytes));
    omm_digest id = omm_key_id(&envelope.key);
    int32_t found = coord_node_find(c, &id);
    if (found < 0) return coord_refuse_stranger(c);
    if (c->nodes[found].revoked) return coord_refuse_revoked(c, (size_t)found);
    OMM_TRY(omm_poll_decode(&poll, envelope.payload, arena));
    if (poll.run_id[0] && strcmp(poll.run_id, c->o.run->run_id) != 0)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not this run", poll.run_id);
    coord_node *n = &c->nodes[found];
    if (n->has_counter && poll.counter < n->counter)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                         "counter: %" PRIu64 " is below %" PRIu64 ", which was seen", poll.counter,
                         n->counter);
    if (poll.counter > INT64_MAX)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "counter: %" PRIu64 " is over 2^63 - 1",
                         poll.counter);
    c->peer_fresh = !n->has_counter || poll.counter > n->counter;
    *stale = is_stale(n, c, poll.counter);
    *node = found;
    return OMM_OK;
}

static omm_err answer_poll(omm_buf *reply, omm_coord *c, omm_bytes bytes, omm_arena *arena) {
    int32_t index = COORD_ANONYMOUS;
    bool stale = false;
    OMM_TRY(check_poll(&index, &stale, c, bytes, arena));
    c->last_node = index;
    coord_node *node = &c->nodes[index];
    if (c->state == OMM_COORD_CLOSED) {
        omm_reply r = {.kind = OMM_REPLY_DONE, .envelope = omm_buf_view(&c->close)};
        OMM_TRY(omm_reply_encode(reply, &r));
        node->told = true;
        return OMM_OK;
    }
    if (c->state == OMM_COORD_OPEN && node->selected && !node->settled && !node->quarantined) {
        omm_reply r = {.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&c->offer)};
        OMM_TRY(omm_reply_encode(reply, &r));
        if (stale || node->offered) return OMM_OK;
        OMM_TRY(coord_store_presence(c, (uint32_t)index, true));
        node->offered = true;
        return OMM_OK;
    }
    OMM_TRY(reply_wait(reply, c));
    if (c->state != OMM_COORD_JOINING || node->ready || node->quarantined || stale) return OMM_OK;
    OMM_TRY(coord_store_presence(c, (uint32_t)index, false));
    node->ready = true;
    return OMM_OK;
}

/* ---- the global adapter ---- */

static omm_err answer_get(omm_buf *reply, const omm_coord *c, const omm_request *request) {
    if (!omm_digest_equal(&request->digest, &c->global.digest))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "digest: not the current global adapter");
    omm_bytes chunk = omm_chunk_view(omm_buf_view(&c->sent), request->index);
    if (chunk.size == 0)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "index: %u is beyond the last of %zu chunks",
                         request->index, c->global.chunk_count);
    omm_reply r = {
        .kind = OMM_REPLY_CHUNK, .digest = request->digest, .index = request->index, .data = chunk};
    return omm_reply_encode(reply, &r);
}

/* ---- submissions: the manifest ---- */

typedef struct attempt {
    int32_t node;     /* COORD_ANONYMOUS until the signature proved one */
    bool is_envelope; /* the bytes have the form of one */
    bool settles;     /* a failure from here on settles the node */
    omm_submission *submission;
} attempt;

/* A submission for a round that is over: late from a node that still owed one, else a replay. */
static omm_err refuse_old_round(omm_coord *c, uint32_t node, const omm_submission *s) {
    omm_digest nonce;
    omm_run_nonce(nonce.b, &c->o.run_seed, s->round);
    bool settled = false;
    OMM_TRY(coord_store_is_settled(&settled, c, s->round, node));
    if (omm_digest_equal(&nonce, &s->nonce) && !settled)
        return omm_raise(OMM_ERR_REFUSED_LATE, "round: %u was closed at its deadline", s->round);
    return omm_raise(OMM_ERR_REFUSED_ROUND, "round: %u is over, this is round %u", s->round,
                     coord_evidence_round(c));
}

static omm_err check_round(attempt *a, omm_coord *c, const omm_submission *s) {
    uint32_t node = (uint32_t)a->node;
    if (strcmp(s->run_id, c->o.run->run_id) != 0)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not this run", s->run_id);
    if (s->round < coord_evidence_round(c)) return refuse_old_round(c, node, s);
    if (s->round != c->round || c->state != OMM_COORD_OPEN)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "round: %u is not open", s->round);
    if (!c->nodes[node].selected)
        return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, "round: node is not selected for round %u",
                         s->round);
    if (!omm_digest_equal(&s->nonce, &c->nonce))
        return omm_raise(OMM_ERR_REFUSED_ROUND, "nonce: not that of round %u", s->round);
    if (!omm_digest_equal(&s->offer_digest, &c->offer_digest))
        return omm_raise(OMM_ERR_REFUSED_ROUND, "offer_digest: not the offer of round %u",
                         s->round);
    a->settles = true;
    c->peer_fresh = true;
    if (c->nodes[node].quarantined)
        return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, "round: node is in quarantine");
    return OMM_OK;
}

static omm_err check_work(const omm_coord *c, const coord_node *node, const omm_submission *s) {
    if (!omm_digest_equal(&s->base_digest, &c->o.run->base.digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "base_digest: not the base model of this run");
    if (!omm_digest_equal(&s->global_digest, &c->global.digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "global_digest: not the global adapter of round %u",
                         s->round);
    if (node->settled)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE, "round: node has submitted in round %u before",
                         s->round);
    if (s->tokens < 1 || s->tokens > c->o.run->tokens_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "tokens: %" PRIu64 " is not in 1 .. %" PRIu64,
                         s->tokens, c->o.run->tokens_max);
    if (!isfinite(s->loss_before) || !isfinite(s->loss_after))
        return omm_raise(OMM_ERR_REFUSED_VALUE, "loss_before, loss_after: not finite");
    if (s->step_digests.size != (size_t)s->steps * 8)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "step_digests: %zu bytes for %u steps of 8",
                         s->step_digests.size, s->steps);
    if (!omm_digest_equal(&s->residual_before, &node->residual) &&
        !omm_digest_equal(&s->residual_before, &c->residual_zero))
        return omm_raise(
            OMM_ERR_REFUSED_RESIDUAL,
            "residual_before: neither zero nor the node's last accepted residual_after");
    return OMM_OK;
}

static omm_err check_payload_announced(const omm_coord *c, const omm_submission *s) {
    if (s->codec.size != sizeof c->codec_up ||
        memcmp(s->codec.data, c->codec_up, sizeof c->codec_up) != 0)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "codec: not the codec of the offer");
    if (s->payload.size > c->payload_bytes_max)
        return omm_raise(OMM_ERR_REFUSED_BUDGET, "payload.size: %" PRIu64 " is over %" PRIu64,
                         s->payload.size, c->payload_bytes_max);
    if (s->payload.size < 1 || s->payload.chunk_count != omm_chunk_count(s->payload.size))
        return omm_raise(OMM_ERR_REFUSED_SIZE, "payload.chunk_digests: %zu for %" PRIu64 " bytes",
                         s->payload.chunk_count, s->payload.size);
    return OMM_OK;
}

/* A node may start over, say after losing its state: its newer word counts.  Not without end, and
 * never back to a manifest it gave up: that is somebody's replay. */
static omm_err check_replaces(const coord_node *node, const omm_digest *digest) {
    if (!node->upload.active) return OMM_OK;
    for (uint32_t i = 0; i < node->replaced_count; i++)
        if (omm_digest_equal(&node->replaced[i], digest))
            return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                             "round: node has replaced this submission by another");
    if (node->replaced_count == COORD_REPLACED_MAX)
        return omm_raise(OMM_ERR_REFUSED_DUPLICATE,
                         "round: node has started over %u times, the limit", node->replaced_count);
    return OMM_OK;
}

static omm_err check_manifest(attempt *a, omm_coord *c, omm_bytes bytes, const omm_digest *digest,
                              omm_arena *arena) {
    omm_envelope envelope;
    OMM_TRY(omm_envelope_open(&envelope, bytes));
    a->is_envelope = true;
    omm_err verified = omm_envelope_verify(&envelope, OMM_CONTEXT_SUBMISSION);
    if (verified != OMM_OK && verified != OMM_ERR_REFUSED_CONTEXT) return verified;
    /* Well signed: the key is known even where the purpose is wrong. */
    omm_digest id = omm_key_id(&envelope.key);
    int32_t node = coord_node_find(c, &id);
    if (verified == OMM_OK && node < 0)
        return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not enrolled in this run");
    a->node = node;
    if (verified != OMM_OK)
        return omm_raise(verified, "context: signed for another purpose than omm.submission.v1");
    c->last_node = node;
    OMM_TRY(omm_submission_decode(a->submission, envelope.payload, arena));
    OMM_TRY(check_round(a, c, a->submission));
    OMM_TRY(check_work(c, &c->nodes[node], a->submission));
    OMM_TRY(check_payload_announced(c, a->submission));
    return check_replaces(&c->nodes[node], digest);
}

/* ---- submissions: the payload ---- */

static omm_blob_plan plan_of(const omm_coord *c, uint32_t node) {
    const omm_submission *s = &c->nodes[node].upload.submission;
    return (omm_blob_plan){.owner = c->o.run->nodes[node].id,
                           .digest = s->payload.digest,
                           .size = s->payload.size,
                           .chunk_bytes = OMM_CHUNK_BYTES,
                           .chunk_digests = s->payload.chunk_digests,
                           .chunk_count = s->payload.chunk_count};
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

static omm_err check_values(double *norm, const omm_coord *c, float *values,
                            const omm_submission *s, omm_bytes sent) {
    omm_encoded info;
    OMM_TRY(omm_codec_decode(values, &info, &c->o.run->codec_up, c->layout, sent));
    if (!omm_digest_equal(&info.payload_digest, &s->payload.canonical))
        return omm_raise(OMM_ERR_REFUSED_DIGEST,
                         "payload.canonical_digest: not that of the decoded payload");
    for (size_t i = 0; i < c->value_count; i++)
        if (!(fabs((double)values[i]) <= c->o.run->value_max))
            return omm_raise(OMM_ERR_REFUSED_RANGE, "value %zu: %.9g is over %.9g", i,
                             (double)values[i], c->o.run->value_max);
    return omm_norm_check(norm, values, c->value_count, c->o.run->norm_max);
}

/* Decode the whole payload; a refusal is a verdict, other errors are our own. */
static omm_err judge_payload(coord_row *row, char sentence[SENTENCE_SIZE], omm_coord *c,
                             const omm_submission *s) {
    omm_buf sent;
    omm_buf_init(&sent, (size_t)c->payload_bytes_max);
    omm_err err = OMM_OK;
    float *values = omm_alloc_aligned(c->value_count, sizeof *values);
    if (!values) {
        err = omm_raise(OMM_ERR_NOMEM, "%zu values", c->value_count);
        goto out;
    }
    OMM_TRY_OUT(omm_blobs_get(&sent, c->uploads, &s->payload.digest));
    err = check_described(s, omm_buf_view(&sent));
    if (err == OMM_OK) err = check_values(&row->norm, c, values, s, omm_buf_view(&sent));
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
    omm_free(values);
    omm_buf_fini(&sent);
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
        omm_log_event(c->o.log, OMM_LOG_WARN, "payload_copied", OMM_LOG_INT("round", c->round),
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

/* What is missing, or the verdict when nothing is. */
static omm_err go_on_with_upload(omm_buf *reply, omm_coord *c, uint32_t node) {
    size_t missing = 0;
    OMM_TRY(reply_need(reply, c, node, &missing));
    return missing > 0 ? OMM_OK : finish_upload(reply, c, node);
}

/* Fill `upload` from an envelope that was checked before. */
static omm_err upload_fill(coord_upload *upload, const omm_digest *digest, omm_bytes bytes) {
    coord_upload fresh = {.active = true, .digest = *digest};
    omm_arena_init(&fresh.arena, COORD_UPLOAD_ARENA_BYTES);
    omm_envelope envelope;
    omm_err err = omm_envelope_open(&envelope, bytes);
    if (err == OMM_OK)
        err = omm_submission_decode(&fresh.submission, envelope.payload, &fresh.arena);
    if (err != OMM_OK) {
        omm_arena_fini(&fresh.arena);
        return err;
    }
    coord_upload_end(upload);
    *upload = fresh;
    return OMM_OK;
}

omm_err coord_upload_restore(omm_coord *c, const coord_row *row) {
    return upload_fill(&c->nodes[row->node].upload, &row->digest, row->bytes);
}

static omm_err announce(omm_buf *reply, omm_coord *c, const attempt *a, const omm_digest *digest,
                        omm_bytes bytes) {
    coord_node *node = &c->nodes[a->node];
    const omm_submission *s = a->submission;
    if (node->upload.active && !omm_digest_equal(&node->upload.digest, digest)) {
        omm_blob_plan old = plan_of(c, (uint32_t)a->node);
        OMM_TRY(coord_store_drop(c, c->round, &node->upload.digest));
        OMM_TRY(omm_blobs_drop_partial(c->uploads, &old));
        node->replaced[node->replaced_count++] = node->upload.digest;
        coord_upload_end(&node->upload);
    }
    coord_row row = {.round = c->round,
                     .digest = *digest,
                     .node = a->node,
                     .status = COORD_PENDING,
                     .is_envelope = true,
                     .bytes = bytes,
                     .tokens = s->tokens,
                     .payload = s->payload.digest,
                     .canonical = s->payload.canonical};
    OMM_TRY(coord_store_put(c, &row));
    OMM_TRY(upload_fill(&node->upload, digest, bytes));
    return go_on_with_upload(reply, c, (uint32_t)a->node);
}

/* The same bytes once more: the same answer, unless the node has taken a newer offer since. */
static omm_err answer_known(bool *answered, omm_buf *reply, omm_coord *c, const omm_digest *digest,
                            omm_arena *arena) {
    coord_row row;
    bool found = false;
    *answered = false;
    OMM_TRY(coord_store_find(&found, &row, c, digest, arena));
    if (!found) return OMM_OK;
    if (row.status == COORD_PENDING) {
        coord_node *node = &c->nodes[row.node];
        if (!node->upload.active || c->state != OMM_COORD_OPEN) return OMM_OK;
        *answered = true;
        return go_on_with_upload(reply, c, (uint32_t)row.node);
    }
    bool is_old = row.round < c->round;
    if (is_old && (row.node < 0 || c->nodes[row.node].offered || row.status == COORD_REJECTED))
        return OMM_OK;
    *answered = true;
    return coord_reply_row(reply, &row);
}

static omm_err answer_submit(omm_buf *reply, omm_coord *c, omm_bytes bytes, omm_arena *arena) {
    omm_digest digest = omm_hash(bytes);
    bool answered = false;
    OMM_TRY(answer_known(&answered, reply, c, &digest, arena));
    if (answered) return OMM_OK;
    omm_submission submission;
    attempt a = {.node = COORD_ANONYMOUS, .submission = &submission};
    omm_err err = check_manifest(&a, c, bytes, &digest, arena);
    if (err == OMM_OK) return announce(reply, c, &a, &digest, bytes);
    if (err == OMM_ERR_VERSION) err = OMM_ERR_REFUSED_FORMAT;
    if (!coord_is_refusal(err)) return err;
    char sentence[SENTENCE_SIZE];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    bool settles = a.settles && err != OMM_ERR_REFUSED_DUPLICATE && !c->nodes[a.node].settled;
    coord_row row = {.round = coord_evidence_round(c),
                     .digest = digest,
                     .node = a.node,
                     .status = settles ? COORD_REFUSED : COORD_REJECTED,
                     .reason = err,
                     .sentence = sentence,
                     .is_envelope = a.is_envelope,
                     .bytes = bytes};
    return coord_settle(reply, c, &row);
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

/* taken: false when the node was refused for it. */
static omm_err put_chunk(omm_buf *reply, bool *taken, omm_coord *c, uint32_t node,
                         const omm_request *request, omm_arena *arena) {
    omm_blob_plan plan = plan_of(c, node);
    bool complete = false;
    omm_err err = omm_blobs_put_chunk(&complete, c->uploads, &plan, request->index, request->data);
    omm_crash_point(c->o.state_dir, c->o.crash_at, "mid_upload");
    *taken = err == OMM_OK;
    if (err == OMM_OK) return go_on_with_upload(reply, c, node);
    if (!coord_is_refusal(err)) return err;
    /* Every chunk is as announced, so the manifest contradicts itself: that is the node's fault. */
    char sentence[SENTENCE_SIZE];
    (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
    coord_row row;
    bool found = false;
    OMM_TRY(coord_store_find(&found, &row, c, &c->nodes[node].upload.digest, arena));
    OMM_ASSERT(found);
    row.reason = err;
    row.sentence = sentence;
    row.status = COORD_REFUSED;
    return coord_settle(reply, c, &row);
}

/* A chunk does not say whose it is, and two nodes may have announced one payload: it goes to all of
 * them, so that nobody's announcement takes the chunks of another.  The answer is that of the first
 * upload that took it; a node that gets another's receipt asks for its own. */
static omm_err answer_put(omm_buf *reply, omm_coord *c, const omm_request *request,
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
        err = put_chunk(into, &taken, c, i, request, arena);
        if (taken && !had) c->last_node = (int32_t)i;
        taken |= had;
        answered = true;
    }
    omm_buf_fini(&other);
    OMM_TRY(err);
    return answered ? OMM_OK : answer_stray_chunk(reply, c, request, announced, arena);
}

omm_err coord_refuse_upload(omm_coord *c, size_t node, omm_err reason, const char *sentence) {
    coord_upload *upload = &c->nodes[node].upload;
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
        err = coord_settle(NULL, c, &row);
    }
    omm_arena_fini(&arena);
    return err;
}

omm_err coord_refuse_unfinished(omm_coord *c) {
    const char *why = coord_round_has_enough(c)
                          ? "payload: not complete when enough had come for the round"
                          : "payload: not complete at the deadline of the round";
    for (size_t i = 0; i < c->o.run->node_count; i++)
        OMM_TRY(coord_refuse_upload(c, i, OMM_ERR_REFUSED_LATE, why));
    return OMM_OK;
}

/* ---- one request ---- */

static omm_err answer_kind(omm_buf *reply, omm_coord *c, uint64_t now_ms,
                           const omm_request *request, omm_arena *arena) {
    switch (request->kind) {
    case OMM_REQUEST_POLL: return answer_poll(reply, c, request->envelope, arena);
    case OMM_REQUEST_GET: return answer_get(reply, c, request);
    case OMM_REQUEST_PUT: return answer_put(reply, c, request, arena);
    case OMM_REQUEST_SUBMIT: return answer_submit(reply, c, request->envelope, arena);
    case OMM_REQUEST_ENROL: return coord_enrol_answer(reply, c, now_ms, request->envelope, arena);
    case OMM_REQUEST_BASE: /* base_serve.c answers where there is something to serve */
        return omm_raise(OMM_ERR_REFUSED_BASE, "base: no base model is served here");
    }
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "body: unknown kind of request");
}

omm_err coord_answer(omm_buf *reply, omm_coord *c, uint64_t now_ms, omm_bytes bytes,
                     const char *peer) {
    omm_arena request_arena;
    omm_arena arena;
    omm_arena_init(&request_arena, OMM_MESSAGE_ARENA_BYTES);
    omm_arena_init(&arena, (size_t)2 * OMM_MESSAGE_ARENA_BYTES);
    omm_request request;
    omm_err err = bytes.size > OMM_MESSAGE_BYTES_MAX
                      ? omm_raise(OMM_ERR_REFUSED_SIZE, "message: %zu bytes is over %u", bytes.size,
                                  OMM_MESSAGE_BYTES_MAX)
                      : omm_request_decode(&request, bytes, &request_arena);
    if (err == OMM_OK) err = answer_kind(reply, c, now_ms, &request, &arena);
    if (err == OMM_ERR_VERSION) err = OMM_ERR_REFUSED_FORMAT;
    if (coord_is_refusal(err)) {
        c->refusals_total++;
        char sentence[SENTENCE_SIZE];
        (void)snprintf(sentence, sizeof sentence, "%s", omm_err_sentence());
        omm_log_event(c->o.log, coord_refusal_level(c), "request_refused",
                      OMM_LOG_STR("peer", peer ? peer : "unknown"),
                      OMM_LOG_STR("reason", omm_err_name(err)), OMM_LOG_STR("sentence", sentence));
        coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_REQUEST,
                                         .round = c->round,
                                         .node = c->last_node,
                                         .reason = err,
                                         .sentence = sentence,
                                         .peer = peer ? peer : "unknown"});
        omm_buf_clear(reply);
        err = reply_refused(reply, err, sentence);
    }
    omm_arena_fini(&arena);
    omm_arena_fini(&request_arena);
    return err;
}
