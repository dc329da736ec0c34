/* q8_cache.h - for tests: how far a Q8_0 cache of keys and values takes a model from an F16 one. */
#ifndef ENGINE_Q8_CACHE_H
#define ENGINE_Q8_CACHE_H

#include "omm/compute.h"
#include "omm/model.h"

#include <stddef.h>
#include <stdint.h>

/* What is asked for.  Measured: see docs/measurements/serving.md. */
#define Q8_CACHE_KL_MAX 1e-3

/* Mean over positions of the divergence of the next token's distribution, nats, from that with an F16
 * cache, of ids[count] in batches of 256. */
double q8_cache_kl(const omm_compute *c, const omm_model *model, const uint32_t *ids, size_t count);

#endif
