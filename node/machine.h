/* machine.h - private to node: what the kernel's files say about power, heat, load and network.
 *
 * Files may be missing or say anything; lines are cut at 255 bytes.  See omm/guest.h for which
 * files they are.
 *
 * Depends on: libc.  Threads: no shared state.
 */
#ifndef OMM_NODE_MACHINE_H
#define OMM_NODE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_NAME_MAX 64u

/* Does it run on a battery or a UPS?  `name` gets which. */
bool machine_on_battery(char name[MACHINE_NAME_MAX], const char *root);

/* The hottest sensor of the processor in degrees Celsius; false: there is none. */
bool machine_heat(int *celsius, char name[MACHINE_NAME_MAX], const char *root);

/* Clock ticks since the start: of all processors, of these in use, of these by this process. */
typedef struct machine_ticks {
    uint64_t all, busy, own;
} machine_ticks;
bool machine_ticks_read(machine_ticks *out, const char *root);

/* The interface of the default route; false: there is none. */
bool machine_route(char name[MACHINE_NAME_MAX], const char *root);
/* Is it a modem or a telephone's, or one of `named` ("wlan1,eth2")? */
bool machine_is_metered(const char *interface, const char *named, const char *root);

#endif
