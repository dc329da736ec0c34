/* dataset_scan.c - a data file as records: which format it has, where its lines, elements and documents end,
 * and what happens to the bad ones. */
#include "dataset_internal.h"

#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

enum { RECORDS_LOOKED_AT = 16 };

/* One pass over a source. */
typedef struct scan {
    source *source;
    maker *maker;
    omm_data_totals *totals;
    found_each each;
    void *ud;
    uint64_t at;
    uint32_t line;    /* of the byte at `at`, 1-based */
    uint64_t column;  /* array: characters before it in its line */
    uint32_t element; /* array: the last that began */
    bool is_array;
    bool inside;      /* text: the document at hand has had a piece */
    bool line_begins; /* text: `at` is at the beginning of a line */
} scan;

/* --- format ---------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *suffix) {
    size_t a = strlen(name), b = strlen(suffix);
    return a >= b && strcmp(name + a - b, suffix) == 0;
}

/* What the keys of a line say; DETECT: nothing. */
static omm_data_format format_of_line(omm_bytes line) {
    json_t *root = NULL;
    bool is_wide = false;
    if (omm_json_parse_wide(&root, &is_wide, line, "line") != OMM_OK) return OMM_DATA_DETECT;
    const omm_data_format format = form_of(root);
    json_decref(root);
    return format;
}

static bool is_json_name(const char *name) {
    return ends_with(name, ".jsonl") || ends_with(name, ".json");
}

static omm_data_format format_of_lines(omm_bytes text, size_t at) {
    for (int i = 0; i < RECORDS_LOOKED_AT && at < text.size;) {
        const uint8_t *newline = memchr(text.data + at, '\n', text.size - at);
        size_t end = newline ? (size_t)(newline - text.data) : text.size;
        const omm_bytes line = omm_bytes_of(text.data + at, end - at);
        i += !data_is_blank(line);
        omm_data_format format = format_of_line(line);
        if (format != OMM_DATA_DETECT) return format;
        at = end + 1;
    }
    return OMM_DATA_DETECT;
}

static omm_data_format format_of_array(omm_bytes text) {
    size_t at = 0;
    omm_bytes element;
    for (int i = 0; i < RECORDS_LOOKED_AT && array_next(&element, text, &at); i++) {
        omm_data_format format = format_of_line(element);
        if (format != OMM_DATA_DETECT) return format;
    }
    return OMM_DATA_DETECT;
}

/* The first of a few lines or elements that says what it is decides.  A file that looks like JSON and says
 * nothing is taken as chat (but a .txt), so that its first line is refused, not learned by heart. */
static omm_data_format format_of(const char *name, omm_bytes text, bool is_array) {
    size_t at = 0;
    while (at < text.size && data_is_space(text.data[at])) at++;
    if (!is_array && !is_json_name(name) && (at == text.size || text.data[at] != '{'))
        return OMM_DATA_TEXT;
    omm_data_format format = is_array ? format_of_array(text) : format_of_lines(text, at);
    if (format != OMM_DATA_DETECT) return format;
    return ends_with(name, ".txt") ? OMM_DATA_TEXT : OMM_DATA_CHAT;
}

static omm_err decide_loss(const maker *m) {
    const omm_dataset_options *o = &m->options;
    bool fits = o->loss == OMM_LOSS_DEFAULT || o->loss == OMM_LOSS_ALL;
    if (form_is_chat(o->format)) fits = true;
    if (o->format == OMM_DATA_COMPLETION) fits = fits || o->loss == OMM_LOSS_COMPLETION;
    if (fits) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG, "%s: %s data has no %s to learn from; accepted: all%s",
                     m->name, omm_data_format_name(o->format),
                     o->loss == OMM_LOSS_ASSISTANT ? "assistant turns" : "completions",
                     o->format == OMM_DATA_COMPLETION ? ", completion" : "");
}

/* By its byte order mark, or as the JSON of ASCII that it begins with; no text of UTF-8 begins so. */
static bool is_utf16(omm_bytes text) {
    static const char *const begins[] = {"\xff\xfe", "\xfe\xff", "{\0", "\0{", "[\0", "\0["};
    for (size_t i = 0; text.size >= 2 && i < sizeof begins / sizeof *begins; i++)
        if (memcmp(text.data, begins[i], 2) == 0) return true;
    return false;
}

/* Also steps over a byte order mark. */
static omm_err decide_format(scan *s) {
    enum { MARK = 3 };
    omm_bytes view;
    OMM_TRY(source_view(s->source, &view, 0, OMM_DATASET_LINE_BYTES_MAX + 1 + MARK));
    if (is_utf16(view))
        return omm_raise(OMM_ERR_FORMAT,
                         "%s: a text of UTF-16; accepted: UTF-8 (iconv -f UTF-16 -t UTF-8)",
                         s->maker->name);
    const omm_bytes text = omm_utf8_without_mark(view);
    s->at = view.size - text.size;
    maker *m = s->maker;
    m->is_asked = m->options.format != OMM_DATA_DETECT;
    /* Without a name or a wish that says JSON, "[Chorus]" begins a text. */
    s->is_array = array_begins(text, !m->is_asked && !is_json_name(m->name));
    if (!m->is_asked) m->options.format = format_of(m->name, text, s->is_array);
    s->is_array = s->is_array && m->options.format != OMM_DATA_TEXT;
    s->totals->format = m->options.format;
    s->totals->is_array = s->is_array;
    return decide_loss(s->maker);
}

/* --- one record ------------------------------------------------------------------------------ */

void dataset_count(omm_data_totals *totals, const omm_example *e) {
    totals->examples++;
    totals->tokens += e->count;
    totals->learned += e->learn_count;
    if (e->count > totals->longest) totals->longest = e->count;
}

omm_bytes raw_of(const maker *m, const omm_example *e, const record *r) {
    if (!omm_data_format_is_text(m->options.format)) return r->bytes;
    return omm_bytes_of(e->ids, e->count * sizeof *e->ids);
}

static omm_err hand_out(scan *s, const made *from, const record *r) {
    for (uint32_t k = 0;; k++) {
        omm_example e;
        bool there = false, cut = false;
        OMM_TRY(made_window(s->maker, &e, &there, &cut, from, k));
        if (!there) return OMM_OK;
        if (e.learn_count == 0) {
            s->totals->dropped++;
            continue;
        }
        e.line = r->line;
        e.element = r->element;
        s->totals->truncated += cut;
        dataset_count(s->totals, &e);
        found f = {&e, raw_of(s->maker, &e, r), r, k};
        OMM_TRY(s->each(s->ud, &f));
    }
}

/* A bad line is counted and forgotten, or ends the scan. */
static omm_err forgive(scan *s, omm_err err) {
    omm_data_totals *t = s->totals;
    omm_data_bad bad = s->maker->bad;
    const char *hint = s->maker->options.bad_hint;
    if (err != OMM_ERR_FORMAT || bad == OMM_DATA_BAD_NONE) return err;
    if (!s->maker->options.skip_bad)
        return hint ? omm_raise(err, "%s (%s)", omm_err_sentence(), hint) : err;
    if (t->bad < OMM_DATA_BAD_SHOWN)
        snprintf(t->bad_first[t->bad], OMM_DATA_BAD_BYTES, "%.*s", OMM_DATA_BAD_BYTES - 1,
                 omm_err_sentence());
    t->bad++;
    t->bad_by[bad]++;
    return OMM_OK;
}

static omm_err take_record(scan *s, const record *r) {
    made m;
    bool wanted = false;
    omm_err err = maker_make(s->maker, &m, &wanted, r);
    if (err != OMM_OK) return forgive(s, err);
    if (!wanted) return OMM_OK;
    return s->maker->tokenizer ? hand_out(s, &m, r) : s->each(s->ud, &(found){.record = r});
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Where a line that is longer than it may be ends, its newline not counted. */
static omm_err find_newline(scan *s, uint64_t *end, uint64_t from) {
    omm_bytes view;
    for (*end = from; *end < s->source->size; *end += view.size) {
        OMM_TRY(source_view(s->source, &view, *end, 1));
        const uint8_t *newline = memchr(view.data, '\n', view.size);
        if (!newline) continue;
        *end += (uint64_t)(newline - view.data);
        return OMM_OK;
    }
    return OMM_OK;
}

static omm_err refuse_record(scan *s, const record *r, omm_data_bad bad, const char *reason) {
    maker *m = s->maker;
    maker_set_place(m, r);
    m->bad = bad;
    return forgive(s,
                   omm_raise(OMM_ERR_FORMAT, "%s:%u:%s %s", m->name, m->line, m->element, reason));
}

/* Longer than it may be. */
static omm_err refuse_length(scan *s, const record *r, uint64_t bytes) {
    char reason[80];
    snprintf(reason, sizeof reason, "%s%llu bytes; at most %u", r->element ? "" : "line of ",
             (unsigned long long)bytes, OMM_DATASET_LINE_BYTES_MAX);
    return refuse_record(s, r, OMM_DATA_BAD_LENGTH, reason);
}

/* The line at s->at, at most one byte more than it may have; *whole false: it goes on. */
static omm_err view_line(scan *s, omm_bytes *line, bool *whole) {
    size_t want = 1;
    for (;;) {
        OMM_TRY(source_view(s->source, line, s->at, want));
        const size_t limit = OMM_DATASET_LINE_BYTES_MAX + 1;
        size_t size = line->size < limit ? line->size : limit;
        const uint8_t *newline = memchr(line->data, '\n', size);
        *whole = newline || (size < limit && s->at + size == s->source->size);
        if (!*whole && line->size < limit && want < limit) {
            want = limit; /* the window ends in the middle of the line */
            continue;
        }
        line->size = newline ? (size_t)(newline - line->data) : size;
        return OMM_OK;
    }
}

static omm_err take_line(scan *s) {
    omm_bytes line;
    bool whole = false;
    OMM_TRY(view_line(s, &line, &whole));
    uint64_t end = s->at + line.size;
    const record r = {.bytes = line, .offset = s->at, .line = s->line};
    if (!whole) {
        OMM_TRY(find_newline(s, &end, end));
        OMM_TRY(refuse_length(s, &r, end - s->at));
    } else if (!data_is_blank(line)) { /* that is none, as to most readers of JSON lines */
        OMM_TRY(take_record(s, &r));
    }
    s->at = end + 1;
    s->line++;
    return OMM_OK;
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* Step over bytes of the last view. */
static void advance(scan *s, omm_bytes over) {
    for (size_t i = 0; i < over.size; i++) {
        s->column += (over.data[i] & 0xc0) != 0x80;
        if (over.data[i] != '\n') continue;
        s->line++;
        s->column = 0;
    }
    s->at += over.size;
}

/* What stands at s->at, after which the rest cannot be told apart: no bad element, which could be left out. */
static omm_err refuse_array(const scan *s, const char *where, const char *what) {
    char of[32] = "";
    if (s->element) snprintf(of, sizeof of, "%s element %u of", where, s->element);
    return omm_raise(OMM_ERR_FORMAT, "%s:%u:%llu: %s the JSON array: %s", s->maker->name, s->line,
                     (unsigned long long)s->column + 1, s->element ? of : "in", what);
}

/* What does not belong there; END: nothing. */
enum { END = -1 };
static omm_err refuse_byte(const scan *s, const char *where, int c, const char *accepted) {
    char what[120], shown[16];
    snprintf(shown, sizeof shown, c > ' ' && c < 0x7f ? "'%c'" : "byte 0x%02x", c);
    snprintf(what, sizeof what, "%s; accepted: %s", c == END ? "the file ends" : shown, accepted);
    return refuse_array(s, where, what);
}

/* The next byte that is no space, or END. */
static omm_err next_byte(scan *s, int *c) {
    while (s->at < s->source->size) {
        omm_bytes view;
        size_t blank = 0;
        OMM_TRY(source_view(s->source, &view, s->at, 1));
        while (blank < view.size && data_is_space(view.data[blank])) blank++;
        *c = blank < view.size ? view.data[blank] : END;
        advance(s, omm_bytes_of(view.data, blank));
        if (*c != END) return OMM_OK;
    }
    *c = END;
    return OMM_OK;
}

/* The element at s->at, as far as it may be long; `bytes` is what it has of the view. */
static omm_err view_element(scan *s, element_walk *w, omm_bytes *bytes) {
    const size_t limit = OMM_DATASET_LINE_BYTES_MAX + 1;
    size_t size = 0;
    for (size_t want = 1;; want = limit) { /* the window may end in the middle of it */
        OMM_TRY(source_view(s->source, bytes, s->at, want));
        size += element_walk_on(w, omm_bytes_of(bytes->data + size, bytes->size - size));
        if (size < bytes->size || w->ended || want == limit) break;
    }
    bytes->size = size;
    return OMM_OK;
}

/* Step over the rest of one that is too long. */
static omm_err walk_rest(scan *s, element_walk *w) {
    while (!w->ended && !w->wrong && s->at < s->source->size) {
        omm_bytes view;
        OMM_TRY(source_view(s->source, &view, s->at, 1));
        advance(s, omm_bytes_of(view.data, element_walk_on(w, view)));
    }
    return OMM_OK;
}

static omm_err take_element(scan *s) {
    element_walk w = {0};
    record r = {.offset = s->at, .line = s->line, .column = s->column, .element = ++s->element};
    OMM_TRY(view_element(s, &w, &r.bytes));
    const bool fits = r.bytes.size <= OMM_DATASET_LINE_BYTES_MAX;
    if (fits && w.ended) OMM_TRY(take_record(s, &r));
    advance(s, r.bytes);
    if (!w.ended) OMM_TRY(walk_rest(s, &w));
    if (w.wrong) return refuse_array(s, "in", w.wrong);
    if (!w.ended) return refuse_array(s, "in", "the file ends before it does");
    return fits ? OMM_OK : refuse_length(s, &r, s->at - r.offset);
}

/* Nothing but space behind the array. */
static omm_err end_array(scan *s) {
    int c = END;
    s->at++;
    s->column++;
    OMM_TRY(next_byte(s, &c));
    return c == END ? OMM_OK : refuse_byte(s, "after", c, "nothing behind the ']'");
}

static omm_err take_array(scan *s) {
    int c = END;
    OMM_TRY(next_byte(s, &c)); /* the '[' */
    for (;;) {
        s->at++; /* over it, or a comma */
        s->column++;
        OMM_TRY(next_byte(s, &c));
        if (c == ']' && s->element == 0) return end_array(s);
        if (c == END || c == ',' || c == ']' || c == '}' || c == ':')
            return refuse_byte(s, "after", c,
                               s->element ? "the next element" : "its first element, or ']'");
        OMM_TRY(take_element(s));
        OMM_TRY(next_byte(s, &c));
        if (c == ']') return end_array(s);
        if (c != ',') return refuse_byte(s, "after", c, "',' or ']'");
    }
}

/* --- documents ------------------------------------------------------------------------------- */

/* `line` with its end stands between documents. */
static bool is_separator(const scan *s, omm_bytes line) {
    const char *separator = s->maker->options.separator;
    size_t size = line.size;
    if (!separator) return false;
    if (size && line.data[size - 1] == '\r') size--;
    return size == strlen(separator) && (size == 0 || memcmp(line.data, separator, size) == 0);
}

/* How the bytes ahead are divided: a piece, then perhaps a separator to step over. */
typedef struct division {
    size_t piece, skip;
    bool ends;
} division;

/* After the last line, else before the character that would be cut. */
static size_t place_to_cut(omm_bytes view, size_t after_last_line) {
    if (after_last_line) return after_last_line;
    size_t size = view.size;
    while (size > 1 && view.size - size < 4 && (view.data[size - 1] & 0xc0) == 0x80) size--;
    if (size > 1 && view.data[size - 1] >= 0xc0) return size - 1;
    return view.size;
}

static division divide(const scan *s, omm_bytes view, bool to_end) {
    bool begins = s->line_begins;
    for (size_t at = 0; at < view.size; begins = true) {
        const uint8_t *newline = memchr(view.data + at, '\n', view.size - at);
        if (!newline && !to_end) return (division){place_to_cut(view, at), 0, false};
        size_t end = newline ? (size_t)(newline - view.data) : view.size;
        size_t next = newline ? end + 1 : end;
        if (begins && is_separator(s, omm_bytes_of(view.data + at, end - at)))
            return (division){at, next - at, true};
        at = next;
    }
    return (division){view.size, 0, to_end};
}

/* Whether nothing of the document is left in what follows its piece, but blank lines: then the end is the piece's,
 * as a blank piece has no example to put it into. */
static bool only_blank_left(const scan *s, omm_bytes rest, bool line_begins, bool to_end) {
    for (size_t at = 0; at < rest.size; line_begins = true) {
        const uint8_t *newline = memchr(rest.data + at, '\n', rest.size - at);
        size_t end = newline ? (size_t)(newline - rest.data) : rest.size;
        const omm_bytes line = omm_bytes_of(rest.data + at, end - at);
        if (!newline && !to_end) return false;
        if (line_begins && is_separator(s, line)) return true;
        if (!data_is_blank(line)) return false;
        at = newline ? end + 1 : end;
    }
    return to_end;
}

static uint32_t lines_in(omm_bytes text) {
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == '\n';
    return count;
}

/* A piece, and what is looked at behind it. */
#define PIECE_VIEW_BYTES ((size_t)2 * OMM_DATASET_PIECE_BYTES_MAX)

static omm_err take_piece(scan *s) {
    omm_bytes wide;
    OMM_TRY(source_view(s->source, &wide, s->at, PIECE_VIEW_BYTES));
    if (wide.size > PIECE_VIEW_BYTES) wide.size = PIECE_VIEW_BYTES;
    const bool all = s->at + wide.size == s->source->size;
    const bool fits = wide.size <= OMM_DATASET_PIECE_BYTES_MAX;
    const omm_bytes view = omm_bytes_of(wide.data, fits ? wide.size : OMM_DATASET_PIECE_BYTES_MAX);
    const division d = divide(s, view, all && fits);
    const size_t used = d.piece + d.skip;
    const bool line_begins = view.data[used - 1] == '\n';
    const omm_bytes rest = omm_bytes_of(wide.data + used, wide.size - used);
    record r = {.bytes = omm_bytes_of(view.data, d.piece),
                .offset = s->at,
                .line = s->line,
                .begins = !s->inside,
                .ends = d.ends || only_blank_left(s, rest, line_begins, all)};
    uint32_t lines = lines_in(omm_bytes_of(view.data, used));
    bool blank = data_is_blank(r.bytes);
    s->totals->separators += d.skip > 0;
    if (!blank) OMM_TRY(take_record(s, &r));
    s->inside = !d.ends && (s->inside || !blank);
    s->line_begins = line_begins;
    s->line += lines;
    s->at += used;
    return OMM_OK;
}

omm_err scan_source(omm_data_totals *totals, source *from, maker *m, found_each each, void *ud) {
    scan s = {.source = from,
              .maker = m,
              .totals = totals,
              .each = each,
              .ud = ud,
              .line = 1,
              .line_begins = true};
    *totals = (omm_data_totals){0};
    OMM_TRY(decide_format(&s));
    if (s.is_array) return take_array(&s);
    bool text = m->options.format == OMM_DATA_TEXT;
    while (s.at < from->size) OMM_TRY(text ? take_piece(&s) : take_line(&s));
    return OMM_OK;
}
