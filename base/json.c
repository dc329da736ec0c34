#include "json_internal.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value costs up to 300 bytes of memory and 2 of text: these bound what a hostile text may take. */
#define PARSE_CONTAINERS_MAX 1500000u /* objects and arrays: a manifest of a million files */
#define PARSE_VALUES_MAX 12000000u
#define DEPTH_MAX 2048u /* jansson's own, for what is read */
#define WRITE_FLAGS (JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17))

/* See the header: jansson 2.14 does not survive a failed allocation in its lexer. */
static void *alloc_or_end(size_t size) {
    void *ptr = malloc(size);
    if (!ptr) {
        fprintf(stderr, "json: out of memory for %zu bytes\n", size);
        abort();
    }
    return ptr;
}

/* Before main, so that no value is made by one allocator and freed by another. */
__attribute__((constructor)) static void take_over_allocation(void) {
    json_set_alloc_funcs(alloc_or_end, free);
}

/* --- parse --- */

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

/* Count what would be allocated, before it is. */
static omm_err check_counts(omm_bytes text, const char *name) {
    size_t containers = 0;
    size_t values = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (in_string) {
            if (c == '\\') i++;
            if (c == '"') in_string = false;
            continue;
        }
        in_string = c == '"';
        containers += c == '{' || c == '[';
        values += c == ',' || c == ':';
    }
    if (containers <= PARSE_CONTAINERS_MAX && values <= PARSE_VALUES_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "%s: JSON of %zu lists and %zu values, limits %u and %u",
                     name, containers, values, PARSE_CONTAINERS_MAX, PARSE_VALUES_MAX);
}

/* jansson's words, but where they are about its own options. */
static omm_err refuse_text(const char *name, const json_error_t *e) {
    const bool nul = json_error_code(e) == json_error_null_character;
    return omm_raise(OMM_ERR_FORMAT, "%s:%d:%d: %s", name, e->line, e->column,
                     nul ? "\\u0000 is not allowed, every other character is" : e->text);
}

static omm_err parse_why(json_t **out, json_error_t *e, omm_bytes text, const char *name,
                         size_t flags) {
    *e = (json_error_t){.line = -1};
    if (text.size > OMM_JSON_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: JSON of %zu bytes, limit %zu", name, text.size,
                         OMM_JSON_BYTES_MAX);
    OMM_TRY(check_counts(text, name));
    const char *data = text.size > 0 ? (const char *)text.data : ""; /* jansson refuses NULL */
    json_t *value = json_loadb(data, text.size, flags | JSON_DECODE_ANY, e);
    if (!value) return refuse_text(name, e);
    *out = value;
    return OMM_OK;
}

static omm_err parse(json_t **out, omm_bytes text, const char *name, size_t flags) {
    json_error_t e;
    return parse_why(out, &e, text, name, flags);
}

omm_err omm_json_parse(json_t **out, omm_bytes text, const char *name) {
    return parse(out, text, name, JSON_REJECT_DUPLICATES);
}

/* The integer of `size` bytes at `at`, as a real in as many bytes, if 64 bits do not hold it: 17 digits and an exponent. */
static void widen(uint8_t *at, size_t size) {
    char digits[24], end[24];
    const size_t sign = at[0] == '-', count = size - sign;
    if (count < 19) return;
    if (count == 19) {
        memcpy(digits, at, size);
        digits[size] = '\0';
        errno = 0;
        (void)strtoll(digits, NULL, 10);
        if (errno != ERANGE) return;
    }
    const size_t kept = sign + 17;
    const int length = snprintf(end, sizeof end, "e%zu", size - kept);
    memset(at + kept, ' ', size - kept);
    memcpy(at + kept, end, (size_t)length);
}

static void widen_all(uint8_t *text, size_t size) {
    static const char in_number[] = "+-.0123456789eE";
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        size_t n = 0, digits = 0;
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        if (in_string || i >= size || (text[i] != '-' && !is_digit(text[i]))) continue;
        for (; i + n < size && memchr(in_number, text[i + n], sizeof in_number - 1); n++)
            digits += is_digit(text[i + n]);
        if (digits + (text[i] == '-') == n) widen(text + i, n);
        i += n - 1;
    }
}

static omm_err parse_wide(json_t **out, bool *is_wide, omm_bytes text, const char *name,
                          size_t flags) {
    json_error_t e;
    omm_buf copy;
    omm_err err = parse_why(out, &e, text, name, flags);
    *is_wide = err == OMM_ERR_FORMAT && json_error_code(&e) == json_error_numeric_overflow;
    if (!*is_wide) return err;
    omm_buf_init(&copy, text.size);
    err = omm_buf_append(&copy, text.data, text.size);
    if (err == OMM_OK) {
        widen_all(copy.data, copy.size);
        err = parse(out, omm_buf_view(&copy), name, flags);
    }
    omm_buf_fini(&copy);
    return err;
}

omm_err omm_json_parse_wide(json_t **out, bool *is_wide, omm_bytes text, const char *name) {
    return parse_wide(out, is_wide, text, name, JSON_REJECT_DUPLICATES);
}

static omm_err parse_asked(json_t **out, omm_bytes text, const char *name) {
    bool is_wide = false;
    return parse_wide(out, &is_wide, text, name, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL);
}

omm_err omm_json_parse_asked(json_t **out, omm_bytes text, const char *const *texts,
                             const char *name) {
    omm_buf copy;
    const omm_err err = parse_asked(out, text, name);
    if (err != OMM_ERR_FORMAT || text.size == 0) return err;
    omm_buf_init(&copy, text.size);
    omm_err again = omm_buf_append(&copy, text.data, text.size);
    if (again == OMM_OK)
        again = json_mend_surrogates(copy.data, copy.size, texts) > 0
                    ? parse_asked(out, omm_buf_view(&copy), name)
                    : err;
    omm_buf_fini(&copy);
    return again;
}

bool omm_json_has_nul(json_t *value) {
    const char *key = NULL;
    json_t *one = NULL;
    size_t i = 0;
    if (json_is_string(value)) return strlen(json_string_value(value)) < json_string_length(value);
    json_array_foreach(value, i, one) {
        if (omm_json_has_nul(one)) return true;
    }
    json_object_foreach(value, key, one) {
        if (omm_json_has_nul(one)) return true;
    }
    return false;
}

omm_err omm_json_parse_last(json_t **out, omm_bytes text, const char *name) {
    return parse(out, text, name, 0);
}

omm_err omm_json_load(json_t **out, const char *path, size_t bytes_max) {
    omm_buf text;
    omm_buf_init(&text, bytes_max);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_json_parse(out, omm_buf_view(&text), path);
    omm_buf_fini(&text);
    return err;
}

/* --- write --- */

typedef struct writer {
    omm_buf *out;
    omm_err err;
} writer;

static int write_piece(const char *data, size_t size, void *ud) {
    writer *w = ud;
    /* jansson goes on after a failure while it writes a key, so the first one must stick. */
    if (w->err == OMM_OK) w->err = omm_buf_append(w->out, data, size);
    return w->err == OMM_OK ? 0 : -1;
}

static omm_err write_with(omm_buf *out, const json_t *value, size_t flags) {
    writer w = {out, OMM_OK};
    size_t size_before = out->size;
    int rc = value ? json_dump_callback(value, write_piece, &w, WRITE_FLAGS | flags) : -1;
    if (rc == 0 && w.err == OMM_OK) w.err = omm_buf_append(out, "\n", 1);
    if (rc != 0 && w.err == OMM_OK)
        w.err = omm_raise(OMM_ERR_FORMAT, "value has no JSON spelling: %s",
                          value ? "it contains itself" : "NULL");
    if (w.err != OMM_OK) out->size = size_before;
    return w.err;
}

omm_err omm_json_write(omm_buf *out, const json_t *value) {
    return write_with(out, value, JSON_COMPACT);
}

omm_err omm_json_write_pretty(omm_buf *out, const json_t *value) {
    return write_with(out, value, JSON_INDENT(2));
}

/* A decimal point where it is small enough to be read, else d.ddde+XX: 1e+16, 1e-05. */
static omm_err write_real(omm_buf *out, double value) {
    char digits[32], *exponent = NULL;
    int precision = 0;
    do { /* 17 digits give every double back */
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    } while (strtod(digits, NULL) != value && ++precision < 17);
    exponent = strchr(digits, 'e');
    const int e = (int)strtol(exponent + 1, NULL, 10);
    if (e < -4 || e >= 16) return omm_buf_printf(out, "%s", digits);
    const int decimals = precision - e;
    return omm_buf_printf(out, "%.*f", decimals > 1 ? decimals : 1, value);
}

/* \u001B to \u001b: jansson has capitals there, Python has none. */
static void lower_escapes(uint8_t *text, size_t size) {
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] != '\\') continue;
        for (size_t k = i + 2; text[i + 1] == 'u' && k < i + 6 && k < size; k++)
            if (text[k] >= 'A' && text[k] <= 'F') text[k] |= 0x20;
        i++;
    }
}

/* What jansson spells as everybody does, or nearly: texts, whole numbers, true, false, null. */
static omm_err write_plain(omm_buf *out, const json_t *value) {
    const size_t from = out->size;
    writer w = {out, OMM_OK};
    if (json_dump_callback(value, write_piece, &w, JSON_ENCODE_ANY) != 0 && w.err == OMM_OK)
        return omm_raise(OMM_ERR_FORMAT, "value has no JSON spelling");
    if (w.err == OMM_OK && json_is_string(value)) lower_escapes(out->data + from, out->size - from);
    return w.err;
}

/* Where a value stands: inside so many others, each entry on a line that many spaces in for each; 0: all on one line. */
typedef struct place {
    unsigned depth, indent;
} place;

static omm_err write_at(omm_buf *out, json_t *value, place at);

/* In front of an entry, or (ends) of the bracket behind the last one. */
static omm_err write_break(omm_buf *out, place at, bool first, bool ends) {
    if (!first && !ends) OMM_TRY(omm_buf_append(out, ",", 1));
    if (at.indent == 0) return first || ends ? OMM_OK : omm_buf_append(out, " ", 1);
    const unsigned depth = ends ? at.depth - 1 : at.depth;
    OMM_TRY(omm_buf_append(out, "\n", 1));
    for (unsigned i = 0; i < depth * at.indent; i++) OMM_TRY(omm_buf_append(out, " ", 1));
    return OMM_OK;
}

static omm_err write_array(omm_buf *out, const json_t *array, place at) {
    OMM_TRY(omm_buf_append(out, "[", 1));
    for (size_t i = 0; i < json_array_size(array); i++) {
        OMM_TRY(write_break(out, at, i == 0, false));
        OMM_TRY(write_at(out, json_array_get(array, i), at));
    }
    if (json_array_size(array) > 0) OMM_TRY(write_break(out, at, false, true));
    return omm_buf_append(out, "]", 1);
}

static omm_err write_object(omm_buf *out, json_t *object, place at) {
    const char *key = NULL;
    bool first = true;
    json_t *value = NULL;
    OMM_TRY(omm_buf_append(out, "{", 1));
    json_object_foreach(object, key, value) {
        OMM_TRY(write_break(out, at, first, false));
        json_t *name = json_string(key);
        const omm_err err = write_plain(out, name);
        json_decref(name);
        OMM_TRY(err);
        OMM_TRY(omm_buf_append(out, ": ", 2));
        OMM_TRY(write_at(out, value, at));
        first = false;
    }
    if (!first) OMM_TRY(write_break(out, at, false, true));
    return omm_buf_append(out, "}", 1);
}

static omm_err write_at(omm_buf *out, json_t *value, place at) {
    const place inside = {at.depth + 1, at.indent};
    if (at.depth > DEPTH_MAX) return omm_raise(OMM_ERR_FORMAT, "JSON: nested too deep");
    if (json_is_array(value)) return write_array(out, value, inside);
    if (json_is_object(value)) return write_object(out, value, inside);
    if (json_is_real(value)) return write_real(out, json_real_value(value));
    return write_plain(out, value);
}

omm_err omm_json_write_indented(omm_buf *out, json_t *value, unsigned indent) {
    const size_t size_before = out->size;
    const omm_err err = value ? write_at(out, value, (place){0, indent})
                              : omm_raise(OMM_ERR_FORMAT, "NULL has no JSON spelling");
    if (err != OMM_OK) out->size = size_before;
    return err;
}

omm_err omm_json_write_spaced(omm_buf *out, json_t *value) {
    return omm_json_write_indented(out, value, 0);
}

omm_err omm_json_save(const char *path, const json_t *value) {
    omm_buf text;
    omm_buf_init(&text, SIZE_MAX);
    omm_err err = omm_json_write_pretty(&text, value);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&text), 0644);
    omm_buf_fini(&text);
    return err;
}

/* --- members in --- */

omm_err omm_json_set(json_t *object, const char *key, json_t *taken) {
    if (json_object_set_new(object, key, taken) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "member \"%s\": not a JSON value, or the key is not UTF-8",
                     key);
}

omm_err omm_json_set_str(json_t *object, const char *key, const char *text) {
    return omm_json_set(object, key, json_string(text));
}

json_t *omm_json_text(const char *text) {
    const size_t size = strlen(text) + 1;
    char *mended = omm_alloc(size, 1);
    if (!mended) return NULL;
    memcpy(mended, text, size);
    omm_utf8_mend(mended);
    json_t *made = json_string(mended);
    omm_free(mended);
    return made;
}

omm_err omm_json_set_int(json_t *object, const char *key, int64_t value) {
    return omm_json_set(object, key, json_integer(value));
}

omm_err omm_json_set_real(json_t *object, const char *key, double value) {
    if (!isfinite(value))
        return omm_raise(OMM_ERR_NUMERIC, "member \"%s\": not a finite number", key);
    return omm_json_set(object, key, json_real(value));
}

omm_err omm_json_set_bool(json_t *object, const char *key, bool value) {
    return omm_json_set(object, key, json_boolean(value));
}

omm_err omm_json_set_digest(json_t *object, const char *key, const uint8_t digest[32]) {
    char hex[65];
    omm_hex(hex, omm_bytes_of(digest, 32));
    return omm_json_set_str(object, key, hex);
}

/* --- members out --- */

static const char *kind_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a real number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static omm_err get_member(json_t **out, const json_t *object, const char *key) {
    if (!json_is_object(object))
        return omm_raise(OMM_ERR_FORMAT, "member \"%s\": looked for in %s, not an object", key,
                         object ? kind_name(object) : "nothing");
    *out = json_object_get(object, key);
    if (!*out) return omm_raise(OMM_ERR_NOT_FOUND, "member \"%s\" is missing", key);
    return OMM_OK;
}

static omm_err raise_kind(const char *key, const char *want, const json_t *found) {
    return omm_raise(OMM_ERR_FORMAT, "member \"%s\": want %s, found %s", key, want,
                     kind_name(found));
}

omm_err omm_json_get_str(const char **out, const json_t *object, const char *key) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_string(value)) return raise_kind(key, "a string", value);
    *out = json_string_value(value);
    return OMM_OK;
}

omm_err omm_json_get_int(int64_t *out, const json_t *object, const char *key, int64_t min,
                         int64_t max) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_integer(value)) return raise_kind(key, "an integer", value);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return omm_raise(OMM_ERR_FORMAT,
                         "member \"%s\": %" PRId64 " is not from %" PRId64 " to %" PRId64, key,
                         number, min, max);
    *out = number;
    return OMM_OK;
}

omm_err omm_json_get_real(double *out, const json_t *object, const char *key) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_number(value)) return raise_kind(key, "a number", value);
    *out = json_number_value(value);
    return OMM_OK;
}

omm_err omm_json_get_bool(bool *out, const json_t *object, const char *key) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_boolean(value)) return raise_kind(key, "true or false", value);
    *out = json_is_true(value);
    return OMM_OK;
}

omm_err omm_json_get_object(json_t **out, const json_t *object, const char *key) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_object(value)) return raise_kind(key, "an object", value);
    *out = value;
    return OMM_OK;
}

omm_err omm_json_get_array(json_t **out, const json_t *object, const char *key) {
    json_t *value;
    OMM_TRY(get_member(&value, object, key));
    if (!json_is_array(value)) return raise_kind(key, "an array", value);
    *out = value;
    return OMM_OK;
}

omm_err omm_json_get_digest(uint8_t out[32], const json_t *object, const char *key) {
    const char *hex;
    OMM_TRY(omm_json_get_str(&hex, object, key));
    if (omm_unhex(out, 32, hex) == OMM_OK) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "member \"%s\": want 64 lower-case hex digits", key);
}
