/* grammar_many_test.c - alternatives inside alternatives, of which more would stand side by side than are followed: of a tool that
 * is not strict nothing is lost by it, and what may follow is the same for each token alone and for all in one walk. */
#include "test_grammar.h"
#include "test_vocab.h"

#include "omm/mem.h"

/* So many objects whose first member is one of three, and which the last one tells apart. */
static json_t *actions(unsigned count) {
    static const char *const names[] = {"id", "name", "path"};
    json_t *either = json_array(), *all = json_array();
    char name[16];
    for (unsigned i = 0; i < 3; i++)
        json_array_append_new(either, json_pack("{s:s, s:{s:{s:s}}, s:b}", "type", "object",
                                                "properties", names[i], "type",
                                                i ? "string" : "null", "additionalProperties", 0));
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "act%u", i);
        json_array_append_new(all, json_pack("{s:s, s:{s:{s:O}, s:{s:s}}, s:b}", "type", "object",
                                             "properties", "target", "anyOf", either, "action",
                                             "const", name, "additionalProperties", 0));
    }
    json_decref(either);
    return json_pack("{s:o}", "anyOf", all);
}

static void check_actions(const omm_grammar *g, unsigned count, unsigned most) {
    static const char *const targets[] = {"{'id': null}", "{'name': 'x'}", "{'path': 'x'}"};
    char text[200];
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < 3; k++) {
            snprintf(text, sizeof text, "{'target': %s, 'action': 'act%u'}", targets[k], i);
            check(g, "actions", text, 3 * i + k < most);
        }
    check(g, "actions", "{'target': 5}", false);
    check(g, "actions", "{'action': 'act'}", false);
}

/* Alternatives of alternatives multiply.  Where there are more than are followed each goes on as one, in an object of any
 * members; what is promised keeps to those that stand first. */
static void test_multiplied(void) {
    for (unsigned count = 10; count <= 32; count += 11) {
        for (int strict = 0; strict < 2; strict++) {
            json_t *schema = actions(count);
            omm_grammar *g = open_arguments(schema, strict == 1);
            check_actions(g, count, strict ? GRAMMAR_THREADS_MAX : 3 * count);
            check(g, "actions", "{'target': {'id': 5}, 'action': 'act9'}", !strict && count > 10);
            omm_grammar_close(g);
            json_decref(schema);
        }
    }
}

/* So many alternatives of a member, or of what is in place of all arguments. */
static json_t *alternatives(unsigned count, bool objects, bool is_root) {
    json_t *all = json_array();
    for (unsigned i = 0; i < count; i++)
        json_array_append_new(all, objects
                                       ? json_pack("{s:s, s:{s:{s:i}}}", "type", "object",
                                                   "properties", "kind", "minLength", i)
                                       : json_pack("{s:s, s:i}", "type", "string", "maxLength", i));
    if (is_root) return json_pack("{s:o}", "anyOf", all);
    return json_pack("{s:s, s:{s:{s:o}, s:{s:s}}}", "type", "object", "properties", "a", "anyOf",
                     all, "b", "type", "null");
}

/* More than stand side by side cost that place its form and nothing else; of objects it stays one. */
static void test_too_many(void) {
    for (unsigned count = 32; count < 34; count++) {
        for (int objects = 0; objects < 2; objects++) {
            json_t *schema = alternatives(count, objects == 1, false);
            omm_grammar *g = open_arguments(schema, false);
            check(g, "many", "{'a': 'x', 'b': null}", !objects);
            check(g, "many", "{'a': {'kind': 'x'}, 'b': null}", objects || count > 32);
            check(g, "many", "{'a': {'other': 1}}", count > 32);
            check(g, "many", "{'b': 1}", false);
            omm_grammar_close(g);
            json_decref(schema);
        }
        json_t *schema = alternatives(count, true, true);
        omm_grammar *g = open_arguments(schema, false);
        check(g, "many", "{'kind': 'x'}", true);
        check(g, "many", "{'other': 1}", count > 32);
        check(g, "many", "5", false);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

/* Through more references than are followed, which makes it any value. */
static void test_chain(void) {
    for (unsigned links = 200; links <= 300; links += 100) {
        json_t *defs = json_object();
        char name[16], next[32];
        for (unsigned i = 0; i < links; i++) {
            snprintf(name, sizeof name, "d%u", i);
            snprintf(next, sizeof next, "#/$defs/d%u", i + 1);
            json_object_set_new(defs, name, json_pack("{s:s}", "$ref", next));
        }
        snprintf(name, sizeof name, "d%u", links);
        json_object_set_new(defs, name, json_pack("{s:s}", "type", "null"));
        json_t *schema =
            json_pack("{s:s, s:{s:{s:s}, s:{s:s}}, s:o}", "type", "object", "properties", "a",
                      "$ref", "#/$defs/d0", "b", "type", "null", "$defs", defs);
        omm_grammar *g = open_arguments(schema, false);
        check(g, "chain", "{'a': null, 'b': null}", true);
        check(g, "chain", "{'a': 1, 'b': null}", links > 256);
        check(g, "chain", "{'a': null, 'b': 1}", false);
        omm_grammar_close(g);
        g = NULL;
        const omm_err err = omm_grammar_open_schema(&g, schema);
        CHECK_EQ(err, links > 256 ? OMM_ERR_UNSUPPORTED : OMM_OK);
        if (err != OMM_OK)
            CHECK(strstr(omm_err_sentence(), "more than 256 references and choices"));
        omm_grammar_close(g);
        json_decref(schema);
    }
}

static void append(char *text, size_t *size, const char *more) {
    const size_t bytes = strlen(more);
    memcpy(text + *size, more, bytes + 1);
    *size += bytes;
}

/* Trees of two kinds, which the last member tells apart: as deep as that they would be 2^9 side by side. */
static void test_deep(void) {
    static const char schema[] =
        "{'anyOf': [{'properties': {'of': {'type': 'array', 'items': {'$ref': '#'}}, 'a': {'type': "
        "'null'}}}, {'properties': {'of': {'type': 'array', 'items': {'$ref': '#'}}, 'b': {'type': "
        "'null'}}}]}";
    json_t *root = parse(schema);
    omm_grammar *g = open_arguments(root, false);
    for (unsigned bits = 0; bits < 512; bits++) {
        char text[512];
        size_t size = 0;
        for (unsigned i = 0; i < 9; i++) append(text, &size, "{'of': [");
        for (unsigned i = 0; i < 9; i++)
            append(text, &size, bits >> i & 1 ? "], 'a': null}" : "], 'b': null}");
        check(g, schema, text, true);
    }
    check(g, schema, "{'of': [{'of': [{'of': [], 'c': null}]}]}", false);
    check(g, schema, "{'of': [], 'a': null, 'b': null}", false);
    omm_grammar_close(g);
    json_decref(root);
}

/* ---- tokens ------------------------------------------------------------------------------------- */

static void check_allowed(omm_constraint *c, uint32_t ids) {
    for (uint32_t id = 0; id < ids; id++)
        CHECK_EQ(lexicon_has(omm_constraint_allowed(c), id), omm_constraint_permits(c, id));
}

static uint32_t id_of(const omm_tokenizer *tokenizer, char byte) {
    uint32_t id = 0;
    while (omm_tokenizer_piece(tokenizer, id).size != 1 ||
           omm_tokenizer_piece(tokenizer, id).data[0] != (uint8_t)byte)
        id++;
    return id;
}

static void test_tokens(void) {
    static const char text[] = "{\"target\": {\"name\": \"x\"}, \"action\": \"act20\"}";
    const vocab_recipe recipe = {
        .mark_type = TOKEN_USER,
        .marks = {"{\"target\": {\"name", "\"}, \"action\"", "\": {", "{\"id", ": 5}", "x\"}}"}};
    omm_lexicon *lexicon = NULL;
    omm_constraint *c = NULL;
    omm_tokenizer *tokenizer = open_vocab(&recipe);
    CHECK_OK(omm_lexicon_open(&lexicon, tokenizer, omm_tokenizer_vocab(tokenizer)));
    json_t *schema = actions(21);
    omm_grammar *g = open_arguments(schema, false);
    CHECK_OK(omm_constraint_open(&c, g, lexicon));
    for (const char *p = text; *p; p++) {
        check_allowed(c, omm_tokenizer_vocab(tokenizer));
        CHECK(omm_constraint_permits(c, id_of(tokenizer, *p)));
        omm_constraint_take(c, id_of(tokenizer, *p));
    }
    check_allowed(c, omm_tokenizer_vocab(tokenizer));
    omm_constraint_close(c);
    omm_grammar_close(g);
    json_decref(schema);
    omm_lexicon_close(lexicon);
    omm_tokenizer_close(tokenizer);
}

int main(void) {
    test_multiplied();
    test_too_many();
    test_chain();
    test_deep();
    test_tokens();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
