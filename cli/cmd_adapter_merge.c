/* cmd_adapter_merge.c - `meshmind adapter merge`: several adapters into one. */
#include "adapter.h"
#include "options.h"

#include <stdio.h>

typedef struct merge_args {
    adapter_list list;
    const char *out;
    bool rounding, json;
} merge_args;

typedef struct merge_parts {
    omm_lora parts[ADAPTER_PARTS_MAX];
    const omm_lora *pointers[ADAPTER_PARTS_MAX];
    float weights[ADAPTER_PARTS_MAX];
    size_t count;
} merge_parts;

/* ---- reading ---------------------------------------------------------------------------------- */

static omm_err load_parts(merge_parts *p, const adapter_list *list, const omm_lora_shape *shape) {
    for (size_t i = 0; i < list->count; i++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(adapter_part(path, &p->weights[i], list->items[i]));
        OMM_TRY(omm_lora_load_file(&p->parts[i], path, shape));
        p->pointers[i] = &p->parts[i];
        p->count++;
    }
    return OMM_OK;
}

static void free_parts(merge_parts *p) {
    for (size_t i = 0; i < p->count; i++) omm_lora_fini(&p->parts[i]);
}

/* What all the files together claim; omm_lora_load holds each to it. */
static omm_err claim(omm_lora_shape *shape, const adapter_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        char path[OMM_PATH_MAX];
        float scale = 0;
        omm_gguf gguf;
        OMM_TRY(adapter_part(path, &scale, list->items[i]));
        OMM_TRY(omm_gguf_open(&gguf, path));
        omm_err err = omm_lora_claim_shape(shape, &gguf);
        omm_gguf_close(&gguf);
        OMM_TRY(err);
    }
    return OMM_OK;
}

/* ---- several into one -------------------------------------------------------------------------- */

static omm_err join(const merge_args *a) {
    omm_lora_shape shape = {0};
    merge_parts p = {0};
    omm_lora joined = {0};
    bool rounded = false;
    OMM_TRY(claim(&shape, &a->list));
    omm_err err = load_parts(&p, &a->list, &shape);
    if (err == OMM_OK)
        err = omm_lora_join(&joined, &rounded, p.pointers, p.weights, p.count, a->rounding);
    if (err == OMM_OK) err = omm_lora_save_file(a->out, &joined);
    if (err == OMM_OK && a->json)
        printf("{\"kind\":\"omm-adapter-join\",\"rank\":%u,\"rounded\":%s,\"schema_version\":1,"
               "\"value_count\":%zu}\n",
               joined.spec.rank, rounded ? "true" : "false", joined.value_count);
    else if (err == OMM_OK)
        printf("%zu adapters in one of rank %u, %zu values, %s\n", p.count, joined.spec.rank,
               joined.value_count, rounded ? "B rounded" : "exact");
    omm_lora_fini(&joined);
    free_parts(&p);
    return err;
}

static omm_err merge(const merge_args *a) {
    if (!a->out) return omm_raise(OMM_ERR_USAGE, "where to? give -o FILE");
    if (a->list.count == 0) return omm_raise(OMM_ERR_USAGE, "which adapters? give --lora FILE");
    return join(a);
}

int adapter_merge(int argc, char **argv) {
    merge_args a = {0};
    const char *unused = NULL; /* --lora is taken before; here it is for --help */
    const cli_option options[] = {
        {"lora", 0, CLI_STR, &unused, "FILE[=SCALE]", "adapter, times a scale (1); repeatable"},
        {"out", 'o', CLI_STR, &a.out, "FILE", "adapter to write"},
        {"allow-rounding", 0, CLI_FLAG, &a.rounding, NULL,
         "joining: where scales differ by no power of two, round B"},
        {"json", 0, CLI_FLAG, &a.json, NULL, "one JSON object on stdout"},
        {0}};
    int count = 0;
    char **args = NULL;
    omm_err err = adapter_take_list(&a.list, &argc, argv);
    if (err != OMM_OK) return cli_fail(argv[0], err);
    int code = cli_parse(
        &count, &args, argc, argv, options, "adapter merge --lora FILE[=SCALE] ... -o OUT",
        "Join adapters in one of the sum of their ranks: it does what all do together.", 0, 0);
    if (code >= 0) return code;
    err = merge(&a);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
