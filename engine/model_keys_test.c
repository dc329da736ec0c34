/* model_keys_test.c - what each key of a model's file may say, and what is taken where it is missing; files without a
 * tensor, as nothing else is asked here. */
#include "arch.h"
#include "omm/gguf.h"
#include "omm_test.h"

#include "omm/mem.h"

#include <math.h>
#include <stddef.h>

/* BOOLS, WHOLES: text has 0 or 1 of each. */
typedef enum kind { NONE, U32, REAL, TEXT, BOOL, BOOLS, WHOLES } kind;

/* A key behind the architecture's name; of kind NONE: one that the file has not. */
typedef struct entry {
    const char *tail;
    kind kind;
    double value;
    const char *text;
} entry;

static const entry s_base[] = {
    {"block_count", U32, 4, NULL},          {"embedding_length", U32, 64, NULL},
    {"feed_forward_length", U32, 96, NULL}, {"context_length", U32, 400, NULL},
    {"attention.head_count", U32, 4, NULL}, {"attention.layer_norm_rms_epsilon", REAL, 1e-5, NULL},
    {"logit_scale", REAL, 8, NULL}};

enum { BASE = sizeof s_base / sizeof *s_base };

static void put_digits(omm_gguf_writer *w, const char *name, omm_gguf_kind of, size_t bytes,
                       const char *text) {
    uint8_t items[16 * 4] = {0};
    const size_t count = strlen(text);
    CHECK(count * bytes <= sizeof items);
    for (size_t i = 0; i < count; i++) items[i * bytes] = text[i] == '1';
    omm_gguf_put_array(w, name, of, items, count);
}

static void put(omm_gguf_writer *w, const char *prefix, const entry *e) {
    char name[OMM_GGUF_NAME_MAX];
    snprintf(name, sizeof name, "%s.%s", prefix, e->tail);
    switch (e->kind) {
    case U32: omm_gguf_put_u32(w, name, (uint32_t)e->value); break;
    case REAL: omm_gguf_put_f32(w, name, (float)e->value); break;
    case TEXT: omm_gguf_put_text(w, name, e->text); break;
    case BOOL: omm_gguf_put_bool(w, name, e->value != 0.0); break;
    case BOOLS: put_digits(w, name, OMM_GGUF_BOOL, 1, e->text); break;
    case WHOLES: put_digits(w, name, OMM_GGUF_U32, 4, e->text); break;
    case NONE: break;
    }
}

static const entry *replaced(const entry *own, size_t count, const char *tail) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(own[i].tail, tail) == 0) return &own[i];
    return NULL;
}

/* The base with `own` in its place; `tables`: of longrope's factors one is there. */
static omm_err load(omm_model_dims *d, const char *name, const entry *own, size_t count,
                    bool tables) {
    const arch *a = NULL;
    const uint8_t one[4] = {0, 0, 0x80, 0x3f};
    omm_gguf_writer w;
    omm_gguf gguf;
    omm_buf file;
    CHECK_OK(arch_find(&a, name));
    omm_gguf_writer_init(&w);
    for (size_t i = 0; i < BASE; i++)
        if (!replaced(own, count, s_base[i].tail)) put(&w, name, &s_base[i]);
    for (size_t i = 0; i < count; i++) put(&w, name, &own[i]);
    if (tables)
        omm_gguf_put_tensor(&w, "rope_factors_long.weight", OMM_GGML_F32, 1, (uint64_t[]){1},
                            omm_bytes_of(one, sizeof one));
    omm_buf_init(&file, 1 << 16);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    omm_gguf_writer_fini(&w);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    *d = (omm_model_dims){0};
    const omm_err err = model_keys_load(d, a, &gguf);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    return err;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

typedef enum field_type { FIELD_U32, FIELD_F32, FIELD_F64 } field_type;

/* A number that a file may give: from `low` to `high`, and where in dims it is. */
typedef struct number {
    const char *arch, *tail;
    kind kind;
    double low, high, below, above; /* the last two are refused */
    omm_err err;
    field_type type;
    size_t at;
} number;

#define AT_U32(field) FIELD_U32, offsetof(omm_model_dims, field)
#define AT_F32(field) FIELD_F32, offsetof(omm_model_dims, field)
#define AT_F64(field) FIELD_F64, offsetof(omm_model_dims, field)

static const number s_numbers[] = {
    {"llama", "block_count", U32, 1, OMM_MODEL_LAYERS_MAX, 0, OMM_MODEL_LAYERS_MAX + 1,
     OMM_ERR_TOO_BIG, AT_U32(layers)},
    {"llama", "embedding_length", U32, 8, 1024, 0, OMM_MODEL_WIDTH_MAX + 1, OMM_ERR_TOO_BIG,
     AT_U32(d_model)},
    {"llama", "feed_forward_length", U32, 1, 4 * OMM_MODEL_WIDTH_MAX, 0,
     4 * OMM_MODEL_WIDTH_MAX + 1, OMM_ERR_TOO_BIG, AT_U32(d_ff)},
    {"llama", "context_length", U32, 1, OMM_MODEL_CONTEXT_MAX, 0, (1u << 30) + 1, OMM_ERR_TOO_BIG,
     AT_U32(context)},
    {"llama", "context_length", U32, 1, 1u << 30, 0, (1u << 30) + 1, OMM_ERR_TOO_BIG,
     AT_U32(rope_context)},
    {"llama", "attention.layer_norm_rms_epsilon", REAL, 1e-12, 0.9375, 0, 1, OMM_ERR_NUMERIC,
     AT_F32(rms_eps)},
    {"llama", "attention.head_count", U32, 1, 32, 0, 1025, OMM_ERR_TOO_BIG, AT_U32(heads)},
    {"llama", "attention.head_count_kv", U32, 1, 4, 0, 5, OMM_ERR_TOO_BIG, AT_U32(kv_heads)},
    {"llama", "rope.dimension_count", U32, 2, 16, 0, 18, OMM_ERR_UNSUPPORTED, AT_U32(rotated)},
    {"llama", "rope.freq_base", REAL, 1.0011, 9.99e11, 1, 1.01e12, OMM_ERR_NUMERIC,
     AT_F64(rope_base)},
    {"llama", "rope.freq_base_swa", REAL, 1.0011, 9.99e11, 1, 1.01e12, OMM_ERR_NUMERIC,
     AT_F64(rope_base_local)},
    {"llama", "rope.scaling.original_context_length", U32, 1, 1u << 30, 0, (1u << 30) + 1,
     OMM_ERR_TOO_BIG, AT_U32(rope_context)},
    {"llama", "rope.scaling.attn_factor", REAL, 0.0011, 1000, 0.0009, 1001, OMM_ERR_NUMERIC,
     AT_F64(rope_magnitude)},
    {"llama", "rope.scaling.yarn_beta_fast", REAL, 0.0011, 1e6, 0.0009, 1.1e6, OMM_ERR_NUMERIC,
     AT_F64(yarn_beta_fast)},
    {"llama", "rope.scaling.yarn_beta_slow", REAL, 0.0011, 1e6, 0.0009, 1.1e6, OMM_ERR_NUMERIC,
     AT_F64(yarn_beta_slow)},
    {"llama", "rope.scaling.factor", REAL, 1, 1e6, 0.999, 1.1e6, OMM_ERR_NUMERIC,
     AT_F64(rope_factor)},
    {"llama", "rope.scale_linear", REAL, 1, 1e6, 0.999, 1.1e6, OMM_ERR_NUMERIC,
     AT_F64(rope_factor)},
    {"gemma2", "attn_logit_softcapping", REAL, 0, 1e6, -1, 1.1e6, OMM_ERR_NUMERIC,
     AT_F32(attention_softcap)},
    {"gemma2", "final_logit_softcapping", REAL, 0, 1e6, -1, 1.1e6, OMM_ERR_NUMERIC,
     AT_F32(output_softcap)},
    {"gemma2", "attention.sliding_window_pattern", U32, 0, OMM_MODEL_LAYERS_MAX,
     OMM_MODEL_LAYERS_MAX + 1, UINT32_MAX, OMM_ERR_TOO_BIG, AT_U32(window_period)},
    {"granite", "embedding_scale", REAL, 1e-3, 1e6, -1, 1.1e6, OMM_ERR_NUMERIC,
     AT_F32(embed_scale)},
    {"granite", "residual_scale", REAL, 1e-3, 1e6, -1, 1.1e6, OMM_ERR_NUMERIC,
     AT_F32(residual_scale)},
    {"granite", "attention.scale", REAL, 1e-3, 1e6, -1, 1.1e6, OMM_ERR_NUMERIC,
     AT_F32(attention_scale)},
    {"mistral3", "attention.temperature_scale", REAL, 0, 1000, -0.1, 1001, OMM_ERR_NUMERIC,
     AT_F64(temperature)},
    {"mistral3", "rope.scaling.yarn_log_multiplier", REAL, 0, 1000, -0.1, 1001, OMM_ERR_NUMERIC,
     AT_F64(yarn_log_multiplier)},
};

static double field_of(const omm_model_dims *d, const number *n) {
    const uint8_t *at = (const uint8_t *)d + n->at;
    uint32_t u = 0;
    float f = 0.0f;
    double x = 0.0;
    if (n->type == FIELD_U32) memcpy(&u, at, sizeof u);
    if (n->type == FIELD_F32) memcpy(&f, at, sizeof f);
    if (n->type == FIELD_F64) memcpy(&x, at, sizeof x);
    return n->type == FIELD_U32 ? (double)u : n->type == FIELD_F32 ? (double)f : x;
}

static void ranges(void) {
    for (size_t i = 0; i < sizeof s_numbers / sizeof *s_numbers; i++) {
        const number *n = &s_numbers[i];
        omm_model_dims d;
        for (int end = 0; end < 2; end++) {
            const entry good = {n->tail, n->kind, end ? n->high : n->low, NULL};
            CHECK_OK(load(&d, n->arch, &good, 1, false));
            const double want = n->kind == REAL ? (double)(float)good.value : good.value;
            if (field_of(&d, n) != want) fprintf(stderr, "%s: %g\n", n->tail, field_of(&d, n));
            CHECK(field_of(&d, n) == want);
            const entry bad = {n->tail, n->kind, end ? n->above : n->below, NULL};
            CHECK_ERR(load(&d, n->arch, &bad, 1, false), n->err);
            CHECK(strstr(omm_err_sentence(),
                         strrchr(n->tail, '.') ? strrchr(n->tail, '.') : n->tail));
        }
    }
    omm_model_dims d;
    for (size_t i = 0; i < 2; i++) { /* what files divide by */
        const entry good = {"logit_scale", REAL, (double[]){1e-5, 1e6}[i], NULL};
        const entry bad = {"logit_scale", REAL, (double[]){1e-7, 1.1e6}[i], NULL};
        CHECK_OK(load(&d, "granite", &good, 1, false));
        CHECK(d.logit_scale == 1.0f / (float)good.value);
        CHECK_ERR(load(&d, "granite", &bad, 1, false), OMM_ERR_NUMERIC);
    }
}

/* ---- kinds ----------------------------------------------------------------------------------- */

/* A key of another kind than it must be is an error, never the same as one that is missing. */
static void wrong_kinds(void) {
    static const struct {
        const char *arch, *tail;
        bool text; /* its right kind: then a number is wrong, else a text */
    } keys[] = {{"llama", "block_count", false},
                {"llama", "embedding_length", false},
                {"llama", "feed_forward_length", false},
                {"llama", "context_length", false},
                {"llama", "attention.layer_norm_rms_epsilon", false},
                {"llama", "attention.head_count", false},
                {"llama", "attention.head_count_kv", false},
                {"llama", "attention.key_length", false},
                {"llama", "attention.value_length", false},
                {"llama", "rope.dimension_count", false},
                {"llama", "attention.causal", false},
                {"granite", "rope.scaling.finetuned", false},
                {"llama", "rope.freq_base", false},
                {"llama", "rope.freq_base_swa", false},
                {"llama", "rope.scaling.type", true},
                {"llama", "rope.scaling.original_context_length", false},
                {"llama", "rope.scaling.attn_factor", false},
                {"llama", "rope.scaling.yarn_beta_fast", false},
                {"llama", "rope.scaling.yarn_beta_slow", false},
                {"llama", "rope.scaling.factor", false},
                {"gemma2", "attn_logit_softcapping", false},
                {"gemma2", "final_logit_softcapping", false},
                {"gemma2", "attention.sliding_window", false},
                {"gemma2", "attention.sliding_window_pattern", false},
                {"olmo2", "attention.sliding_window", false},
                {"olmo2", "attention.sliding_window_pattern", false},
                {"granite", "embedding_scale", false},
                {"granite", "residual_scale", false},
                {"granite", "attention.scale", false},
                {"granite", "logit_scale", false},
                {"mistral3", "attention.temperature_scale", false},
                {"mistral3", "rope.scaling.yarn_log_multiplier", false},
                {"exaone4", "attention.sliding_window_pattern", false},
                {"hunyuan-dense", "rope.scaling.alpha", false}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const entry e = {keys[i].tail, keys[i].text ? U32 : TEXT, 1, "8"};
        omm_model_dims d;
        CHECK_ERR(load(&d, keys[i].arch, &e, 1, false), OMM_ERR_FORMAT);
        CHECK(strstr(omm_err_sentence(), keys[i].tail) != NULL);
    }
    for (size_t i = 0; i < BASE; i++) {
        const entry e = {s_base[i].tail, NONE, 0, NULL};
        omm_model_dims d;
        CHECK_ERR(load(&d, "granite", &e, 1, false), OMM_ERR_NOT_FOUND);
        CHECK(strstr(omm_err_sentence(), s_base[i].tail) != NULL);
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void heads(void) {
    static const struct {
        double count, kv, key, value, rotated; /* 0: no such key */
        omm_err err;
        uint32_t dim, turned; /* of what loads */
    } cases[] = {{4, 0, 0, 0, 0, OMM_OK, 16, 16},
                 {4, 2, 0, 0, 0, OMM_OK, 16, 16},
                 {4, 3, 0, 0, 0, OMM_ERR_UNSUPPORTED, 0, 0},
                 {4, 0, 20, 0, 0, OMM_OK, 20, 20},
                 {4, 0, 20, 20, 8, OMM_OK, 20, 8},
                 {4, 0, 20, 16, 0, OMM_ERR_UNSUPPORTED, 0, 0},
                 {4, 0, 0, 20, 0, OMM_ERR_UNSUPPORTED, 0, 0},
                 {4, 0, 21, 21, 20, OMM_ERR_UNSUPPORTED, 0, 0},
                 {4, 0, 2, 2, 0, OMM_OK, 2, 2},
                 {4, 0, 1, 1, 0, OMM_ERR_TOO_BIG, 0, 0},
                 {4, 0, OMM_HEAD_DIM_MAX, 0, 0, OMM_OK, OMM_HEAD_DIM_MAX, OMM_HEAD_DIM_MAX},
                 {4, 0, OMM_HEAD_DIM_MAX + 2, 0, 2, OMM_ERR_TOO_BIG, 0, 0},
                 {1024, 1024, 8, 0, 0, OMM_OK, 8, 8},
                 {4, 0, 0, 0, 3, OMM_ERR_UNSUPPORTED, 0, 0},
                 {4, 0, 0, 0, 1, OMM_ERR_UNSUPPORTED, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double values[] = {cases[i].count, cases[i].kv, cases[i].key, cases[i].value,
                                 cases[i].rotated};
        static const char *const tails[] = {"attention.head_count", "attention.head_count_kv",
                                            "attention.key_length", "attention.value_length",
                                            "rope.dimension_count"};
        entry own[5];
        omm_model_dims d;
        for (size_t k = 0; k < 5; k++)
            own[k] = (entry){tails[k], values[k] > 0 ? U32 : NONE, values[k], NULL};
        CHECK_ERR(load(&d, "llama", own, 5, false), cases[i].err);
        if (cases[i].err != OMM_OK) continue;
        CHECK_EQ(d.head_dim, cases[i].dim);
        CHECK_EQ(d.rotated, cases[i].turned);
        CHECK_EQ(d.kv_heads, values[1] > 0 ? values[1] : values[0]);
    }
}

/* ---- rope, windows, switches ----------------------------------------------------------------- */

static void scalings(void) {
    static const struct {
        const char *arch, *type; /* NULL: no such key */
        bool factor, older, tables;
        omm_err err;
        omm_rope_scaling is;
    } cases[] = {{"llama", NULL, false, false, false, OMM_OK, OMM_ROPE_SCALING_NONE},
                 {"llama", NULL, true, false, false, OMM_OK, OMM_ROPE_SCALING_LINEAR},
                 {"llama", NULL, false, true, false, OMM_OK, OMM_ROPE_SCALING_LINEAR},
                 {"llama", NULL, false, false, true, OMM_OK, OMM_ROPE_SCALING_NONE},
                 {"llama", "none", true, false, false, OMM_OK, OMM_ROPE_SCALING_NONE},
                 {"llama", "linear", true, false, false, OMM_OK, OMM_ROPE_SCALING_LINEAR},
                 {"llama", "linear", false, false, false, OMM_ERR_NOT_FOUND, 0},
                 {"llama", "yarn", true, false, false, OMM_OK, OMM_ROPE_SCALING_YARN},
                 {"llama", "yarn", false, true, false, OMM_OK, OMM_ROPE_SCALING_YARN},
                 {"llama", "yarn", false, false, false, OMM_ERR_NOT_FOUND, 0},
                 {"llama", "longrope", false, false, true, OMM_ERR_UNSUPPORTED, 0},
                 {"phi3", NULL, false, false, true, OMM_OK, OMM_ROPE_SCALING_LONG},
                 {"phi3", NULL, true, false, true, OMM_OK, OMM_ROPE_SCALING_LONG},
                 {"phi3", "longrope", true, false, true, OMM_OK, OMM_ROPE_SCALING_LONG},
                 {"phi3", "longrope", true, false, false, OMM_ERR_UNSUPPORTED, 0},
                 {"phi3", "linear", true, false, true, OMM_OK, OMM_ROPE_SCALING_LINEAR}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry own[] = {
            {"rope.scaling.type", cases[i].type ? TEXT : NONE, 0, cases[i].type},
            {"rope.scaling.factor", cases[i].factor ? REAL : NONE, 8, NULL},
            {"rope.scale_linear", cases[i].older ? REAL : NONE, 4, NULL},
        };
        omm_model_dims d;
        CHECK_ERR(load(&d, cases[i].arch, own, 3, cases[i].tables), cases[i].err);
        if (cases[i].err != OMM_OK) continue;
        CHECK_EQ(d.rope_scaling, cases[i].is);
        const bool scaled =
            d.rope_scaling == OMM_ROPE_SCALING_LINEAR || d.rope_scaling == OMM_ROPE_SCALING_YARN;
        CHECK(d.rope_factor == (!scaled ? 1.0 : cases[i].factor ? 8.0 : 4.0));
    }
}

/* What stands in no file: of each architecture, 4 heads of 16 values. */
static void missing(void) {
    static const struct {
        const char *arch;
        float softcaps[2];
        uint32_t window, period, unrotated;
        double local;
        bool rope_local;
        float embed, logit;
    } cases[] = {{"llama", {0, 0}, 0, 0, 0, 10000, false, 1, 1},
                 {"gemma", {0, 0}, 0, 0, 0, 10000, false, 8, 1},
                 {"gemma2", {50, 30}, 4096, 2, 0, 10000, false, 8, 1},
                 {"gemma3", {0, 0}, 0, 6, 0, 10000, true, 8, 1},
                 {"phi3", {0, 0}, 0, 0, 0, 10000, false, 1, 1},
                 {"smollm3", {0, 0}, 0, 0, 4, 10000, false, 1, 1},
                 {"granite", {0, 0}, 0, 0, 0, 10000, false, 1, 0.125f},
                 {"olmo2", {0, 0}, 0, 4, 0, 10000, false, 1, 1},
                 {"mistral3", {0, 0}, 0, 0, 0, 10000, false, 1, 1},
                 {"exaone4", {0, 0}, 0, 4, 0, 10000, false, 1, 1},
                 {"ernie4_5", {0, 0}, 0, 0, 0, 10000, false, 1, 1},
                 {"hunyuan-dense", {0, 0}, 0, 0, 0, 10000, false, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_model_dims d;
        CHECK_OK(load(&d, cases[i].arch, NULL, 0, false));
        CHECK(d.attention_softcap == cases[i].softcaps[0] &&
              d.output_softcap == cases[i].softcaps[1]);
        CHECK_EQ(d.window, cases[i].window);
        CHECK_EQ(d.window_period, cases[i].period);
        CHECK_EQ(d.unrotated_period, cases[i].unrotated);
        CHECK(d.rope_base == 10000.0 && d.rope_base_local == cases[i].local);
        CHECK_EQ(d.rope_local, cases[i].rope_local);
        CHECK(d.embed_scale == cases[i].embed && d.logit_scale == cases[i].logit);
        CHECK(d.residual_scale == 1.0f && d.attention_scale == 0.25f);
        CHECK(d.rope_magnitude == 1.0 && d.rope_factor == 1.0);
        CHECK(d.yarn_beta_fast == 32.0 && d.yarn_beta_slow == 1.0);
        CHECK_EQ(d.rope_context, 400);
        CHECK(d.temperature == 0.0 && d.yarn_log_multiplier == 0.0);
        CHECK_EQ(d.norms_turned, strcmp(cases[i].arch, "hunyuan-dense") == 0);
    }
}

/* Which layers have the window, and with it turn, as a number or layer by layer. */
static void periods(void) {
    static const struct {
        const char *arch;
        double layers, window;
        kind kind;
        double number;
        const char *layer_by_layer;
        omm_err err;
        uint32_t period, unrotated;
    } cases[] = {{"exaone4", 8, 0, NONE, 0, NULL, OMM_OK, 4, 0},
                 {"exaone4", 8, 128, NONE, 0, NULL, OMM_OK, 4, 4},
                 {"exaone4", 8, 128, U32, 3, NULL, OMM_OK, 3, 3},
                 {"exaone4", 8, 128, BOOLS, 0, "11101110", OMM_OK, 4, 4},
                 {"exaone4", 6, 128, BOOLS, 0, "111011", OMM_OK, 4, 4},
                 {"exaone4", 8, 0, BOOLS, 0, "00000000", OMM_OK, 4, 0},
                 {"exaone4", 8, 128, BOOLS, 0, "11101111", OMM_ERR_UNSUPPORTED, 0, 0},
                 {"exaone4", 8, 128, BOOLS, 0, "01101110", OMM_ERR_UNSUPPORTED, 0, 0},
                 {"exaone4", 8, 128, BOOLS, 0, "1110", OMM_ERR_UNSUPPORTED, 0, 0},
                 {"exaone4", 8, 128, BOOLS, 0, "1110111011101110", OMM_ERR_UNSUPPORTED, 0, 0},
                 {"exaone4", 8, 128, WHOLES, 0, "11101110", OMM_ERR_FORMAT, 0, 0},
                 {"olmo2", 6, 128, BOOLS, 0, "111011", OMM_OK, 4, 0},
                 {"olmo2", 6, 128, BOOLS, 0, "111111", OMM_ERR_UNSUPPORTED, 0, 0},
                 {"gemma2", 4, 128, BOOLS, 0, "1010", OMM_OK, 2, 0},
                 {"gemma2", 4, 128, BOOLS, 0, "0101", OMM_ERR_UNSUPPORTED, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry own[] = {
            {"block_count", U32, cases[i].layers, NULL},
            {"attention.sliding_window", cases[i].window > 0 ? U32 : NONE, cases[i].window, NULL},
            {"attention.sliding_window_pattern", cases[i].kind, cases[i].number,
             cases[i].layer_by_layer}};
        omm_model_dims d;
        CHECK_ERR(load(&d, cases[i].arch, own, 3, false), cases[i].err);
        if (cases[i].err != OMM_OK) {
            CHECK(strstr(omm_err_sentence(), "attention.sliding_window_pattern") != NULL);
            continue;
        }
        CHECK_EQ(d.window_period, cases[i].period);
        CHECK_EQ(d.unrotated_period, cases[i].unrotated);
    }
}

/* Heads of 16: a base of 10000 becomes 10000 * alpha^(16 / 14). */
static void stretched_bases(void) {
    const entry own[] = {{"rope.scaling.alpha", REAL, 1000, NULL}};
    omm_model_dims d;
    CHECK_OK(load(&d, "hunyuan-dense", own, 1, false));
    CHECK(fabs(d.rope_base / 26826957.952797 - 1) < 1e-9 && d.rope_base_local == d.rope_base);
    CHECK(!d.rope_local);
    CHECK_OK(load(&d, "qwen3", own, 1, false)); /* there it says nothing */
    CHECK(d.rope_base == 10000.0);
    const entry pair[] = {own[0], {"rope.dimension_count", U32, 2, NULL}}; /* 2 / (2 - 2) */
    CHECK_OK(load(&d, "hunyuan-dense", pair, 2, false));
    CHECK(d.rope_base == 10000.0);
    const entry bad[] = {{"rope.scaling.alpha", REAL, -1, NULL}};
    CHECK_ERR(load(&d, "hunyuan-dense", bad, 1, false), OMM_ERR_NUMERIC);
    const entry shrinks[] = {{"rope.scaling.alpha", REAL, 1e-3, NULL}};
    CHECK_ERR(load(&d, "hunyuan-dense", shrinks, 1, false), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "rope.scaling.alpha") != NULL);
}

static void temperatures(void) {
    const omm_model_dims d = {.temperature = 0.1, .rope_context = 16};
    const omm_model_dims none = {.rope_context = 16};
    CHECK(omm_model_temperature(&none, 1000) == 1.0f);
    CHECK(omm_model_temperature(&d, 0) == 1.0f && omm_model_temperature(&d, 15) == 1.0f);
    CHECK(omm_model_temperature(&d, 16) == (float)(1.0 + 0.1 * log(2.0)));
    CHECK(omm_model_temperature(&d, 31) == omm_model_temperature(&d, 16));
    CHECK(omm_model_temperature(&d, 32) == (float)(1.0 + 0.1 * log(3.0)));
}

/* Layers with a window turn by their own base where it differs from the others', and by the others' without a key. */
static void local_bases(void) {
    static const struct {
        const char *arch;
        double base, local; /* 0: no key */
        double is;
        bool rope_local;
    } cases[] = {{"phi3", 5e5, 0, 5e5, false},
                 {"phi3", 5e5, 1e4, 1e4, true},
                 {"phi3", 5e5, 5e5, 5e5, false},
                 {"gemma3", 1e6, 0, 1e4, true},
                 {"gemma3", 1e4, 0, 1e4, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry own[] = {
            {"rope.freq_base", REAL, cases[i].base, NULL},
            {"rope.freq_base_swa", cases[i].local > 0 ? REAL : NONE, cases[i].local, NULL}};
        omm_model_dims d;
        CHECK_OK(load(&d, cases[i].arch, own, 2, false));
        CHECK(d.rope_base == cases[i].base && d.rope_base_local == cases[i].is);
        CHECK_EQ(d.rope_local, cases[i].rope_local);
    }
}

/* Rope's scaling is not for layers with a window; what yarn gives by itself is not counted twice. */
static void unscaled_windows(void) {
    static const struct {
        const char *arch;
        double window, factor, magnitude; /* rope.scaling.attn_factor; that it becomes */
        bool local;
    } cases[] = {{"olmo2", 128, 0, 1, true},
                 {"olmo2", 0, 0, 1, false},
                 {"olmo2", 128, 1.2079441541679836, 1, true},
                 {"olmo2", 128, 1.2, 1.2, true},
                 {"exaone4", 128, 1.2079441541679836, 1.2079441541679836, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry own[] = {
            {"attention.sliding_window", U32, cases[i].window, NULL},
            {"rope.scaling.type", TEXT, 0, "yarn"},
            {"rope.scaling.factor", REAL, 8, NULL},
            {"rope.scaling.attn_factor", cases[i].factor > 0 ? REAL : NONE, cases[i].factor, NULL}};
        omm_model_dims d;
        CHECK_OK(load(&d, cases[i].arch, own, 4, false));
        CHECK_EQ(d.rope_local, cases[i].local);
        CHECK(fabs(d.rope_magnitude - cases[i].magnitude) < 1e-7);
        CHECK(d.rope_base_local == 10000.0);
    }
    const entry linear[] = {{"rope.scaling.type", TEXT, 0, "linear"},
                            {"rope.scaling.factor", REAL, 8, NULL},
                            {"rope.scaling.attn_factor", REAL, 1.2079441541679836, NULL}};
    omm_model_dims d;
    CHECK_OK(load(&d, "olmo2", linear, 3, false));
    CHECK(d.rope_magnitude > 1.2);
}

static void switches(void) {
    static const struct {
        const char *arch, *tail;
        kind kind;
        double value;
        omm_err err;
    } cases[] = {
        {"llama", "attention.causal", BOOL, 1, OMM_OK},
        {"llama", "attention.causal", BOOL, 0, OMM_ERR_UNSUPPORTED},
        {"granite", "attention.causal", BOOL, 0, OMM_ERR_UNSUPPORTED},
        {"granite", "rope.scaling.finetuned", BOOL, 1, OMM_OK},
        {"granite", "rope.scaling.finetuned", BOOL, 0, OMM_ERR_UNSUPPORTED},
        {"llama", "rope.scaling.finetuned", BOOL, 0, OMM_OK}}; /* says something else there */
    omm_model_dims d;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry e = {cases[i].tail, cases[i].kind, cases[i].value, NULL};
        CHECK_ERR(load(&d, cases[i].arch, &e, 1, false), cases[i].err);
        if (cases[i].err != OMM_OK) CHECK(strstr(omm_err_sentence(), cases[i].tail) != NULL);
    }
    /* Of llama a window is not read. */
    CHECK_OK(load(&d, "llama", &(entry){"attention.sliding_window", U32, 128, NULL}, 1, false));
    CHECK_EQ(d.window, 0);
    CHECK_OK(load(&d, "phi3", &(entry){"attention.sliding_window", U32, 128, NULL}, 1, false));
    CHECK_EQ(d.window, 128);
    /* A scale of 0 says nothing. */
    CHECK_OK(load(&d, "granite", &(entry){"embedding_scale", REAL, 0, NULL}, 1, false));
    CHECK(d.embed_scale == 1.0f);
}

/* Gemma's largest: scores by d_model / heads, which is not head_dim there. */
static void wide_scales(void) {
    static const struct {
        const char *arch;
        double layers;
        float scale;
    } cases[] = {{"gemma2", 46, 0.25f},
                 {"gemma2", 45, 0.125f},
                 {"gemma3", 62, 0.25f},
                 {"gemma3", 46, 0.125f},
                 {"llama", 46, 0.125f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const entry own[] = {{"block_count", U32, cases[i].layers, NULL},
                             {"attention.key_length", U32, 64, NULL},
                             {"attention.value_length", U32, 64, NULL}};
        omm_model_dims d;
        CHECK_OK(load(&d, cases[i].arch, own, 3, false));
        CHECK(d.attention_scale == cases[i].scale);
    }
}

int main(void) {
    ranges();
    wrong_kinds();
    heads();
    scalings();
    missing();
    periods();
    stretched_bases();
    temperatures();
    local_bases();
    unscaled_windows();
    switches();
    wide_scales();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
