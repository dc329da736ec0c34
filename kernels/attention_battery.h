/* attention_battery.h - attention and its caches over odd shapes, as kernels_battery.h does it. */
#ifndef ENGINE_ATTENTION_BATTERY_H
#define ENGINE_ATTENTION_BATTERY_H

#include "kernels_battery.h"

/* split: queries in one call; 0: all in one.  Aborts when out of memory. */
void attention_battery_run(battery *out, const omm_compute *c, size_t split);

#endif
