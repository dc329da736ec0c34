/* mend.c - a fault of nng 1.5.2 that would end a coordinator: the linker leads three of its inner calls here
 * (cmake/OmmDependencies.cmake).
 *
 * A transport's callback asks its stream for what comes next.  Where the pipe was stopped meanwhile,
 * nni_aio_begin refuses, and the stream returns without a word: nobody calls the transport back, so whoever
 * waits for the pipe to be at rest waits for ever.  That is the one thread that ends connections: a peer that
 * goes in the middle of several requests was enough.  Here a refused request of a stream is called back with
 * its error, as in later versions (1.10); all other callers of nni_aio_begin find what they found.
 */
#include <nng/nng.h>

#include <stdbool.h>

typedef struct nng_stream nng_stream;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_nni_aio_begin(nng_aio *aio);
int __wrap_nni_aio_begin(nng_aio *aio);
void __real_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __real_nng_stream_send(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_send(nng_stream *stream, nng_aio *aio);
void nni_aio_finish_error(nng_aio *aio, int result); /* nng's own */

static _Thread_local bool s_is_stream; /* the call comes from a transport, through a stream */

int __wrap_nni_aio_begin(nng_aio *aio) {
    const int result = __real_nni_aio_begin(aio);
    if (result != 0 && s_is_stream) nni_aio_finish_error(aio, result);
    return result;
}

void __wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio) {
    const bool was = s_is_stream;
    s_is_stream = true;
    __real_nng_stream_recv(stream, aio);
    s_is_stream = was;
}

void __wrap_nng_stream_send(nng_stream *stream, nng_aio *aio) {
    const bool was = s_is_stream;
    s_is_stream = true;
    __real_nng_stream_send(stream, aio);
    s_is_stream = was;
}
/* NOLINTEND(bugprone-reserved-identifier) */
