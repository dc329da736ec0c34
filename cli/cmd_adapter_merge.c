/* cmd_adapter_merge.c - `meshmind adapter merge`: adapters into a model, or several into one. */
#include "adapter.h"
#include "loaded.h"
#include "places.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/lora_merge.h"
#include "omm/peft.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct merge_args {
    cli_list list;
    const char *model, *out, *type, *threads;
    bool rounding, json, any_base;
} merge_args;

typedef struct merge_parts {
    omm_lora parts[CLI_LIST_MAX];
    const omm_lora *pointers[CLI_LIST_MAX];
    float weights[CLI_LIST_MAX];
    size_t count;
} merge_parts;

/* ---- reading ---------------------------------------------------------------------------------- */

static omm_err load_parts(merge_parts *p, const cli_list *list, const omm_lora_shape *shape) {
    for (size_t i = 0; i < list->count; i++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(loaded_split_scale(path, &p->weights[i], list->items[i], "--lora"));
        if (p->weights[i] == 0.0f)
            return omm_raise(OMM_ERR_USAGE, "--lora %s: with a scale of 0 it changes nothing",
                             list->items[i]);
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
static omm_err claim(omm_lora_shape *shape, const cli_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        char path[OMM_PATH_MAX];
        float scale = 0;
        omm_gguf gguf;
        OMM_TRY(loaded_split_scale(path, &scale, list->items[i], "--lora"));
        OMM_TRY(omm_gguf_open(&gguf, path));
        const omm_err err = omm_lora_claim_shape(shape, &gguf);
        omm_gguf_close(&gguf);
        OMM_TRY(cli_of_file(err, "--lora", path));
    }
    return OMM_OK;
}

static const char *type_name(omm_ggml_type type) {
    return omm_ggml_find((uint32_t)type)->name;
}

/* ---- several into one -------------------------------------------------------------------------- */

static omm_err take_adapter_type(omm_ggml_type *type, const char *name) {
    const omm_ggml_info *info = name ? omm_ggml_find_name(name) : omm_ggml_find(OMM_GGML_F32);
    if (!info || !omm_lora_type_is_stored(info->type))
        return omm_raise(OMM_ERR_CONFIG,
                         "--type '%.40s': no type of an adapter here; accepted: F32, F16, BF16, "
                         "Q8_0, or -m FILE for those of a model",
                         name);
    *type = info->type;
    return OMM_OK;
}

static omm_err write_joined(double *lost, const merge_args *a, const omm_lora *joined,
                            omm_ggml_type type) {
    omm_buf file;
    omm_buf_init(&file, SIZE_MAX / 2);
    omm_err err = omm_lora_save_as(&file, lost, joined, type);
    if (err == OMM_OK) err = omm_file_check_room(a->out, file.size);
    if (err == OMM_OK) err = omm_file_write(a->out, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    return err;
}

/* Tensors whose rows have no whole blocks are F16 (omm_lora_save_as). */
static bool has_others_in_f16(const omm_lora *lora, omm_ggml_type type) {
    const uint32_t block = omm_ggml_find((uint32_t)type)->block;
    for (size_t i = 0; i < lora->tensor_count; i++)
        if (lora->tensors[i].cols % block != 0) return true;
    return false;
}

static void report_joined(const merge_args *a, const omm_lora *joined, size_t count, bool rounded,
                          omm_ggml_type type, double lost) {
    if (a->json)
        printf("{\"kind\":\"omm-adapter-join\",\"lost\":%.6g,\"rank\":%u,\"rounded\":%s,"
               "\"schema_version\":1,\"type\":\"%s\",\"value_count\":%zu}\n",
               lost, joined->spec.rank, rounded ? "true" : "false", type_name(type),
               joined->value_count);
    else
        printf("%zu adapter%s in one of rank %u, %zu values in %s%s, %s; what storing rounds away "
               "has %.2g of their norm\n",
               count, count == 1 ? "" : "s", joined->spec.rank, joined->value_count,
               type_name(type),
               has_others_in_f16(joined, type) ? " (rows of no whole blocks in F16)" : "",
               rounded ? "B rounded" : "joined exactly", lost);
}

static omm_err join(const merge_args *a) {
    omm_lora_shape shape = {.base.any = a->any_base};
    merge_parts p = {0};
    omm_lora joined = {0};
    omm_ggml_type type = OMM_GGML_F32;
    double lost = 0.0;
    bool rounded = false;
    OMM_TRY(take_adapter_type(&type, a->type));
    OMM_TRY(claim(&shape, &a->list));
    omm_err err = load_parts(&p, &a->list, &shape);
    if (err == OMM_OK)
        err = omm_lora_join(&joined, &rounded, p.pointers, p.weights, p.count, a->rounding);
    err = adapter_name_rounding(err, a->rounding);
    if (err == OMM_OK) err = write_joined(&lost, a, &joined, type);
    if (err == OMM_OK) report_joined(a, &joined, p.count, rounded, type, lost);
    omm_lora_fini(&joined);
    free_parts(&p);
    return err;
}

/* ---- into a model ------------------------------------------------------------------------------ */

typedef struct merge_report {
    json_t *tensors;
    size_t adapted; /* layers */
    size_t lost;    /* of these: storing changes more than the adapter does */
} merge_report;

static void count_layer(merge_report *r, const omm_lora_merged *m) {
    r->adapted += m->adapted;
    r->lost += m->adapted && m->error >= m->change;
}

/* Types of few bits round a small change away: nothing else would show it but the text. */
static void warn_of_lost(const merge_report *r) {
    if (r->lost == 0) return;
    fprintf(stderr,
            "in %zu of %zu layers storing rounds away more than the adapter changes, and with it "
            "most of what it learned: --type Q8_0 or F16 keeps it, as does --lora beside the "
            "model\n",
            r->lost, r->adapted);
}

static void report_text(void *ud, const omm_lora_merged *m) {
    count_layer(ud, m);
    printf("%-32s %-7s %-7s %12.4g %12.4g %12.4g\n", m->name, type_name(m->from), type_name(m->to),
           m->change, m->error, m->error_max);
}

static void report_json(void *ud, const omm_lora_merged *m) {
    merge_report *r = ud;
    count_layer(r, m);
    json_array_append_new(r->tensors, json_pack("{s:s,s:s,s:s,s:b,s:f,s:f,s:f}", "name", m->name,
                                                "from", type_name(m->from), "to", type_name(m->to),
                                                "adapted", m->adapted ? 1 : 0, "change", m->change,
                                                "error", m->error, "error_max", m->error_max));
}

static omm_err print_json(json_t *tensors) {
    json_t *root = json_pack("{s:i,s:s,s:O}", "schema_version", 1, "kind", "omm-adapter-merge",
                             "tensors", tensors);
    omm_buf text;
    omm_buf_init(&text, 64u << 20);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err write_merged(const merge_args *a, omm_lora_merge *m) {
    merge_report r = {.tensors = json_array()};
    m->report = a->json ? report_json : report_text;
    m->ud = &r;
    if (!a->json)
        printf("%-32s %-7s %-7s %12s %12s %12s\n", "tensor", "was", "is", "change", "error",
               "largest");
    omm_err err = omm_lora_merge_file(a->out, m);
    if (err == OMM_OK && a->json) err = print_json(r.tensors);
    if (err == OMM_OK && !a->json)
        printf("%s: %zu tensors adapted (change and error: root mean squares over a tensor's "
               "values; largest: the error of one value)\n",
               a->out, r.adapted);
    if (err == OMM_OK) warn_of_lost(&r);
    json_decref(r.tensors);
    return err;
}

static omm_err with_compute(const merge_args *a, omm_lora_merge *m) {
    omm_isa isa;
    omm_pool *pool = NULL;
    omm_compute compute;
    unsigned threads = 0;
    OMM_TRY(cli_threads_parse(&threads, a->threads));
    if (threads == 0)
        OMM_TRY(cli_threads_parse(&threads, NULL)); /* auto: nothing to measure here */
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(omm_pool_open(&pool, threads));
    omm_err err = omm_compute_init(&compute, pool, isa);
    if (err == OMM_OK) {
        m->compute = &compute;
        err = write_merged(a, m);
        omm_compute_fini(&compute);
    }
    omm_pool_close(pool);
    return err;
}

static void element_types(char *out, size_t size) {
    size_t count = 0, used = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", all[i].name);
}

static omm_err take_type(omm_lora_merge *m, const char *name) {
    if (!name) return OMM_OK;
    const omm_ggml_info *info = omm_ggml_find_name(name);
    if (!info) {
        char types[256];
        element_types(types, sizeof types);
        return omm_raise(OMM_ERR_CONFIG,
                         "--type '%.40s': no type of a matrix here; accepted: %s; for a mix "
                         "(Q4_K_M) merge, then `quantize`",
                         name, types);
    }
    m->has_type = true;
    m->type = info->type;
    return OMM_OK;
}

static omm_err merge_into(const merge_args *a, const omm_gguf *gguf) {
    omm_peft_base base;
    merge_parts p = {0};
    omm_lora_merge m = {.base = gguf};
    OMM_TRY(take_type(&m, a->type));
    OMM_TRY(adapter_base_read(&base, gguf, a->model));
    base.shape.base.any = a->any_base;
    omm_err err = load_parts(&p, &a->list, &base.shape);
    m.parts = p.pointers;
    m.weights = p.weights;
    m.count = p.count;
    if (err == OMM_OK) err = with_compute(a, &m);
    free_parts(&p);
    return err;
}

static omm_err merge_all(const merge_args *a) {
    omm_gguf gguf;
    if (!a->model) return join(a);
    OMM_TRY(omm_gguf_open(&gguf, a->model));
    const omm_err err = merge_into(a, &gguf);
    omm_gguf_close(&gguf);
    return err;
}

static omm_err merge(const merge_args *a) {
    place_made made;
    if (!a->out) return omm_raise(OMM_ERR_USAGE, "where to? give -o FILE");
    if (a->list.count == 0) return omm_raise(OMM_ERR_USAGE, "which adapters? give --lora FILE");
    if (a->model && a->rounding)
        return omm_raise(OMM_ERR_USAGE, "--allow-rounding: for joining, without -m; into a model "
                                        "every value is rounded to its type");
    OMM_TRY(cli_check_out(a->out, (const cli_input[]){{"--model", a->model}, {0}}));
    OMM_TRY(loaded_check_out(a->out, &a->list, "--lora"));
    omm_err err = place_make_output(&made, a->out, "--out");
    if (err == OMM_OK) err = merge_all(a);
    if (err != OMM_OK) place_unmake(&made);
    return err;
}

int adapter_merge(int argc, char **argv) {
    merge_args a = {0};
    const cli_option options[] = {
        {"lora", 0, CLI_LIST, &a.list, "FILE[=SCALE]", "adapter, times a scale (1); repeatable"},
        {"model", 'm', CLI_STR, &a.model, "FILE", "GGUF model to merge into; none: join adapters"},
        {"out", 'o', CLI_STR, &a.out, "FILE", "model, or adapter, to write"},
        {"type", 0, CLI_STR, &a.type, "TYPE",
         "of the layers' matrices (each keeps its own); without -m of the adapter: F32, F16, BF16, "
         "Q8_0"},
        {"threads", 't', CLI_STR, &a.threads, "N", "threads; one per core by default"},
        {"allow-rounding", 0, CLI_FLAG, &a.rounding, NULL,
         "joining: where scales differ by no power of two, round B"},
        ANY_BASE_OPTION(a.any_base),
        {"json", 0, CLI_FLAG, &a.json, NULL, "one JSON object on stdout"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options,
                  "adapter merge --lora FILE[=SCALE] ... [-m BASE] [--type TYPE] -o OUT",
                  "Merge adapters into a model (W + scale B A, stored in the tensor's type; "
                  "prints what\nchanged and what storing lost), or, without -m, join them in "
                  "one adapter of the sum of their ranks.\nOne in F16 or BF16 is half as "
                  "large, one in Q8_0 less, and costs decoding less.",
                  0, 0);
    if (code >= 0) return code;
    omm_err err = merge(&a);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
