/* work.c - the work that a step asked for: training with its checkpoints, or a proof.  Any one thread, outside of step. */
#include "internal.h"

/* Asked before every micro-batch: the place to rest, too. */
static bool is_cancelled(void *ud) {
    omm_node *node = ud;
    if (node->o.pace) node->o.pace(node->o.pace_ud);
    return atomic_load(&node->cancelled);
}

static omm_err checkpoint_body(omm_node *node, const void *ud) {
    const omm_bytes *checkpoint = ud;
    OMM_TRY(node_keep_put_large(node, node_checkpoint_name(&node->job), *checkpoint));
    return node_keep_put(node, node_checkpoint_offer_name(&node->job),
                         omm_bytes_of(node->job.offer_digest.b, sizeof node->job.offer_digest.b));
}

static omm_err save_checkpoint(void *ud, omm_bytes checkpoint, uint32_t step) {
    omm_node *node = ud;
    const omm_err err = node_keep_all(node, checkpoint_body, &checkpoint);
    if (err != OMM_OK)
        omm_log_event(node->o.log, OMM_LOG_ERROR, "checkpoint_not_kept",
                      OMM_LOG_STR("node", node->o.name), OMM_LOG_INT("step", step),
                      OMM_LOG_STR("detail", omm_err_sentence()));
    OMM_TRY(err);
    omm_crash_point(node->o.state_dir, node->o.crash_at, "mid_training");
    return OMM_OK;
}

static void on_progress(void *ud, uint32_t step) {
    omm_node *node = ud;
    const node_job *job = &node->job;
    if (!atomic_exchange(&node->has_begun, true))
        omm_log_event(node->o.log, OMM_LOG_INFO, "training_begin",
                      OMM_LOG_STR("node", node->o.name), OMM_LOG_INT("round", job->offer.round),
                      OMM_LOG_INT("canary", job->offer.is_canary),
                      OMM_LOG_INT("steps", job->plan.steps), OMM_LOG_INT("from_step", step),
                      OMM_LOG_INT("memory_mb", job->plan.memory_bytes / 1000000u));
    else
        omm_log_event(node->o.log, OMM_LOG_DEBUG, "training_step",
                      OMM_LOG_STR("node", node->o.name), OMM_LOG_INT("step", step));
    atomic_store(&node->steps_done, step);
}

omm_err omm_node_work(omm_node *node, const struct omm_compute *compute) {
    node_job *job = &node->job;
    if (node->phase == NODE_PROVING) {
        atomic_store(&node->cancelled, false);
        return node_prove(node, is_cancelled);
    }
    if (node->phase != NODE_TRAINING) return omm_raise(OMM_ERR_STATE, "no training is due");
    OMM_ASSERT(!node_needs_shard(job)); /* or our own data would be answered with */
    atomic_store(&node->cancelled, false);
    atomic_store(&node->has_begun, false);
    atomic_store(&node->steps_done, 0);
    omm_training_job work = {.recipe = job->offer.recipe,
                             .shard = omm_buf_view(&job->shard),
                             .seed = omm_training_seed(job->offer.nonce.b, &node->id),
                             .start = job->start,
                             .value_count = job->layout.value_count,
                             .checkpoint = omm_buf_view(&job->checkpoint),
                             .cancelled = is_cancelled,
                             .save = node->o.state_dir ? save_checkpoint : NULL,
                             .progress = on_progress,
                             .ud = node};
    omm_buf_clear(&job->step_digests);
    OMM_TRY(node->o.training->run(node->o.training, &job->result, job->values, &job->step_digests,
                                  &work, compute));
    job->trained = true;
    return OMM_OK;
}

void omm_node_cancel(omm_node *node) {
    atomic_store(&node->cancelled, true);
}
