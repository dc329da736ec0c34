/* kept_test.c - what a node keeps, and what it makes of that later: the end of its run, checkpoints, half a download, receipts;
 * and that an event which failed for want of memory, or of room, is taken when it comes again, with nothing of it lost. */
#include "board.h"
#include "internal.h"
#include "victim.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/node_history.h"
#include "omm_test.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const char s_other_run[] = "0123456789abcdef0123456789abcdef";
static const omm_reply s_no = {
    .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_ROUND, .sentence = "round: over"};

static void change_run(omm_offer *o) {
    memset(o->run_id, 'a', sizeof o->run_id - 1);
}

static omm_err step(victim *v, const omm_node_event *event) {
    return omm_node_step(&v->action, v->node, v->now_ms, event);
}

/* ---- the end of the run, and which run it is ---- */

static bool is_over(const victim *v) {
    return omm_node_get_status(v->node).is_over;
}

static void close_run(victim *v, const char *run_id) {
    victim_answer_close(v, run_id, OMM_CONTEXT_CLOSE, &v->p.f.coordinator_key);
    CHECK_EQ(v->action.kind, OMM_NODE_DONE);
}

/* Started again: it ends, if it has not ended yet. */
static void ends_again(victim *v, const char *owners_run, bool ends) {
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(v, &limits);
    options.run_id = owners_run;
    victim_reopen_as(v, &options);
    CHECK_EQ(v->action.kind, ends ? OMM_NODE_DONE : OMM_NODE_SEND);
}

/* Killed when it had heard of the end, it ends.  When it has ended it asks for the coordinator's next run, unless its owner named
 * this one; and is over until an answer speaks of a next one. */
static void end_is_kept(void) {
    victim v;
    victim_open(&v);
    const char *run_id = v.p.offer.run_id;
    victim_offer_honest(&v); /* it knows its run */
    victim_answer(&v, &s_no);
    close_run(&v, run_id);
    ends_again(&v, NULL, true);
    CHECK(is_over(&v));
    CHECK_OK(omm_node_ended(v.node));
    ends_again(&v, run_id, true);
    ends_again(&v, s_other_run, false);
    CHECK(!is_over(&v));
    ends_again(&v, NULL, false);
    CHECK(is_over(&v));
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_DUPLICATE});
    CHECK(is_over(&v));
    victim_until_active(&v);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1});
    CHECK(!is_over(&v));
    ends_again(&v, NULL, false);
    CHECK(is_over(&v));
    victim_answer(&v, &s_no); /* of a run that it does not know any more */
    CHECK(!is_over(&v));
    victim_offer(&v, change_run, &v.p.f.coordinator_key);
    victim_answer(&v, &s_no);
    close_run(&v, omm_node_get_status(v.node).run_id);
    ends_again(&v, NULL, true); /* it has not ended for this one */
    victim_close(&v);
}

/* The run of its owner's file is asked for whatever it was in, and as often as it is refused; else what is over is forgotten. */
static void run_of_its_owner(void) {
    victim v;
    omm_node *node = NULL;
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_EQ(victim_poll(&v).rounds_seen, 1);
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(&v, &limits);
    options.run_id = s_other_run;
    victim_reopen_as(&v, &options);
    for (int i = 0; i < 2; i++) {
        const omm_poll poll = victim_poll(&v);
        CHECK(poll.rounds_seen == 0 && strcmp(poll.run_id, s_other_run) == 0);
        victim_answer(&v, &s_no);
    }
    victim_reopen(&v, &limits);
    CHECK(strcmp(victim_poll(&v).run_id, v.p.offer.run_id) == 0);
    victim_answer(&v, &s_no);
    CHECK(strcmp(victim_poll(&v).run_id, "") == 0);
    omm_node_close(v.node);
    v.node = v.p.f.nodes[PEER] = NULL;
    options.run_id = "0123456789abcdef";
    CHECK_ERR(omm_node_open(&node, &options), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "0123456789abcdef is not 32 hex digits"));
    victim_close(&v);
}

static int64_t board_says(const victim *v, const char *key) {
    json_t *root = NULL;
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, v->dir, OMM_NODE_STATUS_FILE));
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    const json_t *value = json_object_get(root, key);
    const int64_t number = value ? (int64_t)json_integer_value(value) : -1;
    json_decref(root);
    return number;
}

static bool board_has(const victim *v, const char *key) {
    return board_says(v, key) >= 0;
}

static void board_state(const victim *v, char state[24]) {
    json_t *root = NULL;
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, v->dir, OMM_NODE_STATUS_FILE));
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    (void)snprintf(state, 24, "%s", json_string_value(json_object_get(root, "state")));
    json_decref(root);
}

/* While it runs its coordinator begins another run: what its owner reads of a round, and since when it waits, was the old one's. */
static void board_of_another_run(void) {
    victim v;
    board b;
    omm_fake_clock clock;
    const omm_clock fake = omm_clock_fake(&clock);
    victim_open(&v);
    const omm_node_limits limits = omm_node_limits_default();
    const omm_node_options options = victim_options(&v, &limits);
    clock = (omm_fake_clock){.now_ms = 500, .wall_ms = 49000};
    board_open(&b, &options, fake);
    clock = (omm_fake_clock){.now_ms = 1000, .wall_ms = 50000};
    victim_offer_honest(&v);
    victim_answer(&v, &s_no); /* no chunk: it left the round */
    board_show(&b, "waiting", "", v.node, NULL, true);
    CHECK(board_says(&v, "round") == 0 && board_says(&v, "since_s") == 50);
    clock = (omm_fake_clock){.now_ms = 9000, .wall_ms = 58000};
    board_show(&b, "waiting", "", v.node, NULL, true);
    CHECK(board_says(&v, "round") == 0 && board_says(&v, "since_s") == 50);
    victim_until_active(&v);
    victim_answer(&v, &s_no);
    board_show(&b, "waiting", "", v.node, NULL, true);
    CHECK(board_says(&v, "round") == -1 && board_says(&v, "since_s") == 58);
    json_t *root = NULL; /* what passed over its connection did so since it was opened */
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, v.dir, OMM_NODE_STATUS_FILE));
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600); /* nobody else reads it */
    const json_t *wire = json_object_get(root, "wire");
    CHECK_EQ(json_integer_value(json_object_get(wire, "since_s")), 49);
    json_decref(root);
    board_close(&b);
    victim_close(&v);
}

/* No new file has room, and the one that is there says what is wrong all the same; with room it says all again. */
static void board_on_a_full_disk(void) {
    static const char why[] =
        "a disk without room, which is said at some length so that the file would grow";
    victim v;
    board b;
    omm_fake_clock clock;
    struct rlimit limit;
    struct stat st;
    char path[OMM_PATH_MAX], state[24];
    victim_open(&v);
    const omm_node_limits limits = omm_node_limits_default();
    const omm_node_options options = victim_options(&v, &limits);
    board_open(&b, &options, omm_clock_fake(&clock));
    clock = (omm_fake_clock){.now_ms = 1000, .wall_ms = 50000};
    board_show(&b, "waiting", "", v.node, NULL, true);
    CHECK_OK(omm_path_join(path, v.dir, OMM_NODE_STATUS_FILE));
    CHECK_EQ(stat(path, &st), 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR); /* EFBIG instead */
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = (rlim_t)st.st_size;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    clock.now_ms += 2000;
    board_show(&b, "trouble", why, v.node, NULL, false);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    board_state(&v, state);
    CHECK(strcmp(state, "trouble") == 0);
    CHECK(!board_has(&v, "history"));
    clock.now_ms += 2000;
    board_show(&b, "trouble", why, v.node, NULL, false);
    CHECK(board_has(&v, "history"));
    board_close(&b);
    victim_close(&v);
}

/* ---- checkpoints ---- */

static struct {
    char found[16]; /* the checkpoint that the training was given */
    const char *left;
} s_training;

static omm_err train_and_leave(omm_training *api, omm_training_result *out, float *values,
                               omm_buf *step_digests, const omm_training_job *job,
                               const struct omm_compute *compute) {
    (void)api, (void)out, (void)step_digests, (void)compute;
    values[0] = job->start[0]; /* half of the work */
    CHECK(job->checkpoint.size < sizeof s_training.found);
    memset(s_training.found, 0, sizeof s_training.found);
    if (job->checkpoint.size > 0)
        memcpy(s_training.found, job->checkpoint.data, job->checkpoint.size);
    CHECK_OK(job->save(job->ud, omm_bytes_str(s_training.left), 1));
    return omm_raise(OMM_ERR_CANCELLED, "stopped");
}

static omm_err work_left(victim *v) {
    const omm_err err = omm_node_work(v->node, NULL);
    CHECK_OK(step(v, &(omm_node_event){.kind = OMM_NODE_WORK_DONE, .work = err}));
    return err;
}

static void leaves_training(victim *v, const char *finds, const char *leaves) {
    s_training.left = leaves;
    CHECK_EQ(v->action.kind, OMM_NODE_WORK);
    CHECK_ERR(work_left(v), OMM_ERR_CANCELLED);
    CHECK(strcmp(s_training.found, finds) == 0);
    CHECK(strcmp(omm_node_get_status(v->node).left, omm_err_text(OMM_ERR_CANCELLED)) == 0);
}

static const omm_bytes s_shard = {(const uint8_t *)"public data", 11};
static omm_digest s_shard_digest, s_selected;
static void change_canary(omm_offer *o) {
    s_shard_digest = omm_hash(s_shard);
    o->selected = &s_selected;
    o->selected_count = 1;
    o->is_canary = true;
    o->canary = (omm_blob){.digest = s_shard_digest,
                           .canonical = s_shard_digest,
                           .size = s_shard.size,
                           .chunk_digests = &s_shard_digest,
                           .chunk_count = 1};
}
static void change_deadline(omm_offer *o) {
    o->deadline_ms++;
}

static void leaves_own(victim *v, const char *finds, const char *leaves) {
    victim_offer_honest(v);
    victim_give_chunks(v);
    leaves_training(v, finds, leaves);
}

static void leaves_canary(victim *v, const char *finds, const char *leaves) {
    victim_offer(v, change_canary, &v->p.f.coordinator_key);
    victim_give_chunk(v);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_GET);
    victim_answer(v,
                  &(omm_reply){.kind = OMM_REPLY_CHUNK, .digest = s_shard_digest, .data = s_shard});
    leaves_training(v, finds, leaves);
}

/* A training goes on from its own checkpoint: not from that of a canary between, nor from that of another offer. */
static void checkpoints(void) {
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    victim_open(&v);
    v.p.f.training[PEER]->run = train_and_leave;
    s_selected = v.p.f.run_nodes[v.p.f.of_node[PEER]].id;
    leaves_own(&v, "", "own");
    leaves_canary(&v, "", "public");
    leaves_own(&v, "own", "own, longer");
    victim_reopen(&v, &limits);
    leaves_canary(&v, "public", "public, longer");
    leaves_own(&v, "own, longer", "own");
    victim_offer(&v, change_deadline, &v.p.f.coordinator_key);
    victim_give_chunks(&v);
    leaves_training(&v, "", "of another");
    leaves_own(&v, "", "own");
    victim_close(&v);
}

/* ---- half a download ---- */

#define CHUNKS 4u

/* An adapter of several chunks. */
static void open_large(victim *v) {
    static const omm_codec plain = {.kind = OMM_CODEC_NONE};
    fed_options options = victim_fed_options();
    options.values_cols = 55000;
    options.is_plain = true;
    options.down = &plain;
    victim_open_with(v, &options);
    CHECK_EQ(v->p.offer.global.chunk_count, CHUNKS);
}

static void goes_on_at(victim *v, uint32_t index) {
    omm_request request;
    victim_offer_honest(v);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_GET);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_EQ(request.index, index);
}

/* The round is left, and offered again. */
static void goes_on_again_at(victim *v, uint32_t index) {
    victim_answer(v, &s_no);
    goes_on_at(v, index);
}

static bool is_kept(victim *v, const char *name) {
    omm_buf value;
    bool found = false;
    omm_buf_init(&value, 2 * (size_t)OMM_CHUNK_BYTES);
    CHECK_OK(node_keep_get(&found, &value, v->node, name));
    omm_buf_fini(&value);
    return found;
}

static void change_global_digest(omm_offer *o) {
    o->global.digest.b[0] ^= 1;
}
static void change_canary_of_another(omm_offer *o) {
    change_canary(o);
    change_global_digest(o);
}

/* It goes on behind the chunks that are here and right, over a restart too; what is kept of another adapter goes. */
static void half_a_download(void) {
    static uint8_t wrong[OMM_CHUNK_BYTES + 1];
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    memset(wrong, 1, sizeof wrong);
    open_large(&v);
    goes_on_at(&v, 0);
    victim_give_chunk(&v);
    victim_give_chunk(&v);
    goes_on_again_at(&v, 2);
    victim_reopen(&v, &limits);
    goes_on_at(&v, 2);
    victim_answer(&v, &s_no);
    s_selected = v.p.f.run_nodes[v.p.f.of_node[PEER]].id; /* a canary leaves what is here alone */
    victim_offer(&v, change_canary_of_another, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    goes_on_again_at(&v, 2);
    victim_give_chunk(&v);
    goes_on_again_at(&v, 3);
    CHECK_OK(node_keep_put(v.node, "global/1", omm_bytes_of(wrong, OMM_CHUNK_BYTES)));
    goes_on_again_at(&v, 1);
    CHECK_OK(node_keep_put(v.node, "global/0", omm_bytes_of(wrong, OMM_CHUNK_BYTES + 1)));
    goes_on_again_at(&v, 0);
    victim_answer(&v, &s_no);
    victim_offer(&v, change_global_digest, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    CHECK(!is_kept(&v, "global/0") && !is_kept(&v, "global/2"));
    goes_on_again_at(&v, 0);
    victim_give_chunks(&v);
    victim_reopen(&v, &limits); /* killed with all of it here: an answer ends every download */
    goes_on_at(&v, CHUNKS - 1);
    victim_give_chunk(&v);
    CHECK_OK(node_keep_put(v.node, KEEP_CHECKPOINT, omm_bytes_str("left")));
    CHECK_OK(node_keep_put(v.node, KEEP_CHECKPOINT_OFFER, omm_bytes_str("whose")));
    victim_work(&v);
    CHECK(!is_kept(&v, "global/0") && !is_kept(&v, "global"));
    CHECK(!is_kept(&v, KEEP_CHECKPOINT) && !is_kept(&v, KEEP_CHECKPOINT_OFFER));
    victim_close(&v);
}

/* ---- receipts, and what was not sent ---- */

static bool is_sent(const victim *v) {
    json_t *history = NULL;
    CHECK_OK(omm_node_history(&history, v->node));
    const json_t *round = json_array_get(json_object_get(history, "rounds"), 0);
    const bool is = json_is_true(json_object_get(round, "sent"));
    json_decref(history);
    return is;
}

static void open_dry(victim *v) {
    const omm_node_limits limits = omm_node_limits_default();
    victim_open(v);
    omm_node_options options = victim_options(v, &limits);
    options.is_dry = true;
    victim_reopen_as(v, &options);
    victim_offer_honest(v);
    while (victim_asked(v) == OMM_REQUEST_GET) victim_give_chunk(v);
}

/* It trains; nothing is left to do then but to show what would be sent. */
static void shows(victim *v, bool told) {
    omm_bytes envelope, payload;
    CHECK_EQ(v->action.kind, OMM_NODE_WORK);
    CHECK_OK(omm_node_work(v->node, NULL));
    victim_step(v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK_EQ(v->action.kind, OMM_NODE_SHOW);
    omm_node_get_submission(&envelope, &payload, v->node);
    CHECK(envelope.size > 0 && payload.size > 0);
    CHECK_EQ(omm_node_get_status(v->node).told_dry, told);
    victim_step(v, OMM_NODE_TICK, (omm_bytes){0});
    CHECK_EQ(v->action.kind, OMM_NODE_SHOW);
}

/* Every verdict as it was signed: an accepted one that is not in the bundle is a proof.  And a submission that is made for its
 * owner to look at is none that was sent. */
static void receipts(void) {
    victim v;
    char name[128];
    json_t *history = NULL;
    const omm_node_limits limits = omm_node_limits_default();
    open_dry(&v);
    victim_offer_honest(&v); /* it has heard that this is a dry run */
    shows(&v, true);
    CHECK(!is_sent(&v));
    victim_reopen(&v, &limits);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    CHECK(is_sent(&v));
    (void)snprintf(name, sizeof name, "receipt/%s/%u", v.p.offer.run_id, v.p.offer.round);
    CHECK(!is_kept(&v, name));
    victim_refuse(&v);
    CHECK(is_kept(&v, name));
    CHECK_ERR(omm_node_history_read(&history, v.p.f.dir), OMM_ERR_NOT_FOUND); /* no node's folder */
    victim_close(&v);
}

/* Who looks where a node is about to make its database makes none: that file would be in use to the node. */
static void looks_make_nothing(void) {
    victim v;
    char path[OMM_PATH_MAX];
    uint64_t size = 1;
    json_t *history = NULL;
    victim_open(&v);
    CHECK_OK(omm_path_join(path, v.p.f.dir, NODE_DATABASE));
    CHECK_OK(omm_file_write(path, (omm_bytes){0}, 0600));
    CHECK_ERR(omm_node_history_read(&history, v.p.f.dir), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_size(&size, path));
    CHECK_EQ(size, 0);
    CHECK_OK(omm_file_remove(path));
    victim_close(&v);
}

/* ---- a dry run says that it is one ---- */

/* It says so before it trains, asks for the adapter no second time, and nothing of the training leaves; what is shown again
 * is asked of nobody: a poll would make it ready for a next round.  Another offer is no answer to that. */
static void of_later_deadline(omm_offer *offer) {
    offer->deadline_ms++;
}

static void dry_is_said(void) {
    victim v;
    open_dry(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_DRY);
    victim_offer_honest(&v);
    shows(&v, true);
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(&v, &limits);
    options.is_dry = true;
    victim_reopen_as(&v, &options);
    CHECK(v.action.kind == OMM_NODE_SHOW && !omm_node_get_status(v.node).told_dry);
    victim_close(&v);
    open_dry(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_DRY);
    victim_offer(&v, of_later_deadline, &v.p.f.coordinator_key);
    CHECK(!omm_node_get_status(v.node).told_dry);
    while (victim_asked(&v) == OMM_REQUEST_GET) victim_give_chunk(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_DRY); /* of this one */
    victim_close(&v);
}

/* Without an answer, or where that is not understood, it trains all the same; with any other it is a poll as ever. */
static void dry_cannot_be_said(void) {
    victim v;
    open_dry(&v);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        victim_step(&v, OMM_NODE_SEND_FAILED, (omm_bytes){0});
        victim_until_active(&v);
    }
    shows(&v, false);
    victim_close(&v);
    open_dry(&v);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                   .reason = OMM_ERR_REFUSED_FORMAT,
                                   .sentence = "Poll has unknown fields"});
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    shows(&v, false);
    victim_close(&v);
    open_dry(&v);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1000});
    victim_until_active(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    victim_close(&v);
}

/* ---- events that fail, late ones, and none ---- */

/* Without memory the event is not taken, and is when it comes again. */
static void taken_when_it_comes_again(victim *v, const omm_node_event *event) {
    omm_mem_fail_nth(1);
    const omm_err err = step(v, event);
    omm_mem_fail_nth(0);
    CHECK_ERR(err, OMM_ERR_NOMEM);
    CHECK_OK(step(v, event));
}

static void no_memory(void) {
    victim v;
    omm_buf bytes;
    victim_open(&v);
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_reply_encode(&bytes, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 77}));
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    const omm_node_event wait = {.kind = OMM_NODE_REPLY, .reply = omm_buf_view(&bytes)};
    taken_when_it_comes_again(&v, &wait);
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK_EQ(v.action.until_ms - v.now_ms, 77);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    CHECK_OK(omm_node_work(v.node, NULL));
    taken_when_it_comes_again(&v, &(omm_node_event){.kind = OMM_NODE_WORK_DONE});
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    omm_buf_fini(&bytes);
    victim_close(&v);
}

/* ---- a full disk ---- */

static void disk_is_full(const victim *v, bool full) {
    omm_rows *rows = NULL;
    bool more = false;
    CHECK_OK(
        omm_db_query(&rows, v->node->db, full ? "PRAGMA query_only = 1" : "PRAGMA query_only = 0"));
    CHECK_OK(omm_rows_next(&more, rows));
    omm_rows_close(rows);
}

/* The same event when there is room again: until then nothing has changed. */
static void taken_when_there_is_room(victim *v, omm_node_event_kind kind, omm_bytes reply) {
    const omm_node_event event = {.kind = kind, .reply = reply};
    const char *phase = omm_node_get_status(v->node).phase;
    disk_is_full(v, true);
    for (int i = 0; i < 2; i++) CHECK_ERR(step(v, &event), OMM_ERR_IO);
    disk_is_full(v, false);
    CHECK(strcmp(omm_node_get_status(v->node).phase, phase) == 0);
    CHECK_OK(step(v, &event));
}

static const victim *s_full; /* whose disk is full while it trains */

static omm_err train_without_room(omm_training *api, omm_training_result *out, float *values,
                                  omm_buf *step_digests, const omm_training_job *job,
                                  const struct omm_compute *compute) {
    (void)api, (void)out, (void)step_digests, (void)compute;
    values[0] = job->start[0];
    disk_is_full(s_full, true);
    CHECK_ERR(job->save(job->ud, omm_bytes_str("no room"), 7), OMM_ERR_IO);
    disk_is_full(s_full, false);
    return omm_raise(OMM_ERR_CANCELLED, "stopped");
}

static void hear_not_kept(void *ud, omm_log_level level, const char *line) {
    if (level == OMM_LOG_ERROR && strstr(line, " checkpoint_not_kept ") && strstr(line, " step=7 "))
        ++*(unsigned *)ud;
}

/* A checkpoint that has no room is said; the one before it stays. */
static void no_room_for_a_checkpoint(void) {
    unsigned count = 0;
    const omm_node_limits limits = omm_node_limits_default();
    const omm_log log = {
        .level = OMM_LOG_ERROR, .clock = omm_clock_system(), .sink = hear_not_kept, .ud = &count};
    victim v;
    victim_open(&v);
    s_full = &v;
    omm_node_options options = victim_options(&v, &limits);
    options.log = &log;
    victim_reopen_as(&v, &options);
    v.p.f.training[PEER]->run = train_and_leave;
    leaves_own(&v, "", "own");
    v.p.f.training[PEER]->run = train_without_room;
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    CHECK_ERR(work_left(&v), OMM_ERR_CANCELLED);
    CHECK_EQ(count, 1);
    v.p.f.training[PEER]->run = train_and_leave;
    leaves_own(&v, "own", "own");
    victim_close(&v);
}

static void reply_with(omm_buf *bytes, const omm_reply *reply) {
    omm_buf_clear(bytes);
    CHECK_OK(omm_reply_encode(bytes, reply));
}

/* The first offer of a run, what was trained, the verdict, and the numbers of polls: each is kept, or comes again. */
static void full_disk(void) {
    const omm_node_limits limits = omm_node_limits_default();
    omm_buf bytes, payload, envelope;
    char name[128];
    victim v;
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    victim_open(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    reply_with(&bytes, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&v.offer)});
    taken_when_there_is_room(&v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    victim_give_chunks(&v);
    CHECK_OK(omm_node_work(v.node, NULL));
    taken_when_there_is_room(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    CHECK_OK(omm_receipt_encode(&payload, &yes));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_RECEIPT, omm_buf_view(&payload),
                               &v.p.f.coordinator_key));
    reply_with(&bytes,
               &(omm_reply){.kind = OMM_REPLY_RECEIPT, .envelope = omm_buf_view(&envelope)});
    taken_when_there_is_room(&v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 1);
    (void)snprintf(name, sizeof name, "receipt/%s/%u", yes.run_id, yes.round);
    CHECK(is_kept(&v, name));
    v.node->counter =
        v.node->counter_kept; /* the next poll's number is of a block that is not kept yet */
    reply_with(&bytes, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1});
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_step(&v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    v.now_ms = v.action.until_ms;
    taken_when_there_is_room(&v, OMM_NODE_TICK, (omm_bytes){0});
    const uint64_t counter = victim_poll(&v).counter;
    victim_reopen(&v, &limits);
    const omm_poll poll = victim_poll(&v);
    CHECK(poll.rounds_seen == 1 && poll.counter > counter);
    omm_buf_fini(&bytes);
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    victim_close(&v);
}

/* Which run it is in and how many rounds of it have passed are one thing: the count of another run would refuse rounds. */
static void run_and_its_count(void) {
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_OK(omm_db_run_values(v.node->db,
                               "CREATE TEMP TRIGGER stops BEFORE INSERT ON main.keep WHEN "
                               "NEW.name = '" KEEP_ROUNDS_SEEN "' "
                               "BEGIN SELECT RAISE(ABORT, 'between the two'); END",
                               NULL, 0));
    victim_offer(&v, change_run, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL); /* not followed */
    victim_reopen(&v, &limits);
    omm_poll poll = victim_poll(&v);
    CHECK(strcmp(poll.run_id, v.p.offer.run_id) == 0 && poll.rounds_seen == 1);
    victim_offer(&v, change_run, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_reopen(&v, &limits);
    poll = victim_poll(&v);
    CHECK(poll.run_id[0] == 'a' && poll.rounds_seen == 0);
    victim_close(&v);
}

/* What it wrote itself is never as large: a node that cannot tell what it has answered does not begin, and answers nothing
 * twice. */
static void records_too_large(void) {
    static const char *const names[] = {
        KEEP_RUN_ID,     KEEP_COUNTER, KEEP_ROUNDS_SEEN, KEEP_GIVEN, KEEP_SUBMISSION_IS_CANARY,
        KEEP_SUBMISSION, KEEP_CLOSE};
    static const uint8_t large[OMM_ENVELOPE_BYTES_MAX + 1];
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    char path[OMM_PATH_MAX];
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_node_options options = victim_options(&v, &limits);
    CHECK_OK(omm_path_join(path, options.state_dir, NODE_DATABASE));
    omm_node_close(v.node);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        omm_db *db = NULL;
        omm_node *node = NULL;
        CHECK_OK(node_keep_open_file(&db, path, 0));
        CHECK_OK(omm_db_run(db, "INSERT OR REPLACE INTO keep(name, value) VALUES (?, ?)",
                            OMM_DB_TEXT(names[i]), OMM_DB_BLOB(omm_bytes_of(large, sizeof large))));
        omm_db_close(db);
        CHECK_ERR(omm_node_open(&node, &options), OMM_ERR_TOO_BIG);
        CHECK_OK(node_keep_open_file(&db, path, 0));
        CHECK_OK(omm_db_run(db, "DELETE FROM keep WHERE name = ?", OMM_DB_TEXT(names[i])));
        omm_db_close(db);
    }
    CHECK_OK(omm_node_open(&v.node, &options));
    v.p.f.nodes[PEER] = v.node;
    victim_close(&v);
}

/* An answer after its question was given up changes nothing; and who says that it has trained, and has not, leaves the round. */
static void not_asked_for(void) {
    victim v;
    omm_buf bytes;
    victim_open(&v);
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_reply_encode(&bytes, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 100000}));
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_step(&v, OMM_NODE_SEND_FAILED, (omm_bytes){0});
    victim_step(&v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK(v.action.until_ms - v.now_ms < 1000);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_step(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK(strstr(omm_node_get_status(v.node).left, "training did not run"));
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    omm_buf_fini(&bytes);
    victim_close(&v);
}

int main(void) {
    end_is_kept();
    run_of_its_owner();
    board_of_another_run();
    board_on_a_full_disk();
    checkpoints();
    half_a_download();
    receipts();
    looks_make_nothing();
    dry_is_said();
    dry_cannot_be_said();
    no_memory();
    full_disk();
    no_room_for_a_checkpoint();
    run_and_its_count();
    records_too_large();
    not_asked_for();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
