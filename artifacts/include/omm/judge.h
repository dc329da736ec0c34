/* judge.h - evidence files in, metrics, verdicts out: the same function at sealing, in `gate` and
 * in `verify`.
 *
 *   D files of the bundle --metrics--> gates (policy) --> gates.json
 *   M files of the bundle --metrics--> gates (policy) --> measured/gates.json
 *   both                                               --> junit.xml, passed
 *
 * A metric whose evidence is missing, malformed, of another run or of another commit is handed to
 * the gates as such, and fails there; it never stops the judging of the others.
 *
 * Depends on: base, gates, proto, compress, evidence.h.  Threads: no shared state.
 */
#ifndef OMM_JUDGE_H
#define OMM_JUDGE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/gates.h"
#include "omm/scenario_facts.h"

#include <stdbool.h>

typedef struct omm_judgement {
    bool passed;           /* every required verdict, of both sets */
    omm_verdicts evidence; /* from D files */
    omm_verdicts measured; /* from M files */
    uint64_t wire_fp32; /* what wire_saving_vs_fp32 compares with, bytes; 0: nothing was accepted */
    omm_buf gates_json; /* bytes of gates.json */
    omm_buf measured_json; /* of measured/gates.json */
    omm_buf junit;         /* of junit.xml, both sets */
} omm_judgement;

/* Judge the evidence in `dir` by `policy_path` (NULL: the bundle's own policy.yaml).
 *
 *   commit         what M files must carry; NULL: the one in manifest.json
 *   read_scenario  NULL: scenario.yaml is not read (omm/scenario_facts.h); what does not agree is an evidence fault
 *
 * One round at a time is in memory, which therefore grows with nodes and held-out items, and not with the submissions of
 * a run (some 400 bytes for a round).  Bad evidence makes failed verdicts, not errors.
 * Errors: CONFIG, NOT_FOUND (the policy; the manifest, where it is needed), FORMAT (the manifest),
 * NOMEM, TOO_BIG, IO (also: a file changed while it was judged).  On error nothing is to be freed. */
OMM_CHECKED omm_err omm_bundle_judge(omm_judgement *out, const char *dir, const char *policy_path,
                                     const char *commit, omm_scenario_reader read_scenario);
void omm_judgement_fini(omm_judgement *judgement);

/* Append the verdicts as a table for people, one line each and a last line "gates: pass|FAIL".
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_judgement_text(omm_buf *out, const omm_judgement *judgement);

#endif
