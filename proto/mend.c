/* mend.c - faults of nng that would end a coordinator or a node: the linker leads inner calls here (cmake/OmmNng.cmake).
 * The first five are in 1.5.2.  1.7.2 and 1.10.1 have mended 1 for what tcp:// receives, 3 for NNG_ECLOSED, which rests as 4 says
 * instead, and 5; what is mended twice does no harm.  All that is left of the five is in them as it was, and 6 is in 1.10.1 alone.
 *
 * 1. A transport's callback asks its stream for what comes next.  Where the pipe was stopped meanwhile,
 * nni_aio_begin refuses, and the stream returns without a word: nobody calls the transport back, so whoever
 * waits for the pipe to be at rest waits for ever.  That is the one thread that ends connections: a peer that
 * goes in the middle of several requests was enough.  Here the refused request is called back with its error.
 *
 * 2. A dialer that is closed when nng_dialer_start has just found it refuses to connect in the same silence,
 * and who started it waits for ever: a node that was asked to stop in the microseconds in which it dials did not
 * end.  Here the refused connection is called back.  All other callers of nni_aio_begin find what they found.
 *
 * 3. A connection that breaks is told, now and then, as NNG_ECLOSED or NNG_ECANCELED: a broken pipe (EPIPE), and what
 * TLS or 1 says of a connection that was shut.  Where that is before the greeting, the listener takes it for its own
 * end, and never lets anybody in again: some strangers who greeted and went at once, or closed and reset, were
 * enough.  Here no operation inside of nng has these results: they are a connection that was reset.  A listener or
 * dialer that was closed refuses to go on, whatever it is told.
 *
 * 4. After any other trouble with a stranger's greeting the listener lets nobody in for 100 ms, so ten strangers
 * a second with a bad greeting keep the door shut most of the time.  Here it is one; that descriptors or memory
 * are short is waited out by the transport itself, before it accepts again.
 *
 * 5. A message whose pipe was stopped in the moment in which it was handed over is refused in the silence of 1,
 * and nobody frees it: a coordinator lost one of a thousand answers to peers that ask and go, a node the request
 * that an end of the connection met.  Here the message is freed, as its pipe will not send it.
 *
 * 6. Who stops an operation that another thread is just finishing takes away its mark of being under way: it does not
 * wait for the callback, which then runs with what was freed, and nng ends the process.  One of some thousand clients
 * that were closed while they dialled was enough.  Here that mark is taken away only where an operation cannot begin.
 */
#include <nng/nng.h>

#include <stdbool.h>

#define NNG_LISTENER_REST_MS 100
#define REST_MS 1

typedef struct nng_stream nng_stream;
typedef struct nni_pipe nni_pipe;
typedef struct nni_task nni_task;
typedef void (*nni_aio_cancel_fn)(nng_aio *aio, void *arg, int result);

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_nni_aio_begin(nng_aio *aio);
int __wrap_nni_aio_begin(nng_aio *aio);
void __real_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __real_nng_stream_send(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_send(nng_stream *stream, nng_aio *aio);
int __real_nng_dialer_start(nng_dialer dialer, int flags);
int __wrap_nng_dialer_start(nng_dialer dialer, int flags);
int __real_nni_aio_result(nng_aio *aio);
int __wrap_nni_aio_result(nng_aio *aio);
int __wrap_nng_aio_result(nng_aio *aio);
void __real_nni_pipe_send(nni_pipe *pipe, nng_aio *aio);
void __wrap_nni_pipe_send(nni_pipe *pipe, nng_aio *aio);
int __real_nni_aio_schedule(nng_aio *aio, nni_aio_cancel_fn cancel, void *arg);
int __wrap_nni_aio_schedule(nng_aio *aio, nni_aio_cancel_fn cancel, void *arg);
void __real_nni_task_abort(nni_task *task);
void __wrap_nni_task_abort(nni_task *task);
void __real_nni_sleep_aio(nng_duration ms, nng_aio *aio);
void __wrap_nni_sleep_aio(nng_duration ms, nng_aio *aio);
void nni_aio_finish_error(nng_aio *aio, int result); /* nng's own */

static _Thread_local bool s_is_awaited; /* the call comes through a stream, or starts a dialer */
static _Thread_local nng_aio *s_handed_over;
static _Thread_local bool s_is_beginning;

int __wrap_nni_aio_begin(nng_aio *aio) {
    const int result = __real_nni_aio_begin(aio);
    if (result != 0 && s_is_awaited) nni_aio_finish_error(aio, result);
    if (result != 0 && aio == s_handed_over) {
        nng_msg_free(nng_aio_get_msg(aio));
        nng_aio_set_msg(aio, NULL);
    }
    return result;
}

void __wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio) {
    const bool was = s_is_awaited;
    s_is_awaited = true;
    __real_nng_stream_recv(stream, aio);
    s_is_awaited = was;
}

void __wrap_nng_stream_send(nng_stream *stream, nng_aio *aio) {
    const bool was = s_is_awaited;
    s_is_awaited = true;
    __real_nng_stream_send(stream, aio);
    s_is_awaited = was;
}

int __wrap_nng_dialer_start(nng_dialer dialer, int flags) {
    const bool was = s_is_awaited;
    s_is_awaited = true;
    const int result = __real_nng_dialer_start(dialer, flags);
    s_is_awaited = was;
    return result;
}

void __wrap_nni_pipe_send(nni_pipe *pipe, nng_aio *aio) {
    s_handed_over = aio;
    __real_nni_pipe_send(pipe, aio);
    s_handed_over = NULL;
}

int __wrap_nni_aio_result(nng_aio *aio) {
    const int result = __real_nni_aio_result(aio);
    return result == NNG_ECLOSED || result == NNG_ECANCELED ? NNG_ECONNRESET : result;
}

/* Ours are told as they are. */
int __wrap_nng_aio_result(nng_aio *aio) {
    return __real_nni_aio_result(aio);
}

int __wrap_nni_aio_schedule(nng_aio *aio, nni_aio_cancel_fn cancel, void *arg) {
    s_is_beginning = true;
    const int result = __real_nni_aio_schedule(aio, cancel, arg);
    s_is_beginning = false;
    return result;
}

void __wrap_nni_task_abort(nni_task *task) {
    if (s_is_beginning) __real_nni_task_abort(task);
}

void __wrap_nni_sleep_aio(nng_duration ms, nng_aio *aio) {
    __real_nni_sleep_aio(ms == NNG_LISTENER_REST_MS ? REST_MS : ms, aio);
}
/* NOLINTEND(bugprone-reserved-identifier) */
