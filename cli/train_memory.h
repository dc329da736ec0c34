/* train_memory.h - what `train` says about memory before it loads the model, what it lowers to fit, and
 * --dry-run.
 *
 *   total = program, vocabulary, data (what is resident by then) + weights
 *         + the larger of  loading    the tensor at hand
 *                          training   omm/train_plan.h, and the held-out evaluation beside it
 */
#ifndef CLI_TRAIN_MEMORY_H
#define CLI_TRAIN_MEMORY_H

#include "train_run.h"

/* Plan within --max-memory-mb and say so in one line on stderr.  r: recipe, tokenizer and data are
 * there, the model is an outline.  Errors: CONFIG (nothing fits; says what would), NOMEM. */
OMM_CHECKED omm_err train_memory_plan(train_run *r, const omm_gguf *gguf);
/* For --json, with the peak so far. */
json_t *train_memory_json(const train_run *r);
/* --dry-run: two steps of r->trainer by the clock, then the plan on stdout; nothing is written.
 * Errors: those of training. */
OMM_CHECKED omm_err train_dry_run(train_run *r);

#endif
