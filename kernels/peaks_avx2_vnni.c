/* peaks_avx2_vnni.c - the loops of omm_peaks for AVX2 with AVX-VNNI. */
#define OMM_SIMD OMM_SIMD_AVX2
#define PEAKS peaks_avx2_vnni
#include "peaks_body.h"
_Static_assert(SIMD_ONE_DOT, "compiled for AVX2 alone");
