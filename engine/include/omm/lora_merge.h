/* lora_merge.h - adapters melted into a model: a GGUF file that needs no adapter any more.
 *
 *   for each adapter, in order:  D[n][k] = chain over r of fma(s B[n][r], A[r][k]), from +0
 *                                W[n][k] = W[n][k] + D[n][k]
 *   A tensor that stacks several layers (phi3: q, k, v; gate, up) takes each one's D in its own rows.
 *   s = scale of the pair times the adapter's weight, s B rounded once; W begins as the base's value,
 *   widened to f32, and is stored in the output's type (omm/rows.h).
 *
 * Equal inputs give equal bytes, with any instruction set and number of threads.  The file is written
 * tensor by tensor; memory is a few rows.  Keys and all other tensors are those of the base, but for split.* (the model
 * is one file) and, with another type, general.file_type (none) and general.quantization_version (2, where it is there).
 *
 * Depends on: compute, gguf, lora, rows.  Threads: one call at a time per compute.
 */
#ifndef OMM_LORA_MERGE_H
#define OMM_LORA_MERGE_H

#include "omm/compute.h"
#include "omm/gguf.h"
#include "omm/lora.h"

#include <stdbool.h>
#include <stddef.h>

/* What happened to one tensor; only those that were adapted or got another type are reported. */
typedef struct omm_lora_merged {
    const char *name;
    omm_ggml_type from, to;
    bool adapted;
    double change; /* root mean square of W' - W, both f32 */
    double error;  /* root mean square of what is stored - W' */
    double error_max;
} omm_lora_merged;

typedef struct omm_lora_merge {
    const omm_compute *compute;
    const omm_gguf *base;
    const omm_lora *const *parts; /* all of the base's shape */
    const float *weights;         /* finite */
    size_t count;
    bool has_type;      /* else every tensor keeps its type */
    omm_ggml_type type; /* of all matrices of layers ("blk.*", two dimensions) */
    void (*report)(void *ud, const omm_lora_merged *merged); /* NULL: none; in file order */
    void *ud;
} omm_lora_merge;

/* Write the model to `path`, atomically.
 * Errors: NOT_FOUND (the base lacks an adapted tensor), MISMATCH (shape), UNSUPPORTED (columns are no
 * multiple of the type's block), NUMERIC (a value is or becomes infinite or NaN, tensor named), NOMEM,
 * IO; then the old file is untouched. */
OMM_CHECKED omm_err omm_lora_merge_file(const char *path, const omm_lora_merge *merge);

#endif
