/* weights.h - the lengths of a prefix code, by finite state entropy (RFC 8878, section 4.2.1.2). */
#ifndef COMPRESS_WEIGHTS_H
#define COMPRESS_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#define WEIGHTS_BYTES_MAX 127u

/* Write weights[n] of 0 .. 12; returns the bytes written, 0: these cannot be written so. */
size_t weights_write(uint8_t out[WEIGHTS_BYTES_MAX], const uint8_t *weights, size_t n);

#endif
