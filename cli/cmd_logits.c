/* cmd_logits.c - `meshmind logits`: what a model says after each of the given tokens. */
#include "commands.h"
#include "loaded.h"
#include "places.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/sample.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define IDS_MAX (1u << 20)

typedef struct logits_options {
    loaded_options common;
    const char *ids;
    const char *out;
    bool json;
} logits_options;

static omm_err parse_ids(omm_tokens *out, const char *text) {
    const char *p = text;
    for (;;) {
        char *end = NULL;
        errno = 0;
        unsigned long v = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : ULONG_MAX;
        if (errno || v > UINT32_MAX || !end || (*end != ',' && *end != 0))
            return omm_raise(OMM_ERR_USAGE, "--ids: expected numbers with commas between, at '%s'",
                             p);
        OMM_TRY(omm_tokens_push(out, (uint32_t)v));
        if (*end == 0) return OMM_OK;
        p = end + 1;
    }
}

static void print_memory(const loaded *l) {
    json_t *memory = cli_memory_json(&l->memory);
    printf(",\"memory\":");
    json_dumpf(memory, stdout, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(memory);
}

static void report(const loaded *l, const logits_options *o, const omm_tokens *ids,
                   const float *logits) {
    const uint32_t vocab = l->model.dims.vocab;
    if (o->json)
        printf("{\"activations\":\"%s\",\"argmax\":[", omm_activations_name(l->activations));
    for (size_t i = 0; i < ids->count; i++)
        printf("%s%u", i ? "," : "", omm_argmax(logits + i * vocab, vocab));
    if (o->json) {
        printf("],\"isa\":\"%s\"", omm_isa_name(l->compute.isa));
        print_memory(l);
        printf(",\"positions\":%zu,\"schema_version\":1,\"vocab\":%u}", ids->count, vocab);
    }
    printf("\n");
}

static omm_err compute(loaded *l, const logits_options *o, const omm_tokens *ids) {
    const uint32_t vocab = l->model.dims.vocab;
    const size_t count = ids->count * vocab;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] >= vocab)
            return omm_raise(OMM_ERR_USAGE, "--ids: %u, number %zu of them; accepted: 0 to %u",
                             ids->ids[i], i + 1, vocab - 1);
    if (ids->count > omm_session_positions_max(l->session))
        return omm_raise(OMM_ERR_TOO_BIG, "%zu ids: at most %u positions fit", ids->count,
                         omm_session_positions_max(l->session));
    float *logits = (float *)omm_alloc(count, sizeof *logits);
    uint8_t *bytes = (uint8_t *)omm_alloc(count, 4);
    omm_err err = logits && bytes ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for the logits");
    if (err == OMM_OK) err = omm_session_append(l->session, ids->ids, ids->count, logits, true);
    for (size_t i = 0; err == OMM_OK && i < count; i++) omm_put_f32(bytes + 4 * i, logits[i]);
    if (err == OMM_OK && o->out) err = omm_file_write(o->out, omm_bytes_of(bytes, count * 4), 0644);
    if (err == OMM_OK) report(l, o, ids, logits);
    omm_free(logits);
    omm_free(bytes);
    return err;
}

static omm_err run(const logits_options *o) {
    place_made made = {0};
    if (!o->ids) return omm_raise(OMM_ERR_USAGE, "which tokens? give --ids 1,2,3");
    OMM_TRY(cli_check_out(o->out, (const cli_input[]){{"--model", o->common.model}, {0}}));
    OMM_TRY(loaded_check_out(o->out, &o->common.lora, "--lora"));
    loaded l;
    omm_tokens ids;
    omm_tokens_init(&ids, IDS_MAX);
    omm_err err = parse_ids(&ids, o->ids);
    if (err == OMM_OK && o->out) err = place_make_output(&made, o->out, "--out");
    if (err == OMM_OK) {
        loaded_options common = o->common;
        common.positions_min = ids.count < IDS_MAX ? (uint32_t)ids.count : IDS_MAX;
        common.logit_rows = 2 * ids.count; /* as numbers and as bytes */
        err = loaded_open(&l, &common, false);
        if (err == OMM_OK) err = compute(&l, o, &ids);
        loaded_close(&l);
    }
    omm_tokens_fini(&ids);
    if (err != OMM_OK) place_unmake(&made);
    return err;
}

int cmd_logits(int argc, char **argv) {
    logits_options o = {.common = {.activations = "f32", .kv_default = "f32"}};
    const cli_option options[] = {
        LOADED_OPTIONS(o.common, "", "f32", "f32"),
        {"ids", 0, CLI_STR, &o.ids, "1,2,3", "token ids to feed"},
        {"out", 'o', CLI_STR, &o.out, "FILE", "logits of every position, f32 little-endian"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object instead of a line of ids"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "logits -m MODEL --ids 1,2,3",
                         "Write the logits after every token, and print the likeliest next ids.\n"
                         "The bytes are the same on every machine and for any number of threads.",
                         0, 0);
    if (code >= 0) return code;
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
