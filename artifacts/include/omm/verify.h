/* verify.h - check a sealed bundle from its bytes alone: everything that can be recomputed is.
 *
 *   files         no symbolic link, no path outside the table, nothing extra, no empty folder, nothing missing
 *   signature     manifest.json.minisig by the bundle key, and that key is the trusted one
 *   digests       size and SHA-256 of every file, and the run digest
 *   run           scenario.yaml and run.json say the same; a simulation's keys follow from its seed; each round is void
 *                 or not by who was accepted, and whoever was selected is accepted, refused or missing
 *   offers        signed by the coordinator, one per round, each naming the line before it
 *   submissions   signed by the nodes, for this round, nonce, offer, base and global adapter
 *   receipts      signed by the coordinator, one per submission, saying what rounds.jsonl says
 *   payloads      decode within the round's codec, range and norm; digests as announced
 *   aggregation   master and weight sum of each round recomputed from the signed submissions
 *   broadcast     adapters/rNNN.bin is the encoding of the master
 *   ledger        bytes of each exchange recomputed from sizes
 *   eval          same items before and after, as many as run.json says
 *   verdicts      gates.json, measured/gates.json and junit.xml are what judge.h makes of them by policy.yaml, which is
 *                 in the effective form; measured/wire.json has a row for each node, and of a simulation no smaller one than
 *                 what the node has signed
 *   adapter       final.gguf is the last broadcast
 *   close         signed by the coordinator over last round, final adapter and evidence digest
 *
 * The bundle is hostile input.  All failures are collected, each with file and reason; a check that
 * lacks what it needs says so and counts as failed.  The first two read the manifest and its signature alone; where it is not
 * signed, not by the trusted key, or where more lies there than it lists, the others are not done, which is no failure of
 * each: whoever has signed a bundle decides what it costs to verify it.  In the last case digests are: of files that have
 * the size that was signed, and no other one is read.
 *
 * Depends on: base, proto, compress, aggregate, gates, evidence.h, judge.h.
 * Threads: aggregation uses the pool given.
 */
#ifndef OMM_VERIFY_H
#define OMM_VERIFY_H

#include "omm/bundle.h"
#include "omm/evidence.h"
#include "omm/judge.h"
#include "omm/pool.h"
#include "omm/scenario_facts.h"

/* GGUF bytes of a flat adapter, as the run's final.gguf was made (engine's omm_lora_save). */
typedef omm_err (*omm_render_adapter)(void *ud, omm_buf *out, const omm_run_record *run,
                                      const float *values);

typedef struct omm_verify_options {
    const omm_public_key *trusted; /* NULL: "signer not pinned" */
    /* Who ran it; NULL: not pinned.  Whoever holds the bundle key alone can make up a whole run with a
     * coordinator and nodes of his own: only this pin tells. */
    const omm_public_key *coordinator;
    omm_render_adapter render; /* required */
    void *render_ud;
    /* NULL: that scenario.yaml says what ran is not checked, nor which rounds had to be void. */
    omm_scenario_reader read_scenario;
    omm_pool *pool; /* may be NULL */
} omm_verify_options;

typedef struct omm_verify_check {
    const char *name;
    bool passed;
    bool done;    /* else it has not passed, for report->not_done, and has no failure of its own */
    size_t items; /* what was looked at: files, signatures, values ... */
    size_t failures; /* also those beyond OMM_VERIFY_FAILURES_MAX */
} omm_verify_check;

#define OMM_VERIFY_FAILURES_MAX 1000u /* kept with their text */
typedef struct omm_verify_failure {
    const char *check;
    const char *path;
    const char *reason;
} omm_verify_failure;

typedef struct omm_verify_report {
    bool passed;                           /* every check, and every required gate */
    bool intact;                           /* every check: the bundle is what its signers said */
    bool pinned;                           /* signed by options->trusted */
    char signer[OMM_MINISIGN_PUBLIC_SIZE]; /* key in the manifest; "" when unreadable */
    char run_id[OMM_RUN_ID_SIZE];          /* "" when run.json is not readable */
    omm_public_key coordinator_key;        /* of run.json */
    bool coordinator_pinned;               /* it is options->coordinator */
    bool simulated;                        /* keys of coordinator and nodes follow from the seed */
    bool wire_bounded; /* rows of measured/wire.json were held to what nodes have signed */
    /* Simulated, and nothing tells whether simulate counted the bytes or a coordinator, whose rows have no bounds. */
    bool maybe_network;
    omm_digest run_digest; /* recomputed */
    omm_digest state;      /* of the folder as it was found: for omm_bundle_check_unchanged */
    const omm_verify_check *checks;
    size_t check_count;
    const char *not_done; /* why some checks were not; NULL: all were */
    const omm_verify_failure *failures;
    size_t failure_count;
    bool judged; /* judgement is filled */
    omm_judgement judgement;
    omm_arena arena;
} omm_verify_report;

/* Verify `dir`.  A bundle that fails is no error: see report->passed.  Files are read more than once; who writes there
 * meanwhile is noticed by sizes and times, and not where it is through a map or by a server that says other ones.
 * Errors: NOT_FOUND (no such folder), IO (also: of one that would be intact a file changed, came or went while it was verified), NOMEM.
 * On error nothing is to be freed. */
OMM_CHECKED omm_err omm_bundle_verify(omm_verify_report *report, const char *dir,
                                      const omm_verify_options *options);
/* Who has read a bundle again after it was verified: it was the same one.  state: report->state.
 * Errors: IO (a file has changed since, in the same way), NOT_FOUND, NOMEM. */
OMM_CHECKED omm_err omm_bundle_check_unchanged(const omm_digest *state, const char *dir);
void omm_verify_report_fini(omm_verify_report *report);

/* For people: one line per check, the failures, then the verdicts.  For programs: one JSON object.  Both say what of an intact bundle
 * is believed as it stands (`as_said`): a verdict on that is as good as the key that says it.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_verify_report_text(omm_buf *out, const omm_verify_report *report);
OMM_CHECKED omm_err omm_verify_report_json(omm_buf *out, const omm_verify_report *report);

/* What `gate` says: one JSON object: passed, gates, measured_gates, `verified`, and what omm_verify_report_json says of the run and of
 * whose it is.  report: of the bundle, intact; NULL: nobody verified it, and what it says of itself is left out.  policy: the file
 * that it was judged by (`policy`); NULL: the bundle's own.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_verify_gate_json(omm_buf *out, const omm_verify_report *report,
                                         const omm_judgement *judgement, const char *policy);
/* And its JUnit XML: the verdicts, and in each testsuite the properties bundle (`dir` as it was given), verified, policy where a file
 * was given, and of a verified one what omm_verify_gate_json says of whose it is.  On error the buffer is unchanged. */
OMM_CHECKED omm_err omm_verify_gate_junit(omm_buf *out, const omm_verify_report *report,
                                          const omm_judgement *judgement, const char *dir,
                                          const char *policy);
/* Of a bundle that is not intact, what `gate` says instead of verdicts, so that whoever reads its files sees that it failed, and
 * not what an earlier one said: an object as omm_verify_gate_json makes it, `passed` false, `gates` and `measured_gates` null, with
 * the checks and failures of omm_verify_report_json; and JUnit XML with a case for each check
 * and the properties of omm_verify_gate_junit.  On error the buffer is unchanged.
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_verify_refusal_json(omm_buf *out, const omm_verify_report *report);
OMM_CHECKED omm_err omm_verify_refusal_junit(omm_buf *out, const omm_verify_report *report,
                                             const char *dir);

#endif
