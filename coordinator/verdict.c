/* verdict.c - receipts for those who proved who they are, refusal records for all. */
#include "internal.h"

#include <string.h>

bool coord_is_refusal(omm_err err) {
    return strncmp(omm_err_name(err), "REFUSED_", 8) == 0;
}

omm_log_level coord_refusal_level(omm_coord *c) {
    if (c->refusals_logged >= COORD_LOGGED_REFUSALS_MAX) return OMM_LOG_DEBUG;
    c->refusals_logged++;
    return OMM_LOG_WARN;
}

uint32_t coord_evidence_round(const omm_coord *c) {
    return c->state <= OMM_COORD_OPEN ? c->round : c->round + 1;
}

omm_err coord_receipt(omm_buf *out, const omm_coord *c, uint32_t round, const omm_digest *node_id,
                      const omm_digest *submission, omm_err reason, const char *sentence) {
    omm_receipt receipt = {.round = round,
                           .node_id = *node_id,
                           .submission_digest = *submission,
                           .accepted = reason == OMM_OK,
                           .reason = reason,
                           .sentence = reason == OMM_OK ? "" : sentence};
    memcpy(receipt.run_id, c->o.run->run_id, sizeof receipt.run_id);
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_receipt_encode(&payload, &receipt);
    if (err == OMM_OK)
        err = omm_envelope_seal(out, OMM_CONTEXT_RECEIPT, omm_buf_view(&payload), c->o.key);
    omm_buf_fini(&payload);
    return err;
}

omm_err coord_reply_row(omm_buf *reply, const coord_row *row) {
    omm_reply r = {.kind = OMM_REPLY_REFUSED, .reason = row->reason, .sentence = row->sentence};
    if (row->receipt.size > 0) r = (omm_reply){.kind = OMM_REPLY_RECEIPT, .envelope = row->receipt};
    return omm_reply_encode(reply, &r);
}

/* Does this refusal fit in what is kept?  A verdict that settles its node always does: there is at
 * most one per node and round. */
static omm_err may_record(bool *may, omm_coord *c, const coord_row *row) {
    *may = row->status != COORD_REJECTED;
    if (*may) return OMM_OK;
    if (row->round >= c->o.run->rounds || row->is_passed) return OMM_OK;
    uint64_t count = 0;
    uint64_t bytes = 0;
    OMM_TRY(coord_store_rejected(&count, &bytes, c, row->round, row->node));
    *may = row->node >= 0 ? count < c->node_records_max
                          : count < c->anonymous_records_max &&
                                bytes + row->bytes.size <= COORD_ANONYMOUS_BYTES_MAX;
    return OMM_OK;
}

omm_err coord_settle(omm_buf *reply, omm_coord *c, coord_row *row) {
    omm_buf receipt;
    omm_buf_init(&receipt, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = OMM_OK;
    bool may = false;
    if (row->node >= 0) {
        OMM_TRY_OUT(coord_receipt(&receipt, c, row->round, &c->o.run->nodes[row->node].id,
                                  &row->digest, row->reason, row->sentence));
        row->receipt = omm_buf_view(&receipt);
    }
    OMM_TRY_OUT(may_record(&may, c, row));
    if (reply) OMM_TRY_OUT(coord_reply_row(reply, row));
    if (may) OMM_TRY_OUT(coord_store_put(c, row));
    if (row->reason != OMM_OK) c->refusals_total++;
    if (row->status == COORD_ACCEPTED) c->accepted_count++;
    if (row->status == COORD_REFUSED) c->refused_count++;
    if (row->node >= 0 && row->reason == OMM_OK) c->nodes[row->node].accepted_total++;
    if (row->node >= 0 && row->reason != OMM_OK) c->nodes[row->node].refused_total++;
    if (row->node >= 0 && row->status != COORD_REJECTED) {
        c->nodes[row->node].settled = true;
        c->nodes[row->node].declined = OMM_DECLINED_NOTHING;
        coord_upload_end(&c->nodes[row->node].upload);
        if (c->nodes[row->node].quarantined) coord_round_count_shut_out(c);
        if (c->batch.open)
            omm_crash_point(c->o.state_dir, c->o.crash_at, "mid_batch");
        else
            omm_crash_point(c->o.state_dir, c->o.crash_at, "after_receipt");
        c->batch.has_verdict = true;
    }
    coord_log_kept(
        c, row->reason == OMM_OK ? OMM_LOG_INFO : coord_refusal_level(c),
        row->reason == OMM_OK ? "submission_accepted" : "submission_refused",
        OMM_LOG_INT("round", row->round),
        OMM_LOG_STR("node", row->node >= 0 ? c->o.run->nodes[row->node].name : "unknown"),
        OMM_LOG_STR("reason", omm_err_name(row->reason)),
        OMM_LOG_STR("sentence", row->sentence ? row->sentence : ""), OMM_LOG_INT("recorded", may));
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_SUBMISSION,
                                     .round = row->round,
                                     .node = row->node,
                                     .reason = row->reason,
                                     .settles = row->node >= 0 && row->status != COORD_REJECTED,
                                     .sentence = row->sentence ? row->sentence : "",
                                     .digest = &row->digest});
out:
    row->receipt = (omm_bytes){0};
    omm_buf_fini(&receipt);
    return err;
}
