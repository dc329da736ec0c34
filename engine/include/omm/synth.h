/* synth.h - models of random weights in the shapes of published ones: for benchmarks and tests.
 *
 * A shape is a name ("llama3.2-1b"); the file has that model's architecture, dimensions and number
 * of tokens, a byte-level tokenizer of our own (256 bytes, three control tokens, pairs of letters,
 * fillers), and nothing else of the original.
 *
 * Weights: element i of a tensor is mean + s * (b0 + b1 + b2 + b3 - 510) / 147.8, where b0 .. b3 are
 * the bytes of number i of the ChaCha20 lane of (seed, tensor name): near normal, never beyond 3.5
 * deviations.  Matrices have mean 0 and s = 1 / sqrt(columns), so that a product keeps the size of
 * its input; the two products that end in the residual have s / sqrt(2 layers), so that it does
 * not grow with depth; the output has s = 3 / sqrt(columns), so that logits have a deviation of about
 * 3.  Norms are 1 and biases 0, with s = 0.1.  Then omm_rows_quantise makes them the type.
 * The same bytes for any number of threads.
 *
 * Depends on: err, pool, gguf, rows.  Threads: one call at a time per pool.
 */
#ifndef OMM_SYNTH_H
#define OMM_SYNTH_H

#include "omm/err.h"
#include "omm/pool.h"

#include <stddef.h>
#include <stdint.h>

typedef struct omm_synth_options {
    const char *shape; /* one of omm_synth_shapes */
    const char
        *type; /* of the matrices: an element type, or Q4_K_M as quantise.h has it; NULL: Q8_0 */
    const char *output; /* of output and embedding; NULL: as `type` says */
    uint64_t seed;
    uint32_t layers; /* 0: the shape's */
} omm_synth_options;

/* What was written. */
typedef struct omm_synth_report {
    uint64_t parameters, bytes;
    uint32_t tensors;
    uint32_t fallbacks; /* matrices whose columns do not divide into blocks: Q8_0 or F16 instead */
} omm_synth_report;

/* Write the model to `path`: piece by piece, atomically, not synced (it can be made again).
 * pool: NULL for this thread alone.  report: NULL if not wanted.
 * Errors: CONFIG (shape or type; lists those that exist), IO, NOMEM. */
OMM_CHECKED omm_err omm_synth_write(const char *path, const omm_synth_options *options,
                                    omm_pool *pool, omm_synth_report *report);

/* Names of the shapes and types with ", " between; cut off at `size`. */
void omm_synth_shapes(char *out, size_t size);
void omm_synth_types(char *out, size_t size);

#endif
