/* grammar_lenient_test.c - arguments of tools that are not strict: what a schema allows by keywords that are not supported is not
 * out of reach, and what is required stays required. */
#include "test_grammar.h"

#include "omm/mem.h"

typedef struct texts {
    const char *schema, *yes[8], *no[8];
} texts;

#define STRING "{'type': 'string'}"
#define INTEGER "{'type': 'integer'}"
#define NULLS "{'type': 'null'}"
#define CIRCLE                                                                                     \
    "{'properties': {'kind': {'const': 'circle'}, 'radius': " INTEGER "}, 'required': ['radius']}"
#define SQUARE "{'properties': {'kind': {'const': 'square'}, 'side': " INTEGER "}}"
#define NAMED "'type': 'object', 'properties': {'name': " STRING "}"
#define SHAPES "'$defs': {'S': {'oneOf': [" CIRCLE ", " SQUARE "]}}"

/* What stands in alternatives. */
static const texts s_either[] = {
    {"{'type': 'object', 'properties': {'kind': {'enum': ['a', 'b']}}, 'if': {'properties': "
     "{'kind': "
     "{'const': 'a'}}}, 'then': {'properties': {'value': " STRING
     "}}, 'else': {'properties': {'value': " INTEGER "}}}",
     {"{'kind': 'a', 'value': 'x'}", "{'kind': 'b', 'value': 5}", "{}"},
     {"{'value': null}", "{'kind': 'c'}", "{'other': 1}"}},
    {"{'type': 'object', 'properties': {'kind': " STRING
     "}, 'allOf': [{'if': {'properties': {'kind': "
     "{'const': 'a'}}}, 'then': {'properties': {'value': " STRING
     "}}}, {'if': {'properties': {'kind': {'const': 'b'}}}, 'then': {'properties': "
     "{'value': " INTEGER "}}}]}",
     {"{'kind': 'a', 'value': 'x'}", "{'kind': 'b', 'value': 5}", "{'kind': 'z'}"},
     {"{'value': null}"}},
    {"{" NAMED ", 'allOf': [{'oneOf': [" CIRCLE ", " SQUARE "]}]}",
     {"{'name': 'x', 'kind': 'circle', 'radius': 1}", "{'kind': 'square', 'side': 2}",
      "{'name': 'x'}"},
     {"{'kind': 'square', 'radius': 1}", "{'kind': 'circle'}", "{'kind': 'cube'}"}},
    {"{" NAMED ", '$ref': '#/$defs/S', " SHAPES "}",
     {"{'name': 'x', 'kind': 'circle', 'radius': 1}", "{'kind': 'square', 'side': 2}"},
     {"{'kind': 'circle', 'side': 2}"}},
    {"{" NAMED ", 'anyOf': [{'required': ['name']}, {'properties': {'id': " INTEGER
     "}}], 'oneOf': [" CIRCLE ", " SQUARE "]}",
     {"{'name': 'x', 'kind': 'circle', 'radius': 1}", "{'name': 'x', 'kind': 'square', 'side': 2}",
      "{'id': 5, 'kind': 'square'}"},
     {"{'kind': 'square'}x", "{'id': 'x'}", "{'kind': 'cube'}"}},
    {"{" NAMED ", 'oneOf': [{'properties': {'size': " INTEGER "}, 'oneOf': [" CIRCLE ", " SQUARE
     "]}, {'properties': {'text': " STRING "}}]}",
     {"{'name': 'x', 'size': 1, 'kind': 'circle', 'radius': 1}",
      "{'size': 1, 'kind': 'square', 'side': 2}", "{'text': 'x'}"},
     {"{'kind': 'cube'}", "{'text': 'x', 'size': 1}"}},
    /* alternatives of one member: each as often as it is said is one; of values any number; of much any value */
    {"{'type': 'object', 'then': {'properties': {'a': {'type': 'integer', 'title': 'A'}}}, 'else': "
     "{'properties': {'a': {'title': 'B', 'type': 'integer'}}}}",
     {"{'a': 1}"},
     {"{'a': 'x'}"}},
    {"{'type': 'object', 'then': {'properties': {'a': " INTEGER "}}, 'else': {'properties': {'a': "
     "{'title': 'any'}}}}",
     {"{'a': 1}", "{'a': 'x'}"},
     {"{'b': 1}"}},
    {"{'type': 'object', 'then': {'properties': {'a': {'anyOf': [{'maxLength': 1}, {'maxLength': "
     "2}, "
     "{'maxLength': 3}, {'maxLength': 4}, {'maxLength': 5}]}}}, 'else': {'properties': {'a': "
     "{'oneOf': "
     "[{'minimum': 1, 'type': 'number'}, {'type': ['null', 'boolean', 'array']}]}}}}",
     {"{'a': 1}", "{'a': {}}"},
     {"{'b': 1}"}},
    /* what holds is how it is */
    {"{" NAMED ", 'then': {'properties': {'a': " STRING
     "}}, 'allOf': [{'properties': {'a': " INTEGER "}}], 'else': {'properties': {'name': " INTEGER
     "}}}",
     {"{'name': 'x', 'a': 1}"},
     {"{'a': 'x'}", "{'name': 1}"}},
    /* one of no objects is itself, where it may be */
    {"{'type': 'object', 'properties': {'a': {'properties': {'b': " NULLS "}, 'anyOf': [" NULLS
     ", {'properties': {'c': " NULLS "}}]}, 'd': {'type': 'object', 'properties': {'b': " NULLS
     "}, 'anyOf': [{'$ref': '#/$defs/n'}, {'type': 'object'}]}}, '$defs': {'n': " NULLS "}}",
     {"{'a': null}", "{'a': {'b': null, 'c': null}}", "{'d': {'b': null}}"},
     {"{'a': 1}", "{'d': null}"}},
    {"{'type': 'object', 'properties': {'a': {'required': ['b'], '$ref': '#/$defs/o'}}, '$defs': "
     "{'o': "
     "{'type': ['object', 'null'], 'properties': {'b': " NULLS "}}}}",
     {"{'a': null}", "{'a': {'b': null}}"},
     {"{'a': {}}", "{'a': 1}"}},
};

/* What is required of what stands elsewhere. */
static const texts s_required[] = {
    {"{'type': 'object', 'required': ['d'], '$ref': '#/$defs/A', '$defs': {'A': {'properties': "
     "{'e': " INTEGER "}}}}",
     {"{'d': 'x'}", "{'e': 1, 'd': null}"},
     {"{}", "{'e': 1}", "{'e': 'x', 'd': 1}", "{'d': 1, 'f': 1}"}},
    {"{'required': ['name'], 'allOf': [{'$ref': '#/$defs/A'}], '$defs': {'A': {" NAMED "}}}",
     {"{'name': 'x'}"},
     {"{}", "{'name': 1}"}},
    {"{'type': 'object', 'required': ['kind'], 'anyOf': [" CIRCLE ", " SQUARE "]}",
     {"{'kind': 'circle', 'radius': 1}", "{'kind': 'square'}"},
     {"{}", "{'radius': 1}", "{'kind': 'circle'}", "{'kind': 'square', 'radius': 1}"}},
    {"{'type': 'object', 'required': ['kind'], 'allOf': [{'$ref': '#/$defs/S'}], " SHAPES "}",
     {"{'kind': 'circle', 'radius': 1}", "{'kind': 'square'}"},
     {"{}", "{'kind': 'circle'}"}},
    {"{'type': 'object', 'required': ['a'], 'oneOf': [{'title': 'any'}, {'properties': {'b': " NULLS
     "}}]}",
     {"{'a': 1, 'c': 1}", "{'b': null, 'a': 1}"},
     {"{}", "{'b': null}"}},
    /* where nothing is named it may be any object, or no object at all */
    {"{'type': 'object', 'required': ['a'], 'anyOf': [{'required': ['b']}, {'required': ['c']}]}",
     {"{'a': 1, 'b': 2, 'x': 3}"},
     {"[]"}},
    {"{'type': 'object', 'properties': {'a': {'required': ['x'], '$ref': '#/$defs/s'}}, '$defs': "
     "{'s': " STRING "}}",
     {"{'a': 'x'}"},
     {"{'a': {}}"}},
    /* inside itself: once */
    {"{'type': 'object', 'properties': {'n': {'$ref': '#/$defs/n'}}, '$defs': {'n': {'type': "
     "'object', "
     "'properties': {'v': " INTEGER
     ", 'l': {'allOf': [{'$ref': '#/$defs/n'}], 'required': ['v']}, 'r': "
     "{'allOf': [{'$ref': '#/$defs/n'}], 'required': ['v']}}}}}",
     {"{'n': {'l': {'v': 1, 'l': {'v': 2, 'r': {'v': 3}}}}}"},
     {"{'n': {'l': {}}}", "{'n': {'l': {'v': 1, 'l': {}}}}", "{'n': {'x': 1}}"}},
    {"{'type': 'object', 'required': ['v'], 'properties': {'v': " INTEGER
     "}, 'allOf': [{'$ref': '#'}]}",
     {"{'v': 1}"},
     {"{}", "{'w': 1}"}},
};

#define MEMBER(schema) "{'type': 'object', 'properties': {'a': " schema "}}"
#define MEMBER_OF(schema, name, place)                                                             \
    "{'type': 'object', 'properties': {'a': " schema "}, '$defs': {'" name "': " place "}}"
#define X_ALONE "{'type': 'object', 'properties': {'x': " INTEGER "}}"

/* Types that stand elsewhere than what says something of their values. */
static const texts s_types[] = {
    {MEMBER("{'type': ['array', 'null'], 'anyOf': [{'items': " STRING "}, {'items': " INTEGER
            "}]}"),
     {"{'a': null}", "{'a': ['x']}", "{'a': [1]}"},
     {"{'a': {}}", "{'a': [null]}"}},
    {MEMBER("{'type': ['object', 'null'], 'anyOf': [{'properties': {'t': {'const': 'x'}}}, "
            "{'properties': {'t': {'const': 'y'}}}]}"),
     {"{'a': null}", "{'a': {'t': 'y'}}"},
     {"{'a': []}", "{'a': {'t': 'z'}}"}},
    {MEMBER("{'type': ['object', 'null'], 'allOf': [{'properties': {'k': " INTEGER "}}]}"),
     {"{'a': null}", "{'a': {'k': 1}}"},
     {"{'a': 1}", "{'a': {'l': 1}}"}},
    {MEMBER_OF("{'type': ['array', 'null'], 'allOf': [{'$ref': '#/$defs/L'}]}", "L",
               "{'items': " INTEGER "}"),
     {"{'a': null}", "{'a': [1]}"},
     {"{'a': ['x']}"}},
    /* and inside itself */
    {MEMBER_OF("{'type': ['object', 'null'], '$ref': '#/$defs/N'}", "N",
               "{'properties': {'k': {'type': ['object', 'null'], '$ref': '#/$defs/N'}}}"),
     {"{'a': null}", "{'a': {'k': null}}", "{'a': {'k': {'k': {}}}}"},
     {"{'a': 1}", "{'a': {'l': null}}", "{'a': {'k': {'k': 1}}}"}},
    {MEMBER_OF("{'type': ['object', 'null'], '$ref': '#/$defs/O'}", "O",
               "{'$ref': '#/$defs/O', 'title': 'nothing'}"),
     {"{'a': null}", "{'a': {'k': 1}}"},
     {"{'b': 1}"}},
    {MEMBER_OF(
         "{'type': ['object', 'null'], 'oneOf': [{'$ref': '#/$defs/N'}, " X_ALONE "]}", "N",
         "{'properties': {'k': {'type': ['object', 'null'], 'oneOf': [{'$ref': '#/$defs/N'}]}}}"),
     {"{'a': null}", "{'a': {'x': 1}}", "{'a': {'k': {'k': null}}}"},
     {"{'a': 1}", "{'a': {'k': {'x': 1}}}"}},
    /* what it leads to has one of its own */
    {MEMBER_OF("{'type': ['object', 'null'], '$ref': '#/$defs/O'}", "O", X_ALONE),
     {"{'a': {'x': 1}}"},
     {"{'a': null}"}},
    /* items beside what may be no list */
    {MEMBER("{'anyOf': [{'type': 'array'}, " NULLS ", " STRING "], 'items': " STRING "}"),
     {"{'a': null}", "{'a': ['x']}", "{'a': 'x'}"},
     {"{'a': [1]}", "{'a': 1}"}},
    {MEMBER_OF("{'$ref': '#/$defs/M', 'items': " STRING "}", "M", "{'type': ['array', 'null']}"),
     {"{'a': null}", "{'a': ['x']}"},
     {"{'a': 1}"}},
    {MEMBER("{'items': " STRING ", 'allOf': [{'type': ['array', 'null']}, {'maxItems': 3}]}"),
     {"{'a': null}", "{'a': ['x']}"},
     {"{'a': 1}", "{'a': [1]}"}},
};

/* Alternatives that are no objects, beside what speaks of objects. */
static const texts s_values[] = {
    {MEMBER("{'oneOf': [{'const': false}, " X_ALONE "], 'if': {}, 'then': {'required': ['x']}}"),
     {"{'a': false}", "{'a': {'x': 1}}"},
     {"{'a': true}", "{'a': {'x': null}}"}},
    {MEMBER_OF("{'allOf': [{'anyOf': [{'$ref': '#/$defs/O'}, {'enum': ['auto', 'none']}]}, {'not': "
               "{'const': 'none'}}]}",
               "O", X_ALONE),
     {"{'a': 'auto'}", "{'a': {'x': 1}}"},
     {"{'a': 'x'}", "{'a': {'y': 1}}"}},
    {MEMBER("{'required': ['x'], 'anyOf': [" X_ALONE ", {'items': " STRING "}]}"),
     {"{'a': ['x']}", "{'a': {'x': 1}}"},
     {"{'a': [1]}", "{'a': 'x'}"}},
    {MEMBER_OF("{'required': ['x'], 'anyOf': [{'$ref': '#/$defs/O'}, {'properties': {'x': " STRING
               "}}]}",
               "O", "{'title': 'perhaps', 'anyOf': [" NULLS ", " X_ALONE "]}"),
     {"{'a': null}", "{'a': {'x': 1}}", "{'a': {'x': 's'}}"},
     {"{'a': {}}", "{'a': 1}", "{'a': {'x': null}}"}},
    {MEMBER_OF("{'required': ['x'], 'oneOf': [{'$ref': '#/$defs/O'}, " X_ALONE "]}", "O",
               "{'oneOf': [{'$ref': '#/$defs/O'}, " NULLS "]}"),
     {"{'a': null}", "{'a': {'x': 1}}"},
     {"{'b': 1}"}},
};

/* Which members there are. */
static const texts s_names[] = {
    {"{" NAMED
     ", 'if': {'required': ['a'], 'properties': {'b': {'const': 1}}}, 'then': {'required': ['c']}}",
     {"{'name': 'x', 'b': 'any', 'a': 1, 'c': 2}", "{}"},
     {"{'d': 1}"}},
    {"{" NAMED ", 'dependentRequired': {'a': ['b']}, 'dependencies': {'c': ['d'], 'e': "
     "{'properties': {'f': " NULLS "}}}, 'dependentSchemas': {'g': {'properties': {'h': " NULLS
     "}}}}",
     {"{'h': null, 'f': null, 'g': 1, 'a': 2, 'b': 3, 'c': 4, 'd': 5, 'e': 6}"},
     {"{'f': 1}", "{'h': 1}", "{'i': 1}"}},
    {"{" NAMED ", 'allOf': [{'additionalProperties': " INTEGER "}]}",
     {"{'name': 'x', 'o': 1}"},
     {"{'name': 1}"}},
    {"{" NAMED ", '$ref': '#/$defs/A', '$defs': {'A': {'patternProperties': {'^x': " INTEGER "}}}}",
     {"{'name': 'x', 'x1': 1}"},
     {"{'name': 1}"}},
    {"{" NAMED ", 'oneOf': [{'properties': {'a': " NULLS "}}, {'additionalProperties': true}]}",
     {"{'name': 'x', 'o': 1}", "{'a': null}"},
     {"{'name': 1}"}},
    {"{" NAMED ", 'unevaluatedProperties': " INTEGER "}",
     {"{'name': 'x', 'o': 1}"},
     {"{'name': 1}", "{'o': 'x'}"}},
    {"{" NAMED ", 'allOf': [{'additionalProperties': false, 'unevaluatedProperties': false}]}",
     {"{'name': 'x'}"},
     {"{'o': 1}"}},
    /* beside one keyword alone as beside several */
    {"{'type': 'object', 'additionalProperties': true, 'allOf': [{'$ref': '#/$defs/B'}], '$defs': "
     "{'B': {" NAMED "}}}",
     {"{'name': 'x', 'o': 1}"},
     {"{'name': 1}"}},
    {"{'$ref': '#/$defs/B', 'additionalProperties': " INTEGER ", '$defs': {'B': {" NAMED "}}}",
     {"{'name': 'x', 'o': 1}"},
     {"{'o': 'x'}"}},
    {"{'type': 'object', 'patternProperties': {'^x': {}}, 'anyOf': [" CIRCLE ", " SQUARE "]}",
     {"{'side': 1, 'x1': 1}", "{'radius': 1, 'x1': 1}"},
     {"{'side': 'x'}"}},
    {"{'type': 'object', 'properties': {'p': {'unevaluatedProperties': true, '$ref': "
     "'#/$defs/B'}}, "
     "'$defs': {'B': {" NAMED "}}}",
     {"{'p': {'name': 'x', 'o': 1}}"},
     {"{'p': {'name': 1}}", "{'o': 1}"}},
    /* what is not found may say more */
    {"{" NAMED
     ", 'allOf': [{'$ref': '#base'}], '$defs': {'B': {'$anchor': 'base', 'properties': {'b': " NULLS
     "}}}}",
     {"{'name': 'x', 'b': null}"},
     {"{'name': 1}"}},
    {"{" NAMED ", 'allOf': [{'properties': {'c': " NULLS
     "}}, {'$ref': 'http://e.example/s#/$defs/B'}]}",
     {"{'name': 'x', 'b': null}"},
     {"{'name': 1}", "{'c': 1}"}},
    {"{" NAMED ", '$dynamicRef': '#node'}", {"{'name': 'x', 'b': null}"}, {"{'name': 1}"}},
    {"{" NAMED ", 'allOf': [{'$recursiveRef': '#'}]}",
     {"{'name': 'x', 'b': null}"},
     {"{'name': 1}"}},
    /* below another $id nothing is found from the root */
    {"{" NAMED ", 'allOf': [{'$id': 'http://a.example/b', 'properties': {'a': {'$ref': "
     "'#/$defs/x'}}}, {'$id': "
     "'#old', 'properties': {'b': " NULLS "}}]}",
     {"{'name': 'x', 'b': null, 'a': 1}"},
     {"{'b': 1}"}},
};

/* What only may hold holds of no member where others may stand, and makes no object of what may be another value. */
static const texts s_open[] = {
    {"{" NAMED ", 'additionalProperties': true, 'if': {'required': ['name']}, 'then': "
     "{'properties': {'a': " INTEGER "}}}",
     {"{'name': 'x', 'a': 'y'}", "{'b': 1}"},
     {"{'name': 1}"}},
    {"{" NAMED ", 'additionalProperties': " STRING ", 'then': {'properties': {'a': " INTEGER "}}}",
     {"{'a': 'y'}", "{'a': 1}", "{'b': 'x'}"},
     {"{'a': null}", "{'b': 1}"}},
    {"{" NAMED ", 'additionalProperties': " STRING ", 'allOf': [{'properties': {'c': " NULLS
     "}}, {'additionalProperties': true}]}",
     {"{'c': null}", "{'b': 'x'}"},
     {"{'c': 1}", "{'b': 1}"}},
    {"{" NAMED ", 'patternProperties': {'^x': " INTEGER "}, 'dependentSchemas': {'name': "
     "{'properties': {'a': " INTEGER "}}}}",
     {"{'a': 'y'}"},
     {"{'name': 1}"}},
    {"{'type': 'object', 'then': {'oneOf': [{}, {'properties': {'a': " INTEGER "}}]}}",
     {"{'a': 'y', 'b': 1}"},
     {"[]"}},
    {"{'type': 'object', 'unevaluatedProperties': " INTEGER ", 'oneOf': [{'additionalProperties': "
     "true}]}",
     {"{'a': 'y'}"},
     {"[]"}},
    {"{'type': 'object', 'unevaluatedProperties': " INTEGER ", 'allOf': [{'required': ['a']}]}",
     {"{'a': 1}"},
     {"{'a': 'y'}", "{}"}},
    {"{'type': 'object', 'required': ['x1'], 'patternProperties': {'^x': " INTEGER "}, "
     "'additionalProperties': " STRING "}",
     {"{'x1': 1}"},
     {"{}"}},
    {MEMBER("{'if': {'type': 'object'}, 'then': {'properties': {'b': " INTEGER "}}, 'else': " STRING
            "}"),
     {"{'a': 'x'}", "{'a': {'b': 1}}"},
     {"{'b': 1}"}},
    {MEMBER("{'allOf': [{'if': {'type': 'object'}, 'then': {'properties': {'b': " INTEGER
            "}}}, {'if': {'type': 'string'}, 'then': {'minLength': 1}}]}"),
     {"{'a': 'x'}", "{'a': 5}", "{'a': {'b': 1}}"},
     {"{'b': 1}"}},
    {MEMBER("{'type': ['object', 'null'], 'dependentSchemas': {'b': {'properties': {'b': " INTEGER
            "}}}}"),
     {"{'a': null}", "{'a': {'b': 1}}", "{'a': {'c': 1}}"},
     {"{'a': 1}"}},
    /* whichever of them holds, it names members */
    {"{'type': 'object', 'then': {'properties': {'a': " INTEGER
     "}}, 'else': {'properties': {'a': " STRING "}}}",
     {"{'a': 'y'}", "{'a': 1}"},
     {"{'a': null}", "{'b': 1}"}},
};

/* What tells alternatives apart comes first, where it has to be there. */
static const texts s_order[] = {
    {MEMBER("{'oneOf': [{'type': 'object', 'properties': {'x': " INTEGER
            ", 'kind': {'const': 'a'}, 'v': {'type': 'number', 'enum': [1]}}, 'required': ['v', "
            "'kind', 'x']}]}"),
     {"{'a': {'kind': 'a', 'v': 1, 'x': 5}}"},
     {"{'a': {'x': 5, 'kind': 'a', 'v': 1}}", "{'a': {'kind': 'a', 'x': 5, 'v': 1}}",
      "{'a': {'kind': 'a', 'v': 1}}"}},
    {"{" NAMED
     ", 'oneOf': [{'properties': {'kind': {'const': 'a'}}, 'required': ['kind', 'name']}, "
     "{'properties': {'kind': {'const': 'b'}}}]}",
     {"{'kind': 'a', 'name': 'x'}", "{'name': 'x', 'kind': 'b'}"},
     {"{'name': 'x', 'kind': 'a'}", "{'kind': 'b', 'name': 'x'}"}},
};

/* A format takes nothing away that some reader of it takes. */
static const texts s_formats[] = {
    {"{'type': 'object', 'properties': {'u': {'type': 'string', 'format': 'uri'}, 'e': {'type': "
     "'string', 'format': 'email'}, 'd': {'type': 'string', 'format': 'date-time'}}}",
     {"{'u': 'http://localhost:11434/v1'}", "{'u': 'postgres://u:p@db:5432/app'}",
      "{'e': 'my-service-account-prod@p.iam.gserviceaccount.com'}", "{'d': '2026-11-27T20:15:00'}"},
     {"{'u': 'localhost'}", "{'e': 'me'}", "{'d': 'now'}"}},
};

static void check_all(const texts *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        json_t *schema = parse(list[i].schema);
        omm_grammar *g = open_arguments(schema, false);
        for (size_t k = 0; k < 8 && list[i].yes[k]; k++)
            check(g, list[i].schema, list[i].yes[k], true);
        for (size_t k = 0; k < 8 && list[i].no[k]; k++)
            check(g, list[i].schema, list[i].no[k], false);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

#define CHECK_ALL(list) check_all(list, sizeof(list) / sizeof(list)[0])

/* Of more alternatives than stand side by side each member may be as each of them says. */
static void test_many_branches(void) {
    json_t *branches = json_array();
    for (int i = 0; i < 40; i++)
        json_array_append_new(branches, json_pack("{s:{s:{s:s+}, s:{s:s, s:s+}, s:{s:s}}}",
                                                  "properties", "kind", "const", "k",
                                                  i % 10 == 0   ? "0"
                                                  : i % 10 == 1 ? "1"
                                                                : "2",
                                                  "id", "type", "string", "description", "of ",
                                                  i % 2 ? "a" : "b", "size", "type",
                                                  i % 2 ? "integer" : "null"));
    json_t *schema = json_pack("{s:s, s:{s:{s:s}}, s:o}", "type", "object", "properties", "name",
                               "type", "string", "oneOf", branches);
    omm_grammar *g = open_arguments(schema, false);
    check(g, "40 branches", "{'name': 'x', 'kind': 'k2', 'id': 'x', 'size': 5}", true);
    check(g, "40 branches", "{'kind': 'k1', 'size': null}", true);
    check(g, "40 branches", "{'kind': 'k3'}", false);
    check(g, "40 branches", "{'id': 5}", false);
    check(g, "40 branches", "{'size': 'x'}", false);
    check(g, "40 branches", "{'o': 1}", false);
    omm_grammar_close(g);
    json_decref(schema);
}

/* Classes that derive from one another: members of all of them; of more than are looked at others may stand. */
static void test_inheritance(void) {
    for (int classes = 5; classes <= 40; classes += 35) {
        json_t *defs = json_object();
        char name[16], text[64];
        for (int i = 0; i < classes; i++) {
            snprintf(name, sizeof name, "c%d", i);
            snprintf(text, sizeof text, "#/$defs/c%d", i + 1);
            json_t *one = json_pack("{s:s, s:{s:{s:s}}}", "type", "object", "properties", name,
                                    "type", "null");
            if (i + 1 < classes)
                json_object_set_new(one, "allOf", json_pack("[{s:s}]", "$ref", text));
            json_object_set_new(defs, name, one);
        }
        json_t *schema = json_pack("{s:s, s:o}", "$ref", "#/$defs/c0", "$defs", defs);
        omm_grammar *g = open_arguments(schema, false);
        snprintf(text, sizeof text, "{'c0': null, 'c1': null, 'c%d': null}", classes - 1);
        check(g, "classes", text, true);
        check(g, "classes", "{'c4': 1}", false);
        check(g, "classes", "{'other': 1}", classes > 16);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

/* Schemas that name one another, and long lists of what is none, are looked at so often and no more. */
static void test_bounded(void) {
    json_t *defs = json_object(), *junk = json_array(), *all = json_array();
    for (int i = 0; i < 30; i++) {
        char name[16], a[32], b[32];
        snprintf(name, sizeof name, "d%d", i);
        snprintf(a, sizeof a, "#/$defs/d%d", (i + 1) % 30);
        snprintf(b, sizeof b, "#/$defs/d%d", (i + 2) % 30);
        json_object_set_new(defs, name,
                            json_pack("{s:[{s:s}, {s:s}, {s:s}], s:{s:{s:s}}}", "allOf", "$ref", a,
                                      "$ref", b, "$ref", "#/$defs/junk", "properties", name, "type",
                                      "null"));
    }
    for (int i = 0; i < 50000; i++) json_array_append_new(junk, json_integer(i));
    json_object_set_new(defs, "junk", json_pack("{s:O, s:o}", "anyOf", junk, "required", junk));
    for (int i = 0; i < 200; i++)
        json_array_append_new(all, json_pack("{s:s}", "$ref", "#/$defs/d0"));
    json_t *schema = json_pack("{s:s, s:{s:{s:s}}, s:o, s:o}", "type", "object", "properties",
                               "name", "type", "string", "allOf", all, "$defs", defs);
    looks l = {0, LOOKS_MAX};
    json_t *made = lenient_members(schema, schema, &l);
    CHECK_EQ(l.count, LOOKS_MAX);
    json_decref(made);
    omm_grammar *g = open_arguments(schema, false);
    check(g, "bounded", "{'name': 'x', 'other': 1}", true);
    check(g, "bounded", "{'name': 1}", false);
    omm_grammar_close(g);
    json_decref(schema);
}

#define AGAIN "{'allOf': [{'$ref': '#'}], 'required': ['v']}"
#define LATER "{'n': {'allOf': [{'$ref': '#'}, {'required': ['v']}], 'title': 'next'}}"

/* What stands inside itself by what is said beside it is one part and not as many as there is room for. */
static void test_inside_itself(void) {
    static const char *const schemas[] = {
        "{'type': 'object', 'properties': {'v': " INTEGER ", 'n': " AGAIN
        "}, 'oneOf': [{'required': ['v']}, {'required': ['n']}]}",
        "{'type': 'object', 'properties': {'v': " INTEGER
        "}, 'if': {'required': ['v']}, 'then': {'properties': {'n': " AGAIN "}}}",
        "{'type': 'object', 'properties': {'v': " INTEGER
        "}, 'dependentSchemas': {'v': {'properties': " LATER "}}}",
        "{'type': 'object', 'properties': {'v': " INTEGER "}, 'then': {'properties': " LATER
        "}, 'else': {'properties': {'n': " NULLS "}}}",
    };
    for (size_t i = 0; i < 4; i++) {
        json_t *schema = parse(schemas[i]);
        omm_grammar *g = open_arguments(schema, false);
        CHECK(g->rule_count < 60);
        check(g, schemas[i], "{'v': 1, 'n': {'v': 2, 'n': {'v': 3}}}", true);
        check(g, schemas[i], "{'v': 1, 'n': {'v': 'x'}}", false);
        check(g, schemas[i], "{'v': 1, 'n': {}}", false);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

/* A choice that has itself among its alternatives, which are to have a type that stands elsewhere. */
static void test_choice_of_itself(void) {
    static const char schema[] =
        MEMBER_OF("{'type': ['object', 'null'], 'oneOf': [{'$ref': '#/$defs/X'}]}", "X",
                  "{'anyOf': [{'$ref': '#/$defs/X'}, {'properties': {'v': " INTEGER "}}]}");
    json_t *root = parse(schema);
    omm_grammar *g = open_arguments(root, false);
    CHECK(g->rule_count < 60);
    check(g, schema, "{'a': null}", true);
    check(g, schema, "{'a': {'v': 1}}", true);
    check(g, schema, "{'a': {'v': 'x'}}", false);
    omm_grammar_close(g);
    json_decref(root);
}

static uint32_t looks_of(json_t *schema) {
    looks l = {0, LOOKS_MAX};
    json_decref(lenient_members(schema, schema, &l));
    return l.count;
}

/* A schema as deep as that, of names of 200 characters, beside which it stands by its pointer so often. */
static json_t *pointed_at(unsigned levels, unsigned times) {
    char name[201], ref[4096] = "#/x";
    json_t *inside = json_pack("{s:{s:{s:s}}}", "properties", "far", "type", "null");
    json_t *all = json_array();
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (unsigned i = 0; i < levels; i++) {
        const size_t size = strlen(ref);
        json_t *around = json_object();
        snprintf(ref + size, sizeof ref - size, "/%s", name);
        json_object_set_new(around, name, inside);
        inside = around;
    }
    for (unsigned i = 0; i < times; i++)
        json_array_append_new(all, json_pack("{s:s}", "$ref", ref));
    return json_pack("{s:s, s:{s:{s:s}}, s:o, s:o}", "type", "object", "properties", "name", "type",
                     "string", "allOf", all, "x", inside);
}

/* To walk a long pointer is work; one of more than 2048 bytes leads to what is not looked at. */
static void test_pointers(void) {
    for (unsigned levels = 1; levels < 15; levels += levels == 10 ? 1 : 3) {
        json_t *schema = pointed_at(levels, 20);
        omm_grammar *g = open_arguments(schema, false);
        const bool is_long = levels > 10;
        if (!is_long) CHECK(looks_of(schema) >= 20 * levels * 200 / 32);
        check(g, "pointers", "{'name': 'x', 'far': null}", true);
        check(g, "pointers", "{'far': 1}", is_long);
        check(g, "pointers", "{'other': 1}", is_long);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

/* `then` and `else` that name as many members, each in two ways, of which one is a choice of so many. */
static json_t *counted(unsigned names, unsigned choices) {
    json_t *either[2] = {json_object(), json_object()}, *list = json_array();
    char name[16];
    for (unsigned i = 0; i < choices; i++)
        json_array_append_new(list, json_pack("{s:s}", "$ref", "#/$defs/one"));
    for (unsigned i = 0; i < names; i++) {
        snprintf(name, sizeof name, "m%u", i);
        json_object_set_new(either[0], name, json_pack("{s:s}", "$ref", "#/$defs/all"));
        json_object_set_new(either[1], name, json_pack("{s:i}", "const", 1));
    }
    return json_pack("{s:s, s:{}, s:{s:o}, s:{s:o}, s:{s:{s:o}, s:{s:s}}}", "type", "object",
                     "properties", "then", "properties", either[0], "else", "properties", either[1],
                     "$defs", "all", "anyOf", list, "one", "const", "x");
}

/* Alternatives of all members together are counted so far and no further; the others are any value. */
static void test_counted(void) {
    json_t *few = counted(10, 40), *many = counted(300, 120);
    CHECK(looks_of(few) > 800 && looks_of(few) < 1000);
    CHECK_EQ(looks_of(many), LOOKS_MAX);
    omm_grammar *g = open_arguments(many, false);
    check(g, "counted", "{'m0': 'x', 'm1': 1}", true);
    check(g, "counted", "{'m0': null}", false);
    check(g, "counted", "{'m299': null, 'other': 1}", true);
    omm_grammar_close(g);
    json_decref(few);
    json_decref(many);
}

/* So many ways of one member, of 800 values each, in a choice that stands there so often. */
static json_t *compared(unsigned ways, unsigned times) {
    json_t *list = json_array(), *all = json_array();
    for (unsigned i = 0; i < ways; i++) {
        json_t *values = json_array();
        for (unsigned k = 0; k < 800; k++) json_array_append_new(values, json_integer(1));
        json_array_append_new(values, json_integer(i));
        json_array_append_new(list, json_pack("{s:{s:{s:o, s:s}}}", "properties", "a", "enum",
                                              values, "title", "of a"));
    }
    for (unsigned i = 0; i < times; i++)
        json_array_append_new(all, json_pack("{s:s}", "$ref", "#/$defs/d"));
    return json_pack("{s:s, s:{s:{}}, s:{s:o}, s:{s:{s:o}}}", "type", "object", "properties",
                     "name", "then", "anyOf", all, "$defs", "d", "anyOf", list);
}

/* Values are compared so often and no more; what was met before is known without. */
static void test_compared(void) {
    const unsigned times[3] = {1, 100, 1}, ways[3] = {20, 20, 60};
    for (size_t i = 0; i < 3; i++) {
        json_t *schema = compared(ways[i], times[i]);
        const uint32_t looked = looks_of(schema);
        omm_grammar *g = open_arguments(schema, false);
        if (i == 0) CHECK(looked > 20 * 20 * 800 / 2 / 64 && looked < 4000);
        if (i == 1) CHECK(looked > 4000 && looked < 8000); /* 42 for each time */
        if (i == 2) CHECK_EQ(looked, LOOKS_MAX);
        check(g, "compared", "{'a': 19}", true);
        check(g, "compared", "{'a': 'x'}", i == 2);
        omm_grammar_close(g);
        json_decref(schema);
    }
}

int main(void) {
    CHECK_ALL(s_either);
    CHECK_ALL(s_required);
    CHECK_ALL(s_types);
    CHECK_ALL(s_values);
    CHECK_ALL(s_names);
    CHECK_ALL(s_open);
    CHECK_ALL(s_order);
    CHECK_ALL(s_formats);
    test_many_branches();
    test_inheritance();
    test_bounded();
    test_inside_itself();
    test_choice_of_itself();
    test_pointers();
    test_counted();
    test_compared();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
