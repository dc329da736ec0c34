/* train_run.h - one `meshmind train` at work, shared by cmd_train.c, train_loop.c and train_report.c. */
#ifndef CLI_TRAIN_RUN_H
#define CLI_TRAIN_RUN_H

#include "energy.h"
#include "kept_run.h"
#include "places.h"
#include "progress.h"
#include "train_clock.h"
#include "train_options.h"

#include "omm/course.h"
#include "omm/evaluate.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/model.h"
#include "omm/tokenizer.h"
#include "omm/train_plan.h"

enum { TRAIN_CLIENTS_MAX = 256 };

typedef struct train_memory {
    uint64_t before; /* resident when model and trainer are still to come */
    uint64_t weights, held_out, total;
    uint64_t available; /* to this process, what it has included */
} train_memory;

enum { TRAIN_PLACES_MAX = 3 }; /* --report, --out, --checkpoint */

/* Everything that must be released, in one place. */
typedef struct train_run {
    int argc;
    char **argv; /* as they were given */
    train_args args;
    omm_model model;
    omm_digest base; /* of its file; known with --checkpoint or --report, else zeros */
    omm_tokenizer *tokenizer;
    omm_dataset *data, *eval;
    omm_data_totals data_totals; /* of the whole file, before a split */
    omm_overlap shared;          /* held-out examples that are trained on, too */
    omm_overlap doubles;         /* those that are there before */
    omm_pool *pool;
    omm_compute compute;
    unsigned threads; /* asked for; 0: auto */
    omm_recipe recipe;
    char patterns_doubt[OMM_RECIPE_DOUBT_MAX];
    omm_train_plan plan;
    train_memory memory;
    omm_trainer *trainer; /* or, with --full, */
    omm_full *full;
    omm_gguf like; /* with it the model's file: the trained one is like it but for the weights */
    omm_course *course;
    kept_run kept;     /* its checkpoint */
    omm_file_out room; /* kept for the adapter's file */
    place_made places[TRAIN_PLACES_MAX];
    size_t place_count;
    omm_lora start;
    omm_digest start_files[CLI_LIST_MAX]; /* with --report */
    bool has_start;
    bool start_rounded;                  /* its B, when several were joined */
    omm_eval_item *items, *items_before; /* one per example of `eval` */
    omm_eval_summary before, after;
    size_t replies_cut; /* references longer than --new-tokens */
    cli_progress bar;
    uint64_t begin_ns;     /* of this process */
    energy energy;         /* since then */
    train_clock clock;     /* of this process */
    uint64_t train_tokens; /* trained on before it: what a checkpoint brought */
    uint32_t resumed_from; /* steps that a checkpoint brought */
    char *client_text;
    const char *client_names[TRAIN_CLIENTS_MAX];
    size_t client_count;
} train_run;

/* --- train_loop.c: from the first step to the last ------------------------------------------- */

/* Open r->course, and continue from --checkpoint with --resume.  Errors: USAGE (options that
 * contradict; a checkpoint that is there already), those of omm_course_resume. */
OMM_CHECKED omm_err train_course_open(train_run *r);
/* Options that can be seen to contradict as soon as the data are there.  Errors: USAGE. */
OMM_CHECKED omm_err train_check_options(const train_run *r);
/* Items and summary of an adapter (NULL: of the base) on the held-out data, if there is any. */
OMM_CHECKED omm_err train_judge(train_run *r, omm_eval_summary *out, omm_eval_item *items,
                                const omm_lora *adapter);
/* To the end, with events or a progress bar and checkpoints.  Errors: CANCELLED (a signal, after the
 * checkpoint was written), those of omm_course_next. */
OMM_CHECKED omm_err train_all(train_run *r);

/* --- train_start.c --------------------------------------------------------------------------- */

/* r->start from --start, if it is there; the model may be an outline.  Errors: those of omm_lora_load_file
 * and omm_lora_join. */
OMM_CHECKED omm_err train_start_open(train_run *r);

/* --- train_report.c: what came of it --------------------------------------------------------- */

/* Of this process, by its steps alone, without evaluations and checkpoints; 0 where nothing was left. */
double train_tokens_per_s(const train_run *r);
uint64_t train_memory_bytes(void); /* most that this process has had in memory */
void train_print_report(const train_run *r);
/* The result as an object; the caller decrefs.  Errors: NOMEM (also: a path that is not UTF-8). */
OMM_CHECKED omm_err train_result_json(json_t **out, const train_run *r, const omm_digest *file);
OMM_CHECKED omm_err train_print_json(const json_t *result);
/* Add curves and groups to the result and write FOLDER/report.json and FOLDER/report.html; the
 * folder is made.  Errors: IO, NOMEM. */
OMM_CHECKED omm_err train_report_write(const train_run *r, json_t *result, const char *folder);

/* --- train_groups.c -------------------------------------------------------------------------- */

/* {all, skills, clients}: lists of {name, items, loss_before, loss_after}, and where replies were
 * generated answers, exact_before, exact_after.  With held-out data only;
 * the caller decrefs.  Errors: NOMEM. */
OMM_CHECKED omm_err train_groups(json_t **out, const train_run *r);

#endif
