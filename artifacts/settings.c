/* settings.c - see settings.h. */
#include "settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 16u
#define PATH_SIZE 256u
#define LINES_MAX 4096u

typedef struct level {
    size_t column, path_size; /* of the line that opened it; of the path up to here */
    size_t items;             /* list items in it so far */
} level;

typedef struct parser {
    omm_arena *arena;
    settings *out;
    level levels[DEPTH_MAX + 1]; /* levels[0]: the document */
    size_t depth;
    char path[PATH_SIZE];
    size_t line;
} parser;

static omm_err bad(const parser *p, const char *what) {
    return omm_raise(OMM_ERR_FORMAT, "line %zu of the settings: %s", p->line, what);
}

/* Back to the level that a line at this column belongs to. */
static void close_levels(parser *p, size_t column) {
    while (p->depth > 0 && p->levels[p->depth].column >= column) p->depth--;
    p->path[p->levels[p->depth].path_size] = '\0';
}

/* The path of the level at hand, and this behind it. */
static omm_err extend(parser *p, const char *between, const char *text) {
    const size_t at = p->levels[p->depth].path_size;
    const int size = snprintf(p->path + at, sizeof p->path - at, "%s%s", between, text);
    if (size < 0 || (size_t)size >= sizeof p->path - at) return bad(p, "its path is too long");
    return OMM_OK;
}

static omm_err open_level(parser *p, size_t column) {
    if (p->depth == DEPTH_MAX) return bad(p, "nested too deep");
    p->levels[++p->depth] = (level){column, strlen(p->path), 0};
    return OMM_OK;
}

static omm_err put(parser *p, const char *value) {
    setting *s = &p->out->items[p->out->count];
    s->path = omm_arena_strdup(p->arena, p->path);
    s->value = omm_arena_strdup(p->arena, value);
    if (!s->path || !s->value) return omm_raise(OMM_ERR_NOMEM, "no memory for settings");
    p->out->count++;
    return OMM_OK;
}

/* "key: value" or "key:" at this column. */
static omm_err take_key(parser *p, char *text, size_t column) {
    char *colon = strchr(text, ':');
    if (!colon || colon == text) return bad(p, "neither a key nor an item");
    *colon = '\0';
    close_levels(p, column);
    OMM_TRY(extend(p, p->depth ? "." : "", text));
    if (colon[1] == '\0') return open_level(p, column);
    return put(p, colon + 1 + (colon[1] == ' '));
}

static omm_err take_line(parser *p, char *text) {
    size_t column = 0;
    while (text[column] == ' ') column++;
    char *body = text + column;
    if (body[0] != '-' || body[1] != ' ') return take_key(p, body, column);
    /* An item stands below the key of its list; what is in it two columns further. */
    close_levels(p, column);
    char index[32];
    snprintf(index, sizeof index, "[%zu]", p->levels[p->depth].items++);
    OMM_TRY(extend(p, "", index));
    OMM_TRY(open_level(p, column));
    const bool is_map = body[2] != '"' && body[2] != '[' && strchr(body, ':');
    return is_map ? take_key(p, body + 2, column + 2) : put(p, body + 2);
}

omm_err settings_parse(settings *out, omm_arena *arena, omm_bytes text) {
    parser p = {.arena = arena, .out = out};
    size_t lines = 1;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '\0') return omm_raise(OMM_ERR_FORMAT, "settings with a zero byte");
        lines += text.data[i] == '\n';
    }
    if (lines > LINES_MAX) return omm_raise(OMM_ERR_FORMAT, "settings of %zu lines", lines);
    *out = (settings){omm_arena_alloc(arena, lines, sizeof *out->items), 0};
    char *copy = omm_arena_alloc(arena, text.size + 1, 1);
    if (!out->items || !copy) return omm_raise(OMM_ERR_NOMEM, "no memory for settings");
    if (text.size) memcpy(copy, text.data, text.size);
    for (char *line = copy, *end; line < copy + text.size; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) end = copy + text.size;
        *end = '\0';
        p.line++;
        if (*line) OMM_TRY(take_line(&p, line));
    }
    return OMM_OK;
}

const char *settings_value(const settings *s, const char *path) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->items[i].path, path) == 0) return s->items[i].value;
    return NULL;
}
