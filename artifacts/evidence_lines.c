/* The small records: ledger, evaluation rows, states, wire bytes, repetitions; and lines. */
#include "omm/evidence.h"
#include "omm/mem.h"
#include "omm/pool.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX 256u
#define REPLY_BYTES_MAX (1u << 20)
#define CHECKS_MAX 10000u /* each is looked for among as many submissions */

/* Parse, write again, compare: the last lines of every parser. */
static omm_err same_again(omm_bytes text, const char *name, const void *record,
                          omm_err (*write)(omm_buf *out, const void *record)) {
    omm_buf again;
    omm_buf_init(&again, text.size + 1);
    omm_err err = write(&again, record);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG) err = record_same(text, &again, name);
    omm_buf_fini(&again);
    return err;
}

omm_err omm_ledger_record_write(omm_buf *out, const omm_ledger_record *record) {
    record_out r = record_begin();
    record_put_u64(&r, "round", record->round);
    record_put_digest(&r, "node", &record->node);
    record_put_u64(&r, "up", record->up);
    record_put_u64(&r, "down", record->down);
    record_put_u64(&r, "fp32", record->fp32);
    return record_finish(out, &r);
}

static omm_err write_ledger(omm_buf *out, const void *record) {
    return omm_ledger_record_write(out, record);
}

omm_err omm_ledger_record_parse(omm_ledger_record *out, omm_bytes line) {
    record_in r = record_open(line, "a line of ledger.jsonl", NULL);
    omm_ledger_record got;
    memset(&got, 0, sizeof got);
    got.round = (uint32_t)record_get_u64(&r, "round", OMM_EVIDENCE_ROUNDS_MAX);
    got.node = record_get_digest(&r, "node");
    got.up = record_get_u64(&r, "up", INT64_MAX);
    got.down = record_get_u64(&r, "down", INT64_MAX);
    got.fp32 = record_get_u64(&r, "fp32", INT64_MAX);
    OMM_TRY(record_end(&r));
    OMM_TRY(same_again(line, "a line of ledger.jsonl", &got, write_ledger));
    *out = got;
    return OMM_OK;
}

omm_err omm_eval_record_write(omm_buf *out, const omm_eval_record *record) {
    record_out r = record_begin();
    record_put_digest(&r, "item", &record->item);
    record_put_str(&r, "client", record->client);
    record_put_str(&r, "skill", record->skill);
    record_put_real(&r, "nll", record->nll);
    record_put_u64(&r, "tokens", record->tokens);
    record_put_str(&r, "kind", record->is_tool ? "tool" : "text");
    record_put_bool(&r, "generated", record->generated);
    record_put_bool(&r, "parsed", record->parsed);
    record_put_bool(&r, "tool_ok", record->tool_ok);
    record_put_bool(&r, "exact", record->exact);
    record_put_str(&r, "reply", record->reply);
    return record_finish(out, &r);
}

static omm_err write_eval(omm_buf *out, const void *record) {
    return omm_eval_record_write(out, record);
}

/* What no evaluation gives; NULL: nothing of it. */
static const char *is_impossible(const omm_eval_record *r) {
    const bool right = r->parsed || r->tool_ok || r->exact;
    if (r->nll < 0) return "nll is below 0";
    if (!r->generated && (right || r->reply[0])) return "not generated, and yet a reply";
    if (!r->is_tool && (r->parsed || r->tool_ok)) return "a text has parsed or tool_ok";
    if (r->tool_ok && !r->parsed) return "tool_ok without parsed";
    if (r->is_tool && r->exact && !r->tool_ok) return "exact without tool_ok";
    return NULL;
}

omm_err omm_eval_record_parse(omm_eval_record *out, omm_arena *arena, omm_bytes line) {
    record_in r = record_open(line, "a line of eval/", arena);
    omm_eval_record got;
    memset(&got, 0, sizeof got);
    got.item = record_get_digest(&r, "item");
    got.client = record_get_str(&r, "client", TEXT_BYTES_MAX);
    got.skill = record_get_str(&r, "skill", TEXT_BYTES_MAX);
    got.nll = record_get_real(&r, "nll");
    got.tokens = record_get_u64(&r, "tokens", INT64_MAX);
    got.is_tool = strcmp(record_get_str(&r, "kind", TEXT_BYTES_MAX), "tool") == 0;
    got.generated = record_get_bool(&r, "generated");
    got.parsed = record_get_bool(&r, "parsed");
    got.tool_ok = record_get_bool(&r, "tool_ok");
    got.exact = record_get_bool(&r, "exact");
    got.reply = record_get_str(&r, "reply", REPLY_BYTES_MAX);
    if (r.err == OMM_OK && got.tokens == 0)
        record_fail(&r, omm_raise(OMM_ERR_FORMAT, "a line of eval/: tokens is 0"));
    if (r.err == OMM_OK && is_impossible(&got))
        record_fail(&r, omm_raise(OMM_ERR_FORMAT, "a line of eval/: %s", is_impossible(&got)));
    OMM_TRY(record_end(&r));
    OMM_TRY(same_again(line, "a line of eval/", &got, write_eval));
    *out = got;
    return OMM_OK;
}

omm_err omm_state_record_write(omm_buf *out, const omm_state_record *record) {
    record_out r = record_begin();
    record_put_u64(&r, "state", record->state);
    record_put_u64(&r, "items", record->items);
    record_put_real(&r, "loss", record->loss);
    return record_finish(out, &r);
}

static omm_err write_state(omm_buf *out, const void *record) {
    return omm_state_record_write(out, record);
}

omm_err omm_state_record_parse(omm_state_record *out, omm_bytes line) {
    record_in r = record_open(line, "a line of eval/rounds.jsonl", NULL);
    omm_state_record got;
    memset(&got, 0, sizeof got);
    got.state = (uint32_t)record_get_u64(&r, "state", OMM_EVIDENCE_ROUNDS_MAX);
    got.items = record_get_u64(&r, "items", INT64_MAX);
    got.loss = record_get_real(&r, "loss");
    if (r.err == OMM_OK && got.loss < 0)
        record_fail(&r, omm_raise(OMM_ERR_FORMAT, "a line of eval/rounds.jsonl: loss is below 0"));
    OMM_TRY(record_end(&r));
    OMM_TRY(same_again(line, "a line of eval/rounds.jsonl", &got, write_state));
    *out = got;
    return OMM_OK;
}

static void put_head(record_out *r, const char *run_id, const char *commit) {
    record_put_u64(r, "schema_version", OMM_EVIDENCE_SCHEMA_VERSION);
    record_put_str(r, "run_id", run_id);
    record_put_str(r, "commit", commit);
}

static const char *get_head(record_in *r, char run_id[OMM_RUN_ID_SIZE]) {
    uint8_t bytes[16];
    uint64_t version = record_get_u64(r, "schema_version", INT64_MAX);
    if (r->err == OMM_OK && version != OMM_EVIDENCE_SCHEMA_VERSION)
        r->err = omm_raise(OMM_ERR_VERSION, "schema_version %llu, this reads %u",
                           (unsigned long long)version, OMM_EVIDENCE_SCHEMA_VERSION);
    record_get_hex(r, "run_id", bytes, sizeof bytes);
    omm_hex(run_id, omm_bytes_of(bytes, sizeof bytes));
    return record_get_str(r, "commit", TEXT_BYTES_MAX);
}

omm_err omm_wire_record_write(omm_buf *out, const omm_wire_record *record) {
    record_out r = record_begin();
    put_head(&r, record->run_id, record->commit);
    json_t *nodes = json_array();
    for (size_t i = 0; nodes && i < record->node_count; i++) {
        record_out item = record_begin();
        record_put_digest(&item, "node", &record->nodes[i].node);
        record_put_u64(&item, "up", record->nodes[i].up);
        record_put_u64(&item, "down", record->nodes[i].down);
        if (record->has_payloads) {
            record_put_u64(&item, "down_payload", record->nodes[i].down_payload);
            record_put_u64(&item, "up_payload", record->nodes[i].up_payload);
        }
        record_put_u64(&item, "retries", record->nodes[i].retries);
        record_append_record(&r, nodes, &item);
    }
    record_put(&r, "nodes", nodes);
    return record_finish(out, &r);
}

static omm_err write_wire(omm_buf *out, const void *record) {
    return omm_wire_record_write(out, record);
}

omm_err omm_wire_record_parse(omm_wire_record *out, omm_arena *arena, omm_bytes text) {
    record_in r = record_open(text, "measured/wire.json", arena);
    omm_wire_record got;
    memset(&got, 0, sizeof got);
    got.commit = get_head(&r, got.run_id);
    json_t *array = record_get_array(&got.node_count, &r, "nodes", OMM_EVIDENCE_NODES_MAX);
    omm_wire_node *nodes = record_alloc(&r, got.node_count + 1, sizeof *nodes);
    got.nodes = nodes;
    if (!nodes) got.node_count = 0;
    for (size_t i = 0; nodes && i < got.node_count; i++) {
        record_in item = record_item(&r, array, i);
        if (i == 0)
            got.has_payloads = item.err == OMM_OK && json_object_get(item.object, "up_payload");
        nodes[i].node = record_get_digest(&item, "node");
        nodes[i].up = record_get_u64(&item, "up", INT64_MAX);
        nodes[i].down = record_get_u64(&item, "down", INT64_MAX);
        if (got.has_payloads) {
            nodes[i].up_payload = record_get_u64(&item, "up_payload", nodes[i].up);
            nodes[i].down_payload = record_get_u64(&item, "down_payload", nodes[i].down);
        }
        nodes[i].retries = record_get_u64(&item, "retries", INT64_MAX);
        record_fail(&r, item.err);
        if (i && r.err == OMM_OK && omm_digest_compare(&nodes[i - 1].node, &nodes[i].node) >= 0)
            record_fail(&r,
                        omm_raise(OMM_ERR_FORMAT,
                                  "measured/wire.json: row %zu is not above the one before it", i));
    }
    OMM_TRY(record_end(&r));
    OMM_TRY(same_again(text, "measured/wire.json", &got, write_wire));
    *out = got;
    return OMM_OK;
}

omm_err omm_repro_record_write(omm_buf *out, const omm_repro_record *record) {
    record_out r = record_begin();
    put_head(&r, record->run_id, record->commit);
    record_put_str(&r, "isa", record->isa);
    record_put_u64(&r, "threads", record->threads);
    record_put_bool(&r, "other_isa", record->other_isa);
    json_t *checks = json_array();
    for (size_t i = 0; checks && i < record->check_count; i++) {
        const omm_repro_check *c = &record->checks[i];
        record_out item = record_begin();
        record_put_u64(&item, "round", c->round);
        record_put_digest_if(&item, "node", &c->node, c->has_node);
        record_put_str(&item, "kind", c->kind);
        record_put_str(&item, "isa", c->isa);
        record_put_u64(&item, "threads", c->threads);
        record_put_u64(&item, "steps", c->steps);
        record_put_str(&item, "expected", c->expected);
        record_put_str(&item, "repeated", c->repeated);
        record_append_record(&r, checks, &item);
    }
    record_put(&r, "checks", checks);
    return record_finish(out, &r);
}

const char *omm_repro_floats(const char *isa) {
    static const char *const known[][2] = {{"scalar", "scalar"},  {"avx2", "avx2"},
                                           {"avx2_vnni", "avx2"}, {"avx512", "avx512"},
                                           {"neon", "neon"},      {"neon_dotprod", "neon"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(isa, known[i][0]) == 0) return known[i][1];
    return NULL;
}

static omm_err write_repro(omm_buf *out, const void *record) {
    return omm_repro_record_write(out, record);
}

static const char *get_isa(record_in *r) {
    const char *isa = record_get_str(r, "isa", TEXT_BYTES_MAX);
    if (r->err == OMM_OK && !omm_repro_floats(isa))
        record_fail(r, omm_raise(OMM_ERR_FORMAT,
                                 "isa is '%s'; known are scalar, avx2, avx2_vnni, avx512, neon and "
                                 "neon_dotprod",
                                 isa));
    return isa;
}

static uint32_t get_threads(record_in *r) {
    const uint64_t threads = record_get_u64(r, "threads", OMM_POOL_THREADS_MAX);
    if (r->err == OMM_OK && threads == 0)
        record_fail(
            r, omm_raise(OMM_ERR_FORMAT, "threads is 0; accepted: 1 to %u", OMM_POOL_THREADS_MAX));
    return (uint32_t)threads;
}

static void get_check(record_in *r, json_t *array, size_t i, omm_repro_check *c) {
    record_in item = record_item(r, array, i);
    c->round = (uint32_t)record_get_u64(&item, "round", OMM_EVIDENCE_ROUNDS_MAX);
    c->has_node = record_get_digest_if(&c->node, &item, "node");
    c->kind = record_get_str(&item, "kind", TEXT_BYTES_MAX);
    c->isa = get_isa(&item);
    c->threads = get_threads(&item);
    c->steps = (uint32_t)record_get_u64(&item, "steps", UINT32_MAX);
    c->expected = record_get_str(&item, "expected", TEXT_BYTES_MAX);
    c->repeated = record_get_str(&item, "repeated", TEXT_BYTES_MAX);
    record_fail(r, item.err);
}

omm_err omm_repro_record_parse(omm_repro_record *out, omm_arena *arena, omm_bytes text) {
    record_in r = record_open(text, "measured/repro.json", arena);
    omm_repro_record got;
    memset(&got, 0, sizeof got);
    got.commit = get_head(&r, got.run_id);
    got.isa = get_isa(&r);
    got.threads = get_threads(&r);
    got.other_isa = record_get_bool(&r, "other_isa");
    json_t *array = record_get_array(&got.check_count, &r, "checks", CHECKS_MAX);
    omm_repro_check *checks = record_alloc(&r, got.check_count + 1, sizeof *checks);
    got.checks = checks;
    if (!checks) got.check_count = 0;
    for (size_t i = 0; checks && i < got.check_count; i++) get_check(&r, array, i, &checks[i]);
    OMM_TRY(record_end(&r));
    OMM_TRY(same_again(text, "measured/repro.json", &got, write_repro));
    *out = got;
    return OMM_OK;
}

omm_err omm_evidence_lines(omm_bytes **lines, size_t *count, omm_arena *arena, omm_bytes text,
                           size_t count_max) {
    size_t found = 0;
    for (size_t i = 0; i < text.size; i++) found += text.data[i] == '\n';
    if (text.size && text.data[text.size - 1] != '\n')
        return omm_raise(OMM_ERR_FORMAT, "the last line has no newline");
    if (found > count_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu lines, at most %zu", found, count_max);
    omm_bytes *list = omm_arena_alloc(arena, found + 1, sizeof *list);
    if (!list) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu lines", found);
    size_t start = 0;
    size_t at = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] != '\n') continue;
        if (i == start) return omm_raise(OMM_ERR_FORMAT, "line %zu is empty", at + 1);
        list[at++] = omm_bytes_of(text.data + start, i + 1 - start);
        start = i + 1;
    }
    *lines = list;
    *count = found;
    return OMM_OK;
}

/* ---- the sample of a round ---- */

typedef struct ranked {
    omm_digest item;
    size_t index;
} ranked;

static int by_item(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    const int order = omm_digest_compare(&x->item, &y->item);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

omm_err omm_eval_sample(bool *judged, const omm_digest *items, size_t count, size_t take) {
    ranked *order = omm_alloc(count + 1, sizeof *order);
    if (!order) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu items", count);
    for (size_t i = 0; i < count; i++) {
        order[i] = (ranked){items[i], i};
        judged[i] = false;
    }
    qsort(order, count, sizeof *order, by_item);
    for (size_t i = 0; i < take && i < count; i++) judged[order[i].index] = true;
    omm_free(order);
    return OMM_OK;
}
