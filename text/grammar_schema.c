/* grammar_schema.c - JSON Schema to rules.  Schemas that $ref names wait in a list until those that name them are done, so
 * that recursion here is bounded by how schemas stand inside one another. */
#include "grammar_internal.h"

#include "omm/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define PATH_BYTES_MAX 400u /* of what is said; longer ones are cut */
#define SUPPORTED                                                                                  \
    "supported: type, enum, const, anyOf, oneOf, allOf, $ref to a place in the schema, "           \
    "properties, required, additionalProperties, items, prefixItems, minItems, maxItems, "         \
    "minLength, maxLength, pattern, format; of numbers minimum, maximum, exclusiveMinimum, "       \
    "exclusiveMaximum, multipleOf"
#define FORMATS "date-time, date, time, duration, email, hostname, ipv4, ipv6, uuid, uri"

#define PARTS_LOOKED_MAX 256u
#define CHOICES_MAX 4u /* inside choices, of what arguments are */

typedef struct target {
    json_t *schema;
    uint32_t rule; /* a choice with one part */
    char path[PATH_BYTES_MAX];
} target;

typedef struct compiler {
    omm_grammar *g;
    json_t *root;
    const char *root_path;
    target *targets; /* of $ref; the root is the first */
    uint32_t target_count, target_capacity;
    unsigned depth;
    json_t *target; /* that is compiled */
    json_t *made;   /* a list of what schemas were made for that; or NULL */
    json_t *typed;  /* lenient_with_type */
    bool lenient;   /* what is not supported is left out; where nothing is left it is any value */
    bool closed;    /* objects that name properties have no others unless they say so */
    char path[PATH_BYTES_MAX];
} compiler;

static omm_err compile(uint32_t *out, compiler *c, json_t *schema);
static omm_err compile_lenient(uint32_t *out, compiler *c, json_t *schema);

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

/* Goes on without what is not supported. */
static bool is_left_out(const compiler *c, omm_err err) {
    return c->lenient && (err == OMM_ERR_UNSUPPORTED || err == OMM_ERR_FORMAT);
}

static omm_err add_at(uint32_t *out, compiler *c, rule made, const char *path) {
    made.path = (uint32_t)c->g->bytes.size;
    made.wide = c->lenient;
    OMM_TRY(omm_buf_append(&c->g->bytes, path, strlen(path) + 1));
    return grammar_add_rule(out, c->g, &made);
}

static omm_err add(uint32_t *out, compiler *c, rule made) {
    return add_at(out, c, made, c->path);
}

/* ---- numbers and texts ----------------------------------------------------------------------------- */

/* Kept where the schema does not say it, or (left out alone) wrongly.  2.0 is a whole number, too. */
static omm_err read_count(uint32_t *out, const compiler *c, const json_t *schema, const char *key) {
    const json_t *value = json_object_get(schema, key);
    const double v = json_number_value(value);
    if (!value || (c->lenient && !json_is_number(value))) return OMM_OK;
    if (!json_is_number(value) || v < 0 || floor(v) < v)
        return c->lenient ? OMM_OK : malformed(c, key, "are whole numbers from 0");
    *out = v < RULE_NONE ? (uint32_t)v : RULE_NONE; /* no text is that long */
    return OMM_OK;
}

static omm_err read_limits(rule *r, const compiler *c, const json_t *schema, const char *least,
                           const char *most) {
    r->max = RULE_NONE;
    OMM_TRY(read_count(&r->min, c, schema, least));
    OMM_TRY(read_count(&r->max, c, schema, most));
    if (r->min <= r->max && r->min != RULE_NONE) return OMM_OK;
    if (!c->lenient && r->min == RULE_NONE)
        return malformed(c, least, "are whole numbers below 4294967295");
    if (!c->lenient)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no value has %s %u and %s %u", c->path,
                         least, r->min, most, r->max);
    r->min = 0;
    r->max = RULE_NONE;
    return OMM_OK;
}

static omm_err take_bound(rule *r, const compiler *c, const char *key, const json_t *value,
                          bool is_low, bool exclusive) {
    decimal *out = is_low ? &r->low : &r->high;
    if (!value || (c->lenient && !json_is_number(value))) return OMM_OK;
    if (!json_is_number(value)) return malformed(c, key, "are numbers");
    const decimal bound = decimal_bound(value, is_low, exclusive, r->kind == RULE_INTEGER);
    if ((decimal_compare(bound, *out) > 0) == is_low) *out = bound;
    return OMM_OK;
}

/* Before 2019 `exclusive` was true or false, and said how the other one is meant. */
static omm_err read_bound(rule *r, const compiler *c, const json_t *schema, const char *key,
                          const char *exclusive, bool is_low) {
    const json_t *value = json_object_get(schema, key), *other = json_object_get(schema, exclusive);
    const bool is_word = value && json_is_boolean(other);
    OMM_TRY(take_bound(r, c, key, value, is_low, is_word && json_is_true(other)));
    return is_word ? OMM_OK : take_bound(r, c, exclusive, other, is_low, true);
}

static void set_all(rule *r) {
    const int32_t nano = r->kind == RULE_NUMBER ? DECIMAL_NANO - 1 : 0;
    r->low = (decimal){-INTEGER_MAX, -nano};
    r->high = (decimal){INTEGER_MAX, nano};
}

static omm_err read_bounds(rule *r, const compiler *c, const json_t *schema) {
    OMM_TRY(read_bound(r, c, schema, "minimum", "exclusiveMinimum", true));
    OMM_TRY(read_bound(r, c, schema, "maximum", "exclusiveMaximum", false));
    if (r->kind == RULE_INTEGER) {
        r->low = decimal_whole(r->low, true);
        r->high = decimal_whole(r->high, false);
    }
    if (r->multiple > 0) { /* towards the middle; 0 may be one of either side */
        const int64_t m = r->multiple, above = r->low.whole % m, below = r->high.whole % m;
        r->low.whole += above > 0 ? m - above : -above;
        r->high.whole -= below < 0 ? m + below : below;
    }
    if (decimal_compare(r->low, r->high) <= 0) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "%.200s: no number of up to %u digits and %u behind the point is in the range",
                     c->path, INTEGER_DIGITS_MAX, r->kind == RULE_NUMBER ? DECIMAL_DIGITS : 0);
}

static bool has_range(const json_t *schema) {
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum"};
    for (size_t i = 0; i < 4; i++)
        if (json_object_get(schema, keys[i])) return true;
    return false;
}

/* Of a whole number: its multiples are integers, whatever the type is.  Others are none that readers of doubles agree on. */
static omm_err read_multiple(rule *r, const compiler *c, const json_t *schema) {
    const json_t *value = json_object_get(schema, "multipleOf");
    const double v = json_number_value(value);
    const bool whole = json_is_number(value) && v >= 1 && v <= 1e15 && floor(v) >= v;
    if (!value || (c->lenient && !whole)) return OMM_OK;
    if (!json_is_number(value) || v <= 0) return malformed(c, "multipleOf", "are numbers over 0");
    if (!whole) return not_supported(c, "multipleOf but of a whole number up to 1e15");
    r->kind = RULE_INTEGER;
    r->multiple = (int64_t)v;
    return OMM_OK;
}

static omm_err read_range(rule *r, const compiler *c, const json_t *schema) {
    OMM_TRY(read_multiple(r, c, schema));
    r->ranged = r->kind == RULE_INTEGER || has_range(schema);
    set_all(r);
    const omm_err err = read_bounds(r, c, schema);
    if (!is_left_out(c, err)) return err;
    r->ranged = r->kind == RULE_INTEGER;
    r->multiple = 0;
    set_all(r);
    return OMM_OK;
}

/* *expression: what the string matches, or NULL. */
static omm_err read_expression(const char **expression, const compiler *c, const json_t *schema) {
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    *expression = json_string_value(pattern);
    if (pattern && !*expression) return malformed(c, "pattern", "are regular expressions");
    if (!format) return OMM_OK;
    if (pattern) return not_supported(c, "format beside pattern");
    if (!json_is_string(format)) return malformed(c, "format", "are " FORMATS);
    *expression = grammar_format(json_string_value(format), c->lenient);
    if (*expression) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/format: %.60s is not supported; are " FORMATS,
                     c->path, json_string_value(format));
}

static omm_err add_pattern(rule *r, compiler *c, const json_t *schema, const char *expression) {
    const bool is_format = !json_object_get(schema, "pattern");
    const omm_err err = pattern_add(&r->first, &c->g->patterns, expression, r->min, r->max);
    if (err == OMM_OK) r->kind = RULE_PATTERN;
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return omm_raise(err, "%.200s/%s: %s", c->path, is_format ? "format" : "pattern",
                     omm_err_sentence());
}

/* A string that has its lengths gets what describes it. */
static omm_err read_pattern(rule *r, compiler *c, const json_t *schema) {
    const char *expression = NULL;
    omm_err err = read_expression(&expression, c, schema);
    if (expression && (err == OMM_OK || c->lenient)) err = add_pattern(r, c, schema, expression);
    return is_left_out(c, err) ? OMM_OK : err;
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
                     {"maxLength", TYPE_STRING},
                     {"pattern", TYPE_STRING},
                     {"format", TYPE_STRING}};
    unsigned set = 0;
    for (size_t i = 0; i < sizeof s_implied / sizeof s_implied[0]; i++)
        if (json_object_get(schema, s_implied[i].key)) set |= 1u << s_implied[i].type;
    return set;
}

static omm_err read_named(unsigned *set, const compiler *c, const json_t *type) {
    if (!json_is_array(type)) return read_type(set, c, type);
    if (json_array_size(type) == 0) return malformed(c, "type", "is a list of at least one");
    for (size_t i = 0; i < json_array_size(type); i++) {
        const omm_err err = read_type(set, c, json_array_get(type, i));
        if (!is_left_out(c, err)) OMM_TRY(err);
    }
    return OMM_OK;
}

/* 0: any value. */
static omm_err read_types(unsigned *set, const compiler *c, const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    const omm_err err = type ? read_named(set, c, type) : OMM_OK;
    if (!is_left_out(c, err)) OMM_TRY(err);
    if (*set == 0) *set = implied_types(schema);
    return OMM_OK;
}

static bool is_of(unsigned set, const json_t *value) {
    unsigned has = json_is_string(value)    ? 1u << TYPE_STRING
                   : json_is_object(value)  ? 1u << TYPE_OBJECT
                   : json_is_array(value)   ? 1u << TYPE_ARRAY
                   : json_is_boolean(value) ? 1u << TYPE_BOOLEAN
                   : json_is_null(value)    ? 1u << TYPE_NULL
                                            : 1u << TYPE_NUMBER;
    const double v = json_number_value(value);
    if (json_is_number(value) && floor(v) >= v) has |= 1u << TYPE_INTEGER; /* 1.0 is one, too */
    return set == 0 || (set & has) != 0;
}

/* To *list: values of enum, or that of const, that are of the type. */
static omm_err gather_values(json_t *list, const compiler *c, json_t *schema) {
    json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    const size_t before = json_array_size(list), count = one ? 1 : json_array_size(values);
    unsigned set = 0;
    if (count == 0) return malformed(c, "enum", "is a list of at least one value");
    OMM_TRY(read_types(&set, c, schema));
    for (int any = 0; any <= c->lenient && json_array_size(list) == before; any++)
        for (size_t i = 0; i < count; i++) {
            json_t *value = one ? one : json_array_get(values, i);
            if ((any || is_of(set, value)) && json_array_append(list, value) != 0)
                return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
        }
    if (json_array_size(list) > before) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no value of enum or const is of the type",
                     c->path);
}

static omm_err add_values(uint32_t *out, compiler *c, const json_t *list) {
    rule made = {.kind = RULE_TEXTS, .rest = RULE_NONE, .count = (uint32_t)json_array_size(list)};
    OMM_TRY(grammar_add_texts(&made.first, c->g, made.count));
    for (uint32_t i = 0; i < made.count; i++) {
        literal one = {0};
        OMM_TRY(put_value(&one, c, json_array_get(list, i)));
        c->g->texts[made.first + i] = one;
    }
    grammar_sort_texts(c->g, made.first, &made.count);
    return add(out, c, made);
}

static omm_err compile_values(uint32_t *out, compiler *c, json_t *schema) {
    json_t *list = json_array();
    omm_err err = gather_values(list, c, schema);
    if (err == OMM_OK) err = add_values(out, c, list);
    json_decref(list);
    return err;
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
static omm_err add_required(rule *made, compiler *c, uint32_t others, json_t *wanted) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(wanted, name, value) {
        literal spelled = {.member = made->count};
        if (others == RULE_NONE && c->lenient) continue;
        if (others == RULE_NONE)
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%.200s/required: %.60s is no property, and no other is allowed",
                             c->path, name);
        OMM_TRY(put_name(&spelled, c, name));
        c->g->texts[made->names + made->count] = spelled;
        c->g->members[made->first + made->count++] = (member){.rule = others, .required = true};
    }
    return OMM_OK;
}

/* What tells one of several objects from the others. */
static bool has_one_value(const json_t *schema) {
    return json_object_get(schema, "const") ||
           json_array_size(json_object_get(schema, "enum")) == 1;
}

/* In the order of the schema; but where that was not promised what has one value and has to be there comes first, so that of
 * alternatives side by side one is left before their other members begin. */
static omm_err compile_named(rule *made, compiler *c, json_t *properties, json_t *wanted) {
    const char *name = NULL;
    json_t *value = NULL;
    for (int rest = c->lenient ? 0 : 1; rest < 2; rest++)
        json_object_foreach(properties, name, value) {
            const bool required = json_object_get(wanted, name) != NULL;
            const bool first = c->lenient && required && has_one_value(value);
            if (first == (rest == 1)) continue;
            OMM_TRY(compile_member(made, c, name, value));
            c->g->members[made->first + made->count - 1].required = required;
        }
    json_object_foreach(properties, name, value) {
        json_object_del(wanted, name);
    }
    return OMM_OK;
}

static omm_err compile_members(rule *made, compiler *c, uint32_t others, json_t *properties,
                               json_t *wanted) {
    const size_t most = json_object_size(properties) + json_object_size(wanted);
    OMM_TRY(grammar_add_members(&made->first, c->g, most));
    OMM_TRY(grammar_add_texts(&made->names, c->g, most));
    OMM_TRY(compile_named(made, c, properties, wanted));
    OMM_TRY(add_required(made, c, others, wanted));
    uint32_t count = made->count;
    grammar_sort_texts(c->g, made->names, &count);
    OMM_ASSERT(count == made->count);
    return OMM_OK;
}

/* To the keys of *wanted. */
static omm_err read_required(json_t *wanted, const compiler *c, const json_t *schema) {
    const json_t *required = json_object_get(schema, "required");
    bool named = !required || json_is_array(required);
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name || json_object_set_new(wanted, name, json_true()) != 0) named = false;
    }
    return named || c->lenient ? OMM_OK : malformed(c, "required", "is a list of names");
}

/* The keyword that says which members there may be that have no name here. */
static const char *others_of(const compiler *c, const json_t *schema) {
    const json_t *others = json_object_get(schema, "unevaluatedProperties");
    const bool says_it = c->lenient && others && !json_is_false(others);
    return says_it && !json_object_get(schema, "additionalProperties") ? "unevaluatedProperties"
                                                                       : "additionalProperties";
}

static omm_err compile_object(uint32_t *out, compiler *c, json_t *schema) {
    json_t *properties = json_object_get(schema, "properties");
    rule made = {.kind = RULE_OBJECT};
    if (properties && !json_is_object(properties)) {
        if (!c->lenient) return malformed(c, "properties", "is an object");
        properties = NULL;
    }
    const char *key = others_of(c, schema);
    OMM_TRY(read_rest(&made.rest, c, schema, key));
    const bool others_match =
        c->lenient && json_object_size(json_object_get(schema, "patternProperties")) > 0;
    if (others_match) OMM_TRY(grammar_any(&made.rest, c->g)); /* by names that nobody looks at */
    const uint32_t others = made.rest;
    if (c->closed && properties && !json_object_get(schema, key) && !others_match)
        made.rest = RULE_NONE; /* who names what it takes has named all, but what `required` adds */
    json_t *wanted = json_object();
    omm_err err = read_required(wanted, c, schema);
    if (err == OMM_OK) err = compile_members(&made, c, others, properties, wanted);
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

/* *key: that of the first items' schemas; before 2020 they were a list in `items`. */
static omm_err read_prefix(json_t **prefix, const char **key, const compiler *c,
                           const json_t *schema) {
    json_t *items = json_object_get(schema, "items");
    *key = "prefixItems";
    *prefix = json_object_get(schema, *key);
    if (json_is_array(items) && c->lenient) *key = "items";
    if (json_is_array(items) && !c->lenient)
        return malformed(c, "items", "is one schema; a list of them is prefixItems");
    if (json_is_array(items)) *prefix = items;
    if (!*prefix || json_is_array(*prefix)) return OMM_OK;
    if (!c->lenient) return malformed(c, *key, "is a list of schemas");
    *prefix = NULL;
    return OMM_OK;
}

static omm_err compile_array(uint32_t *out, compiler *c, json_t *schema) {
    json_t *prefix = NULL;
    const char *key = NULL;
    OMM_TRY(read_prefix(&prefix, &key, c, schema));
    rule made = {.kind = RULE_ARRAY, .count = (uint32_t)json_array_size(prefix)};
    OMM_TRY(read_limits(&made, c, schema, "minItems", "maxItems"));
    OMM_TRY(grammar_add_parts(&made.first, c->g, json_array_size(prefix)));
    OMM_TRY(compile_list(made.first, c, key, prefix));
    const bool is_tuple = strcmp(key, "items") == 0;
    OMM_TRY(read_rest(&made.rest, c, schema, is_tuple ? "additionalItems" : "items"));
    if (made.min <= made.count || made.rest != RULE_NONE) return add(out, c, made);
    if (!c->lenient)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: no array has minItems %u and %u items",
                         c->path, made.min, made.count);
    made.min = made.count;
    return add(out, c, made);
}

/* ---- keywords -----------------------------------------------------------------------------------*/

static const char *const s_alone[] = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"};
static const char *const s_values[] = {"enum",
                                       "const"}; /* of these, those that `type` may stand beside */
static const char *const s_notes[] = {
    "title",         "description", "default",  "examples",  "$schema", "$id",        "$comment",
    "discriminator", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};
static const char *const s_typed[] = {"properties", "required",         "additionalProperties",
                                      "items",      "prefixItems",      "minItems",
                                      "maxItems",   "minLength",        "maxLength",
                                      "pattern",    "format",           "minimum",
                                      "maximum",    "exclusiveMinimum", "exclusiveMaximum",
                                      "multipleOf"};

/* A list of values and nothing else that says anything. */
static bool is_values(json_t *schema) {
    const char *key = NULL;
    json_t *value = NULL;
    const bool one = json_object_get(schema, "const") != NULL;
    if (one == (json_array_size(json_object_get(schema, "enum")) > 0)) return false;
    json_object_foreach(schema, key, value) {
        if (!GRAMMAR_IS_IN(s_values, key) && !GRAMMAR_IS_IN(s_notes, key) &&
            strcmp(key, "type") != 0)
            return false;
    }
    return true;
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
    case TYPE_NUMBER:
        made.kind = type == TYPE_INTEGER ? RULE_INTEGER : RULE_NUMBER;
        OMM_TRY(read_range(&made, c, schema));
        return add(out, c, made);
    default: break;
    }
    OMM_TRY(read_limits(&made, c, schema, "minLength", "maxLength"));
    OMM_TRY(read_pattern(&made, c, schema));
    return add(out, c, made);
}

/* What says something of values of one type and stands where there are none of it. */
static omm_err check_types(const compiler *c, const json_t *schema, unsigned set) {
    const bool numbers = set & (1u << TYPE_INTEGER | 1u << TYPE_NUMBER);
    const bool strings = set & 1u << TYPE_STRING;
    if (c->lenient) return OMM_OK;
    if (!numbers && (has_range(schema) || json_object_get(schema, "multipleOf")))
        return not_supported(c, "a range of what is no number");
    if (!strings && (json_object_get(schema, "pattern") || json_object_get(schema, "format")))
        return not_supported(c, "pattern or format of what is no string");
    return OMM_OK;
}

static omm_err compile_types(uint32_t *out, compiler *c, json_t *schema) {
    unsigned set = 0;
    rule made = {.kind = RULE_CHOICE, .rest = RULE_NONE};
    OMM_TRY(read_types(&set, c, schema));
    OMM_TRY(check_types(c, schema, set));
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

static omm_err compile_choices(rule *made, json_t *values, compiler *c, const char *key,
                               json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *schema = json_array_get(list, i);
        uint32_t compiled = 0;
        const size_t up = go_down(c, "/%s/%zu", key, i);
        if (is_values(schema)) {
            OMM_TRY(gather_values(values, c, schema));
        } else {
            OMM_TRY(compile(&compiled, c, schema));
            c->g->parts[made->first + made->count++] = compiled;
        }
        go_up(c, up);
    }
    if (json_array_size(values) == 0) return OMM_OK;
    uint32_t compiled = 0;
    OMM_TRY(add_values(&compiled, c, values));
    c->g->parts[made->first + made->count++] = compiled;
    return OMM_OK;
}

/* Those that are values alone, with a title each perhaps, are one alternative together. */
static omm_err compile_choice(uint32_t *out, compiler *c, const char *key, json_t *list) {
    rule made = {.kind = RULE_CHOICE, .rest = RULE_NONE};
    if (json_array_size(list) == 0) return malformed(c, key, "is a list of at least one schema");
    OMM_TRY(grammar_add_parts(&made.first, c->g, json_array_size(list)));
    json_t *values = json_array();
    const omm_err err = compile_choices(&made, values, c, key, list);
    json_decref(values);
    return err == OMM_OK ? add(out, c, made) : err;
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
    char place[PATH_BYTES_MAX];
    const char *path = json_string_value(ref);
    if (!path) return malformed(c, "$ref", "is #, or #/ and a path in the schema");
    if (path[0] != '#' || !strchr("/%", path[1])) /* or the end */
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/$ref: %.100s is not supported; " SUPPORTED,
                         c->path, path);
    json_t *schema = grammar_place(c->root, path);
    if (!schema && strlen(path) > GRAMMAR_POINTER_BYTES_MAX)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/$ref: accepted are up to %u bytes, not %zu",
                         c->path, GRAMMAR_POINTER_BYTES_MAX, strlen(path));
    if (!schema)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s/$ref: there is no %.100s", c->path, path);
    snprintf(place, sizeof place, "%s%s", c->root_path, path + 1);
    return find_target(out, c, schema, place);
}

/* ---- a schema ------------------------------------------------------------------------------------- */

/* Every keyword is known.  *alone: the one that says all, or NULL. */
static omm_err check_keywords(const char **alone, const compiler *c, json_t *schema) {
    const char *key = NULL, *beside = NULL;
    json_t *value = NULL;
    *alone = NULL;
    json_object_foreach(schema, key, value) {
        if (GRAMMAR_IS_IN(s_alone, key)) {
            if (*alone)
                beside = key;
            else
                *alone = key;
        } else if (!GRAMMAR_IS_IN(s_notes, key) && !GRAMMAR_IS_IN(s_typed, key) &&
                   strcmp(key, "type") != 0) {
            return not_supported(c, key);
        }
    }
    if (*alone && !beside && strcmp(*alone, "allOf") == 0) return OMM_OK; /* it joins them */
    json_object_foreach(schema, key, value) {
        const bool is_type = strcmp(key, "type") == 0;
        if (*alone &&
            (GRAMMAR_IS_IN(s_typed, key) || (is_type && !GRAMMAR_IS_IN(s_values, *alone))))
            beside = key;
    }
    if (!beside) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: %s beside %s is not supported; " SUPPORTED,
                     c->path, beside, *alone);
}

bool grammar_is_note(const char *key) {
    return GRAMMAR_IS_IN(s_notes, key);
}

bool grammar_says_nothing(json_t *schema) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(schema, key, value) {
        if (!GRAMMAR_IS_IN(s_notes, key)) return false;
    }
    return json_is_object(schema) || json_is_true(schema);
}

size_t grammar_count_said(size_t *at, const json_t *list) {
    size_t said = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (grammar_says_nothing(json_array_get(list, i))) continue;
        said++;
        *at = i;
    }
    return said;
}

/* What was made for a schema lives as long as those that it names. */
static omm_err keep_made(compiler *c, json_t *made_take) {
    if (!c->made) c->made = json_array();
    if (json_array_append_new(c->made, made_take) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
}

/* Beside allOf. */
static bool says_beside(json_t *schema) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(schema, key, value) {
        if (strcmp(key, "allOf") != 0 && !grammar_is_note(key)) return true;
    }
    return false;
}

/* As one schema, which lives as long as those that it names. */
static omm_err compile_joined(uint32_t *out, compiler *c, json_t *schema) {
    char why[ALL_OF_WHY_MAX];
    json_t *made = all_of_join(why, c->root, schema, &c->g->looks);
    if (!made) return not_supported(c, why);
    OMM_TRY(keep_made(c, made));
    return compile(out, c, made);
}

static omm_err compile_all_of(uint32_t *out, compiler *c, json_t *schema, const json_t *list) {
    size_t at = 0;
    const bool is_one = json_array_size(list) > 0 && grammar_count_said(&at, list) <= 1;
    if (c->lenient && !is_one) return not_supported(c, "allOf of several");
    if (!c->lenient && (!is_one || says_beside(schema))) return compile_joined(out, c, schema);
    const size_t up = go_down(c, "/allOf/%zu", at);
    OMM_TRY(compile(out, c, json_array_get(list, at)));
    go_up(c, up);
    return OMM_OK;
}

static omm_err compile_alone(uint32_t *out, compiler *c, json_t *schema, const char *key) {
    json_t *value = json_object_get(schema, key);
    if (strcmp(key, "$ref") == 0) return compile_ref(out, c, value);
    if (strcmp(key, "allOf") == 0) return compile_all_of(out, c, schema, value);
    return GRAMMAR_IS_IN(s_values, key) ? compile_values(out, c, schema)
                                        : compile_choice(out, c, key, value);
}

/* With all members that are named beside it: once, wherever it stands, as it may stand inside itself. */
static omm_err compile_with_members(uint32_t *out, compiler *c, json_t *schema, bool *is_made) {
    json_t *made = lenient_members(c->root, schema, &c->g->looks);
    json_t *list = json_object_get(made, "anyOf");
    *is_made = made != schema;
    OMM_TRY(keep_made(c, made));
    if (!*is_made) return OMM_OK;
    return list ? compile_choice(out, c, "anyOf", list) : compile_types(out, c, made);
}

/* As made for the schema, which says nothing else. */
static omm_err compile_plain(uint32_t *out, compiler *c, json_t *schema) {
    const char *alone = lenient_keyword(c->root, schema);
    const bool is_choice = alone && (strcmp(alone, "anyOf") == 0 || strcmp(alone, "oneOf") == 0);
    if (!alone) return compile_types(out, c, schema);
    if (!is_choice) return compile_alone(out, c, schema, alone);
    json_t *list = lenient_typed(schema, alone);
    OMM_TRY(keep_made(c, list));
    return compile_choice(out, c, alone, list);
}

/* With a type that stands elsewhere. */
static omm_err compile_with_type(uint32_t *out, compiler *c, json_t *schema) {
    json_t *made = lenient_with_type(c->root, schema, c->typed, &c->g->looks);
    OMM_TRY(keep_made(c, made));
    return made == schema ? compile_plain(out, c, schema) : compile_lenient(out, c, made);
}

static omm_err compile_lenient(uint32_t *out, compiler *c, json_t *schema) {
    const char *alone = lenient_keyword(c->root, schema);
    const bool is_values = alone && GRAMMAR_IS_IN(s_values, alone);
    const bool has_members = !is_values && lenient_has_members(schema, alone != NULL);
    const bool has_type = lenient_has_type(schema, alone);
    bool is_made = false;
    /* what is made for a schema that may stand inside itself is made once */
    if ((has_members || has_type) && (schema != c->target || c->depth > 1))
        return find_target(out, c, schema, c->path);
    if (has_members) OMM_TRY(compile_with_members(out, c, schema, &is_made));
    if (is_made) return OMM_OK;
    return has_type ? compile_with_type(out, c, schema) : compile_plain(out, c, schema);
}

static omm_err compile_inside(uint32_t *out, compiler *c, json_t *schema) {
    const char *alone = NULL;
    if (json_is_true(schema)) return grammar_any(out, c->g);
    if (json_is_false(schema)) return not_supported(c, "false, which no value fulfils,");
    if (!json_is_object(schema))
        return omm_raise(OMM_ERR_FORMAT, "%.200s: a schema is an object, or true", c->path);
    if (grammar_has_base(c->root, schema))
        return omm_raise(
            OMM_ERR_UNSUPPORTED,
            "%.200s/$id: below the root it is not supported, as # would be that schema", c->path);
    if (c->lenient) return compile_lenient(out, c, schema);
    OMM_TRY(check_keywords(&alone, c, schema));
    return alone ? compile_alone(out, c, schema, alone) : compile_types(out, c, schema);
}

static omm_err compile(uint32_t *out, compiler *c, json_t *schema) {
    if (c->depth == OMM_GRAMMAR_SCHEMA_DEPTH_MAX && c->lenient) return grammar_any(out, c->g);
    if (c->depth == OMM_GRAMMAR_SCHEMA_DEPTH_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%.200s: more than %u schemas inside one another",
                         c->path, OMM_GRAMMAR_SCHEMA_DEPTH_MAX);
    const size_t up = strlen(c->path);
    c->depth++;
    const omm_err err = compile_inside(out, c, schema);
    c->depth--;
    if (!is_left_out(c, err)) return err;
    go_up(c, up);
    return grammar_any(out, c->g);
}

/* The root is the first target; each may name others. */
static omm_err compile_targets(uint32_t *out, compiler *c, const char *path) {
    c->root_path = path;
    OMM_TRY(find_target(out, c, c->root, path));
    for (uint32_t i = 0; i < c->target_count; i++) {
        uint32_t compiled = 0;
        memcpy(c->path, c->targets[i].path, sizeof c->path);
        c->target = c->targets[i].schema;
        OMM_TRY(compile(&compiled, c, c->targets[i].schema));
        c->g->parts[c->g->rules[c->targets[i].rule].first] = compiled;
    }
    return OMM_OK;
}

static omm_err compile_root(uint32_t *out, omm_grammar *g, json_t *schema, const char *path,
                            bool lenient, bool closed) {
    compiler *c = (compiler *)omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
    c->root = schema;
    c->g = g;
    c->lenient = lenient;
    c->closed = closed;
    c->typed = json_array();
    const omm_err err = compile_targets(out, c, path);
    json_decref(c->made);
    json_decref(c->typed);
    omm_free(c->targets);
    omm_free(c);
    return err;
}

omm_err grammar_add_schema(uint32_t *out, omm_grammar *g, json_t *schema) {
    return compile_root(out, g, schema, "#", false, false);
}

omm_err omm_grammar_open_schema(omm_grammar **out, json_t *schema) {
    omm_grammar *g = NULL;
    OMM_TRY(grammar_open(&g));
    omm_err err = grammar_add_schema(&g->root, g, schema);
    if (err == OMM_OK) err = grammar_finish_root(g);
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

/* All that it may be are objects.  *left: parts that may still be looked at. */
static bool is_object(const omm_grammar *g, uint32_t index, unsigned depth, uint32_t *left) {
    const rule *r = &g->rules[unwrap(g, index)];
    bool all = r->kind == RULE_OBJECT || (r->kind == RULE_CHOICE && depth < CHOICES_MAX);
    for (uint32_t i = 0; r->kind == RULE_CHOICE && all && i < r->count; i++)
        all = (*left)-- > 0 && is_object(g, g->parts[r->first + i], depth + 1, left);
    return all;
}

omm_err grammar_add_arguments(uint32_t *out, omm_grammar *g, const char *name, json_t *schema,
                              bool strict) {
    char path[PATH_BYTES_MAX];
    uint32_t root = 0, any = 0, left = PARTS_LOOKED_MAX;
    snprintf(path, sizeof path, "%s.parameters", name);
    OMM_TRY(compile_root(&root, g, schema, path, !strict, true));
    if (!strict) OMM_TRY(grammar_any(&any, g)); /* what is wide may have to be it */
    *out = unwrap(g, root);
    if (is_object(g, *out, 0, &left)) return OMM_OK;
    if (!strict) return grammar_any_object(out, g);
    return omm_raise(OMM_ERR_UNSUPPORTED, "%s: a schema with \"type\": \"object\" is needed", path);
}
