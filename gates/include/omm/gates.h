/* gates.h - metrics in, verdicts out.  Whatever is not shown to be good has failed.
 *
 *   evidence --family--> metric --policy--> verdict        family: communication, fairness, quality,
 *                                                          reproducibility, integrity
 *
 * A metric fails that is missing, not finite, in another unit, of another run (stale) or of another
 * commit (foreign), has no samples or fewer than the policy asks, or is on the wrong side of its
 * threshold.  Nothing is skipped.  Each family below computes its metrics from rows of evidence and
 * judges every one of them, also when there is no evidence at all.
 *
 * Depends on: base, policy.h, stats.h.  Threads: a set of verdicts belongs to one thread at a time.
 */
#ifndef OMM_GATES_H
#define OMM_GATES_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where rows come from.  All strings are borrowed for the call. */
typedef struct omm_gate_source {
    const char *problem;    /* not NULL: the rows could not be read; why, one clause */
    const char *problem_in; /* the file that `problem` is about and does not name; NULL: none */
    const char *path;       /* in the bundle; NULL is as missing */
    omm_digest digest;      /* BLAKE2b-256 of the file */
    const char *run_id;     /* that the evidence states */
    const char *commit;     /* that the evidence states; NULL: states none */
} omm_gate_source;

/* What is being judged. */
typedef struct omm_gate_context {
    const omm_policy *policy;
    const char *run_id;
    const char *commit; /* evidence must state the same; NULL: commits are not compared */
} omm_gate_context;

/* One measured value, as a family hands it to the judge. */
typedef struct omm_metric {
    bool present;
    double value;
    uint64_t samples;
    const char *unit;
} omm_metric;

typedef struct omm_verdict {
    omm_metric_id id;
    const char *family, *metric, *unit; /* static */
    bool has_value;                     /* false: no finite value was measured */
    double value, threshold;
    omm_direction direction;
    uint64_t samples;
    bool required;
    bool passed;
    const char *reason;        /* one clause why it failed; "" when it passed */
    const char *evidence_path; /* "" when missing */
    omm_digest evidence_digest;
    const char *run_id;
    const char *commit; /* NULL: not compared */
} omm_verdict;

/* Verdicts in the order they were judged; strings live in the arena. */
typedef struct omm_verdicts {
    omm_verdict items[OMM_METRIC_COUNT];
    size_t count;
    omm_arena arena;
} omm_verdicts;
void omm_verdicts_init(omm_verdicts *verdicts);
void omm_verdicts_fini(omm_verdicts *verdicts);

/* Every required verdict passed, and there is at least one. */
bool omm_verdicts_passed(const omm_verdicts *verdicts);

/* "at_least", "at_most". */
const char *omm_direction_name(omm_direction direction);

/* Judge one metric.  Errors of this and of all families: NOMEM, STATE (judged already).  A family
 * stops at an error, and the verdicts before it stay. */
OMM_CHECKED omm_err omm_gate_judge(omm_verdicts *verdicts, const omm_gate_context *context,
                                   const omm_gate_source *source, omm_metric_id id,
                                   omm_metric metric);

/* communication: one row per completed exchange of a node in a round, of which only sums are kept.
 * Judges UP_BYTES_MAX, DOWN_BYTES_MAX, SAVING_VS_FP32; samples: rows. */
typedef struct omm_gate_bytes {
    uint64_t up, down; /* bytes on the wire, overhead included */
    uint64_t fp32;     /* what an uncompressed exchange both ways would take */
} omm_gate_bytes;
/* Begin with {0}. */
typedef struct omm_gate_traffic {
    size_t rows;
    uint64_t up_max, down_max; /* of one row */
    uint64_t wire, fp32;       /* of all rows; wire = up + down */
    bool overflowed;           /* one of these two sums */
} omm_gate_traffic;
void omm_gate_traffic_add(omm_gate_traffic *traffic, const omm_gate_bytes *row);
OMM_CHECKED omm_err omm_gate_communication(omm_verdicts *verdicts, const omm_gate_context *context,
                                           const omm_gate_source *source,
                                           const omm_gate_traffic *traffic);

/* The same from bytes as they passed: one row per node over the whole run, polls and retries included; fp32 the same
 * with adapters in f32; `ledger` (up and down of the faultless exchanges) as the evidence says.
 * Judges WIRE_SAVING and WIRE_OVERHEAD = all bytes / ledger - 1; samples: rows. */
OMM_CHECKED omm_err omm_gate_wire(omm_verdicts *verdicts, const omm_gate_context *context,
                                  const omm_gate_source *source, const omm_gate_bytes *rows,
                                  size_t count, uint64_t ledger);

/* fairness, shares: one row per node that was ever selected.  Judges JAIN_INDEX and SHARE_GAP =
 * largest - smallest share; samples: nodes.  A node that was offered nothing makes them NaN. */
typedef struct omm_gate_share {
    uint64_t tokens_accepted; /* over all its accepted submissions */
    uint64_t tokens_offered;  /* over all rounds it was selected in; at least tokens_accepted */
} omm_gate_share;
OMM_CHECKED omm_err omm_gate_shares(omm_verdicts *verdicts, const omm_gate_context *context,
                                    const omm_gate_source *source, const omm_gate_share *rows,
                                    size_t count);

/* One held-out item, before and after. */
typedef struct omm_gate_item {
    uint32_t client;              /* 0 .. client_count - 1 */
    uint64_t tokens;              /* learned tokens, at least 1, the same before and after */
    double nll_before, nll_after; /* sums, nats */
    bool is_tool;                 /* and was generated: the flags below mean something */
    bool parsed_before, parsed_after;
    bool named_before, named_after; /* the right tool */
    bool exact_before, exact_after;
} omm_gate_item;

/* fairness of uplift: WORST_UPLIFT and DECILE_UPLIFT over clients' mean item uplifts.
 * samples: clients.  A client without items makes them NaN. */
OMM_CHECKED omm_err omm_gate_client_uplift(omm_verdicts *verdicts, const omm_gate_context *context,
                                           const omm_gate_source *source,
                                           const omm_gate_item *items, size_t count,
                                           uint32_t client_count);

/* quality: UPLIFT = mean over clients of the mean over items of (before - after) / tokens;
 * UPLIFT_LOW = the low end of its interval, by the policy's bound; samples: clients.  TOOL_PARSED, TOOL_NAMED,
 * TOOL_EXACT; samples: tool items. */
OMM_CHECKED omm_err omm_gate_quality(omm_verdicts *verdicts, const omm_gate_context *context,
                                     const omm_gate_source *source, const omm_gate_item *items,
                                     size_t count, uint32_t client_count);

/* quality against the uncompressed control: nll_before is the control's, nll_after the run's.
 * Judges CONTROL_GAP = mean of client means of (after - before) / tokens; samples: clients.
 * A run without control (source->path NULL) gives no verdict, unless the policy requires one. */
OMM_CHECKED omm_err omm_gate_control(omm_verdicts *verdicts, const omm_gate_context *context,
                                     const omm_gate_source *source, const omm_gate_item *items,
                                     size_t count, uint32_t client_count);

/* reproducibility: one row per repetition.  Judges REPEAT_THREADS, REPEAT_ISA, REPEAT_SCALAR;
 * samples: repetitions of that kind, so none at all fails. */
typedef enum omm_gate_repeat_kind {
    OMM_GATE_REPEAT_THREADS, /* another thread count */
    OMM_GATE_REPEAT_ISA,     /* the next lower instruction set */
    OMM_GATE_REPEAT_SCALAR,  /* plain C, first steps */
} omm_gate_repeat_kind;
typedef struct omm_gate_repeat {
    omm_gate_repeat_kind kind;
    bool equal; /* byte for byte */
} omm_gate_repeat;
OMM_CHECKED omm_err omm_gate_reproducibility(omm_verdicts *verdicts,
                                             const omm_gate_context *context,
                                             const omm_gate_source *source,
                                             const omm_gate_repeat *rows, size_t count);

/* integrity: `accepted` submissions were checked again; `unsigned_accepted` of them have no valid
 * signature of an enrolled node; `faults` of `checks` chain and digest checks failed. */
typedef struct omm_gate_integrity_counts {
    uint64_t accepted, unsigned_accepted;
    uint64_t checks, faults;
} omm_gate_integrity_counts;
OMM_CHECKED omm_err omm_gate_integrity(omm_verdicts *verdicts, const omm_gate_context *context,
                                       const omm_gate_source *source,
                                       const omm_gate_integrity_counts *counts);

/* Append {"kind":"omm-verdicts","passed":...,"run_id":...,"schema_version":1,"verdicts":[...]} in
 * canonical JSON.  A value that is not finite is null.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_verdicts_json(omm_buf *out, const omm_verdicts *verdicts,
                                      const omm_gate_context *context);

/* Append JUnit XML: one testsuite per family, one testcase per verdict; a failed informational
 * verdict is `skipped`, with its reason.  `sets` verdict sets in order.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err omm_verdicts_junit(omm_buf *out, const omm_verdicts *const *sets,
                                       size_t set_count);

/* What it is of, whoever wrote it: `value` is any text, in which what XML has no character for is '?'. */
typedef struct omm_junit_property {
    const char *name, *value;
} omm_junit_property;
/* The same with these as <properties> of each testsuite; none: omm_verdicts_junit. */
OMM_CHECKED omm_err omm_verdicts_junit_of(omm_buf *out, const omm_verdicts *const *sets,
                                          size_t set_count, const omm_junit_property *properties,
                                          size_t property_count);

#endif
