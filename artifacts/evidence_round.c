/* One line of rounds.jsonl. */
#include "internal.h"
#include "omm/evidence.h"
#include "record.h"

#include <string.h>

#define REASON_BYTES_MAX 64u
#define REFUSED_MAX 65536u

static void put_accepted(record_out *r, const omm_round_record *round) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < round->accepted_count; i++) {
        const omm_round_accepted *a = &round->accepted[i];
        record_out item = record_begin();
        record_put_digest(&item, "node", &a->node);
        record_put_digest(&item, "submission", &a->submission);
        record_put_digest(&item, "receipt", &a->receipt);
        record_put_u64(&item, "tokens", a->tokens);
        record_put_digest(&item, "payload", &a->payload);
        record_put_digest(&item, "canonical", &a->canonical);
        record_put_real(&item, "norm", a->norm);
        record_append_record(r, array, &item);
    }
    record_put(r, "accepted", array);
}

static void put_refused(record_out *r, const omm_round_record *round) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < round->refused_count; i++) {
        const omm_round_refused *f = &round->refused[i];
        record_out item = record_begin();
        record_put_digest_if(&item, "node", &f->node, f->has_node);
        record_put_digest(&item, "submission", &f->submission);
        record_put_digest_if(&item, "receipt", &f->receipt, f->has_receipt);
        record_put_str(&item, "reason", f->reason);
        record_append_record(r, array, &item);
    }
    record_put(r, "refused", array);
}

static void put_eval(record_out *r, const omm_round_record *round) {
    if (!round->evaluated) {
        record_put(r, "eval", json_null());
        return;
    }
    record_out eval = record_begin();
    record_put_u64(&eval, "items", round->eval_items);
    record_put_real(&eval, "loss", round->eval_loss);
    record_put_record(r, "eval", &eval);
}

omm_err omm_round_record_write(omm_buf *out, const omm_round_record *round) {
    record_out r = record_begin();
    record_put_u64(&r, "round", round->round);
    record_put_digest(&r, "offer", &round->offer);
    record_put_digests(&r, "selected", round->selected, round->selected_count);
    put_accepted(&r, round);
    put_refused(&r, round);
    record_put_digests(&r, "missing", round->missing, round->missing_count);
    record_put_u64(&r, "weight_sum", round->weight_sum);
    record_put_digest(&r, "master", &round->master);
    record_put_digest(&r, "broadcast", &round->broadcast);
    put_eval(&r, round);
    record_put_bool(&r, "published", round->published);
    record_put_bool(&r, "void", round->voided);
    if (round->has_begins) record_put_u64(&r, "begins", round->begins);
    return record_finish(out, &r);
}

static void get_accepted(record_in *r, omm_round_record *round) {
    json_t *array = record_get_array(&round->accepted_count, r, "accepted", OMM_SELECTED_MAX);
    omm_round_accepted *list = record_alloc(r, round->accepted_count + 1, sizeof *list);
    round->accepted = list;
    for (size_t i = 0; list && i < round->accepted_count; i++) {
        record_in item = record_item(r, array, i);
        list[i].node = record_get_digest(&item, "node");
        list[i].submission = record_get_digest(&item, "submission");
        list[i].receipt = record_get_digest(&item, "receipt");
        list[i].tokens = record_get_u64(&item, "tokens", INT64_MAX);
        list[i].payload = record_get_digest(&item, "payload");
        list[i].canonical = record_get_digest(&item, "canonical");
        list[i].norm = record_get_real(&item, "norm");
        record_fail(r, item.err);
    }
}

/* The reason becomes part of a file name. */
static bool is_reason(const char *text) {
    return text[0] && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == strlen(text);
}

static void get_refused(record_in *r, omm_round_record *round) {
    json_t *array = record_get_array(&round->refused_count, r, "refused", REFUSED_MAX);
    omm_round_refused *list = record_alloc(r, round->refused_count + 1, sizeof *list);
    round->refused = list;
    for (size_t i = 0; list && i < round->refused_count; i++) {
        record_in item = record_item(r, array, i);
        list[i].has_node = record_get_digest_if(&list[i].node, &item, "node");
        list[i].submission = record_get_digest(&item, "submission");
        list[i].has_receipt = record_get_digest_if(&list[i].receipt, &item, "receipt");
        list[i].reason = record_get_str(&item, "reason", REASON_BYTES_MAX);
        if (item.err == OMM_OK && !is_reason(list[i].reason))
            item.err = omm_raise(OMM_ERR_FORMAT, "reason '%s' is no name", list[i].reason);
        record_fail(r, item.err);
    }
}

static void get_eval(record_in *r, omm_round_record *round) {
    round->evaluated = r->err == OMM_OK && !json_is_null(json_object_get(r->object, "eval"));
    if (!round->evaluated) return;
    record_in eval = record_sub(r, "eval");
    round->eval_items = record_get_u64(&eval, "items", INT64_MAX);
    round->eval_loss = record_get_real(&eval, "loss");
    if (eval.err == OMM_OK && round->eval_loss < 0)
        record_fail(&eval, omm_raise(OMM_ERR_FORMAT, "eval: loss is below 0"));
    record_fail(r, eval.err);
}

static void get_begins(record_in *r, omm_round_record *round) {
    round->has_begins = r->err == OMM_OK && json_object_get(r->object, "begins");
    if (!round->has_begins) return;
    round->begins = (uint32_t)record_get_u64(r, "begins", OMM_EVIDENCE_ROUNDS_MAX);
    if (r->err == OMM_OK && round->begins >= round->round)
        record_fail(r,
                    omm_raise(OMM_ERR_FORMAT, "round %u begins from state %u, not an earlier one",
                              round->round, round->begins));
}

omm_err omm_round_record_parse(omm_round_record *out, omm_arena *arena, omm_bytes line) {
    omm_round_record round;
    memset(&round, 0, sizeof round);
    record_in r = record_open(line, "a line of rounds.jsonl", arena);
    round.round = (uint32_t)record_get_u64(&r, "round", OMM_EVIDENCE_ROUNDS_MAX);
    round.offer = record_get_digest(&r, "offer");
    round.selected = record_get_digests(&round.selected_count, &r, "selected", OMM_SELECTED_MAX);
    get_accepted(&r, &round);
    get_refused(&r, &round);
    round.missing = record_get_digests(&round.missing_count, &r, "missing", OMM_SELECTED_MAX);
    round.weight_sum = record_get_u64(&r, "weight_sum", INT64_MAX);
    round.master = record_get_digest(&r, "master");
    round.broadcast = record_get_digest(&r, "broadcast");
    get_eval(&r, &round);
    round.published = record_get_bool(&r, "published");
    round.voided = record_get_bool(&r, "void");
    get_begins(&r, &round);
    OMM_TRY(record_end(&r));
    omm_buf again;
    omm_buf_init(&again, line.size + 1);
    omm_err err = omm_round_record_write(&again, &round);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG)
        err = record_same(line, &again, "a line of rounds.jsonl");
    omm_buf_fini(&again);
    if (err == OMM_OK) *out = round;
    return err;
}

/* ---- the order of repetitions ---- */

int audit_item_compare(const void *a, const void *b) {
    const omm_audit_item *x = a;
    const omm_audit_item *y = b;
    int order = omm_digest_compare(&x->rank, &y->rank);
    if (order == 0) order = (x->round > y->round) - (x->round < y->round);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

void audit_seed_add(omm_hasher *seed, const omm_round_record *round) {
    for (size_t i = 0; i < round->accepted_count; i++)
        omm_hasher_update(seed, omm_bytes_of(round->accepted[i].submission.b, 32));
}

omm_digest audit_rank(const omm_digest *seed, const omm_digest *submission) {
    uint8_t both[64];
    memcpy(both, seed->b, 32);
    memcpy(both + 32, submission->b, 32);
    return omm_hash(omm_bytes_of(both, sizeof both));
}

omm_err omm_audit_order(omm_audit_item **order, size_t *count, omm_arena *arena,
                        const omm_round_record *rounds, size_t round_count) {
    omm_hasher h;
    omm_hasher_init(&h);
    size_t total = 0;
    for (size_t r = 0; r < round_count; r++) {
        audit_seed_add(&h, &rounds[r]);
        total += rounds[r].accepted_count;
    }
    omm_digest seed = omm_hasher_final(&h);
    omm_audit_item *list = omm_arena_alloc(arena, total + 1, sizeof *list);
    if (!list) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu submissions", total);
    size_t at = 0;
    for (size_t r = 0; r < round_count; r++)
        for (size_t i = 0; i < rounds[r].accepted_count; i++)
            list[at++] = (omm_audit_item){audit_rank(&seed, &rounds[r].accepted[i].submission),
                                          (uint32_t)r, (uint32_t)i};
    if (total) qsort(list, total, sizeof *list, audit_item_compare);
    *order = list;
    *count = total;
    return OMM_OK;
}
