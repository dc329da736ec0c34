/* chat_shape.c - what of a template is there to run, and whether it writes turns as ChatML.
 *
 * A mark alone tells little: it may stand in a comment, in a branch that is never taken, or around turns of another
 * shape.  Nothing is run, so what cannot be followed (a mark that is kept in a variable, a sum inside a choice) is not
 * held against a template. */
#include "chat_internal.h"
#include "jinja_shape.h"

#include <string.h>

/* ---- what is there to run -------------------------------------------------------------------- */

static bool begins_tag(const uint8_t *at) {
    return at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#');
}

/* Behind the comment that begins at `at`. */
static size_t behind_comment(omm_bytes text, size_t at) {
    const uint8_t *end = chat_find(omm_bytes_of(text.data + at + 2, text.size - at - 2), "#}");
    return end ? (size_t)(end - text.data) + 2 : text.size;
}

/* Behind the tag that begins at `at`; strings may have what ends it.  The text's size where nothing does. */
static size_t behind_tag(omm_bytes text, size_t at) {
    const uint8_t kind = text.data[at + 1];
    if (kind == '#') return behind_comment(text, at);
    for (at += 2; at + 1 < text.size; at++) {
        const uint8_t c = text.data[at];
        if (c == (kind == '{' ? '}' : '%') && text.data[at + 1] == '}') return at + 2;
        if (c != '\'' && c != '"') continue;
        for (at++; at < text.size && text.data[at] != c; at++) at += text.data[at] == '\\';
    }
    return text.size;
}

/* What a statement says, without its marks and the signs beside them. */
static omm_bytes statement_of(omm_bytes tag) {
    size_t from = 2, to = tag.size - 2;
    if (to > from && strchr("+-", tag.data[from])) from++;
    if (to > from && strchr("+-", tag.data[to - 1])) to--;
    return chat_trim(omm_bytes_of(tag.data + from, to - from));
}

static bool is_never(omm_bytes statement) {
    static const char *const conditions[] = {"if false", "if False", "if none", "if None", "if 0"};
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++)
        if (omm_bytes_equal(statement, omm_bytes_str(conditions[i]))) return true;
    return false;
}

/* Where the branch ends that nothing takes: at its elif, else or endif. */
static size_t dead_end(omm_bytes text, size_t at) {
    unsigned depth = 0;
    while (at + 1 < text.size) {
        if (!begins_tag(text.data + at)) {
            at++;
            continue;
        }
        const size_t end = behind_tag(text, at);
        if (end - at < 4) return end;
        const omm_bytes said = text.data[at + 1] == '%'
                                   ? statement_of(omm_bytes_of(text.data + at, end - at))
                                   : omm_bytes_str("");
        const bool closes = jinja_starts_with(said, "endif");
        if (depth == 0 && (closes || jinja_starts_with(said, "el"))) return at;
        depth += jinja_starts_with(said, "if");
        depth -= closes;
        at = end;
    }
    return text.size;
}

omm_err chat_live(omm_buf *out, omm_bytes jinja) {
    size_t at = 0;
    omm_buf_clear(out);
    while (at < jinja.size) {
        const size_t from = at;
        while (at + 1 < jinja.size && !begins_tag(jinja.data + at)) at++;
        if (at + 1 >= jinja.size) at = jinja.size;
        OMM_TRY(omm_buf_append(out, jinja.data + from, at - from));
        if (at == jinja.size) break;
        const size_t tag = at;
        const uint8_t kind = jinja.data[at + 1];
        at = behind_tag(jinja, tag);
        if (kind == '#') continue;
        const omm_bytes all = omm_bytes_of(jinja.data + tag, at - tag);
        OMM_TRY(omm_buf_append(out, all.data, all.size));
        if (kind == '%' && all.size >= 4 && is_never(statement_of(all))) at = dead_end(jinja, at);
    }
    return OMM_OK;
}

/* ---- ChatML ---------------------------------------------------------------------------------- */

#define MARK "<|im_start|>"

typedef struct turns {
    unsigned by_role; /* the role that a message has, and a line end behind it */
    unsigned named;   /* a role by name, and a line end behind it */
    unsigned unclear; /* what cannot be followed */
    unsigned others;  /* something else */
} turns;

static omm_bytes behind(omm_bytes text, size_t size) {
    return omm_bytes_of(text.data + size, text.size - size);
}

static omm_bytes behind_spaces(omm_bytes text) {
    while (text.size > 0 && text.data[0] == ' ') text = behind(text, 1);
    return text;
}

static size_t next_written(const jinja_parts *p, size_t at) {
    while (jinja_is(p, at, JINJA_BLOCK)) at++;
    return at;
}

/* Behind a mark that nothing of its text follows: from part `at` on, a role, or the branches between roles. */
static void count_computed(turns *t, const jinja_parts *p, size_t at) {
    const size_t next = next_written(p, at + 1);
    const omm_bytes text = jinja_is(p, next, JINJA_TEXT) ? jinja_text(p, next) : JINJA_NO_NAME;
    const bool chosen = jinja_is(p, at, JINJA_BLOCK);
    const bool is_role = next < p->count && !chat_find(jinja_text(p, at), "content");
    if (!chosen && is_role && jinja_starts_with(behind_spaces(text), "\n"))
        t->by_role++;
    else if (chosen || (is_role && (text.size == 0 || next > at + 1)))
        t->unclear++;
    else
        t->others++;
}

/* Behind a mark and a role that stands in the text: what is left of that, which lies in part `at`. */
static void count_named(turns *t, const jinja_parts *p, size_t at, omm_bytes rest) {
    rest = behind_spaces(rest);
    const size_t next = next_written(p, at + 1);
    if (rest.size == 0 && jinja_is(p, next, JINJA_TEXT)) rest = jinja_text(p, next);
    if (jinja_starts_with(rest, "\n"))
        t->named++;
    else if (jinja_starts_with(rest, ":"))
        t->others++;
    else
        t->unclear++;
}

static void count_text(turns *t, const jinja_parts *p, size_t at) {
    omm_bytes rest = jinja_text(p, at);
    for (const uint8_t *mark; (mark = chat_find(rest, MARK)) != NULL;) {
        rest = behind(rest, (size_t)(mark - rest.data) + sizeof MARK - 1);
        const omm_bytes role = behind_spaces(rest);
        size_t size = 0;
        while (size < role.size && jinja_is_word(role.data[size])) size++;
        if (size > 0)
            count_named(t, p, at, behind(role, size));
        else if (role.size == 0)
            count_computed(t, p, at + 1);
        else
            t->others++;
    }
}

omm_err chat_is_chatml(bool *out, omm_bytes jinja) {
    turns t = {0};
    jinja_parts p;
    *out = true;
    OMM_TRY(jinja_parts_read(&p, jinja));
    for (size_t at = 0; at < p.count; at++) {
        if (jinja_is(&p, at, JINJA_TEXT))
            count_text(&t, &p, at);
        else
            t.unclear += chat_find(jinja_text(&p, at), MARK) != NULL;
    }
    if (p.count > 0) *out = t.by_role > 0 || (t.named + t.unclear > 0 && t.others == 0);
    jinja_parts_fini(&p);
    return OMM_OK;
}
