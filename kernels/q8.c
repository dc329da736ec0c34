/* q8.c - memory of int8 activations. */
#include "kernels_table.h"
#include "omm/mem.h"

/* Many rows: as far apart that the blocks of a token lie in all sets of a cache.  A power of two of rows would have
 * them share a few. */
size_t q8_stride(size_t rows) {
    const size_t period = 64; /* 2 KiB */
    return rows < period ? rows : (rows + period - 1) / period * period + period / 4;
}

omm_err omm_q8_rows_init(omm_q8_rows *rows, size_t rows_max, size_t cols_max) {
    const size_t blocks = (cols_max + OMM_QUANT_BLOCK - 1) / OMM_QUANT_BLOCK;
    const size_t stride = q8_stride(rows_max);
    omm_q8_rows r = {.rows_max = rows_max, .cols_max = blocks * OMM_QUANT_BLOCK};
    r.q = (int8_t *)omm_alloc_aligned(stride, r.cols_max);
    r.d = (float *)omm_alloc_aligned(stride * blocks, sizeof *r.d);
    r.sums = (int16_t *)omm_alloc_aligned(stride * blocks, 2 * sizeof *r.sums);
    r.weighted = (float *)omm_alloc_aligned(stride * blocks, 3 * sizeof *r.weighted);
    if (!r.q || !r.d || !r.sums || !r.weighted) {
        omm_q8_rows_fini(&r);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu x %zu int8 activations", rows_max,
                         cols_max);
    }
    *rows = r;
    return OMM_OK;
}

size_t omm_q8_rows_bytes(size_t rows_max, size_t cols_max) {
    const size_t blocks = (cols_max + OMM_QUANT_BLOCK - 1) / OMM_QUANT_BLOCK;
    return q8_stride(rows_max) * blocks *
           (OMM_QUANT_BLOCK + sizeof(float) * 4 + sizeof(int16_t) * 2);
}

void omm_q8_rows_fini(omm_q8_rows *rows) {
    omm_free(rows->q);
    omm_free(rows->d);
    omm_free(rows->sums);
    omm_free(rows->weighted);
    *rows = (omm_q8_rows){0};
}
