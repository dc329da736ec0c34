/* dial.h - keeps one connection of a socket up: dials, and dials again when it is lost.
 *
 *   dialling --connected--> up --lost or renewed--> waiting --time--> dialling --failed--> waiting
 *
 * A wait lies between a quarter of `d` and `d` by chance, where `d` doubles from min_ms to max_ms with
 * each failure; an answer (dial_heard) begins it again.  An attempt has attempt_ms.  Why not nng's own:
 * docs/decisions.md.
 *
 * Depends on: base; nng.  Threads: one of its own; every function from any thread.
 */
#ifndef OMM_PROTO_DIAL_H
#define OMM_PROTO_DIAL_H

#include "nng_glue.h"
#include "omm/transport.h"

typedef struct dial {
    nng_socket socket;
    nng_dialer dialer;
    nng_tls_config *tls; /* ours; NULL: none */
    char url[OMM_URL_BYTES_MAX + 1];
    uint32_t min_ms, max_ms, attempt_ms;
    nng_aio *limit; /* ends an attempt */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    int pipe;          /* up, or coming up; 0: none */
    uint32_t failures; /* since something was heard */
    int why;           /* nng's word on the last attempt that failed; 0: none since one was up */
    bool is_unwanted, is_stopping, has_thread;
} dial;

/* Begin.  `d` stays where it is until dial_fini; takes `tls` over, on errors too.  The url has been checked.
 * Errors: CONFIG, NOMEM, IO. */
OMM_CHECKED omm_err dial_init(dial *d, nng_socket socket, const char *url, nng_tls_config *tls,
                              const omm_client_options *options);
/* Before the socket is closed: nothing is dialled after it. */
void dial_stop(dial *d);
/* After the socket was closed. */
void dial_fini(dial *d);
/* The other side has answered: the next wait is a short one. */
void dial_heard(dial *d);
/* Leave this connection for a new one: it is up, but nothing comes.  Nothing is sent over it any more. */
void dial_renew(dial *d);
/* *is_up: there is a connection; else the result is nng's word on the last attempt, 0 before one has ended. */
int dial_why(bool *is_up, dial *d);

/* ---- its parts, for tests ---- */

/* nng's word on a connection: it is there, or it is gone.  It may be late: the end of one that was left is not that of
 * the one after it. */
void dial_note(dial *d, int pipe, bool is_new);
/* How long it waits now: by `chance` from a quarter (nearly, at 65,535) to all (at 0).  With the lock held. */
uint64_t dial_wait_ms(const dial *d, uint16_t chance);

#endif
