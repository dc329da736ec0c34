/* lora_join.c - several adapters as one of the sum of their ranks. */
#include "lora_internal.h"

#include <math.h>
#include <string.h>

typedef struct joining {
    const omm_lora *const *parts;
    const float *weights;
    size_t count;
    bool rounding, rounded;
} joining;

static const omm_lora_tensor *a_of(const omm_lora *lora, uint32_t layer, omm_lora_target target) {
    ptrdiff_t i = omm_lora_find_index(lora, layer, target);
    return i < 0 ? NULL : &lora->tensors[i];
}

static omm_err check_parts(const joining *j) {
    OMM_ASSERT(j->count >= 1);
    for (size_t i = 0; i < j->count; i++) {
        if (!isfinite(j->weights[i]) || j->weights[i] == 0.0f)
            return omm_raise(OMM_ERR_CONFIG, "weight of adapter %zu must be finite and not zero",
                             i + 1);
        const omm_lora_shape *a = &j->parts[i]->shape, *b = &j->parts[0]->shape;
        if (a->layer_count != b->layer_count || memcmp(a->d_in, b->d_in, sizeof a->d_in) != 0 ||
            memcmp(a->d_out, b->d_out, sizeof a->d_out) != 0 ||
            strcmp(a->architecture, b->architecture) != 0)
            return omm_raise(OMM_ERR_MISMATCH, "adapter %zu was made for a model of other shape",
                             i + 1);
    }
    return OMM_OK;
}

/* Ranks add; the first part that has the pair sets the scale. */
static omm_err plan_pairs(omm_lora_plan *plan, const joining *j) {
    for (size_t at = 0; at < (size_t)plan->shape.layer_count * OMM_LORA_TARGET_COUNT; at++)
        for (size_t i = 0; i < j->count; i++) {
            const omm_lora_tensor *a = a_of(j->parts[i], (uint32_t)(at / OMM_LORA_TARGET_COUNT),
                                            (omm_lora_target)(at % OMM_LORA_TARGET_COUNT));
            if (!a) continue;
            if (plan->pairs[at].rank == 0) plan->pairs[at].scale = a->scale * j->weights[i];
            plan->pairs[at].rank += a->rows;
            if (plan->pairs[at].rank > OMM_LORA_RANK_MAX)
                return omm_raise(OMM_ERR_CONFIG, "%s: the ranks add up to over %u", a->name,
                                 OMM_LORA_RANK_MAX);
        }
    return OMM_OK;
}

/* One part's columns of B, times what its scale has more than the joined one's. */
static omm_err copy_b(joining *j, omm_lora *out, const omm_lora_tensor *to, size_t column,
                      const omm_lora *part, const omm_lora_tensor *from, float weight) {
    const double factor = (double)from->scale * (double)weight / (double)to->scale;
    for (size_t row = 0; row < from->rows; row++)
        for (size_t col = 0; col < from->cols; col++) {
            const double wanted =
                (double)part->values[from->offset + row * from->cols + col] * factor;
            const float v = (float)wanted;
            if (!isfinite(v))
                return omm_raise(OMM_ERR_NUMERIC, "%s[%zu][%zu] leaves the range of f32",
                                 from->name, row, col);
            if ((double)v != wanted) j->rounded = true;
            out->values[to->offset + row * to->cols + column + col] = v;
        }
    return OMM_OK;
}

static omm_err fill_pair(joining *j, omm_lora *out, const omm_lora_tensor *to) {
    size_t done = 0;
    for (size_t i = 0; i < j->count; i++) {
        const omm_lora *part = j->parts[i];
        const omm_lora_tensor *a = a_of(part, to->layer, to->target);
        if (!a) continue;
        memcpy(out->values + to->offset + done * a->cols, part->values + a->offset,
               (size_t)a->rows * a->cols * sizeof(float));
        OMM_TRY(copy_b(j, out, to + 1, done, part, a + 1, j->weights[i]));
        if (j->rounded && !j->rounding)
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             "%s: scales times weights of the adapters differ by no power of two: "
                             "they join only with rounding of B",
                             to[1].name);
        done += a->rows;
    }
    return OMM_OK;
}

/* What all say that say it; what a part is to be used on that says nothing is not known. */
static void take_base(omm_lora *made, const joining *j) {
    omm_lora_base *base = &made->shape.base;
    *base = (omm_lora_base){0};
    for (size_t i = 0; i < j->count; i++) {
        const omm_lora_base *part = &j->parts[i]->shape.base;
        if (lora_base_meet(base, part) == OMM_OK) continue;
        *base = (omm_lora_base){0};
        return;
    }
}

/* As the scale: of the first part that has the pair. */
static void take_own_scales(omm_lora *made, const joining *j) {
    for (size_t i = 0; i < made->tensor_count; i += 2) {
        omm_lora_tensor *to = &made->tensors[i];
        const omm_lora_tensor *from = NULL;
        for (size_t part = 0; part < j->count && !from; part++) {
            from = a_of(j->parts[part], to->layer, to->target);
            const float own = from ? from->own_scale * j->weights[part] : 0.0f;
            to[0].own_scale = to[1].own_scale = isfinite(own) ? own : 0.0f;
        }
    }
}

static omm_err join(omm_lora *made, omm_lora_plan *plan, joining *j) {
    OMM_TRY(plan_pairs(plan, j));
    OMM_TRY(omm_lora_init_plan(made, plan));
    for (size_t i = 0; i < made->tensor_count; i += 2)
        OMM_TRY(fill_pair(j, made, &made->tensors[i]));
    take_own_scales(made, j);
    take_base(made, j);
    bool rounded = false;
    OMM_TRY(omm_lora_fold(&rounded, made, j->rounding));
    j->rounded = j->rounded || rounded;
    return OMM_OK;
}

omm_err omm_lora_join(omm_lora *out, bool *rounded, const omm_lora *const *parts,
                      const float *weights, size_t count, bool rounding) {
    joining j = {.parts = parts, .weights = weights, .count = count, .rounding = rounding};
    omm_lora_plan plan = {0};
    omm_lora made = {0};
    OMM_TRY(check_parts(&j));
    OMM_TRY(omm_lora_plan_init(&plan, &parts[0]->shape));
    omm_err err = join(&made, &plan, &j);
    omm_lora_plan_fini(&plan);
    if (err != OMM_OK) {
        omm_lora_fini(&made);
        return err;
    }
    *out = made;
    *rounded = j.rounded;
    return OMM_OK;
}
