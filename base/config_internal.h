/* config_internal.h - what config.c (load), config_scalar.c (values) and config_write.c share. */
#ifndef OMM_CONFIG_INTERNAL_H
#define OMM_CONFIG_INTERNAL_H

#include "omm/config.h"

#define CONFIG_DEPTH_MAX 16
#define CONFIG_KEYS_MAX 128     /* keys of one mapping; a longer table is a bug */
#define CONFIG_ITEMS_MAX 65536u /* items of one list, whatever its table says */
#define CONFIG_PATH_SIZE 256
#define CONFIG_ACCEPTED_SIZE 1024

/* Keys of a table; asserts that the table is well formed. */
size_t config_table_count(const omm_config_field *fields);

/* A text in a fixed buffer, cut where it is full. */
typedef struct config_text {
    char *out;
    size_t size, used;
} config_text;
void config_text_add(config_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a field accepts, in words: "integer from 1 to 256". */
void config_accepted(char out[CONFIG_ACCEPTED_SIZE], const omm_config_field *field);
/* The keys of a table: "rank, alpha". */
void config_keys(char out[CONFIG_ACCEPTED_SIZE], const omm_config_field *fields);
/* The key nearest to a mistyped one, or NULL when none is near. */
const char *config_nearest(const omm_config_field *fields, const char *key);

/* The fewest digits that read back as the same double; whole numbers without a point. */
void config_real_text(char out[32], double value);

/* True where `count` items or bytes, or a number, keep to the bounds. */
bool config_in_bounds(const omm_config_field *field, double value);

/* Convert a scalar (`text` ends with a NUL) and store it at `at`.  Returns NULL, or what is wrong
 * with it ("is no integer"); *no_memory is set when the arena is full. */
const char *config_scalar_set(void *at, const omm_config_field *field, const char *text,
                              omm_arena *arena, bool *no_memory);

#endif
