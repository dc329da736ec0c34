/* data_options.h - what train and data have in common: the options that say how a data file is read,
 * and how what was found in it is reported.
 */
#ifndef CLI_DATA_OPTIONS_H
#define CLI_DATA_OPTIONS_H

#include "options.h"

#include "omm/dataset.h"
#include "omm/json.h"
#include "omm/overlap.h"

#include <stdio.h>

typedef struct data_options {
    const char *format;    /* --format, NULL: by content */
    const char *loss;      /* --loss, NULL: what the format says */
    const char *separator; /* --text-separator: blank, file, or the line itself; NULL: file */
    uint32_t stride;       /* --stride */
    bool skip_bad;         /* --skip-bad */
} data_options;

/* Rows of an option table for them. */
#define DATA_OPTIONS(o)                                                                              \
    {"format",                                                                                       \
     0,                                                                                              \
     CLI_STR,                                                                                        \
     &(o).format,                                                                                    \
     "NAME",                                                                                         \
     "chat, completion, alpaca, sharegpt, lines ({\"text\": ...}) or text; else by content"},        \
        {"loss",    0,      CLI_STR,                                                                 \
         &(o).loss, "NAME", "all, assistant (chats, default) or completion (the last reply alone)"}, \
        {"text-separator",                                                                           \
         0,                                                                                          \
         CLI_STR,                                                                                    \
         &(o).separator,                                                                             \
         "LINE",                                                                                     \
         "text: line between documents; blank: an empty one; file: one document (file)"},            \
        {"stride",                                                                                   \
         0,                                                                                          \
         CLI_U32,                                                                                    \
         &(o).stride,                                                                                \
         "N",                                                                                        \
         "text, lines: tokens from window to window (--seq less one); the rest is context"},         \
    {                                                                                                \
        "skip-bad", 0, CLI_FLAG, &(o).skip_bad, NULL, "leave bad lines out, and count them"          \
    }

/* Lines that name no client belong to this one. */
#define DATA_CLIENT_DEFAULT "local"

/* `o` is borrowed by the result; a refused line is said to be one that --skip-bad would leave out.  Errors: CONFIG. */
OMM_CHECKED omm_err data_options_resolve(omm_dataset_options *out, const data_options *o,
                                         uint32_t seq_max);
/* Once the files are read: refuses --text-separator where none of them is plain text, and --stride where none has
 * windows.  Errors: USAGE. */
OMM_CHECKED omm_err data_options_check(const data_options *o, const omm_data_format *formats,
                                       size_t count);
/* On stderr, where --text-separator is no line of a plain text, which is one document then: seldom what was meant. */
void data_warn_of_separator(const data_options *o, const char *file, const omm_data_totals *totals);
/* In memory up to 64 MiB, as a stream beyond or where `stream` says so: the same examples. */
OMM_CHECKED omm_err data_open(omm_dataset **out, const char *path,
                              const struct omm_tokenizer *tokenizer,
                              const omm_dataset_options *options, bool stream);

/* What a file is divided into: "line" or "element". */
const char *data_unit(const omm_data_totals *totals);
/* Where somebody finds an example: "FILE:7", "element 7 of FILE", of a stream "example 7 of FILE". */
void data_print_place(FILE *out, const char *file, uint32_t place, const omm_data_totals *totals,
                      bool is_stream);
/* [[place of what met it, place], ...] of the first. */
json_t *data_overlap_json(const omm_overlap *overlap);

/* {format, array, examples, tokens, learned, longest, dropped, truncated, bad, bad_by, bad_first}. */
json_t *data_totals_json(const omm_data_totals *totals);
/* "  2 bad lines left out: messages (2)", then the first few, to `out`; nothing where all were good. */
void data_print_bad(FILE *out, const omm_data_totals *totals);

#endif
