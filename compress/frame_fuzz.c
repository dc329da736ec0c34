/* frame_fuzz.c - a frame of whatever bytes, said often enough to be worth one, gives them back.
 *
 * input: [how often u8][bytes]; after 64 times the bytes are one higher, so that blocks differ
 */
#include "internal.h"

#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 1 << 19 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[BYTES_MAX];
    size_t n = 0;
    if (size < 1) return 0;
    for (unsigned time = 0; time < data[0] + 1u; time++)
        for (size_t i = 1; i < size && n < BYTES_MAX; i++)
            bytes[n++] = (uint8_t)(data[i] + time / 64);
    omm_buf sent, back;
    omm_buf_init(&sent, BYTES_MAX + 1);
    omm_buf_init(&back, BYTES_MAX);
    OMM_ASSERT(omm_codec_pack(&sent, omm_bytes_of(bytes, n), 3) == OMM_OK);
    OMM_ASSERT(sent.size <= n + 1);
    OMM_ASSERT(omm_codec_unpack(&back, omm_buf_view(&sent), BYTES_MAX) == OMM_OK);
    OMM_ASSERT(omm_bytes_equal(omm_buf_view(&back), omm_bytes_of(bytes, n)));
    omm_buf_fini(&sent);
    omm_buf_fini(&back);
    return 0;
}
