/* fuzz_compute.h - for fuzz targets: one omm_compute of one thread, from the first input that asks to the end
 * (tests/harness/fuzz_replay.c).  Its memory is large: made for each, it took most of a short input's time. */
#ifndef ENGINE_FUZZ_COMPUTE_H
#define ENGINE_FUZZ_COMPUTE_H

#include "omm/kernels.h"

void fuzz_end(void);

static omm_compute s_compute;
static bool s_has_compute;

static const omm_compute *fuzz_compute(void) {
    omm_isa isa;
    if (s_has_compute) return &s_compute;
    OMM_ASSERT(omm_isa_choose(&isa, NULL) == OMM_OK);
    OMM_ASSERT(omm_compute_init(&s_compute, NULL, isa) == OMM_OK);
    s_has_compute = true;
    return &s_compute;
}

void fuzz_end(void) {
    if (s_has_compute) omm_compute_fini(&s_compute);
    s_has_compute = false;
}

#endif
