/* jinja_shape.c - see jinja_shape.h. */
#include "jinja_shape.h"

#include "chat_internal.h"

#include <string.h>

/* ---- texts ----------------------------------------------------------------------------------- */

bool jinja_starts_with(omm_bytes text, const char *start) {
    const size_t size = strlen(start);
    return text.size >= size && memcmp(text.data, start, size) == 0;
}

bool jinja_ends_with(omm_bytes text, const char *end) {
    const size_t size = strlen(end);
    return text.size >= size && memcmp(text.data + text.size - size, end, size) == 0;
}

omm_bytes jinja_between(bool *found, omm_bytes text, const char *start, const char *end) {
    const size_t outer = strlen(start) + strlen(end);
    *found = text.size >= outer && jinja_starts_with(text, start) && jinja_ends_with(text, end);
    return *found ? omm_bytes_of(text.data + strlen(start), text.size - outer) : omm_bytes_str("");
}

bool jinja_fits(omm_bytes text, const char *form, omm_bytes name) {
    for (; *form; form++) {
        const omm_bytes next = *form == '$' ? name : omm_bytes_of(form, 1);
        if (text.size < next.size || memcmp(text.data, next.data, next.size) != 0) return false;
        text = omm_bytes_of(text.data + next.size, text.size - next.size);
    }
    return text.size == 0;
}

bool jinja_fits_one(omm_bytes text, const char *const forms[], size_t count, omm_bytes name) {
    for (size_t i = 0; i < count; i++)
        if (jinja_fits(text, forms[i], name)) return true;
    return false;
}

omm_bytes jinja_name_between(omm_bytes text, const char *start, const char *end) {
    static const char *const taken[] = {"loop", "messages", "tools", "content"};
    bool found = false;
    const omm_bytes name = jinja_between(&found, text, start, end);
    for (size_t i = 0; i < name.size; i++)
        if (!jinja_is_word(name.data[i])) return JINJA_NO_NAME;
    return JINJA_FITS_ONE(name, taken, JINJA_NO_NAME) ? JINJA_NO_NAME : name;
}

/* Append what a literal says whose quotes are gone; false: it has another escape, or ends before. */
static bool put_unescaped(omm_err *err, omm_buf *out, omm_bytes text, char quote) {
    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (c == (uint8_t)quote) return false;
        if (c == '\\') {
            if (++i == text.size || !text.data[i] || !strchr("n'\"\\", text.data[i])) return false;
            c = text.data[i];
            if (c == 'n') c = '\n';
        }
        *err = omm_buf_append(out, &c, 1);
        if (*err != OMM_OK) return false;
    }
    return true;
}

bool jinja_put_literal(omm_err *err, omm_buf *out, omm_bytes text, const char *start) {
    const size_t size = strlen(start);
    if (!jinja_starts_with(text, start) || text.size < size + 2) return false;
    const char quote = (char)text.data[size];
    if ((quote != '\'' && quote != '"') || (char)text.data[text.size - 1] != quote) return false;
    return put_unescaped(err, out, omm_bytes_of(text.data + size + 1, text.size - size - 2), quote);
}

/* ---- parts ----------------------------------------------------------------------------------- */

bool jinja_take(jinja_cursor *c, jinja_kind kind, const char *form, omm_bytes name) {
    const bool is =
        jinja_is(c->parts, c->at, kind) && jinja_fits(jinja_text(c->parts, c->at), form, name);
    c->at += is;
    return is;
}

static jinja_kind kind_of(char letter) {
    return letter == 'T' ? JINJA_TEXT : letter == 'O' ? JINJA_OUTPUT : JINJA_BLOCK;
}

size_t jinja_run(const jinja_parts *p, size_t at, const char *const run[], size_t count,
                 omm_bytes name) {
    jinja_cursor c = {p, at};
    for (size_t i = 0; i < count; i++)
        if (!jinja_take(&c, kind_of(run[i][0]), run[i] + 1, name)) return 0;
    return count;
}

bool jinja_begins(const jinja_parts *p, size_t at, const char *word) {
    return jinja_is(p, at, JINJA_BLOCK) && jinja_starts_with(jinja_text(p, at), word);
}

int jinja_step(const jinja_parts *p, size_t at) {
    return (jinja_begins(p, at, "if") || jinja_begins(p, at, "for")) -
           (jinja_begins(p, at, "endif") || jinja_begins(p, at, "endfor"));
}

size_t jinja_next_branch(const jinja_parts *p, size_t at) {
    int depth = 1;
    for (at++; at < p->count; at++) {
        if (depth == 1 && (jinja_begins(p, at, "elif") || jinja_begins(p, at, "else"))) return at;
        depth += jinja_step(p, at);
        if (depth == 0) return at;
    }
    return p->count;
}

size_t jinja_end_of(const jinja_parts *p, size_t at) {
    do at = jinja_next_branch(p, at);
    while (at < p->count && jinja_step(p, at) == 0);
    return at;
}

omm_bytes jinja_condition(const jinja_parts *p, size_t at) {
    const size_t size = jinja_begins(p, at, "if") ? 2 : jinja_begins(p, at, "elif") ? 4 : 0;
    const omm_bytes text = jinja_text(p, at);
    return size ? chat_trim(omm_bytes_of(text.data + size, text.size - size)) : omm_bytes_str("");
}

/* {% set %} of what conditions ask about, or of several at once. */
static bool sets_known(omm_bytes set) {
    static const char *const known[] = {"set messages", "set tools"};
    const uint8_t *end = chat_find(set, "=");
    const omm_bytes target = omm_bytes_of(set.data, end ? (size_t)(end - set.data) : 0);
    return chat_find(target, ",") || chat_find(target, "(") ||
           JINJA_FITS_ONE(target, known, JINJA_NO_NAME);
}

bool jinja_is_silent(const jinja_parts *p, size_t at) {
    static const char *const words[] = {"if", "elif", "else", "endif", "for", "endfor"};
    const omm_bytes text = jinja_text(p, at);
    if (jinja_begins(p, at, "set")) return !sets_known(text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jinja_begins(p, at, words[i])) return true;
    return false;
}
