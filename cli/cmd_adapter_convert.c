/* cmd_adapter_convert.c - `meshmind adapter import` and `export`: PEFT folders and GGUF adapters. */
#include "adapter.h"
#include "loaded.h"
#include "options.h"
#include "places.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/peft.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct convert_args {
    const char *model, *out, *name;
    bool rounding, any_base, json;
} convert_args;

/* general.name of the model, for people; empty where it has none. */
static void name_of(char out[256], const omm_gguf *gguf) {
    if (omm_gguf_get_text(out, 256, gguf, "general.name") != OMM_OK) out[0] = 0;
}

static omm_err read_base(omm_peft_base *base, char name[256], const convert_args *a) {
    omm_gguf gguf;
    if (!a->model) return omm_raise(OMM_ERR_USAGE, "which base model? give -m FILE");
    OMM_TRY(omm_gguf_open(&gguf, a->model));
    name_of(name, &gguf);
    omm_err err = adapter_base_read(base, &gguf, a->model);
    base->shape.base.any = a->any_base;
    omm_gguf_close(&gguf);
    return err;
}

static omm_err save(bool *rounded, const char *path, const omm_lora *lora, bool rounding) {
    omm_buf file;
    omm_buf_init(&file, SIZE_MAX / 2);
    omm_err err = omm_lora_save_fused(&file, rounded, lora, rounding);
    if (err == OMM_OK) err = omm_file_check_room(path, file.size);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    return err;
}

/* A PEFT folder, or a GGUF adapter whose tensors may be other than the model's own. */
static omm_err read_any(omm_lora *lora, bool *rounded, const char *path, const omm_peft_base *base,
                        bool rounding) {
    struct stat info;
    *rounded = false;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
        return omm_lora_load_file(lora, path, &base->shape);
    return omm_peft_import(lora, rounded, path, base, rounding);
}

/* What is read stays: the file, or the two of a folder. */
static omm_err check_out(const convert_args *a, const char *path) {
    char config[OMM_PATH_MAX], values[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(config, path, OMM_PEFT_CONFIG_FILE));
    OMM_TRY(omm_path_join(values, path, OMM_PEFT_MODEL_FILE));
    const cli_input inputs[] = {{"--model", a->model},
                                {"the adapter to import", path},
                                {"the adapter to import", config},
                                {"the adapter to import", values},
                                {0}};
    return cli_check_out(a->out, inputs);
}

static void report_import(const convert_args *a, const omm_lora *lora, bool rounded) {
    if (a->json)
        printf("{\"kind\":\"omm-adapter-import\",\"layers\":%zu,\"rank\":%u,\"rounded\":%s,"
               "\"schema_version\":1,\"value_count\":%zu}\n",
               lora->tensor_count / 2, lora->spec.rank, rounded ? "true" : "false",
               lora->value_count);
    else
        printf("%zu values in %zu layers, %s\n", lora->value_count, lora->tensor_count / 2,
               rounded ? "B rounded: the file has one alpha" : "exact");
}

static omm_err import_to(const char *path, const convert_args *a) {
    omm_peft_base base;
    omm_lora lora;
    char name[256];
    bool folded = false, fused = false;
    OMM_TRY(read_base(&base, name, a));
    omm_err err = read_any(&lora, &folded, path, &base, a->rounding);
    OMM_TRY(adapter_name_rounding(err, a->rounding));
    err = save(&fused, a->out, &lora, a->rounding);
    if (err == OMM_OK) report_import(a, &lora, folded || fused);
    omm_lora_fini(&lora);
    return err;
}

static omm_err import(const char *path, const convert_args *a) {
    place_made made;
    if (!a->out) return omm_raise(OMM_ERR_USAGE, "where to? give -o FILE");
    OMM_TRY(check_out(a, path));
    omm_err err = place_make_output(&made, a->out, "--out");
    if (err == OMM_OK) err = import_to(path, a);
    if (err != OMM_OK) place_unmake(&made);
    return err;
}

static bool is_one_tensor(omm_lora_target a, omm_lora_target b) {
    const bool qkv = a == OMM_LORA_Q || a == OMM_LORA_K || a == OMM_LORA_V;
    const bool qkv_too = b == OMM_LORA_Q || b == OMM_LORA_K || b == OMM_LORA_V;
    const bool up = a == OMM_LORA_GATE || a == OMM_LORA_UP;
    return (qkv && qkv_too) || (up && (b == OMM_LORA_GATE || b == OMM_LORA_UP));
}

/* What stands in one tensor over there has one alpha. */
static size_t merged_scales(const omm_lora *lora) {
    size_t count = 0;
    for (size_t i = 2; lora->shape.fused && i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i], *before = &lora->tensors[i - 2];
        if (a->layer == before->layer && is_one_tensor(a->target, before->target) &&
            a->scale != before->scale)
            count++;
    }
    return count;
}

/* Of a folder that was not there before nothing stays behind. */
static omm_err export_to(const char *dir, const omm_lora *lora, const omm_peft_base *base,
                         const char *name) {
    char values[OMM_PATH_MAX];
    place_made made;
    OMM_TRY(place_plan_folder(&made, dir, "--out"));
    const omm_err err = omm_peft_export(dir, lora, base, name);
    if (err == OMM_OK || made.count == 0) return err;
    if (omm_path_join(values, dir, OMM_PEFT_MODEL_FILE) == OMM_OK) (void)unlink(values);
    place_unmake(&made);
    return err;
}

/* lost: layers whose alpha over there is not the one that they were trained with. */
static void report_export(const convert_args *a, const omm_lora *lora, size_t lost) {
    const size_t layers = lora->tensor_count / 2;
    if (a->json)
        printf("{\"alphas_lost\":%zu,\"kind\":\"omm-adapter-export\",\"layers\":%zu,\"rank\":%u,"
               "\"schema_version\":1,\"value_count\":%zu}\n",
               lost, layers, lora->spec.rank, lora->value_count);
    else if (lost == 0)
        printf("%zu values in %zu layers, exact\n", lora->value_count, layers);
    else
        printf("%zu values in %zu layers, the same products; the alphas that %zu of the layers "
               "were trained with are lost (B would be rounded): training that goes on from it "
               "moves them differently\n",
               lora->value_count, layers, lost);
}

/* What was trained with alphas of its own has them over there too, where B takes that without rounding. */
static omm_err export(const char *path, const convert_args *a) {
    omm_peft_base base;
    omm_lora lora;
    char name[256];
    if (!a->out) return omm_raise(OMM_ERR_USAGE, "where to? give -o FOLDER");
    OMM_TRY(read_base(&base, name, a));
    size_t lost = 0;
    OMM_TRY(omm_lora_load_file(&lora, path, &base.shape));
    omm_lora_unfold_exact(&lost, &lora);
    lost += merged_scales(&lora);
    omm_err err = export_to(a->out, &lora, &base, a->name ? a->name : name);
    if (err == OMM_OK) report_export(a, &lora, lost);
    omm_lora_fini(&lora);
    return err;
}

int adapter_import(int argc, char **argv) {
    convert_args a = {0};
    const cli_option options[] = {{"model", 'm', CLI_STR, &a.model, "FILE",
                                   "GGUF base model (its shapes and norms are read)"},
                                  {"out", 'o', CLI_STR, &a.out, "FILE", "GGUF adapter to write"},
                                  {"allow-rounding", 0, CLI_FLAG, &a.rounding, NULL,
                                   "where scales differ by no power of two: round B"},
                                  ANY_BASE_OPTION(a.any_base),
                                  {"json", 0, CLI_FLAG, &a.json, NULL, "one JSON object on stdout"},
                                  {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options,
                  "adapter import FOLDER|FILE -m BASE -o ADAPTER [--allow-rounding]",
                  "Convert a PEFT folder (adapter_config.json, adapter_model.safetensors), or give "
                  "a GGUF adapter\nthe tensors of the model's own file: those of a federation on "
                  "phi3 have q, k, v and gate, up apart.",
                  1, 1);
    if (code >= 0) return code;
    omm_err err = import(args[0], &a);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

int adapter_export(int argc, char **argv) {
    convert_args a = {0};
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &a.model, "FILE",
         "GGUF base model (its shapes and norms are read)"},
        {"out", 'o', CLI_STR, &a.out, "FOLDER", "PEFT folder to write two files into"},
        {"base-name", 0, CLI_STR, &a.name, "NAME",
         "base_model_name_or_path (the model's general.name)"},
        ANY_BASE_OPTION(a.any_base),
        {"json", 0, CLI_FLAG, &a.json, NULL, "one JSON object on stdout"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options,
                         "adapter export ADAPTER -m BASE -o FOLDER [--base-name NAME]",
                         "Convert a GGUF adapter to a PEFT folder.", 1, 1);
    if (code >= 0) return code;
    omm_err err = export(args[0], &a);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
