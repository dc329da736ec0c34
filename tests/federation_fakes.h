/* federation_fakes.h - a training and an evaluation that are plain arithmetic, for federation.c alone. */
#ifndef TESTS_FEDERATION_FAKES_H
#define TESTS_FEDERATION_FAKES_H

#include "federation.h"

#define FED_SHARDS 2u
#define FED_STEPS 3u
extern const omm_coord_shard fed_shards[FED_SHARDS]; /* public data of canaries */

omm_digest fed_data(const fed *f, uint32_t node); /* what a simulated node is said to have */
/* Of node `node`; the caller closes it. */
omm_training *fed_training_open(const fed *f, uint32_t node);
/* An omm_canary_train_fn, ud: the federation. */
OMM_CHECKED omm_err fed_train_again(void *ud, omm_canary_trained *out, float *values,
                                    const omm_canary_job *job);
omm_coord_values fed_initial(fed *f);
omm_coord_evaluator fed_evaluator(fed *f);

#endif
