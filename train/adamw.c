#include "adamw.h"

#include <math.h>

double adamw_norm(const float *gradient, size_t count) {
    double lanes[16] = {0}; /* the 16 virtual lanes and the tree of docs/design.md section 3 */
    const size_t whole = count / 16 * 16;
    for (size_t i = 0; i < whole; i += 16)
        for (size_t k = 0; k < 16; k++)
            lanes[k] += (double)gradient[i + k] * (double)gradient[i + k];
    for (size_t i = whole; i < count; i++)
        lanes[i - whole] += (double)gradient[i] * (double)gradient[i];
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return sqrt(lanes[0]);
}

void adamw_prox(adamw_state *s, float mu, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        s->gradient[i] = fmaf(mu, s->values[i] - s->start[i], s->gradient[i]);
}

void adamw_clip(adamw_state *s, double norm, float limit) {
    if (limit <= 0 || norm <= (double)limit) return;
    float scale = (float)((double)limit / norm);
    for (size_t i = 0; i < s->count; i++) s->gradient[i] *= scale;
}

float adamw_correction(float beta, uint32_t step) {
    double power = 1, base = (double)beta;
    for (uint32_t n = step; n; n >>= 1) {
        if (n & 1U) power *= base;
        base *= base;
    }
    return (float)(1 - power);
}

void adamw_update(adamw_state *s, const omm_recipe *recipe, float rate, uint32_t step, size_t from,
                  size_t to) {
    const float b1 = recipe->beta1, b2 = recipe->beta2, decay = recipe->weight_decay;
    const float c1 = adamw_correction(b1, step), c2 = adamw_correction(b2, step);
    const float one_b1 = 1 - b1, one_b2 = 1 - b2, epsilon = recipe->epsilon;
    float *restrict const values = s->values, *restrict const ms = s->m, *restrict const vs = s->v;
    const float *restrict const gradient = s->gradient;
    for (size_t i = from; i < to; i++) {
        float g = gradient[i], w = values[i];
        float m = b1 * ms[i] + one_b1 * g;
        float v = b2 * vs[i] + one_b2 * (g * g);
        float move = (m / c1) / (sqrtf(v / c2) + epsilon) + decay * w;
        ms[i] = m;
        vs[i] = v;
        values[i] = w - rate * move;
    }
}
