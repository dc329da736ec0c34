/* render.h - the adapter file of a bundle, made from its record and flat values by the engine. */
#ifndef CLI_RENDER_H
#define CLI_RENDER_H

#include "omm/evidence.h"

/* An omm_render_adapter (verify.h): omm_lora_save of `values` in the layout of `run`.
 * Errors: MISMATCH (the layout is not that of rank, targets and layers), CONFIG, NOMEM, TOO_BIG,
 * NUMERIC. */
omm_err cli_render_adapter(void *ud, omm_buf *out, const omm_run_record *run, const float *values);

#endif
