/* submit.c - what a node announces: a submission's manifest, and whether it is let in.
 *
 * A submission is checked in this order, cheapest first, and refused at the first failure:
 *   envelope form, signature, context, enrolment, message form and limits of its fields   not settled by it
 *   run id, round, nonce and offer, selection                           not settled: maybe a replay
 *   base and global digest, duplicate, tokens, steps, codec, payload size     settled
 * Then the payload, where it came with the manifest: is it that which is described?   no record of it
 * Then upload.c has it.
 * Who has the nonce of a round that was not opened yet had its offer before an older copy of the state was put back: it
 * is refused, and no record says so, as the round may get that offer again, and would have refused a submission of it.
 * Only a submission that names this round's nonce and offer proves that its node speaks now, so only
 * that settles the node; whatever is replayed by others costs it nothing.
 *
 * Whatever `verify` demands of an accepted submission is demanded here: otherwise one node could
 * spoil the bundle of all.
 */
#include "submit.h"

#include "omm/run_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct attempt {
    int32_t node;     /* COORD_ANONYMOUS until the signature proved one */
    bool is_envelope; /* the bytes have the form of one */
    bool settles;     /* a failure from here on settles the node */
    bool is_early;    /* it has the nonce of a round that is still to be opened */
    omm_submission *submission;
} attempt;

/* A submission for a round that is over: late from a node that still owed one, else a replay. */
static omm_err refuse_old_round(omm_coord *c, uint32_t node, const omm_submission *s) {
    omm_digest nonce;
    omm_run_nonce(nonce.b, &c->o.run_seed, s->round);
    bool settled = false;
    OMM_TRY(coord_store_is_settled(&settled, c, s->round, node));
    if (omm_digest_equal(&nonce, &s->nonce) && !settled)
        return omm_raise(OMM_ERR_REFUSED_LATE, "round: %u was closed before this came", s->round);
    return omm_raise(OMM_ERR_REFUSED_ROUND, "round: %u is over, this is round %u", s->round,
                     coord_evidence_round(c));
}

static omm_err check_round(attempt *a, omm_coord *c, const omm_submission *s) {
    uint32_t node = (uint32_t)a->node;
    if (strcmp(s->run_id, c->o.run->run_id) != 0)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not this run", s->run_id);
    if (s->round < coord_evidence_round(c)) return refuse_old_round(c, node, s);
    if (s->round != c->round || c->state != OMM_COORD_OPEN) {
        omm_digest nonce;
        omm_run_nonce(nonce.b, &c->o.run_seed, s->round);
        a->is_early = omm_digest_equal(&nonce, &s->nonce);
        return omm_raise(OMM_ERR_REFUSED_ROUND, "round: %u is not open", s->round);
    }
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
    if (c->nodes[node].quarantined) return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, IN_QUARANTINE);
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
    if (s->step_digests.size != (size_t)s->steps * 8)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "step_digests: %zu bytes for %u steps of 8",
                         s->step_digests.size, s->steps);
    if (c->o.steps > 0 && s->steps != c->o.steps)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "steps: %u, and the recipe has %u", s->steps,
                         c->o.steps);
    if (!c->o.run->codec_up.error_feedback &&
        !omm_digest_equal(&s->residual_after, &c->residual_zero))
        return omm_raise(OMM_ERR_REFUSED_RESIDUAL,
                         "residual_after: not that of zeros, and the codec has no error feedback");
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
/* ---- what came of it ---- */

static omm_err announce(omm_buf *reply, omm_coord *c, const attempt *a, const omm_digest *digest,
                        const omm_request *request) {
    const coord_upload *old = &c->nodes[a->node].upload;
    const omm_submission *s = a->submission;
    if (old->active && !omm_digest_equal(&old->digest, digest))
        OMM_TRY(coord_upload_replace(c, (uint32_t)a->node));
    coord_row row = {.round = c->round,
                     .digest = *digest,
                     .node = a->node,
                     .status = COORD_PENDING,
                     .is_envelope = true,
                     .bytes = request->envelope,
                     .tokens = s->tokens,
                     .payload = s->payload.digest,
                     .canonical = s->payload.canonical};
    OMM_TRY(coord_store_put(c, &row));
    OMM_TRY(coord_upload_open(&c->nodes[a->node].upload, digest, request->envelope));
    return coord_upload_go_on(reply, c, (uint32_t)a->node, request->data);
}

/* The same bytes once more: the same answer, unless the node has taken a newer offer since. */
static omm_err answer_known(bool *answered, omm_buf *reply, omm_coord *c, const omm_digest *digest,
                            omm_bytes whole, omm_arena *arena) {
    coord_row row;
    bool found = false;
    *answered = false;
    OMM_TRY(coord_store_find(&found, &row, c, digest, arena));
    if (!found) return OMM_OK;
    if (row.node >= 0) c->payload.up = whole.size; /* it has signed this before */
    if (row.status == COORD_PENDING) {
        const coord_upload *upload = &c->nodes[row.node].upload;
        if (!upload->active) return OMM_OK; /* the round is over, or another was announced */
        *answered = true;
        OMM_TRY(coord_upload_check_whole(&upload->submission.payload, whole));
        return coord_upload_go_on(reply, c, (uint32_t)row.node, whole);
    }
    bool is_old = row.round < c->round;
    if (is_old && (row.node < 0 || c->nodes[row.node].offered || row.status == COORD_REJECTED))
        return OMM_OK;
    *answered = true;
    return coord_reply_row(reply, &row);
}

omm_err coord_submit_answer(omm_buf *reply, omm_coord *c, const omm_request *request,
                            omm_arena *arena) {
    const omm_bytes bytes = request->envelope;
    omm_digest digest = omm_hash(bytes);
    bool answered = false;
    OMM_TRY(coord_canary_submit(&answered, reply, c, request, &digest, arena));
    if (answered) return OMM_OK;
    OMM_TRY(answer_known(&answered, reply, c, &digest, request->data, arena));
    if (answered) return OMM_OK;
    omm_submission submission;
    attempt a = {.node = COORD_ANONYMOUS, .submission = &submission};
    omm_err err = check_manifest(&a, c, bytes, &digest, arena);
    if (err ==
        OMM_OK) { /* who is on the way may have changed the payload, so this settles nothing */
        OMM_TRY(coord_upload_check_whole(&submission.payload, request->data));
        return announce(reply, c, &a, &digest, request);
    }
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
                     .is_passed = a.is_early,
                     .bytes = bytes};
    return coord_settle(reply, c, &row);
}
