/* twin.c - the float64 twin of the training graph; see twin.h. */
#include "twin.h"

#include "omm_test.h"
#include "twin_keys.h"
#include "twin_rope.h"

#include <math.h>

/* What backward needs of one layer, [n][...]. */
typedef struct kept {
    double *x, *h, *q_raw, *k_raw, *v, *q, *k, *att, *o, *mid, *h2, *gate, *up, *act, *down;
    double *p, *capped;                  /* [heads][n][n] */
    double *in[OMM_LORA_TARGET_COUNT];   /* what the adapter sees */
    double *z[OMM_LORA_TARGET_COUNT];    /* A in */
    double *mask[OMM_LORA_TARGET_COUNT]; /* factors of dropout, or NULL */
} kept;

typedef struct run {
    const twin *t;
    const double *adapter;
    double *gradient;
    const twin_dropout *dropout;
    omm_arena arena;
    size_t n;
    kept *layers;
} run;

static double *numbers(omm_arena *arena, size_t count) {
    double *x = omm_arena_alloc(arena, count, sizeof *x);
    CHECK(x);
    return x;
}

/* --- the model ----------------------------------------------------------------------------- */

/* Value `i` of rows that lie one after the other.  Q8_0: 32 values share a half in front of their bytes. */
static double value_at(const omm_gguf_tensor *tensor, size_t i) {
    if (tensor->type == OMM_GGML_F32) return (double)omm_get_f32(tensor->data.data + 4 * i);
    const uint8_t *block = tensor->data.data + i / 32 * 34;
    return (double)omm_f16_to_f32(omm_get_u16(block)) * (int8_t)block[2 + i % 32];
}

/* Rows first .. first + rows of a tensor; NULL where there is none. */
static double *take_rows(twin *t, const omm_gguf *gguf, const char *name, size_t first,
                         size_t rows) {
    const omm_gguf_tensor *tensor = omm_gguf_find_tensor(gguf, name);
    if (!tensor) return NULL;
    CHECK(tensor->type == OMM_GGML_F32 || tensor->type == OMM_GGML_Q8_0);
    size_t width = tensor->n_dims > 1 ? (size_t)tensor->dims[0] : 1;
    const size_t end = (first + rows) * width;
    CHECK((tensor->type == OMM_GGML_F32 ? end * 4 : end / 32 * 34) <= tensor->data.size);
    double *out = numbers(&t->arena, rows * width);
    for (size_t i = 0; i < rows * width; i++) out[i] = value_at(tensor, first * width + i);
    return out;
}

static double *take(twin *t, const omm_gguf *gguf, size_t layer, const char *tail, size_t rows) {
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s", layer, tail);
    return take_rows(t, gguf, name, 0, rows);
}

/* A matrix of its own, or some rows of one that holds several. */
static double *take_matrix(twin *t, const omm_gguf *gguf, size_t layer, omm_lora_target target,
                           size_t rows) {
    size_t q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
    char own[64], fused[64];
    snprintf(fused, sizeof fused, "blk.%zu.attn_qkv.weight", layer);
    snprintf(own, sizeof own, "blk.%zu.%s.weight", layer, omm_lora_target_tensor(target));
    if (omm_gguf_find_tensor(gguf, fused)) {
        const size_t first[] = {0, q, q + kv, 0, 0, t->ff, 0};
        if (target <= OMM_LORA_V) return take_rows(t, gguf, fused, first[target], rows);
        if (target == OMM_LORA_GATE) snprintf(own, sizeof own, "blk.%zu.ffn_up.weight", layer);
        return take_rows(t, gguf, own, first[target], rows);
    }
    return take_rows(t, gguf, own, 0, rows);
}

static void take_layer(twin *t, const omm_gguf *gguf, size_t i, const twin_pair *pairs) {
    twin_layer *l = &t->all[i];
    size_t q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
    const size_t in[] = {t->d, t->d, t->d, q, t->d, t->d, t->ff};
    const size_t out[] = {q, kv, kv, t->d, t->ff, t->ff, t->d};
    static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias"};
    for (omm_lora_target k = OMM_LORA_Q; k < OMM_LORA_TARGET_COUNT; k++) {
        twin_linear *w = &l->linears[k];
        *w = (twin_linear){.d_in = in[k], .d_out = out[k], .pair = pairs[k]};
        w->w = take_matrix(t, gguf, i, k, out[k]);
        CHECK(w->w);
        if (k <= OMM_LORA_V) w->bias = take(t, gguf, i, biases[k], out[k]);
        w->a = t->values;
        w->b = w->a + pairs[k].rank * in[k];
        t->values = w->b + pairs[k].rank * out[k];
    }
    l->attn_norm = take(t, gguf, i, "attn_norm.weight", t->d);
    l->ffn_norm = take(t, gguf, i, "ffn_norm.weight", t->d);
    l->q_norm = take(t, gguf, i, "attn_q_norm.weight", t->norms_all_heads ? q : t->head_dim);
    l->k_norm = take(t, gguf, i, "attn_k_norm.weight", t->norms_all_heads ? kv : t->head_dim);
    l->attn_post_norm = take(t, gguf, i, "post_attention_norm.weight", t->d);
    l->ffn_post_norm = take(t, gguf, i, "post_ffw_norm.weight", t->d);
}

static void take_rope(twin *t, twin_rope *rope, const omm_gguf *gguf, bool is_local, bool is_long) {
    rope->speed = numbers(&t->arena, t->rotated / 2);
    for (size_t i = 0; i < t->rotated / 2; i++)
        rope->speed[i] = twin_rope_speed(&rope->magnitude, gguf, (uint32_t)t->rotated, is_local,
                                         is_long, (uint32_t)i);
}

static void take_sizes(twin *t, const omm_gguf *gguf, const char *a) {
    t->layers = twin_whole(gguf, a, "block_count", 0);
    t->d = twin_whole(gguf, a, "embedding_length", 0);
    t->ff = twin_whole(gguf, a, "feed_forward_length", 0);
    t->heads = twin_whole(gguf, a, "attention.head_count", 0);
    t->kv_heads = twin_whole(gguf, a, "attention.head_count_kv", 0);
    CHECK(t->heads > 0);
    t->head_dim = twin_whole(gguf, a, "attention.key_length", 0);
    if (t->head_dim == 0) t->head_dim = t->d / t->heads;
    t->rotated = twin_whole(gguf, a, "rope.dimension_count", 0);
    if (t->rotated == 0) t->rotated = t->head_dim;
}

static void take_scales(twin *t, const omm_gguf *gguf) {
    t->embed_scale = twin_real(gguf, "granite", "embedding_scale", 1);
    t->score_scale = twin_real(gguf, "granite", "attention.scale", t->score_scale);
    t->residual_scale = twin_real(gguf, "granite", "residual_scale", 1);
    t->logit_divisor = twin_real(gguf, "granite", "logit_scale", 0);
}

void twin_open(twin *t, const omm_gguf *gguf, const char *architecture, const twin_pair *pairs,
               uint32_t positions) {
    const char *a = architecture;
    const bool gemma = strncmp(a, "gemma", 5) == 0, smollm3 = strcmp(a, "smollm3") == 0;
    const bool granite = strcmp(a, "granite") == 0;
    const bool mistral3 = strcmp(a, "mistral3") == 0, exaone4 = strcmp(a, "exaone4") == 0;
    const bool ernie = strcmp(a, "ernie4_5") == 0;
    *t = (twin){.gelu = gemma,
                .rope_pairs = strcmp(a, "llama") == 0 || smollm3 || granite || mistral3 || ernie};
    t->norms_all_heads = strcmp(a, "olmo2") == 0;
    t->norms_turned = strcmp(a, "hunyuan-dense") == 0;
    t->temperature = twin_real(gguf, a, "attention.temperature_scale", 0);
    t->temperature_of = twin_whole(gguf, a, "rope.scaling.original_context_length", 1);
    omm_arena_init(&t->arena, 256 << 20);
    take_sizes(t, gguf, a);
    t->rms_eps = twin_real(gguf, a, "attention.layer_norm_rms_epsilon", 0);
    t->attention_cap = twin_real(gguf, a, "attn_logit_softcapping", 0);
    t->output_cap = twin_real(gguf, a, "final_logit_softcapping", 0);
    t->embed_scale = gemma ? sqrt((double)t->d) : 1;
    t->score_scale = 1 / sqrt((double)t->head_dim);
    t->residual_scale = t->logit_divisor = 1;
    if (granite) take_scales(t, gguf);
    t->vocab = (size_t)omm_gguf_find_tensor(gguf, "token_embd.weight")->dims[1];
    t->embed = take_rows(t, gguf, "token_embd.weight", 0, t->vocab);
    t->output = take_rows(t, gguf, "output.weight", 0, t->vocab);
    if (!t->output) t->output = t->embed;
    t->output_norm = take_rows(t, gguf, "output_norm.weight", 0, t->d);
    const bool is_long = positions > twin_whole(gguf, a, "rope.scaling.original_context_length", 0);
    for (size_t i = 0; i < 2; i++) take_rope(t, &t->ropes[i], gguf, i == 1, is_long);
    t->all = omm_arena_alloc(&t->arena, t->layers, sizeof *t->all);
    CHECK(t->all);
    const size_t window = twin_whole(gguf, a, "attention.sliding_window", 0);
    const size_t period = twin_whole(gguf, a, "attention.sliding_window_pattern", 0);
    CHECK(window == 0 || period > 0);
    for (size_t i = 0; i < t->layers; i++) {
        take_layer(t, gguf, i, pairs + i * OMM_LORA_TARGET_COUNT);
        t->all[i].window = window == 0 || (i + 1) % period == 0 ? 0 : window;
        t->all[i].rope = t->all[i].window && (strcmp(a, "gemma3") == 0 || t->norms_all_heads);
        t->all[i].still = (smollm3 && i % 4 == 3) || (exaone4 && window && !t->all[i].window);
    }
}

void twin_close(twin *t) {
    omm_arena_fini(&t->arena);
}

/* --- linear layers with their adapters ------------------------------------------------------ */

/* Factors of dropout on the input of (layer, target): 0, or 1 / (1 - rate). */
static double *mask_of(run *r, size_t layer, omm_lora_target target, size_t width) {
    const twin_dropout *drop = r->dropout;
    if (drop->rate <= 0) return NULL;
    double *mask = numbers(&r->arena, r->n * width);
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < width; j++) {
            uint64_t place =
                ((drop->first_token + i) * r->t->layers + layer) * OMM_LORA_TARGET_COUNT +
                (uint64_t)target;
            double number = (double)omm_rng_u32(&drop->lane, (place << 24) + j);
            if (number >= floor(drop->rate * 4294967296.0))
                mask[i * width + j] = 1 / (1 - drop->rate);
        }
    return mask;
}

/* Of rows of `cols` numbers, a multiple of 32: each block as 127 steps to either side. */
static const double *in_int8(run *r, const double *x, size_t rows, size_t cols) {
    if (!r->t->q8) return x;
    double *y = numbers(&r->arena, rows * cols);
    CHECK_EQ(cols % 32, 0);
    for (size_t at = 0; at < rows * cols; at += 32) {
        double most = 0;
        for (size_t i = at; i < at + 32; i++) most = fmax(most, fabs(x[i]));
        for (size_t i = at; i < at + 32 && most > 0; i++)
            y[i] = rint(x[i] / most * 127) * most / 127;
    }
    return y;
}

static double *linear(run *r, size_t layer, omm_lora_target target, const double *x) {
    const twin_linear *w = &r->t->all[layer].linears[target];
    const double *a = r->adapter + w->a, *b = r->adapter + w->b;
    const size_t rank = w->pair.rank;
    kept *l = &r->layers[layer];
    double *mask = l->mask[target] = mask_of(r, layer, target, w->d_in);
    double *in = l->in[target] = numbers(&r->arena, r->n * w->d_in);
    double *z = l->z[target] = numbers(&r->arena, r->n * rank);
    double *y = numbers(&r->arena, r->n * w->d_out);
    const double *wx = in_int8(r, x, r->n, w->d_in);
    for (size_t i = 0; i < r->n * w->d_in; i++) in[i] = mask ? x[i] * mask[i] : x[i];
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < rank; k++)
            for (size_t j = 0; j < w->d_in; j++)
                z[i * rank + k] += a[k * w->d_in + j] * in[i * w->d_in + j];
        for (size_t o = 0; o < w->d_out; o++) {
            double sum = w->bias ? w->bias[o] : 0;
            for (size_t j = 0; j < w->d_in; j++) sum += w->w[o * w->d_in + j] * wx[i * w->d_in + j];
            for (size_t k = 0; k < rank; k++)
                sum += w->pair.scale * b[o * rank + k] * z[i * rank + k];
            y[i * w->d_out + o] = sum;
        }
    }
    return y;
}

/* dx += what dy makes of it; the adapter's gradients. */
static void linear_back(run *r, double *dx, size_t layer, omm_lora_target target,
                        const double *dy) {
    const twin_linear *w = &r->t->all[layer].linears[target];
    const double *a = r->adapter + w->a, *b = r->adapter + w->b;
    const kept *l = &r->layers[layer];
    const double *mask = l->mask[target], scale = w->pair.scale;
    const size_t rank = w->pair.rank, d_in = w->d_in;
    for (size_t i = 0; i < r->n; i++) {
        for (size_t o = 0; o < w->d_out; o++)
            for (size_t j = 0; j < d_in; j++)
                dx[i * d_in + j] += dy[i * w->d_out + o] * w->w[o * d_in + j];
        for (size_t k = 0; k < rank; k++) {
            double dz = 0;
            for (size_t o = 0; o < w->d_out; o++) {
                const double g = scale * dy[i * w->d_out + o];
                dz += g * b[o * rank + k];
                r->gradient[w->b + o * rank + k] += g * l->z[target][i * rank + k];
            }
            for (size_t j = 0; j < d_in; j++) {
                const double factor = mask ? mask[i * d_in + j] : 1;
                r->gradient[w->a + k * d_in + j] += dz * l->in[target][i * d_in + j];
                dx[i * d_in + j] += dz * a[k * d_in + j] * factor;
            }
        }
    }
}

/* --- norms, rope, attention ------------------------------------------------------------------ */

static double inverse_rms(const run *r, const double *x, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += x[j] * x[j];
    return 1 / sqrt(sum / (double)n + r->t->rms_eps);
}

/* Of rows of n; x itself where there is no norm. */
static double *norm(run *r, double *x, const double *w, size_t rows, size_t n) {
    if (!w) return x;
    double *y = numbers(&r->arena, rows * n);
    for (size_t i = 0; i < rows; i++) {
        double inverse = inverse_rms(r, x + i * n, n);
        for (size_t j = 0; j < n; j++) y[i * n + j] = x[i * n + j] * inverse * w[j];
    }
    return y;
}

/* dx += what dy makes of it. */
static void norm_back(const run *r, double *dx, const double *dy, const double *x, const double *w,
                      size_t rows, size_t n) {
    for (size_t i = 0; i < rows; i++) {
        const double *xi = x + i * n, *dyi = dy + i * n;
        double inverse = inverse_rms(r, xi, n), sum = 0;
        for (size_t j = 0; j < n; j++) sum += dyi[j] * w[j] * xi[j];
        for (size_t j = 0; j < n; j++)
            dx[i * n + j] +=
                inverse * (w[j] * dyi[j] - xi[j] * inverse * inverse * sum / (double)n);
    }
}

/* Turn by `sign` times the angle of each position; sign -1 is its transpose. */
static double *rope(run *r, size_t layer, const double *x, size_t heads, double sign) {
    const twin_rope *rope = &r->t->ropes[r->t->all[layer].rope];
    const size_t dim = r->t->head_dim, half = r->t->rotated / 2;
    double *y = numbers(&r->arena, r->n * heads * dim);
    memcpy(y, x, r->n * heads * dim * sizeof *y);
    if (r->t->all[layer].still) return y;
    for (size_t i = 0; i < r->n; i++)
        for (size_t h = 0; h < heads; h++)
            for (size_t k = 0; k < half; k++) {
                const double angle = (double)i * rope->speed[k];
                const double c = rope->magnitude * cos(angle);
                const double s = rope->magnitude * sin(angle) * sign;
                size_t at = (i * heads + h) * dim, p = at + (r->t->rope_pairs ? 2 * k : k);
                size_t q = r->t->rope_pairs ? p + 1 : p + half;
                y[p] = x[p] * c - x[q] * s;
                y[q] = x[p] * s + x[q] * c;
            }
    return y;
}

/* Queries by the temperature of their positions, in place. */
static void warm(const run *r, double *q) {
    const twin *t = r->t;
    const size_t width = t->heads * t->head_dim;
    if (t->temperature == 0) return;
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < width; j++)
            q[i * width + j] *= 1 + t->temperature * log1p(floor((double)i / t->temperature_of));
}

typedef struct pair { /* a query, its key, and where p is */
    size_t q, k, p;
} pair;

static pair pair_of(const run *r, size_t h, size_t i, size_t j) {
    const twin *t = r->t;
    size_t group = h / (t->heads / t->kv_heads), dim = t->head_dim;
    return (pair){(i * t->heads + h) * dim, (j * t->kv_heads + group) * dim,
                  (h * r->n + i) * r->n + j};
}

static size_t first_seen(const run *r, size_t layer, size_t i) {
    size_t window = r->t->all[layer].window;
    return window && i >= window ? i + 1 - window : 0;
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void attention(run *r, size_t layer) {
    const twin *t = r->t;
    kept *l = &r->layers[layer];
    const size_t dim = t->head_dim;
    l->p = numbers(&r->arena, t->heads * r->n * r->n);
    l->capped = numbers(&r->arena, t->heads * r->n * r->n);
    l->att = numbers(&r->arena, r->n * t->heads * dim);
    for (size_t h = 0; h < t->heads; h++)
        for (size_t i = 0; i < r->n; i++) {
            double sum = 0;
            for (size_t j = first_seen(r, layer, i); j <= i; j++) {
                pair at = pair_of(r, h, i, j);
                double s = dot(l->q + at.q, l->k + at.k, dim) * t->score_scale;
                if (t->attention_cap > 0) s = t->attention_cap * tanh(s / t->attention_cap);
                l->capped[at.p] = s;
                sum += l->p[at.p] = exp(s);
            }
            for (size_t j = first_seen(r, layer, i); j <= i; j++) {
                pair at = pair_of(r, h, i, j);
                l->p[at.p] /= sum;
                for (size_t c = 0; c < dim; c++) l->att[at.q + c] += l->p[at.p] * l->v[at.k + c];
            }
        }
}

static void attention_back(run *r, size_t layer, const double *datt, double *dq, double *dk,
                           double *dv) {
    const twin *t = r->t;
    const kept *l = &r->layers[layer];
    const size_t dim = t->head_dim;
    for (size_t h = 0; h < t->heads; h++)
        for (size_t i = 0; i < r->n; i++) {
            double mean = 0;
            for (size_t j = first_seen(r, layer, i); j <= i; j++) {
                pair at = pair_of(r, h, i, j);
                mean += l->p[at.p] * dot(datt + at.q, l->v + at.k, dim);
            }
            for (size_t j = first_seen(r, layer, i); j <= i; j++) {
                pair at = pair_of(r, h, i, j);
                double tanh_s = t->attention_cap > 0 ? l->capped[at.p] / t->attention_cap : 0;
                double ds = l->p[at.p] * (dot(datt + at.q, l->v + at.k, dim) - mean);
                ds *= (1 - tanh_s * tanh_s) * t->score_scale;
                for (size_t c = 0; c < dim; c++) {
                    dq[at.q + c] += ds * l->k[at.k + c];
                    dk[at.k + c] += ds * l->q[at.q + c];
                    dv[at.k + c] += l->p[at.p] * datt[at.q + c];
                }
            }
        }
}

/* --- layers ---------------------------------------------------------------------------------- */

static const double s_gelu_a = 0.7978845608028654, s_gelu_b = 0.044715; /* sqrt(2 / pi) */

/* silu(g) or the tanh form of gelu(g), and its slope. */
static double activation(const run *r, double g, double *slope) {
    if (!r->t->gelu) {
        double s = 1 / (1 + exp(-g));
        *slope = s + g * s * (1 - s);
        return g * s;
    }
    double u = tanh(s_gelu_a * (g + s_gelu_b * g * g * g));
    *slope = 0.5 * (1 + u) + 0.5 * g * (1 - u * u) * s_gelu_a * (1 + 3 * s_gelu_b * g * g);
    return 0.5 * g * (1 + u);
}

/* x and a step's result. */
static double *sum_of(run *r, const double *x, const double *step, size_t count) {
    double *y = numbers(&r->arena, count);
    for (size_t i = 0; i < count; i++) y[i] = x[i] + r->t->residual_scale * step[i];
    return y;
}

/* The layer's result. */
static double *layer_forward(run *r, size_t i, double *x) {
    const twin *t = r->t;
    const twin_layer *w = &t->all[i];
    kept *l = &r->layers[i];
    const size_t n = r->n, d = t->d, q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
    const size_t nq = t->norms_all_heads ? q : t->head_dim;
    const size_t nk = t->norms_all_heads ? kv : t->head_dim;
    double slope = 0;
    l->x = x;
    l->h = norm(r, x, w->attn_norm, n, d);
    l->q_raw = linear(r, i, OMM_LORA_Q, l->h);
    l->k_raw = linear(r, i, OMM_LORA_K, l->h);
    l->v = linear(r, i, OMM_LORA_V, l->h);
    if (t->norms_turned) {
        l->q_raw = rope(r, i, l->q_raw, t->heads, 1);
        l->k_raw = rope(r, i, l->k_raw, t->kv_heads, 1);
    }
    l->q = norm(r, l->q_raw, w->q_norm, n * q / nq, nq);
    l->k = norm(r, l->k_raw, w->k_norm, n * kv / nk, nk);
    if (!t->norms_turned) {
        l->q = rope(r, i, l->q, t->heads, 1);
        l->k = rope(r, i, l->k, t->kv_heads, 1);
    }
    warm(r, l->q);
    attention(r, i);
    l->o = linear(r, i, OMM_LORA_O, l->att);
    l->mid = sum_of(r, x, norm(r, l->o, w->attn_post_norm, n, d), n * d);
    l->h2 = norm(r, l->mid, w->ffn_norm, n, d);
    l->gate = linear(r, i, OMM_LORA_GATE, l->h2);
    l->up = linear(r, i, OMM_LORA_UP, l->h2);
    l->act = numbers(&r->arena, n * t->ff);
    for (size_t k = 0; k < n * t->ff; k++) l->act[k] = activation(r, l->gate[k], &slope) * l->up[k];
    l->down = linear(r, i, OMM_LORA_DOWN, l->act);
    return sum_of(r, l->mid, norm(r, l->down, w->ffn_post_norm, n, d), n * d);
}

/* The gradient of a step's result, given that of the sum. */
static double *step_back(run *r, const double *dx, size_t count) {
    double *dy = numbers(&r->arena, count);
    for (size_t i = 0; i < count; i++) dy[i] = r->t->residual_scale * dx[i];
    return dy;
}

/* The gradient before a norm of rows; dy itself where there is no norm. */
static double *before_norm(run *r, double *dy, const double *x, const double *w, size_t rows,
                           size_t n) {
    if (!w) return dy;
    double *dx = numbers(&r->arena, rows * n);
    norm_back(r, dx, dy, x, w, rows, n);
    return dx;
}

/* dx += what the input of a step makes of dh: x normalised, or x itself. */
static void before_step(const run *r, double *dx, const double *dh, const double *x,
                        const double *w, size_t rows, size_t n) {
    if (w) norm_back(r, dx, dh, x, w, rows, n);
    for (size_t i = 0; !w && i < rows * n; i++) dx[i] += dh[i];
}

/* dx [n][d] of the layer's result becomes that of its x. */
static void layer_back(run *r, size_t i, double *dx) {
    const twin *t = r->t;
    const twin_layer *w = &t->all[i];
    const kept *l = &r->layers[i];
    const size_t n = r->n, d = t->d, q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
    const size_t nq = t->norms_all_heads ? q : t->head_dim;
    const size_t nk = t->norms_all_heads ? kv : t->head_dim;
    double *dact = numbers(&r->arena, n * t->ff), *dup = numbers(&r->arena, n * t->ff);
    double *dh2 = numbers(&r->arena, n * d), *dh = numbers(&r->arena, n * d), slope = 0;
    double *dy = step_back(r, dx, n * d);
    linear_back(r, dact, i, OMM_LORA_DOWN, before_norm(r, dy, l->down, w->ffn_post_norm, n, d));
    for (size_t k = 0; k < n * t->ff; k++) {
        dup[k] = dact[k] * activation(r, l->gate[k], &slope);
        dact[k] *= slope * l->up[k];
    }
    linear_back(r, dh2, i, OMM_LORA_GATE, dact);
    linear_back(r, dh2, i, OMM_LORA_UP, dup);
    before_step(r, dx, dh2, l->mid, w->ffn_norm, n, d);
    double *datt = numbers(&r->arena, n * q), *dq = numbers(&r->arena, n * q);
    double *dk = numbers(&r->arena, n * kv), *dv = numbers(&r->arena, n * kv);
    dy = step_back(r, dx, n * d);
    linear_back(r, datt, i, OMM_LORA_O, before_norm(r, dy, l->o, w->attn_post_norm, n, d));
    attention_back(r, i, datt, dq, dk, dv);
    warm(r, dq);
    if (!t->norms_turned) {
        dq = rope(r, i, dq, t->heads, -1);
        dk = rope(r, i, dk, t->kv_heads, -1);
    }
    dq = before_norm(r, dq, l->q_raw, w->q_norm, n * q / nq, nq);
    dk = before_norm(r, dk, l->k_raw, w->k_norm, n * kv / nk, nk);
    if (t->norms_turned) {
        dq = rope(r, i, dq, t->heads, -1);
        dk = rope(r, i, dk, t->kv_heads, -1);
    }
    linear_back(r, dh, i, OMM_LORA_Q, dq);
    linear_back(r, dh, i, OMM_LORA_K, dk);
    linear_back(r, dh, i, OMM_LORA_V, dv);
    before_step(r, dx, dh, l->x, w->attn_norm, n, d);
}

/* Loss of `target` after one row x; its gradient, times loss_scale, into dx. */
static double head(run *r, double *dx, const double *x, uint32_t target, double loss_scale,
                   double *logits) {
    const twin *t = r->t;
    double h[256], dh[256] = {0}, inverse = inverse_rms(r, x, t->d), sum = 0;
    CHECK(t->d <= 256);
    for (size_t j = 0; j < t->d; j++) h[j] = x[j] * inverse * t->output_norm[j];
    const double *wx = in_int8(r, h, 1, t->d);
    for (size_t k = 0; k < t->vocab; k++) {
        double s = dot(t->output + k * t->d, wx, t->d) / t->logit_divisor;
        logits[k] = t->output_cap > 0 ? t->output_cap * tanh(s / t->output_cap) : s;
        sum += exp(logits[k]);
    }
    const double loss = log(sum) - logits[target];
    for (size_t k = 0; k < t->vocab; k++) {
        double tanh_s = t->output_cap > 0 ? logits[k] / t->output_cap : 0;
        double g = (exp(logits[k]) / sum - (k == target)) * loss_scale * (1 - tanh_s * tanh_s);
        g /= t->logit_divisor;
        for (size_t j = 0; j < t->d; j++) dh[j] += g * t->output[k * t->d + j];
    }
    norm_back(r, dx, dh, x, t->output_norm, 1, t->d);
    return loss;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through r */
double twin_example(const twin *t, double *gradient, const double *adapter, const uint32_t *ids,
                    const uint8_t *learn, size_t count, double loss_scale,
                    const twin_dropout *dropout) {
    run r = {.t = t, .adapter = adapter, .gradient = gradient, .dropout = dropout, .n = count};
    omm_arena_init(&r.arena, (size_t)1 << 30);
    r.layers = omm_arena_alloc(&r.arena, t->layers, sizeof *r.layers);
    double *x = numbers(&r.arena, count * t->d), *dx = numbers(&r.arena, count * t->d);
    double *logits = numbers(&r.arena, t->vocab), loss = 0;
    for (size_t i = 0; i < count * t->d; i++)
        x[i] = t->embed_scale * t->embed[ids[i / t->d] * t->d + i % t->d];
    for (size_t i = 0; i < t->layers; i++) x = layer_forward(&r, i, x);
    for (size_t i = 0; i + 1 < count; i++)
        if (learn[i + 1])
            loss += head(&r, dx + i * t->d, x + i * t->d, ids[i + 1], loss_scale, logits);
    for (size_t i = t->layers; i-- > 0;) layer_back(&r, i, dx);
    omm_arena_fini(&r.arena);
    return loss;
}
