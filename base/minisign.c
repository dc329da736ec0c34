/* minisign.c - owns minisign signature files: prehashed ("ED") signatures and their public keys.
 *
 *   untrusted comment: ...
 *   base64( "ED" | key id: 8 | Ed25519 over BLAKE2b-512(data): 64 )
 *   trusted comment: ...
 *   base64( Ed25519 over (the 64 signature bytes | trusted comment): 64 )
 *
 *   public key text: base64( "Ed" | key id: 8 | public key: 32 )
 *
 * Source: jedisct1.github.io/minisign, "Signature format".
 */
#include "omm/sign.h"

#include "internal.h"

#include <sodium.h>
#include <string.h>

#define KEY_ID_BYTES 8u
#define PUBLIC_BYTES (2u + KEY_ID_BYTES + 32u)
#define SIG_BYTES (2u + KEY_ID_BYTES + 64u)
#define PREHASH_BYTES 64u
#define SIG_TEXT_SIZE 101u      /* base64 of 74 bytes and a NUL */
#define GLOBAL_TEXT_SIZE 89u    /* base64 of 64 bytes and a NUL */
#define COMMENT_BYTES_MAX 8000u /* minisign reads trusted comments up to 8192 bytes */
#define FILE_BYTES_MAX 16384u
#define UNTRUSTED "untrusted comment: "
#define TRUSTED "trusted comment: "
#define VARIANT sodium_base64_VARIANT_ORIGINAL

static void key_id(uint8_t out[KEY_ID_BYTES], const omm_public_key *key) {
    omm_digest d = omm_key_id(key);
    memcpy(out, d.b, KEY_ID_BYTES);
}

void omm_minisign_public(char out[OMM_MINISIGN_PUBLIC_SIZE], const omm_public_key *key) {
    uint8_t raw[PUBLIC_BYTES] = {'E', 'd'};
    key_id(raw + 2, key);
    memcpy(raw + 2 + KEY_ID_BYTES, key->b, sizeof key->b);
    sodium_bin2base64(out, OMM_MINISIGN_PUBLIC_SIZE, raw, sizeof raw, VARIANT);
}

/* Exactly `size` bytes from exactly `text`, in the one spelling that encoding them gives: libsodium
 * takes bytes above 0x7f for some letters. */
static bool decode(uint8_t *out, size_t size, omm_bytes text) {
    size_t got = 0;
    char again[SIG_TEXT_SIZE];
    const char *start = (const char *)text.data;
    OMM_ASSERT(size <= SIG_BYTES);
    if (sodium_base642bin(out, size, start, text.size, NULL, &got, NULL, VARIANT) != 0) {
        return false;
    }
    if (got != size) return false;
    sodium_bin2base64(again, sizeof again, out, size, VARIANT);
    return omm_bytes_equal(text, omm_bytes_str(again));
}

omm_err omm_minisign_public_parse(omm_public_key *out, const char *text) {
    uint8_t raw[PUBLIC_BYTES], id[KEY_ID_BYTES];
    omm_public_key key;
    if (!decode(raw, sizeof raw, omm_bytes_str(text)) || raw[0] != 'E' || raw[1] != 'd') {
        return omm_raise(OMM_ERR_FORMAT, "not a minisign public key (56 base64 characters)");
    }
    memcpy(key.b, raw + 2 + KEY_ID_BYTES, sizeof key.b);
    key_id(id, &key);
    if (memcmp(id, raw + 2, KEY_ID_BYTES) != 0) {
        return omm_raise(OMM_ERR_FORMAT, "minisign key id is not derived from its public key");
    }
    *out = key;
    return OMM_OK;
}

static crypto_generichash_state *blake(omm_hasher *h) {
    return (crypto_generichash_state *)(void *)h->state;
}

void omm_minisign_begin(omm_hasher *h) {
    base_sodium_ready();
    OMM_ASSERT(crypto_generichash_init(blake(h), NULL, 0, PREHASH_BYTES) == 0);
}

static void prehash(uint8_t out[PREHASH_BYTES], omm_hasher *h) {
    OMM_ASSERT(crypto_generichash_final(blake(h), out, PREHASH_BYTES) == 0);
}

/* What the second signature covers. */
static omm_bytes global_message(uint8_t *space, const uint8_t *sig, omm_bytes comment) {
    memcpy(space, sig, 64);
    if (comment.size > 0) memcpy(space + 64, comment.data, comment.size);
    return omm_bytes_of(space, 64 + comment.size);
}

static omm_err check_comment(omm_bytes comment) {
    if (comment.size > COMMENT_BYTES_MAX) {
        return omm_raise(OMM_ERR_TOO_BIG, "trusted comment has %zu bytes, at most %u are allowed",
                         comment.size, COMMENT_BYTES_MAX);
    }
    for (size_t i = 0; i < comment.size; i++) {
        if (comment.data[i] < 0x20 || comment.data[i] == 0x7f) {
            return omm_raise(OMM_ERR_FORMAT, "trusted comment has a control character at byte %zu",
                             i);
        }
    }
    return OMM_OK;
}

omm_err omm_minisign_finish(omm_buf *out, const omm_key *key, omm_hasher *h, const char *comment) {
    uint8_t raw[SIG_BYTES] = {'E', 'D'}, hash[PREHASH_BYTES], space[64 + COMMENT_BYTES_MAX];
    char sig_text[SIG_TEXT_SIZE], global_text[GLOBAL_TEXT_SIZE], id_text[2 * KEY_ID_BYTES + 1];
    omm_bytes trusted = omm_bytes_str(comment);
    OMM_TRY(check_comment(trusted));
    prehash(hash, h);
    omm_signature sig = omm_sign(key, omm_bytes_of(hash, sizeof hash));
    key_id(raw + 2, &key->public_key);
    memcpy(raw + 2 + KEY_ID_BYTES, sig.b, sizeof sig.b);
    omm_signature global = omm_sign(key, global_message(space, sig.b, trusted));
    sodium_bin2base64(sig_text, sizeof sig_text, raw, sizeof raw, VARIANT);
    sodium_bin2base64(global_text, sizeof global_text, global.b, sizeof global.b, VARIANT);
    omm_hex(id_text, omm_bytes_of(raw + 2, KEY_ID_BYTES));
    return omm_buf_printf(out, UNTRUSTED "signature by key %s\n%s\n" TRUSTED "%s\n%s\n", id_text,
                          sig_text, comment, global_text);
}

omm_err omm_minisign_sign(omm_buf *out, const omm_key *key, omm_bytes data, const char *comment) {
    omm_hasher h;
    omm_minisign_begin(&h);
    omm_hasher_update(&h, data);
    return omm_minisign_finish(out, key, &h, comment);
}

/* The next line without its end; false when there is none.  A final newline may be missing. */
static bool next_line(omm_bytes *line, omm_bytes *rest) {
    if (rest->size == 0) return false;
    const uint8_t *end = memchr(rest->data, '\n', rest->size);
    size_t size = end ? (size_t)(end - rest->data) : rest->size;
    *line = omm_bytes_of(rest->data, size);
    size_t used = end ? size + 1 : size;
    *rest = omm_bytes_of(rest->data + used, rest->size - used);
    if (line->size > 0 && line->data[line->size - 1] == '\r') line->size--;
    return true;
}

static bool drop_prefix(omm_bytes *line, const char *prefix) {
    size_t n = strlen(prefix);
    if (line->size < n || memcmp(line->data, prefix, n) != 0) return false;
    *line = omm_bytes_of(line->data + n, line->size - n);
    return true;
}

typedef struct sig_file {
    uint8_t raw[SIG_BYTES];
    omm_signature global;
    omm_bytes comment;
} sig_file;

static omm_err parse(sig_file *out, omm_bytes text) {
    omm_bytes line;
    if (text.size > FILE_BYTES_MAX) {
        return omm_raise(OMM_ERR_FORMAT, "signature file has %zu bytes, at most %u are read",
                         text.size, FILE_BYTES_MAX);
    }
    if (!next_line(&line, &text) || !drop_prefix(&line, UNTRUSTED)) {
        return omm_raise(OMM_ERR_FORMAT, "signature line 1 must start with \"" UNTRUSTED "\"");
    }
    if (!next_line(&line, &text) || !decode(out->raw, sizeof out->raw, line)) {
        return omm_raise(OMM_ERR_FORMAT, "signature line 2 is not base64 of %u bytes", SIG_BYTES);
    }
    if (out->raw[0] != 'E' || out->raw[1] != 'D') {
        return omm_raise(OMM_ERR_FORMAT, "signature is not of the prehashed kind (ED)");
    }
    if (!next_line(&out->comment, &text) || !drop_prefix(&out->comment, TRUSTED)) {
        return omm_raise(OMM_ERR_FORMAT, "signature line 3 must start with \"" TRUSTED "\"");
    }
    if (out->comment.size > COMMENT_BYTES_MAX) {
        return omm_raise(OMM_ERR_FORMAT, "trusted comment is over %u bytes", COMMENT_BYTES_MAX);
    }
    if (!next_line(&line, &text) || !decode(out->global.b, sizeof out->global.b, line)) {
        return omm_raise(OMM_ERR_FORMAT, "signature line 4 is not base64 of 64 bytes");
    }
    if (text.size > 0) return omm_raise(OMM_ERR_FORMAT, "signature file goes on after line 4");
    return OMM_OK;
}

omm_err omm_minisign_verify(const omm_public_key *key, omm_bytes sig_text, omm_bytes data) {
    uint8_t hash[PREHASH_BYTES], id[KEY_ID_BYTES], space[64 + COMMENT_BYTES_MAX];
    omm_hasher h;
    omm_signature sig;
    sig_file file;
    omm_minisign_begin(&h);
    OMM_TRY(parse(&file, sig_text));
    key_id(id, key);
    if (memcmp(id, file.raw + 2, KEY_ID_BYTES) != 0) {
        return omm_raise(OMM_ERR_SIGNATURE, "signature was made by another key");
    }
    memcpy(sig.b, file.raw + 2 + KEY_ID_BYTES, sizeof sig.b);
    omm_hasher_update(&h, data);
    prehash(hash, &h);
    OMM_TRY(omm_verify(key, &sig, omm_bytes_of(hash, sizeof hash)));
    return omm_verify(key, &file.global, global_message(space, sig.b, file.comment));
}
