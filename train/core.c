/* core.c - see core.h. */
#include "core.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One C per B, side by side. */
static void lay_out(core *k, const omm_lora *lora) {
    for (size_t i = 1; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i];
        omm_lora_tensor *c = &k->c.tensors[k->c.tensor_count++];
        *c = *b;
        snprintf(c->name, sizeof c->name, "blk.%u.%s.core", b->layer,
                 omm_lora_target_tensor(b->target));
        c->is_b = false;
        c->rows = b->cols;
        c->offset = k->c.value_count;
        k->c.value_count += (size_t)c->rows * c->cols;
        k->b_count += (size_t)b->rows * b->cols;
    }
}

omm_err core_layout(core *k, const omm_lora *lora) {
    *k = (core){0};
    k->c.tensors = omm_alloc(lora->tensor_count / 2, sizeof *k->c.tensors);
    if (!k->c.tensors) return omm_raise(OMM_ERR_NOMEM, "no memory for cores");
    lay_out(k, lora);
    return OMM_OK;
}

static omm_err take_memory(core *k, const omm_lora *lora) {
    OMM_TRY(core_layout(k, lora));
    k->c.values = omm_alloc_aligned(k->c.value_count, sizeof *k->c.values);
    k->gradient = omm_alloc_aligned(k->c.value_count, sizeof *k->gradient);
    k->b = omm_alloc_aligned(k->b_count, sizeof *k->b);
    if (!k->c.values || !k->gradient || !k->b)
        return omm_raise(OMM_ERR_NOMEM, "no memory for cores of %zu values", k->c.value_count);
    return OMM_OK;
}

static void randomise(omm_lora *lora, const omm_rng *lane) {
    for (size_t i = 1; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i];
        const float width = sqrtf((float)b->rows);
        const size_t end = b->offset + (size_t)b->rows * b->cols;
        for (size_t v = b->offset; v < end; v++)
            lora->values[v] = (2.0F * omm_rng_unit(lane, v) - 1.0F) / width;
    }
}

/* Whether any of them is not zero. */
static bool take_halves(core *k, const omm_lora *lora) {
    size_t at = 0;
    bool any = false;
    for (size_t i = 1; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i];
        const size_t size = (size_t)b->rows * b->cols;
        memcpy(k->b + at, lora->values + b->offset, size * sizeof(float));
        for (size_t v = 0; v < size && !any; v++) any = k->b[at + v] != 0;
        at += size;
    }
    return any;
}

static void identity(core *k) {
    for (size_t i = 0; i < k->c.tensor_count; i++) {
        const omm_lora_tensor *c = &k->c.tensors[i];
        for (size_t d = 0; d < c->rows; d++) k->c.values[c->offset + d * c->cols + d] = 1;
    }
}

omm_err core_init(core *k, omm_lora *lora, const omm_rng *lane, const float *c,
                  const omm_compute *compute) {
    OMM_TRY(take_memory(k, lora));
    if (lane) randomise(lora, lane);
    if (!take_halves(k, lora))
        return omm_raise(OMM_ERR_CONFIG,
                         "parts: core from a start adapter whose B is zero: no core "
                         "between its halves would change anything");
    if (c)
        memcpy(k->c.values, c, k->c.value_count * sizeof *c);
    else if (!lane)
        identity(k);
    core_apply(k, lora, compute);
    return OMM_OK;
}

void core_fini(core *k) {
    omm_free(k->c.tensors);
    omm_free(k->c.values);
    omm_free(k->gradient);
    omm_free(k->b);
    *k = (core){0};
}

void core_apply(const core *k, omm_lora *lora, const omm_compute *compute) {
    const float *b = k->b;
    for (size_t i = 0; i < k->c.tensor_count; i++) {
        const omm_lora_tensor *to = &lora->tensors[2 * i + 1];
        const float *c = k->c.values + k->c.tensors[i].offset;
        const size_t m = to->rows, r = to->cols;
        omm_gemm_nn(compute, &(omm_gemm){lora->values + to->offset, b, c, m, r, r, r, r, r, false});
        b += m * r;
    }
}

void core_backward(core *k, const omm_lora *lora, const float *gradient,
                   const omm_compute *compute) {
    const float *b = k->b;
    for (size_t i = 0; i < k->c.tensor_count; i++) {
        const omm_lora_tensor *from = &lora->tensors[2 * i + 1];
        float *dc = k->gradient + k->c.tensors[i].offset;
        const size_t m = from->rows, r = from->cols;
        omm_gemm_tn(compute, &(omm_gemm){dc, b, gradient + from->offset, r, r, m, r, r, r, false});
        b += m * r;
    }
}
