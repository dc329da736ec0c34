/* packed_copy.c - see packed_copy.h. */
#include "packed_copy.h"

#include "omm/clock.h"
#include "omm/plan.h"

#include <stdio.h>

/* Somebody else's is left alone; what cannot be used is made anew, and why is said. */
static bool is_to_be_made(omm_err err) {
    const bool is_void = omm_packed_is_void(err);
    if (is_void && err != OMM_ERR_NOT_FOUND)
        fprintf(stderr, "packed copy: %s\n", omm_err_sentence());
    return is_void;
}

static omm_err make_and_open(omm_packed *out, const omm_gguf *gguf, const char *model,
                             omm_pool *pool) {
    const omm_err none = omm_packed_open(out, gguf, model);
    if (none == OMM_OK || !is_to_be_made(none)) return none;
    const uint64_t start = omm_measure_ns();
    OMM_TRY(omm_packed_make(out, gguf, model, pool));
    fprintf(stderr, "packed copy: made in %.1f s\n", (double)(omm_measure_ns() - start) * 1e-9);
    return OMM_OK;
}

void cli_packed_open(omm_packed *out, bool wanted, const omm_gguf *gguf, const char *model,
                     omm_pool *pool) {
    char bytes[32];
    *out = (omm_packed){0};
    if (!wanted) return;
    if (make_and_open(out, gguf, model, pool) != OMM_OK) {
        fprintf(stderr,
                "meshmind: warning: no packed copy: %s; loading the model as without --packed\n",
                omm_err_sentence());
        return;
    }
    omm_plan_bytes_text(bytes, out->map.view.size);
    fprintf(stderr, "packed copy: %s, %s\n", out->path, bytes);
}

omm_err cli_packed_load(omm_model *model, const omm_packed *packed, omm_pool *pool,
                        const omm_gguf *gguf, uint32_t resident) {
    if (packed->map.view.size > 0) return omm_model_load_packed(model, gguf, packed, resident);
    return omm_model_load_streamed(model, pool, gguf, resident);
}
