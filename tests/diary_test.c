/* Goal: what happens in a run is in its audit log and in what others see of it, once, with its number; and what the
 * operator says is in the log before it is done.
 * Method: a federation whose events go where a service sends them.
 */
#include "actions.h"
#include "peer.h"

#include "omm/coordinator_enrol.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPERATOR = 1234, ROUNDS = 2, PER_ROUND = 2 };

static peer s_peer;
static watch *s_watch;
static diary *s_diary;
static char s_path[OMM_PATH_MAX];
static char s_said[1024]; /* the last line of the log */
static omm_public_key s_bundle_key;

static void hear(void *ud, omm_log_level level, const char *line) {
    (void)ud;
    (void)level;
    snprintf(s_said, sizeof s_said, "%s", line);
}

static omm_log s_log;

/* What is synced, beside being done. */
static unsigned s_syncs;

omm_err __real_omm_sync(int fd, const char *path);
omm_err __wrap_omm_sync(int fd, const char *path);
omm_err __wrap_omm_sync(int fd, const char *path) {
    s_syncs++;
    return __real_omm_sync(fd, path);
}

static void on_event(void *ud, const omm_coord_event *event) {
    (void)ud;
    if (!s_diary) return;
    watch_event(s_watch, event);
    diary_event(s_diary, event, s_peer.f.coord);
}

static void open_diary(void) {
    s_log = (omm_log){.level = OMM_LOG_INFO, .clock = omm_clock_system(), .sink = hear};
    const diary_options o = {.path = s_path,
                             .run = &s_peer.f.run,
                             .bundle_key = &s_bundle_key,
                             .commit = "c",
                             .build = "b",
                             .clock = omm_clock_fake(&s_peer.f.clock),
                             .watch = s_watch,
                             .log = &s_log};
    const omm_coord_status status = omm_coord_get_status(s_peer.f.coord);
    CHECK_OK(diary_open(&s_diary, &o));
    CHECK_OK(diary_start(s_diary, &status, s_peer.f.coord));
}

static void begin(const fed_options *options) {
    fed_options o = *options;
    o.on_disk = true;
    o.on_event = on_event;
    peer_open(&s_peer, &o);
    fed_path(&s_peer.f, s_path, "audit.jsonl");
    CHECK_OK(watch_open(&s_watch, &(watch_options){.run = &s_peer.f.run,
                                                   .clock = omm_clock_fake(&s_peer.f.clock),
                                                   .commit = "c",
                                                   .build = "b"}));
    open_diary();
}

static void end(void) {
    diary_close(s_diary);
    s_diary = NULL;
    watch_close(s_watch);
    peer_close(&s_peer);
}

static watch_wire no_wire(void *ud, size_t i) {
    (void)ud;
    (void)i;
    return (watch_wire){0};
}

static const watch_facts *facts(void) {
    static watch_facts f;
    const omm_coord_round *history;
    watch_take(s_watch, s_peer.f.coord, true, no_wire, NULL);
    watch_read(&f, NULL, &history, s_watch);
    return &f;
}

/* Entries of this kind, and the member `key` of entry `index` as JSON. */
static size_t entries(const char *event, size_t index, const char *key, const char *want) {
    omm_buf lines;
    size_t count = 0;
    omm_buf_init(&lines, 1 << 20);
    CHECK_OK(omm_audit_log_copy(&lines, s_path, event));
    for (size_t at = 0; at < lines.size; count++) {
        const uint8_t *line = lines.data + at;
        const size_t size =
            (size_t)((const uint8_t *)memchr(line, '\n', lines.size - at) - line) + 1;
        json_t *entry = NULL;
        CHECK_OK(omm_json_parse(&entry, omm_bytes_of(line, size), event));
        if (key && count == index) {
            char *is = json_dumps(json_object_get(entry, key), JSON_ENCODE_ANY | JSON_SORT_KEYS);
            CHECK(is && strcmp(is, want) == 0);
            free(is);
        }
        json_decref(entry);
        at += size;
    }
    omm_buf_fini(&lines);
    return count;
}

static void expect_entry(const char *event, size_t index, const char *key, const char *want) {
    CHECK(entries(event, index, key, want) > index);
}

/* One refusal that settles nothing, in the first of two rounds. */
static void test_rounds(void) {
    fed_options o = peer_options();
    o.rounds = ROUNDS;
    o.quorum = PER_ROUND;
    begin(&o);
    peer_until_open(&s_peer, 0);
    peer_fill(&s_peer, NULL);
    s_peer.s.nonce.b[0] ^= 1;
    peer_seal(&s_peer, OMM_CONTEXT_SUBMISSION, &s_peer.f.keys[PEER]);
    peer_submit(&s_peer);
    CHECK_EQ(peer_reason_of(&s_peer, &(bool){false}), OMM_ERR_REFUSED_ROUND);
    peer_fill(&s_peer, NULL);
    peer_give(&s_peer);
    fed_run(&s_peer.f);
    diary_close(s_diary);
    open_diary(); /* begun again it enrols nobody anew */
    CHECK_EQ(entries("start", 0, NULL, NULL), 2);
    CHECK_EQ(entries("enrolled", 0, NULL, NULL), o.nodes);
    CHECK_EQ(entries("receipt", 0, "verdict", "\"accepted\""), ROUNDS * PER_ROUND);
    expect_entry("round_over", 0, "refusals", "{\"REFUSED_ROUND\": 1}");
    expect_entry("round_over", 0, "accepted", "2");
    CHECK_EQ(entries("round_over", 1, "refusals", "{}"), 2);
    CHECK_EQ(entries("closed", 0, NULL, NULL), 1);
    const watch_facts *f = facts();
    CHECK_EQ(f->submissions[OMM_OK], ROUNDS * PER_ROUND);
    CHECK_EQ(f->submissions[OMM_ERR_REFUSED_ROUND], 1);
    omm_audit_check check;
    CHECK_OK(omm_audit_log_verify(&check, s_path, &f->audit_head));
    CHECK(check.has_known && check.entries == f->audit_entries);
    /* a log that is gone is begun anew, and not in silence; one that is there, or not yet due, is no news */
    CHECK_EQ(s_said[0], 0);
    diary_close(s_diary);
    CHECK_OK(omm_file_remove(s_path));
    open_diary();
    CHECK(strstr(s_said, "audit_log_begun_anew file=") != NULL);
    CHECK(strstr(s_said, s_path) != NULL);
    s_said[0] = 0;
    end();
}

static void until(omm_coord_state state, uint32_t round) {
    const fed *f = &s_peer.f;
    for (int i = 0; omm_coord_get_status(f->coord).state != state ||
                    omm_coord_get_status(f->coord).round != round;
         i++)
        CHECK(i < 10000 && fed_step(&s_peer.f));
}

/* One round is published, two are held back, three void: of each another number. */
static void test_verdicts(void) {
    fed_options o = fed_options_default();
    fed *f = &s_peer.f;
    o.rounds = 6;
    o.accept_min = 2;
    begin(&o);
    until(OMM_COORD_OPEN, 1);
    f->o.loss_nan = true;
    until(OMM_COORD_OPEN, 3);
    f->o.loss_nan = false;
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(omm_coord_quarantine(&f->coord_deadline_ms, f->coord, f->now_ms, i, true));
    fed_run(f);
    expect_entry("round_over", 0, "verdict", "\"published\"");
    for (size_t i = 1; i < 3; i++) expect_entry("round_over", i, "verdict", "\"held back\"");
    for (size_t i = 3; i < 6; i++) expect_entry("round_over", i, "verdict", "\"void\"");
    uint32_t count = 0;
    const omm_coord_round *past = omm_coord_history(&count, f->coord);
    CHECK_EQ(count, 6);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(isnan(past[i].loss), i >= 3); /* of a void one none */
    const watch_facts *seen = facts();
    CHECK_EQ(seen->rounds_published, 1);
    CHECK_EQ(seen->rounds_held, 2);
    CHECK_EQ(seen->rounds_void, 3);
    end();
}

/* ---- the operator ---- */

/* Of the last word: whose connection is to be closed, and what the operator reads. */
static int32_t s_revoked;
static char s_answer[256];

static omm_err do_it(omm_coord_ctl_action action, const char *argument) {
    fed *f = &s_peer.f;
    actions a = {.coord = f->coord,
                 .run = &f->run,
                 .diary = s_diary,
                 .now_ms = f->now_ms,
                 .deadline_ms = &f->coord_deadline_ms};
    omm_buf answer;
    omm_buf_init(&answer, 1 << 16);
    const omm_err err = actions_do(
        &a, &answer, &(ctl_request){.action = action, .argument = argument, .uid = OPERATOR});
    (void)snprintf(s_answer, sizeof s_answer, "%.*s", (int)answer.size,
                   answer.data ? (const char *)answer.data : "");
    omm_buf_fini(&answer);
    s_revoked = a.revoked;
    return err;
}

static bool is_quarantined(size_t node) {
    return omm_coord_get_node(s_peer.f.coord, node).quarantined;
}

/* By name, or by eight digits at least, and one node alone. */
static void test_names(void) {
    const fed_options o = fed_options_default();
    char id[OMM_DIGEST_HEX_SIZE];
    begin(&o);
    omm_run_node *nodes = s_peer.f.run_nodes;
    omm_digest_hex(id, &nodes[1].id);
    id[8] = '\0';
    CHECK_OK(do_it(OMM_COORD_CTL_quarantine, id));
    CHECK(is_quarantined(1) && !is_quarantined(0) && !is_quarantined(2));
    id[7] = '\0';
    CHECK_ERR(do_it(OMM_COORD_CTL_release, id), OMM_ERR_NOT_FOUND);
    CHECK_OK(do_it(OMM_COORD_CTL_release, nodes[1].name));
    CHECK(!is_quarantined(1));
    const omm_run_node was = nodes[2];
    nodes[2].name = nodes[1].name;
    CHECK_ERR(do_it(OMM_COORD_CTL_quarantine, nodes[1].name), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "several nodes are called so"));
    CHECK(!is_quarantined(1) && !is_quarantined(2));
    nodes[2] = was;
    expect_entry("ctl", 0, "action", "\"quarantine\"");
    expect_entry("ctl", 0, "uid", "1234");
    CHECK_EQ(entries("ctl", 1, "action", "\"release\""),
             2); /* what nobody is meant by is no word */
    end();
}

/* What is no word of an operator's changes nothing, and is none of the log's. */
static void test_no_words(void) {
    static const struct {
        omm_coord_ctl_action action;
        const char *argument;
    } words[] = {{OMM_COORD_CTL_rollback, "\twhy"},
                 {OMM_COORD_CTL_rollback, "0"},
                 {OMM_COORD_CTL_rollback, "0\t"},
                 {OMM_COORD_CTL_rollback, "start\t"},
                 {OMM_COORD_CTL_rollback, "star\twhy"},
                 {OMM_COORD_CTL_rollback, "begin\twhy"},
                 {OMM_COORD_CTL_rollback, "-1\twhy"},
                 {OMM_COORD_CTL_rollback, "0x\twhy"},
                 {OMM_COORD_CTL_rollback, "000000000\twhy"},
                 {OMM_COORD_CTL_invite, ""},
                 {OMM_COORD_CTL_invite, "1"},
                 {OMM_COORD_CTL_invite, "x 1"},
                 {OMM_COORD_CTL_invite, "-1 1"},
                 {OMM_COORD_CTL_invite, "1x 1"},
                 {OMM_COORD_CTL_invite, "1 1x"},
                 {OMM_COORD_CTL_invite, "4294967297 1"},
                 {OMM_COORD_CTL_invite, "99999999999999999999 1"},
                 {OMM_COORD_CTL_revoke, "%s"},
                 {OMM_COORD_CTL_status, ""}};
    fed_options o = fed_options_default();
    o.listed = 2;
    o.node_max = 8;
    begin(&o);
    until(OMM_COORD_JOINING, 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const bool is_named = strcmp(words[i].argument, "%s") == 0;
        CHECK_ERR(do_it(words[i].action, is_named ? s_peer.f.run_nodes[0].name : words[i].argument),
                  OMM_ERR_USAGE);
        CHECK_EQ(s_revoked, OMM_COORD_NOBODY);
    }
    CHECK_ERR(do_it(OMM_COORD_CTL_revoke, "nobody\twhy"), OMM_ERR_NOT_FOUND);
    CHECK_EQ(entries("ctl", 0, NULL, NULL), 0);
    CHECK(!omm_coord_get_node(s_peer.f.coord, 0).revoked);
    end();
}

static void do_and_read(omm_coord_ctl_action action, const char *argument, const char *want) {
    CHECK_OK(do_it(action, argument));
    if (strcmp(s_answer, want) != 0) fprintf(stderr, "%s", s_answer);
    CHECK_EQ(strcmp(s_answer, want), 0);
}

/* What the operator reads is what was done; a word that did nothing is in the log, and not said to be done. */
static void test_words(void) {
    fed_options o = fed_options_default();
    char argument[128], want[256];
    o.listed = 2;
    o.node_max = 8;
    begin(&o);
    const char *name = s_peer.f.run_nodes[1].name;
    until(OMM_COORD_JOINING, 1);
    do_and_read(OMM_COORD_CTL_rollback, "0\twhy",
                "round 1 begins from the adapter of round 0 (rounds count from 0)\n");
    do_and_read(OMM_COORD_CTL_rollback, "start\twhy",
                "round 1 begins from the run's first adapter\n");
    do_and_read(OMM_COORD_CTL_pause, "", "no new round is opened\n");
    do_and_read(OMM_COORD_CTL_resume, "", "rounds are opened again\n");
    (void)snprintf(want, sizeof want, "%s is in quarantine\n", name);
    do_and_read(OMM_COORD_CTL_quarantine, name, want);
    (void)snprintf(want, sizeof want, "%s may take part again\n", name);
    do_and_read(OMM_COORD_CTL_release, name, want);
    CHECK_ERR(do_it(OMM_COORD_CTL_release, name), OMM_ERR_STATE);
    CHECK_ERR(do_it(OMM_COORD_CTL_uninvite, "0123456789abcdef"), OMM_ERR_NOT_FOUND);
    CHECK_EQ(strcmp(s_answer, ""), 0);
    CHECK_OK(do_it(OMM_COORD_CTL_invite, "1 0"));
    CHECK_OK(do_it(OMM_COORD_CTL_invitations, ""));
    (void)snprintf(argument, sizeof argument, "%.16s", s_answer);
    (void)snprintf(want, sizeof want, "%s lets nobody in any more\n", argument);
    do_and_read(OMM_COORD_CTL_uninvite, argument, want);
    CHECK_EQ(s_revoked, OMM_COORD_NOBODY);
    (void)snprintf(argument, sizeof argument, "%s\tleft us", name);
    (void)snprintf(want, sizeof want, "%s is revoked; what was accepted of it stays\n", name);
    do_and_read(OMM_COORD_CTL_revoke, argument, want);
    CHECK_EQ(s_revoked, 1);
    CHECK(omm_coord_get_node(s_peer.f.coord, 1).revoked);
    CHECK_EQ(entries("ctl", 0, "argument", "\"0\\twhy\""), 11);
    end();
}

/* What cannot be written there is not done. */
static void test_written_first(void) {
    static const struct {
        omm_coord_ctl_action action;
        const char *argument;
    } words[] = {{OMM_COORD_CTL_pause, ""},       {OMM_COORD_CTL_drain, ""},
                 {OMM_COORD_CTL_quarantine, ""},  {OMM_COORD_CTL_rollback, "start\twhy"},
                 {OMM_COORD_CTL_invite, "1 0 x"}, {OMM_COORD_CTL_uninvite, "0123456789abcdef"},
                 {OMM_COORD_CTL_revoke, "\twhy"}};
    fed_options o = fed_options_default();
    o.listed = 2;
    o.node_max = 8;
    begin(&o);
    const char *name = s_peer.f.run_nodes[0].name;
    fed_forbid_writing(true);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char argument[128];
        const bool named = !words[i].argument[0] && i > 1;
        (void)snprintf(argument, sizeof argument, "%s%s",
                       named || words[i].argument[0] == '\t' ? name : "", words[i].argument);
        CHECK_ERR(do_it(words[i].action, argument), OMM_ERR_IO);
        CHECK(strstr(omm_err_sentence(), "audit.jsonl"));
    }
    fed_forbid_writing(false);
    const omm_coord_status is = omm_coord_get_status(s_peer.f.coord);
    CHECK(!is.paused && !is.draining && !is_quarantined(0));
    CHECK_EQ(entries("ctl", 0, NULL, NULL), 0);
    CHECK_OK(do_it(OMM_COORD_CTL_pause, ""));
    CHECK(omm_coord_get_status(s_peer.f.coord).paused);
    end();
}

/* ---- what is said beside the rounds ---- */

/* A file that is not as it was, and is again; words that came to nothing; the end. */
static void test_said(void) {
    const fed_options o = fed_options_default();
    begin(&o);
    diary_evidence(s_diary, 3, "offers/r003.env", "gone");
    diary_evidence(s_diary, 3, "offers/r003.env", NULL);
    diary_ctl_failed(s_diary, "release", OPERATOR, "no such node");
    diary_ctl_failed(s_diary, "release", OPERATOR, "\xff");
    CHECK_OK(diary_stop(s_diary, "asked to"));
    CHECK_EQ(entries("evidence_damaged", 0, "why", "\"gone\""), 1);
    expect_entry("evidence_damaged", 0, "file", "\"offers/r003.env\"");
    expect_entry("evidence_damaged", 0, "round", "3");
    CHECK_EQ(entries("evidence_mended", 0, "file", "\"offers/r003.env\""), 1);
    CHECK_EQ(entries("ctl_failed", 0, "why", "\"no such node\""), 2);
    expect_entry("ctl_failed", 0, "action", "\"release\"");
    expect_entry("ctl_failed", 0, "uid", "1234");
    expect_entry("ctl_failed", 1, "why", "\"not UTF-8\"");
    CHECK_EQ(entries("stop", 0, "why", "\"asked to\""), 1);
    CHECK(!facts()->has_audit_trouble);
    fed_forbid_writing(true); /* what cannot be said there is seen by others */
    diary_evidence(s_diary, 3, "offers/r003.env", "gone");
    fed_forbid_writing(false);
    CHECK(facts()->has_audit_trouble && strstr(facts()->audit_trouble, "audit.jsonl"));
    diary_ctl_failed(s_diary, "release", OPERATOR, "no such node");
    CHECK(!facts()->has_audit_trouble);
    end();
}

/* Who comes by an invitation is there with what let it in. */
static void test_joined(void) {
    fed_options o = fed_options_default();
    o.listed = 2;
    o.rounds = 1;
    begin(&o);
    fed_run(&s_peer.f);
    const uint32_t came = o.nodes - o.listed;
    CHECK(came > 0 && entries("joined", 0, NULL, NULL) == came);
    CHECK_EQ(entries("enrolled", 0, NULL, NULL), o.listed);
    for (size_t i = 0; i < came; i++) {
        const omm_run_node *node = &s_peer.f.run.nodes[o.listed + i];
        char name[80], id[OMM_DIGEST_HEX_SIZE], hex[OMM_DIGEST_HEX_SIZE + 2];
        (void)snprintf(name, sizeof name, "\"%s\"", node->name);
        omm_digest_hex(id, &node->id);
        (void)snprintf(hex, sizeof hex, "\"%s\"", id);
        expect_entry("joined", i, "node", name);
        expect_entry("joined", i, "id", hex);
    }
    end();
}

/* ---- a kill between a beginning and its entries ---- */

/* The log as it was, cut behind so many entries by a kill, or by a power cut before the others were synced. */
static void put_cut(const omm_buf *log, size_t entries) {
    size_t size = 0;
    for (; entries > 0 && size < log->size; size++) entries -= log->data[size] == '\n';
    CHECK_EQ(entries, 0);
    CHECK_OK(omm_file_write(s_path, omm_bytes_of(log->data, size), 0600));
}

static void check_members(uint32_t listed, uint32_t came) {
    char text[128], hex[OMM_DIGEST_HEX_SIZE];
    omm_audit_check check;
    CHECK_EQ(entries("enrolled", 0, NULL, NULL), listed);
    CHECK_EQ(entries("joined", 0, NULL, NULL), came);
    for (uint32_t i = 0; i < listed + came; i++) {
        const bool is_listed = i < listed;
        omm_digest_hex(hex, &s_peer.f.run.nodes[i].id);
        (void)snprintf(text, sizeof text, "\"%s\"", hex);
        expect_entry(is_listed ? "enrolled" : "joined", is_listed ? i : i - listed, "id", text);
    }
    CHECK_OK(omm_audit_log_verify(&check, s_path, NULL));
}

/* What the kill left out is written by the next start, once; what is there stays as it is. */
static void test_killed(void) {
    fed_options o = fed_options_default();
    o.listed = 2;
    o.rounds = 1;
    begin(&o); /* start and the list are there; who joins later is not, at first */
    fed_run(&s_peer.f);
    diary_close(s_diary);
    omm_buf log;
    omm_buf_init(&log, 1 << 20);
    CHECK_OK(omm_file_read(&log, s_path));
    const uint32_t came = o.nodes - o.listed;
    char by[64];
    CHECK(came > 0);
    (void)snprintf(by, sizeof by, "\"%s\"", omm_coord_joined_by(s_peer.f.coord, o.listed));
    CHECK(strncmp(by, "\"invitation ", 12) == 0);
    CHECK(!omm_coord_joined_by(s_peer.f.coord, o.listed - 1));
    /* 0: the file is there, and nothing in it; then start, and each of the list. */
    for (size_t kept = 0; kept <= 1 + o.listed; kept++) {
        put_cut(&log, kept);
        s_said[0] = 0;
        s_syncs = 0;
        open_diary();
        const unsigned syncs = s_syncs;
        CHECK_EQ(strstr(s_said, "audit_log_begun_anew") != NULL, kept == 0);
        CHECK_EQ(entries("start", 0, NULL, NULL), kept > 0 ? 2 : 1);
        check_members(o.listed, came);
        expect_entry("joined", 0, "by", by);
        diary_close(s_diary);
        s_syncs = 0;
        open_diary();                 /* nothing is left out now */
        CHECK_EQ(syncs, s_syncs + 1); /* the last of what was, with those before it */
        check_members(o.listed, came);
        diary_close(s_diary);
    }
    s_diary = NULL;
    omm_buf_fini(&log);
    end();
}

/* A log that is not one is not gone on with, and whoever looks after it reads what to do. */
static void test_no_log(void) {
    const fed_options o = fed_options_default();
    diary *none = NULL;
    char path[OMM_PATH_MAX];
    begin(&o);
    diary_options options = {.path = fed_path(&s_peer.f, path, "other.jsonl"),
                             .run = &s_peer.f.run,
                             .clock = omm_clock_fake(&s_peer.f.clock),
                             .watch = s_watch,
                             .log = &s_log};
    CHECK_OK(omm_file_write(path, omm_bytes_str("{}\n"), 0600));
    CHECK_ERR(diary_open(&none, &options), OMM_ERR_FORMAT);
    CHECK(!none && strstr(omm_err_sentence(), "move it away to begin a new one"));
    options.path = fed_path(&s_peer.f, path, "nowhere/audit.jsonl");
    CHECK_ERR(diary_open(&none, &options), OMM_ERR_IO);
    CHECK(!none);
    end();
}

/* Another key for the seal than the last start had: the run goes on, and both are told. */
static void test_other_key(void) {
    const fed_options o = fed_options_default();
    char was[OMM_MINISIGN_PUBLIC_SIZE], is[OMM_MINISIGN_PUBLIC_SIZE], text[128];
    begin(&o);
    omm_minisign_public(was, &s_bundle_key);
    for (int i = 0; i < 3; i++) { /* the same, another, the same as that */
        diary_close(s_diary);
        s_said[0] = 0;
        if (i == 1) s_bundle_key.b[3] ^= 1;
        open_diary();
        CHECK_EQ(strstr(s_said, "bundle_key_changed") != NULL, i == 1);
        if (i == 1) CHECK(strstr(s_said, was) != NULL);
    }
    omm_minisign_public(is, &s_bundle_key);
    for (uint32_t i = 0; i < 4; i++) {
        (void)snprintf(text, sizeof text, "\"%s\"", i < 2 ? was : is);
        expect_entry("start", i, "bundle_key", text);
    }
    end();
}

int main(void) {
    test_other_key();
    test_rounds();
    test_verdicts();
    test_said();
    test_joined();
    test_killed();
    test_no_log();
    test_names();
    test_no_words();
    test_words();
    test_written_first();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
