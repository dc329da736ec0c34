/* quantise_test.c - models in other types: which tensor gets which, equal bytes for any number of
 * threads, errors as reported, what is refused, memory that runs out. */
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/quant.h"
#include "omm/quantise.h"
#include "omm/rng.h"
#include "omm/rows.h"

#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 16, COLS = 256, ROWS = 2, VALUES = 4096 };

static char s_dir[] = "/tmp/omm-quantise-XXXXXX";
static float s_values[VALUES];

static const char *at(const char *name) {
    static char path[4][OMM_PATH_MAX];
    static unsigned next;
    char *p = path[next++ % 4];
    CHECK_OK(omm_path_join(p, s_dir, name));
    return p;
}

static void put(omm_gguf_writer *w, const char *name, uint64_t cols, uint64_t rows) {
    const uint64_t dims[2] = {cols, rows};
    CHECK(cols * rows <= VALUES);
    omm_gguf_put_tensor(w, name, OMM_GGML_F32, rows > 1 ? 2 : 1, dims,
                        omm_bytes_of(s_values, (size_t)(cols * rows) * 4));
}

static void put_layers(omm_gguf_writer *w) {
    static const char *const names[] = {"attn_v", "attn_output", "attn_qkv", "ffn_down", "ffn_up"};
    char name[64];
    for (unsigned l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, names[i]);
            put(w, name, COLS, ROWS);
        }
        snprintf(name, sizeof name, "blk.%u.attn_norm.weight", l);
        put(w, name, COLS, 1);
    }
}

static void write_model(const char *path, bool untied, const char *kind) {
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 1 << 24);
    omm_gguf_put_u32(&w, "general.file_type", 0);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_alignment(&w, 8192);
    if (kind) omm_gguf_put_text(&w, "general.type", kind);
    omm_gguf_put_u32(&w, "split.count", 1);
    put(&w, "token_embd.weight", COLS, 5);
    put_layers(&w);
    put(&w, "enc.0.ffn_down.weight", COLS, ROWS); /* of none of these layers */
    put(&w, "blk.0.odd.weight", 96, ROWS);
    put(&w, "blk.0.odder.weight", 40, ROWS);
    put(&w, "blk.0.wide_norm.weight", COLS, ROWS);
    put(&w, "blk.0.ffn_gate_inp.weight", COLS, ROWS);
    omm_gguf_put_tensor(&w, "blk.0.thin.weight", OMM_GGML_F32, 2, (const uint64_t[]){COLS, 1},
                        omm_bytes_of(s_values, COLS * sizeof *s_values));
    put(&w, "rope_freqs.weight", 24, 1);
    if (untied) put(&w, "output.weight", COLS, 5);
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&out), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

static omm_err quantise(const char *out, const char *in, const omm_quantise_options *o,
                        unsigned threads, omm_quantise_report *report) {
    omm_gguf g;
    omm_pool *pool = NULL;
    CHECK_OK(omm_gguf_open(&g, in));
    CHECK_OK(omm_pool_open(&pool, threads));
    omm_err err = omm_quantise_file(out, &g, o, pool, report, NULL, NULL);
    for (size_t i = 0; err == OMM_OK && i < report->count; i++) report->tensors[i].name = NULL;
    omm_pool_close(pool);
    omm_gguf_close(&g);
    return err;
}

static void expect(const omm_gguf *g, const char *name, omm_ggml_type want) {
    const omm_gguf_tensor *t = omm_gguf_find_tensor(g, name);
    CHECK(t != NULL);
    if (t->type != want)
        fprintf(stderr, "%s: %s, expected %s\n", name, omm_ggml_find(t->type)->name,
                omm_ggml_find(want)->name);
    CHECK_EQ(t->type, want);
}

static void open_quantised(omm_gguf *g, const omm_quantise_options *o, bool untied) {
    omm_quantise_report report;
    write_model(at("in.gguf"), untied, NULL);
    CHECK_OK(quantise(at("out.gguf"), at("in.gguf"), o, 2, &report));
    omm_quantise_report_fini(&report);
    CHECK_OK(omm_gguf_open(g, at("out.gguf")));
}

/* One digit per layer, or one for all: 6 for Q6_K and so on. */
static void expect_layers(const omm_gguf *g, const char *part, const char *digits) {
    const size_t count = strlen(digits);
    CHECK(count == 1 || count == LAYERS);
    for (unsigned l = 0; l < LAYERS; l++) {
        char name[64], type[8];
        snprintf(name, sizeof name, "blk.%u.%s.weight", l, part);
        snprintf(type, sizeof type, "Q%c_K", digits[count == 1 ? 0 : l]);
        expect(g, name, omm_ggml_find_name(type)->type);
    }
}

/* A digit for each of 16 layers, as in llama.cpp, of which the marked ones are 0, 1, 4, 7, 10, 13, 14, 15.
 * attn_qkv is what phi3 has in place of attn_v. */
typedef struct mix_case {
    const char *name;
    uint32_t file_type;
    omm_ggml_type embd;
    const char *value, *down, *output, *fused, *others;
} mix_case;

static const mix_case s_mixes[] = {
    {"q4_k_m", 15, OMM_GGML_Q4_K, "6644644644644666", "6644644644644666", "4", "5", "4"},
    {"Q5_K_M", 17, OMM_GGML_Q5_K, "6655655655655666", "6655655655655666", "5", "6", "5"},
    {"Q3_K_M", 12, OMM_GGML_Q3_K, "5544444444444444", "5444444444444444", "4", "4", "3"},
    {"Q3_K_L", 13, OMM_GGML_Q3_K, "5", "5", "5", "4", "3"},
    {"Q4_K_S", 14, OMM_GGML_Q4_K, "5555444444444444", "5544444444444444", "4", "4", "4"},
    {"Q5_K_S", 16, OMM_GGML_Q5_K, "5", "5", "5", "5", "5"},
    {"Q3_K_S", 11, OMM_GGML_Q3_K, "3", "3", "3", "3", "3"},
    /* Plain types: none of its rules, though llama-quantize takes these names for the mixes in _M. */
    {"Q3_K", 11, OMM_GGML_Q3_K, "3", "3", "3", "3", "3"},
    {"Q4_K", 14, OMM_GGML_Q4_K, "4", "4", "4", "4", "4"},
    {"Q5_K", 16, OMM_GGML_Q5_K, "5", "5", "5", "5", "5"},
};

static void mixes(void) {
    for (size_t i = 0; i < sizeof s_mixes / sizeof *s_mixes; i++) {
        const mix_case *m = &s_mixes[i];
        omm_gguf g;
        uint32_t file_type = 0;
        open_quantised(&g, &(omm_quantise_options){.type = m->name}, true);
        expect_layers(&g, "attn_v", m->value);
        expect_layers(&g, "ffn_down", m->down);
        expect_layers(&g, "attn_output", m->output);
        expect_layers(&g, "attn_qkv", m->fused);
        expect_layers(&g, "ffn_up", m->others);
        expect(&g, "output.weight", OMM_GGML_Q6_K);
        expect(&g, "token_embd.weight", m->embd);
        CHECK_OK(omm_gguf_get_u32(&file_type, &g, "general.file_type"));
        CHECK_EQ(file_type, m->file_type);
        omm_gguf_close(&g);
    }
}

static void mix_of_the_rest(void) {
    omm_gguf g;
    uint32_t version = 0;
    open_quantised(&g, &(omm_quantise_options){.type = "Q4_K_M"}, true);
    expect(&g, "blk.3.attn_norm.weight", OMM_GGML_F32);
    expect(&g, "rope_freqs.weight", OMM_GGML_F32);
    expect(&g, "blk.0.wide_norm.weight", OMM_GGML_F32);
    expect(&g, "blk.0.ffn_gate_inp.weight", OMM_GGML_F32);
    expect(&g, "blk.0.thin.weight", OMM_GGML_F32);
    expect(&g, "enc.0.ffn_down.weight", OMM_GGML_Q4_K);
    expect(&g, "blk.0.odd.weight", OMM_GGML_Q8_0);
    expect(&g, "blk.0.odder.weight", OMM_GGML_F16);
    CHECK_OK(omm_gguf_get_u32(&version, &g, "general.quantization_version"));
    CHECK_EQ(version, 2);
    CHECK_EQ(g.alignment, 8192);
    CHECK(omm_gguf_find(&g, "general.architecture") != NULL);
    CHECK(omm_gguf_find(&g, "split.count") == NULL);
    omm_gguf_close(&g);
    open_quantised(&g, &(omm_quantise_options){.type = "Q3_K_M"}, false);
    expect(&g, "token_embd.weight", OMM_GGML_Q6_K);
    omm_gguf_close(&g);
}

/* A model of so many layers in Q4_K_M, of which 0 is a marked one and 13 is not; or in another mix. */
static void value_of(omm_gguf *g, const char *type, unsigned layers, uint64_t value_rows) {
    omm_gguf_writer w;
    omm_buf out;
    char name[64];
    omm_quantise_report report;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 1 << 24);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    for (unsigned l = 0; l < layers; l++) {
        snprintf(name, sizeof name, "blk.%u.attn_q.weight", l);
        put(&w, name, COLS, 4);
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", l);
        put(&w, name, COLS, value_rows);
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", l);
        put(&w, name, COLS, ROWS);
    }
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_file_write_fast(at("deep.gguf"), omm_buf_view(&out), 0644));
    const omm_quantise_options o = {.type = type};
    CHECK_OK(quantise(at("out.gguf"), at("deep.gguf"), &o, 2, &report));
    omm_quantise_report_fini(&report);
    CHECK_OK(omm_gguf_open(g, at("out.gguf")));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

/* Llama 2 and 3 70B, Qwen 72B: values are narrow there, and may have more bits. */
static void mix_of_70b(void) {
    static const struct {
        const char *type;
        unsigned layers;
        uint64_t rows;
        omm_ggml_type first, value, down;
    } cases[] = {{"Q4_K_M", 80, 2, OMM_GGML_Q6_K, OMM_GGML_Q5_K, OMM_GGML_Q4_K},
                 {"Q4_K_M", 80, 4, OMM_GGML_Q6_K, OMM_GGML_Q4_K, OMM_GGML_Q4_K},
                 {"Q4_K_M", 81, 2, OMM_GGML_Q6_K, OMM_GGML_Q4_K, OMM_GGML_Q4_K},
                 {"Q3_K_S", 80, 2, OMM_GGML_Q5_K, OMM_GGML_Q5_K, OMM_GGML_Q3_K},
                 {"Q3_K", 80, 2, OMM_GGML_Q3_K, OMM_GGML_Q3_K, OMM_GGML_Q3_K}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_gguf g;
        value_of(&g, cases[i].type, cases[i].layers, cases[i].rows);
        expect(&g, "blk.0.attn_v.weight", cases[i].first);
        expect(&g, "blk.13.attn_v.weight", cases[i].value);
        expect(&g, "blk.13.ffn_down.weight", cases[i].down);
        omm_gguf_close(&g);
    }
}

static void plain(void) {
    omm_gguf g;
    open_quantised(&g, &(omm_quantise_options){.type = "Q4_0"}, true);
    expect(&g, "output.weight", OMM_GGML_Q6_K);
    expect(&g, "token_embd.weight", OMM_GGML_Q4_0);
    expect(&g, "blk.0.attn_v.weight", OMM_GGML_Q4_0);
    expect(&g, "blk.0.odd.weight", OMM_GGML_Q4_0);
    omm_gguf_close(&g);
    open_quantised(&g, &(omm_quantise_options){.type = "Q4_0", .pure = true}, true);
    expect(&g, "output.weight", OMM_GGML_Q4_0);
    omm_gguf_close(&g);
    open_quantised(&g, &(omm_quantise_options){.type = "Q8_0"}, false);
    expect(&g, "token_embd.weight", OMM_GGML_Q8_0);
    omm_gguf_close(&g);
    open_quantised(&g, &(omm_quantise_options){.type = "TQ1_0"}, true);
    expect(&g, "token_embd.weight", OMM_GGML_Q4_K);
    expect(&g, "output.weight", OMM_GGML_Q6_K);
    omm_gguf_close(&g);
    open_quantised(&g, &(omm_quantise_options){.type = "Q5_1"}, true); /* 6 bits are few */
    expect(&g, "output.weight", OMM_GGML_Q6_K);
    expect(&g, "token_embd.weight", OMM_GGML_Q5_1);
    omm_gguf_close(&g);
    open_quantised(
        &g, &(omm_quantise_options){.type = "Q4_0", .keep = {"blk.2.*=F16"}, .keep_count = 1},
        true);
    expect(&g, "blk.2.ffn_down.weight", OMM_GGML_F16);
    expect(&g, "blk.3.ffn_down.weight", OMM_GGML_Q4_0);
    expect(&g, "output.weight", OMM_GGML_Q6_K);
    omm_gguf_close(&g);
    open_quantised(&g,
                   &(omm_quantise_options){
                       .type = "Q2_K", .keep = {"blk.1?.ffn_*=F16", "*=Q5_1"}, .keep_count = 2},
                   true);
    expect(&g, "blk.12.ffn_down.weight", OMM_GGML_F16);
    expect(&g, "blk.2.ffn_down.weight", OMM_GGML_Q5_1);
    expect(&g, "output.weight", OMM_GGML_Q5_1);
    expect(&g, "blk.2.attn_norm.weight", OMM_GGML_F32);
    omm_gguf_close(&g);
}

/* Quantise with 1 and 3 threads: equal bytes. */
static void twice(const char *out, const char *in, const char *type, bool same) {
    const omm_quantise_options o = {.type = type, .pure = true};
    omm_quantise_report report;
    omm_buf one, three;
    omm_buf_init(&one, 1 << 24);
    omm_buf_init(&three, 1 << 24);
    CHECK_OK(quantise(out, in, &o, 1, &report));
    CHECK_OK(omm_file_read(&one, out));
    CHECK_EQ(report.bytes, one.size);
    CHECK(!same || report.tensors[0].error_squares == 0.0);
    omm_quantise_report_fini(&report);
    CHECK_OK(quantise(out, in, &o, 3, &report));
    CHECK_OK(omm_file_read(&three, out));
    omm_quantise_report_fini(&report);
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&three)));
    omm_buf_fini(&one);
    omm_buf_fini(&three);
}

/* From F32 to each type, from that to itself and to another one. */
static void all_types(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    write_model(at("f32.gguf"), true, NULL);
    for (size_t k = 0; k < count; k++) {
        const char *other = all[(k + 8) % count].name;
        twice(at("a.gguf"), at("f32.gguf"), all[k].name, false);
        twice(at("b.gguf"), at("a.gguf"), all[k].name, true);
        twice(at("b.gguf"), at("a.gguf"), other, false);
    }
}

static void errors_reported(void) {
    static float back[VALUES];
    omm_quantise_report report;
    omm_gguf g;
    double squares = 0.0, largest = 0.0, all = 0.0;
    write_model(at("in.gguf"), true, NULL);
    CHECK_OK(quantise(at("out.gguf"), at("in.gguf"), &(omm_quantise_options){.type = "Q4_K"}, 2,
                      &report));
    CHECK_OK(omm_gguf_open(&g, at("out.gguf")));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(&g, "token_embd.weight");
    omm_rows_dequantise(back, t->type, t->data.data, 5 * (size_t)COLS);
    for (size_t i = 0; i < 5 * (size_t)COLS; i++) {
        const double e = fabs((double)back[i] - (double)s_values[i]);
        squares += e * e;
        all += (double)s_values[i] * (double)s_values[i];
        largest = fmax(largest, e);
    }
    CHECK(fabs(report.tensors[0].error_squares - squares) <= 1e-9 * squares);
    CHECK(fabs(report.tensors[0].squares - all) <= 1e-9 * all);
    CHECK(report.tensors[0].error_max == largest);
    CHECK(largest > 0.0);
    CHECK_EQ(report.tensors[0].elements, 5 * COLS);
    CHECK_EQ(report.tensors[0].bytes_to, 5 * 144);
    omm_quantise_report_fini(&report);
    omm_gguf_close(&g);
}

static void refused(const omm_quantise_options *o, omm_err err, const char *says) {
    omm_quantise_report report;
    omm_buf kept;
    omm_buf_init(&kept, 64);
    CHECK_OK(omm_file_write_fast(at("old.gguf"), omm_bytes_str("old"), 0644));
    CHECK_ERR(quantise(at("old.gguf"), at("in.gguf"), o, 2, &report), err);
    if (!strstr(omm_err_sentence(), says)) fprintf(stderr, "%s\n", omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), says) != NULL);
    CHECK_OK(omm_file_read(&kept, at("old.gguf")));
    CHECK(omm_bytes_equal(omm_buf_view(&kept), omm_bytes_str("old")));
    omm_buf_fini(&kept);
}

static void names(void) {
    static const struct {
        const char *name;
        bool known, mix;
    } cases[] = {{"Q4_K", true, false}, {"q4_k_m", true, true},    {"Q5_K_S", true, true},
                 {"F32", true, false},  {"Q4_K_M_", false, false}, {"", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool is_mix = !cases[i].mix;
        CHECK_EQ(omm_quantise_knows(&is_mix, cases[i].name), cases[i].known);
        CHECK_EQ(is_mix, cases[i].mix);
    }
}

/* Less than the file, and near it: blocks of the type, without what stands round them. */
static void least_bytes(void) {
    CHECK_EQ(omm_quantise_bytes_least("F32", 1024), 4096);
    CHECK_EQ(omm_quantise_bytes_least("F16", 1024 + 255), 2048);
    CHECK_EQ(omm_quantise_bytes_least("Q8_0", 1024), 1024 / 32 * 34);
    CHECK_EQ(omm_quantise_bytes_least("Q4_K_M", 1024), 1024 / 256 * 144);
    CHECK_EQ(omm_quantise_bytes_least("Q4_9", 1024), 0);
    CHECK_EQ(omm_quantise_bytes_least("F32", 255), 0);
}

static void refusals(void) {
    write_model(at("in.gguf"), true, NULL);
    refused(&(omm_quantise_options){.type = "Q4_9"}, OMM_ERR_CONFIG, "accepted: F32, F16, BF16, ");
    refused(&(omm_quantise_options){.type = "Q4_9"}, OMM_ERR_CONFIG, ", Q4_K_M, ");
    refused(&(omm_quantise_options){.type = "Q4_0", .keep = {"x"}, .keep_count = 1}, OMM_ERR_CONFIG,
            "PATTERN=TYPE");
    refused(&(omm_quantise_options){.type = "Q4_0", .keep = {"x=Q4_K_M"}, .keep_count = 1},
            OMM_ERR_CONFIG, "is a mix");
    refused(&(omm_quantise_options){.type = "Q4_K_M", .pure = true}, OMM_ERR_CONFIG,
            "--pure: Q4_K_M is a mix of types; accepted: one type as Q4_K, or no --pure");
    refused(&(omm_quantise_options){.type = "Q4_0", .keep = {"x=Q4_9"}, .keep_count = 1},
            OMM_ERR_CONFIG, "type 'Q4_9' is not known");
    const omm_quantise_options other = {
        .type = "Q4_0", .keep = {"*=Q8_0", "blk.99.*=Q8_0"}, .keep_count = 2};
    refused(&other, OMM_ERR_CONFIG, "no matrix of this model is named 'blk.99.*'; it has");
    const omm_quantise_options late = {
        .type = "Q4_0", .keep = {"blk.*=Q8_0", "*=F16", "blk.1.*=F32"}, .keep_count = 3};
    refused(&late, OMM_ERR_CONFIG, "'blk.1.*' changes nothing: patterns before it name all of");
    const float was = s_values[2 * COLS + 7];
    s_values[2 * COLS + 7] = NAN;
    write_model(at("in.gguf"), true, NULL);
    refused(&(omm_quantise_options){.type = "Q4_0"}, OMM_ERR_NUMERIC,
            "'token_embd.weight', row 2: column 7 is not");
    refused(&(omm_quantise_options){.type = "F32"}, OMM_ERR_NUMERIC, "row 2: column 7");
    s_values[2 * COLS + 7] = 1e6f;
    write_model(at("in.gguf"), true, NULL);
    refused(&(omm_quantise_options){.type = "Q4_K"}, OMM_ERR_NUMERIC, "row 2: columns 0 to 255");
    s_values[2 * COLS + 7] = was;
    write_model(at("in.gguf"), true, "adapter");
    refused(&(omm_quantise_options){.type = "Q4_0"}, OMM_ERR_UNSUPPORTED, "adapter");
}

/* A tensor is written in pieces of 2^20 values; its rows are counted from its first one. */
static void later_piece(void) {
    enum { MANY = (1 << 20) / COLS + 3 };
    const omm_quantise_options to_q8 = {.type = "Q8_0"};
    const uint64_t dims[2] = {COLS, MANY};
    const size_t count = (size_t)MANY * COLS;
    static float back[COLS];
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_quantise_report report;
    float *values = omm_alloc(count, sizeof *values);
    CHECK(values != NULL);
    for (size_t row = 0; row < MANY; row++)
        for (size_t i = 0; i < COLS; i++) values[row * COLS + i] = (float)row;
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, 1 << 24);
    omm_gguf_put_tensor(&w, "t", OMM_GGML_F32, 2, dims, omm_bytes_of(values, count * 4));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_OK(omm_quantise_file(at("piece.gguf"), &g, &to_q8, NULL, &report, NULL, NULL));
    omm_quantise_report_fini(&report);
    omm_gguf out;
    CHECK_OK(omm_gguf_open(&out, at("piece.gguf")));
    const size_t stride = omm_rows_stride(OMM_GGML_Q8_0, COLS);
    omm_rows_dequantise(back, OMM_GGML_Q8_0, out.tensors[0].data.data + (MANY - 1) * stride, COLS);
    CHECK(fabsf(back[0] - (float)(MANY - 1)) < 2.0f);
    omm_gguf_close(&out);
    omm_gguf_close(&g);
    values[(MANY - 2) * (size_t)COLS + 9] = NAN;
    omm_buf_clear(&file);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_quantise_file(at("piece.gguf"), &g, &to_q8, NULL, &report, NULL, NULL),
              OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "tensor 't', row 4097: column 9 is not") != NULL);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_gguf_writer_fini(&w);
    omm_free(values);
}

/* One column more than a matrix has; not of a file, which would take as long as all else here. */
static void too_wide(void) {
    static const omm_quantise_options to_q8 = {.type = "Q8_0"};
    const uint64_t dims[1] = {OMM_MATRIX_DIM_MAX + 256};
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_quantise_report report;
    uint64_t bytes = 0;
    CHECK_OK(omm_gguf_tensor_bytes(&bytes, OMM_GGML_TQ1_0, 1, dims));
    uint8_t *zeros = omm_alloc((size_t)bytes, 1);
    CHECK(zeros != NULL);
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, 1 << 24);
    omm_gguf_put_tensor(&w, "t", OMM_GGML_TQ1_0, 1, dims, omm_bytes_of(zeros, (size_t)bytes));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_ERR(omm_quantise_file(at("wide.gguf"), &g, &to_q8, NULL, &report, NULL, NULL),
              OMM_ERR_TOO_BIG);
    CHECK(!omm_file_exists(at("wide.gguf")));
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_gguf_writer_fini(&w);
    omm_free(zeros);
}

static void out_of_memory(void) {
    omm_gguf g;
    write_model(at("in.gguf"), true, NULL);
    CHECK_OK(omm_gguf_open(&g, at("in.gguf")));
    const size_t live = omm_mem_live();
    for (size_t n = 1;; n++) {
        omm_quantise_report report;
        omm_mem_fail_nth(n);
        omm_err err = omm_quantise_file(at("mem.gguf"), &g, &(omm_quantise_options){.type = "Q4_0"},
                                        NULL, &report, NULL, NULL);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_file_exists(at("mem.gguf")), err == OMM_OK);
        if (err == OMM_OK) {
            omm_quantise_report_fini(&report);
            CHECK(n > 5);
            break;
        }
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK_EQ(omm_mem_live(), live);
    omm_gguf_close(&g);
}

int main(void) {
    omm_seed seed = omm_seed_from_u64(9);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < VALUES; i++) s_values[i] = omm_rng_unit(&rng, i) - 0.5f;
    CHECK(mkdtemp(s_dir) != NULL);
    mixes();
    mix_of_the_rest();
    mix_of_70b();
    plain();
    all_types();
    errors_reported();
    names();
    least_bytes();
    refusals();
    later_piece();
    too_wide();
    out_of_memory();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}
