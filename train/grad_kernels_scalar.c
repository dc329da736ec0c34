/* Backward row kernels, scalar. */
#define GRAD_TABLE grad_kernels_scalar
#include "grad_kernels_body.h"
