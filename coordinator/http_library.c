/* http_library.c - see http_library.h. */
#include "http_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libmicrohttpd.so.12"

static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static mhd_functions s_functions;
static bool s_is_loaded;

static omm_err missing(void) {
    const char *why = dlerror();
    return omm_raise(OMM_ERR_UNSUPPORTED, "http: needs %s (package libmicrohttpd12): %s", LIBRARY,
                     why ? why : "not found");
}

static omm_err load(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return missing();
#define XX(name)                                                                                   \
    {                                                                                              \
        void *found = dlsym(library, "MHD_" #name);                                                \
        if (!found) return missing(); /* the library stays: gnutls does not like to go */          \
        memcpy(&s_functions.name, &found, sizeof found);                                           \
    }
    MHD_MAP(XX)
#undef XX
    s_is_loaded = true;
    return OMM_OK;
}

omm_err mhd_load(void) {
    pthread_mutex_lock(&s_mutex);
    omm_err err = s_is_loaded ? OMM_OK : load();
    pthread_mutex_unlock(&s_mutex);
    return err;
}

const mhd_functions *mhd(void) {
    OMM_ASSERT(s_is_loaded);
    return &s_functions;
}
