/* cmd_keygen.c - `meshmind keygen --out FILE`: a new Ed25519 key, its public part on stdout; with --tls a
 * certificate and its key. */
#include "commands.h"
#include "options.h"
#include "places.h"
#include "print.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/sign.h"
#include "omm/tls.h"

#include <stdio.h>
#include <unistd.h>

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
    return cli_print_json(json_pack("{s:i,s:s,s:s,s:s}", "schema_version", 1, "public_key", hex,
                                    "node_id", id, "minisign", minisign));
}

static omm_err print_tls(const char *certificate_path, const char *key_path,
                         const omm_digest *fingerprint, bool json) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, fingerprint);
    if (!json) {
        printf("certificate  %s (give it to the nodes)\nkey          %s (stays here)\n"
               "sha256       %s\n",
               certificate_path, key_path, hex);
        return OMM_OK;
    }
    return cli_print_json(json_pack("{s:i,s:o,s:o,s:s}", "schema_version", 1, "certificate",
                                    omm_json_text(certificate_path), "key", omm_json_text(key_path),
                                    "sha256", hex));
}

/* Without it nothing is left of its key either, or the next call would refuse to overwrite that. */
static omm_err create_certificate(const char *path, const char *key_path,
                                  const omm_buf *certificate) {
    const omm_err err = omm_file_create(path, omm_buf_view(certificate), 0644);
    if (err != OMM_OK) unlink(key_path);
    return err;
}

/* The key in `path`, the certificate in `path`.crt; neither is overwritten. */
static omm_err make_tls(const char *path, bool json) {
    char certificate_path[OMM_PATH_MAX];
    omm_digest fingerprint;
    omm_buf certificate, key;
    int size = snprintf(certificate_path, sizeof certificate_path, "%s.crt", path);
    if (size < 0 || (size_t)size >= sizeof certificate_path)
        return omm_raise(OMM_ERR_TOO_BIG, "path too long: %.200s...", path);
    if (omm_file_exists(certificate_path))
        return omm_raise(OMM_ERR_EXISTS, "%s exists and is not overwritten", certificate_path);
    omm_buf_init(&certificate, OMM_TLS_PEM_BYTES_MAX);
    omm_buf_init(&key, OMM_TLS_PEM_BYTES_MAX);
    omm_err err = omm_tls_make(&certificate, &key);
    if (err == OMM_OK) err = omm_tls_fingerprint(&fingerprint, omm_buf_view(&certificate));
    if (err == OMM_OK) err = omm_file_create(path, omm_buf_view(&key), 0600);
    if (err == OMM_OK) err = create_certificate(certificate_path, path, &certificate);
    if (err == OMM_OK) err = print_tls(certificate_path, path, &fingerprint, json);
    omm_free_secret(key.data, key.capacity);
    omm_buf_fini(&certificate);
    return err;
}

int cmd_keygen(int argc, char **argv) {
    const char *out = NULL;
    const char *show = NULL;
    bool json = false;
    bool tls = false;
    const cli_option options[] = {
        {"out", 'o', CLI_STR, &out, "FILE", "file to write, mode 0600; never overwritten"},
        {"show", 0, CLI_STR, &show, "FILE", "print the public half of a key that is there"},
        {"tls", 0, CLI_FLAG, &tls, NULL,
         "a key for tls+tcp:// in FILE, its certificate in FILE.crt"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "keygen --out FILE",
                         "Make a key for a node, a coordinator or a bundle, or with --tls for a\n"
                         "coordinator's connections.",
                         0, 0);
    if (code >= 0) return code;
    if (!out == !show)
        return cli_fail("keygen", omm_raise(OMM_ERR_USAGE, "one of --out and --show is required"));
    if (show && tls)
        return cli_fail("keygen", omm_raise(OMM_ERR_USAGE, "--tls goes with --out, not --show"));
    const omm_err placed = place_check_unsealed("--out", out);
    if (placed != OMM_OK) return cli_fail("keygen", placed);
    if (tls) {
        omm_err made = make_tls(out, json);
        return made == OMM_OK ? CLI_EXIT_PASS : cli_fail("keygen", made);
    }
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
