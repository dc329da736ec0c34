/* grammar_all_of_test.c - schemas that all hold: what they let through together, and which are refused; multiples of a number. */
#include "test_grammar.h"

#include "omm/mem.h"

static omm_err open_schema(omm_grammar **g, const char *schema) {
    json_t *root = parse(schema);
    const omm_err err = omm_grammar_open_schema(g, root);
    json_decref(root);
    return err;
}

#define BASE                                                                                       \
    "'$defs': {'B': {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': "     \
    "['a']}}"

static const struct {
    const char *schema;
    const char *yes[8], *no[10];
} s_texts[] = {
    /* what one says of members, and the other, in the order of the list and then its own */
    {"{'allOf': [{'$ref': '#/$defs/B'}, {'properties': {'b': {'type': 'null'}}, 'required': "
     "['b']}], " BASE "}",
     {"{'a': 1, 'b': null}", "{'a': 1, 'b': null, 'c': 2}"},
     {"{'a': 1}", "{'b': null}", "{'a': 'x', 'b': null}", "{'a': 1, 'b': 2}", "{'b': null, 'a': 1}",
      "[]"}},
    {"{'properties': {'b': {'type': 'null'}}, 'allOf': [{'$ref': '#/$defs/B'}], 'title': 'x', " BASE
     "}",
     {"{'a': 1}", "{'a': 1, 'b': null}"},
     {"{}", "{'b': null, 'a': 1}", "{'a': 1, 'b': 1}", "1"}},
    {"{'allOf': [{'allOf': [{'$ref': '#/$defs/B'}], 'required': ['c']}, true, {}, {'description': "
     "'x'}], " BASE "}",
     {"{'a': 1, 'c': 'x'}"},
     {"{'a': 1}", "{'c': 1}"}},
    /* no others than the one names, and as the other has them */
    {"{'allOf': [{'properties': {'a': {'type': 'integer'}, 'b': {}}, 'additionalProperties': "
     "false}, "
     "{'properties': {'a': {'minimum': 3}, 'c': {}}}]}",
     {"{'a': 3, 'b': []}", "{}", "{'b': 1}"},
     {"{'a': 2}", "{'a': 'x'}", "{'c': 1}", "{'d': 1}"}},
    {"{'allOf': [{'properties': {'a': {}}, 'additionalProperties': false}, {'properties': {'b': "
     "{}}, "
     "'additionalProperties': false}]}",
     {"{}"},
     {"{'a': 1}", "{'b': 1}"}},
    {"{'allOf': [{'properties': {'a': {'type': 'integer'}}, 'additionalProperties': {'type': "
     "'string'}}, "
     "{'properties': {'b': {'maxLength': 2}}, 'additionalProperties': {'minLength': 1}}]}",
     {"{'a': 5}", "{'b': 'xy'}", "{'c': 'xyz'}"},
     {"{'a': 'x'}", "{'b': 'xyz'}", "{'b': 1}", "{'c': ''}", "{'c': 1}"}},
    {"{'allOf': [{'properties': {'a': {'type': 'string'}}}, {'additionalProperties': {'maxLength': "
     "1}}]}",
     {"{'a': 'x'}", "{'b': 'x'}"},
     {"{'a': 'xy'}", "{'b': 'xy'}"}},
    /* types, and limits on either side */
    {"{'allOf': [{'type': ['number', 'null']}, {'type': ['integer', 'null', 'string']}, "
     "{'minimum': 2}, "
     "{'minimum': 1, 'exclusiveMaximum': 9}, {'maximum': 7}]}",
     {"2", "7", "null"},
     {"1", "8", "2.5", "'x'"}},
    {"{'type': 'string', 'allOf': [{'minLength': 2, 'maxLength': 9}, {'maxLength': 3, 'pattern': "
     "'^x'}, {'pattern': '^x'}]}",
     {"'xy'", "'xyz'"},
     {"'x'", "'xyzz'", "'yx'"}},
    {"{'allOf': [{'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1}, {'items': "
     "{'minimum': 5}, 'maxItems': 2}]}",
     {"[5]", "[5, 6]"},
     {"[]", "[4]", "['x']", "[5, 5, 5]"}},
    {"{'allOf': [{'prefixItems': [{'type': 'null'}], 'items': false}, {'minItems': 1}]}",
     {"[null]"},
     {"[]", "[null, 1]", "[1]"}},
    {"{'allOf': [{'type': 'string'}, {'enum': ['a', 1]}]}", {"'a'"}, {"1", "'b'"}},
    {"{'allOf': [{'const': 'a'}, {'const': 'a'}]}", {"'a'"}, {"'b'"}},
    {"{'type': 'string', 'allOf': [{'title': 'x'}]}", {"'a'"}, {"1"}},
    /* through itself */
    {"{'properties': {'n': {'$ref': '#'}}, 'allOf': [{'required': ['v']}, {'type': 'object'}], "
     "'additionalProperties': false}",
     {}, /* v is in none */
     {"{'v': 1}"}},
    {"{'properties': {'n': {'$ref': '#'}}, 'allOf': [{'required': ['v']}, {'type': 'object'}]}",
     {"{'v': 1}", "{'n': {'v': 1}, 'v': 2}"},
     {"{'n': {}, 'v': 1}", "{}"}},
    /* multiples */
    {"{'type': 'number', 'multipleOf': 5, 'minimum': 1}",
     {"5", "1000000005"},
     {"0", "-5", "7", "5.0", "5e1"}},
    {"{'type': ['integer', 'null'], 'multipleOf': 7.0}",
     {"0", "-7", "49", "null", "999999999999999999"},
     {"-0", "8", "999999999999999998"}},
    {"{'allOf': [{'multipleOf': 4, 'type': 'integer'}, {'multipleOf': 4}]}", {"4"}, {"2"}},
};

static bool follows(const omm_grammar *g, const char *text, bool *whole) {
    static crowd now, next;
    static frames f;
    f.count = 0;
    match_begin(&now, g, g->root, true);
    for (; *text; text++) {
        match_step(&next, &f, g, &now, (uint8_t)*text);
        now = next;
    }
    *whole = match_is_whole(g, &now);
    return now.count > 0;
}

static void check_whole(const omm_grammar *g, const char *schema, const char *text, bool wanted) {
    char out[TEXT_MAX];
    bool whole = false;
    (void)follows(g, quoted(out, text), &whole);
    if (whole == wanted) return;
    fprintf(stderr, "%s: %s is %s\n", schema, text, wanted ? "refused" : "taken");
    exit(1);
}

static void test_texts(void) {
    for (size_t i = 0; i < sizeof s_texts / sizeof *s_texts; i++) {
        omm_grammar *g = NULL;
        const omm_err err = open_schema(&g, s_texts[i].schema);
        if (!s_texts[i].yes[0]) {
            CHECK_ERR(err, OMM_ERR_UNSUPPORTED);
            continue;
        }
        if (err != OMM_OK) fprintf(stderr, "%s: %s\n", s_texts[i].schema, omm_err_sentence());
        CHECK_OK(err);
        for (size_t k = 0; k < 8 && s_texts[i].yes[k]; k++)
            check_whole(g, s_texts[i].schema, s_texts[i].yes[k], true);
        for (size_t k = 0; k < 10 && s_texts[i].no[k]; k++)
            check_whole(g, s_texts[i].schema, s_texts[i].no[k], false);
        omm_grammar_close(g);
    }
}

static const struct {
    const char *schema, *words;
} s_refused[] = {
    {"{'allOf': []}", "#: allOf of nothing is not supported; supported: type"},
    {"{'allOf': {}}", "#: allOf of nothing is not"},
    {"{'allOf': [1, {'type': 'null'}]}", "#: allOf of what is no object is not"},
    {"{'allOf': [{'type': 'null'}, {'type': 'string'}]}",
     "#: allOf of types that no value has is not"},
    {"{'allOf': [{'pattern': 'a'}, {'pattern': 'b'}]}", "#: two of pattern in allOf is not"},
    {"{'allOf': [{'enum': [1]}, {'enum': [1]}]}", "#: two of enum in allOf is not"},
    {"{'allOf': [{'enum': [1, 5]}, {'minimum': 3}]}", "#: minimum beside enum is not"},
    {"{'allOf': [{'anyOf': [{}, {'type': 'null'}]}, {'type': 'object'}]}",
     "#: type beside anyOf is not"},
    {"{'properties': {'a': {'not': {}}}, 'allOf': [{}]}", "#/properties/a: not is not"},
    {"{'allOf': [{'type': 'null'}, {'if': {}}]}", "#: if is not supported"},
    {"{'allOf': [{'$ref': '#/x'}, {'type': 'null'}]}",
     "#: a $ref of allOf to no place in the schema is not"},
    {"{'allOf': [{'$ref': '#/$defs/a', 'type': 'null'}, {'type': 'null'}], '$defs': {'a': {}}}",
     "#: in allOf what stands beside $ref is not"},
    {"{'allOf': [{'$id': 'x', 'type': 'null'}, {'type': 'null'}]}", "#: $id below the root is not"},
    {"{'allOf': [{'$ref': '#'}, {'type': 'null'}]}", "#: so much in allOf is not"},
    {"{'allOf': [{'minimum': 1, 'exclusiveMinimum': true}, {'type': 'integer'}]}",
     "#: in allOf true or false as exclusiveMinimum"},
    {"{'allOf': [{'minimum': 'x'}, {'minimum': 1}]}", "#: two of minimum in allOf is not"},
    {"{'allOf': [{'properties': {'a': false}}, {'type': 'object'}]}",
     "#: false, which no value fulfils, is not"},
    {"{'allOf': [{'properties': 1}, {'type': 'object'}]}",
     "#: in allOf what are no properties is not"},
    {"{'allOf': [{'required': 1}, {'required': ['a']}]}",
     "#: in allOf what is no list of names is not"},
    {"{'allOf': [{'prefixItems': [{}]}, {'items': {'type': 'null'}}]}",
     "#: in allOf prefixItems beside items of another"},
    {"{'allOf': [{'items': [{}]}, {'minItems': 1}]}", "#: a list as items in allOf is not"},
    {"{'allOf': [{'uniqueItems': true}, {'type': 'array'}]}", "#: uniqueItems is not supported"},
    {"{'multipleOf': 2}", "#: a range of what is no number is not"},
    {"{'type': 'number', 'multipleOf': 0.01}",
     "#: multipleOf but of a whole number up to 1e15 is not"},
    {"{'type': 'integer', 'multipleOf': 1e16}", "#: multipleOf but of a whole number"},
    {"{'type': 'integer', 'multipleOf': 10, 'minimum': 11, 'maximum': 19}",
     "#: no number of up to 18 digits"},
    {"{'type': 'integer', 'multipleOf': 0}", "#/multipleOf: accepted are numbers over 0"},
    {"{'type': 'integer', 'multipleOf': '2'}", "#/multipleOf: accepted are numbers over 0"},
    /* nothing that long ends */
    {"{'type': 'string', 'minLength': 4294967295}",
     "#/minLength: accepted are whole numbers below"},
    {"{'type': 'array', 'minItems': 1e10}", "#/minItems: accepted are whole numbers below"},
};

static void test_refused(void) {
    for (size_t i = 0; i < sizeof s_refused / sizeof *s_refused; i++) {
        omm_grammar *g = NULL;
        const omm_err err = open_schema(&g, s_refused[i].schema);
        if (err != OMM_OK && strstr(omm_err_sentence(), s_refused[i].words)) continue;
        fprintf(stderr, "%s: %s\n", s_refused[i].schema, err ? omm_err_sentence() : "taken");
        exit(1);
    }
}

/* 2^count ways to one schema; each name of a wide object, in as many: both end soon, and say why. */
static void test_too_much(void) {
    json_t *defs = json_object(), *wide = json_object(), *all = json_array();
    char name[24], next[24];
    omm_grammar *g = NULL;
    for (unsigned i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "a%u", i);
        snprintf(next, sizeof next, "#/$defs/a%u", i + 1);
        json_object_set_new(defs, name,
                            json_pack("{s:[{s:s}, {s:s}]}", "allOf", "$ref", next, "$ref", next));
    }
    json_object_set_new(defs, "a30", json_pack("{s:s}", "type", "null"));
    json_t *schema = json_pack("{s:[{s:s}, {s:s}], s:o}", "allOf", "$ref", "#/$defs/a0", "type",
                               "null", "$defs", defs);
    CHECK_ERR(omm_grammar_open_schema(&g, schema), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "#: so much in allOf is not supported"));
    json_decref(schema);
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "n%u", i);
        json_object_set_new(wide, name, json_object());
    }
    for (unsigned i = 0; i < 20; i++)
        json_array_append_new(
            all, json_pack("{s:O, s:b}", "properties", wide, "additionalProperties", 0));
    schema = json_pack("{s:o}", "allOf", all);
    CHECK_ERR(omm_grammar_open_schema(&g, schema), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "#: so much in allOf is not supported"));
    json_decref(schema);
    json_decref(wide);
}

/* Numbers of a range: those that are multiples, and no text is begun that becomes none. */
static void check_multiples(int low, int high, int multiple) {
    char schema[128], text[16];
    omm_grammar *g = NULL;
    bool some = false, whole = false;
    for (int i = low; i <= high; i++) some = some || i % multiple == 0;
    snprintf(schema, sizeof schema,
             "{'type': 'integer', 'minimum': %d, 'maximum': %d, 'multipleOf': %d}", low, high,
             multiple);
    CHECK_EQ(open_schema(&g, schema), some ? OMM_OK : OMM_ERR_UNSUPPORTED);
    for (int i = -300; some && i <= 300; i++) {
        bool begins = false;
        snprintf(text, sizeof text, "%d", i);
        for (int k = low; k <= high; k++) {
            char longer[16];
            snprintf(longer, sizeof longer, "%d", k);
            begins = begins || (k % multiple == 0 && strncmp(longer, text, strlen(text)) == 0);
        }
        CHECK_EQ(follows(g, text, &whole), begins);
        CHECK_EQ(whole, i >= low && i <= high && i % multiple == 0);
    }
    CHECK(!some || follows(g, "-", &whole) ==
                       (low <= -multiple && (high < 0 ? -high / multiple * multiple : 0) <= -low));
    omm_grammar_close(g);
}

static void test_multiples(void) {
    static const int ends[] = {-250, -99, -1, 0, 9, 101},
                     multiples[] = {1, 2, 3, 7, 10, 12, 41, 100};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = i; k < 6; k++)
            for (size_t m = 0; m < 8; m++) check_multiples(ends[i], ends[k], multiples[m]);
}

/* Of a tool that is strict what names its members has no others, unless all of them say so. */
static void test_arguments(void) {
    static const char *const schemas[] = {
        "{'allOf': [{'properties': {'a': {}}}, {'properties': {'b': {}}, 'additionalProperties': "
        "true}], 'type': 'object'}",
        "{'allOf': [{'properties': {'a': {}}, 'additionalProperties': {}}, {'properties': {'b': "
        "{}}, 'additionalProperties': true}], 'type': 'object'}"};
    for (size_t i = 0; i < 2; i++) {
        json_t *schema = parse(schemas[i]);
        omm_grammar *g = open_arguments(schema, true);
        check(g, schemas[i], "{'a': 1, 'b': 2}", true);
        check(g, schemas[i], "{'c': 1}", i == 1);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

int main(void) {
    test_texts();
    test_refused();
    test_too_much();
    test_multiples();
    test_arguments();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
