/* audit_reason.h - is the reason of a refusal true of what was refused?  Between audit_refused.c, which reads files and
 * receipts, and audit_reason.c and audit_payload_reason.c, which decide.
 *
 * Decided is what offer, run.json, rounds.jsonl and the kept bytes say.  What they cannot say is passed: that a submission
 * came late, that its node was in quarantine, and what chunks that are not in the bundle were.
 *
 * Depends on: internal.h.  Threads: of whoever has the audit.
 */
#ifndef ARTIFACTS_AUDIT_REASON_H
#define ARTIFACTS_AUDIT_REASON_H

#include "internal.h"
#include "omm/envelope.h"

/* What is known of nodes while rounds are gone through in their order. */
typedef struct reasons {
    audit *a;
    uint32_t *
        since; /* (node_count) the first round that the node was selected in; UINT32_MAX: none so far */
    uint8_t *settled; /* (node_count) SETTLED_ of the round at hand */
    size_t due;       /* the next of a->residuals */
} reasons;

/* A refusal of the round at hand, and what came of looking at it. */
typedef struct claim {
    reasons *all;
    const omm_round_record *round;
    size_t r; /* its number; what the line says of it may be another */
    const omm_round_refused *line;
    size_t index; /* in round->refused */
    const char *path;
    omm_err reason;  /* OMM_OK: none that a submission is refused for */
    omm_err opened;  /* of the envelope */
    omm_err checked; /* of its signature and purpose */
    omm_envelope env;
    size_t node; /* index in run.nodes of a good signature's key; SIZE_MAX: of none */
    omm_submission s;
    char why[OMM_SENTENCE_BYTES_MAX + 128]; /* room for a clause with numbers */
} claim;

/* Errors: NOMEM.  Release with reasons_close, which may be called after an error too. */
OMM_CHECKED omm_err reasons_open(reasons *out, audit *a);
void reasons_close(reasons *all);
/* Before the refusals of round `r`, which is at hand, and behind them.  Every round before it has had its turn. */
void reasons_begin_round(reasons *all, size_t r);
void reasons_end_round(reasons *all, size_t r);
/* Report what is not so of refusal `index`, whose kept bytes are `text`, of the file at `path`. */
void reasons_check(reasons *all, size_t r, size_t index, const char *path, omm_bytes text);

/* The clause, printed into c->why. */
const char *claim_say(claim *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* audit_payload_reason.c: the same of a reason that a payload can give: c->s is a submission of the round.  NULL: it is true,
 * or cannot be decided; else what is so instead, a clause, which may be in c->why. */
const char *payload_contradicts(claim *c);

#endif
