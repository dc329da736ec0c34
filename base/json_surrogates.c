/* json_surrogates.c - halves of a surrogate pair that stand alone in JSON, as programs send them that have cut a text in the middle of
 * a character: Python writes the half it has as \ud83d.  No UTF-8 has it; U+FFFD, which is as long, stands in its place then. */
#include "json_internal.h"

#include <string.h>

#define ESCAPE_BYTES 6u /* \uXXXX */

typedef struct scan {
    uint8_t *text;
    size_t size;
    const char *const *members;
    unsigned depth;
    bool is_key;   /* the next string of the outermost object is a name */
    bool is_named; /* what it now has is one of the members' */
    size_t mended;
} scan;

static int hex_value(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Of \uXXXX at `at`; 0: there is none. */
static unsigned code_at(const scan *s, size_t at) {
    unsigned code = 0;
    if (s->size - at < ESCAPE_BYTES || s->text[at] != '\\' || s->text[at + 1] != 'u') return 0;
    for (size_t i = at + 2; i < at + ESCAPE_BYTES; i++) {
        const int value = hex_value(s->text[i]);
        if (value < 0) return 0;
        code = code * 16 + (unsigned)value;
    }
    return code;
}

static bool is_high(unsigned code) {
    return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low(unsigned code) {
    return code >= 0xdc00 && code <= 0xdfff;
}

/* Bytes of what a backslash at `at` begins. */
static size_t mend_escape(scan *s, size_t at, bool mends) {
    const unsigned code = code_at(s, at);
    if (code == 0) return 2;
    if (is_high(code) && is_low(code_at(s, at + ESCAPE_BYTES))) return (size_t)2 * ESCAPE_BYTES;
    if (mends && (is_high(code) || is_low(code))) {
        memcpy(s->text + at, "\\ufffd", ESCAPE_BYTES);
        s->mended++;
    }
    return ESCAPE_BYTES;
}

/* From behind its quote; returns where the other one is, or the end. */
static size_t mend_string(scan *s, size_t at, bool mends) {
    while (at < s->size && s->text[at] != '"')
        at += s->text[at] == '\\' ? mend_escape(s, at, mends) : 1;
    return at < s->size ? at : s->size;
}

static bool is_member(const scan *s, const uint8_t *name, size_t size) {
    for (const char *const *one = s->members; *one; one++)
        if (strlen(*one) == size && memcmp(*one, name, size) == 0) return true;
    return false;
}

/* Behind the string at `at`. */
static size_t step_string(scan *s, size_t at) {
    const bool is_name = s->depth == 1 && s->is_key;
    const size_t end = mend_string(s, at + 1, !is_name && s->is_named);
    if (is_name) s->is_named = is_member(s, s->text + at + 1, end - at - 1);
    return end + 1;
}

static void step(scan *s, uint8_t c) {
    if (c == '{' || c == '[') s->depth++;
    if ((c == '}' || c == ']') && s->depth > 0) s->depth--;
    if (s->depth != 1) return;
    if (c == '{' || c == ',') s->is_key = true;
    if (c == ':') s->is_key = false;
}

size_t json_mend_surrogates(uint8_t *text, size_t size, const char *const *members) {
    scan s = {.text = text, .size = size, .members = members};
    for (size_t i = 0; i < size;) {
        if (text[i] == '"')
            i = step_string(&s, i);
        else
            step(&s, text[i++]);
    }
    return s.mended;
}
