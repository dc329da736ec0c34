/* cmd_adapter.c - `meshmind adapter show|import|export|merge`: adapters as files. */
#include "adapter.h"
#include "commands.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} s_actions[] = {
    {"show", "ranks, scales, sizes of an adapter (GGUF file or PEFT folder)", adapter_show},
    {"import", "a PEFT folder to a GGUF adapter, or one in the model's own tensors",
     adapter_import},
    {"export", "a GGUF adapter to a PEFT folder", adapter_export},
    {"merge", "adapters into a model, or several into one", adapter_merge},
};
enum { ACTIONS = sizeof s_actions / sizeof *s_actions };

omm_err adapter_name_rounding(omm_err err, bool is_allowed) {
    char said[400];
    if (err != OMM_ERR_UNSUPPORTED || is_allowed || !strstr(omm_err_sentence(), "rounding of B"))
        return err;
    snprintf(said, sizeof said, "%s", omm_err_sentence());
    return omm_raise(err, "%s (--allow-rounding)", said);
}

omm_err adapter_base_read(omm_peft_base *base, const omm_gguf *gguf, const char *path) {
    return cli_of_file(omm_peft_base_read(base, gguf), "-m", path);
}

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
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
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
