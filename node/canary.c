/* canary.c - owns a node's work on public data: fetched like an adapter, trained like its own data, and kept
 * apart from all that goes on over rounds: residual, checkpoint, counts, the round that was answered last. */
#include "internal.h"

#include <string.h>

const char *node_checkpoint_name(const node_job *job) {
    return job->offer.is_canary ? KEEP_CANARY_CHECKPOINT : KEEP_CHECKPOINT;
}

const char *node_checkpoint_offer_name(const node_job *job) {
    return job->offer.is_canary ? KEEP_CANARY_CHECKPOINT_OFFER : KEEP_CHECKPOINT_OFFER;
}

/* ---- the shard ---- */

bool node_needs_shard(const node_job *job) {
    return job->offer.is_canary && job->next_shard_chunk < job->offer.canary.chunk_count;
}

void node_next_chunk(omm_digest *digest, uint32_t *index, const node_job *job) {
    const bool is_shard = job->next_chunk >= job->offer.global.chunk_count;
    *digest = is_shard ? job->offer.canary.digest : job->offer.global.digest;
    *index = is_shard ? job->next_shard_chunk : job->next_chunk;
}

omm_err node_take_shard_chunk(bool *complete, node_job *job, const omm_reply *reply) {
    const omm_blob *shard = &job->offer.canary;
    const omm_digest digest = omm_hash(reply->data);
    *complete = false;
    if (!omm_digest_equal(&reply->digest, &shard->digest) || reply->index != job->next_shard_chunk)
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "chunk: not the one we asked for");
    if (reply->data.size != omm_chunk_size(shard->size, reply->index) ||
        !omm_digest_equal(&digest, &shard->chunk_digests[reply->index]))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "canary chunk %u: not the bytes of the offer",
                         reply->index);
    OMM_TRY(omm_buf_append(&job->shard, reply->data.data, reply->data.size));
    job->next_shard_chunk++;
    *complete = !node_needs_shard(job);
    if (!*complete) return OMM_OK;
    const omm_digest whole = omm_hash(omm_buf_view(&job->shard));
    if (omm_digest_equal(&whole, &shard->digest)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_DIGEST, "canary: not the data that the offer names");
}

/* ---- what is given ---- */

omm_err node_canary_encode(omm_buf *sent, omm_encoded *info, node_job *job, float *delta) {
    for (size_t i = 0; i < job->layout.value_count; i++) delta[i] = job->values[i] - job->start[i];
    return omm_codec_encode(sent, info, &job->up, &job->layout, delta);
}

omm_err node_canary_gave(omm_node *node, const node_gave *gave) {
    OMM_TRY(node_keep_put_u64(node, KEEP_SUBMISSION_IS_CANARY, 1));
    return node_history_canary(node, gave);
}

omm_err node_canary_restore(omm_node *node) {
    uint64_t is_canary = 0;
    OMM_TRY(node_keep_get_u64(&is_canary, node, KEEP_SUBMISSION_IS_CANARY));
    node->gave_canary = is_canary != 0;
    return OMM_OK;
}
