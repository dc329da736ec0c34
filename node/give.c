/* give.c - from a trained adapter to a signed submission, and what its receipt changes.
 *
 *   delta = trained - start;  x = delta + residual;  payload = encode(x)
 *   residual' = x - decode(payload), which replaces the residual only when the receipt says
 *   "accepted", in the transaction that forgets the submission
 */
#include "internal.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

/* The residual of this run and layout, zeros when there is none. */
static omm_err load_residual(float *out, omm_node *node) {
    size_t n = node->job.layout.value_count;
    memset(out, 0, n * sizeof *out);
    if (!node->job.up.error_feedback) return OMM_OK;
    omm_digest tag = node_residual_tag(node);
    omm_buf stored;
    omm_buf_init(&stored, 4 * n > sizeof tag.b ? 4 * n : sizeof tag.b);
    bool found = false;
    omm_err err = node_keep_get(&found, &stored, node, KEEP_RESIDUAL_TAG);
    bool ours = err == OMM_OK && found &&
                omm_bytes_equal(omm_buf_view(&stored), omm_bytes_of(tag.b, sizeof tag.b));
    omm_buf_clear(&stored);
    if (ours) err = node_keep_get(&found, &stored, node, KEEP_RESIDUAL);
    if (err == OMM_OK && ours && stored.size == 4 * n)
        for (size_t i = 0; i < n; i++) out[i] = omm_get_f32(stored.data + 4 * i);
    omm_buf_fini(&stored);
    return err;
}

typedef struct gift {
    float *delta;
    float *residual; /* before, then after */
    omm_buf sent;
    omm_encoded info;
    omm_digest residual_before, residual_after;
    omm_buf residual_bytes;
    omm_buf envelope;
} gift;

static omm_err encode_delta(gift *g, omm_node *node) {
    node_job *job = &node->job;
    size_t n = job->layout.value_count;
    if (job->offer.is_canary) {
        g->residual_before = g->residual_after = omm_residual_zero(n);
        return node_canary_encode(&g->sent, &g->info, job, g->delta);
    }
    OMM_TRY(load_residual(g->residual, node));
    g->residual_before = omm_residual_digest(g->residual, n);
    for (size_t i = 0; i < n; i++) g->delta[i] = job->values[i] - job->start[i];
    if (job->up.error_feedback)
        OMM_TRY(omm_feedback_encode(&g->sent, &g->info, g->residual, &job->up, &job->layout,
                                    g->delta, g->residual));
    else
        OMM_TRY(omm_codec_encode(&g->sent, &g->info, &job->up, &job->layout, g->delta));
    g->residual_after = omm_residual_digest(g->residual, n);
    uint8_t *bytes = NULL;
    OMM_TRY(omm_buf_extend(&g->residual_bytes, &bytes, 4 * n));
    for (size_t i = 0; i < n; i++) omm_put_f32(bytes + 4 * i, g->residual[i]);
    return OMM_OK;
}

static omm_err seal_submission(gift *g, omm_node *node, omm_arena *arena) {
    const node_job *job = &node->job;
    omm_submission s = {.round = job->offer.round,
                        .nonce = job->offer.nonce,
                        .offer_digest = job->offer_digest,
                        .base_digest = job->offer.base_digest,
                        .global_digest = job->offer.global.digest,
                        .tokens = job->result.tokens,
                        .examples = job->result.examples,
                        .steps = job->result.steps,
                        .loss_before = job->result.loss_before,
                        .loss_after = job->result.loss_after,
                        .codec = job->offer.codec_up,
                        .data_commitment = job->offer.is_canary ? job->offer.canary.digest
                                                                : node->o.training->data_commitment,
                        .residual_before = g->residual_before,
                        .residual_after = g->residual_after,
                        .step_digests = omm_buf_view(&job->step_digests)};
    memcpy(s.run_id, job->offer.run_id, sizeof s.run_id);
    OMM_TRY(omm_blob_describe(&s.payload, arena, omm_buf_view(&g->sent), &g->info.payload_digest));
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_submission_encode(&payload, &s);
    if (err == OMM_OK)
        err = omm_envelope_seal(&g->envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload),
                                node->o.key);
    omm_buf_fini(&payload);
    return err;
}

static node_given given_now(const omm_node *node) {
    node_given given = {.round = node->job.offer.round, .offer = node->job.offer_digest};
    memcpy(given.run_id, node->job.offer.run_id, sizeof given.run_id);
    return given;
}

static omm_err store_given(omm_node *node) {
    node_given given = given_now(node);
    uint8_t bytes[NODE_GIVEN_BYTES];
    memcpy(bytes, given.run_id, OMM_RUN_ID_SIZE - 1);
    omm_put_u32(bytes + OMM_RUN_ID_SIZE - 1, given.round);
    memcpy(bytes + OMM_RUN_ID_SIZE + 3, given.offer.b, sizeof given.offer.b);
    return node_keep_put(node, KEEP_GIVEN, omm_bytes_of(bytes, sizeof bytes));
}

omm_err node_given_restore(omm_node *node) {
    omm_buf bytes;
    omm_buf_init(&bytes, NODE_GIVEN_BYTES);
    bool found = false;
    omm_err err = node_keep_get(&found, &bytes, node, KEEP_GIVEN);
    if (err == OMM_OK && bytes.size == NODE_GIVEN_BYTES) {
        memcpy(node->given.run_id, bytes.data, OMM_RUN_ID_SIZE - 1);
        node->given.round = omm_get_u32(bytes.data + OMM_RUN_ID_SIZE - 1);
        memcpy(node->given.offer.b, bytes.data + OMM_RUN_ID_SIZE + 3, sizeof node->given.offer.b);
    }
    omm_buf_fini(&bytes);
    return err;
}

/* What a round leaves behind: its residual to be, and that it was answered. */
static omm_err store_own(omm_node *node, const gift *g, const node_gave *gave) {
    omm_digest tag = node_residual_tag(node);
    OMM_TRY(store_given(node));
    OMM_TRY(node_history_gave(node, gave));
    OMM_TRY(node_keep_put(node, KEEP_RESIDUAL_NEXT, omm_buf_view(&g->residual_bytes)));
    OMM_TRY(node_keep_put(node, KEEP_RESIDUAL_NEXT_TAG, omm_bytes_of(tag.b, sizeof tag.b)));
    return node_drop_chunks(node);
}

static omm_err store_gift(omm_node *node, const void *ud) {
    const gift *g = ud;
    const node_gave gave = {.submission = omm_hash(omm_buf_view(&g->envelope)),
                            .payload = g->info.sent_digest,
                            .submission_bytes = g->envelope.size,
                            .payload_bytes = g->sent.size};
    if (node->job.offer.is_canary)
        OMM_TRY(node_canary_gave(node, &gave));
    else
        OMM_TRY(store_own(node, g, &gave));
    OMM_TRY(node_keep_put(node, KEEP_SUBMISSION, omm_buf_view(&g->envelope)));
    OMM_TRY(node_keep_put(node, KEEP_PAYLOAD, omm_buf_view(&g->sent)));
    OMM_TRY(node_keep_drop(node, node_checkpoint_offer_name(&node->job)));
    return node_keep_drop_large(node, node_checkpoint_name(&node->job));
}

static void adopt(omm_buf *to, omm_buf *from) {
    omm_buf_fini(to);
    *to = *from;
    *from = (omm_buf){0};
}

static omm_err give(gift *g, omm_node *node, omm_arena *arena) {
    OMM_TRY(encode_delta(g, node));
    OMM_TRY(seal_submission(g, node, arena));
    OMM_TRY(node_keep_all(node, store_gift, g));
    node->submission_digest = omm_hash(omm_buf_view(&g->envelope));
    node->payload_digest = g->info.sent_digest;
    node->gave_canary = node->job.offer.is_canary;
    if (!node->gave_canary) node->given = given_now(node);
    node->needs = 0;
    node->put_off = 0;
    adopt(&node->submission, &g->envelope);
    adopt(&node->payload, &g->sent);
    return OMM_OK;
}

omm_err node_give(omm_node *node) {
    size_t n = node->job.layout.value_count;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    gift g = {.delta = omm_alloc_aligned(n, sizeof(float)),
              .residual = omm_alloc_aligned(n, sizeof(float))};
    omm_buf_init(&g.sent, omm_codec_sent_bytes_max(&node->job.up, &node->job.layout));
    omm_buf_init(&g.residual_bytes, 4 * n);
    omm_buf_init(&g.envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err =
        g.delta && g.residual ? give(&g, node, &arena) : omm_raise(OMM_ERR_NOMEM, "%zu values", n);
    omm_free(g.delta);
    omm_free(g.residual);
    omm_buf_fini(&g.sent);
    omm_buf_fini(&g.residual_bytes);
    omm_buf_fini(&g.envelope);
    omm_arena_fini(&arena);
    return err;
}

/* Not after some attempts that nobody answered: a coordinator that takes only shorter messages closes the connection, and its
 * run may be another one by now.  Nor after some that were answered by "wait": whoever still wants it then asks for it. */
static bool is_whole(const omm_node *node) {
    return node->o.whole && !node->is_plain && node->failures < NODE_WHOLE_FAILURES &&
           node->put_off < NODE_WHOLE_FAILURES &&
           omm_wire_is_whole(node->submission.size, node->payload.size);
}

omm_err node_give_request(omm_buf *out, const omm_node *node) {
    omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&node->submission)};
    if (is_whole(node)) request.data = omm_buf_view(&node->payload);
    return omm_request_encode(out, &request);
}

/* ---- after a restart ---- */

omm_err node_submission_restore(omm_node *node) {
    bool found = false;
    OMM_TRY(node_keep_get(&found, &node->submission, node, KEEP_SUBMISSION));
    if (!found) return OMM_OK;
    OMM_TRY(node_keep_get(&found, &node->payload, node, KEEP_PAYLOAD));
    OMM_TRY(node_canary_restore(node));
    node->submission_digest = omm_hash(omm_buf_view(&node->submission));
    node->payload_digest = omm_hash(omm_buf_view(&node->payload));
    return OMM_OK;
}

/* ---- verdicts ---- */

static omm_err drop_submission(omm_node *node) {
    OMM_TRY(node_keep_drop(node, KEEP_SUBMISSION));
    OMM_TRY(node_keep_drop(node, KEEP_PAYLOAD));
    OMM_TRY(node_keep_drop(node, KEEP_SUBMISSION_IS_CANARY));
    OMM_TRY(node_keep_drop(node, KEEP_RESIDUAL_NEXT));
    return node_keep_drop(node, KEEP_RESIDUAL_NEXT_TAG);
}

static void forget_submission(omm_node *node) {
    omm_buf_fini(&node->submission);
    omm_buf_fini(&node->payload);
    omm_buf_init(&node->submission, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&node->payload, SIZE_MAX);
    omm_free(node->missing);
    node->missing = NULL;
    node->missing_count = 0;
    node->gave_canary = false;
    node->said_sent = false;
}

static omm_err rename_value(omm_node *node, const char *from, const char *to) {
    OMM_TRY(node_keep_drop(node, to));
    return omm_db_run(node->db, "UPDATE keep SET name = ? WHERE name = ?", OMM_DB_TEXT(to),
                      OMM_DB_TEXT(from));
}

typedef struct verdict {
    const omm_receipt *receipt;
    omm_bytes envelope;
} verdict;

static omm_err commit_own(omm_node *node, const verdict *v) {
    const omm_receipt *receipt = v->receipt;
    char name[sizeof KEEP_RECEIPT + OMM_RUN_ID_SIZE + 16];
    (void)snprintf(name, sizeof name, KEEP_RECEIPT "%s/%u", receipt->run_id, receipt->round);
    OMM_TRY(node_keep_put(node, name, v->envelope));
    if (receipt->accepted) {
        OMM_TRY(rename_value(node, KEEP_RESIDUAL_NEXT, KEEP_RESIDUAL));
        OMM_TRY(rename_value(node, KEEP_RESIDUAL_NEXT_TAG, KEEP_RESIDUAL_TAG));
    }
    if (receipt->reason == OMM_ERR_REFUSED_RESIDUAL) { /* ours is not what they saw last: zero */
        OMM_TRY(node_keep_drop(node, KEEP_RESIDUAL));
        OMM_TRY(node_keep_drop(node, KEEP_RESIDUAL_TAG));
    }
    if (receipt->accepted && receipt->round + 1 > node->rounds_seen)
        return node_keep_put_u64(node, KEEP_ROUNDS_SEEN, (uint64_t)receipt->round + 1);
    return OMM_OK;
}

static omm_err commit_verdict(omm_node *node, const void *ud) {
    const verdict *v = ud;
    const omm_receipt *receipt = v->receipt;
    if (!node->gave_canary) OMM_TRY(commit_own(node, v));
    OMM_TRY(node_history_verdict(node, &node->submission_digest, omm_err_name(receipt->reason)));
    return drop_submission(node);
}

static omm_err drop_body(omm_node *node, const void *ud) {
    (void)ud;
    OMM_TRY(node_history_verdict(node, &node->submission_digest, "none"));
    return drop_submission(node);
}

omm_err node_submission_drop(omm_node *node) {
    OMM_TRY(node_keep_all(node, drop_body, NULL));
    forget_submission(node);
    return OMM_OK;
}

static void count_verdict(omm_node *node, const omm_receipt *receipt) {
    if (receipt->accepted && receipt->round + 1 > node->rounds_seen)
        node->rounds_seen = receipt->round + 1;
    if (receipt->accepted)
        node->rounds_accepted++;
    else
        node->rounds_refused++;
}

omm_err node_receipt_open(omm_receipt *out, const omm_node *node, omm_bytes bytes,
                          const omm_digest *of, omm_arena *arena) {
    omm_envelope envelope;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_RECEIPT, bytes));
    if (!omm_public_key_equal(&envelope.key, &node->o.coordinator))
        return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not the coordinator we pinned");
    OMM_TRY(omm_receipt_decode(out, envelope.payload, arena));
    if (!omm_digest_equal(&out->node_id, &node->id) ||
        !omm_digest_equal(&out->submission_digest, of))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "receipt: for something else");
    return OMM_OK;
}

static omm_err take_receipt(omm_node *node, omm_bytes bytes, omm_arena *arena) {
    omm_receipt receipt;
    OMM_TRY(node_receipt_open(&receipt, node, bytes, &node->submission_digest, arena));
    verdict v = {&receipt, bytes};
    OMM_TRY(node_keep_all(node, commit_verdict, &v));
    if (!node->gave_canary) count_verdict(node, &receipt);
    (void)snprintf(node->last_reason, sizeof node->last_reason, "%s", omm_err_name(receipt.reason));
    omm_log_event(node->o.log, receipt.accepted ? OMM_LOG_INFO : OMM_LOG_WARN, "receipt",
                  OMM_LOG_STR("node", node->o.name), OMM_LOG_INT("round", receipt.round),
                  OMM_LOG_INT("canary", node->gave_canary),
                  OMM_LOG_STR("reason", omm_err_name(receipt.reason)),
                  OMM_LOG_STR("sentence", receipt.sentence));
    forget_submission(node);
    omm_crash_point(node->o.state_dir, node->o.crash_at, "after_receipt");
    return OMM_OK;
}

omm_err node_take_receipt(omm_node *node, omm_bytes envelope) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = take_receipt(node, envelope, &arena);
    omm_arena_fini(&arena);
    return err;
}
