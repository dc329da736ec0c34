/* huffman.h - prefix codes of bytes as a zstd frame has them (RFC 8878, section 4.2): made, described, written.
 *
 * Everything is in integers, so one block of bytes has one code and one description, on every machine and
 * with every version of whatever unpacks them.
 */
#ifndef COMPRESS_HUFFMAN_H
#define COMPRESS_HUFFMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUFFMAN_BITS_MAX 11u        /* of a code */
#define HUFFMAN_DESCRIPTION_MAX 129 /* bytes: a size or count, then at most 128 */

typedef struct huffman {
    uint8_t length[256]; /* bits of each byte's code; 0: it does not occur */
    uint16_t code[256];
    unsigned longest;
    uint8_t description[HUFFMAN_DESCRIPTION_MAX];
    size_t description_size;
} huffman;

/* The best code for bytes that occur `count` times each (their sum at most 2^17).
 * False: there is none that a frame could have (fewer than two bytes occur, or all 256 about as often). */
bool huffman_init(huffman *out, const uint32_t count[256]);

/* Bits that bytes of these counts take. */
uint64_t huffman_bits(const huffman *h, const uint32_t count[256]);

/* Write bytes[n] so that a reader who begins at the end finds them in order; returns the bytes written, at
 * most n * HUFFMAN_BITS_MAX / 8 + 1. */
size_t huffman_write(uint8_t *out, const huffman *h, const uint8_t *bytes, size_t n);

#endif
