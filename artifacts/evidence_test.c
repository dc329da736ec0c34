#include "internal.h"
#include "omm/evidence.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>
#include <unistd.h>

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
        "offers/r12345678.env", /* over any round */
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
        "measured/Wire.json", /* some file systems take it for wire.json */
        "virtual/Timeline.jsonl",
        "measured/wire.json.", /* the same */
        "virtual/timeline.jsonl..",
        "eval/other.jsonl",
        "eval\\after.jsonl",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check_class(refused[i], OMM_BUNDLE_UNKNOWN);
    char longest[OMM_BUNDLE_PATH_MAX + 1] = "virtual/";
    memset(longest + 8, 'a', OMM_BUNDLE_PATH_MAX - 8);
    check_class(longest, OMM_BUNDLE_UNKNOWN);
    longest[OMM_BUNDLE_PATH_MAX - 1] = '\0';
    check_class(longest, OMM_BUNDLE_VIRTUAL);
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
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
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

static omm_digest digest_of(size_t number) {
    return omm_hash(omm_bytes_of(&number, sizeof number));
}

/* A line with so many of each; its lists live in `arena`. */
enum { DRAWN = 12 };

static omm_round_record round_of(omm_arena *arena, size_t count, size_t refused_count) {
    static const double norms[] = {0, 1.5, 1e-300, 1e22, 0.1, 7};
    omm_digest *nodes = omm_arena_alloc(arena, count + 1, sizeof *nodes);
    omm_round_accepted *accepted = omm_arena_alloc(arena, count + 1, sizeof *accepted);
    omm_round_refused *refused = omm_arena_alloc(arena, refused_count + 1, sizeof *refused);
    CHECK(nodes && accepted && refused);
    for (size_t i = 0; i < count; i++) {
        nodes[i] = digest_of(10 * i);
        accepted[i] = (omm_round_accepted){nodes[i],
                                           digest_of(10 * i + 1),
                                           digest_of(10 * i + 2),
                                           i * 1000 * INT32_MAX,
                                           digest_of(10 * i + 3),
                                           digest_of(10 * i + 4),
                                           norms[i % 6]};
    }
    for (size_t i = 0; i < refused_count; i++)
        refused[i] = (omm_round_refused){i & 1, {{0}}, digest_of(i), i & 2, {{0}}, "REFUSED_NORM"};
    for (size_t i = 0; i < refused_count; i++) {
        if (refused[i].has_node) refused[i].node = digest_of(i + 1);
        if (refused[i].has_receipt) refused[i].receipt = digest_of(i + 2);
    }
    return (omm_round_record){.round = 9,
                              .selected = nodes,
                              .selected_count = count,
                              .accepted = accepted,
                              .accepted_count = count,
                              .refused = refused,
                              .refused_count = refused_count,
                              .missing = nodes,
                              .missing_count = count / 2,
                              .evaluated = count & 1,
                              .has_begins = count & 2,
                              .begins = 3};
}

static omm_err read_lists(omm_round_record *round, omm_bytes line) {
    omm_arena arena;
    omm_arena_init(&arena, 1u << 22);
    omm_err err = round_lists_read(round, &arena, line);
    omm_arena_fini(&arena);
    return err;
}

/* Of the size of its line: what reads beyond it is seen. */
static omm_err read_copy(const omm_round_record *head, omm_bytes line) {
    omm_round_record round = *head;
    uint8_t *copy = omm_alloc(line.size, 1);
    CHECK(copy != NULL);
    if (line.size) memcpy(copy, line.data, line.size);
    omm_err err = read_lists(&round, omm_bytes_of(copy, line.size));
    omm_free(copy);
    return err;
}

static void check_lists(const omm_round_record *head, omm_bytes line) {
    omm_round_record round = *head;
    omm_arena arena;
    omm_buf again;
    omm_arena_init(&arena, 1u << 22);
    omm_buf_init(&again, 65536);
    CHECK_OK(round_lists_read(&round, &arena, line));
    CHECK_OK(omm_round_record_write(&again, &round));
    CHECK(omm_bytes_equal(omm_buf_view(&again), line));
    omm_buf_fini(&again);
    omm_arena_fini(&arena);
}

static void batter_lists(const omm_round_record *head, omm_bytes line) {
    omm_round_record other = *head;
    uint8_t copy[8192];
    CHECK(line.size <= sizeof copy);
    memcpy(copy, line.data, line.size);
    for (size_t size = 0; size < line.size; size++)
        CHECK_ERR(read_copy(head, omm_bytes_of(line.data, size)), OMM_ERR_FORMAT);
    for (size_t bit = 0; bit < 8 * line.size; bit += 3) {
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)read_copy(head, omm_bytes_of(copy, line.size));
        copy[bit / 8] = line.data[bit / 8];
    }
    other.accepted_count++;
    CHECK_ERR(read_copy(&other, line), OMM_ERR_FORMAT);
    other = *head;
    other.refused_count++;
    CHECK_ERR(read_copy(&other, line), OMM_ERR_FORMAT);
    other = *head;
    other.selected_count++;
    CHECK_ERR(read_copy(&other, line), OMM_ERR_FORMAT);
    for (size_t nth = 1;; nth++) {
        other = *head;
        omm_mem_fail_nth(nth);
        omm_err err = read_lists(&other, line);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
    }
}

/* Lists read again are what was written, or refused. */
static void test_round_lists(void) {
    for (size_t count = 0; count <= 6; count++)
        for (size_t refused = 0; refused <= 4; refused++) {
            omm_arena arena;
            omm_buf line;
            omm_arena_init(&arena, 1u << 20);
            omm_buf_init(&line, 65536);
            omm_round_record round = round_of(&arena, count, refused);
            CHECK_OK(omm_round_record_write(&line, &round));
            round.selected = round.missing = NULL;
            round.accepted = NULL;
            round.refused = NULL;
            check_lists(&round, omm_buf_view(&line));
            if (count == 3 && refused == 3) batter_lists(&round, omm_buf_view(&line));
            omm_buf_fini(&line);
            omm_arena_fini(&arena);
        }
}

/* Byte `at` of a file, in its place. */
static void change_byte(const char *dir, const char *path, long at) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    FILE *file = fopen(full, "r+");
    CHECK(file != NULL);
    CHECK_EQ(fseek(file, at, SEEK_SET), 0);
    CHECK(fputc('x', file) == 'x');
    CHECK_EQ(fclose(file), 0);
}

/* A round is read again as it was when everything was loaded, or not at all. */
static void test_rounds_change(void) {
    kit k;
    evidence ev;
    const omm_round_record *round = NULL;
    kit_make_open(&k, &(kit_options){0});
    CHECK_OK(evidence_load(&ev, k.dir));
    CHECK_EQ(ev.round_count, KIT_ROUNDS);
    for (size_t r = KIT_ROUNDS; r-- > 0;) {
        CHECK_OK(evidence_round(&round, &ev, r));
        CHECK(round == evidence_at_hand(&ev, r));
        CHECK_EQ(round->round, r);
        CHECK(omm_digest_equal(&round->selected[0], &k.ids[0]));
        CHECK(omm_digest_equal(&round->accepted[0].node, &k.ids[0]));
        CHECK(ev.heads[r].accepted == NULL && ev.heads[r].selected == NULL);
    }
    change_byte(k.dir, "rounds.jsonl", (long)ev.lines[1].offset + 30);
    CHECK_OK(evidence_round(&round, &ev, 2));
    CHECK_ERR(evidence_round(&round, &ev, 1), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "changed while it was read") != NULL);
    CHECK_OK(evidence_round(&round, &ev, 2)); /* what was at hand is read anew */
    CHECK(omm_digest_equal(&round->accepted[0].node, &k.ids[0]));
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, k.dir, "rounds.jsonl"));
    CHECK_EQ(truncate(path, (off_t)ev.lines[2].offset), 0);
    CHECK_OK(evidence_round(&round, &ev, 0));
    CHECK_ERR(evidence_round(&round, &ev, 2), OMM_ERR_IO);
    evidence_fini(&ev);
    CHECK_OK(omm_dir_remove(k.dir));
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
    refuse(try_state, "{\"items\":1,\"loss\":0.5}\n", OMM_ERR_FORMAT);
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

/* Rows of wire.json that have what of them was adapters, or have not, all alike. */
static void test_wire_payloads(void) {
    omm_wire_node nodes[2] = {{.up = 10, .down = 20, .up_payload = 10, .down_payload = 20},
                              {.up = 10, .down = 20, .up_payload = 1, .down_payload = 2}};
    omm_wire_record wire = {.commit = "c", .nodes = nodes, .node_count = 2, .has_payloads = true};
    memset(wire.run_id, '0', sizeof wire.run_id - 1);
    nodes[1].node.b[0] = 1;
    for (int what = 0; what < 6; what++) {
        static const char *const names[] = {"", "", "", "", "\"up_payload\"", "\"down_payload\""};
        omm_buf text;
        omm_arena arena;
        omm_wire_record got;
        omm_buf_init(&text, 4096);
        omm_arena_init(&arena, 1 << 16);
        wire.has_payloads = what != 1;
        nodes[1].up_payload = what == 2 ? 11 : 1;
        nodes[1].down_payload = what == 3 ? 21 : 2;
        CHECK_OK(omm_wire_record_write(&text, &wire));
        if (what >= 4) { /* one row, or both, without: named otherwise, of the same length */
            uint8_t *at = memmem(text.data, text.size, names[what], strlen(names[what]));
            CHECK(at != NULL);
            if (at) at[1] = 'x';
        }
        const omm_err err = omm_wire_record_parse(&got, &arena, omm_buf_view(&text));
        CHECK_EQ(err == OMM_OK, what < 2);
        if (err == OMM_OK) {
            CHECK_EQ(got.has_payloads, what == 0);
            CHECK_EQ(got.nodes[0].up_payload, what == 0 ? 10 : 0);
            CHECK_EQ(got.nodes[1].down_payload, what == 0 ? 2 : 0);
        }
        omm_arena_fini(&arena);
        omm_buf_fini(&text);
    }
}

/* Replies are whatever the model said. */
static void test_bad_utf8(void) {
    omm_eval_record row = {.client = "c",
                           .skill = "s",
                           .tokens = 1,
                           .generated = true,
                           .reply = "a\xff"
                                    "b\xc3"
                                    "\xf0\x9f\x98\x80\xed\xa0\x80\xe2\x82\xac!"};
    omm_buf out;
    omm_arena arena;
    omm_buf_init(&out, 4096);
    omm_arena_init(&arena, 4096);
    CHECK_OK(omm_eval_record_write(&out, &row));
    omm_eval_record back;
    CHECK_OK(omm_eval_record_parse(&back, &arena, omm_buf_view(&out)));
    CHECK(strcmp(back.reply, "a\xef\xbf\xbd"
                             "b\xef\xbf\xbd\xf0\x9f\x98\x80"
                             "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xe2\x82\xac!") == 0);
    /* overlong, beyond U+10FFFF, cut off at the end: each byte by itself */
    static const char *const bad[] = {"\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                                      "\xc0\x80", "\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        row.reply = bad[i];
        omm_buf_clear(&out);
        CHECK_OK(omm_eval_record_write(&out, &row));
        CHECK_OK(omm_eval_record_parse(&back, &arena, omm_buf_view(&out)));
        CHECK_EQ(strlen(back.reply), 3 * strlen(bad[i]));
        for (size_t k = 0; k < strlen(back.reply); k += 3)
            CHECK(memcmp(back.reply + k, "\xef\xbf\xbd", 3) == 0);
    }
    row.nll = -0.0; /* has no spelling of its own */
    omm_buf_clear(&out);
    CHECK_OK(omm_eval_record_write(&out, &row));
    CHECK(memmem(out.data, out.size, "\"nll\":0.0,", 10) != NULL);
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

/* Where of two rounds' submissions stand in the order of what is repeated. */
static void order_of(uint32_t out[DRAWN], omm_arena *arena, const omm_round_record rounds[2]) {
    omm_audit_item *order = NULL;
    size_t count = 0;
    CHECK_OK(omm_audit_order(&order, &count, arena, rounds, 2));
    CHECK_EQ(count, DRAWN);
    for (size_t i = 0; i < count; i++) out[i] = order[i].round * DRAWN + order[i].index;
}

/* No receipt moves it, which the coordinator could sign until he likes it; any submission does. */
static void test_audit_order(void) {
    uint32_t first[DRAWN], again[DRAWN];
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    omm_round_record rounds[2] = {round_of(&arena, DRAWN / 2, 0), round_of(&arena, DRAWN / 2, 0)};
    omm_round_accepted own[DRAWN / 2], *last = &own[DRAWN / 2 - 1];
    memcpy(own, rounds[1].accepted, sizeof own);
    rounds[1].accepted = own;
    order_of(first, &arena, rounds);
    last->receipt.b[0] ^= 1;
    order_of(again, &arena, rounds);
    CHECK(same_bytes(first, again, sizeof first));
    last->submission.b[0] ^= 1;
    order_of(again, &arena, rounds);
    CHECK(!same_bytes(first, again, sizeof first));
    omm_arena_fini(&arena);
}

/* run.json of before, which does not say what adapters name the base by, is read and written as it was; one of both alone
 * is none. */
static void test_base_unnamed(void) {
    static const char fingerprint[] = "\"fingerprint\":", title[] = ",\"title\":\"Base\"";
    kit k;
    omm_buf text, before;
    omm_arena arena;
    omm_run_record run;
    const kit_options options = {0};
    kit_make(&k, &options);
    omm_buf_init(&text, 1 << 20);
    omm_buf_init(&before, 1 << 20);
    omm_arena_init(&arena, 1 << 20);
    kit_read(&text, k.dir, "run.json");
    CHECK_OK(omm_run_record_parse(&run, &arena, omm_buf_view(&text)));
    CHECK(strcmp(run.base.title, "Base") == 0 && !omm_digest_is_zero(&run.base.fingerprint));
    CHECK(run.test_cut == 0 && run.test_left_out == 0); /* nor what seq_max cut, which is none */
    CHECK(!memmem(text.data, text.size, "\"cut\"", 5) && !memmem(text.data, text.size, "left", 4));
    for (uint64_t i = 1; i < 4; i++) {
        omm_run_record cut = run, back;
        cut.test_cut = i & 1 ? 5 : 0;
        cut.test_left_out = i & 2 ? 6 : 0;
        omm_buf_clear(&before);
        CHECK_OK(omm_run_record_write(&before, &cut));
        CHECK_OK(omm_run_record_parse(&back, &arena, omm_buf_view(&before)));
        CHECK(back.test_cut == cut.test_cut && back.test_left_out == cut.test_left_out);
        uint8_t *number =
            memmem(before.data, before.size, i & 1 ? "\"cut\":5" : "left_out\":6", i & 1 ? 7 : 11);
        CHECK(number != NULL);
        if (number) number[i & 1 ? 6 : 10] = '0'; /* none is not written */
        CHECK_ERR(omm_run_record_parse(&back, &arena, omm_buf_view(&before)), OMM_ERR_FORMAT);
    }
    omm_buf_clear(&before);
    run.base.fingerprint = (omm_digest){{0}};
    CHECK_OK(omm_run_record_write(&before, &run));
    CHECK(!memmem(before.data, before.size, fingerprint, sizeof fingerprint - 1));
    CHECK(!memmem(before.data, before.size, title, sizeof title - 1));
    CHECK_OK(omm_run_record_parse(&run, &arena, omm_buf_view(&before)));
    CHECK(run.base.title[0] == 0 && omm_digest_is_zero(&run.base.fingerprint));
    uint8_t *at = memmem(text.data, text.size, title, sizeof title - 1);
    CHECK(at != NULL);
    memmove(at, at + sizeof title - 1, (size_t)(text.data + text.size - at) - sizeof title + 1);
    text.size -= sizeof title - 1;
    CHECK_ERR(omm_run_record_parse(&run, &arena, omm_buf_view(&text)), OMM_ERR_FORMAT);
    omm_arena_fini(&arena);
    omm_buf_fini(&before);
    omm_buf_fini(&text);
    kit_remove(&k);
}

/* Any of what was agreed is in its digest; who has joined is not. */
static void test_agreed(void) {
    const omm_bytes scenario = omm_bytes_str("name: a\n"), policy = omm_bytes_str("gates: {}\n");
    omm_run_node nodes[1] = {{.name = "a", .client = ""}};
    omm_segment segment = {"a", 1, 2, 0};
    omm_run_record run = {.name = "run", .rounds = 1, .layout = {&segment, 1, 2}};
    omm_digest want, got;
    memset(run.run_id, '0', sizeof run.run_id - 1);
    run.base.name = run.base.architecture = "x";
    run.value_max = 1;
    run.weight_sum_max = 1;
    CHECK_OK(omm_run_agreed(&want, &run, scenario, policy));
    run.nodes = nodes;
    run.node_count = 1;
    CHECK_OK(omm_run_agreed(&got, &run, scenario, policy));
    CHECK(omm_digest_equal(&want, &got));
    CHECK_OK(omm_run_agreed(&got, &run, policy, scenario));
    CHECK(!omm_digest_equal(&want, &got));
    CHECK_OK(omm_run_agreed(&got, &run, scenario, omm_bytes_str("gates: {} \n")));
    CHECK(!omm_digest_equal(&want, &got));
    run.test_items = 1;
    CHECK_OK(omm_run_agreed(&got, &run, scenario, policy));
    CHECK(!omm_digest_equal(&want, &got));
}

int main(void) {
    test_paths();
    test_refused();
    test_bad_utf8();
    test_lines();
    test_round_lists();
    test_rounds_change();
    test_records();
    test_audit_order();
    test_agreed();
    test_base_unnamed();
    test_wire_payloads();
    return 0;
}
