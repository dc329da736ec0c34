/* json_fuzz.c - what parses is written, read back and written again: the same bytes. */
#include "omm/json.h"
#include "omm/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static omm_buf write_value(const json_t *value) {
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 24);
    OMM_ASSERT(omm_json_write(&text, value) == OMM_OK);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *first = NULL;
    if (omm_json_parse(&first, omm_bytes_of(data, size), "fuzz") != OMM_OK) return 0;
    omm_buf once = write_value(first);
    json_t *second = NULL;
    OMM_ASSERT(omm_json_parse(&second, omm_buf_view(&once), "again") == OMM_OK);
    omm_buf twice = write_value(second);
    OMM_ASSERT(omm_bytes_equal(omm_buf_view(&once), omm_buf_view(&twice)));
    omm_buf_fini(&once);
    omm_buf_fini(&twice);
    json_decref(first);
    json_decref(second);
    return 0;
}
