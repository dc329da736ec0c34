/* peaks_neon_dotprod.c - the loops of omm_peaks for AArch64 NEON with products of bytes (ASIMDDP). */
#define OMM_SIMD OMM_SIMD_NEON
#define PEAKS peaks_neon_dotprod
#include "peaks_body.h"
_Static_assert(SIMD_ONE_DOT, "compiled for NEON alone");
