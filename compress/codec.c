#include "internal.h"

#include "omm/mem.h"

#include <math.h>
#include <string.h>

#define CODEC_MAGIC 0x444d4d4fu /* "OMMD", little endian */
#define CODEC_VERSION 1u

_Static_assert(sizeof(float) == 4, "payloads store f32");

typedef struct header {
    index_coding index;
    uint32_t kept_count;
} header;

static omm_err header_write(omm_buf *out, const header *h, const omm_codec *codec,
                            const omm_layout *layout) {
    uint8_t *p;
    OMM_TRY(omm_buf_extend(out, &p, OMM_CODEC_HEADER_BYTES));
    omm_digest id = omm_layout_digest(layout);
    omm_put_u32(p, CODEC_MAGIC);
    p[4] = CODEC_VERSION;
    p[5] = (uint8_t)codec->kind;
    p[6] = (uint8_t)h->index;
    p[7] = 0;
    omm_put_u32(p + 8, (uint32_t)layout->value_count);
    omm_put_u32(p + 12, h->kept_count);
    memcpy(p + 16, id.b, 8);
    return OMM_OK;
}

static omm_err values_check(const float *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(values[i]) <= OMM_CODEC_VALUE_MAX)) /* NaN too */
            return omm_raise(OMM_ERR_REFUSED_VALUE, "value %zu is not finite or over %g", i,
                             (double)OMM_CODEC_VALUE_MAX);
    }
    return OMM_OK;
}

static omm_err payload_write(omm_buf *payload, const kept *k, const coded *c,
                             const omm_codec *codec, const omm_layout *layout) {
    size_t index_bytes;
    header h = {.kept_count = (uint32_t)k->count};
    h.index = index_choose(&index_bytes, k, layout->value_count);
    OMM_TRY(omm_buf_reserve(payload, OMM_CODEC_HEADER_BYTES + index_bytes +
                                         c->scale_count * CODE_SCALE_BYTES +
                                         k->count * code_width(codec->kind)));
    OMM_TRY(header_write(payload, &h, codec, layout));
    OMM_TRY(index_write(payload, h.index, k, layout->value_count));
    return code_write(payload, c, k->count * code_width(codec->kind));
}

/* Append the payload of checked values. */
static omm_err payload_encode(omm_buf *payload, size_t *kept_count, const omm_codec *codec,
                              const omm_layout *layout, const float *values) {
    omm_err err = OMM_OK;
    kept k = {.count = layout->value_count};
    coded c = {0};
    if (codec->keep_count) OMM_TRY(keep_select(&k, values, layout->value_count, codec->keep_count));
    OMM_TRY_OUT(code_values(&c, &k, codec->kind, layout, values));
    OMM_TRY_OUT(payload_write(payload, &k, &c, codec, layout));
    *kept_count = k.count;
out:
    coded_fini(&c);
    kept_fini(&k);
    return err;
}

static omm_encoded describe(omm_bytes payload, size_t kept_count) {
    return (omm_encoded){.payload_digest = omm_hash(payload),
                         .payload_bytes = payload.size,
                         .kept_count = (uint32_t)kept_count};
}

static omm_encoded sent_as(omm_encoded encoded, omm_bytes sent) {
    encoded.sent_digest = omm_hash(sent);
    encoded.sent_bytes = sent.size;
    return encoded;
}

omm_err omm_codec_encode(omm_buf *sent, omm_encoded *info, const omm_codec *codec,
                         const omm_layout *layout, const float *values) {
    OMM_TRY(omm_codec_check(codec, layout));
    OMM_TRY(values_check(values, layout->value_count));

    omm_err err = OMM_OK;
    size_t before = sent->size;
    size_t kept_count = 0;
    omm_encoded encoded = {0};
    omm_buf payload;
    omm_buf_init(&payload, omm_codec_payload_bytes_max(codec, layout));
    OMM_TRY_OUT(payload_encode(&payload, &kept_count, codec, layout, values));
    if (info) encoded = describe(omm_buf_view(&payload), kept_count);
    OMM_TRY_OUT(frame_pack(sent, &payload, codec->zstd_level));
    if (info) *info = sent_as(encoded, omm_bytes_of(sent->data + before, sent->size - before));
out:
    omm_buf_fini(&payload);
    return err;
}

static omm_err header_check_kind(const header *h, uint8_t kind, const omm_codec *codec) {
    if (kind != codec->kind)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "payload kind %u, the round's is %d",
                         (unsigned)kind, (int)codec->kind);
    if ((h->index == INDEX_ALL) != (codec->keep_count == 0))
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "payload is %s, the round's codec is not",
                         h->index == INDEX_ALL ? "dense" : "sparse");
    if (codec->keep_count && h->kept_count > codec->keep_count)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "payload keeps %u values, the round's codec %u",
                         (unsigned)h->kept_count, (unsigned)codec->keep_count);
    return OMM_OK;
}

static omm_err header_read(header *h, omm_reader *in, const omm_codec *codec,
                           const omm_layout *layout) {
    uint32_t magic = omm_read_u32(in);
    uint8_t version = omm_read_u8(in);
    uint8_t kind = omm_read_u8(in);
    uint8_t index = omm_read_u8(in);
    uint8_t zero = omm_read_u8(in);
    uint32_t value_count = omm_read_u32(in);
    h->kept_count = omm_read_u32(in);
    omm_bytes id = omm_read_bytes(in, 8);
    if (in->failed) return omm_raise(OMM_ERR_REFUSED_FORMAT, "payload ends within its header");
    if (magic != CODEC_MAGIC || version != CODEC_VERSION || index > INDEX_BITMAP || zero != 0)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "payload header is not version %u of ours",
                         CODEC_VERSION);
    h->index = (index_coding)index;
    OMM_TRY(header_check_kind(h, kind, codec));
    if (value_count != layout->value_count)
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "payload of %u values, the round has %zu",
                         (unsigned)value_count, layout->value_count);
    omm_digest own = omm_layout_digest(layout);
    if (memcmp(id.data, own.b, 8) != 0)
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "payload is of another layout");
    if (h->index == INDEX_ALL && h->kept_count != value_count)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "dense payload counts %u of %u values",
                         (unsigned)h->kept_count, (unsigned)value_count);
    return OMM_OK;
}

/* All of a payload is checked, and nothing read of it yet. */
static omm_err payload_check(code_reader *out, omm_bytes payload, const omm_codec *codec,
                             const omm_layout *layout) {
    header h = {0};
    index_walk indices;
    omm_reader in = omm_reader_of(payload);
    OMM_TRY(header_read(&h, &in, codec, layout));
    if ((payload.size - in.at) / code_width(codec->kind) < h.kept_count)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "payload of %zu bytes cannot hold %u values",
                         payload.size, (unsigned)h.kept_count);
    OMM_TRY(index_check(&indices, &in, h.index, h.kept_count, layout->value_count));
    return code_check(out, in, &indices, h.kept_count, codec->kind, layout);
}

/* The reader borrows from `sent` and `room`.  info may be NULL. */
static omm_err sent_check(code_reader *out, omm_encoded *info, omm_buf *room,
                          const omm_codec *codec, const omm_layout *layout, omm_bytes sent,
                          bool is_known) {
    omm_bytes payload;
    OMM_TRY(omm_codec_check(codec, layout));
    if (codec->zstd_level == 0 && sent.size > 0 && sent.data[0] != 0)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "packed payload, the round's codec packs none");
    OMM_TRY(frame_open(&payload, room, sent, omm_codec_payload_bytes_max(codec, layout)));
    OMM_TRY(payload_check(out, payload, codec, layout));
    if (is_known) OMM_TRY(frame_check_known(sent, payload));
    if (info) *info = sent_as(describe(payload, out->count), sent);
    return OMM_OK;
}

omm_err omm_codec_decode(float *values, omm_encoded *info, const omm_codec *codec,
                         const omm_layout *layout, omm_bytes sent) {
    code_reader reader;
    omm_buf room;
    omm_buf_init(&room, omm_codec_payload_bytes_max(codec, layout));
    omm_err err = sent_check(&reader, info, &room, codec, layout, sent, false);
    if (err == OMM_OK) code_read(values, &reader, layout->value_count);
    omm_buf_fini(&room);
    return err;
}

static omm_err each_piece(code_reader *reader, float *piece, omm_codec_each each, void *ud) {
    const size_t n = reader->layout->value_count;
    while (reader->at < n) {
        const size_t first = reader->at;
        const size_t left = n - first;
        const size_t count = left < OMM_CODEC_PIECE_VALUES ? left : OMM_CODEC_PIECE_VALUES;
        code_read(piece, reader, count);
        OMM_TRY(each(ud, first, piece, count));
    }
    return OMM_OK;
}

static omm_err walk(omm_encoded *info, const omm_codec *codec, const omm_layout *layout,
                    omm_bytes sent, omm_codec_each each, void *ud, bool is_known) {
    const size_t n = layout->value_count;
    code_reader reader;
    omm_buf room;
    omm_err err = OMM_OK;
    omm_buf_init(&room, omm_codec_payload_bytes_max(codec, layout));
    float *piece =
        omm_alloc_aligned(n < OMM_CODEC_PIECE_VALUES ? n : OMM_CODEC_PIECE_VALUES, sizeof *piece);
    if (!piece) err = omm_raise(OMM_ERR_NOMEM, "a piece of %zu values", n);
    if (err == OMM_OK) err = sent_check(&reader, info, &room, codec, layout, sent, is_known);
    if (err == OMM_OK) err = each_piece(&reader, piece, each, ud);
    omm_free(piece);
    omm_buf_fini(&room);
    return err;
}

omm_err omm_codec_walk(omm_encoded *info, const omm_codec *codec, const omm_layout *layout,
                       omm_bytes sent, omm_codec_each each, void *ud) {
    return walk(info, codec, layout, sent, each, ud, false);
}

omm_err omm_codec_walk_known(omm_encoded *info, const omm_codec *codec, const omm_layout *layout,
                             omm_bytes sent, omm_codec_each each, void *ud) {
    return walk(info, codec, layout, sent, each, ud, true);
}

/* x = delta + residual_in; decoded is scratch of the same size. */
static omm_err feedback_encode(omm_buf *sent, omm_encoded *info, float *x, float *decoded,
                               const omm_codec *codec, const omm_layout *layout) {
    size_t before = sent->size;
    OMM_TRY(omm_codec_encode(sent, info, codec, layout, x));
    omm_err err = omm_codec_decode(decoded, NULL, codec, layout,
                                   omm_bytes_of(sent->data + before, sent->size - before));
    if (err != OMM_OK) sent->size = before;
    return err;
}

omm_digest omm_residual_digest(const float *values, size_t value_count) {
    enum { PART = 256 };
    omm_hasher h;
    uint8_t bytes[sizeof(float) * PART] = {0};
    omm_hasher_init(&h);
    for (size_t i = 0; i < value_count;) {
        const size_t part = value_count - i < PART ? value_count - i : PART;
        for (size_t k = 0; values && k < part; k++)
            omm_put_f32(bytes + sizeof(float) * k, values[i + k]);
        omm_hasher_update(&h, omm_bytes_of(bytes, sizeof(float) * part));
        i += part;
    }
    return omm_hasher_final(&h);
}

omm_digest omm_residual_zero(size_t value_count) {
    return omm_residual_digest(NULL, value_count);
}

omm_err omm_feedback_encode(omm_buf *sent, omm_encoded *info, float *residual_out,
                            const omm_codec *codec, const omm_layout *layout, const float *delta,
                            const float *residual_in) {
    OMM_TRY(omm_codec_check(codec, layout));
    size_t n = layout->value_count;
    omm_encoded encoded;
    float *x = omm_alloc(n, sizeof *x);
    float *decoded = omm_alloc(n, sizeof *decoded);
    omm_err err = OMM_OK;
    if (!x || !decoded) {
        err = omm_raise(OMM_ERR_NOMEM, "error feedback of %zu values", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) x[i] = residual_in ? delta[i] + residual_in[i] : delta[i];
    OMM_TRY_OUT(feedback_encode(sent, &encoded, x, decoded, codec, layout));
    for (size_t i = 0; i < n; i++) residual_out[i] = x[i] - decoded[i];
    if (info) *info = encoded;
out:
    omm_free(x);
    omm_free(decoded);
    return err;
}
