/* calculator_fuzz.c - any bytes as an expression: a value or a refusal; a finite value read again
 * gives itself. */
#include "omm/calculator.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_buf out;
    omm_buf again;
    omm_buf_init(&out, 1024);
    omm_buf_init(&again, 1024);
    if (omm_calculate(&out, omm_bytes_of(data, size)) == OMM_OK) {
        OMM_ASSERT(out.size > 0);
        if (!memchr(out.data, '(', out.size)) {
            omm_err err = omm_calculate(&again, omm_buf_view(&out));
            /* a long decimal has a numerator over the limit for numbers that are read */
            OMM_ASSERT(err == OMM_OK || err == OMM_ERR_TOO_BIG);
            if (err == OMM_OK)
                OMM_ASSERT(omm_bytes_equal(omm_buf_view(&out), omm_buf_view(&again)));
        }
    } else {
        OMM_ASSERT(out.size == 0);
    }
    omm_buf_fini(&out);
    omm_buf_fini(&again);
    return 0;
}
