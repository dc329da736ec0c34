/* constraint_test.c - which tokens may come: by the trees as by each token's bytes alone; whatever is drawn from them is JSON
 * that its schema describes, by a validator that knows nothing of grammars. */
#include "grammar_internal.h"
#include "test_vocab.h"

#include "omm/mem.h"
#include "omm/rng.h"
#include "omm_test.h"

enum { VOCAB_MORE = 3, STEPS_MAX = 20000 };

typedef struct rig {
    omm_tokenizer *tokenizer;
    omm_lexicon *lexicon;
    uint32_t vocab; /* of the model: it has more ids than the tokenizer */
} rig;

/* A token of more bytes than the trees have: allowed where its length is all that counts. */
#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN
#define LONG FIFTY FIFTY FIFTY

typedef enum vocab_kind { GPT2, LLAMA, CHARACTERS, VOCAB_KINDS } vocab_kind;

/* Tokens that lie across what a grammar tells apart: quotes, escapes, halves of characters. */
static void open_rig(rig *r, vocab_kind kind) {
    const vocab_recipe recipe = {
        .spm = kind == LLAMA,
        .characters = kind == CHARACTERS,
        .pre = kind == CHARACTERS ? "gemma4" : NULL,
        .mark_type = TOKEN_USER,
        .marks = {"{\"a", "\": \"", "\", \"", "\"}]}", "\\ud83d\\ude", LONG}};
    r->tokenizer = open_vocab(&recipe);
    r->vocab = omm_tokenizer_vocab(r->tokenizer) + VOCAB_MORE;
    CHECK_OK(omm_lexicon_open(&r->lexicon, r->tokenizer, r->vocab));
}

static void close_rig(rig *r) {
    omm_lexicon_close(r->lexicon);
    omm_tokenizer_close(r->tokenizer);
}

/* ---- a validator ------------------------------------------------------------------------------- */

static bool is_valid(json_t *schema, json_t *root, json_t *value);

static bool is_type(const char *name, const json_t *v) {
    return (strcmp(name, "string") == 0 && json_is_string(v)) ||
           (strcmp(name, "integer") == 0 && json_is_integer(v)) ||
           (strcmp(name, "number") == 0 && json_is_number(v)) ||
           (strcmp(name, "object") == 0 && json_is_object(v)) ||
           (strcmp(name, "array") == 0 && json_is_array(v)) ||
           (strcmp(name, "boolean") == 0 && json_is_boolean(v)) ||
           (strcmp(name, "null") == 0 && json_is_null(v));
}

static bool is_any_type(const json_t *type, const json_t *v) {
    if (json_is_string(type)) return is_type(json_string_value(type), v);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (is_type(json_string_value(json_array_get(type, i)), v)) return true;
    return !type;
}

static bool is_any_of(json_t *list, json_t *root, json_t *v) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_valid(json_array_get(list, i), root, v)) return true;
    return !list;
}

static bool has_count(const json_t *schema, const char *least, const char *most, size_t count) {
    const json_t *min = json_object_get(schema, least), *max = json_object_get(schema, most);
    return count >= (size_t)json_integer_value(min) &&
           (!max || count <= (size_t)json_integer_value(max));
}

static bool is_valid_object(json_t *schema, json_t *root, json_t *v) {
    json_t *properties = json_object_get(schema, "properties"), *one = NULL;
    json_t *required = json_object_get(schema, "required");
    json_t *others = json_object_get(schema, "additionalProperties");
    const char *name = NULL;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach(v, name, one) {
        json_t *inside = json_object_get(properties, name);
        if (!inside) inside = others;
        if (inside && !is_valid(inside, root, one)) return false;
    }
    return true;
}

static bool is_valid_array(json_t *schema, json_t *root, json_t *v) {
    json_t *prefix = json_object_get(schema, "prefixItems");
    json_t *items = json_object_get(schema, "items");
    if (!has_count(schema, "minItems", "maxItems", json_array_size(v))) return false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *inside = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (inside && !is_valid(inside, root, json_array_get(v, i))) return false;
    }
    return true;
}

static bool is_among(const json_t *list, const json_t *v) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v)) return true;
    return !list;
}

static size_t characters(const json_t *v) {
    size_t count = 0;
    for (const char *p = json_string_value(v); *p; p++) count += (*p & 0xc0) != 0x80;
    return count;
}

static bool is_valid(json_t *schema, json_t *root, json_t *v) {
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *only = json_object_get(schema, "const");
    if (json_is_boolean(schema)) return json_is_true(schema);
    if (ref && strcmp(ref, "#") == 0) return is_valid(root, root, v);
    if (ref) return is_valid(json_object_get(json_object_get(root, "$defs"), ref + 8), root, v);
    if (!is_any_type(json_object_get(schema, "type"), v)) return false;
    if (!is_any_of(json_object_get(schema, "anyOf"), root, v)) return false;
    if (!is_among(json_object_get(schema, "enum"), v) || (only && !json_equal(only, v)))
        return false;
    if (json_is_integer(v) && json_object_get(schema, "minimum") &&
        (json_integer_value(v) < json_integer_value(json_object_get(schema, "minimum")) ||
         json_integer_value(v) > json_integer_value(json_object_get(schema, "maximum"))))
        return false;
    if (json_is_string(v)) return has_count(schema, "minLength", "maxLength", characters(v));
    if (json_is_object(v)) return is_valid_object(schema, root, v);
    return !json_is_array(v) || is_valid_array(schema, root, v);
}

/* ---- schemas at random --------------------------------------------------------------------------- */

typedef struct dice {
    omm_rng rng;
    uint64_t at;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
    return (uint32_t)(omm_rng_unit(&d->rng, d->at++) * (float)sides) % sides;
}

static json_t *random_schema(dice *d, unsigned depth);

static json_t *random_literal(dice *d) {
    static const char *const texts[] = {
        "a", "ab", "abc", "\xc3\xa9", "q\"\\\n", "", "\xf0\x9f\x98\x80"};
    switch (roll(d, 5)) {
    case 0: return json_integer((json_int_t)roll(d, 200) - 100);
    case 1: return json_real((double)roll(d, 1000) / 8.0);
    case 2: return json_null();
    case 3: return json_pack("{s:[b,i]}", "k", 1, 2);
    default: return json_string(texts[roll(d, 7)]);
    }
}

static json_t *random_object(dice *d, unsigned depth) {
    static const char *const names[] = {"a", "ab", "b", "x\"y", "\xc3\xa9", "a/b", ""};
    json_t *schema = json_pack("{s:s}", "type", "object"), *properties = json_object();
    json_t *required = json_array();
    for (uint32_t i = roll(d, 4); i > 0; i--) {
        const char *name = names[roll(d, 7)];
        json_object_set_new(properties, name, random_schema(d, depth));
        if (roll(d, 2)) json_array_append_new(required, json_string(name));
    }
    json_object_set_new(schema, "properties", properties);
    json_object_set_new(schema, "required", required);
    const uint32_t others = roll(d, 4);
    if (others < 2) json_object_set_new(schema, "additionalProperties", json_boolean(others));
    if (others == 2) json_object_set_new(schema, "additionalProperties", random_schema(d, depth));
    return schema;
}

static json_t *random_array(dice *d, unsigned depth) {
    json_t *schema = json_pack("{s:s}", "type", "array");
    const uint32_t min = roll(d, 3);
    if (roll(d, 3) == 0)
        json_object_set_new(schema, "prefixItems",
                            json_pack("[o, o]", random_schema(d, depth), random_schema(d, depth)));
    json_object_set_new(schema, "items", random_schema(d, depth));
    json_object_set_new(schema, "minItems", json_integer(min));
    if (roll(d, 3)) json_object_set_new(schema, "maxItems", json_integer(min + roll(d, 3)));
    return schema;
}

static json_t *random_choice(dice *d, unsigned depth) {
    json_t *list = json_array();
    for (uint32_t i = 1 + roll(d, 3); i > 0; i--)
        json_array_append_new(list, random_schema(d, depth));
    return json_pack("{s:o}", "anyOf", list);
}

static json_t *random_range(dice *d) {
    const int low = (int)roll(d, 4000) - 2000;
    return json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", low, "maximum",
                     low + (int)roll(d, 300));
}

static json_t *random_schema(dice *d, unsigned depth) {
    static const char *const plain[] = {"string", "integer", "number", "boolean", "null"};
    const uint32_t kind = roll(d, depth == 0 ? 8 : 12);
    if (kind == 0) return random_range(d);
    if (kind < 4) return json_pack("{s:s}", "type", plain[roll(d, 5)]);
    if (kind == 4) return json_pack("{s:[s,s]}", "type", plain[roll(d, 5)], plain[roll(d, 5)]);
    if (kind == 5) {
        const uint32_t min = roll(d, 4);
        return json_pack("{s:s, s:i, s:i}", "type", "string", "minLength", (int)min, "maxLength",
                         (int)(min + roll(d, 6)));
    }
    if (kind == 6)
        return json_pack("{s:[o,o,o]}", "enum", random_literal(d), random_literal(d),
                         random_literal(d));
    if (kind == 7) {
        static const char *const refs[] = {"#", "#/$defs/d", "#/$defs/e"};
        if (roll(d, 3)) return json_pack("{s:o}", "const", random_literal(d));
        return json_pack("{s:s}", "$ref", refs[roll(d, 3)]);
    }
    if (kind == 8) return roll(d, 4) ? random_choice(d, depth - 1) : json_true();
    return kind < 11 ? random_object(d, depth - 1) : random_array(d, depth - 1);
}

/* ---- walks ------------------------------------------------------------------------------------- */

/* Set by set: by the trees as by definition. */
static void check_allowed(const rig *r, omm_constraint *c) {
    const uint32_t *allowed = omm_constraint_allowed(c);
    for (uint32_t id = 0; id < r->vocab; id++)
        CHECK_EQ(lexicon_has(allowed, id), omm_constraint_permits(c, id));
    for (uint32_t id = r->vocab; id < r->lexicon->words * 32; id++)
        CHECK(!lexicon_has(allowed, id));
    CHECK_EQ(omm_constraint_allowed(c), allowed); /* the same again */
}

static uint32_t pick(const rig *r, dice *d, const uint32_t *allowed) {
    uint32_t count = 0, id = 0;
    for (uint32_t i = 0; i < r->lexicon->words; i++)
        count += (uint32_t)__builtin_popcount(allowed[i]);
    CHECK(count > 0);
    for (uint32_t nth = roll(d, count);; id++)
        if (lexicon_has(allowed, id) && nth-- == 0) return id;
}

/* What ends a text soonest. */
static uint32_t pick_last(const rig *r, dice *d, const uint32_t *allowed) {
    static const char s_ends[] = "\"}]";
    for (uint32_t id = 0; id < r->vocab; id++)
        if (lexicon_has(allowed, id) && lexicon_has(r->lexicon->ends, id)) return id;
    for (const char *end = s_ends; *end; end++)
        for (uint32_t id = 0; id < omm_tokenizer_vocab(r->tokenizer); id++) {
            const omm_bytes piece = omm_tokenizer_piece(r->tokenizer, id);
            if (lexicon_has(allowed, id) && piece.size == 1 && piece.data[0] == (uint8_t)*end)
                return id;
        }
    return pick(r, d, allowed);
}

/* To its end; `some` tokens are any that are allowed. */
static void random_text(omm_buf *out, const rig *r, omm_constraint *c, dice *d, uint32_t some) {
    omm_constraint *twin = NULL;
    CHECK_OK(omm_constraint_clone(&twin, c));
    for (uint32_t step = 0; !omm_constraint_has_ended(c); step++) {
        CHECK(step < STEPS_MAX);
        if (step % 7 == 0) check_allowed(r, c);
        const uint32_t *allowed = omm_constraint_allowed(c);
        const uint32_t id = step < some ? pick(r, d, allowed) : pick_last(r, d, allowed);
        CHECK(!omm_tokenizer_is_control(r->tokenizer, id) ||
              omm_tokenizer_is_end(r->tokenizer, id));
        CHECK_OK(omm_tokenizer_decode(out, r->tokenizer, &id, 1, OMM_DETOKENIZE_CONTINUE));
        if (step % 5 == 0) { /* a way off and back again */
            omm_constraint_copy(twin, c);
            for (unsigned i = 0; i < 4 && !omm_constraint_has_ended(twin); i++)
                omm_constraint_take(twin, pick(r, d, omm_constraint_allowed(twin)));
            omm_constraint_copy(twin, c);
            CHECK(same_bytes(omm_constraint_allowed(twin), omm_constraint_allowed(c),
                             r->lexicon->words * sizeof(uint32_t)));
        }
        omm_constraint_take(c, id);
    }
    check_allowed(r, c); /* none */
    omm_constraint_close(twin);
}

static void check_text(json_t *schema, const omm_buf *written) {
    json_error_t error;
    json_t *value = json_loadb((const char *)written->data, written->size, JSON_DECODE_ANY, &error);
    if (value && is_valid(schema, schema, value)) {
        json_decref(value);
        return;
    }
    json_dumpf(schema, stderr, 0);
    fprintf(stderr, "\n%.*s\n%s\n", (int)written->size, (const char *)written->data,
            value ? "not valid" : error.text);
    exit(1);
}

static void test_random(const rig *r, uint64_t number, unsigned schemas) {
    const omm_seed seed = omm_seed_from_u64(number);
    dice d = {.rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0)};
    unsigned taken = 0;
    omm_buf written;
    omm_buf_init(&written, 1 << 20);
    for (unsigned i = 0; i < schemas; i++) {
        omm_grammar *g = NULL;
        json_t *schema = random_object(&d, 3);
        json_object_set_new(
            schema, "$defs",
            json_pack("{s:o, s:o}", "d", random_schema(&d, 2), "e", random_schema(&d, 1)));
        const omm_err err = omm_grammar_open_schema(&g, schema);
        CHECK(err == OMM_OK || err == OMM_ERR_UNSUPPORTED); /* no text fulfils it */
        for (unsigned k = 0; k < 4 && g; k++) {
            omm_constraint *c = NULL;
            CHECK_OK(omm_constraint_open(&c, g, r->lexicon));
            omm_buf_clear(&written);
            random_text(&written, r, c, &d, k * 20);
            check_text(schema, &written);
            omm_constraint_close(c);
        }
        taken += g != NULL;
        omm_grammar_close(g);
        json_decref(schema);
    }
    CHECK(taken > schemas * 3 / 4);
    omm_buf_fini(&written);
}

/* ---- one by one --------------------------------------------------------------------------------- */

static omm_constraint *open_constraint(omm_grammar **g, const rig *r, const char *schema) {
    json_t *root = NULL;
    omm_constraint *c = NULL;
    CHECK_OK(omm_json_parse(&root, omm_bytes_str(schema), "a schema"));
    CHECK_OK(omm_grammar_open_schema(g, root));
    CHECK_OK(omm_constraint_open(&c, *g, r->lexicon));
    json_decref(root);
    return c;
}

static uint32_t id_of(const rig *r, const char *piece) {
    for (uint32_t id = 0; id < omm_tokenizer_vocab(r->tokenizer); id++)
        if (omm_bytes_equal(omm_tokenizer_piece(r->tokenizer, id), omm_bytes_str(piece)) &&
            !omm_tokenizer_is_control(r->tokenizer, id))
            return id;
    check_failed(piece, __FILE__, __LINE__);
    return 0;
}

static bool may(omm_constraint *c, const rig *r, const char *piece) {
    const uint32_t id = id_of(r, piece);
    const bool has = lexicon_has(omm_constraint_allowed(c), id);
    CHECK_EQ(has, omm_constraint_permits(c, id));
    return has;
}

static void take(omm_constraint *c, const rig *r, const char *piece) {
    CHECK(may(c, r, piece));
    omm_constraint_take(c, id_of(r, piece));
}

/* A token may end inside a character or an escape; the next one goes on with it. */
static void test_pieces(const rig *r, vocab_kind kind) {
    const char *two = kind == GPT2 ? "in" : "us"; /* a token of two characters */
    omm_grammar *g = NULL;
    omm_constraint *c = open_constraint(&g, r, "{\"type\": \"string\", \"maxLength\": 2}");
    CHECK(may(c, r, "\"") && may(c, r, " ") == (kind == LLAMA) && !may(c, r, "a"));
    CHECK(may(c, r, "\": \"") &&
          !may(c, r, "\"}]}")); /* the one is a string of two, the other has three */
    take(c, r, "\"");
    CHECK(!may(c, r, LONG));
    CHECK(may(c, r, two) && may(c, r, "\xc3") && !may(c, r, "\x80") && !may(c, r, "\n"));
    take(c, r, "\xe2");
    CHECK(!may(c, r, "a") && !may(c, r, "\"") && may(c, r, "\x82") && !may(c, r, "\xc3"));
    take(c, r, "\x82");
    take(c, r, "\xac");
    CHECK(may(c, r, "a") && !may(c, r, two) && !may(c, r, "\xc0"));
    take(c, r, "\\ud83d\\ude");
    CHECK(may(c, r, "0") && may(c, r, "F") && !may(c, r, "\"") && !may(c, r, "g"));
    take(c, r, "0");
    take(c, r, "0");
    CHECK(may(c, r, "\"") && !may(c, r, "a") && !may(c, r, "\"}]}"));
    take(c, r, "\"");
    const uint32_t end = omm_tokenizer_eos(r->tokenizer);
    for (uint32_t id = 0; id < r->vocab; id++)
        CHECK_EQ(lexicon_has(omm_constraint_allowed(c), id), id == end);
    omm_constraint_take(c, end);
    CHECK(omm_constraint_has_ended(c));
    omm_constraint_restart(c);
    CHECK(may(c, r, "\"") && !omm_constraint_has_ended(c));
    omm_constraint_close(c);
    omm_grammar_close(g);
    c = open_constraint(&g, r, "{\"type\": \"string\", \"maxLength\": 155}");
    CHECK(!may(c, r, LONG));
    take(c, r, "\"");
    take(c, r, LONG);
    CHECK(!may(c, r, LONG) && may(c, r, two));
    omm_constraint_close(c);
    omm_grammar_close(g);
    c = open_constraint(&g, r,
                        "{\"properties\": {\"a\": {\"items\": {\"properties\": {\"b\": {}}}}}}");
    take(c, r, "{\"a");
    CHECK(may(c, r, LONG)); /* another member */
    take(c, r, "\"");
    take(c, r, ":");
    take(c, r, "[");
    take(c, r, "{\"a");
    take(c, r, "\": \"");
    CHECK(may(c, r, "\"}]}"));
    take(c, r, "\"}]}");
    omm_constraint_take(c, end);
    omm_constraint_close(c);
    omm_grammar_close(g);
}

/* ---- long texts, small vocabularies ------------------------------------------------------------ */

/* A long text opens and closes more than can be open at once. */
static void test_many_opened(const rig *r) {
    omm_grammar *g = NULL;
    omm_constraint *c = open_constraint(&g, r, "{\"type\": \"array\"}");
    const uint32_t opens = id_of(r, "["), closes = id_of(r, "]"), comma = id_of(r, ",");
    omm_constraint_take(c, opens);
    for (unsigned i = 0; i <= MATCH_FRAMES_MAX; i++) {
        if (i > 0) omm_constraint_take(c, comma);
        omm_constraint_take(c, opens);
        omm_constraint_take(c, closes);
    }
    CHECK(may(c, r, "]") && may(c, r, ",") && !may(c, r, "["));
    omm_constraint_close(c);
    omm_grammar_close(g);
}

/* A vocabulary without a letter that a name needs: nothing is allowed, and the text has not ended. */
static void test_lacking(void) {
    const vocab_recipe recipe = {.spm = true, .no_bytes = true};
    rig r = {.tokenizer = open_vocab(&recipe)};
    omm_grammar *g = NULL;
    r.vocab = omm_tokenizer_vocab(r.tokenizer);
    CHECK_OK(omm_lexicon_open(&r.lexicon, r.tokenizer, r.vocab));
    omm_constraint *c = open_constraint(&g, &r, "{\"const\": \"\xc3\xa9\"}");
    take(c, &r, "\"");
    for (uint32_t id = 0; id < r.vocab; id++) {
        CHECK(!omm_constraint_permits(c, id));
        CHECK(!lexicon_has(omm_constraint_allowed(c), id));
    }
    CHECK(!omm_constraint_has_ended(c));
    omm_constraint_close(c);
    omm_grammar_close(g);
    close_rig(&r);
}

static void test_memory(const rig *r) {
    omm_grammar *g = NULL;
    size_t failed = 0;
    CHECK_OK(omm_grammar_open_object(&g));
    for (size_t n = 1; n < 40; n++) {
        omm_lexicon *x = NULL;
        omm_constraint *c = NULL;
        omm_mem_fail_nth(n);
        omm_err err = omm_lexicon_open(&x, r->tokenizer, r->vocab);
        if (err == OMM_OK) err = omm_constraint_open(&c, g, x);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        failed += err == OMM_ERR_NOMEM;
        omm_constraint_close(c);
        omm_lexicon_close(x);
    }
    CHECK(failed > 8 && failed < 30);
    omm_grammar_close(g);
    omm_constraint_close(NULL);
    omm_lexicon_close(NULL);
}

/* The longest token of the trees, in the middle of a way that ends with it and one that goes on: what is asked of it leaves the
 * text where it stands. */
static void test_longest(void) {
#define WAY(string)                                                                                \
    "{\"properties\": {\"a\": {\"type\": \"array\", \"items\": {\"type\": \"string\"" string       \
    "}}}, \"required\": [\"a\"], \"additionalProperties\": false}"
    static const char schema_text[] = "{\"anyOf\": [" WAY(", \"maxLength\": 3") ", " WAY("") "]}";
    static const char longest[] = FIFTY FIFTY TEN TEN "01234567";
    _Static_assert(sizeof longest - 1 == MATCH_TOKEN_BYTES_MAX, "of as many bytes as a tree has");
    const char *const pieces[] = {"{\"a\": [\"", longest, "\"]}"};
    const vocab_recipe recipe = {.mark_type = TOKEN_USER,
                                 .marks = {pieces[0], pieces[1], pieces[2]}};
    omm_tokenizer *t = open_vocab(&recipe);
    omm_lexicon *x = NULL;
    omm_grammar *g = NULL;
    omm_constraint *c = NULL;
    json_t *schema = NULL;
    CHECK_OK(omm_json_parse(&schema, omm_bytes_str(schema_text), "schema"));
    CHECK_OK(omm_lexicon_open(&x, t, omm_tokenizer_vocab(t)));
    CHECK_OK(omm_grammar_open_schema(&g, schema));
    CHECK_OK(omm_constraint_open(&c, g, x));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const uint32_t id = omm_tokenizer_special(t, pieces[i]);
        CHECK(lexicon_has(omm_constraint_allowed(c), id) && omm_constraint_permits(c, id));
        for (uint32_t other = 0; other < x->vocab; other++)
            CHECK_EQ(omm_constraint_permits(c, other),
                     lexicon_has(omm_constraint_allowed(c), other));
        omm_constraint_take(c, id);
    }
    CHECK(omm_constraint_permits(c, omm_tokenizer_eos(t)));
    omm_constraint_close(c);
    omm_grammar_close(g);
    omm_lexicon_close(x);
    json_decref(schema);
    omm_tokenizer_close(t);
}

/* Strings with patterns: those of which plain characters alone decide, and others; with tokens of line ends and of many characters. */
static void test_patterns(void) {
    static const char *const schemas[] = {
        "{\"type\": \"string\", \"pattern\": \"^.+$\"}",
        "{\"type\": \"string\", \"pattern\": \"^.{1,9}$\"}",
        "{\"type\": \"string\", \"pattern\": \"^.{1,200}$\", \"maxLength\": 153}",
        "{\"type\": \"string\", \"pattern\": \"^(?:[^]{3})*$\", \"maxLength\": 7}",
        "{\"type\": \"string\", \"pattern\": \"^(?:[^]{3})+$\"}",
        "{\"type\": \"string\", \"pattern\": \"^(?:[^]{70})*x?$\", \"maxLength\": 152}",
        "{\"type\": \"string\", \"pattern\": \"^[^]*\\\\\\\\$\", \"maxLength\": 151}",
        "{\"type\": \"string\", \"pattern\": \"^..\\u2028?$\"}",
        "{\"type\": \"string\", \"pattern\": \"^[^\\u2028]*$\", \"minLength\": 4}",
        "{\"type\": \"string\", \"pattern\": \"^[^a]*.{3}$\"}",
        "{\"anyOf\": [{\"pattern\": \"^.{3}$\"}, {\"pattern\": \"^.{5}\\\\n$\"}]}",
        "{\"type\": \"string\", \"maxLength\": 8}",
    };
    const vocab_recipe recipe = {
        .mark_type = TOKEN_USER,
        .marks = {"\xe2\x80\xa8", "x\xe2\x80\xa9", LONG, "abc\xc3\xa9", "b\"", "\\n"}};
    const omm_seed seed = omm_seed_from_u64(5);
    dice d = {.rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0)};
    rig r = {.tokenizer = open_vocab(&recipe)};
    r.vocab = omm_tokenizer_vocab(r.tokenizer) + VOCAB_MORE;
    CHECK_OK(omm_lexicon_open(&r.lexicon, r.tokenizer, r.vocab));
    for (size_t i = 0; i < 8 * sizeof schemas / sizeof schemas[0]; i++) {
        omm_grammar *g = NULL;
        omm_constraint *c = open_constraint(&g, &r, schemas[i / 8]);
        for (unsigned step = 0; step < 300 && !omm_constraint_has_ended(c); step++) {
            const uint32_t *allowed = omm_constraint_allowed(c);
            check_allowed(&r, c);
            omm_constraint_take(c,
                                roll(&d, 12) ? pick(&r, &d, allowed) : pick_last(&r, &d, allowed));
        }
        omm_constraint_close(c);
        omm_grammar_close(g);
    }
    close_rig(&r);
}

int main(void) {
    for (unsigned kind = 0; kind < VOCAB_KINDS; kind++) {
        rig r;
        open_rig(&r, (vocab_kind)kind);
        test_random(&r, 1 + kind, 120);
        test_pieces(&r, (vocab_kind)kind);
        test_many_opened(&r);
        test_memory(&r);
        close_rig(&r);
    }
    test_lacking();
    test_longest();
    test_patterns();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
