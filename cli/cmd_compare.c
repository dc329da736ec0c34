/* meshmind compare BUNDLE BUNDLE...: two settings against each other, from verified evidence. */
#include "commands.h"
#include "options.h"
#include "pins.h"

#include "omm/compare.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64u << 20)

static omm_err run(bool *intact, char *const *dirs, int count, cli_pins *pins, bool json) {
    omm_comparison comparison;
    omm_buf text;
    OMM_TRY(cli_pins_verify_all(intact, dirs, count, pins, "compare"));
    if (!*intact) return OMM_OK;
    OMM_TRY(omm_compare(&comparison, (const char *const *)dirs, (size_t)count));
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err =
        json ? omm_comparison_json(&text, &comparison) : omm_comparison_text(&text, &comparison);
    if (err == OMM_OK && fwrite(text.data, 1, text.size, stdout) != text.size)
        err = omm_raise(OMM_ERR_IO, "cannot write to standard output");
    omm_buf_fini(&text);
    omm_comparison_fini(&comparison);
    return err;
}

int cmd_compare(int argc, char **argv) {
    cli_pins pins = {0};
    bool json = false;
    const cli_option options[] = {
        CLI_PINS_OPTIONS(pins),
        {"json", 0, CLI_FLAG, &json, NULL, "print one JSON object"},
        {0},
    };
    int count = 0;
    char **args = NULL;
    int code = cli_parse(
        &count, &args, argc, argv, options, "compare BUNDLE BUNDLE... [--trust KEY] [--json]",
        "What a change of the scenario did: which settings differ, and the held-out items of the\n"
        "final adapters, paired.  Bundles that differ in nothing but the seed are one side; A is "
        "the\n"
        "first one's.  All are verified first.  Exit 1 when one is not what was signed.",
        2, OMM_COMPARE_BUNDLES_MAX);
    if (code >= 0) return code;
    bool intact = false;
    omm_err err = run(&intact, args, count, &pins, json);
    if (err != OMM_OK) return cli_fail("compare", err);
    return intact ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
