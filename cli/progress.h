/* progress.h - one progress line with an ETA: a bar where stderr is a terminal, plain lines where not.
 *
 * Time comes from the caller; nothing here enters the evidence.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
    bool is_terminal;
    bool line_open;      /* a bar is on the screen */
    uint64_t started_ms; /* first call */
    uint64_t shown_ms;   /* last time something was written */
    int shown_percent;
    char shown_text[96];
} cli_progress;

void cli_progress_init(cli_progress *progress);
/* `share` in [0, 1]; `text` says what is going on.  Writes at most five times a second to a terminal,
 * and a plain line when the text changes or another 10 % is done. */
void cli_progress_show(cli_progress *progress, uint64_t now_ms, double share, const char *text);
/* Take the bar off the screen. */
void cli_progress_end(cli_progress *progress);

/* "1 min 5 s", "12 s" */
void cli_duration(char *out, unsigned size, double seconds);
/* "12.3 kB", "4.56 MB" */
void cli_size(char *out, unsigned size, double bytes);

#endif
