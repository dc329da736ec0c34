/* The reproducibility rows: what was repeated must be what the receipts' hash chose, must be
 * compared with what the bundle says, and must have run on something else than the run itself. */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the receipts chose, best first, and what its line says. */
typedef struct chosen {
    omm_audit_item item; /* first: by which they are compared */
    omm_digest node, canonical;
    bool repeated[3]; /* by kind */
} chosen;

/* The first of omm_audit_order. */
typedef struct choice {
    chosen *list; /* room for twice `first`, and one more */
    size_t first, count;
} choice;

static void cut_choice(choice *c) {
    if (c->count) qsort(c->list, c->count, sizeof *c->list, audit_item_compare);
    if (c->count > c->first) c->count = c->first;
}

static omm_err seed_of(omm_digest *out, evidence *ev) {
    omm_hasher h;
    const omm_round_record *round = NULL;
    omm_hasher_init(&h);
    for (size_t r = 0; r < ev->round_count; r++) {
        OMM_TRY(evidence_round(&round, ev, r));
        audit_seed_add(&h, round);
    }
    *out = omm_hasher_final(&h);
    return OMM_OK;
}

static omm_err choose(choice *c, evidence *ev) {
    omm_digest seed;
    const omm_round_record *round = NULL;
    OMM_TRY(seed_of(&seed, ev));
    for (size_t r = 0; r < ev->round_count; r++) {
        OMM_TRY(evidence_round(&round, ev, r));
        for (size_t i = 0; i < round->accepted_count; i++) {
            const omm_round_accepted *line = &round->accepted[i];
            c->list[c->count++] =
                (chosen){.item = {audit_rank(&seed, &line->submission), (uint32_t)r, (uint32_t)i},
                         .node = line->node,
                         .canonical = line->canonical};
            if (c->count > 2 * c->first) cut_choice(c);
        }
    }
    cut_choice(c);
    return OMM_OK;
}

/* NULL where (round, node) is not among the first `count`: of k repetitions of a kind only the first k submissions can
 * be meant. */
static chosen *find_chosen(const choice *from, size_t count, const omm_repro_check *c) {
    for (size_t i = 0; i < count && i < from->count; i++)
        if (from->list[i].item.round == c->round && omm_digest_equal(&from->list[i].node, &c->node))
            return &from->list[i];
    return NULL;
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
    if (audit_round(a, item->round) &&
        audit_open_submission(a, &message, &arena, &text, item->round, item->index)) {
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
                        const chosen *item) {
    out[0] = '\0';
    if (c->steps == 0) {
        omm_digest_hex(out, &item->canonical);
        return;
    }
    step_digest(out, a, c->steps, &item->item);
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
    const bool other_floats = strcmp(omm_repro_floats(c->isa), omm_repro_floats(record->isa)) != 0;
    switch (kind) {
    case OMM_GATE_REPEAT_THREADS: return c->threads != record->threads;
    case OMM_GATE_REPEAT_ISA: return other_floats;
    case OMM_GATE_REPEAT_SCALAR: return other_floats && strcmp(c->isa, "scalar") == 0;
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
                          const omm_repro_check *c, const choice *order, const size_t *kinds) {
    char expected[OMM_DIGEST_HEX_SIZE];
    chosen *item = NULL;
    if (!kind_of(&row->kind, c->kind)) return "a repetition is of an unknown kind";
    if (!ran_elsewhere(record, c, row->kind)) return "a repetition ran as the run itself did";
    if (!c->has_node) return "a repetition is of no submission";
    if ((row->kind == OMM_GATE_REPEAT_SCALAR) == (c->steps == 0))
        return "a repetition is of all steps, in plain C of the first";
    item = find_chosen(order, kinds[row->kind], c);
    if (!item) return "a repetition was not chosen by the receipts";
    if (item->repeated[row->kind]) return "a submission is repeated twice in one way";
    item->repeated[row->kind] = true;
    expected_of(expected, a, c, item);
    if (!expected[0] || strcmp(expected, c->expected) != 0)
        return "a repetition was compared with something else than the evidence";
    row->equal = strcmp(c->expected, c->repeated) == 0;
    return NULL;
}

static omm_err judge_rows(omm_verdicts *out, const omm_gate_context *context, audit *a,
                          const omm_repro_record *record, omm_gate_source *source,
                          omm_arena *arena) {
    size_t kinds[3];
    choice order = {.first = 0};
    count_kinds(kinds, record);
    for (size_t k = 0; k < 3; k++)
        if (kinds[k] > order.first) order.first = kinds[k];
    order.list = omm_arena_alloc(arena, 2 * order.first + 1, sizeof *order.list);
    omm_gate_repeat *rows = omm_arena_alloc(arena, record->check_count + 1, sizeof *rows);
    if (!order.list || !rows) return omm_raise(OMM_ERR_NOMEM, "no memory for repetitions");
    if (order.first > 0) OMM_TRY(choose(&order, &a->ev));
    for (size_t i = 0; i < record->check_count && !source->problem; i++)
        source->problem = row_of(&rows[i], a, record, &record->checks[i], &order, kinds);
    OMM_TRY(a->fatal);
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
    omm_err err = omm_bundle_file_read(&text, a->ev.dir, "measured/repro.json");
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
