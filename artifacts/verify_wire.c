/* measured/wire.json row by row: whose rows there are, and of a simulation that each node has at least moved what its
 * accepted submissions are made of, and no more adapters than it can have: nothing is lost there, so nothing goes twice.  What is
 * known of simulate alone is seen here: that its rounds had no more clients than the scenario selects, too.
 *
 * Of a coordinator's run no row has a least or a most: a kill takes the counts since the last stage, and chunks that nobody signed
 * are booked on whom they are likely of.  The ledger is none either: it counts as chunks what travels whole, and so a little more than passes. */
#include "omm/mem.h"
#include "verify_internal.h"

#include <stdlib.h>
#include <string.h>

#define WIRE_PATH "measured/wire.json"

/* simulate alone writes them, and has lost no count.  The first is signed with the run and cannot be left out where the scenario
 * asks for it (audit_eval); the others can: of a bundle without any of them nobody can tell whether a coordinator wrote it, with
 * the scenario's keys. */
static const char *const s_of_simulate[] = {"eval/control.jsonl", "virtual/timeline.jsonl",
                                            "measured/repro.json", "measured/machine.json",
                                            "measured/times.json"};

static const char *name_of(const verifier *v, size_t node) {
    return v->a->ev.run.nodes[node].name;
}

/* --- whose rows --- */

static void check_strangers(verifier *v, const omm_wire_record *wire) {
    for (size_t i = 0; i < wire->node_count; i++) {
        char hex[OMM_DIGEST_HEX_SIZE];
        if (evidence_node(&v->a->ev, &wire->nodes[i].node) != SIZE_MAX) continue;
        omm_digest_hex(hex, &wire->nodes[i].node);
        audit_fail(v->a, WIRE_PATH, "row %zu: node %.16s is none of run.json", i, hex);
    }
}

/* A simulation leaves its hostile peers out, which have no client.  Both lists are ascending. */
static void check_all_there(verifier *v, const omm_wire_record *wire) {
    const omm_run_record *run = &v->a->ev.run;
    size_t at = 0;
    for (size_t i = 0; i < run->node_count; i++) {
        const omm_run_node *n = &run->nodes[i];
        while (at < wire->node_count && omm_digest_compare(&wire->nodes[at].node, &n->id) < 0) at++;
        if (at < wire->node_count && omm_digest_equal(&wire->nodes[at].node, &n->id)) continue;
        if (!run->simulated || n->client[0])
            audit_fail(v->a, WIRE_PATH, "node %s of run.json has no row", n->name);
    }
}

/* --- how much at least, and at most --- */

typedef struct least {
    uint64_t up, down;
    uint64_t up_payload, down_payload; /* of these */
    uint64_t up_most, down_most; /* more of these cannot be; UINT64_MAX where it is not known */
} least;

static void add_most(uint64_t *most, uint64_t bytes) {
    *most = *most > UINT64_MAX - bytes ? UINT64_MAX : *most + bytes;
}

/* The beginnings of all payloads' digests, ascending: two that begin alike count as one. */
typedef struct payloads {
    uint64_t *marks;
    size_t count;
} payloads;

static uint64_t mark_of(const audit_submission *s) {
    return omm_get_u64(s->blob.b);
}

static int by_mark(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static omm_err payloads_open(payloads *out, const audit *a) {
    const evidence *ev = &a->ev;
    size_t count = 0;
    for (size_t r = 0; r < ev->round_count; r++) count += ev->heads[r].accepted_count;
    *out = (payloads){.marks = omm_alloc(count + 1, sizeof *out->marks)};
    if (!out->marks) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu payloads", count);
    for (size_t r = 0; r < ev->round_count; r++)
        for (size_t i = 0; i < ev->heads[r].accepted_count; i++)
            out->marks[out->count++] = mark_of(&a->submissions[r][i]);
    qsort(out->marks, out->count, sizeof *out->marks, by_mark);
    return OMM_OK;
}

/* A payload that was there already, from another node or another round, is not sent again. */
static bool was_sent(const payloads *all, const audit_submission *s) {
    const uint64_t mark = mark_of(s);
    const uint64_t *at = bsearch(&mark, all->marks, all->count, sizeof mark, by_mark);
    const size_t i = at ? (size_t)(at - all->marks) : all->count;
    const bool is_before = i > 0 && i < all->count && all->marks[i - 1] == mark;
    const bool is_behind = i + 1 < all->count && all->marks[i + 1] == mark;
    return i < all->count && !is_before && !is_behind;
}

/* What was refused may have been as large as the offer allows, and so may what nobody has seen in the end. */
static void add_unseen(least *nodes, const audit *a, const audit_offer *offer,
                       const omm_digest *id) {
    const size_t node = evidence_node(&a->ev, id);
    const uint64_t bytes = offer->known ? offer->payload_bytes_max : UINT64_MAX;
    if (node != SIZE_MAX) add_most(&nodes[node].up_most, bytes);
}

/* Who is selected gets the global adapter, once. */
static void add_selected(least *nodes, const audit *a, const audit_offer *offer,
                         const omm_digest *id) {
    const size_t node = evidence_node(&a->ev, id);
    const uint64_t bytes = offer->known ? offer->global_bytes : UINT64_MAX;
    if (node != SIZE_MAX) add_most(&nodes[node].down_most, bytes);
}

static void add_mosts(least *nodes, const audit *a, const omm_round_record *round, size_t r) {
    const audit_offer *offer = &a->offers[r];
    for (size_t i = 0; i < round->refused_count; i++)
        if (round->refused[i].has_node) add_unseen(nodes, a, offer, &round->refused[i].node);
    for (size_t i = 0; i < round->missing_count; i++)
        add_unseen(nodes, a, offer, &round->missing[i]);
    for (size_t i = 0; i < round->selected_count; i++)
        add_selected(nodes, a, offer, &round->selected[i]);
}

/* What a node has signed it has sent, and it has got what it signed for; each of these bytes passed once at least. */
static void add_submission(least *node, const audit_offer *offer, const audit_submission *s,
                           const payloads *all) {
    if (s->envelope_bytes == 0 || !offer->known) { /* has been said */
        node->up_most = UINT64_MAX;
        return;
    }
    add_most(&node->up_most, s->payload_bytes);
    const uint64_t payload = was_sent(all, s) ? s->payload_bytes : 0;
    node->up += s->envelope_bytes + payload;
    node->up_payload += payload;
    node->down += offer->envelope_bytes + offer->global_bytes;
    node->down_payload += offer->global_bytes;
}

/* nodes: by index in run.nodes, cleared.  False: it cannot go on, which is said. */
static bool add_rounds(least *nodes, audit *a, const payloads *all) {
    for (size_t r = 0; r < a->ev.round_count; r++) {
        const omm_round_record *round = audit_round(a, r);
        if (!round) return false;
        for (size_t i = 0; i < round->accepted_count; i++) {
            const size_t node = evidence_node(&a->ev, &round->accepted[i].node);
            if (node != SIZE_MAX)
                add_submission(&nodes[node], &a->offers[r], &a->submissions[r][i], all);
        }
        add_mosts(nodes, a, round, r);
    }
    return true;
}

/* A row of payloads: these are what codecs save on, so more of them than there were would be a better saving. */
static void compare_payloads(verifier *v, const omm_wire_node *row, const least *n,
                             const char *name) {
    const uint64_t up = row->up - row->up_payload, down = row->down - row->down_payload;
    if (row->up_payload < n->up_payload || row->down_payload < n->down_payload)
        audit_fail(v->a, WIRE_PATH,
                   "node %s: up_payload is %llu and down_payload %llu, and what it has signed "
                   "has %llu and %llu bytes of adapters",
                   name, (unsigned long long)row->up_payload, (unsigned long long)row->down_payload,
                   (unsigned long long)n->up_payload, (unsigned long long)n->down_payload);
    if (row->up_payload > n->up_most || row->down_payload > n->down_most)
        audit_fail(v->a, WIRE_PATH,
                   "node %s: up_payload is %llu and down_payload %llu, and the rounds that it was "
                   "selected for have %llu and %llu bytes of adapters at most",
                   name, (unsigned long long)row->up_payload, (unsigned long long)row->down_payload,
                   (unsigned long long)n->up_most, (unsigned long long)n->down_most);
    if (up < n->up - n->up_payload || down < n->down - n->down_payload)
        audit_fail(v->a, WIRE_PATH,
                   "node %s: beside adapters %llu bytes went up and %llu down, and the envelopes "
                   "that it has signed and signed for have %llu and %llu",
                   name, (unsigned long long)up, (unsigned long long)down,
                   (unsigned long long)(n->up - n->up_payload),
                   (unsigned long long)(n->down - n->down_payload));
}

static void compare_rows(verifier *v, const omm_wire_record *wire, const least *nodes) {
    for (size_t i = 0; i < wire->node_count; i++) {
        const omm_wire_node *row = &wire->nodes[i];
        const size_t node = evidence_node(&v->a->ev, &row->node);
        if (node == SIZE_MAX) continue;
        if (row->up < nodes[node].up)
            audit_fail(v->a, WIRE_PATH,
                       "node %s: up is %llu, and its accepted submissions have %llu bytes",
                       name_of(v, node), (unsigned long long)row->up,
                       (unsigned long long)nodes[node].up);
        if (wire->has_payloads) compare_payloads(v, row, &nodes[node], name_of(v, node));
        if (row->down < nodes[node].down)
            audit_fail(v->a, WIRE_PATH,
                       "node %s: down is %llu, and the offers and adapters that it has signed for "
                       "have %llu bytes",
                       name_of(v, node), (unsigned long long)row->down,
                       (unsigned long long)nodes[node].down);
    }
}

static bool has_file_of_simulate(const verifier *v) {
    for (size_t i = 0; i < v->m.file_count; i++)
        for (size_t k = 0; k < sizeof s_of_simulate / sizeof *s_of_simulate; k++)
            if (strcmp(v->m.files[i].path, s_of_simulate[k]) == 0) return true;
    return false;
}

/* A coordinator has a row for each node; to leave one out, unless that was a failure just now, is for simulate alone. */
static bool is_of_simulate(const verifier *v, const omm_wire_record *wire) {
    if (!v->a->ev.run.simulated) return false;
    return has_file_of_simulate(v) || wire->node_count < v->a->ev.run.node_count;
}

static omm_err check_least(verifier *v, const omm_wire_record *wire) {
    payloads all = {0};
    least *nodes = omm_alloc(v->a->ev.run.node_count + 1, sizeof *nodes);
    omm_err err = nodes ? payloads_open(&all, v->a)
                        : omm_raise(OMM_ERR_NOMEM, "no memory for counts of nodes");
    if (err == OMM_OK && add_rounds(nodes, v->a, &all)) compare_rows(v, wire, nodes);
    omm_free(all.marks);
    omm_free(nodes);
    return err;
}

/* A service may offer a round to more, which is in no file: only of simulate it is known that nobody did.  Hostile peers, which have
 * no client, take nobody's place. */
static void check_selected(verifier *v) {
    const uint32_t most = v->a->facts.select;
    if (!v->a->has_facts || most == 0) return;
    for (size_t r = 0; r < v->a->ev.round_count; r++) {
        const omm_round_record *round = audit_round(v->a, r);
        size_t clients = 0;
        if (!round) return;
        for (size_t i = 0; i < round->selected_count; i++) {
            const size_t node = evidence_node(&v->a->ev, &round->selected[i]);
            clients += node != SIZE_MAX && v->a->ev.run.nodes[node].client[0];
        }
        if (clients > most)
            audit_fail(v->a, "rounds.jsonl",
                       "round %zu: %zu clients are selected, and scenario.yaml gives select: %u", r,
                       clients, most);
    }
}

void check_wire_rows(verifier *v, const omm_wire_record *wire) {
    check_strangers(v, wire);
    check_all_there(v, wire);
    const bool is_own = is_of_simulate(v, wire);
    v->report->maybe_network = v->a->ev.run.simulated && !is_own;
    if (!is_own || v->a->ev.rounds_file.err != OMM_OK) return;
    v->report->wire_bounded = true;
    check_selected(v);
    const omm_err err = check_least(v, wire);
    if (err != OMM_OK) v->a->fatal = err;
}
