/* tools.c - checks what the model asks for, does it, and says how it went. */
#include "tools.h"

#include "omm/calculator.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

static const omm_chat_tool s_tools[TOOL_COUNT] = {[TOOL_CALCULATOR] = {"calculator", "expression"},
                                                  [TOOL_NOTE_SAVE] = {"note_save", "text"},
                                                  [TOOL_NOTE_FIND] = {"note_find", "query"},
                                                  [TOOL_SEARCH_DOCS] = {"search_docs", "query"}};

static const char *const s_purposes[TOOL_COUNT] = {
    [TOOL_CALCULATOR] = "Work out an expression exactly: numbers, + - * / ^ and parentheses.",
    [TOOL_NOTE_SAVE] = "Keep a text that the user wants to have kept.",
    [TOOL_NOTE_FIND] = "Find texts that were kept before, by words that they have.",
    [TOOL_SEARCH_DOCS] = "Find passages in the user's documents, by words that they have."};

static bool exists(const tool_set *set, tool_kind kind) {
    if (kind == TOOL_CALCULATOR) return true;
    return kind == TOOL_SEARCH_DOCS ? set->docs != NULL : set->notes != NULL;
}

size_t tools_list(omm_chat_tool out[TOOL_COUNT], const tool_set *set) {
    size_t count = 0;
    for (unsigned i = 0; i < TOOL_COUNT; i++)
        if (exists(set, (tool_kind)i)) out[count++] = s_tools[i];
    return count;
}

static json_t *function_of(tool_kind kind) {
    const omm_chat_tool *t = &s_tools[kind];
    return json_pack("{s:s, s:s, s:{s:s, s:{s:{s:s}}, s:[s]}}", "name", t->name, "description",
                     s_purposes[kind], "parameters", "type", "object", "properties", t->arguments,
                     "type", "string", "required", t->arguments);
}

omm_err tools_functions(json_t **out, const tool_set *set) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (unsigned i = 0; i < TOOL_COUNT && ok; i++)
        if (exists(set, (tool_kind)i))
            ok = json_array_append_new(list, function_of((tool_kind)i)) == 0;
    if (ok) {
        *out = list;
        return OMM_OK;
    }
    json_decref(list);
    return omm_raise(OMM_ERR_NOMEM, "no memory for tools");
}

omm_err tools_check(tool_kind *kind, const char **argument, const tool_set *set,
                    const omm_tool_call *call) {
    unsigned i = 0;
    while (i < TOOL_COUNT && strcmp(s_tools[i].name, call->name) != 0) i++;
    if (i == TOOL_COUNT || !exists(set, (tool_kind)i))
        return omm_raise(OMM_ERR_FORMAT, "there is no tool %s", call->name);
    const json_t *value = json_object_get(call->arguments, s_tools[i].arguments);
    if (json_object_size(call->arguments) != 1 || !json_is_string(value))
        return omm_raise(OMM_ERR_FORMAT, "%s takes one text, %s", call->name, s_tools[i].arguments);
    *kind = (tool_kind)i;
    *argument = json_string_value(value);
    return OMM_OK;
}

omm_err tools_fail(tool_result *result) {
    omm_buf_clear(&result->text);
    result->failed = true;
    result->nothing = false;
    result->source_count = 0;
    const char *sentence = omm_err_sentence();
    OMM_TRY(omm_buf_printf(&result->text, "error: "));
    OMM_TRY(omm_text_clean(&result->text, omm_bytes_str(sentence)));
    result->model_size = result->text.size;
    return OMM_OK;
}

/* ---- Searches ------------------------------------------------------------------------------ */

/* What was found, so far: put into the result when it is known whether there is more than one. */
typedef struct finding {
    tool_result *result;
    omm_buf first;
    size_t count;
    size_t bytes_max;
} finding;

/* One result is given bare, as most were in training; several are numbered. */
static omm_err put_found(finding *f, omm_bytes text) {
    omm_buf *out = &f->result->text;
    if (f->count == 0) {
        OMM_TRY(omm_buf_append(&f->first, text.data, text.size));
    } else {
        if (f->count == 1) {
            OMM_TRY(omm_buf_printf(out, "[1] "));
            OMM_TRY(omm_buf_append(out, f->first.data, f->first.size));
        }
        OMM_TRY(omm_buf_printf(out, "\n[%zu] ", f->count + 1));
        OMM_TRY(omm_buf_append(out, text.data, text.size));
    }
    f->count++;
    return OMM_OK;
}

static bool has_room(const finding *f, omm_bytes text) {
    return f->count == 0 || f->first.size + f->result->text.size + text.size <= f->bytes_max;
}

static omm_err take_note(void *ud, int64_t id, omm_bytes text) {
    (void)id;
    return has_room(ud, text) ? put_found(ud, text) : OMM_OK;
}

static omm_err take_passage(void *ud, const omm_passage *passage) {
    finding *f = ud;
    tool_result *r = f->result;
    if (!has_room(f, passage->text) || r->source_count == TOOL_SOURCES_MAX) return OMM_OK;
    OMM_TRY(omm_path_join(r->sources[r->source_count].file, ".", passage->file));
    memmove(r->sources[r->source_count].file, r->sources[r->source_count].file + 2,
            strlen(r->sources[r->source_count].file + 2) + 1); /* without "./" */
    r->sources[r->source_count].number = passage->number;
    OMM_TRY(put_found(f, passage->text));
    r->source_count++;
    return OMM_OK;
}

static omm_err finish_search(finding *f, const char *nothing) {
    f->result->nothing = f->count == 0;
    if (f->count == 0) return omm_buf_printf(&f->result->text, "%s", nothing);
    if (f->count > 1) return OMM_OK;
    return omm_buf_append(&f->result->text, f->first.data, f->first.size);
}

static omm_err search(tool_result *result, const tool_set *set, tool_kind kind, omm_bytes query) {
    finding f = {.result = result, .bytes_max = set->bytes_max};
    omm_err err;
    omm_buf_init(&f.first, OMM_NOTE_BYTES_MAX + OMM_PASSAGE_BYTES_MAX);
    if (kind == TOOL_NOTE_FIND)
        err = omm_notes_find(set->notes, query, set->notes_max, take_note, &f);
    else
        err = omm_docs_search(set->docs, query, set->passages_max, take_passage, &f);
    if (err == OMM_OK)
        err = finish_search(&f, kind == TOOL_NOTE_FIND ? "no notes found" : "no results");
    omm_buf_fini(&f.first);
    return err;
}

/* ---- All four ------------------------------------------------------------------------------ */

static omm_err save_note(tool_result *result, const tool_set *set, omm_bytes text) {
    int64_t id = 0;
    bool is_new = false;
    OMM_TRY(omm_notes_save(&id, &is_new, set->notes, text, set->now_ms));
    return omm_buf_printf(&result->text, "saved");
}

/* The model was taught bare numbers: what stands in parentheses would confuse it. */
static omm_err calculate(tool_result *result, omm_bytes expression) {
    OMM_TRY(omm_calculate(&result->text, expression));
    const uint8_t *space = memchr(result->text.data, ' ', result->text.size);
    if (space) result->model_size = (size_t)(space - result->text.data);
    return OMM_OK;
}

static omm_err run(tool_result *result, const tool_set *set, tool_kind kind, omm_bytes argument) {
    switch (kind) {
    case TOOL_CALCULATOR: return calculate(result, argument);
    case TOOL_NOTE_SAVE: return save_note(result, set, argument);
    case TOOL_NOTE_FIND:
    case TOOL_SEARCH_DOCS: return search(result, set, kind, argument);
    case TOOL_COUNT: break;
    }
    OMM_ASSERT(false);
    return OMM_OK;
}

omm_err tools_run(tool_result *result, const tool_set *set, tool_kind kind, const char *argument) {
    omm_buf_clear(&result->text);
    result->failed = false;
    result->nothing = false;
    result->source_count = 0;
    result->model_size = SIZE_MAX;
    omm_err err = run(result, set, kind, omm_bytes_str(argument));
    if (result->model_size > result->text.size) result->model_size = result->text.size;
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return tools_fail(result);
}
