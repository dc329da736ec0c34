/* pause_hold_ms at work, on a clock of the test's: a pause that is shorter costs a training nothing, not even a checkpoint; at
 * its time the training leaves one and lets go of memory, and goes on from there afterwards.  The node is a real one with
 * its service, its coordinator the one of a federation behind a socket, the training a loop. */
#include "federation.h"

#include "omm/mem.h"
#include "omm/node_service.h"
#include "omm/transport.h"
#include "omm_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HOLD_MS = 60000,
    LOOK_MS = 1000, /* between two looks at the machine */
    LOOKS = 30,     /* sleeps of the node that show that it had time to do something */
    WAIT_MS = 100000,
    GO_MS = 0,
    PAUSE_MS = 13 * 3600 * 1000 /* wall time outside of HOURS */
};
#define HOURS "00:00-12:00"

static fed s_fed;
static omm_server *s_server;

/* ---- the clock: it stands still when the test wants it to ---- */

static struct {
    pthread_mutex_t mutex;
    bool stands;
    uint64_t now_ms, wall_ms;
    atomic_uint sleeps;
} s_clock = {.mutex = PTHREAD_MUTEX_INITIALIZER, .stands = true, .now_ms = 1000};

static uint64_t now_ms(void *ud) {
    (void)ud;
    pthread_mutex_lock(&s_clock.mutex);
    const uint64_t now = s_clock.now_ms;
    pthread_mutex_unlock(&s_clock.mutex);
    return now;
}

static uint64_t wall_ms(void *ud) {
    (void)ud;
    pthread_mutex_lock(&s_clock.mutex);
    const uint64_t wall = s_clock.wall_ms;
    pthread_mutex_unlock(&s_clock.mutex);
    return wall;
}

static void pass(uint64_t ms) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.now_ms += ms;
    pthread_mutex_unlock(&s_clock.mutex);
}

static void sleep_ms(void *ud, uint64_t ms) {
    (void)ud;
    usleep(1000);
    pthread_mutex_lock(&s_clock.mutex);
    if (!s_clock.stands) s_clock.now_ms += ms;
    pthread_mutex_unlock(&s_clock.mutex);
    atomic_fetch_add(&s_clock.sleeps, 1);
}

static void stand(bool stands) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.stands = stands;
    pthread_mutex_unlock(&s_clock.mutex);
}

/* At a look that is due, the machine says so. */
static void say(uint64_t wall) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.wall_ms = wall;
    s_clock.now_ms += LOOK_MS;
    pthread_mutex_unlock(&s_clock.mutex);
}

/* Whatever the node does at this time, it has done. */
static void settle(void) {
    const unsigned from = atomic_load(&s_clock.sleeps);
    for (unsigned i = 0; i < WAIT_MS && atomic_load(&s_clock.sleeps) - from < LOOKS; i++)
        usleep(1000);
    CHECK(atomic_load(&s_clock.sleeps) - from >= LOOKS);
}

/* ---- the training ---- */

static struct {
    atomic_uint begun, left, resumed, steps, rests;
    atomic_bool may_end;
    omm_err (*honest)(omm_training *api, omm_training_result *out, float *values,
                      omm_buf *step_digests, const omm_training_job *job,
                      const struct omm_compute *compute);
} s_training;

static omm_err train(omm_training *api, omm_training_result *out, float *values,
                     omm_buf *step_digests, const omm_training_job *job,
                     const struct omm_compute *compute) {
    atomic_fetch_add(&s_training.begun, 1);
    atomic_fetch_add(&s_training.resumed, job->checkpoint.size > 0);
    while (!atomic_load(&s_training.may_end)) {
        if (job->cancelled(job->ud)) {
            CHECK_OK(job->save(job->ud, omm_bytes_str("so far"), 1));
            atomic_fetch_add(&s_training.left, 1);
            return omm_raise(OMM_ERR_CANCELLED, "stopped");
        }
        atomic_fetch_add(&s_training.steps, 1);
        usleep(1000);
    }
    return s_training.honest(api, out, values, step_digests, job, compute);
}

static void rest(omm_training *api) {
    (void)api;
    atomic_fetch_add(&s_training.rests, 1);
}

static void wait_until(atomic_uint *count, unsigned want) {
    for (unsigned i = 0; i < WAIT_MS && atomic_load(count) < want; i++) usleep(1000);
    CHECK(atomic_load(count) >= want);
}

static void check_goes_on(void) {
    wait_until(&s_training.steps, atomic_load(&s_training.steps) + 3);
}

static void check_stands(void) {
    settle();
    const unsigned steps = atomic_load(&s_training.steps);
    settle();
    CHECK_EQ(atomic_load(&s_training.steps), steps);
}

/* ---- both ends ---- */

static void *coordinate(void *ud) {
    omm_buf reply;
    omm_exchange *exchange;
    omm_bytes request;
    (void)ud;
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    for (;;) {
        const omm_err err = omm_server_receive(&exchange, &request, s_server, 20);
        if (err == OMM_ERR_CLOSED) break;
        CHECK(err == OMM_OK || err == OMM_ERR_TIMEOUT);
        s_fed.now_ms = now_ms(NULL);
        if (err == OMM_OK) {
            fed_send(&s_fed, &reply, request);
            CHECK_OK(omm_exchange_reply(exchange, omm_buf_view(&reply)));
        }
        while (s_fed.coord_deadline_ms <= s_fed.now_ms)
            CHECK_OK(omm_coord_tick(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms));
    }
    omm_buf_fini(&reply);
    return NULL;
}

static void *serve(void *ud) {
    char url[64], dir[OMM_PATH_MAX];
    omm_guest_rules rules = omm_guest_rules_default();
    CHECK_OK(omm_hours_parse(&rules.hours, HOURS));
    CHECK_OK(omm_dir_make(fed_path(&s_fed, dir, "pausing")));
    (void)snprintf(url, sizeof url, "tcp://127.0.0.1:%u", omm_server_port(s_server));
    const omm_node_service_options options = {
        .node = {.key = &s_fed.keys[0],
                 .name = s_fed.names[0],
                 .coordinator = s_fed.coordinator_key.public_key,
                 .limits = omm_node_limits_default(),
                 .training = s_fed.training[0],
                 .state_dir = dir},
        .url = url,
        .answer_ms = 60000,
        .clock = {.now_ms = now_ms, .wall_ms = wall_ms, .sleep_ms = sleep_ms},
        .guest = &rules,
        .guest_root = "/nonexistent",
        .pause_hold_ms = HOLD_MS};
    CHECK_OK(omm_node_serve(ud, &options));
    return NULL;
}

static void open_all(pthread_t *coordinator) {
    omm_server_options options = omm_server_options_default();
    fed_options o = fed_options_default();
    o.nodes = 1;
    o.rounds = 1;
    o.silent[0] = true; /* its key is our node's */
    fed_open(&s_fed, &o);
    s_training.honest = s_fed.training[0]->run;
    s_fed.training[0]->run = train;
    s_fed.training[0]->rest = rest;
    CHECK_OK(omm_server_open(&s_server, &options));
    CHECK_OK(omm_server_listen(s_server, "tcp://127.0.0.1:0"));
    CHECK_EQ(pthread_create(coordinator, NULL, coordinate, NULL), 0);
}

/* ---- pauses ---- */

/* Before it asked for anything: memory is let go at the time, and not before. */
static void pause_at_the_start(void) {
    settle();
    const unsigned rests = atomic_load(&s_training.rests);
    pass(HOLD_MS - 1);
    settle();
    CHECK_EQ(atomic_load(&s_training.rests), rests);
    pass(1);
    wait_until(&s_training.rests, rests + 1);
    CHECK_EQ(atomic_load(&s_training.begun), 0);
}

static void pause_in_training(void) {
    check_goes_on();
    stand(true);
    settle(); /* it has seen this time, at which it may work */
    const unsigned rests = atomic_load(&s_training.rests);
    say(PAUSE_MS);
    check_stands();
    pass(HOLD_MS / 2);
    check_stands();
    say(GO_MS); /* a short one */
    check_goes_on();
    settle();
    say(PAUSE_MS);
    pass(HOLD_MS - LOOK_MS - 1);
    check_stands();
    CHECK_EQ(atomic_load(&s_training.begun), 1);
    CHECK_EQ(atomic_load(&s_training.left), 0);
    CHECK_EQ(atomic_load(&s_training.rests), rests);
    pass(1);
    wait_until(&s_training.left, 1);
    wait_until(&s_training.rests, rests + 1);
    CHECK_EQ(atomic_load(&s_training.begun), 1);
}

int main(void) {
    omm_node_service_result result = {0};
    pthread_t coordinator, node;
    CHECK_EQ(setenv("TZ", "UTC", 1), 0);
    s_clock.wall_ms = PAUSE_MS;
    open_all(&coordinator);
    CHECK_EQ(pthread_create(&node, NULL, serve, &result), 0);
    pause_at_the_start();
    say(GO_MS);
    stand(false);
    wait_until(&s_training.begun, 1);
    pause_in_training();
    say(GO_MS);
    stand(false);
    wait_until(&s_training.resumed, 1);
    atomic_store(&s_training.may_end, true);
    CHECK_EQ(pthread_join(node, NULL), 0);
    CHECK(result.is_done);
    CHECK_EQ(atomic_load(&s_training.begun), 2);
    omm_server_close(s_server);
    CHECK_EQ(pthread_join(coordinator, NULL), 0);
    fed_close(&s_fed);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
