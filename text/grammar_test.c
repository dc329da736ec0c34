/* grammar_test.c - which schemas are taken and by which path others are refused; which bytes a text of them may have. */
#include "grammar_internal.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static json_t *parse(const char *schema) {
    json_t *root = NULL;
    CHECK_OK(omm_json_parse(&root, omm_bytes_str(schema), "a schema"));
    return root;
}

static omm_err open_schema(omm_grammar **g, const char *schema) {
    json_t *root = parse(schema);
    const omm_err err = omm_grammar_open_schema(g, root);
    json_decref(root);
    return err;
}

/* ---- schemas ----------------------------------------------------------------------------------- */

static const struct {
    const char *schema;
    omm_err err;
    const char *words;
} s_refused[] = {
    {"5", OMM_ERR_FORMAT, "#: a schema is an object, or true"},
    {"false", OMM_ERR_UNSUPPORTED, "#: false"},
    {"{\"contains\": {}}", OMM_ERR_UNSUPPORTED, "#: contains is not supported; supported: type, "},
    {"{\"pattern\": 1}", OMM_ERR_FORMAT, "#/pattern: accepted are regular expressions"},
    {"{\"pattern\": \"x(\"}", OMM_ERR_FORMAT, "#/pattern: byte 2 of the pattern: ( is not closed"},
    {"{\"pattern\": \"(?=x)\"}", OMM_ERR_UNSUPPORTED, "#/pattern: byte 2 of the pattern: (? with"},
    {"{\"pattern\": \"xyz\", \"maxLength\": 2}", OMM_ERR_UNSUPPORTED,
     "#/pattern: a pattern that no text fulfils"},
    {"{\"pattern\": \"x\", \"format\": \"date\"}", OMM_ERR_UNSUPPORTED,
     "#: format beside pattern is not"},
    {"{\"type\": \"integer\", \"pattern\": \"x\"}", OMM_ERR_UNSUPPORTED,
     "#: pattern or format of what is no string is not"},
    {"{\"type\": \"integer\", \"format\": \"int32\"}", OMM_ERR_UNSUPPORTED,
     "#: pattern or format of what is no string is not"},
    {"{\"format\": 1}", OMM_ERR_FORMAT, "#/format: accepted are date-time, date"},
    {"{\"type\": \"string\", \"format\": \"binary\"}", OMM_ERR_UNSUPPORTED,
     "#/format: binary is not supported; are date-time, date"},
    {"{\"format\": \"uuid\", \"maxLength\": 35}", OMM_ERR_UNSUPPORTED,
     "#/format: a pattern that no text fulfils"},
    {"{\"const\": \"x\", \"pattern\": \"x\"}", OMM_ERR_UNSUPPORTED, "#: pattern beside const"},
    {"{\"type\": \"string\", \"minimum\": 0}", OMM_ERR_UNSUPPORTED,
     "#: a range of what is no number is not supported"},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 9223372036854775807}", OMM_ERR_UNSUPPORTED,
     "#: no number of"},
    {"{\"type\": \"integer\", \"exclusiveMaximum\": -9223372036854775808}", OMM_ERR_UNSUPPORTED,
     "#: no number of"},
    {"{\"exclusiveMinimum\": 0}", OMM_ERR_UNSUPPORTED, "#: a range of what is no number"},
    {"{\"type\": \"string\", \"multipleOf\": 2}", OMM_ERR_UNSUPPORTED,
     "#: a range of what is no number"},
    {"{\"anyOf\": [{\"const\": 3, \"enum\": [1, 2]}]}", OMM_ERR_UNSUPPORTED,
     "#/anyOf/0: enum beside const"},
    {"{\"type\": \"number\", \"minimum\": 0.3, \"exclusiveMaximum\": 0.3}", OMM_ERR_UNSUPPORTED,
     "#: no number of up to 18 digits and 9 behind the point is in the range"},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": 1e-10}", OMM_ERR_UNSUPPORTED,
     "#: no number of"},
    {"{\"type\": \"integer\", \"minimum\": 1.2, \"maximum\": 1.8}", OMM_ERR_UNSUPPORTED,
     "#: no number of up to 18 digits and 0 behind"},
    {"{\"type\": \"integer\", \"minimum\": true}", OMM_ERR_FORMAT,
     "#/minimum: accepted are numbers"},
    {"{\"type\": \"integer\", \"minimum\": 5, \"exclusiveMaximum\": 5}", OMM_ERR_UNSUPPORTED,
     "#: no number of up to 18 digits"},
    {"{\"type\": \"integer\", \"minimum\": 1000000000000000000}", OMM_ERR_UNSUPPORTED,
     "#: no number of up to 18 digits"},
    {"{\"properties\": {\"a\": {\"items\": {\"not\": {}}}}}", OMM_ERR_UNSUPPORTED,
     "#/properties/a/items: not is not supported"},
    {"{\"anyOf\": [{}, {\"additionalProperties\": {\"if\": {}}}]}", OMM_ERR_UNSUPPORTED,
     "#/anyOf/1/additionalProperties: if is not"},
    {"{\"prefixItems\": [{}, {\"uniqueItems\": true}]}", OMM_ERR_UNSUPPORTED,
     "#/prefixItems/1: uniqueItems is not"},
    {"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"dependentRequired\": {}}}}",
     OMM_ERR_UNSUPPORTED, "#/$defs/a: dependentRequired is not"},
    {"{\"type\": \"int\"}", OMM_ERR_FORMAT, "#/type: accepted are string, integer"},
    {"{\"type\": []}", OMM_ERR_FORMAT, "#/type: accepted is a list of at least one"},
    {"{\"type\": [\"string\", 1]}", OMM_ERR_FORMAT, "#/type: accepted are string"},
    {"{\"enum\": []}", OMM_ERR_FORMAT, "#/enum: accepted is a list"},
    {"{\"enum\": [1, 2], \"type\": \"string\"}", OMM_ERR_UNSUPPORTED, "no value of enum"},
    {"{\"anyOf\": {}}", OMM_ERR_FORMAT, "#/anyOf: accepted is a list"},
    {"{\"anyOf\": [{}], \"type\": \"string\"}", OMM_ERR_UNSUPPORTED, "#: type beside anyOf"},
    {"{\"anyOf\": [{}], \"oneOf\": [{}]}", OMM_ERR_UNSUPPORTED, "#: oneOf beside anyOf"},
    {"{\"const\": 1, \"items\": {}}", OMM_ERR_UNSUPPORTED, "#: items beside const"},
    {"{\"allOf\": [{\"type\": \"null\"}, {\"enum\": [1]}]}", OMM_ERR_UNSUPPORTED,
     "#: no value of enum or const is of the type"},
    {"{\"allOf\": [{\"title\": \"x\"}, {\"if\": {}}]}", OMM_ERR_UNSUPPORTED,
     "#/allOf/1: if is not"},
    {"{\"$ref\": 1}", OMM_ERR_FORMAT, "#/$ref: accepted is #"},
    {"{\"$ref\": \"other.json\"}", OMM_ERR_UNSUPPORTED, "#/$ref: other.json is not supported"},
    {"{\"$ref\": \"#/$defs/x\"}", OMM_ERR_UNSUPPORTED, "#/$ref: there is no #/$defs/x"},
    {"{\"$ref\": \"#/properties/x\", \"title\": \"\"}", OMM_ERR_UNSUPPORTED,
     "#/$ref: there is no #/properties/x"},
    {"{\"$ref\": \"#x\"}", OMM_ERR_UNSUPPORTED, "#/$ref: #x is not supported"},
    {"{\"$ref\": \"#/allOf/01\", \"$defs\": {}}", OMM_ERR_UNSUPPORTED, "there is no #/allOf/01"},
    {"{\"anyOf\": [{\"$ref\": \"#/anyOf/1\"}]}", OMM_ERR_UNSUPPORTED, "there is no #/anyOf/1"},
    {"{\"$ref\": \"#/$defs/a~2\", \"$defs\": {\"a~2\": {}, \"a2\": {}}}", OMM_ERR_UNSUPPORTED,
     "there is no"},
    {"{\"$ref\": \"#/$defs/a~\", \"$defs\": {\"a~\": {}, \"a\": {}}}", OMM_ERR_UNSUPPORTED,
     "there is no"},
    {"{\"$ref\": \"#/$defs/a%2Fb\", \"$defs\": {\"a/b\": {}}}", OMM_ERR_UNSUPPORTED, "there is no"},
    {"{\"$ref\": \"#/$defs/a%00\", \"$defs\": {\"a\": {}}}", OMM_ERR_UNSUPPORTED, "there is no"},
    {"{\"properties\": {\"a\": {\"$id\": \"http://b.example/c\", \"$ref\": \"#/$defs/d\"}}}",
     OMM_ERR_UNSUPPORTED, "#/properties/a/$id: below the root it is not supported"},
    {"{\"$ref\": \"#/$defs/a/$defs/b\", \"$defs\": {\"a\": {\"$id\": \"b\", \"$defs\": {\"b\": "
     "{}}}}}",
     OMM_ERR_UNSUPPORTED, "#/$ref: there is no #/$defs/a/$defs/b"},
    {"{\"$ref\": \"#\"}", OMM_ERR_UNSUPPORTED, "#: $ref leads back to where it stands"},
    {"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"anyOf\": [{\"$ref\": \"#/$defs/a\"}, "
     "{\"$ref\": \"#\"}]}}}",
     OMM_ERR_UNSUPPORTED, "$ref leads back to where it stands"},
    {"{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", OMM_ERR_UNSUPPORTED,
     "#: no text fulfils it that ends"},
    {"{\"items\": {\"$ref\": \"#\"}, \"minItems\": 1}", OMM_ERR_UNSUPPORTED, "#: no text fulfils"},
    {"{\"properties\": []}", OMM_ERR_FORMAT, "#/properties: accepted is an object"},
    {"{\"properties\": {\"a\": 1}}", OMM_ERR_FORMAT, "#/properties/a: a schema is an object"},
    {"{\"properties\": {\"a\\u0001\": {}}}", OMM_ERR_UNSUPPORTED, "a control character in a name"},
    {"{\"required\": \"a\"}", OMM_ERR_FORMAT, "#/required: accepted is a list of names"},
    {"{\"required\": [1]}", OMM_ERR_FORMAT, "#/required: accepted is a list of names"},
    {"{\"required\": [\"a\"], \"additionalProperties\": false}", OMM_ERR_UNSUPPORTED,
     "#/required: a is no property"},
    {"{\"items\": [{}]}", OMM_ERR_FORMAT, "#/items: accepted is one schema"},
    {"{\"prefixItems\": {}}", OMM_ERR_FORMAT, "#/prefixItems: accepted is a list"},
    {"{\"minItems\": -1}", OMM_ERR_FORMAT, "#/minItems: accepted are whole numbers"},
    {"{\"maxLength\": 1.5}", OMM_ERR_FORMAT, "#/maxLength: accepted are whole numbers"},
    {"{\"minLength\": 3, \"maxLength\": 2}", OMM_ERR_UNSUPPORTED, "minLength 3 and maxLength 2"},
    {"{\"prefixItems\": [{}], \"items\": false, \"minItems\": 2}", OMM_ERR_UNSUPPORTED,
     "minItems 2 and 1 items"},
};

static void test_refused(void) {
    for (size_t i = 0; i < sizeof s_refused / sizeof s_refused[0]; i++) {
        omm_grammar *g = NULL;
        const omm_err err = open_schema(&g, s_refused[i].schema);
        if (err == s_refused[i].err && !g && strstr(omm_err_sentence(), s_refused[i].words))
            continue;
        fprintf(stderr, "%s: %s: %s\n", s_refused[i].schema, omm_err_name(err), omm_err_sentence());
        exit(1);
    }
}

/* A pointer that is walked has an end. */
static void test_long_pointer(void) {
    for (size_t size = GRAMMAR_POINTER_BYTES_MAX; size <= GRAMMAR_POINTER_BYTES_MAX + 1; size++) {
        omm_grammar *g = NULL;
        char ref[GRAMMAR_POINTER_BYTES_MAX + 2];
        memset(ref, 'n', size);
        memcpy(ref, "#/", 2);
        ref[size] = '\0';
        json_t *schema = json_pack("{s:s}", "$ref", ref);
        CHECK_EQ(omm_grammar_open_schema(&g, schema), OMM_ERR_UNSUPPORTED);
        CHECK(strstr(omm_err_sentence(), size > GRAMMAR_POINTER_BYTES_MAX
                                             ? "#/$ref: accepted are up to 2048 bytes, not 2049"
                                             : "#/$ref: there is no"));
        json_decref(schema);
    }
}

/* ---- texts ------------------------------------------------------------------------------------- */

static crowd s_crowds[2];
static frames s_frames;

/* Bytes of the text that may follow one another; *whole: and it may end there. */
static size_t follow(bool *whole, const omm_grammar *g, const char *text, size_t size) {
    crowd *now = &s_crowds[0], *next = &s_crowds[1];
    size_t at = 0;
    s_frames.count = 0;
    match_begin(now, g, g->root, true);
    for (; at < size; at++) {
        match_step(next, &s_frames, g, now, (uint8_t)text[at]);
        if (next->count == 0) break;
        crowd *swap = now;
        now = next;
        next = swap;
        if (at % 3 == 0) match_compact(now, &s_frames); /* changes nothing */
        if (s_frames.count > MATCH_FRAMES_MAX / 2) match_compact(now, &s_frames);
    }
    *whole = at == size && match_is_whole(g, now);
    return at;
}

static bool takes(const omm_grammar *g, const char *text) {
    bool whole = false;
    follow(&whole, g, text, strlen(text));
    return whole;
}

/* `yes` and `no` end with NULL. */
typedef struct texts {
    const char *schema;
    const char *yes[16], *no[20];
} texts;

static const texts s_texts[] = {
    {"{}",
     {"{}", "[]", "\"\"", "0", "-1.5e+07", "true", "false", "null", " {\"a\": [1, {\"b\":null}]}",
      "[[[[]]], [{}]]", "{\"a\":1,\"a\":2}", "\"\\u00e9\\n\xc3\xa9\""},
     {"", " ", "  1", "tru", "truee", "01", "-", "1.", ".5", "1e", "+1", "{\"a\" :1}", "{ }",
      "[1 ,2]", "[1,  2]", "1 ", "{\"a\":1,}", "[,1]", "{a:1}"}},
    {"{\"type\": \"integer\"}",
     {"0", "-12", "123456789012345678"},
     {"-0", "-01", "1.0", "1e3", "1234567890123456789", "00", "\"1\"", "null"}},
    {"{\"type\": \"integer\", \"enum\": [1.0, 2.5, 3]}", {"1.0", "3"}, {"1", "2.5", "2"}},
    {"{\"oneOf\": [{\"const\": 1}, {\"type\": \"null\"}], \"discriminator\": {\"propertyName\": "
     "\"k\"}}",
     {"1", "null"},
     {"2"}},
    {"{\"prefixItems\": [{\"$ref\": \"#%2F$defs%2Fa%7E1b\"}, {\"$ref\": \"#/$defs/c%25~0d\"}], "
     "\"items\": false, "
     "\"$defs\": {\"a/b\": {\"type\": \"null\"}, \"c%~d\": {\"const\": 1}}}",
     {"[null, 1]"},
     {"[1]", "[null, null]"}},
    {"{\"type\": \"number\"}",
     {"0", "0.5", "-1.25E-3", "1e99", "0.12345678901234567"},
     {"1e100", "0.123456789012345678", "1.e5", "-.5", "1.5.5", "1e5e5", "1e+"}},
    {"{\"type\": \"string\"}",
     {"\"\"", "\"a b\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u0001\\uFFFF\\ud7ff\\uE000\"",
      "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", "\"\xed\x9f\xbf\"", "\"\xf4\x8f\xbf\xbf\"",
      "\"\x7f\"", "\"\xe0\xa0\x80\""},
     {"\"\n\"", "\"\\x\"", "\"\\u0000\"", "\"\\ude00\"", "\"\\ud83d\"", "\"\\ud83dx\"",
      "\"\\ud83d\\n\"", "\"\\ud83d\\ud83d\"", "\"\\u12g4\"", "\"\xc0\x80\"", "\"\xe0\x9f\xbf\"",
      "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xf8\"", "\"\x80\"", "\"\xc3\"", "\"\xc3(\"",
      "\"\xf0\x8f\xbf\xbf\"", "\"a"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\xc3\xa9\xe2\x82\xac\"", "\"\\ud83d\\ude00\\n\xf0\x9f\x98\x80\""},
     {"\"\"", "\"a\"", "\"\xc3\xa9\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
    {"{\"enum\": [\"a\", \"ab\", 1, 12, 1.5, null, true, {\"x\": [1, \"\xc3\xa9\"]}, \"q\\\"\"]}",
     {"\"a\"", "\"ab\"", "1", "12", "1.5", "null", "true", "{\"x\": [1, \"\xc3\xa9\"]}",
      "\"q\\\"\""},
     {"\"b\"", "\"abc\"", "2", "123", "1.", "false", "{\"x\":[1,\"\xc3\xa9\"]}", "\"\\u0061\""}},
    {"{\"enum\": [1, 12], \"type\": [\"integer\", \"null\"]}", {"1", "12"}, {"2", "121", "null"}},
    {"{\"const\": \"x\", \"type\": \"string\"}", {"\"x\""}, {"\"y\"", "\"\"", "x"}},
    {"{\"oneOf\": [{\"const\": 1, \"title\": \"One\"}, {\"enum\": [2, \"two\"], \"type\": "
     "\"integer\"}, {\"type\": "
     "\"null\"}, {\"const\": 1}]}",
     {"1", "2", "null"},
     {"\"two\"", "3", "12"}},
    {"{\"type\": \"integer\", \"minimum\": -1.5, \"maximum\": 2.5}", {"-1", "0", "2"}, {"-2", "3"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 1.5, \"exclusiveMaximum\": 4.5}",
     {"2", "4"},
     {"1", "5"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 1.0, \"exclusiveMaximum\": 4.0}",
     {"2", "3"},
     {"1", "4"}},
    {"{\"type\": \"number\", \"minimum\": 0}", {"0", "-0", "0.5"}, {"-1", "-0.5"}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0}", {"0.5", "1"}, {"0", "-0", "-1"}},
    {"{\"type\": \"number\", \"minimum\": 0.1, \"exclusiveMaximum\": 1.5}",
     {"0.1", "0.100000001", "0.2", "1", "1.0", "1.499999999", "1.10"},
     {"0", "0.0", "0.09", "1.5", "1.50", "1.6", "2", "10", "-0.5", "1e0", "0.1000000001", "1.",
      ".5"}},
    {"{\"type\": [\"number\", \"null\"], \"exclusiveMinimum\": -2.5, \"maximum\": 0}",
     {"-2.4", "-2.499999999", "-0", "0", "0.0", "-0.0", "null", "-1"},
     {"-2.5", "-2.50", "-3", "0.1", "1", "-25"}},
    /* ends of more digits than are spelled: those inside */
    {"{\"type\": \"number\", \"minimum\": 0.1234567891, \"maximum\": 0.2234567899}",
     {"0.123456790", "0.12345679", "0.223456789"},
     {"0.123456789", "0.223456790", "0.22345679"}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0.1234567896, \"exclusiveMaximum\": "
     "0.2234567891}",
     {"0.12345679", "0.223456789"},
     {"0.123456789", "0.22345679"}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0.999999999, \"exclusiveMaximum\": 2}",
     {"1", "1.999999999"},
     {"0.999999999", "2"}},
    {"{\"type\": \"number\", \"minimum\": -2.9999999999, \"maximum\": 2.9999999999}",
     {"2.999999999", "-2.999999999", "2.5"},
     {"3", "-3", "3.0"}},
    {"{\"type\": \"number\", \"minimum\": 1700000000000.5}",
     {"1700000000000.5", "1700000000001", "999999999999999999.9"},
     {"1700000000000", "1700000000000.4", "1e30"}},
    {"{\"type\": [\"integer\", \"number\"], \"maximum\": 0.5}", {"0.5", "-7"}, {"0.6", "1"}},
    {"{\"type\": \"integer\", \"minimum\": -1e300, \"maximum\": 1e300}",
     {"-999999999999999999", "999999999999999999"},
     {"1000000000000000000"}},
    {"{\"type\": [\"string\", \"null\", \"boolean\"]}",
     {"\"x\"", "null", "true", "false"},
     {"1", "{}", "[]"}},
    {"{\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"integer\"}, \"a\": {\"type\": "
     "\"null\"}, \"ab\": {}}, \"required\": [\"a\"], \"additionalProperties\": false}",
     {"{\"a\":null}", "{\"b\":1,\"a\":null}", "{\"b\": 1, \"a\": null, \"ab\": \"x\"}",
      "{\"a\":null,\"ab\":{\"c\":1}}"},
     {"{}", "{\"b\":1}", "{\"a\":null,\"b\":1}", "{\"ab\":1,\"a\":null}", "{\"c\":1}",
      "{\"a\":null,\"c\":1}", "{\"a\":null,\"a\":null}", "{\"a\":1}", "{\"\\u0061\":null}",
      "{\"a\":null,}", "{\"\":1}"}},
    {"{\"properties\": {\"a\": {\"type\": \"null\"}, \"n/\": {\"type\": \"null\"}}, "
     "\"additionalProperties\": {\"type\": \"integer\"}}",
     {"{}", "{\"a\":null}", "{\"a\":null,\"b\":1}", "{\"b\":1}", "{\"aa\":1,\"\":2}",
      "{\"n/\":null}", "{\"\xc3\xa9\\n\":1}", "{\"n\":1}"},
     {"{\"a\":1}", "{\"b\":null}", "{\"b\":1,\"a\":null}", "{\"b\":1,\"a\":1}", "{\"\\u0061\":1}",
      "{\"n\\/\":1}", "{\"a\\u0062\":1}", "[]", "{\"n/\":1}"}},
    {"{\"required\": [\"z\", \"y\", \"z\"], \"properties\": {\"y\": {\"type\": \"null\"}}}",
     {"{\"y\":null,\"z\":1}", "{\"y\":null,\"z\":[],\"x\":1}"},
     {"{}", "{\"y\":null}", "{\"z\":1,\"y\":null}", "{\"y\":null,\"x\":1,\"z\":1}"}},
    {"{\"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[1]", "[1,2]", "[1, 2, 3]"},
     {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]", "[1,2,3,"}},
    {"{\"prefixItems\": [{\"type\": \"null\"}, {\"type\": \"integer\"}], \"items\": false}",
     {"[]", "[null]", "[null,1]"},
     {"[1]", "[null,1,2]", "[null,1,"}},
    {"{\"prefixItems\": [{\"type\": \"null\"}], \"items\": {\"type\": \"integer\"}, \"minItems\": "
     "2}",
     {"[null,1]", "[null,1,2]"},
     {"[]", "[null]", "[null,null]"}},
    {"{\"maxItems\": 0}", {"[]"}, {"[1]", "[1"}},
    {"{\"maxItems\": 1.0, \"minItems\": 1}", {"[1]"}, {"[]", "[1,"}},
    /* no number is cut to 32 bits */
    {"{\"type\": \"string\", \"maxLength\": 4294967297}", {"\"\"", "\"abc\""}, {"1"}},
    {"{\"maxItems\": 4294967296}", {"[]", "[1, 2]"}, {"1"}},
    {"{\"items\": false}", {"[]"}, {"[1]"}},
    {"{\"maxItems\": 1000000000000}", {"[]", "[1,2,3]"}, {"{}"}},
    {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}, {\"enum\": [\"a\"]}, "
     "{\"type\": "
     "\"string\", \"minLength\": 3}]}",
     {"1", "1.5", "\"a\"", "\"abc\""},
     {"\"b\"", "\"ab\"", "null"}},
    {"{\"oneOf\": [{\"properties\": {\"k\": {\"const\": 1}, \"x\": {\"type\": \"null\"}}, "
     "\"required\": [\"k\", \"x\"], \"additionalProperties\": false}, {\"properties\": {\"k\": "
     "{\"const\": 2}}, \"required\": [\"k\"], \"additionalProperties\": false}]}",
     {"{\"k\":1,\"x\":null}", "{\"k\":2}"},
     {"{\"k\":1}", "{\"k\":2,\"x\":null}", "{\"k\":3}", "{}"}},
    {"{\"allOf\": [{\"title\": \"x\"}, {\"type\": \"null\"}, {\"description\": \"y\"}]}",
     {"null"},
     {"1", "{}"}},
    {"{\"allOf\": [{}, {\"title\": \"x\"}]}", {"null", "[1]"}, {"x"}},
    {"{\"allOf\": [{\"$ref\": \"#/definitions/d\"}], \"definitions\": {\"d\": {\"type\": "
     "\"null\"}}}",
     {"null"},
     {"1"}},
    {"{\"$ref\": \"#/$defs/list\", \"$defs\": {\"list\": {\"anyOf\": [{\"type\": \"null\"}, "
     "{\"$ref\": \"#/$defs/list\"}, {\"$ref\": \"#/$defs/cons\"}]}, \"cons\": {\"properties\": "
     "{\"h\": {\"type\": \"integer\"}, \"t\": {\"$ref\": \"#/$defs/list\"}}, \"required\": [\"h\", "
     "\"t\"], \"additionalProperties\": false}}}",
     {"null", "{\"h\":1,\"t\":null}", "{\"h\":1,\"t\":{\"h\":2,\"t\":null}}"},
     {"{\"h\":1}", "{\"h\":1,\"t\":1}", "1"}},
    {"{\"pattern\": \"^[a-z\\\\\\\\\\\"\\\\n\\u00e9\\u20ac\\ud83d\\ude00]{1,3}$\"}",
     {"\"a\"", "\"\\\\\\\"\\n\"", "\"\\u000a\\u000A\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
     {"\"\"", "\"abcd\"", "\"A\"", "\"\\t\"", "\"\\u0061\"", "\"\\/\"", "\"\\u0009\"", "\"\n\"",
      "\"\xc3\xa8\"", "\"\xe2\x82\xad\"", "\"\xf0\x9f\x98\x81\"", "\"\\u00e9\"", "\"a", "1",
      "null"}},
    {"{\"pattern\": \"^[a\\\\\\\\]$\"}", {"\"a\"", "\"\\\\\""}, {"\"\\\"\"", "\"\\u0061\""}},
    {"{\"pattern\": \"^.+$\"}",
     {"\"\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
     {"\"\xc0\x80\"", "\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
      "\"\xf0\x8f\xbf\xbf\"", "\"\xf8\"", "\"\x80\"", "\"\xc3(\""}},
    {"{\"type\": [\"string\", \"null\"], \"pattern\": \"b\", \"minLength\": 3, \"maxLength\": 4}",
     {"\"abc\"", "\"bbbb\"", "\"\\tb\\\"\"", "null"},
     {"\"b\"", "\"aaaa\"", "\"aaaab\"", "\"aaabb\"", "1"}},
    {"{\"format\": \"date\", \"type\": \"string\"}",
     {"\"2026-11-27\"", "\"2024-02-29\"", "\"0001-01-01\"", "\"2000-02-29\""},
     {"\"2026-11-31\"", "\"2023-02-29\"", "\"0000-01-01\"", "\"1900-02-29\"", "\"2026-13-01\"",
      "\"2026-1-1\"", "\" 2026-11-27\""}},
    {"{\"prefixItems\": [{\"type\": \"null\"}, {\"$ref\": \"#/prefixItems/0\"}, {\"$ref\": "
     "\"#/$defs/a~1b~0%20c/properties/x\"}], \"items\": false, \"$defs\": {\"a/b~ c\": "
     "{\"properties\": {\"x\": {\"const\": 5}}}}}",
     {"[null,null,5]"},
     {"[null,1]", "[null,null,6]"}},
    {"{\"title\": \"T\", \"description\": \"D\", \"default\": 1, \"examples\": [1], \"$schema\": "
     "\"s\", \"$id\": \"i\", \"type\": \"null\"}",
     {"null"},
     {"1"}},
};

static void test_texts(void) {
    for (size_t i = 0; i < sizeof s_texts / sizeof s_texts[0]; i++) {
        const texts *t = &s_texts[i];
        omm_grammar *g = NULL;
        if (open_schema(&g, t->schema) != OMM_OK) {
            fprintf(stderr, "%s: %s\n", t->schema, omm_err_sentence());
            exit(1);
        }
        for (size_t k = 0; t->yes[k]; k++)
            if (!takes(g, t->yes[k])) {
                fprintf(stderr, "%s: not taken: %s\n", t->schema, t->yes[k]);
                exit(1);
            }
        for (size_t k = 0; t->no[k]; k++)
            if (takes(g, t->no[k])) {
                fprintf(stderr, "%s: taken: %s\n", t->schema, t->no[k]);
                exit(1);
            }
        omm_grammar_close(g);
    }
}

/* Every integer of a range and no other, and of what cannot become one no byte too many. */
static void test_ranges(void) {
    static const int ranges[][2] = {{0, 0},     {0, 9},     {1, 1},    {7, 23},    {-5, -5},
                                    {-120, -7}, {-3, 12},   {99, 101}, {-1, 1000}, {-999, 999},
                                    {10, 10},   {200, 999}, {-1000, 0}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const int low = ranges[i][0], high = ranges[i][1];
        omm_grammar *g = NULL;
        char words[128];
        bool begins[2][2000] = {{false}}; /* what some value begins with; those behind a minus */
        snprintf(words, sizeof words,
                 "{\"type\": \"integer\", \"minimum\": %d, \"exclusiveMaximum\": %d}", low,
                 high + 1);
        CHECK_OK(open_schema(&g, words));
        for (int v = low; v <= high; v++)
            for (int part = abs(v);; part /= 10) {
                begins[v < 0][part] = true;
                if (part < 10) break;
            }
        begins[1][0] = false; /* no -0 */
        for (int v = 0; v < 2 * 1200; v++) {
            const bool minus = v >= 1200;
            bool whole = false;
            const size_t size =
                (size_t)snprintf(words, sizeof words, minus ? "-%d" : "%d", v % 1200);
            const bool can = follow(&whole, g, words, size) == size;
            const int value = minus ? -(v % 1200) : v;
            CHECK_EQ(whole, value >= low && value <= high && !(minus && value == 0));
            CHECK_EQ(can, begins[minus][v % 1200]);
        }
        omm_grammar_close(g);
    }
}

static omm_err open_made(omm_grammar **g, json_t *schema) {
    const omm_err err = omm_grammar_open_schema(g, schema);
    json_decref(schema);
    return err;
}

typedef struct span {
    const char *schema;
    int low, high; /* in hundredths, both in it */
    bool open;     /* at an end: more than two digits may lead into it */
} span;

typedef struct spelled {
    char text[24];
    bool in;
} spelled;

enum { SPELLED_MAX = 2 * 20 * 111 };

/* All numbers of up to two digits behind the point, up to 20. */
static size_t spell_all(spelled *list, const span *s) {
    static const int tens[] = {1, 10, 100};
    size_t count = 0;
    for (int i = 0; i < 2 * 20 * 3; i++) {
        const int minus = i % 2, whole = i / 2 % 20, digits = i / 40;
        for (int f = 0; f < tens[digits]; f++) {
            const int size = whole * 100 + f * tens[2 - digits], value = minus ? -size : size;
            spelled *one = &list[count++];
            one->in = value >= s->low && value <= s->high;
            if (digits > 0)
                sprintf(one->text, "%s%d.%0*d", minus ? "-" : "", whole, digits, f);
            else
                sprintf(one->text, "%s%d", minus ? "-" : "", whole);
        }
    }
    return count;
}

/* Those of the range and no other, and no digit without one that it leads to. */
static void check_span(const span *s) {
    static spelled list[SPELLED_MAX];
    omm_grammar *g = NULL;
    const size_t count = spell_all(list, s);
    CHECK_OK(open_schema(&g, s->schema));
    for (size_t i = 0; i < count; i++) {
        bool whole = false, begins = false;
        const char *text = list[i].text;
        const size_t at = follow(&whole, g, text, strlen(text));
        for (size_t k = 0; k < count && !begins; k++)
            begins = list[k].in && strncmp(list[k].text, text, at) == 0;
        const bool may = begins || at == 0 || (s->open && at == strlen(text));
        if (whole == list[i].in && may) continue;
        fprintf(stderr, "%s: %s %s\n", s->schema, text, whole ? "taken" : "not taken, or too far");
        exit(1);
    }
    omm_grammar_close(g);
}

/* Where doubles lie further apart than what is spelled: of what reads as a double of the range, all. */
static void test_doubles(void) {
    static const struct {
        const char *schema, *yes, *no;
    } cases[] = {
        {"\"exclusiveMaximum\": 20000000", "19999999.999999997", "19999999.999999999"},
        {"\"exclusiveMaximum\": 20000000.0", "19999999.999999997", "19999999.999999999"},
        {"\"exclusiveMinimum\": 100000000", "100000000.000000011", "100000000.000000001"},
        {"\"minimum\": 16777217.1", "16777217.1", "16777217.099"},
        {"\"minimum\": 33554433.7", "33554433.7", "33554433.69"},
        {"\"maximum\": 123456789.1", "123456789.1", "123456789.11"},
        {"\"maximum\": -16777217.1", "-16777217.1", "-16777217.099"},
        {"\"exclusiveMaximum\": 1e17", "99999999999999990", "99999999999999999"},
        {"\"minimum\": 9007199254740993", "9007199254740993", "9007199254740992"},
        {"\"exclusiveMinimum\": 0", "0.000000001", "0.0"},
        {"\"exclusiveMaximum\": 0", "-0.000000001", "-0.0"},
        {"\"minimum\": 5, \"exclusiveMinimum\": true", "5.000000001", "5"},
        {"\"minimum\": 5, \"exclusiveMinimum\": false", "5", "4.999999999"},
        {"\"type\": \"integer\", \"minimum\": 1e17", "100000000000000000", "99999999999999999"},
        {"\"type\": \"integer\", \"exclusiveMaximum\": 1e17", "99999999999999999",
         "100000000000000000"},
        {"\"type\": \"integer\", \"maximum\": -1.5", "-2", "-1"},
        {"\"type\": \"integer\", \"exclusiveMinimum\": 9007199254740992.0", "9007199254740993",
         "9007199254740992"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[256];
        omm_grammar *g = NULL;
        snprintf(words, sizeof words, "{\"type\": \"number\", %s}", cases[i].schema);
        if (strstr(cases[i].schema, "type")) snprintf(words, sizeof words, "{%s}", cases[i].schema);
        CHECK_OK(open_schema(&g, words));
        if (!takes(g, cases[i].yes) || takes(g, cases[i].no)) {
            fprintf(stderr, "%s: %s not taken, or %s\n", words, cases[i].yes, cases[i].no);
            exit(1);
        }
        omm_grammar_close(g);
    }
}

static void test_spans(void) {
    static const span spans[] = {
        {"{\"type\": \"number\", \"minimum\": 0.5, \"maximum\": 12.2}", 50, 1220, false},
        {"{\"type\": \"number\", \"exclusiveMinimum\": -3.1, \"exclusiveMaximum\": 0.1}", -309, 9,
         true},
        {"{\"type\": \"number\", \"minimum\": -19, \"exclusiveMaximum\": -7.5}", -1900, -751, true},
        {"{\"type\": \"number\", \"minimum\": 1.2, \"maximum\": 1.2}", 120, 120, false},
        {"{\"type\": \"number\", \"minimum\": 0, \"maximum\": 0}", 0, 0, false},
        {"{\"type\": \"number\", \"minimum\": 10, \"maximum\": 19.9}", 1000, 1990, false},
    };
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) check_span(&spans[i]);
}

/* Values alone are no alternatives beside one another, however many schemas they stand in. */
static void test_titled(void) {
    omm_grammar *g = NULL;
    json_t *list = json_array();
    char word[16];
    for (int i = 0; i < 300; i++) {
        snprintf(word, sizeof word, "w%d", i);
        json_array_append_new(list, json_pack("{s:s, s:s}", "const", word, "title", word));
    }
    CHECK_OK(open_made(&g, json_pack("{s:o}", "oneOf", list)));
    CHECK(takes(g, "\"w0\"") && takes(g, "\"w299\"") && !takes(g, "\"w300\""));
    omm_grammar_close(g);
}

/* A byte is refused as soon as nothing that is allowed can begin so. */
static void test_early(void) {
    static const struct {
        const char *schema, *text;
        size_t at;
    } cases[] = {
        {"{\"type\": \"string\"}", "\"\\udc00\"", 4},
        {"{\"type\": \"string\"}", "\"\\u0000\"", 6},
        {"{\"type\": \"string\"}", "\"\\ud800\\uE000\"", 9},
        {"{\"type\": \"string\"}", "\"\xed\xa0\"", 2},
        {"{\"properties\": {\"abc\": {}}, \"additionalProperties\": false}", "{\"abd", 4},
        {"{\"properties\": {\"abc\": {}}, \"additionalProperties\": false}", "{\"abc\":1,", 8},
        {"{\"enum\": [\"red\", \"green\"]}", "\"gx", 2},
        {"{\"maxItems\": 1}", "[1,", 2},
        {"{\"pattern\": \"^\\u20ac$\"}", "\"\xe2\x82\xac\"", 5},
        {"{\"pattern\": \"^\\u20ac$\"}", "\"\xe2\x83", 2},
        {"{\"pattern\": \"^\\u20ac$\"}", "\"\xe3", 1},
        {"{\"pattern\": \"^A$\"}", "\"\xe0", 1}, /* an A in three bytes is none */
        {"{\"pattern\": \"^A$\"}", "\"\\", 1},
        {"{\"pattern\": \"^\\\"$\"}", "\"\\u", 2},
        {"{\"pattern\": \"^\\t$\"}", "\"\\u0001", 6},
        {"{\"pattern\": \"^\\u0013$\"}", "\"\\u000", 5},
        {"{\"pattern\": \"^a+$\", \"maxLength\": 2}", "\"aaa", 3},
        {"{\"pattern\": \"^a(?:bcd)?$\", \"maxLength\": 3}", "\"ab", 2},
        {"{\"format\": \"date\"}", "\"2023-02-29", 10},
        {"{\"type\": \"integer\", \"minimum\": 0}", "-1", 0},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0}", "-0", 0},
        /* an alternative that no text ends begins none */
        {"{\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/a\"}], "
         "\"$defs\": {\"a\": {\"items\": {\"$ref\": \"#/$defs/a\"}, \"minItems\": 1}}}",
         "[", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        omm_grammar *g = NULL;
        bool whole = false;
        CHECK_OK(open_schema(&g, cases[i].schema));
        CHECK_EQ(follow(&whole, g, cases[i].text, strlen(cases[i].text)), cases[i].at);
        omm_grammar_close(g);
    }
}

/* Values nest so far that each can still be ended, and the deepest text is one. */
static void test_depth(void) {
    omm_grammar *g = NULL;
    char text[4 * GRAMMAR_DEPTH_MAX] = "";
    bool whole = false;
    CHECK_OK(open_schema(&g, "{\"items\": {\"$ref\": \"#\"}}"));
    memset(text, '[', GRAMMAR_DEPTH_MAX + 1);
    CHECK_EQ(follow(&whole, g, text, GRAMMAR_DEPTH_MAX + 1), GRAMMAR_DEPTH_MAX);
    memset(text + GRAMMAR_DEPTH_MAX, ']', GRAMMAR_DEPTH_MAX);
    CHECK(takes(g, text));
    omm_grammar_close(g);
    /* An object in which a member is due takes one more. */
    CHECK_OK(
        open_schema(&g, "{\"properties\": {\"a\": {\"type\": \"null\"}, \"b\": {\"$ref\": \"#\"}}, "
                        "\"required\": [\"a\"], \"additionalProperties\": false}"));
    size_t size = 0;
    omm_buf deep;
    omm_buf_init(&deep, 1 << 16);
    for (unsigned i = 0; i < GRAMMAR_DEPTH_MAX; i++)
        CHECK_OK(omm_buf_printf(&deep, "{\"a\":null,\"b\":"));
    size = follow(&whole, g, (const char *)deep.data, deep.size);
    /* the 63rd has room for a null and no more: no comma behind it */
    CHECK_EQ(size, 62 * strlen("{\"a\":null,\"b\":") + strlen("{\"a\":null"));
    omm_buf_fini(&deep);
    omm_grammar_close(g);
}

/* ---- hostile ----------------------------------------------------------------------------------- */

static void test_limits(void) {
    omm_grammar *g = NULL;
    json_t *deep = json_object(), *wide = json_array(), *names = json_object();
    for (unsigned i = 0; i < OMM_GRAMMAR_SCHEMA_DEPTH_MAX; i++)
        deep = json_pack("{s:o}", "items", deep);
    CHECK_ERR(open_made(&g, deep), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "more than 64 schemas inside one another"));
    for (unsigned i = 0; i <= GRAMMAR_THREADS_MAX; i++)
        json_array_append_new(wide, json_pack("{s:i}", "maxLength", (int)i));
    CHECK_ERR(open_made(&g, json_pack("{s:{s:{s:o}}}", "properties", "a", "anyOf", wide)),
              OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "#/properties/a: more than 32 alternatives"));
    for (unsigned i = 0; i <= OMM_GRAMMAR_PARTS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        json_object_set_new(names, name, json_true());
    }
    CHECK_ERR(open_made(&g, json_pack("{s:o}", "properties", names)), OMM_ERR_TOO_BIG);
    json_t *values = json_array();
    for (unsigned i = 0; i <= OMM_GRAMMAR_PARTS_MAX; i++)
        json_array_append_new(values, json_integer(i));
    CHECK_ERR(open_made(&g, json_pack("{s:o}", "enum", values)), OMM_ERR_TOO_BIG);
    json_t *rules = json_array();
    for (unsigned i = 0; i < OMM_GRAMMAR_RULES_MAX; i++)
        json_array_append_new(rules, json_pack("{s:s}", "type", "string"));
    CHECK_ERR(open_made(&g, json_pack("{s:o}", "prefixItems", rules)), OMM_ERR_TOO_BIG);
    json_t *same = json_array();
    for (unsigned i = 0; i <= OMM_GRAMMAR_PARTS_MAX; i++)
        json_array_append_new(same, json_pack("{s:s}", "$ref", "#"));
    CHECK_ERR(open_made(&g, json_pack("{s:o}", "anyOf", same)), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "more than 16384 alternatives and items"));
    omm_buf big;
    omm_buf_init(&big, 1 << 22);
    uint8_t *added = NULL;
    CHECK_OK(omm_buf_extend(&big, &added, OMM_GRAMMAR_BYTES_MAX));
    memset(added, 'a', OMM_GRAMMAR_BYTES_MAX);
    CHECK_ERR(open_made(&g, json_pack("{s:s%}", "const", (const char *)added,
                                      (size_t)OMM_GRAMMAR_BYTES_MAX)),
              OMM_ERR_TOO_BIG);
    omm_buf_fini(&big);
    CHECK(g == NULL);
}

/* Each of a chain has the next one twice: 2^40 ways to the last. */
static void test_exponential(void) {
    omm_grammar *g = NULL;
    json_t *defs = json_object();
    for (unsigned i = 0; i < 40; i++) {
        char name[16], next[32];
        snprintf(name, sizeof name, "d%u", i);
        snprintf(next, sizeof next, "#/$defs/d%u", i + 1);
        json_object_set_new(defs, name,
                            json_pack("{s:[{s:s}, {s:s}]}", "anyOf", "$ref", next, "$ref", next));
    }
    json_object_set_new(defs, "d40", json_pack("{s:s}", "type", "null"));
    CHECK_OK(open_made(&g, json_pack("{s:s, s:o}", "$ref", "#/$defs/d0", "$defs", defs)));
    CHECK(takes(g, "null") && !takes(g, "1"));
    omm_grammar_close(g);
    /* Two ways at each of many items, which are one again behind it. */
    CHECK_OK(open_schema(&g, "{\"items\": {\"anyOf\": [{\"type\": \"integer\"}, {\"type\": "
                             "\"number\"}, {\"items\": {\"$ref\": \"#\"}}, {\"items\": {}}]}}"));
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    bool whole = false;
    for (unsigned i = 0; i < 500; i++) CHECK_OK(omm_buf_printf(&text, "%s1", i ? "," : "["));
    CHECK_EQ(follow(&whole, g, (const char *)text.data, text.size), text.size);
    CHECK_EQ(s_crowds[0].count, 2);
    CHECK_OK(omm_buf_printf(&text, ",[[[1,[[2]]]],[3]]]"));
    follow(&whole, g, (const char *)text.data, text.size);
    CHECK(whole);
    omm_buf_fini(&text);
    omm_grammar_close(g);
}

static void test_memory(void) {
    static const char schema[] =
        "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/x\"}, \"b\": {\"type\": [\"array\", "
        "\"null\"]}, \"c\": {}}, \"required\": [\"d\"], \"$defs\": {\"x\": {\"enum\": [1, "
        "\"y\"]}}}";
    json_t *root = parse(schema);
    size_t failed = 0;
    for (size_t n = 1; n < 100; n++) {
        omm_grammar *g = NULL;
        omm_mem_fail_nth(n);
        const omm_err err = omm_grammar_open_schema(&g, root);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        failed += err == OMM_ERR_NOMEM;
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && !g));
        omm_grammar_close(g);
    }
    CHECK(failed > 5);
    json_decref(root);
    omm_grammar *g = NULL;
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_grammar_open_object(&g), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_OK(omm_grammar_open_object(&g));
    CHECK(takes(g, "{\"a\": [true]}") && !takes(g, "[]"));
    omm_grammar_close(g);
    omm_grammar_close(NULL);
}

int main(void) {
    test_refused();
    test_long_pointer();
    test_texts();
    test_ranges();
    test_titled();
    test_spans();
    test_doubles();
    test_early();
    test_depth();
    test_limits();
    test_exponential();
    test_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
