/* lora_file.c - the adapter as a GGUF file in llama.cpp's LoRA layout. */
#include "lora_internal.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCALES_KEY "openmeshmind.lora.scales"

/* ---- Writing ------------------------------------------------------------------------------- */

static omm_err check_finite(const omm_lora *lora) {
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        size_t count = (size_t)t->rows * t->cols;
        for (size_t v = 0; v < count; v++)
            if (!isfinite(lora->values[t->offset + v]))
                return omm_raise(OMM_ERR_NUMERIC, "LoRA %s[%zu] is not finite", t->name, v);
    }
    return OMM_OK;
}

static omm_err check_scales(const omm_lora *lora) {
    for (size_t i = 0; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i];
        if (a->scale != lora_file_scale(lora->spec.alpha, a->rows))
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "LoRA %s: its scale %.9g is not what the file's alpha %.9g gives",
                             a->name, (double)a->scale, (double)lora->spec.alpha);
    }
    return OMM_OK;
}

/* Rows of the adapter as rows of a type, and what that rounds away. */
typedef struct lora_rounding {
    double change, all; /* sums of squares */
} lora_rounding;

static omm_err encode_tensor(uint8_t *to, lora_rounding *r, const omm_lora *lora,
                             const omm_lora_tensor *t, omm_ggml_type type, float *back) {
    const size_t stride = omm_rows_stride(type, t->cols);
    for (size_t row = 0; row < t->rows; row++, to += stride) {
        const float *values = lora->values + t->offset + row * t->cols;
        const omm_err err = omm_rows_quantise(to, type, values, t->cols);
        if (err != OMM_OK) {
            char said[512];
            snprintf(said, sizeof said, "%s", omm_err_sentence());
            return omm_raise(err, "LoRA %s, row %zu: %s", t->name, row, said);
        }
        omm_rows_dequantise(back, type, to, t->cols);
        for (size_t i = 0; i < t->cols; i++) {
            const double change = (double)back[i] - (double)values[i];
            r->change += change * change;
            r->all += (double)values[i] * (double)values[i];
        }
    }
    return OMM_OK;
}

/* The type of one tensor: rows that are no whole blocks of the type asked for are halves. */
static omm_ggml_type stored_type(const omm_lora_tensor *t, omm_ggml_type asked) {
    return t->cols % omm_ggml_find((uint32_t)asked)->block ? OMM_GGML_F16 : asked;
}

static size_t stored_bytes(const omm_lora_tensor *t, omm_ggml_type asked) {
    return t->rows * omm_rows_stride(stored_type(t, asked), t->cols);
}

/* The tensors' bytes, one after the other as in `values`. */
static omm_err encode_values(omm_buf *out, lora_rounding *r, const omm_lora *lora,
                             omm_ggml_type type) {
    size_t widest = 0, bytes = 0;
    uint8_t *p = NULL;
    for (size_t i = 0; i < lora->tensor_count; i++) {
        if (lora->tensors[i].cols > widest) widest = lora->tensors[i].cols;
        bytes += stored_bytes(&lora->tensors[i], type);
    }
    OMM_TRY(omm_buf_extend(out, &p, bytes));
    float *back = (float *)omm_alloc(widest, sizeof *back);
    if (!back) return omm_raise(OMM_ERR_NOMEM, "no memory for a row of an adapter");
    omm_err err = OMM_OK;
    for (size_t i = 0; i < lora->tensor_count && err == OMM_OK; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        err = encode_tensor(p, r, lora, t, stored_type(t, type), back);
        p += stored_bytes(t, type);
    }
    omm_free(back);
    return err;
}

/* Where a pair was trained with another scale than the file's alpha says. */
static omm_err put_own_scales(omm_gguf_writer *w, const omm_lora *lora) {
    bool has_own = false;
    for (size_t i = 0; i < lora->tensor_count; i++)
        has_own = has_own || lora->tensors[i].own_scale != 0.0f;
    if (!has_own || lora->shape.stacked) return OMM_OK;
    const size_t count = lora->tensor_count / 2;
    uint8_t *scales = (uint8_t *)omm_alloc(count, sizeof(float));
    if (!scales) return omm_raise(OMM_ERR_NOMEM, "no memory for the scales of %zu pairs", count);
    for (size_t i = 0; i < count; i++) {
        const omm_lora_tensor *a = &lora->tensors[2 * i];
        omm_put_f32(scales + i * sizeof(float), a->own_scale != 0.0f ? a->own_scale : a->scale);
    }
    omm_gguf_put_array(w, SCALES_KEY, OMM_GGUF_F32, scales, count);
    omm_free(scales);
    return OMM_OK;
}

static omm_err write_file(omm_buf *out, omm_gguf_writer *w, const omm_lora *lora,
                          const omm_buf *values, omm_ggml_type type) {
    const uint8_t *at = values->data;
    omm_gguf_put_text(w, "general.architecture", lora->shape.architecture);
    omm_gguf_put_text(w, "general.type", "adapter");
    omm_gguf_put_text(w, "adapter.type", "lora");
    omm_gguf_put_f32(w, "adapter.lora.alpha", lora->spec.alpha);
    lora_base_put(w, &lora->shape.base);
    OMM_TRY(put_own_scales(w, lora));
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        uint64_t dims[2] = {t->cols, t->rows};
        const omm_bytes data = omm_bytes_of(at, stored_bytes(t, type));
        omm_gguf_put_tensor(w, t->name, (uint32_t)stored_type(t, type), 2, dims, data);
        at += data.size;
    }
    return omm_gguf_writer_finish(out, w);
}

bool omm_lora_type_is_stored(omm_ggml_type type) {
    return omm_ggml_find((uint32_t)type)->block == 1 || type == OMM_GGML_Q8_0;
}

omm_err omm_lora_save_as(omm_buf *out, double *lost, const omm_lora *lora, omm_ggml_type type) {
    OMM_ASSERT(omm_lora_type_is_stored(type));
    OMM_TRY(check_finite(lora));
    OMM_TRY(check_scales(lora));
    omm_buf values;
    omm_gguf_writer w;
    lora_rounding r = {0};
    omm_buf_init(&values, (size_t)OMM_LORA_VALUES_MAX * sizeof(float));
    omm_gguf_writer_init(&w);
    omm_err err = encode_values(&values, &r, lora, type);
    if (err == OMM_OK) err = write_file(out, &w, lora, &values, type);
    if (err == OMM_OK) *lost = r.all > 0.0 ? sqrt(r.change / r.all) : 0.0;
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&values);
    return err;
}

omm_err omm_lora_save(omm_buf *out, const omm_lora *lora) {
    double lost = 0.0;
    return omm_lora_save_as(out, &lost, lora, OMM_GGML_F32);
}

omm_err omm_lora_save_file(const char *path, const omm_lora *lora) {
    omm_buf file;
    omm_buf_init(&file, SIZE_MAX / 2);
    omm_err err = omm_lora_save(&file, lora);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    return err;
}

omm_err omm_lora_save_fused(omm_buf *out, bool *rounded, const omm_lora *lora, bool rounding) {
    omm_lora stacked;
    *rounded = false;
    if (!lora->shape.fused || lora->shape.stacked) return omm_lora_save(out, lora);
    OMM_TRY(omm_lora_fuse(&stacked, rounded, lora, rounding));
    omm_err err = omm_lora_save(out, &stacked);
    omm_lora_fini(&stacked);
    return err;
}

/* ---- Reading ------------------------------------------------------------------------------- */

bool lora_parse_name(uint32_t *layer, omm_lora_target *target, bool *is_b, const char *name,
                     bool stacked) {
    const omm_lora_shape names = {.stacked = stacked};
    if (strncmp(name, "blk.", 4) != 0) return false;
    const char *p = name + 4;
    uint32_t n = 0;
    if (p[0] < '0' || p[0] > '9' || (p[0] == '0' && p[1] != '.')) return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (uint32_t)(*p - '0');
        if (n >= OMM_LORA_LAYERS_MAX) return false;
    }
    *layer = n;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        for (int b = 0; b < 2; b++) {
            char tail[OMM_GGUF_NAME_MAX];
            snprintf(tail, sizeof tail, ".%s.weight.lora_%c",
                     lora_tensor_stem(&names, (omm_lora_target)t), b ? 'b' : 'a');
            if (strcmp(p, tail) != 0) continue;
            *target = (omm_lora_target)t;
            *is_b = b != 0;
            return true;
        }
    return false;
}

static omm_err check_text(const omm_gguf *g, const char *key, const char *wanted, omm_err code) {
    omm_bytes have = {0};
    OMM_TRY(omm_gguf_get_str(&have, g, key));
    if (omm_bytes_equal(have, omm_bytes_str(wanted))) return OMM_OK;
    return omm_raise(code, "adapter: %s is '%.*s', wanted '%s'", key,
                     (int)(have.size < 60 ? have.size : 60), (const char *)have.data, wanted);
}

static omm_err check_header(const omm_gguf *g, const omm_lora_shape *shape) {
    OMM_TRY(check_text(g, "general.type", "adapter", OMM_ERR_UNSUPPORTED));
    OMM_TRY(check_text(g, "adapter.type", "lora", OMM_ERR_UNSUPPORTED));
    OMM_TRY(check_text(g, "general.architecture", shape->architecture, OMM_ERR_MISMATCH));
    if (omm_gguf_find(g, "adapter.alora.invocation_tokens"))
        return omm_raise(OMM_ERR_UNSUPPORTED, "adapter: activated LoRA is not applied here");
    if (g->tensor_count == 0) return omm_raise(OMM_ERR_NOT_FOUND, "adapter without tensors");
    return OMM_OK;
}

static omm_err misfit(const omm_gguf_tensor *t, uint64_t cols, uint64_t rows) {
    return omm_raise(OMM_ERR_MISMATCH, "adapter: %s is [%llu][%llu], the model wants [%llu][%llu]",
                     t->name, (unsigned long long)t->dims[1], (unsigned long long)t->dims[0],
                     (unsigned long long)rows, (unsigned long long)cols);
}

/* A pair is half there: its size would be believed of one tensor alone. */
static omm_err check_other_half(const omm_gguf *g, const omm_gguf_tensor *t) {
    char other[OMM_GGUF_NAME_MAX];
    snprintf(other, sizeof other, "%s", t->name);
    char *last = other + strlen(other) - 1;
    *last = *last == 'a' ? 'b' : 'a';
    if (omm_gguf_find_tensor(g, other)) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND, "adapter: tensor %s is missing, its other half is there",
                     other);
}

/* Check one tensor and learn its pair's rank from it. */
static omm_err check_tensor(omm_lora_plan *plan, const omm_gguf_tensor *t) {
    const omm_lora_shape *shape = &plan->shape;
    uint32_t layer = 0;
    omm_lora_target target = OMM_LORA_Q;
    bool is_b = false;
    if (!lora_parse_name(&layer, &target, &is_b, t->name, shape->stacked))
        return omm_raise(OMM_ERR_UNSUPPORTED, "adapter: tensor %s: no LoRA pair of a linear layer",
                         t->name);
    if (layer >= shape->layer_count || shape->d_in[target] == 0 || shape->d_out[target] == 0)
        return omm_raise(OMM_ERR_MISMATCH, "adapter: tensor %s: the model has no such layer",
                         t->name);
    if (t->n_dims != 2)
        return omm_raise(OMM_ERR_UNSUPPORTED, "adapter: tensor %s: not a matrix", t->name);
    uint64_t rank = t->dims[is_b ? 0 : 1];
    uint64_t width = is_b ? shape->d_out[target] : shape->d_in[target];
    if (t->dims[is_b ? 1 : 0] != width)
        return is_b ? misfit(t, rank, width) : misfit(t, width, rank);
    if (rank < 1 || rank > OMM_LORA_RANK_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "adapter: tensor %s has rank %llu, accepted are 1 to %u",
                         t->name, (unsigned long long)rank, OMM_LORA_RANK_MAX);
    omm_lora_pair *pair = &plan->pairs[(size_t)layer * OMM_LORA_TARGET_COUNT + target];
    if (pair->rank != 0 && pair->rank != rank)
        return omm_raise(OMM_ERR_MISMATCH, "adapter: tensor %s has rank %llu, its other half %u",
                         t->name, (unsigned long long)rank, pair->rank);
    pair->rank = (uint32_t)rank;
    return OMM_OK;
}

static omm_err copy_values(omm_lora *lora, const omm_lora_tensor *t, const omm_gguf_tensor *from) {
    const size_t stride = omm_rows_stride(from->type, t->cols);
    OMM_ASSERT(from->data.size == stride * t->rows);
    for (size_t row = 0; row < t->rows; row++) {
        const uint8_t *bytes = from->data.data + row * stride;
        const size_t bad = omm_rows_check(from->type, bytes, t->cols);
        if (bad < t->cols)
            return omm_raise(OMM_ERR_NUMERIC, "adapter: %s[%zu] is not finite", t->name,
                             row * t->cols + bad);
        omm_rows_dequantise(lora->values + t->offset + row * t->cols, from->type, bytes, t->cols);
    }
    return OMM_OK;
}

static omm_err fill(omm_lora *lora, const omm_gguf *g) {
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        const omm_gguf_tensor *from = omm_gguf_find_tensor(g, t->name);
        OMM_ASSERT(from); /* check_other_half */
        OMM_TRY(copy_values(lora, t, from));
    }
    return OMM_OK;
}

/* Made for the tensors of a model that stacks: attn_qkv, or an ffn_up as high as gate and up. */
static bool is_stacked(const omm_gguf *g, const omm_lora_shape *shape) {
    if (!shape->fused || shape->stacked) return false;
    for (size_t i = 0; i < g->tensor_count; i++) {
        const omm_gguf_tensor *t = &g->tensors[i];
        uint32_t layer = 0;
        omm_lora_target target = OMM_LORA_Q;
        bool is_b = false;
        if (!lora_parse_name(&layer, &target, &is_b, t->name, true)) continue;
        if (target == OMM_LORA_Q) return true;
        if (target == OMM_LORA_UP && is_b &&
            t->dims[1] == (uint64_t)shape->d_out[OMM_LORA_GATE] + shape->d_out[OMM_LORA_UP])
            return true;
    }
    return false;
}

static omm_err take_own_scales(omm_lora *lora, const omm_gguf *g) {
    const omm_gguf_kv *kv = NULL;
    if (lora->shape.stacked || omm_gguf_find(g, SCALES_KEY) == NULL) return OMM_OK;
    OMM_TRY(omm_gguf_get_array(&kv, g, SCALES_KEY, OMM_GGUF_F32));
    if (kv->count != lora->tensor_count / 2)
        return omm_raise(OMM_ERR_FORMAT, SCALES_KEY " has %llu values, the adapter %zu pairs",
                         (unsigned long long)kv->count, lora->tensor_count / 2);
    for (size_t i = 0; i < kv->count; i++) {
        const float scale = omm_get_f32(kv->data.data + i * sizeof(float));
        omm_lora_tensor *a = &lora->tensors[2 * i];
        if (!isfinite(scale) || scale == 0.0f)
            return omm_raise(OMM_ERR_NUMERIC,
                             SCALES_KEY "[%zu] (%s) is %g: a scale is finite and not zero", i,
                             a->name, (double)scale);
        if (scale != a->scale) a[0].own_scale = a[1].own_scale = scale;
    }
    return OMM_OK;
}

static omm_err load_pairs(omm_lora *made, omm_lora_plan *plan, const omm_gguf *g, float alpha) {
    for (size_t i = 0; i < g->tensor_count; i++) OMM_TRY(check_tensor(plan, &g->tensors[i]));
    for (size_t i = 0; i < g->tensor_count; i++) OMM_TRY(check_other_half(g, &g->tensors[i]));
    const size_t count = (size_t)plan->shape.layer_count * OMM_LORA_TARGET_COUNT;
    for (size_t i = 0; i < count; i++)
        if (plan->pairs[i].rank) plan->pairs[i].scale = lora_file_scale(alpha, plan->pairs[i].rank);
    OMM_TRY(omm_lora_init_plan(made, plan));
    made->spec.alpha = alpha;
    OMM_TRY(take_own_scales(made, g));
    return fill(made, g);
}

static omm_err take_apart(omm_lora *lora, const omm_lora_shape *shape) {
    omm_lora stacked = *lora;
    *lora = (omm_lora){0};
    omm_err err = lora_unfuse(lora, &stacked, shape);
    omm_lora_fini(&stacked);
    return err;
}

static omm_err load(omm_lora *lora, const omm_gguf *g, const omm_lora_shape *shape) {
    const bool stacked = is_stacked(g, shape);
    omm_lora_shape whole = *shape;
    omm_lora_base claimed;
    float alpha = 0.0f;
    OMM_TRY(check_header(g, shape));
    OMM_TRY(omm_lora_base_claim(&claimed, g));
    OMM_TRY(lora_base_meet(&whole.base, &claimed));
    const omm_lora_shape named = stacked ? lora_stacked_shape(&whole) : whole;
    OMM_TRY(omm_gguf_get_f32_or(&alpha, g, "adapter.lora.alpha", 0.0f));
    omm_lora_plan plan;
    omm_lora made = {0};
    OMM_TRY(omm_lora_plan_init(&plan, &named));
    omm_err err = load_pairs(&made, &plan, g, alpha);
    omm_lora_plan_fini(&plan);
    if (err == OMM_OK && stacked) err = take_apart(&made, &whole);
    if (err != OMM_OK) {
        omm_lora_fini(&made);
        return err;
    }
    /* The format reads a missing or zero alpha as a scale of 1; with one rank that has a name. */
    made.spec.alpha = (float)made.spec.rank;
    if (alpha != 0.0f || !omm_lora_is_uniform(&made)) made.spec.alpha = alpha;
    *lora = made;
    return OMM_OK;
}

omm_err omm_lora_load(omm_lora *lora, omm_bytes file, const omm_lora_shape *shape) {
    omm_gguf g = {0};
    OMM_TRY(omm_gguf_open_bytes(&g, file));
    omm_err err = load(lora, &g, shape);
    omm_gguf_close(&g);
    return err;
}

/* Which file it is; what is not found in one that is there is missing from it. */
static omm_err of_file(omm_err err, const char *path) {
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return omm_raise(err == OMM_ERR_NOT_FOUND ? OMM_ERR_FORMAT : err, "%s: %s", path,
                     omm_err_sentence());
}

omm_err omm_lora_load_file(omm_lora *lora, const char *path, const omm_lora_shape *shape) {
    omm_gguf g = {0};
    OMM_TRY(omm_gguf_open(&g, path));
    omm_err err = load(lora, &g, shape);
    omm_gguf_close(&g);
    return of_file(err, path);
}

/* ---- Without the model ---------------------------------------------------------------------- */

omm_err omm_lora_claim_shape(omm_lora_shape *shape, const omm_gguf *gguf) {
    omm_lora_base base;
    OMM_TRY(omm_gguf_get_text(shape->architecture, sizeof shape->architecture, gguf,
                              "general.architecture"));
    OMM_TRY(omm_lora_base_claim(&base, gguf));
    OMM_TRY(lora_base_meet(&shape->base, &base));
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        const omm_gguf_tensor *t = &gguf->tensors[i];
        uint32_t layer = 0;
        omm_lora_target target = OMM_LORA_Q;
        bool is_b = false;
        if (lora_parse_name(&layer, &target, &is_b, t->name, true))
            shape->stacked = shape->stacked || target == OMM_LORA_Q;
        else if (!lora_parse_name(&layer, &target, &is_b, t->name, false))
            continue; /* omm_lora_load refuses */
        OMM_TRY(check_other_half(gguf, t));
        if (layer >= shape->layer_count) shape->layer_count = layer + 1;
        uint32_t *width = is_b ? &shape->d_out[target] : &shape->d_in[target];
        const uint64_t claimed = t->dims[is_b ? 1 : 0];
        if (*width == 0 && claimed <= UINT32_MAX) *width = (uint32_t)claimed;
    }
    if (shape->layer_count == 0)
        return omm_raise(OMM_ERR_UNSUPPORTED, "no adapter: not one LoRA tensor of a linear layer");
    if (shape->stacked &&
        (shape->d_in[OMM_LORA_K] || shape->d_in[OMM_LORA_V] || shape->d_in[OMM_LORA_GATE]))
        return omm_raise(OMM_ERR_MISMATCH,
                         "attn_qkv beside attn_k, attn_v or ffn_gate: `adapter import FILE -m "
                         "MODEL -o FILE` gives both the model's own tensors");
    return OMM_OK;
}

omm_err omm_lora_claim_file(omm_lora_shape *shape, omm_digest *digest, const char *path) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, path));
    const omm_err err = of_file(omm_lora_claim_shape(shape, &gguf), path);
    *digest = omm_gguf_digest(&gguf);
    omm_gguf_close(&gguf);
    return err;
}
