/* kernels_scalar.c - the kernels for plain C, the definition. */
#define OMM_SIMD OMM_SIMD_SCALAR
#define KERNELS kernels_scalar
#include "kernels_body.h"
