/* train_groups.c - held-out results before and after, of all examples and by skill and client. */
#include "train_run.h"

#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    const char *name; /* borrowed from the data set */
    size_t index;
} member;

static int by_name(const void *a, const void *b) {
    const member *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

typedef struct tally {
    double nll_before, nll_after;
    uint64_t tokens;
    json_int_t items, answers, exact_before, exact_after;
} tally;

static void count_item(tally *t, const omm_eval_item *before, const omm_eval_item *after) {
    t->items++;
    t->nll_before += before->nll;
    t->nll_after += after->nll;
    t->tokens += after->tokens;
    t->answers += after->has_reply;
    t->exact_before += before->is_call ? before->call_exact : before->reply_exact;
    t->exact_after += after->is_call ? after->call_exact : after->reply_exact;
}

static json_t *tally_json(const tally *t, const char *name, bool generated) {
    const double tokens = t->tokens ? (double)t->tokens : 1;
    json_t *row = json_pack("{s:s,s:I,s:f,s:f}", "name", name, "items", t->items, "loss_before",
                            t->nll_before / tokens, "loss_after", t->nll_after / tokens);
    if (!generated) return row;
    json_object_set_new(row, "answers", json_integer(t->answers));
    json_object_set_new(row, "exact_before", json_integer(t->exact_before));
    json_object_set_new(row, "exact_after", json_integer(t->exact_after));
    return row;
}

static json_t *group(const train_run *r, member *members, size_t count) {
    json_t *rows = json_array();
    qsort(members, count, sizeof *members, by_name);
    for (size_t from = 0, to = 0; from < count; from = to) {
        tally t = {0};
        for (to = from; to < count && strcmp(members[to].name, members[from].name) == 0; to++)
            count_item(&t, &r->items_before[members[to].index], &r->items[members[to].index]);
        json_array_append_new(rows, tally_json(&t, members[from].name, r->args.new_tokens > 0));
    }
    return rows;
}

static void take_members(member *skills, member *clients, const omm_dataset *data) {
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        const omm_example *x = omm_dataset_example(data, i);
        skills[i] = (member){x->skill ? x->skill : "", i};
        clients[i] = (member){x->client ? x->client : "", i};
    }
}

omm_err train_groups(json_t **out, const train_run *r) {
    const size_t count = omm_dataset_count(r->eval);
    tally all = {0};
    for (size_t i = 0; i < count; i++) count_item(&all, &r->items_before[i], &r->items[i]);
    json_t *root = json_pack("{s:[o]}", "all", tally_json(&all, "all", r->args.new_tokens > 0));
    *out = NULL;
    member *skills = omm_alloc(count, sizeof *skills), *clients = omm_alloc(count, sizeof *clients);
    if (skills && clients) {
        take_members(skills, clients, r->eval);
        json_object_set_new(root, "skills", group(r, skills, count));
        json_object_set_new(root, "clients", group(r, clients, count));
        *out = root;
    }
    omm_free(skills);
    omm_free(clients);
    if (*out) return OMM_OK;
    json_decref(root);
    return omm_raise(OMM_ERR_NOMEM, "no memory to sort %zu held-out examples", count);
}
