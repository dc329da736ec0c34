/* agreement.h - does the scenario of a bundle say what its run.json says?
 *
 *   scenario.yaml --read, written again--> the same bytes, or it is not the effective form
 *        |
 *        +--> name, rounds, recipe, codecs, bounds, base model; of a simulation also seed and nodes --> run.json
 *
 * A bundle may be older than rules that a scenario has to keep today (scenario.c): they are not asked for.  Whoever gives the
 * schema a new key makes it `optional`, as all since the first are: then it is not written where it is not used, and the
 * effective form of an older bundle stays what it was.
 *
 * Depends on: scenario.h, compress, train, artifacts.  Threads: no shared state.
 */
#ifndef OMM_AGREEMENT_H
#define OMM_AGREEMENT_H

#include "omm/scenario_facts.h"

/* An omm_scenario_reader, for verify.h and judge.h.
 * Errors: NOMEM; CONFIG (no scenario), FORMAT (not the effective form; run.json's recipe is none), MISMATCH, and others of
 * recipes and codecs. */
OMM_CHECKED omm_err omm_scenario_agrees(omm_scenario_facts *out, const char **about, omm_bytes text,
                                        const omm_run_record *run);

#endif
