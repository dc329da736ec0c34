/* seed.c - where a node's randomness comes from: the round's nonce and its own id, nothing else. */
#include "omm/training.h"

#include <string.h>

omm_seed omm_training_seed(const uint8_t nonce[32], const omm_digest *node_id) {
    omm_seed parent;
    memcpy(parent.b, nonce, sizeof parent.b);
    return omm_seed_derive(&parent, OMM_PURPOSE_TRAIN, omm_bytes_of(node_id->b, sizeof node_id->b));
}
