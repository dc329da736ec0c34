/* print.h - a result on standard output, all of it or an error. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include "omm/bytes.h"
#include "omm/json.h"

/* Errors: IO. */
OMM_CHECKED omm_err cli_print(const omm_buf *text);
/* One line.  Takes the value, also on error; NULL counts as NOMEM.  Errors: NOMEM, NUMERIC, TOO_BIG, IO. */
OMM_CHECKED omm_err cli_print_json(json_t *taken);
/* `text` as a shell reads it: one word, whatever is in it, cut to `size` bytes with the 0; four for each of `text`, and three more, hold all. */
void cli_shell_word(char *out, size_t size, const char *text);

#endif
