/* profile.c - time by part of a forward pass. */
#include "omm/profile.h"

#include "omm/clock.h"
#include "omm/err.h"

static const char *const s_names[OMM_PROFILE_PARTS] = {
    "begin", "read",    "norm",       "quantise", "qkv", "positions", "attention",
    "out",   "gate_up", "activation", "down",     "add", "head"};

const char *omm_profile_part_name(omm_profile_part part) {
    OMM_ASSERT((unsigned)part < OMM_PROFILE_PARTS);
    return s_names[part];
}

void omm_profile_start(omm_profile *profile) {
    *profile = (omm_profile){.last_ns = omm_measure_ns()};
}

void omm_profile_add(omm_profile *profile, omm_profile_part part) {
    const uint64_t now = omm_measure_ns();
    profile->ns[part] += now - profile->last_ns;
    profile->last_ns = now;
}
