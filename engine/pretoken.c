/* pretoken.c - the regular expressions that cut text into words before byte-level BPE merges.
 *
 * Each family has the expressions that its models publish and that the reference implementation
 * uses, with \s spelled out as Unicode White_Space (PCRE2's own \s has U+180E besides).  Several
 * expressions apply one after the other: matches and the gaps between them are the pieces of the
 * next; each piece is matched as if it were the whole text.
 */
#include "tokenizer_internal.h"

#include "omm/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define SPACE "[" WS "]"
#define NO_SPACE "[^" WS "]"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" SPACE "+(?!" NO_SPACE  \
    ")|" SPACE "+"
#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define CL100K(digits)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                               \
                 "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?!" NO_SPACE ")|" SPACE   \
                 "+"

static const struct {
    const char *names; /* values of tokenizer.ggml.pre, each between spaces */
    pretoken family;
} s_families[] = {
    {" gpt-2 phi-2 mpt olmo jais ", {.name = "gpt-2", .patterns = {GPT2}, .stage_count = 1}},
    {" starcoder refact command-r smollm codeshell exaone ",
     {.name = "starcoder", .patterns = {"\\p{N}", GPT2}, .stage_count = 2}},
    {" falcon ",
     {.name = "falcon",
      .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"},
      .stage_count = 3}},
    {" qwen2 stablelm2 deepseek-r1-qwen ",
     {.name = "qwen2", .patterns = {CL100K("\\p{N}")}, .stage_count = 1}},
    {" llama-bpe llama3 llama-v3 ",
     {.name = "llama3",
      .patterns = {CL100K("\\p{N}{1,3}")},
      .stage_count = 1,
      .whole_words = true,
      .adds_bos = true}},
    {" default ",
     {.name = "default",
      .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
      .stage_count = 4}},
};

enum { FAMILY_COUNT = sizeof s_families / sizeof s_families[0] };

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
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s", s_families[i].names + 1);
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
    while (i < FAMILY_COUNT && !is_listed(s_families[i].names, name)) i++;
    if (i == FAMILY_COUNT) return unknown(name);
    *p = s_families[i].family;
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

/* Cut `text` by expression `stage`; as deep as there are stages. */
static omm_err split(splitter *s, unsigned stage, omm_bytes text) {
    size_t at = 0;
    while (at < text.size) {
        int n = pcre2_match(s->pre->codes[stage], text.data, text.size, at, PCRE2_NO_UTF_CHECK,
                            s->data[stage], s->limits);
        if (n == PCRE2_ERROR_NOMATCH) break;
        if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
            return omm_raise(OMM_ERR_NOMEM, "tokenizer: matching %zu bytes", text.size);
        OMM_ASSERT(n > 0);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->data[stage]);
        size_t from = span[0];
        size_t to = span[1];
        OMM_ASSERT(to > from); /* no expression matches nothing */
        OMM_TRY(pass_on(s, stage, omm_bytes_of(text.data + at, from - at)));
        OMM_TRY(pass_on(s, stage, omm_bytes_of(text.data + from, to - from)));
        at = to;
    }
    return pass_on(s, stage, omm_bytes_of(text.data + at, text.size - at));
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
        /* A run of n spaces backs up n times, once; the default limit would refuse a long one. */
        pcre2_set_match_limit(s.limits, UINT32_MAX);
        pcre2_set_depth_limit(s.limits, UINT32_MAX);
        err = split(&s, 0, text);
    }
    for (unsigned i = 0; i < p->stage_count; i++) pcre2_match_data_free(s.data[i]);
    pcre2_match_context_free(s.limits);
    return err;
}
