/* rows_files_test.c - the reference model in every element type: its rows dequantised into an F32
 * model give the reference logits. */
#include "omm/mem.h"
#include "omm/rows.h"
#include "omm/session.h"

#include "testdata.h"

#include <math.h>
#include <string.h>

enum { IDS = 32, VOCAB = 512, TENSORS_MAX = 256 };

/* Largest difference as a share of the spread of the logits.  Measured: 8e-7. */
static const double LOGIT_DIFFERENCE_MAX = 1e-5;

static void read_ids(uint32_t ids[IDS]) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    testdata_path(path, "reference/ids.txt");
    CHECK_OK(omm_file_read(&text, path));
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *p = (char *)text.data;
    for (size_t i = 0; i < IDS; i++) {
        ids[i] = (uint32_t)strtoul(p, &p, 10);
        CHECK(i == IDS - 1 || *p++ == ',');
    }
    omm_buf_fini(&text);
}

/* A copy of `from` whose tensors are all F32. */
static void widen(omm_buf *out, const omm_gguf *from) {
    omm_gguf_writer w;
    static float *values[TENSORS_MAX];
    omm_gguf_writer_init(&w);
    CHECK(from->tensor_count <= TENSORS_MAX);
    for (size_t i = 0; i < from->kv_count; i++) omm_gguf_put_kv(&w, &from->kvs[i]);
    for (size_t i = 0; i < from->tensor_count; i++) {
        const omm_gguf_tensor *t = &from->tensors[i];
        const size_t cols = (size_t)t->dims[0], rows = (size_t)t->dims[1];
        const size_t stride = omm_rows_stride(t->type, cols);
        values[i] = (float *)omm_alloc(rows * cols, sizeof **values);
        CHECK(values[i] != NULL);
        for (size_t r = 0; r < rows; r++) {
            CHECK_EQ(omm_rows_check(t->type, t->data.data + r * stride, cols), cols);
            omm_rows_dequantise(values[i] + r * cols, t->type, t->data.data + r * stride, cols);
        }
        omm_gguf_put_tensor(&w, t->name, OMM_GGML_F32, t->n_dims, t->dims,
                            omm_bytes_of(values[i], rows * cols * sizeof **values));
    }
    CHECK_OK(omm_gguf_writer_finish(out, &w));
    for (size_t i = 0; i < from->tensor_count; i++) omm_free(values[i]);
    omm_gguf_writer_fini(&w);
}

static void logits_of(float *out, omm_bytes file, const omm_compute *c, const uint32_t *ids) {
    omm_gguf gguf;
    omm_model model;
    omm_session *session = NULL;
    CHECK_OK(omm_gguf_open_bytes(&gguf, file));
    CHECK_OK(omm_model_load(&model, &gguf));
    omm_gguf_close(&gguf);
    CHECK_EQ(model.dims.vocab, VOCAB);
    CHECK_OK(omm_session_open(&session, c, &model, NULL, NULL));
    CHECK_OK(omm_session_append(session, ids, IDS, out, true));
    omm_session_close(session);
    omm_model_fini(&model);
}

static double difference(const float *want, const float *got) {
    float low = want[0], high = want[0];
    double worst = 0.0;
    for (size_t i = 0; i < (size_t)IDS * VOCAB; i++) {
        low = want[i] < low ? want[i] : low;
        high = want[i] > high ? want[i] : high;
        double d = fabs((double)want[i] - (double)got[i]);
        worst = worse_of(worst, d);
    }
    return worst / ((double)high - (double)low);
}

static void compare(const char *type, const omm_compute *c, const uint32_t *ids) {
    static float got[IDS * VOCAB];
    char path[OMM_PATH_MAX], name[64];
    omm_gguf gguf;
    omm_buf file, want;
    omm_buf_init(&file, 1u << 28);
    omm_buf_init(&want, sizeof got);
    snprintf(name, sizeof name, "reference/logits/llama-%s.f32", type);
    testdata_path(path, name);
    CHECK_OK(omm_file_read(&want, path));
    CHECK_EQ(want.size, sizeof got);
    snprintf(name, sizeof name, "reference/models/llama-%s.gguf", type);
    testdata_path(path, name);
    CHECK_OK(omm_gguf_open(&gguf, path));
    widen(&file, &gguf);
    omm_gguf_close(&gguf);
    logits_of(got, omm_buf_view(&file), c, ids);
    double d = difference((const float *)(const void *)want.data, got);
    printf("%-7s largest difference %.2e of the spread\n", type, d);
    CHECK(d <= LOGIT_DIFFERENCE_MAX);
    omm_buf_fini(&file);
    omm_buf_fini(&want);
}

int main(void) {
    size_t count = 0;
    uint32_t ids[IDS];
    omm_compute c;
    const omm_ggml_info *all = omm_ggml_all(&count);
    read_ids(ids);
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    for (size_t i = 0; i < count; i++) compare(all[i].name, &c, ids);
    compare("Q4_K_M", &c, ids);
    omm_compute_fini(&c);
    return 0;
}
