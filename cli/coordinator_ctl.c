/* coordinator_ctl.c - `meshmind coordinator ctl -c FILE ACTION`: a word to the coordinator that runs. */
#include "coordinator_tools.h"
#include "options.h"

#include "omm/coordinator_ctl.h"
#include "omm/coordinator_enrol.h"
#include "omm/json.h"
#include "omm/plain_text.h"

#include <stdio.h>
#include <string.h>

#define CTL_SUMMARY                                                                                \
    "Tell a coordinator that runs what to do.  Actions:\n"                                         \
    "  status            what it does now; with --json for scripts (fields: docs/service.md)\n"    \
    "  pause             open no new round; the open one goes on.  Kept over restarts\n"           \
    "  resume            open rounds again\n"                                                      \
    "  quarantine NODE   refuse a node from now on, by name or id.  Kept over restarts\n"          \
    "  release NODE      let it take part again, from the next round on\n"                         \
    "  rollback ROUND    begin the next round from the adapter of that earlier round, or from "    \
    "`start`; --reason says why.  Rounds count from 0, as in status, on the page, in logs and in " \
    "files.  Kept over restarts, and in the evidence\n"                                            \
    "  drain             end the open round, then exit with everything kept\n"                     \
    "  nodes             everybody who is in, in quarantine or revoked, and how they came in\n"    \
    "  invite            print tokens; each lets one node in, once (--count, --expires, "          \
    "--label)\n"                                                                                   \
    "  invitations       all of them by id, and who used them; a token is shown by invite alone\n" \
    "  uninvite ID       an invitation that nobody has used lets nobody in any more\n"             \
    "  revoke NODE       refuse a node for good and tell it why (--reason); what was accepted "    \
    "of it stays\n\n"                                                                              \
    "Each is written to the audit log before it is done.  A sum or an evaluation is waited for.\n" \
    "Exit codes: 0 it is done; 2 it is refused, or no coordinator runs there, and nothing has "    \
    "changed;\n3 it failed: the coordinator cannot (a disk, memory), or does not answer, and it "  \
    "may be done"

/* Names of a run from before may have anything in them. */
static void print_clean(omm_bytes text) {
    omm_buf clean;
    omm_buf_init(&clean, OMM_COORD_CTL_ANSWER_MAX);
    if (omm_text_clean(&clean, text) == OMM_OK && clean.size > 0)
        fwrite(clean.data, 1, clean.size, stdout);
    omm_buf_fini(&clean);
}

static void print_text(const omm_buf *answer, omm_coord_ctl_action action) {
    if (answer->size == 0 && action == OMM_COORD_CTL_nodes)
        printf("no nodes yet: none is listed, and none has joined\n");
    else
        print_clean(omm_buf_view(answer));
}

static omm_err print_json(const omm_buf *answer) {
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

typedef struct words {
    const char *config, *action, *target, *label, *reason;
    uint32_t count, expires, wait_s;
    bool json;
} words;

static bool is_label(const char *text) {
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') return false;
    return strlen(text) <= OMM_COORD_LABEL_MAX;
}

/* What belongs to one action only is refused with every other. */
static omm_err check_words(const words *w) {
    bool invites = strcmp(w->action, "invite") == 0;
    bool revokes = strcmp(w->action, "revoke") == 0;
    bool rolls_back = strcmp(w->action, "rollback") == 0;
    if (!invites && (w->count != UINT32_MAX || w->expires != UINT32_MAX || w->label))
        return omm_raise(OMM_ERR_USAGE, "--count, --expires and --label are accepted with invite");
    if (w->label && !is_label(w->label))
        return omm_raise(OMM_ERR_USAGE, "--label: accepted are up to %u printable ASCII characters",
                         OMM_COORD_LABEL_MAX);
    if (w->reason && strpbrk(w->reason, "\r\n"))
        return omm_raise(OMM_ERR_USAGE, "--reason: a line break; accepted: one line");
    if (!revokes && !rolls_back && w->reason)
        return omm_raise(OMM_ERR_USAGE, "--reason is accepted with revoke and rollback");
    if (rolls_back && (!w->reason || !w->reason[0] || !w->target[0]))
        return omm_raise(OMM_ERR_USAGE, "rollback ROUND --reason TEXT: both, on one line");
    if (revokes && !w->reason)
        return omm_raise(OMM_ERR_USAGE, "revoke: --reason TEXT is missing; the node is told it");
    if (invites && w->target[0])
        return omm_raise(OMM_ERR_USAGE, "invite takes no argument, and got %s", w->target);
    return OMM_OK;
}

/* The argument as it goes over the socket (omm/coordinator_ctl.h). */
static omm_err put_argument(omm_buf *out, const words *w) {
    if (w->json && strcmp(w->action, "status") == 0 && !w->target[0])
        return omm_buf_printf(out, "json");
    if (strcmp(w->action, "invite") == 0)
        return omm_buf_printf(out, "%u %u%s%s", w->count == UINT32_MAX ? 1 : w->count,
                              w->expires == UINT32_MAX ? 0 : w->expires, w->label ? " " : "",
                              w->label ? w->label : "");
    if (w->reason && w->target[0]) return omm_buf_printf(out, "%s\t%s", w->target, w->reason);
    return omm_buf_printf(out, "%s", w->target);
}

static omm_err ask(const words *w, const char *argument) {
    char state_dir[OMM_PATH_MAX];
    omm_coord_ctl_action known;
    omm_buf answer;
    OMM_TRY(omm_coord_ctl_parse(&known, w->action, argument));
    OMM_TRY(coordinator_state_dir(state_dir, w->config));
    omm_buf_init(&answer, OMM_COORD_CTL_ANSWER_MAX);
    omm_err err =
        omm_coord_ctl_ask(&answer, state_dir, w->action, argument, (uint64_t)w->wait_s * 1000);
    const bool is_json = known == OMM_COORD_CTL_status; /* it comes as such */
    if (err == OMM_OK && w->json && !is_json)
        err = print_json(&answer);
    else if (err == OMM_OK)
        print_text(&answer, known);
    omm_buf_fini(&answer);
    return err;
}

static omm_err tell(const words *w) {
    omm_buf argument;
    OMM_TRY(check_words(w));
    omm_buf_init(&argument, SIZE_MAX / 2); /* omm_coord_ctl_ask says what is too long */
    omm_err err = put_argument(&argument, w);
    if (err == OMM_OK) err = omm_buf_append(&argument, "", 1);
    if (err == OMM_OK) err = ask(w, (const char *)argument.data);
    omm_buf_fini(&argument);
    return err;
}

int coordinator_ctl(int argc, char **argv) {
    words w = {.count = UINT32_MAX, .expires = UINT32_MAX, .wait_s = 600};
    const cli_option options[] = {
        {"config", 'c', CLI_STR, &w.config, "FILE", "its service file (required)"},
        {"count", 'n', CLI_U32, &w.count, "N", "invite: so many tokens (1)"},
        {"expires", 0, CLI_U32, &w.expires, "HOURS", "invite: refused then; 0: never (0)"},
        {"label", 0, CLI_STR, &w.label, "TEXT", "invite: begins the names of who comes by them"},
        {"reason", 0, CLI_STR, &w.reason, "TEXT",
         "revoke: the node is told it; rollback: for the log (required)"},
        {"wait", 0, CLI_U32, &w.wait_s, "SECONDS", "for an answer, at most (600)"},
        {"json", 0, CLI_FLAG, &w.json, NULL,
         "one JSON object: of status its fields, else the answer"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options,
                         "coordinator ctl -c FILE ACTION [NODE, ID or ROUND]", CTL_SUMMARY, 1, 2);
    if (code >= 0) return code;
    if (!w.config)
        return cli_fail("coordinator ctl", omm_raise(OMM_ERR_USAGE, "-c FILE is required"));
    w.action = args[0];
    w.target = count > 1 ? args[1] : "";
    const omm_err err = tell(&w);
    if (err == OMM_OK) return CLI_EXIT_PASS;
    const int how = cli_fail("coordinator ctl", err);
    return err == OMM_ERR_STATE ? CLI_EXIT_USAGE : how; /* it says no to what was asked */
}
