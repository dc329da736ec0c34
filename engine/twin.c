/* twin.c - see twin.h. */
#include "twin.h"

#include "omm/bytes.h"
#include "omm/mem.h"
#include "twin_keys.h"
#include "twin_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 512, LENGTH_MAX = 256 };

typedef struct twin {
    const omm_gguf *gguf;
    char arch[32];
    uint32_t layers, width, ff, heads, kv_heads, dim, rotated, window;
    double eps;
    bool gemma, gemma2, gemma3, phi3, smollm3, granite, olmo2, mistral3, exaone4, hunyuan,
        long_rope;
    double *k, *v;    /* of one layer: [LENGTH_MAX][kv_heads * dim] */
    double **weights; /* of each tensor of the file that was needed */
} twin;

static const omm_gguf_tensor *tensor(const twin *t, int layer, const char *tail) {
    char name[OMM_GGUF_NAME_MAX];
    if (layer < 0)
        snprintf(name, sizeof name, "%s", tail);
    else
        snprintf(name, sizeof name, "blk.%d.%s", layer, tail);
    return omm_gguf_find_tensor(t->gguf, name);
}

/* Of a tensor, from the file once. */
static const double *weights(const twin *t, const omm_gguf_tensor *w) {
    OMM_ASSERT(w != NULL && (w->type == OMM_GGML_F32 || w->type == OMM_GGML_Q8_0));
    double **out = &t->weights[w - t->gguf->tensors];
    if (*out) return *out;
    const bool q8 = w->type == OMM_GGML_Q8_0; /* per 32 values a scale in f16 and 32 integers */
    const size_t count = q8 ? w->data.size / 34 * 32 : w->data.size / 4;
    *out = omm_alloc(count, sizeof **out);
    OMM_ASSERT(*out != NULL);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *from = w->data.data + (q8 ? i / 32 * 34 : 4 * i);
        (*out)[i] = q8 ? (double)omm_f16_to_f32(omm_get_u16(from)) * (int8_t)from[2 + i % 32]
                       : (double)omm_get_f32(from);
    }
    return *out;
}

/* y[rows] = rows first .. of w, times x, plus a bias. */
static void product(const twin *t, double *y, const omm_gguf_tensor *w, size_t first, size_t rows,
                    const double *x, const omm_gguf_tensor *bias) {
    const double *all = weights(t, w);
    for (size_t r = 0; r < rows; r++) {
        const double *row = all + (first + r) * w->dims[0];
        double sum = bias ? weights(t, bias)[r] : 0.0;
        for (size_t c = 0; c < w->dims[0]; c++) sum += row[c] * x[c];
        y[r] = sum;
    }
}

static void norm(const twin *t, double *y, const double *x, const omm_gguf_tensor *w, size_t n) {
    const double *scale = weights(t, w);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / (double)n + t->eps) * scale[i];
}

static bool is_sliding(const twin *t, int layer) {
    if (t->window == 0) return false;
    if (t->gemma2) return layer % 2 == 0;
    if (t->gemma3) return layer % 6 != 5;
    if (t->exaone4 || t->olmo2) return layer % 4 != 3;
    return true;
}

static void rope(const twin *t, double *head, int layer, size_t position) {
    if (t->smollm3 && (layer + 1) % 4 == 0) return;
    if (t->exaone4 && t->window != 0 && !is_sliding(t, layer)) return;
    for (uint32_t i = 0; i < t->rotated / 2; i++) {
        double magnitude = 1.0, angle = (double)position;
        const bool local = (t->gemma3 || t->olmo2) && is_sliding(t, layer);
        angle *= twin_rope_speed(&magnitude, t->gguf, t->rotated, local, t->long_rope, i);
        const bool side_by_side = strcmp(t->arch, "llama") == 0 || t->smollm3 || t->granite ||
                                  t->mistral3 || strcmp(t->arch, "ernie4_5") == 0;
        double *a = head + (side_by_side ? (size_t)2 * i : i);
        double *b = side_by_side ? a + 1 : a + t->rotated / 2;
        const double x = *a, y = *b, c = cos(angle) * magnitude, s = sin(angle) * magnitude;
        *a = x * c - y * s;
        *b = y * c + x * s;
    }
}

/* Granite's numbers; without the key: 0. */
static double granite(const twin *t, const char *key) {
    return t->granite ? twin_real(t->gguf, t->arch, key, 0.0) : 0.0;
}

static double score_scale(const twin *t) {
    if (granite(t, "attention.scale") != 0.0) return granite(t, "attention.scale");
    const bool wide = (t->gemma2 && t->layers == 46) || (t->gemma3 && t->layers == 62);
    const uint32_t each = t->width / t->heads;
    return 1.0 / sqrt((double)(wide ? each : t->dim));
}

static void attend_head(const twin *t, double *out, const double *q, uint32_t kv_head, int layer,
                        size_t position) {
    double s[LENGTH_MAX] = {0}, top = (double)-INFINITY, sum = 0.0;
    const size_t stride = (size_t)t->kv_heads * t->dim, from = (size_t)kv_head * t->dim;
    const double cap =
        t->gemma2 ? twin_real(t->gguf, t->arch, "attn_logit_softcapping", 50.0) : 0.0;
    size_t first = 0;
    if (is_sliding(t, layer) && position + 1 > t->window) first = position + 1 - t->window;
    for (size_t j = first; j <= position; j++) {
        s[j] = 0.0;
        for (size_t d = 0; d < t->dim; d++) s[j] += q[d] * t->k[j * stride + from + d];
        s[j] *= score_scale(t);
        if (cap > 0.0) s[j] = cap * tanh(s[j] / cap);
        top = fmax(top, s[j]);
    }
    for (size_t j = first; j <= position; j++) sum += exp(s[j] - top);
    memset(out, 0, t->dim * sizeof *out);
    for (size_t j = first; j <= position; j++)
        for (size_t d = 0; d < t->dim; d++)
            out[d] += exp(s[j] - top) / sum * t->v[j * stride + from + d];
}

static void qkv(const twin *t, double *q, double *k, double *v, const double *h, int layer) {
    const size_t qn = (size_t)t->heads * t->dim, kn = (size_t)t->kv_heads * t->dim;
    if (t->phi3) {
        const omm_gguf_tensor *w = tensor(t, layer, "attn_qkv.weight");
        product(t, q, w, 0, qn, h, NULL);
        product(t, k, w, qn, kn, h, NULL);
        product(t, v, w, qn + kn, kn, h, NULL);
        return;
    }
    product(t, q, tensor(t, layer, "attn_q.weight"), 0, qn, h, tensor(t, layer, "attn_q.bias"));
    product(t, k, tensor(t, layer, "attn_k.weight"), 0, kn, h, tensor(t, layer, "attn_k.bias"));
    product(t, v, tensor(t, layer, "attn_v.weight"), 0, kn, h, tensor(t, layer, "attn_v.bias"));
}

static void heads(const twin *t, double *x, uint32_t count, const omm_gguf_tensor *w, int layer,
                  size_t position) {
    if (t->olmo2) norm(t, x, x, w, (size_t)count * t->dim);
    for (uint32_t i = 0; i < count; i++) {
        double *head = x + (size_t)i * t->dim;
        if (w && !t->olmo2 && !t->hunyuan) norm(t, head, head, w, t->dim);
        rope(t, head, layer, position);
        if (t->hunyuan) norm(t, head, head, w, t->dim);
    }
}

static void add(const twin *t, double *x, double *h, const omm_gguf_tensor *post) {
    if (post) norm(t, h, h, post, t->width);
    const double scale = granite(t, "residual_scale");
    for (uint32_t i = 0; i < t->width; i++) x[i] += scale != 0.0 ? scale * h[i] : h[i];
}

/* Of Ministral 3's queries. */
static double temperature(const twin *t, size_t position) {
    if (!t->mistral3) return 1.0;
    const uint32_t context =
        twin_whole(t->gguf, t->arch, "rope.scaling.original_context_length", 0);
    const double scale = twin_real(t->gguf, t->arch, "attention.temperature_scale", 0.0);
    return scale == 0.0 ? 1.0 : 1.0 + scale * log1p(floor((double)position / context));
}

static void attention(const twin *t, double *x, int layer, size_t position) {
    double h[WIDTH_MAX] = {0}, q[WIDTH_MAX] = {0}, a[WIDTH_MAX] = {0};
    const size_t stride = (size_t)t->kv_heads * t->dim;
    double *k = t->k + position * stride, *v = t->v + position * stride;
    memcpy(h, x, t->width * sizeof *h);
    if (!t->olmo2 && !t->exaone4) norm(t, h, x, tensor(t, layer, "attn_norm.weight"), t->width);
    qkv(t, q, k, v, h, layer);
    heads(t, q, t->heads, tensor(t, layer, "attn_q_norm.weight"), layer, position);
    heads(t, k, t->kv_heads, tensor(t, layer, "attn_k_norm.weight"), layer, position);
    for (uint32_t i = 0; i < t->heads * t->dim; i++) q[i] *= temperature(t, position);
    const uint32_t group = t->heads / t->kv_heads;
    OMM_ASSERT(group > 0);
    for (uint32_t i = 0; i < t->heads; i++)
        attend_head(t, a + (size_t)i * t->dim, q + (size_t)i * t->dim, i / group, layer, position);
    product(t, h, tensor(t, layer, "attn_output.weight"), 0, t->width, a, NULL);
    add(t, x, h, tensor(t, layer, "post_attention_norm.weight"));
}

static double activate(const twin *t, double x) {
    if (!t->gemma && !t->gemma2 && !t->gemma3) return x / (1.0 + exp(-x));
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static void feed_forward(const twin *t, double *x, int layer) {
    double h[WIDTH_MAX] = {0}, gate[WIDTH_MAX] = {0}, up[WIDTH_MAX] = {0};
    const omm_gguf_tensor *w = tensor(t, layer, "ffn_up.weight");
    memcpy(h, x, t->width * sizeof *h);
    if (!t->olmo2 && !t->exaone4) norm(t, h, x, tensor(t, layer, "ffn_norm.weight"), t->width);
    product(t, gate, t->phi3 ? w : tensor(t, layer, "ffn_gate.weight"), 0, t->ff, h, NULL);
    product(t, up, w, t->phi3 ? t->ff : 0, t->ff, h, NULL);
    for (uint32_t i = 0; i < t->ff; i++) gate[i] = activate(t, gate[i]) * up[i];
    product(t, h, tensor(t, layer, "ffn_down.weight"), 0, t->width, gate, NULL);
    add(t, x, h, tensor(t, layer, "post_ffw_norm.weight"));
}

static twin open_twin(const omm_gguf *gguf, bool long_rope) {
    twin t = {.gguf = gguf, .long_rope = long_rope};
    OMM_ASSERT(omm_gguf_get_text(t.arch, sizeof t.arch, gguf, "general.architecture") == OMM_OK);
    t.gemma = strcmp(t.arch, "gemma") == 0;
    t.gemma2 = strcmp(t.arch, "gemma2") == 0;
    t.gemma3 = strcmp(t.arch, "gemma3") == 0;
    t.phi3 = strcmp(t.arch, "phi3") == 0;
    t.smollm3 = strcmp(t.arch, "smollm3") == 0;
    t.granite = strcmp(t.arch, "granite") == 0;
    t.olmo2 = strcmp(t.arch, "olmo2") == 0;
    t.mistral3 = strcmp(t.arch, "mistral3") == 0;
    t.exaone4 = strcmp(t.arch, "exaone4") == 0;
    t.hunyuan = strcmp(t.arch, "hunyuan-dense") == 0;
    t.layers = twin_whole(gguf, t.arch, "block_count", 0);
    t.width = twin_whole(gguf, t.arch, "embedding_length", 0);
    t.ff = twin_whole(gguf, t.arch, "feed_forward_length", 0);
    t.heads = twin_whole(gguf, t.arch, "attention.head_count", 0);
    t.kv_heads = twin_whole(gguf, t.arch, "attention.head_count_kv", t.heads);
    t.dim = twin_whole(gguf, t.arch, "attention.key_length", t.width / t.heads);
    t.rotated = twin_whole(gguf, t.arch, "rope.dimension_count", t.dim);
    t.window = twin_whole(gguf, t.arch, "attention.sliding_window", 0);
    t.eps = twin_real(gguf, t.arch, "attention.layer_norm_rms_epsilon", 0.0);
    OMM_ASSERT(t.width <= WIDTH_MAX && t.ff <= WIDTH_MAX && t.heads * t.dim <= WIDTH_MAX);
    return t;
}

static void last_layer(const twin *t, double *logits, const double *x) {
    double h[WIDTH_MAX] = {0};
    const omm_gguf_tensor *w = tensor(t, -1, "output.weight");
    if (!w) w = tensor(t, -1, "token_embd.weight");
    norm(t, h, x, tensor(t, -1, "output_norm.weight"), t->width);
    product(t, logits, w, 0, w->dims[1], h, NULL);
    const double cap =
        twin_real(t->gguf, t->arch, "final_logit_softcapping", t->gemma2 ? 30.0 : 0.0);
    for (size_t i = 0; t->granite && i < w->dims[1]; i++) logits[i] /= granite(t, "logit_scale");
    for (size_t i = 0; cap > 0.0 && i < w->dims[1]; i++) logits[i] = cap * tanh(logits[i] / cap);
}

void twin_logits(double *out, const omm_gguf *gguf, const uint32_t *ids, size_t count,
                 bool long_rope) {
    twin t = open_twin(gguf, long_rope);
    const omm_gguf_tensor *embed = tensor(&t, -1, "token_embd.weight");
    double *x = omm_alloc(count * t.width, sizeof *x);
    t.k = omm_alloc((size_t)LENGTH_MAX * t.kv_heads * t.dim, sizeof *t.k);
    t.v = omm_alloc((size_t)LENGTH_MAX * t.kv_heads * t.dim, sizeof *t.v);
    t.weights = omm_alloc(gguf->tensor_count, sizeof *t.weights);
    OMM_ASSERT(x && t.k && t.v && t.weights && count <= LENGTH_MAX);
    double scale = t.gemma || t.gemma2 || t.gemma3 ? sqrt((double)t.width) : 1.0;
    if (granite(&t, "embedding_scale") != 0.0) scale = granite(&t, "embedding_scale");
    for (size_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < t.width; i++)
            x[p * t.width + i] = scale * weights(&t, embed)[(size_t)ids[p] * t.width + i];
    for (int layer = 0; layer < (int)t.layers; layer++)
        for (size_t p = 0; p < count; p++) {
            attention(&t, x + p * t.width, layer, p);
            feed_forward(&t, x + p * t.width, layer);
        }
    for (size_t p = 0; p < count; p++) last_layer(&t, out + p * embed->dims[1], x + p * t.width);
    for (size_t i = 0; i < gguf->tensor_count; i++) omm_free(t.weights[i]);
    omm_free(t.weights);
    omm_free(x);
    omm_free(t.k);
    omm_free(t.v);
}
