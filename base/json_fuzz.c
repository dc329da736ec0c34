/* json_fuzz.c - what parses is written, read back and written again: the same bytes; the reader of wide integers gives the same of
 * it, and takes nothing else but for these, and the one of what clients ask gives the same, too. */
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
    static const char *const texts[] = {"a", "text", NULL};
    json_t *first = NULL, *wide = NULL, *asked = NULL;
    bool is_wide = false;
    const omm_err err = omm_json_parse(&first, omm_bytes_of(data, size), "fuzz");
    const omm_err also = omm_json_parse_wide(&wide, &is_wide, omm_bytes_of(data, size), "fuzz");
    OMM_ASSERT(is_wide ? err == OMM_ERR_FORMAT : also == err);
    if (omm_json_parse_asked(&asked, omm_bytes_of(data, size), texts, "fuzz") == OMM_OK)
        OMM_ASSERT(err != OMM_OK || json_equal(first, asked));
    else
        OMM_ASSERT(err != OMM_OK);
    json_decref(asked);
    if (err != OMM_OK) {
        if (also == OMM_OK) json_decref(wide);
        return 0;
    }
    OMM_ASSERT(json_equal(first, wide));
    json_decref(wide);
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
