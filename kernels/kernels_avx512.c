/* kernels_avx512.c - the kernels for AVX-512 with VNNI. */
#define OMM_SIMD OMM_SIMD_AVX512
#define KERNELS kernels_avx512
#define KERNELS_Q8 q8_avx512
#include "kernels_body.h"
