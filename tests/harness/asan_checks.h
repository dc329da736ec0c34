/* asan_checks.h - which bytes AddressSanitizer knows to be good, many at a time; see asan_checks.c. */
#ifndef OMM_ASAN_CHECKS_H
#define OMM_ASAN_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) && defined(__x86_64__) && !defined(__clang__)
#define OMM_ASAN_CHECKS 1
#else
#define OMM_ASAN_CHECKS 0
#endif

/* True: all bytes p .. p + size - 1 may be touched.  False: look closer; always so for size 0, where
 * size > 57, and where only a part of eight bytes at an end is good. */
bool omm_asan_all_good(const void *p, size_t size);

#endif
