/* sodium.c - owns the one initialisation of libsodium. */
#include "internal.h"
#include "omm/err.h"

#include <pthread.h>
#include <sodium.h>

static pthread_once_t s_once = PTHREAD_ONCE_INIT;

static void start(void) {
    OMM_ASSERT(sodium_init() >= 0);
}

void base_sodium_ready(void) {
    OMM_ASSERT(pthread_once(&s_once, start) == 0);
}
