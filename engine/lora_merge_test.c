/* lora_merge_test.c - adapters inside a model: the sum as it is defined, to the bit, on every instruction
 * set; everything else of the file as it was; what does not fit is refused and leaves the old file. */
#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/lora_merge.h"
#include "omm/mem.h"
#include "omm/rows.h"
#include "omm/session.h"

#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
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

static void open_rig(rig *r, omm_format format) {
    omm_buf_init(&r->file, FILE_MAX);
    tiny_model_write(&r->file, &(tiny_options){.format = format, .file_type = true});
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
        off = fmax(off, fabs((double)with[i] - (double)merged[i]));
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
    snprintf(r.one.tensors[0].name, OMM_GGUF_NAME_MAX, "blk.7.attn_q.weight.lora_a");
    CHECK_ERR(merge(&r, OMM_ISA_SCALAR, 1, NULL), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_read(&file, s_path));
    CHECK_EQ(file.size, 3);
    omm_buf_fini(&file);
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
    test_logits();
    test_refusals();
    CHECK_OK(omm_file_remove(s_path));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
