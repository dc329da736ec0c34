/* grammar_calls.c - tools to rules: a call is one of as many objects as there are tools, {"name": NAME, "arguments": ...}. */
#include "grammar_internal.h"

_Static_assert(OMM_GRAMMAR_TOOLS_MAX <= GRAMMAR_THREADS_MAX, "they are followed side by side");
_Static_assert(OMM_CHAT_CALLS_MAX <= UINT8_MAX, "they are counted in a byte");

static omm_err add_name(uint32_t *out, omm_grammar *g, const omm_grammar_tool *tools,
                        size_t count) {
    rule made = {.kind = RULE_TEXTS, .rest = RULE_NONE, .count = (uint32_t)count};
    OMM_TRY(grammar_add_texts(&made.first, g, count));
    for (size_t i = 0; i < count; i++) {
        literal *text = &g->texts[made.first + i];
        *text = (literal){.at = (uint32_t)g->bytes.size};
        OMM_TRY(omm_buf_printf(&g->bytes, "\"%s\"", tools[i].name));
        text->size = (uint32_t)g->bytes.size - text->at;
    }
    grammar_sort_texts(g, made.first, &made.count);
    return grammar_add_rule(out, g, &made);
}

/* {"name": one of those, "arguments": ...}, in this order. */
static omm_err add_call(uint32_t *out, omm_grammar *g, const omm_grammar_tool *tools, size_t count,
                        uint32_t arguments) {
    static const char *const keys[] = {"name\"", "arguments\""};
    rule made = {.kind = RULE_OBJECT, .rest = RULE_NONE, .max = RULE_NONE, .count = 2};
    uint32_t values[2] = {0, arguments};
    OMM_TRY(add_name(&values[0], g, tools, count));
    OMM_TRY(grammar_add_members(&made.first, g, 2));
    OMM_TRY(grammar_add_texts(&made.names, g, 2));
    for (uint32_t i = 0; i < 2; i++) {
        const size_t size = strlen(keys[i]);
        g->members[made.first + i] = (member){.rule = values[i], .required = true};
        g->texts[made.names + i] =
            (literal){.at = (uint32_t)g->bytes.size, .size = (uint32_t)size, .member = i};
        OMM_TRY(omm_buf_append(&g->bytes, keys[i], size));
    }
    uint32_t names = 2;
    grammar_sort_texts(g, made.names, &names);
    return grammar_add_rule(out, g, &made);
}

static omm_err add_tool(uint32_t *out, omm_grammar *g, const omm_grammar_tool *tool) {
    uint32_t arguments = 0;
    if (tool->parameters)
        OMM_TRY(grammar_add_arguments(&arguments, g, tool->name, tool->parameters, tool->strict));
    else
        OMM_TRY(grammar_any_object(&arguments, g));
    return add_call(out, g, tool, 1, arguments);
}

/* Their names alone: more alternatives are not followed. */
static omm_err add_many(uint32_t *out, omm_grammar *g, const omm_grammar_calls *calls) {
    uint32_t arguments = 0;
    for (size_t i = 0; i < calls->tool_count; i++)
        if (calls->tools[i].strict)
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%s: strict, of more than %u tools, is not supported",
                             calls->tools[i].name, OMM_GRAMMAR_TOOLS_MAX);
    OMM_TRY(grammar_any_object(&arguments, g));
    return add_call(out, g, calls->tools, calls->tool_count, arguments);
}

static omm_err add_calls(omm_grammar *g, const omm_grammar_calls *calls) {
    rule root = {.kind = RULE_CHOICE, .rest = RULE_NONE, .count = (uint32_t)calls->tool_count};
    const bool many = calls->tool_count > OMM_GRAMMAR_TOOLS_MAX;
    if (many) root.count = 1;
    OMM_TRY(grammar_add_parts(&root.first, g, root.count));
    for (uint32_t i = 0; i < root.count; i++) {
        uint32_t made = 0;
        OMM_TRY(many ? add_many(&made, g, calls) : add_tool(&made, g, &calls->tools[i]));
        g->parts[root.first + i] = made;
    }
    return grammar_add_rule(&g->root, g, &root);
}

/* Of a tool that is strict no call may be impossible; of another one that is so, none is made. */
static omm_err check_heights(const omm_grammar *g, const omm_grammar_calls *calls) {
    const rule *root = &g->rules[g->root];
    for (uint32_t i = 0; i < root->count && calls->tool_count <= OMM_GRAMMAR_TOOLS_MAX; i++)
        if (calls->tools[i].strict && g->rules[g->parts[root->first + i]].height == RULE_NONE)
            return omm_raise(OMM_ERR_UNSUPPORTED, "%s.parameters: no arguments fulfil it that end",
                             calls->tools[i].name);
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

static omm_err make_calls(omm_grammar *g, const omm_grammar_calls *calls) {
    g->calls = (calls_form){.max = (uint8_t)calls->calls_max,
                            .thinking = calls->thinking,
                            .stop_count = calls->stop_count};
    for (size_t i = 0; i < calls->stop_count; i++) g->calls.stops[i] = calls->stops[i];
    OMM_TRY(add_calls(g, calls));
    OMM_TRY(grammar_finish(g));
    OMM_TRY(check_heights(g, calls));
    g->calls.begun_at = (uint32_t)g->bytes.size;
    if (calls->begun.size > 0)
        OMM_TRY(omm_buf_append(&g->bytes, calls->begun.data, calls->begun.size));
    g->calls.begun_size = (uint32_t)calls->begun.size;
    return check_begun(g);
}

omm_err omm_grammar_open_calls(omm_grammar **out, const omm_grammar_calls *calls) {
    omm_grammar *g = NULL;
    OMM_ASSERT(calls->tool_count > 0);
    OMM_ASSERT(calls->calls_max >= 1 && calls->calls_max <= OMM_CHAT_CALLS_MAX);
    OMM_ASSERT(calls->stop_count <= GRAMMAR_STOPS_MAX);
    OMM_TRY(grammar_open(&g));
    const omm_err err = make_calls(g, calls);
    if (err != OMM_OK) {
        omm_grammar_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}
