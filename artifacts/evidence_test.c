#include "internal.h"
#include "omm/evidence.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

static void check_class(const char *path, omm_bundle_class class) {
    if (omm_bundle_classify(NULL, path) != class) {
        fprintf(stderr, "class of %s\n", path);
        exit(1);
    }
}

static void test_paths(void) {
    omm_digest d = omm_hash(omm_bytes_str("x"));
    check_class("scenario.yaml", OMM_BUNDLE_DETERMINISTIC);
    check_class("manifest.json", OMM_BUNDLE_MANIFEST);
    check_class(omm_bundle_path_offer(0).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_offer(1234).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_submission(7, &d).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_receipt(7, &d).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_payload(&d).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_refused(1, 12, "REFUSED_NORM", true).text,
                OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_refused(1, 0, "TOO_BIG", false).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_refused_receipt(1, 12).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_adapter(100).text, OMM_BUNDLE_DETERMINISTIC);
    check_class(omm_bundle_path_master(0).text, OMM_BUNDLE_DETERMINISTIC);
    check_class("virtual/timeline.jsonl", OMM_BUNDLE_VIRTUAL);
    check_class("measured/times.json", OMM_BUNDLE_MEASURED);
    check_class("junit.xml", OMM_BUNDLE_MEASURED);
    static const char *const refused[] = {
        "",
        "x",
        "../scenario.yaml",
        "/scenario.yaml",
        "./scenario.yaml",
        "offers/r0.env",
        "offers/r00.env",
        "offers/r0001.env",
        "offers/r000.envx",
        "offers/r000",
        "offers//r000.env",
        "submissions/r000-0123456789ABCDEF.env",
        "submissions/r000-0123456789abcde.env",
        "payloads/abc.bin",
        "refused/r000-00-REFUSED_NORM.env",
        "refused/r000-0-lower.env",
        "virtual/",
        "virtual/a/b",
        "virtual/.hidden",
        "measured/a b",
        "eval/other.jsonl",
        "eval\\after.jsonl",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check_class(refused[i], OMM_BUNDLE_UNKNOWN);
}

/* Every bit flipped and every truncation of a canonical record: refused, or another record with its
 * own canonical spelling (parse checks that), never out of bounds. */
typedef omm_err (*try_parse)(omm_arena *arena, omm_bytes text);

static omm_err try_run(omm_arena *arena, omm_bytes text) {
    omm_run_record r;
    return omm_run_record_parse(&r, arena, text);
}
static omm_err try_round(omm_arena *arena, omm_bytes text) {
    omm_round_record r;
    return omm_round_record_parse(&r, arena, text);
}
static omm_err try_ledger(omm_arena *arena, omm_bytes text) {
    omm_ledger_record r;
    (void)arena;
    return omm_ledger_record_parse(&r, text);
}
static omm_err try_eval(omm_arena *arena, omm_bytes text) {
    omm_eval_record r;
    return omm_eval_record_parse(&r, arena, text);
}
static omm_err try_state(omm_arena *arena, omm_bytes text) {
    omm_state_record r;
    (void)arena;
    return omm_state_record_parse(&r, text);
}
static omm_err try_wire(omm_arena *arena, omm_bytes text) {
    omm_wire_record r;
    return omm_wire_record_parse(&r, arena, text);
}
static omm_err try_repro(omm_arena *arena, omm_bytes text) {
    omm_repro_record r;
    return omm_repro_record_parse(&r, arena, text);
}
static omm_err try_manifest(omm_arena *arena, omm_bytes text) {
    manifest m;
    return manifest_parse(&m, arena, text);
}

static omm_err parse_once(try_parse parse, omm_bytes text) {
    omm_arena arena;
    omm_arena_init(&arena, 1u << 22);
    omm_err err = parse(&arena, text);
    omm_arena_fini(&arena);
    return err;
}

static void batter(const char *name, try_parse parse, omm_bytes text) {
    size_t live = omm_mem_live();
    fprintf(stderr, "%s: %zu bytes\n", name, text.size);
    CHECK_OK(parse_once(parse, text));
    for (size_t size = 0; size < text.size; size++)
        CHECK(parse_once(parse, omm_bytes_of(text.data, size)) != OMM_OK);
    uint8_t *copy = omm_alloc(text.size + 1, 1);
    CHECK(copy != NULL);
    memcpy(copy, text.data, text.size);
    for (size_t bit = 0; bit<8 * text.size; bit += text.size> 1000 ? 13 : 1) {
        copy[bit / 8] = (uint8_t)(copy[bit / 8] ^ (1u << bit % 8));
        (void)parse_once(parse, omm_bytes_of(copy, text.size));
        copy[bit / 8] = text.data[bit / 8];
    }
    copy[text.size] = ' '; /* another spelling of the same value */
    CHECK(parse_once(parse, omm_bytes_of(copy, text.size + 1)) != OMM_OK);
    omm_free(copy);
    for (size_t nth = 1;; nth++) {
        omm_mem_fail_nth(nth);
        omm_err err = parse_once(parse, text);
        omm_mem_fail_nth(0);
        if (err == OMM_OK) break;
        CHECK(nth < 10000);
    }
    CHECK_EQ(omm_mem_live(), live);
}

static void first_line(omm_bytes *line, const omm_buf *text) {
    const uint8_t *end = memchr(text->data, '\n', text->size);
    CHECK(end != NULL);
    *line = omm_bytes_of(text->data, (size_t)(end - text->data) + 1);
}

static void test_records(void) {
    static const struct {
        const char *path;
        try_parse parse;
        bool lines;
    } files[] = {
        {"run.json", try_run, false},
        {"rounds.jsonl", try_round, true},
        {"ledger.jsonl", try_ledger, true},
        {"eval/after.jsonl", try_eval, true},
        {"eval/rounds.jsonl", try_state, true},
        {"measured/wire.json", try_wire, false},
        {"measured/repro.json", try_repro, false},
        {"manifest.json", try_manifest, false},
    };
    kit k;
    kit_options options = {0};
    kit_make(&k, &options);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        omm_buf text;
        omm_bytes view;
        omm_buf_init(&text, 1u << 20);
        kit_read(&text, k.dir, files[i].path);
        view = omm_buf_view(&text);
        if (files[i].lines) first_line(&view, &text);
        batter(files[i].path, files[i].parse, view);
        omm_buf_fini(&text);
    }
    kit_remove(&k);
}

static void refuse(try_parse parse, const char *text, omm_err want) {
    if (parse_once(parse, omm_bytes_str(text)) == want) return;
    fprintf(stderr, "%s: expected %s, got %s\n", text, omm_err_name(want), omm_err_detail());
    exit(1);
}

static void test_refused(void) {
    refuse(try_state, "{\"items\":1,\"loss\":0.5,\"state\":-1}\n", OMM_ERR_FORMAT);
    refuse(try_state, "{\"items\":1,\"loss\":0.5}\n", OMM_ERR_NOT_FOUND);
    refuse(try_state, "{\"items\":1,\"loss\":0.5,\"state\":1,\"x\":1}\n", OMM_ERR_FORMAT);
    refuse(try_state, "{\"items\":1, \"loss\":0.5,\"state\":1}\n", OMM_ERR_FORMAT);
    refuse(try_state, "{\"items\":1,\"items\":1,\"loss\":0.5,\"state\":1}\n", OMM_ERR_FORMAT);
    refuse(try_state, "[1]\n", OMM_ERR_FORMAT);
    refuse(try_wire,
           "{\"commit\":\"c\",\"nodes\":[],\"run_id\":\"00000000000000000000000000000000\","
           "\"schema_version\":2}\n",
           OMM_ERR_VERSION);
    refuse(try_wire,
           "{\"commit\":\"c\",\"nodes\":[1],\"run_id\":\"00000000000000000000000000000000\","
           "\"schema_version\":1}\n",
           OMM_ERR_FORMAT);
}

/* Replies are whatever the model said. */
static void test_bad_utf8(void) {
    omm_eval_record row = {.client = "c",
                           .skill = "s",
                           .tokens = 1,
                           .reply = "a\xff"
                                    "b\xc3"
                                    "\xf0\x9f\x98\x80\xed\xa0\x80"};
    omm_buf out;
    omm_arena arena;
    omm_buf_init(&out, 4096);
    omm_arena_init(&arena, 4096);
    CHECK_OK(omm_eval_record_write(&out, &row));
    omm_eval_record back;
    CHECK_OK(omm_eval_record_parse(&back, &arena, omm_buf_view(&out)));
    CHECK(strcmp(back.reply, "a\xef\xbf\xbd"
                             "b\xef\xbf\xbd\xf0\x9f\x98\x80"
                             "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") == 0);
    row.nll = 1.0 / 0.0;
    CHECK_ERR(omm_eval_record_write(&out, &row), OMM_ERR_NUMERIC);
    omm_arena_fini(&arena);
    omm_buf_fini(&out);
}

static void test_lines(void) {
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_arena arena;
    omm_arena_init(&arena, 4096);
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_bytes_str("a\nbc\n"), 2));
    CHECK_EQ(count, 2);
    CHECK_EQ(lines[1].size, 3);
    CHECK_OK(omm_evidence_lines(&lines, &count, &arena, omm_bytes_str(""), 2));
    CHECK_EQ(count, 0);
    CHECK_ERR(omm_evidence_lines(&lines, &count, &arena, omm_bytes_str("a"), 2), OMM_ERR_FORMAT);
    CHECK_ERR(omm_evidence_lines(&lines, &count, &arena, omm_bytes_str("a\n\n"), 9),
              OMM_ERR_FORMAT);
    CHECK_ERR(omm_evidence_lines(&lines, &count, &arena, omm_bytes_str("a\nb\nc\n"), 2),
              OMM_ERR_TOO_BIG);
    omm_arena_fini(&arena);
}

int main(void) {
    test_paths();
    test_refused();
    test_bad_utf8();
    test_lines();
    test_records();
    return 0;
}
