/* peft_write.c - writing a PEFT folder: the configuration in one spelling, the tensors in PEFT's row
 * order. */
#include "peft_internal.h"

#include "omm/mem.h"
#include "omm/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers of each pair --------------------------------------------------------------------- */

/* An alpha for which alpha / rank, in double and rounded to f32, is the pair's scale: the adapter's own
 * where that is so, else the product, which is exact. */
static double alpha_of(const omm_lora *lora, const omm_lora_tensor *a) {
    const double own = (double)lora->spec.alpha;
    if (omm_lora_scale_of(own, a->rows, false) == a->scale) return own;
    return (double)a->scale * (double)a->rows;
}

static json_t *number(double v) {
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

/* "q_proj": what PEFT compares with the end of a path. */
static const char *leaf(const omm_lora *lora, omm_lora_target target) {
    return strchr(peft_module(&lora->shape, target), '.') + 1;
}

static void module_path(char out[PEFT_PATH_MAX], const omm_lora *lora, const omm_lora_tensor *t) {
    snprintf(out, PEFT_PATH_MAX, PEFT_PATH_PREFIX "layers.%u.%s", t->layer,
             peft_module(&lora->shape, t->target));
}

/* All layers that have the target have it at the same rank and alpha. */
static bool is_level(const omm_lora *lora, omm_lora_target target) {
    const omm_lora_tensor *first = NULL;
    for (size_t i = 0; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i];
        if (a->target != target) continue;
        if (!first) first = a;
        if (a->rows != first->rows || alpha_of(lora, a) != alpha_of(lora, first)) return false;
    }
    return true;
}

/* ---- configuration ---------------------------------------------------------------------------- */

/* The adapter's own, which a GGUF file with these pairs had; without one that of the first pair. */
static double alpha_of_all(const omm_lora *lora) {
    const double own = (double)lora->spec.alpha;
    return own != 0.0 ? own : alpha_of(lora, &lora->tensors[0]);
}

/* Entries for pairs that differ from rank and alpha of all: one for a whole target, or one per layer. */
static omm_err put_patterns(json_t *ranks, json_t *alphas, const omm_lora *lora) {
    const omm_lora_tensor *first = &lora->tensors[0];
    for (size_t i = 0; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i];
        char path[PEFT_PATH_MAX];
        module_path(path, lora, a);
        const char *key = is_level(lora, a->target) ? leaf(lora, a->target) : path;
        if (a->rows != first->rows) OMM_TRY(omm_json_set_int(ranks, key, a->rows));
        if (alpha_of(lora, a) != alpha_of_all(lora))
            OMM_TRY(omm_json_set(alphas, key, number(alpha_of(lora, a))));
    }
    return OMM_OK;
}

/* Names where every layer has the target, else every module's whole path. */
static void put_targets(json_t *list, const omm_lora *lora) {
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        size_t count = 0;
        for (size_t i = 0; i < lora->tensor_count; i += 2) count += lora->tensors[i].target == t;
        const bool all = count == lora->shape.layer_count;
        if (all) json_array_append_new(list, json_string(leaf(lora, (omm_lora_target)t)));
        for (size_t i = 0; i < lora->tensor_count && !all; i += 2) {
            char path[PEFT_PATH_MAX];
            if (lora->tensors[i].target != t) continue;
            module_path(path, lora, &lora->tensors[i]);
            json_array_append_new(list, json_string(path));
        }
    }
}

static omm_err put_constants(json_t *root) {
    static const char *const none[] = {"auto_mapping",    "layer_replication",   "layers_pattern",
                                       "megatron_config", "layers_to_transform", "modules_to_save",
                                       "revision"};
    static const char *const no[] = {"fan_in_fan_out", "use_dora", "use_rslora"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        OMM_TRY(omm_json_set(root, none[i], json_null()));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        OMM_TRY(omm_json_set_bool(root, no[i], false));
    OMM_TRY(omm_json_set_bool(root, "inference_mode", true));
    OMM_TRY(omm_json_set_bool(root, "init_lora_weights", true));
    OMM_TRY(omm_json_set(root, "loftq_config", json_object()));
    OMM_TRY(omm_json_set_str(root, "megatron_core", "megatron.core"));
    OMM_TRY(omm_json_set_str(root, "bias", "none"));
    OMM_TRY(omm_json_set_str(root, "peft_type", "LORA"));
    OMM_TRY(omm_json_set_str(root, "task_type", "CAUSAL_LM"));
    return omm_json_set_real(root, "lora_dropout", 0.0);
}

static omm_err fill_config(json_t *root, const omm_lora *lora, const char *name) {
    json_t *ranks = json_object(), *alphas = json_object(), *targets = json_array();
    omm_err err = put_patterns(ranks, alphas, lora);
    put_targets(targets, lora);
    if (err == OMM_OK) err = omm_json_set(root, "rank_pattern", json_incref(ranks));
    if (err == OMM_OK) err = omm_json_set(root, "alpha_pattern", json_incref(alphas));
    if (err == OMM_OK) err = omm_json_set(root, "target_modules", json_incref(targets));
    json_decref(ranks);
    json_decref(alphas);
    json_decref(targets);
    OMM_TRY(err);
    OMM_TRY(omm_json_set_int(root, "r", lora->tensors[0].rows));
    OMM_TRY(omm_json_set(root, "lora_alpha", number(alpha_of_all(lora))));
    OMM_TRY(omm_json_set_str(root, "base_model_name_or_path", name));
    return put_constants(root);
}

/* ---- tensors ---------------------------------------------------------------------------------- */

/* Values of one tensor, little-endian, in PEFT's row order.  Errors: NUMERIC. */
static omm_err encode(uint8_t *to, const omm_lora *lora, const omm_lora_tensor *t,
                      const omm_peft_base *base) {
    const uint32_t head_dim = t->is_b ? peft_head_dim(base, t->target) : 0;
    for (size_t row = 0; row < t->rows; row++) {
        const size_t other = head_dim ? peft_row(row, head_dim, false) : row;
        for (size_t col = 0; col < t->cols; col++, to += sizeof(float)) {
            const float v = lora->values[t->offset + other * t->cols + col];
            if (!isfinite(v))
                return omm_raise(OMM_ERR_NUMERIC, "LoRA %s[%zu][%zu] is not finite", t->name, other,
                                 col);
            omm_put_f32(to, v);
        }
    }
    return OMM_OK;
}

typedef struct named_tensor {
    char name[2 * PEFT_PATH_MAX];
} named_tensor;

static omm_err put_tensors(omm_buf *out, omm_buf *values, omm_safetensor *tensors,
                           named_tensor *names, const omm_lora *lora, const omm_peft_base *base) {
    uint8_t *data = NULL;
    OMM_TRY(omm_buf_extend(values, &data, lora->value_count * sizeof(float)));
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        char path[PEFT_PATH_MAX];
        module_path(path, lora, t);
        snprintf(names[i].name, sizeof names[i].name, PEFT_KEY_PREFIX "%s.lora_%c.weight", path,
                 t->is_b ? 'B' : 'A');
        OMM_TRY(encode(data + t->offset * sizeof(float), lora, t, base));
        tensors[i] =
            (omm_safetensor){.name = names[i].name,
                             .n_dims = 2,
                             .dims = {t->rows, t->cols},
                             .data = omm_bytes_of(data + t->offset * sizeof(float),
                                                  (size_t)t->rows * t->cols * sizeof(float))};
    }
    char hex[OMM_DIGEST_HEX_SIZE];
    const omm_lora_base *model = &lora->shape.base;
    const bool is_known = omm_lora_base_is_known(model);
    omm_digest_hex(hex, &model->fingerprint);
    return omm_safetensors_write_with(out, tensors, lora->tensor_count,
                                      is_known ? LORA_BASE_FINGERPRINT : NULL, hex);
}

static omm_err encode_model(omm_buf *out, const omm_lora *lora, const omm_peft_base *base) {
    omm_buf values;
    omm_buf_init(&values, (size_t)OMM_LORA_VALUES_MAX * sizeof(float));
    omm_safetensor *tensors = omm_alloc(lora->tensor_count, sizeof *tensors);
    named_tensor *names = omm_alloc(lora->tensor_count, sizeof *names);
    omm_err err = tensors && names
                      ? put_tensors(out, &values, tensors, names, lora, base)
                      : omm_raise(OMM_ERR_NOMEM, "no memory for %zu names", lora->tensor_count);
    omm_free(tensors);
    omm_free(names);
    omm_buf_fini(&values);
    return err;
}

/* ---- the folder -------------------------------------------------------------------------------- */

static omm_err write_files(const char *dir, const json_t *config, omm_bytes model) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_dir_make(dir));
    OMM_TRY(omm_path_join(path, dir, OMM_PEFT_MODEL_FILE));
    OMM_TRY(omm_file_check_room(path, model.size));
    OMM_TRY(omm_file_write(path, model, 0644));
    OMM_TRY(omm_path_join(path, dir, OMM_PEFT_CONFIG_FILE));
    return omm_json_save(path, config);
}

static omm_err write_whole(const char *dir, const omm_lora *lora, const omm_peft_base *base,
                           const char *name) {
    json_t *config = json_object();
    omm_buf model;
    omm_buf_init(&model, SIZE_MAX / 2);
    omm_err err = fill_config(config, lora, name);
    if (err == OMM_OK) err = encode_model(&model, lora, base);
    if (err == OMM_OK) err = write_files(dir, config, omm_buf_view(&model));
    omm_buf_fini(&model);
    json_decref(config);
    return err;
}

omm_err omm_peft_export(const char *dir, const omm_lora *lora, const omm_peft_base *base,
                        const char *name) {
    omm_lora stacked;
    bool rounded = false;
    if (lora->shape.layer_count != base->shape.layer_count ||
        lora->shape.fused != base->shape.fused || lora->shape.stacked ||
        memcmp(lora->shape.d_in, base->shape.d_in, sizeof base->shape.d_in) != 0 ||
        memcmp(lora->shape.d_out, base->shape.d_out, sizeof base->shape.d_out) != 0)
        return omm_raise(OMM_ERR_MISMATCH, "the adapter was made for a model of other shape");
    if (!base->shape.fused) return write_whole(dir, lora, base, name);
    OMM_TRY(omm_lora_fuse(&stacked, &rounded, lora, false));
    omm_err err = write_whole(dir, &stacked, base, name);
    omm_lora_fini(&stacked);
    return err;
}
