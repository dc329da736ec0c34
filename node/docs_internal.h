/* docs_internal.h - private to node: one file of the documents into the index. */
#ifndef OMM_NODE_DOCS_INTERNAL_H
#define OMM_NODE_DOCS_INTERNAL_H

#include "omm/database.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Add the passages of the file `full`, named `path`, to table `passage`, and their number to
 * *passages.  *is_text is false for a file that is not plain text, or that is gone.
 * Errors: IO, NOMEM. */
OMM_CHECKED omm_err docs_put_file(uint32_t *passages, bool *is_text, omm_db *db, const char *path,
                                  const char *full);

#endif
