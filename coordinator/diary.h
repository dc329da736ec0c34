/* diary.h - which events of a service go into its audit log, and in what words.
 *
 *   start, enrolled (once a node), joined, canary (a verdict), round_open, receipt (one a node and round), round_over (with all refusals by
 *   reason), evidence_damaged, evidence_mended, ctl (ctl_failed after it, or alone, when it was not done), closed, stop
 *
 * What strangers can send without end is counted, not written: the log grows with rounds and nodes only.
 * A log that cannot be written does not stop a round: it makes the service sick (healthz) until it can.
 *
 * Depends on: base, audit_log.h, coordinator.h.  Threads: as the state machine.
 */
#ifndef COORDINATOR_DIARY_H
#define COORDINATOR_DIARY_H

#include "watch.h"

#include "omm/audit_log.h"
#include "omm/sign.h"

typedef struct diary_options {
    const char *path;
    const omm_run_record *run;
    omm_bytes scenario_yaml, policy_yaml; /* their digests are in the start entry */
    const omm_public_key *bundle_key;     /* of the seal that is to come: in there, too */
    const char *commit, *build;
    omm_clock clock;
    watch *watch; /* gets the head, and trouble */
    const omm_log *log;
} diary_options; /* all borrowed */

typedef struct diary diary;
OMM_CHECKED omm_err diary_open(diary **out, const diary_options *options);
void diary_close(diary *d); /* NULL is fine */

/* Errors of these two: those of omm_audit_log_put. */
/* The start, and an entry for every node that is in and has none: all of them in a new log, and whom a kill left out.
 * coord NULL: all nodes are of the list. */
OMM_CHECKED omm_err diary_start(diary *d, const omm_coord_status *status, const omm_coord *coord);
/* why: "sealed", "stopped", "drained", or the sentence of an error. */
OMM_CHECKED omm_err diary_stop(diary *d, const char *why);
void diary_event(diary *d, const omm_coord_event *event, const omm_coord *coord);
/* A file of a round that is over is not as it was (why), or is so again (NULL). */
void diary_evidence(diary *d, uint32_t round, const char *path, const char *why);
/* An action of the operator, before it is done: what is not in the log does not happen. */
OMM_CHECKED omm_err diary_ctl(diary *d, const char *action, const char *argument, uint32_t uid);
/* It was not done, and why. */
void diary_ctl_failed(diary *d, const char *action, uint32_t uid, const char *why);

#endif
