/* Backward row kernels, avx512. */
#define GRAD_TABLE grad_kernels_avx512
#include "grad_kernels_body.h"
