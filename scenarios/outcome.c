/* outcome.c - what a run comes to: sums read back from the evidence, and the measured files. */
#include "internal.h"

#include "omm/json.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define OUTCOME_FILE_BYTES_MAX (256u << 20)
#define OUTCOME_LINES_MAX 1000000u

/* --- eval files ------------------------------------------------------------------------------- */

static void add_item(omm_simulate_eval *sum, const omm_eval_record *r) {
    sum->items++;
    sum->tokens += r->tokens;
    sum->generated += r->generated;
    sum->loss += r->nll; /* divided at the end */
    sum->item_loss += r->tokens ? r->nll / (double)r->tokens : 0.0;
    sum->calls += r->is_tool;
    sum->replies += !r->is_tool;
    sum->parsed += r->is_tool && r->parsed;
    sum->tool_ok += r->is_tool && r->tool_ok;
    sum->call_exact += r->is_tool && r->exact;
    sum->reply_exact += !r->is_tool && r->exact;
}

static void finish_eval(omm_simulate_eval *sum) {
    if (sum->tokens) sum->loss /= (double)sum->tokens;
    if (sum->items) sum->item_loss /= (double)sum->items;
}

static omm_simulate_client *find_client(omm_simulate_result *result, const char *name) {
    for (size_t i = 0; i < result->client_count; i++)
        if (strcmp(result->clients[i].name, name) == 0) return &result->clients[i];
    omm_simulate_client *grown =
        omm_grow(result->clients, result->client_count, result->client_count + 1, sizeof *grown);
    if (!grown) return NULL;
    result->clients = grown;
    omm_simulate_client *client = &grown[result->client_count++];
    snprintf(client->name, sizeof client->name, "%s", name);
    return client;
}

static omm_err read_eval(omm_simulate_result *result, const char *dir, bool is_after) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, dir, is_after ? "eval/after.jsonl" : "eval/before.jsonl"));
    omm_arena arena;
    omm_arena_init(&arena, OUTCOME_FILE_BYTES_MAX);
    omm_buf file;
    omm_buf_init(&file, OUTCOME_FILE_BYTES_MAX);
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_err err = OMM_OK;
    OMM_TRY_OUT(omm_file_read(&file, path));
    OMM_TRY_OUT(omm_evidence_lines(&lines, &count, &arena, omm_buf_view(&file), OUTCOME_LINES_MAX));
    for (size_t i = 0; i < count; i++) {
        omm_eval_record record;
        OMM_TRY_OUT(omm_eval_record_parse(&record, &arena, lines[i]));
        omm_simulate_client *client = find_client(result, record.client);
        if (!client) OMM_TRY_OUT(omm_raise(OMM_ERR_NOMEM, "client %s", record.client));
        add_item(is_after ? &result->after : &result->before, &record);
        add_item(is_after ? &client->after : &client->before, &record);
    }
out:
    omm_buf_fini(&file);
    omm_arena_fini(&arena);
    return err;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const omm_simulate_client *)a)->name, ((const omm_simulate_client *)b)->name);
}

/* In the order of the error codes, each with how often. */
static void tell_refusals(omm_simulate_result *result, const sim_evidence *evidence) {
    static const char *const names[] = {
#define XX(name, text) #name,
        OMM_ERR_MAP(XX)
#undef XX
    };
    size_t used = 0;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        uint64_t count = 0;
        for (size_t i = 0; i < evidence->round_count; i++)
            for (size_t k = 0; k < evidence->rounds[i].refused_count; k++)
                count += strcmp(evidence->rounds[i].refused[k].reason, names[n]) == 0;
        if (count == 0 || used >= sizeof result->refusals) continue;
        used +=
            (size_t)snprintf(result->refusals + used, sizeof result->refusals - used, "%s%s %llu",
                             used ? ", " : "", names[n], (unsigned long long)count);
    }
}

omm_err sim_outcome_read(omm_simulate_result *result, const char *dir) {
    OMM_TRY(read_eval(result, dir, false));
    OMM_TRY(read_eval(result, dir, true));
    finish_eval(&result->before);
    finish_eval(&result->after);
    for (size_t i = 0; i < result->client_count; i++) {
        omm_simulate_client *c = &result->clients[i];
        finish_eval(&c->before);
        finish_eval(&c->after);
        result->client_loss_before += c->before.item_loss / (double)result->client_count;
        result->client_loss_after += c->after.item_loss / (double)result->client_count;
    }
    if (result->client_count)
        qsort(result->clients, result->client_count, sizeof *result->clients, by_name);
    sim_evidence evidence;
    OMM_TRY(sim_evidence_open(&evidence, dir));
    for (size_t i = 0; i < evidence.round_count; i++) {
        result->accepted += evidence.rounds[i].accepted_count;
        result->refused += evidence.rounds[i].refused_count;
        result->missing += evidence.rounds[i].missing_count;
        result->rounds_void += evidence.rounds[i].voided;
        result->rounds_held += !evidence.rounds[i].voided && !evidence.rounds[i].published;
    }
    tell_refusals(result, &evidence);
    result->rounds = (uint32_t)evidence.round_count;
    sim_evidence_close(&evidence);
    return OMM_OK;
}

/* --- measured files --------------------------------------------------------------------------- */

static int by_node(const void *a, const void *b) {
    return omm_digest_compare(&((const omm_wire_node *)a)->node, &((const omm_wire_node *)b)->node);
}

static omm_err write_wire(const sim *s, omm_bundle *bundle) {
    omm_wire_node *nodes = omm_alloc(s->setup->node_count, sizeof *nodes);
    if (!nodes) return omm_raise(OMM_ERR_NOMEM, "wire record");
    omm_wire_record record = {.commit = s->options->commit, .nodes = nodes, .has_payloads = true};
    memcpy(record.run_id, omm_run_get_record(s->setup->run)->run_id, sizeof record.run_id);
    for (size_t i = 0; i < s->setup->node_count; i++) {
        const sim_peer *peer = &s->peers[i];
        if (!peer->node) continue;
        nodes[record.node_count++] = (omm_wire_node){.node = peer->id,
                                                     .up = peer->bytes_up,
                                                     .down = peer->bytes_down,
                                                     .up_payload = peer->payload_up,
                                                     .down_payload = peer->payload_down,
                                                     .retries = peer->retries};
    }
    qsort(nodes, record.node_count, sizeof *nodes, by_node);
    omm_buf text;
    omm_buf_init(&text, OUTCOME_FILE_BYTES_MAX);
    omm_err err = omm_wire_record_write(&text, &record);
    if (err == OMM_OK) err = omm_bundle_replace(bundle, "measured/wire.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    omm_free(nodes);
    return err;
}

static omm_err put_json(omm_bundle *bundle, const char *path, json_t *root) {
    if (!root) return omm_raise(OMM_ERR_NOMEM, "%s", path);
    omm_buf text;
    omm_buf_init(&text, OUTCOME_FILE_BYTES_MAX);
    omm_err err = omm_json_write_pretty(&text, root);
    if (err == OMM_OK) err = omm_bundle_replace(bundle, path, omm_buf_view(&text));
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err write_machine(const sim *s, omm_bundle *bundle) {
    struct utsname name;
    char unicode[OMM_UNICODE_SIZE];
    omm_unicode_version(unicode);
    if (uname(&name) != 0) name.sysname[0] = name.release[0] = name.machine[0] = 0;
    return put_json(bundle, "measured/machine.json",
                    json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i}", "schema_version", 1,
                              "run_id", omm_run_get_record(s->setup->run)->run_id, "commit",
                              s->options->commit, "build", s->options->build, "system",
                              name.sysname, "release", name.release, "architecture", name.machine,
                              "unicode", unicode, "isa", omm_isa_name(s->options->isa), "threads",
                              (int)s->options->threads, "processors", (int)omm_cpu_count()));
}

static omm_err write_times(const sim *s, omm_bundle *bundle, const omm_simulate_result *result) {
    return put_json(bundle, "measured/times.json",
                    json_pack("{s:i,s:s,s:s,s:f,s:f,s:f,s:f,s:I}", "schema_version", 1, "run_id",
                              omm_run_get_record(s->setup->run)->run_id, "commit",
                              s->options->commit, "train_s", result->train_s, "evaluate_s",
                              result->evaluate_s, "audit_s", result->audit_s, "total_s",
                              result->total_s, "peak_memory_kib",
                              (json_int_t)(omm_memory_peak() / 1024)));
}

omm_err sim_outcome_write(const sim *s, omm_bundle *bundle, const omm_simulate_result *result) {
    OMM_TRY(write_wire(s, bundle));
    OMM_TRY(write_machine(s, bundle));
    OMM_TRY(write_times(s, bundle, result));
    return omm_bundle_replace(bundle, "virtual/timeline.jsonl", omm_buf_view(&s->timeline));
}
