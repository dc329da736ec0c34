/* grammar_lenient.c - a schema with keywords that are not supported, as one without them: of those that stand beside one another
 * one counts, and members that others name may stand as well, so that nothing that the schema allows is out of reach.
 *
 *   {"properties": P, "allOf": [A, B]}            properties of P, A and B, required of all
 *   {"properties": P, "oneOf": [A, B]}            {"anyOf": [P and A, P and B]}; of too many, P and what A or B may have
 *   {"properties": P, "if": I, "then": A}         P and what A may have
 *   {"type": "string", "anyOf": [{"format": F}]}  {"anyOf": [{"type": "string", "format": F}]} */
#include "grammar_internal.h"

#define LOOKED_MAX 16384u       /* members and schemas, in all of a schema */
#define NESTED_MAX 8u           /* of schemas whose members are gathered */
#define BRANCHES_MAX 16u        /* that become alternatives */
#define BRANCH_MEMBERS_MAX 512u /* of all of these */

static bool has_parts(const json_t *schema) {
    return json_object_get(schema, "properties") || json_object_get(schema, "items") ||
           json_object_get(schema, "prefixItems");
}

const char *lenient_keyword(json_t *root, const json_t *schema) {
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (json_array_size(json_object_get(schema, "enum")) > 0) return "enum";
    if (json_object_get(schema, "const")) return "const";
    if (has_parts(schema)) return NULL;
    if (grammar_place(root, ref)) return "$ref";
    for (size_t i = 0; i < 3; i++) {
        size_t at = 0;
        const json_t *list = json_object_get(schema, lists[i]);
        if (i < 2 ? json_array_size(list) > 0 : grammar_count_said(&at, list) == 1) return lists[i];
    }
    return NULL;
}

json_t *lenient_typed(json_t *schema, const char *key) {
    static const char *const known[] = {"type", "$ref",  "anyOf", "oneOf",      "allOf",
                                        "enum", "const", "items", "properties", "prefixItems"};
    json_t *type = json_object_get(schema, "type"), *list = json_array();
    const json_t *given = json_object_get(schema, key);
    for (size_t i = 0; i < json_array_size(given); i++) {
        json_t *branch = json_array_get(given, i);
        const char *name = NULL;
        json_t *value = NULL;
        bool says_it = !json_is_object(branch) || !type;
        json_object_foreach(branch, name, value) {
            if (GRAMMAR_IS_IN(known, name)) says_it = true;
        }
        if (says_it) {
            json_array_append(list, branch);
            continue;
        }
        json_t *made = json_copy(branch);
        json_object_set(made, "type", type);
        json_array_append_new(list, made);
    }
    return list;
}

/* ---- members ------------------------------------------------------------------------------------- */

typedef struct gatherer {
    json_t *root;
    uint32_t looked; /* members and schemas so far */
    json_t *properties, *required;
} gatherer;

static bool may_look(gatherer *w) {
    if (w->looked == LOOKED_MAX) return false;
    w->looked++;
    return true;
}

static void gather_beside(gatherer *w, const json_t *schema, bool required, unsigned depth);

/* Members of a schema that holds (required), or that may hold; those that are there stay. */
static void gather(gatherer *w, json_t *schema, bool required, unsigned depth) {
    const char *name = NULL;
    json_t *value = NULL;
    const json_t *names = json_object_get(schema, "required");
    if (depth == NESTED_MAX || !json_is_object(schema) || !may_look(w)) return;
    json_object_foreach(json_object_get(schema, "properties"), name, value) {
        if (!may_look(w)) return;
        if (!json_object_get(w->properties, name)) json_object_set(w->properties, name, value);
    }
    for (size_t i = 0; required && i < json_array_size(names) && may_look(w); i++)
        json_array_append(w->required, json_array_get(names, i));
    gather_beside(w, schema, required, depth);
}

static void gather_list(gatherer *w, const json_t *list, bool required, unsigned depth) {
    for (size_t i = 0; i < json_array_size(list); i++)
        gather(w, json_array_get(list, i), required, depth + 1);
}

/* What stands beside its own properties. */
static void gather_beside(gatherer *w, const json_t *schema, bool required, unsigned depth) {
    const char *ref = json_string_value(json_object_get(schema, "$ref")), *name = NULL;
    json_t *value = NULL;
    gather(w, grammar_place(w->root, ref), required, depth + 1);
    gather_list(w, json_object_get(schema, "allOf"), required, depth);
    gather_list(w, json_object_get(schema, "anyOf"), false, depth);
    gather_list(w, json_object_get(schema, "oneOf"), false, depth);
    gather(w, json_object_get(schema, "then"), false, depth + 1);
    gather(w, json_object_get(schema, "else"), false, depth + 1);
    json_object_foreach(json_object_get(schema, "dependentSchemas"), name, value)
        gather(w, value, false, depth + 1);
}

/* A copy with these members, and without what named others. */
static json_t *made_of(json_t *schema, json_t *properties, json_t *required) {
    static const char *const gone[] = {"$ref", "allOf", "anyOf", "oneOf",
                                       "if",   "then",  "else",  "dependentSchemas"};
    json_t *made = json_copy(schema);
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) json_object_del(made, gone[i]);
    json_object_set_new(made, "properties", properties);
    json_object_set_new(made, "required", required);
    return made;
}

/* ---- alternatives -------------------------------------------------------------------------------- */

/* Those that stand beside members as alternatives; NULL: none, or too many, or not of objects. */
static const json_t *branches_of(const json_t *schema) {
    const json_t *any = json_object_get(schema, "anyOf");
    const json_t *list = json_array_size(any) > 0 ? any : json_object_get(schema, "oneOf");
    const size_t count = json_array_size(list);
    const size_t members = json_object_size(json_object_get(schema, "properties")) + 1;
    if (count == 0 || count > BRANCHES_MAX || count * members > BRANCH_MEMBERS_MAX) return NULL;
    for (size_t i = 0; i < count; i++)
        if (!json_is_object(json_array_get(list, i))) return NULL;
    return list;
}

/* What a branch says of a member counts, not what stands beside it. */
static json_t *with_branch(gatherer *w, json_t *schema, json_t *branch) {
    gatherer one = {w->root, w->looked, json_object(), json_copy(w->required)};
    json_t *properties = json_copy(w->properties);
    gather(&one, branch, true, 0);
    w->looked = one.looked;
    json_object_update(properties, one.properties);
    json_decref(one.properties);
    return made_of(schema, properties, one.required);
}

static json_t *with_branches(gatherer *w, json_t *schema, const json_t *list) {
    json_t *made = json_object(), *all = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append_new(all, with_branch(w, schema, json_array_get(list, i)));
    json_object_set_new(made, "anyOf", all);
    return made;
}

static bool has_beside(const json_t *schema) {
    static const char *const keys[] = {"$ref", "allOf", "anyOf",           "oneOf",
                                       "then", "else",  "dependentSchemas"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(schema, keys[i])) return true;
    return false;
}

static bool may_be_object(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    const char *word = json_string_value(type);
    if (json_is_object(json_object_get(schema, "properties"))) return true;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, "object") == 0) word = one;
    }
    return !type || (word && strcmp(word, "object") == 0);
}

json_t *lenient_members(json_t *root, json_t *schema, uint32_t *looked) {
    json_t *own = json_object_get(schema, "properties");
    const json_t *list = json_is_object(own) ? branches_of(schema) : NULL;
    if (!has_beside(schema) || !may_be_object(schema)) return json_incref(schema);
    gatherer w = {root, *looked, json_object(), json_array()};
    json_object_update(w.properties, own);
    json_array_extend(w.required, json_object_get(schema, "required"));
    json_t *beside = json_copy(schema), *made = NULL;
    if (list) json_object_del(beside, list == json_object_get(schema, "anyOf") ? "anyOf" : "oneOf");
    gather_beside(&w, beside, true, 0);
    json_decref(beside);
    if (list)
        made = with_branches(&w, schema, list);
    else if (json_object_size(w.properties) > 0)
        made = made_of(schema, json_incref(w.properties), json_incref(w.required));
    else
        made = json_incref(schema);
    *looked = w.looked;
    json_decref(w.properties);
    json_decref(w.required);
    return made;
}
