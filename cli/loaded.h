/* loaded.h - what generate, logits and perplexity have in common: the options that name a model,
 * an adapter and the way to compute, and one struct that holds what they open.
 */
#ifndef CLI_LOADED_H
#define CLI_LOADED_H

#include "memory.h"
#include "options.h"
#include "packed_copy.h"
#include "threads.h"

#include "omm/session.h"
#include "omm/tokenizer.h"
#include "session_lock.h"

typedef struct loaded_options {
    const char *model;       /* -m */
    cli_list lora;           /* --lora FILE or FILE=SCALE, applied in this order */
    bool any_base;           /* --any-base */
    const char *activations; /* --activations */
    const char *kv;          /* --kv */
    const char *threads;     /* --threads */
    uint32_t positions;      /* --context, 0: the model's, at most 4096 */
    uint32_t max_memory_mb;  /* --max-memory-mb, 0: no limit */
    bool stream;             /* --stream */
    bool packed;             /* --packed */
    const char *session;     /* --session: a file to go on from and to save to, or NULL */
    /* What the command itself needs, not options of the user: */
    const char *kv_default; /* without --kv, and where `session` is not there to say */
    uint32_t positions_min; /* --max-memory-mb keeps so many; 0: OMM_PLAN_POSITIONS_MIN */
    uint64_t logit_rows;    /* that it keeps */
    bool lexicon;           /* it may hold texts to a grammar */
    uint32_t sessions; /* whose cache it takes itself; 0: `session` is opened, with all adapters */
    const char *draft; /* a model that will be opened beside it: the plan leaves room; or NULL */
} loaded_options;

/* Of every command that takes adapters for a model; `o` is a bool. */
#define ANY_BASE_OPTION(o)                                                                         \
    {                                                                                              \
        "any-base", 0, CLI_FLAG, &(o), NULL,                                                       \
            "adapters may be of another model of the same shape: of its base, for one"             \
    }

/* Rows of an option table for them, which come first in the table.  Defaults for --help, which the
 * command gives: what follows "GGUF model", the arithmetic, the cache. */
#define LOADED_OPTIONS(o, default_model, default_activations, default_kv)                          \
    {"model", 'm', CLI_STR, &(o).model, "FILE", "GGUF model" default_model},                       \
        {"lora",    0,          CLI_LIST,                                                          \
         &(o).lora, "FILE[=X]", "GGUF LoRA adapter, times X; up to eight; newest: your node's"},   \
        ANY_BASE_OPTION((o).any_base), LOADED_COMPUTE_OPTIONS(o, default_activations, default_kv)
/* Those after the files. */
#define LOADED_COMPUTE_OPTIONS(o, default_activations, default_kv)                                 \
    {"activations",    0,        CLI_STR,                                                          \
     &(o).activations, "f32|q8", "arithmetic of quantised layers (" default_activations ")"},      \
        {"kv",           0,                                                                        \
         CLI_STR,        &(o).kv,                                                                  \
         "f32|f16|q8_0", "format of the key/value cache (" default_kv ")"},                        \
        {"threads", 't', CLI_STR, &(o).threads, "N|auto", CLI_THREADS_HELP},                       \
        CLI_MEMORY_OPTION(&(o).max_memory_mb), CLI_STREAM_OPTION(&(o).stream),                     \
        CLI_PACKED_OPTION(&(o).packed), {                                                          \
        "context", 'c', CLI_U32, &(o).positions, "N",                                              \
            "positions to hold (the model's, at most 4096)"                                        \
    }

typedef struct loaded {
    omm_gguf gguf;     /* open while the model is streamed */
    omm_packed packed; /* its map is empty where the model does not lie in a copy */
    omm_model model;
    omm_tokenizer *tokenizer; /* NULL unless asked for */
    omm_adapter *adapters[OMM_ADAPTERS_MAX];
    size_t adapter_count;
    omm_pool *pool;
    omm_compute compute;
    omm_activations activations;
    omm_kv_type kv_type;
    bool keeps_kv; /* a session file has it */
    omm_session *session;
    session_lock lock;    /* of the session's file, while it is gone on with */
    uint64_t draft_bytes; /* that a draft beside it will take at the least */
    cli_memory memory;
} loaded;

/* The file and scale of an option's "FILE" or "FILE=SCALE"; a file whose name has '=' but no number after it
 * is a file.  "newest", where there is no such file, is the newest global adapter that this user's node
 * has seen.  Errors: TOO_BIG, CONFIG (no home), USAGE (a PEFT folder, a scale that is not finite); `option` ("--lora")
 * is named. */
OMM_CHECKED omm_err loaded_split_scale(char path[OMM_PATH_MAX], float *scale, const char *text,
                                       const char *option);

/* Refuse an --out that is one of the adapters of `option` ("--lora").  Errors: USAGE, those of
 * loaded_split_scale. */
OMM_CHECKED omm_err loaded_check_out(const char *out, const cli_list *adapters, const char *option);

/* Refuse more positions than the model was trained for.  `option` asked for them.  Errors: USAGE, those of
 * omm_model_outline. */
OMM_CHECKED omm_err loaded_check_positions(const omm_gguf *gguf, uint32_t wanted,
                                           const char *option);
/* Open everything.  Environment: OMM_ISA.  Release with loaded_close, also after an error.
 * Errors: USAGE, CONFIG, those of the loaders. */
OMM_CHECKED omm_err loaded_open(loaded *l, const loaded_options *o, bool with_tokenizer);
void loaded_close(loaded *l);
/* A model that proposes tokens for `host`'s, on its processors, with the same options but no
 * adapters.  Errors: MISMATCH (another vocabulary), those of the loaders. */
OMM_CHECKED omm_err loaded_open_draft(loaded *draft, const loaded *host, const loaded_options *o,
                                      const char *model);
/* BLAKE2b-256 of the model's keys and tensors, whatever files they are in.  Errors: those of
 * omm_gguf_open. */
OMM_CHECKED omm_err loaded_digest(omm_digest *out, const loaded_options *o);

/* A line on stderr when the model's chat template is not known and ChatML stands in. */
void cli_warn_template(const omm_tokenizer *tokenizer);
/* The same where the file does not say how its texts are cut into words, or contradicts itself about how many tokens
 * it has; loaded_open says it of its model. */
void cli_warn_words(const omm_tokenizer *tokenizer);
#define NO_THINK_OPTION(o)                                                                         \
    {                                                                                              \
        "no-think", 0, CLI_FLAG, &(o), NULL,                                                       \
            "answer at once: a model that thinks, without a thought"                               \
    }
/* Where there is no thought to leave out. */
void cli_warn_thinking(const omm_tokenizer *tokenizer);

#endif
