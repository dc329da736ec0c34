/* Progress in a log: the time that is left is judged by what was done since the first call, also where a
 * run goes on with the most of it done before. */
#include "progress.h"

#include "omm_test.h"

#include <stdio.h>
#include <string.h>

/* A log from here on is in a file of its own.  Returns what stderr was. */
static FILE *begin(cli_progress *p) {
    FILE *kept = stderr, *file = tmpfile();
    CHECK(file);
    cli_progress_init(p);
    p->is_terminal = false;
    stderr = file;
    return kept;
}

/* The log, from its beginning; to be closed. */
static FILE *end(FILE *kept) {
    FILE *file = stderr;
    stderr = kept;
    rewind(file);
    return file;
}

/* The last line that calls at shares `from` to `to`, ten seconds apart, write to stderr. */
static void last_line(char out[128], double from, double to, unsigned calls) {
    cli_progress p;
    FILE *kept = begin(&p);
    for (unsigned i = 0; i < calls; i++)
        cli_progress_show(&p, 5000 + 10000 * (uint64_t)i, from + (to - from) * i / (calls - 1),
                          i % 2 ? "b" : "a");
    FILE *file = end(kept);
    out[0] = 0;
    while (fgets(out, 128, file)) continue;
    fclose(file);
}

/* Whoever knows better what is left says it: evaluations are to come, too. */
static void left_as_told(void) {
    char line[128] = "";
    cli_progress p;
    FILE *kept = begin(&p);
    for (uint32_t step = 1; step <= 10; step++)
        cli_progress_step(&p, 5000 + 10000 * (uint64_t)step,
                          &(cli_step){step, 10, 1, 2, 3, 7 + 60 * (double)(10 - step)});
    FILE *file = end(kept);
    for (int i = 0; i < 9; i++) CHECK(fgets(line, sizeof line, file));
    CHECK(strstr(line, "90 %") && strstr(line, "(1 min 7 s left)"));
    CHECK(fgets(line, sizeof line, file) && strstr(line, "100 %") && strstr(line, "(7 s left)"));
    fclose(file);
}

/* What is over within a second has one line; of what is not, the others begin behind it. */
static void short_run(void) {
    char line[128] = "";
    cli_progress p;
    FILE *kept = begin(&p);
    for (unsigned i = 0; i <= 20; i++)
        cli_progress_show(&p, 5000 + 49 * (uint64_t)i, i / 40.0, i % 2 ? "b" : "a");
    cli_progress_show(&p, 6000, 0.5, "b");
    FILE *file = end(kept);
    CHECK(fgets(line, sizeof line, file) && strcmp(line, "  0 %  a\n") == 0);
    CHECK(fgets(line, sizeof line, file) && strcmp(line, " 50 %  b (1 s left)\n") == 0);
    CHECK(!fgets(line, sizeof line, file));
    fclose(file);
}

int main(void) {
    left_as_told();
    char line[128];
    last_line(line, 0, 0.5, 6); /* 50 s for one half */
    CHECK(strstr(line, "50 %") && strstr(line, "(50 s left)"));
    last_line(line, 0.8, 0.9, 11); /* 100 s for a tenth, whoever did the rest */
    CHECK(strstr(line, "90 %") && strstr(line, "(1 min 40 s left)"));
    last_line(line, 0.9, 1, 3);
    CHECK(strstr(line, "100 %") && strstr(line, "(0 s left)"));
    last_line(line, 0.9, 0.9001, 3);
    CHECK(strstr(line, "90 %") && !strstr(line, "left")); /* too little to tell */
    last_line(line, 1, 1, 2);
    CHECK(strstr(line, "100 %") && !strstr(line, "left"));
    short_run();
    return 0;
}
