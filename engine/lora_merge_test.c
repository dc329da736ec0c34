/* lora_merge_test.c - adapters inside a model: the sum as it is defined, to the bit, on every instruction
 * set, and stored in each type; everything else of the file as it was; what does not fit is refused and
 * leaves the old file. */
#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/lora_merge.h"
#include "omm/mem.h"
#include "omm/quantise.h"
#include "omm/rows.h"
#include "omm/session.h"

#include "omm_test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LENGTH = 20, FILE_MAX = 1 << 23, REPORTS_MAX = 64 };
#define CLOSE 2e-6 /* of the spread; measured maximum 4e-7 */

static char s_path[64] = "/tmp/omm-merge-XXXXXX";
static omm_lora_merged s_reports[REPORTS_MAX];
static size_t s_report_count;

static void keep_report(void *ud, const omm_lora_merged *m) {
    (void)ud;
    CHECK(s_report_count < REPORTS_MAX);
    s_reports[s_report_count++] = *m;
}

typedef struct rig {
    omm_buf file;
    omm_gguf gguf;
    omm_model model;
    omm_lora one, two;
} rig;

static omm_lora adapter(const omm_model *model, const char *targets, uint32_t rank, float scale) {
    omm_lora_plan plan;
    omm_lora lora;
    CHECK_OK(omm_lora_plan_init(&plan, &model->lora_shape));
    CHECK_OK(omm_lora_plan_add(&plan, targets, (omm_lora_pair){rank, scale}));
    CHECK_OK(omm_lora_init_plan(&lora, &plan));
    float *noise = battery_floats(rank, lora.value_count);
    for (size_t i = 0; i < lora.value_count; i++) lora.values[i] = noise[i] * 0.05f;
    omm_free(noise);
    omm_lora_plan_fini(&plan);
    return lora;
}

static uint32_t s_alignment; /* 0: the usual one */

static void open_rig(rig *r, omm_format format) {
    omm_buf_init(&r->file, FILE_MAX);
    tiny_model_write(
        &r->file, &(tiny_options){.format = format, .file_type = true, .alignment = s_alignment});
    CHECK_OK(omm_gguf_open_bytes(&r->gguf, omm_buf_view(&r->file)));
    CHECK_OK(omm_model_load(&r->model, &r->gguf));
    r->one = adapter(&r->model, "all", 5, 1.7f);
    r->two = adapter(&r->model, "blk.1.attn_*", 3, -0.4f);
}

static void close_rig(rig *r) {
    omm_lora_fini(&r->one);
    omm_lora_fini(&r->two);
    omm_model_fini(&r->model);
    omm_gguf_close(&r->gguf);
    omm_buf_fini(&r->file);
}

static omm_err merge(const rig *r, omm_isa isa, unsigned threads, const char *type) {
    const omm_lora *parts[] = {&r->one, &r->two};
    const float weights[] = {1.0f, 0.75f};
    omm_lora_merge m = {.base = &r->gguf, .parts = parts, .weights = weights, .count = 2};
    omm_pool *pool = NULL;
    omm_compute c;
    m.report = keep_report;
    if (type) {
        m.has_type = true;
        m.type = omm_ggml_find_name(type)->type;
    }
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    m.compute = &c;
    s_report_count = 0;
    omm_err err = omm_lora_merge_file(s_path, &m);
    omm_compute_fini(&c);
    omm_pool_close(pool);
    return err;
}

/* ---- the definition ---------------------------------------------------------------------------- */

static void add_plain(float *w, const omm_lora *lora, float weight, uint32_t layer,
                      omm_lora_target target) {
    const float *a = NULL, *b = NULL;
    omm_lora_find(&a, &b, lora, layer, target);
    if (!a) return;
    const omm_lora_tensor *t = &lora->tensors[omm_lora_find_index(lora, layer, target)];
    const float scale = t->scale * weight;
    for (size_t n = 0; n < t[1].rows; n++)
        for (size_t k = 0; k < t->cols; k++) {
            float d = 0;
            for (size_t r = 0; r < t->rows; r++)
                d = fmaf(scale * b[n * t->rows + r], a[r * t->cols + k], d);
            w[n * t->cols + k] += d;
        }
}

/* Every adapted tensor of an F32 base, byte by byte. */
static void test_definition(void) {
    rig r;
    omm_gguf out;
    open_rig(&r, OMM_FORMAT_F32);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, NULL));
    CHECK_OK(omm_gguf_open(&out, s_path));
    CHECK_EQ(out.kv_count, r.gguf.kv_count);
    CHECK_EQ(out.tensor_count, r.gguf.tensor_count);
    CHECK_EQ(s_report_count, TINY_LAYERS * OMM_LORA_TARGET_COUNT);
    size_t adapted = 0;
    for (size_t i = 0; i < out.tensor_count; i++) {
        const omm_gguf_tensor *was = &r.gguf.tensors[i], *now = &out.tensors[i];
        CHECK(strcmp(was->name, now->name) == 0 && was->type == now->type);
        ptrdiff_t at = -1;
        for (size_t k = 0; k < r.one.tensor_count; k += 2)
            if (strncmp(r.one.tensors[k].name, was->name, strlen(was->name)) == 0)
                at = (ptrdiff_t)k;
        CHECK_EQ(omm_bytes_equal(was->data, now->data), at < 0);
        if (at < 0) continue;
        const omm_lora_tensor *t = &r.one.tensors[at];
        float *w = omm_alloc(was->data.size, 1);
        memcpy(w, was->data.data, was->data.size);
        add_plain(w, &r.one, 1.0f, t->layer, t->target);
        add_plain(w, &r.two, 0.75f, t->layer, t->target);
        CHECK(memcmp(w, now->data.data, was->data.size) == 0);
        CHECK(s_reports[adapted].adapted && s_reports[adapted].error == 0);
        CHECK(strcmp(s_reports[adapted].name, was->name) == 0 && s_reports[adapted].change > 0);
        adapted++;
        omm_free(w);
    }
    CHECK_EQ(adapted, s_report_count);
    omm_gguf_close(&out);
    close_rig(&r);
}

/* ---- the same everywhere ----------------------------------------------------------------------- */

static void test_same_bytes(omm_format format, const char *type) {
    rig r;
    omm_buf first, other;
    open_rig(&r, format);
    omm_buf_init(&first, FILE_MAX);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_file_read(&first, s_path));
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        omm_buf_init(&other, FILE_MAX);
        CHECK_OK(merge(&r, (omm_isa)isa, 1 + isa, type));
        CHECK_OK(omm_file_read(&other, s_path));
        CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&other)));
        omm_buf_fini(&other);
    }
    omm_gguf out;
    CHECK_OK(omm_gguf_open(&out, s_path));
    /* With another type the key would name the old one. */
    CHECK_EQ(omm_gguf_find(&out, "general.file_type") != NULL, !type);
    CHECK_EQ(out.kv_count, r.gguf.kv_count - (type != NULL));
    for (size_t i = 0; i < out.tensor_count && type; i++) {
        const omm_gguf_tensor *t = &out.tensors[i];
        const bool matrix = strncmp(t->name, "blk.", 4) == 0 && t->n_dims == 2;
        CHECK_EQ(t->type, matrix ? omm_ggml_find_name(type)->type : r.gguf.tensors[i].type);
    }
    for (size_t i = 0; i < s_report_count; i++)
        CHECK(s_reports[i].error < 0.1 * s_reports[i].change + 0.05);
    omm_gguf_close(&out);
    omm_buf_fini(&first);
    close_rig(&r);
}

/* ---- every type ---------------------------------------------------------------------------------- */

/* A file of matrices as wide as the widest block; attn_q has rows in two chunks, ffn_up no adapter. */
enum { Q_COLS = 256, Q_ROWS = 70, DOWN_COLS = 512, DOWN_ROWS = 5, WIDE_COUNT = 5 };

static const struct wide {
    const char *name;
    uint64_t dims[2];
    bool matrix; /* of a layer */
    int target;  /* -1: not adapted */
} s_wide[WIDE_COUNT] = {{"token_embd.weight", {Q_COLS, 3}, false, -1},
                        {"blk.0.attn_norm.weight", {Q_COLS, 1}, false, -1},
                        {"blk.0.attn_q.weight", {Q_COLS, Q_ROWS}, true, OMM_LORA_Q},
                        {"blk.0.ffn_up.weight", {Q_COLS, 4}, true, -1},
                        {"blk.0.ffn_down.weight", {DOWN_COLS, DOWN_ROWS}, true, OMM_LORA_DOWN}};

static uint8_t *encode(omm_ggml_type type, const float *values, const uint64_t dims[2]) {
    const size_t cols = (size_t)dims[0], stride = omm_rows_stride(type, cols);
    uint8_t *rows = omm_alloc((size_t)dims[1], stride);
    CHECK(rows != NULL);
    for (size_t i = 0; i < dims[1]; i++)
        CHECK_OK(omm_rows_quantise(rows + i * stride, type, values + i * cols, cols));
    return rows;
}

static void decode(float *out, omm_ggml_type type, const uint8_t *rows, const uint64_t dims[2]) {
    const size_t cols = (size_t)dims[0], stride = omm_rows_stride(type, cols);
    for (size_t i = 0; i < dims[1]; i++)
        omm_rows_dequantise(out + i * cols, type, rows + i * stride, cols);
}

static void open_wide(rig *r, omm_ggml_type type) {
    omm_lora_shape shape = {.layer_count = 1, .architecture = "llama"};
    omm_model like = {0};
    omm_gguf_writer w;
    uint8_t *rows[WIDE_COUNT];
    omm_gguf_writer_init(&w);
    omm_buf_init(&r->file, FILE_MAX);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    for (size_t i = 0; i < WIDE_COUNT; i++) {
        const struct wide *x = &s_wide[i];
        const omm_ggml_type its = x->dims[1] > 1 ? type : OMM_GGML_F32;
        float *values = battery_floats(i + 1, (size_t)(x->dims[0] * x->dims[1]));
        rows[i] = encode(its, values, x->dims);
        omm_gguf_put_tensor(
            &w, x->name, (uint32_t)its, x->dims[1] > 1 ? 2 : 1, x->dims,
            omm_bytes_of(rows[i], (size_t)x->dims[1] * omm_rows_stride(its, (size_t)x->dims[0])));
        omm_free(values);
        if (x->target < 0) continue;
        shape.d_in[x->target] = (uint32_t)x->dims[0];
        shape.d_out[x->target] = (uint32_t)x->dims[1];
    }
    CHECK_OK(omm_gguf_writer_finish(&r->file, &w));
    omm_gguf_writer_fini(&w);
    for (size_t i = 0; i < WIDE_COUNT; i++) omm_free(rows[i]);
    CHECK_OK(omm_gguf_open_bytes(&r->gguf, omm_buf_view(&r->file)));
    like.lora_shape = shape;
    r->one = adapter(&like, "q,down", 5, 1.7f);
    r->two = adapter(&like, "q", 3, -0.4f);
}

static void close_wide(rig *r) {
    omm_lora_fini(&r->one);
    omm_lora_fini(&r->two);
    omm_gguf_close(&r->gguf);
    omm_buf_fini(&r->file);
}

/* What the command prints of the tensor: root mean squares and the largest. */
static void check_report(const omm_lora_merged *m, const float *was, const float *now,
                         const float *stored, size_t count) {
    double change = 0, error = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)now[i] - (double)was[i], e = (double)stored[i] - (double)now[i];
        change += d * d;
        error += e * e;
        largest = fmax(largest, fabs(e));
    }
    change = sqrt(change / (double)count);
    error = sqrt(error / (double)count);
    CHECK(fabs(m->change - change) <= 1e-9 * change && fabs(m->error - error) <= 1e-9 * error);
    CHECK(m->error_max == largest);
}

/* A tensor of the base and what became of it: the values it had, widened, with the sum, in the new type. */
static bool check_stored(const rig *r, size_t index, const omm_gguf_tensor *stored,
                         const omm_lora_merged *report) {
    const struct wide *x = &s_wide[index];
    const omm_gguf_tensor *base = &r->gguf.tensors[index];
    const size_t count = (size_t)(x->dims[0] * x->dims[1]);
    CHECK(strcmp(stored->name, x->name) == 0);
    if (x->target < 0 && stored->type == base->type) {
        CHECK(omm_bytes_equal(stored->data, base->data));
        return false; /* not reported */
    }
    float *was = battery_floats(1, count), *now = battery_floats(1, count),
          *back = battery_floats(1, count);
    decode(was, base->type, base->data.data, x->dims);
    memcpy(now, was, count * sizeof *now);
    if (x->target >= 0) add_plain(now, &r->one, 1.0f, 0, (omm_lora_target)x->target);
    if (x->target >= 0) add_plain(now, &r->two, 0.75f, 0, (omm_lora_target)x->target);
    uint8_t *want = encode(stored->type, now, x->dims);
    CHECK(memcmp(want, stored->data.data, stored->data.size) == 0);
    decode(back, stored->type, want, x->dims);
    CHECK(strcmp(report->name, x->name) == 0 && report->adapted == (x->target >= 0));
    CHECK(report->from == base->type && report->to == stored->type);
    CHECK((report->change > 0) == report->adapted);
    check_report(report, was, now, back, count);
    omm_free(was);
    omm_free(now);
    omm_free(back);
    omm_free(want);
    return true;
}

/* To `to` from a base in `from`; NULL keeps that type.  The matrices of layers alone get another one. */
static void test_stored(omm_ggml_type from, const char *to) {
    rig r;
    omm_gguf out;
    size_t reported = 0;
    open_wide(&r, from);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, to));
    CHECK_OK(omm_gguf_open(&out, s_path));
    CHECK_EQ(out.tensor_count, WIDE_COUNT);
    for (size_t i = 0; i < WIDE_COUNT; i++) {
        const omm_ggml_type kept = r.gguf.tensors[i].type;
        CHECK_EQ(out.tensors[i].type, to && s_wide[i].matrix ? omm_ggml_find_name(to)->type : kept);
        CHECK(reported < s_report_count || s_wide[i].target < 0);
        reported += check_stored(&r, i, &out.tensors[i], &s_reports[reported]);
    }
    CHECK_EQ(reported, s_report_count);
    omm_gguf_close(&out);
    close_wide(&r);
}

/* To merge into F32 and then to quantise gives the matrices that merging with that type gives. */
static void test_then_quantise(const char *type) {
    char path[sizeof s_path + 8];
    rig r;
    omm_gguf merged, wide, quantised;
    omm_pool *pool = NULL;
    omm_quantise_report report;
    open_wide(&r, OMM_GGML_F32);
    snprintf(path, sizeof path, "%s.f32", s_path);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, NULL));
    CHECK_EQ(rename(s_path, path), 0);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_gguf_open(&merged, s_path));
    CHECK_OK(omm_gguf_open(&wide, path));
    CHECK_OK(omm_pool_open(&pool, 1));
    CHECK_OK(omm_quantise_file(path, &wide, &(omm_quantise_options){.type = type, .pure = true},
                               pool, &report, NULL, NULL));
    CHECK_OK(omm_gguf_open(&quantised, path));
    for (size_t i = 0; i < WIDE_COUNT; i++) {
        const omm_gguf_tensor *a = &merged.tensors[i], *b = &quantised.tensors[i];
        CHECK(!s_wide[i].matrix || (a->type == b->type && omm_bytes_equal(a->data, b->data)));
    }
    omm_gguf_close(&quantised);
    omm_quantise_report_fini(&report);
    omm_pool_close(pool);
    omm_gguf_close(&wide);
    omm_gguf_close(&merged);
    CHECK_OK(omm_file_remove(path));
    close_wide(&r);
}

static void test_types(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    CHECK(count >= 17);
    for (size_t i = 0; i < count; i++) {
        test_stored(all[i].type, NULL);
        test_stored(OMM_GGML_F32, all[i].name);
        test_then_quantise(all[i].name);
    }
    test_stored(OMM_GGML_Q4_K, "Q6_K");
    test_stored(OMM_GGML_IQ4_XS, "F16");
}

/* ---- what the model computes -------------------------------------------------------------------- */

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

static void test_logits(void) {
    static float base[LENGTH * TINY_VOCAB], with[LENGTH * TINY_VOCAB], merged[LENGTH * TINY_VOCAB];
    rig r;
    omm_gguf out;
    omm_model model;
    omm_lora joined;
    bool rounded = false;
    open_rig(&r, OMM_FORMAT_F32);
    const omm_lora *parts[] = {&r.one, &r.two};
    const float weights[] = {1.0f, 0.75f};
    CHECK_OK(omm_lora_join(&joined, &rounded, parts, weights, 2, true));
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 2, NULL));
    CHECK_OK(omm_gguf_open(&out, s_path));
    CHECK_OK(omm_model_load(&model, &out));
    logits_of(base, &r.model, NULL);
    logits_of(with, &r.model, &joined);
    logits_of(merged, &model, NULL);
    double low = 0, high = 0, off = 0, moved = 0;
    for (size_t i = 0; i < (size_t)LENGTH * TINY_VOCAB; i++) {
        low = fmin(low, (double)with[i]);
        high = fmax(high, (double)with[i]);
        off = worse_of(off, fabs((double)with[i] - (double)merged[i]));
        moved = fmax(moved, fabs((double)with[i] - (double)base[i]));
    }
    if (off > CLOSE * (high - low))
        fprintf(stderr, "off by %g of the spread\n", off / (high - low));
    CHECK(off <= CLOSE * (high - low));
    CHECK(moved > 1000 * CLOSE * (high - low));
    omm_lora_fini(&joined);
    omm_model_fini(&model);
    omm_gguf_close(&out);
    close_rig(&r);
}

/* ---- a base in parts ---------------------------------------------------------------------------- */

enum { BASE_PARTS = 3 };

static const char *part_path(uint32_t no) {
    static char path[OMM_PATH_MAX];
    snprintf(path, sizeof path, "%s-%05u-of-%05u.gguf", s_path, no + 1, BASE_PARTS);
    return path;
}

/* The keys in the first, and a third of the tensors in each. */
static void write_part(const omm_gguf *whole, uint32_t no) {
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, FILE_MAX);
    omm_gguf_put_u32(&w, "split.no", no);
    omm_gguf_put_u32(&w, "split.count", BASE_PARTS);
    omm_gguf_put_u32(&w, "split.tensors.count", (uint32_t)whole->tensor_count);
    for (size_t i = 0; i < whole->kv_count && no == 0; i++) omm_gguf_put_kv(&w, &whole->kvs[i]);
    for (size_t i = 0; i < whole->tensor_count; i++) {
        const omm_gguf_tensor *t = &whole->tensors[i];
        if (i * BASE_PARTS / whole->tensor_count == no)
            omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_file_write_fast(part_path(no), omm_buf_view(&file), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

/* What comes of a model in several files is one file, the same as of the model in one. */
static void test_parts(const char *type) {
    rig r;
    omm_buf whole, of_parts;
    open_rig(&r, OMM_FORMAT_F16);
    omm_buf_init(&whole, FILE_MAX);
    omm_buf_init(&of_parts, FILE_MAX);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_file_read(&whole, s_path));
    for (uint32_t no = 0; no < BASE_PARTS; no++) write_part(&r.gguf, no);
    omm_gguf_close(&r.gguf);
    CHECK_OK(omm_gguf_open(&r.gguf, part_path(1)));
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_file_read(&of_parts, s_path));
    CHECK(omm_bytes_equal(omm_buf_view(&whole), omm_buf_view(&of_parts)));
    for (uint32_t no = 0; no < BASE_PARTS; no++) CHECK_OK(omm_file_remove(part_path(no)));
    omm_buf_fini(&whole);
    omm_buf_fini(&of_parts);
    close_rig(&r);
}

/* Of a base without blocks another version of theirs says nothing; of blocks that are made of it, ours. */
static void test_version_of_blocks(const char *type) {
    rig r;
    omm_gguf out;
    omm_gguf_writer w;
    omm_buf file;
    uint32_t version = 0;
    open_rig(&r, OMM_FORMAT_F32);
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, FILE_MAX);
    for (size_t i = 0; i < r.gguf.kv_count; i++) omm_gguf_put_kv(&w, &r.gguf.kvs[i]);
    omm_gguf_put_u32(&w, "general.quantization_version", 1);
    for (size_t i = 0; i < r.gguf.tensor_count; i++) {
        const omm_gguf_tensor *t = &r.gguf.tensors[i];
        omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    omm_gguf_close(&r.gguf);
    CHECK_OK(omm_gguf_open_bytes(&r.gguf, omm_buf_view(&file)));
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_gguf_open(&out, s_path));
    CHECK_OK(omm_gguf_get_u32(&version, &out, "general.quantization_version"));
    CHECK_EQ(version, type ? 2 : 1);
    omm_gguf_close(&out);
    omm_gguf_writer_fini(&w);
    close_rig(&r);
    omm_buf_fini(&file);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void test_refusals(void) {
    rig r;
    omm_buf file;
    open_rig(&r, OMM_FORMAT_F32);
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_str("old"), 0644));
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, "Q4_K"), OMM_ERR_UNSUPPORTED); /* 96 columns, not 256 */
    CHECK(strstr(omm_err_sentence(), "blk.0.") != NULL);
    r.one.values[r.one.value_count - 1] = 3e38f;
    r.one.values[r.one.value_count - 2] = INFINITY;
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_NUMERIC);
    r.one.values[r.one.value_count - 2] = 1e6f;
    r.one.values[r.one.value_count - 1] = 0;
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, "F16"), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "ffn_down") != NULL);
    r.one.tensors[0].cols--;
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_MISMATCH);
    r.one.tensors[0].cols++;
    r.one.tensors[1].rows--;
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_MISMATCH);
    r.one.tensors[1].rows++;
    snprintf(r.one.tensors[0].name, OMM_GGUF_NAME_MAX, "blk.7.attn_q.weight.lora_a");
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_NOT_FOUND);
    snprintf(r.one.tensors[0].name, OMM_GGUF_NAME_MAX, "blk.0.attn_q.weight.lora_a");
    r.gguf.kvs[1].key = r.gguf.kvs[0].key; /* what no reader would take gets no name */
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "occurs twice") != NULL);
    CHECK_OK(omm_file_read(&file, s_path));
    CHECK_EQ(file.size, 3);
    omm_buf_fini(&file);
    close_rig(&r);
}

static void expect_file(const char *text) {
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(omm_file_read(&file, s_path));
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_bytes_str(text)));
    omm_buf_fini(&file);
}

/* A disk without room for some of the last bytes: of a tensor that stays as it is, or of what fills the space behind the last
 * one. */
static void test_full_disk(const char *type) {
    enum { LAST = 32 };
    struct rlimit old;
    uint64_t whole = 0, size = 0;
    rig r;
    open_rig(&r, OMM_FORMAT_F32);
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_file_size(&whole, s_path));
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_str("old"), 0644));
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    for (rlim_t room = whole - LAST; room < whole; room++) {
        const struct rlimit small = {room, old.rlim_max}; /* as large as what is merged */
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        const omm_err err = merge(&r, OMM_ISA_SCALAR, 1, type);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
        CHECK_ERR(err, OMM_ERR_IO);
        expect_file("old");
    }
    CHECK_OK(merge(&r, OMM_ISA_SCALAR, 1, type));
    CHECK_OK(omm_file_size(&size, s_path));
    CHECK_EQ(size, whole);
    close_rig(&r);
}

int main(void) {
    close(mkstemp(s_path));
    test_definition();
    test_same_bytes(OMM_FORMAT_F32, NULL);
    test_same_bytes(OMM_FORMAT_Q8_0, NULL);
    test_same_bytes(OMM_FORMAT_Q4_0, "F16");
    test_same_bytes(OMM_FORMAT_F16, "Q8_0");
    test_same_bytes(OMM_FORMAT_F32, "Q4_0");
    test_types();
    test_logits();
    test_parts(NULL);
    test_parts("Q8_0");
    test_version_of_blocks(NULL);
    test_version_of_blocks("Q8_0");
    test_refusals();
    test_full_disk(NULL);
    s_alignment = 4096;
    test_full_disk(NULL);
    test_full_disk("F16");
    CHECK_OK(omm_file_remove(s_path));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
