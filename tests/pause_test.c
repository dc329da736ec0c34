/* pause_hold_ms at work, on a clock of the test's: a pause that is shorter costs a training nothing, not even a checkpoint; at
 * its time the training leaves one and lets go of memory, and goes on from there afterwards.  And while it pauses nothing is
 * asked and nothing begun. */
#include "serving.h"

#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/topology.h"
#include "omm_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { HOLD_MS = 60000, LOOK_MS = 1000 /* between two looks at the machine */ };

static void check_goes_on(void) {
    serving_wait(&serves.steps, atomic_load(&serves.steps) + 3);
}

static void check_stands(void) {
    serving_settle();
    const unsigned steps = atomic_load(&serves.steps);
    serving_settle();
    CHECK_EQ(atomic_load(&serves.steps), steps);
}

/* Before it asked for anything: memory is let go at the time, and not before. */
static void pause_at_the_start(void) {
    serving_settle();
    const unsigned rests = atomic_load(&serves.rests);
    serving_pass(HOLD_MS - 1);
    serving_settle();
    CHECK_EQ(atomic_load(&serves.rests), rests);
    serving_pass(1);
    serving_wait(&serves.rests, rests + 1);
    CHECK_EQ(atomic_load(&serves.begun), 0);
    CHECK_EQ(atomic_load(&serves.asked), 0);
}

/* Between the offer and the training, once. */
static void pause_at_the_adapter(const omm_request *request) {
    static bool s_done;
    if (s_done || request->kind != OMM_REQUEST_GET) return;
    s_done = true;
    serving_stand(true);
    serving_say(SERVING_PAUSE_MS);
}

static void pause_before_training(void) {
    serving_wait_said("paused", 2);
    serving_settle();
    CHECK_EQ(atomic_load(&serves.begun), 0);
}

static void pause_in_training(void) {
    check_goes_on();
    serving_stand(true);
    serving_settle(); /* it has seen this time, at which it may work */
    const unsigned rests = atomic_load(&serves.rests);
    serving_say(SERVING_PAUSE_MS);
    check_stands();
    const unsigned stood = serving_said(" stood_still ");
    serving_pass(HOLD_MS / 2);
    serving_wait_said(" stood_still ", stood + 1); /* in a training too */
    check_stands();
    serving_say(SERVING_GO_MS); /* a short one */
    check_goes_on();
    serving_settle();
    serving_say(SERVING_PAUSE_MS);
    serving_pass(HOLD_MS - LOOK_MS - 1);
    check_stands();
    CHECK_EQ(atomic_load(&serves.begun), 1);
    CHECK_EQ(atomic_load(&serves.left), 0);
    CHECK_EQ(atomic_load(&serves.rests), rests);
    serving_pass(1);
    serving_wait(&serves.left, 1);
    serving_wait(&serves.rests, rests + 1);
    CHECK_EQ(atomic_load(&serves.begun), 1);
}

/* ---- its share of the processors ---- */

/* A hundredth of them: what ten seconds allow is used up at once, and the training stands; it can be stopped all the while. */
static void slowed(void) {
    static atomic_bool s_stop;
    serving_open();
    serves.rules.max_cpu_percent = 1;
    serves.options.guest = &serves.rules;
    serves.options.stop = &s_stop;
    serving_say(SERVING_GO_MS);
    serving_stand(false);
    serving_start();
    serving_wait(&serves.begun, 1);
    const uint64_t begin_ns = omm_process_cpu_ns();
    while (omm_process_cpu_ns() - begin_ns < omm_cpu_count() * (uint64_t)100000000) {
    }
    check_stands();
    atomic_store(&s_stop, true);
    serving_end();
    CHECK(!serves.result.is_done);
    CHECK_EQ(atomic_load(&serves.left), 1);
    serving_close();
}

/* ---- nobody to pause it ---- */

static atomic_bool s_no_thread; /* the node gets none: linked with --wrap */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *ud), void *ud);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *ud), void *ud);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *ud), void *ud) {
    if (atomic_load(&s_no_thread) && pthread_equal(pthread_self(), serves.node)) return EAGAIN;
    return __real_pthread_create(thread, attributes, run, ud);
}

static void fail_at_the_adapter(const omm_request *request) {
    if (request->kind == OMM_REQUEST_GET && !serving_said(" training_failed "))
        atomic_store(&s_no_thread, true);
}

/* Where the system gives no thread that would pause a training there is none; later it is asked again. */
static void unwatched(void) {
    serving_open();
    serves.options.guest = &serves.rules;
    serves.heard = fail_at_the_adapter;
    serving_say(SERVING_GO_MS);
    serving_stand(false);
    serving_start();
    serving_wait_said(" training_failed ", 1);
    CHECK_EQ(serving_said("no thread that would pause or stop it"), 1);
    CHECK_EQ(atomic_load(&serves.begun), 0);
    atomic_store(&s_no_thread, false);
    atomic_store(&serves.may_end, true);
    serving_end();
    CHECK(serves.result.is_done);
    CHECK_EQ(atomic_load(&serves.begun), 1);
    serving_close();
}

int main(void) {
    CHECK_EQ(setenv("TZ", "UTC", 1), 0);
    serving_open();
    serves.options.guest = &serves.rules;
    serves.options.pause_hold_ms = HOLD_MS;
    serves.heard = pause_at_the_adapter;
    serving_start();
    pause_at_the_start();
    serving_say(SERVING_GO_MS);
    serving_stand(false);
    pause_before_training();
    serving_say(SERVING_GO_MS);
    serving_stand(false);
    serving_wait(&serves.begun, 1);
    pause_in_training();
    serving_say(SERVING_GO_MS);
    serving_stand(false);
    serving_wait(&serves.resumed, 1);
    atomic_store(&serves.may_end, true);
    serving_end();
    CHECK(serves.result.is_done);
    CHECK_EQ(atomic_load(&serves.begun), 2);
    serving_close();
    slowed();
    unwatched();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
