/* threads.c - see threads.h. */
#include "threads.h"

#include "omm/autothreads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

omm_err cli_threads_parse(unsigned *out, const char *text) {
    char *end = NULL;
    if (!text) {
        *out = omm_threads_default();
        return OMM_OK;
    }
    if (strcmp(text, "auto") == 0) {
        *out = 0;
        return OMM_OK;
    }
    unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (n < 1 || n > OMM_POOL_THREADS_MAX || *end)
        return omm_raise(OMM_ERR_USAGE,
                         "--threads '%s': expected auto or a whole number; accepted: 1 to %u", text,
                         OMM_POOL_THREADS_MAX);
    *out = (unsigned)n;
    return OMM_OK;
}

omm_err cli_threads_measure(unsigned *threads, const omm_model *model, omm_isa isa, unsigned rows,
                            omm_activations activations) {
    omm_autothreads a;
    if (*threads > 0) return OMM_OK;
    const unsigned n = omm_threads_default();
    const omm_autothreads_options o = {.n = n, .rows = rows, .activations = activations};
    OMM_TRY(omm_autothreads_measure(&a, model, isa, &o));
    *threads = a.threads;
    if (n == 1)
        fprintf(stderr, "threads: 1, there is one core\n");
    else
        fprintf(stderr, "threads: %u (%u are %.2f times as fast as 1 on this model)\n", a.threads,
                n, a.one > 0.0 ? a.many / a.one : 0.0);
    return OMM_OK;
}

omm_err cli_threads_measure_file(unsigned *threads, const char *model, omm_isa isa, unsigned rows) {
    omm_gguf gguf;
    omm_model loaded;
    if (*threads > 0) return OMM_OK;
    OMM_TRY(omm_gguf_open(&gguf, model));
    omm_err err = omm_model_load(&loaded, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    err = cli_threads_measure(threads, &loaded, isa, rows, OMM_ACTIVATIONS_F32);
    omm_model_fini(&loaded);
    return err;
}
