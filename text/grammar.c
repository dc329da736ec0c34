/* grammar.c - see grammar.h: rules, and what is known of them before the first byte. */
#include "grammar_internal.h"

#include "omm/mem.h"

#include <stdlib.h>

#define CAPACITY_LEAST 16u
#define VISITED_MAX 256u /* choices inside choices */
#define ANY_OBJECT 2u    /* of grammar_any's alternatives */

/* ---- lists ------------------------------------------------------------------------------------- */

static omm_err make_room(void **list, uint32_t *capacity, uint32_t count, size_t more, size_t size,
                         uint32_t most, const char *what) {
    if (more > most - count)
        return omm_raise(OMM_ERR_TOO_BIG, "the schema has more than %u %s", most, what);
    const uint32_t wanted = count + (uint32_t)more;
    if (wanted <= *capacity) return OMM_OK;
    uint32_t room = *capacity ? *capacity : CAPACITY_LEAST;
    while (room < wanted) room *= 2;
    void *grown = omm_grow(*list, *capacity, room, size);
    if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
    *list = grown;
    *capacity = room;
    return OMM_OK;
}

omm_err grammar_add_rule(uint32_t *out, omm_grammar *g, const rule *made) {
    void *list = g->rules;
    const omm_err err = make_room(&list, &g->rule_capacity, g->rule_count, 1, sizeof *g->rules,
                                  OMM_GRAMMAR_RULES_MAX, "parts with rules of their own");
    g->rules = (rule *)list;
    if (err != OMM_OK) return err;
    *out = g->rule_count++;
    g->rules[*out] = *made;
    return OMM_OK;
}

static omm_err add_parts(uint32_t *first, omm_grammar *g, size_t count, uint32_t most) {
    void *list = g->parts;
    const omm_err err = make_room(&list, &g->part_capacity, g->part_count, count, sizeof *g->parts,
                                  most, "alternatives and items");
    g->parts = (uint32_t *)list;
    if (err != OMM_OK) return err;
    *first = g->part_count;
    g->part_count += (uint32_t)count;
    return OMM_OK;
}

omm_err grammar_add_parts(uint32_t *first, omm_grammar *g, size_t count) {
    return add_parts(first, g, count, OMM_GRAMMAR_PARTS_MAX);
}

omm_err grammar_add_members(uint32_t *first, omm_grammar *g, size_t count) {
    void *list = g->members;
    const omm_err err = make_room(&list, &g->member_capacity, g->member_count, count,
                                  sizeof *g->members, OMM_GRAMMAR_PARTS_MAX, "properties");
    g->members = (member *)list;
    if (err != OMM_OK) return err;
    *first = g->member_count;
    g->member_count += (uint32_t)count;
    return OMM_OK;
}

omm_err grammar_add_texts(uint32_t *first, omm_grammar *g, size_t count) {
    void *list = g->texts;
    const omm_err err = make_room(&list, &g->text_capacity, g->text_count, count, sizeof *g->texts,
                                  OMM_GRAMMAR_PARTS_MAX, "names and values of enum");
    g->texts = (literal *)list;
    if (err != OMM_OK) return err;
    *first = g->text_count;
    g->text_count += (uint32_t)count;
    return OMM_OK;
}

static int compare(const omm_grammar *g, const literal *a, const literal *b) {
    const uint32_t size = a->size < b->size ? a->size : b->size;
    const int by_bytes = memcmp(g->bytes.data + a->at, g->bytes.data + b->at, size);
    if (by_bytes != 0) return by_bytes;
    return a->size < b->size ? -1 : a->size > b->size;
}

static int by_text(const void *a, const void *b, void *ud) {
    return compare((const omm_grammar *)ud, (const literal *)a, (const literal *)b);
}

void grammar_sort_texts(omm_grammar *g, uint32_t first, uint32_t *count) {
    literal *list = g->texts + first;
    uint32_t kept = 0;
    if (*count == 0) return; /* there may be no list */
    qsort_r(list, *count, sizeof *list, by_text, g);
    for (uint32_t i = 0; i < *count; i++)
        if (kept == 0 || compare(g, &list[kept - 1], &list[i]) != 0) list[kept++] = list[i];
    *count = kept;
}

omm_err grammar_add_literals(uint32_t *out, omm_grammar *g, const char *const *texts,
                             size_t count) {
    rule made = {.kind = RULE_TEXTS, .rest = RULE_NONE, .count = (uint32_t)count};
    OMM_TRY(grammar_add_texts(&made.first, g, count));
    for (size_t i = 0; i < count; i++) {
        g->texts[made.first + i] =
            (literal){.at = (uint32_t)g->bytes.size, .size = (uint32_t)strlen(texts[i])};
        OMM_TRY(omm_buf_append(&g->bytes, texts[i], strlen(texts[i])));
    }
    grammar_sort_texts(g, made.first, &made.count);
    return grammar_add_rule(out, g, &made);
}

/* ---- any value --------------------------------------------------------------------------------- */

omm_err grammar_any(uint32_t *out, omm_grammar *g) {
    static const char *const words[] = {"true", "false", "null"};
    static const rule_kind kinds[] = {RULE_STRING, RULE_NUMBER, [ANY_OBJECT] = RULE_OBJECT,
                                      RULE_ARRAY};
    rule choice = {.kind = RULE_CHOICE, .rest = RULE_NONE, .count = 5};
    uint32_t made[5] = {0};
    *out = g->any;
    if (g->any != RULE_NONE) return OMM_OK;
    OMM_TRY(grammar_add_parts(&choice.first, g, choice.count));
    OMM_TRY(grammar_add_rule(out, g, &choice));
    for (unsigned i = 0; i < 4; i++) {
        const bool nests = kinds[i] == RULE_OBJECT || kinds[i] == RULE_ARRAY;
        const rule one = {.kind = kinds[i], .rest = nests ? *out : RULE_NONE, .max = RULE_NONE};
        OMM_TRY(grammar_add_rule(&made[i], g, &one));
    }
    OMM_TRY(grammar_add_literals(&made[4], g, words, 3));
    memcpy(g->parts + choice.first, made, sizeof made);
    g->any = *out;
    return OMM_OK;
}

/* ---- what is known beforehand ---------------------------------------------------------------------- */

static const char *path_of(const omm_grammar *g, uint32_t index) {
    const uint32_t path = g->rules[index].path;
    return path ? (const char *)g->bytes.data + path : "the schema";
}

typedef struct walk {
    uint32_t found[GRAMMAR_THREADS_MAX], count; /* alternatives that are no choices */
    uint32_t visited[VISITED_MAX],
        visited_count; /* choices; their parts are looked at in this order */
    bool cut;          /* there are more */
    bool objects;      /* all of them are */
    uint32_t
        seen[OMM_GRAMMAR_RULES_MAX]; /* by rule: the choice, and 1, for which it was seen last */
} walk;

static void visit(walk *w, const omm_grammar *g, uint32_t choice, uint32_t part) {
    const bool is_choice = g->rules[part].kind == RULE_CHOICE;
    if (w->seen[part] == choice + 1) return;
    w->seen[part] = choice + 1;
    w->objects = w->objects && (is_choice || g->rules[part].kind == RULE_OBJECT);
    if (is_choice ? w->visited_count == VISITED_MAX : w->count == GRAMMAR_THREADS_MAX)
        w->cut = true;
    else if (is_choice)
        w->visited[w->visited_count++] = part;
    else
        w->found[w->count++] = part;
}

/* Of a wide choice with too many: any value, or object where all are; it is the only one then. */
static omm_err find_any(walk *w, omm_grammar *g) {
    uint32_t any = 0;
    OMM_TRY(grammar_any(&any, g));
    const uint32_t *parts = g->parts + g->rules[any].first;
    const bool objects = w->objects && w->visited_count < VISITED_MAX;
    w->count = objects ? 1 : g->rules[any].count;
    memcpy(w->found, objects ? parts + ANY_OBJECT : parts, w->count * sizeof *w->found);
    return OMM_OK;
}

/* Alternatives in the order of the schema, but those of a choice inside behind those beside it. */
static omm_err find_alternatives(walk *w, omm_grammar *g, uint32_t choice) {
    w->count = 0;
    w->cut = false;
    w->objects = true;
    w->visited_count = 1;
    w->visited[0] = choice;
    w->seen[choice] = choice + 1;
    for (uint32_t i = 0; i < w->visited_count && !(w->cut && !w->objects); i++) {
        const rule *r = &g->rules[w->visited[i]];
        for (uint32_t k = 0; k < r->count; k++) visit(w, g, choice, g->parts[r->first + k]);
    }
    if (w->cut && g->rules[choice].wide) return find_any(w, g);
    if (w->cut && w->visited_count == VISITED_MAX)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "%.200s: more than %u references and choices inside one another",
                         path_of(g, choice), VISITED_MAX);
    if (w->cut)
        return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: more than %u alternatives",
                         path_of(g, choice), GRAMMAR_THREADS_MAX);
    if (w->count > 0) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "%.200s: $ref leads back to where it stands",
                     path_of(g, choice));
}

/* All choices at once in the end: they are found through one another. */
static omm_err flatten(omm_grammar *g) {
    walk w = {.count = 0};
    const uint32_t rules = g->rule_count;
    const uint32_t most = OMM_GRAMMAR_PARTS_MAX + OMM_GRAMMAR_RULES_MAX * GRAMMAR_THREADS_MAX;
    uint32_t first[OMM_GRAMMAR_RULES_MAX] = {0}, count[OMM_GRAMMAR_RULES_MAX] = {0};
    for (uint32_t i = 0; i < rules; i++) {
        if (g->rules[i].kind != RULE_CHOICE) continue;
        OMM_TRY(find_alternatives(&w, g, i));
        OMM_TRY(add_parts(&first[i], g, w.count, most));
        count[i] = w.count;
        memcpy(g->parts + first[i], w.found, w.count * sizeof *w.found);
    }
    for (uint32_t i = 0; i < rules; i++) {
        if (g->rules[i].kind != RULE_CHOICE) continue;
        g->rules[i].first = first[i];
        g->rules[i].count = count[i];
    }
    return OMM_OK;
}

static void set_due(omm_grammar *g, const rule *r) {
    uint32_t due = RULE_NONE;
    for (uint32_t i = r->count; i-- > 0;) {
        member *m = &g->members[r->first + i];
        if (m->required) due = i;
        m->due = due;
    }
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t height_of(const omm_grammar *g, const rule *r) {
    uint32_t height = 0;
    if (r->kind == RULE_CHOICE) {
        height = RULE_NONE;
        for (uint32_t i = 0; i < r->count; i++) {
            const uint32_t one = g->rules[g->parts[r->first + i]].height;
            if (one < height) height = one;
        }
        return height;
    }
    for (uint32_t i = 0; r->kind == RULE_OBJECT && i < r->count; i++)
        if (g->members[r->first + i].required)
            height = larger(height, g->rules[g->members[r->first + i].rule].height);
    for (uint32_t i = 0; r->kind == RULE_ARRAY && i < r->min && i <= r->count; i++) {
        const uint32_t item = grammar_item(g, r, i);
        height = item == RULE_NONE ? RULE_NONE : larger(height, g->rules[item].height);
    }
    return height < GRAMMAR_DEPTH_MAX ? height + 1 : RULE_NONE;
}

/* Each pass knows at least the texts that are one higher than those of the pass before. */
static void set_heights(omm_grammar *g) {
    bool changed = true;
    for (uint32_t i = 0; i < g->rule_count; i++) g->rules[i].height = RULE_NONE;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->rule_count; i++) {
            const uint32_t height = height_of(g, &g->rules[i]);
            changed = changed || height != g->rules[i].height;
            g->rules[i].height = height;
        }
    }
}

omm_err grammar_finish(omm_grammar *g) {
    OMM_TRY(flatten(g));
    for (uint32_t i = 0; i < g->rule_count; i++)
        if (g->rules[i].kind == RULE_OBJECT) set_due(g, &g->rules[i]);
    set_heights(g);
    return OMM_OK;
}

omm_err grammar_finish_root(omm_grammar *g) {
    OMM_TRY(grammar_finish(g));
    if (g->rules[g->root].height != RULE_NONE) return OMM_OK;
    uint32_t at = 0; /* the first that says why */
    while (g->rules[at].kind == RULE_CHOICE || g->rules[at].height != RULE_NONE) at++;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "%.200s: no text fulfils it that ends within %u values inside one another",
                     path_of(g, at), GRAMMAR_DEPTH_MAX);
}

/* ---- open and close -------------------------------------------------------------------------------- */

omm_err grammar_open(omm_grammar **out) {
    omm_grammar *g = (omm_grammar *)omm_alloc(1, sizeof *g);
    if (!g) return omm_raise(OMM_ERR_NOMEM, "no memory for a grammar");
    g->any = RULE_NONE;
    g->looks.max = LOOKS_MAX;
    omm_buf_init(&g->bytes, OMM_GRAMMAR_BYTES_MAX);
    /* a path in front of the bytes is at 1 at least: 0 says that there is none */
    const omm_err err = omm_buf_append(&g->bytes, "", 1);
    if (err != OMM_OK) {
        omm_grammar_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}

omm_err grammar_any_object(uint32_t *out, omm_grammar *g) {
    rule object = {.kind = RULE_OBJECT, .max = RULE_NONE};
    OMM_TRY(grammar_any(&object.rest, g));
    return grammar_add_rule(out, g, &object);
}

static omm_err make_object(omm_grammar *g) {
    OMM_TRY(grammar_any_object(&g->root, g));
    return grammar_finish_root(g);
}

omm_err omm_grammar_open_object(omm_grammar **out) {
    omm_grammar *g = NULL;
    OMM_TRY(grammar_open(&g));
    const omm_err err = make_object(g);
    if (err != OMM_OK) {
        omm_grammar_close(g);
        return err;
    }
    *out = g;
    return OMM_OK;
}

void omm_grammar_close(omm_grammar *g) {
    if (!g) return;
    omm_free(g->rules);
    omm_free(g->parts);
    omm_free(g->members);
    omm_free(g->texts);
    omm_buf_fini(&g->bytes);
    pattern_table_fini(&g->patterns);
    omm_free(g);
}
