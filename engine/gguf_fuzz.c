/* gguf_fuzz.c - any bytes as a model, a vocabulary and an adapter: refused, or used within bounds.
 * What loads is written again and loads again with the same contents. */
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MAX = 1 << 24 };

static void rewrite(const omm_gguf *g) {
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, FILE_MAX);
    for (size_t i = 0; i < g->kv_count; i++) omm_gguf_put_kv(&w, &g->kvs[i]);
    for (size_t i = 0; i < g->tensor_count; i++) {
        const omm_gguf_tensor *t = &g->tensors[i];
        omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    OMM_ASSERT(omm_gguf_writer_finish(&out, &w) == OMM_OK);
    omm_gguf again = {0};
    OMM_ASSERT(omm_gguf_open_bytes(&again, omm_buf_view(&out)) == OMM_OK);
    for (size_t i = 0; i < g->tensor_count; i++)
        OMM_ASSERT(omm_bytes_equal(g->tensors[i].data, again.tensors[i].data));
    omm_gguf_close(&again);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

static void tokenize(const omm_gguf *g, omm_bytes text) {
    omm_tokenizer *t = NULL;
    if (omm_tokenizer_open(&t, g) != OMM_OK) return;
    omm_tokens ids;
    omm_buf back;
    omm_tokens_init(&ids, 1 << 16);
    omm_buf_init(&back, FILE_MAX);
    omm_err err = omm_tokenizer_encode(&ids, t, text, OMM_TOKENIZE_SPECIAL | OMM_TOKENIZE_BOS);
    if (err == OMM_OK)
        err = omm_tokenizer_decode(&back, t, ids.ids, ids.count, OMM_DETOKENIZE_SPECIAL);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_TOO_BIG);
    for (size_t i = 0; i < ids.count; i++) OMM_ASSERT(ids.ids[i] < omm_tokenizer_vocab(t));
    omm_tokens_fini(&ids);
    omm_buf_fini(&back);
    omm_tokenizer_close(t);
}

static void adapt(omm_bytes file, const char *architecture, bool fused) {
    omm_lora_shape shape = {.layer_count = 2, .fused = fused};
    snprintf(shape.architecture, sizeof shape.architecture, "%s", architecture);
    for (int t = 0; t < OMM_LORA_TARGET_COUNT; t++) shape.d_in[t] = shape.d_out[t] = 4;
    omm_lora lora = {0};
    if (omm_lora_load(&lora, file, &shape) != OMM_OK) return;
    omm_buf out;
    omm_lora back = {0};
    bool rounded = false;
    omm_buf_init(&out, 4 * (size_t)FILE_MAX);
    if (omm_lora_save_fused(&out, &rounded, &lora, true) == OMM_OK) {
        OMM_ASSERT(omm_lora_load(&back, omm_buf_view(&out), &shape) == OMM_OK);
        omm_lora_fini(&back);
    }
    out.size = 0;
    OMM_ASSERT(omm_lora_save(&out, &lora) == OMM_OK);
    OMM_ASSERT(omm_lora_load(&back, omm_buf_view(&out), &shape) == OMM_OK);
    OMM_ASSERT(back.value_count == lora.value_count);
    for (size_t i = 0; i < lora.value_count; i++) OMM_ASSERT(back.values[i] == lora.values[i]);
    for (size_t i = 0; i < lora.tensor_count; i++)
        OMM_ASSERT(back.tensors[i].own_scale == lora.tensors[i].own_scale);
    omm_lora_fini(&back);
    if (omm_lora_unfold(&lora) == OMM_OK)
        for (size_t i = 0; i < lora.value_count; i++) OMM_ASSERT(isfinite(lora.values[i]));
    omm_lora_fini(&lora);
    omm_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_gguf g = {0};
    if (omm_gguf_open_bytes(&g, omm_bytes_of(data, size)) != OMM_OK) return 0;
    rewrite(&g);
    tokenize(&g, omm_bytes_str("ab abc</s> <tool><|im_end|>'s 12\xff \xe2\x96\x81"));
    tokenize(&g, omm_bytes_of(data, size < 300 ? size : 300));
    omm_gguf_close(&g);
    adapt(omm_bytes_of(data, size), "llama", false);
    adapt(omm_bytes_of(data, size), "phi3", true);
    return 0;
}
