/* crash.h - named stages at which a test may kill the process, to see it recover.
 *
 *   OMM_CRASH_AT=after_receipt meshmind coordinator -c FILE
 *
 * The first time such a process reaches the stage it leaves a marker in its state folder and sends
 * itself SIGKILL; started again, it passes.  Libraries get the stage as a parameter; only services
 * read the environment.
 *
 * Depends on: file.  Threads: no shared state.
 */
#ifndef OMM_CRASH_H
#define OMM_CRASH_H

#include "omm/err.h"

/* The stages, and who passes through them.  One table: services check names against it. */
#define OMM_CRASH_MAP(XX)                                                                          \
    XX(after_offer, "coordinator: an offer was stored; node: an offer was taken")                  \
    XX(mid_upload, "coordinator: a chunk was taken; node: a submission was announced")             \
    XX(mid_batch, "coordinator: a verdict was written, its transaction is open")                   \
    XX(after_receipt, "coordinator: a receipt was stored, not sent; node: a receipt was taken")    \
    XX(mid_aggregation, "coordinator: the first submission was added")                             \
    XX(after_join, "coordinator: a node that came by invitation is kept, its answer is not sent")  \
    XX(canary_candidate, "coordinator: who has worked is a candidate, its answer is not sent")     \
    XX(canary_offered, "coordinator: a canary's offer was stored, and not sent")                   \
    XX(canary_upload, "coordinator: a chunk of a canary's answer was taken")                       \
    XX(canary_waiting, "coordinator: a canary is complete and waits to be trained again")          \
    XX(canary_verdict, "coordinator: a canary has its verdict, which is not kept")                 \
    XX(canary_kept, "coordinator: a canary's verdict is kept, its candidate not let in yet")       \
    XX(before_publish, "coordinator: the new adapter was evaluated, its round not yet written")    \
    XX(mid_seal, "coordinator: the verdicts are in the bundle, nothing of it is signed")           \
    XX(seal_signed, "coordinator: the signature of the bundle is there, what it signs is not")     \
    XX(after_seal, "coordinator: the bundle is sealed, nobody was told its digest")                \
    XX(after_close, "node: the end of the run was stored, nothing else has followed")              \
    XX(mid_training, "node: the first checkpoint was stored")

#define OMM_CRASH_VARIABLE "OMM_CRASH_AT"

/* Errors: CONFIG (not a stage; lists them).  NULL and "" are fine. */
OMM_CHECKED omm_err omm_crash_check(const char *stage);

/* Do not return if `stage` is the wanted one and was not passed before.  `wanted` or `state_dir`
 * NULL: do nothing. */
void omm_crash_point(const char *state_dir, const char *wanted, const char *stage);

#endif
