/* dataset_scan.c - a data file as records: which format it has, where its lines and documents end,
 * and what happens to the bad ones. */
#include "dataset_internal.h"

#include <stdio.h>
#include <string.h>

enum { LINES_LOOKED_AT = 16 };

/* One pass over a source. */
typedef struct scan {
    source *source;
    maker *maker;
    omm_data_totals *totals;
    found_each each;
    void *ud;
    uint64_t at;
    uint32_t line;    /* of the byte at `at`, 1-based */
    bool inside;      /* text: the document at hand has had a piece */
    bool line_begins; /* text: `at` is at the beginning of a line */
} scan;

/* --- format ---------------------------------------------------------------------------------- */

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_blank(omm_bytes text) {
    for (size_t i = 0; i < text.size; i++)
        if (!is_space(text.data[i])) return false;
    return true;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t a = strlen(name), b = strlen(suffix);
    return a >= b && strcmp(name + a - b, suffix) == 0;
}

/* What the keys of a line say; DETECT: nothing. */
static omm_data_format format_of_line(omm_bytes line) {
    json_t *root = NULL;
    if (omm_json_parse(&root, line, "line") != OMM_OK) return OMM_DATA_DETECT;
    const omm_data_format format = form_of(root);
    json_decref(root);
    return format;
}

/* The first of a few lines that says what it is decides.  A file that looks like JSON and says
 * nothing is taken as chat (but a .txt), so that its first line is refused, not learned by heart. */
static omm_data_format format_of(const char *name, omm_bytes text) {
    size_t at = 0;
    while (at < text.size && is_space(text.data[at])) at++;
    bool json = ends_with(name, ".jsonl") || ends_with(name, ".json");
    if (!json && (at == text.size || text.data[at] != '{')) return OMM_DATA_TEXT;
    for (int i = 0; i < LINES_LOOKED_AT && at < text.size; i++) {
        const uint8_t *newline = memchr(text.data + at, '\n', text.size - at);
        size_t end = newline ? (size_t)(newline - text.data) : text.size;
        omm_data_format format = format_of_line(omm_bytes_of(text.data + at, end - at));
        if (format != OMM_DATA_DETECT) return format;
        at = end + 1;
    }
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

/* Also steps over a byte order mark. */
static omm_err decide_format(scan *s) {
    static const uint8_t mark[3] = {0xef, 0xbb, 0xbf};
    omm_bytes text;
    OMM_TRY(source_view(s->source, &text, 0, OMM_DATASET_LINE_BYTES_MAX + 1 + sizeof mark));
    if (text.size >= sizeof mark && memcmp(text.data, mark, sizeof mark) == 0) {
        s->at = sizeof mark;
        text = omm_bytes_of(text.data + sizeof mark, text.size - sizeof mark);
    }
    s->maker->is_asked = s->maker->options.format != OMM_DATA_DETECT;
    if (!s->maker->is_asked) s->maker->options.format = format_of(s->maker->name, text);
    s->totals->format = s->maker->options.format;
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
    if (!s->maker->options.skip_bad || err != OMM_ERR_FORMAT || bad == OMM_DATA_BAD_NONE)
        return err;
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

static omm_err refuse_line(scan *s, omm_data_bad bad, const char *reason) {
    s->maker->line = s->line;
    s->maker->bad = bad;
    return forgive(s, omm_raise(OMM_ERR_FORMAT, "%s:%u: %s", s->maker->name, s->line, reason));
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
    if (!whole) {
        char reason[80];
        OMM_TRY(find_newline(s, &end, end));
        snprintf(reason, sizeof reason, "line of %llu bytes; at most %u",
                 (unsigned long long)(end - s->at), OMM_DATASET_LINE_BYTES_MAX);
        OMM_TRY(refuse_line(s, OMM_DATA_BAD_LENGTH, reason));
    } else if (is_blank(line)) {
        OMM_TRY(refuse_line(s, OMM_DATA_BAD_EMPTY, "empty line; accepted: " MAKER_LINE));
    } else {
        record r = {.bytes = line, .offset = s->at, .line = s->line};
        OMM_TRY(take_record(s, &r));
    }
    s->at = end + 1;
    s->line++;
    return OMM_OK;
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

static uint32_t lines_in(omm_bytes text) {
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == '\n';
    return count;
}

static omm_err take_piece(scan *s) {
    omm_bytes view;
    const size_t limit = OMM_DATASET_PIECE_BYTES_MAX;
    OMM_TRY(source_view(s->source, &view, s->at, limit));
    if (view.size > limit) view.size = limit;
    division d = divide(s, view, s->at + view.size == s->source->size);
    record r = {.bytes = omm_bytes_of(view.data, d.piece),
                .offset = s->at,
                .line = s->line,
                .begins = !s->inside,
                .ends = d.ends};
    size_t used = d.piece + d.skip;
    uint32_t lines = lines_in(omm_bytes_of(view.data, used));
    bool line_begins = view.data[used - 1] == '\n';
    bool blank = is_blank(r.bytes);
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
    bool text = m->options.format == OMM_DATA_TEXT;
    while (s.at < from->size) OMM_TRY(text ? take_piece(&s) : take_line(&s));
    return OMM_OK;
}
