/* grammar_forms_test.c - texts with calls behind a mark of the form's own: which bytes and which tokens may come, and whatever
 * is drawn is text and calls of the tools. */
#include "test_calls.h"

#include "omm/mem.h"

#define M "[TOOL_CALLS]"
#define T "<|tool_call|>"
#define F(name, arguments) "{\"name\": \"" name "\", \"arguments\": " arguments "}"
#define EMPTY F("bare", "{}")

/* ---- bytes -------------------------------------------------------------------------------------- */

static void check_texts(omm_calls_form form, const char *const yes[], const char *const no[]) {
    tools t;
    read_tools(&t, TOOLS);
    t.calls.form = form;
    omm_grammar *g = open_tools(&t);
    for (size_t i = 0; yes[i]; i++) check_text(g, yes[i], true);
    for (size_t i = 0; no[i]; i++) check_text(g, no[i], false);
    check_text(g, "<tool_call>x", false);
    check_text(g, "Well. " ONE "\n" ONE, true); /* at most two */
    check_text(g, ONE ONE ONE, false);
    omm_grammar_close(g);
    json_decref(t.root);
}

static void test_mistral(void) {
    static const char *const yes[] = {"",
                                      "Hello [TOOL] [TOOL_CALLS and more",
                                      T "[{}]",
                                      M "[" EMPTY "]",
                                      M " [" EMPTY "]",
                                      "Wait. [" M "\n[ " EMPTY "]",
                                      M "[" EMPTY ", " F("timer", "{\"minutes\": 90}") "]",
                                      M "[" EMPTY "," EMPTY "]",
                                      M
                                      "[" F("timer", "{\"minutes\": 9, \"label\": \"]" M "\"}") "]",
                                      M "[" F("tree", "{\"of\": [[], [[]]]}") "]",
                                      "<tool_" M "[" EMPTY "]",
                                      NULL};
    static const char *const no[] = {M,
                                     M "x",
                                     M "  [" EMPTY "]",
                                     M "[]",
                                     M EMPTY,
                                     M "[" EMPTY,
                                     M "[" EMPTY ",]",
                                     M "[" EMPTY " ]",
                                     M "[" EMPTY ", " EMPTY ", " EMPTY "]",
                                     M "[" EMPTY "] ",
                                     M "[" EMPTY "]" M "[" EMPTY "]",
                                     M "[" F("bar", "{}") "]",
                                     M "[" F("timer", "{\"minutes\": 91}") "]",
                                     M "[{\"arguments\": {}, \"name\": \"bare\"}]",
                                     M "[" EMPTY "]" ONE,
                                     ONE M "[" EMPTY "]",
                                     NULL};
    check_texts(OMM_CALLS_MISTRAL, yes, no);
    check_texts(OMM_CALLS_MISTRAL_TEKKEN, yes, no);
}

static void test_tool_call(void) {
    static const char *const yes[] = {"<|tool", M "[{}]", "Hm. " T "[" EMPTY "]", NULL};
    static const char *const closed[] = {"<|tool", "<" T "[" EMPTY "]<|/tool_call|>",
                                         T " [" EMPTY ", " EMPTY "]<|/tool_call|>", NULL};
    static const char *const no[] = {T, T "[" EMPTY "]x", T "[" EMPTY "]<|/tool", T "{}", NULL};
    static const char *const open[] = {T "[" EMPTY "]", T "[" EMPTY "]<|/tool_call|>x",
                                       T "[" EMPTY "] <|/tool_call|>", NULL};
    check_texts(OMM_CALLS_GRANITE, yes, no);
    check_texts(OMM_CALLS_PHI4, closed, no);
    check_texts(OMM_CALLS_PHI4, closed, open);
}

static void test_named(void) {
    static const char *const yes[] = {"", M "bare[ARGS]{}",
                                      "Hm." M "timer[ARGS]{\"minutes\": 90, \"label\": \"" M "\"}",
                                      M "bare[ARGS]{\"a\": {}}" M "tree[ARGS]{\"of\": []}", NULL};
    static const char *const no[] = {M,
                                     M "bare",
                                     M "bare{}",
                                     M " bare[ARGS]{}",
                                     M "bar[ARGS]{}",
                                     M "barely[ARGS]{}",
                                     M "bare[ARGS]",
                                     M "bare[ARGS] {}",
                                     M "bare[ARGS][]",
                                     M "timer[ARGS]{}",
                                     M "timer[ARGS]{\"minutes\": 91}",
                                     M "bare[ARGS]{} " M "bare[ARGS]{}",
                                     M "bare[ARGS]{}x",
                                     M "bare[ARGS]{}" M "bare[ARGS]{}" M "bare[ARGS]{}",
                                     M "bare[ARGS]{}" ONE,
                                     NULL};
    static const char *const ids[] = {M "bare[CALL_ID]abcDEF123[ARGS]{}", M "bare[ARGS]{}",
                                      M "bare[CALL_ID]000000000[ARGS]{}" M "bare[ARGS]{}", NULL};
    static const char *const not_ids[] = {M "bare[CALL_ID]abcDEF12[ARGS]{}",
                                          M "bare[CALL_ID]abcDEF1234[ARGS]{}",
                                          M "bare[CALL_ID][ARGS]{}",
                                          M "bare[CALL_ID]abcDEF12-[ARGS]{}",
                                          M "bare[CALL]",
                                          NULL};
    check_texts(OMM_CALLS_MISTRAL_ARGS, yes, no);
    check_texts(OMM_CALLS_MISTRAL_ARGS, yes, ids + 2);
    check_texts(OMM_CALLS_MISTRAL_IDS, yes, no);
    check_texts(OMM_CALLS_MISTRAL_IDS, ids, not_ids);
}

/* Names that begin alike, whichever comes first. */
static void test_alike(void) {
    static const char *const names[] = {"get", "get_day", "get-day", "ge", "Z", "get_d"};
    tools t;
    char text[64];
    read_tools(&t, "[{\"name\": \"get_day\"}, {\"name\": \"get\"}, {\"name\": \"get_d\"}, "
                   "{\"name\": \"get-day\"}, {\"name\": \"ge\"}, {\"name\": \"Z\"}]");
    t.calls.form = OMM_CALLS_MISTRAL_ARGS;
    omm_grammar *g = open_tools(&t);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, M "%s[ARGS]{}", names[i]);
        check_text(g, text, true);
        snprintf(text, sizeof text, M "%sx[ARGS]{}", names[i]);
        check_text(g, text, false);
    }
    check_text(g, M "g[ARGS]{}", false);
    check_text(g, M "get_[ARGS]{}", false);
    omm_grammar_close(g);
    json_decref(t.root);
}

/* One that is asked for: held from its first byte on. */
static void test_begun(void) {
    static const struct {
        omm_calls_form form;
        const char *begun, *rest, *no;
    } cases[] = {
        {OMM_CALLS_MISTRAL, M " [{\"name\":", " \"bare\", \"arguments\": {}}]", " \"x"},
        {OMM_CALLS_GRANITE, T "[{\"name\": \"timer\", \"arguments\":", " {\"minutes\": 1}}]", "1"},
        {OMM_CALLS_PHI4, T "[{\"name\":", " \"bare\", \"arguments\": {}}]<|/tool_call|>", "x"},
        {OMM_CALLS_MISTRAL_ARGS, M, "bare[ARGS]{}", "x"},
        {OMM_CALLS_MISTRAL_IDS, M "timer[ARGS]", "{\"minutes\": 90}", "[CALL_ID]"},
        {OMM_CALLS_EXAONE, OMM_CHAT_CALL_OPENS "{\"name\":",
         " \"bare\", \"arguments\": {}}" OMM_CHAT_CALL_CLOSES, "x"},
    };
    tools t;
    char text[256];
    bool whole = false;
    omm_grammar *g = NULL;
    read_tools(&t, TOOLS);
    t.calls.calls_max = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t.calls.form = cases[i].form;
        t.calls.begun = omm_bytes_str(cases[i].begun);
        g = open_tools(&t);
        snprintf(text, sizeof text, "%s%s", cases[i].begun, cases[i].rest);
        check_text(g, text, true);
        snprintf(text, sizeof text, "%s%s", cases[i].begun, cases[i].no);
        CHECK(follow(&whole, g, text) < strlen(text));
        omm_grammar_close(g);
    }
    t.calls.form = OMM_CALLS_MISTRAL_ARGS;
    t.calls.begun = omm_bytes_str(M "clock[ARGS]");
    CHECK_ERR(omm_grammar_open_calls(&g, &t.calls), OMM_ERR_UNSUPPORTED);
    json_decref(t.root);
}

/* ---- tokens ------------------------------------------------------------------------------------- */

/* Marks as tokens, in parts, and across what stands around them. */
static const char *const s_pieces[][6] = {
    {M, "[ARGS]", "[CALL_ID]", T, "<|/tool_call|>", "<tool_call>"},
    {"[TOOL_", "CALLS]", "bare[AR", "GS]{}", "}}]", "abcDEF123"},
    {"x" M "[{\"name\": \"", "[{\"name\": \"bare\", \"arguments\": {}}]", "x" T, "CALLS]x", "{}" M,
     "|>[{\"na"},
};

static void open_forms_rig(rig *r, unsigned pieces) {
    vocab_recipe recipe = {.mark_type = TOKEN_USER};
    const omm_seed seed = omm_seed_from_u64(pieces);
    memcpy(recipe.marks, s_pieces[pieces], sizeof recipe.marks);
    r->tokenizer = open_vocab(&recipe);
    CHECK_OK(omm_lexicon_open(&r->lexicon, r->tokenizer, omm_tokenizer_vocab(r->tokenizer) + 3));
    r->rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
    r->at = 0;
}

/* What was drawn is read as it was meant; none that is cut was. */
static size_t check_drawn(const omm_buf *written, omm_calls_form form, size_t most) {
    omm_chat_reply reply;
    const omm_err err = omm_chat_parse(&reply, omm_buf_view(written), form, NULL, NULL);
    if (err != OMM_OK) {
        const bool says = strstr(omm_err_sentence(), "without <tool_call>") ||
                          strstr(omm_err_sentence(), "duplicate");
        if (!says)
            fprintf(stderr, "%s\n%.*s\n", omm_err_sentence(), (int)written->size, written->data);
        CHECK(says);
        return 0;
    }
    CHECK(reply.call_count <= most);
    for (size_t i = 0; i < reply.call_count; i++) CHECK(fits_tool(&reply.calls[i]));
    const size_t count = reply.call_count;
    omm_chat_reply_fini(&reply);
    return count;
}

/* A mark where the text is free, sooner or later, and then the way to the end. */
static uint32_t pick_next(rig *r, omm_constraint *c, const uint32_t *allowed, unsigned i,
                          unsigned steps) {
    static const char ends[] = "\"}]";
    const uint32_t eos = omm_tokenizer_eos(r->tokenizer);
    if (i >= steps && lexicon_has(allowed, eos)) return eos;
    for (const char *end = ends; i >= steps && *end; end++) {
        const uint32_t id = pick_byte(r, allowed, *end);
        if (id != RULE_NONE) return id;
    }
    return roll(r, 3) || stands_free(c, r) ? pick_mark(r, allowed) : pick(r, allowed);
}

static size_t draw(rig *r, omm_grammar *g, const tools *t, unsigned steps) {
    omm_constraint *c = NULL;
    omm_buf written;
    omm_buf_init(&written, 1 << 20);
    CHECK_OK(omm_constraint_open(&c, g, r->lexicon));
    for (unsigned i = 0; !omm_constraint_has_ended(c); i++) {
        const uint32_t *allowed = omm_constraint_allowed(c);
        CHECK(i < 100000);
        if (i % 3 == 0) check_allowed(r, c);
        const uint32_t id = pick_next(r, c, allowed, i, steps);
        if (id < omm_tokenizer_vocab(r->tokenizer)) take(r, c, &written, id);
    }
    omm_constraint_close(c);
    const size_t calls = check_drawn(&written, t->calls.form, t->calls.calls_max);
    omm_buf_fini(&written);
    return calls;
}

static void test_drawn(unsigned pieces) {
    rig r;
    tools t;
    size_t calls = 0;
    open_forms_rig(&r, pieces);
    read_tools(&t, TOOLS);
    for (unsigned round = 0; round < 60; round++) {
        t.calls.form = (omm_calls_form)(OMM_CALLS_MISTRAL + round % 6);
        t.calls.calls_max = 1 + round % 4;
        omm_grammar *g = open_tools(&t);
        calls += draw(&r, g, &t, 10 + round);
        omm_grammar_close(g);
    }
    CHECK(calls > 10);
    json_decref(t.root);
    close_rig(&r);
}

int main(void) {
    test_mistral();
    test_tool_call();
    test_named();
    test_alike();
    test_begun();
    for (unsigned i = 0; i < sizeof s_pieces / sizeof *s_pieces; i++) test_drawn(i);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
