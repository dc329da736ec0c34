/* kept_out.c - a node in quarantine, or revoked: its coordinator says so in a receipt for its poll.
 *
 * Signed, for this node and for the very poll that it answers, so that nobody on the way can say it, or say it again
 * when it is not so any more.  Then the owner is told what can be done, and the coordinator is asked rarely.
 */
#include "internal.h"

#include <stdio.h>

const char *node_advice(omm_err reason) {
    if (reason == OMM_ERR_REFUSED_NOT_SELECTED)
        return "nothing is trained meanwhile; ask whoever runs the coordinator, whose `ctl "
               "release` ends it; it asks "
               "again by itself, and at once when it is started again";
    if (reason == OMM_ERR_REFUSED_INVITATION)
        return "ask whoever runs the coordinator for another invitation (`ctl invite`), put it "
               "into the node's file and "
               "start it again";
    return "";
}

/* Twice as long after each such answer, from the wait that follows any refusal to the longest of all. */
static uint64_t wait_after(uint32_t answers) {
    uint64_t ms = NODE_DECLINED_MS;
    for (uint32_t i = 1; i < answers && ms < NODE_WAIT_MAX_MS; i++) ms *= 2;
    return ms < NODE_WAIT_MAX_MS ? ms : NODE_WAIT_MAX_MS;
}

static void tell_owner(omm_node *node, const omm_receipt *receipt, uint64_t wait_ms) {
    (void)snprintf(node->refused, sizeof node->refused, "%s", receipt->sentence);
    node->advice =
        receipt->reason == OMM_ERR_REFUSED_KEY
            ? "that is for good: stop this node; whoever runs the coordinator can say more"
            : node_advice(receipt->reason);
    omm_log_event(node->o.log, OMM_LOG_WARN, "kept_out", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("reason", omm_err_name(receipt->reason)),
                  OMM_LOG_STR("sentence", receipt->sentence), OMM_LOG_STR("advice", node->advice),
                  OMM_LOG_INT("asks_again_s", wait_ms / 1000));
}

omm_err node_take_kept_out(uint64_t *wait_ms, omm_node *node, omm_bytes envelope) {
    omm_arena arena;
    omm_receipt receipt;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = node_receipt_open(&receipt, node, envelope, &node->poll, &arena);
    if (err == OMM_OK && receipt.accepted)
        err = omm_raise(OMM_ERR_REFUSED_FORMAT, "receipt: a poll is nothing to accept");
    if (err == OMM_OK) {
        if (node->kept_out < UINT32_MAX) node->kept_out++;
        *wait_ms = wait_after(node->kept_out);
        tell_owner(node, &receipt, *wait_ms);
    }
    omm_arena_fini(&arena);
    return err;
}
