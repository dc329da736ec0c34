/* watch_test.c - health, metrics and status.json of facts that are made up here. */
#include "omm_test.h"

#include "watch_brief.h"
#include "watch_text.h"

#include "omm/json.h"
#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 7, ROUNDS = 1000 };

static omm_fake_clock s_fake;
static omm_run_node s_nodes[NODES] = {{.name = "<b>\"anna\"\\"},
                                      {.name = "\xc3\xa9va"},
                                      {.name = "c"},
                                      {.name = "d"},
                                      {.name = "e"},
                                      {.name = "f"},
                                      {.name = "g"}};
static omm_run_record s_run = {.name = "a\"b\\c\nd",
                               .run_id = "00112233445566778899aabbccddeeff",
                               .rounds = ROUNDS,
                               .base = {.name = "tiny.gguf"},
                               .nodes = s_nodes,
                               .node_count = NODES};

typedef struct fixture {
    watch *watch;
    watch_facts facts;
    watch_node nodes[NODES];
    watch_seen seen;
    omm_buf text;
} fixture;

static void setup(fixture *f) {
    memset(f, 0, sizeof *f);
    watch_options o = {
        .run = &s_run, .clock = omm_clock_fake(&s_fake), .commit = "c\"", .build = "b"};
    s_fake = (omm_fake_clock){.now_ms = 50000, .wall_ms = 1700000000123};
    CHECK_OK(watch_open(&f->watch, &o));
    omm_buf_init(&f->text, (size_t)8 << 20);
}

static void see(fixture *f) {
    omm_buf_clear(&f->text);
    f->seen.o = watch_get_options(f->watch);
    f->seen.facts = &f->facts;
    f->seen.nodes = f->nodes;
    watch_read(&f->facts, f->nodes, &f->seen.history, f->watch);
}

static void teardown(fixture *f) {
    watch_close(f->watch);
    omm_buf_fini(&f->text);
}

static bool has(fixture *f, const char *what) {
    return f->text.size > 0 && memmem(f->text.data, f->text.size, what, strlen(what)) != NULL;
}

static void expect_health(fixture *f, bool healthy, const char *says) {
    bool is = false;
    CHECK_OK(watch_health_text(&f->text, &is, &f->seen));
    CHECK(is == healthy);
    CHECK(has(f, says));
    omm_buf_clear(&f->text);
}

/* The loop goes round meanwhile, and requests go well. */
static void pass(fixture *f, uint64_t ms) {
    s_fake.now_ms += ms;
    watch_beat(f->watch, false);
    watch_trouble(f->watch, NULL);
}

/* A run that is used up for nothing. */
static void test_void_rounds(void) {
    fixture f;
    omm_coord_round past[WATCH_VOID_MAX + 1] = {{.published = true}};
    setup(&f);
    for (uint32_t i = 1; i <= WATCH_VOID_MAX; i++) past[i].voided = true;
    see(&f);
    f.seen.history = past;
    f.facts.status.accept_min = 2;
    f.facts.history_count = WATCH_VOID_MAX;
    expect_health(&f, true, "ok\n");
    f.facts.history_count++;
    expect_health(&f, false, "sick\nrounds: the last 3 were void: fewer than accept_min (2) ");
    past[2].ended_dry = true; /* one of the three made way: nothing is wrong with it */
    expect_health(&f, true, "ok\n");
    past[1].accepted = 1;
    past[1].selected = 3;
    f.facts.history_count = 2;
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "; 1 of 3 accepted, void: at least 2 are needed (accept_min)\n"));
    past[1].voided = false;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "; 1 of 3 accepted, held back: "));
    teardown(&f);
}

/* Every reason alone, and what is no reason. */
/* What strangers do to the service is said while it lasts, and counted by reason. */
static void test_connections(void) {
    fixture f;
    setup(&f);
    see(&f);
    omm_wire_count *w = &f.seen.wire;
    for (int i = 0; i < OMM_TURNED_REASONS; i++) w->turned_ago_ms[i] = UINT64_MAX;
    w->strangers_max = 256;
    w->turned_away[OMM_TURNED_ADDRESS] = 1000;
    w->turned_ago_ms[OMM_TURNED_ADDRESS] = 0;
    expect_health(&f, true, "ok\n");
    w->turned_away[OMM_TURNED_STRANGERS] = 7;
    w->turned_ago_ms[OMM_TURNED_STRANGERS] = WATCH_CROWD_MS - 1;
    expect_health(&f, false, "strangers: all 256 places are taken, 7 connections had to go");
    w->turned_ago_ms[OMM_TURNED_STRANGERS] = WATCH_CROWD_MS;
    expect_health(&f, true, "ok\n");
    w->turned_away[OMM_TURNED_DESCRIPTORS] = 9;
    w->turned_ago_ms[OMM_TURNED_DESCRIPTORS] = 0;
    expect_health(&f, false, "descriptors: all that connections may have are open, 9 ");
    w->turned_ago_ms[OMM_TURNED_DESCRIPTORS] = WATCH_CROWD_MS;
    w->answering = 64;
    w->all_answer_ms = WATCH_UNREAD_MS - 1;
    expect_health(&f, true, "ok\n");
    w->all_answer_ms = WATCH_UNREAD_MS;
    expect_health(&f, false, "answers: nobody was answered for 5 s, all 64 wait for peers");
    w->all_answer_ms = 0;
    w->stuck = 1;
    expect_health(&f, false, "connections: 1 that were ended are still there");
    see(&f);
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    CHECK(has(&f, "\nmeshmind_connections_turned_away_total{reason=\"address\"} 1000\n"));
    CHECK(has(&f, "\nmeshmind_connections_turned_away_total{reason=\"strangers\"} 7\n"));
    CHECK(has(&f, "\nmeshmind_connections_turned_away_total{reason=\"frame\"} 0\n"));
    CHECK(has(&f, "\nmeshmind_connections_stuck 1\n"));
    CHECK(has(&f, "\nmeshmind_answers_waiting 64\n"));
    teardown(&f);
}

/* What our own trouble means for the open round, since when: only while it lasts, and where it is of a disk. */
static void test_deadline(void) {
    fixture f;
    setup(&f);
    watch_round_trouble(f.watch, "no room");
    pass(&f, 60000);
    s_fake.wall_ms += 60000;
    watch_trouble(f.watch, "disk full");
    see(&f);
    f.facts.status.state = OMM_COORD_OPEN;
    f.facts.status.waited_ms = 59999;
    expect_health(&f, false, "trouble: disk full\nstate: open\n");
    f.facts.status.is_spared = true;
    expect_health(
        &f, false,
        "trouble: disk full\ndeadline: waits since 2023-11-14T22:13:20.123Z (59 s so far)");
    f.facts.status.state = OMM_COORD_JOINING;
    expect_health(&f, false, "trouble: disk full\nstate: joining\n");
    f.facts.status.state = OMM_COORD_OPEN;
    f.facts.has_trouble = false;
    expect_health(&f, false, "no room\ndeadline: waits since 2023-11-14T22:13:20.123Z");
    f.facts.has_stopped = false;
    expect_health(&f, true, "ok\nstate: open\n");
    teardown(&f);
}

static void test_health(void) {
    fixture f;
    setup(&f);
    see(&f);
    f.facts.status.round = 2; /* counted as `ctl rollback` counts */
    f.facts.status.rounds = 10;
    expect_health(&f, true, "ok\nstate: joining\nround: 2 (rounds 0 to 9)\n");
    bool healthy = false;
    CHECK_OK(watch_health_text(&f.text, &healthy, &f.seen));
    CHECK(!has(&f, "note:") && !has(&f, "warning:"));
    omm_buf_clear(&f.text);
    watch_options noted = *f.seen.o;
    noted.note = "nobody is tested";
    f.seen.o = &noted;
    expect_health(&f, true,
                  "ok\nstate: joining\nround: 2 (rounds 0 to 9)\nnote: nobody is tested\n");
    f.seen.o = watch_get_options(f.watch);
    f.facts.now_ms = f.facts.beat_ms + WATCH_BEAT_MS_MAX;
    expect_health(&f, true, "ok\n");
    f.facts.now_ms++;
    expect_health(&f, false, "sick\nloop: stands still for 10 s\n");
    f.facts.status.state = OMM_COORD_CLOSED; /* it is being sealed */
    expect_health(&f, true, "ok\n");
    see(&f);
    f.facts.beat_ms = f.facts.now_ms + 1; /* it went round after the clock was read */
    expect_health(&f, true, "ok\n");
    see(&f);
    watch_damaged(f.watch, "offers/r001.env"); /* no sickness: rounds go on */
    see(&f);
    expect_health(&f, true, "ok\nwarning: bundle: offers/r001.env is not as its round wrote it");
    watch_damaged(f.watch, "");
    see(&f);
    expect_health(&f, true, "ok\nstate: joining\n");
    f.seen.has_disk = true;
    f.seen.disk_free = WATCH_DISK_BYTES_MIN;
    expect_health(&f, true, "ok\n");
    f.seen.disk_free--;
    expect_health(&f, false, "disk: 255 MiB left for the state, 256 are asked for\n");
    f.seen.has_disk = false;
    f.facts.ticking = true;
    f.facts.tick_since_ms = 1;
    f.facts.now_ms = f.facts.beat_ms = 1 + WATCH_TICK_MS_MAX;
    expect_health(&f, true, "ok\n");
    f.facts.now_ms = ++f.facts.beat_ms;
    f.facts.base.has_changed = true;
    expect_health(&f, false, "\nbase: the file of the base model (tiny.gguf) has changed");
    f.facts.base.has_changed = false;
    expect_health(&f, false, "work: one sum or evaluation takes 7200 s\n");
    f.facts.ticking = false; /* it has ended */
    expect_health(&f, true, "ok\n");
    f.facts.ticking = true;
    watch_trouble(f.watch, "disk full");
    see(&f);
    expect_health(&f, false, "trouble: disk full\n");
    watch_trouble(f.watch, NULL); /* another request goes well: no word on those that fail */
    see(&f);
    expect_health(&f, false, "trouble: disk full\n");
    pass(&f, WATCH_TROUBLE_MS);
    see(&f);
    expect_health(&f, true, "ok\n");
    watch_round_trouble(f.watch, "no room");
    pass(&f, WATCH_TROUBLE_MS);
    see(&f);
    expect_health(&f, false, "sick\nround: stands still, and is tried again: no room\n");
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    CHECK(has(&f, "\nmeshmind_healthy 0\n") && has(&f, "\nmeshmind_trouble 1\n"));
    const omm_coord_state state = f.facts.status.state;
    f.facts.status.state = OMM_COORD_CLOSED;
    expect_health(&f, false, "sick\nsealing: stands still, and is tried again: no room\n");
    f.facts.status.state = state;
    omm_buf_clear(&f.text);
    watch_round_trouble(f.watch, NULL);
    see(&f);
    expect_health(&f, true, "ok\n");
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    CHECK(has(&f, "\nmeshmind_healthy 1\n") && has(&f, "\nmeshmind_trouble 0\n"));
    omm_buf_clear(&f.text);
    watch_audit_failed(f.watch, "no room");
    see(&f);
    expect_health(&f, false, "audit: no room\n");
    watch_audit(f.watch, 7, &(omm_digest){{0}});
    see(&f);
    expect_health(&f, true, "ok\n");
    teardown(&f);
}

static void test_metrics(void) {
    fixture f;
    setup(&f);
    omm_coord_event refused = {.kind = OMM_COORD_EVENT_SUBMISSION,
                               .node = 1,
                               .reason = OMM_ERR_REFUSED_NORM,
                               .sentence = "too far"};
    omm_coord_event accepted = {.kind = OMM_COORD_EVENT_SUBMISSION, .node = 0, .sentence = ""};
    omm_coord_event stranger = {.kind = OMM_COORD_EVENT_REQUEST,
                                .node = OMM_COORD_NOBODY,
                                .reason = OMM_ERR_REFUSED_FORMAT,
                                .sentence = "<\xff\x01>",
                                .peer = "203.0.113.9"};
    omm_coord_event canary = {.kind = OMM_COORD_EVENT_CANARY, .node = 1, .sentence = ""};
    watch_event(f.watch, &canary);
    canary.reason = OMM_ERR_REFUSED_DIGEST;
    canary.sentence = "canary: step 2";
    watch_event(f.watch, &canary);
    watch_event(f.watch, &refused);
    watch_event(f.watch, &accepted);
    watch_event(f.watch, &accepted);
    watch_event(f.watch, &stranger);
    see(&f);
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    CHECK(has(&f, "run=\"a\\\"b\\\\c\\nd\",commit=\"c\\\"\",build=\"b\"} 1\n"));
    CHECK(has(&f, "\nmeshmind_submissions_accepted_total 2\n"));
    CHECK(has(&f, "\nmeshmind_submissions_refused_total{reason=\"NORM\"} 1\n"));
    CHECK(has(&f, "\nmeshmind_submissions_refused_total{reason=\"FORMAT\"} 0\n"));
    CHECK(has(&f, "\nmeshmind_requests_refused_total{reason=\"FORMAT\"} 1\n"));
    CHECK(has(&f, "\nmeshmind_start_timestamp_seconds 1700000000.123\n"));
    CHECK(!has(&f, "meshmind_loss"));
    f.facts.status.has_loss = true;
    f.facts.status.loss = 2.5;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    CHECK(has(&f, "\nmeshmind_loss 2.5\n"));
    omm_buf_clear(&f.text);
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK(has(&f, "\"sentence\":\"<?"
                  "?>\"")); /* not UTF-8 when it came */
    CHECK(has(&f, "\"sentence\":\"canary: step 2\""));
    CHECK_EQ(f.facts.verdict_count, 5); /* of canaries those that failed */
    CHECK_EQ(f.facts.canaries_passed, 1);
    CHECK_EQ(f.facts.canaries_failed, 1);
    teardown(&f);
}

static void expect_metric(fixture *f, const char *line) {
    char whole[160];
    (void)snprintf(whole, sizeof whole, "\nmeshmind_%s\n", line);
    if (!has(f, whole)) fprintf(stderr, "no %s\n", line);
    CHECK(has(f, whole));
}

/* What goes on now: each number under its own name. */
static void test_gauges(void) {
    static const char *const lines[] = {"paused 1",
                                        "evidence_damaged 1",
                                        "base_bytes_total 71",
                                        "base_refused_total 72",
                                        "base_changed 1",
                                        "work_running 1",
                                        "work_seconds_total 1.500",
                                        "nodes{is=\"enrolled\"} 7",
                                        "nodes{is=\"ready\"} 4",
                                        "nodes{is=\"selected\"} 5",
                                        "nodes{is=\"uploading\"} 1",
                                        "nodes{is=\"settled\"} 2",
                                        "nodes{is=\"quarantined\"} 3",
                                        "rounds_total{result=\"published\"} 41",
                                        "rounds_total{result=\"held_back\"} 42",
                                        "rounds_total{result=\"void\"} 43",
                                        "wire_bytes_total{direction=\"in\"} 51",
                                        "wire_bytes_total{direction=\"out\"} 52",
                                        "wire_messages_total{direction=\"in\"} 53",
                                        "wire_messages_total{direction=\"out\"} 54",
                                        "connections 55",
                                        "strangers 56",
                                        "requests_queued 57",
                                        "messages_oversize_total 58",
                                        "canaries_passed_total 61",
                                        "canaries_failed_total 62",
                                        "canaries_open 63",
                                        "canaries_waiting 64",
                                        "canary_replays_total 1",
                                        "canary_replay_seconds_total 2.345",
                                        "candidates 65"};
    fixture f;
    setup(&f);
    watch_damaged(f.watch, "offers/r001.env");
    watch_base(f.watch, &(watch_base_facts){.bytes = 71, .refused = 72, .has_changed = true});
    watch_replay(f.watch, 2345);
    watch_beat(f.watch, true);
    s_fake.now_ms += 1500;
    see(&f);
    f.facts.status = (omm_coord_status){.draining = true,
                                        .ready = 4,
                                        .selected = 5,
                                        .quarantined = 3,
                                        .has_canaries = true,
                                        .canaries_open = 63,
                                        .canaries_waiting = 64,
                                        .candidates = 65};
    f.facts.canaries_passed = 61;
    f.facts.canaries_failed = 62;
    f.facts.rounds_published = 41;
    f.facts.rounds_held = 42;
    f.facts.rounds_void = 43;
    f.nodes[0].status.uploading = true;
    f.nodes[1].status.settled = f.nodes[2].status.settled = true;
    f.seen.wire = (omm_wire_count){.bytes_in = 51,
                                   .bytes_out = 52,
                                   .messages_in = 53,
                                   .messages_out = 54,
                                   .connections = 55,
                                   .strangers = 56,
                                   .queued = 57,
                                   .oversize = 58};
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) expect_metric(&f, lines[i]);
    CHECK(!has(&f, "disk_free_bytes"));
    f.seen.has_disk = true;
    f.seen.disk_free = 81;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    expect_metric(&f, "disk_free_bytes 81");
    teardown(&f);
}

/* When the round was opened and when the last one was over, each under its own name. */
static void test_times(void) {
    fixture f;
    setup(&f);
    watch_event(f.watch, &(omm_coord_event){.kind = OMM_COORD_EVENT_PUBLISHED, .sentence = ""});
    s_fake.wall_ms += 1000;
    watch_event(f.watch, &(omm_coord_event){.kind = OMM_COORD_EVENT_OPENED, .sentence = ""});
    s_fake.wall_ms += 1000;
    see(&f);
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK(has(&f, "\"round_opened\":\"2023-11-14T22:13:21.123Z\""));
    CHECK(has(&f, "\"round_over\":\"2023-11-14T22:13:20.123Z\""));
    CHECK(has(&f, "\"time\":\"2023-11-14T22:13:22.123Z\""));
    teardown(&f);
}

/* What the page says of each node. */
static void test_doing(void) {
    static const struct {
        omm_coord_node_status status;
        const char *is;
    } cases[NODES] = {{{.ready = true}, "ready"},
                      {{.selected = true, .ready = true}, "selected"},
                      {{.selected = true, .offered = true}, "training"},
                      {{.selected = true, .offered = true, .uploading = true}, "uploading"},
                      {{.selected = true, .settled = true}, "settled"},
                      {{.settled = true, .quarantined = true}, "in quarantine"},
                      {{.quarantined = true, .revoked = true}, "revoked"}};
    fixture f;
    json_t *root = NULL;
    setup(&f);
    see(&f);
    f.facts.status.state = OMM_COORD_OPEN;
    for (size_t i = 0; i < NODES; i++) f.nodes[i].status = cases[i].status;
    f.nodes[1].status.accepted = 11;
    f.nodes[1].status.refused = 12;
    f.nodes[1].up = 13;
    f.nodes[1].down = 14;
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK_OK(omm_json_parse(&root, omm_buf_view(&f.text), "status.json"));
    for (size_t i = 0; i < NODES; i++) {
        const json_t *node = json_array_get(json_object_get(root, "nodes"), i);
        CHECK_EQ(strcmp(json_string_value(json_object_get(node, "is")), cases[i].is), 0);
    }
    static const char *const counts[] = {"accepted", "refused", "up", "down"};
    const json_t *second = json_array_get(json_object_get(root, "nodes"), 1);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(json_integer_value(json_object_get(second, counts[i])), 11 + i);
    json_decref(root);
    teardown(&f);
}

/* A watch keeps the newest verdicts, newest first; the curve is thinned and keeps its end. */
static void test_status(void) {
    fixture f;
    setup(&f);
    for (unsigned i = 0; i < 3 * WATCH_VERDICTS_MAX + 5; i++) {
        omm_coord_event event = {
            .kind = OMM_COORD_EVENT_SUBMISSION, .round = i, .node = 1, .sentence = ""};
        watch_event(f.watch, &event);
    }
    see(&f);
    static omm_coord_round past[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++)
        past[i] =
            (omm_coord_round){.round = i, .loss = i % 2 ? 1.5 : (double)NAN, .published = true};
    f.seen.history = past;
    f.facts.history_count = ROUNDS - 2; /* every third one, and the last one is none of these */
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK(has(&f, "[997,1.5,true]]"));
    omm_buf_clear(&f.text);
    f.facts.history_count = ROUNDS;
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    json_t *root = NULL;
    CHECK_OK(omm_json_parse(&root, omm_buf_view(&f.text), "status.json"));
    const json_t *verdicts = json_object_get(root, "verdicts");
    CHECK(json_array_size(verdicts) == WATCH_VERDICTS_MAX);
    for (unsigned i = 0; i < WATCH_VERDICTS_MAX; i++)
        CHECK(json_integer_value(json_object_get(json_array_get(verdicts, i), "round")) ==
              3 * WATCH_VERDICTS_MAX + 4 - i);
    const json_t *history = json_object_get(root, "history");
    CHECK(json_array_size(history) == WATCH_JSON_ROUNDS_MAX);
    CHECK(json_is_null(json_object_get(json_array_get(history, 0), "loss")));
    const json_t *curve = json_object_get(root, "curve");
    size_t points = json_array_size(curve);
    CHECK(points > WATCH_JSON_CURVE_MAX / 4);
    CHECK(points <= WATCH_JSON_CURVE_MAX + 1);
    CHECK(json_integer_value(json_array_get(json_array_get(curve, points - 1), 0)) == ROUNDS - 1);
    const json_t *node = json_array_get(json_object_get(root, "nodes"), 0);
    CHECK(strcmp(json_string_value(json_object_get(node, "name")), s_nodes[0].name) == 0);
    CHECK(strcmp(json_string_value(json_object_get(node, "is")), "away") == 0);
    json_decref(root);
    teardown(&f);
}

static int64_t brief(fixture *f, const char *key, const char *inner) {
    json_t *root = NULL;
    omm_buf_clear(&f->text);
    CHECK_OK(watch_brief_json(&f->text, &f->seen));
    CHECK(f->text.size < 4096); /* one answer over the socket, however many nodes */
    CHECK_OK(omm_json_parse(&root, omm_buf_view(&f->text), "status"));
    const json_t *value = json_object_get(root, key);
    if (inner) value = json_object_get(value, inner);
    CHECK(value);
    int64_t is = json_is_null(value) ? -1 : json_is_true(value) ? 1 : json_integer_value(value);
    json_decref(root);
    return is;
}

/* What there is only in some runs: null where it is not, and each number under its own name where it is. */
static void test_brief_some(void) {
    static const char *const names[] = {"candidates", "open",   "waiting",
                                        "passed",     "failed", "replays"};
    fixture f;
    setup(&f);
    see(&f);
    CHECK_EQ(brief(&f, "loss", NULL), -1);
    CHECK_EQ(brief(&f, "canaries", NULL), -1);
    CHECK_EQ(brief(&f, "disk_free_bytes", NULL), -1);
    CHECK_EQ(brief(&f, "round_opened", NULL), -1);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(!has(&f, "held-out loss") && !has(&f, "canaries:"));
    f.facts.status = (omm_coord_status){.has_loss = true,
                                        .loss = 2.5,
                                        .has_canaries = true,
                                        .candidates = 1,
                                        .canaries_open = 2,
                                        .canaries_waiting = 3};
    f.facts.canaries_passed = 4;
    f.facts.canaries_failed = 5;
    f.facts.replays = 6;
    f.facts.replay_ms = 7500;
    f.seen.has_disk = true;
    f.seen.disk_free = 8;
    f.seen.wire.connections = 9;
    for (int i = 0; i < 6; i++) CHECK_EQ(brief(&f, "canaries", names[i]), i + 1);
    CHECK(has(&f, "\"loss\":2.5") && has(&f, "\"replay_seconds\":7.5"));
    CHECK_EQ(brief(&f, "disk_free_bytes", NULL), 8);
    CHECK_EQ(brief(&f, "connections", NULL), 9);
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "\nheld-out loss: 2.5\n"));
    CHECK(has(&f, "\ncanaries: 1 candidates, 2 open, 3 to be trained again; 4 passed, 5 failed "));
    teardown(&f);
}

/* The last error, by its text. */
static bool says_it_is_over(fixture *f) {
    omm_buf_clear(&f->text);
    CHECK_OK(watch_brief_text(&f->text, &f->seen));
    CHECK(has(f, "\nlast error: 2023-11-14T22:13:20.123Z disk "));
    return has(f, " full (since then all went well)\n");
}

/* What an operator asks first, as text and as JSON: each node in one place. */
static void test_brief(void) {
    fixture f;
    setup(&f);
    omm_coord_event stranger = {.kind = OMM_COORD_EVENT_REQUEST,
                                .node = OMM_COORD_NOBODY,
                                .reason = OMM_ERR_REFUSED_BUDGET,
                                .sentence = "too much"};
    watch_event(f.watch, &stranger);
    see(&f);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(!has(&f, "last error"));
    CHECK_EQ(brief(&f, "last_error", NULL), -1);
    CHECK_EQ(brief(&f, "refusals", "requests"), 0);
    CHECK_EQ(brief(&f, "refusals", "submissions"), 0);
    watch_trouble(f.watch, "disk \xff full");
    watch_stage(f.watch, 12000, 588999);
    see(&f);
    f.facts.status =
        (omm_coord_status){.state = OMM_COORD_OPEN, .round = 3, .rounds = 9, .selected = 2};
    f.nodes[0].status = (omm_coord_node_status){.selected = true, .offered = true};
    f.nodes[1].status = (omm_coord_node_status){.selected = true};
    static const omm_coord_round past[1] = {{.missing = 4}};
    f.seen.history = past;
    f.facts.history_count = 1;
    CHECK_EQ(brief(&f, "nodes", "working"), 1);
    CHECK_EQ(brief(&f, "nodes", "silent"), 1);
    CHECK_EQ(brief(&f, "nodes", "late"), 4);
    CHECK_EQ(brief(&f, "stage_seconds", NULL), 12);
    CHECK_EQ(brief(&f, "seconds_left", NULL), 588);
    CHECK_EQ(brief(&f, "round", NULL), 3);
    CHECK_EQ(brief(&f, "healthy", NULL), 0);
    CHECK_EQ(brief(&f, "last_error", "lasts"), 1);
    CHECK(!says_it_is_over(&f));
    f.facts.has_trouble = false;
    CHECK_EQ(brief(&f, "last_error", "lasts"), 0);
    CHECK(says_it_is_over(&f));
    f.facts.has_stopped = true;
    CHECK_EQ(brief(&f, "last_error", "lasts"), 1);
    CHECK(!says_it_is_over(&f));
    f.facts.has_stopped = false;
    f.facts.ticking = true; /* nobody knows how long a sum takes */
    CHECK_EQ(brief(&f, "seconds_left", NULL), -1);
    f.facts.ticking = false;
    f.facts.has_trouble = true;
    CHECK(has(&f, "\"BUDGET\":1") && has(&f, "disk ? full"));
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "stage: since 12 s, goes on in 588 s at the latest\n"));
    CHECK(has(&f, "1 working, 0 uploading") && has(&f, "late in the last round: 4\n"));
    CHECK(has(&f, "requests refused since the start: BUDGET 1\n"));
    CHECK(has(&f, "submissions refused since the start: none\n"));
    CHECK(has(&f, "disk \xff full\n"));
    char who[256];
    snprintf(who, sizeof who, "\nnot heard of since they were selected: %s; the deadline goes on",
             s_nodes[1].name);
    CHECK(has(&f, who));
    snprintf(who, sizeof who, "\nhave the offer, and nothing has come yet: %s; ", s_nodes[0].name);
    CHECK(has(&f, who));
    CHECK(!has(&f, "in quarantine: ") && !has(&f, "revoked: "));
    for (size_t i = 0; i < NODES; i++) f.nodes[i].status.quarantined = true;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    snprintf(who, sizeof who, "\nin quarantine: %s, %s", s_nodes[0].name, s_nodes[1].name);
    CHECK(has(&f, who) && has(&f, "; `release` lets one in again, the audit log has since when\n"));
    CHECK(!has(&f, "not heard of since") && has(&f, ", c, d, e and 2 more; `release`"));
    for (size_t i = 0; i < NODES; i++) f.nodes[i].status.quarantined = i < 5;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, ", c, d, e; `release`"));
    for (size_t i = 0; i < NODES; i++) f.nodes[i].status.quarantined = false;
    f.nodes[0].status.settled = f.nodes[1].status.quarantined = true;
    CHECK_EQ(brief(&f, "nodes", "working"), 0);
    CHECK_EQ(brief(&f, "nodes", "settled"), 1);
    CHECK_EQ(brief(&f, "nodes", "quarantined"), 1);
    f.nodes[1].status.revoked = true;
    CHECK_EQ(brief(&f, "nodes", "quarantined"), 0);
    CHECK_EQ(brief(&f, "nodes", "revoked"), 1);
    f.facts.status.state = OMM_COORD_JOINING;
    f.nodes[2].status.ready = true;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "\nhave not come for this round yet: d, e, f, g; join_ms"));
    watch_stage(f.watch, 5, OMM_COORD_NEVER);
    see(&f);
    CHECK_EQ(brief(&f, "seconds_left", NULL), -1);
    f.facts.status = (omm_coord_status){.ready = 1, .accept_min = 2, .quorum = 3};
    CHECK_EQ(brief(&f, "needed", NULL), 2);
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, ", waits for nodes: 1 ready, at least 2 are needed (accept_min), with 3 it "
                  "begins at once\n"));
    f.facts.status.held = true;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, ", waits for its time (every, at)\n"));
    f.facts.status.paused = true;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, ", waits for `resume`\n"));
    teardown(&f);
}

/* Who has the offer and says that it gives nothing is in a place of its own; all of them are a warning, and no sickness. */
static void test_declined(void) {
    fixture f;
    setup(&f);
    see(&f);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, ", 0 declining\n") && !has(&f, "gives nothing") && !has(&f, "say why"));
    f.facts.status =
        (omm_coord_status){.state = OMM_COORD_OPEN, .rounds = 9, .selected = 4, .accept_min = 1};
    for (size_t i = 0; i < 4; i++)
        f.nodes[i].status = (omm_coord_node_status){.selected = true, .offered = i < 3};
    f.nodes[0].status.declined = OMM_DECLINED_BASE;
    f.nodes[1].status.declined = 77;
    expect_health(&f, true, "ok\nstate: open\n"); /* one is at work */
    f.nodes[2].status.declined = OMM_DECLINED_PAUSED;
    expect_health(&f, true, "ok\nstate: open\n"); /* it is again */
    CHECK_EQ(brief(&f, "nodes", "working"), 1);
    CHECK_EQ(brief(&f, "nodes", "declining"), 2);
    CHECK_EQ(brief(&f, "nodes", "silent"), 1);
    CHECK_EQ(brief(&f, "declined", "base"), 1);
    CHECK_EQ(brief(&f, "declined", "other"), 1);
    CHECK_EQ(brief(&f, "declined", "paused"), 1);
    f.nodes[2].status.declined = OMM_DECLINED_BASE;
    f.nodes[2].status.uploading = true; /* and gives all the same */
    expect_health(&f, true, "ok\nstate: open\n");
    f.nodes[2].status.uploading = false;
    f.nodes[3].status.offered = f.nodes[3].status.settled =
        true; /* refused: it is not waited for */
    expect_health(&f, true,
                  "ok\nwarning: round: every node that came for its offer (3) gives nothing, and "
                  "says why: base 2, other 1; ");
    f.nodes[3].status.offered = f.nodes[3].status.settled = false;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "\nhave the offer, and give nothing: ") && has(&f, "c; `nodes` has what each"));
    CHECK(!has(&f, "nothing has come yet") && has(&f, "1 not heard of\n"));
    CHECK(!has(&f, "gave nothing to it"));
    f.facts.status.accepted = 1; /* somebody gave */
    expect_health(&f, true, "ok\nstate: open\n");
    f.facts.status.accepted = 0;
    f.nodes[3].status.offered = f.nodes[3].status.uploading = true;
    expect_health(&f, true, "ok\nstate: open\n"); /* or does */
    omm_buf_clear(&f.text);
    CHECK_OK(watch_metrics_text(&f.text, &f.seen));
    expect_metric(&f, "nodes_declined{reason=\"base\"} 2");
    expect_metric(&f, "nodes_declined{reason=\"other\"} 1");
    expect_metric(&f, "nodes_declined{reason=\"memory\"} 0");
    omm_buf_clear(&f.text);
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK(has(&f, "\"declined\":\"base: its model or tokenizer is another one\""));
    CHECK(has(&f, "\"declined\":\"other (77)\"") && has(&f, "\"declined\":\"\""));
    CHECK(has(&f, "\"is\":\"declines\"") && has(&f, "\"is\":\"uploading\""));
    f.facts.status.state = OMM_COORD_JOINING;
    omm_buf_clear(&f.text);
    CHECK_OK(watch_brief_text(&f.text, &f.seen));
    CHECK(has(&f, "\nnodes that gave nothing to it say why: base 2, other 1; `nodes` has which\n"));
    CHECK(!has(&f, "warning: ") && has(&f, ", 0 declining\n"));
    teardown(&f);
}

/* As many as a run can have, of every reason, fit the line. */
static void test_declined_list(void) {
    char list[DECLINED_LIST_SIZE];
    declined_counts counts = {0};
    declined_list(list, &counts);
    CHECK_EQ(strcmp(list, ""), 0);
    for (uint32_t i = 0; i <= OMM_DECLINED_OTHER; i++) declined_add(&counts, i);
    for (size_t i = 1; i <= OMM_DECLINED_OTHER; i++) counts.of[i] = UINT32_MAX;
    CHECK_EQ(counts.of[OMM_DECLINED_NOTHING], 0);
    declined_list(list, &counts);
    CHECK(strstr(list, ", paused 4294967295, dry 4294967295, other 4294967295"));
}

static const char *string_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    CHECK(value);
    return json_is_null(value) ? "null" : json_string_value(value);
}

/* How a round ended, and whose verdict was what, as the page has it. */
static void test_status_verdicts(void) {
    static const omm_coord_round past[] = {
        {.published = true, .loss = 1}, {.loss = 1}, {.voided = true, .loss = (double)NAN}};
    static const char *const ends[] = {"published", "held back", "void"};
    static const struct {
        omm_coord_event event;
        const char *verdict, *node, *peer;
    } cases[] = {{{.kind = OMM_COORD_EVENT_REQUEST,
                   .node = OMM_COORD_NOBODY,
                   .reason = OMM_ERR_REFUSED_FORMAT,
                   .sentence = "s0",
                   .peer = "203.0.113.9"},
                  "REFUSED_FORMAT",
                  "null",
                  "203.0.113.9"},
                 {{.kind = OMM_COORD_EVENT_SUBMISSION, .node = 1, .sentence = "s1"},
                  "accepted",
                  "\xc3\xa9va",
                  "null"}};
    fixture f;
    json_t *root = NULL;
    setup(&f);
    for (int i = 1; i >= 0; i--) watch_event(f.watch, &cases[i].event); /* the newest is first */
    see(&f);
    f.seen.history = past;
    f.facts.history_count = 3;
    CHECK_OK(watch_status_text(&f.text, &f.seen));
    CHECK_OK(omm_json_parse(&root, omm_buf_view(&f.text), "status.json"));
    for (size_t i = 0; i < 3; i++)
        CHECK_EQ(strcmp(string_of(json_array_get(json_object_get(root, "history"), i), "verdict"),
                        ends[i]),
                 0);
    CHECK(json_is_null(json_object_get(root, "loss")));
    for (size_t i = 0; i < 2; i++) {
        const json_t *is = json_array_get(json_object_get(root, "verdicts"), i);
        CHECK_EQ(strcmp(string_of(is, "verdict"), cases[i].verdict), 0);
        CHECK_EQ(strcmp(string_of(is, "node"), cases[i].node), 0);
        CHECK_EQ(strcmp(string_of(is, "peer"), cases[i].peer), 0);
        CHECK_EQ(strcmp(string_of(is, "sentence"), cases[i].event.sentence), 0);
        CHECK_EQ(strcmp(string_of(is, "time"), "2023-11-14T22:13:20.123Z"), 0);
    }
    json_decref(root);
    teardown(&f);
}

/* Time in heavy work adds up over ticks, and the beat goes on meanwhile. */
static void test_ticks(void) {
    fixture f;
    setup(&f);
    for (unsigned i = 0; i < 2; i++) {
        watch_beat(f.watch, true);
        s_fake.now_ms += 700;
        watch_beat(f.watch, true);
        s_fake.now_ms += 300;
        watch_beat(f.watch, false);
        s_fake.now_ms += 5000;
    }
    see(&f);
    CHECK(f.facts.ticks == 2);
    CHECK(f.facts.tick_ms == 2000);
    CHECK(f.facts.now_ms - f.facts.beat_ms == 5000);
    teardown(&f);
}

int main(void) {
    test_health();
    test_deadline();
    test_connections();
    test_void_rounds();
    test_metrics();
    test_gauges();
    test_times();
    test_doing();
    test_brief();
    test_brief_some();
    test_declined();
    test_declined_list();
    test_status();
    test_status_verdicts();
    test_ticks();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
