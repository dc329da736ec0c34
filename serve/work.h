/* work.h - requests on their way: a queue, a thread that computes, and what has come of each so far.
 *
 *   submit --> waits --> each of its texts takes a seat when one is free, in the order of coming --> done
 *
 * A job belongs to who submitted it and to the thread, until both have let it go.  What is to be sent is bytes:
 * the thread writes them, read takes them; a reader that finds none is suspended until there are some.
 *
 * Depends on: engine, request, output; libmicrohttpd's suspend and resume.  Threads: all but open and close by any.
 */
#ifndef SERVE_WORK_H
#define SERVE_WORK_H

#include "output.h"

#include "omm/json.h"

struct MHD_Connection;

/* One text of a request. */
typedef struct choice {
    output output;
    omm_constraint *constraint; /* while it sits; NULL: it may be any text */
    uint32_t index, seat;
    bool sits, ended;
    uint32_t prompt_count, reused;
    json_t *
        logprobs; /* of tokens that have not been sent: {"entry", "end": bytes of the text up to and with the token,
                       * "offset": characters before it}; NULL: not asked for */
    /* echo with log probabilities: of the prompt, too */
    omm_detok echo_detok;
    size_t echo_characters; /* of the prompt so far, without bytes that may begin one */
    bool echo_failed;       /* there was no memory for one */
} choice;

typedef struct job {
    request request;
    char id[48];
    uint64_t created;            /* seconds since 1970 */
    choice *choices;             /* (count) */
    uint32_t count, next, ended; /* the next one to sit; those that have ended */
    uint64_t begun_ms;
    /* The rest under the work's lock: */
    omm_buf out;     /* to be sent */
    size_t taken;    /* of it */
    unsigned status; /* of HTTP, when it is done */
    bool done;       /* nothing more will come */
    bool left;       /* nobody reads any more */
    unsigned owners;
    struct MHD_Connection *reader; /* that is suspended, or NULL */
    struct job *after;             /* in the list of those at work */
} job;

typedef struct work work;

/* Errors: those of omm_batcher_open, NOMEM, IO. */
OMM_CHECKED omm_err work_open(work **out, const omm_serve_options *o);
/* An eventfd that is written to whenever a reader has been woken; borrowed until work_end.  Before the first submit. */
void work_tell(work *w, int event);
/* Jobs that are not done get an error; nothing is suspended any more.  Then close frees what is left. */
void work_end(work *w);
void work_close(work *w);

/* A job with nothing in it but its request to be filled.  Errors: NOMEM. */
OMM_CHECKED omm_err work_make(job **out);
/* Ready to compute: request has been read.  False: the queue is full, or no more is taken. */
OMM_CHECKED bool work_submit(work *w, job *j, fault *why);
/* No more is taken from now on.  Texts that wait or sit. */
uint32_t work_stop(work *w);
bool work_is_stopped(work *w);
/* Nobody wants it any more: its seats are left, its reader is woken. */
void work_forget(work *w, job *j);
/* The same, and it is not to be used after that. */
void work_leave(work *w, job *j);
/* At most `size` bytes of what is to be sent.  0 with *end: all has been sent; 0 without: `reader` has been suspended. */
size_t work_read(work *w, job *j, char *out, size_t size, bool *end, struct MHD_Connection *reader);
/* Is the answer there?  If not, `reader` has been suspended. */
bool work_is_done(work *w, job *j, struct MHD_Connection *reader);
/* An answer of HTTP's that no job gave. */
void work_count_status(work *w, unsigned status);
/* Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err work_metrics(omm_buf *out, work *w);

#endif
