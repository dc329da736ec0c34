/* guest.h - a node is a guest on its owner's machine: when it may work, how much of the machine it
 * takes, and how it steps behind everything else.
 *
 *   files of ROOT --look--> view: go, or pause and why        rules: what the owner asked for
 *   wall and processor time --pace--> how long to rest now
 *
 * What is read, below ROOT ("" on a real machine; a tree of files in tests):
 *   /sys/class/power_supply/X/{type,scope,status,online}   a Battery or UPS (not of a mouse) that is
 *                                      Discharging; without a status: when no mains is online
 *   /sys/class/thermal/thermal_zoneN/{type,temp}, /sys/class/hwmon/hwmonN/{name,tempN_input}
 *                                      the hottest sensor of the processor; if none is named like
 *                                      one, the hottest thermal zone
 *   /proc/stat, /proc/self/stat        time of all processors that others took, over 5 s and more
 *   /proc/net/route, /proc/net/ipv6_route, /sys/class/net/IF/{uevent,device/driver}
 *                                      the interface of the default route: a modem, a telephone that
 *                                      shares its network, or one that the owner named.  What a network
 *                                      manager alone knows to be metered is not seen
 *
 * What cannot be read does not pause: a machine without battery or sensors may work.  The view says
 * what is not known.  A pause by heat ends 5 degrees below its limit, one by load after two
 * measurements below four fifths of it, so that the node does not flutter.
 *
 * Source: Linux Documentation/ABI/testing/sysfs-class-{power,thermal,hwmon,net},
 * filesystems/proc.rst, block/ioprio.rst.
 * Depends on: base (err).  Threads: a guest belongs to one thread at a time.
 */
#ifndef OMM_GUEST_H
#define OMM_GUEST_H

#include "omm/err.h"
#include "omm/priority.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- hours of the day ---- */

#define OMM_HOURS_MAX 4u

/* Parts of a day in minutes from midnight, local time; an end before its begin is on the next day. */
typedef struct omm_hours {
    struct {
        uint16_t begin, end;
    } parts[OMM_HOURS_MAX];
    uint32_t count; /* 0: always */
} omm_hours;

/* "22:00-07:00", or up to OMM_HOURS_MAX of these with commas; "": always.
 * Errors: CONFIG (says what is accepted). */
OMM_CHECKED omm_err omm_hours_parse(omm_hours *out, const char *text);
bool omm_hours_contain(const omm_hours *hours, uint32_t minute);

/* ---- when to pause ---- */

typedef struct omm_guest_rules {
    omm_hours hours;
    const char *hours_text;    /* as the owner wrote it; NULL or "": always */
    uint32_t max_cpu_percent;  /* of all processors' time, for us; 100: no limit */
    uint32_t max_load_percent; /* pause while others take more of all processors; 100: never */
    uint32_t max_heat_c;       /* pause from here on; 0: never */
    bool pause_on_battery, pause_on_metered;
    const char *metered; /* interfaces that are metered, "wlan1,eth2"; NULL or "": none is named */
} omm_guest_rules;
/* Always, without limits, but not on battery or metered networks, nor over 85 degrees or 50 % load. */
omm_guest_rules omm_guest_rules_default(void);

typedef enum omm_guest_pause {
    OMM_GUEST_GO,
    OMM_GUEST_HOURS,
    OMM_GUEST_BATTERY,
    OMM_GUEST_METERED,
    OMM_GUEST_HEAT,
    OMM_GUEST_LOAD,
} omm_guest_pause;
/* "none", "hours", "battery", "metered", "heat", "load". */
const char *omm_guest_pause_name(omm_guest_pause pause);

#define OMM_GUEST_TEXT_MAX 160u

typedef struct omm_guest_view {
    omm_guest_pause pause;
    char text[OMM_GUEST_TEXT_MAX]; /* for the owner: "on battery (BAT0)"; "" for GO */
    bool knows_heat, knows_load, knows_network;
} omm_guest_view;

/* Embedded; no resources. */
typedef struct omm_guest {
    omm_guest_rules rules; /* texts borrowed */
    const char *root;      /* borrowed */
    omm_guest_view view;
    bool has_looked, has_sample;
    uint64_t looked_ms, sample_ms;
    uint64_t all, busy, own; /* ticks at sample_ms */
    bool is_hot, is_loaded;
    uint32_t calm; /* measurements in a row */
    uint32_t load_percent;
} omm_guest;

void omm_guest_init(omm_guest *guest, const omm_guest_rules *rules, const char *root);
/* What holds at now_ms (monotonic) and at `minute` of the local day.  Reads files at most once a
 * second.  Never fails. */
const omm_guest_view *omm_guest_look(omm_guest *guest, uint64_t now_ms, uint32_t minute);
/* Minute of the local day (TZ) at wall_ms since 1970. */
uint32_t omm_guest_minute(uint64_t wall_ms);

/* ---- how much of the processors ---- */

/* A budget of processor time that fills while wall time passes, up to one second's worth. */
typedef struct omm_pace {
    uint32_t percent; /* of all processors; 100 and over: no limit */
    uint32_t processors;
    uint64_t wall_ns, cpu_ns; /* where the account begins */
} omm_pace;

void omm_pace_init(omm_pace *pace, uint32_t percent, uint32_t processors, uint64_t wall_ns,
                   uint64_t cpu_ns);
/* How long to do nothing from now on, in ns, to be within the budget; 0: go on. */
uint64_t omm_pace_owed_ns(omm_pace *pace, uint64_t wall_ns, uint64_t cpu_ns);
/* Processor time of this process, all threads. */
uint64_t omm_process_cpu_ns(void);

#endif
