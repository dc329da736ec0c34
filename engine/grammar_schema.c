/* grammar_schema.c - JSON Schema to rules.  Schemas that $ref names wait in a list until those that name them are done, so
 * that recursion here is bounded by how schemas stand inside one another. */
#include "grammar_internal.h"

#include "omm/mem.h"

#include <stdarg.h>
#include <stdio.h>

#define PATH_BYTES_MAX 400u /* of what is said; longer ones are cut */
#define SUPPORTED                                                                                  \
    "supported: type, enum, const, anyOf, oneOf, allOf of one, $ref to # or #/$defs/NAME, "        \
    "properties, required, additionalProperties, items, prefixItems, minItems, maxItems, "         \
    "minLength, maxLength; of integers minimum, maximum, exclusiveMinimum, exclusiveMaximum"

typedef struct target {
    json_t *schema;
    uint32_t rule; /* a choice with one part */
    char path[PATH_BYTES_MAX];
} target;

typedef struct compiler {
    omm_grammar *g;
    json_t *root;
    target *targets; /* of $ref; the root is the first */
    uint32_t target_count, target_capacity;
    unsigned depth;
    bool lenient; /* what is not supported is any value */
    char path[PATH_BYTES_MAX];
} compiler;

static omm_err compile(uint32_t *out, compiler *c, json_t *schema);

/* ---- paths ------------------------------------------------------------------------------------- */

/* Returns where the path ended before, to go back there. */
static size_t go_down(compiler *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static size_t go_down(compiler *c, const char *fmt, ...) {
    const size_t size = strlen(c->path);
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->path + size, sizeof c->path - size, fmt, args);
    va_end(args);
    return size;
}

static void go_up(compiler *c, size_t size) {
    c->path[size] = '\0';
}

static omm_err not_supported(const compiler *c, const char *what) {
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: %.60s is not supported; " SUPPORTED, c->path,
                     what);
}

static omm_err malformed(const compiler *c, const char *key, const char *accepted) {
    return omm_raise(OMM_ERR_FORMAT, "%.200s/%s: accepted %s", c->path, key, accepted);
}

static omm_err add_at(uint32_t *out, compiler *c, rule made, const char *path) {
    made.path = (uint32_t)c->g->bytes.size;
    OMM_TRY(omm_buf_append(&c->g->bytes, path, strlen(path) + 1));
    return grammar_add_rule(out, c->g, &made);
}

static omm_err add(uint32_t *out, compiler *c, rule made) {
    return add_at(out, c, made, c->path);
}

/* ---- numbers and texts ----------------------------------------------------------------------------- */

/* Kept where the schema does not say it. */
static omm_err read_count(uint32_t *out, const compiler *c, const json_t *schema, const char *key) {
    const json_t *value = json_object_get(schema, key);
    const json_int_t v = json_integer_value(value);
    if (!value) return OMM_OK;
    if (!json_is_integer(value) || v < 0) return malformed(c, key, "are whole numbers from 0");
    *out = v < (json_int_t)RULE_NONE ? (uint32_t)v : RULE_NONE; /* no text is that long */
    return OMM_OK;
}

static omm_err read_limits(rule *r, const compiler *c, const json_t *schema, const char *least,
                           const char *most) {
    r->max = RULE_NONE;
    OMM_TRY(read_count(&r->min, c, schema, least));
    OMM_TRY(read_count(&r->max, c, schema, most));
    if (r->min <= r->max) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no value has %s %u and %s %u", c->path, least,
                     r->min, most, r->max);
}

/* move: to the first value that may be, where the schema's end may not. */
static omm_err read_bound(int64_t *out, const compiler *c, const json_t *schema, const char *key,
                          int64_t move) {
    const json_t *value = json_object_get(schema, key);
    int64_t v = json_integer_value(value);
    if (!value) return OMM_OK;
    if (!json_is_integer(value)) return malformed(c, key, "are whole numbers");
    if (v > INTEGER_MAX + 1) v = INTEGER_MAX + 1;
    if (v < -INTEGER_MAX - 1) v = -INTEGER_MAX - 1;
    *out = v + move;
    return OMM_OK;
}

static omm_err read_range(rule *r, const compiler *c, const json_t *schema) {
    int64_t low = -INTEGER_MAX, high = INTEGER_MAX;
    r->low = low;
    r->high = high;
    OMM_TRY(read_bound(&low, c, schema, "minimum", 0));
    if (low > r->low) r->low = low;
    OMM_TRY(read_bound(&low, c, schema, "exclusiveMinimum", 1));
    if (low > r->low) r->low = low;
    OMM_TRY(read_bound(&high, c, schema, "maximum", 0));
    if (high < r->high) r->high = high;
    OMM_TRY(read_bound(&high, c, schema, "exclusiveMaximum", -1));
    if (high < r->high) r->high = high;
    if (r->low <= r->high) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no integer of up to %u digits is in the range",
                     c->path, INTEGER_DIGITS_MAX);
}

static omm_err put_value(literal *out, compiler *c, json_t *value) {
    out->at = (uint32_t)c->g->bytes.size;
    OMM_TRY(omm_json_write_spaced(&c->g->bytes, value));
    out->size = (uint32_t)c->g->bytes.size - out->at;
    return OMM_OK;
}

/* As a text of the output has it: NAME" */
static omm_err put_name(literal *out, compiler *c, const char *name) {
    json_t *value = json_string(name);
    const omm_err err = put_value(out, c, value);
    json_decref(value);
    OMM_TRY(err);
    out->at++; /* its first quote */
    out->size--;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' && !strchr("\b\f\n\r\t", *p))
            return not_supported(c, "a control character in a name");
    return OMM_OK;
}

/* ---- types ------------------------------------------------------------------------------------- */

enum { TYPE_STRING, TYPE_INTEGER, TYPE_NUMBER, TYPE_OBJECT, TYPE_ARRAY, TYPE_BOOLEAN, TYPE_NULL };
enum { TYPE_COUNT = TYPE_NULL + 1 };
static const char *const s_types[TYPE_COUNT] = {"string", "integer", "number", "object",
                                                "array",  "boolean", "null"};

static omm_err read_type(unsigned *set, const compiler *c, const json_t *name) {
    const char *word = json_string_value(name);
    for (unsigned i = 0; word && i < TYPE_COUNT; i++)
        if (strcmp(word, s_types[i]) == 0) {
            *set |= 1u << i;
            return OMM_OK;
        }
    return malformed(
        c, "type", "are string, integer, number, object, array, boolean, null, or a list of them");
}

/* Where `type` is missing, the keywords say it. */
static unsigned implied_types(const json_t *schema) {
    static const struct {
        const char *key;
        unsigned type;
    } s_implied[] = {{"properties", TYPE_OBJECT},
                     {"required", TYPE_OBJECT},
                     {"additionalProperties", TYPE_OBJECT},
                     {"items", TYPE_ARRAY},
                     {"prefixItems", TYPE_ARRAY},
                     {"minItems", TYPE_ARRAY},
                     {"maxItems", TYPE_ARRAY},
                     {"minLength", TYPE_STRING},
                     {"maxLength", TYPE_STRING}};
    unsigned set = 0;
    for (size_t i = 0; i < sizeof s_implied / sizeof s_implied[0]; i++)
        if (json_object_get(schema, s_implied[i].key)) set |= 1u << s_implied[i].type;
    return set;
}

/* 0: any value. */
static omm_err read_types(unsigned *set, const compiler *c, const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    *set = type ? 0 : implied_types(schema);
    if (!type) return OMM_OK;
    if (!json_is_array(type)) return read_type(set, c, type);
    if (json_array_size(type) == 0) return malformed(c, "type", "is a list of at least one");
    for (size_t i = 0; i < json_array_size(type); i++)
        OMM_TRY(read_type(set, c, json_array_get(type, i)));
    return OMM_OK;
}

static bool is_of(unsigned set, const json_t *value) {
    unsigned has = json_is_string(value)    ? 1u << TYPE_STRING
                   : json_is_object(value)  ? 1u << TYPE_OBJECT
                   : json_is_array(value)   ? 1u << TYPE_ARRAY
                   : json_is_boolean(value) ? 1u << TYPE_BOOLEAN
                   : json_is_null(value)    ? 1u << TYPE_NULL
                                            : 1u << TYPE_NUMBER;
    if (json_is_integer(value)) has |= 1u << TYPE_INTEGER;
    return set == 0 || (set & has) != 0;
}

/* enum, or const as a list of one: what is of the type. */
static omm_err compile_values(uint32_t *out, compiler *c, json_t *schema, json_t *values) {
    unsigned set = 0;
    rule made = {.kind = RULE_TEXTS, .rest = RULE_NONE};
    OMM_TRY(read_types(&set, c, schema));
    OMM_TRY(grammar_add_texts(&made.first, c->g, json_array_size(values)));
    for (size_t i = 0; i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);
        if (!is_of(set, value)) continue;
        literal one = {0};
        OMM_TRY(put_value(&one, c, value));
        c->g->texts[made.first + made.count++] = one;
    }
    if (made.count == 0)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no value of enum or const is of the type",
                         c->path);
    grammar_sort_texts(c->g, made.first, &made.count);
    return add(out, c, made);
}

/* ---- objects ------------------------------------------------------------------------------------- */

/* *rest: what others are; true and {} are any value. */
static omm_err read_rest(uint32_t *rest, compiler *c, json_t *schema, const char *key) {
    json_t *value = json_object_get(schema, key);
    *rest = RULE_NONE;
    if (json_is_false(value)) return OMM_OK;
    if (!value || json_is_true(value)) return grammar_any(rest, c->g);
    const size_t up = go_down(c, "/%s", key);
    const omm_err err = compile(rest, c, value);
    go_up(c, up);
    return err;
}

static omm_err compile_member(rule *made, compiler *c, const char *name, json_t *schema) {
    literal spelled = {.member = made->count};
    uint32_t compiled = 0;
    const size_t up = go_down(c, "/properties/%.64s", name);
    OMM_TRY(put_name(&spelled, c, name));
    OMM_TRY(compile(&compiled, c, schema));
    go_up(c, up);
    c->g->texts[made->names + made->count] = spelled;
    c->g->members[made->first + made->count++].rule = compiled;
    return OMM_OK;
}

/* What `properties` does not have is as the others are. */
static omm_err add_required(rule *made, compiler *c, json_t *wanted) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(wanted, name, value) {
        literal spelled = {.member = made->count};
        if (made->rest == RULE_NONE)
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%.200s/required: %.60s is no property, and no other is allowed",
                             c->path, name);
        OMM_TRY(put_name(&spelled, c, name));
        c->g->texts[made->names + made->count] = spelled;
        c->g->members[made->first + made->count++] = (member){.rule = made->rest, .required = true};
    }
    return OMM_OK;
}

static omm_err compile_members(rule *made, compiler *c, json_t *properties, json_t *wanted) {
    const size_t most = json_object_size(properties) + json_object_size(wanted);
    const char *name = NULL;
    json_t *value = NULL;
    OMM_TRY(grammar_add_members(&made->first, c->g, most));
    OMM_TRY(grammar_add_texts(&made->names, c->g, most));
    json_object_foreach(properties, name, value) {
        OMM_TRY(compile_member(made, c, name, value));
        if (json_object_del(wanted, name) == 0)
            c->g->members[made->first + made->count - 1].required = true;
    }
    OMM_TRY(add_required(made, c, wanted));
    uint32_t count = made->count;
    grammar_sort_texts(c->g, made->names, &count);
    OMM_ASSERT(count == made->count);
    return OMM_OK;
}

static omm_err compile_object(uint32_t *out, compiler *c, json_t *schema) {
    json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    rule made = {.kind = RULE_OBJECT};
    if (properties && !json_is_object(properties))
        return malformed(c, "properties", "is an object");
    if (required && !json_is_array(required)) return malformed(c, "required", "is a list of names");
    OMM_TRY(read_rest(&made.rest, c, schema, "additionalProperties"));
    json_t *wanted = json_object();
    omm_err err = OMM_OK;
    for (size_t i = 0; i < json_array_size(required) && err == OMM_OK; i++)
        if (json_object_set_new(wanted, json_string_value(json_array_get(required, i)),
                                json_true()) != 0)
            err = malformed(c, "required", "is a list of names");
    if (err == OMM_OK) err = compile_members(&made, c, properties, wanted);
    json_decref(wanted);
    return err == OMM_OK ? add(out, c, made) : err;
}

/* ---- arrays ------------------------------------------------------------------------------------- */

static omm_err compile_list(uint32_t first, compiler *c, const char *key, json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        uint32_t compiled = 0;
        const size_t up = go_down(c, "/%s/%zu", key, i);
        OMM_TRY(compile(&compiled, c, json_array_get(list, i)));
        go_up(c, up);
        c->g->parts[first + i] = compiled;
    }
    return OMM_OK;
}

static omm_err compile_array(uint32_t *out, compiler *c, json_t *schema) {
    json_t *prefix = json_object_get(schema, "prefixItems");
    rule made = {.kind = RULE_ARRAY, .count = (uint32_t)json_array_size(prefix)};
    if (prefix && !json_is_array(prefix))
        return malformed(c, "prefixItems", "is a list of schemas");
    if (json_is_array(json_object_get(schema, "items")))
        return malformed(c, "items", "is one schema; a list of them is prefixItems");
    OMM_TRY(read_limits(&made, c, schema, "minItems", "maxItems"));
    OMM_TRY(grammar_add_parts(&made.first, c->g, json_array_size(prefix)));
    OMM_TRY(compile_list(made.first, c, "prefixItems", prefix));
    OMM_TRY(read_rest(&made.rest, c, schema, "items"));
    if (made.min > made.count && made.rest == RULE_NONE)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no array has minItems %u and %u items",
                         c->path, made.min, made.count);
    return add(out, c, made);
}

/* ---- choices ------------------------------------------------------------------------------------- */

static omm_err compile_type(uint32_t *out, compiler *c, json_t *schema, unsigned type) {
    static const char *const words[] = {"true", "false", "null"};
    rule made = {.kind = RULE_STRING, .rest = RULE_NONE};
    switch (type) {
    case TYPE_OBJECT: return compile_object(out, c, schema);
    case TYPE_ARRAY: return compile_array(out, c, schema);
    case TYPE_BOOLEAN: return grammar_add_literals(out, c->g, words, 2);
    case TYPE_NULL: return grammar_add_literals(out, c->g, words + 2, 1);
    case TYPE_INTEGER:
        made.kind = RULE_INTEGER;
        OMM_TRY(read_range(&made, c, schema));
        return add(out, c, made);
    case TYPE_NUMBER: made.kind = RULE_NUMBER; return add(out, c, made);
    default: break;
    }
    OMM_TRY(read_limits(&made, c, schema, "minLength", "maxLength"));
    return add(out, c, made);
}

static const char *const s_range[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

/* Numbers with fractions are kept to none. */
static omm_err check_range(const compiler *c, const json_t *schema, unsigned set) {
    const bool integers = set & 1u << TYPE_INTEGER, numbers = set & 1u << TYPE_NUMBER;
    for (size_t i = 0; i < sizeof s_range / sizeof s_range[0]; i++)
        if (json_object_get(schema, s_range[i]) && (numbers || !integers))
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%.200s: %s of what is no integer is not supported; " SUPPORTED,
                             c->path, s_range[i]);
    return OMM_OK;
}

static omm_err compile_types(uint32_t *out, compiler *c, json_t *schema) {
    unsigned set = 0;
    rule made = {.kind = RULE_CHOICE, .rest = RULE_NONE};
    OMM_TRY(read_types(&set, c, schema));
    OMM_TRY(check_range(c, schema, set));
    if (set == 0) return grammar_any(out, c->g);
    if (set & 1u << TYPE_NUMBER) set &= ~(1u << TYPE_INTEGER); /* it is one */
    OMM_TRY(grammar_add_parts(&made.first, c->g, (size_t)__builtin_popcount(set)));
    for (unsigned type = 0; type < TYPE_COUNT; type++) {
        uint32_t compiled = 0;
        if (!(set & 1u << type)) continue;
        OMM_TRY(compile_type(&compiled, c, schema, type));
        c->g->parts[made.first + made.count++] = compiled;
    }
    return add(out, c, made);
}

static omm_err compile_choice(uint32_t *out, compiler *c, const char *key, json_t *list) {
    rule made = {.kind = RULE_CHOICE, .rest = RULE_NONE, .count = (uint32_t)json_array_size(list)};
    if (json_array_size(list) == 0) return malformed(c, key, "is a list of at least one schema");
    OMM_TRY(grammar_add_parts(&made.first, c->g, made.count));
    OMM_TRY(compile_list(made.first, c, key, list));
    return add(out, c, made);
}

/* ---- $ref ------------------------------------------------------------------------------------- */

static omm_err find_target(uint32_t *out, compiler *c, json_t *schema, const char *path) {
    rule made = {.kind = RULE_CHOICE, .rest = RULE_NONE, .count = 1};
    for (uint32_t i = 0; i < c->target_count; i++)
        if (c->targets[i].schema == schema) {
            *out = c->targets[i].rule;
            return OMM_OK;
        }
    if (c->target_count == c->target_capacity) {
        const uint32_t room = c->target_capacity ? 2 * c->target_capacity : 4;
        target *grown = (target *)omm_grow(c->targets, c->target_capacity, room, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
        c->targets = grown;
        c->target_capacity = room;
    }
    OMM_TRY(grammar_add_parts(&made.first, c->g, 1));
    OMM_TRY(add_at(out, c, made, path));
    target *t = &c->targets[c->target_count++];
    *t = (target){.schema = schema, .rule = *out};
    snprintf(t->path, sizeof t->path, "%s", path);
    return OMM_OK;
}

static omm_err compile_ref(uint32_t *out, compiler *c, const json_t *ref) {
    static const char *const folders[] = {"$defs", "definitions"};
    const char *path = json_string_value(ref);
    if (!path) return malformed(c, "$ref", "is #, or #/$defs/NAME");
    if (strcmp(path, "#") == 0) return find_target(out, c, c->root, "#");
    for (unsigned i = 0; i < 2; i++) {
        const size_t size = strlen(folders[i]);
        if (strncmp(path, "#/", 2) != 0 || strncmp(path + 2, folders[i], size) != 0 ||
            path[2 + size] != '/')
            continue;
        json_t *schema = json_object_get(json_object_get(c->root, folders[i]), path + 2 + size + 1);
        if (schema) return find_target(out, c, schema, path);
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/$ref: there is no %.100s", c->path, path);
    }
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/$ref: %.100s is not supported; " SUPPORTED,
                     c->path, path);
}

/* ---- a schema ------------------------------------------------------------------------------------- */

static bool is_in(const char *const *list, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], key) == 0) return true;
    return false;
}

#define IS_IN(list, key) is_in(list, sizeof(list) / sizeof(list)[0], key)

static const char *const s_alone[] = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"};
static const char *const s_values[] = {"enum",
                                       "const"}; /* of these, those that `type` may stand beside */

/* Every keyword is known.  *alone: the one that says all, or NULL. */
static omm_err check_keywords(const char **alone, const compiler *c, json_t *schema) {
    static const char *const notes[] = {"title",    "description", "default",  "examples",
                                        "$schema",  "$id",         "$comment", "deprecated",
                                        "readOnly", "writeOnly",   "$defs",    "definitions"};
    static const char *const typed[] = {"properties",      "required",    "additionalProperties",
                                        "items",           "prefixItems", "minItems",
                                        "maxItems",        "minLength",   "maxLength",
                                        "minimum",         "maximum",     "exclusiveMinimum",
                                        "exclusiveMaximum"};
    const char *key = NULL, *beside = NULL;
    json_t *value = NULL;
    *alone = NULL;
    json_object_foreach(schema, key, value) {
        if (IS_IN(s_alone, key)) {
            if (*alone)
                beside = key;
            else
                *alone = key;
        } else if (!IS_IN(notes, key) && !IS_IN(typed, key) && strcmp(key, "type") != 0 &&
                   !c->lenient) {
            return not_supported(c, key);
        }
    }
    json_object_foreach(schema, key, value) {
        const bool is_type = strcmp(key, "type") == 0;
        if (*alone && (IS_IN(typed, key) || (is_type && !IS_IN(s_values, *alone)))) beside = key;
    }
    if (!beside) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: %s beside %s is not supported; " SUPPORTED,
                     c->path, beside, *alone);
}

static omm_err compile_alone(uint32_t *out, compiler *c, json_t *schema, const char *key) {
    json_t *value = json_object_get(schema, key);
    if (strcmp(key, "$ref") == 0) return compile_ref(out, c, value);
    if (strcmp(key, "allOf") == 0 && json_array_size(value) != 1)
        return not_supported(c, "allOf of several");
    if (strcmp(key, "enum") == 0) {
        if (json_array_size(value) == 0)
            return malformed(c, key, "is a list of at least one value");
        return compile_values(out, c, schema, value);
    }
    if (strcmp(key, "const") != 0) return compile_choice(out, c, key, value);
    json_t *list = json_pack("[O]", value);
    const omm_err err = compile_values(out, c, schema, list);
    json_decref(list);
    return err;
}

static omm_err compile_inside(uint32_t *out, compiler *c, json_t *schema) {
    const char *alone = NULL;
    if (json_is_true(schema)) return grammar_any(out, c->g);
    if (json_is_false(schema)) return not_supported(c, "false, which no value fulfils,");
    if (!json_is_object(schema))
        return omm_raise(OMM_ERR_FORMAT, "%.200s: a schema is an object, or true", c->path);
    OMM_TRY(check_keywords(&alone, c, schema));
    return alone ? compile_alone(out, c, schema, alone) : compile_types(out, c, schema);
}

static omm_err compile(uint32_t *out, compiler *c, json_t *schema) {
    if (c->depth == OMM_GRAMMAR_SCHEMA_DEPTH_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%.200s: more than %u schemas inside one another",
                         c->path, OMM_GRAMMAR_SCHEMA_DEPTH_MAX);
    const size_t up = strlen(c->path);
    c->depth++;
    const omm_err err = compile_inside(out, c, schema);
    c->depth--;
    if (!c->lenient || (err != OMM_ERR_UNSUPPORTED && err != OMM_ERR_FORMAT)) return err;
    go_up(c, up);
    return grammar_any(out, c->g);
}

/* The root is the first target; each may name others. */
static omm_err compile_targets(uint32_t *out, compiler *c, const char *path) {
    OMM_TRY(find_target(out, c, c->root, path));
    for (uint32_t i = 0; i < c->target_count; i++) {
        uint32_t compiled = 0;
        memcpy(c->path, c->targets[i].path, sizeof c->path);
        OMM_TRY(compile(&compiled, c, c->targets[i].schema));
        c->g->parts[c->g->rules[c->targets[i].rule].first] = compiled;
    }
    return OMM_OK;
}

static omm_err compile_root(uint32_t *out, omm_grammar *g, json_t *schema, const char *path,
                            bool lenient) {
    compiler *c = (compiler *)omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
    c->root = schema;
    c->g = g;
    c->lenient = lenient;
    const omm_err err = compile_targets(out, c, path);
    omm_free(c->targets);
    omm_free(c);
    return err;
}

omm_err omm_grammar_open_schema(omm_grammar **out, json_t *schema) {
    omm_grammar *g = NULL;
    OMM_TRY(grammar_open(&g));
    omm_err err = compile_root(&g->root, g, schema, "#", false);
    if (err == OMM_OK) err = grammar_finish(g);
    if (err != OMM_OK) {
        omm_grammar_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}

/* ---- arguments ------------------------------------------------------------------------------------- */

/* Through choices of one; what leads back to itself stays one. */
static uint32_t unwrap(const omm_grammar *g, uint32_t index) {
    for (unsigned i = 0; i < OMM_GRAMMAR_SCHEMA_DEPTH_MAX; i++) {
        const rule *r = &g->rules[index];
        if (r->kind != RULE_CHOICE || r->count != 1) break;
        index = g->parts[r->first];
    }
    return index;
}

omm_err grammar_add_arguments(uint32_t *out, omm_grammar *g, const char *name, json_t *schema,
                              bool strict) {
    char path[PATH_BYTES_MAX];
    uint32_t root = 0;
    snprintf(path, sizeof path, "%s.parameters", name);
    OMM_TRY(compile_root(&root, g, schema, path, !strict));
    *out = unwrap(g, root);
    rule *r = &g->rules[*out];
    if (r->kind == RULE_OBJECT) {
        /* who names what a tool takes has named all */
        if (json_object_get(schema, "properties") &&
            !json_object_get(schema, "additionalProperties"))
            r->rest = RULE_NONE;
        return OMM_OK;
    }
    if (!strict) return grammar_any_object(out, g);
    return omm_raise(OMM_ERR_UNSUPPORTED, "%s: a schema with \"type\": \"object\" is needed", path);
}
