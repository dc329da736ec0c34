/* signals.c - see signals.h. */
#include "signals.h"

#include <signal.h>
#include <stdbool.h>

static bool is_ignored(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

omm_err cli_take_signals(void (*handler)(int number), int flags) {
    const struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (sigaction(SIGINT, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0 &&
        (is_ignored(SIGHUP) || sigaction(SIGHUP, &action, NULL) == 0))
        return OMM_OK;
    return omm_raise(OMM_ERR_IO, "cannot take signals");
}
