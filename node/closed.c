/* closed.c - the end of the run, kept before anything follows from it.
 *
 * A node that is killed when it had heard of it ends when it is started again: the coordinator, which has told everybody, may
 * be gone for good.  So does every later start where the file names this run; where it does not, whoever starts a node after
 * its run wants the coordinator's next one, and it is asked for. */
#include "internal.h"

#include <string.h>

/* What cannot be read is no close; without memory nobody knows. */
static omm_err is_close(bool *is, char run_id[OMM_RUN_ID_SIZE], const omm_node *node,
                        omm_bytes bytes) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_envelope envelope;
    omm_close close;
    omm_err err = omm_envelope_open_as(&envelope, OMM_CONTEXT_CLOSE, bytes);
    *is = err == OMM_OK && omm_public_key_equal(&envelope.key, &node->o.coordinator);
    if (*is) err = omm_close_decode(&close, envelope.payload, &arena);
    *is = *is && err == OMM_OK && (!node->run_id[0] || strcmp(close.run_id, node->run_id) == 0);
    if (*is) memcpy(run_id, close.run_id, sizeof close.run_id);
    omm_arena_fini(&arena);
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

static omm_err keep(omm_node *node, const void *ud) {
    OMM_TRY(node_keep_drop(node, KEEP_ENDED));
    return node_keep_put(node, KEEP_CLOSE, *(const omm_bytes *)ud);
}

omm_err node_take_close(bool *is_over, omm_node *node, omm_bytes envelope) {
    char run_id[OMM_RUN_ID_SIZE];
    OMM_TRY(is_close(is_over, run_id, node, envelope));
    if (!*is_over) return OMM_OK;
    OMM_TRY(node_keep_all(node, keep, &envelope));
    omm_crash_point(node->o.state_dir, node->o.crash_at, "after_close");
    return OMM_OK;
}

static omm_err restore(bool *ends, omm_node *node, omm_bytes envelope) {
    char run_id[OMM_RUN_ID_SIZE];
    uint64_t has_ended = 0;
    bool is = false;
    OMM_TRY(is_close(&is, run_id, node, envelope));
    if (!is) return OMM_OK; /* of a run before */
    OMM_TRY(node_keep_get_u64(&has_ended, node, KEEP_ENDED));
    *ends = node->o.run_id || !has_ended;
    node->is_over = true;
    omm_log_event(node->o.log, OMM_LOG_INFO, "run_is_over", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("run_id", run_id),
                  OMM_LOG_STR("then", *ends ? "ends" : "asks for the coordinator's next run"));
    return OMM_OK;
}

omm_err node_close_restore(bool *ends, omm_node *node) {
    omm_buf envelope;
    bool found = false;
    *ends = false;
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = node_keep_get(&found, &envelope, node, KEEP_CLOSE);
    if (err == OMM_OK && found) err = restore(ends, node, omm_buf_view(&envelope));
    omm_buf_fini(&envelope);
    return err;
}

omm_err omm_node_ended(omm_node *node) {
    return node_keep_put_u64(node, KEEP_ENDED, 1);
}
