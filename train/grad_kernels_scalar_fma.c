/* Backward row kernels, scalar, where the processor has fused multiply-add. */
#define GRAD_TABLE grad_kernels_scalar_fma
#include "grad_kernels_body.h"
