/* sign.c - owns Ed25519 keys, signatures and key files; minisign.c has the signature files. */
#include "omm/sign.h"

#include "internal.h"
#include "omm/file.h"
#include "omm/json.h"

#include <sodium.h>
#include <string.h>

#define KEY_FILE_BYTES_MAX 4096u

_Static_assert(crypto_sign_SECRETKEYBYTES == 64, "Ed25519 secret key");
_Static_assert(crypto_sign_BYTES == sizeof(omm_signature), "Ed25519 signature");

void omm_key_from_seed(omm_key *out, const omm_seed *seed) {
    base_sodium_ready();
    OMM_ASSERT(crypto_sign_seed_keypair(out->public_key.b, out->secret, seed->b) == 0);
}

void omm_key_generate(omm_key *out) {
    omm_seed seed = omm_seed_random();
    omm_key_from_seed(out, &seed);
    sodium_memzero(&seed, sizeof seed);
}

void omm_key_wipe(omm_key *key) {
    sodium_memzero(key, sizeof *key);
}

bool omm_public_key_equal(const omm_public_key *a, const omm_public_key *b) {
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

omm_digest omm_key_id(const omm_public_key *key) {
    return omm_hash(omm_bytes_of(key->b, sizeof key->b));
}

omm_signature omm_sign(const omm_key *key, omm_bytes message) {
    omm_signature sig;
    base_sodium_ready();
    OMM_ASSERT(crypto_sign_detached(sig.b, NULL, message.data, message.size, key->secret) == 0);
    return sig;
}

omm_err omm_verify(const omm_public_key *key, const omm_signature *sig, omm_bytes message) {
    base_sodium_ready();
    if (crypto_sign_verify_detached(sig->b, message.data, message.size, key->b) != 0) {
        return omm_raise(OMM_ERR_SIGNATURE, "Ed25519 signature over %zu bytes does not verify",
                         message.size);
    }
    return OMM_OK;
}

/* ---- key files ---- */

static omm_err write_key_text(omm_buf *out, const omm_key *key) {
    char secret[2 * sizeof key->secret + 1], public_key[2 * sizeof key->public_key.b + 1];
    omm_hex(secret, omm_bytes_of(key->secret, sizeof key->secret));
    omm_hex(public_key, omm_bytes_of(key->public_key.b, sizeof key->public_key.b));
    omm_err err = omm_buf_printf(out,
                                 "{\"schema_version\":1,\"kind\":\"omm-secret-key\","
                                 "\"secret\":\"%s\",\"public\":\"%s\"}\n",
                                 secret, public_key);
    sodium_memzero(secret, sizeof secret);
    return err;
}

static void free_secret_buf(omm_buf *buf) {
    if (buf->data) sodium_memzero(buf->data, buf->capacity);
    omm_buf_fini(buf);
}

omm_err omm_key_save(const char *path, const omm_key *key) {
    omm_err err;
    omm_buf text;
    omm_buf_init(&text, KEY_FILE_BYTES_MAX);
    OMM_TRY_OUT(omm_buf_reserve(&text, KEY_FILE_BYTES_MAX / 2)); /* no copy of the secret moves */
    OMM_TRY_OUT(write_key_text(&text, key));
    err = omm_file_create(path, omm_buf_view(&text), 0600);
out:
    free_secret_buf(&text);
    return err;
}

/* The parsed JSON holds the secret as text; wipe it before jansson frees it. */
static void wipe_json_string(const char *text) {
    union {
        const char *shown;
        char *owned;
    } secret = {.shown = text}; /* jansson lends it as const; it is the document's own memory */
    sodium_memzero(secret.owned, strlen(text));
}

static omm_err read_key_fields(omm_key *out, const json_t *object, const char *path) {
    const char *kind, *secret, *public_key;
    int64_t version;
    uint8_t seed[crypto_sign_SEEDBYTES];
    OMM_TRY(omm_json_get_int(&version, object, "schema_version", 1, 1));
    OMM_TRY(omm_json_get_str(&kind, object, "kind"));
    if (strcmp(kind, "omm-secret-key") != 0) {
        return omm_raise(OMM_ERR_FORMAT, "%s: kind is \"%s\", not \"omm-secret-key\"", path, kind);
    }
    OMM_TRY(omm_json_get_str(&public_key, object, "public"));
    OMM_TRY(omm_json_get_str(&secret, object, "secret"));
    omm_err err = omm_unhex(out->secret, sizeof out->secret, secret);
    wipe_json_string(secret);
    OMM_TRY(err);
    OMM_TRY(omm_unhex(out->public_key.b, sizeof out->public_key.b, public_key));
    omm_key derived; /* the secret key is seed || public key; both parts must agree */
    OMM_ASSERT(crypto_sign_ed25519_sk_to_seed(seed, out->secret) == 0);
    OMM_ASSERT(crypto_sign_seed_keypair(derived.public_key.b, derived.secret, seed) == 0);
    bool same = omm_public_key_equal(&derived.public_key, &out->public_key) &&
                sodium_memcmp(derived.secret, out->secret, sizeof derived.secret) == 0;
    omm_key_wipe(&derived);
    sodium_memzero(seed, sizeof seed);
    if (!same) {
        return omm_raise(OMM_ERR_MISMATCH, "%s: the public key does not belong to the secret",
                         path);
    }
    return OMM_OK;
}

omm_err omm_key_load(omm_key *out, const char *path) {
    omm_err err;
    json_t *object = NULL;
    omm_key key;
    omm_buf text;
    base_sodium_ready();
    OMM_TRY(omm_file_check_private(path));
    omm_buf_init(&text, KEY_FILE_BYTES_MAX);
    OMM_TRY_OUT(omm_buf_reserve(&text, KEY_FILE_BYTES_MAX));
    OMM_TRY_OUT(omm_file_read(&text, path));
    if (omm_json_parse(&object, omm_buf_view(&text), path) != OMM_OK || !json_is_object(object)) {
        err = omm_raise(OMM_ERR_FORMAT, "%s is no key; accepted: a file that keygen has written",
                        path); /* the parser's words may have a secret in them */
        goto out;
    }
    OMM_TRY_OUT(read_key_fields(&key, object, path));
    *out = key;
out:
    omm_key_wipe(&key);
    json_decref(object);
    free_secret_buf(&text);
    return err;
}
