/* Values as f32, f16 or int8.  Every coding is a fixed point: coding what was decoded gives the
 * same bytes, which is what lets the decoder (read.c) refuse all other spellings.
 */
#include "internal.h"

#include "omm/mem.h"

#include <math.h>
#include <string.h>

size_t code_width(omm_codec_kind kind) {
    static const uint8_t widths[] = {
        [OMM_CODEC_NONE] = 4, [OMM_CODEC_F16] = 2, [OMM_CODEC_INT8] = 1};
    OMM_ASSERT((unsigned)kind < sizeof widths);
    return widths[kind];
}

/* Round to nearest even for |x| <= 2^21: adding 1.5 * 2^23 leaves no bits below 1. */
static int32_t round_even(float x) {
    float shifted = x + 0x1.8p23f;
    return (int32_t)(shifted - 0x1.8p23f);
}

/* max|v| / 127 rounded up to 16 significant bits, as the upper 24 bits of its f32. */
static uint32_t row_scale(float magnitude_max) {
    if (magnitude_max < OMM_CODEC_ROW_MIN) return 0;
    return (omm_f32_to_bits(magnitude_max / 127.0f) + 0xff) >> 8;
}

typedef struct coder {
    coded *out;
    kept *kept;
    const float *values;
    size_t count; /* entries written so far */
} coder;

/* Write one entry, or leave it out: a sparse selection keeps no zeros.  `at` >= coder.count, so
 * indices are compacted in place. */
static void coder_put(coder *c, size_t at, const uint8_t *code, size_t width, bool zero) {
    if (c->kept->indices) {
        if (zero) return;
        c->kept->indices[c->count] = c->kept->indices[at];
    }
    memcpy(c->out->codes + c->count * width, code, width);
    c->count++;
}

static void code_f32(coder *c) {
    for (size_t i = 0; i < c->kept->count; i++) {
        uint8_t code[4];
        float v = c->values[kept_index(c->kept, i)];
        if (v == 0.0f) v = 0.0f; /* -0 too */
        omm_put_f32(code, v);
        coder_put(c, i, code, sizeof code, v == 0.0f);
    }
}

static void code_f16(coder *c) {
    for (size_t i = 0; i < c->kept->count; i++) {
        uint8_t code[2];
        uint16_t h = omm_f32_to_f16(c->values[kept_index(c->kept, i)]);
        if (h == 0x8000) h = 0;
        omm_put_u16(code, h);
        coder_put(c, i, code, sizeof code, h == 0);
    }
}

/* Entries [at, stop) of one row. */
static void code_row(coder *c, size_t at, size_t stop) {
    float magnitude_max = 0.0f;
    for (size_t i = at; i < stop; i++) {
        float magnitude = fabsf(c->values[kept_index(c->kept, i)]);
        if (magnitude > magnitude_max) magnitude_max = magnitude;
    }
    uint32_t upper = row_scale(magnitude_max);
    float scale = omm_f32_of_bits(upper << 8);
    for (size_t i = at; i < stop; i++) {
        int32_t q = upper ? round_even(c->values[kept_index(c->kept, i)] / scale) : 0;
        uint8_t code = (uint8_t)(int8_t)q;
        coder_put(c, i, &code, 1, q == 0);
    }
    if (upper || !c->kept->indices) c->out->scales[c->out->scale_count++] = upper;
}

/* The end of the entries whose index is below `end`. */
static size_t row_stop(const kept *k, size_t at, size_t end) {
    if (!k->indices) return end;
    while (at < k->count && k->indices[at] < end) at++;
    return at;
}

static void code_int8(coder *c, const omm_layout *layout) {
    row_walk w = {.layout = layout};
    size_t at = 0;
    while (row_next(&w)) {
        size_t stop = row_stop(c->kept, at, w.end);
        if (stop > at) code_row(c, at, stop);
        at = stop;
    }
}

omm_err code_values(coded *out, kept *k, omm_codec_kind kind, const omm_layout *layout,
                    const float *values) {
    *out = (coded){0};
    size_t rows = omm_layout_rows(layout);
    if (kind == OMM_CODEC_INT8) out->scales = omm_alloc(rows, sizeof *out->scales);
    out->codes = omm_alloc(k->count, code_width(kind));
    if (!out->codes || (kind == OMM_CODEC_INT8 && !out->scales)) {
        coded_fini(out);
        return omm_raise(OMM_ERR_NOMEM, "codes of %zu values", k->count);
    }
    coder c = {.out = out, .kept = k, .values = values};
    switch (kind) {
    case OMM_CODEC_NONE: code_f32(&c); break;
    case OMM_CODEC_F16: code_f16(&c); break;
    case OMM_CODEC_INT8: code_int8(&c, layout); break;
    }
    k->count = c.count;
    return OMM_OK;
}

void coded_fini(coded *c) {
    omm_free(c->scales);
    omm_free(c->codes);
    *c = (coded){0};
}

omm_err code_write(omm_buf *out, const coded *c, size_t bytes) {
    uint8_t *p;
    OMM_TRY(omm_buf_extend(out, &p, c->scale_count * CODE_SCALE_BYTES));
    for (size_t i = 0; i < c->scale_count; i++, p += CODE_SCALE_BYTES) {
        p[0] = (uint8_t)c->scales[i];
        p[1] = (uint8_t)(c->scales[i] >> 8);
        p[2] = (uint8_t)(c->scales[i] >> 16);
    }
    return omm_buf_append(out, c->codes, bytes);
}
