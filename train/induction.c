/* induction.c - see induction.h. */
#include "induction.h"

#include "omm/mathd.h"

#include <math.h>

enum { PAIRS = 3 }; /* of rotary values that tell positions: the fastest */

static const float s_embedding = 2.5F; /* times the usual deviation: also the common part */
static const double s_position = 4.1;  /* of a q or k value that tells positions, after the norm */
static const double s_seen = 1.44;     /* deviation of a value of P x */
static const float s_rest = 0.25F;     /* what is left of drawn q and k beside the position */
static const float s_query = 1.4F, s_match = 2.0F, s_expected = 0.1F;

omm_err induction_check(const omm_pretrain_model *shape) {
    const uint32_t head = shape->width / shape->heads;
    if (shape->layers >= INDUCTION_LAYERS && shape->kv_heads >= 2 && head >= 2 * PAIRS)
        return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "model: start: induction in %u layers, %u kv_heads, heads of %u values; "
                     "accepted: at least 2, 2 and %d, or start: random",
                     shape->layers, shape->kv_heads, head, 2 * PAIRS);
}

void induction_embeddings(float *embeddings, size_t count, const omm_pretrain_model *shape) {
    const float common = (float)shape->deviation;
    for (size_t i = 0; i < count; i++) embeddings[i] = s_embedding * (embeddings[i] + common);
}

/* Blind to the common part, and of one strength whatever the width. */
static void make_projection(float *w, size_t rows, const omm_pretrain_model *shape) {
    const size_t cols = shape->width;
    const float scale = (float)(s_seen / sqrt((double)cols) / shape->deviation);
    for (size_t row = 0; row < rows; row++) {
        float *x = w + row * cols;
        double sum = 0;
        for (size_t c = 0; c < cols; c++) sum += (double)x[c];
        const float mean = (float)(sum / (double)cols);
        for (size_t c = 0; c < cols; c++) x[c] = scale * (x[c] - mean);
    }
}

static void add_position(float *row, size_t cols, double value) {
    for (size_t c = 0; c < cols; c++) row[c] = s_rest * row[c] + (float)value;
}

/* One query head that looks a token back: its position pairs point along the key's, which is turned by one
 * position.  The sum of a normalised row's values is width / sqrt(2): half of it is the common part. */
static void look_back(float *q, float *k, const omm_pretrain_model *shape) {
    const size_t cols = shape->width, head = cols / shape->heads;
    const double a = s_position * sqrt(2.0) / (double)cols;
    for (size_t j = 0; j < head; j++) {
        const size_t pair = j / 2;
        const bool tells = pair < PAIRS;
        const double turn = omm_pow_d(shape->rope_base, -2.0 * (double)pair / (double)head);
        add_position(q + j * cols, cols, tells && j % 2 == 0 ? a : 0);
        if (!k) continue;
        const double along = j % 2 == 0 ? omm_cos_d(turn) : omm_sin_d(turn);
        add_position(k + j * cols, cols, tells ? a * along : 0);
    }
}

/* Rows `to` become columns `from` of out, or the other way round: [head][cols], out [cols][cols]. */
static void take_columns(float *to, const float *from, size_t first, size_t head, size_t cols) {
    for (size_t j = 0; j < head; j++)
        for (size_t c = 0; c < cols; c++) to[j * cols + c] = s_match * from[c * cols + first + j];
}

static void put_columns(float *to, const float *from, size_t first, size_t head, size_t cols) {
    for (size_t j = 0; j < head; j++)
        for (size_t c = 0; c < cols; c++)
            to[c * cols + first + j] = s_expected * from[j * cols + c];
}

static void scale_columns(float *w, size_t first, size_t count, size_t cols) {
    for (size_t c = 0; c < cols; c++)
        for (size_t j = 0; j < count; j++) w[c * cols + first + j] *= s_embedding;
}

/* Key-value head g of both layers, and the query heads that share it. */
static void put_head(induction_layer layers[INDUCTION_LAYERS], size_t g,
                     const omm_pretrain_model *shape) {
    const induction_layer one = layers[0], two = layers[1];
    const size_t cols = shape->width, head = cols / shape->heads;
    const size_t group = shape->heads / shape->kv_heads, kv = g * head * cols;
    scale_columns(one.out, g * group * head, group * head, cols);
    take_columns(two.k + kv, one.out, g * group * head, head, cols);
    for (size_t h = g * group; h < (g + 1) * group; h++) {
        const size_t q = h * head * cols;
        look_back(one.q + q, h == g * group ? one.k + kv : NULL, shape);
        for (size_t i = 0; i < head * cols; i++) two.q[q + i] = s_query * one.v[kv + i];
        put_columns(two.out, two.v + kv, h * head, head, cols);
    }
}

void induction_layers(induction_layer layers[INDUCTION_LAYERS], const omm_pretrain_model *shape) {
    const size_t heads = shape->kv_heads / 2, head = shape->width / shape->heads;
    for (int i = 0; i < INDUCTION_LAYERS; i++) make_projection(layers[i].v, heads * head, shape);
    for (size_t g = 0; g < heads; g++) put_head(layers, g, shape);
}
