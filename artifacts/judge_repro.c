/* The reproducibility rows: what was repeated must be what the receipts' hash chose, must be
 * compared with what the bundle says, and must have run on something else than the run itself. */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

/* Position of (round, node) among the first `count` of the audit order; SIZE_MAX when it is not there:
 * of k repetitions of a kind only the first k submissions can be meant. */
static size_t order_of(const audit *a, const omm_audit_item *order, size_t count,
                       const omm_repro_check *c) {
    for (size_t i = 0; i < count; i++)
        if (order[i].round == c->round &&
            omm_digest_equal(&a->ev.rounds[order[i].round].accepted[order[i].index].node, &c->node))
            return i;
    return SIZE_MAX;
}

/* The digest after step `steps` of an accepted submission, or after its last one: a repetition may end with the
 * training.  In hex; "" when it cannot be read. */
static void step_digest(char out[OMM_DIGEST_HEX_SIZE], audit *a, size_t steps,
                        const omm_audit_item *item) {
    omm_buf text;
    omm_arena arena;
    omm_submission message;
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    if (audit_open_submission(a, &message, &arena, &text, item->round, item->index)) {
        size_t last = message.step_digests.size / 8;
        if (steps < last) last = steps;
        omm_digest padded = {{0}};
        if (last > 0) memcpy(padded.b, message.step_digests.data + 8 * (last - 1), 8);
        if (last > 0) omm_digest_hex(out, &padded);
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

/* What the bundle says the repetition must give, in hex; "" when it says nothing. */
static void expected_of(char out[OMM_DIGEST_HEX_SIZE], audit *a, const omm_repro_check *c,
                        const omm_audit_item *item) {
    out[0] = '\0';
    if (!item) {
        if (c->round < a->ev.round_count) omm_digest_hex(out, &a->ev.rounds[c->round].master);
        return;
    }
    if (c->steps == 0) {
        omm_digest_hex(out, &a->ev.rounds[item->round].accepted[item->index].canonical);
        return;
    }
    step_digest(out, a, c->steps, item);
}

static bool kind_of(omm_gate_repeat_kind *kind, const char *name) {
    static const char *const names[] = {"threads", "isa", "scalar"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *kind = (omm_gate_repeat_kind)i;
            return true;
        }
    return false;
}

static bool ran_elsewhere(const omm_repro_record *record, const omm_repro_check *c,
                          omm_gate_repeat_kind kind) {
    switch (kind) {
    case OMM_GATE_REPEAT_THREADS: return c->threads != record->threads;
    case OMM_GATE_REPEAT_ISA: return strcmp(c->isa, record->isa) != 0;
    case OMM_GATE_REPEAT_SCALAR: return strcmp(c->isa, "scalar") == 0;
    }
    return false;
}

/* How many repetitions of single submissions there are of each kind.  counts: (3) */
static void count_kinds(size_t *counts, const omm_repro_record *record) {
    omm_gate_repeat_kind kind;
    memset(counts, 0, 3 * sizeof *counts);
    for (size_t i = 0; i < record->check_count; i++)
        if (record->checks[i].has_node && kind_of(&kind, record->checks[i].kind)) counts[kind]++;
}

/* Why a row cannot count, or NULL.  The first k of the order are repeated, whatever k is. */
static const char *row_of(omm_gate_repeat *row, audit *a, const omm_repro_record *record,
                          const omm_repro_check *c, const omm_audit_item *order, size_t count,
                          const size_t *kinds) {
    char expected[OMM_DIGEST_HEX_SIZE];
    const omm_audit_item *item = NULL;
    if (!kind_of(&row->kind, c->kind)) return "a repetition is of an unknown kind";
    if (!ran_elsewhere(record, c, row->kind)) return "a repetition ran as the run itself did";
    if (c->has_node) {
        size_t first = kinds[row->kind] < count ? kinds[row->kind] : count;
        size_t at = order_of(a, order, first, c);
        if (at == SIZE_MAX) return "a repetition was not chosen by the receipts";
        item = &order[at];
    }
    expected_of(expected, a, c, item);
    if (!expected[0] || strcmp(expected, c->expected) != 0)
        return "a repetition was compared with something else than the evidence";
    row->equal = strcmp(c->expected, c->repeated) == 0;
    return NULL;
}

static omm_err judge_rows(omm_verdicts *out, const omm_gate_context *context, audit *a,
                          const omm_repro_record *record, omm_gate_source *source,
                          omm_arena *arena) {
    omm_audit_item *order = NULL;
    size_t count = 0;
    size_t kinds[3];
    count_kinds(kinds, record);
    OMM_TRY(omm_audit_order(&order, &count, arena, a->ev.rounds, a->ev.round_count));
    omm_gate_repeat *rows = omm_arena_alloc(arena, record->check_count + 1, sizeof *rows);
    if (!rows) return omm_raise(OMM_ERR_NOMEM, "no memory for repetitions");
    for (size_t i = 0; i < record->check_count && !source->problem; i++)
        source->problem = row_of(&rows[i], a, record, &record->checks[i], order, count, kinds);
    return omm_gate_reproducibility(out, context, source, rows,
                                    source->problem ? 0 : record->check_count);
}

omm_err judge_repro(omm_verdicts *out, const omm_gate_context *context, audit *a) {
    omm_arena arena;
    omm_buf text;
    omm_repro_record record;
    char why[256] = "";
    omm_gate_source source = {.path = "measured/repro.json"};
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    memset(&record, 0, sizeof record);
    omm_err err = bundle_read(&text, a->ev.dir, "measured/repro.json");
    if (err == OMM_ERR_NOT_FOUND) source.path = NULL;
    if (err == OMM_OK) {
        source.digest = omm_hash(omm_buf_view(&text));
        err = omm_repro_record_parse(&record, &arena, omm_buf_view(&text));
    }
    if (err != OMM_OK && source.path) {
        snprintf(why, sizeof why, "%s", omm_err_sentence());
        source.problem = why;
    }
    source.run_id = record.run_id;
    source.commit = record.commit;
    if (err != OMM_ERR_NOMEM) err = judge_rows(out, context, a, &record, &source, &arena);
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
    return err;
}
