/* grammar_calls.c - tools to rules: a call is one of as many objects as there are tools, {"name": NAME, "arguments": ...}, or
 * bare {"name": NAME, "parameters": ...}, in front of which "type": "function" may stand. */
#include "grammar_internal.h"

_Static_assert(OMM_CHAT_CALLS_MAX <= UINT8_MAX, "they are counted in a byte");
_Static_assert(OMM_GRAMMAR_TOOLS_MAX <= UINT8_MAX, "crowd.alive has the number of one");

/* How much of the parameters is kept to: a list of tools that makes no grammar so is tried with less. */
typedef enum how_much {
    ALL,
    ALL_THAT_COMPILE, /* arguments of tools whose parameters make no grammar are any object */
    STRICT_ALONE,     /* those of all that are not strict */
    HOW_MUCH_COUNT,
} how_much;

/* One of all names.  Of the texts the member is the tool's number. */
static omm_err add_names(uint32_t *out, omm_grammar *g, const omm_grammar_calls *calls) {
    rule made = {.kind = RULE_TEXTS,
                 .switches = true,
                 .rest = RULE_NONE,
                 .count = (uint32_t)calls->tool_count};
    OMM_TRY(grammar_add_texts(&made.first, g, made.count));
    for (uint32_t i = 0; i < made.count; i++) {
        literal *text = &g->texts[made.first + i];
        *text = (literal){.at = (uint32_t)g->bytes.size, .member = i};
        OMM_TRY(omm_buf_printf(&g->bytes, "\"%s\"", calls->tools[i].name));
        text->size = (uint32_t)g->bytes.size - text->at;
    }
    grammar_sort_texts(g, made.first, &made.count);
    return grammar_add_rule(out, g, &made);
}

/* {"name": one of those, "arguments": ...}, in this order; bare ones may have a type in front. */
static omm_err add_call(uint32_t *out, omm_grammar *g, bool bare, uint32_t type, uint32_t names,
                        uint32_t arguments) {
    const char *const keys[3] = {"type\"", "name\"", bare ? "parameters\"" : "arguments\""};
    const uint32_t values[3] = {type, names, arguments}, skipped = bare ? 0 : 1;
    rule made = {.kind = RULE_OBJECT, .rest = RULE_NONE, .max = RULE_NONE, .count = 3 - skipped};
    OMM_TRY(grammar_add_members(&made.first, g, made.count));
    OMM_TRY(grammar_add_texts(&made.names, g, made.count));
    for (uint32_t i = skipped; i < 3; i++) {
        const uint32_t at = i - skipped, size = (uint32_t)strlen(keys[i]);
        g->members[made.first + at] = (member){.rule = values[i], .required = i > 0};
        g->texts[made.names + at] =
            (literal){.at = (uint32_t)g->bytes.size, .size = size, .member = at};
        OMM_TRY(omm_buf_append(&g->bytes, keys[i], size));
    }
    uint32_t count = made.count;
    grammar_sort_texts(g, made.names, &count);
    return grammar_add_rule(out, g, &made);
}

static omm_err add_arguments(uint32_t *out, omm_grammar *g, const omm_grammar_tool *tool) {
    return grammar_add_arguments(out, g, tool->name, tool->parameters, tool->strict);
}

/* In a grammar of its own, in which strings have no patterns: of a tool that is not strict they decide nothing, and each
 * tool would have the work of all.  What is looked at counts for all. */
static omm_err try_arguments(looks *l, const omm_grammar_tool *tool) {
    omm_grammar *g = NULL;
    OMM_TRY(grammar_open(&g));
    g->patterns.work = g->patterns.work_max = PATTERN_WORK_MAX;
    g->looks = *l;
    omm_err err = add_arguments(&g->root, g, tool);
    if (err == OMM_OK) err = grammar_finish_root(g);
    *l = g->looks;
    omm_grammar_close(g);
    return err;
}

static omm_err is_followed(bool *out, omm_grammar *g, const omm_grammar_tool *tool, how_much much) {
    *out = tool->parameters && (tool->strict || much == ALL);
    if (*out || !tool->parameters || much == STRICT_ALONE) return OMM_OK;
    const omm_err err = try_arguments(&g->looks, tool);
    *out = err == OMM_OK;
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

static omm_err add_tool(uint32_t *out, omm_grammar *g, const omm_grammar_tool *tool,
                        how_much much) {
    bool followed = false;
    OMM_TRY(is_followed(&followed, g, tool, much));
    return followed ? add_arguments(out, g, tool) : grammar_any_object(out, g);
}

/* Every call begins as the first one does; behind a tool's name it goes on as that tool's. */
static omm_err add_form(uint32_t *made, uint32_t *names, omm_grammar *g,
                        const omm_grammar_calls *calls, bool bare, const uint32_t *arguments) {
    static const char *const types[] = {"\"function\""};
    uint32_t type = RULE_NONE;
    OMM_TRY(add_names(names, g, calls));
    if (bare) OMM_TRY(grammar_add_literals(&type, g, types, 1));
    for (size_t i = 0; i < calls->tool_count; i++)
        OMM_TRY(add_call(&made[i], g, bare, type, *names, arguments[i]));
    const rule *r = &g->rules[*names];
    for (uint32_t i = r->first; i < r->first + r->count; i++)
        g->texts[i].member = made[g->texts[i].member];
    return OMM_OK;
}

static omm_err add_calls(uint32_t *made, omm_grammar *g, const omm_grammar_calls *calls,
                         how_much much) {
    uint32_t arguments[OMM_GRAMMAR_TOOLS_MAX], bare[OMM_GRAMMAR_TOOLS_MAX], bare_names = 0;
    for (size_t i = 0; i < calls->tool_count; i++)
        OMM_TRY(add_tool(&arguments[i], g, &calls->tools[i], much));
    OMM_TRY(add_form(made, &g->calls.names, g, calls, false, arguments));
    g->root = made[0];
    if (!g->calls.bare) return OMM_OK;
    g->calls.bare_first = g->rule_count;
    OMM_TRY(add_form(bare, &bare_names, g, calls, true, arguments));
    g->calls.bare_root = bare[0];
    g->calls.bare_end = g->rule_count;
    return OMM_OK;
}

static omm_err add_content(omm_grammar *g, const omm_grammar_calls *calls) {
    if (!calls->content) return OMM_OK;
    g->calls.held = true;
    return grammar_add_schema(&g->calls.content, g, calls->content);
}

/* Of no tool a call may be impossible. */
static omm_err check_heights(const omm_grammar *g, const omm_grammar_calls *calls,
                             const uint32_t *made) {
    for (size_t i = 0; i < calls->tool_count; i++)
        if (g->rules[made[i]].height == RULE_NONE)
            return omm_raise(OMM_ERR_UNSUPPORTED, "%s.parameters: no arguments fulfil it that end",
                             calls->tools[i].name);
    if (g->calls.held && g->rules[g->calls.content].height == RULE_NONE)
        return omm_raise(OMM_ERR_UNSUPPORTED, "#: no text fulfils it that ends");
    return OMM_OK;
}

static omm_err check_begun(const omm_grammar *g) {
    const omm_bytes begun = grammar_begun(g);
    frames f = {.count = 0};
    crowd now, next;
    text_begin(&now, g, false);
    for (size_t i = 0; i < begun.size; i++) {
        text_step(&next, &f, g, &now, begun.data[i]);
        if (!text_goes_on(&next))
            return omm_raise(OMM_ERR_UNSUPPORTED, "no text with calls begins with %.*s",
                             (int)(i + 1), (const char *)begun.data);
        match_compact(&next, &f);
        now = next;
    }
    return OMM_OK;
}

static omm_err make_calls(omm_grammar *g, const omm_grammar_calls *calls, how_much much) {
    uint32_t made[OMM_GRAMMAR_TOOLS_MAX];
    g->calls = (calls_form){.max = (uint8_t)calls->calls_max,
                            .form = calls->form,
                            .bare = calls->form == OMM_CALLS_BARE,
                            .thinking = calls->thinking,
                            .stop_count = calls->stop_count};
    for (size_t i = 0; i < calls->stop_count; i++) g->calls.stops[i] = calls->stops[i];
    OMM_TRY(add_calls(made, g, calls, much));
    OMM_TRY(add_content(g, calls));
    OMM_TRY(grammar_finish(g));
    OMM_TRY(check_heights(g, calls, made));
    g->calls.begun_at = (uint32_t)g->bytes.size;
    if (calls->begun.size > 0)
        OMM_TRY(omm_buf_append(&g->bytes, calls->begun.data, calls->begun.size));
    g->calls.begun_size = (uint32_t)calls->begun.size;
    return check_begun(g);
}

/* By all tries of one list. */
typedef struct expense {
    uint32_t work, looks; /* on patterns; lenient_members */
} expense;

/* Two full ones together, and no more. */
static uint32_t up_to(uint32_t full, uint32_t spent) {
    return full + (spent < full ? spent : full);
}

static omm_err open_calls(omm_grammar **out, const omm_grammar_calls *calls, how_much much,
                          expense *spent) {
    omm_grammar *g = NULL;
    OMM_TRY(grammar_open(&g));
    g->patterns.work = spent->work;
    g->patterns.work_max = up_to(PATTERN_WORK_MAX, spent->work);
    g->looks = (looks){spent->looks, up_to(LOOKS_MAX, spent->looks)};
    const omm_err err = make_calls(g, calls, much);
    *spent = (expense){g->patterns.work, g->looks.count};
    if (err != OMM_OK) {
        omm_grammar_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}

omm_err omm_grammar_open_calls(omm_grammar **out, const omm_grammar_calls *calls) {
    omm_err err = OMM_ERR_UNSUPPORTED;
    expense spent = {0};
    OMM_ASSERT(calls->tool_count >= 1 && calls->tool_count <= OMM_GRAMMAR_TOOLS_MAX);
    OMM_ASSERT(calls->calls_max >= 1 && calls->calls_max <= OMM_CHAT_CALLS_MAX);
    OMM_ASSERT(calls->stop_count <= GRAMMAR_STOPS_MAX);
    OMM_ASSERT(calls->form != OMM_CALLS_BARE || calls->thinking == OMM_THINKING_NONE);
    OMM_ASSERT(!calls->content || (calls->begun.size == 0 && calls->thinking == OMM_THINKING_NONE));
    for (int much = ALL; much < HOW_MUCH_COUNT; much++) {
        err = open_calls(out, calls, (how_much)much, &spent);
        if (err != OMM_ERR_UNSUPPORTED && err != OMM_ERR_TOO_BIG) break;
    }
    return err;
}

bool omm_grammar_has_tool(const void *grammar, omm_bytes name, bool whole) {
    const omm_grammar *g = (const omm_grammar *)grammar;
    if (g->calls.max == 0) return false;
    const rule *r = &g->rules[g->calls.names];
    for (uint32_t i = r->first; i < r->first + r->count; i++) {
        const literal *text = &g->texts[i]; /* with its quotes */
        const size_t size = text->size - 2;
        if ((whole ? name.size == size : name.size <= size) &&
            (name.size == 0 || memcmp(name.data, g->bytes.data + text->at + 1, name.size) == 0))
            return true;
    }
    return false;
}
