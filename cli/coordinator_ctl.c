/* coordinator_ctl.c - `meshmind coordinator ctl -c FILE ACTION`: a word to the coordinator that runs. */
#include "coordinator_tools.h"
#include "options.h"

#include "omm/coordinator_ctl.h"
#include "omm/json.h"

#include <stdio.h>
#include <string.h>

#define CTL_SUMMARY                                                                                \
    "Tell a coordinator that runs what to do.  Actions:\n"                                         \
    "  status            what it does now\n"                                                       \
    "  pause             open no new round; the open one goes on.  Kept over restarts\n"           \
    "  resume            open rounds again\n"                                                      \
    "  quarantine NODE   refuse a node from now on, by name or id.  Kept over restarts\n"          \
    "  release NODE      let it take part again, from the next round on\n"                         \
    "  rollback ROUND    begin the next round from the adapter of that earlier round, or from\n"   \
    "                    `start`; --reason says why.  Kept over restarts, and in the evidence\n"   \
    "  drain             end the open round, then exit with everything kept\n"                     \
    "Each is written to the audit log before it is done.  A sum or an evaluation is waited for."

static omm_err print_answer(const omm_buf *answer, bool json) {
    if (!json) {
        printf("%.*s", (int)answer->size, answer->data ? (const char *)answer->data : "");
        return OMM_OK;
    }
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 20);
    json_t *root = json_pack("{s:i,s:s%}", "schema_version", 1, "answer",
                             answer->data ? (const char *)answer->data : "", answer->size);
    omm_err err =
        root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_FORMAT, "the answer is no UTF-8");
    json_decref(root);
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    return err;
}

static omm_err ask(const char *config, const char *action, const char *argument, uint32_t wait_s,
                   bool json) {
    char state_dir[OMM_PATH_MAX];
    omm_coord_ctl_action known;
    omm_buf answer;
    OMM_TRY(omm_coord_ctl_parse(&known, action, argument));
    OMM_TRY(coordinator_state_dir(state_dir, config));
    omm_buf_init(&answer, OMM_COORD_CTL_ANSWER_MAX);
    omm_err err = omm_coord_ctl_ask(&answer, state_dir, action, argument, (uint64_t)wait_s * 1000);
    if (err == OMM_OK) err = print_answer(&answer, json);
    omm_buf_fini(&answer);
    return err;
}

/* A rollback's argument is the round and why, on one line. */
static omm_err with_reason(char argument[OMM_COORD_CTL_LINE_MAX], const char *action,
                           const char *reason) {
    const bool wants = strcmp(action, omm_coord_ctl_name(OMM_COORD_CTL_rollback)) == 0;
    const size_t size = strlen(argument);
    if (!wants && !reason) return OMM_OK;
    if (!wants || !reason || !reason[0] || !size || strchr(reason, '\n'))
        return omm_raise(OMM_ERR_USAGE, wants ? "rollback ROUND --reason TEXT: both, on one line"
                                              : "--reason is for rollback");
    if ((size_t)snprintf(argument + size, OMM_COORD_CTL_LINE_MAX - size, " %s", reason) <
        OMM_COORD_CTL_LINE_MAX - size)
        return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "--reason: too long; at most %u bytes with the round",
                     OMM_COORD_CTL_LINE_MAX - 16);
}

int coordinator_ctl(int argc, char **argv) {
    const char *config = NULL;
    const char *reason = NULL;
    char argument[OMM_COORD_CTL_LINE_MAX] = "";
    uint32_t wait_s = 600;
    bool json = false;
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &config, "FILE", "its service file (required)"},
        {"reason", 0, CLI_STR, &reason, "TEXT", "why, for rollback (required)"},
        {"wait", 0, CLI_U32, &wait_s, "SECONDS", "for an answer, at most (600)"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options,
                         "coordinator ctl -c FILE ACTION [NODE or ROUND]", CTL_SUMMARY, 1, 2);
    if (code >= 0) return code;
    if (!config)
        return cli_fail("coordinator ctl", omm_raise(OMM_ERR_USAGE, "-c FILE is required"));
    if (count > 1) (void)snprintf(argument, sizeof argument, "%s", args[1]);
    omm_err err = with_reason(argument, args[0], reason);
    if (err == OMM_OK) err = ask(config, args[0], argument, wait_s, json);
    if (err == OMM_ERR_STATE) {
        (void)cli_fail("coordinator ctl", err);
        return CLI_EXIT_FAILED;
    }
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("coordinator ctl", err);
}
