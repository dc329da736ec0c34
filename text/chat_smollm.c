/* chat_smollm.c - the first turn that SmolLM 3's template writes in every conversation, and its tools.
 *
 *   <|im_start|>system\n## Metadata\n\nFRONT
 *   Reasoning Mode: /think|/no_think\n\n## Custom Instructions\n\nTEXT\n\n
 *   [### Tools\n\nHEAD TOOLS TAIL\n\n]<|im_end|>\n
 *
 * TEXT is what the system's first message says without its commands: /no_think and /think choose how the model reasons,
 * with /system_override the text stands alone.  Without a word of it the template has a text for each way.  An answer
 * that has no thoughts begins with an empty one, in the history too.  Results of tools are the user's turns.
 *
 * The date in FRONT is left out, as everywhere.  Some of these templates announce no tools, some forget the end of the turn
 * where there are none: the model is told what its own template tells it. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

#define IM(role) "<|im_start|>" role "\n"
#define END "<|im_end|>\n"
#define MODE "Reasoning Mode: "
#define INSTRUCTIONS "\n\n## Custom Instructions\n\n"
#define THINK "/think"
#define NO_THINK "/no_think"
#define OVERRIDE "/system_override"
#define EMPTY_THOUGHT "<think>\n\n</think>\n"

enum {
    TEXT_MAX = 8192, /* bytes of each text that is taken */
    DEPTH_MAX = 2048
};

/* ---- the template ------------------------------------------------------------------------------- */

static const char *const s_begin[] = {"Bif enable_thinking is not defined",
                                      "Bset enable_thinking=true",
                                      "Bendif",
                                      "Bif enable_thinking",
                                      ("Bset reasoning_mode='" THINK "'"),
                                      "Belse",
                                      ("Bset reasoning_mode='" NO_THINK "'"),
                                      "Bendif",
                                      ("T" IM("system")),
                                      "Bif messages[0].role=='system'",
                                      "Bset system_message=messages[0].content",
                                      ("Bif'" NO_THINK "'in system_message"),
                                      ("Bset reasoning_mode='" NO_THINK "'"),
                                      ("Belif'" THINK "'in system_message"),
                                      ("Bset reasoning_mode='" THINK "'"),
                                      "Bendif"};
#define CUSTOM "Bset custom_instructions="
static const char *const s_without[] = {
    (CUSTOM "system_message.replace('" NO_THINK "','').replace('" THINK "','').rstrip()"),
    "Bendif"};
static const char *const s_without_steps[] = {
    (CUSTOM "system_message.replace('" NO_THINK "','')"),
    (CUSTOM "custom_instructions.replace('" THINK "','')"), (CUSTOM "custom_instructions.rstrip()"),
    "Bendif"};
#define IF_OVERRIDE ("Bif'" OVERRIDE "'in system_message")
static const char *const s_override[] = {
    IF_OVERRIDE, ("Ocustom_instructions.replace('" OVERRIDE "','').rstrip()"), ("T" END), "Belse"};
static const char *const s_override_steps[] = {
    IF_OVERRIDE, ("Bset custom_instructions_x=custom_instructions.replace('" OVERRIDE "','')"),
    "Ocustom_instructions_x.rstrip()", ("T" END), "Belse"};
static const char *const s_date[] = {"Bset today=strftime_now('%d %B %Y')",
                                     "TToday Date: ", "Otoday", ("T\n" MODE)};
static const char *const s_text[] = {"Oreasoning_mode",
                                     ("T" INSTRUCTIONS),
                                     "Bif custom_instructions",
                                     "Ocustom_instructions",
                                     "T\n\n",
                                     ("Belif reasoning_mode=='" THINK "'")};
static const char *const s_turns[] = {
    "Bfor message in messages",
    "Bset content=message.content if message.content is string else''",
    "Bif message.role=='user'",
    "T<|im_start|>",
    "Omessage.role",
    "T\n",
    "Ocontent",
    ("T" END),
    "Belif message.role=='assistant'"};
static const char *const s_answer[] = {("Bif reasoning_mode=='" THINK "'"),
                                       ("T" IM("assistant")),
                                       "Ocontent.lstrip(\"\\n\")",
                                       ("T" END),
                                       "Belse",
                                       ("T" IM("assistant") EMPTY_THOUGHT),
                                       "Ocontent.lstrip(\"\\n\")",
                                       ("T" END),
                                       "Bendif"};
static const char *const s_end[] = {"Belif message.role=='tool'",
                                    ("T" IM("user")),
                                    "Ocontent",
                                    ("T" END),
                                    "Bendif",
                                    "Bendfor",
                                    "Bif add_generation_prompt",
                                    ("Bif reasoning_mode=='" THINK "'"),
                                    ("T" IM("assistant")),
                                    "Belse",
                                    ("T" IM("assistant") EMPTY_THOUGHT),
                                    "Bendif",
                                    "Bendif"};

#define TAKES(c, run) takes_run(c, run, sizeof(run) / sizeof *(run))
static bool takes_run(jinja_cursor *c, const char *const run[], size_t count) {
    const size_t taken = jinja_run(c->parts, c->at, run, count, JINJA_NO_NAME);
    c->at += taken;
    return taken > 0;
}

/* What is being read: texts are appended to what is the tokenizer's. */
typedef struct reading {
    jinja_cursor c;
    omm_err err;
    chat_reasoning *out;
    chat_tools *tools;
    const tools_form *form; /* NULL: tools are not announced */
} reading;

/* A text without marks of turns. */
static bool keep(reading *r, omm_buf *out, omm_bytes text) {
    if (text.size > TEXT_MAX || chat_find(text, "<|")) return false;
    r->err = omm_buf_append(out, text.data, text.size);
    return r->err == OMM_OK;
}

/* The next part, a text; its end, which is there, left out. */
static bool take_text(reading *r, omm_buf *out, const char *end) {
    bool is = false;
    if (!jinja_is(r->c.parts, r->c.at, JINJA_TEXT)) return false;
    const omm_bytes text = jinja_between(&is, jinja_text(r->c.parts, r->c.at), "", end);
    r->c.at++;
    return is && keep(r, out, text);
}

static bool take_front(reading *r) {
    static const char start[] = "## Metadata\n\n";
    const bool dated = JINJA_RUN(r->c.parts, r->c.at + 1, s_date, JINJA_NO_NAME) > 0;
    if (!jinja_starts_with(jinja_text(r->c.parts, r->c.at), start) ||
        !take_text(r, &r->out->front, dated ? "\n" : "\n" MODE))
        return false;
    return !dated || TAKES(&r->c, s_date);
}

/* ---- its tools ---------------------------------------------------------------------------------- */

static const tools_form s_tools = {.calls = OMM_CALLS_MARKED,
                                   .place = OMM_CHAT_BEHIND_SYSTEM,
                                   .spelling = TOOLS_AS_PYTHON,
                                   .before = "",
                                   .after = ""};
/* Where they are given as xml_tools: as whoever made the model gives them. */
static const tools_form s_functions = {.calls = OMM_CALLS_MARKED,
                                       .place = OMM_CHAT_BEHIND_SYSTEM,
                                       .spelling = TOOLS_PYTHON_FUNCTIONS,
                                       .before = "",
                                       .after = ""};

static const struct {
    const char *any, *some, *python;
    const tools_form *form;
} s_asks[] = {
    {"if xml_tools or python_tools", "if xml_tools", "if python_tools", &s_functions},
    {"if xml_tools or python_tools or tools", "if xml_tools or tools", "if python_tools", &s_tools},
    {"if xml_tools is defined or python_tools is defined", "if xml_tools is defined",
     "if python_tools is defined", &s_functions},
};
static const char *const s_alias[] = {"Bif tools", "Bset xml_tools=tools", "Bendif"};

/* The next part, a statement with one literal between the two. */
static bool take_literal(reading *r, omm_buf *out, const char *start, const char *end) {
    bool is = false;
    const size_t from = out->size;
    const omm_bytes text = jinja_between(&is, jinja_text(r->c.parts, r->c.at), start, end);
    if (!is || !jinja_is(r->c.parts, r->c.at++, JINJA_BLOCK)) return false;
    return text.size <= TEXT_MAX && jinja_put_literal(&r->err, out, text, "") &&
           !chat_find(omm_bytes_of(out->data + from, out->size - from), "<|");
}

#define NS "ns.xml_tool_string"
static bool take_list(reading *r) {
    static const char *const ends[] = {"Bendfor"};
    static const char *const said[] = {"Oxml_tool_string", "Bendif"};
    static const char *const lists[] = {"for tool in xml_tools", "for tool in xml_tools[:]"};
    static const char *const adds[] = {"set " NS "=" NS "~(tool|string)~\"\\n\"",
                                       "set " NS "=" NS "+(tool|string)+\"\\n\""};
    const jinja_parts *p = r->c.parts;
    if (!take_literal(r, &r->tools->head, "set ns=namespace(xml_tool_string=", ")") ||
        !JINJA_FITS_ONE(jinja_text(p, r->c.at), lists, JINJA_NO_NAME) ||
        !JINJA_FITS_ONE(jinja_text(p, r->c.at + 1), adds, JINJA_NO_NAME))
        return false;
    r->c.at += 2;
    return TAKES(&r->c, ends) &&
           take_literal(r, &r->tools->tail, "set xml_tool_string=" NS "+", "") &&
           TAKES(&r->c, said);
}

/* Tools that are Python's functions are never given, so what is said of them is not written. */
static void skip_python(reading *r, const char *asks) {
    if (jinja_begins(r->c.parts, r->c.at, "if") &&
        jinja_fits(jinja_text(r->c.parts, r->c.at), asks, JINJA_NO_NAME))
        r->c.at = jinja_end_of(r->c.parts, r->c.at) + 1;
}

/* False where they are announced otherwise; true, too, where they are not. */
static bool take_tools(reading *r) {
    for (size_t i = 0; i < sizeof s_asks / sizeof *s_asks; i++) {
        if (!jinja_takes(&r->c, JINJA_BLOCK, s_asks[i].any)) continue;
        r->form = s_asks[i].form;
        if (!take_text(r, &r->tools->head, "") || !jinja_takes(&r->c, JINJA_BLOCK, s_asks[i].some))
            return false;
        if (r->form == &s_tools && !TAKES(&r->c, s_alias)) return false;
        if (!take_list(r)) return false;
        skip_python(r, s_asks[i].python);
        r->out->ends = jinja_takes(&r->c, JINJA_TEXT, "\n\n");
        return (r->out->ends || jinja_takes(&r->c, JINJA_TEXT, "\n\n" END)) &&
               jinja_takes(&r->c, JINJA_BLOCK, "endif");
    }
    r->out->ends = true;
    return true;
}

/* ---- recognising -------------------------------------------------------------------------------- */

static bool take_system(reading *r) {
    jinja_cursor *c = &r->c;
    if (!TAKES(c, s_begin) || !(TAKES(c, s_without) || TAKES(c, s_without_steps))) return false;
    r->out->overrides = TAKES(c, s_override) || TAKES(c, s_override_steps);
    if (!take_front(r) || !TAKES(c, s_text) || !take_text(r, &r->out->thinking, "\n\n") ||
        !jinja_takes(c, JINJA_BLOCK, "else") || !take_text(r, &r->out->answering, "\n\n") ||
        !jinja_takes(c, JINJA_BLOCK, "endif") || !take_tools(r))
        return false;
    if (r->out->ends && !jinja_takes(c, JINJA_TEXT, END)) return false;
    return !r->out->overrides || jinja_takes(c, JINJA_BLOCK, "endif");
}

static bool take_turns(jinja_cursor *c) {
    if (!TAKES(c, s_turns)) return false;
    const bool marked = jinja_takes(c, JINJA_BLOCK, "generation");
    return TAKES(c, s_answer) && (!marked || jinja_takes(c, JINJA_BLOCK, "endgeneration")) &&
           TAKES(c, s_end) && c->at == c->parts->count;
}

omm_err smollm_recognise(omm_tokenizer *t, const jinja_parts *parts) {
    reading r = {.c = {parts, 0}, .out = &t->reasoning, .tools = &t->tools};
    omm_buf_init(&t->reasoning.front, TEXT_MAX);
    omm_buf_init(&t->reasoning.thinking, TEXT_MAX);
    omm_buf_init(&t->reasoning.answering, TEXT_MAX);
    omm_buf_init(&t->tools.head, (size_t)2 * TEXT_MAX);
    omm_buf_init(&t->tools.tail, TEXT_MAX);
    t->reasoning.is = take_system(&r) && take_turns(&r.c);
    if (t->reasoning.is && r.form) tools_take_form(t, r.form);
    if (t->reasoning.is) return OMM_OK;
    omm_buf_fini(&t->tools.head);
    omm_buf_fini(&t->tools.tail);
    return r.err == OMM_ERR_NOMEM ? r.err : OMM_OK;
}

/* ---- its first turn ----------------------------------------------------------------------------- */

bool smollm_answers_at_once(omm_bytes system, omm_chat_ending ending) {
    return ending == OMM_CHAT_AT_ONCE || chat_find(system, NO_THINK);
}

/* Append the text without `word`. */
static omm_err put_without(omm_buf *out, omm_bytes text, const char *word) {
    for (const uint8_t *at; (at = chat_find(text, word)) != NULL;) {
        const size_t size = (size_t)(at - text.data), skipped = size + strlen(word);
        OMM_TRY(omm_buf_append(out, text.data, size));
        text = omm_bytes_of(text.data + skipped, text.size - skipped);
    }
    return omm_buf_append(out, text.data, text.size);
}

/* The same at its place, and white space at the end goes. */
static omm_err take_out(omm_buf *text, const char *word, bool strips) {
    omm_buf rest;
    omm_buf_init(&rest, text->bytes_max);
    omm_err err = put_without(&rest, omm_buf_view(text), word);
    const omm_bytes left = strips ? chat_strip_end(omm_buf_view(&rest)) : omm_buf_view(&rest);
    omm_buf_clear(text);
    if (err == OMM_OK) err = omm_buf_append(text, left.data, left.size);
    omm_buf_fini(&rest);
    return err;
}

static omm_err put_instructions(omm_buf *out, omm_bytes system, bool alone) {
    OMM_TRY(omm_buf_append(out, system.data, system.size));
    OMM_TRY(take_out(out, NO_THINK, false));
    OMM_TRY(take_out(out, THINK, true));
    return alone ? take_out(out, OVERRIDE, true) : OMM_OK;
}

static omm_err put_parts(bool *ends, omm_buf *out, const omm_tokenizer *t, omm_bytes text,
                         omm_bytes tools, bool at_once) {
    const chat_reasoning *has = &t->reasoning;
    const omm_bytes front = omm_buf_view(&has->front), head = omm_buf_view(&t->tools.head),
                    tail = omm_buf_view(&t->tools.tail);
    if (text.size == 0) text = omm_buf_view(at_once ? &has->answering : &has->thinking);
    *ends = has->ends || tools.size > 0;
    OMM_TRY(omm_buf_append(out, front.data, front.size));
    OMM_TRY(omm_buf_printf(out, "\n" MODE "%s" INSTRUCTIONS, at_once ? NO_THINK : THINK));
    OMM_TRY(omm_buf_append(out, text.data, text.size));
    OMM_TRY(omm_buf_append(out, "\n\n", 2));
    if (tools.size == 0) return OMM_OK;
    OMM_TRY(omm_buf_append(out, head.data, head.size));
    OMM_TRY(omm_buf_append(out, tools.data, tools.size));
    OMM_TRY(omm_buf_append(out, tail.data, tail.size));
    return omm_buf_append(out, "\n\n", 2);
}

omm_err smollm_system(bool *ends, omm_buf *out, const omm_tokenizer *t, omm_bytes system,
                      omm_bytes tools, bool at_once) {
    omm_buf text;
    const bool alone = t->reasoning.overrides && chat_find(system, OVERRIDE);
    omm_buf_init(&text, out->bytes_max);
    *ends = true;
    omm_err err = put_instructions(&text, system, alone);
    const omm_bytes said = omm_buf_view(&text);
    if (err == OMM_OK)
        err = alone ? omm_buf_append(out, said.data, said.size)
                    : put_parts(ends, out, t, said, tools, at_once);
    omm_buf_fini(&text);
    return err;
}

/* ---- as Python prints it ------------------------------------------------------------------------ */

/* Characters that it does not print: controls, spaces but the one, marks without a shape (flags of regions have some) and
 * those of private use; what Unicode does not know yet is taken for printable. */
static bool is_shown(uint32_t c) {
    static const uint32_t hidden[][2] = {
        {0, 0x1f},          {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
        {0x8e2, 0x8e2},     {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},
        {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},   {0xe000, 0xf8ff},
        {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
        {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe0001},
        {0xe0020, 0xe007f}, {0xf0000, 0x10ffff}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1]) return false;
    return true;
}

static omm_err put_character(omm_buf *out, omm_bytes bytes, uint32_t c, char quote) {
    if (c == '\\' || c == (uint32_t)quote) return omm_buf_printf(out, "\\%c", (int)c);
    if (c == '\n' || c == '\r' || c == '\t')
        return omm_buf_printf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    if (is_shown(c)) return omm_buf_append(out, bytes.data, bytes.size);
    return omm_buf_printf(out,
                          c < 0x100     ? "\\x%02x"
                          : c < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                          (unsigned)c);
}

/* UTF-8, as JSON's texts are. */
static omm_err put_string(omm_buf *out, omm_bytes text) {
    const char quote = chat_find(text, "'") && !chat_find(text, "\"") ? '"' : '\'';
    OMM_TRY(omm_buf_printf(out, "%c", quote));
    for (size_t at = 0; at < text.size;) {
        const uint8_t first = text.data[at];
        const size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        uint32_t c = size == 1 ? first : first & (0x7fu >> size);
        for (size_t i = 1; i < size && at + i < text.size; i++)
            c = c << 6 | (text.data[at + i] & 0x3fu);
        OMM_TRY(put_character(out, omm_bytes_of(text.data + at, size), c, quote));
        at += size;
    }
    return omm_buf_printf(out, "%c", quote);
}

static omm_err put_value(omm_buf *out, json_t *value, unsigned depth);

static omm_err put_list(omm_buf *out, const json_t *list, unsigned depth) {
    OMM_TRY(omm_buf_printf(out, "["));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i > 0) OMM_TRY(omm_buf_printf(out, ", "));
        OMM_TRY(put_value(out, json_array_get(list, i), depth));
    }
    return omm_buf_printf(out, "]");
}

static omm_err put_object(omm_buf *out, json_t *object, unsigned depth) {
    const char *key = NULL;
    json_t *value = NULL;
    bool first = true;
    OMM_TRY(omm_buf_printf(out, "{"));
    json_object_foreach(object, key, value) {
        if (!first) OMM_TRY(omm_buf_printf(out, ", "));
        first = false;
        OMM_TRY(put_string(out, omm_bytes_str(key)));
        OMM_TRY(omm_buf_printf(out, ": "));
        OMM_TRY(put_value(out, value, depth));
    }
    return omm_buf_printf(out, "}");
}

static omm_err put_value(omm_buf *out, json_t *value, unsigned depth) {
    if (depth > DEPTH_MAX) return omm_raise(OMM_ERR_FORMAT, "JSON: nested too deep");
    switch (json_typeof(value)) {
    case JSON_OBJECT: return put_object(out, value, depth + 1);
    case JSON_ARRAY: return put_list(out, value, depth + 1);
    case JSON_STRING:
        return put_string(out, omm_bytes_of(json_string_value(value), json_string_length(value)));
    case JSON_TRUE: return omm_buf_printf(out, "True");
    case JSON_FALSE: return omm_buf_printf(out, "False");
    case JSON_NULL: return omm_buf_printf(out, "None");
    default: return omm_json_write_spaced(out, value); /* a number */
    }
}

omm_err smollm_put_python(omm_buf *out, json_t *value) {
    return put_value(out, value, 0);
}
