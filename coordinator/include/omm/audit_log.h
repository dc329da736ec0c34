/* audit_log.h - what a service did, in a file that only grows and whose entries hold each other.
 *
 *   {"at":"2026-11-20T19:40:12.123Z","event":"start",...,"previous":"000...","seq":0}
 *   {"at":"2026-11-20T19:41:07.001Z","event":"round_open",...,"previous":<digest of the line above>,"seq":1}
 *
 * One JSON object a line, in the spelling of json.h.  `previous` is the BLAKE2b-256 of the line before,
 * its newline included (zeros for the first), so an entry that is changed, taken out or put in breaks
 * the chain at the next one.  Whoever may write the file can write it anew as a whole, or cut off its end:
 * against that, the head (digest of the last line) is shown where others can keep it, and a check
 * takes the head that was kept.
 *
 * Depends on: base.  Threads: a log belongs to one thread at a time; the check has no shared state.
 */
#ifndef OMM_AUDIT_LOG_H
#define OMM_AUDIT_LOG_H

#include "omm/clock.h"
#include "omm/hash.h"
#include "omm/json.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_AUDIT_LINE_BYTES_MAX ((size_t)64 << 10)

typedef struct omm_audit_log omm_audit_log;

/* Open, or begin, the file at `path` (mode 0600).  An end that a crash tore, a line without its
 * end or zeros and what follows them, is cut off, which the next entry says (event "recovered", with the bytes).
 * each (may be NULL) gets every whole entry that stands there, in order, with `ud`; its error ends the call.
 * Errors: IO, NOMEM, FORMAT (no log stands there, or over 1 MiB is torn: it is left as it is), those of each. */
typedef omm_err (*omm_audit_entry_fn)(void *ud, const json_t *entry);
OMM_CHECKED omm_err omm_audit_log_open(omm_audit_log **out, const char *path, omm_clock clock,
                                       omm_audit_entry_fn each, void *ud);
void omm_audit_log_close(omm_audit_log *log); /* NULL is fine */

/* Append one entry.
 *
 *   taken    object of further members, none of them at, event, previous or seq; may be NULL
 *   durable  on disk when this returns; else when the system writes it (a killed process loses nothing)
 *
 * Errors: IO, NOMEM, TOO_BIG, FORMAT.  On error the file is as it was, but for an fsync that failed. */
OMM_CHECKED omm_err omm_audit_log_put(omm_audit_log *log, const char *event, json_t *taken,
                                      bool durable);
/* Entries so far, and the digest of the last. */
uint64_t omm_audit_log_head(omm_digest *head, const omm_audit_log *log);

typedef struct omm_audit_check {
    uint64_t entries;
    omm_digest head;          /* of the last entry */
    char first[25], last[25]; /* their times; "" for none */
    bool has_known;           /* an entry has the digest asked for; true when none was */
} omm_audit_check;

/* Walk the chain.  known: the head at some time before, which must be the digest of an entry; or NULL.
 * Errors: NOT_FOUND, IO, NOMEM, FORMAT (naming the first entry that is broken, and why). */
OMM_CHECKED omm_err omm_audit_log_verify(omm_audit_check *out, const char *path,
                                         const omm_digest *known);

/* Append the lines of one event, as they stand in the file, to `out`.  Errors: as verify, TOO_BIG. */
OMM_CHECKED omm_err omm_audit_log_copy(omm_buf *out, const char *path, const char *event);

#endif
