/* scenario_facts.h - what verify and gate learn of scenario.yaml, which nobody below scenarios/ can read.
 *
 *   scenario.yaml, run.json --omm_scenario_reader--> a member that does not agree, or omm_scenario_facts
 *   omm_scenario_facts, rounds, offers, eval/ --audit--> what else does not
 *
 * Depends on: base, evidence.h.  Threads: no shared state.
 */
#ifndef OMM_SCENARIO_FACTS_H
#define OMM_SCENARIO_FACTS_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/evidence.h"

#include <stdbool.h>
#include <stdint.h>

/* What the scenario says of a run and run.json does not. */
typedef struct omm_scenario_facts {
    uint64_t seed;                   /* also of a service, whose keys do not follow from it */
    uint32_t steps;                  /* of every submission */
    uint32_t audited;                /* submissions that simulate trains again: */
    bool audits_threads, audits_isa; /* with other numbers of threads, by a lower instruction set */
    uint32_t scalar_steps;           /* and the first steps of one in plain C; 0: none */
    uint32_t select;      /* most clients of a round, but where a service over-selects; 0: all */
    uint32_t accept_min;  /* a round with fewer accepted submissions is void, and no other */
    uint64_t deadline_ms; /* of every offer */
    uint32_t round_items; /* held-out items after each round, if there are so many; 0: all */
    uint32_t seq_max;     /* of the recipe: no held-out item has more tokens; 0: not known */
    bool own_clients; /* held-out items are those of the nodes' clients, where nodes have some */
    bool generate;    /* replies are generated before and after */
    bool control;     /* simulate also ran without compression: eval/control.jsonl */
} omm_scenario_facts;

/* Read the text of scenario.yaml (scenarios/ has such a function), which must be in the effective form and say what `run` says.
 * Both are a stranger's.
 *
 *   about  on error: the file that the sentence is about, "scenario.yaml" or "run.json"
 *
 * Errors: NOMEM; any other: it is not so, and the sentence says what. */
typedef omm_err (*omm_scenario_reader)(omm_scenario_facts *out, const char **about, omm_bytes text,
                                       const omm_run_record *run);

#endif
