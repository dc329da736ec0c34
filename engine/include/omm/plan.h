/* plan.h - how much memory a model and its session will take, told before anything is loaded.
 *
 * From the header of a GGUF file alone.  The largest at any one time is
 *
 *   program + weights + vocabulary + the larger of:  loading      the tensor at hand, or, when they are there,
 *                                                                 all adapters packed and one as it is read
 *                                                    cache + adapters + work + streaming
 *
 * weights      matrices in strips as packed (omm/quant.h), vectors in f32; of streamed layers
 *              (omm_model_load_streamed) the vectors alone
 * streaming    one streamed layer, packed, and the file's pages of one of its matrices
 * vocabulary   of the tokenizer, a lexicon of it, and the header itself
 * cache        all blocks of keys and values of the sessions at their last position
 * adapters     packed, in the types of their files, and their part of the activations
 * work         activations of a batch, rotary tables, scratch of threads, logits that the caller keeps
 * program      code and what the system's libraries take
 *
 * Measured peaks are within OMM_PLAN_ERROR_BYTES plus a 16th of the plan (tests/memory_test.py).
 *
 * Depends on: gguf, model, session.  Threads: no shared state.
 */
#ifndef OMM_PLAN_H
#define OMM_PLAN_H

#include "omm/gguf.h"
#include "omm/session.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_PLAN_POSITIONS_MIN 256u              /* what omm_plan_fit goes down to unless told */
#define OMM_PLAN_ERROR_BYTES ((uint64_t)4 << 20) /* heaps, pages, stacks */
#define OMM_PLAN_TEXT_MAX 512u

/* When layers may be streamed: slower than a smaller cache, but then everything fits. */
typedef enum omm_plan_stream {
    OMM_PLAN_STREAM_NEVER,
    OMM_PLAN_STREAM_LAST, /* where the smallest cache does not fit */
    OMM_PLAN_STREAM_FIRST /* rather than a smaller cache; without a limit: all layers */
} omm_plan_stream;

typedef struct omm_plan_options {
    omm_session_options session;
    unsigned threads;
    uint32_t sessions;   /* so many caches, those of a prefix store among them; 0: one */
    uint64_t logit_rows; /* [vocab] floats each, kept by the caller */
    uint32_t
        positions_min; /* omm_plan_fit keeps so many; 0: OMM_PLAN_POSITIONS_MIN, or the session's
                               positions where those are less */
    omm_plan_stream stream;
    uint64_t
        beside; /* bytes of the limit that another model takes: what refusals say counts them in */
    bool keeps_kv;  /* omm_plan_fit lowers no cache type: a session file has it */
    bool tokenizer; /* the vocabulary is loaded too */
    bool lexicon;   /* and texts may be held to a grammar (constraint.h) */
    bool lodger;    /* in a process that has a model already: the program counts as nothing */
} omm_plan_options;

typedef struct omm_plan {
    omm_session_options session; /* positions_max is not 0; after omm_plan_fit: what was chosen */
    uint32_t layers, resident;   /* of the model; in memory, the others are streamed */
    uint64_t program, weights, vocabulary, loading, cache, adapters, work, streaming; /* bytes */
    uint64_t total;                                                                   /* as above */
} omm_plan;

/* adapters[count]: files that will be applied at once (omm/lora.h), or NULL.
 * Errors: as omm_model_outline and omm_group_open (options); FORMAT, SIZE, NOT_FOUND of adapters. */
OMM_CHECKED omm_err omm_plan_make(omm_plan *out, const omm_gguf *gguf,
                                  const omm_gguf *const *adapters, size_t count,
                                  const omm_plan_options *options);
/* The same within bytes_max: the first of these that fits is in out->session: the session as asked,
 * caches of F16, then of Q8_0, with all positions; the last of these with the most positions, a
 * multiple of 64.  This with all layers in memory; with all streamed, where options->stream allows
 * that before or after; then as many in memory as fit beside the session that was found.
 * Errors: as omm_plan_make; CONFIG (nothing fits; says what would). */
OMM_CHECKED omm_err omm_plan_fit(omm_plan *out, const omm_gguf *gguf,
                                 const omm_gguf *const *adapters, size_t count,
                                 const omm_plan_options *options, uint64_t bytes_max);

/* What loading takes beyond what runs later: 0 unless the tensor at hand is more than that. */
uint64_t omm_plan_loading_more(const omm_plan *plan);

/* "weights 1.32 GB, cache 0.13 GB (4096 positions, f16), work 0.05 GB, vocabulary 0.03 GB, program 6.3 MB", with
 * "adapters 2.0 MB" and "loading 0.2 GB more" where there are any: the figures add up to the total.  Where layers are
 * streamed "weights 0.41 GB (4 of 16 layers; the others are read in every pass: 0.08 GB), ..." */
void omm_plan_text(char out[OMM_PLAN_TEXT_MAX], const omm_plan *plan);
/* "1.32 GB", "13.2 MB" (decimal). */
void omm_plan_bytes_text(char out[32], uint64_t bytes);

#endif
