/* lora_fold.c - one alpha for all pairs of an adapter, the rest of each scale in B. */
#include "lora_internal.h"

#include <math.h>

enum { CANDIDATES_MAX = 64 }; /* patterns have a handful of different scales */

/* The nearest to the product; where any alpha gives the scale, this one does: its quotient is no farther from it. */
float lora_alpha_for(float scale, uint32_t rank) {
    return scale * (float)rank;
}

/* What B of this pair must be multiplied by, in f64: both are f32. */
static double factor_of(const omm_lora_tensor *b, float alpha) {
    return (double)b->scale / (double)lora_file_scale(alpha, b->cols);
}

static bool is_power_of_two(double x) {
    int exponent = 0;
    return fabs(frexp(x, &exponent)) == 0.5;
}

/* Multiplying and rounding this B by the factor loses nothing. */
static bool is_exact(const omm_lora *lora, const omm_lora_tensor *b, double factor) {
    if (factor == 1.0) return true;
    if (!is_power_of_two(factor)) return false;
    for (size_t i = 0; i < (size_t)b->rows * b->cols; i++) {
        const double wanted = (double)lora->values[b->offset + i] * factor;
        if ((double)(float)wanted != wanted) return false;
    }
    return true;
}

/* The first B that alpha does not serve exactly, or, with `untouched`, not without a change;
 * NULL: all are served. */
static const omm_lora_tensor *first_unserved(const omm_lora *lora, float alpha, bool untouched) {
    for (size_t i = 1; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i];
        const double factor = factor_of(b, alpha);
        if (untouched ? factor != 1.0 : !is_exact(lora, b, factor)) return b;
    }
    return NULL;
}

/* Different alphas worth trying, the present one first, then each pair's own. */
static size_t candidates(float out[CANDIDATES_MAX], const omm_lora *lora) {
    size_t count = 0;
    out[count++] = lora->spec.alpha;
    for (size_t i = 0; i < lora->tensor_count && count < CANDIDATES_MAX - 1; i += 2) {
        const omm_lora_tensor *a = &lora->tensors[i];
        const float alpha = a->scale == 1.0f ? 0.0f : lora_alpha_for(a->scale, a->rows);
        bool known = !isfinite(alpha) || (alpha == 0.0f && a->scale != 1.0f);
        for (size_t k = 0; k < count && !known; k++) known = out[k] == alpha;
        if (!known) out[count++] = alpha;
    }
    bool has_zero = false;
    for (size_t k = 0; k < count; k++) has_zero = has_zero || out[k] == 0.0f;
    if (!has_zero) out[count++] = 0.0f; /* a scale of 1 for all: each pair's own goes into B */
    return count;
}

static omm_err check_factor(const omm_lora *lora, const omm_lora_tensor *b, double factor) {
    for (size_t v = 0; v < (size_t)b->rows * b->cols; v++)
        if (!isfinite((float)((double)lora->values[b->offset + v] * factor)))
            return omm_raise(OMM_ERR_NUMERIC,
                             "LoRA %s[%zu] times %g leaves the range of f32: its scale does "
                             "not fit into B",
                             b->name, v, factor);
    return OMM_OK;
}

static omm_err check_range(const omm_lora *lora, float alpha) {
    for (size_t i = 1; i < lora->tensor_count; i += 2)
        OMM_TRY(check_factor(lora, &lora->tensors[i], factor_of(&lora->tensors[i], alpha)));
    return OMM_OK;
}

static void multiply(omm_lora *lora, const omm_lora_tensor *b, double factor) {
    for (size_t v = 0; factor != 1.0 && v < (size_t)b->rows * b->cols; v++)
        lora->values[b->offset + v] = (float)((double)lora->values[b->offset + v] * factor);
}

static void apply(omm_lora *lora, float alpha) {
    for (size_t i = 0; i < lora->tensor_count; i += 2) {
        omm_lora_tensor *a = &lora->tensors[i];
        omm_lora_tensor *b = &lora->tensors[i + 1];
        const double factor = factor_of(b, alpha);
        if (factor != 1.0 && a->own_scale == 0.0f) a->own_scale = b->own_scale = b->scale;
        multiply(lora, b, factor);
        a->scale = b->scale = lora_file_scale(alpha, b->cols);
    }
    lora->spec.alpha = alpha;
}

omm_err omm_lora_fold(bool *rounded, omm_lora *lora, bool rounding) {
    float alphas[CANDIDATES_MAX];
    const size_t count = candidates(alphas, lora);
    OMM_ASSERT(count >= 1);
    for (size_t i = 0; i < 2 * count; i++) {
        if (first_unserved(lora, alphas[i % count], i < count)) continue;
        apply(lora, alphas[i % count]);
        *rounded = false;
        return OMM_OK;
    }
    const omm_lora_tensor *bad = first_unserved(lora, alphas[0], false);
    if (!rounding)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "LoRA %s: its scale %.9g and that of another pair differ by no power of "
                         "two, and the file has one alpha: it fits only with rounding of B",
                         bad->name, (double)bad->scale);
    OMM_TRY(check_range(lora, alphas[0]));
    apply(lora, alphas[0]);
    *rounded = true;
    return OMM_OK;
}

static double unfold_factor_of(const omm_lora_tensor *b) {
    return b->own_scale == 0.0f ? 1.0 : (double)b->scale / (double)b->own_scale;
}

/* Pair of A at `i`. */
static void unfold(omm_lora *lora, size_t i) {
    omm_lora_tensor *a = &lora->tensors[i], *b = &lora->tensors[i + 1];
    if (b->own_scale == 0.0f) return;
    multiply(lora, b, unfold_factor_of(b));
    a->scale = b->scale = b->own_scale;
    a->own_scale = b->own_scale = 0.0f;
}

void omm_lora_unfold_exact(size_t *left, omm_lora *lora) {
    *left = 0;
    for (size_t i = 0; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i + 1];
        if (is_exact(lora, b, unfold_factor_of(b)))
            unfold(lora, i);
        else
            ++*left;
    }
}

omm_err omm_lora_unfold(omm_lora *lora) {
    for (size_t i = 1; i < lora->tensor_count; i += 2)
        OMM_TRY(check_factor(lora, &lora->tensors[i], unfold_factor_of(&lora->tensors[i])));
    for (size_t i = 0; i < lora->tensor_count; i += 2) unfold(lora, i);
    return OMM_OK;
}
