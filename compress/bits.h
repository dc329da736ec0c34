/* bits.h - bits into bytes, the first ones lowest, as a zstd frame has them. */
#ifndef COMPRESS_BITS_H
#define COMPRESS_BITS_H

#include <stddef.h>
#include <stdint.h>

typedef struct bit_writer {
    uint8_t *out;
    size_t size;
    uint64_t bits;
    unsigned count; /* below 32 between calls */
} bit_writer;

/* value below 2^count, count <= 32 */
static inline void bits_put(bit_writer *w, uint32_t value, unsigned count) {
    w->bits |= (uint64_t)value << w->count;
    w->count += count;
    if (w->count < 32) return;
    for (int i = 0; i < 4; i++) w->out[w->size++] = (uint8_t)(w->bits >> (8 * i));
    w->bits >>= 32;
    w->count -= 32;
}

/* What is left, the last byte filled up with zeros. */
static inline void bits_end(bit_writer *w) {
    for (unsigned done = 0; done < w->count; done += 8)
        w->out[w->size++] = (uint8_t)(w->bits >> done);
    w->bits = 0;
    w->count = 0;
}

#endif
