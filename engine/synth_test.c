/* synth_test.c - models of random weights: equal bytes from equal seeds, files that load, logits that
 * are finite, what is refused, running out of memory. */
#include "omm/synth.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/session.h"
#include "omm/tokenizer.h"
#include "omm_test.h"
#include "quantise_internal.h"
#include "synth_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char s_root[] = "/tmp/omm-synth-XXXXXX";
static char s_path[64];

static const char *digest(const omm_synth_options *o, unsigned threads) {
    static char hex[OMM_DIGEST_HEX_SIZE];
    omm_pool *pool = NULL;
    omm_digest d;
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_synth_write(s_path, o, pool, NULL));
    omm_pool_close(pool);
    CHECK_OK(omm_hash_file(&d, s_path));
    omm_digest_hex(hex, &d);
    return hex;
}

/* The file is a function of shape, type, seed and layers: these digests may never change. */
static void test_golden(void) {
    static const struct {
        omm_synth_options options;
        const char *want;
    } cases[] = {
        {{.shape = "tiny-llama", .type = "F32", .seed = 1},
         "0df0db79be10ae2887b13ea51f1f7658bb2db6e3d9f22433a1e4161c9849e4fe"},
        {{.shape = "tiny-llama", .type = "Q8_0", .seed = 1},
         "9f316a34fc034f5237f54c2c36b8e9d8834b2898754741e4ffca7204072bfbdf"},
        {{.shape = "tiny-qwen2", .type = "q4_0", .output = "F16", .seed = 2, .layers = 1},
         "8696e078db28df91bbb72f1e54399a9a65e7f0691e1901a0ea0f10cc9450b716"},
        {{.shape = "tiny-gemma3", .type = "BF16", .seed = 3},
         "bbad1cd5eda714cb89d289d1dcd3cc3f48812e8947cf7c443c04eb168482dfa5"},
        {{.shape = "tiny-phi3", .seed = 4},
         "484e09498a908490c9efe91b10291c69f8000fa7bc2b6fa5496d2d8882026cc8"},
    };
    static const unsigned threads[] = {1, 8};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            const char *got = digest(&cases[i].options, threads[t]);
            if (strcmp(got, cases[i].want) != 0)
                fprintf(stderr, "case %zu, %u threads: %s\n", i, threads[t], got);
            CHECK(strcmp(got, cases[i].want) == 0);
        }
}

static void test_seeds_and_layers(void) {
    char one[OMM_DIGEST_HEX_SIZE];
    omm_synth_options o = {.shape = "tiny-llama", .seed = 1};
    memcpy(one, digest(&o, 1), sizeof one);
    o.seed = 2;
    CHECK(strcmp(one, digest(&o, 1)) != 0);
    o = (omm_synth_options){.shape = "tiny-llama", .seed = 1, .layers = 2}; /* what it has */
    CHECK(strcmp(one, digest(&o, 1)) == 0);
    o.layers = 3;
    CHECK(strcmp(one, digest(&o, 1)) != 0);
}

/* Mean and deviation of a tensor are what the header says. */
static void test_distribution(void) {
    omm_gguf g;
    const omm_synth_options o = {.shape = "tiny-llama", .type = "F32", .seed = 5};
    CHECK_OK(omm_synth_write(s_path, &o, NULL, NULL));
    CHECK_OK(omm_gguf_open(&g, s_path));
    static const struct {
        const char *name;
        double mean, deviation;
    } want[] = {{"blk.0.ffn_up.weight", 0.0, 1.0 / 16.0},
                {"blk.1.attn_output.weight", 0.0, 0.5 / 16.0},
                {"token_embd.weight", 0.0, 3.0 / 16.0},
                {"blk.1.ffn_norm.weight", 1.0, 0.1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const omm_gguf_tensor *t = omm_gguf_find_tensor(&g, want[i].name);
        CHECK(t != NULL);
        const size_t n = t->data.size / 4;
        double sum = 0.0, square = 0.0;
        for (size_t k = 0; k < n; k++) {
            const double v = (double)omm_get_f32(t->data.data + 4 * k);
            sum += v;
            square += (v - want[i].mean) * (v - want[i].mean);
        }
        const double error = 5.0 / sqrt((double)n); /* five standard errors */
        CHECK(fabs(sum / (double)n - want[i].mean) < error * want[i].deviation);
        CHECK(fabs(sqrt(square / (double)n) / want[i].deviation - 1.0) < error);
    }
    omm_gguf_close(&g);
}

/* The tokenizer gives back every text; the pairs merge. */
static void test_tokenizer(void) {
    const char *text = "the quick brown f\xc3\xb6x [300]\n\xff\x01<|im_end|>";
    omm_gguf g;
    omm_tokenizer *t = NULL;
    omm_tokens ids;
    omm_buf back;
    const omm_synth_options o = {.shape = "tiny-llama", .seed = 1, .layers = 1};
    CHECK_OK(omm_synth_write(s_path, &o, NULL, NULL));
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_OK(omm_tokenizer_open(&t, &g));
    CHECK_EQ(omm_tokenizer_vocab(t), 512);
    omm_tokens_init(&ids, 1000);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str(text), 0));
    omm_buf_init(&back, 1000);
    omm_detok detok = {0};
    for (size_t i = 0; i < ids.count; i++)
        CHECK_OK(omm_detok_push(&back, &detok, t, ids.ids[i], 0));
    CHECK_OK(omm_detok_flush(&back, &detok));
    CHECK(back.size >= 20 && memcmp(back.data, text, 20) == 0);
    omm_tokens_fini(&ids);
    omm_tokens_init(&ids, 1000);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str("a big cage"), 0));
    CHECK_EQ(ids.count, 6); /* a, space b, ig, space c, ag, e */
    omm_tokens_fini(&ids);
    omm_tokens_init(&ids, 1000);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str("<|im_end|>"), OMM_TOKENIZE_SPECIAL));
    CHECK_EQ(ids.count, 1);
    CHECK(omm_tokenizer_is_end(t, ids.ids[0]));
    omm_tokens_fini(&ids);
    omm_buf_fini(&back);
    omm_tokenizer_close(t);
    omm_gguf_close(&g);
}

/* A file has the types that were planned for it. */
static void check_types(const omm_gguf *g, const omm_synth_options *o) {
    synth_plan plan;
    CHECK_OK(synth_plan_init(&plan, o));
    CHECK_EQ(g->tensor_count, plan.count);
    for (size_t i = 0; i < plan.count; i++) {
        CHECK(strcmp(g->tensors[i].name, plan.tensors[i].name) == 0);
        CHECK_EQ(g->tensors[i].type, plan.tensors[i].type);
    }
    synth_plan_fini(&plan);
}

static void check_logits(const char *shape, const char *type) {
    static float logits[40 * 512];
    uint32_t ids[40];
    omm_gguf g;
    omm_model model;
    omm_compute c;
    omm_session *session = NULL;
    omm_isa isa;
    const omm_synth_options o = {.shape = shape, .type = type, .seed = 1, .layers = 1};
    CHECK_OK(omm_synth_write(s_path, &o, NULL, NULL));
    CHECK_OK(omm_gguf_open(&g, s_path));
    check_types(&g, &o);
    omm_err err = omm_model_load(&model, &g);
    omm_gguf_close(&g);
    CHECK_OK(err);
    for (uint32_t i = 0; i < 40; i++) ids[i] = i * 97 % 512;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, isa));
    CHECK_OK(omm_session_open(&session, &c, &model, NULL, NULL));
    CHECK_OK(omm_session_append(session, ids, 40, logits, true));
    double square = 0.0;
    for (size_t i = 0; i < (size_t)40 * 512; i++) square += (double)logits[i] * (double)logits[i];
    const double deviation = sqrt(square / (40 * 512));
    CHECK(deviation > 1.0 && deviation < 9.0); /* meant to be 3; ternary weights are larger */
    omm_session_close(session);
    omm_compute_fini(&c);
    omm_model_fini(&model);
}

static void test_every_shape_and_type(void) {
    static const char *const shapes[] = {
        "tiny-qwen2",   "tiny-qwen3",    "tiny-gemma2",  "tiny-gemma3", "tiny-phi3",
        "tiny-smollm3", "tiny-granite",  "tiny-olmo2",   "tiny-olmo3",  "tiny-mistral3",
        "tiny-exaone4", "tiny-ernie4.5", "tiny-hunyuan", "tiny-gemma"};
    static const char *const types[] = {"F32",  "F16",    "BF16",   "Q4_0",  "Q4_1",  "Q5_0",
                                        "Q5_1", "Q8_0",   "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",
                                        "Q6_K", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "Q4_K_M"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) check_logits("tiny-llama", types[t]);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) check_logits(shapes[s], "Q8_0");
}

/* Q4_K_M is the mix that quantise.h has of the same model. */
static void test_mix(void) {
    static const char *const shapes[] = {"tiny-llama", "tiny-phi3"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        omm_synth_options o = {.shape = shapes[i], .type = "F32", .seed = 1, .layers = 9};
        omm_gguf plain;
        synth_plan made;
        uint32_t file_type = 0;
        CHECK_OK(omm_synth_write(s_path, &o, NULL, NULL));
        CHECK_OK(omm_gguf_open(&plain, s_path));
        omm_quantise_tensor *want = omm_alloc(plain.tensor_count, sizeof *want);
        CHECK(want != NULL);
        CHECK_OK(
            quantise_plan(want, &file_type, &plain, &(omm_quantise_options){.type = SYNTH_MIX}));
        o.type = SYNTH_MIX;
        CHECK_OK(synth_plan_init(&made, &o));
        CHECK_EQ(made.count, plain.tensor_count);
        for (size_t t = 0; t < made.count; t++) {
            CHECK(strcmp(made.tensors[t].name, want[t].name) == 0);
            if (made.tensors[t].type != want[t].to)
                fprintf(stderr, "%s: %s\n", shapes[i], want[t].name);
            CHECK_EQ(made.tensors[t].type, want[t].to);
        }
        synth_plan_fini(&made);
        omm_free(want);
        omm_gguf_close(&plain);
    }
}

/* The real shapes, one layer of each: as many parameters as the model has, and a valid file. */
static void test_real_shape(void) {
    omm_gguf g;
    omm_synth_report r;
    const omm_synth_options o = {.shape = "smollm2-135m", .type = "Q4_K", .seed = 1, .layers = 1};
    CHECK_OK(omm_synth_write(s_path, &o, NULL, &r));
    CHECK_EQ(r.parameters,
             49152 * 576 + 576 + (2 * 576 + 2 * 576 * 192 + 2 * 576 * 576 + 3 * 576 * 1536));
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_EQ(g.view.size, r.bytes);
    CHECK_EQ(g.tensor_count, r.tensors);
    CHECK_EQ(r.fallbacks, 7); /* all but ffn_down have 576 columns */
    const omm_gguf_tensor *t = omm_gguf_find_tensor(&g, "token_embd.weight");
    CHECK(t && t->type == OMM_GGML_Q8_0);
    const size_t row = (size_t)576 / 32 * 34,
                 piece = ((size_t)8 << 20) / row * row; /* drawn at once */
    CHECK(t->data.size > 2 * piece);
    CHECK(!same_bytes(t->data.data, t->data.data + piece, row));
    omm_gguf_close(&g);
}

/* Keys that no default stands in for. */
static void test_keys(void) {
    static const struct {
        const char *shape;
        double temperature;
        float residual, attention, embed, logit;
    } cases[] = {{"tiny-mistral3", (double)0.1f, 1.0f, 0.125f, 1.0f, 1.0f},
                 {"tiny-granite", 0.0, 0.22f, 0.015625f, 12.0f, 0.125f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const omm_synth_options o = {.shape = cases[i].shape, .seed = 1, .layers = 1};
        omm_gguf g;
        omm_model model;
        CHECK_OK(omm_synth_write(s_path, &o, NULL, NULL));
        CHECK_OK(omm_gguf_open(&g, s_path));
        CHECK_OK(omm_model_outline(&model, &g));
        CHECK(model.dims.temperature == cases[i].temperature);
        CHECK(model.dims.residual_scale == cases[i].residual);
        CHECK(model.dims.attention_scale == cases[i].attention);
        CHECK(model.dims.embed_scale == cases[i].embed);
        CHECK(model.dims.logit_scale == cases[i].logit);
        omm_model_fini(&model);
        omm_gguf_close(&g);
    }
}

static void test_refuses(void) {
    omm_synth_options o = {.shape = "llama9", .seed = 1};
    CHECK_ERR(omm_synth_write(s_path, &o, NULL, NULL), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "llama3.2-1b") && strstr(omm_err_sentence(), "tiny-phi3"));
    o = (omm_synth_options){.shape = "tiny-llama", .type = "Q9_9"};
    CHECK_ERR(omm_synth_write(s_path, &o, NULL, NULL), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "Q8_0"));
    o = (omm_synth_options){.shape = "tiny-llama", .output = "Q9_9"};
    CHECK_ERR(omm_synth_write(s_path, &o, NULL, NULL), OMM_ERR_CONFIG);
    o = (omm_synth_options){.shape = "tiny-llama", .layers = 513};
    CHECK_ERR(omm_synth_write(s_path, &o, NULL, NULL), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "513 layers: at most 512"));
    o = (omm_synth_options){.shape = "tiny-llama"};
    CHECK_ERR(omm_synth_write("/nowhere/x.gguf", &o, NULL, NULL), OMM_ERR_IO);
}

static void test_allocations(void) {
    const omm_synth_options o = {.shape = "tiny-llama", .seed = 1, .layers = 1};
    const size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        CHECK_OK(omm_file_remove(s_path));
        omm_mem_fail_nth(nth);
        omm_err err = omm_synth_write(s_path, &o, NULL, NULL);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(!omm_file_exists(s_path));
        CHECK(nth < 1000);
    }
}

int main(void) {
    CHECK(mkdtemp(s_root) != NULL);
    snprintf(s_path, sizeof s_path, "%s/model.gguf", s_root);
    test_golden();
    test_seeds_and_layers();
    test_distribution();
    test_tokenizer();
    test_every_shape_and_type();
    test_mix();
    test_real_shape();
    test_keys();
    test_refuses();
    test_allocations();
    CHECK_OK(omm_dir_remove(s_root));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
