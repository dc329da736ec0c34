#include "omm/sign.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Golden texts of the key from omm_seed_from_u64(7), over the bytes of MESSAGE.  OUR_SIG was
 * accepted by minisign 0.11 (-V), MINISIGN_SIG and LEGACY_SIG were made by it (-S, -S -l). */
#define MESSAGE "OpenMeshMind bundle\n"
#define PUBLIC_TEXT "RWSv4PQJX+rrOc6nxZ2iNb7rAlP4UePPZLOkB5rqKJrqMQ+NwxsRSt7p"
#define ED_LINE                                                                                    \
    "RUSv4PQJX+rrOeTePDDFhM3qJIvW53PSkIh8fyh9tNhJXmK7RpJslqjUUk3qy6HAWQ1u6Hd3TtfUBPmxht7/"         \
    "fFAGVRpOfJOWzQQ=\n"
#define OUR_SIG                                                                                    \
    "untrusted comment: signature by key afe0f4095feaeb39\n" ED_LINE                               \
    "trusted comment: run 3c1f, simulated\n"                                                       \
    "f9/6E3kCYAxUDJK+EEaw11P8sq6JObr3/"                                                            \
    "awIHL+ZXyyrfRuOA0HOGRdy2RT6qBVyjzj49SacR/SfSwSyTsNqCA==\n"
#define MINISIGN_SIG                                                                               \
    "untrusted comment: whatever\n" ED_LINE "trusted comment: made by minisign\n"                  \
    "tEwFfsgz8Jsmujf4hXICt0k80nmRDiiS8vVXwm4sFVRH/G7kHSafg/"                                       \
    "q49VMAbgnlM4kDC++18YRG6rE5xbcqBA==\n"
#define LEGACY_SIG                                                                                 \
    "untrusted comment: whatever\n"                                                                \
    "RWSv4PQJX+rrOfh0PrI0ldvqhktyPCsdcT7kqAyIl7qI4fRctYUHY7vSICBQ2llIV3kx1tsyodZPn0pmy36t0qkNDMZ1" \
    "R6GHJgI=\n"                                                                                   \
    "trusted comment: made by minisign\n"                                                          \
    "Pst0wN0acOYXBuCk0VZkHhh++nxW/Zvx53PbVPAfIR7tMDGa9Fl8jGTruJ6yTIP8NNyfWBtABtsDCxauU5ZLBQ==\n"

static omm_key key_of(uint64_t n) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(n);
    omm_key_from_seed(&key, &seed);
    return key;
}

static void check_rfc(const char *seed_hex, const char *public_hex, const char *sig_hex,
                      omm_bytes message) {
    omm_seed seed;
    omm_key key;
    uint8_t want[64];
    CHECK_OK(omm_unhex(seed.b, sizeof seed.b, seed_hex));
    omm_key_from_seed(&key, &seed);
    CHECK_OK(omm_unhex(want, 32, public_hex));
    CHECK(memcmp(want, key.public_key.b, 32) == 0);
    omm_signature sig = omm_sign(&key, message);
    CHECK_OK(omm_unhex(want, 64, sig_hex));
    CHECK(memcmp(want, sig.b, 64) == 0);
    CHECK_OK(omm_verify(&key.public_key, &sig, message));
}

/* RFC 8032, section 7.1, tests 1 and 2. */
static void test_rfc_8032(void) {
    check_rfc("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
              "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
              "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e"
              "39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
              omm_bytes_of(NULL, 0));
    check_rfc("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
              "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
              "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f"
              "3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
              omm_bytes_of("\x72", 1));
}

/* Every flipped bit of signature, message or key is refused. */
static void test_tamper(void) {
    omm_key key = key_of(1);
    uint8_t message[24] = "weights for the round";
    omm_bytes view = omm_bytes_of(message, sizeof message);
    omm_signature sig = omm_sign(&key, view);
    for (unsigned bit = 0; bit < 8 * sizeof sig.b; bit++) {
        omm_signature bad = sig;
        bad.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_ERR(omm_verify(&key.public_key, &bad, view), OMM_ERR_SIGNATURE);
    }
    for (unsigned bit = 0; bit < 8 * sizeof message; bit++) {
        message[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_ERR(omm_verify(&key.public_key, &sig, view), OMM_ERR_SIGNATURE);
        message[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (unsigned bit = 0; bit < 8 * 32; bit++) {
        omm_public_key bad = key.public_key;
        bad.b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_ERR(omm_verify(&bad, &sig, view), OMM_ERR_SIGNATURE);
    }
    view.size--;
    CHECK_ERR(omm_verify(&key.public_key, &sig, view), OMM_ERR_SIGNATURE);
}

static void test_ids_and_wipe(void) {
    omm_key a = key_of(1), b = key_of(2), c, zero;
    omm_digest want = omm_hash(omm_bytes_of(a.public_key.b, 32)), id = omm_key_id(&a.public_key);
    CHECK(omm_digest_equal(&id, &want));
    CHECK(!omm_public_key_equal(&a.public_key, &b.public_key));
    omm_key_generate(&c);
    omm_key_generate(&b);
    CHECK(!omm_public_key_equal(&c.public_key, &b.public_key));
    memset(&zero, 0, sizeof zero);
    omm_key_wipe(&a);
    CHECK(memcmp(&a, &zero, sizeof a) == 0);
}

static char s_dir[] = "/tmp/omm_sign_test_XXXXXX";

static void write_text(const char *path, const char *text, unsigned mode) {
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), mode));
    CHECK_EQ(chmod(path, mode), 0);
}

static void check_load_refused(const char *path, const char *text, omm_err want) {
    omm_key out, before;
    memset(&out, 0x5a, sizeof out);
    before = out;
    write_text(path, text, 0600);
    CHECK_ERR(omm_key_load(&out, path), want);
    CHECK(memcmp(&out, &before, sizeof out) == 0);
}

static void test_key_file(void) {
    char path[OMM_PATH_MAX];
    struct stat st;
    omm_key key = key_of(3), back;
    CHECK_OK(omm_path_join(path, s_dir, "node.key"));
    CHECK_ERR(omm_key_load(&back, path), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_key_save(path, &key));
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_OK(omm_key_load(&back, path));
    CHECK(memcmp(&key, &back, sizeof key) == 0);
    omm_key other = key_of(4);
    CHECK_ERR(omm_key_save(path, &other), OMM_ERR_EXISTS);
    CHECK_OK(omm_key_load(&back, path));
    CHECK(memcmp(&key, &back, sizeof key) == 0);
    CHECK_EQ(chmod(path, 0640), 0);
    CHECK_ERR(omm_key_load(&back, path), OMM_ERR_CONFIG);
    CHECK_ERR(omm_key_load(&back, s_dir), OMM_ERR_FORMAT);
    CHECK_ERR(omm_key_save("/nonexistent/folder/k", &key), OMM_ERR_IO);
    CHECK_OK(omm_file_remove(path));
}

#define KEY_FORM "{\"schema_version\":%d,\"kind\":\"%s\",\"secret\":\"%s\",\"public\":\"%s\"}"

static void test_key_file_refusals(void) {
    char path[OMM_PATH_MAX], secret[129], public_key[65], other_public[65], text[600];
    omm_key key = key_of(3), other = key_of(4);
    CHECK_OK(omm_path_join(path, s_dir, "bad.key"));
    omm_hex(secret, omm_bytes_of(key.secret, 64));
    omm_hex(public_key, omm_bytes_of(key.public_key.b, 32));
    omm_hex(other_public, omm_bytes_of(other.public_key.b, 32));
    snprintf(text, sizeof text, KEY_FORM, 1, "omm-secret-key", secret, other_public);
    check_load_refused(path, text, OMM_ERR_MISMATCH);
    snprintf(text, sizeof text, KEY_FORM, 2, "omm-secret-key", secret, public_key);
    check_load_refused(path, text, OMM_ERR_FORMAT);
    snprintf(text, sizeof text, KEY_FORM, 1, "something", secret, public_key);
    check_load_refused(path, text, OMM_ERR_FORMAT);
    snprintf(text, sizeof text, KEY_FORM, 1, "omm-secret-key", public_key, public_key);
    check_load_refused(path, text, OMM_ERR_FORMAT);
    snprintf(text, sizeof text, KEY_FORM, 1, "omm-secret-key", secret, "00");
    check_load_refused(path, text, OMM_ERR_FORMAT);
    memcpy(secret + 64, other_public, 64); /* the second half must be the public key */
    snprintf(text, sizeof text, KEY_FORM, 1, "omm-secret-key", secret, other_public);
    check_load_refused(path, text, OMM_ERR_MISMATCH);
    check_load_refused(path, "{}", OMM_ERR_NOT_FOUND);
    check_load_refused(path, "not json", OMM_ERR_FORMAT);
    check_load_refused(path, "", OMM_ERR_FORMAT);
    check_load_refused(path, "[]", OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "is no key; accepted: a file that keygen has written"));
    CHECK_OK(omm_file_remove(path));
}

static void test_minisign_public(void) {
    char text[OMM_MINISIGN_PUBLIC_SIZE];
    omm_key key = key_of(7);
    omm_public_key back;
    omm_minisign_public(text, &key.public_key);
    CHECK(strcmp(text, PUBLIC_TEXT) == 0);
    CHECK_OK(omm_minisign_public_parse(&back, text));
    CHECK(omm_public_key_equal(&back, &key.public_key));
    for (size_t i = 0; i < strlen(text); i++) {
        char bad[OMM_MINISIGN_PUBLIC_SIZE];
        memcpy(bad, text, sizeof bad);
        bad[i] = bad[i] == 'A' ? 'B' : 'A';
        CHECK_ERR(omm_minisign_public_parse(&back, bad), OMM_ERR_FORMAT);
        bad[i] = 0;
        CHECK_ERR(omm_minisign_public_parse(&back, bad), OMM_ERR_FORMAT);
    }
    CHECK_ERR(omm_minisign_public_parse(&back, PUBLIC_TEXT "AAAA"), OMM_ERR_FORMAT);
    CHECK(omm_public_key_equal(&back, &key.public_key));
}

static void test_minisign_goldens(void) {
    omm_key key = key_of(7), other = key_of(8);
    omm_bytes data = omm_bytes_str(MESSAGE);
    omm_buf out;
    omm_buf_init(&out, 20000);
    CHECK_OK(omm_minisign_sign(&out, &key, data, "run 3c1f, simulated"));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(OUR_SIG)));
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_bytes_str(OUR_SIG), data));
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_bytes_str(MINISIGN_SIG), data));
    CHECK_ERR(omm_minisign_verify(&key.public_key, omm_bytes_str(LEGACY_SIG), data),
              OMM_ERR_FORMAT);
    CHECK_ERR(omm_minisign_verify(&other.public_key, omm_bytes_str(OUR_SIG), data),
              OMM_ERR_SIGNATURE);
    CHECK_ERR(omm_minisign_verify(&key.public_key, omm_bytes_str(OUR_SIG), omm_bytes_str("other")),
              OMM_ERR_SIGNATURE);
    CHECK_ERR(omm_minisign_verify(&key.public_key, omm_bytes_str(OUR_SIG "x\n"), data),
              OMM_ERR_FORMAT);
    omm_buf_fini(&out);
}

/* Lines may end as they do on Windows, each of them. */
static void test_minisign_line_ends(void) {
    const omm_key key = key_of(7);
    const omm_bytes data = omm_bytes_str(MESSAGE);
    char text[2 * sizeof OUR_SIG];
    size_t size = 0;
    for (const char *at = OUR_SIG; *at; at++) {
        if (*at == '\n') text[size++] = '\r';
        text[size++] = *at;
    }
    CHECK_EQ(size, sizeof OUR_SIG - 1 + 4);
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_bytes_of(text, size), data));
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_bytes_of(text, size - 2), data));
    text[size] = '\r'; /* a line more */
    text[size + 1] = '\n';
    CHECK_ERR(omm_minisign_verify(&key.public_key, omm_bytes_of(text, size + 2), data),
              OMM_ERR_FORMAT);
}

static void test_minisign_in_pieces(void) {
    omm_key key = key_of(7);
    omm_bytes data = omm_bytes_str(MESSAGE);
    omm_buf out;
    omm_hasher h;
    omm_buf_init(&out, 20000);
    omm_minisign_begin(&h);
    for (size_t i = 0; i < data.size; i++) omm_hasher_update(&h, omm_bytes_of(data.data + i, 1));
    CHECK_OK(omm_minisign_finish(&out, &key, &h, "run 3c1f, simulated"));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(OUR_SIG)));
    omm_buf_fini(&out);
}

/* Every truncation and every flipped bit is refused, but for bits of the untrusted comment. */
static void test_minisign_tamper(void) {
    omm_key key = key_of(7);
    omm_bytes data = omm_bytes_str(MESSAGE);
    char text[] = OUR_SIG;
    size_t size = strlen(text), free_from = strlen("untrusted comment: ");
    size_t free_to = (size_t)(strchr(text, '\n') - text);
    for (size_t n = 0; n < size - 1; n++) { /* without the last newline it is still whole */
        CHECK(omm_minisign_verify(&key.public_key, omm_bytes_of(text, n), data) != OMM_OK);
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        bool is_free = bit / 8 >= free_from && bit / 8 < free_to;
        omm_err err = omm_minisign_verify(&key.public_key, omm_bytes_of(text, size), data);
        if (!is_free) CHECK(err == OMM_ERR_FORMAT || err == OMM_ERR_SIGNATURE);
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_bytes_of(text, size), data));
}

static void test_minisign_limits(void) {
    static char comment[9000];
    omm_key key = key_of(7);
    omm_bytes data = omm_bytes_str(MESSAGE);
    omm_buf out;
    omm_buf_init(&out, 20000);
    memset(comment, 'c', 8001);
    CHECK_ERR(omm_minisign_sign(&out, &key, data, comment), OMM_ERR_TOO_BIG);
    CHECK_ERR(omm_minisign_sign(&out, &key, data, "two\nlines"), OMM_ERR_FORMAT);
    CHECK_EQ(out.size, 0);
    comment[8000] = 0;
    CHECK_OK(omm_minisign_sign(&out, &key, data, comment));
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_buf_view(&out), data));
    omm_buf_clear(&out);
    CHECK_OK(omm_minisign_sign(&out, &key, data, ""));
    CHECK_OK(omm_minisign_verify(&key.public_key, omm_buf_view(&out), data));
    omm_buf_fini(&out);
}

static void test_no_memory(void) {
    char path[OMM_PATH_MAX];
    omm_key key = key_of(3), back;
    CHECK_OK(omm_path_join(path, s_dir, "mem.key"));
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_mem_fail_nth(nth);
        omm_err err = omm_key_save(path, &key);
        if (err == OMM_OK) err = omm_key_load(&back, path);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK_OK(omm_file_remove(path));
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(nth < 100);
    }
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    test_rfc_8032();
    test_tamper();
    test_ids_and_wipe();
    test_key_file();
    test_key_file_refusals();
    test_minisign_public();
    test_minisign_goldens();
    test_minisign_line_ends();
    test_minisign_in_pieces();
    test_minisign_tamper();
    test_minisign_limits();
    test_no_memory();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}
