/* pins.c - see pins.h. */
#include "pins.h"

#include "render.h"

#include "omm/agreement.h"
#include "omm/file.h"
#include "omm/pool.h"

#include <stdio.h>
#include <string.h>

#define KEY_FILE_BYTES_MAX 4096u

/* The last line of a minisign .pub file, or the key itself. */
static omm_err parse_trust(omm_public_key *out, const char *text) {
    char key[OMM_MINISIGN_PUBLIC_SIZE] = "";
    omm_buf file;
    if (omm_minisign_public_parse(out, text) == OMM_OK) return OMM_OK;
    if (!omm_file_exists(text))
        return omm_raise(
            OMM_ERR_USAGE,
            "--trust: '%.80s' is neither a key nor a file; accepted: a minisign public key "
            "of 56 base64 characters (keygen --show), or a file that has it",
            text);
    omm_buf_init(&file, KEY_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&file, text);
    if (err != OMM_OK && err != OMM_ERR_NOMEM) /* a folder, something large, no rights */
        err = omm_raise(OMM_ERR_USAGE, "--trust: %s; accepted: a file with a minisign public key",
                        omm_err_sentence());
    if (err == OMM_OK) {
        size_t end = file.size;
        while (end && (file.data[end - 1] == '\n' || file.data[end - 1] == '\r')) end--;
        size_t start = end;
        while (start && file.data[start - 1] != '\n') start--;
        if (end - start < sizeof key) memcpy(key, file.data + start, end - start);
        err = omm_minisign_public_parse(out, key);
        if (err != OMM_OK)
            err = omm_raise(OMM_ERR_USAGE, "--trust: %s holds no minisign public key", text);
    }
    omm_buf_fini(&file);
    return err;
}

/* What has neither of these is not a bundle in which something is missing. */
omm_err cli_pins_check_bundle(const char *dir) {
    char manifest[OMM_PATH_MAX], run[OMM_PATH_MAX], signature[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(manifest, dir, "manifest.json"));
    OMM_TRY(omm_path_join(run, dir, "run.json"));
    if (!omm_file_exists(dir)) return omm_raise(OMM_ERR_NOT_FOUND, "%s is not there", dir);
    if (omm_file_exists(manifest)) return OMM_OK;
    if (!omm_file_exists(run))
        return omm_raise(OMM_ERR_USAGE,
                         "%s is no bundle: it has neither manifest.json nor run.json; accepted: "
                         "the folder that simulate or a coordinator has sealed",
                         dir);
    OMM_TRY(omm_path_join(signature, dir, "manifest.json.minisig"));
    fprintf(stderr,
            omm_file_exists(signature) ? "%s was sealed, and its manifest.json is gone since\n"
                                       : "%s was never sealed: its run has not ended\n",
            dir);
    return OMM_OK;
}

/* To `options`, which borrows *pins. */
static omm_err read_pins(cli_pins *pins, omm_verify_options *options) {
    if (pins->trust) {
        OMM_TRY(parse_trust(&pins->key, pins->trust));
        options->trusted = &pins->key;
    }
    if (!pins->coordinator) return OMM_OK;
    if (omm_unhex(pins->coordinator_key.b, sizeof pins->coordinator_key.b, pins->coordinator) !=
        OMM_OK)
        return omm_raise(OMM_ERR_USAGE,
                         "--coordinator: '%.80s' is no public key; accepted: 64 digits of 0-9a-f "
                         "(the line `coordinator` of verify, or keygen --show)",
                         pins->coordinator);
    options->coordinator = &pins->coordinator_key;
    return OMM_OK;
}

omm_err cli_pins_verify(omm_verify_report *report, const char *dir, cli_pins *pins) {
    cli_render bundle = {.dir = dir};
    omm_verify_options options = {
        .render = cli_render_adapter, .render_ud = &bundle, .read_scenario = omm_scenario_agrees};
    OMM_TRY(cli_pins_check_bundle(dir));
    OMM_TRY(read_pins(pins, &options));
    OMM_TRY(omm_pool_open(&options.pool, omm_threads_default()));
    const omm_err err = omm_bundle_verify(report, dir, &options);
    omm_pool_close(options.pool);
    return err;
}

void cli_pins_say_refused(const char *dir, const char *command) {
    fprintf(stderr, "%s: %s is not what was signed; `meshmind verify` says why\n", command, dir);
}

void cli_pins_hint(const cli_pins *pins, const char *command) {
    if (!pins->trust)
        fprintf(stderr, "%s: signer not pinned; --trust KEY makes sure who sealed it\n", command);
}
