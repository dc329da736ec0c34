/* chat_forms_test.c - tools, calls and results as the templates of Mistral, Granite and Phi-4 mini have them; and templates that
 * are left alone.  The templates were written for this test, in the ways of published ones. */
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_vocab.h"

/* ---- Mistral's --------------------------------------------------------------------------------- */

#define MISTRAL_START                                                                              \
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"  \
    "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}"        \
    "{%- endif %}{%- if not tools is defined %}{%- set tools = none %}{%- endif %}"                \
    "{%- set user_messages = loop_messages | selectattr(\"role\", \"equalto\", \"user\") | list "  \
    "%}"                                                                                           \
    "{{- bos_token }}\n"
#define LOOP "{%- for message in loop_messages %}\n"
#define IF_USER "{%- if message['role'] == 'user' %}\n"
#define IF_LAST "{%- if tools is not none and (message == user_messages[-1]) %}\n"
#define MEMBERS                                                                                    \
    "{%- for tool in tools %}{%- set tool = tool.function %}"                                      \
    "{{- '{\"type\": \"function\", \"function\": {' }}"                                            \
    "{%- for key, val in tool.items() if key != \"return\" %}"                                     \
    "{%- if val is string %}{{- '\"' + key + '\": \"' + val + '\"' }}"                             \
    "{%- else %}{{- '\"' + key + '\": ' + val|tojson }}{%- endif %}"                               \
    "{%- if not loop.last %}{{- \", \" }}{%- endif %}{%- endfor %}{{- \"}}\" }}"                   \
    "{%- if not loop.last %}{{- \", \" }}{%- else %}{{- \"]\" }}{%- endif %}{%- endfor %}"
#define V3_TOOLS(space)                                                                            \
    IF_LAST "{{- \"[AVAILABLE_TOOLS]" space "[\" }}" MEMBERS "{{- \"[/AVAILABLE_TOOLS]\" }}"       \
            "{%- endif %}"
#define V3_SAYS(space) "{{- \"[INST]" space "\" + message[\"content\"] + \"[/INST]\" }}\n"
#define RAISES                                                                                     \
    "{{- raise_exception(\"Tool call IDs should be alphanumeric strings with length 9!\") }}"
#define V3_CALLS(space)                                                                            \
    "{%- elif message.tool_calls is defined and message.tool_calls is not none %}"                 \
    "{{- \"[TOOL_CALLS]" space "[\" }}{%- for tool_call in message.tool_calls %}"                  \
    "{%- set out = tool_call.function|tojson %}{{- out[:-1] }}"                                    \
    "{%- if not tool_call.id is defined or tool_call.id|length != 9 %}" RAISES                     \
    "{%- endif %}{{- ', \"id\": \"' + tool_call.id + '\"}' }}"                                     \
    "{%- if not loop.last %}{{- \", \" }}{%- else %}{{- \"]\" + eos_token }}{%- endif %}"          \
    "{%- endfor %}\n"
#define V3_ANSWER                                                                                  \
    "{%- elif message[\"role\"] == \"assistant\" %}{{- message[\"content\"] + eos_token }}\n"
#define IF_RESULT                                                                                  \
    "{%- elif message[\"role\"] == \"tool_results\" or message[\"role\"] == \"tool\" %}"
#define CONTENT                                                                                    \
    "{%- if message.content is defined and message.content.content is defined %}"                  \
    "{%- set content = message.content.content %}{%- else %}"                                      \
    "{%- set content = message.content %}{%- endif %}"
#define V3_RESULT(space)                                                                           \
    IF_RESULT CONTENT "{{- '[TOOL_RESULTS]" space "{\"content\": ' + content|string + \", \" }}"   \
                      "{%- if not message.tool_call_id is defined or "                             \
                      "message.tool_call_id|length != 9 %}" RAISES                                 \
                      "{%- endif %}{{- '\"call_id\": \"' + message.tool_call_id + "                \
                      "'\"}[/TOOL_RESULTS]' }}"
#define ENDS "{%- else %}{{- raise_exception('Who?') }}{%- endif %}{%- endfor %}"
#define V3_OF(tools, calls, result)                                                                \
    MISTRAL_START LOOP IF_USER tools V3_SAYS(" ") calls V3_ANSWER result ENDS
#define V3_WHOLE V3_OF(V3_TOOLS(" "), V3_CALLS(" "), V3_RESULT(" "))
#define TEKKEN_WHOLE                                                                               \
    MISTRAL_START LOOP IF_USER V3_TOOLS("") V3_SAYS("") V3_CALLS("") V3_ANSWER V3_RESULT("") ENDS

#define SYSTEM_PROMPT "{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}\n"
#define V7_SAYS                                                                                    \
    "{%- if message['content'] is string %}{{- '[INST]' + message['content'] + '[/INST]' }}"       \
    "{%- endif %}"
#define IDS_TOOLS                                                                                  \
    IF_LAST "{{- '[AVAILABLE_TOOLS]' + tools|tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
#define IDS_CALLS                                                                                  \
    "{%- elif message['role'] == 'assistant' %}{%- if message.get('tool_calls') %}"                \
    "{%- for tool_call in message.tool_calls %}{{- '[TOOL_CALLS]' + tool_call.function.name }}"    \
    "{%- if not tool_call.id is defined or tool_call.id is not string or "                         \
    "tool_call.id|length != 9 %}" RAISES "{%- endif %}{{- '[CALL_ID]' + tool_call.id }}"           \
    "{{- '[ARGS]' + tool_call['function']['arguments']|tojson }}{%- endfor %}{{- eos_token }}"     \
    "{%- elif message['content'] is string %}{{- message['content'] + eos_token }}"                \
    "{%- else %}{{- 'parts' }}{%- endif %}"
#define IDS_RESULT                                                                                 \
    IF_RESULT CONTENT "{%- if not message.tool_call_id is defined or message.tool_call_id is not " \
                      "string or message['tool_call_id']|length != 9 %}" RAISES                    \
                      "{%- endif %}{{- '[TOOL_RESULTS]' + message.tool_call_id + "                 \
                      "'[TOOL_CONTENT]' + content|string + '[/TOOL_RESULTS]' }}"
#define IDS_OF(tools, calls, result)                                                               \
    MISTRAL_START SYSTEM_PROMPT LOOP IF_USER tools V7_SAYS calls result ENDS
#define IDS_WHOLE IDS_OF(IDS_TOOLS, IDS_CALLS, IDS_RESULT)

#define ARGS_TOOLS(name)                                                                           \
    "{%- set " name " = '' %}{%- set has_tools = false %}"                                         \
    "{%- if tools is defined and tools is not none and tools|length > 0 %}"                        \
    "{%- set has_tools = true %}{%- set " name " = '[AVAILABLE_TOOLS]' + (tools | tojson) + "      \
    "'[/AVAILABLE_TOOLS]' %}{{- " name " }}{%- endif %}"
#define ARGS_CALLS                                                                                 \
    "{%- elif message['role'] == 'assistant' %}{%- if message['content'] is string %}"             \
    "{{- message['content'] }}{%- endif %}"                                                        \
    "{%- if message['tool_calls'] is defined and message['tool_calls'] is not none %}"             \
    "{%- for tool in message['tool_calls'] %}"                                                     \
    "{%- set arguments = tool['function']['arguments'] %}{%- if arguments is not string %}"        \
    "{%- set arguments = arguments|tojson %}{%- endif %}"                                          \
    "{{- '[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + arguments }}"                      \
    "{%- endfor %}{%- endif %}{{- eos_token }}"
#define ARGS_SAFE                                                                                  \
    "{%- elif message['role'] == 'assistant' %}{%- if message['content'] is none %}"               \
    "{{- raise_exception('Nothing!') }}{%- endif %}"                                               \
    "{%- if message['content'] is string and message['content'] != '' %}"                          \
    "{{- message['content'] }}{%- endif %}"                                                        \
    "{%- if message['tool_calls'] is defined and message['tool_calls'] is not none and "           \
    "message['tool_calls']|length > 0 %}{%- for tool in message['tool_calls'] %}"                  \
    "{{- '[TOOL_CALLS]' }}{%- set name = tool['function']['name'] %}"                              \
    "{%- set arguments = tool['function']['arguments'] %}{%- if arguments is not string %}"        \
    "{%- set arguments = arguments|tojson|safe %}{%- elif arguments == '' %}"                      \
    "{%- set arguments = '{}' %}{%- endif %}{{- name + '[ARGS]' + arguments }}{%- endfor %}"       \
    "{%- endif %}{{- eos_token }}"
#define ARGS_RESULT                                                                                \
    IF_RESULT CONTENT "{{- \"[TOOL_RESULTS]\" + content|string + \"[/TOOL_RESULTS]\" }}"
#define ARGS_INLINE                                                                                \
    "{%- elif message['role'] == 'tool' %}"                                                        \
    "{{- '[TOOL_RESULTS]' + message['content']|string + '[/TOOL_RESULTS]' }}"
#define ARGS_OF(tools, calls, result)                                                              \
    MISTRAL_START SYSTEM_PROMPT tools LOOP IF_USER V7_SAYS calls result ENDS
#define ARGS_WHOLE ARGS_OF(ARGS_TOOLS("tools_description"), ARGS_CALLS, ARGS_RESULT)

/* ---- Granite's --------------------------------------------------------------------------------- */

#define GRANITE_END "'<|end_of_text|>\n'"
#define GRANITE_SYSTEM(tools)                                                                      \
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"  \
    "{%- set loop_messages = messages[1:] %}{%- else %}"                                           \
    "{%- set system_message = \"Known until: May.\nToday's Date: \" + strftime_now('%B %d, %Y') "  \
    "+ \".\nYou are G.\" %}"                                                                       \
    "{%- if " tools " and documents %}{%- set system_message = system_message + ' Both.' %}"       \
    "{%- elif " tools " %}"                                                                        \
    "{%- set system_message = system_message + \" Don't guess: <|tool_call|> a list.\" %}"         \
    "{%- elif documents %}{%- set system_message = system_message + ' Read.' %}"                   \
    "{%- else %}{%- set system_message = system_message + ' You help.' %}{%- endif %}"             \
    "{%- set loop_messages = messages %}{%- endif %}"
#define GRANITE_TURN                                                                               \
    "{{- '<|start_of_role|>system<|end_of_role|>' + system_message + " GRANITE_END " }}"
#define GRANITE_TOOLS(tools, role)                                                                 \
    "{%- if " tools " %}{{- '<|start_of_role|>" role "<|end_of_role|>' }}"                         \
    "{{- " tools " | tojson(indent=4) }}{{- " GRANITE_END " }}{%- endif %}"
#define GRANITE_LOOP                                                                               \
    "{%- for message in loop_messages %}{{- '<|start_of_role|>' + message['role'] + "              \
    "'<|end_of_role|>' + message['content'] + " GRANITE_END " }}{%- endfor %}"
#define GRANITE_31 GRANITE_SYSTEM("tools") GRANITE_TURN GRANITE_TOOLS("tools", "tools") GRANITE_LOOP
#define GRANITE_31_ELSE(more)                                                                      \
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"  \
    "{%- set loop_messages = messages[1:] %}{%- else %}"                                           \
    "{%- set system_message = strftime_now('%B %d, %Y') + '.\nYou are G.' %}"                      \
    "{%- if tools %}{%- set system_message = system_message + \" Don't.\" %}"                      \
    "{%- else %}{%- set system_message = system_message + ' You help.' %}" more                    \
    "{%- endif %}{%- set loop_messages = messages %}{%- endif %}" GRANITE_TURN GRANITE_TOOLS(      \
        "tools", "tools") GRANITE_LOOP
#define GRANITE_33                                                                                 \
    "{%- if tools and not available_tools %}{%- set available_tools = tools %}{%- endif "          \
    "%}" GRANITE_SYSTEM("available_tools")                                                         \
        GRANITE_TURN GRANITE_TOOLS("available_tools", "available_tools") GRANITE_LOOP
#define GRANITE_30_TOOLS                                                                           \
    "{%- if tools %}{{- '<|start_of_role|>available_tools<|end_of_role|>\n' }}"                    \
    "{%- for tool in tools %}{{- tool | tojson(indent=4) }}{%- if not loop.last %}{{- '\n\n' }}"   \
    "{%- endif %}{%- endfor %}{{- " GRANITE_END " }}{%- endif %}"
#define GRANITE_30_ROLE(word, role)                                                                \
    "{%- " word " message['role'] == '" role "' %}{{- '<|start_of_role|>" role                     \
    "<|end_of_role|>' + message['content'] + " GRANITE_END " }}"
#define GRANITE_30                                                                                 \
    GRANITE_30_TOOLS "{%- for message in messages %}" GRANITE_30_ROLE("if", "system")              \
        GRANITE_30_ROLE("elif", "user") GRANITE_30_ROLE("elif", "assistant")                       \
            GRANITE_30_ROLE("elif", "tool_response") "{%- endif %}{%- endfor %}"

#define NS "ns.tools_system_message"
#define GRANITE_4_SETS                                                                             \
    "{%- set tools_system_message_prefix = 'Call what\\'s in\\n<tools>' %}"                        \
    "{%- set tools_system_message_suffix = '\\n</tools> by {\\\"name\\\"}.' %}"
#define GRANITE_4_LISTS                                                                            \
    "{%- if tools %}{%- for tool in tools %}{%- set " NS " = " NS " + '\\n' + (tool | tojson) %}"  \
    "{%- endfor %}{%- set " NS " = " NS " + tools_system_message_suffix %}{%- else %}"             \
    "{%- set " NS " = '' %}{%- endif %}"
#define GRANITE_4_BESIDE                                                                           \
    "{%- if tools and documents %}{%- set ns.system_message = ns.system_message + '\\n\\n' + " NS  \
    " + '\\n\\n' + ns.documents_system_message %}{%- elif tools %}"                                \
    "{%- set ns.system_message = ns.system_message + '\\n\\n' + " NS " %}"                         \
    "{%- elif documents %}{{- 2 }}{%- endif %}"
#define GRANITE_4_ALONE                                                                            \
    "{%- if tools and documents %}"                                                                \
    "{%- set ns.system_message = " NS " + '\\n\\n' + ns.documents_system_message %}"               \
    "{%- elif tools %}{%- set ns.system_message = " NS " %}{%- elif documents %}{{- 4 }}"          \
    "{%- endif %}"
#define GRANITE_4_SYSTEM_OF(beside, alone)                                                         \
    "{%- if messages[0].role == 'system' %}{%- set ns.system_message = messages[0].content "       \
    "%}" beside "{%- else %}" alone "{%- endif %}"
#define GRANITE_4_SYSTEM GRANITE_4_SYSTEM_OF(GRANITE_4_BESIDE, GRANITE_4_ALONE)
#define GRANITE_4_TURN                                                                             \
    "{%- if ns.system_message %}{{- '<|start_of_role|>system<|end_of_role|>' + "                   \
    "ns.system_message + " GRANITE_END " }}"
#define GRANITE_4_ELSE                                                                             \
    "{%- else %}{{- '<|start_of_role|>system<|end_of_role|>' + ns.default_system_message "         \
    "+ " GRANITE_END " }}"
#define GRANITE_4_CALLS                                                                            \
    "{%- for tool_call in message.tool_calls %}{{- '<tool_call>\\n{\"name\": \"' }}"               \
    "{{- tool_call.name }}{{- '\", \"arguments\": ' }}"                                            \
    "{%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}"                 \
    "{{- tool_call.arguments | tojson }}{%- endif %}{{- '}\\n</tool_call>' }}{%- endfor %}"
#define GRANITE_4_RESULTS                                                                          \
    "{%- for message in messages %}{%- if message.role != 'tool' %}"                               \
    "{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val + " GRANITE_END      \
    " }}{%- else %}"                                                                               \
    "{%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}"                           \
    "{{- '<|start_of_role|>user<|end_of_role|>' }}{%- endif %}{{- '\\n<tool_response>\\n' }}"      \
    "{{- content.val }}{{- '\\n</tool_response>' }}"                                               \
    "{%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- " GRANITE_END " }}"      \
    "{%- endif %}{%- endif %}{%- endfor %}"
#define GRANITE_4_LOOP                                                                             \
    "{%- for message in messages %}{%- if message.role == 'user' %}"                               \
    "{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val + " GRANITE_END      \
    " }}{%- elif message.role == 'assistant' %}" GRANITE_4_CALLS                                   \
    "{%- elif message.role == 'tool' %}"                                                           \
    "{%- if loop.first or (messages[loop.index0 - 1].role != 'tool') %}"                           \
    "{{- '<|start_of_role|>user<|end_of_role|>' }}{%- endif %}{{- '\\n<tool_response>\\n' }}"      \
    "{{- content.val }}{{- '\\n</tool_response>' }}"                                               \
    "{%- if loop.last or (messages[loop.index0 + 1].role != 'tool') %}{{- " GRANITE_END " }}"      \
    "{%- endif %}{%- endif %}{%- endfor %}"
#define GRANITE_41                                                                                 \
    GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP
#define GRANITE_40                                                                                 \
    GRANITE_4_SETS                                                                                 \
    "{%- set g4_default_system_message = 'Be safe.' %}" GRANITE_4_LISTS GRANITE_4_SYSTEM           \
        GRANITE_4_TURN GRANITE_4_ELSE "{%- endif %}" GRANITE_4_LOOP

/* ---- Phi-4 mini's ------------------------------------------------------------------------------ */

#define PHI_IF                                                                                     \
    "{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}"
#define PHI_TOLD                                                                                   \
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + "     \
    "'<|/tool|>' + '<|end|>' }}"
#define PHI_OF(asks, told)                                                                         \
    "{% for message in messages %}" asks told "{% else %}"                                         \
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}"  \
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"
#define PHI PHI_OF(PHI_IF, PHI_TOLD)

/* ---- which --------------------------------------------------------------------------------------- */

typedef enum family { SPM, TEKKEN, GRANITE, PHI_4 } family;

static omm_tokenizer *open_with(family f, const char *jinja, bool lacks) {
    static const vocab_recipe recipes[] = {
        [TEKKEN] = {.marks = {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
                              "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"},
                    .more = {"[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]",
                             "[CALL_ID]", "[TOOL_CONTENT]"}},
        [GRANITE] = {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>",
                               "<tool_call>", "</tool_call>", "<|tool_call|>"}},
        [PHI_4] = {.marks = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>",
                             "<|/tool|>"},
                   .more = {"<|/tool_call|>", "<|tool_call|>"}}};
    vocab_recipe r = recipes[f == SPM ? TEKKEN : f];
    r.spm = f == SPM;
    r.jinja = jinja;
    if (lacks && f == GRANITE)
        r.marks[5] = NULL;
    else if (lacks)
        r.more[f == PHI_4 ? 1 : 0] = "x";
    return open_vocab(&r);
}

typedef struct expected {
    omm_calls_form calls;
    bool announces;
    omm_chat_place place;
} expected;

static void check_form(family f, const char *jinja, expected want, int line) {
    omm_tokenizer *t = open_with(f, jinja, false);
    const bool is = omm_chat_calls_of(t) == want.calls && omm_chat_announces(t) == want.announces &&
                    omm_chat_announces_at(t) == want.place;
    if (!is)
        fprintf(stderr, "line %d: %s, announces %d at %d\n", line,
                omm_calls_form_name(omm_chat_calls_of(t)), omm_chat_announces(t),
                (int)omm_chat_announces_at(t));
    CHECK(is);
    omm_tokenizer_close(t);
    if (!want.announces || want.calls == OMM_CALLS_MARKED) return;
    t = open_with(f, jinja, true); /* without the mark of calls */
    CHECK(omm_chat_calls_of(t) == OMM_CALLS_MARKED && !omm_chat_announces(t));
    omm_tokenizer_close(t);
}
#define IS(f, jinja, ...) check_form(f, jinja, (expected){__VA_ARGS__}, __LINE__)
#define IS_LEFT(f, jinja) IS(f, jinja, OMM_CALLS_MARKED, false, OMM_CHAT_IN_SYSTEM)

static void test_mistral(void) {
    IS(SPM, V3_WHOLE, OMM_CALLS_MISTRAL, true, OMM_CHAT_AT_LAST_USER);
    IS(TEKKEN, V3_WHOLE, OMM_CALLS_MISTRAL, true, OMM_CHAT_AT_LAST_USER);
    IS(TEKKEN, TEKKEN_WHOLE, OMM_CALLS_MISTRAL_TEKKEN, true, OMM_CHAT_AT_LAST_USER);
    IS(TEKKEN, IDS_WHOLE, OMM_CALLS_MISTRAL_IDS, true, OMM_CHAT_AT_LAST_USER);
    IS(TEKKEN, ARGS_WHOLE, OMM_CALLS_MISTRAL_ARGS, true, OMM_CHAT_BEHIND_SYSTEM);
    IS(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_definition"), ARGS_SAFE, ARGS_INLINE),
       OMM_CALLS_MISTRAL_ARGS, true, OMM_CHAT_BEHIND_SYSTEM);
    /* one of the three is missing, another's, or otherwise */
    IS_LEFT(SPM, V3_OF("", V3_CALLS(" "), V3_RESULT(" ")));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), "", V3_RESULT(" ")));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(" "), ""));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(""), V3_RESULT(" ")));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(" ") "{{- 'x' }}", V3_RESULT(" ")));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(" "), V3_RESULT(" ") "{{- 'x' }}"));
    IS_LEFT(SPM, V3_OF("{{- 'x' }}" V3_TOOLS(" "), V3_CALLS(" "), V3_RESULT(" ")));
    IS_LEFT(SPM, V3_OF(IF_LAST "{{- '[AVAILABLE_TOOLS] [' }}{{- tools|tojson }}{%- endif %}",
                       V3_CALLS(" "), V3_RESULT(" ")));
    IS_LEFT(SPM, "{%- if x %}" V3_WHOLE "{%- endif %}");
    IS_LEFT(SPM, "{%- if tools is defined %}{%- set tools = none %}{%- endif %}" V3_WHOLE);
    IS_LEFT(TEKKEN, "{%- set tools = x %}" ARGS_WHOLE);
    IS_LEFT(TEKKEN, IDS_OF(IDS_TOOLS, IDS_CALLS, ARGS_RESULT));
    IS_LEFT(TEKKEN, IDS_OF(V3_TOOLS(""), IDS_CALLS, IDS_RESULT));
    IS_LEFT(TEKKEN, IDS_OF(IDS_TOOLS, IDS_CALLS "{{- 'x' }}", IDS_RESULT));
    IS_LEFT(TEKKEN, ARGS_OF("{%- if x %}" ARGS_TOOLS("tools_description") "{%- endif %}",
                            ARGS_CALLS, ARGS_RESULT));
    IS_LEFT(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_description"), ARGS_CALLS "{{- 'x' }}", ARGS_RESULT));
    IS_LEFT(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_definition"), ARGS_SAFE, ARGS_INLINE "{{- 'x' }}"));
    IS_LEFT(TEKKEN, ARGS_OF("", ARGS_CALLS, ARGS_RESULT));
    IS_LEFT(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_definition"), ARGS_SAFE, "{{- 'x' }}" ARGS_INLINE));
    IS_LEFT(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_definition"), ARGS_SAFE, ARGS_INLINE "{{- x }}"));
    IS_LEFT(TEKKEN, ARGS_OF(ARGS_TOOLS("tools_definition"), ARGS_SAFE, ARGS_RESULT "{{- x }}"));
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(" "), V3_RESULT(" ") "{{- x }}"));
    /* the last of other messages than the user's */
    IS_LEFT(SPM, "{%- set user_messages = messages %}" LOOP IF_USER V3_TOOLS(" ") V3_SAYS(" ")
                     V3_CALLS(" ") V3_ANSWER V3_RESULT(" ") ENDS);
    IS_LEFT(TEKKEN, "{%- set user_messages = messages %}" LOOP IF_USER V3_TOOLS("") V3_SAYS("")
                        V3_CALLS("") V3_ANSWER V3_RESULT("") ENDS);
    IS_LEFT(TEKKEN, "{%- set user_messages = messages %}" SYSTEM_PROMPT LOOP IF_USER IDS_TOOLS
                        V7_SAYS IDS_CALLS IDS_RESULT ENDS);
    /* more in the loop than the choice */
    IS_LEFT(TEKKEN, MISTRAL_START SYSTEM_PROMPT ARGS_TOOLS("tools_description")
                        LOOP IF_USER V7_SAYS ARGS_CALLS ARGS_RESULT
            "{%- else %}{{- raise_exception('Who?') }}{%- endif %}{{- 'x' }}"
            "{%- endfor %}");
    IS_LEFT(SPM, V3_OF(V3_TOOLS(" "), V3_CALLS(" "),
                       IF_RESULT CONTENT "{{- 'x' }}{{- '[TOOL_RESULTS] {\"content\": ' + "
                                         "content|string + \", \" }}"));
}

static void check_system(const char *jinja, const char *system, const char *announcing) {
    omm_tokenizer *t = open_with(GRANITE, jinja, false);
    CHECK(omm_bytes_equal(omm_chat_default_system(t), omm_bytes_str(system)));
    CHECK(omm_bytes_equal(omm_chat_announcing_system(t), omm_bytes_str(announcing)));
    omm_tokenizer_close(t);
}

static void test_granite(void) {
    IS(GRANITE, GRANITE_30, OMM_CALLS_GRANITE, true, OMM_CHAT_AT_FRONT);
    IS(GRANITE, GRANITE_31, OMM_CALLS_GRANITE, true, OMM_CHAT_BEHIND_SYSTEM);
    IS(GRANITE, GRANITE_33, OMM_CALLS_GRANITE, true, OMM_CHAT_BEHIND_SYSTEM);
    IS(GRANITE, GRANITE_40, OMM_CALLS_MARKED, true, OMM_CHAT_IN_SYSTEM);
    IS(GRANITE, GRANITE_41, OMM_CALLS_MARKED, true, OMM_CHAT_IN_SYSTEM);
    check_system(GRANITE_31, "You are G. You help.",
                 "You are G. Don't guess: <|tool_call|> a list.");
    check_system(GRANITE_40, "Be safe.", "");
    check_system(GRANITE_41, "", "");
    IS_LEFT(GRANITE, GRANITE_SYSTEM("x") GRANITE_TURN GRANITE_TOOLS("tools", "tools") GRANITE_LOOP);
    IS_LEFT(GRANITE, GRANITE_SYSTEM("tools") GRANITE_TURN
            "{{- 'x' }}" GRANITE_TOOLS("tools", "tools") GRANITE_LOOP);
    IS_LEFT(GRANITE, GRANITE_SYSTEM("tools") GRANITE_TURN GRANITE_TOOLS("tools", "x") GRANITE_LOOP);
    IS_LEFT(GRANITE, "{%- if x %}" GRANITE_31 "{%- endif %}");
    IS_LEFT(GRANITE, "{{- 'x' }}" GRANITE_30);
    IS_LEFT(GRANITE, GRANITE_4_LISTS GRANITE_4_SYSTEM GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_SYSTEM GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
    check_system("{%- if x %}" GRANITE_31 "{%- endif %}", "", "");
    /* no text of a branch that says more, and of the other none then */
    check_system(GRANITE_31_ELSE("{{- 'x' }}"), "", "");
    IS_LEFT(GRANITE, GRANITE_31_ELSE("{{- 'x' }}"));
    check_system(GRANITE_31_ELSE(""), "You are G. You help.", "You are G. Don't.");
    /* each of what is Granite 4's */
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM GRANITE_4_LOOP);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM_OF("", GRANITE_4_ALONE)
                         GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM_OF(GRANITE_4_BESIDE, "")
                         GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM GRANITE_4_TURN
            "{%- endif %}" GRANITE_LOOP GRANITE_4_CALLS);
    IS_LEFT(GRANITE, GRANITE_4_SETS GRANITE_4_LISTS GRANITE_4_SYSTEM GRANITE_4_TURN
            "{%- endif %}" GRANITE_4_RESULTS);
    IS_LEFT(GRANITE,
            "{%- set tools_system_message_prefix = '<|x|><tools>' %}"
            "{%- set tools_system_message_suffix = '</tools>' %}" GRANITE_4_LISTS GRANITE_4_SYSTEM
                GRANITE_4_TURN "{%- endif %}" GRANITE_4_LOOP);
}

static void test_phi(void) {
    IS(PHI_4, PHI, OMM_CALLS_PHI4, true, OMM_CHAT_IN_SYSTEM);
    IS_LEFT(PHI_4, PHI_OF("{% if message['role'] == 'system' %}", PHI_TOLD));
    IS_LEFT(PHI_4, PHI_OF(PHI_IF, "{{ '<|' + message['role'] + '|>' + message['content'] + "
                                  "'<|tool|>' + message['x'] + '<|/tool|>' + '<|end|>' }}"));
}

/* ---- conversations --------------------------------------------------------------------------------- */

#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define CALL(id, name, arguments)                                                                  \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"" name                \
    "\", \"arguments\": \"" arguments "\"}}"
#define CALLS                                                                                      \
    "{\"role\": \"assistant\", \"content\": \"I look.\", \"tool_calls\": [" CALL(                  \
        "abcDEF123", "add",                                                                        \
        "{\\\"a\\\":1,\\\"b\\\":{\\\"c\\\":[\\\"\xc3\xa9\\\"]}}") ", " CALL("call_7-x", "now",     \
                                                                            "") "]}"
#define RESULT(id, text)                                                                           \
    "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"
#define RESULTS RESULT("abcDEF123", "1 [INST]") ", " RESULT("call_7-x", "")
#define ADD                                                                                        \
    "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"Say "           \
    "\\\"+\\\"\", "                                                                                \
    "\"parameters\": {\"type\": \"object\"}, \"return\": 1}}"
#define NOW "{\"name\": \"now\"}"
#define TOOLS "[" ADD ", " NOW "]"
#define ADD_CALL "{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": {\"c\": [\"\xc3\xa9\"]}}"
#define NOW_CALL "{\"name\": \"now\", \"arguments\": {}"
#define ADD_MEMBERS                                                                                \
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"Say \"+\"\", " \
    "\"parameters\": {\"type\": \"object\"}}}, {\"type\": \"function\", \"function\": {\"name\": " \
    "\"now\"}}]"
#define LISTED "[" ADD ", {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]"
#define WHOLE_OF(system)                                                                           \
    "[" system SAYS("user", "Hi") ", " CALLS ", " RESULTS ", " SAYS(                               \
        "assistant", " Two. ") ", " SAYS("user", "[TOOL_CALLS] <|tool_call|>") "]"
#define WHOLE WHOLE_OF(SAYS("system", "S") ", ")

static void renders(family f, const char *jinja, const char *messages, const char *tools,
                    const char *text) {
    omm_tokenizer *t = open_with(f, jinja, false);
    json_t *list = NULL, *functions = NULL;
    omm_chat_turns turns;
    omm_prompt p;
    omm_buf out;
    omm_prompt_init(&p, 8192);
    omm_buf_init(&out, 8192);
    omm_chat_turns_init(&turns, 8192);
    turns.tokenizer = t;
    CHECK_OK(omm_json_parse(&list, omm_bytes_str(messages), "messages"));
    if (tools) CHECK_OK(omm_json_parse(&functions, omm_bytes_str(tools), "tools"));
    CHECK_OK(omm_chat_turns_read(&turns, list, functions));
    CHECK_OK(omm_chat_render(&p, t, turns.messages, turns.count, OMM_CHAT_ANSWER));
    for (size_t i = 0; i < p.tokens.count; i++)
        CHECK_OK(omm_tokenizer_decode(&out, t, &p.tokens.ids[i], 1,
                                      OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    const bool same = omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(text));
    if (!same) fprintf(stderr, "%.*s\nnot\n%s\n", (int)out.size, out.data, text);
    CHECK(same);
    omm_chat_turns_fini(&turns);
    json_decref(functions);
    json_decref(list);
    omm_buf_fini(&out);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

#define CONTENT_OF(space, text, id)                                                                \
    "[TOOL_RESULTS]" space "{\"content\": " text ", \"call_id\": \"" id "\"}[/TOOL_RESULTS]"

static void test_mistral_conversations(void) {
    renders(SPM, V3_WHOLE, WHOLE, TOOLS,
            "<s>[INST] Hi[/INST][TOOL_CALLS] [" ADD_CALL ", \"id\": \"abcDEF123\"}, " NOW_CALL
            ", \"id\": \"000call7x\"}]</s>" CONTENT_OF(" ", "1 [INST]", "abcDEF123") CONTENT_OF(
                " ", "",
                "000call7x") " Two.</s>[AVAILABLE_TOOLS] " ADD_MEMBERS
                             "[/AVAILABLE_TOOLS][INST] S\n\n[TOOL_CALLS] <|tool_call|>[/INST]");
    renders(
        TEKKEN, TEKKEN_WHOLE, WHOLE, TOOLS,
        "<s>[INST]Hi[/INST][TOOL_CALLS][" ADD_CALL ", \"id\": \"abcDEF123\"}, " NOW_CALL
        ", \"id\": \"000call7x\"}]</s>" CONTENT_OF("", "1 [INST]", "abcDEF123") CONTENT_OF(
            "", "", "000call7x") " Two. </s>[AVAILABLE_TOOLS]" ADD_MEMBERS
                                 "[/AVAILABLE_TOOLS][INST]S\n\n[TOOL_CALLS] <|tool_call|>[/INST]");
    renders(TEKKEN, IDS_WHOLE, WHOLE, TOOLS,
            "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]Hi[/INST][TOOL_CALLS]add[CALL_ID]abcDEF123"
            "[ARGS]{\"a\": 1, \"b\": {\"c\": [\"\xc3\xa9\"]}}[TOOL_CALLS]now[CALL_ID]000call7x"
            "[ARGS]{}</s>[TOOL_RESULTS]abcDEF123[TOOL_CONTENT]1 [INST][/TOOL_RESULTS]"
            "[TOOL_RESULTS]000call7x[TOOL_CONTENT][/TOOL_RESULTS] Two. </s>[AVAILABLE_TOOLS]" LISTED
            "[/AVAILABLE_TOOLS][INST][TOOL_CALLS] <|tool_call|>[/INST]");
    renders(TEKKEN, ARGS_WHOLE, WHOLE, TOOLS,
            "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][AVAILABLE_TOOLS]" LISTED
            "[/AVAILABLE_TOOLS][INST]Hi[/INST]I look.[TOOL_CALLS]add[ARGS]{\"a\": 1, \"b\": "
            "{\"c\": [\"\xc3\xa9\"]}}[TOOL_CALLS]now[ARGS]{}</s>[TOOL_RESULTS]1 [INST]"
            "[/TOOL_RESULTS][TOOL_RESULTS][/TOOL_RESULTS] Two. </s>[INST][TOOL_CALLS] "
            "<|tool_call|>[/INST]");
    /* without a system turn, and a user who says the same again */
    renders(TEKKEN, ARGS_WHOLE, "[" SAYS("user", "Hi") "]", "[" NOW "]",
            "<s>[AVAILABLE_TOOLS][{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]"
            "[/AVAILABLE_TOOLS][INST]Hi[/INST]");
#define NOW_TOLD                                                                                   \
    "[AVAILABLE_TOOLS][{\"type\": \"function\", \"function\": {\"name\": \"now\"}}]"               \
    "[/AVAILABLE_TOOLS]"
    renders(TEKKEN, TEKKEN_WHOLE,
            "[" SAYS("user", "Hi") ", " SAYS("assistant", "a") ", " SAYS("user", "Yo") ", " SAYS(
                "assistant", "b") ", " SAYS("user", "Hi") "]",
            "[" NOW "]",
            "<s>" NOW_TOLD "[INST]Hi[/INST]a</s>[INST]Yo[/INST]b</s>" NOW_TOLD "[INST]Hi[/INST]");
    /* no ids: none are made up */
    renders(
        TEKKEN, TEKKEN_WHOLE,
        "[" SAYS("user", "Hi") ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
                               "{\"name\": \"now\", \"arguments\": {}}}]}, " SAYS("tool", "x") "]",
        NULL,
        "<s>[INST]Hi[/INST][TOOL_CALLS][" NOW_CALL
        "}]</s>[TOOL_RESULTS]{\"content\": x}[/TOOL_RESULTS]");
    renders(
        TEKKEN, IDS_WHOLE,
        "[" SAYS("user", "Hi") ", {\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
                               "{\"name\": \"now\", \"arguments\": {}}}]}, " SAYS("tool", "x") "]",
        NULL,
        "<s>[INST]Hi[/INST][TOOL_CALLS]now[ARGS]{}</s>[TOOL_RESULTS][TOOL_CONTENT]x"
        "[/TOOL_RESULTS]");
    /* and one who says nothing else */
    renders(TEKKEN, TEKKEN_WHOLE,
            "[" SAYS("user", "Hi") ", " SAYS("user", "Hi") ", " SAYS("user", "Hi") ", " SAYS(
                "user", "Hi") "]",
            "[" NOW "]",
            "<s>" NOW_TOLD "[INST]Hi[/INST]" NOW_TOLD "[INST]Hi[/INST]" NOW_TOLD
            "[INST]Hi[/INST]" NOW_TOLD "[INST]Hi[/INST]");
    /* nobody is a user: there is no place */
    renders(TEKKEN, IDS_WHOLE, "[" SAYS("system", "S") "]", "[" NOW "]",
            "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT]");
}

#define TURN(role, text) "<|start_of_role|>" role "<|end_of_role|>" text "<|end_of_text|>\n"
#define INDENTED                                                                                   \
    "[\n    {\n        \"type\": \"function\",\n        \"function\": {\n            \"name\": "   \
    "\"now\"\n        }\n    }\n]"
#define BODY                                                                                       \
    TURN("user", "Hi")                                                                             \
    TURN("assistant", "I look.<|tool_call|>[" ADD_CALL "}, " NOW_CALL "}]")
#define LATER                                                                                      \
    TURN("assistant", " Two. ")                                                                    \
    TURN("user", "[TOOL_CALLS] <|tool_call|>") "<|start_of_role|>assistant<|end_of_role|>"
#define BOTH_30                                                                                    \
    "{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": \"now\"\n    }\n}\n\n" \
    "{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": \"then\"\n    }\n}"
#define MARKED_ADD "<tool_call>\n" ADD_CALL "}\n</tool_call>"
#define MARKED_NOW "<tool_call>\n" NOW_CALL "}\n</tool_call>"

static void test_granite_conversations(void) {
    renders(GRANITE, GRANITE_31, WHOLE, "[" NOW "]",
            TURN("system", "S") TURN("tools", INDENTED) BODY TURN("tool", "1 [INST]")
                TURN("tool", "") LATER);
    renders(GRANITE, GRANITE_33, "[" SAYS("user", "Hi") "]", "[" NOW "]",
            TURN("system", "You are G. Don't guess: <|tool_call|> a list.")
                TURN("available_tools", INDENTED)
                    TURN("user", "Hi") "<|start_of_role|>assistant<|end_of_role|>");
    renders(GRANITE, GRANITE_33, "[" SAYS("user", "Hi") "]", NULL,
            TURN("system", "You are G. You help.")
                TURN("user", "Hi") "<|start_of_role|>assistant<|end_of_role|>");
    renders(GRANITE, GRANITE_30, WHOLE, "[" NOW ", {\"name\": \"then\"}]",
            TURN("available_tools", "\n" BOTH_30) TURN("system", "S")
                BODY TURN("tool_response", "1 [INST]") TURN("tool_response", "") LATER);
    renders(GRANITE, GRANITE_41, WHOLE, "[" NOW "]",
            TURN("system", "S\n\nCall what's in\n<tools>\n{\"type\": \"function\", \"function\": "
                           "{\"name\": \"now\"}}\n</tools> by {\"name\"}.") TURN("user", "Hi")
                TURN("assistant", "I look.\n" MARKED_ADD "\n" MARKED_NOW)
                    TURN("user", "\n<tool_response>\n1 [INST]\n</tool_response>"
                                 "\n<tool_response>\n\n</tool_response>") LATER);
    renders(GRANITE, GRANITE_40, "[" SAYS("user", "Hi") "]", "[" NOW "]",
            TURN("system", "Call what's in\n<tools>\n{\"type\": \"function\", \"function\": "
                           "{\"name\": \"now\"}}\n</tools> by {\"name\"}.")
                TURN("user", "Hi") "<|start_of_role|>assistant<|end_of_role|>");
}

static void test_phi_conversations(void) {
    renders(PHI_4, PHI, WHOLE, "[" NOW "]",
            "<|system|>S<|tool|>[{\"name\": \"now\"}]<|/tool|><|end|><|user|>Hi<|end|>"
            "<|assistant|>I look.<|tool_call|>[" ADD_CALL "}, " NOW_CALL "}]<|/tool_call|><|end|>"
            "<|tool|>1 [INST]<|end|><|tool|><|end|><|assistant|> Two. <|end|>"
            "<|user|>[TOOL_CALLS] <|tool_call|><|end|><|assistant|>");
    renders(PHI_4, PHI, "[" SAYS("user", "Hi") "]", "[" NOW "]",
            "<|system|><|tool|>[{\"name\": \"now\"}]<|/tool|><|end|><|user|>Hi<|end|>"
            "<|assistant|>");
}

/* ---- a system that says nothing -------------------------------------------------------------------- */

#define PHI_35(asks)                                                                               \
    "{% for message in messages %}{% if " asks " %}{{'<|system|>\n' + message['content'] + "       \
    "'<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + "      \
    "'<|end|>\n'}}{% endif %}{% endfor %}{{ '<|assistant|>\n' }}"
#define EMPTY SAYS("system", "")
#define TWO_EMPTY "[" EMPTY ", " SAYS("user", "Hi") ", " EMPTY ", " SAYS("user", "And?") "]"

static void test_empty_system(void) {
    const char *const granite = TURN("user", "Hi") TURN("system", "")
        TURN("user", "And?") "<|start_of_role|>assistant<|end_of_role|>";
    char safe[512];
    renders(PHI_4, PHI_35("message['role'] == 'system' and message['content']"), TWO_EMPTY, NULL,
            "<|user|>\nHi<|end|>\n<|user|>\nAnd?<|end|>\n<|assistant|>\n");
    renders(PHI_4, PHI_35("message['role'] == 'system'"), TWO_EMPTY, NULL,
            "<|system|>\n<|end|>\n<|user|>\nHi<|end|>\n<|system|>\n<|end|>\n<|user|>\nAnd?<|end|>\n"
            "<|assistant|>\n");
    renders(GRANITE, GRANITE_41, TWO_EMPTY, NULL, granite);
    snprintf(safe, sizeof safe, "%s%s", TURN("system", "Be safe."), granite);
    renders(GRANITE, GRANITE_40, TWO_EMPTY, NULL, safe);
    snprintf(safe, sizeof safe, "%s%s", TURN("system", ""), granite);
    renders(GRANITE, GRANITE_31, TWO_EMPTY, NULL, safe);
}

/* Of turns behind a conversation none is its first. */
static void test_empty_system_later(void) {
    omm_tokenizer *t = open_with(GRANITE, GRANITE_40, false);
    const omm_message turns[] = {{.role = OMM_ROLE_USER, .content = omm_bytes_str("in")},
                                 {.role = OMM_ROLE_SYSTEM, .content = omm_bytes_str("")}};
    omm_prompt whole, apart;
    omm_prompt_init(&whole, 8192);
    omm_prompt_init(&apart, 8192);
    CHECK_OK(omm_chat_render(&whole, t, turns, 2, OMM_CHAT_WHOLE));
    CHECK_OK(omm_chat_render(&apart, t, turns, 1, OMM_CHAT_WHOLE));
    const size_t first = apart.tokens.count;
    CHECK_OK(omm_chat_render(&apart, t, turns + 1, 1, OMM_CHAT_WHOLE));
    CHECK(apart.tokens.count > first);
    CHECK_EQ(whole.tokens.count, apart.tokens.count);
    omm_prompt_fini(&apart);
    omm_prompt_fini(&whole);
    omm_tokenizer_close(t);
}

/* ---- marks ------------------------------------------------------------------------------------------ */

static size_t count_of(const omm_tokenizer *t, const omm_prompt *p, const char *mark,
                       bool learned) {
    const uint32_t id = omm_tokenizer_special(t, mark);
    size_t n = 0;
    for (size_t i = 0; i < p->tokens.count; i++)
        n += p->tokens.ids[i] == id && (!learned || p->mask.data[i]);
    return n;
}

/* Of each role's text: its token, what the model says itself alone; what is announced and results never. */
static void test_marks_in_content(void) {
    static const char text[] = "[TOOL_CALLS][TOOL_RESULTS][AVAILABLE_TOOLS][INST][ARGS]";
    omm_tokenizer *t = open_with(TEKKEN, ARGS_WHOLE, false);
    for (int role = 0; role <= OMM_ROLE_TOOLS; role++) {
        const omm_message turn = {
            .role = (omm_role)role, .content = omm_bytes_str(text), .call_id = omm_bytes_str(text)};
        const bool speaks = role == OMM_ROLE_ASSISTANT || role == OMM_ROLE_SYSTEM;
        omm_prompt p;
        omm_prompt_init(&p, 8192);
        CHECK_OK(omm_chat_render(&p, t, &turn, 1, OMM_CHAT_WHOLE));
        CHECK_EQ(count_of(t, &p, "[TOOL_CALLS]", false), speaks);
        CHECK_EQ(count_of(t, &p, "[ARGS]", false), speaks);
        CHECK_EQ(count_of(t, &p, "[TOOL_CALLS]", true), role == OMM_ROLE_ASSISTANT);
        CHECK_EQ(count_of(t, &p, "[TOOL_RESULTS]", false), role == OMM_ROLE_TOOL);
        CHECK_EQ(count_of(t, &p, "[AVAILABLE_TOOLS]", false), role == OMM_ROLE_TOOLS);
        CHECK_EQ(count_of(t, &p, "[INST]", false), role == OMM_ROLE_USER);
        CHECK_EQ(p.mask.size, p.tokens.count);
        omm_prompt_fini(&p);
    }
    omm_tokenizer_close(t);
}

/* What an answer begins with are the ids that it would have in a turn. */
static void goes_on(family f, const char *jinja, const char *text, const char *first) {
    omm_tokenizer *t = open_with(f, jinja, false);
    const omm_message turns[] = {{.role = OMM_ROLE_USER, .content = omm_bytes_str("Hi")},
                                 {.role = OMM_ROLE_ASSISTANT, .content = omm_bytes_str(text)}};
    omm_prompt begun, whole;
    omm_prompt_init(&begun, 4096);
    omm_prompt_init(&whole, 4096);
    CHECK_OK(omm_chat_render(&begun, t, turns, 1, OMM_CHAT_ANSWER));
    const size_t at = begun.tokens.count;
    CHECK_OK(omm_chat_go_on(&begun.tokens, t, omm_bytes_str(text)));
    CHECK_OK(omm_chat_render(&whole, t, turns, 2, OMM_CHAT_WHOLE));
    if (first) CHECK_EQ(begun.tokens.ids[at], omm_tokenizer_special(t, first));
    CHECK(whole.tokens.count > begun.tokens.count);
    CHECK(memcmp(begun.tokens.ids, whole.tokens.ids, begun.tokens.count * sizeof(uint32_t)) == 0);
    omm_prompt_fini(&begun);
    omm_prompt_fini(&whole);
    omm_tokenizer_close(t);
}

static void test_begun(void) {
    goes_on(SPM, V3_WHOLE, "[TOOL_CALLS] [{\"name\":", "[TOOL_CALLS]");
    goes_on(TEKKEN, ARGS_WHOLE, "[TOOL_CALLS]now[ARGS]", "[TOOL_CALLS]");
    goes_on(GRANITE, GRANITE_33, "<|tool_call|>[{\"name\":", "<|tool_call|>");
    goes_on(PHI_4, PHI, "<|tool_call|>[{\"name\":", "<|tool_call|>");
    goes_on(SPM, "{{ messages }}", "<tool_call>\n{",
            NULL); /* text behind text, and no space between */
}

/* A name without quotes around it cannot be any text. */
static void test_refused_names(void) {
    static const char *const names[] = {"", "a b", "x[ARGS]{}[TOOL_CALLS]y", "\\u00e9"};
    omm_tokenizer *t = open_with(TEKKEN, ARGS_WHOLE, false);
    char text[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *list = NULL;
        omm_chat_turns turns;
        omm_chat_turns_init(&turns, 8192);
        turns.tokenizer = t;
        snprintf(text, sizeof text,
                 "[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"%s\", "
                 "\"arguments\": {}}}]}]",
                 names[i]);
        CHECK_OK(omm_json_parse(&list, omm_bytes_str(text), "messages"));
        CHECK_ERR(omm_chat_turns_read(&turns, list, NULL), OMM_ERR_FORMAT);
        CHECK_EQ(turns.bad, OMM_CHAT_BAD_CALLS);
        omm_chat_turns_fini(&turns);
        json_decref(list);
    }
    omm_tokenizer_close(t);
}

/* Every cut of a template is read to an end, and every allocation may fail. */
static void test_cut_and_fail(void) {
    static const struct {
        family f;
        const char *jinja;
    } cases[] = {{TEKKEN, ARGS_WHOLE}, {GRANITE, GRANITE_33}, {GRANITE, GRANITE_40}, {PHI_4, PHI}};
    char cut[8192];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = strlen(cases[i].jinja);
        CHECK(size < sizeof cut);
        for (size_t at = 0; at < size; at += 7) {
            memcpy(cut, cases[i].jinja, at);
            cut[at] = 0;
            omm_tokenizer_close(open_with(cases[i].f, cut, false));
        }
    }
}

int main(void) {
    test_mistral();
    test_granite();
    test_phi();
    test_mistral_conversations();
    test_granite_conversations();
    test_phi_conversations();
    test_empty_system();
    test_empty_system_later();
    test_marks_in_content();
    test_begun();
    test_refused_names();
    test_cut_and_fail();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
