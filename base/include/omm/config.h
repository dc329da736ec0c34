/* config.h - YAML files into C structs, checked against one table per mapping.
 *
 * Every mapping is an array of omm_config_field ended by {0}.  The loader fills the struct at
 * `offset`, writes defaults, and refuses: unknown keys (listing the accepted ones and the nearest),
 * duplicate keys, missing required keys, wrong types ("3x" is no integer, and neither is the quoted
 * "3"), keys without a value, values out of range or not among the choices, anchors, aliases and
 * tags, more than one document, nesting over 16, files over 1 MiB, lists over 65,536 items.  Each
 * message reads "FILE:LINE:COLUMN: path.to.key: what is wrong; accepted: ...", counted from 1.
 *
 * One spelling per value, so that no reader of YAML understands another: bool is true or false,
 * an integer has decimal digits and no leading zero, a number is written as in JSON.
 *
 * A mapping that is missing gets the defaults of its keys; it fails where one of them is required.
 * An optional one that is missing stays zero, with all in it.
 *
 *   static const omm_config_field fields[] = {
 *       OMM_CONFIG_U32(struct recipe, rank, .fallback = "8", .min = 1, .max = 256, .help = "..."),
 *       OMM_CONFIG_ENUM(struct recipe, codec, codec_names, .fallback = "int8"),
 *       {0}};
 *
 * Depends on: err, mem, bytes, file; libyaml.  Threads: no shared state.
 */
#ifndef OMM_CONFIG_H
#define OMM_CONFIG_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum omm_config_kind {
    OMM_CONFIG_KIND_END = 0,
    OMM_CONFIG_KIND_BOOL,   /* bool: true, false */
    OMM_CONFIG_KIND_U32,    /* uint32_t */
    OMM_CONFIG_KIND_U64,    /* uint64_t, at most 2^63 - 1 */
    OMM_CONFIG_KIND_REAL,   /* double, finite */
    OMM_CONFIG_KIND_STRING, /* const char *, in the arena; min/max bound the length */
    OMM_CONFIG_KIND_ENUM,   /* int: index into `choices` (NULL-ended) */
    OMM_CONFIG_KIND_MAP,    /* struct at offset, described by `sub` */
    OMM_CONFIG_KIND_LIST,   /* omm_config_list at offset: items described by `item` */
} omm_config_kind;

/* A list: `items` points to `count` items of the item's C type, in the arena. */
typedef struct omm_config_list {
    void *items;
    size_t count;
} omm_config_list;

typedef struct omm_config_field omm_config_field;
struct omm_config_field {
    const char *key;
    omm_config_kind kind;
    size_t offset;
    const char *fallback; /* default as YAML text; NULL: required, unless `optional` or a MAP */
    bool optional;        /* may be missing; the field is then zero.  A MAP needs `present` too */
    size_t present;       /* offset of a bool set when the key is there; 0: not recorded */
    double min, max;      /* numbers: value; strings: bytes; lists: count.  Both 0: no bound;
                           * max below min: no upper bound */
    const char *const *choices;   /* ENUM */
    const omm_config_field *sub;  /* MAP */
    const omm_config_field *item; /* LIST: one field (offset 0) for an item; not a LIST itself */
    size_t item_size;             /* LIST: sizeof of an item */
    const char *help;             /* one line, for `--help` and the docs */
};

#define OMM_CONFIG_FIELD(type, member, kind_, ...)                                                 \
    {                                                                                              \
        .key = #member, .kind = OMM_CONFIG_KIND_##kind_, .offset = offsetof(type, member),         \
        __VA_ARGS__                                                                                \
    }
#define OMM_CONFIG_BOOL(type, member, ...) OMM_CONFIG_FIELD(type, member, BOOL, __VA_ARGS__)
#define OMM_CONFIG_U32(type, member, ...) OMM_CONFIG_FIELD(type, member, U32, __VA_ARGS__)
#define OMM_CONFIG_U64(type, member, ...) OMM_CONFIG_FIELD(type, member, U64, __VA_ARGS__)
#define OMM_CONFIG_REAL(type, member, ...) OMM_CONFIG_FIELD(type, member, REAL, __VA_ARGS__)
#define OMM_CONFIG_STRING(type, member, ...) OMM_CONFIG_FIELD(type, member, STRING, __VA_ARGS__)
#define OMM_CONFIG_ENUM(type, member, names, ...)                                                  \
    OMM_CONFIG_FIELD(type, member, ENUM, .choices = (names), __VA_ARGS__)
#define OMM_CONFIG_MAP(type, member, fields, ...)                                                  \
    OMM_CONFIG_FIELD(type, member, MAP, .sub = (fields), __VA_ARGS__)

/* Load `path` (or `text`, called `name`) into the struct at `out`, described by `fields`.
 * Strings and lists live in `arena`.  Errors: NOT_FOUND, IO, CONFIG, TOO_BIG, NOMEM.
 * On error `out` is unspecified. */
OMM_CHECKED omm_err omm_config_load(void *out, const omm_config_field *fields, const char *path,
                                    omm_arena *arena);
OMM_CHECKED omm_err omm_config_parse(void *out, const omm_config_field *fields, omm_bytes text,
                                     const char *name, omm_arena *arena);

/* For what a table cannot check.  Where `err` is CONFIG or NOT_FOUND and the last sentence begins with a key, as in "model.width: 31 in
 * 4 heads" or "recipe: rank is ...", with "FILE: " in front of it or not: the same sentence with "FILE:LINE:COLUMN: " in
 * front, of that key's value or of the nearest mapping around it that the file has; with "FILE: " where it has none of them.
 * Returns `err`; any other one is left as it is. */
OMM_CHECKED omm_err omm_config_place(omm_err err, const char *file);

/* Append the effective configuration, defaults written out, as YAML in table order: what a run
 * records, and what parses back to the same struct (but for the `present` flag of a key whose
 * default was taken).  Equal structs give equal bytes.
 * Errors: NOMEM, TOO_BIG, CONFIG (a text that is not UTF-8, a number that is not finite, an enum
 * out of its choices).  On error the buffer is unchanged. */
OMM_CHECKED omm_err omm_config_write(omm_buf *out, const omm_config_field *fields,
                                     const void *from);

/* Is `text` what omm_config_write makes of `from`: this spelling, all defaults written out, nothing else?
 * Errors: FORMAT (says in which line not), and those of omm_config_write. */
OMM_CHECKED omm_err omm_config_check_written(omm_bytes text, const omm_config_field *fields,
                                             const void *from);

/* Append one line per key: "path.to.key: accepted values; default - help".  For --help and docs.
 * Errors: NOMEM, TOO_BIG.  On error the buffer is unchanged. */
OMM_CHECKED omm_err omm_config_describe(omm_buf *out, const omm_config_field *fields);

#endif
