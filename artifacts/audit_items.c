/* audit_items.c - the held-out rows against each other, as an item that is there twice is judged alike, and against what was agreed
 * before round 0: whose items can be judged, and how much of one.
 *
 * Of a service, and where the scenario has `evaluation: {clients: all}`, the items are of whoever has some in the held-out file,
 * which is not in the bundle.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define AFTER_PATH "eval/after.jsonl" /* audit_eval compares the others with it, line by line */

/* A client of the nodes, and whether one of the rows is of it. */
typedef struct client {
    const char *name; /* first: by which they are found */
    bool is_judged;
} client;

static int by_name(const void *a, const void *b) {
    const client *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Ascending, in list: (node_count).  How many there are. */
static size_t clients_of(client *list, const omm_run_record *run) {
    size_t count = 0;
    for (size_t i = 0; i < run->node_count; i++)
        if (run->nodes[i].client[0]) list[count++] = (client){run->nodes[i].client, false};
    if (count) qsort(list, count, sizeof *list, by_name);
    return count;
}

/* Who trains is judged, and nobody else. */
static void check_clients(audit *a, const evidence_rows *after) {
    client *list = omm_arena_alloc(&a->arena, a->ev.run.node_count + 1, sizeof *list);
    if (!list) {
        (void)audit_expect(a, omm_raise(OMM_ERR_NOMEM, "no memory for clients"), AFTER_PATH);
        return;
    }
    const size_t count = clients_of(list, &a->ev.run);
    if (count == 0) return;
    for (size_t i = 0; i < after->count; i++) {
        const client wanted = {after->rows[i].client, false};
        client *found = bsearch(&wanted, list, count, sizeof *list, by_name);
        if (found)
            found->is_judged = true;
        else
            audit_fail(a, AFTER_PATH,
                       "line %zu is of client %.64s, whose data no node of run.json has, and "
                       "scenario.yaml says evaluation.clients: federated",
                       i + 1, wanted.name);
    }
    for (size_t i = 0; i < count; i++)
        if (!list[i].is_judged)
            audit_fail(a, AFTER_PATH, "has no item of client %.64s, whose data a node has",
                       list[i].name);
}

/* An example is cut to seq_max tokens before it is judged. */
static void check_tokens(audit *a, const evidence_rows *after) {
    const uint32_t most = a->facts.seq_max;
    for (size_t i = 0; most && i < after->count; i++)
        if (after->rows[i].tokens > most)
            audit_fail(a, AFTER_PATH,
                       "line %zu has %" PRIu64 " learned tokens, and the recipe's seq_max is "
                       "%" PRIu32,
                       i + 1, after->rows[i].tokens, most);
}

typedef struct row_of_item {
    const omm_eval_record *row;
} row_of_item;

/* By item, and rows of one in the order of the file. */
static int by_item(const void *a, const void *b) {
    const omm_eval_record *x = ((const row_of_item *)a)->row, *y = ((const row_of_item *)b)->row;
    const int order = omm_digest_compare(&x->item, &y->item);
    return order != 0 ? order : (x > y) - (x < y);
}

/* Whose they are may differ: two clients may have the same window of a text. */
static const char *differ_in(const omm_eval_record *x, const omm_eval_record *y) {
    if (x->tokens != y->tokens) return "tokens";
    if (x->is_tool != y->is_tool) return "kind";
    if (x->nll != y->nll) return "nll";
    if (x->generated != y->generated) return "generated";
    if (x->parsed != y->parsed) return "parsed";
    if (x->tool_ok != y->tool_ok) return "tool_ok";
    if (x->exact != y->exact) return "exact";
    return strcmp(x->reply, y->reply) != 0 ? "reply" : NULL;
}

void audit_equal_items(audit *a, const char *path, const evidence_rows *rows) {
    row_of_item *list = omm_arena_alloc(&a->arena, rows->count + 1, sizeof *list);
    if (!list) {
        (void)audit_expect(a, omm_raise(OMM_ERR_NOMEM, "no memory for %zu rows", rows->count),
                           path);
        return;
    }
    for (size_t i = 0; i < rows->count; i++) list[i].row = &rows->rows[i];
    if (rows->count) qsort(list, rows->count, sizeof *list, by_item);
    for (size_t i = 1; i < rows->count; i++) {
        const omm_eval_record *x = list[i - 1].row, *y = list[i].row;
        const char *what = omm_digest_equal(&x->item, &y->item) ? differ_in(x, y) : NULL;
        char hex[OMM_DIGEST_HEX_SIZE];
        if (!what) continue;
        omm_digest_hex(hex, &x->item);
        audit_fail(a, path,
                   "lines %zu and %zu are of the same item %s, and differ in %s: one adapter gives "
                   "one answer",
                   (size_t)(x - rows->rows) + 1, (size_t)(y - rows->rows) + 1, hex, what);
    }
}

void audit_items(audit *a) {
    const evidence_rows *after = &a->ev.after;
    if (a->ev.run.test_cut > a->ev.run.test_items)
        audit_fail(a, "run.json", "%" PRIu64 " of %" PRIu64 " held-out items are said to be cut",
                   a->ev.run.test_cut, a->ev.run.test_items);
    if (!a->has_facts || after->file.err != OMM_OK) return;
    check_tokens(a, after);
    if (a->ev.run.simulated && a->facts.own_clients) check_clients(a, after);
}
