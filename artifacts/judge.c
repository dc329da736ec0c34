/* From evidence to verdicts.  Every metric is judged, whatever is missing. */
#include "omm/judge.h"
#include "internal.h"
#include "omm/mem.h"
#include "record.h"

#include <stdio.h>
#include <string.h>

#define JSON_BYTES_MAX (16u << 20)
#define CLIENTS_MAX 4096u

/* A file that is not there is no problem of its own: its path is then NULL, which says it all. */
static const char *problem_of(const file_state *file) {
    return file->err == OMM_OK || file->err == OMM_ERR_NOT_FOUND ? NULL : file->why;
}

static omm_gate_source source_of(const evidence *ev, const file_state *file, const char *path) {
    return (omm_gate_source){
        .problem = problem_of(file),
        .problem_in = file->named,
        .path = file->err == OMM_ERR_NOT_FOUND ? NULL : path,
        .digest = file->digest,
        .run_id = ev->run_file.err == OMM_OK ? ev->run.run_id : NULL,
    };
}

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* --- communication --- */

/* measured/wire.json, and what the ledger is worth: read before anything is judged, the ledger once for both. */
typedef struct traffic {
    omm_arena arena;
    file_state wire_file;
    omm_wire_record wire;
    omm_gate_bytes *nodes; /* (wire.node_count) */
    omm_gate_traffic exchanges;
    uint64_t bytes; /* of all exchanges, up and down */
    uint64_t fp32;  /* of all nodes */
} traffic;

static omm_err judge_ledger(omm_verdicts *out, const omm_gate_context *context, const evidence *ev,
                            const traffic *t) {
    omm_gate_source source = source_of(ev, &ev->ledger_file, "ledger.jsonl");
    return omm_gate_communication(out, context, &source, &t->exchanges);
}

/* Position of `node`; node_count when it is not there.  The nodes are ascending. */
static size_t wire_node(const omm_wire_record *wire, const omm_digest *node) {
    size_t low = 0;
    size_t high = wire->node_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = omm_digest_compare(&wire->nodes[mid].node, node);
        if (order == 0) return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return wire->node_count;
}

static omm_err add_row(void *ud, const omm_ledger_record *row) {
    traffic *t = ud;
    const omm_gate_bytes bytes = {row->up, row->down, row->fp32};
    omm_gate_traffic_add(&t->exchanges, &bytes);
    t->bytes = saturating_add(t->bytes, saturating_add(row->up, row->down));
    size_t at = wire_node(&t->wire, &row->node);
    if (at < t->wire.node_count && !t->wire.has_payloads)
        t->nodes[at].fp32 = saturating_add(t->nodes[at].fp32, row->fp32);
    return OMM_OK;
}

static omm_err load_wire(traffic *t, const evidence *ev) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    file_state *file = &t->wire_file;
    file->err = omm_bundle_file_read(&text, ev->dir, "measured/wire.json");
    if (file->err == OMM_OK) {
        file->digest = omm_hash(omm_buf_view(&text));
        file->err = omm_wire_record_parse(&t->wire, &t->arena, omm_buf_view(&text));
    }
    if (file->err != OMM_OK) file_state_why(file, "measured/wire.json", omm_err_sentence());
    omm_buf_fini(&text);
    return file->err == OMM_ERR_NOMEM ? file->err : OMM_OK;
}

/* `payload` bytes, of payloads of which `count` with `bytes` in all are signed, as f32. */
static double as_fp32(uint64_t payload, const audit *a, uint64_t bytes) {
    const double full = 4.0 * (double)a->ev.run.layout.value_count * (double)a->sent.count;
    return bytes > 0 ? (double)payload * (full / (double)bytes) : 0;
}

/* All that passed, and of it the adapters as f32. */
static uint64_t row_fp32(const omm_wire_node *row, const audit *a) {
    const double plain = (double)(row->up - row->up_payload + row->down - row->down_payload);
    const double fp32 = plain + as_fp32(row->up_payload, a, a->sent.up) +
                        as_fp32(row->down_payload, a, a->sent.down);
    if (a->sent.count == 0) return 0; /* what codecs have saved nobody has signed */
    return fp32 < (double)INT64_MAX ? (uint64_t)fp32 : UINT64_MAX;
}

/* Fini after it, whatever it returns. */
static omm_err traffic_load(traffic *t, audit *a) {
    evidence *ev = &a->ev;
    memset(t, 0, sizeof *t);
    omm_arena_init(&t->arena, BUNDLE_ARENA_BYTES_MAX);
    OMM_TRY(load_wire(t, ev));
    t->nodes = omm_alloc(t->wire.node_count + 1, sizeof *t->nodes);
    if (!t->nodes) return omm_raise(OMM_ERR_NOMEM, "no memory for wire bytes");
    for (size_t i = 0; i < t->wire.node_count; i++)
        t->nodes[i] = (omm_gate_bytes){t->wire.nodes[i].up, t->wire.nodes[i].down,
                                       t->wire.has_payloads ? row_fp32(&t->wire.nodes[i], a) : 0};
    OMM_TRY(evidence_ledger(ev, add_row, t));
    for (size_t i = 0; i < t->wire.node_count; i++)
        t->fp32 = saturating_add(t->fp32, t->nodes[i].fp32);
    if (ev->ledger_file.err == OMM_OK) return OMM_OK;
    t->exchanges = (omm_gate_traffic){0}; /* of lines before the bad one */
    t->bytes = 0;
    return OMM_OK;
}

static void traffic_fini(traffic *t) {
    omm_free(t->nodes);
    omm_arena_fini(&t->arena);
}

static omm_err judge_wire(omm_verdicts *out, const omm_gate_context *context, const evidence *ev,
                          const traffic *t) {
    file_state file = t->wire_file;
    if (file.err == OMM_OK && ev->ledger_file.err != OMM_OK)
        file = ev->ledger_file; /* nothing to compare with */
    omm_gate_source source = source_of(ev, &file, "measured/wire.json");
    source.run_id = t->wire.run_id;
    source.commit = t->wire.commit;
    return omm_gate_wire(out, context, &source, t->nodes, t->wire.node_count, t->bytes);
}

/* --- fairness --- */

/* By index in run.nodes; a node that is not enrolled has no share (integrity reports it). */
static omm_err fill_shares(omm_gate_share *shares, evidence *ev) {
    const omm_round_record *round = NULL;
    for (size_t r = 0; r < ev->round_count; r++) {
        OMM_TRY(evidence_round(&round, ev, r));
        for (size_t i = 0; i < round->selected_count; i++) {
            size_t node = evidence_node(ev, &round->selected[i]);
            if (node == SIZE_MAX) continue;
            shares[node].tokens_offered =
                saturating_add(shares[node].tokens_offered, ev->run.tokens_max);
        }
        for (size_t i = 0; i < round->accepted_count; i++) {
            size_t node = evidence_node(ev, &round->accepted[i].node);
            if (node == SIZE_MAX) continue;
            shares[node].tokens_accepted =
                saturating_add(shares[node].tokens_accepted, round->accepted[i].tokens);
        }
    }
    return OMM_OK;
}

static omm_err judge_shares(omm_verdicts *out, const omm_gate_context *context, evidence *ev) {
    const file_state *file = ev->run_file.err != OMM_OK ? &ev->run_file : &ev->rounds_file;
    omm_gate_source source = source_of(ev, file, "rounds.jsonl");
    size_t nodes = ev->run.node_count;
    omm_gate_share *shares = omm_alloc(nodes + 1, sizeof *shares);
    if (!shares) return omm_raise(OMM_ERR_NOMEM, "no memory for shares");
    omm_err err = fill_shares(shares, ev);
    size_t count = 0; /* only nodes that were ever selected */
    for (size_t i = 0; i < nodes; i++)
        if (shares[i].tokens_offered) shares[count++] = shares[i];
    if (err == OMM_OK) err = omm_gate_shares(out, context, &source, shares, count);
    omm_free(shares);
    return err;
}

/* --- quality --- */

typedef struct items {
    omm_gate_item *list;
    size_t count;
    uint32_t client_count;
    file_state file; /* of the rows that are judged, or why they cannot be */
} items;

static void fail_items(items *out, const char *why) {
    out->file.err = OMM_ERR_FORMAT;
    snprintf(out->file.why, sizeof out->file.why, "%s", why);
    out->file.named = NULL;
    out->count = 0;
}

/* Clients are numbered by first appearance; CLIENTS_MAX: one too many.  names: (CLIENTS_MAX), of those seen. */
static uint32_t client_number(const char **names, uint32_t count, const char *client) {
    for (uint32_t k = 0; k < count && names[k]; k++)
        if (strcmp(names[k], client) == 0) return k;
    if (count < CLIENTS_MAX) names[count] = client;
    return count;
}

static bool same_item(const omm_eval_record *x, const omm_eval_record *y) {
    return omm_digest_equal(&x->item, &y->item) && x->tokens == y->tokens &&
           x->is_tool == y->is_tool && strcmp(x->client, y->client) == 0;
}

static omm_gate_item item_of(const omm_eval_record *b, const omm_eval_record *a, uint32_t client) {
    return (omm_gate_item){.client = client,
                           .tokens = a->tokens,
                           .nll_before = b->nll,
                           .nll_after = a->nll,
                           .is_tool = a->is_tool && a->generated && b->generated,
                           .parsed_before = b->parsed,
                           .parsed_after = a->parsed,
                           .named_before = b->tool_ok,
                           .named_after = a->tool_ok,
                           .exact_before = b->exact,
                           .exact_after = a->exact};
}

/* Pair the rows of two files, item by item. */
static omm_err pair_items(items *out, const evidence_rows *before, const evidence_rows *after) {
    const char *names[CLIENTS_MAX] = {NULL};
    memset(out, 0, sizeof *out);
    out->file = before->file.err != OMM_OK ? before->file : after->file;
    out->list = omm_alloc(after->count + 1, sizeof *out->list);
    if (!out->list) return omm_raise(OMM_ERR_NOMEM, "no memory for held-out items");
    if (out->file.err != OMM_OK) return OMM_OK;
    if (before->count != after->count) {
        fail_items(out, "the two evaluations have different numbers of items");
        return OMM_OK;
    }
    for (size_t i = 0; i < after->count; i++) {
        if (!same_item(&before->rows[i], &after->rows[i])) {
            fail_items(out, "the two evaluations have different items");
            return OMM_OK;
        }
        uint32_t client = client_number(names, out->client_count, after->rows[i].client);
        if (client == CLIENTS_MAX) {
            fail_items(out, "more than 4096 clients");
            return OMM_OK;
        }
        out->list[i] = item_of(&before->rows[i], &after->rows[i], client);
        if (client == out->client_count) out->client_count++;
    }
    out->count = after->count;
    return OMM_OK;
}

static omm_err judge_quality(omm_verdicts *out, const omm_gate_context *context,
                             const evidence *ev) {
    items pairs;
    OMM_TRY(pair_items(&pairs, &ev->before, &ev->after));
    omm_gate_source source = source_of(ev, &pairs.file, "eval/after.jsonl");
    omm_err err =
        omm_gate_client_uplift(out, context, &source, pairs.list, pairs.count, pairs.client_count);
    if (err == OMM_OK)
        err = omm_gate_quality(out, context, &source, pairs.list, pairs.count, pairs.client_count);
    omm_free(pairs.list);
    return err;
}

static omm_err judge_control(omm_verdicts *out, const omm_gate_context *context,
                             const evidence *ev) {
    items pairs;
    OMM_TRY(pair_items(&pairs, &ev->control, &ev->after));
    omm_gate_source source = source_of(ev, &pairs.file, "eval/control.jsonl");
    omm_err err =
        omm_gate_control(out, context, &source, pairs.list, pairs.count, pairs.client_count);
    omm_free(pairs.list);
    return err;
}

/* --- integrity --- */

static omm_err judge_integrity(omm_verdicts *out, const omm_gate_context *context, const audit *a) {
    const evidence *ev = &a->ev;
    const file_state *file = ev->run_file.err != OMM_OK ? &ev->run_file : &ev->rounds_file;
    omm_gate_source source = source_of(ev, file, "rounds.jsonl");
    omm_gate_integrity_counts counts = {0};
    for (size_t r = 0; r < ev->round_count; r++) counts.accepted += ev->heads[r].accepted_count;
    counts.unsigned_accepted = counts.accepted - a->signed_count;
    counts.checks = a->items;
    counts.faults = a->failures;
    return omm_gate_integrity(out, context, &source, &counts);
}

static void run_chain(audit *a) {
    audit_run(a);
    audit_offers(a);
    audit_submissions(a);
    audit_receipts(a);
    audit_refusals(a);
}

/* --- both sets --- */

static omm_err judge_evidence(omm_verdicts *out, const omm_gate_context *context, audit *a,
                              const traffic *t) {
    OMM_TRY(judge_ledger(out, context, &a->ev, t));
    OMM_TRY(judge_shares(out, context, &a->ev));
    OMM_TRY(judge_quality(out, context, &a->ev));
    OMM_TRY(judge_control(out, context, &a->ev));
    return judge_integrity(out, context, a);
}

static omm_err write_all(omm_judgement *j, const omm_gate_context *evidence_context,
                         const omm_gate_context *measured_context) {
    const omm_verdicts *sets[] = {&j->evidence, &j->measured};
    OMM_TRY(omm_verdicts_json(&j->gates_json, &j->evidence, evidence_context));
    OMM_TRY(omm_verdicts_json(&j->measured_json, &j->measured, measured_context));
    return omm_verdicts_junit(&j->junit, sets, 2);
}

static omm_err judge_audit(omm_judgement *j, audit *a, const omm_policy *policy,
                           const char *commit) {
    const char *run_id = a->ev.run_file.err == OMM_OK ? a->ev.run.run_id : "";
    omm_gate_context evidence_context = {policy, run_id, NULL};
    omm_gate_context measured_context = {policy, run_id, commit};
    run_chain(a);
    OMM_TRY(a->fatal);
    traffic t;
    omm_err err = traffic_load(&t, a);
    j->wire_fp32 = t.fp32;
    if (err == OMM_OK) err = judge_evidence(&j->evidence, &evidence_context, a, &t);
    if (err == OMM_OK) err = judge_wire(&j->measured, &measured_context, &a->ev, &t);
    traffic_fini(&t);
    if (err == OMM_OK) err = judge_repro(&j->measured, &measured_context, a);
    OMM_TRY(err);
    OMM_TRY(write_all(j, &evidence_context, &measured_context));
    j->passed = omm_verdicts_passed(&j->evidence) && omm_verdicts_passed(&j->measured);
    return OMM_OK;
}

static omm_err load_policy(omm_policy *out, omm_arena *arena, const char *dir,
                           const char *policy_path) {
    char own[OMM_PATH_MAX];
    if (policy_path) return omm_policy_load(out, policy_path, arena);
    OMM_TRY(omm_bundle_file_find(own, NULL, dir, "policy.yaml"));
    return omm_config_load(out, omm_policy_fields, own, arena);
}

static omm_err judge_dir(omm_judgement *j, const char *dir, const omm_policy *policy,
                         const char *commit, omm_scenario_reader read_scenario) {
    audit a;
    OMM_TRY(audit_open(&a, dir));
    a.read_scenario = read_scenario;
    omm_err err = judge_audit(j, &a, policy, commit);
    audit_close(&a);
    return err;
}

/* The commit in manifest.json. */
static omm_err sealed_commit(const char **commit, omm_arena *arena, const char *dir) {
    manifest m;
    OMM_TRY(manifest_read_head(&m, arena, dir));
    *commit = m.commit;
    return OMM_OK;
}

omm_err omm_bundle_judge(omm_judgement *out, const char *dir, const char *policy_path,
                         const char *commit, omm_scenario_reader read_scenario) {
    omm_policy policy;
    omm_arena arena;
    memset(&policy, 0, sizeof policy);
    memset(out, 0, sizeof *out);
    omm_verdicts_init(&out->evidence);
    omm_verdicts_init(&out->measured);
    omm_buf_init(&out->gates_json, JSON_BYTES_MAX);
    omm_buf_init(&out->measured_json, JSON_BYTES_MAX);
    omm_buf_init(&out->junit, JSON_BYTES_MAX);
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    omm_err err = load_policy(&policy, &arena, dir, policy_path);
    if (err == OMM_OK && !commit) err = sealed_commit(&commit, &arena, dir);
    if (err == OMM_OK) err = judge_dir(out, dir, &policy, commit, read_scenario);
    omm_arena_fini(&arena);
    if (err != OMM_OK) omm_judgement_fini(out);
    return err;
}

void omm_judgement_fini(omm_judgement *j) {
    omm_verdicts_fini(&j->evidence);
    omm_verdicts_fini(&j->measured);
    omm_buf_fini(&j->gates_json);
    omm_buf_fini(&j->measured_json);
    omm_buf_fini(&j->junit);
}

static omm_err verdict_text(omm_buf *out, const omm_verdict *v) {
    char value[32] = "none";
    const char *mark = v->passed ? "pass" : v->required ? "FAIL" : "miss";
    const char *sign = v->direction == OMM_DIRECTION_AT_LEAST ? ">=" : "<=";
    if (v->has_value) snprintf(value, sizeof value, "%.6g", v->value);
    OMM_TRY(omm_buf_printf(out, "  %s  %-15s %-22s %12s %s %-10.6g %-10s n=%llu", mark, v->family,
                           v->metric, value, sign, v->threshold, v->unit,
                           (unsigned long long)v->samples));
    if (!v->required) OMM_TRY(omm_buf_printf(out, " (informational)"));
    if (v->reason[0]) OMM_TRY(omm_buf_printf(out, " - %s", v->reason));
    return omm_buf_printf(out, "\n");
}

omm_err omm_judgement_text(omm_buf *out, const omm_judgement *j) {
    for (size_t i = 0; i < j->evidence.count; i++)
        OMM_TRY(verdict_text(out, &j->evidence.items[i]));
    for (size_t i = 0; i < j->measured.count; i++)
        OMM_TRY(verdict_text(out, &j->measured.items[i]));
    size_t required = 0;
    for (size_t i = 0; i < j->evidence.count; i++) required += j->evidence.items[i].required;
    for (size_t i = 0; i < j->measured.count; i++) required += j->measured.items[i].required;
    return omm_buf_printf(out, "gates: %s%s\n", j->passed ? "pass" : "FAIL",
                          required ? "" : " - the policy requires none, so nothing is judged");
}
