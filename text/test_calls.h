/* test_calls.h - tools, texts with calls of them, and tokens that lie across what calls begin and end with; for tests. */
#ifndef TEXT_TEST_CALLS_H
#define TEXT_TEST_CALLS_H

#include "grammar_internal.h"
#include "test_vocab.h"

#include "omm/chat_turns.h"
#include "omm/rng.h"
#include "omm_test.h"

/* ---- tools ------------------------------------------------------------------------------------- */

#define NONE_MORE ", \"additionalProperties\": false"
#define TIMER                                                                                      \
    "{\"name\": \"timer\", \"parameters\": {\"type\": \"object\", \"properties\": {\"minutes\": "  \
    "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 90}, \"label\": {\"type\": "             \
    "\"string\"}}, "                                                                               \
    "\"required\": [\"minutes\"]}}"
#define TREE                                                                                       \
    "{\"name\": \"tree\", \"strict\": true, \"parameters\": {\"type\": \"object\", "               \
    "\"properties\": "                                                                             \
    "{\"of\": {\"$ref\": \"#/$defs/n\"}}, \"required\": [\"of\"], \"$defs\": {\"n\": {\"type\": "  \
    "\"array\", \"items\": {\"$ref\": \"#/$defs/n\"}, \"maxItems\": 2}}}}"
#define LOOSE                                                                                      \
    "{\"name\": \"loose\", \"parameters\": {\"type\": \"object\", \"properties\": {\"day\": "      \
    "{\"type\": "                                                                                  \
    "\"string\", \"format\": \"day\"}, \"x\": {\"type\": \"number\", \"minimum\": 0}, \"y\": "     \
    "{\"type\": \"dict\"}, \"z\": {\"allOf\": [{}, {}]}}, \"required\": [\"y\"]}}"
#define CIRCLE                                                                                     \
    "{\"name\": \"circle\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": "       \
    "{\"$ref\": "                                                                                  \
    "\"#/$defs/n\"}}, \"$defs\": {\"n\": {\"$ref\": \"#/$defs/n\"}}}}"
#define BARE "{\"name\": \"bare\"}"
#define TOOLS "[" TIMER ", " TREE ", " LOOSE ", " BARE "]"

typedef struct tools {
    json_t *root;
    omm_grammar_tool list[OMM_CHAT_TOOLS_MAX];
    omm_grammar_calls calls;
} tools;

static inline void read_tools(tools *t, const char *text) {
    *t = (tools){.calls = {.tools = t->list, .calls_max = 2, .begun = omm_bytes_str("")}};
    CHECK_OK(omm_json_parse(&t->root, omm_bytes_str(text), "tools"));
    t->calls.tool_count = json_array_size(t->root);
    for (size_t i = 0; i < t->calls.tool_count; i++) {
        const json_t *one = json_array_get(t->root, i);
        t->list[i] = (omm_grammar_tool){json_string_value(json_object_get(one, "name")),
                                        json_object_get(one, "parameters"),
                                        json_is_true(json_object_get(one, "strict"))};
    }
}

static inline omm_grammar *open_tools(tools *t) {
    omm_grammar *g = NULL;
    CHECK_OK(omm_grammar_open_calls(&g, &t->calls));
    return g;
}

/* ---- bytes ------------------------------------------------------------------------------------- */

static frames s_frames;

/* Bytes of the text that may follow one another; *whole: and it may end there. */
static inline size_t follow(bool *whole, const omm_grammar *g, const char *text) {
    crowd now, next;
    size_t at = 0;
    s_frames.count = 0;
    text_begin(&now, g, true);
    for (; text[at]; at++) {
        text_step(&next, &s_frames, g, &now, (uint8_t)text[at]);
        if (!text_goes_on(&next)) break;
        now = next;
        match_compact(&now, &s_frames);
    }
    *whole = !text[at] && text_is_whole(g, &now);
    return at;
}

static inline void check_text(const omm_grammar *g, const char *text, bool wanted) {
    bool whole = false;
    const size_t at = follow(&whole, g, text);
    if (whole == wanted) return;
    fprintf(stderr, "%s %s, at byte %zu\n", text, wanted ? "not taken" : "taken", at);
    exit(1);
}

#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"
#define ONE CALL("bare", "{}")

/* ---- tokens ------------------------------------------------------------------------------------- */

#define FIFTY "0123456789012345678901234567890123456789xxxxxxxxxx"

typedef struct rig {
    omm_tokenizer *tokenizer;
    omm_lexicon *lexicon;
    omm_rng rng;
    uint64_t at;
} rig;

static inline uint32_t roll(rig *r, uint32_t sides) {
    return (uint32_t)(omm_rng_unit(&r->rng, r->at++) * (float)sides) % sides;
}

/* Tokens that lie across the marks: with what may stand there, and with what may not. */
#define TWENTY "[[[[[[[[[[[[[[[[[[[["
#define TEN "1,1,1,1,1,1,1,1,1,1,"
#define MANY_FRAMES                                                                                \
    "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" TWENTY TWENTY TWENTY TEN TEN TEN TEN TEN    \
        TEN TEN "1,1,1,1,1,1,1,"
static const char *const s_marks[4][6] = {
    {"<tool_call>", "</tool_call>", "ol_call>\n{\"na", "l>x", "tool_call>x", "<think>"},
    {"<tool", "_call>", "}}\n</tool_call>", "}</tool_call><tool_call>{", "> {\"", "</think>"},
    {"x<tool_call>{\"name\": \"", "x<tool_call>x", FIFTY FIFTY FIFTY "<tool_call>",
     FIFTY FIFTY FIFTY, "</think><tool_call>\n",
     ">{\"name\":\"bare\",\"arguments\":{}}</tool_call>"},
    {MANY_FRAMES "1", MANY_FRAMES "2", MANY_FRAMES "3", "<tool_call>", "</tool_call>", "x"},
};

static inline void open_rig(rig *r, bool spm, unsigned marks) {
    vocab_recipe recipe = {.spm = spm, .mark_type = TOKEN_USER};
    const omm_seed seed = omm_seed_from_u64(marks);
    memcpy(recipe.marks, s_marks[marks], sizeof recipe.marks);
    r->tokenizer = open_vocab(&recipe);
    CHECK_OK(omm_lexicon_open(&r->lexicon, r->tokenizer, omm_tokenizer_vocab(r->tokenizer) + 3));
    r->rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, spm, 0);
    r->at = 0;
}

static inline void close_rig(rig *r) {
    omm_lexicon_close(r->lexicon);
    omm_tokenizer_close(r->tokenizer);
}

static inline bool stands_free(omm_constraint *c, const rig *r) {
    return omm_constraint_permits(c, r->lexicon->vocab - 1); /* an id that adds nothing */
}

static inline void check_allowed(const rig *r, omm_constraint *c) {
    const uint32_t *allowed = omm_constraint_allowed(c);
    for (uint32_t id = 0; id < r->lexicon->vocab; id++)
        CHECK_EQ(lexicon_has(allowed, id), omm_constraint_permits(c, id));
    for (uint32_t id = r->lexicon->vocab; id < r->lexicon->words * 32; id++)
        CHECK(!lexicon_has(allowed, id));
}

static inline uint32_t pick(rig *r, const uint32_t *allowed) {
    uint32_t count = 0, id = 0;
    for (uint32_t i = 0; i < r->lexicon->words; i++)
        count += (uint32_t)__builtin_popcount(allowed[i]);
    CHECK(count > 0);
    for (uint32_t nth = roll(r, count);; id++)
        if (lexicon_has(allowed, id) && nth-- == 0) return id;
}

/* RULE_NONE: not allowed. */
static inline uint32_t pick_byte(const rig *r, const uint32_t *allowed, char byte) {
    for (uint32_t id = 0; id < omm_tokenizer_vocab(r->tokenizer); id++) {
        const omm_bytes piece = omm_tokenizer_piece(r->tokenizer, id);
        if (lexicon_has(allowed, id) && piece.size == 1 && piece.data[0] == (uint8_t)byte)
            return id;
    }
    return RULE_NONE;
}

/* What leads to calls and out of them: mostly marks, and what ends a value. */
static inline uint32_t pick_mark(rig *r, const uint32_t *allowed) {
    static const char s_ends[] = "<\"}]";
    const uint32_t first = omm_tokenizer_vocab(r->tokenizer) - 6;
    for (unsigned tries = 0; tries < 6; tries++) {
        const uint32_t id = first + roll(r, 6);
        if (lexicon_has(allowed, id)) return id;
    }
    const uint32_t id = pick_byte(r, allowed, s_ends[roll(r, 4)]);
    return id != RULE_NONE ? id : pick(r, allowed);
}

/* The soonest way to the end of all that has begun. */
static inline uint32_t pick_last(rig *r, const uint32_t *allowed) {
    const uint32_t eos = omm_tokenizer_eos(r->tokenizer);
    if (lexicon_has(allowed, eos)) return eos;
    for (const char *end = "\"}]"; *end; end++) {
        const uint32_t id = pick_byte(r, allowed, *end);
        if (id != RULE_NONE) return id;
    }
    return pick_mark(r, allowed);
}

static inline bool fits_tool(const omm_tool_call *call) {
    const json_t *a = call->arguments, *minutes = json_object_get(a, "minutes");
    if (strcmp(call->name, "timer") == 0)
        return json_is_integer(minutes) && json_integer_value(minutes) >= 1 &&
               json_integer_value(minutes) <= 90 &&
               json_object_size(a) == 1u + (json_object_get(a, "label") != NULL);
    if (strcmp(call->name, "tree") == 0)
        return json_object_size(a) == 1 && json_is_array(json_object_get(a, "of"));
    return strcmp(call->name, "loose") == 0 || strcmp(call->name, "bare") == 0;
}

static inline void take(rig *r, omm_constraint *c, omm_buf *written, uint32_t id) {
    CHECK_OK(omm_tokenizer_decode(written, r->tokenizer, &id, 1, OMM_DETOKENIZE_CONTINUE));
    omm_constraint_take(c, id);
}

#endif
