/* meshmind gate BUNDLE: judge the evidence again, by this policy or the bundle's own. */
#include "commands.h"
#include "options.h"
#include "pins.h"

#include "omm/agreement.h"
#include "omm/bundle.h"
#include "omm/file.h"
#include "omm/judge.h"
#include "omm/policy.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64u << 20)

static omm_err print_judgement(const omm_judgement *judgement, bool json) {
    omm_buf text;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err =
        json ? omm_judgement_json(&text, judgement) : omm_judgement_text(&text, judgement);
    if (err == OMM_OK && fwrite(text.data, 1, text.size, stdout) != text.size)
        err = omm_raise(OMM_ERR_IO, "cannot write to standard output");
    omm_buf_fini(&text);
    return err;
}

static omm_err run(bool *passed, const char *dir, const char *policy, const char *junit,
                   bool json) {
    omm_judgement judgement;
    OMM_TRY(omm_bundle_judge(&judgement, dir, policy, NULL, omm_scenario_agrees));
    *passed = judgement.passed;
    omm_err err = print_judgement(&judgement, json);
    if (err == OMM_OK && junit)
        err = omm_file_write_fast(junit, omm_buf_view(&judgement.junit), 0644);
    omm_judgement_fini(&judgement);
    return err;
}

int cmd_gate(int argc, char **argv) {
    const char *policy = NULL;
    const char *junit = NULL;
    cli_pins pins = {0};
    bool unverified = false, json = false;
    const omm_config_field *keys = omm_policy_fields;
    const cli_option options[] = {
        {"policy", 'p', CLI_STR, &policy, "FILE", "policy in YAML (default: the bundle's own)"},
        {"junit", 0, CLI_STR, &junit, "FILE", "write the verdicts as JUnit XML too"},
        CLI_PINS_OPTIONS(pins),
        {"unverified", 0, CLI_FLAG, &unverified, NULL,
         "judge what lies there, signed or not: anybody can have written it"},
        {"keys", 0, CLI_KEYS, &keys, NULL,
         "print what a policy may say: each key, range and meaning"},
        {"json", 0, CLI_FLAG, &json, NULL, "print one JSON object"},
        {0},
    };
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options,
                  "gate BUNDLE [--policy P.yaml] [--trust KEY] [--junit F] [--json] | --keys",
                  "Judge the evidence of a bundle, by its own policy or another, after it "
                  "has been verified.\n"
                  "Exit 1 when it is not what was signed, or a required gate fails.",
                  1, 1);
    if (code >= 0) return code;
    bool passed = false, intact = true;
    omm_err err = OMM_OK;
    if (unverified && (pins.trust || pins.coordinator))
        err = omm_raise(OMM_ERR_USAGE, "--unverified: without --trust and --coordinator, which say "
                                       "whose it has to be");
    if (err == OMM_OK && !unverified) err = cli_pins_verify_all(&intact, args, 1, &pins, "gate");
    if (err == OMM_OK && intact) err = run(&passed, args[0], policy, junit, json);
    if (err != OMM_OK) return cli_fail("gate", err);
    if (intact && !unverified) cli_pins_hint(&pins, "gate");
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
