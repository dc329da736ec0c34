/* peaks_scalar.c - the loops of omm_peaks for plain C. */
#define OMM_SIMD OMM_SIMD_SCALAR
#define PEAKS peaks_scalar
#include "peaks_body.h"
