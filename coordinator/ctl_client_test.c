/* How long `ctl` waits for an answer: to its time and not over it, whatever the coordinator does or does not do. */
#include "ctl.h"
#include "ctl_wire.h"

#include "omm/clock.h"
#include "omm/coordinator_ctl.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* SHORT_MS: of a wait that shall end; LONG_MS: of one that shall not. */
enum { SHORT_MS = 300, THINKS_MS = 1500, LONG_MS = 100000, CLIENTS = 16 };

static char s_folder[] = "/tmp/omm-ctl-client-XXXXXX";

static int connect_or_listen(bool listens) {
    struct sockaddr_un address;
    int folder;
    CHECK_OK(ctl_address(&address, &folder, s_folder));
    const int fd = socket(AF_UNIX, SOCK_STREAM | (listens ? 0 : SOCK_NONBLOCK), 0);
    CHECK(fd >= 0);
    const struct sockaddr *at = (const struct sockaddr *)&address;
    if (listens) {
        CHECK_EQ(bind(fd, at, sizeof address), 0);
        CHECK_EQ(listen(fd, 4), 0); /* as the coordinator's */
    } else {
        CHECK(connect(fd, at, sizeof address) == 0 || errno == EAGAIN);
    }
    close(folder);
    return fd;
}

static void stop_listening(int fd) {
    char path[OMM_PATH_MAX];
    close(fd);
    CHECK_OK(omm_path_join(path, s_folder, CTL_SOCKET_NAME));
    CHECK_OK(omm_file_remove(path));
}

/* The end of `status` with so long to wait. */
static omm_err ask(uint64_t timeout_ms, const char *want) {
    omm_buf answer;
    omm_buf_init(&answer, OMM_COORD_CTL_ANSWER_MAX);
    const uint64_t begin_ns = omm_measure_ns();
    const omm_err err = omm_coord_ctl_ask(&answer, s_folder, "status", "", timeout_ms);
    const uint64_t took_ms = (omm_measure_ns() - begin_ns) / 1000000;
    CHECK(err != OMM_OK || want[0]);
    CHECK(omm_bytes_equal(omm_buf_view(&answer), omm_bytes_str(want)));
    if (err == OMM_ERR_TIMEOUT) {
        CHECK(strstr(omm_err_sentence(), "it may still be done"));
        CHECK(took_ms + 1 >= timeout_ms && took_ms < LONG_MS);
    }
    omm_buf_fini(&answer);
    return err;
}

/* Nobody takes the question. */
static void test_silent(void) {
    const int door = connect_or_listen(true);
    CHECK_ERR(ask(SHORT_MS, ""), OMM_ERR_TIMEOUT);
    CHECK_ERR(ask(0, ""), OMM_ERR_TIMEOUT);
    stop_listening(door);
}

/* Nor is there a place to wait in: others wait already. */
static void test_crowded(void) {
    const int door = connect_or_listen(true);
    int fds[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) fds[i] = connect_or_listen(false);
    CHECK_ERR(ask(SHORT_MS, ""), OMM_ERR_TIMEOUT);
    for (unsigned i = 0; i < CLIENTS; i++) close(fds[i]);
    stop_listening(door);
}

static int take_question(int door) {
    char line[16] = "";
    const int fd = accept(door, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(recv(fd, line, 7, MSG_WAITALL), 7);
    CHECK_EQ(strcmp(line, "status\n"), 0);
    return fd;
}

/* An answer that never ends, byte by byte. */
static void *drip(void *ud) {
    const int fd = take_question(*(const int *)ud);
    while (send(fd, "o", 1, MSG_NOSIGNAL) == 1) usleep(1000);
    close(fd);
    return NULL;
}

static void *answer_late(void *ud) {
    const int fd = take_question(*(const int *)ud);
    usleep(THINKS_MS * 1000);
    CHECK_EQ(send(fd, "ok\nfine\n", 8, MSG_NOSIGNAL), 8);
    close(fd);
    return NULL;
}

static void *fail(void *ud) {
    const int fd = take_question(*(const int *)ud);
    CHECK_EQ(send(fd, "failed\nno room\n", 15, MSG_NOSIGNAL), 15);
    close(fd);
    return NULL;
}

/* As much as an answer may have. */
static char s_long[OMM_COORD_CTL_ANSWER_MAX + 1];

static void *answer_long(void *ud) {
    const int fd = take_question(*(const int *)ud);
    CHECK_EQ(send(fd, "ok\n", 3, MSG_NOSIGNAL), 3);
    CHECK_EQ(send(fd, s_long, strlen(s_long), MSG_NOSIGNAL), (ssize_t)strlen(s_long));
    close(fd);
    return NULL;
}

static void *refuse(void *ud) {
    const int fd = take_question(*(const int *)ud);
    CHECK_EQ(send(fd, "error\nnot now\n", 14, MSG_NOSIGNAL), 14);
    close(fd);
    return NULL;
}

static void test_with(void *(*coordinator)(void *), uint64_t wait_ms, omm_err end,
                      const char *want) {
    int door = connect_or_listen(true);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, coordinator, &door), 0);
    CHECK_ERR(ask(wait_ms, want), end);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    stop_listening(door);
}

/* What cannot be a line is not sent: nobody listens. */
static void test_words(void) {
    static char endless[2 * OMM_COORD_CTL_LINE_MAX];
    memset(endless, 'a', sizeof endless - 1);
    static const struct {
        const char *argument, *says;
    } cases[] = {{"J\xfcrgen", "quarantine: not UTF-8"},
                 {"a\nb", "quarantine: a line break"},
                 {endless, "quarantine: 522 bytes with all its words, accepted: up to 255"}};
    omm_buf answer;
    omm_buf_init(&answer, OMM_COORD_CTL_ANSWER_MAX);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_ERR(omm_coord_ctl_ask(&answer, s_folder, "quarantine", cases[i].argument, LONG_MS),
                  OMM_ERR_USAGE);
        CHECK(strstr(omm_err_sentence(), cases[i].says));
    }
    CHECK_ERR(omm_coord_ctl_ask(&answer, s_folder, "quarantine", "J\xc3\xbcrgen", LONG_MS),
              OMM_ERR_NOT_FOUND);
    omm_buf_fini(&answer);
}

int main(void) {
    CHECK(mkdtemp(s_folder));
    test_words();
    test_silent();
    test_crowded();
    test_with(drip, SHORT_MS, OMM_ERR_TIMEOUT, "");
    test_with(answer_late, LONG_MS, OMM_OK, "fine\n");
    memset(s_long, 'a', OMM_COORD_CTL_ANSWER_MAX);
    test_with(answer_long, LONG_MS, OMM_OK, s_long);
    test_with(fail, LONG_MS, OMM_ERR_IO, "no room\n");
    CHECK_EQ(strcmp(omm_err_sentence(), "no room"), 0);
    test_with(refuse, LONG_MS, OMM_ERR_STATE, "not now\n");
    CHECK_EQ(strcmp(omm_err_sentence(), "not now"), 0);
    CHECK_OK(omm_dir_remove(s_folder));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}
