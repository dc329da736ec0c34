/* secret.h - keys of nodes as files, with a passphrase or without. */
#ifndef CLI_SECRET_H
#define CLI_SECRET_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/sign.h"

/* Ask on the terminal, without showing it; `again`: twice, and both must be equal.  Into a buffer of at
 * least OMM_PASSPHRASE_BYTES_MAX, which secret_wipe frees.
 * Errors: STATE (there is no terminal), CONFIG (not the same twice), IO, TOO_BIG. */
OMM_CHECKED omm_err secret_ask(omm_buf *out, const char *question, bool again);
/* The first line of a file that only its owner may read.  Errors: those of omm_file_check_private. */
OMM_CHECKED omm_err secret_read(omm_buf *out, const char *path);
void secret_wipe(omm_buf *secret);

/* A key file of either kind; passphrase_file "": ask, if it has one.
 * Errors: those of omm_key_load, omm_key_load_locked and the two above. */
OMM_CHECKED omm_err secret_load_key(omm_key *out, const char *path, const char *passphrase_file);

#endif
