/* run.json and the skeleton of rounds.jsonl: does what they say fit together? */
#include "internal.h"
#include "omm/rng.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

/* In a simulation the seed is known, and run id = H("omm.run" || run seed || H(scenario)). */
static void check_run_id(audit *a) {
    const omm_run_record *run = &a->ev.run;
    char path[OMM_PATH_MAX];
    omm_digest scenario;
    omm_err err = omm_bundle_file_find(path, NULL, a->ev.dir, "scenario.yaml");
    if (err == OMM_OK) err = omm_hash_file(&scenario, path);
    if (!audit_expect(a, err, "scenario.yaml") || !run->has_seed) return;
    omm_seed seed = omm_seed_from_u64(run->seed);
    omm_hasher h;
    char hex[OMM_RUN_ID_SIZE];
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_str("omm.run"));
    omm_hasher_update(&h, omm_bytes_of(seed.b, sizeof seed.b));
    omm_hasher_update(&h, omm_bytes_of(scenario.b, sizeof scenario.b));
    omm_digest id = omm_hasher_final(&h);
    omm_hex(hex, omm_bytes_of(id.b, 16));
    if (strcmp(hex, run->run_id) != 0)
        audit_fail(a, "scenario.yaml", "seed and scenario give run %s, and run.json says %s", hex,
                   run->run_id);
}

/* Not counted: how many facts there are is in gates.json, whose bytes a run's digest has. */
static void check_scenario(audit *a) {
    const char *about = "scenario.yaml";
    omm_buf text;
    if (!a->read_scenario) return;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, a->ev.dir, "scenario.yaml");
    if (err == OMM_OK) err = a->read_scenario(&a->facts, &about, omm_buf_view(&text), &a->ev.run);
    omm_buf_fini(&text);
    a->has_facts = err == OMM_OK;
    if (err == OMM_ERR_NOMEM) a->fatal = err;
    if (err != OMM_OK) audit_fail(a, about, "%s", omm_err_sentence());
}

bool audit_key_follows(const omm_public_key *key, uint64_t seed, omm_purpose purpose,
                       const char *name) {
    omm_key derived;
    const omm_seed run_seed = omm_seed_from_u64(seed);
    const omm_seed own = omm_seed_derive(&run_seed, purpose, omm_bytes_str(name));
    omm_key_from_seed(&derived, &own);
    const bool is_it = omm_public_key_equal(key, &derived.public_key);
    omm_key_wipe(&derived);
    return is_it;
}

static void check_simulated_node(audit *a, const omm_run_node *n) {
    const omm_digest unknown = {{0}};
    if (!audit_key_follows(&n->public_key, a->ev.run.seed, OMM_PURPOSE_NODE_KEY, n->name))
        audit_fail(a, "run.json", "node %s: its key does not follow from seed and name", n->name);
    if (n->client[0] && omm_digest_equal(&n->data_digest, &unknown))
        audit_fail(a, "run.json", "node %s: no data_digest, and a simulation has its data",
                   n->name);
    if (!n->client[0] && (n->examples != 0 || !omm_digest_equal(&n->data_digest, &unknown)))
        audit_fail(a, "run.json", "node %s: data_digest or examples, without a client", n->name);
}

/* What data a node has that joined, its operator does not know. */
static void check_served_node(audit *a, const omm_run_node *n) {
    const omm_digest unknown = {{0}};
    if (n->client[0] || n->examples != 0 || !omm_digest_equal(&n->data_digest, &unknown))
        audit_fail(a, "run.json", "node %s: client, data_digest or examples, of a service",
                   n->name);
}

/* A simulation says its seed, from which all keys follow; a service's keys and seed are its own. */
static void check_keys(audit *a) {
    const omm_run_record *run = &a->ev.run;
    if (run->simulated && !run->has_seed)
        audit_fail(a, "run.json", "simulated is true and seed null: a simulation says its seed");
    if (!run->simulated && run->has_seed)
        audit_fail(a, "run.json", "seed is %" PRIu64 " and simulated false: a service says none",
                   run->seed);
    for (size_t i = 0; !run->simulated && i < run->node_count; i++)
        check_served_node(a, &run->nodes[i]);
    if (!run->simulated && a->has_facts &&
        audit_key_follows(&run->coordinator_key, a->facts.seed, OMM_PURPOSE_COORD_KEY,
                          "coordinator"))
        audit_fail(a, "run.json",
                   "simulated is false, and coordinator_key follows from scenario.yaml's seed");
    if (!run->simulated || !run->has_seed) return;
    if (!audit_key_follows(&run->coordinator_key, run->seed, OMM_PURPOSE_COORD_KEY, "coordinator"))
        audit_fail(a, "run.json", "coordinator_key does not follow from the seed");
    for (size_t i = 0; i < run->node_count; i++) check_simulated_node(a, &run->nodes[i]);
}

static void check_nodes(audit *a) {
    for (size_t i = 0; i < a->ev.run.node_count; i++) {
        const omm_run_node *n = &a->ev.run.nodes[i];
        omm_digest id = omm_key_id(&n->public_key);
        a->items++;
        if (!omm_digest_equal(&id, &n->id))
            audit_fail(a, "run.json", "node %s: its id is not that of its key", n->name);
    }
}

static void check_codecs(audit *a) {
    const omm_run_record *run = &a->ev.run;
    (void)audit_expect(a, omm_codec_check(&run->codec_up, &run->layout), "run.json");
    (void)audit_expect(a, omm_codec_check(&run->codec_down, &run->layout), "run.json");
}

static bool ascending(const omm_digest *list, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (omm_digest_compare(&list[i - 1], &list[i]) >= 0) return false;
    return true;
}

bool audit_has(const omm_digest *list, size_t count, const omm_digest *d) {
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = omm_digest_compare(&list[mid], d);
        if (order == 0) return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* Mark by index in run.nodes who was accepted, or refused by name.  spoke: (node_count), cleared */
static void mark_settled(bool *spoke, const audit *a, const omm_round_record *round) {
    for (size_t i = 0; i < round->accepted_count; i++) {
        size_t node = evidence_node(&a->ev, &round->accepted[i].node);
        if (node != SIZE_MAX) spoke[node] = true;
    }
    for (size_t i = 0; i < round->refused_count; i++) {
        if (!round->refused[i].has_node) continue;
        size_t node = evidence_node(&a->ev, &round->refused[i].node);
        if (node != SIZE_MAX) spoke[node] = true;
    }
}

/* selected = accepted + refused + missing, and nobody else is accepted.  The lists are ascending: a
 * hostile bundle must not make this quadratic. */
static void check_settled(audit *a, const omm_round_record *round, const bool *spoke) {
    uint32_t r = round->round;
    for (size_t i = 0; i < round->selected_count; i++) {
        const omm_digest *node = &round->selected[i];
        bool missing = audit_has(round->missing, round->missing_count, node);
        size_t at = evidence_node(&a->ev, node);
        bool settled = at != SIZE_MAX && spoke[at];
        if (missing == settled)
            audit_fail(a, "rounds.jsonl", "round %u: selected node %zu is %s", r, i,
                       missing ? "missing and settled" : "neither settled nor missing");
        if (at == SIZE_MAX)
            audit_fail(a, "rounds.jsonl", "round %u: selected node %zu is not enrolled", r, i);
    }
    for (size_t i = 0; i < round->missing_count; i++)
        if (!audit_has(round->selected, round->selected_count, &round->missing[i]))
            audit_fail(a, "rounds.jsonl", "round %u: missing node %zu was not selected", r, i);
    for (size_t i = 0; i < round->accepted_count; i++)
        if (!audit_has(round->selected, round->selected_count, &round->accepted[i].node))
            audit_fail(a, "rounds.jsonl", "round %u: accepted node %zu was not selected", r, i);
}

uint64_t audit_round_items(const audit *a) {
    const uint64_t all = a->ev.run.test_items;
    return a->facts.round_items && a->facts.round_items < all ? a->facts.round_items : all;
}

/* What only scenario.yaml says of rounds. */
static void check_outcome(audit *a, const omm_round_record *round) {
    /* The worst loss there is stands for a candidate that could not be evaluated at all. */
    const uint64_t items = round->eval_loss == DBL_MAX ? 0 : audit_round_items(a);
    const bool is_void = round->accepted_count < a->facts.accept_min;
    if (round->voided != is_void)
        audit_fail(a, "rounds.jsonl",
                   "round %" PRIu32 " is %s, with %zu accepted, and scenario.yaml says accept_min: "
                   "%" PRIu32,
                   round->round, round->voided ? "void" : "not void", round->accepted_count,
                   a->facts.accept_min);
    if (round->evaluated && round->eval_items != items)
        audit_fail(a, "rounds.jsonl",
                   "round %" PRIu32 " was evaluated on %" PRIu64 " items, and scenario.yaml and "
                   "run.json give %" PRIu64,
                   round->round, round->eval_items, items);
}

/* spoke: room for a mark per node. */
static void check_round(audit *a, size_t r, bool *spoke) {
    const omm_round_record *round = evidence_at_hand(&a->ev, r);
    a->items++;
    if (round->round != r)
        audit_fail(a, "rounds.jsonl", "line %zu is of round %u", r + 1, round->round);
    bool sorted = ascending(round->selected, round->selected_count) &&
                  ascending(round->missing, round->missing_count);
    if (!sorted) audit_fail(a, "rounds.jsonl", "round %zu: nodes are not ascending", r);
    for (size_t i = 1; i < round->accepted_count; i++)
        if (omm_digest_compare(&round->accepted[i - 1].node, &round->accepted[i].node) >= 0)
            audit_fail(a, "rounds.jsonl", "round %zu: accepted nodes are not ascending", r);
    if (round->voided && (round->published || round->evaluated))
        audit_fail(a, "rounds.jsonl", "round %zu is void, and yet evaluated or published", r);
    if (!round->voided && !round->evaluated)
        audit_fail(a, "rounds.jsonl", "round %zu was not evaluated", r);
    if (a->has_facts) check_outcome(a, round);
    if (!sorted) return;
    memset(spoke, 0, a->ev.run.node_count * sizeof *spoke);
    mark_settled(spoke, a, round);
    check_settled(a, round, spoke);
}

void audit_run(audit *a) {
    if (a->ev.run_file.err != OMM_OK) audit_fail(a, "run.json", "%s", a->ev.run_file.why);
    if (a->ev.rounds_file.err != OMM_OK) audit_fail(a, "rounds.jsonl", "%s", a->ev.rounds_file.why);
    audit_name(a, "run.json");
    audit_name(a, "rounds.jsonl");
    audit_name(a, "scenario.yaml");
    audit_name(a, "policy.yaml");
    if (a->ev.run_file.err != OMM_OK || a->ev.rounds_file.err != OMM_OK) return;
    check_run_id(a);
    check_scenario(a);
    check_keys(a);
    check_nodes(a);
    check_codecs(a);
    a->items++;
    if (a->ev.round_count != a->ev.run.rounds)
        audit_fail(a, "rounds.jsonl", "%zu rounds, and run.json says %" PRIu32, a->ev.round_count,
                   a->ev.run.rounds);
    bool *spoke = omm_arena_alloc(&a->arena, a->ev.run.node_count + 1, sizeof *spoke);
    if (!spoke) {
        (void)audit_expect(a, omm_raise(OMM_ERR_NOMEM, "no memory for nodes"), "run.json");
        return;
    }
    for (size_t r = 0; r < a->ev.round_count && audit_round(a, r); r++) check_round(a, r, spoke);
}
