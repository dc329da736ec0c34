/* train_html.h - the page of a training run, from the same object as report.json. */
#ifndef CLI_TRAIN_HTML_H
#define CLI_TRAIN_HTML_H

#include "omm/bytes.h"
#include "omm/json.h"

/* Append the page: facts, curves as SVG, tables before and after; every text of the object is
 * escaped.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err train_html(omm_buf *out, const json_t *root);

#endif
