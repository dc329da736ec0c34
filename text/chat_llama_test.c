/* chat_llama_test.c - tools, calls and results as the template of a Llama 3 has them; and templates that are left alone.  The
 * templates were written for this test, in the ways of published ones. */
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_vocab.h"

#define START                                                                                      \
    "{{- bos_token }}\n{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif "    \
    "%}\n"                                                                                         \
    "{%- if messages[0]['role'] == 'system' %}\n"                                                  \
    "    {%- set system_message = messages[0]['content']|trim %}\n"                                \
    "    {%- set messages = messages[1:] %}\n{%- else %}\n"                                        \
    "    {%- set system_message = \"\" %}\n{%- endif %}\n"                                         \
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n"
#define ENVIRONMENT "{%- if tools is not none %}\n    {{- \"Shell: python\\n\" }}\n{%- endif %}\n"
#define BUILTIN                                                                                    \
    "{%- if builtin_tools is defined or tools is not none %}{{- 'Shell: python\\n' }}"             \
    "{%- endif %}{%- if builtin_tools is defined %}{{- 'Tools: ' + builtin_tools | join(', ') }}"  \
    "{%- endif %}"
#define DATE "{{- \"It is \" + date_string + \"\\n\\n\" }}\n"
#define IF_IN_SYSTEM "{%- if tools is not none and not tools_in_user_message %}"
#define HEAD "{{- 'Functions follow.' }}{{- ' Call: {\"name\": N, \"parameters\": P}.\\n\\n' }}"
#define HEAD_TEXT "Functions follow. Call: {\"name\": N, \"parameters\": P}.\n\n"
#define LIST                                                                                       \
    "{%- for t in tools %}\n    {{- t | tojson(indent=4) }}\n    {{- \"\\n\\n\" }}\n"              \
    "{%- endfor %}\n"
#define SYSTEM "{%- endif %}\n{{- system_message }}\n{{- '<|eot_id|>' }}\n"
#define PLAIN_SYSTEM "{{- system_message }}\n{{- '<|eot_id|>' }}\n"
#define TOLD IF_IN_SYSTEM HEAD LIST SYSTEM
#define HEADER(role) "{{- '<|start_header_id|>" role "<|end_header_id|>\\n\\n' }}"
#define TURNS(call, result)                                                                        \
    "{%- for message in messages %}{%- if 'tool_calls' in message %}"                              \
    "{%- set tool_call = message.tool_calls[0].function %}" HEADER("assistant") call               \
        "{%- elif message.role == 'tool' %}" HEADER("ipython") result                              \
        "{%- else %}"                                                                              \
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"                  \
        " + message['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"                  \
        "{%- if add_generation_prompt %}" HEADER("assistant") "{%- endif %}"
#define CALL                                                                                       \
    "{{- '{\"name\": \"' + tool_call.name + '\", ' }}\n{{- '\"parameters\": ' }}"                  \
    "{{- tool_call.arguments | tojson }}{{- \"}\" }}{{- '<|eot_id|>' }}"
#define RESULT                                                                                     \
    "{%- if message.content is mapping or message.content is iterable %}"                          \
    "{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}"                 \
    "{{- '<|eot_id|>' }}"
#define WHOLE START ENVIRONMENT DATE TOLD TURNS(CALL, RESULT)

static omm_tokenizer *open_with(const char *jinja, unsigned context) {
    const vocab_recipe recipe = {
        .marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        .jinja = jinja,
        .context = context};
    return open_vocab(&recipe);
}

static bool says(const omm_buf *buf, const char *text) {
    return omm_bytes_equal(omm_buf_view(buf), omm_bytes_str(text));
}

#define ARGUMENTS "{{- tool_call.arguments | tojson }}"
#define OPENS "{{- '{\"name\": \"' + tool_call.name + '\", \"parameters\": ' }}"
#define ENDS "{{- '}' }}{{- '<|eot_id|>' }}"
#define WITH(call) START ENVIRONMENT TOLD TURNS(call, RESULT)
#define TOLD_AS(how) START ENVIRONMENT how TURNS(CALL, RESULT)
/* Built-in tools have calls and an end of their own. */
#define CALL_OF_31                                                                                 \
    "{%- if builtin_tools is defined and tool_call.name in builtin_tools %}"                       \
    "{{- '<|python_tag|>' + tool_call.name + '.call()' }}{%- else %}"                              \
    "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}" OPENS ARGUMENTS                \
    "{{- '}' }}{%- endif %}{%- if builtin_tools is defined %}{{- '<|eom_id|>' }}{%- else %}"       \
    "{{- '<|eot_id|>' }}{%- endif %}"
#define TURNS_OF_31                                                                                \
    "{%- for message in messages %}{%- if not (message.role == 'ipython' or message.role == "      \
    "'tool' or 'tool_calls' in message) %}{{- '<|start_header_id|>' + message['role'] + "          \
    "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"                      \
    "{%- elif 'tool_calls' in message %}{%- if not message.tool_calls|length == 1 %}"              \
    "{{- raise_exception('One!') }}{%- endif %}"                                                   \
    "{%- set tool_call = message.tool_calls[0].function %}" CALL_OF_31                             \
    "{%- elif message.role == \"tool\" or message.role == \"ipython\" %}" HEADER("ipython") RESULT \
        "{%- endif %}{%- endfor %}"

/* What is found in each; head NULL: tools are not announced. */
static const struct {
    const char *jinja, *head;
    bool bare, quoted;
} s_templates[] = {
    {WHOLE, "Shell: python\n" HEAD_TEXT, true, true},
    {START BUILTIN DATE TOLD TURNS_OF_31, "Shell: python\n" HEAD_TEXT, true, true},
    {START TOLD TURNS(CALL, RESULT), HEAD_TEXT, true, true},
    {START DATE PLAIN_SYSTEM TURNS(CALL, RESULT), NULL, true, true},
    {START ENVIRONMENT TOLD TURNS(CALL, "{{- message.content }}{{- '<|eot_id|>' }}"),
     "Shell: python\n" HEAD_TEXT, true, false},
    /* other calls: nothing is taken but results */
    {WITH("{{- '{\"name\": \"' + tool_call.name + '\", \"arguments\": ' }}" ARGUMENTS ENDS), NULL,
     false, false},
    {WITH(OPENS "{{- tool_call.arguments }}" ENDS), NULL, false, false},
    {WITH("{{- '[' }}" OPENS ARGUMENTS "{{- '}]' }}{{- '<|eot_id|>' }}"), NULL, false, false},
    {WITH("{{- '<tool_call>' }}" OPENS ARGUMENTS "{{- '}</tool_call>' }}{{- '<|eot_id|>' }}"), NULL,
     false, false},
    {WITH("{{- '<|python_tag|>' }}" OPENS ARGUMENTS ENDS), NULL, false, false},
    {WITH("{{- 'Action: {\"function\": ' }}" OPENS ARGUMENTS "{{- '}}' }}{{- '<|eot_id|>' }}"),
     NULL, false, false},
    {WITH(OPENS ARGUMENTS "{{- ', \"id\": 1}' }}{{- '<|eot_id|>' }}"), NULL, false, false},
    {WITH(OPENS ARGUMENTS "{{- '}' }}{{- '<|eom_id|>' }}"), NULL, false, false},
    {WITH("{{- message.content }}" OPENS ARGUMENTS ENDS), NULL, false, false},
    {WITH("{%- for tool_call in message.tool_calls %}" OPENS ARGUMENTS ENDS "{%- endfor %}"), NULL,
     false, false},
    {WITH("{%- if false %}" OPENS ARGUMENTS ENDS "{%- else %}{{- '<function=' }}{%- endif %}"),
     NULL, false, false},
    {WITH(OPENS ARGUMENTS ENDS "{{- x }}"), NULL, false, false},
    {WITH("{{- '<function=' + tool_call.name + '>' }}"), NULL, false, false},
    {START ENVIRONMENT TOLD "{%- if x %}" TURNS(CALL, RESULT) "{%- endif %}", NULL, false, false},
    /* tools are listed otherwise, under another condition, or the system's text is elsewhere */
    {TOLD_AS(IF_IN_SYSTEM HEAD
             "{%- for t in tools %}{{- t | tojson }}{{- '\\n\\n' }}{%- endfor %}" SYSTEM),
     NULL, true, true},
    {TOLD_AS(IF_IN_SYSTEM HEAD
             "{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n' }}{%- endfor %}" SYSTEM),
     NULL, true, true},
    {TOLD_AS(IF_IN_SYSTEM "{{- 'Functions:\\n\\n' }}" LIST SYSTEM), NULL, true, true},
    {TOLD_AS("{%- if tools is not none and x %}" HEAD LIST SYSTEM), NULL, true, true},
    {START "{%- if x %}" TOLD "{%- endif %}" TURNS(CALL, RESULT), NULL, true, true},
    {TOLD_AS(IF_IN_SYSTEM HEAD LIST "{%- endif %}{{- '<|eot_id|>' }}{{- system_message }}"), NULL,
     true, true},
    {TOLD_AS(IF_IN_SYSTEM HEAD "{{- x }}" LIST SYSTEM), NULL, true, true},
    {TOLD_AS(PLAIN_SYSTEM HEADER("user") TOLD), NULL, true, true},
    {START "{%- if tools is not none %}{{- x }}{%- endif %}" TOLD TURNS(CALL, RESULT), HEAD_TEXT,
     true, true},
    {START "{%- if x %}" ENVIRONMENT "{%- endif %}" TOLD TURNS(CALL, RESULT), HEAD_TEXT, true,
     true},
    {START DATE ENVIRONMENT TOLD TURNS(CALL, RESULT), NULL, true, true},
    {ENVIRONMENT START TOLD TURNS(CALL, RESULT), HEAD_TEXT, true, true},
    {"{%- if x %}" START ENVIRONMENT TOLD "{%- endif %}" TURNS(CALL, RESULT), NULL, true, true},
    {TOLD_AS(IF_IN_SYSTEM "{{- '<|x|> \"parameters\"\\n\\n' }}" LIST SYSTEM), NULL, true, true},
    /* several calls that are written, too */
    {START TOLD "{%- for message in messages %}{%- if 'tool_calls' in message %}"
                "{%- if not message.tool_calls|length == 1 %}{{- 'x' }}{%- endif %}"
                "{%- set tool_call = message.tool_calls[0].function %}" HEADER("assistant") CALL
     "{%- endif %}{%- endfor %}",
     NULL, false, false},
    /* results as they are, or with more beside them */
    {START ENVIRONMENT TOLD TURNS(CALL, RESULT "{{- x }}"), "Shell: python\n" HEAD_TEXT, true,
     false},
    {START ENVIRONMENT TOLD TURNS(CALL, "{%- if message.content is mapping %}"
                                        "{{- message.content | tojson }}{%- else %}"
                                        "{{- message.content }}{%- endif %}{{- '<|eot_id|>' }}"),
     "Shell: python\n" HEAD_TEXT, true, false},
    {START ENVIRONMENT TOLD TURNS(CALL, "{{- 'It says ' }}" RESULT), "Shell: python\n" HEAD_TEXT,
     true, false},
};

static void test_templates(void) {
    for (size_t i = 0; i < sizeof s_templates / sizeof *s_templates; i++) {
        omm_tokenizer *t = open_with(s_templates[i].jinja, 0);
        const char *head = s_templates[i].head;
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_LLAMA3);
        if (omm_chat_announces(t) != (head != NULL) ||
            (omm_chat_calls_of(t) == OMM_CALLS_BARE) != s_templates[i].bare ||
            t->tools.quoted != s_templates[i].quoted || (head && !says(&t->tools.head, head)))
            check_failed(s_templates[i].jinja, __FILE__, __LINE__);
        omm_tokenizer_close(t);
    }
    CHECK_EQ(omm_chat_calls_of(NULL), OMM_CALLS_MARKED);
    omm_tokenizer *small = open_with(WHOLE, 2047), *large = open_with(WHOLE, 2048);
    CHECK(!omm_chat_announces(small) && omm_chat_announces(large));
    CHECK_EQ(omm_chat_calls_of(small), OMM_CALLS_BARE);
    omm_tokenizer_close(large);
    omm_tokenizer_close(small);
}

/* One that thinks answers with more than a call. */
static void test_thinking(void) {
    omm_tokenizer *t = open_with(WHOLE "{{- '<think>\\n' }}{{- '</think>' }}", 0);
    CHECK(omm_thinking_of(t) != OMM_THINKING_NONE);
    CHECK_EQ(omm_chat_calls_of(t), OMM_CALLS_MARKED);
    CHECK(!omm_chat_announces(t));
    omm_tokenizer_close(t);
}

/* Cut anywhere: nothing that is there is half understood. */
static void test_cut(void) {
    static char text[sizeof WHOLE];
    const size_t told =
        (size_t)(strstr(WHOLE, SYSTEM) - WHOLE) + strlen("{%- endif %}\n{{- system");
    const size_t called = (size_t)(strstr(WHOLE, "{{- \"}\" }}") - WHOLE);
    for (size_t size = 0; size < sizeof WHOLE - 1; size++) {
        snprintf(text, sizeof text, "%.*s", (int)size, WHOLE);
        omm_tokenizer *t = open_with(text, 0);
        if (size < told) CHECK(!omm_chat_announces(t));
        if (size < called) CHECK_EQ(omm_chat_calls_of(t), OMM_CALLS_MARKED);
        omm_tokenizer_close(t);
    }
}

/* ---- conversations --------------------------------------------------------------------------- */

#define ADD "{\"name\": \"add\", \"parameters\": {\"type\": \"object\", \"required\": []}}"
#define ADD_TEXT                                                                                   \
    "{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": \"add\",\n"            \
    "        \"parameters\": {\n            \"type\": \"object\",\n            \"required\": []\n" \
    "        }\n    }\n}\n\n"
#define TURN(role, text) "<|start_header_id|>" role "<|end_header_id|>\n\n" text "<|eot_id|>"
#define ANSWER "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define ANNOUNCED "Shell: python\n" HEAD_TEXT ADD_TEXT

static void renders(const char *messages, const char *tools, const char *text) {
    omm_tokenizer *t = open_with(WHOLE, 0);
    json_t *list = NULL, *functions = NULL;
    omm_chat_turns turns;
    omm_prompt p;
    omm_buf out;
    omm_prompt_init(&p, 4096);
    omm_buf_init(&out, 4096);
    omm_chat_turns_init(&turns, 4096);
    turns.tokenizer = t;
    CHECK_OK(omm_json_parse(&list, omm_bytes_str(messages), "messages"));
    if (tools) CHECK_OK(omm_json_parse(&functions, omm_bytes_str(tools), "tools"));
    CHECK_OK(omm_chat_turns_read(&turns, list, functions));
    CHECK_OK(omm_chat_render(&p, t, turns.messages, turns.count, OMM_CHAT_ANSWER));
    for (size_t i = 0; i < p.tokens.count; i++) {
        const omm_bytes piece = omm_tokenizer_piece(t, p.tokens.ids[i]);
        CHECK_OK(omm_buf_append(&out, piece.data, piece.size));
    }
    if (!says(&out, text)) fprintf(stderr, "%.*s\n", (int)out.size, out.data);
    CHECK(says(&out, text));
    omm_chat_turns_fini(&turns);
    json_decref(functions);
    json_decref(list);
    omm_buf_fini(&out);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define CALLS                                                                                      \
    "{\"role\": \"assistant\", \"content\": \"I add.\", \"tool_calls\": [{\"function\": "          \
    "{\"name\": \"add\", \"arguments\": \"{\\\"a\\\":1,\\\"b\\\":\\\"\xc3\xa9\\\"}\"}}]}"
#define CALL_TEXT "{\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": \"\xc3\xa9\"}}"

static void test_conversations(void) {
    renders("[" SAYS("user", " Hi ") "]", NULL, "<s>" TURN("user", "Hi") ANSWER);
    /* white space as Python has it, and what only looks like it */
    renders("[" SAYS("user", "\\u2003\\u001f \\n\\u3000Hi\\u00a0 \\u1680\\u0085") "]", NULL,
            "<s>" TURN("user", "Hi") ANSWER);
    renders("[" SAYS("user", "\\u200b\\u2028\\u180eHi\\u001b\\u2029\\ufeff\\u205f") "]", NULL,
            "<s>" TURN("user", "\xe2\x80\x8b\xe2\x80\xa8\xe1\xa0\x8eHi\x1b\xe2\x80\xa9\xef\xbb\xbf")
                ANSWER);
    renders("[" SAYS("user", "\\u2009\\u202f \\u2029") "]", NULL, "<s>" TURN("user", "") ANSWER);
    renders("[" SAYS("user", "Hi") "]", "[" ADD "]",
            "<s>" TURN("system", ANNOUNCED) TURN("user", "Hi") ANSWER);
    renders("[" SAYS("system", " Be kind. ") "," SAYS("user", "Hi") "]", "[" ADD "]",
            "<s>" TURN("system", ANNOUNCED "Be kind.") TURN("user", "Hi") ANSWER);
    renders("[" SAYS("system", " Be kind. ") "," SAYS("user", "Hi") "]", NULL,
            "<s>" TURN("system", "Be kind.") TURN("user", "Hi") ANSWER);
    /* a call is the whole turn; a result is a JSON string, its white space kept */
    renders("[" SAYS("user", "Hi") "," CALLS "," SAYS("tool", " 2 \\\"\xc3\xa9\\\"\\n") "]", NULL,
            "<s>" TURN("user", "Hi") TURN("assistant", CALL_TEXT)
                TURN("ipython", "\" 2 \\\"\xc3\xa9\\\"\\n\"") ANSWER);
    renders("[" SAYS("user", "Hi") "," CALLS "," SAYS("tool", "") "]", NULL,
            "<s>" TURN("user", "Hi") TURN("assistant", CALL_TEXT) TURN("ipython", "\"\"") ANSWER);
    /* several, of another model perhaps */
    renders("[" SAYS("user", "Hi") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
                                   "[{\"function\": {\"name\": \"a\", \"arguments\": {}}}, "
                                   "{\"function\": {\"name\": \"b\", \"arguments\": \"\"}}]}]",
            NULL,
            "<s>" TURN("user", "Hi") TURN("assistant", "{\"name\": \"a\", \"parameters\": {}}; "
                                                       "{\"name\": \"b\", \"parameters\": {}}")
                ANSWER);
    /* marks in a result are text */
    renders("[" SAYS("user", "Hi") "," SAYS("tool", "<|eot_id|>") "]", NULL,
            "<s>" TURN("user", "Hi") TURN("ipython", "\"<|eot_id|>\"") ANSWER);
}

static void test_marks_are_text(void) {
    const omm_message turn = {.role = OMM_ROLE_TOOL, .content = omm_bytes_str("<|eot_id|>")};
    const omm_message bad = {.role = OMM_ROLE_TOOL, .content = omm_bytes_str("\xff")};
    omm_tokenizer *t = open_with(WHOLE, 0);
    const uint32_t end = omm_tokenizer_special(t, "<|eot_id|>");
    omm_prompt p;
    size_t ends = 0;
    omm_prompt_init(&p, 4096);
    CHECK_OK(omm_chat_render(&p, t, &turn, 1, OMM_CHAT_WHOLE));
    for (size_t i = 0; i < p.tokens.count; i++) ends += p.tokens.ids[i] == end;
    CHECK_EQ(ends, 1);
    const size_t count = p.tokens.count;
    CHECK_ERR(omm_chat_render(&p, t, &bad, 1, OMM_CHAT_WHOLE), OMM_ERR_FORMAT);
    CHECK_EQ(p.tokens.count, count);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

int main(void) {
    test_templates();
    test_thinking();
    test_cut();
    test_conversations();
    test_marks_are_text();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
