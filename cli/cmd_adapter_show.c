/* cmd_adapter_show.c - `meshmind adapter show`: what an adapter is and how large its parts are. */
#include "adapter.h"
#include "options.h"
#include "places.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/json.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/peft.h"
#include "omm/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shown {
    omm_lora lora;
    omm_lora_norms *norms; /* of each pair */
    bool peft;
    char digest[OMM_DIGEST_HEX_SIZE]; /* of the file that holds the values */
} shown;

/* ---- reading ---------------------------------------------------------------------------------- */

static omm_err digest_file(char hex[OMM_DIGEST_HEX_SIZE], const char *path) {
    omm_map map;
    OMM_TRY(omm_map_open(&map, path));
    omm_digest digest = omm_hash(map.view);
    omm_digest_hex(hex, &digest);
    omm_map_close(&map);
    return OMM_OK;
}

/* The digest is of all parts, where there are several. */
static omm_err load_gguf(omm_lora *lora, char hex[OMM_DIGEST_HEX_SIZE], const char *path) {
    omm_digest digest;
    omm_lora_shape shape = {0};
    OMM_TRY(omm_lora_claim_file(&shape, &digest, path));
    omm_digest_hex(hex, &digest);
    return omm_lora_load_file(lora, path, &shape);
}

static omm_err load(shown *s, const char *path) {
    char config[OMM_PATH_MAX], model[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(config, path, OMM_PEFT_CONFIG_FILE));
    OMM_TRY(omm_path_join(model, path, OMM_PEFT_MODEL_FILE));
    if (place_is_folder(path) && !omm_file_exists(config) && !omm_file_exists(model))
        return omm_raise(OMM_ERR_NOT_FOUND,
                         "%s: a folder without " OMM_PEFT_CONFIG_FILE " and " OMM_PEFT_MODEL_FILE
                         ", which a PEFT folder has",
                         path);
    s->peft = omm_file_exists(config) || omm_file_exists(model);
    OMM_TRY(s->peft ? omm_peft_load(&s->lora, path) : load_gguf(&s->lora, s->digest, path));
    if (s->peft) OMM_TRY(digest_file(s->digest, model));
    s->norms = omm_alloc(s->lora.tensor_count / 2, sizeof *s->norms);
    if (!s->norms) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < s->lora.tensor_count; i += 2)
        OMM_TRY(omm_lora_measure(&s->norms[i / 2], &s->lora, i));
    return OMM_OK;
}

/* ---- sums ------------------------------------------------------------------------------------- */

static const char *name_of(const omm_lora *lora, omm_lora_target target) {
    if (lora->shape.stacked && target == OMM_LORA_Q) return "qkv";
    if (lora->shape.stacked && target == OMM_LORA_UP) return "gate_up";
    return omm_lora_target_name(target);
}

/* One target over all layers. */
typedef struct part {
    size_t tensors, values;
    uint32_t rank_min, rank_max;
    double norm_a, norm_b, frobenius; /* root of the sum of squares */
    double spectral;                  /* the largest */
} part;

static part sum_of(const shown *s, omm_lora_target target) {
    part p = {0};
    for (size_t i = 0; i < s->lora.tensor_count; i += 2) {
        const omm_lora_tensor *a = &s->lora.tensors[i];
        const omm_lora_norms *n = &s->norms[i / 2];
        if (a->target != target) continue;
        p.tensors += 2;
        p.values += (size_t)a->rows * ((size_t)a->cols + a[1].rows);
        if (p.rank_min == 0 || a->rows < p.rank_min) p.rank_min = a->rows;
        if (a->rows > p.rank_max) p.rank_max = a->rows;
        p.norm_a += n->a * n->a;
        p.norm_b += n->b * n->b;
        p.frobenius += n->frobenius * n->frobenius;
        p.spectral = fmax(p.spectral, n->spectral);
    }
    p.norm_a = sqrt(p.norm_a);
    p.norm_b = sqrt(p.norm_b);
    p.frobenius = sqrt(p.frobenius);
    return p;
}

static bool has_one_rank(const omm_lora *lora) {
    for (size_t i = 0; i < lora->tensor_count; i += 2)
        if (lora->tensors[i].rows != lora->spec.rank) return false;
    return true;
}

/* A file's one alpha gives all its scales.  A folder may have several (patterns), or rsLoRA's scales. */
static bool has_one_alpha(const shown *s) {
    const omm_lora *lora = &s->lora;
    for (size_t i = 0; s->peft && i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i];
        if (a->scale != omm_lora_scale_of((double)lora->spec.alpha, a->rows, false)) return false;
    }
    return true;
}

/* What training had; a file's one alpha put the rest of it into B. */
static float trained_scale(const omm_lora_tensor *a) {
    return a->own_scale != 0.0f ? a->own_scale : a->scale;
}

static bool has_own_scales(const omm_lora *lora) {
    for (size_t i = 0; i < lora->tensor_count; i += 2)
        if (lora->tensors[i].own_scale != 0.0f) return true;
    return false;
}

/* ---- text ------------------------------------------------------------------------------------- */

static void print_base(const omm_lora_base *base) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &base->fingerprint);
    const bool is_known = omm_lora_base_is_known(base);
    if (!base->name[0] && !is_known)
        printf("base          none is named\n");
    else
        printf("base          %s, %s%s\n", base->name[0] ? base->name : "(without a name)",
               is_known ? "fingerprint " : "no fingerprint", is_known ? hex : "");
}

static void print_head(const shown *s) {
    const omm_lora *lora = &s->lora;
    const bool one_rank = has_one_rank(lora);
    char architecture[sizeof lora->shape.architecture];
    omm_utf8_clean(architecture, sizeof architecture, lora->shape.architecture);
    printf("format        %s\n", s->peft ? "PEFT folder" : "GGUF");
    printf("architecture  %s, %u layers\n", s->peft ? "(not said in the folder)" : architecture,
           lora->shape.layer_count);
    if (one_rank)
        printf("rank          %u\n", lora->spec.rank);
    else
        printf("rank          up to %u, differs\n", lora->spec.rank);
    if (has_own_scales(lora))
        printf("alpha         %g, and layers were trained with others (see --tensors)\n",
               (double)lora->spec.alpha);
    else if (!has_one_alpha(s))
        printf("alpha         differs (see --tensors)\n");
    else if (!one_rank)
        printf("alpha         %g (see --tensors)\n", (double)lora->spec.alpha);
    else
        printf("alpha         %g (scale %g)\n", (double)lora->spec.alpha,
               (double)lora->tensors[0].scale);
    printf("values        %zu (%.2f MB as f32)\n", lora->value_count,
           (double)lora->value_count * 4e-6);
    print_base(&lora->shape.base);
    printf("BLAKE2b-256   %s\n\n", s->digest);
}

static void print_parts(const shown *s) {
    printf("%-8s %8s %7s %10s %12s %12s %12s %12s\n", "target", "tensors", "rank", "values",
           "norm of A", "norm of B", "scale*B*A", "spectral");
    for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++) {
        part p = sum_of(s, (omm_lora_target)k);
        char rank[24];
        if (p.tensors == 0) continue;
        if (p.rank_min == p.rank_max)
            snprintf(rank, sizeof rank, "%u", p.rank_max);
        else
            snprintf(rank, sizeof rank, "%u-%u", p.rank_min, p.rank_max);
        printf("%-8s %8zu %7s %10zu %12.6g %12.6g %12.6g %12.6g\n",
               name_of(&s->lora, (omm_lora_target)k), p.tensors, rank, p.values, p.norm_a, p.norm_b,
               p.frobenius, p.spectral);
    }
}

static void print_pairs(const shown *s) {
    const bool own = has_own_scales(&s->lora);
    printf("\n%-24s %5s %10s %s%12s %12s %12s %12s\n", "layer", "rank", "scale",
           own ? "   trained " : "", "norm of A", "norm of B", "scale*B*A", "spectral");
    for (size_t i = 0; i < s->lora.tensor_count; i += 2) {
        const omm_lora_tensor *a = &s->lora.tensors[i];
        const omm_lora_norms *n = &s->norms[i / 2];
        char name[OMM_GGUF_NAME_MAX];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(a->name) - strlen(".weight.lora_a")),
                 a->name);
        printf("%-24s %5u %10.6g ", name, a->rows, (double)a->scale);
        if (own) printf("%10.6g ", (double)trained_scale(a));
        printf("%12.6g %12.6g %12.6g %12.6g\n", n->a, n->b, n->frobenius, n->spectral);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------- */

static json_t *parts_json(const shown *s) {
    json_t *targets = json_object();
    for (unsigned k = 0; k < OMM_LORA_TARGET_COUNT; k++) {
        part p = sum_of(s, (omm_lora_target)k);
        if (p.tensors == 0) continue;
        json_object_set_new(
            targets, name_of(&s->lora, (omm_lora_target)k),
            json_pack("{s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f}", "tensors", (json_int_t)p.tensors,
                      "values", (json_int_t)p.values, "rank_min", (json_int_t)p.rank_min,
                      "rank_max", (json_int_t)p.rank_max, "norm_a", p.norm_a, "norm_b", p.norm_b,
                      "norm_product", p.frobenius, "spectral_product_max", p.spectral));
    }
    return targets;
}

static json_t *pairs_json(const shown *s) {
    json_t *pairs = json_array();
    for (size_t i = 0; i < s->lora.tensor_count; i += 2) {
        const omm_lora_tensor *a = &s->lora.tensors[i];
        const omm_lora_norms *n = &s->norms[i / 2];
        json_array_append_new(
            pairs, json_pack("{s:I,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "layer",
                             (json_int_t)a->layer, "target", name_of(&s->lora, a->target), "rank",
                             (json_int_t)a->rows, "d_in", (json_int_t)a->cols, "d_out",
                             (json_int_t)a[1].rows, "scale", (double)a->scale, "trained_scale",
                             (double)trained_scale(a), "norm_a", n->a, "norm_b", n->b,
                             "norm_product", n->frobenius, "spectral_product", n->spectral));
    }
    return pairs;
}

static json_t *base_json(const omm_lora_base *base) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &base->fingerprint);
    return json_pack("{s:o,s:o}", "name", base->name[0] ? json_string(base->name) : json_null(),
                     "fingerprint", omm_lora_base_is_known(base) ? json_string(hex) : json_null());
}

static omm_err print_json(const shown *s) {
    const omm_lora *lora = &s->lora;
    json_t *root = json_pack(
        "{s:i,s:s,s:s,s:I,s:I,s:b,s:I,s:s,s:o,s:o}", "schema_version", 1, "kind", "omm-adapter",
        "format", s->peft ? "peft" : "gguf", "layers", (json_int_t)lora->shape.layer_count, "rank",
        (json_int_t)lora->spec.rank, "uniform", omm_lora_is_uniform(lora) ? 1 : 0, "value_count",
        (json_int_t)lora->value_count, "digest", s->digest, "targets", parts_json(s), "pairs",
        pairs_json(s));
    json_object_set_new(root, "alpha",
                        has_one_alpha(s) ? json_real((double)lora->spec.alpha) : json_null());
    json_object_set_new(root, "architecture",
                        s->peft ? json_null() : json_string(lora->shape.architecture));
    json_object_set_new(root, "base", base_json(&lora->shape.base));
    omm_buf text;
    omm_buf_init(&text, 64u << 20);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

int adapter_show(int argc, char **argv) {
    bool json = false, tensors = false;
    const cli_option options[] = {{"tensors", 0, CLI_FLAG, &tensors, NULL, "each layer by itself"},
                                  {"json", 0, CLI_FLAG, &json, NULL, "one JSON object on stdout"},
                                  {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options,
                         "adapter show FILE|FOLDER [--tensors] [--json]",
                         "Show ranks, scales and norms of a GGUF LoRA adapter or a PEFT folder.\n"
                         "The norms of scale*B*A are those of the change to the weight.",
                         1, 1);
    if (code >= 0) return code;
    shown s = {0};
    omm_err err = load(&s, args[0]);
    if (err == OMM_OK && json) err = print_json(&s);
    if (err == OMM_OK && !json) {
        print_head(&s);
        print_parts(&s);
        if (tensors) print_pairs(&s);
    }
    omm_free(s.norms);
    omm_lora_fini(&s.lora);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}
