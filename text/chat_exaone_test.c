/* chat_exaone_test.c - turns, thoughts and tools as a template in the ways of EXAONE 4.0's has them.  It was written for this
 * test; its prompts were compared with what jinja2 makes of it. */
#include "chat_internal.h"
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_prompt.h"

/* ---- templates ---------------------------------------------------------------------------------- */

#define SWITCH "{%- if not skip_think is defined %}{%- set skip_think = true %}{%- endif %}\n"
#define NAMES(user)                                                                                \
    "{%- set role_indicators = {\n 'user': '" user "', 'assistant': '[|assistant|]\\n',\n"         \
    " 'system': '[|system|]\\n', 'tool': '[|tool|]\\n'} %}\n"                                      \
    "{%- set end_of_turn = '[|endofturn|]\\n' %}\n"
#define TOOLS(head)                                                                                 \
    "{%- macro available_tools(tools) %}\n    {{- \"" head "\" }}\n    {{- \"\\nthey’re:\\n\" }}" \
    "{%- for tool in tools %}{{- \"<tool>\" }}{{- tool | tojson(ensure_ascii=False) | safe }}"      \
    "{{- \"</tool>\\n\" }}{%- endfor %}\n    {{- \"\\nCall as\\n<tool_call>{\\\"name\\\": f}\" }}"  \
    "{{- \"</tool_call>\\n...\" }}\n{%- endmacro %}\n"
#define QUERY                                                                                      \
    "{%- set ns = namespace(last_query_index = messages|length - 1) %}"                            \
    "{%- for message in messages %}"                                                               \
    "{%- if message.role == \"user\" and message.content is string %}"                             \
    "{%- set ns.last_query_index = loop.index0 -%}{%- endif %}{%- endfor %}\n"
#define SYSTEM                                                                                     \
    "{%- for i in range(messages | length) %}{%- set msg = messages[i] %}"                         \
    "{%- set role = msg.role %}{%- if role not in role_indicators %}"                              \
    "{{- raise_exception('Unknown role: ' ~ role) }}{%- endif %}\n    \n    {%- if i == 0 %}"      \
    "{%- if role == 'system' %}{{- role_indicators['system'] }}{{- msg.content }}"                 \
    "{%- if tools is defined and tools %}{{- \"\\n\\n\" }}{{- available_tools(tools) }}"           \
    "{%- endif %}{{- end_of_turn -}}\n            {%- continue %}\n"                               \
    "        {%- elif tools is defined and tools %}  {{- role_indicators['system'] }}"             \
    "{{- available_tools(tools) }}{{- end_of_turn -}}  {%- endif %}{%- endif %}\n"
#define THOUGHT(when)                                                                              \
    "{%- if role == 'assistant' %}{{- role_indicators['assistant'] }}{%- if msg.content %}"        \
    "{%- if \"</think>\" in msg.content %}"                                                        \
    "{%- set content = msg.content.split('</think>')[-1].strip() %}"                               \
    "{%- set reasoning_content = msg.content.split('</think>')[0].strip() %}"                      \
    "{%- if reasoning_content.startswith(\"<think>\") %}"                                          \
    "{%- set reasoning_content = reasoning_content[9:].strip() %}{%- endif %}"                     \
    "{%- else %}{%- set content = msg.content %}{%- endif %}"                                      \
    "{%- if msg.reasoning_content %}"                                                              \
    "{%- set reasoning_content = msg.reasoning_content %}{%- endif %}"                             \
    "{%- if " when " and reasoning_content is defined %}"                                          \
    "{{- \"<think>\\n\" }}{{- reasoning_content}}{{- \"\\n</think>\\n\\n\" }}"                     \
    "{%- else %}{{- \"<think>\\n\\n</think>\\n\\n\" }}{%- endif %}{{- content }}{%- endif %}"
#define LAST "(not skip_think and loop.last)"
#define CALLS                                                                                      \
    "{%- if msg.tool_calls %}{%- if msg.content %}{{- \"\\n\" }}"                                  \
    "{%- else %}{{- \"<think>\\n\\n</think>\\n\\n\" }}{%- endif %}"                                \
    "{%- for tool_call in msg.tool_calls %}{%- if tool_call.function is defined %}"                \
    "{%- set tool_call = tool_call.function %}{%- endif %}"                                        \
    "{%- if tool_call.arguments is defined %}{%- set arguments = tool_call.arguments %}"           \
    "{%- elif tool_call.parameters is defined %}{%- set arguments = tool_call.parameters %}"       \
    "{%- else %}"                                                                                  \
    "{{- raise_exception('arguments or parameters are mandatory: ' ~ tool_call) }}{%- endif %}"    \
    "{{- \"<tool_call>\" }}{\"name\": \"{{- tool_call.name }}\", \"arguments\": "                  \
    "{{ arguments | tojson(ensure_ascii=False) | safe }}}{{- \"</tool_call>\" }}"                  \
    "{%- if not loop.last %}{{- \"\\n\" }}{%- endif %}{%- endfor %}{%- endif %}"                   \
    "{{- end_of_turn -}}\n"
#define RESULTS(mark)                                                                              \
    "{%- elif role == \"tool\" %}{%- if i == 0 or messages[i - 1].role != \"tool\" %}"             \
    "{{- role_indicators['tool'] }}{%- endif %}{%- if msg.content is defined %}  "                 \
    "{{- \"<" mark ">\" }}{\"result\": {{ msg.content | tojson(ensure_ascii=False) | safe }}}"     \
    "{{- \"</" mark ">\" }}  {%- endif %}"                                                         \
    "{%- if loop.last or messages[i + 1].role != \"tool\" %}{{- end_of_turn -}}"                   \
    "{%- else %}{{- \"\\n\" }}{%- endif %}\n"
#define REST                                                                                       \
    "{%- else %}{{- role_indicators[role] }}{{- msg.content }}{{- end_of_turn -}}{%- endif %}\n"   \
    "{% endfor %}\n\n"
#define PROMPT                                                                                     \
    "{%- if add_generation_prompt %}{{- role_indicators['assistant'] }}"                           \
    "{%- if enable_thinking is defined and enable_thinking is true %}{{- \"<think>\\n\" }}"        \
    "{%- else %}{{- \"<think>\\n\\n</think>\\n\\n\" }}{%- endif %}{%- endif %}"
#define USER "[|user|]\\n"
#define HEAD "# Tools"
#define WHOLE(user, head, query, when, mark, rest)                                                 \
    NAMES(user) TOOLS(head) query SYSTEM THOUGHT(when)                                             \
    CALLS RESULTS(mark)                                                                            \
    rest PROMPT
#define EXAONE SWITCH WHOLE(USER, HEAD, QUERY, LAST, "tool_result", REST)

static omm_tokenizer *open_marks(const char *jinja, unsigned type) {
    return open_vocab(&(vocab_recipe){
        .marks = {"[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"},
        .more = {"<tool_result>", "</tool_result>", "<tool_call>", "</tool_call>"},
        .words = {"<think>", "</think>"},
        .mark_type = type,
        .jinja = jinja});
}

/* ---- conversations ------------------------------------------------------------------------------ */

#define STOP "[|endofturn|]\n"
#define S(text) "[|system|]\n" text STOP
#define U(text) "[|user|]\n" text STOP
#define EMPTY "<think>\n\n</think>\n\n"
#define ASKS "[|assistant|]\n"
#define A(text) ASKS text STOP
#define THINKS ASKS "<think>\n"

static void test_turns(void) {
    const omm_message turns[] = {turn(OMM_ROLE_SYSTEM, " be \n"),
                                 turn(OMM_ROLE_USER, " in\n"),
                                 turn(OMM_ROLE_ASSISTANT, " er "),
                                 turn(OMM_ROLE_USER, "on"),
                                 turn(OMM_ROLE_ASSISTANT, "<think>\nhm\n</think>\n\n \xc2\xa0so\n"),
                                 turn(OMM_ROLE_SYSTEM, "later"),
                                 turn(OMM_ROLE_ASSISTANT, "<think>\nonly\n</think>\n"),
                                 turn(OMM_ROLE_ASSISTANT, ""),
                                 turn(OMM_ROLE_ASSISTANT, "<think>cut")};
    omm_tokenizer *t = open_marks(EXAONE, 0);
    char doubt[OMM_CHAT_DOUBT_MAX];
    CHECK(!omm_chat_doubt(doubt, t));
    CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_EXAONE);
    CHECK_EQ(omm_thinking_of(t), OMM_THINKING_OPENED);
    CHECK_EQ(omm_chat_default_system(t).size, 0);
    const uint32_t stop = omm_tokenizer_special(t, "[|endofturn|]");
    CHECK(omm_tokenizer_is_end(t, stop)); /* the file's own is </s> */
    check_prompt(t, turns + 1, 1, OMM_CHAT_ANSWER, U(" in\n") THINKS);
    check_prompt(t, turns + 1, 1, OMM_CHAT_AT_ONCE, U(" in\n") ASKS EMPTY);
    check_prompt(t, turns, 4, OMM_CHAT_ANSWER,
                 S(" be \n") U(" in\n") A(EMPTY " er ") U("on") THINKS);
    check_prompt(t, turns, 4, OMM_CHAT_AT_ONCE,
                 S(" be \n") U(" in\n") A(EMPTY " er ") U("on") ASKS EMPTY);
    /* no answer keeps its thought, wherever it stands, and one that says nothing has none */
    check_prompt(t, turns + 3, 6, OMM_CHAT_ANSWER,
                 U("on") A(EMPTY "so") S("later") A(EMPTY) A("") A(EMPTY "<think>cut") THINKS);
    check_prompt(t, turns, 0, OMM_CHAT_ANSWER, THINKS);
    omm_tokenizer_close(t);
}

/* Thoughts to be learned stay; where there are none, the empty one is given and not learned. */
static void test_mask(void) {
    const omm_message turns[] = {turn(OMM_ROLE_USER, "Hi"), turn(OMM_ROLE_ASSISTANT, "Ho"),
                                 turn(OMM_ROLE_USER, "on"),
                                 turn(OMM_ROLE_ASSISTANT, " <think>\nm\n</think>\n\nso")};
    static const char learned[] = "Ho[|endofturn|] <think>\nm\n</think>\n\nso[|endofturn|]";
    omm_tokenizer *t = open_marks(EXAONE, 0);
    omm_prompt p;
    omm_buf text;
    omm_prompt_init(&p, TOKENS_MAX);
    omm_buf_init(&text, VOCAB_FILE_MAX);
    check_prompt(t, turns, 4, OMM_CHAT_WHOLE,
                 U("Hi") A(EMPTY "Ho") U("on") A(" <think>\nm\n</think>\n\nso"));
    CHECK_OK(omm_chat_render(&p, t, turns, 4, OMM_CHAT_WHOLE));
    for (size_t i = 0; i < p.tokens.count; i++)
        if (p.mask.data[i])
            CHECK_OK(omm_tokenizer_decode(&text, t, p.tokens.ids + i, 1,
                                          OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(learned)));
    omm_buf_fini(&text);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* Marks that the file has as control tokens are read and written in answers, and never come from a user or a tool. */
static void test_spoken(void) {
    static const char call[] = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    const omm_message turns[] = {turn(OMM_ROLE_USER, call), turn(OMM_ROLE_ASSISTANT, call),
                                 turn(OMM_ROLE_TOOL, call)};
    omm_tokenizer *t = open_marks(EXAONE, TOKEN_CONTROL);
    const uint32_t opens = omm_tokenizer_special(t, "<tool_call>");
    omm_prompt p;
    size_t seen = 0;
    omm_prompt_init(&p, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, turns, 3, OMM_CHAT_ANSWER));
    for (size_t i = 0; i < p.tokens.count; i++) seen += p.tokens.ids[i] == opens;
    CHECK_EQ(seen, 1);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* ---- tools -------------------------------------------------------------------------------------- */

static void check_json(const char *messages, const char *tools, omm_chat_ending ending,
                       const char *want) {
    json_t *list = json_loads(messages, 0, NULL), *given = json_loads(tools, JSON_DECODE_ANY, NULL);
    omm_tokenizer *t = open_marks(EXAONE, 0);
    omm_chat_turns turns;
    omm_prompt p;
    omm_buf text;
    CHECK(list && given);
    CHECK_EQ(omm_chat_calls_of(t), OMM_CALLS_EXAONE);
    CHECK(omm_chat_announces(t) && omm_chat_announces_at(t) == OMM_CHAT_IN_SYSTEM);
    omm_chat_turns_init(&turns, 1 << 16);
    omm_prompt_init(&p, TOKENS_MAX);
    omm_buf_init(&text, VOCAB_FILE_MAX);
    turns.tokenizer = t;
    turns.with_thoughts = true;
    CHECK_OK(omm_chat_turns_read(&turns, list, given));
    CHECK_OK(omm_chat_render(&p, t, turns.messages, turns.count, ending));
    CHECK_OK(omm_tokenizer_decode(&text, t, p.tokens.ids, p.tokens.count,
                                  OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    const bool same = omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(want));
    if (!same) fprintf(stderr, "have '%.*s'\nwant '%s'\n", (int)text.size, (char *)text.data, want);
    CHECK(same);
    omm_buf_fini(&text);
    omm_prompt_fini(&p);
    omm_chat_turns_fini(&turns);
    omm_tokenizer_close(t);
    json_decref(list);
    json_decref(given);
}

#define USER_SAYS "{\"role\": \"user\", \"content\": \"Hi\"}"
#define CALL(arguments)                                                                            \
    "{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "      \
    "\"" arguments "\"}}"
#define FUNCTION "{\"name\": \"f\", \"description\": \"d\xc3\xa9\", \"parameters\": {}}"
#define WRAPPED "{\"type\": \"function\", \"function\": " FUNCTION "}"
#define ANNOUNCED(tools)                                                                           \
    "# Tools\nthey’re:\n" tools "\nCall as\n<tool_call>{\"name\": f}</tool_call>\n..."
#define TOOL "<tool>" WRAPPED "</tool>\n"

static void test_tools(void) {
    check_json("[" USER_SAYS "]", "[" FUNCTION "]", OMM_CHAT_ANSWER,
               S(ANNOUNCED(TOOL)) U("Hi") THINKS);
    check_json("[{\"role\": \"system\", \"content\": \"B\"}, " USER_SAYS "]",
               "[" WRAPPED ", " FUNCTION "]", OMM_CHAT_AT_ONCE,
               S("B\n\n" ANNOUNCED(TOOL TOOL)) U("Hi") ASKS EMPTY);
    check_json("[{\"role\": \"system\", \"content\": \"\"}, " USER_SAYS "]", "[" WRAPPED "]",
               OMM_CHAT_ANSWER, S("\n\n" ANNOUNCED(TOOL)) U("Hi") THINKS);
    check_json(
        "[" USER_SAYS ", {\"role\": \"assistant\", \"content\": \"So.\", \"tool_calls\": [" CALL(
            "{\\\"a\\\": 1}") ", " CALL("{}") "]}, "
                                              "{\"role\": \"tool\", \"tool_call_id\": \"1\", "
                                              "\"content\": \"7 \\\"\xc3\xa9\\\"\\n\"}, "
                                              "{\"role\": \"tool\", \"tool_call_id\": \"2\", "
                                              "\"content\": \"<tool_call>\"}]",
        "null", OMM_CHAT_ANSWER,
        U("Hi") A(
            EMPTY
            "So.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n"
            "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>") "[|tool|]\n<tool_result>"
                                                                           "{\"result\": \"7 "
                                                                           "\\\"\xc3\xa9\\\"\\n\"}<"
                                                                           "/tool_result>\n"
                                                                           "<tool_result>{"
                                                                           "\"result\": "
                                                                           "\"<tool_call>\"}</"
                                                                           "tool_result>" STOP
                                                                               THINKS);
    /* a thought in front of calls alone */
    check_json("[" USER_SAYS ", {\"role\": \"assistant\", \"content\": null, "
               "\"reasoning_content\": \"hm\", \"tool_calls\": [" CALL("") "]}]",
               "null", OMM_CHAT_AT_ONCE,
               U("Hi") A(EMPTY "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>")
                   ASKS EMPTY);
}

/* ---- left alone --------------------------------------------------------------------------------- */

static void test_others(void) {
    static const char *const others[] = {
        EXAONE "{{ 'more' }}", "{{ 'more' }}" EXAONE,
        SWITCH WHOLE("[|user|]", HEAD, QUERY, LAST, "tool_result", REST), /* no line end */
        SWITCH WHOLE(USER, "[|user|]", QUERY, LAST, "tool_result", REST), /* marks in a text */
        SWITCH WHOLE(USER, "<|more|>", QUERY, LAST, "tool_result", REST),
        SWITCH WHOLE(USER, HEAD, "", LAST, "tool_result", REST),
        SWITCH WHOLE(USER, HEAD, QUERY, "not skip_think", "tool_result", REST),
        SWITCH WHOLE(USER, HEAD, QUERY, LAST, "tool_response", REST),
        SWITCH WHOLE(USER, HEAD, QUERY, LAST, "tool_result", "{%- endif %}{% endfor %}"),
        "{# " EXAONE " #}",
        /* as before 4.0: a user's turn that only a line end closes */
        "{% for message in messages %}{{ '[|' + message['role'] + '|]' + message['content'] }}"
        "{% if message['role'] == 'user' %}{{ '\\n' }}{% else %}{{ '[|endofturn|]\\n' }}"
        "{% endif %}{% endfor %}{{ '[|user|][|tool|]' }}"};
    CHECK(strstr(EXAONE, "\n") != NULL);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_tokenizer *t = open_marks(others[i], 0);
        char doubt[OMM_CHAT_DOUBT_MAX];
        if (!omm_chat_doubt(doubt, t)) fprintf(stderr, "number %zu is known\n", i);
        CHECK(omm_chat_doubt(doubt, t) && strstr(doubt, "is not known") != NULL);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML_TEXT);
        CHECK(!omm_chat_announces(t) && omm_chat_calls_of(t) == OMM_CALLS_MARKED);
        omm_tokenizer_close(t);
    }
    /* what says how it skips thoughts may be left out */
    omm_tokenizer *t = open_marks(WHOLE(USER, HEAD, QUERY, LAST, "tool_result", REST), 0);
    CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_EXAONE);
    omm_tokenizer_close(t);
}

static void test_cut(void) {
    static const char whole[] = EXAONE;
    char cut[sizeof whole];
    for (size_t at = 0; at + 1 < sizeof whole; at += 11) {
        memcpy(cut, whole, at);
        cut[at] = 0;
        omm_tokenizer *t = open_marks(cut, 0);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML_TEXT);
        omm_tokenizer_close(t);
    }
}

static void test_allocations(void) {
    const omm_message turns[] = {turn(OMM_ROLE_ASSISTANT, "<think>a</think>b"),
                                 turn(OMM_ROLE_TOOL, "c"), turn(OMM_ROLE_TOOL, "d")};
    omm_tokenizer *t = open_marks(EXAONE, 0);
    CHECK(check_allocations(t, turns, 3) > 5);
    omm_tokenizer_close(t);
}

int main(void) {
    test_turns();
    test_mask();
    test_spoken();
    test_tools();
    test_others();
    test_cut();
    test_allocations();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
