/* utf8.c - see utf8.h. */
#include "omm/utf8.h"

#include <stdbool.h>
#include <string.h>

unsigned omm_utf8_size(const uint8_t *p, size_t left) {
    if (left == 0) return 0;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return 0; /* continuation, overlong, or beyond U+10FFFF */
    unsigned size = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (size > left) return 0;
    for (unsigned i = 1; i < size; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90)) return 0; /* overlong */
    if (p[0] == 0xed && p[1] > 0x9f) return 0;                                    /* surrogate */
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0; /* beyond U+10FFFF */
    return size;
}

size_t omm_utf8_count(omm_bytes text) {
    size_t count = 0;
    for (size_t at = 0, n = 0; at < text.size; at += n ? n : 1, count++)
        n = omm_utf8_size(text.data + at, text.size - at);
    return count;
}

/* C1 is c2 80 to c2 9f. */
void omm_utf8_clean(char *out, size_t size, const char *text) {
    size_t n = 0;
    for (const char *p = text; *p && n + 1 < size; p++) {
        const unsigned char c = (unsigned char)*p, next = (unsigned char)p[1];
        const bool is_c1 = c == 0xc2 && next >= 0x80 && next <= 0x9f;
        out[n] = *p;
        if (c < 0x20 || c == 0x7f || is_c1) out[n] = '?';
        n++;
        p += is_c1;
    }
    out[n] = '\0';
}

void omm_utf8_mend(char *text) {
    const size_t size = strlen(text);
    uint8_t *bytes = (uint8_t *)text;
    for (size_t at = 0; at < size;) {
        const unsigned n = omm_utf8_size(bytes + at, size - at);
        if (n == 0) bytes[at] = '?';
        at += n ? n : 1;
    }
}

omm_bytes omm_utf8_without_mark(omm_bytes text) {
    static const uint8_t mark[3] = {0xef, 0xbb, 0xbf};
    if (text.size < sizeof mark || memcmp(text.data, mark, sizeof mark) != 0) return text;
    return omm_bytes_of(text.data + sizeof mark, text.size - sizeof mark);
}
