/* Keys behind a passphrase: round trip, the wrong passphrase, every changed byte, limits, modes. */
#include "omm/key_lock.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <sys/stat.h>

static char s_dir[] = "/tmp/omm-lock-XXXXXX";

static const char *path_of(const char *name) {
    static char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, name));
    return path;
}

static omm_err load(omm_key *out, omm_bytes text, const char *passphrase) {
    CHECK_OK(omm_file_write_fast(path_of("changed"), text, 0600));
    return omm_key_load_locked(out, path_of("changed"), omm_bytes_str(passphrase));
}

/* The text with the first `from` replaced. */
static omm_err load_replaced(omm_buf *file, const char *from, const char *to) {
    omm_buf text;
    omm_key key;
    omm_buf_init(&text, 8192);
    CHECK_OK(omm_buf_append(&text, file->data, file->size));
    CHECK_OK(omm_buf_append(&text, "", 1));
    char *at = strstr((char *)text.data, from);
    CHECK(at && strlen(from) == strlen(to));
    for (size_t i = 0; to[i]; i++) at[i] = to[i];
    text.size--;
    const omm_err err = load(&key, omm_buf_view(&text), "correct horse");
    omm_buf_fini(&text);
    return err;
}

/* The text behind `name` in the file of a key. */
static void part_of(char out[256], const char *file, const char *name) {
    omm_buf text;
    omm_buf_init(&text, 8192);
    CHECK_OK(omm_file_read(&text, path_of(file)));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *at = strstr((const char *)text.data, name);
    CHECK(at != NULL);
    (void)snprintf(out, 256, "%.*s", (int)strcspn(at + strlen(name), "\""), at + strlen(name));
    omm_buf_fini(&text);
}

/* The same key and passphrase again: nothing of the lock is as it was, so that nobody sees that they are, and no
 * stretch is done for two files at once. */
static void twice(const omm_key *key, omm_bytes passphrase) {
    static const char *const parts[] = {"\"salt\":\"", "\"nonce\":\"", "\"box\":\""};
    CHECK_OK(omm_key_save_locked(path_of("twin"), key, passphrase));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char one[256], other[256];
        part_of(one, "key", parts[i]);
        part_of(other, "twin", parts[i]);
        CHECK(one[0] && strcmp(one, other) != 0);
    }
}

int main(void) {
    static const char passphrase[] = "correct horse";
    CHECK(mkdtemp(s_dir) != NULL);
    omm_key key, back;
    bool locked = false;
    struct stat st;
    omm_key_generate(&key);
    CHECK_ERR(omm_key_save_locked(path_of("key"), &key, omm_bytes_str("short")), OMM_ERR_CONFIG);
    CHECK(!omm_file_exists(path_of("key")));
    CHECK_OK(omm_key_save_locked(path_of("key"), &key, omm_bytes_str(passphrase)));
    CHECK_ERR(omm_key_save_locked(path_of("key"), &key, omm_bytes_str(passphrase)), OMM_ERR_EXISTS);
    CHECK_EQ(stat(path_of("key"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_OK(omm_key_is_locked(&locked, path_of("key")));
    CHECK(locked);
    twice(&key, omm_bytes_str(passphrase));
    CHECK_OK(omm_key_load_locked(&back, path_of("key"), omm_bytes_str(passphrase)));
    CHECK(same_bytes(&key, &back, sizeof key));
    CHECK_ERR(omm_key_load_locked(&back, path_of("key"), omm_bytes_str("correct horsf")),
              OMM_ERR_SIGNATURE);
    CHECK_ERR(omm_key_load(&back, path_of("key")), OMM_ERR_FORMAT);
    CHECK_ERR(omm_key_is_locked(&locked, path_of("none")), OMM_ERR_NOT_FOUND);
    static char large[5000]; /* no lock is as large, and neither is text */
    memset(large, ' ', sizeof large);
    CHECK_OK(omm_file_write_fast(path_of("large"), omm_bytes_of(large, sizeof large), 0600));
    CHECK_OK(omm_file_write_fast(path_of("text"), omm_bytes_str("a key?"), 0600));
    CHECK_OK(omm_key_is_locked(&locked, path_of("large")));
    CHECK(!locked);
    locked = true;
    CHECK_OK(omm_key_is_locked(&locked, path_of("text")));
    CHECK(!locked);

    omm_buf file;
    omm_buf_init(&file, 8192);
    CHECK_OK(omm_file_read(&file, path_of("key")));
    /* The secret is not in it, in no spelling. */
    char hex[2 * 32 + 1];
    omm_hex(hex, omm_bytes_of(key.secret, 32));
    CHECK_OK(omm_buf_append(&file, "", 1));
    CHECK(strstr((const char *)file.data, hex) == NULL);
    file.size--;
    /* More work than is allowed, or none, is refused before any is done. */
    CHECK_ERR(load_replaced(&file, "\"ops\":3", "\"ops\":0"), OMM_ERR_FORMAT);
    CHECK_ERR(load_replaced(&file, "\"mem_bytes\":67108864", "\"mem_bytes\":99999999"),
              OMM_ERR_SIGNATURE); /* allowed, but another stretch */
    CHECK_ERR(load_replaced(&file, "\"ops\":3,\"mem_bytes\":67108864",
                            "\"ops\":17,\"mem_bytes\":6710886"),
              OMM_ERR_TOO_BIG);
    CHECK_ERR(load_replaced(&file, "\"ops\":3,\"mem_bytes\":67108864",
                            "\"ops\":3,\"mem_bytes\":       1"),
              OMM_ERR_FORMAT);
    CHECK_ERR(load_replaced(&file, "locked-key", "lacked-key"), OMM_ERR_FORMAT);
    /* Every part of it counts. */
    static const char *const parts[] = {"\"public\":\"", "\"salt\":\"", "\"nonce\":\"",
                                        "\"box\":\""};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        CHECK_OK(omm_buf_append(&file, "", 1));
        char *at = strstr((char *)file.data, parts[i]);
        CHECK(at != NULL);
        file.size--;
        at += strlen(parts[i]) + 3;
        const char was = *at;
        *at = was == '0' ? '1' : '0';
        const omm_err err = load(&back, omm_buf_view(&file), passphrase);
        CHECK(err == OMM_ERR_SIGNATURE || err == OMM_ERR_MISMATCH);
        *at = was;
    }
    for (size_t size = 0; size < file.size - 1; size += 7)
        CHECK(load(&back, omm_bytes_of(file.data, size), passphrase) != OMM_OK);
    CHECK_OK(load(&back, omm_buf_view(&file), passphrase));
    CHECK_EQ(chmod(path_of("changed"), 0644), 0);
    CHECK_ERR(omm_key_load_locked(&back, path_of("changed"), omm_bytes_str(passphrase)),
              OMM_ERR_CONFIG);
    CHECK_OK(omm_dir_remove(s_dir));
    omm_buf_fini(&file);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
