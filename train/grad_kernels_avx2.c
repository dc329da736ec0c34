/* Backward row kernels, avx2. */
#define GRAD_TABLE grad_kernels_avx2
#include "grad_kernels_body.h"
