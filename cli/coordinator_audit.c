/* coordinator_audit.c - `meshmind coordinator audit verify FILE`: walk the chain of an audit log. */
#include "coordinator_tools.h"
#include "options.h"
#include "places.h"
#include "print.h"

#include "omm/audit_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Each line is held by the one after it, and the last one by nothing in the file. */
#define LAST_BELIEVED                                                                              \
    "the last line is believed as it stands: whether it was changed, or lines behind it were cut " \
    "off, shows only\na head that was kept elsewhere (--head HEX; `coordinator ctl status "        \
    "--json` "                                                                                     \
    "says it as audit_head)\n"

static omm_err print_check(const omm_audit_check *check, bool is_known, bool json) {
    char head[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(head, &check->head);
    if (!json) {
        printf("%s: %" PRIu64 " entries, %s to %s\nhead %s\n",
               check->has_known ? "the chain holds" : "the chain holds, but without the known head",
               check->entries, check->first[0] ? check->first : "-",
               check->last[0] ? check->last : "-", head);
        if (!is_known) printf(LAST_BELIEVED);
        return OMM_OK;
    }
    return cli_print_json(json_pack("{s:i,s:b,s:I,s:s,s:s,s:s,s:b}", "schema_version", 1, "holds",
                                    1, "entries", (json_int_t)check->entries, "first", check->first,
                                    "last", check->last, "head", head, "has_known_head",
                                    (int)check->has_known));
}

/* What stderr says, too, for who reads the object alone. */
static omm_err print_broken(const char *why) {
    return cli_print_json(
        json_pack("{s:i,s:b,s:o}", "schema_version", 1, "holds", 0, "reason", omm_json_text(why)));
}

static omm_err verify(bool *holds, const char *path, const char *head, bool json) {
    omm_digest known;
    omm_audit_check check;
    if (head && omm_digest_unhex(&known, head) != OMM_OK)
        return omm_raise(OMM_ERR_USAGE, "--head: %s; accepted: 64 lower-case hex digits", head);
    if (place_is_folder(path))
        return omm_raise(OMM_ERR_USAGE,
                         "%s: a folder; accepted: a file, audit.jsonl in a coordinator's state_dir",
                         path);
    OMM_TRY(omm_audit_log_verify(&check, path, head ? &known : NULL));
    if (check.entries == 0)
        return omm_raise(OMM_ERR_FORMAT,
                         "%s: empty; a coordinator begins its log with its start, so all was cut "
                         "off, or it has never started",
                         path);
    *holds = check.has_known;
    return print_check(&check, head != NULL, json);
}

int coordinator_audit(int argc, char **argv) {
    const char *head = NULL;
    bool json = false;
    bool holds = false;
    const cli_option options[] = {
        {"head", 0, CLI_STR, &head, "HEX", "a head that was kept: it must be an entry of the log"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(
        &count, &args, argc, argv, options, "coordinator audit verify FILE",
        "Check an audit log (state_dir/audit.jsonl): every entry holds the one before.\n"
        "The first that is broken is named, and why.  A log that was written anew, or cut, or\n"
        "changed in its last line holds too: --head takes what status.json or `ctl status --json`\n"
        "showed at some time (audit_head), and all up to that entry is as it was then.",
        2, 2);
    if (code >= 0) return code;
    if (strcmp(args[0], "verify") != 0)
        return cli_fail("coordinator audit",
                        omm_raise(OMM_ERR_USAGE, "unknown action %s; accepted: verify", args[0]));
    omm_err err = verify(&holds, args[1], head, json);
    if (err == OMM_ERR_FORMAT) {
        (void)cli_fail("coordinator audit", err);
        err = json ? print_broken(omm_err_sentence()) : OMM_OK;
    }
    if (err != OMM_OK) return cli_fail("coordinator audit", err);
    return holds ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}
