/* service_test.c - the loop around a node, on a clock of the test's: what it does and says while nobody answers, when its process
 * stood still, when it is stopped, when its own disk has no room, and at the end of the run. */
#include "serving.h"

#include "omm/declined.h"
#include "omm/envelope.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/sync.h"
#include "omm_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_MS                                                                                    \
    1100u /* of time that passes unnoticed: a later wake-up says that the process stood still */
#define ANSWER_MS 6000u

static void pass_steps(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        serving_pass(STEP_MS);
        serving_settle_asking();
    }
}

/* Nobody answers: its owner reads it after five seconds, ten, and so on; after answer_ms it asks over a new connection.  Time in
 * which the process did not run is nobody's silence.  Answered once, a next silence is told as soon. */
static void silence(void) {
    serving_open();
    serves.options.answer_ms = ANSWER_MS;
    atomic_store(&serves.is_mute, true);
    serving_stand(false);
    serving_start();
    serving_wait(&serves.asked, 1);
    const int connection = atomic_load(&serves.connection);
    pass_steps(4);
    CHECK_EQ(serving_said(" no_answer "), 0);
    pass_steps(1);
    serving_wait_said(" no_answer ", 1);
    CHECK_EQ(atomic_load(&serves.asked), 1);
    pass_steps(1);
    serving_wait(&serves.asked, 2);
    CHECK(atomic_load(&serves.connection) != connection);
    pass_steps(2);
    CHECK_EQ(serving_said(" no_answer "), 1);
    serving_pass(100000);
    serving_wait_said(" stood_still ", 1);
    CHECK_EQ(serving_said(" no_answer "), 1);
    pass_steps(2);
    serving_wait_said(" no_answer ", 2);
    CHECK_EQ(atomic_load(&serves.asked), 2);
    CHECK_EQ(serving_said(" stood_still "), 1);
    CHECK_EQ(serving_said(" no_answer "), 2);
    atomic_store(&serves.is_mute, false);
    pass_steps(2); /* it asks again, and is answered */
    serving_wait_said(" answered ", 1);
    serving_wait(&serves.begun, 1);
    atomic_store(&serves.is_mute, true);
    const unsigned asked = atomic_load(&serves.asked);
    atomic_store(&serves.may_end, true);
    serving_wait(&serves.asked, asked + 1);
    pass_steps(5);
    serving_wait_said(" no_answer ", 3);
    atomic_store(&serves.is_mute, false);
    pass_steps(1);
    serving_end();
    CHECK(serves.result.is_done);
    serving_close();
}

/* Wherever the process stands still while it waits for an answer, that is nobody's silence: nothing is asked again. */
static void stood_still_anywhere(void) {
    enum { LOOKS = 5, STILL_MS = 100000 };
    static atomic_bool s_stop;
    serving_open();
    serves.options.answer_ms = ANSWER_MS;
    serves.options.stop = &s_stop;
    atomic_store(&serves.is_mute, true);
    serving_stand(false);
    serving_start();
    serving_wait(&serves.asked, 1);
    for (unsigned look = 1; look <= LOOKS; look++) {
        serving_pass_at(look, STILL_MS);
        serving_wait_said(" stood_still ", look);
        serving_settle_asking();
        CHECK_EQ(serving_said(" no_answer "), 0);
        CHECK_EQ(atomic_load(&serves.asked), 1);
    }
    atomic_store(&s_stop, true);
    serving_end();
    serving_close();
}

/* ---- attempts ---- */

/* Of one thread: time passes where it sleeps. */
static struct {
    uint64_t now_ms, end_ms;
    uint64_t paused_ms; /* so long from the beginning it is no hour at which it may work */
    uint64_t night_ms;  /* nor from then on for NIGHT_MS; 0: no such time comes */
    bool saw_night;
    unsigned exact;     /* ends of waits, were they all as long as they are without chance */
    uint64_t stands_ms; /* so long it stands still, once, while it writes its notice */
    atomic_bool stop;
} s_attempts;

enum {
    BEGIN_MS = 600000,
    FIRST_MS = 250,
    WAITS = 7,
    IDLE_MS = 30000,
    STANDS_MS = 100000,
    PAUSED_MS = 30000,
    DUSK_MS = 26000, /* surely in the middle of the last of the WAITS */
    NIGHT_MS = 100000
};

static uint64_t attempts_now(void *ud) {
    (void)ud;
    return s_attempts.now_ms;
}

/* Asked for where its notice is written. */
static uint64_t attempts_wall(void *ud) {
    (void)ud;
    if (s_attempts.now_ms > BEGIN_MS + 12000) {
        s_attempts.now_ms += s_attempts.stands_ms;
        s_attempts.stands_ms = 0;
    }
    const uint64_t dusk_ms = BEGIN_MS + s_attempts.night_ms;
    const bool is_night = s_attempts.night_ms > 0 && s_attempts.now_ms >= dusk_ms &&
                          s_attempts.now_ms < dusk_ms + NIGHT_MS;
    return is_night || s_attempts.now_ms < BEGIN_MS + s_attempts.paused_ms ? SERVING_PAUSE_MS
                                                                           : SERVING_GO_MS;
}

/* What its owner reads while it has nothing to do, and could do nothing. */
static void look_at_night(void) {
    char path[OMM_PATH_MAX];
    json_t *root = NULL;
    CHECK_OK(omm_path_join(path, serves.dir, OMM_NODE_STATUS_FILE));
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    CHECK(strcmp(json_string_value(json_object_get(root, "state")), "paused") == 0);
    CHECK(strcmp(json_string_value(json_object_get(root, "detail")),
                 "it is 13:00, outside of " SERVING_HOURS) == 0);
    json_decref(root);
    CHECK_EQ(serving_said(" paused "), 0); /* nothing that it wanted to do was put off yet */
    s_attempts.saw_night = true;
}

static void attempts_sleep(void *ud, uint64_t ms) {
    (void)ud;
    s_attempts.now_ms += ms;
    for (unsigned i = 1; i <= WAITS; i++)
        s_attempts.exact += s_attempts.now_ms == BEGIN_MS + (uint64_t)FIRST_MS * ((1u << i) - 1);
    if (s_attempts.night_ms > 0 && !s_attempts.saw_night &&
        s_attempts.now_ms > BEGIN_MS + s_attempts.night_ms + 2500)
        look_at_night();
    if (s_attempts.now_ms > s_attempts.end_ms) atomic_store(&s_attempts.stop, true);
}

/* Every attempt fails at once, until half a minute after the last of the WAITS. */
static void attempt(uint64_t stands_ms, uint64_t paused_ms, uint64_t night_ms) {
    serving_open();
    s_attempts.now_ms = BEGIN_MS;
    s_attempts.exact = 0;
    s_attempts.end_ms =
        BEGIN_MS + (FIRST_MS << WAITS) + IDLE_MS + stands_ms + (night_ms > 0 ? NIGHT_MS : 0);
    s_attempts.stands_ms = stands_ms;
    s_attempts.paused_ms = paused_ms;
    s_attempts.night_ms = night_ms;
    s_attempts.saw_night = false;
    atomic_store(&s_attempts.stop, false);
    serves.rules.hours_text = SERVING_HOURS;
    if (paused_ms > 0 || night_ms > 0) serves.options.guest = &serves.rules;
    serves.options.url = "tcp://127.0.0.1:1";
    serves.options.answer_ms = 0;
    serves.options.clock =
        (omm_clock){.now_ms = attempts_now, .wall_ms = attempts_wall, .sleep_ms = attempts_sleep};
    serves.options.stop = &s_attempts.stop;
    serving_start();
    serving_end();
    CHECK(!serves.result.is_done);
}

/* Silences told to be longer than any was. */
static unsigned long_silences(void) {
    unsigned count = 0;
    for (unsigned seconds = STANDS_MS / 1000; seconds < 3 * STANDS_MS / 1000; seconds++) {
        char words[64];
        (void)snprintf(words, sizeof words, "tcp://127.0.0.1:1 seconds=%u ", seconds);
        count += serving_said(words);
    }
    return count;
}

/* After a coordinator's restart its nodes do not come back all at once: waits are longer by chance.  And in all that time
 * nothing large is held. */
static void attempts(void) {
    attempt(0, 0, 0);
    CHECK(s_attempts.exact < WAITS);
    CHECK(atomic_load(&serves.rests) > 1); /* the first is at the beginning */
    CHECK_EQ(serving_said(" stood_still "), 0);
    CHECK_EQ(long_silences(), 0);
    serving_close();
}

/* Whenever it stands still, between two waits too, that is said, and is not the coordinator's silence. */
static void between_waits(void) {
    attempt(STANDS_MS, 0, 0);
    CHECK_EQ(serving_said(" stood_still "), 1);
    CHECK(serving_said(" no_answer ") > 0);
    CHECK_EQ(long_silences(), 0);
    serving_close();
}

/* A pause is none, however long. */
static void after_a_pause(void) {
    attempt(0, PAUSED_MS, 0);
    CHECK_EQ(serving_said(" paused "), 1);
    CHECK_EQ(serving_said(" resumed "), 1);
    CHECK(serving_said(" no_answer ") > 0);
    CHECK_EQ(serving_said(" stood_still "), 0);
    serving_close();
}

/* Its hours end while it waits: its owner reads that, not that it waits; and what passes until they come again is no silence of
 * the coordinator, which nobody asked. */
static void outside_of_its_hours(void) {
    attempt(0, 0, DUSK_MS);
    CHECK(s_attempts.saw_night);
    CHECK_EQ(serving_said(" paused "), 1);
    CHECK_EQ(serving_said(" resumed "), 1);
    CHECK(serving_said(" no_answer ") > 0);
    CHECK_EQ(long_silences(), 0);
    serving_close();
}

/* ---- its end ---- */

/* In the middle of its training. */
static void stopped(void) {
    static atomic_bool s_stop;
    serving_open();
    serves.options.stop = &s_stop;
    serving_stand(false);
    serving_start();
    serving_wait(&serves.steps, 3);
    atomic_store(&s_stop, true);
    serving_wait(&serves.left, 1);
    serving_end();
    CHECK(!serves.result.is_done);
    serving_close();
}

/* What was written before an fsync that failed may be lost: it does not go on. */
static void sync_failed(void) {
    omm_node_service_result result;
    serving_open();
    serving_stand(false);
    omm_sync_failed("some file");
    CHECK_ERR(omm_node_serve(&result, &serves.options), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "some file"));
    omm_sync_forget();
    serving_close();
}

static void fill_disk(void) {
    fed_forbid_writing(true);
}

/* A disk without room when the training is done: nothing of it is done again, and there is one run to end for. */
static void no_room_for_the_submission(void) {
    omm_node *node = NULL;
    omm_node_action action;
    serving_open();
    serving_stand(false);
    serves.ends = fill_disk;
    serving_start();
    serving_wait(&serves.begun, 1);
    serving_stand(true); /* it waits until there is room */
    atomic_store(&serves.may_end, true);
    serving_wait_said(" node_trouble ", 1);
    fed_forbid_writing(false);
    serving_stand(false);
    serving_end();
    CHECK(serves.result.is_done);
    CHECK_EQ(atomic_load(&serves.begun), 1);
    CHECK_EQ(serves.result.status.rounds_accepted, 1);
    CHECK_OK(omm_node_open(
        &node, &serves.options.node)); /* it has ended: who starts it wants the next run */
    CHECK(omm_node_get_status(node).is_over);
    CHECK_OK(omm_node_step(&action, node, 1, &(omm_node_event){.kind = OMM_NODE_TICK}));
    CHECK_EQ(action.kind, OMM_NODE_SEND);
    omm_node_close(node);
    serving_close();
}

/* Room for its notice, and for nothing that grows. */
static void fill_disk_nearly(void) {
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 4096;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* As long as it waits for room, who asks for its state is told why; afterwards no more. */
static void trouble_is_its_state(void) {
    char path[OMM_PATH_MAX];
    json_t *root = NULL;
    serving_open();
    CHECK_OK(omm_path_join(path, serves.dir, OMM_NODE_STATUS_FILE));
    serving_stand(false);
    serves.ends = fill_disk_nearly;
    serving_start();
    serving_wait(&serves.begun, 1);
    serving_stand(true);
    atomic_store(&serves.may_end, true);
    serving_wait_said(" node_trouble ", 1);
    serving_settle(); /* it has looked at the clock, and shown itself, many times */
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    CHECK(strcmp(json_string_value(json_object_get(root, "state")), "trouble") == 0);
    CHECK(strlen(json_string_value(json_object_get(root, "detail"))) > 0);
    json_decref(root);
    fed_forbid_writing(false);
    serving_stand(false);
    serving_end();
    CHECK(serves.result.is_done);
    CHECK_OK(omm_json_load(&root, path, 1 << 20));
    CHECK(strcmp(json_string_value(json_object_get(root, "state")), "done") == 0);
    CHECK(strcmp(json_string_value(json_object_get(root, "detail")), "") == 0);
    json_decref(root);
    serving_close();
}

static atomic_uint s_dry, s_given; /* polls that say so; submissions */

static void hear_dry(const omm_request *request) {
    omm_envelope envelope;
    omm_poll poll;
    omm_arena arena;
    atomic_fetch_add(&s_given,
                     request->kind == OMM_REQUEST_SUBMIT || request->kind == OMM_REQUEST_PUT);
    if (request->kind != OMM_REQUEST_POLL) return;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, request->envelope));
    CHECK_OK(omm_poll_decode(&poll, envelope.payload, &arena));
    atomic_fetch_add(&s_dry, poll.declined == OMM_DECLINED_DRY);
    omm_arena_fini(&arena);
}

/* The first file is what the node would sign, of the bytes in the second. */
static void check_shown(omm_bytes sealed, omm_bytes payload) {
    omm_envelope envelope;
    omm_submission submission;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, sealed));
    CHECK_OK(omm_submission_decode(&submission, envelope.payload, &arena));
    const omm_digest digest = omm_hash(payload);
    CHECK(payload.size > 0 && submission.payload.size == payload.size);
    CHECK(omm_digest_equal(&submission.payload.digest, &digest));
    omm_arena_fini(&arena);
}

/* What would be sent lies in files for its owner alone; the coordinator hears that it is not sent, once. */
static void dry(void) {
    static const char *const names[] = {OMM_NODE_DRY_ENVELOPE, OMM_NODE_DRY_PAYLOAD};
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    omm_buf files[2];
    serving_open();
    CHECK_OK(omm_path_join(dir, serves.dir, "dry-run"));
    serves.options.dry_dir = dir;
    serves.heard = hear_dry;
    serving_stand(false);
    atomic_store(&serves.may_end, true);
    serving_start();
    serving_end();
    CHECK(serves.result.is_dry && serves.result.status.told_dry);
    CHECK(atomic_load(&s_dry) == 1 && atomic_load(&s_given) == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        CHECK_OK(omm_path_join(path, dir, names[i]));
        CHECK_EQ(stat(path, &st), 0);
        CHECK_EQ(st.st_mode & 0777, 0600);
        omm_buf_init(&files[i], 1 << 20);
        CHECK_OK(omm_file_read(&files[i], path));
    }
    check_shown(omm_buf_view(&files[0]), omm_buf_view(&files[1]));
    for (size_t i = 0; i < 2; i++) omm_buf_fini(&files[i]);
    serving_close();
}

int main(void) {
    CHECK_EQ(setenv("TZ", "UTC", 1), 0); /* of SERVING_HOURS */
    silence();
    stood_still_anywhere();
    attempts();
    between_waits();
    after_a_pause();
    outside_of_its_hours();
    stopped();
    sync_failed();
    no_room_for_the_submission();
    trouble_is_its_state();
    dry();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
