/* Coordinator and nodes together: whatever the network does and whoever restarts, the bundle is
 * the same; and what a round that goes wrong leaves behind. */
#include "federation.h"

#include "omm/bytes.h"
#include "omm/evidence.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <string.h>

/* A coordinator that begins again after the end waits for nobody who has heard of it; but does for those
 * whose answer may not have left. */
static void told_over_restarts(void) {
    fed_options options = fed_options_default();
    options.on_disk = true;
    for (int kept = 0; kept < 2; kept++) {
        fed f;
        fed_open(&f, &options);
        CHECK_OK(omm_coord_keep_told(f.coord)); /* nobody yet: nothing to do */
        fed_run(&f);
        if (kept) CHECK_OK(omm_coord_keep_told(f.coord));
        CHECK(omm_coord_all_told(f.coord));
        fed_restart_coordinator(&f);
        CHECK(omm_coord_is_done(f.coord));
        CHECK_EQ(omm_coord_all_told(f.coord), kept);
        fed_close(&f);
    }
}

static omm_digest s_reference;
static uint64_t s_messages;

static void same_as_reference(const fed_options *options) {
    omm_digest digest = fed_digest_of_run(options, NULL, NULL);
    CHECK(omm_digest_equal(&digest, &s_reference));
}

/* ---- the happy path ---- */

static void happy_path(void) {
    fed_options options = fed_options_default();
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    CHECK(omm_coord_all_told(f.coord));
    static const char *const files[] = {
        "run.json",          "scenario.yaml",     "policy.yaml",
        "rounds.jsonl",      "ledger.jsonl",      "close.env",
        "final.gguf",        "eval/before.jsonl", "eval/after.jsonl",
        "eval/rounds.jsonl", "offers/r000.env",   "offers/r001.env",
        "adapters/r000.bin", "adapters/r002.bin", "adapters/master-r002.f32"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (!fed_bundle_has(&f, files[i])) fprintf(stderr, "missing %s\n", files[i]);
        CHECK(fed_bundle_has(&f, files[i]));
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(fed_bundle_has(&f, omm_bundle_path_submission(1, &f.run_nodes[i].id).text));
        CHECK(fed_bundle_has(&f, omm_bundle_path_receipt(1, &f.run_nodes[i].id).text));
        CHECK_EQ(omm_node_get_status(f.nodes[i]).rounds_accepted, 2);
    }
    CHECK_EQ(f.evaluations, 1 + 2 + 1); /* initial, two candidates, after */
    s_reference = fed_bundle_digest(&f);
    s_messages = f.messages;
    fed_seal_and_verify(&f);
    fed_close(&f);
    same_as_reference(&options);
}

/* ---- the network ---- */

static void each_message_has_a_fault_once(void) {
    for (int fault = FED_LOSE_REQUEST; fault <= FED_TWICE; fault++)
        for (uint64_t i = 0; i < s_messages; i++) {
            fed_one_fault at = {i, (fed_fault)fault};
            fed_options options = fed_options_default();
            options.fault = fed_fault_once;
            options.ud = &at;
            same_as_reference(&options);
        }
}

/* What a node cannot check by digest or signature may cost it time, and nothing else. */
static void damaged_answers_cost_only_time(void) {
    fed_options options = fed_options_default();
    options.deadline_ms = 100000000;
    options.join_ms = 100000000;
    omm_digest expected = fed_digest_of_run(&options, NULL, NULL);
    for (uint64_t i = 0; i < s_messages; i++) {
        fed_one_fault at = {i, FED_FLIP};
        options.fault = fed_fault_once;
        options.ud = &at;
        omm_digest digest = fed_digest_of_run(&options, NULL, NULL);
        CHECK(omm_digest_equal(&digest, &expected));
    }
}

static void every_first_attempt_has_a_fault(void) {
    for (int fault = FED_LOSE_REQUEST; fault <= FED_TWICE; fault++) {
        fed_fault f = (fed_fault)fault;
        fed_options options = fed_options_default();
        options.fault = fed_fault_every_other;
        options.ud = &f;
        same_as_reference(&options);
    }
}

static void order_of_nodes_does_not_matter(void) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fed_options options = fed_options_default();
        options.order_seed = seed;
        for (uint32_t i = 0; i < options.nodes; i++)
            options.train_ms[i] = 1 + (seed * 7919 + (uint64_t)i * 104729) % 3000;
        same_as_reference(&options);
    }
}

/* ---- restarts ---- */

static void restarts_do_not_matter(void) {
    for (int which = 0; which < 4; which++) {
        fed_options options = fed_options_default();
        options.on_disk = true;
        options.restart_coordinator = which & 1;
        options.restart_nodes = which & 2;
        same_as_reference(&options);
    }
}

/* ---- memory ---- */

static void running_out_of_memory_once_does_not_matter(void) {
    fed_options options = fed_options_default();
    options.rounds = 1;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    omm_digest expected = fed_bundle_digest(&f);
    uint64_t calls[4];
    memcpy(calls, f.calls, sizeof calls);
    fed_close(&f);
    uint32_t failures = 0;
    for (int kind = FED_ALLOC_STEP; kind <= FED_ALLOC_NODE; kind++)
        for (uint64_t call = 0; call < calls[kind]; call++) {
            options.alloc_kind = (fed_alloc)kind;
            options.alloc_call = call;
            options.alloc_nth = 1 + (uint32_t)(call * 7 % 11);
            fed_open(&f, &options);
            fed_run(&f);
            failures += f.out_of_memory;
            omm_digest digest = fed_bundle_digest(&f);
            if (!omm_digest_equal(&digest, &expected))
                fprintf(stderr, "kind %d, call %u, allocation %u\n", kind, (unsigned)call,
                        options.alloc_nth);
            CHECK(omm_digest_equal(&digest, &expected));
            fed_close(&f);
        }
    CHECK(failures > 20);
}

/* ---- many chunks ---- */

static void large_payloads_travel_in_chunks(void) {
    fed_options options = fed_options_default();
    options.rounds = 1;
    options.nodes = 2;
    options.values_cols = 140000; /* 560,010 values: three chunks up, four and more down */
    uint64_t messages = 0;
    omm_digest once = fed_digest_of_run(&options, &messages, NULL);
    CHECK(messages > (uint64_t)2 * (1 + 4 + 1 + 2));
    fed_fault lose = FED_LOSE_REPLY;
    options.fault = fed_fault_every_other;
    options.ud = &lose;
    omm_digest again = fed_digest_of_run(&options, NULL, NULL);
    CHECK(omm_digest_equal(&once, &again));
    /* Restarted after every other message, a download goes on where it was. */
    options.fault = NULL;
    options.on_disk = true;
    options.restart_nodes = true;
    uint64_t restarted = 0;
    again = fed_digest_of_run(&options, &restarted, NULL);
    CHECK(omm_digest_equal(&once, &again));
    CHECK(restarted <=
          messages + (uint64_t)2 * (4 + 3)); /* a poll for each restart, no chunk twice but one */
}

/* ---- rounds that go wrong ---- */

static omm_round_record *read_rounds(const fed *f, size_t *count, omm_arena *arena, omm_buf *text) {
    omm_buf_init(text, (size_t)1 << 24);
    omm_arena_init(arena, (size_t)1 << 24);
    CHECK_OK(omm_bundle_read(text, f->bundle, "rounds.jsonl"));
    omm_bytes *lines = NULL;
    CHECK_OK(omm_evidence_lines(&lines, count, arena, omm_buf_view(text), 1000));
    omm_round_record *rounds = omm_arena_alloc(arena, *count, sizeof *rounds);
    CHECK(rounds);
    for (size_t i = 0; i < *count; i++)
        CHECK_OK(omm_round_record_parse(&rounds[i], arena, lines[i]));
    return rounds;
}

static void stragglers_are_missing_or_late(void) {
    fed_options options = fed_options_default();
    options.train_ms[2] = options.deadline_ms + 5000; /* comes after every deadline */
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    omm_arena arena;
    omm_buf text;
    size_t count = 0;
    omm_round_record *rounds = read_rounds(&f, &count, &arena, &text);
    CHECK_EQ(count, 2);
    CHECK_EQ(rounds[0].selected_count, 3);
    CHECK_EQ(rounds[0].accepted_count, 2);
    CHECK_EQ(rounds[0].missing_count, 1);
    CHECK(omm_digest_equal(&rounds[0].missing[0], &f.run_nodes[f.of_node[2]].id));
    CHECK(!rounds[0].voided);
    CHECK(rounds[0].published);
    CHECK_EQ(rounds[1].refused_count, 1); /* the late one of round 0 */
    CHECK_EQ(strcmp(rounds[1].refused[0].reason, "REFUSED_LATE"), 0);
    CHECK(rounds[1].refused[0].has_receipt);
    CHECK_EQ(strcmp(omm_node_get_status(f.nodes[2]).last_reason, "REFUSED_LATE"), 0);
    CHECK_EQ(omm_node_get_status(f.nodes[2]).rounds_accepted, 0);
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    fed_close(&f);
}

/* Refused or late, the residual stays what it was: the next submission starts from it (verify checks
 * the chain of residuals). */
static void a_late_node_keeps_its_residual(void) {
    fed_options options = fed_options_default();
    options.rounds = 4;
    options.train_ms[2] = options.deadline_ms + 5000;
    fed f;
    fed_open(&f, &options);
    while (omm_coord_get_status(f.coord).round == 0) CHECK(fed_step(&f));
    f.o.train_ms[2] = 0; /* as fast as the others from its next round on */
    fed_run(&f);
    CHECK_EQ(omm_node_get_status(f.nodes[2]).rounds_refused, 1);
    CHECK(omm_node_get_status(f.nodes[2]).rounds_accepted >= 2);
    fed_seal_and_verify(&f);
    fed_close(&f);
}

static void too_few_make_a_void_round(void) {
    fed_options options = fed_options_default();
    options.accept_min = 3;
    options.train_ms[0] = options.deadline_ms + 1000;
    options.rounds = 1;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    omm_arena arena;
    omm_buf text;
    size_t count = 0;
    omm_round_record *rounds = read_rounds(&f, &count, &arena, &text);
    CHECK_EQ(count, 1);
    CHECK(rounds[0].voided);
    CHECK(!rounds[0].published);
    CHECK(!rounds[0].evaluated);
    CHECK_EQ(rounds[0].accepted_count, 2);
    omm_buf before;
    omm_buf after;
    omm_buf_init(&before, (size_t)1 << 20);
    omm_buf_init(&after, (size_t)1 << 20);
    CHECK_OK(omm_bundle_read(&before, f.bundle, "adapters/master-r000.f32"));
    CHECK_OK(omm_bundle_read(&after, f.bundle, "adapters/master-r001.f32"));
    CHECK(omm_bytes_equal(omm_buf_view(&before), omm_buf_view(&after)));
    omm_buf_fini(&before);
    omm_buf_fini(&after);
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    fed_close(&f);
}

static void a_worse_adapter_is_not_published(void) {
    fed_options options = fed_options_default();
    options.loss_rises = true;
    options.loss_increase_max = -100; /* nothing is good enough */
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    omm_arena arena;
    omm_buf text;
    size_t count = 0;
    omm_round_record *rounds = read_rounds(&f, &count, &arena, &text);
    CHECK(!rounds[0].published);
    CHECK(rounds[0].evaluated);
    CHECK(!rounds[0].voided);
    CHECK(omm_digest_equal(&rounds[0].master, &rounds[1].master));
    CHECK(omm_digest_equal(&rounds[0].broadcast, &rounds[1].broadcast));
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    fed_close(&f);
}

static void a_silent_node_delays_only(void) {
    fed_options options = fed_options_default();
    options.silent[1] = true;
    options.join_ms = 5000;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    omm_arena arena;
    omm_buf text;
    size_t count = 0;
    omm_round_record *rounds = read_rounds(&f, &count, &arena, &text);
    CHECK_EQ(count, 2);
    CHECK_EQ(rounds[0].selected_count, 2);
    CHECK_EQ(rounds[0].accepted_count, 2);
    CHECK(f.now_ms >=
          2 * (options.join_ms + FED_TRAIN_MS)); /* it is counted from each round's beginning */
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    fed_close(&f);
}

static void selection_follows_the_lot(void) {
    fed_options options = fed_options_default();
    options.nodes = 6;
    options.select = 2;
    options.rounds = 3;
    options.extra[5] = true; /* takes nobody's place */
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    omm_arena arena;
    omm_buf text;
    size_t count = 0;
    omm_round_record *rounds = read_rounds(&f, &count, &arena, &text);
    CHECK_EQ(count, 3);
    for (size_t r = 0; r < 3; r++) {
        CHECK_EQ(rounds[r].selected_count, 3);
        bool has_extra = false;
        for (size_t i = 0; i < 3; i++)
            has_extra |= omm_digest_equal(&rounds[r].selected[i], &f.run_nodes[f.of_node[5]].id);
        CHECK(has_extra);
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    fed_close(&f);
}

/* A run whose bundle could never be sealed is not begun.  Three files a round and three a submission. */
static void a_run_has_room_in_its_bundle(void) {
    fed f;
    fed_options with = fed_options_default();
    with.nodes = 6;
    fed_open(&f, &with);
    const uint32_t nodes = (uint32_t)f.run.node_count;
    const struct {
        uint32_t select, rounds;
        double over_select;
        omm_err err;
    } cases[] = {{0, 0, 0, OMM_ERR_CONFIG},
                 {0, 999900 / (3 + 3 * nodes), 0, OMM_OK},
                 {0, 999900 / (3 + 3 * nodes) + 1, 0, OMM_ERR_CONFIG},
                 {nodes, 999900 / (3 + 3 * nodes) + 1, 2, OMM_ERR_CONFIG},
                 {2, 999900 / 9, 0, OMM_OK},
                 {2, 999900 / 9 + 1, 0, OMM_ERR_CONFIG},
                 {2, 999900 / 12, 1.5, OMM_OK},
                 {2, 999900 / 12 + 1, 1.5, OMM_ERR_CONFIG}};
    CHECK(nodes > 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_run_record run = f.run;
        omm_coord *coord = NULL;
        omm_coord_options options = fed_coord_options(&f);
        run.rounds = cases[i].rounds;
        options.run = &run;
        options.state_dir = NULL;
        options.policy.select = cases[i].select;
        options.policy.over_select = cases[i].over_select;
        const omm_err err = omm_coord_open(&coord, &options);
        CHECK_EQ(err == OMM_ERR_CONFIG, cases[i].err == OMM_ERR_CONFIG);
        if (err == OMM_ERR_CONFIG) CHECK(strstr(omm_err_sentence(), "rounds: "));
        omm_coord_close(coord);
    }
    fed_close(&f);
}

/* ---- what a run is begun with ---- */

static omm_err try_to_open(const omm_coord_options *options) {
    omm_coord *coord = NULL;
    const omm_err err = omm_coord_open(&coord, options);
    omm_coord_close(coord);
    return err;
}

/* What does not fit together is refused at the start, by name. */
static void options_that_do_not_fit(void) {
    static const char *const says[] = {"accept_min: 0",
                                       "coordinator's key",
                                       "id is not that of its key",
                                       "not in ascending order",
                                       "rounds: 0",
                                       "fit an offer",
                                       NULL};
    fed f;
    const fed_options with = fed_options_default();
    fed_open(&f, &with);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        omm_run_node nodes[3] = {f.run_nodes[0], f.run_nodes[1], f.run_nodes[2]};
        omm_run_record run = f.run;
        omm_coord_enrolment many = f.enrolment;
        omm_coord_options options = fed_coord_options(&f);
        run.nodes = nodes;
        options.run = &run;
        many.listed = with.nodes;
        many.node_max = OMM_SELECTED_MAX + 1;
        if (i == 0) options.policy.accept_min = 0;
        if (i == 1) options.key = &f.keys[0];
        if (i == 2) nodes[1].id.b[31] ^= 1;
        if (i == 3) nodes[0] = f.run_nodes[1], nodes[1] = f.run_nodes[0];
        if (i == 4) run.rounds = 0;
        if (i == 5) options.enrolment = &many;
        CHECK_ERR(try_to_open(&options), says[i] ? OMM_ERR_CONFIG : OMM_OK);
        CHECK(!says[i] || strstr(omm_err_sentence(), says[i]));
    }
    fed_close(&f);
}

/* A run goes on with what it began with, and with the database that it had. */
static void another_beginning(void) {
    fed f;
    char path[OMM_PATH_MAX];
    fed_options with = fed_options_default();
    with.on_disk = true;
    fed_open(&f, &with);
    fed_run(&f);
    omm_coord_close(f.coord);
    f.coord = NULL;
    const omm_coord_options same = fed_coord_options(&f);
    for (int i = 0; i < 3; i++) {
        omm_coord_options options = same;
        if (i == 0) options.policy_yaml = omm_bytes_str("gates: {}\n");
        if (i == 1) options.run_seed = omm_seed_from_u64(8);
        if (i == 2) options.scenario_yaml = omm_bytes_str("name: another\n");
        CHECK_ERR(try_to_open(&options), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), "began with something else"));
    }
    /* A program of before began it: that is another matter than another base. */
    omm_run_record named = f.run;
    omm_coord_options now = same;
    named.base.fingerprint = omm_hash(omm_bytes_str("fingerprint"));
    named.base.title = "Base";
    now.run = &named;
    CHECK_ERR(try_to_open(&now), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "a program of before, which did not write the base's"));
    named.base.bytes++;
    CHECK_ERR(try_to_open(&now), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "the base model is another file (model)"));
    CHECK_OK(try_to_open(&same));
    CHECK_OK(omm_path_join(path, f.state_dir, "coordinator.sqlite"));
    CHECK_OK(omm_file_remove(path));
    CHECK_ERR(try_to_open(&same), OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "is gone or empty"));
    fed_close(&f);
}

int main(void) {
    happy_path();
    a_run_has_room_in_its_bundle();
    options_that_do_not_fit();
    another_beginning();
    told_over_restarts();
    each_message_has_a_fault_once();
    damaged_answers_cost_only_time();
    every_first_attempt_has_a_fault();
    order_of_nodes_does_not_matter();
    restarts_do_not_matter();
    running_out_of_memory_once_does_not_matter();
    large_payloads_travel_in_chunks();
    stragglers_are_missing_or_late();
    a_late_node_keeps_its_residual();
    too_few_make_a_void_round();
    a_worse_adapter_is_not_published();
    a_silent_node_delays_only();
    selection_follows_the_lot();
    return 0;
}
