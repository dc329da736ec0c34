/* render.h - the adapter file of a bundle, made from its record and flat values by the engine. */
#ifndef CLI_RENDER_H
#define CLI_RENDER_H

#include "omm/evidence.h"

typedef struct cli_render {
    const char *
        dir; /* of the bundle: whose final.gguf says how wide the layers are, where only cores travel */
} cli_render;

/* An omm_render_adapter (verify.h): the file of omm_federated_save of `values` in the layout of `run`.
 * ud: a cli_render; NULL: no run of cores.  Errors: MISMATCH (the layout is not that of rank, targets and
 * layers, or of the recipe), CONFIG, NOMEM, TOO_BIG, NUMERIC, and those of reading final.gguf. */
omm_err cli_render_adapter(void *ud, omm_buf *out, const omm_run_record *run, const float *values);

#endif
