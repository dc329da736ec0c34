/* output_test.c - what of a text is sent when: up to what may end it, and calls not at all. */
#include "output.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "test_served.h"
#include "test_template.h"

#include <string.h>

static char s_thought[2048]; /* what was sent of the last text's thought */
static size_t s_thought_at;

/* The pieces that are sent while the ids of `text` come, with | after each; an end id follows. */
static void pieces(char *out, output *o, const served *s, const char *text, bool ends) {
    omm_tokens ids;
    size_t at = 0;
    s_thought_at = 0;
    s_thought[0] = 0;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    if (ends) CHECK_OK(omm_tokens_push(&ids, omm_tokenizer_eos(s->tokenizer)));
    for (size_t i = 0; i < ids.count && o->finish == FINISH_NONE; i++) {
        CHECK_OK(output_push(o, ids.ids[i]));
        const omm_bytes thought = output_next_thought(o), fresh = output_next(o);
        if (thought.size > 0)
            s_thought_at += (size_t)sprintf(s_thought + s_thought_at, "%.*s", (int)thought.size,
                                            (const char *)thought.data);
        if (fresh.size > 0)
            at += (size_t)sprintf(out + at, "%.*s|", (int)fresh.size, (const char *)fresh.data);
    }
    out[at] = 0;
    omm_tokens_fini(&ids);
}

typedef struct example {
    const char *text;
    bool has_tools;
    const char *stop, *begun;
    uint32_t tokens_max;
    finish finish;
    const char *sent; /* all of it, without the | */
    size_t calls;
    const char *content;
} example;

#define CALL                                                                                       \
    "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": "                     \
    "\"1+1\"}}\n</tool_call>"
static const example s_examples[] = {
    {"Hello there.", false, NULL, "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, "the", "", 100, FINISH_STOP, "Hello ", 0, "Hello "},
    {"Hello there.", false, "xyz", "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, ". A", "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, NULL, "", 2, FINISH_LENGTH, NULL, 0, NULL},
    /* cut inside a character */
    {"\xf0\x9f\xa6\x8a", false, NULL, "", 1, FINISH_LENGTH, "\xef\xbf\xbd", 0, "\xef\xbf\xbd"},
    {"Gr\xc3\xbc\xc3\x9f"
     "e",
     true, NULL, "", 100, FINISH_STOP,
     "Gr\xc3\xbc\xc3\x9f"
     "e",
     0,
     "Gr\xc3\xbc\xc3\x9f"
     "e"},
    {CALL, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {CALL, false, NULL, "", 100, FINISH_STOP, CALL, 0, CALL},
    {"I add: " CALL "\n" CALL, true, NULL, "", 200, FINISH_CALLS, "I add:", 2, "I add:"},
    {"1 <tool_box> 2 <", true, NULL, "", 100, FINISH_STOP, "1 <tool_box> 2 <", 0,
     "1 <tool_box> 2 <"},
    {"<tool_call>\n{\"name\": 1}", true, NULL, "", 100, FINISH_STOP, "<tool_call>\n{\"name\": 1}",
     0, "<tool_call>\n{\"name\": 1}"},
    {" \"calculator\", \"arguments\": {}}\n</tool_call>", true, NULL,
     "<tool_call>\n{\"name\":", 100, FINISH_CALLS, "", 1, ""},
    /* what a user would have a text end at ends no call */
    {"So:" CALL, true, "\n", "", 100, FINISH_CALLS, "So:", 1, "So:"},
    {CALL "\n" CALL, true, "1+1", "", 200, FINISH_CALLS, "", 2, ""},
    {" \"calculator\", \"arguments\": {}}\n</tool_call>", true, "}", "<tool_call>\n{\"name\":", 100,
     FINISH_CALLS, "", 1, ""},
    {"So:\nyes " CALL, true, "\n", "", 100, FINISH_STOP, "So:", 0, "So:"},
    {"Is it <tool_call>?", true, "call>?", "", 100, FINISH_STOP, "Is it <tool_call>?", 0,
     "Is it <tool_call>?"},
    {CALL, false, "12", "", 100, FINISH_STOP, CALL, 0, CALL},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"</tool_call>\", \"a\": "
     "2}}</tool_call>",
     true, "2", "", 100, FINISH_CALLS, "", 1, ""},
    {"1 </tool_call> " CALL, true, NULL, "", 100, FINISH_CALLS, "1 </tool_call>", 1,
     "1 </tool_call>"},
};

/* Of models that think, but for the last. */
typedef struct thoughtful {
    example x;
    bool thinks;
    const char *opened, *thought; /* by the prompt; all of it that was sent */
    uint32_t tokens;              /* of it, at least; 0: none */
} thoughtful;

static const thoughtful s_thoughtful[] = {
    {{"<think>\nhm " CALL " so\n</think>\n\nYes. " CALL, true, NULL, "", 200, FINISH_CALLS, "Yes.",
      1, "Yes."},
     true,
     "",
     "hm " CALL " so",
     20},
    {{"hm\n</think>\n\nYes <think>", false, NULL, "", 100, FINISH_STOP, "Yes <think>", 0,
      "Yes <think>"},
     true,
     "<think>\n",
     "hm",
     3},
    {{"hm, hm", true, NULL, "", 100, FINISH_STOP, "", 0, ""}, true, "<think>\n", "hm, hm", 3},
    {{"hm <tool_call>\n</think>\n\nYes, no", true, ",", "", 100, FINISH_STOP, "Yes", 0, "Yes"},
     true,
     "<think>\n",
     "hm <tool_call>",
     3},
    {{"hm, hm", false, ", h", "", 100, FINISH_STOP, "", 0, ""}, true, "<think>\n", "hm", 1},
    /* what a stop holds back has ended the thought, and begun the call */
    {{"<think>\nhm\n</think>\n\n" CALL, true, "<tool_call>\n{", "", 200, FINISH_CALLS, "", 1, ""},
     true,
     "",
     "hm",
     3},
    {{"hm\n</think>\n\n" CALL CALL, true, "\n\n<tool_call>\n{", "", 200, FINISH_CALLS, "", 2, ""},
     true,
     "<think>\n",
     "hm",
     3},
    {{"hm</think>" CALL, true, "</think><tool_call>x", "", 200, FINISH_CALLS, "", 1, ""},
     true,
     "<think>\n",
     "hm",
     1},
    {{"hm " CALL "</think>no", true, " <tool_call>x", "", 200, FINISH_STOP, "no", 0, "no"},
     true,
     "<think>\n",
     "hm " CALL,
     3},
    {{"hm</think>" CALL, true, "</think><tool_call>", "", 200, FINISH_STOP, "", 0, ""},
     true,
     "<think>\n",
     "hm",
     1},
    {{"<thin air", false, NULL, "", 100, FINISH_STOP, "<thin air", 0, "<thin air"},
     true,
     "",
     "",
     0},
    {{"<thi", false, NULL, "", 100, FINISH_STOP, "<thi", 0, "<thi"}, true, "", "", 0},
    {{"<think>a</think>b", false, NULL, "", 100, FINISH_STOP, "<think>a</think>b", 0,
      "<think>a</think>b"},
     false,
     "",
     "",
     0},
};

#define WRAPPED "<answer>\nYes, <b>.\n</answer>"
/* Of models whose answers stand between marks. */
static const thoughtful s_wrapped[] = {
    {{"<think>\nhm\n</think>\n" WRAPPED, false, NULL, "", 100, FINISH_STOP, "Yes, <b>.", 0,
      "Yes, <b>."},
     true,
     "",
     "hm",
     3},
    {{WRAPPED, false, NULL, "", 100, FINISH_STOP, "Yes, <b>.", 0, "Yes, <b>."}, false, "", "", 0},
    {{WRAPPED, true, ". A", "", 100, FINISH_STOP, "Yes, <b>.", 0, "Yes, <b>."}, false, "", "", 0},
    {{WRAPPED, false, "</answer>", "", 100, FINISH_STOP, "Yes, <b>.\n", 0, "Yes, <b>.\n"},
     false,
     "",
     "",
     0},
    {{"<answer>\nYes.\n" CALL, true, NULL, "", 100, FINISH_CALLS, "Yes.", 1, "Yes."},
     true,
     "",
     "",
     0},
    {{"<answer>\n" CALL CALL, true, NULL, "", 200, FINISH_CALLS, "", 2, ""}, false, "", "", 0},
    {{"<answer>\nIs it <tool_call>?\n</answer>\n", true, NULL, "", 100, FINISH_STOP,
      "Is it <tool_call>?", 0, "Is it <tool_call>?"},
     false,
     "",
     "",
     0},
};

static void check_example(request *r, const served *s, const thoughtful *t) {
    const example *x = &t->x;
    char sent[2048], joined[2048];
    size_t at = 0;
    output o;
    r->is_chat = true;
    r->has_tools = x->has_tools;
    r->stop_count = x->stop ? 1 : 0;
    if (x->stop) r->stops[0] = omm_bytes_str(x->stop);
    r->thinks = t->thinks;
    r->opened = omm_bytes_str(t->opened);
    omm_buf_init(&r->begun, 1 << 10);
    CHECK_OK(omm_buf_append(&r->begun, x->begun, strlen(x->begun)));
    CHECK_OK(output_init(&o, r, s->tokenizer, x->tokens_max));
    pieces(sent, &o, s, x->text, true);
    for (const char *p = sent; *p; p++)
        if (*p != '|') joined[at++] = *p;
    joined[at] = 0;
    const omm_bytes content = output_content(&o), thought = output_thought(&o);
    if (x->sent && strcmp(joined, x->sent) != 0) {
        fprintf(stderr, "%s: sent %s\nnot %s\n", x->text, joined, x->sent);
        exit(1);
    }
    CHECK_EQ(o.finish, x->finish);
    CHECK_EQ(output_calls(&o), x->calls);
    if (x->content) CHECK(omm_bytes_equal(content, omm_bytes_str(x->content)));
    CHECK(o.tokens <= x->tokens_max);
    CHECK_EQ(strcmp(s_thought, t->thought), 0);
    CHECK(omm_bytes_equal(thought, omm_bytes_str(t->thought)));
    CHECK(o.thought_tokens >= t->tokens && o.thought_tokens <= o.tokens);
    if (t->tokens == 0) CHECK_EQ(o.thought_tokens, 0);
    output_fini(&o);
    omm_buf_fini(&r->begun);
}

static void test_examples(const served *s) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    CHECK(r != NULL);
    for (size_t i = 0; i < sizeof s_examples / sizeof s_examples[0]; i++)
        check_example(r, s, &(thoughtful){s_examples[i], false, "", "", 0});
    for (size_t i = 0; i < sizeof s_thoughtful / sizeof s_thoughtful[0]; i++)
        check_example(r, s, &s_thoughtful[i]);
    r->wraps = true;
    for (size_t i = 0; i < sizeof s_wrapped / sizeof s_wrapped[0]; i++)
        check_example(r, s, &s_wrapped[i]);
    omm_free(r);
}

/* ---- which tokens are of the content --------------------------------------------------------------- */

/* Bytes that each of the tokens of `text` has come to; those of the content, joined, as a whole answer's log probabilities and
 * a stream's have them. */
static void check_content_tokens(const served *s, const char *text, const char *want) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    output o;
    omm_tokens ids;
    char whole[512], streamed[512];
    size_t at = 0, sent = 0, ends[128], begin = 0;
    CHECK(r != NULL);
    r->is_chat = r->thinks = r->wraps = true;
    omm_buf_init(&r->begun, 0);
    omm_tokens_init(&ids, 128);
    CHECK_OK(output_init(&o, r, s->tokenizer, 128));
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    const size_t count = ids.count;
    CHECK_OK(omm_tokens_push(&ids, omm_tokenizer_eos(s->tokenizer)));
    for (size_t i = 0; i < ids.count; i++) {
        CHECK_OK(output_push(&o, ids.ids[i]));
        if (i < count) ends[i] = o.bytes + o.detok.pending_count;
        for (; sent < count && sent <= i && ends[sent] <= output_settled(&o); begin = ends[sent++])
            if (output_is_content(&o, begin, ends[sent]))
                at += (size_t)snprintf(streamed + at, sizeof streamed - at, "%.*s",
                                       (int)(ends[sent] - begin), text + begin);
    }
    streamed[at] = 0;
    CHECK_EQ(sent, count);
    at = begin = 0;
    for (size_t i = 0; i < count; begin = ends[i++])
        if (output_is_content(&o, begin, ends[i]))
            at += (size_t)snprintf(whole + at, sizeof whole - at, "%.*s", (int)(ends[i] - begin),
                                   text + begin);
    whole[at] = 0;
    if (strcmp(whole, streamed) != 0)
        fprintf(stderr, "%s: %s, in a stream %s\n", text, whole, streamed);
    CHECK_EQ(strcmp(whole, streamed), 0);
    if (!strstr(whole, want)) fprintf(stderr, "%s: %s\n", text, whole);
    CHECK(strstr(whole, want) && !strstr(whole, "answer>") && !strstr(whole, "think>"));
    output_fini(&o);
    omm_tokens_fini(&ids);
    omm_buf_fini(&r->begun);
    omm_free(r);
}

static void test_content_tokens(const served *s) {
    check_content_tokens(s, "<think>\nhm\n</think>\n" WRAPPED, "Yes, <b>.");
    check_content_tokens(s, WRAPPED "\n", "Yes, <b>.");
    check_content_tokens(s, "<answer>1 </ans>2</answer>", "1 </ans>2");
    check_content_tokens(s, "<ansatz> 1", "<ansatz> 1");
    check_content_tokens(s, "<think>hm</think><ansatz> 1", "<ansatz> 1");
    check_content_tokens(s, "<ans", "<ans");
}

/* ---- cut inside a call: as far as it came --------------------------------------------------------- */

#define CUT "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \""

static const struct {
    const char *text, *content;
    size_t calls;
    const char *cut; /* name and arguments; NULL: it is text */
} s_cuts[] = {
    {"I add. " CALL "\n" CUT "1+1", "I add.", 1, "calculator {\"expression\": \"1+1"},
    {CUT "</tool_call>", "", 0, "calculator {\"expression\": \"</tool_call>"},
    {CUT "}\"}", "", 0, "calculator {\"expression\": \"}\"}"},
    {CUT "\\\"\"}", "", 0, "calculator {\"expression\": \"\\\"\"}"},
    {CUT "1\"}}\n</tool", "", 1, NULL}, /* whole, but for its mark */
    {CUT "\", \"a\": [[]]}", "", 0, "calculator {\"expression\": \"\", \"a\": [[]]}"},
    {"<tool_call>\n{\"name\": \"calculator\"", "", 0, "calculator "},
    {"So. <tool_call>\n{\"name\": \"calcu", "So.", 0, " "},
    {"So. <tool_call>", "So.", 0, " "},
    {CALL "<tool_call>", "", 1, " "},
    {"So. <tool_cal", "So. <tool_cal", 0, NULL},
};

static uint32_t count_tokens(const served *s, const char *text) {
    omm_tokens ids;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    const uint32_t count = (uint32_t)ids.count;
    omm_tokens_fini(&ids);
    return count;
}

static void check_cut(const output *o, size_t i) {
    char got[256] = " ";
    const char *wanted = s_cuts[i].cut;
    const size_t count = output_calls(o), at = s_cuts[i].calls;
    CHECK_EQ(count, at + (wanted && wanted[0] != ' '));
    CHECK_EQ(calls_is_cut(&o->calls), wanted != NULL);
    for (size_t k = at; k < count; k++)
        snprintf(got, sizeof got, "%.*s %.*s", (int)output_call_name(o, k).size,
                 (const char *)output_call_name(o, k).data, (int)output_call_arguments(o, k).size,
                 (const char *)output_call_arguments(o, k).data);
    if (wanted) CHECK_EQ(strcmp(got, wanted), 0);
    CHECK(omm_bytes_equal(output_content(o), omm_bytes_str(s_cuts[i].content)));
    CHECK_EQ(o->finish, wanted || at == 0 ? FINISH_LENGTH : FINISH_CALLS);
}

static void test_cuts(const served *s) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    CHECK(r != NULL);
    r->is_chat = r->has_tools = true;
    for (size_t i = 0; i < sizeof s_cuts / sizeof s_cuts[0]; i++) {
        char sent[2048];
        output o;
        CHECK_OK(output_init(&o, r, s->tokenizer, count_tokens(s, s_cuts[i].text)));
        pieces(sent, &o, s, s_cuts[i].text, true);
        check_cut(&o, i);
        output_fini(&o);
    }
    omm_free(r);
}

/* A call is sent while it is drawn: its name once, then its arguments piece by piece. */
static void test_streamed(const served *s) {
    static const char text[] = "I add. " CALL "\n<tool_call>{\"name\": \"g\", \"arguments\": {}}"
                               "</tool_call>";
    static const char wanted[] = "0 calculator: {\"expression\": \"1+1\"}1 g: {}";
    request *r = (request *)omm_alloc(1, sizeof *r);
    omm_tokens ids;
    char got[512] = "";
    size_t at = 0, pieces_sent = 0;
    output o;
    CHECK(r != NULL);
    r->is_chat = r->has_tools = true;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    CHECK_OK(omm_tokens_push(&ids, omm_tokenizer_eos(s->tokenizer)));
    CHECK_OK(output_init(&o, r, s->tokenizer, 200));
    for (size_t i = 0; i < ids.count; i++) {
        omm_bytes name, arguments;
        size_t call = 9;
        CHECK_OK(output_push(&o, ids.ids[i]));
        while (output_next_call(&o, &call, &name, &arguments)) {
            if (name.size > 0)
                at += (size_t)sprintf(got + at, "%zu %.*s: ", call, (int)name.size,
                                      (const char *)name.data);
            at += (size_t)sprintf(got + at, "%.*s", (int)arguments.size,
                                  (const char *)arguments.data);
            pieces_sent++;
        }
    }
    CHECK_EQ(strcmp(got, wanted), 0);
    CHECK(pieces_sent > 6);
    CHECK_EQ(o.finish, FINISH_CALLS);
    output_fini(&o);
    omm_tokens_fini(&ids);
    omm_free(r);
}

/* What ends an answer as the template has it ends none inside a string of a call, and one behind it. */
static void test_own_stops(const served *s) {
    static const example own[] = {
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"[INST]\"}}</tool_call>[INST]x",
         true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
         "\"\\\"[INST]\\\\\"}}</tool_call>[INST]x",
         true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [[1], [\"x\"]]}}</tool_call>", true,
         NULL, "", 100, FINISH_CALLS, "", 1, ""},
        {"So[INST]" CALL, true, NULL, "", 100, FINISH_STOP, "So", 0, "So"},
    };
    request *r = (request *)omm_alloc(1, sizeof *r);
    served other = *s;
    CHECK(r != NULL);
    other.tokenizer = served_other_tokenizer(SERVED_MARKED);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        check_example(r, &other, &(thoughtful){own[i], false, "", "", 0});
    /* a text that is one JSON value has none of them */
    CHECK_OK(omm_grammar_open_object(&r->grammar));
    check_example(r, &other,
                  &(thoughtful){{"{\"a\": \"[INST]\"}", false, NULL, "", 100, FINISH_STOP,
                                 "{\"a\": \"[INST]\"}", 0, "{\"a\": \"[INST]\"}"},
                                false,
                                "",
                                "",
                                0});
    omm_grammar_close(r->grammar);
    r->grammar = NULL;
    r->has_tools = true;
    /* what may have become one is of the call where this is cut */
    static const char cut[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [";
    char sent[2048];
    output o;
    r->stop_count = 0;
    CHECK_OK(output_init(&o, r, other.tokenizer, count_tokens(&other, cut)));
    pieces(sent, &o, &other, cut, true);
    CHECK_EQ(output_calls(&o), 1);
    CHECK(omm_bytes_equal(output_call_arguments(&o, 0), omm_bytes_str("{\"a\": [")));
    output_fini(&o);
    /* and nothing is drawn behind it */
    static const char ended[] = CALL "[INST] x y z";
    CHECK_OK(output_init(&o, r, other.tokenizer, 200));
    pieces(sent, &o, &other, ended, true);
    CHECK_EQ(o.finish, FINISH_CALLS);
    CHECK(o.tokens < count_tokens(&other, ended));
    output_fini(&o);
    omm_tokenizer_close(other.tokenizer);
    omm_free(r);
}

/* ---- bare calls ------------------------------------------------------------------------------------- */

/* As a Llama 3 writes them. */
#define BARE "{\"name\": \"calculator\", \"parameters\": {\"expression\": \"1+1\"}}"

#define ADA "{\"name\": \"Ada\", \"age\": 36}"
#define LINES "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
#define EIGHT                                                                                      \
    "<tool_call><tool_call><tool_call><tool_call><tool_call><tool_call><tool_call><tool_call>"
static const example s_bare[] = {
    {BARE, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {" \n" BARE, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {"{\"name\":\"calculator\",\"parameters\":{}}", true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {" \"calculator\", \"parameters\": {}}", true, NULL, "{\"name\":", 100, FINISH_CALLS, "", 1,
     ""},
    {" {\"a\": 1}}", true, NULL, "{\"name\": \"calculator\", \"parameters\":", 100, FINISH_CALLS,
     "", 1, ""},
    {"Wait. " CALL, true, NULL, "", 100, FINISH_CALLS, "Wait.", 1, "Wait."},
    {CALL CALL, true, NULL, "", 200, FINISH_CALLS, "", 2, ""},
    /* what a user would have a text end at ends no call that has begun, and one that has not */
    {BARE, true, "1+1", "", 100, FINISH_CALLS, "", 1, ""},
    {BARE, true, ", ", "", 100, FINISH_CALLS, "", 1, ""},
    {BARE, true, "\"calculator\"x", "", 100, FINISH_CALLS, "", 1, ""},
    {BARE, true, "{\"", "", 100, FINISH_STOP, "", 0, ""},
    {BARE, true, "calc", "", 100, FINISH_STOP, "{\"name\": \"", 0, "{\"name\": \""},
    {BARE, true, "calculator\"", "", 100, FINISH_STOP, "{\"name\": \"", 0, "{\"name\": \""},
    /* text */
    {BARE, false, NULL, "", 100, FINISH_STOP, BARE, 0, BARE},
    {"{\"name\": \"Ada\", \"age\": 36}", true, NULL, "", 100, FINISH_STOP,
     "{\"name\": \"Ada\", \"age\": 36}", 0, "{\"name\": \"Ada\", \"age\": 36}"},
    {"{\"name\": \"calculator", true, NULL, "", 100, FINISH_STOP, "{\"name\": \"calculator", 0,
     "{\"name\": \"calculator"},
    {"{\"name\":  \"calculator\"}", true, NULL, "", 100, FINISH_STOP, "{\"name\":  \"calculator\"}",
     0, "{\"name\":  \"calculator\"}"},
    {"{ \"name\": \"calculator\"}", true, NULL, "", 100, FINISH_STOP, "{ \"name\": \"calculator\"}",
     0, "{ \"name\": \"calculator\"}"},
    {"{}", true, NULL, "", 100, FINISH_STOP, "{}", 0, "{}"},
    {"Hm. " BARE, true, NULL, "", 100, FINISH_STOP, "Hm. " BARE, 0, "Hm. " BARE},
    {"{\"name\": \"Ada\"} " CALL, true, NULL, "", 100, FINISH_CALLS, "{\"name\": \"Ada\"}", 1,
     "{\"name\": \"Ada\"}"},
    {"{\"name\": " CALL, true, NULL, "", 100, FINISH_CALLS, "{\"name\":", 1, "{\"name\":"},
    {"{\"name\": \"x" CALL CALL, true, NULL, "", 200, FINISH_CALLS, "{\"name\": \"x", 2,
     "{\"name\": \"x"},
    {"{\"name\": \"calc" CALL, true, NULL, "", 200, FINISH_CALLS, "{\"name\": \"calc", 1,
     "{\"name\": \"calc"},
    {"{\"name\": \"x<tool_call>{\"name\": \"calculator\", \"arguments\": {\"a\": \"" EIGHT EIGHT
     "\"}}</tool_call>",
     true, NULL, "", 300, FINISH_CALLS, "{\"name\": \"x", 1, "{\"name\": \"x"},
    {"\v\f" BARE, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    /* what a stop holds back is not there yet */
    {"\t\n" ADA, true, "\t\n{\"x", "", 100, FINISH_STOP, "\t\n" ADA, 0, "\t\n" ADA},
    {"\n\n" ADA, true, "\n{\"x", "", 100, FINISH_STOP, "\n\n" ADA, 0, "\n\n" ADA},
    {LINES LINES ADA, true, LINES "{\"x", "", 200, FINISH_STOP, LINES LINES ADA, 0,
     LINES LINES ADA},
    {"\n\n" BARE, true, "\n{\"x", "", 100, FINISH_CALLS, "", 1, ""},
    {LINES LINES BARE, true, LINES "{\"x", "", 200, FINISH_CALLS, "", 1, ""},
    {"\n" BARE, true, "\n{\"name\": \"calculator\"x", "", 100, FINISH_CALLS, "", 1, ""},
};

/* Held until it is known, and a call's name sent before its arguments have come. */
static void test_bare_pieces(request *r, const served *s) {
    omm_bytes name, arguments;
    char sent[2048];
    size_t call = 9;
    output o;
    r->stop_count = 0;
    CHECK_OK(output_init(&o, r, s->tokenizer, 100));
    pieces(sent, &o, s, "{\"name\": \"calcu", false);
    CHECK_EQ(sent[0], 0);
    pieces(sent, &o, s, "s\"", false);
    CHECK(strncmp(sent, "{\"name\": \"calcus|", 17) == 0); /* as soon as it is no tool's */
    output_fini(&o);
    CHECK_OK(output_init(&o, r, s->tokenizer, 100));
    pieces(sent, &o, s, "{\"name\": \"calculator\", \"par", false);
    CHECK_EQ(sent[0], 0);
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(call == 0 && omm_bytes_equal(name, omm_bytes_str("calculator")) && arguments.size == 0);
    pieces(sent, &o, s, "ameters\": {\"a\"", false);
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(name.size == 0 && omm_bytes_equal(arguments, omm_bytes_str("{\"a\"")));
    CHECK_EQ(sent[0], 0);
    output_fini(&o);
    /* cut: as far as it came */
    CHECK_OK(output_init(&o, r, s->tokenizer, count_tokens(s, "{\"name\": \"calculator\", \"p")));
    pieces(sent, &o, s, "{\"name\": \"calculator\", \"p", false);
    CHECK_EQ(o.finish, FINISH_LENGTH);
    CHECK(output_calls(&o) == 1 && output_content(&o).size == 0);
    output_fini(&o);
    CHECK_OK(output_init(&o, r, s->tokenizer, count_tokens(s, "{\"name\": \"calc")));
    pieces(sent, &o, s, "{\"name\": \"calc", false);
    CHECK_EQ(o.finish, FINISH_LENGTH);
    CHECK(output_calls(&o) == 0);
    CHECK(omm_bytes_equal(output_content(&o), omm_bytes_str("{\"name\": \"calc")));
    output_fini(&o);
}

static void test_bare(const served *s) {
    const omm_grammar_tool tool = {.name = "calculator"};
    const omm_grammar_calls calls = {
        .tools = &tool, .tool_count = 1, .calls_max = 8, .form = OMM_CALLS_BARE};
    request *r = (request *)omm_alloc(1, sizeof *r);
    served other = *s;
    CHECK(r != NULL);
    other.tokenizer = served_other_tokenizer(TEMPLATE_OF_BARE_CALLS);
    CHECK_EQ(omm_chat_calls_of(other.tokenizer), OMM_CALLS_BARE);
    CHECK_OK(omm_grammar_open_calls(&r->grammar, &calls));
    for (size_t i = 0; i < sizeof s_bare / sizeof s_bare[0]; i++)
        check_example(r, &other, &(thoughtful){s_bare[i], false, "", "", 0});
    r->has_tools = true;
    test_bare_pieces(r, &other);
    omm_grammar_close(r->grammar);
    omm_tokenizer_close(other.tokenizer);
    omm_free(r);
}

/* ---- calls, or content in a format -------------------------------------------------------------------- */

/* What begins as no call does has none in it, and comes as it is drawn. */
static const example s_format[] = {
    {"{\"a\": \"" CALL "\"}", true, NULL, "", 100, FINISH_STOP, "{\"a\": \"" CALL "\"}", 0,
     "{\"a\": \"" CALL "\"}"},
    {"\"<tool_call>", true, NULL, "", 100, FINISH_STOP, "\"<tool_call>", 0, "\"<tool_call>"},
    {"{\"a\": \"[INST]\"}", true, NULL, "", 100, FINISH_STOP, "{\"a\": \"[INST]\"}", 0,
     "{\"a\": \"[INST]\"}"},
    {"{\"a\": 5}", true, "5", "", 100, FINISH_STOP, "{\"a\": ", 0, "{\"a\": "},
    {CALL, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {CALL "\n" CALL, true, "1+1", "", 200, FINISH_CALLS, "", 2, ""},
    {CALL "[INST]x", true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {"5", true, NULL, "", 100, FINISH_STOP, "5", 0, "5"},
};

static const example s_bare_format[] = {
    {BARE, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {CALL, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {ADA, true, NULL, "", 100, FINISH_STOP, ADA, 0, ADA},
    {"{\"a\": \"" CALL "\"}", true, NULL, "", 100, FINISH_STOP, "{\"a\": \"" CALL "\"}", 0,
     "{\"a\": \"" CALL "\"}"},
    {"{\"name\": \"calc" CALL, true, NULL, "", 200, FINISH_STOP, "{\"name\": \"calc" CALL, 0,
     "{\"name\": \"calc" CALL},
};

static void check_formats(const served *s, const char *jinja, omm_calls_form form,
                          const example *list, size_t count) {
    const omm_grammar_tool tool = {.name = "calculator"};
    json_t *content = json_pack("{s:s}", "type", "object");
    const omm_grammar_calls calls = {
        .tools = &tool, .tool_count = 1, .calls_max = 8, .form = form, .content = content};
    request *r = (request *)omm_alloc(1, sizeof *r);
    served other = *s;
    CHECK(r != NULL);
    other.tokenizer = served_other_tokenizer(jinja);
    r->has_format = true;
    CHECK_OK(omm_grammar_open_calls(&r->grammar, &calls));
    for (size_t i = 0; i < count; i++)
        check_example(r, &other, &(thoughtful){list[i], false, "", "", 0});
    /* nothing of it waits for what may become a call */
    char sent[2048];
    output o;
    r->stop_count = 0;
    CHECK_OK(output_init(&o, r, other.tokenizer, 100));
    pieces(sent, &o, &other, "{\"a\": \" <tool_ca", false);
    CHECK(strstr(sent, "a|"));
    CHECK_EQ(output_content(&o).size, strlen("{\"a\": \" <tool_ca"));
    output_fini(&o);
    omm_grammar_close(r->grammar);
    omm_tokenizer_close(other.tokenizer);
    json_decref(content);
    omm_free(r);
}

static void test_formats(const served *s) {
    check_formats(s, SERVED_MARKED, OMM_CALLS_MARKED, s_format, sizeof s_format / sizeof *s_format);
    check_formats(s, TEMPLATE_OF_BARE_CALLS, OMM_CALLS_BARE, s_bare_format,
                  sizeof s_bare_format / sizeof *s_bare_format);
}

/* ---- calls behind a mark of the form's own ----------------------------------------------------------- */

#define NAMED "[TOOL_CALLS]calculator[ARGS]{\"a\": \"</s>[INST]\"}"
#define LISTED(more) "<|tool_call|>[{\"name\": \"calculator\", \"arguments\": {\"a\": 1}}" more "]"

static const example s_named[] = {
    {NAMED, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {"So. " NAMED NAMED, true, NULL, "", 100, FINISH_CALLS, "So.", 2, "So."},
    {NAMED, true, "[INST]", "", 100, FINISH_CALLS, "", 1, ""}, /* a stop text in a string */
    {"So. " CALL, true, NULL, "", 100, FINISH_CALLS, "So.", 1, "So."},
    {"[TOOL_CALL] x", true, NULL, "", 100, FINISH_STOP, "[TOOL_CALL] x", 0, "[TOOL_CALL] x"},
    {"So. [TOOL_CA", true, NULL, "", 100, FINISH_STOP, "So. [TOOL_CA", 0, "So. [TOOL_CA"},
    {"So. [TOOL_CALLS]calc", true, NULL, "", 100, FINISH_STOP, NULL, 0, NULL},
    {"{\"a\": 1}", true, NULL, "[TOOL_CALLS]calculator[ARGS]", 100, FINISH_CALLS, "", 1, ""},
    {"calculator[ARGS]{}", true, NULL, "[TOOL_CALLS]", 100, FINISH_CALLS, "", 1, ""},
    {NAMED, false, NULL, "", 100, FINISH_STOP, NAMED, 0, NAMED},
};

static const example s_listed[] = {
    {LISTED(""), true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {"So.\n" LISTED(", {\"name\": \"calculator\", \"arguments\": {}}"), true, NULL, "", 200,
     FINISH_CALLS, "So.", 2, "So."},
    {"So. " CALL, true, NULL, "", 100, FINISH_CALLS, "So.", 1, "So."},
    {"<tool <tool_cal", true, NULL, "", 100, FINISH_STOP, "<tool <tool_cal", 0, "<tool <tool_cal"},
    {" \"calculator\", \"arguments\": {}}]", true, NULL, "<|tool_call|>[{\"name\":", 100,
     FINISH_CALLS, "", 1, ""},
    {" {\"a\": 1}}]", true, NULL, "<|tool_call|>[{\"name\": \"calculator\", \"arguments\":", 100,
     FINISH_CALLS, "", 1, ""},
};

/* The name as soon as it is known, then arguments as they come; none of it as text. */
static void test_own_pieces(request *r, const served *s, const char *const parts[3]) {
    omm_bytes name, arguments;
    char sent[2048];
    size_t call = 9;
    output o;
    omm_buf_init(&r->begun, 16);
    CHECK_OK(output_init(&o, r, s->tokenizer, 200));
    pieces(sent, &o, s, parts[0], false);
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(call == 0 && omm_bytes_equal(name, omm_bytes_str("calculator")) && arguments.size == 0);
    pieces(sent, &o, s, parts[1], false);
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(name.size == 0 && omm_bytes_equal(arguments, omm_bytes_str("{\"a\": [")));
    pieces(sent, &o, s, parts[2], false);
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(name.size == 0 && omm_bytes_equal(arguments, omm_bytes_str("]}")));
    CHECK(output_next_call(&o, &call, &name, &arguments));
    CHECK(call == 1 && omm_bytes_equal(name, omm_bytes_str("calculator")));
    CHECK_EQ(sent[0], 0);
    output_fini(&o);
}

static void test_own(const served *s, const char *jinja, omm_calls_form form,
                     const example *examples, size_t count, const char *const parts[3]) {
    const omm_grammar_tool tool = {.name = "calculator"};
    const omm_grammar_calls calls = {.tools = &tool, .tool_count = 1, .calls_max = 8, .form = form};
    request *r = (request *)omm_alloc(1, sizeof *r);
    served other = *s;
    CHECK(r != NULL);
    other.tokenizer = served_other_tokenizer(jinja);
    CHECK_EQ(omm_chat_calls_of(other.tokenizer), form);
    CHECK_OK(omm_grammar_open_calls(&r->grammar, &calls));
    for (size_t i = 0; i < count; i++)
        check_example(r, &other, &(thoughtful){examples[i], false, "", "", 0});
    r->has_tools = true;
    r->stop_count = 0;
    test_own_pieces(r, &other, parts);
    omm_grammar_close(r->grammar);
    omm_tokenizer_close(other.tokenizer);
    omm_free(r);
}

static void test_named(const served *s) {
    static const char *const parts[3] = {"[TOOL_CALLS]calculator[AR", "GS]{\"a\": [",
                                         "]}[TOOL_CALLS]calculator["};
    test_own(s, TEMPLATE_OF_NAMED_CALLS, OMM_CALLS_MISTRAL_ARGS, s_named,
             sizeof s_named / sizeof *s_named, parts);
}

static void test_listed(const served *s) {
    static const char *const parts[3] = {"<|tool_call|>[{\"name\": \"calculator\", \"arg",
                                         "uments\": {\"a\": [", "]}}, {\"name\": \"calculator\""};
    test_own(s, TEMPLATE_OF_LISTED_CALLS, OMM_CALLS_GRANITE, s_listed,
             sizeof s_listed / sizeof *s_listed, parts);
}

/* Every token is sent as it comes, but what may become a stop or a call, and parts of characters. */
static void test_pieces(const served *s) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    char sent[2048];
    output o;
    CHECK(r != NULL);
    r->is_chat = r->has_tools = true;
    CHECK_OK(output_init(&o, r, s->tokenizer, 100));
    pieces(sent, &o, s, "The cat sat", false);
    size_t bars = 0;
    for (const char *p = sent; *p; p++) bars += *p == '|';
    CHECK(bars >= 3);
    pieces(sent, &o, s, " <tool_cat", false); /* held until it cannot be a call any more */
    CHECK(strstr(sent, "<tool_c"));
    for (const char *p = strchr(sent, '<'); p && p < strstr(sent, "<tool_c") + 7; p++)
        CHECK(*p != '|');
    output_fini(&o);
    omm_free(r);
}

int main(void) {
    served s;
    served_open(&s);
    test_examples(&s);
    test_content_tokens(&s);
    test_cuts(&s);
    test_streamed(&s);
    test_own_stops(&s);
    test_bare(&s);
    test_formats(&s);
    test_named(&s);
    test_listed(&s);
    test_pieces(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
