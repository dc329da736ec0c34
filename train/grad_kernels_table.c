/* grad_kernels_table.c - instruction set to table. */
#include "grad_kernels.h"

const grad_kernels *grad_kernels_of(omm_isa isa) {
    switch (isa) {
#if defined(__x86_64__)
    case OMM_ISA_SCALAR:
        return omm_isa_scalar_fuses() ? &grad_kernels_scalar_fma : &grad_kernels_scalar;
    case OMM_ISA_AVX2:
    case OMM_ISA_AVX2_VNNI: return &grad_kernels_avx2;
    case OMM_ISA_AVX512: return &grad_kernels_avx512;
#elif defined(__aarch64__)
    case OMM_ISA_NEON:
    case OMM_ISA_NEON_DOTPROD: return &grad_kernels_neon;
#endif
    default: return &grad_kernels_scalar;
    }
}
