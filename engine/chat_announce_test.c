/* chat_announce_test.c - tools announced and their results given as a model's own template has it; and templates that are left
 * alone.  The templates were written for this test, in the ways of published ones. */
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_vocab.h"

#define TURNS                                                                                      \
    "{%- for turn in messages %}{%- if turn.role == 'tool' %}"                                     \
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}"    \
    "{%- endif %}{{- '\\n<tool_response>\\n' + turn.content + '\\n</tool_response>' }}"            \
    "{%- else %}{{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' }}"        \
    "{%- endif %}{%- endfor %}"
#define HOW "Answer with <tool_call>\\n{\\\"name\\\": N, \\\"arguments\\\": A}\\n</tool_call>"
#define HOW_TEXT "Answer with <tool_call>\n{\"name\": N, \"arguments\": A}\n</tool_call>"

/* Blocks for everything, the system's text in front of an empty line. */
#define QWEN                                                                                       \
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages[0].role == "         \
    "'system' %}\n        {{- messages[0].content + '\\n\\n' }}\n    {%- endif %}\n"               \
    "    {{- \"# Tools\\n\\nThere are, in <tools></tools>:\\n<tools>\" }}\n"                       \
    "    {%- for tool in tools %}\n        {{- \"\\n\" }}\n        {{- tool | tojson }}\n"         \
    "    {%- endfor %}\n    {{- \"\\n</tools>\\n\\n" HOW                                           \
    "<|im_end|>\\n\" }}\n{%- endif %}\n" TURNS
/* The empty line is the head's, and what is in front of it is computed in the same block. */
#define JOINED                                                                                     \
    "{% if tools %}{{ '<|im_start|>system\\n' + (sys if sys else 'Be \\'of\\' }} help.') + "       \
    "'\\n\\n# Tools' ~ \"\\n<tools>\" }}{# '</tools>' #}{% for tool in tools %}{{ '\\n' ~ "        \
    "tool|tojson }}{% endfor %}{{ '\\n</tools>\\n' ~ \"" HOW "\" + '<|im_end|>\\n' }}{% endif %}"  \
    "{{ '<|im_start|>' }}"
/* A line end behind each tool, and no space in front. */
#define BEHIND                                                                                     \
    "{{ '<|im_start|>system\\nUse these:\\n<tools>\\n' }}{% for t in tools %}{{ t | tojson }}"     \
    "{{ '\\n' }}{% endfor %}{{ '</tools>' }}{{ '" HOW "' }}"
/* All at once. */
#define AT_ONCE "{{ '<|im_start|>x<tools>' + (tools | tojson) + '</tools>" HOW "' }}"

static const struct {
    const char *jinja;
    const char *head, *tail; /* NULL: it announces nothing that is read */
    bool before;
} s_templates[] = {
    {QWEN, "# Tools\n\nThere are, in <tools></tools>:\n<tools>", "\n</tools>\n\n" HOW_TEXT, true},
    {JOINED, "# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, true},
    {QWEN "{{ '<tools>' }}{% if x %}", "# Tools\n\nThere are, in <tools></tools>:\n<tools>",
     "\n</tools>\n\n" HOW_TEXT, true},
    {BEHIND, "Use these:\n<tools>\n", "</tools>" HOW_TEXT, false},
    {AT_ONCE, "<|im_start|>x<tools>", "</tools>" HOW_TEXT, true},
    {"{{ '<|im_start|>system\\n' ~ sys ~ '\\n\\nThese: <tools>' }}{% for t in tools %}{{ '\\n' }}"
     "{{ t }}{% endfor %}{{ '</tools>" HOW "' }}",
     "These: <tools>", "</tools>" HOW_TEXT, true},
    {"{{ '<|im_start|>system\\n<tools>\\n' + (tools | join('\\n')) + '\\n</tools>" HOW "' }}",
     "<tools>\n", "\n</tools>" HOW_TEXT, false},
    /* what is handed on is not written */
    {"{{ '<|im_start|>' }}{{ f(x + '<tools>') }}{% for t in tools %}{% endfor %}{{ '</tools>" HOW
     "' }}",
     NULL, NULL, false},
    /* calls of another kind: no arguments as JSON */
    {"{{ '<|im_start|>system\\n<tools>' }}{% for t in tools %}{{ t }}{% endfor %}{{ '</tools>Say "
     "<tool_call>NAME<arg_key>KEY</arg_key></tool_call>' }}",
     NULL, NULL, false},
    {"{{ '<|im_start|>system\\n<tools>' }}{% for t in tools %}{{ t }}{% endfor %}{{ '</tools>Say "
     "{\"name\": N, \"arguments\": A}' }}",
     NULL, NULL, false},
    /* gathered, not written */
    {"{% set all = '<tools>' %}{% for t in tools %}{% set all = all + t %}{% endfor %}"
     "{% set all = all + '</tools>" HOW "' %}{{ '<|im_start|>' + all }}",
     NULL, NULL, false},
    {"{{ '<|im_start|>' + role }}", NULL, NULL, false},
    {"{{ '<|im_start|><tools>' }}", NULL, NULL, false},
    /* too far behind */
    {"{{ '<|im_start|><tools>' }}{%a%}{%b%}{%c%}{%d%}{%e%}{%f%}{%g%}{%h%}{%i%}{{ '</tools>" HOW
     "' }}",
     NULL, NULL, false},
};

static bool says(const omm_buf *buf, const char *text) {
    return omm_bytes_equal(omm_buf_view(buf), omm_bytes_str(text));
}

/* The system's text of a conversation that has none. */
static const struct {
    const char *jinja, *text;
} s_defaults[] = {
    {"{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}"
     "{% endif %}{{ '<|im_start|>' + role }}",
     "Be kind."},
    {QWEN "{{- '<|im_start|>system\\nBe ' ~ \"good.\" + '<|im_end|>\\n' }}"
          "{{- '<|im_start|>system\\nNo.<|im_end|>\\n' }}",
     "Be good."},
    {QWEN, ""},
    {"{{ '<|im_start|>system\\nOne.<|im_end|>\\n' }}{% if x %}{{ "
     "'<|im_start|>system\\nTwo.<|im_end|>' }}"
     "{% endif %}",
     "One."},
    {"{{ '<|im_start|>system\\n' + sys + '<|im_end|>\\n' }}", ""},
    {"{{ '<|im_start|>system\\nIt is ' + today + '<|im_end|>\\n' }}", ""},
    {"{{ '<|im_start|>system\\nOn and on' }}{{ '\\n' }}", ""},
    {"{{ 'x<|im_start|>system\\nNot first.<|im_end|>\\n' }}", ""},
};

static omm_tokenizer *open_with(const char *jinja, unsigned context, bool inner) {
    const vocab_recipe recipe = {
        .marks = {"<|im_start|>", "<|im_end|>"},
        .words = {inner ? "<tool_response>" : NULL, inner ? "</tool_response>" : NULL},
        .jinja = jinja,
        .context = context};
    return open_vocab(&recipe);
}

static void test_templates(void) {
    for (size_t i = 0; i < sizeof s_templates / sizeof *s_templates; i++) {
        omm_tokenizer *t = open_with(s_templates[i].jinja, 0, false);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
        if (omm_chat_announces(t) != (s_templates[i].head != NULL))
            check_failed(s_templates[i].jinja, __FILE__, __LINE__);
        if (s_templates[i].head) {
            CHECK(says(&t->tools.head, s_templates[i].head));
            CHECK(says(&t->tools.tail, s_templates[i].tail));
            CHECK_EQ(t->tools.before, s_templates[i].before);
        }
        omm_tokenizer_close(t);
    }
}

static void renders(const omm_tokenizer *t, const omm_message *messages, size_t count,
                    const char *text);

static void test_defaults(void) {
    const omm_message turns[] = {{OMM_ROLE_SYSTEM, omm_bytes_str("S")},
                                 {OMM_ROLE_USER, omm_bytes_str("q")}};
    for (size_t i = 0; i < sizeof s_defaults / sizeof *s_defaults; i++) {
        omm_tokenizer *t = open_with(s_defaults[i].jinja, 512, false);
        const char *text = s_defaults[i].text;
        char whole[256];
        if (!omm_bytes_equal(omm_chat_default_system(t), omm_bytes_str(text)))
            check_failed(s_defaults[i].jinja, __FILE__, __LINE__);
        snprintf(whole, sizeof whole,
                 "%s%s%s<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
                 *text ? "<|im_start|>system\n" : "", text, *text ? "<|im_end|>\n" : "");
        renders(t, turns + 1, 1, whole);
        renders(t, turns, 2,
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
                "<|im_start|>assistant\n");
        omm_tokenizer_close(t);
    }
    omm_tokenizer *t = open_with(s_defaults[0].jinja, 0, false);
    omm_prompt p;
    omm_prompt_init(&p, 4096);
    CHECK_OK(omm_chat_render(&p, t, turns + 1, 1, OMM_CHAT_WHOLE));
    const size_t first = p.tokens.count;
    CHECK_OK(omm_chat_render(&p, t, turns + 1, 1, OMM_CHAT_WHOLE)); /* goes on */
    omm_tokenizer *none = open_with(QWEN, 0, false);
    omm_prompt q;
    omm_prompt_init(&q, 4096);
    CHECK_OK(omm_chat_render(&q, none, turns + 1, 1, OMM_CHAT_WHOLE));
    CHECK_EQ(p.tokens.count, first + q.tokens.count);
    CHECK_OK(omm_chat_render(&q, t, NULL, 0, OMM_CHAT_WHOLE));
    omm_prompt_fini(&q);
    omm_prompt_fini(&p);
    omm_tokenizer_close(none);
    omm_tokenizer_close(t);
}

/* A model of few positions is told briefly; texts that are cut, or longer than any announcement, are left alone. */
static void test_limits(void) {
    static char text[40000];
    static const struct {
        unsigned context;
        bool announces;
    } contexts[] = {{512, false}, {2047, false}, {2048, true}, {131072, true}};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        omm_tokenizer *t = open_with(QWEN, contexts[i].context, false);
        CHECK_EQ(omm_chat_announces(t), contexts[i].announces);
        CHECK(t->tools.response);
        omm_tokenizer_close(t);
    }
    for (size_t size = 0; size < sizeof QWEN; size += size < 40 ? 40 : 1) {
        snprintf(text, sizeof text, "%.*s", (int)size, QWEN);
        omm_tokenizer *t = open_with(text, 0, false);
        const char *from = strstr(QWEN, "</tools>\\n\\n"), *end = strstr(QWEN, "N, ");
        if (size < (size_t)(end - QWEN) && from) CHECK(!omm_chat_announces(t));
        omm_tokenizer_close(t);
    }
    snprintf(text, sizeof text, "{{ '<|im_start|>%20000s<tools>' }}{%%a%%}{{ '</tools>" HOW "' }}",
             "");
    omm_tokenizer *t = open_with(text, 0, false);
    CHECK(!omm_chat_announces(t));
    omm_tokenizer_close(t);
}

#define ADD                                                                                        \
    "{\"name\": \"add\", \"description\": \"Caf\xc3\xa9\", \"parameters\": {\"type\": "            \
    "\"object\", "                                                                                 \
    "\"properties\": {\"b\": {\"type\": \"number\"}}}}"
#define SAY "{\"type\": \"function\", \"function\": {\"name\": \"say\"}}"

static void announces(const char *jinja, const char *system, const char *text) {
    omm_tokenizer *t = open_with(jinja, 0, false);
    json_t *tools = NULL;
    omm_buf out;
    omm_buf_init(&out, 4096);
    CHECK_OK(omm_json_parse(&tools, omm_bytes_str("[" ADD ", " SAY "]"), "tools"));
    CHECK_OK(omm_chat_announce_tools(&out, t, omm_bytes_str(system), tools));
    if (!says(&out, text)) fprintf(stderr, "%.*s\n", (int)out.size, out.data);
    CHECK(says(&out, text));
    omm_buf_fini(&out);
    omm_buf_init(&out, 100);
    CHECK_OK(omm_buf_append(&out, "x", 1));
    CHECK_ERR(omm_chat_announce_tools(&out, t, omm_bytes_str(system), tools), OMM_ERR_TOO_BIG);
    CHECK(says(&out, "x"));
    omm_buf_fini(&out);
    json_decref(tools);
    omm_tokenizer_close(t);
}

static void test_announced(void) {
#define ADD_WHOLE "{\"type\": \"function\", \"function\": " ADD "}"
    announces(QWEN, "Be brief.",
              "Be brief.\n\n# Tools\n\nThere are, in <tools></tools>:\n<tools>\n" ADD_WHOLE "\n" SAY
              "\n</tools>\n\n" HOW_TEXT);
    announces(QWEN, "",
              "# Tools\n\nThere are, in <tools></tools>:\n<tools>\n" ADD_WHOLE "\n" SAY
              "\n</tools>\n\n" HOW_TEXT);
    announces(JOINED, "S", "S\n\n# Tools\n<tools>\n" ADD_WHOLE "\n" SAY "\n</tools>\n" HOW_TEXT);
    announces(BEHIND, "", "Use these:\n<tools>\n" ADD_WHOLE "\n" SAY "\n</tools>" HOW_TEXT);
}

/* ---- results --------------------------------------------------------------------------------------- */

static void renders(const omm_tokenizer *t, const omm_message *messages, size_t count,
                    const char *text) {
    omm_prompt p;
    omm_buf out;
    omm_prompt_init(&p, 4096);
    omm_buf_init(&out, 4096);
    CHECK_OK(omm_chat_render(&p, t, messages, count, OMM_CHAT_ANSWER));
    for (size_t i = 0; i < p.tokens.count; i++) {
        const omm_bytes piece = omm_tokenizer_piece(t, p.tokens.ids[i]);
        CHECK_OK(omm_buf_append(&out, piece.data, piece.size));
    }
    if (!says(&out, text)) fprintf(stderr, "%.*s\n", (int)out.size, out.data);
    CHECK(says(&out, text));
    omm_prompt_fini(&p);
    omm_buf_fini(&out);
}

static void test_results(void) {
    const omm_message messages[] = {{OMM_ROLE_USER, omm_bytes_str("q")},
                                    {OMM_ROLE_ASSISTANT, omm_bytes_str("c")},
                                    {OMM_ROLE_TOOL, omm_bytes_str("1<tool_response>")},
                                    {OMM_ROLE_TOOL, omm_bytes_str("")},
                                    {OMM_ROLE_ASSISTANT, omm_bytes_str("d")},
                                    {OMM_ROLE_TOOL, omm_bytes_str("3")}};
    for (unsigned inner = 0; inner < 2; inner++) {
        omm_tokenizer *t = open_with(QWEN, 512, inner != 0);
        omm_prompt p;
        renders(t, messages, 6,
                "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n"
                "<|im_start|>user\n<tool_response>\n1<tool_response>\n</tool_response>\n"
                "<tool_response>\n\n</tool_response><|im_end|>\n<|im_start|>assistant\nd<|im_end|>"
                "\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
                "<|im_start|>assistant\n");
        omm_prompt_init(&p, 4096);
        CHECK_OK(omm_chat_render(&p, t, messages + 2, 2, OMM_CHAT_WHOLE));
        const uint32_t mark = omm_tokenizer_special(t, "<tool_response>");
        size_t marks = 0, learned = 0;
        for (size_t i = 0; i < p.tokens.count; i++) {
            marks += p.tokens.ids[i] == mark;
            learned += p.mask.data[i];
        }
        CHECK_EQ(p.mask.size, p.tokens.count);
        CHECK_EQ(marks, inner ? 2 : 0); /* what a tool says is text */
        CHECK_EQ(learned, 0);
        omm_prompt_fini(&p);
        omm_tokenizer_close(t);
    }
    omm_tokenizer *t = open_with("{{ '<|im_start|>' + role + '\\n' }}", 0, true);
    renders(t, messages + 4, 2,
            "<|im_start|>assistant\nd<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n"
            "<|im_start|>assistant\n");
    omm_tokenizer_close(t);
}

/* Through turns: what is trained on and what is served. */
static void test_turns(void) {
    json_t *messages = NULL, *tools = NULL;
    omm_chat_turns turns;
    omm_tokenizer *t = open_with(QWEN, 0, false);
    CHECK_OK(omm_json_parse(&messages, omm_bytes_str("[{\"role\": \"user\", \"content\": \"Hi\"}]"),
                            "m"));
    CHECK_OK(omm_json_parse(&tools, omm_bytes_str("[" SAY "]"), "tools"));
    omm_chat_turns_init(&turns, 4096);
    CHECK_OK(omm_chat_turns_read(&turns, messages, tools));
    CHECK(omm_bytes_equal(turns.messages[0].content, omm_bytes_str("Tools: say().")));
    turns.tokenizer = t;
    CHECK_OK(omm_chat_turns_read(&turns, messages, tools));
    CHECK_EQ(turns.count, 2);
    CHECK(omm_bytes_equal(turns.messages[0].content,
                          omm_bytes_str("# Tools\n\nThere are, in <tools></tools>:\n<tools>\n" SAY
                                        "\n</tools>\n\n" HOW_TEXT)));
    omm_tokenizer *kind =
        open_with(QWEN "{{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}", 0, false);
    turns.tokenizer = kind;
    CHECK_OK(omm_chat_turns_read(&turns, messages, tools));
    CHECK(omm_bytes_equal(turns.messages[0].content,
                          omm_bytes_str("Be kind.\n\n# Tools\n\nThere are, in <tools></tools>:\n"
                                        "<tools>\n" SAY "\n</tools>\n\n" HOW_TEXT)));
    omm_tokenizer_close(kind);
    omm_chat_turns_fini(&turns);
    json_decref(messages);
    json_decref(tools);
    omm_tokenizer_close(t);
}

int main(void) {
    test_templates();
    test_defaults();
    test_limits();
    test_announced();
    test_results();
    test_turns();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
