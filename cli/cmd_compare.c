/* meshmind compare BUNDLE BUNDLE...: two settings against each other, from verified evidence. */
#include "commands.h"
#include "options.h"
#include "pins.h"
#include "print.h"

#include "omm/compare.h"

#define TEXT_BYTES_MAX (64u << 20)

/* *refused: an array of those that are not what their signers said; they are named on stderr, too.  states: (count) */
static omm_err verify_all(json_t *refused, omm_digest *states, char *const *dirs, int count,
                          cli_pins *pins) {
    for (int i = 0; i < count; i++) {
        omm_verify_report report;
        OMM_TRY(cli_pins_verify(&report, dirs[i], pins));
        const bool intact = report.intact;
        states[i] = report.state;
        omm_verify_report_fini(&report);
        if (intact) continue;
        cli_pins_say_refused(dirs[i], "compare");
        if (json_array_append_new(refused, omm_json_text(dirs[i])) != 0)
            return omm_raise(OMM_ERR_NOMEM, "JSON");
    }
    return OMM_OK;
}

static omm_err compare(char *const *dirs, const omm_digest *states, int count, bool json) {
    omm_comparison comparison;
    omm_buf text;
    omm_err err = omm_compare(&comparison, (const char *const *)dirs, (size_t)count);
    if (err ==
        OMM_ERR_MISMATCH) /* nothing went wrong: these two were the wrong ones to ask about */
        return omm_raise(OMM_ERR_CONFIG, "%s", omm_err_sentence());
    OMM_TRY(err);
    omm_buf_init(&text, TEXT_BYTES_MAX);
    for (int i = 0; i < count && err == OMM_OK; i++)
        err = omm_bundle_check_unchanged(&states[i], dirs[i]);
    if (err == OMM_OK)
        err = json ? omm_comparison_json(&text, &comparison)
                   : omm_comparison_text(&text, &comparison);
    if (err == OMM_OK) err = cli_print(&text);
    omm_buf_fini(&text);
    omm_comparison_fini(&comparison);
    return err;
}

static omm_err run(bool *intact, char *const *dirs, int count, cli_pins *pins, bool json) {
    omm_digest states[OMM_COMPARE_BUNDLES_MAX];
    json_t *refused = json_array();
    omm_err err =
        refused ? verify_all(refused, states, dirs, count, pins) : omm_raise(OMM_ERR_NOMEM, "JSON");
    *intact = json_array_size(refused) == 0;
    if (err == OMM_OK && *intact) err = compare(dirs, states, count, json);
    /* Instead of a comparison, so that nobody reads an empty answer as none that went wrong. */
    if (err == OMM_OK && !*intact && json)
        err = cli_print_json(json_pack("{s:s,s:i,s:O}", "kind", "omm-comparison", "schema_version",
                                       1, "refused", refused));
    json_decref(refused);
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
        "first one's.  All are verified first.  Exit 1 when one is not what was signed, 2 when "
        "they cannot\n"
        "be compared.",
        2, OMM_COMPARE_BUNDLES_MAX);
    if (code >= 0) return code;
    bool intact = false;
    omm_err err = run(&intact, args, count, &pins, json);
    if (err != OMM_OK) return cli_fail("compare", err);
    return intact ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
