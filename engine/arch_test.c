/* arch_test.c - every architecture and rope scaling on random models: close to a forward pass in
 * double, and the same bytes on every instruction set, thread count and split of the batch. */
#include "kernels_battery.h"
#include "tiny_arch.h"
#include "twin.h"

#include "omm/mem.h"
#include "omm/session.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { LENGTH = 140, VOCAB = TINY_ARCH_VOCAB };

/* Largest difference from the twin, as a share of the spread of the logits.  Measured: 8e-7. */
static const double DIFFERENCE_MAX = 1e-5;

/* The same of mode q8, which rounds activations to 8 bits.  Measured: 1.5e-2. */
static const double Q8_DIFFERENCE_MAX = 2e-2;

typedef struct test_case {
    const char *what;
    tiny_arch arch;
    uint32_t positions_max; /* 0: the default */
    bool long_rope;
    omm_activations activations;
    uint64_t golden; /* hash of the logits, the same from every compiler and processor */
} test_case;

static const test_case s_cases[] = {
    {"llama", {.name = "llama", .untied = true}, 0, false, OMM_ACTIVATIONS_F32, 0xe5f102e9eff5bec3},
    {"llama, linear",
     {.name = "llama", .scaling = "linear", .factor = 4.0f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x649f0b6f8d401ea8},
    {"llama, rope_freqs",
     {.name = "llama", .freqs = true, .base = 500000.0f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x1dce2ebd46c1bd5c},
    {"llama, yarn",
     {.name = "llama", .scaling = "yarn", .factor = 4.0f, .original = 64},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xc2bd4fb13f99da3a},
    {"llama, partial rotation",
     {.name = "llama", .rotated = 6},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xd5c6c3b8eca1598e},
    {"qwen2", {.name = "qwen2", .base = 1e6f}, 0, false, OMM_ACTIVATIONS_F32, 0x56132df6e588deab},
    {"qwen2, yarn",
     {.name = "qwen2",
      .scaling = "yarn",
      .factor = 4.0f,
      .original = 100,
      .attn_factor = 0.9f,
      .base = 10000.0f,
      .head_dim = 40},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x689442113ccdb22f},
    {"qwen3",
     {.name = "qwen3", .head_dim = 20, .untied = true, .base = 1e6f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xcf456c91de827b46},
    {"gemma", {.name = "gemma", .head_dim = 24}, 0, false, OMM_ACTIVATIONS_F32, 0x31d7dc31edd9c765},
    {"gemma2",
     {.name = "gemma2", .window = 17, .caps = {1.5f, 4.0f}},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x56d4808963b8c700},
    {"gemma2 of 46 layers",
     {.name = "gemma2", .window = 90, .layers = 46, .head_dim = 8},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x3a2bb523e9e22b0f},
    {"gemma3",
     {.name = "gemma3",
      .window = 70,
      .layers = 7,
      .scaling = "linear",
      .factor = 8.0f,
      .base = 1e6f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xe32906951101e5b4},
    {"gemma3 of 62 layers",
     {.name = "gemma3", .window = 33, .layers = 62, .head_dim = 16},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x5ba555249156587f},
    {"phi3",
     {.name = "phi3", .window = 40, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x0380b20e275b88ee},
    {"phi3, long factors",
     {.name = "phi3", .long_factors = true, .original = 150, .attn_factor = 1.19f},
     0,
     true,
     OMM_ACTIVATIONS_F32,
     0x7aaf51519d3f6b19},
    {"phi3, short factors, partial rotation",
     {.name = "phi3", .long_factors = true, .original = 150, .head_dim = 16, .rotated = 12},
     150,
     false,
     OMM_ACTIVATIONS_F32,
     0x398949a230992cbc},
    {"smollm3",
     {.name = "smollm3", .layers = 9, .head_dim = 20, .base = 5e6f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xf5d6ced0eeca6e01},
    {"smollm3, yarn, output of its own",
     {.name = "smollm3",
      .layers = 5,
      .scaling = "yarn",
      .factor = 2.0f,
      .original = 64,
      .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x3f06221a165e4044},
    {"granite",
     {.name = "granite", .head_dim = 20, .base = 1e7f, .scales = {12.0f, 0.22f, 0.13f, 8.0f}},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xddcdbc37eb583319},
    {"granite, logits alone scaled, output of its own",
     {.name = "granite", .scales = {0.0f, 0.0f, 0.0f, 0.3f}, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xbc2d617a63d066dd},
    {"olmo2",
     {.name = "olmo2", .untied = true, .base = 5e5f, .head_dim = 20},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x86468a284d52b271},
    {"olmo2, yarn, five layers",
     {.name = "olmo2", .layers = 5, .scaling = "yarn", .factor = 4.0f, .original = 64},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x8de0d777eec5dcc2},
    {"olmo2 with windows, which yarn is not for",
     {.name = "olmo2",
      .layers = 5,
      .window = 33,
      .scaling = "yarn",
      .factor = 8.0f,
      .original = 64,
      .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x9728e1f551d5afb8},
    {"mistral3, positions of several spans",
     {.name = "mistral3",
      .scaling = "yarn",
      .factor = 16.0f,
      .original = 48,
      .log_multiplier = 1.0f,
      .temperature = 0.3f,
      .base = 1e6f,
      .head_dim = 20},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xfdae6e2e59889dc6},
    {"mistral3, yarn's magnitude halved",
     {.name = "mistral3",
      .scaling = "yarn",
      .factor = 4.0f,
      .original = 64,
      .log_multiplier = 0.5f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xb06644e0bfddd6db},
    {"exaone4 without windows",
     {.name = "exaone4", .layers = 4, .freqs = true, .base = 1e6f, .head_dim = 20},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xdb3e0afa4e087db7},
    {"exaone4 with windows",
     {.name = "exaone4", .layers = 9, .window = 33, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x8eff9f2759282f94},
    {"ernie4_5",
     {.name = "ernie4_5", .head_dim = 20, .base = 5e5f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x3b65b02190eacad8},
    {"hunyuan-dense",
     {.name = "hunyuan-dense", .base = 10000.0f, .alpha = 1000.0f},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xfa7cdafd86d84ece},
    {"hunyuan-dense, output of its own",
     {.name = "hunyuan-dense", .head_dim = 24, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xae30019cbff661fa},
    {"qwen3 in Q8_0",
     {.name = "qwen3", .format = OMM_FORMAT_Q8_0, .head_dim = 24},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x54392d95ff9dc2f4},
    {"gemma3 in Q8_0",
     {.name = "gemma3", .format = OMM_FORMAT_Q8_0, .window = 20, .layers = 7},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0x4ef2445905f7a08f},
    {"phi3 in Q8_0",
     {.name = "phi3", .format = OMM_FORMAT_Q8_0, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_F32,
     0xa0d2b5286f4fa04f},
    {"qwen2 in Q8_0, q8",
     {.name = "qwen2", .format = OMM_FORMAT_Q8_0},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0x560bd27fda97d9e8},
    {"gemma2 in Q8_0, q8",
     {.name = "gemma2", .format = OMM_FORMAT_Q8_0, .window = 30, .head_dim = 24},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0xc22611613ae64fc4},
    {"granite in Q8_0, q8",
     {.name = "granite", .format = OMM_FORMAT_Q8_0, .scales = {3.0f, 0.5f, 0.2f, 2.0f}},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0xa429d0fec84a66a2},
    {"olmo2 in Q8_0, q8",
     {.name = "olmo2", .format = OMM_FORMAT_Q8_0, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0x1b61d26a68a44ada},
    {"smollm3 in Q8_0, q8",
     {.name = "smollm3", .format = OMM_FORMAT_Q8_0, .layers = 4},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0x8f9741bdb304f1a0},
    {"mistral3 in Q8_0, q8",
     {.name = "mistral3",
      .format = OMM_FORMAT_Q8_0,
      .scaling = "yarn",
      .factor = 16.0f,
      .original = 48,
      .log_multiplier = 1.0f,
      .temperature = 0.1f},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0x290b8b2118c59a95},
    {"exaone4 in Q8_0, q8",
     {.name = "exaone4", .format = OMM_FORMAT_Q8_0, .layers = 4, .window = 40},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0xf3a104b3bb973c4c},
    {"hunyuan-dense in Q8_0, q8",
     {.name = "hunyuan-dense", .format = OMM_FORMAT_Q8_0},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0xfebde9ecede635dc},
    {"phi3 in Q8_0, q8",
     {.name = "phi3", .format = OMM_FORMAT_Q8_0, .window = 50, .untied = true},
     0,
     false,
     OMM_ACTIVATIONS_Q8,
     0xbb89a32128ccb041},
};

static float s_want[LENGTH * VOCAB], s_got[LENGTH * VOCAB];
static double s_twin[LENGTH * VOCAB];
static uint32_t s_ids[LENGTH];

static omm_err load(omm_model *model, omm_gguf *gguf, omm_buf *file, const tiny_arch *arch) {
    omm_buf_init(file, 1 << 24);
    tiny_arch_write(file, arch);
    CHECK_OK(omm_gguf_open_bytes(gguf, omm_buf_view(file)));
    return omm_model_load(model, gguf);
}

static void logits_of(float *out, const omm_compute *c, const omm_model *model, const test_case *t,
                      uint32_t batch) {
    omm_session *session = NULL;
    omm_session_options options = omm_session_options_default();
    options.positions_max = t->positions_max;
    options.batch_max = batch;
    options.activations = t->activations;
    CHECK_OK(omm_session_open(&session, c, model, NULL, &options));
    CHECK_OK(omm_session_append(session, s_ids, LENGTH, out, true));
    omm_session_close(session);
}

static double difference(const float *got, const double *want, size_t count) {
    double low = want[0], high = want[0], worst = 0.0;
    for (size_t i = 0; i < count; i++) {
        if (want[i] < low) low = want[i]; /* gcc 12 for AArch64 breaks down over fmin here */
        if (want[i] > high) high = want[i];
        worst = worse_of(worst, fabs(want[i] - (double)got[i]));
    }
    return worst / (high - low);
}

static void same_everywhere(const omm_model *model, const test_case *t) {
    static const uint32_t batches[] = {256, 1, 37};
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        for (unsigned threads = 1; threads <= 3; threads++) {
            if ((isa == OMM_ISA_SCALAR || t->arch.layers > 20) && threads != 3) continue;
            omm_pool *pool = NULL;
            omm_compute c;
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            logits_of(s_got, &c, model, t, batches[threads - 1]);
            if (battery_hash(s_want, sizeof s_want) != battery_hash(s_got, sizeof s_got)) {
                fprintf(stderr, "%s, %s, %u threads: logits differ\n", t->what,
                        omm_isa_name((omm_isa)isa), threads);
                exit(1);
            }
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
}

static bool run(const test_case *t) {
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_compute c;
    omm_isa best;
    CHECK_OK(load(&model, &gguf, &file, &t->arch));
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    logits_of(s_want, &c, &model, t, 256);
    twin_logits(s_twin, &gguf, s_ids, LENGTH, t->long_rope);
    const bool q8 = t->activations == OMM_ACTIVATIONS_Q8;
    const double worst = difference(s_want, s_twin, (size_t)LENGTH * VOCAB);
    const uint64_t hash = battery_hash(s_want, sizeof s_want);
    printf("%-40s %.2e 0x%016" PRIx64 "\n", t->what, worst, hash);
    CHECK(worst <= (q8 ? Q8_DIFFERENCE_MAX : DIFFERENCE_MAX));
    omm_compute_fini(&c);
    same_everywhere(&model, t);
    omm_model_fini(&model);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    return hash == t->golden;
}

static void refused(tiny_arch arch, omm_err want, const char *part) {
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    CHECK_ERR(load(&model, &gguf, &file, &arch), want);
    if (!strstr(omm_err_sentence(), part)) {
        fprintf(stderr, "'%s' does not say '%s'\n", omm_err_sentence(), part);
        exit(1);
    }
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

/* Older files name the factor of positions alone, under another key. */
static void older_factor(void) {
    static const tiny_arch archs[] = {
        {.name = "llama", .scale_linear = 4.0f},
        {.name = "llama", .scaling = "linear", .scale_linear = 4.0f},
        {.name = "llama", .scaling = "linear", .factor = 4.0f, .scale_linear = 2.0f}};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        omm_buf file;
        omm_gguf gguf;
        omm_model model;
        CHECK_OK(load(&model, &gguf, &file, &archs[i]));
        CHECK_EQ(model.dims.rope_scaling, OMM_ROPE_SCALING_LINEAR);
        CHECK(model.dims.rope_factor == 4.0);
        omm_model_fini(&model);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
}

/* Gemma 3's layers with a window are never scaled, whether their base differs from the others' or, as here, not. */
static void windows_turn_by_themselves(void) {
    static const tiny_arch archs[] = {
        {.name = "gemma3", .scaling = "linear", .factor = 8.0f, .base = 10000.0f},
        {.name = "gemma3", .base = 10000.0f},
        {.name = "gemma2", .scaling = "linear", .factor = 8.0f, .base = 10000.0f}};
    static const double turns[] = {1.0, 1.0, 1.0 / 8.0}; /* of its first pair at position 1 */
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        tiny_arch arch = archs[i];
        omm_model model;
        omm_rope rope = {0};
        tiny_arch_load(&model, &arch);
        CHECK(model.dims.rope_base_local == model.dims.rope_base);
        CHECK_EQ(model.dims.rope_local, i < 2);
        CHECK_OK(omm_model_rope(&rope, &model, 2, false, true));
        CHECK(fabs((double)rope.cos[rope.rotated] - cos(turns[i])) < 1e-6);
        omm_rope_fini(&rope);
        omm_model_fini(&model);
    }
}

/* Of a long context the fastest pairs are left as they are, and where the slowest begin depends on the context's length. */
static void yarn_mixes(void) {
    enum { ROTATED = 64, AT = 5 };
    static const struct {
        uint32_t context;
        double factor, fast, slow, low, high; /* the pairs between which it mixes: floor, ceil */
    } cases[] = {{4096, 4.0, 32.0, 1.0, 10,
                  23}, /* 64 log(4096 / (2 pi 32)) / (2 log 10000) = 10.47; 22.51 */
                 {32768, 8.0, 32.0, 1.0, 17, 30},  /* 17.69; 29.73 */
                 {131072, 2.0, 16.0, 2.0, 24, 33}, /* 24.92; 32.14 */
                 {131072, 2.0, 2.0, 2.0, 32, 33},  /* of one place: a step */
                 {4, 4.0, 32.0, 1.0, 0, 0.001}};   /* of no width: all waves are longer */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const omm_model model = {.dims = {.head_dim = ROTATED,
                                          .rotated = ROTATED,
                                          .rope_style = OMM_ROPE_PAIRS,
                                          .rope_base = 10000.0,
                                          .rope_scaling = OMM_ROPE_SCALING_YARN,
                                          .rope_factor = cases[i].factor,
                                          .rope_magnitude = 1.0,
                                          .rope_context = cases[i].context,
                                          .yarn_beta_fast = cases[i].fast,
                                          .yarn_beta_slow = cases[i].slow}};
        omm_rope rope = {0};
        CHECK_OK(omm_model_rope(&rope, &model, AT + 1, false, false));
        const double magnitude = 1.0 + 0.1 * log(cases[i].factor);
        for (int p = 0; p < ROTATED / 2; p++) {
            const double s = (p - cases[i].low) / (cases[i].high - cases[i].low);
            const double stretched = s < 0 ? 0 : s > 1 ? 1 : s;
            const double speed =
                pow(10000.0, -2.0 * p / ROTATED) * (1 - stretched + stretched / cases[i].factor);
            const size_t at = (size_t)AT * ROTATED + 2 * (size_t)p;
            CHECK(fabs((double)rope.cos[at] - cos(AT * speed) * magnitude) < 1e-6);
            CHECK(fabs((double)rope.sin[at + 1] - sin(AT * speed) * magnitude) < 1e-6);
        }
        omm_rope_fini(&rope);
        CHECK_ERR(omm_model_rope(&rope, &model, (1u << 28) / ROTATED + 1, false, false),
                  OMM_ERR_TOO_BIG);
    }
}

static void refusals(void) {
    refused((tiny_arch){.name = "qwen2vl"}, OMM_ERR_UNSUPPORTED,
            "'qwen2vl' is not supported; these are: llama, qwen2, qwen3, gemma, gemma2, gemma3, "
            "phi3, "
            "smollm3, granite, olmo2, mistral3, exaone4, ernie4_5, hunyuan-dense");
    refused((tiny_arch){.name = "qwen2", .skip = "blk.1.attn_k.bias"}, OMM_ERR_NOT_FOUND,
            "blk.1.attn_k.bias");
    refused((tiny_arch){.name = "qwen3", .skip = "blk.0.attn_q_norm.weight"}, OMM_ERR_NOT_FOUND,
            "blk.0.attn_q_norm");
    refused((tiny_arch){.name = "gemma2", .skip = "blk.1.post_ffw_norm.weight"}, OMM_ERR_NOT_FOUND,
            "blk.1.post_ffw_norm");
    refused((tiny_arch){.name = "phi3", .skip = "blk.0.attn_qkv.weight"}, OMM_ERR_NOT_FOUND,
            "blk.0.attn_qkv");
    refused((tiny_arch){.name = "phi3", .long_factors = true, .skip = "rope_factors_short.weight"},
            OMM_ERR_NOT_FOUND, "rope_factors_short");
    refused((tiny_arch){.name = "qwen2", .long_factors = true}, OMM_ERR_UNSUPPORTED,
            "'rope_factors_long.weight' has no place in the 'qwen2' graph as it is supported here "
            "with rope scaling none");
    refused((tiny_arch){.name = "phi3", .long_factors = true, .skip = "rope_factors_long.weight"},
            OMM_ERR_UNSUPPORTED, "rope_factors_short.weight");
    static const char *const others[] = {"none", "linear", "yarn"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        refused(
            (tiny_arch){.name = "phi3", .long_factors = true, .scaling = others[i], .factor = 4.0f},
            OMM_ERR_UNSUPPORTED, others[i]);
    refused((tiny_arch){.name = "phi3", .long_factors = true, .freqs = true}, OMM_ERR_UNSUPPORTED,
            "'rope_freqs.weight' has no place in the 'phi3' graph as it is supported here with "
            "rope scaling longrope");
    refused((tiny_arch){.name = "smollm3", .layers = 4, .skip = "blk.3.attn_k.weight"},
            OMM_ERR_NOT_FOUND, "blk.3.attn_k.weight");
    refused((tiny_arch){.name = "smollm3", .long_factors = true}, OMM_ERR_UNSUPPORTED,
            "rope_factors_long");
    refused((tiny_arch){.name = "olmo2", .skip = "blk.1.post_attention_norm.weight"},
            OMM_ERR_NOT_FOUND, "blk.1.post_attention_norm");
    refused((tiny_arch){.name = "olmo2", .skip = "blk.0.attn_k_norm.weight"}, OMM_ERR_NOT_FOUND,
            "blk.0.attn_k_norm");
    refused((tiny_arch){.name = "granite"}, OMM_ERR_NOT_FOUND, "granite.logit_scale");
    refused((tiny_arch){.name = "granite", .scales = {0, 0, 0, -8.0f}}, OMM_ERR_NUMERIC,
            "granite.logit_scale is -8");
    refused((tiny_arch){.name = "granite", .scales = {0, 0, 0, 1e-9f}}, OMM_ERR_NUMERIC,
            "granite.logit_scale");
    refused((tiny_arch){.name = "granite", .scales = {0, -0.2f, 0, 8.0f}}, OMM_ERR_NUMERIC,
            "granite.residual_scale");
    refused((tiny_arch){.name = "granite", .scales = {INFINITY, 0, 0, 8.0f}}, OMM_ERR_FORMAT,
            "granite.embedding_scale");
    refused((tiny_arch){.name = "granite", .scales = {0, 0, 1e9f, 8.0f}}, OMM_ERR_NUMERIC,
            "granite.attention.scale");
    refused((tiny_arch){.name = "granite", .scales = {0, 0, 0, 8.0f}, .turns_not = true},
            OMM_ERR_UNSUPPORTED, "granite.rope.scaling.finetuned is false");
    refused((tiny_arch){.name = "llama", .scaling = "yarn"}, OMM_ERR_NOT_FOUND,
            "llama.rope.scaling.factor");
    refused((tiny_arch){.name = "llama", .scaling = "yarn", .factor = 0.5f}, OMM_ERR_NUMERIC,
            "llama.rope.scaling.factor");
    refused((tiny_arch){.name = "llama", .sees_all = true}, OMM_ERR_UNSUPPORTED,
            "llama.attention.causal is false");
    refused((tiny_arch){.name = "phi3", .scaling = "longrope"}, OMM_ERR_UNSUPPORTED, "longrope");
    refused((tiny_arch){.name = "gemma2", .caps = {-1.0f, 0.0f}}, OMM_ERR_NUMERIC,
            "attn_logit_softcapping");
}

static void check_named(const omm_gguf *gguf, omm_err want, const char *name) {
    omm_model model;
    CHECK_ERR(omm_model_outline(&model, gguf), want);
    if (want == OMM_OK) omm_model_fini(&model);
    if (want != OMM_OK) CHECK(strstr(omm_err_sentence(), name) != NULL);
}

/* Of each architecture: a tensor that is missing, or has another shape, is named.  Without an output of its own a model
 * has the embedding's. */
static void every_tensor_counts(void) {
    static const char *const names[] = {"llama", "qwen2",   "qwen3",   "gemma2", "gemma3",
                                        "phi3",  "smollm3", "granite", "olmo2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_arch arch = {.name = names[i], .layers = 1, .untied = true, .scales = {0, 0, 0, 8.0f}};
        omm_buf whole, less;
        omm_gguf gguf, without;
        omm_buf_init(&whole, 1 << 24);
        tiny_arch_write(&whole, &arch);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&whole)));
        check_named(&gguf, OMM_OK, "");
        for (size_t k = 0; k < gguf.tensor_count; k++) {
            omm_gguf_tensor *t = &gguf.tensors[k], keep = *t;
            t->dims[0]++;
            check_named(&gguf, OMM_ERR_MISMATCH, keep.name);
            *t = keep;
            t->dims[1]++; /* of the embedding: another vocabulary, which the output has not */
            check_named(&gguf, OMM_ERR_MISMATCH, k == 0 ? "output.weight" : keep.name);
            *t = keep;
            for (uint32_t d = 2; d < 4; d++) {
                t->dims[d] = 2;
                t->n_dims = d + 1;
                check_named(&gguf, OMM_ERR_MISMATCH, keep.name);
                *t = keep;
            }
            arch.skip = keep.name;
            omm_buf_init(&less, 1 << 24);
            tiny_arch_write(&less, &arch);
            CHECK_OK(omm_gguf_open_bytes(&without, omm_buf_view(&less)));
            const bool tied = strcmp(keep.name, "output.weight") == 0;
            check_named(&without, tied ? OMM_OK : OMM_ERR_NOT_FOUND, keep.name);
            omm_gguf_close(&without);
            omm_buf_fini(&less);
        }
        omm_gguf_close(&gguf);
        omm_buf_fini(&whole);
    }
}

static void no_place(omm_gguf *gguf, omm_gguf_tensor *t, const char *name) {
    omm_model model;
    snprintf(t->name, sizeof t->name, "%s", name);
    CHECK_ERR(omm_model_outline(&model, gguf), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "has no place in the") != NULL);
    CHECK(strstr(omm_err_sentence(), name) != NULL);
}

/* A tensor that one architecture has and another has not is refused there, and so is what only looks like one. */
static void nothing_is_left_over(void) {
    static const char *const archs[] = {"llama",    "qwen2",   "qwen3",    "gemma",        "gemma2",
                                        "gemma3",   "phi3",    "smollm3",  "granite",      "olmo2",
                                        "mistral3", "exaone4", "ernie4_5", "hunyuan-dense"};
    static const char *const like[] = {"blk.1.attn_output.weight",   "blk.00.attn_output.weight",
                                       "blk.0.attn_output.weight.x", "blk.0..attn_output.weight",
                                       "blk..attn_output.weight",    "blk.attn_output.weight",
                                       "blk.0.attn_output.weigh",    "xlk.0.attn_output.weight",
                                       "blk.0.attn_output.bias",     "output.weight2",
                                       "blk.0x.attn_output.weight",  "blk.0.token_embd.weight",
                                       "blk.0.attn_rot_embd",        "enc.blk.0.attn_q.weight",
                                       "blk.10.attn_output.weight",  "output.bias",
                                       "blk.0.ffn_gate_inp.weight",  "blk.0.ffn_gate_exps.weight",
                                       "blk.0.attn_sinks.weight",    "token_types.weight"};
    enum { ARCHS = sizeof archs / sizeof *archs };
    omm_buf files[ARCHS];
    omm_gguf models[ARCHS];
    for (size_t i = 0; i < ARCHS; i++) {
        const tiny_arch arch = {.name = archs[i],
                                .layers = 1,
                                .untied = true,
                                .freqs = true,
                                .scales = {0, 0, 0, 8.0f}};
        omm_model model;
        CHECK_OK(load(&model, &models[i], &files[i], &arch));
        omm_model_fini(&model);
    }
    for (size_t i = 0; i < ARCHS; i++) {
        omm_gguf *own = &models[i];
        omm_gguf_tensor *t =
            &own->tensors[omm_gguf_find_tensor(own, "rope_freqs.weight") - own->tensors];
        for (size_t k = 0; k < ARCHS; k++)
            for (size_t n = 0; n < models[k].tensor_count; n++) {
                const char *name = models[k].tensors[n].name;
                if (!omm_gguf_find_tensor(own, name)) no_place(own, t, name);
                snprintf(t->name, sizeof t->name, "rope_freqs.weight");
            }
        for (size_t n = 0; n < sizeof like / sizeof *like; n++) no_place(own, t, like[n]);
        snprintf(t->name, sizeof t->name, "rope_freqs.weight");
    }
    for (size_t i = 0; i < ARCHS; i++) {
        omm_gguf_close(&models[i]);
        omm_buf_fini(&files[i]);
    }
}

/* Norms and biases in halves count as those in single precision; other types, and what is not finite, are refused. */
static void vectors_of_halves(void) {
    const tiny_arch arch = {.name = "qwen2", .layers = 1};
    omm_buf file;
    omm_gguf gguf;
    omm_model want, got;
    size_t bytes = 0;
    CHECK_OK(load(&want, &gguf, &file, &arch));
    for (size_t i = 0; i < gguf.tensor_count; i++) {
        omm_gguf_tensor *t = &gguf.tensors[i];
        const omm_gguf_tensor keep = *t;
        uint8_t halves[2 * 512];
        if (t->n_dims != 1) continue;
        bytes += 4 * (size_t)t->dims[0];
        CHECK(t->dims[0] <= sizeof halves / 2);
        for (size_t k = 0; k < t->dims[0]; k++)
            omm_put_u16(halves + 2 * k, omm_f32_to_f16(omm_get_f32(t->data.data + 4 * k)));
        t->data = omm_bytes_of(halves, 2 * (size_t)t->dims[0]);
        t->type = OMM_GGML_BF16;
        CHECK_ERR(omm_model_load(&got, &gguf), OMM_ERR_UNSUPPORTED);
        CHECK(strstr(omm_err_sentence(), t->name) != NULL);
        t->type = OMM_GGML_F16;
        CHECK_OK(omm_model_load(&got, &gguf));
        CHECK_EQ(got.vector_bytes, want.vector_bytes);
        if (strcmp(t->name, "output_norm.weight") == 0)
            for (uint32_t k = 0; k < want.dims.d_model; k++)
                CHECK(got.output_norm[k] == omm_f16_to_f32(omm_f32_to_f16(want.output_norm[k])));
        omm_model_fini(&got);
        omm_put_u16(halves + t->data.size - 2, 0x7c00);
        CHECK_ERR(omm_model_load(&got, &gguf), OMM_ERR_NUMERIC);
        CHECK(strstr(omm_err_sentence(), t->name) != NULL);
        *t = keep;
    }
    CHECK_EQ(want.vector_bytes, bytes);
    omm_model_fini(&want);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

/* What frequencies are divided by. */
static void factors_are_positive(const tiny_arch *arch, const char *name) {
    static const float bad[] = {0.0f, -0.0f, -1.0f, NAN, INFINITY};
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, arch);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(&gguf, name);
    CHECK(t != NULL);
    uint8_t *first = file.data + (t->data.data - file.data);
    uint8_t *const ends[] = {first + t->data.size - sizeof(float), first};
    for (size_t i = 0; i < 2 * (sizeof bad / sizeof *bad); i++) {
        const float was = omm_get_f32(ends[i % 2]);
        omm_put_f32(ends[i % 2], bad[i / 2]);
        CHECK_ERR(omm_model_load(&model, &gguf), OMM_ERR_NUMERIC);
        CHECK(strstr(omm_err_sentence(), name) != NULL);
        omm_put_f32(ends[i % 2], was);
    }
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

/* Factors below 1 turn pairs faster: so far that no sine is known any more they are refused, by their least value there;
 * and so is a table of more positions than the model has. */
static void factors_turn_within_reason(void) {
    const tiny_arch arch = {.name = "llama", .freqs = true, .context = 4096};
    const float least = 4096.0f / (1 << 20); /* of the first pair, a radian a position */
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_rope rope = {0};
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, &arch);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(&gguf, "rope_freqs.weight");
    CHECK(t != NULL);
    uint8_t *first = file.data + (t->data.data - file.data);
    omm_put_f32(first, nextafterf(least, 0.0f));
    CHECK_ERR(omm_model_load(&model, &gguf), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "'rope_freqs.weight': element 0 is 0.00390625: at least "
                                     "0.00390625 for a context of 4096") != NULL);
    omm_put_f32(first, 1e-42f);
    CHECK_ERR(omm_model_load(&model, &gguf), OMM_ERR_NUMERIC);
    omm_put_f32(first, least);
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(omm_model_rope(&rope, &model, 4096, false, false));
    for (size_t i = 0; i < (size_t)4096 * rope.rotated; i++)
        CHECK(fabsf(rope.cos[i]) <= 1.0f && fabsf(rope.sin[i]) <= 1.0f);
    omm_rope_fini(&rope);
    CHECK_ERR(omm_model_rope(&rope, &model, 4098, false, false), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "pair 0 turns by 1.04883e+06 at position 4097") != NULL);
    omm_model_fini(&model);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

/* Files speak of more positions than are reckoned with: what they are scaled from counts, the rest is left alone. */
static void long_context(void) {
    const struct {
        uint32_t context, original, is, from;
    } all[] = {{4194304, 0, OMM_MODEL_CONTEXT_MAX, 4194304},
               {4194304, 131072, OMM_MODEL_CONTEXT_MAX, 131072},
               {64, 0, 64, 64}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const tiny_arch arch = {.name = "llama",
                                .scaling = "yarn",
                                .factor = 4.0f,
                                .context = all[i].context,
                                .original = all[i].original};
        omm_buf file;
        omm_gguf gguf;
        omm_model model;
        omm_buf_init(&file, 1 << 24);
        tiny_arch_write(&file, &arch);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_OK(omm_model_outline(&model, &gguf));
        CHECK_EQ(model.dims.context, all[i].is);
        CHECK_EQ(model.dims.rope_context, all[i].from);
        omm_model_fini(&model);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
}

/* A file with one byte changed loads or is refused, and what loads can be run. */
static void damaged(const tiny_arch *arch, const omm_compute *c) {
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, arch);
    for (size_t i = 0; i < 3000; i += 7) {
        const uint8_t old = file.data[i];
        omm_gguf gguf;
        omm_model model;
        omm_session *s = NULL;
        file.data[i] = (uint8_t)(old ^ (i % 2 ? 0x80u : 1u << i % 7));
        omm_err err = omm_gguf_open_bytes(&gguf, omm_buf_view(&file));
        if (err == OMM_OK) {
            if (omm_model_load(&model, &gguf) == OMM_OK) {
                omm_session_options o = {.positions_max = 2, .batch_max = 2};
                if (omm_session_open(&s, c, &model, NULL, &o) == OMM_OK) {
                    err = omm_session_append(s, s_ids, 2, s_got, true);
                    CHECK(err == OMM_OK || err == OMM_ERR_NUMERIC);
                }
                omm_session_close(s);
                omm_model_fini(&model);
            }
            omm_gguf_close(&gguf);
        }
        file.data[i] = old;
    }
    omm_buf_fini(&file);
}

static void out_of_memory(const tiny_arch *arch, const omm_compute *c) {
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, arch);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_session *s = NULL;
        omm_mem_fail_nth(n);
        err = omm_model_load(&model, &gguf);
        if (err == OMM_OK) {
            err = omm_session_open(&s, c, &model, NULL, NULL);
            omm_session_close(err == OMM_OK ? s : NULL);
            omm_model_fini(&model);
        }
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

static void trouble(void) {
    static const tiny_arch archs[] = {
        {.name = "qwen2", .scaling = "yarn", .factor = 4.0f, .original = 64},
        {.name = "qwen3"},
        {.name = "gemma3", .window = 7, .caps = {0.0f, 20.0f}},
        {.name = "granite", .scales = {12.0f, 0.22f, 0.1f, 8.0f}},
        {.name = "olmo2", .untied = true},
        {.name = "phi3", .long_factors = true, .window = 9}};
    omm_compute c;
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        damaged(&archs[i], &c);
        out_of_memory(&archs[i], &c);
    }
    omm_compute_fini(&c);
}

int main(void) {
    bool same = true;
    for (uint32_t i = 0; i < LENGTH; i++) s_ids[i] = i * i * 7 % VOCAB;
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) same = run(&s_cases[i]) && same;
    older_factor();
    windows_turn_by_themselves();
    yarn_mixes();
    every_tensor_counts();
    nothing_is_left_over();
    vectors_of_halves();
    factors_turn_within_reason();
    long_context();
    refusals();
    factors_are_positive(&(tiny_arch){.name = "llama", .freqs = true}, "rope_freqs.weight");
    factors_are_positive(&(tiny_arch){.name = "phi3", .long_factors = true},
                         "rope_factors_long.weight");
    factors_are_positive(&(tiny_arch){.name = "phi3", .long_factors = true},
                         "rope_factors_short.weight");
    trouble();
    CHECK(same);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
