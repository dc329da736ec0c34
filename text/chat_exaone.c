/* chat_exaone.c - the template of EXAONE 4.0: its turns, and its tools (see chat_announce.c).
 *
 *   [|ROLE|]\nCONTENT[|endofturn|]\n
 *   [|system|]\nTEXT\n\nHEAD <tool>{...}</tool>\n ... TAIL[|endofturn|]\n      or without TEXT and the empty line
 *   [|assistant|]\n<think>\n\n</think>\n\nANSWER\n<tool_call>{"name": NAME, "arguments": {...}}</tool_call>[|endofturn|]\n
 *   [|tool|]\n<tool_result>{"result": TEXT}</tool_result>\n ... [|endofturn|]\n
 *
 * The template leaves the system's turn by `continue` and has the text around tools in a macro, so all of its parts are
 * compared (jinja_parts_read_all): what differs anywhere is another template. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

enum { TEXT_MAX = 8192 }; /* bytes of each text that is taken */

static const char *const s_switch[] = {"Bif not skip_think is defined", "Bset skip_think=true",
                                       "Bendif"};
static const char *const s_names[] = {
    ("Bset role_indicators={'user':'[|user|]\\n','assistant':'[|assistant|]\\n',"
     "'system':'[|system|]\\n','tool':'[|tool|]\\n'}"),
    "Bset end_of_turn='[|endofturn|]\\n'", "Bmacro available_tools(tools)"};
static const char *const s_tools[] = {"Bfor tool in tools", "T<tool>",
                                      "Otool|tojson(ensure_ascii=False)|safe", "T</tool>\n",
                                      "Bendfor"};
static const char *const s_query[] = {"Bendmacro",
                                      "Bset ns=namespace(last_query_index=messages|length-1)",
                                      "Bfor message in messages",
                                      "Bif message.role=='user'and message.content is string",
                                      "Bset ns.last_query_index=loop.index0",
                                      "Bendif",
                                      "Bendfor"};
static const char *const s_system[] = {"Bfor i in range(messages|length)",
                                       "Bset msg=messages[i]",
                                       "Bset role=msg.role",
                                       "Bif role not in role_indicators",
                                       "Oraise_exception('Unknown role: '~role)",
                                       "Bendif",
                                       "Bif i==0",
                                       "Bif role=='system'",
                                       "Orole_indicators.system",
                                       "Omsg.content",
                                       "Bif tools is defined and tools",
                                       "T\n\n",
                                       "Oavailable_tools(tools)",
                                       "Bendif",
                                       "Oend_of_turn",
                                       "Bcontinue",
                                       "Belif tools is defined and tools",
                                       "Orole_indicators.system",
                                       "Oavailable_tools(tools)",
                                       "Oend_of_turn",
                                       "Bendif",
                                       "Bendif"};
#define EMPTY_THOUGHT "T<think>\n\n</think>\n\n"
#define REASONING "Bset reasoning_content="
static const char *const s_answer[] = {
    "Bif role=='assistant'",
    "Orole_indicators.assistant",
    "Bif msg.content",
    "Bif'</think>'in msg.content",
    "Bset content=msg.content.split('</think>')[-1].strip()",
    (REASONING "msg.content.split('</think>')[0].strip()"),
    "Bif reasoning_content.startswith('<think>')",
    (REASONING "reasoning_content[9:].strip()"),
    "Bendif",
    "Belse",
    "Bset content=msg.content",
    "Bendif",
    "Bif msg.reasoning_content",
    (REASONING "msg.reasoning_content"),
    "Bendif",
    "Bif(not skip_think and loop.last)and reasoning_content is defined",
    "T<think>\n",
    "Oreasoning_content",
    "T\n</think>\n\n",
    "Belse",
    EMPTY_THOUGHT,
    "Bendif",
    "Ocontent",
    "Bendif"};
static const char *const s_calls[] = {
    "Bif msg.tool_calls",
    "Bif msg.content",
    "T\n",
    "Belse",
    EMPTY_THOUGHT,
    "Bendif",
    "Bfor tool_call in msg.tool_calls",
    "Bif tool_call.function is defined",
    "Bset tool_call=tool_call.function",
    "Bendif",
    "Bif tool_call.arguments is defined",
    "Bset arguments=tool_call.arguments",
    "Belif tool_call.parameters is defined",
    "Bset arguments=tool_call.parameters",
    "Belse",
    "Oraise_exception('arguments or parameters are mandatory: '~tool_call)",
    "Bendif",
    ("T" OMM_CHAT_CALL_OPENS "{\"name\": \""),
    "Otool_call.name",
    "T\", \"arguments\": ",
    "Oarguments|tojson(ensure_ascii=False)|safe",
    ("T}" OMM_CHAT_CALL_CLOSES),
    "Bif not loop.last",
    "T\n",
    "Bendif",
    "Bendfor",
    "Bendif",
    "Oend_of_turn"};
static const char *const s_result[] = {"Belif role=='tool'",
                                       "Bif i==0 or messages[i-1].role!='tool'",
                                       "Orole_indicators.tool",
                                       "Bendif",
                                       "Bif msg.content is defined",
                                       "T<tool_result>{\"result\": ",
                                       "Omsg.content|tojson(ensure_ascii=False)|safe",
                                       "T}</tool_result>",
                                       "Bendif",
                                       "Bif loop.last or messages[i+1].role!='tool'",
                                       "Oend_of_turn",
                                       "Belse",
                                       "T\n",
                                       "Bendif"};
static const char *const s_end[] = {"Belse",
                                    "Orole_indicators[role]",
                                    "Omsg.content",
                                    "Oend_of_turn",
                                    "Bendif",
                                    "Bendfor",
                                    "Bif add_generation_prompt",
                                    "Orole_indicators.assistant",
                                    "Bif enable_thinking is defined and enable_thinking is true",
                                    "T<think>\n",
                                    "Belse",
                                    EMPTY_THOUGHT,
                                    "Bendif",
                                    "Bendif"};

#define TAKES(c, run) takes_run(c, run, sizeof(run) / sizeof *(run))
static bool takes_run(jinja_cursor *c, const char *const run[], size_t count) {
    const size_t taken = jinja_run(c->parts, c->at, run, count, JINJA_NO_NAME);
    c->at += taken;
    return taken > 0;
}

/* A text without marks of turns. */
static bool take_text(omm_bytes *out, jinja_cursor *c) {
    if (!jinja_is(c->parts, c->at, JINJA_TEXT)) return false;
    *out = jinja_text(c->parts, c->at++);
    return out->size <= TEXT_MAX && !chat_find(*out, "|]") && !chat_find(*out, "<|");
}

/* All of it, with what stands around tools. */
static bool take_all(omm_bytes *head, omm_bytes *tail, const jinja_parts *parts) {
    jinja_cursor c = {parts, 0};
    TAKES(&c, s_switch);
    return TAKES(&c, s_names) && take_text(head, &c) && TAKES(&c, s_tools) && take_text(tail, &c) &&
           TAKES(&c, s_query) && TAKES(&c, s_system) && TAKES(&c, s_answer) && TAKES(&c, s_calls) &&
           TAKES(&c, s_result) && TAKES(&c, s_end) && c.at == parts->count;
}

bool exaone_is(const jinja_parts *parts) {
    omm_bytes head = {0}, tail = {0};
    return take_all(&head, &tail, parts);
}

/* What the model writes, and what it is told of tools, may be tokens of their own. */
static void speak(omm_tokenizer *t) {
    static const char *const marks[] = {
        OMM_CHAT_CALL_OPENS, OMM_CHAT_CALL_CLOSES, "<tool>", "</tool>", "<think>", "</think>"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const uint32_t id = omm_tokenizer_special(t, marks[i]);
        if (id != OMM_TOKEN_NONE && !omm_tokenizer_is_end(t, id)) tokenizer_speak(t, id);
    }
}

omm_err exaone_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    omm_bytes head = {0}, tail = {0};
    chat_tools *out = &t->tools;
    omm_buf_init(&out->head, TEXT_MAX);
    omm_buf_init(&out->tail, TEXT_MAX);
    speak(t);
    if (!take_all(&head, &tail, parts)) return OMM_OK; /* but for what is never run it is */
    OMM_TRY(omm_buf_append(&out->head, head.data, head.size));
    OMM_TRY(omm_buf_append(&out->tail, tail.data, tail.size));
    out->announces = out->apart = out->wrapped = out->result = true;
    out->calls = OMM_CALLS_EXAONE;
    return OMM_OK;
}
