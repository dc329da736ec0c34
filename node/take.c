/* take.c - what the coordinator sends, believed only as far as it can be checked. */
#include "internal.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOB_ARENA_BYTES ((size_t)64 << 20) /* layouts of large models */

void node_job_end(node_job *job) {
    if (!job->active) return;
    omm_arena_fini(&job->arena);
    omm_buf_fini(&job->global);
    omm_buf_fini(&job->shard);
    omm_buf_fini(&job->step_digests);
    omm_buf_fini(&job->checkpoint);
    omm_free(job->start);
    omm_free(job->values);
    *job = (node_job){0};
}

/* ---- is the offer ours to follow? ---- */

/* A canary has none of our data in it, and may come in any round. */
static omm_err check_round(const omm_node *node, const omm_offer *offer,
                           const omm_digest *offer_digest) {
    if (strcmp(offer->run_id, node->run_id) == 0 && offer->round < node->rounds_seen)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "round: %u is over for us", offer->round);
    /* One answer per round: a second offer for the same one could learn the difference. */
    const node_given *given = &node->given;
    if (strcmp(offer->run_id, given->run_id) == 0 && offer->round <= given->round &&
        !omm_digest_equal(offer_digest, &given->offer))
        return omm_raise(OMM_ERR_REFUSED_ROUND, "round: we answered another offer for round %u",
                         given->round);
    return OMM_OK;
}

/* From here on: job->declined is what the coordinator is told if what follows fails. */
static omm_err check_source(const omm_node *node, node_job *job) {
    const omm_training *training = node->o.training;
    const omm_offer *offer = &job->offer;
    job->declined = OMM_DECLINED_ROUND;
    if (node->o.run_id && strcmp(offer->run_id, node->o.run_id) != 0)
        return omm_raise(OMM_ERR_REFUSED_ROUND, "run_id: %s is not the run we joined",
                         offer->run_id);
    if (!offer->is_canary) OMM_TRY(check_round(node, offer, &job->offer_digest));
    job->declined = OMM_DECLINED_BASE;
    if (!omm_digest_equal(&offer->base_digest, &training->base_digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "base_digest: not our model");
    if (!omm_digest_equal(&offer->tokenizer_digest, &training->tokenizer_digest))
        return omm_raise(OMM_ERR_REFUSED_BASE, "tokenizer_digest: not our tokenizer");
    job->declined = OMM_DECLINED_ROUND;
    for (size_t i = 0; i < offer->selected_count; i++)
        if (omm_digest_equal(&offer->selected[i], &node->id)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_NOT_SELECTED, "selected: we are not in round %u",
                     offer->round);
}

static omm_err check_offer(const omm_node *node, node_job *job) {
    const omm_node_limits *limits = &node->o.limits;
    const omm_offer *offer = &job->offer;
    job->declined = OMM_DECLINED_ADAPTER;
    if (offer->adapter.rank > limits->rank_max)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "adapter.rank: %u is over our limit of %u",
                         offer->adapter.rank, limits->rank_max);
    if (offer->adapter.value_count > limits->adapter_values_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "adapter.value_count: %" PRIu64 " is over our limit of %" PRIu64,
                         offer->adapter.value_count, limits->adapter_values_max);
    if (offer->adapter.value_count > OMM_NODE_ADAPTER_VALUES_MAX)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "adapter.value_count: %" PRIu64
                         " is more than the %u that a node can keep "
                         "from one round to the next",
                         offer->adapter.value_count, OMM_NODE_ADAPTER_VALUES_MAX);
    job->declined = OMM_DECLINED_TRAFFIC;
    if (offer->global.size > limits->download_bytes_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "global.size: %" PRIu64 " is over our limit of %" PRIu64,
                         offer->global.size, limits->download_bytes_max);
    return OMM_OK;
}

static omm_err make_plan(omm_node *node, node_job *job) {
    const omm_err err = node->o.training->plan(node->o.training, &job->plan, job->offer.recipe);
    job->declined = node_declined_by(err, OMM_DECLINED_RECIPE);
    return err;
}

static omm_err check_plan(const omm_node *node, node_job *job) {
    const omm_node_limits *limits = &node->o.limits;
    const omm_training_plan *plan = &job->plan;
    job->declined = OMM_DECLINED_WORK;
    if (plan->steps > limits->steps_max)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "recipe.steps: %u is over our limit of %u",
                         plan->steps, limits->steps_max);
    if (plan->tokens > limits->tokens_max)
        return omm_raise(OMM_ERR_REFUSED_RECIPE,
                         "recipe: up to %" PRIu64 " tokens, over our limit of %" PRIu64,
                         plan->tokens, limits->tokens_max);
    job->declined = OMM_DECLINED_MEMORY;
    if (plan->pass_tokens > limits->pass_tokens_max)
        return omm_raise(OMM_ERR_REFUSED_RECIPE,
                         "recipe: up to %" PRIu64 " tokens at once, over our limit of %" PRIu64,
                         plan->pass_tokens, limits->pass_tokens_max);
    const omm_adapter_spec *adapter = &job->offer.adapter;
    job->declined = OMM_DECLINED_RECIPE;
    if (plan->adapter.rank != adapter->rank || plan->adapter.targets != adapter->targets ||
        plan->adapter.alpha != adapter->alpha)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "recipe: trains another adapter than the offer's");
    return OMM_OK;
}

/* ---- the job ---- */

static omm_err copy_layout(node_job *job, const omm_layout *from) {
    omm_segment *segments = omm_arena_alloc(&job->arena, from->segment_count, sizeof *segments);
    if (!segments) return omm_raise(OMM_ERR_NOMEM, "%zu segments", from->segment_count);
    for (size_t i = 0; i < from->segment_count; i++) {
        segments[i] = from->segments[i];
        segments[i].name = omm_arena_strdup(&job->arena, from->segments[i].name);
        if (!segments[i].name) return omm_raise(OMM_ERR_NOMEM, "segment names");
    }
    job->layout = (omm_layout){segments, from->segment_count, from->value_count};
    return OMM_OK;
}

static omm_err check_layout(omm_node *node, node_job *job) {
    const omm_adapter_spec *spec = &job->offer.adapter;
    omm_layout layout;
    OMM_TRY(node->o.training->layout(node->o.training, &layout, job->offer.recipe));
    omm_digest digest = omm_layout_digest(&layout);
    if (layout.value_count != spec->value_count || !omm_digest_equal(&digest, &spec->layout_digest))
        return omm_raise(OMM_ERR_REFUSED_SHAPE,
                         "adapter.layout_digest: not the layout of this adapter on our model");
    return copy_layout(job, &layout);
}

static omm_err get_codec(omm_codec *out, const omm_layout *layout, omm_bytes bytes,
                         const char *field) {
    OMM_TRY(omm_codec_get(out, bytes));
    if (omm_codec_check(out, layout) != OMM_OK)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "%s: does not fit the adapter", field);
    return OMM_OK;
}

static omm_err check_codecs(const omm_node *node, node_job *job) {
    const omm_offer *offer = &job->offer;
    OMM_TRY(get_codec(&job->up, &job->layout, offer->codec_up, "codec_up"));
    OMM_TRY(get_codec(&job->down, &job->layout, offer->codec_down, "codec_down"));
    size_t down_max = omm_codec_sent_bytes_max(&job->down, &job->layout);
    if (offer->global.size > down_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "global.size: %" PRIu64 " is over the codec's maximum of %zu",
                         offer->global.size, down_max);
    job->declined = OMM_DECLINED_TRAFFIC;
    size_t up_max = omm_codec_sent_bytes_max(&job->up, &job->layout);
    if (up_max > node->o.limits.upload_bytes_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "codec_up: up to %zu bytes, over our limit of %" PRIu64, up_max,
                         node->o.limits.upload_bytes_max);
    if (omm_chunk_count(up_max) > OMM_BLOB_CHUNKS_MAX)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "codec_up: up to %zu bytes, and at most %u travel",
                         up_max, OMM_BLOB_CHUNKS_MAX * OMM_CHUNK_BYTES);
    return OMM_OK;
}

static omm_err take_memory(node_job *job) {
    size_t n = job->layout.value_count;
    omm_buf_init(&job->global, (size_t)job->offer.global.size);
    omm_buf_init(&job->shard, OMM_CANARY_BYTES_MAX);
    omm_buf_init(&job->step_digests, OMM_STEP_DIGESTS_MAX);
    omm_buf_init(&job->checkpoint, SIZE_MAX);
    job->start = omm_alloc_aligned(n, sizeof *job->start);
    job->values = omm_alloc_aligned(n, sizeof *job->values);
    if (!job->start || !job->values) return omm_raise(OMM_ERR_NOMEM, "adapter of %zu values", n);
    return OMM_OK;
}

static omm_err fill_job(node_job *job, omm_node *node, omm_bytes bytes) {
    omm_envelope envelope;
    job->declined = OMM_DECLINED_OFFER;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_OFFER, bytes));
    if (!omm_public_key_equal(&envelope.key, &node->o.coordinator))
        return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: not the coordinator we pinned");
    OMM_TRY(omm_offer_decode(&job->offer, envelope.payload, &job->arena));
    job->offer_digest = omm_hash(bytes);
    OMM_TRY(check_source(node, job));
    OMM_TRY(check_offer(node, job));
    OMM_TRY(make_plan(node, job));
    OMM_TRY(check_plan(node, job));
    OMM_TRY(check_layout(node, job));
    OMM_TRY(check_codecs(node, job));
    return take_memory(job);
}

omm_digest node_residual_tag(const omm_node *node) {
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_str(node->job.offer.run_id));
    omm_hasher_update(&h, omm_bytes_of(node->job.offer.adapter.layout_digest.b, 32));
    return omm_hasher_final(&h);
}

/* ---- chunks that were here already ---- */

static void chunk_name(char out[32], uint32_t index) {
    (void)snprintf(out, 32, KEEP_GLOBAL_CHUNK "%u", index);
}

static bool is_chunk(const omm_blob *global, uint32_t index, omm_bytes data) {
    const omm_digest digest = omm_hash(data);
    return data.size == omm_chunk_size(global->size, index) &&
           omm_digest_equal(&digest, &global->chunk_digests[index]);
}

omm_err node_drop_chunks(omm_node *node) {
    return omm_db_run(node->db, "DELETE FROM keep WHERE name = ? OR name GLOB ?",
                      OMM_DB_TEXT(KEEP_GLOBAL), OMM_DB_TEXT(KEEP_GLOBAL_CHUNK "*"));
}

/* Only downloads of several chunks are worth it, and only on disk. */
static bool keeps_chunks(const omm_node *node, const omm_offer *offer) {
    return node->o.state_dir && offer->global.chunk_count > 1 && !offer->is_canary;
}

static omm_err load_chunks(node_job *job, omm_node *node) {
    const omm_blob *global = &job->offer.global;
    bool found = true;
    omm_err err = OMM_OK;
    omm_buf chunk;
    omm_buf_init(&chunk, OMM_CHUNK_BYTES);
    /* The last one is asked for again: every download ends with an answer. */
    while (err == OMM_OK && found && job->next_chunk + 1 < global->chunk_count) {
        char name[32];
        chunk_name(name, job->next_chunk);
        omm_buf_clear(&chunk);
        err = node_keep_get(&found, &chunk, node, name);
        found = found && is_chunk(global, job->next_chunk, omm_buf_view(&chunk));
        if (err != OMM_OK || !found) break;
        err = omm_buf_append(&job->global, chunk.data, chunk.size);
        if (err == OMM_OK) job->next_chunk++;
    }
    omm_buf_fini(&chunk);
    return err == OMM_ERR_TOO_BIG ? OMM_OK : err; /* what is kept there is no chunk */
}

/* Go on with the download that a restart or a pause has cut; what is kept of another one goes. */
static omm_err restore_chunks(node_job *job, omm_node *node) {
    const omm_blob *global = &job->offer.global;
    if (!keeps_chunks(node, &job->offer)) return OMM_OK;
    omm_buf kept;
    omm_buf_init(&kept, sizeof global->digest.b);
    bool found = false;
    const omm_bytes want = omm_bytes_of(global->digest.b, sizeof global->digest.b);
    const omm_err err = node_keep_get(&found, &kept, node, KEEP_GLOBAL);
    const bool same = err == OMM_OK && found && omm_bytes_equal(omm_buf_view(&kept), want);
    omm_buf_fini(&kept);
    OMM_TRY(err);
    if (same) return load_chunks(job, node);
    OMM_TRY(node_drop_chunks(node));
    return node_keep_put(node, KEEP_GLOBAL, want);
}

static omm_err keep_chunk(omm_node *node, const omm_reply *reply) {
    char name[32];
    if (!keeps_chunks(node, &node->job.offer)) return OMM_OK;
    chunk_name(name, reply->index);
    return node_keep_put(node, name, reply->data);
}

/* The owner shall see what we did not do, and why; that we are not in a round is no such thing. */
static omm_err keep_declined(omm_node *node, const omm_offer *offer, omm_err err) {
    if (err == OMM_ERR_NOMEM || err == OMM_ERR_IO || err == OMM_ERR_REFUSED_ROUND ||
        err == OMM_ERR_REFUSED_NOT_SELECTED)
        return OMM_OK;
    return node_history_declined(node, offer, omm_err_sentence());
}

omm_declined node_declined_by(omm_err err, omm_declined otherwise) {
    switch (err) {
    case OMM_ERR_CANCELLED: return OMM_DECLINED_PAUSED;
    case OMM_ERR_REFUSED_SIZE:
    case OMM_ERR_NOMEM: return OMM_DECLINED_MEMORY;
    case OMM_ERR_MISMATCH:
    case OMM_ERR_NOT_FOUND: return OMM_DECLINED_FILES;
    default: return otherwise;
    }
}

/* Another run of the same coordinator: what we counted belongs to the old one.  Both or neither: the old count would refuse
 * rounds of the new run. */
static omm_err keep_run(omm_node *node, const void *ud) {
    const char *run_id = ud;
    OMM_TRY(node_keep_put(node, KEEP_RUN_ID, omm_bytes_str(run_id)));
    return node_keep_put_u64(node, KEEP_ROUNDS_SEEN, 0);
}

omm_err node_take_offer(omm_declined *declined, omm_node *node, omm_bytes envelope) {
    node_job job = {.active = true};
    omm_arena_init(&job.arena, JOB_ARENA_BYTES);
    omm_err err = fill_job(&job, node, envelope);
    if (err == OMM_OK) err = restore_chunks(&job, node);
    if (err == OMM_OK && (node->is_new_run || strcmp(node->run_id, job.offer.run_id) != 0)) {
        err = node_keep_all(node, keep_run, job.offer.run_id);
        if (err == OMM_OK) {
            memcpy(node->run_id, job.offer.run_id, sizeof node->run_id);
            node->rounds_seen = 0;
            node->is_new_run = false;
        }
    }
    if (err != OMM_OK) {
        const omm_err kept = keep_declined(node, &job.offer, err);
        *declined = job.declined;
        node_job_end(&job);
        return kept != OMM_OK ? kept : err;
    }
    node_job_end(&node->job);
    node->job = job;
    node->has_round = true;
    node->round = job.offer.round;
    omm_crash_point(node->o.state_dir, node->o.crash_at, "after_offer");
    return OMM_OK;
}

omm_err node_load_checkpoint(omm_node *node) {
    omm_buf offer;
    omm_buf_init(&offer, sizeof(omm_digest));
    bool found = false;
    omm_err err = node_keep_get(&found, &offer, node, node_checkpoint_offer_name(&node->job));
    omm_bytes want = omm_bytes_of(node->job.offer_digest.b, sizeof node->job.offer_digest.b);
    if (err == OMM_OK && found && omm_bytes_equal(omm_buf_view(&offer), want))
        err = node_keep_get_large(&found, &node->job.checkpoint, node,
                                  node_checkpoint_name(&node->job));
    if (err != OMM_OK) omm_buf_clear(&node->job.checkpoint); /* half of one is none */
    omm_buf_fini(&offer);
    return err;
}

/* ---- chunks ---- */

static omm_err finish_global(node_job *job) {
    omm_bytes sent = omm_buf_view(&job->global);
    omm_digest digest = omm_hash(sent);
    if (!omm_digest_equal(&digest, &job->offer.global.digest))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "global: not the adapter that the offer names");
    omm_encoded info;
    OMM_TRY(omm_codec_decode(job->start, &info, &job->down, &job->layout, sent));
    if (!omm_digest_equal(&info.payload_digest, &job->offer.global.canonical))
        return omm_raise(OMM_ERR_REFUSED_DIGEST,
                         "global.canonical_digest: not that of its payload");
    omm_buf_fini(&job->global); /* training has better use for the room */
    return OMM_OK;
}

omm_err node_take_chunk(bool *complete, omm_node *node, const omm_reply *reply) {
    node_job *job = &node->job;
    const omm_blob *global = &job->offer.global;
    *complete = false;
    if (job->next_chunk >= global->chunk_count) return node_take_shard_chunk(complete, job, reply);
    if (!omm_digest_equal(&reply->digest, &global->digest) || reply->index != job->next_chunk)
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "chunk: not the one we asked for");
    if (!is_chunk(global, reply->index, reply->data))
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "chunk %u: not the bytes that the offer names",
                         reply->index);
    const bool is_last = reply->index + 1 == global->chunk_count;
    OMM_TRY(keep_chunk(node, reply));
    OMM_TRY(omm_buf_append(&job->global, reply->data.data, reply->data.size));
    const omm_err err = is_last ? finish_global(job) : OMM_OK;
    if (err != OMM_OK) { /* where it is our own trouble, the same chunk is given once more */
        job->global.size -= reply->data.size;
        return err;
    }
    job->next_chunk++;
    *complete = is_last && !node_needs_shard(job);
    return OMM_OK;
}

bool node_has_all(const node_job *job) {
    return job->next_chunk >= job->offer.global.chunk_count && !node_needs_shard(job);
}

omm_err node_take_whole(bool *complete, omm_node *node, omm_bytes global) {
    const node_job *job = &node->job;
    *complete = false;
    if (global.size == 0 || job->offer.global.chunk_count != 1 || job->next_chunk != 0 ||
        !is_chunk(&job->offer.global, 0, global))
        return OMM_OK;
    const omm_reply chunk = {.digest = job->offer.global.digest, .data = global};
    return node_take_chunk(complete, node, &chunk);
}
