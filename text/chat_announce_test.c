/* chat_announce_test.c - tools announced and their results given as a model's own template has it;
 * and templates that are left alone, however near they come.  The templates were written for this
 * test, in the ways of published ones. */
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_vocab.h"

#define FIRST "{%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}"
#define LAST "{%- if loop.last or (messages[loop.index0 + 1].role != \"tool\") %}"
#define RESULT                                                                                     \
    FIRST "{{- '<|im_start|>user' }}{%- endif %}{{- '\\n<tool_response>\\n' }}"                    \
          "{{- turn.content }}{{- '\\n</tool_response>' }}" LAST "{{- '<|im_end|>\\n' }}"          \
          "{%- endif %}"
#define TURN "{{- '<|im_start|>' + turn.role + '\\n' + turn.content + '<|im_end|>\\n' }}"
#define LOOP(result)                                                                               \
    "{%- for turn in messages %}{%- if turn.role == 'user' %}" TURN                                \
    "{%- elif turn.role == \"tool\" %}" result "{%- else %}" TURN "{%- endif %}{%- endfor %}"
#define TURNS LOOP(RESULT)

#define HOW "Answer with <tool_call>\\n{\\\"name\\\": N, \\\"arguments\\\": A}\\n</tool_call>"
#define HOW_TEXT "Answer with <tool_call>\n{\"name\": N, \"arguments\": A}\n</tool_call>"
#define IF_SYSTEM "{%- if messages[0].role == 'system' %}"
#define OPENS "{{- '<|im_start|>system\\n' }}"
#define CONTENT IF_SYSTEM "{{- messages[0].content + '\\n\\n' }}{%- endif %}"
#define HEAD "{{- '# Tools\\n<tools>' }}"
#define LIST "{%- for t in tools %}{{- '\\n' }}{{- t | tojson }}{%- endfor %}"
#define TAIL "{{- '\\n</tools>\\n" HOW "<|im_end|>\\n' }}"
#define NO_TOOLS                                                                                   \
    "{%- elif messages[0].role == 'system' %}"                                                     \
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
#define TOLD "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL NO_TOOLS "{%- endif %}" TURNS
#define TELLS(opens, content, head, list, tail)                                                    \
    "{%- if tools %}" opens content head list tail NO_TOOLS "{%- endif %}" TURNS

/* Blocks for everything, the empty line with the system's text. */
#define QWEN                                                                                       \
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages[0].role == "         \
    "'system' %}\n        {{- messages[0].content + '\\n\\n' }}\n    {%- endif %}\n"               \
    "    {{- \"# Tools\\n\\nThere are, in <tools></tools>:\\n<tools>\" }}\n"                       \
    "    {%- for tool in tools %}\n        {{- \"\\n\" }}\n        {{- tool | tojson }}\n"         \
    "    {%- endfor %}\n    {{- \"\\n</tools>\\n\\n" HOW                                           \
    "<|im_end|>\\n\" }}\n{%- endif %}\n" TURNS
#define QWEN_HEAD "# Tools\n\nThere are, in <tools></tools>:\n<tools>"
/* The empty line is the head's, and defaults stand in both branches. */
#define BOTH                                                                                       \
    "{% if tools is defined and tools %}{{ '<|im_start|>system\\n' }}{% if messages[0][\"role\"]"  \
    " == \"system\" %}{{ messages[0]['content'] }}{% else %}{{ 'Call.' }}{% endif %}"              \
    "{{ '\\n\\n# Tools\\n' + \"<tools>\" }}{# it's a list #}{% for t in tools %}{{ '\\n' ~ "       \
    "t|tojson }}{% endfor %}{{ '\\n</tools>\\n' ~ \"" HOW "\" + '<|im_end|>\\n' }}{% else %}"      \
    "{% if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + "     \
    "'<|im_end|>\\n' }}{% else %}{{ '<|im_start|>system\\nChat.<|im_end|>\\n' }}{% endif %}"       \
    "{% endif %}" TURNS
/* A line end behind each tool; no text in place of the system's; written outside of all blocks. */
#define BEHIND                                                                                     \
    "{% if tools %}\n<|im_start|>system\n{% if messages[0].role == 'system' %}\n"                  \
    "{{ messages[0].content }}{% else %}\n{% endif %}\n\n\nUse these:\n<tools>\n"                  \
    "{% for t in tools %}\n{{ t | tojson }}\n{% endfor %}\n</tools>{{ '" HOW "' }}<|im_end|>\n"    \
    "{% endif %}" TURNS
/* As our own models have it. */
#define NAMED                                                                                      \
    IF_SYSTEM "{%- set s = messages[0].content %}{%- set rest = messages[1:] %}{%- else %}"        \
              "{%- set s = '' %}{%- set rest = messages %}{%- endif %}"
#define NAMED_TELLS                                                                                \
    "{{- '<|im_start|>system\\n' + (s if s else 'Be of help.') + '\\n\\n# Tools\\n<tools>' }}"
#define NAMED_TURNS "{%- for turn in rest %}" TURN "{%- endfor %}"
#define OWN NAMED "{%- if tools %}" NAMED_TELLS LIST TAIL "{%- endif %}" NAMED_TURNS

static const struct {
    const char *jinja, *instead, *head, *tail;
    bool apart, before, empty_too;
} s_announced[] = {
    {QWEN, "", QWEN_HEAD, "\n</tools>\n\n" HOW_TEXT, true, true, false},
    {TOLD, "", "# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, true, true, false},
    {BOTH, "Call.", "\n\n# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, false, true, false},
    {BEHIND, "", "\n\nUse these:\n<tools>\n", "</tools>" HOW_TEXT, false, false, false},
    {OWN, "Be of help.", "\n\n# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, false, true, true},
    {TELLS(OPENS,
           IF_SYSTEM
           "{{- messages[0].content ~ '\\n\\n' }}{%- else %}{{- 'C.\\n\\n' }}{%- endif %}",
           HEAD, LIST, TAIL),
     "C.\n\n", "# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, true, true, false},
    /* an odd quote in a comment; what is set and asked in front of it all */
    {"{#- it's #}{%- set n = namespace(a=\"'\") %}{%- if x is defined %}{%- set n.b = 1 %}"
     "{%- endif %}{# ' #}" TOLD,
     "", "# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, true, true, false},
    {"\r\n{%- if tools is not none and tools %}\r\n" OPENS CONTENT HEAD LIST TAIL "{%- else %}"
     "{%- endif %}{%- for m in messages[::-1] %}{%- set a = m %}{%- endfor %}" TURNS,
     "", "# Tools\n<tools>", "\n</tools>\n" HOW_TEXT, true, true, false},
};

/* What is not announced exactly so. */
static const char *const s_other[] = {
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{{- '\\n' }}{{- t.function | tojson }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{{- '\\n' }}{{- t | tojson(indent=4) }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{{- '\\n' }}{{- t.function.name ~ ': ' ~ t.function.description }}"
          "{%- endfor %}",
          TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{%- set t = t.function %}{{- '\\n' }}{{- t | tojson }}"
          "{%- endfor %}",
          TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools[1:] %}{{- '\\n' }}{{- t | tojson }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD, "{%- for t in tools %}{{- '\\n' }}{{- x | tojson }}{%- endfor %}",
          TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t, u in tools %}{{- '\\n' }}{{- t, u | tojson }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for messages in tools %}{{- '\\n' }}{{- messages | tojson }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{{- '\\n' }}{{- t | tojson }}{{- '\\n' }}{%- endfor %}", TAIL),
    /* no line end between them, or a comma; a list */
    TELLS(OPENS, CONTENT, HEAD, "{%- for t in tools %}{{- t | tojson }}{%- endfor %}", TAIL),
    TELLS(OPENS, CONTENT, HEAD,
          "{%- for t in tools %}{{- t | tojson }}{%- if not loop.last %}{{- ', ' }}{%- endif %}"
          "{%- endfor %}",
          TAIL),
    TELLS(OPENS, CONTENT, "{{- '# Tools\\n<tools>\\n' }}", "{{- tools | tojson }}", TAIL),
    TELLS(OPENS, CONTENT, "{{- '# Tools\\n<tools>[' }}", LIST,
          "{{- ']\\n</tools>\\n" HOW "<|im_end|>\\n' }}"),
    "{{ '<|im_start|>x<tools>' + (tools | tojson) + '</tools>" HOW "' }}",
    "{%- if tools %}{{- '<|im_start|>system\\n<tools>' + (tools | join('\\n')) + '\\n</tools>" HOW
    "<|im_end|>\\n' }}{%- endif %}" TURNS,
    /* in another turn; the system's text behind, or with another space, or changed, or left out */
    TELLS("{{- '<|im_start|>user\\n' }}", CONTENT, HEAD, LIST, TAIL),
    TELLS("", "{{- '<|im_start|>user\\n\\n' }}", HEAD, LIST, TAIL),
    TELLS("{{- '<|im_start|>tools\\n' }}", "", HEAD, LIST, TAIL),
    TELLS(OPENS, "", HEAD, LIST, TAIL),
    TELLS(OPENS, "", HEAD, LIST, "{{- '\\n</tools>\\n" HOW "' }}" CONTENT "{{- '<|im_end|>\\n' }}"),
    TELLS(OPENS, IF_SYSTEM "{{- messages[0].content + '\\n' }}{%- endif %}", HEAD, LIST, TAIL),
    TELLS(OPENS, IF_SYSTEM "{{- messages[0].content }}{%- endif %}", HEAD, LIST, TAIL),
    TELLS(OPENS, IF_SYSTEM "{{- messages[0].content }}{%- endif %}", "{{- '\\n' }}" HEAD, LIST,
          TAIL),
    TELLS(OPENS, CONTENT, "{{- '\\n\\n' }}" HEAD, LIST, TAIL),
    TELLS(OPENS, IF_SYSTEM "{{- messages[0].content | trim + '\\n\\n' }}{%- endif %}", HEAD, LIST,
          TAIL),
    TELLS(OPENS, IF_SYSTEM "{{- messages[1].content + '\\n\\n' }}{%- endif %}", HEAD, LIST, TAIL),
    TELLS(OPENS, "{{- messages[0].content + '\\n\\n' }}", HEAD, LIST, TAIL),
    TELLS(OPENS,
          "{%- if messages[0].role == 'system' and x %}{{- messages[0].content + '\\n\\n' }}"
          "{%- endif %}",
          HEAD, LIST, TAIL),
    TELLS(OPENS,
          "{%- if messages[0].role == 'user' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}",
          HEAD, LIST, TAIL),
    TELLS(OPENS, IF_SYSTEM "{{- messages[0].content + '\\n\\n' }}{%- else %}{{- x }}{%- endif %}",
          HEAD, LIST, TAIL),
    TELLS(OPENS,
          IF_SYSTEM "{{- messages[0].content + '\\n\\n' }}{%- else %}{{- '<|x|>' }}{%- endif %}",
          HEAD, LIST, TAIL),
    TELLS(OPENS,
          IF_SYSTEM "{{- messages[0].content + '\\n\\n' }}{%- elif x %}{{- 'y' }}{%- endif %}",
          HEAD, LIST, TAIL),
    TELLS(OPENS "{{- 'Now: ' }}", CONTENT, HEAD, LIST, TAIL),
    /* heads and tails that do not begin, end or ask so */
    TELLS(OPENS, CONTENT, "{{- '# Tools\\n<tools> ' }}", LIST, TAIL),
    TELLS(OPENS, CONTENT, "{{- '# Tools\\n<tools>' + x }}", LIST, TAIL),
    TELLS(OPENS, CONTENT, "{{- '# <|x|> Tools\\n<tools>' }}", LIST, TAIL),
    TELLS(OPENS, CONTENT, HEAD, LIST, "{{- '\\n\\n</tools>\\n" HOW "<|im_end|>\\n' }}"),
    TELLS(OPENS, CONTENT, HEAD, LIST, "{{- '\\n</tools>\\n" HOW "' }}"),
    TELLS(OPENS, CONTENT, HEAD, LIST, "{{- '\\n</tools>\\n" HOW "<|im_end|>' }}"),
    TELLS(OPENS, CONTENT, HEAD, LIST, "{{- '\\n</tools>\\n" HOW "<|x|><|im_end|>\\n' }}"),
    TELLS(OPENS, CONTENT, HEAD, LIST,
          "{{- '\\n</tools>\\n" HOW "\\n' }}{%- if x %}{{- 'One.' }}"
          "{%- endif %}{{- 'Think.<|im_end|>\\n' }}"),
    TELLS(OPENS, CONTENT, HEAD, LIST, TAIL "{%- if x %}{{- 'More.' }}{%- endif %}"),
    TELLS(OPENS, CONTENT, HEAD, LIST, "{{- '\\n</tools>\\n' }}{{- x }}" TAIL),
    TELLS(OPENS, CONTENT, HEAD, LIST,
          "{{- '\\n</tools>\\nSay <tool_call>NAME<arg_key>KEY</arg_key></tool_call><|im_end|>\\n' "
          "}}"),
    TELLS(OPENS, CONTENT, HEAD, LIST,
          "{{- '\\n</tools>\\nSay {\"name\": N, \"arguments\": A}<|im_end|>\\n' }}"),
    /* under another condition, or with something else in front or behind */
    "{%- if not tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}" TURNS,
    "{%- if tools is defined %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}" TURNS,
    "{%- if tools and x %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}" TURNS,
    "{%- if x %}{%- elif tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}" TURNS,
    "{%- if x %}{%- if tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}{%- endif %}" TURNS,
    "{%- for x in y %}{%- if tools %}" OPENS CONTENT HEAD LIST TAIL
    "{%- endif %}{%- endfor %}" TURNS,
    OPENS CONTENT HEAD LIST TAIL TURNS,
    "{%- macro m() %}" TOLD "{%- endmacro %}" TURNS,
    "{%- set x %}" TOLD "{%- endset %}" TURNS,
    "{% raw %}" TOLD "{% endraw %}" TURNS,
    "{%- set tools = x %}" TOLD,
    "{%- set messages = messages[1:] %}" TOLD,
    "{%- set a, tools = x %}" TOLD,
    "{{- x }}" TOLD,
    "Hello." TOLD,
    "{%- macro m() %}{%- endmacro %}" TOLD,
    "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}{{- 'And.' }}" TURNS,
    "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL
    "{%- endif %}{%- if x %}{{- y }}{%- endif %}" TURNS,
    "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}{%- for a in b %}{%- endfor %}"
    "{{- x }}" TURNS,
    "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL,
    /* gathered, not written; handed on, not written */
    "{% set all = '<tools>' %}{% for t in tools %}{% set all = all + t %}{% endfor %}"
    "{% set all = all + '</tools>" HOW "' %}{{ '<|im_start|>' + all }}" TURNS,
    "{{ '<|im_start|>' }}{{ f(x + '<tools>') }}{% for t in tools %}{% endfor %}{{ '</tools>" HOW
    "' }}" TURNS,
    /* as models have it that were not taught system turns with it */
    "{{- '<|im_start|>system\\nYou call functions. Here they are: <tools> ' }}{%- for t in tools %}"
    "{%- if t.function is defined %}{%- set t = t.function %}{%- endif %}{{- '{\"type\": "
    "\"function\", \"function\": ' }}{{- t | tojson }}{{- '}' }}{%- endfor %}{{- ' </tools>" HOW
    "<|im_end|>\\n' }}" TURNS,
    /* near to our own */
    NAMED
    "{%- if tools %}{{- '<|im_start|>system\\n' + (s if s else x) + '\\n\\n<tools>' }}" LIST TAIL
    "{%- endif %}" NAMED_TURNS,
    NAMED
    "{%- if tools %}{{- '<|im_start|>system\\n' + (s if s else 'a\\n') + '\\n\\n<tools>' }}" LIST
        TAIL "{%- endif %}" NAMED_TURNS,
    NAMED
    "{%- if tools %}{{- '<|im_start|>system\\n' + (s if s else 'a'+'b') + '\\n\\n<tools>' }}" LIST
        TAIL "{%- endif %}" NAMED_TURNS,
    NAMED
    "{%- if tools %}{{- '<|im_start|>system\\n' + (s if s else '<|a|>') + '\\n\\n<tools>' }}" LIST
        TAIL "{%- endif %}" NAMED_TURNS,
    NAMED
    "{%- if tools %}{{- '<|im_start|>system\\n' + (r if r else 'a') + '\\n\\n<tools>' }}" LIST TAIL
    "{%- endif %}" NAMED_TURNS,
    NAMED "{%- if tools %}" OPENS CONTENT HEAD LIST TAIL "{%- endif %}" NAMED_TURNS,
    NAMED "{%- set s = x %}{%- if tools %}" NAMED_TELLS LIST TAIL "{%- endif %}" NAMED_TURNS,
    IF_SYSTEM "{%- set s = messages[0].content %}{%- set s = messages[1:] %}{%- else %}"
              "{%- set s = '' %}{%- set s = messages %}{%- endif %}"
              "{%- if tools %}" NAMED_TELLS LIST TAIL "{%- endif %}" NAMED_TURNS,
    "{%- if tools %}" NAMED_TELLS LIST TAIL "{%- endif %}" NAMED_TURNS,
    "{{ '<|im_start|>' + role + '\\n' }}",
    "{{ '<|im_start|><tools>' }}" TURNS,
};

static bool says(const omm_buf *buf, const char *text) {
    return omm_bytes_equal(omm_buf_view(buf), omm_bytes_str(text));
}

#define NOT_SYSTEM "{%- if messages[0].role != 'system' %}"
#define KIND "{{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}"
#define IN_LOOP(condition, text)                                                                   \
    "{% for turn in messages %}{% if " condition " %}" text "{% endif %}" TURN "{% endfor %}"

/* The system's text of a conversation that has none, and no tools. */
static const struct {
    const char *jinja, *text;
} s_defaults[] = {
    {NOT_SYSTEM KIND "{%- endif %}" TURNS, "Be kind."},
    {IF_SYSTEM "{%- for x in y %}{%- if x %}{%- else %}{%- endif %}{%- else %}{{ x }}{%- endfor %}"
               "{%- else %}" KIND "{%- endif %}" TURNS,
     "Be kind."},
    {BOTH, "Chat."},
    {"{%- if tools %}{{- x }}{%- else %}" NOT_SYSTEM KIND "{%- endif %}{%- endif %}" TURNS,
     "Be kind."},
    {"{%- if tools %}{{- x }}" NO_TOOLS "{%- else %}" KIND "{%- endif %}" TURNS, "Be kind."},
    {"{%- if tools %}{{- x }}{%- elif messages[0].role != 'system' %}" KIND "{%- endif %}" TURNS,
     "Be kind."},
    {IN_LOOP("loop.first and messages[0]['role'] != 'system'", KIND), "Be kind."},
    {IN_LOOP("loop.first and turn['role'] != \"system\"",
             "{{ '<|im_start|>system\\nBe ' ~ \"good.\\t\\r\" + '<|im_end|>\\n' }}"),
     "Be good.\t\r"},
    /* text outside of all blocks, a space and a line end of it */
    {"{% for turn in messages %}{% if loop.first and messages[0].role != 'system' %}\n"
     "<|im_start|>system\nBe {{ 'kind' }} {{ 'and' }}\n{# it's #}\n  short.<|im_end|>\n"
     "  {% endif %}" TURN "{% endfor %}",
     "Be kind and\n  short."},
    {"{%- set x = 'a' %}" NOT_SYSTEM KIND "{%- endif %}" TURNS, "Be kind."},
    /* none, not all of a turn, more than one */
    {QWEN, ""},
    {KIND TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\n' + sys + '<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nIt is ' + f([')', today]) + '.<|im_end|>\\n' }}"
                "{% endif %}" TURNS,
     ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nOn and on\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nNo line.<|im_end|>' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>user\\nNo.<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ 'x<|im_start|>system\\nNot first.<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA<|b|>c.<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\n<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM KIND KIND "{%- endif %}" TURNS, ""},
    {NOT_SYSTEM KIND "{{- x }}{%- endif %}" TURNS, ""},
    {NOT_SYSTEM KIND "{%- endif %}{{- 'And.' }}" TURNS, ""},
    {NOT_SYSTEM KIND "{%- endif %}{%- if x %}{{- 'And.' }}{%- endif %}" TURNS, ""},
    {NOT_SYSTEM KIND, ""},
    {"{% for turn in messages %}{% if loop.first and turn.role != 'system' %}" KIND "{% endif %}",
     ""},
    /* under other conditions */
    {"{%- if safe_mode %}" KIND "{%- endif %}" TURNS, ""},
    {"{%- if safe_mode %}" NOT_SYSTEM KIND "{%- endif %}{%- endif %}" TURNS, ""},
    {"{%- if messages[0].role != 'system' and x %}" KIND "{%- endif %}" TURNS, ""},
    {"{%- if messages[0].role != 'user' %}" KIND "{%- endif %}" TURNS, ""},
    {"{%- if messages[1].role != 'system' %}" KIND "{%- endif %}" TURNS, ""},
    {"{%- if x %}{%- elif messages[0].role != 'system' %}" KIND "{%- endif %}" TURNS, ""},
    {NOT_SYSTEM "{%- else %}" KIND "{%- endif %}" TURNS, ""},
    {NOT_SYSTEM KIND "{%- else %}{%- endif %}" TURNS, ""},
    {IF_SYSTEM KIND "{%- endif %}" TURNS, ""},
    {IF_SYSTEM "{%- elif x %}{%- else %}" KIND "{%- endif %}" TURNS, ""},
    {IF_SYSTEM "{{ x }}{%- if y %}{%- else %}" KIND "{%- endif %}{%- endif %}" TURNS, ""},
    {"{%- if tools %}" NOT_SYSTEM KIND "{%- endif %}{%- endif %}" TURNS, ""},
    {"{%- if tools %}{%- else %}{{ x }}" NOT_SYSTEM KIND "{%- endif %}{%- endif %}" TURNS, ""},
    {"{%- if tools %}{%- else %}" NOT_SYSTEM KIND "{%- endif %}{{ x }}{%- endif %}" TURNS, ""},
    {"{%- if tools %}{%- else %}" NOT_SYSTEM KIND "{%- endif %}{%- endif %}{{ x }}" TURNS, ""},
    {"{%- if not tools and messages[0].role != 'system' %}" KIND "{%- endif %}" TURNS, ""},
    {IN_LOOP("messages[0].role != 'system'", KIND), ""},
    {"{%- if x %}" IN_LOOP("loop.first and turn.role != 'system'", KIND) "{%- endif %}", ""},
    {IN_LOOP("loop.last and messages[0].role != 'system'", KIND), ""},
    {IN_LOOP("loop.first and x.role != 'system'", KIND), ""},
    {IN_LOOP("loop.first and turn.role != 'system'", KIND "{{ x }}"), ""},
    {"{% for turn in messages %}{{ x }}{% if loop.first and turn.role != 'system' %}" KIND
     "{% endif %}{% endfor %}",
     ""},
    {"{% for turn in messages %}{% if turn.x %}{% continue %}{% endif %}"
     "{% if loop.first and turn.role != 'system' %}" KIND "{% endif %}{% endfor %}",
     ""},
    {"{% for turn in messages[1:] %}{% if loop.first and turn.role != 'system' %}" KIND
     "{% endif %}{% endfor %}",
     ""},
    {"{% for messages in messages %}{% if loop.first and messages.role != 'system' %}" KIND
     "{% endif %}{% endfor %}",
     ""},
    {"{{ x }}" NOT_SYSTEM KIND "{%- endif %}" TURNS, ""},
    {"{%- set messages = x %}" NOT_SYSTEM KIND "{%- endif %}" TURNS, ""},
    {"{%- set (messages) = x %}" NOT_SYSTEM KIND "{%- endif %}" TURNS, ""},
    {"{%- with messages = x %}" NOT_SYSTEM KIND "{%- endif %}" TURNS, ""},
    /* literals of an expression, and escapes that are not decoded */
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA %s.<|im_end|>\\n' % d }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA {}.<|im_end|>\\n'.format(d) }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA.<|im_end|>\\n'.replace('A', d) }}{% endif %}" TURNS,
     ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA.<|im_end|>\\n' | upper }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nA.<|im_end|>\\n' if x else '' }}{% endif %}" TURNS, ""},
    {"{{ '' if messages[0].role == 'system' else '<|im_start|>system\\nA.<|im_end|>\\n' }}" TURNS,
     ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nIt\\u2019s.<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {NOT_SYSTEM "{{ '<|im_start|>system\\nCaf\\xe9.<|im_end|>\\n' }}{% endif %}" TURNS, ""},
    {"{%- macro m() %}" NOT_SYSTEM KIND "{%- endif %}{%- endmacro %}" TURNS, ""},
    {"{%- set x %}" NOT_SYSTEM KIND "{%- endif %}{%- endset %}" TURNS, ""},
    {"{%- raw %}" NOT_SYSTEM KIND "{%- endif %}{%- endraw %}" TURNS, ""},
    {"{%- filter upper %}" NOT_SYSTEM KIND "{%- endif %}{%- endfilter %}" TURNS, ""},
    {"{# " NOT_SYSTEM KIND "{%- endif %} it's #}" TURNS, ""},
    {IF_SYSTEM "{%- else %}" KIND TURNS, ""},
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
    for (size_t i = 0; i < sizeof s_announced / sizeof *s_announced; i++) {
        omm_tokenizer *t = open_with(s_announced[i].jinja, 0, false);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
        if (!omm_chat_announces(t)) check_failed(s_announced[i].jinja, __FILE__, __LINE__);
        CHECK(says(&t->tools.instead, s_announced[i].instead));
        CHECK(says(&t->tools.head, s_announced[i].head));
        CHECK(says(&t->tools.tail, s_announced[i].tail));
        CHECK_EQ(t->tools.apart, s_announced[i].apart);
        CHECK_EQ(t->tools.before, s_announced[i].before);
        CHECK_EQ(t->tools.empty_too, s_announced[i].empty_too);
        omm_tokenizer_close(t);
    }
    for (size_t i = 0; i < sizeof s_other / sizeof *s_other; i++) {
        omm_tokenizer *t = open_with(s_other[i], 0, false);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
        if (omm_chat_announces(t)) check_failed(s_other[i], __FILE__, __LINE__);
        omm_tokenizer_close(t);
    }
}

static void renders(const omm_tokenizer *t, const omm_message *messages, size_t count,
                    const char *text);

static void test_defaults(void) {
    const omm_message turns[] = {{.role = OMM_ROLE_SYSTEM, .content = omm_bytes_str("S")},
                                 {.role = OMM_ROLE_USER, .content = omm_bytes_str("q")}};
    for (size_t i = 0; i < sizeof s_defaults / sizeof *s_defaults; i++) {
        omm_tokenizer *t = open_with(s_defaults[i].jinja, 512, false);
        const char *text = s_defaults[i].text;
        char whole[256];
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
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
}

/* It is put in front of what begins a conversation, and of nothing else. */
static void test_default_first(void) {
    const omm_message turn = {.role = OMM_ROLE_USER, .content = omm_bytes_str("q")};
    omm_tokenizer *t = open_with(s_defaults[0].jinja, 0, false);
    omm_tokenizer *none = open_with(QWEN, 0, false);
    omm_prompt p, q;
    omm_prompt_init(&p, 4096);
    omm_prompt_init(&q, 4096);
    CHECK_OK(omm_chat_render(&p, t, &turn, 1, OMM_CHAT_WHOLE));
    const size_t first = p.tokens.count;
    CHECK_OK(omm_chat_render(&p, t, &turn, 1, OMM_CHAT_WHOLE)); /* goes on */
    CHECK_OK(omm_chat_render(&q, none, &turn, 1, OMM_CHAT_WHOLE));
    CHECK_EQ(p.tokens.count, first + q.tokens.count);
    omm_prompt_clear(&q);
    CHECK_OK(omm_chat_render(&q, t, NULL, 0, OMM_CHAT_WHOLE)); /* of nothing nothing */
    CHECK_EQ(q.tokens.count, 0);
    omm_prompt_fini(&q);
    omm_prompt_fini(&p);
    omm_tokenizer_close(none);
    omm_tokenizer_close(t);
}

/* A model of few positions is told briefly; texts that are cut, or longer than any announcement,
 * are left alone. */
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
    for (size_t size = 0; size < sizeof QWEN - 1; size++) {
        snprintf(text, sizeof text, "%.*s", (int)size, QWEN);
        omm_tokenizer *t = open_with(text, 0, false);
        const char *behind = strstr(QWEN, "{%- endif %}\n{%- for");
        if (size < (size_t)(behind - QWEN) + strlen("{%- endif %}")) CHECK(!omm_chat_announces(t));
        CHECK(!t->tools.response);
        omm_tokenizer_close(t);
    }
    for (int more = 0; more < 2; more++) {
        snprintf(text, sizeof text,
                 "%s{{- '<|im_start|>system\\n%*s<|im_end|>\\n' }}{%%- endif %%}%s", NOT_SYSTEM,
                 8192 - 30 + more, "", TURNS);
        omm_tokenizer *t = open_with(text, 0, false);
        CHECK_EQ(omm_chat_default_system(t).size, more ? 0 : 8192 - 30);
        omm_tokenizer_close(t);
    }
    for (int more = 0; more < 2; more++) { /* and what stands in its place */
        const char *own = OWN, *at = strstr(own, "Be of help.");
        CHECK(at != NULL);
        snprintf(text, sizeof text, "%.*s%*s%s", (int)(at - own), own, 8192 + more, "",
                 at + strlen("Be of help."));
        omm_tokenizer *t = open_with(text, 0, false);
        CHECK_EQ(omm_chat_announces(t), !more);
        omm_tokenizer_close(t);
    }
}

/* A context of another type is said; nothing is kept of the file. */
static void test_types(void) {
    const vocab_recipe recipe = {.marks = {"<|im_start|>", "<|im_end|>"},
                                 .jinja = QWEN,
                                 .context = 4096,
                                 .context_is_text = true};
    omm_tokenizer *t = NULL;
    CHECK_ERR(try_open_vocab(&t, &recipe), OMM_ERR_FORMAT);
    CHECK(!t);
}

#define ADD                                                                                        \
    "{\"name\": \"add\", \"description\": \"Caf\xc3\xa9\", \"parameters\": {\"type\": "            \
    "\"object\", "                                                                                 \
    "\"properties\": {\"b\": {\"type\": \"number\"}}}}"
#define SAY "{\"type\": \"function\", \"function\": {\"name\": \"say\"}}"

static void announces(const char *jinja, const char *system, const char *text) {
    omm_tokenizer *t = open_with(jinja, 0, false);
    const omm_bytes told = {(const uint8_t *)system, system ? strlen(system) : 0};
    json_t *tools = NULL;
    omm_buf out;
    omm_buf_init(&out, 4096);
    CHECK_OK(omm_json_parse(&tools, omm_bytes_str("[" ADD ", " SAY "]"), "tools"));
    CHECK_OK(omm_chat_announce_tools(&out, t, told, tools));
    if (!says(&out, text)) fprintf(stderr, "%.*s\n", (int)out.size, out.data);
    CHECK(says(&out, text));
    omm_buf_fini(&out);
    omm_buf_init(&out, 100);
    CHECK_OK(omm_buf_append(&out, "x", 1));
    CHECK_ERR(omm_chat_announce_tools(&out, t, told, tools), OMM_ERR_TOO_BIG);
    CHECK(says(&out, "x"));
    omm_buf_fini(&out);
    json_decref(tools);
    omm_tokenizer_close(t);
}

/* With a system's text, with an empty one, and with none. */
static void test_announced(void) {
#define ADD_WHOLE "{\"type\": \"function\", \"function\": " ADD "}"
#define ALL_BEFORE "<tools>\n" ADD_WHOLE "\n" SAY "\n</tools>\n"
    announces(QWEN, "S\n", "S\n\n\n" QWEN_HEAD "\n" ADD_WHOLE "\n" SAY "\n</tools>\n\n" HOW_TEXT);
    announces(QWEN, "", "\n\n" QWEN_HEAD "\n" ADD_WHOLE "\n" SAY "\n</tools>\n\n" HOW_TEXT);
    announces(QWEN, NULL, QWEN_HEAD "\n" ADD_WHOLE "\n" SAY "\n</tools>\n\n" HOW_TEXT);
    announces(BOTH, "S", "S\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(BOTH, "", "\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(BOTH, NULL, "Call.\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(OWN, "S", "S\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(OWN, "", "Be of help.\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(OWN, NULL, "Be of help.\n\n# Tools\n" ALL_BEFORE HOW_TEXT);
    announces(BEHIND, NULL, "\n\nUse these:\n<tools>\n" ADD_WHOLE "\n" SAY "\n</tools>" HOW_TEXT);
}

/* ---- results --------------------------------------------------------------------------------- */

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

#define SAID "{{- '\\n<tool_response>\\n' + turn.content + '\\n</tool_response>' }}"
#define ENDS LAST "{{- '<|im_end|>\\n' }}{%- endif %}"
#define STARTS FIRST "{{- '<|im_start|>user' }}{%- endif %}"

/* Results of tools: in a user's turn, one behind the other, or as every other turn. */
static const struct {
    const char *jinja;
    bool response;
} s_results[] = {
    {TURNS, true},
    {LOOP(STARTS SAID ENDS), true},
    {LOOP("{%- if (loop.index0 == 0) or (messages[loop.index0-1].role != 'tool') %}"
          "<|im_start|>user{%- endif %}" SAID ENDS),
     true},
    {"{{ x }}{%- for m in messages %}{{ m }}{%- endfor %}" TURNS "{{ y }}", true},
    {"{%- for turn in messages %}{%- if turn.content is string %}{%- set content = turn.content %}"
     "{%- else %}{%- set content = '' %}{%- endif %}{%- if (turn.role == \"user\") or (turn.role =="
     " \"system\" and not loop.first) %}" TURN "{%- elif turn.role == 'assistant' %}"
     "{%- set content = '' %}{%- elif turn.role == 'tool' %}" STARTS
     "{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}" ENDS
     "{%- endif %}{%- endfor %}",
     true},
    /* another turn; each its own turn; other space */
    {LOOP(FIRST "{{- '<|im_start|>tool' }}{%- endif %}" SAID ENDS), false},
    {LOOP("{{- '<|im_start|>user' }}" SAID "{{- '<|im_end|>\\n' }}"), false},
    {LOOP(FIRST "{{- '<|im_start|>user\\n' }}{%- endif %}{{- '<tool_response>\\n' }}"
                "{{- turn.content }}{{- '\\n</tool_response>\\n' }}" ENDS),
     false},
    {LOOP(STARTS "{{- '\\n<tool_response>' + turn.content + '</tool_response>' }}" ENDS), false},
    {LOOP(STARTS SAID "{{- '\\n' }}" ENDS), false},
    {LOOP(STARTS SAID LAST "{{- '<|im_end|>' }}{%- endif %}"), false},
    {LOOP(STARTS SAID ENDS "{{- x }}"), false},
    /* other conditions, other contents */
    {LOOP("{%- if loop.first %}{{- '<|im_start|>user' }}{%- endif %}" SAID ENDS), false},
    {LOOP(STARTS SAID "{%- if loop.last %}{{- '<|im_end|>\\n' }}{%- endif %}"), false},
    {LOOP(STARTS "{{- '\\n<tool_response>\\n' + turn.content|trim + '\\n</tool_response>' }}" ENDS),
     false},
    {LOOP(STARTS "{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}" ENDS), false},
    {"{%- for turn in rest %}{%- if turn.role == 'tool' %}" RESULT "{%- endif %}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{%- if x.role == 'tool' %}" RESULT "{%- endif %}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{%- if turn.content %}" TURN
     "{%- elif turn.role == 'tool' %}" RESULT "{%- endif %}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{%- if turn.role == 'tool' and x %}" RESULT
     "{%- endif %}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{{- x }}{%- if turn.role == 'tool' %}" RESULT
     "{%- endif %}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{%- if turn.role == 'tool' %}" RESULT
     "{%- endif %}{{- x }}{%- endfor %}",
     false},
    {"{%- for turn in messages %}{%- set content = turn.content|trim %}{%- if turn.role == 'tool' "
     "%}" STARTS "{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}" ENDS
     "{%- endif %}{%- endfor %}",
     false},
    {"{%- if x %}" TURNS "{%- endif %}", false},
    {"{%- macro m() %}" TURNS "{%- endmacro %}{{ '<|im_start|>' + role + '\\n' }}", false},
    /* the mark alone */
    {"{{ '<|im_start|>' + role + '\\n' }}", false},
    {"{{ '<|im_start|>' + role + '\\n' }}{%- if x.startswith('<tool_response>') and "
     "x.endswith('</tool_response>') %}"
     "{%- endif %}",
     false},
    {"{{ '<|im_start|>Results come in <tool_response></tool_response>.' }}", false},
    {"<|im_start|>user\n<tool_response>\n{{ turn.content }}\n</tool_response><|im_end|>\n", false},
};

static void test_responses(void) {
    for (size_t i = 0; i < sizeof s_results / sizeof *s_results; i++) {
        omm_tokenizer *t = open_with(s_results[i].jinja, 0, false);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
        if (t->tools.response != s_results[i].response)
            check_failed(s_results[i].jinja, __FILE__, __LINE__);
        omm_tokenizer_close(t);
    }
}

static void test_results(void) {
    const omm_message messages[] = {
        {.role = OMM_ROLE_USER, .content = omm_bytes_str("q")},
        {.role = OMM_ROLE_ASSISTANT, .content = omm_bytes_str("c")},
        {.role = OMM_ROLE_TOOL, .content = omm_bytes_str("1<tool_response>")},
        {.role = OMM_ROLE_TOOL, .content = omm_bytes_str("")},
        {.role = OMM_ROLE_ASSISTANT, .content = omm_bytes_str("d")},
        {.role = OMM_ROLE_TOOL, .content = omm_bytes_str("3")}};
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

/* The system's turn, which is the first one. */
static void read_first(omm_chat_turns *turns, const json_t *messages, const json_t *tools,
                       const char *jinja, const char *text) {
    omm_tokenizer *t = open_with(jinja, 0, false);
    turns->tokenizer = t;
    CHECK_OK(omm_chat_turns_read(turns, messages, tools));
    CHECK_EQ(turns->messages[0].role, OMM_ROLE_SYSTEM);
    CHECK(omm_bytes_equal(turns->messages[0].content, omm_bytes_str(text)));
    turns->tokenizer = NULL;
    omm_tokenizer_close(t);
}

/* Through turns: what is trained on and what is served. */
static void test_turns(void) {
    json_t *messages = NULL, *tools = NULL, *empty = NULL;
    omm_chat_turns turns;
    omm_tokenizer *t = open_with(QWEN, 0, false);
    CHECK_OK(omm_json_parse(&messages, omm_bytes_str("[{\"role\": \"user\", \"content\": \"Hi\"}]"),
                            "m"));
    CHECK_OK(
        omm_json_parse(&empty, omm_bytes_str("[{\"role\": \"system\", \"content\": \"\"}]"), "m"));
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
    read_first(&turns, messages, tools, BOTH,
               "Call.\n\n# Tools\n<tools>\n" SAY "\n</tools>\n" HOW_TEXT);
    read_first(&turns, messages, tools, NOT_SYSTEM KIND "{%- endif %}" TURNS,
               "Be kind. Tools: say().");
    read_first(&turns, empty, tools, QWEN, "\n\n" QWEN_HEAD "\n" SAY "\n</tools>\n\n" HOW_TEXT);
    read_first(&turns, empty, tools, OWN,
               "Be of help.\n\n# Tools\n<tools>\n" SAY "\n</tools>\n" HOW_TEXT);
    read_first(&turns, empty, tools, NOT_SYSTEM KIND "{%- endif %}" TURNS, "Tools: say().");
    turns.tokenizer = t;
    /* However many names its arguments have, in the brief form as well. */
    json_t *many = json_object(),
           *function = json_pack("[{s:s, s:{s:o}}]", "name", "f", "parameters", "properties", many);
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "argument_%d", i);
        json_object_set_new(many, name, json_object());
    }
    CHECK_OK(omm_chat_turns_read(&turns, messages, function));
    turns.tokenizer = NULL;
    CHECK_OK(omm_chat_turns_read(&turns, messages, function));
    json_decref(function);
    json_decref(empty);
    omm_chat_turns_fini(&turns);
    json_decref(messages);
    json_decref(tools);
    omm_tokenizer_close(t);
}

int main(void) {
    test_templates();
    test_defaults();
    test_default_first();
    test_limits();
    test_types();
    test_announced();
    test_responses();
    test_results();
    test_turns();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
