/* print.c - see print.h. */
#include "print.h"

#include <stdio.h>

#define JSON_BYTES_MAX (64u << 20)

omm_err cli_print(const omm_buf *text) {
    if (fwrite(text->data, 1, text->size, stdout) == text->size) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "cannot write to standard output");
}

omm_err cli_print_json(json_t *taken) {
    omm_buf text;
    if (!taken) return omm_raise(OMM_ERR_NOMEM, "JSON");
    omm_buf_init(&text, JSON_BYTES_MAX);
    omm_err err = omm_json_write(&text, taken);
    if (err == OMM_OK) err = cli_print(&text);
    omm_buf_fini(&text);
    json_decref(taken);
    return err;
}
