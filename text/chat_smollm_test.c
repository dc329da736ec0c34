/* chat_smollm_test.c - the first turn that says how a model reasons, answers and tools beside it, as templates in the ways of
 * SmolLM 3's have them.  They were written for this test. */
#include "chat_internal.h"
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_prompt.h"

/* ---- templates ---------------------------------------------------------------------------------- */

#define SWITCH                                                                                     \
    "{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}"     \
    "{%- if enable_thinking -%}{%- set reasoning_mode = \"/think\" -%}{%- else -%}"                \
    "{%- set reasoning_mode = \"/no_think\" -%}{%- endif -%}"
#define SYSTEM                                                                                     \
    "{{- \"<|im_start|>system\\n\" -}}{%- if messages[0].role == \"system\" -%}"                   \
    "{%- set system_message = messages[0].content -%}"                                             \
    "{%- if \"/no_think\" in system_message -%}{%- set reasoning_mode = \"/no_think\" -%}"         \
    "{%- elif \"/think\" in system_message -%}{%- set reasoning_mode = \"/think\" -%}{%- endif "   \
    "-%}"
#define WITHOUT                                                                                    \
    "{%- set custom_instructions = system_message.replace(\"/no_think\", \"\")"                    \
    ".replace(\"/think\", \"\").rstrip() -%}{%- endif -%}"
#define STEPS                                                                                      \
    "{%- set custom_instructions = system_message.replace(\"/no_think\", \"\") -%}"                \
    "{%- set custom_instructions = custom_instructions.replace(\"/think\", \"\") -%}"              \
    "{%- set custom_instructions = custom_instructions.rstrip() -%}{%- endif -%}"
#define IF_OVERRIDE "{%- if \"/system_override\" in system_message -%}"
#define OVERRIDE                                                                                   \
    IF_OVERRIDE                                                                                    \
    "{{- custom_instructions.replace(\"/system_override\", \"\").rstrip() -}}"                     \
    "{{- \"<|im_end|>\\n\" -}}{%- else -%}"
#define OVERRIDE_STEPS                                                                             \
    IF_OVERRIDE                                                                                    \
    "{%- set custom_instructions_x = custom_instructions.replace(\"/system_override\", \"\") -%}"  \
    "{{- custom_instructions_x.rstrip() -}}{{- \"<|im_end|>\\n\" -}}{%- else -%}"
#define FRONT "{{- \"## Metadata\\n\\n\" -}}{{- \"Known until: May\\n\" -}}"
#define DATE                                                                                       \
    "{%- set today = strftime_now(\"%d %B %Y\") -%}{{- \"Today Date: \" ~ today ~ \"\\n\" -}}"
#define HOW(reasons, answers)                                                                      \
    "{{- \"Reasoning Mode: \" + reasoning_mode + \"\\n\\n\" -}}"                                   \
    "{{- \"## Custom Instructions\\n\\n\" -}}{%- if custom_instructions -%}"                       \
    "{{- custom_instructions + \"\\n\\n\" -}}{%- elif reasoning_mode == \"/think\" -%}"            \
    "{{- \"" reasons "\\n\\n\" -}}{%- else -%}{{- \"" answers "\\n\\n\" -}}{%- endif -%}"
#define TEXTS HOW("Muse: <think> why </think> so.", "Be S.")
#define IF_TOOLS(any, some) "{%- if " any " -%}{{- \"### Tools\\n\\n\" -}}{%- if " some " -%}"
#define ALIAS "{%- if tools -%}{%- set xml_tools = tools -%}{%- endif -%}"
#define LIST_OF(opens, of, plus)                                                                   \
    "{%- set ns = namespace(xml_tool_string=\"" opens "\") -%}"                                    \
    "{%- for tool in " of " -%}{%- set ns.xml_tool_string = ns.xml_tool_string " plus              \
    " (tool | string) " plus " \"\\n\" -%}{%- endfor -%}"                                          \
    "{%- set xml_tool_string = ns.xml_tool_string + \"</tools>\\nso: <tool_call>\" -%}"            \
    "{{- xml_tool_string -}}{%- endif -%}"
#define LIST(of, plus) LIST_OF("Call \\\"one\\\":\\n<tools>\\n", of, plus)
#define PYTHON                                                                                     \
    "{%- if python_tools -%}{%- set ns = namespace(python_tool_string=\"Py\") -%}"                 \
    "{{- ns.python_tool_string -}}{%- endif -%}"
#define END "{{- \"<|im_end|>\\n\" -}}"
#define GAP "{{- \"\\n\\n\" -}}"
#define ENDIF "{%- endif -%}"
#define TURNS                                                                                      \
    "{%- for message in messages -%}"                                                              \
    "{%- set content = message.content if message.content is string else \"\" -%}"                 \
    "{%- if message.role == \"user\" -%}"                                                          \
    "{{ \"<|im_start|>\" + message.role + \"\\n\" + content + \"<|im_end|>\\n\" }}"                \
    "{%- elif message.role == \"assistant\" -%}"
#define ANSWER                                                                                     \
    "{%- if reasoning_mode == \"/think\" -%}"                                                      \
    "{{ \"<|im_start|>assistant\\n\" + content.lstrip(\"\\n\") + \"<|im_end|>\\n\" }}"             \
    "{%- else -%}{{ \"<|im_start|>assistant\\n\" + \"<think>\\n\\n</think>\\n\" + "                \
    "content.lstrip(\"\\n\") + \"<|im_end|>\\n\" }}{%- endif -%}"
#define MARKED "{% generation %}" ANSWER "{% endgeneration %}"
#define REST                                                                                       \
    "{%- elif message.role == \"tool\" -%}"                                                        \
    "{{ \"<|im_start|>\" + \"user\\n\" + content + \"<|im_end|>\\n\" }}{%- endif -%}"              \
    "{%- endfor -%}{%- if add_generation_prompt -%}{%- if reasoning_mode == \"/think\" -%}"        \
    "{{ \"<|im_start|>assistant\\n\" }}{%- else -%}"                                               \
    "{{ \"<|im_start|>assistant\\n\" + \"<think>\\n\\n</think>\\n\" }}{%- endif -%}{%- endif -%}"

/* Without tools and date, its turn always ended. */
#define PLAIN SWITCH SYSTEM STEPS FRONT TEXTS END TURNS ANSWER REST
/* With both, where the end of the turn is forgotten without tools. */
#define OPEN_OF(any, some, alias, list)                                                            \
    SWITCH SYSTEM WITHOUT OVERRIDE FRONT DATE TEXTS IF_TOOLS(any, some)                            \
    alias list PYTHON GAP END ENDIF ENDIF TURNS MARKED REST
#define XML OPEN_OF("xml_tools or python_tools", "xml_tools", "", LIST("xml_tools[:]", "~"))
#define TOOLS                                                                                      \
    OPEN_OF("xml_tools or python_tools or tools", "xml_tools or tools", ALIAS,                     \
            LIST("xml_tools[:]", "~"))
/* The same by steps, and ended. */
#define ENDED                                                                                      \
    SWITCH SYSTEM STEPS OVERRIDE_STEPS FRONT DATE TEXTS IF_TOOLS(                                  \
        "xml_tools is defined or python_tools is defined", "xml_tools is defined")                 \
        LIST("xml_tools", "+") GAP ENDIF END ENDIF TURNS ANSWER REST

/* ---- conversations ------------------------------------------------------------------------------ */

/* The system's message, or none (NULL), and a question. */
static void check_first(const char *jinja, const char *system, omm_chat_ending ending,
                        const char *want) {
    const omm_message turns[] = {turn(OMM_ROLE_SYSTEM, system ? system : ""),
                                 turn(OMM_ROLE_USER, "Hi")};
    omm_tokenizer *t = open_family(jinja);
    check_prompt(t, turns + !system, 2 - !system, ending, want);
    omm_tokenizer_close(t);
}

#define FIRST(mode, text)                                                                          \
    "<|im_start|>system\n## Metadata\n\nKnown until: May\nReasoning Mode: " mode                   \
    "\n\n## Custom Instructions\n\n" text "\n\n"
#define MUSE "Muse: <think> why </think> so."
#define STOP "<|im_end|>\n"
#define U(text) "<|im_start|>user\n" text STOP
#define A(text) "<|im_start|>assistant\n" text STOP
#define ASKS "<|im_start|>assistant\n"
#define EMPTY "<think>\n\n</think>\n"

static void test_system(void) {
    const omm_chat_ending whole = OMM_CHAT_WHOLE, answer = OMM_CHAT_ANSWER, once = OMM_CHAT_AT_ONCE;
    check_first(PLAIN, NULL, whole, FIRST("/think", MUSE) STOP U("Hi"));
    check_first(PLAIN, NULL, answer, FIRST("/think", MUSE) STOP U("Hi") ASKS);
    check_first(PLAIN, NULL, once, FIRST("/no_think", "Be S.") STOP U("Hi") ASKS EMPTY);
    check_first(PLAIN, "", answer, FIRST("/think", MUSE) STOP U("Hi") ASKS);
    check_first(PLAIN, " Brief. \n\xc2\xa0", answer, FIRST("/think", " Brief.") STOP U("Hi") ASKS);
    check_first(PLAIN, "Brief. /no_think", answer,
                FIRST("/no_think", "Brief.") STOP U("Hi") ASKS EMPTY);
    check_first(PLAIN, "/no_think", answer, FIRST("/no_think", "Be S.") STOP U("Hi") ASKS EMPTY);
    check_first(PLAIN, "/think", answer, FIRST("/think", MUSE) STOP U("Hi") ASKS);
    check_first(PLAIN, "/think a /no_think b", answer,
                FIRST("/no_think", " a  b") STOP U("Hi") ASKS EMPTY);
    check_first(PLAIN, "/no_/thinkthink", answer, FIRST("/think", "/no_think") STOP U("Hi") ASKS);
    check_first(PLAIN, "Brief. /think", once,
                FIRST("/no_think", "Brief.") STOP U("Hi") ASKS EMPTY); /* whoever asks decides */
    check_first(PLAIN, "/system_override", answer,
                FIRST("/think", "/system_override") STOP U("Hi") ASKS);
}

static void test_variants(void) {
    static const char *const open[] = {XML, TOOLS};
    for (size_t i = 0; i < 2; i++) {
        check_first(open[i], NULL, OMM_CHAT_ANSWER, FIRST("/think", MUSE) U("Hi") ASKS);
        check_first(open[i], "B", OMM_CHAT_AT_ONCE, FIRST("/no_think", "B") U("Hi") ASKS EMPTY);
    }
    static const char *const overrides[] = {XML, TOOLS, ENDED};
    for (size_t i = 0; i < 3; i++) {
        check_first(overrides[i], "Alone. /system_override\n", OMM_CHAT_ANSWER,
                    "<|im_start|>system\nAlone." STOP U("Hi") ASKS);
        check_first(overrides[i], "/system_override /no_think", OMM_CHAT_ANSWER,
                    "<|im_start|>system\n" STOP U("Hi") ASKS EMPTY);
    }
    check_first(ENDED, NULL, OMM_CHAT_ANSWER, FIRST("/think", MUSE) STOP U("Hi") ASKS);
}

static void test_history(void) {
    const omm_message turns[] = {turn(OMM_ROLE_USER, "Hi"),
                                 turn(OMM_ROLE_ASSISTANT, "<think>\ner\n</think>\n\nHo"),
                                 turn(OMM_ROLE_USER, "in"),
                                 turn(OMM_ROLE_ASSISTANT, "\n\nout\n"),
                                 turn(OMM_ROLE_TOOL, "<think>7</think>"),
                                 turn(OMM_ROLE_TOOL, "8"),
                                 turn(OMM_ROLE_SYSTEM, "later"),
                                 turn(OMM_ROLE_USER, "on")};
    omm_tokenizer *t = open_family(PLAIN);
    CHECK_EQ(omm_thinking_of(t), OMM_THINKING_OWN);
    CHECK_EQ(omm_chat_default_system(t).size, 0); /* not a message that somebody may go on from */
    check_prompt(t, turns, 4, OMM_CHAT_ANSWER,
                 FIRST("/think", MUSE) STOP U("Hi") A("<think>\ner\n</think>\n\nHo") U("in")
                     A("out\n") ASKS);
    check_prompt(t, turns, 4, OMM_CHAT_AT_ONCE,
                 FIRST("/no_think", "Be S.") STOP U("Hi") A(EMPTY "<think>\ner\n</think>\n\nHo")
                     U("in") A(EMPTY "out\n") ASKS EMPTY);
    check_prompt(t, turns + 6, 2, OMM_CHAT_ANSWER, FIRST("/think", "later") STOP U("on") ASKS);
    omm_tokenizer_close(t);
}

/* Texts of results are no tokens, so they are compared as text. */
static void check_text(const omm_prompt *p, const omm_tokenizer *t, const char *want) {
    omm_buf text;
    omm_buf_init(&text, VOCAB_FILE_MAX);
    CHECK_OK(omm_tokenizer_decode(&text, t, p->tokens.ids, p->tokens.count,
                                  OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    const bool same = omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(want));
    if (!same) fprintf(stderr, "have '%.*s'\nwant '%s'\n", (int)text.size, (char *)text.data, want);
    CHECK(same);
    omm_buf_fini(&text);
}

static void test_results(void) {
    const omm_message turns[] = {turn(OMM_ROLE_USER, "Hi"), turn(OMM_ROLE_TOOL, "<think>7"),
                                 turn(OMM_ROLE_TOOL, "8"), turn(OMM_ROLE_SYSTEM, "later")};
    omm_tokenizer *t = open_family(PLAIN);
    omm_prompt p;
    omm_prompt_init(&p, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, turns, 4, OMM_CHAT_WHOLE));
    check_text(&p, t,
               FIRST("/think", MUSE) STOP U("Hi") U("<think>7")
                   U("8") "<|im_start|>system\nlater" STOP);
    const uint32_t thought = omm_tokenizer_special(t, "<think>");
    size_t seen = 0;
    for (size_t i = 0; i < p.tokens.count; i++) seen += p.tokens.ids[i] == thought;
    CHECK_EQ(seen, 1); /* of the first turn */
    omm_prompt_clear(&p);
    CHECK_OK(omm_chat_render(&p, t, turns, 0, OMM_CHAT_ANSWER));
    check_text(&p, t, ASKS);
    CHECK_OK(omm_chat_render(&p, t, turns, 1, OMM_CHAT_AT_ONCE)); /* it goes on */
    check_text(&p, t, ASKS U("Hi") ASKS EMPTY);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* The empty thought is given, what the answer says is learned. */
static void test_mask(void) {
    const omm_message turns[] = {turn(OMM_ROLE_SYSTEM, "/no_think"), turn(OMM_ROLE_USER, "Hi"),
                                 turn(OMM_ROLE_ASSISTANT, "Ho")};
    omm_tokenizer *t = open_family(PLAIN);
    omm_prompt p;
    omm_prompt_init(&p, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, turns, 3, OMM_CHAT_WHOLE));
    check_text(&p, t, FIRST("/no_think", "Be S.") STOP U("Hi") A(EMPTY "Ho"));
    size_t learned = 0;
    for (size_t i = 0; i < p.mask.size; i++) learned += p.mask.data[i];
    CHECK_EQ(learned, 3); /* H, o, and the end of the turn */
    CHECK(p.mask.data[p.mask.size - 2] == 1 && p.mask.data[p.mask.size - 1] == 0);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* ---- tools -------------------------------------------------------------------------------------- */

static void check_json(const char *jinja, const char *messages, const char *tools,
                       const char *want) {
    json_t *list = json_loads(messages, 0, NULL), *given = json_loads(tools, 0, NULL);
    omm_tokenizer *t = open_family(jinja);
    omm_chat_turns turns;
    omm_prompt p;
    CHECK(list && given);
    omm_chat_turns_init(&turns, 1 << 16);
    omm_prompt_init(&p, TOKENS_MAX);
    turns.tokenizer = t;
    CHECK_OK(omm_chat_turns_read(&turns, list, given));
    CHECK_OK(omm_chat_render(&p, t, turns.messages, turns.count, OMM_CHAT_ANSWER));
    check_text(&p, t, want);
    omm_prompt_fini(&p);
    omm_chat_turns_fini(&turns);
    omm_tokenizer_close(t);
    json_decref(list);
    json_decref(given);
}

#define ASKED "[{\"role\": \"user\", \"content\": \"Hi\"}]"
#define TOLD                                                                                       \
    "[{\"role\": \"system\", \"content\": \"B\"}, {\"role\": \"user\", \"content\": \"Hi\"}, "     \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"1\", \"type\": "     \
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}, "        \
    "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"7\"}]"
#define FUNCTION(said) "{\"name\": \"f\", \"description\": " said "}"
#define WRAPPED "[{\"type\": \"function\", \"function\": " FUNCTION("\"d\"") "}]"
#define BRACES(tools) "### Tools\n\nCall \"one\":\n<tools>\n" tools "</tools>\nso: <tool_call>\n\n"
#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define PRINTED "{'name': 'f', 'description': 'd'}"

static void test_tools(void) {
    static const char *const functions[] = {XML, ENDED};
    for (size_t i = 0; i < 2; i++) {
        check_json(functions[i], ASKED, WRAPPED,
                   FIRST("/think", MUSE) BRACES(PRINTED "\n") STOP U("Hi") ASKS);
        check_json(functions[i], TOLD, "[" FUNCTION("\"d\"") ", " FUNCTION("\"e\"") "]",
                   FIRST("/think", "B") BRACES(PRINTED "\n{'name': 'f', 'description': 'e'}\n")
                       STOP U("Hi") A(CALL) U("7") ASKS);
    }
    check_json(TOOLS, ASKED, "[" FUNCTION("\"d\"") "]",
               FIRST("/think", MUSE) BRACES("{'type': 'function', 'function': " PRINTED "}\n")
                   STOP U("Hi") ASKS);
    check_json(PLAIN, ASKED, WRAPPED,
               FIRST("/think", "Tools: f().") STOP U("Hi") ASKS); /* in the system's text */
    check_json(PLAIN, TOLD, WRAPPED,
               FIRST("/think", "B Tools: f().") STOP U("Hi") A(CALL) U("7") ASKS);
    check_json(XML, "[{\"role\": \"system\", \"content\": \"/system_override B\"}]", WRAPPED,
               "<|im_start|>system\n B" STOP ASKS);
}

static void test_python(void) {
    static const struct {
        const char *json, *python;
    } cases[] = {{"[true, false, null, {}, []]", "[True, False, None, {}, []]"},
                 {"[1, -2, 0.5, 1e-05, 1e16, 3.0]", "[1, -2, 0.5, 1e-05, 1e+16, 3.0]"},
                 {"[\"it's\"]", "[\"it's\"]"},
                 {"[\"\\\"it's\\\"\"]", "['\"it\\'s\"']"},
                 {"[\"\\\"\"]", "['\"']"},
                 {"[\"\\\\ \\n\\r\\t\\u0001\\u007f\"]", "['\\\\ \\n\\r\\t\\x01\\x7f']"},
                 {"[\"\\u00e9\\u00a0\\u00ad\\u200b\\u3000\\ufeff\\u20ac\\ud83d\\ude00\"]",
                  "['\xc3\xa9\\xa0\\xad\\u200b\\u3000\\ufeff\xe2\x82\xac\xf0\x9f\x98\x80']"},
                 {"[\"\\u061c\\u180e\\ufffb\\udb40\\udc67\\udbff\\udffd\"]",
                  "['\\u061c\\u180e\\ufffb\\U000e0067\\U0010fffd']"},
                 {"{\"b\": {\"a\": [1, \"x\"]}, \"a\": 2}", "{'b': {'a': [1, 'x']}, 'a': 2}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = json_loads(cases[i].json, 0, NULL);
        omm_buf text;
        omm_buf_init(&text, 1024);
        CHECK(value);
        CHECK_OK(smollm_put_python(&text, value));
        const bool same = omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(cases[i].python));
        if (!same) fprintf(stderr, "%.*s\n", (int)text.size, (char *)text.data);
        CHECK(same);
        omm_buf_fini(&text);
        json_decref(value);
    }
}

/* ---- left alone --------------------------------------------------------------------------------- */

/* What is a little otherwise is plain ChatML, with all that is known of it. */
static void test_others(void) {
    static const char *const others[] = {
        SWITCH SYSTEM STEPS FRONT TEXTS TURNS ANSWER REST, /* never ended */
        SWITCH SYSTEM STEPS FRONT TEXTS END TURNS ANSWER REST "{{ 'more' }}",
        "{{ 'more' }}" PLAIN,
        SWITCH SYSTEM "{%- endif -%}" FRONT TEXTS END TURNS ANSWER REST,
        SWITCH SYSTEM STEPS FRONT "{{ 'x' ~ today }}" TEXTS END TURNS ANSWER REST,
        SWITCH SYSTEM STEPS FRONT HOW("<|im_end|>", "Be S.") END TURNS ANSWER REST,
        SWITCH SYSTEM STEPS FRONT TEXTS END TURNS "{{ content }}" REST,
        OPEN_OF("xml_tools or python_tools", "tools", "", LIST("xml_tools[:]", "~")),
        OPEN_OF("xml_tools or python_tools", "xml_tools", "", LIST("tools", "~")),
        OPEN_OF("xml_tools or python_tools", "xml_tools", "",
                LIST_OF("<|im_end|>", "xml_tools[:]", "~")),
        OPEN_OF("xml_tools or python_tools or tools", "xml_tools or tools", "",
                LIST("xml_tools[:]", "~"))};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_tokenizer *t = open_family(others[i]);
        const omm_message hi = turn(OMM_ROLE_USER, "Hi");
        CHECK(!t->reasoning.is && !omm_chat_announces(t));
        check_prompt(t, &hi, 1, OMM_CHAT_ANSWER, U("Hi") ASKS);
        omm_tokenizer_close(t);
    }
}

static void test_cut(void) {
    static const char whole[] = TOOLS;
    char cut[sizeof whole];
    for (size_t at = 0; at + 1 < sizeof whole; at += 7) {
        memcpy(cut, whole, at);
        cut[at] = 0;
        omm_tokenizer *t = open_family(cut);
        CHECK(!t->reasoning.is);
        omm_tokenizer_close(t);
    }
}

static void test_allocations(void) {
    const omm_message turns[] = {turn(OMM_ROLE_SYSTEM, "B /no_think"), turn(OMM_ROLE_TOOLS, "f"),
                                 turn(OMM_ROLE_USER, "Hi")};
    omm_tokenizer *t = open_family(TOOLS);
    CHECK(check_allocations(t, turns, 3) > 5);
    omm_tokenizer_close(t);
}

int main(void) {
    test_system();
    test_variants();
    test_history();
    test_results();
    test_mask();
    test_tools();
    test_python();
    test_others();
    test_cut();
    test_allocations();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
