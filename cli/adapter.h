/* adapter.h - the actions of `meshmind adapter`, each a command line of its own. */
#ifndef CLI_ADAPTER_H
#define CLI_ADAPTER_H

#include "omm/err.h"
#include "omm/peft.h"

#include <stdbool.h>

/* argv[0] is "adapter ACTION"; they return exit codes. */
int adapter_show(int argc, char **argv);
int adapter_import(int argc, char **argv);
int adapter_export(int argc, char **argv);
int adapter_merge(int argc, char **argv);
/* A refusal to round B also names the option that allows it. */
OMM_CHECKED omm_err adapter_name_rounding(omm_err err, bool is_allowed);
/* omm_peft_base_read, whose refusals say of which file they are. */
OMM_CHECKED omm_err adapter_base_read(omm_peft_base *base, const omm_gguf *gguf, const char *path);

#endif
