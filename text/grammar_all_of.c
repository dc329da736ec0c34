/* grammar_all_of.c - schemas that all hold (allOf, and what stands beside it) to one that says the same: keyword by keyword, where of
 * two of a kind one follows from both.  Where none does nothing is made, and the keyword is named. */
#include "grammar_internal.h"

#include "omm/json.h"

#include <stdio.h>

#define JOINED_MAX 64u        /* schemas in one */
#define JOINED_NESTED_MAX 32u /* of allOf and $ref inside one another */

typedef struct joiner {
    json_t *root;
    looks *looks;
    json_t *list[JOINED_MAX]; /* (count) of what says something; borrowed */
    size_t count;
    char *why; /* [ALL_OF_WHY_MAX] not empty: they make no one schema */
} joiner;

static bool refuse(joiner *j, const char *why) {
    if (!j->why[0]) snprintf(j->why, ALL_OF_WHY_MAX, "%s", why);
    return false;
}

static bool look(joiner *j) {
    if (j->looks->count >= j->looks->max) return refuse(j, "so much in allOf");
    j->looks->count++;
    return true;
}

/* ---- which schemas ------------------------------------------------------------------------------- */

static bool gather(joiner *j, json_t *schema, unsigned nested);

static bool says_more_than(json_t *schema, const char *keyword) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(schema, key, value) {
        if (strcmp(key, keyword) != 0 && !grammar_is_note(key)) return true;
    }
    return false;
}

static bool gather_ref(joiner *j, json_t *schema, const char *ref, unsigned nested) {
    if (says_more_than(schema, "$ref")) return refuse(j, "in allOf what stands beside $ref");
    json_t *target = grammar_place(j->root, ref);
    if (!target) return refuse(j, "a $ref of allOf to no place in the schema");
    return gather(j, target, nested + 1);
}

static bool gather_list(joiner *j, const json_t *list, unsigned nested) {
    if (json_array_size(list) == 0) return refuse(j, "allOf of nothing");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!gather(j, json_array_get(list, i), nested + 1)) return false;
    return true;
}

static bool gather(joiner *j, json_t *schema, unsigned nested) {
    json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
    if (!look(j)) return false;
    if (grammar_says_nothing(schema)) return true;
    if (nested > JOINED_NESTED_MAX) return refuse(j, "so much in allOf");
    if (!json_is_object(schema)) return refuse(j, "allOf of what is no object");
    if (grammar_has_base(j->root, schema)) return refuse(j, "$id below the root");
    if (ref) return gather_ref(j, schema, json_string_value(ref), nested);
    if (all && !gather_list(j, all, nested)) return false;
    if (!says_more_than(schema, "allOf")) return true;
    if (j->count == JOINED_MAX) return refuse(j, "so much in allOf");
    j->list[j->count++] = schema;
    return true;
}

/* ---- two of a keyword ---------------------------------------------------------------------------- */

static bool is_word(const json_t *value, const char *word) {
    const char *one = json_string_value(value);
    return one && strcmp(one, word) == 0;
}

static bool has_word(const json_t *type, const char *word) {
    for (size_t i = 0; i < json_array_size(type); i++)
        if (is_word(json_array_get(type, i), word)) return true;
    return is_word(type, word);
}

/* An integer is a number. */
static bool may_be(const json_t *type, const char *word) {
    return has_word(type, word) || (strcmp(word, "integer") == 0 && has_word(type, "number"));
}

static json_t *join_types(joiner *j, const json_t *a, const json_t *b) {
    static const char *const words[] = {"string", "integer", "number", "object",
                                        "array",  "boolean", "null"};
    json_t *both = json_array();
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (may_be(a, words[i]) && may_be(b, words[i]))
            json_array_append_new(both, json_string(words[i]));
    if (json_array_size(both) > 0) return both;
    json_decref(both);
    (void)refuse(j, "allOf of types that no value has");
    return NULL;
}

static json_t *join_lists(joiner *j, json_t *a, json_t *b) {
    if (!json_is_array(a) || !json_is_array(b)) {
        (void)refuse(j, "in allOf what is no list of names");
        return NULL;
    }
    json_t *both = json_copy(a);
    json_array_extend(both, b);
    return both;
}

static int compare(const json_t *a, const json_t *b) {
    if (json_is_integer(a) && json_is_integer(b))
        return (json_integer_value(a) > json_integer_value(b)) -
               (json_integer_value(a) < json_integer_value(b));
    return (json_number_value(a) > json_number_value(b)) -
           (json_number_value(a) < json_number_value(b));
}

static const char *const s_least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
static const char *const s_most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
static const char *const s_equal[] = {"pattern", "format", "multipleOf", "const"};

/* A new reference; NULL: j->why. */
static json_t *join_two(joiner *j, const char *key, json_t *a, json_t *b) {
    const bool numbers = json_is_number(a) && json_is_number(b);
    if (strcmp(key, "type") == 0) return join_types(j, a, b);
    if (strcmp(key, "required") == 0) return join_lists(j, a, b);
    if (numbers && GRAMMAR_IS_IN(s_least, key)) return json_incref(compare(a, b) > 0 ? a : b);
    if (numbers && GRAMMAR_IS_IN(s_most, key)) return json_incref(compare(a, b) < 0 ? a : b);
    const bool plain = json_is_string(a) || json_is_number(a);
    if (a == b || (plain && GRAMMAR_IS_IN(s_equal, key) && json_equal(a, b))) return json_incref(a);
    if (!j->why[0]) snprintf(j->why, ALL_OF_WHY_MAX, "two of %.40s in allOf", key);
    return NULL;
}

static const char *const s_members[] = {"properties", "additionalProperties", "items",
                                        "prefixItems", "allOf"};

static bool join_keywords(joiner *j, json_t *out, json_t *schema) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(schema, key, value) {
        json_t *old = json_object_get(out, key);
        const bool is_flag = json_is_boolean(value) && strncmp(key, "exclusive", 9) == 0;
        if (grammar_is_note(key) || GRAMMAR_IS_IN(s_members, key)) continue;
        if (!look(j)) return false;
        if (is_flag) return refuse(j, "in allOf true or false as exclusiveMinimum");
        json_t *joined = old ? join_two(j, key, old, value) : json_incref(value);
        if (!joined) return false;
        json_object_set_new(out, key, joined);
    }
    return true;
}

/* ---- schemas of one place ------------------------------------------------------------------------ */

/* Takes the list: nothing is any value, NULL. */
static json_t *all_of(json_t *list_take) {
    const size_t count = json_array_size(list_take);
    json_t *one = count == 1 ? json_incref(json_array_get(list_take, 0))
                  : count    ? json_pack("{s:O}", "allOf", list_take)
                             : NULL;
    json_decref(list_take);
    return one;
}

static void add_schema(json_t *list, json_t *schema) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_array_get(list, i) == schema) return;
    if (schema && !json_is_true(schema)) json_array_append(list, schema);
}

/* The member is as each schema says that names it, and as the others of each that does not; false as others: it is in none. */
static bool join_member(joiner *j, json_t *properties, const char *name) {
    json_t *list = json_array();
    bool forbidden = false;
    for (size_t i = 0; i < j->count && look(j); i++) {
        json_t *own = json_object_get(json_object_get(j->list[i], "properties"), name);
        if (json_is_false(own)) (void)refuse(j, "false, which no value fulfils,");
        if (!own) own = json_object_get(j->list[i], "additionalProperties");
        if (json_is_false(own))
            forbidden = true;
        else
            add_schema(list, own);
    }
    json_t *value = all_of(list);
    if (!j->why[0] && !forbidden)
        json_object_set_new(properties, name, value ? json_incref(value) : json_true());
    json_decref(value);
    return !j->why[0];
}

static bool join_properties(joiner *j, json_t *out) {
    json_t *properties = json_object();
    bool some = false;
    for (size_t i = 0; i < j->count; i++) {
        json_t *own = json_object_get(j->list[i], "properties"), *value = NULL;
        const char *name = NULL;
        some = some || own;
        if (own && !json_is_object(own)) (void)refuse(j, "in allOf what are no properties");
        json_object_foreach(own, name, value) {
            if (j->why[0] || json_object_get(properties, name)) continue;
            (void)join_member(j, properties, name);
        }
    }
    if (some) json_object_set(out, "properties", properties);
    json_decref(properties);
    return !j->why[0];
}

/* Others than those that are named; `true` where all that name some say it. */
static void join_others(const joiner *j, json_t *out) {
    json_t *list = json_array();
    bool forbidden = false, said = false, silent = false;
    for (size_t i = 0; i < j->count; i++) {
        json_t *others = json_object_get(j->list[i], "additionalProperties");
        forbidden = forbidden || json_is_false(others);
        said = said || others;
        silent = silent || (!others && json_object_get(j->list[i], "properties"));
        if (!json_is_false(others)) add_schema(list, others);
    }
    json_t *value = all_of(list);
    if (forbidden || value || (said && !silent))
        json_object_set_new(out, "additionalProperties",
                            forbidden ? json_false()
                            : value   ? json_incref(value)
                                      : json_true());
    json_decref(value);
}

static bool join_items(joiner *j, json_t *out) {
    json_t *list = json_array(), *prefix = NULL, *only = NULL;
    size_t count = 0;
    bool forbidden = false;
    for (size_t i = 0; i < j->count; i++) {
        json_t *items = json_object_get(j->list[i], "items");
        json_t *own = json_object_get(j->list[i], "prefixItems");
        if (json_is_array(items)) (void)refuse(j, "a list as items in allOf");
        count += items || own;
        prefix = own ? own : prefix;
        only = items ? items : only;
        forbidden = forbidden || json_is_false(items);
        if (!json_is_false(items)) add_schema(list, items);
    }
    json_t *value = all_of(list);
    if (prefix && count > 1) (void)refuse(j, "in allOf prefixItems beside items of another schema");
    if (prefix) json_object_set(out, "prefixItems", prefix);
    if (forbidden || value)
        json_object_set_new(out, "items", forbidden ? json_false() : json_incref(value));
    else if (only)
        json_object_set_new(out, "items", json_true());
    json_decref(value);
    return !j->why[0];
}

json_t *all_of_join(char why[ALL_OF_WHY_MAX], json_t *root, json_t *schema, looks *l) {
    joiner j = {.root = root, .looks = l, .why = why};
    why[0] = '\0';
    json_t *out = json_object();
    bool ok = gather(&j, schema, 0);
    for (size_t i = 0; ok && i < j.count; i++) ok = join_keywords(&j, out, j.list[i]);
    ok = ok && join_properties(&j, out) && join_items(&j, out);
    if (ok) {
        join_others(&j, out);
        return out;
    }
    json_decref(out);
    return NULL;
}
