/* key_lock.c - see omm/key_lock.h. */
#include "omm/key_lock.h"

#include "internal.h"
#include "omm/file.h"
#include "omm/json.h"

#include <sodium.h>
#include <string.h>

#define FILE_BYTES_MAX 4096u
#define KIND "omm-locked-key"
#define OPS 3u
#define OPS_MAX 16u
#define MEM_BYTES ((size_t)64 << 20)
#define MEM_BYTES_MAX ((int64_t)1 << 30)
#define BOX_BYTES (crypto_sign_SEEDBYTES + crypto_secretbox_MACBYTES)

_Static_assert(crypto_secretbox_KEYBYTES == 32, "a box takes 32 bytes");

typedef struct lock {
    uint64_t ops, mem_bytes;
    uint8_t salt[crypto_pwhash_SALTBYTES];
    uint8_t nonce[crypto_secretbox_NONCEBYTES];
    uint8_t box[BOX_BYTES];
    omm_public_key public_key;
} lock;

static omm_err stretch(uint8_t key[crypto_secretbox_KEYBYTES], const lock *l,
                       omm_bytes passphrase) {
    if (crypto_pwhash(key, crypto_secretbox_KEYBYTES, (const char *)passphrase.data,
                      passphrase.size, l->salt, l->ops, (size_t)l->mem_bytes,
                      crypto_pwhash_ALG_ARGON2ID13) == 0)
        return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no %llu bytes for the passphrase",
                     (unsigned long long)l->mem_bytes);
}

static omm_err write_text(omm_buf *out, const lock *l) {
    char public_key[2 * sizeof l->public_key.b + 1], salt[2 * sizeof l->salt + 1];
    char nonce[2 * sizeof l->nonce + 1], box[2 * BOX_BYTES + 1];
    omm_hex(public_key, omm_bytes_of(l->public_key.b, sizeof l->public_key.b));
    omm_hex(salt, omm_bytes_of(l->salt, sizeof l->salt));
    omm_hex(nonce, omm_bytes_of(l->nonce, sizeof l->nonce));
    omm_hex(box, omm_bytes_of(l->box, sizeof l->box));
    return omm_buf_printf(out,
                          "{\"schema_version\":1,\"kind\":\"" KIND "\",\"public\":\"%s\","
                          "\"ops\":%llu,\"mem_bytes\":%llu,\"salt\":\"%s\",\"nonce\":\"%s\","
                          "\"box\":\"%s\"}\n",
                          public_key, (unsigned long long)l->ops, (unsigned long long)l->mem_bytes,
                          salt, nonce, box);
}

omm_err omm_key_save_locked(const char *path, const omm_key *key, omm_bytes passphrase) {
    lock l = {.ops = OPS, .mem_bytes = MEM_BYTES, .public_key = key->public_key};
    uint8_t seed[crypto_sign_SEEDBYTES], stretched[crypto_secretbox_KEYBYTES];
    base_sodium_ready();
    if (passphrase.size < OMM_PASSPHRASE_BYTES_MIN || passphrase.size > OMM_PASSPHRASE_BYTES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "passphrase of %zu bytes; accepted: %u to %u",
                         passphrase.size, OMM_PASSPHRASE_BYTES_MIN, OMM_PASSPHRASE_BYTES_MAX);
    randombytes_buf(l.salt, sizeof l.salt);
    randombytes_buf(l.nonce, sizeof l.nonce);
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    OMM_ASSERT(crypto_sign_ed25519_sk_to_seed(seed, key->secret) == 0);
    omm_err err = stretch(stretched, &l, passphrase);
    if (err == OMM_OK) {
        OMM_ASSERT(crypto_secretbox_easy(l.box, seed, sizeof seed, l.nonce, stretched) == 0);
        err = write_text(&text, &l);
    }
    if (err == OMM_OK) err = omm_file_create(path, omm_buf_view(&text), 0600);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(stretched, sizeof stretched);
    omm_buf_fini(&text);
    return err;
}

/* ---- load ---- */

static omm_err read_object(json_t **out, const char *path) {
    omm_buf text;
    OMM_TRY(omm_file_check_private(path));
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_json_parse(out, omm_buf_view(&text), path);
    if (text.data) sodium_memzero(text.data, text.size); /* it may be a key without a lock */
    omm_buf_fini(&text);
    return err;
}

static bool is_ours(const json_t *object) {
    const char *kind = json_string_value(json_object_get(object, "kind"));
    return kind && strcmp(kind, KIND) == 0;
}

omm_err omm_key_is_locked(bool *locked, const char *path) {
    json_t *object = NULL;
    const omm_err err = read_object(&object, path);
    *locked = err == OMM_OK && is_ours(object);
    json_decref(object);
    return err == OMM_ERR_FORMAT || err == OMM_ERR_TOO_BIG ? OMM_OK : err;
}

static omm_err read_hex(uint8_t *out, size_t size, const json_t *object, const char *key) {
    const char *text;
    OMM_TRY(omm_json_get_str(&text, object, key));
    return omm_unhex(out, size, text);
}

static omm_err read_lock(lock *out, const json_t *object, const char *path) {
    int64_t version, ops, mem;
    if (!is_ours(object)) return omm_raise(OMM_ERR_FORMAT, "%s: no locked key", path);
    OMM_TRY(omm_json_get_int(&version, object, "schema_version", 1, 1));
    OMM_TRY(omm_json_get_int(&ops, object, "ops", 1, INT64_MAX));
    OMM_TRY(omm_json_get_int(&mem, object, "mem_bytes", 1, INT64_MAX));
    if (ops > OPS_MAX || mem > MEM_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: asks for more work than is done for a passphrase",
                         path);
    out->ops = (uint64_t)ops;
    out->mem_bytes = (uint64_t)mem;
    if (out->mem_bytes < crypto_pwhash_MEMLIMIT_MIN)
        return omm_raise(OMM_ERR_FORMAT, "%s: mem_bytes: too few", path);
    OMM_TRY(read_hex(out->salt, sizeof out->salt, object, "salt"));
    OMM_TRY(read_hex(out->nonce, sizeof out->nonce, object, "nonce"));
    OMM_TRY(read_hex(out->box, sizeof out->box, object, "box"));
    return read_hex(out->public_key.b, sizeof out->public_key.b, object, "public");
}

static omm_err open_lock(omm_key *out, const lock *l, omm_bytes passphrase, const char *path) {
    omm_seed seed;
    uint8_t stretched[crypto_secretbox_KEYBYTES];
    _Static_assert(sizeof seed.b == crypto_sign_SEEDBYTES, "a key's seed");
    omm_err err = stretch(stretched, l, passphrase);
    if (err == OMM_OK &&
        crypto_secretbox_open_easy(seed.b, l->box, sizeof l->box, l->nonce, stretched) != 0)
        err = omm_raise(OMM_ERR_SIGNATURE, "%s: not its passphrase", path);
    if (err == OMM_OK) omm_key_from_seed(out, &seed);
    sodium_memzero(stretched, sizeof stretched);
    sodium_memzero(&seed, sizeof seed);
    OMM_TRY(err);
    if (omm_public_key_equal(&out->public_key, &l->public_key)) return OMM_OK;
    omm_key_wipe(out);
    return omm_raise(OMM_ERR_MISMATCH, "%s: the public key does not belong to the secret", path);
}

omm_err omm_key_load_locked(omm_key *out, const char *path, omm_bytes passphrase) {
    json_t *object = NULL;
    lock l = {0};
    base_sodium_ready();
    OMM_TRY(read_object(&object, path));
    omm_err err = read_lock(&l, object, path);
    json_decref(object);
    if (err == OMM_OK) err = open_lock(out, &l, passphrase, path);
    return err;
}
