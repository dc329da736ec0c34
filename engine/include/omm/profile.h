/* profile.h - where the time of forward passes goes, part by part.
 *
 * A group that has been given a profile reads the clock between the steps of its passes (by the
 * thread that calls) and adds what has passed to the step that ends there: some ten readings of
 * 30 ns for a layer.  Without one it reads no clock.
 *
 * Depends on: clock.  Threads: a profile belongs to the thread of the group that has it.
 */
#ifndef OMM_PROFILE_H
#define OMM_PROFILE_H

#include <stdint.h>

typedef enum omm_profile_part {
    OMM_PROFILE_BEGIN,      /* embedding, looking up adapters */
    OMM_PROFILE_READ,       /* a streamed layer, from the file into strips */
    OMM_PROFILE_NORM,       /* of rows and of heads */
    OMM_PROFILE_QUANTISE,   /* activations to int8 */
    OMM_PROFILE_QKV,        /* products of queries, keys and values, adapters included */
    OMM_PROFILE_POSITIONS,  /* rotation, storing into the cache */
    OMM_PROFILE_ATTENTION,  /* over the cache */
    OMM_PROFILE_OUT,        /* product of attention's output */
    OMM_PROFILE_GATE_UP,    /* products of gate and up */
    OMM_PROFILE_ACTIVATION, /* gate times up */
    OMM_PROFILE_DOWN,       /* product */
    OMM_PROFILE_ADD,        /* into the residual stream, norms after a block included */
    OMM_PROFILE_HEAD,       /* product of the output matrix */
    OMM_PROFILE_PARTS
} omm_profile_part;

typedef struct omm_profile {
    uint64_t last_ns;               /* when the last step ended */
    uint64_t ns[OMM_PROFILE_PARTS]; /* measured */
} omm_profile;

/* "begin", "norm", ... */
const char *omm_profile_part_name(omm_profile_part part);
/* Forget everything and begin to count now. */
void omm_profile_start(omm_profile *profile);
/* What has passed since the last step ended belongs to `part`. */
void omm_profile_add(omm_profile *profile, omm_profile_part part);

#endif
