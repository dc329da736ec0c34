/* codec_fuzz.c - whatever decodes is the one payload of what it decodes to.
 *
 * input: [codec u8: kind, share kept, packing][bytes as sent]
 */
#include "omm/codec.h"
#include "omm/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const omm_segment SEGMENTS[] = {{"a", 3, 17, 0}, {"b", 20, 3, 51}, {"c", 1, 150, 111}};
static const omm_layout LAYOUT = {SEGMENTS, 3, 261};

static omm_codec codec_of(uint8_t choice) {
    static const uint32_t keeps[] = {0, 1, 9, 261};
    return (omm_codec){.kind = (omm_codec_kind)(choice % 3),
                       .keep_count = keeps[choice / 3 % 4],
                       .zstd_level = choice / 12 % 2 ? 3 : 0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const omm_codec codec = codec_of(data[0]);
    const omm_bytes sent = omm_bytes_of(data + 1, size - 1);
    float values[261];
    omm_encoded info, again;
    omm_err err = omm_codec_decode(values, &info, &codec, &LAYOUT, sent);
    if (err != OMM_OK) {
        OMM_ASSERT(strncmp(omm_err_name(err), "REFUSED_", 8) == 0);
        return 0;
    }
    omm_buf out;
    omm_buf_init(&out, (size_t)1 << 20);
    OMM_ASSERT(omm_codec_encode(&out, &again, &codec, &LAYOUT, values) == OMM_OK);
    OMM_ASSERT(omm_digest_equal(&info.payload_digest, &again.payload_digest));
    omm_buf_fini(&out);
    return 0;
}
