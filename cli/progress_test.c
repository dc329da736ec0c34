/* What is left, in lines where stderr is no terminal: of a run that begins, and of one that goes on from its middle. */
#include "progress.h"

#include "omm/file.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char s_path[64];

/* The lines of a run whose first step ends at `from` and each further one, of 10 s, `step` later. */
static void lines_of(omm_buf *out, double from, double step, unsigned steps) {
    cli_progress p;
    CHECK(freopen(s_path, "w", stderr));
    cli_progress_init(&p);
    cli_progress_log(&p, 10000);
    for (unsigned i = 0; i <= steps; i++)
        cli_progress_show(&p, 5000 + 10000 * (uint64_t)i, from + step * i, "text");
    cli_progress_end(&p);
    CHECK(fflush(stderr) == 0);
    omm_buf_clear(out);
    CHECK_OK(omm_file_read(out, s_path));
    CHECK_OK(omm_buf_append(out, "", 1));
}

static void check_lines(const omm_buf *got, const char *wanted) {
    const char *text = (const char *)got->data;
    if (strcmp(text, wanted) != 0) printf("got:\n%swanted:\n%s", text, wanted);
    CHECK(strcmp(text, wanted) == 0);
}

int main(void) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    snprintf(s_path, sizeof s_path, "/tmp/omm-progress-XXXXXX");
    const int fd = mkstemp(s_path);
    CHECK(fd >= 0);
    CHECK(close(fd) == 0);

    lines_of(&text, 0.25, 0.25, 3);
    check_lines(&text, " 25 %  text (... left)\n 50 %  text (20 s left)\n"
                       " 75 %  text (10 s left)\n100 %  text (0 s left)\n");
    lines_of(&text, 0.5, 0.02,
             2); /* 24 steps of 10 s are left, then 23; not half of the time since */
    check_lines(&text, " 50 %  text (... left)\n 52 %  text (4 min 0 s left)\n"
                       " 54 %  text (3 min 50 s left)\n");
    omm_buf_fini(&text);
    CHECK(remove(s_path) == 0);
    return 0;
}
