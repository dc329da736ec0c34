/* chat_hunyuan.c - the templates of Hunyuan's dense models that answer (0.5B to 4B; 7B), which differ in their marks.
 *
 *   BOS SYSTEM <|hy_place holder no 3|> <|hy_User|>CONTENT<|hy_Assistant|> ANSWER EOS <|hy_User|>...
 *   BOS SYSTEM <|extra_4|> CONTENT<|extra_0|> ANSWER EOS BOS CONTENT<|extra_0|> ...
 *
 * What the system says stands in front, all of it as one, its mark behind it where it says anything.  A mark ends the user's
 * turn and begins the answer, whose turn has none.  Runs of parts are looked for in their order; what stands between them
 * (tools, which are called as <tool_call>NAME and a block of JSON, so not as anybody's here) is not followed. */
#include "chat_internal.h"
#include "jinja_shape.h"

/* Line ends in a statement's texts are themselves, or escapes. */
#define SYSTEM(lines)                                                                              \
    {                                                                                              \
        "Bif message.role=='system'", "Bif ns.is_first_sp",                                        \
            "Bset ns.system_prompt=ns.system_prompt+message.content", "Bset ns.is_first_sp=false", \
            "Belse", ("Bset ns.system_prompt=ns.system_prompt+'" lines "'+message.content"),       \
            "Bendif", "Bendif", "Bendfor", "Obos_token", "Ons.system_prompt"                       \
    }
#define PLACED(mark)                                                                               \
    { "Bif ns.system_prompt!=''or tools", ("T" mark), "Bendif" }
#define ASKS                                                                                       \
    "Bif message.role=='user'", "Bset ns.is_tool=false", "Bset ns.is_first=false",                 \
        "Bset ns.is_last_user=true"
#define ANSWER(mark)                                                                               \
    {                                                                                              \
        ("Bif message.role=='assistant'and(message.tool_calls is not defined or "                  \
         "message.tool_calls is none)"),                                                           \
            "Bset content=message.content", "Bif'<answer>'in content and not loop.last",           \
            "Bset content=content.split('<answer>')[-1].strip('</answer>').strip()", "Bendif",     \
            "Bset ns.is_last_user=false", "Bif ns.is_tool", ("T</tool_responses>" mark),           \
            "Ocontent", "Oeos_token", "Bset ns.is_tool=false", "Belse", "Ocontent", "Oeos_token",  \
            "Bendif", "Bendif"                                                                     \
    }
#define ENDS(mark)                                                                                 \
    {                                                                                              \
        "Bif add_generation_prompt and not ns.is_last_user and not ns.is_tool", ("T" mark),        \
            "Bendif", "Bif enable_thinking is defined and not enable_thinking",                    \
            "T<think>\n\n</think>\n", "Bendif"                                                     \
    }

static const char *const s_system[][11] = {SYSTEM("\n\n"), SYSTEM("\\n\\n")};

static const char *const s_placed[] = PLACED(HUNYUAN_SYSTEM);
static const char *const s_asks[] = {ASKS, ("T" HUNYUAN_USER), "Omessage.content",
                                     ("T" HUNYUAN_ASSISTANT), "Bendif"};
static const char *const s_answer[] = ANSWER(HUNYUAN_ASSISTANT);
static const char *const s_ends[] = ENDS(HUNYUAN_ASSISTANT);

static const char *const s_7b_placed[] = PLACED(HUNYUAN_7B_SYSTEM);
static const char *const s_7b_asks[] = {ASKS,
                                        "Bif ns.is_first_user",
                                        "Omessage.content",
                                        ("T" HUNYUAN_7B_ASKED),
                                        "Bset ns.is_first_user=false",
                                        "Belse",
                                        "Obos_token",
                                        "Omessage.content",
                                        ("T" HUNYUAN_7B_ASKED),
                                        "Bendif",
                                        "Bendif"};
static const char *const s_7b_answer[] = ANSWER(HUNYUAN_7B_ASKED);
static const char *const s_7b_ends[] = ENDS(HUNYUAN_7B_ASKED);

/* The first of such runs from here on: moves behind it.  What stands in front writes nothing but where tools are. */
static bool find_run(jinja_cursor *c, const char *const run[], size_t count) {
    const jinja_parts *p = c->parts;
    for (; c->at < p->count; c->at++) {
        const size_t taken = jinja_run(p, c->at, run, count, JINJA_NO_NAME);
        c->at += taken;
        if (taken > 0) return true;
        if (!jinja_is_silent(p, c->at)) return false;
        if (chat_find(jinja_condition(p, c->at), "tool")) c->at = jinja_end_of(p, c->at);
    }
    return false;
}
#define FINDS(c, run) find_run(c, run, sizeof(run) / sizeof *(run))

bool hunyuan_is(const jinja_parts *parts, omm_chat_format format) {
    const bool is_7b = format == OMM_CHAT_HUNYUAN_7B;
    jinja_cursor c = {parts, 0}, other = c;
    const bool has_system = FINDS(&c, s_system[0]);
    if (!has_system) c = other;
    if (!has_system && !FINDS(&c, s_system[1])) return false;
    const bool has_turns = is_7b ? FINDS(&c, s_7b_placed) && FINDS(&c, s_7b_asks) &&
                                       FINDS(&c, s_7b_answer) && FINDS(&c, s_7b_ends)
                                 : FINDS(&c, s_placed) && FINDS(&c, s_asks) &&
                                       FINDS(&c, s_answer) && FINDS(&c, s_ends);
    return has_turns && c.at == parts->count;
}
