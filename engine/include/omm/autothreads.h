/* autothreads.h - is one thread or are n threads faster on this machine now, for this model?
 *
 * Small models on busy or odd machines (a container with a share of one processor, cores of unlike
 * speed, a neighbour who takes them) run faster on one thread; no file of the kernel says so.
 * So the products of the model's layers are computed for a moment, in turns with 1 and n threads: the very products
 * that decoding or training will use.  What is chosen never changes a result.
 *
 * Depends on: err, compute, model, session (its activations).  Threads: opens pools of its own.
 */
#ifndef OMM_AUTOTHREADS_H
#define OMM_AUTOTHREADS_H

#include "omm/compute.h"
#include "omm/err.h"
#include "omm/model.h"
#include "omm/session.h"

#define OMM_AUTOTHREADS_MS 50u

typedef struct omm_autothreads_options {
    unsigned n;    /* threads to compare with one; 1: nothing is measured */
    unsigned rows; /* tokens computed together (1: decode; more: prefill, training), 1 to 64 */
    omm_activations
        activations; /* of the session; in int8, quantised matrices take the product of that mode */
    uint64_t budget_ns;           /* of all turns; 0: OMM_AUTOTHREADS_MS */
    uint64_t (*now_ns)(void *ud); /* NULL: the clock */
    void *ud;
} omm_autothreads_options;

typedef struct omm_autothreads {
    unsigned threads;  /* what omm_autothreads_choose says of: */
    double one, many;  /* weights per second, the better of two turns; 0: not measured */
    uint64_t spent_ns; /* in turns: the budget, and of each turn at most one product more */
    uint32_t products, products_q8; /* measured; of them with activations in int8 */
} omm_autothreads;

/* n where it is at least a twentieth faster than one thread, else 1. */
unsigned omm_autothreads_choose(double one, double many, unsigned n);

/* Each turn computes at least one product, however long that takes.
 * Errors: NOMEM, IO (no thread). */
OMM_CHECKED omm_err omm_autothreads_measure(omm_autothreads *out, const omm_model *model,
                                            omm_isa isa, const omm_autothreads_options *options);

#endif
