#include "omm/log.h"

#include "omm/utf8.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LINE_SIZE 4096u

static const char *const s_level_names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
static const char *const s_level_words[] = {"debug", "info", "warn", "error"};

static atomic_uint s_lost; /* lines that could not be written: their disk is full, say */

/* stdio locks stderr for the call, so lines of several threads do not mix.  What is lost is said by the next line that
 * can be written. */
static void write_to_stderr(void *ud, omm_log_level level, const char *line) {
    (void)ud;
    (void)level;
    const unsigned lost = atomic_load(&s_lost);
    if (lost == 0
            ? fprintf(stderr, "%s\n", line) >= 0
            : fprintf(stderr, "%s\n%.24s WARN log_lines_lost count=%u\n", line, line, lost) >= 0)
        atomic_fetch_sub(&s_lost, lost);
    else
        atomic_fetch_add(&s_lost, 1);
}

omm_log omm_log_stderr(omm_log_level level) {
    return (omm_log){level, omm_clock_system(), write_to_stderr, NULL};
}

bool omm_log_wants(const omm_log *log, omm_log_level level) {
    return log && log->sink && level >= log->level;
}

bool omm_log_level_parse(omm_log_level *out, const char *name) {
    for (unsigned i = 0; i < sizeof s_level_words / sizeof *s_level_words; i++) {
        if (strcmp(name, s_level_words[i]) != 0) continue;
        *out = (omm_log_level)i;
        return true;
    }
    return false;
}

/* A line under construction.  A log must not fail, so it has a fixed size and is cut. */
typedef struct line {
    char text[LINE_SIZE];
    size_t size;
    bool cut;
} line;

static const char s_cut_mark[] = " cut=true";

static void line_add(line *l, const char *text, size_t size) {
    size_t room = LINE_SIZE - sizeof s_cut_mark - l->size; /* the mark always fits */
    if (l->cut || size > room) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

static void line_add_str(line *l, const char *text) {
    line_add(l, text, strlen(text));
}

/* A character that moves nothing on a terminal and turns no text around (C1, U+2028, U+2029, U+202A to U+202E, U+2066 to
 * U+2069): as it is.  Else its number; a byte that is no character: that of U+FFFD. */
static size_t escape_wide(char out[8], const char *text) {
    const uint8_t *p = (const uint8_t *)text;
    const unsigned size = omm_utf8_size(p, strlen(text));
    unsigned code = 0xfffd;
    if (size == 2) code = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    if (size == 3) code = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    const bool turns = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    if (size == 0 || (size == 2 && code < 0xa0) || (size == 3 && turns))
        snprintf(out, 8, "\\u%04x", code);
    else
        snprintf(out, 8, "%.*s", (int)size, text);
    return size ? size : 1;
}

/* '=' too: a value must not look like the next field. */
static bool needs_quotes(const char *text) {
    char escape[8];
    if (!*text) return true;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c <= ' ' || c == 0x7f || c == '"' || c == '\\' || c == '=') return true;
        if (c < 0x80) continue;
        text += escape_wide(escape, text) - 1;
        if (escape[0] == '\\') return true;
    }
    return false;
}

static void line_add_quoted(line *l, const char *text) {
    line_add(l, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char escape[8];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (c < ' ' || c == 0x7f)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else if (c >= 0x80)
            text += escape_wide(escape, text) - 1;
        else
            snprintf(escape, sizeof escape, "%c", c);
        line_add_str(l, escape);
    }
    line_add(l, "\"", 1);
}

static void line_add_field(line *l, const omm_log_field *field) {
    line_add(l, " ", 1);
    line_add_str(l, field->key);
    line_add(l, "=", 1);
    if (!field->text) {
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, field->number);
        line_add_str(l, number);
    } else if (needs_quotes(field->text)) {
        line_add_quoted(l, field->text);
    } else {
        line_add_str(l, field->text);
    }
}

void omm_log_write(const omm_log *log, omm_log_level level, const char *event,
                   const omm_log_field *fields, unsigned count) {
    if (!omm_log_wants(log, level)) return;
    line l;
    l.size = 0;
    l.cut = false;
    char when[25];
    omm_time_iso(when, log->clock.wall_ms(log->clock.ud));
    line_add_str(&l, when);
    line_add(&l, " ", 1);
    line_add_str(&l, s_level_names[level]);
    line_add(&l, " ", 1);
    line_add_str(&l, event);
    for (unsigned i = 0; i < count; i++) line_add_field(&l, &fields[i]);
    memcpy(l.text + l.size, l.cut ? s_cut_mark : "", l.cut ? sizeof s_cut_mark : 1);
    log->sink(log->ud, level, l.text);
}
