/* print.c - see print.h. */
#include "print.h"

#include <stdio.h>
#include <string.h>

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

void cli_shell_word(char *out, size_t size, const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+,:@%";
    if (text[0] != '\0' && text[strspn(text, plain)] == '\0') {
        (void)snprintf(out, size, "%s", text);
        return;
    }
    size_t at = (size_t)snprintf(out, size, "'");
    for (const char *c = text; *c && at + 6 < size; c++)
        at += (size_t)snprintf(out + at, size - at, *c == '\'' ? "'\\''" : "%c", *c);
    (void)snprintf(out + at, size - at, "'");
}
