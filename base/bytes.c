#include "omm/bytes.h"
#include "omm/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BUF_BYTES_MIN 64u

omm_bytes omm_bytes_str(const char *text) {
    return omm_bytes_of(text, strlen(text));
}

bool omm_bytes_equal(omm_bytes a, omm_bytes b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

void omm_buf_init(omm_buf *buf, size_t bytes_max) {
    *buf = (omm_buf){.bytes_max = bytes_max};
}

void omm_buf_fini(omm_buf *buf) {
    omm_free(buf->data);
    omm_buf_init(buf, buf->bytes_max);
}

void omm_buf_clear(omm_buf *buf) {
    buf->size = 0;
}

omm_err omm_buf_reserve(omm_buf *buf, size_t more) {
    if (more <= buf->capacity - buf->size) return OMM_OK;
    if (buf->size > buf->bytes_max || more > buf->bytes_max - buf->size)
        return omm_raise(OMM_ERR_TOO_BIG, "buffer of %zu bytes cannot take %zu more: limit %zu",
                         buf->size, more, buf->bytes_max);
    size_t capacity = buf->capacity < BUF_BYTES_MIN ? BUF_BYTES_MIN : buf->capacity;
    capacity = capacity > buf->bytes_max / 2 ? buf->bytes_max : capacity * 2;
    if (capacity < buf->size + more) capacity = buf->size + more;
    uint8_t *data = omm_grow(buf->data, buf->capacity, capacity, 1);
    if (!data) return omm_raise(OMM_ERR_NOMEM, "buffer of %zu bytes", capacity);
    buf->data = data;
    buf->capacity = capacity;
    return OMM_OK;
}

omm_err omm_buf_append(omm_buf *buf, const void *data, size_t size) {
    if (size == 0) return OMM_OK; /* data may be NULL */
    OMM_TRY(omm_buf_reserve(buf, size));
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    return OMM_OK;
}

omm_err omm_buf_extend(omm_buf *buf, uint8_t **added, size_t size) {
    OMM_TRY(omm_buf_reserve(buf, size));
    *added = buf->data ? buf->data + buf->size : NULL; /* NULL only where size is 0 */
    if (*added) memset(*added, 0, size);
    buf->size += size;
    return OMM_OK;
}

/* The text is made apart: its NUL must not count against bytes_max. */
omm_err omm_buf_printf(omm_buf *buf, const char *fmt, ...) {
    char small[512];
    va_list ap;
    va_start(ap, fmt);
    int size = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (size < 0) return omm_raise(OMM_ERR_FORMAT, "text cannot be formatted");
    if ((size_t)size < sizeof small) return omm_buf_append(buf, small, (size_t)size);

    OMM_TRY(omm_buf_reserve(buf, (size_t)size)); /* the limit first */
    char *large = omm_alloc((size_t)size + 1, 1);
    if (!large) return omm_raise(OMM_ERR_NOMEM, "text of %d bytes", size);
    va_start(ap, fmt);
    vsnprintf(large, (size_t)size + 1, fmt, ap);
    va_end(ap);
    omm_err err = omm_buf_append(buf, large, (size_t)size);
    omm_free(large);
    return err;
}

omm_err omm_buf_put_u32(omm_buf *buf, uint32_t v) {
    uint8_t le[4];
    omm_put_u32(le, v);
    return omm_buf_append(buf, le, sizeof le);
}

omm_err omm_buf_put_u64(omm_buf *buf, uint64_t v) {
    uint8_t le[8];
    omm_put_u64(le, v);
    return omm_buf_append(buf, le, sizeof le);
}

/* Little-endian by shifts: the same on every machine, one instruction after optimisation. */

uint16_t omm_get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t omm_get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t omm_get_u64(const uint8_t *p) {
    return (uint64_t)omm_get_u32(p) | (uint64_t)omm_get_u32(p + 4) << 32;
}

float omm_get_f32(const uint8_t *p) {
    return omm_f32_of_bits(omm_get_u32(p));
}

void omm_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void omm_put_u32(uint8_t *p, uint32_t v) {
    omm_put_u16(p, (uint16_t)v);
    omm_put_u16(p + 2, (uint16_t)(v >> 16));
}

void omm_put_u64(uint8_t *p, uint64_t v) {
    omm_put_u32(p, (uint32_t)v);
    omm_put_u32(p + 4, (uint32_t)(v >> 32));
}

void omm_put_f32(uint8_t *p, float v) {
    omm_put_u32(p, omm_f32_to_bits(v));
}

/* half: sign 1, exponent 5 (bias 15), mantissa 10; float: sign 1, exponent 8 (bias 127), mantissa 23 */

float omm_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1f) {
        uint32_t quiet = mantissa ? 0x400000u : 0;
        return omm_f32_of_bits(sign | 0x7f800000u | quiet | mantissa << 13);
    }
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact in a float */
        float v = (float)mantissa * 0x1p-24f;
        return omm_f32_of_bits(sign | omm_f32_to_bits(v));
    }
    return omm_f32_of_bits(sign | (exponent + (127 - 15)) << 23 | mantissa << 13);
}

/* value >> shift, to nearest, ties to even; 0 < shift < 32. */
static uint32_t shift_to_even(uint32_t value, unsigned shift) {
    uint32_t half = 1u << (shift - 1);
    uint32_t rest = value & ((half << 1) - 1);
    uint32_t kept = value >> shift;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t omm_f32_to_f16(float v) {
    uint32_t bits = omm_f32_to_bits(v);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7e00;
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (rest < 0x33000000u) return (uint16_t)sign;              /* below 2^-25 */
    uint32_t exponent = rest >> 23;
    uint32_t mantissa = (rest & 0x7fffffu) | 0x800000u;
    if (exponent < 113) /* subnormal half: count 2^-24 in the value */
        return (uint16_t)(sign | shift_to_even(mantissa, 126 - exponent));
    /* A carry out of the mantissa moves into the exponent, which is what rounding wants. */
    return (uint16_t)(sign | shift_to_even(rest - (112u << 23), 13));
}

omm_reader omm_reader_of(omm_bytes in) {
    return (omm_reader){.in = in};
}

omm_bytes omm_read_bytes(omm_reader *r, size_t size) {
    if (r->failed || size > r->in.size - r->at) {
        r->failed = true;
        return (omm_bytes){NULL, 0};
    }
    omm_bytes view = {r->in.data ? r->in.data + r->at : NULL, size};
    r->at += size;
    return view;
}

uint8_t omm_read_u8(omm_reader *r) {
    omm_bytes b = omm_read_bytes(r, 1);
    return b.data ? b.data[0] : 0;
}

uint16_t omm_read_u16(omm_reader *r) {
    omm_bytes b = omm_read_bytes(r, 2);
    return b.data ? omm_get_u16(b.data) : 0;
}

uint32_t omm_read_u32(omm_reader *r) {
    omm_bytes b = omm_read_bytes(r, 4);
    return b.data ? omm_get_u32(b.data) : 0;
}

uint64_t omm_read_u64(omm_reader *r) {
    omm_bytes b = omm_read_bytes(r, 8);
    return b.data ? omm_get_u64(b.data) : 0;
}

float omm_read_f32(omm_reader *r) {
    return omm_f32_of_bits(omm_read_u32(r));
}

void omm_hex(char *out, omm_bytes in) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < in.size; i++) {
        out[2 * i] = digits[in.data[i] >> 4];
        out[2 * i + 1] = digits[in.data[i] & 15];
    }
    out[2 * in.size] = '\0';
}

/* Value of a digit plus one; 0: it is none. */
static const uint8_t s_digit[256] = {
    ['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

static unsigned digit_of(char c) {
    return s_digit[(uint8_t)c];
}

omm_err omm_unhex(uint8_t *out, size_t size, const char *hex) {
    size_t digits = strlen(hex);
    bool valid = size <= SIZE_MAX / 2 && digits == 2 * size;
    for (size_t i = 0; valid && i < digits; i++) valid = digit_of(hex[i]) != 0;
    if (!valid)
        return omm_raise(OMM_ERR_FORMAT, "want %zu lower-case hex digits, found \"%.80s\"",
                         2 * size, hex);
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)((digit_of(hex[2 * i]) - 1) << 4 | (digit_of(hex[2 * i + 1]) - 1));
    return OMM_OK;
}
