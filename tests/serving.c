/* serving.c - see serving.h. */
#include "serving.h"

#include "omm/messages.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000, /* between two looks at the machine */
    LOOKS =
        30, /* sleeps, or times that it asks for the time, that show that it had time to do something */
    ASKING_LOOKS =
        5, /* two of each time round that it waits for an answer: a whole one lies between */
    LOG_BYTES = 1 << 18
};

serving serves;

/* ---- the clock ---- */

static struct {
    pthread_mutex_t mutex;
    bool stands;
    uint64_t now_ms, wall_ms;
    unsigned still_at; /* looks, of which the last one finds still_ms gone; 0: none */
    uint64_t still_ms;
    atomic_uint sleeps, looks;
} s_clock = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t read_now(void) {
    pthread_mutex_lock(&s_clock.mutex);
    const uint64_t now = s_clock.now_ms;
    pthread_mutex_unlock(&s_clock.mutex);
    return now;
}

static uint64_t now_ms(void *ud) {
    (void)ud;
    atomic_fetch_add(&s_clock.looks, 1);
    pthread_mutex_lock(&s_clock.mutex);
    if (s_clock.still_at > 0 && --s_clock.still_at == 0) s_clock.now_ms += s_clock.still_ms;
    pthread_mutex_unlock(&s_clock.mutex);
    return read_now();
}

static uint64_t wall_ms(void *ud) {
    (void)ud;
    pthread_mutex_lock(&s_clock.mutex);
    const uint64_t wall = s_clock.wall_ms;
    pthread_mutex_unlock(&s_clock.mutex);
    return wall;
}

static void sleep_ms(void *ud, uint64_t ms) {
    (void)ud;
    usleep(1000);
    pthread_mutex_lock(&s_clock.mutex);
    if (!s_clock.stands) s_clock.now_ms += ms;
    pthread_mutex_unlock(&s_clock.mutex);
    atomic_fetch_add(&s_clock.sleeps, 1);
}

void serving_stand(bool stands) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.stands = stands;
    pthread_mutex_unlock(&s_clock.mutex);
}

void serving_pass(uint64_t ms) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.now_ms += ms;
    pthread_mutex_unlock(&s_clock.mutex);
}

void serving_pass_at(unsigned look, uint64_t ms) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.still_at = look;
    s_clock.still_ms = ms;
    pthread_mutex_unlock(&s_clock.mutex);
}

void serving_say(uint64_t wall) {
    pthread_mutex_lock(&s_clock.mutex);
    s_clock.wall_ms = wall;
    s_clock.now_ms += LOOK_MS;
    pthread_mutex_unlock(&s_clock.mutex);
}

void serving_wait(atomic_uint *count, unsigned want) {
    for (unsigned i = 0; i < SERVING_WAIT_MS && atomic_load(count) < want; i++) usleep(1000);
    CHECK(atomic_load(count) >= want);
}

void serving_settle(void) {
    serving_wait(&s_clock.sleeps, atomic_load(&s_clock.sleeps) + LOOKS);
}

void serving_settle_asking(void) {
    serving_wait(&s_clock.looks, atomic_load(&s_clock.looks) + ASKING_LOOKS);
}

/* ---- the log ---- */

static struct {
    pthread_mutex_t mutex;
    char text[LOG_BYTES];
    size_t size;
} s_log = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void write_line(void *ud, omm_log_level level, const char *line) {
    (void)ud, (void)level;
    pthread_mutex_lock(&s_log.mutex);
    const int size =
        snprintf(s_log.text + s_log.size, sizeof s_log.text - s_log.size, "%s\n", line);
    CHECK(size > 0 && s_log.size + (size_t)size < sizeof s_log.text);
    s_log.size += (size_t)size;
    pthread_mutex_unlock(&s_log.mutex);
}

unsigned serving_said(const char *words) {
    unsigned count = 0;
    pthread_mutex_lock(&s_log.mutex);
    for (const char *p = s_log.text; (p = strstr(p, words)) != NULL; p++) count++;
    pthread_mutex_unlock(&s_log.mutex);
    return count;
}

void serving_wait_said(const char *words, unsigned want) {
    for (unsigned i = 0; i < SERVING_WAIT_MS && serving_said(words) < want; i++) usleep(1000);
    if (serving_said(words) < want) fprintf(stderr, "it said:\n%s", s_log.text);
    CHECK(serving_said(words) >= want);
}

/* ---- the training ---- */

static omm_err train(omm_training *api, omm_training_result *out, float *values,
                     omm_buf *step_digests, const omm_training_job *job,
                     const struct omm_compute *compute) {
    atomic_fetch_add(&serves.begun, 1);
    atomic_fetch_add(&serves.resumed, job->checkpoint.size > 0);
    while (!atomic_load(&serves.may_end)) {
        if (job->cancelled(job->ud)) {
            CHECK_OK(job->save(job->ud, omm_bytes_str("so far"), 1));
            atomic_fetch_add(&serves.left, 1);
            return omm_raise(OMM_ERR_CANCELLED, "stopped");
        }
        atomic_fetch_add(&serves.steps, 1);
        usleep(1000);
    }
    const omm_err err = serves.honest(api, out, values, step_digests, job, compute);
    if (serves.ends) serves.ends();
    return err;
}

static void rest(omm_training *api) {
    (void)api;
    atomic_fetch_add(&serves.rests, 1);
}

/* ---- both ends ---- */

static void answer(omm_exchange *exchange, omm_bytes request, omm_buf *reply) {
    if (serves.heard) {
        omm_arena arena;
        omm_request read;
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        CHECK_OK(omm_request_decode(&read, request, &arena));
        serves.heard(&read);
        omm_arena_fini(&arena);
    }
    fed_send(&serves.f, reply, request);
    CHECK_OK(omm_exchange_reply(exchange, omm_buf_view(reply)));
}

static void *coordinate(void *ud) {
    omm_buf reply;
    omm_exchange *exchange;
    omm_bytes request;
    fed *f = &serves.f;
    (void)ud;
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    while (!atomic_load(&serves.is_over)) {
        const omm_err err = omm_server_receive(&exchange, &request, serves.server, 20);
        CHECK(err == OMM_OK || err == OMM_ERR_TIMEOUT);
        f->now_ms = read_now();
        if (err == OMM_OK) {
            atomic_store(&serves.connection, omm_exchange_connection(exchange));
            atomic_fetch_add(&serves.asked, 1);
            if (atomic_load(&serves.is_mute))
                omm_exchange_drop(exchange);
            else
                answer(exchange, request, &reply);
        }
        while (f->coord_deadline_ms <= f->now_ms)
            CHECK_OK(omm_coord_tick(&f->coord_deadline_ms, f->coord, f->now_ms));
    }
    omm_buf_fini(&reply);
    return NULL;
}

static void fill_options(serving *s) {
    static const omm_log log = {.level = OMM_LOG_INFO, .sink = write_line};
    static omm_log with_clock;
    const omm_clock clock = {.now_ms = now_ms, .wall_ms = wall_ms, .sleep_ms = sleep_ms};
    with_clock = log;
    with_clock.clock = clock;
    s->rules = omm_guest_rules_default();
    CHECK_OK(omm_hours_parse(&s->rules.hours, SERVING_HOURS));
    CHECK_OK(omm_dir_make(fed_path(&s->f, s->dir, "serving")));
    (void)snprintf(s->url, sizeof s->url, "tcp://127.0.0.1:%u", omm_server_port(s->server));
    s->options = (omm_node_service_options){.node = {.key = &s->f.keys[0],
                                                     .name = s->f.names[0],
                                                     .coordinator = s->f.coordinator_key.public_key,
                                                     .limits = omm_node_limits_default(),
                                                     .training = s->f.training[0],
                                                     .state_dir = s->dir,
                                                     .log = &with_clock},
                                            .url = s->url,
                                            .answer_ms = 60000,
                                            .clock = clock,
                                            .guest_root = "/nonexistent"};
}

void serving_open(void) {
    serving *s = &serves;
    omm_server_options options = omm_server_options_default();
    fed_options o = fed_options_default();
    *s = (serving){0};
    s_clock.now_ms = 1000;
    s_clock.wall_ms = SERVING_PAUSE_MS;
    s_clock.stands = true;
    s_clock.still_at = 0;
    s_log.size = 0;
    s_log.text[0] = '\0';
    o.nodes = 1;
    o.rounds = 1;
    o.silent[0] = true; /* its key is our node's */
    fed_open(&s->f, &o);
    s->honest = s->f.training[0]->run;
    s->f.training[0]->run = train;
    s->f.training[0]->rest = rest;
    CHECK_OK(omm_server_open(&s->server, &options));
    CHECK_OK(omm_server_listen(s->server, "tcp://127.0.0.1:0"));
    fill_options(s);
    CHECK_EQ(pthread_create(&s->coordinator, NULL, coordinate, NULL), 0);
}

static void *serve(void *ud) {
    serving *s = ud;
    CHECK_OK(omm_node_serve(&s->result, &s->options));
    return NULL;
}

void serving_start(void) {
    CHECK_EQ(pthread_create(&serves.node, NULL, serve, &serves), 0);
}

void serving_end(void) {
    CHECK_EQ(pthread_join(serves.node, NULL), 0);
}

void serving_close(void) {
    atomic_store(&serves.is_over, true);
    CHECK_EQ(pthread_join(serves.coordinator, NULL), 0);
    omm_server_close(serves.server); /* who comes after the end would find no server */
    fed_close(&serves.f);
}
