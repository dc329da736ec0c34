/* Payload <-> sent bytes: one packing byte, then the payload or one zstd frame of it.
 *
 * What comes in is never trusted: the frame must declare its content size, the declaration is
 * checked against the limit before memory is taken, and nothing may follow the frame.  libzstd reads the formats
 * before RFC 8878, too, or does not, as it was built: here none of them is a frame.
 */
#include "internal.h"

#include "omm/mem.h"

#include <zstd.h>
#include <zstd_errors.h>

enum { PACKING_PLAIN = 0, PACKING_ZSTD = 1 };

static omm_err append_packed(omm_buf *sent, uint8_t packing, omm_bytes body) {
    OMM_TRY(omm_buf_reserve(sent, body.size + 1));
    OMM_TRY(omm_buf_append(sent, &packing, 1));
    return omm_buf_append(sent, body.data, body.size);
}

/* A frame where that is smaller, else *frame is NULL. */
static omm_err make_frame(uint8_t **frame, size_t *size, omm_bytes payload, uint32_t zstd_level) {
    OMM_ASSERT(zstd_level <= OMM_CODEC_ZSTD_LEVEL_MAX);
    *frame = NULL;
    return zstd_level == 0 ? OMM_OK : frame_write(frame, size, payload);
}

omm_err omm_codec_pack(omm_buf *sent, omm_bytes payload, uint32_t zstd_level) {
    uint8_t *frame;
    size_t size = 0;
    OMM_TRY(make_frame(&frame, &size, payload, zstd_level));
    omm_err err = frame ? append_packed(sent, PACKING_ZSTD, omm_bytes_of(frame, size))
                        : append_packed(sent, PACKING_PLAIN, payload);
    omm_free(frame);
    return err;
}

omm_err frame_pack(omm_buf *sent, omm_buf *payload, uint32_t zstd_level) {
    uint8_t *frame;
    size_t size = 0;
    OMM_TRY(make_frame(&frame, &size, omm_buf_view(payload), zstd_level));
    if (!frame) return append_packed(sent, PACKING_PLAIN, omm_buf_view(payload));
    omm_buf_fini(payload);
    omm_err err = append_packed(sent, PACKING_ZSTD, omm_bytes_of(frame, size));
    omm_free(frame);
    return err;
}

/* The content size one frame declares.  All checks that need no memory are here. */
static omm_err frame_content_bytes(size_t *out, omm_bytes frame, size_t bytes_max) {
    if (frame.size < 4 || omm_get_u32(frame.data) != ZSTD_MAGICNUMBER)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "no zstd frame of RFC 8878");
    unsigned long long declared = ZSTD_getFrameContentSize(frame.data, frame.size);
    if (declared == ZSTD_CONTENTSIZE_ERROR)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "no zstd frame");
    if (declared == ZSTD_CONTENTSIZE_UNKNOWN)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "zstd frame does not declare its content size");
    if (declared > bytes_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "zstd frame declares %llu bytes, limit %zu",
                         declared, bytes_max);
    size_t frame_bytes = ZSTD_findFrameCompressedSize(frame.data, frame.size);
    if (ZSTD_isError(frame_bytes) || frame_bytes != frame.size)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "zstd frame does not end with the bytes sent");
    if (declared <= frame.size)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "zstd frame of %zu bytes declares only %llu",
                         frame.size, declared);
    *out = (size_t)declared;
    return OMM_OK;
}

/* Appends; on an error the content of `payload` is what it was. */
static omm_err unpack_frame(omm_buf *payload, omm_bytes frame, size_t bytes_max) {
    size_t content_bytes;
    OMM_TRY(frame_content_bytes(&content_bytes, frame, bytes_max));
    OMM_TRY(omm_buf_reserve(payload, content_bytes));
    size_t size =
        ZSTD_decompress(payload->data + payload->size, content_bytes, frame.data, frame.size);
    if (ZSTD_getErrorCode(size) == ZSTD_error_memory_allocation) /* ours, not the sender's */
        return omm_raise(OMM_ERR_NOMEM, "zstd: %s", ZSTD_getErrorName(size));
    if (ZSTD_isError(size))
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "zstd: %s", ZSTD_getErrorName(size));
    if (size != content_bytes)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "zstd frame holds %zu bytes, declares %zu", size,
                         content_bytes);
    payload->size += content_bytes;
    return OMM_OK;
}

omm_err frame_open(omm_bytes *payload, omm_buf *room, omm_bytes sent, size_t payload_bytes_max) {
    if (sent.size < 1) return omm_raise(OMM_ERR_REFUSED_FORMAT, "empty payload");
    if (sent.size - 1 > payload_bytes_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "%zu bytes sent, limit %zu", sent.size,
                         payload_bytes_max + 1);
    *payload = omm_bytes_of(sent.data + 1, sent.size - 1);
    if (sent.data[0] == PACKING_PLAIN) return OMM_OK;
    if (sent.data[0] != PACKING_ZSTD)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "packing %u, must be 0 or 1",
                         (unsigned)sent.data[0]);
    const size_t before = room->size;
    OMM_TRY(unpack_frame(room, *payload, payload_bytes_max));
    *payload = omm_bytes_of(room->data + before, room->size - before);
    return OMM_OK;
}

omm_err omm_codec_unpack(omm_buf *payload, omm_bytes sent, size_t payload_bytes_max) {
    omm_bytes inner;
    const size_t before = payload->size;
    OMM_TRY(frame_open(&inner, payload, sent, payload_bytes_max));
    if (payload->size > before) return OMM_OK;
    return omm_buf_append(payload, inner.data, inner.size);
}

omm_err frame_check_known(omm_bytes sent, omm_bytes payload) {
    const omm_bytes frame = omm_bytes_of(sent.data + 1, sent.size - 1);
    if (sent.data[0] != PACKING_ZSTD || frame_is_plain(frame) || frame_is_ours(frame, payload))
        return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT,
                     "zstd frame: neither the one of this payload, nor of plain blocks and runs "
                     "alone: others may read it otherwise");
}
