/* guest.c - see omm/guest.h: from what the machine says to go or pause, and the pace. */
#include "omm/guest.h"

#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_MINUTES 1440u
#define LOOK_MS 1000u             /* between two looks at the files */
#define LOAD_MS 5000u             /* at least, of a measurement of load */
#define LOAD_CALM 2u              /* measurements below end a pause */
#define HEAT_BELOW_C 5            /* so much below the limit ends a pause */
#define PACE_SAVED_NS 1000000000u /* the most that can be saved up */

/* ---- hours ---- */

/* "07:00"; 24:00 is an end.  NULL: it is none. */
static const char *read_time(uint16_t *out, const char *at) {
    for (int i = 0; i < 5; i++)
        if (i == 2 ? at[i] != ':' : at[i] < '0' || at[i] > '9') return NULL;
    const unsigned hour = (unsigned)(at[0] - '0') * 10 + (unsigned)(at[1] - '0');
    const unsigned minute = (unsigned)(at[3] - '0') * 10 + (unsigned)(at[4] - '0');
    if (minute > 59 || hour * 60 + minute > DAY_MINUTES) return NULL;
    *out = (uint16_t)(hour * 60 + minute);
    return at + 5;
}

static const char *read_part(omm_hours *hours, const char *at) {
    uint16_t begin = 0, end = 0;
    if (hours->count == OMM_HOURS_MAX) return NULL;
    at = read_time(&begin, at);
    if (!at || *at != '-') return NULL;
    at = read_time(&end, at + 1);
    if (!at || begin == end || begin == DAY_MINUTES) return NULL;
    hours->parts[hours->count].begin = begin;
    hours->parts[hours->count++].end = end;
    return at;
}

omm_err omm_hours_parse(omm_hours *out, const char *text) {
    omm_hours hours = {0};
    const char *at = strcmp(text, "always") == 0 ? "" : text;
    while (at && *at) {
        at = read_part(&hours, at);
        if (!at || !*at) break;
        if (*at++ != ',' || !*at) at = NULL; /* nothing between, or nothing after */
    }
    if (!at)
        return omm_raise(OMM_ERR_CONFIG,
                         "hours: \"%.60s\"; accepted: HH:MM-HH:MM, up to %u of these with commas, "
                         "or always (\"\" is the same)",
                         text, OMM_HOURS_MAX);
    *out = hours;
    return OMM_OK;
}

bool omm_hours_contain(const omm_hours *hours, uint32_t minute) {
    for (uint32_t i = 0; i < hours->count; i++) {
        const uint32_t begin = hours->parts[i].begin, end = hours->parts[i].end;
        if (begin < end ? minute >= begin && minute < end : minute >= begin || minute < end)
            return true;
    }
    return hours->count == 0;
}

uint32_t omm_guest_minute(uint64_t wall_ms) {
    const time_t seconds = (time_t)(wall_ms / 1000);
    struct tm local;
    if (!localtime_r(&seconds, &local)) return 0;
    return (uint32_t)(local.tm_hour * 60 + local.tm_min);
}

/* ---- rules ---- */

omm_guest_rules omm_guest_rules_default(void) {
    return (omm_guest_rules){.max_cpu_percent = 100,
                             .max_load_percent = 50,
                             .max_heat_c = 85,
                             .pause_on_battery = true,
                             .pause_on_metered = true};
}

const char *omm_guest_pause_name(omm_guest_pause pause) {
    static const char *const names[] = {"none", "hours", "battery", "metered", "heat", "load"};
    return names[pause];
}

void omm_guest_init(omm_guest *guest, const omm_guest_rules *rules, const char *root) {
    *guest = (omm_guest){.rules = *rules, .root = root ? root : ""};
}

__attribute__((format(printf, 3, 4))) static bool
pause_for(omm_guest_view *view, omm_guest_pause why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(view->text, sizeof view->text, format, arguments);
    va_end(arguments);
    view->pause = why;
    return true;
}

static bool is_too_late(omm_guest_view *view, const omm_guest *g, uint32_t minute) {
    if (omm_hours_contain(&g->rules.hours, minute)) return false;
    return pause_for(view, OMM_GUEST_HOURS, "it is %02u:%02u, outside of %.80s", minute / 60,
                     minute % 60, g->rules.hours_text ? g->rules.hours_text : "the hours");
}

static bool is_on_battery(omm_guest_view *view, const omm_guest *g) {
    char name[MACHINE_NAME_MAX];
    if (!g->rules.pause_on_battery || !machine_on_battery(name, g->root)) return false;
    return pause_for(view, OMM_GUEST_BATTERY, "on battery (%s)", name);
}

static bool is_on_metered(omm_guest_view *view, const omm_guest *g) {
    char name[MACHINE_NAME_MAX];
    view->knows_network = machine_route(name, g->root);
    if (!g->rules.pause_on_metered || !view->knows_network) return false;
    if (!machine_is_metered(name, g->rules.metered, g->root)) return false;
    return pause_for(view, OMM_GUEST_METERED, "the network is metered (%s)", name);
}

static bool is_too_hot(omm_guest_view *view, omm_guest *g) {
    char name[MACHINE_NAME_MAX];
    int celsius = 0;
    const int max = (int)g->rules.max_heat_c;
    view->knows_heat = machine_heat(&celsius, name, g->root);
    g->is_hot = max > 0 && view->knows_heat && celsius >= (g->is_hot ? max - HEAT_BELOW_C : max);
    if (!g->is_hot) return false;
    return pause_for(view, OMM_GUEST_HEAT, "%s has %d degrees, the limit is %d", name, celsius,
                     max);
}

/* A measurement is complete: what others took since the last one, in percent. */
static void take_load(omm_guest *g, const machine_ticks *now) {
    const uint64_t all = now->all - g->all, busy = now->busy - g->busy, own = now->own - g->own;
    const uint64_t others = busy > own ? busy - own : 0;
    const uint32_t max = g->rules.max_load_percent;
    g->load_percent = (uint32_t)(others * 100 / all);
    g->calm = g->load_percent * 5 <= max * 4 ? g->calm + 1 : 0;
    if (g->load_percent > max) g->is_loaded = true;
    if (g->calm >= LOAD_CALM) g->is_loaded = false;
}

static bool is_loaded(omm_guest_view *view, omm_guest *g, uint64_t now_ms) {
    machine_ticks now;
    view->knows_load = machine_ticks_read(&now, g->root);
    /* Ticks that go back are another machine's: begin anew. */
    const bool follows =
        g->has_sample && now.all >= g->all && now.busy >= g->busy && now.own >= g->own;
    if (!view->knows_load || g->rules.max_load_percent >= 100) {
        g->has_sample = g->is_loaded = false;
    } else if (!follows || (now_ms - g->sample_ms >= LOAD_MS && now.all > g->all)) {
        if (follows) take_load(g, &now);
        g->all = now.all;
        g->busy = now.busy;
        g->own = now.own;
        g->sample_ms = now_ms;
        g->has_sample = true;
    }
    if (!g->is_loaded) return false;
    return pause_for(view, OMM_GUEST_LOAD,
                     "other programs take %u %% of the processors, the limit is %u %%",
                     g->load_percent, g->rules.max_load_percent);
}

const omm_guest_view *omm_guest_look(omm_guest *g, uint64_t now_ms, uint32_t minute) {
    if (g->has_looked && now_ms - g->looked_ms < LOOK_MS) return &g->view;
    g->has_looked = true;
    g->looked_ms = now_ms;
    omm_guest_view view = {0};
    /* Heat and load have a memory, so they are asked every time.  What is
     * said: the network, else battery, else hours; only without these heat, or else load. */
    const bool loaded = is_loaded(&view, g, now_ms);
    const bool hot = is_too_hot(&view, g);
    const bool first =
        is_on_metered(&view, g) || is_on_battery(&view, g) || is_too_late(&view, g, minute);
    (void)(loaded || hot || first);
    g->view = view;
    return &g->view;
}

/* ---- pace ---- */

void omm_pace_init(omm_pace *pace, uint32_t percent, uint32_t processors, uint64_t wall_ns,
                   uint64_t cpu_ns) {
    *pace = (omm_pace){percent, processors, wall_ns, cpu_ns};
}

uint64_t omm_pace_owed_ns(omm_pace *pace, uint64_t wall_ns, uint64_t cpu_ns) {
    if (pace->percent >= 100 || pace->percent == 0 || pace->processors == 0) return 0;
    const double share = (double)pace->percent / 100.0 * (double)pace->processors;
    const double wall = (double)(wall_ns - pace->wall_ns);
    const double paid = (double)(cpu_ns - pace->cpu_ns) / share; /* wall time for this much work */
    if (paid > wall) return (uint64_t)(paid - wall);
    if (wall - paid > (double)PACE_SAVED_NS) { /* begin anew with what may be saved */
        pace->wall_ns = wall_ns - PACE_SAVED_NS;
        pace->cpu_ns = cpu_ns;
    }
    return 0;
}

uint64_t omm_process_cpu_ns(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
