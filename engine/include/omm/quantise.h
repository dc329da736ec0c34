/* quantise.h - a model's matrices in other element types, written tensor by tensor to a new file.
 *
 * Which type a tensor gets, the first rule that applies:
 *   1. one dimension, or a name ending in _norm.weight or with ffn_gate_inp in it: F32
 *   2. the first `keep` pattern that matches its name: the type given there (one that is the first of no matrix is
 *      refused)
 *   3. TYPE of 6 bits a weight or fewer, unless `pure`: the matrix that makes the logits (output.weight, or
 *      token_embd.weight where there is none) gets Q6_K; beside TQ1_0 and TQ2_0 token_embd.weight gets
 *      Q4_K.  Errors there reach every token directly.
 *   4. a mix: attn_v and ffn_down, on whose errors the loss depends most, get more bits in some layers,
 *        and so do some others in all layers
 *        Q4_K_M  Q4_K; attn_v and ffn_down Q6_K in the first and last eighth and every third layer
 *                between; attn_qkv Q5_K
 *        Q5_K_M  Q5_K; attn_v and ffn_down Q6_K there; attn_qkv Q6_K
 *        Q3_K_M  Q3_K; attn_v Q5_K in the first two layers, else Q4_K; ffn_down Q5_K in the first
 *                sixteenth, else Q4_K; attn_output and attn_qkv Q4_K
 *        Q3_K_L  Q3_K; attn_v, ffn_down and attn_output Q5_K; attn_qkv Q4_K
 *        Q4_K_S  Q4_K; attn_v Q5_K in the first four layers, ffn_down in the first eighth
 *        Q5_K_S, Q3_K_S  Q5_K, Q3_K
 *        and in a model of 80 layers whose heads share keys and values (70B) attn_v gets Q5_K where it
 *        would have Q3_K or Q4_K
 *   5. TYPE
 * A type whose block does not divide the columns falls back to Q8_0, and where 32 does not divide them
 * to F16 (llama.cpp falls back to smaller types).  The mixes are llama.cpp's choices for dense models of the
 * architectures that the engine runs; attn_qkv's are those until early 2026, which files of phi3 have: since then
 * it gives attn_qkv what attn_v has here.  Q3_K, Q4_K and Q5_K are the types alone (with rule 3);
 * llama-quantize takes these names for Q3_K_M, Q4_K_M and Q5_K_M, as it takes others without rules here
 * for mixes: Q2_K, IQ4_NL, IQ4_XS.
 *
 * Keys are copied but for general.file_type, general.quantization_version (2) and split.*.  Memory:
 * one piece of about 2^20 values per thread, whatever the model's size.  The bytes do not depend on the
 * number of threads.
 *
 * Depends on: gguf, rows, pool, file.  Threads: uses the pool given.
 */
#ifndef OMM_QUANTISE_H
#define OMM_QUANTISE_H

#include "omm/err.h"
#include "omm/gguf.h"
#include "omm/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_QUANTISE_KEEP_MAX 32u

typedef struct omm_quantise_options {
    const char *type;                        /* element type or mix, upper or lower case */
    const char *keep[OMM_QUANTISE_KEEP_MAX]; /* "PATTERN=TYPE"; * ? [] as in file names */
    unsigned keep_count;
    bool pure; /* without rule 3; not with a mix */
} omm_quantise_options;

typedef struct omm_quantise_tensor {
    const char *name; /* borrowed from the model read */
    omm_ggml_type from, to;
    omm_ggml_type wanted; /* `to`, unless it did not divide the columns */
    uint64_t elements, bytes_from, bytes_to;
    double squares, error_squares; /* sums over the elements, of the value and of its change */
    double error_max;              /* largest change */
} omm_quantise_tensor;

typedef struct omm_quantise_report {
    omm_quantise_tensor *tensors; /* in file order; owned */
    size_t count;
    uint64_t bytes; /* of the new file */
} omm_quantise_report;

void omm_quantise_report_fini(omm_quantise_report *report);

/* Told after each tensor: how many of all values are done.  May be NULL. */
typedef void (*omm_quantise_progress)(void *ud, uint64_t done, uint64_t all);

/* Replace `path` by the model `in` in other types, atomically.  `path` may be one of the files of `in`.
 * Fill `report` (release with omm_quantise_report_fini).
 * Errors: CONFIG (a type or pattern, or a pattern that no matrix has; says what is accepted), UNSUPPORTED (an adapter), NUMERIC (a value
 * that is not finite or too large: names tensor, row, columns), TOO_BIG, NOMEM, IO; then there is no
 * new file and nothing to release. */
OMM_CHECKED omm_err omm_quantise_file(const char *path, const omm_gguf *in,
                                      const omm_quantise_options *options, omm_pool *pool,
                                      omm_quantise_report *report, omm_quantise_progress progress,
                                      void *ud);

/* All accepted types and mixes, comma-separated, cut at `size`. */
void omm_quantise_types(char *out, size_t size);
/* Whether it is one of them, and in *is_mix whether it is a mix. */
bool omm_quantise_knows(bool *is_mix, const char *type);
/* No file of this type or mix with so many values is smaller; 0 of a type that is not known. */
uint64_t omm_quantise_bytes_least(const char *type, uint64_t values);

#endif
