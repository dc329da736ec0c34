/* signals.h - the signals that ask a run to end in order. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "omm/err.h"

/* `handler` gets SIGINT, SIGTERM and SIGHUP, the last unless whoever started the program ignores it, as nohup
 * does: then it goes on without its terminal.  flags: those of sigaction.  Errors: IO. */
OMM_CHECKED omm_err cli_take_signals(void (*handler)(int number), int flags);

#endif
