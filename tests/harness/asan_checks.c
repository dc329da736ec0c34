/* asan_checks.c - gcc's sanitizer asks `__asan_loadN` about every load of a vector, and that looks at the
 * shadow byte by byte: 70 % of the time of a test that trains.  These, linked before libasan's, look at
 * eight shadow bytes at once and leave whatever is not plainly good to libasan, report included.
 * Source of the mapping: AddressSanitizer's algorithm, x86-64 Linux: shadow = (address >> 3) + 0x7fff8000. */
#include "asan_checks.h"

#if OMM_ASAN_CHECKS
#include <stdint.h>

#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

void *__asan_region_is_poisoned(void *begin, size_t size);
void __asan_report_load_n(void *p, size_t size);
void __asan_report_store_n(void *p, size_t size);
void __asan_loadN(void *p, size_t size);
void __asan_storeN(void *p, size_t size);

UNCHECKED static inline __attribute__((always_inline)) bool all_good(const void *p, size_t size) {
    const uintptr_t at = (uintptr_t)p, first = at >> 3, last = (at + size - 1) >> 3;
    if (size == 0 || last - first > 7) return false;
    uint64_t shadow = 0;
    __builtin_memcpy(&shadow, (const void *)(first + 0x7fff8000u), sizeof shadow);
    return shadow << (8 * (7 - (last - first))) == 0;
}

UNCHECKED bool omm_asan_all_good(const void *p, size_t size) {
    return all_good(p, size);
}

UNCHECKED void __asan_loadN(void *p, size_t size) {
    if (!all_good(p, size) && __asan_region_is_poisoned(p, size)) __asan_report_load_n(p, size);
}

UNCHECKED void __asan_storeN(void *p, size_t size) {
    if (!all_good(p, size) && __asan_region_is_poisoned(p, size)) __asan_report_store_n(p, size);
}
#endif
