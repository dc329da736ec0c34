/* threads.h - the option --threads N|auto. */
#ifndef CLI_THREADS_H
#define CLI_THREADS_H

#include "omm/compute.h"
#include "omm/model.h"
#include "omm/session.h"

#define CLI_THREADS_HELP "threads; one per core by default; auto: measure 1 against that"

/* text: the option's value, or NULL if it was not given: then *out is one per physical core.
 * "auto" gives 0: call cli_threads_measure when the model is there.
 * Errors: USAGE (says what is accepted). */
OMM_CHECKED omm_err cli_threads_parse(unsigned *out, const char *text);

/* If *threads is 0: measure (omm/autothreads.h) and say on stderr what was chosen.
 * rows, activations: as there, 1 and the session's for decoding.  Errors: NOMEM, IO. */
OMM_CHECKED omm_err cli_threads_measure(unsigned *threads, const omm_model *model, omm_isa isa,
                                        unsigned rows, omm_activations activations);
/* The same for a model that is to be trained, in f32, and not loaded yet: loads it for the measurement only.
 * Errors: also those of loading. */
OMM_CHECKED omm_err cli_threads_measure_file(unsigned *threads, const char *model, omm_isa isa,
                                             unsigned rows);

#endif
