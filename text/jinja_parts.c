/* jinja_parts.c - see jinja_parts.h.  Reads as Jinja's own lexer does, tag by tag. */
#include "jinja_parts.h"

#include "chat_internal.h"
#include "omm/mem.h"

#include <string.h>

/* Jinja could not read it either, or we cannot be sure that we read it as Jinja does. */
#define UNREADABLE(what) omm_raise(OMM_ERR_FORMAT, "chat template: " what)

typedef struct reader {
    jinja_parts *out;
    omm_bytes jinja; /* with plain line ends */
    size_t at;
    unsigned hidden; /* macros and their like around here: what they have is left out */
    bool all;        /* but not of macros */
    omm_buf scratch;
} reader;

/* ---- tokens of a tag ------------------------------------------------------------------------- */

typedef struct tokens {
    omm_bytes text;
    size_t at;
    unsigned depth; /* brackets around here */
} tokens;

static bool is_one_of(uint8_t c, const char *set) {
    return c != 0 && strchr(set, c);
}

static bool has_at(omm_bytes text, size_t at, const char *what) {
    const size_t size = strlen(what);
    return at <= text.size && text.size - at >= size && memcmp(text.data + at, what, size) == 0;
}

/* White space to Jinja, perhaps, and not to chat_is_space. */
static bool is_unclear(uint8_t c) {
    return c >= 0x80 || (c >= 0x1c && c <= 0x1f);
}

/* From a quote to behind the one that closes it, or to the end. */
static size_t string_end(omm_bytes text, size_t at) {
    const uint8_t quote = text.data[at++];
    for (; at < text.size && text.data[at] != quote; at++) at += text.data[at] == '\\';
    return at < text.size ? at + 1 : text.size;
}

/* A word, a string, or one other byte, white space too.  Only called before the end. */
static omm_bytes next_token(tokens *t) {
    const size_t from = t->at++;
    const uint8_t c = t->text.data[from];
    if (is_one_of(c, "'\"")) t->at = string_end(t->text, from);
    while (jinja_is_word(c) && t->at < t->text.size && jinja_is_word(t->text.data[t->at])) t->at++;
    if (is_one_of(c, "([{")) t->depth++;
    if (is_one_of(c, ")]}")) t->depth--;
    return omm_bytes_of(t->text.data + from, t->at - from);
}

/* ---- one spelling ---------------------------------------------------------------------------- */

/* What ends with x['name'] ends with x.name. */
static void shorten(omm_buf *out) {
    const size_t end = out->size - 2; /* of the name and its quote */
    size_t from = end;
    if (out->size < 6 || out->data[end] != '\'') return;
    while (from > 3 && jinja_is_word(out->data[from - 1])) from--;
    const uint8_t owner = out->data[from - 3];
    if (from == end || is_one_of(out->data[from], "0123456789") ||
        memcmp(out->data + from - 2, "['", 2) != 0 ||
        !(jinja_is_word(owner) || is_one_of(owner, ")]")))
        return;
    out->data[from - 2] = '.';
    memmove(out->data + from - 1, out->data + from, end - from);
    out->size -= 3;
}

/* "..." that could as well be '...'. */
static bool is_plain_string(omm_bytes token) {
    if (token.data[0] != '"') return false;
    for (size_t i = 1; i + 1 < token.size; i++)
        if (is_one_of(token.data[i], "'\\")) return false;
    return true;
}

static omm_err put_token(omm_buf *out, omm_bytes token) {
    const bool after_word = out->size > 0 && jinja_is_word(out->data[out->size - 1]);
    if (after_word && jinja_is_word(token.data[0])) OMM_TRY(omm_buf_append(out, " ", 1));
    const size_t at = out->size;
    OMM_TRY(omm_buf_append(out, token.data, token.size));
    if (is_plain_string(token)) out->data[at] = out->data[out->size - 1] = '\'';
    if (token.data[0] == ']') shorten(out);
    return OMM_OK;
}

/* To r->scratch. */
static omm_err respell(reader *r, omm_bytes source) {
    tokens t = {.text = source};
    omm_buf_clear(&r->scratch);
    while (t.at < source.size) {
        const omm_bytes token = next_token(&t);
        if (!chat_is_space(token.data[0])) OMM_TRY(put_token(&r->scratch, token));
    }
    return OMM_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static omm_err push(reader *r, jinja_kind kind, omm_bytes text) {
    jinja_parts *out = r->out;
    if (r->hidden > 0 || (kind == JINJA_TEXT && text.size == 0)) return OMM_OK;
    const bool goes_on =
        kind == JINJA_TEXT && out->count > 0 && jinja_is(out, out->count - 1, JINJA_TEXT);
    if (!goes_on && out->count == JINJA_PARTS_MAX) return UNREADABLE("too many parts");
    if (!goes_on) out->list[out->count++] = (jinja_part){kind, out->text.size, 0};
    out->list[out->count - 1].size += text.size;
    return omm_buf_append(&out->text, text.data, text.size);
}

static omm_err push_source(reader *r, jinja_kind kind, omm_bytes source) {
    OMM_TRY(respell(r, source));
    return push(r, kind, omm_buf_view(&r->scratch));
}

/* ---- white space ----------------------------------------------------------------------------- */

static size_t sign_at(omm_bytes text, size_t at) {
    return at < text.size && is_one_of(text.data[at], "+-");
}

static bool ends_at(omm_bytes text, size_t at, const char *mark) {
    return has_at(text, at + sign_at(text, at), mark);
}

static void skip_space(reader *r) {
    while (r->at < r->jinja.size && chat_is_space(r->jinja.data[r->at])) r->at++;
}

static omm_bytes rest_of(const reader *r) {
    return omm_bytes_of(r->jinja.data + r->at, r->jinja.size - r->at);
}

/* Over the mark that ends a tag, and what goes behind it: all white space, or one line end. */
static void close_tag(reader *r, const char *mark) {
    const bool strips = r->jinja.data[r->at] == '-', has_sign = sign_at(r->jinja, r->at) > 0;
    r->at += has_sign + strlen(mark);
    if (strips)
        r->at = (size_t)(chat_strip_begin(rest_of(r)).data - r->jinja.data);
    else
        r->at += !has_sign && mark[0] != '}' && has_at(r->jinja, r->at, "\n");
}

/* Of raw text in front of the tag at `tag` what stays: without all white space at its end, or what the tag's line begins
 * with. */
static omm_bytes trim_raw(const reader *r, size_t tag) {
    const uint8_t *data = r->jinja.data;
    const omm_bytes raw = omm_bytes_of(data + r->at, tag - r->at);
    const bool signs = sign_at(r->jinja, tag + 2);
    if (signs && data[tag + 2] == '-') return chat_strip_end(raw);
    if (signs || data[tag + 1] == '{') return raw;
    size_t line = tag;
    while (line > r->at && data[line - 1] != '\n') line--;
    const bool begins = line == 0 || data[line - 1] == '\n';
    const bool blank = chat_strip_begin(omm_bytes_of(data + line, tag - line)).size == 0;
    return begins && blank ? omm_bytes_of(raw.data, line - r->at) : raw;
}

static size_t find_tag(const reader *r) {
    for (size_t at = r->at; at + 1 < r->jinja.size; at++)
        if (r->jinja.data[at] == '{' && is_one_of(r->jinja.data[at + 1], "{%#")) return at;
    return r->jinja.size;
}

static omm_err read_raw(reader *r) {
    const size_t tag = find_tag(r);
    const omm_bytes raw = tag < r->jinja.size ? trim_raw(r, tag) : rest_of(r);
    r->at = tag;
    return push(r, JINJA_TEXT, raw);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* To the mark that ends a tag, outside of strings and brackets; a sign before it is the mark's. */
static omm_err find_end(omm_bytes *inside, reader *r, const char *mark) {
    tokens t = {.text = r->jinja, .at = r->at};
    for (; t.at < t.text.size; next_token(&t)) {
        if (t.depth > 0) continue;
        if (ends_at(t.text, t.at, mark)) {
            *inside = omm_bytes_of(t.text.data + r->at, t.at - r->at);
            r->at = t.at;
            return OMM_OK;
        }
        if (is_one_of(t.text.data[t.at], ")]}")) return UNREADABLE("a bracket that closes nothing");
    }
    return UNREADABLE("a tag without an end");
}

/* Binds less than + and ~ do: what stands beside it is no operand of a sum.  1if is a number and
 * such a word. */
static bool is_weak(omm_bytes token) {
    static const char *const words[] = {"if", "and", "or", "not", "in", "is"}; /* else has an if */
    const uint8_t c = token.data[0];
    if (is_one_of(c, "<>=,") || is_unclear(c)) return true;
    for (size_t i = 1; i < token.size && c >= '0' && c <= '9'; i++)
        if (token.data[i] < '0' || token.data[i] > '9') return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (omm_bytes_equal(token, omm_bytes_str(words[i]))) return true;
    return false;
}

/* Something, or + and ~ between several of it. */
static bool is_sum(omm_bytes text) {
    tokens t = {.text = text};
    bool operand = false;
    while (t.at < text.size) {
        const bool inside = t.depth > 0;
        const omm_bytes token = next_token(&t);
        const bool joint = is_one_of(token.data[0], "+~");
        if (inside || chat_is_space(token.data[0])) continue;
        if (is_weak(token) || (joint && !operand)) return false;
        operand = !joint;
    }
    return operand;
}

/* To r->scratch, unless it has an escape that is not decoded here. */
static omm_err decode(bool *decoded, reader *r, omm_bytes literal) {
    static const char from[] = "nrt\\'\"", to[] = "\n\r\t\\'\"";
    omm_buf_clear(&r->scratch);
    *decoded = true;
    for (size_t i = 1; i + 1 < literal.size && *decoded; i++) {
        uint8_t c = literal.data[i];
        if (c == '\\') {
            const char *known = memchr(from, literal.data[++i], sizeof from - 1);
            *decoded = known != NULL;
            if (known) c = (uint8_t)to[known - from];
        }
        OMM_TRY(omm_buf_append(&r->scratch, &c, 1));
    }
    return OMM_OK;
}

static omm_err put_operand(reader *r, omm_bytes operand) {
    bool is_text = is_one_of(operand.data[0], "'\"") && string_end(operand, 0) == operand.size;
    if (is_text) OMM_TRY(decode(&is_text, r, operand));
    return is_text ? push(r, JINJA_TEXT, omm_buf_view(&r->scratch))
                   : push_source(r, JINJA_OUTPUT, operand);
}

static omm_err put_sum(reader *r, omm_bytes sum) {
    tokens t = {.text = sum};
    size_t from = 0;
    while (t.at < sum.size) {
        const size_t at = t.at;
        next_token(&t);
        const bool joint = t.depth == 0 && is_one_of(sum.data[at], "+~");
        if (!joint && t.at < sum.size) continue;
        const size_t to = joint ? at : t.at;
        OMM_TRY(put_operand(r, chat_trim(omm_bytes_of(sum.data + from, to - from))));
        from = t.at;
    }
    return OMM_OK;
}

static omm_err read_output(reader *r) {
    omm_bytes inside = {0};
    OMM_TRY(find_end(&inside, r, "}}"));
    OMM_TRY(is_sum(inside) ? put_sum(r, inside) : push_source(r, JINJA_OUTPUT, inside));
    close_tag(r, "}}");
    return OMM_OK;
}

/* ---- statements, comments -------------------------------------------------------------------- */

static omm_err read_comment(reader *r) {
    const omm_bytes rest = rest_of(r);
    const uint8_t *end = chat_find(rest, "#}");
    if (!end) return UNREADABLE("a comment without an end");
    r->at += (size_t)(end - rest.data);
    if (end > rest.data) r->at -= sign_at(r->jinja, r->at - 1);
    close_tag(r, "#}");
    return OMM_OK;
}

static omm_err skip_raw(reader *r) {
    for (; r->at < r->jinja.size; r->at++) {
        const size_t at = r->at;
        if (!has_at(r->jinja, at, "{%")) continue;
        r->at += 2 + sign_at(r->jinja, at + 2);
        skip_space(r);
        const bool is_end = has_at(r->jinja, r->at, "endraw");
        r->at += is_end ? strlen("endraw") : 0;
        skip_space(r);
        if (is_end && ends_at(r->jinja, r->at, "%}")) {
            close_tag(r, "%}");
            return OMM_OK;
        }
        r->at = at;
    }
    return UNREADABLE("raw without an end");
}

/* {% set x = ... %}, not {% set x %} ... {% endset %}. */
static bool assigns(omm_bytes set) {
    size_t at = 0;
    while (at < set.size && (jinja_is_word(set.data[at]) || is_one_of(set.data[at], " .,()"))) at++;
    return has_at(set, at, "=");
}

/* *hides: +1 where it begins what is left out, -1 where it ends.  all: nothing of a macro is left out. */
static bool find_statement(int *hides, omm_bytes text, bool all) {
    static const char *const of_all[] = {"macro", "endmacro", "break", "continue"};
    static const struct {
        const char *word;
        int hides;
    } known[] = {{"if", 0},     {"elif", 0},       {"else", 0},       {"endif", 0},
                 {"for", 0},    {"endfor", 0},     {"generation", 0}, {"endgeneration", 0},
                 {"macro", 1},  {"endmacro", -1},  {"call", 1},       {"endcall", -1},
                 {"filter", 1}, {"endfilter", -1}, {"set", 0},        {"endset", -1}};
    size_t size = 0;
    while (size < text.size && jinja_is_word(text.data[size])) size++;
    const omm_bytes word = omm_bytes_of(text.data, size);
    *hides = 0;
    for (size_t i = 0; all && i < sizeof of_all / sizeof *of_all; i++)
        if (omm_bytes_equal(word, omm_bytes_str(of_all[i]))) return true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!omm_bytes_equal(word, omm_bytes_str(known[i].word))) continue;
        *hides = strcmp(known[i].word, "set") == 0 ? !assigns(text) : known[i].hides;
        return true;
    }
    return false;
}

static omm_err put_statement(reader *r, omm_bytes text) {
    int hides = 0;
    if (!find_statement(&hides, text, r->all)) return UNREADABLE("a statement that is not known");
    if (hides < 0 && r->hidden == 0) return UNREADABLE("an end of nothing");
    if (hides >= 0) OMM_TRY(push(r, JINJA_BLOCK, text));
    r->hidden += (unsigned)hides;
    return OMM_OK;
}

static omm_err read_statement(reader *r) {
    omm_bytes inside = {0};
    OMM_TRY(find_end(&inside, r, "%}"));
    OMM_TRY(respell(r, inside));
    close_tag(r, "%}");
    const omm_bytes text = omm_buf_view(&r->scratch);
    if (!omm_bytes_equal(text, omm_bytes_str("raw"))) return put_statement(r, text);
    OMM_TRY(push(r, JINJA_BLOCK, text));
    return skip_raw(r);
}

static omm_err read_tag(reader *r) {
    const uint8_t kind = r->jinja.data[r->at + 1];
    r->at += 2 + sign_at(r->jinja, r->at + 2);
    if (kind == '#') return read_comment(r);
    return kind == '{' ? read_output(r) : read_statement(r);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Jinja's: every line end is \n, the last one goes. */
static omm_err plain_lines(omm_buf *out, omm_bytes jinja) {
    OMM_TRY(omm_buf_reserve(out, jinja.size));
    for (size_t i = 0; i < jinja.size; i++) {
        const bool ends = jinja.data[i] == '\r';
        out->data[out->size++] = ends ? '\n' : jinja.data[i];
        i += ends && has_at(jinja, i + 1, "\n");
    }
    if (out->size > 0 && out->data[out->size - 1] == '\n') out->size--;
    return OMM_OK;
}

static omm_err read_all(reader *r) {
    while (r->at < r->jinja.size) {
        OMM_TRY(read_raw(r));
        if (r->at < r->jinja.size) OMM_TRY(read_tag(r));
    }
    return r->hidden > 0 ? UNREADABLE("a statement without an end") : OMM_OK;
}

static omm_err read_parts(jinja_parts *out, omm_bytes jinja, bool all) {
    omm_buf lines;
    reader r = {.out = out, .all = all};
    omm_buf_init(&lines, JINJA_BYTES_MAX);
    omm_buf_init(&r.scratch, JINJA_BYTES_MAX);
    omm_buf_init(&out->text, JINJA_BYTES_MAX);
    out->count = 0;
    out->list = omm_alloc(JINJA_PARTS_MAX, sizeof *out->list);
    omm_err err =
        out->list ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a chat template's parts");
    if (err == OMM_OK) err = plain_lines(&lines, jinja);
    r.jinja = omm_buf_view(&lines);
    if (err == OMM_OK) err = read_all(&r);
    if (err != OMM_OK) out->count = 0;
    omm_buf_fini(&lines);
    omm_buf_fini(&r.scratch);
    return err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG ? OMM_OK : err;
}

omm_err jinja_parts_read(jinja_parts *out, omm_bytes jinja) {
    return read_parts(out, jinja, false);
}

omm_err jinja_parts_read_all(jinja_parts *out, omm_bytes jinja) {
    return read_parts(out, jinja, true);
}

void jinja_parts_fini(jinja_parts *parts) {
    omm_buf_fini(&parts->text);
    omm_free(parts->list);
}
