/* bytes.h - borrowed views, owned buffers, and little-endian readers and writers over them.
 *
 *   omm_bytes   pointer + size, borrowed: valid as long as what it points into
 *   omm_buf     owned, grows up to bytes_max, freed by omm_buf_fini
 *   omm_reader  walks an omm_bytes; the first failure sticks, so check once at the end
 *
 * Depends on: err, mem.  Threads: no shared state.
 */
#ifndef OMM_BYTES_H
#define OMM_BYTES_H

#include "omm/err.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct omm_bytes {
    const uint8_t *data;
    size_t size;
} omm_bytes;

static inline omm_bytes omm_bytes_of(const void *data, size_t size) {
    return (omm_bytes){(const uint8_t *)data, size};
}
/* View of a NUL-terminated string, without the NUL. */
omm_bytes omm_bytes_str(const char *text);
bool omm_bytes_equal(omm_bytes a, omm_bytes b);

typedef struct omm_buf {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t bytes_max;
} omm_buf;

void omm_buf_init(omm_buf *buf, size_t bytes_max);
void omm_buf_fini(omm_buf *buf);
void omm_buf_clear(omm_buf *buf); /* size = 0, memory kept */
static inline omm_bytes omm_buf_view(const omm_buf *buf) {
    return (omm_bytes){buf->data, buf->size};
}
/* All: Errors: NOMEM, TOO_BIG (over bytes_max).  On error the buffer's content is unchanged.
 * `data` and printf arguments must not point into the buffer itself. */
OMM_CHECKED omm_err omm_buf_reserve(omm_buf *buf, size_t more);
OMM_CHECKED omm_err omm_buf_append(omm_buf *buf, const void *data, size_t size);
OMM_CHECKED omm_err omm_buf_extend(omm_buf *buf, uint8_t **added, size_t size); /* zeroed tail */
OMM_CHECKED omm_err omm_buf_printf(omm_buf *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
OMM_CHECKED omm_err omm_buf_put_u32(omm_buf *buf, uint32_t v);
OMM_CHECKED omm_err omm_buf_put_u64(omm_buf *buf, uint64_t v);

/* Unaligned little-endian access. */
uint16_t omm_get_u16(const uint8_t *p);
uint32_t omm_get_u32(const uint8_t *p);
uint64_t omm_get_u64(const uint8_t *p);
float omm_get_f32(const uint8_t *p);
void omm_put_u16(uint8_t *p, uint16_t v);
void omm_put_u32(uint8_t *p, uint32_t v);
void omm_put_u64(uint8_t *p, uint64_t v);
void omm_put_f32(uint8_t *p, float v);

/* A float and a double as their bits, and back: every one there and back unchanged, NaN too. */
static inline uint32_t omm_f32_to_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
/* For a message: a value that is no number is "nan" then, whatever its bits; printf writes "-nan" of some. */
static inline double omm_nan_plain(double v) {
    return isnan(v) ? (double)NAN : v;
}
static inline float omm_f32_of_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline uint64_t omm_f64_to_bits(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline double omm_f64_of_bits(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* IEEE half precision.  Widening is exact (a NaN keeps sign and payload and becomes quiet, as F16C
 * does); narrowing rounds to nearest even, from 65520 on to infinity; every NaN becomes 0x7e00. */
float omm_f16_to_f32(uint16_t h);
uint16_t omm_f32_to_f16(float v);

typedef struct omm_reader {
    omm_bytes in;
    size_t at;
    bool failed; /* a read went past the end; every later read gives 0 */
} omm_reader;

omm_reader omm_reader_of(omm_bytes in);
uint8_t omm_read_u8(omm_reader *r);
uint16_t omm_read_u16(omm_reader *r);
uint32_t omm_read_u32(omm_reader *r);
uint64_t omm_read_u64(omm_reader *r);
float omm_read_f32(omm_reader *r);
omm_bytes omm_read_bytes(omm_reader *r, size_t size); /* borrowed view; empty on failure */

/* Lower-case hexadecimal.  `out` holds 2 * size + 1 characters. */
void omm_hex(char *out, omm_bytes in);
/* Errors: FORMAT (not exactly 2 * size hex digits; upper case is refused). */
OMM_CHECKED omm_err omm_unhex(uint8_t *out, size_t size, const char *hex);

#endif
