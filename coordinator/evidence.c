/* evidence.c - the bundle's files, each a function of the database and the state before it. */
#include "internal.h"

#include "omm/file_in.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define EVIDENCE_TEXT_BYTES_MAX ((size_t)1 << 28)
#define EVIDENCE_EVAL_BYTES_MAX ((size_t)1 << 28)
#define EVIDENCE_PIECE_BYTES 16384u
/* What a GGUF file has beside its values, about: keys; a tensor's name, sizes and padding. */
#define EVIDENCE_GGUF_KEYS_BYTES 4096u
#define EVIDENCE_GGUF_TENSOR_BYTES 256u

omm_err coord_evidence_start(omm_coord *c) {
    omm_buf record;
    omm_buf_init(&record, EVIDENCE_TEXT_BYTES_MAX);
    omm_err err = coord_record_write(&record, c, c->o.run->node_count);
    if (err == OMM_OK) /* who joined since it was written is in it now */
        err = c->enrol ? omm_bundle_replace(c->o.bundle, "run.json", omm_buf_view(&record))
                       : omm_bundle_put(c->o.bundle, "run.json", omm_buf_view(&record));
    omm_buf_fini(&record);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, "scenario.yaml", c->o.scenario_yaml);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, "policy.yaml", c->o.policy_yaml);
    return err;
}

omm_err coord_evidence_state_line(omm_coord *c, uint32_t line, uint32_t state, uint64_t items,
                                  double loss) {
    omm_state_record record = {.state = state, .items = items, .loss = loss};
    omm_buf text;
    omm_buf_init(&text, EVIDENCE_TEXT_BYTES_MAX);
    omm_err err = omm_state_record_write(&text, &record);
    if (err == OMM_OK)
        err = omm_bundle_put_line(c->o.bundle, "eval/rounds.jsonl", line, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

omm_err coord_evidence_master(omm_coord *c, uint32_t number, const float *master, omm_bytes sent,
                              omm_digest *master_digest) {
    uint8_t *bytes = omm_alloc(c->value_count, 4);
    if (!bytes) return omm_raise(OMM_ERR_NOMEM, "%zu values", c->value_count);
    for (size_t i = 0; i < c->value_count; i++) omm_put_f32(bytes + 4 * i, master[i]);
    omm_bytes view = omm_bytes_of(bytes, 4 * c->value_count);
    *master_digest = omm_hash(view);
    omm_err err = omm_bundle_put(c->o.bundle, omm_bundle_path_master(number).text, view);
    if (err == OMM_OK)
        err = omm_bundle_put(c->o.bundle, omm_bundle_path_adapter(number).text, sent);
    omm_free(bytes);
    return err;
}

/* Through a small buffer: beside the values there is no room for the file. */
static omm_err read_values(float *out, size_t count, omm_file_in *in) {
    uint8_t piece[EVIDENCE_PIECE_BYTES];
    for (size_t at = 0; at < count;) {
        const size_t n = count - at < sizeof piece / 4 ? count - at : sizeof piece / 4;
        OMM_TRY(omm_file_in_read(in, piece, 4 * n));
        for (size_t i = 0; i < n; i++) out[at + i] = omm_get_f32(piece + 4 * i);
        at += n;
    }
    return OMM_OK;
}

omm_err coord_evidence_load_master(float *out, const omm_coord *c, uint32_t number) {
    char path[OMM_PATH_MAX];
    uint64_t size = 0;
    omm_file_in in;
    OMM_TRY(omm_path_join(path, omm_bundle_dir(c->o.bundle), omm_bundle_path_master(number).text));
    OMM_TRY(omm_file_size(&size, path));
    if (size != (uint64_t)4 * c->value_count)
        return omm_raise(OMM_ERR_SIZE, "%s: %llu bytes, expected %zu", path,
                         (unsigned long long)size, 4 * c->value_count);
    OMM_TRY(omm_file_in_open(&in, path));
    const omm_err err = read_values(out, c->value_count, &in);
    omm_file_in_close(&in);
    return err;
}

/* ---- one round ---- */

/* Lists of the round's line, filled while its files are written. */
typedef struct round_lists {
    omm_round_accepted *accepted;
    omm_round_refused *refused;
    omm_digest *selected, *missing;
    bool *spoke; /* per node: accepted, or refused by name */
    size_t accepted_count, refused_count, selected_count, missing_count;
    omm_buf ledger; /* lines of this round */
} round_lists;

static omm_err lists_init(round_lists *lists, size_t nodes, size_t rows, omm_arena *arena) {
    *lists = (round_lists){.accepted = omm_arena_alloc(arena, rows + 1, sizeof *lists->accepted),
                           .refused = omm_arena_alloc(arena, rows + 1, sizeof *lists->refused),
                           .selected = omm_arena_alloc(arena, nodes + 1, sizeof *lists->selected),
                           .missing = omm_arena_alloc(arena, nodes + 1, sizeof *lists->missing),
                           .spoke = omm_arena_alloc(arena, nodes + 1, sizeof *lists->spoke)};
    if (!lists->accepted || !lists->refused || !lists->selected || !lists->missing || !lists->spoke)
        return omm_raise(OMM_ERR_NOMEM, "lists of a round of %zu nodes", nodes);
    omm_buf_init(&lists->ledger, EVIDENCE_TEXT_BYTES_MAX);
    return OMM_OK;
}

/* Append the row's line of the ledger to `out`. */
static omm_err put_ledger(omm_buf *out, const omm_coord *c, const coord_row *row,
                          uint64_t payload_bytes) {
    omm_wire_round sizes = {.poll_bytes = omm_wire_poll_bytes(c->round),
                            .offer_bytes = c->offer.size,
                            .global_bytes = c->global.size,
                            .submission_bytes = row->bytes.size,
                            .payload_bytes = payload_bytes,
                            .receipt_bytes = row->receipt.size};
    omm_ledger_record record = {.round = c->round,
                                .node = c->o.run->nodes[row->node].id,
                                .fp32 = (uint64_t)8 * c->value_count};
    omm_wire_round_bytes(&record.up, &record.down, &sizes);
    return omm_ledger_record_write(out, &record);
}

static omm_err put_payload(omm_coord *c, const omm_digest *digest, uint64_t *bytes) {
    omm_buf payload;
    omm_buf_init(&payload, (size_t)c->payload_bytes_max);
    omm_err err = omm_blobs_get(&payload, c->uploads, digest);
    omm_bundle_path path = omm_bundle_path_payload(digest);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, path.text, omm_buf_view(&payload));
    *bytes = payload.size;
    omm_buf_fini(&payload);
    return err;
}

static omm_err put_accepted(omm_coord *c, round_lists *lists, const coord_row *row) {
    const omm_digest *id = &c->o.run->nodes[row->node].id;
    omm_bundle_path path = omm_bundle_path_submission(c->round, id);
    OMM_TRY(omm_bundle_put(c->o.bundle, path.text, row->bytes));
    path = omm_bundle_path_receipt(c->round, id);
    OMM_TRY(omm_bundle_put(c->o.bundle, path.text, row->receipt));
    uint64_t payload_bytes = 0;
    OMM_TRY(put_payload(c, &row->payload, &payload_bytes));
    lists->accepted[lists->accepted_count++] =
        (omm_round_accepted){.node = *id,
                             .submission = row->digest,
                             .receipt = omm_hash(row->receipt),
                             .tokens = row->tokens,
                             .payload = row->payload,
                             .canonical = row->canonical,
                             .norm = row->norm};
    lists->spoke[row->node] = true;
    return put_ledger(&lists->ledger, c, row, payload_bytes);
}

static omm_err put_refused(omm_coord *c, round_lists *lists, const coord_row *row) {
    uint32_t index = (uint32_t)lists->refused_count;
    const char *reason = omm_err_name(row->reason);
    omm_bundle_path path = omm_bundle_path_refused(c->round, index, reason, row->is_envelope);
    OMM_TRY(omm_bundle_put(c->o.bundle, path.text, row->bytes));
    /* A whole payload that was refused for what it holds is evidence too. */
    bool has_payload = false;
    if (row->status == COORD_REFUSED)
        OMM_TRY(omm_blobs_has(&has_payload, c->uploads, &row->payload));
    if (has_payload) OMM_TRY(put_payload(c, &row->payload, &(uint64_t){0}));
    bool has_receipt = row->receipt.size > 0;
    if (has_receipt) {
        path = omm_bundle_path_refused_receipt(c->round, index);
        OMM_TRY(omm_bundle_put(c->o.bundle, path.text, row->receipt));
    }
    omm_round_refused *refused = &lists->refused[lists->refused_count++];
    *refused = (omm_round_refused){
        .submission = row->digest, .has_receipt = has_receipt, .reason = reason};
    if (has_receipt) refused->receipt = omm_hash(row->receipt);
    if (row->node < 0) return OMM_OK;
    refused->has_node = true;
    refused->node = c->o.run->nodes[row->node].id;
    lists->spoke[row->node] = true;
    return OMM_OK;
}

static omm_err put_rows(omm_coord *c, round_lists *lists, const coord_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (rows[i].status == COORD_ACCEPTED)
            OMM_TRY(put_accepted(c, lists, &rows[i]));
        else if (rows[i].status != COORD_PENDING)
            OMM_TRY(put_refused(c, lists, &rows[i]));
    }
    for (size_t k = 0; k < c->o.run->node_count; k++) {
        uint32_t i = c->by_id[k];
        if (!c->nodes[i].selected) continue;
        const omm_digest *id = &c->o.run->nodes[i].id;
        lists->selected[lists->selected_count++] = *id;
        if (!lists->spoke[i]) lists->missing[lists->missing_count++] = *id;
    }
    return OMM_OK;
}

static omm_err write_line(omm_buf *line, omm_coord *c, const round_lists *lists, omm_digest master,
                          omm_digest broadcast) {
    omm_round_record record = {.round = c->round,
                               .offer = c->offer_digest,
                               .selected = lists->selected,
                               .selected_count = lists->selected_count,
                               .accepted = lists->accepted,
                               .accepted_count = lists->accepted_count,
                               .refused = lists->refused,
                               .refused_count = lists->refused_count,
                               .missing = lists->missing,
                               .missing_count = lists->missing_count,
                               .weight_sum = c->weight_sum,
                               .master = master,
                               .broadcast = broadcast,
                               .evaluated = !c->is_void,
                               .eval_items = c->is_void ? 0 : c->eval_items,
                               .eval_loss = c->is_void ? 0 : c->candidate_loss,
                               .published = c->is_published,
                               .voided = c->is_void,
                               .has_begins = coord_rollback_is_now(c),
                               .begins = coord_rollback_is_now(c) ? c->rollbacks[0].to : 0};
    return omm_round_record_write(line, &record);
}

/* Files of a round in a few folders: these are synced once, before the line that names them. */
static omm_err put_files(omm_coord *c, round_lists *lists, const coord_row *rows, size_t count) {
    omm_bundle_hold(c->o.bundle);
    omm_err err =
        omm_bundle_put(c->o.bundle, omm_bundle_path_offer(c->round).text, omm_buf_view(&c->offer));
    if (err == OMM_OK) err = put_rows(c, lists, rows, count);
    if (err == OMM_OK) return omm_bundle_settle(c->o.bundle);
    char why[OMM_SENTENCE_BYTES_MAX];
    (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    (void)!omm_bundle_settle(c->o.bundle); /* nothing counts before the line: all is put again */
    return omm_raise(err, "%s", why);
}

static omm_err put_round(omm_buf *line, omm_coord *c, round_lists *lists, omm_digest master,
                         omm_digest broadcast, omm_arena *arena) {
    coord_row *rows = NULL;
    size_t count = 0;
    uint32_t ledger_line = 0;
    uint32_t state_line = 0;
    OMM_TRY(coord_store_counts_before(&ledger_line, &state_line, c, c->round));
    OMM_TRY(coord_store_rows(&rows, &count, c, c->round, arena));
    OMM_TRY(coord_rows_by_id(rows, count, c));
    OMM_TRY(lists_init(lists, c->o.run->node_count, count, arena));
    OMM_TRY(put_files(c, lists, rows, count));
    if (lists->ledger.size > 0)
        OMM_TRY(omm_bundle_put_lines(c->o.bundle, "ledger.jsonl", ledger_line,
                                     omm_buf_view(&lists->ledger)));
    if (!c->is_void)
        OMM_TRY(coord_evidence_state_line(c, state_line, c->round + 1, c->eval_items,
                                          c->candidate_loss));
    OMM_TRY(write_line(line, c, lists, master, broadcast));
    return omm_bundle_put_line(c->o.bundle, "rounds.jsonl", c->round, omm_buf_view(line));
}

omm_err coord_evidence_round_files(omm_buf *line, omm_coord *c, omm_digest master,
                                   omm_digest broadcast) {
    omm_arena arena;
    round_lists lists = {0};
    omm_arena_init(&arena, SIZE_MAX);
    omm_err err = put_round(line, c, &lists, master, broadcast, &arena);
    omm_buf_fini(&lists.ledger);
    omm_arena_fini(&arena);
    return err;
}

/* ---- the end ---- */

static omm_err put_eval(omm_coord *c, const char *path, const omm_coord_values *values,
                        bool control) {
    omm_buf text;
    omm_buf_init(&text, EVIDENCE_EVAL_BYTES_MAX);
    omm_err err = control ? c->o.evaluator.control(c->o.evaluator.ud, &text)
                          : c->o.evaluator.full(c->o.evaluator.ud, &text, values);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, path, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

/* A file is made of it now, and few will ask for it any more. */
static omm_err read_last(void *ud, float *values) {
    omm_coord *c = ud;
    coord_sent sent = {c, omm_buf_view(&c->sent)};
    const omm_coord_values from = coord_sent_values(&sent);
    OMM_TRY(from.read(from.ud, values));
    coord_state_drop(c);
    return OMM_OK;
}

static omm_err put_eval_after(omm_coord *c) {
    coord_sent sent = {c, omm_buf_view(&c->sent)};
    const omm_coord_values values = coord_sent_values(&sent);
    if (omm_bundle_has(c->o.bundle, "eval/after.jsonl")) return OMM_OK;
    return put_eval(c, "eval/after.jsonl", &values, false);
}

/* What the run ends with: how good it is, and the adapter. */
static omm_err put_after(omm_coord *c, omm_digest *final_digest) {
    const omm_coord_values values = {read_last, c};
    omm_buf gguf;
    OMM_TRY(coord_state_hold(c));
    OMM_TRY(put_eval_after(c));
    omm_buf_init(&gguf, (size_t)OMM_BUNDLE_FILE_BYTES_MAX);
    /* At once, and not by doubling it. */
    omm_err err = omm_buf_reserve(&gguf, 4 * c->value_count + EVIDENCE_GGUF_KEYS_BYTES +
                                             c->layout->segment_count * EVIDENCE_GGUF_TENSOR_BYTES);
    if (err == OMM_OK) err = c->o.evaluator.render(c->o.evaluator.ud, &gguf, &values);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, "final.gguf", omm_buf_view(&gguf));
    if (err == OMM_OK) *final_digest = omm_hash(omm_buf_view(&gguf));
    omm_buf_fini(&gguf);
    return err;
}

omm_err coord_evidence_close(omm_coord *c, omm_digest *final_digest, omm_digest *evidence_digest) {
    if (c->enrol) OMM_TRY(coord_evidence_start(c));
    if (!omm_bundle_has(c->o.bundle, "eval/before.jsonl"))
        OMM_TRY(put_eval(c, "eval/before.jsonl", NULL, false));
    OMM_TRY(put_after(c, final_digest));
    if (c->o.evaluator.control && !omm_bundle_has(c->o.bundle, "eval/control.jsonl"))
        OMM_TRY(put_eval(c, "eval/control.jsonl", NULL, true));
    if (!omm_bundle_has(c->o.bundle, "ledger.jsonl"))
        OMM_TRY(omm_bundle_put(c->o.bundle, "ledger.jsonl", (omm_bytes){0}));
    return omm_bundle_evidence_digest(evidence_digest, omm_bundle_dir(c->o.bundle));
}
