/* kernels_scalar.c - the kernels for plain C, the definition; fmaf is what the compiler makes of it (x86-64: a call). */
#define OMM_SIMD OMM_SIMD_SCALAR
#define KERNELS kernels_scalar
#define KERNELS_Q8 q8_scalar
#include "kernels_body.h"
