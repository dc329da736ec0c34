/* chat_phi.c - how the template of Phi-4 mini has tools (see chat_announce.c), and Phi-3.5's system turns that say nothing.
 *
 *   {% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}
 *     <|system|>CONTENT<|tool|>TOOLS<|/tool|><|end|>
 *   {% else %} <|ROLE|>CONTENT<|end|> {% endif %}
 *
 * TOOLS is a text that whoever uses the model writes: a list of functions, as the model's description has it.  Calls are
 * the model's own matter: <|tool_call|>[{"name", "arguments"}, ...]<|/tool_call|>.  A result is a turn of its role, whose mark
 * is the one that tools have: <|tool|>CONTENT<|end|>. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

static const tools_form s_form = {
    .calls = OMM_CALLS_PHI4,
    .place = OMM_CHAT_IN_SYSTEM,
    .spelling = TOOLS_FUNCTIONS,
    .before = "<|tool|>",
    .after = "<|/tool|>",
    .result = {"<|tool|>", NULL, NULL, "<|end|>"},
    .marks = {"<|tool|>", "<|/tool|>"},
    .spoken = {"<|tool_call|>", "<|/tool_call|>", "<|tool|>", "<|/tool|>"}};

static const char *const s_system[] = {
    "Bif message.role=='system'and'tools'in message and message.tools is not none",
    "T<|",
    "Omessage.role",
    "T|>",
    "Omessage.content",
    "T<|tool|>",
    "Omessage.tools",
    "T<|/tool|><|end|>",
    "Belse",
    "T<|",
    "Omessage.role",
    "T|>",
    "Omessage.content",
    "T<|end|>",
    "Bendif",
    "Bendfor",
};

void phi_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    if (jinja_begins(parts, 0, "for message in messages") &&
        JINJA_RUN(parts, 1, s_system, JINJA_NO_NAME) > 0)
        tools_take_form(t, &s_form);
}

static const char *const s_says_some[] = {"Bif message.role=='system'and message.content",
                                          "T<|system|>\n", "Omessage.content", "T<|end|>\n"};

void phi3_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    if (jinja_begins(parts, 0, "for message in messages") &&
        JINJA_RUN(parts, 1, s_says_some, JINJA_NO_NAME) > 0)
        t->chat_empty = CHAT_EMPTY_OUT;
}
