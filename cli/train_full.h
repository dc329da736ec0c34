/* train_full.h - `meshmind train --full`: all weights of a small model instead of an adapter. */
#ifndef CLI_TRAIN_FULL_H
#define CLI_TRAIN_FULL_H

#include "train_options.h"

/* The whole command, from its options to the report.  Errors: USAGE (options that do not go together), those
 * of the parts. */
OMM_CHECKED omm_err train_full(const train_args *args);

#endif
