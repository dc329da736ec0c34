/* full_run.h - a run over all weights of a new model (`pretrain`): steps, held-out loss on the way,
 * checkpoints, signals, events, the finished file (which `train --full` writes alike). */
#ifndef CLI_FULL_RUN_H
#define CLI_FULL_RUN_H

#include "kept_run.h"
#include "progress.h"

#include "omm/compute.h"
#include "omm/evaluate.h"
#include "omm/full.h"
#include "omm/gguf.h"
#include "omm/model.h"
#include "omm/tokenizer.h"

/* Of a model and of its checkpoint: 2^31 weights and their moments. */
#define FULL_RUN_BYTES_MAX ((size_t)1 << 35)

typedef struct full_run_options {
    const char *out, *checkpoint;
    const char *type; /* of the matrices in the file, as quantize has them */
    uint32_t checkpoint_every;
    uint32_t judge_every; /* steps; 0: at the end alone */
    bool resume, json;
} full_run_options;

/* Everything that must be released, in one place.  The caller fills what it opens, in this order. */
typedef struct full_run {
    full_run_options options;
    omm_pool *pool;
    omm_compute compute;
    omm_gguf gguf; /* what the finished file is like */
    bool is_open;  /* gguf and model */
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data, *valid; /* valid NULL: nothing is held out */
    bool listed;               /* as in omm_full_options */
    float unseen_spread;       /* of omm_full_set_apart at the end */
    /* The rest is the run's. */
    omm_file_out room; /* kept for the finished file; fd -1: none is */
    uint32_t steps;    /* in all */
    kept_run kept;
    omm_full *full;
    omm_eval_item *items; /* one per example of `valid` */
    double loss;          /* held-out, of the last judgement on the way: F32 weights */
    uint32_t judged;
    double loss_written;              /* held-out, of the file: with `judged` */
    uint32_t unseen;                  /* tokens that no step had */
    uint32_t steps_before;            /* what a checkpoint brought */
    uint64_t train_ns, tokens_before; /* tokens: the same */
    cli_progress bar;
} full_run;

/* What can be known before anything is opened.  Errors: USAGE (options that contradict), CONFIG (type). */
OMM_CHECKED omm_err full_run_check(const full_run_options *options);
/* Open the trainer on what is there, go on from the checkpoint with `resume`, and take signals. */
OMM_CHECKED omm_err full_run_open(full_run *r, const omm_recipe *recipe, const omm_full_muon *muon,
                                  uint64_t seed);
void full_run_close(full_run *r);
/* To the last step.  Errors: CANCELLED (a signal, after the checkpoint was written), those of a step. */
OMM_CHECKED omm_err full_run_steps(full_run *r);
/* Errors: CONFIG, naming the types. */
OMM_CHECKED omm_err full_run_check_type(const char *type);
/* Write `file`, a GGUF whose matrices are F32, in the type wanted. */
OMM_CHECKED omm_err full_run_write(const char *path, const char *type, omm_pool *pool,
                                   omm_bytes file);
/* After the last step: set apart what no step had, write the model, and judge the file.  Errors: CANCELLED (a signal;
 * the file is written). */
OMM_CHECKED omm_err full_run_save(full_run *r);
/* What came of it, on stdout. */
OMM_CHECKED omm_err full_run_report(const full_run *r);

#endif
