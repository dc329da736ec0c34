/* safetensors_fuzz.c - any bytes as a tensor file: refused, or all its values can be read, and written
 * again they are read back the same. */
#include "omm/mem.h"
#include "omm/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rewrite(const omm_safetensors *file) {
    omm_buf out;
    omm_safetensors again = {0};
    omm_buf_init(&out, 1u << 24);
    OMM_ASSERT(omm_safetensors_write(&out, file->tensors, file->count) == OMM_OK);
    OMM_ASSERT(omm_safetensors_open_bytes(&again, omm_buf_view(&out)) == OMM_OK);
    OMM_ASSERT(again.count == file->count);
    for (size_t i = 0; i < file->count; i++) {
        OMM_ASSERT(strcmp(again.tensors[i].name, file->tensors[i].name) == 0);
        OMM_ASSERT(omm_bytes_equal(again.tensors[i].data, file->tensors[i].data));
    }
    omm_safetensors_close(&again);
    omm_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_safetensors file = {0};
    if (omm_safetensors_open_bytes(&file, omm_bytes_of(data, size)) != OMM_OK) return 0;
    volatile float sum = 0; /* the reads happen */
    for (size_t i = 0; i < file.count; i++) {
        const omm_safetensor *t = &file.tensors[i];
        OMM_ASSERT(omm_safetensors_find(&file, t->name) == t);
        for (uint64_t k = 0; k < omm_safetensor_count(t); k++) sum = sum + omm_safetensor_get(t, k);
    }
    rewrite(&file);
    omm_safetensors_close(&file);
    (void)sum;
    return 0;
}
