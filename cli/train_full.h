/* train_full.h - what `train --full` does otherwise: all weights of a small model instead of an adapter. */
#ifndef CLI_TRAIN_FULL_H
#define CLI_TRAIN_FULL_H

#include "train_run.h"

/* Errors: USAGE (an option about adapters), CONFIG (type). */
OMM_CHECKED omm_err train_full_check(const train_args *args);
/* r->full on the model, which becomes F32. */
OMM_CHECKED omm_err train_full_open(train_run *r);
/* The model as it is to be kept, in the type wanted; digest: of the file. */
OMM_CHECKED omm_err train_full_save(const train_run *r, omm_digest *digest);

#endif
