/* peaks_avx512.c - the loops of omm_peaks for AVX-512 with VNNI. */
#define OMM_SIMD OMM_SIMD_AVX512
#define PEAKS peaks_avx512
#include "peaks_body.h"
