/* checks.c - compares words with words; knows nothing of their meaning. */
#include "checks.h"

#include "text.h"

#include <string.h>
#include <strings.h>

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

static bool same(omm_bytes a, omm_bytes b) {
    return a.size == b.size && strncasecmp((const char *)a.data, (const char *)b.data, a.size) == 0;
}

static bool has_word(omm_bytes text, omm_bytes word) {
    omm_bytes other = {0};
    while (text_next_word(&other, &text))
        if (same(other, word)) return true;
    return false;
}

bool checks_has_word(omm_bytes text, const char *word) {
    return has_word(text, omm_bytes_str(word));
}

static bool is_said(omm_bytes word, const omm_message *turns, size_t count, bool by_assistant) {
    for (size_t i = 0; i < count; i++) {
        if (turns[i].role == OMM_ROLE_ASSISTANT && !by_assistant) continue;
        if (has_word(turns[i].content, word)) return true;
    }
    return false;
}

/* At the start of a sentence or quotation every word is capitalised. */
static bool opens_sentence(omm_bytes text, omm_bytes word) {
    const uint8_t *p = word.data;
    while (p > text.data && (p[-1] == ' ' || p[-1] == '\n' || p[-1] == '"')) p--;
    return p == text.data || strchr(".!?:", p[-1]) != NULL;
}

static bool is_wanted(omm_bytes text, omm_bytes word, checks_words which) {
    if (is_digit(word.data[0])) return true;
    if (which == CHECKS_NUMBERS || text_is_light(word)) return false;
    if (which == CHECKS_ALL) return true;
    bool capital = word.data[0] >= 'A' && word.data[0] <= 'Z';
    return capital && !opens_sentence(text, word);
}

omm_err checks_put_unsaid(omm_buf *out, omm_bytes text, checks_words which,
                          const omm_message *turns, size_t count, bool by_assistant) {
    size_t start = out->size;
    omm_bytes rest = text;
    omm_bytes word = {0};
    while (text_next_word(&word, &rest)) {
        if (!is_wanted(text, word, which) || is_said(word, turns, count, by_assistant)) continue;
        if (out->size > start && has_word(omm_bytes_of(out->data + start, out->size - start), word))
            continue;
        OMM_TRY(omm_buf_printf(out, "%s\"", out->size > start ? ", " : ""));
        OMM_TRY(omm_buf_append(out, word.data, word.size));
        OMM_TRY(omm_buf_append(out, "\"", 1));
    }
    return OMM_OK;
}
