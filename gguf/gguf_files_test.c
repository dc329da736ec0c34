/* gguf_files_test.c - real GGUF files: each loads, and writing what was read gives the same bytes. */
#include "omm/gguf.h"

#include "testdata.h"

#include <string.h>

static void rewrite(const omm_gguf *g, const char *path) {
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 1u << 28);
    for (size_t i = 0; i < g->kv_count; i++) omm_gguf_put_kv(&w, &g->kvs[i]);
    for (size_t i = 0; i < g->tensor_count; i++) {
        const omm_gguf_tensor *t = &g->tensors[i];
        omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    /* a file without tensors may lack the padding, one that says 32 may say so needlessly */
    bool comparable = g->tensor_count > 0 && !omm_gguf_find(g, "general.alignment");
    bool same = omm_bytes_equal(omm_buf_view(&out), g->view);
    if (comparable && !same) fprintf(stderr, "%s is rewritten differently\n", path);
    CHECK(!comparable || same);
    omm_buf_fini(&out);
    omm_gguf_writer_fini(&w);
}

static omm_err each(void *ud, const char *relative_path) {
    size_t *count = ud;
    size_t size = strlen(relative_path);
    if (size < 5 || strcmp(relative_path + size - 5, ".gguf") != 0) return OMM_OK;
    char path[OMM_PATH_MAX];
    testdata_path(path, relative_path);
    omm_gguf g;
    CHECK_OK(omm_gguf_open(&g, path));
    rewrite(&g, relative_path);
    omm_gguf_close(&g);
    ++*count;
    return OMM_OK;
}

int main(void) {
    char dir[OMM_PATH_MAX];
    size_t count = 0;
    testdata_path(dir, ".");
    CHECK_OK(omm_dir_walk(dir, each, &count));
    CHECK(count >= 30);
    char path[OMM_PATH_MAX];
    source_path(path, "scenarios/base/openmeshmind-tiny-F16.gguf");
    omm_gguf g;
    CHECK_OK(omm_gguf_open(&g, path));
    uint32_t layers = 0;
    CHECK_OK(omm_gguf_get_u32(&layers, &g, "llama.block_count"));
    CHECK_EQ(layers, 6);
    rewrite(&g, path);
    omm_gguf_close(&g);
    CHECK_ERR(omm_gguf_open(&g, "no/such/file.gguf"), OMM_ERR_NOT_FOUND);
    return 0;
}
