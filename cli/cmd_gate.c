/* meshmind gate BUNDLE: judge the evidence again, by this policy or the bundle's own. */
#include "commands.h"
#include "options.h"
#include "pins.h"
#include "places.h"
#include "print.h"

#include "omm/agreement.h"
#include "omm/bundle.h"
#include "omm/file.h"
#include "omm/judge.h"
#include "omm/policy.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64u << 20)

typedef struct gate_options {
    const char *policy, *junit;
    cli_pins pins;
    bool unverified, json;
} gate_options;

/* report: NULL where nobody verified it. */
static omm_err print_judgement(const omm_judgement *judgement, const omm_verify_report *report,
                               const gate_options *o) {
    omm_buf text;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err = o->json ? omm_verify_gate_json(&text, report, judgement, o->policy)
                          : omm_judgement_text(&text, judgement);
    if (err == OMM_OK) err = cli_print(&text);
    omm_buf_fini(&text);
    return err;
}

static omm_err judge(bool *passed, const char *dir, const omm_verify_report *report,
                     const gate_options *o) {
    omm_judgement judgement;
    OMM_TRY(omm_bundle_judge(&judgement, dir, o->policy, NULL, omm_scenario_agrees));
    omm_err err = report ? omm_bundle_check_unchanged(&report->state, dir) : OMM_OK;
    if (err != OMM_OK) omm_judgement_fini(&judgement);
    OMM_TRY(err);
    *passed = judgement.passed;
    if (o->policy)
        (void)fprintf(stderr,
                      "gate: judged by %s, and by the defaults where it says nothing; not by the "
                      "bundle's policy.yaml\n",
                      o->policy);
    omm_buf xml;
    omm_buf_init(&xml, TEXT_BYTES_MAX);
    err = print_judgement(&judgement, report, o);
    if (err == OMM_OK && o->junit)
        err = omm_verify_gate_junit(&xml, report, &judgement, dir, o->policy);
    if (err == OMM_OK && o->junit) err = omm_file_write_fast(o->junit, omm_buf_view(&xml), 0644);
    omm_buf_fini(&xml);
    omm_judgement_fini(&judgement);
    return err;
}

/* Whoever collects these files must not find an earlier bundle's, in which all passed. */
static omm_err refuse(const omm_verify_report *report, const char *dir, const gate_options *o) {
    omm_buf text;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err = o->json ? omm_verify_refusal_json(&text, report) : OMM_OK;
    if (err == OMM_OK && o->json) err = cli_print(&text);
    omm_buf_clear(&text);
    if (err == OMM_OK && o->junit) err = omm_verify_refusal_junit(&text, report, dir);
    if (err == OMM_OK && o->junit) err = omm_file_write_fast(o->junit, omm_buf_view(&text), 0644);
    omm_buf_fini(&text);
    return err;
}

static omm_err judge_or_refuse(bool *passed, const char *dir, gate_options *o) {
    omm_verify_report report;
    if (o->unverified) {
        OMM_TRY(cli_pins_check_bundle(dir));
        return judge(passed, dir, NULL, o);
    }
    OMM_TRY(cli_pins_verify(&report, dir, &o->pins));
    const bool intact = report.intact;
    if (!intact) cli_pins_say_refused(dir, "gate");
    omm_err err = intact ? judge(passed, dir, &report, o) : refuse(&report, dir, o);
    omm_verify_report_fini(&report);
    if (err == OMM_OK && intact) cli_pins_hint(&o->pins, "gate");
    return err;
}

static omm_err check_options(const char *dir, const gate_options *o) {
    const cli_input inputs[] = {{"--policy", o->policy}, {"--trust", o->pins.trust}, {0}};
    if (o->unverified && (o->pins.trust || o->pins.coordinator))
        return omm_raise(OMM_ERR_USAGE,
                         "--unverified: without --trust and --coordinator, which say "
                         "whose it has to be");
    OMM_TRY(cli_check_written("--junit", o->junit, inputs));
    return place_check_outside("--junit", o->junit, "BUNDLE", dir);
}

static omm_err run(bool *passed, const char *dir, gate_options *o) {
    place_made made = {0};
    OMM_TRY(check_options(dir, o));
    omm_err err = o->junit ? place_make_output(&made, o->junit, "--junit") : OMM_OK;
    if (err == OMM_OK) err = judge_or_refuse(passed, dir, o);
    if (err != OMM_OK) place_unmake(&made);
    return err;
}

int cmd_gate(int argc, char **argv) {
    gate_options o = {0};
    const omm_config_field *keys = omm_policy_fields;
    const cli_option options[] = {
        {"policy", 'p', CLI_STR, &o.policy, "FILE", "policy in YAML (default: the bundle's own)"},
        {"junit", 0, CLI_STR, &o.junit, "FILE",
         "write the verdicts as JUnit XML too; of a bundle that is not what was signed, the "
         "checks"},
        CLI_PINS_OPTIONS(o.pins),
        {"unverified", 0, CLI_FLAG, &o.unverified, NULL,
         "judge what lies there, signed or not: anybody can have written it"},
        {"keys", 0, CLI_KEYS, &keys, NULL,
         "print what a policy may say: each key, range and meaning"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "print one JSON object"},
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
    bool passed = false;
    const omm_err err = run(&passed, args[0], &o);
    if (err != OMM_OK) return cli_fail("gate", err);
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
