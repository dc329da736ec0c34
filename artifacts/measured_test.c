/* measured_test.c - measured/wire.json and measured/repro.json that say what cannot be, sealed by the real key: rows of others,
 * fewer bytes than what is signed, more adapters than there were, repetitions that nobody has asked for. */
#include "omm/envelope.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

static kit s_kit;

static void repro_garbage(const char *dir) {
    kit_write(dir, "measured/repro.json", omm_bytes_str("garbage"));
}

static void wire_of_another(const char *dir) {
    kit_edit(dir, "measured/wire.json", NULL, "\"run_id\":\"",
             "\"run_id\":\"00000000000000000000000000000000\",\"x\":\"");
}

/* The row of node `i` as it is written, and `end`. */
static void wire_row(char out[256], size_t i, const char *end) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &s_kit.ids[i]);
    snprintf(out, 256,
             "{\"down\":3000,\"down_payload\":%zu,\"node\":\"%s\",\"retries\":%zu,\"up\":%zu,"
             "\"up_payload\":162}%s",
             159 - i, hex, i, 2000 + 10 * i, end);
}

/* The last node is another one. */
static void wire_of_stranger(const char *dir) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &s_kit.ids[2]);
    kit_edit(dir, "measured/wire.json", NULL, hex,
             "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe");
}

static void wire_without(const char *dir) {
    char row[256];
    wire_row(row, 0, ",");
    kit_edit(dir, "measured/wire.json", NULL, row, "");
}

static void wire_twice(const char *dir) {
    char row[256], twice[2 * sizeof row];
    wire_row(row, 1, "");
    snprintf(twice, sizeof twice, "%s,%s", row, row);
    kit_edit(dir, "measured/wire.json", NULL, row, twice);
}

/* What one node has not sent another has, so that the sum stays what it was. */
static void wire_less_up(const char *dir) {
    kit_edit(dir, "measured/wire.json", NULL, "\"up\":2000,", "\"up\":300,");
    kit_edit(dir, "measured/wire.json", NULL, "\"up\":2020,", "\"up\":3720,");
}

static void wire_less_down(const char *dir) {
    kit_edit(dir, "measured/wire.json", NULL, "\"down\":3000", "\"down\":4900");
    kit_edit(dir, "measured/wire.json", "\"down\":4900", "\"down\":3000", "\"down\":1100");
}

/* Adapters are what codecs save on: what went besides is said to have been some. */
static void wire_more_payload(const char *dir) {
    char from[256], to[256];
    wire_row(from, 0, "");
    memcpy(to, from, sizeof to);
    char *at = strstr(to, "\"up_payload\":162");
    CHECK(at != NULL);
    memcpy(at, "\"up_payload\":163", strlen("\"up_payload\":163"));
    kit_edit(dir, "measured/wire.json", NULL, from, to);
}

static void wire_more_global(const char *dir) {
    kit_edit(dir, "measured/wire.json", NULL, "\"down_payload\":159", "\"down_payload\":160");
}

/* Neither the first of what simulate alone writes is there. */
static void wire_no_timeline(const char *dir) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, dir, "virtual"));
    CHECK_OK(omm_dir_remove(path));
    wire_more_global(dir);
}

static void repro_fewer_steps(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"steps\":2", "\"steps\":1");
}

static void repro_no_threads(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"threads\":2", "\"threads\":0");
}

static void repro_two_machines(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"isa\":\"scalar\",\"kind\":\"isa\"",
             "\"isa\":\"neon\",\"kind\":\"isa\"");
}

static void repro_fewer(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"kind\":\"threads\"", "\"kind\":\"scalar\"");
}

static void repro_no_isa(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"kind\":\"isa\"", "\"kind\":\"scalar\"");
}

/* What would make it good that none is by another. */
static void repro_no_other(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"other_isa\":true", "\"other_isa\":false");
}

/* Of another run, which has as many nodes. */
static void wire_of_other_run(const char *dir) {
    kit_edit(dir, "measured/wire.json", NULL, "\"run_id\":\"6", "\"run_id\":\"7");
}

static void repro_of_other_run(const char *dir) {
    kit_edit(dir, "measured/repro.json", NULL, "\"run_id\":\"6", "\"run_id\":\"7");
}

static const struct lie {
    void (*change)(const char *dir);
    const char *path, *says;
} s_lies[] = {
    {repro_garbage, "measured/repro.json", "invalid token"},
    {wire_of_another, "measured/wire.json", ""},
    {wire_of_other_run, "measured/wire.json", "run_id is not that of run.json"},
    {repro_of_other_run, "measured/repro.json", "run_id is not that of run.json"},
    {wire_of_stranger, "measured/wire.json", "row 2: node ffffffffffffffff is none of"},
    {wire_of_stranger, "measured/wire.json", "of run.json has no row"},
    {wire_without, "measured/wire.json", "of run.json has no row"},
    {wire_twice, "measured/wire.json", "row 2 is not above the one before it"},
    {wire_less_up, "measured/wire.json", ": up is 300, and its accepted submissions"},
    {wire_less_down, "measured/wire.json", ": down is 1100, and the offers and"},
    {wire_more_payload, "measured/wire.json", ": up_payload is 163 and"},
    {wire_more_global, "measured/wire.json", "down_payload 160, and the rounds"},
    {wire_no_timeline, "measured/wire.json", "down_payload 160, and the rounds"},
    {repro_fewer_steps, "measured/repro.json",
     "1 steps were repeated in plain C, and scenario.yaml gives 2"},
    {repro_no_threads, "measured/repro.json", "threads is 0; accepted: 1 to 256"},
    {repro_two_machines, "measured/repro.json",
     "a run by avx2 was repeated by neon, which no machine has beside it"},
    {repro_fewer, "measured/repro.json",
     "submissions repeated with other threads: 0, and scenario.yaml gives 1"},
    {repro_fewer, "measured/repro.json",
     "submissions repeated in plain C: 2, and scenario.yaml gives 1"},
    {repro_no_isa, "measured/repro.json",
     "submissions repeated by another instruction set: 0, and scenario.yaml gives 1"},
    {repro_no_other, "measured/repro.json", "other_isa is false of a run by avx2"},
};

static void test_lies(void) {
    for (size_t i = 0; i < sizeof s_lies / sizeof *s_lies; i++) {
        char dir[OMM_PATH_MAX];
        omm_verify_report r;
        kit_copy(dir, s_kit.dir);
        s_lies[i].change(dir);
        kit_reseal(dir, &s_kit.bundle, true);
        kit_verify(&r, dir, &s_kit.bundle.public_key);
        kit_said(&r, "verdicts", s_lies[i].path, s_lies[i].says);
        omm_verify_report_fini(&r);
        CHECK_OK(omm_dir_remove(dir));
    }
}

static uint64_t size_of(const char *dir, const char *path) {
    char full[OMM_PATH_MAX];
    uint64_t bytes = 0;
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK_OK(omm_file_size(&bytes, full));
    return bytes;
}

/* Of a node, which is accepted in the first `rounds`: all that it has signed, and signed for. */
static omm_wire_node least_of(const kit *k, size_t node, uint32_t rounds, bool with_payloads) {
    omm_wire_node least = {.node = k->ids[node]};
    for (uint32_t r = 0; r < rounds; r++) {
        omm_buf text;
        omm_arena arena;
        omm_envelope env;
        omm_submission s;
        const omm_bundle_path path = omm_bundle_path_submission(r, &k->ids[node]);
        omm_buf_init(&text, BUF_MAX);
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        kit_read(&text, k->dir, path.text);
        CHECK_OK(omm_envelope_open(&env, omm_buf_view(&text)));
        CHECK_OK(omm_submission_decode(&s, env.payload, &arena));
        least.up_payload += with_payloads ? s.payload.size : 0;
        least.up += text.size;
        least.down_payload += size_of(k->dir, omm_bundle_path_adapter(r).text);
        least.down += size_of(k->dir, omm_bundle_path_offer(r).text);
        omm_arena_fini(&arena);
        omm_buf_fini(&text);
    }
    least.up += least.up_payload;
    least.down += least.down_payload;
    return least;
}

/* Does it verify where a node's row says so much? */
static bool takes_row(const kit *k, size_t node, omm_wire_node row) {
    char dir[OMM_PATH_MAX], from[256], to[256];
    omm_verify_report r;
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &k->ids[node]);
    wire_row(from, node, "");
    snprintf(to, sizeof to,
             "{\"down\":%llu,\"down_payload\":%llu,\"node\":\"%s\",\"retries\":0,\"up\":%llu,"
             "\"up_payload\":%llu}",
             (unsigned long long)row.down, (unsigned long long)row.down_payload, hex,
             (unsigned long long)row.up, (unsigned long long)row.up_payload);
    kit_copy(dir, k->dir);
    kit_edit(dir, "measured/wire.json", NULL, from, to);
    kit_reseal(dir, &k->bundle, true);
    kit_verify(&r, dir, &k->bundle.public_key);
    const bool takes = r.intact;
    CHECK(takes || kit_names(&r, "verdicts", "measured/wire.json"));
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
    return takes;
}

/* To the byte; a payload that was there already is not sent again. */
static void test_least(void) {
    for (int same = 0; same < 2; same++) {
        kit k;
        kit_make(&k, &(kit_options){.same_payloads = same != 0});
        const omm_wire_node least = least_of(&k, 0, KIT_ROUNDS, !same);
        CHECK(takes_row(&k, 0, least));
        for (int what = 0; what < 4; what++) {
            omm_wire_node less = least;
            uint64_t *const numbers[] = {&less.up, &less.down, &less.down_payload,
                                         &less.up_payload};
            if (what == 3 && same) continue; /* it is none */
            (*numbers[what])--;
            CHECK(!takes_row(&k, 0, less));
        }
        kit_remove(&k);
    }
}

/* Of a node that is accepted once and missing or refused else nobody knows how much its adapters were; but the envelopes are
 * none. */
static void test_messages(void) {
    const omm_wire_node least = least_of(&s_kit, 2, 1, true);
    omm_wire_node row = least;
    CHECK(takes_row(&s_kit, 2, row));
    row.up_payload++;
    CHECK(!takes_row(&s_kit, 2, row));
    row.up++;
    CHECK(takes_row(&s_kit, 2, row));
    row.down_payload++;
    CHECK(!takes_row(&s_kit, 2, row));
    row.down++;
    CHECK(takes_row(&s_kit, 2, row));
}

/* Less than what nodes have signed, in a bundle that has of `all` only file `left`: is it intact? */
static bool takes_less(const kit *k, const char *const *all, size_t left) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    char path[OMM_PATH_MAX];
    kit_copy(dir, k->dir);
    kit_write(dir, "measured/times.json", omm_bytes_str("{}"));
    for (size_t i = 0; all[i]; i++)
        if (i != left) kit_delete(dir, all[i]);
    CHECK_OK(omm_path_join(path, dir, "virtual"));
    if (strncmp(all[left] ? all[left] : "", "virtual/", 8) != 0) CHECK_OK(omm_dir_remove(path));
    wire_less_up(dir);
    wire_less_down(dir);
    kit_reseal(dir, &k->bundle, true);
    kit_verify(&r, dir, &k->bundle.public_key);
    const bool takes = r.intact;
    CHECK(takes || kit_names(&r, "verdicts", "measured/wire.json"));
    CHECK(r.wire_bounded == !takes && r.maybe_network == takes);
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_report_text(&text, &r));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK((strstr((const char *)text.data, "as said: that the run went over a network") != NULL) ==
          takes);
    omm_buf_fini(&text);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
    return takes;
}

/* A coordinator that was killed has lost counts, and says that it was simulated where its keys are the scenario's.  It writes none
 * of the files that simulate writes; whoever leaves out some of these, and not all, has told.  The control cannot be left out. */
static void test_lost_counts(void) {
    static const char *const files[] = {"virtual/timeline.jsonl", "measured/repro.json",
                                        "measured/machine.json", "measured/times.json", NULL};
    kit k;
    kit_make(&k, &(kit_options){.no_control = true});
    for (size_t left = 0; files[left]; left++) CHECK(!takes_less(&k, files, left));
    CHECK(takes_less(&k, files, 4));
    kit_remove(&k);
    CHECK(!takes_less(&s_kit, files, 4));
}

/* Nor does it leave out a node's row, as simulate does a hostile one's. */
static void test_no_row(void) {
    static const char *const files[] = {"measured/repro.json", "measured/machine.json", NULL};
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    kit k;
    kit_make(&k, &(kit_options){.no_control = true, .joined = true});
    for (int less = 0; less < 2; less++) {
        omm_verify_report r;
        kit_copy(dir, k.dir);
        for (size_t i = 0; files[i]; i++) kit_delete(dir, files[i]);
        CHECK_OK(omm_path_join(path, dir, "virtual"));
        CHECK_OK(omm_dir_remove(path));
        wire_without(dir);
        if (less) kit_edit(dir, "measured/wire.json", NULL, "\"up\":2010,", "\"up\":310,");
        kit_reseal(dir, &k.bundle, true);
        kit_verify(&r, dir, &k.bundle.public_key);
        CHECK_EQ(r.intact, !less);
        CHECK(r.wire_bounded && !r.maybe_network);
        CHECK(!less || kit_names(&r, "verdicts", "measured/wire.json"));
        omm_verify_report_fini(&r);
        CHECK_OK(omm_dir_remove(dir));
    }
    kit_remove(&k);
}

static uint32_t s_select;

static omm_err read_select(omm_scenario_facts *out, const char **about, omm_bytes text,
                           const omm_run_record *run) {
    OMM_TRY(kit_read_scenario(out, about, text, run));
    out->select = s_select;
    return OMM_OK;
}

static bool takes_selected(const kit *k, const char *dir, uint32_t select) {
    const omm_verify_options options = {
        .trusted = &k->bundle.public_key, .render = kit_render, .read_scenario = read_select};
    omm_verify_report r;
    s_select = select;
    CHECK_OK(omm_bundle_verify(&r, dir, &options));
    const bool takes = r.intact;
    for (unsigned i = 0; !takes && i < KIT_ROUNDS; i++) {
        char said[96];
        (void)snprintf(said, sizeof said,
                       "round %u: 3 clients are selected, and scenario.yaml gives select: %u", i,
                       select);
        kit_said(&r, "verdicts", "rounds.jsonl", said);
    }
    omm_verify_report_fini(&r);
    return takes;
}

/* More clients in a round than the scenario selects: a coordinator may have offered it to more, and simulate does not.  Who has no
 * client takes nobody's place. */
static void test_select(void) {
    static const char *const files[] = {"measured/repro.json", "measured/machine.json",
                                        "virtual/timeline.jsonl"};
    char dir[OMM_PATH_MAX];
    kit k;
    CHECK(takes_selected(&s_kit, s_kit.dir, 0));
    CHECK(takes_selected(&s_kit, s_kit.dir, KIT_NODES));
    CHECK(!takes_selected(&s_kit, s_kit.dir, KIT_NODES - 1));
    kit_make(&k, &(kit_options){.no_control = true});
    kit_copy(dir, k.dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) kit_delete(dir, files[i]);
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, dir, "virtual"));
    CHECK_OK(omm_dir_remove(path));
    kit_reseal(dir, &k.bundle, true);
    CHECK(takes_selected(&k, dir, KIT_NODES - 1));
    CHECK_OK(omm_dir_remove(dir));
    kit_remove(&k);
    kit_make(&k, &(kit_options){.joined = true});
    CHECK(takes_selected(&k, k.dir, KIT_NODES - 1));
    kit_remove(&k);
}

/* A repetition that ran as the run itself did counts for nothing: the gate fails, the bundle is what
 * its signer says.  judge_test has the other ways. */
static void test_repro(void) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    bool said = false;
    kit_copy(dir, s_kit.dir);
    kit_edit(dir, "measured/repro.json", NULL, "\"threads\":2", "\"threads\":1");
    kit_reseal(dir, &s_kit.bundle, true);
    kit_verify(&r, dir, &s_kit.bundle.public_key);
    CHECK(!r.passed && r.judged);
    for (size_t i = 0; i < r.judgement.measured.count; i++)
        if (strstr(r.judgement.measured.items[i].reason, "ran as the run itself did")) said = true;
    if (!said) kit_print(&r);
    CHECK(said);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    kit_make(&s_kit, &(kit_options){0});
    test_lies();
    test_least();
    test_messages();
    test_lost_counts();
    test_no_row();
    test_select();
    test_repro();
    kit_remove(&s_kit);
    return 0;
}
