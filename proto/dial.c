/* dial.c - owns the connection of a client: one attempt at a time, and the waits between them.
 *
 * nng is asked for single attempts: a dialer that is started, waited for and closed where nng says that its
 * connection is gone.  That is before nng dials again by itself, which it would do at once every other time:
 * closed a moment later, the dialer would take a request with it that had already gone over the new
 * connection, or leave that connection's memory and descriptor behind.  The thread blocks in nng or on the
 * condition; closing the dialer ends the first.
 */
#include "dial.h"

#include "omm/rng.h"

#include <stdio.h>

void dial_note(dial *d, int pipe, bool is_new) {
    pthread_mutex_lock(&d->mutex);
    if (is_new) d->pipe = pipe;
    if (!is_new && d->pipe == pipe) d->pipe = 0;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

/* nng buries connections on a thread of its own, which holds no lock of nng's here. */
static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg) {
    dial *d = arg;
    const bool is_new = event == NNG_PIPE_EV_ADD_PRE;
    if (!is_new) nng_dialer_close(nng_pipe_dialer(pipe));
    dial_note(d, nng_pipe_id(pipe), is_new);
}

static int make_dialer(dial *d) {
    int result = nng_dialer_create(&d->dialer, d->socket, d->url);
    if (result == 0 && d->tls) result = nng_dialer_set_ptr(d->dialer, NNG_OPT_TLS_CONFIG, d->tls);
    return result;
}

uint64_t dial_wait_ms(const dial *d, uint16_t chance) {
    uint64_t ms = d->min_ms;
    for (uint32_t i = 1; i < d->failures && ms < d->max_ms; i++) ms *= 2;
    if (ms > d->max_ms) ms = d->max_ms;
    return ms - (ms * chance >> 16) * 3 / 4;
}

/* With the lock held; false: stopped meanwhile. */
static bool wait_before_dialling(dial *d) {
    const omm_seed chance = omm_seed_random();
    const glue_deadline until = glue_deadline_in(dial_wait_ms(d, omm_get_u16(chance.b)));
    while (!d->is_stopping && glue_wait(&d->changed, &d->mutex, &until)) {
    }
    return !d->is_stopping;
}

/* nng's own limit of ten seconds is none in the middle of a TLS handshake. */
static void on_limit(void *arg) {
    dial *d = arg;
    if (nng_aio_result(d->limit) == 0) nng_dialer_close(d->dialer);
}

static int attempt(dial *d, nng_dialer dialer) {
    nng_sleep_aio((nng_duration)d->attempt_ms, d->limit);
    const int result = nng_dialer_start(dialer, 0);
    nng_aio_cancel(d->limit);
    nng_aio_wait(d->limit);
    return result != 0 && nng_aio_result(d->limit) == 0 ? NNG_ETIMEDOUT : result;
}

/* With the lock held, which is let go meanwhile; returns when there is no connection any more. */
static void connect_and_watch(dial *d) {
    const nng_dialer dialer = d->dialer;
    d->is_unwanted = false;
    pthread_mutex_unlock(&d->mutex);
    const int result = attempt(d, dialer);
    pthread_mutex_lock(&d->mutex);
    d->why = result;
    while (result == 0 && d->pipe != 0 && !d->is_unwanted && !d->is_stopping)
        pthread_cond_wait(&d->changed, &d->mutex);
    if (result == 0 && d->pipe == 0) d->why = NNG_ECONNSHUT;
    if (d->failures < UINT32_MAX) d->failures++;
}

static void *keep_up(void *arg) {
    dial *d = arg;
    bool is_made = true;
    pthread_mutex_lock(&d->mutex);
    while (!d->is_stopping) {
        if (is_made) {
            connect_and_watch(d);
            const nng_dialer dialer = d->dialer;
            pthread_mutex_unlock(&d->mutex);
            nng_dialer_close(dialer);
            pthread_mutex_lock(&d->mutex);
        }
        if (!wait_before_dialling(d)) break;
        is_made = make_dialer(d) == 0; /* no memory: later */
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

omm_err dial_init(dial *d, nng_socket socket, const char *url, nng_tls_config *tls,
                  const omm_client_options *options) {
    *d = (dial){.socket = socket,
                .tls = tls,
                .min_ms = options->reconnect_min_ms,
                .max_ms = options->reconnect_max_ms,
                .attempt_ms = options->attempt_ms};
    OMM_ASSERT(pthread_mutex_init(&d->mutex, NULL) == 0);
    glue_cond_init(&d->changed);
    snprintf(d->url, sizeof d->url, "%s", url);
    int result = nng_aio_alloc(&d->limit, on_limit, d);
    if (result == 0) result = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, on_pipe, d);
    if (result == 0) result = nng_pipe_notify(socket, NNG_PIPE_EV_REM_POST, on_pipe, d);
    if (result == 0) result = make_dialer(d);
    if (result != 0) return glue_error(result, "cannot dial", url);
    d->has_thread = pthread_create(&d->thread, NULL, keep_up, d) == 0;
    return d->has_thread ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no thread to dial %s", url);
}

void dial_stop(dial *d) {
    if (!d->has_thread) return;
    pthread_mutex_lock(&d->mutex);
    d->is_stopping = true;
    const nng_dialer dialer = d->dialer;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    nng_dialer_close(dialer); /* it may be in the middle of an attempt */
    pthread_join(d->thread, NULL);
    d->has_thread = false;
}

void dial_fini(dial *d) {
    if (d->tls) nng_tls_config_free(d->tls);
    if (d->limit) nng_aio_free(d->limit);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
}

void dial_heard(dial *d) {
    pthread_mutex_lock(&d->mutex);
    d->failures = 0;
    pthread_mutex_unlock(&d->mutex);
}

/* nng closes the dialer's connections on a thread of its own, and would meanwhile send over this one. */
void dial_renew(dial *d) {
    pthread_mutex_lock(&d->mutex);
    const nng_pipe pipe = {.id = (uint32_t)d->pipe};
    d->is_unwanted = pipe.id != 0;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    if (pipe.id != 0) (void)nng_pipe_close(pipe);
}

int dial_why(bool *is_up, dial *d) {
    pthread_mutex_lock(&d->mutex);
    *is_up = d->pipe != 0;
    const int why = d->why;
    pthread_mutex_unlock(&d->mutex);
    return why;
}
