/* mem_due.h - for tests that let the nth allocation fail until a call succeeds: that it succeeded because it
 * makes fewer, not because the one that failed was overlooked. */
#ifndef TESTS_HARNESS_MEM_DUE_H
#define TESTS_HARNESS_MEM_DUE_H

#include "omm/mem.h"

#include <stdbool.h>

/* What omm_mem_fail_nth asked for has not happened yet. */
static inline bool mem_failure_is_due(void) {
    enum { MANY = 64 }; /* more than a call makes once in a while */
    bool due = false;
    for (unsigned i = 0; i < MANY && !due; i++) {
        void *p = omm_alloc(1, 1);
        due = !p;
        omm_free(p);
    }
    return due;
}

#endif
