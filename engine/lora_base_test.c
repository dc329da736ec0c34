/* lora_base_test.c - one fingerprint for all quantised files of a model, another for any other model; what an adapter
 * says of its base against the model at hand. */
#include "omm/bytes.h"
#include "omm/file.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/quantise.h"

#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLS = 256, ROWS = 4, TOKENS = 3, LONG = 2500 };

static char s_dir[] = "/tmp/omm-lora-base-XXXXXX";

/* What a model may differ by from the first one. */
typedef struct variant {
    float matrix, norm, bias, rope; /* added to the first value of each */
    uint32_t layers, width, feed_forward, heads, kv_heads, context;
    const char *architecture, *token, *norm_name, *name;
    bool half;   /* the norm is in F16 */
    bool turned; /* the norm comes first */
    bool block;  /* a vector more, quantised */
    float tail;  /* the last value of a long vector more; 0: none */
} variant;

static const variant s_first = {.layers = 1,
                                .width = COLS,
                                .feed_forward = 512,
                                .heads = 4,
                                .kv_heads = 2,
                                .context = 64,
                                .architecture = "llama",
                                .token = "c",
                                .norm_name = "blk.0.attn_norm.weight",
                                .name = "First"};

static void fill(float *v, size_t n, float change) {
    for (size_t i = 0; i < n; i++) v[i] = (float)((i * 37) % 61) / 64 - 0.5f;
    v[0] += change;
}

static void put(omm_gguf_writer *w, const char *name, const float *v, uint64_t cols,
                uint64_t rows) {
    const uint64_t dims[2] = {cols, rows};
    omm_gguf_put_tensor(w, name, OMM_GGML_F32, rows > 1 ? 2 : 1, dims,
                        omm_bytes_of(v, (size_t)(cols * rows) * sizeof *v));
}

static void put_keys(omm_gguf_writer *w, const variant *v) {
    const omm_bytes tokens[TOKENS] = {omm_bytes_str("a"), omm_bytes_str("b"),
                                      omm_bytes_str(v->token)};
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"block_count", v->layers},
                   {"embedding_length", v->width},
                   {"feed_forward_length", v->feed_forward},
                   {"attention.head_count", v->heads},
                   {"attention.head_count_kv", v->kv_heads},
                   {"context_length", v->context}};
    omm_gguf_put_text(w, "general.architecture", v->architecture);
    if (v->name) omm_gguf_put_text(w, "general.name", v->name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", v->architecture, numbers[i].key);
        if (numbers[i].value) omm_gguf_put_u32(w, key, numbers[i].value);
    }
    omm_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, TOKENS);
}

static void write_model(omm_buf *out, const variant *v) {
    static float matrix[COLS * ROWS], embed[COLS * TOKENS], norm[COLS], bias[ROWS], rope[8];
    static uint8_t halves[2 * COLS];
    const uint64_t dims[1] = {COLS};
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_buf_init(out, 1 << 20);
    fill(matrix, sizeof matrix / sizeof *matrix, v->matrix);
    fill(embed, sizeof embed / sizeof *embed, 0);
    fill(norm, COLS, v->norm);
    fill(bias, ROWS, v->bias);
    fill(rope, 8, v->rope);
    for (size_t i = 0; i < COLS; i++) omm_put_u16(halves + 2 * i, omm_f32_to_f16(norm[i]));
    put_keys(&w, v);
    if (v->turned) put(&w, v->norm_name, norm, COLS, 1);
    put(&w, "token_embd.weight", embed, COLS, TOKENS);
    put(&w, "rope_freqs.weight", rope, 8, 1);
    put(&w, "blk.0.attn_q.weight", matrix, COLS, ROWS);
    put(&w, "blk.0.attn_q.bias", bias, ROWS, 1);
    if (v->half)
        omm_gguf_put_tensor(&w, v->norm_name, OMM_GGML_F16, 1, dims,
                            omm_bytes_of(halves, sizeof halves));
    else if (!v->turned)
        put(&w, v->norm_name, norm, COLS, 1);
    static float more[LONG];
    more[LONG - 1] = v->tail;
    if (v->tail != 0.0f) put(&w, "blk.0.long.weight", more, LONG, 1);
    if (v->block)
        omm_gguf_put_tensor(&w, "blk.0.more", OMM_GGML_Q8_0, 1, (const uint64_t[]){32},
                            omm_bytes_of(halves, 34));
    CHECK_OK(omm_gguf_writer_finish(out, &w));
    omm_gguf_writer_fini(&w);
}

static omm_lora_base base_of(const variant *v) {
    omm_buf file;
    omm_gguf g;
    omm_lora_base base;
    write_model(&file, v);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    omm_lora_base_read(&base, &g);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    return base;
}

/* ---- fingerprints ------------------------------------------------------------------------------- */

static bool same(const omm_lora_base *a, const omm_lora_base *b) {
    return omm_digest_equal(&a->fingerprint, &b->fingerprint);
}

/* What must be another model, and what must not. */
static void test_what_counts(void) {
    enum { OTHERS = 12, ALIKE = 8 };
    variant others[OTHERS], alike[ALIKE];
    const omm_lora_base first = base_of(&s_first);
    for (size_t i = 0; i < OTHERS; i++) others[i] = s_first;
    for (size_t i = 0; i < ALIKE; i++) alike[i] = s_first;
    others[0].norm = 1.0f / 1024;
    others[1].bias = 1.0f / 1024;
    others[2].layers = 2;
    others[3].width = 128;
    others[4].feed_forward = 256;
    others[5].heads = 8;
    others[6].kv_heads = 4;
    others[7].architecture = "qwen2";
    others[8].token = "d";
    others[9].norm_name = "blk.0.ffn_norm.weight";
    others[10].tail = 1;
    others[11].tail = 2;
    alike[0].matrix = 1;
    alike[1].rope = 1;
    alike[2].context = 128;
    alike[3].name = "Other";
    alike[4].name = NULL;
    alike[5].half = true; /* all its values are halves */
    alike[6].block = true;
    alike[7].turned = true;
    CHECK(strcmp(first.name, "First") == 0 && !first.any && omm_lora_base_is_known(&first));
    for (size_t i = 0; i < OTHERS; i++) {
        const omm_lora_base other = base_of(&others[i]);
        CHECK(!same(&first, &other));
        for (size_t k = 0; k < i; k++) {
            const omm_lora_base before = base_of(&others[k]);
            CHECK(!same(&before, &other));
        }
    }
    for (size_t i = 0; i < ALIKE; i++) {
        const omm_lora_base other = base_of(&alike[i]);
        CHECK(same(&first, &other));
    }
}

/* A file without it has as many as heads. */
static void test_kv_heads_left_out(void) {
    variant said = s_first, unsaid = s_first;
    said.kv_heads = said.heads;
    unsaid.kv_heads = 0;
    const omm_lora_base a = base_of(&said), b = base_of(&unsaid);
    CHECK(same(&a, &b));
}

/* In every type and mix that we write, and in several parts or one. */
static void test_quantised(void) {
    char types[512], in[OMM_PATH_MAX], out[OMM_PATH_MAX], *rest = types;
    const omm_lora_base first = base_of(&s_first);
    omm_buf file;
    omm_gguf g;
    unsigned count = 0;
    write_model(&file, &s_first);
    CHECK_OK(omm_path_join(in, s_dir, "in.gguf"));
    CHECK_OK(omm_path_join(out, s_dir, "out.gguf"));
    CHECK_OK(omm_file_write_fast(in, omm_buf_view(&file), 0644));
    CHECK_OK(omm_gguf_open(&g, in));
    omm_quantise_types(types, sizeof types);
    for (char *type = strtok_r(types, ", ", &rest); type; type = strtok_r(NULL, ", ", &rest)) {
        const omm_quantise_options o = {.type = type};
        omm_quantise_report report;
        omm_lora_base base;
        omm_gguf made;
        CHECK_OK(omm_quantise_file(out, &g, &o, NULL, &report, NULL, NULL));
        omm_quantise_report_fini(&report);
        CHECK_OK(omm_gguf_open(&made, out));
        omm_lora_base_read(&base, &made);
        CHECK(same(&first, &base) && strcmp(base.name, "First") == 0);
        omm_gguf_close(&made);
        count++;
    }
    CHECK(count >= 24);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
}

/* Adapters keep it for years: what it was in November 2026, of the shipped model. */
static void test_stays(void) {
    char path[OMM_PATH_MAX], hex[OMM_DIGEST_HEX_SIZE];
    const char *root = getenv("OMM_SOURCE_DIR");
    omm_gguf g;
    omm_lora_base base;
    CHECK(root != NULL);
    CHECK_OK(omm_path_join(path, root, "scenarios/base/openmeshmind-tiny-F16.gguf"));
    CHECK_OK(omm_gguf_open(&g, path));
    omm_lora_base_read(&base, &g);
    omm_gguf_close(&g);
    omm_digest_hex(hex, &base.fingerprint);
    CHECK(strcmp(hex, "18943b305ead83ca32cd8f4b66108687cd65453f9dc4d2962805d79827a19d6f") == 0);
    CHECK(strcmp(base.name, "OpenMeshMind Tiny Base") == 0);
}

static void check_name(const char *text, size_t size, const char *want) {
    omm_lora_base base = {0};
    omm_lora_base_set_name(&base, omm_bytes_of(text, size));
    if (strcmp(base.name, want) != 0) fprintf(stderr, "'%s', not '%s'\n", base.name, want);
    CHECK(strcmp(base.name, want) == 0);
}

/* A stranger's text, on its way to a terminal and into run.json. */
static void test_names(void) {
    char text[OMM_LORA_BASE_NAME_MAX + 8], want[OMM_LORA_BASE_NAME_MAX];
    check_name("", 0, "");
    check_name("\xc5\xa0imulis 2", 10, "\xc5\xa0imulis 2");
    check_name("a\x1b[31mb\x7f\n", 8, "a?[31mb?");
    check_name("a\0b\xff", 4, "a?b?");
    check_name("\xc2\x9b"
               "2J",
               4, "?2J");
    memset(text, 'x', sizeof text);
    text[OMM_LORA_BASE_NAME_MAX - 2] = (char)0xc5; /* a character whose end would not fit */
    text[OMM_LORA_BASE_NAME_MAX - 1] = (char)0xa0;
    memset(want, 'x', sizeof want);
    want[OMM_LORA_BASE_NAME_MAX - 2] = 0;
    check_name(text, sizeof text, want);
}

/* ---- adapters ----------------------------------------------------------------------------------- */

static omm_lora_shape shape_of(const omm_lora_base *base) {
    omm_lora_shape s = {.layer_count = 1, .architecture = "llama", .base = *base};
    s.d_in[OMM_LORA_Q] = s.d_out[OMM_LORA_Q] = 8;
    return s;
}

static void save(omm_buf *out, const omm_lora_base *base) {
    const omm_lora_spec spec = {2, 4, 1u << OMM_LORA_Q};
    const omm_lora_shape shape = shape_of(base);
    const omm_seed seed = omm_seed_from_u64(1);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    omm_lora lora;
    omm_buf_init(out, 1 << 16);
    CHECK_OK(omm_lora_init_random(&lora, &spec, &shape, &lane));
    CHECK_OK(omm_lora_save(out, &lora));
    omm_lora_fini(&lora);
}

static omm_err load(omm_lora_base *got, const omm_buf *file, const omm_lora_base *base) {
    const omm_lora_shape shape = shape_of(base);
    omm_lora lora;
    OMM_TRY(omm_lora_load(&lora, omm_buf_view(file), &shape));
    *got = lora.shape.base;
    omm_lora_fini(&lora);
    return OMM_OK;
}

static bool says(const char *part) {
    return strstr(omm_err_sentence(), part) != NULL;
}

static void test_meeting(void) {
    variant other = s_first;
    other.norm = 1;
    other.name = "Second";
    const omm_lora_base a = base_of(&s_first), b = base_of(&other), none = {0};
    omm_lora_base got, any = b;
    omm_buf of_a, of_none;
    any.any = true;
    save(&of_a, &a);
    save(&of_none, &none);
    CHECK_OK(load(&got, &of_a, &a));
    CHECK(same(&got, &a) && strcmp(got.name, "First") == 0);
    CHECK_ERR(load(&got, &of_a, &b), OMM_ERR_MISMATCH);
    CHECK(says("'First' (fingerprint ") && says("not on 'Second'") && says("--any-base"));
    CHECK_OK(load(&got, &of_a, &any));
    CHECK(same(&got, &b)); /* saved again it is of the model at hand */
    CHECK_OK(load(&got, &of_a, &none));
    CHECK(same(&got, &a) && strcmp(got.name, "First") == 0);
    CHECK_OK(load(&got, &of_none, &b));
    CHECK(same(&got, &b));
    CHECK_OK(load(&got, &of_none, &none));
    CHECK(!omm_lora_base_is_known(&got) && !got.name[0]);
    /* names alone: the one that was there first stays, until a fingerprint comes */
    omm_lora_base first = {.name = "Name"}, second = {.name = "Another"};
    omm_buf of_first;
    save(&of_first, &first);
    CHECK_OK(load(&got, &of_first, &none));
    CHECK(!omm_lora_base_is_known(&got) && strcmp(got.name, "Name") == 0);
    CHECK_OK(load(&got, &of_first, &second));
    CHECK(!omm_lora_base_is_known(&got) && strcmp(got.name, "Another") == 0);
    CHECK_OK(load(&got, &of_a, &second));
    CHECK(same(&got, &a) && strcmp(got.name, "First") == 0);
    omm_buf_fini(&of_first);
    omm_buf_fini(&of_a);
    omm_buf_fini(&of_none);
}

/* The keys themselves, as others see them. */
static void test_keys(void) {
    char text[OMM_LORA_BASE_NAME_MAX], hex[OMM_DIGEST_HEX_SIZE];
    const omm_lora_base a = base_of(&s_first), none = {0};
    uint32_t count = 0;
    omm_buf file;
    omm_gguf g;
    save(&file, &a);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_OK(omm_gguf_get_u32(&count, &g, "general.base_model.count"));
    CHECK_EQ(count, 1);
    CHECK_OK(omm_gguf_get_text(text, sizeof text, &g, "general.base_model.0.name"));
    CHECK(strcmp(text, "First") == 0);
    CHECK_OK(omm_gguf_get_text(text, sizeof text, &g, "openmeshmind.base.fingerprint"));
    omm_digest_hex(hex, &a.fingerprint);
    CHECK(strcmp(text, hex) == 0);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    save(&file, &none);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK(!omm_gguf_find(&g, "general.base_model.count"));
    CHECK(!omm_gguf_find(&g, "openmeshmind.base.fingerprint"));
    omm_gguf_close(&g);
    omm_buf_fini(&file);
}

static void check_claim(const char *hex, uint32_t number, omm_err want) {
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_lora_base base;
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, 1 << 16);
    omm_gguf_put_text(&w, "general.base_model.0.name", "Theirs\n");
    if (hex) omm_gguf_put_text(&w, "openmeshmind.base.fingerprint", hex);
    if (!hex && number) omm_gguf_put_u32(&w, "openmeshmind.base.fingerprint", number);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_lora_base_claim(&base, &g), want);
    if (want == OMM_OK)
        CHECK(strcmp(base.name, "Theirs?") == 0);
    else
        CHECK(says("64 hex digits"));
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_gguf_writer_fini(&w);
}

static void test_bad_claims(void) {
    char hex[80];
    memset(hex, 'a', sizeof hex);
    hex[64] = 0;
    check_claim(NULL, 0, OMM_OK); /* as other programs name it */
    check_claim(hex, 0, OMM_OK);
    hex[5] = 'g';
    check_claim(hex, 0, OMM_ERR_FORMAT);
    hex[5] = 'a';
    hex[63] = 0;
    check_claim(hex, 0, OMM_ERR_FORMAT);
    hex[63] = hex[64] = 'a';
    hex[65] = 0;
    check_claim(hex, 0, OMM_ERR_FORMAT);
    check_claim("", 0, OMM_ERR_FORMAT);
    check_claim(NULL, 7, OMM_ERR_FORMAT);
}

static omm_lora_base joined(const omm_lora_base *a, const omm_lora_base *b) {
    const omm_lora_base *bases[2] = {a, b};
    const float weights[2] = {1, 1};
    const omm_lora *parts[2];
    omm_lora loras[2], made;
    bool rounded = false;
    for (size_t i = 0; i < 2; i++) {
        const omm_lora_spec spec = {2, 4, 1u << OMM_LORA_Q};
        const omm_lora_shape shape = shape_of(bases[i]);
        CHECK_OK(omm_lora_init(&loras[i], &spec, &shape));
        parts[i] = &loras[i];
    }
    CHECK_OK(omm_lora_join(&made, &rounded, parts, weights, 2, false));
    const omm_lora_base base = made.shape.base;
    omm_lora_fini(&made);
    for (size_t i = 0; i < 2; i++) omm_lora_fini(&loras[i]);
    return base;
}

static void test_joined(void) {
    variant other = s_first;
    other.norm = 1;
    const omm_lora_base a = base_of(&s_first), b = base_of(&other), none = {0};
    omm_lora_base got = joined(&a, &a);
    CHECK(same(&got, &a));
    got = joined(&none, &a);
    CHECK(same(&got, &a) && strcmp(got.name, "First") == 0);
    got = joined(&a, &b);
    CHECK(!omm_lora_base_is_known(&got) && !got.name[0]);
}

/* Files one after the other, as a join without a model reads them. */
static void test_claimed_shape(void) {
    variant other = s_first;
    other.norm = 1;
    const omm_lora_base bases[2] = {base_of(&s_first), base_of(&other)};
    for (int any = 0; any < 2; any++) {
        omm_lora_shape shape = {.base.any = any};
        omm_err err = OMM_OK;
        for (size_t i = 0; i < 2; i++) {
            omm_buf file;
            omm_gguf g;
            save(&file, &bases[i]);
            CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
            err = omm_lora_claim_shape(&shape, &g);
            omm_gguf_close(&g);
            omm_buf_fini(&file);
            if (i == 0) CHECK_OK(err);
        }
        CHECK_EQ(err, any ? OMM_OK : OMM_ERR_MISMATCH);
        CHECK_EQ(omm_lora_base_is_known(&shape.base), !any);
    }
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    test_what_counts();
    test_kv_heads_left_out();
    test_quantised();
    test_stays();
    test_names();
    test_meeting();
    test_keys();
    test_bad_claims();
    test_joined();
    test_claimed_shape();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}
