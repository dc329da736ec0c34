/* memory.h - what a command says about memory before it loads a model, and what it lowers to fit. */
#ifndef CLI_MEMORY_H
#define CLI_MEMORY_H

#include "omm/json.h"
#include "omm/memory.h"
#include "omm/plan.h"

#include <stddef.h>
#include <stdint.h>

#define CLI_MEMORY_OPTION(out)                                                                     \
    {                                                                                              \
        "max-memory-mb", 0, CLI_U32, out, "N",                                                     \
            "lower cache type, then context, until the memory plan is at most N million bytes; "   \
            "what is taken is within 4 MiB and a sixteenth of the plan; 0: no limit"               \
    }
#define CLI_STREAM_OPTION(out)                                                                     \
    {                                                                                              \
        "stream", 0, CLI_FLAG, out, NULL,                                                          \
            "read layers from the file in every pass: all, or those that --max-memory-mb has no "  \
            "room for"                                                                             \
    }

typedef struct cli_memory {
    omm_plan plan;
    uint64_t available; /* bytes, before loading */
    uint32_t asked;     /* positions, before any were left out to fit */
    omm_kv_type asked_kv;
} cli_memory;

typedef struct cli_memory_limit {
    uint32_t megabytes; /* 0: what the machine has */
    uint64_t taken;     /* bytes of it that another model of this process has, or will have */
    const char *by;     /* "a model": whose they are */
    uint64_t available; /* of the machine before that one was loaded; 0: as it is now */
} cli_memory_limit;

/* This machine; where the environment has OMM_MEMORY_FROM, what the files of that folder say: meminfo,
 * and memory.max and the others of a control group (omm/memory.h). */
void cli_memory_machine(omm_memory *out);
/* Plan within the limit and say so in one line on stderr.  Arguments as omm_plan_fit.  Without a limit,
 * a model that is more than the machine has beside what is taken is fitted into that, by streaming first where it
 * may be streamed.
 * Errors: those of omm_plan_fit. */
OMM_CHECKED omm_err cli_memory_plan(cli_memory *out, const omm_gguf *gguf,
                                    const omm_gguf *const *adapters, size_t count,
                                    const omm_plan_options *options, cli_memory_limit limit);
#define CLI_MEMORY_MORE_MAX 96
/* What would give more positions than there are, for who ran out of them: no advice that changes nothing. */
void cli_memory_more(char out[CLI_MEMORY_MORE_MAX], const cli_memory *memory, uint32_t trained);
/* For --json, with the peak so far. */
json_t *cli_memory_json(const cli_memory *memory);

#endif
