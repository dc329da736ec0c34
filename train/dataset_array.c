/* dataset_array.c - where an element of a JSON array ends, without its values being read: brackets and strings
 * alone are followed, piece by piece, so an element may be longer than what is in memory. */
#include "dataset_internal.h"

#include <string.h>

static bool is_open(uint8_t c) {
    return c == '{' || c == '[';
}

static bool is_close(uint8_t c) {
    return c == '}' || c == ']';
}

/* Deeper than jansson reads (such an element is bad whatever closes what) brackets are only counted. */
static void go_in(element_walk *w, uint8_t c) {
    if (w->depth < ELEMENT_DEPTH_MAX) {
        const uint64_t bit = 1ULL << w->depth % 64;
        uint64_t *kinds = &w->kinds[w->depth / 64];
        *kinds = c == '{' ? *kinds | bit : *kinds & ~bit;
    }
    w->depth++;
}

static bool go_out(element_walk *w, uint8_t c) {
    w->depth--;
    if (w->depth < ELEMENT_DEPTH_MAX) {
        const bool is_object = w->kinds[w->depth / 64] >> w->depth % 64 & 1;
        if (is_object != (c == '}')) {
            w->wrong = is_object ? "']' closes a '{'" : "'}' closes a '['";
            return false;
        }
    }
    w->ended = w->depth == 0;
    return true;
}

/* No string of JSON has a line break in it, so one that seems to was not closed: what follows may be in strings or not. */
static bool step_string(element_walk *w, uint8_t c) {
    if (c == '\n') {
        w->wrong = "a line break inside of a string, which nothing closes before it";
        return false;
    }
    if (w->escaped)
        w->escaped = false;
    else if (c == '\\')
        w->escaped = true;
    else if (c == '"')
        w->in_string = false;
    w->ended = !w->in_string && w->depth == 0;
    return true;
}

/* A number or a word ends before what cannot be of it.  False: `c` is not of the element, or nothing that may stand there. */
static bool step(element_walk *w, uint8_t c) {
    if (w->in_string) return step_string(w, c);
    if (w->in_word && (is_open(c) || is_close(c) || c == '"' || c == ',' || data_is_space(c))) {
        w->ended = true;
        return false;
    }
    if (w->in_word) return true;
    if (c == '"')
        w->in_string = true;
    else if (is_open(c))
        go_in(w, c);
    else if (is_close(c) && w->depth > 0)
        return go_out(w, c);
    else if (w->depth == 0)
        w->in_word = true;
    return true;
}

size_t element_walk_on(element_walk *w, omm_bytes bytes) {
    size_t at = 0;
    while (at < bytes.size && !w->ended && !w->wrong) {
        if (!step(w, bytes.data[at])) break;
        at++;
    }
    return at;
}

/* --- which format ----------------------------------------------------------------------------- */

static size_t skip_space(omm_bytes text, size_t at) {
    while (at < text.size && data_is_space(text.data[at])) at++;
    return at;
}

bool array_begins(omm_bytes text, bool with_object) {
    size_t at = skip_space(text, 0);
    if (at == text.size || text.data[at] != '[') return false;
    at = skip_space(text, at + 1);
    return !with_object || (at < text.size && text.data[at] == '{');
}

bool array_next(omm_bytes *element, omm_bytes text, size_t *at) {
    element_walk w = {0};
    size_t begin = skip_space(text, *at);
    if (begin == text.size || text.data[begin] != (*at ? ',' : '[')) return false;
    begin = skip_space(text, begin + 1);
    const size_t size = element_walk_on(&w, omm_bytes_of(text.data + begin, text.size - begin));
    *element = omm_bytes_of(text.data + begin, size);
    *at = begin + size;
    return w.ended;
}
