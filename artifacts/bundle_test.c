#include "internal.h"
#include "omm/bundle.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm_test.h"
#include "testkit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static omm_bundle *open_temp(char dir[OMM_PATH_MAX], bool durable) {
    omm_bundle *b = NULL;
    kit_temp_dir(dir);
    CHECK_OK(omm_bundle_open(&b, dir, durable));
    return b;
}

static void test_put(void) {
    char dir[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    CHECK_OK(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")));
    CHECK_OK(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")));
    CHECK_ERR(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("y")), OMM_ERR_MISMATCH);
    CHECK_ERR(omm_bundle_put(b, "offers/../x", omm_bytes_str("y")), OMM_ERR_CONFIG);
    CHECK_ERR(omm_bundle_put(b, "manifest.json", omm_bytes_str("y")), OMM_ERR_CONFIG);
    CHECK(omm_bundle_has(b, "offers/r000.env"));
    CHECK(!omm_bundle_has(b, "offers/r001.env"));
    CHECK_OK(omm_bundle_replace(b, "virtual/t.json", omm_bytes_str("1")));
    CHECK_OK(omm_bundle_replace(b, "virtual/t.json", omm_bytes_str("2")));
    omm_buf out;
    omm_buf_init(&out, 100);
    CHECK_OK(omm_bundle_read(&out, b, "virtual/t.json"));
    CHECK(out.size == 1 && out.data[0] == '2');
    CHECK_ERR(omm_bundle_read(&out, b, "run.json"), OMM_ERR_NOT_FOUND);
    omm_buf_fini(&out);
    static uint8_t big[300u << 10];
    CHECK_ERR(omm_bundle_put(b, "close.env", omm_bytes_of(big, sizeof big)), OMM_ERR_TOO_BIG);
    omm_bundle_close(b);
    CHECK_OK(omm_dir_remove(dir));
}

/* A bundle that was moved away is not begun anew in its place, with what comes next alone. */
static void test_moved_away(void) {
    char dir[OMM_PATH_MAX], away[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    kit_temp_dir(away);
    CHECK_OK(omm_bundle_put(b, "run.json", omm_bytes_str("x")));
    CHECK(rename(dir, away) == 0);
    CHECK_ERR(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "put it back"));
    CHECK_ERR(omm_bundle_replace(b, "gates.json", omm_bytes_str("x")), OMM_ERR_IO);
    CHECK_ERR(omm_bundle_put_line(b, "rounds.jsonl", 0, omm_bytes_str("x\n")), OMM_ERR_IO);
    omm_bundle_hold(b);
    CHECK_ERR(omm_bundle_put(b, "receipts/r000-0011223344556677.env", omm_bytes_str("x")),
              OMM_ERR_IO);
    CHECK_OK(omm_bundle_settle(b));
    CHECK(!omm_file_exists(dir));
    CHECK(rename(away, dir) == 0);
    CHECK_OK(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")));
    omm_bundle_close(b);
    CHECK_OK(omm_dir_remove(dir));
}

static void test_lines(void) {
    char dir[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 0, omm_bytes_str("a\n")));
    CHECK_ERR(omm_bundle_put_line(b, "rounds.jsonl", 2, omm_bytes_str("c\n")), OMM_ERR_STATE);
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 1, omm_bytes_str("b\n")));
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 0, omm_bytes_str("a\n")));
    CHECK_ERR(omm_bundle_put_line(b, "rounds.jsonl", 1, omm_bytes_str("x\n")), OMM_ERR_MISMATCH);
    omm_bundle_close(b);
    /* Killed in the middle of line 3, and in the middle of another file. */
    kit_write(dir, "rounds.jsonl", omm_bytes_str("a\nb\nhal"));
    kit_write(dir, "run.json.tmp.123.4", omm_bytes_str("half"));
    kit_write(dir, "virtual/a.tmp.json", omm_bytes_str("{}")); /* of no writer */
    CHECK_OK(omm_bundle_open(&b, dir, false));
    CHECK(omm_bundle_has(b, "virtual/a.tmp.json"));
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 1, omm_bytes_str("b\n")));
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 2, omm_bytes_str("c\n")));
    omm_buf out;
    omm_buf_init(&out, 100);
    CHECK_OK(omm_bundle_read(&out, b, "rounds.jsonl"));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("a\nb\nc\n")));
    omm_buf_fini(&out);
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, "run.json.tmp.123.4"));
    CHECK(!omm_file_exists(full));
    omm_bundle_close(b);
    CHECK_OK(omm_dir_remove(dir));
}

/* A line that could not be written may be there in part: what is there is looked at again. */
static void test_failed_line(void) {
    char dir[OMM_PATH_MAX], full[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    omm_buf out;
    CHECK_OK(omm_path_join(full, dir, "rounds.jsonl"));
    CHECK_OK(omm_dir_make(full));
    CHECK_ERR(omm_bundle_put_line(b, "rounds.jsonl", 0, omm_bytes_str("a\n")), OMM_ERR_FORMAT);
    CHECK_OK(omm_dir_remove(full));
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 0, omm_bytes_str("a\n")));
    CHECK_OK(omm_file_remove(full));
    CHECK_OK(omm_dir_make(full));
    CHECK_ERR(omm_bundle_put_line(b, "rounds.jsonl", 1, omm_bytes_str("b\n")), OMM_ERR_IO);
    CHECK_OK(omm_dir_remove(full));
    kit_write(dir, "rounds.jsonl", omm_bytes_str("a\nhal"));
    CHECK_OK(omm_bundle_put_line(b, "rounds.jsonl", 1, omm_bytes_str("b\n")));
    omm_buf_init(&out, 100);
    CHECK_OK(omm_bundle_read(&out, b, "rounds.jsonl"));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("a\nb\n")));
    omm_buf_fini(&out);
    omm_bundle_close(b);
    CHECK_OK(omm_dir_remove(dir));
}

/* Two writers of one folder would seal a bundle of both; after the first's end, killed or not, another goes on. */
static void test_one_writer(void) {
    char dir[OMM_PATH_MAX];
    omm_bundle *first = open_temp(dir, false), *second = NULL;
    CHECK_ERR(omm_bundle_open(&second, dir, false), OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "another process writes into") != NULL && !second);
    CHECK_OK(omm_bundle_put(first, "offers/r000.env", omm_bytes_str("x")));
    omm_bundle_close(first);
    CHECK_OK(omm_bundle_open(&second, dir, false));
    omm_bundle_close(second);
    CHECK_OK(omm_dir_remove(dir));
}

static void test_many_lines(void) {
    char dir[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 0, omm_bytes_str("a\nb\n")));
    CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 1, omm_bytes_str("b\nc\nd\n")));
    CHECK_ERR(omm_bundle_put_lines(b, "ledger.jsonl", 2, omm_bytes_str("c\nx\n")),
              OMM_ERR_MISMATCH);
    CHECK_ERR(omm_bundle_put_lines(b, "ledger.jsonl", 3, omm_bytes_str("x\ne\n")),
              OMM_ERR_MISMATCH);
    CHECK_ERR(omm_bundle_put_lines(b, "ledger.jsonl", 5, omm_bytes_str("f\n")), OMM_ERR_STATE);
    CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 0, omm_bytes_str("a\nb\nc\nd\n")));
    omm_bundle_close(b);
    /* Killed in the middle of the second call; and two cuts of the power, with zeros where a sector was. */
    static const omm_bytes torn[] = {{(const uint8_t *)"a\nb\nc", 5},
                                     {(const uint8_t *)"a\nb\n\0\nd\n", 8},
                                     {(const uint8_t *)"a\nb\nc\0\0\0", 8}};
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++) {
        kit_write(dir, "ledger.jsonl", torn[i]);
        CHECK_OK(omm_bundle_open(&b, dir, true));
        CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 1, omm_bytes_str("b\nc\nd\n")));
        omm_buf out;
        omm_buf_init(&out, 100);
        CHECK_OK(omm_bundle_read(&out, b, "ledger.jsonl"));
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("a\nb\nc\nd\n")));
        omm_buf_fini(&out);
        omm_bundle_close(b);
    }
    CHECK_OK(omm_dir_remove(dir));
}

/* Lines of this many bytes, numbered. */
static void number_lines(omm_buf *out, uint32_t count, int bytes) {
    for (uint32_t i = 0; i < count; i++)
        CHECK_OK(omm_buf_printf(out, "%0*" PRIu32 "\n", bytes - 1, i));
}

/* A bundle that is opened again counts and compares the lines of a long run, and does not hold them. */
static void test_lines_of_a_long_run(void) {
    enum { LINES = 3000, BYTES = 100 };
    char dir[OMM_PATH_MAX];
    omm_buf text;
    omm_bundle *b = open_temp(dir, false);
    omm_buf_init(&text, (size_t)LINES * BYTES);
    number_lines(&text, LINES, BYTES);
    CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 0, omm_buf_view(&text)));
    omm_bundle_close(b);
    CHECK_OK(omm_bundle_open(&b, dir, false));
    omm_mem_peak_restart();
    const size_t before = omm_mem_bytes();
    for (uint32_t i = 0; i < LINES; i += 997)
        CHECK_OK(omm_bundle_put_line(b, "ledger.jsonl", i,
                                     omm_bytes_of(text.data + (size_t)i * BYTES, BYTES)));
    CHECK_OK(omm_bundle_put_lines(b, "ledger.jsonl", 0, omm_buf_view(&text)));
    CHECK(omm_mem_peak() - before < (size_t)LINES * BYTES / 4);
    text.data[text.size - 2] = 'x';
    CHECK_ERR(omm_bundle_put_lines(b, "ledger.jsonl", 0, omm_buf_view(&text)), OMM_ERR_MISMATCH);
    CHECK_ERR(omm_bundle_put_line(b, "ledger.jsonl", LINES + 1, omm_bytes_str("x\n")),
              OMM_ERR_STATE);
    CHECK_OK(omm_bundle_put_line(b, "ledger.jsonl", LINES, omm_bytes_str("x\n")));
    omm_bundle_close(b);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(dir));
}

/* More folders than are held, the same file twice, and what was there before. */
static void test_held(void) {
    static const char *const folders[] = {
        "adapters/r000.bin", "eval/after.jsonl", "refused/r000-0-REFUSED_KEY.bin", "virtual/a",
        "measured/a",        "scenario.yaml",    "adapters/master-r000.f32"};
    char dir[OMM_PATH_MAX];
    omm_bundle *b = open_temp(dir, true);
    CHECK_OK(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")));
    for (int again = 0; again < 2; again++) {
        omm_bundle_hold(b);
        CHECK_OK(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("x")));
        CHECK_ERR(omm_bundle_put(b, "offers/r000.env", omm_bytes_str("y")), OMM_ERR_MISMATCH);
        for (uint32_t round = 0; round < 12; round++) {
            const omm_digest node = omm_hash(omm_bytes_str("n"));
            CHECK_OK(
                omm_bundle_put(b, omm_bundle_path_receipt(round, &node).text, omm_bytes_str("r")));
            CHECK_OK(omm_bundle_put(b, omm_bundle_path_submission(round, &node).text,
                                    omm_bytes_str("s")));
            const omm_digest payload = omm_hash(omm_bytes_of(&round, sizeof round));
            CHECK_OK(omm_bundle_put(b, omm_bundle_path_payload(&payload).text, omm_bytes_str("p")));
        }
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
            CHECK_OK(omm_bundle_put(b, folders[i], omm_bytes_str("f")));
        CHECK_OK(omm_bundle_settle(b));
        for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
            CHECK(omm_bundle_has(b, folders[i]));
    }
    const omm_digest node = omm_hash(omm_bytes_str("n"));
    CHECK(omm_bundle_has(b, omm_bundle_path_receipt(11, &node).text));
    omm_bundle_close(b);
    CHECK_OK(omm_dir_remove(dir));
}

/* The same run twice: one run digest, whatever was measured; and a sealed bundle stays shut. */
static void test_seal(void) {
    kit a;
    kit b;
    kit_options options = {0};
    kit_make(&a, &options);
    kit_make_open(&b, &options);
    kit_write(b.dir, "measured/times.json", omm_bytes_str("{\"ms\":1}\n"));
    omm_bundle *bundle = NULL;
    omm_bundle_seal_options seal = {.key = &b.stranger,
                                    .commit = KIT_COMMIT,
                                    .build = "another",
                                    .machine = "another",
                                    .wall_ms = 5};
    CHECK_OK(omm_bundle_open(&bundle, b.dir, true));
    CHECK_OK(omm_bundle_seal(&b.run_digest, NULL, bundle, &seal));
    CHECK_OK(omm_bundle_seal(&b.run_digest, NULL, bundle, &seal)); /* the same attempt again */
    const omm_bytes times = omm_bytes_str("{\"ms\":2}\n");
    CHECK_ERR(omm_bundle_replace(bundle, "measured/times.json", times), OMM_ERR_STATE);
    CHECK_ERR(omm_bundle_put_line(bundle, "rounds.jsonl", 99, times), OMM_ERR_STATE);
    CHECK_OK(omm_bundle_unseal(bundle)); /* an attempt that failed in its last step, say */
    CHECK_OK(omm_bundle_unseal(bundle));
    CHECK_OK(omm_bundle_replace(bundle, "measured/times.json", times));
    CHECK_OK(omm_bundle_seal(&b.run_digest, NULL, bundle, &seal));
    omm_bundle_close(bundle);
    CHECK(omm_digest_equal(&a.run_digest, &b.run_digest));
    CHECK_ERR(omm_bundle_open(&bundle, b.dir, true), OMM_ERR_STATE);
    CHECK_OK(omm_dir_remove(b.dir));
    kit_make_open(&b, &(kit_options){.no_control = true});
    CHECK_OK(omm_bundle_open(&bundle, b.dir, true));
    CHECK_OK(omm_bundle_seal(&b.run_digest, NULL, bundle, &seal));
    CHECK(!omm_digest_equal(&a.run_digest, &b.run_digest));
    omm_bundle_close(bundle);
    CHECK_OK(omm_dir_remove(b.dir));
    kit_remove(&a);
}

static void test_seal_refuses(void) {
    kit k;
    omm_bundle *bundle = NULL;
    kit_make_open(&k, &(kit_options){0});
    kit_write(k.dir, "stray.txt", omm_bytes_str("x"));
    omm_bundle_seal_options seal = {
        .key = &k.bundle, .commit = KIT_COMMIT, .build = "", .machine = "", .wall_ms = 5};
    CHECK_OK(omm_bundle_open(&bundle, k.dir, false));
    CHECK_ERR(omm_bundle_seal(&k.run_digest, NULL, bundle, &seal), OMM_ERR_CONFIG);
    CHECK(!omm_bundle_has(bundle, "manifest.json"));
    kit_delete(k.dir, "stray.txt");
    /* Larger than it may be: nobody would read the bundle. */
    omm_buf large;
    uint8_t *bytes = NULL;
    omm_buf_init(&large, 1 << 20);
    CHECK_OK(omm_buf_extend(&large, &bytes, (size_t)272 << 10));
    kit_write(k.dir, "close.env", omm_buf_view(&large));
    omm_buf_clear(&large);
    CHECK_ERR(omm_bundle_read(&large, bundle, "close.env"), OMM_ERR_TOO_BIG);
    CHECK(large.size == 0 && large.bytes_max == 1 << 20);
    omm_buf_fini(&large);
    CHECK_ERR(omm_bundle_seal(&k.run_digest, NULL, bundle, &seal), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "close.env is over its limit") != NULL);
    CHECK(!omm_bundle_has(bundle, "manifest.json"));
    omm_bundle_close(bundle);
    CHECK_OK(omm_dir_remove(k.dir));
}

/* Whatever allocation fails, nothing is sealed; and then it is sealed as if none had. */
static void test_seal_without_memory(void) {
    kit k;
    kit honest;
    omm_bundle *bundle = NULL;
    kit_make(&honest, &(kit_options){0});
    kit_make_open(&k, &(kit_options){0});
    omm_bundle_seal_options seal = {
        .key = &k.bundle, .commit = KIT_COMMIT, .build = "", .machine = "", .wall_ms = 5};
    CHECK_OK(omm_bundle_open(&bundle, k.dir, false));
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err == OMM_ERR_NOMEM; nth++) {
        omm_mem_fail_nth(nth);
        err = omm_bundle_seal(&k.run_digest, NULL, bundle, &seal);
        CHECK(err == OMM_ERR_NOMEM || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_bundle_has(bundle, "manifest.json"), err == OMM_OK);
    }
    CHECK_OK(err);
    CHECK(omm_digest_equal(&k.run_digest, &honest.run_digest));
    omm_bundle_close(bundle);
    CHECK_OK(omm_dir_remove(k.dir));
    kit_remove(&honest);
}

/* What the end of a run signs: each file, and without some of them there is no end. */
static void test_evidence_digest(void) {
    static const struct {
        const char *path;
        bool optional;
    } files[] = {{"eval/after.jsonl", false}, {"eval/before.jsonl", false},
                 {"policy.yaml", false},      {"run.json", false},
                 {"scenario.yaml", false},    {"eval/control.jsonl", true},
                 {"eval/rounds.jsonl", true}, {"ledger.jsonl", true}};
    kit k;
    omm_digest whole, without;
    kit_make_open(&k, &(kit_options){0});
    CHECK_OK(omm_bundle_evidence_digest(&whole, k.dir));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char dir[OMM_PATH_MAX];
        kit_copy(dir, k.dir);
        kit_delete(dir, files[i].path);
        CHECK_EQ(omm_bundle_evidence_digest(&without, dir),
                 files[i].optional ? OMM_OK : OMM_ERR_NOT_FOUND);
        if (files[i].optional) CHECK(!omm_digest_equal(&whole, &without));
        CHECK_OK(omm_dir_remove(dir));
    }
    CHECK_OK(omm_dir_remove(k.dir));
}

static manifest manifest_of(manifest_file *files, size_t count) {
    return (manifest){.run_id = "00112233445566778899aabbccddeeff",
                      .commit = "c",
                      .build = "\"files\": [\n  \"files\": []",
                      .machine = "",
                      .created = "2026-01-01T00:00:00.000Z",
                      .bundle_key = "k",
                      .files = files,
                      .file_count = count};
}

/* The list of files is spelled by hand: as omm_json_write_pretty does it. */
static void test_manifest_spelling(void) {
    manifest_file files[] = {{"offers/r000.env", OMM_BUNDLE_DETERMINISTIC, 0, {{1}}, false},
                             {"virtual/a", OMM_BUNDLE_VIRTUAL, INT64_MAX, {{255}}, false}};
    for (size_t count = 0; count <= 2; count++) {
        const manifest m = manifest_of(files, count);
        json_t *value = NULL;
        omm_buf text, again;
        omm_buf_init(&text, 65536);
        omm_buf_init(&again, 65536);
        CHECK_OK(manifest_write(&text, &m));
        CHECK_OK(omm_json_parse(&value, omm_buf_view(&text), "manifest"));
        CHECK_OK(omm_json_write_pretty(&again, value));
        CHECK(omm_bytes_equal(omm_buf_view(&text), omm_buf_view(&again)));
        CHECK_EQ(json_array_size(json_object_get(value, "files")), count);
        json_decref(value);
        omm_buf_fini(&again);
        omm_buf_fini(&text);
    }
}

/* As many files as a bundle may have, of the longest names that rounds give them, can be sealed. */
static void test_manifest_of_a_million(void) {
    manifest_file *files = omm_alloc(OMM_BUNDLE_FILES_MAX, sizeof *files);
    CHECK(files);
    const omm_bundle_path path = omm_bundle_path_payload(&(omm_digest){{1}});
    for (size_t i = 0; i < OMM_BUNDLE_FILES_MAX; i++)
        files[i] = (manifest_file){.path = path.text,
                                   .class = OMM_BUNDLE_DETERMINISTIC,
                                   .bytes = OMM_BUNDLE_FILE_BYTES_MAX};
    const manifest m = manifest_of(files, OMM_BUNDLE_FILES_MAX);
    omm_buf text;
    omm_buf_init(&text, BUNDLE_MANIFEST_BYTES_MAX);
    CHECK_OK(manifest_write(&text, &m));
    omm_buf_fini(&text);
    omm_free(files);
}

/* The manifest that this text is, read without its list; OK, or why not. */
static omm_err read_head(manifest *out, omm_arena *arena, const char *dir, omm_bytes text) {
    kit_write(dir, "manifest.json", text);
    return manifest_read_head(out, arena, dir);
}

static void test_manifest_head(void) {
    enum { FILES = 20000 };
    char dir[OMM_PATH_MAX];
    manifest_file *files = omm_alloc(FILES, sizeof *files);
    CHECK(files);
    kit_temp_dir(dir);
    const omm_bundle_path path = omm_bundle_path_payload(&(omm_digest){{1}});
    for (size_t i = 0; i < FILES; i++)
        files[i] = (manifest_file){path.text, OMM_BUNDLE_DETERMINISTIC, i, {{1}}, false};
    for (size_t count = 0; count <= FILES; count = count < 2 ? count + 1 : count * 100) {
        manifest m = manifest_of(files, count);
        manifest got;
        omm_buf text;
        omm_arena arena;
        m.run_digest = (omm_digest){{7}};
        omm_buf_init(&text, BUNDLE_MANIFEST_BYTES_MAX);
        omm_arena_init(&arena, 65536);
        CHECK_OK(manifest_write(&text, &m));
        kit_write(dir, "manifest.json", omm_buf_view(&text));
        omm_mem_peak_restart();
        const size_t before = omm_mem_bytes();
        CHECK_OK(manifest_read_head(&got, &arena, dir));
        CHECK(omm_mem_peak() - before < (size_t)256 << 10);
        CHECK(strcmp(got.run_id, m.run_id) == 0 && strcmp(got.build, m.build) == 0);
        CHECK(omm_digest_equal(&got.run_digest, &m.run_digest));
        CHECK_EQ(got.file_count, 0);
        for (size_t n = 0; n < text.size && count == 2; n += 5) /* truncations */
            CHECK(read_head(&got, &arena, dir, omm_bytes_of(text.data, n)) != OMM_OK);
        omm_arena_fini(&arena);
        omm_buf_fini(&text);
    }
    omm_free(files);
    CHECK_OK(omm_dir_remove(dir));
}

/* What would end the list early, or hide something in it, is refused. */
/* `from` becomes `to` in the text of a manifest of two files, and it is none any more. */
static void manifest_refused(const char *from, const char *to, omm_err want, const char *says) {
    manifest_file files[] = {{"measured/a", OMM_BUNDLE_MEASURED, 3, {{1}}, false},
                             {"policy.yaml", OMM_BUNDLE_DETERMINISTIC, 9, {{2}}, false}};
    const manifest m = manifest_of(files, 2);
    manifest got;
    omm_buf text, changed;
    omm_arena arena;
    omm_buf_init(&text, 65536);
    omm_buf_init(&changed, 65536);
    omm_arena_init(&arena, 65536);
    CHECK_OK(manifest_write(&text, &m));
    CHECK_OK(manifest_parse(&got, &arena, omm_buf_view(&text)));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *begin = (const char *)text.data, *at = strstr(begin, from);
    CHECK(at != NULL);
    if (at)
        CHECK_OK(
            omm_buf_printf(&changed, "%.*s%s%s", (int)(at - begin), begin, to, at + strlen(from)));
    CHECK_ERR(manifest_parse(&got, &arena, omm_buf_view(&changed)), want);
    if (!strstr(omm_err_sentence(), says)) fprintf(stderr, "%s\n", omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), says) != NULL);
    omm_arena_fini(&arena);
    omm_buf_fini(&changed);
    omm_buf_fini(&text);
}

/* What it says of itself, and of each file; nothing may be spelled in two ways. */
static void test_manifest_refuses(void) {
    manifest_refused("\"schema_version\": 1", "\"schema_version\": 2", OMM_ERR_VERSION,
                     "schema_version 2, this reads 1");
    manifest_refused("\"omm-bundle\"", "\"omm-bundel\"", OMM_ERR_FORMAT, "kind is not omm-bundle");
    manifest_refused("\"bytes\": 3", "\"bytes\":  3", OMM_ERR_FORMAT,
                     "is not in canonical spelling");
    manifest_refused("\"commit\"", "\"commis\": 1,\n  \"commit\"", OMM_ERR_FORMAT,
                     "is not in canonical spelling, or has unknown members");
    manifest_refused("\"class\": \"M\"", "\"class\": \"D\"", OMM_ERR_FORMAT,
                     "measured/a: class is 'D' and must be M");
    manifest_refused("\"measured/a\"", "\"measured/../run.json\"", OMM_ERR_FORMAT,
                     "file 0: the path leaves the bundle");
    manifest_refused("\"measured/a\"", "\"a\"", OMM_ERR_FORMAT, "file 0: a is not a path");
    manifest_refused("\"policy.yaml\"", "\"manifest.json\"", OMM_ERR_FORMAT,
                     "file 1: manifest.json is not a path of a bundle");
    manifest_refused("\"policy.yaml\"", "\"gates.json\"", OMM_ERR_FORMAT,
                     "files are not in order at gates.json");
    manifest_refused("\"bytes\": 9", "\"bytes\": 1048577", OMM_ERR_TOO_BIG,
                     "policy.yaml: 1048577 bytes, at most 1048576");
}

static void test_manifest_head_refuses(void) {
    static const char *const lists[] = {"    {\n  \"kind\": 1,", "", "  ]", " ],", "  ],\n  ],"};
    char dir[OMM_PATH_MAX];
    kit_temp_dir(dir);
    const manifest m = manifest_of(NULL, 0);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        omm_buf text;
        omm_arena arena;
        manifest got;
        omm_buf_init(&text, 65536);
        omm_arena_init(&arena, 65536);
        CHECK_OK(manifest_put_begin(&text, &m));
        CHECK_OK(omm_buf_printf(&text, "\n%s", lists[i]));
        CHECK_OK(manifest_put_end(&text, &m, 1));
        CHECK_ERR(read_head(&got, &arena, dir, omm_buf_view(&text)), OMM_ERR_FORMAT);
        omm_arena_fini(&arena);
        omm_buf_fini(&text);
    }
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    test_manifest_spelling();
    test_manifest_head();
    test_manifest_refuses();
    test_manifest_head_refuses();
    test_manifest_of_a_million();
    test_put();
    test_moved_away();
    test_lines();
    test_failed_line();
    test_one_writer();
    test_many_lines();
    test_lines_of_a_long_run();
    test_held();
    test_seal();
    test_seal_refuses();
    test_seal_without_memory();
    test_evidence_digest();
    return 0;
}
