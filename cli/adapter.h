/* adapter.h - the actions of `meshmind adapter`, each a command line of its own. */
#ifndef CLI_ADAPTER_H
#define CLI_ADAPTER_H

#include "omm/gguf.h"
#include "omm/lora.h"

/* argv[0] is "adapter ACTION"; they return exit codes. */
int adapter_show(int argc, char **argv);
int adapter_import(int argc, char **argv);
int adapter_export(int argc, char **argv);
int adapter_merge(int argc, char **argv);

enum { ADAPTER_PARTS_MAX = 16 };

/* Values of a repeated option. */
typedef struct adapter_list {
    const char *items[ADAPTER_PARTS_MAX];
    size_t count;
} adapter_list;

/* Take every "--lora X" and "--lora=X" out of argv.  Errors: USAGE (over ADAPTER_PARTS_MAX, no value). */
OMM_CHECKED omm_err adapter_take_list(adapter_list *list, int *argc, char **argv);
/* The file and scale of "FILE" or "FILE=SCALE".  Errors: USAGE, TOO_BIG. */
OMM_CHECKED omm_err adapter_part(char path[OMM_PATH_MAX], float *scale, const char *item);

#endif
