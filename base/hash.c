/* hash.c - owns digests: BLAKE2b-256 and SHA-256, whole, streamed, and of files. */
#include "omm/hash.h"

#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define FILE_PIECE_BYTES 65536u /* on the stack; larger pieces measure no faster */

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(omm_hasher), "state must fit");
_Static_assert(_Alignof(crypto_generichash_state) <= _Alignof(omm_hasher), "state alignment");
_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(omm_hasher), "state must fit");
_Static_assert(crypto_hash_sha256_BYTES == sizeof(omm_digest), "SHA-256 gives 32 bytes");

bool omm_digest_equal(const omm_digest *a, const omm_digest *b) {
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool omm_digest_is_zero(const omm_digest *d) {
    static const omm_digest zero;
    return omm_digest_equal(d, &zero);
}

int omm_digest_compare(const omm_digest *a, const omm_digest *b) {
    return memcmp(a->b, b->b, sizeof a->b);
}

void omm_digest_hex(char out[OMM_DIGEST_HEX_SIZE], const omm_digest *d) {
    omm_hex(out, omm_bytes_of(d->b, sizeof d->b));
}

omm_err omm_digest_unhex(omm_digest *out, const char *hex) {
    return omm_unhex(out->b, sizeof out->b, hex);
}

omm_digest omm_hash(omm_bytes data) {
    omm_digest d;
    base_sodium_ready();
    OMM_ASSERT(crypto_generichash(d.b, sizeof d.b, data.data, data.size, NULL, 0) == 0);
    return d;
}

omm_digest omm_hash_keyed(omm_bytes key, omm_bytes data) {
    omm_digest d;
    OMM_ASSERT(key.size >= 16);
    OMM_ASSERT(key.size <= crypto_generichash_KEYBYTES_MAX);
    base_sodium_ready();
    OMM_ASSERT(crypto_generichash(d.b, sizeof d.b, data.data, data.size, key.data, key.size) == 0);
    return d;
}

omm_digest omm_sha256(omm_bytes data) {
    omm_digest d;
    base_sodium_ready();
    crypto_hash_sha256(d.b, data.data, data.size);
    return d;
}

omm_err omm_hash_seal(omm_buf *buf, size_t from) {
    const omm_digest d = omm_hash(omm_bytes_of(buf->data + from, buf->size - from));
    return omm_buf_append(buf, d.b, sizeof d.b);
}

bool omm_hash_sealed(omm_bytes *content, omm_bytes in) {
    if (in.size < sizeof(omm_digest)) return false;
    *content = omm_bytes_of(in.data, in.size - sizeof(omm_digest));
    const omm_digest d = omm_hash(*content);
    return memcmp(d.b, in.data + content->size, sizeof d.b) == 0;
}

static crypto_generichash_state *blake(omm_hasher *h) {
    return (crypto_generichash_state *)(void *)h->state;
}

static crypto_hash_sha256_state *sha(omm_hasher *h) {
    return (crypto_hash_sha256_state *)(void *)h->state;
}

void omm_hasher_init(omm_hasher *h) {
    base_sodium_ready();
    OMM_ASSERT(crypto_generichash_init(blake(h), NULL, 0, sizeof(omm_digest)) == 0);
}

void omm_hasher_update(omm_hasher *h, omm_bytes data) {
    OMM_ASSERT(crypto_generichash_update(blake(h), data.data, data.size) == 0);
}

void omm_hasher_u64(omm_hasher *h, uint64_t v) {
    uint8_t bytes[8];
    omm_put_u64(bytes, v);
    omm_hasher_update(h, omm_bytes_of(bytes, sizeof bytes));
}

void omm_hasher_sized(omm_hasher *h, omm_bytes text) {
    omm_hasher_u64(h, text.size);
    omm_hasher_update(h, text);
}

omm_digest omm_hasher_final(omm_hasher *h) {
    omm_digest d;
    OMM_ASSERT(crypto_generichash_final(blake(h), d.b, sizeof d.b) == 0);
    return d;
}

void omm_sha256er_init(omm_hasher *h) {
    base_sodium_ready();
    crypto_hash_sha256_init(sha(h));
}

void omm_sha256er_update(omm_hasher *h, omm_bytes data) {
    crypto_hash_sha256_update(sha(h), data.data, data.size);
}

omm_digest omm_sha256er_final(omm_hasher *h) {
    omm_digest d;
    crypto_hash_sha256_final(sha(h), d.b);
    return d;
}

static omm_err feed_file(omm_hasher *h, void (*update)(omm_hasher *, omm_bytes), const char *path) {
    uint8_t piece[FILE_PIECE_BYTES];
    int fd = -1;
    OMM_TRY(base_open_plain(&fd, NULL, path));
    omm_err err = OMM_OK;
    for (;;) {
        ssize_t got = read(fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) err = omm_raise(OMM_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got <= 0) break;
        update(h, omm_bytes_of(piece, (size_t)got));
    }
    close(fd);
    return err;
}

omm_err omm_hash_file(omm_digest *out, const char *path) {
    omm_hasher h;
    omm_hasher_init(&h);
    OMM_TRY(feed_file(&h, omm_hasher_update, path));
    *out = omm_hasher_final(&h);
    return OMM_OK;
}

omm_err omm_sha256_file(omm_digest *out, const char *path) {
    omm_hasher h;
    omm_sha256er_init(&h);
    OMM_TRY(feed_file(&h, omm_sha256er_update, path));
    *out = omm_sha256er_final(&h);
    return OMM_OK;
}
