#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_BAR_CELLS 28
#define PROGRESS_TERMINAL_MS 200
#define PROGRESS_LINE_MS 1000 /* what is over by then needs one line in a log */

void cli_progress_init(cli_progress *progress) {
    *progress = (cli_progress){.is_terminal = isatty(STDERR_FILENO) != 0, .shown_percent = -1};
}

void cli_duration(char *out, unsigned size, double seconds) {
    unsigned s = seconds < 0 ? 0 : (unsigned)(seconds + 0.5);
    if (s < 60)
        snprintf(out, size, "%u s", s);
    else if (s < 3600)
        snprintf(out, size, "%u min %u s", s / 60, s % 60);
    else
        snprintf(out, size, "%u h %u min", s / 3600, s / 60 % 60);
}

void cli_size(char *out, unsigned size, double bytes) {
    if (bytes < 1e3)
        snprintf(out, size, "%.0f B", bytes);
    else if (bytes < 1e6)
        snprintf(out, size, "%.1f kB", bytes / 1e3);
    else if (bytes < 1e9)
        snprintf(out, size, "%.2f MB", bytes / 1e6);
    else
        snprintf(out, size, "%.2f GB", bytes / 1e9);
}

/* left_s: below 0 where nobody knows better than the share that is done.  False: it is too early to tell. */
static bool eta_text(char *out, unsigned size, const cli_progress *p, uint64_t now_ms, double share,
                     double left_s) {
    const double passed = (double)(now_ms - p->started_ms) / 1e3;
    const double done = (share - p->started_share) / (1.0 - p->started_share);
    if (!(done >= 0.02) || passed < 1.0) { /* NaN: all was done at once */
        snprintf(out, size, "...");
        return false;
    }
    cli_duration(out, size, left_s < 0 ? passed * (1.0 - done) / done : left_s);
    return true;
}

static void show_bar(const cli_progress *p, int percent, const char *text, const char *eta) {
    char bar[PROGRESS_BAR_CELLS + 1];
    int full = percent * PROGRESS_BAR_CELLS / 100;
    for (int i = 0; i < PROGRESS_BAR_CELLS; i++) bar[i] = i < full ? '#' : '.';
    bar[PROGRESS_BAR_CELLS] = 0;
    (void)p;
    fprintf(stderr, "\r\033[K[%s] %3d %%  %s, %s left", bar, percent, text, eta);
    fflush(stderr);
}

void cli_progress_log(cli_progress *p, uint64_t log_ms) {
    p->log_ms = log_ms;
}

static bool is_line_due(const cli_progress *p, uint64_t now_ms, int percent, bool new_text) {
    if (p->shown_percent >= 0 && now_ms - p->started_ms < PROGRESS_LINE_MS) return false;
    if (p->log_ms == 0) return new_text || percent / 10 != p->shown_percent / 10;
    return p->shown_percent < 0 || percent / 5 != p->shown_percent / 5 ||
           now_ms - p->shown_ms >= p->log_ms;
}

static void show(cli_progress *p, uint64_t now_ms, double share, const char *text, double left_s) {
    double bounded = share < 0 ? 0 : share > 1 ? 1 : share;
    if (p->started_ms == 0) {
        p->started_ms = now_ms ? now_ms : 1;
        p->started_share = bounded;
    }
    int percent = (int)(bounded * 100);
    bool new_text = strncmp(text, p->shown_text, sizeof p->shown_text - 1) != 0;
    bool due = p->is_terminal ? now_ms - p->shown_ms >= PROGRESS_TERMINAL_MS || new_text
                              : is_line_due(p, now_ms, percent, new_text);
    if (!due) return;
    char eta[32];
    const bool is_known = eta_text(eta, sizeof eta, p, now_ms, bounded, left_s);
    if (p->is_terminal)
        show_bar(p, percent, text, eta);
    else if (!is_known)
        fprintf(stderr, "%3d %%  %s\n", percent, text);
    else
        fprintf(stderr, "%3d %%  %s (%s left)\n", percent, text, eta);
    p->line_open = p->is_terminal;
    p->shown_ms = now_ms;
    p->shown_percent = percent;
    snprintf(p->shown_text, sizeof p->shown_text, "%s", text);
}

void cli_progress_show(cli_progress *p, uint64_t now_ms, double share, const char *text) {
    show(p, now_ms, share, text, -1);
}

void cli_progress_step(cli_progress *p, uint64_t now_ms, const cli_step *s) {
    char text[96], memory[24];
    cli_size(memory, sizeof memory, (double)s->memory_bytes);
    snprintf(text, sizeof text, "step %u/%u  loss %.4f  %.0f tokens/s  %s", s->step, s->steps,
             s->loss, s->tokens_per_s, memory);
    show(p, now_ms, (double)s->step / s->steps, text, s->left_s);
}

void cli_progress_end(cli_progress *p) {
    if (p->line_open) fprintf(stderr, "\r\033[K");
    p->line_open = false;
}
