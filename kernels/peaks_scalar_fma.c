/* peaks_scalar_fma.c - the loops of omm_peaks for plain C where the processor has fused multiply-add. */
#define OMM_SIMD OMM_SIMD_SCALAR
#define PEAKS peaks_scalar_fma
#include "peaks_body.h"
