/* optimizer.c - SGD and Adafactor, and the choice between them and AdamW. */
#include "optimizer.h"

#include "adamw.h"

#include <math.h>

/* Adafactor: keeps a row or column without gradient finite, and a tensor of zeros moving. */
static const double s_square_floor = 1e-30;
static const double s_size_floor = 1e-3;

static bool is_frozen(const omm_recipe *recipe, const omm_lora_tensor *x) {
    return recipe->parts == (uint32_t)(x->is_b ? OMM_RECIPE_PARTS_A : OMM_RECIPE_PARTS_B);
}

/* Of one tensor. */
static optimizer_sizes state_of(const omm_recipe *recipe, const omm_lora_tensor *x) {
    const size_t size = (size_t)x->rows * x->cols;
    if (is_frozen(recipe, x)) return (optimizer_sizes){0, 0};
    if (recipe->optimizer == OMM_RECIPE_ADAMW) return (optimizer_sizes){size, size};
    if (recipe->optimizer == OMM_RECIPE_SGD) return (optimizer_sizes){size, 0};
    return (optimizer_sizes){0, (size_t)x->rows + x->cols};
}

optimizer_sizes optimizer_sizes_of(const omm_recipe *recipe, const omm_lora *lora) {
    optimizer_sizes sizes = {0};
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const optimizer_sizes one = state_of(recipe, &lora->tensors[i]);
        sizes.m += one.m;
        sizes.v += one.v;
    }
    return sizes;
}

/* --- SGD ------------------------------------------------------------------------------------- */

void optimizer_sgd(const optimizer_tensor *t, const omm_recipe *recipe, float rate) {
    const float momentum = recipe->momentum, decay = recipe->weight_decay;
    for (size_t i = 0; i < t->rows * t->cols; i++) {
        float g = t->gradient[i], w = t->values[i];
        float m = momentum * t->m[i] + g;
        float move = recipe->nesterov ? g + momentum * m : m;
        t->m[i] = m;
        t->values[i] = w - rate * (move + decay * w);
    }
}

/* --- Adafactor ------------------------------------------------------------------------------- */

static double power(double base, uint32_t n) {
    double product = 1;
    for (; n; n >>= 1) {
        if (n & 1U) product *= base;
        base *= base;
    }
    return product;
}

static double rms(const float *x, size_t count) {
    return adamw_norm(x, count) / sqrt((double)count);
}

/* The running means of the squares: v = rows, then columns. */
static void factor_squares(const optimizer_tensor *t, double beta2, uint32_t step) {
    const double corrected = 1 - power(beta2, step);
    const double keep = beta2 * (1 - power(beta2, step - 1)) / corrected;
    const double take = (1 - beta2) / corrected;
    float *const rows = t->v, *const cols = t->v + t->rows;
    for (size_t r = 0; r < t->rows; r++) {
        double norm = adamw_norm(t->gradient + r * t->cols, t->cols);
        double mean = norm * norm / (double)t->cols + s_square_floor;
        rows[r] = (float)(keep * (double)rows[r] + take * mean);
    }
    for (size_t c = 0; c < t->cols; c++) {
        double sum = 0;
        for (size_t r = 0; r < t->rows; r++) {
            double g = (double)t->gradient[r * t->cols + c];
            sum += g * g;
        }
        double mean = sum / (double)t->rows + s_square_floor;
        cols[c] = (float)(keep * (double)cols[c] + take * mean);
    }
}

/* gradient = gradient / sqrt(R C / mean(R)) */
static void normalise(const optimizer_tensor *t) {
    const float *const rows = t->v, *const cols = t->v + t->rows;
    double mean = 0;
    for (size_t r = 0; r < t->rows; r++) mean += (double)rows[r];
    mean /= (double)t->rows;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->cols; c++) {
            float *g = &t->gradient[r * t->cols + c];
            *g = (float)((double)*g / sqrt((double)rows[r] * (double)cols[c] / mean));
        }
}

void optimizer_adafactor(const optimizer_tensor *t, const omm_recipe *recipe, float rate,
                         uint32_t step) {
    const size_t count = t->rows * t->cols;
    factor_squares(t, (double)recipe->beta2, step);
    normalise(t);
    double size = rms(t->gradient, count);
    const float scale = size > 1 ? (float)(1 / size) : 1, decay = recipe->weight_decay;
    if (recipe->relative_step)
        rate = (float)((double)rate * fmax(s_size_floor, rms(t->values, count)));
    for (size_t i = 0; i < count; i++) {
        float w = t->values[i];
        t->values[i] = w - rate * (scale * t->gradient[i] + decay * w);
    }
}

/* --- all ------------------------------------------------------------------------------------- */

void optimizer_one(const optimizer_tensor *t, const omm_recipe *recipe, float rate, uint32_t step) {
    adamw_state s = {.values = t->values, .m = t->m, .v = t->v, .gradient = t->gradient};
    s.count = t->rows * t->cols;
    switch (recipe->optimizer) {
    case OMM_RECIPE_SGD: optimizer_sgd(t, recipe, rate); break;
    case OMM_RECIPE_ADAFACTOR: optimizer_adafactor(t, recipe, rate, step); break;
    default: adamw_update(&s, recipe, rate, step, 0, s.count); break;
    }
}

optimizer_part optimizer_part_after(const optimizer_part *before, const omm_recipe *recipe,
                                    const omm_lora *lora, size_t values) {
    optimizer_part part = {before->end, before->end, before->m_at, before->v_at};
    for (size_t i = before->first; i < before->end; i++) {
        const optimizer_sizes state = state_of(recipe, &lora->tensors[i]);
        part.m_at += state.m;
        part.v_at += state.v;
    }
    for (size_t taken = 0; part.end < lora->tensor_count && taken < values; part.end++)
        taken += (size_t)lora->tensors[part.end].rows * lora->tensors[part.end].cols;
    return part;
}

/* NOLINTBEGIN(readability-non-const-parameter): optimizer_one writes */
void optimizer_update(omm_lora *lora, float *gradient, float *m, float *v,
                      const optimizer_part *part, const omm_recipe *recipe, float rate,
                      uint32_t step) {
    /* NOLINTEND(readability-non-const-parameter) */
    const float rate_b = recipe->b_rate_ratio > 0 ? rate * recipe->b_rate_ratio : rate;
    m += part->m_at;
    v += part->v_at;
    for (size_t i = part->first; i < part->end; i++) {
        const omm_lora_tensor *x = &lora->tensors[i];
        const optimizer_sizes state = state_of(recipe, x);
        const optimizer_tensor t = {.values = lora->values + x->offset,
                                    .gradient = gradient + x->offset,
                                    .m = m,
                                    .v = v,
                                    .rows = x->rows,
                                    .cols = x->cols};
        if (!is_frozen(recipe, x)) optimizer_one(&t, recipe, x->is_b ? rate_b : rate, step);
        m += state.m;
        v += state.v;
    }
}
