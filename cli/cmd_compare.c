/* meshmind compare BUNDLE BUNDLE...: two settings against each other, from verified evidence. */
#include "commands.h"
#include "options.h"
#include "render.h"

#include "omm/agreement.h"
#include "omm/compare.h"
#include "omm/pool.h"
#include "omm/verify.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64u << 20)

/* *intact: every one is what its signers said; those that are not are named on stderr. */
static omm_err verify_all(bool *intact, char *const *dirs, int count) {
    omm_verify_options options = {.render = cli_render_adapter,
                                  .read_scenario = omm_scenario_agrees};
    *intact = true;
    OMM_TRY(omm_pool_open(&options.pool, omm_threads_default()));
    omm_err err = OMM_OK;
    for (int i = 0; err == OMM_OK && i < count; i++) {
        omm_verify_report report;
        cli_render bundle = {.dir = dirs[i]};
        options.render_ud = &bundle;
        err = omm_bundle_verify(&report, dirs[i], &options);
        if (err != OMM_OK) break;
        if (!report.intact) {
            fprintf(stderr, "compare: %s is not what was signed; `meshmind verify` says why\n",
                    dirs[i]);
            *intact = false;
        }
        omm_verify_report_fini(&report);
    }
    omm_pool_close(options.pool);
    return err;
}

static omm_err run(bool *intact, char *const *dirs, int count, bool json) {
    omm_comparison comparison;
    omm_buf text;
    OMM_TRY(verify_all(intact, dirs, count));
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
    bool json = false;
    const cli_option options[] = {
        {"json", 0, CLI_FLAG, &json, NULL, "print one JSON object"},
        {0},
    };
    int count = 0;
    char **args = NULL;
    int code = cli_parse(
        &count, &args, argc, argv, options, "compare BUNDLE BUNDLE... [--json]",
        "What a change of the scenario did: which settings differ, and the held-out items of the\n"
        "final adapters, paired.  Bundles that differ in nothing but the seed are one side; A is "
        "the\n"
        "first one's.  All are verified first.  Exit 1 when one is not what was signed.",
        2, OMM_COMPARE_BUNDLES_MAX);
    if (code >= 0) return code;
    bool intact = false;
    omm_err err = run(&intact, args, count, json);
    if (err != OMM_OK) return cli_fail("compare", err);
    return intact ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
