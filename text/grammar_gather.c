/* grammar_gather.c - which members there may be of an object, by all schemas that say something of it, and as what: what holds
 * counts; what may hold is one way of several, and of what a condition asks the member may be any value. */
#include "grammar_gather.h"

#define PLACE_BYTES_A_LOOK 32u /* of a pointer: some steps */
#define COMPARED_A_LOOK 64u    /* values and bytes */
#define COMPARED_MAX 1024u     /* of a schema that is compared with others */
#define WAYS_MAX 64u           /* schemas of one member */
#define WAYS_BESIDE_MAX 8u     /* of these, alternatives that are followed side by side */
#define WAYS_LOOKED_MAX 256u   /* to count those */
#define WAYS_NESTED_MAX 8u

gatherer gatherer_init(json_t *root, looks *l) {
    return (gatherer){.root = root,
                      .looks = l,
                      .held = json_object(),
                      .ways = json_object(),
                      .plain = json_object(),
                      .met = json_object(),
                      .named = json_object(),
                      .required = json_array()};
}

void gatherer_fini(gatherer *w) {
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

bool gather_may_look(gatherer *w) {
    return may_spend(w, 1);
}

bool gather_may_go_on(gatherer *w) {
    const bool may = w->looks->count < w->looks->max;
    if (!may) w->is_open = true;
    return may;
}

json_t *gather_follow(gatherer *w, const json_t *schema) {
    const json_t *ref = json_object_get(schema, "$ref");
    if (!json_is_string(ref)) return NULL;
    if (!may_spend(w, json_string_length(ref) / PLACE_BYTES_A_LOOK)) return NULL;
    return grammar_place(w->root, json_string_value(ref));
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
    if (*left == 0 || depth == WAYS_NESTED_MAX || !gather_may_look(w)) return WAYS_BESIDE_MAX + 1;
    (*left)--;
    if (json_object_get(schema, "const") || json_object_get(schema, "enum")) return 0;
    if (json_is_string(json_object_get(schema, "$ref")))
        return count_beside(w, gather_follow(w, schema), depth + 1, left);
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

json_t *gather_join(gatherer *w, json_t *others) {
    json_t *made = json_copy(w->held), *value = NULL;
    const char *name = NULL;
    json_object_foreach(w->ways, name, value) {
        if (others) add_way(w, name, others);
        if (!json_object_get(made, name)) json_object_set_new(made, name, join_ways(w, value));
    }
    json_object_update_missing(made, w->named);
    return made;
}

static void copy_lists(json_t *out, json_t *lists) {
    const char *name = NULL;
    json_t *list = NULL;
    json_object_foreach(lists, name, list) {
        json_object_set_new(out, name, json_copy(list));
    }
}

void gather_copy_ways(gatherer *out, const gatherer *w) {
    copy_lists(out->ways, w->ways);
    copy_lists(out->plain, w->plain);
    copy_lists(out->met, w->met);
}

/* ---- gathering ------------------------------------------------------------------------------------- */

static void add_name(gatherer *w, const char *name) {
    if (name) json_object_set_new(w->named, name, json_true());
}

static void add_names(gatherer *w, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list) && gather_may_look(w); i++)
        add_name(w, json_string_value(json_array_get(list, i)));
}

static void add_member(gatherer *w, const char *name, json_t *schema, standing how) {
    if (how == HOLDS && !json_object_get(w->held, name)) json_object_set(w->held, name, schema);
    if (how == MAY_HOLD) add_way(w, name, schema);
    if (how == IS_ASKED) add_way(w, name, json_true());
}

bool gather_has_others(const json_t *schema) {
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
    if (gather_has_others(schema)) w->is_open = true;
    if (how == HOLDS && !w->types) w->types = type;
    json_object_foreach(properties, name, value) {
        if (!gather_may_look(w)) return;
        add_member(w, name, value, how);
    }
    if (how != HOLDS) add_names(w, required);
    for (size_t i = 0; how == HOLDS && i < json_array_size(required) && gather_may_look(w); i++)
        json_array_append(w->required, json_array_get(required, i));
}

static void gather_all(gatherer *w, const json_t *list, standing how, unsigned depth) {
    for (size_t i = 0; i < json_array_size(list) && gather_may_go_on(w); i++)
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

void gather_either(gatherer *w, const json_t *list, standing how, unsigned depth) {
    bool all = json_array_size(list) > 0;
    if (list == w->branches) return;
    for (size_t i = 0; i < json_array_size(list) && gather_may_go_on(w); i++)
        all = gather_one(w, json_array_get(list, i), how, depth) && all;
    w->has_names = w->has_names || all;
}

/* What holds, or which names there are, where a member is: before 2019 the two were one. */
static void gather_dependent(gatherer *w, json_t *dependent, standing how, unsigned depth) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(dependent, name, value) {
        if (!gather_may_look(w)) return;
        add_name(w, name);
        add_names(w, value);
        if (json_is_object(value)) gather_one(w, value, how, depth);
    }
}

void gather_beside(gatherer *w, const json_t *schema, standing how, unsigned depth) {
    static const char *const dependent[] = {"dependentSchemas", "dependentRequired",
                                            "dependencies"};
    const standing either = how == IS_ASKED ? IS_ASKED : MAY_HOLD;
    json_t *place = gather_follow(w, schema);
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

void gather(gatherer *w, json_t *schema, standing how, unsigned depth) {
    if (!schema || !gather_may_look(w) || !json_is_object(schema)) return;
    for (unsigned i = 0; i < depth && i < GATHER_NESTED_MAX; i++)
        if (w->inside[i] == schema) return;
    if (depth == GATHER_NESTED_MAX || grammar_has_base(w->root, schema)) {
        w->is_open = true; /* it may name others */
        return;
    }
    w->inside[depth] = schema;
    gather_own(w, schema, how);
    gather_beside(w, schema, how, depth);
}
