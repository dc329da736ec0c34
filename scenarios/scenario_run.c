/* scenario_run.c - the simulator's setup, for those who run it over a network. */
#include "omm/scenario_run.h"

#include "internal.h"

#include "omm/mem.h"

struct omm_scenario_run {
    sim_setup setup;
    omm_seed seed;
};

omm_err omm_scenario_run_open(omm_scenario_run **out, const omm_scenario_run_options *options) {
    omm_scenario_run *run = omm_alloc(1, sizeof *run);
    if (!run) return omm_raise(OMM_ERR_NOMEM, "scenario");
    sim_setup_options setup = {.scenario = options->scenario,
                               .compute = options->compute,
                               .has_begun = options->has_begun,
                               .begun = options->has_begun ? options->bundle : NULL};
    if (options->key) setup.own = options;
    omm_err err = sim_setup_open(&run->setup, &setup);
    if (err != OMM_OK) {
        omm_free(run);
        return err;
    }
    run->seed = omm_seed_from_u64(run->setup.scenario.seed);
    *out = run;
    return OMM_OK;
}

void omm_scenario_run_close(omm_scenario_run *run) {
    if (!run) return;
    sim_setup_close(&run->setup);
    omm_free(run);
}

omm_run *omm_scenario_run_own(omm_scenario_run *run) {
    return run->setup.run;
}

const omm_run *omm_scenario_run_get(const omm_scenario_run *run) {
    return run->setup.run;
}

const omm_seed *omm_scenario_run_seed(const omm_scenario_run *run) {
    return &run->seed;
}

omm_err omm_scenario_run_warn(const omm_scenario_run *run,
                              void (*warn)(void *ud, const char *sentence), void *ud) {
    return sim_warn_words(&run->setup, warn, ud);
}
