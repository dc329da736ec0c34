/* main.c - `meshmind SUBCOMMAND`: finds the row of the table and calls it. */
#include "build_info.h"
#include "commands.h"
#include "options.h"

#include "omm/crash.h"
#include "omm/file.h"
#include "omm/nearest.h"

#include <fcntl.h>
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

/* Every environment variable that the program reads. */
static const struct {
    const char *name, *meaning;
} s_environment[] = {
    {"OMM_ISA",
     "scalar, avx2, avx2_vnni, avx512, neon or neon_dotprod: instruction set, instead of the best; "
     "never changes a byte"},
    {"OMM_MEMORY_FROM",
     "for tests: a folder with meminfo and memory.max, in place of what the system says is left"},
    {"OMM_ENERGY_FROM",
     "for tests: a folder with counters intel-rapl:N, in place of /sys/class/powercap"},
    {"OMM_CRASH_AT", "for tests: the stage of a round at which a service kills itself, once"},
    {"OMM_GUEST_ROOT",
     "for tests: where node finds /sys and /proc, to see battery, heat, load, network"},
    {"XDG_CONFIG_HOME", "where node setup writes node.yaml (~/.config)"},
    {"XDG_DATA_HOME", "where chat keeps its notes, and node setup the key (~/.local/share)"},
    {"XDG_STATE_HOME", "where a node that was set up keeps its state (~/.local/state)"},
    {"HOME", "used where one of these is not set"},
};

static void print_environment(void) {
    for (size_t i = 0; i < sizeof s_environment / sizeof s_environment[0]; i++)
        printf("%-16s %s\n", s_environment[i].name, s_environment[i].meaning);
    printf("\nStages of OMM_CRASH_AT:\n");
#define XX(name, meaning) printf("  %-16s %s\n", #name, meaning);
    OMM_CRASH_MAP(XX)
#undef XX
}

static void print_help(FILE *out) {
    fprintf(out, "usage: meshmind SUBCOMMAND [options]\n\n");
    for (const command *c = s_commands; c->name; c++)
        fprintf(out, "  %-12s %s\n", c->name, c->summary);
    fprintf(out, "\n  --version, --help-env (environment variables)\n");
    fprintf(out,
            "\nmeshmind SUBCOMMAND --help, or help SUBCOMMAND, says more.\n"
            "Exit codes: 0 pass, 1 a gate or check failed, 2 usage, configuration, or a file\n"
            "that is not there, 3 what else went wrong, in a file or at run time, or a signal\n"
            "that a run ended at in order.\n");
}

/* `help` alone, and `help WORDS` as `WORDS --help`. */
static void take_help(int argc, char **argv) {
    static char s_help[] = "--help";
    if (argc < 2 || strcmp(argv[1], "help") != 0) return;
    for (int i = 1; i + 1 < argc; i++) argv[i] = argv[i + 1];
    argv[argc - 1] = s_help;
}

static int unknown(const char *name) {
    omm_nearest near = omm_nearest_begin(name);
    for (const command *c = s_commands; c->name; c++) omm_nearest_offer(&near, c->name);
    fprintf(stderr, "meshmind: unknown subcommand '%s'%s%s%s\n", name,
            near.name ? ", did you mean '" : "", near.name ? near.name : "", near.name ? "'?" : "");
    if (near.name) return CLI_EXIT_USAGE; /* the whole list would hide it */
    fprintf(stderr, "\n");
    print_help(stderr);
    return CLI_EXIT_USAGE;
}

static int run(int argc, char **argv) {
    take_help(argc, argv);
    if (argc < 2) {
        print_help(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return CLI_EXIT_PASS;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("meshmind %s (%s, %s)\n", OMM_BUILD_VERSION, OMM_BUILD_COMMIT, OMM_BUILD_TEXT);
        return CLI_EXIT_PASS;
    }
    if (strcmp(argv[1], "--help-env") == 0) {
        print_environment();
        return CLI_EXIT_PASS;
    }
    for (const command *c = s_commands; c->name; c++)
        if (strcmp(c->name, argv[1]) == 0) return c->run(argc - 1, argv + 1);
    return unknown(argv[1]);
}

/* A standard stream that is closed would be the next file that is opened: what is printed would lie in it.  What takes
 * its place can be neither written (1, 2) nor read (0). */
static void hold_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* A result that nobody got is no result: a full disk, a pipe that was closed, a limit of the shell's. */
int main(int argc, char **argv) {
    hold_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    omm_map_exit_when_shortened(CLI_EXIT_RUNTIME);
    const int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (code == CLI_EXIT_RUNTIME) return code; /* has been said */
    fprintf(stderr, "meshmind: cannot write the output\n");
    return CLI_EXIT_RUNTIME;
}
