/* energy.h - what the processors of this machine have used, where it tells: RAPL counters of the
 * kernel's powercap folder.
 *
 * Counts the zones intel-rapl:N called package-...; the zones inside them, psys and the mmio twins
 * would count the same joules twice.  The whole machine is measured, not this process.
 * Depends on: file.  Threads: one at a time.
 */
#ifndef CLI_ENERGY_H
#define CLI_ENERGY_H

#include "omm/file.h"

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_FOLDER "/sys/class/powercap"

enum { ENERGY_PACKAGES_MAX = 16 };

typedef struct energy {
    char folder[OMM_PATH_MAX];
    uint32_t zones[ENERGY_PACKAGES_MAX];     /* N of intel-rapl:N */
    uint64_t ranges_uj[ENERGY_PACKAGES_MAX]; /* the counter starts again at 0 after this */
    uint64_t last_uj[ENERGY_PACKAGES_MAX];
    uint32_t count;
    bool known; /* all counters have been readable until now, and there is one */
    double joules;
} energy;

/* Begin to count.  A machine that tells nothing, or not to us, is no error: `known` is false. */
void energy_begin(energy *e, const char *folder);
/* Add what was used since.  A counter may start again once between two calls (on a busy server after
 * some minutes at the least), so call it at every step. */
void energy_sample(energy *e);

#endif
