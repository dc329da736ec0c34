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
#include "grammar_internal.h"

#define NESTED_MAX 32u /* of schemas whose members are gathered; LOOKS_MAX bounds the work */
#define PLACE_BYTES_A_LOOK 32u  /* of a pointer: some steps */
#define COMPARED_A_LOOK 64u     /* values and bytes */
#define BRANCHES_MAX 16u        /* that become alternatives */
#define BRANCH_MEMBERS_MAX 512u /* of all of these */
#define WAYS_MAX 64u            /* schemas of one member */
#define WAYS_BESIDE_MAX 8u      /* of these, alternatives that are followed side by side */
#define WAYS_LOOKED_MAX 256u    /* to count those */
#define WAYS_NESTED_MAX 8u
#define COMPARED_MAX 1024u /* values and bytes of a schema that is compared with others */

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

/* ---- members ------------------------------------------------------------------------------------- */

/* How a schema stands to the one whose members are gathered. */
typedef enum standing {
    HOLDS,
    MAY_HOLD, /* an alternative */
    IS_ASKED, /* whether it holds: a member may be as it says, or not */
} standing;

typedef struct gatherer {
    json_t *root;
    looks *looks;
    const json_t *inside[NESTED_MAX]; /* on the way here: none is gathered inside itself */
    const json_t *branches;           /* become alternatives and are not gathered */
    json_t *held;                     /* schemas by name, of what holds; the first of each */
    json_t *ways;                     /* lists of schemas by name, of what may hold */
    json_t *plain;                    /* the same ones, to be compared */
    json_t *met;                      /* those that were looked at, equal ones too */
    json_t *named;                    /* names of which nothing is said */
    json_t *required;
    json_t *types;  /* that hold; the first that are written */
    bool has_names; /* whatever alternative holds, it has `properties` */
    bool branch_has_names;
    bool is_open; /* others than those that are named may stand */
} gatherer;

static gatherer gatherer_init(json_t *root, looks *l) {
    return (gatherer){.root = root,
                      .looks = l,
                      .held = json_object(),
                      .ways = json_object(),
                      .plain = json_object(),
                      .met = json_object(),
                      .named = json_object(),
                      .required = json_array()};
}

static void gatherer_fini(gatherer *w) {
    json_decref(w->held);
    json_decref(w->ways);
    json_decref(w->plain);
    json_decref(w->met);
    json_decref(w->named);
    json_decref(w->required);
}

/* What is not looked at may name others. */
static bool may_spend(gatherer *w, size_t looked) {
    const bool may = looked <= w->looks->max - w->looks->count;
    w->looks->count = may ? w->looks->count + (uint32_t)looked : w->looks->max;
    if (!may) w->is_open = true;
    return may;
}

static bool may_look(gatherer *w) {
    return may_spend(w, 1);
}

/* To one more of a list. */
static bool may_go_on(gatherer *w) {
    const bool may = w->looks->count < w->looks->max;
    if (!may) w->is_open = true;
    return may;
}

/* Where $ref leads; NULL: nowhere, or it is not there. */
static json_t *follow(gatherer *w, const json_t *schema) {
    const json_t *ref = json_object_get(schema, "$ref");
    if (!json_is_string(ref)) return NULL;
    if (!may_spend(w, json_string_length(ref) / PLACE_BYTES_A_LOOK)) return NULL;
    return grammar_place(w->root, json_string_value(ref));
}

/* Its type, or else one of what holds of it; NULL: none is written. */
static json_t *held_type(gatherer *w, json_t *schema, unsigned depth) {
    json_t *type = json_object_get(schema, "type"), *all = json_object_get(schema, "allOf");
    if (type || !json_is_object(schema) || depth == NESTED_MAX || !may_look(w)) return type;
    if (!grammar_has_base(w->root, schema)) type = held_type(w, follow(w, schema), depth + 1);
    for (size_t i = 0; !type && i < json_array_size(all) && may_go_on(w); i++)
        type = held_type(w, json_array_get(all, i), depth + 1);
    return type;
}

/* Through references and allOf of one, which stand alone; NULL: further than that. */
static json_t *behind_alone(gatherer *w, json_t *schema) {
    for (unsigned i = 0; i < NESTED_MAX && may_look(w); i++) {
        const char *alone = lenient_keyword(w->root, schema);
        const json_t *all = json_object_get(schema, "allOf");
        size_t at = 0;
        if (i > 0 && json_object_get(schema, "type")) return schema;
        if (!alone || (strcmp(alone, "$ref") != 0 && strcmp(alone, "allOf") != 0)) return schema;
        const bool is_ref = strcmp(alone, "$ref") == 0;
        if (!is_ref) grammar_count_said(&at, all);
        schema = is_ref ? follow(w, schema) : json_array_get(all, at);
    }
    return NULL;
}

static json_t *copy_with_type(json_t *schema, json_t *type) {
    json_t *made = json_copy(schema);
    json_object_set(made, "type", type);
    return made;
}

bool lenient_has_type(const json_t *schema, const char *alone) {
    const bool has_type = json_object_get(schema, "type") != NULL;
    if (!alone)
        return !has_type && (json_object_get(schema, "allOf") || json_object_get(schema, "$ref"));
    return has_type && strcmp(alone, "enum") != 0 && strcmp(alone, "const") != 0;
}

json_t *lenient_with_type(json_t *root, json_t *schema, looks *l) {
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
    return copy_with_type(behind, type);
}

/* ---- schemas of one member ------------------------------------------------------------------------- */

/* Of no more than *left values and bytes. */
static bool is_small(json_t *value, size_t *left) {
    const char *name = NULL;
    json_t *inside = NULL;
    const size_t size = 1 + json_string_length(value);
    if (size > *left) return false;
    *left -= size;
    json_object_foreach(value, name, inside) {
        const size_t bytes = strnlen(name, *left + 1);
        if (bytes > *left) return false;
        *left -= bytes;
        if (!is_small(inside, left)) return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!is_small(json_array_get(value, i), left)) return false;
    return true;
}

static bool is_dropped(const char *name) {
    return grammar_is_note(name) && strcmp(name, "$id") != 0;
}

/* A new reference. */
static json_t *without_notes(json_t *schema) {
    const char *name = NULL;
    json_t *value = NULL, *made = NULL;
    json_object_foreach(schema, name, value) {
        if (!is_dropped(name)) continue;
        if (!made) made = json_copy(schema);
        json_object_del(made, name);
    }
    return made ? made : json_incref(schema);
}

static bool is_listed(const json_t *list, const json_t *schema) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_array_get(list, i) == schema) return true;
    return false;
}

static bool has_equal(const json_t *list, const json_t *schema) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), schema)) return true;
    return false;
}

static json_t *list_of(json_t *lists, const char *name) {
    json_t *list = json_object_get(lists, name);
    if (!list) json_object_set_new(lists, name, list = json_array());
    return list;
}

/* Any value: what else there is says nothing then. */
static void set_any(json_t *list) {
    json_array_clear(list);
    json_array_append_new(list, json_true());
}

/* To a list in which it is not: any value where that is all that can be said. */
static void add_new(json_t *list, json_t *plain, json_t *schema, json_t *made) {
    if (grammar_says_nothing(made) || json_array_size(list) == WAYS_MAX) {
        set_any(list);
        return;
    }
    json_array_append(list, schema);
    json_array_append(plain, made);
}

/* One more way in which the member may be; [true]: any value.  The schema itself and no copy, as it may name itself. */
static void add_way(gatherer *w, const char *name, json_t *schema) {
    size_t left = COMPARED_MAX;
    json_t *list = list_of(w->ways, name), *plain = list_of(w->plain, name);
    json_t *met = list_of(w->met, name);
    if (json_is_true(json_array_get(list, 0)) || is_listed(met, schema)) return;
    if (json_array_size(met) < WAYS_MAX) json_array_append(met, schema);
    const bool compares = json_is_object(schema) && is_small(schema, &left);
    const size_t times = 1 + (compares ? json_array_size(plain) : 0);
    json_t *made = compares ? without_notes(schema) : json_incref(schema);
    if (!may_spend(w, (COMPARED_MAX - left) * times / COMPARED_A_LOOK))
        set_any(list);
    else if (!compares || !has_equal(plain, made))
        add_new(list, plain, schema, made);
    json_decref(made);
}

/* Alternatives that it has at least; those that are values are one with others that are.  *left: schemas that may be looked at. */
static size_t count_beside(gatherer *w, const json_t *schema, unsigned depth, size_t *left) {
    static const char *const lists[] = {"anyOf", "oneOf"};
    size_t sum = 0;
    if (*left == 0 || depth == WAYS_NESTED_MAX || !may_look(w)) return WAYS_BESIDE_MAX + 1;
    (*left)--;
    if (json_object_get(schema, "const") || json_object_get(schema, "enum")) return 0;
    if (json_is_string(json_object_get(schema, "$ref")))
        return count_beside(w, follow(w, schema), depth + 1, left);
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = json_object_get(schema, lists[k]);
        for (size_t i = 0; i < json_array_size(list) && sum <= WAYS_BESIDE_MAX; i++)
            sum += count_beside(w, json_array_get(list, i), depth + 1, left);
    }
    const size_t types = json_array_size(json_object_get(schema, "type"));
    return sum > 0 ? sum : types > 1 ? types : 1;
}

/* A new reference: a schema of all of these. */
static json_t *join_ways(gatherer *w, json_t *list) {
    size_t sum = 0, left = WAYS_LOOKED_MAX;
    if (json_array_size(list) == 1) return json_incref(json_array_get(list, 0));
    for (size_t i = 0; i < json_array_size(list) && sum <= WAYS_BESIDE_MAX; i++)
        sum += count_beside(w, json_array_get(list, i), 0, &left);
    if (sum > WAYS_BESIDE_MAX) return json_true();
    json_t *made = json_object();
    json_object_set(made, "anyOf", list);
    return made;
}

/* A new reference: of a name what holds, else what may, else any value.  others: how members without a name may be; NULL: there
 * are none.  What may hold may as well not, and the member is one of these then. */
static json_t *join_members(gatherer *w, json_t *others) {
    json_t *made = json_copy(w->held), *value = NULL;
    const char *name = NULL;
    json_object_foreach(w->ways, name, value) {
        if (others) add_way(w, name, others);
        if (!json_object_get(made, name)) json_object_set_new(made, name, join_ways(w, value));
    }
    json_object_update_missing(made, w->named);
    return made;
}

/* ---- gathering ------------------------------------------------------------------------------------- */

static void gather(gatherer *w, json_t *schema, standing how, unsigned depth);

static void add_name(gatherer *w, const char *name) {
    if (name) json_object_set_new(w->named, name, json_true());
}

static void add_names(gatherer *w, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list) && may_look(w); i++)
        add_name(w, json_string_value(json_array_get(list, i)));
}

static void add_member(gatherer *w, const char *name, json_t *schema, standing how) {
    if (how == HOLDS && !json_object_get(w->held, name)) json_object_set(w->held, name, schema);
    if (how == MAY_HOLD) add_way(w, name, schema);
    if (how == IS_ASKED) add_way(w, name, json_true());
}

/* Others than those that are named may stand. */
static bool has_others(const json_t *schema) {
    static const char *const keys[] = {"additionalProperties", "unevaluatedProperties"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *others = json_object_get(schema, keys[i]);
        if (others && !json_is_false(others)) return true;
    }
    return json_object_size(json_object_get(schema, "patternProperties")) > 0;
}

static void gather_own(gatherer *w, const json_t *schema, standing how) {
    json_t *properties = json_object_get(schema, "properties"), *value = NULL;
    const json_t *required = json_object_get(schema, "required");
    json_t *type = json_object_get(schema, "type");
    const char *name = NULL;
    if (how != IS_ASKED && json_is_object(properties)) w->has_names = true;
    if (has_others(schema)) w->is_open = true;
    if (how == HOLDS && !w->types) w->types = type;
    json_object_foreach(properties, name, value) {
        if (!may_look(w)) return;
        add_member(w, name, value, how);
    }
    if (how != HOLDS) add_names(w, required);
    for (size_t i = 0; how == HOLDS && i < json_array_size(required) && may_look(w); i++)
        json_array_append(w->required, json_array_get(required, i));
}

static void gather_all(gatherer *w, const json_t *list, standing how, unsigned depth) {
    for (size_t i = 0; i < json_array_size(list) && may_go_on(w); i++)
        gather(w, json_array_get(list, i), how, depth + 1);
}

/* Returns whether it has names of its own. */
static bool gather_one(gatherer *w, json_t *schema, standing how, unsigned depth) {
    const bool before = w->has_names;
    w->has_names = false;
    gather(w, schema, how, depth + 1);
    const bool has_names = w->has_names;
    w->has_names = before;
    return has_names;
}

static void gather_either(gatherer *w, const json_t *list, standing how, unsigned depth) {
    bool all = json_array_size(list) > 0;
    if (list == w->branches) return;
    for (size_t i = 0; i < json_array_size(list) && may_go_on(w); i++)
        all = gather_one(w, json_array_get(list, i), how, depth) && all;
    w->has_names = w->has_names || all;
}

/* What holds, or which names there are, where a member is: before 2019 the two were one. */
static void gather_dependent(gatherer *w, json_t *dependent, standing how, unsigned depth) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(dependent, name, value) {
        if (!may_look(w)) return;
        add_name(w, name);
        add_names(w, value);
        if (json_is_object(value)) gather_one(w, value, how, depth);
    }
}

/* What stands beside its own properties. */
static void gather_beside(gatherer *w, const json_t *schema, standing how, unsigned depth) {
    static const char *const dependent[] = {"dependentSchemas", "dependentRequired",
                                            "dependencies"};
    const standing either = how == IS_ASKED ? IS_ASKED : MAY_HOLD;
    json_t *place = follow(w, schema);
    if (json_object_get(schema, "$ref") && !place) w->is_open = true; /* it is somewhere else */
    if (json_object_get(schema, "$dynamicRef") || json_object_get(schema, "$recursiveRef"))
        w->is_open = true; /* depends on who asks */
    gather(w, place, how, depth + 1);
    gather_all(w, json_object_get(schema, "allOf"), how, depth);
    gather_either(w, json_object_get(schema, "anyOf"), either, depth);
    gather_either(w, json_object_get(schema, "oneOf"), either, depth);
    gather(w, json_object_get(schema, "if"), IS_ASKED, depth + 1);
    const bool then_has = gather_one(w, json_object_get(schema, "then"), either, depth);
    if (gather_one(w, json_object_get(schema, "else"), either, depth) && then_has)
        w->has_names = true;
    for (size_t i = 0; i < 3; i++)
        gather_dependent(w, json_object_get(schema, dependent[i]), either, depth);
}

static void gather(gatherer *w, json_t *schema, standing how, unsigned depth) {
    if (!schema || !may_look(w) || !json_is_object(schema)) return;
    for (unsigned i = 0; i < depth && i < NESTED_MAX; i++)
        if (w->inside[i] == schema) return;
    if (depth == NESTED_MAX || grammar_has_base(w->root, schema)) {
        w->is_open = true; /* it may name others */
        return;
    }
    w->inside[depth] = schema;
    gather_own(w, schema, how);
    gather_beside(w, schema, how, depth);
}

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
    json_object_set_new(made, "properties", join_members(w, others_of(schema, w)));
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
    for (unsigned i = 0; i < NESTED_MAX && schema && may_look(w); i++) {
        if (!json_object_get(schema, "$ref") || json_object_get(schema, "type")) break;
        schema = follow(w, schema);
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
    if (depth == NESTED_MAX || !json_is_object(schema) || !may_look(w)) return NULL;
    if (depth > 0 && grammar_has_base(w->root, schema)) return NULL;
    for (size_t i = 0; i < 2; i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        if (are_branches(list)) return list;
    }
    found = find_branches(w, follow(w, schema), depth + 1);
    for (size_t i = 0; !found && i < json_array_size(all) && may_go_on(w); i++)
        found = find_branches(w, json_array_get(all, i), depth + 1);
    return found;
}

static void copy_lists(json_t *out, json_t *lists) {
    const char *name = NULL;
    json_t *list = NULL;
    json_object_foreach(lists, name, list) {
        json_object_set_new(out, name, json_copy(list));
    }
}

/* What a branch says of a member counts, not what stands beside it. */
static json_t *with_branch(gatherer *w, json_t *schema, json_t *branch) {
    gatherer one = gatherer_init(w->root, w->looks);
    json_t *held = json_copy(w->held), *required = json_copy(w->required);
    copy_lists(one.ways, w->ways);
    copy_lists(one.plain, w->plain);
    copy_lists(one.met, w->met);
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
        one.is_open || w->is_open || !(one.has_names || w->has_names || has_others(schema));
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
    const json_t *inside = has_base || depth == WAYS_NESTED_MAX ? NULL : list_alone(behind);
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
    return !is_alone || required || sources > 1 || has_others(schema);
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
    w.is_open = w.is_open || (!w.branches && !w.has_names && !has_others(schema));
    json_t *made = w.branches ? with_branches(&w, schema) : made_of(schema, &w);
    const bool has_type = w.types || json_object_get(schema, "type");
    if (!w.has_names && !w.branch_has_names && !has_type) { /* it may be no object at all */
        json_decref(made);
        made = json_incref(schema);
    }
    gatherer_fini(&w);
    return made;
}
