/* grammar_calls_test.c - texts with calls: which bytes they may have, which tokens by the set as by each one's bytes; and
 * whatever is drawn from them is text and calls of the tools, as who reads calls takes them. */
#include "test_calls.h"

#include "omm/mem.h"

static void test_texts(void) {
    static const char *const yes[] = {
        "",
        "Hello, {\"name\": 1} </tool_call> <tool_box> <<tool_cal",
        ONE,
        "Wait. " ONE,
        "<<tool_call>{\"name\":\"bare\",\"arguments\":{}}</tool_call>",
        "<tool_<tool_call> {\"name\": \"bare\", \"arguments\": {}} </tool_call>",
        ONE ONE,
        ONE "\n" ONE,
        ONE " " ONE,
        ONE "\n",
        CALL("timer", "{\"minutes\": 90}"),
        CALL("timer", "{\"minutes\": 9, \"label\": \"<tool_call> </tool_call>\"}"),
        CALL("tree", "{\"of\": [[], [[]]]}"),
        CALL("loose", "{\"day\": \"never\", \"x\": 1.5, \"y\": {\"a\": [null]}, \"z\": 1}"),
        CALL("loose", "{\"y\": 1}"),
        CALL("bare", "{\"a\": {\"b\": [1, 2]}, \"c\": null}"),
        "<think>" ONE "</think>" ONE, /* two calls where nobody thinks: see below */
        NULL,
    };
    static const char *const no[] = {
        "<tool_call>",
        "<tool_call>\n\n{\"name\": \"bare\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"bare\", \"arguments\": {}}",
        "<tool_call>{\"name\": \"bare\", \"arguments\": {}}\n\n</tool_call>",
        "<tool_call>{\"name\": \"bare\", \"arguments\": []}</tool_call>",
        "<tool_call>{\"name\": \"bare\"}</tool_call>",
        "<tool_call>{\"arguments\": {}, \"name\": \"bare\"}</tool_call>",
        "<tool_call>{\"name\": \"bar\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"bare\", \"arguments\": {}, \"id\": 1}</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>bare()</tool_call>",
        ONE "and more",
        ONE "\n\n",
        ONE "\n" ONE "\n" ONE,
        ONE ONE "\n",
        CALL("timer", "{\"minutes\": 91}"),
        CALL("timer", "{\"label\": \"x\"}"),
        CALL("timer", "{\"minutes\": 9, \"other\": 1}"),
        CALL("tree", "{\"of\": [[], [], []]}"),
        CALL("tree", "{\"of\": [1]}"),
        CALL("loose", "{\"day\": 1, \"y\": 1}"),
        CALL("loose", "{\"day\": \"x\"}"),
        NULL,
    };
    tools t;
    read_tools(&t, TOOLS);
    omm_grammar *g = open_tools(&t);
    for (size_t i = 0; yes[i]; i++) check_text(g, yes[i], strncmp(yes[i], "<think>", 7) != 0);
    for (size_t i = 0; no[i]; i++) check_text(g, no[i], false);
    omm_grammar_close(g);
    json_decref(t.root);
}

/* A mark that is only thought of begins no call; what a template opens is a thought from the first byte on. */
static void test_thoughts(void) {
    tools t;
    read_tools(&t, TOOLS);
    t.calls.thinking = OMM_THINKING_OWN;
    omm_grammar *g = open_tools(&t);
    check_text(g, " \n\t<think> <tool_call> x </think>" ONE, true);
    check_text(g, "<think><</think>" ONE, true);
    check_text(g, "<think>a <tool_call>", true);
    check_text(g, "<think></think><tool_call> x", false);
    check_text(g, "<think></think><think><tool_call> x", false); /* no second thought */
    check_text(g, "<think>a <</think><tool_call> x", false);     /* a mark may begin again */
    check_text(g, "<th <think><tool_call> x", false);            /* what begins so is no thought */
    check_text(g, "<thol_call> x", true);                        /* nor a call */
    check_text(g, "<thin" ONE, true);
    check_text(g, "<thin<tool_call>x", false);
    check_text(g, "<tool_call>x", false);
    check_text(g, " <t<think><tool_call>x", false);
    check_text(g, "x<think><tool_call>x", false);
    omm_grammar_close(g);
    t.calls.thinking = OMM_THINKING_OPENED;
    g = open_tools(&t);
    check_text(g, "<tool_call> x", true);
    check_text(g, "<tool_call> x </think><tool_call> x", false);
    check_text(g, "<tool_call> x </think>" ONE, true);
    omm_grammar_close(g);
    json_decref(t.root);
}

/* A text may begin with a call that nobody draws, and end with one of some texts. */
static void test_begun_and_stops(void) {
    static const char *const stops[] = {"<|im_end|>", "[INST]"};
    tools t;
    read_tools(&t, TOOLS);
    t.calls.stops = stops;
    t.calls.stop_count = 2;
    omm_grammar *g = open_tools(&t);
    check_text(g, ONE "<|im_end|>", true);
    check_text(g, ONE ONE "[INST]", true);
    check_text(g, ONE "<|im_end|>x", false);
    check_text(g, ONE "<|im_end", false);
    check_text(g, ONE "\n<|im_end|>", false);
    check_text(g, "<|im_end|>" ONE, true);
    omm_grammar_close(g);
    static const struct {
        const char *begun;
        omm_err err;
    } begins[] = {{"<tool_call>\n{\"name\":", OMM_OK},
                  {"<tool_call>\n{\"name\": \"tree\", \"arguments\":", OMM_OK},
                  {"Hello", OMM_OK},
                  {"<tool_call>\n{\"name\": \"trees\"", OMM_ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        omm_grammar *begun = NULL;
        t.calls.begun = omm_bytes_str(begins[i].begun);
        CHECK_ERR(omm_grammar_open_calls(&begun, &t.calls), begins[i].err);
        CHECK_EQ(begun != NULL, begins[i].err == OMM_OK);
        if (!begun)
            CHECK(strstr(omm_err_sentence(), "begins with <tool_call>") &&
                  strstr(omm_err_sentence(), "\"trees"));
        omm_grammar_close(begun);
    }
    json_decref(t.root);
}

static void test_refused(void) {
    static const struct {
        const char *tools;
        const char *words;
    } refused[] = {
        {"[{\"name\": \"a\", \"strict\": true, \"parameters\": {\"type\": \"object\", "
         "\"properties\": {\"d\": {\"format\": \"day\"}}}}]",
         "a.parameters/properties/d/format: day is not supported; are date-time, "},
        {"[{\"name\": \"a\", \"strict\": true, \"parameters\": {\"type\": \"object\", "
         "\"properties\": {\"d\": {\"pattern\": \"\\\\bx\"}}}}]",
         "a.parameters/properties/d/pattern: byte 1 of the pattern: \\ before this letter"},
        {"[" BARE ", {\"name\": \"b\", \"strict\": true, \"parameters\": {\"type\": \"string\"}}]",
         "b.parameters: a schema with \"type\": \"object\" is needed"},
        {"[{\"name\": \"r\", \"strict\": true, \"parameters\": {\"type\": \"object\", "
         "\"properties\": {\"d\": {\"$ref\": \"#/$defs/n\"}}, \"$defs\": {\"n\": {\"not\": {}}}}}]",
         "r.parameters/$defs/n: not is not supported"},
        {"[{\"name\": \"c\", \"strict\": true, \"parameters\": {\"anyOf\": [{}, {}]}}]",
         "c.parameters: a schema with"},
        {"[{\"name\": \"d\", \"strict\": true, \"parameters\": {\"type\": \"object\", "
         "\"properties\": {\"d\": {\"$ref\": \"#\"}}, \"required\": [\"d\"]}}, " BARE "]",
         "d.parameters: no arguments fulfil it that end"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        omm_grammar *g = NULL;
        tools t;
        read_tools(&t, refused[i].tools);
        CHECK_ERR(omm_grammar_open_calls(&g, &t.calls), OMM_ERR_UNSUPPORTED);
        CHECK(!g && strstr(omm_err_sentence(), refused[i].words));
        for (size_t k = 0; k < t.calls.tool_count; k++) t.list[k].strict = false;
        CHECK_OK(omm_grammar_open_calls(&g, &t.calls)); /* as well as may be */
        omm_grammar_close(g);
        json_decref(t.root);
    }
}

/* As many as are announced, each with a name in front of its arguments, too. */
static void test_many(void) {
    tools t;
    char names[OMM_CHAT_TOOLS_MAX][OMM_CHAT_NAME_MAX];
    read_tools(&t, "[" TIMER "]");
    for (unsigned i = 0; i < OMM_CHAT_TOOLS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "tool_%u", i);
        t.list[i] = (omm_grammar_tool){names[i], t.list[0].parameters, true};
    }
    t.calls.tool_count = OMM_CHAT_TOOLS_MAX;
    omm_grammar *g = open_tools(&t);
    check_text(g, CALL("tool_127", "{\"minutes\": 3}"), true);
    check_text(g, CALL("tool_127", "{\"minutes\": 0}"), false);
    check_text(g, CALL("tool_128", "{\"minutes\": 3}"), false);
    omm_grammar_close(g);
    t.calls.form = OMM_CALLS_MISTRAL_ARGS;
    g = open_tools(&t);
    check_text(g, "[TOOL_CALLS]tool_127[ARGS]{\"minutes\": 3}", true);
    check_text(g, "[TOOL_CALLS]tool_12[ARGS]{\"minutes\": 0}", false);
    check_text(g, "[TOOL_CALLS]tool_128[ARGS]{\"minutes\": 3}", false);
    omm_grammar_close(g);
    json_decref(t.root);
}

/* ---- what is left out ------------------------------------------------------------------------------ */

#define OBJECT(members) "{\"type\": \"object\", \"properties\": {" members "}"

/* Of parameters of a tool that is not strict: what arguments are and what they are not. */
static const struct {
    const char *parameters, *yes[6], *no[8];
} s_loose[] = {
    {OBJECT("\"a\": {\"type\": \"number\", \"minimum\": 0, \"maximum\": 2}") "}",
     {"{\"a\": 1.5}", "{}"},
     {"{\"a\": 7.5}", "{\"a\": \"x\"}", "{\"b\": 1}"}},
    {OBJECT(
         "\"a\": {\"multipleOf\": 7, \"minimum\": 2, \"maximum\": 1, \"type\": \"integer\"}") "}",
     {"{\"a\": 5}"},
     {"{\"a\": \"x\"}"}}, /* nor of what is left out with the range */
    {OBJECT(
         "\"a\": {\"prefixItems\": [{\"type\": \"null\"}], \"items\": false, \"minItems\": 2}") "}",
     {"{\"a\": [null]}"}, /* as many as there may be */
     {"{\"a\": []}", "{\"a\": [null, 1]}", "{\"a\": [1]}"}},
    {OBJECT("\"a\": {\"type\": \"number\", \"minimum\": 2, \"maximum\": 1}") "}",
     {"{\"a\": 7.5}", "{\"a\": 1e5}"}, /* of the range nothing is left */
     {"{\"a\": \"x\"}"}},
    {OBJECT("\"a\": {\"type\": \"integer\", \"minimum\": 2.5, \"exclusiveMinimum\": true}") "}",
     {"{\"a\": 3}"}, /* as it was written before 2019 */
     {"{\"a\": 2}", "{\"a\": 0}", "{\"a\": \"x\"}", "{\"a\": 3.5}"}},
    /* of two keywords one is none: the other stays */
    {OBJECT("\"a\": {\"type\": \"integer\", \"minimum\": \"1\", \"maximum\": 5}, \"b\": "
            "{\"minItems\": "
            "null, \"maxItems\": 1}, \"c\": {\"minLength\": 1.0, \"maxLength\": -1}") "}",
     {"{\"a\": -9, \"b\": [1], \"c\": \"xyz\"}"},
     {"{\"a\": 6}", "{\"b\": [1, 2]}", "{\"c\": \"\"}"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"minLength\": 5e9, \"maxLength\": 6e9}") "}",
     {"{\"a\": \"x\"}"}, /* nothing that long ends */
     {"{\"a\": 1}"}},
    /* members that stand elsewhere may come: what holds, what holds of one or the other, what may */
    {OBJECT(
         "\"a\": {\"type\": \"null\"}") ", \"allOf\": [{\"$ref\": \"#/$defs/b\"}, {\"properties\": "
                                        "{\"c\": "
                                        "{\"type\": \"null\"}}}], \"$defs\": {\"b\": "
                                        "{\"properties\": "
                                        "{\"b\": {\"type\": \"null\"}}, \"required\": [\"b\"]}}}",
     {"{\"a\": null, \"b\": null, \"c\": null}", "{\"b\": null}"},
     {"{}", "{\"a\": null}", "{\"b\": 1}", "{\"b\": null, \"d\": 1}"}},
    {"{\"allOf\": [" OBJECT("\"a\": {\"type\": \"null\"}") "}, " OBJECT(
         "\"b\": {\"type\": \"null\"}") "}]}",
     {"{\"a\": null, \"b\": null}", "{}"},
     {"{\"a\": 1}", "{\"c\": 1}"}},
    {OBJECT(
         "\"k\": {\"enum\": [\"c\", \"r\"]}") ", \"required\": [\"k\"], \"oneOf\": "
                                              "[{\"properties\": {\"k\": "
                                              "{\"const\": \"c\"}, \"x\": {\"type\": \"null\"}}, "
                                              "\"required\": [\"x\"]}, {\"properties\": {\"k\": "
                                              "{\"const\": "
                                              "\"r\"}, \"y\": {\"type\": \"null\"}}}]}",
     {"{\"k\": \"c\", \"x\": null}", "{\"k\": \"r\"}", "{\"k\": \"r\", \"y\": null}"},
     {"{\"k\": \"c\"}", "{\"k\": \"r\", \"x\": null}", "{\"x\": null}", "{\"k\": \"s\"}"}},
    {OBJECT("\"k\": {\"type\": \"null\"}") ", \"if\": {\"required\": [\"k\"]}, \"then\": "
                                           "{\"properties\": {\"x\": "
                                           "{\"type\": \"null\"}}, \"required\": [\"x\"]}, "
                                           "\"dependentSchemas\": {\"k\": {\"properties\": {\"y\": "
                                           "{\"type\": "
                                           "\"null\"}}}}}",
     {"{\"k\": null, \"x\": null, \"y\": null}", "{}"},
     {"{\"x\": 1}", "{\"z\": 1}"}},
    {OBJECT("\"m\": {\"type\": \"object\", \"patternProperties\": {\"^[0-9]+$\": {\"type\": "
            "\"integer\"}}, "
            "\"additionalProperties\": false}") "}",
     {"{\"m\": {\"1\": 5}}", "{\"m\": {}}"},
     {"{\"m\": 1}", "{\"x\": 1}"}},
    {OBJECT(
         "\"m\": {\"$ref\": \"#/$defs/b\", \"properties\": {\"a\": {\"type\": \"null\"}}}, \"n\": "
         "{\"$ref\": "
         "\"#/$defs/none\", \"type\": \"null\"}") ", \"$defs\": {\"b\": " OBJECT("\"b\": "
                                                                                 "{\"type\": "
                                                                                 "\"null\"}") "}}}",
     {"{\"m\": {\"a\": null, \"b\": null}, \"n\": null}"},
     {"{\"m\": {\"c\": 1}}", "{\"n\": 1}"}},
    /* what it says itself of a member counts; of many alternatives what they name may come */
    {OBJECT(
         "\"a\": {\"type\": \"null\"}") ", \"allOf\": [{\"properties\": {\"a\": {\"type\": "
                                        "\"boolean\"}, "
                                        "\"b\": {\"type\": \"null\"}}}, {\"required\": [\"a\"]}]}",
     {"{\"a\": null}", "{\"a\": null, \"b\": null}"},
     {"{\"a\": true}", "{\"b\": null}"}},
    {OBJECT("\"a\": {\"type\": \"null\"}") ", \"anyOf\": [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
                                           "{}, {}, {}, {}, {}, {}, {\"properties\": {\"z\": "
                                           "{\"type\": \"null\"}}, \"required\": [\"z\"]}]}",
     {"{\"a\": null, \"z\": null}", "{}"},
     {"{\"z\": 1}", "{\"y\": 1}"}},
    /* a type beside alternatives is that of those that say none */
    {OBJECT("\"a\": {\"type\": \"integer\", \"anyOf\": [{\"minimum\": 5}, {\"maximum\": -5}, "
            "{\"const\": 0}]}") "}",
     {"{\"a\": 5}", "{\"a\": -5}", "{\"a\": 0}"},
     {"{\"a\": 4}", "{\"a\": \"x\"}", "{\"a\": 5.5}"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"format\": \"date\"}, \"b\": {\"pattern\": \"^x+$\", "
            "\"format\": \"date\", \"maxLength\": 2}") "}",
     {"{\"a\": \"2026-11-27\", \"b\": \"xx\"}"},
     {"{\"a\": \"x\"}", "{\"b\": \"xxx\"}", "{\"b\": \"2026-11-27\"}"}},
    {OBJECT(
         "\"a\": {\"pattern\": \"(?=x)\", \"maxLength\": 2}, \"b\": {\"pattern\": \"xxx\", "
         "\"maxLength\": 2}, \"c\": {\"pattern\": 5}, \"d\": {\"type\": \"integer\", \"format\": "
         "\"int32\"}") "}",
     {"{\"a\": \"yy\", \"b\": \"y\", \"c\": \"\", \"d\": 5}"},
     {"{\"a\": \"yyy\"}", "{\"b\": \"xxx\"}", "{\"c\": 1}", "{\"d\": \"x\"}"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"format\": \"day\", \"minLength\": 3, \"maxLength\": "
            "2}") "}",
     {"{\"a\": \"\"}", "{\"a\": \"long\"}"},
     {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"maxLength\": 2, \"minLength\": \"1\"}") "}",
     {"{\"a\": \"ab\"}", "{\"a\": \"\"}"},
     {"{\"a\": \"long\"}", "{\"a\": 1}"}},
    /* of what should stand alone: a list of values, a reference, what the type has, a choice */
    {OBJECT("\"a\": {\"enum\": [1, 2], \"anyOf\": [{\"type\": \"string\"}]}") "}",
     {"{\"a\": 2}"},
     {"{\"a\": \"x\"}"}},
    {OBJECT("\"a\": {\"type\": \"number\", \"enum\": [\"1\", \"2\"]}") "}",
     {"{\"a\": \"1\"}"},
     {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"enum\": []}") "}", {"{\"a\": \"x\"}"}, {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"const\": 5, \"minimum\": 6}") "}", {"{\"a\": 5}"}, {"{\"a\": 6}"}},
    {OBJECT("\"a\": {\"$ref\": \"#/$defs/n\", \"type\": \"string\"}") ", \"$defs\": {\"n\": "
                                                                      "{\"type\": "
                                                                      "\"integer\"}}}",
     {"{\"a\": 1}"},
     {"{\"a\": \"x\"}"}},
    {OBJECT(
         "\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"string\"}") ", \"anyOf\": "
                                                                         "[{\"required\": "
                                                                         "[\"a\"]}, {\"required\": "
                                                                         "[\"b\"]}], \"required\": "
                                                                         "[\"a\"]}",
     {"{\"a\": \"x\"}", "{\"a\": \"x\", \"b\": \"y\"}"},
     {"{}", "{\"a\": 1}", "{\"c\": 1, \"a\": \"x\"}"}},
    {OBJECT("\"a\": {\"type\": \"object\", \"anyOf\": [{\"properties\": {\"b\": {\"type\": "
            "\"null\"}}, "
            "\"required\": [\"b\"]}, {\"type\": \"boolean\"}]}") "}",
     {"{\"a\": {\"b\": null}}", "{\"a\": true}"},
     {"{\"a\": {}}", "{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": \"boolean\", \"allOf\": [{}, {}], \"oneOf\": []}") "}",
     {"{\"a\": true}"},
     {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": \"boolean\", \"allOf\": [{\"type\": \"boolean\"}, {\"enum\": "
            "[true]}]}") "}",
     {"{\"a\": false}"},
     {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"allOf\": [{\"description\": \"x\"}, {\"type\": \"null\"}], \"type\": "
            "\"null\"}") "}",
     {"{\"a\": null}"},
     {"{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": [\"string\", \"text\"]}, \"b\": {\"type\": \"list\", \"items\": "
            "{\"type\": "
            "\"null\"}}, \"c\": {\"type\": \"text\"}") "}",
     {"{\"a\": \"\", \"b\": [null], \"c\": [1]}"},
     {"{\"a\": 1}", "{\"b\": [1]}", "{\"b\": 1}"}},
    /* lists as they were written before 2020 */
    {OBJECT("\"a\": {\"type\": \"array\", \"items\": [{\"type\": \"null\"}, {\"type\": "
            "\"boolean\"}]}, \"b\": "
            "{\"items\": [{}], \"additionalItems\": false, \"minItems\": 3}, \"c\": "
            "{\"prefixItems\": 1, "
            "\"items\": {\"type\": \"null\"}}") "}",
     {"{\"a\": [null, true, 5], \"b\": [1], \"c\": [null]}"},
     {"{\"a\": [1]}", "{\"a\": [null, 1]}", "{\"b\": [1, 2]}", "{\"b\": []}", "{\"c\": [1]}"}},
    {"{\"type\": \"object\", \"properties\": null, \"required\": true}",
     {"{}", "{\"a\": 1}"},
     {"1"}},
    {OBJECT("\"a\": {\"type\": \"string\", \"required\": true}") ", \"required\": [\"a\", 5]}",
     {"{\"a\": \"\"}"},
     {"{}", "{\"a\": 1}"}},
    {OBJECT("\"a\": {\"type\": \"null\"}") ", \"required\": [\"b\"]}",
     {"{\"b\": 1}", "{\"a\": null, \"b\": []}"},
     {"{}", "{\"b\": 1, \"c\": 1}"}},
    {OBJECT(
         "\"a\": {\"type\": \"null\"}") ", \"required\": [\"b\"], \"additionalProperties\": false}",
     {"{}", "{\"a\": null}"},
     {"{\"b\": 1}"}},
    /* what has named its members has no others, wherever it stands */
    {"{\"$ref\": \"#/$defs/o\", \"$defs\": {\"o\": " OBJECT(
         "\"a\": {\"$ref\": \"#/$defs/p\"}") "}, \"p\": " OBJECT("\"n\": {}") "}}}",
     {"{\"a\": {\"n\": 1}}", "{}"},
     {"{\"b\": 1}", "{\"a\": {\"m\": 1}}"}},
    {OBJECT("\"a\": " OBJECT(
         "\"n\": {}") ", \"additionalProperties\": true}") ", \"additionalProperties\": "
                                                           "{\"type\": \"null\"}}",
     {"{\"a\": {\"m\": 1}}", "{\"b\": null}"},
     {"{\"b\": 1}"}},
    {OBJECT("") "}", {"{}"}, {"{\"a\": 1}"}},
    /* of what no grammar is made of, any object */
    {OBJECT("\"a\": {\"$ref\": \"#/$defs/n\"}") ", \"$defs\": {\"n\": {\"$ref\": \"#/$defs/n\"}}}",
     {"{}", "{\"a\": 1, \"b\": 2}"},
     {"1", "[]"}},
    {OBJECT("\"a\": {\"$ref\": \"#\"}") ", \"required\": [\"a\"]}", {"{}", "{\"a\": 1}"}, {"1"}},
    {"{\"type\": \"string\"}", {"{}", "{\"a\": 1}"}, {"\"x\"", "1"}},
};

static void check_loose(const omm_grammar *g, const char *arguments, bool wanted) {
    char text[256];
    snprintf(text, sizeof text, CALL("f", "%s"), arguments);
    check_text(g, text, wanted);
    snprintf(text, sizeof text, CALL("timer", "{\"minutes\": 0}"));
    check_text(g, text, false); /* the other tool's are kept to all the same */
}

static void test_left_out(void) {
    for (size_t i = 0; i < sizeof s_loose / sizeof *s_loose; i++) {
        tools t;
        char text[1024];
        const int size =
            snprintf(text, sizeof text, "[" TIMER ", {\"name\": \"f\", \"parameters\": %s}]",
                     s_loose[i].parameters);
        CHECK(size > 0 && (size_t)size < sizeof text);
        read_tools(&t, text);
        omm_grammar *g = open_tools(&t);
        for (size_t k = 0; k < 6 && s_loose[i].yes[k]; k++) check_loose(g, s_loose[i].yes[k], true);
        for (size_t k = 0; k < 8 && s_loose[i].no[k]; k++) check_loose(g, s_loose[i].no[k], false);
        omm_grammar_close(g);
        json_decref(t.root);
    }
}

static json_t *deep(unsigned levels, const char *key) {
    json_t *schema = json_pack("{s:s}", "type", "null");
    for (unsigned i = 0; i < levels; i++) schema = json_pack("{s:o}", key, schema);
    return schema;
}

static json_t *wide(unsigned count, const char *type) {
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:i}", "type", type, "maxLength", (int)i));
    return list;
}

static json_t *numbers(unsigned count) {
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) json_array_append_new(list, json_integer(i));
    return list;
}

/* What is too much of a tool that is not strict costs that tool's arguments their form, and nobody else. */
static void test_too_much(void) {
    json_t *const members[3] = {
        json_pack("{s:o}", "a", deep(70, "items")),
        json_pack("{s:{s:o}}", "a", "anyOf", wide(65, "string")),
        json_pack("{s:{s:o}}", "a", "enum", numbers(20000)),
    };
    for (size_t i = 0; i < 3; i++) {
        tools t;
        json_t *parameters = json_pack("{s:s, s:o}", "type", "object", "properties", members[i]);
        read_tools(&t, "[" TIMER ", " BARE "]");
        t.list[1].parameters = parameters;
        omm_grammar *g = open_tools(&t);
        check_text(g, CALL("timer", "{\"minutes\": 0}"), false);
        check_text(g, CALL("bare", "{\"a\": 1}"), i > 0);
        check_text(g, CALL("bare", "{\"b\": 1}"), i == 2); /* else only that place is any value */
        omm_grammar_close(g);
        g = NULL;
        t.list[1].strict = true;
        CHECK(omm_grammar_open_calls(&g, &t.calls) != OMM_OK && !g);
        json_decref(parameters);
        json_decref(t.root);
    }
}

/* Each tool alone is not too much; all of them are: the strict one is kept to. */
static void test_too_much_together(void) {
    tools t;
    char names[8][16];
    json_t *parameters =
        json_pack("{s:s, s:{s:{s:o}}}", "type", "object", "properties", "a", "enum", numbers(3000));
    read_tools(&t, "[" TIMER "]");
    for (unsigned i = 1; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "many_%u", i);
        t.list[i] = (omm_grammar_tool){names[i], parameters, false};
    }
    t.calls.tool_count = 8;
    t.list[0].strict = true;
    omm_grammar *g = open_tools(&t);
    check_text(g, CALL("timer", "{\"minutes\": 0}"), false);
    check_text(g, CALL("many_7", "{\"a\": \"x\"}"), true);
    omm_grammar_close(g);
    json_decref(parameters);
    json_decref(t.root);
}

/* Of two tools, one with a pattern, or of that one alone. */
static uint32_t work_of(size_t first) {
    tools t;
    omm_grammar *g = NULL;
    read_tools(&t, "[{\"name\": \"f\", \"parameters\": " OBJECT(
                       "\"a\": {\"$ref\": \"#\"}") ", \"required\": [\"a\"]}},"
                                                   " {\"name\": \"g\", \"parameters\": " OBJECT(
                                                       "\"a\": {\"type\": \"string\", \"pattern\": "
                                                       "\"^ab{5}$\"}") "}}]");
    t.calls.tools = t.list + first;
    t.calls.tool_count = 2 - first;
    CHECK_OK(omm_grammar_open_calls(&g, &t.calls));
    const uint32_t work = g->patterns.work;
    omm_grammar_close(g);
    json_decref(t.root);
    return work;
}

/* What a pass over the list has spent, which found that one tool makes no grammar, counts for the next. */
static void test_work_is_kept(void) {
    const uint32_t alone = work_of(1);
    CHECK(alone > 0);
    CHECK_EQ(work_of(0), 2 * alone);
}

/* Of so many tools, each with members in two places, the last one of which perhaps makes no grammar. */
static uint32_t looks_of(unsigned count, bool all_compile) {
    tools t;
    char names[8][16];
    omm_grammar *g = NULL;
    json_t *parameters = json_pack("{s:s, s:{s:{}}, s:{s:[s]}}", "type", "object", "properties",
                                   "a", "then", "required", "b");
    json_t *none = json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type", "object", "properties", "a",
                             "$ref", "#", "required", "a");
    read_tools(&t, "[]");
    for (unsigned i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "tool_%u", i);
        const bool fails = !all_compile && i + 1 == count;
        t.list[i] = (omm_grammar_tool){names[i], fails ? none : parameters, false};
    }
    t.calls.tool_count = count;
    CHECK_OK(omm_grammar_open_calls(&g, &t.calls));
    const uint32_t looked = g->looks.count;
    omm_grammar_close(g);
    json_decref(parameters);
    json_decref(none);
    json_decref(t.root);
    return looked;
}

/* What is looked at counts for all tools, and for all tries of them: once, tried alone, and again. */
static void test_looks_are_kept(void) {
    const uint32_t one = looks_of(1, true);
    CHECK(one > 1);
    CHECK_EQ(looks_of(7, true), 7 * one);
    CHECK_EQ(looks_of(7, false), 3 * 6 * one);
}

/* Patterns that are too much, in as many tools as there may be, of which one makes no grammar: tools are tried one by one, and
 * the work on patterns is bounded for all of them together. */
static void test_work_together(void) {
    tools t;
    char names[OMM_GRAMMAR_TOOLS_MAX][16];
    omm_grammar *g = NULL;
    const char *heavy = "a.{20}b.{20}c$";
    json_t *parameters = json_pack("{s:s, s:{s:{s:s}, s:{s:s}}}", "type", "object", "properties",
                                   "a", "pattern", heavy, "b", "pattern", heavy);
    read_tools(&t, "[{\"name\": \"f\", \"parameters\": " OBJECT(
                       "\"a\": {\"$ref\": \"#\"}") ", \"required\": [\"a\"]}}]");
    for (unsigned i = 1; i < OMM_GRAMMAR_TOOLS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "tool_%u", i);
        t.list[i] = (omm_grammar_tool){names[i], parameters, false};
    }
    t.calls.tool_count = OMM_GRAMMAR_TOOLS_MAX;
    const size_t asked = omm_mem_asked();
    CHECK_OK(omm_grammar_open_calls(&g, &t.calls));
    CHECK(g->patterns.work > PATTERN_WORK_MAX / 2 && g->patterns.work <= 2 * PATTERN_WORK_MAX);
    /* measured: 158 MiB, and 580 of half as many tools where each has the work of all */
    CHECK(omm_mem_asked() - asked < (size_t)256 << 20);
    check_text(g, CALL("tool_127", "{\"a\": \"x\"}"), true);
    check_text(g, CALL("tool_127", "{\"c\": \"x\"}"), false);
    omm_grammar_close(g);
    json_decref(parameters);
    json_decref(t.root);
}

static void test_memory(void) {
    tools t;
    size_t failed = 0;
    read_tools(&t, "[" TIMER ", " TREE ", " LOOSE ", " CIRCLE "]");
    for (size_t n = 1; n < 200; n++) {
        omm_grammar *g = NULL;
        omm_mem_fail_nth(n);
        const omm_err err = omm_grammar_open_calls(&g, &t.calls);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        failed += err == OMM_ERR_NOMEM;
        if (g) check_text(g, CALL("timer", "{\"minutes\": 0}"), false); /* all or nothing */
        omm_grammar_close(g);
    }
    CHECK(failed > 10 && failed < 190);
    json_decref(t.root);
}

/* ---- tokens ------------------------------------------------------------------------------------- */

/* Calls that were made. */
static size_t check_drawn(const omm_buf *written, omm_thinking thinking, size_t most) {
    omm_chat_reply reply = {0};
    omm_bytes text = omm_buf_view(written);
    size_t count = 0;
    if (thinking != OMM_THINKING_NONE) {
        omm_thought thought = omm_thought_init(true, false);
        omm_buf whole;
        omm_buf_init(&whole, 1 << 20);
        if (thinking == OMM_THINKING_OPENED) CHECK_OK(omm_buf_append(&whole, "<think>\n", 8));
        CHECK_OK(omm_buf_append(&whole, text.data, text.size));
        omm_thought_look(&thought, omm_buf_view(&whole), true);
        const size_t answer = thought.answer < whole.size ? thought.answer : whole.size;
        const size_t skipped = answer - (whole.size - text.size);
        omm_buf_fini(&whole);
        text = answer < whole.size + 1 && skipped <= text.size
                   ? omm_bytes_of(text.data + skipped, text.size - skipped)
                   : omm_bytes_str("");
    }
    const omm_err err = omm_chat_parse(&reply, text, OMM_CALLS_MARKED, NULL, NULL);
    if (err != OMM_OK) {
        /* what ends a call may stand in a text that has begun none; arguments of any names may have one twice */
        const bool says = strstr(omm_err_sentence(), "without <tool_call>") ||
                          strstr(omm_err_sentence(), "duplicate");
        if (!says) fprintf(stderr, "%s\n%.*s\n", omm_err_sentence(), (int)text.size, text.data);
        CHECK(says);
        return 0;
    }
    CHECK(reply.call_count <= most);
    for (size_t i = 0; i < reply.call_count; i++) CHECK(fits_tool(&reply.calls[i]));
    count = reply.call_count;
    omm_chat_reply_fini(&reply);
    return count;
}

static size_t draw(rig *r, omm_grammar *g, const tools *t, unsigned steps) {
    omm_constraint *c = NULL;
    omm_buf written;
    omm_buf_init(&written, 1 << 20);
    CHECK_OK(omm_constraint_open(&c, g, r->lexicon));
    for (unsigned i = 0; !omm_constraint_has_ended(c); i++) {
        const uint32_t *allowed = omm_constraint_allowed(c);
        CHECK(i < 100000);
        if (i % 5 == 0) check_allowed(r, c);
        uint32_t id = 0;
        if (i >= steps)
            id = pick_last(r, allowed);
        else
            id = roll(r, 3) || stands_free(c, r) ? pick_mark(r, allowed) : pick(r, allowed);
        if (id >= omm_tokenizer_vocab(r->tokenizer)) continue;
        const omm_bytes piece = omm_tokenizer_piece(r->tokenizer, id);
        if (stands_free(c, r) && memmem(piece.data, piece.size, "</tool_call>", 12)) continue;
        take(r, c, &written, id);
    }
    omm_constraint_close(c);
    const size_t calls = check_drawn(&written, t->calls.thinking, t->calls.calls_max);
    omm_buf_fini(&written);
    return calls;
}

static void test_drawn(bool spm, unsigned marks) {
    rig r;
    tools t;
    size_t calls = 0;
    open_rig(&r, spm, marks);
    read_tools(&t, TOOLS);
    for (unsigned round = 0; round < 60; round++) {
        t.calls.thinking = (omm_thinking)(round % 3);
        t.calls.calls_max = 1 + round % 4;
        omm_grammar *g = open_tools(&t);
        calls += draw(&r, g, &t, 10 + round);
        omm_grammar_close(g);
    }
    CHECK(calls > 15);
    json_decref(t.root);
    close_rig(&r);
}

/* With a call begun no text comes before its end, and a restart begins there again. */
static void test_asked_for(void) {
    rig r;
    tools t;
    omm_constraint *c = NULL;
    open_rig(&r, false, 0);
    read_tools(&t, TOOLS);
    t.calls.calls_max = 1;
    t.calls.begun = omm_bytes_str("<tool_call>\n{\"name\": \"timer\", \"arguments\":");
    omm_grammar *g = open_tools(&t);
    CHECK_OK(omm_constraint_open(&c, g, r.lexicon));
    for (unsigned turn = 0; turn < 2; turn++) {
        static const char rest[] = " {\"minutes\": 90}}\n";
        omm_constraint_restart(c);
        CHECK(!omm_constraint_permits(c, omm_tokenizer_eos(r.tokenizer)));
        for (const char *p = rest; *p; p++) {
            const uint8_t byte = (uint8_t)*p;
            uint32_t id = 0;
            while (omm_tokenizer_piece(r.tokenizer, id).size != 1 ||
                   omm_tokenizer_piece(r.tokenizer, id).data[0] != byte)
                id++;
            check_allowed(&r, c);
            CHECK(omm_constraint_permits(c, id));
            omm_constraint_take(c, id);
        }
        omm_constraint_take(c, omm_tokenizer_special(r.tokenizer, "</tool_call>"));
        for (uint32_t id = 0; id < r.lexicon->vocab; id++)
            CHECK_EQ(lexicon_has(omm_constraint_allowed(c), id),
                     id == omm_tokenizer_eos(r.tokenizer));
    }
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.root);
    close_rig(&r);
}

/* A token with all of the mark but its first byte. */
static void test_openers(void) {
    rig r;
    tools t;
    omm_constraint *c = NULL;
    open_rig(&r, false, 0);
    read_tools(&t, TOOLS);
    omm_grammar *g = open_tools(&t);
    const uint32_t rest = omm_tokenizer_special(r.tokenizer, "tool_call>x");
    CHECK_OK(omm_constraint_open(&c, g, r.lexicon));
    CHECK(omm_constraint_permits(c, rest));
    check_allowed(&r, c);
    omm_constraint_take(c, pick_byte(&r, omm_constraint_allowed(c), '<'));
    CHECK(!omm_constraint_permits(c, rest));
    check_allowed(&r, c);
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.root);
    close_rig(&r);
}

/* Longer than the trees: fine where nothing begins with it. */
static void test_long_tokens(void) {
    rig r;
    tools t;
    omm_constraint *c = NULL;
    open_rig(&r, false, 2);
    read_tools(&t, TOOLS);
    omm_grammar *g = open_tools(&t);
    const uint32_t opens = omm_tokenizer_special(r.tokenizer, FIFTY FIFTY FIFTY "<tool_call>");
    const uint32_t plain = omm_tokenizer_special(r.tokenizer, FIFTY FIFTY FIFTY);
    CHECK_OK(omm_constraint_open(&c, g, r.lexicon));
    CHECK(!omm_constraint_permits(c, opens) && omm_constraint_permits(c, plain));
    check_allowed(&r, c);
    omm_constraint_take(c, plain);
    check_allowed(&r, c);
    omm_constraint_take(c, omm_tokenizer_special(r.tokenizer, "x<tool_call>{\"name\": \""));
    CHECK(!omm_constraint_permits(c, plain) && !omm_constraint_permits(c, opens));
    check_allowed(&r, c);
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.root);
    close_rig(&r);
}

/* Who only asks for a long token, however often, leaves nothing behind. */
static void test_long_calls(void) {
    rig r;
    tools t;
    omm_constraint *c = NULL;
    open_rig(&r, false, 3);
    read_tools(&t, "[{\"name\": \"f\"}]");
    json_t *ways = wide(GRAMMAR_THREADS_MAX, "array");
    t.list[0].parameters =
        json_pack("{s:s, s:{s:{s:o}}}", "type", "object", "properties", "a", "anyOf", ways);
    omm_grammar *g = open_tools(&t);
    CHECK_OK(omm_constraint_open(&c, g, r.lexicon));
    for (unsigned i = 0; i < 4; i++) check_allowed(&r, c);
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(t.list[0].parameters);
    json_decref(t.root);
    close_rig(&r);
}

int main(void) {
    test_texts();
    test_thoughts();
    test_begun_and_stops();
    test_refused();
    test_many();
    test_left_out();
    test_too_much();
    test_too_much_together();
    test_work_together();
    test_work_is_kept();
    test_looks_are_kept();
    test_memory();
    for (unsigned marks = 0; marks < 3; marks++) {
        test_drawn(false, marks);
        test_drawn(true, marks);
    }
    test_asked_for();
    test_openers();
    test_long_tokens();
    test_long_calls();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
