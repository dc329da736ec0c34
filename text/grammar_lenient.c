/* grammar_lenient.c - a schema with keywords that are not supported, as one without them: of those that stand beside one another
 * one counts, and members that others name may stand as well, so that nothing that the schema allows is out of reach.
 *
 *   {"properties": P, "allOf": [A, B]}            properties of P, A and B, required of all
 *   {"properties": P, "oneOf": [A, B]}            {"anyOf": [P and A, P and B]}; of too many, P and what A or B may have
 *   {"properties": P, "allOf": [{"oneOf": L}]}    the same, and of {"$ref": R, "required": N} with R {"oneOf": L}
 *   {"properties": P, "if": I, "then": A}         P, what A may have and, as any value, what I asks for
 *   {"type": "string", "anyOf": [{"format": F}]}  {"anyOf": [{"type": "string", "format": F}]}
 *
 * What several alternatives say of one member holds of none of them alone: it may be as each of them says, and as P says it where
 * P does. */
#include "grammar_gather.h"

#define BRANCHES_MAX 16u        /* that become alternatives */
#define BRANCH_MEMBERS_MAX 512u /* of all of these */
#define BRANCHES_NESTED_MAX 8u

static bool has_items(const json_t *schema) {
    return json_object_get(schema, "items") || json_object_get(schema, "prefixItems");
}

/* Members, or items where nothing else says that it may be no list. */
static bool has_parts(const json_t *schema) {
    static const char *const others[] = {"$ref", "anyOf", "oneOf", "allOf"};
    if (json_object_get(schema, "properties")) return true;
    if (!has_items(schema)) return false;
    for (size_t i = 0; i < 4 && !json_object_get(schema, "type"); i++)
        if (json_object_get(schema, others[i])) return false;
    return true;
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

/* A new reference: the branch, or a copy with the type that stands beside it, where it has none, or, where it has, with the
 * items. */
static json_t *typed(json_t *branch, const json_t *schema) {
    static const char *const parts[] = {"items", "prefixItems"};
    json_t *type = json_object_get(schema, "type"), *own = json_object_get(branch, "type");
    const bool adds_items = own && has_items(schema) && !has_items(branch);
    if (!json_is_object(branch) || (!adds_items && (own || !type)) ||
        json_object_get(branch, "enum") || json_object_get(branch, "const"))
        return json_incref(branch);
    json_t *made = json_copy(branch);
    if (!own && type) json_object_set(made, "type", type);
    for (size_t i = 0; i < 2 && adds_items; i++)
        if (json_object_get(schema, parts[i]))
            json_object_set(made, parts[i], json_object_get(schema, parts[i]));
    return made;
}

json_t *lenient_typed(json_t *schema, const char *key) {
    const json_t *given = json_object_get(schema, key);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(given); i++)
        json_array_append_new(list, typed(json_array_get(given, i), schema));
    return list;
}

/* ---- types --------------------------------------------------------------------------------------- */

/* Its type, or else one of what holds of it; NULL: none is written. */
static json_t *held_type(gatherer *w, json_t *schema, unsigned depth) {
    json_t *type = json_object_get(schema, "type"), *all = json_object_get(schema, "allOf");
    if (type || !json_is_object(schema) || depth == GATHER_NESTED_MAX || !gather_may_look(w))
        return type;
    if (!grammar_has_base(w->root, schema))
        type = held_type(w, gather_follow(w, schema), depth + 1);
    for (size_t i = 0; !type && i < json_array_size(all) && gather_may_go_on(w); i++)
        type = held_type(w, json_array_get(all, i), depth + 1);
    return type;
}

/* Through references and allOf of one, which stand alone; NULL: further than that. */
static json_t *behind_alone(gatherer *w, json_t *schema) {
    for (unsigned i = 0; i < GATHER_NESTED_MAX && gather_may_look(w); i++) {
        const char *alone = lenient_keyword(w->root, schema);
        const json_t *all = json_object_get(schema, "allOf");
        size_t at = 0;
        if (i > 0 && json_object_get(schema, "type")) return schema;
        if (!alone || (strcmp(alone, "$ref") != 0 && strcmp(alone, "allOf") != 0)) return schema;
        const bool is_ref = strcmp(alone, "$ref") == 0;
        if (!is_ref) grammar_count_said(&at, all);
        schema = is_ref ? gather_follow(w, schema) : json_array_get(all, at);
    }
    return NULL;
}

static json_t *copy_with_type(json_t *schema, json_t *type) {
    json_t *made = json_copy(schema);
    json_object_set(made, "type", type);
    return made;
}

/* The same one where it was made before: a choice may have itself behind its alternatives.  known: what, the type, the copy. */
static json_t *typed_once(json_t *known, json_t *schema, json_t *type) {
    for (size_t i = 0; i < json_array_size(known); i += 3)
        if (json_array_get(known, i) == schema && json_array_get(known, i + 1) == type)
            return json_incref(json_array_get(known, i + 2));
    json_t *made = copy_with_type(schema, type);
    json_array_append(known, schema);
    json_array_append(known, type);
    json_array_append(known, made);
    return made;
}

bool lenient_has_type(const json_t *schema, const char *alone) {
    const bool has_type = json_object_get(schema, "type") != NULL;
    if (!alone)
        return !has_type && (json_object_get(schema, "allOf") || json_object_get(schema, "$ref"));
    return has_type && strcmp(alone, "enum") != 0 && strcmp(alone, "const") != 0;
}

json_t *lenient_with_type(json_t *root, json_t *schema, json_t *known, looks *l) {
    gatherer w = {.root = root, .looks = l};
    json_t *type = json_object_get(schema, "type"), *behind = behind_alone(&w, schema);
    if (type && !behind) return json_pack("{s:O}", "type", type); /* not looked at */
    if (behind == schema) { /* of several that hold, and none alone */
        json_t *held = type ? NULL : held_type(&w, schema, 0);
        return held ? copy_with_type(schema, held) : json_incref(schema);
    }
    if (!type || !json_is_object(behind) || grammar_has_base(root, behind) ||
        held_type(&w, behind, 0))
        return json_incref(schema);
    return typed_once(known, behind, type);
}

/* ---- members ------------------------------------------------------------------------------------- */

/* Keywords that name members of the same object. */
static const char *const s_sources[] = {"$ref",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "if",
                                        "then",
                                        "else",
                                        "dependentSchemas",
                                        "dependentRequired",
                                        "dependencies",
                                        "$dynamicRef",
                                        "$recursiveRef"};
enum { SOURCES = sizeof s_sources / sizeof s_sources[0] };

/* How members are that have no name; NULL: there are none. */
static json_t *others_of(json_t *schema, const gatherer *w) {
    json_t *others = json_object_get(schema, "additionalProperties");
    const bool match = json_object_size(json_object_get(schema, "patternProperties")) > 0;
    if (match || (w->is_open && !others)) return json_true();
    if (!others) others = json_object_get(schema, "unevaluatedProperties");
    return json_is_false(others) ? NULL : others;
}

/* A copy with these members, and without what named others. */
static json_t *made_of(json_t *schema, gatherer *w) {
    json_t *made = json_copy(schema);
    for (size_t i = 0; i < SOURCES; i++) json_object_del(made, s_sources[i]);
    json_object_del(made, "$id");
    json_object_set_new(made, "properties", gather_join(w, others_of(schema, w)));
    json_object_set(made, "required", w->required);
    if (w->types && !json_object_get(made, "type")) json_object_set(made, "type", w->types);
    if (w->is_open && !json_object_get(made, "additionalProperties"))
        json_object_set_new(made, "additionalProperties", json_true());
    return made;
}

/* ---- alternatives -------------------------------------------------------------------------------- */

static bool has_object(const json_t *values) {
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_is_object(json_array_get(values, i))) return true;
    return false;
}

static bool may_be_object(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *given = json_object_get(schema, "const");
    const json_t *values = json_object_get(schema, "enum");
    const char *word = json_string_value(type);
    if (given || values) return json_is_object(given) || has_object(values);
    if (json_is_object(json_object_get(schema, "properties"))) return true;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, "object") == 0) word = one;
    }
    return !type || (word && strcmp(word, "object") == 0);
}

static bool is_object_alone(const json_t *schema) {
    const char *word = json_string_value(json_object_get(schema, "type"));
    return word && strcmp(word, "object") == 0;
}

/* Itself, or what its $ref leads to. */
static json_t *behind_ref(gatherer *w, json_t *schema) {
    for (unsigned i = 0; i < GATHER_NESTED_MAX && schema && gather_may_look(w); i++) {
        if (!json_object_get(schema, "$ref") || json_object_get(schema, "type")) break;
        schema = gather_follow(w, schema);
    }
    return schema;
}

static bool are_branches(const json_t *list) {
    const size_t count = json_array_size(list);
    if (count == 0 || count > BRANCHES_MAX) return false;
    for (size_t i = 0; i < count; i++)
        if (!json_is_object(json_array_get(list, i))) return false;
    return true;
}

/* Those that stand beside members as alternatives, there or in what holds; NULL: none, or too many, or not of schemas. */
static const json_t *find_branches(gatherer *w, const json_t *schema, unsigned depth) {
    static const char *const lists[] = {"anyOf", "oneOf"};
    const json_t *all = json_object_get(schema, "allOf"), *found = NULL;
    if (depth == GATHER_NESTED_MAX || !json_is_object(schema) || !gather_may_look(w)) return NULL;
    if (depth > 0 && grammar_has_base(w->root, schema)) return NULL;
    for (size_t i = 0; i < 2; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        if (are_branches(list)) return list;
    }
    found = find_branches(w, gather_follow(w, schema), depth + 1);
    for (size_t i = 0; !found && i < json_array_size(all) && gather_may_go_on(w); i++)
        found = find_branches(w, json_array_get(all, i), depth + 1);
    return found;
}

/* What a branch says of a member counts, not what stands beside it. */
static json_t *with_branch(gatherer *w, json_t *schema, json_t *branch) {
    gatherer one = gatherer_init(w->root, w->looks);
    json_t *held = json_copy(w->held), *required = json_copy(w->required);
    gather_copy_ways(&one, w);
    gather(&one, branch, HOLDS, 0);
    json_object_update(held, one.held);
    json_decref(one.held);
    one.held = held;
    json_object_update(one.named, w->named);
    json_array_extend(required, one.required);
    json_decref(one.required);
    one.required = required;
    if (!one.types) one.types = w->types;
    /* what names nothing has any members */
    one.is_open =
        one.is_open || w->is_open || !(one.has_names || w->has_names || gather_has_others(schema));
    json_t *made = made_of(schema, &one);
    w->branch_has_names = w->branch_has_names || one.has_names;
    gatherer_fini(&one);
    return made;
}

/* Its alternatives, where it says nothing else; NULL: there are none. */
static const json_t *list_alone(json_t *schema) {
    const char *name = NULL;
    json_t *value = NULL;
    const json_t *list = NULL;
    json_object_foreach(schema, name, value) {
        const bool is_list = strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0;
        if (is_list ? list != NULL : !grammar_is_note(name)) return NULL;
        if (is_list) list = value;
    }
    return are_branches(list) ? list : NULL;
}

/* Without a type its keywords are of lists or texts: an object fulfils it, but so does what they mean. */
static bool means_another(const json_t *schema) {
    static const char *const keys[] = {"items",     "prefixItems", "minItems", "maxItems",
                                       "minLength", "maxLength",   "pattern",  "format"};
    if (json_object_get(schema, "type") || json_object_get(schema, "properties")) return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(schema, keys[i])) return true;
    return false;
}

static void add_branches(json_t *out, gatherer *w, json_t *schema, const json_t *list,
                         unsigned depth);

/* One that is of no objects is itself, where the schema may be another value, too; one of alternatives is these. */
static void add_branch(json_t *out, gatherer *w, json_t *schema, json_t *branch, unsigned depth) {
    json_t *behind = behind_ref(w, branch);
    const bool has_base = !behind || grammar_has_base(w->root, behind);
    const json_t *inside = has_base || depth == BRANCHES_NESTED_MAX ? NULL : list_alone(behind);
    const bool may_be_other = !has_base && !is_object_alone(schema);
    if (inside && json_array_size(out) + json_array_size(inside) <= BRANCHES_MAX) {
        add_branches(out, w, schema, inside, depth + 1);
        return;
    }
    const bool is_other = may_be_other && !may_be_object(behind);
    if (!is_other) json_array_append_new(out, with_branch(w, schema, branch));
    if (is_other || (may_be_other && (inside || means_another(behind))))
        json_array_append(out, branch);
}

static void add_branches(json_t *out, gatherer *w, json_t *schema, const json_t *list,
                         unsigned depth) {
    for (size_t i = 0; i < json_array_size(list); i++)
        add_branch(out, w, schema, json_array_get(list, i), depth);
}

static json_t *with_branches(gatherer *w, json_t *schema) {
    json_t *made = json_object(), *all = json_array();
    add_branches(all, w, schema, w->branches, 0);
    json_object_set_new(made, "anyOf", all);
    return made;
}

static bool is_too_much(const gatherer *w) {
    const size_t members =
        json_object_size(w->held) + json_object_size(w->ways) + json_object_size(w->named);
    return json_array_size(w->branches) * (members + 1) > BRANCH_MEMBERS_MAX;
}

static size_t count_sources(const json_t *schema) {
    size_t count = 0;
    for (size_t i = 0; i < SOURCES; i++) count += json_object_get(schema, s_sources[i]) != NULL;
    return count;
}

bool lenient_has_members(const json_t *schema, bool is_alone) {
    const bool required = json_array_size(json_object_get(schema, "required")) > 0;
    const size_t sources = count_sources(schema);
    if (!may_be_object(schema) || sources == 0) return false;
    return !is_alone || required || sources > 1 || gather_has_others(schema);
}

json_t *lenient_members(json_t *root, json_t *schema, looks *l) {
    gatherer w = gatherer_init(root, l);
    json_t *own = json_object_get(schema, "properties");
    json_object_update(w.held, own);
    json_array_extend(w.required, json_object_get(schema, "required"));
    w.has_names = json_is_object(own);
    w.branches = find_branches(&w, schema, 0);
    gather_beside(&w, schema, HOLDS, 0);
    if (w.branches && is_too_much(&w)) {
        const json_t *list = w.branches;
        w.branches = NULL;
        gather_either(&w, list, MAY_HOLD, 0);
    }
    w.is_open = w.is_open || (!w.branches && !w.has_names && !gather_has_others(schema));
    json_t *made = w.branches ? with_branches(&w, schema) : made_of(schema, &w);
    const bool has_type = w.types || json_object_get(schema, "type");
    if (!w.has_names && !w.branch_has_names && !has_type) { /* it may be no object at all */
        json_decref(made);
        made = json_incref(schema);
    }
    gatherer_fini(&w);
    return made;
}
