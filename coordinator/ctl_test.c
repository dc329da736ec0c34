/* Goal: the operator's socket is for its own user and root alone, takes one whole line of text in its time, and what would change
 * the run waits until the state machine is free, or is forgotten with who asked.
 * Method: the coordinator's end on a clock of the test's, asked by plain sockets. */
#include "ctl.h"
#include "ctl_wire.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY_UID 65534u
#define WAIT_S 60

static char s_folder[] = "/tmp/omm-ctl-XXXXXX";
static omm_fake_clock s_fake = {.now_ms = 1000};
static ctl *s_ctl;

static struct {
    unsigned count;
    omm_coord_ctl_action action;
    char argument[OMM_COORD_CTL_LINE_MAX];
    uint32_t uid;
} s_done;

static bool s_is_long;  /* it answers with as much as an answer may have */
static omm_err s_fails; /* OK: what is asked is done */

static omm_err act(void *ud, omm_buf *answer, const ctl_request *request) {
    (void)ud;
    if (s_fails != OMM_OK) return omm_raise(s_fails, "no");
    s_done.count++;
    s_done.action = request->action;
    s_done.uid = request->uid;
    (void)snprintf(s_done.argument, sizeof s_done.argument, "%s", request->argument);
    if (!s_is_long) return omm_buf_printf(answer, "fine\n");
    uint8_t *bytes = NULL;
    OMM_TRY(omm_buf_extend(answer, &bytes, OMM_COORD_CTL_ANSWER_MAX));
    memset(bytes, 'a', OMM_COORD_CTL_ANSWER_MAX);
    return OMM_OK;
}

static int dial(void) {
    const struct timeval wait = {.tv_sec = WAIT_S};
    struct sockaddr_un address;
    int folder;
    CHECK_OK(ctl_address(&address, &folder, s_folder));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait), 0);
    CHECK_EQ(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    close(folder);
    return fd;
}

static int say(const char *words, size_t size) {
    const int fd = dial();
    CHECK_EQ(send(fd, words, size, MSG_NOSIGNAL), (ssize_t)size);
    return fd;
}

/* Two looks: one takes the client, whose line is there already. */
static void look(bool is_free) {
    ctl_poll(s_ctl, is_free, act, NULL);
    ctl_poll(s_ctl, is_free, act, NULL);
}

/* What the client hears until it is hung up on; NULL: it is not yet. */
static void expect(int fd, const char *want) {
    char text[256] = "";
    const ssize_t size = recv(fd, text, sizeof text - 1, want ? MSG_WAITALL : MSG_DONTWAIT);
    if (want && want[0]) CHECK_EQ(size, (ssize_t)strlen(want));
    if (want && !want[0]) /* with what it said unread it is a reset */
        CHECK(size == 0 || (size < 0 && errno != EAGAIN));
    if (!want) CHECK(size < 0 && errno == EAGAIN);
    if (want) CHECK_EQ(strcmp(text, want), 0);
    if (want) close(fd);
}

static void test_words(void) {
    int fd = say("quarantine anna b\n", 18);
    look(true);
    expect(fd, "ok\nfine\n");
    CHECK(s_done.action == OMM_COORD_CTL_quarantine && strcmp(s_done.argument, "anna b") == 0);
    CHECK_EQ(s_done.uid, geteuid());
    fd = say("pau", 3); /* in two pieces */
    look(true);
    CHECK_EQ(send(fd, "se\n", 3, MSG_NOSIGNAL), 3);
    look(true);
    expect(fd, "ok\nfine\n");
    CHECK_EQ(s_done.action, OMM_COORD_CTL_pause);
    CHECK_EQ(s_done.count, 2);
    fd = say("pause now\n", 10);
    look(true);
    expect(fd, "error\npause takes no argument, and got now\n");
    CHECK_EQ(s_done.count, 2);
}

/* Whose fault it is that nothing was done: the word's, or the coordinator's own. */
static void test_fails(void) {
    static const struct {
        omm_err err;
        const char *want;
    } cases[] = {{OMM_ERR_USAGE, "error\nno\n"},     {OMM_ERR_CONFIG, "error\nno\n"},
                 {OMM_ERR_NOT_FOUND, "error\nno\n"}, {OMM_ERR_STATE, "error\nno\n"},
                 {OMM_ERR_TOO_BIG, "error\nno\n"},   {OMM_ERR_IO, "failed\nno\n"},
                 {OMM_ERR_NOMEM, "failed\nno\n"},    {OMM_ERR_FORMAT, "failed\nno\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s_fails = cases[i].err;
        const int fd = say("pause\n", 6);
        look(true);
        expect(fd, cases[i].want);
    }
    s_fails = OMM_OK;
}

/* The longest answer is in the socket before anybody reads. */
static void test_long(void) {
    static char text[4 + OMM_COORD_CTL_ANSWER_MAX];
    s_is_long = true;
    const int fd = say("nodes\n", 6);
    look(true);
    s_is_long = false;
    CHECK_EQ(recv(fd, text, sizeof text, MSG_WAITALL), 3 + (ssize_t)OMM_COORD_CTL_ANSWER_MAX);
    CHECK(memcmp(text, "ok\n", 3) == 0 && text[2 + OMM_COORD_CTL_ANSWER_MAX] == 'a');
    close(fd);
}

/* Neither text that is none nor a line without end is given to anybody, and who sent it hears why. */
static void test_lines(void) {
    char endless[OMM_COORD_CTL_LINE_MAX];
    memset(endless, 'a', sizeof endless);
    const unsigned before = s_done.count;
    const int fds[] = {say("pause\0\n", 7), say("quarantine \xff\n", 13),
                       say(endless, sizeof endless)};
    static const char *const want[] = {"error\nnot UTF-8; accepted: text in UTF-8\n",
                                       "error\nnot UTF-8; accepted: text in UTF-8\n",
                                       "error\na line that is too long\n"};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        look(true);
        expect(fds[i], want[i]);
    }
    CHECK_EQ(s_done.count, before);
}

static void test_time(void) {
    const int fd = say("pau", 3);
    look(true);
    s_fake.now_ms += CTL_LINE_MS;
    look(true);
    expect(fd, NULL);
    s_fake.now_ms++;
    look(true);
    expect(fd, "");
}

/* While the state machine works. */
static void test_busy(void) {
    const unsigned before = s_done.count;
    int fd = say("status json\n", 12);
    look(false);
    expect(fd, "ok\nfine\n");
    CHECK_EQ(s_done.count, before + 1);
    fd = say("release anna\n", 13);
    look(false);
    expect(fd, NULL);
    CHECK_EQ(s_done.count, before + 1);
    look(true);
    expect(fd, "ok\nfine\n");
    CHECK(s_done.count == before + 2 && strcmp(s_done.argument, "anna") == 0);
    fd = say("pause\n", 6);
    look(false);
    close(fd); /* and does not want it any more */
    look(false);
    look(true);
    CHECK_EQ(s_done.count, before + 2);
}

static void test_mode(void) {
    char path[OMM_PATH_MAX];
    struct stat st;
    CHECK_OK(omm_path_join(path, s_folder, CTL_SOCKET_NAME));
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
}

/* Who got in all the same, by a mode that somebody changed. */
static void test_other_user(void) {
    char path[OMM_PATH_MAX];
    if (geteuid() != 0) return; /* nobody else to be */
    CHECK_OK(omm_path_join(path, s_folder, CTL_SOCKET_NAME));
    CHECK_EQ(chmod(s_folder, 0755), 0);
    CHECK_EQ(chmod(path, 0666), 0);
    const unsigned before = s_done.count;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQ(setuid(NOBODY_UID), 0);
        expect(say("pause\n", 6), "");
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, WNOHANG) == 0) {
        ctl_poll(s_ctl, true, act, NULL);
        usleep(1000);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQ(s_done.count, before);
}

/* Where it cannot be there is none. */
static void test_no_folder(void) {
    char path[OMM_PATH_MAX];
    ctl *none = NULL;
    CHECK_OK(omm_path_join(path, s_folder, "nowhere"));
    CHECK(ctl_open(&none, path, omm_clock_fake(&s_fake)) != OMM_OK);
    CHECK(!none && !omm_file_exists(path));
    CHECK_OK(omm_path_join(path, s_folder, CTL_SOCKET_NAME));
    CHECK_OK(omm_dir_make(path)); /* nothing that a coordinator before has left */
    CHECK_ERR(ctl_open(&none, s_folder, omm_clock_fake(&s_fake)), OMM_ERR_IO);
    CHECK(!none);
    CHECK_OK(omm_dir_remove(path));
}

int main(void) {
    CHECK(mkdtemp(s_folder));
    test_no_folder();
    const mode_t mask = umask(0); /* the mode is not left to it */
    CHECK_OK(ctl_open(&s_ctl, s_folder, omm_clock_fake(&s_fake)));
    (void)umask(mask);
    test_mode();
    test_words();
    test_fails();
    test_long();
    test_lines();
    test_time();
    test_busy();
    test_other_user();
    ctl_close(s_ctl);
    CHECK_OK(omm_dir_remove(s_folder));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
