/* kernels_neon.c - the kernels for AArch64 NEON. */
#define OMM_SIMD OMM_SIMD_NEON
#define KERNELS kernels_neon
#define KERNELS_Q8 q8_neon
#include "kernels_body.h"
