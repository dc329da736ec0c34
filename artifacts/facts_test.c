/* facts_test.c - rounds.jsonl, run.json, eval/ and the manifest, each with one
 * fact that does not fit the others; sealed by the real key, so that no
 * checksum tells, and the check that is there for it has to.  And what a
 * service leaves out. */
#include "internal.h"
#include "omm/bundle.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

enum { LAST = KIT_ROUNDS - 1 };

static kit s_kit;
static omm_buf s_text; /* of the honest file */
static omm_arena s_arena;

static omm_bytes take(const char *path) {
    omm_buf_clear(&s_text);
    omm_arena_fini(&s_arena);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    kit_read(&s_text, s_kit.dir, path);
    return omm_buf_view(&s_text);
}

/* --- rounds.jsonl --- */

/* Lists of a round that a test may change. */
typedef struct line {
    omm_round_record r;
    omm_round_accepted accepted[KIT_NODES];
    omm_round_refused refused[1];
    omm_digest selected[KIT_NODES + 1], missing[KIT_NODES + 1];
    size_t number;
} line;

static void take_line(line *l, size_t number) {
    omm_bytes *lines = NULL;
    size_t count = 0;
    const omm_bytes text = take("rounds.jsonl");
    CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, KIT_ROUNDS));
    CHECK_OK(omm_round_record_parse(&l->r, &s_arena, lines[number]));
    l->number = number;
    memset(l->selected, 0xff, sizeof l->selected);
    memset(l->missing, 0xff, sizeof l->missing);
    for (size_t i = 0; i < l->r.accepted_count; i++) l->accepted[i] = l->r.accepted[i];
    for (size_t i = 0; i < l->r.selected_count; i++) l->selected[i] = l->r.selected[i];
    for (size_t i = 0; i < l->r.missing_count; i++) l->missing[i] = l->r.missing[i];
    if (l->r.refused_count) l->refused[0] = l->r.refused[0];
    l->r.accepted = l->accepted;
    l->r.refused = l->refused;
    l->r.selected = l->selected;
    l->r.missing = l->missing;
}

static void line_fails(const line *l, const char *check, const char *path, const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf out;
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, omm_buf_view(&s_text), KIT_ROUNDS));
    for (size_t i = 0; i < count; i++)
        if (i == l->number)
            CHECK_OK(omm_round_record_write(&out, &l->r));
        else
            CHECK_OK(omm_buf_append(&out, lines[i].data, lines[i].size));
    kit_copy(dir, s_kit.dir);
    kit_write(dir, "rounds.jsonl", omm_buf_view(&out));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, check, path, said);
    omm_buf_fini(&out);
}

static void swap(omm_digest *list) {
    const omm_digest first = list[0];
    list[0] = list[1];
    list[1] = first;
}

#define LINE_SAYS(round_, check, path, said, ...)                                                  \
    take_line(&l, round_);                                                                         \
    __VA_ARGS__;                                                                                   \
    line_fails(&l, check, path, said)
#define ROUND_SAYS(round_, said, ...) LINE_SAYS(round_, "run", "rounds.jsonl", said, __VA_ARGS__)

static void test_rounds(void) {
    line l;
    ROUND_SAYS(LAST, "line 3 is of round 1", l.r.round = 1);
    ROUND_SAYS(LAST, "round 2: nodes are not ascending", swap(l.selected));
    ROUND_SAYS(LAST, "round 2: nodes are not ascending", l.selected[2] = l.selected[1]);
    ROUND_SAYS(1, "round 1: nodes are not ascending", swap(l.missing));
    ROUND_SAYS(LAST, "round 2: accepted nodes are not ascending", {
        l.accepted[0] = l.accepted[1];
        l.accepted[1] = l.r.accepted[0];
    });
    ROUND_SAYS(0, "round 0: accepted nodes are not ascending", {
        l.accepted[1].node = l.accepted[2].node;
        l.accepted[2].node = s_kit.ids[1];
    });
    ROUND_SAYS(LAST, "round 2 is void, and yet evaluated or published", l.r.voided = true);
    ROUND_SAYS(1, "round 1 is void, and yet evaluated or published", l.r.published = true);
    ROUND_SAYS(1, "round 1 is void, and yet evaluated or published", l.r.evaluated = true);
    ROUND_SAYS(LAST, "round 2 was not evaluated", l.r.evaluated = false);
    ROUND_SAYS(1,
               "round 1 is not void, with 1 accepted, and scenario.yaml says "
               "accept_min: 2",
               l.r.voided = false);
    ROUND_SAYS(LAST, "round 2 is void, with 2 accepted, and scenario.yaml says accept_min: 2",
               l.r.voided = true);
    ROUND_SAYS(LAST, "round 2 was evaluated on 0 items", l.r.eval_items = 0);
    ROUND_SAYS(LAST, "round 2: selected node 0 is missing and settled", {
        l.missing[0] = s_kit.ids[0];
        l.r.missing_count = 1;
    });
    ROUND_SAYS(LAST, "round 2: selected node 2 is missing and settled", { /* refused by name */
                                                                          l.missing[0] =
                                                                              s_kit.ids[2];
                                                                          l.r.missing_count = 1;
    });
    ROUND_SAYS(1, "round 1: selected node 2 is neither settled nor missing", l.r.missing_count--);
    ROUND_SAYS(LAST, "round 2: selected node 3 is not enrolled", l.r.selected_count++);
    ROUND_SAYS(LAST, "round 2: missing node 0 was not selected", l.r.missing_count++);
    ROUND_SAYS(LAST, "round 2: accepted node 0 was not selected", {
        l.r.selected_count--;
        l.selected[0] = l.selected[1];
        l.selected[1] = l.selected[2];
    });
}

/* A round goes on from where the one before it ended, or from an earlier state.
 */
static void test_begins(void) {
    line l;
    for (uint32_t begins = LAST; begins < LAST + 2; begins++) {
        char said[64];
        snprintf(said, sizeof said, "line 3: round 2 begins from state %u, not an earlier one",
                 begins);
        ROUND_SAYS(LAST, said, {
            l.r.has_begins = true;
            l.r.begins = begins;
        });
    }
}

/* It becomes part of a file's name. */
static void test_reasons(void) {
    static const char *const names[] = {"",  "refused_NORM", "A/B",           "A-B",
                                        ".", "A B",          "REFUSED_NORM\n"};
    line l;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ROUND_SAYS(LAST, "line 3: ", l.refused[0].reason = names[i]);
    }
}

/* What can be recomputed from payloads. */
static void test_sums(void) {
    line l;
    omm_bundle_path sent;
    take_line(&l, LAST);
    sent = omm_bundle_path_payload(&l.accepted[0].payload);
    LINE_SAYS(LAST, "payloads", sent.text, "norm is ", l.accepted[0].norm *= 2);
    LINE_SAYS(LAST, "payloads", sent.text, "canonical digest is not what rounds.jsonl says",
              l.accepted[0].canonical.b[31] ^= 1);
    LINE_SAYS(LAST, "aggregation", "rounds.jsonl", "round 2: weights sum to 1100, and the line",
              l.r.weight_sum--);
    LINE_SAYS(1, "aggregation", "rounds.jsonl", "round 1: weights sum to 500, and the line says",
              l.r.weight_sum++);
    LINE_SAYS(LAST, "aggregation", "adapters/master-r003.f32",
              "is not what rounds.jsonl names: another digest", l.r.master.b[31] ^= 1);
    LINE_SAYS(LAST, "broadcast", "adapters/r003.bin",
              "is not what rounds.jsonl names: another digest", l.r.broadcast.b[31] ^= 1);
    /* Said to be held back, it is another state all the same. */
    LINE_SAYS(LAST, "broadcast", "adapters/r003.bin", "changed, though round 2 was not published",
              l.r.published = false);
    LINE_SAYS(LAST, "aggregation", "adapters/master-r003.f32", "value 0 is ",
              l.r.published = false);
    /* Begun from an earlier state than it was. */
    LINE_SAYS(LAST, "aggregation", "adapters/master-r003.f32", "value 0 is ", {
        l.r.has_begins = true;
        l.r.begins = 0;
    });
    LINE_SAYS(LAST, "offers", "offers/r002.env", "global adapter is not adapters/r000.bin", {
        l.r.has_begins = true;
        l.r.begins = 0;
    });
    LINE_SAYS(LAST, "broadcast", "offers/r002.env",
              "global.canonical_digest is not that of the adapter it names", {
                  l.r.has_begins = true;
                  l.r.begins = 0;
              });
}

/* --- eval/ --- */

static void test_losses(void) {
    line l;
    LINE_SAYS(LAST, "eval", "rounds.jsonl", "round 2: loss went from 2.75 to 3.5, and it was",
              l.r.eval_loss = 3.5);
    LINE_SAYS(LAST, "eval", "rounds.jsonl", "round 2: loss went from ", l.r.published = false);
    /* From that of the state that it began from. */
    LINE_SAYS(LAST, "eval", "rounds.jsonl", "round 2: loss went from 2.67391 to 9, and it was", {
        l.r.has_begins = true;
        l.r.begins = 0;
        l.r.eval_loss = 9;
    });
    LINE_SAYS(LAST, "eval", "eval/rounds.jsonl", "round 2 is not what rounds.jsonl says",
              l.r.eval_loss = 2.5);
    LINE_SAYS(LAST, "eval", "eval/rounds.jsonl", "round 2 is not what rounds.jsonl says",
              l.r.eval_items++);
    LINE_SAYS(LAST, "eval", "eval/rounds.jsonl", "has lines of no round", l.r.evaluated = false);
    LINE_SAYS(1, "eval", "eval/rounds.jsonl", "round 2 is not what rounds.jsonl says", {
        l.r.evaluated = true;
        l.r.eval_items = KIT_SAMPLE;
        l.r.eval_loss = 1;
    });
}

#undef ROUND_SAYS
#undef LINE_SAYS

/* `number` says it of line `number` of eval/rounds.jsonl: 0, 1, 3 are the
 * states. */
static void state_fails(size_t number, const omm_state_record *s, const char *said) {
    char dir[OMM_PATH_MAX];
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    const omm_bytes text = take("eval/rounds.jsonl");
    CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, 9));
    CHECK_EQ(count, 3);
    for (size_t i = 0; i < count; i++)
        if (i == number)
            CHECK_OK(omm_state_record_write(&out, s));
        else
            CHECK_OK(omm_buf_append(&out, lines[i].data, lines[i].size));
    kit_copy(dir, s_kit.dir);
    kit_write(dir, "eval/rounds.jsonl", omm_buf_view(&out));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, "eval", "eval/rounds.jsonl", said);
    omm_buf_fini(&out);
}

static void test_states(void) {
    state_fails(0, &(omm_state_record){1, KIT_SAMPLE, 2.75}, "line 1 is not of state 0");
    state_fails(0, &(omm_state_record){0, KIT_SAMPLE - 1, 2.75}, "line 1 is of 3 items, and scen");
    state_fails(0, &(omm_state_record){0, KIT_ITEMS + 1, 2.75}, "7 items were judged, and there");
    state_fails(0, &(omm_state_record){0, 0, 2.75}, "0 items were judged, and there are 6");
    state_fails(1, &(omm_state_record){2, KIT_SAMPLE, 2.75}, "round 0 is not what rounds.jsonl");
    state_fails(1, &(omm_state_record){1, KIT_SAMPLE, 2.5}, "round 0 is not what rounds.jsonl");
    state_fails(1, &(omm_state_record){1, 5, 2.75}, "round 0 is not what rounds.jsonl says");
    state_fails(1, &(omm_state_record){1, 5, 2.75}, "line 2 is of 5 items, and line 1 of 4");
    state_fails(2, &(omm_state_record){3, 0, 2.5}, "line 3 is of 0 items, and line 1 of 4");
}

/* Rows of one file of eval/ are of the items of the other, whatever it is that
 * tells them apart. */
static void row_fails(const char *path, size_t number, void (*change)(omm_eval_record *row),
                      const char *said) {
    char dir[OMM_PATH_MAX];
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_eval_record row;
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    const omm_bytes text = take(path);
    CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, KIT_ITEMS));
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(omm_eval_record_parse(&row, &s_arena, lines[i]));
        if (i == number) change(&row);
        CHECK_OK(omm_eval_record_write(&out, &row));
    }
    kit_copy(dir, s_kit.dir);
    kit_write(dir, path, omm_buf_view(&out));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, "eval", path, said);
    omm_buf_fini(&out);
}

static void other_item(omm_eval_record *row) {
    row->item.b[31] ^= 1;
}
static void more_tokens(omm_eval_record *row) {
    row->tokens++;
}
static void other_kind(omm_eval_record *row) {
    row->is_tool = !row->is_tool;
}
static void other_client(omm_eval_record *row) {
    row->client = "home-09";
}
static void other_skill(omm_eval_record *row) {
    row->skill = "tell";
}

static void not_generated(omm_eval_record *row) {
    row->generated = row->parsed = row->tool_ok = row->exact = false;
    row->reply = "";
}

static void test_rows(void) {
    void (*const changes[])(omm_eval_record * row) = {other_item, more_tokens, other_kind,
                                                      other_client, other_skill};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        row_fails("eval/before.jsonl", 0, changes[i],
                  "line 1 is of another item than in eval/after");
        row_fails("eval/control.jsonl", KIT_ITEMS - 1, changes[i],
                  "line 6 is of another item than in eval/after");
    }
    row_fails("eval/before.jsonl", 0, not_generated, "line 1 has no reply, and scenario.yaml says");
    row_fails("eval/after.jsonl", KIT_ITEMS - 1, not_generated,
              "line 6 has no reply, and scenario.yaml");
}

/* A file that is judged on fewer items than were agreed, or on one of them twice. */
static void test_row_count(void) {
    static const char *const paths[] = {"eval/before.jsonl", "eval/after.jsonl",
                                        "eval/control.jsonl"};
    for (size_t p = 0; p < 3; p++)
        for (int more = 0; more < 2; more++) {
            char dir[OMM_PATH_MAX];
            omm_bytes *lines = NULL;
            size_t count = 0;
            omm_buf out;
            omm_buf_init(&out, BUF_MAX);
            const omm_bytes text = take(paths[p]);
            CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, KIT_ITEMS));
            const omm_bytes last = lines[count - 1];
            CHECK_OK(omm_buf_append(&out, text.data, more ? text.size : text.size - last.size));
            if (more) CHECK_OK(omm_buf_append(&out, last.data, last.size));
            kit_copy(dir, s_kit.dir);
            kit_write(dir, paths[p], omm_buf_view(&out));
            kit_reseal(dir, &s_kit.bundle, true);
            kit_fails(&s_kit, dir, "eval", paths[p],
                      more ? "7 items, and run.json says 6" : "5 items, and run.json says 6");
            omm_buf_fini(&out);
        }
}

/* All files of eval/ say the same of an item, and it cannot be true: whose it is, or how long.  said: NULL, it can be. */
static void items_fail(void (*change)(omm_eval_record *row, size_t i), const char *said) {
    static const char *const paths[] = {"eval/before.jsonl", "eval/after.jsonl",
                                        "eval/control.jsonl"};
    char dir[OMM_PATH_MAX];
    kit_copy(dir, s_kit.dir);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        omm_bytes *lines = NULL;
        size_t count = 0;
        omm_eval_record row;
        omm_buf out;
        omm_buf_init(&out, BUF_MAX);
        const omm_bytes text = take(paths[p]);
        CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, KIT_ITEMS));
        for (size_t i = 0; i < count; i++) {
            CHECK_OK(omm_eval_record_parse(&row, &s_arena, lines[i]));
            change(&row, i);
            CHECK_OK(omm_eval_record_write(&out, &row));
        }
        kit_write(dir, paths[p], omm_buf_view(&out));
        omm_buf_fini(&out);
    }
    kit_reseal(dir, &s_kit.bundle, true);
    if (said) {
        kit_fails(&s_kit, dir, "eval", "eval/after.jsonl", said);
        return;
    }
    omm_verify_report r;
    kit_verify(&r, dir, &s_kit.bundle.public_key);
    for (size_t i = 0; i < r.failure_count; i++)
        CHECK(!strstr(r.failures[i].reason, "learned tokens") &&
              !strstr(r.failures[i].reason, "of client"));
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

static void nobodys(omm_eval_record *row, size_t i) {
    if (i == 4) row->client = "home-0";
}
static void look_alike(omm_eval_record *row, size_t i) {
    if (i == 4) row->client = "h\xd0\xbeme-02"; /* its o is a Cyrillic one */
}
static void nameless(omm_eval_record *row, size_t i) {
    if (i == 4) row->client = "";
}
/* Whose loss has risen, say. */
static void without_one(omm_eval_record *row, size_t i) {
    (void)i;
    if (strcmp(row->client, "home-03") == 0) row->client = "home-01";
}
static void too_long(omm_eval_record *row, size_t i) {
    if (i == 5) row->tokens = KIT_SEQ_MAX + 1;
}
static void longest(omm_eval_record *row, size_t i) {
    if (i == 5) row->tokens = KIT_SEQ_MAX;
}

static void more_cut(omm_run_record *run) {
    run->test_cut = KIT_ITEMS + 1;
}

static void all_cut(omm_run_record *run) {
    run->test_cut = KIT_ITEMS;
}

static void test_items(void) {
    items_fail(nobodys, "line 5 is of client home-0, whose data no node of run.json has");
    items_fail(look_alike, "line 5 is of client h??me-02, whose data no node of run.json has");
    items_fail(nameless, "line 5 is of client , whose data no node of run.json has");
    items_fail(without_one, "has no item of client home-03, whose data a node has");
    items_fail(too_long, "line 6 has 501 learned tokens, and the recipe's seq_max is 500");
    items_fail(longest, NULL);
    for (int more = 0; more < 2; more++) {
        kit k;
        omm_verify_report r;
        kit_make(&k, &(kit_options){.change_run = more ? more_cut : all_cut});
        kit_verify(&r, k.dir, &k.bundle.public_key);
        CHECK_EQ(r.intact, !more);
        for (size_t i = 0; i < r.failure_count; i++)
            CHECK(strcmp(r.failures[i].reason, "7 of 6 held-out items are said to be cut") == 0);
        omm_verify_report_fini(&r);
        kit_remove(&k);
    }
}

static void other_nll(omm_eval_record *row) {
    row->nll += 1e-9;
}
static void no_reply(omm_eval_record *row) {
    row->generated = false;
    row->reply = "";
}
static void is_exact(omm_eval_record *row) {
    row->exact = true;
}
static void other_reply(omm_eval_record *row) {
    row->reply = "no";
}

/* Of a call, which parses. */
static void as_call(omm_eval_record *row) {
    row->is_tool = row->generated = row->parsed = true;
    row->tool_ok = row->exact = false;
}
static void call_unread(omm_eval_record *row) {
    as_call(row);
    row->parsed = false;
}
static void right_tool(omm_eval_record *row) {
    as_call(row);
    row->tool_ok = true;
}

/* Line 3 of the file is of the item of line 1, and is changed: in what they differ. */
static void twins_fail(const kit *k, const char *path, void (*change)(omm_eval_record *row),
                       const char *what) {
    char dir[OMM_PATH_MAX], said[256], hex[OMM_DIGEST_HEX_SIZE];
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_eval_record row;
    omm_buf text, out;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&text, k->dir, path);
    CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, omm_buf_view(&text), KIT_ITEMS));
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(omm_eval_record_parse(&row, &s_arena, lines[i]));
        if (i == 0 && (change == call_unread || change == right_tool)) as_call(&row);
        if (i == 2) change(&row);
        CHECK_OK(omm_eval_record_write(&out, &row));
    }
    CHECK_OK(omm_eval_record_parse(&row, &s_arena, lines[0]));
    omm_digest_hex(hex, &row.item);
    kit_copy(dir, k->dir);
    kit_write(dir, path, omm_buf_view(&out));
    kit_reseal(dir, &k->bundle, true);
    snprintf(said, sizeof said, "lines 1 and 3 are of the same item %s, and differ in %s", hex,
             what);
    kit_fails(k, dir, "eval", path, said);
    omm_buf_fini(&text);
    omm_buf_fini(&out);
}

/* An item may be there twice, and of two clients, as a window of a text: it is judged alike then. */
static void test_twins(void) {
    static const struct {
        void (*change)(omm_eval_record *row);
        const char *what;
    } changes[] = {{more_tokens, "tokens"}, {other_kind, "kind"},   {other_nll, "nll"},
                   {no_reply, "generated"}, {is_exact, "exact"},    {other_reply, "reply"},
                   {call_unread, "parsed"}, {right_tool, "tool_ok"}};
    kit k;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.twins = true});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    if (!r.intact) kit_print(&r);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        twins_fail(&k, "eval/after.jsonl", changes[i].change, changes[i].what);
    twins_fail(&k, "eval/before.jsonl", other_nll, "nll");
    twins_fail(&k, "eval/control.jsonl", other_nll, "nll");
    kit_remove(&k);
}

/* --- ledger.jsonl --- */

static void test_ledger(void) {
    for (int field = 0; field < 5; field++) {
        char dir[OMM_PATH_MAX];
        omm_bytes *lines = NULL;
        size_t count = 0;
        omm_ledger_record row;
        omm_buf out;
        omm_buf_init(&out, BUF_MAX);
        const omm_bytes text = take("ledger.jsonl");
        CHECK_OK(omm_evidence_lines(&lines, &count, &s_arena, text, 9));
        CHECK_OK(omm_ledger_record_parse(&row, lines[count - 1]));
        if (field == 0) row.round--;
        if (field == 1) row.node = s_kit.ids[0];
        if (field == 2) row.up--;
        if (field == 3) row.down--;
        if (field == 4) row.fp32++;
        CHECK_OK(omm_buf_append(&out, text.data, text.size - lines[count - 1].size));
        CHECK_OK(omm_ledger_record_write(&out, &row));
        kit_copy(dir, s_kit.dir);
        kit_write(dir, "ledger.jsonl", omm_buf_view(&out));
        kit_reseal(dir, &s_kit.bundle, true);
        kit_fails(&s_kit, dir, "ledger", "ledger.jsonl",
                  "line 6 is not what the sizes of its messages give");
        omm_buf_fini(&out);
    }
}

/* --- without the files that all else builds on --- */

/* Not a byte more or less: it is only another file, and nothing of it can be
 * read. */
static void test_unreadable(void) {
    static const char *const paths[] = {"run.json", "rounds.jsonl"};
    static const char *const checks[] = {"run",      "offers",   "submissions", "receipts",
                                         "refusals", "payloads", "aggregation", "broadcast",
                                         "ledger",   "eval",     "close",       "adapter"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (size_t k = 0; k < sizeof checks / sizeof *checks; k++) {
            char dir[OMM_PATH_MAX];
            kit_copy(dir, s_kit.dir);
            (void)take(paths[i]);
            s_text.data[0] = '[';
            kit_write(dir, paths[i], omm_buf_view(&s_text));
            kit_fails(&s_kit, dir, checks[k],
                      strcmp(checks[k], "refusals") == 0  ? "rounds.jsonl"
                      : strcmp(checks[k], "adapter") == 0 ? "final.gguf"
                                                          : paths[i],
                      "");
        }
}

/* A state has as many values as run.json says. */
static void test_master_size(void) {
    static const char path[] = "adapters/master-r001.f32";
    char dir[OMM_PATH_MAX];
    (void)take(path);
    CHECK_EQ(s_text.size, 4 * KIT_VALUES);
    s_text.size -= 4;
    kit_copy(dir, s_kit.dir);
    kit_write(dir, path, omm_buf_view(&s_text));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, "aggregation", path, "52 bytes, expected 56");
}

/* --- run.json --- */

static omm_run_node s_nodes[KIT_NODES];

static void take_run(omm_run_record *run) {
    const omm_bytes text = take("run.json");
    CHECK_OK(omm_run_record_parse(run, &s_arena, text));
    for (size_t i = 0; i < KIT_NODES; i++) s_nodes[i] = run->nodes[i];
    run->nodes = s_nodes;
}

static void run_fails(const omm_run_record *run, const char *path, const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(omm_run_record_write(&out, run));
    kit_copy(dir, s_kit.dir);
    kit_write(dir, "run.json", omm_buf_view(&out));
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, "run", path, said);
    omm_buf_fini(&out);
}

/* As a service has them, but for what the test says. */
static void serve(omm_run_record *run) {
    run->simulated = run->has_seed = false;
    for (size_t i = 0; i < KIT_NODES; i++) {
        s_nodes[i].client = "";
        s_nodes[i].examples = 0;
        s_nodes[i].data_digest = (omm_digest){{0}};
    }
}

static void test_run(void) {
    omm_run_record run;
    char of_node[128], is_not[128], served[128];
    const char *name = s_kit.names[KIT_NODES - 1];
    omm_run_node *node = &s_nodes[KIT_NODES - 1];
    snprintf(of_node, sizeof of_node, "node %s: data_digest or examples, without a client", name);
    snprintf(is_not, sizeof is_not, "node %s: its id is not that of its key", name);
    snprintf(served, sizeof served, "node %s: client, data_digest or examples, of a service", name);
#define SAYS(path, said, ...)                                                                      \
    take_run(&run);                                                                                \
    __VA_ARGS__;                                                                                   \
    run_fails(&run, path, said)
#define RUN_SAYS(said, ...) SAYS("run.json", said, __VA_ARGS__)
    SAYS("rounds.jsonl", "3 rounds, and run.json says 4", run.rounds++);
    SAYS("rounds.jsonl", "3 rounds, and run.json says 2", run.rounds--);
    RUN_SAYS("codec keeps 15 of 14 values", run.codec_up.keep_count = KIT_VALUES + 1);
    RUN_SAYS("codec keeps 15 of 14 values", run.codec_down.keep_count = KIT_VALUES + 1);
    RUN_SAYS(is_not, node->id.b[31] ^= 1);
    RUN_SAYS(of_node, {
        node->client = "";
        node->examples = 0;
    });
    RUN_SAYS(of_node, {
        node->client = "";
        node->data_digest = (omm_digest){{0}};
    });
    RUN_SAYS(served, {
        serve(&run);
        node->client = "home-09";
    });
    RUN_SAYS(served, {
        serve(&run);
        node->examples = 1;
    });
    RUN_SAYS(served, {
        serve(&run);
        node->data_digest.b[31] = 1;
    });
#undef RUN_SAYS
#undef SAYS
}

/* Of a later form of the file it is said that it is one. */
static void test_versions(void) {
    static const char *const paths[] = {"run.json", "measured/wire.json", "measured/repro.json"};
    static const char key[] = "\"schema_version\":1";
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        omm_run_record run;
        omm_wire_record wire;
        omm_repro_record repro;
        const omm_bytes text = take(paths[i]);
        uint8_t *at = memmem(s_text.data, s_text.size, key, sizeof key - 1);
        CHECK(at != NULL);
        if (at) at[sizeof key - 2] = '2';
        CHECK_ERR(i == 0   ? omm_run_record_parse(&run, &s_arena, text)
                  : i == 1 ? omm_wire_record_parse(&wire, &s_arena, text)
                           : omm_repro_record_parse(&repro, &s_arena, text),
                  OMM_ERR_VERSION);
    }
}

/* --- a service --- */

/* Whose seed nobody knows, and whose nodes' data: nothing of that is asked, and
 * all the rest is. */
static void test_service(void) {
    kit k;
    omm_verify_report r;
    const omm_verify_options options = {.render = kit_render};
    kit_make(&k, &(kit_options){.change_run = kit_as_service, .no_control = true, .joined = true});
    kit_delete(k.dir, "measured/repro.json");
    /* A kill takes counts: what its nodes have moved at least nobody knows. */
    omm_wire_node nodes[KIT_NODES];
    omm_wire_record wire = {.commit = KIT_COMMIT, .nodes = nodes, .node_count = KIT_NODES};
    omm_run_record run;
    omm_buf_clear(&s_text);
    kit_read(&s_text, k.dir, "run.json");
    CHECK_OK(omm_run_record_parse(&run, &s_arena, omm_buf_view(&s_text)));
    for (size_t i = 0; i < KIT_NODES; i++)
        nodes[i] = (omm_wire_node){.node = k.ids[i], .up = 1, .down = 1};
    memcpy(wire.run_id, run.run_id, sizeof wire.run_id);
    omm_buf_clear(&s_text);
    CHECK_OK(omm_wire_record_write(&s_text, &wire));
    kit_write(k.dir, "measured/wire.json", omm_buf_view(&s_text));
    kit_reseal(k.dir, &k.stranger, true); /* its key is its own */
    CHECK_OK(omm_bundle_verify(&r, k.dir, &options));
    for (size_t i = 0; i < r.failure_count; i++)
        fprintf(stderr, "%s: %s: %s\n", r.failures[i].check, r.failures[i].path,
                r.failures[i].reason);
    CHECK(r.intact && !r.simulated && !r.wire_bounded);
    omm_verify_report_fini(&r);
    /* A file that simulate writes, too, makes none of it; and each node has a row. */
    wire.node_count = KIT_NODES - 1;
    omm_buf_clear(&s_text);
    CHECK_OK(omm_wire_record_write(&s_text, &wire));
    kit_write(k.dir, "measured/wire.json", omm_buf_view(&s_text));
    kit_write(k.dir, "measured/machine.json", omm_bytes_str("{}"));
    kit_reseal(k.dir, &k.stranger, true);
    CHECK_OK(omm_bundle_verify(&r, k.dir, &options));
    kit_said(&r, "verdicts", "measured/wire.json", "of run.json has no row");
    CHECK(!r.wire_bounded);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

/* A run whose scenario asks for no control has none, and is a good one. */
static void test_no_control(void) {
    kit k;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.no_control = true});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

/* --- the manifest --- */

static void sign_manifest(const char *dir, const manifest *m, const char *run_id) {
    char comment[128];
    omm_buf text, sig;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&sig, BUF_MAX);
    CHECK_OK(manifest_write(&text, m));
    snprintf(comment, sizeof comment, "openmeshmind bundle of run %s", run_id);
    CHECK_OK(omm_minisign_sign(&sig, &s_kit.bundle, omm_buf_view(&text), comment));
    kit_write(dir, "manifest.json", omm_buf_view(&text));
    kit_write(dir, "manifest.json.minisig", omm_buf_view(&sig));
    omm_buf_fini(&sig);
    omm_buf_fini(&text);
}

static void test_manifest(void) {
    char dir[OMM_PATH_MAX];
    manifest m;
#define MANIFEST_SAYS(path, said, ...)                                                             \
    CHECK_OK(manifest_parse(&m, &s_arena, take("manifest.json")));                                 \
    __VA_ARGS__;                                                                                   \
    kit_copy(dir, s_kit.dir);                                                                      \
    sign_manifest(dir, &m, m.run_id);                                                              \
    kit_fails(&s_kit, dir, "digests", path, said)
    MANIFEST_SAYS("manifest.json", "run_digest is not that of the files", m.run_digest.b[31] ^= 1);
    MANIFEST_SAYS("manifest.json", "scenario_digest is not that of scenario.yaml",
                  m.scenario_digest.b[31] ^= 1);
    MANIFEST_SAYS("manifest.json", "run_id is not that of run.json",
                  m.run_id[31] = m.run_id[31] == '0' ? '1' : '0');
    MANIFEST_SAYS("adapters/master-r000.f32", "is not the file that was sealed: another SHA-256",
                  m.files[0].sha256.b[31] ^= 1);
#undef MANIFEST_SAYS
    CHECK_OK(manifest_parse(&m, &s_arena, take("manifest.json")));
    kit_copy(dir, s_kit.dir);
    m.files[0].bytes--;
    sign_manifest(dir, &m, m.run_id);
    kit_fails(&s_kit, dir, "files", m.files[0].path, "has ");
    kit_copy(dir, s_kit.dir);
    m.files[0].bytes += 2;
    sign_manifest(dir, &m, m.run_id);
    kit_fails(&s_kit, dir, "files", m.files[0].path, "has ");
}

/* No byte of it is free, not even of the line that no signature holds. */
static void test_spelling(void) {
    static const char said[] = "is not spelled as a seal writes it";
    const char *path = "manifest.json.minisig";
    for (int i = 0; i < 5; i++) {
        char dir[OMM_PATH_MAX];
        (void)take(path);
        char *text = (char *)s_text.data;
        char *end = memchr(text, '\n', s_text.size);
        CHECK(end != NULL);
        if (i == 0) end[-1] = end[-1] == '0' ? '1' : '0'; /* of another key */
        if (i == 1) end[-20] = '-';
        if (i == 2) s_text.size--; /* no newline behind it */
        if (i == 3) text[s_text.size - 1] = '\r';
        if (i == 4) { /* \r\n: a minisign reads that, too */
            text[s_text.size - 1] = '\r';
            CHECK_OK(omm_buf_append(&s_text, "\n", 1));
        }
        kit_copy(dir, s_kit.dir);
        kit_write(dir, path, omm_buf_view(&s_text));
        kit_fails(&s_kit, dir, "signature", path, said);
    }
}

/* A bundle that is sealed, and of which run, is what its manifest says. */
static void test_sealed(void) {
    char dir[OMM_PATH_MAX], other[OMM_RUN_ID_SIZE];
    bool sealed = false;
    omm_digest digest = {{0}};
    manifest m;
    const omm_bytes text = take("manifest.json");
    CHECK_OK(manifest_parse(&m, &s_arena, text));
    memcpy(other, m.run_id, sizeof other);
    other[0] = other[0] == '0' ? '1' : '0';
    CHECK_OK(omm_bundle_sealed(&sealed, &digest, s_kit.dir, m.run_id));
    CHECK(sealed && omm_digest_equal(&digest, &s_kit.run_digest));
    CHECK_ERR(omm_bundle_sealed(&sealed, &digest, s_kit.dir, other), OMM_ERR_MISMATCH);
    kit_copy(dir, s_kit.dir);
    kit_delete(dir, "manifest.json");
    CHECK_OK(omm_bundle_sealed(&sealed, &digest, dir, m.run_id));
    CHECK(!sealed);
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    kit_make(&s_kit, &(kit_options){0});
    omm_buf_init(&s_text, BUF_MAX);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    test_rounds();
    test_begins();
    test_reasons();
    test_sums();
    test_losses();
    test_states();
    test_rows();
    test_row_count();
    test_items();
    test_twins();
    test_ledger();
    test_unreadable();
    test_master_size();
    test_run();
    test_versions();
    test_service();
    test_no_control();
    test_manifest();
    test_spelling();
    test_sealed();
    omm_arena_fini(&s_arena);
    omm_buf_fini(&s_text);
    kit_remove(&s_kit);
    return 0;
}
