/* internal.h - what the files of artifacts/ share. */
#ifndef ARTIFACTS_INTERNAL_H
#define ARTIFACTS_INTERNAL_H

#include "omm/bundle.h"
#include "omm/evidence.h"
#include "omm/file.h"
#include "omm/file_in.h"
#include "omm/json.h"
#include "omm/judge.h"
#include "omm/pool.h"
#include "omm/rng.h"
#include "omm/scenario_facts.h"

#define BUNDLE_ARENA_BYTES_MAX (1u << 30) /* records of one bundle in memory */
/* manifest.json of OMM_BUNDLE_FILES_MAX files, of some 200 bytes each */
#define BUNDLE_MANIFEST_BYTES_MAX (256u << 20)
_Static_assert(BUNDLE_MANIFEST_BYTES_MAX <= OMM_JSON_BYTES_MAX, "what is sealed can be read");

/* "D", "V", "M". */
const char *bundle_class_letter(omm_bundle_class class);

/* --- manifest.json --- */

typedef struct manifest_file {
    const char *path;
    omm_bundle_class class;
    uint64_t bytes;
    omm_digest sha256;
    bool is_there; /* verify: with so many bytes */
} manifest_file;

typedef struct manifest {
    char run_id[OMM_RUN_ID_SIZE];
    omm_digest run_digest, scenario_digest;
    const char *commit, *build, *machine, *created;
    const char *bundle_key; /* minisign text */
    manifest_file *files;   /* ascending by path */
    size_t file_count;
} manifest;

OMM_CHECKED omm_err manifest_write(omm_buf *out, const manifest *m);
/* The same in pieces: what stands before the list, each file of it in order, what stands behind so many of them.
 * What stands before it does not depend on the run digest. */
OMM_CHECKED omm_err manifest_put_begin(omm_buf *out, const manifest *m);
OMM_CHECKED omm_err manifest_put_file(omm_buf *out, const manifest_file *f, size_t index);
OMM_CHECKED omm_err manifest_put_end(omm_buf *out, const manifest *m, size_t file_count);
/* Strict, but trusts nothing: classes must be those of the paths, paths of the table, ascending. */
OMM_CHECKED omm_err manifest_parse(manifest *out, omm_arena *arena, omm_bytes text);
/* All but the list, which is passed over: *out has no files.  Errors: those of omm_bundle_file_read, FORMAT, VERSION. */
OMM_CHECKED omm_err manifest_read_head(manifest *out, omm_arena *arena, const char *dir);
/* SHA-256 over the D files: of a list, and file by file (omm_sha256er_init before, omm_sha256er_final behind). */
omm_digest manifest_run_digest(const manifest_file *files, size_t count);
void manifest_add_to_run_digest(omm_hasher *h, const manifest_file *f);

/* The second half of sealing (seal.c): list and hash what is there, sign.  As omm_bundle_seal. */
OMM_CHECKED omm_err bundle_list_and_sign(omm_digest *run_digest, const char *dir,
                                         const omm_bundle_seal_options *options);

/* --- evidence in memory (load.c) --- */

/* How reading a file went: err OK and the digest of its bytes, or why not. */
typedef struct file_state {
    omm_err err;
    char why[256];
    const char *named; /* the file's path, static, where `why` does not begin with it; else NULL */
    omm_digest digest; /* BLAKE2b-256 */
} file_state;

/* Why the file at `path`, static, cannot be used: one clause. */
void file_state_why(file_state *file, const char *path, const char *why);

typedef struct evidence_rows {
    file_state file;
    omm_eval_record *rows;
    size_t count;
} evidence_rows;

/* Where a line of rounds.jsonl is, newline included. */
typedef struct line_place {
    uint64_t offset;
    size_t bytes;
    omm_digest digest; /* BLAKE2b-256 */
} line_place;

/* What has a row for every submission of a run is not held: the ledger is gone through (evidence_ledger), and of the
 * rounds one at a time has its lists (evidence_round). */
typedef struct evidence {
    const char *dir; /* borrowed */
    omm_arena arena;
    file_state run_file, rounds_file, ledger_file, states_file;
    omm_run_record run;
    omm_round_record
        *heads;        /* (round_count) rounds with the sizes of their lists, which are NULL */
    line_place *lines; /* (round_count) */
    size_t round_count;
    omm_file_in rounds_in; /* rounds.jsonl; fd < 0: not open */
    struct {
        size_t index; /* SIZE_MAX: none */
        omm_round_record record;
        omm_arena arena;
        omm_buf text;
    } current; /* the round at hand */
    size_t ledger_count;
    omm_state_record *states;
    size_t state_count;
    evidence_rows before, after, control;
} evidence;

/* Read what can be read, all but the ledger; what cannot says why.  Errors: NOMEM. */
OMM_CHECKED omm_err evidence_load(evidence *out, const char *dir);
void evidence_fini(evidence *ev);
/* Make round `r` the one at hand, and see it whole until the next call.  Errors: NOMEM, IO (also: the file has
 * changed since it was loaded). */
OMM_CHECKED omm_err evidence_round(const omm_round_record **out, evidence *ev, size_t r);
/* The round at hand, which is `r`. */
const omm_round_record *evidence_at_hand(const evidence *ev, size_t r);
/* Go through ledger.jsonl; `each` may be NULL.  ev->ledger_file says how it went and ev->ledger_count how many lines it
 * has, 0 where it is no ledger: lines before the bad one have been given then.  Errors: NOMEM, those of `each`. */
typedef omm_err (*evidence_ledger_each)(void *ud, const omm_ledger_record *row);
OMM_CHECKED omm_err evidence_ledger(evidence *ev, evidence_ledger_each each, void *ud);
/* The lists of a line that omm_round_record_parse takes; out's other members are what that gave.  Errors: NOMEM, FORMAT (it
 * is no such line, or not this one). */
OMM_CHECKED omm_err round_lists_read(omm_round_record *out, omm_arena *arena, omm_bytes line);
/* What omm_audit_order sorts by.  The seed is the digest over all accepted submissions. */
void audit_seed_add(omm_hasher *seed, const omm_round_record *round);
omm_digest audit_rank(const omm_digest *seed, const omm_digest *submission);
int audit_item_compare(const void *a, const void *b); /* of omm_audit_item */
/* Index in run.nodes, or SIZE_MAX. */
size_t evidence_node(const evidence *ev, const omm_digest *id);

/* --- the audit: checks over evidence that verify names one by one and judge counts --- */

/* A file that is in the bundle; `named` when some record refers to it. */
typedef struct audit_file {
    const char *path;
    uint64_t bytes;
    bool named;
} audit_file;

/* What a round's offer says that later checks ask for, as far as it could be read. */
typedef struct audit_offer {
    bool known;
    omm_digest nonce, global_digest, global_canonical;
    uint64_t global_bytes, payload_bytes_max;
    size_t envelope_bytes;
} audit_offer;

/* The same of an accepted submission.  There is one of these for every submission of a run: nothing of a message is
 * kept that can be read again. */
typedef struct audit_submission {
    omm_digest blob; /* audit_blob_digest of its payload's description */
    uint64_t payload_bytes;
    uint32_t envelope_bytes; /* 0: it could not be read */
    uint32_t receipt_bytes;  /* 0: the same of its receipt */
} audit_submission;

/* What a submission that was refused for its residual should have gone on from. */
typedef struct audit_residual {
    size_t round, index; /* of its place in `refused` */
    omm_digest before;
} audit_residual;

typedef struct audit {
    evidence ev;
    omm_arena arena;
    omm_pool *pool;
    audit_offer *offers;               /* (ev.round_count) */
    audit_submission **submissions;    /* [round][index in accepted]; NULL in judge */
    omm_scenario_reader read_scenario; /* NULL: not here */
    bool has_facts;                    /* scenario.yaml could be read, and agrees with run.json: */
    omm_scenario_facts facts;
    omm_digest agreed;   /* what round 0 follows: run.json, scenario.yaml, policy.yaml */
    size_t signed_count; /* accepted ones that the enrolled node has signed */
    struct {
        uint64_t count, up, down; /* bytes of their payloads, and of the adapters they began with */
    } sent;                       /* of accepted ones that are what offer and round say */
    audit_residual *residuals;    /* (residual_count) ascending; audit_submissions notes them */
    size_t residual_count, residual_capacity;
    omm_digest residual_zero; /* what a node goes on from that has none */
    audit_file *files;        /* ascending by path; NULL in judge */
    size_t file_count;
    bool
        no_sums; /* the first adapter is not as run.json says: payloads and later ones were not read */
    /* Where failures go, and how many things the current check has looked at. */
    void (*fail)(void *ud, const char *path, const char *sentence);
    void *ud;
    size_t items, failures;
    omm_err fatal; /* NOMEM, or a file that changes: the audit cannot go on */
} audit;

/* Make round `r` the one at hand, as every check of what is in its lists needs.  NULL: the audit cannot go on, which is
 * reported and in a->fatal. */
const omm_round_record *audit_round(audit *a, size_t r);
/* Load the evidence and make room.  Errors: NOMEM. */
OMM_CHECKED omm_err audit_open(audit *a, const char *dir);
/* From now on audit_submissions keeps what payloads and ledger are compared with.  Errors: NOMEM. */
OMM_CHECKED omm_err audit_remember_submissions(audit *a);
void audit_close(audit *a);
void audit_fail(audit *a, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Count one thing looked at; report `path` with omm_err_sentence() unless err is OK. */
bool audit_expect(audit *a, omm_err err, const char *path);
/* Append the file and mark it as named; a failure is reported. */
bool audit_read(audit *a, omm_buf *out, const char *path);
void audit_name(audit *a, const char *path);
/* Has it been named?  False when the files are not known (judge). */
bool audit_is_named(audit *a, const char *path);
/* Is it the public half of the key that a simulation of this seed derives for `name`? */
bool audit_key_follows(const omm_public_key *key, uint64_t seed, omm_purpose purpose,
                       const char *name);
/* Is `d` in the ascending list? */
bool audit_has(const omm_digest *list, size_t count, const omm_digest *d);
/* Held-out items after each round, as scenario.yaml says; needs has_facts. */
uint64_t audit_round_items(const audit *a);
/* Digest over size, digest and chunks of what a blob describes. */
omm_digest audit_blob_digest(const omm_blob *blob);
/* The first of these in which two differ, or NULL. */
const char *audit_blob_differs(const omm_blob *is, const omm_blob *said);

/* Read accepted submission `i` of round `r`, the one at hand: what rounds.jsonl names, and signed by the enrolled node.  Its parts live in
 * `arena` and `text`, both initialised by the caller.  False: not so, which is reported. */
bool audit_open_submission(audit *a, omm_submission *out, omm_arena *arena, omm_buf *text, size_t r,
                           size_t i);

/* Each needs run.json and rounds.jsonl; without them it fails and says so.  In this order: later
 * ones use what earlier ones read. */
void audit_run(audit *a);         /* audit_run.c */
void audit_offers(audit *a);      /* audit_chain.c */
void audit_submissions(audit *a); /* audit_chain.c */
void audit_receipts(audit *a);    /* audit_chain.c */
void audit_refusals(audit *a);    /* audit_refused.c */
void audit_payloads(audit *a);    /* audit_sum.c */
void audit_aggregation(audit *a); /* audit_sum.c */
void audit_broadcast(audit *a);   /* audit_sum.c */
void audit_ledger(audit *a);      /* audit_end.c */
void audit_eval(audit *a);        /* audit_end.c */
void audit_end(audit *a);         /* audit_end.c: close.env */
/* A part of audit_eval: what the rows of eval/ can be of (audit_items.c). */
void audit_items(audit *a);
/* And of one file: rows of equal items are equal in all that judging gives. */
void audit_equal_items(audit *a, const char *path, const evidence_rows *rows);

/* judge_repro.c: the verdicts of measured/repro.json, after the chain has been audited. */
OMM_CHECKED omm_err judge_repro(omm_verdicts *out, const omm_gate_context *context, audit *a);

/* Values of state `number` (0 .. rounds): adapters/rNNN.bin decoded.  (value_count) in `values`. */
bool audit_broadcast_values(audit *a, float *values, omm_encoded *info, uint32_t number);

#endif
