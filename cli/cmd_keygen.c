/* cmd_keygen.c - `meshmind keygen --out FILE`: a new Ed25519 key, its public part on stdout. */
#include "commands.h"
#include "options.h"

#include "omm/json.h"
#include "omm/sign.h"

#include <stdio.h>

static omm_err print_key(const omm_key *key, bool json) {
    char hex[OMM_DIGEST_HEX_SIZE];
    char id[OMM_DIGEST_HEX_SIZE];
    char minisign[OMM_MINISIGN_PUBLIC_SIZE];
    omm_digest digest = omm_key_id(&key->public_key);
    omm_hex(hex, omm_bytes_of(key->public_key.b, sizeof key->public_key.b));
    omm_digest_hex(id, &digest);
    omm_minisign_public(minisign, &key->public_key);
    if (!json) {
        printf("public key  %s\nnode id     %s\nminisign    %s\n", hex, id, minisign);
        return OMM_OK;
    }
    json_t *root = json_pack("{s:i,s:s,s:s,s:s}", "schema_version", 1, "public_key", hex, "node_id",
                             id, "minisign", minisign);
    if (!root) return omm_raise(OMM_ERR_NOMEM, "JSON");
    omm_buf text;
    omm_buf_init(&text, 4096);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

int cmd_keygen(int argc, char **argv) {
    const char *out = NULL;
    const char *show = NULL;
    bool json = false;
    const cli_option options[] = {
        {"out", 'o', CLI_STR, &out, "FILE", "file to write, mode 0600; never overwritten"},
        {"show", 0, CLI_STR, &show, "FILE", "print the public half of a key that is there"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "keygen --out FILE",
                         "Make a key for a node, a coordinator or a bundle.", 0, 0);
    if (code >= 0) return code;
    if (!out == !show)
        return cli_fail("keygen", omm_raise(OMM_ERR_USAGE, "one of --out and --show is required"));
    omm_key key = {0};
    omm_err err = OMM_OK;
    if (show) {
        err = omm_key_load(&key, show);
    } else {
        omm_key_generate(&key);
        err = omm_key_save(out, &key);
    }
    if (err == OMM_OK) err = print_key(&key, json);
    omm_key_wipe(&key);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("keygen", err);
}
