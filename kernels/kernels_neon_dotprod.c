/* kernels_neon_dotprod.c - the kernels for AArch64 NEON with products of bytes (ASIMDDP). */
#define OMM_SIMD OMM_SIMD_NEON
#define KERNELS_Q8 q8_neon_dotprod
#include "kernels_body.h"
_Static_assert(SIMD_ONE_DOT, "compiled for NEON alone");
