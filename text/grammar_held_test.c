/* grammar_held_test.c - texts that are calls or a value of one schema: what they begin with says which; by bytes and tokens. */
#include "test_calls.h"

#include "omm/mem.h"

#define BARELY(name, arguments) "{\"name\": \"" name "\", \"parameters\": " arguments "}"
#define PERSON                                                                                     \
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "          \
    "{\"type\": "                                                                                  \
    "\"integer\"}}, \"required\": [\"name\"], \"additionalProperties\": false}"
#define LISTS "{\"type\": \"array\", \"items\": {\"type\": [\"array\", \"string\"]}}"
#define OBJECTS "{\"type\": \"object\"}"

typedef struct example {
    omm_calls_form form;
    const char *content;
    const char *yes[12], *no[24];
} example;

static const example s_examples[] = {
    {OMM_CALLS_MARKED,
     PERSON,
     {"{\"name\": \"Ada\", \"age\": 36}", " {\"name\": \"bare\"}", ONE, ONE "\n" ONE, " " ONE,
      CALL("timer", "{\"minutes\": 90}"), "{\"name\": \"<tool_call>x\"}",
      "{\"name\": \"</tool_call>\"}"},
     {"",
      " ",
      "Hello",
      "<think>",
      "<tool_call>",
      "  " ONE,
      "\n" ONE,
      "x" ONE,
      "<" ONE,
      "{\"name\": 1}",
      "{\"age\": 36}",
      "{}",
      "{\"name\": \"Ada\"}" ONE,
      "{\"name\": \"Ada\"}\n" ONE,
      CALL("timer", "{\"minutes\": 91}"),
      CALL("other", "{}"),
      ONE ONE ONE,
      ONE "{}",
      "{" ONE,
      BARELY("bare", "{}")}},
    {OMM_CALLS_MARKED,
     "{\"enum\": [\"<tool_call>\", 5]}",
     {"5", "\"<tool_call>\"", ONE},
     {"<tool_call>", "\"<tool_call>x", "55"}},
    /* a bare call's beginning is one, whatever else it might have become */
    {OMM_CALLS_BARE,
     PERSON,
     {"{\"name\": \"Ada\", \"age\": 36}", "{\"name\":\"bar\"}", "{\"name\": \"barely\"}", ONE,
      BARELY("bare", "{}"), BARELY("timer", "{\"minutes\": 9}"), " " BARELY("bare", "{}"),
      "{\"type\": \"function\", \"name\": \"bare\", \"parameters\": {}}",
      "{\"name\": \"\\u0062are\"}"},
     {"", "Hello", "{\"name\": \"bare\"", "{\"name\": \"bare\"}",
      "{\"name\": \"bare\", \"age\": 1}", BARELY("timer", "{\"minutes\": 91}"),
      BARELY("barely", "{}"), BARELY("bare", "{}") ONE, "{\"type\": \"function\", \"age\": 1}",
      "{\"type\": \"tool\"}", "{\"type\": 1}", "\n{}"}},
    {OMM_CALLS_BARE,
     OBJECTS,
     {"{}", "{\"type\": \"function\", \"nam\": \"bare\"}",
      "{\"type\": \"tool\", \"name\": \"bare\"}", "{\"nam\": \"bare\"}",
      "{\"a\": {\"name\": \"bare\"}}", "{\"parameters\": {}, \"name\": \"bare\"}",
      "{\"name\": \"Ada\", \"parameters\": 1}", BARELY("bare", "{\"a\": 1}")},
     {"{\"name\": \"bare\", \"x\": 1}", "{\"name\": \"bare\", \"arguments\": {}}", "[]", "1"}},
    {OMM_CALLS_BARE, "{\"type\": [\"null\", \"integer\"]}", {"null", "5", ONE}, {"{}", "true"}},
    /* a list begins as a mark of Mistral's does, and is none with its second byte */
    {OMM_CALLS_MISTRAL_ARGS,
     LISTS,
     {"[]", "[\"T\", [1]]", "[[[]]]", "[\"[TOOL_CALLS]\"]", "[TOOL_CALLS]bare[ARGS]{}", ONE,
      "[TOOL_CALLS]bare[ARGS]{}[TOOL_CALLS]timer[ARGS]{\"minutes\": 1}"},
     {"[", "[T", "[[TOOL_CALLS]bare[ARGS]{}", "[TOOL_CALLS][]", "[TOOL_CALLS]other[ARGS]{}", "[ ]",
      "[]x", "[][TOOL_CALLS]bare[ARGS]{}"}},
    {OMM_CALLS_MISTRAL,
     LISTS,
     {"[]", "[[]]", "[TOOL_CALLS][{\"name\": \"bare\", \"arguments\": {}}]"},
     {"[TOOL_CALLS]", "[TOOL_CALLS][]", "[{\"name\": \"bare\", \"arguments\": {}}]"}},
    {OMM_CALLS_PHI4,
     OBJECTS,
     {"{\"a\": \"<|tool_call|>\"}", ONE,
      "<|tool_call|>[{\"name\": \"bare\", \"arguments\": {}}]<|/tool_call|>"},
     {"<", "<|tool_call|>", "<|tool_call>", "<tool_call|>", "<<|tool_call|>"}},
};

static void read_held(tools *t, const example *e) {
    read_tools(t, TOOLS);
    t->calls.form = e->form;
    CHECK_OK(omm_json_parse(&t->calls.content, omm_bytes_str(e->content), "content"));
}

static void close_held(tools *t) {
    json_decref(t->calls.content);
    json_decref(t->root);
}

static void test_texts(void) {
    for (size_t i = 0; i < sizeof s_examples / sizeof *s_examples; i++) {
        const example *e = &s_examples[i];
        tools t;
        read_held(&t, e);
        omm_grammar *g = open_tools(&t);
        for (size_t k = 0; k < 12 && e->yes[k]; k++) check_text(g, e->yes[k], true);
        for (size_t k = 0; k < 24 && e->no[k]; k++) check_text(g, e->no[k], false);
        omm_grammar_close(g);
        close_held(&t);
    }
}

/* The content's schema is promised: what is not supported of it is refused, whatever is left out of tools. */
static void test_refused(void) {
    static const struct {
        const char *content, *words;
    } refused[] = {
        {"{\"not\": {}}", "#: not is not supported"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": "
         "[\"a\"]}",
         "#: no text fulfils it that ends"},
    };
    for (size_t i = 0; i < 2; i++) {
        omm_grammar *g = NULL;
        tools t;
        read_held(&t, &(example){.content = refused[i].content});
        CHECK_ERR(omm_grammar_open_calls(&g, &t.calls), OMM_ERR_UNSUPPORTED);
        CHECK(!g && strstr(omm_err_sentence(), refused[i].words));
        close_held(&t);
    }
}

/* ---- tokens ------------------------------------------------------------------------------------- */

static size_t check_drawn(const omm_buf *written, const omm_grammar *g, omm_calls_form form) {
    omm_chat_reply reply = {0};
    json_t *value = NULL;
    omm_bytes text = omm_buf_view(written);
    size_t at = 0;
    if (text.data[0] == ' ') text = omm_bytes_of(text.data + 1, text.size - 1);
    const bool is_call =
        text.data[0] == '<' || (form == OMM_CALLS_BARE &&
                                omm_chat_bare(&at, text, omm_grammar_has_tool, g) == OMM_BARE_CALL);
    const omm_err err = is_call ? omm_chat_parse(&reply, text, form, omm_grammar_has_tool, g)
                                : omm_json_parse(&value, text, "drawn");
    /* of an object of any names two may be equal */
    if (err != OMM_OK) CHECK(strstr(omm_err_sentence(), "duplicate"));
    if (err != OMM_OK) return 0;
    CHECK(is_call ? reply.call_count > 0 && reply.content.size == 0 : json_is_object(value));
    for (size_t i = 0; i < reply.call_count; i++) CHECK(fits_tool(&reply.calls[i]));
    const size_t calls = reply.call_count;
    omm_chat_reply_fini(&reply);
    json_decref(value);
    return calls;
}

static size_t draw(rig *r, omm_grammar *g, omm_calls_form form, unsigned steps) {
    omm_constraint *c = NULL;
    omm_buf written;
    omm_buf_init(&written, 1 << 20);
    CHECK_OK(omm_constraint_open(&c, g, r->lexicon));
    for (unsigned i = 0; !omm_constraint_has_ended(c); i++) {
        const uint32_t *allowed = omm_constraint_allowed(c);
        CHECK(i < 100000);
        if (i < 4 || i % 5 == 0) check_allowed(r, c);
        const uint32_t id = i >= steps   ? pick_last(r, allowed)
                            : roll(r, 3) ? pick_mark(r, allowed)
                                         : pick(r, allowed);
        take(r, c, &written, id);
    }
    omm_constraint_close(c);
    const size_t calls = check_drawn(&written, g, form);
    omm_buf_fini(&written);
    return calls;
}

/* Drawn at random: calls of the tools, or objects; both come. */
static void test_drawn(bool spm, unsigned marks, omm_calls_form form) {
    rig r;
    tools t;
    size_t called = 0;
    open_rig(&r, spm, marks);
    read_held(&t, &(example){.form = form, .content = OBJECTS});
    omm_grammar *g = open_tools(&t);
    for (unsigned round = 0; round < 60; round++) called += draw(&r, g, form, 10 + round) > 0;
    CHECK(called > 5 && called < 60);
    omm_grammar_close(g);
    close_held(&t);
    close_rig(&r);
}

static void test_memory(void) {
    tools t;
    size_t failed = 0;
    read_held(&t, &(example){.form = OMM_CALLS_BARE, .content = PERSON});
    for (size_t n = 1; n < 250; n++) {
        omm_grammar *g = NULL;
        omm_mem_fail_nth(n);
        const omm_err err = omm_grammar_open_calls(&g, &t.calls);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        failed += err == OMM_ERR_NOMEM;
        if (g) check_text(g, "{\"age\": 5}", false);
        omm_grammar_close(g);
    }
    CHECK(failed > 10 && failed < 240);
    close_held(&t);
}

int main(void) {
    test_texts();
    test_refused();
    test_memory();
    for (unsigned marks = 0; marks < 2; marks++)
        for (int spm = 0; spm < 2; spm++) {
            test_drawn(spm == 1, marks, OMM_CALLS_MARKED);
            test_drawn(spm == 1, marks, OMM_CALLS_BARE);
        }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
