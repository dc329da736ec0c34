/* kernels_scalar_fma.c - the kernels for plain C where the processor has fused multiply-add. */
#define OMM_SIMD OMM_SIMD_SCALAR
#define KERNELS kernels_scalar_fma
#define KERNELS_Q8 q8_scalar_fma
#include "kernels_body.h"
