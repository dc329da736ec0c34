/* Trouble of our own with a canary: whatever step of it fails, it is said, tried again after CANARY_AGAIN_MS and not before, and
 * the candidate loses nothing by it.  The clock is the test's.  At first the payload is none that a node could have written, so that
 * a replay ends before it trains anything; then it is one, of the run's own layout, and the training is what fails. */
#include "canary_work.h"

#include "hand.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/scenario_run.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    WAIT_MS = 400000, /* at the lowest priority a busy machine gives a replay little */
    ALLOCATIONS_MAX = 200,
    LINES = 16
};

static fed s_fed;
static uint64_t s_now_ms = 1000;
static struct {
    unsigned next, replay, verdict, replays; /* troubles by their name; replays that ended */
} s_said;

static void listen(void *ud, omm_log_level level, const char *line) {
    (void)ud;
    (void)level;
    const bool is_trouble = strstr(line, " canary_trouble ") != NULL;
    CHECK(!is_trouble || strstr(line, "tried again in a minute"));
    s_said.next += is_trouble && strstr(line, " what=next ");
    s_said.replay += is_trouble && strstr(line, " what=replay ");
    s_said.verdict += is_trouble && strstr(line, " what=verdict ");
    s_said.replays += strstr(line, " canary_replayed ") != NULL;
}

static unsigned s_timed;
static int s_nice;

static void count_replay(void *ud, uint64_t ms) {
    (void)ud;
    (void)ms;
    s_timed++;
}

/* At the end of a replay it is asked in the thread that did it. */
static uint64_t clock_ms(void *ud) {
    (void)ud;
    s_nice = getpriority(PRIO_PROCESS, 0);
    return s_now_ms;
}

static void turn(canary_work *w) {
    canary_work_turn(w, &s_fed.coord_deadline_ms, s_fed.coord, s_now_ms);
}

static unsigned troubles(void) {
    return s_said.next + s_said.replay + s_said.verdict;
}

/* Until so many replays have ended; what comes of the last one is done in the same turn. */
static void turn_until_replayed(canary_work *w, unsigned replays) {
    for (unsigned i = 0; i < WAIT_MS && s_said.replays < replays; i++) {
        turn(w);
        usleep(1000);
    }
    CHECK_EQ(s_said.replays, replays);
}

static uint32_t waiting(void) {
    return omm_coord_get_status(s_fed.coord).canaries_waiting;
}

/* Nothing is begun, or judged, a millisecond before its time; then the time has come. */
static void wait_for_again(canary_work *w) {
    const unsigned troubles_before = troubles();
    const size_t live = omm_mem_live();
    s_now_ms += CANARY_AGAIN_MS - 1;
    turn(w);
    CHECK_EQ(omm_mem_live(), live); /* a job would be in memory */
    CHECK_EQ(troubles(), troubles_before);
    CHECK_EQ(waiting(), 1);
    s_now_ms += 1;
}

/* ---- what it works with ---- */

/* layout NULL: nothing is trained. */
static void open_fed(const omm_layout *layout) {
    fed_options o = fed_options_default();
    o.layout = layout;
    o.nodes = o.listed = 2;
    o.node_max = 8;
    o.work_bits = 6;
    o.canaries = true;
    o.passes = 1;
    o.on_disk = true;
    o.replays_by_hand = true;
    o.silent[0] = o.silent[1] = true;
    fed_open(&s_fed, &o);
}

static void read_lines(omm_buf *out) {
    omm_buf all;
    omm_buf_init(&all, (size_t)64 << 20);
    CHECK_OK(omm_file_read(&all, "scenarios/base/train.jsonl"));
    size_t size = 0;
    for (unsigned lines = 0; lines < LINES && size < all.size; size++)
        lines += all.data[size] == '\n';
    CHECK_OK(omm_buf_append(out, all.data, size));
    omm_buf_fini(&all);
}

/* In the queue, with a payload that is noise. */
static void give_noise(hand *h) {
    const omm_digest canonical = omm_hash(omm_bytes_str("none"));
    hand_begin(h, &s_fed, 1);
    memset(h->payload.data, 0x5a, h->payload.size);
    CHECK_OK(omm_blob_describe(&h->s.payload, &h->arena, omm_buf_view(&h->payload), &canonical));
    hand_give(h);
}

/* ---- one trouble after the other ---- */

static void test_troubles(canary_work *w) {
    hand h;
    give_noise(&h);
    CHECK_EQ(waiting(), 1);
    for (size_t nth = 1; nth < ALLOCATIONS_MAX && s_said.replay == 0; nth++) {
        const unsigned replays = s_said.replays;
        omm_mem_fail_nth(nth);
        turn(w);
        if (s_said.next < nth) turn_until_replayed(w, replays + 1);
        omm_mem_fail_nth(0);
        wait_for_again(w);
    }
    CHECK(s_said.next >= 1);
    CHECK(s_said.replay == 1 && s_said.replays == 1);
    turn(w);
    fed_forbid_writing(true);
    turn_until_replayed(w, 2);
    fed_forbid_writing(false);
    CHECK_EQ(s_said.verdict, 1);
    wait_for_again(w);
    turn(w);
    CHECK_EQ(s_said.replays, 2); /* the verdict that was there, and no third training */
    CHECK_EQ(waiting(), 0);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(s_timed, s_said.replays); /* each is counted, and done at the lowest priority */
    CHECK_EQ(s_nice, 19);
    hand_close(&h);
}

/* ---- the training ---- */

/* Whatever it lacks memory for, that is no fault of the candidate's: only a training that was done is a verdict. */
static void test_no_memory(canary_work *w, const omm_layout *layout) {
    hand h;
    unsigned failed = 0;
    open_fed(layout);
    hand_begin(&h, &s_fed, 2);
    hand_give(&h);
    memset(&s_said, 0, sizeof s_said);
    for (size_t nth = 1; s_said.verdict == 0; nth++) { /* which comes after it */
        const unsigned replays = s_said.replays, before = s_said.next;
        omm_mem_fail_nth(nth);
        turn(w);
        if (s_said.next == before) turn_until_replayed(w, replays + 1);
        CHECK(!omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(troubles(), ++failed);
        wait_for_again(w);
    }
    CHECK(s_said.verdict == 1 && s_said.replay > 1);
    turn(w);
    CHECK_EQ(waiting(), 0);
    printf("%u of %u troubles in the training\n", s_said.replay, failed);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_REFUSED_DIGEST); /* the first step is another one */
    hand_close(&h);
    fed_close(&s_fed);
}

/* A service ends in the middle of one: it does not wait for all of it, nothing is judged by what was done, and the next one does
 * it again. */
static void test_closed(canary_work *w, const canary_work_options *options,
                        const omm_layout *layout) {
    hand h;
    canary_work *ended;
    open_fed(layout);
    hand_begin(&h, &s_fed, 3);
    hand_give(&h);
    memset(&s_said, 0, sizeof s_said);
    CHECK_OK(canary_work_open(&ended, options));
    const size_t live = omm_mem_live();
    turn(ended);
    CHECK(omm_mem_live() > live); /* it trains */
    canary_work_close(ended);
    CHECK(waiting() == 1 && s_said.replays == 0);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_STATE);
    turn(w);
    turn_until_replayed(w, 1);
    CHECK(waiting() == 0 && troubles() == 0);
    CHECK_EQ(hand_verdict(&h), OMM_ERR_REFUSED_DIGEST);
    hand_close(&h);
    fed_close(&s_fed);
}

int main(void) {
    const omm_log log = {.level = OMM_LOG_DEBUG, .clock = omm_clock_system(), .sink = listen};
    omm_pool *pool;
    omm_compute compute;
    omm_scenario_run *run;
    omm_buf text;
    CHECK_OK(omm_pool_open(&pool, 1));
    CHECK_OK(omm_compute_init(&compute, pool, OMM_ISA_SCALAR));
    CHECK_OK(omm_scenario_run_open(
        &run,
        &(omm_scenario_run_options){.scenario = "scenarios/processes.yaml", .compute = &compute}));
    omm_buf_init(&text, OMM_CANARY_BYTES_MAX);
    read_lines(&text);
    const omm_coord_shard shards[2] = {{"one.jsonl", omm_buf_view(&text)},
                                       {"two.jsonl", omm_buf_view(&text)}};
    const omm_coord_canaries canaries = {.shards = shards, .shard_count = 2, .passes = 1};
    const canary_work_options options = {.run = omm_scenario_run_get(run),
                                         .canaries = &canaries,
                                         .clock = {.now_ms = clock_ms},
                                         .on_replay = count_replay,
                                         .log = &log};
    canary_work *w;
    CHECK_OK(canary_work_open(&w, &options));
    open_fed(NULL);
    test_troubles(w);
    fed_close(&s_fed);
    const omm_layout *layout = &omm_run_get_record(options.run)->layout;
    test_no_memory(w, layout);
    test_closed(w, &options, layout);
    canary_work_close(w);
    omm_buf_fini(&text);
    omm_scenario_run_close(run);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
