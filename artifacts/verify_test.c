/* A good bundle passes; with one bit flipped in any file it fails and names the file; and so does
 * a bundle that holds more, less or something else than its manifest says. */
#include "omm/evidence.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUF_MAX (1u << 20)

static void print_report(const omm_verify_report *r) {
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_report_text(&text, r));
    fprintf(stderr, "%.*s\n", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
}

static void test_good(const kit *k) {
    omm_verify_report r;
    kit_verify(&r, k->dir, &k->bundle.public_key);
    if (!r.passed) print_report(&r);
    CHECK(r.passed);
    CHECK(r.intact);
    CHECK(r.pinned);
    CHECK(omm_digest_equal(&r.run_digest, &k->run_digest));
    omm_verify_report_fini(&r);
    kit_verify(&r, k->dir, NULL);
    CHECK(r.passed);
    CHECK(!r.pinned);
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_report_text(&text, &r));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "signer not pinned") != NULL);
    CHECK(strstr((const char *)text.data, "verify: pass") != NULL);
    CHECK(strstr((const char *)text.data, "\n  as said: eval/ by the coordinator (") != NULL);
    fprintf(stderr, "%s", (const char *)text.data);
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_report_json(&text, &r));
    json_t *json = NULL;
    bool passed = false;
    CHECK_OK(omm_json_parse(&json, omm_buf_view(&text), "report"));
    CHECK_OK(omm_json_get_bool(&passed, json, "passed"));
    CHECK(passed);
    const json_t *said = json_object_get(json_object_get(json, "as_said"), "coordinator");
    const char *what = json_string_value(json_array_get(said, 0));
    CHECK(what && strcmp(what, "eval/") == 0);
    json_decref(json);
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_report_text(&text, &(omm_verify_report){0})); /* of what is no bundle */
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "run         unknown\nrun digest  unknown\n"
                                          "signer      unknown (signer not pinned)\n"));
    omm_buf_fini(&text);
    omm_verify_report_fini(&r);
}

/* What gate says of a bundle that is not intact: no verdicts, each check, and XML whatever files are called. */
static void test_refusal(const kit *k) {
    omm_verify_report r;
    omm_buf text;
    json_t *json = NULL, *checks = NULL;
    bool passed = true;
    kit_write(k->dir, "<\xe9 \"&\xef\xbf\xbf\x01>", omm_bytes_str("x"));
    kit_verify(&r, k->dir, NULL);
    CHECK(!r.intact);
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_verify_refusal_json(&text, &r));
    CHECK_OK(omm_json_parse(&json, omm_buf_view(&text), "refusal"));
    CHECK_OK(omm_json_get_bool(&passed, json, "passed"));
    CHECK(!passed);
    CHECK(json_is_true(json_object_get(json, "verified")) &&
          json_is_false(json_object_get(json, "intact")));
    CHECK(json_is_null(json_object_get(json, "gates")));
    CHECK(json_is_null(json_object_get(json, "measured_gates")));
    CHECK(json_is_null(json_object_get(json, "as_said")));
    CHECK_OK(omm_json_get_array(&checks, json, "checks"));
    CHECK_EQ(json_array_size(checks), r.check_count);
    json_decref(json);
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_refusal_junit(&text, &r, "a&<\xff\x01\xc3\xa4\xef\xbf\xbe"));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *xml = (const char *)text.data;
    CHECK(strstr(
              xml,
              "name=\"files\" time=\"0\">\n      <failure message=\"&lt;? &quot;&amp;????&gt;: ") !=
          NULL);
    CHECK(
        strstr(
            xml,
            "    <properties>\n      <property name=\"bundle\" value=\"a&amp;&lt;??\xc3\xa4?\"/>\n "
            "     <property name=\"verified\" value=\"true\"/>\n"
            "      <property name=\"signer\" value=\"") != NULL);
    CHECK(strstr(xml, "name=\"signature\" time=\"0\"/>") != NULL);
    omm_buf_fini(&text);
    omm_verify_report_fini(&r);
    kit_delete(k->dir, "<\xe9 \"&\xef\xbf\xbf\x01>");
}

static void has(const omm_buf *text, const char *part) {
    if (memmem(text->data, text->size, part, strlen(part))) return;
    fprintf(stderr, "%.*s\nhas no %s\n", (int)text->size, (const char *)text->data, part);
    CHECK(false);
}

/* A record that is there and cannot be read is not said to be missing, and takes no other file's place among the failures. */
static void test_unreadable(const kit *k, const char *path, const char *from, const char *says) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_buf text;
    size_t complete = 0;
    bool said = false;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, k->dir);
    kit_read(&text, dir, path);
    uint8_t *at = memmem(text.data, text.size, from, strlen(from));
    CHECK(at != NULL);
    at[1] ^= 1;
    kit_write(dir, path, omm_buf_view(&text));
    kit_verify(&r, dir, NULL);
    for (size_t i = 0; i < r.failure_count; i++) {
        const omm_verify_failure *f = &r.failures[i];
        complete += strcmp(f->check, "complete") == 0;
        CHECK(strstr(f->reason, "the file is missing") == NULL);
        CHECK(strcmp(f->reason, "run_id is not that of run.json") != 0);
        if (strcmp(f->path, path) == 0 && strstr(f->reason, says)) said = true;
    }
    if (!said || complete != 1) print_report(&r);
    CHECK(said && complete == 1 && kit_names(&r, "complete", path));
    omm_verify_report_fini(&r);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(dir));
}

/* Where the first adapter ends early no payload is read: none of them is called one too many. */
static void test_short_adapter(const kit *k) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_buf text;
    size_t complete = 0;
    const omm_bundle_path first = omm_bundle_path_master(0);
    const char *const path = first.text;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, k->dir);
    kit_read(&text, dir, path);
    text.size -= 4;
    kit_write(dir, path, omm_buf_view(&text));
    kit_verify(&r, dir, NULL);
    for (size_t i = 0; i < r.failure_count; i++) {
        complete += strcmp(r.failures[i].check, "complete") == 0;
        CHECK(strcmp(r.failures[i].reason, "no record names it") != 0);
    }
    CHECK(complete == 1 && kit_names(&r, "complete", path) && kit_names(&r, "payloads", path));
    omm_verify_report_fini(&r);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(dir));
}

/* A file with a byte more is named once; the others' digests are looked at, and what is not done is said once, in no failure of its
 * own. */
static void test_byte_more(const kit *k) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    omm_buf text;
    json_t *json = NULL;
    omm_buf_init(&text, BUF_MAX);
    kit_copy(dir, k->dir);
    kit_read(&text, dir, "final.gguf");
    CHECK_OK(omm_buf_append(&text, "x", 1));
    kit_write(dir, "final.gguf", omm_buf_view(&text));
    kit_verify(&r, dir, NULL);
    CHECK(!r.intact && r.failure_count == 1 && kit_names(&r, "files", "final.gguf"));
    CHECK(omm_digest_is_zero(&r.run_digest)); /* of what is there there is none */
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_report_text(&text, &r));
    has(&text, "  FAIL  files        ");
    has(&text, "  pass  signature    ");
    has(&text, "  pass  digests      ");
    CHECK(!memmem(text.data, text.size, "  FAIL  run", 11));
    has(&text,
        "\n  not done: 14 of 17 checks, as the bundle holds more than its manifest lists (run, "
        "offers, submissions, receipts, refusals, payloads, aggregation, broadcast, ledger, "
        "eval, verdicts, adapter, close, complete)\n\nverify: FAIL\n");
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_report_json(&text, &r));
    has(&text, "\"not_done\":\"the bundle holds more than its manifest lists\"");
    has(&text, "{\"done\":false,\"failures\":0,\"items\":0,\"name\":\"run\",\"passed\":false}");
    CHECK_OK(omm_json_parse(&json, omm_buf_view(&text), "report"));
    CHECK_EQ(json_array_size(json_object_get(json, "failures")), 1);
    json_decref(json);
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_refusal_junit(&text, &r, dir));
    has(&text, "tests=\"17\" failures=\"1\" skipped=\"14\"");
    has(&text, "name=\"run\" time=\"0\">\n      <skipped message=\"the bundle holds more than its "
               "manifest lists\"/>");
    omm_verify_report_fini(&r);
    /* Another file has other bytes, of which the digests tell, too. */
    omm_buf_clear(&text);
    kit_read(&text, dir, "policy.yaml");
    text.data[0] ^= 1;
    kit_write(dir, "policy.yaml", omm_buf_view(&text));
    kit_verify(&r, dir, NULL);
    CHECK(r.failure_count == 2 && kit_names(&r, "digests", "policy.yaml"));
    omm_verify_report_fini(&r);
    kit_verify(&r, k->dir, NULL); /* of a good one all are done */
    CHECK(r.intact && !r.not_done);
    for (size_t i = 0; i < r.check_count; i++) CHECK(r.checks[i].done);
    omm_buf_clear(&text);
    CHECK_OK(omm_verify_report_json(&text, &r));
    has(&text, "\"not_done\":null");
    omm_verify_report_fini(&r);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(dir));
}

/* --- one bit --- */

typedef struct flip_job {
    const kit *k;
    const char *dir;
    size_t files, flips, per_file;
} flip_job;

static void flip(const flip_job *job, const char *path, omm_buf *bytes, size_t at, unsigned bit) {
    omm_verify_report r;
    bytes->data[at] = (uint8_t)(bytes->data[at] ^ (1u << bit));
    kit_write(job->dir, path, omm_buf_view(bytes));
    kit_verify(&r, job->dir, &job->k->bundle.public_key);
    if (r.passed || r.intact || !kit_names(&r, NULL, path)) {
        fprintf(stderr, "byte %zu bit %u of %s was flipped\n", at, bit, path);
        print_report(&r);
        exit(1);
    }
    omm_verify_report_fini(&r);
    bytes->data[at] = (uint8_t)(bytes->data[at] ^ (1u << bit));
}

static omm_err flip_file(void *ud, const char *path) {
    flip_job *job = ud;
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, job->k->dir, path);
    CHECK(bytes.size > 0);
    size_t count = bytes.size < job->per_file ? bytes.size : job->per_file;
    for (size_t i = 0; i < count; i++) {
        size_t at = count == 1 ? 0 : i * (bytes.size - 1) / (count - 1); /* first and last too */
        flip(job, path, &bytes, at, (unsigned)((at + i + job->files) % 8));
        job->flips++;
    }
    kit_write(job->dir, path, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    job->files++;
    return OMM_OK;
}

static void test_flips(const kit *k, size_t per_file) {
    char dir[OMM_PATH_MAX];
    kit_copy(dir, k->dir);
    flip_job job = {k, dir, 0, 0, per_file};
    CHECK_OK(omm_dir_walk(k->dir, flip_file, &job));
    fprintf(stderr, "%zu files, %zu flips\n", job.files, job.flips);
    CHECK(job.files > 40);
    omm_verify_report r; /* everything is back where it was */
    kit_verify(&r, dir, NULL);
    CHECK(r.passed);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

/* --- files --- */

/* Each file removed in turn. */
static omm_err remove_file(void *ud, const char *path) {
    const kit *k = ud;
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    kit_copy(dir, k->dir);
    kit_delete(dir, path);
    kit_verify(&r, dir, NULL);
    CHECK(!r.passed);
    CHECK(kit_names(&r, NULL, path));
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
    return OMM_OK;
}

/* Verify a copy to which `change` was done; it must fail in "files" at `path`. */
static void expect_files(const kit *k, void (*change)(const char *dir), const char *path) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    kit_copy(dir, k->dir);
    change(dir);
    kit_verify(&r, dir, NULL);
    if (r.passed || !kit_names(&r, "files", path)) {
        print_report(&r);
        CHECK(false);
    }
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

static void add_unknown(const char *dir) {
    kit_write(dir, "notes.txt", omm_bytes_str("x"));
}
static void add_known(const char *dir) {
    kit_write(dir, "measured/more.json", omm_bytes_str("{}\n"));
}
static void add_hidden(const char *dir) {
    kit_write(dir, "measured/.more", omm_bytes_str("{}\n"));
}
static void add_deep(const char *dir) {
    kit_write(dir, "measured/a/b.json", omm_bytes_str("{}\n"));
}

static void make_folder(const char *dir, const char *path) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK_OK(omm_dir_make(full));
}
static void add_folder(const char *dir) {
    make_folder(dir, "notes");
}
static void add_known_folder(const char *dir) {
    make_folder(dir, "eval/more");
}
static void add_nested_folder(const char *dir) {
    make_folder(dir, "notes/a/b");
}
static void empty_folder(const char *dir) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, "virtual"));
    CHECK_OK(omm_dir_remove(full));
    make_folder(dir, "virtual");
}

static void link_path(const char *dir, const char *path, const char *to, bool hard) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    (void)unlink(full);
    CHECK((hard ? mkfifo(full, 0600) : symlink(to, full)) == 0);
}
static void link_file(const char *dir) {
    link_path(dir, "final.gguf", "/dev/zero", false);
}
static void link_manifest(const char *dir) {
    link_path(dir, "manifest.json", "/dev/zero", false);
}
static void link_folder(const char *dir) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, "virtual"));
    CHECK_OK(omm_dir_remove(full));
    link_path(dir, "virtual", "/proc", false);
}
static void make_pipe(const char *dir) {
    link_path(dir, "rounds.jsonl", NULL, true);
}

static void oversize(const char *dir) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, "close.env"));
    CHECK(truncate(full, 300 << 10) == 0);
}
static void oversize_manifest(const char *dir) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, "manifest.json"));
    CHECK(truncate(full, 300 << 20) == 0);
}

/* --- manifests that lie --- */

static void edit_manifest(const char *dir, const char *from, const char *to) {
    omm_buf text;
    omm_buf out;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&text, dir, "manifest.json");
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *at = strstr((char *)text.data, from);
    CHECK(at != NULL);
    CHECK_OK(omm_buf_append(&out, text.data, (size_t)(at - (char *)text.data)));
    CHECK_OK(omm_buf_append(&out, to, strlen(to)));
    CHECK_OK(omm_buf_append(&out, at + strlen(from), strlen(at + strlen(from))));
    kit_write(dir, "manifest.json", omm_buf_view(&out));
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}
static void escape_up(const char *dir) {
    edit_manifest(dir, "\"adapters/r000.bin\"", "\"../adapters/r000.bin\"");
}
static void escape_root(const char *dir) {
    edit_manifest(dir, "\"adapters/r000.bin\"", "\"/etc/passwd\"");
}
static void duplicate(const char *dir) {
    edit_manifest(dir, "\"adapters/r001.bin\"", "\"adapters/r000.bin\"");
}
static void wrong_class(const char *dir) {
    edit_manifest(dir, "\"class\": \"V\"", "\"class\": \"D\"");
}
static void huge_size(const char *dir) {
    edit_manifest(dir, "\"bytes\": ", "\"bytes\": 9000000000000");
}
static void list_manifest(const char *dir) {
    edit_manifest(dir, "\"measured/gates.json\"", "\"manifest.json\"");
}

static void no_time(const char *dir) {
    edit_manifest(dir, "\"created\": \"1970-01-01T00:00:01.000Z", "\"created\": \"yesterday");
}

static void test_files(const kit *k) {
    expect_files(k, add_unknown, "notes.txt");
    expect_files(k, add_known, "measured/more.json");
    expect_files(k, add_hidden, "measured/.more");
    expect_files(k, add_deep, "measured/a/b.json");
    expect_files(k, add_folder, "notes");
    expect_files(k, add_known_folder, "eval/more");
    expect_files(k, add_nested_folder, "notes/a/b");
    expect_files(k, empty_folder, "virtual");
    expect_files(k, link_file, "final.gguf");
    expect_files(k, link_manifest, "manifest.json");
    expect_files(k, link_folder, "virtual");
    expect_files(k, make_pipe, "rounds.jsonl");
    expect_files(k, oversize, "close.env");
    expect_files(k, oversize_manifest, "manifest.json");
    expect_files(k, escape_up, "manifest.json");
    expect_files(k, escape_root, "manifest.json");
    expect_files(k, duplicate, "manifest.json");
    expect_files(k, wrong_class, "manifest.json");
    expect_files(k, huge_size, "manifest.json");
    expect_files(k, list_manifest, "manifest.json");
    expect_files(k, no_time, "manifest.json");
}

/* The run digest that is shown is of the files that are there, not what the manifest says of others. */
static void test_run_digest(const kit *k) {
    for (int shorter = 0; shorter < 2; shorter++) {
        char dir[OMM_PATH_MAX];
        omm_verify_report r;
        omm_buf text;
        omm_buf_init(&text, BUF_MAX);
        kit_copy(dir, k->dir);
        kit_verify(&r, dir, NULL);
        CHECK(omm_digest_equal(&r.run_digest, &k->run_digest));
        omm_verify_report_fini(&r);
        kit_read(&text, dir, "final.gguf");
        text.data[text.size - 1] ^= 1;
        text.size -= (size_t)shorter;
        kit_write(dir, "final.gguf", omm_buf_view(&text));
        kit_verify(&r, dir, NULL);
        CHECK(!r.intact && !omm_digest_equal(&r.run_digest, &k->run_digest));
        CHECK(kit_names(&r, "digests", "manifest.json"));
        omm_verify_report_fini(&r);
        omm_buf_fini(&text);
        CHECK_OK(omm_dir_remove(dir));
    }
}

static void test_no_folder(void) {
    omm_verify_report r;
    omm_verify_options options = {.render = kit_render};
    CHECK_ERR(omm_bundle_verify(&r, "/nonexistent/bundle", &options), OMM_ERR_NOT_FOUND);
    char dir[OMM_PATH_MAX];
    kit_temp_dir(dir); /* empty: every check fails, none crashes */
    kit_verify(&r, dir, NULL);
    CHECK(!r.passed);
    for (size_t i = 0; i < r.check_count; i++)
        if (strcmp(r.checks[i].name, "complete") != 0) CHECK(!r.checks[i].passed);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

/* --- honest repetitions --- */

/* What a scenario says of them, and how many of each kind simulate writes of a run by `isa`; k of all accepted. */
typedef struct repeated {
    uint32_t audited;
    bool threads, isa, scalar;
    const char *run_isa;
    size_t counts[3]; /* threads, isa, scalar */
} repeated;

static repeated s_repeated;

static omm_err read_repeated(omm_scenario_facts *out, const char **about, omm_bytes text,
                             const omm_run_record *run) {
    OMM_TRY(kit_read_scenario(out, about, text, run));
    out->audited = s_repeated.audited;
    out->audits_threads = s_repeated.threads;
    out->audits_isa = s_repeated.isa;
    out->scalar_steps = s_repeated.scalar ? 2 : 0;
    return OMM_OK;
}

/* Whatever its rows are of, which a gate judges. */
static void put_repeated(const char *dir) {
    static const char *const kinds[] = {"threads", "isa", "scalar"};
    omm_buf text;
    omm_arena arena;
    omm_repro_record record;
    omm_repro_check checks[32];
    size_t count = 0;
    omm_buf_init(&text, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, dir, "measured/repro.json");
    CHECK_OK(omm_repro_record_parse(&record, &arena, omm_buf_view(&text)));
    for (size_t kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < s_repeated.counts[kind]; i++) {
            CHECK(count < sizeof checks / sizeof *checks);
            checks[count] = record.checks[0];
            checks[count].isa = kind == 0 ? s_repeated.run_isa : "scalar";
            checks[count].steps = kind == 2 ? 2 : 0;
            checks[count++].kind = kinds[kind];
        }
    record.isa = s_repeated.run_isa;
    record.other_isa = strcmp(record.isa, "scalar") != 0;
    record.checks = checks;
    record.check_count = count;
    omm_buf_clear(&text);
    CHECK_OK(omm_repro_record_write(&text, &record));
    kit_write(dir, "measured/repro.json", omm_buf_view(&text));
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
}

/* A ledger has a line for each accepted submission. */
static size_t count_accepted(const char *dir) {
    omm_buf text;
    size_t count = 0;
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, dir, "ledger.jsonl");
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == '\n';
    omm_buf_fini(&text);
    return count;
}

/* Plain C has nothing below it; of fewer submissions than are to be repeated all are; and each kind may be off. */
static void test_repeated(const kit *k) {
    const size_t all = count_accepted(k->dir);
    const repeated honest[] = {
        {1, true, true, true, "avx2", {1, 1, 1}},
        {1, true, true, true, "scalar", {1, 0, 0}},
        {99, true, true, true, "avx512", {all, all, 1}},
        {99, true, true, false, "scalar", {all, 0, 0}},
        {0, true, true, true, "avx2_vnni", {0, 0, 1}},
        {0, true, true, false, "neon", {0, 0, 0}},
        {2, false, true, false, "neon_dotprod", {0, 2, 0}},
    };
    CHECK(all > 2 && all < 15);
    for (size_t i = 0; i < sizeof honest / sizeof *honest; i++) {
        char dir[OMM_PATH_MAX];
        omm_verify_report r;
        const omm_verify_options options = {
            .trusted = &k->bundle.public_key, .render = kit_render, .read_scenario = read_repeated};
        for (int more = 0; more < 4; more++) { /* then with one more of a kind */
            s_repeated = honest[i];
            if (more > 0) s_repeated.counts[more - 1]++;
            kit_copy(dir, k->dir);
            put_repeated(dir);
            kit_reseal(dir, &k->bundle, true);
            CHECK_OK(omm_bundle_verify(&r, dir, &options));
            if (r.intact != (more == 0)) print_report(&r);
            CHECK_EQ(r.intact, more == 0);
            if (more > 0) CHECK(kit_names(&r, "verdicts", "measured/repro.json"));
            omm_verify_report_fini(&r);
            CHECK_OK(omm_dir_remove(dir));
        }
    }
}

/* --- files that change meanwhile --- */

typedef struct meanwhile {
    const char *dir, *from;
    void (*change)(const struct meanwhile *m);
} meanwhile;

static void copy_one(const meanwhile *m, const char *path) {
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, m->from, path);
    kit_write(m->dir, path, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
}

/* All that speaks of the bytes on the wire, from another bundle, which was signed as well as this one. */
static void swap_wire(const meanwhile *m) {
    copy_one(m, "measured/wire.json");
    copy_one(m, "measured/gates.json");
    copy_one(m, "junit.xml");
}

static void write_again(const meanwhile *m) {
    kit_write(m->dir, "measured/machine.json", omm_bytes_str("{}"));
}

static void bring_one(const meanwhile *m) {
    kit_write(m->dir, "measured/new.json", omm_bytes_str("{}"));
}

static void take_one(const meanwhile *m) {
    kit_delete(m->dir, "measured/machine.json");
}

static void change_none(const meanwhile *m) {
    (void)m;
}

/* When the last file is rendered, all digests have been looked at, and all but that file. */
static omm_err render_late(void *ud, omm_buf *out, const omm_run_record *run, const float *values) {
    const meanwhile *m = ud;
    m->change(m);
    return kit_render(NULL, out, run, values);
}

/* Before the verdicts, and behind the digests. */
static const meanwhile *s_meanwhile;
static omm_err read_late(omm_scenario_facts *out, const char **about, omm_bytes text,
                         const omm_run_record *run) {
    s_meanwhile->change(s_meanwhile);
    return kit_read_scenario(out, about, text, run);
}

/* As many bytes as before, and as old: that it is another shows in when it was changed alone. */
static void write_same_time(const char *dir) {
    char full[OMM_PATH_MAX];
    struct stat st;
    CHECK_OK(omm_path_join(full, dir, "measured/machine.json"));
    CHECK(stat(full, &st) == 0);
    const int fd = open(full, O_WRONLY);
    CHECK(fd >= 0 && write(fd, "[]", 2) == 2);
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    CHECK(futimens(fd, times) == 0 && close(fd) == 0);
}

static omm_err verify_meanwhile(const kit *k, meanwhile *m, bool early) {
    char dir[OMM_PATH_MAX];
    omm_verify_report r;
    kit_copy(dir, k->dir);
    m->dir = dir;
    s_meanwhile = m;
    kit_write(dir, "measured/machine.json", omm_bytes_str("{}"));
    kit_reseal(dir, &k->bundle, true);
    omm_verify_options options = {.trusted = &k->bundle.public_key,
                                  .render = early ? kit_render : render_late,
                                  .render_ud = m,
                                  .read_scenario = early ? read_late : kit_read_scenario};
    const omm_err err = omm_bundle_verify(&r, dir, &options);
    if (err == OMM_OK) {
        CHECK(r.intact);
        CHECK_OK(omm_bundle_check_unchanged(&r.state, dir));
        kit_write(dir, "measured/new.json", omm_bytes_str("{}"));
        CHECK_EQ(omm_bundle_check_unchanged(&r.state, dir), OMM_ERR_IO);
        kit_delete(dir, "measured/new.json");
        CHECK_OK(omm_bundle_check_unchanged(&r.state, dir));
        write_same_time(dir);
        CHECK_EQ(omm_bundle_check_unchanged(&r.state, dir), OMM_ERR_IO);
        omm_verify_report_fini(&r);
    }
    CHECK_OK(omm_dir_remove(dir));
    return err;
}

/* Nobody is told that a bundle is intact of which he saw a part before and a part after. */
static void test_meanwhile(const kit *k) {
    char other[OMM_PATH_MAX];
    omm_wire_record wire;
    omm_arena arena;
    omm_buf text;
    kit_copy(other, k->dir);
    omm_buf_init(&text, BUF_MAX);
    omm_arena_init(&arena, BUF_MAX);
    kit_read(&text, other, "measured/wire.json");
    CHECK_OK(omm_wire_record_parse(&wire, &arena, omm_buf_view(&text)));
    omm_wire_node nodes[8];
    CHECK(wire.node_count > 0 && wire.node_count <= 8);
    memcpy(nodes, wire.nodes, wire.node_count * sizeof *nodes);
    nodes[0].up += 1000000;
    wire.nodes = nodes;
    omm_buf_clear(&text);
    CHECK_OK(omm_wire_record_write(&text, &wire));
    kit_write(other, "measured/wire.json", omm_buf_view(&text));
    kit_write(other, "measured/machine.json", omm_bytes_str("{}"));
    kit_reseal(other, &k->bundle, true);
    meanwhile m = {.from = other, .change = change_none};
    CHECK_OK(verify_meanwhile(k, &m, true));
    CHECK_OK(verify_meanwhile(k, &m, false));
    m.change = swap_wire;
    CHECK_EQ(verify_meanwhile(k, &m, true), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), " changed while the bundle was verified"));
    m.change = write_again;
    CHECK_EQ(verify_meanwhile(k, &m, false), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "measured/machine.json changed while"));
    m.change = take_one;
    CHECK_EQ(verify_meanwhile(k, &m, false), OMM_ERR_IO);
    m.change = bring_one;
    CHECK_EQ(verify_meanwhile(k, &m, false), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "a file in it has changed"));
    CHECK_OK(omm_dir_remove(other));
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
}

/* Whatever allocation fails: it is an error, no fault of the bundle's, and nothing leaks. */
static void test_no_memory(const kit *k, size_t step) {
    omm_verify_options options = {.render = kit_render};
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth += step) {
        omm_verify_report r;
        omm_mem_fail_nth(nth);
        omm_err err = omm_bundle_verify(&r, k->dir, &options);
        bool passed = err == OMM_OK && r.passed;
        CHECK(!passed || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK && !passed) print_report(&r);
        CHECK(passed || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) omm_verify_report_fini(&r);
        CHECK_EQ(omm_mem_live(), live);
        if (passed) break;
        CHECK(nth < 1000000);
    }
}

/* A policy that requires nothing fails, and says that it is that. */
static void test_nothing_required(void) {
    static omm_judgement j;
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    j.evidence.count = 2;
    for (size_t i = 0; i < j.evidence.count; i++)
        j.evidence.items[i] =
            (omm_verdict){.family = "f", .metric = "m", .unit = "u", .reason = "", .passed = true};
    for (int required = 0; required < 2; required++) {
        j.evidence.items[1].required = required != 0;
        omm_buf_clear(&text);
        CHECK_OK(omm_judgement_text(&text, &j));
        CHECK_OK(omm_buf_append(&text, "", 1));
        const char *says = strstr((const char *)text.data, "gates: FAIL");
        CHECK(says != NULL);
        CHECK((strstr(says, "the policy requires none") != NULL) == !required);
    }
    omm_buf_fini(&text);
}

int main(int argc, char **argv) {
    kit k;
    test_nothing_required();
    size_t per_file = argc > 1 ? strtoul(argv[1], NULL, 10) : 4;
    kit_make(&k, &(kit_options){0});
    test_good(&k);
    test_refusal(&k);
    test_byte_more(&k);
    test_short_adapter(&k);
    test_unreadable(&k, "run.json", "\"rounds\":", "member \"rounds\" is missing");
    test_unreadable(&k, "rounds.jsonl", "\"void\":", "line 1: member \"void\" is missing");
    test_meanwhile(&k);
    test_files(&k);
    test_run_digest(&k);
    test_repeated(&k);
    CHECK_OK(omm_dir_walk(k.dir, remove_file, &k));
    test_no_folder();
    test_no_memory(&k, 1);
    test_flips(&k, per_file);
    kit_remove(&k);
    return 0;
}
