/* cmd_adapter.c - `meshmind adapter show|import|export|merge`: adapters as files. */
#include "adapter.h"
#include "commands.h"
#include "options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} s_actions[] = {
    {"show", "ranks, scales, sizes of an adapter (GGUF file or PEFT folder)", adapter_show},
    {"import", "a PEFT folder to a GGUF adapter", adapter_import},
    {"export", "a GGUF adapter to a PEFT folder", adapter_export},
    {"merge", "adapters into a model, or several into one", adapter_merge},
};
enum { ACTIONS = sizeof s_actions / sizeof *s_actions };

static void print_help(FILE *out) {
    fprintf(out, "usage: meshmind adapter ACTION [options]\n\n");
    for (int i = 0; i < ACTIONS; i++)
        fprintf(out, "  %-8s %s\n", s_actions[i].name, s_actions[i].summary);
    fprintf(out, "\nmeshmind adapter ACTION --help says more.\n");
}

int cmd_adapter(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return CLI_EXIT_PASS;
    }
    for (int i = 0; i < ACTIONS; i++) {
        if (strcmp(argv[1], s_actions[i].name) != 0) continue;
        char name[32];
        snprintf(name, sizeof name, "adapter %s", s_actions[i].name);
        argv[1] = name;
        return s_actions[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "meshmind adapter: unknown action '%s'\n\n", argv[1]);
    print_help(stderr);
    return CLI_EXIT_USAGE;
}

/* ---- repeated options -------------------------------------------------------------------------- */

omm_err adapter_take_list(adapter_list *list, int *argc, char **argv) {
    static const char name[] = "--lora";
    const size_t size = sizeof name - 1;
    int kept = 1;
    bool options = true;
    *list = (adapter_list){0};
    for (int i = 1; i < *argc; i++) {
        const char *item = NULL;
        if (strcmp(argv[i], "--") == 0) options = false;
        if (options && strncmp(argv[i], name, size) == 0) {
            if (argv[i][size] == '=') item = argv[i] + size + 1;
            if (argv[i][size] == 0) item = i + 1 < *argc ? argv[++i] : "";
        }
        if (!item) {
            argv[kept++] = argv[i];
            continue;
        }
        if (item[0] == 0) return omm_raise(OMM_ERR_USAGE, "--lora needs a file, or FILE=SCALE");
        if (list->count == ADAPTER_PARTS_MAX)
            return omm_raise(OMM_ERR_USAGE, "--lora: at most %d adapters", ADAPTER_PARTS_MAX);
        list->items[list->count++] = item;
    }
    *argc = kept;
    return OMM_OK;
}

omm_err adapter_part(char path[OMM_PATH_MAX], float *scale, const char *item) {
    const char *equals = strrchr(item, '=');
    const size_t size = equals ? (size_t)(equals - item) : strlen(item);
    char *end = NULL;
    *scale = 1.0f;
    if (size == 0 || size >= OMM_PATH_MAX)
        return omm_raise(OMM_ERR_USAGE, "--lora '%.100s': no usable file name", item);
    snprintf(path, OMM_PATH_MAX, "%.*s", (int)size, item);
    if (!equals) return OMM_OK;
    *scale = strtof(equals + 1, &end);
    if (end == equals + 1 || *end || !isfinite(*scale) || *scale == 0.0f)
        return omm_raise(OMM_ERR_USAGE,
                         "--lora '%.100s': what stands behind '=' must be a scale, finite and not "
                         "zero",
                         item);
    return OMM_OK;
}
