/* config_scalar.c - scalar values of a configuration: text to C value, bounds, and their words. */
#include "config_internal.h"

#include "omm/nearest.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- words --- */

void config_text_add(config_text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->out + t->used, t->size - t->used, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    size_t room = t->size - t->used - 1;
    t->used += (size_t)n < room ? (size_t)n : room;
}

static void add_names(config_text *t, const char *name, size_t index) {
    config_text_add(t, "%s%s", index > 0 ? ", " : "", name);
}

void config_keys(char out[CONFIG_ACCEPTED_SIZE], const omm_config_field *fields) {
    config_text t = {out, CONFIG_ACCEPTED_SIZE, 0};
    out[0] = '\0';
    for (size_t i = 0; fields[i].kind != OMM_CONFIG_KIND_END; i++) add_names(&t, fields[i].key, i);
}

/* " from 1 to 256", " of at least 1" or nothing; `type_max` is what the C type holds. */
static void add_range(config_text *t, const omm_config_field *f, double type_max) {
    char low[32];
    char high[32];
    bool bounded = f->min != 0 || f->max != 0;
    double max = bounded && f->max >= f->min && f->max < type_max ? f->max : type_max;
    config_real_text(low, f->min);
    config_real_text(high, max);
    if (isfinite(max))
        config_text_add(t, " from %s to %s", low, high);
    else if (bounded)
        config_text_add(t, " of at least %s", low);
}

/* "text of 1 to 64 bytes" */
static void add_count(config_text *t, const omm_config_field *f, const char *what,
                      const char *unit) {
    config_text_add(t, "%s", what);
    if (f->min == 0 && f->max == 0) return;
    if (f->max < f->min)
        config_text_add(t, " of at least %.0f %s", f->min, unit);
    else if (f->max == f->min)
        config_text_add(t, " of %.0f %s", f->min, unit);
    else
        config_text_add(t, " of %.0f to %.0f %s", f->min, f->max, unit);
}

void config_accepted(char out[CONFIG_ACCEPTED_SIZE], const omm_config_field *field) {
    config_text t = {out, CONFIG_ACCEPTED_SIZE, 0};
    out[0] = '\0';
    switch (field->kind) {
    case OMM_CONFIG_KIND_END: break;
    case OMM_CONFIG_KIND_BOOL: config_text_add(&t, "true, false"); break;
    case OMM_CONFIG_KIND_U32:
        config_text_add(&t, "integer");
        add_range(&t, field, UINT32_MAX);
        break;
    case OMM_CONFIG_KIND_U64:
        config_text_add(&t, "integer");
        add_range(&t, field, HUGE_VAL);
        break;
    case OMM_CONFIG_KIND_REAL:
        config_text_add(&t, "number");
        add_range(&t, field, HUGE_VAL);
        break;
    case OMM_CONFIG_KIND_STRING: add_count(&t, field, "text", "bytes"); break;
    case OMM_CONFIG_KIND_ENUM:
        for (size_t i = 0; field->choices[i]; i++) add_names(&t, field->choices[i], i);
        break;
    case OMM_CONFIG_KIND_MAP:
        config_keys(out, field->sub);
        char keys[CONFIG_ACCEPTED_SIZE];
        memcpy(keys, out, sizeof keys);
        config_text_add(&t, "mapping with keys %s", keys);
        break;
    case OMM_CONFIG_KIND_LIST: add_count(&t, field, "list", "items"); break;
    }
}

const char *config_nearest(const omm_config_field *fields, const char *key) {
    omm_nearest n = omm_nearest_begin(key);
    for (; fields->kind != OMM_CONFIG_KIND_END; fields++) omm_nearest_offer(&n, fields->key);
    return n.name;
}

/* --- numbers, always in the C locale: chat's line editor may set another --- */

static double real_of_text(const char *text) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    OMM_ASSERT(c != (locale_t)0); /* a constant of glibc, not an allocation */
    double value = strtod_l(text, NULL, c);
    freelocale(c);
    return value;
}

void config_real_text(char out[32], double value) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    OMM_ASSERT(c != (locale_t)0);
    locale_t before = uselocale(c);
    if (fabs(value) < 0x1p63 && value == (double)(int64_t)value) {
        snprintf(out, 32, "%.0f", value);
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(out, 32, "%.*g", digits, value);
            if (real_of_text(out) == value) break;
        }
    }
    uselocale(before);
    freelocale(c);
}

bool config_in_bounds(const omm_config_field *f, double value) {
    if (f->min == 0 && f->max == 0) return true;
    return value >= f->min && (f->max < f->min || value <= f->max);
}

static size_t digits_of(const char *text) {
    return strspn(text, "0123456789");
}

static const char *parse_integer(uint64_t *out, const char *text, uint64_t max) {
    const char *digits = text + (text[0] == '-');
    size_t size = digits_of(digits);
    if (size == 0 || digits[size] != '\0' || (digits[0] == '0' && size > 1)) return "is no integer";
    if (digits != text) return "is out of range";
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned digit = (unsigned)(digits[i] - '0');
        if (value > (max - digit) / 10) return "is out of range";
        value = value * 10 + digit;
    }
    *out = value;
    return NULL;
}

/* As JSON writes numbers: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static bool is_number(const char *text) {
    const char *p = text + (text[0] == '-');
    size_t size = digits_of(p);
    if (size == 0 || (p[0] == '0' && size > 1)) return false;
    p += size;
    if (*p == '.') {
        size = digits_of(++p);
        if (size == 0) return false;
        p += size;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '+' || *p == '-') p++;
        size = digits_of(p);
        if (size == 0) return false;
        p += size;
    }
    return *p == '\0';
}

/* --- one scalar --- */

static const char *set_integer(void *at, const omm_config_field *f, const char *text) {
    bool wide = f->kind == OMM_CONFIG_KIND_U64;
    uint64_t value = 0;
    const char *wrong = parse_integer(&value, text, wide ? INT64_MAX : UINT32_MAX);
    if (wrong) return wrong;
    if (!config_in_bounds(f, (double)value)) return "is out of range";
    if (f->max >= f->min && f->max > 0 && value > (uint64_t)f->max) /* a real rounds 2^53 + 1 */
        return "is out of range";
    uint32_t narrow = (uint32_t)value;
    memcpy(at, wide ? (const void *)&value : (const void *)&narrow, wide ? 8 : 4);
    return NULL;
}

static const char *set_real(void *at, const omm_config_field *f, const char *text) {
    if (!is_number(text)) return "is no number";
    double value = real_of_text(text);
    if (!isfinite(value) || !config_in_bounds(f, value)) return "is out of range";
    memcpy(at, &value, sizeof value);
    return NULL;
}

static const char *set_bool(void *at, const char *text) {
    bool value = strcmp(text, "true") == 0;
    if (!value && strcmp(text, "false") != 0) return "is neither true nor false";
    memcpy(at, &value, sizeof value);
    return NULL;
}

static const char *set_enum(void *at, const omm_config_field *f, const char *text) {
    for (int i = 0; f->choices[i]; i++) {
        if (strcmp(text, f->choices[i]) != 0) continue;
        memcpy(at, &i, sizeof i);
        return NULL;
    }
    return "is not a choice";
}

static const char *set_string(void *at, const omm_config_field *f, const char *text,
                              omm_arena *arena, bool *no_memory) {
    double size = (double)strlen(text);
    if (!config_in_bounds(f, size)) return size < f->min ? "is too short" : "is too long";
    const char *copy = omm_arena_strdup(arena, text);
    if (!copy) {
        *no_memory = true;
        return "does not fit into memory";
    }
    memcpy(at, &copy, sizeof copy);
    return NULL;
}

const char *config_scalar_set(void *at, const omm_config_field *field, const char *text,
                              omm_arena *arena, bool *no_memory) {
    switch (field->kind) {
    case OMM_CONFIG_KIND_BOOL: return set_bool(at, text);
    case OMM_CONFIG_KIND_U32:
    case OMM_CONFIG_KIND_U64: return set_integer(at, field, text);
    case OMM_CONFIG_KIND_REAL: return set_real(at, field, text);
    case OMM_CONFIG_KIND_STRING: return set_string(at, field, text, arena, no_memory);
    case OMM_CONFIG_KIND_ENUM: return set_enum(at, field, text);
    case OMM_CONFIG_KIND_MAP: return "is no mapping";
    case OMM_CONFIG_KIND_LIST: return "is no list";
    case OMM_CONFIG_KIND_END: break;
    }
    return "has no place";
}
