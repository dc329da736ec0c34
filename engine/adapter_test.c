/* adapter_test.c - packed adapters hold exactly the values they were given, in the first format that
 * does, and their digests tell values apart. */
#include "adapter_internal.h"
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 2, D = 96, RANK = 3, RANK_BLOCK = 32 }; /* B of the second has whole blocks too */

static const omm_lora_spec s_spec = {RANK, 6.0f, OMM_LORA_ALL_TARGETS};

static omm_model shape_only(void) {
    omm_model m = {.dims = {.layers = LAYERS}, .lora_shape = {.layer_count = LAYERS}};
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        m.lora_shape.d_in[t] = t == OMM_LORA_DOWN ? 2 * D : D;
        m.lora_shape.d_out[t] = D + 7 * t;
    }
    return m;
}

/* Every A and B of the adapter has this format and the values of the lora. */
static void expect(const omm_adapter *a, const omm_lora *lora, omm_format of_a, omm_format of_b) {
    float row[2 * D];
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        const adapter_layer *l = &a->layers[t->layer];
        const omm_matrix *m = t->is_b ? &l->b[t->target] : &l->a[adapter_input_of(t->target)];
        CHECK_EQ(m->format, t->is_b ? of_b : of_a);
        for (uint32_t r = 0; r < t->rows; r++) {
            omm_matrix_row(row, m, r + (t->is_b ? 0 : l->row[t->target]));
            CHECK(memcmp(row, lora->values + t->offset + (size_t)r * t->cols,
                         t->cols * sizeof *row) == 0);
        }
    }
}

/* The same of the adapter that is made of the lora. */
static void packs_as(const omm_model *model, const omm_lora *lora, omm_format of_a,
                     omm_format of_b) {
    omm_adapter *a = NULL;
    CHECK_OK(omm_adapter_open(&a, model, lora, 1.0f));
    expect(a, lora, of_a, of_b);
    omm_adapter_close(a);
}

static float as_f32(float v) {
    return v;
}

static float as_f16(float v) {
    return omm_f16_to_f32(omm_f32_to_f16(v));
}

static float as_bf16(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void exact_formats(void) {
    static float (*const as[])(float) = {as_f32, as_f16, as_bf16};
    static const omm_format formats[] = {OMM_FORMAT_F32, OMM_FORMAT_F16, OMM_FORMAT_BF16};
    const omm_model model = shape_only();
    omm_digest digests[3];
    for (unsigned i = 0; i < 3; i++) {
        omm_lora lora;
        omm_adapter *a = NULL;
        CHECK_OK(omm_lora_init(&lora, &s_spec, &model.lora_shape));
        float *noise = battery_floats(4, lora.value_count);
        for (size_t j = 0; j < lora.value_count; j++) lora.values[j] = as[i](noise[j]);
        CHECK_OK(omm_adapter_open(&a, &model, &lora, 1.0f));
        expect(a, &lora, formats[i], formats[i]);
        digests[i] = omm_adapter_digest(a);
        omm_adapter_close(a);
        omm_free(noise);
        omm_lora_fini(&lora);
    }
    CHECK(memcmp(&digests[0], &digests[1], sizeof digests[0]) != 0);
    CHECK(memcmp(&digests[1], &digests[2], sizeof digests[0]) != 0);
}

/* What a file in Q8_0 gives: A in its blocks, B too where it has whole ones, each to the byte. */
static void exact_blocks(void) {
    const omm_model model = shape_only();
    for (unsigned i = 0; i < 2; i++) {
        const omm_lora_spec spec = {i ? RANK_BLOCK : RANK, 6.0f, OMM_LORA_ALL_TARGETS};
        omm_lora lora, stored;
        omm_buf file;
        double lost = 0.0;
        CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
        float *noise = battery_floats(4, lora.value_count);
        for (size_t j = 0; j < lora.value_count;
             j++) { /* zeros among them, and what becomes zero */
            lora.values[j] = j / 32 % 5 ? noise[j] * (float)(1 + j / 32 % 7) : 0.0f;
            if (j / 32 % 7 == 3) lora.values[j] = noise[j] * 0x1p-20f;
        }
        omm_buf_init(&file, 1 << 22);
        CHECK_OK(omm_lora_save_as(&file, &lost, &lora, OMM_GGML_Q8_0));
        CHECK_OK(omm_lora_load(&stored, omm_buf_view(&file), &model.lora_shape));
        packs_as(&model, &stored, OMM_FORMAT_Q8_0, i ? OMM_FORMAT_Q8_0 : OMM_FORMAT_F16);
        omm_buf_fini(&file);
        omm_free(noise);
        omm_lora_fini(&stored);
        omm_lora_fini(&lora);
    }
}

/* One value that its block does not have, and A is what it was before there were blocks; rows that are no whole
 * blocks have none, whatever they are together. */
static void one_value_of_a_block(void) {
    static const struct {
        float value;
        omm_format format;
    } cases[] = {{0x1.01p-7f * 96, OMM_FORMAT_Q8_0},
                 {0x1.01p-7f * 96.5f, OMM_FORMAT_F32},
                 {0x1.01p-7f * 128, OMM_FORMAT_F32},
                 {0x1.01p-7f * -127, OMM_FORMAT_Q8_0},
                 {0x1.01p-7f * -128, OMM_FORMAT_Q8_0},
                 {0x1.01p-7f * -129, OMM_FORMAT_F32},
                 {0x1.010002p-7f * 96, OMM_FORMAT_F32},
                 {-0.0f, OMM_FORMAT_Q8_0}, /* by a scale below 0 */
                 {1e30f, OMM_FORMAT_F32}};
    const omm_model model = shape_only();
    const omm_lora_spec spec = {RANK, 6.0f, OMM_LORA_ALL_TARGETS};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_lora lora;
        CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
        for (size_t t = 0; t < lora.tensor_count; t++) {
            const omm_lora_tensor *tensor = &lora.tensors[t];
            float *v = lora.values + tensor->offset;
            for (size_t j = 0; j < (size_t)tensor->rows * tensor->cols; j++)
                v[j] = 0x1.01p-7f * (127.0f - 7.0f * (float)(j % 32));
            if (!tensor->is_b) v[(size_t)tensor->rows * tensor->cols - 1] = cases[i].value;
        }
        packs_as(&model, &lora, cases[i].format, OMM_FORMAT_F32);
        omm_lora_fini(&lora);
    }
}

/* Any block of a file in Q8_0 is found again, whatever codes and scale its writer chose. */
static void any_block(void) {
    static const struct {
        float scale; /* 16 bits have it */
        int largest, codes[3];
    } cases[] = {{0x1.554p-9f, 127, {126, -127, 0}},
                 {0x1.554p-9f, -128, {127, -1, 0}},
                 {0x1.ffcp-9f, 64, {63, -64, 1}},
                 {-0x1.554p-9f, 127, {0, -128, 5}},
                 {0x1.554p-9f, 1, {-1, 0, 1}},
                 {0x1.8p-23f, 97, {-96, 13, 0}},
                 {0x1p-24f, -101, {7, -8, 0}},
                 {0x1.ffcp15f, 125, {-125, 3, 0}},
                 {-0x1.ffcp15f, -128, {0, -128, 127}},
                 {0.0f, 100, {-100, 0, 1}},
                 {-0.0f, 100, {-100, 0, 1}}};
    const omm_model model = shape_only();
    const omm_lora_spec spec = {RANK, 6.0f, OMM_LORA_ALL_TARGETS};
    omm_lora lora;
    CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
    const size_t count = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < lora.tensor_count; i++) {
        const omm_lora_tensor *t = &lora.tensors[i];
        if (t->is_b) continue;
        for (size_t j = 0; j < (size_t)t->rows * t->cols; j++) {
            const size_t of = (i + j / 32) % count;
            const float code =
                j % 32 == 9 ? (float)cases[of].largest : (float)cases[of].codes[j % 3];
            lora.values[t->offset + j] = cases[of].scale * code;
        }
    }
    packs_as(&model, &lora, OMM_FORMAT_Q8_0, OMM_FORMAT_BF16);
    omm_lora_fini(&lora);
}

static omm_lora noise(const omm_model *model, const omm_lora_spec *spec) {
    omm_lora lora;
    CHECK_OK(omm_lora_init(&lora, spec, &model->lora_shape));
    float *values = battery_floats(4, lora.value_count);
    memcpy(lora.values, values, lora.value_count * sizeof *values);
    omm_free(values);
    return lora;
}

static omm_digest digest_of(const omm_model *model, const omm_lora *lora, float scale) {
    omm_adapter *a = NULL;
    CHECK_OK(omm_adapter_open(&a, model, lora, scale));
    const omm_digest digest = omm_adapter_digest(a);
    omm_adapter_close(a);
    return digest;
}

static omm_digest noise_digest(const omm_model *model, const omm_lora_spec *spec, float scale) {
    omm_lora lora = noise(model, spec);
    const omm_digest digest = digest_of(model, &lora, scale);
    omm_lora_fini(&lora);
    return digest;
}

/* Caches and session files know an adapter by its digest: equal values at another scale are another one. */
static void scales_in_digests(void) {
    const omm_model model = shape_only();
    omm_lora_spec other = s_spec;
    other.alpha = 3.0f;
    const omm_digest one = noise_digest(&model, &s_spec, 1.0f),
                     same = noise_digest(&model, &s_spec, 1.0f);
    const omm_digest half = noise_digest(&model, &s_spec, 0.5f),
                     alpha = noise_digest(&model, &other, 1.0f);
    CHECK(omm_digest_equal(&one, &same));
    CHECK(!omm_digest_equal(&one, &half));
    CHECK(!omm_digest_equal(&one, &alpha));
    CHECK(!omm_digest_equal(&half, &alpha));
}

/* And so is one in which one value of any tensor has another sign, or one pair another scale. */
static void values_in_digests(void) {
    const omm_model model = shape_only();
    omm_lora lora = noise(&model, &s_spec);
    const omm_digest same = digest_of(&model, &lora, 1.0f);
    for (size_t i = 0; i < lora.tensor_count; i++) {
        omm_lora_tensor *t = &lora.tensors[i];
        float *last = lora.values + t->offset + (size_t)t->rows * t->cols - 1;
        *last = -*last;
        omm_digest other = digest_of(&model, &lora, 1.0f);
        CHECK(!omm_digest_equal(&other, &same));
        *last = -*last;
        if (t->is_b) continue;
        t->scale *= 2.0f;
        other = digest_of(&model, &lora, 1.0f);
        CHECK(!omm_digest_equal(&other, &same));
        t->scale *= 0.5f;
    }
    const omm_digest again = digest_of(&model, &lora, 1.0f);
    CHECK(omm_digest_equal(&again, &same));
    omm_lora_fini(&lora);
}

/* One value of each matrix decides: too fine for a half, too large for one, too small for one. */
static void one_value_decides(void) {
    static const struct {
        float value;
        omm_format format;
    } cases[] = {{0.1f, OMM_FORMAT_F32},         {65536.0f, OMM_FORMAT_BF16},
                 {65537.0f, OMM_FORMAT_F32},     {0x1p-30f, OMM_FORMAT_BF16},
                 {-0.0f, OMM_FORMAT_BF16},       {0x1.004p0f, OMM_FORMAT_F16},
                 {0x1.004p-20f, OMM_FORMAT_F32}, {0x1.01p0f, OMM_FORMAT_F16},
                 {0x1.000002p0f, OMM_FORMAT_F32}};
    const omm_model model = shape_only();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_lora lora;
        omm_adapter *a = NULL;
        CHECK_OK(omm_lora_init(&lora, &s_spec, &model.lora_shape));
        for (size_t t = 0; t < lora.tensor_count; t++) {
            const omm_lora_tensor *tensor = &lora.tensors[t];
            lora.values[tensor->offset + (size_t)tensor->rows * tensor->cols - 1] = cases[i].value;
        }
        packs_as(&model, &lora, cases[i].format, cases[i].format);
        lora.values[0] = i % 2 ? INFINITY : NAN;
        CHECK_ERR(omm_adapter_open(&a, &model, &lora, 1.0f), OMM_ERR_NUMERIC);
        omm_lora_fini(&lora);
    }
}

static void running_out_of_memory(void) {
    const omm_model model = shape_only();
    omm_lora lora;
    omm_adapter *a = NULL;
    CHECK_OK(omm_lora_init(&lora, &s_spec, &model.lora_shape));
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_mem_fail_nth(nth);
        err = omm_adapter_open(&a, &model, &lora, 1.0f);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) CHECK_EQ(err, OMM_ERR_NOMEM);
        if (err != OMM_OK) CHECK_EQ(omm_mem_live(), live);
    }
    omm_adapter_close(a);
    omm_lora_fini(&lora);
}

int main(void) {
    exact_formats();
    exact_blocks();
    one_value_of_a_block();
    any_block();
    scales_in_digests();
    values_in_digests();
    one_value_decides();
    running_out_of_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
