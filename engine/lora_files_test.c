/* lora_files_test.c - the reference adapters load, and come out again as the same values. */
#include "omm/lora.h"

#include "testdata.h"

#include <string.h>

static uint64_t dim(const omm_gguf *model, omm_lora_target target, int which) {
    char name[OMM_GGUF_NAME_MAX];
    snprintf(name, sizeof name, "blk.0.%s.weight", omm_lora_target_tensor(target));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(model, name);
    CHECK(t != NULL);
    return t->dims[which];
}

/* The shape, straight from the model file. */
static omm_lora_shape shape_of(const char *name) {
    omm_lora_shape shape = {0};
    char path[OMM_PATH_MAX];
    char key[64];
    omm_gguf model;
    testdata_path(path, name);
    CHECK_OK(omm_gguf_open(&model, path));
    CHECK_OK(omm_gguf_get_text(shape.architecture, sizeof shape.architecture, &model,
                               "general.architecture"));
    snprintf(key, sizeof key, "%s.block_count", shape.architecture);
    CHECK_OK(omm_gguf_get_u32(&shape.layer_count, &model, key));
    for (int t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        shape.d_in[t] = (uint32_t)dim(&model, (omm_lora_target)t, 0);
        shape.d_out[t] = (uint32_t)dim(&model, (omm_lora_target)t, 1);
    }
    omm_gguf_close(&model);
    return shape;
}

static void check_same_values(const omm_lora *lora, const char *path) {
    omm_gguf g;
    CHECK_OK(omm_gguf_open(&g, path));
    CHECK_EQ(g.tensor_count, lora->tensor_count);
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        const omm_gguf_tensor *from = omm_gguf_find_tensor(&g, t->name);
        CHECK(from != NULL);
        for (size_t v = 0; v < (size_t)t->rows * t->cols; v++)
            CHECK(omm_get_f32(from->data.data + 4 * v) == lora->values[t->offset + v]);
    }
    omm_gguf_close(&g);
}

static void test_reference(const char *name) {
    char path[OMM_PATH_MAX];
    char model[64];
    char adapter[64];
    snprintf(model, sizeof model, "reference/models/%s.gguf", name);
    snprintf(adapter, sizeof adapter, "reference/lora/%s.gguf", name);
    omm_lora_shape shape = shape_of(model);
    testdata_path(path, adapter);
    omm_lora lora, back;
    CHECK_OK(omm_lora_load_file(&lora, path, &shape));
    CHECK_EQ(lora.spec.rank, 4);
    CHECK_EQ(lora.spec.targets, OMM_LORA_ALL_TARGETS);
    check_same_values(&lora, path);
    omm_buf file;
    omm_buf_init(&file, 1u << 24);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_lora_load(&back, omm_buf_view(&file), &shape));
    CHECK(memcmp(back.values, lora.values, lora.value_count * sizeof(float)) == 0);
    CHECK(back.spec.alpha == lora.spec.alpha);
    omm_lora_fini(&back);
    omm_lora_fini(&lora);
    shape.layer_count--; /* a smaller model of the same kind */
    CHECK_ERR(omm_lora_load_file(&lora, path, &shape), OMM_ERR_MISMATCH);
    omm_buf_fini(&file);
}

int main(void) {
    test_reference("llama-F32");
    test_reference("llama-Q8_0");
    test_reference("llama-Q4_K");
    test_reference("qwen2-F32");
    test_reference("qwen3-F32");
    return 0;
}
