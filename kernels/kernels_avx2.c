/* kernels_avx2.c - the kernels for AVX2, FMA and F16C. */
#define OMM_SIMD OMM_SIMD_AVX2
#define KERNELS kernels_avx2
#define KERNELS_Q8 q8_avx2
#include "kernels_body.h"
