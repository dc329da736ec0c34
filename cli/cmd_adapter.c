/* cmd_adapter.c - `meshmind adapter show FILE`: what a GGUF LoRA adapter is and how large its parts. */
#include "commands.h"
#include "options.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/json.h"
#include "omm/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of one target over all layers. */
typedef struct part {
    size_t tensors, values;
    double norm_a, norm_b; /* root of the sum of squares */
} part;

/* The shape that the file itself claims; omm_lora_load then holds it to that in every layer. */
static omm_err shape_of(omm_lora_shape *shape, const omm_gguf *gguf) {
    OMM_TRY(omm_gguf_get_text(shape->architecture, sizeof shape->architecture, gguf,
                              "general.architecture"));
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        const omm_gguf_tensor *t = &gguf->tensors[i];
        char *end = NULL;
        if (strncmp(t->name, "blk.", 4) != 0) continue;
        unsigned long layer = strtoul(t->name + 4, &end, 10);
        if (layer >= OMM_LORA_LAYERS_MAX || *end != '.') continue;
        if (layer >= shape->layer_count) shape->layer_count = (uint32_t)layer + 1;
        for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++) {
            const char *name = omm_lora_target_tensor((omm_lora_target)k);
            size_t size = strlen(name);
            if (strncmp(end + 1, name, size) != 0) continue;
            if (strcmp(end + 1 + size, ".weight.lora_a") == 0)
                shape->d_in[k] = t->dims[0] > UINT32_MAX ? 0 : (uint32_t)t->dims[0];
            if (strcmp(end + 1 + size, ".weight.lora_b") == 0)
                shape->d_out[k] = t->dims[1] > UINT32_MAX ? 0 : (uint32_t)t->dims[1];
        }
    }
    return OMM_OK;
}

static void measure(part parts[OMM_LORA_TARGET_COUNT], const omm_lora *lora) {
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        part *p = &parts[t->target];
        size_t count = (size_t)t->rows * t->cols;
        double *sum = t->is_b ? &p->norm_b : &p->norm_a;
        for (size_t k = 0; k < count; k++) {
            double v = (double)lora->values[t->offset + k];
            *sum += v * v;
        }
        p->tensors++;
        p->values += count;
    }
    for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++) {
        parts[k].norm_a = sqrt(parts[k].norm_a);
        parts[k].norm_b = sqrt(parts[k].norm_b);
    }
}

static void print_text(const omm_lora *lora, const part *parts, const char *digest) {
    printf("architecture  %s, %u layers\n", lora->shape.architecture, lora->shape.layer_count);
    printf("rank          %u\nalpha         %g (scale %g)\n", lora->spec.rank,
           (double)lora->spec.alpha, (double)omm_lora_scale(lora));
    printf("values        %zu (%.2f MB as f32)\n", lora->value_count,
           (double)lora->value_count * 4e-6);
    printf("BLAKE2b-256   %s\n\n%-8s %8s %10s %12s %12s\n", digest, "target", "tensors", "values",
           "norm of A", "norm of B");
    for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++)
        if (parts[k].tensors)
            printf("%-8s %8zu %10zu %12.6g %12.6g\n", omm_lora_target_name((omm_lora_target)k),
                   parts[k].tensors, parts[k].values, parts[k].norm_a, parts[k].norm_b);
}

static omm_err print_json(const omm_lora *lora, const part *parts, const char *digest) {
    json_t *targets = json_object();
    for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++)
        if (parts[k].tensors)
            json_object_set_new(targets, omm_lora_target_name((omm_lora_target)k),
                                json_pack("{s:I,s:I,s:f,s:f}", "tensors",
                                          (json_int_t)parts[k].tensors, "values",
                                          (json_int_t)parts[k].values, "norm_a", parts[k].norm_a,
                                          "norm_b", parts[k].norm_b));
    json_t *root = json_pack(
        "{s:i,s:s,s:s,s:I,s:I,s:f,s:I,s:s,s:o}", "schema_version", 1, "kind", "omm-adapter",
        "architecture", lora->shape.architecture, "layers", (json_int_t)lora->shape.layer_count,
        "rank", (json_int_t)lora->spec.rank, "alpha", (double)lora->spec.alpha, "value_count",
        (json_int_t)lora->value_count, "digest", digest, "targets", targets);
    omm_buf text;
    omm_buf_init(&text, 1 << 20);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "out of memory");
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err show(const char *path, bool json) {
    omm_gguf gguf;
    omm_lora_shape shape = {0};
    omm_lora lora = {0};
    part parts[OMM_LORA_TARGET_COUNT] = {0};
    OMM_TRY(omm_gguf_open(&gguf, path));
    omm_err err = shape_of(&shape, &gguf);
    if (err == OMM_OK) err = omm_lora_load(&lora, gguf.view, &shape);
    if (err == OMM_OK) {
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest digest = omm_hash(gguf.view);
        omm_digest_hex(hex, &digest);
        measure(parts, &lora);
        if (json)
            err = print_json(&lora, parts, hex);
        else
            print_text(&lora, parts, hex);
        omm_lora_fini(&lora);
    }
    omm_gguf_close(&gguf);
    return err;
}

int cmd_adapter(int argc, char **argv) {
    bool json = false;
    const cli_option options[] = {{"json", 0, CLI_FLAG, &json, NULL, "one JSON object on stdout"},
                                  {0}};
    const char *usage = "adapter show FILE [--json]";
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, usage,
                         "Show rank, targets and norms of a GGUF LoRA adapter.", 2, 2);
    if (code >= 0) return code;
    if (strcmp(args[0], "show") != 0) {
        fprintf(stderr,
                "meshmind adapter: unknown action '%s'; accepted: show\nusage: meshmind %s\n",
                args[0], usage);
        return CLI_EXIT_USAGE;
    }
    omm_err err = show(args[1], json);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("adapter", err);
}
