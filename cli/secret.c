/* secret.c - see secret.h. */
#include "secret.h"

#include "omm/file.h"
#include "omm/key_lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

void secret_wipe(omm_buf *secret) {
    if (secret->data) explicit_bzero(secret->data, secret->capacity);
    omm_buf_fini(secret);
}

/* One line from `fd`, without its end. */
static omm_err read_line(omm_buf *out, int fd) {
    char c = '\0';
    ssize_t got = 0;
    OMM_TRY(omm_buf_reserve(out, OMM_PASSPHRASE_BYTES_MAX)); /* no copy of it moves */
    while ((got = read(fd, &c, 1)) == 1 && c != '\n') {
        if (out->size == OMM_PASSPHRASE_BYTES_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "passphrase: over %u bytes",
                             OMM_PASSPHRASE_BYTES_MAX);
        OMM_TRY(omm_buf_append(out, &c, 1));
    }
    return got < 0 ? omm_raise(OMM_ERR_IO, "cannot read the passphrase") : OMM_OK;
}

static omm_err ask_once(omm_buf *out, int fd, const char *question) {
    struct termios shown, hidden;
    if (tcgetattr(fd, &shown) != 0) return omm_raise(OMM_ERR_IO, "cannot ask on the terminal");
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)ECHO;
    (void)tcsetattr(fd, TCSAFLUSH,
                    &hidden); /* before the question: it drops what was typed so far */
    (void)dprintf(fd, "%s: ", question);
    const omm_err err = read_line(out, fd);
    (void)tcsetattr(fd, TCSAFLUSH, &shown);
    (void)dprintf(fd, "\n");
    return err;
}

omm_err secret_ask(omm_buf *out, const char *question, bool again) {
    const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return omm_raise(OMM_ERR_CONFIG,
                         "%s: no terminal to ask on; passphrase_file names a file "
                         "that has it",
                         question);
    omm_buf second;
    omm_buf_init(&second, OMM_PASSPHRASE_BYTES_MAX);
    omm_err err = ask_once(out, fd, question);
    if (err == OMM_OK && again) {
        err = ask_once(&second, fd, "the same again");
        if (err == OMM_OK && !omm_bytes_equal(omm_buf_view(out), omm_buf_view(&second)))
            err = omm_raise(OMM_ERR_CONFIG, "the two are not the same");
    }
    secret_wipe(&second);
    (void)close(fd);
    return err;
}

omm_err secret_read(omm_buf *out, const char *path) {
    OMM_TRY(omm_file_check_private(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return omm_raise(OMM_ERR_IO, "cannot read %s", path);
    const omm_err err = read_line(out, fd);
    (void)close(fd);
    return err;
}

omm_err secret_load_key(omm_key *out, const char *path, const char *passphrase_file) {
    bool locked = false;
    OMM_TRY(omm_key_is_locked(&locked, path));
    if (!locked) return omm_key_load(out, path);
    omm_buf passphrase;
    omm_buf_init(&passphrase, OMM_PASSPHRASE_BYTES_MAX);
    omm_err err = passphrase_file[0] ? secret_read(&passphrase, passphrase_file)
                                     : secret_ask(&passphrase, "passphrase of the key", false);
    if (err == OMM_OK) err = omm_key_load_locked(out, path, omm_buf_view(&passphrase));
    secret_wipe(&passphrase);
    return err;
}
