/* federation_faults.c - networks that lose, double and damage messages: for fed_options.fault. */
#include "federation.h"

fed_fault fed_fault_once(void *ud, uint64_t index) {
    const fed_one_fault *one = ud;
    return index == one->index ? one->fault : FED_DELIVER;
}

fed_fault fed_fault_every_other(void *ud, uint64_t index) {
    const fed_fault *fault = ud;
    return index % 2 == 0 ? *fault : FED_DELIVER;
}

fed_fault fed_fault_often(void *ud, uint64_t index) {
    const omm_rng lane = omm_rng_init(ud, OMM_PURPOSE_TEST, 0, 0);
    const uint64_t lot = omm_rng_below(&lane, index, 12);
    if (lot == 0) return FED_LOSE_REPLY;
    if (lot == 1) return FED_TWICE;
    return lot == 2 ? FED_LOSE_REQUEST : FED_DELIVER;
}
