/* chat_turns_test.c - what OpenAI's JSON says, turn by turn; what is wrong with it, by name. */
#include "omm/chat_turns.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static json_t *parse(const char *text) {
    json_t *out = NULL;
    CHECK_OK(omm_json_parse(&out, omm_bytes_str(text), "test"));
    return out;
}

static bool s_with_thoughts, s_given_back;

/* ROLE:CONTENT| for each turn. */
static omm_err read_as(char *out, size_t size, const char *messages, const char *tools,
                       omm_chat_bad *bad) {
    omm_chat_turns t;
    json_t *list = parse(messages), *announced = tools ? parse(tools) : NULL;
    size_t at = 0;
    omm_chat_turns_init(&t, 1 << 16);
    t.with_thoughts = s_with_thoughts;
    t.given_back = s_given_back;
    const omm_err err = omm_chat_turns_read(&t, list, announced);
    out[0] = 0;
    for (size_t i = 0; err == OMM_OK && i < t.count; i++)
        at += (size_t)snprintf(out + at, size - at, "%s:%.*s|", omm_role_name(t.messages[i].role),
                               (int)t.messages[i].content.size,
                               (const char *)t.messages[i].content.data);
    if (bad) *bad = t.bad;
    omm_chat_turns_fini(&t);
    json_decref(list);
    json_decref(announced);
    return err;
}

static void says(const char *want, const char *messages, const char *tools) {
    char got[4096];
    CHECK_OK(read_as(got, sizeof got, messages, tools, NULL));
    if (strcmp(got, want) == 0) return;
    fprintf(stderr, "got  %s\nwant %s\n", got, want);
    exit(1);
}

#define TOOLS                                                                                      \
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": "                 \
    "{\"properties\": "                                                                            \
    "{\"a\": {}, \"b\": {}}}}}, {\"name\": \"now\"}]"
#define PARTS "[{\"type\": \"text\", \"text\": \"He\"}, {\"type\": \"text\", \"text\": \"llo\"}]"
#define CALL(arguments)                                                                            \
    "\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"add\", "  \
    "\"arguments\": " arguments "}}]"

static void test_turns(void) {
    says("system:Be kind.|user:Hello|",
         "[{\"role\": \"developer\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
         "\"content\": " PARTS "}]",
         NULL);
    says("user:A|assistant:B|", /* a weight is a word of training's */
         "[{\"role\": \"user\", \"content\": \"A\"}, {\"role\": \"assistant\", \"content\": "
         "\"B\", \"weight\": 2}]",
         NULL);
    says("user:|assistant:|",
         "[{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", "
         "\"content\": []}]",
         "null");
    says("system:Tools: add(a, b), now().|user:Hello|",
         "[{\"role\": \"user\", \"content\": " PARTS "}]", TOOLS);
    says("system:Hello Tools: add(a, b), now().|user:x|",
         "[{\"role\": \"system\", \"content\": " PARTS "}, {\"role\": \"user\", \"content\": "
         "\"x\"}]",
         TOOLS);
#define CALLED                                                                                     \
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": \"x\"}}\n</tool_call>"
    says(
        "assistant:" CALLED "|tool:3|",
        "[{\"role\": \"assistant\", \"content\": null, " CALL(
            "\"{\\\"b\\\": 1, \\\"a\\\": \\\"x\\\"}\"") "}, {\"role\": \"tool\", \"tool_call_id\": "
                                                        "\"1\", \"content\": \"3\"}]",
        NULL);
    says("assistant:<tool_call>\n{\"name\": \"add\", \"arguments\": {\"price\": 19.99, \"at\": "
         "[1e-05, "
         "2.0]}}\n</tool_call>|",
         "[{\"role\": \"assistant\", \"content\": null, " CALL(
             "\"{\\\"price\\\": 19.99, \\\"at\\\": [0.00001, 2.0]}\"") "}]",
         NULL);
    says("assistant:Hello\n" CALLED "|",
         "[{\"role\": \"assistant\", \"content\": " PARTS
         ", " CALL("{\"b\": 1, \"a\": \"x\"}") "}]",
         NULL);
}

#define THOUGHT "\"reasoning_content\": \" \\n so \\n\""

static void test_thoughts(void) {
    const char *said = "[{\"role\": \"assistant\", \"content\": \"Hello\", " THOUGHT "}]";
    const char *parts = "[{\"role\": \"assistant\", \"content\": " PARTS ", " THOUGHT "}]";
    const char *calls = "[{\"role\": \"assistant\", \"content\": null, " THOUGHT
                        ", " CALL("{\"b\": 1, \"a\": \"x\"}") "}]";
    const char *both = "[{\"role\": \"assistant\", \"content\": " PARTS ", " THOUGHT
                       ", " CALL("{\"b\": 1, \"a\": \"x\"}") "}]";
    const char *none =
        "[{\"role\": \"user\", \"content\": \"a\", " THOUGHT "}, {\"role\": "
        "\"assistant\", \"content\": \"b\", \"reasoning_content\": null}, {\"role\": "
        "\"assistant\", \"content\": \"c\", \"reasoning_content\": \"\"}]";
    says("assistant:Hello|", said, NULL);
    says("assistant:Hello|", parts, NULL);
    says("assistant:" CALLED "|", calls, NULL);
    s_with_thoughts = true;
    says("assistant:<think>\nso\n</think>\n\nHello|", said, NULL);
    says("assistant:<think>\nso\n</think>\n\nHello|", parts, NULL);
    says("assistant:<think>\nso\n</think>\n\n" CALLED "|", calls, NULL);
    says("assistant:<think>\nso\n</think>\n\nHello\n" CALLED "|", both, NULL);
    says("user:a|assistant:b|assistant:c|", none, NULL);
    s_with_thoughts = false;
}

/* However many names its arguments have. */
static void test_many_arguments(void) {
    char tools[1 << 14] = "[{\"name\": \"add\", \"parameters\": {\"properties\": {";
    char want[1 << 14] = "system:Tools: add(";
    size_t at = strlen(tools), end = strlen(want);
    for (unsigned i = 0; i < 100; i++) {
        at += (size_t)snprintf(tools + at, sizeof tools - at, "%s\"argument_%u\": {}",
                               i ? ", " : "", i);
        end += (size_t)snprintf(want + end, sizeof want - end, "%sargument_%u", i ? ", " : "", i);
    }
    snprintf(tools + at, sizeof tools - at, "}}}, {\"name\": \"now\"}]");
    snprintf(want + end, sizeof want - end, "), now().|user:x|");
    says(want, "[{\"role\": \"user\", \"content\": \"x\"}]", tools);
}

static void refuses(omm_chat_bad want, const char *words, const char *messages, const char *tools) {
    char got[2048];
    omm_chat_bad bad = OMM_CHAT_BAD_NONE;
    CHECK_ERR(read_as(got, sizeof got, messages, tools, &bad), OMM_ERR_FORMAT);
    CHECK_EQ(bad, want);
    if (strstr(omm_err_sentence(), words)) return;
    fprintf(stderr, "%s\nwithout \"%s\"\n", omm_err_sentence(), words);
    exit(1);
}

static void test_refused(void) {
    refuses(OMM_CHAT_BAD_MESSAGES, "a list of 1 to 1024 messages", "[]", NULL);
    refuses(OMM_CHAT_BAD_MESSAGES, "a list of 1 to 1024 messages", "{}", NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "message 0 has no role", "[1]", NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "role 'robot'; accepted: system, user",
            "[{\"role\": \"robot\", \"content\": \"\"}]", NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "message 0: content is not a string",
            "[{\"role\": \"user\", \"content\": null, " CALL("{}") "}]", NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "message 0: content part of type 'image_url'; accepted: text",
            "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "content part of type 'text'",
            "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": 1}]}]", NULL);
    refuses(OMM_CHAT_BAD_CALLS, "the arguments of call 0 are no JSON",
            "[{\"role\": \"assistant\", " CALL("\"{\"") "}]", NULL);
    says("assistant:<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>|",
         "[{\"role\": \"assistant\", " CALL("\"\"") "}]", NULL);
    says("assistant:<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>|",
         "[{\"role\": \"assistant\", " CALL("\"{\\\"a\\\": 1, \\\"a\\\": 2}\"") "}]", NULL);
    refuses(OMM_CHAT_BAD_CALLS, "call 0 are no JSON: arguments:1:26: too big integer",
            "[{\"role\": \"assistant\", " CALL("\"{\\\"n\\\": 12345678901234567890}\"") "}]", NULL);
    refuses(OMM_CHAT_BAD_CALLS, "tool_calls: a list of calls is needed",
            "[{\"role\": \"user\", \"content\": \"\", \"tool_calls\": {}}]", NULL);
    refuses(OMM_CHAT_BAD_TOOLS, "tools: entry 1 has no function name",
            "[{\"role\": \"user\", \"content\": \"\"}]", "[{\"name\": \"a\"}, {}]");
    refuses(OMM_CHAT_BAD_CONTENT, "message 0: reasoning_content is not a string",
            "[{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": 1}]", NULL);
    refuses(OMM_CHAT_BAD_TOOLS, "tools: a list of tools is needed",
            "[{\"role\": \"user\", \"content\": \"\"}]", "\"add\"");
}

#define TURN(more) "[{\"role\": \"assistant\"" more "}]"
#define REFUSED "\"refusal\": \"I will not.\""

/* What a server may have told its client; as data to learn from it is refused. */
static void test_given_back(void) {
    static const struct {
        const char *turn, *says;
        omm_chat_bad bad;
        const char *words;
    } cases[] = {
        {TURN(", \"content\": null"), "", OMM_CHAT_BAD_CONTENT, "content is not a string"},
        {TURN(""), "", OMM_CHAT_BAD_CONTENT, "content is not a string"},
        {TURN(", \"content\": null, \"tool_calls\": []"), "", OMM_CHAT_BAD_CONTENT, "content is"},
        {TURN(", \"content\": null, " REFUSED), "I will not.", OMM_CHAT_BAD_CONTENT, "content is"},
        {TURN(", \"content\": [{\"type\": \"refusal\", " REFUSED "}]"), "I will not.",
         OMM_CHAT_BAD_CONTENT, "content part of type 'refusal'"},
        {TURN(", " CALL("\"{\\\"a\\\": \\\"x\"")),
         "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"x}\n</tool_call>",
         OMM_CHAT_BAD_CALLS, "arguments of call 0 are no JSON"},
        {TURN(", " CALL("\"{\\\"a\\\":12345678901234567890}\"")),
         "<tool_call>\n{\"name\": \"add\", \"arguments\": "
         "{\"a\":12345678901234567890}}\n</tool_call>",
         OMM_CHAT_BAD_CALLS, "too big integer"},
        {TURN(", " CALL("null")),
         "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>", OMM_CHAT_BAD_CALLS,
         "call 0 has no name or arguments"},
    };
    char want[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s_given_back = false;
        refuses(cases[i].bad, cases[i].words, cases[i].turn, NULL);
        s_given_back = true;
        snprintf(want, sizeof want, "assistant:%s|", cases[i].says);
        says(want, cases[i].turn, NULL);
    }
    says("assistant:Yes|", TURN(", \"content\": \"Yes\", " REFUSED), NULL);
    says("assistant:Yes|", TURN(", \"content\": \"Yes\", \"refusal\": null"), NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "message 0: content is not a string", TURN(", \"content\": 1"),
            NULL);
    refuses(
        OMM_CHAT_BAD_CALLS, "message 0: function_call; accepted: tool_calls",
        TURN(", \"content\": null, \"function_call\": {\"name\": \"add\", \"arguments\": \"{}\"}"),
        NULL);
    refuses(OMM_CHAT_BAD_CONTENT, "message 0: content is not a string",
            "[{\"role\": \"user\", \"content\": null, " REFUSED "}]", NULL);
    refuses(OMM_CHAT_BAD_CALLS, "call 0 has no name or arguments", TURN(", " CALL("1")), NULL);
    s_given_back = false;
}

/* A list of so many turns and so many tools. */
static json_t *many(size_t count, const char *one) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, parse(one));
    return list;
}

static void test_most(void) {
    omm_chat_turns t;
    omm_chat_turns_init(&t, 1 << 16);
    for (size_t more = 0; more < 2; more++) {
        json_t *list = many(OMM_CHAT_TURNS_MAX + more, "{\"role\": \"user\", \"content\": \"x\"}");
        json_t *tools = many(OMM_CHAT_TOOLS_MAX, "{\"name\": \"f\"}");
        CHECK_EQ(omm_chat_turns_read(&t, list, tools), more ? OMM_ERR_FORMAT : OMM_OK);
        CHECK_EQ(t.count, more ? 0 : OMM_CHAT_TURNS_MAX + 1);
        json_decref(list);
        json_decref(tools);
    }
    json_t *list = many(1, "{\"role\": \"user\", \"content\": \"x\"}");
    json_t *tools = many(OMM_CHAT_TOOLS_MAX + 1, "{\"name\": \"f\"}");
    CHECK_ERR(omm_chat_turns_read(&t, list, tools), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "tools: 129; at most 128"));
    omm_chat_turns_fini(&t);
    omm_chat_turns_init(&t, 8); /* bytes of what is written */
    json_array_remove(tools, 0);
    CHECK_ERR(omm_chat_turns_read(&t, list, tools), OMM_ERR_TOO_BIG);
    for (size_t n = 1; n < 6; n++) {
        omm_chat_turns fresh;
        omm_chat_turns_init(&fresh, 1 << 16);
        omm_mem_fail_nth(n);
        const omm_err err = omm_chat_turns_read(&fresh, list, tools);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(fresh.count, err == OMM_OK ? 2 : 0);
        omm_chat_turns_fini(&fresh);
    }
    omm_chat_turns_fini(&t);
    json_decref(list);
    json_decref(tools);
}

/* Of an assistant's turn 1, or 0 for what is only given; anything else is refused, and what was refused before is no word
 * about what is read now. */
static void test_weights(void) {
    static const struct {
        const char *weight;
        bool is, given;
    } cases[] = {{"0", true, true},      {"0.0", true, true},   {"1", true, false},
                 {"1.0", true, false},   {"null", true, false}, {"0.5", false, false},
                 {"2", false, false},    {"-1", false, false},  {"\"0\"", false, false},
                 {"false", false, false}};
    omm_chat_turns t;
    omm_chat_turns_init(&t, 1 << 12);
    t.with_weights = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "[{\"role\": \"user\", \"content\": \"a\", \"weight\": 7}, {\"role\": "
                 "\"assistant\", \"content\": \"b\", \"weight\": %s}, {\"role\": \"assistant\", "
                 "\"content\": \"c\"}]",
                 cases[i].weight);
        json_t *list = parse(text);
        const omm_err err = omm_chat_turns_read(&t, list, NULL);
        CHECK_EQ(err, cases[i].is ? OMM_OK : OMM_ERR_FORMAT);
        CHECK_EQ(t.bad, cases[i].is ? OMM_CHAT_BAD_NONE : OMM_CHAT_BAD_CONTENT);
        if (err == OMM_OK)
            CHECK(!t.messages[0].is_given && t.messages[1].is_given == cases[i].given &&
                  !t.messages[2].is_given);
        else
            CHECK(strstr(omm_err_sentence(), "message 1: weight; accepted: 1, or 0"));
        json_decref(list);
    }
    json_t *good = parse("[{\"role\": \"user\", \"content\": \"a\"}]");
    CHECK_OK(omm_chat_turns_read(&t, good, NULL));
    CHECK_EQ(t.bad, OMM_CHAT_BAD_NONE);
    json_decref(good);
    omm_chat_turns_fini(&t);
}

int main(void) {
    test_turns();
    test_weights();
    test_many_arguments();
    test_thoughts();
    test_refused();
    test_given_back();
    test_most();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
