/* model_rope.c - the rotary table of a model: frequencies under each kind of scaling. */
#include "omm/mathd.h"
#include "omm/model.h"

static const double PI = 3.14159265358979323846;

/* The pair index at which a wave turns `turns` times over the original context. */
static double yarn_pair(const omm_model_dims *d, double turns) {
    const double waves = (double)d->rope_context / (turns * 2.0 * PI);
    return (double)d->rotated * omm_log_d(waves) / (2.0 * omm_log_d(d->rope_base));
}

static double floor_of(double x) { /* |x| < 2^31 */
    double whole = (double)(int64_t)x;
    return whole > x ? whole - 1.0 : whole;
}

static double clamped(double x, double low, double high) {
    if (x < low) return low;
    return x > high ? high : x;
}

/* Fast waves stay, slow ones are stretched, those between are mixed (arXiv 2309.00071). */
static void yarn(double *frequency, const omm_model_dims *d) {
    const double last = (double)d->rotated - 1.0;
    const double low = clamped(floor_of(yarn_pair(d, d->yarn_beta_fast)), 0.0, last);
    const double high = clamped(-floor_of(-yarn_pair(d, d->yarn_beta_slow)), 0.0, last);
    const double width = high - low > 0.001 ? high - low : 0.001;
    for (uint32_t i = 0; i < d->rotated / 2; i++) {
        const double stretched = clamped(((double)i - low) / width, 0.0, 1.0);
        frequency[i] *= (1.0 - stretched) + stretched / d->rope_factor;
    }
}

bool omm_model_rope_far(const omm_model *model, uint32_t positions) {
    return model->dims.rope_scaling == OMM_ROPE_SCALING_LONG &&
           positions > model->dims.rope_context;
}

omm_err omm_model_rope(omm_rope *rope, const omm_model *model, uint32_t positions, bool far,
                       bool local) {
    const omm_model_dims *d = &model->dims;
    const bool scaled = !local || !d->rope_local;
    const float *factors = far ? model->rope_factors_long : model->rope_factors;
    double frequency[OMM_HEAD_DIM_MAX / 2], magnitude = d->rope_magnitude;
    omm_rope_frequencies(frequency, d->rotated, local ? d->rope_base_local : d->rope_base);
    for (uint32_t i = 0; scaled && i < d->rotated / 2; i++) {
        if (d->rope_scaling == OMM_ROPE_SCALING_LINEAR) frequency[i] *= 1.0 / d->rope_factor;
        if (factors) frequency[i] /= (double)factors[i];
    }
    if (scaled && d->rope_scaling == OMM_ROPE_SCALING_YARN) {
        yarn(frequency, d);
        const double stretch = 0.1 * omm_log_d(d->rope_factor);
        magnitude *= (1.0 + stretch) / (1.0 + d->yarn_log_multiplier * stretch);
    }
    omm_rope_spec spec = {.style = d->rope_style,
                          .positions = positions,
                          .head_dim = d->head_dim,
                          .rotated = d->rotated,
                          .frequency = frequency,
                          .magnitude = magnitude};
    return omm_rope_init(rope, &spec);
}

float omm_model_temperature(const omm_model_dims *d, uint32_t position) {
    if (d->temperature <= 0.0 || position < d->rope_context) return 1.0f;
    const uint32_t spans = position / d->rope_context;
    return (float)(1.0 + d->temperature * omm_log_d(1.0 + (double)spans));
}
