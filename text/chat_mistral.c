/* chat_mistral.c - how the templates of Mistral's models have tools: in which of four ways (see chat_announce.c).
 *
 *   v3, and Tekken's without the spaces
 *     [AVAILABLE_TOOLS] [TOOL, ...][/AVAILABLE_TOOLS]   in front of the user's last turn, a tool's texts as they are
 *     [TOOL_CALLS] [{"name", "arguments", "id"}, ...]
 *     [TOOL_RESULTS] {"content": CONTENT, "call_id": "ID"}[/TOOL_RESULTS]
 *   ids   [AVAILABLE_TOOLS]JSON[/AVAILABLE_TOOLS]       in front of the user's last turn
 *     [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}            and [TOOL_RESULTS]ID[TOOL_CONTENT]CONTENT[/TOOL_RESULTS]
 *   args  the same behind the system's turn
 *     [TOOL_CALLS]NAME[ARGS]{...}                       and [TOOL_RESULTS]CONTENT[/TOOL_RESULTS]
 *
 * A way is taken if all that the template says of tools is so: the branches of its loop over messages are compared part by
 * part.  $ stands for the space that v3 has. */
#include "chat_internal.h"
#include "jinja_shape.h"

#define TOOLS_OPEN "[AVAILABLE_TOOLS]"
#define TOOLS_CLOSE "[/AVAILABLE_TOOLS]"
#define RESULT_OPEN "[TOOL_RESULTS]"
#define RESULT_CLOSE "[/TOOL_RESULTS]"
#define CALLS_OPEN "[TOOL_CALLS]"
#define ID_CONTENT "[TOOL_CONTENT]"

#define V3(form, space)                                                                            \
    {                                                                                              \
        .calls = (form), .place = OMM_CHAT_AT_LAST_USER, .spelling = TOOLS_BY_MEMBERS,             \
        .before = TOOLS_OPEN space, .after = TOOLS_CLOSE,                                          \
        .result = {RESULT_OPEN space "{\"content\": ", ", \"call_id\": \"", "\"",                  \
                   "}" RESULT_CLOSE},                                                              \
        .marks = {TOOLS_OPEN, TOOLS_CLOSE, RESULT_OPEN, RESULT_CLOSE}, .spoken = {                 \
            CALLS_OPEN                                                                             \
        }                                                                                          \
    }

static const tools_form s_v3 = V3(OMM_CALLS_MISTRAL, " ");
static const tools_form s_v3_tekken = V3(OMM_CALLS_MISTRAL_TEKKEN, "");
static const tools_form s_ids = {
    .calls = OMM_CALLS_MISTRAL_IDS,
    .place = OMM_CHAT_AT_LAST_USER,
    .spelling = TOOLS_AS_LIST,
    .before = TOOLS_OPEN,
    .after = TOOLS_CLOSE,
    .result = {RESULT_OPEN, ID_CONTENT, "", RESULT_CLOSE},
    .id_first = true,
    .marks = {TOOLS_OPEN, TOOLS_CLOSE, RESULT_OPEN, RESULT_CLOSE, ID_CONTENT},
    .spoken = {CALLS_OPEN, CALLS_ID, CALLS_ARGS}};
static const tools_form s_args = {.calls = OMM_CALLS_MISTRAL_ARGS,
                                  .place = OMM_CHAT_BEHIND_SYSTEM,
                                  .spelling = TOOLS_AS_LIST,
                                  .before = TOOLS_OPEN,
                                  .after = TOOLS_CLOSE,
                                  .result = {RESULT_OPEN, NULL, NULL, RESULT_CLOSE},
                                  .marks = {TOOLS_OPEN, TOOLS_CLOSE, RESULT_OPEN, RESULT_CLOSE},
                                  .spoken = {CALLS_OPEN, CALLS_ARGS}};

/* ---- shapes ------------------------------------------------------------------------------------ */

#define IF_LAST "Bif tools is not none and(message==user_messages[-1])"
#define RAISES "Oraise_exception('Tool call IDs should be alphanumeric strings with length 9!')"

static const char *const s_v3_tools[] = {
    IF_LAST,
    ("T" TOOLS_OPEN "$["),
    "Bfor tool in tools",
    "Bset tool=tool.function",
    "T{\"type\": \"function\", \"function\": {",
    "Bfor key,val in tool.items()if key!='return'",
    "Bif val is string",
    "T\"",
    "Okey",
    "T\": \"",
    "Oval",
    "T\"",
    "Belse",
    "T\"",
    "Okey",
    "T\": ",
    "Oval|tojson",
    "Bendif",
    "Bif not loop.last",
    "T, ",
    "Bendif",
    "Bendfor",
    "T}}",
    "Bif not loop.last",
    "T, ",
    "Belse",
    "T]",
    "Bendif",
    "Bendfor",
    ("T" TOOLS_CLOSE),
    "Bendif",
};
static const char *const s_v3_calls[] = {
    ("T" CALLS_OPEN "$["),
    "Bfor tool_call in message.tool_calls",
    "Bset out=tool_call.function|tojson",
    "Oout[:-1]",
    "Bif not tool_call.id is defined or tool_call.id|length!=9",
    RAISES,
    "Bendif",
    "T, \"id\": \"",
    "Otool_call.id",
    "T\"}",
    "Bif not loop.last",
    "T, ",
    "Belse",
    "T]",
    "Oeos_token",
    "Bendif",
    "Bendfor",
};
static const char *const s_content[] = {
    "Bif message.content is defined and message.content.content is defined",
    "Bset content=message.content.content",
    "Belse",
    "Bset content=message.content",
    "Bendif",
};
static const char *const s_v3_result[] = {
    ("T" RESULT_OPEN "${\"content\": "),
    "Ocontent|string",
    "T, ",
    "Bif not message.tool_call_id is defined or message.tool_call_id|length!=9",
    RAISES,
    "Bendif",
    "T\"call_id\": \"",
    "Omessage.tool_call_id",
    ("T\"}" RESULT_CLOSE),
};

static const char *const s_ids_tools[] = {IF_LAST, ("T" TOOLS_OPEN), "Otools|tojson",
                                          ("T" TOOLS_CLOSE), "Bendif"};
static const char *const s_ids_calls[] = {
    "Bif message.get('tool_calls')",
    "Bfor tool_call in message.tool_calls",
    ("T" CALLS_OPEN),
    "Otool_call.function.name",
    "Bif not tool_call.id is defined or tool_call.id is not string or tool_call.id|length!=9",
    RAISES,
    "Bendif",
    ("T" CALLS_ID),
    "Otool_call.id",
    ("T" CALLS_ARGS),
    "Otool_call.function.arguments|tojson",
    "Bendfor",
    "Oeos_token",
    "Belif message.content is string",
    "Omessage.content",
    "Oeos_token",
};
static const char *const s_ids_result[] = {
    ("Bif not message.tool_call_id is defined or message.tool_call_id is not string or "
     "message.tool_call_id|length!=9"),
    RAISES,
    "Bendif",
    ("T" RESULT_OPEN),
    "Omessage.tool_call_id",
    ("T" ID_CONTENT),
    "Ocontent|string",
    ("T" RESULT_CLOSE),
};

/* $: the name of what is written */
static const char *const s_args_tools[] = {
    "Bif tools is defined and tools is not none and tools|length>0",
    "Bset has_tools=true",
    ("Bset $='" TOOLS_OPEN "'+(tools|tojson)+'" TOOLS_CLOSE "'"),
    "O$",
    "Bendif",
};
static const char *const s_args_calls[] = {
    "Bif message.tool_calls is defined and message.tool_calls is not none",
    "Bfor tool in message.tool_calls",
    "Bset arguments=tool.function.arguments",
    "Bif arguments is not string",
    "Bset arguments=arguments|tojson",
    "Bendif",
    ("T" CALLS_OPEN),
    "Otool.function.name",
    ("T" CALLS_ARGS),
    "Oarguments",
    "Bendfor",
    "Bendif",
    "Oeos_token",
};
static const char *const s_args_calls_safe[] = {
    ("Bif message.tool_calls is defined and message.tool_calls is not none and "
     "message.tool_calls|length>0"),
    "Bfor tool in message.tool_calls",
    ("T" CALLS_OPEN),
    "Bset name=tool.function.name",
    "Bset arguments=tool.function.arguments",
    "Bif arguments is not string",
    "Bset arguments=arguments|tojson|safe",
    "Belif arguments==''",
    "Bset arguments='{}'",
    "Bendif",
    "Oname",
    ("T" CALLS_ARGS),
    "Oarguments",
    "Bendfor",
    "Bendif",
    "Oeos_token",
};
static const char *const s_args_result[] = {("T" RESULT_OPEN), "Ocontent|string",
                                            ("T" RESULT_CLOSE)};
static const char *const s_args_result_inline[] = {("T" RESULT_OPEN), "Omessage.content|string",
                                                   ("T" RESULT_CLOSE)};
static const char *const s_says[] = {"Bif message.content is string", "Omessage.content"};
static const char *const s_says_some[] = {"Bif message.content is string and message.content!=''",
                                          "Omessage.content"};

/* ---- a loop over messages ---------------------------------------------------------------------- */

/* What has been found in its branches. */
typedef struct found {
    bool v3_tools, v3_calls, v3_result;
    bool ids_tools, ids_calls, ids_result;
    bool args_tools, args_calls, args_result;
    bool users, turns; /* user_messages is what it says; the loop has come */
} found;

#define RUN(p, at, run) JINJA_RUN(p, at, run, JINJA_NO_NAME)

/* All of the branch from `at` to `end`: CONTENT, then the run. */
static bool is_result(const jinja_parts *p, size_t at, size_t end, const char *const run[],
                      size_t count, omm_bytes space) {
    const size_t content = RUN(p, at, s_content);
    return content > 0 && jinja_run(p, at + content, run, count, space) == count &&
           at + content + count == end;
}
#define IS_RESULT(p, at, end, run, space)                                                          \
    is_result(p, at, end, run, sizeof(run) / sizeof *(run), space)

/* The assistant's branch, to `end`, ends with the run, and begins with what it says. */
static bool ends_with_calls(const jinja_parts *p, size_t at, size_t end) {
    const size_t plain = sizeof s_args_calls / sizeof *s_args_calls;
    const size_t safe = sizeof s_args_calls_safe / sizeof *s_args_calls_safe;
    if (RUN(p, at, s_says) > 0)
        return end - at > plain && RUN(p, end - plain, s_args_calls) > 0 &&
               jinja_end_of(p, at) + 1 == end - plain;
    if (end - at <= safe || RUN(p, end - safe, s_args_calls_safe) == 0) return false;
    at = jinja_end_of(p, at) + 1; /* who says nothing and calls nothing is refused */
    return RUN(p, at, s_says_some) > 0 && jinja_end_of(p, at) + 1 == end - safe;
}

/* The branch of `asks` that begins at `at`, with `space` where v3 has one. */
static void read_branch(found *f, const jinja_parts *p, size_t at, omm_bytes asks,
                        omm_bytes space) {
    static const char *const calls[] = {
        "message.tool_calls is defined and message.tool_calls is not none",
        "(message.tool_calls is defined and message.tool_calls is not none)"};
    static const char *const results[] = {"message.role=='tool_results'or message.role=='tool'",
                                          "message.role=='tool'"};
    const size_t end = jinja_next_branch(p, at++);
    if (jinja_fits(asks, "message.role=='user'", JINJA_NO_NAME)) {
        f->turns = true;
        f->v3_tools = JINJA_RUN(p, at, s_v3_tools, space) > 0;
        f->ids_tools = RUN(p, at, s_ids_tools) > 0;
    } else if (JINJA_FITS_ONE(asks, calls, JINJA_NO_NAME)) {
        const size_t count = JINJA_RUN(p, at, s_v3_calls, space);
        f->v3_calls = count > 0 && at + count == end;
    } else if (jinja_fits(asks, "message.role=='assistant'", JINJA_NO_NAME)) {
        f->ids_calls = RUN(p, at, s_ids_calls) > 0 && jinja_end_of(p, at) + 1 == end;
        f->args_calls = ends_with_calls(p, at, end);
    } else if (JINJA_FITS_ONE(asks, results, JINJA_NO_NAME)) {
        f->v3_result = IS_RESULT(p, at, end, s_v3_result, space);
        f->ids_result = IS_RESULT(p, at, end, s_ids_result, JINJA_NO_NAME);
        f->args_result = IS_RESULT(p, at, end, s_args_result, JINJA_NO_NAME) ||
                         (RUN(p, at, s_args_result_inline) > 0 && at + 3 == end);
    }
}

/* Part `at` is the loop, and its first part an if that is all it has: its branches. */
static void read_turns(found *f, const jinja_parts *p, size_t at, omm_bytes space) {
    static const char *const loops[] = {"for message in loop_messages", "for message in messages"};
    if (!jinja_is(p, at, JINJA_BLOCK) || !JINJA_FITS_ONE(jinja_text(p, at), loops, JINJA_NO_NAME) ||
        !jinja_begins(p, at + 1, "if") || jinja_end_of(p, at + 1) + 1 != jinja_end_of(p, at))
        return;
    for (at++; jinja_condition(p, at).size > 0; at = jinja_next_branch(p, at))
        read_branch(f, p, at, jinja_condition(p, at), space);
}

/* What else may be said of tools, in front of the turns: nothing but what a text about them is at first; texts of other names
 * may speak of them. */
static bool is_known(omm_bytes text) {
    static const char *const known[] = {"set tools_definition=''", "set tools_description=''"};
    if (jinja_starts_with(text, "set ") && !jinja_starts_with(text, "set tools")) return true;
    return !chat_find(text, "tools") || JINJA_FITS_ONE(text, known, JINJA_NO_NAME);
}

static const char *const s_undefined[] = {"Bif not tools is defined", "Bset tools=none", "Bendif"};
static const char *const s_users[] = {
    "Bset user_messages=loop_messages|selectattr('role','equalto','user')|list"};

/* Under no other condition. */
static found read_all(const jinja_parts *p, omm_bytes space) {
    static const char *const names[] = {"tools_definition", "tools_description"};
    found f = {0};
    int depth = 0;
    for (size_t at = 0; at < p->count; at++) {
        size_t told = 0;
        for (size_t i = 0; depth == 0 && told == 0 && i < 2; i++)
            told = JINJA_RUN(p, at, s_args_tools, omm_bytes_str(names[i]));
        f.args_tools |= told > 0;
        f.users |= depth == 0 && RUN(p, at, s_users) > 0;
        if (told > 0) {
            at += told - 1;
            continue;
        }
        const size_t none = depth == 0 ? RUN(p, at, s_undefined) : 0;
        if (none > 0) {
            at += none - 1;
            continue;
        }
        if (depth == 0) read_turns(&f, p, at, space);
        if (!f.turns && !is_known(jinja_text(p, at))) return (found){0};
        depth += jinja_step(p, at);
    }
    return f;
}

void mistral_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    const found tekken = read_all(parts, JINJA_NO_NAME), v3 = read_all(parts, omm_bytes_str(" "));
    if (v3.users && v3.v3_tools && v3.v3_calls && v3.v3_result)
        tools_take_form(t, &s_v3);
    else if (tekken.users && tekken.v3_tools && tekken.v3_calls && tekken.v3_result)
        tools_take_form(t, &s_v3_tekken);
    else if (tekken.users && tekken.ids_tools && tekken.ids_calls && tekken.ids_result)
        tools_take_form(t, &s_ids);
    else if (tekken.args_tools && tekken.args_calls && tekken.args_result)
        tools_take_form(t, &s_args);
}
