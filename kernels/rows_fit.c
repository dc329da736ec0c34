/* rows_fit.c - blocks of the types whose scales are themselves quantised, by search.
 *
 * Sought are the scales (and minima) and codes that make the weighted squared error of a block small:
 *   1. each sub-block alone: several scales are tried, each followed by least squares, which gives
 *      the real scale and minimum it would like;
 *   2. the block's d (and dmin) is set so that the largest fits, and each sub-block takes, of the
 *      integers around its wish, those with the least exact error;
 *   3. least squares over the whole block moves d and dmin (and the wishes of the sub-blocks) to suit
 *      the codes, and 2. is repeated while it helps.
 * Errors are those of the values that rows_values will give.  Everything is f32 in a fixed order:
 * one result on every machine.
 */
#include "rows_internal.h"

#include "omm/bytes.h"

#include <math.h>
#include <string.h>

enum { LANES = 4, SUB_MAX = 32, GUESSES = 9, ROUNDS = 4, STARTS = 3 };

static const float VALUE_MAX = 65504.0f;           /* a weight beyond f16 is none */
static const float VALUE_MIN = 1.0f / 33554432.0f; /* half the least f16: all below is zero */
static const float ROUNDER = 12582912.0f;          /* 1.5 * 2^23: adding it rounds to nearest */

typedef struct fit {
    const rows_layout *layout;
    const float *x;
    size_t subs, n;           /* sub-blocks, columns in each */
    float lo, hi;             /* least and largest level */
    float scale_lo, scale_hi; /* range of the integer scale */
    float min_hi;             /* of the integer minimum; 0: the type has none */
    float w[ROWS_BLOCK_MAX];
    float scale[ROWS_SUBS_MAX], min[ROWS_SUBS_MAX]; /* wishes */
} fit;

/* A whole block as it would be stored. */
typedef struct fit_choice {
    float d, dmin; /* exact halves */
    float scales[ROWS_SUBS_MAX], mins[ROWS_SUBS_MAX];
    float q[ROWS_BLOCK_MAX]; /* levels */
    float error;
} fit_choice;

/* ---- one sub-block --------------------------------------------------------------------------- */

static float fold(const float lanes[LANES]) {
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

static float clamp(float v, float lo, float hi) {
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

static float half(float v) {
    return omm_f16_to_f32(omm_f32_to_f16(clamp(v, -VALUE_MAX, VALUE_MAX)));
}

/* The largest integer that is not above v, which is cut to what any scale can be. */
static float whole_below(float v) {
    v = clamp(v, -1000.0f, 1000.0f);
    const float whole = (float)(int)v;
    return whole > v ? whole - 1.0f : whole;
}

/* The level of IQ4's table nearest to t, by halves: all of [k / 2, k / 2 + 1 / 2) share it. */
static float nearest_of_table(const rows_layout *layout, float t) {
    const int8_t *table = layout->table;
    const float t2 = t + t;
    unsigned i = 0;
    for (unsigned step = 8; step > 0; step /= 2)
        if (t2 >= (float)(table[i + step - 1] + table[i + step])) i += step;
    return (float)table[i];
}

/* q = the levels nearest to (x + min) * inverse. */
static void assign(float *restrict q, const fit *f, const float *restrict x, float inverse,
                   float min) {
    for (size_t i = 0; i < f->n; i++) q[i] = clamp((x[i] + min) * inverse, f->lo, f->hi);
    if (f->layout->table)
        for (size_t i = 0; i < f->n; i++) q[i] = nearest_of_table(f->layout, q[i]);
    else
        for (size_t i = 0; i < f->n; i++) q[i] = (q[i] + ROUNDER) - ROUNDER;
}

static float error_of(const fit *f, const float *q, const float *x, const float *w, float scale,
                      float min) {
    float lanes[LANES] = {0};
    for (size_t i = 0; i < f->n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const float e = (scale * q[i + l] - min) - x[i + l];
            lanes[l] += w[i + l] * (e * e);
        }
    return fold(lanes);
}

/* Levels for a scale and minimum that are given, and what is lost. */
static float assign_scale(float *q, const fit *f, size_t j, float scale, float min) {
    assign(q, f, f->x + j * f->n, scale != 0.0f ? 1.0f / scale : 0.0f, min);
    return error_of(f, q, f->x + j * f->n, f->w + j * f->n, scale, min);
}

typedef struct fit_sums {
    float w, x, q, qq, qx; /* sum of w, w x, w q, w q q, w q x */
} fit_sums;

static fit_sums sums_of(const fit *f, size_t j, const float *q) {
    const float *x = f->x + j * f->n, *w = f->w + j * f->n;
    float a[5][LANES] = {{0}};
    for (size_t i = 0; i < f->n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const float wl = w[i + l], wq = wl * q[i + l];
            a[0][l] += wl;
            a[1][l] += wl * x[i + l];
            a[2][l] += wq;
            a[3][l] += wq * q[i + l];
            a[4][l] += wq * x[i + l];
        }
    return (fit_sums){fold(a[0]), fold(a[1]), fold(a[2]), fold(a[3]), fold(a[4])};
}

/* The real scale and minimum that suit the levels q of sub-block j; min >= 0, 0 without minima.  Where all levels
 * are 0, as those of equal negative values are, the minimum says everything. */
static void least_squares(float *scale, float *min, const fit *f, const fit_sums *s) {
    const float det = s->w * s->qq - s->q * s->q;
    *min = 0.0f;
    *scale = s->qq > 0.0f ? s->qx / s->qq : 0.0f;
    if (f->min_hi > 0.0f && s->qq == 0.0f && s->x < 0.0f) *min = -s->x / s->w;
    if (f->min_hi == 0.0f || !(det > 0.0f)) return;
    const float m = (s->q * s->qx - s->qq * s->x) / det;
    if (!(m > 0.0f)) return;
    *min = m;
    *scale = (s->w * s->qx - s->x * s->q) / det;
}

/* Levels for a scale of `inverse`, the least squares for them, and what these explain of sum w x x:
 * where that is more than `most`, it becomes the wish of sub-block j. */
static void guess(fit *f, float *most, size_t j, float inverse, float offset) {
    float q[SUB_MAX] = {0}, scale, min;
    assign(q, f, f->x + j * f->n, inverse, offset);
    const fit_sums s = sums_of(f, j, q);
    least_squares(&scale, &min, f, &s);
    float explained = scale * s.qx - min * s.x;
    if (f->subs == 1) { /* the scale is stored as it is, so what its rounding costs counts here */
        scale = half(scale);
        explained = scale * (s.qx + s.qx - scale * s.qq);
    }
    if (!(explained > *most)) return;
    *most = explained;
    f->scale[j] = scale;
    f->min[j] = min;
}

/* The real scale and minimum that sub-block j would like.  Without minima, the value of largest
 * magnitude is brought near the lowest level, then near the highest; in Q3_K only near the lowest:
 * the one level more that is won there outweighs what x x would have. */
static void wish(fit *f, size_t j) {
    const float *x = f->x + j * f->n;
    float low = 0.0f, high = 0.0f, most = 0.0f;
    for (size_t i = 0; i < f->n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    f->scale[j] = 0.0f;
    f->min[j] = 0.0f;
    if (high - low < VALUE_MIN) return;
    const bool affine = f->min_hi > 0.0f, both = f->layout->type != OMM_GGML_Q3_K;
    const float extreme = high > -low ? high : low;
    const float step = f->layout->table ? 1.0f : 0.1f;
    for (int g = -GUESSES; g <= GUESSES; g++) {
        const float more = step * (float)g;
        if (affine) {
            guess(f, &most, j, (f->hi + more) / (high - low), -low);
            continue;
        }
        guess(f, &most, j, (f->lo + more) / extreme, 0.0f);
        if (both) guess(f, &most, j, (f->hi + more) / extreme, 0.0f);
    }
}

/* ---- the whole block ------------------------------------------------------------------------- */

static void keep_if_better(fit_choice *c, float *least, const float *q, const fit *f, size_t j,
                           float error, float sc, float mn) {
    if (!(error < *least)) return;
    *least = error;
    c->scales[j] = sc;
    c->mins[j] = mn;
    memcpy(c->q + j * f->n, q, f->n * sizeof *q);
}

/* Of the integer scales (and minima) around the wish of sub-block j, the best. */
static float choose(fit_choice *c, const fit *f, size_t j) {
    float q[SUB_MAX] = {0}, least = INFINITY;
    const float below = c->d != 0.0f ? whole_below(f->scale[j] / c->d) : 0.0f;
    for (int up = 0; up < 2; up++) {
        const float sc = clamp(below + (float)up, f->scale_lo, f->scale_hi), scale = c->d * sc;
        if (f->min_hi == 0.0f || c->dmin == 0.0f) {
            keep_if_better(c, &least, q, f, j, assign_scale(q, f, j, scale, 0.0f), sc, 0.0f);
            continue;
        }
        assign_scale(q, f, j, scale, f->min[j]);
        const fit_sums s = sums_of(f, j, q);
        const float m = whole_below(((scale * s.q - s.x) / s.w) / c->dmin);
        for (int more = 0; more < 2; more++) {
            const float mn = clamp(m + (float)more, 0.0f, f->min_hi);
            const float error = assign_scale(q, f, j, scale, c->dmin * mn);
            keep_if_better(c, &least, q, f, j, error, sc, mn);
        }
    }
    return least;
}

static void choose_all(fit_choice *c, const fit *f) {
    c->error = 0.0f;
    for (size_t j = 0; j < f->subs; j++) c->error += choose(c, f, j);
}

/* The next half that is no smaller in size: scales of tiny values must not round to nothing. */
static float half_away(float v) {
    const float cut = clamp(v, -VALUE_MAX, VALUE_MAX);
    const uint16_t h = omm_f32_to_f16(cut);
    return omm_f16_to_f32(fabsf(omm_f16_to_f32(h)) < fabsf(cut) ? (uint16_t)(h + 1) : h);
}

/* d and dmin that suit the integers and levels chosen; the sub-blocks' wishes too. */
static void improve(fit_choice *next, fit *f, const fit_choice *c) {
    float aa = 0.0f, ab = 0.0f, bb = 0.0f, ax = 0.0f, bx = 0.0f; /* a = scale q, b = -min */
    for (size_t j = 0; j < f->subs; j++) {
        const fit_sums s = sums_of(f, j, c->q + j * f->n);
        const float sc = c->scales[j], mn = c->mins[j];
        aa += sc * sc * s.qq;
        ab -= sc * mn * s.q;
        bb += mn * mn * s.w;
        ax += sc * s.qx;
        bx -= mn * s.x;
        least_squares(&f->scale[j], &f->min[j], f, &s);
    }
    const float det = aa * bb - ab * ab;
    if (bb > 0.0f && det > 0.0f) {
        next->d = half((ax * bb - bx * ab) / det);
        next->dmin = half((bx * aa - ax * ab) / det);
    } else {
        next->d = aa > 0.0f ? half(ax / aa) : 0.0f;
        next->dmin = aa == 0.0f && bb > 0.0f ? half(bx / bb) : c->dmin;
    }
}

/* Start with the largest wish at `full` of the integer range and go on while it helps. */
static void descend(fit_choice *best, const fit *wishes, float extreme_scale, float extreme_min,
                    float less) {
    fit f = *wishes;
    fit_choice c = {0};
    const float top = f.scale_lo < 0.0f ? f.scale_lo + less : f.scale_hi - less;
    c.d = f.subs > 1 ? half_away(extreme_scale / top) : half(extreme_scale / top);
    c.dmin = f.min_hi > 0.0f ? half_away(extreme_min / (f.min_hi - less)) : 0.0f;
    float last = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        choose_all(&c, &f);
        if (c.error < best->error) *best = c;
        if (!(c.error < last)) break;
        last = c.error;
        improve(&c, &f, &c);
    }
}

/* With weights under the least half, what the largest win may be less than the others lose: zeros are closer. */
static void drop_if_worse(fit_choice *best, const fit *f) {
    float lost[LANES] = {0}, whole[LANES] = {0};
    for (size_t i = 0; i < f->layout->block; i++) {
        const size_t j = i / f->n;
        const float e =
            (best->d * best->scales[j] * best->q[i] - best->dmin * best->mins[j]) - f->x[i];
        lost[i % LANES] += e * e;
        whole[i % LANES] += f->x[i] * f->x[i];
    }
    if (fold(lost) <= fold(whole)) return;
    *best = (fit_choice){0};
    choose_all(best, f);
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Large weights matter more, as in the reference: |x| beside its root mean square where there are
 * minima, else x x beside the square of the mean |x|.  The shares are those at which both the plain
 * and the reference's weighted error came out below the reference's on every kind of row tried
 * (docs/measurements/files.md). */
static void weigh(fit *f) {
    const size_t count = f->layout->block;
    float squares[LANES] = {0}, sizes[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            squares[l] += f->x[i + l] * f->x[i + l];
            sizes[l] += fabsf(f->x[i + l]);
        }
    const float root = sqrtf(fold(squares) / (float)count), size = fold(sizes) / (float)count;
    const bool affine = f->min_hi > 0.0f;
    const float share = f->layout->type == OMM_GGML_Q3_K || f->subs == 1 ? 2.0f : 1.0625f;
    for (size_t i = 0; i < count; i++)
        f->w[i] = affine ? root + fabsf(f->x[i]) : f->x[i] * f->x[i] + share * (size * size);
}

static void fit_init(fit *f, const rows_layout *layout, const float *x) {
    f->layout = layout;
    f->x = x;
    f->n = layout->sub ? layout->sub : layout->block;
    OMM_ASSERT(f->n > 0);
    OMM_ASSERT(f->n <= SUB_MAX);
    f->subs = layout->block / f->n;
    f->lo = layout->table ? (float)layout->table[0] : -(float)layout->zero;
    f->hi = layout->table ? (float)layout->table[15] : (float)(layout->levels - 1 - layout->zero);
    f->scale_lo = f->scale_hi = 1.0f;
    f->min_hi = 0.0f;
    switch (layout->type) {
    case OMM_GGML_Q2_K:
        f->scale_lo = 0.0f;
        f->scale_hi = f->min_hi = 15.0f;
        break;
    case OMM_GGML_Q4_K:
    case OMM_GGML_Q5_K:
        f->scale_lo = 0.0f;
        f->scale_hi = f->min_hi = 63.0f;
        break;
    case OMM_GGML_Q6_K:
        f->scale_lo = -128.0f;
        f->scale_hi = 127.0f;
        break;
    case OMM_GGML_Q3_K:
    case OMM_GGML_IQ4_XS:
        f->scale_lo = -32.0f;
        f->scale_hi = 31.0f;
        break;
    default: break;
    }
    weigh(f);
}

static void store(rows_block *out, const fit *f, const fit_choice *c) {
    out->d = omm_f32_to_f16(c->d);
    out->dmin = omm_f32_to_f16(c->dmin);
    for (size_t j = 0; j < f->subs; j++) {
        out->scales[j] = (int16_t)c->scales[j];
        out->mins[j] = (uint8_t)c->mins[j];
    }
    for (size_t i = 0; i < f->layout->block; i++) {
        int code = (int)c->q[i] + f->layout->zero;
        if (f->layout->table)
            for (code = 0; f->layout->table[code] != (int)c->q[i]; code++) continue;
        out->codes[i] = (uint8_t)code;
    }
}

omm_err rows_fit(rows_block *out, const rows_layout *layout, const float *x) {
    fit f;
    fit_choice best = {.error = INFINITY};
    float scale = 0.0f, min = 0.0f;
    for (size_t i = 0; i < layout->block; i++)
        if (fabsf(x[i]) > VALUE_MAX)
            return omm_raise(OMM_ERR_NUMERIC, "%g is over %g", (double)x[i], (double)VALUE_MAX);
    fit_init(&f, layout, x);
    for (size_t j = 0; j < f.subs; j++) {
        wish(&f, j);
        scale = fabsf(f.scale[j]) > fabsf(scale) ? f.scale[j] : scale;
        min = f.min[j] > min ? f.min[j] : min;
    }
    for (int start = 0; start < (layout->sub ? STARTS : 1); start++)
        descend(&best, &f, scale, min, (float)start);
    drop_if_worse(&best, &f);
    store(out, &f, &best);
    return OMM_OK;
}
