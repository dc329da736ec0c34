/* serving.h - a node with its service and, behind a socket, the coordinator of a federation (federation.h), on a clock of the
 * test's; its training is a loop that ends when the test wants it to.
 */
#ifndef TESTS_SERVING_H
#define TESTS_SERVING_H

#include "federation.h"

#include "omm/node_service.h"
#include "omm/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define SERVING_WAIT_MS 100000u /* for what must come */
#define SERVING_HOURS "00:00-12:00"
enum {
    SERVING_GO_MS = 0,
    SERVING_PAUSE_MS = 13 * 3600 * 1000
}; /* wall times in and outside of them */

typedef struct serving {
    fed f;
    omm_server *server;
    omm_guest_rules rules;            /* these hours */
    omm_node_service_options options; /* may be changed before serving_start; no guest */
    omm_node_service_result result;
    char url[64], dir[OMM_PATH_MAX];
    pthread_t coordinator, node;

    /* the coordinator */
    atomic_bool is_over;
    atomic_bool is_mute;   /* nothing is answered, and the coordinator does not hear it */
    atomic_uint asked;     /* requests that came */
    atomic_int connection; /* of the last one */
    void (*heard)(const omm_request *request); /* NULL, or before it is answered */

    /* the training */
    atomic_uint begun, left, resumed, steps, rests;
    atomic_bool may_end;
    void (*ends)(void); /* NULL, or when it does */
    omm_err (*honest)(omm_training *api, omm_training_result *out, float *values,
                      omm_buf *step_digests, const omm_training_job *job,
                      const struct omm_compute *compute);
} serving;

extern serving serves; /* the only one */

/* One node, one round, and a clock that stands at an hour outside of SERVING_HOURS. */
void serving_open(void);
void serving_start(void); /* the service, on a thread */
void serving_end(void);   /* waits for its end: the run is over, or it was stopped */
void serving_close(void);

/* ---- the clock: it stands still, but for what the test lets pass, or goes as far as somebody sleeps ---- */
void serving_stand(bool stands);
void serving_pass(uint64_t ms);
/* When it is asked for the time so many times from now, `ms` have passed. */
void serving_pass_at(unsigned look, uint64_t ms);
/* At a look that is due, the machine says so. */
void serving_say(uint64_t wall_ms);
/* Whatever the node does at this time, it has done: it has slept, or has looked at the clock, many times. */
void serving_settle(void);
void serving_settle_asking(void);

/* ---- what there is to see ---- */
void serving_wait(atomic_uint *count, unsigned want);
/* Lines of its log with these words. */
unsigned serving_said(const char *words);
void serving_wait_said(const char *words, unsigned want);

#endif
