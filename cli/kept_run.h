/* kept_run.h - a training run that a signal stops, and that goes on from its checkpoint: what `train` and
 * `pretrain` have in common.
 *
 * Depends on: base.  Threads: kept_run_is_stopped from any; one run in a process.
 */
#ifndef CLI_KEPT_RUN_H
#define CLI_KEPT_RUN_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/file.h"
#include "omm/json.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kept_run {
    const char *path; /* --checkpoint; NULL: nothing is kept */
    size_t bytes_max; /* of the file */
    omm_err (*save)(const void *ud, omm_buf *out);
    omm_err (*load)(void *ud, omm_bytes in);
    void *ud;
    bool json;    /* events "checkpoint" and "interrupted" on stdout */
    bool is_ours; /* the file was read or written by this run, and then was `last` */
    omm_file_state last;
} kept_run;

/* Options that contradict.  Errors: USAGE. */
OMM_CHECKED omm_err kept_run_check(const char *path, uint32_t every, bool resume);
/* A checkpoint that is there and is not to be gone on from, seen before anything is read.  Errors: USAGE. */
OMM_CHECKED omm_err kept_run_check_there(const char *path, bool resume);
/* *there: a checkpoint to go on from was loaded.  Errors: USAGE (there is one, without `resume`), those of
 * `load`, with the file's name. */
OMM_CHECKED omm_err kept_run_open(bool *there, kept_run *run, bool resume);
/* From here on the first signal of cli_take_signals is what kept_run_is_stopped tells; the second one kills. */
OMM_CHECKED omm_err kept_run_take_signals(void);
bool kept_run_is_stopped(void *ud);
/* Write the checkpoint of so many steps, if one is kept.  Errors: STATE (another program has written it meanwhile, and that
 * stays), those of `save` and of writing. */
OMM_CHECKED omm_err kept_run_save(kept_run *run, uint32_t step);
/* The last one, before `out` is written: where the disk has no room for it, that is said, and no error. */
void kept_run_save_last(kept_run *run, uint32_t step, const char *out);
/* The event `interrupted` of --json.  kept: the file that goes on from there, or has what came of it; NULL: nothing is. */
void kept_run_tell_interrupted(const kept_run *run, uint32_t step, uint32_t steps,
                               const char *kept);
/* After a signal.  Errors: CANCELLED once it is saved, with how to go on; without a checkpoint, with how it could have. */
OMM_CHECKED omm_err kept_run_stopped(kept_run *run, uint32_t step, uint32_t steps);
/* One line on stdout.  Errors: NOMEM (`taken` is NULL), FORMAT. */
OMM_CHECKED omm_err kept_run_print_event(json_t *taken);

#endif
