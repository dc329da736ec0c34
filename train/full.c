/* full.c - the list of a model's weights, and moving them between the model and the flat vector. */
#include "full.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

/* --- the list ------------------------------------------------------------------------------ */

static full_tensor *add(full_tensors *t, const char *name, uint32_t rows, uint32_t cols) {
    OMM_ASSERT(t->count < t->capacity);
    full_tensor *x = &t->items[t->count++];
    *x = (full_tensor){.rows = rows, .cols = cols, .offset = t->value_count};
    snprintf(x->name, sizeof x->name, "%s", name);
    t->value_count += (size_t)rows * cols;
    return x;
}

static void add_matrix(full_tensors *t, const char *name, omm_matrix *m) {
    OMM_ASSERT(m->format == OMM_FORMAT_F32 || !m->data); /* of an outline: sizes alone */
    add(t, name, m->rows, m->cols)->matrix = m;
}

static void add_vector(full_tensors *t, const char *name, float *vector, uint32_t n) {
    if (vector) add(t, name, 1, n)->vector = vector;
}

static void add_layer(full_tensors *t, const omm_model *model, uint32_t index) {
    omm_layer *l = &model->layers[index];
    const omm_model_dims *d = &model->dims;
    char name[OMM_GGUF_NAME_MAX];
    for (unsigned w = 0; w < OMM_LORA_TARGET_COUNT; w++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", index,
                 omm_lora_target_tensor((omm_lora_target)w));
        add_matrix(t, name, &l->weights[w]);
    }
    for (unsigned w = 0; w < OMM_LORA_TARGET_COUNT; w++) {
        snprintf(name, sizeof name, "blk.%u.%s.bias", index,
                 omm_lora_target_tensor((omm_lora_target)w));
        add_vector(t, name, l->bias[w], l->weights[w].rows);
    }
    const struct {
        const char *stem;
        float *vector;
        uint32_t n;
    } norms[] = {{"attn_norm", l->attn_norm, d->d_model},
                 {"ffn_norm", l->ffn_norm, d->d_model},
                 {"attn_q_norm", l->q_norm, omm_model_norm_width(d, d->heads)},
                 {"attn_k_norm", l->k_norm, omm_model_norm_width(d, d->kv_heads)},
                 {"post_attention_norm", l->attn_post_norm, d->d_model},
                 {"post_ffw_norm", l->ffn_post_norm, d->d_model}};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", index, norms[i].stem);
        add_vector(t, name, norms[i].vector, norms[i].n);
    }
}

omm_err full_tensors_init(full_tensors *t, omm_model *model) {
    const size_t of_layer = 2 * OMM_LORA_TARGET_COUNT + 6;
    *t = (full_tensors){.capacity = 3 + of_layer * model->dims.layers};
    t->items = omm_alloc(t->capacity, sizeof *t->items);
    if (!t->items)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a list of %zu weights", t->capacity);
    add_matrix(t, "token_embd.weight", &model->embed);
    if (!model->tied) add_matrix(t, "output.weight", &model->output_own);
    add_vector(t, "output_norm.weight", model->output_norm, model->dims.d_model);
    for (uint32_t i = 0; i < model->dims.layers; i++) add_layer(t, model, i);
    return OMM_OK;
}

void full_tensors_fini(full_tensors *t) {
    omm_free(t->items);
    *t = (full_tensors){0};
}

const full_tensor *full_tensor_at(const full_tensors *t, const void *weight) {
    size_t i = 0;
    while (i < t->count && t->items[i].matrix != weight && t->items[i].vector != weight) i++;
    OMM_ASSERT(weight && i < t->count);
    return &t->items[i];
}

const full_tensor *full_tensor_named(const full_tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->items[i].name, name) == 0) return &t->items[i];
    return NULL;
}

/* --- to F32 ---------------------------------------------------------------------------------- */

static omm_err thaw(omm_matrix *m) {
    if (m->format == OMM_FORMAT_F32) return OMM_OK;
    omm_matrix wide = {0};
    float *values = omm_alloc((size_t)m->rows * m->cols, sizeof *values);
    omm_err err = OMM_OK;
    if (!values) err = omm_raise(OMM_ERR_NOMEM, "no memory for %u x %u weights", m->rows, m->cols);
    for (uint32_t i = 0; i < m->rows && err == OMM_OK; i++)
        omm_matrix_row(values + (size_t)i * m->cols, m, i);
    if (err == OMM_OK) err = omm_matrix_pack_f32(&wide, m->rows, m->cols, values);
    omm_free(values);
    OMM_TRY(err);
    omm_matrix_fini(m);
    *m = wide;
    return OMM_OK;
}

omm_err full_thaw(omm_model *model) {
    OMM_TRY(thaw(&model->embed));
    if (!model->tied) OMM_TRY(thaw(&model->output_own));
    for (uint32_t i = 0; i < model->dims.layers; i++)
        for (unsigned w = 0; w < OMM_LORA_TARGET_COUNT; w++)
            OMM_TRY(thaw(&model->layers[i].weights[w]));
    return OMM_OK;
}

/* --- model and vector ---------------------------------------------------------------------- */

void full_read(float *values, const full_tensors *t) {
    for (size_t i = 0; i < t->count; i++) {
        const full_tensor *x = &t->items[i];
        float *to = values + x->offset;
        if (x->vector) memcpy(to, x->vector, x->cols * sizeof *to);
        for (uint32_t row = 0; x->matrix && row < x->rows; row++)
            omm_matrix_row(to + (size_t)row * x->cols, x->matrix, row);
    }
}

typedef struct write_job {
    const full_tensors *tensors;
    const float *values;
} write_job;

/* The F32 strip layout of omm/quant.h: [strip][column][16], lane = row. */
static void write_strip(const omm_matrix *m, uint32_t s, const float *values) {
    float *strip = (float *)(void *)(m->data + s * m->strip_bytes);
    uint32_t first = s * OMM_STRIP, rows = m->rows - first;
    if (rows > OMM_STRIP) rows = OMM_STRIP;
    for (uint32_t lane = 0; lane < rows; lane++)
        for (uint32_t col = 0; col < m->cols; col++)
            strip[(size_t)col * OMM_STRIP + lane] = values[(size_t)(first + lane) * m->cols + col];
}

static void write_task(void *ud, size_t task, unsigned worker) {
    (void)worker;
    const write_job *job = ud;
    const full_tensor *x = &job->tensors->items[task];
    const float *values = job->values + x->offset;
    if (x->vector) memcpy(x->vector, values, x->cols * sizeof *values);
    for (uint32_t s = 0; x->matrix && s < x->matrix->strips; s++) write_strip(x->matrix, s, values);
}

void full_write(const omm_compute *c, const full_tensors *t, const float *values) {
    write_job job = {t, values};
    omm_pool_run(c->pool, write_task, &job, t->count);
}
