/* packed_copy.h - the copy of a model that --packed keeps beside it. */
#ifndef CLI_PACKED_COPY_H
#define CLI_PACKED_COPY_H

#include "omm/packed.h"

#define CLI_PACKED_OPTION(out)                                                                     \
    {                                                                                              \
        "packed", 0, CLI_FLAG, out, NULL,                                                          \
            "keep a packed copy of the model beside it, as large as it is, and load that: at "     \
            "once, and --stream reads without packing"                                             \
    }

/* With `wanted`, the copy of what is open as `model`; where none can be used it is made by the threads of
 * `pool`.  Lines on stderr name it, or warn of what is in the way: then out->map is empty, and the model is
 * loaded as without.  Release with omm_packed_close, after the model. */
void cli_packed_open(omm_packed *out, bool wanted, const omm_gguf *gguf, const char *model,
                     omm_pool *pool);
/* omm_model_load_packed where the copy is open, else omm_model_load_streamed. */
OMM_CHECKED omm_err cli_packed_load(omm_model *model, const omm_packed *packed, omm_pool *pool,
                                    const omm_gguf *gguf, uint32_t resident);

#endif
