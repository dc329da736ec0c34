/* grammar_place.c - what $ref names: a JSON pointer in a URI (RFC 6901, section 6): bytes of the URI first, so that %2F is a
 * step's end as / is, and in a name ~1. */
#include "grammar_internal.h"

#include <stdlib.h>

#define STEP_BYTES_MAX 400u

static int percent_value(const char *p, size_t left) {
    if (left < 3 || *p != '%') return -1;
    const int high = pattern_hex_value((uint8_t)p[1]), low = pattern_hex_value((uint8_t)p[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* *p, behind a %XX the byte that it is, and *p goes on; -1: the end. */
static int next_byte(const char **p) {
    const char *at = *p;
    if (*at == '\0') return -1;
    const int byte = percent_value(at, strnlen(at, 3));
    *p += byte >= 0 ? 3 : 1;
    return byte >= 0 ? byte : (uint8_t)*at;
}

/* A name of the pointer that the URI has, with / and ~ for ~1 and ~0, up to the next / or the end.  *p: behind it.  False: it
 * names nothing. */
static bool take_step(char *name, size_t *size, const char **p) {
    *size = 0;
    for (const char *from = *p;; from = *p) {
        int byte = next_byte(p);
        if (byte < 0) break;
        if (byte == '/') {
            *p = from; /* the next step begins here */
            break;
        }
        if (byte == '~') {
            const int which = next_byte(p);
            if (which != '0' && which != '1') return false;
            byte = which == '1' ? '/' : '~';
        }
        if (byte == 0 || *size + 1 == STEP_BYTES_MAX) return false;
        name[(*size)++] = (char)byte;
    }
    name[*size] = '\0';
    return true;
}

static json_t *step_into(const json_t *in, const char *name, size_t size) {
    if (json_is_object(in)) return json_object_get(in, name);
    if (size == 0 || size > 6 || strspn(name, "0123456789") != size) return NULL;
    return json_array_get(in, strtoul(name, NULL, 10));
}

/* An anchor, as it was written before 2019, is none. */
bool grammar_has_base(const json_t *root, const json_t *schema) {
    const char *id = json_string_value(json_object_get(schema, "$id"));
    return schema != root && id && id[0] != '\0' && id[0] != '#';
}

json_t *grammar_place(json_t *root, const char *ref) {
    json_t *at = root;
    char name[STEP_BYTES_MAX];
    size_t size = 0;
    if (!ref || ref[0] != '#' ||
        strnlen(ref, GRAMMAR_POINTER_BYTES_MAX + 1) > GRAMMAR_POINTER_BYTES_MAX)
        return NULL;
    for (const char *p = ref + 1; at && *p;) {
        if (grammar_has_base(root, at)) return NULL; /* another schema's inside */
        if (next_byte(&p) != '/' || !take_step(name, &size, &p)) return NULL;
        at = step_into(at, name, size);
    }
    return at;
}
