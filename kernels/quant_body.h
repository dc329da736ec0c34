/* quant_body.h - packed weights back into vectors; part of kernels_body.h.
 *
 * One description for all formats (quant_layout.h): inlined with a constant format, the conditions
 * on it fold away and what is left is the loads, shifts and masks of that format.
 */

/* X(format) for every quantised one whose strips are like no other's: those that most models have, and the rest. */
#define QUANT_OFTEN(X) X(Q8_0) X(Q4_0) X(Q4_K) X(Q5_K) X(Q6_K)
#define QUANT_SELDOM(X) X(Q4_1) X(Q5_0) X(Q5_1) X(IQ4_NL) X(Q2_K) X(Q3_K) X(IQ4_XS) X(TQ1_0)
#define QUANT_FORMATS(X) QUANT_OFTEN(X) QUANT_SELDOM(X)
/* X(format, whose kernels it has): strips of TQ2_0 hold what those of TQ1_0 do. */
#define QUANT_KERNELS(X)                                                                           \
    X(Q8_0, Q8_0)                                                                                  \
    X(Q4_0, Q4_0)                                                                                  \
    X(Q4_K, Q4_K)                                                                                  \
    X(Q5_K, Q5_K)                                                                                  \
    X(Q6_K, Q6_K)                                                                                  \
    X(Q4_1, Q4_1)                                                                                  \
    X(Q5_0, Q5_0)                                                                                  \
    X(Q5_1, Q5_1)                                                                                  \
    X(IQ4_NL, IQ4_NL)                                                                              \
    X(Q2_K, Q2_K)                                                                                  \
    X(Q3_K, Q3_K) X(IQ4_XS, IQ4_XS) X(TQ1_0, TQ1_0) X(TQ2_0, TQ1_0)

/* Bits of a plane are moved from where they lie to where they belong in each byte. */
SIMD_INLINE vi quant_bits(vi v, const int from, const int to, const int mask) {
    if (from > to) v = vi_sar(v, from - to);
    if (from < to) v = vi_shl(v, to - from);
    return vi_and(v, vi_set1(mask * 0x01010101 << to));
}

/* The stored quants of columns 4 g .. 4 g + 3 of a chunk of 32; codebook values where there is one. */
SIMD_INLINE vi quant_group(const omm_format format, const uint8_t *chunk, const int g) {
    const unsigned planes = QUANT_LAYOUT[format].planes;
    if (planes & QUANT_PLANE_8) return vi_load(chunk + (ptrdiff_t)64 * g);
    vi q = vi_set1(0);
    int bits = 0;
    if (planes & QUANT_PLANE_4) {
        q = quant_bits(vi_load(chunk + (ptrdiff_t)64 * (g % 4)), 4 * (g / 4), 0, 15);
        chunk += 256;
        bits = 4;
    }
    if (planes & QUANT_PLANE_2) {
        vi pair = quant_bits(vi_load(chunk + (ptrdiff_t)64 * (g % 2)), 2 * (g / 2), bits, 3);
        q = bits ? vi_or(q, pair) : pair;
        chunk += 128;
        bits += 2;
    }
    if (planes & QUANT_PLANE_1) q = vi_or(q, quant_bits(vi_load(chunk), g, bits, 1));
    return QUANT_LAYOUT[format].table ? vi_lookup(QUANT_IQ4, q) : q;
}

/* Scale and minimum of sub-block j of a block, as omm/quant.h defines values; 0 without a minimum. */
SIMD_INLINE void quant_scale(const omm_format format, vf *scale, vf *min, const uint8_t *block,
                             size_t j) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    const uint16_t *halves = (const uint16_t *)(const void *)block;
    const uint8_t *subs = block + quant_subs_at(l) + j * OMM_STRIP;
    const size_t minima = (size_t)l->block / l->sub * OMM_STRIP;
    const vf d = vf_load_f16(halves);
    *scale = d;
    *min = l->has_min ? vf_load_f16(halves + VL) : vf_zero();
    if (l->subs == QUANT_SUBS_SIGNED)
        *scale = vf_mul(d, vf_from_vi(vi_load_i8((const int8_t *)subs)));
    if (l->subs == QUANT_SUBS_MINIMA) {
        *scale = vf_mul(d, vf_from_vi(vi_load_u8(subs)));
        *min = vf_mul(*min, vf_from_vi(vi_load_u8(subs + minima)));
    }
    if (l->subs == QUANT_SUBS_NIBBLES) {
        const vi both = vi_load_u8(subs);
        *scale = vf_mul(d, vf_from_vi(vi_and(both, vi_set1(15))));
        *min = vf_mul(*min, vf_from_vi(vi_sar(both, 4)));
    }
}

/* Byte j of each lane as a number. */
SIMD_INLINE vf quant_value(const omm_format format, vi v, const int j) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    if ((l->planes & QUANT_PLANE_8) || l->table)
        return vf_from_vi(vi_sar(j < 3 ? vi_shl(v, 24 - 8 * j) : v, 24));
    vi q = vi_and(j > 0 ? vi_sar(v, 8 * j) : v, vi_set1(255));
    return vf_from_vi(l->bias ? vi_sub(q, vi_set1(l->bias)) : q);
}

/* Columns 16 half .. + 16 of a chunk. */
SIMD_INLINE void quant_half(const omm_format format, const int half, vf r[VL], const uint8_t *chunk,
                            vf scale, vf min) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    SIMD_UNROLL for (int g = 0; g < 4; g++) {
        const vi v = quant_group(format, chunk, half * 4 + g);
        SIMD_UNROLL for (int j = 0; j < 4; j++) {
            const vf x = vf_mul(scale, quant_value(format, v, j));
            r[4 * g + j] = !l->has_min                  ? x
                           : l->subs == QUANT_SUBS_NONE ? vf_add(x, min)
                                                        : vf_sub(x, min);
        }
    }
}

/* r[j] = column `column` + j of the strip, lane = row; column is a multiple of 16. */
SIMD_INLINE void quant_load16(const omm_format format, vf r[VL], const uint8_t *strip,
                              size_t column) {
    const quant_layout *l = &QUANT_LAYOUT[format];
    const uint8_t *block = strip + column / l->block * quant_block_bytes(l);
    const size_t k = column % l->block;
    const uint8_t *chunk = block + quant_planes_at(l) + k / OMM_QUANT_BLOCK * quant_chunk_bytes(l);
    vf scale, min;
    quant_scale(format, &scale, &min, block, k / l->sub);
    if (k % OMM_QUANT_BLOCK == 0)
        quant_half(format, 0, r, chunk, scale, min);
    else
        quant_half(format, 1, r, chunk, scale, min);
}
