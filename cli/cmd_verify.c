/* meshmind verify BUNDLE: is it what its signers said, and did it pass? */
#include "commands.h"
#include "options.h"
#include "pins.h"
#include "print.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64u << 20)

static omm_err print_report(const omm_verify_report *report, bool json) {
    omm_buf text;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err =
        json ? omm_verify_report_json(&text, report) : omm_verify_report_text(&text, report);
    if (err == OMM_OK) err = cli_print(&text);
    omm_buf_fini(&text);
    return err;
}

static omm_err run(bool *passed, const char *dir, cli_pins *pins, bool json) {
    omm_verify_report report;
    OMM_TRY(cli_pins_verify(&report, dir, pins));
    *passed = report.passed;
    const omm_err err = print_report(&report, json);
    if (err == OMM_OK) cli_pins_hint(pins, "verify");
    omm_verify_report_fini(&report);
    return err;
}

int cmd_verify(int argc, char **argv) {
    cli_pins pins = {0};
    bool json = false;
    const cli_option options[] = {
        CLI_PINS_OPTIONS(pins),
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
    omm_err err = run(&passed, args[0], &pins, json);
    if (err != OMM_OK) return cli_fail("verify", err);
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
