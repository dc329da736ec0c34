/* file_pipe_test.c - omm_file_read of pipes: read to the end while somebody writes, refused where nobody does. */
#include "omm/file.h"

#include "omm_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char s_root[] = "/tmp/omm_file_pipe_test_XXXXXX";
static char s_pipe[OMM_PATH_MAX];

static void *write_slowly(void *ud) {
    const int fd = open(s_pipe, O_WRONLY | O_CLOEXEC);
    bool *wrote = ud;
    *wrote = fd >= 0;
    for (int i = 0; i < 3; i++) {
        const struct timespec pause = {0, 20000000};
        *wrote = *wrote && write(fd, "abc", 3) == 3;
        (void)nanosleep(&pause, NULL);
    }
    if (fd >= 0) close(fd);
    return NULL;
}

static void nobody_writes(void) {
    omm_buf text;
    omm_buf_init(&text, 100);
    CHECK_OK(omm_buf_append(&text, "=", 1));
    CHECK_ERR(omm_file_read(&text, s_pipe), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "pipe: a named pipe that nobody writes to") != NULL);
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str("=")));
    omm_buf_fini(&text);
}

static void all_is_read(void) {
    omm_buf text;
    pthread_t writer;
    bool wrote = false;
    omm_buf_init(&text, 100);
    CHECK_EQ(pthread_create(&writer, NULL, write_slowly, &wrote), 0);
    CHECK_OK(omm_file_read(&text, s_pipe));
    CHECK_EQ(pthread_join(writer, NULL), 0);
    CHECK(wrote);
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str("abcabcabc")));
    omm_buf_fini(&text);
}

/* As a shell's <(true): its writer has gone before we come. */
static void an_empty_one_is_empty(void) {
    char name[32];
    omm_buf text;
    int ends[2];
    omm_buf_init(&text, 100);
    CHECK_EQ(pipe(ends), 0);
    close(ends[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    CHECK_OK(omm_file_read(&text, name));
    CHECK_EQ(text.size, 0);
    close(ends[0]);
    omm_buf_fini(&text);
}

int main(void) {
    CHECK(mkdtemp(s_root) != NULL);
    CHECK_OK(omm_path_join(s_pipe, s_root, "pipe"));
    CHECK_EQ(mkfifo(s_pipe, 0600), 0);
    nobody_writes();
    all_is_read();
    an_empty_one_is_empty();
    CHECK_EQ(unlink(s_pipe), 0);
    CHECK_EQ(rmdir(s_root), 0);
    return 0;
}
