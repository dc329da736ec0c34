/* Bundles made to hurt whoever verifies them: they must fail, in bounded time and memory, and nothing of
 * theirs may reach a terminal.  And evidence taken away piece by piece: nothing passes by absence. */
#include "internal.h"
#include "omm/mem.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUF_MAX ((size_t)64 << 20)

static kit s_kit;

/* Of processor time: other programs may have the machine. */
static double seconds(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Verify; it must not pass, and its report must be plain text. */
static void must_fail(const char *dir, const char *what) {
    omm_verify_report r;
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_verify(&r, dir, NULL);
    if (r.passed) fprintf(stderr, "passed: %s\n", what);
    CHECK(!r.passed);
    CHECK_OK(omm_verify_report_text(&text, &r));
    for (size_t i = 0; i < text.size; i++) {
        bool plain = text.data[i] == '\n' || (text.data[i] >= 0x20 && text.data[i] < 0x7f);
        if (!plain) fprintf(stderr, "byte %02x: %s\n", text.data[i], what);
        CHECK(plain);
    }
    omm_verify_report_fini(&r);
    omm_buf_fini(&text);
}

static void terminal_escapes(void) {
    static const struct {
        const char *path, *from, *to;
    } cases[] = {
        {"manifest.json", "\"bundle_key\": \"", "\"bundle_key\": \"\\u001b[2J\\u009b2J"},
        {"manifest.json", "\"commit\": \"", "\"commit\": \"\\u001b[2J\\u009b2J"},
        {"manifest.json", "\"path\": \"", "\"path\": \"\\u001b[2J\\u009b2J"},
        {"run.json", "\"name\":\"", "\"\\u001b[2J\\u009b2J\":1,\"name\":\"\\u001b[2J\\u009b2J"},
        {"run.json", "\"seed\":", "\"\\u001b[2J\":\"\\u009b2J\",\"seed\":"},
        {"rounds.jsonl", "\"reason\":\"", "\"reason\":\"\\u001b[2J\\u009b2J"},
        {"eval/after.jsonl", "\"client\":\"", "\"client\":\"\\u001b[2J\\u009b2J"},
        {"measured/repro.json", "\"isa\":\"", "\"isa\":\"\\u001b[2J\\u009b2J"},
        {"measured/wire.json", "\"commit\":\"", "\"commit\":\"\\u001b[2J\\u009b2J"},
        {"policy.yaml", "gates:", "\"\\u001b[2J\\u009b2J\": 1\ngates:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int reseal = 0; reseal < 2; reseal++) {
            char dir[OMM_PATH_MAX];
            omm_buf text;
            omm_buf_init(&text, BUF_MAX);
            kit_copy(dir, s_kit.dir);
            kit_read(&text, dir, cases[i].path);
            CHECK_OK(omm_buf_append(&text, "", 1));
            if (strstr((char *)text.data, cases[i].from)) {
                kit_edit(dir, cases[i].path, NULL, cases[i].from, cases[i].to);
                if (reseal && strncmp(cases[i].path, "manifest", 8) != 0 &&
                    strcmp(cases[i].path, "run.json") != 0)
                    kit_reseal(dir, &s_kit.bundle, false);
                must_fail(dir, cases[i].path);
            }
            omm_buf_fini(&text);
            CHECK_OK(omm_dir_remove(dir));
        }
}

/* A ledger and a list of nodes that would be compared pair by pair. */
static void many_by_many(void) {
    char dir[OMM_PATH_MAX];
    char run_id[OMM_RUN_ID_SIZE];
    omm_verify_report r;
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    kit_verify(&r, dir, NULL);
    memcpy(run_id, r.run_id, sizeof run_id);
    omm_verify_report_fini(&r);
    enum { NODES = 60000, LINES = 60000 };
    omm_wire_node *nodes = omm_alloc(NODES, sizeof *nodes);
    CHECK(nodes);
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[i].node.b[0] = (uint8_t)(i >> 8);
        nodes[i].node.b[1] = (uint8_t)i;
    }
    omm_wire_record wire = {.commit = KIT_COMMIT, .nodes = nodes, .node_count = NODES};
    memcpy(wire.run_id, run_id, sizeof wire.run_id);
    CHECK_OK(omm_wire_record_write(&text, &wire));
    kit_write(dir, "measured/wire.json", omm_buf_view(&text));
    omm_buf_clear(&text);
    for (uint32_t i = 0; i < LINES; i++) {
        omm_ledger_record row = {.node = nodes[NODES - 1].node, .up = 1, .down = 1, .fp32 = 8};
        CHECK_OK(omm_ledger_record_write(&text, &row));
    }
    kit_write(dir, "ledger.jsonl", omm_buf_view(&text));
    kit_reseal(dir, &s_kit.bundle, false);
    double begin = seconds();
    must_fail(dir, "many by many");
    fprintf(stderr, "%u nodes by %u lines: %.1f s\n", NODES, LINES, seconds() - begin);
    CHECK(seconds() - begin < 30);
    omm_free(nodes);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(dir));
}

/* `gate` reads a bundle that nobody has walked. */
static void pipes_hold_nobody(void) {
    static const char *const paths[] = {"rounds.jsonl", "measured/wire.json", "run.json",
                                        "scenario.yaml", "policy.yaml"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char dir[OMM_PATH_MAX];
        char path[OMM_PATH_MAX];
        omm_judgement j;
        kit_copy(dir, s_kit.dir);
        kit_delete(dir, paths[i]);
        CHECK_OK(omm_path_join(path, dir, paths[i]));
        CHECK(mkfifo(path, 0600) == 0);
        omm_err err = omm_bundle_judge(&j, dir, NULL, NULL, NULL);
        if (err == OMM_OK) {
            bool metric_failed = false; /* the bytes as they passed may be informational */
            for (size_t k = 0; k < j.measured.count; k++)
                metric_failed |= !j.measured.items[k].passed;
            CHECK(i == 1 ? metric_failed : !j.passed);
            omm_judgement_fini(&j);
        }
        must_fail(dir, paths[i]);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* A file may have a size without a disk: to read it would take hours. */
static void holes_hold_nobody(void) {
    static const char *const paths[] = {"rounds.jsonl", "final.gguf", "manifest.json",
                                        "scenario.yaml"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
        kit_copy(dir, s_kit.dir);
        CHECK_OK(omm_path_join(path, dir, paths[i]));
        CHECK_EQ(truncate(path, (off_t)1 << 40), 0);
        must_fail(dir, paths[i]);
        CHECK_OK(omm_dir_remove(dir));
    }
}

static bool has_suffix(const char *path, const char *suffix) {
    const size_t size = strlen(path), end = strlen(suffix);
    return size >= end && strcmp(path + size - end, suffix) == 0;
}

static void make_hole(const char *dir, const char *path, uint64_t bytes) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK_EQ(truncate(full, (off_t)bytes), 0);
}

/* Files of holes, each as large as its kind may be, and a manifest that lists them as of `key`. */
static void fill_with_holes(omm_buf *manifest_text, const char *dir, const omm_key *key) {
    static const char *const suffixes[] = {".bin", ".f32", ".gguf"};
    char bundle_key[OMM_MINISIGN_PUBLIC_SIZE];
    omm_buf text;
    omm_arena arena;
    manifest m;
    size_t holes = 0;
    omm_buf_init(&text, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, dir, "manifest.json");
    CHECK_OK(manifest_parse(&m, &arena, omm_buf_view(&text)));
    for (size_t i = 0; i < m.file_count; i++)
        for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
            if (!has_suffix(m.files[i].path, suffixes[k])) continue;
            (void)omm_bundle_classify(&m.files[i].bytes, m.files[i].path);
            make_hole(dir, m.files[i].path, m.files[i].bytes);
            holes++;
        }
    CHECK(holes > 10);
    omm_minisign_public(bundle_key, &key->public_key);
    m.bundle_key = bundle_key;
    CHECK_OK(manifest_write(manifest_text, &m));
    kit_write(dir, "manifest.json", omm_buf_view(manifest_text));
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
}

/* It fails in `check`, and nothing behind the signature is done, for the reason `says`. */
static void fails_at_once(const char *dir, const omm_public_key *trusted, const char *check,
                          const char *path, const char *says) {
    omm_verify_report r;
    kit_verify(&r, dir, trusted);
    CHECK(!r.intact && !r.judged);
    CHECK(kit_names(&r, check, path));
    CHECK(r.not_done && strcmp(r.not_done, says) == 0);
    const bool is_more = strcmp(check, "files") == 0;
    for (size_t i = 2; i < r.check_count; i++) {
        const bool is_done = is_more && strcmp(r.checks[i].name, "digests") == 0;
        CHECK(r.checks[i].done == is_done && r.checks[i].passed == is_done);
        CHECK(is_done || (!r.checks[i].items && !r.checks[i].failures));
    }
    for (size_t i = 0; i < r.failure_count; i++) /* named once */
        CHECK(strcmp(r.failures[i].check, check) == 0);
    if (is_more) CHECK_EQ(r.failure_count, 1);
    omm_verify_report_fini(&r);
}

/* Files of holes are paid for by nobody who has not been told by a key he trusts that they are to be there. */
static void unsigned_costs_nothing(void) {
    const omm_public_key *trusted = &s_kit.bundle.public_key;
    char dir[OMM_PATH_MAX];
    omm_buf text, sig;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&sig, BUF_MAX);
    kit_copy(dir, s_kit.dir);
    fill_with_holes(&text, dir, &s_kit.bundle);
    fails_at_once(dir, NULL, "signature", "manifest.json", "the manifest is not signed");
    omm_buf_clear(&text);
    fill_with_holes(&text, dir, &s_kit.stranger);
    CHECK_OK(omm_minisign_sign(&sig, &s_kit.stranger, omm_buf_view(&text), "a comment"));
    kit_write(dir, "manifest.json.minisig", omm_buf_view(&sig));
    fails_at_once(dir, trusted, "signature", "manifest.json.minisig",
                  "the manifest is not signed by the trusted key");
    CHECK_OK(omm_dir_remove(dir));
    omm_buf_fini(&sig);
    omm_buf_fini(&text);
}

/* Of a bundle that is signed well, in which there is more now. */
static void more_costs_nothing(void) {
    static const char *const paths[] = {"final.gguf", "ledger.jsonl", "measured/more.json"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char dir[OMM_PATH_MAX];
        uint64_t bytes_max = 0;
        kit_copy(dir, s_kit.dir);
        if (i == 2) kit_write(dir, paths[i], omm_bytes_str(""));
        (void)omm_bundle_classify(&bytes_max, paths[i]);
        make_hole(dir, paths[i], bytes_max);
        fails_at_once(dir, NULL, "files", paths[i],
                      "the bundle holds more than its manifest lists");
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* Who is told by a gate that evidence cannot be used is told of which file. */
static void verdicts_name_the_file(void) {
    static const char *const paths[] = {"rounds.jsonl", "ledger.jsonl", "eval/before.jsonl",
                                        "eval/after.jsonl", "eval/control.jsonl"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char dir[OMM_PATH_MAX], path[OMM_PATH_MAX], said[128];
        omm_judgement j;
        uint64_t bytes = 0;
        kit_copy(dir, s_kit.dir);
        CHECK_OK(omm_path_join(path, dir, paths[i]));
        CHECK_OK(omm_file_size(&bytes, path));
        CHECK_EQ(truncate(path, (off_t)bytes - 1), 0);
        CHECK_OK(omm_bundle_judge(&j, dir, NULL, NULL, NULL));
        snprintf(said, sizeof said, "evidence cannot be used: %s: the last line has no newline",
                 paths[i]);
        CHECK(memmem(j.gates_json.data, j.gates_json.size, said, strlen(said)) != NULL);
        omm_judgement_fini(&j);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* As many clients as are counted are judged, one more is refused in words. */
static void most_clients(void) {
    enum { MOST = 4096 };
    static const char *const paths[] = {"eval/before.jsonl", "eval/after.jsonl",
                                        "eval/control.jsonl"};
    for (size_t more = 0; more < 2; more++) {
        char dir[OMM_PATH_MAX];
        omm_judgement j;
        omm_buf rows;
        omm_buf_init(&rows, BUF_MAX);
        kit_copy(dir, s_kit.dir);
        for (size_t i = 0; i <= MOST + more; i++) { /* the last is the first one's again */
            char client[16];
            const unsigned number = i < MOST + more ? (unsigned)i : 0;
            snprintf(client, sizeof client, "c%u", number);
            const omm_eval_record row = {.item = omm_hash(omm_bytes_of(&i, sizeof i)),
                                         .client = client,
                                         .skill = "talk",
                                         .nll = 1.0,
                                         .tokens = 1,
                                         .reply = ""};
            CHECK_OK(omm_eval_record_write(&rows, &row));
        }
        for (size_t i = 0; i < 3; i++) kit_write(dir, paths[i], omm_buf_view(&rows));
        CHECK_OK(omm_bundle_judge(&j, dir, NULL, NULL, NULL));
        const char *json = (const char *)j.gates_json.data;
        CHECK((memmem(json, j.gates_json.size, "more than 4096 clients", 22) != NULL) ==
              (more == 1));
        omm_judgement_fini(&j);
        omm_buf_fini(&rows);
        CHECK_OK(omm_dir_remove(dir));
    }
}

/* Every file empty, and every file gone, sealed again by the real key, judged again or not. */
typedef struct take_job {
    const char *dir;
    uint32_t files;
} take_job;

static bool is_required(const char *path) {
    static const char *const free_to_go[] = {"manifest.json", "junit.xml", "gates.json",
                                             "measured/gates.json"};
    for (size_t i = 0; i < sizeof free_to_go / sizeof *free_to_go; i++)
        if (strncmp(path, free_to_go[i], strlen(free_to_go[i])) == 0) return false;
    /* What no gate reads may be left out: it proves nothing. */
    return strncmp(path, "virtual/", 8) != 0 &&
           (strncmp(path, "measured/", 9) != 0 || strstr(path, "repro"));
}

static omm_err take_away(void *ud, const char *path) {
    take_job *job = ud;
    if (!is_required(path)) return OMM_OK;
    for (int gone = 0; gone < 2; gone++)
        for (int judge = 0; judge < 2; judge++) {
            /* Sealing judges, and needs these itself. */
            if (strcmp(path, "run.json") == 0 || strcmp(path, "scenario.yaml") == 0 ||
                (strcmp(path, "policy.yaml") == 0 && judge))
                continue;
            char dir[OMM_PATH_MAX];
            kit_copy(dir, job->dir);
            if (gone)
                kit_delete(dir, path);
            else
                kit_write(dir, path, omm_bytes_str(""));
            kit_reseal(dir, &s_kit.bundle, judge != 0);
            must_fail(dir, path);
            CHECK_OK(omm_dir_remove(dir));
        }
    job->files++;
    return OMM_OK;
}

/* One line out of each file of lines. */
static void line_away(const char *path) {
    omm_buf text;
    omm_buf out;
    omm_arena arena;
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, s_kit.dir, path);
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_buf_view(&text), 1000));
    for (size_t skip = 0; skip < count; skip++) {
        char dir[OMM_PATH_MAX];
        kit_copy(dir, s_kit.dir);
        omm_buf_clear(&out);
        for (size_t i = 0; i < count; i++)
            if (i != skip) CHECK_OK(omm_buf_append(&out, lines[i].data, lines[i].size));
        kit_write(dir, path, omm_buf_view(&out));
        kit_reseal(dir, &s_kit.bundle, true);
        must_fail(dir, path);
        CHECK_OK(omm_dir_remove(dir));
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}

static void evidence_taken_away(void) {
    static const char *const lines[] = {"eval/before.jsonl",  "eval/after.jsonl",
                                        "eval/control.jsonl", "eval/rounds.jsonl",
                                        "ledger.jsonl",       "rounds.jsonl"};
    take_job job = {.dir = s_kit.dir};
    CHECK_OK(omm_dir_walk(s_kit.dir, take_away, &job));
    CHECK(job.files > 20);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) line_away(lines[i]);
}

/* The same names from another run, each file good in itself. */
static void foreign_files(void) {
    static const char *const paths[] = {
        "run.json",        "close.env",         "eval/after.jsonl",    "eval/rounds.jsonl",
        "offers/r000.env", "adapters/r001.bin", "measured/repro.json", "eval/before.jsonl"};
    kit other;
    kit_options options = {.hold_back = true};
    kit_make(&other, &options);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char dir[OMM_PATH_MAX];
        omm_buf mine;
        omm_buf bytes;
        omm_buf_init(&bytes, BUF_MAX);
        omm_buf_init(&mine, BUF_MAX);
        kit_copy(dir, s_kit.dir);
        kit_read(&bytes, other.dir, paths[i]);
        kit_read(&mine, dir, paths[i]);
        if (!omm_bytes_equal(omm_buf_view(&bytes), omm_buf_view(&mine))) {
            fprintf(stderr, "foreign %s\n", paths[i]);
            kit_write(dir, paths[i], omm_buf_view(&bytes));
            kit_reseal(dir, &s_kit.bundle, true);
            must_fail(dir, paths[i]);
        }
        omm_buf_fini(&bytes);
        omm_buf_fini(&mine);
        CHECK_OK(omm_dir_remove(dir));
    }
    kit_remove(&other);
}

/* A run made up from nothing, by who holds the bundle key: only the pin of the coordinator tells. */
static void pinned_coordinator(void) {
    omm_verify_report r;
    omm_pool *pool = NULL;
    omm_verify_options options = {.trusted = &s_kit.bundle.public_key,
                                  .coordinator = &s_kit.coordinator.public_key,
                                  .render = kit_render,
                                  .pool = pool};
    CHECK_OK(omm_bundle_verify(&r, s_kit.dir, &options));
    CHECK(r.passed);
    CHECK(r.coordinator_pinned);
    omm_verify_report_fini(&r);
    options.coordinator = &s_kit.stranger.public_key;
    CHECK_OK(omm_bundle_verify(&r, s_kit.dir, &options));
    CHECK(!r.passed);
    CHECK(!r.intact);
    CHECK(kit_names(&r, "run", "run.json"));
    omm_verify_report_fini(&r);
}

static void nothing_at_all(void) {
    char dir[OMM_PATH_MAX];
    kit_temp_dir(dir);
    must_fail(dir, "an empty folder");
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    kit_options options = {0};
    kit_make(&s_kit, &options);
    nothing_at_all();
    pinned_coordinator();
    terminal_escapes();
    pipes_hold_nobody();
    verdicts_name_the_file();
    holes_hold_nobody();
    unsigned_costs_nothing();
    more_costs_nothing();
    most_clients();
    foreign_files();
    many_by_many();
    evidence_taken_away();
    kit_remove(&s_kit);
    return 0;
}
