/* grammar_place.c - what $ref names: a JSON pointer in a URI (RFC 6901, section 6). */
#include "grammar_internal.h"

#include <stdlib.h>

#define STEP_BYTES_MAX 400u

static int percent_value(const char *p, size_t left) {
    if (left < 3 || *p != '%') return -1;
    const int high = pattern_hex_value((uint8_t)p[1]), low = pattern_hex_value((uint8_t)p[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* In place, of one pass: %XX to its byte, or ~1 and ~0 to / and ~.  Returns the new size. */
static size_t unescape(char *name, size_t size, bool percent) {
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        const int byte = percent ? percent_value(name + i, size - i) : -1;
        const bool tilde = !percent && name[i] == '~' && i + 1 < size;
        if (byte >= 0) {
            name[kept++] = (char)byte;
            i += 2;
        } else if (tilde) {
            i++;
            name[kept++] = "~/"[name[i] == '1'];
        } else {
            name[kept++] = name[i];
        }
    }
    name[kept] = '\0';
    return kept;
}

/* What a step, up to the next / or the end, names; NULL: nothing. */
static json_t *step_into(const json_t *in, const char *step, size_t size) {
    char name[STEP_BYTES_MAX];
    if (size >= sizeof name) return NULL;
    memcpy(name, step, size);
    size = unescape(name, unescape(name, size, true), false);
    if (json_is_object(in)) return strlen(name) == size ? json_object_get(in, name) : NULL;
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
    if (!ref || ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) return NULL;
    for (const char *p = ref + 1; at && *p;) {
        const size_t size = strcspn(p + 1, "/");
        if (grammar_has_base(root, at)) return NULL; /* another schema's inside */
        at = step_into(at, p + 1, size);
        p += 1 + size;
    }
    return at;
}
