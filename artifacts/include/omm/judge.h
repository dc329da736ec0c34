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
#include "omm/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* One verdict, for tables; strings live as long as the judgement. */
typedef struct omm_judgement_row {
    const char *gate;   /* "communication", "fairness", ... */
    const char *metric; /* "saving_vs_fp32" */
    bool measured;      /* from M files */
    bool required;
    bool passed;
    bool has_value;
    double value, threshold;
    const char *direction; /* ">=" or "<=" */
    const char *unit;
    uint64_t samples;
    const char *sentence; /* why it failed; "" when it passed */
} omm_judgement_row;

typedef struct omm_judgement {
    bool passed; /* every required verdict, of both files */
    const omm_judgement_row *rows;
    size_t row_count;
    omm_buf gates_json; /* bytes of gates.json, measured/gates.json and junit.xml */
    omm_buf measured_json;
    omm_buf junit;
    omm_arena arena;
} omm_judgement;

/* Judge the evidence in `dir` by `policy_path` (NULL: the bundle's own policy.yaml).
 *
 *   commit  what M files must carry; NULL: not compared (only when there is no manifest)
 *
 * Bad evidence makes failed verdicts, not errors.
 * Errors: CONFIG, NOT_FOUND (the policy), NOMEM, TOO_BIG.  On error nothing is to be freed. */
OMM_CHECKED omm_err omm_bundle_judge(omm_judgement *out, const char *dir, const char *policy_path,
                                     const char *commit);
void omm_judgement_fini(omm_judgement *judgement);

/* Append the verdicts as a table for people, one line each and a last line "gates: pass|FAIL".
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_judgement_text(omm_buf *out, const omm_judgement *judgement);

#endif
