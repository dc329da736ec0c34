/* lora_fuse_test.c - adapters in the stacked tensors of phi3: only names and shapes that the model's file
 * has, there and back to the same bytes and logits, dense ones of elsewhere, and what is refused. */
#include "kernels_battery.h"
#include "lora_internal.h"
#include "tiny_arch.h"

#include "omm/lora_merge.h"
#include "omm/mem.h"
#include "omm/session.h"

#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 20, FILE_MAX = 1 << 23, LOGITS = LENGTH * TINY_ARCH_VOCAB };
#define CLOSE 2e-6 /* of the spread; measured maximum 5e-7 */

static char s_path[64] = "/tmp/omm-fuse-XXXXXX";
static omm_buf s_model;
static omm_gguf s_gguf;
static omm_model s_phi;

static void open_model(void) {
    omm_buf_init(&s_model, FILE_MAX);
    tiny_arch_write(&s_model, &(tiny_arch){.name = "phi3", .window = 9, .untied = true});
    CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_model)));
    CHECK_OK(omm_model_load(&s_phi, &s_gguf));
    CHECK(s_phi.lora_shape.fused && !s_phi.lora_shape.stacked);
}

static void close_model(void) {
    omm_model_fini(&s_phi);
    omm_gguf_close(&s_gguf);
    omm_buf_fini(&s_model);
}

static void noise(omm_lora *lora, uint64_t seed) {
    float *values = battery_floats(seed, lora->value_count);
    for (size_t i = 0; i < lora->value_count; i++) lora->values[i] = values[i] * 0.05f;
    omm_free(values);
}

static omm_lora uniform(const omm_lora_shape *shape, uint32_t rank, float alpha, uint32_t targets) {
    omm_lora lora;
    CHECK_OK(omm_lora_init(&lora, &(omm_lora_spec){rank, alpha, targets}, shape));
    noise(&lora, rank);
    return lora;
}

static omm_buf saved(const omm_lora *lora) {
    omm_buf file;
    bool rounded = true;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save_fused(&file, &rounded, lora, false));
    CHECK(!rounded);
    return file;
}

static void check_same(const omm_lora *one, const omm_lora *two) {
    CHECK_EQ(one->tensor_count, two->tensor_count);
    CHECK(one->spec.alpha == two->spec.alpha && one->spec.rank == two->spec.rank);
    for (size_t i = 0; i < one->tensor_count; i++) {
        const omm_lora_tensor *a = &one->tensors[i], *b = &two->tensors[i];
        CHECK(strcmp(a->name, b->name) == 0 && a->rows == b->rows && a->scale == b->scale);
    }
    CHECK(memcmp(one->values, two->values, one->value_count * sizeof(float)) == 0);
}

static void logits_of(float *out, const omm_model *model, const omm_lora *lora) {
    omm_compute c;
    omm_session *session = NULL;
    uint32_t ids[LENGTH];
    for (uint32_t i = 0; i < LENGTH; i++) ids[i] = i * 31 % TINY_ARCH_VOCAB;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_session_open(&session, &c, model, lora, NULL));
    CHECK_OK(omm_session_append(session, ids, LENGTH, out, true));
    omm_session_close(session);
    omm_compute_fini(&c);
}

/* What llama.cpp asks of an adapter: each tensor is that of a tensor of the model, and fits it. */
static void check_fits_model(const omm_buf *file) {
    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(file)));
    for (size_t i = 0; i < g.tensor_count; i++) {
        const omm_gguf_tensor *t = &g.tensors[i];
        char name[OMM_GGUF_NAME_MAX];
        const size_t stem = strlen(t->name) - strlen(".lora_a");
        snprintf(name, sizeof name, "%.*s", (int)stem, t->name);
        const omm_gguf_tensor *of = omm_gguf_find_tensor(&s_gguf, name);
        CHECK(of != NULL);
        if (t->name[stem + 6] == 'a') {
            CHECK_EQ(t->dims[0], of->dims[0]);
            snprintf(name, sizeof name, "%.*s.lora_b", (int)stem, t->name);
            const omm_gguf_tensor *b = omm_gguf_find_tensor(&g, name);
            CHECK(b && b->dims[0] == t->dims[1] && b->dims[1] == of->dims[1]);
        }
    }
    omm_gguf_close(&g);
}

/* ---- there and back ---------------------------------------------------------------------------- */

static void there_and_back(const omm_lora *lora) {
    static float here[LOGITS], back_here[LOGITS];
    omm_lora back;
    omm_buf file = saved(lora);
    check_fits_model(&file);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    check_same(lora, &back);
    logits_of(here, &s_phi, lora);
    logits_of(back_here, &s_phi, &back);
    for (size_t i = 0; i < LOGITS; i++) CHECK(here[i] == back_here[i]);
    omm_buf again = saved(&back);
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&again)));
    omm_buf_fini(&again);
    omm_buf_fini(&file);
    omm_lora_fini(&back);
}

static void test_uniform(void) {
    static const uint32_t targets[] = {OMM_LORA_ALL_TARGETS, 1u << OMM_LORA_Q | 1u << OMM_LORA_V,
                                       1u << OMM_LORA_K, 1u << OMM_LORA_UP | 1u << OMM_LORA_O,
                                       1u << OMM_LORA_GATE | 1u << OMM_LORA_UP};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        omm_lora lora = uniform(&s_phi.lora_shape, 5, 7.0f, targets[i]);
        there_and_back(&lora);
        omm_lora_fini(&lora);
    }
}

/* A rank that training did not use up is the rank still. */
static void test_unused_columns(void) {
    static const uint32_t targets[] = {1u << OMM_LORA_K, 1u << OMM_LORA_GATE | 1u << OMM_LORA_UP,
                                       OMM_LORA_ALL_TARGETS};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        omm_lora lora = uniform(&s_phi.lora_shape, 4, 8.0f, targets[i]);
        for (size_t k = 1; k < lora.tensor_count; k += 2)
            for (size_t row = 0; row < lora.tensors[k].rows; row++)
                lora.values[lora.tensors[k].offset + row * 4 + 3] = 0;
        there_and_back(&lora);
        omm_lora_fini(&lora);
    }
}

/* The block's place in A and B, by hand: k is the second of three, in the room of four. */
static void test_layout(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 4, 8.0f, OMM_LORA_ALL_TARGETS);
    const uint32_t *out = lora.shape.d_out, q = out[OMM_LORA_Q], rows = q + 2 * out[OMM_LORA_K];
    const float *a = NULL, *b = NULL;
    omm_buf file = saved(&lora);
    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_EQ(g.tensor_count, s_phi.lora_shape.layer_count * 2 * 4);
    const omm_gguf_tensor *fa = omm_gguf_find_tensor(&g, "blk.1.attn_qkv.weight.lora_a");
    const omm_gguf_tensor *fb = omm_gguf_find_tensor(&g, "blk.1.attn_qkv.weight.lora_b");
    CHECK(fa && fb && fa->dims[1] == 16 && fb->dims[0] == 16 && fb->dims[1] == rows);
    omm_lora_find(&a, &b, &lora, 1, OMM_LORA_K);
    const size_t cols = lora.shape.d_in[OMM_LORA_K];
    for (size_t i = 0; i < 4 * cols; i++)
        CHECK(omm_get_f32(fa->data.data + 4 * (4 * cols + i)) == a[i]);
    for (size_t row = 0; row < rows; row++)
        for (size_t col = 4; col < 8; col++) { /* alpha / 16 for alpha / 4 */
            const bool in = row >= q && row < q + out[OMM_LORA_K];
            CHECK(omm_get_f32(fb->data.data + 4 * (row * 16 + col)) ==
                  (in ? 4 * b[(row - q) * 4 + col - 4] : 0.0f));
        }
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_lora_fini(&lora);
}

static omm_lora planned(const char *const *lists, const uint32_t *ranks, size_t count) {
    omm_lora_plan plan;
    omm_lora lora;
    CHECK_OK(omm_lora_plan_init(&plan, &s_phi.lora_shape));
    for (size_t i = 0; i < count; i++)
        CHECK_OK(omm_lora_plan_add(&plan, lists[i],
                                   (omm_lora_pair){ranks[i], lora_file_scale(6.0f, ranks[i])}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    omm_lora_plan_fini(&plan);
    noise(&lora, count);
    lora.spec.alpha = 6.0f;
    return lora;
}

/* Without an alpha no rank is in the scale, and blocks need no room but their own. */
static void test_no_alpha(void) {
    static const char *const lists[] = {"all", "k"};
    static const uint32_t ranks[] = {4, 2};
    omm_lora lora = planned(lists, ranks, 2);
    omm_gguf g;
    for (size_t i = 0; i < lora.tensor_count; i++) lora.tensors[i].scale = 1.0f;
    lora.spec.alpha = 0.0f;
    there_and_back(&lora);
    omm_buf file = saved(&lora);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_EQ(omm_gguf_find_tensor(&g, "blk.0.attn_qkv.weight.lora_a")->dims[1], 4 + 2 + 4);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_lora_fini(&lora);
}

static void test_patterns(void) {
    static const char *const lists[] = {"all", "k", "blk.1.attn_v", "blk.0.ffn_up"};
    static const uint32_t twos[] = {6, 12, 3, 24}, odd[] = {6, 12, 5, 24};
    omm_lora lora = planned(lists, twos, 4), back;
    there_and_back(&lora);
    omm_lora_fini(&lora);
    lora = planned(lists, odd, 4);
    omm_buf file;
    bool rounded = false;
    omm_buf_init(&file, FILE_MAX);
    CHECK_ERR(omm_lora_save_fused(&file, &rounded, &lora, false), OMM_ERR_UNSUPPORTED);
    CHECK_OK(omm_lora_save_fused(&file, &rounded, &lora, true));
    CHECK(rounded);
    check_fits_model(&file);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    static float one[LOGITS], two[LOGITS];
    logits_of(one, &s_phi, &lora);
    logits_of(two, &s_phi, &back);
    for (size_t i = 0; i < LOGITS; i++) CHECK(fabsf(one[i] - two[i]) < 1e-4f);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
    omm_buf_fini(&file);
}

/* Files with seven targets, as runs of a federation have them, are what they were. */
static void test_plain_file(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 3, 4.0f, OMM_LORA_ALL_TARGETS), back;
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    check_same(&lora, &back);
    omm_buf_fini(&file);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
}

/* ---- trained on the stacked tensors -------------------------------------------------------------- */

static void merge(const omm_lora *lora, omm_buf *file) {
    const float one = 1;
    omm_compute c;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    const omm_lora_merge m = {
        .compute = &c, .base = &s_gguf, .parts = &lora, .weights = &one, .count = 1};
    CHECK_OK(omm_lora_merge_file(s_path, &m));
    omm_compute_fini(&c);
    omm_buf_init(file, FILE_MAX);
    CHECK_OK(omm_file_read(file, s_path));
}

/* The model with the stacked product inside gives the logits of the adapter beside it. */
static void check_logits(const omm_lora *lora, const omm_buf *merged) {
    static float with[LOGITS], inside[LOGITS];
    static float base[LOGITS];
    omm_gguf g;
    omm_model model;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(merged)));
    CHECK_OK(omm_model_load(&model, &g));
    logits_of(with, &s_phi, lora);
    logits_of(inside, &model, NULL);
    logits_of(base, &s_phi, NULL);
    double low = 0, high = 0, off = 0, moved = 0;
    for (size_t i = 0; i < LOGITS; i++) {
        low = fmin(low, (double)with[i]);
        high = fmax(high, (double)with[i]);
        off = worse_of(off, fabs((double)with[i] - (double)inside[i]));
        moved = fmax(moved, fabs((double)with[i] - (double)base[i]));
    }
    printf("merged: off by %.1e of the spread\n", off / (high - low));
    CHECK(off <= CLOSE * (high - low) && moved > 1000 * CLOSE * (high - low));
    omm_model_fini(&model);
    omm_gguf_close(&g);
}

static void test_dense(void) {
    const omm_lora_shape stacked = lora_stacked_shape(&s_phi.lora_shape);
    const uint32_t there =
        1u << OMM_LORA_Q | 1u << OMM_LORA_O | 1u << OMM_LORA_UP | 1u << OMM_LORA_DOWN;
    omm_lora lora = uniform(&stacked, 4, 5.0f, there), apart, joined;
    omm_buf file, one, two;
    const float *a = NULL, *b = NULL, *k = NULL, *kb = NULL, weight = 1;
    const omm_lora *part = &lora;
    bool rounded = true;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, &lora));
    check_fits_model(&file);
    CHECK_OK(omm_lora_load(&apart, omm_buf_view(&file), &s_phi.lora_shape));
    CHECK_EQ(apart.spec.targets, OMM_LORA_ALL_TARGETS);
    CHECK(omm_lora_is_uniform(&apart) && apart.spec.rank == 4 && apart.spec.alpha == 5.0f);
    omm_lora_find(&a, &b, &lora, 1, OMM_LORA_Q);
    omm_lora_find(&k, &kb, &apart, 1, OMM_LORA_K);
    CHECK(memcmp(a, k, (size_t)4 * stacked.d_in[OMM_LORA_Q] * sizeof(float)) == 0);
    CHECK(memcmp(b + (size_t)4 * apart.shape.d_out[OMM_LORA_Q], kb,
                 (size_t)4 * apart.shape.d_out[OMM_LORA_K] * sizeof(float)) == 0);
    omm_buf again = saved(&apart); /* one A for all: as it came */
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&again)));
    merge(&lora, &one);
    merge(&apart, &two); /* by rows */
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));
    check_logits(&apart, &two);
    CHECK_OK(omm_lora_join(&joined, &rounded, &part, &weight, 1, false));
    CHECK(!rounded && joined.shape.stacked);
    omm_lora_fini(&joined);
    /* which model it is of stays known where the one at hand does not say which it is */
    omm_lora_shape unnamed = s_phi.lora_shape;
    unnamed.base = (omm_lora_base){0};
    lora.shape.base = (omm_lora_base){.fingerprint = omm_hash(omm_bytes_str("a base"))};
    omm_lora named;
    omm_buf said = saved(&lora);
    CHECK_OK(omm_lora_load(&named, omm_buf_view(&said), &unnamed));
    CHECK(omm_digest_equal(&named.shape.base.fingerprint, &lora.shape.base.fingerprint));
    omm_lora_fini(&named);
    omm_buf_fini(&said);
    omm_buf *const files[] = {&file, &again, &one, &two};
    for (size_t i = 0; i < 4; i++) omm_buf_fini(files[i]);
    omm_lora_fini(&apart);
    omm_lora_fini(&lora);
}

/* By rows, blocks and their stacked product change the model by the same bytes. */
static void test_merge(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 4, 8.0f, OMM_LORA_ALL_TARGETS), stacked;
    omm_buf one, two;
    bool rounded = true;
    CHECK_OK(omm_lora_fuse(&stacked, &rounded, &lora, false));
    merge(&lora, &one);
    merge(&stacked, &two);
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));
    check_logits(&lora, &one);
    omm_buf_fini(&one);
    omm_buf_fini(&two);
    omm_lora_fini(&stacked);
    omm_lora_fini(&lora);
}

/* Nothing trained, and one part that is zero throughout: the whole A, or the part left out. */
static void test_zeros(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 2, 2.0f, OMM_LORA_ALL_TARGETS), back;
    for (size_t i = 1; i < lora.tensor_count; i += 2)
        memset(lora.values + lora.tensors[i].offset, 0,
               (size_t)lora.tensors[i].rows * lora.tensors[i].cols * sizeof(float));
    omm_buf file = saved(&lora);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    CHECK_EQ(back.spec.targets, OMM_LORA_ALL_TARGETS);
    CHECK_EQ(back.tensors[omm_lora_find_index(&back, 0, OMM_LORA_K)].rows, 8);
    omm_buf_fini(&file);
    omm_lora_fini(&back);
    const omm_lora_tensor *q = &lora.tensors[omm_lora_find_index(&lora, 0, OMM_LORA_Q) + 1];
    const omm_lora_tensor *v = &lora.tensors[omm_lora_find_index(&lora, 0, OMM_LORA_V) + 1];
    lora.values[q->offset] = 1;
    lora.values[v->offset] = 1;
    file = saved(&lora);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    CHECK(omm_lora_find_index(&back, 0, OMM_LORA_K) < 0);
    CHECK(omm_lora_find_index(&back, 0, OMM_LORA_V) > 0);
    omm_buf_fini(&file);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
}

/* Blocks that no alpha serves without rounding are left together: each part gets the whole A, and one without a value
 * nothing. */
static void test_unserved_blocks(void) {
    const omm_lora_shape stacked = lora_stacked_shape(&s_phi.lora_shape);
    const uint32_t *out = s_phi.lora_shape.d_out;
    omm_lora lora = uniform(&stacked, 6, 6.0f, 1u << OMM_LORA_Q), back;
    const size_t q = out[OMM_LORA_Q], k = out[OMM_LORA_K], v = out[OMM_LORA_V];
    for (size_t i = 1; i < lora.tensor_count; i += 2)
        for (size_t row = 0; row < q + k + v; row++)
            for (size_t col = 0; col < 6; col++) { /* q has two columns, v the others, k none */
                const bool has = row < q ? col < 2 : row >= q + k && col >= 2;
                lora.values[lora.tensors[i].offset + row * 6 + col] = has ? 1.0f : 0.0f;
            }
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape));
    CHECK_EQ(back.spec.targets, 1u << OMM_LORA_Q | 1u << OMM_LORA_V);
    for (size_t i = 0; i < back.tensor_count; i += 2) {
        const omm_lora_tensor *a = &back.tensors[i];
        CHECK_EQ(a->rows, 6); /* in blocks alpha / 2 for alpha / 6: thirds of what is in B */
        CHECK(a->scale == 1.0f);
        for (size_t n = 0; n < (size_t)a[1].rows * 6; n++) {
            const bool has = a->target == OMM_LORA_Q ? n % 6 < 2 : n % 6 >= 2;
            CHECK(back.values[a[1].offset + n] == (has ? 1.0f : 0.0f));
        }
    }
    omm_buf_fini(&file);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void test_refusals(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 257, 8.0f, OMM_LORA_ALL_TARGETS), back;
    omm_buf file;
    bool rounded = false;
    omm_buf_init(&file, FILE_MAX);
    CHECK_ERR(omm_lora_save_fused(&file, &rounded, &lora, true), OMM_ERR_TOO_BIG);
    omm_lora_fini(&lora);
    lora = uniform(&s_phi.lora_shape, 2, 8.0f, OMM_LORA_ALL_TARGETS);
    const float was = lora.values[lora.tensors[1].offset];
    lora.values[lora.tensors[1].offset] = 3e38f; /* grows fourfold */
    CHECK_ERR(omm_lora_save_fused(&file, &rounded, &lora, true), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), lora.tensors[1].name) != NULL);
    lora.values[lora.tensors[1].offset] = was;
    /* A model with attn_q wants attn_q. */
    omm_lora_shape other = s_phi.lora_shape;
    other.fused = false;
    omm_buf fused = saved(&lora);
    CHECK_ERR(omm_lora_load(&back, omm_buf_view(&fused), &other), OMM_ERR_UNSUPPORTED);
    /* Without a model it is what it is; beside one of the other kind it is refused. */
    omm_lora_shape claimed = {0};
    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&fused)));
    CHECK_OK(omm_lora_claim_shape(&claimed, &g));
    CHECK(claimed.stacked && claimed.d_in[OMM_LORA_K] == 0);
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&fused), &claimed));
    CHECK(strcmp(back.tensors[0].name, "blk.0.attn_qkv.weight.lora_a") == 0);
    omm_lora_fini(&back);
    omm_gguf_close(&g);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_lora_claim_shape(&claimed, &g), OMM_ERR_MISMATCH);
    omm_gguf_close(&g);
    omm_buf_fini(&fused);
    omm_buf_fini(&file);
    omm_lora_fini(&lora);
}

static void test_allocations(void) {
    omm_lora lora = uniform(&s_phi.lora_shape, 2, 8.0f, OMM_LORA_ALL_TARGETS);
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_buf file;
        omm_lora back = {0};
        bool rounded = false;
        omm_buf_init(&file, FILE_MAX);
        omm_mem_fail_nth(n);
        err = omm_lora_save_fused(&file, &rounded, &lora, false);
        if (err == OMM_OK) err = omm_lora_load(&back, omm_buf_view(&file), &s_phi.lora_shape);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        omm_buf_fini(&file);
        omm_lora_fini(&back);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora_fini(&lora);
}

int main(void) {
    close(mkstemp(s_path));
    open_model();
    test_layout();
    test_uniform();
    test_unused_columns();
    test_patterns();
    test_plain_file();
    test_dense();
    test_merge();
    test_no_alpha();
    test_zeros();
    test_unserved_blocks();
    test_refusals();
    test_allocations();
    close_model();
    CHECK_OK(omm_file_remove(s_path));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
