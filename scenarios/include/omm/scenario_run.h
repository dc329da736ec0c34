/* scenario_run.h - a scenario file as the start of a service: the same run that the simulator makes.
 *
 *   scenario.yaml --> model, data, record, evaluator (omm_run), with
 *       the scenario's keys   coordinator and nodes derive theirs from the seed: tests, rehearsals
 *       keys of your own      nodes enrol with public keys, data stays unknown, the seed is random
 *
 * Depends on: all folders below scenarios.  Threads: as omm_run.
 */
#ifndef OMM_SCENARIO_RUN_H
#define OMM_SCENARIO_RUN_H

#include "omm/compute.h"
#include "omm/run_config.h"

typedef struct omm_scenario_run omm_scenario_run;

/* All borrowed for the life of the run. */
typedef struct omm_scenario_run_options {
    const char *scenario; /* path */
    const omm_compute *compute;
    /* The run that goes on keeps what no new one may have (omm_scenario_load_begun); in `bundle` lies what was agreed (NULL: nothing yet). */
    bool has_begun;
    const char *bundle;
    const omm_key *key; /* of the coordinator; NULL: the scenario's keys, and the rest is ignored */
    omm_seed run_seed;
    const omm_run_enrolled *nodes;
    size_t node_count;
    uint32_t node_max; /* omm_run_config */
} omm_scenario_run_options;

/* Errors: those of omm_scenario_load and omm_run_open. */
OMM_CHECKED omm_err omm_scenario_run_open(omm_scenario_run **out,
                                          const omm_scenario_run_options *options);
void omm_scenario_run_close(omm_scenario_run *run);   /* NULL is fine */
omm_run *omm_scenario_run_own(omm_scenario_run *run); /* for who may let nodes in */
const omm_run *omm_scenario_run_get(const omm_scenario_run *run);
/* Tell `warn`, a sentence each, what the run takes and cannot mean, as omm_simulate does.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_scenario_run_warn(const omm_scenario_run *run,
                                          void (*warn)(void *ud, const char *sentence), void *ud);
/* The scenario's own, whatever keys are in use. */
const omm_seed *omm_scenario_run_seed(const omm_scenario_run *run);

#endif
