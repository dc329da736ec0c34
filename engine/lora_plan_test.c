/* lora_plan_test.c - adapters whose pairs differ: patterns, ranks, scales, layers left out, the fold
 * into one alpha, and that none of it changes what a model computes. */
#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/session.h"

#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, LENGTH = 20 };

static omm_lora_shape small_shape(void) {
    return (omm_lora_shape){.layer_count = 12,
                            .d_in = {8, 8, 8, 8, 8, 0, 12},
                            .d_out = {8, 4, 4, 8, 12, 0, 8},
                            .architecture = "llama"};
}

static void fill(omm_lora *lora) {
    for (size_t i = 0; i < lora->value_count; i++)
        lora->values[i] = (float)((int)(i * 7919 % 2001) - 1000) * 1e-3f;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static size_t count_of(const char *list) {
    const omm_lora_shape shape = small_shape();
    omm_lora_plan plan;
    size_t count = 0;
    CHECK_OK(omm_lora_plan_init(&plan, &shape));
    CHECK_OK(omm_lora_plan_add(&plan, list, (omm_lora_pair){4, 2.0f}));
    for (size_t i = 0; i < (size_t)shape.layer_count * OMM_LORA_TARGET_COUNT; i++)
        count += plan.pairs[i].rank == 4;
    omm_lora_plan_fini(&plan);
    return count;
}

static void test_patterns(void) {
    CHECK_EQ(count_of("all"), 12 * 6); /* there is no `up` */
    CHECK_EQ(count_of("all-linear"), 12 * 6);
    CHECK_EQ(count_of("q"), 12);
    CHECK_EQ(count_of("attn_*"), 12 * 4);
    CHECK_EQ(count_of("ffn_*"), 12 * 2);
    CHECK_EQ(count_of("attn_?"), 12 * 3);
    CHECK_EQ(count_of("blk.0.*"), 6);
    CHECK_EQ(count_of("blk.1.*"), 6); /* not 10 and 11 */
    CHECK_EQ(count_of("blk.1?.attn_v"), 2);
    CHECK_EQ(count_of("blk.3.ffn_down.weight"), 1);
    CHECK_EQ(count_of("blk.*.attn_q,blk.0.attn_k,v"), 12 + 1 + 12);
    CHECK_EQ(count_of("*down"), 12);
    CHECK_EQ(count_of("attn_q*"), 12); /* a star of nothing */
    CHECK_EQ(count_of("blk.2.ffn_down.weight**"), 1);
    CHECK_EQ(count_of("blk.3-5.ffn_*"), 3 * 2); /* gate and down */
    CHECK_EQ(count_of("blk.3-5.ffn_down.weight"), 3);
    CHECK_EQ(count_of("blk.3-5.*.weight"), 3 * 6);
    CHECK_EQ(count_of("blk.9-11.q"), 3);
    CHECK_EQ(count_of("blk.7-7.attn_?"), 3);
    CHECK_EQ(count_of("blk.0-9999.v"), 12);
    CHECK_EQ(count_of("blk.10-12.k"), 2);
    static const char *const bad[] = {"",
                                      ",",
                                      "q,",
                                      "x",
                                      "up",
                                      "blk.12.*",
                                      "blk.01.*",
                                      "blk.0.attn_q.bias",
                                      "q,zz",
                                      "blk.5-3.q",
                                      "blk.12-13.q",
                                      "blk.3-.q",
                                      "blk.-3.q",
                                      "blk.3-5",
                                      "blk.3-5q",
                                      "blk.3-5.",
                                      "blk.0-10000.q",
                                      "blk.3:5.q",
                                      "blk.3-5:q",
                                      "blk.3-a.q",
                                      "blk.3-5.up"};
    const omm_lora_shape shape = small_shape();
    omm_lora_plan plan;
    CHECK_OK(omm_lora_plan_init(&plan, &shape));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(omm_lora_plan_add(&plan, bad[i], (omm_lora_pair){4, 2.0f}), OMM_ERR_CONFIG);
        for (size_t k = 0; k < (size_t)shape.layer_count * OMM_LORA_TARGET_COUNT; k++)
            CHECK_EQ(plan.pairs[k].rank, 0);
    }
    CHECK_ERR(omm_lora_plan_add(&plan, "q", (omm_lora_pair){1025, 1.0f}), OMM_ERR_CONFIG);
    CHECK_ERR(omm_lora_plan_add(&plan, "q", (omm_lora_pair){1, 0.0f}), OMM_ERR_CONFIG);
    CHECK_ERR(omm_lora_plan_add(&plan, "q", (omm_lora_pair){1, NAN}), OMM_ERR_CONFIG);
    omm_lora lora;
    CHECK_ERR(omm_lora_init_plan(&lora, &plan), OMM_ERR_CONFIG); /* empty */
    plan.pairs[OMM_LORA_UP] = (omm_lora_pair){4, 1.0f};
    CHECK_ERR(omm_lora_init_plan(&lora, &plan), OMM_ERR_CONFIG); /* not in the model */
    omm_lora_plan_fini(&plan);
}

static void test_target_lists(void) {
    uint32_t targets = 0;
    CHECK_OK(omm_lora_targets_parse(&targets, "attn_*"));
    CHECK_EQ(targets, 15);
    CHECK_OK(omm_lora_targets_parse(&targets, "attn_q,ffn_down,v"));
    CHECK_EQ(targets, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN | 1u << OMM_LORA_V);
    CHECK_OK(omm_lora_targets_parse(&targets, "all-linear"));
    CHECK_EQ(targets, OMM_LORA_ALL_TARGETS);
    CHECK_ERR(omm_lora_targets_parse(&targets, "attn_*,k"), OMM_ERR_CONFIG);
    CHECK_ERR(omm_lora_targets_parse(&targets, "blk.0.attn_q"), OMM_ERR_CONFIG);
    CHECK_ERR(omm_lora_targets_parse(&targets, "**x"), OMM_ERR_CONFIG);
    CHECK_EQ(targets, OMM_LORA_ALL_TARGETS);
}

static void test_scales(void) {
    CHECK(omm_lora_scale_of(16, 8, false) == 2.0f);
    CHECK(omm_lora_scale_of(16, 16, true) == 4.0f);
    CHECK(omm_lora_scale_of(16, 8, true) == (float)(16.0 / sqrt(8.0)));
    CHECK(omm_lora_scale_of(10, 3, false) == 10.0f / 3.0f);
}

/* ---- layout and file ------------------------------------------------------------------------- */

/* Ranks 4 and 2, a layer without down, scales as given. */
static omm_lora mixed(float scale_q, float scale_down) {
    const omm_lora_shape shape = small_shape();
    omm_lora_plan plan;
    omm_lora lora;
    CHECK_OK(omm_lora_plan_init(&plan, &shape));
    CHECK_OK(omm_lora_plan_add(&plan, "q", (omm_lora_pair){4, scale_q}));
    CHECK_OK(omm_lora_plan_add(&plan, "down", (omm_lora_pair){2, scale_down}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.5.ffn_down", (omm_lora_pair){0, 0}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    omm_lora_plan_fini(&plan);
    fill(&lora);
    return lora;
}

static void test_layout(void) {
    omm_lora lora = mixed(2.0f, 4.0f);
    CHECK_EQ(lora.tensor_count, 2 * (12 + 11));
    CHECK_EQ(lora.value_count, 12 * 4 * 16 + 11 * 2 * 20);
    CHECK(!omm_lora_is_uniform(&lora));
    CHECK_EQ(lora.spec.rank, 4);
    CHECK_EQ(lora.spec.targets, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN);
    size_t offset = 0;
    for (size_t i = 0; i < lora.tensor_count; i++) {
        const omm_lora_tensor *t = &lora.tensors[i];
        CHECK_EQ(t->offset, offset);
        CHECK(t->scale == (t->target == OMM_LORA_Q ? 2.0f : 4.0f));
        CHECK_EQ(omm_lora_find_index(&lora, t->layer, t->target), i - i % 2);
        offset += (size_t)t->rows * t->cols;
    }
    CHECK_EQ(omm_lora_find_index(&lora, 5, OMM_LORA_DOWN), -1);
    CHECK_EQ(omm_lora_find_index(&lora, 5, OMM_LORA_K), -1);
    CHECK_EQ(omm_lora_find_index(&lora, 12, OMM_LORA_Q), -1);
    omm_lora_fini(&lora);
}

static void test_round_trip(omm_lora *lora) {
    const omm_lora_shape shape = small_shape();
    omm_buf file;
    omm_lora back;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, lora));
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &shape));
    CHECK_EQ(back.value_count, lora->value_count);
    CHECK(memcmp(back.values, lora->values, lora->value_count * sizeof(float)) == 0);
    CHECK(memcmp(back.tensors, lora->tensors, lora->tensor_count * sizeof *lora->tensors) == 0);
    CHECK(back.spec.alpha == lora->spec.alpha);
    omm_lora_fini(&back);
    omm_buf_fini(&file);
}

/* ---- fold ------------------------------------------------------------------------------------ */

/* The products scale * B, as they were before and after. */
static void check_products(const omm_lora *before, const omm_lora *after, double slack) {
    for (size_t i = 1; i < before->tensor_count; i += 2) {
        const omm_lora_tensor *b = &before->tensors[i], *c = &after->tensors[i];
        for (size_t v = b->offset; v < b->offset + (size_t)b->rows * b->cols; v++) {
            double want = (double)b->scale * (double)before->values[v];
            CHECK(fabs((double)c->scale * (double)after->values[v] - want) <= slack * fabs(want));
        }
    }
}

/* Through a file, and back to what it was before omm_lora_fold, to the bit where that was exact. */
static void check_unfolds(const omm_lora *folded, const omm_lora *was, double slack) {
    omm_buf file;
    omm_lora back;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_save(&file, folded));
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &was->shape));
    CHECK_OK(omm_lora_unfold(&back));
    for (size_t i = 0; i < was->tensor_count; i++) {
        CHECK(back.tensors[i].scale == was->tensors[i].scale);
        CHECK(back.tensors[i].own_scale == 0.0f);
    }
    check_products(was, &back, slack);
    if (slack == 0) CHECK(memcmp(back.values, was->values, was->value_count * sizeof(float)) == 0);
    omm_lora_fini(&back);
    omm_buf_fini(&file);
}

/* A file that says nonsense of its scales is refused by the key's name. */
static void test_own_scales_refused(void) {
    static const char key[] = "openmeshmind.lora.scales";
    static const float bad[] = {0.0f, NAN, INFINITY, -INFINITY};
    omm_lora lora = mixed(2.0f, 16.0f), back;
    omm_buf file;
    bool rounded = true;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK_OK(omm_lora_save(&file, &lora));
    uint8_t *kind = memmem(file.data, file.size, key, strlen(key));
    CHECK(kind != NULL);
    kind += strlen(key);
    uint8_t *first = kind + 4 + 4 + 8; /* array, of f32, count */
    const float good = omm_get_f32(first);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        omm_put_f32(first, bad[i]);
        CHECK_ERR(omm_lora_load(&back, omm_buf_view(&file), &lora.shape), OMM_ERR_NUMERIC);
        CHECK(strstr(omm_err_sentence(), key) != NULL);
    }
    omm_put_f32(first, good);
    omm_put_u32(kind + 4, OMM_GGUF_I32);
    CHECK_ERR(omm_lora_load(&back, omm_buf_view(&file), &lora.shape), OMM_ERR_FORMAT);
    omm_put_u32(kind + 4, OMM_GGUF_F32);
    omm_put_f32(first, 1e-38f); /* a scale, but B would be beyond all numbers */
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &lora.shape));
    back.values[back.tensors[1].offset] = 1e10f;
    CHECK_ERR(omm_lora_unfold(&back), OMM_ERR_NUMERIC);
    CHECK(back.tensors[1].own_scale == 1e-38f);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
    omm_buf_fini(&file);
}

/* One scale more or fewer than the adapter has pairs. */
static void test_own_scales_counted(void) {
    static const char key[] = "openmeshmind.lora.scales";
    omm_lora lora = mixed(2.0f, 16.0f), back;
    omm_buf file, other;
    omm_gguf g;
    bool rounded = true;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    const omm_gguf_kv *scales = omm_gguf_find(&g, key);
    CHECK(scales && scales->count == lora.tensor_count / 2);
    for (size_t count = scales->count - 1; count <= scales->count + 1; count++) {
        omm_gguf_writer w;
        float values[64] = {0};
        CHECK(scales->count < 64);
        for (size_t i = 0; i <= scales->count; i++) values[i] = 1.0f;
        omm_gguf_writer_init(&w);
        omm_buf_init(&other, FILE_MAX);
        for (size_t i = 0; i < g.kv_count; i++)
            if (&g.kvs[i] != scales) omm_gguf_put_kv(&w, &g.kvs[i]);
        omm_gguf_put_array(&w, key, OMM_GGUF_F32, values, count);
        for (size_t i = 0; i < g.tensor_count; i++)
            omm_gguf_put_tensor(&w, g.tensors[i].name, g.tensors[i].type, 2, g.tensors[i].dims,
                                g.tensors[i].data);
        CHECK_OK(omm_gguf_writer_finish(&other, &w));
        CHECK_ERR(omm_lora_load(&back, omm_buf_view(&other), &lora.shape),
                  count == scales->count ? OMM_OK : OMM_ERR_FORMAT);
        if (count == scales->count) omm_lora_fini(&back);
        omm_buf_fini(&other);
        omm_gguf_writer_fini(&w);
    }
    omm_gguf_close(&g);
    omm_lora_fini(&lora);
    omm_buf_fini(&file);
}

static void test_fold(float scale_q, float scale_down, float alpha, bool touched) {
    omm_lora lora = mixed(scale_q, scale_down), was = mixed(scale_q, scale_down);
    bool rounded = true;
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK(!rounded);
    CHECK(lora.spec.alpha == alpha);
    CHECK_EQ(memcmp(lora.values, was.values, lora.value_count * sizeof(float)) != 0, touched);
    check_products(&was, &lora, 0);
    test_round_trip(&lora);
    check_unfolds(&lora, &was, 0);
    omm_lora_fini(&lora);
    omm_lora_fini(&was);
}

/* Ranks 5 and 3 share no alpha; a file without one means a scale of 1, and B takes the rest. */
static void test_fold_ranks(void) {
    const omm_lora_shape shape = small_shape();
    omm_lora_plan plan;
    omm_lora lora;
    bool rounded = true;
    CHECK_OK(omm_lora_plan_init(&plan, &shape));
    CHECK_OK(omm_lora_plan_add(&plan, "q", (omm_lora_pair){5, 2.0f}));
    CHECK_OK(omm_lora_plan_add(&plan, "v", (omm_lora_pair){3, 4.0f}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    fill(&lora);
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK(!rounded && lora.spec.alpha == 0 && lora.tensors[0].scale == 1);
    test_round_trip(&lora);
    omm_lora_fini(&lora);
    omm_lora_plan_fini(&plan);
}

/* The alpha that the pairs were made with serves them as they are, whatever the adapter says of itself. */
static void test_fold_own_alpha(void) {
    omm_lora lora = mixed(2.0f, 4.0f), was = mixed(2.0f, 4.0f);
    bool rounded = true;
    lora.spec.alpha = 3.0f;
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK(!rounded && lora.spec.alpha == 8.0f);
    CHECK(memcmp(lora.values, was.values, lora.value_count * sizeof(float)) == 0);
    omm_lora_fini(&lora);
    omm_lora_fini(&was);
}

/* One rank and scale for all, and every layer: where one pair differs, or is missing, it is not. */
static void test_uniform(void) {
    const omm_lora_shape shape = small_shape();
    static const struct {
        omm_lora_pair other; /* of layer 5's q */
        bool uniform;
    } cases[] = {{{4, 2.0f}, true}, {{4, 1.0f}, false}, {{8, 2.0f}, false}, {{0, 0.0f}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_lora_plan plan;
        omm_lora lora;
        CHECK_OK(omm_lora_plan_init(&plan, &shape));
        CHECK_OK(omm_lora_plan_add(&plan, "q", (omm_lora_pair){4, 2.0f}));
        CHECK_OK(omm_lora_plan_add(&plan, "blk.5.attn_q", cases[i].other));
        CHECK_OK(omm_lora_init_plan(&lora, &plan));
        CHECK_EQ(omm_lora_is_uniform(&lora), cases[i].uniform);
        omm_lora_fini(&lora);
        omm_lora_plan_fini(&plan);
    }
}

/* The alpha that stands for a pair's scale gives that scale, whichever alpha it was made of. */
static void test_alpha_of_scale(void) {
    omm_lora_shape shape = {.layer_count = 1, .architecture = "llama"};
    shape.d_in[OMM_LORA_Q] = shape.d_out[OMM_LORA_Q] = 1;
    static const float alphas[] = {1.0f, 1.7f, 16.0f, 24.1f, 0.003f, 64.0f};
    for (uint32_t rank = 1; rank <= 256; rank++)
        for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
            omm_lora_plan plan;
            omm_lora lora;
            const float scale = alphas[i] / (float)rank;
            CHECK_OK(omm_lora_plan_init(&plan, &shape));
            CHECK_OK(omm_lora_plan_add(&plan, "q", (omm_lora_pair){rank, scale}));
            CHECK_OK(omm_lora_init_plan(&lora, &plan));
            CHECK(lora.spec.alpha / (float)rank == scale && omm_lora_is_uniform(&lora));
            omm_lora_fini(&lora);
            omm_lora_plan_fini(&plan);
        }
}

/* Scales that went into B before stay what training is to go on with. */
static void test_fold_twice(void) {
    omm_lora lora = mixed(2.0f, 16.0f);
    bool rounded = false;
    for (size_t i = 0; i < lora.tensor_count; i++) lora.tensors[i].own_scale = 3.0f;
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK(lora.tensors[2].scale == 4.0f); /* of down: not what it was */
    for (size_t i = 0; i < lora.tensor_count; i++) CHECK(lora.tensors[i].own_scale == 3.0f);
    omm_lora_fini(&lora);
}

/* More scales than alphas are tried. */
static void test_fold_many(void) {
    omm_lora_shape shape = small_shape();
    omm_lora_plan plan;
    omm_lora lora, was;
    bool rounded = false;
    shape.layer_count = 40;
    CHECK_OK(omm_lora_plan_init(&plan, &shape));
    CHECK_OK(omm_lora_plan_add(&plan, "q,down", (omm_lora_pair){2, 1.0f}));
    for (size_t i = 0; i < (size_t)shape.layer_count * OMM_LORA_TARGET_COUNT; i++)
        plan.pairs[i].scale = (float)(2 * i + 3);
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    CHECK_OK(omm_lora_init_plan(&was, &plan));
    fill(&lora);
    fill(&was);
    CHECK_ERR(omm_lora_fold(&rounded, &lora, false), OMM_ERR_UNSUPPORTED);
    CHECK_OK(omm_lora_fold(&rounded, &lora, true));
    CHECK(rounded);
    check_products(&was, &lora, 0x1p-23);
    omm_lora_fini(&lora);
    omm_lora_fini(&was);
    omm_lora_plan_fini(&plan);
}

static void test_fold_rounding(void) {
    omm_lora lora = mixed(2.0f, 3.1f), was = mixed(2.0f, 3.1f);
    omm_buf file;
    bool rounded = false;
    omm_buf_init(&file, FILE_MAX);
    CHECK_ERR(omm_lora_save(&file, &lora), OMM_ERR_UNSUPPORTED);
    CHECK_EQ(file.size, 0);
    CHECK_ERR(omm_lora_fold(&rounded, &lora, false), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "blk.0.ffn_down.weight.lora_b") != NULL);
    CHECK(memcmp(lora.values, was.values, lora.value_count * sizeof(float)) == 0);
    CHECK_OK(omm_lora_fold(&rounded, &lora, true));
    CHECK(rounded);
    check_products(&was, &lora, 0x1p-23);
    test_round_trip(&lora);
    check_unfolds(&lora, &was, 0x1p-22);
    omm_lora_fini(&lora);
    lora = mixed(0x1p-100f, 0x1.1p100f);
    CHECK_ERR(omm_lora_fold(&rounded, &lora, true), OMM_ERR_NUMERIC);
    CHECK(lora.tensors[0].scale == 0x1p-100f);
    /* powers of two are not exact where they push one value under the smallest normal one, and
     * another over the largest: down wants B times 1/8 or 1/4, or q wants it times 8 */
    omm_lora_fini(&lora);
    lora = mixed(1.0f, 0.25f);
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    omm_lora_fini(&lora);
    lora = mixed(1.0f, 0.25f);
    lora.values[lora.value_count - 1] = 0x1.8p-148f;
    lora.values[lora.tensors[1].offset] = 3e38f;
    CHECK_ERR(omm_lora_fold(&rounded, &lora, false), OMM_ERR_UNSUPPORTED);
    CHECK_OK(omm_lora_fold(&rounded, &lora, true));
    CHECK(rounded);
    omm_lora_fini(&lora);
    omm_lora_fini(&was);
    omm_buf_fini(&file);
}

/* rsLoRA of one rank always finds an alpha for power-of-two ranks; others mostly. */
static void test_fold_rslora(void) {
    const omm_lora_shape shape = small_shape();
    for (uint32_t rank = 1; rank <= 64; rank *= 2) {
        omm_lora_plan plan;
        omm_lora lora;
        bool rounded = true;
        const omm_lora_pair pair = {rank, omm_lora_scale_of(16, rank, true)};
        CHECK_OK(omm_lora_plan_init(&plan, &shape));
        CHECK_OK(omm_lora_plan_add(&plan, "all", pair));
        CHECK_OK(omm_lora_init_plan(&lora, &plan));
        fill(&lora);
        CHECK(omm_lora_fold(&rounded, &lora, false) == OMM_OK);
        CHECK(!rounded);
        CHECK(lora.tensors[0].scale == pair.scale);
        CHECK_EQ(lora.spec.targets, OMM_LORA_ALL_TARGETS & ~(1u << OMM_LORA_UP));
        CHECK(omm_lora_is_uniform(&lora));
        test_round_trip(&lora);
        omm_lora_fini(&lora);
        omm_lora_plan_fini(&plan);
    }
}

/* ---- what a model computes -------------------------------------------------------------------- */

static void logits_of(float *out, const omm_model *model, const omm_lora *lora) {
    omm_compute c;
    omm_session *session = NULL;
    uint32_t ids[LENGTH];
    for (uint32_t i = 0; i < LENGTH; i++) ids[i] = i * 31 % TINY_VOCAB;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_session_open(&session, &c, model, lora, NULL));
    CHECK_OK(omm_session_append(session, ids, LENGTH, out, true));
    omm_session_close(session);
    omm_compute_fini(&c);
}

/* The same numbers in a uniform adapter: larger rank filled with zeros, layers left out as zeros, the
 * scale's power of two in B. */
static void widen(omm_lora *wide, const omm_lora *lora, uint32_t rank, float scale) {
    omm_lora_spec spec = {rank, scale * (float)rank, OMM_LORA_ALL_TARGETS};
    CHECK_OK(omm_lora_init(wide, &spec, &lora->shape));
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        ptrdiff_t at = omm_lora_find_index(wide, t->layer, t->target) + (t->is_b ? 1 : 0);
        const omm_lora_tensor *w = &wide->tensors[at];
        for (uint32_t row = 0; row < t->rows; row++)
            for (uint32_t col = 0; col < t->cols; col++)
                wide->values[w->offset + (size_t)row * w->cols + col] =
                    lora->values[t->offset + (size_t)row * t->cols + col] *
                    (t->is_b ? t->scale / scale : 1.0f);
    }
}

static void test_same_logits(void) {
    static float one[LENGTH * TINY_VOCAB], two[LENGTH * TINY_VOCAB], none[LENGTH * TINY_VOCAB];
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_lora_plan plan;
    omm_lora lora, wide;
    bool rounded = true;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_F32});
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(omm_lora_plan_init(&plan, &model.lora_shape));
    CHECK_OK(omm_lora_plan_add(&plan, "attn_*", (omm_lora_pair){6, 0.5f}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.1.*", (omm_lora_pair){3, 2.0f}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.0.attn_v", (omm_lora_pair){0, 0}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    for (size_t i = 0; i < lora.value_count; i++)
        lora.values[i] = (float)((int)(i * 7919 % 2001) - 1000) * 1e-4f;
    widen(&wide, &lora, 7, 1.0f);
    logits_of(none, &model, NULL);
    logits_of(one, &model, &lora);
    logits_of(two, &model, &wide);
    CHECK(battery_hash(one, sizeof one) != battery_hash(none, sizeof none));
    CHECK(battery_hash(one, sizeof one) == battery_hash(two, sizeof two));
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    logits_of(two, &model, &lora);
    CHECK(battery_hash(one, sizeof one) == battery_hash(two, sizeof two));
    omm_lora_fini(&lora);
    omm_lora_fini(&wide);
    omm_lora_plan_fini(&plan);
    omm_model_fini(&model);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

static void test_allocations(void) {
    const omm_lora_shape shape = small_shape();
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_lora_plan plan = {0};
        omm_lora lora = {0};
        omm_mem_fail_nth(nth);
        err = omm_lora_plan_init(&plan, &shape);
        if (err == OMM_OK) err = omm_lora_plan_add(&plan, "all", (omm_lora_pair){4, 2.0f});
        if (err == OMM_OK) err = omm_lora_init_plan(&lora, &plan);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        omm_lora_fini(&lora);
        omm_lora_plan_fini(&plan);
        CHECK_EQ(omm_mem_live(), live);
    }
}

int main(void) {
    test_patterns();
    test_target_lists();
    test_scales();
    test_layout();
    test_fold(2.0f, 4.0f, 8.0f, false); /* alpha 8 says both */
    test_fold(1.0f, 1.0f, 0.0f, false); /* no alpha does, but 0 means 1 */
    test_fold(2.0f, 16.0f, 8.0f, true); /* B of down times 4 */
    test_fold(0.3f, 0.15f, 1.2f, true);
    test_own_scales_refused();
    test_own_scales_counted();
    test_fold_ranks();
    test_fold(-2.0f, 4.0f, -8.0f, true);
    test_fold_own_alpha();
    test_uniform();
    test_alpha_of_scale();
    test_fold_twice();
    test_fold_many();
    test_fold_rounding();
    test_fold_rslora();
    test_same_logits();
    test_allocations();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
