/* autothreads.h - is one thread or are n threads faster on this machine now, for this model?
 *
 * Small models on busy or odd machines (a container with a share of one processor, cores of unlike
 * speed, a neighbour who takes them) run faster on one thread; no file of the kernel says so.
 * So the products of the model's layers are computed for a moment, in turns with 1 and n threads.
 * What is chosen never changes a result.
 *
 * Depends on: err, compute, model.  Threads: opens pools of its own.
 */
#ifndef OMM_AUTOTHREADS_H
#define OMM_AUTOTHREADS_H

#include "omm/compute.h"
#include "omm/err.h"
#include "omm/model.h"

#define OMM_AUTOTHREADS_MS 50u

typedef struct omm_autothreads {
    unsigned threads; /* 1 or n: n where it is at least a twentieth faster */
    double one, many; /* weights per second, the better of two turns */
} omm_autothreads;

/* rows: tokens computed together (1: decode; more: prefill, training), 1 to 64.  Takes about
 * OMM_AUTOTHREADS_MS, longer where a single product takes longer.  n 1: nothing is measured.
 * Errors: NOMEM, IO (no thread). */
OMM_CHECKED omm_err omm_autothreads_measure(omm_autothreads *out, const omm_model *model,
                                            omm_isa isa, unsigned n, unsigned rows);

#endif
