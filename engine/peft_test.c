/* peft_test.c - PEFT folders: rows in the other order, patterns resolved, there and back, and every
 * feature without a counterpart refused by its name. */
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/peft.h"
#include "omm/safetensors.h"

#include "testdata.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char s_dir[64] = "/tmp/omm-peft-XXXXXX";

/* Two layers, 2 heads of width 4, one key/value head. */
static omm_peft_base small_base(void) {
    return (omm_peft_base){.shape = {.layer_count = 2,
                                     .d_in = {8, 8, 8, 8, 8, 8, 12},
                                     .d_out = {8, 4, 4, 8, 12, 12, 8},
                                     .architecture = "llama"},
                           .heads = 2,
                           .kv_heads = 1,
                           .permuted = true};
}

static void path_in(char out[OMM_PATH_MAX], const char *file) {
    CHECK_OK(omm_path_join(out, s_dir, file));
}

static void write_config(const char *text) {
    char path[OMM_PATH_MAX];
    path_in(path, "adapter_config.json");
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0644));
}

/* ---- folders by hand --------------------------------------------------------------------------- */

typedef struct entry {
    const char *name; /* behind "base_model.model." */
    uint32_t rows, cols;
} entry;

/* Value of row i, column k: 10 i + k, so a row can be told. */
static void write_model(const entry *entries, size_t count) {
    static float values[8][256];
    static char names[8][200];
    omm_safetensor tensors[8];
    omm_buf out;
    char path[OMM_PATH_MAX];
    CHECK(count <= 8);
    for (size_t i = 0; i < count; i++) {
        const size_t n = (size_t)entries[i].rows * entries[i].cols;
        CHECK(n <= 256);
        for (size_t v = 0; v < n; v++) {
            const size_t row = v / entries[i].cols;
            values[i][v] = (float)(10 * row + v % entries[i].cols);
        }
        snprintf(names[i], sizeof names[i], "base_model.model.%s", entries[i].name);
        tensors[i] = (omm_safetensor){.name = names[i],
                                      .n_dims = 2,
                                      .dims = {entries[i].rows, entries[i].cols},
                                      .data = omm_bytes_of(values[i], n * sizeof(float))};
    }
    omm_buf_init(&out, 1 << 20);
    CHECK_OK(omm_safetensors_write(&out, tensors, count));
    path_in(path, "adapter_model.safetensors");
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&out), 0644));
    omm_buf_fini(&out);
}

#define Q0 "model.layers.0.self_attn.q_proj.lora_"
#define Q1 "model.layers.1.self_attn.q_proj.lora_"
#define V1 "model.layers.1.self_attn.v_proj.lora_"

static const entry s_q[] = {
    {Q0 "A.weight", 2, 8}, {Q0 "B.weight", 8, 2}, {Q1 "A.weight", 2, 8}, {Q1 "B.weight", 8, 2}};

static omm_err import(omm_lora *out, const omm_peft_base *base) {
    bool rounded = false;
    return omm_peft_import(out, &rounded, s_dir, base, false);
}

static void check_rows(const omm_peft_base *base, const float want[8]) {
    omm_lora lora;
    const float *a = NULL, *b = NULL;
    CHECK_OK(import(&lora, base));
    omm_lora_find(&a, &b, &lora, 1, OMM_LORA_Q);
    for (size_t row = 0; row < 8; row++) {
        CHECK(b[row * 2] == want[row]);
        CHECK(b[row * 2 + 1] == want[row] + 1);
    }
    CHECK(a[8] == 10 && a[9] == 11); /* rows of A stay */
    CHECK_EQ(lora.spec.rank, 2);
    CHECK(lora.spec.alpha == 4);
    CHECK_EQ(lora.spec.targets, 1u << OMM_LORA_Q);
    omm_lora_fini(&lora);
}

/* Row 2i + p of a head in GGUF is its row p * width / 2 + i in PEFT.  With width 4 there and back are
 * the same permutation, with width 8 they are not. */
static void test_rows(void) {
    static const float two_heads[8] = {0, 20, 10, 30, 40, 60, 50, 70};
    static const float one_head[8] = {0, 40, 10, 50, 20, 60, 30, 70};
    static const float plain[8] = {0, 10, 20, 30, 40, 50, 60, 70};
    omm_peft_base base = small_base();
    omm_lora lora;
    const float *a = NULL, *b = NULL;
    write_config(
        "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q_proj\"]}");
    write_model(s_q, 4);
    check_rows(&base, two_heads);
    base.heads = 1;
    check_rows(&base, one_head);
    base.permuted = false;
    check_rows(&base, plain);
    CHECK_OK(omm_peft_load(&lora, s_dir)); /* no model: rows as they are */
    omm_lora_find(&a, &b, &lora, 0, OMM_LORA_Q);
    CHECK(b[2] == 10 && lora.shape.layer_count == 2 && lora.shape.d_out[OMM_LORA_Q] == 8);
    omm_lora_fini(&lora);
}

/* ---- configurations ---------------------------------------------------------------------------- */

static void test_patterns(void) {
    const omm_peft_base base = small_base();
    const entry entries[] = {{Q0 "A.weight", 4, 8}, {Q0 "B.weight", 8, 4}, {Q1 "A.weight", 2, 8},
                             {Q1 "B.weight", 8, 2}, {V1 "A.weight", 8, 8}, {V1 "B.weight", 4, 8}};
    omm_lora lora;
    write_model(entries, 6);
    /* the first key that matches counts; a key matches at the end of a path, after a dot */
    write_config("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":4,\"use_rslora\":false,"
                 "\"rank_pattern\":{\"_proj\":9,\"layers.1.self_attn.q_proj\":2,\"v_.*\":8,"
                 "\".*self_attn.(q|v)_proj\":4},\"alpha_pattern\":{\"v_proj\":16},"
                 "\"target_modules\":\".*\\\\.(0|1)\\\\.self_attn\\\\.[qv]_proj\","
                 "\"exclude_modules\":[\"layers.0.self_attn.v_proj\"]}");
    CHECK_OK(import(&lora, &base));
    CHECK_EQ(lora.tensor_count, 6);
    CHECK_EQ(lora.tensors[0].rows, 4);
    CHECK_EQ(lora.tensors[2].rows, 2);
    CHECK_EQ(lora.tensors[4].rows, 8);
    CHECK(lora.spec.alpha == 4); /* q of layer 0 and 1 as they are: 4/4 and 4/2; v 16/8 in B */
    CHECK(lora.tensors[0].scale == 1 && lora.tensors[2].scale == 2 &&
          lora.tensors[4].scale == 0.5f);
    CHECK(lora.values[lora.tensors[5].offset + 1] == 4); /* 1 times 2 / 0.5 */
    omm_lora_fini(&lora);
    CHECK_OK(omm_peft_load(&lora, s_dir));
    CHECK(lora.tensors[2].scale == 2 && lora.tensors[4].scale == 2);
    omm_lora_fini(&lora);
    bool rounded = false;
    write_config(
        "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"use_rslora\":true,"
        "\"rank_pattern\":{\"1.self_attn.q_proj\":2,\"v_proj\":8},"
        "\"target_modules\":[\"layers.0.self_attn.q_proj\",\"x\"],\"layers_to_transform\":0}");
    write_model(entries, 2);
    CHECK_OK(omm_peft_import(&lora, &rounded, s_dir, &base, false));
    CHECK(!rounded && lora.tensors[0].scale == 1.5f && lora.tensor_count == 2);
    omm_lora_fini(&lora);
    write_config("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":3,\"use_rslora\":true,"
                 "\"rank_pattern\":{\"1.self_attn.q_proj\":2,\"v_proj\":8},"
                 "\"target_modules\":[\"q_proj\"]}");
    write_model(entries, 4);
    CHECK_ERR(import(&lora, &base), OMM_ERR_UNSUPPORTED); /* 3 / 2 and 3 / sqrt 2 */
    CHECK_OK(omm_peft_import(&lora, &rounded, s_dir, &base, true));
    CHECK(rounded);
    omm_lora_fini(&lora);
}

/* What is set in an otherwise good configuration. */
static void test_config_refusals(void) {
    static const struct {
        const char *set;
        omm_err err;
        const char *named;
    } cases[] = {
        {"\"lora_dropout\":0.1", OMM_OK, NULL},
        {"\"use_dora\":true", OMM_ERR_UNSUPPORTED, "use_dora"},
        {"\"use_dora\":false", OMM_OK, NULL},
        {"\"modules_to_save\":[\"lm_head\"]", OMM_ERR_UNSUPPORTED, "modules_to_save"},
        {"\"modules_to_save\":[]", OMM_OK, NULL},
        {"\"bias\":\"all\"", OMM_ERR_UNSUPPORTED, "bias"},
        {"\"lora_bias\":true", OMM_ERR_UNSUPPORTED, "lora_bias"},
        {"\"fan_in_fan_out\":true", OMM_ERR_UNSUPPORTED, "fan_in_fan_out"},
        {"\"init_lora_weights\":\"pissa\"", OMM_ERR_UNSUPPORTED, "pissa"},
        {"\"init_lora_weights\":\"pissa_niter_16\"", OMM_ERR_UNSUPPORTED, "pissa_niter_16"},
        {"\"init_lora_weights\":\"loftq\"", OMM_ERR_UNSUPPORTED, "loftq"},
        {"\"init_lora_weights\":\"olora\"", OMM_ERR_UNSUPPORTED, "olora"},
        {"\"init_lora_weights\":\"gaussian\"", OMM_OK, NULL},
        {"\"init_lora_weights\":false", OMM_OK, NULL},
        {"\"layer_replication\":[[0,1],[0,1]]", OMM_ERR_UNSUPPORTED, "layer_replication"},
        {"\"trainable_token_indices\":[3]", OMM_ERR_UNSUPPORTED, "trainable_token_indices"},
        {"\"arrow_config\":{\"top_k\":2}", OMM_ERR_UNSUPPORTED, "arrow_config"},
        {"\"arrow_config\":{}", OMM_OK, NULL},
        {"\"megatron_config\":\"x\"", OMM_ERR_UNSUPPORTED, "megatron_config"},
        {"\"megatron_config\":\"\"", OMM_OK, NULL},
        {"\"new_thing\":7", OMM_ERR_UNSUPPORTED, "new_thing"},
        {"\"new_thing\":null", OMM_OK, NULL},
        {"\"peft_type\":\"IA3\"", OMM_ERR_UNSUPPORTED, "IA3"},
        {"\"r\":0", OMM_ERR_CONFIG, "rank"},
        {"\"r\":2.5", OMM_ERR_CONFIG, "rank"},
        {"\"r\":\"2\"", OMM_ERR_FORMAT, "r is no number"},
        {"\"r\":3", OMM_ERR_MISMATCH, "q_proj"},
        {"\"lora_alpha\":0", OMM_ERR_CONFIG, "alpha"},
        {"\"target_modules\":[\"v_proj\"]", OMM_ERR_MISMATCH, "q_proj"},
        {"\"target_modules\":[\"proj\"]", OMM_ERR_MISMATCH, "q_proj"},
        {"\"target_modules\":null", OMM_ERR_NOT_FOUND, "target_modules"},
        {"\"target_modules\":[\"q_proj\",\"up_proj\"]", OMM_ERR_NOT_FOUND, "mlp.up_proj"},
        {"\"target_modules\":\"All-Linear\"", OMM_ERR_NOT_FOUND, "k_proj"},
        {"\"target_modules\":\".*q_pro\"", OMM_ERR_MISMATCH, "q_proj"},
        {"\"target_modules\":\"all_linear\"", OMM_ERR_MISMATCH, "q_proj"}, /* a pattern */
        {"\"target_modules\":[\"q_proj\",\"lm_head\"]", OMM_ERR_UNSUPPORTED, "lm_head"},
        {"\"target_modules\":\".*(q_proj|embed_tokens)\"", OMM_ERR_UNSUPPORTED, "embed_tokens"},
        {"\"target_modules\":[\"q_proj\",\"lm_head\"],\"exclude_modules\":[\"lm_head\"]", OMM_OK,
         NULL},
        {"\"target_modules\":\"(\"", OMM_ERR_UNSUPPORTED, "regular expression"},
        {"\"target_modules\":\"((.+)+)+[0-9]{9}\"", OMM_ERR_UNSUPPORTED, "steps"},
        {"\"target_modules\":\"model.layers((.+)+)+[0-9]{9}\"", OMM_ERR_UNSUPPORTED, "steps"},
        {"\"exclude_modules\":\"(\"", OMM_ERR_UNSUPPORTED, "regular expression"},
        {"\"exclude_modules\":\"model.layers((.+)+)+[0-9]{9}\"", OMM_ERR_UNSUPPORTED, "steps"},
        {"\"rank_pattern\":{\"((.+)+)+[0-9]{9}\":2}", OMM_ERR_UNSUPPORTED, "steps"},
        {"\"alpha_pattern\":{\"((.+)+)+[0-9]{9}\":2}", OMM_ERR_UNSUPPORTED, "steps"},
        {"\"exclude_modules\":\".*1.self_attn.q_proj\"", OMM_ERR_MISMATCH, "layers.1"},
        {"\"layers_to_transform\":[0]", OMM_ERR_MISMATCH, "layers.1"},
        {"\"layers_to_transform\":[0,1],\"layers_pattern\":\"h\"", OMM_ERR_UNSUPPORTED,
         "layers_pattern"},
        {"\"layers_to_transform\":[0,1],\"layers_pattern\":[\"layers\"]", OMM_OK, NULL},
        {"\"layers_to_transform\":[0],\"target_modules\":\".*q_proj\"", OMM_OK, NULL}, /* all */
        {"\"rank_pattern\":{\"q_proj\":\"x\"}", OMM_ERR_FORMAT, "rank_pattern"},
        {"\"rank_pattern\":[]", OMM_ERR_FORMAT, "rank_pattern"},
        {"\"use_rslora\":1", OMM_ERR_FORMAT, "use_rslora"},
    };
    const omm_peft_base base = small_base();
    write_model(s_q, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *set = cases[i].set;
        char text[512];
        omm_lora lora = {0};
        snprintf(text, sizeof text, "{%s%s%s%s%s}",
                 strstr(set, "\"peft_type\"") ? "" : "\"peft_type\":\"LORA\",",
                 strstr(set, "\"r\"") ? "" : "\"r\":2,",
                 strstr(set, "alpha") ? "" : "\"lora_alpha\":4,",
                 strstr(set, "target_modules") ? "" : "\"target_modules\":[\"q_proj\"],", set);
        write_config(text);
        omm_err err = import(&lora, &base);
        if (err != cases[i].err) fprintf(stderr, "config: %s: %s\n", text, omm_err_sentence());
        CHECK_ERR(err, cases[i].err);
        if (cases[i].named && !strstr(omm_err_sentence(), cases[i].named))
            fprintf(stderr, "config: %s: %s\n", text, omm_err_sentence());
        if (cases[i].named) CHECK(strstr(omm_err_sentence(), cases[i].named) != NULL);
        omm_lora_fini(&lora);
    }
}

/* So many ranks by names that nothing has, then one by `last`. */
static omm_err with_patterns(size_t names, const char *last) {
    const omm_peft_base base = small_base();
    omm_buf text;
    char path[OMM_PATH_MAX];
    omm_lora lora;
    omm_buf_init(&text, 1 << 20);
    path_in(path, "adapter_config.json");
    CHECK_OK(omm_buf_printf(&text, "{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":"
                                   "[\"q_proj\"],\"rank_pattern\":{"));
    for (size_t i = 0; i < names; i++) CHECK_OK(omm_buf_printf(&text, "\"x%zu\":4,", i));
    CHECK_OK(omm_buf_printf(&text, "\"%s\":4}}", last));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&text), 0644));
    omm_buf_fini(&text);
    const omm_err err = import(&lora, &base);
    if (err == OMM_OK) omm_lora_fini(&lora);
    return err;
}

/* What patterns may take: bytes, and steps, of which there are fewer where patterns are many. */
static void test_pattern_limits(void) {
    static const char slow[] = "(.*)(.*)(.*)[0-9]{9}"; /* some thousand steps */
    char longest[OMM_PEFT_PATTERN_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    write_model(s_q, 4);
    CHECK_ERR(with_patterns(0, longest), OMM_ERR_TOO_BIG);
    CHECK_OK(with_patterns(0, longest + 1));
    CHECK_OK(with_patterns(0, slow));
    CHECK_OK(with_patterns(255, slow));
    CHECK_ERR(with_patterns(256, slow), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "over 1000 steps") != NULL);
    CHECK_OK(with_patterns(256, "q_pro"));
    CHECK_ERR(with_patterns(OMM_PEFT_PATTERNS_MAX, "q_pro"), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "rank_pattern has 8193 entries, at most 8192") != NULL);
}

/* A list of names may be long, and no longer. */
static void test_list_limits(void) {
    const omm_peft_base base = small_base();
    write_model(s_q, 4);
    for (size_t more = 0; more < 2; more++) {
        omm_buf text;
        char path[OMM_PATH_MAX];
        omm_lora lora;
        omm_buf_init(&text, 1 << 20);
        path_in(path, "adapter_config.json");
        CHECK_OK(omm_buf_printf(&text, "{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":["));
        for (size_t i = 0; i < 65535 + more; i++) CHECK_OK(omm_buf_printf(&text, "\"x\","));
        CHECK_OK(omm_buf_printf(&text, "\"q_proj\"]}"));
        CHECK_OK(omm_file_write_fast(path, omm_buf_view(&text), 0644));
        omm_buf_fini(&text);
        CHECK_ERR(import(&lora, &base), more ? OMM_ERR_FORMAT : OMM_OK);
        if (!more) omm_lora_fini(&lora);
    }
}

/* What PEFT takes where a key is missing. */
static void test_defaults(void) {
    static const entry eights[] = {{Q0 "A.weight", 8, 8}, {Q0 "B.weight", 8, 8}};
    omm_peft_base base = small_base();
    omm_lora lora;
    base.shape.layer_count = 1;
    write_model(eights, 2);
    write_config("{\"peft_type\":\"LORA\",\"target_modules\":[\"q_proj\"]}");
    CHECK_OK(import(&lora, &base));
    CHECK(lora.spec.rank == 8 && lora.tensors[0].scale == 1.0f);
    omm_lora_fini(&lora);
    write_config("{\"peft_type\":\"LORA\",\"lora_alpha\":4,\"target_modules\":[\"q_proj\"]}");
    CHECK_OK(import(&lora, &base));
    CHECK(lora.spec.rank == 8 && lora.tensors[0].scale == 0.5f);
    omm_lora_fini(&lora);
}

/* One tensor more, with a strange name or shape. */
static void test_tensor_refusals(void) {
    static const struct {
        entry extra;
        omm_err err;
        const char *words;
    } cases[] = {
        {{"model.layers.1.self_attn.k_proj.lora_A.weight", 2, 8},
         OMM_ERR_MISMATCH,
         "is not among the target modules"},
        {{"model.layers.0.shared_mlp.input_linear.lora_A.weight", 2, 8},
         OMM_ERR_UNSUPPORTED,
         "of shared_mlp nothing is read"},
        {{"lm_head.lora_A.weight", 2, 8}, OMM_ERR_UNSUPPORTED, "on the output layer"},
        {{"model.embed_tokens.lora_embedding_A", 2, 8}, OMM_ERR_UNSUPPORTED, "on embeddings"},
        {{"model.layers.0.self_attn.q_proj.lora_magnitude_vector", 1, 8},
         OMM_ERR_UNSUPPORTED,
         "DoRA"},
        {{"model.layers.0.self_attn.q_proj.lora_A.default.weight", 2, 8},
         OMM_ERR_UNSUPPORTED,
         "no LoRA pair of a linear layer"},
        {{"model.layers.0.self_attn.qkv_proj.lora_A.weight", 2, 8},
         OMM_ERR_UNSUPPORTED,
         "layers of their own"},
        {{"model.layers.00.self_attn.q_proj.lora_A.weight", 2, 8}, OMM_ERR_UNSUPPORTED, "no LoRA"},
        {{"model.layers.9999999999.self_attn.q_proj.lora_A.weight", 2, 8},
         OMM_ERR_UNSUPPORTED,
         "no LoRA"},
        {{"model.layers.2.self_attn.q_proj.lora_A.weight", 2, 8},
         OMM_ERR_MISMATCH,
         "has no such layer"},
        {{"model.language_model.layers.0.self_attn.q_proj.lora_A.weight", 2, 8},
         OMM_ERR_MISMATCH,
         "one model only"},
        {{"../../layers.0.self_attn.q_proj.lora_A.weight", 2, 8}, OMM_ERR_UNSUPPORTED, "no LoRA"},
    };
    const omm_peft_base base = small_base();
    write_config("{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":[\"q_proj\"]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        entry entries[5];
        omm_lora lora;
        memcpy(entries, s_q, sizeof s_q);
        entries[4] = cases[i].extra;
        write_model(entries, 5);
        omm_err err = import(&lora, &base);
        if (err != cases[i].err) fprintf(stderr, "tensor: %s\n", cases[i].extra.name);
        CHECK_ERR(err, cases[i].err);
        CHECK(strstr(omm_err_sentence(), cases[i].words) != NULL);
    }
    omm_lora lora;
    write_model(s_q + 2, 2);
    CHECK_ERR(import(&lora, &base), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "layers.0.self_attn.q_proj' is a target") != NULL);
    write_model(s_q, 3); /* an A without its B */
    CHECK_ERR(import(&lora, &base), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "layers.1.self_attn.q_proj.lora_B") != NULL);
    write_model(s_q, 0);
    CHECK_ERR(import(&lora, &base), OMM_ERR_NOT_FOUND);
    const entry wide[] = {{Q0 "A.weight", 2, 9}, {Q0 "B.weight", 8, 2}};
    write_model(wide, 2);
    CHECK_ERR(import(&lora, &base), OMM_ERR_MISMATCH);
    const entry turned[] = {{Q0 "A.weight", 8, 2}, {Q0 "B.weight", 2, 8}}; /* as many values */
    write_model(turned, 2);
    CHECK_ERR(import(&lora, &base), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "is [8][2], model and rank want [2][8]") != NULL);
    char path[OMM_PATH_MAX], pickle[OMM_PATH_MAX];
    path_in(path, "adapter_model.safetensors");
    path_in(pickle, "adapter_model.bin");
    CHECK_OK(omm_file_remove(path));
    CHECK_ERR(import(&lora, &base), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_write_fast(pickle, omm_bytes_str("x"), 0644));
    CHECK_ERR(import(&lora, &base), OMM_ERR_UNSUPPORTED);
    CHECK_OK(omm_file_remove(pickle));
}

/* A value that is none is refused where it stands, with a model and without. */
static void test_not_finite(void) {
    const omm_peft_base base = small_base();
    omm_lora lora;
    omm_buf file;
    char path[OMM_PATH_MAX];
    write_config("{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":[\"q_proj\"]}");
    write_model(s_q, 4);
    path_in(path, "adapter_model.safetensors");
    omm_buf_init(&file, 1 << 20);
    CHECK_OK(omm_file_read(&file, path));
    omm_put_f32(file.data + file.size - 4, INFINITY); /* of layer 1's B, the last */
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&file), 0644));
    CHECK_ERR(import(&lora, &base), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "layers.1.self_attn.q_proj.lora_B.weight'[7][1]") != NULL);
    CHECK_ERR(omm_peft_load(&lora, s_dir), OMM_ERR_NUMERIC);
    omm_buf_fini(&file);
}

/* ---- there and back --------------------------------------------------------------------------- */

static void check_same(const omm_lora *a, const omm_lora *b) {
    CHECK_EQ(a->tensor_count, b->tensor_count);
    CHECK(memcmp(a->tensors, b->tensors, a->tensor_count * sizeof *a->tensors) == 0);
    CHECK(memcmp(a->values, b->values, a->value_count * sizeof(float)) == 0);
    CHECK(a->spec.alpha == b->spec.alpha);
}

static void there_and_back(const omm_lora *lora, const omm_peft_base *base) {
    omm_lora back;
    bool rounded = true;
    CHECK_OK(omm_peft_export(s_dir, lora, base, "name"));
    CHECK_OK(omm_peft_import(&back, &rounded, s_dir, base, false));
    CHECK(!rounded);
    check_same(lora, &back);
    omm_lora_fini(&back);
}

/* A target at one rank in all its layers is one entry, else each layer that differs is one. */
static void check_rank_pattern(void) {
    static const struct {
        const char *key;
        int rank;
    } want[] = {{"gate_proj", 2},
                {"up_proj", 2},
                {"down_proj", 2},
                {"model.layers.1.self_attn.q_proj", 3},
                {"model.layers.1.self_attn.k_proj", 3},
                {"v_proj", 3}};
    char path[OMM_PATH_MAX];
    json_t *root = NULL;
    path_in(path, "adapter_config.json");
    CHECK_OK(omm_json_load(&root, path, OMM_PEFT_CONFIG_BYTES_MAX));
    const json_t *ranks = json_object_get(root, "rank_pattern");
    CHECK_EQ(json_integer_value(json_object_get(root, "r")), 4);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_EQ(json_integer_value(json_object_get(ranks, want[i].key)), want[i].rank);
    json_decref(root);
}

/* The configuration has this alpha for all, a whole one as a whole number. */
static void check_alpha(float alpha) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    json_t *config = NULL;
    path_in(path, "adapter_config.json");
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_file_read(&text, path));
    CHECK_OK(omm_json_parse(&config, omm_buf_view(&text), path));
    const json_t *is = json_object_get(config, "lora_alpha");
    CHECK(json_number_value(is) == (double)alpha);
    CHECK_EQ(json_is_integer(is), alpha == floorf(alpha));
    json_decref(config);
    omm_buf_fini(&text);
}

/* A pair whose B would be rounded stays as the file has it, and is counted. */
static void check_left_folded(omm_lora *lora) {
    const size_t bytes = lora->value_count * sizeof *lora->values;
    float *before = omm_alloc(lora->value_count, sizeof *before);
    bool rounded = false;
    size_t left = 0, kept = 0;
    CHECK_OK(omm_lora_fold(&rounded, lora, true));
    CHECK(before && rounded);
    memcpy(before, lora->values, bytes);
    omm_lora_unfold_exact(&left, lora);
    for (size_t i = 1; i < lora->tensor_count; i += 2) {
        const omm_lora_tensor *b = &lora->tensors[i];
        if (b->own_scale == 0.0f) continue;
        kept++;
        CHECK(b->own_scale != b->scale && lora->tensors[i - 1].own_scale == b->own_scale);
        CHECK_EQ(memcmp(before + b->offset, lora->values + b->offset,
                        (size_t)b->rows * b->cols * sizeof *before),
                 0);
    }
    CHECK(left > 0 && left == kept);
    omm_free(before);
}

static void test_mixed(void) {
    const omm_peft_base base = small_base();
    omm_lora_plan plan;
    omm_lora lora;
    bool rounded = true;
    CHECK_OK(omm_lora_plan_init(&plan, &base.shape));
    CHECK_OK(omm_lora_plan_add(&plan, "all", (omm_lora_pair){4, 0.25f}));
    CHECK_OK(omm_lora_plan_add(&plan, "ffn_*", (omm_lora_pair){2, 0.5f}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.1.attn_?", (omm_lora_pair){3, 1.0f / 3.0f}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.1.attn_k", (omm_lora_pair){3, 4.0f / 3.0f}));
    CHECK_OK(omm_lora_plan_add(&plan, "blk.0.attn_v", (omm_lora_pair){0, 0}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    for (size_t i = 0; i < lora.value_count; i++)
        lora.values[i] = (float)((int)(i * 7919 % 2001) - 1000) * 1e-3f;
    CHECK_OK(omm_lora_fold(&rounded, &lora, false));
    CHECK(!rounded);
    size_t left = 7;
    omm_lora unfolded;
    omm_buf file;
    omm_buf_init(&file, 1 << 20);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_lora_load(&unfolded, omm_buf_view(&file), &lora.shape));
    omm_buf_fini(&file);
    omm_lora_unfold_exact(&left, &unfolded);
    CHECK_EQ(left, 0);
    for (size_t i = 0; i < unfolded.tensor_count; i++)
        CHECK(unfolded.tensors[i].own_scale == 0.0f); /* what a file would say of it: nothing */
    CHECK_OK(omm_peft_export(s_dir, &unfolded, &base, "name"));
    check_alpha(unfolded.spec.alpha);
    omm_lora back;
    CHECK_OK(omm_peft_import(&back, &rounded, s_dir, &base, false));
    check_same(&lora, &back); /* with the scale that one pair had of its own */
    CHECK(!rounded);
    omm_lora_fini(&back);
    omm_lora_fini(&unfolded);
    check_rank_pattern();
    /* scales of any kind are exact over there, also before they are folded */
    omm_lora other;
    for (size_t pair = 0; 2 * pair < lora.tensor_count; pair++)
        lora.tensors[2 * pair].scale = lora.tensors[2 * pair + 1].scale =
            0.1f + (float)pair * 0.37f;
    CHECK_OK(omm_peft_export(s_dir, &lora, &base, ""));
    CHECK_OK(omm_peft_load(&other, s_dir));
    for (size_t i = 0; i < lora.tensor_count; i++)
        CHECK(other.tensors[i].scale == lora.tensors[i].scale);
    omm_lora_fini(&other);
    check_left_folded(&lora);
    for (unsigned what = 0; what < 3; what++) {
        omm_peft_base wrong = base;
        if (what == 0) wrong.shape.layer_count++;
        if (what == 1) wrong.shape.d_in[OMM_LORA_DOWN]++;
        if (what == 2) wrong.shape.d_out[OMM_LORA_GATE]++;
        CHECK_ERR(omm_peft_export(s_dir, &lora, &wrong, ""), OMM_ERR_MISMATCH);
    }
    CHECK_ERR(omm_peft_export(s_dir, &lora, &base, "\xff"), OMM_ERR_FORMAT);
    for (size_t i = 0; i < lora.tensor_count; i++) lora.tensors[i].scale = 1.0f;
    lora.spec.alpha = 0.0f; /* no alpha of its own: the first pair's, a rank of 4 */
    CHECK_OK(omm_peft_export(s_dir, &lora, &base, ""));
    check_alpha(4.0f);
    lora.values[3] = NAN;
    CHECK_ERR(omm_peft_export(s_dir, &lora, &base, ""), OMM_ERR_NUMERIC);
    omm_lora_fini(&lora);
    omm_lora_plan_fini(&plan);
}

#define QKV0 "model.layers.0.self_attn.qkv_proj.lora_"
#define UP0 "model.layers.0.mlp.gate_up_proj.lora_"

/* One dense layer for q, k, v: each has the whole A and its rows of B, and goes out as it came in. */
static void test_stacked(void) {
    static const entry entries[] = {{QKV0 "A.weight", 2, 8},
                                    {QKV0 "B.weight", 16, 2},
                                    {UP0 "A.weight", 2, 8},
                                    {UP0 "B.weight", 24, 2}};
    static const entry apart[] = {{Q0 "A.weight", 2, 8}, {Q0 "B.weight", 8, 2}};
    omm_peft_base base = small_base(), plain = small_base();
    omm_lora lora;
    omm_safetensors file;
    char path[OMM_PATH_MAX];
    const float *a = NULL, *b = NULL;
    base.permuted = false;
    base.shape.fused = true;
    base.shape.layer_count = 1;
    write_config("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,"
                 "\"base_model_name_or_path\":\"Of phi\","
                 "\"target_modules\":[\"qkv_proj\",\"gate_up_proj\"]}");
    write_model(entries, 4);
    CHECK_OK(omm_peft_load(&lora, s_dir)); /* no model: as it is */
    CHECK(lora.shape.stacked && lora.tensor_count == 4);
    omm_lora_fini(&lora);
    CHECK_ERR(import(&lora, &plain), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "layers of their own"));
    CHECK_OK(import(&lora, &base));
    CHECK_EQ(lora.tensor_count, 2 * 5);
    CHECK(lora.spec.rank == 2 && lora.spec.alpha == 6);
    CHECK(strcmp(lora.shape.base.name, "Of phi") == 0);
    omm_lora_find(&a, &b, &lora, 0, OMM_LORA_V); /* rows 12 to 15 */
    CHECK(a[8] == 10 && b[0] == 120 && b[7] == 151);
    omm_lora_find(&a, &b, &lora, 0, OMM_LORA_UP); /* rows 12 to 23, gate above */
    CHECK(a[1] == 1 && b[0] == 120 && b[23] == 231);
    there_and_back(&lora, &base);
    CHECK_ERR(omm_peft_export(s_dir, &lora, &base, "\xff"), OMM_ERR_FORMAT);
    path_in(path, "adapter_model.safetensors");
    CHECK_OK(omm_safetensors_open(&file, path));
    const omm_safetensor *t = omm_safetensors_find(&file, "base_model.model." QKV0 "B.weight");
    CHECK(t && t->dims[0] == 16 && t->dims[1] == 2 && omm_safetensor_get(t, 31) == 151);
    CHECK(omm_safetensors_find(&file, "base_model.model." UP0 "A.weight"));
    omm_safetensors_close(&file);
    lora.shape.fused = false;
    CHECK_ERR(omm_peft_export(s_dir, &lora, &base, ""), OMM_ERR_MISMATCH);
    omm_lora_fini(&lora);
    omm_lora_plan plan; /* ranks 2 and 3 in one tensor: only with rounding */
    CHECK_OK(omm_lora_plan_init(&plan, &base.shape));
    CHECK_OK(omm_lora_plan_add(&plan, "q", (omm_lora_pair){2, 0.5f}));
    CHECK_OK(omm_lora_plan_add(&plan, "k", (omm_lora_pair){3, 1.0f / 3.0f}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    for (size_t i = 0; i < lora.value_count; i++) lora.values[i] = 0.1f + (float)i;
    CHECK_ERR(omm_peft_export(s_dir, &lora, &base, ""), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "only with rounding of B") != NULL);
    omm_lora_plan_fini(&plan);
    omm_lora_fini(&lora);
    write_config("{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":[\"q_proj\"]}");
    write_model(apart, 2);
    CHECK_ERR(import(&lora, &base), OMM_ERR_UNSUPPORTED);
}

static void test_allocations(void) {
    const omm_peft_base base = small_base();
    write_config("{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":[\"q_proj\"],"
                 "\"rank_pattern\":{\"q_proj\":2}}");
    write_model(s_q, 4);
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_lora lora = {0};
        omm_mem_fail_nth(nth);
        err = import(&lora, &base);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        omm_lora_fini(&lora);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora lora;
    CHECK_OK(import(&lora, &base));
    const size_t held = omm_mem_live();
    err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_mem_fail_nth(nth);
        err = omm_peft_export(s_dir, &lora, &base, "name");
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), held);
    }
    omm_lora_fini(&lora);
}

/* ---- joining ----------------------------------------------------------------------------------- */

static void test_join(void) {
    const omm_lora_shape shape = small_base().shape;
    omm_lora one, two, joined;
    bool rounded = true;
    CHECK_OK(omm_lora_init(&one, &(omm_lora_spec){2, 4.0f, 1u << OMM_LORA_Q}, &shape));
    CHECK_OK(omm_lora_init(&two, &(omm_lora_spec){3, 3.0f, 1u << OMM_LORA_Q | 1u << OMM_LORA_V},
                           &shape));
    for (size_t i = 0; i < one.value_count; i++) one.values[i] = (float)i;
    for (size_t i = 0; i < two.value_count; i++) two.values[i] = -(float)i;
    const omm_lora *parts[] = {&one, &two};
    const float weights[] = {1.0f, 4.0f}, odd[] = {1.0f, 0.3f}, huge[] = {1.0f, 1e38f};
    const float bad[][2] = {{0, 1}, {1, 0}, {1, NAN}, {-INFINITY, 1}};
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, weights, 2, false));
    CHECK(!rounded);
    CHECK_EQ(joined.tensor_count, 2 * (2 + 2));
    const omm_lora_tensor *a = &joined.tensors[0], *b = &joined.tensors[1];
    CHECK_EQ(a->rows, 5);
    CHECK(joined.values[a->offset + (size_t)2 * 8] ==
          two.values[0]); /* row 2 of A is the other's first */
    /* 2 B1 and 1 * 4 B2, in products with the scale */
    const omm_lora_tensor *b1 = &one.tensors[1], *b2 = &two.tensors[1];
    for (size_t row = 0; row < 8; row++) {
        const float *got = joined.values + b->offset + row * 5;
        for (size_t k = 0; k < 2; k++)
            CHECK(got[k] * b->scale == one.values[b1->offset + row * 2 + k] * 2.0f);
        for (size_t k = 0; k < 3; k++)
            CHECK(got[2 + k] * b->scale == two.values[b2->offset + row * 3 + k] * 4.0f);
    }
    omm_lora_fini(&joined);
    CHECK_ERR(omm_lora_join(&joined, &rounded, parts, odd, 2, false), OMM_ERR_UNSUPPORTED);
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, odd, 2, true));
    CHECK(rounded);
    omm_lora_fini(&joined);
    CHECK_ERR(omm_lora_join(&joined, &rounded, parts, huge, 2, true), OMM_ERR_NUMERIC);
    omm_lora_fini(&two);
    /* one pair: what rounds is the other's B */
    CHECK_OK(omm_lora_init(&two, &(omm_lora_spec){3, 3.0f, 1u << OMM_LORA_Q}, &shape));
    for (size_t i = 0; i < two.value_count; i++) two.values[i] = -(float)i;
    CHECK_ERR(omm_lora_join(&joined, &rounded, parts, odd, 2, false), OMM_ERR_UNSUPPORTED);
    rounded = false;
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, odd, 2, true));
    CHECK(rounded);
    omm_lora_fini(&joined);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(omm_lora_join(&joined, &rounded, parts, bad[i], 2, true), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), bad[i][0] == 1 ? "adapter 2" : "adapter 1") != NULL);
    }
    /* the scale that the first was trained with, as it is weighted */
    one.tensors[0].own_scale = one.tensors[1].own_scale = 3.0f;
    two.tensors[2].own_scale = two.tensors[3].own_scale = 5.0f;
    const float halves[] = {0.5f, 4.0f};
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, halves, 2, true));
    CHECK(joined.tensors[0].own_scale == 1.5f && joined.tensors[1].own_scale == 1.5f);
    CHECK(joined.tensors[2].own_scale == 0.0f);
    omm_lora_fini(&joined);
    omm_lora_fini(&two);
    /* no pair in common: what rounds is the one alpha of the file */
    CHECK_OK(omm_lora_init(&two, &(omm_lora_spec){2, 2.0f, 1u << OMM_LORA_V}, &shape));
    for (size_t i = 0; i < two.value_count; i++) two.values[i] = 1.0f / (float)(i + 3);
    CHECK_ERR(omm_lora_join(&joined, &rounded, parts, odd, 2, false), OMM_ERR_UNSUPPORTED);
    rounded = false;
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, odd, 2, true));
    CHECK(rounded);
    omm_lora_fini(&joined);
    omm_lora_fini(&two);
    CHECK_OK(omm_lora_init(&two, &(omm_lora_spec){1023, 4.0f, 1u << OMM_LORA_Q}, &shape));
    CHECK_ERR(omm_lora_join(&joined, &rounded, parts, weights, 2, true), OMM_ERR_CONFIG);
    for (unsigned what = 0; what < 4; what++) {
        two.shape = shape;
        if (what == 0) two.shape.layer_count = 1;
        if (what == 1) two.shape.d_in[OMM_LORA_DOWN]++;
        if (what == 2) two.shape.d_out[OMM_LORA_GATE]++;
        if (what == 3) two.shape.architecture[0] = 'x';
        CHECK_ERR(omm_lora_join(&joined, &rounded, parts, weights, 2, true), OMM_ERR_MISMATCH);
    }
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        joined = (omm_lora){0};
        omm_mem_fail_nth(nth);
        err = omm_lora_join(&joined, &rounded, parts, weights, 1, true);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_ERR_NOMEM || (err == OMM_OK && joined.tensor_count == 4));
        omm_lora_fini(&joined);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora_fini(&one);
    omm_lora_fini(&two);
}

/* ---- norms ------------------------------------------------------------------------------------- */

/* A = diag(3, 4), B = rows of a rotation times diag(2, 1): products known by hand. */
static void test_norms(void) {
    const omm_lora_shape shape = {.layer_count = 1, .d_in = {2}, .d_out = {3}};
    omm_lora lora;
    omm_lora_norms n;
    CHECK_OK(omm_lora_init(&lora, &(omm_lora_spec){2, 4.0f, 1}, &shape));
    const float values[10] = {3, 0, 0, 4, 2, 0, 0, 0, 0, -1}; /* A, then B [3][2] */
    memcpy(lora.values, values, sizeof values);
    CHECK_OK(omm_lora_measure(&n, &lora, 0));
    CHECK(fabs(n.a - 5) < 1e-12 && fabs(n.b - sqrt(5.0)) < 1e-12);
    CHECK(fabs(n.frobenius - 2 * sqrt(36.0 + 16.0)) < 1e-12);
    CHECK(fabs(n.spectral - 12) < 1e-9);
    memset(lora.values + 4, 0, 6 * sizeof(float)); /* untrained: B is zero */
    CHECK_OK(omm_lora_measure(&n, &lora, 0));
    CHECK(n.b == 0 && n.frobenius == 0 && n.spectral == 0);
    omm_lora_fini(&lora);
    CHECK_OK(omm_lora_init(&lora, &(omm_lora_spec){2, -4.0f, 1}, &shape));
    /* Rows of A that cancel out where both count alike, as a search may begin; and a scale below zero. */
    const float against[10] = {1, 0, -1, 0, 1, 0, 0, 1, 0, 0};
    memcpy(lora.values, against, sizeof against);
    CHECK_OK(omm_lora_measure(&n, &lora, 0));
    CHECK(fabs(n.frobenius - 2 * sqrt(2.0)) < 1e-12 && fabs(n.spectral - 2 * sqrt(2.0)) < 1e-9);
    omm_lora_fini(&lora);
}

/* ---- reference adapters ------------------------------------------------------------------------ */

static void test_reference(const char *name) {
    char file[64], path[OMM_PATH_MAX];
    omm_gguf gguf;
    omm_peft_base base;
    omm_lora lora;
    snprintf(file, sizeof file, "reference/models/%s.gguf", name);
    testdata_path(path, file);
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_peft_base_read(&base, &gguf));
    CHECK_EQ(base.permuted, strncmp(name, "llama", 5) == 0);
    omm_gguf_close(&gguf);
    snprintf(file, sizeof file, "reference/lora/%s.gguf", name);
    testdata_path(path, file);
    CHECK_OK(omm_lora_load_file(&lora, path, &base.shape));
    there_and_back(&lora, &base);
    omm_lora_fini(&lora);
}

/* q, k, v in one layer over there, and gate, up. */
static void test_reference_phi3(void) {
    omm_gguf gguf;
    omm_peft_base base;
    omm_lora lora;
    char path[OMM_PATH_MAX];
    testdata_path(path, "reference/models/phi3-F32.gguf");
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_peft_base_read(&base, &gguf));
    CHECK(base.shape.fused && !base.permuted);
    const uint32_t *out = base.shape.d_out;
    const omm_gguf_tensor *qkv = omm_gguf_find_tensor(&gguf, "blk.0.attn_qkv.weight");
    CHECK_EQ(out[OMM_LORA_Q] + out[OMM_LORA_K] + out[OMM_LORA_V], qkv->dims[1]);
    omm_gguf_close(&gguf);
    CHECK_OK(omm_lora_init(&lora, &(omm_lora_spec){4, 6.0f, OMM_LORA_ALL_TARGETS}, &base.shape));
    for (size_t i = 0; i < lora.value_count; i++)
        lora.values[i] = (float)((int)(i * 7919 % 2001) - 1000) * 1e-3f + 1e-5f;
    there_and_back(&lora, &base);
    omm_lora_fini(&lora);
}

static void test_reference_models(void) {
    test_reference_phi3();
    static const char *const names[] = {"llama-F32", "llama-Q4_K", "qwen2-F32", "qwen3-F32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) test_reference(names[i]);
}

/* Rows of q and k are in pairs where GGUF keeps them so. */
static void test_architectures(void) {
    static const struct {
        const char *name;
        bool permuted, fused;
    } cases[] = {
        {"llama", true, false},    {"qwen2", false, false},    {"gemma", false, false},
        {"gemma3", false, false},  {"smollm3", true, false},   {"granite", true, false},
        {"olmo2", false, false},   {"phi3", false, true},      {"mistral3", true, false},
        {"exaone4", false, false}, {"ernie4_5", false, false}, {"hunyuan-dense", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny_arch arch = {.name = cases[i].name};
        omm_buf file;
        omm_gguf gguf;
        omm_peft_base base = {0};
        omm_buf_init(&file, 1 << 22);
        tiny_arch_write(&file, &arch);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_OK(omm_peft_base_read(&base, &gguf));
        CHECK_EQ(base.permuted, cases[i].permuted);
        CHECK_EQ(base.shape.fused, cases[i].fused);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
}

/* A base whose q and k do not divide into its heads: the order of rows would be nonsense. */
static void test_heads(void) {
    static const struct {
        const char *key;
        uint32_t value;
        bool fits;
    } cases[] = {
        {"llama.attention.head_count", TINY_HEADS, true},
        {"llama.attention.head_count", 0, false},
        {"llama.attention.head_count", 5, false},
        {"llama.attention.head_count", TINY_WIDTH, false},     /* of odd width */
        {"llama.attention.head_count", 2 * TINY_HEADS, false}, /* not as wide as those of k */
        {"llama.attention.head_count_kv", 0, false},
        {"llama.attention.head_count_kv", 7, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_buf file;
        omm_gguf gguf;
        omm_peft_base base = {0};
        omm_buf_init(&file, 1 << 22);
        tiny_model_write(&file, &(tiny_options){.key = cases[i].key, .value = cases[i].value});
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_EQ(omm_peft_base_read(&base, &gguf), cases[i].fits ? OMM_OK : OMM_ERR_MISMATCH);
        CHECK_EQ(base.heads != 0, cases[i].fits);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
}

/* A model that an adapter cannot be converted for; what was read of another stays. */
static void test_base_refusals(void) {
    static const struct {
        tiny_options how;
        omm_err err;
        const char *named;
    } cases[] = {
        {{.architecture = "mamba"}, OMM_ERR_UNSUPPORTED, "'mamba'"},
        {{.skip = "general.architecture"}, OMM_ERR_NOT_FOUND, "general.architecture"},
        {{.skip = "llama.block_count"}, OMM_ERR_NOT_FOUND, "block_count"},
        {{.key = "llama.block_count", .value = 0}, OMM_ERR_TOO_BIG, "0 layers"},
        {{.key = "llama.block_count", .value = OMM_LORA_LAYERS_MAX},
         OMM_ERR_NOT_FOUND,
         "blk.2.attn_q"},
        {{.key = "llama.block_count", .value = OMM_LORA_LAYERS_MAX + 1}, OMM_ERR_TOO_BIG, "1025"},
        {{.skip = "llama.attention.head_count"}, OMM_ERR_NOT_FOUND, "head_count"},
        {{.skip = "llama.attention.head_count_kv"}, OMM_ERR_MISMATCH, "4 and 4 heads"},
        {{.skip = "blk.1.ffn_down.weight"}, OMM_ERR_NOT_FOUND, "blk.1.ffn_down"},
        {{.narrow = "blk.1.ffn_up.weight"}, OMM_ERR_MISMATCH, "blk.1.ffn_up"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_buf file;
        omm_gguf gguf;
        omm_peft_base base = {.heads = 77};
        omm_buf_init(&file, 1 << 22);
        tiny_model_write(&file, &cases[i].how);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_ERR(omm_peft_base_read(&base, &gguf), cases[i].err);
        CHECK(strstr(omm_err_sentence(), cases[i].named) != NULL);
        CHECK_EQ(base.heads, 77);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
}

/* Keys alone, of an architecture that stands for itself: each is refused for what it is. */
static void test_base_keys(void) {
    for (unsigned what = 0; what < 4; what++) {
        omm_gguf_writer w;
        omm_buf file;
        omm_gguf gguf;
        omm_peft_base base;
        omm_gguf_writer_init(&w);
        omm_buf_init(&file, 1 << 16);
        omm_gguf_put_text(&w, "general.architecture", "qwen2");
        omm_gguf_put_u32(&w, "qwen2.block_count", 1);
        omm_gguf_put_u32(&w, "qwen2.attention.head_count", 2);
        if (what == 0) omm_gguf_put_text(&w, "general.type", "adapter");
        if (what == 1) omm_gguf_put_text(&w, "qwen2.attention.head_count_kv", "2");
        if (what == 2) omm_gguf_put_u32(&w, "general.type", 1);
        CHECK_OK(omm_gguf_writer_finish(&file, &w));
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        static const omm_err errs[] = {OMM_ERR_UNSUPPORTED, OMM_ERR_FORMAT, OMM_ERR_FORMAT,
                                       OMM_ERR_NOT_FOUND};
        static const char *const named[] = {"an adapter", "head_count_kv", "general.type",
                                            "blk.0.attn_q"};
        CHECK_ERR(omm_peft_base_read(&base, &gguf), errs[what]);
        CHECK(strstr(omm_err_sentence(), named[what]) != NULL);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
        omm_gguf_writer_fini(&w);
    }
}

int main(void) {
    CHECK(mkdtemp(s_dir));
    test_rows();
    test_patterns();
    test_config_refusals();
    test_pattern_limits();
    test_list_limits();
    test_defaults();
    test_tensor_refusals();
    test_not_finite();
    test_mixed();
    test_stacked();
    test_heads();
    test_base_refusals();
    test_base_keys();
    test_architectures();
    test_allocations();
    test_join();
    test_norms();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    test_reference_models();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}
