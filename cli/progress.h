/* progress.h - one progress line with an ETA: a bar where stderr is a terminal, plain lines where not.
 *
 * Time comes from the caller; nothing here enters the evidence.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define CLI_PROGRESS_LOG_MS 60000 /* of training: a line at least, where stderr is no terminal */

typedef struct cli_progress {
    bool is_terminal;
    bool line_open;       /* a bar is on the screen */
    uint64_t started_ms;  /* first call */
    double started_share; /* what was done by then: of a run that goes on, most of it */
    uint64_t shown_ms;    /* last time something was written */
    int shown_percent;
    uint64_t log_ms; /* lines for a log: a text that changes is no reason for one; 0: it is */
    char shown_text[96];
} cli_progress;

void cli_progress_init(cli_progress *progress);
/* `share` in [0, 1]; `text` says what is going on.  Writes at most five times a second to a terminal,
 * and a plain line at first and, behind the first second, when the text changes or another 10 % is done. */
void cli_progress_show(cli_progress *progress, uint64_t now_ms, double share, const char *text);
/* Before the first call, where texts hold figures that always change: without a terminal, write when
 * another 5 % is done and when `log_ms` have passed without a line, and never more often. */
void cli_progress_log(cli_progress *progress, uint64_t log_ms);
/* A step of training as a line: step, loss, speed, memory. */
typedef struct cli_step {
    uint32_t step, steps;
    double loss, tokens_per_s;
    uint64_t memory_bytes;
    double
        left_s; /* to the end; below 0: as the share of the steps and the time since the first call say */
} cli_step;
void cli_progress_step(cli_progress *progress, uint64_t now_ms, const cli_step *step);
/* Take the bar off the screen. */
void cli_progress_end(cli_progress *progress);

/* "1 min 5 s", "12 s" */
void cli_duration(char *out, unsigned size, double seconds);
/* "12.3 kB", "4.56 MB" */
void cli_size(char *out, unsigned size, double bytes);

#endif
