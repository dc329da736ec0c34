/* update.h - from the gradient of a batch to the next values and their digest, by all threads.
 *
 * What moves is cut into parts of whole tensors, which threads take in order: clip and move.  The digest
 * of a step is one hash over all values, a chain that one thread goes along while the others move
 * what comes next; where it would wait, it moves a part itself.  Elements and tensors are independent,
 * so who does what changes no bit.  Inside train only.  No allocation.
 */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "omm/hash.h"
#include "omm/kernels.h"
#include "omm/lora.h"
#include "omm/recipe.h"

struct adamw_state;

/* Values of the largest tensor: the room that update_turn_b needs for each worker. */
size_t update_room(const omm_lora *lora);

/* The graph leaves B's gradient as [rank][d_out]; the adapter has [d_out][rank].
 * gradient[value_count]; room[workers][update_room(lora)]. */
void update_turn_b(const omm_compute *compute, float *gradient, const omm_lora *lora, float *room);

/* FedProx: s->gradient += mu * (s->values - s->start), over s->count. */
void update_prox(const omm_compute *compute, struct adamw_state *s, float mu);

/* All borrowed; lengths as optimizer.h has them. */
typedef struct update {
    const omm_compute *compute;
    const omm_recipe *recipe;
    omm_lora *lora;  /* what moves */
    float *gradient; /* clipped */
    float *m, *v;
    double norm;        /* of the gradient, as adamw_norm says */
    float rate;         /* of this step */
    uint32_t step;      /* 1 .. */
    omm_hasher *hasher; /* goes on over the new values; NULL: nothing is hashed */
} update;
void update_run(const update *u);

#endif
