/* options.h - long options from one table, with --help made from the same table.
 *
 * Accepts "--name value", "--name=value", "-x value" and flags; "--" ends the options; what is left
 * are the positional arguments.  Numbers are parsed strictly: "3x" and "" are errors.
 * A second file, key or text for an option that takes one is an error; a second number or choice takes the first one's place.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "omm/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What `out` points to: FLAG bool, STR const char *, U32 and COUNT uint32_t, U64 uint64_t, F32 float, LIST cli_list, KEYS
 * the const omm_config_field * of a YAML file.  COUNT is at least 1, so that 0 can stand for what was not given.  KEYS takes
 * no value: the file's keys are printed, and nothing else is done. */
typedef enum cli_kind {
    CLI_FLAG,
    CLI_STR,
    CLI_U32,
    CLI_COUNT,
    CLI_U64,
    CLI_F32,
    CLI_LIST,
    CLI_KEYS
} cli_kind;

/* What a CLI_LIST option collects: it may be given again and again. */
#define CLI_LIST_MAX 32u
typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    uint32_t count;
} cli_list;

typedef struct cli_option {
    const char *name; /* long name without dashes; NULL ends the table */
    char letter;      /* short form, 0 for none */
    cli_kind kind;
    void *out;         /* of the kind's type, above; kept if absent */
    const char *value; /* what the value is, for --help: "FILE", "N" */
    const char *help;
} cli_option;

enum { CLI_EXIT_PASS = 0, CLI_EXIT_FAILED = 1, CLI_EXIT_USAGE = 2, CLI_EXIT_RUNTIME = 3 };

/* Parse argv[1..] into `options`; positional arguments are moved to the front of `args` (argv + 1),
 * `*count` of them, between min and max.  Returns -1 to go on, else an exit code: 0 after --help and
 * CLI_KEYS, CLI_EXIT_USAGE after an error, which is printed with what would be accepted. */
int cli_parse(int *count, char ***args, int argc, char **argv, const cli_option *options,
              const char *usage, const char *summary, int min, int max);

/* A file that is read, and what names it on the command line. */
typedef struct cli_input {
    const char *option, *path; /* path NULL: not given */
} cli_input;

/* What a command writes must not take the place of what it reads, or of what else it writes: `out`
 * (NULL: nothing) is none of `inputs`, which end with option NULL.  Errors: USAGE, naming both. */
OMM_CHECKED omm_err cli_check_out(const char *out, const cli_input *inputs);
/* The same of what another option has written ("--report"). */
OMM_CHECKED omm_err cli_check_written(const char *option, const char *path,
                                      const cli_input *inputs);

/* `err`; if that is of what a file holds, and not of what was asked for, its sentence names the file, and by which option
 * it came. */
OMM_CHECKED omm_err cli_of_file(omm_err err, const char *option, const char *path);

/* Print "meshmind NAME: sentence" for a failed call and return its exit code (2 for USAGE, CONFIG,
 * NOT_FOUND and EXISTS, else 3). */
int cli_fail(const char *command, omm_err err);

#endif
