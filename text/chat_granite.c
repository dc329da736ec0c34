/* chat_granite.c - what the templates of Granite models say of tools, and without a system turn (see chat_announce.c).
 *
 *   3.0       a turn of all tools, each by itself, in front of everything; results in turns of tool_response
 *   3.1-3.3   the system's turn: its text, or else what stands there with tools and without, and a date, which is left out as
 *             everywhere; then a turn of tools as one list, of the role `tools` or `available_tools`
 *   4         as ChatML has it, of texts that the template names first
 *
 * Calls are the model's own matter in 3: <|tool_call|>[{"name", "arguments"}, ...]; in 4 they are ChatML's. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

#define OPEN(role) "<|start_of_role|>" role "<|end_of_role|>"
#define END "<|end_of_text|>\n"

enum { TEXT_MAX = 8192 }; /* bytes of each text that is taken */

static const tools_form s_30 = {.calls = OMM_CALLS_GRANITE,
                                .place = OMM_CHAT_AT_FRONT,
                                .spelling = TOOLS_APART,
                                .before = OPEN("available_tools") "\n",
                                .after = END,
                                .result = {OPEN("tool_response"), NULL, NULL, END},
                                .spoken = {"<|tool_call|>"}};
static const tools_form s_31 = {.calls = OMM_CALLS_GRANITE,
                                .place = OMM_CHAT_BEHIND_SYSTEM,
                                .spelling = TOOLS_INDENTED,
                                .before = OPEN("tools"),
                                .after = END,
                                .spoken = {"<|tool_call|>"}};
static const tools_form s_33 = {.calls = OMM_CALLS_GRANITE,
                                .place = OMM_CHAT_BEHIND_SYSTEM,
                                .spelling = TOOLS_INDENTED,
                                .before = OPEN("available_tools"),
                                .after = END,
                                .spoken = {"<|tool_call|>"}};

/* ---- 3.1 to 3.3 ----------------------------------------------------------------------------------- */

static const char *const s_system[] = {
    "Bif messages[0].role=='system'",
    "Bset system_message=messages[0].content",
    "Bset loop_messages=messages[1:]",
    "Belse",
};
static const char *const s_turn[] = {("T" OPEN("system")), "Osystem_message", ("T" END)};
static const char *const s_tools_31[] = {"Bif tools", ("T" OPEN("tools")),
                                         "Otools|tojson(indent=4)", ("T" END), "Bendif"};
static const char *const s_tools_33[] = {"Bif available_tools", ("T" OPEN("available_tools")),
                                         "Oavailable_tools|tojson(indent=4)", ("T" END), "Bendif"};
#define ADDS "set system_message=system_message+"

/* Behind the date: its end, and white space, go with it. */
static omm_bytes behind_date(omm_bytes text) {
    static const char date[] = "strftime_now('%B %d, %Y')+";
    const uint8_t *at = chat_find(text, date);
    if (!jinja_starts_with(text, "set system_message=") || !at) return JINJA_NO_NAME;
    at += sizeof date - 1;
    return omm_bytes_of(at, text.size - (size_t)(at - text.data));
}

/* What is said without a system turn: in the branch of `asks`, or (empty) in the last one, of the if at `at`. */
static bool put_default(omm_err *err, omm_buf *out, const jinja_parts *p, size_t at, omm_bytes base,
                        const char *asks) {
    omm_buf said;
    const size_t end = jinja_end_of(p, at);
    while (at < end && !(*asks ? jinja_fits(jinja_condition(p, at), asks, JINJA_NO_NAME)
                               : jinja_begins(p, at, "else")))
        at = jinja_next_branch(p, at);
    if (at >= end || jinja_next_branch(p, at) != at + 2) return false;
    omm_buf_init(&said, TEXT_MAX);
    bool is = jinja_put_literal(err, &said, base, "");
    omm_bytes text = omm_buf_view(&said);
    if (is && jinja_starts_with(text, ".")) text = omm_bytes_of(text.data + 1, text.size - 1);
    text = chat_trim(text);
    if (is) *err = omm_buf_append(out, text.data, text.size);
    is = is && *err == OMM_OK && jinja_put_literal(err, out, jinja_text(p, at + 1), ADDS);
    omm_buf_fini(&said);
    return is;
}

/* Part `at` begins the if about the system's text; both texts without one. */
static bool put_defaults(omm_err *err, chat_tools *out, const jinja_parts *p, size_t at,
                         const char *tools) {
    const size_t count = JINJA_RUN(p, at, s_system, JINJA_NO_NAME);
    const omm_bytes base = behind_date(jinja_text(p, at + count));
    return count > 0 && jinja_begins(p, at + count + 1, "if") &&
           put_default(err, &out->instead, p, at + count + 1, base, tools) &&
           put_default(err, &out->system, p, at + count + 1, base, "");
}

static const char *const s_alias[] = {"Bif tools and not available_tools",
                                      "Bset available_tools=tools", "Bendif"};

/* In front of everything, but for another name of tools: what stands without a system turn, that turn, and the one of
 * tools. */
static omm_err read_31(const tools_form **form, chat_tools *out, const jinja_parts *p) {
    omm_err err = OMM_OK;
    const size_t at = JINJA_RUN(p, 0, s_alias, JINJA_NO_NAME);
    const size_t turn = jinja_end_of(p, at) + 1;
    const size_t tools = turn + JINJA_RUN(p, turn, s_turn, JINJA_NO_NAME);
    if (JINJA_RUN(p, at, s_system, JINJA_NO_NAME) == 0 || tools == turn) return OMM_OK;
    if (at == 0 && JINJA_RUN(p, tools, s_tools_31, JINJA_NO_NAME) > 0) *form = &s_31;
    if (at > 0 && JINJA_RUN(p, tools, s_tools_33, JINJA_NO_NAME) > 0) *form = &s_33;
    if (!*form || put_defaults(&err, out, p, at, at > 0 ? "available_tools" : "tools"))
        return OMM_OK;
    *form = NULL;
    omm_buf_clear(&out->instead);
    omm_buf_clear(&out->system);
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

/* ---- 3.0 ------------------------------------------------------------------------------------------ */

static bool is_30(const jinja_parts *p) {
    static const char *const tools[] = {"Bif tools",
                                        ("T" OPEN("available_tools") "\n"),
                                        "Bfor tool in tools",
                                        "Otool|tojson(indent=4)",
                                        "Bif not loop.last",
                                        "T\n\n",
                                        "Bendif",
                                        "Bendfor",
                                        ("T" END),
                                        "Bendif",
                                        "Bfor message in messages"};
    static const char *const result[] = {"Belif message.role=='tool_response'",
                                         ("T" OPEN("tool_response")), "Omessage.content",
                                         ("T" END)};
    if (JINJA_RUN(p, 0, tools, JINJA_NO_NAME) == 0) return false;
    for (size_t at = 0; at < p->count; at++)
        if (JINJA_RUN(p, at, result, JINJA_NO_NAME) > 0) return true;
    return false;
}

/* ---- 4 -------------------------------------------------------------------------------------------- */

#define NS "ns.tools_system_message"
static const char *const s_4_lists[] = {
    "Bif tools",
    "Bfor tool in tools",
    ("Bset " NS "=" NS "+'\\n'+(tool|tojson)"),
    "Bendfor",
    ("Bset " NS "=" NS "+tools_system_message_suffix"),
    "Belse",
    ("Bset " NS "=''"),
    "Bendif",
};
#define BOTH(system)                                                                               \
    "Bif tools and documents",                                                                     \
        ("Bset ns.system_message=" system NS "+'\\n\\n'+ns.documents_system_message")
static const char *const s_4_beside[] = {BOTH("ns.system_message+'\\n\\n'+"), "Belif tools",
                                         ("Bset ns.system_message=ns.system_message+'\\n\\n'+" NS),
                                         "Belif documents"};
static const char *const s_4_alone[] = {BOTH(""), "Belif tools", ("Bset ns.system_message=" NS),
                                        "Belif documents"};
static const char *const s_4_turn[] = {"Bif ns.system_message", ("T" OPEN("system")),
                                       "Ons.system_message", ("T" END)};
static const char *const s_4_default[] = {"Belse", ("T" OPEN("system")),
                                          "Ons.default_system_message", ("T" END), "Bendif"};
static const char *const s_4_calls[] = {("T" OMM_CHAT_CALL_OPENS "\n{\"name\": \""),
                                        "Otool_call.name",
                                        "T\", \"arguments\": ",
                                        "Bif tool_call.arguments is string",
                                        "Otool_call.arguments",
                                        "Belse",
                                        "Otool_call.arguments|tojson",
                                        "Bendif",
                                        ("T}\n" OMM_CHAT_CALL_CLOSES)};
static const char *const s_4_result[] = {
    "Bif loop.first or(messages[loop.index0-1].role!='tool')",
    ("T" OPEN("user")),
    "Bendif",
    "T\n<tool_response>\n",
    "Ocontent.val",
    "T\n</tool_response>",
    "Bif loop.last or(messages[loop.index0+1].role!='tool')",
    ("T" END),
    "Bendif",
};

static bool has_run(const jinja_parts *p, const char *const run[], size_t count) {
    for (size_t at = 0; at < p->count; at++)
        if (jinja_run(p, at, run, count, JINJA_NO_NAME) > 0) return true;
    return false;
}
#define HAS_RUN(p, run) has_run(p, run, sizeof(run) / sizeof *(run))

static bool is_4(const jinja_parts *p) {
    return HAS_RUN(p, s_4_lists) && HAS_RUN(p, s_4_beside) && HAS_RUN(p, s_4_alone) &&
           HAS_RUN(p, s_4_turn) && HAS_RUN(p, s_4_calls) && HAS_RUN(p, s_4_result);
}

/* The text that the template names so, in front of everything, without marks; false: there is none. */
static bool put_named(omm_err *err, omm_buf *out, const jinja_parts *p, const char *name) {
    for (size_t at = 0; jinja_begins(p, at, "set "); at++)
        if (jinja_starts_with(jinja_text(p, at), name))
            return jinja_put_literal(err, out, jinja_text(p, at), name) &&
                   !chat_find(omm_buf_view(out), "<|");
    return false;
}

/* Marks that the model writes are tokens that text may have. */
static void speak(omm_tokenizer *t, const char *mark) {
    const uint32_t id = omm_tokenizer_special(t, mark);
    if (id != OMM_TOKEN_NONE && !omm_tokenizer_is_end(t, id)) tokenizer_speak(t, id);
}

static omm_err read_4(omm_tokenizer *t, const jinja_parts *p) {
    chat_tools *out = &t->tools;
    omm_err err = OMM_OK;
    if (!put_named(&err, &out->head, p, "set tools_system_message_prefix=") ||
        !put_named(&err, &out->tail, p, "set tools_system_message_suffix=")) {
        omm_buf_clear(&out->head);
        omm_buf_clear(&out->tail);
        return err == OMM_ERR_NOMEM ? err : OMM_OK;
    }
    out->announces = out->apart = out->before = out->response = true;
    t->chat_empty = CHAT_EMPTY_FIRST_OUT; /* s_4_turn asks what it says */
    speak(t, OMM_CHAT_CALL_OPENS);
    speak(t, OMM_CHAT_CALL_CLOSES);
    if (HAS_RUN(p, s_4_default) &&
        !put_named(&err, &out->system, p, "set g4_default_system_message="))
        omm_buf_clear(&out->system);
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

omm_err granite_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    const tools_form *form = is_30(parts) ? &s_30 : NULL;
    omm_buf_init(&t->tools.head, TEXT_MAX);
    omm_buf_init(&t->tools.tail, TEXT_MAX);
    omm_buf_init(&t->tools.system, TEXT_MAX);
    omm_buf_init(&t->tools.instead, TEXT_MAX);
    if (is_4(parts)) return read_4(t, parts);
    if (!form) OMM_TRY(read_31(&form, &t->tools, parts));
    if (form) tools_take_form(t, form);
    return OMM_OK;
}
