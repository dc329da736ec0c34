/* main.c - `meshmind SUBCOMMAND`: finds the row of the table and calls it. */
#include "commands.h"
#include "options.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command s_commands[] = {
#define XX(name, summary) {#name, summary, cmd_##name},
    CLI_COMMAND_MAP(XX)
#undef XX
        {0}};

static void print_help(FILE *out) {
    fprintf(out, "usage: meshmind SUBCOMMAND [options]\n\n");
    for (const command *c = s_commands; c->name; c++)
        fprintf(out, "  %-12s %s\n", c->name, c->summary);
    fprintf(out, "\nmeshmind SUBCOMMAND --help says more.  Exit codes: 0 pass, 1 a gate or check "
                 "failed,\n2 usage or configuration, 3 run-time failure.\n");
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return CLI_EXIT_PASS;
    }
    for (const command *c = s_commands; c->name; c++)
        if (strcmp(c->name, argv[1]) == 0) return c->run(argc - 1, argv + 1);
    fprintf(stderr, "meshmind: unknown subcommand '%s'\n\n", argv[1]);
    print_help(stderr);
    return CLI_EXIT_USAGE;
}
