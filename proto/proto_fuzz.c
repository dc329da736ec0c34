/* Fuzz target: the first byte chooses the form (battery.h; one more is the envelope), the rest is the
 * message.  What decodes must encode to the same bytes. */
#include "battery.h"

#include "omm/envelope.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const omm_buf *again, omm_bytes in) {
    OMM_ASSERT(omm_bytes_equal(omm_buf_view(again), in));
}

static void fuzz_envelope(omm_buf *again, omm_bytes in) {
    omm_envelope e;
    if (omm_envelope_open(&e, in) != OMM_OK) return;
    OMM_ASSERT(omm_envelope_encode(again, &e) == OMM_OK);
    check_again(again, in);
    omm_err err = omm_envelope_verify(&e, OMM_CONTEXT_OFFER);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_REFUSED_SIGNATURE || err == OMM_ERR_REFUSED_CONTEXT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_buf again;
    omm_arena arena;
    if (size == 0) return 0;
    omm_bytes in = omm_bytes_of(data + 1, size - 1);
    omm_buf_init(&again, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    unsigned kind = data[0] % (form_count + 1);
    if (kind == form_count) {
        fuzz_envelope(&again, in);
    } else if (forms[kind].pass(&again, in, &arena) == OMM_OK) {
        check_again(&again, in);
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&again);
    return 0;
}
