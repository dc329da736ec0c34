/* internal.h - shared inside base only.
 *
 * Depends on: libsodium (sodium.c).  Threads: safe.
 */
#ifndef OMM_BASE_INTERNAL_H
#define OMM_BASE_INTERNAL_H

/* Let libsodium choose its implementations and open its random source, once per process.  Every
 * file that calls libsodium calls this first; later calls cost one load.  Aborts if it cannot. */
void base_sodium_ready(void);

#endif
