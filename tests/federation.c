/* federation.c - see federation.h. */
#include "federation_fakes.h"

#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm/policy.h"
#include "omm/run_config.h"
#include "omm/sync.h"
#include "omm/verify.h"
#include "omm_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

/* Free memory without which a folder goes to the disk: the largest, of held_test, has 230 MB, and tests run side by side. */
#define MEMORY_BYTES_MIN ((uint64_t)1 << 30)

/* ---- open ---- */

fed_options fed_options_default(void) {
    return (fed_options){.nodes = 3,
                         .rounds = 2,
                         .accept_min = 1,
                         .deadline_ms = 600000,
                         .join_ms = 3600000,
                         .error_feedback = true,
                         .loss_increase_max = 0.5};
}

fed_options fed_options_durable(const char *dir) {
    fed_options o = fed_options_default();
    o.on_disk = o.durable = true;
    o.dir = dir;
    return o;
}

static int by_id(const void *a, const void *b) {
    return omm_digest_compare(&((const omm_run_node *)a)->id, &((const omm_run_node *)b)->id);
}

static void make_nodes(fed *f, const omm_seed *seed) {
    for (uint32_t i = 0; i < f->o.nodes; i++) {
        (void)snprintf(f->names[i], sizeof f->names[i], "node-%02u", i);
        omm_run_node_key(&f->keys[i], seed, f->names[i]);
        f->run_nodes[i] = (omm_run_node){.name = f->names[i],
                                         .id = omm_key_id(&f->keys[i].public_key),
                                         .public_key = f->keys[i].public_key,
                                         .client = ""};
        if (!f->run.simulated) continue; /* a service does not know */
        f->run_nodes[i].client = f->names[i];
        f->run_nodes[i].data_digest = fed_data(f, i);
        f->run_nodes[i].examples = 10;
    }
    uint32_t listed = f->o.listed ? f->o.listed : f->o.nodes;
    qsort(f->run_nodes, listed, sizeof f->run_nodes[0], by_id);
    for (uint32_t i = 0; i < f->o.nodes; i++)
        for (uint32_t k = 0; k < f->o.nodes; k++)
            if (strcmp(f->run_nodes[k].name, f->names[i]) == 0) {
                f->of_node[i] = k;
                f->extra[k] = f->o.extra[i];
            }
}

static void make_run(fed *f) {
    omm_seed seed = omm_seed_from_u64(7);
    uint32_t cols = f->o.values_cols ? f->o.values_cols : 6;
    f->segments[0] = (omm_segment){"blk.0.attn_q.weight.lora_a", 2, 5, 0};
    f->segments[1] = (omm_segment){"blk.0.attn_q.weight.lora_b", 4, cols, 10};
    omm_run_coordinator_key(&f->coordinator_key, &seed);
    const bool is_service = f->o.listed > 0; /* whoever joins has a key and a name of his own */
    f->run = (omm_run_record){.name = "federation",
                              .has_seed = !is_service,
                              .seed = is_service ? 0 : 7,
                              .simulated = !is_service,
                              .rounds = f->o.rounds,
                              .rank = 2,
                              .alpha = 4,
                              .targets = 1,
                              .layout = {f->segments, 2, 10 + (size_t)4 * cols},
                              .recipe = omm_bytes_str("fake recipe"),
                              .codec_up = {.kind = OMM_CODEC_INT8,
                                           .zstd_level = 3,
                                           .error_feedback = f->o.error_feedback},
                              .codec_down = {.kind = OMM_CODEC_F16, .zstd_level = 3},
                              .value_max = 1,
                              .weight_sum_max = (uint64_t)1 << 32,
                              .norm_max = f->o.norm_max > 0 ? f->o.norm_max : 10,
                              .tokens_max = 1000,
                              .loss_increase_max = f->o.loss_increase_max,
                              .coordinator_key = f->coordinator_key.public_key,
                              .nodes = f->run_nodes,
                              .node_count = f->o.listed ? f->o.listed : f->o.nodes,
                              .test_digest = omm_hash(omm_bytes_str("test")),
                              .test_items = 3};
    if (f->o.up) f->run.codec_up = *f->o.up;
    if (f->o.down) f->run.codec_down = *f->o.down;
    f->run.base.name = "base.gguf";
    f->run.base.bytes = 1000;
    f->run.base.digest = omm_hash(omm_bytes_str("base"));
    f->run.base.tokenizer_digest = omm_hash(omm_bytes_str("tokenizer"));
    f->run.base.architecture = "llama";
    omm_run_id(f->run.run_id, &seed, omm_bytes_str("name: federation\n"));
    make_nodes(f, &seed);
    if (f->o.layout) f->run.layout = *f->o.layout;
    f->initial = omm_alloc(f->run.layout.value_count, sizeof *f->initial);
    CHECK(f->initial);
    omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_ADAPTER_INIT, 0, 0);
    /* Exact in f16, so that the first adapter that is sent is the first one. */
    for (size_t i = 0; i < 10; i++)
        f->initial[i] = omm_f16_to_f32(omm_f32_to_f16(omm_rng_unit(&lane, i) - 0.5f));
}

char *fed_path(const fed *f, char path[OMM_PATH_MAX], const char *name) {
    CHECK_OK(omm_path_join(path, f->dir, name));
    return path;
}

static omm_err admit(void *ud, const char *name, const omm_public_key *key) {
    fed *f = ud;
    for (uint32_t i = 0; i < f->o.nodes; i++) {
        if (!omm_public_key_equal(&f->keys[i].public_key, key)) continue;
        f->of_node[i] = (uint32_t)f->run.node_count;
    }
    CHECK(f->run.node_count < FED_NODES_MAX);
    char *kept = f->joined[f->run.node_count];
    (void)snprintf(kept, sizeof f->joined[0], "%s", name);
    f->run_nodes[f->run.node_count++] =
        (omm_run_node){.name = kept, .id = omm_key_id(key), .public_key = *key, .client = ""};
    return OMM_OK;
}

static void retract(void *ud) {
    ((fed *)ud)->run.node_count--;
}

static void make_enrolment(fed *f) {
    f->clock.wall_ms = 1000000;
    f->enrolment = (omm_coord_enrolment){.listed = f->o.listed,
                                         .node_max = f->o.node_max ? f->o.node_max : f->o.nodes,
                                         .work_bits = f->o.work_bits,
                                         .clock = omm_clock_fake(&f->clock),
                                         .admit = admit,
                                         .retract = retract,
                                         .ud = f};
}

/* One for each node that is not on the list. */
static void invite(fed *f) {
    omm_buf text;
    omm_buf_init(&text, 4096);
    if (f->o.nodes > f->o.listed)
        CHECK_OK(
            omm_coord_invite(&text, f->coord, f->o.nodes - f->o.listed, f->o.token_hours, "guest"));
    CHECK_OK(omm_buf_append(&text, "", 1));
    for (uint32_t i = f->o.listed; i < f->o.nodes; i++) {
        char *line = (char *)text.data + (size_t)(i - f->o.listed) * OMM_INVITATION_TEXT_SIZE;
        line[OMM_INVITATION_TEXT_SIZE - 1] = '\0';
        CHECK_OK(omm_invitation_parse(&f->tokens[i], line));
    }
    omm_buf_fini(&text);
}

/* Around each call of the coordinator, which is the only one that allocates then: what others hold. */
static size_t begin_call(fed *f) {
    omm_mem_peak_restart();
    return omm_mem_bytes() - f->coord_bytes;
}

static void end_call(fed *f, omm_coord_state state, size_t others) {
    const size_t peak = omm_mem_peak() - others;
    if (peak > f->coord_peaks[state]) f->coord_peaks[state] = peak;
    f->coord_bytes = omm_mem_bytes() - others;
}

omm_coord_options fed_coord_options(fed *f) {
    return (omm_coord_options){
        .run = &f->run,
        .enrolment = f->o.listed ? &f->enrolment : NULL,
        .canaries = f->o.canaries ? &f->canaries : NULL,
        .extra = f->extra,
        .scenario_yaml = omm_bytes_str("name: federation\n"),
        .policy_yaml = omm_buf_view(&f->policy_yaml),
        .run_seed = omm_seed_from_u64(7),
        .steps = FED_STEPS,
        .initial = fed_initial(f),
        .key = &f->coordinator_key,
        .policy = {.select = f->o.select,
                   .over_select = f->o.over_select,
                   .is_timed = f->o.is_timed,
                   .quorum = f->o.quorum,
                   .accept_min = f->o.accept_min,
                   .join_ms = f->o.join_ms,
                   .deadline_ms = f->o.deadline_ms,
                   .poll_ms = 100},
        .evaluator = fed_evaluator(f),
        .bundle = f->bundle,
        .state_dir = f->o.on_disk ? fed_path(f, f->state_dir, "coordinator") : NULL,
        .log = f->o.log,
        .on_event = f->o.on_event,
        .on_event_ud = f->o.ud,
    };
}

static void open_coordinator(fed *f) {
    char path[OMM_PATH_MAX];
    const size_t others = begin_call(f);
    CHECK_OK(omm_bundle_open(&f->bundle, fed_path(f, path, "bundle"), f->o.durable));
    const omm_coord_options options = fed_coord_options(f);
    CHECK_OK(omm_coord_open(&f->coord, &options));
    end_call(f, OMM_COORD_JOINING, others);
}

static void close_coordinator(fed *f) {
    omm_coord_close(f->coord);
    omm_bundle_close(f->bundle);
    f->coord = NULL;
    f->bundle = NULL;
    f->coord_bytes = 0;
}

void fed_restart_coordinator(fed *f) {
    close_coordinator(f);
    open_coordinator(f);
    f->coord_deadline_ms = f->now_ms;
}

static void open_node(fed *f, uint32_t i) {
    char path[OMM_PATH_MAX];
    omm_node_options options = {
        .key = &f->keys[i],
        .name = f->names[i],
        .coordinator = f->coordinator_key.public_key,
        .limits = omm_node_limits_default(),
        .token = f->o.listed && i >= f->o.listed && !f->o.work_bits ? &f->tokens[i] : NULL,
        .training = f->training[i],
        .whole = f->o.whole,
        .state_dir = f->o.on_disk ? fed_path(f, path, f->names[i]) : NULL};
    if (f->o.work_bits_max) options.limits.work_bits_max = f->o.work_bits_max;
    CHECK_OK(omm_node_open(&f->nodes[i], &options));
}

/* Before a call of this kind: does it run out of memory? */
static void before_call(fed *f, fed_alloc kind) {
    f->is_short = f->o.alloc_kind == kind && f->calls[kind] == f->o.alloc_call && f->o.alloc_nth;
    if (f->is_short) omm_mem_fail_nth(f->o.alloc_nth);
    f->calls[kind]++;
}

/* After it: true when it failed on purpose and is to be repeated. */
static bool is_to_repeat(fed *f, omm_err err) {
    CHECK(err != OMM_OK || !f->is_short || omm_mem_fail_is_due()); /* none is overlooked */
    omm_mem_fail_nth(0);
    if (err == OMM_ERR_NOMEM && f->o.alloc_kind != FED_ALLOC_NONE) {
        f->out_of_memory++;
        return true;
    }
    if (err == OMM_ERR_IO && f->o.disk_fails) {
        f->out_of_disk++;
        f->is_stopped = omm_sync_check() != OMM_OK;
        return !f->is_stopped;
    }
    CHECK_OK(err);
    return false;
}

static void act_on(fed *f, uint32_t i, const omm_node_event *event) {
    omm_err err;
    do {
        before_call(f, FED_ALLOC_NODE);
        err = omm_node_step(&f->actions[i], f->nodes[i], f->now_ms, event);
    } while (is_to_repeat(f, err));
    if (f->is_stopped) return;
    const omm_node_action *action = &f->actions[i];
    f->wake_ms[i] = f->now_ms;
    if (action->kind == OMM_NODE_WAIT) f->wake_ms[i] = action->until_ms;
    if (action->kind == OMM_NODE_WORK)
        f->wake_ms[i] += f->o.train_ms[i] ? f->o.train_ms[i] : FED_TRAIN_MS;
    if (action->kind == OMM_NODE_DONE) f->done[i] = true;
}

/* Kills are asked here, not power cuts: memory will do for a disk, and nobody waits for what others write to it. */
static void make_folder(fed *f) {
    struct statvfs memory;
    const bool has_room = statvfs("/dev/shm", &memory) == 0 &&
                          (uint64_t)memory.f_bavail * memory.f_frsize >= MEMORY_BYTES_MIN;
    (void)snprintf(f->dir, sizeof f->dir, "%s/omm-federation-XXXXXX",
                   has_room ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(f->dir));
}

void fed_open(fed *f, const fed_options *options) {
    *f = (fed){.o = *options};
    if (options->dir)
        (void)snprintf(f->dir, sizeof f->dir, "%s", options->dir);
    else
        make_folder(f);
    make_run(f);
    omm_policy policy;
    omm_policy_default(&policy);
    policy.bootstrap.resamples = 1000; /* the gates are not what is tested here */
    omm_buf_init(&f->policy_yaml, (size_t)1 << 20);
    CHECK_OK(omm_config_write(&f->policy_yaml, omm_policy_fields, &policy));
    make_enrolment(f);
    f->canaries = (omm_coord_canaries){.shards = fed_shards,
                                       .shard_count = FED_SHARDS,
                                       .passes = f->o.passes,
                                       .share = f->o.share};
    open_coordinator(f);
    if (f->o.listed && !f->o.work_bits) invite(f);
    for (uint32_t i = 0; i < f->o.nodes; i++) {
        f->training[i] = fed_training_open(f, i);
        f->done[i] = f->o.silent[i];
        open_node(f, i);
        if (!f->done[i]) act_on(f, i, &(omm_node_event){.kind = OMM_NODE_TICK});
    }
}

void fed_close(fed *f) {
    for (uint32_t i = 0; i < f->o.nodes; i++) {
        omm_node_close(f->nodes[i]);
        omm_training_close(f->training[i]);
    }
    close_coordinator(f);
    omm_free(f->initial);
    omm_buf_fini(&f->policy_yaml);
    CHECK_OK(omm_dir_remove(f->dir));
}

/* ---- time ---- */

static void tick(fed *f) {
    omm_err err;
    do {
        const omm_coord_state state = omm_coord_get_status(f->coord).state;
        const size_t others = begin_call(f);
        before_call(f, FED_ALLOC_TICK);
        err = omm_coord_tick(&f->coord_deadline_ms, f->coord, f->now_ms);
        end_call(f, state, others);
    } while (is_to_repeat(f, err));
    if (f->o.restart_coordinator) {
        bool idle = f->coord_deadline_ms > f->now_ms;
        uint64_t deadline_ms = f->coord_deadline_ms;
        fed_restart_coordinator(f);
        /* An idle one stays idle; the restart began its durations again. */
        if (idle) f->coord_deadline_ms = deadline_ms;
    }
}

void fed_forbid_writing(bool forbidden) {
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR); /* EFBIG instead */
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = forbidden ? 0 : limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* ---- canaries ---- */

void fed_replay(fed *f) {
    if (!f->o.canaries) return;
    for (;;) {
        omm_canary_job job;
        omm_canary_result result;
        bool found = false;
        CHECK_OK(omm_coord_canary_next(&found, &job, f->coord));
        if (!found) return;
        CHECK_OK(omm_canary_replay(&result, &job, fed_train_again, f));
        if (result.passed)
            f->passed++;
        else
            f->failed++;
        CHECK_OK(
            omm_coord_canary_verdict(&f->coord_deadline_ms, f->coord, f->now_ms, &job, &result));
        omm_canary_job_fini(&job);
        if (!f->o.restart_coordinator) continue;
        const uint64_t deadline_ms = f->coord_deadline_ms;
        fed_restart_coordinator(f);
        f->coord_deadline_ms = deadline_ms;
    }
}

static omm_err step(fed *f, omm_buf *reply, omm_bytes request) {
    if (f->o.batched) OMM_TRY(omm_coord_begin(f->coord));
    omm_err err =
        omm_coord_step(reply, &f->coord_deadline_ms, f->coord, f->now_ms, request, "test");
    if (!f->o.batched) return err;
    if (f->undo_next) fed_forbid_writing(true);
    omm_err committed = omm_coord_commit(&f->coord_deadline_ms, f->coord, f->now_ms);
    if (f->undo_next) fed_forbid_writing(false);
    f->undone += committed == OMM_ERR_IO && f->undo_next;
    if (err == OMM_OK && !(committed == OMM_ERR_IO && f->undo_next)) err = committed;
    f->undo_next = false;
    return err;
}

/* Work for a challenge is worth nothing after a restart: with one at every message nobody would come in. */
static bool is_proving(const fed *f) {
    bool is = false;
    for (uint32_t i = 0; i < f->o.nodes && f->o.work_bits; i++) {
        const char *phase = omm_node_get_status(f->nodes[i]).phase;
        is |= strcmp(phase, "enrolling") == 0 || strcmp(phase, "proving") == 0;
    }
    return is;
}

void fed_send(fed *f, omm_buf *reply, omm_bytes request) {
    omm_err err;
    do { /* a peer without an answer sends the same again */
        const omm_coord_state state = omm_coord_get_status(f->coord).state;
        const size_t others = begin_call(f);
        before_call(f, FED_ALLOC_STEP);
        err = step(f, reply, request);
        end_call(f, state, others);
    } while (is_to_repeat(f, err));
    if (f->o.restart_coordinator && !is_proving(f)) {
        uint64_t deadline_ms = f->coord_deadline_ms;
        fed_restart_coordinator(f);
        f->coord_deadline_ms = deadline_ms;
    }
    if (!f->o.replays_by_hand) fed_replay(f);
}

static void exchange(fed *f, uint32_t i) {
    uint64_t index = f->messages++;
    if (f->o.intrude) f->o.intrude(f->o.ud, f);
    fed_fault fault = f->o.fault ? f->o.fault(f->o.ud, index) : FED_DELIVER;
    omm_buf reply;
    omm_buf request;
    omm_buf_init(&reply, (size_t)1 << 20);
    omm_buf_init(&request, (size_t)1 << 20);
    /* Taken by the coordinator and freed here, it would count as the coordinator's for good. */
    if (f->o.counts_bytes) CHECK_OK(omm_buf_reserve(&reply, OMM_MESSAGE_BYTES_MAX));
    CHECK_OK(omm_buf_append(&request, f->actions[i].request.data, f->actions[i].request.size));
    if (request.size > f->longest) f->longest = request.size;
    if (f->o.request_bytes_max && request.size > f->o.request_bytes_max) {
        fault = FED_LOSE_REQUEST;
        f->too_long++;
    }
    f->undo_next = fault == FED_UNDO;
    if (fault != FED_LOSE_REQUEST) fed_send(f, &reply, omm_buf_view(&request));
    if (fault == FED_TWICE) fed_send(f, &reply, omm_buf_view(&request));
    omm_node_event event = {.kind = OMM_NODE_SEND_FAILED};
    if (fault == FED_FLIP) {
        omm_rng lane = {{3}};
        uint64_t bit = omm_rng_below(&lane, index, reply.size * 8);
        reply.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    if (fault == FED_DELIVER || fault == FED_TWICE || fault == FED_FLIP)
        event = (omm_node_event){.kind = OMM_NODE_REPLY, .reply = omm_buf_view(&reply)};
    if (f->is_stopped) event.kind = OMM_NODE_SEND_FAILED;
    if (fault == FED_DELIVER && f->o.answered) f->o.answered(f->o.ud, f, i, omm_buf_view(&reply));
    act_on(f, i, &event);
    omm_buf_fini(&reply);
    omm_buf_fini(&request);
}

static void restart_node(fed *f, uint32_t i) {
    if (!f->o.restart_nodes || f->done[i] || is_proving(f)) return;
    bool is_working = f->actions[i].kind == OMM_NODE_WORK;
    bool is_waiting = f->actions[i].kind == OMM_NODE_WAIT;
    if (is_working) return; /* the work's own restart is in the processes test */
    uint64_t wake_ms = f->wake_ms[i];
    omm_node_close(f->nodes[i]);
    open_node(f, i);
    act_on(f, i, &(omm_node_event){.kind = OMM_NODE_TICK});
    if (is_waiting) f->wake_ms[i] = wake_ms;
}

/* A restart before each chunk would never send, or get, any. */
static bool may_restart(const fed *f, uint32_t i) {
    const char *phase = omm_node_get_status(f->nodes[i]).phase;
    const bool has_chunks = strcmp(phase, "fetching") == 0 || strcmp(phase, "uploading") == 0 ||
                            strcmp(phase, "enrolling") == 0;
    return !has_chunks || f->messages % (f->o.canaries ? 7 : 2) == 0; /* a canary has two blobs */
}

static void act(fed *f, uint32_t i) {
    switch (f->actions[i].kind) {
    case OMM_NODE_SEND:
        exchange(f, i);
        if (may_restart(f, i)) restart_node(f, i);
        return;
    case OMM_NODE_WORK: {
        omm_err work = omm_node_work(f->nodes[i], NULL);
        act_on(f, i, &(omm_node_event){.kind = OMM_NODE_WORK_DONE, .work = work});
        restart_node(f, i);
        return;
    }
    case OMM_NODE_WAIT: act_on(f, i, &(omm_node_event){.kind = OMM_NODE_TICK}); return;
    case OMM_NODE_DONE:
    case OMM_NODE_SHOW: return;
    }
}

/* The node that acts next: the earliest, ties in an order that depends on order_seed. */
static int next_node(const fed *f) {
    omm_seed seed = omm_seed_from_u64(f->o.order_seed);
    omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
    uint32_t shift = f->o.order_seed ? (uint32_t)omm_rng_below(&lane, f->messages, f->o.nodes) : 0;
    int best = -1;
    for (uint32_t k = 0; k < f->o.nodes; k++) {
        uint32_t i = (k + shift) % f->o.nodes;
        if (f->done[i]) continue;
        if (best < 0 || f->wake_ms[i] < f->wake_ms[best]) best = (int)i;
    }
    return best;
}

bool fed_step(fed *f) {
    int node = next_node(f);
    uint64_t node_ms = node < 0 ? UINT64_MAX : f->wake_ms[node];
    if (f->coord_deadline_ms != OMM_COORD_NEVER && f->coord_deadline_ms <= node_ms) {
        if (f->coord_deadline_ms > f->now_ms) f->now_ms = f->coord_deadline_ms;
        tick(f);
        return true;
    }
    if (node < 0) return false;
    if (node_ms > f->now_ms) f->now_ms = node_ms;
    act(f, (uint32_t)node);
    return true;
}

void fed_run(fed *f) {
    for (uint32_t steps = 0; steps < 100000; steps++)
        if (!fed_step(f)) return;
    CHECK(false && "the federation does not end");
}
