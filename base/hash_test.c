#include "omm/hash.h"

#include "omm_test.h"

#include <string.h>
#include <unistd.h>

static void check_hex(omm_digest d, const char *want) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest back;
    omm_digest_hex(hex, &d);
    if (strcmp(hex, want) != 0) fprintf(stderr, "have %s\nwant %s\n", hex, want);
    CHECK(strcmp(hex, want) == 0);
    CHECK_OK(omm_digest_unhex(&back, hex));
    CHECK(omm_digest_equal(&d, &back));
}

static void test_known_answers(void) {
    uint8_t key[32], data[1024];
    for (unsigned i = 0; i < sizeof key; i++) key[i] = (uint8_t)i;
    for (unsigned i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
    omm_bytes abc = omm_bytes_of("abc", 3);
    check_hex(omm_hash(abc), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    check_hex(omm_hash(omm_bytes_of(NULL, 0)),
              "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    check_hex(omm_hash(omm_bytes_of(data, sizeof data)),
              "f1551feeb252c7e60bb362205bd1ac2f70b145260a91d41e8c5d0a187549a5f2");
    check_hex(omm_hash_keyed(omm_bytes_of(key, sizeof key), abc),
              "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
    check_hex(omm_sha256(abc), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hex(omm_sha256(omm_bytes_of(NULL, 0)),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* A text behind its size as u64 LE. */
static void test_sized(void) {
    static const uint8_t bytes[] = {3, 2, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i'};
    const omm_digest whole = omm_hash(omm_bytes_of(bytes, sizeof bytes));
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_u64(&h, 0x010203);
    omm_hasher_sized(&h, omm_bytes_str("hi"));
    const omm_digest d = omm_hasher_final(&h);
    CHECK(omm_digest_equal(&d, &whole));
}

/* However the data is cut, the streamed digest is the whole one. */
static void test_streaming(void) {
    uint8_t data[700];
    for (unsigned i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + 1);
    omm_digest whole = omm_hash(omm_bytes_of(data, sizeof data));
    omm_digest whole_sha = omm_sha256(omm_bytes_of(data, sizeof data));
    for (size_t step = 1; step <= sizeof data; step += 13) {
        omm_hasher h, s;
        omm_digest d;
        omm_hasher_init(&h);
        omm_sha256er_init(&s);
        for (size_t at = 0; at < sizeof data; at += step) {
            size_t n = sizeof data - at < step ? sizeof data - at : step;
            omm_hasher_update(&h, omm_bytes_of(data + at, n));
            omm_sha256er_update(&s, omm_bytes_of(data + at, n));
        }
        d = omm_hasher_final(&h);
        CHECK(omm_digest_equal(&d, &whole));
        d = omm_sha256er_final(&s);
        CHECK(omm_digest_equal(&d, &whole_sha));
    }
}

static void test_file(void) {
    char path[] = "/tmp/omm_hash_test_XXXXXX";
    static uint8_t data[200001];
    omm_digest d, want;
    for (unsigned i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i >> 3);
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, data, sizeof data), (int64_t)sizeof data);
    close(fd);
    CHECK_OK(omm_hash_file(&d, path));
    want = omm_hash(omm_bytes_of(data, sizeof data));
    CHECK(omm_digest_equal(&d, &want));
    CHECK_OK(omm_sha256_file(&d, path));
    want = omm_sha256(omm_bytes_of(data, sizeof data));
    CHECK(omm_digest_equal(&d, &want));
    unlink(path);
    CHECK_ERR(omm_hash_file(&d, path), OMM_ERR_NOT_FOUND);
    /* What cannot be read to its end has no digest: nothing is at the first address of a process. */
    const omm_digest before = d;
    CHECK_ERR(omm_hash_file(&d, "/proc/self/mem"), OMM_ERR_IO);
    CHECK_ERR(omm_sha256_file(&d, "/proc/self/mem"), OMM_ERR_IO);
    CHECK(omm_digest_equal(&d, &before));
    CHECK_ERR(omm_sha256_file(&d, "/tmp"), OMM_ERR_IO);
    CHECK(omm_digest_equal(&d, &want)); /* unchanged on error */
}

static void test_compare(void) {
    omm_digest a = {{0}}, b = {{0}};
    CHECK(omm_digest_is_zero(&a));
    CHECK_EQ(omm_digest_compare(&a, &b), 0);
    b.b[31] = 1;
    CHECK(!omm_digest_is_zero(&b));
    CHECK(!omm_digest_equal(&a, &b));
    CHECK(omm_digest_compare(&a, &b) < 0);
    a.b[0] = 0x80;
    CHECK(omm_digest_compare(&a, &b) > 0);
    CHECK_ERR(omm_digest_unhex(&a, "12"), OMM_ERR_FORMAT);
}

static void test_seal(void) {
    omm_buf buf;
    omm_bytes content;
    omm_buf_init(&buf, 64);
    CHECK_OK(omm_buf_append(&buf, "head", 4));
    CHECK_OK(omm_buf_append(&buf, "text", 4));
    CHECK_OK(omm_hash_seal(&buf, 4));
    CHECK_EQ(buf.size, 40);
    const omm_bytes sealed = omm_bytes_of(buf.data + 4, 36);
    CHECK(omm_hash_sealed(&content, sealed));
    CHECK(omm_bytes_equal(content, omm_bytes_str("text")));
    for (size_t i = 4; i < buf.size; i++) {
        buf.data[i] ^= 1;
        CHECK(!omm_hash_sealed(&content, sealed));
        buf.data[i] ^= 1;
    }
    for (size_t size = 0; size < sealed.size; size++)
        CHECK(!omm_hash_sealed(&content, omm_bytes_of(sealed.data, size)));
    CHECK_ERR(omm_hash_seal(&buf, 0), OMM_ERR_TOO_BIG); /* over bytes_max: nothing added */
    CHECK_EQ(buf.size, 40);
    omm_buf_fini(&buf);
}

int main(void) {
    test_known_answers();
    test_seal();
    test_sized();
    test_streaming();
    test_file();
    test_compare();
    return 0;
}
