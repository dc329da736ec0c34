/* peaks_neon.c - the loops of omm_peaks for NEON. */
#define OMM_SIMD OMM_SIMD_NEON
#define PEAKS peaks_neon
#include "peaks_body.h"
