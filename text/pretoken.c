/* pretoken.c - text is cut into words by regular expressions before BPE merges.
 *
 * Several expressions apply one after the other: matches and the gaps between them are the pieces of
 * the next; each piece is matched as if it were the whole text.  Which expressions: pretoken_table.c.
 */
#include "tokenizer_internal.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_FIXED = 10000, STEPS_PER_BYTE = 16 };

void omm_unicode_version(char out[OMM_UNICODE_SIZE]) {
    const int size = pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL);
    OMM_ASSERT(size > 0 &&
               (unsigned)size <= OMM_UNICODE_SIZE); /* PCRE2 says that it is at most 24 */
    (void)pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, out);
}

static void *context_malloc(PCRE2_SIZE size, void *ud) {
    (void)ud;
    return omm_alloc(1, size);
}

static void context_free(void *ptr, void *ud) {
    (void)ud;
    omm_free(ptr);
}

static bool is_listed(const char *names, omm_bytes name) {
    for (const char *p = names + 1; *p; p += strcspn(p, " ") + 1) {
        size_t size = strcspn(p, " ");
        if (size == name.size && memcmp(p, name.data, size) == 0) return true;
    }
    return false;
}

static omm_err unknown(omm_bytes name) {
    char list[1536] = "";
    size_t used = 0;
    for (size_t i = 0; i < pretoken_family_count; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s", pretoken_families[i].names + 1);
        used += (size_t)n < sizeof list - used ? (size_t)n : sizeof list - used - 1;
    }
    return omm_raise(OMM_ERR_UNSUPPORTED, "tokenizer.ggml.pre '%.*s' is not known; known are: %s",
                     name.size < 60 ? (int)name.size : 60, (const char *)name.data, list);
}

static omm_err compile(pretoken *p, unsigned stage, pcre2_compile_context *context) {
    int error = 0;
    PCRE2_SIZE at = 0;
    p->codes[stage] = pcre2_compile((PCRE2_SPTR)p->patterns[stage], PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_UCP, &error, &at, context);
    if (p->codes[stage]) return OMM_OK;
    OMM_ASSERT(error == PCRE2_ERROR_HEAP_FAILED); /* anything else is a bug in the table above */
    return omm_raise(OMM_ERR_NOMEM, "tokenizer: regular expression of %s", p->name);
}

omm_err pretoken_open(pretoken *p, omm_bytes name) {
    size_t i = 0;
    while (i < pretoken_family_count && !is_listed(pretoken_families[i].names, name)) i++;
    if (i == pretoken_family_count) return unknown(name);
    *p = pretoken_families[i].family;
    omm_err err = OMM_OK;
    p->context = pcre2_general_context_create(context_malloc, context_free, NULL);
    pcre2_compile_context *context = p->context ? pcre2_compile_context_create(p->context) : NULL;
    if (!context) err = omm_raise(OMM_ERR_NOMEM, "tokenizer: regular expressions");
    for (unsigned s = 0; err == OMM_OK && s < p->stage_count; s++) err = compile(p, s, context);
    pcre2_compile_context_free(context);
    if (err != OMM_OK) pretoken_close(p);
    return err;
}

void pretoken_close(pretoken *p) {
    for (unsigned s = 0; s < p->stage_count; s++) pcre2_code_free(p->codes[s]);
    pcre2_general_context_free(p->context);
    memset(p, 0, sizeof *p);
}

/* State of one pretoken_split. */
typedef struct splitter {
    const pretoken *pre;
    pcre2_match_data *data[PRETOKEN_STAGES_MAX];
    pcre2_match_context *limits;
    pretoken_each each;
    void *ud;
} splitter;

static omm_err split(splitter *s, unsigned stage, omm_bytes text); /* NOLINT(misc-no-recursion) */

static omm_err pass_on(splitter *s, unsigned stage, omm_bytes piece) {
    if (piece.size == 0) return OMM_OK;
    if (stage + 1 == s->pre->stage_count) return s->each(s->ud, piece);
    return split(s, stage + 1, piece);
}

/* Cut in front of each three characters of text[from .. to), counted from its end.  `at` is where the
 * piece begins that is not passed on yet. */
static omm_err cut_threes(splitter *s, unsigned stage, omm_bytes text, size_t *at, size_t from,
                          size_t to) {
    size_t left = 0;
    for (size_t i = from; i < to; i++) left += (text.data[i] & 0xc0) != 0x80;
    for (; left > 0; left--) {
        if (left % 3 == 0) {
            OMM_TRY(pass_on(s, stage, omm_bytes_of(text.data + *at, from - *at)));
            *at = from;
        }
        from += omm_utf8_size(text.data + from, text.size - from);
    }
    return OMM_OK;
}

/* First match at or after `start`; *to is 0 when there is none. */
static omm_err match(size_t *from, size_t *to, splitter *s, unsigned stage, omm_bytes text,
                     size_t start) {
    int n = pcre2_match(s->pre->codes[stage], text.data, text.size, start, PCRE2_NO_UTF_CHECK,
                        s->data[stage], s->limits);
    *to = 0;
    if (n == PCRE2_ERROR_NOMATCH) return OMM_OK;
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return omm_raise(OMM_ERR_NOMEM, "tokenizer: matching %zu bytes", text.size);
    if (n == PCRE2_ERROR_MATCHLIMIT || n == PCRE2_ERROR_DEPTHLIMIT)
        return omm_raise(OMM_ERR_TOO_BIG,
                         "tokenizer: expression %u of %s takes too long at byte %zu", stage + 1,
                         s->pre->name, start);
    OMM_ASSERT(n > 0);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->data[stage]);
    *from = span[0];
    *to = span[1];
    OMM_ASSERT(*to > *from); /* no expression matches nothing */
    return OMM_OK;
}

/* Cut `text` by expression `stage`; as deep as there are stages. */
static omm_err split(splitter *s, unsigned stage, omm_bytes text) {
    size_t at = 0; /* what is before has been passed on */
    size_t from = 0;
    size_t to = 0;
    bool threes = s->pre->threes >> stage & 1;
    bool joined = s->pre->joined >> stage & 1;
    bool drops = s->pre->drops_gaps;
    for (size_t start = 0; start < text.size; start = to) {
        OMM_TRY(match(&from, &to, s, stage, text, start));
        if (to == 0) break;
        if (!joined && !drops) OMM_TRY(pass_on(s, stage, omm_bytes_of(text.data + at, from - at)));
        if (!joined) at = from;
        if (threes) OMM_TRY(cut_threes(s, stage, text, &at, from, to));
        if (joined) continue;
        OMM_TRY(pass_on(s, stage, omm_bytes_of(text.data + at, to - at)));
        at = to;
    }
    return drops ? OMM_OK : pass_on(s, stage, omm_bytes_of(text.data + at, text.size - at));
}

/* Roman numerals and circled letters have case and are no letters, so PCRE2 leaves them. */
static void lower_numbers(uint8_t *p, size_t size) {
    for (size_t i = 0; i + 2 < size; i++) {
        const unsigned code = 0x2000u | (p[i + 1] & 0x3fu) << 6 | (p[i + 2] & 0x3fu);
        const bool roman = code >= 0x2160 && code <= 0x216f;
        const bool circled = code >= 0x24b6 && code <= 0x24cf;
        if (p[i] != 0xe2 || (!roman && !circled)) continue;
        const unsigned small = code + (roman ? 16 : 26);
        p[i + 1] = (uint8_t)(0x80 | (small >> 6 & 0x3f));
        p[i + 2] = (uint8_t)(0x80 | (small & 0x3f));
    }
}

omm_err pretoken_lower(omm_buf *out, const pretoken *p, omm_bytes text) {
    uint8_t *to = NULL;
    const size_t before = out->size;
    PCRE2_SIZE size = text.size + text.size / 2 + 1; /* U+023A of two bytes becomes three */
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(p->context);
    pcre2_code *all = context ? pcre2_compile((PCRE2_SPTR) "(?s).+", PCRE2_ZERO_TERMINATED,
                                              PCRE2_UTF | PCRE2_UCP, &error, &at, context)
                              : NULL;
    omm_err err = all ? omm_buf_extend(out, &to, size)
                      : omm_raise(OMM_ERR_NOMEM, "tokenizer: memory for small letters");
    if (err == OMM_OK) {
        int n = pcre2_substitute(all, text.data, text.size, 0,
                                 PCRE2_SUBSTITUTE_EXTENDED | PCRE2_NO_UTF_CHECK, NULL, NULL,
                                 (PCRE2_SPTR) "\\L$0", PCRE2_ZERO_TERMINATED, to, &size);
        if (n == PCRE2_ERROR_NOMEMORY)
            err = omm_raise(OMM_ERR_NOMEM, "tokenizer: small letters of %zu bytes", text.size);
        else
            OMM_ASSERT(n >= 0);
        out->size = err == OMM_OK ? before + size : before;
        if (err == OMM_OK) lower_numbers(to, size);
    }
    pcre2_code_free(all);
    pcre2_compile_context_free(context);
    return err;
}

omm_err pretoken_split(const pretoken *p, omm_bytes text, pretoken_each each, void *ud) {
    splitter s = {.pre = p, .each = each, .ud = ud};
    omm_err err = OMM_OK;
    s.limits = pcre2_match_context_create(p->context);
    for (unsigned i = 0; i < p->stage_count; i++) {
        s.data[i] = pcre2_match_data_create(1, p->context);
        if (!s.data[i]) err = OMM_ERR_NOMEM;
    }
    if (!s.limits || err != OMM_OK) {
        err = omm_raise(OMM_ERR_NOMEM, "tokenizer: memory to match");
    } else {
        /* A run of n characters backs up n times, in each alternative; the default limit would refuse
         * a long one.  No match needs more than a few steps per character. */
        uint64_t steps = STEPS_FIXED + STEPS_PER_BYTE * (uint64_t)text.size;
        if (steps > UINT32_MAX) steps = UINT32_MAX;
        pcre2_set_match_limit(s.limits, (uint32_t)steps);
        pcre2_set_depth_limit(s.limits, (uint32_t)steps);
        err = split(&s, 0, text);
    }
    for (unsigned i = 0; i < p->stage_count; i++) pcre2_match_data_free(s.data[i]);
    pcre2_match_context_free(s.limits);
    return err;
}
