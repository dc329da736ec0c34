/* grammar_bare_test.c - bare calls: texts that are free until one has begun, held to it from there on; by bytes and tokens. */
#include "test_calls.h"

#include "omm/mem.h"

#define BARELY(name, arguments) "{\"name\": \"" name "\", \"parameters\": " arguments "}"

/* A bare call is all of the text, and has begun with the quote behind a tool's name; marked ones are calls as ever. */
static void test_bare_texts(void) {
    static const char *const yes[] = {
        "",
        " \n",
        "Hello.",
        BARELY("bare", "{}"),
        " \n\t" BARELY("bare", "{\"a\": [1]}"),
        "{\"name\":\"timer\",\"parameters\":{\"minutes\":90}}",
        BARELY("timer", "{\"minutes\": 9, \"label\": \"}\"}"),
        BARELY("tree", "{\"of\": [[], [[]]]}"),
        /* text: of no tool, of another spelling, not at the beginning, or not so far */
        "{\"name\": \"Ada\", \"age\": 36}",
        "{\"name\": \"bar\", \"x\": 1} and more",
        "{\"name\": \"barely\"}",
        "{\"name\":  \"bare\"}",
        "{ \"name\": \"bare\"}",
        "{\"name\" : \"bare\"}",
        "{\"nam\": \"bare\"}",
        "{\"name\": \"bare",
        "{\"name\": 1}",
        "{{\"name\": \"bare\", 1}",
        "[{\"name\": \"bare\", 1}]",
        "x " BARELY("timer", "1"),
        "\xc2\xa0" BARELY("timer", "1"),
        "{\"type\": \"function\", \"name\": \"barely\"}",
        "{\"type\": \"function\", \"name\": \"bare\", \"parameters\": {}}",
        " {\"type\":\"function\",\"name\":\"timer\",\"parameters\":{\"minutes\":90}}",
        "{\"type\": \"tool\", \"name\": \"bare\"}",
        "{\"type\": \"function\", \"nam\": \"bare\"}",
        "{\"type\": \"function\", \"name\": \"bare",
        ONE,
        " " ONE ONE,
        "{\"name\": " ONE,
        "{\"name\": \"" CALL("timer", "{\"minutes\": 1}"),
        "<" ONE,
        NULL,
    };
    static const char *const no[] = {
        "{\"name\": \"bare\"",
        "{\"name\": \"bare\"}",
        "{\"type\": \"function\", \"name\": \"bare\"}",
        "{\"type\": \"function\", \"name\": \"timer\", \"parameters\": {\"minutes\": 91}}",
        "{\"name\": \"bare\", \"type\": \"function\", \"parameters\": {}}",
        "{\"name\":\"bare\",",
        "{\"name\": \"bare\", \"arguments\": {}}",
        "{\"name\": \"bare\", \"parameters\": []}",
        "{\"name\": \"bare\", \"parameters\": {}",
        "{\"name\": \"bare\", \"parameters\": {}, \"id\": 1}",
        BARELY("bare", "{}") " ",
        BARELY("bare", "{}") "; " BARELY("bare", "{}"),
        BARELY("bare", "{}") ONE,
        BARELY("timer", "{\"minutes\": 91}"),
        BARELY("timer", "{\"label\": \"x\"}"),
        BARELY("tree", "{\"of\": [1]}"),
        "<tool_call>x",
        "{\"name\": <tool_call>x",
        "{<tool_call>" BARELY("bare", "{}") "</tool_call>",
        NULL,
    };
    tools t;
    read_tools(&t, TOOLS);
    t.calls.form = OMM_CALLS_BARE;
    omm_grammar *g = open_tools(&t);
    for (size_t i = 0; yes[i]; i++) check_text(g, yes[i], true);
    for (size_t i = 0; no[i]; i++) check_text(g, no[i], false);
    CHECK(omm_grammar_has_tool(g, omm_bytes_str("timer"), true));
    CHECK(omm_grammar_has_tool(g, omm_bytes_str("bare"), true));
    CHECK(!omm_grammar_has_tool(g, omm_bytes_str("bar"), true));
    CHECK(!omm_grammar_has_tool(g, omm_bytes_str("bare\""), true));
    CHECK(omm_grammar_has_tool(g, omm_bytes_str("bar"), false));
    CHECK(omm_grammar_has_tool(g, omm_bytes_str(""), false));
    CHECK(!omm_grammar_has_tool(g, omm_bytes_str("barely"), false));
    CHECK(!omm_grammar_has_tool(g, omm_bytes_str(""), true));
    omm_grammar_close(g);
    t.calls.form = OMM_CALLS_MARKED;
    g = open_tools(&t);
    check_text(g, "{\"name\": \"bare\"}", true);
    CHECK(omm_grammar_has_tool(g, omm_bytes_str("loose"), true));
    omm_grammar_close(g);
    CHECK_OK(omm_grammar_open_object(&g));
    CHECK(!omm_grammar_has_tool(g, omm_bytes_str("bare"), true));
    omm_grammar_close(g);
    json_decref(t.root);
}

/* One that is asked for is held from its first byte on. */
static void test_bare_begun(void) {
    tools t;
    bool whole = false;
    omm_grammar *g = NULL;
    read_tools(&t, TOOLS);
    t.calls.form = OMM_CALLS_BARE;
    t.calls.begun = omm_bytes_str(OMM_CHAT_BARE_OPENS);
    g = open_tools(&t);
    check_text(g, BARELY("timer", "{\"minutes\": 90}"), true);
    CHECK_EQ(follow(&whole, g, "{\"name\": 1"), 9);
    CHECK_EQ(follow(&whole, g, "{\"name\": \"x"), 10);
    CHECK_EQ(follow(&whole, g, "Hi"), 0);
    omm_grammar_close(g);
    t.calls.begun = omm_bytes_str("{\"name\": \"timer\", \"parameters\":");
    g = open_tools(&t);
    omm_grammar_close(g);
    t.calls.begun = omm_bytes_str("{\"name\": \"clock\", \"parameters\":");
    CHECK_ERR(omm_grammar_open_calls(&g, &t.calls), OMM_ERR_UNSUPPORTED);
    t.calls.begun = omm_bytes_str("<tool_call>\n{\"name\":");
    CHECK_ERR(omm_grammar_open_calls(&g, &t.calls), OMM_ERR_UNSUPPORTED);
    json_decref(t.root);
}

static void take_text(rig *r, omm_constraint *c, omm_buf *written, const char *text) {
    for (const char *p = text; *p; p++) {
        const uint32_t id = pick_byte(r, omm_constraint_allowed(c), *p);
        CHECK(id != RULE_NONE);
        check_allowed(r, c);
        take(r, c, written, id);
    }
}

/* Behind a tool's name whatever is drawn is its call; behind another name anything. */
static void test_drawn_bare(unsigned marks) {
    static const char *const names[] = {"timer", "tree", "loose", "bare", "clock"};
    rig r;
    tools t;
    open_rig(&r, false, marks);
    read_tools(&t, TOOLS);
    t.calls.form = OMM_CALLS_BARE;
    omm_grammar *g = open_tools(&t);
    for (unsigned round = 0; round < 40; round++) {
        char opens[64];
        omm_constraint *c = NULL;
        omm_chat_reply reply;
        omm_buf written;
        const bool is_tool = round % 5 < 4;
        omm_buf_init(&written, 1 << 20);
        CHECK_OK(omm_constraint_open(&c, g, r.lexicon));
        snprintf(opens, sizeof opens, "{\"name\": \"%s\"", names[round % 5]);
        take_text(&r, c, &written, opens);
        CHECK_EQ(stands_free(c, &r), !is_tool);
        CHECK_EQ(omm_constraint_permits(c, omm_tokenizer_eos(r.tokenizer)), !is_tool);
        for (unsigned i = 0; is_tool && !omm_constraint_has_ended(c); i++) {
            const uint32_t *allowed = omm_constraint_allowed(c);
            check_allowed(&r, c);
            const uint32_t id = i < round ? pick(&r, allowed) : pick_last(&r, allowed);
            take(&r, c, &written, id);
            CHECK(i < 100000);
        }
        if (is_tool) {
            const omm_err err =
                omm_chat_parse(&reply, omm_buf_view(&written), OMM_CALLS_BARE, NULL, NULL);
            if (err != OMM_OK) CHECK(strstr(omm_err_sentence(), "duplicate"));
            if (err == OMM_OK) {
                CHECK_EQ(reply.call_count, 1);
                CHECK(fits_tool(&reply.calls[0]));
                omm_chat_reply_fini(&reply);
            }
        }
        omm_constraint_close(c);
        omm_buf_fini(&written);
    }
    omm_grammar_close(g);
    json_decref(t.root);
    close_rig(&r);
}

/* All of it in a vocabulary of its own. */
static omm_grammar *open_bare(omm_constraint **c, rig *r, tools *t, const vocab_recipe *recipe) {
    r->tokenizer = open_vocab(recipe);
    /* of whole words of bits, as most models' are */
    const uint32_t ids = (omm_tokenizer_vocab(r->tokenizer) + 3 + 31) / 32 * 32;
    CHECK_OK(omm_lexicon_open(&r->lexicon, r->tokenizer, ids));
    read_tools(t, TOOLS);
    t->calls.form = OMM_CALLS_BARE;
    omm_grammar *g = open_tools(t);
    CHECK_OK(omm_constraint_open(c, g, r->lexicon));
    return g;
}

/* Tokens across the name and what follows it: with what may stand there, and with what may not. */
static void test_bare_tokens(void) {
    static const struct {
        const char *token;
        bool permitted;
    } first[] = {{"{\"name\":\"bare\",\"parameters\":{}}", true},
                 {"{\"name\":\"bare\",1", false},
                 {"{\"name\":\"bore\",1", true},
                 {"\n{\"name\": \"bare\"x", false},
                 {"x{\"name\":\"bare\",1", true},
                 {FIFTY FIFTY FIFTY "\"", true}};
    rig r = {0};
    tools t;
    vocab_recipe recipe = {.mark_type = TOKEN_USER};
    omm_constraint *c = NULL;
    for (size_t i = 0; i < 6; i++) recipe.marks[i] = first[i].token;
    omm_grammar *g = open_bare(&c, &r, &t, &recipe);
    for (size_t i = 0; i < 6; i++)
        CHECK_EQ(omm_constraint_permits(c, omm_tokenizer_special(r.tokenizer, first[i].token)),
                 first[i].permitted);
    check_allowed(&r, c);
    omm_constraint_take(c, omm_tokenizer_special(r.tokenizer, first[0].token));
    for (uint32_t id = 0; id < r.lexicon->vocab; id++)
        CHECK_EQ(lexicon_has(omm_constraint_allowed(c), id), id == omm_tokenizer_eos(r.tokenizer));
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.root);
    close_rig(&r);
}

/* A token longer than those of the trees changes nothing by being asked about, and none with a quote comes inside a name. */
static void test_bare_long(void) {
    static const char rest[] = "re\",\"parameters\":{\"a\":\"" FIFTY FIFTY FIFTY;
    static const char plain[] = FIFTY FIFTY FIFTY;
    static const char opens[] = FIFTY FIFTY FIFTY "<tool_call>";
    static const char text[] = "{\"name\": \"bare\"";
    rig r = {0};
    tools t;
    vocab_recipe recipe = {.mark_type = TOKEN_USER, .marks = {rest, plain, opens}};
    omm_constraint *c = NULL;
    omm_buf written;
    omm_buf_init(&written, 1 << 10);
    omm_grammar *g = open_bare(&c, &r, &t, &recipe);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        const char one[2] = {text[i], 0};
        CHECK_EQ(omm_constraint_permits(c, omm_tokenizer_special(r.tokenizer, rest)), i == 0);
        CHECK(omm_constraint_permits(c, omm_tokenizer_special(r.tokenizer, plain)));
        CHECK(!omm_constraint_permits(c, omm_tokenizer_special(r.tokenizer, opens)));
        take_text(&r, c, &written, one);
    }
    CHECK_EQ(pick_byte(&r, omm_constraint_allowed(c), '}'), RULE_NONE);
    CHECK(pick_byte(&r, omm_constraint_allowed(c), ',') != RULE_NONE);
    check_allowed(&r, c);
    /* one that may come ends what may have become a call */
    omm_constraint_restart(c);
    take_text(&r, c, &written, "{\"name\": \"b");
    omm_constraint_take(c, omm_tokenizer_special(r.tokenizer, plain));
    take_text(&r, c, &written, "\" and more");
    CHECK(stands_free(c, &r));
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.root);
    omm_buf_fini(&written);
    close_rig(&r);
}

int main(void) {
    test_bare_texts();
    test_bare_begun();
    for (unsigned marks = 0; marks < 3; marks++) test_drawn_bare(marks);
    test_bare_tokens();
    test_bare_long();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
