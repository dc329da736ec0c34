/* meshmind verify BUNDLE: is it what its signers said, and did it pass? */
#include "commands.h"
#include "options.h"
#include "render.h"

#include "omm/agreement.h"
#include "omm/file.h"
#include "omm/verify.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (64u << 20)
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

static omm_err print_report(const omm_verify_report *report, bool json) {
    omm_buf text;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err =
        json ? omm_verify_report_json(&text, report) : omm_verify_report_text(&text, report);
    if (err == OMM_OK && fwrite(text.data, 1, text.size, stdout) != text.size)
        err = omm_raise(OMM_ERR_IO, "cannot write to standard output");
    omm_buf_fini(&text);
    return err;
}

/* What has neither of these is not a bundle in which something is missing. */
static omm_err check_is_bundle(const char *dir) {
    char manifest[OMM_PATH_MAX], run[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(manifest, dir, "manifest.json"));
    OMM_TRY(omm_path_join(run, dir, "run.json"));
    if (!omm_file_exists(dir)) return omm_raise(OMM_ERR_NOT_FOUND, "%s is not there", dir);
    if (omm_file_exists(manifest)) return OMM_OK;
    if (!omm_file_exists(run))
        return omm_raise(OMM_ERR_USAGE,
                         "%s is no bundle: it has neither manifest.json nor run.json; accepted: "
                         "the folder that simulate or a coordinator has sealed",
                         dir);
    fprintf(stderr, "verify: %s was never sealed: its run has not ended\n", dir);
    return OMM_OK;
}

static omm_err run(bool *passed, const char *dir, const char *trust, const char *coordinator,
                   bool json) {
    omm_public_key key;
    omm_public_key coordinator_key;
    omm_verify_report report;
    cli_render bundle = {.dir = dir};
    omm_verify_options options = {
        .render = cli_render_adapter, .render_ud = &bundle, .read_scenario = omm_scenario_agrees};
    OMM_TRY(check_is_bundle(dir));
    if (trust) {
        OMM_TRY(parse_trust(&key, trust));
        options.trusted = &key;
    }
    if (coordinator) {
        if (omm_unhex(coordinator_key.b, sizeof coordinator_key.b, coordinator) != OMM_OK)
            return omm_raise(OMM_ERR_USAGE, "--coordinator: '%.80s' is not 64 hex digits",
                             coordinator);
        options.coordinator = &coordinator_key;
    }
    omm_err err = omm_pool_open(&options.pool, omm_threads_default());
    if (err != OMM_OK) return err;
    err = omm_bundle_verify(&report, dir, &options);
    omm_pool_close(options.pool);
    OMM_TRY(err);
    *passed = report.passed;
    err = print_report(&report, json);
    if (err == OMM_OK && !report.pinned && !trust)
        fprintf(stderr, "verify: signer not pinned; --trust KEY makes sure who sealed it\n");
    omm_verify_report_fini(&report);
    return err;
}

int cmd_verify(int argc, char **argv) {
    const char *trust = NULL;
    const char *coordinator = NULL;
    bool json = false;
    const cli_option options[] = {
        {"trust", 0, CLI_STR, &trust, "KEY", "minisign public key, or a file that holds it"},
        {"coordinator", 0, CLI_STR, &coordinator, "HEX",
         "public key of the coordinator that must have run it"},
        {"json", 0, CLI_FLAG, &json, NULL, "print one JSON object"},
        {0},
    };
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options,
                         "verify BUNDLE [--trust KEY] [--coordinator HEX] [--json]",
                         "Check a bundle from its bytes alone: files, signatures, the chain of "
                         "offers, submissions\nand receipts, the aggregation, the adapter, and "
                         "the verdicts.  Exit 1 when anything fails.",
                         1, 1);
    if (code >= 0) return code;
    bool passed = false;
    omm_err err = run(&passed, args[0], trust, coordinator, json);
    if (err != OMM_OK) return cli_fail("verify", err);
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
