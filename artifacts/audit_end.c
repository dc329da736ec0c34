/* Ledger, evaluation, and the coordinator's last signature. */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/wire.h"

#include <float.h>
#include <string.h>

static bool has_base(audit *a) {
    if (a->ev.run_file.err == OMM_OK && a->ev.rounds_file.err == OMM_OK) return true;
    audit_fail(a, a->ev.run_file.err != OMM_OK ? "run.json" : "rounds.jsonl",
               "cannot be checked without it");
    return false;
}

/* --- ledger --- */

/* Which accepted submission a line of the ledger is of. */
typedef struct ledger_at {
    audit *a;
    size_t r, i, line; /* line: from 0 */
} ledger_at;

static omm_ledger_record expected_row(const ledger_at *at) {
    const audit *a = at->a;
    const audit_offer *offer = &a->offers[at->r];
    const audit_submission *s = &a->submissions[at->r][at->i];
    omm_wire_round sizes = {
        .poll_bytes = omm_wire_poll_bytes((uint32_t)at->r),
        .offer_bytes = offer->envelope_bytes,
        .global_bytes = offer->global_bytes,
        .submission_bytes = s->envelope_bytes,
        .payload_bytes = s->payload_bytes,
        .receipt_bytes = s->receipt_bytes,
    };
    omm_ledger_record row = {.round = (uint32_t)at->r,
                             .node = evidence_at_hand(&a->ev, at->r)->accepted[at->i].node,
                             .fp32 = 8 * (uint64_t)a->ev.run.layout.value_count};
    omm_wire_round_bytes(&row.up, &row.down, &sizes);
    return row;
}

static bool same_row(const omm_ledger_record *x, const omm_ledger_record *y) {
    return x->round == y->round && omm_digest_equal(&x->node, &y->node) && x->up == y->up &&
           x->down == y->down && x->fp32 == y->fp32;
}

/* The submission that has the next line; false when all have had theirs, or the audit cannot go on. */
static bool find_submission(ledger_at *at) {
    const evidence *ev = &at->a->ev;
    while (at->r < ev->round_count && at->i == ev->heads[at->r].accepted_count) {
        at->r++;
        at->i = 0;
    }
    return at->r < ev->round_count && audit_round(at->a, at->r);
}

static omm_err check_row(void *ud, const omm_ledger_record *row) {
    ledger_at *at = ud;
    audit *a = at->a;
    if (!find_submission(at)) return a->fatal; /* too many lines are said to be */
    if (a->offers[at->r].known && a->submissions[at->r][at->i].envelope_bytes > 0) {
        omm_ledger_record want = expected_row(at);
        a->items++;
        if (!same_row(&want, row))
            audit_fail(a, "ledger.jsonl",
                       "line %zu is not what the sizes of its messages give (up %llu, down "
                       "%llu)",
                       at->line + 1, (unsigned long long)want.up, (unsigned long long)want.down);
    }
    at->i++;
    at->line++;
    return OMM_OK;
}

/* Twice: of a ledger with a bad line no line is compared. */
static omm_err check_ledger(audit *a) {
    ledger_at at = {.a = a};
    OMM_TRY(evidence_ledger(&a->ev, NULL, NULL));
    return a->ev.ledger_file.err == OMM_OK ? evidence_ledger(&a->ev, check_row, &at) : OMM_OK;
}

void audit_ledger(audit *a) {
    size_t accepted = 0;
    audit_name(a, "ledger.jsonl");
    if (!has_base(a)) return;
    omm_err err = check_ledger(a);
    if (err != OMM_OK) {
        a->fatal = err;
        return;
    }
    for (size_t r = 0; r < a->ev.round_count; r++) accepted += a->ev.heads[r].accepted_count;
    if (accepted == 0 && a->ev.ledger_file.err == OMM_ERR_NOT_FOUND) return;
    if (a->ev.ledger_file.err != OMM_OK)
        audit_fail(a, "ledger.jsonl", "%s", a->ev.ledger_file.why);
    else if (accepted != a->ev.ledger_count)
        audit_fail(a, "ledger.jsonl", "%zu lines for %zu accepted submissions", a->ev.ledger_count,
                   accepted);
}

/* --- evaluation --- */

static void check_rows(audit *a, const char *path, const evidence_rows *rows,
                       const evidence_rows *after) {
    if (rows->file.err != OMM_OK) {
        audit_fail(a, path, "%s", rows->file.why);
        return;
    }
    if (rows->count != a->ev.run.test_items)
        audit_fail(a, path, "%zu items, and run.json says %llu", rows->count,
                   (unsigned long long)a->ev.run.test_items);
    audit_equal_items(a, path, rows);
    for (size_t i = 0; i < rows->count && i < after->count; i++) {
        const omm_eval_record *x = &rows->rows[i];
        const omm_eval_record *y = &after->rows[i];
        a->items++;
        if (!omm_digest_equal(&x->item, &y->item) || x->tokens != y->tokens ||
            x->is_tool != y->is_tool || strcmp(x->client, y->client) != 0 ||
            strcmp(x->skill, y->skill) != 0)
            audit_fail(a, path, "line %zu is of another item than in eval/after.jsonl", i + 1);
    }
}

/* Of the rows that were judged, summed in the order of the file as the coordinator does. */
static omm_err sample_loss(double *out, audit *a, const evidence_rows *rows, uint64_t items) {
    double nll = 0;
    uint64_t tokens = 0;
    omm_digest *all = omm_arena_alloc(&a->arena, rows->count + 1, sizeof *all);
    bool *judged = omm_arena_alloc(&a->arena, rows->count + 1, sizeof *judged);
    if (!all || !judged) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu rows", rows->count);
    for (size_t i = 0; i < rows->count; i++) all[i] = rows->rows[i].item;
    OMM_TRY(omm_eval_sample(judged, all, rows->count, (size_t)items));
    for (size_t i = 0; i < rows->count; i++) {
        if (!judged[i]) continue;
        nll += rows->rows[i].nll;
        tokens += rows->rows[i].tokens;
    }
    *out = nll / (double)tokens;
    return OMM_OK;
}

/* A state that was judged as a whole, too, has the loss of these rows. */
static void check_sample(audit *a, const evidence_rows *rows, const char *path, double said,
                         const char *state) {
    double is = 0;
    const uint64_t items = a->ev.states[0].items;
    if (rows->file.err != OMM_OK || rows->count == 0) return; /* has been said */
    if (items < 1 || items > rows->count) {
        audit_fail(a, "eval/rounds.jsonl", "%llu items were judged, and there are %zu",
                   (unsigned long long)items, rows->count);
        return;
    }
    if (!audit_expect(a, sample_loss(&is, a, rows, items), path)) return;
    if (is != said)
        audit_fail(a, "eval/rounds.jsonl",
                   "the %s state has a loss of %.17g, and its rows in %s give %.17g", state, said,
                   path, is);
}

/* A candidate is published unless its loss is over that of the state it began from by more than agreed.
 * Lines of eval/rounds.jsonl: state 0, then one per round that was evaluated. */
static void check_states(audit *a) {
    size_t at = 0;
    double *losses =
        omm_arena_alloc(&a->arena, a->ev.round_count + 1, sizeof *losses); /* of states */
    if (!losses) {
        (void)audit_expect(a, omm_raise(OMM_ERR_NOMEM, "no memory for losses"), "rounds.jsonl");
        return;
    }
    audit_name(a, "eval/rounds.jsonl");
    if (a->ev.states_file.err != OMM_OK || a->ev.state_count == 0) {
        audit_fail(a, "eval/rounds.jsonl", "%s",
                   a->ev.states_file.err != OMM_OK ? a->ev.states_file.why : "is empty");
        return;
    }
    const omm_state_record *first = &a->ev.states[at++];
    if (first->state != 0) audit_fail(a, "eval/rounds.jsonl", "line 1 is not of state 0");
    losses[0] = first->loss;
    if (a->has_facts && first->items != audit_round_items(a))
        audit_fail(a, "eval/rounds.jsonl",
                   "line 1 is of %llu items, and scenario.yaml and run.json give %llu",
                   (unsigned long long)first->items, (unsigned long long)audit_round_items(a));
    for (size_t r = 0; r < a->ev.round_count; r++) {
        const omm_round_record *round = &a->ev.heads[r];
        const uint32_t begins = omm_round_begins(round);
        const double last = begins <= r ? losses[begins] : 0;
        losses[r + 1] = last;
        if (!round->evaluated) continue;
        a->items++;
        const omm_state_record *s = at < a->ev.state_count ? &a->ev.states[at++] : NULL;
        if (!s || s->state != r + 1 || s->loss != round->eval_loss || s->items != round->eval_items)
            audit_fail(a, "eval/rounds.jsonl", "round %zu is not what rounds.jsonl says", r);
        bool publish = !(round->eval_loss > last + a->ev.run.loss_increase_max);
        if (publish != round->published)
            audit_fail(a, "rounds.jsonl", "round %zu: loss went from %.6g to %.6g, and it was %s",
                       r, last, round->eval_loss, round->published ? "published" : "held back");
        if (round->published) losses[r + 1] = round->eval_loss;
    }
    if (at != a->ev.state_count) audit_fail(a, "eval/rounds.jsonl", "has lines of no round");
    for (size_t i = 1; i < a->ev.state_count; i++) /* none were judged of what cannot be used */
        if (a->ev.states[i].items != first->items &&
            (a->ev.states[i].items != 0 || a->ev.states[i].loss != DBL_MAX))
            audit_fail(a, "eval/rounds.jsonl", "line %zu is of %llu items, and line 1 of %llu",
                       i + 1, (unsigned long long)a->ev.states[i].items,
                       (unsigned long long)first->items);
    check_sample(a, &a->ev.before, "eval/before.jsonl", losses[0], "first");
    check_sample(a, &a->ev.after, "eval/after.jsonl", losses[a->ev.round_count], "last");
}

static void check_generated(audit *a, const char *path, const evidence_rows *rows, bool generate) {
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->rows[i].generated == generate) continue;
        audit_fail(a, path, "line %zu has %s reply, and scenario.yaml says otherwise", i + 1,
                   generate ? "no" : "a");
        return;
    }
}

/* Only simulate has a control; the same scenario run over a network has none. */
static void check_against_scenario(audit *a) {
    const bool is_there = a->ev.control.file.err != OMM_ERR_NOT_FOUND;
    check_generated(a, "eval/before.jsonl", &a->ev.before, a->facts.generate);
    check_generated(a, "eval/after.jsonl", &a->ev.after, a->facts.generate);
    check_generated(a, "eval/control.jsonl", &a->ev.control, false);
    if (is_there && !a->ev.run.simulated)
        audit_fail(a, "eval/control.jsonl", "is there, and only a simulation has a control");
    if (is_there && !a->facts.control)
        audit_fail(a, "eval/control.jsonl", "is there, and scenario.yaml asks for no control");
    if (!is_there && a->facts.control && a->ev.run.simulated)
        audit_fail(a, "eval/control.jsonl", "is missing, and scenario.yaml asks for a control");
}

void audit_eval(audit *a) {
    audit_name(a, "eval/before.jsonl");
    audit_name(a, "eval/after.jsonl");
    audit_name(a, "eval/control.jsonl");
    if (!has_base(a)) return;
    check_rows(a, "eval/after.jsonl", &a->ev.after, &a->ev.after);
    check_rows(a, "eval/before.jsonl", &a->ev.before, &a->ev.after);
    if (a->ev.control.file.err != OMM_ERR_NOT_FOUND)
        check_rows(a, "eval/control.jsonl", &a->ev.control, &a->ev.after);
    check_states(a);
    audit_items(a);
    if (a->has_facts) check_against_scenario(a);
}

/* --- close.env --- */

static void check_close(audit *a, const omm_close *c) {
    char path[OMM_PATH_MAX];
    omm_digest final;
    omm_digest signed_too;
    size_t n = a->ev.round_count;
    if (strcmp(c->run_id, a->ev.run.run_id) != 0)
        audit_fail(a, "close.env", "run_id is not that of run.json");
    if (c->rounds != n) audit_fail(a, "close.env", "closes %u rounds, there are %zu", c->rounds, n);
    if (n == 0 || !omm_digest_equal(&c->last_round, &a->ev.lines[n - 1].digest))
        audit_fail(a, "rounds.jsonl", "the last line is not the one that close.env signs");
    audit_name(a, "final.gguf");
    omm_err err = omm_bundle_file_find(path, NULL, a->ev.dir, "final.gguf");
    if (err == OMM_OK) err = omm_hash_file(&final, path);
    if (audit_expect(a, err, "final.gguf") && !omm_digest_equal(&final, &c->final_digest))
        audit_fail(a, "final.gguf", "is not the adapter that close.env signs");
    if (audit_expect(a, omm_bundle_evidence_digest(&signed_too, a->ev.dir), "close.env") &&
        !omm_digest_equal(&signed_too, &c->eval_digest))
        audit_fail(a, "close.env",
                   "one of eval/, ledger.jsonl, policy.yaml, run.json and "
                   "scenario.yaml is not what it signs");
}

void audit_end(audit *a) {
    omm_buf text;
    omm_envelope env;
    omm_close message;
    if (!has_base(a)) return;
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    if (audit_read(a, &text, "close.env") &&
        audit_expect(a, omm_envelope_open_as(&env, OMM_CONTEXT_CLOSE, omm_buf_view(&text)),
                     "close.env")) {
        if (!omm_public_key_equal(&env.key, &a->ev.run.coordinator_key))
            audit_fail(a, "close.env", "is not signed by the coordinator's key");
        else if (audit_expect(a, omm_close_decode(&message, env.payload, &a->arena), "close.env"))
            check_close(a, &message);
    }
    omm_buf_fini(&text);
}
