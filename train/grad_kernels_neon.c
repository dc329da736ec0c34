/* Backward row kernels, neon. */
#define GRAD_TABLE grad_kernels_neon
#include "grad_kernels_body.h"
