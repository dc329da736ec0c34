/* settings.h - a configuration as omm_config_write spells it, taken apart into paths and values.
 *
 *   codec:              codec.up.kind = "int8"
 *     up:               population[0].group = "homes"
 *       kind: "int8"
 *
 * Used by compare.c only.  Depends on: base.
 */
#ifndef ARTIFACTS_SETTINGS_H
#define ARTIFACTS_SETTINGS_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/mem.h"

typedef struct setting {
    const char *path, *value;
} setting;

typedef struct settings {
    setting *items; /* in the order of the text */
    size_t count;
} settings;

/* Memory is the arena's.  Errors: FORMAT (not that spelling: deeper than 16, a path over 255 bytes, over
 * 4,096 lines, a line that is neither key nor item), NOMEM. */
OMM_CHECKED omm_err settings_parse(settings *out, omm_arena *arena, omm_bytes text);
/* NULL where there is none. */
const char *settings_value(const settings *s, const char *path);

#endif
