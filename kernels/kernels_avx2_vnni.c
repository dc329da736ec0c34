/* kernels_avx2_vnni.c - the kernels for AVX2 with AVX-VNNI. */
#define OMM_SIMD OMM_SIMD_AVX2
#define KERNELS_Q8 q8_avx2_vnni
#include "kernels_body.h"
_Static_assert(SIMD_ONE_DOT, "compiled for AVX2 alone");
