/* text.c - owns what counts as plain text and as a word here. */
#include "text.h"

#include "omm/utf8.h"

#include <string.h>
#include <strings.h>

/* ---- characters ---------------------------------------------------------------------------- */

static size_t char_size(omm_bytes text) {
    return omm_utf8_size(text.data, text.size);
}

/* C0, delete and, in two bytes, C1: terminals act on all of them. */
static bool is_control(omm_bytes text, size_t size) {
    if (size == 1) return text.data[0] < 0x20 || text.data[0] == 0x7f;
    return size == 2 && text.data[0] == 0xc2 && text.data[1] < 0xa0;
}

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static omm_bytes skip(omm_bytes text, size_t size) {
    return omm_bytes_of(text.data + size, text.size - size);
}

/* Line and paragraph separators, and what turns the direction of all that stands behind it: 2028 to 202e, 2066 to 2069. */
static bool is_layout(omm_bytes text, size_t size) {
    if (size != 3 || text.data[0] != 0xe2) return false;
    const uint8_t last = text.data[2];
    return (text.data[1] == 0x80 && last >= 0xa8 && last <= 0xae) ||
           (text.data[1] == 0x81 && last >= 0xa6 && last <= 0xa9);
}

bool text_is_plain(omm_bytes text) {
    while (text.size > 0) {
        size_t size = char_size(text);
        if (size == 0 || (is_control(text, size) && !is_space(text.data[0]))) return false;
        text = skip(text, size);
    }
    return true;
}

static omm_err fold(omm_buf *out, omm_bytes text) {
    size_t start = out->size;
    bool gap = false;
    for (size_t i = 0; i < text.size; i++) {
        if (is_space(text.data[i])) {
            gap = true;
            continue;
        }
        if (gap && out->size > start) OMM_TRY(omm_buf_append(out, " ", 1));
        gap = false;
        OMM_TRY(omm_buf_append(out, &text.data[i], 1));
    }
    return OMM_OK;
}

omm_err text_fold(omm_buf *out, omm_bytes text) {
    size_t before = out->size;
    omm_err err = fold(out, text);
    if (err != OMM_OK) out->size = before;
    return err;
}

omm_err omm_text_clean(omm_buf *out, omm_bytes text) {
    size_t before = out->size;
    while (text.size > 0) {
        size_t size = char_size(text);
        bool kept = size > 0 && !is_layout(text, size) &&
                    (!is_control(text, size) || text.data[0] == '\n' || text.data[0] == '\t');
        if (size == 0) size = 1;
        omm_err err = kept ? omm_buf_append(out, text.data, size) : omm_buf_append(out, "?", 1);
        if (err != OMM_OK) {
            out->size = before;
            return err;
        }
        text = skip(text, size);
    }
    return OMM_OK;
}

/* ---- Words --------------------------------------------------------------------------------- */

static const char *const s_light[] = {
    "a",  "an",   "the",  "of",   "is",   "are",   "was",  "were", "be",  "my",  "me",
    "i",  "you",  "your", "in",   "on",   "at",    "to",   "for",  "and", "or",  "about",
    "it", "its",  "this", "that", "what", "where", "when", "who",  "how", "why", "which",
    "do", "does", "did",  "with", "say",  "there", "from", "by",   "as",  "has", "have",
};

static bool equals(omm_bytes a, const char *b) {
    return a.size == strlen(b) && strncasecmp((const char *)a.data, b, a.size) == 0;
}

bool text_is_light(omm_bytes term) {
    for (size_t i = 0; i < sizeof s_light / sizeof s_light[0]; i++)
        if (equals(term, s_light[i])) return true;
    return false;
}

/* Bytes of the word character at the start of `text`, or 0.  Beyond ASCII all count but the signs of
 * Latin-1 and General Punctuation: the index would make no word of them, and a query for them would
 * find nothing. */
static size_t word_char_size(omm_bytes text) {
    size_t size = char_size(text);
    uint8_t c = size > 0 ? text.data[0] : 0;
    if (size > 1) {
        bool is_sign = c == 0xc2 || (c == 0xe2 && (text.data[1] == 0x80 || text.data[1] == 0x81));
        return is_sign ? 0 : size;
    }
    bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return is_word ? 1 : 0;
}

static size_t word_size(omm_bytes text) {
    size_t size = 0;
    for (size_t more = word_char_size(text); more > 0;) {
        size += more;
        more = word_char_size(skip(text, size));
    }
    return size;
}

bool text_next_word(omm_bytes *word, omm_bytes *rest) {
    while (rest->size > 0) {
        *word = omm_bytes_of(rest->data, word_size(*rest));
        size_t step = char_size(*rest);
        *rest = skip(*rest, word->size > 0 ? word->size : step > 0 ? step : 1);
        if (word->size > 0) return true;
    }
    return false;
}

static bool is_known(const text_terms *terms, omm_bytes term) {
    for (size_t i = 0; i < terms->count; i++)
        if (terms->terms[i].size == term.size &&
            strncasecmp((const char *)terms->terms[i].data, (const char *)term.data, term.size) ==
                0)
            return true;
    return false;
}

static omm_err take(text_terms *out, omm_bytes query, bool light) {
    *out = (text_terms){0};
    omm_bytes term = {0};
    while (text_next_word(&term, &query)) {
        if ((!light && text_is_light(term)) || is_known(out, term)) continue;
        if (out->count == TEXT_TERMS_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "a query has at most %u words", TEXT_TERMS_MAX);
        out->terms[out->count++] = term;
    }
    return OMM_OK;
}

omm_err text_take_terms(text_terms *out, omm_bytes query) {
    text_terms terms;
    if (query.size > TEXT_QUERY_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "query of %zu bytes, at most %u", query.size,
                         TEXT_QUERY_BYTES_MAX);
    if (!text_is_plain(query))
        return omm_raise(OMM_ERR_FORMAT, "the query is not plain UTF-8 text");
    OMM_TRY(take(&terms, query, false));
    if (terms.count == 0) OMM_TRY(take(&terms, query, true));
    if (terms.count == 0) return omm_raise(OMM_ERR_FORMAT, "the query has no word");
    *out = terms;
    return OMM_OK;
}

/* "a" AND "b" AND ..., without term `left_out`.  Terms hold no quote, so nothing is to be doubled. */
static omm_err put_all(omm_buf *out, const text_terms *terms, size_t left_out) {
    bool first = true;
    OMM_TRY(omm_buf_printf(out, "("));
    for (size_t i = 0; i < terms->count; i++) {
        if (i == left_out) continue;
        OMM_TRY(omm_buf_printf(out, "%s\"", first ? "" : " AND "));
        OMM_TRY(omm_buf_append(out, terms->terms[i].data, terms->terms[i].size));
        OMM_TRY(omm_buf_append(out, "\"", 1));
        first = false;
    }
    return omm_buf_printf(out, ")");
}

omm_err text_put_match(omm_buf *out, const text_terms *terms, bool miss_one) {
    if (!miss_one || terms->count < 3) return put_all(out, terms, SIZE_MAX);
    for (size_t i = 0; i < terms->count; i++) {
        if (i > 0) OMM_TRY(omm_buf_printf(out, " OR "));
        OMM_TRY(put_all(out, terms, i));
    }
    return OMM_OK;
}
