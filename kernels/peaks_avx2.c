/* peaks_avx2.c - the loops of omm_peaks for AVX2. */
#define OMM_SIMD OMM_SIMD_AVX2
#define PEAKS peaks_avx2
#include "peaks_body.h"
